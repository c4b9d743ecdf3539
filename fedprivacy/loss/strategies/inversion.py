"""Privacy profiles from moments on a vertical line, with a bound on every error.

Let A(s) = E_P e^{s L}. For any tilt c > 0 (Laplace inversion of (1 - e^{x - L})^+ )

    delta(x) = 1/(2 pi) int A(c + i v) e^{-(c + i v) x} / ((c + i v)(c + i v + 1)) dv.

The trapezoid rule with spacing 2 pi / W adds to delta(x) exactly its images
``e^{c m W} delta(x + m W)``, m = +-1, +-2, ... (Poisson's summation formula). All images are
positive, so the rule errs upwards, and Chernoff's bound limits the error. Three more errors are
counted: the part above the largest height, the error of A itself, and rounding. See
docs/theory/inversion.md.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from ...rounding import HUNDREDS, TENS, UNIT, Down, Up
from .. import clock
from ..clock import LateError
from ..curves.curve import Curve
from ..moments.contour import Array, Contour, NoMoments
from ..moments.moments import Moments
from ..moments.spectrum import Cumulants, Decay, Spectrum

_DEPTH = 27.0
"""Images and omitted heights should be below about exp(-27) = 2e-12 of the answer."""
_MAX_POINTS = 1 << 14
_CHEAP_POINTS = 1024
_TRIES = 12
_STEP, _USUAL = 0.014, 1e-3
"""First distance of the members of a family, for this tolerance."""
_LONGEST = 0.03
"""Largest such distance."""
_AIM = 0.5
"""Share of the tolerance that a finer family is made for."""
_ROUGHLY = 0.9
"""A bound whose log is above this share of log delta cannot suffice, even if that log is rough."""
_SQRT_2PI = math.sqrt(2.0 * math.pi)


class Inverted(Protocol):
    """A profile near some epsilon."""

    def bounds(self, x: Array) -> tuple[Array, Array]:
        """Return certified (low, high) of delta at each x."""

    def value_and_fall(self, x: float) -> tuple[float, float]:
        """Return approximate delta and minus its slope at x."""


Inverter = Callable[[float, float], Inverted]
"""Makes the inversion near an x, given the approximate slope of -log delta there."""


class Inversion:
    """delta(x) near a centre as a sum over the points of one line.

    Args:
        line: the line of the moments.
        spectrum: the moments; a mass at loss 0 is left out, because it adds 0 for x >= 0.
        beyond: bound on the sum's part from heights above the line.
        further: (tilt, bound on log A there) with a larger tilt, for the images to the right.
        log_mass: log of a bound on delta everywhere, for the images to the left.
    """

    def __init__(
        self,
        line: Contour,
        spectrum: Spectrum,
        beyond: float,
        further: tuple[float, float],
        log_mass: float = 0.0,
    ) -> None:
        self.line, self.spectrum, self.further = line, spectrum, further
        self.log_mass, self.beyond = log_mass, beyond
        s = line.points()
        # A is conjugate below the real axis. So half of the line gives twice the real part, and the
        # first point is its own mirror image.
        weight = np.full(len(s), line.spacing / math.pi)
        weight[0] *= 0.5
        # Modulus and phase are separate, because the moduli also weigh the errors of the moments.
        weight /= np.abs(s) * np.abs(s + 1.0)
        turn = np.exp(-1j * (np.angle(s) + np.angle(s + 1.0)))
        # The moment of the atom is the same at every height, so the sum with it would not converge.
        self._terms = (spectrum.values - spectrum.atom) * weight * turn
        size = np.abs(self._terms)
        # A dot product rounds once per term, and the factors of a term about thirty times.
        rounding = 3 * UNIT * (30.0 + len(s)) * float(size.sum())
        self._error = 1.001 * (float(weight @ spectrum.error) + beyond + rounding)
        # If a dominating law is inverted, the lower end is further below.
        excess = spectrum.excess
        self._excess = 0.0 if excess is None else 1.001 * float(weight @ excess)
        # The error of cos and sin is the rounding of x v, which grows with the height.
        self._turning = 4 * UNIT * float(size @ line.heights())

    def bounds(self, x: Array) -> tuple[Array, Array]:
        """Return certified (low, high) of delta at each x; ``high`` may exceed 1.

        A mass at loss 0 is left out, so x may be below 0 only without a mass at 0. A value that is
        not a number becomes 0 or infinity.
        """
        phase = np.multiply.outer(x, self.line.heights())
        total = np.cos(phase) @ self._terms.real + np.sin(phase) @ self._terms.imag
        # The error of the power e^exponent is the rounding of its exponent.
        exponent = self.spectrum.log_size - self.line.tilt * x
        slack = 4 * UNIT * (abs(self.spectrum.log_size) + self.line.tilt * np.abs(x) + 4.0)
        error = (self._error + self._turning * np.abs(x)) * (1.0 + slack) + slack * np.abs(total)
        # Images come from profiles and are positive. The sum exceeds delta by the images, so only
        # the lower end is corrected.
        low, high = total - error - self._images(x) - 1.1 * self._excess, total + error
        # A tenth is far more than any slack in use. Beyond it the first-order bound is not valid.
        usable = (slack < 0.1) & np.isfinite(high)
        scale = np.exp(np.clip(exponent, -690.0, 690.0))
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = low * scale, high * scale
        # Near the limits of doubles no finite number is certified, but 0 and infinity always are.
        low = np.where(usable & (low > 1e-300) & (exponent > -690.0), low, 0.0)
        high = np.where(usable & (exponent < 690.0), high, np.inf)
        return low, np.maximum(high, sys.float_info.min)

    def value_and_fall(self, x: float) -> tuple[float, float]:
        """Return the sum and minus its slope at x, including errors."""
        turned = self._terms * np.exp(-1j * x * self.line.heights())
        scale = math.exp(min(self.spectrum.log_size - self.line.tilt * x, 700.0))
        return scale * float(turned.sum().real), scale * float((turned @ self.line.points()).real)

    def _images(self, x: Array) -> Array:
        """Return a bound on the sum of the images, in units of e^{log_size - tilt x}.

        To the left delta is at most the mass of P. To the right Chernoff's bound at ``further``
        holds.
        """
        c, width = self.line.tilt, 2.0 * math.pi / self.line.spacing
        total = np.zeros_like(x)
        for tilt, log_moment in ((0.0, self.log_mass), self.further):
            apart = abs(tilt - c) * width
            size = 1.0 + abs(log_moment) + abs(self.spectrum.log_size) + apart
            log_first = log_moment - self.spectrum.log_size - (tilt - c) * x - apart
            # Exponents are differences of large numbers, so their rounding is added.
            log_first = log_first + 8 * UNIT * (size + abs(tilt - c) * np.abs(x))
            first = np.where(log_first < 600.0, np.exp(np.minimum(log_first, 600.0)), np.inf)
            # Every further image is smaller by a factor of at most e^-apart: a geometric series.
            total = total + first / -math.expm1(-apart)
        return total


class Chernoff(NamedTuple):
    """The smallest (log A(tilt) + depth) / tilt: losses above ``reach`` have mass at most e^-depth.

    It is accurate to a few digits. It serves to choose parameters, not to certify.
    """

    tilt: float
    reach: float
    here: Cumulants


@functools.lru_cache(maxsize=8)
def chernoff(moments: Moments, depth: float, near: Chernoff | None = None) -> Chernoff:
    """Return where tilt (log A)' - log A, which never falls, takes the value ``depth``.

    Args:
        moments: moments of P's law of the loss, or of a part of that law.
        depth: minus the log of the mass above ``reach``.
        near: the answer at another depth, where the search begins.
    """
    # These 24 powers of ten hold every tilt that doubles can use.
    low, high = math.log(1e-12), math.log(1e12)
    at, here = (0.0, _cumulants(moments, 1.0)) if near is None else (math.log(near.tilt), near.here)
    for _ in range(60):
        tilt = math.exp(at)
        ratio = (tilt * here.mean - here.value) / depth
        # Ten per cent is close enough: every tilt gives a valid bound.
        if abs(ratio - 1.0) < 0.1 or high - low < 1e-3:
            break
        low, high = (at, high) if ratio < 1 else (low, at)
        # The derivative of t (log A)' - log A in log t is t^2 (log A)''.
        slope = tilt * tilt * here.variance / (ratio * depth) if ratio > 0 else 0.0
        at = _step(at, ratio, slope, low, high)
        here = _cumulants(moments, math.exp(at))
    return Chernoff(math.exp(at), (here.value + depth) / math.exp(at), here)


def _step(at: float, ratio: float, slope: float, low: float, high: float) -> float:
    """Return the next log tilt: by Newton's method in logs inside the bracket, or its middle."""
    if 0.0 < ratio < math.inf and slope > 0:
        # Moments may overflow a little further out. Steps stay within e^3 for every slope at the
        # start.
        following = at + min(max(-math.log(ratio) / max(slope, 0.3), -3.0), 3.0)
        if low < following < high:
            # Rare jumps make a cliff: from below a step passes it, from above it falls short. So a
            # step between two known ends goes no further than their middle.
            middle = 0.5 * (low + high) if high < 25.0 < low + 50.0 else following
            return min(following, middle) if following > at else max(following, middle)
    # Without an upper end, move by one e. With one, halve, and fall by at most e^3.
    return max(0.5 * (low + high), at - 3.0) if high < 25.0 else at + 1.0


