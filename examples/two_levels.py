"""Two levels: steps on records inside a client, rounds over clients, and the privacy unit.

A record's epsilon and a client's epsilon are different statements about one run.

A demonstration: rounds are priced, and no data are used.

Prints::

    a record: epsilon in [1.17..., 1.25...] at delta = 1e-05 (record level, ...)
    a client: epsilon in [5.41..., 5.69...] at delta = 1e-05 (client level, ...)
    the worst of two kinds of clients: epsilon at most 1.9...
"""

from typing import Any

import fedprivacy as fp


def client(weight: float) -> fp.FederatedLangevin:
    """Return ten Langevin steps, each on a tenth of the client's records."""
    return fp.FederatedLangevin(
        step_size=2e-5,
        temperature=1.0,
        correlation=0.5,
        weight=weight,
        batch_fraction=0.1,
        gradient_sensitivity=2.0,
        steps=10,
    )


cohort = fp.FixedSize(3, population=10)
ask: dict[str, Any] = {"delta": 1e-5, "adjacency": "replace_one"}
records = client(0.1).in_cohort(cohort) * 50
print("a record:", fp.epsilon(records, **ask))

rounds = fp.Gaussian(noise_multiplier=4.0, unit="client").sampled(cohort) * 50
print("a client:", fp.epsilon(rounds, **ask))

kinds = {"small": client(0.05).in_cohort(cohort), "large": client(0.2).in_cohort(cohort)}
worst = fp.epsilon(fp.Parallel(tuple(kinds.values())) * 50, **ask)
print(f"the worst of two kinds of clients: epsilon at most {worst.upper:.2f}")
