"""A clip norm that follows a quantile of the updates' norms, learned from noisy bits.

Andrew, Thakkar, McMahan and Ramaswamy (2021) release two sums a round: a sum of clipped updates,
and a sum of bits. A bit says whether a norm is within the threshold. Both sums are Gaussian, so
together they are one Gaussian sum. Each client's contribution is its update with one more
coordinate, the bit. The bit is scaled so that the noise has the same std on every coordinate. The
bit is +h or -h, not 0 or 2 h. So update and bit together have norm at most C if the update has norm
at most sqrt(C^2 - h^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import open_unit, positive, refuse, validate_fields
from ..privacy_loss import PrivacyLoss
from ..registry import registered
from ..relations import Facts
from .gaussian import Gaussian
from .noise import norm
from .perturbation import OnGrid
from .rounded import on_grid
from .tensors import is_tensor

CLIP_NORMS = 1e-15, 1e15
"""Range of the clip norm, as required by training in single precision."""

BIT_DIGITS = 20
"""Binary digits of the bit's height, so that a single-precision sum holds it."""

LOUDEST = float(1 << 27)
"""Largest std over the square root of the bits' share: the grid then holds 16 points below h."""

_WITNESS = (
    "one unit sends an update of the threshold's norm and its bit, the others are unchanged "
    "(replace_one: it sends this, or a longer update of the opposite sign with the other bit)"
)


class WithBit(OnGrid):
    """Updates with one more value, the bit."""

    def travelling(self, kept: int) -> int:
        """Return one more than the number of coordinates, for the bit."""
        return kept + 1

    def upload_bits(self, kept: int) -> int:
        """Return 32 bits per coordinate plus 1 for the bit."""
        return 32 * kept + 1

    def decoded(self, total: Any) -> Any:
        """Return the noisy sum of updates, without the sum of bits."""
        return total[:-1]


