"""Moments of Laplace pairs and of their samples, against quadratures in high precision."""

import math
import random

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import fedprivacy as fp
from fedprivacy.accountants.pld import delta_interval, epsilon_interval
from fedprivacy.loss import Composed, Fold, LaplacePair, Sampled, Side
from fedprivacy.loss.moments.contour import Contour, NoMoments
from fedprivacy.loss.strategies import search
from fedprivacy.loss.strategies.queries import EpsilonAt


def likelihoods(curve):
    """(P, Q) in units of Laplace(0, 1) as functions of the likelihood ratio r of Laplace(s, 1)."""
    if isinstance(curve, LaplacePair):
        return (lambda r: r), (lambda r: mpf(1))
    if isinstance(curve, Sampled):
        q = mpf(curve.q)
        return (lambda r: 1 - q + q * r), (lambda r: mpf(1))
    return likelihoods(curve.curve)[::-1]


def exact_excess(shift, p, q, z, low, high):
    """E_P (e^{z L} - 1) over the outcomes with low < r <= high, r being 1 in the middle."""
    s = mpf(shift)

    def term(r):
        return p(r) * mpmath.expm1(z * mpmath.log(p(r) / q(r)))

    total = mpf(0)
    for r, mass in ((mpmath.exp(-s), mpf(1) / 2), (mpmath.exp(s), mpmath.exp(-s) / 2)):
        total += mass * term(r) if low < r <= high else 0
    ends = [(s + mpmath.log(x)) / 2 if x > 0 else mpf(0) for x in (low, high)]
    # Enough parts that none has many turns of e^{z L}, whose argument runs over 2 s Im z.
    turns = int(2 * shift * abs(mpmath.im(z)) / 6)
    parts = mpmath.linspace(max(ends[0], 0), min(ends[1], s), 9 + turns // 2)
    return total + mpmath.quad(lambda y: mpmath.exp(-y) / 2 * term(mpmath.exp(2 * y - s)), parts)


def some_curve(rng):
    shift = math.exp(rng.uniform(math.log(1e-3), math.log(8.0)))
    curve = LaplacePair(shift)
    if rng.random() < 0.75:
        curve = Sampled(curve, math.exp(rng.uniform(math.log(1e-6), math.log(0.95))))
        curve = curve.swap() if rng.random() < 0.5 else curve
    return shift, curve


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("seed", range(24))
def test_moments_hold_the_truth(seed):
    rng = random.Random(seed)
    shift, curve = some_curve(rng)
    line = Contour(math.exp(rng.uniform(-4, 3)), math.exp(rng.uniform(-3, 4)), 6)
    found = curve.moments().spectrum(line)
    with mpmath.workdps(40):
        p, q = likelihoods(curve)
        for k in (0, 1, 5):
            z = mpmath.mpc(line.tilt, line.heights()[k])
            exact = exact_excess(shift, p, q, z, mpf(0), mpmath.exp(2 * mpf(shift)))
            value = mpmath.mpc(complex(found.values[k])) * mpmath.exp(mpf(found.log_size))
            assert abs(value - 1 - exact) <= found.error[k] * math.exp(found.log_size)
            assert found.error[k] <= 1e-11 * (1.0 + line.top * shift)
            if found.near is not None:
                off = abs(mpmath.mpc(complex(found.near.values[k])) - exact)
                assert off <= found.near.error[k]
                assert found.near.error[k] <= 1e-9 * abs(exact) + 2e-14 * (1.0 + line.top * shift)


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("seed", range(8))
def test_folds_of_samples_hold_the_truth(seed):
    rng = random.Random(seed)
    shift, q = rng.uniform(0.05, 4.0), math.exp(rng.uniform(-6, -0.1))
    one = Sampled(LaplacePair(shift), q)
    line = Contour(math.exp(rng.uniform(-3, 2)), math.exp(rng.uniform(-2, 3)), 4)
    found = Fold(one, one).moments().spectrum(line)
    with mpmath.workdps(40):
        p, q = likelihoods(one)
        for k in (0, 3):
            z = mpmath.mpc(line.tilt, line.heights()[k])
            end = mpmath.exp(2 * mpf(shift))
            exact = exact_excess(shift, p, q, z, mpf(1), end)
            exact += exact_excess(shift, q, p, z, mpf(1), end)
            value = mpmath.mpc(complex(found.values[k])) * mpmath.exp(mpf(found.log_size))
            assert abs(value - 1 - exact) <= found.error[k] * math.exp(found.log_size)


# Two wide pairs at great heights: thousands of turns of the integrand.
TURNING = {3, 4}


@pytest.mark.fast_cells("0", "1", "2", "7")
@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=[pytest.mark.slow] * (s in TURNING)) for s in range(10)]
)
def test_moments_fall_as_they_say(seed):
    rng = random.Random(100 + seed)
    shift, curve = some_curve(rng)
    tilt, heights = math.exp(rng.uniform(-3, 2)), np.geomspace(0.01, 1e3, 20)
    decay = curve.moments().decay(tilt, heights)
    p, q = likelihoods(curve)
    for k in (0, 7, 14, 19):
        z = mpmath.mpc(tilt, heights[k] * rng.uniform(1, 2))
        with mpmath.workdps(20):
            exact = 1 + exact_excess(shift, p, q, z, mpf(0), mpmath.exp(2 * mpf(shift)))
            assert mpmath.log(abs(exact)) <= decay.log_rest[k] + 1e-12


