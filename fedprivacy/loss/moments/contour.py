"""Vertical lines, and sums over nodes on them, sum_j w_j e^{i v L_j}, with rounding bounds.

Small numbers of products are computed one by one. For large numbers, every loss is split into a
multiple of the mesh of a grid and a remainder. With v = k h and mesh 2 pi / (h N), the phases of
the multiples are those of a Fourier transform of length N. The phases of the remainders are so
small that 14 terms of the exponential's series suffice. See docs/theory/inversion.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...rounding import UNIT
from ..clock import check_deadline

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

PerRow = Any
"""A float, or a column of shape (rows, 1) if several laws are batched."""


_DIRECT = 1 << 22
"""Up to this number, (height, node) products are computed one by one."""
_BLOCK = 256
"""Number of nodes summed at a time: rounding grows with it, and with the number of blocks."""
_FINER = 8
"""Ratio of bins to heights, which keeps the phase of a remainder below pi / 8."""
_TERMS = 14
_MOST_BINS = 1 << 20
_MOST_NODES = 1 << 21


class NoMoments(Exception):
    """The curve has no moments off the real axis here, or they would cost too much."""


class Contour(NamedTuple):
    """Points ``tilt + i k spacing`` for k = 0 ... size - 1."""

    tilt: float
    spacing: float
    size: int

    @property
    def top(self) -> float:
        """Return the largest height."""
        return self.spacing * (self.size - 1)

    def heights(self) -> Array:
        """Return the heights, shape ``(size,)``."""
        return self.spacing * np.arange(self.size, dtype=np.float64)

    def points(self) -> Complex:
        """Return the points, shape ``(size,)``."""
        return np.asarray(self.tilt + 1j * self.heights(), dtype=np.complex128)


def summing(count: int) -> float:
    """Return the error of a blockwise complex sum of ``count`` terms, relative to their sizes.

    The error is at most 2 sqrt(2) units per term for a block, and as much per block, plus 60 units
    for the terms.
    """
    return UNIT * (3.0 * (min(count, _BLOCK) + count // _BLOCK + 1) + 60.0)


def transform(weights: Array, loss: Array, line: Contour) -> tuple[Complex, float]:
    """Return sum_j weights_j e^{i v loss_j} at every height v, and its rounding.

    The rounding is in units of the sum of the weights, which are not negative. The rounding of v
    loss_j is not included (at most 6 units of v loss_j).

    Args:
        weights: shape ``(..., nodes)``, one row per law.
        loss: of the same shape.
        line: the heights.

    Raises:
        NoMoments: there are too many nodes or heights.
    """
    # At height 0 all phases are 1, so the result is the sum of the weights.
    if line.size == 1:
        return np.asarray(weights.sum(axis=-1, keepdims=True) + 0j), summing(loss.shape[-1])
    # Beyond some million products a Fourier transform of bins is cheaper.
    if _too_many(loss, line):
        bins = [_Bins(w, at, line) for w, at in _rows(weights, loss)]
        found = np.stack([one.first(False) + one.rest() for one in bins])
        return found.reshape(*loss.shape[:-1], line.size), max(one.units for one in bins)
    return _by_parts(weights, loss, line, less=False), summing(loss.shape[-1])


def turned(weights: Array, loss: Array, line: Contour) -> tuple[Complex, Array]:
    """Return sum_j weights_j (e^{i v loss_j} - 1) at every height v, and its rounding.

    There is no cancellation. A node enters the rounding with its weight times at most
    min(8, 2 v |loss|). The arguments are those of ``transform``.

    Raises:
        NoMoments: there are too many nodes or heights.
    """
    shape, heights = (*loss.shape[:-1], line.size), line.heights()
    # At height 0 all phases are 0.
    if line.size == 1:
        return np.zeros(shape, dtype=np.complex128), np.zeros(shape)
    if _too_many(loss, line):
        bins = [_Bins(w, at, line) for w, at in _rows(weights, loss)]
        found = np.stack([one.first(True) + one.rest() for one in bins])
        off = np.stack([one.units * one.sizes(heights) for one in bins])
        return found.reshape(shape), off.reshape(shape)
    size, reach = (np.sum(weights * x, axis=-1, keepdims=True) for x in (8.0, 2.0 * np.abs(loss)))
    most = np.minimum(size, reach * heights)
    return _by_parts(weights, loss, line, less=True), summing(loss.shape[-1]) * most


def _too_many(loss: Array, line: Contour) -> bool:
    return bool(line.size * loss.shape[-1] > _DIRECT)


def _rows(weights: Array, loss: Array) -> list[tuple[Array, Array]]:
    nodes = loss.shape[-1]
    return list(zip(weights.reshape(-1, nodes), loss.reshape(-1, nodes), strict=True))


def _by_parts(weights: Array, loss: Array, line: Contour, less: bool) -> Complex:
    """Return sum_j weights_j (e^{i v loss_j} - less) at every height v.

    A height is k width + l, so that size phases per node become 2 sqrt(size) phases and a product
    of matrices. Let 1 + F and 1 + G be the phases of the two parts. The terms are (1 + F) (1 + G),
    or F (1 + G) + G, which has no cancellation.
    """
    # The smallest width whose square holds all heights.
    width = math.isqrt(line.size - 1) + 1
    rows, some = -(-line.size // width), loss.shape[:-1]
    total = np.zeros((*some, rows, width), dtype=np.complex128)
    high, low = (np.arange(n, dtype=np.float64)[:, None] for n in (rows, width))
    for begin in range(0, loss.shape[-1], _BLOCK):
        check_deadline()
        turn = (line.spacing * loss[..., begin : begin + _BLOCK])[..., None, :]
        weight = weights[..., begin : begin + _BLOCK][..., None, :]
        coarse = _phase(width * high * turn, less)
        coarse *= weight
        fine = _phase(low * turn, less)
        total += coarse @ fine.swapaxes(-1, -2)
        if less:
            total += coarse.sum(axis=-1, keepdims=True)
            total += (fine @ weight.swapaxes(-1, -2)).swapaxes(-1, -2)
    return total.reshape(*some, -1)[..., : line.size]


def _phase(angle: Array, less: bool) -> Complex:
    """Return e^{i angle} - less; two real functions take half the time of a complex one."""
    found = np.empty(angle.shape, dtype=np.complex128)
    np.sin(angle, out=found.imag)
    if less:
        angle *= 0.5
        np.sin(angle, out=angle)
        angle *= angle
        np.multiply(angle, -2.0, out=found.real)
    else:
        np.cos(angle, out=found.real)
    return found


class _Bins:
    """Nodes on a grid of losses of mesh 2 pi / (h N), where h is the spacing of the line.

    With L = g mesh + r and z = r times the line's last height, |z| is at most pi / 8, and

        e^{i v L} = e^{2 pi i k g / N} sum_m (i k / n)^m z^m / m!,  v = k h, k < n.

    Args:
        weights: not negative, shape ``(nodes,)``.
        loss: shape ``(nodes,)``.
        line: the heights.
    """

    def __init__(self, weights: Array, loss: Array, line: Contour) -> None:
        self._size = line.size
        # A power of two makes the transform fast and its rounding known.
        self._bins = _FINER << (line.size - 1).bit_length()
        if self._bins > _MOST_BINS or len(loss) > _MOST_NODES:
            raise NoMoments
        mesh = 2.0 * math.pi / (line.spacing * self._bins)
        steps = np.rint(loss / mesh)
        # Beyond 2^50 an index times the mesh leaves no digits for the remainder.
        if not np.max(np.abs(steps), initial=0.0) < 2.0**50:
            raise NoMoments
        self._rests = (loss - steps * mesh) * (line.spacing * line.size)
        self._at = steps.astype(np.int64) % self._bins
        self._weights = weights
        # Sums within a bin are sequential, with as many roundings as the fullest bin has nodes.
        fullest = int(np.max(np.bincount(self._at), initial=0))
        self.units = UNIT * (12.0 * math.log2(self._bins) + 2.0 * fullest + 100.0)
        self._share = np.arange(line.size) / line.size

    def _summed(self, weights: Array) -> Array:
        return np.asarray(np.bincount(self._at, weights, self._bins), dtype=np.float64)

    def _transformed(self, mass: Array) -> Complex:
        return np.asarray(np.conj(np.fft.rfft(mass)[: self._size]))

    def first(self, less_one: bool) -> Complex:
        """Return the series' first term: the sum of the multiples' phases, or of these minus 1."""
        mass = self._summed(self._weights)
        if not less_one:
            return self._transformed(mass)
        # Nodes in bin 0 have phase 0. Leaving them out saves their rounding.
        mass[0] = 0.0
        return np.asarray(self._transformed(mass) - mass.sum())

    def rest(self) -> Complex:
        """Return the sum of the other terms of the series."""
        total = np.zeros(self._size, dtype=np.complex128)
        power, factor = self._weights, np.ones(self._size, dtype=np.complex128)
        for m in range(1, _TERMS):
            check_deadline()
            # Each term is computed from the one before, so no power or factorial overflows.
            power = power * self._rests / m
            factor = factor * (1j * self._share)
            total += factor * self._transformed(self._summed(power))
        return total

    def sizes(self, heights: Array) -> Array:
        """Return the sum of the sizes of the terms of ``turned``, at every height."""
        moved = float(self._weights[self._at != 0].sum())
        rests = float(self._weights @ np.abs(self._rests))
        return np.asarray(2.0 * moved + 2.0 * rests * self._share)
