"""Rounds that may each be another pair of a family, chosen after the earlier releases.

Let h_0(a) = (1 - a)^+, and let h_{k+1}(a) be the maximum over pairs of the integral of
P h_k(a Q/P). Then the profile of T rounds is h_T (docs/theory/game.md). On a lattice of losses the
integral is a sum over the masses of a pair. A round is one convolution for each pair, followed by
the maximum at every point. As in ``convolution`` all values are tilted, so that rounding is small
relative to the answer and not only to 1:

- *pairs*: a profile is its chord between knots (above), or a lattice from below (below).
- *window*: left of it h is at most 1 and at least 1 - a. Right of it h is at most its last value
  and at least 0.
- *rounding*: a convolution by transforms of length N has an error of at most three times
  ``FFT * log2 N`` of the kernel's sum times the root of the sum of squares. It is added, or
  subtracted, at every point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...rounding import FFT, TENS, THOUSANDS, UNIT, rounded_down, rounded_up
from ..clock import check_deadline
from ..curves.lattice import Array, Lattice, Side
from .convolution import fast_length

_TINY = 1e-290


@dataclass(frozen=True)
class Window:
    """The losses ``start * step ...`` where h is stored, multiplied by e^{tilt loss}."""

    step: float
    start: int
    size: int
    tilt: float
    offset: float = 0.0
    """Offset of all losses from the multiples of the step."""

    def losses(self, before: int = 0, after: int = 0) -> Array:
        """Return the losses, extended by some points on either side."""
        at = np.arange(self.start - before, self.start + self.size + after, dtype=np.float64)
        return self.step * at + self.offset


def chords(excess: Array, knots: Array, step: float) -> Lattice:
    """Return masses whose profile is at least the chord of (1 - a)^+ plus ``excess`` at knots.

    Args:
        excess: at e^{step knots}, at least 0.
        knots: increasing multiples of ``step`` that include 0.
        step: step of the lattice.
    """
    a = np.exp(step * knots)
    # A difference of exponentials of neighbours would lose digits.
    gaps = a[:-1] * np.expm1(step * np.diff(knots))
    # From 0 at a = 0 on, and flat beyond the last knot.
    slopes = np.concatenate([[excess[0] / a[0]], np.diff(excess) / gaps, [0.0]])
    # A slope has an error of a few units of the two values that it subtracts.
    sizes = np.concatenate([[excess[0] / a[0]], (excess[1:] + excess[:-1]) / gaps, [0.0]])
    masses = a * (np.diff(slopes) + 8 * UNIT * (sizes[1:] + sizes[:-1]))
    masses[np.searchsorted(knots, 0)] += 1.0
    whole = np.zeros(int(knots[-1] - knots[0]) + 1)
    whole[knots - knots[0]] = np.maximum(rounded_up(masses, 8 * UNIT), 0.0)
    return Lattice(step, int(knots[0]), whole, rounded_up(float(excess[-1]), 8 * UNIT))


def play(lattices: Sequence[Lattice], rounds: int, window: Window, side: Side) -> Array:
    """Return bounds of log h at the window's losses after ``rounds`` rounds, shape (size,)."""
    return _Game(lattices, window, side).after(rounds)


class _Game:
    def __init__(self, lattices: Sequence[Lattice], window: Window, side: Side) -> None:
        self.window, self.up = window, side is Side.UP
        first = min(one.start for one in lattices)
        last = max(one.start + len(one.mass) for one in lattices) - 1
        # h(a e^-loss): positive losses read left of the window, negative losses right.
        self.before, self.after_ = max(last, 0), max(-first, 0)
        length = window.size + self.before + self.after_
        self.length = fast_length(length)
        sign = 1.0 if self.up else -1.0
        kernels = np.zeros((len(lattices), self.length))
        for row, one in zip(kernels, lattices, strict=True):
            exponent = window.tilt * one.losses()
            tilted = one.mass * np.exp(exponent)
            tilted *= 1.0 + sign * UNIT * (8.0 + np.abs(exponent))
            row[(np.arange(len(tilted)) + one.start + self.after_) % self.length] = tilted
        self.infinite = np.array([one.infinite for one in lattices])
        sums = kernels.sum(axis=1)
        self.log_scale = math.log(float(sums.max()))
        kernels *= math.exp(-self.log_scale)
        self.largest = rounded_up(float(kernels.sum(axis=1).max()), THOUSANDS)
        self.transforms = np.fft.rfft(kernels, axis=1)
        self.inexact = 3.1 * FFT * math.log2(self.length) * self.largest

    def after(self, rounds: int) -> Array:
        """Return bounds of log h after ``rounds`` rounds."""
        window = self.window
        around = window.losses(self.before, self.after_)
        inside = slice(self.before, self.before + window.size)
        tilted = window.tilt * around
        everywhere = -np.expm1(np.minimum(around, 0.0)) * np.exp(tilted)
        held = everywhere[inside]
        for done in range(rounds):
            check_deadline()
            # The stored values are divided by the scale once per round.
            exponent = tilted - done * self.log_scale
            one = np.exp(np.maximum(exponent, -700.0) if self.up else exponent)
            one *= 1.0 + (UNIT if self.up else -UNIT) * 8.0 * (np.abs(exponent) + done + 1.0)
            held = self._round(held, one, inside, around)
        with np.errstate(divide="ignore"):
            logs = np.log(held) + (rounds * self.log_scale - tilted[inside])
        slack = THOUSANDS + 8 * UNIT * (
            np.abs(tilted[inside]) + rounds * (abs(self.log_scale) + 2.0)
        )
        return np.asarray(np.minimum(logs + slack, 0.0) if self.up else logs - slack)

    def _round(self, held: Array, one: Array, inside: slice, around: Array) -> Array:
        """Return h after one more round, tilted; ``one`` is 1, tilted and scaled like ``held``."""
        left, right = one[: inside.start], one[inside.stop :]
        if self.up:
            # Right of the window h is at most its last value.
            last = rounded_up(held[-1] / one[inside.stop - 1], THOUSANDS)
            padded = np.concatenate([left, held, last * right])
        else:
            below = -np.expm1(np.minimum(around[: inside.start], 0.0)) * left
            padded = np.concatenate([rounded_down(below, THOUSANDS), held, np.zeros(len(right))])
        spectrum = np.fft.rfft(padded, self.length)
        found = np.fft.irfft(spectrum * self.transforms, self.length, axis=1)
        shift = self.before + self.after_
        found = found[:, shift : shift + len(held)]
        error = self.inexact * float(np.linalg.norm(padded)) + _TINY
        scaled = one[inside] * math.exp(-self.log_scale)
        if self.up:
            best = (found + self.infinite[:, None] * scaled).max(axis=0) + error
            return np.asarray(rounded_up(np.minimum(best, scaled), TENS))
        # Every profile is at least (1 - a)^+, so h is at least 1 - a for a below 1.
        least = rounded_down(-np.expm1(np.minimum(around[inside], 0.0)) * scaled, THOUSANDS)
        return np.asarray(rounded_down(np.maximum(found.max(axis=0) - error, least), TENS))
