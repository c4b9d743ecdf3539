"""Calibrate: find the noise, the rounds, or the cohort, given the other two.

The result is on the private side of the budget, with a certified bound.

A demonstration: settings are priced, and no data are used.

Prints::

    noise multiplier 1.19..., epsilon at most 1.00
    rounds 32..., epsilon at most 1.00
    cohort 129 of 6000, epsilon at most 0.99
"""

from typing import Any

import fedprivacy as fp

budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}


def run(noise: float = 1.4, rounds: int = 180, rate: float = 1 / 60) -> fp.Mechanism:
    step = fp.Gaussian(noise_multiplier=noise, unit="client")
    return step.sampled(fp.Poisson(rate)) * rounds


found = fp.calibrate(lambda z: run(noise=z), adjacency="add_remove", **budget)
print(f"noise multiplier {found.value:.3f}, epsilon at most {found.bound.upper:.2f}")

found = fp.calibrate(lambda n: run(rounds=n), adjacency="add_remove", integer=True, **budget)
print(f"rounds {found.value}, epsilon at most {found.bound.upper:.2f}")

found = fp.calibrate(
    lambda cohort: run(rate=cohort / 6000),
    adjacency="add_remove",
    integer=True,
    domain=(1, 6000),
    **budget,
)
print(f"cohort {found.value} of 6000, epsilon at most {found.bound.upper:.2f}")
