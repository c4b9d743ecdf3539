"""Convolution of small lattices against exact rational arithmetic: UP >= exact >= DOWN."""

import random
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf

from fedprivacy.accountants import pld
from fedprivacy.loss import Composed, Fold, GaussianMix, Gdp, LaplacePair, Sampled, Side
from fedprivacy.loss.curves.lattice import Lattice
from fedprivacy.loss.strategies import convolution, direct
from fedprivacy.loss.strategies.convolution import Composition
from tests import truth


def power(lattice, count):
    """Exact masses {index: Fraction} of ``count`` copies."""
    one = {lattice.start + i: Fraction(float(m)) for i, m in enumerate(lattice.mass) if m}
    total = {0: Fraction(1)}
    for _ in range(count):
        total = times(total, one)
    return total


def times(a, b):
    found = {}
    for i, x in a.items():
        for j, y in b.items():
            found[i + j] = found.get(i + j, 0) + x * y
    return found


def exact_masses(parts):
    total, finite = {0: Fraction(1)}, Fraction(1)
    for lattice, count in parts:
        total = times(total, power(lattice, count))
        finite *= (1 - Fraction(lattice.infinite)) ** count
    return {i: mpf(m.numerator) / mpf(m.denominator) for i, m in total.items()}, 1 - finite


def value_of(parts, side, epsilon):
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # losses of thousands; see the test of large losses
        return Composition(parts, side).delta(epsilon)


def exact_delta(masses, infinite, step, epsilon):
    inside = sum(
        m * -mp.expm1(mpf(epsilon) - mpf(step) * i)
        for i, m in masses.items()
        if mpf(step) * i > epsilon
    )
    return inside + mpf(infinite.numerator) / mpf(infinite.denominator)


def random_parts(seed, side):
    """One to three kinds, masses over up to 100 decades, counts up to 12."""
    rng = random.Random(seed)
    step = 10 ** rng.uniform(-3.5, 0.8)
    parts = []
    for _ in range(rng.randint(1, 3)):
        decades = rng.choice([0, 2, 20, 100])
        mass = np.array([10 ** rng.uniform(-decades, 0) for _ in range(rng.randint(1, 6))])
        infinite = rng.choice([0.0, 1e-18, 1e-5]) if side is Side.UP else 0.0
        mass *= (1.0 - infinite) / mass.sum() * (1 - 1e-13)
        start = rng.randint(-5, 3)
        parts.append((Lattice(step, start, mass, infinite), rng.choice([1, 1, 2, 5, 12])))
    return rng, step, parts


