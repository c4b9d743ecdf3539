"""Tests of ``fedprivacy.systems.averaging.collect``."""

import math

import numpy as np
import pytest
import torch

from fedprivacy.systems.averaging.collect import Collected, Total
from tests.systems.averaging.test_loop import fed_smp, travels

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    "update",
    [
        torch.zeros(7),
        torch.zeros(2, 4),
        torch.zeros(0),
        torch.full((8,), math.nan),
        torch.tensor([0.0] * 7 + [math.inf]),
    ],
)
@pytest.mark.parametrize("private", [False, True])
def test_an_update_that_does_not_fit_is_refused_and_its_share_of_the_noise_stays(update, private):
    secure = fed_smp(kept=3, cohort=2) if private else None
    running = Collected([4, 7], travels(), torch.tensor([0, 3, 5]), secure)
    assert not running.add(4, update)
    assert running.add(7, torch.arange(8.0))
    assert (running.arrived, running.refused, running.shares, running.uploads) == (1, 1, 2, 2)
    values = torch.tensor([0.0, 3.0, 5.0]) * 8 / 3
    expected = values * 0.5 / values.norm() if private else values
    assert torch.allclose(running.total.float(), expected)
    _, std = running.noisy(np.random.default_rng(0))
    assert std == pytest.approx(0.5 if private else 0.0)


def test_a_client_that_reports_twice_or_was_not_drawn_changes_nothing():
    once = Collected([4, 7], travels(8))
    twice = Collected([4, 7], travels(8))
    for running in (once, twice):
        assert running.add(4, torch.ones(8)) and running.add(7, torch.full((8,), math.nan)) is False
    assert not any([twice.add(4, torch.ones(8)), twice.add(7, torch.ones(8)), twice.add(5, NINES)])
    assert torch.equal(once.total, twice.total)
    assert (twice.arrived, twice.shares, twice.uploads) == (1, 2, 2)
    assert (once.info(0, denominator=1).refused, twice.info(0, denominator=1).refused) == (1, 2)


NINES = torch.full((8,), 9.0)


class Nobody:
    def __index__(self):
        raise OSError("not for you")


@pytest.mark.parametrize("name", [None, "4", 4.5, math.nan, [4], Nobody(), b"4", 2**70])
def test_whoever_says_no_number_is_refused_and_counted(name):
    running = Collected([4, 7], travels(8))
    assert not running.add(name, NINES)
    assert running.add(np.int64(4), torch.ones(8)) and running.add(torch.tensor(7), torch.ones(8))
    assert torch.equal(running.total, torch.full((8,), 2.0))
    assert (running.arrived, running.info(0, denominator=1).refused) == (2, 1)


def test_a_total_is_exact_whatever_single_precision_holds():
    """Numbers that it adds up exactly, that it does not, doubles, and some of them many times."""
    grid, generator = 2.0**-24, np.random.default_rng(0)
    total, exact = Total(torch.zeros(40, dtype=torch.float64), grid), np.zeros(40, dtype=object)
    for turn in range(600):
        bits, times = int(generator.integers(1, 25)), int(generator.integers(1, 4))
        points = generator.integers(-(2**bits) + 1, 2**bits, 40)
        part = torch.from_numpy(points * grid).to(torch.float64 if turn % 7 == 0 else torch.float32)
        total.add(part, times, float(part.abs().max()))
        exact += times * points.astype(object)
        if turn % 97 == 0:
            assert (total.value().numpy() / grid).tolist() == exact.tolist()
    assert (total.value().numpy() / grid).tolist() == exact.tolist()


def test_a_total_of_numbers_on_no_grid_is_added_up_as_it_is():
    total = Total(torch.zeros(2, dtype=torch.float64), None)
    for _ in range(10):
        total.add(torch.tensor([0.1, 2.0**30]), 1, 2.0**30)
    assert total.value().tolist() == [10 * float(torch.tensor(0.1)), 10 * 2.0**30]
