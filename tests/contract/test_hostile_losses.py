"""Losses, models and records that are not real functions: one line of error, no traceback.

If possible the refusal comes before a round is spent. A record's own gradient is clipped, or counts
as 0.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as functional

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.training import (
    AgentData,
    EmptySum,
    FederatedAveraging,
    FederatedSplitting,
    HamiltonianSampling,
    LangevinSampling,
    LeastSquares,
    Likelihood,
    LocalSolver,
    Logistic,
    ModuleLoss,
    Posterior,
    SoftmaxRegression,
    classifier,
    load,
    logistic,
    train,
)
from tests.systems.averaging.test_loop import small
from tests.systems.fa_ld.test_loop import records

NOISE = fp.Gaussian(noise_multiplier=2.0, clip_norm=0.5, unit="client")
CLIPPED = LocalSolver(method="noisy", steps=2, step_size=0.1, noise_scale=0.5, clip_norm=1.0)


class Weights(torch.nn.Module):
    """Two scores of two inputs; what else it does is up to the subclass."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2, 2))

    def forward(self, inputs):
        return inputs[:, :2] @ self.w


class Writes(Weights):
    def forward(self, inputs):
        with torch.no_grad():
            self.w.mul_(0.5)
        return super().forward(inputs)


class WritesUnseen(Weights):
    def forward(self, inputs):
        self.w.data.mul_(0.5)
        return super().forward(inputs)


class WritesToInputs(Weights):
    def forward(self, inputs):
        return super().forward(inputs.mul_(2.0))


class Complex(Weights):
    def forward(self, inputs):
        return super().forward(inputs).to(torch.complex128)


class Cut(Weights):
    def forward(self, inputs):
        return super().forward(inputs).detach()


class Branches(Weights):
    def forward(self, inputs):
        return super().forward(inputs if inputs.sum() > 0 else -inputs)


class Empty(Weights):
    def forward(self, inputs):
        return None


def averaging(model=None, loss=None):
    loop = FederatedAveraging(
        model=model or logistic(3, 2),
        scheme=fp.FixedSize(3, 6),
        perturbation=NOISE,
        local_steps=3,
        loss=loss,
    )
    return loop.step(loop.init(), small())


def agents(model=Weights, criterion=None, targets=None):
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 20, 2)))
    data = AgentData(inputs, (inputs[..., 0] > 0).long() if targets is None else targets)
    loss = ModuleLoss(model=model, criterion=criterion)
    loop = FederatedSplitting.on(data, loss=loss, penalty=1.0, solver=CLIPPED)
    return loop.step(loop.init(), data)


def sampler(model, kind=LangevinSampling):
    noise = {} if kind is LangevinSampling else {"gradient_noise_multiplier": 0.5}
    target = Posterior(model=model, data=records((7, 5, 6)), clip_norm=0.1)
    loop = kind(target=target, step_size=0.05, **noise)
    return loop.step(loop.init())


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Complex, "output must be real"),
        (Cut, "output must be real.*without a gradient"),
        (Empty, "got 'NoneType'"),
        (object, "must build an nn.Module"),
    ],
)
def test_models_of_averaging(model, words):
    with pytest.raises(ParameterError, match=words):
        averaging(model)


def test_a_loss_that_is_a_table_in_later_steps_alone():
    calls = []

    def loss(outputs, targets):
        calls.append(1)
        # The first call is the check's, on artificial records.
        return functional.cross_entropy(outputs, targets) if len(calls) < 3 else outputs

    with pytest.raises(ParameterError, match="loss must return one differentiable real number"):
        averaging(loss=loss)
    with pytest.raises(ParameterError, match=r"one differentiable real number.*complex64"):
        averaging(loss=lambda outputs, targets: outputs.sum().to(torch.complex64))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_refused_and_counted(value):
    state, info = averaging(loss=lambda outputs, targets: outputs.sum() * value)
    assert (info.arrived, info.refused) == (0, 3) and torch.isfinite(state.parameters).all()
    state, info = agents(criterion=lambda outputs, target: outputs.sum() * value)
    # A record whose gradient is not finite counts as 0; its agent sends noise.
    assert info.arrived == 3 and torch.isfinite(state.models).all()


def diverging(loss=lambda outputs, targets: outputs.sum() * float("nan"), cohort=3):
    return FederatedAveraging(
        model=logistic(3, 2),
        scheme=fp.FixedSize(cohort, 6),
        perturbation=NOISE,
        local_steps=3,
        loss=loss,
    )


def test_training_tells_once_that_all_updates_are_refused():
    with pytest.warns(EmptySum, match="were refused, usually because they were not finite") as told:
        result = train(diverging(), small(), rounds=3)
    assert len(told) == 1 and [info.refused for info in result.history] == [3, 3, 3]
    # The round and the count are the server's own, and its log may be another's to read.
    assert not any(letter.isdigit() for letter in str(told[0].message))


