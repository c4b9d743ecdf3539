"""Publish only the end of a private descent: epsilon stops growing with the number of steps.

Correct end to end: the loop draws the noise that is priced, and the ledger records it. The data are
made up. An observer of a point between needs another account.

Prints::

        1,000 steps: epsilon 2.02, composed 2.02
       10,000 steps: epsilon 7.62, composed 7.62
      100,000 steps: epsilon 33.66, composed 33.66
    1,000,000 steps: epsilon 33.66, composed 195.35
    HOLDS: epsilon is at most 2.00 after 2,000 steps
    right for more than 70 % of new records

"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fedprivacy as fp
from fedprivacy.training import AgentData, Logistic, ProjectedDescent

N, DIMENSION, FACTS = 10_000, 10, {"delta": 1e-5, "adjacency": "replace_one"}
loop = ProjectedDescent(
    loss=Logistic(feature_bound=1.0),
    records=N,
    dimension=DIMENSION,
    steps=2_000,
    step_size=4.0, noise_std=0.05, radius=10.0,
)  # fmt: skip
for steps in (1_000, 10_000, 100_000, 1_000_000):
    end = fp.epsilon(replace(loop, steps=steps).round_mechanism, **FACTS).upper
    composed = fp.epsilon(replace(loop, steps=1).round_mechanism * steps, **FACTS).upper
    print(f"{steps:9,} steps: epsilon {end:.2f}, composed {composed:.2f}")

generator = np.random.default_rng(1)
features = generator.normal(size=(2 * N, DIMENSION))
features /= np.linalg.norm(features, axis=1, keepdims=True)
chance = 1.0 / (1.0 + np.exp(-8.0 * features @ generator.normal(size=DIMENSION)))
labels = np.where(generator.random(2 * N) < chance, 1.0, -1.0)


def descent(std: float) -> fp.NoisyGradientDescent:
    return replace(loop, noise_std=std).round_mechanism


run = replace(loop, noise_std=fp.calibrate(descent, epsilon=2.0, **FACTS).value)
with TemporaryDirectory() as folder:
    path = Path(folder) / "descent.ledger"
    with fp.Ledger.create(path, unit="record", adjacency="replace_one") as ledger:
        data = AgentData.of([(features[:N], labels[:N])])
        state, _ = run.step(run.init(), data, ledger=ledger)
        ledger.close()
    found = fp.audit(path, claim=(2.0, 1e-5))
print(f"{found.verdict}: epsilon is at most 2.00 after {run.steps:,} steps")
right = (np.sign(features[N:] @ state.parameters.numpy()) == labels[N:]).mean()
print(f"right for {'more' if right > 0.7 else 'less'} than 70 % of new records")
