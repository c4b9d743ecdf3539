"""Folds of a Gaussian sum over a cohort of a fixed size, with the pairs that they dominate."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from ...registry import registered
from ..moments.families import Family
from ..moments.folded_gaussians import FoldedGaussians
from ..moments.moments import Moments
from .components import Components, UnitDraws, different_in, parts_of
from .curve import Curve
from .fold import Fold, FoldMoments
from .gaussian import MOST_EXPONENT, GaussianMix, Gdp, less_scaled, solve_quadratic
from .kept import kept
from .lattice import Array, Tails, nothing
from .sampled import Sampled


def given_way(std: float, q: float) -> GaussianMix:
    """Return the pair of a unit that sends C u or 0 while all others send -C u."""
    stays = (1.0 - q, -1.0)
    return GaussianMix(std, (stays, (q, 1.0)), (stays, (q, 0.0)))


def drawn_tails(q: Array, mu: Array, loss: Array) -> Tails:
    """Return the tails above of several pairs like ``given_way``; below, nothing.

    The outcome scaled to unit variance has the means -mu, 0 and mu. Losses are at least 0, so the
    set of larger losses is a half line. Where products could underflow, Q has no mass there.

    Args:
        q: sampling probabilities in (0, 1), shape (n, 1).
        mu: distances of the means, shape (n, 1).
        loss: at least 0, shape (n, any).
    """
    size, rest = np.exp(-0.5 * mu * mu), 1.0 - q
    below, centre = less_scaled(rest, rest, loss), less_scaled(0.0, q, loss)
    _, right = solve_quadratic(q * size * np.exp(-loss), centre, below * size)
    with np.errstate(divide="ignore"):
        right = np.log(right) / mu
    log_q, log_rest = np.log(q), np.log(rest)
    common = log_rest + log_ndtr(-mu - right)
    p_above = np.logaddexp(common, log_q + log_ndtr(mu - right))
    q_above = np.logaddexp(common, log_q + log_ndtr(-right))
    none = nothing(loss)
    huge = loss + mu * mu - 2.0 * np.minimum(log_q, log_rest) > MOST_EXPONENT
    unknown = (np.where(huge, 0.0, p_above), np.where(huge, -np.inf, q_above))
    return Tails(*unknown, none.p_below, none.q_below)


@registered
@dataclass(frozen=True)
class Triangles(Fold):
    """A fold that dominates rounds, each of them one of the pairs of a triangle.

    Given the other drawn units, a round compares (1-q) N(0, I) + q N(u, I) with (1-q) N(0, I) + q
    N(v, I). Under ``replace_one`` the ends of u, v and 0 are three points of a ball of diameter mu.
    The fold is F(S, S), S = S(G(mu), q). Under ``zero_out`` one of u and v ends in the centre of a
    ball of radius mu. The fold is F(A, S) or F(S, A), with A of ``given_way``. The fold dominates
    all these pairs in one round. Over many rounds a smaller loss can be shown: see
    ``fedprivacy.loss.strategies.adaptive_adversary``.
    """

    def __post_init__(self) -> None:
        sample, others = self._sample, {self.up, self.down} - {self._sample}
        known = sample == Sampled(Gdp(self.mu), self.q) if self._draws is not None else False
        for other in others:
            std = getattr(other, "std", math.nan)
            known = known and other == given_way(std, self.q) and self.mu == 1.0 / std
        if not known:
            raise ValueError(
                f"Triangles: up = {self.up}, down = {self.down} must be one sampled Gaussian "
                "pair, or one and the pair of a unit that gives way"
            )

    @functools.cached_property
    def _sample(self) -> Curve:
        """The half that is a sampled Gaussian pair."""
        return self.up if _sampled_draws(self.up) is not None else self.down

    @functools.cached_property
    def _draws(self) -> UnitDraws | None:
        return _sampled_draws(self._sample)

    @property
    def zeroed(self) -> bool:
        """Whether one of the three points is the centre."""
        return self.up != self.down

    @property
    def turned(self) -> bool:
        """Whether the point of Q is the one that is not the centre."""
        return self.zeroed and self._sample is self.up

    @property
    def corners(self) -> tuple[Curve, Curve]:
        """The two pairs that lose the most of all: at losses above 0, and at losses below 0."""
        return self.up, self.down.swap()

    @property
    def mu(self) -> float:
        """The largest distance of two means; ``zeroed``: of one from the centre."""
        return math.nan if self._draws is None else self._draws.shift

    @property
    def q(self) -> float:
        """The sampling probability."""
        return math.nan if self._draws is None else self._draws.chance

    @property
    def fold(self) -> Fold:
        """The fold without the triangle."""
        return Fold(self.up, self.down)

    @kept
    def moments(self) -> Moments:
        """Return the moments of the fold, with their place in a family."""
        return _TriangleMoments(self)

    def components(self) -> Components:
        """Return both halves, and the family of pairs of an adaptive adversary."""
        return Components(inside=(self.up, self.down), upper=self.up, adaptive=self)

    def swap(self) -> Curve:
        """Return the fold of the other order."""
        return Triangles(self.down, self.up)


class _TriangleMoments(FoldMoments):
    def __init__(self, fold: Triangles) -> None:
        super().__init__(fold)
        self._triangles = fold

    def place(self) -> tuple[Family, float]:
        """Return the family of folds with one probability, and mu."""
        one = self._triangles
        return FoldedGaussians(one.q, one.zeroed, one.turned), one.mu


def _sampled_draws(half: Curve) -> UnitDraws | None:
    """Return the draws of a sampled Gaussian pair; None for any other curve."""
    order = half.components().order
    draws = None if order is None else order.draws
    return draws if draws is not None and draws.rank == 1 and draws.chance < 1.0 else None


def triangles(curve: Curve) -> tuple[Triangles, int] | None:
    """Return (round, number of runs) if a curve consists of only one round of triangles."""
    if different_in(curve) > 1:
        return None
    one, rounds = parts_of(curve)[0]
    family = one.components().adaptive
    return None if family is None else (family, rounds)
