"""Runs whose rounds are each one pair of a triangle, bounded by ever finer families of pairs.

The fold bounds a run by the worst case in every round at every loss at once. The game of ``game``
gives a tighter upper bound. It is played over pairs that together lie above every triangle, and it
bounds the loss that successive rounds can reach. A long run is first cut into blocks: the game of a
block has a profile, and the pairs of these profiles compose. The game over S and its swap, from
below, is attained by data that depend on earlier releases. See docs/theory/game.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from ...rounding import FEW, HUNDREDS, TENS, THOUSANDS, UNIT, Down, Up, rounded_up
from .. import clock
from ..clock import LateError
from ..curves.composed import compose
from ..curves.curve import Curve
from ..curves.discretised_laws import cells_law, merged, merged_downwards
from ..curves.lattice import MAX_POINTS, Array, Lattice, Side, TooLarge
from ..curves.triangles import Triangles, triangles
from ..moments.contour import NoMoments
from . import inversion
from .cells import RELATIVE, Gram, above_cell, above_zeroed, excess, given_way_excess
from .convolution import Composition
from .game import Window, chords, play
from .queries import LATE, STUCK, Interval, Question

METHOD = "PLD, game of adaptive rounds"
_PLANS = {
    False: "one unit sends C u in one data set and -C u, as every other does, in the other; "
    "which is which is decided in every round by earlier releases",
    True: "one unit sends C u or 0; every other sends -C u or C u, by a decision in every "
    "round by earlier releases",
}
_NEGLIGIBLE = 1e-6
"""Share of delta that the tails left out of all rounds may hold."""
_BESIDE = 20.0
"""h is kept from e^-20 of tilted mass below the answer on."""
_BEYOND = 15.0
"""h is kept up to e^-15 of tilted mass above the answer."""
_MIXED = 0.1
"""Part of the tolerance that mixing the fold into profiles may use."""
_MOST = 600.0
"""Larger exponents are not taken."""
BLOCK = 128
"""Rounds of a block. The profiles of blocks are in one order for data sets of one order."""
_LONG = 3
"""A run of at least so many blocks is first bounded by blocks."""


@dataclass(frozen=True)
class Mesh:
    """How finely triangles are distinguished.

    Args:
        cells: number of parts of a right angle.
        groups: largest smaller angles of groups of cells, in degrees; each group has a pair and its
            swap.
        other: width of the range of larger angles in a group, in degrees, counted from a right
            angle.
        knots: spacing of the losses where profiles are computed, relative to the loss.
        gap: part of the distance from the fold to the attained number that lattice rounding may
            use.
    """

    cells: int
    groups: tuple[float, ...]
    other: float
    knots: float
    gap: float


MESHES = (
    Mesh(20, (3.0, 10.0, 30.0), 90.0, 0.08, 0.05),
    Mesh(40, (1.5, 3.0, 6.0, 10.0, 16.0, 25.0, 40.0), 10.0, 0.05, 0.015),
    Mesh(80, tuple(45.0 * (k / 24) ** 1.6 for k in range(1, 24)), 8.0, 0.03, 0.005),
    Mesh(160, tuple(45.0 * (k / 64) ** 1.6 for k in range(1, 64)), 8.0, 0.02, 0.002),
)
_NO_FLOOR = Down(0.0)
_TOO_LARGE = "a lattice would be too large"
_NARROWER = 3.0
"""How much narrower the next mesh makes the interval, approximately."""
_SLOWER = 5.0
"""How much longer the next mesh takes than the last, approximately."""


def serves(question: Question) -> bool:
    """Return whether the curve is two or more equal rounds of triangles."""
    found = triangles(question.curve)
    return found is not None and found[1] > 1


def plan(curve: Curve) -> str:
    """Return the data sets that attain the lower end."""
    found = triangles(curve)
    assert found is not None
    return _PLANS[found[0].zeroed]


def alone(curve: Curve) -> Curve:
    """Return the run with the fold's upper half in every round, for a curve of triangles."""
    found = triangles(curve)
    assert found is not None
    return compose([(found[0].up, found[1])])


