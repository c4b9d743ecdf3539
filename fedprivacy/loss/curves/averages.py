"""The average of independent log-normals, rounded to laws above and below it in convex order.

Z_1 ... Z_t are independent, Z_i = exp(mu y - mu^2 / 2) with y standard normal, of mean 1. One law
is *above* another if no convex function has a smaller mean under it. Rounding a factor up makes an
average larger in this order. So the law of (Z_1 + ... + Z_t) / t is built by doubling, with
rounding at every step. The grid is geometric: the average of two grid points falls between two
points that depend only on the difference of their indices.

- UP: the average goes to its two neighbours on the grid with its mean kept. Mass outside the grid
  is *revealed*: it goes to 0 and its mean to infinity.
- DOWN: averages that share a cell are merged at their mean. Mass outside the grid is dropped.

Sums of masses have only positive terms, so even tiny masses have a known relative error. Proofs:
``docs/theory/allocation.md``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ...rounding import FEW, UNIT
from ..clock import check_deadline
from .lattice import Array, Side

Places = NDArray[np.int64]

REVEALED = 1e-25
"""Approximate total mass and mean that are revealed (UP) or dropped (DOWN)."""
_RUN, _POINT, _PAIR = 25e3, 15e3, 24.0
"""Approximate nanoseconds: a run of pairs; one point with all others; one pair added in bulk."""
_SINGLE_ERROR = 1e-12
"""Relative error of the masses of one rounded log-normal."""
_SINGLE_SHIFT = 1e-13
"""Relative error of the means of its cells."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True, eq=False)
class Law:
    """The law under Q of the average of ``count`` ratios Z, with outcomes on a geometric grid."""

    side: Side
    origin: float
    """Added to every position, so that no outcome has loss 0."""
    tail: float
    """Mass that may be revealed or dropped at each end."""
    count: int
    cell: float
    first: int
    mass: Array
    """Q-masses at the positions (first + i) * cell, the logarithms of the outcomes."""
    excess: Array
    """DOWN: mass times the relative distance of an outcome from its position. UP: 0."""
    zero: float = 0.0
    """UP: Q-mass at ratio 0."""
    infinite: float = 0.0
    """UP: P-mass at an infinite ratio."""
    error: float = _SINGLE_ERROR
    """Masses are right up to a factor exp(error)."""
    shift: float = _SINGLE_SHIFT
    """Outcomes are right up to a factor exp(shift)."""

    @property
    def half(self) -> float:
        """Offset in cells: 0 to round down to a cell (UP), 1/2 to round to the nearest (DOWN)."""
        return 0.0 if self.side is Side.UP else 0.5

    def positions(self) -> Array:
        """Return the logarithms of the grid points, without the origin."""
        return self.cell * np.arange(self.first, self.first + len(self.mass), dtype=np.float64)

    def drift(self) -> float:
        """Return the largest distance of an outcome from its position."""
        held = self.mass > 0
        return float(np.max(np.abs(self.excess[held]) / self.mass[held]))

    def p_mass(self) -> Array:
        """Return the P-masses of the grid points."""
        return np.asarray(self.mass * np.exp(self.positions() + self.origin))

    def trimmed(self) -> Law:
        """Reveal (UP) or drop (DOWN) ends that hold at most ``tail`` of P and Q."""
        p = self.p_mass()
        both = p + self.mass
        low = int(np.searchsorted(np.cumsum(both), self.tail))
        high = len(both) - int(np.searchsorted(np.cumsum(both[::-1]), self.tail))
        inside = slice(low, high)
        return replace(
            self,
            first=self.first + low,
            mass=self.mass[inside],
            excess=self.excess[inside],
            zero=self.zero + float(self.mass[:low].sum() + self.mass[high:].sum()),
            infinite=self.infinite + float(p[:low].sum() + p[high:].sum()),
        )

    def after(self, one: Law, count: int, cell: float, lost: _Lost, made: _Made) -> Law:
        """Return the law of an average of this law and ``one``; revealed mass and errors add up."""
        # Every mass is a sum of positive terms, so relative errors add up without cancellation.
        sums = 4.0 * UNIT * (len(self.mass) + len(one.mass) + 8)
        # A position is an index times a cell, so its rounding grows with its size.
        reach = float(max(np.abs(law.positions()[[0, -1]]).max() for law in (self, one)))
        return replace(
            self,
            count=count,
            cell=cell,
            first=made.first,
            mass=made.mass,
            excess=made.excess,
            zero=self.zero + one.zero + lost.q,
            # The mass that one ratio reveals has its mean according to its share; the other's mean
            # is 1.
            infinite=max(self.infinite, one.infinite) + self.zero + one.zero + lost.p,
            error=self.error + one.error + sums,
            shift=max(self.shift, one.shift)
            + 4.0 * UNIT * (20.0 + 2.0 * reach)
            + 2.0 * sums * (cell + self.drift() + one.drift()),
        ).trimmed()


