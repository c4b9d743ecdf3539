"""What the integrations refuse, and what they keep where the other library is not there."""

import importlib
import io
import json
import math
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.errors import ConversionError, LedgerError, UnsupportedCombination
from fedprivacy.integrations import flower, peers
from fedprivacy.integrations.flower.saved import FORMAT, Saved, SavedContent, opened
from fedprivacy.integrations.flower.wire import clipped_update, flat, may_hold, shaped, spread

from .test_refused_calls import fits

SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)
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


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    scale=st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e3, 1e30]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    factor=st.sampled_from([1.0, 2.5]),
    seed=st.integers(0, 9),
)
@SETTINGS
def test_what_leaves_is_no_longer_than_the_norm_and_keeps_its_direction(
    sizes, scale, clip, factor, seed
):
    rng = np.random.default_rng(seed)
    after = {
        f"{n}": (scale * rng.normal(size=(size, 2))).astype(np.float32)
        for n, size in enumerate(sizes)
    }
    before = {name: np.zeros_like(value) for name, value in after.items()}
    whole = -flat(after).astype(np.float64)
    sent = clipped_update(before, after, clip_norm=clip, factor=factor).astype(np.float64)
    long, norm = np.linalg.norm(whole), np.linalg.norm(sent) * factor
    assert norm <= clip * (1.0 + 1e-6)
    if long * factor <= clip:
        assert np.array_equal(sent, whole)
    else:
        assert norm >= clip * (1.0 - 1e-5)
        np.testing.assert_allclose(sent / np.linalg.norm(sent), whole / long, atol=1e-5)


def test_a_mask_is_clipped_by_what_travels_alone():
    after, mask = arrays(a=3.0, b=100.0), np.array([0, 2])
    sent = clipped_update(ZEROS, after, clip_norm=5.0, mask=mask)
    assert sent.tolist() == [-3.0, -3.0]
    assert spread(sent, 10, mask).tolist() == [-3.0, 0.0, -3.0] + [0.0] * 7
    short = clipped_update(ZEROS, after, clip_norm=1.0, factor=5.0, mask=mask)
    assert np.linalg.norm(short) * 5.0 == pytest.approx(1.0, rel=1e-6)
    whole = clipped_update(ZEROS, after, clip_norm=1e9)
    assert spread(whole, 10, None) is whole


@given(shapes=st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
@SETTINGS
def test_a_vector_goes_back_into_its_arrays(shapes):
    rng = np.random.default_rng(1)
    like = {f"{n}": rng.normal(size=s).astype(np.float32) for n, s in enumerate(shapes)}
    back = shaped(flat(like), like)
    assert list(back) == list(like)
    assert all(np.array_equal(back[name], value) for name, value in like.items())
    assert all(back[name].shape == value.shape for name, value in like.items())


def test_a_saved_vector_is_no_longer_than_its_numbers_and_a_header():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(1000, np.float32))
    assert may_hold(buffer.getvalue(), 1000)
    assert may_hold(bytes(4 * 7 + 4096), 7) and not may_hold(bytes(4 * 7 + 4097), 7)


# ---- Flower, without Flower: what is on disk


@pytest.fixture
def ledger(tmp_path):
    (tmp_path / "ledger").mkdir()
    facts = {"unit": "client", "adjacency": "zero_out"}
    with fp.Ledger.create(tmp_path / "ledger" / "run.jsonl", **facts) as new:
        yield new


def saved(path, ledger, *, head=None, raw=None):
    """A model's file with another head in it."""
    told = {"format": FORMAT, "ledger": ledger.place, "rounds": 3, "clip_norm": None}
    text = raw if raw is not None else json.dumps(told | (head or {}))
    np.savez(path, **{"head": np.array(text), "array:a": np.ones(2, np.float32)})
    return path


@pytest.mark.parametrize("norm", [None, 0.25])
def test_a_model_comes_back_as_it_was(tmp_path, ledger, norm):
    file = Saved(tmp_path / "model.npz", ledger)
    assert file.read() is None
    # Names that are a file's own, or another's keywords.
    odd = {"head": np.ones(2, np.float32), "file": np.zeros((1, 3), np.float32), "a/b": np.eye(2)}
    file.write(SavedContent(odd, 7, norm))
    found = file.read()
    assert (found.rounds, found.clip_norm, list(found.arrays)) == (7, norm, list(odd))
    assert all(np.array_equal(found.arrays[name], value) for name, value in odd.items())
    file.write(SavedContent(odd, 8, norm))
    assert file.read().rounds == 8 and len(list(tmp_path.iterdir())) == 2


HEADS = {
    "a list": ({"raw": "[1]"}, "AttributeError"),
    "no JSON": ({"raw": "{"}, "JSONDecodeError"),
    "rounds without end": ({"head": {"rounds": math.inf}}, "OverflowError"),
    "rounds of a word": ({"head": {"rounds": "many"}}, "ValueError"),
    "no rounds": ({"raw": json.dumps({"format": FORMAT, "ledger": [1, ""]})}, "KeyError"),
    "a norm of a list": ({"head": {"clip_norm": [1]}}, "TypeError"),
}


