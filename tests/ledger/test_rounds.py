"""Ledgers in every order of events: the read rounds are the written rounds."""

import itertools
import math
import os
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.errors import DamagedLedger, ForeignLedger, LedgerError
from fedprivacy.ledger.rounds import FinishedRound, LedgerRound, LedgerRounds
from fedprivacy.mechanisms import Mechanism
from fedprivacy.registry import registered

STORIES = settings(
    derandomize=True,
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
STEP = fp.Gaussian(noise_multiplier=2.0, unit="client")
KINDS = (
    STEP,
    fp.Laplace(noise_multiplier=3.0, unit="client"),
    STEP.sampled(fp.FixedSize(4, population=9)),
)
FACTS = {"unit": "client", "adjacency": "zero_out"}
ROUND = {"clip_norm": 1.0, "noise_std": 2.0}
DONE = {"cohort": 4, "arrived": 3, "refused": 1, "noise_std": 2.0}
dones = st.builds(
    lambda arrived, refused, more, std, share, mask: {
        "cohort": max(arrived, refused) + more,
        "arrived": arrived,
        "refused": refused,
        "noise_std": std,
        "denominator": share,
        "mask": mask,
    },
    st.integers(0, 9),
    st.integers(0, 3),
    st.integers(0, 5),
    st.sampled_from([0.0, 1.5, 2.0]),
    st.none() | st.sampled_from([1.0, 7.5]),
    st.none() | st.text(max_size=5),
)
events = st.one_of(
    st.tuples(st.just("intent"), st.integers(0, 2), st.sampled_from([1.0, 0.5])),
    st.tuples(st.just("done"), dones),
    st.tuples(st.just("abort"), st.text(max_size=8)),
    st.tuples(st.just("resume")),
    st.tuples(st.just("out of turn"), st.integers(1, 5)),
)


class Story:
    """What a ledger should hold, kept as plainly as can be: one object a round."""

    def __init__(self):
        self.rounds, self.mine = [], False

    def tell(self, ledger, path, event):
        """Do it to both; return the ledger, which a resumption makes anew."""
        what, *given = event
        if what == "intent":
            which, clip_norm = given
            number = ledger.intent(KINDS[which], clip_norm=clip_norm, noise_std=2.0)
            assert number == len(self.rounds)
            self.rounds.append(LedgerRound(number, KINDS[which], clip_norm, 2.0))
            self.mine = True
        elif what == "resume":
            ledger.release()
            # A resumed copy does not know the other's releases.
            self.mine = False
            return fp.Ledger.open(path, resume=True)
        elif what == "out of turn":
            self.refused(lambda: ledger.done(len(self.rounds) + given[0], **DONE))
            self.refused(lambda: ledger.abort(len(self.rounds) + given[0], ""))
        elif not self.mine:
            self.refused(lambda: ledger.abort(max(len(self.rounds) - 1, 0), "too late"))
        else:
            last, self.mine = self.rounds.pop(), False
            if what == "done":
                ledger.done(last.index, **given[0])
                self.rounds.append(replace(last, done=FinishedRound(**given[0])))
            else:
                ledger.abort(last.index, given[0])
                self.rounds.append(replace(last, aborted=given[0]))
        return ledger

    @staticmethod
    def refused(call):
        with pytest.raises(
            LedgerError,
            match=r"is not the open round|counts as spent|no round is open; write its intent first",
        ):
            call()


@STORIES
@given(story=st.lists(events, max_size=14))
def test_what_was_done_is_what_is_read(tmp_path, story):
    path = tmp_path / f"{os.urandom(8).hex()}.ledger"
    told, ledger = Story(), fp.Ledger.create(path, **FACTS)
    for event in story:
        ledger = told.tell(ledger, path, event)
        assert list(ledger.rounds) == told.rounds
    ledger.release()
    read = fp.Ledger.open(path)
    assert list(read.rounds) == told.rounds == list(ledger.rounds)
    assert read.spent_rounds == sum(one.aborted is None for one in told.rounds)
    # Together, rounds that were alike are as many, each kind at its first place; but for the one
    # under way, which may still be ended.
    assert sum(one.times for one in read.alike) == len(told.rounds)
    last = told.rounds[-1] if told.rounds else None
    under_way = last is not None and last.done is None and last.aborted is None
    kinds = read.alike[:-1] if under_way else read.alike
    assert not under_way or read.alike[-1] == last
    plain = [
        replace(one, index=0, done=one.done and replace(one.done, mask=None))
        for one in (told.rounds[:-1] if under_way else told.rounds)
    ]
    for kind in kinds:
        same = replace(kind, index=0, times=1)
        assert plain.count(same) == kind.times and plain.index(same) == kind.index
    assert read.digest == fp.Ledger.open(path).digest
    path.unlink()


@STORIES
@given(story=st.lists(events, max_size=8), cut=st.integers(1, 400))
def test_a_ledger_cut_anywhere_holds_its_beginning(tmp_path, story, cut):
    """Whatever a crash left of the last line, the rounds before it are all there."""
    path = tmp_path / f"{os.urandom(8).hex()}.ledger"
    told, ledger = Story(), fp.Ledger.create(path, **FACTS)
    for event in story:
        ledger = told.tell(ledger, path, event)
    ledger.intent(STEP, **ROUND)
    ledger.release()
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    path.write_bytes(whole[: max(last + 1, len(whole) - cut)])
    read = fp.Ledger.open(path)
    assert list(read.rounds) == told.rounds
    assert "is incomplete" in read.notes[-1] and "does not count" in read.notes[-1]
    with fp.Ledger.open(path, resume=True) as again:
        assert again.intent(STEP, **ROUND) == len(told.rounds)
    read = fp.Ledger.open(path)
    assert len(read.rounds) == len(told.rounds) + 1
    assert "was removed when the run resumed; it does not count" in read.notes[-1]


# What it is worth


def written(path, rounds, **facts):
    """A whole ledger of (mechanism, ended) in this order."""
    with fp.Ledger.create(path, **{**FACTS, **facts}) as ledger:
        for mechanism, ended in rounds:
            number = ledger.intent(mechanism, **ROUND)
            if ended == "done":
                ledger.done(number, **{**DONE, "denominator": 4.0})
            elif ended == "aborted":
                ledger.abort(number, "nobody came")
        ledger.close()
    return path


SCHEMES = [
    fp.Poisson(0.2),
    fp.TruncatedPoisson(0.2, population=25, largest=6),
    fp.FixedSize(4, population=25),
    fp.WithReplacement(4, population=25),
    fp.Everyone(),
]
CELLS = [
    (scheme, adjacency, observer)
    for scheme in SCHEMES
    for adjacency in ("add_remove", "zero_out", "replace_one")
    for observer in ("aggregate", "server")
    if (adjacency, observer) != ("add_remove", "server")
]


@pytest.mark.fast_cells(12)
@pytest.mark.parametrize(("scheme", "adjacency", "observer"), CELLS, ids=repr)
def test_a_ledger_is_worth_what_its_rounds_are(tmp_path, scheme, adjacency, observer):
    """Rounds that were done or never confirmed count; aborted ones do not."""
    one, other = STEP.sampled(scheme), STEP.sampled(fp.Poisson(0.05))
    rounds = [(one, "done"), (other, "done"), (one, "aborted"), (one, "done"), (other, "aborted")]
    path = written(tmp_path / "a", rounds, adjacency=adjacency, observer=observer)
    found = fp.account(path, delta=1e-4)
    direct = fp.epsilon(one * 2 + other, delta=1e-4, adjacency=adjacency, observer=observer)
    assert (found.upper, found.resolution) == (direct.upper, direct.resolution)
    assert found.facts == ("client", adjacency, observer)
    asked = fp.account(written(tmp_path / "b", rounds), delta=1e-4, adjacency="zero_out")
    assert asked.facts == ("client", "zero_out", "aggregate")


def test_the_order_of_rounds_costs_nothing(tmp_path):
    kinds = [(STEP.sampled(fp.Poisson(0.2)), "done"), (STEP, "done"), (KINDS[2], "done")]
    found = []
    for i, order in enumerate(itertools.permutations([*kinds, kinds[0]])):
        if i % 4 == 0:
            found.append(fp.account(written(tmp_path / str(i), order), delta=1e-4))
    assert max(b.upper for b in found) - min(b.upper for b in found) < 1e-3
    assert max(b.resolution[0] for b in found) <= min(b.upper for b in found)


def test_an_unconfirmed_round_costs_as_a_done_one_and_an_aborted_one_nothing(tmp_path):
    step = STEP.sampled(fp.Poisson(0.2))
    price = {}
    for ended in ("done", "begun", "aborted"):
        rounds = [(step, "done"), (step, ended), (step, "done")]
        price[ended] = fp.account(written(tmp_path / ended, rounds), delta=1e-4)
    assert price["done"].upper == price["begun"].upper
    assert price["aborted"].upper < price["done"].resolution[0]
    two = fp.epsilon(step * 2, delta=1e-4, adjacency="zero_out")
    assert price["aborted"].upper == two.upper
    # An unconfirmed round may not have been released, so it makes no claim fail.
    assert price["begun"].lower <= price["done"].lower
    assert price["begun"].lower == pytest.approx(two.lower, rel=1e-6)


@pytest.mark.parametrize("used", [0.5, 1.0, 1.9])
def test_less_noise_than_planned_is_priced_as_used(tmp_path, used):
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        for _ in range(3):
            ledger.done(ledger.intent(STEP, **ROUND), **{**DONE, "noise_std": used})
        ledger.close()
    found = fp.account(tmp_path / "a", delta=1e-4)
    direct = fp.epsilon(fp.Gaussian(noise_multiplier=used) * 3, delta=1e-4, adjacency="zero_out")
    assert found.upper == pytest.approx(direct.upper, rel=1e-9)
    assert found.upper > fp.epsilon(STEP * 3, delta=1e-4, adjacency="zero_out").upper


@pytest.mark.parametrize("used", [2.0, 3.0, 1e6])
def test_more_noise_than_planned_is_no_cheaper(tmp_path, used):
    """A client's addition to the plan may depend on the data."""
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        ledger.done(ledger.intent(STEP, **ROUND), **{**DONE, "noise_std": used})
        ledger.close()
    found = fp.account(tmp_path / "a", delta=1e-4)
    assert found.upper == fp.epsilon(STEP, delta=1e-4, adjacency="zero_out").upper


# Lines and rounds by themselves


@STORIES
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.none() | st.text(max_size=3) | st.tuples(*[st.integers(0, 3)] * 3),
            st.none() | st.text(max_size=4),
        ),
        max_size=30,
    )
)
def test_rounds_kept_by_kind_come_out_one_by_one(made):
    """Masks belong to rounds that were done, an empty one too."""
    kept, wanted = LedgerRounds(), []
    numbers = [kept.known(kind) for kind in KINDS]
    for i, (which, ended, mask) in enumerate(made):
        kept.begin(numbers[which], 1.0, 2.0)
        assert kept.open == i == len(kept) - 1
        if isinstance(ended, tuple):
            kept.end((*ended, 2.0, None), mask)
            wanted.append(
                LedgerRound(i, KINDS[which], 1.0, 2.0, FinishedRound(*ended, 2.0, None, mask))
            )
        elif ended is None:
            wanted.append(LedgerRound(i, KINDS[which], 1.0, 2.0))
        else:
            kept.end(ended)
            wanted.append(LedgerRound(i, KINDS[which], 1.0, 2.0, None, ended))
    assert list(kept) == wanted and len(kept) == len(made)
    assert sum(one.times for one in kept.alike()) == len(made)