class _Lost(NamedTuple):
    """Q- and P-mass of omitted pairs."""

    q: float = 0.0
    p: float = 0.0


class _Made(NamedTuple):
    """Masses and excesses of an average, on a grid that starts at ``first``."""

    first: int
    mass: Array
    excess: Array


def _plan(mu: float, rounds: int, fineness: int) -> list[tuple[int, float]]:
    """With log 2 on the grid, the average of a huge ratio and a small one is on the grid too."""
    # The average of a huge ratio and a small one is half of the former. With log 2 on the grid, it
    # falls on a grid point.
    cell = math.log(2.0) / math.ceil(math.log(2.0) * fineness / mu)
    plan: list[tuple[int, float]] = []
    for dropped in reversed(range(rounds.bit_length())):
        count = rounds >> dropped
        # Averages narrow as they grow. Halving the cell keeps all old points on the grid.
        cell = cell / 2 if plan and cell * fineness > _scale(mu, count) else cell
        plan.append((count, cell))
    return plan


def _scale(mu: float, count: int) -> float:
    """Return the approximate standard deviation of the logarithm of an average."""
    return min(mu, math.sqrt(math.expm1(mu * mu) / count))


def fineness_of(mu: float, rounds: int) -> int:
    """Return the cells per standard deviation that are affordable in some tenths of a second."""
    scale = _scale(mu, rounds)
    if scale > 0.5:
        return 192
    # Few rounds of a large mu have a long tail, which requires coarser cells.
    reach = math.log1p(11.0 * scale + math.exp(mu * mu / 2 + 11.0 * mu) / rounds)
    return 96 if reach < 120.0 * scale else 64


def cell_of(mu: float, rounds: int, fineness: int) -> float:
    """Return the cell of the law for ``rounds`` rounds."""
    return _plan(mu, rounds, fineness)[-1][1]


def average_law(
    mu: float, rounds: int, side: Side, fineness: int = 0, revealed: float = REVEALED
) -> Law:
    """Return the law for ``rounds`` rounds; the bits of ``rounds`` determine the steps.

    Args:
        mu: standard deviation of log Z, in [1e-9, 8].
        rounds: number of Z that are averaged.
        side: above or below.
        fineness: cells per standard deviation, at least 8; with 0, ``fineness_of``. Time grows with
            its square.
        revealed: approximate mass and mean that are revealed (UP) or dropped (DOWN).
    """
    fineness = fineness or fineness_of(mu, rounds)
    plan = _plan(mu, rounds, fineness)
    # Revealed masses add up over all the rounds that are averaged.
    origin, tail = plan[-1][1] / 2, revealed / rounds
    law = single(mu, plan[0][1], origin, tail, side)
    for count, cell in plan[1:]:
        law = doubled(law, cell)
        if count % 2:
            # One ratio weighs little in the average, so a coarser grid of multiples suffices.
            wide = mu * min(math.sqrt(count), 8.0) / fineness
            multiple = max(math.floor(wide / cell), 1)
            law = joined(law, single(mu, cell * multiple, origin, tail, side))
    return law


def single(mu: float, cell: float, origin: float, tail: float, side: Side) -> Law:
    """Round one log-normal by Gauss-Legendre quadrature in every cell."""
    # log Z is normal of mean -mu^2/2 under Q and mu^2/2 under P; this distance covers both.
    far = mu * -float(ndtri(tail)) + mu * mu / 2
    first, last = math.floor((-far - origin) / cell), math.ceil((far - origin) / cell)
    law = Law(side, origin, tail, 1, cell, first, np.zeros(last - first), np.zeros(0))
    nodes, weights = _nodes(mu, cell)
    # Cells begin at their position (UP) or have it in the middle (DOWN).
    away = cell * (0.5 - law.half + 0.5 * nodes)
    y = ((law.positions() + origin)[:, None] + away) / mu + mu / 2
    density = np.exp(-0.5 * y * y) * (weights * cell / (2 * mu * math.sqrt(2 * math.pi)))
    if side is Side.DOWN:
        return replace(law, mass=density.sum(1), excess=density @ np.expm1(away))
    # Shares of both ends that keep the cell's mass and its mean.
    mass = np.append(density @ (np.expm1(away - cell) / math.expm1(-cell)), 0.0)
    mass[1:] += density @ (np.expm1(away) / math.expm1(cell))
    low, high = (np.array([first, last]) * cell + origin) / mu + mu / 2
    # Under P, log Z lies mu^2 higher, which is mu deviations.
    zero, infinite = ndtr(low) + ndtr(-high), ndtr(low - mu) + ndtr(mu - high)
    known = replace(law, zero=float(zero), infinite=float(infinite))
    return replace(known, mass=mass, excess=np.zeros(len(mass)))


