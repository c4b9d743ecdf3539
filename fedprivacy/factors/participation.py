"""Rules for the rounds of a unit; a sensitivity is the maximum over the allowed patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import natural, refuse, validate_fields
from ..registry import registered


class Participation:
    """A rule that every unit's rounds keep, for all data.

    Args:
        apart: whether adding or removing a unit is known to leave all other units in their rounds,
            for example if units arrive independently. ``add_remove`` is supported only then.
    """

    together: ClassVar[bool] = False
    """Whether a unit's rounds are multiples of a fixed number of rounds apart."""
    apart: bool

    def gap(self, rounds: int) -> int:
        """Return the fewest rounds from one participation of a unit to its next."""
        raise NotImplementedError

    def most(self, rounds: int) -> int:
        """Return the largest number of participations of a unit in ``rounds`` rounds."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Spaced(Participation):
    """Participations with a minimum distance."""

    separation: int
    at_most: int | None = None
    apart: bool = False

    def __post_init__(self) -> None:
        validate_fields(self, natural, "separation")
        validate_fields(self, natural, "at_most", or_none=True)
        _check_flag(self.apart)

    def gap(self, rounds: int) -> int:
        """Return the separation, or all rounds if that is less."""
        return min(self.separation, rounds)

    def most(self, rounds: int) -> int:
        """Return ``at_most``, or less if fewer fit."""
        # Rounded up: rounds 0, b, 2 b, ... below ``rounds``.
        fitting = -(-rounds // self.separation)
        return fitting if self.at_most is None else min(fitting, self.at_most)


@registered
@dataclass(frozen=True)
class MinimumSeparation(_Spaced):
    """A unit takes part in any rounds that are at least ``separation`` apart.

    Args:
        separation: b: after round i, a unit is away until round i + b.
        at_most: k, the largest total number of participations; None for no other limit.
        apart: see ``Participation``.
    """


@registered
@dataclass(frozen=True)
class FixedEpochs(_Spaced):
    """A unit has one position in every epoch of ``separation`` rounds, the same in each.

    So its rounds are some of j, j + b, j + 2 b, ... ("(k, b)-participation").

    Args:
        separation: b, rounds of an epoch.
        at_most: k, the largest total number of participations; None for once an epoch.
        apart: see ``Participation``.
    """

    together: ClassVar[bool] = True


@registered
@dataclass(frozen=True)
class SingleParticipation(Participation):
    """A unit takes part in at most one round.

    Args:
        apart: see ``Participation``.
    """

    apart: bool = False

    def __post_init__(self) -> None:
        _check_flag(self.apart)

    def gap(self, rounds: int) -> int:
        """Return all rounds: no unit returns."""
        return rounds

    def most(self, rounds: int) -> int:
        """Return 1."""
        return min(1, rounds)


def _check_flag(apart: object) -> None:
    if not isinstance(apart, bool):
        refuse("apart", apart, "be True or False")
