"""Noisy gradient steps on batches, with only the last point seen: theorems T17 and T18."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import integer, positive, require
from ..rounding import HUNDREDS, TENS, THOUSANDS, UNIT, Up, rounded_up

Array = NDArray[np.float64]

_PLACES = 96
"""Numbers of last steps that are compared; every one is valid."""
_MOST = 300.0
"""Largest logarithm of c^j that is computed, for c above 1."""
_SHARES = np.geomspace(1e-3, 0.95, 48)
"""Shares of the variance that are compared; every one is valid."""


def spread(gap: float, steps: int) -> float:
    """Return 1 + c + ... + c^(steps - 1) for c = 1 - gap, rounded up.

    Args:
        gap: 1 - c, at most 1; below 0 for c above 1.
        steps: at least 0.

    Returns:
        Infinity where the sum would overflow.
    """
    if gap == 0.0 or steps == 0:
        return float(steps)
    if gap == 1.0:
        return 1.0
    power = steps * math.log1p(-gap)
    if power > _MOST:
        return math.inf
    # The exponential errs by the error of its argument, a few units of the argument.
    return rounded_up(-math.expm1(power) / gap, TENS + 8.0 * UNIT * max(power, 0.0))


class _Steps(NamedTuple):
    """The last j steps: c^j, and the sums of c^i and c^(2 i), i < j."""

    left: float
    once: float
    twice: float

    @classmethod
    def last(cls, gap: float, steps: int) -> _Steps:
        """Return the numbers: the first two rounded up, the third down."""
        if gap == 0.0:
            return cls(1.0, float(steps), float(steps))
        if gap == 1.0:
            return cls(0.0, 1.0, 1.0)
        power = steps * math.log1p(-gap)
        # Where c^j would overflow, no payment is known that is large enough.
        if power > _MOST:
            return cls(math.inf, 1.0, 1.0)
        # The exponential errs by the error of its argument, a few units of the argument.
        off = TENS + 8.0 * UNIT * min(abs(power), 750.0)
        twice = -math.expm1(2.0 * power) / (gap * (2.0 - gap))
        once = spread(gap, steps)
        return cls(rounded_up(math.exp(power), off), once, twice * (1.0 - 2.0 * off))


class Split(NamedTuple):
    """One way to account for a run: the last ``steps`` steps, and a Gaussian for the rest.

    Attributes:
        steps: j, the number of last steps whose samples count.
        share: part of each step's variance that closes the distance before these steps.
        distance: what this part must close in all, in clip norms of a step, discounted to the end.
        mu: that of the Gaussian.
    """

    steps: int
    share: float
    distance: float
    mu: float


class BatchedRun(NamedTuple):
    """Two or more noisy steps on sampled batches. The unit is a record's largest move of a step.

    Attributes:
        gap: 1 - c; a step moves no two points farther apart than c times their distance. Below 0
            there is a finite ``reach``.
        steps: t.
        multiplier: noise std of a step.
        moved: largest move of a step between neighbours under the same draw: 1, or 2.
        reach: diameter of the set that every step is projected on; infinity for none.
        drift: added by rounding to the distance of two runs in each step.
    """

    gap: float
    steps: int
    multiplier: float
    moved: float
    reach: float
    drift: float

    def before(self, last: int) -> float:
        """Return the largest distance of the two runs before the last steps, rounded up."""
        apart = (self.moved + self.drift) * spread(self.gap, self.steps - last)
        return min(rounded_up(apart, TENS), self.reach)

    def split(self, last: int, share: float) -> Split:
        """Return theorem T17's way for a number of last steps and a share of the variance.

        The Gaussian has mu = (c^j z + e S1) / (std sqrt(share S2)), rounded up: z the distance
        before the last j steps, e the drift, S1 and S2 the sums of c^i and c^(2 i).
        """
        numbers = _Steps.last(self.gap, last)
        distance = rounded_up(numbers.left * self.before(last) + self.drift * numbers.once, TENS)
        # If steps move points apart, the last payment must cover what rounding adds.
        if self.gap < 0.0 and distance < self.drift * numbers.twice * (1.0 + THOUSANDS):
            distance = Up(math.inf)
        mu = distance / (self.multiplier * math.sqrt(share * numbers.twice))
        return Split(last, share, distance, rounded_up(mu, TENS))

    def push(self, last: int) -> float:
        """Return theorem T18's constant payment of each of the last steps, rounded up.

        It is c^j z / S1 + e: paid in every one of them it closes the distance.
        """
        numbers = _Steps.last(self.gap, last)
        # S1 is rounded up, so the quotient needs the same factor twice.
        share = numbers.left * self.before(last) / numbers.once
        return rounded_up(share + self.drift, HUNDREDS)

    def places(self) -> list[int]:
        """Return the numbers of last steps to compare, from 1 to ``steps`` - 1."""
        most = self.steps - 1
        if self.gap < 0.0:
            # The quotient may be infinite.
            most = max(1, int(min(float(most), _MOST / math.log1p(-self.gap) * 0.99)))
        grid = np.geomspace(1.0, float(most), min(_PLACES, most))
        # Beyond 2^53 the last place may be rounded up.
        return sorted({min(int(j), most) for j in np.rint(grid)})

    def best_split(self, chance: float, jump: float) -> tuple[Split, float]:
        """Return the way that the central limit prefers, and its squared mu there.

        Args:
            chance: probability of a record to be in a batch.
            jump: approximate distance of the laws of a step's pair; it only guides the choice.
        """
        places = self.places()
        each = [self.split(j, 1.0) for j in places]
        once = np.array([self._apart(chance, 0.0, 1.0 - share, jump) for share in _SHARES.tolist()])
        # A choice of infinite cost is valid too.
        with np.errstate(over="ignore"):
            mus = np.array([one.mu for one in each])[:, None] / np.sqrt(_SHARES)
            both = mus**2 + np.array(places, dtype=np.float64)[:, None] * once
        row, column = np.unravel_index(int(np.argmin(both)), both.shape)
        found = self.split(places[int(row)], float(_SHARES[column]))
        return found, float(both[row, column])

    def best_push(self, chance: float) -> tuple[int, float, float]:
        """Return a number of last steps, T18's payment, and the squared mu in the central limit.

        Args:
            chance: probability of a record to be in a batch.
        """
        each = [(j, self.push(j)) for j in self.places()]
        found = [(j * self._apart(chance, paid), j, paid) for j, paid in each]
        square, j, paid = min(found)
        return j, paid, square

    def plain(self, chance: float) -> float:
        """Return the squared mu of the composed steps in the central limit."""
        return self.steps * self._apart(chance, 0.0)

    def _apart(self, chance: float, paid: float, share: float = 1.0, jump: float = 1.0) -> float:
        """Return the chi-square divergence of (1 - q) N(a) + q N(a + jump) from N(0).

        It is a round's squared mu in the limit of many rounds, so it only guides a choice.
        """
        # Limited, so that no product with a distance of 0 is NaN.
        scale, q = min((1.0 / self.multiplier) * (1.0 / self.multiplier) / share, 1e300), chance
        products = (
            ((1.0 - q) ** 2, paid * paid),
            (2.0 * q * (1.0 - q), paid * (paid + jump)),
            (q * q, (paid + jump) ** 2),
        )
        return sum(w * math.expm1(min(x * scale, 700.0)) for w, x in products)


def cyclic_factor(gap: float, epochs: int, batches: int, reach: float = math.inf) -> float:
    """Return a bound on mu over mu of one step for batches in a fixed order, only the end seen.

    A record is in the last of ``batches`` steps of each of ``epochs`` epochs; earlier places cost
    less. Both data sets share the start. Steps move no two points farther apart than c = 1 - gap
    times their distance, and may end with a projection on a set of diameter ``reach``, in moves of
    a step. See T17 in docs/theory/theorems.md. The result is rounded up.

    Args:
        gap: 1 - c, in [0, 1].
        epochs: E, at least 1.
        batches: l, at least 1.
        reach: above 0.

    Raises:
        ParameterError: a value out of its range.

    >>> f"{cyclic_factor(0.0, 7, 10):.6f}"
    '1.264911'
    """
    count, length = integer(1, epochs=epochs), integer(1, batches=batches)
    require(0.0 <= gap <= 1.0, "gap", gap, "be in [0, 1]")
    positive(reach=min(reach, 1e300))
    found = [_taut(gap, count, length, None)]
    if reach < math.inf:
        grid = np.geomspace(1.0, float(count), min(count, _PLACES))
        found += [_taut(gap, last, length, reach) for last in {int(r) for r in np.rint(grid)}]
    return min(found)


def _taut(gap: float, epochs: int, length: int, reach: float | None) -> float:
    """Return the least mu for the last epochs, after a free distance or from a shared start.

    The payments of the last i steps must be at least the arrivals in them, for every i. The
    cheapest payments follow the least concave majorant of the points (sum of c^(2 u), sum of
    arrivals). Between the last arrival and the first one these points are convex, so one chord
    replaces them.
    """
    epoch, left = _Steps.last(gap, length), 1.0
    chords = [(1.0, 1.0)]
    if epochs > 1:
        middle = _Steps.last(gap, (epochs - 1) * length)
        # Arrivals are c^(l u): a geometric series with the contraction of an epoch.
        series = spread(max(1.0 - epoch.left, 0.0), epochs - 1)
        chords.append(((1.0 - gap) ** 2 * middle.twice, epoch.left * series))
        left = middle.left
    if reach is not None:
        rest = _Steps.last(gap, length - 1).twice if length > 1 else 0.0
        # c^((E - 1) l) is rounded up here, so this width needs a margin of its own.
        width = (left * (1.0 - gap)) ** 2 * rest * (1.0 - THOUSANDS)
        chords.append((width, left * epoch.left * reach))
    kept: list[tuple[float, float]] = []
    for width, rise in chords:
        # A steeper chord is joined with those before it.
        while kept and rise * kept[-1][0] >= kept[-1][1] * width:
            before = kept.pop()
            width, rise = width + before[0], rise + before[1]
        kept.append((width, rise))
    squares = [rise / width * rise for width, rise in kept if rise]
    return rounded_up(math.sqrt(math.fsum(squares)), THOUSANDS)