def refine(
    question: Question, folded: Interval, attained: Down, floor: Down = _NO_FLOOR
) -> Interval:
    """Return an interval of the largest loss of adaptive rounds; its lower end is attained.

    Args:
        question: the question about a run that ``serves`` accepts.
        folded: the interval of the fold of this order, whose upper end holds here too.
        attained: the number that S attains in every round.
        floor: a number below the answer, as the other order shows: smaller ones are not refined.
    """
    best = Interval(attained, folded.high, folded.method, STUCK)
    if _close(question, best, floor) or not 0.0 < folded.high < math.inf:
        return best._replace(reason="")
    try:
        board = _Board.of(question, best)
        if board.rounds >= _LONG * BLOCK:
            best = _narrowed(question, best, floor, (board.high_of_blocks, 0, len(MESHES) - 1))
            # Coarse meshes of the whole run are wider than fine ones of its blocks.
            first = len(MESHES) - 2
        else:
            first = 0
        if best.reason == STUCK and not _close(question, best, floor):
            best = best._replace(low=max(best.low, board.low(best)))
            best = _narrowed(question, best, floor, (board.high, first, len(MESHES)))
        if best.reason == LATE:
            return best._replace(reason="" if _close(question, best, floor) else LATE)
    except LateError:
        return best._replace(reason=LATE)
    # Too many rounds, or losses too large, for a lattice: the number of the fold remains.
    except (TooLarge, NoMoments, FloatingPointError):
        return best
    return best._replace(reason="" if _close(question, best, floor) else STUCK)


def _narrowed(
    question: Question,
    best: Interval,
    floor: Down,
    way: tuple[Callable[[Mesh, Interval], Up], int, int],
) -> Interval:
    """Return the interval after a way from its first mesh on, until it is narrow, or time short."""
    high_of, number, stop = way
    while number < stop and not _close(question, best, floor):
        begun = clock.now()
        try:
            high = high_of(MESHES[number], best)
        # What coarser meshes have narrowed stays.
        except LateError:
            return best._replace(reason=LATE)
        except (TooLarge, NoMoments, FloatingPointError):
            return best._replace(reason=_TOO_LARGE)
        if high < best.high:
            best = best._replace(high=high, method=METHOD)
        took = clock.now() - begun
        if clock.left() < _SLOWER * took:
            return best._replace(reason=LATE)
        ahead = _next(number, question.excess(best), clock.left() / max(took, 1e-9))
        number = min(ahead, max(stop - 1, number + 1))
    return best


def _next(number: int, excess: float, room: float) -> int:
    """Return the coarsest mesh that probably suffices, if ``room`` times the last time is left."""
    ahead = 1
    while number + ahead < len(MESHES) - 1 and _NARROWER**ahead < excess:
        ahead += 1
    while ahead > 1 and _SLOWER**ahead > room:
        ahead -= 1
    return number + ahead


def _close(question: Question, best: Interval, floor: Down) -> bool:
    return question.excess(best) <= 1.0 or best.high <= floor


