"""Tests of ``fedprivacy.training.gaussian``."""

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import training as t
from fedprivacy.errors import ParameterError
from fedprivacy.theory.targets import GaussianTarget
from tests.contract.test_conditions_of_loops import langevin


def test_a_gaussian_target_knows_its_curvature():
    """Stated as 400 its upload was .258, and 1.304 is attained: its Hessian is 10."""
    records = np.vstack([[[1.0]], np.zeros((9, 1))])
    made = GaussianTarget.of_records([records], np.eye(1))
    target = t.GaussianPosterior(target=made, sensitivity=2.0)
    loop = langevin(target, 10.0, 10.0)
    assert fp.epsilon(loop.run(1), delta=1e-5, adjacency="replace_one").upper > 1.3
    with pytest.raises(
        ParameterError, match="strong_convexity must be at most 10, the value of the target"
    ):
        langevin(target, 400.0, 500.0)
    with pytest.raises(
        ParameterError, match="smoothness must be at least 10, the value of the target"
    ):
        langevin(target, 5.0, 9.0)


def test_targets_of_one_s_own_need_not_know_their_curvature():
    made = GaussianTarget(hessians=np.eye(2)[None], centres=np.zeros((1, 2)))

    class Own:
        def __getattr__(self, name):
            if name == "curvature":
                raise AttributeError(name)
            return getattr(t.GaussianPosterior(target=made, sensitivity=1.0), name)

    langevin(Own(), None, None)
    langevin(Own(), 0.5, 2.0)


def test_so_are_those_of_samplers(tmp_path):
    made = GaussianTarget.of_records([np.ones((5, 1))], np.eye(1))
    target = t.GaussianPosterior(target=made, sensitivity=2.0)
    sampler = t.LangevinSampling(target=target, step_size=2e-3, local_steps=2)
    state, _ = sampler.step(sampler.init())
    facts = {"unit": "record", "adjacency": "replace_one"}
    with fp.Ledger.create(tmp_path / "run.ledger", **facts) as ledger:
        with pytest.raises(ParameterError, match="contain all 1 rounds of the state"):
            sampler.step(state, ledger=ledger)
        sampler.step(sampler.init(), ledger=ledger)
