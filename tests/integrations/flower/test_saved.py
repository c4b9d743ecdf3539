"""Tests of ``fedprivacy.integrations.flower.saved``."""

import io
import json
import math
import zipfile

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import (
    LedgerError,
    ParameterError,
)
from fedprivacy.integrations.flower.saved import FORMAT, Saved, SavedContent, opened
from fedprivacy.ledger import Ledger

AFTER = {"a": np.full(3, 3.0, np.float32), "b": np.full((2, 2), -1.0, np.float32)}


def test_a_saved_model_belongs_to_its_ledger(tmp_path):
    path, facts = tmp_path / "model.npz", {"unit": "client", "adjacency": "zero_out"}
    one, another = (Ledger.create(tmp_path / name, **facts) for name in ("one", "another"))
    saved = Saved(path, one)
    assert saved.read() is None
    saved.write(SavedContent(AFTER, 5, 0.25))
    arrays, rounds, norm = saved.read()
    assert (rounds, norm) == (5, 0.25) and all(
        np.array_equal(arrays[name], AFTER[name]) for name in AFTER
    )
    with pytest.raises(ParameterError, match="the run of this ledger"):
        Saved(path, another).read()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ParameterError, match="restore"):
        saved.read()


# ---- Flower, without Flower: the files on disk


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
    """Only the nonce was compared: a run continued to round 7 with 3 rounds in its ledger."""
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
    # Released: the right budget may continue.
    again = opened(path, own, None, "Flower")
    assert again.claim == (8.0, 1e-5) and again.description == "Flower, by fedprivacy"
    again.release()


@pytest.mark.parametrize(("seed", "policy"), [(None, "operating system"), (3, "fixed")])
def test_a_new_ledger_says_whether_its_randomness_is_secret(tmp_path, seed, policy):
    budget = fp.Budget(epsilon=2.0, delta=1e-3, adjacency="zero_out")
    with opened(tmp_path / "run.jsonl", budget, seed, "NVFlare") as ledger:
        assert ledger.seed_policy == policy and ledger.description == "NVFlare, by fedprivacy"
