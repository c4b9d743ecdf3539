"""Rounds with integer noise: through the loop, the ledger, the account and the audit."""

import numpy as np
import pytest

import fedprivacy as fp

torch = pytest.importorskip("torch")

from fedprivacy.runs.experiment import Experiment  # noqa: E402
from fedprivacy.runs.jobs import job  # noqa: E402
from fedprivacy.training import FederatedAveraging, logistic, train  # noqa: E402
from tests.common import two_classes  # noqa: E402
from tests.contract.kills import kill_often  # noqa: E402

pytestmark = pytest.mark.usefixtures("narrowest")

KINDS = [fp.DistributedDiscreteGaussian, fp.Skellam]


def data():
    return two_classes(60, 12, inputs=5)


def loop(kind, *, seed=3, scheme=None, **options):
    facts = {"noise_multiplier": 2.0, "clip_norm": 1.0, "dimension": 12, "cohort": 12, "bits": 16}
    return FederatedAveraging(
        model=logistic(5, 2),
        scheme=scheme or fp.Everyone(),
        perturbation=kind(**facts | options),
        local_steps=2,
        batch_size=5,
        learning_rate=0.5,
        seed=seed,
    )


FACTS = {"unit": "client", "adjacency": "zero_out"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_stops_goes_on_as_if_it_had_not(kind, tmp_path):
    class Stopped(Exception):
        pass

    def stop(state, info):
        if state.round == 2:
            raise Stopped

    whole = loop(kind)
    ledgers = [tmp_path / "one.ledger", tmp_path / "two.ledger"]
    with fp.Ledger.create(ledgers[0], **FACTS, seed_policy="fixed") as ledger:
        first = train(whole, data(), rounds=4, ledger=ledger, checkpoint=tmp_path / "one.pt")
    places = {"rounds": 4, "checkpoint": tmp_path / "two.pt"}
    with (
        fp.Ledger.create(ledgers[1], **FACTS, seed_policy="fixed") as ledger,
        pytest.raises(Stopped),
    ):
        train(whole, data(), **places, ledger=ledger, on_round=stop)
    with fp.Ledger.open(ledgers[1], resume=True) as ledger:
        second = train(loop(kind), data(), **places, ledger=ledger)
    assert torch.equal(first.state.parameters, second.state.parameters)
    ends = [fp.account(path, delta=1e-4).upper for path in ledgers]
    run = whole.round_mechanism * 4
    assert ends[0] == ends[1] == fp.epsilon(run, delta=1e-4, adjacency="zero_out").upper


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_is_audited_and_reported_in_words(kind, tmp_path):
    path, one = tmp_path / "run.ledger", loop(kind, seed=None)
    with fp.Ledger.create(path, **FACTS) as ledger:
        train(one, data(), rounds=2, ledger=ledger)
        ledger.close()
    end = fp.epsilon(one.round_mechanism * 2, delta=1e-4, adjacency="zero_out").upper
    assert ledger.closed
    audit = fp.audit(path, claim=(end + 1e-6, 1e-4))
    assert str(audit.verdict) == "HOLDS"
    fp.report(audit, tmp_path / "report.html")
    name = {"Skellam": "Skellam"}.get(kind.__name__, "discrete Gaussian")
    assert f"{name} noise of std 2 clip norms" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_learn_and_say_how_many_bytes_travel(kind):
    """Accuracy of noise next to none is that of training without; 16 numbers of 20 bits travel."""
    one = loop(kind, noise_multiplier=0.02, bits=20, clip_norm=5.0)
    state = one.init()
    for _ in range(10):
        state, info = one.step(state, data())
    assert info.payload_bytes == 12 * 16 * 20 // 8
    assert info.noise_std == pytest.approx(0.1)
    assert one.evaluate(state, data())[0] > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_dropouts_within_the_declared_number_leave_less_noise_and_more_end_the_round(kind):
    one = loop(kind, missing=3)
    state, info = one.step(one.init(), data(), dropout=lambda cohort: cohort[:3])
    assert not info.aborted and info.noise_std == pytest.approx(2.0 * (9 / 12) ** 0.5)
    after, info = one.step(state, data(), dropout=lambda cohort: cohort[:4])
    assert info.aborted and torch.equal(after.parameters, state.parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_move_the_sum_by_no_more_than_is_counted(kind):
    """For any vector of one client, zeros in its place are within the counted norm."""
    mechanism = loop(kind, bits=14).perturbation.of_round(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    others = sum(mechanism.contribution(rng.normal(size=12)) for _ in range(11))
    for size in (1e-9, 0.1, 1.0, 1e9, 1e200):
        own = mechanism.contribution(rng.normal(size=12) * size)
        moved = (others + own) - (others + mechanism.contribution(np.zeros(12)))
        assert float(moved @ moved) <= mechanism.square


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_clients_move_the_sum_by_no_more_than_is_counted(kind):
    """Opposite updates as well, whose roundings are the farthest apart; many, of every length."""
    mechanism = loop(kind, bits=12).perturbation.of_round(np.random.default_rng(0))
    rng, farthest = np.random.default_rng(1), 0.0
    for size in (1e-9, 0.1, 0.999, 1.0, 1e9, 1e200) * 20:
        own = rng.normal(size=12) * size
        for other in (-own, rng.normal(size=12) * size):
            moved = mechanism.contribution(own) - mechanism.contribution(other)
            assert float(moved @ moved) <= 4.0 * mechanism.square
            farthest = max(farthest, float(moved @ moved) / (4.0 * mechanism.square))
    # Nearly all that is counted is reached: the bound is not idle.
    assert farthest > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("loop_name", "seed"), [("discrete gaussian", 5), ("skellam", 6)])
def test_killed_at_random_moments_it_never_counts_too_little(loop_name, seed, tmp_path):
    kill_often(loop_name, tmp_path, 20, seed)


WHOLE = {"rounds": 2, "local_steps": 1, "clients": 60, "clip_norm": 1.0}


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize(
    ("noise", "drawn"),
    [("skellam", "poisson"), ("discrete-gaussian", "fixed"), ("discrete-gaussian", "poisson")],
)
def test_a_method_takes_noise_in_whole_numbers_by_name(noise, drawn, tmp_path):
    """As ``fedprivacy train --set noise=skellam --set bits=14`` runs it: calibrated and audited."""
    given = WHOLE | {"noise": noise, "strategy": drawn, "bits": 14, "cohort": 12}
    task = job("dp-fedavg", "digits", **given)
    kind = {"skellam": fp.Skellam, "discrete-gaussian": fp.DistributedDiscreteGaussian}[noise]
    assert type(task.loop(1.0, None).perturbation) is kind
    assert (task.settings["noise"], task.settings["bits"]) == (noise, 14)
    # 650 parameters are padded to 1024.
    assert task.upload_per_client == pytest.approx(14 * 1024 / 8e6 * 2 * 12 / 60)
    done = Experiment(job=task, epsilon=20.0, delta=1e-2).run(ledger_path=tmp_path / "run.ledger")
    assert done.audit.bound.upper <= 20.0
    if task.expected_bytes is None:
        assert done.upload_bytes == 2 * 12 * (24 + 14 * 1024 // 8)
    else:
        assert task.expected_bytes == 2 * 12 * (24 + 14 * 1024 // 8)


def test_settings_of_whole_numbers_that_do_not_fit_are_refused():
    with pytest.raises(fp.ParameterError, match="noise must be one of"):
        job("dp-fedavg", "digits", noise="laplace")
    with pytest.raises(fp.ParameterError, match="bits must be left out"):
        job("dp-fedavg", "digits", bits=16)


def test_clients_updates_that_are_no_numbers_are_refused_and_their_noise_stays(tmp_path):
    poisoned = data()
    poisoned.features[:5] = float("nan")
    one = loop(fp.DistributedDiscreteGaussian)
    _, info = one.step(one.init(), poisoned)
    assert info.refused == 1 and info.noise_std == pytest.approx(2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_more_clients_than_their_bits_hold_are_refused(kind):
    few = loop(kind, cohort=6)
    with pytest.raises(fp.ParameterError, match="cohort must be at most 6, got 12"):
        few.step(few.init(), data())
    # Cohorts that vary may be larger than their mean, which may not be larger than declared.
    varies = loop(kind, cohort=6, topped_up=True, scheme=fp.Poisson(0.9))
    with pytest.raises(fp.ParameterError, match="cohort must be at most 6, got 11"):
        varies.step(varies.init(), data())
    fits = loop(kind, cohort=6, topped_up=True, scheme=fp.Poisson(0.5))
    state = fits.init()
    for _ in range(5):
        state, _ = fits.step(state, data())


@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_that_doubles_do_not_hold_is_not_decoded(kind):
    with pytest.raises(fp.ParameterError, match="total must contain integers"):
        loop(kind).perturbation.of_round().decoded(np.full(16, 1e300))
