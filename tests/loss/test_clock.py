"""A deadline gives a coarser certified answer with the reason, never a hang."""

import functools
import math
import operator

import pytest

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.loss import clock
from fedprivacy.loss.curves import exchanged
from tests.randomness import Looks

LAPLACE = fp.Laplace(noise_multiplier=2.0).sampled(fp.Poisson(0.3)) * 20


@pytest.fixture(autouse=True)
def slow(monkeypatch):
    """Let 100 ms pass with every look at the clock, whatever the load is; return the clock."""
    looks = Looks(0.1)
    monkeypatch.setattr(clock, "now", looks)
    return looks


def test_a_deadline_stops_refining_and_says_so(slow):
    early = fp.epsilon(LAPLACE, delta=1e-6, adjacency="add_remove", tolerance=1e-7, deadline=1e-3)
    assert slow.count < 100
    assert "deadline" in early.reason
    later = fp.epsilon(LAPLACE, delta=1e-6, adjacency="add_remove")
    assert early.resolution[0] <= later.upper and later.resolution[0] <= early.upper


@pytest.mark.parametrize("deadline", [0.0, -1.0, float("nan"), "soon"])
def test_a_deadline_is_a_positive_number_of_seconds(deadline):
    with pytest.raises(ParameterError, match="deadline"):
        fp.epsilon(LAPLACE, delta=1e-6, adjacency="add_remove", deadline=deadline)


STEP = fp.Gaussian(noise_multiplier=1.0)
MANY_LABELS = STEP.sampled(fp.WithReplacement(26, probability=8e-4)) * 271
ALLOCATED = STEP.sampled(fp.RandomAllocation(rounds_per_epoch=601)) * 6010


@pytest.mark.fast_cells("epsilon-labels", "delta-allocated")
@pytest.mark.parametrize("run", [MANY_LABELS, ALLOCATED], ids=["labels", "allocated"])
@pytest.mark.parametrize("ask", [fp.epsilon, fp.delta], ids=["epsilon", "delta"])
def test_an_attempt_ends_when_the_time_is_up(run, ask, slow):
    """A finite upper end exists all the same, and contains the answer without a deadline."""
    given = {"delta": 1e-9} if ask is fp.epsilon else {"epsilon": 1.0}
    early = ask(run, adjacency="zero_out", deadline=0.02, **given)
    # No deadline ends the making of the law, which takes 7,900 looks the first time.
    assert slow.count < 20_000
    assert "deadline" in early.reason or run is ALLOCATED  # whose law may be known already
    assert early.upper < 1e3
    later = ask(run, adjacency="zero_out", tolerance=0.01, **given)
    assert early.upper >= later.resolution[0]
    assert early.resolution[0] <= later.upper


def test_a_deadline_before_the_first_moments_is_no_error():
    """Many different rounds, which are grouped; even their moments take longer."""
    scheme = fp.FixedSize(2, population=40)
    steps = [fp.Gaussian(noise_multiplier=2.0 + i / 100) for i in range(20)]
    run = functools.reduce(operator.add, (step.sampled(scheme, held=3) for step in steps))
    found = fp.epsilon(run, delta=1e-5, adjacency="zero_out", deadline=0.05)
    assert found.lower <= found.upper < math.inf and found.reason


EXCHANGED = STEP.sampled(fp.RandomAllocation(rounds_per_epoch=30)) * 2


@pytest.fixture(scope="module")
def truth():
    """The answers without a deadline."""
    how = {"adjacency": "replace_one", "tolerance": 0.01}
    return {
        "epsilon": fp.epsilon(EXCHANGED, delta=1e-5, **how),
        "delta": fp.delta(EXCHANGED, epsilon=1.0, **how),
    }


@pytest.mark.parametrize("seconds", [0.1, 0.02, 0.003, 0.0012])
@pytest.mark.parametrize("ask", [fp.epsilon, fp.delta], ids=["epsilon", "delta"])
def test_a_deadline_among_the_points_of_a_profile_is_no_error(ask, seconds, truth, monkeypatch):
    """Nobody waits for the profile of a replaced unit: the other curves answer.

    Each look takes so many seconds, and one orientation is always given a tenth of one.
    """
    exchanged._points.cache_clear()
    monkeypatch.setattr(clock, "now", Looks(seconds))
    given = {"delta": 1e-5} if ask is fp.epsilon else {"epsilon": 1.0}
    early = ask(EXCHANGED, adjacency="replace_one", deadline=1e-3, **given)
    assert exchanged._points.cache_info().currsize == 0
    assert "deadline" in early.reason
    assert truth[ask.__name__].resolution[0] <= early.upper < 50.0
    assert early.resolution[0] <= truth[ask.__name__].upper
