"""Moments of many folds at once: half lines of Gaussian pairs, one row for each fold.

The rules are those of ``truncated_moments.Piece`` for whole rounds, with panels shared by all rows
of a block. The row with the largest need sets the number of panels, and the worst row sets the
ellipse and the number of nodes. A row may not need some panel. Its error there is at most twice the
content of the panel, which is the amount counted for a panel that is left out. The masses at loss 0
become nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...rounding import UNIT
from ..clock import check_deadline
from . import spectrum as spectra
from .contour import Array, Contour, NoMoments
from .gaussian_rules import DEPTH, Ends, Weighed, chosen_rows, log_top, phase_bound
from .legendre import legendre
from .mixtures import Columns, columns
from .spectrum import Cumulants, Rule, Spectrum
from .staircase import batched_slabs
from .truncated_moments import LOG_OFF_ATOM, Part, Piece

Rows = NDArray[np.intp]

_HELD = 1 << 15
"""Largest number of (row, node) pairs in memory."""
_MOST_PANELS = 1 << 11
_FALL = 100.0
"""The masses at loss 0 stay within the moments, so their product must be below e^-100."""


def stackable(part: Part) -> tuple[tuple[int, int, bool], ...] | None:
    """Return the shape of a part that may share arrays with others; None for any other part."""
    shape = []
    for piece in [one.divisible for one in part.pieces]:
        if piece is None or piece.stop < math.inf:
            return None
        if not math.isfinite(piece.start) or piece.most not in (0.0, math.inf):
            return None
        shape.append((len(piece.pair.p), len(piece.pair.q), piece.most == 0.0))
    return tuple(shape) if part.whole and not part.rare else None


def enough(parts: Sequence[tuple[Part, float]]) -> bool:
    """Return whether the product of all masses at loss 0 is negligible."""
    return sum(-n * math.log(part.atom) if part.atom else math.inf for part, n in parts) > _FALL


class _Panels(NamedTuple):
    """Middles (rows: half lines), radii, nodes per panel, log errors; P mass served or not."""

    middle: Array
    radius: Array
    each: int
    log_error: Array
    plain: bool


@dataclass(frozen=True, eq=False)
class _Half:
    """Half lines: pairs as columns, the weights of their labels, and their starting points.

    ``low``: the loss is at most 0.
    """

    p: Columns
    q: Columns
    ends: Ends
    weight: Array
    start: Array
    low: bool

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> _Half:
        """Return pieces of one shape as rows."""
        p, q = (columns([getattr(one.pair, side) for one in pieces]) for side in ("p", "q"))
        ends = Ends(*np.array([one.pair.ends.all for one in pieces]).T[:, :, None])
        weight, start = np.array([(one.weight, one.start) for one in pieces]).T[:, :, None]
        return cls(p, q, ends, weight, start, pieces[0].most == 0.0)

    def rows(self, chosen: Rows) -> _Half:
        """Return the chosen rows."""
        p, q = (chosen_rows(side, chosen) for side in (self.p, self.q))
        ends = Ends(*(np.asarray(one)[chosen] for one in self.ends.all))
        return _Half(p, q, ends, self.weight[chosen], self.start[chosen], self.low)

    def stop(self, tilt: float, depth: float = DEPTH + 1.0) -> Array:
        """Return ends for the half lines; the integral beyond them is at most e^{2 - depth}."""
        high = np.maximum(self.ends.span(tilt, depth)[1], self.ends.span(0.0, depth)[1])
        if self.low:
            # The integrand is at most P's density.
            high = np.minimum(high, self.ends.most_p + math.sqrt(2.0 * depth))
        return np.asarray(np.maximum(high, self.start + 1.0))

    def panels(self, line: Contour, stop: Array) -> NDArray[np.float64]:
        """Return the number of panels that each row needs."""
        spread = np.maximum(self.ends.spread, 1e-9)
        widest = np.minimum(1.5, 2.0 / spread)
        width = np.minimum(widest, 40.0 / np.maximum(line.top * spread, 1e-9))
        return np.asarray(np.ceil((stop - self.start) / width))[:, 0]

    def cumulants(self, tilt: float) -> Array:
        """Return log-moment, mean and variance of each row to a few digits, weights included."""
        # As in ``GaussianPair.cumulants``, e^-18 is accurate enough.
        with np.errstate(over="ignore", invalid="ignore"):
            stop = self.stop(tilt, 18.0)
            most = np.max(self.panels(Contour(tilt, 0.0, 1), stop))
        if not most < _MOST_PANELS:
            raise NoMoments
        count = int(most)
        y, log_width = _nodes(*self._cut(count, stop), 12)
        found = np.array(Weighed.at(self.p, self.q, y, log_width, tilt).cumulants())[..., 0]
        found[0] += np.log(self.weight[:, 0])
        return found

    def slabs(self, here: Spectrum) -> tuple[Array, Array]:
        """Return masses and widths of slabs below the density of the loss, weights included."""
        ends = self.start, self.stop(here.tilt)
        mass, width = batched_slabs(self.p, self.q, ends, here.tilt, here.log_size)
        return self.weight * mass, width

    def top(self, low: Array, high: Array, tilt: float) -> Array:
        """Return the log of a bound on the integrand on each interval."""
        return log_top(self.p, self.q, low, high, tilt)

    def rule(self, line: Contour) -> tuple[Rule, bool]:
        """Return the rule of all rows, and whether it also serves P's own mass."""
        stop = self.stop(line.tilt)
        plan = self._plan(line, stop)
        y, log_width = _nodes(plan.middle, plan.radius, plan.each)
        edges = [self.top(self.start, self.start, tilt) for tilt in (line.tilt, 0.0)]
        edge = np.maximum(*edges) + np.log(16.0 * UNIT * (1.0 + np.abs(self.start)))
        log_error = np.logaddexp(np.logaddexp(plan.log_error, 1.0 - DEPTH), edge)
        weighed = Weighed.at(self.p, self.q, y, log_width, line.tilt)
        near = plan.plain and bool(np.all(weighed.near(self.weight)))
        displaced = 4.0 * UNIT * float(np.max(stop - self.start))
        found, share = weighed.rule(log_error, near, displaced), np.log(self.weight)
        log_plain = None if found.log_plain is None else found.log_plain + share
        weighted = replace(
            found,
            log_weight=found.log_weight + share,
            wobble=found.wobble + 4.0 * UNIT * np.abs(share),
            log_error=found.log_error + share,
            log_plain=log_plain,
        )
        return weighted, near

    def _plan(self, line: Contour, stop: Array) -> _Panels:
        """Return panels for all rows.

        Raises:
            NoMoments: there would be too many panels, or too many nodes on one.
        """
        count, share = int(np.max(self.panels(line, stop))), np.log(self.weight)
        middle, radius = self._cut(count, stop)
        tops = self.top(middle - radius, middle + radius, line.tilt) + np.log(2 * radius)
        plain = bool(np.all(spectra.log_total(tops.T) + share[:, 0] < 1.0))
        if plain:
            mass = self.top(middle - radius, middle + radius, 0.0) + np.log(2 * radius)
            tops = np.maximum(tops, mass)
        # The moment is at least about 1, so a small weight allows larger errors.
        target = np.maximum(tops.max(axis=1, keepdims=True) - 5.0, -share) - DEPTH
        wanted = tops > target
        kept = wanted.any(axis=0)
        if not kept.any():
            kept[0] = True
        middle, wanted = middle[:, kept], wanted[:, kept]
        nodes = self._nodes(line, middle, radius, wanted, plain, target)
        return _Panels(middle, radius, nodes, math.log(2 * count + 4) + target, plain)

    def _cut(self, count: int, stop: Array) -> tuple[Array, Array]:
        """Return the middles and radii of ``count`` panels."""
        radius = (stop - self.start) / (2 * count)
        return self.start + radius * (2 * np.arange(count) + 1.0), radius

    def _nodes(
        self, line: Contour, middle: Array, radius: Array, wanted: Any, plain: bool, target: Array
    ) -> int:
        """Return the number of nodes of a panel, on the best ellipse for the worst row."""
        least = math.inf
        for rho in (2.0, 3.0, 4.0, 5.5, 7.5):
            d, reach = 0.5 * (rho - 1.0 / rho) * radius, 0.5 * (rho + 1.0 / rho) * radius
            if np.any(d * self.ends.spread > 3.0):
                continue
            low, high = middle - reach, middle + reach
            needed = self.top(low, high, line.tilt)
            if line.top > 0.0:
                needed = needed + line.top * phase_bound(self.p, self.q, self.ends, d, low, high)
            needed = needed + self.ends.log_growth(d, line.tilt)
            if plain:
                needed = np.maximum(needed, self.top(low, high, 0.0) + 0.5 * d * d)
            most = np.where(wanted, needed, -math.inf).max(axis=1, keepdims=True)
            unit = spectra.panel_factor(1.0, rho)
            cost = float(np.max(most + unit + np.log(radius) - target)) / (2 * math.log(rho))
            least = min(least, cost)
        return spectra.node_count(max(least, 1.0))


