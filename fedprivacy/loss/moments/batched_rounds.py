"""The different rounds of a run: rounds that are Gaussian pairs of one shape share arrays.

A run of a thousand different rounds evaluates every leaf at the same points. The rules are those of
a single pair (``Weighed``, ``Rule``), with one row per pair. This module only chooses the rows of
an array. They need similar numbers of nodes, and they are padded with nodes of negligible weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...rounding import TENS
from ..clock import check_deadline
from . import families, gaussian_rules, staircase
from .batched_gaussians import Folds, enough, stackable
from .contour import Array, Contour, PerRow
from .mixtures import Columns, columns
from .moments import Moments
from .spectrum import Cumulants, Decay, Spectrum
from .truncated_moments import Part

Rows = NDArray[np.intp]
T = TypeVar("T")

_HELD = 1 << 15
"""Largest number of (row, node) pairs in memory: their phases at 17 heights fill a cache."""
LEAST = 4
"""Fewer pairs than this are not batched."""
_ROWS = 256
"""Up to this number of rounds, each has a bound of its own on the fall of its moments."""


class Together(NamedTuple):
    """Spectra of some rounds of a run, and the number of rounds of each kind."""

    at: Rows
    spectrum: Spectrum
    count: PerRow


def _pair_of(part: Moments) -> tuple[Hashable, gaussian_rules.GaussianPair] | None:
    pair = part.lone_pair()
    return None if pair is None else ((len(pair.p), len(pair.q)), pair)


def _fold_of(part: Moments) -> tuple[Hashable, Part] | None:
    fold = part.part() if part.lone_pair() is None else None
    shape = None if fold is None else stackable(fold)
    return (shape, fold) if shape and fold is not None else None


def _together(
    parts: Sequence[tuple[Moments, float]], of: Callable[[Moments], tuple[Hashable, T] | None]
) -> list[tuple[Rows, list[T]]]:
    """Return the results of ``of``, grouped by shape, with the indices of their rounds."""
    shapes: dict[Hashable, list[tuple[int, T]]] = {}
    for k, (part, _) in enumerate(parts if len(parts) >= LEAST else ()):
        if (found := of(part)) is not None:
            shapes.setdefault(found[0], []).append((k, found[1]))
    groups = [group for group in shapes.values() if len(group) >= LEAST]
    return [(np.array([k for k, _ in group]), [one for _, one in group]) for group in groups]


class Bundle:
    """Rounds whose moments are evaluated at the same points.

    Args:
        parts: (moments, count), in the order of the indices in ``Together.at``.
    """

    def __init__(self, parts: Sequence[tuple[Moments, float]]) -> None:
        self._counts = np.array([count for _, count in parts], dtype=np.float64)
        self._stacks: list[tuple[Rows, Stack | Folds]] = [
            (at, Stack.of(pairs)) for at, pairs in _together(parts, _pair_of)
        ]
        for at, folds in _together(parts, _fold_of):
            if enough([(one, parts[k][1]) for k, one in zip(at, folds, strict=True)]):
                self._stacks.append((at, Folds.of(folds)))
        stacked = {int(k) for at, _ in self._stacks for k in at}
        self._single = [(k, part, n) for k, (part, n) in enumerate(parts) if k not in stacked]
        self._known: tuple[float, list[_Falling]] | None = None

    @property
    def keeps_atoms(self) -> bool:
        """Whether the spectra of some rounds include masses at loss 0 without reporting them."""
        return any(stack.keeps_atoms for _, stack in self._stacks)

    def spectra(self, line: Contour) -> Iterator[Together]:
        """Yield the moments of all rounds on a line.

        Raises:
            NoMoments: some round has none, or they would cost too much.
        """
        for k, part, count in self._single:
            yield Together(np.array([k]), part.spectrum(line), count)
        for at, stack in self._stacks:
            for rows, spectrum in stack.spectra(line):
                yield Together(at[rows], spectrum, self._counts[at[rows], None])

    def cumulants(self, tilt: float) -> list[tuple[Rows, Cumulants, PerRow]]:
        """Return (indices of rounds, their cumulants to a few digits, counts)."""
        found: list[tuple[Rows, Cumulants, PerRow]] = [
            (np.array([k]), part.cumulants(tilt), count) for k, part, count in self._single
        ]
        for at, stack in self._stacks:
            found.append((at, stack.cumulants(tilt), self._counts[at]))
        return found

    def log_moments(self, tilt: float) -> tuple[list[tuple[int, float]], list[float]]:
        """Return (index, count) of single rounds; the log-moments of the others, times count.

        Raises:
            NoMoments: some pair would need too many nodes.
        """
        sums: list[float] = []
        for at, stack in self._stacks:
            for rows, spectrum in stack.spectra(Contour(tilt, 0.0, 1)):
                counts = self._counts[at[rows]]
                sums.extend((counts * np.ravel(spectrum.log_moment)).tolist())
        return [(k, count) for k, _, count in self._single], sums

    def decay(
        self, tilt: float, heights: Array, fine: bool, chosen: frozenset[int]
    ) -> list[tuple[Decay, PerRow]]:
        """Return bounds for all rounds.

        Every batched round falls with the height. Of the others, those that are chosen fall, and
        those with a mass at loss 0, below which no moment falls.

        Args:
            tilt: above 0.
            heights: increasing, shape ``(n,)``.
            fine: see ``Moments.decay``.
            chosen: indices of rounds.
        """
        here = Contour(tilt, 0.0, 1)
        found: list[tuple[Decay, PerRow]] = []
        for k, part, count in self._single:
            check_deadline()
            if k not in chosen and (at := part.spectrum(here)).log_atom == -math.inf:
                found.append((at.level(heights), count))
            else:
                found.append((part.decay(tilt, heights, fine), count))
        return found + [one.decay(heights) for one in self._falling(here)]

    def _falling(self, here: Contour) -> list[_Falling]:
        """Return the slabs of all batched rounds on a line; those of the last line are kept."""
        known = self._known
        if known is None or known[0] != here.tilt:
            known = here.tilt, []
            for at, stack in self._stacks:
                counts = self._counts[at][:, None]
                rows = [
                    _Falling(some.log_size, _size(some), counts[chosen], *stack.slabs(chosen, some))
                    for chosen, some in stack.spectra(here)
                ]
                known[1].extend(rows if len(at) <= _ROWS else [_total(rows)])
            self._known = known
        return known[1]


Places = dict[families.Family, tuple[Array, Array]]
"""Shifts and numbers of runs of the rounds of every family."""


def places_of(parts: Sequence[tuple[Moments, float]]) -> tuple[Places, list[int]]:
    """Return the large families of some parts, and the indices of the parts that are in none."""
    if len(parts) < families.LEAST:
        return {}, list(range(len(parts)))
    members: dict[families.Family | None, list[tuple[int, float]]] = {}
    for k, (part, _) in enumerate(parts):
        family, shift = part.place() or (None, 0.0)
        members.setdefault(family, []).append((k, shift))
    large: Places = {}
    alone: list[int] = []
    for family, rows in members.items():
        if family is None or len(rows) < families.LEAST:
            alone.extend(k for k, _ in rows)
            continue
        shifts = np.array([shift for _, shift in rows])
        large[family] = shifts, np.array([parts[k][1] for k, _ in rows], dtype=np.float64)
    return large, alone


def represented(places: Places, step: float) -> list[FamilyRounds]:
    """Return every family by its members; none if one would need too many.

    Args:
        places: the families.
        step: distance of the members.
    """
    grids = [(one, families.Grid.of(*at, one.bend, step)) for one, at in places.items()]
    found = [FamilyRounds(one, grid) for one, grid in grids if grid is not None]
    return found if len(found) == len(grids) else []


class FamilyRounds:
    """Many rounds of one family, represented by some of its members; see ``families``.

    Args:
        family: the family.
        grid: its members, and the rounds between them.
    """

    def __init__(self, family: families.Family, grid: families.Grid) -> None:
        self._rounds = families.FamilyMixtures(family, grid)
        self._weights = grid.weights
        made = [family.moments(shift) for shift in grid.shifts.tolist()]
        self._members = Bundle(list(zip(made, self._weights.tolist(), strict=True)))

    def _known(self, line: Contour) -> families.MemberValues:
        found = ((one.at, one.spectrum) for one in self._members.spectra(line))
        return families.MemberValues.of(len(self._weights), line.size, found)

    def spectra(self, line: Contour) -> Iterator[Together]:
        """Yield the moments of all rounds on a line.

        Raises:
            NoMoments: some member has none, or they would cost too much.
        """
        count = self._rounds.grid.cells.number
        for rows, spectrum in self._rounds.spectra(self._known(line), line):
            yield Together(rows, spectrum, count[rows, None])

    def cumulants(self, tilt: float) -> list[tuple[Cumulants, PerRow]]:
        """Return the members' cumulants to a few digits, and the rounds that each stands for."""
        return [(found, self._weights[at]) for at, found, _ in self._members.cumulants(tilt)]

    def log_moments(self, tilt: float) -> list[float]:
        """Return upper bounds on the log-moments of all rounds, in groups.

        Raises:
            NoMoments: some member has none, or they would cost too much.
        """
        line = Contour(tilt, 0.0, 1)
        return self._rounds.log_moments(self._known(line), line)

    def decay(self, tilt: float, heights: Array) -> tuple[Decay, PerRow]:
        """Return a bound for the product of all rounds, and 1.

        Args:
            tilt: above 0.
            heights: increasing, shape ``(n,)``.

        Raises:
            NoMoments: some member has none, or they would cost too much.
        """
        if self._fall is None or self._fall[0] != tilt:
            self._fall = tilt, self._falling(Contour(tilt, 0.0, 1))
        return self._fall[1].decay(heights)

    _fall: tuple[float, _Falling] | None = None

    def _falling(self, here: Contour) -> _Falling:
        known, rows = self._known(here), []
        count, left = self._rounds.grid.cells.number, self._rounds.grid.cells.left
        for at, mixed in self._rounds.mixtures(known, here):
            # The right member is the largest round of the cell.
            unit = known.log_size[left[at] + 1]
            most = np.exp(self._rounds.most(mixed) - unit)
            largest = np.abs(known.values[left[at] + 1]) + known.error[left[at] + 1]
            mass, width = self._rounds.slabs(at, here.tilt, unit)
            share = most / np.maximum(largest, most)
            rows.append(_Falling(unit, most, count[at, None], mass * share, width))
        return _total(rows)