def _cumulants(moments: Moments, tilt: float) -> Cumulants:
    try:
        return moments.cumulants(tilt)
    except (NoMoments, OverflowError):
        # Too far out: the ratio is then not a number, and the search turns back.
        return Cumulants(math.inf, math.inf, math.inf)


@functools.lru_cache(maxsize=8)
def invert(
    curve: Curve, x: float, log_delta: float, near: Chernoff | None = None, step: float = 0.0
) -> Inversion:
    """Return the inversion for epsilons near ``x``, where delta is about ``e^log_delta``.

    Args:
        curve: one orientation.
        x: an epsilon.
        log_delta: log of delta there.
        near: ``chernoff`` at a smaller depth, if known.
        step: see ``Moments.between``; 0 for the curve's own moments.

    Raises:
        NoMoments: the curve has no moments there, or too many points would be needed.
    """
    moments = (curve.moments().between(step) if step else None) or curve.moments()
    return invert_moments(moments, x, _DEPTH - log_delta, _MAX_POINTS, near=near)


def invert_moments(
    moments: Moments,
    x: float,
    depth: float,
    most_points: int,
    log_mass: float = 0.0,
    fine: bool = True,
    near: Chernoff | None = None,
) -> Inversion:
    """Return the inversion near ``x`` of the law with these moments.

    The tilt c and the width W make both neighbouring images at most about e^-depth. The image to
    the left is at most e^{-c W} times the mass. The image to the right is at most e^{c W} times
    Chernoff's bound at x + W.

    Args:
        moments: moments of P's law of the loss, or of a part of that law.
        x: an epsilon.
        depth: minus the log of the mass that may be left out.
        most_points: largest number of points on the line.
        log_mass: log of a bound on P's mass, above -depth.
        fine: whether to use the slower, tighter bound on the decay of the moments.
        near: ``chernoff`` at a smaller depth, if known.

    Raises:
        NoMoments: there are no moments, or more points would be needed.
    """
    # The image to the left is e^{-c W} times at most P's mass, so c W must equal the depth. Below 4
    # the line would be too steep, and its points would no longer distinguish neighbouring epsilons.
    left = max(depth + log_mass, 4.0)
    further = chernoff(moments, depth + left, near)
    width = further.reach - x
    if not 0.0 < width < math.inf:
        raise NoMoments
    tilt, spacing = left / width, 2.0 * math.pi / width
    # Chernoff's bound for the right image needs a larger tilt than the line.
    if not 0.0 < tilt < 0.999 * further.tilt:
        raise NoMoments
    here = moments.cumulants(tilt)
    # The search was rough, but the bound of the image needs a certified moment.
    edge = moments.spectrum(Contour(further.tilt, 0.0, 1)).log_moment
    # The integrand is A e^{-c x}; values below e^-depth may be left out.
    wanted = tilt * x - depth
    # A finer bound costs more than a thousand points.
    enough = _CHEAP_POINTS * spacing if fine else math.inf
    height, log_decay = _height(moments, tilt, here, wanted, enough)
    # Checked before any point is computed, so a line that is too long is never started.
    if not height < (most_points - 1) * spacing:
        raise NoMoments
    size = max(math.floor(height / spacing) + 1, 2)
    spectrum = moments.spectrum(Contour(tilt, spacing, size))
    top = spacing * size
    # The sum of spacing / v^2 over v >= top is at most 1/top + spacing/top^2.
    beyond = math.exp(log_decay - spectrum.log_size) * (1.0 / top + spacing / top**2) / math.pi
    return Inversion(Contour(tilt, spacing, size), spectrum, beyond, (further.tilt, edge), log_mass)


