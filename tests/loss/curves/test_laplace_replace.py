"""Laplace noise, Poisson sampling, one unit replaced: exact, both ends (T1)."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from fedprivacy.loss import LaplaceExchanged

CASES = [(0.05, 0.5, 0.5), (0.3, 2.0, 1.0), (0.01, 1.0, 3.0), (0.9, 0.1, 5.0), (1e-6, 8.0, 8.0)]


def laws(q, there, back):
    def density(y, mean):
        q_ = mpf(q)
        return ((1 - q_) * mpmath.exp(-abs(y)) + q_ * mpmath.exp(-abs(y - mean))) / 2

    return (lambda y: density(y, mpf(there))), (lambda y: density(y, -mpf(back)))


@pytest.mark.fast_cells(2)
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


@pytest.mark.fast_cells(6)
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


@pytest.mark.parametrize("given", [(0.0, 1, 1), (1.0, 1, 1), (0.5, 0.0, 1), (0.5, 1, 301.0)])
def test_what_is_no_such_pair_is_refused(given):
    with pytest.raises(ValueError, match="LaplaceExchanged: q = "):
        LaplaceExchanged(*given)
