"""FA-LD on a target with a known law: epsilon against the distance W2 to the posterior.

A demonstration: exact laws are computed, and no chain is run.

Prints::

    step size 1e-05: epsilon at most 0.42, W2 0.002...
    step size 3e-05: epsilon at most 0.77, W2 0.000...
    step size 0.0001: epsilon at most 1.50, W2 0.001...
"""

import numpy as np

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.theory.gaussian import point, w2
from fedprivacy.theory.targets import GaussianTarget

draw = np.random.default_rng(0)
records = [draw.uniform(-0.5, 0.5, size=(100, 2)) for _ in range(10)]
posterior = GaussianTarget.of_records(records, np.eye(2))
target = training.GaussianPosterior(target=posterior, sensitivity=np.sqrt(2.0))
for step_size in (1e-5, 3e-5, 1e-4):
    sampler = training.LangevinSampling(target=target, step_size=step_size, local_steps=5)
    spent = fp.epsilon(sampler.run(30), delta=1e-5, adjacency="replace_one", tolerance=0.01)
    distance = float(w2(sampler.exact.law(point([0.0, 0.0]), 30), posterior.law()))
    print(f"step size {step_size:g}: epsilon at most {spent.upper:.2f}, W2 {distance:.4f}")
