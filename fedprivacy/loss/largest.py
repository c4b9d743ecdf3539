"""The largest loss of a pair: what is left to ask where delta is 0, or epsilon infinite.

Pure differential privacy asks for the essential supremum of L = log dP/dQ under P. It is known in
closed form for every pair here, and adds up over independent rounds, so that it also caps epsilon
at every delta: delta(epsilon) is the mass at infinite loss from the largest finite loss on.
"""

from __future__ import annotations

import functools
import math
import sys
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..rounding import FEW
from .moments.mixtures import log_sum, log_sum_error
from .pairs.allocation import Allocated
from .pairs.bracketed import Bracketed
from .pairs.combined import Composed, Fold, Mix, Sampled
from .pairs.curve import Curve, Swapped
from .pairs.discrete import Atoms
from .pairs.exchanged import LaplaceExchanged, log_kept
from .pairs.gaussian import GaussianMix, Gdp
from .pairs.laplace import LaplacePair
from .pairs.least_of import LeastOf
from .pairs.opposed import Opposed
from .pairs.stated import RenyiAndPoints, stated_pair

_EXPONENT = 700.0
"""Up to it exp does not overflow."""


class Largest(NamedTuple):
    """Certified ends of a pair's largest finite loss, 0 if it is less, and of the rest's P-mass."""

    low: float
    high: float
    infinite_low: float = 0.0
    """At least this much of P has an infinite loss."""
    infinite_high: float = 0.0
    """At most this much of P has an infinite loss."""

    def epsilon(self, delta: float) -> float:
        """Return an epsilon that suffices at a delta of at least 0, or inf."""
        return self.high if self.infinite_high <= delta else math.inf

    def delta(self, epsilon: float) -> float:
        """Return a delta that suffices at an epsilon, or 1."""
        return self.infinite_high if self.high <= epsilon else 1.0

    @property
    def certain(self) -> float:
        """Below this no epsilon suffices at delta = 0."""
        return math.inf if self.infinite_low > 0.0 else self.low

    @property
    def possible(self) -> float:
        """An epsilon that suffices at delta = 0."""
        return self.epsilon(0.0)


_NO_LIMIT = Largest(math.inf, math.inf)


@functools.singledispatch
def largest(curve: Curve) -> Largest:
    """Return the largest loss of one orientation of a curve; nothing is known of other kinds.

    Renyi divergences of finite orders bound no loss. Gaussian losses have no limit; nor has the
    mean of several log-normal ratios, or its inverse. Sampling: log(1 - q + q e^L), at most
    -log(1 - q) where the roles are exchanged. Labels: the worst. Rounds: the sum. Fold: its upper
    half's, which is its profile at epsilon >= 0.
    """
    return Largest(0.0, math.inf, 0.0, 1.0)


@largest.register
def _(curve: Gdp) -> Largest:
    return _NO_LIMIT if curve.mu > 0.0 else Largest(0.0, 0.0)


@largest.register
def _(curve: LaplacePair) -> Largest:
    return Largest(curve.shift, curve.shift)


@largest.register
def _(curve: LaplaceExchanged) -> Largest:
    return Largest(_less(curve.most), _more(curve.most))


@largest.register
def _(curve: Allocated) -> Largest:
    return _NO_LIMIT if curve.mu > 0.0 else Largest(0.0, 0.0)


@largest.register
def _(curve: Opposed) -> Largest:
    """Return no limit of P against Q, whose means lie lower; the other order's ratio has one."""
    return _NO_LIMIT._replace(low=0.0) if curve.swapped else _NO_LIMIT


@largest.register
def _(curve: Bracketed) -> Largest:
    low, high = largest(curve.below), largest(curve.above)
    return Largest(low.low, high.high, low.infinite_low, high.infinite_high)


@largest.register
def _(curve: LeastOf) -> Largest:
    found = [largest(one) for one in curve.curves]
    return min(found, key=lambda one: (one.infinite_high, one.high))._replace(
        low=min(one.low for one in found), infinite_low=min(one.infinite_low for one in found)
    )


@largest.register
def _(curve: Atoms) -> Largest:
    losses = [loss for loss, _ in curve.points]
    ends, infinite = losses[-1:], curve.infinite
    # Swapped, losses change sign: the least becomes the largest, what P lacks is infinite.
    if curve.swapped:
        ends, infinite = [-loss for loss in losses[:1]], curve.vanishing
    top = max([0.0, *ends])
    return Largest(top, top, infinite, infinite)


@largest.register
def _(curve: RenyiAndPoints) -> Largest:
    """Return the upper ends of its guarantees; that they are attained is not known."""
    found = largest(stated_pair(curve.guarantees))
    return Largest(0.0, found.high, 0.0, found.infinite_high)


@largest.register
def _(curve: GaussianMix) -> Largest:
    """Return the larger limit at an end: the loss falls and then rises, if it does both."""
    top = max(_limit(curve, -1.0), _limit(curve, 1.0))
    return Largest(max(_less(top), 0.0), max(_more(top), 0.0))


def _limit(curve: GaussianMix, end: float) -> float:
    """Return the limit of log P/Q at an end of the line, -1 or 1 times infinity."""
    # Of Gaussians of one width the one farthest out outweighs all others there.
    last = [max(end * mean for _, mean in mixture) for mixture in (curve.p, curve.q)]
    if last[0] != last[1]:
        return math.inf if last[0] > last[1] else -math.inf
    # The same mean is farthest on both sides: the ratio of its weights is left.
    p, q = (
        math.fsum(weight for weight, mean in mixture if end * mean == last[0])
        for mixture in (curve.p, curve.q)
    )
    return math.log(p / q)


