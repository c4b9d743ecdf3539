"""Tests of ``fedprivacy.mechanisms.bessel``."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from fedprivacy.mechanisms import bessel
from fedprivacy.mechanisms import integer_laws as laws


@pytest.mark.parametrize("variance", [0.3, 2.25, 40.0])
def test_every_node_is_above_its_cumulant_and_next_to_it(variance):
    """Cumulants of a shift by one against 60 digits; the unit is above all cumulants."""
    most = 2.0 * variance
    law, unit = laws._UnitShift.of(variance, most), laws.concentrated_unit(variance, 1.0 + most)
    reach = int(40 + 30 * math.sqrt(variance) + 8 * variance)
    with mp.workdps(60):
        bessel = [mp.besseli(k, mp.mpf(variance)) for k in range(reach + 2)]
        total = bessel[0] + 2 * mp.fsum(bessel[1:])
        pairs = [(bessel[abs(y)], bessel[abs(y + 1)]) for y in range(-reach, reach)]
        for b in (3e-4, 1e-3, 0.1 * most, 0.77 * most, most):
            true = mp.log(mp.fsum(p * (p / q) ** mp.mpf(b) for p, q in pairs) / total)
            assert true <= unit * b * (b + 1.0) / 2.0
            assert true <= law.cumulant(b) <= true * (1 + mp.mpf(1e-9))


@pytest.mark.parametrize("variance", [9.0, 2000.0, 2.0**14, 1e5])
def test_losses_in_doubles_are_as_near_as_they_say(variance):
    reach = int(12 * math.sqrt(variance))
    found, off = bessel.near_losses(variance, reach)
    exact = bessel.unit_losses(Fraction(variance), reach)
    # 1e-15 of a loss is its logarithm's rounding.
    assert np.all(np.abs(found - exact) <= off + 1e-15 * exact)
    if variance >= bessel._WIDE:
        assert off < 1e-12


def test_what_is_left_over_shows_doubles_that_are_no_ratios(monkeypatch):
    right = bessel._expansion
    monkeypatch.setattr(bessel, "_expansion", lambda x, y: right(x, y) * (1.0 + 1e-6))
    found, off = bessel.near_losses(2.0**14, 1000)
    exact = bessel.unit_losses(Fraction(2**14), 1000)
    assert 1e-9 < float(np.max(np.abs(found - exact))) <= off
    monkeypatch.setattr(bessel, "_expansion", lambda x, y: right(x, y) + 0.1)
    assert bessel.near_losses(2.0**14, 1000)[1] == math.inf


@pytest.mark.parametrize("highest", [3.0, 400.0, 4000.0])
def test_wide_laws_in_doubles_cost_what_whole_numbers_say(monkeypatch, highest):
    variance = 3e4
    found = laws.concentrated_unit.__wrapped__(variance, highest)
    monkeypatch.setattr(bessel, "_WIDE", math.inf)
    exact = laws.concentrated_unit.__wrapped__(variance, highest)
    assert exact * (1.0 - 1e-12) <= found <= exact * (1.0 + 1e-6)
