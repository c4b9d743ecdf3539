"""Coins and whole numbers of an exact law, from fair bits.

A coin falls to 1 where a uniform V is below its probability, which is known to any number of bits:
64 of V's decide nearly always, and where they do not, more are drawn (``refined``). No floating
point enters the laws.
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
        count: how many.
        survival: number of places p -> S 2^p, within 1.
        bits: where randomness comes from; None, the operating system, is the only private choice.
    """
    source = bits or system_bits
    words, target = fresh_words(source, count), survival(_WORD)
    # What lies so near the target has not decided yet.
    low, high = max(target - 1, 0), min(target + 1, 2**_WORD)
    found = words < np.uint64(low) if low < 2**_WORD else np.ones(count, np.bool_)
    near = ~found & (words <= np.uint64(min(high, 2**_WORD - 1)))
    for index in np.flatnonzero(near).tolist():
        found[index] = exact_tails.Uniform(int(words[index]), _WORD, source).below(survival)
    return found


def geometric(count: int, rate: Fraction, bits: Bits | None = None) -> Integers:
    """Return independent numbers k = 0, 1, ... of probability (1 - r) r^k, r = e^-rate.

    The binary digits of such a number are independent, the i-th is 1 with probability
    1 / (1 + e^(rate 2^i)): (1 - r) r^k is the product over them. What is left above n of them is
    2^n times such a number of rate 2^n, which is counted up coin by coin.

    Args:
        count: how many.
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
    """Return independent numbers from 0 to ``below - 1``, all as likely.

    Args:
        count: how many.
        below: from 1 to 2^53.
        bits: see ``coins``.
    """
    source, found = bits or system_bits, np.empty(count, dtype=np.int64)
    most = np.uint64(2**_WORD // below * below - 1)
    open_ = np.arange(count)
    while len(open_):
        words = fresh_words(source, len(open_))
        found[open_] = (words % np.uint64(below)).astype(np.int64)
        # Beyond the last multiple the first numbers would come once more.
        open_ = open_[words > most]
    return found


def share(probability: float) -> Callable[[int], int]:
    """Return the survival of ``coins`` that are 1 with a probability."""
    above, below = probability.as_integer_ratio()
    return lambda places: (above << places) // below


def _power(x: Fraction, places: int) -> int:
    """Return e^-x times 2^places, within 1."""
    return _EXPONENTIAL.curve(x, places)[0]


def _odds(x: Fraction, places: int) -> int:
    """Return 1 / (1 + e^x) times 2^places, within 1."""
    wide = places + _GUARD
    power = _power(x, wide)
    # q / (1 + q) moves by less than q does.
    inside = (power << wide) // ((1 << wide) + power)
    return (inside + (1 << _GUARD - 1)) >> _GUARD