def _nodes(mu: float, cell: float) -> tuple[Array, Array]:
    """Return nodes in [-1, 1] and weights for a cell: Gauss-Legendre on parts within mu / 8."""
    parts = math.ceil(8.0 * cell / mu - FEW)
    middles = (2.0 * np.arange(parts) + 1.0) / parts - 1.0
    nodes = (middles[:, None] + _NODES / parts).ravel()
    return nodes, np.tile(_WEIGHTS / parts, parts)


class _Run(NamedTuple):
    """Targets of averages of points i and i - d, d = start, start + 1, ...: ratio * i + target.

    A pair with d > 0 counts twice.
    """

    target: int
    start: int
    stop: int
    kernels: list[Array]
    """UP: the mass for the target, and the mass for the next point. DOWN: the weight of the mass,
    its distance from the target, and each point's own distance, at d and at 0."""


def _kernels(law: Law, target: Array, cell: float) -> list[Array]:
    """Return the kernels of all d; the first points are ``target`` cells above the average."""
    gap = law.cell * np.arange(len(law.mass), dtype=np.float64)
    weight = np.where(gap == 0.0, 1.0, 2.0)
    beyond = np.expm1(_mean(gap) - target * cell)
    if law.side is Side.UP:
        share = np.clip(beyond / math.expm1(cell), 0.0, 1.0)
        return [weight * (1.0 - share), weight * share]
    near = 0.5 * np.exp(-target * cell)
    return [weight, weight * beyond, weight * near * np.exp(-gap), weight * near]


def _mean(gap: Array) -> Array:
    """Return the logarithm of the average of 1 and exp(-gap)."""
    return np.asarray(np.logaddexp(0.0, -gap) - math.log(2.0))


def _runs(law: Law, cell: float) -> Iterator[_Run]:
    """Yield runs of d = 0, 1, ... with one target, on a grid with the given cell."""
    gap = law.cell * np.arange(len(law.mass), dtype=np.float64)
    target = np.floor(_mean(gap) / cell + law.half)
    kernels = _kernels(law, target, cell)
    starts = [0, *(np.flatnonzero(np.diff(target)) + 1).tolist(), len(gap)]
    for start, stop in itertools.pairwise(starts):
        yield _Run(int(target[start]), start, stop, [k[start:stop] for k in kernels])


def doubled(law: Law, cell: float) -> Law:
    """Return the average of two independent copies, on a grid with the given cell.

    Pairs of two points beyond ``bulk`` hold at most ``tail``; they are revealed or dropped.
    """
    size, ratio = len(law.mass), round(law.cell / cell)
    # An average lies at most log 2 below the larger of its two points.
    room = 2 - math.floor(float(_mean(np.array([law.cell * size]))[0]) / cell)
    length = ratio * size + room + 2
    made = _Made(ratio * law.first - room, np.zeros(length), np.zeros(length))
    target = np.floor(_mean(law.cell * np.arange(size, dtype=np.float64)) / cell + law.half)
    if _PAIR * size * size < _RUN * np.count_nonzero(np.diff(target)):
        index = ratio * np.maximum.outer(np.arange(size), np.arange(size)) + room
        index += _by_distance(target, target).astype(np.int64)
        _square(law, _kernels(law, target, cell), index, made)
        return law.after(law, 2 * law.count, cell, _Lost(), made)
    # Pairs of two far points would double the work and hold less than ``tail``.
    bulk, lost = _bulk(law)
    own = [law.mass[:bulk], law.excess[:bulk]]
    for run in _runs(law, cell):
        check_deadline()
        left = min(size - run.start, bulk + run.stop - run.start - 1)
        begin = ratio * run.start + run.target + room
        into = slice(begin, begin + ratio * (left - 1) + 1, ratio)
        here = slice(run.start, run.start + left)
        if law.side is Side.UP:
            _spread_run(law.mass[here], own[0], run.kernels, into, made)
        else:
            _merge_run(law.mass[here], law.excess[here], own, run.kernels, into, made)
    return law.after(law, 2 * law.count, cell, lost, made)


