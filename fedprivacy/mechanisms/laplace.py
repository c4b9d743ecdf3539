"""The Laplace mechanism on a sum of clipped numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import refuse
from ..loss import LaplacePair
from ..privacy_loss import PrivacyLoss, Witness
from ..relations import Adjacency, Facts
from .gaussian import SUM_WITNESS, NoisySum
from .noise import is_finite, private_generator


@dataclass(frozen=True, kw_only=True)
class Laplace(NoisySum):
    """A sum of numbers clipped to [-C, C], plus Laplace noise.

    One number, not a vector: only there is the pair of the shifted and the unshifted noise the
    worst one for every neighbouring pair.

    Args:
        noise_multiplier: scale of the noise (its std is sqrt(2) scale) over the clip norm.
        clip_norm: C, the largest absolute contribution of one unit; only ``release`` uses it.
        unit: "client" or "record"; may be left out.

    Raises:
        ParameterError: a value that is not a finite number above 0, or an unknown unit.
    """

    @property
    def zeroed_is_absent(self) -> bool:
        """True of a sum with noise."""
        return True

    @property
    def zeroing_replaces(self) -> bool:
        """True: a unit's number may be 0."""
        return True

    def _loss(self, facts: Facts) -> PrivacyLoss:
        moves = 2.0 if facts.adjacency is Adjacency.REPLACE_ONE else 1.0
        curve = LaplacePair(moves / self.noise_multiplier)
        theorem = "Laplace mechanism: the shifted pair dominates (Zhu, Dong, Wang 2022)"
        assumption = "every unit's number is clipped to the clip norm before the sum"
        return PrivacyLoss(curve, facts, Witness(curve, SUM_WITNESS), (theorem,), (assumption,))

    def release(self, value: Any, generator: Any = None) -> Any:
        """Return the number ``value`` plus noise of scale ``noise_multiplier * clip_norm``.

        Args:
            value: the sum of numbers already clipped, a float or an array or tensor of one element.
            generator: a ``numpy.random.Generator``; None, seeded by the operating system, is the
                only private choice.

        Raises:
            ParameterError: more than one element, or one that is not finite.
        """
        number = np.asarray(value, dtype=np.float64)
        if number.size != 1:
            refuse("value", number.shape, "be one number", "use Gaussian for vectors")
        if not is_finite(number.reshape(1)):
            refuse("value", "a non-finite entry", "be finite", "refuse the update it came from")
        generator = private_generator() if generator is None else generator
        return value + generator.laplace(0.0, self.noise_multiplier * self.clip_norm)
