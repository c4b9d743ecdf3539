"""Helpers of several test files: schemes, custom releases, and runs of known epsilon."""

import ast
import math
from functools import cache
from pathlib import Path

import numpy as np

import fedprivacy as fp
from tests.plain_words import tree_of as tree_of

ROOT = Path(__file__).parents[1]
"""The checkout."""

RECORDS = ROOT / "tests" / "traces"
"""Records of other programs."""

SCHEMES = {
    "Poisson": fp.Poisson(0.2),
    "TruncatedPoisson": fp.TruncatedPoisson(0.2, population=25, largest=6),
    "FixedSize": fp.FixedSize(5, population=25),
    "WithReplacement": fp.WithReplacement(5, population=25),
    "Shuffled": fp.Shuffled(rounds_per_epoch=5),
    "RandomAllocation": fp.RandomAllocation(rounds_per_epoch=5),
    "Everyone": fp.Everyone(),
}
"""One of every scheme of the reference table, each with a unit in a fifth of the rounds."""


@cache
def statements(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return a node and all statements in it, without a look at expressions, which hold none."""
    kinds = (ast.stmt, ast.excepthandler, ast.match_case)
    inner = (child for child in ast.iter_child_nodes(tree) if isinstance(child, kinds))
    return tree, *(one for child in inner for one in statements(child))


def excluded(out, other):
    """Whether no double of noise gives these outputs under the other sum (Mironov 2012)."""
    about = out - other
    tries = [about]
    for direction in (-np.inf, np.inf):
        tried = about
        for _ in range(4):
            tried = np.nextafter(tried, direction)
            tries.append(tried)
    return not np.any([other + noise == out for noise in tries], axis=0).all()


def two_classes(records, clients, inputs=3):
    """Made-up data: the sign of the first input is the label; every client has as many records."""
    import torch

    from fedprivacy.training import FederatedData

    made = np.random.default_rng(0).normal(size=(records, inputs)).astype(np.float32)
    features, labels = torch.from_numpy(made), torch.from_numpy((made[:, 0] > 0).astype(int))
    return FederatedData(
        name="made up",
        features=features,
        labels=labels,
        clients=tuple(np.split(np.arange(records), clients)),
        test_features=features,
        test_labels=labels,
        num_classes=2,
    )


def told(epsilon):
    """Randomised response: the release has every coin, wrong with probability 1 / (1 + e^eps)."""

    def train(included, generator):
        return included ^ (generator.random(len(included)) * (1.0 + math.exp(epsilon)) < 1.0)

    return train


def noisy(std):
    """The release has every coin with separate noise."""
    return lambda included, generator: included + generator.normal(0.0, std, len(included))
