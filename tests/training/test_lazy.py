"""Tests of ``fedprivacy.training.lazy``."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_training_properties import federated

pytest.importorskip("torch")

import torch

from fedprivacy import training

SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    most=st.integers(1, 4),
    seed=st.integers(0, 5),
)
@SETTINGS
def test_groups_hold_every_client_once_beside_those_of_its_size(sizes, most, seed):
    own = federated(sizes)
    made = training.LazyData(
        client=own.records,
        population=len(sizes),
        test_features=own.test_features,
        test_labels=own.test_labels,
        num_classes=2,
    )
    asked = np.random.default_rng(seed).permutation(len(sizes)).tolist()
    for data in (own, made):
        groups = list(data.groups(asked, most))
        assert sorted(client for group in groups for client in group.clients) == sorted(asked)
        for group in groups:
            assert 1 <= len(group.clients) <= most
            assert len({sizes[client] for client in group.clients}) == 1
            for client, rows in zip(group.clients, group.rows, strict=True):
                mine = [part[torch.from_numpy(rows)] for part in group.records]
                assert all(map(torch.equal, mine, own.records(client)))


def test_no_more_made_clients_wait_than_four_groups_hold():
    asked = []

    def client(number):
        asked.append(number)
        return torch.zeros(number + 1, 1), torch.zeros(number + 1).long()

    own = training.LazyData(
        client=client,
        population=20,
        test_features=torch.zeros(0, 1),
        test_labels=torch.zeros(0).long(),
    )
    # No client has the size of another: the first group is made by the wait.
    groups = own.groups(range(20), 2)
    assert len(next(groups).clients) == 1 and len(asked) == 8
    assert len(list(groups)) == 19 and sorted(asked) == list(range(20))