@registered
@dataclass(frozen=True)
class Forgetful(Mechanism):
    """A mechanism of somebody's own that changes as it is read back."""

    size: float
    protects = None

    def __post_init__(self):
        object.__setattr__(self, "size", self.size + 1.0)

    def loss_under(self, facts):
        return STEP.privacy_loss(facts.adjacency, facts.observer)


def test_what_does_not_read_back_as_it_was_is_spent_by_nobody(tmp_path):
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        with pytest.raises(LedgerError) as caught:
            ledger.intent(Forgetful(1.0), **ROUND)
        assert str(caught.value) == (
            "mechanism changes when it is written and read back: Forgetful(size=2.0)"
        )
        assert ledger.rounds == () and ledger.intent(STEP, **ROUND) == 0


CREATED = {
    "no file": ({"path": "/"}, "path must be the path of a file, got '/'"),
    "no unit": ({"unit": "person"}, "unit must be one of 'client' or 'record', got 'person'"),
    "no adjacency": ({"adjacency": None}, "adjacency must be one of 'add_remove', "),
    "no observer": ({"observer": "me"}, "observer must be one of 'aggregate', "),
    "half a claim": (
        {"claim": (1.0,)},
        "claim must be a pair (epsilon, delta) or None, got (1.0,)",
    ),
    "a claim of one number": ({"claim": 8.0}, "claim must be a pair (epsilon, delta) or None, got"),
    "an epsilon below 0": ({"claim": (-1, 0.1)}, "epsilon must be a finite number of at least 0"),
    "a delta of 2": ({"claim": (1, 2)}, "delta must be at least 0 and below 1, got 2; at"),
    "a schedule": ({"schedule": "loose"}, "schedule must be one of 'fixed' or 'adaptive', got"),
    "a seed": ({"seed_policy": 7}, "seed_policy must be one of 'operating system' or 'fixed', got"),
    "a rule": ({"budget_rule": 3}, "budget_rule must be a string, got 3"),
    "words": ({"description": None}, "description must be a string, got None"),
    "half a letter": ({"description": "\ud800"}, "description must be text that UTF-8 can encode"),
    "a plan": ({"plan": 3}, "plan must be a mechanism, got 3; such as fp.Gaussian(noise_mult"),
    "a plan of records": (
        {"plan": replace(STEP, unit="record")},
        "plan.unit must be the ledger's unit 'client', got 'record'; keep one ledger for each unit",
    ),
}