SEEDS = range(30)
ULPS = mpf(10) ** -15
FLOOR = mpf(10) ** -290
"""Below this, numbers are near the end of double precision."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("side", Side)
def test_delta_of_a_convolution_is_on_its_side(seed, side):
    rng, step, parts = random_parts(seed, side)
    masses, infinite = exact_masses(parts)
    for _ in range(5):
        epsilon = max(0.0, rng.uniform(min(masses) - 2, max(masses) + 2) * step)
        exact = exact_delta(masses, infinite, step, epsilon)
        value = value_of(parts, side, epsilon)
        assert 0.0 <= value <= 1.0
        if side is Side.UP:
            assert value >= min(exact, 1) * (1 - ULPS) - FLOOR
        else:
            assert value <= exact


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("side", Side)
def test_epsilon_of_a_convolution_is_on_its_side(seed, side):
    rng, step, parts = random_parts(seed + 1000, side)
    masses, infinite = exact_masses(parts)
    found = Composition(parts, side)
    for _ in range(5):
        delta = 10 ** rng.uniform(-rng.choice([0.5, 6, 30]), -1e-4)
        epsilon = found.epsilon(delta)
        assert epsilon >= 0.0
        if side is Side.UP and epsilon < float("inf"):
            assert exact_delta(masses, infinite, step, epsilon) <= mpf(delta) * (1 + mpf(10) ** -14)
        if side is Side.DOWN and epsilon > 0.0:
            assert exact_delta(masses, infinite, step, epsilon) >= mpf(delta) * (1 - mpf(10) ** -14)


def all_on_their_side(parts, side, epsilons):
    masses, infinite = exact_masses(parts)
    for epsilon in epsilons:
        exact = exact_delta(masses, infinite, parts[0][0].step, epsilon)
        value = value_of(parts, side, epsilon)
        if not (value >= exact * (1 - ULPS) if side is Side.UP else value <= exact):
            return False
    return True


EVENLY = [(Lattice(0.5, -1, np.array([0.3, 0.3, 0.4]), 0.0), 40)]
RARELY = [(Lattice(0.5, 0, np.array([0.9, 0.0, 0.0, 0.0, 0.0, 0.1]), 0.0), 6)]
SPREAD = np.linspace(0.0, 15.0, 31) + 0.2


@pytest.mark.parametrize(("side", "parts"), [(Side.UP, RARELY), (Side.DOWN, EVENLY)])
def test_mass_outside_of_a_narrow_window_is_counted(side, parts, monkeypatch):
    """Windows leave out e^-42 of the mass, which no answer shows; here they leave out a tenth."""
    monkeypatch.setattr(convolution, "_NEGLIGIBLE", 2.0)
    assert all_on_their_side(parts, side, SPREAD[:29])
    # And it is this bound that keeps the answers on their side.
    monkeypatch.setattr(Composition, "_missing", lambda *_: 0.0)
    assert not all_on_their_side(parts, side, SPREAD[:29])


@pytest.mark.parametrize("side", Side)
def test_tilted_masses_that_are_off_are_counted(side, monkeypatch):
    """They are off by a few units of rounding, which no answer shows; here by a thousandth."""
    real, counted = convolution._tilted, True

    def off(*given):
        mass, centre, inexact = real(*given)
        return (
            mass * (1.0 - 1e-3 if side is Side.UP else 1.0 + 1e-3),
            centre,
            inexact + counted * 1e-3,
        )

    monkeypatch.setattr(convolution, "_tilted", off)
    assert all_on_their_side(EVENLY, side, SPREAD)
    counted = False
    assert not all_on_their_side(EVENLY, side, SPREAD)


@pytest.mark.parametrize("side", Side)
def test_convolution_of_two_is_numpy_convolve(side):
    generator = np.random.default_rng(11)
    a, b = generator.random(200), generator.random(300)
    a, b = a / a.sum(), b / b.sum()
    parts = [(Lattice(0.01, -90, a, 0.0), 1), (Lattice(0.01, -140, b, 0.0), 1)]
    exact = np.convolve(a, b)
    losses = 0.01 * np.arange(-230, -230 + len(exact))
    found = Composition(parts, side)
    for epsilon in (0.0, 0.3, 1.0, 1.9):
        above = losses > epsilon
        truth = float(np.dot(exact[above], -np.expm1(epsilon - losses[above])))
        value = found.delta(epsilon)
        assert value >= truth * (1 - 1e-13) if side is Side.UP else value <= truth * (1 + 1e-13)
        assert value == pytest.approx(truth, rel=1e-3 if side is Side.UP else 0.2)


def responses(rounds, loss, epsilon):
    """delta of ``rounds`` randomised responses of +- loss, by the binomial law, 40 digits."""
    with mp.workdps(40):
        honest = mpf(float(1 / (1 + np.exp(-loss))))
        lie, loss = 1 - honest, mpf(loss)
        most = int(mp.ceil((rounds - mpf(epsilon) / loss) / 2) - 1)
        log_term = mp.loggamma(rounds + 1) - mp.loggamma(most + 1) - mp.loggamma(rounds - most + 1)
        term = mp.exp(log_term + most * mp.log(lie) + (rounds - most) * mp.log(honest))
        total, j = mpf(0), most
        while j >= 0 and term > total * mpf(10) ** -38:
            total += term * -mp.expm1(mpf(epsilon) - (rounds - 2 * j) * loss)
            term *= mpf(j) / (rounds - j + 1) * honest / lie
            j -= 1
        return total


@pytest.mark.fast_cells(8)
@pytest.mark.parametrize("rounds", [10, 1000, 1_000_000])
@pytest.mark.parametrize("loss", [1e-3, 0.01, 2.0])
@pytest.mark.parametrize("deviations", [0.3, 3.0, 20.0])
def test_a_million_randomised_responses(rounds, loss, deviations):
    honest = float(1 / (1 + np.exp(-loss)))
    lattice = Lattice(loss, -1, np.array([1 - honest, 0.0, honest]), 0.0)
    mean = rounds * (2 * honest - 1) * loss
    spread = 2 * loss * (rounds * honest * (1 - honest)) ** 0.5
    epsilon = min(mean + deviations * spread, rounds * loss * 0.999)
    exact = responses(rounds, loss, epsilon)
    down, up = (value_of([(lattice, rounds)], side, epsilon) for side in (Side.DOWN, Side.UP))
    assert down <= exact <= up
    assert up <= exact * (1 + 1e-5)


@pytest.mark.parametrize("tilted", [-30.0, 0.0, 30.0])
def test_a_lattice_far_from_zero(tilted):
    """All losses on one side: windows start far from 0, and the answer is trivial or exact."""
    lattice = Lattice(0.5, int(tilted * 2), np.array([0.25, 0.5, 0.25]), 0.0)
    masses, infinite = exact_masses([(lattice, 6)])
    epsilon = max(6 * tilted, 0.0) + 0.75
    exact = exact_delta(masses, infinite, 0.5, epsilon)
    assert Composition([(lattice, 6)], Side.UP).delta(epsilon) >= exact
    assert Composition([(lattice, 6)], Side.DOWN).delta(epsilon) <= exact


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("mu, q, rounds", [(1.0, 0.1, 3), (0.5, 0.4, 20), (3.0, 0.02, 5)])
def test_sides_are_ordered_at_every_step(side, mu, q, rounds):
    """UP at a coarse step is above DOWN at a fine one, and the other way round."""
    whole = Composed(((Sampled(Gdp(mu), q), rounds),))
    other = Side.DOWN if side is Side.UP else Side.UP
    for coarse, fine in ((0.05, 0.002), (0.002, 0.05)):
        for epsilon in (0.1, 1.0):
            a = whole.composition(coarse, side).delta(epsilon)
            b = whole.composition(fine, other).delta(epsilon)
            assert a >= b if side is Side.UP else a <= b


@pytest.mark.parametrize("step", [0.5, 5.0, 20.0, 72.4, 145.0])
def test_steps_much_too_coarse_are_still_on_their_side(step):
    """Little noise and a coarse step: masses scaled by e^x exceed 1, and so does their rounding."""
    q, z = 0.0174, 0.0667
    stays = (1 - q, -1.0)
    capped = GaussianMix(z, (stays, (q, 1.0)), (stays, (q, 0.0)))
    fold = Fold(Sampled(Gdp(1 / z), q), capped)
    down, up = (fold.lattice(step, side, 1e-30) for side in (Side.DOWN, Side.UP))
    assert down.mass.sum() <= 1.0 + 1e-12 <= up.mass.sum() + up.infinite + 2e-12
    run = Composed(((fold, 1000),))
    ends = [run.composition(step, side, 1e-18).epsilon(1e-10) for side in (Side.DOWN, Side.UP)]
    assert ends[0] <= ends[1]


def test_a_window_far_from_the_answer_is_no_upper_end():
    """Rare rounds with large losses: bounds that overflow must not count as small."""
    run = Composed(((Sampled(Gdp(2.0), 1e-5), 100_000),))
    up = run.composition(3e-4, Side.UP, 1e-19).epsilon(1e-12)
    assert up >= 4.1


@pytest.mark.parametrize("delta", [1e-4, 1e-3, 1.5e-3])
def test_bounded_losses_keep_their_crossing(delta):
    """The best tilt sits on the largest loss; the crossing lies in other windows."""
    run = Composed(((LaplacePair(0.5), 9),))
    down, up = (run.composition(2e-3, side, 1e-12).epsilon(delta) for side in (Side.DOWN, Side.UP))
    assert down <= up <= down + 0.03


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("means", [(0.0, 1.0, 6.0), (-2.0, 0.0, 0.5), (0.3, 0.7), (0.1, 0.2, 0.3)])
def test_thresholds_of_means_at_unequal_distances_hold_the_truth(means):
    """Three means once counted as equally spaced wherever the outer two were."""
    weights = (0.9, 0.099, 0.001) if len(means) == 3 else (0.9, 0.1)
    p = tuple(zip(weights, means, strict=True))
    curve = GaussianMix(1.0, p, ((1.0, means[0]),))
    pair = tuple(tuple((mpf(w), mpf(m)) for w, m in side) for side in (curve.p, curve.q))
    for epsilon in (0.05, 0.5, 3.0):
        exact = float(truth.mixture_delta(pair, epsilon))
        for side in (Side.UP, Side.DOWN):
            found = direct.delta(curve, np.array([epsilon]), side)[0]
            assert found == pytest.approx(exact, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("tolerance", [1e3, 1e9])
def test_an_absurd_tolerance_gives_a_bracket_of_the_same_number(tolerance):
    """A step of hundreds once took an exponential that no number holds."""
    curve = Sampled(Gdp(4.3), 423 / 2_993_399)
    run = Composed(((curve, 468),))
    low, high = pld.epsilon_interval(run, 7.6e-16, tolerance)
    closer = pld.epsilon_interval(run, 7.6e-16)
    assert low <= closer[1] and closer[0] <= high
    assert high - low <= tolerance and closer[1] - closer[0] <= 0.1


@pytest.mark.parametrize("side", [Side.UP, Side.DOWN])
def test_steps_without_an_exponential_err_to_their_side(side):
    run = Composed(((Sampled(Gdp(60.0), 0.1), 3),))
    exact = [run.composition(2.0, s).epsilon(1e-6) for s in (Side.DOWN, Side.UP)]
    wide = run.composition(900.0, side)
    found = wide.epsilon(1e-6)
    assert found >= exact[0] if side is Side.UP else found <= exact[1]
    profile = [wide.delta(x) for x in (0.0, 500.0, 1e4)]
    finer = [
        run.composition(2.0, Side.DOWN if side is Side.UP else Side.UP).delta(x)
        for x in (0.0, 500.0, 1e4)
    ]
    ordered = zip(profile, finer, strict=True)
    assert all(a >= b if side is Side.UP else a <= b for a, b in ordered)


@pytest.mark.parametrize("delta", [1e-9, 1e-4])
def test_one_window_is_enough_where_its_errors_are_negligible(delta, monkeypatch):
    """The best tilt is as large as doubles allow; smaller tilts would only repeat the answer."""
    tilts, real = [], Composition._profile

    def counted(self, tilt, *more):
        tilts.append(tilt)
        return real(self, tilt, *more)

    monkeypatch.setattr(Composition, "_profile", counted)
    run = Composed(((LaplacePair(2.0), 30),))
    found = [run.composition(5e-3, side, 1e-20).epsilon(delta) for side in (Side.DOWN, Side.UP)]
    assert 0.0 < found[0] <= found[1]
    assert len(tilts) < 8
