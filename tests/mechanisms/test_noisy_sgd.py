"""Noisy SGD that shows its end: bounds against exact laws in one dimension, and refusals."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr

import fedprivacy as fp

SGD = {
    "step_size": 1.0,
    "noise_std": 1.0,
    "clip_norm": 1.0,
    "denominator": 1.0,
    "smoothness": 1.0,
    "steps": 10,
}
HALF = 0.5
"""Half the length of the interval of the exact laws."""


def cells(count=241):
    edges = np.linspace(-HALF, HALF, count + 1)
    return edges, 0.5 * (edges[1:] + edges[:-1])


def walk(step, std):
    """Return the law of a projected noisy step from every cell, shape (cells, cells)."""
    edges, middle = cells()
    below = ndtr((edges[None] - step(middle)[:, None]) / std)
    below[:, 0], below[:, -1] = 0.0, 1.0
    return np.diff(below, axis=1)


def end(laws, steps):
    """Return the law of the end of a walk that starts in the middle; each law is a step's."""
    found = np.zeros(len(laws[0]))
    found[len(found) // 2] = 1.0
    for k in range(steps):
        found = found @ laws[k % len(laws)]
    return found


def delta(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def within(run, p, q, adjacency, share=1.0):
    """Check both orders at several epsilons; return the largest share of a bound."""
    found = []
    for epsilon, (a, b) in itertools.product((0.0, 0.3, 1.0, 2.5), ((p, q), (q, p))):
        bound = fp.delta(run, epsilon=epsilon, adjacency=adjacency)
        exact = delta(a, b, epsilon)
        # The cells change a step's mean by a two-thousandth of the interval.
        assert exact <= bound.upper * 1.02 + 1e-9
        found.append(exact / bound.upper)
    assert max(found) <= share + 0.02
    return max(found)


@pytest.mark.parametrize(("chance", "steps", "slope"), [(0.2, 20, 0.0), (0.5, 60, 0.3)])
def test_poisson_batches_on_an_interval_lose_no_more_than_the_bound(chance, steps, slope):
    """One record pulls right whenever it is drawn; the others stay, or pull to the middle."""
    std, pull = 0.3, 0.1
    empty = walk(lambda x: (1.0 - slope) * x, std)
    drawn = walk(lambda x: (1.0 - slope) * x + pull, std)
    run = fp.NoisySGD(
        **SGD | {"step_size": pull, "noise_std": std, "steps": steps, "smoothness": 1e-9},
        regularisation=slope / pull,
        batches=fp.Poisson(chance),
        population=2,
        radius=HALF,
    )
    present = chance * drawn + (1.0 - chance) * empty
    p, q = end([present], steps), end([empty], steps)
    assert within(run, p, q, "add_remove") > 0.02
    composed = fp.Gaussian(noise_multiplier=run.multiplier).sampled(fp.Poisson(chance)) * steps
    at_end = fp.epsilon(run, delta=1e-5, adjacency="add_remove").upper
    once = fp.epsilon(composed, delta=1e-5, adjacency="add_remove").upper
    assert at_end < (0.8 if steps > 20 else 1.01) * once


@pytest.mark.parametrize("population", [2, 5])
def test_a_replaced_record_of_fixed_batches_loses_no_more_than_the_bound(population):
    """A batch is one record. All pull left, the replaced one pulls right instead."""
    std, pull, steps = 0.3, 0.1, 40
    left, right = (walk(lambda x, s=s: x + s * pull, std) for s in (-1.0, 1.0))
    run = fp.NoisySGD(
        **SGD | {"step_size": pull, "noise_std": std, "steps": steps, "smoothness": 1e-9},
        batches=fp.FixedSize(1, population),
        radius=HALF,
    )
    mixed = left + (right - left) / population
    p, q = end([left], steps), end([mixed], steps)
    assert within(run, p, q, "replace_one") > 0.02


def in_order(slope=0.0, epochs=4, length=3, **options):
    """Return a run of batches in a fixed order, with contraction 1 - slope."""
    options = {"regularisation": slope, "smoothness": 1e-9} | options
    return fp.NoisySGD(**SGD | {"steps": epochs * length} | options, batches=fp.FixedEpochs(length))


def mu(run, adjacency="zero_out"):
    return run.privacy_loss(adjacency).curve.mu


@pytest.mark.parametrize("slope", [0.0, 0.1, 0.6])
@pytest.mark.parametrize(("epochs", "length"), [(1, 1), (5, 1), (1, 6), (7, 4)])
def test_batches_in_a_fixed_order_lose_at_least_what_linear_steps_lose(slope, epochs, length):
    """A constant pull in one batch of each epoch; without batches it attains the bound."""
    bound, steps = mu(in_order(slope, epochs, length)), epochs * length
    spread = math.sqrt(math.fsum((1.0 - slope) ** (2 * i) for i in range(steps)))
    for place in range(length):
        first = length - 1 - place
        moved = math.fsum((1.0 - slope) ** i for i in range(first, steps, length))
        assert moved / spread <= bound
    if length == 1:
        assert bound == pytest.approx(moved / spread, rel=1e-10)


def test_a_fixed_order_costs_as_the_published_formula_says():
    assert mu(in_order(0.0, 7, 10)) == pytest.approx(math.sqrt(1.0 + 6 / 10), rel=1e-10)
    c, count, epochs = 0.95, 5, 20
    whole, power = c**count, c ** (count * (epochs - 1))
    added = c ** (2 * count - 2) * (1 - c * c) / (1 - whole) ** 2 * (1 - power) / (1 + power)
    assert mu(in_order(0.05, epochs, count)) == pytest.approx(math.sqrt(1 + added), rel=1e-9)


def test_a_replaced_record_moves_twice_and_a_ball_limits_a_fixed_order():
    run = in_order(0.0, 10_000, 10)
    assert mu(run, "replace_one") == pytest.approx(2.0 * mu(run), rel=1e-10)
    small = in_order(0.0, 10_000, 10, radius=2.0)
    assert mu(small) < 0.2 * mu(run)
    assert mu(in_order(0.0, 1, 10, radius=2.0)) == mu(in_order(0.0, 1, 10))
    assert mu(in_order(0.0, 10, 10, dimension=10_000)) > mu(in_order(0.0, 10, 10))


def test_fixed_order_refuses_records_that_come_and_go():
    with pytest.raises(fp.UnsupportedCombination, match="moves others to other batches"):
        fp.epsilon(in_order(), delta=1e-5, adjacency="add_remove")
    apart = fp.NoisySGD(**SGD, batches=fp.FixedEpochs(5, apart=True))
    assert fp.epsilon(apart, delta=1e-5, adjacency="add_remove").upper > 0.0


POISSON = {"batches": fp.Poisson(0.01), "population": 10_000, "denominator": 100.0}
LOGISTIC = SGD | POISSON | {"step_size": 3.5, "noise_std": 0.035, "smoothness": 0.25}


def upper(adjacency="add_remove", **options):
    run = fp.NoisySGD(**LOGISTIC | {"steps": 100_000} | options)
    return fp.epsilon(run, delta=1e-5, adjacency=adjacency).upper


def test_epsilon_stops_growing_with_the_steps_on_a_ball():
    """Composed, 100,000 steps cost 25.6."""
    found = [upper(steps=n, radius=1.0) for n in (1_000, 1_000_000)]
    assert found == pytest.approx([1.828, 7.94], abs=0.01)
    assert upper() == pytest.approx(25.57, abs=0.02)


@pytest.mark.parametrize(
    ("options", "adjacency", "composed", "most"),
    [
        ({}, "replace_one", 47.0, 13.0),
        (
            {"batches": fp.FixedSize(100, 10_000), "population": None},
            "replace_one",
            90.0,
            35.6,
        ),
        ({"batches": fp.FixedSize(100, 10_000), "population": None}, "zero_out", 60.0, 27.4),
        (
            {"batches": fp.TruncatedPoisson(0.01, 10_000, 150), "population": None},
            "add_remove",
            25.0,
            9.8,
        ),
    ],
)
def test_every_scheme_costs_less_at_the_end_than_composed(options, adjacency, composed, most):
    assert upper(adjacency, radius=1.0, **options) < most
    assert upper(adjacency, **options) > composed


def test_a_loop_that_rounds_costs_a_little_more():
    exact, rounded = (upper(radius=1.0, steps=20_000, dimension=d) for d in (None, 10_000))
    assert exact < rounded < 1.05 * exact


def test_the_observer_of_batches_pays_for_the_whole_step():
    server = fp.NoisySGD(**LOGISTIC | {"batches": fp.FixedSize(100, 10_000), "population": None})
    seen, hidden = (
        fp.epsilon(server, delta=1e-5, adjacency="zero_out", observer=who).upper
        for who in ("server", "aggregate")
    )
    assert seen > hidden
    secret = "the draws of the batches stay secret"
    assert secret in server.privacy_loss("zero_out").assumptions
    assert secret not in server.privacy_loss("zero_out", "server").assumptions
    assert secret not in in_order().privacy_loss("zero_out").assumptions


def test_a_run_inside_a_sequence_takes_the_best_theorem_for_all():
    run = fp.NoisySGD(**LOGISTIC | {"steps": 50_000}, radius=1.0)
    once, twice = (fp.epsilon(run * k, delta=1e-5, adjacency="add_remove").upper for k in (1, 2))
    assert once < twice < 2.0 * once


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"step_size": 4.1}, "so that no batch of up to 2.. records moves points apart"),
        ({"population": None}, "population must be given with Poisson"),
        ({"batches": fp.Shuffled(100)}, "must be FixedSize, Poisson"),
        ({"batches": fp.FixedEpochs(10, at_most=3)}, "state no at_most"),
        ({"regularisation": -1.0}, "regularisation"),
        ({"steps": 0}, "steps"),
        ({"radius": 0.0}, "radius"),
        ({"noise_std": 1e300, "step_size": 1e-10, "clip_norm": 1e-10}, "be finite"),
    ],
)
def test_refusals(options, text):
    with pytest.raises(fp.ParameterError, match=text):
        fp.NoisySGD(**LOGISTIC | options)


