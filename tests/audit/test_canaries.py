"""Tests of ``fedprivacy.audit.canaries``."""

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.audit.attacks import Outcome
from fedprivacy.audit.canaries import BY_NAME
from fedprivacy.runs.methods import names
from tests.audit.test_attacks import seeded
from tests.runs.test_attack_targets import SETTINGS

LOCAL = {
    "fa-ld": ("LangevinSampling", {"step_size": 1.0, "temperature": 1.0, "local_steps": 2}),
    "fa-hmc": (
        "HamiltonianSampling",
        {"step_size": 1.0, "leapfrog_steps": 1, "gradient_noise_multiplier": 1.0},
    ),
}


@pytest.mark.parametrize("name", LOCAL)
def test_canary_records_of_the_samplers(name):
    """Eight records, each x or -x: a loss's gradient is -x or x, so two are at most 2 apart."""
    pytest.importorskip("torch")
    import fedprivacy.training as training
    from fedprivacy.audit import planted

    kind, settings = LOCAL[name]
    axes = np.eye(8)

    def make(included, stated=2.0):
        signs = np.where(included, 1.0, -1.0)[:, None]
        target = training.Posterior.of(
            lambda parameters, inputs: inputs @ parameters,
            clients=[signs * axes],
            dimension=8,
            own_sensitivity=stated,
            prior_precision=0.0,
        )
        return getattr(training, kind)(target=target, **settings), None

    for stated, verdict in ((0.02, Outcome.BUG_ALARM), (2.0, Outcome.CONSISTENT)):
        loop, _ = make(np.ones(8, bool), stated)
        found = fp.attack(
            planted(lambda included, stated=stated: make(included, stated), 3),
            8,
            directions=-axes,
            claim=loop.run(3),
            adjacency="replace_one",
            runs=40,
            generator=seeded(12),
        )
        assert found.verdict is verdict, found


EVERYBODY = {"strategy": "everyone", "clients": 24}


def test_every_private_method_has_its_name():
    from fedprivacy.runs import attack_targets  # noqa: F401

    assert sorted(BY_NAME) == sorted(names(private=True)) == sorted(SETTINGS)