@dataclass(frozen=True, eq=False)
class _Falling:
    """Rounds whose moments fall: with a size of at most ``most`` e^log_size at height 0, and slabs.

    Numbers are columns, one row per round; masses and widths have the shape ``(rows, slabs)``.
    """

    log_size: PerRow
    most: Array
    count: Array
    mass: Array
    width: Array

    def decay(self, heights: Array) -> tuple[Decay, PerRow]:
        """Return the bounds for all rounds, with their counts."""
        kept = np.maximum(self.most - staircase.lost(self.mass, self.width, heights), 1e-300)
        return Decay(-math.inf, self.log_size + np.log(kept)), self.count


@dataclass(frozen=True, eq=False)
class _Total(_Falling):
    """The product of many rounds, as one row; its log falls by at least the mass of its slabs."""

    def decay(self, heights: Array) -> tuple[Decay, PerRow]:
        """Return the bound for the product of all rounds."""
        fallen = staircase.lost(self.mass, self.width, heights)
        return Decay(-math.inf, self.log_size - fallen), self.count


def _total(rows: Sequence[_Falling]) -> _Falling:
    """Return the product of many rounds.

    The log of (most - lost) is at most log(most) - lost / most, so the falls add up.
    """
    logs = [some.count * (some.log_size + np.log(some.most)) for some in rows]
    every = np.concatenate(
        [np.broadcast_to(one, some.count.shape) for one, some in zip(logs, rows, strict=True)]
    )
    size = math.fsum(every.ravel()) + TENS * math.fsum(1.0 + np.abs(every.ravel()))
    shares = [some.mass * (some.count / some.most) for some in rows]
    mass, width = staircase.joined(shares, [some.width for some in rows])
    return _Total(size, np.ones(1), np.ones(1), mass, width)