def test_rounding_that_hides_a_record_is_refused():
    coarse = fp.NoisySGD(**LOGISTIC | {"noise_std": 35.0, "dimension": 10**8})
    with pytest.raises(fp.ParameterError, match="rounding of a step"):
        fp.epsilon(coarse, delta=1e-5, adjacency="add_remove")


def test_the_chance_of_a_larger_batch_is_paid_for():
    """At a delta below it the composed steps remain, which no batch makes unsafe."""
    run = fp.NoisySGD(**LOGISTIC | {"steps": 3_000, "noise_std": 0.35}, radius=0.01)
    assert run.largest_batch > fp.NoisySGD(**LOGISTIC | {"steps": 1}).largest_batch
    composed = fp.Gaussian(noise_multiplier=run.multiplier).sampled(run.batches) * run.steps
    for delta, share in ((1e-10, 0.9), (1e-22, 1.0)):
        at_end, whole = (
            fp.epsilon(one, delta=delta, adjacency="add_remove").upper for one in (run, composed)
        )
        assert at_end == pytest.approx(whole) if share == 1.0 else at_end < share * whole


def test_rescaled_and_recorded_noise():
    run = fp.NoisySGD(**LOGISTIC)
    assert run.rescaled(0.5).noise_std == 0.0175
    assert run.rescaled(0.0) is None
    assert list(run.noise_ratios(1.0)) == pytest.approx([1.0])
    # A record that was clipped to a larger norm moves the sum by more.
    assert list(run.noise_ratios(10.0)) == pytest.approx([1.0])
    assert list(run.noise_ratios(0.1)) == pytest.approx([10.0])
    with pytest.raises(fp.UnsupportedCombination):
        run.sampled(fp.Poisson(0.5))


