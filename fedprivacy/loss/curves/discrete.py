"""Discrete pairs: finitely many losses, and mass that only one of the two laws has."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from ...registry import registered
from ...rounding import FEW, HUNDREDS, TENS, UNIT, Up, rounded_down
from ..moments.contour import Contour, NoMoments
from ..moments.moments import Labelled, Moments
from ..moments.points import Points
from ..moments.spectrum import Cumulants, Decay, Rule, Spectrum
from .curve import TAIL_MASS, Curve
from .discretised_laws import DiscreteLaw, merged, split
from .lattice import Array, Lattice, Side, Tails, common_mesh, multiples
from .max_loss import MaxLoss
from .support import Support

_TOTAL = 1e-9
"""Largest rounding error of the total of the masses."""


@registered
@dataclass(frozen=True)
class Atoms(Curve):
    """A pair of discrete laws.

    Args:
        points: (loss, P-mass), losses finite and increasing, masses above 0. The Q-mass of a point
            is its P-mass times exp(-loss).
        infinite: P-mass where Q has none.
        vanishing: Q-mass where P has none. The other fields imply it, but a tiny value would be
            lost in the difference.
        swapped: False for (P, Q), True for (Q, P).
    """

    points: tuple[tuple[float, float], ...]
    infinite: float = 0.0
    vanishing: float = 0.0
    swapped: bool = False

    def __post_init__(self) -> None:
        loss, p, q = self.columns
        if not (np.isfinite(loss).all() and (np.diff(loss) > 0).all()):
            raise ValueError(f"Atoms: losses must be finite and increasing, got {loss}")
        if not ((p > 0).all() and 0 <= self.infinite <= 1 and 0 <= self.vanishing <= 1):
            raise ValueError(f"Atoms: masses must be above 0, at most 1, got {p}")
        totals = p.sum() + self.infinite, q.sum() + self.vanishing
        if not all(abs(total - 1.0) <= _TOTAL for total in totals):
            raise ValueError(f"Atoms: masses must add up to 1, got {totals}")

    @functools.cached_property
    def columns(self) -> tuple[Array, Array, Array]:
        """Return losses, P-masses and Q-masses as given, whether swapped or not."""
        table = np.array(self.points, dtype=np.float64).reshape(-1, 2)
        return table[:, 0], table[:, 1], table[:, 1] * np.exp(-table[:, 0])

    @functools.cached_property
    def _mirrored(self) -> bool:
        loss, p, q = self.columns
        same = np.array_equal(loss, -loss[::-1]) and self.infinite == self.vanishing
        # Q-masses are rounded exponentials, so mirror images agree only to a few units.
        return bool(same and np.allclose(p, q[::-1], rtol=HUNDREDS, atol=0.0))

    def moments(self) -> Moments:
        """Return finite sums over the points."""
        return AtomsMoments(self)

    def support(self) -> Support:
        """Return the last of the losses, and the step of all."""
        return Support(
            largest=self._largest, symmetric=lambda: self._mirrored, mesh=lambda: self._mesh
        )

    def swap(self) -> Curve:
        """Return the other orientation."""
        # The points are their own mirror image, to rounding.
        return self if self._mirrored else replace(self, swapped=not self.swapped)

    def law(self, side: Side) -> DiscreteLaw:
        """Return the points of the curve's orientation."""
        law = DiscreteLaw(*self.columns, self.infinite, self.vanishing, 0.0, 0.0, side)
        return law.swap() if self.swapped else law

    @functools.cached_property
    def _sums(self) -> tuple[Array, Tails]:
        """Return the losses, and log-masses above and below every gap between them."""
        law = self.law(Side.UP)
        p, q = law.p.tolist(), law.q.tolist()
        # Each tail is summed from its own end, so that its digits are kept.
        above = [_running([law.p_infinite, *p[::-1]])[::-1], _running([0.0, *q[::-1]])[::-1]]
        below = [_running([0.0, *p]), _running([law.q_infinite, *q])]
        with np.errstate(divide="ignore"):
            return law.loss, Tails(*(np.log(np.minimum(column, 1.0)) for column in above + below))

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the exact tails."""
        losses, sums = self._sums
        index = np.searchsorted(losses, loss, side="right")
        return Tails(*(column[index] for column in sums))

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the points unchanged if they lie on the lattice.

        Otherwise they are split between lattice points (UP), or merged into some (DOWN).

        There is a first-order error only at the ends: for DOWN, the last group goes to the point
        below its mean.
        """
        law = self.law(side)
        index = multiples(law.loss, step)
        # On the lattice no loss is moved, and only masses are rounded.
        if index is not None and len(index):
            mass = np.zeros(int(index[-1] - index[0]) + 1)
            np.add.at(mass, index - index[0], law.p)
            off = 1.0 + FEW if side is Side.UP else 1.0 - FEW
            return Lattice(step, int(index[0]), mass * off, law.p_infinite * off)
        if side is Side.UP:
            rounded = split(law, step, min(tail_mass, TAIL_MASS)) if len(law.p) else _empty(step)
            return rounded if len(law.p) else replace(rounded, infinite=law.p_infinite)
        rounded = merged(law, step, min(tail_mass, TAIL_MASS)) if len(law.p) else _empty(step)
        return replace(rounded, infinite=rounded_down(law.p_infinite))

    @property
    def _mesh(self) -> float:
        """The smallest loss above 0, if the others are multiples of that loss."""
        loss = np.abs(self.columns[0])
        return common_mesh(loss[loss > 0.0].tolist())

    def _largest(self) -> MaxLoss:
        """Return the last of the losses."""
        losses = [loss for loss, _ in self.points]
        ends, infinite = losses[-1:], self.infinite
        # After swapping, losses change sign: the smallest becomes the largest, and mass that P
        # lacks is infinite.
        if self.swapped:
            ends, infinite = [-loss for loss in losses[:1]], self.vanishing
        top = max([0.0, *ends])
        return MaxLoss.exactly(top, infinite)


