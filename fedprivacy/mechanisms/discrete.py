"""Mechanisms with finitely many losses: randomised response and discrete Laplace noise."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..errors import (
    UnsupportedCombination,
    integer,
    natural,
    positive,
    probability,
    refuse,
    validate_fields,
)
from ..loss import IDENTITY, Atoms, Curve
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import registered
from ..relations import Adjacency, Facts, Unit
from ..sampling import Everyone, Scheme
from . import exact_bernoulli
from .base import UnitGiven
from .noise import readable
from .rounded import bits_of
from .tensors import numbers_of, placed_like

MAX_SENSITIVITY = 10_000
"""Largest change, in integer steps, of a sum with discrete Laplace noise by one unit."""
MAX_LOSS = 500.0
"""Largest loss of one release. Above it, Q-masses near the smallest double would matter."""


LEAST_PARAMETER = 1e-9
"""Smallest parameter of discrete Laplace noise: the most noise."""
_SLACK = 2e-15
"""Relative margin on losses of one rounded logarithm, and on their masses."""


class BracketedPair(NamedTuple):
    """A pair known up to rounding: one that dominates it, and one that it dominates."""

    above: Curve
    below: Curve


def _ends(points: list[tuple[float, float]]) -> BracketedPair:
    """Return the pairs of (loss, P-mass) with all numbers slightly increased, and decreased."""
    # Without any loss the two laws are equal.
    if not any(loss for loss, _ in points):
        return BracketedPair(IDENTITY, IDENTITY)
    out, into = (
        Atoms(tuple((loss * scale, mass * scale) for loss, mass in points))
        for scale in (1.0 + _SLACK, 1.0 - _SLACK)
    )
    return BracketedPair(out, into)


def _mirrored(points: list[tuple[float, float]], slack: float = _SLACK) -> BracketedPair:
    """Return the pairs of a curve that equals its swap, given at losses of at least 0."""
    if not any(loss for loss, _ in points):
        return BracketedPair(IDENTITY, IDENTITY)
    found = []
    for scale in (1.0 + slack, 1.0 - slack):
        right = [(loss * scale, mass * scale) for loss, mass in points]
        left = [(-loss, mass * math.exp(-loss)) for loss, mass in right[::-1] if loss > 0.0]
        found.append(Atoms((*left, *right)))
    return BracketedPair(*found)


@dataclass(frozen=True, kw_only=True)
class _Discrete(UnitGiven):
    unit: Unit | str | None = None


@registered
@dataclass(frozen=True, kw_only=True)
class RandomizedResponse(_Discrete):
    """Every unit gives one of k answers: its own, or at random one drawn uniformly from all k.

    ``replace_one`` compares two answers. ``zero_out`` compares an answer with a missing one, which
    is replaced by a uniformly drawn answer. The observer sees who answers, so ``add_remove`` and
    sampling are not supported. The pair is exact, because all answers are symmetric.

    Args:
        chance: the probability p of a uniformly drawn answer, in (0, 1].
        answers: k, at least 2.
        unit: "client" or "record"; optional.

    Raises:
        ParameterError: a value outside its range, or an unknown unit.
    """

    chance: float
    answers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        way_out = "an answer that is always true has no privacy"
        validate_fields(self, partial(probability, way_out), "chance")
        validate_fields(self, partial(integer, 2), "answers")
        if self.answers > 2**53 or self._odds(Adjacency.REPLACE_ONE) > math.exp(MAX_LOSS):
            refuse("chance", self.chance, f"give a loss of at most {MAX_LOSS:g}")

    def _odds(self, adjacency: Adjacency) -> float:
        """Return P(own answer) over its probability for the neighbour, less 1."""
        truthful = 1.0 - self.chance
        if adjacency is Adjacency.REPLACE_ONE:
            return self.answers * truthful / self.chance
        return (self.answers - 1) * truthful

    def worst_scheme(self, scheme: Scheme) -> Scheme:
        """Refuse every scheme but Everyone, because a missing answer is seen."""
        if type(scheme) is not Everyone:
            raise UnsupportedCombination(
                "sampling does not amplify randomised response, since missing answers are "
                f"visible, got {scheme}; account for it without sampling"
            )
        return scheme

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of one answer."""
        if facts.adjacency is Adjacency.ADD_REMOVE:
            raise UnsupportedCombination(
                "RandomizedResponse releases one answer of every unit, so the number of "
                f"answers reveals whether a unit is present, got {facts.adjacency}; account "
                "for replace_one or zero_out"
            )
        truthful, each, k = 1.0 - self.chance, self.chance / self.answers, self.answers
        largest = math.log1p(self._odds(facts.adjacency))
        own = (largest, truthful + each)
        if facts.adjacency is Adjacency.REPLACE_ONE:
            # All other answers are equally likely under both.
            pair = _mirrored([(0.0, (k - 2) * each), own] if k > 2 else [own])
            names = "one unit's answer is x or x'"
        else:
            pair = _ends([(math.log(self.chance), (k - 1) * each), own])
            names = "one unit's answer is x or uniformly drawn"
        theorem = (
            "randomised response: the distributions of two answers are the pair, for all answers"
        )
        assumption = "false answers are drawn uniformly and independently"
        witness = Witness(pair.below, names, free=True)
        return PrivacyLoss(pair.above, facts, witness, (theorem,), (assumption,))

    def release(self, value: Any, generator: Any = None) -> Any:
        """Return randomised answers, int64.

        Args:
            value: integers from 0 to ``answers - 1``, one per unit; an array or a number.
            generator: see ``rounded.bits_of``; None is the only private choice.

        Raises:
            ParameterError: an answer that is not one of the k.
        """
        value = readable("value", value)
        given = numbers_of(value)
        if given.dtype.kind not in "iu" or np.any((given < 0) | (given >= self.answers)):
            refuse("value", value, f"contain integers from 0 to {self.answers - 1}")
        bits = bits_of(generator)
        # Draw all, used or not, so that the time does not show who answered truly.
        drawn = exact_bernoulli.uniform(given.size, self.answers, bits).reshape(given.shape)
        by_chance = exact_bernoulli.coins(
            given.size, exact_bernoulli.share(self.chance), bits
        ).reshape(given.shape)
        return placed_like(np.where(by_chance, drawn, given.astype(np.int64)), value)