@pytest.mark.fast_cells("0", "3", "9")
@pytest.mark.parametrize("seed", range(12))
def test_runs_meet_their_lattices(seed):
    rng = random.Random(200 + seed)
    _, curve = some_curve(rng)
    curve = Fold(curve, curve) if isinstance(curve, Sampled) and rng.random() < 0.4 else curve
    run, delta = Composed(((curve, rng.randrange(2, 400)),)), 10 ** rng.uniform(-9, -2)
    low, high = epsilon_interval(run, delta)
    step = max(high, 1e-3) / 300
    below, above = (run.composition(step, side, 1e-9 * delta).epsilon(delta) for side in Side)
    below, above = min(below, above), max(below, above)
    assert below <= high and low <= above
    least, _ = delta_interval(run, high)
    assert least <= delta


def test_out_of_reach_is_said():
    with pytest.raises(NoMoments):
        LaplacePair(30.0).moments().spectrum(Contour(30.0, 1.0, 4))
    with pytest.raises(NoMoments):
        Sampled(LaplacePair(30.0), 0.5).moments().spectrum(Contour(30.0, 1.0, 4))


@pytest.mark.parametrize("order", [0.7, 1.0, 1.5, 8.0, 3000.0])
@pytest.mark.parametrize("shift", [1e-9, 1e-3, 0.4, 3.0, 40.0])
def test_moments_of_an_order_are_rounded_up_by_little(order, shift):
    found = LaplacePair(shift).moments().log_moment(order)
    with mpmath.workdps(60):
        a, s = mpf(order), mpf(shift)
        tops = a / (2 * a - 1) * mpmath.exp((a - 1) * s), mpmath.exp(-a * s)
        exact = mpmath.log(tops[0] + (a - 1) / (2 * a - 1) * tops[1])
        assert max(exact, 0) <= found <= max(exact, 0) + mpf(5e-15) * (1 + a * s)


@pytest.mark.parametrize(
    ("curve", "rounds"),
    [
        (LaplacePair(0.1), 100),
        (LaplacePair(0.02), 400),
        (Sampled(LaplacePair(0.2), 0.1), 400),
        (Sampled(LaplacePair(1.0), 0.01).swap(), 100),
    ],
)
def test_runs_of_laplace_rounds_are_cut_and_agree_with_lattices(curve, rounds):
    run = Composed(((curve, rounds),))
    asked = EpsilonAt.of(run, 1e-5, 1e-3, 0.0)
    lattices = [way for way in search.STRATEGIES if isinstance(way, search.Lattices)]
    cutting = search.Inverting(split=True).cost(asked)
    assert all(cutting < cost for way in lattices if (cost := way.cost(asked)) is not None)
    found = search.interval(asked)
    assert 0.0 < found.low <= found.high <= found.low + 1e-3
    low, high = (run.composition(2e-4, side, 1e-13).epsilon(1e-5) for side in (Side.DOWN, Side.UP))
    assert max(low, found.low) <= min(high, found.high)


@pytest.mark.fast_cells(5)
@pytest.mark.parametrize("rare", [1e-3, 1e-9, 1e-12, 1e-14, 1e-16])
@pytest.mark.parametrize("shift", [2.2, 16.0, 20.0, 37.072088013299314])
def test_exchanged_at_rates_next_to_one(shift, rare):
    """The largest loss in closed form, and delta a little below it: no digits may cancel."""
    q = 1.0 - rare
    mechanism = fp.Laplace(noise_multiplier=1.0 / shift).sampled(fp.Poisson(q))
    s = 1 / mpf(1.0 / shift)
    with mpmath.workdps(60):
        top = mpmath.log(1 - mpf(q) + mpf(q) * mpmath.exp(s)) - mpmath.log(
            1 - mpf(q) + mpf(q) * mpmath.exp(-s)
        )
        mass = (1 - mpf(q)) * mpmath.exp(-s) / 2 + mpf(q) / 2
        for delta in (0.0, 1e-300, 1e-5):
            # Only of the outcomes with the largest loss; others add to delta.
            least = top + mpmath.log1p(-mpf(delta) / mass)
            found = fp.epsilon(mechanism, delta=delta, adjacency="replace_one")
            assert found.lower <= (least if delta < 1e-5 else top)
            assert least <= found.upper < found.lower + 1e-9
    twice = fp.epsilon(mechanism * 2, delta=1e-5, adjacency="replace_one")
    assert twice.lower <= 2 * top and twice.upper >= top
