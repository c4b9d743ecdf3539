"""Random allocation: a unit takes part in one round of an epoch, chosen uniformly at random.

The pair of an epoch of t rounds is P = (1/t) sum_i N(mu e_i, I), Q = N(0, I). Under Q the
likelihood ratio is X = (1/t) (Z_1 + ... + Z_t) with independent log-normal Z_i of mean 1. Both
orientations of the privacy profile are expectations of convex functions of X. So laws above and
below X in convex order certify them (``docs/theory/allocation.md``). The module ``averages``
computes these laws.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp, xlogy

from ...registry import registered
from ...rounding import FEW, HUNDREDS, TENS, THOUSANDS, Up, rounded_up
from ..moments.moments import MomentBounds, Moments
from .averages import REVEALED, Law, average_law, cell_of, fineness_of
from .components import Components, Order, Unordered
from .curve import TAIL_MASS, Curve
from .discretised_laws import DiscreteLaw, by_way_of_q, merged, split
from .gaussian import Gdp
from .lattice import Array, Lattice, Side, Tails, nothing
from .max_loss import NO_LIMIT, MaxLoss
from .order import FARTHEST, NEAREST
from .support import Support

_MU_RANGE = (1e-9, 8.0)
"""Below this range, ratios differ from 1 by less than rounding. Above it, relevant Q-masses
underflow."""
_MAX_ROUNDS = 1 << 24
COARSE = 12
"""Cells per standard deviation of a coarse law."""
_LADDER = tuple(round(COARSE * math.pow(2.0, k / 4)) for k in range(32))
"""Cells per standard deviation of the laws for a lattice, in steps of about a fifth."""
LONG = 1 << 14
"""Laws of more rounds are coarse, because they take many doublings."""
_BITS = 10
"""Number of leading bits kept of a long epoch's number of rounds: an error of at most 1 in 512."""
_ORDER_BITS = 6
"""The same for the number of rounds of a bound on several epochs: an error of at most 1 in 32."""
_MAX_REFINED = 16_700
"""Laws of about more outcomes are not refined."""
_REVEALED = (1e-15, 1e-20)
"""Mass that a law on a lattice may reveal, if the lattice leaves out at least as much."""
_MAX_ORDER = 512
"""The largest order whose moment is summed."""
_FEW_ORDERS = (64, 128, 256)
"""Orders below one of these need only the sums up to it: time grows with the square."""
_SLOPES = np.geomspace(1e-3, 1e9, 400)
"""Parameters of Chernoff's bound."""


