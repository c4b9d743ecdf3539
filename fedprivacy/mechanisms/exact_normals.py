"""Correct roundings of ideal noise, many at a time: doubles where they decide, else integers.

Three methods give the same answer. Each handles the cases that the one before leaves undecided: a
small polynomial in the bits, a polynomial with an error of 2^-43, and the comparison of
``exact_tails``. The choice affects only the time. Proofs: docs/theory/rounding.md.
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
"""Numbers made at a time; their data fit a core's cache."""

MARGIN = 1.0 / (1 << 40)
"""A rounding is accepted if it is clear by (std / grid + 1) MARGIN; proved: 2^-43."""

QUICK_MARGIN = 1.0 / (1 << 32)
"""The same for the small polynomials; proved: 2^-33 + 2^-42, and 2^-39 for a total nearby."""

NEARBY = float(1 << 12)
"""Totals of at most this many scales are added to the noise directly, with rounding 2^-39."""

_ONE, _SIGN = np.uint64(1), np.uint64(63)

SMALL = 2048
"""Up to this many bytes, the system's generator is faster than rekeying OpenSSL's."""


def system_bits(count: int) -> bytes:
    """Return fresh bytes of the operating system's generator, or of one keyed by it.

    Many bytes come from OpenSSL's generator (AES in counter mode, SP 800-90A), in a tenth of the
    time. Each such request first adds 32 new bytes from the system. So a forked process, or a
    machine restored from a snapshot, does not share its state.
    """
    if count <= SMALL:
        return os.urandom(count)
    try:
        from ssl import RAND_add, RAND_bytes
    except ImportError:  # a Python built without OpenSSL
        return os.urandom(count)
    RAND_add(os.urandom(32), 32.0)
    return RAND_bytes(count)


class StoredDraws:
    """Draws of a law, made ahead, because the setup of a short array dominates its cost.

    Each number is used once. Make one object for a round and discard it afterwards: no numbers are
    kept between rounds.

    Args:
        tail: the law of a size.
        bits: source of randomness; None, the operating system, is the only private choice.
        ahead: expected total number of deviates.

    Raises:
        ParameterError: ``bits`` is not a source of bits.
    """

    def __init__(
        self, tail: exact_tails.Tail, bits: exact_tails.Bits | None = None, ahead: int = 0
    ) -> None:
        if bits is not None and not callable(bits):
            refuse("bits", bits, "return bytes", "use reproducible_bits for a public seed")
        self.tail, self.bits, self._ahead = tail, bits or system_bits, ahead
        self._words, self._about, self._at = np.empty(0, np.uint64), np.empty(0), 0
        self._scale, self._space = 0.0, Workspace(0)
        # Fixed total of ``noisy_scaled`` in every step, in its spacings.
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
        """Return the integers nearest to totals / unit + scale s X.

        Args:
            totals: shape (count,), at most 2^52 units in size; None for zeros.
            count: number of integers.
            scale: factor on the deviates, at most 2^32.
            unit: size of one integer step, a power of two.
            largest: known upper bound on the size of totals; it changes only the time.
            out: output array, shape (count,); it may be ``totals``.

        Returns:
            Shape (count,), as doubles; no -0.
        """
        out, done = np.empty(count) if out is None else out, 0
        nearby = largest <= NEARBY * scale * unit
        if scale != self._scale:
            self._scale = scale
            if self._at < len(self._words):
                self._about = signed_sizes(self.tail, self._words, self._space, scale)
        # A block is used up before the next is drawn, so no bit is used twice.
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
        """Draw an equal share of ``wanted``, or a multiple for a block and the expected total."""
        if wanted > BLOCK:
            # Shares of equal size, so that the last is not nearly empty.
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
        """Write integers to ``out``, for the deviates at some positions of the block."""
        space = self._space.part(len(out))
        near, found, base = self._about[drawn], space.other, None
        if totals is not None:
            # Exact, because the unit is a power of two.
            offsets = totals if unit == 1.0 else np.divide(totals, unit, out=found)
            if not nearby:
                # Separate the integer part: only the rest of a total takes part in the rounding.
                base = np.rint(offsets, out=space.base)
                offsets = np.subtract(offsets, base, out=found)
            near = np.add(near, offsets, out=space.one)
        np.rint(near, out=found)
        near = np.subtract(near, found, out=space.one)
        np.abs(near, out=near)
        # Farther from a half than the proved error: exact arithmetic cannot round differently.
        limit = 0.5 - (scale + 1.0) * QUICK_MARGIN
        clear = np.less(near, limit, out=space.flags)
        if base is not None:
            found += base
        if np.count_nonzero(clear) < len(out):
            at = np.logical_not(clear, out=clear).nonzero()[0]
            some = np.zeros(len(at)) if totals is None else totals[at]
            found[at] = self._finer(self._words[drawn][at], some, scale, unit)
        # ``out`` may be the totals. A rounded -0.1 would be -0, which reveals the sign.
        np.add(found, 0.0, out=out)

    def _finer(self, words: Words, totals: Array, scale: float, unit: float) -> Array:
        """Return the integers by the table, or by exact arithmetic."""
        offsets, uniforms = totals / unit, (words >> _ONE).view(np.int64)
        base = np.rint(offsets)
        near = sizes(self.tail, uniforms.astype(np.float64))
        near = _with_signs(near, words, np.empty_like(words))
        near *= scale
        near += offsets - base
        out: Array = np.rint(near)
        clear = np.abs(near - out) < 0.5 - (scale + 1.0) * MARGIN
        # The table has no cells below this.
        served = uniforms >= 1 << exact_tails.FAST_FROM
        clear &= served
        if not clear.all():
            for i in (~clear).nonzero()[0]:
                # Fractions from here on. They represent doubles exactly, without rounding.
                offset = Fraction(float(totals[i])) / Fraction(unit) - int(base[i])
                known = float(near[i]) if served[i] else None
                out[i] = self._exact(offset, Fraction(scale), int(words[i]), known)
        out += base
        return out

    def _exact(
        self, offset: Fraction, scale: Fraction, word: int, near: float | None = None
    ) -> float:
        """Return the integer nearest to offset + or - scale X, drawing more bits if needed.

        Args:
            offset: number that the noise is added to.
            scale: factor on X.
            word: sign and first bits of V.
            near: that sum with an error below 1/2; None if it is not known.
        """
        uniform, sign = word >> 1, -1 if word & 1 else 1
        drawn = exact_tails.Uniform(uniform, exact_tails.DRAWN_BITS, self.bits)
        # Mirrored for a negative sign, so that the size is always added.
        question = self.tail, sign * offset, 1 / scale, drawn
        if near is not None:
            return float(
                sign * exact_tails.nearest(*question, math.floor(sign * near), or_next=True)
            )
        # Start in the middle of the undecided range; correctness does not depend on it.
        size = self.tail.guess((uniform + 0.5) / 2.0**exact_tails.DRAWN_BITS)
        return float(
            sign * exact_tails.nearest(*question, round(sign * offset + scale * Fraction(size)))
        )


