"""A lower bound for rounds of which a unit is in a secret number: one sum over all rounds.

Of every round only a function of its outcome is kept, in cells of one width, and of these numbers
only their sum. Both steps are post-processing. The sum does not depend on which rounds the unit is
in, so its laws are convolutions (docs/theory/allocation.md, "Several rounds of an epoch").
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ...registry import registered
from ...rounding import FEW, UNIT
from ..clock import check_deadline
from .binned import Binned, Cells
from .lattice import Array

MOST = 30.0
"""The largest mean. A larger one shows at least as much, and its tails would underflow."""
MOST_ROUNDS = 1 << 17
"""The largest number of rounds. More need cells that are too coarse."""
_FAR = 11.6
"""Distance in stds from the outermost means where the cells of one round end."""
_PLACES = 4001
"""Number of outcomes of one round from which the edges of the cells are interpolated."""
_FINE, _ROUGH = 6.0, 2.0
"""Cells per standard deviation of one round's number."""
_MOST_CELLS, _MOST_ROUGH = 6_000, 2_000
"""Approximate largest number of cells of the sum, and of one round."""
_DROPPED = 1e-30
"""Mass that may be dropped at each end, over all rounds."""
_SHARES = (1.0, 0.5, 0.25)
"""Probabilities to try, as parts of the unit's own probability to be in a round."""
_TIE = 0.98
"""Chances that show this part of the most in wide cells are compared in the final ones."""
_TYPICAL = 1e-5
"""The delta at which the probabilities are compared."""


@registered
@dataclass(frozen=True)
class SummedRounds(Binned):
    """The sum over ``rounds`` outcomes of std 1; the unit moves the means of ``take`` of these.

    The means are ``shown`` under P and ``hidden`` under Q in the unit's rounds, 0 in all others.
    A round adds the logarithm of its likelihood ratio, as if the unit were in it with probability
    ``chance``. The curve is valid only from below, for every law of the unit's rounds.

    Args:
        shown: in (0, ``MOST``].
        hidden: in [-``MOST``, 0].
        rounds: from 1 to ``MOST_ROUNDS``.
        take: from 1 to ``rounds``.
        chance: in (0, 1]; None for one near take / rounds that shows much. Every value is valid.
        swapped: False for (P, Q).
        rough: whether the cells are wider, for a small part of the time.
    """

    shown: float
    hidden: float
    rounds: int
    take: int
    chance: float | None = None
    swapped: bool = False
    rough: bool = False

    def __post_init__(self) -> None:
        if not -MOST <= self.hidden <= 0.0 < self.shown <= MOST:
            ends = f"{self.hidden} and {self.shown}"
            raise ValueError(f"SummedRounds: means must lie on both sides of 0, got {ends}")
        if not 1 <= self.take <= self.rounds <= MOST_ROUNDS:
            found = f"{self.take} of {self.rounds}"
            raise ValueError(f"SummedRounds: rounds are out of range, got {found}")
        if not (self.chance is None or 0.0 < self.chance <= 1.0):
            raise ValueError(f"SummedRounds: chance must be in (0, 1], got {self.chance}")

    @property
    def _cover(self) -> float:
        return (self.shown - self.hidden) * math.sqrt(self.take)

    @property
    def missing(self) -> float:  # type: ignore[override]
        """Probability that may be missing in the cells of either law."""
        return 4.0 * _DROPPED

    @property
    def width(self) -> float:
        """Approximate distance of the losses of neighbouring cells."""
        return _edges(_chosen(replace(self, swapped=False)))[1]

    @functools.cached_property
    def laws(self) -> tuple[Cells, Cells]:
        """The cells of P and of Q, not swapped."""
        return _laws(_chosen(replace(self, swapped=False)))


@functools.lru_cache(maxsize=64)
def _edges(curve: SummedRounds) -> tuple[Array, float]:
    """Return the inner edges of one round's cells, and the cells' width."""
    places = np.linspace(-_FAR - abs(curve.hidden), _FAR + curve.shown, _PLACES)
    numbers = _number(places, curve)
    density = np.exp(-0.5 * places * places)
    density /= density.sum()
    mean = float(density @ numbers)
    std = math.sqrt(max(float(density @ (numbers - mean) ** 2), 1e-300))
    reach = max(float(numbers[-1] - numbers[0]), 2.0 * _FAR * std * math.sqrt(curve.rounds))
    fine, most = (_ROUGH, _MOST_ROUGH) if curve.rough else (_FINE, _MOST_CELLS)
    width = max(std / fine, reach / most)
    first, last = math.floor(numbers[0] / width), math.ceil(numbers[-1] / width)
    # Any edges will do, as long as both laws use the same.
    edges = np.interp((np.arange(first, last) + 0.5) * width, numbers, places)
    return edges, width


def _number(places: Array, curve: SummedRounds) -> Array:
    """Return the logarithm of the likelihood ratio of one round, which rises with its outcome."""
    assert curve.chance is not None

    def mixed(mean: float, chance: float) -> Array:
        with np.errstate(divide="ignore"):
            absent, drawn = np.log1p(-chance), math.log(chance)
        return np.logaddexp(absent, drawn + mean * places - 0.5 * mean * mean)

    hidden = mixed(curve.hidden, curve.chance) if curve.hidden else 0.0
    return np.asarray(mixed(curve.shown, curve.chance) - hidden)


