"""Tests of ``fedprivacy.audit.conformance``."""

import pytest

from fedprivacy.audit.conformance import coin_p_value, shape_p_value
from tests.audit.test_verification import seeded


def test_error_rates_of_the_parts():
    rng = seeded(5)
    ps = [shape_p_value(rng.random(50), lambda x: x) for _ in range(400)]
    assert sum(p <= 0.2 for p in ps) <= 115  # 80 expected at most; 10^-5 of Binomial(400, 0.2)
    assert coin_p_value(50, 100) == 1.0 and coin_p_value(0, 0) == 1.0
    assert coin_p_value(100, 100) == pytest.approx(2.0**-99)
    assert coin_p_value(0, 10) == coin_p_value(10, 10) == pytest.approx(2.0**-9)
