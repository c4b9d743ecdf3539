"""Bernoulli variables and integers of an exact law, from fair bits.

A Bernoulli variable (a coin) is 1 if a uniform V is below its probability, which is known to any
number of bits. 64 bits of V nearly always decide. If they do not, more bits are drawn
(``exact_tails``). The laws use no floating point.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from . import exact_tails
from .exact_normals import fresh_words, system_bits
from .exact_tails import Bits

Integers = NDArray[np.int64]

_WORD, _GUARD = 64, 8
_EXPONENTIAL = exact_tails.ExponentialTail()


def coins(
    count: int, survival: Callable[[int], int], bits: Bits | None = None
) -> NDArray[np.bool_]:
    """Return independent coins that are 1 with probability S.

    Args:
        count: number of coins.
        survival: number of places p -> S 2^p, within 1.
        bits: source of randomness; None, the operating system, is the only private choice.
    """
    source = bits or system_bits
    words, target = fresh_words(source, count), survival(_WORD)
    # Words this close to the target are undecided.
    low, high = max(target - 1, 0), min(target + 1, 2**_WORD)
    found = words < np.uint64(low) if low < 2**_WORD else np.ones(count, np.bool_)
    near = ~found & (words <= np.uint64(min(high, 2**_WORD - 1)))
    for index in np.flatnonzero(near).tolist():
        found[index] = exact_tails.Uniform(int(words[index]), _WORD, source).below(survival)
    return found


def geometric(count: int, rate: Fraction, bits: Bits | None = None) -> Integers:
    """Return independent numbers k = 0, 1, ... of probability (1 - r) r^k, r = e^-rate.

    The binary digits of this number are independent: (1 - r) r^k is the product over them. The i-th
    digit is 1 with probability 1 / (1 + e^(rate 2^i)). The rest above n digits is 2^n times a
    geometric number with a rate 2^n times larger. It is counted up coin by coin.

    Args:
        count: number of values.
        rate: above 0.
        bits: see ``coins``.
    """
    found, place = np.zeros(count, dtype=np.int64), 0
    while rate < 1:
        found += coins(count, partial(_odds, rate), bits).astype(np.int64) << place
        rate, place = 2 * rate, place + 1
    going = np.arange(count)
    while len(going):
        going = going[coins(len(going), partial(_power, rate), bits)]
        found[going] += 1 << place
    return found


def uniform(count: int, below: int, bits: Bits | None = None) -> Integers:
    """Return independent numbers from 0 to ``below - 1``, all equally likely.

    Args:
        count: number of values.
        below: from 1 to 2^53.
        bits: see ``coins``.
    """
    source, found = bits or system_bits, np.empty(count, dtype=np.int64)
    most = np.uint64(2**_WORD // below * below - 1)
    open_ = np.arange(count)
    while len(open_):
        words = fresh_words(source, len(open_))
        found[open_] = (words % np.uint64(below)).astype(np.int64)
        # Reject words beyond the last multiple, because they would favour the first numbers.
        open_ = open_[words > most]
    return found


def share(probability: float) -> Callable[[int], int]:
    """Return the survival function of ``coins`` for a probability."""
    above, below = probability.as_integer_ratio()
    return lambda places: (above << places) // below


def _power(x: Fraction, places: int) -> int:
    """Return e^-x times 2^places, within 1."""
    return _EXPONENTIAL.curve(x, places)[0]


def _odds(x: Fraction, places: int) -> int:
    """Return 1 / (1 + e^x) times 2^places, within 1."""
    wide = places + _GUARD
    power = _power(x, wide)
    # q / (1 + q) changes by less than q does.
    inside = (power << wide) // ((1 << wide) + power)
    return (inside + (1 << _GUARD - 1)) >> _GUARD