def _by_distance(rising: Array, falling: Array) -> Array:
    """Return the matrix of rising[i - j] where i >= j, and of falling[j - i] elsewhere."""
    line = np.concatenate([falling[:0:-1], rising])
    return np.lib.stride_tricks.sliding_window_view(line, len(rising))[:, ::-1]


def _square(law: Law, kernels: list[Array], index: Places, made: _Made) -> None:
    """Add all pairs of two points in one call; kernels count a pair of two points twice."""
    halves = [np.append(kernel[:1], 0.5 * kernel[1:]) for kernel in kernels]
    pairs = np.multiply.outer(law.mass, law.mass)
    if law.side is Side.UP:
        _put(index, pairs * _by_distance(halves[0], halves[0]), made.mass)
        _put(index + 1, pairs * _by_distance(halves[1], halves[1]), made.mass)
        return
    _, beyond, far, near = halves
    # The distance of each point counts in both orders of a pair: twice.
    moved = np.multiply.outer(2.0 * law.excess, law.mass) * _by_distance(near, far)
    _put(index, pairs, made.mass)
    _put(index, pairs * _by_distance(beyond, beyond) + moved, made.excess)


def _put(index: Places, values: Array, into: Array) -> None:
    into += np.bincount(index.ravel(), values.ravel(), len(into))


def _spread_run(here: Array, other: Array, kernels: list[Array], into: slice, made: _Made) -> None:
    after = slice(into.start + 1, into.stop + 1, into.step)
    made.mass[into] += here * _convolved(other, kernels[0], len(here))
    made.mass[after] += here * _convolved(other, kernels[1], len(here))


def _merge_run(
    here: Array, excess: Array, own: list[Array], kernels: list[Array], into: slice, made: _Made
) -> None:
    size = len(here)
    mass, moved, far, near = kernels
    away = _convolved(own[0], moved, size) + _convolved(own[1], far, size)
    made.mass[into] += here * (sums := _convolved(own[0], mass, size))
    made.excess[into] += here * away + excess * (sums * (near[0] / mass[0]))


def _convolved(values: Array, kernel: Array, length: int) -> Array:
    """Return the first ``length`` terms of a convolution, summed directly."""
    return np.convolve(values[:length], kernel[:length])[:length]


def _bulk(law: Law) -> tuple[int, _Lost]:
    """Return the number of points before the far tail, and the mass of pairs within the tail."""
    p, q = sums_from_right(law.p_mass()), sums_from_right(law.mass)
    # Two far points hold q^2 of Q together, and p q of P.
    bulk = max(int(np.argmax(q * (p + q) <= law.tail)), 1)
    return bulk, _Lost(float(q[bulk] ** 2), float(p[bulk] * q[bulk]))


class _Gaps(NamedTuple):
    """Targets of averages of law and log-normal, by the difference of their positions in cells."""

    gap: Places
    place: Places
    """Relative to the law's point."""
    kernels: list[Array]
    """UP: the mass for the place, and the mass for the next point. DOWN: the distance from the
    place, and the distances of the law's and the log-normal's points."""

    def part(self, each: slice) -> _Gaps:
        """Return some of the differences."""
        return _Gaps(self.gap[each], self.place[each], [k[each] for k in self.kernels])


class _Points(NamedTuple):
    """Points of a law, ``ratio`` cells apart from ``first`` on."""

    first: int
    mass: Array
    excess: Array


def _gaps(law: Law, one: Law, ratio: int) -> _Gaps:
    """Return the table for all differences that occur."""
    least = law.first - ratio * (one.first + len(one.mass) - 1)
    most = law.first + len(law.mass) - 1 - ratio * one.first
    cells = np.arange(least, most + 1)
    gap = law.cell * cells.astype(np.float64)
    # One ratio's share of the average is 1 / (count + 1).
    kept, taken = -math.log1p(1.0 / law.count), -math.log1p(law.count) - gap
    average = np.logaddexp(kept, taken)
    target = np.floor(average / law.cell + law.half)
    back = target * law.cell
    beyond = np.expm1(average - back)
    place = target.astype(np.int64)
    if law.side is Side.UP:
        share = np.clip(beyond / math.expm1(law.cell), 0.0, 1.0)
        return _Gaps(cells, place, [1.0 - share, share])
    return _Gaps(cells, place, [beyond, np.exp(kept - back), np.exp(taken - back)])


