"""Questions that allow an error: a ceiling, spare room, bins that vanish."""

import math

import pytest

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant
from fedprivacy.accountants.pld import epsilon_interval
from fedprivacy.loss import GaussianMix, Gdp, Sampled, orientations
from fedprivacy.loss.curves.between import readings
from fedprivacy.loss.curves.composed import compose, convolved
from fedprivacy.loss.curves.curve import Swapped
from fedprivacy.loss.curves.lattice import Side
from fedprivacy.loss.strategies import convolution, search
from fedprivacy.loss.strategies.queries import EpsilonAt, met, stays_above
from fedprivacy.rounding import Down, Up

GAUSSIAN = compose([(Sampled(Gdp(1.0), 0.1), 40)])
LAPLACE = (fp.Laplace(noise_multiplier=2.0) * 20).privacy_loss("zero_out").curve
WHOLE = (fp.DiscreteLaplace(noise_parameter=0.5) * 30).privacy_loss("zero_out").curve
CURVES = {"inverted": GAUSSIAN, "cut": LAPLACE, "lattice": WHOLE}


def asked(curve, delta=1e-6, **beside):
    return search.interval(EpsilonAt.of(curve, delta, 1e-3, 0.0, **beside))


@pytest.mark.parametrize("name", CURVES)
def test_room_is_left_at_both_ends(name):
    """An upper end holds at as much less, a lower end at as much more."""
    curve, delta, share = CURVES[name], 1e-6, 0.2
    found = asked(curve, delta, spare=share * delta)
    less, more = asked(curve, (1.0 - share) * delta), asked(curve, (1.0 + share) * delta)
    assert found.high >= less.low
    assert found.low <= more.high
    # Not more room than requested.
    assert found.high <= less.high + 1e-3
    assert found.low >= more.low - 1e-3


def test_room_is_left_where_tails_are_read():
    found = asked(Gdp(1.0), 1e-3, spare=1e-4)
    assert found.high == asked(Gdp(1.0), 0.9e-3).high
    assert found.low == asked(Gdp(1.0), 1.1e-3).low


@pytest.mark.parametrize("name", CURVES)
def test_a_number_above_the_ceiling_is_only_shown_to_be(name):
    curve = CURVES[name]
    truth = asked(curve)
    for ceiling in (0.5 * truth.low, truth.high + 1.0):
        found = asked(curve, ceiling=ceiling)
        assert found.low <= truth.high and found.high >= truth.low
        assert found.low > ceiling or found == truth


def test_what_is_above_the_ceiling_is_met_by_a_lower_end():
    question = EpsilonAt.of(GAUSSIAN, 1e-6, 1e-9, 0.0, ceiling=1.0)
    wide = search.Interval(1.5, math.inf, "")
    assert met(question, wide)
    assert not met(question, wide._replace(low=0.9))


def test_laws_that_are_off_are_answered_as_from_two_questions():
    """Upper ends at a little less than delta, lower ends at delta itself."""
    noise = {"bits": 20, "dimension": 50, "cohort": 20, "clip_norm": 1.0, "overflow": 1e-9}
    run = fp.Skellam(noise_multiplier=2.0, **noise).sampled(fp.Everyone()) * 5
    loss = run.privacy_loss("zero_out")
    assert loss.tv_error > 0.0
    found = PldAccountant().compose(loss).epsilon(1e-6)
    alone = asked(loss.curve)
    assert found.resolution[0] <= alone.high and alone.low <= found.upper <= alone.high + 1e-6
    # If laws are too far off for any answer, the reason states this.
    none = PldAccountant().compose(loss, 1).epsilon(0.5 * loss.tv_error)
    assert none.upper == math.inf and "exceeds delta" in none.reason


