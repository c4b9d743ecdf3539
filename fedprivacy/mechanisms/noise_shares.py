"""Noise that comes in shares of many clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Mechanism


class Shared(ABC):
    """A mechanism whose noise may come in shares of many clients; an audit asks about them."""

    @abstractmethod
    def noise_mismatch(self, *, shares: int, noise_multiplier: float) -> str:
        """Return an error text if a round's noise is inconsistent; empty if it is consistent.

        Args:
            shares: number of clients that sent a share of the noise.
            noise_multiplier: recorded std of the noise in their sum over the clip norm.
        """

    @abstractmethod
    def single_uploads(self) -> Mechanism | None:
        """Return the mechanism of one upload without a secure sum; None if there is no sum.

        Raises:
            UnsupportedCombination: it depends on an unknown value.
        """


def noise_mismatch(mechanism: Mechanism, *, shares: int, noise_multiplier: float) -> str:
    """Return ``Shared.noise_mismatch`` of a mechanism; empty if its noise has no shares."""
    if not isinstance(mechanism, Shared):
        return ""
    return mechanism.noise_mismatch(shares=shares, noise_multiplier=noise_multiplier)


def single_uploads(mechanism: Mechanism) -> Mechanism | None:
    """Return ``Shared.single_uploads`` of a mechanism; None if its noise has no shares."""
    return mechanism.single_uploads() if isinstance(mechanism, Shared) else None
