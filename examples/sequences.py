"""I train on sequences: an LSTM and a causal transformer, with a label at every position.

A demonstration: no ledger records the rounds. A digit is a sequence of eight rows, and the label at
each row is its class. The transformer's mask and positions are constant buffers, which are allowed;
running statistics are refused.

Prints::

    LSTM: loss 2.3... before, ... after, epsilon at most 4.1...
    Transformer: loss 2... before, ... after, epsilon at most 4.1...
"""

import math

import torch
from torch import nn

import fedprivacy as fp
from fedprivacy import training


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, rows):
        return self.out(self.inner(rows)[0]).transpose(1, 2)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place, self.out = nn.Linear(8, 16), nn.Embedding(8, 16), nn.Linear(16, 10)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.register_buffer("positions", torch.arange(8))
        self.register_buffer("mask", torch.full((8, 8), -math.inf).triu(1))

    def forward(self, rows):
        inputs = self.embed(rows) + self.place(self.positions)
        return self.out(self.layer(inputs, src_mask=self.mask)).transpose(1, 2)


digits = training.digits(clients=100)
data = training.FederatedData(
    features=digits.features.reshape(-1, 8, 8),
    labels=digits.labels[:, None].expand(-1, 8),
    clients=digits.clients,
    test_features=digits.test_features.reshape(-1, 8, 8),
    test_labels=digits.test_labels[:, None].expand(-1, 8),
)
step = fp.Gaussian(noise_multiplier=1.2, unit="client")
bound = fp.epsilon(step.sampled(fp.Poisson(0.3)) * 15, delta=1e-3, adjacency="zero_out")
for model in (LSTM, Transformer):
    facts = {"scheme": fp.Poisson(0.3), "perturbation": step, "loss": nn.functional.cross_entropy}
    loop = training.FederatedAveraging(model=model, local_steps=5, learning_rate=0.5, **facts)
    state = training.train(loop, data, rounds=15).state
    losses = [loop.evaluate(each, data)[1] for each in (loop.init(), state)]
    told = f"loss {losses[0]:.2f} before, {losses[1]:.2f} after"
    print(f"{model.__name__}: {told}, epsilon at most {bound.upper:.2f}")
