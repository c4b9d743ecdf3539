"""The model, the clients' images, a client's training and the server's test."""

from functools import cache

import torch
from torch import nn
from torch.nn import functional

from fedprivacy.training import FederatedData, fashion_mnist


def network() -> nn.Module:
    """Return a small convolutional network, about 6,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(400, 10),
    )  # fmt: skip


@cache
def images(clients: int) -> FederatedData:
    """Return Fashion-MNIST, split evenly among the clients."""
    return fashion_mnist(clients=clients)


def train(model: nn.Module, client: int, clients: int) -> None:
    """Take ten steps of SGD on batches of a client's images."""
    data = images(clients)
    rows = torch.from_numpy(data.clients[client])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in rows[torch.randperm(len(rows))[:320]].split(32):
        optimizer.zero_grad()
        outputs = model(data.features[batch].reshape(-1, 1, 28, 28))
        functional.cross_entropy(outputs, data.labels[batch]).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, clients: int) -> float:
    """Return the accuracy on the test set, which belongs to no client."""
    data = images(clients)
    outputs = model(data.test_features.reshape(-1, 1, 28, 28))
    return (outputs.argmax(1) == data.test_labels).double().mean().item()
