"""Moments of many Gaussian pairs of one shape at once: the same rules, a row each.

A run of a thousand different rounds asks every leaf the same questions. Rows share one number of
nodes, the largest that any of them needs; a mesh finer than its bound asks for errs less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .curve import Curve
from .gaussians import CHEAP_NODES, DEPTH, LOG_2PI, Columns, GaussianPair, log_sum, rounding
from .spectrum import UNIT, Array, Complex, Cumulants, Line, NoSpectrum, Spectrum

Rows = NDArray[np.intp]

_HELD = 1 << 16
"""How many (row, node) pairs are held at once."""
_LEAST = 4
"""Fewer pairs than this are not worth stacking."""


class Bundle:
    """Curves that are asked the same; those that are Gaussian pairs of one shape, side by side.

    Args:
        curves: in the order in which the answers are wanted.
    """

    def __init__(self, curves: Sequence[Curve]) -> None:
        shapes: dict[tuple[int, int], list[tuple[int, GaussianPair]]] = {}
        for k, curve in enumerate(curves if len(curves) >= _LEAST else ()):
            if (pair := _lone_pair(curve)) is not None:
                shapes.setdefault((len(pair.p), len(pair.q)), []).append((k, pair))
        groups = [group for group in shapes.values() if len(group) >= _LEAST]
        self._stacks = [([k for k, _ in g], Stack.of([pair for _, pair in g])) for g in groups]
        stacked = {k for at, _ in self._stacks for k in at}
        self._single = {k: curve for k, curve in enumerate(curves) if k not in stacked}

    def spectra(self, line: Line) -> list[Spectrum]:
        """Return every curve's moments on a line.

        Raises:
            NoSpectrum: some curve has none, or they would cost too much.
        """
        found = {k: curve.spectrum(line) for k, curve in self._single.items()}
        for at, stack in self._stacks:
            found.update(zip(at, stack.spectra(line), strict=True))
        return [found[k] for k in range(len(found))]

    def cumulants(self, tilt: float) -> list[Cumulants]:
        """Return every curve's cumulants, to a few digits."""
        found = {k: curve.cumulants(tilt) for k, curve in self._single.items()}
        for at, stack in self._stacks:
            found.update(zip(at, stack.cumulants(tilt), strict=True))
        return [found[k] for k in range(len(found))]


def _lone_pair(curve: Curve) -> GaussianPair | None:
    """Return the Gaussian pair that a curve is, if it is one and has no better moments."""
    if type(curve).spectrum is not Curve.spectrum:
        return None
    try:
        labelled = curve.pairs()
    except NoSpectrum:
        return None
    return labelled[0][1] if len(labelled) == 1 and labelled[0][0] == 1.0 else None


@dataclass(frozen=True, eq=False)
class Stack:
    """Pairs with equal numbers of components: weights and means are columns, a row for a pair."""

    pairs: tuple[GaussianPair, ...]
    p: Columns
    q: Columns

    @classmethod
    def of(cls, pairs: Sequence[GaussianPair]) -> Stack:
        """Return the pairs side by side."""
        mixtures = [[getattr(pair, name) for pair in pairs] for name in ("p", "q")]
        return cls(tuple(pairs), *[_columns(mixture) for mixture in mixtures])

    def spectra(self, line: Line) -> list[Spectrum]:
        """Return every pair's moments on a line, as ``GaussianPair.rule`` has them.

        Raises:
            NoSpectrum: some pair's would need too many nodes.
        """
        plan = _Plan.of(self, line)
        found: dict[int, Spectrum] = {}
        for rows in plan.blocks():
            found.update(zip(rows.tolist(), _spectra(self, plan, rows, line), strict=True))
        return [
            found[k] if k in found else pair.rule(line.tilt, line.top).spectrum(line)
            for k, pair in enumerate(self.pairs)
        ]

    def cumulants(self, tilt: float) -> list[Cumulants]:
        """Return every pair's cumulants, to a few digits."""
        ranges = np.array([pair.span(tilt, 18.0) for pair in self.pairs])
        width = np.array([min(0.4, 1.2 / max(pair.spread, 1.0)) for pair in self.pairs])
        counts = (ranges[:, 1] - ranges[:, 0]) / width
        if not np.max(counts) < 600:
            return [pair.cumulants(tilt) for pair in self.pairs]
        count = math.ceil(np.max(counts))
        mesh = (ranges[:, 1:] - ranges[:, :1]) / count
        y = ranges[:, :1] + mesh * (np.arange(count) + 0.5)
        log_p, log_q = log_sum(self.p, y), log_sum(self.q, y)
        exponent = (1 + tilt) * log_p - tilt * log_q - 0.5 * (y * y)
        top = exponent.max(axis=1)
        weights, loss = np.exp(exponent - top[:, None]), log_p - log_q
        total = weights.sum(axis=1)
        mean = (weights * loss).sum(axis=1) / total
        variance = (weights * loss * loss).sum(axis=1) / total - mean * mean
        value = top + np.log(total * mesh[:, 0]) - 0.5 * LOG_2PI
        return [Cumulants(*row) for row in np.stack([value, mean, variance], axis=1).tolist()]


