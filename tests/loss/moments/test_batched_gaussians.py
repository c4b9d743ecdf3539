"""Batched moments near 1, compared with high precision, with single moments, and in runs."""

import itertools
import random
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from fedprivacy.loss import Composed, GaussianMix, Gdp, Sampled
from fedprivacy.loss.moments.batched_rounds import Bundle, Stack
from fedprivacy.loss.moments.contour import Contour
from fedprivacy.loss.moments.gaussian_rules import GaussianPair
from fedprivacy.loss.moments.mixtures import log_sum, rounding
from fedprivacy.loss.moments.spectrum import Near, Spectrum
from fedprivacy.loss.strategies import inversion

RATES = [1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 0.1]
FLOOR = 4.3e-18
"""e^-40, in units of which rules are made to err."""


def sampled(z, q):
    """Poisson sampling, add_remove."""
    return Sampled(Gdp(1 / z), q)


def given(z, q):
    """The same the other way round: a unit is missing."""
    return sampled(z, q).swap()


def replaced(z, q):
    """Poisson sampling, replace_one."""
    return GaussianMix(z, ((1 - q, 0.0), (q, 1.0)), ((1 - q, 0.0), (q, -1.0)))


MAKERS = [sampled, given, replaced]


def apart(spectrum):
    """The spectra of the rows, one by one."""
    if spectrum.values.ndim == 1:
        return [spectrum]
    near, sizes = spectrum.near, np.ravel(spectrum.log_size)
    rows = zip(sizes, spectrum.values, spectrum.error, strict=True)
    return [
        Spectrum(spectrum.tilt, size, *row, 0.0, near and Near(near.values[k], near.error[k]))
        for k, (size, *row) in enumerate(rows)
    ]


def side_by_side(curves, line):
    """The curves' spectra, in their order."""
    found = {}
    for some in Bundle([(curve.moments(), 1) for curve in curves]).spectra(line):
        found.update(zip(some.at.tolist(), apart(some.spectrum), strict=True))
    return [found[k] for k in range(len(curves))]


def exact_means(maker, z, q):
    """(weight, mean) of P and of Q: weights add up to 1, and means are those of the leaf."""
    q, up = mpf(q), mpf(1 / z) if maker is not replaced else 1 / mpf(z)
    none = ((mpf(1), mpf(0)),)
    one, other = (((1 - q, mpf(0)), (q, sign * up)) for sign in (1, -1))
    return {sampled: (one, none), given: (none, one), replaced: (one, other)}[maker]


def exact_excess(maker, z, q, points):
    """E_P (e^{s L} - 1) at points of one tilt: a trapezoid sum in 40 digits, refined once."""
    with mpmath.workdps(40):
        p, q = exact_means(maker, z, q)
        points = [mpmath.mpc(s) for s in points]
        t = 1 + points[0].real
        means = [m for _, m in p + q]
        centres = [t * a + (1 - t) * b for a, b in itertools.product(means, means)] + means
        radius = mpmath.sqrt(t * (t - 1) * (max(means) - min(means)) ** 2 + 130)
        low, high = min(centres) - radius, max(centres) + radius

        def total(mesh):
            sums = [mpf(0)] * len(points)
            for k in range(int((high - low) / mesh) + 1):
                y = low + k * mesh
                at_p, at_q = (
                    sum(w * mpmath.expm1(m * y - m * m / 2) for w, m in x) for x in (p, q)
                )
                loss = mpmath.log1p(at_p) - mpmath.log1p(at_q)
                share = mesh * mpmath.npdf(y) * (1 + at_p)
                sums = [
                    value + share * mpmath.expm1(s * loss)
                    for value, s in zip(sums, points, strict=True)
                ]
            return sums

        spread = float(max(means) - min(means))
        mesh = mpf(0.24 / max(1.0, spread)) / (1 + abs(float(points[-1].imag)) * spread / 40)
        found, finer = total(mesh), total(0.8 * mesh)
        assert all(abs(a - b) <= 1e-21 for a, b in zip(found, finer, strict=True))
        return finer


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize(
    "maker, tilt, spacing", [(sampled, 2.0, 1.5), (given, 8.0, 0.3), (replaced, 0.02, 0.05)]
)
@pytest.mark.parametrize("z", [0.8, 2.5])
def test_what_a_moment_exceeds_one_by_is_as_close_as_it_says(maker, tilt, spacing, z):
    """All rates side by side; far below a unit of 1 it is right to its own digits."""
    line = Contour(tilt, spacing, 6)
    found = side_by_side([maker(z, q) for q in RATES], line)
    checked = 0
    for q, spectrum in zip(RATES, found, strict=True):
        if spectrum.near is None:
            assert spectrum.log_size > 0.099
            continue
        heights = [0, 5]
        points = [complex(tilt, line.heights()[k]) for k in heights]
        exact = exact_excess(maker, z, q, points)
        for k, one in zip(heights, exact, strict=True):
            off = abs(mpmath.mpc(complex(spectrum.near.values[k])) - one)
            assert off <= spectrum.near.error[k], (q, k)
            assert off <= 1e-12 * abs(one) + FLOOR, (q, k)
            assert spectrum.near.error[k] <= 20 * FLOOR + 1e-9 * abs(one), (q, k)
            value = spectrum.values[k] * np.exp(spectrum.log_size)
            assert abs(mpmath.mpc(complex(value)) - 1 - one) <= 1.01 * spectrum.error[k], (q, k)
        checked += 1
    assert checked >= (len(RATES) if maker is replaced else 4)


