"""Tests of ``fedprivacy.mechanisms.exact_bernoulli``."""

import math
from fractions import Fraction

import pytest

from fedprivacy.mechanisms import exact_bernoulli


@pytest.mark.parametrize("a", [0.01, 0.7, 3.0])
def test_digits_of_geometric_numbers_are_independent_coins(a):
    """Their product is (1 - r) r^k; the digits above the last one form another such number."""
    rate, digits = Fraction(a), []
    while rate < 1:
        digits.append(exact_bernoulli._odds(rate, 200) / 2**200)
        rate *= 2
    rest = exact_bernoulli._power(rate, 200) / 2**200
    for k in range(64):
        made = (1.0 - rest) * rest ** (k >> len(digits))
        made *= math.prod(p if k >> i & 1 else 1.0 - p for i, p in enumerate(digits))
        assert made == pytest.approx((1.0 - math.exp(-a)) * math.exp(-a * k), rel=1e-12)


@pytest.mark.parametrize(("second", "falls"), [(0, True), (2**63, False)])
def test_what_a_word_leaves_open_is_decided_by_the_next_one(second, falls):
    """A probability of 3/8 + 2^-66: the first word may equal its first 64 bits."""
    words = [3 * 2**61, second]
    source = [word.to_bytes(8, "little") for word in words]
    above = (3 << 63) + 1

    def survival(places):
        return above << places >> 66

    assert exact_bernoulli.coins(1, survival, lambda count: source.pop(0)).tolist() == [falls]
