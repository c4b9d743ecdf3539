"""The family of sampled Gaussian pairs: convex profiles, and slabs below all densities."""

import math

import mpmath
import numpy as np
import pytest

from fedprivacy.loss.moments.contour import Contour
from fedprivacy.loss.moments.sampled_gaussians import SampledGaussians
from fedprivacy.loss.moments.staircase import lost


def profile(mu, q, x, swapped):
    """Return E (1 - e^{x - L})^+ of the sampled pair, to thirty digits."""
    if swapped:
        # H_a(Q, P) = a H_{1/a}(P, Q) + 1 - a.
        return mpmath.exp(x) * profile(mu, q, -x, False) + 1 - mpmath.exp(x)
    inner = 1 + (mpmath.exp(x) - 1) / mpmath.mpf(q)
    if inner <= 0:
        return 1 - mpmath.exp(x)
    z = mpmath.log(inner)
    right = mpmath.ncdf(mu / 2 - z / mu) - inner * mpmath.ncdf(-mu / 2 - z / mu)
    return q * right


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("q", [0.003, 0.2, 0.9])
def test_profiles_are_convex_in_the_parameter(q, swapped):
    with mpmath.workdps(30):
        root = mpmath.sqrt(8)  # Phi(mu / 2) = (1 + erf(mu / sqrt 8)) / 2
        for low, high in ((0.1, 0.15), (0.8, 1.4), (2.0, 5.0)):
            low, high = mpmath.mpf(low), mpmath.mpf(high)
            for share in (0.1, 0.5, 0.8):
                place = (1 - share) * mpmath.erf(low / root) + share * mpmath.erf(high / root)
                mu = root * mpmath.erfinv(place)
                for x in (-3.0, -0.4, -1e-3, 0.0, 1e-3, 0.1, 1.0, 4.0):
                    ends = [profile(end, q, mpmath.mpf(x), swapped) for end in (low, high)]
                    chord = (1 - share) * ends[0] + share * ends[1]
                    assert profile(mu, q, mpmath.mpf(x), swapped) <= chord + mpmath.mpf(10) ** -25


def test_profiles_are_not_convex_in_mu_itself():
    with mpmath.workdps(30):
        at = [profile(mpmath.mpf(mu), 0.2, mpmath.mpf(0), False) for mu in (2.0, 3.0, 4.0)]
        assert at[1] > (at[0] + at[2]) / 2


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("low, high, q", [(0.5, 0.52, 0.01), (1.0, 1.5, 0.3), (0.05, 0.06, 0.7)])
@pytest.mark.parametrize("tilt", [0.5, 6.0])
def test_every_round_between_two_falls_by_the_slabs(low, high, q, tilt, swapped):
    family, heights = SampledGaussians(q, swapped), np.array([2.0, 9.0, 40.0, 200.0])
    unit = np.zeros((1, 1))
    slabs = family.slabs(np.array([[low]]), np.array([[high]]), tilt, unit)
    fallen = lost(*slabs, heights)[0]
    for mu in np.linspace(low, high, 7):
        moments = family.moments(float(mu))
        whole = math.exp(moments.log_moment(1.0 + tilt))
        assert fallen[-1] <= whole
        for k, height in enumerate(heights):
            # Some heights above this one.
            found = moments.spectrum(Contour(tilt, 1.37 * height, 4))
            size = np.exp(found.log_size) * (np.abs(found.values[1:]) - found.error[1:])
            assert np.max(size) <= whole * (1 + 1e-12) - fallen[k]
    # Between close rounds the fall is nearly that of each.
    assert fallen[-1] > (0.2 if high < 1.2 * low else 0.0) * whole
