"""SCAFFOLD, whose control variates correct the steps of clients with different data.

A demonstration: the loop draws the noise that is priced, but no ledger records the rounds.

Prints::

    2 rounds cost epsilon at most 3.2
"""

import fedprivacy as fp
from fedprivacy.training import Scaffold, digits, logistic, train

loop = Scaffold(
    model=logistic(64, 10),
    scheme=fp.Poisson(0.5),
    perturbation=fp.Gaussian(noise_multiplier=1.0, clip_norm=0.5, unit="client"),
    local_steps=4,
    learning_rate=0.5,
)
state = train(loop, digits(clients=20), rounds=2).state
spent = fp.epsilon(loop.round_mechanism * 2, delta=1e-3, adjacency="zero_out").upper
print(f"{state.round} rounds cost epsilon at most {spent:.1f}")
