"""Participation in rounds of correlated noise, and the files between rounds."""

import types
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.runs import parallel
from fedprivacy.systems.averaging import rows
from fedprivacy.systems.averaging.state import State

SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)
ROUNDS, CLIENTS = 9, 4
RULES = st.one_of(
    st.builds(fp.MinimumSeparation, st.integers(1, 5), at_most=st.sampled_from([None, 1, 2])),
    st.builds(fp.FixedEpochs, st.integers(2, 5), at_most=st.sampled_from([None, 2])),
    st.just(fp.SingleParticipation()),
)


def noise(rule=None, **changed):
    given = {
        "noise_multiplier": 2.0,
        "factor": factors.BufferedToeplitz(2),
        "rounds": ROUNDS,
        "participation": rule or fp.MinimumSeparation(3, at_most=2),
    }
    return fp.CorrelatedNoise(**{**given, **changed})


def begun(own=None, clients=CLIENTS):
    start = rows.begun(State(0, torch.zeros(3), 0.1), own or noise())
    return rows.of_clients(start, clients)


def allowed(rule, came, now):
    """Whether a client that came in these rounds may come now, by the rule's words."""
    if not came:
        return True
    away = now - came[-1]
    if isinstance(rule, fp.SingleParticipation):
        return False
    kept = away % rule.separation == 0 if isinstance(rule, fp.FixedEpochs) else True
    most = rule.at_most or ROUNDS
    return away >= rule.separation and kept and len(came) < most


@given(rule=RULES, seed=st.integers(0, 99))
@SETTINGS
def test_who_may_come_is_whom_the_rule_lets_come(rule, seed):
    own, draw = noise(rule), np.random.default_rng(seed)
    state, came = begun(own), [[] for _ in range(CLIENTS)]
    for number in range(ROUNDS):
        state = replace(state, round=number)
        free = rows.may_come(state, own)
        assert free.tolist() == [c for c in range(CLIENTS) if allowed(rule, came[c], number)]
        cohort = free[draw.random(len(free)) < 0.6]
        row = rows.row_of(state, cohort, own)
        gaps = [number - came[c][-1] for c in cohort if came[c]]
        assert row.row == number and row.separation == (min(gaps) if gaps else None)
        assert row.participations == max((len(came[c]) + 1 for c in cohort), default=0)
        held, before = state, state.last.tolist()
        state = rows.taken(state, cohort, own)
        # The state before may be in a checkpoint.
        assert held.last.tolist() == before and state.round == number
        for client in cohort:
            came[client].append(number)
        assert state.last.tolist() == [each[-1] if each else -1 for each in came]
        assert state.times.tolist() == list(map(len, came))


def test_a_client_that_comes_too_soon_is_refused_by_its_number_and_its_round():
    own = noise()
    state = rows.taken(replace(begun(own), round=2), np.array([1, 3]), own)
    with pytest.raises(fp.ParameterError) as caught:
        rows.taken(replace(state, round=4), np.array([0, 3]), own)
    rule = f"keep {own.participation}; it was drawn in round 2"
    assert str(caught.value) == f"client must {rule}, got 3; draw this client later"
    again = rows.taken(replace(state, round=5), np.array([0, 3]), own)
    assert again.times.tolist() == [1, 1, 0, 2]
    with pytest.raises(
        fp.ParameterError, match=r"client must keep .*, got 3; draw this client later"
    ):
        rows.taken(replace(again, round=8), np.array([3]), own)


def test_a_run_keeps_its_number_of_clients():
    own, fresh = noise(), rows.begun(State(0, torch.zeros(3), 0.1), noise())
    assert len(fresh.last) == 0 and rows.of_clients(fresh, 7).last.tolist() == [-1] * 7
    state = rows.taken(begun(own), np.array([0]), own)
    assert rows.of_clients(state, CLIENTS) is state
    with pytest.raises(fp.ParameterError) as caught:
        rows.of_clients(state, 5)
    assert str(caught.value) == "population must be the 4 clients of the earlier rounds, got 5"


def masked():
    run = factors.Restarted(factors.BufferedToeplitz(2), 3)
    return noise(factor=run, kept=2, dimension=5)


def test_a_mask_follows_from_the_ledger_or_a_seed_and_is_a_block_s(tmp_path):
    own = masked()
    with pytest.raises(fp.ParameterError) as caught:
        rows.mask_of(own, 0, None, None, "cpu")
    assert str(caught.value) == (
        "ledger must be given with kept, since it determines the mask of a block, got None; "
        "pass fp.Ledger.create(...)"
    )
    with fp.Ledger.create(tmp_path / "run", unit="client", adjacency="zero_out") as ledger:
        for seed, book in ((5, None), (None, ledger)):
            each = [rows.mask_of(own, row, seed, book, "cpu").tolist() for row in range(ROUNDS)]
            again = [rows.mask_of(own, row, seed, book, "cpu").tolist() for row in range(ROUNDS)]
            assert each == again and all(sorted(set(one)) == one for one in each)
            assert all(len(one) == 2 and set(one) <= set(range(5)) for one in each)
            assert all(each[row] == each[row - row % 3] for row in range(ROUNDS))
            assert len(set(map(tuple, each))) > 1
    assert rows.mask_of(noise(), 0, None, None, "cpu") is None


