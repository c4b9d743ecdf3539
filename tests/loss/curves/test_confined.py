"""Two Gaussians in cells of an interval, from below."""

import numpy as np
import pytest
from scipy.special import ndtr

from fedprivacy.loss import Confined, Gdp, Side

EPSILONS = np.array([-2.0, 0.0, 0.5, 2.0, 6.0])


def profile(curve):
    tails = curve.tails(EPSILONS, Side.DOWN)
    return np.exp(tails.p_above) - np.exp(EPSILONS + tails.q_above)


@pytest.mark.parametrize("mu", [0.01, 1.0, 5.0, 40.0])
def test_a_wide_interval_shows_almost_the_gaussians(mu):
    shown, exact = profile(Confined(mu, 60.0)), profile(Gdp(mu))
    assert (shown <= exact).all()
    assert shown == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("swapped", [False, True])
def test_beyond_a_short_interval_nothing_is_told_apart(swapped):
    curve = Confined(2.0, 0.5)
    # The last cell holds everything above the end of the interval.
    p, q = ndtr(0.5), ndtr(-1.5)
    found = profile(curve.swap() if swapped else curve)
    assert found[-1] == 0.0 < profile(Gdp(2.0))[-1]
    assert found[3] == pytest.approx(p - np.exp(2.0) * q, rel=1e-6)


def test_what_may_be_lost_is_not_counted():
    shown, less = profile(Confined(1.0, 9.0)), profile(Confined(1.0, 9.0, lost=1e-6))
    assert (less < shown).all()
    # Each of about 400 cells of either law.
    assert (less >= shown - 4e-4 * (1.0 + np.exp(EPSILONS))).all()


@pytest.mark.parametrize("bad", [(0.0, 1.0), (41.0, 1.0), (1.0, 0.0), (1.0, 1.0, 1.0)])
def test_parameters_out_of_range(bad):
    with pytest.raises(ValueError, match="Confined"):
        Confined(*bad)
