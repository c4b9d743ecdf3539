"""Moments of a part of a round: of the outcomes between given points.

A fold consists of half lines, and ``tail_splitting`` splits a round at a large loss. Each piece is
integrated by Gauss-Legendre panels; see docs/theory/inversion.md and docs/theory/jumps.md.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...rounding import UNIT
from ..clock import check_deadline
from . import spectrum as spectra
from . import staircase
from .contour import Array, Contour, NoMoments
from .gaussian_rules import DEPTH, MAX_NODES, GaussianPair, Weighed, between
from .half_lines import HalfLines, shape_of, stacked
from .legendre import legendre
from .moments import Moments
from .spectrum import Cumulants, Decay, HalfLine, Leaf, Rule, Spectrum, log_total

LOG_OFF_ATOM = -34.5
"""Log of a bound on the rounding of an atom, which is 1 minus the masses of the pieces."""
_MOST_NODES = 1 << 18
_MOST_PANELS = 1 << 14
_HALVINGS = 14
_TALL = 100.0
"""From this height on, panels of many lengths are worth their search for a single piece."""
_SERVED = 3.0
"""A rule for heights up to this number of times those of a line serves the line."""
_RHO = np.array([2.0, 3.0, 4.0, 5.5, 7.5])
"""Ellipses that are tried: sums of the half axes, in radii of a panel."""


class _Needs(NamedTuple):
    """The requirements of a rule.

    Args:
        tilt: real part of s.
        height: largest imaginary part.
        near: whether the nodes may serve P's own mass, too.
        whole: whether the piece is a half line of a whole round.
        floor: log of a size; errors of e^-40 times this size are negligible.
    """

    tilt: float
    height: float
    near: bool
    whole: bool
    floor: float


class _Interval(NamedTuple):
    """The interval of integration of a piece, and the log of a bound on the part outside."""

    low: float
    high: float
    log_outside: float


class _Plan(NamedTuple):
    """Panels of one radius with ``each`` nodes, and the log of a bound on their error."""

    middle: Array
    radius: float
    each: int
    log_error: float
    plain: bool

    @property
    def nodes(self) -> int:
        """Total number of nodes."""
        return self.each * len(self.middle)


@dataclass(frozen=True)
class Piece:
    """The outcomes y of a pair between two points.

    Args:
        weight: weight of the pair's label.
        pair: the pair of the label.
        start: smallest outcome, or -inf.
        stop: largest outcome, or inf.
        most: an upper bound on the loss of these outcomes.
    """

    weight: float
    pair: GaussianPair
    start: float = -math.inf
    stop: float = math.inf
    most: float = math.inf

    finite = None

    @property
    def divisible(self) -> Piece:
        """The piece itself."""
        return self

    def swap(self) -> Piece:
        """Return the same outcomes of (Q, P), whose losses are at most 0 where P's were above."""
        return replace(self, pair=self.pair.swap(), most=0.0)

    @property
    def mass(self) -> float:
        """P's mass, with the label's weight."""
        return self.weight * self.pair.mass(self.start, self.stop)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return log of the integral and two derivatives, without the weight, to a few digits."""
        return self.pair.cumulants(tilt, *self._within(tilt, 18.0))

    def lost(self, at: Spectrum, heights: Array) -> Array:
        """Return how far the integral falls, with the weight: see ``GaussianPair.lost``."""
        ends = self._within(at.tilt, DEPTH)
        return self.weight * self.pair.lost(at, heights, *ends)

    def _within(self, tilt: float, depth: float) -> tuple[float, float]:
        """Return the piece without parts that add up to at most e^-depth.

        The integrand is P's density times e^{tilt loss}, which is at most the factor at the largest
        loss.
        """
        if self.most == math.inf:
            return self.start, self.stop
        # Beyond this radius P's Gaussian tails times e^{tilt most} are below e^-depth.
        radius = math.sqrt(2.0 * (depth + tilt * max(self.most, 0.0)))
        means = [mean for _, mean in self.pair.p]
        low, high = max(self.start, min(means) - radius), min(self.stop, max(means) + radius)
        return (low, high) if low < high else (self.start, self.stop)

    def rule(self, tilt: float, height: float, near: bool, whole: bool, log_size: float) -> Rule:
        """Return Gauss-Legendre panels up to a height, without the label's weight.

        Args:
            tilt: real part of s.
            height: largest imaginary part.
            near: whether the nodes may serve P's own mass, too.
            whole: whether the piece is a half line of a whole round.
            log_size: approximate log of the size of the total; errors of e^-40 times that size are
                negligible.

        Raises:
            NoMoments: the rule would need too many nodes.
        """
        check_deadline()
        asked = _Needs(tilt, height, near, whole, log_size - math.log(self.weight))
        interval = self._interval(asked)
        best: _Plan | None = None
        for width in self._widths(asked):
            plan = self._plan(asked, width, interval)
            # Halving the panels saves nodes until their number dominates; the best plan is at the
            # turn.
            if plan is not None and best is not None and plan.nodes >= best.nodes:
                break
            best = plan or best
        if best is None or best.nodes > _MOST_NODES:
            raise NoMoments
        at, widths = legendre(best.each)
        y = (best.middle[:, None] + best.radius * at).ravel()
        log_width = np.tile(np.log(best.radius * widths), len(best.middle))
        errors = [best.log_error, interval.log_outside, *self._log_edges(tilt)]
        log_error = float(log_total(np.array(errors)))
        # A node has the rounding error of the interval that it divides.
        displaced = 4.0 * UNIT * (interval.high - interval.low)
        weighed = Weighed.at(self.pair.p, self.pair.q, y, log_width, tilt)
        return weighed.rule(log_error, best.plain and weighed.near(self.weight), displaced)

    def _interval(self, asked: _Needs) -> _Interval:
        """Return the interval of integration, for the piece and for P's mass."""
        # Errors count relative to the total, so a small total needs a deeper integral.
        depth = max(DEPTH + 1.0 - asked.floor, 1.0)
        here, plain = self.pair.span(asked.tilt, depth), self.pair.span(0.0, depth)
        start, stop = self._within(asked.tilt, depth)
        low, high = between(start, stop, min(here[0], plain[0]), max(here[1], plain[1]))
        found = _Interval(low, high, 2.0 - depth)
        return found if asked.whole else self._trimmed(asked, found)

    def _trimmed(self, asked: _Needs, interval: _Interval) -> _Interval:
        """Return the interval without outer cells of negligible size."""
        if not interval.high - interval.low < MAX_NODES / 4.0 - 1.0:
            raise NoMoments
        edges, log_top = self.pair.cells(interval.low, interval.high, asked.tilt)
        if asked.near:
            log_top = np.maximum(log_top, self.pair.cells(interval.low, interval.high, 0.0)[1])
        target = max(float(np.max(log_top)) - 5.0, asked.floor) - DEPTH
        # The largest cell always stays.
        heavy = np.flatnonzero(log_top > min(target, float(np.max(log_top)) - 1e-9))
        dropped = target + math.log(2 * len(log_top))
        outside = float(np.logaddexp(interval.log_outside, dropped))
        return _Interval(float(edges[heavy[0]]), float(edges[heavy[-1] + 1]), outside)

    def _widths(self, asked: _Needs) -> Iterator[float]:
        """Yield widths of panels to try, until one needs more nodes than the one before."""
        spread = max(self.pair.spread, 1e-9)
        widest = min(1.5, 2.0 / spread)
        if asked.whole:
            yield min(widest, 40.0 / max(asked.height * spread, 1e-9))
        else:
            yield from (widest / 2**k for k in range(_HALVINGS))

    def _plan(self, asked: _Needs, width: float, inside: _Interval) -> _Plan | None:
        """Return panels of about a width, None if they would need too many nodes."""
        panels = math.ceil((inside.high - inside.low) / width)
        if panels > _MOST_PANELS:
            return None
        radius = (inside.high - inside.low) / (2 * panels)
        middle = np.asarray(inside.low + radius * (2 * np.arange(panels) + 1.0), dtype=np.float64)
        log_top = self.pair.log_top(middle - radius, middle + radius, asked.tilt)
        log_top = log_top + math.log(2 * radius)
        size = float(log_total(log_top)) + math.log(self.weight)
        plain = asked.near and (not asked.whole or size < 1.0)
        if plain:
            mass = self.pair.log_top(middle - radius, middle + radius, 0.0) + math.log(2 * radius)
            log_top = np.maximum(log_top, mass)
        target = max(float(np.max(log_top)) - 5.0, asked.floor) - DEPTH
        wanted = log_top > target
        # The largest panel stays, so a plan always exists.
        wanted[np.argmax(log_top)] = True
        try:
            factor, rho = self._ellipse(asked, middle[wanted], radius, plain, target)
            count = spectra.node_count((factor - target) / (2 * math.log(rho)))
        except NoMoments:
            return None
        return _Plan(middle[wanted], radius, count, math.log(2 * panels + 4) + target, plain)

    def _ellipse(
        self, asked: _Needs, middle: Array, radius: float, plain: bool, target: float
    ) -> tuple[float, float]:
        """Return (log of a factor, rho): the error of a panel is at most the factor times rho^-2n.

        ``plain``: the factor also holds for P's own mass; ``target``: log of the wanted error.
        """
        # A larger ellipse converges faster, but the integrand grows on it, so a few are tried. At
        # an angle of pi the sums may vanish, and the integrand is no longer analytic.
        rho = _RHO[0.5 * (_RHO - 1.0 / _RHO) * radius * self.pair.spread <= 3.0]
        if not len(rho):
            raise NoMoments
        d, reach = 0.5 * (rho - 1.0 / rho) * radius, 0.5 * (rho + 1.0 / rho) * radius
        low, high = middle - reach[:, None], middle + reach[:, None]
        needed = self.pair.log_top(low, high, asked.tilt)
        if asked.height > 0.0:
            needed = needed + asked.height * self.pair.phase(d[:, None], low, high)
        needed = needed + self.pair.ends.log_growth(d, asked.tilt)[:, None]
        if plain:
            growth = 0.5 * d * d
            needed = np.maximum(needed, self.pair.log_top(low, high, 0.0) + growth[:, None])
        factor = np.max(needed, axis=1) + np.array([spectra.panel_factor(radius, r) for r in rho])
        # The number of nodes that an ellipse needs is proportional to this.
        best = int(np.argmin((factor - target) / np.log(rho)))
        return float(factor[best]), float(rho[best])

    def _log_edges(self, tilt: float) -> list[float]:
        """Return logs of bounds on the effect of a few units of error in the ends."""
        ends = np.array([edge for edge in (self.start, self.stop) if math.isfinite(edge)])
        tops = np.maximum(self.pair.log_top(ends, ends, tilt), self.pair.log_top(ends, ends, 0.0))
        return list(tops + np.log(16.0 * UNIT * (1.0 + np.abs(ends))))