def joined(law: Law, one: Law) -> Law:
    """Return the average with one more ratio, whose cell is a multiple of the law's cell."""
    ratio = round(one.cell / law.cell)
    gaps = _gaps(law, one, ratio)
    first = law.first + int(gaps.place[-1]) - 1
    length = int(gaps.place[0]) - int(gaps.place[-1]) + len(law.mass) + 4
    made = _Made(first, np.zeros(length), np.zeros(length))
    if _PAIR * len(law.mass) < _POINT:
        _rectangle(law, one, gaps, ratio, made)
    else:
        (_by_runs if _few_runs(law, one, ratio) else _by_points)(law, one, gaps, ratio, made)
    return law.after(one, law.count + 1, law.cell, _Lost(), made)


def _rectangle(law: Law, one: Law, gaps: _Gaps, ratio: int, made: _Made) -> None:
    """Add all pairs in one call."""
    size = len(law.mass)

    def table(values: NDArray[Any]) -> NDArray[Any]:
        return np.lib.stride_tricks.sliding_window_view(values, size)[::-ratio]

    check_deadline()
    own = np.arange(law.first - made.first, law.first - made.first + size)
    index = table(gaps.place) + own
    pairs = np.multiply.outer(one.mass, law.mass)
    kernels = [table(kernel) for kernel in gaps.kernels]
    if law.side is Side.UP:
        _put(index, pairs * kernels[0], made.mass)
        _put(index + 1, pairs * kernels[1], made.mass)
        return
    moved = pairs * kernels[0] + np.multiply.outer(one.mass, law.excess) * kernels[1]
    moved += np.multiply.outer(one.excess, law.mass) * kernels[2]
    _put(index, pairs, made.mass)
    _put(index, moved, made.excess)


def _few_runs(law: Law, one: Law, ratio: int) -> bool:
    """Return whether runs of pairs take less time than the log-normal's points one by one."""
    size, points = len(law.mass), len(one.mass)
    # Relative to either point an average moves by less than log 2.
    runs = min(2.0 * math.log(2.0) / law.cell + 2.0, size / ratio + points) * ratio
    return runs * _RUN + 2.0 * size * points < points * (_POINT + 10.0 * size)


def _by_runs(law: Law, one: Law, gaps: _Gaps, ratio: int, made: _Made) -> None:
    """Add all pairs; pairs with one target relative to the heavier point form one convolution."""
    single = _Points(ratio * one.first, one.mass, one.excess)
    # From here on the law's point weighs more than the log-normal's point.
    even = -math.log(law.count) / law.cell
    for rest in range(min(ratio, len(law.mass))):
        each = slice(rest, None, ratio)
        points = _Points(law.first + rest, law.mass[each], law.excess[each])
        some = gaps.part(each)
        split = int(np.searchsorted(some.gap, even))
        _add(points, single, some.part(slice(split, None)), ratio, made)
        # Relative to the log-normal's point, places and differences have the opposite sign.
        turned = some.part(slice(split))
        kernels = turned.kernels if law.side is Side.UP else [turned.kernels[k] for k in (0, 2, 1)]
        place = turned.place + turned.gap
        back = _Gaps(-turned.gap[::-1], place[::-1], [k[::-1] for k in kernels])
        _add(single, points, back, ratio, made)


def _by_points(law: Law, one: Law, gaps: _Gaps, ratio: int, made: _Made) -> None:
    """Add all pairs, one of the log-normal's points after the other."""
    size = len(law.mass)
    own = np.arange(law.first - made.first, law.first - made.first + size)
    add = _spread_point if law.side is Side.UP else _merge_point
    for j in range(len(one.mass)):
        check_deadline()
        at = ratio * (len(one.mass) - 1 - j)
        index = gaps.place[at : at + size] + own
        begin = int(index.min())
        index -= begin
        here = [kernel[at : at + size] for kernel in gaps.kernels]
        add(law, float(one.mass[j]), float(one.excess[j]), here, index, begin, made)


def _spread_point(
    law: Law, weight: float, _: float, here: list[Array], index: Places, begin: int, made: _Made
) -> None:
    low, high = (np.bincount(index, law.mass * kernel) for kernel in here)
    made.mass[begin : begin + len(low)] += weight * low
    made.mass[begin + 1 : begin + 1 + len(high)] += weight * high


