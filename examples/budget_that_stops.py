"""A budget that stops a loop: checked before every round, also when rounds differ.

The last rounds use less noise. If the schedule depends on earlier outputs, set ``adaptive=True``.
Composed bounds do not hold then, and a privacy filter decides.

A demonstration: rounds are priced, and no data are used.

Prints::

    fixed schedule: ... rounds, spent epsilon at most 1.9...
    adaptive schedule: ... rounds
"""

import fedprivacy as fp


def round_(number: int) -> fp.Mechanism:
    noise = 2.0 if number < 40 else 1.2
    return fp.Gaussian(noise_multiplier=noise, unit="client").sampled(fp.Poisson(0.1))


def rounds_within(budget: fp.Budget) -> int:
    number = 0
    while budget.allows(round_(number)):
        budget.spend(round_(number))
        number += 1
    return number


fixed = fp.Budget(epsilon=2.0, delta=1e-5, adjacency="add_remove")
count = rounds_within(fixed)
print(f"fixed schedule: {count} rounds, spent epsilon at most {fixed.spent().upper:.2f}")

adaptive = fp.Budget(epsilon=2.0, delta=1e-5, adjacency="add_remove", adaptive=True)
print(f"adaptive schedule: {rounds_within(adaptive)} rounds")
