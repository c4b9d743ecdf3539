"""The binary tree of partial sums (Dwork, Naor, Pitassi, Rothblum; Chan, Shi and Song 2010)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import refuse
from ..registry import registered
from .base import Factor, check_dense
from .interval import Array, Interval, outward
from .participation import Participation

PLACES = 16
"""Binary places of the weights of Honaker's estimate: products with grid points are exact."""


@registered
@dataclass(frozen=True)
class Tree(Factor):
    """Noise on the nodes of a binary tree over the rounds; prefix sums add a few nodes.

    A node that ends in round t is drawn in round t, so O(log n) vectors are kept. With ``online`` a
    node's sum is estimated from the node and its two halves (Honaker 2015; used for training by
    Kairouz et al. 2021). The weights have 16 binary places, so that every step is exact.

    Args:
        online: whether to use Honaker's estimate from below; False for only the node.
    """

    online: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.online, bool):
            refuse("online", self.online, "be True or False")

    def levels(self, rounds: int) -> int:
        """Return the number of node sizes that end within the rounds."""
        return rounds.bit_length()

    def nodes(self, rounds: int) -> list[tuple[int, int]]:
        """Return (start, size) of every node that ends within the rounds, ordered by its end."""
        found = []
        for end in range(1, rounds + 1):
            size = 1
            while end % size == 0 and size <= end:
                found.append((end - size, size))
                size *= 2
        return found

    def matrix(self, rounds: int) -> Array:
        """Return C: a row of ones for every node, shape (nodes, rounds)."""
        check_dense(rounds, "Tree")
        nodes = self.nodes(rounds)
        found = np.zeros((len(nodes), rounds))
        for row, (start, size) in enumerate(nodes):
            found[row, start : start + size] = 1.0
        return found

    def own_weights(self, rounds: int) -> Array:
        """Return the weight of the node itself in its estimate, by level."""
        weights, variance = [1.0], 1.0
        for _ in range(1, self.levels(rounds)):
            # Inverse-variance weights: the node has variance 1, the sum of its halves twice an
            # estimate's.
            own = 2.0 * variance / (1.0 + 2.0 * variance) if self.online else 1.0
            own = round(own * 2**PLACES) / 2**PLACES
            weights.append(own)
            # Variance with the rounded weight, which is the one in use.
            variance = own * own + (1.0 - own) ** 2 * 2.0 * variance
        return np.array(weights)

    def noise_matrix(self, rounds: int) -> Array:
        """Return the matrix applied to the nodes' draws, shape (rounds, nodes)."""
        check_dense(rounds, "Tree")
        nodes, own = self.nodes(rounds), self.own_weights(rounds)
        prefix = np.zeros((rounds + 1, len(nodes)))
        held: dict[int, Any] = {}
        row = 0
        for end in range(1, rounds + 1):
            level, estimate = 0, np.zeros(len(nodes))
            while row < len(nodes) and sum(nodes[row]) == end:
                # ``held`` has the left half one level below. The right half was made just now.
                estimate = (1.0 - own[level]) * (held.pop(level - 1, 0.0) + estimate)
                estimate[row] += own[level]
                row, level = row + 1, level + 1
            held[level - 1] = estimate
            # ``held`` has the nodes of the round's binary digits, which make up the prefix.
            prefix[end] = sum(held.values())
        return np.diff(prefix, axis=0)

    def sensitivity(self, rounds: int, participation: Participation) -> Interval:
        """Return the sensitivity, computed level by level.

        A node of size m holds at most ceil(m / b) of a unit's rounds. Sums of squares are largest
        if full nodes hold all rounds. The lower end uses rounds 0, b, 2 b, ... Entries are 0 and 1,
        so only the last square root rounds.
        """
        gap, most = participation.gap(rounds), participation.most(rounds)
        places = np.arange(0, rounds, gap)[:most]
        # Python integers are exact at any size.
        low = high = 0
        for level in range(self.levels(rounds)):
            size = 1 << level
            # Nodes that do not end within the rounds are never drawn.
            complete = rounds // size
            room = min(most, -(-size // gap))
            full = min(most // room, complete)
            rest = min(most - full * room, room) if full < complete else 0
            high += full * room * room + rest * rest
            held = np.bincount(places // size, minlength=complete)[:complete]
            low += int(np.sum(held.astype(np.int64) ** 2))
        return outward(float(low), float(high), 0.0)

    def slots(self, rounds: int) -> int:
        """Return one slot per level, plus one for the prefix before."""
        return self.levels(rounds) + 1