def _serves(taller: Contour, line: Contour) -> bool:
    """Return whether a rule for one line serves another with few nodes too many."""
    return taller.tilt == line.tilt and line.top <= taller.top <= _SERVED * line.top


def above(weight: float, pair: Leaf) -> HalfLine:
    """Return the outcomes of a pair with a loss above 0.

    Raises:
        NoMoments: they are not known to be a half line.
    """
    if pair.halved is not None:
        return pair.halved.above(weight)
    if pair.gaussian is None:
        raise NoMoments
    oriented, start = pair.gaussian.oriented()
    return Piece(weight, oriented, start)


@dataclass(frozen=True)
class Part(Moments):
    """Some outcomes of a round: pieces of its labels' pairs, and a mass at loss 0.

    Args:
        pieces: pieces of all labels.
        atom: P's mass at loss 0 that is not in the pieces.
        missing: P's mass of all other outcomes.
        rare: whether most of the mass is missing: the moments of the part are then far from 1.
    """

    pieces: tuple[HalfLine, ...]
    atom: float = 0.0
    missing: float = 0.0
    rare: bool = False

    @property
    def whole(self) -> bool:
        """Whether the part holds all outcomes."""
        return self.missing == 0.0

    @property
    def ordinary(self) -> bool:
        """Whether the part is all of a round, with moments near 1."""
        return self.whole and not self.rare

    @functools.cached_property
    def _groups(self) -> list[tuple[HalfLines | None, list[HalfLine]]]:
        """Pieces that share arrays, such as those of many labels, and the arrays; others alone."""
        if not self.ordinary:
            return [(None, list(self.pieces))]
        return [
            (HalfLines.of(group) if shape_of(group[0]) else None, group)
            for group in stacked(self.pieces)
        ]

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the sum of the integrals of the pieces and the mass at loss 0.

        Raises:
            NoMoments: too many nodes would be needed.
        """
        # The bounds on the decay, coarse and then fine, begin with the same point.
        known: tuple[Contour, Spectrum] | None = self.__dict__.get("_last")
        if known is None or known[0] != line:
            known = self.__dict__["_last"] = line, self._integrated(line)
        return known[1]

    def _integrated(self, line: Contour) -> Spectrum:
        if line.size == 1:
            return self._rule(line).spectrum(line)
        # A bound on the decay asks for heights a little above those of the line that follows. The
        # rule for these heights serves both, and is then forgotten.
        known: tuple[Contour, Rule] | None = self.__dict__.pop("_served", None)
        if known is None or not _serves(known[0], line):
            known = self.__dict__["_served"] = line, self._rule(line)
        return known[1].spectrum(line)

    def _rule(self, line: Contour) -> Rule:
        """Return the rule for all pieces and the mass at loss 0, for heights up to the line's."""
        near, whole = not self.rare, self.whole
        size = self.cumulants(line.tilt).value if self.rare else 0.0
        rules = []
        for together, pieces in self._groups:
            # Where all would need too many nodes together, some may need few alone.
            with contextlib.suppress(NoMoments):
                if together is not None and (len(pieces) > 1 or line.top > _TALL):
                    rules.append(together.joined(line))
                    continue
            for piece in pieces:
                rule = piece.rule(line.tilt, line.top, near, whole, size)
                rules.append(rule.weighted(math.log(piece.weight)))
        return self._joined(rules)

    def _joined(self, rules: list[Rule]) -> Rule:
        """Return one rule with the nodes of all pieces, which have the weights of their pieces."""
        errors = [float(np.max(rule.log_error)) for rule in rules]
        plain = [rule.log_plain for rule in rules if rule.log_plain is not None]
        # The moment minus 1 has its own digits only if every piece serves P's mass.
        near = len(plain) == len(rules)
        if not near and not self.rare:
            errors.append(LOG_OFF_ATOM)
        return Rule(
            np.concatenate([rule.log_weight for rule in rules]),
            np.concatenate([rule.loss for rule in rules]),
            np.concatenate([rule.wobble for rule in rules]),
            np.concatenate([rule.slip for rule in rules]),
            float(spectra.log_total(np.array(errors))),
            self.atom,
            np.concatenate(plain) if near else None,
            self.missing,
        )

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the cumulants of the mixture of the pieces and the atom."""
        found: list[tuple[float, Cumulants]] = []
        for together, pieces in self._groups:
            with contextlib.suppress(NoMoments):
                if together is not None and len(pieces) > 1:
                    found += [(1.0, Cumulants(*row)) for row in together.cumulants(tilt).T.tolist()]
                    continue
            found += [(piece.weight, piece.cumulants(tilt)) for piece in pieces]
        return spectra.mix_cumulants([*found, (self.atom, Cumulants(0.0, 0.0, 0.0))])

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return bounds on the moments at and above each height: see ``Moments.decay``."""

        def lost(at: Spectrum) -> Array:
            falls = []
            for together, pieces in self._groups:
                if together is not None and len(pieces) > 1 and together.short(tilt):
                    mass, width = (column.ravel() for column in together.slabs(at))
                    falls.append(staircase.lost(mass, width, heights))
                else:
                    falls += [piece.lost(at, heights) for piece in pieces]
            return np.asarray(sum(falls))

        return spectra.slab_decay(self.spectrum, tilt, heights, fine, lost)
