"""A mechanism of your own for ``FederatedAveraging``: a noisy sum of vectors.

The loop clips the clients' updates, sums them and adds noise. A ``Perturbation`` states how.

Correct end to end: the ledger is audited, and the noise is tested.

Prints::

    HOLDS
    verified: True
"""

from dataclasses import dataclass

import numpy as np
import torch

import fedprivacy as fp
from fedprivacy.loss import Gdp
from fedprivacy.mechanisms import Perturbation, Traits
from fedprivacy.mechanisms.rounded import noise_like
from fedprivacy.privacy_loss import PrivacyLoss, Witness
from fedprivacy.registry import registered
from fedprivacy.relations import Unit
from fedprivacy.training import FederatedAveraging, FederatedData, logistic, train


@registered
@dataclass(frozen=True, kw_only=True)
class Counts(Perturbation):
    """A sum of vectors of norm at most 1, plus Gaussian noise: the histogram of any loop."""

    noise_std: float

    protects = Unit.CLIENT
    clip_norm = 1.0

    @property
    def traits(self):
        return Traits.of_sum(self.noise_std)

    @property
    def full_noise_std(self):
        return self.noise_std

    def contribution(self, update, mask=None):
        return self.gridded(update)

    def noise(self, like, generator=None, *, shares=None):
        std = self.noise_std
        return noise_like(like, std=std, grid=self.grid, generator=generator), std

    def loss_under(self, facts):
        curve = Gdp(facts.adjacency.moves / self.noise_std)
        attained = Witness(curve, "one client sends u, every other sends 0", free=True)
        return PrivacyLoss(curve, facts, attained, ("Gaussian mechanism is mu-GDP",), ())


features, labels = torch.randn(24, 3), torch.arange(24) % 2
data = FederatedData(
    name="made up",
    features=features,
    labels=labels,
    clients=tuple(np.split(np.arange(24), 6)),
    test_features=features,
    test_labels=labels,
)
loop = FederatedAveraging(
    model=logistic(3, 2),
    scheme=fp.Poisson(0.5),
    perturbation=Counts(noise_std=2.0),
    local_steps=1,
)
facts = {"unit": "client", "adjacency": "zero_out", "claim": (4.0, 1e-3)}
with fp.Ledger.create("counts.ledger", **facts) as ledger:
    state = train(loop, data, rounds=3, ledger=ledger).state
    ledger.close()
print(fp.audit("counts.ledger").verdict)
random = np.random.default_rng(1)
found = fp.verify(Counts(noise_std=2.0), pairs=20, draws=50, generator=random)
print("verified:", found.passed)
