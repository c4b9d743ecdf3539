"""Powers by repeated squaring."""

import numpy as np
import pytest
from mpmath import mp, mpf

from fedprivacy.loss.curves.powers import power_of


@pytest.mark.parametrize("exponent", [1, 2, 7, 64, 1000])
def test_powers_by_squares_are_within_the_counted_rounding(exponent):
    generator = np.random.default_rng(3)
    turned = np.exp(1j * generator.uniform(0.0, 6.28, 200)) * generator.uniform(0.5, 1.0, 200)
    found = power_of(turned, exponent)
    with mp.workdps(40):
        for one, value in zip(found.tolist(), turned.tolist(), strict=True):
            correct = mp.mpc(value.real, value.imag) ** exponent
            off = abs(mp.mpc(one.real, one.imag) - correct)
            assert off <= 6 * 1.2e-16 * exponent * abs(correct) + mpf(10) ** -300
