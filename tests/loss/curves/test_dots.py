"""Moments that follow from tails only."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from fedprivacy.loss import Curve, LaplacePair, MaxLoss, Side, Support


@dataclass(frozen=True)
class TailsOnly(Curve):
    """A Laplace pair without stated moments."""

    shift: float
    bounded: bool = True

    def tails(self, loss, side=Side.UP):
        return LaplacePair(self.shift).tails(loss, side)

    def support(self):
        if not self.bounded:
            return Support()
        return Support(largest=MaxLoss.exactly(self.shift), symmetric=True)


@pytest.mark.parametrize("order", [1.01, 2.0, 7.5, 60.0, -0.5, -8.0])
@pytest.mark.parametrize("shift", [0.01, 0.5, 3.0])
def test_a_bounded_loss_needs_no_moments_of_its_own(shift, order):
    exact = LaplacePair(shift).moments().log_moment(order)
    found = TailsOnly(shift).moments().log_moment(order)
    # Both are upper bounds; the exact one is right to some units in the last place.
    assert exact * (1 - 1e-12) <= found <= exact * 1.002 + 1e-9


def test_a_loss_without_a_limit_has_no_bound():
    assert TailsOnly(1.0, bounded=False).moments().log_moment(2.0) == math.inf


def test_mass_at_infinite_loss_has_no_bound():
    class Revealing(TailsOnly):
        def support(self):
            return Support(largest=MaxLoss.exactly(self.shift, infinite=1e-9))

    assert Revealing(1.0).moments().log_moment(2.0) == math.inf


def test_tails_without_numbers_give_no_bound():
    class Blind(TailsOnly):
        def tails(self, loss, side=Side.UP):
            return type(super().tails(loss, side))(*np.full((4, *np.shape(loss)), math.nan))

    assert Blind(1.0).moments().log_moment(2.0) == math.inf
