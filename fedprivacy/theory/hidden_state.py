"""Hidden-state accounting of noisy gradient descent: theorems T6 and T16."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ..errors import integer, positive, real, refuse, require
from ..rounding import TENS, UNIT, rounded_up


def contraction_gap(step_size: float, strong_convexity: float, smoothness: float) -> float:
    """Return 1 - c for a gradient step's contraction factor c = max(|1 - s m|, |1 - s L|).

    The loss is m-strongly convex and L-smooth, in any dimension. A gradient step of size s moves
    two points to at most c times their distance (Nesterov 2018, Theorem 2.1.12 with the two ends of
    the spectrum). The gap is min(s m, 2 - s L), computed without cancellation.

    Args:
        step_size: s, in (0, 2 / L).
        strong_convexity: m, in (0, L].
        smoothness: L.

    Raises:
        ParameterError: a value out of its range; outside (0, 2 / L) the step does not contract.
    """
    step, m, smooth = (
        positive(step_size=step_size),
        positive(strong_convexity=strong_convexity),
        positive(smoothness=smoothness),
    )
    require(m <= smooth, "strong_convexity", m, f"be at most smoothness = {smooth:g}")
    # Exact arithmetic: 2 - s L cancels near the end of the range, and only rounding would be left.
    room = 2 - Fraction(step) * Fraction(smooth)
    require(
        room > 0,
        "step_size",
        step,
        f"be below 2 / smoothness = {2.0 / smooth:g}, so that steps contract",
    )
    return float(min(Fraction(step) * Fraction(m), room))


def hidden_state_factor(gap: float, steps: int) -> float:
    """Return mu of ``steps`` noisy contractive steps over mu of one step, if only the last is seen.

    T6 (shifted interpolation, Bok, Su and Altschuler 2024): both data sets share the start. The
    steps contract by c = 1 - gap. Each step moves by at most s between neighbours and is followed
    by Gaussian noise of std sd. Then the end is mu-GDP with mu = (s / sd) times

        sqrt((1 - c^t) / (1 + c^t) * (1 + c) / (1 - c)),

    which is between 1 and sqrt(t). The proof requires a map that contracts for all data. A clipped
    gradient step does not.

    Args:
        gap: 1 - c, in (0, 1].
        steps: t, at least 1.

    Raises:
        ParameterError: a value out of its range.

    >>> f"{hidden_state_factor(0.5, 20):.6f}"
    '1.732049'
    """
    times = integer(1, steps=steps)
    require(positive(gap=gap) <= 1.0, "gap", gap, "be at most 1")
    # Earlier steps have no effect, or there is only one step; below, tanh would get infinity.
    if gap == 1.0 or times == 1:
        return 1.0
    # (1 - c^t) / (1 + c^t) is tanh of t times half the log, which avoids cancellation of powers.
    half = -0.5 * math.log1p(-gap)
    # Half of the smallest double is 0.
    if half == 0.0:
        return math.sqrt(times)
    return math.sqrt(math.tanh(times * half) / math.tanh(half))


def projected_gap(step_size: float, strong_convexity: float, smoothness: float) -> float:
    """Return 1 - c for a step that ends with a projection; c may be 1, or larger.

    A gradient step of size s on a loss of curvatures between m and L moves two points to at most
    c = max(1 - s m, s L - 1) times their distance. A convex loss (m >= 0) needs s <= 2 / L. Below 0
    the loss is not convex, c is above 1, and every s is valid.

    Args:
        step_size: s, above 0.
        strong_convexity: m, at most L.
        smoothness: L, at least -m.

    Raises:
        ParameterError: a value out of its range.
    """
    if strong_convexity > 0.0:
        return contraction_gap(step_size, strong_convexity, smoothness)
    step, smooth = positive(step_size=step_size), positive(smoothness=smoothness)
    weak = -real(strong_convexity=strong_convexity)
    require(weak <= smooth, "strong_convexity", -weak, f"be at least -smoothness = {-smooth:g}")
    # Exact arithmetic, as at the end of the range only rounding would decide.
    room = 2 - Fraction(step) * Fraction(smooth)
    if not weak:
        rule = (
            f"be at most 2 / smoothness = {2.0 / smooth:.17g}, so that steps move no points apart"
        )
        require(room >= 0, "step_size", step, rule)
    return float(min(-Fraction(step) * Fraction(weak), room)) if weak else 0.0


def projected_factor(gap: float, steps: int, reach: float) -> float:
    """Return a bound on mu over mu of one step, if steps end with a projection on a bounded set.

    T16: steps move no two points farther apart than c = 1 - gap times their distance. Each moves by
    at most s between neighbours, is followed by Gaussian noise of std sd and a projection on a
    convex set of diameter D. Only the end is seen. Then for every j <= t the end is mu-GDP with mu
    = (s / sd) times

        (c^j D / s + S1) / sqrt(S2),  S1 = 1 + c + ... + c^(j-1),  S2 = 1 + c^2 + ... + c^(2 (j-1)),

    for c > 1 only if c^j D / s + S1 is at least S2. The j with the least number is taken. The
    result is rounded up.

    Args:
        gap: 1 - c, at most 1; below 0 for steps that move points apart.
        steps: t, at least 1.
        reach: D / s, above 0.

    Raises:
        ParameterError: a value out of its range.

    >>> f"{projected_factor(0.0, 10**6, 400.0):.6f}"
    '40.000000'
    """
    times = integer(1, steps=steps)
    require(real(gap=gap) <= 1.0, "gap", gap, "be at most 1")
    best = positive(reach=reach)
    # Below this number the bound falls with j, above it rises.
    if gap == 0.0:
        turn = best
    elif best * gap < 1.0:
        turn = math.log1p(-best * gap) / math.log1p(-gap) if gap < 1.0 else 1.0
    else:
        turn = math.inf
    near = times if turn >= times else max(1, math.floor(turn))
    # Every j is valid, so a rounded turn costs nothing but width.
    return min(_after_free(gap, j, reach) for j in {near, min(near + 1, times)})


def _after_free(gap: float, steps: int, reach: float) -> float:
    """Return the bound of ``projected_factor`` for one j, rounded up; infinity if it is not valid.

    With c > 1 it is not computed for sums that overflow.
    """
    if gap == 0.0:
        return rounded_up((reach + steps) / math.sqrt(steps), TENS)
    if gap == 1.0:
        return rounded_up(1.0, TENS)
    power = steps * math.log1p(-gap)
    if power > 300.0:
        return math.inf
    left = math.exp(power) * reach
    once = -math.expm1(power) / gap
    twice = -math.expm1(2.0 * power) / (gap * (2.0 - gap))
    # The exponential errs by the error of its argument, a few units of the argument.
    off = TENS + 8.0 * UNIT * min(abs(power), 750.0)
    # The last payment must cover what the last step adds (docs/theory/theorems.md).
    if gap < 0.0 and not (left + once) * (1.0 - off) >= twice * (1.0 + off):
        return math.inf
    return rounded_up((left + once) / math.sqrt(twice), off)


class OnBall(NamedTuple):
    """What quadratics show of projected steps: two Gaussians on an interval, almost.

    Attributes:
        mu: distance of their means, in stds.
        reach: half length of the interval around their middle, in stds.
        lost: bound on the probability that a projection moved an iterate before.
    """

    mu: float
    reach: float
    lost: float


def shown_on_a_ball(
    gaps: tuple[float, float],
    steps: int,
    multiplier: float,
    radius: float,
    dimension: int,
    lost: float,
) -> OnBall | None:
    """Return what quadratics with opposite drifts show of steps projected on a ball (T16).

    They start in the middle. If no iterate leaves the ball, the end is that of the steps without
    projections. Of several curvatures the one with the largest mu is taken; None if every one loses
    more than ``lost``.

    Args:
        gaps: least and largest 1 - c of the curvatures, in [0, 1].
        steps: t, at least 1.
        multiplier: noise std of a step over the distance of the drifts.
        radius: of the ball, in stds of a step's noise.
        dimension: number of coordinates.
        lost: largest probability that an iterate leaves the ball, above 0.
    """
    along = _along(radius, gaps[1], steps, dimension, 0.5 * lost)
    best = None
    # A grid from the top down; the ends themselves belong to it.
    grid = {*gaps, *(gaps[1] * np.geomspace(1e-12, 1.0, 200)).tolist()}
    for gap in sorted(gap for gap in grid if gaps[0] <= gap <= gaps[1]):
        std, factor = std_at_the_end(gap, steps), _factor(gap, steps)
        mu, reach = factor / multiplier * (1.0 - 1e-9), along / std * (1.0 - 1e-9)
        beyond = 2.0 * steps * float(ndtr(0.5 * mu - reach)) if steps > 1 else 0.0
        total = (beyond + (0.5 * lost if dimension > 1 else 0.0)) * (1.0 + 1e-9)
        if reach > 0.0 and total <= lost and (best is None or mu > best.mu):
            best = OnBall(mu, reach, total)
    return best


def pushed_to_walls(
    gap: float,
    steps: int,
    multiplier: float,
    radius: float,
    dimension: int,
    lost: float,
    share: float,
) -> tuple[float, float] | None:
    """Return probabilities of a half-space under two opposite constant drifts, on a ball (T16).

    The first is rounded down and the second up. None if they show nothing.

    Args:
        gap: largest 1 - c of the curvatures, which act across the drift.
        steps: t, at least 1.
        multiplier: noise std of a step over the distance of the drifts.
        radius: of the ball, in stds of a step's noise.
        dimension: number of coordinates.
        lost: probability that an iterate is far from the line along the drift, above 0.
        share: probability of the half-space under the first drift, about.
    """
    along = _along(radius, gap, steps, dimension, lost)
    # The distance to the wall is beyond w with probability exp(-w / multiplier) at most.
    near = min(-multiplier * math.log1p(-share), 2.0 * along)
    far = 2.0 * along - near
    start = 0.5 * steps / multiplier - along
    late = [float(ndtr(-(w + start) / math.sqrt(steps))) for w in (near, far)]
    rest = lost if dimension > 1 else 0.0
    p = 1.0 - (math.exp(-near / multiplier) + late[0] + rest) * (1.0 + 1e-9)
    q = (math.exp(-min(far / multiplier, 600.0)) + late[1] + rest) * (1.0 + 1e-9)
    return (p, q) if p > q * (1.0 + 1e-6) else None


def _along(radius: float, gap: float, steps: int, dimension: int, lost: float) -> float:
    """Return half a chord of the ball: other coordinates pass its distance with chance ``lost``.

    By the bound of Laurent and Massart (2000) for every step's sum of squares.
    """
    square = radius * radius
    if dimension > 1:
        free, far = dimension - 1.0, math.log(steps / lost)
        most = free + 2.0 * math.sqrt(free * far) + 2.0 * far
        square -= std_at_the_end(gap, steps) ** 2 * most * (1.0 + 1e-9)
    return math.sqrt(max(square, 0.0)) * (1.0 - 1e-9)


def _factor(gap: float, steps: int) -> float:
    return math.sqrt(steps) if gap == 0.0 else hidden_state_factor(gap, steps)


def std_at_the_end(gap: float, steps: int) -> float:
    """Return sqrt(1 + c^2 + ... + c^(2 (t - 1))) for c = 1 - gap: the end's std over a step's.

    Args:
        gap: 1 - c, in [0, 1].
        steps: t, at least 1.
    """
    if gap == 0.0:
        return math.sqrt(steps)
    if gap == 1.0:
        return 1.0
    return math.sqrt(-math.expm1(2.0 * steps * math.log1p(-gap)) / (gap * (2.0 - gap)))


def varying_steps_factor(slopes: Sequence[float], sizes: Sequence[float]) -> float:
    """Return sum |C_j| e_j / sqrt(sum C_j^2 e_j), C_j the product of the slopes after step j.

    This is T6 with steps that differ, from a start that both data sets share. Step j contracts by
    ``slopes[j]``, moves by at most e_j s between neighbours and adds Gaussian noise of variance e_j
    v. The end is then (s / sqrt v) times this number GDP. The proof requires that both are
    proportional to e_j and that slopes are at most 1 (docs/theory/theorems.md).

    Args:
        slopes: c_j, in [0, 1].
        sizes: e_j, above 0, as many.

    Raises:
        ParameterError: a value out of its range.

    >>> f"{varying_steps_factor([0.5] * 20, [1.0] * 20):.6f}"
    '1.732049'
    """
    if len(slopes) != len(sizes) or not sizes:
        refuse(
            "sizes", f"{len(sizes)} sizes", f"have one entry per slope, {len(slopes)} (at least 1)"
        )
    if not all(0.0 <= slope <= 1.0 for slope in slopes):
        refuse("slopes", (min(slopes), max(slopes)), "be in [0, 1]")
    left, once, twice = 1.0, [], []
    # From the end: the remaining share of a step is the product of the later slopes.
    for slope, size in zip(reversed(slopes), reversed(sizes), strict=True):
        once.append(left * positive(sizes=size))
        twice.append(left * left * size)
        left *= slope
    return math.fsum(once) / math.sqrt(math.fsum(twice))