@registered
@dataclass(frozen=True, kw_only=True)
class DiscreteLaplace(_Discrete):
    """A sum of integer vectors plus discrete Laplace noise on every coordinate.

    Noise of k has probability tanh(a/2) e^(-a |k|). Contributions have a 1-norm of at most C. So a
    unit changes the sum by at most C, and by at most 2 C if it is replaced. The worst vector has
    its whole norm in one coordinate (docs/theory/theorems.md).

    Args:
        noise_parameter: a, above 0; a larger value means less noise.
        sensitivity: C, an integer from 1 to 10,000.
        unit: "client" or "record"; optional.

    Raises:
        ParameterError: a value outside its range, or an unknown unit.
    """

    noise_parameter: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        a = positive(noise_parameter=self.noise_parameter)
        object.__setattr__(self, "noise_parameter", a)
        validate_fields(self, natural, "sensitivity")
        if self.sensitivity > MAX_SENSITIVITY:
            refuse("sensitivity", self.sensitivity, f"be at most {MAX_SENSITIVITY}")
        if not LEAST_PARAMETER <= a <= MAX_LOSS / (2.0 * self.sensitivity):
            most = f"{MAX_LOSS / 2.0:g} / sensitivity"
            refuse(
                "noise_parameter", a, f"be from 1e-9 to {most}", "use Laplace outside this range"
            )

    @property
    def _noise_std(self) -> float:
        return 1.0 / (math.sqrt(2.0) * math.sinh(0.5 * self.noise_parameter))

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the noise's std over the smaller of the sensitivity and the clip norm."""
        return frozenset({self._noise_std / min(clip_norm, self.sensitivity)})

    def knows_norm(self, clip_norm: float) -> bool:
        """Return whether the clip norm is the sensitivity; else steps may be parts of the norm."""
        return clip_norm == self.sensitivity

    def rescaled(self, fraction: float) -> DiscreteLaplace | None:
        """Return the sum with the fraction of its noise; None for too little noise to count."""
        std = fraction * self._noise_std
        a = 2.0 * math.asinh(1.0 / (math.sqrt(2.0) * std)) if std > 0.0 else math.inf
        if a > MAX_LOSS / (2.0 * self.sensitivity):
            return None
        if a < LEAST_PARAMETER:
            raise UnsupportedCombination(
                f"discrete Laplace noise of std {std:g} exceeds the largest std with an account"
            )
        return replace(self, noise_parameter=a)

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of one coordinate that the unit moves."""
        pair = discrete_laplace(self.noise_parameter, facts.adjacency.moves * self.sensitivity)
        theorem = "discrete Laplace: one coordinate's shifted pair dominates (theorems.md)"
        assumption = "every unit's vector has a 1-norm of at most the sensitivity"
        names = "one unit sends C u, every other sends 0 (replace_one: it sends C u or -C u)"
        witness = Witness(pair.below, names, free=True)
        return PrivacyLoss(pair.above, facts, witness, (theorem,), (assumption,))

    def release(self, value: Any, generator: Any = None) -> Any:
        """Return the sum ``value`` plus noise, int64, the difference of two geometric numbers.

        The sum is taken modulo 2^64.

        Args:
            value: integers of at most 63 bits, an array of any shape or one number.
            generator: see ``rounded.bits_of``; None is the only private choice.

        Raises:
            ParameterError: ``value`` does not consist of these numbers.
        """
        value = readable("value", value)
        given = numbers_of(value)
        if given.dtype.kind not in "iu":
            refuse("value", given.dtype.name, "contain integers", "round contributions first")
        # Adding noise would round uint64 values to doubles.
        if given.dtype == np.uint64:
            refuse("value", given.dtype.name, "contain numbers of at most 63 bits", "pass int64")
        rate, bits = Fraction(self.noise_parameter), bits_of(generator)
        one, other = (exact_bernoulli.geometric(given.size, rate, bits) for _ in range(2))
        noise = (one - other).reshape(given.shape)
        return placed_like(given.astype(np.int64) + noise, value)


@functools.lru_cache(maxsize=256)
def discrete_laplace(a: float, moves: int) -> BracketedPair:
    """Return the pair of noise shifted by ``moves`` steps, and not: losses a (2 w - moves).

    Let r = e^-a. P gives w = 0 the mass r^moves / (1 + r), w = moves the mass 1 / (1 + r), and any
    w between the mass (1 - r) / (1 + r) r^(moves - w).
    """
    # Losses of at least 0; the negative ones are mirror images.
    w = np.arange((moves + 1) // 2, moves + 1)
    log_mass = a * (w - moves) - math.log1p(math.exp(-a))
    log_mass[:-1] += math.log(-math.expm1(-a))
    points = zip((a * (2.0 * w - moves)).tolist(), np.exp(log_mass).tolist(), strict=True)
    # The rounding error of an exponential is proportional to its exponent.
    return _mirrored(list(points), _SLACK * (1.0 + a * moves))
