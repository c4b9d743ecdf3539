"""A mechanism of your own: a histogram with Gaussian noise on every bin.

A record lies in one bin or in none. Adding or removing a record changes one count by 1. Replacing
a record changes at most two counts, so the vector of counts moves by at most the square root of 2.

Correct end to end: the ledger is audited, and a round with half the noise fails.

Prints::

    epsilon in [0.61..., 0.61...] at delta = 1e-05 (record level, add_remove, aggregate; PLD, ...)
    two kinds of rounds: 1.18...
    noise 5.28, in closed form 5.28
    3 noisy counts
    FAILS: one of three rounds had half the noise
"""

import math
from dataclasses import dataclass, replace

import numpy as np

import fedprivacy as fp
from fedprivacy.errors import positive
from fedprivacy.loss import Gdp
from fedprivacy.mechanisms import Traits
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

    protects = Unit.RECORD

    # A record without a bin counts like an absent record, and any record may lose its bin.
    traits = Traits(zeroed_is_absent=True, zeroing_replaces=True)

    def __post_init__(self):
        positive(noise_std=self.noise_std)

    def loss_under(self, facts):
        moves = math.sqrt(2.0) if facts.adjacency is Adjacency.REPLACE_ONE else 1.0
        curve = Gdp(moves / self.noise_std)
        attained = Witness(curve, "one record is in a bin, in another bin, or not there", free=True)
        theorem = "Gaussian mechanism is mu-GDP (Dong, Roth, Su 2022)"
        return PrivacyLoss(curve, facts, attained, (theorem,), ("a record is in at most one bin",))

    def public(self, adjacency):
        return super().public(adjacency) | {"number of bins": None}  # None: not known here

    def noise_ratios(self, clip_norm):
        return frozenset({self.noise_std / min(clip_norm, 1.0)})

    def knows_norm(self, clip_norm):
        return clip_norm == 1.0  # a record counts 1

    def rescaled(self, fraction):
        std = fraction * self.noise_std
        return replace(self, noise_std=std) if std > 0.0 else None  # None: no noise is left

    def release(self, counts, generator=None):
        """Return the counts, an array of shape (bins,), plus noise."""
        noise = fp.Gaussian(noise_multiplier=self.noise_std, clip_norm=1.0)
        return noise.release(counts, generator)


run = Histogram(noise_std=3.0).sampled(fp.Poisson(0.1)) * 20
print(fp.epsilon(run, delta=1e-5, adjacency="add_remove"))
both = run + Histogram(noise_std=9.0)
print("two kinds of rounds:", fp.epsilon(both, delta=1e-5, adjacency="replace_one").upper)
ask = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace_one"}
found = fp.calibrate(lambda std: Histogram(noise_std=std), **ask)
print(f"noise {found.value:.2f}, in closed form {3.730632 * math.sqrt(2):.2f}")
print(len(Histogram(noise_std=3.0).release(np.array([10.0, 0.0, 4.0]))), "noisy counts")

# A budget counts the rounds, and a ledger records them. The audit prices the recorded noise.
step = Histogram(noise_std=9.0)
budget = fp.Budget(epsilon=1.0, delta=1e-5, adjacency="add_remove")
facts = {"unit": "record", "adjacency": "add_remove", "claim": (1.0, 1e-5)}
with fp.Ledger.create("bins.ledger", **facts) as ledger:
    for std in (9.0, 9.0, 4.5):
        assert budget.allows(step)
        budget.spend(step)
        number = ledger.intent(step, clip_norm=1.0, noise_std=step.noise_std)
        noisy = Histogram(noise_std=std).release(np.array([10.0, 0.0, 4.0]))
        ledger.done(number, cohort=14, arrived=14, refused=0, noise_std=std)
    ledger.close()
had = step * 2 + Histogram(noise_std=4.5)
priced = fp.epsilon(had, delta=1e-5, adjacency="add_remove")
assert fp.account("bins.ledger", delta=1e-5).upper == priced.upper
print(f"{fp.audit('bins.ledger').verdict}: one of three rounds had half the noise")