@registered
@dataclass(frozen=True)
class Allocated(Curve):
    """An epoch of ``rounds`` Gaussian sums; the unit takes part in one of these, drawn uniformly.

    The pair dominates and is attained under ``add_remove`` and ``zero_out``, for rounds that adapt
    to all earlier releases. It dominates under ``replace_one`` if ``replaced``. Some parameters are
    out of reach: mu above 8 or below 1e-9, or more than 2^24 rounds. For these the upper side is
    that of a worse curve, and no loss is certified from below.

    Args:
        mu: clip norm over the standard deviation of the noise of one round, at least 0.
        rounds: rounds of the epoch, at least 1.
        swapped: False for (present, absent), True for (absent, present).
        coarse: whether the laws above and below may be farther apart, for a tenth of the time.
        replaced: whether the unit is replaced: present with other data, by way of absent.
        fineness: cells per standard deviation of the laws above and below. With 0 it is the number
            affordable in some tenths of a second, or a smaller one for a coarse lattice.
        idle: probability in [0, 1) that the unit takes part in none of the rounds.
    """

    mu: float
    rounds: int
    swapped: bool = False
    coarse: bool = False
    replaced: bool = False
    fineness: int = 0
    idle: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mu) and self.mu >= 0.0):
            raise ValueError(f"Allocated: mu must be finite and at least 0, got {self.mu}")
        if self.rounds < 1:
            raise ValueError(f"Allocated: rounds must be at least 1, got {self.rounds}")
        if not 0.0 <= self.idle < 1.0 or (self.idle and self.replaced):
            raise ValueError(f"Allocated: idle must be in [0, 1), 0 if replaced, got {self.idle}")

    def moments(self) -> Moments:
        """Return bounds on the moments; see ``log_moment``."""
        return MomentBounds(self._log_moment)

    def support(self) -> Support:
        """Return no limit: the mean of log-normal ratios has none, nor has its inverse."""
        return Support(
            largest=NO_LIMIT if self.mu > 0.0 else MaxLoss.exactly(0.0),
            symmetric=self._symmetric,
            exact=self._exact,
            # No lower bound is known for a replaced unit, or for parameters out of reach.
            above_only=not self._certified(Side.DOWN) and not self._exact,
            cover=self._cover,
            by_step=not (self._exact or self._fixed or self.replaced),
        )

    def components(self) -> Components:
        """Return the order by mu and the number of rounds."""
        position = None
        if not self.swapped:
            position = math.log(max(self.mu, 1e-300)), -0.5 * math.log(self.rounds)
        return Components(order=Order(_bound, position=position))

    @property
    def _symmetric(self) -> bool:
        """Whether the curve equals its swap: for one Gaussian round, and for a replacement."""
        return self._exact or self.replaced

    @property
    def _exact(self) -> bool:
        """Whether the tails are exact; those of more rounds belong to a law above or below."""
        return (self.rounds == 1 and self.idle == 0.0) or self.mu == 0.0

    @property
    def _within_reach(self) -> bool:
        return _MU_RANGE[0] <= self.mu <= _MU_RANGE[1] and self.rounds <= _MAX_ROUNDS

    @property
    def _most_order(self) -> int:
        """The largest order whose moment is summed; smaller if there are many steps."""
        return _MAX_ORDER if self.rounds <= LONG else _MAX_ORDER // 2

    @property
    def _gdp(self) -> Gdp:
        """The curve of a unit that knows its round, which dominates."""
        return Gdp(self._cover)

    def swap(self) -> Curve:
        """Return the other orientation."""
        return self if self._symmetric else replace(self, swapped=not self.swapped)

    def _atoms(self, side: Side, step: float | None = None, tail_mass: float = 0.0) -> DiscreteLaw:
        """Return the default law, or a law for the step of a lattice if it is not too costly."""
        # For UP, a larger mu or fewer rounds are valid substitutes: either dominates.
        mu, rounds = max(self.mu, _MU_RANGE[0]), min(self.rounds, _MAX_ROUNDS)
        if rounds > LONG:
            rounds = with_few_bits(rounds, side, _BITS)
        fineness = self._fixed or _fineness(mu, rounds, side, step)
        # A law reveals at most the mass that the lattice leaves out anyway.
        revealed = next((least for least in _REVEALED if least <= tail_mass), REVEALED)
        atoms = _rounded(mu, rounds, side, fineness, revealed)
        if self.replaced:
            return by_way_of_q(atoms)
        if self.idle:
            atoms = _partly_idle(atoms, self.idle)
        return atoms.swap() if self.swapped else atoms

    @property
    def _fixed(self) -> int:
        """Cells per standard deviation if they do not depend on a lattice; else 0."""
        return COARSE if self.coarse or self.rounds > LONG else self.fineness

    @property
    def _cover(self) -> float:
        """The cover of one round, as if the round of the unit were published."""
        return 2.0 * self.mu if self.replaced else self.mu

    def _certified(self, side: Side) -> bool:
        """Whether a law is available on a side; for a replaced unit only on the upper side."""
        return side is Side.UP or (self._within_reach and not self.replaced)

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the law above (UP) or below (DOWN), moved by its errors."""
        if self._exact or (self.mu > _MU_RANGE[1] and side is Side.UP):
            return self._gdp.tails(loss, side)
        if not self._certified(side):
            return nothing(loss)
        return tails_of(self._atoms(side), loss)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the law's losses rounded to multiples of ``step``."""
        if self._exact or (self.mu > _MU_RANGE[1] and side is Side.UP):
            return self._gdp.lattice(step, side, tail_mass)
        if not self._certified(side):
            return Lattice(step, 0, np.zeros(1), 0.0)
        atoms = self._atoms(side, step, tail_mass)
        return (split if side is Side.UP else merged)(atoms, step, tail_mass)

    def _log_moment(self, order: float) -> Up:
        """Return the smaller of two bounds; see ``docs/theory/allocation.md``.

        The first has a closed form. Above 1 it is the exact moment at integer orders and the chord
        between these. Below 0 it is the moment of the geometric mean. Neither of the two exceeds
        order (order - 1) mu^2 / 2. The second bound is the moment of the law above, where the first
        bound covers the part beyond the law's ends. A unit that may be idle loses no more (Jensen).
        """
        if self._exact:
            return self._gdp.moments().log_moment(order)
        if self.replaced:
            return self._moment_by_way_of_q(order)
        # Swapping P and Q turns the order a into 1 - a.
        order = 1.0 - order if self.swapped else order
        # Powers between 0 and 1 are concave, so these moments are at most 1.
        if 0.0 <= order <= 1.0:
            return Up(0.0)
        # Both bound the moment from above, so the smaller one does.
        closed = self._closed_moment(order)
        # At integer orders the closed sum is the moment itself, which a law cannot improve.
        whole = 1.0 < order < self._most_order and order == math.floor(order)
        if whole or self.mu > _MU_RANGE[1]:
            return closed
        return min(closed, self._numeric_moment(order))

    def _moment_by_way_of_q(self, order: float) -> Up:
        """Return Holder's bound, with the exponents at which it is exact for Gaussian pairs."""
        # The two data sets can exchange roles, which turns the order a into 1 - a.
        order = max(order, 1.0 - order)
        if order <= 1.0:
            return Up(0.0)
        absent = replace(self, swapped=False, replaced=False)
        there = order / (2.0 * order - 1.0) * absent._log_moment(2.0 * order - 1.0)
        back = (order - 1.0) / (2.0 * order - 1.0) * absent._log_moment(1.0 - 2.0 * order)
        return min(self._gdp.moments().log_moment(order), rounded_up(there + back, TENS))

    def _closed_moment(self, order: float) -> Up:
        known: float = self._gdp.moments().log_moment(order)
        if order < 0:
            # X is at least the geometric mean of the Z, so a negative power is at most that of the
            # mean.
            mean = 0.5 * self.mu * self.mu * order * (order / self.rounds - 1.0)
            return rounded_up(min(known, mean), TENS)
        known *= 1.0 + TENS
        if order >= self._most_order:
            return Up(known)
        most = next((few for few in _FEW_ORDERS if order < few), self._most_order)
        moments, below = _whole_moments(self.mu, self.rounds, most), math.floor(order)
        share = order - below
        chord = (1.0 - share) * moments[below] + share * moments[below + 1]
        return Up(min(known, rounded_up(float(chord))))

    def _numeric_moment(self, order: float) -> Up:
        """Bound the moment by that of the law above, its power continued by tangents."""
        atoms = replace(self, swapped=False, idle=0.0)._atoms(Side.UP)
        slack = abs(order) * (atoms.shift + FEW) + HUNDREDS
        inside = float(logsumexp(order * atoms.loss, b=atoms.q))
        end = float(atoms.loss[-1 if order > 0 else 0])
        if order > 0:
            tangent = math.log(order) + (order - 1.0) * end + math.log(atoms.p_infinite)
            beyond = min(self._closed_moment(order + s) - s * end for s in (1.0, 4.0, 16.0, 64.0))
        else:
            tangent = math.log1p(-order) + order * end + math.log(atoms.q_infinite)
            beyond = _left_moment(max(self.mu, _MU_RANGE[0]), self.rounds, order, end)
        return Up(float(logsumexp([inside, tangent, beyond])) + slack)


