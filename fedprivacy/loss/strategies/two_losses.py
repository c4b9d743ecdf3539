"""Rounds with two losses: their sums are binomial, so no lattice or line is needed.

If one round has the losses a > b with P-masses p and r, then k of T rounds with loss a have the
loss k a + (T - k) b and the P-mass C(T, k) p^k r^(T-k). Delta at epsilon is the sum of these masses
times (1 - e^(epsilon - loss))^+, a sum of positive terms. Randomised responses under ``zero_out``
are rounds of this kind. Errors: docs/theory/inversion.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from ...rounding import FEW, UNIT, Down, Up
from ..clock import check_deadline
from ..curves.components import different_in, is_composed, parts_of
from ..curves.curve import Curve
from ..curves.discrete import Atoms
from ..curves.lattice import Array, Side
from .queries import STUCK, Interval, Question

MOST_ROUNDS = 1 << 21
_UNDERFLOWN = 1e-300
"""Masses that underflow add up to less, for ``MOST_ROUNDS`` rounds."""
_HALVINGS = 100


def serves(curve: Curve) -> bool:
    """Return whether a run has one kind of round, and this has two losses in both laws."""
    if not is_composed(curve) or different_in(curve) > 1:
        return False
    one, rounds = parts_of(curve)[0]
    return rounds <= MOST_ROUNDS and _two(one) is not None


def _two(one: Curve) -> Atoms | None:
    """Return a round if it has two losses in both laws, else None."""
    if not isinstance(one, Atoms) or one.infinite + one.vanishing:
        return None
    return one if len(one.points) == 2 else None


@dataclass(frozen=True)
class TwoLossSums:
    """Bounds of the profile of a run that ``serves`` accepts.

    Args:
        curve: the run.
        side: UP for upper bounds, DOWN for lower ones.
    """

    curve: Curve
    side: Side

    @functools.cached_property
    def _columns(self) -> tuple[Array, Array]:
        """Losses of all sums and their masses, moved by their errors to the side."""
        (first, rounds), sign = parts_of(self.curve)[0], 1.0 if self.side is Side.UP else -1.0
        one = _two(first)
        assert one is not None
        law = one.law(self.side)
        (low, high), (rest, often) = law.loss.tolist(), np.log(law.p).tolist()
        k = np.arange(rounds + 1.0)
        factorials = gammaln(k + 1.0)
        orders = factorials[-1] - factorials - factorials[::-1]
        exponent = orders + k * often + k[::-1] * rest
        off = 16.0 * UNIT * (1.0 + factorials[-1] + k * abs(often) + k[::-1] * abs(rest))
        mass = np.exp(exponent + sign * (off + FEW * rounds))
        some = mass > 0.0
        k, back, mass = k[some], k[::-1][some], mass[some]
        loss = k * high + back * low
        slip = 8.0 * UNIT * (k * abs(high) + back * abs(low))
        return loss + sign * slip, mass

    def delta(self, epsilon: float) -> float:
        """Return a bound of delta at an epsilon of at least 0."""
        check_deadline()
        loss, mass = self._columns
        beyond = int(np.searchsorted(loss, epsilon, side="right"))
        gain = -np.expm1(epsilon - loss[beyond:])
        found = float(np.dot(mass[beyond:], gain))
        off = UNIT * (8.0 + len(gain))
        if self.side is Side.UP:
            return min(found * (1.0 + off) + _UNDERFLOWN, 1.0)
        return found * (1.0 - off)

    def epsilon(self, delta: float) -> float:
        """Return a bound of epsilon at a delta above 0, by bisection: any probe is valid."""
        high = float(self._columns[0][-1]) if len(self._columns[0]) else 0.0
        up = self.side is Side.UP
        low, high = 0.0, max(high, 0.0)
        if self.delta(0.0) <= delta:
            return 0.0
        # Above all losses only masses remain that underflow.
        if up and not self.delta(high) <= delta:
            return math.inf
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if not low < middle < high or high - low <= 4.0 * UNIT * high:
                break
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high if up else low


class BinomialSums:
    """Both ends from the binomial sums of rounds with two losses."""

    method = "PLD, binomial sums"

    def cost(self, question: Question) -> float | None:
        """Return less than the cost of a line, for runs of these rounds."""
        return 2e-3 if serves(question.curve) else None

    def answer(self, question: Question) -> Interval:
        """Return the ends of both sides."""
        below, above = (TwoLossSums(question.curve, side) for side in (Side.DOWN, Side.UP))
        low, high = question.below(below), question.above(above)
        return Interval(Down(low), Up(high), self.method, STUCK)
