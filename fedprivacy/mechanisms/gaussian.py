"""The Gaussian mechanism on a sum of clipped contributions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ..errors import positive, refuse, validate_fields
from ..loss import Gdp
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import registered
from ..relations import Facts, Unit
from ..sampling.traits import Traits
from .base import UnitGiven
from .perturbation import Perturbation
from .rounded import noise_like, noisy_like

MU_GDP = "Gaussian mechanism is mu-GDP (Dong, Roth, Su 2022)"
SUM_CLIPPED = "every unit's contribution is clipped to the clip norm before the sum"
SUM_WITNESS = "one unit sends C u, every other sends 0 (replace_one: it sends C u or -C u)"


def gaussian_sum_loss(multiplier: float, facts: Facts) -> PrivacyLoss:
    """Return the loss of a sum of vectors of norm at most C with noise std multiplier * C.

    The sum changes by at most C if a unit is added, removed or zeroed out. It changes by at most 2
    C if a unit is replaced (triangle inequality). A shift of s standard deviations is exactly s-GDP
    (Dong, Roth and Su 2022, Theorem 2.7).
    """
    curve = Gdp(facts.adjacency.moves / multiplier)
    return PrivacyLoss(
        curve, facts, Witness(curve, SUM_WITNESS, free=True), (MU_GDP,), (SUM_CLIPPED,)
    )


@dataclass(frozen=True, kw_only=True)
class NoisySum(UnitGiven, Perturbation):
    """A sum of clipped contributions plus noise: fields and checks of these mechanisms."""

    noise_multiplier: float
    clip_norm: float = 1.0
    unit: Unit | str | None = None

    def __post_init__(self) -> None:
        validate_fields(self, positive, "noise_multiplier", "clip_norm")
        super().__post_init__()

    @property
    def full_noise_std(self) -> float:
        """``noise_multiplier * clip_norm``.

        For correlated noise it is the std of z; the noise of a round is larger.
        """
        return self.noise_multiplier * self.clip_norm

    def rescaled(self, fraction: float) -> Self | None:
        """Return the sum with the fraction of its noise; None if no noise is left."""
        multiplier = fraction * self.noise_multiplier
        # A product that underflows leaves no noise.
        return replace(self, noise_multiplier=multiplier) if multiplier > 0.0 else None


@registered
@dataclass(frozen=True, kw_only=True)
class Gaussian(NoisySum):
    """A sum of clipped contributions plus Gaussian noise.

    Args:
        noise_multiplier: std of the noise over the clip norm of one unit, above 0.
        clip_norm: norm C that contributions are clipped to; only ``release`` uses it.
        unit: "client" or "record"; optional.

    Raises:
        ParameterError: a value that is not a finite number above 0, or an unknown unit.
    """

    scaled_by: ClassVar[str] = "noise_multiplier"

    @property
    def traits(self) -> Traits:
        """The traits of one Gaussian sum."""
        return Traits.of_sum(self.noise_multiplier)

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the noise multiplier."""
        return frozenset({self.noise_multiplier})

    def contribution(self, update: Any, mask: Any = None) -> Any:
        """Return an update clipped to ``clip_norm``, on the grid, same shape.

        Args:
            update: flat array or tensor.
            mask: None: every coordinate is kept.

        Raises:
            ParameterError: a mask, or an entry that is not finite.
        """
        if mask is not None:
            refuse("mask", "given", "be None, since Gaussian keeps every coordinate")
        return self.gridded(update)

    def noise(
        self, like: Any, generator: Any = None, *, shares: int | None = None
    ) -> tuple[Any, float]:
        """Draw the sum's noise, for any number of ``shares``; see ``Perturbation.noise``."""
        del shares
        std = self.full_noise_std
        return noise_like(like, std=std, grid=self.grid, generator=generator), std

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of one Gaussian sum."""
        return gaussian_sum_loss(self.noise_multiplier, facts)

    def release(self, value: Any, generator: Any = None) -> Any:
        """Return the sum ``value`` plus noise of std ``noise_multiplier * clip_norm``.

        The result is the grid point nearest to the sum plus ideal noise. A tensor is then rounded
        to its type.

        Args:
            value: the sum of clipped contributions; numpy array or torch tensor.
            generator: see ``rounded.bits_of``; None is the only private choice.

        Raises:
            ParameterError: ``value`` has an entry that is not finite, or above 2^52 spacings.
        """
        std = self.full_noise_std
        return noisy_like(value, std=std, grid=self.grid, generator=generator)
