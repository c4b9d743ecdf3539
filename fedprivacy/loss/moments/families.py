"""The moments of many rounds of one family, from those of a few of its members.

A family has one parameter, in which every privacy profile is convex. A round between two members is
then dominated by their mixture, whose moments are known. The distance of the two is at most a
second difference of moments on the real axis. See docs/theory/inversion.md, "Rounds of a family".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from ...rounding import FEW, TENS, UNIT
from .contour import Array, Complex, Contour
from .moments import Moments
from .spectrum import Near, Spectrum

Rows = NDArray[np.intp]

LEAST = 256
"""Families with fewer different rounds are not represented by members."""
_STEEP = 2.0
"""How much nearer the members with large shifts are."""
_POINTS = 4096
"""Points of the table that turns the scale of the members into shifts."""
_MOST = 2000
"""Largest number of members."""
_FEWER = 0.6
"""Members are used only if there are at most this many for every round."""
_FARTHEST = 3.0
"""Largest bend times shift: beyond, differences of the parameter lose their digits."""


class Family(Protocol):
    """Rounds whose profiles are convex in erf(bend shift / sqrt 2); a larger shift dominates."""

    @property
    def bend(self) -> float:
        """The factor of the shift."""

    def moments(self, shift: float) -> Moments:
        """Return the moments of the round with a shift."""

    def swap(self) -> Family:
        """Return the family of the swapped rounds."""

    def slabs(self, low: Array, high: Array, tilt: float, unit: Array) -> tuple[Array, Array]:
        """Return slabs below the tilted densities of the loss of every round between two shifts.

        Args:
            low: smaller shifts, a column.
            high: larger shifts, a column.
            tilt: real part of s.
            unit: logs of the units of the masses, a column.

        Returns:
            Masses and widths, one row for each pair of shifts.
        """


class MemberCells(NamedTuple):
    """Rounds between two neighbouring members: one entry for each pair of members with rounds.

    Args:
        left: index of the member with the smaller shift; at least 1.
        number: number of rounds.
        share: mean weight of the right member in the rounds' mixtures.
        variance: mean squared distance of these weights from their mean.
        nearer: mean of the smaller one of a round's two weights.
    """

    left: Rows
    number: Array
    share: Array
    variance: Array
    nearer: Array

    def rows(self, rows: Rows) -> MemberCells:
        """Return the chosen cells."""
        numbers = (self.number, self.share, self.variance, self.nearer)
        return MemberCells(self.left[rows], *(column[rows] for column in numbers))


class Grid(NamedTuple):
    """Members of a family, and the rounds between them.

    Args:
        shifts: the members' shifts, increasing, shape ``(members,)``.
        places: their values of the parameter.
        off: bound on the relative error of differences of places.
        cells: the rounds.
    """

    shifts: Array
    places: Array
    off: float
    cells: MemberCells

    @classmethod
    def of(cls, shifts: Array, counts: Array, bend: float, step: float) -> Grid | None:
        """Return members between which all rounds lie; None if these are not far fewer.

        Args:
            shifts: of the rounds, above 0.
            counts: numbers of runs of each round, above 0.
            bend: see ``Family``.
            step: distance of neighbouring members in the scale of ``_members``.
        """
        if len(shifts) < LEAST:
            return None
        low, high = float(np.min(shifts)), float(np.max(shifts))
        if not 0.0 < low < high <= _FARTHEST / bend or high > low * 1e6:
            return None
        every = _members(low, high, step)
        if every is None:
            return None
        number = len(every) - 3
        at = np.clip(np.searchsorted(every, shifts, side="right") - 1, 1, number)
        used, cell = np.unique(at, return_inverse=True)
        needed = np.unique(np.concatenate([used - 1, used, used + 1, used + 2]))
        if len(needed) > _FEWER * len(shifts):
            return None
        places, own = (erf(bend / math.sqrt(2.0) * x) for x in (every, shifts))
        steps = np.diff(places)
        # erf errs by a few units, and its argument by two.
        off = 32 * UNIT * float(places[-1] / np.min(steps))
        share = np.clip((own - places[at]) / steps[at], 0.0, 1.0)
        count = np.bincount(cell, counts)
        mean = np.bincount(cell, counts * share) / count
        cells = MemberCells(
            np.asarray(np.searchsorted(needed, used), dtype=np.intp),
            np.asarray(count, dtype=np.float64),
            mean,
            np.bincount(cell, counts * (share - mean[cell]) ** 2) / count,
            np.bincount(cell, counts * np.minimum(share, 1.0 - share)) / count,
        )
        return cls(every[needed], places[needed], off, cells)

    @property
    def weights(self) -> Array:
        """The number of rounds that each member stands for, shape ``(members,)``."""
        cells, size = self.cells, len(self.shifts)
        right = cells.number * cells.share
        left = np.bincount(cells.left, cells.number - right, size)
        return np.asarray(left + np.bincount(cells.left + 1, right, size))


def _members(low: float, high: float, step: float) -> Array | None:
    """Return increasing shifts from below a smallest one to above a largest one.

    The moments of large shifts grow fastest, so these members are nearer to each other: the scale
    is log x + ``_STEEP`` x^2. The result is None if there are too many members.
    """
    points = np.geomspace(low, high, _POINTS)
    scale = np.log(points) + _STEEP * points * points
    number = math.ceil((scale[-1] - scale[0]) / step)
    if number > _MOST:
        return None
    inner = np.interp(np.linspace(scale[0], scale[-1], number + 1), scale, points)
    # Exact ends, so that every round is between two members. One more on either side has a slope.
    inner[0], inner[-1] = low, high
    return np.concatenate([[2.0 * low - inner[1]], inner, [2.0 * high - inner[-2]]])


class MemberValues(NamedTuple):
    """A at every member: e^log_size times (values +- error), and also 1 + near +- near_error.

    Shapes are ``(members, heights)``; those of log_size and is_near are ``(members, 1)``.
    """

    log_size: Array
    values: Complex
    error: Array
    near: Complex
    near_error: Array
    is_near: NDArray[np.bool_]

    @classmethod
    def of(cls, members: int, size: int, found: Iterable[tuple[Rows, Spectrum]]) -> MemberValues:
        """Return the spectra of all members as rows.

        Args:
            members: number of members.
            size: number of heights.
            found: spectra of some members, with the indices of these.
        """
        log_size, is_near = np.zeros((members, 1)), np.zeros((members, 1), dtype=np.bool_)
        values, near = (np.zeros((members, size), dtype=np.complex128) for _ in range(2))
        error, near_error = (np.full((members, size), np.inf) for _ in range(2))
        for at, one in found:
            log_size[at] = np.reshape(one.log_size, (-1, 1))
            values[at], error[at] = np.atleast_2d(one.values), np.atleast_2d(one.error)
            if one.near is not None:
                near[at], near_error[at] = map(np.atleast_2d, one.near)
                is_near[at] = True
        return cls(log_size, values, error, near, near_error, is_near)

    def less_one(self, at: Rows, unit: Array) -> tuple[Complex, Array]:
        """Return A - 1 at some members, and its error."""
        del unit
        return self.near[at], self.near_error[at]

    def scaled(self, at: Rows, unit: Array) -> tuple[Complex, Array]:
        """Return A at some members in units of e^unit, a column, and its error."""
        scale = np.exp(self.log_size[at] - unit)
        slip = 4 * UNIT * (1.0 + np.abs(self.log_size[at]) + np.abs(unit))
        return self.values[at] * scale, (self.error[at] + slip * np.abs(self.values[at])) * scale


class Mixed(NamedTuple):
    """The mean mixture of the rounds of every cell, less ``one``, in units of e^unit.

    Args:
        values: the mixtures, shape ``(cells, heights)``.
        off: bound on their error.
        error: bound on the error of a round's mixture, if every one is replaced by the mean.
        excess: bound on the further distance of a round from its mixture.
        gap: upper bound on the rise of A from one member to the next, a column.
        one: 1 if the values are those of A - 1, else 0.
        unit: a column.
    """

    values: Complex
    off: Array
    error: Array
    excess: Array
    gap: Array
    one: float
    unit: Array


@dataclass(frozen=True)
class FamilyMixtures:
    """Many rounds of one family.

    Args:
        family: the family.
        grid: its members, and the rounds between them.
    """

    family: Family
    grid: Grid

    def mixtures(self, known: MemberValues, line: Contour) -> Iterator[tuple[Rows, Mixed]]:
        """Yield indices of cells, and their mixtures, which dominate their rounds."""
        left = self.grid.cells.left
        beside = np.stack([left - 1, left, left + 1, left + 2])
        near = known.is_near[beside, 0].all(axis=0)
        for rows, less in ((np.flatnonzero(near), True), (np.flatnonzero(~near), False)):
            if len(rows):
                yield rows, self._mixed(known, line, rows, less)

    def spectra(self, known: MemberValues, line: Contour) -> Iterator[tuple[Rows, Spectrum]]:
        """Yield indices of cells, and spectra that hold for their rounds on average."""
        for rows, found in self.mixtures(known, line):
            whole = found.one + found.values
            share = 1.0 / whole[:, :1].real
            log_size = found.unit + np.log(whole[:, :1].real)
            error = (found.error + 4 * UNIT * np.abs(whole)) * share
            near = Near(found.values, found.error) if found.one else None
            excess = found.excess * share
            yield rows, Spectrum(line.tilt, log_size, whole * share, error, 0.0, near, excess)

    def log_moments(self, known: MemberValues, line: Contour) -> list[float]:
        """Return upper bounds on log A of all rounds of each cell.

        The logarithm is concave, so the mean of the logs is at most the log of the mean.
        """
        found: list[float] = []
        for rows, one in self.mixtures(known, line):
            found.extend((self.grid.cells.number[rows] * self.most(one)[:, 0]).tolist())
        return found

    def most(self, found: Mixed) -> Array:
        """Return upper bounds on log A of the mixtures at height 0, a column."""
        top = found.values[:, :1].real + found.off[:, :1] + 8 * self.grid.off * found.gap
        if found.one:
            return np.asarray(np.log1p(top) * (1.0 + FEW))
        return np.asarray(found.unit + np.log(top) + FEW * (1.0 + np.abs(found.unit)))

    def slabs(self, rows: Rows, tilt: float, unit: Array) -> tuple[Array, Array]:
        """Return slabs below the tilted densities of the loss of every round of some cells."""
        left = self.grid.cells.left[rows]
        low, high = (self.grid.shifts[k][:, None] for k in (left, left + 1))
        return self.family.slabs(low, high, tilt, unit)

    def _mixed(self, known: MemberValues, line: Contour, rows: Rows, less: bool) -> Mixed:
        cells = self.grid.cells.rows(rows)
        left, share = cells.left, cells.share[:, None]
        unit = np.zeros((len(rows), 1)) if less else known.log_size[left + 1]
        asked = known.less_one if less else known.scaled
        (a, off_a), (b, off_b) = asked(left, unit), asked(left + 1, unit)
        values = (1.0 - share) * a + share * b
        off = (1.0 - share) * off_a + share * off_b + 8 * UNIT * (np.abs(a) + np.abs(b))
        gap, bend = self._bends([asked(left + k, unit) for k in (-1, 0, 1, 2)], cells)
        one = 1.0 if less else 0.0
        # How much larger the distance of two ordered transforms may be than on the real axis.
        s = line.points()
        wider = np.abs(s) * np.abs(1.0 + s) / (line.tilt * (1.0 + line.tilt)) * (1.0 + TENS)
        apart = np.minimum(np.abs(b - a) + off_a + off_b, wider * gap)
        # The share errs, too.
        off = off + 8 * self.grid.off * apart
        size = np.abs(one + a) - off_a
        usable = apart < 0.5 * size
        x = np.where(usable, apart / np.where(usable, size, 1.0), 0.0)
        turn = 0.5 * cells.variance[:, None] * (x / (1.0 - x)) ** 2 + FEW * x
        bent = wider * bend / np.where(usable, size, 1.0) / (1.0 - x)
        most, worst = np.abs(one + values) + off, 2.0 * wider * gap
        error = off + np.where(usable, np.minimum(most * np.expm1(turn), worst), worst)
        close = most * np.exp(turn) * np.expm1(np.minimum(bent, 600.0))
        excess = np.where(usable, np.minimum(close, worst), worst)
        return Mixed(values, off, error * (1.0 + TENS), excess * (1.0 + TENS), gap, one, unit)

    def _bends(
        self, four: Sequence[tuple[Complex, Array]], cells: MemberCells
    ) -> tuple[Array, Array]:
        """Return upper bounds on A's rise in every cell, and on the mean distance of its mixtures.

        A is convex in the parameter on the real axis. So a round's A is above the lines through the
        two members on the left and through the two on the right. Both are columns.

        Args:
            four: A and its error at the members of each cell and at the next members.
            cells: the cells.
        """
        value = [found[:, :1].real for found, _ in four]
        off = [error[:, :1] for _, error in four]
        places = self.grid.places
        step = [(places[cells.left + k + 1] - places[cells.left + k])[:, None] for k in (-1, 0, 1)]
        rise = [high - low for low, high in itertools.pairwise(value)]
        slip = [one + other for one, other in itertools.pairwise(off)]
        gap = np.maximum(rise[1] + slip[1], 0.0)
        bends = []
        for beside, sign in ((0, 1.0), (2, -1.0)):
            ratio = step[1] / step[beside]
            error = slip[1] + ratio * slip[beside] + 4 * FEW * (np.abs(value[1]) + np.abs(value[2]))
            error = error + 4 * self.grid.off * ratio * np.abs(rise[beside])
            bends.append(np.maximum(sign * (rise[1] - ratio * rise[beside]) + error, 0.0))
        share, nearer = cells.share[:, None], cells.nearer[:, None]
        most = np.minimum(share * bends[0], (1.0 - share) * bends[1])
        most = np.minimum(most, nearer * np.maximum(*bends))
        return gap, most * (1.0 + TENS) + 8 * self.grid.off * gap