def _merge_point(
    law: Law, weight: float, off: float, here: list[Array], index: Places, begin: int, made: _Made
) -> None:
    beyond, near, far = here
    moved = law.mass * (beyond + (off / weight) * far)
    moved += law.excess * near
    mass = np.bincount(index, law.mass)
    into = slice(begin, begin + len(mass))
    made.mass[into] += weight * mass
    made.excess[into] += weight * np.bincount(index, moved)


def _add(near: _Points, far: _Points, gaps: _Gaps, ratio: int, made: _Made) -> None:
    """Add averages of all pairs with a listed gap from far to near, by places relative to near."""
    if not len(gaps.gap):
        return
    starts = [0, *(np.flatnonzero(np.diff(gaps.place)) + 1).tolist(), len(gaps.gap)]
    for start, stop in itertools.pairwise(starts):
        check_deadline()
        # The first sum of the convolution pairs the first point of ``far`` with the first gap.
        begin = (far.first + int(gaps.gap[start]) - near.first) // ratio
        size = min(len(far.mass) + stop - start - 1, len(near.mass) - begin)
        skip = max(-begin, 0)
        if size <= skip:
            continue
        here = slice(begin + skip, begin + size)
        at = near.first + ratio * here.start + int(gaps.place[start]) - made.first
        into = slice(at, at + ratio * (size - skip - 1) + 1, ratio)
        kernels = [kernel[start:stop] for kernel in gaps.kernels]
        (_spread_pairs if len(kernels) == 2 else _merge_pairs)(
            near.mass[here], near.excess[here], far, kernels, slice(skip, size), into, made
        )


def _spread_pairs(
    mass: Array,
    _: Array,
    far: _Points,
    kernels: list[Array],
    sums: slice,
    into: slice,
    made: _Made,
) -> None:
    low, high = (np.convolve(far.mass, kernel)[sums] for kernel in kernels)
    made.mass[into] += mass * low
    made.mass[slice(into.start + 1, into.stop + 1, into.step)] += mass * high


def _merge_pairs(
    mass: Array,
    excess: Array,
    far: _Points,
    kernels: list[Array],
    sums: slice,
    into: slice,
    made: _Made,
) -> None:
    beyond, own, other = kernels
    moved = np.convolve(far.mass, beyond)[sums] + np.convolve(far.excess, other)[sums]
    made.mass[into] += mass * np.convolve(far.mass, np.ones(len(beyond)))[sums]
    made.excess[into] += mass * moved + excess * np.convolve(far.mass, own)[sums]


def averaged(law: Law, count: int) -> Law:
    """Return the law of the average of ``count`` independent copies of any law, on its grid."""
    one = replace(law, count=1)
    found = one
    # After the leading bit: double, and add one where a bit is set.
    for bit in bin(count)[3:]:
        found = doubled(found, found.cell)
        if bit == "1":
            found = joined(found, one)
    return found


def product(one: Law, other: Law) -> Law:
    """Return the law of the product of two independent ratios with the same cell and side.

    UP: given one factor, a convex function of the product is a convex function of the other factor.
    So factors may be rounded up one by one, and revealed mass of either remains revealed. DOWN:
    pairs with one position are merged into one outcome at their mean.
    """
    sums = 4.0 * UNIT * (len(one.mass) + len(other.mass) + 8)
    # Logarithms add in a product, so masses convolve on one grid.
    mass = np.convolve(one.mass, other.mass)
    excess = np.zeros(len(mass))
    if one.side is Side.DOWN:
        excess = np.convolve(one.mass, other.excess) + np.convolve(one.excess, other.mass)
        excess += np.convolve(one.excess, other.excess)
    reach = float(max(np.abs(law.positions()[[0, -1]]).max() for law in (one, other)))
    slips = 4.0 * UNIT * (20.0 + 2.0 * reach)
    if one.side is Side.DOWN:
        slips += sums * (one.drift() + other.drift() + 1.0) * (one.cell + 1.0)
    return replace(
        one,
        origin=one.origin + other.origin,
        first=one.first + other.first,
        mass=mass,
        excess=excess,
        zero=one.zero + other.zero,
        infinite=one.infinite + other.infinite,
        error=one.error + other.error + sums,
        shift=one.shift + other.shift + slips,
    ).trimmed()


def sums_from_right(values: Array) -> Array:
    """Return the sums of values[i:], for i = 0 ... len(values)."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
