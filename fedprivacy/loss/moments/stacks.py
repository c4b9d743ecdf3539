"""Moments of many Gaussian pairs of one shape at once: the same rules, a row each.

A run of a thousand different rounds asks every leaf the same questions. Rows share one number of
nodes, the largest that any of them needs; a mesh finer than its bound asks for errs less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ..pairs.curve import Curve
from .gaussian_rules import CHEAP_NODES, DEPTH, LOG_2PI, Columns, GaussianPair, log_sum, rounding
from .line import UNIT, Array, Complex, Line, NoSpectrum, less_one
from .spectrum import Cumulants, Near, Spectrum

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

_HELD = 1 << 16
"""How many (row, node) pairs are held at once."""
_LEAST = 4
"""Fewer pairs than this are not worth stacking."""
_NEAR_ONE = 1e-3
"""Up to this log-moment what a moment exceeds 1 by is summed on its own.

A run has room for few rounds that count for more: their errors do not add up to much.
"""
_RADIUS = math.sqrt(2.0 * (DEPTH + 1.0))
"""So far from its means a Gaussian's mass is below e^-DEPTH."""


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
            rules = _Rules.of(self, plan, rows, line.tilt)
            found.update(zip(rows.tolist(), rules.spectra(line), strict=True))
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

    Served are those for which the simple bound of ``GaussianPair.rule`` is enough; ``plain`` are
    those whose interval serves P's own mass, too.
    """

    low: Array
    high: Array
    mesh: Array
    served: Flags
    plain: Flags

    @classmethod
    def of(cls, stack: Stack, line: Line) -> _Plan:
        ranges = np.array([pair.span(line.tilt) for pair in stack.pairs])
        low, high = ranges[:, 0], ranges[:, 1]
        spread = np.array([[pair.spread] for pair in stack.pairs])
        d = np.linspace(0.02, 0.98, 25) * np.minimum(math.pi / np.maximum(spread, 0.2), 12.0)
        lower, upper = _extremes(stack.q)
        turned = np.cos(np.minimum(0.5 * d * (upper - lower), 1.57))
        growth = 0.5 * d * d - line.tilt * np.log(turned) + line.top * d * spread
        mesh = np.max(2.0 * math.pi * d / (DEPTH + growth), axis=1)
        served = (high - low < 59.0) & ((high - low) / mesh < CHEAP_NODES)
        lower, upper = _extremes(stack.p)
        plain = (low <= lower[:, 0] - _RADIUS) & (high >= upper[:, 0] + _RADIUS)
        return cls(low, high, mesh, served, plain)

    def counts(self, rows: Rows) -> Array:
        """Return how many nodes each row needs: two more than cover its interval with its mesh."""
        return np.asarray(np.ceil((self.high[rows] - self.low[rows]) / self.mesh[rows]) + 3.0)

    def blocks(self) -> list[Rows]:
        """Return the served rows' numbers, those with like needs together, in blocks."""
        rows = np.flatnonzero(self.served)
        rows = rows[np.argsort(self.counts(rows), kind="stable")]
        block = max(_HELD // CHEAP_NODES, 1)
        return [rows[k : k + block] for k in range(0, len(rows), block)]

    def nodes(self, rows: Rows) -> tuple[Array, Array]:
        """Return (nodes, mesh) of equally many nodes a row, which cover its interval.

        A node is a multiple of its row's mesh, which has 24 digits, so that it is exact.
        """
        count = int(np.max(self.counts(rows)))
        low, high = self.low[rows, None], self.high[rows, None]
        mesh = ((1 + 1.2e-7) * (high - low) / (count - 2)).astype(np.float32).astype(np.float64)
        return mesh * (np.floor(low / mesh) + np.arange(count, dtype=np.float64)), mesh


def _extremes(mixture: Columns) -> tuple[Array, Array]:
    """Return the least and the largest mean of each row."""
    means = np.stack([mean for _, mean in mixture])
    return means.min(axis=0), means.max(axis=0)


@dataclass(frozen=True, eq=False)
class _Rules:
    """What ``Rule`` is, for many rows of equally many nodes.

    Args:
        log_size: log of the sum of a row's tilted weights.
        weights: the tilted weights in units of their sum, shape ``(rows, nodes)``.
        plain: the weights without the tilt.
        loss: loss at each node.
        wobble: relative error of each weight through rounding.
        slip: absolute error of each loss, and of its turn by a unit height, through rounding.
        near: rows whose moment is near 1 and whose nodes serve P's own mass, too.
    """

    log_size: Array
    weights: Array
    plain: Array
    loss: Array
    wobble: Array
    slip: Array
    near: Flags

    @classmethod
    def of(cls, stack: Stack, plan: _Plan, rows: Rows, tilt: float) -> _Rules:
        p = tuple((w[rows], m[rows]) for w, m in stack.p)
        q = tuple((w[rows], m[rows]) for w, m in stack.q)
        y, mesh = plan.nodes(rows)
        log_p, log_q = log_sum(p, y), log_sum(q, y)
        loss = log_p - log_q
        log_plain = np.log(mesh) - 0.5 * (y * y + LOG_2PI) + log_p
        log_weight = log_plain + tilt * loss
        top = np.maximum(log_weight.max(axis=1), -700.0)
        weights = np.exp(log_weight - top[:, None])
        total = weights.sum(axis=1)
        log_size = top + np.log(total)
        wobble, slip = rounding(p, q, y, tilt, log_p, log_q)
        near = plan.plain[rows] & (log_size < _NEAR_ONE)
        return cls(
            log_size,
            weights / total[:, None],
            np.exp(log_plain),
            loss,
            wobble,
            slip + 6 * UNIT * np.abs(loss),
            near,
        )

    def spectra(self, line: Line) -> list[Spectrum]:
        """Return every row's moments on a line."""
        values = _transforms(self.weights, self.loss, self.near, line)
        error = self._error(line)
        columns = zip(self.log_size.tolist(), values, error, strict=True)
        found = [Spectrum(line.tilt, size, value, off) for size, value, off in columns]
        at = np.flatnonzero(self.near)
        if len(at):
            part = _Rules(*(getattr(self, field.name)[at] for field in fields(self)))
            for k, spectrum in zip(at.tolist(), part._near_one(values[at], line), strict=True):
                found[k] = spectrum
        return found

    def _error(self, line: Line) -> Array:
        """Return a bound on what the moments, in units of their sizes, may be off."""
        rule = np.exp(np.minimum(self._log_error() - self.log_size, 700.0))
        wobble, slip = self._mean(self.wobble), self._mean(self.slip)
        fixed = wobble + self._summing() + rule + 2 * UNIT * np.abs(self.log_size)
        return 1.001 * (fixed[:, None] + np.multiply.outer(slip, line.heights()))

    def _near_one(self, turned: Complex, line: Line) -> Iterator[Spectrum]:
        """Yield 1 + sum plain expm1(tilt loss) + sum weight (e^{i v loss} - 1), row by row.

        Args:
            turned: the second sum, in units of the moment's size.
            line: where.
        """
        size, rise = np.exp(self.log_size)[:, None], line.tilt * self.loss
        risen = np.where(
            rise < 30.0,
            self.plain * np.expm1(np.minimum(rise, 30.0)),
            size * self.weights - self.plain,
        )
        near = risen.sum(axis=1, keepdims=True) + size * turned
        error = self._error_near_one(risen, line)
        share = 1.0 / (1.0 + near[:, :1].real)
        log_size = np.log1p(near[:, 0].real)
        values, off = (1.0 + near) * share, (error + 8 * UNIT) * share
        for size, *row in zip(log_size.tolist(), values, off, near, error, strict=True):
            yield Spectrum(line.tilt, size, row[0], row[1], 0.0, Near(row[2], row[3]))

    def _error_near_one(self, risen: Array, line: Line) -> Array:
        """Return a bound on what the moments less 1 may be off, as ``Rule`` counts it."""
        heights, size, units = line.heights(), np.exp(self.log_size), self._summing()
        loss = np.abs(self.loss)
        reach, wobble, slip = self._mean(loss), self._mean(self.wobble), self._mean(self.slip)
        reached = self._mean(self.wobble * loss)
        fixed = np.sum(np.abs(risen) * (self.wobble + units), axis=1) + line.tilt * slip * size
        fixed = fixed + np.exp(np.logaddexp(self._log_error(), 1.5 - DEPTH))
        turned = units * np.minimum(8.0, 2.0 * np.multiply.outer(reach, heights))
        turned = turned + np.minimum(2.0 * wobble[:, None], np.multiply.outer(reached, heights))
        turned = turned + np.multiply.outer(slip, heights)
        return np.asarray(1.001 * (fixed[:, None] + size[:, None] * turned))

    def _mean(self, values: Array) -> Array:
        return np.asarray(np.sum(self.weights * values, axis=1))

    def _log_error(self) -> Array:
        """Return the log of the rules' own errors, those of the moments."""
        return np.logaddexp(math.log(2.0 * math.e + 1.0), self.log_size + 1.0) - DEPTH

    def _summing(self) -> float:
        """Return how far a complex sum over the nodes in any order is off, of its terms' sizes."""
        return UNIT * (3.0 * len(self.loss[0]) + 60.0)


def _transforms(weights: Array, loss: Array, less: Flags, line: Line) -> Complex:
    """Return sum_j weights_j e^{i v loss_j} at every height v, less sum_j weights_j where asked.

    With F and G the phases less 1 of the two parts of a height, the terms are (1 + F) (1 + G), or
    F (1 + G) + G.
    """
    kept = np.where(less, 0.0, 1.0)[:, None, None]
    if line.size == 1:
        return np.asarray(kept[:, :, 0] * weights.sum(axis=1, keepdims=True) + 0j)
    width = math.isqrt(line.size - 1) + 1
    high = -(-line.size // width)
    found = np.empty((len(loss), line.size), dtype=np.complex128)
    block = max(_HELD // (loss.shape[1] * width), 1)
    for begin in range(0, len(loss), block):
        part = slice(begin, begin + block)
        turn = line.spacing * loss[part, None, :]
        coarse = less_one(width * np.arange(high)[:, None] * turn)
        coarse.real += kept[part]
        coarse *= weights[part, None, :]
        fine = less_one(np.arange(width)[:, None] * turn)
        alone = (1.0 - kept[part]) * (fine @ weights[part, :, None]).transpose(0, 2, 1)
        fine.real += 1.0
        product = coarse @ fine.transpose(0, 2, 1) + alone
        found[part] = product.reshape(len(product), -1)[:, : line.size]
    return found