def _bound(curves: Sequence[Allocated], side: Side, _: int) -> Curve:
    """Return the epoch of the largest mu and the fewest rounds, or of the smallest and the most."""
    if len({(curve.swapped, curve.replaced, curve.idle) for curve in curves}) > 1:
        raise Unordered
    rounds = with_few_bits(NEAREST[side](curve.rounds for curve in curves), side, _ORDER_BITS)
    mu = FARTHEST[side](curve.mu for curve in curves)
    return replace(curves[0], mu=mu, rounds=rounds, coarse=True)


def _fineness(mu: float, rounds: int, side: Side, step: float | None) -> int:
    """Return the fewest cells per standard deviation that widen a law no more than a lattice."""
    if step is None:
        return 0
    own = fineness_of(mu, rounds)
    # Every doubling spreads a law as much as a lattice of the same cell would: squares add up.
    spread = math.sqrt(rounds.bit_length())
    for fineness in _LADDER:
        if fineness < own and spread * cell_of(mu, rounds, fineness) <= step:
            return fineness
    # If a lattice resolves the cells of the default law, a finer law is worth its cost.
    resolved = cell_of(mu, rounds, own) > step
    return 2 * own if resolved and _outcomes(mu, rounds, side, own) <= _MAX_REFINED else own


def _outcomes(mu: float, rounds: int, side: Side, fineness: int) -> float:
    """Return about the number of outcomes of a law, from that of a coarse one."""
    coarse = len(_rounded(mu, rounds, side, COARSE, REVEALED).loss)
    return coarse * cell_of(mu, rounds, COARSE) / cell_of(mu, rounds, fineness)


