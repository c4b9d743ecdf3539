"""Pairs of finitely many losses, sampled and folded, against sums of 40 digits."""

import math
import random

import mpmath
import pytest
from mpmath import mpf

import fedprivacy as fp
from fedprivacy.accountants.pld import delta_interval
from fedprivacy.loss import Atoms, Composed, Fold, LaplacePair, Sampled, Side
from fedprivacy.loss.curves.finite_support import few_of
from fedprivacy.loss.moments.contour import Contour, NoMoments


def some_atoms(rng):
    """Losses and masses such that both laws have a total of 1, to rounding."""
    losses = sorted(rng.uniform(-3.0, 3.0) for _ in range(rng.randint(1, 5)))
    losses = [-rng.uniform(0.1, 2.0) - 3.0, *losses, 3.0 + rng.uniform(0.1, 2.0)]
    masses = [rng.uniform(0.1, 1.0) for _ in losses]
    # Of the two outermost masses one makes the total of P right, the other that of Q.
    inner = [0.3 * mass / sum(masses) for mass in masses[1:-1]]
    p_left, q_left = (
        1 - sum(inner),
        1 - sum(m * math.exp(-x) for m, x in zip(inner, losses[1:-1], strict=True)),
    )
    if q_left <= 0.0:
        return some_atoms(rng)
    low, high = math.exp(-losses[0]), math.exp(-losses[-1])
    last = (p_left * low - q_left) / (low - high)
    if not 0.0 < last < p_left:
        return some_atoms(rng)
    return Atoms(tuple(zip(losses, [p_left - last, *inner, last], strict=True)))


def law(curve):
    """[(loss, P-mass)] of a curve in 40 digits."""
    if isinstance(curve, Atoms):
        points = [(mpf(x), mpf(p)) for x, p in curve.points]
        return [(-x, p * mpmath.exp(-x)) for x, p in points] if curve.swapped else points
    if isinstance(curve, Sampled):
        q = mpf(curve.q)
        ratios = [((1 - q + q * mpmath.exp(x)), p * mpmath.exp(-x)) for x, p in law(curve.inner)]
        return [(mpmath.log(r), r * q_mass) for r, q_mass in ratios]
    if isinstance(curve, Fold):
        above = [(x, p) for x, p in law(curve.up) if x > 0]
        below = [(-x, p * mpmath.exp(-x)) for x, p in law(curve.down) if x > 0]
        return [*above, *below, (mpf(0), 1 - sum(p for _, p in above + below))]
    return [(-x, p * mpmath.exp(-x)) for x, p in law(curve.curve)]


def some_curve(rng):
    one = Sampled(some_atoms(rng), math.exp(rng.uniform(math.log(1e-6), math.log(0.999))))
    kind = rng.randrange(3)
    return Fold(one, one) if kind == 0 else one.swap() if kind == 1 else one


@pytest.mark.parametrize("seed", range(30))
def test_moments_hold_the_truth(seed):
    rng = random.Random(seed)
    curve = some_curve(rng)
    line = Contour(math.exp(rng.uniform(-4, 3)), math.exp(rng.uniform(-3, 4)), 6)
    found = curve.moments().spectrum(line)
    with mpmath.workdps(40):
        points = law(curve)
        for k in (0, 1, 5):
            z = mpmath.mpc(line.tilt, line.heights()[k])
            exact = sum(p * mpmath.exp(z * x) for x, p in points)
            value = mpmath.mpc(complex(found.values[k])) * mpmath.exp(mpf(found.log_size))
            assert abs(value - exact) <= found.error[k] * math.exp(found.log_size)
            assert found.error[k] <= 1e-11 * (1.0 + line.top)


def delta_of(points, rounds, epsilon):
    """Delta of so many rounds, every way to add their losses taken."""
    total = {mpf(0): mpf(1)}
    for _ in range(rounds):
        grown = {}
        for x, p in total.items():
            for y, mass in points:
                grown[x + y] = grown.get(x + y, 0) + p * mass
        total = grown
    return sum(p * -mpmath.expm1(epsilon - x) for x, p in total.items() if x > epsilon)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("rate", [1e-3, 0.2, 0.9])
