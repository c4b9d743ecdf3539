"""A unit's position in a tree: log-normal ratios that share the factors of common ancestors.

A position is drawn uniformly among the leaves of a tree whose nodes of level l have m_l children.
The ratio is the average over leaves of exp(X_leaf - v / 2). X is Gaussian with variance v
(``leaf``). Two leaves whose last common node is of level l have covariance r_l, with r_1 <= r_2 <=
... <= v. The law is built from the leaves up. A leaf's own factor has variance v - r_L, and m_L of
these are averaged. Then comes a factor of variance r_L - r_{L-1}, and so on. Proofs:
docs/theory/correlated_noise.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from ...registry import registered
from ...rounding import rounded_up
from ..moments.moments import MomentBounds, Moments
from .allocation import discrete, tails_of
from .averages import Law, averaged, product, single
from .components import Components
from .curve import TAIL_MASS, Curve
from .discretised_laws import DiscreteLaw, merged, split
from .gaussian import Gdp
from .lattice import Array, Lattice, Side, Tails, nothing
from .support import Support

Levels = tuple[tuple[int, float], ...]
"""(children, covariance) of every level, from the root."""

_REVEALED = 1e-25
_MOST = 36.0
"""Largest variance of a factor whose law is computed; beyond it, no amplification is counted."""
_FINENESS = 64


@registered
@dataclass(frozen=True)
class Nested(Curve):
    """The average over the leaves of a tree against 1.

    Args:
        levels: (children, covariance) from the root; covariances do not fall.
        leaf: variance v, at least the last covariance.
        swapped: False for (present, absent), True for (absent, present).
    """

    levels: Levels
    leaf: float
    swapped: bool = False

    def __post_init__(self) -> None:
        inner = [r for _, r in self.levels]
        if not self.levels or any(m < 1 for m, _ in self.levels):
            raise ValueError(f"Nested: levels need at least one child each, got {self.levels}")
        if not (inner[0] >= 0.0 and inner == sorted(inner) and inner[-1] <= self.leaf < math.inf):
            raise ValueError(f"Nested: covariances must not fall, got {inner}, {self.leaf}")

    @property
    def _gdp(self) -> Gdp:
        """The curve of an observer who knows the position, which dominates."""
        return Gdp(rounded_up(math.sqrt(self.leaf)))

    def swap(self) -> Curve:
        """Return the other orientation."""
        return replace(self, swapped=not self.swapped)

    def moments(self) -> Moments:
        """Return the moments if the position is known, by Jensen; there is no amplification."""
        return MomentBounds(self._gdp.moments().log_moment)

    def support(self) -> Support:
        """Return the cover for a published position; the tails are those of laws on either side."""
        return Support(exact=False, cover=lambda: self._gdp.mu)

    def components(self) -> Components:
        """Return the tree."""
        return Components(levels=lambda: self.levels)

    def _atoms(self, side: Side) -> DiscreteLaw:
        atoms = _atoms(self.levels, self.leaf, side)
        return atoms.swap() if self.swapped else atoms

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the law above (UP) or below (DOWN), moved by its errors."""
        if self.leaf > _MOST:
            return self._gdp.tails(loss, side) if side is Side.UP else nothing(loss)
        return tails_of(self._atoms(side), loss)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the law's losses rounded to multiples of ``step``."""
        if self.leaf > _MOST:
            if side is Side.UP:
                return self._gdp.lattice(step, side, tail_mass)
            return super().lattice(step, side, tail_mass)
        return (split if side is Side.UP else merged)(self._atoms(side), step, tail_mass)


def scale(levels: Levels, leaf: float) -> float:
    """Return log E R^2 of the tree, a criterion to rank trees in a search."""
    total, share = 0.0, 1.0
    for children, covariance in levels:
        total += share * (1.0 - 1.0 / children) * math.expm1(min(covariance, 700.0))
        share /= children
    return math.log1p(total + share * math.expm1(min(leaf, 700.0)))


def rough_epsilon(levels: Levels, leaf: float, fineness: int) -> float:
    """Return an approximate epsilon at delta = 1e-5, to choose among trees; not certified."""
    if leaf > _MOST:
        return math.inf
    atoms = discrete(_law(levels, leaf, Side.UP, fineness))
    return max(_epsilon(one, 1e-5) for one in (atoms, atoms.swap()))


def _epsilon(atoms: DiscreteLaw, delta: float) -> float:
    p = np.append(np.cumsum(atoms.p[::-1])[::-1], 0.0)[1:]
    q = np.append(np.cumsum(atoms.q[::-1])[::-1], 0.0)[1:]
    inside = p - np.exp(np.minimum(atoms.loss, 700.0)) * q <= delta
    return float(atoms.loss[int(np.argmax(inside))])


@functools.lru_cache(maxsize=64)
def _atoms(levels: Levels, leaf: float, side: Side) -> DiscreteLaw:
    return discrete(_law(levels, leaf, side, _FINENESS))


def _law(levels: Levels, leaf: float, side: Side, fineness: int) -> Law:
    """Return the law, built from the leaves up."""
    cell = max(min(math.sqrt(scale(levels, leaf)), 0.6), 1e-9) / fineness
    leaves = math.prod(children for children, _ in levels)
    # Revealed masses add up over the leaves.
    tail = _REVEALED / leaves
    law, above = None, leaf
    for children, covariance in reversed(levels):
        law = _times(law, above - covariance, cell, tail, side)
        law = None if law is None else averaged(law, children)
        above = covariance
    law = _times(law, above, cell, tail, side)
    if law is not None:
        return law
    # No factor has a variance: the ratio is 1, and the loss is 0.
    return Law(side, 0.0, tail, 1, cell, 0, np.ones(1), np.zeros(1))


def _times(law: Law | None, variance: float, cell: float, tail: float, side: Side) -> Law | None:
    """Return a law, None for no loss, times a log-normal.

    A log-normal that is narrower than the grid is widened (UP) or left out (DOWN).
    """
    # The variance is a rounded difference: a wider law lies above, a narrower one below.
    width = math.sqrt(max(variance, 0.0) * (1.0 + 4e-16 if side is Side.UP else 1.0 - 4e-16))
    narrow = width < 2.0 * cell
    if narrow and (side is Side.DOWN or (law is not None and variance <= 0.0)):
        return law
    width = 2.0 * cell if narrow else width
    # One half cell keeps all outcomes off loss 0, and a second one would undo that.
    factor = single(width, cell, cell / 2.0 if law is None else 0.0, tail, side)
    return factor if law is None else product(factor, law)
