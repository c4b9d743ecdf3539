"""Refusals of the integrations, and their behaviour without the other library."""

import importlib
import math
import subprocess
import sys

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import ConversionError, UnsupportedCombination
from fedprivacy.integrations import flower, peers
from fedprivacy.integrations.flower.wire import clipped_update, flat
from tests.contract.test_refused_calls import fits

ZEROS = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.float32)}
GAUSSIAN = fp.Gaussian(noise_multiplier=2.0)


def arrays(a=1.0, b=1.0):
    return {"a": np.full((2, 3), a, np.float32), "b": np.full(4, b, np.float32)}


# ---- Flower, without Flower: what travels

WIRE = {
    "double precision": (
        lambda: flat({"a": np.zeros(2, np.float32), "b": np.zeros(2)}),
        "array 'b' must be of single precision (float32), got dtype('float64'); keep it on "
        "the client, or build the model without running statistics",
    ),
    "a counter": (
        lambda: flat({"steps": np.zeros(1, np.int64)}),
        "array 'steps' must be of single precision (float32), got dtype('int64'); ...",
    ),
    "no array": (lambda: flat({}), "arrays must be at least one, got 'none'"),
    "an array of its own": (
        lambda: clipped_update(ZEROS, {**ZEROS, "own": ZEROS["b"]}, clip_norm=1.0),
        "the app's arrays must have the names, order and shapes of the arrays that the "
        "server sent, got ['own']; a model with client-specific parts (as in FedBN) has no "
        "common sum; remove these arrays from the server's message",
    ),
    "an array that is missing": (
        lambda: clipped_update(ZEROS, {"a": ZEROS["a"]}, clip_norm=1.0),
        "the app's arrays must have the names, ..., got ['b']; a model...",
    ),
    "other shapes or a different order": (
        lambda: clipped_update(ZEROS, dict(reversed(ZEROS.items())), clip_norm=1.0),
        "the app's arrays must have ..., got 'other shapes or a different order'; a model...",
    ),
    "another shape": (
        lambda: clipped_update(ZEROS, {**ZEROS, "b": ZEROS["b"][None]}, clip_norm=1.0),
        "the app's arrays must have ..., got 'other shapes or a different order'; a model...",
    ),
    "what is no number": (
        lambda: clipped_update(ZEROS, arrays(b=math.nan), clip_norm=1.0),
        "the app's arrays must be finite, got 'a non-finite entry'; train with a smaller "
        "learning rate",
    ),
    "what is beyond all numbers": (
        lambda: clipped_update(ZEROS, arrays(a=math.inf), clip_norm=1.0),
        "the app's arrays must be finite, got 'a non-finite entry'; train with a smaller "
        "learning rate",
    ),
}


@pytest.mark.parametrize("what", WIRE)
def test_what_may_not_travel_is_refused(what):
    call, wanted = WIRE[what]
    with pytest.raises(fp.ParameterError) as caught:
        call()
    assert fits(str(caught.value), wanted), str(caught.value)


# ---- missing libraries


@pytest.mark.parametrize("name", ["Accountant", "EQUALLY", "PrivateStrategy", "private_mod"])
def test_flower_s_names_say_what_they_need(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "flwr", None)
    for room in ("accountant", "client", "strategy"):
        monkeypatch.delitem(sys.modules, f"fedprivacy.integrations.flower.{room}", raising=False)
    with pytest.raises(fp.ParameterError) as caught:
        getattr(flower, name)
    assert str(caught.value) == f"{name} needs flwr; pip install 'fedprivacy[flower]'"


def test_flower_has_no_other_names(monkeypatch):
    assert dir(flower) == sorted(flower.__all__) and len(flower.__all__) == 4
    with pytest.raises(AttributeError, match="has no attribute 'strategy_of_ours'"):
        flower.strategy_of_ours  # noqa: B018

    def broken(name):
        raise ModuleNotFoundError("No module named 'other'", name="other")

    # The extra does not install another missing module.
    monkeypatch.setattr(flower, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="other"):
        flower.Accountant  # noqa: B018


def test_nvflare_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvflare", None)
    monkeypatch.delitem(sys.modules, "fedprivacy.integrations.nvflare", raising=False)
    with pytest.raises(fp.ParameterError) as caught:
        importlib.import_module("fedprivacy.integrations.nvflare")
    assert str(caught.value) == (
        "fedprivacy.integrations.nvflare needs nvflare; pip install 'nvflare>=2.9,<2.10'"
    )


