"""Refusals with their rules: constructors, theorems, files and the command line."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant, RdpAccountant
from fedprivacy.errors import FedPrivacyError
from fedprivacy.factors import (
    BufferedToeplitz,
    MinimumSeparation,
    Tree,
)
from fedprivacy.factors import Matrix as Dense
from fedprivacy.factors.workload import Workload, rates
from fedprivacy.papers.fa_hmc.bounds import HamiltonianProblem, vanilla_rate
from fedprivacy.papers.fa_ld.bounds import (
    LangevinProblem,
    constant_step_bound,
    decaying_step_bound,
    partial_participation_bound,
)
from fedprivacy.papers.fed_plt.law import QuadraticSplitting
from fedprivacy.sampling.clients import chances
from fedprivacy.systems.fed_plt import bounds as splitting
from fedprivacy.systems.fed_plt.proximal import Box, Group
from fedprivacy.systems.settings import axis, read, single
from fedprivacy.theory.gaussian import Normal
from fedprivacy.theory.hidden_state import hidden_state_factor, varying_steps_factor
from fedprivacy.theory.targets import GaussianTarget
from tests.cli.test_program import answer

STEP = fp.Gaussian(noise_multiplier=1.0)
CONVEX = {"strong_convexity": 1.0, "smoothness": 4.0, "penalty": 1.0}
LANGEVIN = LangevinProblem(
    dimension=2,
    strong_convexity=1.0,
    smoothness=2.0,
    smallest_weight=0.25,
    clients=4,
    start_distance=1.0,
)
HAMILTONIAN = HamiltonianProblem(
    dimension=2, strong_convexity=1.0, smoothness=2.0, weights=(0.5, 0.5)
)
STEPS = {"step_size": 0.1, "local_steps": 2, "iterations": 4}
TARGET = GaussianTarget(hessians=np.array([np.eye(2)] * 2), centres=np.zeros((2, 2)))


def state(kind=PldAccountant):
    return kind().compose(STEP.privacy_loss("zero_out")).state()


def quadratic(**changed):
    given = {
        "curvatures": (1.0,),
        "penalty": 1.0,
        "step_size": 0.1,
        "noise_scale": 1.0,
        "local_steps": 1,
        "rounds": 1,
    }
    return QuadraticSplitting(**(given | changed))


REFUSED = {
    # Accountants.
    "a loss that is none": (
        lambda: PldAccountant().compose(0.5),
        "loss must be a PrivacyLoss, got 'float'",
    ),
    "a state that is none": (
        lambda: PldAccountant().restore([1]),
        "state must be what state\\(\\) returned, version 1, got 'list'",
    ),
    "another accountant's state": (
        lambda: PldAccountant().restore(state(RdpAccountant)),
        "state must be of a 'pld' accountant",
    ),
    # Factors of correlated noise.
    "rows that are too short": (
        lambda: Dense(((1.0,), (1.0,))),
        "array must have 2 entries in row 1, up to the diagonal, got 1",
    ),
    "an entry that is not finite": (lambda: Dense(((np.inf,),)), "array must be finite"),
    "an entry that is too large": (lambda: Dense(((1e60,),)), "array must be at most 1e\\+50"),
    "a singular matrix": (
        lambda: Dense(((1.0,), (1.0, 0.0))),
        "have a diagonal above 0, since drawing noise needs the inverse.*row 1",
    ),
    "no row": (lambda: Dense(()), "array must have at least one row"),
    "more buffers than anything needs": (
        lambda: BufferedToeplitz(10**4),
        "buffers must be at most .*4 are almost optimal",
    ),
    "scales alone": (
        lambda: BufferedToeplitz(1, scales=(0.5,)),
        "scales, decays must be given together",
    ),
    "two scales for one buffer": (
        lambda: BufferedToeplitz(1, scales=(0.5, 0.5), decays=(0.5, 0.5)),
        "scales must have length buffers = 1, got 2",
    ),
    "a scale below 0": (
        lambda: BufferedToeplitz(1, scales=(-0.5,), decays=(0.5,)),
        "scales must be above 0, since sensitivities of BLT need decreasing coefficients, got -0.5",
    ),
    "a decay of 1": (
        lambda: BufferedToeplitz(1, scales=(0.5,), decays=(1.0,)),
        "decays must be below 1, got 1.0",
    ),
    "a tree that is neither": (lambda: Tree(online=1), "online must be True or False, got 1"),
    "units that are perhaps apart": (
        lambda: MinimumSeparation(2, apart=1),
        "apart must be True or False, got 1",
    ),
    "a momentum of 1": (lambda: Workload(momentum=1.0), "momentum must be below 1, got 1.0"),
    "rates of other rounds": (
        lambda: Workload(rates=(1.0, 0.5)).matrix(3),
        "rates must have length rounds = 3, got 2",
    ),
    "rates that grow": (lambda: rates(3, decay=1.5), "decay must be in \\(0, 1\\], got 1.5"),
    "a cooldown that is longer than the run": (
        lambda: rates(3, cooldown=4),
        "cooldown must be at most rounds = 3, got 4",
    ),
    # Mechanisms and schemes.
    "a clip norm that jumps": (
        lambda: fp.AdaptiveClipping(noise_multiplier=1.0, clip_norm=1.0, clip_learning_rate=11.0),
        "clip_learning_rate must be at most 10, got 11.0",
    ),
    "all of the budget for bits": (
        lambda: fp.AdaptiveClipping(noise_multiplier=1.0, clip_norm=1.0, bits_share=0.9),
        "bits_share must be from 1e-8 to 0.5, got 0.9",
    ),
    "an answer that is always true": (
        lambda: fp.RandomizedResponse(chance=1e-300, answers=2),
        "chance must give a loss of at most",
    ),
    "noise on whole numbers that is none": (
        lambda: fp.DiscreteLaplace(noise_parameter=1e4),
        "noise_parameter must be from 1e-9 to .*use Laplace outside this range",
    ),
    "too large a move": (
        lambda: fp.DiscreteLaplace(noise_parameter=1e-3, sensitivity=10**6),
        "sensitivity must be at most",
    ),
    "chances of nobody": (
        lambda: chances([]),
        "chances must have one entry per client and at least one client",
    ),
    # Theorems.
    "a contraction above 1": (lambda: hidden_state_factor(1.5, 3), "gap must be at most 1"),
    "sizes of other steps": (
        lambda: varying_steps_factor([0.5], [1.0, 1.0]),
        "sizes must have one entry per slope, 1",
    ),
    "steps that expand": (
        lambda: varying_steps_factor([1.5], [1.0]),
        "slopes must be in \\[0, 1\\]",
    ),
    "a law without coordinates": (
        lambda: Normal(mean=np.zeros(0), covariance=np.zeros((0, 0))),
        "mean must have at least one entry along its last axis",
    ),
    "a covariance that leans": (
        lambda: Normal(mean=np.zeros(2), covariance=np.array([[1.0, 0.5], [0.0, 1.0]])),
        "covariance must be symmetric",
    ),
    "a covariance that is none": (
        lambda: Normal(mean=np.zeros(2), covariance=np.diag([1.0, -1.0])),
        "covariance must be positive semidefinite",
    ),
    "a Hessian that leans": (
        lambda: GaussianTarget(
            hessians=np.array([[[1.0, 0.5], [0.0, 1.0]]]), centres=np.zeros((1, 2))
        ),
        "hessians must be symmetric",
    ),
    "a smoothness below the convexity": (
        lambda: replace(LANGEVIN, smoothness=0.5),
        "smoothness must be at least 1, got 0.5",
    ),
    "a weight that others have no room for": (
        lambda: replace(LANGEVIN, smallest_weight=0.5),
        "smallest_weight must be at most 1 / 4, got 0.5",
    ),
    "a correlation of 2": (
        lambda: constant_step_bound(LANGEVIN, **STEPS, correlation=2.0),
        "correlation must lie between 0 and 1, got 2.0",
    ),
    "a step above the theorem's": (
        lambda: constant_step_bound(LANGEVIN, **(STEPS | {"step_size": 1.0})),
        "step_size must be at most 1 / \\(2 L\\) = 0.25, got 1.0; the theorem's range",
    ),
    "more local steps than the proof covers": (
        lambda: decaying_step_bound(LANGEVIN, local_steps=100, iterations=1),
        "local_steps must be at most 24 kappa \\+ 1 = 49, got 100",
    ),
    "everybody in a bound on cohorts": (
        lambda: partial_participation_bound(LANGEVIN, **STEPS, cohort=2, averaging="full"),
        "averaging must be 'I' or 'II', got 'full'; constant_step_bound is for full devices",
    ),
    "a cohort of more than there are": (
        lambda: partial_participation_bound(LANGEVIN, **STEPS, cohort=5, averaging="II"),
        "cohort must be at most the number of clients = 4, got 5",
    ),
    "weights below 0": (
        lambda: replace(HAMILTONIAN, weights=(1.5, -0.5)),
        "weights must be above 0",
    ),
    "weights of more than everybody": (
        lambda: replace(HAMILTONIAN, weights=(0.5, 0.6)),
        "weights must sum to 1, got 1.1; divide them by their sum",
    ),
    "a Hamiltonian correlation of 2": (
        lambda: replace(HAMILTONIAN, correlation=2.0),
        "correlation must lie between 0 and 1, got 2.0",
    ),
    "a convexity above the smoothness": (
        lambda: replace(HAMILTONIAN, strong_convexity=3.0),
        "smoothness must be at least 3, got 2.0",
    ),
    "own momentum in a bound for none": (
        lambda: vanilla_rate(HAMILTONIAN, accuracy=0.1),
        "correlation must be at least 1 - C gamma / N",
    ),
    "an accuracy that every start has": (
        lambda: vanilla_rate(replace(HAMILTONIAN, correlation=1.0), accuracy=5.0),
        "accuracy must be below sqrt\\(d\\) = 1.41421, got 5.0",
    ),
    "a step of the accelerated solver": (
        lambda: splitting.local_contraction(
            **CONVEX, local_steps=2, step_size=0.1, solver="accelerated"
        ),
        "step_size must be None for the accelerated solver, got 0.1; it sets its own step size",
    ),
    "too few local steps": (
        lambda: splitting.find_parameters(
            strong_convexity=0.01,
            smoothness=10.0,
            gradient_cost=1.0,
            round_cost=1.0,
            local_steps=1,
        ),
        "local_steps must be large enough to make S stable, got 1; leave it out or increase it",
    ),
    "nobody's participation": (
        lambda: splitting.participation_rate(splitting.convergence(**CONVEX, local_steps=50), []),
        "probabilities must name at least one agent",
    ),
    "no curvature": (
        lambda: quadratic(curvatures=()),
        "curvatures must be one or more finite numbers",
    ),
    "a Renyi order of 1": (
        lambda: quadratic().renyi(1.0, 1.0, "transcript"),
        "order must be above 1, got 1.0",
    ),
    "a box inside out": (lambda: Box(1.0, 0.0), "low, high must be sorted, got \\(1.0, 0.0\\)"),
    "a coordinate of two groups": (
        lambda: Group(1.0, groups=((0, 1), (1,))),
        "groups must contain every coordinate at most once",
    ),
    # Settings of grids.
    "an axis without a value": (
        lambda: axis("rounds", []),
        "rounds must contain at least one value",
    ),
    "two values of one setting": (
        lambda: single({"rounds": [1, 2]}),
        "rounds must be one value, got \\[1, 2\\]",
    ),
    "a setting that there is not": (
        lambda: read(fp.runs.methods.fa_ld.Langevin.known(), {"warmth": "1"}),
        "setting must be one of 'rounds'.*got 'warmth'",
    ),
    "a setting that is no number": (
        lambda: read(fp.runs.methods.fa_ld.Langevin.known(), {"rounds": "many"}),
        "rounds must be an integer of at least 1, got 'many'; pass a number",
    ),
    # Attacks and replays.
    "settings of a function": (
        lambda: fp.attack(lambda *_: None, canaries=2, settings={"rounds": 2}),
        "settings must be left out.*they configure a named method",
    ),
    "a shape of noise that nobody draws": (
        lambda: fp.verify(lambda values, generator: values, shape="square", adjacency="zero_out"),
        "shape must be one of .*got 'square'",
    ),
    "a page that is no page": (
        lambda: fp.report(fp.audit(STEP, claim=(9.0, 1e-5), adjacency="zero_out"), "page.doc"),
        "path must end in .*got 'page.doc'",
    ),
    "a page of nothing": (
        lambda: fp.report({}, "page.html"),
        "audit must contain at least one audit",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_told_why(what):
    call, words = REFUSED[what]
    with pytest.raises(FedPrivacyError, match=words):
        call()


ROUND = {"round": 0, "noise_multiplier": 1.0, "sampling_probability": 0.1}
TABLES = {
    "a JSON line among commas": (
        f"round,noise_multiplier\n0,1.0\n{json.dumps(ROUND)}\n",
        "line 3.*a JSON object in a table",
    ),
    "a cell too many": (
        "round,noise_multiplier\n0,1.0,2.0\n",
        "line 2.*3 cells in a table of 2 columns",
    ),
    "a column that is not read": (
        "round,noise_multiplier,noise\n0,1.0,2.0\n",
        "line 1.*these are read, once each",
    ),
    "rounds that run backwards": (
        "round,noise_multiplier\n1,1.0\n0,1.0\n",
        "line 3.*round 0 follows round 1; numbers must rise",
    ),
    "a quote that does not end": (
        'round,noise_multiplier\n0,"1.0\n',
        "line 2.*not a line of a table",
    ),
    "no round": ("round,noise_multiplier\n", "no round was recorded"),
}


@pytest.mark.parametrize("what", TABLES)
def test_a_table_that_is_none_is_refused_by_its_line(what, tmp_path):
    text, words = TABLES[what]
    path = tmp_path / "rounds.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FedPrivacyError, match=words):
        fp.audit(path, claim=(1.0, 1e-5), adjacency="zero_out")


def test_gaps_of_a_table_are_told_up_to_ten(tmp_path):
    path = tmp_path / "rounds.csv"
    rows = "".join(f"{3 * i + 2},1.0,0.1\n" for i in range(20))
    path.write_text("round,noise_multiplier,sampling_probability\n" + rows, encoding="utf-8")
    found = fp.audit(path, claim=(50.0, 1e-5), adjacency="zero_out", sampling="poisson")
    told = " ".join(found.reasons) + json.dumps(found.to_dict())
    assert "the first round recorded is 2" in told and "round 5 follows round 2" in told
    assert len(set(re.findall(r"round \d+ follows round \d+", told))) == 9


FACTS = ["--delta", "1e-5", "--adjacency", "zero_out"]
COMMANDS = {
    "what is solved for": (
        ["calibrate", "--noise-multiplier", "1", "--rounds", "3", "--epsilon", "1", *FACTS],
        "be left out",
    ),
    "a grid without noise": (
        ["pareto", *FACTS, "--rounds", "3"],
        "or a grid, for example with --noise-multiplier",
    ),
    "settings without a method": (
        ["pareto", *FACTS, "--set", "rounds=3"],
        "be given with --method",
    ),
    "a setting without a value": (
        ["pareto", "--method", "fa-ld", "--set", "rounds", *FACTS],
        "be NAME=VALUE",
    ),
    "an audit of nothing": (["audit"], "or pass --noise-multiplier and --sampling instead"),
    "an audit of rounds that are drawn somehow": (
        ["audit", "--noise-multiplier", "1", "--rounds", "3"],
        "--sampling must be given",
    ),
    "a claim told twice": (
        ["audit", "run.ledger", "--claim", "1,1e-5", "--claim-epsilon", "1"],
        "be given without --claim-epsilon and --claim-delta",
    ),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_the_command_line_refuses_in_one_line(what, capsys):
    arguments, words = COMMANDS[what]
    code, out, err = answer(capsys, *arguments)
    assert code == 2 and not out
    assert words in " ".join(err.split())