def test_folds_of_three_losses_lie_on_a_lattice(rate, swapped):
    """-l, 0 and l: no point is moved, and the interval has only rounding."""
    mass = math.exp(0.7) / (1 + math.exp(0.7)) * 0.8
    one = Sampled(Atoms(((-0.7, 0.8 - mass), (0.0, 0.2), (0.7, mass))), rate)
    curve = Fold(one, one)
    assert curve.support().mesh == pytest.approx(math.log1p(rate * math.expm1(0.7)), rel=1e-12)
    assert one.support().mesh == 0.0
    run = Composed(((curve.swap() if swapped else curve, 5),))
    with mpmath.workdps(40):
        for steps in (0.3, 1.5, 4.2):
            exact = delta_of(law(curve), 5, mpf(steps * curve.support().mesh))
            low, high = delta_interval(run, steps * curve.support().mesh)
            assert low <= exact <= high
            assert high - low <= 1e-9 * exact + 1e-13


def test_losses_that_are_no_multiples_are_put_on_no_lattice_as_they_are():
    atoms = Atoms(((-0.5, 1 / (1 + math.exp(0.5))), (0.5, 1 / (1 + math.exp(-0.5)))))
    few = few_of(Sampled(atoms, 0.3).moments())
    assert few.lattice(0.1, Side.UP) is None
    assert few_of(LaplacePair(1.0).moments()) is None
    assert few_of(Sampled(LaplacePair(1.0), 0.3).moments()) is None


def test_what_one_law_alone_has_gives_no_points():
    with pytest.raises(NoMoments):
        Atoms(((0.0, 0.9),), 0.1, 0.1).moments().pairs()


@pytest.mark.parametrize(("noise", "rate", "rounds"), [(0.16, 2e-4, 32975), (0.5, 0.05, 3000)])
def test_long_runs_of_two_losses_hold_binomial_sums(noise, rate, rounds):
    """Poisson, add_remove: so many of the rounds have the one loss, all others the other."""
    run = fp.DiscreteLaplace(noise_parameter=noise).sampled(fp.Poisson(rate)) * rounds
    found = fp.epsilon(run, delta=1e-6, adjacency="add_remove")
    with mpmath.workdps(40):
        far = 1 / (1 + mpmath.exp(-mpf(noise)))
        pair = Atoms(((-noise, float(1 - far)), (noise, float(far))))
        exact = [(x, p) for x, p in law(Sampled(pair, rate))]
        both = [exact, sorted((-x, p * mpmath.exp(-x)) for x, p in exact)]
        # Eleven deviations hold all that counts.
        deltas = [[_binomial(*one, rounds, mpf(e)) for one in both] for e in _ends(found)]
    assert max(deltas[0]) >= 1e-6 * (1 - 1e-9) or found.resolution[0] == 0.0
    assert max(deltas[1]) <= 1e-6 * (1 + 1e-9)
    assert found.upper - found.resolution[0] <= 1e-3 * max(1.0, found.upper)


def _ends(found):
    return found.resolution[0], found.upper


def _binomial(less, more, rounds, epsilon):
    (low, _), (high, p) = less, more
    middle, wide = rounds * p, 14 * mpmath.sqrt(rounds * p * (1 - p))
    first, last = max(int(middle - wide), 0), min(int(middle + wide), rounds)
    mass = mpmath.binomial(rounds, first) * p**first * (1 - p) ** (rounds - first)
    total = mpf(0)
    for k in range(first, last + 1):
        loss = low * (rounds - k) + high * k
        total += mass * -mpmath.expm1(epsilon - loss) if loss > epsilon else 0
        mass *= (rounds - k) * p / ((k + 1) * (1 - p))
    return total