def test_losses_that_are_not_convex_need_a_ball():
    small = {"step_size": 0.01, "noise_std": 2e-4}
    limits = [upper(radius=0.001, convex=False, steps=n, **small) for n in (10**6, 10**8)]
    assert limits[0] == pytest.approx(limits[1], rel=0.05)
    assert upper(radius=0.001, steps=10**6, **small) < limits[1] < upper(steps=10**6, **small)
    loss = fp.NoisySGD(**LOGISTIC, convex=False, radius=1.0).privacy_loss("add_remove")
    assert "no code checks this" in loss.assumptions[0]
    # A regulariser that outweighs the loss needs no ball.
    strong = {"regularisation": 1.0, "step_size": 0.1}
    assert fp.NoisySGD(**LOGISTIC | strong, convex=False).gap > 0.0
    for options, text in (
        ({}, "radius must be given"),
        ({"radius": 1.0, "batches": fp.FixedEpochs(10)}, "be drawn"),
        ({"convex": 1}, "convex must be True or False"),
    ):
        with pytest.raises(fp.ParameterError, match=text):
            fp.NoisySGD(**LOGISTIC | {"convex": False} | options)


def test_softmax_like_steps_that_expand_lose_no_more_than_the_bound():
    """Steps x -> 1.1 x, and a pull by one record with probability .2, on an interval."""
    std, pull, chance, steps = 0.3, 0.1, 0.2, 60
    empty, drawn = (walk(lambda x, m=m: 1.1 * x + m, std) for m in (0.0, pull))
    run = fp.NoisySGD(
        **SGD
        | {"step_size": pull, "noise_std": std, "steps": steps, "denominator": 2.0}
        | {"smoothness": 1.0, "clip_norm": 2.0},
        batches=fp.Poisson(chance),
        population=2,
        radius=HALF,
        convex=False,
    )
    assert run.gap == pytest.approx(-0.1)
    p, q = end([chance * drawn + (1.0 - chance) * empty], steps), end([empty], steps)
    within(run, p, q, "add_remove")


