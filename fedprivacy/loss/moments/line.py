"""Vertical lines, and sums over nodes on them, sum_j w_j e^{i v L_j}, with what rounding adds.

Few products are taken one by one. Where there are many, every loss is split into a multiple of a
grid's mesh and a rest: with v = k h and mesh 2 pi / (h N) the multiples' phases are those of a
Fourier transform of length N, and the rests' are so small that 14 terms of the exponential's series
do. See docs/theory/inversion.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

UNIT = 1.2e-16
"""The unit round-off, rounded up."""

_DIRECT = 1 << 22
"""Up to so many (height, node) products are taken one by one."""
_BLOCK = 256
"""How many nodes are summed at once: rounding grows with this, and with the number of blocks."""
_FINER = 8
"""How many times as many bins there are as heights, so that a rest's phase is below pi / 8."""
_TERMS = 14
_MOST_BINS = 1 << 20
_MOST_NODES = 1 << 21


class NoSpectrum(Exception):
    """The curve has no moments off the real axis here, or they would cost too much."""


class Line(NamedTuple):
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
    """Return how far a complex sum of so many terms, block by block, is off, of their sizes.

    At most 2 sqrt(2) units a term for a block, and as much a block; 60 units for the terms.
    """
    return UNIT * (3.0 * (min(count, _BLOCK) + count // _BLOCK + 1) + 60.0)


def transform(weights: Array, loss: Array, line: Line) -> tuple[Complex, float]:
    """Return sum_j weights_j e^{i v loss_j} at every height v, and its rounding.

    The rounding is in units of the sum of the weights, which are not negative; that of v loss_j is
    not in it (at most 6 units of v loss_j).

    Raises:
        NoSpectrum: there are too many nodes or heights.
    """
    if line.size == 1:
        return np.array([complex(weights.sum())]), summing(len(loss))
    if line.size * len(loss) > _DIRECT:
        bins = _Bins(weights, loss, line)
        return bins.first(False) + bins.rest(), bins.units
    width = math.isqrt(line.size - 1) + 1
    rows = -(-line.size // width)
    total = np.zeros((rows, width), dtype=np.complex128)
    for begin in range(0, len(loss), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        turn = line.spacing * loss[part]
        coarse = _phase(np.multiply.outer(width * np.arange(rows), turn)) * weights[part]
        total += coarse @ _phase(np.multiply.outer(np.arange(width), turn)).T
    return total.ravel()[: line.size], summing(len(loss))


def turned(weights: Array, loss: Array, line: Line) -> tuple[Complex, Array]:
    """Return sum_j weights_j (e^{i v loss_j} - 1) at every height v, and its rounding.

    Nothing cancels: a node counts in the rounding with its weight times min(8, 2 v |loss|) at most.

    Raises:
        NoSpectrum: there are too many nodes or heights.
    """
    heights = line.heights()
    if line.size == 1:
        return np.zeros(1, dtype=np.complex128), np.zeros(1)
    if line.size * len(loss) > _DIRECT:
        bins = _Bins(weights, loss, line)
        return bins.first(True) + bins.rest(), bins.units * bins.sizes(heights)
    width = math.isqrt(line.size - 1) + 1
    rows = -(-line.size // width)
    total = np.zeros((rows, width), dtype=np.complex128)
    for begin in range(0, len(loss), _BLOCK):
        turn = line.spacing * loss[begin : begin + _BLOCK]
        coarse = less_one(np.multiply.outer(width * np.arange(rows), turn))
        coarse *= weights[begin : begin + _BLOCK]
        fine = less_one(np.multiply.outer(np.arange(width), turn))
        total += coarse @ fine.T + coarse.sum(axis=1)[:, None]
        total += fine @ weights[begin : begin + _BLOCK]
    most = np.minimum(8.0 * float(weights.sum()), 2.0 * float(weights @ np.abs(loss)) * heights)
    return total.ravel()[: line.size], summing(len(loss)) * most


def _phase(angle: Array) -> Complex:
    """Return e^{i angle}; two real functions take half the time of a complex one."""
    found = np.empty(angle.shape, dtype=np.complex128)
    found.real, found.imag = np.cos(angle), np.sin(angle)
    return found


def less_one(angle: Array) -> Complex:
    """Return e^{i angle} - 1; the angle is used up."""
    found = np.empty(angle.shape, dtype=np.complex128)
    found.imag = np.sin(angle)
    angle *= 0.5
    half = np.sin(angle, out=angle)
    half *= half
    np.multiply(half, -2.0, out=found.real)
    return found


class _Bins:
    """Nodes on a grid of losses of mesh 2 pi / (h N), h being the line's spacing.

    With L = g mesh + r and z = r times the line's last height, |z| is at most pi / 8, and

        e^{i v L} = e^{2 pi i k g / N} sum_m (i k / n)^m z^m / m!,  v = k h, k < n.

    Args:
        weights: not negative, shape ``(nodes,)``.
        loss: shape ``(nodes,)``.
        line: the heights.
    """

    def __init__(self, weights: Array, loss: Array, line: Line) -> None:
        self._size = line.size
        self._bins = _FINER << (line.size - 1).bit_length()
        if self._bins > _MOST_BINS or len(loss) > _MOST_NODES:
            raise NoSpectrum
        mesh = 2.0 * math.pi / (line.spacing * self._bins)
        steps = np.rint(loss / mesh)
        if not np.max(np.abs(steps), initial=0.0) < 2.0**50:
            raise NoSpectrum
        self._rests = (loss - steps * mesh) * (line.spacing * line.size)
        self._at = steps.astype(np.int64) % self._bins
        self._weights = weights
        fullest = int(np.max(np.bincount(self._at), initial=0))
        self.units = UNIT * (12.0 * math.log2(self._bins) + 2.0 * fullest + 100.0)
        self._share = np.arange(line.size) / line.size

    def _summed(self, weights: Array) -> Array:
        return np.asarray(np.bincount(self._at, weights, self._bins), dtype=np.float64)

    def _transformed(self, mass: Array) -> Complex:
        return np.asarray(np.conj(np.fft.rfft(mass)[: self._size]))

    def first(self, less_one: bool) -> Complex:
        """Return the series' first term: the sum of the multiples' phases, or of these less 1."""
        mass = self._summed(self._weights)
        if not less_one:
            return self._transformed(mass)
        mass[0] = 0.0
        return np.asarray(self._transformed(mass) - mass.sum())

    def rest(self) -> Complex:
        """Return the sum of the series' other terms."""
        total = np.zeros(self._size, dtype=np.complex128)
        power, factor = self._weights, np.ones(self._size, dtype=np.complex128)
        for m in range(1, _TERMS):
            power = power * self._rests / m
            factor = factor * (1j * self._share)
            total += factor * self._transformed(self._summed(power))
        return total

    def sizes(self, heights: Array) -> Array:
        """Return the sum of the sizes of what is added up for ``turned``, at every height."""
        moved = float(self._weights[self._at != 0].sum())
        rests = float(self._weights @ np.abs(self._rests))
        return np.asarray(2.0 * moved + 2.0 * rests * self._share)
