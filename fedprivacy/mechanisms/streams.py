"""Correlated noise, one round after the other: the rows of C^-1 z as they are needed.

Row i of the noise is e_i = m_i + std z_i / C_ii, with m_i a weighted sum of a memory of earlier
rows. ``noisy_like`` rounds m_i plus ideal noise once, to the grid of the contributions. The double
rounding error of m_i acts like another possible shift by data. It is bounded as it arises. Drawing
``SPARE`` more noise than is accounted pays for it; a stream that would need more stops. The steps
of a tree are exact. Proofs: docs/theory/correlated_noise.md, "What is drawn".

The memory is secret: anyone who has it can remove the noise of past releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import refuse
from ..factors import Factor, Recurrence, Restarted, Tree
from ..rounding import HALF_SPACING
from .noise import norm
from .rounded import noise_like, noisy_like

SPARE = 2.0**-20
"""Relative excess of drawn over accounted noise, and so the allowed rounding of a release."""


@dataclass(frozen=True, eq=False)
class NoiseMemory:
    """State that the next rows of the noise depend on. Secret.

    Args:
        row: the next row, from 0.
        vectors: shape (slots, d), double precision, an array or a tensor.
        errors: bound on the norm of every slot's rounding error, shape (slots,).
        drift: accumulated sum of squared bounds on rounding errors of m_i, in the norm of z.
        drawn: std of z in the last row as drawn, without the spare part; 0 before the first.
    """

    row: int
    vectors: Any
    errors: tuple[float, ...]
    drift: float = 0.0
    drawn: float = 0.0


@dataclass(frozen=True)
class NoiseStream:
    """Draws the noise row by row.

    Args:
        factor: C.
        rounds: its size.
        std: std of the independent draws z, as accounted.
        grid: grid of the noise.
        reach: largest change of C x by a unit; rounding errors may use a share of this change.
    """

    factor: Factor
    rounds: int
    std: float
    grid: float
    reach: float

    def begin(self, like: Any) -> NoiseMemory:
        """Return the memory before the first row.

        Args:
            like: an array or tensor of shape (d,), which gives the device.
        """
        slots = self.factor.slots(self.rounds)
        shape = (slots, len(like))
        vectors = (
            np.zeros(shape) if isinstance(like, np.ndarray) else like.new_zeros(shape).double()
        )
        return NoiseMemory(0, vectors, (0.0,) * slots)

    def draw(self, memory: NoiseMemory, generator: Any = None) -> tuple[Any, NoiseMemory]:
        """Return the next row of the noise, shape (d,), on the grid, and the memory after it.

        Args:
            memory: memory of this stream; unchanged.
            generator: see ``rounded.bits_of``; None is the only private choice.

        Raises:
            ParameterError: all rows were drawn, or rounding errors exceed the spare noise.
        """
        if memory.row >= self.rounds:
            rule = f"be below rounds = {self.rounds}, the number of rows of the factor"
            refuse(
                "row",
                memory.row,
                rule,
                "start a new run, which is accounted in addition to this one",
            )
        if isinstance(self.factor, Restarted):
            return self._in_block(self.factor, memory, generator)
        if isinstance(self.factor, Tree):
            return self._tree_row(self.factor, memory, generator)
        step = self.factor.recurrence(memory.row, self.rounds)
        return self._row(step, memory, generator)

    def _in_block(
        self, blocks: Restarted, memory: NoiseMemory, generator: Any
    ) -> tuple[Any, NoiseMemory]:
        """Draw a row by the factor of its block; the first row of a block has no memory."""
        inner, place = replace(self, factor=blocks.factor, rounds=blocks.every), memory.row
        held = replace(memory, row=place % blocks.every)
        if not held.row:
            empty = (0.0,) * len(memory.errors)
            held = replace(held, vectors=0.0 * memory.vectors, errors=empty)
        noise, after = inner.draw(held, generator)
        return noise, replace(after, row=place + 1)

    @property
    def drawn_std(self) -> float:
        """Std of the drawn z."""
        return self.std * (1.0 + SPARE)

    def _row(
        self, step: Recurrence, memory: NoiseMemory, generator: Any
    ) -> tuple[Any, NoiseMemory]:
        mean, error = _weighted(step, memory)
        # In units of z, which enters this row divided by the diagonal.
        drift = memory.drift + (float(step.diagonal) * error) ** 2
        # Twice, because each of two neighbouring runs may have this error.
        if 2.0 * math.sqrt(drift) > SPARE * self.reach:
            rule = f"be at most {SPARE * self.reach:.3g}, the margin for rounding"
            refuse(
                "the rounding error of the noise",
                2.0 * math.sqrt(drift),
                rule,
                "use fewer rounds, bands or buffers",
            )
        std = self.drawn_std / step.diagonal
        noise = noisy_like(mean, std=std, grid=self.grid, generator=generator)
        vectors, errors = _moved(step, memory, noise, mean, error)
        drawn = std * step.diagonal / (1.0 + SPARE)
        return noise, NoiseMemory(memory.row + 1, vectors, errors, drift, drawn)

    def _tree_row(self, tree: Tree, memory: NoiseMemory, generator: Any) -> tuple[Any, NoiseMemory]:
        """Draw the nodes that end in this round; slot 0 is the prefix before.

        The other slots hold one node per level. A node's estimate is rounded to the nearest grid
        point, a half up. Adding the node's sum, a multiple of the grid, commutes with this
        rounding.
        """
        end, own, std = memory.row + 1, tree.own_weights(self.rounds), self.drawn_std
        # A copy: the memory before this row stays unchanged.
        vectors = _copy(memory.vectors)
        estimate = 0.0 * vectors[0]
        for level in range(_ending(end)):
            fresh = noise_like(vectors[0], std=std, grid=self.grid, generator=generator)
            if level:
                below = vectors[level] + estimate
                vectors[level] = 0.0
                # In spacings: integers times weights of 16 binary places are exact.
                mixed = own[level] * (fresh / self.grid) + (1.0 - own[level]) * (below / self.grid)
                fresh = _floor(mixed + 0.5) * self.grid
            estimate = fresh
        vectors[_ending(end)] = estimate
        prefix = vectors[1:].sum(0)
        noise = prefix - vectors[0]
        vectors[0] = prefix
        return noise, replace(memory, row=end, vectors=vectors, drawn=std / (1.0 + SPARE))


def _ending(end: int) -> int:
    """Return the number of nodes that end in round ``end``, counted from 1."""
    return (end & -end).bit_length()


def _weighted(step: Recurrence, memory: NoiseMemory) -> tuple[Any, float]:
    """Return the mean m and a bound on the norm of its error.

    A sum of t products has an error of at most (t + 2) units of the sum of their sizes, in any
    order.
    """
    vectors, weights = memory.vectors, step.weights
    # Slots that were not written yet add neither noise nor error.
    filled = len(weights) if step.decays is not None else min(memory.row, len(weights))
    if not filled:
        return vectors.sum(0) * 0.0, 0.0
    sizes = [norm(vector) for vector in vectors[:filled]]
    used = np.abs(weights[:filled])
    error = float(used @ np.array(memory.errors[:filled]))
    error += (filled + 2.0) * HALF_SPACING * float(used @ np.array(sizes))
    if isinstance(vectors, np.ndarray):
        # The last factor covers the rounding of the bound itself.
        return weights[:filled] @ vectors[:filled], error * (1.0 + 1e-9)
    factors = vectors.new_tensor(weights[:filled])
    return factors @ vectors[:filled], error * (1.0 + 1e-9)


def _moved(
    step: Recurrence, memory: NoiseMemory, noise: Any, mean: Any, error: float
) -> tuple[Any, tuple[float, ...]]:
    """Return the memory's vectors and error bounds after a row."""
    vectors = _copy(memory.vectors)
    if not len(step.weights):
        return vectors, ()
    if step.decays is None:
        newest = noise - mean if step.inputs else noise
        vectors[1:] = memory.vectors[:-1]
        vectors[0] = newest
        # Noise on its grid is exact. Noise minus its mean was rounded.
        first = (error + HALF_SPACING * norm(newest)) * (1.0 + 1e-9) if step.inputs else 0.0
        return vectors, (first, *memory.errors[:-1])
    size, errors = norm(noise), []
    for slot, decay in enumerate(step.decays):
        vectors[slot] *= float(decay)
        vectors[slot] += noise
        # One rounding in the product, one in the sum.
        lost = decay * memory.errors[slot] + 2.0 * HALF_SPACING * (norm(vectors[slot]) + size)
        errors.append(float(lost) * (1.0 + 1e-9))
    return vectors, tuple(errors)


def _copy(vectors: Any) -> Any:
    return vectors.copy() if isinstance(vectors, np.ndarray) else vectors.clone()


def _floor(values: Any) -> Any:
    return np.floor(values) if isinstance(values, np.ndarray) else values.floor()