@pytest.mark.parametrize("what", CREATED)
def test_a_ledger_is_not_begun_with_what_is_wrong(tmp_path, what):
    changed, words = CREATED[what]
    given = {"path": tmp_path / "a", **FACTS, **changed}
    with pytest.raises(fp.ParameterError) as caught:
        fp.Ledger.create(given.pop("path"), **given)
    assert str(caught.value).startswith(words), str(caught.value)
    assert list(tmp_path.iterdir()) == []


WRITTEN = {
    "a mechanism": (
        lambda x: x.intent(3, **ROUND),
        "mechanism must be a mechanism, got 3; such as fp.Gaussian(noise_multiplier=1.0)",
    ),
    "a record's": (
        lambda x: x.intent(replace(STEP, unit="record"), **ROUND),
        "mechanism.unit must be the ledger's unit 'client', got 'record'; keep one ledger for",
    ),
    "a clip norm": (
        lambda x: x.intent(STEP, clip_norm=0.0, noise_std=1.0),
        "clip_norm must be a finite number above 0, got 0.0",
    ),
    "noise": (
        lambda x: x.intent(STEP, clip_norm=1.0, noise_std=math.inf),
        "noise_std must be a finite number above 0, got inf",
    ),
    "a number of a round": (
        lambda x: x.done(-1, **DONE),
        "round must be an integer of at least 0, got -1",
    ),
    "more than came": (
        lambda x: x.done(0, **{**DONE, "arrived": 5}),
        "arrived must be at most cohort = 4, got 5",
    ),
    "more refused than came": (
        lambda x: x.done(0, **{**DONE, "refused": 5}),
        "refused must be at most cohort = 4, got 5",
    ),
    "noise that was": (
        lambda x: x.done(0, **{**DONE, "noise_std": -1.0}),
        "noise_std must be a finite number of at least 0, got -1.0",
    ),
    "a denominator": (
        lambda x: x.done(0, **DONE, denominator=0),
        "denominator must be a finite number above 0, got 0",
    ),
    "a mask": (lambda x: x.done(0, **DONE, mask=b"ff"), "mask must be a string, got b'ff'"),
    "a reason": (lambda x: x.abort(0, None), "reason must be a string, got None"),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_a_line_with_what_is_wrong_is_not_written(tmp_path, what):
    call, words = WRITTEN[what]
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        assert ledger.intent(STEP, **ROUND) == 0
        before = (tmp_path / "a").read_bytes()
        with pytest.raises(fp.ParameterError) as caught:
            call(ledger)
        assert str(caught.value).startswith(words), str(caught.value)
        assert (tmp_path / "a").read_bytes() == before
        ledger.done(0, **DONE)


def test_a_disk_that_fails_stops_the_ledger_and_says_how_to_go_on(tmp_path, monkeypatch):
    ledger = fp.Ledger.create(tmp_path / "a", **FACTS)
    ledger.done(ledger.intent(STEP, **ROUND), **DONE)

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LedgerError) as caught:
        _ = ledger.place
    assert "could not be written: [Errno 28] No space left on device" in str(caught.value)
    assert "release it and use Ledger.open(path, resume=True)" in str(caught.value)
    monkeypatch.undo()
    with pytest.raises(LedgerError, match="cannot be written, since an earlier write failed"):
        ledger.intent(STEP, **ROUND)
    ledger.release()
    assert fp.Ledger.open(tmp_path / "a").spent_rounds == 1