def _height(
    moments: Moments, tilt: float, here: Cumulants, log_target: float, enough: float
) -> tuple[float, float]:
    """Return a height above which A is below e^log_target, and the log of a bound on A there."""
    # Below two deviations of the tilted loss there is no decay yet.
    heights = np.geomspace(2.0, 1e6, 48) / math.sqrt(max(here.variance, 1e-300))
    found = _first_small(heights, moments.decay(tilt, heights), log_target)
    if found[0] <= enough:
        return found
    # The first steps cannot be small, because there is no decay so near to 0.
    finer = np.linspace(0.0, found[0], 129)[4:]
    try:
        # Both bounds hold, and the lower height needs fewer points.
        return min(found, _first_small(finer, moments.decay(tilt, finer, True), log_target))
    except NoMoments:
        return found


def _first_small(heights: Array, decay: Decay, log_target: float) -> tuple[float, float]:
    small = np.flatnonzero(decay.log_rest < log_target)
    if not len(small):
        raise NoMoments
    return float(heights[small[0]]), float(decay.log_rest[small[0]])


def inverted_at(curve: Curve, epsilon: float) -> Inversion:
    """Return the inversion for a profile at an epsilon of at least 0 and near it.

    Raises:
        NoMoments: the method does not reach this curve.
    """
    # The required depth depends on delta, which is the unknown. Iterate until both agree.
    guess, log_delta, moments = 0.0, -1.0, curve.moments()
    found: Chernoff | None = None
    for _ in range(4):
        found = chernoff(moments, -log_delta, found)
        guess = min(found.here.value - found.tilt * epsilon, -0.1)
        if guess > 1.2 * log_delta - 1.0:
            break
        log_delta = guess
    return invert(curve, epsilon, guess, found)