@largest.register
def _(curve: Sampled) -> Largest:
    inner, q = largest(curve.inner), curve.q
    low, high = _sampled(inner.low, q), _sampled(inner.high, q)
    infinite = q * inner.infinite_low, q * inner.infinite_high
    return Largest(_less(low), _more(high), _less(infinite[0]), _more(infinite[1]))


def _sampled(loss: float, q: float) -> float:
    """Return log(1 - q + q e^loss)."""
    if loss <= _EXPONENT:
        return math.log1p(q * math.expm1(loss))
    # Beyond doubles: 1 - q is nothing beside q e^loss.
    return loss + math.log(q)


@largest.register
def _(curve: Fold) -> Largest:
    return largest(curve.up)


@largest.register
def _(curve: Mix) -> Largest:
    parts = [(weight, largest(part)) for weight, part in curve.parts]
    return Largest(
        max(part.low for _, part in parts),
        max(part.high for _, part in parts),
        _less(math.fsum(weight * part.infinite_low for weight, part in parts)),
        min(_more(math.fsum(weight * part.infinite_high for weight, part in parts)), 1.0),
    )


@largest.register
def _(curve: Composed) -> Largest:
    parts = [(largest(part), count) for part, count in curve.parts]
    return Largest(
        _sum([(part.low, count) for part, count in parts], -math.inf),
        _sum([(part.high, count) for part, count in parts], math.inf),
        _less(_any([(part.infinite_low, count) for part, count in parts])),
        min(_more(_any([(part.infinite_high, count) for part, count in parts])), 1.0),
    )


def _sum(terms: list[tuple[float, int]], towards: float) -> float:
    """Return the exact sum of value * count, rounded once, towards an end."""
    # Fractions hold no infinity.
    if any(math.isinf(value) for value, _ in terms):
        return math.inf
    exact = sum((Fraction(value) * count for value, count in terms), Fraction(0))
    if abs(exact) > sys.float_info.max:
        far = math.inf if exact > 0 else -math.inf
        return far if far == towards else math.nextafter(far, 0.0)
    found = float(exact)
    off = exact - Fraction(found)
    # Only a sum that was rounded inward is moved: exact ones stay as they are.
    outward = off > 0 if towards > 0 else off < 0
    return math.nextafter(found, towards) if outward else found


def _any(terms: list[tuple[float, int]]) -> float:
    """Return the probability that any of many independent events happens."""
    # log(0) is no sum: what is certain once is certain.
    if any(chance >= 1.0 for chance, _ in terms):
        return 1.0
    # Subtracted from 0.0, since -expm1(0) would be a negative zero.
    return 0.0 - math.expm1(math.fsum(count * math.log1p(-chance) for chance, count in terms))


@largest.register
def _(curve: Swapped) -> Largest:
    return _turned(curve.curve)


@functools.singledispatch
def _turned(curve: Curve) -> Largest:
    """Return the largest loss of (Q, P)."""
    # A symmetric pair is its own reverse; of others nothing is known.
    return largest(curve) if curve.symmetric else largest.dispatch(object)(curve)


@_turned.register
def _(curve: Sampled) -> Largest:
    """Return that of -log(1 - q + q e^-L), L the loss of (Q, P); it is never infinite."""
    inner = largest(curve.inner.swap())
    low, high = (-log_kept(curve.q, loss) for loss in (inner.certain, inner.possible))
    return Largest(_less(low), _more(high))


@_turned.register
def _(curve: GaussianMix) -> Largest:
    """Return minus the least loss: a limit at an end, or found on a grid.

    The loss rises throughout where Q has one mean, below all of P's. Else it falls and then
    rises. Its second derivative is a difference of two variances of means, each at most
    spread^2 / 4, so that between neighbours of a grid it lies at most (spread step)^2 / 32 below
    the lower of them.
    """
    limits = min(_limit(curve, -1.0), _limit(curve, 1.0))
    if limits == -math.inf:
        return _NO_LIMIT
    if len(curve.q) == 1 and all(mean >= curve.q[0][1] for _, mean in curve.p):
        return Largest(max(_less(-limits), 0.0), max(_more(-limits), 0.0))
    y, _, lowest = curve._table
    # The table's grid is coarse: the least loss lies next to its lowest point.
    around = y[max(lowest - 2, 0) : lowest + 3]
    fine = np.linspace(around[0], around[-1], 4001)
    pair = curve.pair
    loss = log_sum(pair.p, fine) - log_sum(pair.q, fine)
    error = log_sum_error(pair.p, fine) + log_sum_error(pair.q, fine)
    sag = (pair.spread * (fine[1] - fine[0])) ** 2 / 32.0
    # Between grid points it may be lower by the sag; a computed point is attained.
    least, most = float(np.min(loss - error) - sag), float(np.min(loss + error))
    return Largest(max(_less(-most), _less(-limits), 0.0), max(_more(-least), _more(-limits), 0.0))


def _less(value: float) -> float:
    """Return a number of a few roundings, lowered by more."""
    return value - FEW * abs(value) if math.isfinite(value) else value


def _more(value: float) -> float:
    """Return a number of a few roundings, raised by more."""
    return value + FEW * abs(value) if math.isfinite(value) else value