CLOSED = {
    "begin": lambda x: x.intent(STEP, **ROUND),
    "end": lambda x: x.done(0, **DONE),
    "abort": lambda x: x.abort(0, "late"),
    "close": lambda x: x.close(),
}


@pytest.mark.parametrize("what", CLOSED)
def test_a_ledger_that_is_not_open_for_it_says_why(tmp_path, what):
    path = tmp_path / "a"
    ledger = fp.Ledger.create(path, **FACTS)
    ledger.done(ledger.intent(STEP, **ROUND), **DONE)
    with pytest.raises(LedgerError) as caught:
        CLOSED[what](fp.Ledger.open(path))
    assert "cannot be written, since it was opened for reading" in str(caught.value)
    ledger.release()
    with pytest.raises(LedgerError, match="cannot be written, since it was released"):
        CLOSED[what](ledger)
    with fp.Ledger.open(path, resume=True) as again:
        again.close()
    with pytest.raises(LedgerError) as caught:
        CLOSED[what](again)
    assert "is closed, so no line may follow; create a new ledger" in str(caught.value)
    with pytest.raises(LedgerError, match="its run is complete; create a new ledger"):
        fp.Ledger.open(path, resume=True)


def test_lines_of_another_run_are_no_lines_of_this_one(tmp_path):
    """Alike in all but their nonces, two ledgers still do not share a line."""
    one, other = (written(tmp_path / name, [(STEP, "done")]) for name in "ab")
    first, second = (path.read_bytes().splitlines(keepends=True) for path in (one, other))
    swapped = [*first[:1], *second[1:]]
    (tmp_path / "c").write_bytes(b"".join(swapped))
    with pytest.raises(DamagedLedger, match="line 2: its checksum is wrong"):
        fp.Ledger.open(tmp_path / "c")
    for order in itertools.permutations(range(len(first))):
        if order == tuple(range(len(first))):
            continue
        (tmp_path / "d").write_bytes(b"".join(first[i] for i in order))
        with pytest.raises((DamagedLedger, ForeignLedger)):
            fp.Ledger.open(tmp_path / "d")
    for left_out in range(len(first) - 1):
        (tmp_path / "e").write_bytes(b"".join(first[:left_out] + first[left_out + 1 :]))
        with pytest.raises((DamagedLedger, ForeignLedger)):
            fp.Ledger.open(tmp_path / "e")
    # Without a close, a missing last line cannot be noticed.
    (tmp_path / "f").write_bytes(b"".join(first[:-1]))
    assert not fp.Ledger.open(tmp_path / "f").closed and fp.Ledger.open(one).closed