def delta_interval(curve: Curve, epsilon: float) -> tuple[Down, Up]:
    """Return certified (low, high) of the profile of one orientation at an epsilon of at least 0.

    Raises:
        NoMoments: the method does not reach this curve.
    """
    low, high = inverted_at(curve, epsilon).bounds(np.array([epsilon]))
    return Down(float(low[0])), min(Up(1.0), Up(float(high[0])))


def epsilon_interval(
    curve: Curve, delta: float, tolerance: float, slack: float = 0.0
) -> tuple[Down, Up]:
    """Return certified (low, high) of the epsilon at a delta.

    Args:
        curve: one orientation.
        delta: in (0, 1).
        tolerance: wanted width.
        slack: bound on the difference between the wanted profile and that of the curve, at any
            epsilon.

    Raises:
        NoMoments: the method does not reach this curve.
    """
    log_delta = math.log(delta)
    found = chernoff(curve.moments(), -log_delta)
    spread = math.sqrt(max(found.here.variance, 0.0))
    # Chernoff's bound is too large by a factor of about sqrt(2 pi) tilt spread (Bahadur and Rao
    # 1960). So the wanted epsilon is smaller by the log of that factor over the tilt.
    x = max(found.reach - math.log1p(_SQRT_2PI * found.tilt * spread) / found.tilt, 0.0)

    best = Down(0.0), Up(math.inf)
    step = min(_STEP * math.sqrt(tolerance / _USUAL), _LONGEST)
    while step and curve.moments().between(step) is not None:
        try:
            inverted = invert(curve, x, log_delta, found, step)
        except NoMoments:
            break
        except LateError:
            return _kept(best)
        best = _meet(best, _around(inverted, delta, x, slack))
        width = best[1] - best[0]
        if width <= tolerance:
            return best
        # The width falls with the square of the step.
        finer = step * math.sqrt(_AIM * tolerance / width) if math.isfinite(width) else 0.0
        # A far centre makes the interval wide, too.
        x = 0.5 * (best[0] + best[1]) if math.isfinite(width) else x
        step = finer if finer < 0.9 * step else 0.0

    def near(x: float, slope: float) -> Inverted:
        del slope
        return invert(curve, x, log_delta, found)

    try:
        return _meet(best, close_in(near, (x, found.tilt), found.tilt, delta, tolerance, slack))
    except NoMoments:
        if math.isinf(best[1]):
            raise
        return best
    except LateError:
        return _kept(best)


