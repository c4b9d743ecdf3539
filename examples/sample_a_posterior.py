"""I sample a posterior: a regression over five clients; the draws protect every record.

FA-LD: every client runs Langevin steps on its own records and uploads noisy positions, without a
trusted server. The likelihood is any torch function; the data are two arrays for each client.

The chain starts far from the posterior, so its first 20 rounds are dropped (burn-in). They were
released nevertheless, so they cost epsilon. With fewer records the same number of independent draws
costs a larger epsilon.

A demonstration: the chain draws the noise that is priced, but no ledger records it.

Prints::

    epsilon in [..., 5.4...] at delta = 1e-05 (record level, ...), of which burn-in 0.2
    the chains have mixed, with R-hat at most 1.0...; ...
    slope 2.0... +- 0.00..., intercept -1.0... +- 0.00...
"""

from typing import Any

import numpy as np

import fedprivacy as fp
from fedprivacy import training


def log_likelihood(parameters, inputs, responses):
    """Return it for each record; the responses' standard deviation, 0.5, is known."""
    slope, intercept = parameters
    return -0.5 * ((responses - slope * inputs - intercept) / 0.5) ** 2


draw = np.random.default_rng(0)
clients = []
for _ in range(5):
    x = draw.uniform(-1.0, 1.0, size=10_000)
    clients.append((x, 2.0 * x - 1.0 + draw.normal(0.0, 0.5, size=10_000)))

target = training.Posterior.of(log_likelihood, clients=clients, dimension=2, clip_norm=6.0)
sampler = training.LangevinSampling(
    target=target, step_size=3e-6, local_steps=5, burn_in=20, draws=250
)
asked: dict[str, Any] = {"delta": 1e-5, "adjacency": "replace_one", "tolerance": 0.05}
spent = fp.epsilon(sampler.run(sampler.rounds), **asked)
without = fp.epsilon(sampler.run(sampler.rounds - sampler.burn_in), **asked)
print(f"{spent}, of which burn-in {spent.upper - without.upper:.1f}")

draws = training.train(sampler, target, rounds=sampler.rounds).state.draws
print(training.diagnose(draws))
mean, spread = draws[0].mean(0), draws[0].std(0)
print(f"slope {mean[0]:.3f} +- {spread[0]:.3f}, intercept {mean[1]:.3f} +- {spread[1]:.3f}")