def changed(file, **other):
    """The file of a memory with something else in it."""
    content = torch.load(file.path, weights_only=True)
    torch.save({k: v for k, v in (content | other).items() if v is not None}, file.path)


BROKEN = {
    "no round": ({"round": None}, "contain a valid 'round'"),
    "a round of a fraction": ({"round": 1.5}, "contain a valid 'round'"),
    "a round that is true": ({"round": True}, "contain a valid 'round'"),
    "no memory": ({"memory": None}, "contain a valid 'memory'"),
    "memory of another model": ({"memory": torch.zeros(2, 4)}, "contain a valid 'memory'"),
    "other clients": ({"times": torch.zeros(9).long()}, "contain a valid 'times'"),
    "a drift that is a text": ({"drift": "0"}, "contain a valid 'drift'"),
    "another format": ({"format": "mine"}, "be the secret noise state of this ledger's"),
    "another ledger": ({"ledger": "mine"}, "be the secret noise state of this ledger's"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_memory_that_does_not_fit_is_refused_with_its_place(tmp_path, what):
    other, rule = BROKEN[what]
    with fp.Ledger.create(tmp_path / "run", unit="client", adjacency="zero_out") as ledger:
        file, state = rows.NoiseFile(ledger), begun()
        assert file.read(state) is None
        file.write(state)
        changed(file, **other)
        with pytest.raises(fp.ParameterError) as caught:
            file.read(state)
    told = str(caught.value)
    assert told.startswith(f"noise file must {rule}") and f"got {str(file.path)!r}" in told
    assert told.endswith(("; restore it", "run is finished, or rename the new ledger"))


def test_a_memory_comes_back_as_it_was_for_its_owner_alone(tmp_path):
    own = noise()
    with fp.Ledger.create(tmp_path / "run", unit="client", adjacency="zero_out") as ledger:
        file, state = rows.NoiseFile(ledger), begun(own)
        drawn = []
        for _ in range(3):
            row, std, state = rows.noisy(state, own, np.random.default_rng(len(drawn)))
            assert row.shape == (3,) and std > 0.0
            drawn.append(row)
        file.write(state)
        found = file.read(begun(own))
        assert found.round == 3 and file.path.stat().st_mode & 0o777 == 0o600
        # The next row is the same after reading.
        ways = [rows.noisy(each, own, np.random.default_rng(9))[0] for each in (state, found)]
        assert torch.equal(*ways)
        file.path.write_bytes(b"none")
        with pytest.raises(fp.ParameterError) as caught:
            file.read(state)
        assert str(caught.value).startswith(f"noise file must be readable, got {str(file.path)!r}")


# ---- workers elsewhere


@pytest.mark.parametrize(("threads", "fine"), [({"a": 1, "b": 1}, True), ({"a": 1, "b": 4}, False)])
def test_workers_of_dask_have_one_thread_each(monkeypatch, threads, fine):
    class Client:
        def __init__(self, **_):
            self.left = False

        def nthreads(self):
            return threads

    there = Client()
    modules = {
        "dask": types.SimpleNamespace(config={}),
        "distributed": types.SimpleNamespace(get_client=lambda: there),
    }
    monkeypatch.setattr(parallel.importlib, "import_module", modules.__getitem__)
    if fine:
        with parallel._dask(2):
            pass
        return
    with pytest.raises(fp.ParameterError) as caught, parallel._dask(2):
        pass
    assert str(caught.value) == (
        "threads of a dask worker must have one thread, since threads share torch's "
        "randomness, got 4; start workers with --nthreads 1"
    )


@pytest.mark.parametrize(("named", "asked"), [(None, 3), ("tcp://there", None)])
def test_a_cluster_of_dask_is_the_one_that_is_named_or_made_here(monkeypatch, named, asked):
    seen = []

    class Client:
        def __init__(self, **given):
            seen.append(given)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            seen.append("left")

        def nthreads(self):
            return {}

    def nobody():
        raise ValueError("no client")

    modules = {
        "dask": types.SimpleNamespace(config={"scheduler-address": named} if named else {}),
        "distributed": types.SimpleNamespace(get_client=nobody, Client=Client),
    }
    monkeypatch.setattr(parallel.importlib, "import_module", modules.__getitem__)
    with parallel._dask(3):
        pass
    assert seen[0].get("n_workers") == asked and seen[1] == "left"
    assert seen[0].get("threads_per_worker") == (1 if asked else None)
