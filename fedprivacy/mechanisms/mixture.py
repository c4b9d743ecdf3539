"""A Gaussian sum that a unit changes by a random amount."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..errors import UnsupportedCombination, non_negative, positive, refuse
from ..loss import IDENTITY, Curve, GaussianMix, Gdp, Mix
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import registered
from ..relations import Adjacency, Facts, Observer, Unit
from ..sampling.scheme import VISIBLE
from ..sampling.traits import Traits
from .base import UnitGiven

ROUNDED = 2.0**-50
"""Allowed rounding of the probabilities' sum, relative to the largest move's probability."""
MAX_MOVES = 200
"""Most different moves."""


@registered
@dataclass(frozen=True, kw_only=True)
class MixtureOfGaussians(UnitGiven):
    """N(0, s^2) without the unit, sum_i p_i N(c_i, s^2) with it: a move drawn in secret.

    A larger move with the same probabilities loses more (T9). So if probabilities miss a sum of 1
    by rounding, the rest goes to the largest move. No further sampling from outside is possible.
    ``replace_one`` is not supported, because the pair does not define how two units' moves are
    directed. The observer ``server`` sees who takes part. It is assumed to see which move was drawn
    (T4).

    Args:
        standard_deviation: s, above 0.
        sensitivities: the moves c_i, at least 0, the largest above 0.
        probabilities: p_i, at least 0; they add up to 1.
        unit: "client" or "record"; optional.

    Raises:
        ParameterError: a value outside its range, or an unknown unit.
    """

    standard_deviation: float
    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]
    unit: Unit | str | None = None

    def __post_init__(self) -> None:
        std = positive(standard_deviation=self.standard_deviation)
        object.__setattr__(self, "standard_deviation", std)
        for name in ("sensitivities", "probabilities"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        super().__post_init__()
        if len(self.sensitivities) != len(self.probabilities):
            refuse("probabilities", self.probabilities, "have one entry per sensitivity")
        if abs(math.fsum(self.probabilities) - 1.0) > 1e-9:
            refuse("probabilities", self.probabilities, "add up to 1")
        if max(self.sensitivities) == 0.0:
            refuse("sensitivities", self.sensitivities, "have at least one entry above 0")
        # This refuses values that do not form a pair.
        _ = self.curve

    @property
    def traits(self) -> Traits:
        """The draw of the move is a sample; the number of units with each move is then secret."""
        return Traits(samples_its_unit=True, secret_size=len(self._moves) > 1)

    @property
    def _largest(self) -> float:
        return self._weights[-1][1]

    @property
    def curve(self) -> Curve:
        """The pair, with moves in order and weights that add up to 1."""
        return self._curve(self._moves)

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the noise over the smaller of the largest move and the clip norm."""
        return frozenset({self.standard_deviation / min(clip_norm, self._largest)})

    def knows_norm(self, clip_norm: float) -> bool:
        """Return whether the clip norm is the largest move; else moves may be multiples."""
        return clip_norm == self._largest

    def rescaled(self, fraction: float) -> MixtureOfGaussians | None:
        """Return the sum with the fraction of its noise."""
        std = fraction * self.standard_deviation
        return replace(self, standard_deviation=std) if std > 0.0 else None

    @property
    def _shown(self) -> Curve:
        """A pair that the stated one dominates: missing probability goes to the smallest move."""
        kept = self._weights
        over = math.fsum([*(weight for weight, _ in kept), -1.0])
        # Rounding of decimal fractions to doubles explains this difference.
        if abs(over) <= ROUNDED * kept[-1][0]:
            return self.curve
        # Subtract the excess from the largest moves.
        for i in range(len(kept) - 1, 0, -1):
            less = min(max(over, 0.0), kept[i][0])
            kept[i] = (kept[i][0] - less, kept[i][1])
            over -= less
        kept[0] = (1.0 - math.fsum(weight for weight, _ in kept[1:]), kept[0][1])
        return self._curve(tuple(pair for pair in kept if pair[0] > 0.0))

    def _curve(self, moves: tuple[tuple[float, float], ...]) -> Curve:
        if len(moves) == 1:
            return Gdp(moves[0][1] / self.standard_deviation) if moves[0][1] else IDENTITY
        return GaussianMix(self.standard_deviation, moves, ((1.0, 0.0),))

    @property
    def _seen(self) -> Curve:
        """The pair of an observer who sees which move was drawn (T4)."""
        std = self.standard_deviation
        return Mix(tuple((w, Gdp(move / std) if move else IDENTITY) for w, move in self._moves))

    @property
    def _weights(self) -> list[tuple[float, float]]:
        """(weight, move) as stated, with increasing moves; equal moves are merged."""
        weights: dict[float, float] = {}
        for move, weight in sorted(zip(self.sensitivities, self.probabilities, strict=True)):
            weights[move] = weights.get(move, 0.0) + weight
        return [(weight, move) for move, weight in weights.items() if weight > 0.0]

    @property
    def _moves(self) -> tuple[tuple[float, float], ...]:
        """(weight, move) with increasing moves; the weights add up to 1 or slightly more."""
        kept = self._weights
        if len(kept) > MAX_MOVES:
            refuse(
                "sensitivities",
                f"{len(kept)} numbers",
                f"have at most {MAX_MOVES} different values",
            )
        if len(kept) == 1:
            return ((1.0, kept[0][1]),)
        rest = math.fsum(weight for weight, _ in kept[:-1])
        # The largest move gets the rest, and never less than its stated weight.
        kept[-1] = (max(1.0 - rest, kept[-1][0]), kept[-1][1])
        rest = math.fsum(weight for weight, _ in kept[1:])
        # Subtract the excess from the smallest move.
        kept[0] = (1.0 - rest, kept[0][1])
        if kept[0][0] <= 0.0:
            refuse(
                "probabilities",
                self.probabilities,
                "add up to 1, including that of the smallest move",
            )
        return tuple(kept)

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of the stated pair."""
        if facts.adjacency is Adjacency.REPLACE_ONE:
            raise UnsupportedCombination(
                "MixtureOfGaussians states how one unit changes the sum, not the direction "
                f"between the changes of two units, got {facts.adjacency}; account for "
                "add_remove or zero_out"
            )
        assumption = "the stated pair dominates the distributions with and without the unit"
        curve = self.curve
        theorem = "mixture of Gaussians: the pair is the mechanism's; larger moves lose more (T9)"
        # A known move hides no participation. A single move has no secret.
        if facts.observer is Observer.SERVER and len(self._moves) > 1:
            _check_seen(facts)
            curve, theorem = self._seen, VISIBLE
        # It is not stated whether the move is seen. The loss with a hidden move is attained in any
        # case.
        witness = Witness(
            self._shown, "the stated pair: the unit's move is drawn, or there is none", free=True
        )
        return PrivacyLoss(curve, facts, witness, (theorem,), (assumption,))


def _check_seen(facts: Facts) -> None:
    """Refuse add_remove for an observer who sees the drawn move."""
    if facts.adjacency is Adjacency.ADD_REMOVE:
        raise UnsupportedCombination(
            f"no theorem covers {facts.adjacency}/{facts.observer} with secretly drawn moves, "
            "since the server sees the drawn move; these are covered: zero_out/server, "
            "add_remove/aggregate"
        )


def _numbers(name: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not value:
        refuse(name, value, "be a sequence of one or more numbers")
    return tuple(non_negative(**{name: each}) for each in value)