def test_training_that_leaves_out_some_updates_tells_nothing():
    result = train(diverging(loss=None, cohort=6), small(poisoned=(1, 4)), rounds=4)
    assert [info.refused for info in result.history] == [2, 2, 2, 2]


def test_an_aborted_round_costs_nothing_and_is_not_warned_of():
    """Two of three stay away, and the third's update is refused."""
    noise = fp.SparsifiedPerturbation(
        noise_multiplier=2.0, clip_norm=0.5, dimension=8, kept=8, cohort=3, missing=1
    )
    result = train(
        replace(diverging(), perturbation=noise),
        small(),
        rounds=1,
        dropout=lambda cohort: cohort[:2],
    )
    (info,) = result.history
    assert info.aborted and (info.arrived, info.refused) == (0, 1)


def test_the_warning_as_an_error_loses_no_round(tmp_path):
    """As here: pytest makes errors of warnings. It was raised before the state was kept."""
    path, journal = tmp_path / "run.pt", tmp_path / "run.jsonl"
    ledger = fp.Ledger.create(journal, adjacency="zero_out", unit="client")
    for done in (1, 2):
        with pytest.raises(EmptySum):
            train(diverging(), small(), rounds=3, ledger=ledger, checkpoint=path)
        ledger.release()
        ledger = fp.Ledger.open(journal, resume=True)
        # A header, and of every round its two lines and one of the resume.
        assert load(path, diverging().init()).round == done and ledger.place[0] == 1 + 3 * done


LIKELIHOODS = {
    "complex": (lambda p, x, y: (p.sum() * x.sum(1)).to(torch.complex64), "complex64"),
    "whole": (lambda p, x, y: (p.sum() * x.sum(1)).long(), "int64"),
    "cut": (lambda p, x, y: (p.sum() * x.sum(1)).detach(), "without a gradient"),
    "written": (
        lambda p, x, y: p.mul_(2.0).sum() * x.sum(1),
        "runs under torch.vmap; do not write to parameters",
    ),
    "written unseen": (
        lambda p, x, y: p.data.add_(1.0).sum() * p.sum() * x.sum(1),
        "not change its parameters",
    ),
    "drawn": (
        lambda p, x, y: torch.randn(len(y)) * p.sum(),
        "or draw random numbers, and use distributions of",
    ),
    "of two alone": (lambda p, x, y: p.sum() * (x.sum(1) if len(y) == 2 else x), "differentiable"),
}


@pytest.mark.parametrize("kind", [LangevinSampling, HamiltonianSampling])
@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.filterwarnings("ignore")
def test_likelihoods(name, kind):
    function, words = LIKELIHOODS[name]
    with pytest.raises(ParameterError, match=words) as told:
        sampler(Likelihood(function, 12), kind)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("model", [Writes, WritesUnseen, Complex, Cut, Empty, object])
def test_networks_as_likelihoods(model):
    with pytest.raises(ParameterError):
        sampler(classifier(model))


def test_a_network_with_too_few_outputs():
    with pytest.raises(ParameterError, match="Target 2 is out of bounds"):
        sampler(classifier(Weights))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Writes, "runs under torch.vmap; do not write to parameters"),
        (WritesUnseen, "not change its parameters"),
        (WritesToInputs, "not change its inputs"),
        (Complex, "model, criterion must be a differentiable function"),
        (Cut, "without a gradient"),
        (Branches, "do not write to parameters, branch on values"),
        (Empty, "model, criterion must be"),
        (object, "must build an nn.Module"),
    ],
)
def test_modules_of_agents(model, words):
    with pytest.raises(ParameterError, match=words) as told:
        agents(model)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "criterion",
    [
        lambda outputs, target: outputs,
        lambda outputs, target: outputs.sum().to(torch.complex64),
        lambda outputs, target: outputs.sum().long(),
        lambda outputs, target: 1 / 0,
        lambda outputs, target: None,
    ],
)
def test_criteria_of_agents(criterion):
    with pytest.raises(ParameterError, match="model, criterion must"):
        agents(criterion=criterion)


def test_targets_that_are_no_outputs():
    with pytest.raises(ParameterError, match="targets must be classes from 0 to 1"):
        agents(targets=torch.full((3, 20), 2))


# Records


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_gradients_of_short_numbers_are_clipped_in_double(kind):
    """Rounded to their own precision they were up to 1 % longer than the clip norm."""
    model, clip, worst = SoftmaxRegression(4, 3), 0.3, 0.0
    for seed in range(60):
        chance = torch.Generator().manual_seed(seed)
        point = torch.randn(1, model.dimension, generator=chance).to(kind)
        inputs = (10.0 * torch.randn(1, 1, 4, generator=chance)).to(kind)
        label, one = torch.randint(3, (1, 1), generator=chance), torch.ones(1, 1, dtype=kind)
        found = model.gradient_sums(point, inputs, label, one, clip)
        worst = max(worst, float(found.norm()) / clip)
    assert 0.99 < worst <= 1.0
    data = records((7, 5, 6))
    with pytest.raises(ParameterError, match=r"features must be torch.float32 or torch.float64"):
        replace(data, features=data.features.to(kind), test_features=data.test_features.to(kind))


