"""A mechanism of your own: a histogram with Gaussian noise on every bin.

A record lies in one bin. Adding or removing a record changes one count by 1. Replacing it changes
two counts, so the vector of counts moves by the square root of 2.

Prints::

    epsilon in [0.61..., 0.61...] at delta = 1e-05 (record level, add_remove, aggregate; PLD, ...)
    noise 5.28, in closed form 5.28
    3 noisy counts
"""

import math
from dataclasses import dataclass

import numpy as np

import fedprivacy as fp
from fedprivacy.errors import positive
from fedprivacy.loss import Gdp
from fedprivacy.privacy_loss import PrivacyLoss, Witness
from fedprivacy.registry import registered
from fedprivacy.relations import Adjacency, Unit


@registered  # ledgers can store it under its class name
@dataclass(frozen=True, kw_only=True)
class Histogram(fp.Mechanism):
    """Counts of records by bin, with Gaussian noise on each.

    Args:
        noise_std: of the noise on a count.
    """

    noise_std: float

    def __post_init__(self):
        positive(noise_std=self.noise_std)

    @property
    def protects(self):
        return Unit.RECORD

    def _loss(self, facts):
        moves = math.sqrt(2.0) if facts.adjacency is Adjacency.REPLACE_ONE else 1.0
        curve = Gdp(moves / self.noise_std)
        attained = Witness(curve, "one record is in a bin, in another bin, or not there")
        theorem = "Gaussian mechanism is mu-GDP (Dong, Roth, Su 2022)"
        return PrivacyLoss(curve, facts, attained, (theorem,), ("a record is in one bin",))

    def release(self, counts, generator=None):
        """Return the counts, an array of shape (bins,), plus noise."""
        noise = fp.Gaussian(noise_multiplier=self.noise_std, clip_norm=1.0)
        return noise.release(counts, generator)


run = Histogram(noise_std=3.0).sampled(fp.Poisson(0.1)) * 20
print(fp.epsilon(run, delta=1e-5, adjacency="add_remove"))
ask = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace_one"}
found = fp.calibrate(lambda std: Histogram(noise_std=std), **ask)
print(f"noise {found.value:.2f}, in closed form {3.730632 * math.sqrt(2):.2f}")
print(len(Histogram(noise_std=3.0).release(np.array([10.0, 0.0, 4.0]))), "noisy counts")
