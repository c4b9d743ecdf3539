"""The Laplace mechanism on a sum of clipped numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from ..loss import LaplacePair
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import registered
from ..relations import Facts
from ..rounding import quotient_up
from ..sampling.traits import Traits
from .gaussian import SUM_WITNESS, NoisySum
from .noise import readable
from .rounded import bits_of, noisy_laplace_sum, numbers, same_kind
from .tensors import is_tensor


@registered
@dataclass(frozen=True, kw_only=True)
class Laplace(NoisySum):
    """A sum of numbers clipped to [-C, C], plus Laplace noise.

    It is for one number, not a vector. Only for one number is the pair of the shifted and the
    unshifted noise the worst one for every neighbouring pair.

    Args:
        noise_multiplier: scale of the noise (its std is sqrt(2) scale) over the clip norm.
        clip_norm: C, the largest absolute contribution of one unit; only ``release`` uses it.
        unit: "client" or "record"; optional.

    Raises:
        ParameterError: a value that is not a finite number above 0, or an unknown unit.
    """

    # A unit's number may be 0.
    traits = Traits(zeroed_is_absent=True, zeroing_replaces=True, laplace_sum=True)

    @property
    def full_noise_std(self) -> float:
        """The noise's std: sqrt(2) times its scale."""
        return math.sqrt(2.0) * self._scale

    @property
    def _scale(self) -> float:
        return self.noise_multiplier * self.clip_norm

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the ratio of the noise's std: sqrt(2) times the multiplier of its scale."""
        return frozenset({math.sqrt(2.0) * self.noise_multiplier})

    def contribution(self, update: Any, mask: Any = None) -> Any:
        """Return a number clipped to [-C, C], on the grid.

        Args:
            update: array or tensor of one element.
            mask: None: a single number has no coordinates to omit.

        Raises:
            ParameterError: more than one element, one that is not finite, or a mask.
        """
        update = readable("update", update)
        if mask is not None or math.prod(update.shape) != 1:
            refuse("update", tuple(update.shape), "be one number", "use Gaussian for vectors")
        return self.gridded(update)

    def noise(
        self, like: Any, generator: Any = None, *, shares: int | None = None
    ) -> tuple[Any, float]:
        """Draw the noise of one number; see ``Perturbation.noise``."""
        del shares
        drawn = self._noisy(np.zeros(tuple(np.shape(like))), generator)
        # In doubles: single precision would round the noise again.
        whole = like.double() if is_tensor(like) else np.asarray(like)
        return same_kind(drawn, whole), self.full_noise_std

    def _noisy(self, total: Any, generator: Any) -> NDArray[np.float64]:
        bits = bits_of(generator)
        return noisy_laplace_sum(total, scale=self._scale, grid=self.grid, bits=bits)

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of shifted Laplace noise."""
        curve = LaplacePair(*quotient_up(facts.adjacency.moves, self.noise_multiplier))
        theorem = "Laplace mechanism: the shifted pair dominates (Zhu, Dong, Wang 2022)"
        assumption = "every unit's number is clipped to the clip norm before the sum"
        return PrivacyLoss(
            curve, facts, Witness(curve, SUM_WITNESS, free=True), (theorem,), (assumption,)
        )

    def release(self, value: Any, generator: Any = None) -> Any:
        """Return the number ``value`` plus noise of scale ``noise_multiplier * clip_norm``.

        The result is the nearest grid point. A tensor is then rounded to its type.

        Args:
            value: the sum of clipped numbers, a float or an array or tensor of one element.
            generator: see ``rounded.bits_of``; None is the only private choice.

        Raises:
            ParameterError: more than one element, one that is not finite, or above 2^52 spacings.
        """
        number = numbers(value)
        if number.size != 1:
            refuse("value", number.shape, "be one number", "use Gaussian for vectors")
        return same_kind(self._noisy(number, generator), value)