def _columns(mixtures: Sequence[tuple[tuple[float, float], ...]]) -> Columns:
    table = np.array(mixtures, dtype=np.float64)
    return tuple((table[:, k, :1], table[:, k, 1:]) for k in range(table.shape[1]))


@dataclass(frozen=True, eq=False)
class _Plan:
    """Which rows are served together, and for each its interval and the mesh it needs.

    Served are those for which the simple bound of ``GaussianPair.rule`` is enough.
    """

    low: Array
    high: Array
    mesh: Array
    served: Array

    @classmethod
    def of(cls, stack: Stack, line: Line) -> _Plan:
        ranges = np.array([pair.span(line.tilt) for pair in stack.pairs])
        spread = np.array([[pair.spread] for pair in stack.pairs])
        lower = np.array([[min(m for _, m in pair.q)] for pair in stack.pairs])
        upper = np.array([[max(m for _, m in pair.q)] for pair in stack.pairs])
        d = np.linspace(0.02, 0.98, 25) * np.minimum(math.pi / np.maximum(spread, 0.2), 12.0)
        turned = np.cos(np.minimum(0.5 * d * (upper - lower), 1.57))
        growth = 0.5 * d * d - line.tilt * np.log(turned) + line.top * d * spread
        mesh = np.max(2.0 * math.pi * d / (DEPTH + growth), axis=1)
        length = ranges[:, 1] - ranges[:, 0]
        served = (length < 59.0) & (length / mesh < CHEAP_NODES)
        return cls(ranges[:, 0], ranges[:, 1], mesh, served)

    def counts(self, rows: Rows) -> Array:
        """Return how many nodes each row needs."""
        return np.asarray(np.ceil((self.high[rows] - self.low[rows]) / self.mesh[rows]) + 1.0)

    def blocks(self) -> list[Rows]:
        """Return the served rows' numbers, those with like needs together, in blocks."""
        rows = np.flatnonzero(self.served)
        rows = rows[np.argsort(self.counts(rows), kind="stable")]
        block = max(_HELD // CHEAP_NODES, 1)
        return [rows[k : k + block] for k in range(0, len(rows), block)]


def _spectra(stack: Stack, plan: _Plan, rows: Rows, line: Line) -> list[Spectrum]:
    """Return the moments of some rows by trapezoid rules of equally many nodes."""
    p = tuple((w[rows], m[rows]) for w, m in stack.p)
    q = tuple((w[rows], m[rows]) for w, m in stack.q)
    count = int(np.max(plan.counts(rows)))
    low, high = plan.low[rows, None], plan.high[rows, None]
    mesh = (high - low) / (count - 1)
    y = low + mesh * np.arange(count, dtype=np.float64)
    log_p, log_q = log_sum(p, y), log_sum(q, y)
    exponent = (1 + line.tilt) * log_p - line.tilt * log_q - 0.5 * (y * y + LOG_2PI)
    exponent = exponent + np.log(mesh)
    wobble, slip = rounding(p, q, y, line.tilt, log_p, log_q)
    loss = log_p - log_q
    top = np.maximum(exponent.max(axis=1), -700.0)
    weights = np.exp(exponent - top[:, None])
    total = weights.sum(axis=1)
    weights, log_size = weights / total[:, None], top + np.log(total)
    off = np.sum(weights * wobble, axis=1) + 3 * UNIT * (count + 20.0)
    turning = np.sum(weights * (slip + 6 * UNIT * np.abs(loss)), axis=1)
    log_error = np.logaddexp(math.log(2.0 * math.e + 1.0), top + math.log(count) + 1.0) - DEPTH
    rule = np.exp(np.minimum(log_error - log_size, 700.0))
    fixed = off + rule + 2 * UNIT * np.abs(log_size)
    error = 1.001 * (fixed[:, None] + np.multiply.outer(turning, line.heights()))
    values = _transforms(weights, loss, line)
    triples = zip(log_size.tolist(), values, error, strict=True)
    return [Spectrum(line.tilt, size, value, off, 0.0) for size, value, off in triples]


def _transforms(weights: Array, loss: Array, line: Line) -> Complex:
    """Return sum_j weights_j e^{i v loss_j} at every height v, row by row."""
    if line.size == 1:
        return np.asarray(weights.sum(axis=1, keepdims=True), dtype=np.complex128)
    width = math.isqrt(line.size - 1) + 1
    high = -(-line.size // width)
    found = np.empty((len(loss), line.size), dtype=np.complex128)
    block = max(_HELD // (loss.shape[1] * width), 1)
    for begin in range(0, len(loss), block):
        part = slice(begin, begin + block)
        turn = 1j * line.spacing * loss[part, None, :]
        coarse = np.exp(width * np.arange(high)[:, None] * turn) * weights[part, None, :]
        fine = np.exp(np.arange(width)[:, None] * turn)
        product = coarse @ fine.transpose(0, 2, 1)
        found[part] = product.reshape(len(product), -1)[:, : line.size]
    return found
