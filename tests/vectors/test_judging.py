"""The judgement of single answers."""

import math

import pytest

from fedprivacy.vectors import VectorCase, VectorOutcome, judge


def case(ask="epsilon", lower=2.0, upper=3.0):
    return VectorCase({"id": "x-001", "family": "x", "ask": ask, "words": ""}, lower, upper)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (None, 2.0, VectorOutcome.CONTAINED),
        (None, 2.0 * (1 - 1e-12), VectorOutcome.CONTAINED),
        (None, 3.02, VectorOutcome.CONTAINED),
        (None, 1.999999, VectorOutcome.WRONG),
        (None, 3.1, VectorOutcome.LOOSE),
        (None, math.inf, VectorOutcome.LOOSE),
        (3.1, None, VectorOutcome.WRONG),
        (3.0, None, VectorOutcome.CONTAINED),
        (0.0, 2.5, VectorOutcome.CONTAINED),
        (3.1, 4.0, VectorOutcome.WRONG),
    ],
)
def test_bounds(low, high, outcome):
    assert judge(case(), low, high).outcome is outcome


def test_an_estimate_may_be_off_by_its_error():
    assert judge(case(), None, 1.99, error=0.01).outcome is VectorOutcome.CONTAINED
    assert judge(case(), None, 1.97, error=0.01).outcome is VectorOutcome.WRONG


def test_a_negative_epsilon_counts_as_0():
    assert judge(case(lower=0.0, upper=0.0), None, -0.7).outcome is VectorOutcome.CONTAINED
    assert judge(case(), None, -0.7).outcome is VectorOutcome.WRONG


def test_tiny_epsilons_are_0_and_tiny_deltas_are_not():
    assert judge(case(lower=0.0, upper=0.0), None, 1e-9).outcome is VectorOutcome.CONTAINED
    found = judge(case("delta", 0.0, 1e-30), None, 1e-9)
    assert found.outcome is VectorOutcome.LOOSE and found.factor == pytest.approx(1e21)


def test_a_factor_says_how_far():
    assert judge(case(), None, 1.0).factor == 0.5
    assert judge(case(), None, 6.0).factor == 2.0
    assert judge(case(), None, math.inf).to_dict()["factor"] == "inf"