@registered
@dataclass(frozen=True, kw_only=True)
class AdaptiveClipping(Gaussian):
    """A noisy sum of clipped updates and of bits that determine the next round's clip norm.

    Let z = ``noise_multiplier`` and s = ``bits_share``. The updates have noise of multiplier
    z_delta = z / sqrt(1 - s). The sum of bits in {-1/2, +1/2} has noise of std z_bits / 2 with
    z_bits = z / sqrt(s). So z = (z_delta^-2 + z_bits^-2)^-1/2 as in Andrew et al. (2021), Theorem
    1. This holds for every adjacency: a contribution has norm at most C, and two of them differ by
    at most 2 C. An update of zeros has no bit, as if its client were absent. So a round is one
    Gaussian sum of multiplier z. The clip norms depend only on earlier releases and do not change
    the account.

    After a round, C is multiplied by exp(-``clip_learning_rate`` (b - ``quantile``)), with b the
    noisy share of updates within the threshold. The paper sets the std of the bits' noise to a
    twentieth of the cohort m. This corresponds to ``bits_share`` = (10 z / m)^2.

    Args:
        noise_multiplier: z, std of the noise over the clip norm, above 0.
        clip_norm: C of the first round, norm of an update with its bit.
        quantile: target share of updates within the threshold, in (0, 1).
        bits_share: s, the bits' share of 1 / z^2, in (0, 1/2].
        clip_learning_rate: above 0, at most 10.
        unit: "client" or "record"; optional.

    Raises:
        ParameterError: a value out of its range.
    """

    quantile: float = 0.5
    bits_share: float = 0.01
    clip_learning_rate: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_fields(self, open_unit, "quantile")
        rate = positive(clip_learning_rate=self.clip_learning_rate)
        if rate > 10.0:
            refuse("clip_learning_rate", rate, "be at most 10", "0.2 is usual")
        object.__setattr__(self, "clip_learning_rate", rate)
        share = open_unit(bits_share=self.bits_share)
        if not 1e-8 <= share <= 0.5:
            refuse("bits_share", share, "be from 1e-8 to 0.5", "0.01 is usual")
        object.__setattr__(self, "bits_share", share)
        if self.noise_multiplier > LOUDEST * math.sqrt(share):
            rule = f"be at most {LOUDEST * math.sqrt(share):g} with bits_share {share:g}"
            refuse("noise_multiplier", self.noise_multiplier, rule)

    @cached_property
    def bit(self) -> float:
        """The height h of a bit, on the grid: about C sqrt(``bits_share``)."""
        height = self.clip_norm * math.sqrt(self.bits_share)
        # Rounded down to few digits. The threshold uses the rest of the clip norm.
        unit = math.ldexp(1.0, math.frexp(height)[1] - BIT_DIGITS)
        unit = max(unit, self.grid)
        return math.floor(height / unit) * unit

    @cached_property
    def threshold(self) -> float:
        """Norm that an update is clipped to and that its bit refers to: sqrt(C^2 - h^2)."""
        left = (self.clip_norm - self.bit) * (self.clip_norm + self.bit)
        # Lowered by more than the rounding error.
        return math.sqrt(left) * (1.0 - 2.0**-50)

    @property
    def update_multiplier(self) -> float:
        """z_delta: std of the noise on updates over the threshold."""
        return self.full_noise_std / self.threshold

    @property
    def bits_std(self) -> float:
        """Std of the noise on the sum of bits in {-1/2, +1/2}: z_bits / 2."""
        return self.full_noise_std / (2.0 * self.bit)

    @property
    def encoding(self) -> WithBit:
        """An update with its bit."""
        return WithBit(self)

    def contribution(self, update: Any, mask: Any = None) -> Any:
        """Return a clipped update and its bit, on the grid, shape (d + 1,), norm at most C.

        Args:
            update: flat array or tensor of shape (d,).
            mask: None: every coordinate is kept.

        Raises:
            ParameterError: a mask, or an entry that is not finite.
        """
        if mask is not None:
            refuse("mask", "given", "be None, since AdaptiveClipping keeps every coordinate")
        part = on_grid(update, clip_norm=self.threshold, grid=self.grid)
        signed = self._signed(update)
        if isinstance(part, np.ndarray):
            return np.append(part, signed)
        joined = part.new_empty(len(part) + 1)
        joined[:-1], joined[-1] = part, signed
        return joined

    def _signed(self, update: Any) -> float:
        """Return the bit of an unclipped update; after clipping it would always be set."""
        given = update if is_tensor(update) else np.asarray(update, dtype=np.float64)
        size = norm(given)
        # An update of zeros gets no bit, because a bit would change the sum by 2 h more.
        if not size:
            return 0.0
        return self.bit if size <= self.threshold else -self.bit

    def share_within(self, released: Any, denominator: float) -> float:
        """Return the noisy share of updates within the threshold, clipped to [0, 1].

        Args:
            released: a noisy sum, shape (d + 1,).
            denominator: expected number of contributions, a public number.
        """
        found = 0.5 + float(released[-1]) / (2.0 * self.bit * denominator)
        return min(max(found, 0.0), 1.0)

    def after(self, released: Any, denominator: float) -> AdaptiveClipping:
        """Return the next round's mechanism, which differs only in the clip norm.

        It is a function of a release and costs no privacy.

        Args:
            released: the noisy sum of this round, shape (d + 1,).
            denominator: see ``share_within``.
        """
        ahead = self.share_within(released, denominator) - self.quantile
        following = self.clip_norm * math.exp(-self.clip_learning_rate * ahead)
        return self.at(min(max(following, CLIP_NORMS[0]), CLIP_NORMS[1]))

    def at(self, clip_norm: float) -> AdaptiveClipping:
        """Return the mechanism of a round with another clip norm."""
        return replace(self, clip_norm=clip_norm)

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of one Gaussian sum of updates and bits."""
        loss = super().loss_under(facts)
        theorem = "updates and their bits are one Gaussian sum (Andrew et al. 2021, Theorem 1)"
        witness = None if loss.witness is None else loss.witness._replace(datasets=_WITNESS)
        return replace(loss, theorems=(*loss.theorems, theorem), witness=witness)