def with_few_bits(rounds: int, side: Side, bits: int) -> int:
    """Return a number of rounds, rounded to the side, that needs few steps other than doubling."""
    dropped = max(rounds.bit_length() - bits, 0)
    kept = rounds >> dropped
    # More rounds lose less, so for DOWN the number is rounded up.
    return (kept if side is Side.UP else -(-rounds >> dropped)) << dropped


def tails_of(atoms: DiscreteLaw, loss: Array) -> Tails:
    """Return the tails of a discrete law, moved by its errors to its side."""
    moved = atoms.shift if atoms.side is Side.UP else -atoms.shift
    # Outcomes within their error of x count on the worse side, in either tail.
    above = np.searchsorted(atoms.loss + moved, loss, side="right")
    below = np.searchsorted(atoms.loss - moved, loss, side="right")
    sums = atoms.sums()
    return Tails(sums.p_above[above], sums.q_above[above], sums.p_below[below], sums.q_below[below])


def _left_moment(mu: float, rounds: int, order: float, end: float) -> float:
    """Return a bound on log E[X^order; X < exp(end)], order < 0.

    The bound is a sum over bins of log X, with Chernoff's bound in each bin. Further down X is
    bounded by the geometric mean G of the Z_i, whose logarithm is normal.
    """
    width = mu / math.sqrt(rounds)
    bottom = min(end, -mu * mu / 2 - 10.0 * width)
    edges = np.linspace(bottom, end, 400)
    # The order is negative, so the left edge of a bin has the largest power.
    bins = _log_below(mu, rounds, edges[1:]) + order * edges[:-1]
    rest = 0.5 * mu * mu * order * (order / rounds - 1.0)
    rest += float(log_ndtr((bottom + mu * mu / 2) / width - order * width))
    return float(np.logaddexp(logsumexp(bins), rest)) + THOUSANDS * (1.0 + abs(rest))


def _log_below(mu: float, rounds: int, x: Array) -> Array:
    """Return bounds on log P(log X < x): Chernoff's, by the law above one Z."""
    bounds = rounds * (_log_laplace(mu)[:, None] + _SLOPES[:, None] * np.exp(x))
    return np.asarray(np.minimum(bounds.min(axis=0), 0.0) + THOUSANDS * rounds)


@functools.lru_cache(maxsize=256)
def _log_laplace(mu: float) -> Array:
    """Return upper bounds on log E exp(-s Z) at the slopes s."""
    atoms = _rounded(mu, 1, Side.UP, 0, REVEALED)
    values = np.exp(-_SLOPES[:, None] * np.exp(atoms.loss - atoms.shift)) @ atoms.q
    return np.log(values + atoms.q_infinite)


