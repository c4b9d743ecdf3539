"""Small pictures as SVG: a curve and points, with axes. Colours are in the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDE, HIGH = 440, 250
"""Size of a picture, in its own units."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 18, 26, 42
_SIZES = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """A range of numbers on an axis that begins at ``first`` and ends at ``last``."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> str:
        """Return the place of a number."""
        share = (value - self.low) / (self.high - self.low)
        return f"{self.first + share * (self.last - self.first):.1f}"

    def marks(self) -> list[float]:
        """Return about four round numbers of the range."""
        raw = (self.high - self.low) / 4.0
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(size * each for each in _SIZES if size * each >= raw * (1.0 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        count = int((self.high - first * step) / step + 1e-9)
        return [(first + i) * step for i in range(count + 1)]


def line(x: Sequence[float], y: Sequence[float], *, across: str, up: str) -> Markup:
    """Return a picture of a curve.

    Args:
        x: finite numbers, rising.
        y: finite numbers of at least 0, as many.
        across: name of the horizontal axis.
        up: name of the vertical axis.
    """
    sides = _sides([0.0, *x], [0.0, *y])
    path = " ".join(f"{sides[0].at(a)},{sides[1].at(b)}" for a, b in zip(x, y, strict=True))
    inner = Markup('<polyline class="curve" points="{}"/>').format(path)
    inner += _dots(sides, list(zip(x, y, ["dot"] * len(x), [""] * len(x), strict=True)))
    words = f"{up} by {across}: {y[0]:.4g} at {x[0]:.6g}, {y[-1]:.4g} at {x[-1]:.6g}"
    return _picture(sides, inner, across, up, words)


def points(
    x: Sequence[float], y: Sequence[float], front: Sequence[bool], *, across: str, up: str
) -> Markup:
    """Return a picture of numbered points; those of the front are filled.

    Args:
        x: finite numbers.
        y: finite numbers, as many.
        front: whether a point is on the front.
        across: name of the horizontal axis.
        up: name of the vertical axis.
    """
    sides = _sides([0.0, *x], list(y))
    kinds = ["dot" if each else "dot off" for each in front]
    names = [str(number) for number in range(1, len(x) + 1)]
    inner = _dots(sides, list(zip(x, y, kinds, names, strict=True)))
    return _picture(sides, inner, across, up, f"{up} against {across} of {len(x)} settings")


def _sides(x: list[float], y: list[float]) -> tuple[Scale, Scale]:
    across = Scale(*_range(x), _LEFT, WIDE - _RIGHT)
    return across, Scale(*_range(y), HIGH - _BOTTOM, _TOP)


def _range(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high > low:
        # Room above and below, but an axis that begins at 0 keeps its 0.
        room = 0.08 * (high - low)
        return (low if low == 0.0 else low - room), high + room
    return (low - 0.5 * abs(low) - 0.5, high + 0.5 * abs(high) + 0.5)


def _dots(sides: tuple[Scale, Scale], dots: Sequence[tuple[float, float, str, str]]) -> Markup:
    found = Markup("")
    for x, y, kind, name in dots:
        a, b = sides[0].at(x), sides[1].at(y)
        found += Markup('<circle class="{}" cx="{}" cy="{}" r="3.5"/>').format(kind, a, b)
        if name:
            shifted = f"{float(b) - 7:.1f}"
            found += Markup('<text class="name" x="{}" y="{}">{}</text>').format(a, shifted, name)
    return found


def _picture(sides: tuple[Scale, Scale], inner: Markup, across: str, up: str, words: str) -> Markup:
    grid = Markup("")
    for mark in sides[1].marks():
        y = sides[1].at(mark)
        grid += Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
            _LEFT, WIDE - _RIGHT, y, y
        )
        text = '<text class="up" x="{}" y="{}" dy="0.32em">{}</text>'
        grid += Markup(text).format(_LEFT - 8, y, _short(mark))
    for mark in sides[0].marks():
        text = '<text class="across" x="{}" y="{}">{}</text>'
        grid += Markup(text).format(sides[0].at(mark), HIGH - _BOTTOM + 17, _short(mark))
    names = Markup('<text class="axis" x="{}" y="{}">{}</text>').format(
        WIDE - _RIGHT, HIGH - 6, across
    )
    names += Markup('<text class="axis first" x="{}" y="{}">{}</text>').format(2, 13, up)
    whole = '<svg class="picture" role="img" aria-label="{}" viewBox="0 0 {} {}">{}{}{}</svg>'
    return Markup(whole).format(escape(words), WIDE, HIGH, grid, inner, names)


def _short(value: float) -> str:
    """Return a mark in few characters: 12,000 as 12k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 1e13 > abs(value) >= size * 10:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
