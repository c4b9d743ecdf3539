"""Tests of ``fedprivacy.factors.workload``."""

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import factors
from tests.factors.test_optimise import SERIES
from tests.systems.averaging.test_rows import DATA, loop_of, noise_of

CLIENTS = 12


def test_momentum_and_schedules_are_the_workloads():
    """Iterates are the workload's matrix times the noisy sums."""
    noise = noise_of(factors.Identity(), rounds=4)
    schedule = factors.rates(4, decay=0.5)
    plain = loop_of(noise, expected_cohort=1, learning_rate=1e-30)
    other = loop_of(
        noise, expected_cohort=1, learning_rate=1e-30, server_momentum=0.9, server_rates=schedule
    )
    tracks = []
    for loop in (plain, other):
        states = [loop.init()]
        for _ in range(4):
            states.append(loop.step(states[-1], DATA)[0])
        tracks.append(
            np.array([(s.parameters - states[0].parameters).double().numpy() for s in states[1:]])
        )
    sums = np.diff(tracks[0], axis=0, prepend=0.0)
    wanted = factors.Workload(momentum=0.9, rates=schedule).matrix(4) @ sums
    np.testing.assert_allclose(tracks[1], wanted, rtol=1e-4, atol=1e-4)


ONCE = fp.SingleParticipation()


@pytest.mark.parametrize("factor", SERIES, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_errors_are_those_of_the_whole_matrices(factor, momentum):
    workload = factors.Workload(momentum=momentum)
    found = factors.errors(factor, 40, ONCE, workload)
    made = workload.matrix(40)
    by_hand = np.array(
        [
            [sum(momentum**k for k in range(i - j + 1)) if i >= j else 0.0 for j in range(40)]
            for i in range(40)
        ]
    )
    np.testing.assert_allclose(made, by_hand, rtol=1e-12)
    matrix = factor.matrix(40)
    whole = np.linalg.norm(made @ np.linalg.inv(matrix), axis=1)
    scale = np.linalg.norm(matrix, axis=0).max()
    assert found.largest == pytest.approx(scale * whole.max(), rel=1e-10)
    assert found.root_mean_square == pytest.approx(scale * np.sqrt(np.mean(whole**2)), rel=1e-10)
    paid = factors.Workload(momentum=momentum, rates=(1.0,) * 40)
    assert factors.errors(factor, 40, ONCE, paid).largest == pytest.approx(found.largest, rel=1e-10)


def test_schedules_fall_as_they_say():
    assert factors.rates(4) == (1.0,) * 4
    assert factors.rates(4, cooldown=3) == pytest.approx((1.0, 0.75, 0.5, 0.25))
    assert factors.rates(3, decay=0.5) == pytest.approx((1.0, 0.5, 0.25))
    workload = factors.Workload(rates=factors.rates(3, decay=0.5))
    np.testing.assert_allclose(workload.matrix(3), [[1, 0, 0], [1, 0.5, 0], [1, 0.5, 0.25]])
