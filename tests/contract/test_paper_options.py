"""Every option that a paper names can be set by name, and reaches the loop that runs."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.runs.jobs import job
from fedprivacy.runs.methods import METHODS, settings_in_words
from fedprivacy.sampling import FixedSize, WithReplacement
from fedprivacy.systems.fed_plt.proximal import ElasticNet
from fedprivacy.systems.fed_plt.solvers import SolverKind
from fedprivacy.theory.targets import Averaging
from fedprivacy.training import DebiasedSampling, HamiltonianSampling, Scaffold

PAPERS = {
    # FA-LD: Algorithm 1, schemes I and II, Theorem 5.8.
    "fa-ld": {
        "K": "local_steps",
        "tau": "temperature",
        "rho": "correlation",
        "gamma": "batch_fraction",
        "S": "cohort",
        "p_c": "weights",
        "m": "step_decay",
    },
    # FA-HMC: Algorithms 1 and B.1.
    "fa-hmc": {
        "T": "iterations",
        "K": "local_steps",
        "eta": "step_size",
        "rho": "correlation",
        "gamma": "batch_fraction",
        "S": "cohort",
        "p_c": "weights",
    },
    # Fed-PLT: Algorithm 1 and Lemma 5.
    "fed-plt": {
        "K": "rounds",
        "N_e": "local_steps",
        "rho": "penalty",
        "gamma": "step_size",
        "p": "participation",
    },
    # Two-sided FedAvg: Algorithm 1.
    "fedavg": {
        "T": "rounds",
        "K": "local_steps",
        "eta_L": "learning_rate",
        "eta": "server_learning_rate",
        "mu": "proximal",
    },
    # Fed-SMP: Algorithm 2.
    "fed-smp-top-k": {
        "T": "rounds",
        "r": "cohort",
        "C": "clip_norm",
        "p = k / d": "kept_fraction",
        "tau_p": "mask_epochs",
    },
}
KNOBS = {
    "fa-ld": "step_size",
    "fa-hmc": "gradient_noise_multiplier",
    "fed-plt": "noise_scale",
    "fed-smp-top-k": "noise_multiplier",
}


@pytest.mark.parametrize("method", PAPERS)
def test_a_paper_s_symbols_are_settings(method):
    known = METHODS[method].known
    for symbol, name in PAPERS[method].items():
        assert known[name].symbol == symbol, name
        assert f"{name} ({symbol}): " in settings_in_words(method)
    if method in KNOBS:
        assert METHODS[method].knob_name == KNOBS[method]


def loop(method, level=None, **settings):
    return job(method, **settings).loop(level, None)


def test_a_sampler_averages_in_every_way():
    rule = METHODS["fa-ld"].known["averaging"].rule
    assert rule.text == f"one of {', '.join(Averaging)}"


def test_fa_ld_s_options_reach_its_loop():
    given = {"temperature": 0.5, "correlation": 0.3, "batch_fraction": 0.25, "local_steps": 3}
    found = loop("fa-ld", 1e-3, averaging="I", cohort=4, thinning=5, **given)
    assert {name: getattr(found, name) for name in given} == given
    assert (found.averaging, found.cohort, found.thinning, found.draws) == ("I", 4, 5, 5)
    assert found.rounds == 50
    # By the numbers of records, which differ by one.
    assert len(set(found.target.shares)) == 2
    second = loop("fa-ld", 1e-3, averaging="II", cohort=4)
    assert set(second.target.shares) == {0.1} and second.averaging == "II"
    assert set(loop("fa-ld", 1e-3, weights="equal").target.shares) == {0.1}
    # 1 / (1 / eta + m k / 12), and so from eta on.
    steps = loop("fa-ld", 1e-3, step_decay=120.0, local_steps=2).step_size.sizes(0, 2)
    assert steps == pytest.approx((1e-3, 1.0 / 1010.0), rel=1e-12)


def test_options_of_fa_ld_change_its_price():
    settings = {
        "plain": {},
        "hot": {"temperature": 4.0},
        "decaying": {"step_decay": 50.0},
        "batches": {"batch_fraction": 0.1},
    }
    spent = {
        name: fp.epsilon(
            job("fa-ld", rounds=3, **given).run(1e-4), delta=1e-5, adjacency="replace_one"
        ).upper
        for name, given in settings.items()
    }
    assert spent["hot"] < spent["plain"] and spent["decaying"] < spent["plain"]
    # A record has a larger part of a batch, which a rare draw does not make up for here.
    assert spent["plain"] < spent["batches"]


def test_fa_hmc_s_options_reach_its_loop():
    found = loop("fa-hmc", 2.0, iterations=3, local_steps=4, step_size=0.1, correlation=0.2)
    assert type(found) is HamiltonianSampling
    assert (found.iterations, found.leapfrog_steps, found.step_size) == (3, 4, 0.1)
    assert found.correlation == 0.2 and found.gradient_noise_multiplier == 2.0
    corrected = loop("fa-hmc", 2.0, gradients="debiased")
    assert type(corrected) is DebiasedSampling
    # Its gradient at the start of a round is one more release.
    spent = [
        fp.epsilon(each.round_mechanism, delta=1e-5, adjacency="replace_one").lower
        for each in (loop("fa-hmc", 2.0), corrected)
    ]
    assert spent[0] < spent[1]


def test_fed_plt_s_options_reach_its_loop():
    found = loop("fed-plt", 0.1, participation=0.5, l1=0.1, l2=0.2, penalty=2.0, local_steps=7)
    assert found.regulariser == ElasticNet(0.1, 0.2) and found.participation == 0.5
    assert (found.penalty, found.solvers[0].steps) == (2.0, 7)
    assert loop("fed-plt", 0.1).regulariser is None
    assert loop("fed-plt", 0.1, cohort=4).scheme == FixedSize(4, population=10)
    with pytest.raises(fp.ParameterError, match="participation must be left out, since cohort"):
        loop("fed-plt", 0.1, cohort=4, participation=0.5)


@pytest.mark.parametrize("kind", [each for each in SolverKind if each is not SolverKind.NOISY])
def test_fed_plt_without_noise_has_every_solver(kind):
    more = {"batch_size": 8} if kind is SolverKind.STOCHASTIC else {}
    found = loop("fed-plt-noiseless", solver=kind.value, **more)
    assert found.solvers[0].method is kind and found.round_mechanism is None
    with pytest.raises(fp.ParameterError, match="since fed-plt does not use it"):
        job("fed-plt", solver=kind.value)


def test_averaging_s_options_reach_their_loop():
    given = {"learning_rate": 0.2, "server_learning_rate": 3.0, "momentum": 0.5, "proximal": 0.1}
    found = loop("fedavg", strategy="1", cohort=7, local_steps=3, **given)
    assert {name: getattr(found, name) for name in given} == given
    assert isinstance(found.scheme, WithReplacement) and found.local_steps == 3
    assert isinstance(loop("fedavg", strategy="2", cohort=7).scheme, FixedSize)
    assert type(loop("scaffold")) is Scaffold and loop("scaffold").round_mechanism is None
    private = loop("dp-scaffold", 2.0, clip_norm=0.5)
    assert type(private) is Scaffold and private.local_steps == 5
    assert (private.perturbation.clip_norm, private.perturbation.noise_multiplier) == (0.5, 2.0)


def test_fed_smp_s_options_reach_its_loop():
    found = job("fed-smp-top-k", mask_epochs=10, public_records=50, kept_fraction=0.1)
    made = found.loop(2.0, None)
    assert made.mask_epochs == 10 and len(found.source.public()[1]) == 50
    assert made.perturbation.kept == 65
    # Other passes choose other coordinates, and clients train as before.
    loops = replace(made, seed=1), replace(made, seed=1, mask_epochs=None)
    masks = [each._mask(each.init(), found.data).tolist() for each in loops]
    assert masks[0] != masks[1] and made.optimiser == loops[1].optimiser
    with pytest.raises(fp.ParameterError, match="public_records must be left out"):
        job("fed-smp-top-k", found.source, public_records=10)