class AtomsMoments(Moments):
    """Moments of finitely many losses.

    Args:
        atoms: the pair.
    """

    def __init__(self, atoms: Atoms) -> None:
        self._atoms = atoms

    def log_moment(self, order: float) -> Up:
        """Return the sum over the points; infinite if one law has mass that the other lacks."""
        atoms = self._atoms
        order = 1.0 - order if atoms.swapped else order
        # If one law lacks a mass, the moment is infinite once its ratio has a positive power.
        if atoms.infinite > 0 < order - 1.0 or atoms.vanishing > 0 > order:
            return Up(math.inf)
        loss, p, _ = atoms.columns
        # No finite loss: an empty sum.
        if not len(p):
            return Up(-math.inf)
        exponent = (order - 1.0) * loss + np.log(p)
        rounding = FEW * (8.0 + float(np.max(np.abs(exponent))))
        return Up(float(logsumexp(exponent)) + rounding)

    def pairs(self) -> Labelled:
        """Return the pair, so that samples can be formed.

        Raises:
            NoMoments: there is mass that only one of the laws has.
        """
        if self._atoms.infinite > 0.0 or self._atoms.vanishing > 0.0:
            raise NoMoments
        law = self._atoms.law(Side.UP)
        off = abs(math.fsum(law.p) - 1.0) + abs(math.fsum(law.q) - 1.0) + TENS
        points = tuple(zip(law.loss.tolist(), law.p.tolist(), strict=True))
        return ((1.0, Points(points, off)),)

    def _rule(self, tilt: float) -> Rule:
        """Return the points as nodes; a point of loss 0 is a separate constant.

        Raises:
            NoMoments: there is mass at infinite loss.
        """
        law = self._atoms.law(Side.UP)
        if law.p_infinite > 0:
            raise NoMoments
        moves = law.loss != 0.0
        loss, log_p = law.loss[moves], np.log(law.p[moves])
        wobble = UNIT * (8.0 + np.abs(log_p) + 2.0 * tilt * np.abs(loss))
        slip = UNIT * np.abs(loss)
        atom = float(law.p[~moves].sum())
        return Rule(log_p + tilt * loss, loss, wobble, slip, atom=atom)

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the sum over the points; not available with mass at infinite loss."""
        return self._rule(line.tilt).spectrum(line)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the cumulants of the tilted law."""
        rule = self._rule(tilt)
        log_weight = np.append(rule.log_weight, math.log(max(rule.atom, 1e-300)))
        loss, value = np.append(rule.loss, 0.0), float(logsumexp(log_weight))
        weight = np.exp(log_weight - value)
        mean = float(weight @ loss)
        return Cumulants(value, mean, float(weight @ (loss - mean) ** 2))

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the level: sums of few waves return to their size again and again."""
        # Few losses interfere at every height, so their sum vanishes at no large height.
        return self.spectrum(Contour(tilt, 0.0, 1)).level(heights)


def _empty(step: float) -> Lattice:
    return Lattice(step, 0, np.zeros(1), 0.0)


def _running(values: Iterable[float]) -> Array:
    """Return running sums of numbers of at least 0, right to an ulp or two (Knuth's two-sum)."""
    total, rest, found = 0.0, 0.0, []
    for value in values:
        added = total + value
        part = added - total
        rest += (total - (added - part)) + (value - part)
        total = added
        found.append(total + rest)
    return np.array(found)