def _nodes(middle: Array, radius: Array, each: int) -> tuple[Array, Array]:
    """Return the nodes of panels, one row per half line, and the logs of their weights."""
    at, widths = legendre(each)
    y = (middle[:, :, None] + radius[:, :, None] * at).reshape(len(middle), -1)
    return y, np.log(radius) + np.tile(np.log(widths), middle.shape[1])


@dataclass(frozen=True, eq=False)
class Folds:
    """Folds of one shape: see ``stackable``."""

    parts: tuple[Part, ...]
    halves: tuple[_Half, ...]
    log_atom: Array

    keeps_atoms = True

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Folds:
        """Return the folds as rows."""
        sides = zip(*(part.pieces for part in parts), strict=True)
        halves = tuple(_Half.of([piece for one in c if (piece := one.divisible)]) for c in sides)
        with np.errstate(divide="ignore"):
            log_atom = np.log(np.array([part.atom for part in parts]))[:, None]
        return cls(tuple(parts), halves, log_atom)

    def spectra(self, line: Contour) -> Iterator[tuple[Rows, Spectrum]]:
        """Yield rows and their moments on a line, which include the masses at loss 0.

        Raises:
            NoMoments: some fold would need too many nodes.
        """
        for rows in self._blocks(line):
            check_deadline()
            found = [half.rows(rows).rule(line) for half in self.halves]
            yield rows, self._joined(found, self.log_atom[rows]).spectrum(line)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return every fold's cumulants, to a few digits, shape ``(rows,)``."""
        found = np.array([half.cumulants(tilt) for half in self.halves])
        return spectra.mixed_cumulants(found, self.log_atom[:, 0])

    def slabs(self, rows: Rows, here: Spectrum) -> tuple[Array, Array]:
        """Return slabs below the densities of the chosen rows; ``here`` are their moments."""
        found = [half.rows(rows).slabs(here) for half in self.halves]
        mass, width = (np.concatenate(column, axis=1) for column in zip(*found, strict=True))
        return mass, width

    def _blocks(self, line: Contour) -> Iterator[Rows]:
        """Yield the indices of rows, grouped by similar numbers of panels."""
        with np.errstate(over="ignore", invalid="ignore"):
            most = [half.panels(line, half.stop(line.tilt)) for half in self.halves]
            panels = 2.0 * np.max(most, axis=0)
        if not np.max(panels) < _MOST_PANELS:
            raise NoMoments
        rows = np.argsort(-panels, kind="stable")
        while len(rows):
            block = max(int(_HELD // (24.0 * panels[rows[0]])), 1)
            yield rows[:block]
            rows = rows[block:]

    @staticmethod
    def _joined(found: list[tuple[Rule, bool]], log_atom: Array) -> Rule:
        """Return one rule for the halves and the masses at loss 0.

        If P's own mass is served, the rule computes the moment minus 1, and loss 0 does not
        contribute.
        """
        near = all(one for _, one in found)
        rules = [rule for rule, _ in found]
        log_error = rules[0].log_error
        for rule in rules[1:]:
            log_error = np.logaddexp(log_error, rule.log_error)
        names = ("log_weight", "loss", "wobble", "slip")
        fields = [[getattr(rule, name) for rule in rules] for name in names]
        if not near:
            nothing = np.zeros_like(log_atom)
            for column, last in zip(fields, (log_atom, *3 * (nothing,)), strict=True):
                column.append(last)
            log_error = np.logaddexp(log_error, LOG_OFF_ATOM)
        plain = [rule.log_plain for rule in rules if near and rule.log_plain is not None]
        weight, loss, wobble, slip = (np.concatenate(column, axis=-1) for column in fields)
        served = np.concatenate(plain, axis=-1) if near else None
        return Rule(weight, loss, wobble, slip, log_error, 0.0, served)