@pytest.mark.parametrize("made", [torch.Tensor.to_sparse, lambda t: t.to("meta")])
def test_records_that_are_not_there(made):
    data = records((7, 5, 6))
    with pytest.raises(ParameterError, match="features must be a dense tensor of real numbers"):
        replace(data, features=made(data.features))
    inputs, targets = torch.zeros(2, 9, 4, dtype=torch.float64), torch.ones(2, 9)
    with pytest.raises(ParameterError, match="features must be a dense tensor"):
        AgentData(made(inputs), targets)
    with pytest.raises(ParameterError, match="targets must be a dense tensor"):
        AgentData(inputs, made(targets))


def test_records_of_agents_are_doubles_and_real():
    inputs, targets = torch.zeros(2, 9, 4, dtype=torch.float64), torch.ones(2, 9)
    for kind in (torch.float32, torch.int64, torch.bool, torch.float16):
        with pytest.raises(ParameterError, match="features must be of dtype float64"):
            AgentData(inputs.to(kind), targets)
    with pytest.raises(ParameterError, match="dense tensor of real numbers"):
        AgentData(inputs, targets.to(torch.complex64))
    with pytest.raises(ParameterError, match="targets must be numbers"):
        AgentData(inputs, targets.bool())
    with pytest.raises(ParameterError, match="features must be a tensor"):
        AgentData(inputs.numpy(), targets)


@pytest.mark.parametrize(
    "options",
    [
        {"participation": fp.Poisson(0.5)},
        {"participation": "often"},
        {"participation": None},
        {"solver": NOISE},
        {"solver": [NOISE, NOISE]},
    ],
)
def test_what_is_no_participation_and_no_solver(options):
    given = {"solver": CLIPPED, "penalty": 1.0} | options
    with pytest.raises(ParameterError, match=r"solver must be|participation must be"):
        FederatedSplitting(loss=LeastSquares(), records=(20, 20), dimension=2, **given)
    data = AgentData.of([(np.zeros((3, 2)), np.ones(3))] * 2)
    with pytest.raises(ParameterError, match=r"solver must be|participation must be"):
        FederatedSplitting.on(data, loss=Logistic(regularisation=0.1), **given)


# Releases


class Unreadable:
    def __array__(self, *args, **kwargs):
        raise KeyError("not for you")


ARRAYS = {
    "complex": np.full(8, 1 + 1j),
    "masked": np.ma.array(np.ones(8), mask=[True] * 8),
    "text": np.array(["1"] * 8),
    "dates": np.zeros(8, dtype="datetime64[D]"),
    "objects": np.array([None] * 8),
    "records": np.zeros(8, dtype=[("a", float)]),
    "unreadable": Unreadable(),
    "eight bits": torch.ones(8).to(torch.float8_e4m3fn),
    "none": None,
}
WHOLE = {"noise_multiplier": 4.0, "clip_norm": 1.0, "dimension": 8, "cohort": 3, "bits": 16}
GATES = {
    "Gaussian": fp.Gaussian(noise_multiplier=1.0).release,
    "its clip": NOISE.contribution,
    "Laplace": fp.Laplace(noise_multiplier=1.0).contribution,
    "Fed-SMP": fp.SparsifiedPerturbation(
        noise_multiplier=1.0, clip_norm=1.0, kept=8, dimension=8, cohort=3
    ).release,
    "Skellam": fp.Skellam(**WHOLE, rotated=False).contribution,
    "DiscreteLaplace": fp.DiscreteLaplace(noise_parameter=1.0).release,
    "RandomizedResponse": fp.RandomizedResponse(answers=2, chance=0.5).release,
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("gate", GATES)
def test_no_release_takes_what_is_no_array_of_real_numbers(gate, name):
    """The numbers behind a mask would be released, and an imaginary part lost, without a word."""
    with pytest.raises(ParameterError, match=r"must be|must contain") as told:
        GATES[gate](ARRAYS[name])
    assert "\n" not in str(told.value)


def test_numbers_of_any_kind_are_clipped():
    for made in (np.array(3.0), torch.tensor(3.0), torch.tensor(3.0, dtype=torch.bfloat16)):
        clipped = NOISE.contribution(made)
        assert 0.4999 < float(clipped) <= 0.5 and clipped.shape == ()
    whole = fp.Skellam(**WHOLE, rotated=False)
    for given in ([0] * 8, [0.0] * 8, torch.zeros(8, dtype=torch.bool), torch.zeros(8).half()):
        assert not np.asarray(whole.contribution(given)).any()
    assert len(GATES["DiscreteLaplace"](torch._neg_view(torch.zeros(8)).long())) == 8