def _kept(best: tuple[Down, Up]) -> tuple[Down, Up]:
    """Return what was certified before the deadline.

    Raises:
        LateError: it has no upper end.
    """
    if math.isinf(best[1]):
        raise LateError
    clock.over()  # the caller then reports the deadline as the reason
    return best


def close_in(
    near: Inverter,
    start: tuple[float, float],
    least_slope: float,
    delta: float,
    tolerance: float,
    slack: float,
) -> tuple[Down, Up]:
    """Return certified (low, high) of the epsilon at a delta, from inversions at several epsilons.

    Args:
        near: makes an inversion.
        start: first epsilon, and the approximate slope of -log delta there.
        least_slope: approximate lower bound on the slope of -log delta.
        delta: in (0, 1).
        tolerance: wanted width.
        slack: bound on the difference between the wanted profile and the inverted one.

    Raises:
        NoMoments: the first inversion fails.
    """
    x, slope = start
    best, started = (Down(0.0), Up(math.inf)), clock.now()
    for again in range(_TRIES):
        # The next inversion takes as long as the last, so stop while an answer can still be
        # returned.
        if again and clock.left() < (clock.now() - started) / again:
            clock.over()  # the caller then reports the deadline as the reason
            break
        try:
            inverted = near(x, slope)
        except (NoMoments, LateError):
            # After a first answer a failure only makes the interval wider. Before it, the caller
            # must know.
            if again:
                break
            raise
        # Delta suffices at 0, and no epsilon is smaller.
        if inverted.bounds(np.zeros(1))[1][0] <= delta - slack:
            return Down(0.0), Up(0.0)
        before, best = best, _meet(best, _around(inverted, delta, x, slack))
        if best[1] - best[0] < 0.5 * tolerance:
            break
        here, x = x, _following(x, before, best, again)
        # If the centre no longer moves, another inversion would give the same answer.
        if again >= 2 and abs(x - here) < 0.1 * tolerance:
            break
        # With too flat a slope the tolerance would require no accuracy.
        slope = max(solve(inverted, delta, x)[1] / delta, least_slope)
    return best


def solve(inverted: Inverted, delta: float, start: float) -> tuple[float, float]:
    """Return (x, -slope) at an approximate solution of delta(x) = ``delta``, by Newton's method."""
    x, slope = start, 0.0
    for _ in range(30):
        value, slope = inverted.value_and_fall(x)
        # Far from its centre the sum is mostly error, so Newton's method stops there.
        if not (0.0 < value < math.inf and 0.0 < slope < math.inf):
            break
        # Newton's method on log delta, which is closer to a straight line than delta.
        moved = min(max(math.log(value / delta) * value / slope, -1.0 - x), 1.0 + x)
        x = max(x + moved, 0.0)
        if abs(moved) < HUNDREDS * (1.0 + x):
            break
    return x, slope


def _meet(one: tuple[Down, Up], other: tuple[Down, Up]) -> tuple[Down, Up]:
    return max(one[0], other[0]), min(one[1], other[1])


def _following(
    x: float, before: tuple[float, float], best: tuple[float, float], again: int
) -> float:
    """Return the next centre: the upper end, or halfway down if that no longer helps.

    Far from its centre an inversion is inaccurate, so the ends approach each other step by step.
    """
    if again < 2 or not math.isfinite(best[1]):
        return min(best[1], 2.0 * x + 1.0)
    slow = best[1] - best[0] > 0.5 * (before[1] - before[0])
    return 0.5 * (best[0] + best[1]) if slow or best[1] >= x else best[1]


