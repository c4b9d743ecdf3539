"""Runs whose rounds are each one pair of a triangle, bounded by ever finer families of pairs.

The fold bounds a run by the worst case in every round at every loss at once. The game of ``game``
gives a tighter upper bound. It is played over pairs that together lie above every triangle, and it
bounds the loss that successive rounds can reach. A long run is first cut into blocks: the game of a
block has a profile, and the pairs of these profiles compose. The game over S and its swap, from
below, is attained by data that depend on earlier releases. See docs/theory/game.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...rounding import FEW, THOUSANDS, Down, Up, rounded_up
from .. import clock
from ..clock import LateError
from ..curves.composed import compose
from ..curves.curve import Curve
from ..curves.discretised_laws import cells_law, merged, merged_downwards
from ..curves.lattice import MAX_POINTS, Array, Lattice, Side, TooLarge
from ..curves.triangles import Triangles, triangles
from ..moments.contour import NoMoments
from . import inversion
from .cells import above_zeroed, excess, given_way_excess, mirrored, sampled_excess
from .convolution import Composition
from .game import Window, chords, play
from .queries import LATE, STUCK, Interval, Question
from .triangle_cells import TriangleProfiles, squares

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
_MOST = 600.0
"""Larger exponents are not taken."""
BLOCK = 128
"""Rounds of a block. The profiles of blocks are in one order for data sets of one order."""
_LONG = 3
"""A run of at least so many blocks is first bounded by blocks."""


@dataclass(frozen=True)
class Mesh:
    """How finely triangles are distinguished: more where they are close to a corner of the game.

    Args:
        edge: length, in radians, of an arc that is not divided.
        growth: an arc is not divided either if it is at most this part of its distance from the
            nearer corner.
        group: the same part for arcs whose triangles share a pair; these are not divided either if
            they are at most twice the edge.
        zeroed: length of the arcs of a zeroed unit, whose bounds err in proportion to it.
        knots: spacing of the losses where profiles are computed, relative to the loss.
        gap: part of the distance from the fold to the attained number that lattice rounding may
            use.
    """

    edge: float
    growth: float
    group: float
    zeroed: float
    knots: float
    gap: float


MESHES = (
    Mesh(0.1, 0.2, 0.5, 0.1, 0.03, 0.01),
    Mesh(0.05, 0.12, 0.5, 0.05, 0.015, 0.001),
    Mesh(0.0125, 0.1, 0.25, 0.0125, 0.01, 0.0005),
    Mesh(0.00625, 0.05, 0.25, 0.00625, 0.008, 0.0002),
)
_CORNERS = 0.005
"""Spacing of the knots of the two corners, whose profiles are closed forms."""
_NO_FLOOR = Down(0.0)
_TOO_LARGE = "a lattice would be too large"
_SLOWER = 2.0
"""How much longer the next mesh takes than the last, at least."""


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
        meshes: Sequence[Mesh] = MESHES
        if board.rounds >= _LONG * BLOCK:
            best = _narrowed(question, best, floor, board.high_of_blocks, MESHES[:3])
            # Coarse meshes of the whole run are wider than fine ones of its blocks.
            meshes = MESHES[2:]
        if best.reason == STUCK and not _close(question, best, floor):
            best = best._replace(low=max(best.low, board.low(best)))
            best = _narrowed(question, best, floor, board.high, meshes)
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
    high_of: Callable[[Mesh, Interval], Up],
    meshes: Sequence[Mesh],
) -> Interval:
    """Return the interval after one mesh after another, until it is narrow, or time short."""
    took = 0.0
    for mesh in meshes:
        if _close(question, best, floor):
            break
        # What coarser meshes have narrowed stays.
        if clock.left() < _SLOWER * took:
            return best._replace(reason=LATE)
        begun = clock.now()
        try:
            high = high_of(mesh, best)
        except LateError:
            return best._replace(reason=LATE)
        except (TooLarge, NoMoments, FloatingPointError):
            return best._replace(reason=_TOO_LARGE)
        if high < best.high:
            best = best._replace(high=high, method=METHOD)
        took = clock.now() - begun
    return best


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
        return cls(question, one, rounds, log_delta, tilt, low, high, top)

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
        step = self.step(0.2 * self.question.off(known, 0.001, self.tilt))
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
        fine = _knots(step, self.top, _CORNERS)
        family = [chords(each, fine, step) for each in _corners(self.one, step * fine)]
        knots = _knots(step, self.top, mesh.knots)
        losses = step * knots
        worst = np.maximum(*_corners(self.one, losses))
        groups = _groups_of_zeroed if self.one.zeroed else _groups_of_triangles
        for most in groups(self.one, mesh, losses):
            clock.check_deadline()
            # Every triangle lies below the fold, and every profile is convex.
            family.append(chords(_hull(np.minimum(most, worst), losses), knots, step))
        return family


def _groups_of_triangles(one: Triangles, mesh: Mesh, losses: Array) -> Iterator[Array]:
    """Yield profiles above those of all triangles in a square of angles; an arc is twice an angle.

    Args:
        one: the round.
        mesh: how small the squares of a group are.
        losses: shape (k,), symmetric; so are the profiles, minus (1 - a)^+.
    """
    profiles = TriangleProfiles(one.mu, one.q, losses)
    for group in squares(mesh.edge, mesh.group):
        most = profiles.most(squares(0.5 * mesh.edge, mesh.growth, group))
        yield most
        # Without a centre, u and v can exchange roles.
        yield mirrored(most, losses)


def _groups_of_zeroed(one: Triangles, mesh: Mesh, losses: Array) -> Iterator[Array]:
    """Yield profiles above those of all pairs of a zeroed unit with x and y in a range of arcs."""
    for group in _arcs(2.0 * mesh.edge, mesh.growth, (0.0, math.pi)):
        most = np.zeros(len(losses))
        for low, high in _arcs(mesh.zeroed, 0.0, group):
            gram = above_zeroed(one.mu, -math.cos(low), -math.cos(high))
            products = gram.swap() if one.turned else gram
            most = np.maximum(most, excess(products, one.q, losses))
        yield most


def _arcs(edge: float, growth: float, inside: tuple[float, float]) -> list[tuple[float, float]]:
    """Divide an arc; see ``Mesh``. The corners of the game are at 0 and pi."""
    low, high = inside
    if high - low <= max(edge, growth * min(low, math.pi - high)):
        return [inside]
    middle = 0.5 * (low + high)
    return _arcs(edge, growth, (low, middle)) + _arcs(edge, growth, (middle, high))


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
    sampled = sampled_excess(one.mu, one.q, losses)
    if not one.zeroed:
        return sampled, mirrored(sampled, losses)
    given = given_way_excess(one.mu, one.q, losses)
    if one.turned:
        return sampled, mirrored(given, losses)
    return given, mirrored(sampled, losses)


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