def test_the_gap_is_no_larger_than_the_exact_one():
    """1 - 2^-104 rounds to 1, as if a step forgot all before it."""
    options = SGD | {"smoothness": 1e-40, "step_size": 1.0 - 2.0**-52}
    for convex in (True, False):
        run = fp.NoisySGD(
            **options, regularisation=1.0 + 2.0**-52, batches=fp.FixedSize(1, 2), convex=convex
        )
        assert Fraction(run.gap) <= 1 - Fraction(1, 2**104)


@pytest.mark.parametrize(
    "options",
    [
        {"noise_std": 1e-200},
        {"noise_std": 1e200},
        {"steps": 10**30},
        {"smoothness": 1e-310, "convex": False},
        {"smoothness": 1e308, "convex": False},
    ],
)
def test_extreme_settings_have_a_bound_of_at_most_one(options):
    run = fp.NoisySGD(**SGD | options, batches=fp.FixedSize(1, 2), radius=1.0)
    assert 0.0 <= fp.delta(run, epsilon=1.0, adjacency="replace_one").upper <= 1.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"denominator": 5e-324}, "be at most 2 / 1\\.79769e"),
        ({"noise_std": 1e-320, "clip_norm": 1e100}, "be at least 2.23e-308, got .*; rescale both"),
    ],
)
def test_numbers_beyond_all_doubles_are_refused(options, text):
    with pytest.raises(fp.ParameterError, match=text):
        fp.NoisySGD(**SGD | options, batches=fp.FixedSize(1, 2))


def test_a_huge_population_has_batches_of_the_same_size():
    """Ten records are drawn on average. Binomial terms of 1e300 records have no digits left."""
    known, huge = (
        fp.NoisySGD(
            **SGD | {"denominator": 100.0}, batches=fp.Poisson(10.0 / n), population=int(n)
        ).largest_batch
        for n in (1e6, 1e300)
    )
    assert known <= huge < 1.1 * known


@pytest.mark.parametrize("regularisation", [0.0, 0.3])
def test_linear_losses_show_the_lower_end(regularisation):
    """The sum of the moves of the drawn steps: all 64 draws of six steps, by quadrature."""
    options = SGD | {"steps": 6, "denominator": 10.0, "regularisation": regularisation}
    options |= {"noise_std": 0.05, "step_size": 0.4, "batches": fp.FixedSize(3, population=10)}
    run = fp.NoisySGD(**options)
    left = (1.0 - 0.4 * regularisation) ** np.arange(6)
    std = 0.05 * math.sqrt((left**2).sum())
    y = np.linspace(-9.0, 25.0, 20_001)
    draws = np.array(list(itertools.product((0, 1), repeat=6)))
    chances = np.prod(np.where(draws, 0.3, 0.7), axis=1)
    means = draws @ left * 0.04 / std
    p = chances @ np.exp(-0.5 * (y - means[:, None]) ** 2)
    q = np.exp(-0.5 * y**2)
    for epsilon in (0.0, 0.5, 1.5):
        shown = fp.delta(run, epsilon=epsilon, adjacency="zero_out").lower
        exact = max(delta(a, b, epsilon) for a, b in ((p, q), (q, p))) / q.sum()
        assert 0.9 * exact <= shown <= exact * (1.0 + 1e-6)


@pytest.mark.parametrize("regularisation", [0.0, 0.1, 1.0])
def test_linear_losses_in_a_fixed_order_show_one_gaussian(regularisation):
    """Steps 2, 5, 8 and 11 of eleven have the record; the first batch comes twice only."""
    options = SGD | {"steps": 11, "regularisation": regularisation, "batches": fp.FixedEpochs(3)}
    shown = fp.NoisySGD(**options).privacy_loss("replace_one").witness.curve.mu
    left = (1.0 - regularisation) ** np.arange(11.0)
    assert shown == pytest.approx(2.0 * left[::3].sum() / math.sqrt((left**2).sum()), rel=1e-8)


def test_a_lower_end_needs_no_ball_and_a_regulariser_that_does_not_overshoot():
    poisson = {"batches": fp.Poisson(0.5), "population": 2, "denominator": 10.0}
    for more in ({"radius": 1.0}, {"step_size": 1.5, "regularisation": 1.0, "smoothness": 0.1}):
        assert fp.NoisySGD(**SGD | poisson | more).privacy_loss("zero_out").witness is None
