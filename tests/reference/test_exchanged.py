"""Laplace noise, Poisson sampling, one unit replaced: exact, both ends (T1)."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import fedprivacy as fp
from fedprivacy.loss import LaplaceExchanged, Side

CASES = [(0.05, 0.5, 0.5), (0.3, 2.0, 1.0), (0.01, 1.0, 3.0), (0.9, 0.1, 5.0), (1e-6, 8.0, 8.0)]


def laws(q, there, back):
    def density(y, mean):
        q_ = mpf(q)
        return ((1 - q_) * mpmath.exp(-abs(y)) + q_ * mpmath.exp(-abs(y - mean))) / 2

    return (lambda y: density(y, mpf(there))), (lambda y: density(y, -mpf(back)))


@pytest.mark.parametrize("q, there, back", CASES)
def test_tails_are_the_masses_beyond_the_outcome_of_each_loss(q, there, back):
    p, r = laws(q, there, back)
    places = np.array([-0.9 * back, -0.3 * back, 0.0, 0.2 * there, 0.8 * there])
    with mpmath.workdps(40):
        losses = np.array([float(mpmath.log(p(mpf(y)) / r(mpf(y)))) for y in places])
    found = LaplaceExchanged(q, there, back).tails(losses)
    for k, y in enumerate(places):
        marks = sorted({-mpf(back), mpf(0), mpf(there), mpf(y)})
        right = [m for m in marks if m >= y] + [mpf(200)]
        left = [mpf(-200)] + [m for m in marks if m <= y]
        for got, law, part in zip(found, (p, r, p, r), (right, right, left, left), strict=True):
            # A loss is a double: its place is off by its rounding over q, and so is the mass.
            assert float(got[k]) == pytest.approx(
                float(mpmath.log(mpmath.quad(law, part))), abs=1e-13 + 1e-15 / q
            )


@pytest.mark.parametrize("order", [1.5, 3.0, 12.0, -0.7])
@pytest.mark.parametrize("q, there, back", CASES)
def test_moments_lie_just_above_the_integral(q, there, back, order):
    p, r = laws(q, there, back)
    marks = [-90, -back, -back / 2, 0, there / 2, there, 90]
    value = mpmath.log(mpmath.quad(lambda y: p(y) ** order * r(y) ** (1 - order), marks))
    found = LaplaceExchanged(q, there, back).moments().log_moment(order)
    assert value <= found <= float(value) * (1 + 1e-9) + 1e-11


@pytest.mark.parametrize("q, there, back", CASES)
def test_the_swap_is_the_mirror_image(q, there, back):
    curve = LaplaceExchanged(q, there, back)
    losses = np.linspace(-1.2 * there - back, there + 1.2 * back, 41)
    here, mirrored = curve.tails(losses), curve.swap().tails(-losses)
    inside = np.abs(here.p_above) < 1e300
    assert np.allclose(here.p_above[inside], mirrored.q_below[inside], rtol=1e-9, atol=1e-9)
    assert curve.support().symmetric == (there == back)


def test_beyond_the_largest_loss_nothing_has_mass():
    curve = LaplaceExchanged(0.2, 1.0, 1.0)
    found = curve.tails(np.array([curve.most * 1.0000001, -curve.most * 1.0000001]), Side.UP)
    assert np.isneginf(found.p_above[0]) and np.isneginf(found.q_below[1])
    run = fp.Laplace(noise_multiplier=1.0).sampled(fp.Poisson(0.2))
    pure = fp.epsilon(run, delta=0.0, adjacency="replace_one")
    assert pure.lower <= curve.most <= pure.upper <= curve.most * (1 + 1e-12)


@pytest.mark.parametrize("scale", [1 / 299.0, 1 / 301.0, 1e-3, 1e-9])
def test_noise_that_hides_nothing_has_answers_too(scale):
    """Exponentials of such losses leave doubles: above 300 scales F(S, S) stands."""
    run = fp.Laplace(noise_multiplier=scale).sampled(fp.Poisson(0.5))
    facts = {"adjacency": "replace_one"}
    pure = fp.epsilon(run * 3, delta=0.0, **facts)
    assert pure.lower <= 3 * (2.0 / scale) and pure.upper >= 3 * (1.0 / scale - 1.0)
    found = fp.delta(run, epsilon=1.0, **facts)
    # A unit that is drawn is told apart for certain, one that is not never.
    assert found.lower <= 0.5 <= found.upper <= 0.5 * (1 + 1e-9)


@pytest.mark.parametrize("given", [(0.0, 1, 1), (1.0, 1, 1), (0.5, 0.0, 1), (0.5, 1, 301.0)])
def test_what_is_no_such_pair_is_refused(given):
    with pytest.raises(ValueError, match="LaplaceExchanged: q = "):
        LaplaceExchanged(*given)


def sends(counts, unit, q, y):
    """Density of a sum of +-1, one unit's by chance and three others' that send nothing or 1."""
    found = mpf(0)
    for drawn, chance in ((1, mpf(q)), (0, 1 - mpf(q))):
        for others, weight in enumerate(counts):
            found += chance * weight * mpmath.exp(-abs(y - drawn * unit - others)) / 2
    return found


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3])
def test_no_data_of_a_tiny_population_lose_more(epsilon):
    q = 0.1
    bound = fp.delta(
        fp.Laplace(noise_multiplier=1.0).sampled(fp.Poisson(q)),
        epsilon=epsilon,
        adjacency="replace_one",
    )
    grid = np.linspace(-12, 14, 5201)
    for senders in (0, 1, 3):
        law = [mpmath.binomial(senders, k) * mpf(q) ** k * (1 - mpf(q)) ** (senders - k)
               for k in range(senders + 1)]  # fmt: skip
        for here, there in ((1, -1), (1, 0), (0.5, -1), (-1, 1)):
            p, r = (
                np.array([float(sends(law, unit, q, y)) for y in grid[::10]])
                for unit in (here, there)
            )
            shown = float(np.sum(np.maximum(p - np.exp(epsilon) * r, 0.0)) * 0.05)
            assert shown <= bound.upper + 2e-3 * q
    assert bound.upper - bound.lower <= 1e-9


def test_hundred_rounds_are_bracketed_closely_by_every_question():
    run = fp.Laplace(noise_multiplier=2.0).sampled(fp.Poisson(0.05)) * 100
    found = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    assert 1.678 < found.lower <= found.upper < 1.679
    assert fp.delta(run, epsilon=found.upper, adjacency="replace_one").lower <= 1e-5
    rdp = fp.epsilon(run, delta=1e-5, adjacency="replace_one", accountant="rdp")
    assert found.upper < rdp.upper < 2.1
