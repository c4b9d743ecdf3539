"""I train: from a budget to a private model, and to an audit of the actual run.

200 clients share the digits of the package. The noise follows from the budget, the ledger from the
rounds, and the verdict from the ledger.

Correct end to end: from the budget to the audit of the recorded rounds.

Prints::

    noise multiplier 0.9...
    accuracy 0... after 40 rounds
    HOLDS: epsilon in [7.99..., 7.99...] at delta = 0.001 (client level, ...)
"""

from typing import Any

import fedprivacy as fp
from fedprivacy import training

data = training.digits(clients=200)
scheme = fp.Poisson(0.25)
budget: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-3, "adjacency": "zero_out"}


def noise(multiplier: float) -> fp.Gaussian:
    return fp.Gaussian(noise_multiplier=multiplier, clip_norm=0.3, unit="client")


found = fp.calibrate(lambda z: noise(z).sampled(scheme) * 40, **budget)
print(f"noise multiplier {found.value:.3f}")

loop = training.FederatedAveraging(
    model=training.logistic(64, 10),
    scheme=scheme,
    perturbation=noise(found.value),
    local_steps=5,
    learning_rate=0.5,
)
with fp.Ledger.create("run.ledger", unit="client", adjacency="zero_out", claim=(8.0, 1e-3)) as log:
    state = training.train(loop, data, rounds=40, ledger=log).state
    log.close()
print(f"accuracy {loop.evaluate(state, data)[0]:.2f} after 40 rounds")

judged = fp.audit("run.ledger")
print(f"{judged.verdict}: {judged.bound}")