@dataclass(frozen=True)
class _Board:
    """A question about triangles, with the tilt and the losses of the computation."""

    question: Question
    one: Triangles
    rounds: int
    log_delta: float
    tilt: float
    low_loss: float
    high_loss: float
    top: float
    """Loss of a round above which the remaining mass is negligible."""
    share: float
    """Share of the fold that is mixed into profiles, so that fewer of them suffice."""

    @classmethod
    def of(cls, question: Question, known: Interval) -> _Board:
        found = triangles(question.curve)
        assert found is not None
        one, rounds = found
        log_delta, epsilon = question.place(known)
        chernoff = inversion.chernoff(question.curve.moments(), -log_delta)
        tilt = chernoff.tilt
        low = -_BESIDE / (1.0 + tilt) - 1.0
        # Farther out the mass beyond the last knot, tilted, would make rounding errors large.
        high = min(1.3 * max(epsilon, chernoff.reach) + 1.0, epsilon + _BEYOND / (1.0 + tilt))
        top = _top(one, log_delta + math.log(_NEGLIGIBLE / rounds))
        # Exponentials of tilted values and of losses stay within doubles.
        tilted = tilt * (high + top - low) + abs(chernoff.here.value)
        if not max(tilted, top - math.log(one.q)) < _MOST:
            raise TooLarge
        share = min(_MIXED / max(question.excess(known), 1.0), 0.05)
        return cls(question, one, rounds, log_delta, tilt, low, high, top, share)

    def step(self, error: float) -> float:
        """Return the step for which rounding to chords moves the answer by about ``error``."""
        return math.sqrt(8.0 * error / (self.rounds * (1.0 + self.tilt)))

    def window(self, step: float, offset: float = 0.0) -> Window:
        """Return the window of a step."""
        start, stop = math.floor(self.low_loss / step), math.ceil(self.high_loss / step)
        if stop - start + 2.0 * self.top / step > MAX_POINTS:
            raise TooLarge
        return Window(step, start, stop - start, self.tilt, offset)

    def low(self, known: Interval) -> Down:
        """Return the number that the two corners attain, each played where it is worse."""
        # Two pairs cost little, so they get a much finer step than the many pairs above.
        step = self.step(0.1 * self.question.off(known, 0.005, self.tilt))
        tail = math.exp(self.log_delta) * _NEGLIGIBLE / self.rounds
        above, below = self.one.corners
        # S has much mass at its smallest losses, its swap at its largest. These are merged last, or
        # first.
        both = [
            merged(cells_law(above, 0.25 * step, tail), step, 0.0),
            merged_downwards(cells_law(below, 0.25 * step, tail), step, 0.0),
        ]
        offset = 0.0
        best = Down(0.0)
        # The second lattice has a point at the loss where the first one reaches delta.
        for _ in range(2):
            window = self.window(step, offset)
            logs = play(both, self.rounds, window, Side.DOWN)
            best = max(best, self.question.shown(window.losses(), logs))
            offset = self.question.near(window.losses(), logs) % step
        return best

    def high(self, mesh: Mesh, known: Interval) -> Up:
        """Return the upper end that the pairs of a mesh give."""
        step = self.step(self.question.off(known, mesh.gap, self.tilt))
        window = self.window(step)
        logs = play(self._family(mesh, step), self.rounds, window, Side.UP)
        return self.question.covered(window.losses(), logs)

    def high_of_blocks(self, mesh: Mesh, known: Interval) -> Up:
        """Return the upper end that the composed profiles of blocks of rounds give."""
        step = self.step(self.question.off(known, mesh.gap, self.tilt))
        family = self._family(mesh, step)
        count, rest = divmod(self.rounds, BLOCK)
        parts = [(self.block(family, step, BLOCK), count)]
        if rest:
            parts.append((self.block(family, step, rest), 1))
        return self.question.above(Composition(parts, Side.UP))

    def block(self, family: list[Lattice], step: float, rounds: int) -> Lattice:
        """Return masses whose profile is at least that of some rounds of the game, at every a."""
        least = self.log_delta + math.log(_NEGLIGIBLE * rounds / self.rounds)
        run = compose([(self.one, rounds)])
        # Beyond the window the profile counts as infinite loss.
        reach = inversion.chernoff(run.moments(), -least).reach
        if not reach < _MOST:
            raise TooLarge
        window = replace(self, high_loss=max(reach, step)).window(step)
        logs = play(family, rounds, window, Side.UP)
        losses = window.losses()
        kink = -np.expm1(np.minimum(losses, 0.0))
        above = rounded_up(np.exp(logs), THOUSANDS) - kink + np.where(losses < 0.0, FEW, 0.0)
        knots = np.array(range(window.start, window.start + window.size))
        # The profile is convex; its bounds are not quite, where rounding outweighs them.
        found = chords(_hull(np.maximum(above, 0.0), losses), knots, step)
        # Rounded masses exceed 1 together; then twice the mass at infinity is enough of it.
        excess_mass = max(float(found.mass.sum()) + found.infinite - 1.0, found.infinite)
        if not excess_mass * self.rounds < 0.1 * rounds:
            raise TooLarge
        return replace(found, infinite=2.0 * found.infinite)

    def _family(self, mesh: Mesh, step: float) -> list[Lattice]:
        fine = _knots(step, self.top, 0.02)
        family = [chords(each, fine, step) for each in _corners(self.one, step * fine)]
        knots = _knots(step, self.top, mesh.knots)
        losses = step * knots
        worst = np.maximum(*_corners(self.one, losses))
        for chain in _grams(self.one, mesh):
            profiles = [self._group(grams, worst, losses) for grams in chain]
            for most in _kept(profiles, worst, self.share):
                family.append(chords(most, knots, step))
                # Without a centre, u and v can exchange roles.
                if not self.one.zeroed:
                    family.append(chords(np.exp(losses) * most[::-1], knots, step))
        return family

    def _group(self, grams: list[Gram], worst: Array, losses: Array) -> Array:
        """Return a profile above those of a group's cells, minus (1 - a)^+."""
        most = np.zeros(len(losses))
        for gram in grams:
            clock.check_deadline()
            most = np.maximum(most, excess(gram, self.one.q, losses))
        # Every triangle lies below the fold, and every profile is convex.
        return _hull(np.minimum(most, worst), losses)


