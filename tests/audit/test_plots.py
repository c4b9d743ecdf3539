"""Tests of ``fedprivacy.audit.plots``."""

import itertools

import numpy as np

import fedprivacy as fp
from fedprivacy.audit.plots import (
    PlotLine,
    _labelled_once,
    _profile,
    _tradeoff,
    chords_of_delta,
    epsilon_by_round,
    from_the_right,
)
from tests.audit.test_reporting import LONG
from tests.cli.test_ledgers import ledger_of


def test_epsilon_by_round_rises_to_the_whole_run(tmp_path):
    ledger_of(tmp_path / "a", rounds=30)
    found = fp.audit(tmp_path / "a")
    rounds, values = epsilon_by_round(found)
    assert rounds[0] == 1 and rounds[-1] == 30
    assert all(a <= 1.02 * b for a, b in itertools.pairwise(values))
    assert values[-1] >= found.bound.lower


PLAIN = {"adjacency": "zero_out"}


def height(corners, at):
    """Return the least and the largest height of a drawn line there."""
    x, y = corners
    near = np.flatnonzero((x[:-1] <= at) & (at <= x[1:]))
    return min(min(y[i], y[i + 1]) for i in near), max(max(y[i], y[i + 1]) for i in near)


def test_no_drawn_line_is_on_the_wrong_side_between_its_points():
    found = fp.audit(LONG, claim=(4.0, 1e-5), **PLAIN)
    rounds, values = epsilon_by_round(found)
    course = from_the_right(np.array(rounds, float), np.array(values))
    for count in (2, 10, 45, 130):
        spent = fp.epsilon(fp.Gaussian(noise_multiplier=40.0) * count, delta=1e-5, **PLAIN)
        assert height(course, count)[0] >= spent.lower
    profile = _profile(found)
    for at in 0.5 * (profile.x[:-1] + profile.x[1:]):
        true = fp.delta(LONG, epsilon=at, **PLAIN)
        assert height(chords_of_delta(profile.x, profile.upper), at)[0] >= true.lower
        assert height(from_the_right(profile.x, profile.lower), at)[1] <= true.upper
    missed = _tradeoff(found)
    for rate in (5e-4, 0.01, 0.04, 0.51):
        true = fp.tradeoff_curve(LONG, fpr=[rate], tolerance=1e-3, **PLAIN).worst
        assert height((missed.x, missed.upper), rate)[1] >= true.lower[0]
        assert height(from_the_right(missed.x, missed.lower), rate)[1] <= true.attained[0]


def test_a_profile_that_is_not_convex_in_epsilon_is_below_its_line():
    run = fp.Gaussian(noise_multiplier=0.25)
    curve = fp.profile(run, epsilons=[0.0, 6.0, 12.0], **PLAIN)
    corners = chords_of_delta(np.asarray(curve.epsilons), np.asarray(curve.upper))
    assert np.interp(3.0, [0.0, 6.0], curve.upper[:2]) < fp.delta(run, epsilon=3.0, **PLAIN).lower
    assert height(corners, 3.0)[0] >= fp.delta(run, epsilon=3.0, **PLAIN).upper


def test_lines_that_coincide_are_drawn_so_that_they_hold_for_all():
    x = np.array([0.0, 1.0])
    both = _labelled_once({"a": PlotLine(x, x, x), "b": PlotLine(x, x * 1.001, x * 0.999)})["a, b"]
    assert both.upper[1] == 1.001 and both.lower[1] == 0.999
