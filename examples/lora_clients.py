"""I fine-tune a transformer with LoRA over many clients, and protect every client.

Correct end to end: the loop draws, clips and perturbs as accounted, and its ledger is audited. The
base has random weights; load public ones. Frozen parameters are neither sent nor clipped.

Prints::

    1354 trained parameters, accuracy 0... after 8 rounds
    HOLDS: epsilon in [7.99..., ...] at delta = 0.001 (client level, zero_out, ...)
"""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import fedprivacy as fp
from fedprivacy import training


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)  # every build has the same frozen base
        self.embed, self.qkv = nn.Linear(8, 16), nn.Linear(16, 48)
        self.register_buffer("place", torch.randn(8, 16))
        self.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(16, 1) / 4), nn.Parameter(torch.zeros(1, 48))
        self.head = nn.Linear(128, 10)

    def forward(self, rows):
        x = self.embed(rows) + self.place
        adapted = self.qkv(x) + x @ self.down @ self.up
        x = x + scaled_dot_product_attention(*adapted.chunk(3, -1))
        return self.head(x.relu().flatten(-2))


digits, scheme, rounds = training.digits(clients=50), fp.Poisson(0.5), 8
data = training.FederatedData(
    features=digits.features.reshape(-1, 8, 8),
    labels=digits.labels,
    clients=digits.clients,
    test_features=digits.test_features.reshape(-1, 8, 8),
    test_labels=digits.test_labels,
)
found = fp.calibrate(
    lambda z: fp.Gaussian(noise_multiplier=z, unit="client").sampled(scheme) * rounds,
    epsilon=8.0, delta=1e-3, adjacency="zero_out",
)  # fmt: skip
step = fp.Gaussian(noise_multiplier=found.value, unit="client")
loop = training.FederatedAveraging(
    model=Transformer, scheme=scheme, perturbation=step, local_steps=5, learning_rate=0.3
)
facts = {"unit": "client", "adjacency": "zero_out", "claim": (8.0, 1e-3)}
with fp.Ledger.create("lora.ledger", **facts) as log:
    state = training.train(loop, data, rounds=rounds, ledger=log).state
    log.close()
score = loop.evaluate(state, data)[0]
print(f"{loop.flat.dimension} trained parameters, accuracy {score:.2f} after {rounds} rounds")
judged = fp.audit("lora.ledger")
print(f"{judged.verdict}: {judged.bound}")