class _Masses(NamedTuple):
    """Masses of the sum of some rounds in cells ``first``, ``first + 1``, ..."""

    first: int
    mass: Array
    rounds: int
    error: float
    """Every mass is right up to this part of itself."""

    def plus(self, other: _Masses, dropped: float) -> _Masses:
        """Return the masses of the sum of both, without ends of at most ``dropped`` a round."""
        check_deadline()
        mass = np.convolve(self.mass, other.mass)
        # All terms are positive, so every sum errs by at most its number of terms.
        off = UNIT * (min(len(self.mass), len(other.mass)) + 8)
        rounds = self.rounds + other.rounds
        found = _Masses(self.first + other.first, mass, rounds, self.error + other.error + off)
        return found.trimmed(dropped * rounds)

    def trimmed(self, dropped: float) -> _Masses:
        """Drop both ends, each with a mass of at most ``dropped``."""
        low = int(np.searchsorted(np.cumsum(self.mass), dropped))
        high = len(self.mass) - int(np.searchsorted(np.cumsum(self.mass[::-1]), dropped))
        return self._replace(first=self.first + low, mass=self.mass[low:high])

    def times(self, rounds: int, dropped: float) -> _Masses:
        """Return the masses of the sum of independent copies."""
        found = self
        for bit in bin(rounds)[3:]:
            found = found.plus(found, dropped)
            if bit == "1":
                found = found.plus(self, dropped)
        return found


def _one(edges: Array, mean: float) -> _Masses:
    """Return the masses of one round's cells."""
    left, right = edges - mean, mean - edges
    below, above = np.append(0.0, ndtr(left)), np.append(ndtr(right), 0.0)
    ends, beyond = np.append(ndtr(left), 1.0), np.append(1.0, ndtr(right))
    # The smaller tails keep the digits.
    near = np.append(left, math.inf) <= 0.0
    mass = np.where(near, ends - below, beyond - above)
    tail = np.where(near, ends, beyond)
    far = 2.0 + np.append(left, 0.0) ** 2
    # A tail x stds out has x^2 units of error.
    error = FEW * far * tail
    kept = mass > 1e-290
    mass = np.where(kept, mass, 0.0)
    return _Masses(0, mass, 1, float((error[kept] / mass[kept]).max()))


@functools.lru_cache(maxsize=64)
def _laws(curve: SummedRounds) -> tuple[Cells, Cells]:
    edges, _ = _edges(curve)
    take, others = curve.take, curve.rounds - curve.take
    # Every doubling doubles what is missing, and drops as much again.
    dropped = _DROPPED / (curve.rounds * curve.rounds.bit_length())
    silent = _one(edges, 0.0)
    rest = silent.times(others, dropped) if others else None
    found = []
    for mean in (curve.shown, curve.hidden):
        law = (_one(edges, mean) if mean else silent).times(take, dropped)
        found.append(law if rest is None else law.plus(rest, dropped))
    first = min(law.first for law in found)
    length = max(law.first + len(law.mass) for law in found) - first
    return tuple(_placed(law, first, length) for law in found)  # type: ignore[return-value]


def _placed(law: _Masses, first: int, length: int) -> Cells:
    before = law.first - first
    mass = np.pad(law.mass, (before, length - before - len(law.mass)))
    return Cells(mass, mass * (math.expm1(law.error) + FEW))


@functools.lru_cache(maxsize=64)
def _chosen(curve: SummedRounds) -> SummedRounds:
    """Return the curve with the chance that shows most at a delta of 1e-5, of a few chances."""
    if curve.chance is not None:
        return curve
    own = curve.take / curve.rounds
    tried = [replace(curve, chance=share * own, rough=True) for share in _SHARES]
    shown = [_rough_epsilon(each) for each in tried]
    least = min(_TIE * max(shown), max(shown))
    near = [each for each, epsilon in zip(tried, shown, strict=True) if epsilon >= least]
    # The final cells decide between chances that are too close for wide ones.
    final = [replace(each, rough=curve.rough) for each in near]
    return max(final, key=_rough_epsilon) if len(final) > 1 else final[0]


def _rough_epsilon(curve: SummedRounds) -> float:
    """Return the larger of both orientations' epsilons, without the errors of the masses."""
    one, two = (cells.mass for cells in curve.laws)
    return max(_epsilon(one, two), _epsilon(two, one))


def _epsilon(p: Array, q: Array) -> float:
    both = (p > 0.0) & (q > 0.0)
    loss = np.log(p[both]) - np.log(q[both])
    order = np.argsort(-loss, kind="stable")
    loss, above, other = loss[order], np.cumsum(p[both][order]), np.cumsum(q[both][order])
    inside = above - np.exp(np.minimum(loss, 700.0)) * other <= _TYPICAL
    return float(loss[inside].min()) if inside.any() else math.inf