def _combined(one: Array, two: Array, share: float) -> Array:
    """Return log-moments of the average with weights share and 1 - share, and their errors.

    Both inputs have shape ``(2, orders)``: log-moments at integer orders, and bounds on their
    error.
    """
    orders = np.arange(one.shape[1])
    left, right = orders[None, :], orders[:, None] - orders[None, :]
    choose = gammaln(orders + 1.0)[:, None] - gammaln(left + 1.0) - gammaln(np.abs(right) + 1.0)
    terms = choose + xlogy(left, share) + xlogy(right, 1.0 - share)
    terms += one[0][left] + two[0][np.abs(right)]
    moments = logsumexp(np.where(right >= 0, terms, -np.inf), axis=1)
    size = 8.0 + 4.0 * gammaln(orders + 1.0) + orders * abs(math.log(min(share, 1.0 - share)))
    error = one[1] + two[1] + FEW * (size + np.maximum(one[0], two[0]))
    # E X^0 and E X are 1 by definition, without any rounding.
    moments[:2], error[:2] = 0.0, 0.0
    return np.array([moments, error])


@functools.lru_cache(maxsize=512)
def _whole_moments(mu: float, rounds: int, most: int) -> Array:
    """Return log E X^k for k = 0 ... ``most``, rounded up."""
    orders = np.arange(most + 1.0)
    exact = orders * (orders - 1.0) * mu * mu / 2
    single = np.array([exact, FEW * exact])
    found, count = single, 1
    for bit in bin(rounds)[3:]:
        found, count = _combined(found, found, 0.5), 2 * count
        if bit == "1":
            found, count = _combined(found, single, count / (count + 1.0)), count + 1
    return np.asarray(found[0] + found[1])


@functools.lru_cache(maxsize=128)
def _rounded(mu: float, rounds: int, side: Side, fineness: int, revealed: float) -> DiscreteLaw:
    """Return the law of (present, absent) with its masses rounded to the side."""
    return discrete(average_law(mu, rounds, side, fineness, revealed))


def _partly_idle(law: DiscreteLaw, idle: float) -> DiscreteLaw:
    """Return the law of idle + (1 - idle) X, which keeps every order of laws of X."""
    there, low = 1.0 - idle, law.loss < -0.5
    # Either form has all digits on its side.
    loss = np.where(
        low,
        np.log(idle + there * np.exp(np.minimum(law.loss, 0.0))),
        np.log1p(there * np.expm1(np.where(low, 0.0, law.loss))),
    )
    q = law.q
    if law.q_infinite > 0.0:
        # Where X is 0, the ratio is now that of an idle unit.
        loss, q = np.append(math.log(idle), loss), np.append(law.q_infinite, q)
    return law._replace(
        loss=loss,
        p=q * np.exp(loss),
        q=q,
        p_infinite=there * law.p_infinite,
        q_infinite=0.0,
        shift=law.shift + FEW * (2.0 + float(np.max(np.abs(loss)))),
    )


def discrete(law: Law) -> DiscreteLaw:
    """Return (present, absent) of a law of the ratio, its masses rounded to its side."""
    side = law.side
    kept = law.mass > 0
    mass = law.mass[kept]
    loss = (law.positions() + law.origin)[kept] + np.log1p(law.excess[kept] / mass)
    # Merged outcomes lie off their positions, so neighbours may exchange their order.
    order = np.argsort(loss)
    loss, mass = loss[order], mass[order]
    size = float(np.max(np.abs(loss)))
    slack = math.expm1(law.error) + FEW * (8.0 + size)
    mass = mass * (1.0 + slack if side is Side.UP else 1.0 - slack)
    raised = 1.0 + 2.0 * slack if side is Side.UP else 0.0
    ends = (law.infinite * raised, law.zero * raised, law.shift + FEW * (2.0 + size))
    return DiscreteLaw(loss, mass * np.exp(loss), mass, *ends, law.cell, side)
