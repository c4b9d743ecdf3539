"""A lower bound for a unit in a cohort whose size is hidden: the noisy sum in a plane, in cells.

The unit sends a vector along u. Every other unit sends one vector of the plane of u and a vector
across u: its part along u hides or doubles what the unit sends, its part across u counts the
others. Outcomes are merged into cells, and cells of nearly one loss with each other. Both steps are
post-processing (docs/theory/theorems.md, T10).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr

from ...registry import registered
from ...rounding import TENS, UNIT
from .binned import Binned, Cells
from .lattice import Array
from .opposed import LEFT_OUT

Members = tuple[tuple[float, int, int], ...]
"""(probability, multiple of C u that the unit sends, number of the others that take part)."""

_FAR = 9.0
"""Distance in stds from the outermost means, beyond which all outcomes form one cell."""
_FINE = (8.0, 4.0)
"""Cells per std in a plane: as many as can be had, and no fewer."""
_LINE = 40.0
"""Cells per std on a line."""
_MOST_CELLS = 1 << 18
_MOST_MEMBERS = 2048
_ROUNDED = 4000.0 * TENS
"""Relative error of a cell's mass: twice that of a cell of one coordinate (``opposed``), which is
larger for cells that hold a smaller part of their tail."""
_PLACED = 8000.0 * UNIT
"""The same error per std of distance of the edges and means, in both coordinates."""
_FARTHEST = 1e6
_APART = 0.01
"""Cells are merged if their losses differ by this part of themselves and of the typical loss."""


@registered
@dataclass(frozen=True)
class CohortSum(Binned):
    """Mixtures of normal laws in a plane, observed in cells, under P and Q.

    A member (w, i, j) has the mean (i - ``back`` j, ``across`` j) / ``std`` with probability w. The
    curve is valid only from below.

    Args:
        std: the standard deviation in clip norms, above 0.
        there: members under P; each w is the true one except for its rounding. The probabilities
            of missing members add up to at most ``LEFT_OUT``.
        gone: the same under Q.
        back: what every other unit sends along -u, in clip norms.
        across: what every other unit sends across u.
        swapped: False for (P, Q).
    """

    std: float
    there: Members
    gone: Members
    back: float
    across: float
    swapped: bool = False

    missing: ClassVar[float] = LEFT_OUT

    @staticmethod
    def serves(std: float, members: Members, back: float, across: float) -> bool:
        """Return whether the cells of some members are few enough."""
        if not 0 < len(members) <= _MOST_MEMBERS:
            return False
        centres = _centres(std, members, back, across)
        return max(map(_reach, centres)) <= _FARTHEST and _fine(centres) > 0.0

    @property
    def _cover(self) -> float:
        return 2.0 / self.std

    @property
    def laws(self) -> tuple[Cells, Cells]:
        """The cells of P and of Q, not swapped."""
        return self._found.laws

    @property
    def width(self) -> float:
        """Approximate distance of the losses of neighbouring cells."""
        return self._found.width

    @functools.cached_property
    def _found(self) -> _Found:
        return _cells(self.std, self.there, self.gone, self.back, self.across)


class _Found(NamedTuple):
    laws: tuple[Cells, Cells]
    width: float


def _centres(std: float, members: Members, back: float, across: float) -> tuple[Array, Array]:
    """Return the coordinates of the means in standard deviations."""
    _, i, j = (np.array(column, dtype=np.float64) for column in zip(*members, strict=True))
    return (i - back * j) / std, across * j / std


def _reach(places: Array) -> float:
    return float(np.abs(places).max()) + _FAR


def _spread(places: Array) -> float:
    return float(places.max() - places.min())


def _fine(centres: tuple[Array, Array]) -> float:
    """Return the number of cells per std, 0 if there would be too many."""
    wide = [_spread(one) + 2.0 * _FAR for one in centres if _spread(one) > 0.0]
    if len(wide) < 2:
        return _LINE if sum(wide) * _LINE <= _MOST_CELLS else 0.0
    fine = min(math.sqrt(_MOST_CELLS / math.prod(wide)), _FINE[0])
    return fine if fine >= _FINE[1] else 0.0


def _edges(places: Array, fine: float) -> Array:
    """Return the edges of the cells of one coordinate; one cell if all means are the same."""
    if _spread(places) == 0.0:
        return np.array([-np.inf, np.inf])
    low, high = float(places.min()) - _FAR, float(places.max()) + _FAR
    inner = np.linspace(low, high, math.ceil((high - low) * fine))
    return np.concatenate([[-np.inf], inner, [np.inf]])


def mixed(members: Members, centres: tuple[Array, Array], edges: list[Array]) -> Array:
    """Return the masses of the mixture of normal laws in the cells of a plane, in one row.

    Args:
        members: with the probabilities of the laws.
        centres: coordinates of the means, shape (members,) each.
        edges: of the cells, for each coordinate.
    """
    weights = np.array([w for w, _, _ in members])
    one, two = (_masses(*each) for each in zip(centres, edges, strict=True))
    return np.asarray((one * weights[:, None]).T @ two).ravel()


def _masses(places: Array, edges: Array) -> Array:
    """Return the masses of N(place, 1) between edges, shape (places, cells)."""
    at = edges - places[:, None]
    low, high = at[:, :-1], at[:, 1:]
    # The smaller tail loses fewer digits.
    right = low >= 0.0
    return np.asarray(ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low)))


def outcomes(
    std: float, laws: tuple[Members, Members], back: float, across: float, fine: float = 0.0
) -> tuple[Array, Array]:
    """Return the masses of all cells under both laws.

    Args:
        std: the standard deviation in clip norms.
        laws: the members under P and under Q.
        back: see ``CohortSum``.
        across: see ``CohortSum``.
        fine: cells per std; 0 for as many as a curve has.
    """
    centres = [_centres(std, members, back, across) for members in laws]
    every = _centres(std, laws[0] + laws[1], back, across)
    fine = fine or _fine(every)
    edges = [_edges(places, fine) for places in every]
    p, q = (mixed(one, at, edges) for one, at in zip(laws, centres, strict=True))
    return p, q


@functools.lru_cache(maxsize=16)
def _cells(std: float, there: Members, gone: Members, back: float, across: float) -> _Found:
    p, q = outcomes(std, (there, gone), back, across)
    reach = max(_reach(one) for law in (there, gone) for one in _centres(std, law, back, across))
    # Sums of terms of one sign: over the members, and over the merged cells.
    off = _ROUNDED + _PLACED * reach + UNIT * (len(p) + len(there) + len(gone))
    loss = np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(q, 1e-300))
    typical = math.sqrt(float((0.5 * (p + q)) @ (loss * loss))) + 1e-12
    # Any groups will do. These have nearly one loss, wherever it is.
    place = np.rint(np.arcsinh(loss / typical) / _APART).astype(np.int64)
    place[np.maximum(p, q) < LEFT_OUT] = 0
    _, group = np.unique(place, return_inverse=True)

    def merged(masses: Array) -> Cells:
        sums = np.asarray(np.bincount(group, masses), dtype=np.float64)
        return Cells(sums, off * sums)

    return _Found((merged(p), merged(q)), _APART * typical)
