"""Correct roundings of ideal noise, many at a time: doubles where they decide, else whole numbers.

Three ways to the same answer, each for what the one before leaves open: a small polynomial in the
bits, one that is exact to 2^-43, and the comparison of ``refined``. Which of them decides changes
nothing but the time. Proofs: docs/theory/rounding.md.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from . import exact_tails

Array = NDArray[np.float64]
Words = NDArray[np.uint64]

BLOCK = 1 << 15
"""Numbers made at a time: what they need stays in a core's cache."""

MARGIN = 1.0 / (1 << 40)
"""A rounding is believed where it is clear by (std / grid + 1) MARGIN; proved: 2^-43."""

QUICK_MARGIN = 1.0 / (1 << 32)
"""The same for the small polynomials; proved: 2^-33 + 2^-42, and 2^-39 for a total nearby."""

NEARBY = float(1 << 12)
"""Totals of up to so many scales are added to the noise as they are: that rounds by 2^-39."""

_ONE, _SIGN = np.uint64(1), np.uint64(63)

SMALL = 2048
"""Bytes that the system gives faster than OpenSSL can be told a new key."""


def system_bits(count: int) -> bytes:
    """Return fresh bytes of the operating system's generator, or of one keyed by it.

    Many bytes come from OpenSSL's (AES in counter mode, SP 800-90A), a tenth of the time. It is
    told 32 new bytes of the system's before each such request, so that it keeps nothing that a
    forked process, or a machine that was restored from a snapshot, would have too.
    """
    if count <= SMALL:
        return os.urandom(count)
    try:
        from ssl import RAND_add, RAND_bytes
    except ImportError:  # a Python built without OpenSSL
        return os.urandom(count)
    RAND_add(os.urandom(32), 32.0)
    return RAND_bytes(count)


