"""A replaced unit in an epoch of random allocation: its own pair, from above.

P = (1/t) sum_i N(mu e_i, I) and P' = (1/t) sum_i N(-mu e_i, I) dominate an epoch under
``replace_one``. At a ratio a the profile is E (X_1 + ... + X_t)^+ / t with independent X_i =
exp(mu y_i - mu^2/2) - a exp(-mu y_i - mu^2/2), y_i normal: a convex function of a sum of
independent numbers. The law of one number is spread on a grid, which is above it, and convolved by
a Fourier transform with a bound on its error. The profile at many a gives a pair (T12). Proofs:
docs/theory/allocation.md, "A unit that is replaced".
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ...registry import registered
from ...rounding import FEW, FFT, UNIT, rounded_up
from ..clock import check_deadline
from ..moments.moments import Moments
from .components import Components
from .curve import TAIL_MASS, Curve
from .discrete import Atoms
from .lattice import Array, Lattice, Side, Tails, nothing
from .max_loss import NO_LIMIT
from .powers import power_of
from .stated import Points, stated_pair
from .support import Support

MU_RANGE = (1e-3, 4.0)
"""Shifts for which the profile is computed; beyond them, grids are poor or too long."""
MOST_ROUNDS = 1 << 14
_FINE = 12.0
"""Cells in a standard deviation of one number."""
_REACH = 8.0
"""Standard deviations of the sum, beyond its mean, to the end of the grid of one number."""
_FALL = 0.25
"""Fall of the logarithm of the profile from one point to the next, about."""
_POINTS = 600
"""Most points of a profile."""
_FLAT = 8
"""The points end after so many in a row with hardly any fall; each step is longer than the last."""
_FARTHEST = 100.0
"""Largest epsilon of a point."""
_MOST_CELLS = 1 << 18
_TURNS = (0.6, 0.8, 1.0, 1.25, 1.6)
_CHERNOFF = (4.0, 8.0, 14.0, 20.0, 26.0)
_MORE = 1.0 + 2e-9


@registered
@dataclass(frozen=True)
class Exchanged(Curve):
    """An epoch of ``rounds`` Gaussian sums; the unit's one round is mu there, or -mu.

    The pair is its own swap. It is known from above only.

    Args:
        mu: clip norm over the standard deviation of the noise, in ``MU_RANGE``.
        rounds: from 2 to ``MOST_ROUNDS``.
    """

    mu: float
    rounds: int

    def __post_init__(self) -> None:
        if not self.serves(self.mu, self.rounds):
            raise ValueError(f"Exchanged: out of range, got {self.mu} and {self.rounds}")

    @staticmethod
    def serves(mu: float, rounds: int) -> bool:
        """Return whether the profile is computed for these numbers."""
        return MU_RANGE[0] <= mu <= MU_RANGE[1] and 2 <= rounds <= MOST_ROUNDS

    @property
    def points(self) -> Points:
        """Bounds (epsilon, delta) of the profile."""
        return _points(self.mu, self.rounds)

    @property
    def pair(self) -> Atoms:
        """The pair of the points."""
        return stated_pair(self.points)

    def moments(self) -> Moments:
        """Return those of the points' pair."""
        return self.pair.moments()

    def support(self) -> Support:
        """Return no limit, and the cover of one round, as if it were published."""
        return Support(largest=NO_LIMIT, symmetric=True, above_only=True, cover=2.0 * self.mu)

    def components(self) -> Components:
        """Return the pair behind the tails, and the points of the profile."""
        return Components(pair=lambda: self.pair, levels=lambda: ((self.rounds, self.points),))

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of ``pair``; none from below."""
        return self.pair.tails(loss, side) if side is Side.UP else nothing(loss)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the rounded losses of ``pair``; none from below."""
        if side is Side.DOWN:
            return Lattice(step, 0, np.zeros(1), 0.0)
        return self.pair.lattice(step, side, tail_mass)


@functools.lru_cache(maxsize=32)
def _points(mu: float, rounds: int) -> Points:
    """Return (epsilon, delta) of the profile, from epsilon 0 until delta is not resolved."""
    epsilon, delta, tilt = 0.0, *_profile(mu, rounds, 0.0, 0.0)
    width = 0.1 * _spread(mu, 1.0) / math.sqrt(rounds)
    points = [(epsilon, delta)]
    flat = 0
    # Where errors outweigh the profile, the bound stays where it is.
    while delta > 0.0 and flat < _FLAT and len(points) < _POINTS:
        check_deadline()
        epsilon += width
        if epsilon > _FARTHEST:
            break
        found, tilt = _profile(mu, rounds, epsilon, tilt)
        fall = math.log(delta / found) if 0.0 < found < delta else 0.0
        flat = 0 if fall > 0.1 * _FALL else flat + 1
        delta = min(found, delta)
        points.append((epsilon, delta))
        width *= min(max(_FALL / max(fall, 1e-9), 0.5), 1.5)
    return tuple(points)


def _spread(mu: float, a: float) -> float:
    """Return about the standard deviation of one number."""
    square = mu * mu
    return math.sqrt((1.0 + a * a) * math.expm1(square) - 2.0 * a * math.expm1(-square))


class _Numbers(NamedTuple):
    """A law above that of one number, on multiples of a cell."""

    place: Array
    mass: Array
    beyond: float
    """Mean of what exceeds the last place."""
    moved: float
    """Bound on the mean error of the places."""