def _kept(profiles: list[Array], worst: Array, share: float) -> list[Array]:
    """Return fewer profiles; every given one is at most a mixture of two neighbours of these.

    Args:
        profiles: minus (1 - a)^+, at knots, ordered so that neighbours differ little.
        worst: a profile above all of them.
        share: of ``worst`` that is mixed into each profile.
    """
    raised = [(one + share * (worst - one)) * (1.0 + HUNDREDS) for one in profiles]
    last, found = 0, [raised[0]]
    while last < len(profiles) - 1:
        # The farthest profile up to which all between are mixtures; twice as far each time.
        good, tried, ahead = last + 1, last + 2, 2
        bad = len(profiles)
        while tried < bad:
            if _mixed(profiles[last + 1 : tried], raised[last], raised[tried]):
                good, ahead = tried, 2 * ahead
                tried = min(good + ahead, (good + bad) // 2 if bad < len(profiles) else bad - 1)
                if tried == good:
                    break
            else:
                bad = tried
                tried = (good + bad) // 2
                if tried == good:
                    break
        last = good
        found.append(raised[last])
    return found


def _mixed(between: list[Array], one: Array, other: Array) -> bool:
    """Return whether each profile is at most a mixture of the two others."""
    away = one - other
    with np.errstate(all="ignore"):
        for profile in between:
            wanted = profile * (1.0 + TENS)
            need = (wanted - other) / away
            low = float(np.max(need[away > 0.0], initial=0.0))
            high = float(np.min(need[away < 0.0], initial=1.0))
            part = 0.5 * (low + high)
            if not low <= high or bool(np.any(other + part * away < wanted)):
                return False
    return True


def _top(one: Triangles, log_least: float) -> float:
    """Return a loss above which the remaining mass is negligible."""
    grid = np.geomspace(1e-3, 1e3, 200)
    with np.errstate(over="ignore"):
        tails = [corner.tails(grid).p_above for corner in one.corners]
        small = np.flatnonzero(np.maximum(*tails) <= log_least)
    if not len(small):
        raise TooLarge
    return float(grid[small[0]])


def _knots(step: float, top: float, growth: float) -> Array:
    """Return multiples of a step from -top to top: evenly up to 1.6 growth, then in proportion."""
    least = max(int(1.6 * growth * growth / step), 1)
    found = [0]
    while found[-1] * step < top:
        found.append(found[-1] + max(least, int(growth * found[-1])))
    half = np.array(found)
    return np.concatenate([-half[:0:-1], half])


def _corners(one: Triangles, losses: Array) -> tuple[Array, Array]:
    """Return upper bounds of the corners' profiles minus (1 - a)^+; see ``cells.excess``."""
    s, w = _sampled(one, losses)
    if not one.zeroed:
        return s, w
    away = given_way_excess(one.mu, one.q, losses)
    return (s, np.exp(losses) * away[::-1]) if one.turned else (away, w)


def _sampled(one: Triangles, losses: Array) -> tuple[Array, Array]:
    """Return upper bounds of the profiles of S and of its swap, minus (1 - a)^+."""
    mu, q = one.mu, one.q
    far = losses[len(losses) // 2 :]
    a = np.exp(far)
    present = _gain(1.0 + np.expm1(far) / q, mu)
    # Absent against present: likelihood ratios below c, rounded up because c may be close to 0.
    c = np.maximum(1.0 + np.expm1(-far) / q, 0.0) + 8 * UNIT
    absent = a * _gain(c, mu, below=True)
    s = q * np.concatenate([(absent / a)[:0:-1], present])
    return s, np.exp(losses) * s[::-1]


def _gain(c: Array, mu: float, *, below: bool = False) -> Array:
    """Return upper bounds of the integral of (N(mu) - c N(0))^+; sign flipped if ``below``."""
    with np.errstate(divide="ignore"):
        cut = np.log(c) / mu + 0.5 * mu
    sign = -1.0 if below else 1.0
    there, here = ndtr(sign * (mu - cut)), c * ndtr(-sign * cut)
    found = np.maximum(sign * (there - here), 0.0) + RELATIVE * (there + here) + 1e-300
    return np.asarray(found)


def _grams(one: Triangles, mesh: Mesh) -> list[list[list[Gram]]]:
    """Return chains of groups of products that together lie above those of every triangle."""
    if not one.zeroed:
        return [
            [[above_cell(one.mu, *cell) for cell in cells] for cells in chain]
            for chain in _groups(mesh)
        ]
    # By the angle between x and y.
    edges = -np.cos(np.linspace(0.0, math.pi, 2 * mesh.cells + 1))
    grams = [above_zeroed(one.mu, *ends) for ends in itertools.pairwise(edges.tolist())]
    return [[[gram.swap() if one.turned else gram] for gram in grams]]


_Cell = tuple[tuple[float, float], tuple[float, float]]


def _groups(mesh: Mesh) -> list[list[list[_Cell]]]:
    """Return groups of cells ((g, g'), (b, b')) with b at most g, by their smaller angle.

    A chain has the groups of one range of larger angles, in order.
    """
    x = np.arange(mesh.cells + 1) / mesh.cells
    # Halfway to a curve that is flat at both ends, where triangles differ most.
    edges = (0.25 * math.pi * (x + 3.0 * x**2 - 2.0 * x**3)).tolist()
    edges[-1] = math.nextafter(0.5 * math.pi, 2.0)
    found: dict[int, dict[int, list[_Cell]]] = {}
    for i in range(mesh.cells):
        for j in range(i + 1):
            # Rounded towards keeping a cell. A triangle with an obtuse angle lies below another
            # triangle.
            if edges[i + 1] + edges[j + 1] >= 0.5 * math.pi - 1e-12:
                small = int(np.searchsorted(mesh.groups, math.degrees(edges[j]) + 1e-9))
                chain = found.setdefault(int((90.0 - math.degrees(edges[i])) / mesh.other), {})
                cell = (edges[i], edges[i + 1]), (edges[j], edges[j + 1])
                chain.setdefault(small, []).append(cell)
    return [[chain[small] for small in sorted(chain)] for chain in found.values()]


def _hull(most: Array, losses: Array) -> Array:
    """Return the largest convex profile below one given at knots, minus (1 - a)^+."""
    kink = -np.expm1(np.minimum(losses, 0.0))
    x, y = np.append(0.0, np.exp(losses)).tolist(), np.append(1.0, most + kink).tolist()
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            h, k = kept[-2], kept[-1]
            # Leaving a point out only raises the polyline through the others.
            if (y[k] - y[h]) * (x[i] - x[h]) < (y[i] - y[h]) * (x[k] - x[h]):
                break
            kept.pop()
        kept.append(i)
    drawn = np.interp(x[1:], np.array(x)[kept], np.array(y)[kept]) - kink
    on = np.array([i - 1 for i in kept[1:]])
    found = np.maximum(drawn + FEW, 0.0)
    found[on] = most[on]
    return np.asarray(np.minimum(found, most))
