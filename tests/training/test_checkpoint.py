"""Tests of ``fedprivacy.training.checkpoint``."""

from pathlib import Path

import pytest
import torch

from fedprivacy.errors import ParameterError
from fedprivacy.training import load, logistic, save, train
from fedprivacy.training.checkpoint import FORMAT
from tests.systems.averaging.test_loop import fed_smp, loop, small

pytestmark = pytest.mark.usefixtures("one_thread")


# Resuming


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path):
    averaging = loop(fed_smp(), model=logistic(3, 2), learning_rate_decay=0.9)
    data, path = small(), tmp_path / "state.pt"
    whole = train(averaging, data, rounds=7)
    train(averaging, data, rounds=3, checkpoint=path)
    seen = []
    rest = train(
        averaging, data, rounds=7, checkpoint=path, on_round=lambda s, i: seen.append(i.round)
    )
    assert torch.equal(whole.state.parameters, rest.state.parameters)
    assert seen == [3, 4, 5, 6] and whole.history[3:] == rest.history
    assert load(path, averaging.init()).round == 7 and not path.with_name("state.pt.tmp").exists()
    assert train(averaging, data, rounds=7, checkpoint=path).history == ()


WHOLE = {"format": FORMAT, "kind": "State", "round": 0, "upload_bytes": 0}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a checkpoint",
        {"format": "other"},
        {"format": FORMAT},
        {"format": FORMAT, "round": -1, "upload_bytes": 0},
        {"format": FORMAT, "round": True, "upload_bytes": 0},
        {"format": FORMAT, "round": 0, "upload_bytes": 0.5},
        {"format": FORMAT, "round": 0, "upload_bytes": 0, "kind": "Other"},
        WHOLE | {"learning_rate": "x"},
        WHOLE | {"learning_rate": 0.1},
        Path("/"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "state.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ParameterError, match=r"checkpoint must .*state\.pt"):
        train(loop(), small(), rounds=1, checkpoint=path)


def test_a_truncated_checkpoint_is_refused(tmp_path):
    path = tmp_path / "state.pt"
    save(path, loop().init())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ParameterError, match="delete it and name a new ledger"):
        load(path, loop().init())
