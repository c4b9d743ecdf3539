"""Facts about the losses of a curve are computed once, when they are read."""

import math

from fedprivacy.loss import GaussianMix, Gdp, MaxLoss, Mix, Sampled, Support
from fedprivacy.loss.curves.max_loss import NO_LIMIT, UNKNOWN


def test_a_fact_is_computed_once_and_only_when_read():
    calls = []

    def cover():
        calls.append(1)
        return 2.0

    support = Support(cover=cover)
    assert support.exact and not calls
    assert support.cover == support.cover == 2.0 and calls == [1]


def test_the_defaults_state_nothing():
    support = Support()
    assert (support.largest, support.swapped_largest) == (UNKNOWN, UNKNOWN)
    assert support.cover == math.inf and support.mesh == 0.0
    assert not support.symmetric and not support.above_only


def test_a_symmetric_curve_has_one_largest_loss():
    largest = MaxLoss.exactly(1.5)
    assert Support(largest=largest, symmetric=True).swapped_largest == largest
    assert Support(largest=largest).swapped_largest == UNKNOWN
    assert Gdp(1.0).support().swapped_largest == NO_LIMIT


def test_a_swap_exchanges_the_largest_losses():
    pair = GaussianMix(1.0, ((0.9, 0.0), (0.1, 1.0)), ((1.0, 0.0),))
    here, there = pair.support(), pair.swap().support()
    assert here.swapped_largest == there.largest and here.largest == there.swapped_largest
    assert there.largest.high < math.inf == here.largest.high


def test_combinators_pass_facts_on():
    mixed = Sampled(Mix(((0.5, Gdp(0.0)), (0.5, Gdp(2.0)))), 0.1)
    assert mixed.support().exact and mixed.support().amplifiable
    assert mixed.support().cover == 2.0
    assert mixed.components().labels == (0.5, 0.5)
