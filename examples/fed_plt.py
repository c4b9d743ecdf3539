"""Fed-PLT: private local training. Later local steps hide the earlier ones.

Twenty agents each solve a small local problem in every round, with noise. The steps on a logistic
loss contract, so 50 local steps cost little more than five.

A demonstration: the loop draws the noise that is priced, but no ledger records the rounds.

Prints::

    5 local steps: epsilon at most 2.1...
    50 local steps: epsilon at most 2.1...
    distance to the model without noise: 0...
"""

from dataclasses import replace

import numpy as np

import fedprivacy as fp
from fedprivacy.training import AgentData, FederatedSplitting, LocalSolver, Logistic, train

draw = np.random.default_rng(0)
inputs, truth = draw.normal(size=(20, 250, 5)), draw.normal(size=5)
data = AgentData.of([(a, np.where(a @ truth > 0, 1.0, -1.0)) for a in inputs])
loop = FederatedSplitting.on(
    data,
    loss=Logistic(regularisation=0.5, feature_bound=2.0),
    solver=LocalSolver(method="noisy", noise_scale=0.1),
    participation=0.8,
)
penalty = loop.rho
for steps in (loop.solvers[0].steps, 50):
    solver = LocalSolver(method="noisy", noise_scale=0.1, steps=steps)
    run = replace(loop, solver=solver, penalty=penalty).round_mechanism * 30
    spent = fp.epsilon(run, delta=1e-5, adjacency="replace_one", observer="server")
    print(f"{steps} local steps: epsilon at most {spent.upper:.4f}")

private = loop.average(train(loop, data, rounds=30).state)
exact = replace(loop, solver=LocalSolver(method="gradient", steps=20), penalty=penalty)
plain = exact.average(train(exact, data, rounds=30).state)
print(f"distance to the model without noise: {np.linalg.norm(private - plain):.2f}")
