"""Noise that restarts after every block of rounds: one factor repeated along the diagonal."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..errors import integer, refuse
from ..registry import registered
from .base import Factor, check_dense
from .interval import Array, Interval, outward
from .participation import FixedEpochs, MinimumSeparation, Participation

MOST_COUNTS = 64
"""Most participations in a block for which all smaller numbers are checked separately."""


@registered
@dataclass(frozen=True)
class Restarted(Factor):
    """C with ``factor`` in every block of ``every`` rounds on the diagonal, and 0 elsewhere.

    Rows of different blocks are not correlated. So a common property of a block's rows, for example
    a mask (``CorrelatedNoise(kept=...)``), may change from block to block.

    Args:
        factor: of one block.
        every: rounds of a block; the last one may have fewer.

    Raises:
        ParameterError: ``factor`` is not a factor or is itself restarted, or ``every`` is not a
            positive integer.
    """

    factor: Factor
    every: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", integer(1, every=self.every))
        if not isinstance(self.factor, Factor) or isinstance(self.factor, Restarted):
            rule = "be a factor of fedprivacy.factors that is not Restarted"
            refuse("factor", self.factor, rule, "pass fp.factors.BufferedToeplitz(4), for example")

    def check(self, rounds: int, participation: Participation) -> None:
        """Refuse blocks longer than the run, and blocks that the factor refuses."""
        if self.every > rounds:
            refuse(
                "every",
                self.every,
                f"be at most rounds = {rounds}",
                "or use the factor without Restarted",
            )
        self.factor.check(self.every, participation)

    def leading(self, rows: int, rounds: int) -> Factor:
        """Return the factor itself, or the leading part of its first block."""
        return self.factor.leading(rows, self.every) if rows < self.every else self

    def block(self, rounds: int) -> int:
        """Return ``every``."""
        return min(self.every, rounds)

    def matrix(self, rounds: int) -> Array:
        """Return C."""
        return self._laid(rounds, lambda factor, size: factor.matrix(size))

    def magnitudes(self, rounds: int) -> Array:
        """Return the magnitudes of the blocks."""
        return self._laid(rounds, lambda factor, size: factor.magnitudes(size))

    def noise_matrix(self, rounds: int) -> Array:
        """Return the noise matrix of the blocks."""
        return self._laid(rounds, lambda factor, size: factor.noise_matrix(size))

    def _laid(self, rounds: int, part: Callable[[Factor, int], Array]) -> Array:
        """Return blocks along the diagonal."""
        check_dense(rounds, "Restarted")
        sizes = [self.every] * (rounds // self.every)
        blocks = [part(self.factor, self.every)] * len(sizes)
        if rest := rounds % self.every:
            blocks.append(part(self.factor.leading(rest, self.every), rest))
        found = np.zeros(np.sum([block.shape for block in blocks], axis=0))
        row = column = 0
        for block in blocks:
            found[row : row + block.shape[0], column : column + block.shape[1]] = block
            row, column = row + block.shape[0], column + block.shape[1]
        return found

    def sensitivity(self, rounds: int, participation: Participation) -> Interval:
        """Return the sensitivity from the blocks, which share no row: their squares add up.

        A unit takes part at most ``room`` times in a block and at most ``most`` times in total. So
        the square is at most that of ``room`` participations, times the number of blocks, or times
        ``most`` if that is less. It is also at most ``most`` times the largest value, over j, of
        the square of j participations in a block divided by j. The lower end is the unit's own
        pattern with steps of the gap, in blocks that begin a multiple of the gap apart.
        """
        if rounds < self.every:
            return self.factor.leading(rounds, self.every).sensitivity(rounds, participation)
        gap, most = participation.gap(rounds), participation.most(rounds)
        room = participation.most(self.every)
        whole = self.factor.sensitivity(self.every, participation)
        blocks = -(-rounds // self.every)
        high = min(blocks, most) * whole.upper**2
        if most < blocks * room and 1 < room <= MOST_COUNTS:
            high = min(high, most * self._costliest(participation, room))
        # Only whole blocks: the last block may be truncated, and its columns too.
        step = gap // math.gcd(gap, self.every)
        used = min(-(-(rounds // self.every) // step), max(most // room, 1))
        return outward(used * whole.lower**2, high, float(blocks + room))

    def _costliest(self, participation: Participation, room: int) -> float:
        """Return the largest square of j participations in a block, divided by j, j <= ``room``."""
        # SingleParticipation allows only one.
        assert isinstance(participation, MinimumSeparation | FixedEpochs)
        rules = (replace(participation, at_most=j) for j in range(1, room + 1))
        ends = (self.factor.sensitivity(self.every, rule).upper for rule in rules)
        return max(end**2 / j for j, end in enumerate(ends, 1))

    def slots(self, rounds: int) -> int:
        """Return the slots of a block."""
        return self.factor.slots(self.every)