@pytest.mark.parametrize("rounds", [3, 100_000])
@pytest.mark.parametrize("side", Side)
def test_bins_that_vanish_change_no_digit(monkeypatch, rounds, side):
    curve = compose([(Sampled(Gdp(1.0), 0.1), rounds), (Gdp(0.3), 1)])
    step = 0.02 * math.sqrt(rounds)
    some = curve.composition(step, side, 1e-20)
    found = [some.epsilon(1e-5), some.epsilon(1e-9), some.delta(1.0), some.delta(0.0)]
    monkeypatch.setattr(convolution, "_VANISHED", math.inf)
    every = curve.composition(step, side, 1e-20)
    assert found == [every.epsilon(1e-5), every.epsilon(1e-9), every.delta(1.0), every.delta(0.0)]


def test_a_small_lattice_serves_more_rounds_before_they_are_cut():
    """The first step's width says whether it will do; both ways hold the same number."""
    scheme = fp.WithReplacement(10, population=100)
    run = fp.Gaussian(noise_multiplier=1.0).sampled(scheme) * 100
    question = EpsilonAt.of(run.privacy_loss("add_remove").curve, 1e-6, 1e-3, 0.0)
    small = next(way for way in search.STRATEGIES if getattr(way, "early", False))
    assert small.cost(question) < search.Inverting(split=True).cost(question)
    low, high = small.answer(question)[:2]
    cut = search.Inverting(split=True).answer(question)
    assert low <= cut.high and cut.low <= high
    assert small.cost(EpsilonAt.of(LAPLACE, 1e-6, 1e-3, 0.0)) is None


def replaced(rounds):
    """Rounds with replacement: a fold, and a pair by way of the round without the unit."""
    step = fp.Gaussian(noise_multiplier=1.3).sampled(fp.WithReplacement(10, population=1000))
    return (step * rounds).privacy_loss("replace_one").curve


def without_lines(self, question):
    raise AssertionError("no line is needed")


def test_a_coarse_lattice_shows_that_a_fold_does_not_matter(monkeypatch):
    fold = readings(replaced(60))[0]
    truth = asked(fold, 1e-5)
    monkeypatch.setattr(search.Inverting, "answer", without_lines)
    above = search.interval(EpsilonAt.of(fold, 1e-5, 1e-3, 0.0, 0.8 * truth.low))
    assert 0.8 * truth.low < above.low <= truth.high
    below = search.interval(EpsilonAt.of(fold, 1e-5, 1e-3, 1.2 * truth.high))
    assert truth.low <= below.high <= 1.2 * truth.high


@pytest.mark.parametrize("share", [0.999, 1.001])
def test_a_fold_near_its_floor_is_answered_all_the_same(share):
    fold = readings(replaced(60))[0]
    truth = asked(fold, 1e-5)
    found = search.interval(EpsilonAt.of(fold, 1e-5, 1e-3, share * truth.low))
    assert found.low <= truth.high and found.high >= truth.low
    assert found.high <= max(truth.high + 1e-3, share * truth.low)


def test_the_smallest_of_several_is_the_same_in_any_order(monkeypatch):
    curve = replaced(60)
    found = asked(curve, 1e-5)
    monkeypatch.setattr(search, "likely", lambda question: 0.0)
    other = search.interval(EpsilonAt.of(curve, 1e-5, 1.01e-3, 0.0))
    each = [asked(one, 1e-5) for one in readings(curve)]
    least = min(each, key=lambda one: one.high)
    assert max(found.low, other.low, least.low) <= min(found.high, other.high, least.high)


def test_a_choice_that_is_not_the_smallest_is_left_after_two_lattices(monkeypatch):
    step = fp.Gaussian(noise_multiplier=1.0).sampled(fp.RandomAllocation(50))
    curve = (step * 4).privacy_loss("replace_one").curve
    asked_for, pair = [], search._pair
    monkeypatch.setattr(search, "_pair", lambda q, s: asked_for.append(q) or pair(q, s))
    found = search.interval(EpsilonAt.of(curve, 1e-5, 1e-3, 0.0))
    names = [str(question.curve) for question in asked_for]
    steps = sum("Allocated" in name for name in names)
    assert steps == 2 < sum("Exchanged" in name for name in names)
    # Each alone, without a ceiling: the same number is the smallest.
    each = [search.interval(EpsilonAt.of(one, 1e-5, 1e-3, 0.0)) for one in readings(curve)]
    assert found.high == min(one.high for one in each)


