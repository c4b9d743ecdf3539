"""A pair whose unit takes part with some probability."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp

from ...registry import registered
from ...rounding import TENS, Up, lowered, raised
from ..moments.families import Family
from ..moments.moments import Labelled, Moments, PairMoments
from ..moments.sampled_gaussians import SampledGaussians
from . import lattice as lattices
from . import max_loss as max_losses
from .components import Components, Order, Trimmed, UnitDraws, gaussian_shift, trim
from .curve import Curve
from .finite_support import mesh_of
from .gaussian import gaussian_tails
from .kept import kept
from .lattice import Array, Side, Tails
from .max_loss import MaxLoss, log_kept
from .order import FARTHEST, bound
from .support import Support

_MAX_CHORD_ORDER = 2048


@registered
@dataclass(frozen=True)
class Sampled(Curve):
    """The pair ((1 - q) Q + q P, Q), made from the inner pair (P, Q).

    The loss is log(1 - q + q e^L), so tails are the inner ones at log(1 + (e^x - 1) / q).
    """

    inner: Curve
    q: float

    def __post_init__(self) -> None:
        if not 0.0 < self.q < 1.0:
            raise ValueError(f"Sampled: q = {self.q} must be in (0, 1); at 1 it is the inner curve")

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the mixed inner tails at the inner loss; no mass from below if not amplifiable."""
        # Sampling mixes Q into P. With a raised Q the result would not be valid from below.
        if side is Side.DOWN and not self.inner.support().amplifiable:
            return lattices.nothing(loss)
        inner_loss = _inner_loss(loss, self.q, math.log(self.q))
        inner = self.inner.tails(inner_loss, side)
        return _mixed(inner, inner_loss, math.log1p(-self.q), math.log(self.q))

    @kept
    def moments(self) -> Moments:
        """Return the moments of the sampled pairs; see ``SampledMoments``."""
        return SampledMoments(self.inner, self.q)

    @kept
    def support(self) -> Support:
        """Return the losses log(1 - q + q e^L), where L are the losses of the inner curve.

        The cover is the inner curve's: with probability 1 - q replace the output by a draw of Q.
        """
        inner = self.inner.support()
        return Support(
            largest=lambda: self._largest(inner.largest),
            swapped_largest=self._swapped_largest,
            exact=lambda: inner.exact,
            amplifiable=lambda: inner.amplifiable,
            above_only=lambda: inner.above_only,
            mesh=lambda: mesh_of(self.moments()),
            cover=lambda: inner.cover,
        )

    def _largest(self, inner: MaxLoss) -> MaxLoss:
        q = self.q
        low, high = max_losses.sampled(inner.low, q), max_losses.sampled(inner.high, q)
        infinite = q * inner.infinite_low, q * inner.infinite_high
        return MaxLoss(lowered(low), raised(high), lowered(infinite[0]), raised(infinite[1]))

    def _swapped_largest(self) -> MaxLoss:
        """Return -log(1 - q + q e^-L), where L is the loss of the inner (Q, P); always finite."""
        inner = self.inner.swap().support().largest
        low, high = (-log_kept(self.q, loss) for loss in (inner.certain, inner.possible))
        return MaxLoss(lowered(low), raised(high))

    @kept
    def components(self) -> Components:
        """Return the inner curve; sampling acts within every label."""
        inner = self.inner.components()
        order, draws, position = inner.order or Order(_bound), None, None
        if (shift := gaussian_shift(self.inner)) is not None:
            draws = UnitDraws(1, self.q, shift)
        if order.first_shift is not None:
            position = math.log(order.first_shift), 0.25 * math.log(self.q)
        own = Order(_bound, half_position=position, draws=draws, rising=order.rising)
        return Components(
            inside=(self.inner,),
            labels=inner.labels,
            trim=self._trimmed if inner.labels else None,
            order=own,
        )

    def _trimmed(self, allowed: float) -> Trimmed:
        inner = trim(self.inner, allowed)
        return Trimmed(Sampled(inner.curve, self.q), inner.slack)


