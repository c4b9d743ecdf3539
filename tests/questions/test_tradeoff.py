"""Properties of every trade-off curve, and intervals for pairs that are known exactly."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.questions.effort import Effort
from fedprivacy.questions.tradeoff import (
    CurvePoints,
    Sandwich,
    floor_of,
    gaussian_ends,
    joined,
    lower_hull,
)

BOUNDED = settings(
    derandomize=True,
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking asks for hundreds of curves
    suppress_health_check=[HealthCheck.too_slow],
)
MANY = settings(BOUNDED, max_examples=200, phases=list(Phase))
CURVES = settings(BOUNDED, max_examples=8)
RATES = np.concatenate([[0.0], np.geomspace(1e-4, 0.5, 9), np.linspace(0.6, 1.0, 5)])
ADJACENCY = st.sampled_from(["add_remove", "replace_one"])


def numbers(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


@st.composite
def runs(draw):
    step = fp.Gaussian(noise_multiplier=draw(numbers(0.6, 50.0)))
    if draw(st.booleans()):
        scheme = fp.Poisson(draw(numbers(1e-6, 1.0)))
    else:
        scheme = fp.FixedSize(draw(st.integers(1, 99)), population=100)
    return step.sampled(scheme) * draw(st.integers(1, 3))


def check_shape(run, adjacency):
    curve = fp.tradeoff_curve(run, adjacency=adjacency, fpr=RATES, tolerance=0.05)
    for ends in (curve.present_to_absent, curve.absent_to_present, curve.worst):
        assert np.all(ends.lower <= ends.upper) and np.all(ends.upper <= ends.attained)
        assert np.all(ends.attained <= 1.0 - RATES + 1e-15)
        assert np.all(ends.lower >= 0.0)
        assert np.all(np.diff(ends.lower) <= 1e-12) and np.all(np.diff(ends.upper) <= 1e-12)
    for values in (curve.present_to_absent.lower, curve.absent_to_present.lower, curve.f_dp):
        slopes = np.diff(values) / np.diff(RATES)
        assert np.all(np.diff(slopes) >= -1e-9 / np.diff(RATES)[1:])
    assert np.all(curve.f_dp <= curve.worst.lower + 1e-9)
    assert curve.reason or np.all(curve.worst.upper - curve.worst.lower <= 0.05 + 1e-9)


def check_noise(run, adjacency, factor):
    (part, rounds), *_ = run.sequence()
    louder = fp.Gaussian(noise_multiplier=factor * part.inner.noise_multiplier)
    ask = {"adjacency": adjacency, "fpr": RATES, "tolerance": 0.05}
    quiet = fp.tradeoff_curve(louder.sampled(part.scheme) * rounds, **ask)
    loud = fp.tradeoff_curve(run, **ask)
    assert np.all(quiet.worst.upper >= loud.worst.lower)


def check_risk(run, adjacency):
    ask = {"adjacency": adjacency, "tolerance": 0.05}
    risk = fp.attack_risk(run, fpr=RATES, slack=1e-4, **ask)
    low, high = fp.delta(run, epsilon=0.0, **ask).resolution
    assert low <= risk.advantage.upper and risk.advantage.lower <= high
    assert np.all(risk.tpr.lower - RATES <= risk.advantage.upper + 1e-12)
    curve = fp.tradeoff_curve(run, fpr=RATES, **ask)
    assert np.all(risk.tpr.lower <= 1 - curve.worst.lower + 1e-12)
    assert np.all(risk.tpr.upper >= 1 - curve.worst.upper - 1e-12)
    assert 0 <= risk.mu_within.lower <= risk.mu_within.upper <= risk.mu.upper
    assert risk.mu.lower >= risk.mu_within.lower


FACTOR = st.floats(1.05, 3.0)
test_every_end_is_shaped_like_a_trade_off = BOUNDED(given(runs(), ADJACENCY)(check_shape))
test_more_noise_is_never_worse = BOUNDED(given(runs(), ADJACENCY, FACTOR)(check_noise))
test_risk_agrees_with_delta_and_with_the_curve = BOUNDED(given(runs(), ADJACENCY)(check_risk))


@pytest.mark.slow
@CURVES
@given(runs(), ADJACENCY, FACTOR)
def test_ends_of_many_curves(run, adjacency, factor):
    check_shape(run, adjacency)
    check_noise(run, adjacency, factor)
    check_risk(run, adjacency)


@st.composite
def discrete_pairs(draw):
    """(P, Q) on at most seven outcomes; some may be impossible on one side."""
    size = draw(st.integers(2, 7))
    weights = st.lists(
        st.one_of(st.just(0.0), numbers(1e-6, 1.0)), min_size=size, max_size=size
    ).filter(lambda w: sum(w) > 0)
    p, q = np.array(draw(weights)), np.array(draw(weights))
    return p / p.sum(), q / q.sum()


def hockey_stick(p, q, a):
    return np.array([np.maximum(p - x * q, 0.0).sum() for x in a])


def power(p, q, x):
    """The best true-positive rate by Neyman and Pearson: outcomes by falling likelihood ratio."""
    order = np.argsort(-(p / np.maximum(p + q, 1e-300)), kind="stable")
    false = np.concatenate([[0.0], np.cumsum(q[order])])
    true = np.concatenate([[0.0], np.cumsum(p[order])])
    right = np.searchsorted(false, x, side="right") - 1
    after = np.minimum(right + 1, len(false) - 1)
    gap = false[after] - false[right]
    share = np.where(gap > 0, (x - false[right]) / np.where(gap > 0, gap, 1.0), 0.0)
    return true[right] + share * (true[after] - true[right])


ROUNDING = 4e-16
"""Of ``hockey_stick``: ends that leave it out are none, and twins of a point make much of it."""


def rounded(p, q, epsilons, widths):
    """Points at exp(epsilon) whose ends lie at random distances around the truth."""
    a = np.exp(np.unique(np.concatenate([[0.0], epsilons])))
    exact = hockey_stick(p, q, a)
    below, above = np.resize(widths, len(a)), np.resize(widths[::-1], len(a))
    low, high = exact * (1 - below), exact + above * np.minimum(exact, 1 - exact)
    return CurvePoints(a, low - ROUNDING, high + ROUNDING)


@MANY
@given(
    discrete_pairs(),
    st.lists(numbers(1e-3, 20.0), min_size=1, max_size=12, unique=True),
    st.lists(numbers(1e-3, 20.0), min_size=1, max_size=12, unique=True),
    st.lists(st.floats(0.0, 0.2), min_size=1, max_size=5),
)
def test_brackets_hold_the_best_test_of_any_discrete_pair(pair, near, far, widths):
    p, q = pair
    near = near + [epsilon * (1 + 4e-16) for epsilon in near[::2]]  # twins but for rounding
    points = joined(rounded(p, q, near, widths), rounded(q, p, far, widths))
    x = np.concatenate([[0.0, 1.0], np.geomspace(1e-7, 0.999, 40)])
    corners, values = floor_of(points)
    low = np.min(values + np.multiply.outer(x, corners), axis=-1)
    high = np.min(points.high + np.multiply.outer(x, points.a), axis=-1)
    exact = power(p, q, x)
    assert np.all(low <= exact + 1e-13) and np.all(exact <= high + 1e-13)
    a = np.geomspace(1e-3, points.a[-1], 50)
    hull_a, hull = lower_hull(points)
    assert np.all(hockey_stick(p, q, a) <= np.interp(a, hull_a, hull) + 1e-13)


@pytest.mark.parametrize("seed", range(5))
def test_brackets_close_as_points_are_added(seed):
    generator = np.random.default_rng(seed)
    p, q = generator.dirichlet(np.ones(5)), generator.dirichlet(np.ones(5))
    x = np.linspace(0.0, 1.0, 21)
    widths = []
    for count in (5, 20, 80):
        grid = np.linspace(0.01, 8.0, count)
        points = joined(rounded(p, q, grid, [0.0]), rounded(q, p, grid, [0.0]))
        corners, values = floor_of(points)
        low = np.min(values + np.multiply.outer(x, corners), axis=-1)
        high = np.min(points.high + np.multiply.outer(x, points.a), axis=-1)
        assert np.all(low <= power(p, q, x) + 1e-13) and np.all(power(p, q, x) <= high + 1e-13)
        widths.append(float(np.max(high - low)))
    assert widths[2] < 0.5 * widths[1] < 0.25 * widths[0]


def test_a_curve_known_only_from_above_is_asked_a_few_times():
    """Without lower ends every bracket stays open: the upper ends show where to look."""
    run = fp.Gaussian(noise_multiplier=1.2).sampled(fp.RandomAllocation(6))
    loss = run.privacy_loss("replace_one")
    sandwich = Sandwich(loss.curve, Effort("pld", 0.01))
    x = np.array([0.01, 0.1])
    assert sandwich.refine(x) == "the curve is known only from above"
    assert gaussian_ends(sandwich, 1e-4)[0] == 0.0
    assert sum(len(half.known) for half in sandwich.halves) < 100
    low, high = sandwich.rates(x)
    assert np.array_equal(low, x)
    # More points would lower the upper ends by less than the tolerance.
    for epsilon in np.linspace(0.0, 4.0, 20):
        sandwich.near.ask_apart(float(epsilon))
    assert np.all(high <= sandwich.rates(x)[1] * 1.01)


def test_the_dominating_pair_misses_no_more_than_an_attained_one():
    """Here the attained pair is another one, and its rate is known more closely."""
    run = fp.Gaussian(noise_multiplier=5.652190689293271).sampled(fp.FixedSize(32, 100)) * 2
    check_shape(run, "replace_one")
