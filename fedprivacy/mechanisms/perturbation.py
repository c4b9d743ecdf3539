"""Mechanisms for a training loop: they clip contributions and perturb their sum."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..relations import Adjacency
from .base import Mechanism
from .rounded import grid_for, on_grid, room
from .sparsification import Sparsification

PLACES = 24
"""Powers of two from the grid to the smaller of noise and clip norm; see ``grid_for``."""


_DEPENDS_ON = (
    "dimension of the release (for a model, its layers and number of classes)",
    "denominator of the sum",
)
"""Public numbers that no field holds."""


class Perturbation(Mechanism):
    """A mechanism that clips, draws noise, reports the noise std, and has an account.

    A loop sums ``contribution(update)`` over its cohort and releases the sum plus ``noise``. The
    ledger records the std that ``noise`` returns. Both lie on ``grid``. So sums of up to
    ``encoding.room`` contributions are exact, and the release is the correct rounding of the sum
    plus ideal noise (docs/theory/rounding.md). A user-defined mechanism with ``clip_norm``,
    ``full_noise_std``, ``contribution`` and ``noise`` trains in ``FederatedAveraging``.
    """

    clip_norm: float
    """Norm that a contribution is clipped to."""

    @property
    @abstractmethod
    def full_noise_std(self) -> float:
        """Std of a sum's noise on each coordinate if no share is missing."""

    @abstractmethod
    def contribution(self, update: Any, mask: Any = None) -> Any:
        """Return a unit's contribution to the sum: on the grid, of norm at most ``clip_norm``.

        Args:
            update: flat array or tensor of shape (d,).
            mask: the round's kept coordinates, shape (k,); None if all are kept.

        Returns:
            Shape (d,) or (k,), in a precision that holds the grid; sums are in double precision.

        Raises:
            ParameterError: a wrong shape, or an entry that is not finite, possibly after scaling.
        """

    @abstractmethod
    def noise(
        self, like: Any, generator: Any = None, *, shares: int | None = None
    ) -> tuple[Any, float]:
        """Draw the noise of a whole sum.

        Args:
            like: the sum, which gives shape and device.
            generator: see ``rounded.bits_of``; None is the only private choice.
            shares: number of noise shares received; None for all.

        Returns:
            The noise on the grid, in double precision, to be added to a sum of contributions in
            double; and the std of the drawn noise on each coordinate.
        """

    @cached_property
    def grid(self) -> float:
        """Spacing of the release, a power of two; contributions lie on this grid."""
        return grid_for(self.full_noise_std, self.clip_norm, PLACES)

    def gridded(self, update: Any) -> Any:
        """Return an array or tensor clipped to ``clip_norm`` on the grid; see ``on_grid``.

        Raises:
            ParameterError: an entry that is not finite.
        """
        return on_grid(update, clip_norm=self.clip_norm, grid=self.grid)

    @property
    def encoding(self) -> Encoding:
        """The form in which contributions are sent and summed; by default as they are."""
        return OnGrid(self)

    @property
    def sparsification(self) -> Sparsification | None:
        """Choice of the coordinates sent; None if all are sent."""
        return None

    @property
    def full_cohort(self) -> int | None:
        """Number of contributions that a round is designed for; None for any number."""
        return None

    def carries(self, shares: int) -> bool:
        """Return whether a sum of ``shares`` clients' shares has the accounted noise."""
        del shares
        return True

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return ``full_noise_std`` over ``clip_norm``; empty if shares may be missing."""
        del clip_norm
        ratio = self.full_noise_std / self.clip_norm
        return frozenset({ratio} if self.full_cohort is None and 0.0 < ratio < math.inf else ())

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the fields, the dimension and the denominator."""
        return super().public(adjacency) | dict.fromkeys(_DEPENDS_ON)


class Encoding(ABC):
    """The form in which contributions of a perturbation are sent and summed."""

    draws: ClassVar[bool] = False
    """Whether ``contribution`` uses randomness, so that its order matters to a seeded run."""

    @property
    @abstractmethod
    def spacing(self) -> float:
        """Spacing of contributions, a power of two."""

    @property
    @abstractmethod
    def room(self) -> int:
        """Number of contributions that are summed without rounding."""

    @property
    def most_on_average(self) -> float:
        """Largest mean number of contributions a round, if their number varies."""
        return math.inf

    @abstractmethod
    def of_round(self, generator: np.random.Generator | None = None) -> Perturbation:
        """Return the perturbation with a round's new public random values.

        Args:
            generator: source of these values; None for the operating system.
        """

    def travelling(self, kept: int) -> int:
        """Return the number of values in a contribution of ``kept`` coordinates."""
        return kept

    def upload_bits(self, kept: int) -> int:
        """Return the number of bits of a client's upload: 32 per value."""
        return 32 * kept

    def decoded(self, total: Any) -> Any:
        """Return the noisy sum of updates that a sum of contributions and noise represents."""
        return total


@dataclass(frozen=True)
class OnGrid(Encoding):
    """Contributions in floating point, on the grid of their perturbation."""

    perturbation: Perturbation

    @property
    def spacing(self) -> float:
        """The grid."""
        return self.perturbation.grid

    @property
    def room(self) -> int:
        """Number of contributions of the clip norm that doubles on the grid add up exactly."""
        return room(self.perturbation.clip_norm, self.spacing)

    def of_round(self, generator: np.random.Generator | None = None) -> Perturbation:
        """Return the perturbation itself: it has no public random values."""
        del generator
        return self.perturbation
