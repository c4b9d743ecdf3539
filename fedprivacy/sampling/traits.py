"""Properties of a mechanism that theorems about sampling and nesting need."""

from __future__ import annotations

from typing import NamedTuple


class Traits(NamedTuple):
    """Properties that no curve shows. A mechanism states those that hold; by default none does.

    Attributes:
        sum_multiplier: noise std over clip norm if the mechanism is one Gaussian sum of clipped
            vectors, else None. The rows of theorem T9 hold only for this kind of sum.
        zeroed_is_absent: whether a zeroed unit leads to the same release as an absent unit (T2,
            T10, T11). This is true for a sum if its noise does not depend on the number of
            contributors. If it is False, the mechanism is not amplified under ``zero_out`` (T4),
            because it may show who takes part.
        zeroing_replaces: whether zeroing a unit out is one way to replace its data (T1).
        samples_its_unit: whether the mechanism already samples its own units inside. ``sampled``
            then refuses it.
        secret_size: whether the mechanism itself, not its schemes, needs a secret number of drawn
            units.
        states_final: whether ``loss_under`` also answers for the observer ``final``. Otherwise the
            final view is post-processing of the aggregate view.
        alone: reason why the loss is not valid inside another mechanism; empty if it is.
        one_coordinate: whether the vectors of the sum have a single coordinate.
        laplace_sum: whether the mechanism is Laplace noise on a sum of numbers clipped to [-C, C].
            The pair of opposite numbers (T1) holds only for this sum.
    """

    sum_multiplier: float | None = None
    zeroed_is_absent: bool = False
    zeroing_replaces: bool = False
    samples_its_unit: bool = False
    secret_size: bool = False
    states_final: bool = False
    alone: str = ""
    one_coordinate: bool = False
    laplace_sum: bool = False

    @classmethod
    def of_sum(cls, multiplier: float) -> Traits:
        """Return the traits of one Gaussian sum of clipped vectors.

        Args:
            multiplier: noise std over clip norm; it does not depend on the number of contributors.
        """
        return cls(sum_multiplier=multiplier, zeroed_is_absent=True, zeroing_replaces=True)
