"""Tests of ``fedprivacy.training.threads``."""

import pytest

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.training import threads

# ---- threads


@pytest.mark.parametrize(
    ("wanted", "size", "variable", "taken"),
    [
        (1, 10**7, None, 1),
        (None, 10, None, 1),
        (None, 10, "2", 2),
        (None, 10**6, None, 2),
        (2, 1, None, 2),
    ],
)
def test_threads_are_as_asked_within_and_as_before_behind(
    monkeypatch, wanted, size, variable, taken
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    now = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))
    state = training.State(0, torch.empty(size, device="meta"), 0.1)
    with pytest.raises(ZeroDivisionError), threads.limited(state, wanted):
        assert now == [taken]
        _ = 1 // 0
    assert now == [2]


def test_no_thread_is_refused_and_a_state_s_size_is_its_largest_tensor():
    state = training.State(0, torch.zeros(7), 0.1)
    assert threads.size_of(state) == 7 and threads.size_of("no state") == 0
    with (
        pytest.raises(fp.ParameterError, match="threads must be an integer of at least 1, got 0"),
        threads.limited(state, 0),
    ):
        pass
