"""Tests of ``fedprivacy.training.data``."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprivacy.errors import ParameterError
from fedprivacy.training import LocalSGD, digits, mlp, partition_by_label, partition_iid

pytest.importorskip("torch")

from fedprivacy import training

pytestmark = pytest.mark.usefixtures("one_thread")


# Data and models


def test_digits_has_real_images_and_disjoint_parts():
    data = digits(clients=50)
    assert (len(data.labels), len(data.test_labels), len(data.public_labels)) == (1337, 360, 100)
    assert sorted(np.concatenate(data.clients)) == list(range(1337))
    assert float(data.features.max()) == 1.0 and float(data.features.min()) == 0.0
    inputs, labels = data.records(3)
    assert inputs.shape == (len(data.clients[3]), 64) and len(labels) == len(inputs)
    assert digits(clients=10, public=0).public_features is None


def test_digits_are_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    inputs, labels = datasets.load_digits(return_X_y=True)
    data = digits(clients=1, public=100, test=360, seed=3)
    order = np.random.default_rng(3).permutation(1797)
    parts = (data.test_features, data.public_features, data.features)
    assert np.array_equal(np.concatenate(parts) * 16, inputs[order])
    truth = (data.test_labels, data.public_labels, data.labels)
    assert np.array_equal(np.concatenate(truth), labels[order])


def test_partitions_cover_every_row_once_and_by_label_is_heterogeneous():
    labels = np.repeat(np.arange(10), 60)
    for parts in (partition_iid(600, 7), partition_by_label(labels, 50)):
        assert sorted(np.concatenate(parts)) == list(range(600))
    kinds = [len(set(labels[rows])) for rows in partition_by_label(labels, 50)]
    assert max(kinds) <= 4 and np.mean(kinds) < 3
    assert np.mean([len(set(labels[rows])) for rows in partition_iid(600, 50)]) > 5


def test_a_client_with_no_data_is_refused():
    with pytest.raises(ParameterError, match=r"clients must be at most 5.*use fewer clients"):
        partition_iid(5, 6)
    with pytest.raises(ParameterError, match="clients must be at most 2"):
        partition_by_label([0, 1, 0, 1, 0], 3)
    with pytest.raises(ParameterError, match="clients must be at most 1337"):
        digits(clients=2000)
    with pytest.raises(ParameterError, match=r"test . public must be below"):
        digits(public=1500)
    with pytest.raises(ParameterError, match="hidden must"):
        mlp(3, 2, hidden=(0,))
    with pytest.raises(ParameterError, match="have exactly one value other than None"):
        LocalSGD()


SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)


# ---- who has which records


@given(records=st.integers(1, 60), clients=st.integers(1, 60), seed=st.integers(0, 9))
@SETTINGS
def test_an_even_split_is_one_of_sizes_that_differ_by_one(records, clients, seed):
    clients = min(clients, records)
    parts = training.partition_iid(records, clients, seed=seed)
    assert sorted(np.concatenate(parts)) == list(range(records))
    sizes = set(map(len, parts))
    assert len(parts) == clients and max(sizes) - min(sizes) <= 1 and min(sizes) >= 1
    assert all(np.array_equal(part, np.sort(part)) for part in parts)
    again = training.partition_iid(records, clients, seed=seed)
    assert all(map(np.array_equal, parts, again))


@given(
    each=st.integers(1, 4),
    clients=st.integers(1, 6),
    runs=st.integers(1, 3),
    seed=st.integers(0, 9),
)
@SETTINGS
def test_a_split_by_label_deals_runs_of_sorted_labels(each, clients, runs, seed):
    """As many classes as runs: every run is a class, so a client has exactly that many."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(clients * runs), each))
    parts = training.partition_by_label(labels, clients, classes_per_client=runs, seed=seed)
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    assert [len(part) for part in parts] == [each * runs] * clients
    assert all(len(set(labels[part])) == runs for part in parts)