@pytest.mark.parametrize(("ceiling", "expected"), [(0.8, True), (0.95, False), (math.inf, False)])
def test_an_upper_end_stays_above_what_its_next_fall_cannot_reach(ceiling, expected):
    step = fp.Gaussian(noise_multiplier=1.0).sampled(fp.RandomAllocation(50))
    (only, *_) = readings((step * 4).privacy_loss("replace_one").curve)
    question = EpsilonAt.of(only, 1e-5, 1e-3, 0.0, ceiling)
    before, after = (search.Interval(Down(0.0), Up(high), "") for high in (1.1, 1.0))
    assert stays_above(question, before, after) is expected
    first = before._replace(high=Up(math.inf))
    assert not stays_above(question, first, after)


def test_a_pair_and_its_mirror_image_have_one_orientation():
    pair = GaussianMix(1.3, ((0.9, 0.0), (0.1, 1.0)), ((0.9, 0.0), (0.1, -1.0)))
    other = GaussianMix(1.3, ((0.9, 0.0), (0.1, 1.0)), ((0.8, 0.0), (0.2, -1.0)))
    assert orientations(pair) == (pair,) and len(orientations(other)) == 2
    ends = [asked(compose([(one, 50)]), 1e-6) for one in (pair, Swapped(pair))]
    assert max(end.low for end in ends) <= min(end.high for end in ends)


def test_a_lattice_that_would_be_far_too_wide_is_not_begun():
    question = EpsilonAt.of(GAUSSIAN, 1e-6, 1e-3, 0.0)
    close = search.Interval(Down(389.0), Up(389.002), "")
    assert not search._cannot_help(question, close)
    question.on_lattices[0.1] = (
        search.Interval(Down(0.0), Up(1.0), ""),
        convolution.MAX_POINTS // 16,
    )
    assert not search._cannot_help(question, close)
    question.on_lattices[0.1] = search.Interval(Down(0.0), Up(600.0), ""), 1 << 17
    assert search._cannot_help(question, close)
    # It may still be the first to have an upper end.
    assert not search._cannot_help(question, close._replace(high=Up(math.inf)))


def test_a_coarse_lattice_of_large_losses_is_not_tried():
    fold = readings(replaced(60))[0]
    way = search.CoarseLattice()
    assert way.cost(EpsilonAt.of(fold, 1e-5, 1e-3, 4.0)) is not None
    assert way.cost(EpsilonAt.of(fold, 1e-5, 1e-3, 4000.0)) is None
    assert way.cost(EpsilonAt.of(fold, 1e-5, 1e-3, 0.0)) is None
    assert way.cost(EpsilonAt.of(GAUSSIAN, 1e-5, 1e-3, 4.0)) is None


def test_an_orientation_below_the_other_needs_no_lower_lattice(monkeypatch):
    taken = []

    def recorded(curve, step, side, tail_mass):
        taken.append((curve, side))
        return convolved(curve, step, side, tail_mass)

    monkeypatch.setattr(search, "convolved", recorded)
    run = fp.Gaussian(noise_multiplier=1.00321).sampled(fp.RandomAllocation(16)) * 4
    found = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    last = {curve: side for curve, side in taken}
    # The first orientation ends with both sides, the second with its upper side below the first.
    assert list(last.values()) == [Side.DOWN, Side.UP]
    whole = run.privacy_loss("zero_out").curve
    assert epsilon_interval(whole.swap(), 1e-5)[1] <= found.lower
