"""Fed-SMP: clients send a quarter of the coordinates, clipped and with noise.

The server sends the mask. The number k of kept coordinates changes accuracy and bytes, not epsilon.
The noise on each kept coordinate is the same, so fewer coordinates carry less noise in total.

A demonstration: the loop draws the noise that is priced, but no ledger records the rounds.

Prints::

    kept 650 of 650: accuracy 0..., 2600 bytes an update
    kept 163 of 650: accuracy 0..., 652 bytes an update
    epsilon in [7.6..., 7.99...] at delta = 0.001 (client level, ...)
"""

from typing import Any

import fedprivacy as fp
from fedprivacy import training

data = training.digits(clients=200)
scheme = fp.FixedSize(50, population=200)
network = training.logistic(64, 10)


def perturbation(noise: float, kept: int) -> fp.SparsifiedPerturbation:
    return fp.SparsifiedPerturbation(
        noise_multiplier=noise,
        clip_norm=0.3,
        kept=kept,
        dimension=650,
        cohort=50,
        sparsifier="top_k",  # mask from the update of 100 public records
    )


ask: dict[str, Any] = {"delta": 1e-3, "adjacency": "zero_out"}
found = fp.calibrate(lambda z: perturbation(z, 650).sampled(scheme) * 20, epsilon=8.0, **ask)
for kept in (650, 163):
    loop = training.FederatedAveraging(
        model=network,
        scheme=scheme,
        perturbation=perturbation(found.value, kept),
        local_steps=5,
        learning_rate=0.5,
    )
    state = training.train(loop, data, rounds=20).state
    accuracy = loop.evaluate(state, data)[0]
    print(f"kept {kept} of 650: accuracy {accuracy:.2f}, {4 * kept} bytes an update")
print(fp.epsilon(loop.round_mechanism * 20, **ask))