@pytest.mark.parametrize("what", HEADS)
def test_a_model_with_a_damaged_head_is_refused(tmp_path, ledger, what):
    changed, kind = HEADS[what]
    path = saved(tmp_path / "model.npz", ledger, **changed)
    with pytest.raises(fp.ParameterError) as caught:
        Saved(path, ledger).read()
    assert str(caught.value) == (
        f"checkpoint must be a model of this run, got {str(path)!r} ({kind}); restore it, or "
        "remove it and start with new arrays"
    )


@pytest.mark.parametrize(
    "head",
    [
        {"ledger": "another"},
        {"ledger": [1, "another"]},
        {"ledger": [[], 1]},
        {"ledger": [1, "\ud800"]},
        {"ledger": None},
        {"format": "fedprivacy flower model 1"},
    ],
)
def test_a_model_of_another_run_is_refused(tmp_path, ledger, head):
    path = saved(tmp_path / "model.npz", ledger, head=head)
    told = (
        "finish the run with the version that started"
        if "format" in head
        else "the run of this ledger, which must count"
    )
    with pytest.raises(fp.ParameterError, match=told):
        Saved(path, ledger).read()
    assert Saved(saved(path, ledger), ledger).read().rounds == 3


def test_a_model_beyond_a_ledger_that_was_put_back_is_refused(tmp_path, ledger):
    """Only the nonce was compared: a run went on to round 7 with 3 rounds in its ledger."""
    place, path = ledger.path, tmp_path / "model.npz"
    backup = place.read_bytes()
    round_ = fp.Gaussian(noise_multiplier=2.0, unit="client")
    ledger.intent(round_, clip_norm=1.0, noise_std=2.0)
    Saved(path, ledger).write(SavedContent({"a": np.ones(2, np.float32)}, 1, None))
    ledger.release()
    assert Saved(path, fp.Ledger.open(place)).read().rounds == 1
    place.write_bytes(backup)
    with fp.Ledger.open(place, resume=True) as old:
        old.intent(round_, clip_norm=1.0, noise_std=3.0)
        with pytest.raises(fp.ParameterError, match="of this ledger, which must count the rounds"):
            Saved(path, old).read()


def test_a_model_whose_bytes_were_changed_is_refused_or_read_as_it_was(tmp_path, ledger):
    """A byte at a time: never another error, never other numbers."""
    path = saved(tmp_path / "model.npz", ledger)
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), 7):
        broken = bytearray(whole)
        broken[place] ^= 0x55
        path.write_bytes(bytes(broken))
        try:
            found = Saved(path, ledger).read()
        except fp.ParameterError:
            refused += 1
        else:
            assert found.rounds == 3
            assert all(np.array_equal(each, np.ones(2)) for each in found.arrays.values())
    assert refused > 20


def test_a_model_with_pickled_arrays_runs_nothing(tmp_path, ledger):
    path = saved(tmp_path / "model.npz", ledger)
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("array:b.npy", buffer.getvalue())
    with pytest.raises(fp.ParameterError, match=r"model of this run, got .* \(ValueError\)"):
        Saved(path, ledger).read()


BUDGETS = {
    "adjacency": fp.Budget(epsilon=8.0, delta=1e-5, adjacency="replace_one"),
    "observer": fp.Budget(epsilon=8.0, delta=1e-5, adjacency="zero_out", observer="server"),
}


@pytest.mark.parametrize("what", BUDGETS)
def test_a_ledger_is_gone_on_with_under_its_own_budget_alone(tmp_path, what):
    path = tmp_path / "run.jsonl"
    own = fp.Budget(epsilon=8.0, delta=1e-5, adjacency="zero_out")
    opened(path, own, None, "Flower").release()
    with pytest.raises(LedgerError) as caught:
        opened(path, BUDGETS[what], None, "Flower")
    told = "resume with the original budget, or name another file"
    assert str(path) in str(caught.value) and str(caught.value).endswith(told)
    # Let go of: the right budget may go on.
    again = opened(path, own, None, "Flower")
    assert again.claim == (8.0, 1e-5) and again.description == "Flower, by fedprivacy"
    again.release()


@pytest.mark.parametrize(("seed", "policy"), [(None, "operating system"), (3, "fixed")])
def test_a_new_ledger_says_whether_its_randomness_is_secret(tmp_path, seed, policy):
    budget = fp.Budget(epsilon=2.0, delta=1e-3, adjacency="zero_out")
    with opened(tmp_path / "run.jsonl", budget, seed, "NVFlare") as ledger:
        assert ledger.seed_policy == policy and ledger.description == "NVFlare, by fedprivacy"


# ---- what is not installed


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

    # Another module that is missing is not mended by the extra.
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
    """In a process of its own: here torch is imported already."""
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

    with pytest.raises(UnsupportedCombination, match="has a stream of records, whose number is no"):
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
    "parallel": (lambda: fp.Parallel(None), "mechanisms must be several mechanisms"),
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
