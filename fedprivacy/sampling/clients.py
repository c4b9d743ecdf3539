"""Cohorts of clients with different probabilities, and the scheme of each client.

Accounting of records covers one client at a time. The loss depends on how often that client takes
part, not on the other participants. These classes draw the cohort and return the scheme of each
client for the accounting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import natural, probability, refuse, validate_fields
from .everyone import Everyone
from .poisson import Poisson, taken
from .scheme import Indices, Scheme, asked_of


def chances(values: Sequence[float]) -> tuple[float, ...]:
    """Return probabilities in (0, 1], at least one."""
    if not len(values):
        refuse("chances", values, "have one entry per client and at least one client")
    return tuple(probability(chance=float(value)) for value in values)


@dataclass(frozen=True)
class SeparateProbabilities:
    """Every client takes part with a separate probability, independently, in every round.

    Args:
        chances: one probability for each client, in (0, 1].
    """

    chances: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "chances", chances(self.chances))

    def of(self, client: int) -> Scheme:
        """Return the scheme that this client is accounted by."""
        chance = self.chances[client]
        # At probability 1 there is no draw, and ``Everyone`` states that.
        return Everyone() if chance == 1.0 else Poisson(chance)

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants, sorted; may be empty.

        Raises:
            ParameterError: the number of clients is not the number of probabilities.
        """
        units, source = asked_of(population, generator)
        if units != len(self.chances):
            refuse("population", population, f"equal the number of chances, {len(self.chances)}")
        return np.flatnonzero(taken(source.random(units), self.chances))


@dataclass(frozen=True)
class WeightedDraws:
    """``draws`` weighted draws with replacement; each drawn client runs once.

    The number of draws of a client is the weight of its single run in the average. So the loss of
    its records depends only on whether the client is drawn at all. A client is drawn with
    probability 1 - (1 - weight)^draws, independently in every round.

    Args:
        draws: number of draws, at least 1.
        weights: probability of each client in one draw, above 0, sum to 1.
    """

    draws: int
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        validate_fields(self, natural, "draws")
        # Weights are checked like probabilities: a client of weight 0 has no accounting.
        object.__setattr__(self, "weights", chances(self.weights))

    def of(self, client: int) -> Scheme:
        """Return the scheme that this client is accounted by."""
        return drawn_once(self.draws, self.weights[client])

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return one round's clients, sorted, one entry for each draw.

        Raises:
            ParameterError: the number of clients is not the number of weights.
        """
        (cohort,) = self.draw_rows(1, population, generator)
        return np.asarray(cohort)

    def draw_rows(self, rows: int, population: int, generator: np.random.Generator) -> Indices:
        """Return independent cohorts, shape (rows, draws); see ``draw``."""
        units, source = asked_of(population, generator)
        if units != len(self.weights):
            refuse("population", population, f"equal the number of weights, {len(self.weights)}")
        drawn = source.choice(units, size=(rows, self.draws), p=self.weights)
        return np.asarray(np.sort(drawn, axis=1), dtype=np.int64)


def drawn_once(draws: int, weight: float) -> Scheme:
    """Return the scheme of a client that runs once if any of ``draws`` draws selects it.

    Args:
        draws: number of draws with replacement, at least 1.
        weight: the client's probability in each draw, in (0, 1].
    """
    return Everyone() if weight == 1.0 else Poisson.of_draws(draws, weight)