def _size(spectrum: Spectrum) -> Array:
    """Return bounds on the sizes at height 0, in units of e^log_size, as a column."""
    return np.atleast_2d(np.abs(spectrum.values[..., :1]) + spectrum.error[..., :1])


class _Plan(NamedTuple):
    """For each row its interval and mesh, the number of nodes, and whether P's mass is served."""

    low: Array
    mesh: Array
    nodes: Array
    serves_p: Array


@dataclass(frozen=True, eq=False)
class Stack:
    """Pairs with equal numbers of components: weights and means are columns, one row per pair."""

    pairs: tuple[gaussian_rules.GaussianPair, ...]
    p: Columns
    q: Columns
    ends: gaussian_rules.Ends

    keeps_atoms = False

    @classmethod
    def of(cls, pairs: Sequence[gaussian_rules.GaussianPair]) -> Stack:
        """Return the pairs as rows."""
        p, q = (columns([getattr(pair, side) for pair in pairs]) for side in ("p", "q"))
        ends = np.array([pair.ends.all for pair in pairs])
        return cls(tuple(pairs), p, q, gaussian_rules.Ends(*ends.T[:, :, None]))

    def spectra(self, line: Contour) -> Iterator[tuple[Rows, Spectrum]]:
        """Yield rows and their moments on a line, with the rules of ``GaussianPair.rule``.

        Raises:
            NoMoments: some pair would need too many nodes.
        """
        plan = self._plan(line)
        # Rows that need more than the simple bound of ``GaussianPair.rule`` are computed one by
        # one.
        for k in np.flatnonzero(plan.nodes > gaussian_rules.CHEAP_NODES):
            spectrum = self.pairs[k].rule(line.tilt, line.top).spectrum(line)
            yield np.array([k]), spectrum
        log_error = np.logaddexp(gaussian_rules.trapezoid_error(0.0), -gaussian_rules.DEPTH)
        for rows in _blocks(plan):
            check_deadline()
            weighed = self._weighed(plan, rows, line.tilt)
            # Rows near 1 keep P's own mass for their last digits, which needs another kind of rule.
            near = (plan.serves_p[rows] & weighed.near())[:, 0]
            for chosen in (np.flatnonzero(near), np.flatnonzero(~near)):
                if len(chosen):
                    rule = weighed.rows(chosen).rule(log_error, bool(near[chosen[0]]))
                    yield rows[chosen], rule.spectrum(line)

    def slabs(self, rows: Rows, here: Spectrum) -> tuple[Array, Array]:
        """Return slabs below the densities of the chosen rows; ``here`` are their moments."""
        p, q = (gaussian_rules.chosen_rows(side, rows) for side in (self.p, self.q))
        low, high = self.ends.span(here.tilt, gaussian_rules.DEPTH + 1.0)
        return staircase.batched_slabs(p, q, (low[rows], high[rows]), here.tilt, here.log_size)

    def _plan(self, line: Contour) -> _Plan:
        """Return the needs of every row; more than CHEAP_NODES for a row that is not served."""
        low, high = self.ends.span(line.tilt, gaussian_rules.DEPTH + 1.0)
        mesh = gaussian_rules.finest_mesh(self.ends, self.ends.log_strip(line.tilt, line.top))
        # From 60 on ``GaussianPair.rule`` tries to shorten the interval.
        nodes = np.where(high - low < 59.0, (high - low) / mesh, math.inf)
        return _Plan(
            low, gaussian_rules.exact_mesh(mesh), nodes[:, 0], self.ends.serves_p(low, high)
        )

    def _weighed(self, plan: _Plan, rows: Rows, tilt: float) -> gaussian_rules.Weighed:
        low, mesh = plan.low[rows], plan.mesh[rows]
        # Ends are rounded outward to the mesh, which may cost up to three nodes.
        count = math.ceil(float(np.max(plan.nodes[rows]))) + 3
        y = mesh * (np.floor(low / mesh) + np.arange(count, dtype=np.float64))
        p, q = (gaussian_rules.chosen_rows(side, rows) for side in (self.p, self.q))
        return gaussian_rules.Weighed.at(p, q, y, np.log(mesh), tilt)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return every pair's cumulants, to a few digits, shape ``(rows,)``."""
        low, high = self.ends.span(tilt, 18.0)
        width = np.minimum(0.4, 1.2 / np.maximum(self.ends.spread, 1.0))
        counts = (high - low) / width
        if not np.max(counts) < 600:
            each = [pair.cumulants(tilt) for pair in self.pairs]
            return Cumulants(*np.array(each).T)
        count = math.ceil(np.max(counts))
        mesh = (high - low) / count
        y = low + mesh * (np.arange(count) + 0.5)
        found = gaussian_rules.Weighed.at(self.p, self.q, y, np.log(mesh), tilt).cumulants()
        return Cumulants(*(column[:, 0] for column in found))


def _blocks(plan: _Plan) -> Iterator[Rows]:
    """Yield the indices of the served rows in blocks, grouped by similar needs."""
    rows = np.flatnonzero(plan.nodes <= gaussian_rules.CHEAP_NODES)
    # Rows with similar needs form a block, so padding adds few nodes.
    rows = rows[np.argsort(plan.nodes[rows], kind="stable")]
    while len(rows):
        block = max(int(_HELD // (plan.nodes[rows[0]] + 3.0)), 1)
        yield rows[:block]
        rows = rows[block:]
