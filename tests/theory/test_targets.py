"""Tests of ``fedprivacy.theory.targets``."""

import math

import numpy as np
import pytest

from fedprivacy.errors import ParameterError
from fedprivacy.systems.fa_ld.law import GaussianTarget, LangevinChain, rounds_to_accuracy
from fedprivacy.theory.gaussian import point
from tests.systems.fa_ld.test_law import by_enumeration, figure_target, random_target


def test_clients_with_one_hessian_share_their_work():
    target = random_target(2, clients=3)
    same = GaussianTarget(
        hessians=np.repeat(target.hessians[:1], 3, axis=0),
        centres=target.centres,
        weights=target.weights,
    )
    assert len(same.kinds[0]) == 1
    chain = LangevinChain(
        target=same, step_size=0.2, local_steps=3, correlation=0.4, averaging="I", cohort=2
    )
    law = point([0.3, 0.1])
    found, true = chain.step(law, 0), by_enumeration(same, chain, law, 0)
    assert found.mean == pytest.approx(true.mean, rel=1e-12)
    assert found.covariance == pytest.approx(true.covariance, rel=1e-12)


def test_equal_hessians_have_no_drift():
    """With one Hessian for all, K local steps and a round is K rounds of one step, whatever K."""
    target, *_ = figure_target(alpha=100.0)
    steps = rounds_to_accuracy(LangevinChain(target=target, step_size=1e-7), point([0, 0]), 1e-3)
    assert steps is not None and steps > 1000
    for local in (7, 100, 3000, 20_000):
        chain = LangevinChain(target=target, step_size=1e-7, local_steps=local)
        assert rounds_to_accuracy(chain, point([0, 0]), 1e-3) == math.ceil(steps / local)


GOOD = {"hessians": np.array([np.eye(2)] * 2), "centres": np.zeros((2, 2)), "weights": [0.5, 0.5]}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"weights": [0.5, 0.6]}, "sum to 1"),
        ({"weights": [1.5, -0.5]}, "above 0"),
        ({"hessians": np.array([np.diag([1.0, -1.0])] * 2)}, "hessians must be above 0"),
        ({"hessians": np.array([[[1.0, 0.5], [0.0, 1.0]]] * 2)}, "symmetric"),
        ({"hessians": np.eye(2)}, "have shape"),
        ({"centres": np.zeros(2)}, "have shape"),
    ],
)
def test_targets_that_are_none(change, message):
    with pytest.raises(ParameterError, match=message):
        GaussianTarget(**{**GOOD, **change})
