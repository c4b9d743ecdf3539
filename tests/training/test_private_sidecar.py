"""Tests of ``fedprivacy.training.private_sidecar``."""

import hashlib
import json
import stat
from dataclasses import replace

import numpy as np
import pytest

from tests.contract.test_leaks import data, trained
from tests.property.test_training_properties import federated

pytest.importorskip("torch")

import torch

from fedprivacy.training import private_sidecar
from fedprivacy.training import private_sidecar as notes_module
from fedprivacy.training.private_sidecar import PrivateSidecar, digest

CLIENT = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}


def test_a_checkpoint_does_not_tell_which_of_two_data_sets_was_trained_on(tmp_path):
    """No digest in it is one that can be had without the key, of either candidate, of any size."""
    candidates = data(0.0), data(1.0)
    trained(tmp_path, candidates[0])
    content = torch.load(tmp_path / "run.pt", weights_only=True)
    whole = (tmp_path / "run.pt").read_bytes()
    for records in candidates:
        for size in (8, 16, 20, 32, 64):
            found = hashlib.blake2b(digest_size=size)
            notes_module._fold(records, found.update)
            assert found.hexdigest().encode() not in whole and found.digest() not in whole
        found = hashlib.sha256()
        notes_module._fold(records, found.update)
        assert found.hexdigest().encode() not in whole
    private = (tmp_path / "run.ledger.private").read_bytes().splitlines()
    key = bytes.fromhex(json.loads(private[0])["key"])
    assert content["data"] == digest(candidates[0], key) != digest(candidates[1], key)
    assert key.hex().encode() not in whole and key not in whole
    assert key.hex().encode() not in (tmp_path / "run.ledger").read_bytes()
    assert stat.S_IMODE((tmp_path / "run.ledger.private").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "run.pt").stat().st_mode) == 0o600


def test_the_digest_is_a_function_of_the_key_and_the_data_alone(tmp_path):
    """Same key, same digest; other key, other digest; its bits lean to neither data set.

    Of 400 keys' 256 bits, those that agree for two data sets are half, within five standard
    deviations; by accident this fails once in 1.7 million runs.
    """
    first, second = data(0.0), data(1.0)
    keys = [bytes([number % 256, number // 256]) * 16 for number in range(400)]
    assert digest(first, keys[3]) == digest(data(0.0), keys[3])
    pairs = [(digest(first, key), digest(second, key)) for key in keys]
    assert len({one for pair in pairs for one in pair}) == 800
    alike = sum(256 - (int(a, 16) ^ int(b, 16)).bit_count() for a, b in pairs)
    total = 256 * len(keys)
    assert abs(alike - total / 2) <= 5 * np.sqrt(total / 4)
    keys_drawn = set()
    for name in "ab":
        trained(tmp_path / name, first)
        keys_drawn.add((tmp_path / name / "run.ledger.private").read_bytes().splitlines()[0])
    assert len(keys_drawn) == 2


def test_a_line_that_a_crash_cut_does_not_take_the_next_one_with_it(tmp_path):
    notes = PrivateSidecar.beside(tmp_path / "run.pt", None)
    notes.begin()
    notes.count(1, 10)
    with open(notes.path, "ab") as file:
        file.write(b'\n{"round": 2, "se')
    notes.count(2, 30)
    again = PrivateSidecar.beside(tmp_path / "run.pt", None)
    assert [again.sent(at) for at in (0, 1, 2, 3)] == [0, 10, 30, None]


# ---- what a key makes of data

PLACES = ["features", "labels", "clients", "name", "num_classes"]


@pytest.mark.parametrize("place", PLACES)
def test_a_fingerprint_follows_every_part_of_the_data_and_the_key(place):
    own = federated([2, 2])
    other = {
        "features": own.features + torch.eye(4, 3) * 1e-6,
        "labels": 1 - own.labels,
        "clients": (own.clients[0], own.clients[1][::-1].copy()),
        "name": "datb",
        "num_classes": 3,
    }[place]
    key = bytes(32)
    first = private_sidecar.digest(own, key)
    assert first == private_sidecar.digest(federated([2, 2]), key) and len(first) == 64
    assert first != private_sidecar.digest(replace(own, **{place: other}), key)
    assert first != private_sidecar.digest(own, bytes(31) + b"\x01")


def test_a_fingerprint_tells_equal_bytes_of_other_kinds_apart():
    parts = [
        np.zeros(2),
        np.zeros(2, np.int64),
        np.zeros((2, 1)),
        torch.zeros(2, dtype=torch.float64),
        [0.0, 0.0],
        [[0.0], 0.0],
        [0.0, [0.0]],
        {"a": 0.0},
        [("a", 0.0)],
        "0.0",
        0.0,
        0,
        False,
        None,
    ]
    found = [private_sidecar.digest(part, bytes(32)) for part in parts]
    # A mapping is the list of its pairs, and numpy's doubles are torch's but for the type's name.
    assert found[7] == found[8] and len(set(found)) == len(parts) - 1
