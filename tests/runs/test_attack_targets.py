"""Attacks on every method of the command line, correct and tampered.

Generators have fixed seeds, so no test fails by accident.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedprivacy as fp
from fedprivacy.audit.attacks import Outcome
from fedprivacy.mechanisms import perturbation, rounded
from fedprivacy.mechanisms.exact_normals import StoredDraws
from fedprivacy.runs.methods import METHODS
from fedprivacy.systems.fed_plt.agents import AgentData
from fedprivacy.training import federate, likelihoods

EVERYBODY = {"strategy": "everyone", "clients": 24}
SETTINGS = {
    "dp-fedavg": EVERYBODY,
    "dp-ftrl": EVERYBODY,
    "dp-scaffold": EVERYBODY,
    "fed-smp-top-k": EVERYBODY,
    "fed-smp-rand-k": EVERYBODY,
    "fa-ld": {"local_steps": 1},
    # Long steps, so that gradients are not small compared with the momentum.
    "fa-hmc": {"local_steps": 1, "step_size": 4.0},
    "fed-plt": {"local_steps": 1},
}
CANARIES, RUNS = 24, 30


def attacked(name, **given):
    usual = {"settings": SETTINGS.get(name), "runs": RUNS, "generator": np.random.default_rng(3)}
    return fp.attack(name, CANARIES, **usual | given)


def a_tenth_of_the_noise(patch):
    real = StoredDraws.rounded
    patch.setattr(
        StoredDraws,
        "rounded",
        lambda self, t, n, scale, *rest: real(self, t, n, 0.1 * scale, *rest),
    )


def ten_clip_norms(patch):
    real, factor = rounded.on_grid, likelihoods.clip_factor
    patch.setattr(
        perturbation,
        "on_grid",
        lambda value, clip_norm, grid: real(value, clip_norm=10.0 * clip_norm, grid=grid),
    )
    patch.setattr(likelihoods, "clip_factor", lambda norms, clip: 10.0 * factor(norms, clip))
    patch.setattr(
        AgentData, "bounded", lambda self, norm: replace(self, features=10.0 * self.features)
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_a_right_loop_is_not_accused(name):
    found = attacked(name, rounds=2)
    assert found.verdict is Outcome.CONSISTENT and found.canaries == CANARIES * RUNS
    assert 3.9 <= found.upper_certified <= 4.0  # calibrated


FAULTS = [a_tenth_of_the_noise, ten_clip_norms]
# Every method with one of the faults, the faults in turn; with the other one if there is time.
TAMPERED = [
    pytest.param(name, fault, marks=[pytest.mark.slow] * ((number + turn) % 2))
    for number, name in enumerate(SETTINGS)
    for turn, fault in enumerate(FAULTS)
]


@pytest.mark.parametrize(("name", "fault"), TAMPERED)
def test_a_tampered_loop_is_found(name, fault, monkeypatch):
    fault(monkeypatch)
    found = attacked(name, runs=150 if METHODS[name].unit is fp.Unit.RECORD else RUNS)
    assert found.verdict is Outcome.BUG_ALARM, found


def test_the_noise_may_be_given_and_the_data_and_the_claim():
    records = torch.randn(80, 12), torch.arange(80) % 3
    data = federate("own", records, records, clients=40, num_classes=3)
    settings = {"strategy": "everyone", "noise_multiplier": 5.0}
    found = attacked("dp-fedavg", data=data, settings=settings, rounds=2)
    whole = fp.Gaussian(noise_multiplier=5.0) * 2
    assert found.upper_certified == fp.epsilon(whole, delta=1e-5, adjacency="zero_out").upper
    assert found.verdict is Outcome.CONSISTENT
    assert attacked("dp-fedavg", data=data, settings=settings, claim=0.0).upper_certified == 0.0


def test_one_seed_is_one_answer():
    assert attacked("fed-plt") == attacked("fed-plt")


REFUSED = {
    "an unknown name": ("fedsgd", {}, r"^train must be one of 'dp-fedavg',.* got 'fedsgd'; pass"),
    "one without privacy": ("fedavg", {}, r"^train must be one of .* got 'fedavg'"),
    "directions": ("dp-fedavg", {"directions": "random"}, r"^directions must be left out"),
    "rounds twice": ("dp-fedavg", {"settings": {"rounds": 3}}, r"^settings\['rounds'\] .* rounds="),
    "a posterior": ("fa-ld", {"settings": {"model": "a.py:b"}}, r"^settings\['model'\] must be"),
    "another's setting": ("fed-plt", {"settings": {"momentum": 2}}, r"^momentum must be left"),
    "unknown data": ("fed-plt", {"data": "iris"}, r"^data must be one of"),
    "too few clients": (
        "dp-fedavg",
        {"settings": {"clients": 9}},
        r"^data must contain at least 24",
    ),
    "no noise": ("dp-fedavg", {"settings": {"noise_multiplier": 0}}, r"^noise_multiplier must be"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what):
    name, given, words = REFUSED[what]
    with pytest.raises(fp.ParameterError, match=words):
        attacked(name, **given)


def test_settings_are_for_names():
    with pytest.raises(fp.ParameterError, match=r"^settings must be left out"):
        attacked(lambda included, generator: included, settings={"clip_norm": 1.0})
