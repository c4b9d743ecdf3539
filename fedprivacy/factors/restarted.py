"""Noise that begins anew after every block of rounds: a factor on the diagonal, again and again."""

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
"""Participations in a block for which each smaller number of them is looked at by itself."""


@registered
@dataclass(frozen=True)
class Restarted(Factor):
    """C with ``factor`` in every block of ``every`` rounds on the diagonal, and 0 elsewhere.

    No row is correlated with one of another block. So whatever rows of a block have in common, such
    as a mask (``CorrelatedNoise(kept=...)``), may change from block to block.

    Args:
        factor: of one block.
        every: rounds of a block; the last one may have fewer.

    Raises:
        ParameterError: no factor, one that is restarted itself, or no number of rounds.
    """

    factor: Factor
    every: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", integer(1, every=self.every))
        if not isinstance(self.factor, Factor) or isinstance(self.factor, Restarted):
            rule = "be one of fedprivacy.factors, not restarted itself"
            refuse("factor", self.factor, rule, "such as fp.factors.BufferedToeplitz(4)")

    def check(self, rounds: int, participation: Participation) -> None:
        """Refuse blocks that are longer than the run, and what the factor refuses of a block."""
        if self.every > rounds:
            refuse("every", self.every, f"be at most rounds = {rounds}", "or use the factor itself")
        self.factor.check(self.every, participation)

    def leading(self, rows: int, rounds: int) -> Factor:
        """Return it, or what is left of its first block."""
        return self.factor.leading(rows, self.every) if rows < self.every else self

    def block(self, rounds: int) -> int:
        """Return ``every``."""
        return min(self.every, rounds)

    def matrix(self, rounds: int) -> Array:
        """Return C."""
        return self._laid(rounds, lambda factor, size: factor.matrix(size))

    def magnitudes(self, rounds: int) -> Array:
        """Return those of the blocks."""
        return self._laid(rounds, lambda factor, size: factor.magnitudes(size))

    def noise_matrix(self, rounds: int) -> Array:
        """Return that of the blocks."""
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
        """Return it from the blocks', which share no row: their squares add up.

        A unit comes ``room`` times to a block and ``most`` times in all, at most. So the square is
        at most that of ``room`` times in as many blocks as there are, or as it comes to; and at
        most ``most`` times the largest square of j times in a block, over j. From below: its own
        pattern, whose steps are the gap, in blocks that begin a multiple of the gap apart.
        """
        if rounds < self.every:
            return self.factor.leading(rounds, self.every).sensitivity(rounds, participation)
        gap, most = participation.gap(rounds), participation.most(rounds)
        room = participation.most(self.every)
        whole = self.factor.sensitivity(self.every, participation)
        blocks = -(-rounds // self.every)
        high = min(blocks, most) * whole.upper**2
        if most < blocks * room and 1 < room <= MOST_COUNTS:
            high = min(high, most * self._dearest(participation, room))
        # Whole blocks alone: the last may be cut, and its columns with it.
        step = gap // math.gcd(gap, self.every)
        used = min(-(-(rounds // self.every) // step), max(most // room, 1))
        return outward(used * whole.lower**2, high, float(blocks + room))

    def _dearest(self, participation: Participation, room: int) -> float:
        """Return the largest square of j participations in a block over j, j up to ``room``."""
        # One participation alone has room for one.
        assert isinstance(participation, MinimumSeparation | FixedEpochs)
        rules = (replace(participation, at_most=j) for j in range(1, room + 1))
        ends = (self.factor.sensitivity(self.every, rule).upper for rule in rules)
        return max(end**2 / j for j, end in enumerate(ends, 1))

    def slots(self, rounds: int) -> int:
        """Return those of a block."""
        return self.factor.slots(self.every)