class Deviates:
    """Deviates of a law that are drawn ahead: setting up a short array costs more than its numbers.

    Each is given out once. Make one for a round and leave it there: nothing is kept between rounds.

    Args:
        tail: the law of a size.
        bits: where randomness comes from; None, the operating system, is the only private choice.
        ahead: how many numbers will be asked for in all, as far as that is known.

    Raises:
        ParameterError: something else than a source of bits.
    """

    def __init__(
        self, tail: exact_tails.Tail, bits: exact_tails.Bits | None = None, ahead: int = 0
    ) -> None:
        if bits is not None and not callable(bits):
            refuse("bits", bits, "give bytes", "for a seed that is no secret: reproducible_bits")
        self.tail, self.bits, self._ahead = tail, bits or system_bits, ahead
        self._words, self._about, self._at = np.empty(0, np.uint64), np.empty(0), 0
        self._scale, self._space = 0.0, Workspace(0)
        # What ``noisy_scaled`` adds noise to in every step, in its spacings.
        self.constant: Array | None = None
        self.quotients: dict[float, tuple[Array, float]] = {}

    def rounded(
        self,
        totals: Array | None,
        count: int,
        scale: float,
        unit: float = 1.0,
        largest: float = math.inf,
        out: Array | None = None,
    ) -> Array:
        """Return the whole numbers nearest to totals / unit + scale s X.

        Args:
            totals: shape (count,), at most 2^52 units in size; None for zeros.
            count: how many.
            scale: factor on the deviates, at most 2^32.
            unit: what whole numbers are, a power of two.
            largest: no total is larger in size, as far as that is known; it changes the time only.
            out: where they are written, shape (count,); it may be the totals.

        Returns:
            Shape (count,), as doubles; no -0.
        """
        out, done = np.empty(count) if out is None else out, 0
        nearby = largest <= NEARBY * scale * unit
        if scale != self._scale:
            self._scale = scale
            if self._at < len(self._words):
                self._about = signed_sizes(self.tail, self._words, self._space, scale)
        # A block is used up before the next is drawn: no bit serves twice.
        while done < count:
            if self._at == len(self._words):
                self._draw(count - done)
            end = min(len(self._words), self._at + count - done)
            drawn, places = slice(self._at, end), slice(done, done + end - self._at)
            if end - self._at == count:
                self._round(drawn, totals, scale, unit, nearby, out)
            else:
                part = None if totals is None else totals[places]
                self._round(drawn, part, scale, unit, nearby, out[places])
            self._at, done = end, places.stop
        return out

    def _draw(self, wanted: int) -> None:
        """Draw a share of what is wanted, or as many times that as fit a block and will be."""
        if wanted > BLOCK:
            # Shares of one size, so that the last is not nearly empty.
            count = -(-wanted // -(-wanted // BLOCK))
        else:
            count = wanted * max(1, min(BLOCK, self._ahead) // wanted)
        self._ahead -= count
        self._words = fresh_words(self.bits, count)
        if count > len(self._space.flags):
            self._space = Workspace(count)
        self._about, self._at = signed_sizes(self.tail, self._words, self._space, self._scale), 0

    def _round(
        self,
        drawn: slice,
        totals: Array | None,
        scale: float,
        unit: float,
        nearby: bool,
        out: Array,
    ) -> None:
        """Write whole numbers to ``out``, for the deviates in some places of the block."""
        space = self._space.part(len(out))
        near, found, base = self._about[drawn], space.other, None
        if totals is not None:
            # Exact: the unit is a power of two.
            offsets = totals if unit == 1.0 else np.divide(totals, unit, out=found)
            if not nearby:
                # Whole numbers apart: only what is left of a total takes part in the rounding.
                base = np.rint(offsets, out=space.base)
                offsets = np.subtract(offsets, base, out=found)
            near = np.add(near, offsets, out=space.one)
        np.rint(near, out=found)
        near = np.subtract(near, found, out=space.one)
        np.abs(near, out=near)
        # Farther from a half than the proved error: no exact arithmetic can round otherwise.
        limit = 0.5 - (scale + 1.0) * QUICK_MARGIN
        clear = np.less(near, limit, out=space.flags)
        if base is not None:
            found += base
        if np.count_nonzero(clear) < len(out):
            at = np.logical_not(clear, out=clear).nonzero()[0]
            some = np.zeros(len(at)) if totals is None else totals[at]
            found[at] = self._finer(self._words[drawn][at], some, scale, unit)
        # The totals may be there; and a rounded -0.1 would be -0, which tells the sign.
        np.add(found, 0.0, out=out)

    def _finer(self, words: Words, totals: Array, scale: float, unit: float) -> Array:
        """Return the whole numbers by the table, or exact ones."""
        offsets, uniforms = totals / unit, (words >> _ONE).view(np.int64)
        base = np.rint(offsets)
        near = sizes(self.tail, uniforms.astype(np.float64))
        near = _with_signs(near, words, np.empty_like(words))
        near *= scale
        near += offsets - base
        out: Array = np.rint(near)
        clear = np.abs(near - out) < 0.5 - (scale + 1.0) * MARGIN
        # Below, the table has no cells.
        served = uniforms >= 1 << exact_tails.FAST_FROM
        clear &= served
        if not clear.all():
            for i in (~clear).nonzero()[0]:
                # Fractions from here on: doubles are some, so nothing is rounded any more.
                offset = Fraction(float(totals[i])) / Fraction(unit) - int(base[i])
                known = float(near[i]) if served[i] else None
                out[i] = self._exact(offset, Fraction(scale), int(words[i]), known)
        out += base
        return out

    def _exact(
        self, offset: Fraction, scale: Fraction, word: int, near: float | None = None
    ) -> float:
        """Return the whole number nearest to offset + or - scale X, more bits drawn as needed.

        Args:
            offset: what the noise is added to.
            scale: factor on X.
            word: sign and first bits of V.
            near: that sum but for an error below 1/2; None where it is not known.
        """
        uniform, sign = word >> 1, -1 if word & 1 else 1
        drawn = exact_tails.Uniform(uniform, exact_tails.DRAWN_BITS, self.bits)
        # Mirrored where the sign is minus, so that the size is always added.
        question = self.tail, sign * offset, 1 / scale, drawn
        if near is not None:
            return float(
                sign * exact_tails.nearest(*question, math.floor(sign * near), or_next=True)
            )
        # From the middle of what the bits leave open; nothing rests on it.
        size = self.tail.guess((uniform + 0.5) / 2.0**exact_tails.DRAWN_BITS)
        return float(
            sign * exact_tails.nearest(*question, round(sign * offset + scale * Fraction(size)))
        )


def fresh_words(bits: exact_tails.Bits, count: int) -> Words:
    """Return ``count`` whole numbers of 64 fresh bits."""
    drawn = bits(8 * count)
    if not isinstance(drawn, bytes) or len(drawn) != 8 * count:
        refuse("bits", bits, f"give the {8 * count} bytes that it is asked for")
    # In one order of bytes: seeded runs agree on every machine.
    return np.frombuffer(drawn, dtype="<u8")


class Workspace:
    """Arrays of a block that are written to again and again: fresh ones cost a page at a time."""

    def __init__(self, count: int) -> None:
        self.whole, self.flags = np.empty(count, np.int64), np.empty(count, np.bool_)
        self.found, self.one, self.other, self.base = np.empty((4, count))
        self._part = self

    def part(self, count: int) -> Workspace:
        """Return the first so many places of each; the same ones where as many were asked for."""
        if len(self._part.flags) != count:
            self._part = Workspace(0)
            for name in ("whole", "flags", "found", "one", "other", "base"):
                setattr(self._part, name, getattr(self, name)[:count])
        return self._part


def signed_sizes(
    tail: exact_tails.Tail, words: Words, space: Workspace, scale: float = 1.0
) -> Array:
    """Return scale s X within 2^-32 scales of what words stand for; NaN without a quick cell.

    The lowest bit is the sign, the others are V in units of 2^-63.

    Args:
        tail: the law of X.
        words: 64 bits each.
        space: of at least as many numbers; the answer lies in it.
        scale: factor.
    """
    (first, rows), space = exact_tails.scaled_table(tail, scale), space.part(len(words))
    cells, found = space.whole, space.found
    uniforms, next_row, bits = space.one, space.other, cells.view(np.uint64)
    np.right_shift(words, _ONE, out=bits)
    np.copyto(uniforms, cells)
    # The leading bits of a double are its octave and the place in it: the cell's number.
    np.right_shift(uniforms.view(np.int64), exact_tails.QUICK_SHIFT, out=cells)
    cells -= first
    # Clip: what has no cell gets the first or the last one, which are NaN and never clear.
    rows[2].take(cells, mode="clip", out=found)
    found *= uniforms
    found += rows[1].take(cells, mode="clip", out=next_row)
    found *= uniforms
    found += rows[0].take(cells, mode="clip", out=next_row)
    return _with_signs(found, words, bits)


def _with_signs(found: Array, words: Words, signs: Words) -> Array:
    """Return sizes, which are changed, with the signs that the words' lowest bits say."""
    # The lowest bit is moved to where a double has its sign: no branch and no product.
    np.left_shift(words, _SIGN, out=signs)
    bits = found.view(np.uint64)
    np.bitwise_xor(bits, signs, out=bits)
    return found


def sizes(tail: exact_tails.Tail, uniforms: Array) -> Array:
    """Return X for V = uniforms / 2^63, within 2^-43 of it; anything below V = 2^-19."""
    first, centres, coefficients = exact_tails.table(tail)
    # The leading bits of a double are its octave and the place in it: the cell's number.
    cell = (uniforms.view(np.int64) >> exact_tails.CELL_SHIFT) - first
    variable = uniforms - centres.take(cell, mode="clip")
    rows = coefficients.take(cell, axis=1, mode="clip")
    found: Array = rows[-1]
    for row in rows[-2::-1]:
        found *= variable
        found += row
    return found
