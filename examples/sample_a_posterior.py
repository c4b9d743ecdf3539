"""I sample a posterior: a regression of five clients, draws that protect every record.

FA-LD: every client runs Langevin steps on its own records and uploads noisy positions; there is
no trusted server. The likelihood is any function of torch, the data are two arrays a client.

Prints::

    epsilon in [..., ...] at delta = 0.0001 (record level, ...)
    slope ... +- 0..., intercept ... +- 0...
"""

import numpy as np

import fedprivacy as fp
from fedprivacy import training


def log_likelihood(parameters, inputs, responses):
    """Of each record; the responses' standard deviation, a half, is known."""
    slope, intercept = parameters
    return -0.5 * ((responses - slope * inputs - intercept) / 0.5) ** 2


draw = np.random.default_rng(0)
clients = []
for _ in range(5):
    x = draw.uniform(-1.0, 1.0, size=400)
    clients.append((x, 2.0 * x - 1.0 + draw.normal(0.0, 0.5, size=400)))

target = training.Posterior.of(log_likelihood, clients=clients, dimension=2, clip_norm=6.0)
sampler = training.LangevinSampling(
    target=target, step_size=1e-5, local_steps=5, burn_in=20, draws=60
)
run = sampler.run(sampler.rounds)
print(fp.epsilon(run, delta=1e-4, adjacency="replace_one", tolerance=0.05))

draws = training.train(sampler, target, rounds=sampler.rounds).state.draws[0]
mean, spread = draws.mean(0), draws.std(0)
print(f"slope {mean[0]:.2f} +- {spread[0]:.2f}, intercept {mean[1]:.2f} +- {spread[1]:.2f}")