class SampledMoments(PairMoments):
    """Moments of sampled pairs: the label has the same law with and without the unit.

    Args:
        inner: the sampled curve.
        q: the probability.
    """

    def __init__(self, inner: Curve, q: float) -> None:
        super().__init__(self._sampled)
        self._inner, self._q = inner, q

    def _sampled(self) -> Labelled:
        labelled = self._inner.moments().pairs()
        return tuple((weight, pair.sampled(self._q)) for weight, pair in labelled)

    def place(self) -> tuple[Family, float] | None:
        """Return the family of the samples of Gaussian pairs, and mu."""
        shift = gaussian_shift(self._inner)
        return None if not shift else (SampledGaussians(self._q), shift)

    def log_moment(self, order: float) -> Up:
        """Return log E_Q (1 - q + q e^L)^order, by exact quadrature if the inner curve has one.

        Otherwise, for order > 1 it is the chord between the binomial sums at the two neighbouring
        integers, because the log-moment is convex in the order. For order < 0 it is E_Q e^{q order
        L}, by 1 - q + q e^L >= e^{q L}.
        """
        exact = super().log_moment(order)
        if math.isfinite(exact):
            return exact
        if order < 0:
            return self._inner.moments().log_moment(self._q * order)
        # Longer binomial sums cost too much, and infinity is always a bound.
        if order > _MAX_CHORD_ORDER:
            return Up(math.inf)
        below = math.floor(order)
        share = order - below
        at_below = _binomial_moment(self._inner, self._q, below)
        if share == 0.0:
            return at_below
        return Up(
            (1 - share) * at_below + share * _binomial_moment(self._inner, self._q, below + 1)
        )


def _bound(curves: Sequence[Sampled], side: Side, labels: int) -> Curve:
    """Return the sample of a bound of the inner curves, at the extreme probability."""
    chance = FARTHEST[side](curve.q for curve in curves)
    return Sampled(bound([curve.inner for curve in curves], side, labels), chance)


def sampled_gaussian_tails(q: Array, mu: Array, loss: Array) -> Tails:
    """Return the tails of several pairs S(N(mu, 1) / N(0, 1), q), elementwise; q may be 1."""
    with np.errstate(divide="ignore"):
        log_q, log_rest = np.log(q), np.log1p(-q)
    inner_loss = _inner_loss(loss, q, log_q)
    return _mixed(gaussian_tails(mu, inner_loss), inner_loss, log_rest, log_q)


def _mixed(inner: Tails, inner_loss: Array, log_rest: float | Array, log_q: float | Array) -> Tails:
    """Return the tails of (1 - q) Q + q P against Q from those of P against Q."""
    p_above = np.logaddexp(log_rest + inner.q_above, log_q + inner.p_above)
    p_below = np.logaddexp(log_rest + inner.q_below, log_q + inner.p_below)
    # At losses of log(1 - q) and less, the sampled pair has no mass below.
    none_below = inner_loss == -np.inf
    return Tails(
        np.where(none_below, 0.0, p_above),
        np.where(none_below, 0.0, inner.q_above),
        np.where(none_below, -np.inf, p_below),
        np.where(none_below, -np.inf, inner.q_below),
    )


def _inner_loss(loss: Array, q: float | Array, log_q: float | Array) -> Array:
    """Return log(1 + (e^x - 1) / q), -inf where the argument is not positive."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # For x above 0, a form without overflow of e^x.
        high = loss - log_q + np.log1p(-(1.0 - q) * np.exp(-np.abs(loss)))
        low = np.log1p(np.maximum(np.expm1(np.minimum(loss, 0.0)) / q, -1.0))
    return np.asarray(np.where(loss > 0, high, low))


@functools.lru_cache(maxsize=256)
def _known_moments(curve: Curve) -> dict[int, float]:
    """Return the known moments by order; new moments are added to this dict.

    There is one dict per curve, because a cache look-up for every order would cost more than a
    moment.
    """
    del curve
    return {0: 0.0, 1: 0.0}


def _integer_moments(curve: Curve, order: int) -> list[float]:
    """Return the log-moments at orders 0 .. ``order``."""
    known = _known_moments(curve)
    moments = curve.moments()
    # By order and not by appending, because another thread may add the same orders.
    for pick in range(len(known), order + 1):
        known[pick] = moments.log_moment(float(pick))
    return [known[pick] for pick in range(order + 1)]


def _binomial_moment(inner: Curve, q: float, order: int) -> Up:
    """Return log sum_l C(order, l) (1-q)^(order-l) q^l e^{inner moment at l}, rounded up."""
    if order <= 1:
        return Up(0.0)
    picks = np.arange(order + 1)
    inside = np.array(_integer_moments(inner, order))
    choose = gammaln(order + 1) - gammaln(picks + 1) - gammaln(order - picks + 1)
    terms = choose + (order - picks) * math.log1p(-q) + picks * math.log(q) + inside
    # gammaln's rounding grows with the order.
    return Up(float(logsumexp(terms)) + TENS * order)
