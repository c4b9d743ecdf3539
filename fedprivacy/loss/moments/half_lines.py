"""Half lines of many Gaussian pairs at once, one row for each.

The rules are those of ``truncated_moments.Piece`` for whole rounds, with panels shared by all rows.
The row with the largest need sets the number of panels, and the worst row sets the ellipse and the
number of nodes. A row may not need some panel. Its error there is at most twice the content of the
panel, which is the amount counted for a panel that is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...rounding import UNIT
from ..clock import check_deadline
from . import spectrum as spectra
from .contour import Array, Contour, NoMoments
from .gaussian_rules import DEPTH, Ends, Weighed, chosen_rows, log_top, log_tops, phase_bound
from .legendre import legendre
from .mixtures import Columns, columns
from .spectrum import HalfLine, Rule, Spectrum
from .staircase import batched_slabs

Rows = NDArray[np.intp]

Shape = tuple[int, int, bool]
"""Numbers of components of P and of Q, and whether the losses are at most 0."""

MOST_PANELS = 1 << 11
_MOST_SHORT = 1 << 13
"""Largest number of panels in a rule for a sum."""
_HALVINGS = 16
_SHORT = 50.0
"""Longest half line that is searched at a hundred points."""
_NODES = (24, 48)
"""Nodes of a panel of a rule for a sum: at one point, and on a line."""
_RHO = np.array([2.0, 3.0, 4.0, 5.5, 7.5])
"""Ellipses that are tried: sums of the half axes, in radii of a panel."""
_FACTORS = np.array([spectra.panel_factor(1.0, rho) for rho in _RHO.tolist()])
_NEAR_ONE = 0.1
"""Up to this log-moment, the moment minus 1 is integrated directly."""


def shape_of(half: HalfLine) -> Shape | None:
    """Return the shape of a half line that may share arrays with others; None for any other."""
    piece = half.divisible
    if piece is None or piece.stop < math.inf or not math.isfinite(piece.start):
        return None
    known = piece.most in (0.0, math.inf)
    return (len(piece.pair.p), len(piece.pair.q), piece.most == 0.0) if known else None


class _Panels(NamedTuple):
    """Middles (rows: half lines), radii, nodes per panel, log errors; P mass served or not."""

    middle: Array
    radius: Array
    each: int
    log_error: Array
    plain: bool


def stacked(halves: Sequence[HalfLine]) -> list[list[HalfLine]]:
    """Return half lines in groups of one shape, and others each alone."""
    shapes: dict[object, list[HalfLine]] = {}
    for k, half in enumerate(halves):
        shapes.setdefault(shape_of(half) or k, []).append(half)
    return list(shapes.values())


class _Cut(NamedTuple):
    """Panels of many lengths: their rows; and middles and radii as columns."""

    row: Rows
    middle: Array
    radius: Array
    each: int
    log_error: float
    plain: bool


@dataclass(frozen=True, eq=False)
class HalfLines:
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
    def of(cls, halves: Sequence[HalfLine]) -> HalfLines:
        """Return half lines of one shape as rows; see ``shape_of``."""
        pieces = [piece for half in halves if (piece := half.divisible)]
        p, q = (columns([getattr(one.pair, side) for one in pieces]) for side in ("p", "q"))
        ends = Ends(*np.array([one.pair.ends.all for one in pieces]).T[:, :, None])
        weight, start = np.array([(one.weight, one.start) for one in pieces]).T[:, :, None]
        return cls(p, q, ends, weight, start, pieces[0].most == 0.0)

    def rows(self, chosen: Rows) -> HalfLines:
        """Return the chosen rows."""
        p, q = (chosen_rows(side, chosen) for side in (self.p, self.q))
        ends = Ends(*(np.asarray(one)[chosen] for one in self.ends.all))
        return HalfLines(p, q, ends, self.weight[chosen], self.start[chosen], self.low)

    def stop(self, tilt: float, depth: float = DEPTH + 1.0) -> Array:
        """Return ends for the half lines; the integral beyond them is at most e^{2 - depth}."""
        # An end that overflows needs too many panels, which is refused later.
        with np.errstate(over="ignore", invalid="ignore"):
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
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.ceil((stop - self.start) / width))[:, 0]

    def cumulants(self, tilt: float) -> Array:
        """Return log-moment, mean and variance of each row to a few digits, weights included."""
        # As in ``GaussianPair.cumulants``, e^-18 is accurate enough.
        stop = self.stop(tilt, 18.0)
        most = np.max(self.panels(Contour(tilt, 0.0, 1), stop))
        if not most < MOST_PANELS:
            raise NoMoments
        count = int(most)
        y, log_width = _nodes(*self._cut(count, stop), 12)
        found = np.array(Weighed.at(self.p, self.q, y, log_width, tilt).cumulants())[..., 0]
        found[0] += np.log(self.weight[:, 0])
        return found

    def short(self, tilt: float) -> bool:
        """Return whether ``slabs`` finds the likely outcomes of all rows among a hundred points."""
        return bool(np.max(self.stop(tilt) - self.start) < _SHORT)

    def slabs(self, here: Spectrum) -> tuple[Array, Array]:
        """Return masses and widths of slabs below the density of the loss, weights included."""
        ends = self.start, self.stop(here.tilt)
        mass, width = batched_slabs(self.p, self.q, ends, here.tilt, here.log_size)
        return self.weight * mass, width

    def top(self, low: Array, high: Array, tilt: float) -> Array:
        """Return the log of a bound on the integrand on each interval."""
        return log_top(self.p, self.q, low, high, tilt)

    def _tops(self, low: Array, high: Array, tilt: float) -> list[Array]:
        """Return the same for the integrand and for P's own density."""
        return log_tops(self.p, self.q, low, high, (tilt, 0.0))

    def rule(self, line: Contour) -> Rule:
        """Return the rule of all rows, weights included; it serves P's mass in all rows or none."""
        stop = self.stop(line.tilt)
        plan = self._plan(line, stop)
        y, log_width = _nodes(plan.middle, plan.radius, plan.each)
        log_error = np.logaddexp(
            np.logaddexp(plan.log_error, 1.0 - DEPTH), self._log_edge(line.tilt)
        )
        weighed = Weighed.at(self.p, self.q, y, log_width, line.tilt)
        near = plan.plain and bool(np.all(weighed.near(self.weight)))
        displaced = 4.0 * UNIT * float(np.max(stop - self.start))
        return weighed.rule(log_error, near, displaced).weighted(np.log(self.weight))

    def joined(self, line: Contour) -> Rule:
        """Return one rule for the sum of all rows, weights included, with panels of many lengths.

        A panel is halved until a few nodes suffice: where the loss is steep, panels are short.

        Raises:
            NoMoments: there would be too many panels.
        """
        stop, share = self.stop(line.tilt), np.log(self.weight)
        cut = self._halved(line, stop)
        some = self.rows(cut.row)
        at, widths = legendre(cut.each)
        y = cut.middle + cut.radius * at
        log_width = np.log(cut.radius) + np.log(widths) + share[cut.row]
        weighed = Weighed.at(some.p, some.q, y, log_width, line.tilt)
        near = cut.plain and float(spectra.log_total(weighed.log_size)[0]) < _NEAR_ONE
        displaced = 4.0 * UNIT * float(np.max(stop - self.start))
        found = weighed.rule(cut.log_error, near, displaced)
        found = replace(found, wobble=found.wobble + 4.0 * UNIT * np.abs(share[cut.row])).flat()
        outside = np.logaddexp(1.0 - DEPTH, self._log_edge(line.tilt)) + share
        errors = np.append(np.ravel(outside), found.log_error)
        return replace(found, log_error=float(spectra.log_total(errors)))

    def _log_edge(self, tilt: float) -> Array:
        """Return logs of bounds on the effect of a few units of error in the starting points."""
        edges = self._tops(self.start, self.start, tilt)
        return np.asarray(np.maximum(*edges) + np.log(16.0 * UNIT * (1.0 + np.abs(self.start))))

    def _halved(self, line: Contour, stop: Array) -> _Cut:
        """Return panels on which a few nodes suffice."""
        each, share = _NODES[line.size > 1], np.log(self.weight)
        radii, row, place = self._whole(stop)
        found: list[tuple[Rows, Array, Array]] = []
        plain, target, left_out = False, 0.0, 0
        for halvings in range(_HALVINGS):
            check_deadline()
            some, radius = self.rows(row), radii[row, None] / 2**halvings
            middle = some.start + radius * (2.0 * place[:, None] + 1.0)
            size = np.log(2.0 * radius) + share[row]
            tops, mass = some._tops(middle - radius, middle + radius, line.tilt)
            if not halvings:
                plain = float(spectra.log_total(tops + size)[0]) < 1.0
            tops = (np.maximum(tops, mass) if plain else tops) + size
            if not halvings:
                # The moment of the round is at least about 1.
                target = max(float(np.max(tops)) - 5.0, 0.0) - DEPTH
            wanted = tops[:, 0] > target
            # The largest panel stays, so a plan always exists.
            wanted[np.argmax(tops)] |= not halvings
            left_out += len(row) - int(np.count_nonzero(wanted))
            row, place, middle, radius = (c[wanted] for c in (row, place, middle, radius))
            needed = self.rows(row)._needed(line, middle, radius, plain, target - share[row])
            short = needed > each
            found.append((row[~short], middle[~short], radius[~short]))
            if sum(len(rows) for rows, _, _ in found) + 2 * np.count_nonzero(short) > _MOST_SHORT:
                raise NoMoments
            row = np.repeat(row[short], 2)
            place = np.repeat(2 * place[short], 2) + np.tile([0, 1], np.count_nonzero(short))
            if not len(row):
                break
        rows, middles, radiuses = (np.concatenate(column) for column in zip(*found, strict=True))
        # Halves of the only panel that stayed may all be dropped.
        if len(row) or not len(rows):
            raise NoMoments
        log_error = math.log(2 * (len(rows) + left_out) + 4) + target - math.log(len(rows))
        return _Cut(rows, middles, radiuses, each, log_error, plain)

    def _whole(self, stop: Array) -> tuple[Array, Rows, Array]:
        """Return panels before any is halved: radii by row, and every panel's row and place."""
        length = (stop - self.start)[:, 0]
        with np.errstate(over="ignore", invalid="ignore"):
            count = np.ceil(length * np.maximum(0.5 * self.ends.spread[:, 0], 1.0 / 1.5))
        if not count.sum() < MOST_PANELS:
            raise NoMoments
        row = np.repeat(np.arange(len(count)), count.astype(np.int64))
        return length / (2.0 * count), row, np.concatenate([np.arange(n) for n in count])

    def _needed(
        self, line: Contour, middle: Array, radius: Array, plain: bool, target: Array
    ) -> Array:
        """Return the number of nodes that each row's panel needs, on its best ellipse."""
        # One column for each ellipse.
        d, reach = 0.5 * (_RHO - 1.0 / _RHO) * radius, 0.5 * (_RHO + 1.0 / _RHO) * radius
        low, high = middle - reach, middle + reach
        tilted, mass = self._tops(low, high, line.tilt)
        needed = tilted + self.ends.log_growth(d, line.tilt)
        if line.top > 0.0:
            needed = needed + line.top * phase_bound(self.p, self.q, self.ends, d, low, high)
        if plain:
            needed = np.maximum(needed, mass + 0.5 * d * d)
        needed = needed + _FACTORS + np.log(radius) - target
        # Farther out the sums may vanish, and the integrand is no longer analytic.
        usable = np.where(d * self.ends.spread <= 3.0, needed / (2.0 * np.log(_RHO)), math.inf)
        return np.asarray(usable.min(axis=1))

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