@pytest.mark.parametrize("missing", ["torch", "opacus"])
def test_opacus_says_what_it_needs(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    # opacus may be imported already.
    monkeypatch.setitem(sys.modules, f"{missing}.accountants", None)
    monkeypatch.delitem(sys.modules, "fedprivacy.integrations.opacus", raising=False)
    with pytest.raises(fp.ParameterError) as caught:
        importlib.import_module("fedprivacy.integrations.opacus")
    assert str(caught.value) == (
        f"fedprivacy.integrations.opacus needs {missing}; pip install 'fedprivacy[train]' opacus"
    )


def test_flower_needs_torch_too(monkeypatch):
    def bare(name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(flower, "import_module", bare)
    with pytest.raises(fp.ParameterError, match="PrivateStrategy needs torch; pip install"):
        flower.PrivateStrategy  # noqa: B018


def test_training_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "fedprivacy.training", raising=False)
    with pytest.raises(fp.ParameterError) as caught:
        importlib.import_module("fedprivacy.training")
    assert str(caught.value) == "training needs torch; pip install 'fedprivacy[train]'"


WITHOUT_TORCH = """
import subprocess
import sys

sys.modules["torch"] = None
import fedprivacy as fp
from fedprivacy.cli import main

for words in (["train", "--epsilon", "8"], ["sweep", "--epsilon", "8"], ["demo"]):
    try:
        main([*words, "--delta", "1e-3"])
    except SystemExit as end:
        print(end.code)
try:
    fp.attack("dp-fedavg")
except fp.ParameterError as error:
    print(error)
"""


def test_whatever_trains_says_that_it_needs_torch(tmp_path):
    """In a separate process: here torch is imported already."""
    told = "training needs torch; pip install 'fedprivacy[train]'"
    command = [sys.executable, "-c", WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["2", "2", "2", told]
    assert done.stderr.splitlines() == [f"fedprivacy: {told}"] * 3
    assert not list(tmp_path.iterdir())


# ---- other libraries' accountants

KNOWN = {
    "one round": (GAUSSIAN * 1, [(2.0, 1.0, 1)]),
    "sampled": (GAUSSIAN.sampled(fp.Poisson(0.25)) * 7, [(2.0, 0.25, 7)]),
    "one after the other": (
        GAUSSIAN.sampled(fp.Poisson(0.25)) * 7 + GAUSSIAN * 2,
        [(2.0, 0.25, 7), (2.0, 1.0, 2)],
    ),
}


@pytest.mark.parametrize("what", KNOWN)
def test_rounds_that_they_know_are_told_by_noise_rate_and_number(what):
    run, wanted = KNOWN[what]
    ask = (fp.Adjacency.ADD_REMOVE, fp.Observer.AGGREGATE)
    assert peers.sampled_gaussians(run, *ask) == wanted


UNKNOWN = {
    "another law": (
        fp.Laplace(noise_multiplier=2.0) * 3,
        (fp.Adjacency.ADD_REMOVE, fp.Observer.AGGREGATE),
        "it supports only Gaussian rounds with Poisson sampling, got Laplace",
    ),
    "cohorts of one size": (
        GAUSSIAN.sampled(fp.FixedSize(2, population=9)) * 3,
        (fp.Adjacency.ZERO_OUT, fp.Observer.AGGREGATE),
        "it supports only Gaussian rounds with Poisson sampling",
    ),
    "a record's replacement": (
        GAUSSIAN * 3,
        (fp.Adjacency.REPLACE_ONE, fp.Observer.AGGREGATE),
        "it has no replace_one for the observer aggregate",
    ),
    "a list of who took part": (
        GAUSSIAN * 3,
        (fp.Adjacency.ADD_REMOVE, fp.Observer.SERVER),
        "it has no add_remove for the observer server",
    ),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_they_do_not_know_is_not_put_to_them(what):
    run, facts, wanted = UNKNOWN[what]
    with pytest.raises(ConversionError) as caught:
        peers.sampled_gaussians(run, *facts)
    assert str(caught.value).startswith(wanted)


def test_nobody_is_asked_for_an_infinite_epsilon():
    asked = (GAUSSIAN * 1, 1e-5, fp.Adjacency.ADD_REMOVE, fp.Observer.AGGREGATE)
    told = list(peers.answers(asked, math.inf))
    assert [who for who, _, _ in told] == list(peers.ACCOUNTANTS)
    assert {(found, why) for _, found, why in told} == {
        (None, "skipped, since epsilon is infinite")
    }


def test_what_another_library_raises_is_its_answer(monkeypatch):
    def broken(*_):
        raise RuntimeError("no luck\nat all")

    def ours(*_):
        raise ConversionError("it has no such thing")

    def absent(*_):
        raise ImportError("elsewhere")

    monkeypatch.setattr(peers, "ACCOUNTANTS", {"a": broken, "b": ours, "c": absent, "d": max})
    asked = (GAUSSIAN * 1, 1e-5, fp.Adjacency.ADD_REMOVE, fp.Observer.AGGREGATE)
    monkeypatch.setitem(peers.ACCOUNTANTS, "d", lambda *asked: asked[-1])
    assert list(peers.answers(asked, 40.0)) == [
        ("a", None, "RuntimeError: no luck"),
        ("b", None, "it has no such thing"),
        ("c", None, "not installed"),
        # The spacing is coarser where epsilon is large.
        ("d", 40.0 / 200_000, ""),
    ]


# ---- Opacus


@pytest.fixture
def live():
    pytest.importorskip("opacus")
    return importlib.import_module("fedprivacy.integrations.opacus")


def loader(**changed):
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.zeros(40, 3))
    return torch.utils.data.DataLoader(data, **{"batch_size": 8, **changed})


def test_an_accountant_of_opacus_asks_for_its_facts_in_turn(live):
    account = live.CertifiedAccountant()
    with pytest.raises(fp.ParameterError) as caught:
        account.bound(1e-5)
    told = "adjacency must be given, got None; register(adjacency='zero_out'), for example"
    assert str(caught.value) == told
    account = live.register(adjacency="zero_out")()
    with pytest.raises(fp.ParameterError) as caught:
        account.get_epsilon(1e-5)
    assert str(caught.value) == "history must contain a step, got 'empty'; no step was taken"
    account.step(noise_multiplier=2.0, sample_rate=0.2)
    with pytest.raises(fp.ParameterError) as caught:
        account.bound(1e-5)
    assert fits(
        str(caught.value),
        "the data loader must be passed to look_at before the first step, got None; call "
        "engine.accountant.look_at(data_loader) with the loader from make_private",
    )
    with pytest.raises(fp.ParameterError) as caught:
        account.look_at(loader())
    told = "look_at must be called before the first step, got 'after 1 steps'"
    assert str(caught.value) == told
    with pytest.raises(fp.ParameterError, match="adjacency must be one of 'add_remove', 'zero_out"):
        live.register(adjacency="next door")


def poisson_loader(rate):
    from opacus.data_loader import DPDataLoader

    torch = pytest.importorskip("torch")
    return DPDataLoader(torch.utils.data.TensorDataset(torch.zeros(40, 3)), sample_rate=rate)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_rate_that_is_not_the_loader_s_is_refused(live):
    account = live.register(adjacency="add_remove")()
    assert account.look_at(poisson_loader(0.2), scheme=fp.Poisson(0.2)) == fp.Poisson(0.2)
    for rate in (0.2, 0.2, 0.25):
        account.step(noise_multiplier=2.0, sample_rate=rate)
    with pytest.raises(fp.ParameterError) as caught:
        account.bound(1e-5)
    assert str(caught.value) == "sample rate must equal the loader's, 0.2, got 0.25"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_steps_that_are_alike_are_one_entry_and_cost_what_the_run_costs(live):
    account = live.register(adjacency="add_remove")()
    account.look_at(poisson_loader(0.2), scheme=fp.Poisson(0.2))
    for noise in (2.0, 2.0, 3.0, 2.0):
        account.step(noise_multiplier=noise, sample_rate=0.2)
    assert account.history == [(2.0, 0.2, 2), (3.0, 0.2, 1), (2.0, 0.2, 1)]
    assert len(account) == 4 and account.mechanism() == "fedprivacy"
    quiet, loud = (
        fp.Gaussian(noise_multiplier=z, unit="record").sampled(fp.Poisson(0.2)) for z in (2.0, 3.0)
    )
    run = quiet * 3 + loud * 1
    assert account.get_epsilon(1e-5) == fp.epsilon(run, delta=1e-5, adjacency="add_remove").upper


LOADERS = {
    "a short last batch of draws": (
        lambda torch: loader(sampler=torch.utils.data.RandomSampler(range(40), True, 30)),
        "30 draws in batches of 8, the last one smaller (pass drop_last)",
    ),
    "more draws than records": (
        lambda torch: loader(sampler=torch.utils.data.RandomSampler(range(40), False, 50)),
        "50 draws without replacement from 40, some of them twice",
    ),
    "an order of somebody's": (
        lambda torch: loader(sampler=torch.utils.data.SubsetRandomSampler(range(40))),
        "records drawn by SubsetRandomSampler",
    ),
}


@pytest.mark.parametrize("what", LOADERS)
def test_draws_without_a_theorem_are_named(live, what):
    torch = pytest.importorskip("torch")
    make, told = LOADERS[what]
    with pytest.raises(UnsupportedCombination) as caught:
        live.scheme_of(make(torch))
    assert str(caught.value).startswith(f"no theorem covers the steps of a data loader with {told}")


def test_a_stream_of_records_has_no_number(live):
    torch = pytest.importorskip("torch")

    class Numbers(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(9))

    with pytest.raises(UnsupportedCombination, match="a stream with an unknown number of records"):
        live.scheme_of(torch.utils.data.DataLoader(Numbers(), batch_size=2))


# ---- dp-accounting's accountant

FOREIGN = {
    "nothing": (None, "state must be what state() returned, got 'NoneType'"),
    "a list": ([], "state must be what state() returned, got 'list'"),
    "another's": ({"integration": "opacus"}, "state must be what state() returned, got 'dict'"),
    "a later one": ({"version": 2}, "version must be 1, got 2; upgrade fedprivacy"),
    "another relation's": (
        {"neighboring_relation": "REPLACE_ONE"},
        "state must be for ADD_OR_REMOVE_ONE, got 'REPLACE_ONE'",
    ),
    "another accountant's": (
        {"accountant": "magic"},
        "accountant must be one of 'pld', 'rdp'..., got 'magic'",
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_state_that_is_not_its_own_changes_nothing(what):
    dpa = pytest.importorskip("dp_accounting")
    from fedprivacy.integrations.dp_accounting import CertifiedAccountant

    changed, wanted = FOREIGN[what]
    account = CertifiedAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
    account.compose(dpa.GaussianDpEvent(3.0), 2)
    before = account.state()
    own = isinstance(changed, dict)
    with pytest.raises(fp.ParameterError) as caught:
        account.restore({**before, **changed} if own else changed)
    assert fits(str(caught.value), wanted), str(caught.value)
    assert account.state() == before and account.restore(before).state() == before


def test_an_event_with_a_field_out_of_range_is_told_with_its_place():
    dpa = pytest.importorskip("dp_accounting")
    from fedprivacy.integrations.dp_accounting import CertifiedAccountant, InvalidEventError

    account = CertifiedAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
    inside = dpa.GaussianDpEvent(-1.0)
    with pytest.raises(InvalidEventError) as caught:
        account.compose(dpa.PoissonSampledDpEvent(0.1, inside))
    told = str(caught.value)
    assert told.endswith(f"caused by subevent {inside}") and "got -1.0" in told
    assert isinstance(caught.value, ValueError | dpa.UnsupportedEventError)
    assert account.get_epsilon(1e-5) == 0.0


WITHOUT_A_NAME = {
    "parallel": (lambda: fp.Parallel(None), "mechanisms must be a sequence of mechanisms"),
    "calibrate": (
        lambda: fp.calibrate(
            fp.Gaussian(noise_multiplier=1.0), epsilon=1.0, delta=1e-5, adjacency="add_remove"
        ),
        "make_run must be a function of one number, got 'Gaussian'",
    ),
    "class": (
        lambda: fp.calibrate(fp.Gaussian, epsilon=1.0, delta=1e-5, adjacency="add_remove"),
        "make_run must be a function of one number (too many positional arguments), got 'Gaussian'",
    ),
    "generator": (
        lambda: fp.verify(fp.Gaussian(noise_multiplier=1.0), generator=3),
        "generator must be a NumPy generator, got 3",
    ),
    "text": (
        lambda: fp.verify(lambda updates, rng: "x", clip_norm=1.0, noise_std=1.0),
        "release's result must be finite",
    ),
    "ragged": (
        lambda: fp.verify(lambda updates, rng: [[1, 2], [3]], clip_norm=1.0, noise_std=1.0),
        "release's result must be finite",
    ),
    "empty": (
        lambda: fp.verify(lambda updates, rng: [], clip_norm=1.0, noise_std=1.0),
        "release's result must be finite",
    ),
}


@pytest.mark.parametrize("what", WITHOUT_A_NAME)
def test_what_is_of_another_kind_is_told_by_its_name(what):
    ask, told = WITHOUT_A_NAME[what]
    with pytest.raises(fp.ParameterError) as caught:
        ask()
    assert told in str(caught.value)
