"""Repeated convolution of lattices, with a bound on every error.

The masses are multiplied by exp(tilt * loss) before the Fourier transform and divided by it
afterwards. So rounding, wrap-around and truncation are small relative to the answer and not only
relative to 1. Four errors remain, and each is bounded from the computed numbers:

- *rounding*: in every bin, a transform of length N has an error of at most ``FFT * log2 N`` of the
  sum of its inputs. A power has the rounding of its products. The squares of the bins are added
  (Parseval) and combined with the answer's weights by Cauchy-Schwarz.
- *drift*: tilted masses are right to a few ulps of their exponents. Over T rounds the L1 error of
  the convolution is at most (1 + r)^T - 1, where r is the L1 error of one round.
- *wrap-around*: mass from outside the window lands inside it. Mass from the right is missing from
  its place, and mass from the left is counted in the wrong place. Chernoff's bound covers both.
- *infinite loss*: one minus the product of the probabilities of the finite parts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...rounding import FEW, FFT, HUNDREDS, TENS, UNIT, rounded_down, rounded_up
from ..clock import check_deadline
from ..curves.lattice import LOSS_ROUNDING, MAX_POINTS, Array, Lattice, Side, TooLarge
from ..curves.powers import power_of
from ..moments.contour import Complex

Parts = Sequence[tuple[Lattice, int]]

_WIDE = 600.0
"""Steps whose exponential is not taken."""
_VANISHED = 800.0
"""Exponentials of exponents below minus this value are 0."""
_NEGLIGIBLE = 32.0
"""A window leaves out at most exp(-32) = 1e-14 of the tilted mass on each side, as much as the
transforms round."""
_OUTSIDE = 42.0
"""The same for windows that make up a whole lattice: exp(-42) = 6e-19."""
_RUNS = 512
"""Fewest runs of points that represent a longer lattice in the choice of a tilt."""
_SHARES = (1.0, 0.1, 0.03, 0.01)
"""Tilts to try near the largest loss, as parts of the largest tilt."""
_CERTAIN = 1e-8
"""If errors are a smaller part of a profile, another tilt would not change its answer."""
_UNDERFLOW = 1e-300
"""More than a product of bins loses if it underflows."""


def log_moment(lattice: Lattice, tilt: float) -> float:
    """Return log sum of mass * exp(tilt * loss) over the finite points."""
    if not lattice.mass.any():
        return -math.inf
    exponent = tilt * lattice.losses()
    # Points without mass must not set the scale, and they must not overflow below.
    top = float(np.max(exponent, where=lattice.mass > 0, initial=-np.inf))
    return top + math.log(float(np.dot(lattice.mass, np.exp(np.minimum(exponent - top, 0.0)))))


def _coarse(parts: Parts) -> list[tuple[Array, Array, int]]:
    """Group lattice points in runs: (losses, masses, count), accurate enough to choose a tilt."""
    grouped = []
    for lattice, count in parts:
        width = max(1, len(lattice.mass) // _RUNS)
        begins = np.arange(0, len(lattice.mass), width)
        # To choose a tilt, the middle of a run can represent the whole run.
        losses = lattice.losses()[np.minimum(begins + width // 2, len(lattice.mass) - 1)]
        mass = np.add.reduceat(lattice.mass, begins)
        grouped.append((losses[mass > 0], mass[mass > 0], count))
    return grouped


def _coarse_moment(grouped: list[tuple[Array, Array, int]], tilt: float) -> float:
    total = 0.0
    for losses, mass, count in grouped:
        exponent = tilt * losses
        top = float(np.max(exponent))
        total += count * (top + math.log(float(np.dot(mass, np.exp(exponent - top)))))
    return total


def golden(function: Callable[[float], float], low: float, high: float, rounds: int = 24) -> float:
    """Minimise a function of log-scale argument over [low, high], both above 0."""
    # Golden section needs one value per iteration and no derivative. Every result gives a valid
    # bound.
    ratio = (math.sqrt(5) - 1) / 2
    a, b = math.log(low), math.log(high)
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    at_c, at_d = function(math.exp(c)), function(math.exp(d))
    for _ in range(rounds):
        if at_c < at_d:
            b, d, at_d = d, c, at_c
            c = b - ratio * (b - a)
            at_c = function(math.exp(c))
        else:
            a, c, at_c = c, d, at_d
            d = a + ratio * (b - a)
            at_d = function(math.exp(d))
    return math.exp((a + b) / 2)


@dataclass(frozen=True, eq=False)
class _Window:
    """The tilted convolution on indices ``start ...``, and bounds on its errors."""

    start: int
    mass: Array
    error: float
    """L2 norm of the rounding error of ``mass``."""
    missing: float
    """Tilted mass that lies right of the window (UP) or is aliased into it (DOWN)."""


class Composition:
    """The sum of many independent rounded losses: delta, epsilon and the full lattice."""

    def __init__(self, parts: Parts, side: Side) -> None:
        self.parts = [(lattice, count) for lattice, count in parts if count]
        # Losses near the limits of doubles may give masses that are not finite.
        if not all(math.isfinite(float(lattice.mass.sum())) for lattice, _ in self.parts):
            raise FloatingPointError
        self.side = side
        self.step = self.parts[0][0].step
        self.count = sum(count for _, count in self.parts)
        self.points = max(len(lattice.mass) for lattice, _ in self.parts)
        """Number of points of the largest lattice or window used."""
        self._moments: dict[float, float] = {}
        self.empty = any(not lattice.mass.any() for lattice, _ in self.parts)
        """Whether a part has no finite loss: rounding removed it, or its whole mass is infinite."""
        if self.empty:
            return
        self._grouped = _coarse(self.parts)
        reach = max(float(np.max(np.abs(losses))) for losses, _, _ in self._grouped)
        # With this limit e^{tilt loss} stays within doubles for every finite loss.
        self._max_tilt = 600.0 / max(reach, self.step)

    def infinite(self) -> float:
        """Return the probability that the loss of any round is infinite, rounded to the side."""
        # The cap avoids log(0); FEW below exceeds the mass that the cap removes.
        log_finite = sum(c * math.log1p(-min(la.infinite, 1.0 - 1e-16)) for la, c in self.parts)
        return rounded_up(-math.expm1(log_finite), FEW if self.side is Side.UP else -TENS)

    def moment(self, tilt: float) -> float:
        """Return the log moment generating function of the finite loss at ``tilt``."""
        if (known := self._moments.get(tilt)) is None:
            known = sum(count * log_moment(lattice, tilt) for lattice, count in self.parts)
            self._moments[tilt] = known
        return known

    def delta(self, epsilon: float) -> float:
        """Return the composition's delta at an epsilon, rounded to the side."""
        if self.empty:
            return 1.0 if self.side is Side.UP else 0.0
        # The tilt affects the tightness of the bound, not its validity, so coarse moments suffice.
        tilt = golden(
            lambda t: _coarse_moment(self._grouped, t) - t * epsilon, 1e-9, self._max_tilt
        )
        first, bounds, _ = self._profile(tilt, epsilon)
        # Delta falls with epsilon, so a smaller epsilon gives an upper bound.
        moved = self.count * LOSS_ROUNDING + TENS * epsilon
        epsilon = epsilon - moved if self.side is Side.UP else epsilon + moved
        finite = self._at(first, bounds, epsilon)
        if self.side is Side.DOWN:
            return min(rounded_down(max(finite, 0.0) + self.infinite()), 1.0)
        # If a loss above epsilon exists, delta is above 0, even if it underflows.
        least = sys.float_info.min if self._extreme(1) > epsilon else 0.0
        return float(np.clip(finite + self.infinite(), least, 1.0))

    def _at(self, first: int, bounds: Array, epsilon: float) -> float:
        """Return the bound at an epsilon from those at the lattice points ``first ...``.

        Between two points the profile of the rounded pair is linear in exp(epsilon). So the chord
        of bounds on one side lies on that side. Outside the points the profile falls.
        """
        index = math.floor(epsilon / self.step - first)
        if index < 0:
            return 1.0 if self.side is Side.UP else float(bounds[0])
        if index >= len(bounds) - 1:
            return float(bounds[-1]) if self.side is Side.UP else 0.0
        near = self._share(first + index, epsilon)
        if near == 0.0:
            return float(bounds[index])
        return float((1 - near) * bounds[index] + near * bounds[index + 1])

    def _share(self, index: int, epsilon: float) -> float:
        """Return the weight of the bound at the next point; 0 or 1 if e^step is huge."""
        if self.step > _WIDE:
            return 0.0 if self.side is Side.UP else 1.0
        # Rounding may put epsilon just outside its cell.
        return min(max(_chord(self.step, index, epsilon), 0.0), 1.0)

    def epsilon(self, delta: float) -> float:
        """Return the composition's epsilon at a delta, rounded to the side; may be inf."""
        if self.empty:
            return math.inf if self.side is Side.UP else 0.0
        target = delta - self.infinite()
        target *= 1.0 if self.side is Side.UP else 1.0 + FEW
        if target <= 0:
            return math.inf

        tilt = self._chernoff_tilt(-math.log(target))
        moment = self.moment(tilt)
        # Beyond this loss Chernoff's bound is below the target.
        centre = (moment - math.log(target)) / tilt
        # P[L > 0] is already at most the target.
        if moment <= math.log(target):
            return 0.0
        # Near the largest loss, the best tilt is at the limit of doubles. Smaller tilts may be
        # tighter there, and every tilt is valid.
        bounded = tilt > 0.99 * self._max_tilt
        found = []
        for share in _SHARES if bounded else _SHARES[:1]:
            first, bounds, certain = self._profile(share * tilt, centre, 0)
            found.append(self._solve(first, bounds, target))
            # Without errors all tilts give the same profile.
            if math.isfinite(found[-1]) and certain(found[-1]):
                break
        # Every tilt gives a valid answer, so the tightest is taken.
        return min(found) if self.side is Side.UP else max(found)

    def _solve(self, first: int, bounds: Array, target: float) -> float:
        """Return where the profile bounds at lattice points ``first ...``, none below 0, cross.

        UP: the smallest point whose bound is at most ``target``. DOWN: the largest point whose
        bound is at least ``target``. Between two points the exact profile is linear in exp(epsilon)
        and its slack is convex, so the chord errs to the safe side.
        """
        up = self.side is Side.UP
        hits = np.flatnonzero(bounds <= target if up else bounds >= target)
        if not len(hits):
            return math.inf if up else 0.0
        index = int(hits[0]) if up else int(hits[-1]) + 1
        at_end = index == 0 or index == len(bounds)
        found = (first + index - (0 if up else 1)) * self.step
        found = found if at_end else self._between(first, bounds, index, target)
        slack = self.count * LOSS_ROUNDING + TENS * abs(found)
        return found + slack if up else max(found - slack, 0.0)

    def _between(self, first: int, bounds: Array, index: int, target: float) -> float:
        """Return where the chord of two neighbouring bounds meets ``target``."""
        low, high = (first + index - 1) * self.step, (first + index) * self.step
        before, after = float(bounds[index - 1]), float(bounds[index])
        # Without a usable chord, take the lattice point on the safe side.
        if not (math.isfinite(before) and math.isfinite(after)) or self.step > _WIDE:
            return high if self.side is Side.UP else low
        # The profile is linear in exp(epsilon), not in epsilon, so the interpolation uses
        # exp(epsilon).
        share = (before - target) / (before - after)
        return low + math.log1p(share * math.expm1(high - low))

    def _profile(
        self, tilt: float, centre: float, least: int | None = None
    ) -> tuple[int, Array, Callable[[float], bool]]:
        """Return (first index, profile bounds at its lattice points) around ``centre``.

        The last element says whether errors are negligible in the bounds near a loss.

        Args:
            tilt: tilt of the masses.
            centre: a loss near the answer.
            least: index of the first point that is needed.
        """
        window = self._window(tilt)
        skipped = 0 if least is None else max(least - window.start, 0)
        first, last = window.start + skipped, window.start + len(window.mass)
        if first >= last:
            return first, np.zeros(0), lambda _: False
        losses = self.step * np.arange(first, last, dtype=float)
        # A reference outside the window would push every exponential out of range.
        reference = float(np.clip(centre, losses[0], losses[-1]))
        with np.errstate(all="ignore"):
            bounds, off = self._bounds(window, losses, tilt, reference)
        worst = np.inf if self.side is Side.UP else -np.inf

        def certain(loss: float) -> bool:
            at = math.floor(loss / self.step) - first - 1
            # At an end of the window another window may have a closer answer.
            return 0 < at < len(off) - 4 and bool(np.all(off[at : at + 4] <= _CERTAIN))

        return first, np.where(np.isfinite(bounds), bounds, worst), certain

    def _bounds(
        self, window: _Window, losses: Array, tilt: float, reference: float
    ) -> tuple[Array, Array]:
        """Return the profile's bounds and the part of each that is error.

        Values that overflow are NaN or infinite and never used.
        """
        up = self.side is Side.UP
        # Values are relative to one loss near the answer, so sums there are of order 1.
        exponent = tilt * (reference - losses)
        # UP must not lose mass to an underflow; DOWN may.
        falling = np.exp(np.maximum(exponent, -745.0) if up else exponent)
        size = len(window.mass)
        weighted = window.mass[size - len(losses) :] * falling
        above = _suffix(weighted)
        ratio = np.exp(reference - losses)
        profile = above - _suffix(weighted * ratio) / ratio
        # Cauchy-Schwarz: squares of e^{-tilt step k} add up to at most 1 + 1 / (2 tilt step).
        weight_norm = math.sqrt(1.0 + 1.0 / (2.0 * max(tilt, 1e-9) * self.step))
        # All weights are at most 1, which gives a tighter bound for tilts near 0.
        weight_norm = min(weight_norm, math.sqrt(size))
        slack = falling * (window.error * weight_norm + window.missing)
        # Each running sum rounds once per term.
        slack = slack + (HUNDREDS + UNIT * size) * np.abs(above)
        # Masses were divided by their moment. This is undone in logs, which cannot overflow.
        scale = self.moment(tilt) - tilt * reference
        off = slack / profile
        if up:
            # An upper bound that would underflow stays a normal number.
            return np.exp(np.maximum(np.log(profile + slack) + scale, -708.0)), off
        return np.exp(np.log(np.maximum(profile - slack, 0.0)) + scale), off

    def _window(self, tilt: float, negligible: float | None = None) -> _Window:
        """Convolve the tilted masses on a window that holds nearly all of their mass.

        Args:
            tilt: tilt of the masses.
            negligible: at most exp(-negligible) of the mass lies outside on either side.

        Raises:
            TooLarge: the window would need too many points.
            LateError: the deadline has passed.
        """
        check_deadline()
        here = self.moment(tilt)
        depth = _NEGLIGIBLE if negligible is None else negligible
        right_at, low_right = self._reach(tilt, here, 1.0, depth)
        left_at, low_left = self._reach(tilt, here, -1.0, depth)
        # Neither end lies beyond the range of possible losses.
        right, left = min(low_right, self._extreme(1)), max(-low_left, self._extreme(-1))
        start = math.floor(left / self.step)
        length = max(math.ceil(right / self.step) - start + 2, 2)
        # Checked before any array of that size is allocated.
        if length > MAX_POINTS:
            raise TooLarge
        length = fast_length(max(length, 16))
        self.points = max(self.points, length)
        mass, error, drift = self._convolve(tilt, start, length)
        missing = drift + self._missing(tilt, here, right_at, left_at, start, length)
        return _Window(start, mass, error, missing)

    def _extreme(self, sign: int) -> float:
        ends = [(la.losses()[-1 if sign > 0 else 0], count) for la, count in self.parts]
        return float(sum(end * count for end, count in ends))

    def _reach(self, tilt: float, here: float, sign: float, depth: float) -> tuple[float, float]:
        """Return (Chernoff parameter, distance) beyond which little tilted mass lies."""
        coarse_here = _coarse_moment(self._grouped, tilt)

        def distance(s: float) -> float:
            there = _coarse_moment(self._grouped, tilt + sign * s)
            return (there - coarse_here + depth) / s

        best = golden(distance, 1e-9, self._max_tilt, 18)
        # Coarse moments choose the parameter. The distance is certified, so it uses exact moments.
        exact = (self.moment(tilt + sign * best) - here + depth) / best
        return best, exact

    def _missing(
        self, tilt: float, here: float, right_at: float, left_at: float, start: int, length: int
    ) -> float:
        right_end, left_end = (start + length) * self.step, start * self.step
        right = self.moment(tilt + right_at) - here - right_at * right_end
        # A window that holds the largest loss misses no mass on its right.
        missing = math.exp(min(right, 0.0)) if right_end <= self._extreme(1) else 0.0
        # Mass that wraps in from the left only adds. UP may count it; DOWN may not.
        if self.side is Side.DOWN and left_end > self._extreme(-1):
            left = self.moment(tilt - left_at) - here + left_at * left_end
            missing += math.exp(min(left, 0.0))
        return missing

    def _convolve(self, tilt: float, start: int, length: int) -> tuple[Array, float, float]:
        """Return the circular tilted convolution, its rounding error in L2 and its drift in L1."""
        # Bins whose power is 0 are left out: with many rounds only a few hundred remain.
        kept = np.arange(length // 2 + 1)
        power, most = np.ones(len(kept), dtype=np.complex128), np.ones(len(kept))
        terms = np.zeros(len(kept))
        moved, drift = 0, 0.0
        per_bin = FFT * math.log2(length)
        for lattice, count in self.parts:
            check_deadline()
            tilted, centre, inexact = _tilted(lattice, tilt, length)
            drift += count * inexact
            moved += centre * count
            transform = np.fft.rfft(tilted)[kept]
            counting = _counting(transform, count, per_bin)
            kept, transform = kept[counting], transform[counting]
            # The largest possible value of a bin.
            size = np.abs(transform) + per_bin
            with np.errstate(all="ignore"):
                power = power[counting] * power_of(transform, count)
                most = most[counting] * power_of(size, count)
                terms = terms[counting] + count / size
        bins, errors = np.zeros(length // 2 + 1, dtype=np.complex128), np.zeros(length // 2 + 1)
        bins[kept] = power
        errors[kept] = _power_errors(most, per_bin * terms, self.count)
        result = np.fft.irfft(bins, length)
        error = float(np.linalg.norm(errors)) * math.sqrt(2.0 / length)
        # The inverse transform rounds too, relative to its result.
        error += per_bin * float(np.linalg.norm(result))
        # Every round was centred at index 0, so the sum lies at the sum of the centres.
        shift = (moved - start) % length
        return np.roll(result, shift), error, math.expm1(min(drift, 700.0))

    def lattice(self) -> Lattice:
        """Return the whole composed loss as one lattice, rounded to the side.

        Four tilts are tried; tilt -1 turns P into Q, whose mass lies at negative losses. Every
        point uses the tilt with the smallest error there. Without a tilt at most exp(-42) of the
        mass lies left of the windows, and at most as much lies between or right of the windows. UP
        puts the former on the first point and the latter at infinity.
        """
        if self.empty:
            return Lattice(self.step, 0, np.zeros(1), 1.0 if self.side is Side.UP else 0.0)
        # One tilt is accurate only near its own losses. These serve P, Q, and tails of e^-12 and
        # e^-60: common deltas and the rarest.
        tilts = [0.0, -1.0, self._chernoff_tilt(12.0), self._chernoff_tilt(60.0)]
        windows = [(t, self._window(t, _OUTSIDE)) for t in tilts]
        start = min(w.start for _, w in windows)
        stop = max(w.start + len(w.mass) for _, w in windows)
        best_mass, best_error = np.zeros(stop - start), np.full(stop - start, np.inf)
        for tilt, window in windows:
            part = slice(window.start - start, window.start - start + len(window.mass))
            losses = self.step * np.arange(window.start, window.start + len(window.mass))
            back = np.exp(np.clip(self.moment(tilt) - tilt * losses, -745, 700))
            rounding = FEW * (8.0 + abs(self.moment(tilt)) + np.abs(tilt * losses))
            error = back * (window.error + window.missing + rounding * np.abs(window.mass))
            better = error < best_error[part]
            best_mass[part] = np.where(better, window.mass * back, best_mass[part])
            best_error[part] = np.where(better, error, best_error[part])
        return self._rounded(start, best_mass, best_error, windows)

    def _chernoff_tilt(self, depth: float) -> float:
        """Return the tilt that bounds the loss best outside an event of probability exp(-depth)."""

        def bound(tilt: float) -> float:
            return (_coarse_moment(self._grouped, tilt) + depth) / tilt

        return golden(bound, 1e-9, self._max_tilt)

    def _rounded(
        self, start: int, mass: Array, error: Array, windows: list[tuple[float, _Window]]
    ) -> Lattice:
        if self.side is Side.DOWN:
            return Lattice(self.step, start, np.maximum(mass - error, 0.0), 0.0)
        end = max(w.start + len(w.mass) for _, w in windows) * self.step
        # The smaller of Chernoff's bounds at a window's tilt and at twice that tilt.
        beyond = min(
            math.exp(min(self.moment(t + s) - (t + s) * end, 0.0))
            for t, _ in windows
            if t > 0
            for s in (0.0, t)
        )
        # No loss exists right of the windows.
        if end > self._extreme(1):
            beyond = 0.0
        covered = np.isfinite(error)
        # Each end of a window leaves out the same mass.
        outside = 2.0 * math.exp(-_OUTSIDE)
        finite = np.maximum(mass, 0.0) + np.where(covered, error, 0.0)
        finite[0] += outside
        beyond += 0.0 if covered.all() else outside
        return Lattice(self.step, start, finite, min(self.infinite() + beyond, 1.0))


def fast_length(at_least: int) -> int:
    """Return the smallest 2^a 3^b 5^c, a >= 1, that is not below ``at_least``."""
    best = 1 << (at_least - 1).bit_length()
    # Powers of 3 and 5 up to 243, multiplied by powers of 2.
    for odd in (1, 3, 5, 9, 15, 25, 27, 45, 75, 81, 125, 135, 225, 243):
        doublings = max((-(-at_least // odd) - 1).bit_length(), 1)
        best = min(best, odd << doublings)
    return best


def _counting(transform: Complex, count: int, per_bin: float) -> NDArray[np.bool_] | slice:
    """Return the bins whose power, including errors, is above the smallest double."""
    # Bins of other parts exceed 1 only by their errors, for which e^-55 leaves room.
    least = math.exp(-_VANISHED / count) - per_bin
    if least <= 0.0:
        return slice(None)
    return np.asarray(transform.real**2 + transform.imag**2 > rounded_down(least * least, TENS))


def _power_errors(most: Array, parts: Array, count: int) -> Array:
    """Return the errors of the product of ``count`` bins, and of the power that is its rounding.

    ``most`` is the product of the largest possible values, and ``parts`` the sum of the relative
    errors of its factors.
    """
    # Every factor of a product rounds twice in ``most``, and as a complex number four times.
    rounding = math.expm1(min(6.0 * UNIT * count, 700.0))
    with np.errstate(all="ignore"):
        return np.asarray(most * (parts + rounding) * (1.0 + rounding) + _UNDERFLOW)


def _tilted(lattice: Lattice, tilt: float, length: int) -> tuple[Array, int, float]:
    """Return the tilted, normalised masses wrapped to ``length``, their centre and L1 error.

    The masses are moved so that their mean lies near index 0; the centre is the original position.
    """
    exponent = np.clip(tilt * lattice.losses() - log_moment(lattice, tilt), -745.0, 700.0)
    weights = lattice.mass * np.exp(exponent)
    # The error of exp is the rounding of its exponent, relative to the weight.
    inexact = 4e-16 * float(np.dot(weights, 4.0 + np.abs(exponent)))
    # After centring, the phase of the transform is small where its modulus is large, so the power
    # has a smaller error.
    mean = round(float(np.dot(weights, np.arange(len(weights)))))
    shifted = (np.arange(len(weights)) - mean) % length
    wrapped = np.bincount(shifted, weights=weights, minlength=length)
    return wrapped.astype(np.float64), lattice.start + mean, inexact


def _suffix(values: Array) -> Array:
    """Return sums over all later elements, excluding the element itself."""
    total = np.cumsum(values[::-1])[::-1]
    return np.append(total[1:], 0.0)


def _chord(step: float, index: int, epsilon: float) -> float:
    """Return the relative position of epsilon between two lattice points, in exp(epsilon)."""
    return math.expm1(epsilon - index * step) / math.expm1(step)
