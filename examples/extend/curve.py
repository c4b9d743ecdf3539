"""A privacy-loss curve of your own: Laplace noise that never exceeds a bound.

The scale is 1, the bound h, and a unit moves the result by s <= h. The privacy loss is -s or s
outside [0, s], linear inside, and infinite where only P has mass.

Correct end to end: the curve is priced, released and recorded.

Prints::

    one release: epsilon 0.49999... at delta 3.99e-06, inf at delta 0
    epsilon in [1.27..., 1.27...] at delta = 0.001 (record level, add_remove, aggregate; PLD, ...)
    twenty releases: both ends within 0.0006
    from the ledger: 0.498...
"""

import math
from dataclasses import dataclass

import numpy as np

import fedprivacy as fp
from fedprivacy.errors import positive
from fedprivacy.loss import Curve, MaxLoss, Side, Support, Tails
from fedprivacy.privacy_loss import PrivacyLoss, Witness
from fedprivacy.registry import registered
from fedprivacy.relations import Unit


@registered
@dataclass(frozen=True)
class TruncatedLaplacePair(Curve):
    """Laplace noise of scale 1 cut to [-bound, bound], shifted by ``shift`` against unshifted."""

    shift: float
    bound: float

    def tails(self, loss, side=Side.UP):
        s, end = self.shift, math.exp(-self.bound)
        inside = (np.clip(loss, -s, s) + s) / 2  # where the loss is x, in [0, s]
        mass = 2 * -math.expm1(-self.bound)
        p_below = (np.exp(inside - s) - end) / mass
        q_above = (np.exp(-inside) - end) / mass
        # Below -s lies only what P never shows; above s only what Q never shows.
        p_above = np.where(loss < -s, 1.0, np.where(loss >= s, self.infinite, 1.0 - p_below))
        q_above = np.where(loss < -s, 1.0 - self.infinite, np.where(loss >= s, 0.0, q_above))
        with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
            return Tails(*np.log([p_above, q_above, 1.0 - p_above, 1.0 - q_above]))

    def support(self):
        # The mass is right to a few units in the last place, and rounded to either side.
        rounded = self.infinite * (1 - 1e-12), self.infinite * (1 + 1e-12)
        largest = MaxLoss(self.shift, self.shift, *rounded)
        return Support(largest=largest, symmetric=True)  # y -> shift - y exchanges P and Q

    @property
    def infinite(self):
        """P's mass where Q has none."""
        end, mass = math.exp(-self.bound), 2 * -math.expm1(-self.bound)
        return end * math.expm1(self.shift) / mass


@registered
@dataclass(frozen=True, kw_only=True)
class TruncatedLaplace(fp.Mechanism):
    """A sum of numbers clipped to [-1, 1], plus Laplace noise that never exceeds a bound.

    Args:
        scale: of the noise.
        bound: of the noise, in scales.
    """

    scale: float
    bound: float

    protects = Unit.RECORD

    @property
    def noise_std(self):
        """Std of the noise, as ledgers record it."""
        h, left = self.bound, math.exp(-self.bound)
        return self.scale * math.sqrt((2.0 - left * (h * h + 2.0 * h + 2.0)) / (1.0 - left))

    def noise_ratios(self, clip_norm):
        return frozenset({self.noise_std / clip_norm})

    def __post_init__(self):
        positive(scale=self.scale)
        positive(bound=self.bound)

    def loss_under(self, facts):
        curve = TruncatedLaplacePair(facts.adjacency.moves / self.scale, self.bound)
        if curve.shift > self.bound:
            raise fp.ParameterError(f"bound must be at least {curve.shift}, got {self.bound}")
        attained = Witness(curve, "one record contributes 1, or is not there", free=True)
        return PrivacyLoss(curve, facts, attained, ("the shifted pair dominates",), ())

    def release(self, total, generator=None):
        """Return the sum, a float, plus noise: Laplace noise, drawn again while it is too large."""
        noise = fp.Laplace(noise_multiplier=self.scale, clip_norm=1.0)
        while True:
            drawn = noise.release(0.0, generator)
            if abs(drawn) <= self.bound * self.scale:
                return total + drawn


once = TruncatedLaplace(scale=2.0, bound=12.0)
delta = 2.0 * TruncatedLaplacePair(0.5, 12.0).infinite
upper = fp.epsilon(once, delta=delta, adjacency="add_remove").upper
pure = fp.epsilon(once, delta=0.0, adjacency="add_remove").lower
print(f"one release: epsilon {upper} at delta {delta:.3g}, {pure} at delta 0")
run = once.sampled(fp.Poisson(0.1)) * 100
print(fp.epsilon(run, delta=1e-3, adjacency="add_remove"))
low, high = fp.epsilon(once * 20, delta=2e-4, adjacency="add_remove").resolution
print(f"twenty releases: both ends within {high - low:.1g}")
assert abs(once.release(100.0) - 100.0) <= 24.0
with fp.Ledger.create("cut.ledger", unit="record", adjacency="add_remove") as ledger:
    number = ledger.intent(once, clip_norm=1.0, noise_std=once.noise_std)
    ledger.done(number, cohort=9, arrived=9, refused=0, noise_std=once.noise_std)
    ledger.close()
print("from the ledger:", fp.account("cut.ledger", delta=1e-3).upper)
