"""Mechanisms known by their guarantees: (epsilon, delta) points, Renyi divergences (T12)."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from scipy.stats import binom

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant, RdpAccountant
from fedprivacy.accountants.pld import delta_interval, epsilon_interval
from fedprivacy.ledger import REGISTRY
from fedprivacy.loss import (
    Atoms,
    Composed,
    Gdp,
    RenyiPoints,
    Sampled,
    Side,
    Swapped,
    compose,
    stated_pair,
)
from fedprivacy.loss.curves.lattice import discretise
from fedprivacy.loss.strategies.convolution import Composition
from fedprivacy.registry import decode, encode

ADJACENCY = "add_remove"
LOSSES = np.concatenate([np.linspace(-6.0, 6.0, 241), [-1e-9, 1e-9]])


def approximate(*guarantees):
    return fp.ApproximateDp(guarantees=guarantees, adjacency=ADJACENCY)


def epsilon(run, delta, accountant="pld", **options):
    return fp.epsilon(run, delta=delta, adjacency=ADJACENCY, accountant=accountant, **options)


def profile(curve, losses=LOSSES):
    """H_a of a curve at a = e^loss, from its tails."""
    tails = curve.tails(np.asarray(losses, dtype=float))
    return np.exp(tails.p_above) - np.exp(losses + tails.q_above)


def real(p, q, losses=LOSSES):
    """H_a of two vectors of masses."""
    a = np.exp(np.asarray(losses, dtype=float))[:, None]
    return np.maximum(p - a * q, 0.0).sum(axis=1)


def response_delta(target, one, rounds):
    """delta of ``rounds`` randomised responses, summed outcome by outcome."""
    truth = math.exp(one) / (1 + math.exp(one))
    k = np.arange(rounds + 1)
    p, q = binom.pmf(k, rounds, truth), binom.pmf(k, rounds, 1 - truth)
    return float(np.maximum(p - math.exp(target) * q, 0.0).sum())


def optimal_delta(target, guarantees):
    """Murtagh and Vadhan (2016): the optimal composition of several (epsilon, delta)."""
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(guarantees)):
        loss = sum(s * e for s, (e, _) in zip(signs, guarantees, strict=True))
        size = math.prod(
            math.exp(e if s > 0 else 0.0) / (1 + math.exp(e))
            for s, (e, _) in zip(signs, guarantees, strict=True)
        )
        total += max(size * -math.expm1(target - loss), 0.0)
    return 1 - math.prod(1 - d for _, d in guarantees) * (1 - total)


# ---- the pair


@pytest.mark.parametrize("rounds", [1, 5])
def test_more_infinite_loss_than_delta_has_no_epsilon(rounds):
    """The answer of the first order is the floor of the second."""
    stated = fp.ApproximateDp(guarantees=((0.5, 0.01),), adjacency="add_remove")
    found = fp.epsilon(stated.sampled(fp.Poisson(0.2)) * rounds, delta=1e-3, adjacency="add_remove")
    assert found.upper == math.inf


def test_one_guarantee_is_randomised_response_with_leaks():
    pair = stated_pair(((0.7, 0.01),))
    assert pair.infinite == pair.vanishing == 0.01 and pair.support().symmetric
    (low, small), (high, large) = pair.points
    assert (-low, high) == (pytest.approx(0.7, abs=1e-14),) * 2
    assert large == pytest.approx(0.99 / (1 + math.exp(-0.7)), rel=1e-14)
    assert small == pytest.approx(0.99 / (1 + math.exp(0.7)), rel=1e-14)
    assert stated_pair(((0.0, 0.0),)) == Atoms(((0.0, math.nextafter(1.0, 2.0)),))


GUARANTEES = st.lists(
    st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 0.9)), min_size=1, max_size=8
).map(lambda points: tuple(sorted(points)))


def brute_minorant(guarantees, a):
    """The least chord over a of any two points, or the least delta so far."""
    points = [(0.0, 1.0)]
    for e, d in guarantees:
        points += [(math.exp(e), d), (math.exp(-e), 1 - math.exp(-e) * (1 - d))]
    least = min(d for x, d in points if x <= a)
    for (x0, d0), (x1, d1) in itertools.product(points, points):
        if x0 < a <= x1:
            least = min(least, d0 + (d1 - d0) * (a - x0) / (x1 - x0))
    return least


@given(GUARANTEES)
@settings(max_examples=60, deadline=None)
def test_its_profile_is_the_greatest_convex_function_below(guarantees):
    pair = stated_pair(guarantees)
    found = profile(pair)
    wanted = [brute_minorant(guarantees, a) for a in np.exp(LOSSES)]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(profile(pair.swap()), found, rtol=1e-12, atol=1e-13)
    assert pair.support().symmetric
    a, order = np.exp(LOSSES), np.argsort(LOSSES)
    slopes = np.diff(found[order]) / np.diff(a[order])
    assert (np.diff(slopes) >= -1e-4).all() and (slopes <= 1e-9).all()
    for e, d in guarantees:
        assert profile(pair, [e])[0] <= d + 1e-12


MASSES = st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=6)


EPSILONS = st.lists(st.floats(0.0, 4.0), min_size=1, max_size=5)


def check_guarantees(p, q, epsilons):
    size = min(len(p), len(q))
    p, q = np.array(p[:size]) / sum(p[:size]), np.array(q[:size]) / sum(q[:size])
    deltas = np.maximum(real(p, q, epsilons), real(q, p, epsilons)) * (1 + 1e-12)
    pair = stated_pair(tuple(zip(epsilons, deltas.tolist(), strict=True)))
    assert (real(p, q) <= profile(pair) + 1e-12).all()
    assert (real(q, p) <= profile(pair) + 1e-12).all()
    twice = real(np.outer(p, p).ravel(), np.outer(q, q).ravel(), [0.0, 1.0])
    for target, true in zip((0.0, 1.0), twice, strict=True):
        assert delta_interval(compose([(pair, 2)]), target)[1] >= true * (1 - 1e-12)


@given(MASSES, MASSES, EPSILONS)
@settings(max_examples=20, deadline=None)
def test_no_pair_that_keeps_the_guarantees_loses_more(p, q, epsilons):
    check_guarantees(p, q, epsilons)


@pytest.mark.slow
@given(MASSES, MASSES, EPSILONS)
@settings(max_examples=200, deadline=None)
def test_none_of_many_pairs_that_keep_the_guarantees_loses_more(p, q, epsilons):
    check_guarantees(p, q, epsilons)


@given(MASSES, MASSES)
@settings(max_examples=25, deadline=None)
def test_renyi_divergences_imply_no_less_than_the_truth(p, q):
    size = min(len(p), len(q))
    p, q = np.array(p[:size]) / sum(p[:size]), np.array(q[:size]) / sum(q[:size])
    orders = np.array([1.3, 2.0, 3.0, 6.0, 20.0, 70.0])
    moments = [
        max(math.log(np.sum(x**a * y ** (1 - a))), 0.0) for x, y in ((p, q), (q, p)) for a in orders
    ]
    divergences = np.maximum(moments[:6], moments[6:]) / (orders - 1) * (1 + 1e-12) + 1e-13
    curve = RenyiPoints(tuple(zip(orders.tolist(), divergences.tolist(), strict=True)))
    assert (np.maximum(real(p, q), real(q, p)) <= profile(curve) + 1e-12).all()
    for order in (1.1, 1.3, 2.5, 11.0, 70.0, -0.5, -5.0):
        true = math.log(np.sum(p**order * q ** (1 - order)))
        assert true <= curve.moments().log_moment(order) + 1e-12
    assert curve.moments().log_moment(70.1) == curve.moments().log_moment(-69.1) == math.inf


# ---- Atoms as a curve


@st.composite
def lopsided(draw):
    """A discrete pair without any symmetry."""
    q = draw(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=7))
    p = draw(st.lists(st.floats(1e-3, 1.0), min_size=len(q), max_size=len(q)))
    infinite, vanishing = draw(st.sampled_from([0.0, 1e-7, 0.1])), draw(st.sampled_from([0.0, 0.2]))
    p, q = np.array(p) / sum(p) * (1 - infinite), np.array(q) / sum(q) * (1 - vanishing)
    losses = np.log(p / q)
    order = np.argsort(losses)
    if np.min(np.diff(losses[order]), initial=1.0) < 1e-9:
        return Atoms(((0.0, 1.0),))
    points = tuple(zip(losses[order].tolist(), p[order].tolist(), strict=True))
    return Atoms(points, infinite, vanishing)


@given(lopsided(), st.sampled_from([0.003, 0.05, 0.7]))
@settings(max_examples=80, deadline=None)
def test_lattices_of_atoms_lie_on_their_side(pair, step):
    for curve in (pair, pair.swap()):
        true = profile(curve)
        up, down = curve.lattice(step, Side.UP), curve.lattice(step, Side.DOWN)
        for rounded, sign in ((up, 1.0), (down, -1.0)):
            losses = rounded.losses()[:, None]
            found = (rounded.mass[:, None] * np.maximum(-np.expm1(LOSSES - losses), 0.0)).sum(0)
            assert (sign * (found + rounded.infinite - true) >= -1e-12).all()
            assert np.abs(found + rounded.infinite - true).max() <= step
        generic = discretise(curve.tails, step, Side.UP, 1e-30)
        assert up.infinite == pytest.approx(generic.infinite, rel=1e-9, abs=1e-12)


@given(lopsided())
@settings(max_examples=40, deadline=None)
def test_moments_and_swaps_of_atoms(pair):
    p = np.array([mass for _, mass in pair.points])
    losses = np.array([loss for loss, _ in pair.points])
    for order in (1.5, 4.0, -2.0):
        wanted = math.log(np.sum(p * np.exp((order - 1) * losses)))
        if (order > 1 and pair.infinite) or (order < 0 and pair.vanishing):
            wanted = math.inf
        assert pair.moments().log_moment(order) == pytest.approx(wanted, rel=1e-12, abs=1e-13)
        turned = pair.swap().moments().log_moment(1 - order)
        assert turned == pytest.approx(pair.moments().log_moment(order), rel=1e-12, abs=1e-14)
    turned, generic = pair.swap(), Swapped(pair)
    assert turned.swap() == pair
    off = LOSSES + 1e-5  # at a jump the two say which side it belongs to differently
    np.testing.assert_allclose(turned.tails(off), generic.tails(off), rtol=1e-12, atol=1e-14)
    assert decode(encode(pair, {"Atoms": Atoms}), {"Atoms": Atoms}) == pair


@pytest.mark.parametrize(
    "points, infinite, vanishing",
    [
        (((0.0, 0.5), (0.0, 0.5)), 0.0, 0.0),
        (((1.0, 1.0),), 0.0, 0.0),
        (((0.0, 0.9),), 0.0, 0.1),
        (((math.inf, 1.0),), 0.0, 0.0),
        (((0.0, -1.0),), 1.0, 1.0),
    ],
)
def test_masses_that_are_no_pair_are_refused(points, infinite, vanishing):
    with pytest.raises(ValueError):
        Atoms(points, infinite, vanishing)


def test_infinite_loss_counts_on_both_sides():
    """(0, delta): finite losses are 0, so the composition is 1 - (1 - d)^k."""
    curve = stated_pair(((0.0, 1e-3),))
    true = -math.expm1(12 * math.log1p(-1e-3))
    for side in Side:
        found = Composition([(curve.lattice(0.1, side), 12)], side).delta(0.3)
        assert found == pytest.approx(true, rel=1e-11)
        assert (found >= true) == (side is Side.UP)
    low, high = delta_interval(compose([(curve, 12)]), 0.3)
    assert low <= true <= high and high - low < 1e-3 * true
    assert epsilon_interval(compose([(curve, 12)]), 0.9 * true) == (math.inf, math.inf)


# ---- compositions against closed forms


@pytest.mark.parametrize("one, rounds", [(0.1, 30), (0.5, 7), (1.0, 20), (0.05, 2000)])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_pure_guarantees_compose_like_randomised_response(one, rounds, delta):
    bound = epsilon(approximate((one, 0.0)) * rounds, delta)
    low, high = bound.resolution
    assert bound.lower == 0.0 and bound.witness is None
    assert response_delta(high, one, rounds) <= delta * (1 + 1e-6)
    assert response_delta(max(high - 1e-3, 0.0), one, rounds) >= delta * (1 - 1e-6)
    assert response_delta(max(low - 1e-9, 0.0), one, rounds) >= delta * (1 - 1e-6)
    assert high - low <= 0.01
    theirs = epsilon(approximate((one, 0.0)) * rounds, delta, "advanced").upper
    assert low <= theirs * (1 + 1e-6) and high <= theirs + 1e-3


MIXED = [
    ((0.3, 1e-3), (0.9, 0.0)),
    ((0.2, 0.0), (0.5, 1e-4), (1.1, 1e-2)),
    ((0.4, 1e-6), (0.4, 1e-3), (0.1, 0.0), (2.0, 0.0)),
]


@pytest.mark.fast_cells(6)
@pytest.mark.parametrize("guarantees", MIXED, ids=repr)
@pytest.mark.parametrize("target", [0.0, 0.25, 1.0, 2.4])
def test_different_guarantees_compose_optimally(guarantees, target):
    run = sum((approximate(one) for one in guarantees[1:]), approximate(guarantees[0]))
    bound = fp.delta(run, epsilon=target, adjacency=ADJACENCY)
    true = optimal_delta(target, guarantees)
    low, high = bound.resolution
    assert low <= true * (1 + 1e-12) and true <= high * (1 + 1e-12)
    assert high <= true * 1.001 and high - low <= 0.01 * high


def test_two_guarantees_of_one_mechanism_are_cheaper_than_either():
    points = (0.3, 1e-3), (1.0, 1e-7)
    together = epsilon(approximate(*points) * 10, 2e-5).upper
    assert together < epsilon(approximate(points[1]) * 10, 2e-5).upper
    assert math.isinf(epsilon(approximate(points[0]) * 10, 2e-5).upper)


@pytest.mark.parametrize("rounds", [1, 10, 60])
def test_a_gaussian_by_points_of_its_profile(rounds):
    gaussian = fp.Gaussian(noise_multiplier=2.0)
    losses = np.linspace(0.0, 6.0, 200)
    deltas = profile(Gdp(0.5), losses) * (1 + 1e-9)
    stated = approximate(*zip(losses.tolist(), deltas.tolist(), strict=True))
    true = epsilon(gaussian * rounds, 1e-5)
    found = epsilon(stated * rounds, 1e-5).upper
    assert true.resolution[0] <= found <= 1.02 * true.upper
    mixed = stated * rounds + gaussian.sampled(fp.Poisson(0.1)) * 20
    exact = gaussian * rounds + gaussian.sampled(fp.Poisson(0.1)) * 20
    assert epsilon(exact, 1e-5).resolution[0] <= epsilon(mixed, 1e-5).upper
    assert epsilon(mixed, 1e-5).upper <= 1.02 * epsilon(exact, 1e-5).upper


ORDERS = 1.0 + np.geomspace(0.02, 400.0, 300)


def renyi_gaussian(multiplier):
    divergences = tuple((float(a), float(a) / (2 * multiplier**2)) for a in ORDERS)
    return fp.RenyiDp(divergences=divergences, adjacency=ADJACENCY)


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("multiplier", [0.7, 3.0, 20.0])
@pytest.mark.parametrize("rounds", [1, 25])
def test_a_gaussian_by_its_renyi_divergences(multiplier, rounds):
    stated, gaussian = renyi_gaussian(multiplier), fp.Gaussian(noise_multiplier=multiplier)
    ours, theirs = (epsilon(run * rounds, 1e-5, "rdp").upper for run in (stated, gaussian))
    assert theirs <= ours * (1 + 1e-6) and ours <= theirs * 1.002
    true = epsilon(gaussian * rounds, 1e-5)
    for accountant in ("pld", "advanced"):
        assert epsilon(stated * rounds, 1e-5, accountant).upper >= true.resolution[0]
    assert epsilon(stated, 1e-5).upper <= 1.001 * epsilon(gaussian, 1e-5, "rdp").upper
    sampled = [run.sampled(fp.Poisson(0.05)) * rounds for run in (stated, gaussian)]
    assert epsilon(sampled[0], 1e-5).upper >= epsilon(sampled[1], 1e-5).resolution[0]
    ours, theirs = (epsilon(run, 1e-5, "rdp").upper for run in sampled)
    assert theirs <= ours * (1 + 1e-6)


@pytest.mark.parametrize("order", [1.5, 2.0, 5.0, 8.0, 31.0, 256.0])
def test_one_order_is_converted_at_that_order(order):
    stated = fp.RenyiDp(divergences=((order, 0.1),), adjacency=ADJACENCY)
    exact = 0.1 + math.log1p(-1 / order) - (math.log(1e-5) + math.log(order)) / (order - 1)
    assert exact - 1e-12 <= epsilon(stated, 1e-5, "rdp").upper <= exact * 1.001
    assert epsilon(stated, 1e-5).upper <= exact * 1.001


def test_divergences_that_are_not_convex_are_used_as_far_as_they_go():
    curve = RenyiPoints(((2.0, 1.0), (3.0, 5.0), (4.0, 1.0), (9.0, 1.0)))
    assert curve.moments().log_moment(3.0) == pytest.approx(2.0, rel=1e-14)
    assert curve.moments().log_moment(1.5) == pytest.approx(0.5, rel=1e-14)
    assert curve.moments().log_moment(1.0) == 0.0 and curve.moments().log_moment(
        9.0
    ) == pytest.approx(8.0)
    assert RenyiPoints(((64.0, 1e6),)).pair == Atoms((), 1.0, 1.0)
    useless = fp.RenyiDp(divergences=((64.0, 1e6),), adjacency=ADJACENCY)
    assert 3e6 <= epsilon(useless * 3, 1e-5).upper < 3.1e6, "the divergence itself"


# ---- as mechanisms


BOTH = [approximate((0.5, 1e-6), (0.1, 1e-3)), renyi_gaussian(4.0)]


@pytest.mark.parametrize("stated", BOTH, ids=["approximate", "renyi"])
def test_the_algebra(stated):
    gaussian = fp.Gaussian(noise_multiplier=1.0)
    plain = epsilon(stated * 3, 1e-4).upper
    assert epsilon(stated * 2 + stated, 1e-4).upper == plain
    assert plain < epsilon(stated * 4, 1e-4).upper
    assert epsilon(stated.sampled(fp.Poisson(0.1)) * 3, 1e-4).upper < plain
    assert epsilon((stated * 3).in_cohort(fp.Poisson(0.1)), 1e-4).upper < plain
    assert stated.sampled(fp.Everyone()).privacy_loss(ADJACENCY).curve == stated.curve
    run = stated * 3 + gaussian.sampled(fp.Poisson(0.01)) * 100
    bound = epsilon(run, 1e-4)
    assert plain < bound.upper < plain + 3.0
    assert 0.0 < bound.lower <= bound.resolution[0], "the Gaussian rounds alone have a witness"
    assert any("T12" in theorem for theorem in bound.theorems)
    assert fp.epsilon(run, delta=1e-4, adjacency=ADJACENCY, observer="final").lower == 0.0
    for kind in (PldAccountant, RdpAccountant):
        accountant = kind().compose(run.privacy_loss(ADJACENCY))
        again = kind().restore(accountant.state())
        assert again.epsilon(1e-4).upper == accountant.epsilon(1e-4).upper


@pytest.mark.parametrize("stated", BOTH, ids=["approximate", "renyi"])
def test_a_ledger_may_hold_them(stated):
    assert decode(encode(stated, REGISTRY), REGISTRY) == stated
    with pytest.raises(fp.UnsupportedCombination, match="account under 'add_remove'"):
        fp.epsilon(stated, delta=1e-5, adjacency="zero_out")
    with pytest.raises(fp.UnsupportedCombination):
        fp.epsilon(stated.sampled(fp.FixedSize(3, population=9)), delta=1e-5, adjacency=ADJACENCY)


def test_fixed_size_sampling_of_replace_one_guarantees():
    """T1 and T3 take the replace-one pair; of divergences T1 takes what they imply, one pair."""
    scheme = fp.FixedSize(1, population=10)
    stated = fp.ApproximateDp(guarantees=((0.5, 1e-6),), adjacency="replace_one").sampled(scheme)
    assert stated.privacy_loss("add_remove").curve == Sampled(stated.inner.curve, 0.1)
    wanted = math.log1p(0.1 * math.expm1(0.5))
    assert fp.epsilon(stated, delta=2e-7, adjacency="replace_one").upper <= wanted
    renyi = fp.RenyiDp(divergences=((4.0, 0.2),), adjacency="replace_one").sampled(scheme)
    assert fp.epsilon(renyi, delta=1e-5, adjacency="add_remove").upper > 0
    # A Gaussian keeps these divergences, so the bound is at least its loss.
    divergences = tuple((a, 0.5 * a) for a in (1.5, 2.0, 4.0, 8.0, 16.0, 32.0))
    run = fp.RenyiDp(divergences=divergences, adjacency="replace_one").sampled(scheme) * 5
    found = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    gaussian = fp.Gaussian(noise_multiplier=2.0).sampled(scheme) * 5
    true = fp.epsilon(gaussian, delta=1e-5, adjacency="replace_one")
    assert true.lower < found.upper < 1.6 * true.upper


def test_more_is_known_by_more_guarantees():
    few, more = [(1.0, 1e-5)], [(1.0, 1e-5), (0.4, 1e-2), (2.0, 1e-8)]
    assert (profile(approximate(*more).curve) <= profile(approximate(*few).curve) + 1e-15).all()
    weaker = [(e, 2 * d) for e, d in more]
    assert (profile(approximate(*more).curve) <= profile(approximate(*weaker).curve) + 1e-15).all()
    assert approximate(*more) == approximate(*more[::-1], more[0])
    assert approximate((1, 0)).guarantees == ((1.0, 0.0),)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: approximate(), "guarantees must be one or more pairs"),
        (lambda: approximate(3.0), "guarantees must be one or more pairs"),
        (lambda: approximate((1.0,)), "guarantees must be one or more pairs"),
        (lambda: approximate((-0.1, 0.0)), "epsilon must be"),
        (lambda: approximate((501.0, 0.0)), "epsilon must be at most 500"),
        (lambda: approximate((math.inf, 0.0)), "epsilon must be"),
        (lambda: approximate((1.0, 1.0)), "delta must be below 1"),
        (lambda: approximate((1.0, -1e-9)), "delta must be"),
        (lambda: approximate((1.0, math.nan)), "delta must be"),
        (lambda: fp.RenyiDp(divergences=((1.0, 0.1),), adjacency=ADJACENCY), "be above 1"),
        (lambda: fp.RenyiDp(divergences=((math.inf, 0.1),), adjacency=ADJACENCY), "pure DP"),
        (lambda: fp.RenyiDp(divergences=((2.0, -0.1),), adjacency=ADJACENCY), "divergence must"),
        (
            lambda: fp.RenyiDp(divergences=(), adjacency=ADJACENCY),
            "divergences must be one or more pairs",
        ),
        (lambda: fp.RenyiDp(divergences=((2.0, 1.0),), adjacency="swap"), "adjacency must be"),
        (lambda: fp.ApproximateDp(guarantees=((1, 0),), adjacency=ADJACENCY, unit="x"), "unit"),
    ],
)
def test_bad_values_are_refused(make, words):
    with pytest.raises(fp.ParameterError, match=words):
        make()


@pytest.mark.parametrize("accountant", ["pld", "advanced"])
@pytest.mark.parametrize("one", [0.7, 1.0, 1.5, 2.5, 40.0])
def test_what_leaks_with_some_probability_is_found_at_any_epsilon(one, accountant):
    """Beyond the largest finite loss only the leak is left."""
    bound = epsilon(approximate((one, 1e-6)), 1e-5, accountant)
    assert 0.9 * one <= bound.upper <= one - 5e-6


@pytest.mark.parametrize("epsilon, rounds", [(1.0, 100), (0.1, 1000), (0.5, 7)])
def test_pure_guarantees_compose_on_their_own_lattice(epsilon, rounds):
    """Every loss is a multiple of one number, so only floating point rounds."""
    run = Composed(((stated_pair(((epsilon, 0.0),)), rounds),))
    low, high = epsilon_interval(run, 1e-5)
    assert high - low < 1e-6
    with mpmath.workdps(40):
        lie = 1 / (1 + mpmath.exp(mpf(epsilon)))
        masses = [
            (k, mpmath.binomial(rounds, k) * lie**k * (1 - lie) ** (rounds - k))
            for k in range(rounds + 1)
        ]

        def delta(at):
            losses = [((rounds - 2 * k) * mpf(epsilon), mass) for k, mass in masses]
            return sum(mass * (1 - mpmath.exp(at - loss)) for loss, mass in losses if loss > at)

        assert delta(mpf(low)) >= mpf(1e-5) >= delta(mpf(high))
