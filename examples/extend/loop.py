"""A training loop of your own: a noisy sum of all clients' numbers in every round.

``RoundBookkeeping`` and ``run_round`` write the ledger and charge the budget in an order that
counts too much after a crash, never too little.

Correct end to end: the ledger of the loop is audited.

Prints::

    5 releases, HOLDS
"""

from dataclasses import dataclass

import torch

import fedprivacy as fp
from fedprivacy.training import RoundInfo, train
from fedprivacy.training.rounds import RoundBookkeeping, run_round


@dataclass(frozen=True)
class Sums:
    """How many rounds were run, and the released sums, shape (rounds,)."""

    round: int
    released: torch.Tensor


@dataclass(frozen=True)
class NoisySums:
    """Releases a noisy sum of everybody's numbers, round after round."""

    round_mechanism: fp.Gaussian
    device: str = "cpu"

    def init(self):
        return Sums(0, torch.zeros(0))

    def step(self, state, data, *, ledger=None, budget=None, dropout=None, on_release=None):
        noise = self.round_mechanism
        books = RoundBookkeeping(
            mechanism=noise,
            ledger=ledger,
            budget=budget,
            clip_norm=noise.clip_norm,
            noise_std=noise.full_noise_std,
        )

        def collect():
            return sum(noise.contribution(number) for number in data.split(1))

        def release(total):
            # The std is recorded as drawn, not as planned.
            drawn, std = noise.noise(total)
            seen = {"cohort": len(data), "arrived": len(data), "refused": 0, "aborted": False}
            info = RoundInfo(round=state.round, upload_bytes=8 * len(data), noise_std=std, **seen)
            return Sums(state.round + 1, torch.cat([state.released, total + drawn])), info

        return run_round(books, collect=collect, release=release, on_release=on_release)


loop = NoisySums(fp.Gaussian(noise_multiplier=2.0, clip_norm=1.0, unit="client"))
budget = fp.Budget(epsilon=8.0, delta=1e-5, adjacency="zero_out")
facts = {"unit": "client", "adjacency": "zero_out", "claim": (8.0, 1e-5)}
with fp.Ledger.create("sums.ledger", **facts) as ledger:
    state = train(loop, torch.ones(4), rounds=5, ledger=ledger, budget=budget).state
    ledger.close()
print(len(state.released), "releases,", fp.audit("sums.ledger").verdict)