def _numbers(mu: float, a: float, cell: float, last: int) -> _Numbers:
    """Return the law of one number, spread on places from -last to last; see the module."""
    place = cell * np.arange(-last, last + 1, dtype=np.float64)
    # The number rises with y, and the root is computed without cancellation.
    scaled = place * math.exp(0.5 * mu * mu)
    root = np.sqrt(scaled * scaled + 4.0 * a)
    power = np.where(scaled >= 0.0, 0.5 * (scaled + root), 2.0 * a / (root + np.abs(scaled)))
    y = np.log(power) / mu
    mass, off = _between(y, 0.0)
    near, near_off = _between(y, mu)
    far, far_off = _between(y, -mu)
    mean, mean_off = near - a * far, near_off + a * far_off
    inner = slice(1, -1)
    size = np.abs(place[:-1]) * mass[inner]
    share = np.clip((mean[inner] - place[:-1] * mass[inner]) / cell, 0.0, mass[inner])
    found = np.append(mass[inner] - share, 0.0)
    found[1:] += share
    found[0] += mass[0]
    found[-1] += mass[-1]
    found *= 1.0 + FEW
    # Every place takes from the cells on either side.
    found += off[:-1] + off[1:]
    # Errors of masses and means move a number; so do those of the places y, by some units of it.
    shifted = mean_off[inner] + np.abs(place[:-1]) * off[inner]
    shifted += 16.0 * FEW * (size + cell * mass[inner] + near[inner] + a * far[inner])
    beyond = max(float(mean[-1] - place[-1] * mass[-1]), 0.0)
    beyond += float(mean_off[-1] + place[-1] * off[-1] + FEW * (near[-1] + place[-1] * mass[-1]))
    return _Numbers(place, found, beyond, float(shifted.sum()) * _MORE)


def _between(y: Array, mean: float) -> tuple[Array, Array]:
    """Return the masses of a normal law between places and beyond them, and their errors."""
    at = y - mean
    # The smaller tail at every place: below places up to the mean, above the others.
    small, left = ndtr(-np.abs(at)), int(np.count_nonzero(at <= 0.0))
    above = np.append(small, 0.0)
    tail = np.append(small[:left], np.append(1.0, small)[left:])
    # The first cell beyond the mean begins below it.
    tail[left] = ndtr(-at[left - 1]) if left else 1.0
    mass = np.append(np.diff(small[:left], prepend=0.0), tail[left:] - above[left:])
    # A tail x stds out has x^2 units of error, and some units of the place y times the density.
    size = 1.0 + np.abs(np.append(at, at[-1])) + np.abs(np.append(y, y[-1]))
    return np.maximum(mass, 0.0), 4.0 * UNIT * size**2 * tail + 1e-300


def _profile(mu: float, rounds: int, epsilon: float, tilt: float) -> tuple[float, float]:
    """Return an upper bound on the profile at epsilon, and the tilt that was used."""
    # A larger a is one of a smaller profile: rounded down.
    a = math.exp(epsilon) * (1.0 - FEW)
    spread = _spread(mu, a)
    end = _REACH * spread * math.sqrt(rounds) + rounds * (a - 1.0)
    cell = max(spread / _FINE, end / _MOST_CELLS)
    last = math.ceil(end / cell)
    one = _numbers(mu, a, cell, last)
    points = 1 << math.ceil(math.log2(4 * last))
    window = 0.5 * points * cell
    # Chernoff's bound of the mean of sums beyond the window, as s <= W exp((s - W)/W) there.
    aliased = min(
        math.log(window) - window * c / end + rounds * _log_mean(one, c / end) for c in _CHERNOFF
    )
    start = tilt or 1.0 / (spread * math.sqrt(rounds))
    tilts = [min(turn * start, 26.0 / end) for turn in _TURNS]
    logs = [_log_mean(one, each) for each in tilts]
    best = int(np.argmin(logs))
    core = _positive_part(one, rounds, cell, points, tilts[best], logs[best])
    rest = math.exp(min(aliased, 700.0)) / rounds
    return min((core + rest) * _MORE + one.beyond + one.moved, 1.0), tilts[best]


def _log_mean(one: _Numbers, tilt: float) -> float:
    return math.log(float(np.dot(one.mass, np.exp(tilt * one.place))))


def _positive_part(
    one: _Numbers, rounds: int, cell: float, points: int, tilt: float, log_mean: float
) -> float:
    """Return the mean of the positive part of the sum over ``rounds``, raised by its rounding.

    Sums beyond the window are missing, or counted at other places.
    """
    last, logs = len(one.place) // 2, math.log2(points)
    around = np.zeros(points)
    tilted = one.mass * np.exp(tilt * one.place - log_mean)
    around[: last + 1], around[-last:] = tilted[last:], tilted[:last]
    spectrum = np.fft.rfft(around)
    power = power_of(spectrum, rounds)
    each = FFT * logs
    # A transform's bin is off by so much; a power has some units for each of its factors.
    size = np.abs(spectrum) + each
    most = rounded_up(power_of(size, rounds - 1), 4.0 * UNIT * rounds)
    off = rounds * (each + 8.0 * UNIT) * most
    wrong = math.sqrt(2.0 * float(np.dot(off, off)) / points)
    wrong += each * 2.0 * float(np.dot(most, size)) / math.sqrt(points)
    half = points // 2
    law = np.fft.irfft(power, points)[1:half]
    at = cell * np.arange(1, half, dtype=np.float64)
    weight = at * np.exp(-tilt * at)
    found = float(np.dot(weight, law)) + math.sqrt(float(np.dot(weight, weight))) * wrong
    return max(found, 0.0) * math.exp(rounds * log_mean) / rounds