def fresh_words(bits: exact_tails.Bits, count: int) -> Words:
    """Return ``count`` integers of 64 fresh bits."""
    drawn = bits(8 * count)
    if not isinstance(drawn, bytes) or len(drawn) != 8 * count:
        refuse("bits", bits, f"return the requested {8 * count} bytes")
    # Fixed byte order: seeded runs agree on every machine.
    return np.frombuffer(drawn, dtype="<u8")


class Workspace:
    """Reusable arrays of a block; fresh arrays would cost a page fault per page."""

    def __init__(self, count: int) -> None:
        self.whole, self.flags = np.empty(count, np.int64), np.empty(count, np.bool_)
        self.found, self.one, self.other, self.base = np.empty((4, count))
        self._part = self

    def part(self, count: int) -> Workspace:
        """Return the first ``count`` entries of each array; cached for a repeated ``count``."""
        if len(self._part.flags) != count:
            self._part = Workspace(0)
            for name in ("whole", "flags", "found", "one", "other", "base"):
                setattr(self._part, name, getattr(self, name)[:count])
        return self._part


def signed_sizes(
    tail: exact_tails.Tail, words: Words, space: Workspace, scale: float = 1.0
) -> Array:
    """Return scale s X within 2^-32 scales of the exact value of words; NaN without a quick cell.

    The lowest bit is the sign, the others are V in units of 2^-63.

    Args:
        tail: the law of X.
        words: 64 bits each.
        space: workspace of at least this length; it holds the result.
        scale: factor.
    """
    (first, rows), space = exact_tails.scaled_table(tail, scale), space.part(len(words))
    cells, found = space.whole, space.found
    uniforms, next_row, bits = space.one, space.other, cells.view(np.uint64)
    np.right_shift(words, _ONE, out=bits)
    np.copyto(uniforms, cells)
    # The leading bits of a double are its octave and the position in it: the cell's number.
    np.right_shift(uniforms.view(np.int64), exact_tails.QUICK_SHIFT, out=cells)
    cells -= first
    # Clip: numbers without a cell get the first or last one, which is NaN and never clear.
    rows[2].take(cells, mode="clip", out=found)
    found *= uniforms
    found += rows[1].take(cells, mode="clip", out=next_row)
    found *= uniforms
    found += rows[0].take(cells, mode="clip", out=next_row)
    return _with_signs(found, words, bits)


def _with_signs(found: Array, words: Words, signs: Words) -> Array:
    """Return the sizes, changed in place, with the signs in the words' lowest bits."""
    # Move the lowest bit to a double's sign bit: no branch and no product.
    np.left_shift(words, _SIGN, out=signs)
    bits = found.view(np.uint64)
    np.bitwise_xor(bits, signs, out=bits)
    return found


def sizes(tail: exact_tails.Tail, uniforms: Array) -> Array:
    """Return X for V = uniforms / 2^63, within 2^-43; undefined below V = 2^-19."""
    first, centres, coefficients = exact_tails.table(tail)
    # The leading bits of a double are its octave and the position in it: the cell's number.
    cell = (uniforms.view(np.int64) >> exact_tails.CELL_SHIFT) - first
    variable = uniforms - centres.take(cell, mode="clip")
    rows = coefficients.take(cell, axis=1, mode="clip")
    found: Array = rows[-1]
    for row in rows[-2::-1]:
        found *= variable
        found += row
    return found