def some_alike(rng):
    """Six curves of one shape; some need many more nodes than others."""
    maker = rng.choice(MAKERS)
    z, q = (float(np.exp(rng.uniform(*np.log(ends)))) for ends in ((0.5, 8.0), (1e-9, 0.1)))
    return [maker(z * rng.uniform(0.5, 2), q * rng.uniform(0.3, 3)) for _ in range(6)]


def test_what_moments_exceed_one_by_is_what_it_is_alone():
    """Every error of a single moment is also counted in a batch, with the same size."""
    rng, met = random.Random(3), 0
    for _ in range(150):
        tilt, spacing = (float(np.exp(rng.uniform(a, b))) for a, b in ((-5, 3.4), (-4, 3)))
        line, curves = Contour(tilt, spacing, 9), some_alike(rng)
        for curve, found in zip(curves, side_by_side(curves, line), strict=True):
            alone = curve.moments().spectrum(line)
            if found.near is None or alone.near is None:
                assert min(found.log_size, alone.log_size) > 0.099
                continue
            ratio = found.near.error / alone.near.error
            assert np.all((ratio > 0.9) & (ratio < 6.0)), (curve, line)
            apart = np.abs(found.near.values - alone.near.values)
            assert np.all(apart <= found.near.error + alone.near.error), (curve, line)
            met += 1
    assert met > 300


def a_few_rules(tilt):
    """Rules of four rare rounds, and certain facts about them."""
    curves = [sampled(z, q) for z, q in ((0.8, 1e-4), (1.0, 1e-3), (2.0, 1e-3), (3.0, 3e-3))]
    stack = Stack.of([curve.moments().pairs()[0][1] for curve in curves])
    plan = stack._plan(Contour(tilt, 0.0, 1))
    weighed = stack._weighed(plan, np.arange(4), tilt)
    assert (plan.serves_p & weighed.near()).all()
    rules = weighed.rule(-39.0, True)
    y = weighed.y
    slip = rounding(stack.p, stack.q, y, tilt, *(log_sum(side, y) for side in (stack.p, stack.q)))
    assert np.max(rules.slip) >= np.max(slip[1][np.abs(y) < 3.0])
    return rules


@pytest.mark.parametrize("tilt, spacing", [(0.5, 0.0), (2.0, 0.0), (0.01, 200.0), (0.5, 3.0)])
def test_errors_of_weights_and_losses_enter_what_moments_exceed_one_by(tilt, spacing):
    """Each is made large and then made: the sums stay within their errors, which are no larger."""
    rules, line = a_few_rules(tilt), Contour(tilt, spacing, 3)
    before = rules.spectrum(line).near.values
    nothing, large = np.zeros_like(rules.loss), np.full_like(rules.loss, 1e-6)
    signs = (1.0, np.sign(rules.loss))
    cases = []
    for share in [np.log1p(large * sign) for sign in signs]:
        weights = {"log_weight": share + rules.log_weight, "log_plain": share + rules.log_plain}
        cases.append(replace(rules, wobble=1.000001 * large, slip=nothing, **weights))
    cases.append(replace(rules, wobble=nothing, slip=large, loss=rules.loss + large))
    for k, changed in enumerate(cases):
        found = changed.spectrum(line).near
        moved = np.abs(found.values - before)
        assert np.all(moved <= found.error)
        assert k == 0 or np.all(moved >= 0.5 * found.error)


def test_an_interval_without_all_of_p_serves_its_moments_only():
    """Tilted away from all of P's means."""
    pairs = [GaussianPair(((1.0, 0.0),), ((1.0, 0.001 * k),)) for k in range(1, 6)]
    line = Contour(2.0, 0.5, 3)
    ((rows, found),) = Stack.of(pairs).spectra(line)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert np.all(found.log_size < 1e-3) and found.near is None
    for pair in pairs:
        assert pair.rule(line.tilt, line.top).spectrum(line).near is None


LEAVES = [(0.6, 1e-5), (0.8, 4e-5), (1.1, 1e-4)]


@pytest.mark.parametrize("maker", [sampled, given])
@pytest.mark.parametrize("rounds, delta", [(2_000_000, 1e-9), (200_000, 1e-6)])
def test_six_rare_rounds_are_known_as_closely_as_three(maker, rounds, delta):
    """Each leaf twice, with noise that differs in the last digits: too many for single moments."""
    three = [(maker(z, q), 2 * rounds) for z, q in LEAVES]
    six = [(maker(z * (1 + k * 1e-14), q), rounds) for z, q in LEAVES for k in range(2)]
    assert len({curve for curve, _ in six}) == 6
    low, high = inversion.epsilon_interval(Composed(tuple(three)), delta, 1e-7)
    least, most = inversion.epsilon_interval(Composed(tuple(six)), delta, 1e-7)
    assert most - least <= 2.0 * (high - low) + 1e-12
    assert low <= 0.5 * (least + most) <= high
    assert least <= 0.5 * (low + high) <= most


def test_a_run_of_many_rare_rounds_is_known_closely():
    """It was known to a hundredth of itself."""
    leaves = [(0.6, 1e-5), (0.8, 2e-5), (1.0, 3e-5), (0.7, 5e-5), (1.2, 8e-5), (0.9, 1e-4)]
    run = Composed(tuple((sampled(z, q), 2_000_000) for z, q in leaves))
    low, high = inversion.epsilon_interval(run, 1e-9, 1e-6)
    assert high - low < 1e-4