def at_most(curve: Curve, delta: float, epsilon: float) -> bool:
    """Return whether Chernoff's bound shows that delta suffices at an epsilon.

    Tilts of a few -log(delta) / epsilon suffice if the loss stays far below, and they cost least.
    """
    moments = curve.moments()
    least = -math.log(delta) / epsilon if epsilon > 0.0 else math.inf
    if _bounded(moments, 1.5 * least, delta, epsilon):
        return True
    if _may_be_bounded(moments, 4.0 * least, delta, epsilon):
        return True
    return _may_be_bounded(moments, chernoff(moments, -math.log(delta)).tilt, delta, epsilon)


def _may_be_bounded(moments: Moments, tilt: float, delta: float, epsilon: float) -> bool:
    """Return the same as ``_bounded``, after a cheap look at a few digits of the moment."""
    if not 0.0 < tilt < 1e12:
        return False
    rough = _log_bound(tilt, epsilon, _cumulants(moments, tilt).value)
    return rough <= _ROUGHLY * math.log(delta) and _bounded(moments, tilt, delta, epsilon)


def _log_bound(tilt: float, epsilon: float, log_moment: float) -> float:
    """Return the log of Chernoff's bound on delta.

    (1 - e^{x - L})^+ is at most c^c / (1 + c)^{1 + c} times e^{c (L - x)}, for any c > 0.
    """
    # c log c - (1 + c) log(1 + c), written so that large c cause no cancellation.
    return log_moment - tilt * epsilon - math.log1p(tilt) - tilt * math.log1p(1.0 / tilt)


def _bounded(moments: Moments, tilt: float, delta: float, epsilon: float) -> bool:
    """Return whether one moment shows that delta suffices."""
    if not 0.0 < tilt < 1e12:
        return False
    moments = moments.between(_STEP) or moments
    try:
        log_moment = float(moments.spectrum(Contour(tilt, 0.0, 1)).log_moment)
    except NoMoments:
        return False
    log_delta = _log_bound(tilt, epsilon, log_moment)
    size = 1.0 + abs(log_delta) + 2.0 * tilt * epsilon
    # The rounding of the summands counts against the bound.
    return log_delta + TENS * size <= math.log(delta)


def _around(inverted: Inverted, delta: float, start: float, slack: float) -> tuple[Down, Up]:
    """Return certified (low, high) of the epsilon at a delta from one inversion."""
    most, least = delta + slack, delta - slack

    # The searches return to the same points, and each point costs a pass over the line.
    @functools.cache
    def both(x: float) -> tuple[float, float]:
        low, high = inverted.bounds(np.array([x]))
        return float(low[0]), float(high[0])

    at, slope = solve(inverted, delta, start)

    # One per cent further than Newton's step, so that the first probe usually is an end already.
    def step(excess: float) -> float:
        wanted = 1.01 * excess / slope if slope > 0 else 1.0
        # NaN is unequal to itself: bounds without information give a plain step.
        return min(max(wanted, TENS * (1.0 + at)), 1.0 + at) if wanted == wanted else 1.0

    # Each probe is certified separately, so the bounds need not be monotone.
    below = _first(lambda x: both(x)[0] >= most, at, -step(most - both(at)[0]))
    above = _first(lambda x: both(x)[1] <= least, at, step(both(at)[1] - least))
    ends = Down(0.0 if below is None else below), Up(math.inf if above is None else above)
    # The inversion is most accurate at its centre, so that point may be better than the searches.
    low, high = both(start)
    centre = Down(start if low >= most else 0.0), Up(start if high <= least else math.inf)
    return _meet(ends, centre)


def _first(holds: Callable[[float], bool], start: float, step: float) -> float | None:
    """Return the first of start, start + step, start + 3 step, ... above 0 that fits, if any."""
    x = start
    for _ in range(60):
        if holds(x):
            return x
        x += step
        step *= 2.0
        # Epsilon is at least 0, so values further down need no certificate.
        if x <= 0.0:
            break
    return None
