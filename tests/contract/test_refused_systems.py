"""Refusals of the loops, laws and bounds of the systems, as whole messages."""

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.papers.averaging import bounds as two_sided
from fedprivacy.papers.fa_hmc import bounds as hmc
from fedprivacy.papers.fa_ld import bounds as ld
from fedprivacy.papers.fed_smp import bounds as smp
from fedprivacy.papers.fed_smp import moments
from fedprivacy.systems.averaging.upload import pack, unpack, upload_size
from fedprivacy.systems.fa_hmc import law as hmc_law
from fedprivacy.systems.fa_ld import law as ld_law
from fedprivacy.systems.fed_plt.proximal import L1, L2, Box
from fedprivacy.theory.gaussian import Normal
from fedprivacy.theory.targets import GaussianTarget
from fedprivacy.training import AgentData, FederatedSplitting, LeastSquares, LocalSolver, Logistic
from tests.contract.test_refused_calls import fits

LOGISTIC = Logistic(regularisation=0.5, feature_bound=1.0)
NOISY = LocalSolver(method="noisy", noise_scale=1.0, steps=2, step_size=0.5)
AGENTS = AgentData.of([(np.eye(3), np.array([1.0, -1.0, 1.0]))] * 2)


def plt(**changed):
    given = {"loss": LOGISTIC, "records": (3, 3), "dimension": 3, "penalty": 1.0, "seed": 0}
    return FederatedSplitting(**{**given, "solver": LocalSolver(steps=2), **changed})


def plt_round(own=AGENTS, state=None, book=None, **changed):
    loop = plt(**changed)
    return loop.step(state or loop.init(), own, **(book or {}))


def other_state(models, auxiliary):
    return training.SplittingState(0, torch.zeros(models).double(), torch.zeros(auxiliary).double())


class Flat(training.AgentLoss):
    """A loss of a user's own without a Hessian."""

    def dimension(self, data):
        return 3

    def gradient(self, points, data, clip_norm=None):
        return points


def linear():
    return nn.Linear(3, 2)


def module(**changed):
    return training.ModuleLoss(**{"model": linear, **changed})


def in_place(inputs):
    return inputs.mul_(2.0)


class Scribbler(nn.Linear):
    def forward(self, inputs):
        return super().forward(in_place(inputs))


class Books:
    """What a ledger or a budget says of itself."""

    intent = done = allows = charge = spend = spent = released = ended = confirm = None
    seeded = states = way_out = None

    def __init__(self, **facts):
        self.seed_policy = "fixed"
        self.adjacency, self.unit = facts.get("adjacency"), facts.get("unit")


TARGET = GaussianTarget(hessians=np.array([np.eye(2), 2 * np.eye(2)]), centres=np.eye(2))
CHAIN = {"target": TARGET, "step_size": 0.3}
START = Normal(mean=np.zeros(2), covariance=np.eye(2))
PROBLEM = {"dimension": 4, "strong_convexity": 1.0, "smoothness": 2.0}
HMC = hmc.HamiltonianProblem(**PROBLEM, weights=(0.5, 0.5))
LD = ld.LangevinProblem(**PROBLEM, smallest_weight=0.25, clients=4, start_distance=1.0)


def hamilton(**changed):
    return hmc_law.HamiltonianChain(**{**CHAIN, **changed})


def langevin(**changed):
    return ld_law.LangevinChain(**{**CHAIN, **changed})


def debiased(**changed):
    target = training.GaussianPosterior(target=TARGET, sensitivity=1.0)
    return training.DebiasedSampling(**{"target": target, "step_size": 0.3, "seed": 0, **changed})


def decayed(**changed):
    steps = ld_law.DecayingSteps(strong_convexity=1.0, smoothness=2.0)
    return langevin(step_size=steps, **changed)


TWO_SIDED = {
    "clients": 10,
    "local_steps": 4,
    "rounds": 100,
    "smoothness": 1.0,
    "gap": 1.0,
    "gradient_variance": 1.0,
    "heterogeneity": 1.0,
    "learning_rate": 0.01,
    "server_learning_rate": 1.0,
}
SMP = smp.SmpSetting(
    kept=9,
    dimension=10,
    cohort=5,
    local_steps=2,
    smoothness=1.0,
    gradient_variance=1.0,
    dissimilarity=1.0,
    heterogeneity=1.0,
    step_size=1e-3,
    noise_multiplier=1.0,
    clip_norm=1.0,
)

CALLS = {
    # Fed-PLT's loop
    "a solver by its name": (
        lambda: plt(solver="newton"),
        "solver must be a LocalSolver, or one per agent, got 'newton'",
    ),
    "a solver that is none": (
        lambda: plt(solver=3),
        "solver must be a LocalSolver, or one per agent, got 3",
    ),
    "solvers of other agents": (
        lambda: plt(solver=[LocalSolver(steps=2)] * 3),
        "solver must be one, or one per agent, 2 in all, got 3",
    ),
    "noise for one agent": (
        lambda: plt(solver=[NOISY, LocalSolver(steps=2)]),
        "solver must be noisy for all agents or for none, got 'noisy for some agents'; the "
        "records of agents without noise are not protected",
    ),
    "clip norms of two sizes": (
        lambda: plt(solver=[replace(NOISY, clip_norm=1.0), replace(NOISY, clip_norm=2.0)]),
        "solver.clip_norm must be the same for all agents, got 'several'",
    ),
    "Newton's method without a Hessian": (
        lambda: plt(loss=Flat(), solver=LocalSolver(method="newton", steps=1)),
        "solver.method must not be newton for a loss without a hessian, got 'newton'; Logistic "
        "and LeastSquares have one",
    ),
    "a Hessian of a loss without": (
        lambda: Flat().hessian(torch.zeros(2, 3), AGENTS),
        "loss must have a hessian, got 'Flat'; use another solver",
    ),
    "agents of another number of draws": (
        lambda: plt(participation=fp.FixedSize(1, population=3)),
        "participation must draw from 2 agents, got FixedSize(size=1, population=3)",
    ),
    "agents drawn by a scheme": (
        lambda: plt(participation=fp.Poisson(0.5)),
        "participation must be FixedSize or probabilities, got Poisson(probability=0.5); "
        "pass p for Poisson(p); no other scheme is supported",
    ),
    "agents drawn by a word": (
        lambda: plt(participation="half"),
        "participation must be FixedSize or probabilities, got 'half'; ...",
    ),
    "a chance for one agent of two": (
        lambda: plt(participation=[0.5]),
        "participation must be one, or one per agent, 2 in all, got 1",
    ),
    "a model of no length": (
        lambda: plt(dimension=0),
        "dimension must be an integer of at least 1, got 0",
    ),
    "no run": (lambda: plt(runs=0), "runs must be an integer of at least 1, got 0"),
    "a state of other models": (
        lambda: plt_round(state=other_state((2, 4), (2, 3))),
        "state.models must have shape (2, 3), got (2, 4)",
    ),
    "a state of other variables": (
        lambda: plt_round(state=other_state((2, 3), (3, 3))),
        "state.auxiliary must have shape (2, 3), got (3, 3)",
    ),
    "records in pairs": (
        lambda: plt_round([(np.eye(3), np.ones(3))]),
        "data must be AgentData, got 'list'; AgentData.of([(A, b), ...])",
    ),
    "other records than were declared": (
        lambda: plt_round(records=(3, 4)),
        "data.records must be the declared numbers, (3, 4), got (3, 3)",
    ),
    "records of another length": (
        lambda: plt_round(dimension=2),
        "data must have dimension 2, got 3",
    ),
    "records of other runs": (
        lambda: plt_round(AgentData(torch.zeros(3, 2, 3, 3).double(), torch.ones(3, 2, 3)), runs=2),
        "data.runs must be 2 or None, got 3",
    ),
    "a ledger for a batch of runs": (
        lambda: plt_round(book={"ledger": Books()}, runs=2, solver=NOISY),
        "ledger must be None for a batch of runs, got '2 runs'; leave out runs for a private run",
    ),
    "a budget for a batch of runs": (
        lambda: plt_round(book={"budget": Books()}, runs=2, solver=NOISY),
        "budget must be None for a batch of runs, got '2 runs'; leave out runs for a private run",
    ),
    "a budget about one record more": (
        lambda: plt_round(book={"budget": Books(adjacency="add_remove")}, solver=NOISY),
        "budget.adjacency must not be add_remove, since an agent divides by its number of "
        "records, got 'add_remove'; use replace_one",
    ),
    "a ledger about clients": (
        lambda: plt_round(book={"ledger": Books(unit=fp.Unit.CLIENT)}, solver=NOISY),
        "ledger.unit must be 'record', got 'client'",
    ),
    # its agents
    "inputs in single precision": (
        lambda: AgentData(torch.zeros(1, 2, 3), torch.ones(1, 2)),
        "features must be of dtype float64, got 'torch.float32'; use .double()",
    ),
    "inputs of numpy": (
        lambda: AgentData(np.zeros((1, 2, 3)), torch.ones(1, 2)),
        "features must be a tensor, got 'ndarray'; AgentData.of converts arrays",
    ),
    "targets that are true or false": (
        lambda: AgentData(torch.zeros(1, 2, 3).double(), torch.ones(1, 2).bool()),
        "targets must be numbers, got 'bool'; use .long(), or -1.0 and 1.0",
    ),
    "targets of one axis": (
        lambda: AgentData(torch.zeros(2, 3).double(), torch.ones(2)),
        "features, targets must have shapes (runs, agents, records, ...) and (runs, agents, "
        "records), or the same without runs, got ((2, 3), (2,))",
    ),
    "records of nobody": (
        lambda: AgentData(torch.zeros(0, 2, 3).double(), torch.ones(0, 2)),
        "agents must be at least 1, got 0; pass the records of at least one agent",
    ),
    "sizes of other agents": (
        lambda: AgentData(torch.zeros(1, 2, 3).double(), torch.ones(1, 2), sizes=(2, 2)),
        "sizes must have one entry per agent, 1 in all, got (2, 2)",
    ),
    "more records than were passed": (
        lambda: AgentData(torch.zeros(1, 2, 3).double(), torch.ones(1, 2), sizes=(3,)),
        "sizes[0] must be at most the 2 records passed, got 3",
    ),
    "a target that is infinite": (
        lambda: AgentData(torch.zeros(1, 2, 3).double(), torch.full((1, 2), torch.inf)),
        "targets must be finite, got 'entries that are not finite'",
    ),
    "an input too few": (
        lambda: AgentData.of([(np.zeros((2, 3)), np.ones(3))]),
        "agents[0] must contain equal numbers of features and targets, at least one, got (2, "
        "3); leave out agents without data",
    ),
    "inputs that are images": (
        lambda: LeastSquares().dimension(
            AgentData(torch.zeros(1, 2, 3, 4).double(), torch.ones(1, 2))
        ),
        "features must contain one vector per record, got (1, 2, 3, 4)",
    ),
    "classes from 0": (
        lambda: Logistic().dimension(AgentData.of([(np.eye(2), np.array([0, 1]))])),
        "targets must be -1 or 1, got 'other values'; map the two classes to -1 and 1",
    ),
    "a bound of 0 on inputs": (
        lambda: Logistic(feature_bound=0.0),
        "feature_bound must be a finite number above 0, got 0.0",
    ),
    "a class beyond the outputs": (
        lambda: module().dimension(AgentData.of([(np.eye(3), np.array([0, 1, 2]))])),
        "targets must be classes from 0 to 1, as many as outputs, got 'others'",
    ),
    "a criterion of each output": (
        lambda: module(criterion=lambda out, target: out).dimension(AGENTS),
        "model, criterion must return shape () for a record, real numbers that torch can "
        "differentiate, got 'torch.float64 of shape (1, 2)'; sum over the columns of a record...",
    ),
    "a module that writes to its inputs": (
        lambda: module(model=lambda: Scribbler(3, 2)).dimension(
            AgentData.of([(np.eye(3), np.array([0, 1, 1]))])
        ),
        "model must not change its inputs, got 'other inputs'; work on a clone",
    ),
    "an agent's module that is none": (
        lambda: module(model=lambda: 3).flat,
        "model must build an nn.Module, got 'int'",
    ),
    # its solvers
    "batches without a size": (
        lambda: LocalSolver(method="stochastic"),
        "batch_size must be given, got None; it is a parameter of the stochastic solver",
    ),
    "a batch of all records": (
        lambda: LocalSolver(batch_size=4),
        "batch_size must be None for the gradient solver, got 4; it is a parameter of the "
        "stochastic solver",
    ),
    "clipping without noise": (
        lambda: LocalSolver(clip_norm=1.0),
        "clip_norm must be None for the gradient solver, got 1.0",
    ),
    "a step of Newton's": (
        lambda: LocalSolver(method="newton", step_size=0.1),
        "step_size must be None for the newton solver, got 0.1",
    ),
    "a method that is none": (
        lambda: LocalSolver(method="magic"),
        "method must be one of 'gradient', 'accelerated', ... or 'noisy', got 'magic'",
    ),
    "no number of steps": (
        lambda: LocalSolver().settled(None, 1.0, None),
        "steps must be given if the curvature of the loss is unknown, got None",
    ),
    "acceleration in the dark": (
        lambda: LocalSolver(method="accelerated", steps=2).settled(None, 1.0, None),
        "method must not be accelerated if the curvature of the loss is unknown, got ...",
    ),
    "no size of steps": (
        lambda: LocalSolver(steps=2).settled(None, 1.0, None),
        "step_size must be given if the curvature of the loss is unknown, got None",
    ),
    "a step at the edge": (
        lambda: LocalSolver(steps=2, step_size=0.5).settled((1.0, 3.0), 1.0, None),
        "step_size must lie in (0, 0.5) = (0, 2 / (smoothness + 1 / penalty)), got 0.5; "
        "larger steps do not contract",
    ),
    # its regularisers
    "a weight below 0 of squares": (
        lambda: L2(-1.0),
        "weight must be a finite number of at least 0, got -1.0",
    ),
    "a weight of absolute values that is none": (
        lambda: L1(math.nan),
        "weight must be a finite number of at least 0, got nan; NaN is never accepted",
    ),
    "a box of nothing": (
        lambda: Box(math.nan, 1.0),
        "low, high must be sorted, got (nan, 1.0)",
    ),
    # FA-HMC's laws
    "an unstable leapfrog": (
        lambda: hmc_law.leapfrog(np.array([4.0]), 1.0, 3),
        "step_size must be below 2 / sqrt(L) = 1, got 1.0; leapfrog is unstable otherwise",
    ),
    "a chain that is unstable late": (
        lambda: hamilton(step_size=hmc_law.DynamicSteps(stages=((0.1, 3), (1.5, 1)))),
        "step_size must be below 2 / sqrt(L) = 1.41421, got 1.5; leapfrog is unstable otherwise",
    ),
    "no leapfrog": (
        lambda: hamilton(leapfrog_steps=0),
        "leapfrog_steps must be an integer of at least 1, got 0",
    ),
    "noise below 0": (
        lambda: hamilton(gradient_std=-1.0),
        "gradient_std must be a finite number of at least 0, got -1.0",
    ),
    "cohorts of de-biased chains": (
        lambda: hmc_law.DebiasedLaws(chain=hamilton(averaging="I", cohort=1)),
        "averaging must be 'full', got ...",
    ),
    "noisy gradients of de-biased chains": (
        lambda: hmc_law.DebiasedLaws(chain=hamilton(gradient_std=1.0)),
        "gradient_std must be 0 for these laws, got 1.0",
    ),
    "rounds before the first": (
        lambda: hmc_law.DebiasedLaws(chain=hamilton()).law(START, -1),
        "rounds must be an integer of at least 0, got -1",
    ),
    "where changing steps lead to": (
        lambda: hmc_law.DebiasedLaws(
            chain=hamilton(step_size=hmc_law.DynamicSteps(stages=((0.3, 1), (0.2, 1))))
        ).stationary(),
        "step_size must be constant, got DynamicSteps(...",
    ),
    "an upload of nobody's": (
        lambda: hmc_law.upload_gdp(hamilton(), client=2, difference=1.0),
        "client must be from 0 to 1, got 2",
    ),
    "an upload of whom is counted from the end": (
        lambda: hmc_law.upload_gdp(hamilton(), client=-1, difference=1.0),
        "client must be from 0 to 1, got -1",
    ),
    "a difference below 0": (
        lambda: hmc_law.upload_gdp(hamilton(), client=0, difference=-1.0),
        "difference must be a finite number of at least 0, got -1.0",
    ),
    "a transcript of changing steps": (
        lambda: hmc_law.transcript_gdp(
            hamilton(step_size=hmc_law.DynamicSteps(stages=((0.3, 1),))),
            client=0,
            difference=1.0,
            rounds=2,
        ),
        "step_size must be constant, got DynamicSteps(...; add the squares of upload_gdp",
    ),
    # its bounds
    "steps in no stage": (
        lambda: hmc_law.DynamicSteps(stages=()),
        "stages must contain at least one pair (step size, iterations), got ()",
    ),
    "a stage of no iteration": (
        lambda: hmc_law.DynamicSteps(stages=((0.1, 0),)),
        "iterations must be an integer of at least 1, got 0",
    ),
    "an iteration before the first": (
        lambda: hmc_law.DynamicSteps(stages=((0.1, 1),)).at(-1),
        "iteration must be an integer of at least 0, got -1",
    ),
    "no weight": (lambda: replace(HMC, weights=()), "weights must be above 0, got ()"),
    "a weight of nothing": (
        lambda: replace(HMC, weights=(1.0, 0.0)),
        "weights must be above 0, got (1.0, 0.0)",
    ),
    "weights of half": (
        lambda: replace(HMC, weights=(0.25, 0.25)),
        "weights must sum to 1, got 0.5; divide them by their sum",
    ),
    "a step beyond the theorem": (
        lambda: hmc.convergence_rate(
            HMC, step_size=0.8, iterations=2, start=1.0, gradient_bound=1.0
        ),
        "step_size must be at most 1 / (K sqrt(L)) = 0.707107, got 0.8",
    ),
    "an accuracy that all have": (
        lambda: hmc.iteration_rate(HMC, accuracy=2.0),
        "accuracy must be below sqrt(d) = 2, got 2.0",
    ),
    "an accuracy that all have, ideally": (
        lambda: hmc.ideal_lower_rate(dimension=4, iterations=1, accuracy=2.5),
        "accuracy must be below sqrt(d) = 2, got 2.5",
    ),
    "too much noise for the plain rate": (
        lambda: hmc.vanilla_rate(
            replace(HMC, correlation=1.0, gradient_std=1.0), accuracy=0.5, constant=1.0
        ),
        "gradient_std must be at most sqrt(C K gamma) = 0.5, got 1.0",
    ),
    "a first step beyond the theorem": (
        lambda: hmc.dynamic_step_sizes(HMC, start=1e3, accuracy=0.1, stages=2),
        "step_size must be at most 1 / (K sqrt(L)) = 0.707107, got ...",
    ),
    "no stage": (
        lambda: hmc.dynamic_step_sizes(HMC, start=1.0, accuracy=0.1, stages=0),
        "stages must be an integer of at least 1, got 0",
    ),
    # its loop
    "de-biased cohorts": (
        lambda: debiased(averaging="I", cohort=1),
        "averaging must be 'full', got 'I'; the gradients of all clients are needed",
    ),
    "a de-biased jump": (
        lambda: debiased(exact_jump=True),
        "exact_jump must be False, got True; the law of a round depends on the previous round",
    ),
    "one law of a de-biased chain": (
        lambda: debiased().exact,
        "exact must be computed with exact_laws, got 'a chain'; it needs the positions of "
        "two rounds",
    ),
    "a state that remembers nothing": (
        lambda: debiased().step(training.ChainState(0, torch.zeros(1, 2), torch.zeros(1, 0, 2))),
        "state must be a DebiasedState, got 'ChainState'; start with init()",
    ),
    "clients that do not answer": (
        lambda: debiased().step(debiased().init(), dropout=len),
        "dropout must be None, got <built-in function len>; the gradients of all clients are "
        "needed",
    ),
    # FA-LD's laws
    "batches of the law's gradients": (
        lambda: ld_law.upload_gdp(
            langevin(gradient_covariance=np.array([np.eye(2)] * 2)), client=0, difference=1.0
        ),
        "gradient_covariance must be None, got 'given'; random batches are not Gaussian; "
        "account them",
    ),
    "an upload of a stranger's": (
        lambda: ld_law.upload_gdp(langevin(), client=2, difference=1.0),
        "client must be from 0 to 1, got 2",
    ),
    "the last iterate of cohorts": (
        lambda: ld_law.final_gdp(
            langevin(averaging="I", cohort=1), START, client=0, difference=np.ones(2), rounds=2
        ),
        "chain must be homogeneous with full averaging, got ...",
    ),
    "the last iterate of changing steps": (
        lambda: ld_law.final_gdp(decayed(), START, client=0, difference=np.ones(2), rounds=2),
        "chain must be homogeneous with full averaging, got ...",
    ),
    "a batch of more than all": (
        lambda: ld_law.batch_noise(np.zeros((3, 2)), 4, 0.5),
        "batch must be at most the number of records = 3, got 4",
    ),
    "a batch of nobody's weight": (
        lambda: ld_law.batch_noise(np.zeros((3, 2)), 2, 0.0),
        "weight must be a probability in (0, 1], got 0.0",
    ),
    # its bounds
    "steps that fall for a rounder target": (
        lambda: ld_law.DecayingSteps(strong_convexity=2.0, smoothness=1.0),
        "smoothness must be at least 2, got 1.0",
    ),
    "a weight of more than its share": (
        lambda: replace(LD, smallest_weight=0.5),
        "smallest_weight must be at most 1 / 4, got 0.5",
    ),
    "a step beyond half a curvature": (
        lambda: ld.constant_step_bound(LD, step_size=0.3, local_steps=1, iterations=1),
        "step_size must be at most 1 / (2 L) = 0.25, got 0.3; the theorem's range",
    ),
    "more local steps than the proof has": (
        lambda: ld.decaying_step_bound(LD, local_steps=50, iterations=1),
        "local_steps must be at most 24 kappa + 1 = 49, got 50",
    ),
    "everybody in a bound for cohorts": (
        lambda: partial(averaging="full"),
        "averaging must be 'I' or 'II', got 'full'; constant_step_bound is for full devices",
    ),
    "a cohort of more than all": (
        lambda: partial(averaging="II", cohort=5),
        "cohort must be at most the number of clients = 4, got 5",
    ),
    # averaging's bounds
    "a cohort of everyone": (
        lambda: two_sided.two_sided_bound(**TWO_SIDED, cohort=3),
        "cohort must be left out, got 3; all clients take part",
    ),
    "a cohort beyond the clients": (
        lambda: two_sided.two_sided_bound(
            **TWO_SIDED, cohort=11, participation="without_replacement"
        ),
        "cohort must be at most clients = 10, got 11",
    ),
    "a long local way": (
        lambda: two_sided.two_sided_bound(**{**TWO_SIDED, "learning_rate": 0.04}),
        "learning_rate * smoothness * local_steps must be at most 1/8, got 0.16",
    ),
    "a long way of the server": (
        lambda: two_sided.two_sided_bound(**{**TWO_SIDED, "server_learning_rate": 13.0}),
        "server_learning_rate * learning_rate * smoothness * local_steps must be at most 0.5, got "
        "0.52; take a smaller server_learning_rate",
    ),
    "no room for the constant": (
        lambda: two_sided.two_sided_bound(
            **{**TWO_SIDED, "learning_rate": 0.03, "server_learning_rate": 5.0},
            participation="with_replacement",
            cohort=1,
        ),
        "c must be above 0, got -...; use smaller step sizes or a larger cohort",
    ),
    "noise in no dimension": (
        lambda: two_sided.two_sided_bound(**TWO_SIDED, noise_std=1.0),
        "dimension must be an integer of at least 1, got None; pass a number",
    ),
    "one draw under the printed condition": (
        lambda: two_sided.rounds_needed(
            clients=10, local_steps=1, participation="with_replacement", cohort=1, as_printed=True
        ),
        "cohort must be above 1, got 1; the printed condition excludes it",
    ),
    # Fed-SMP's bound and moments
    "a sparsifier of no name": (
        lambda: replace(SMP, sparsifier="best_k"),
        "sparsifier must be one of 'rand_k' or 'top_k', got 'best_k'",
    ),
    "more kept than there are": (
        lambda: replace(SMP, kept=11),
        "kept must be at most dimension = 10, got 11",
    ),
    "clients more alike than equal": (
        lambda: replace(SMP, dissimilarity=0.5),
        "dissimilarity must be at least 1, got 0.5; the paper's Assumption 3",
    ),
    "a gamma of a half": (
        lambda: smp.fed_smp_bound(replace(SMP, sparsifier="top_k", gamma=0.5)),
        "gamma must lie strictly between 0 and 1/2, got 0.5",
    ),
    "too few of the largest": (
        lambda: smp.fed_smp_bound(replace(SMP, sparsifier="top_k", kept=6)),
        "kept must be at least 7, got 6; Theorem 2 needs this",
    ),
    "a step beyond Theorem 2": (
        lambda: smp.fed_smp_bound(replace(SMP, step_size=1.0)),
        "step_size must be at most ..., got 1.0; the theorem's condition",
    ),
    "a clip norm that clips": (
        lambda: smp.fed_smp_bound(replace(SMP, update_norm=9.9)),
        "clip_norm must be at least 11, got 1.0; otherwise updates may be clipped",
    ),
    "two norms to choose k by": (
        lambda: smp.preferred_kept(replace(SMP, update_norm=0.5)),
        "clip_norm must be given if and only if update_norm is left out, got 1.0",
    ),
    "no norm to choose k by": (
        lambda: smp.preferred_kept(replace(SMP, clip_norm=None)),
        "clip_norm must be given if and only if update_norm is left out, got None",
    ),
    "an order of 1": (
        lambda: moments.converted_epsilon(order=1.0, divergence=1.0, delta=1e-5),
        "order must be above 1, got 1.0; the divergence of order 1 implies no epsilon",
    ),
    "an order that Lemma 3 has not": (
        lambda: moments.lemma_3_divergence(order=1, sampling_probability=0.1, noise_multiplier=1.0),
        "order must be an integer from 2 to 10000, got 1",
    ),
    "more than every client": (
        lambda: moments.lemma_3_divergence(order=2, sampling_probability=1.5, noise_multiplier=1.0),
        "sampling_probability must be at most 1, got 1.5",
    ),
    # uploads
    "numbers in a table": (
        lambda: pack(torch.zeros(2, 2), round=0),
        "values must have one number per kept coordinate, got (2, 2)",
    ),
    "numbers without their places": (
        lambda: pack(torch.zeros(2), round=0, mask=torch.zeros(3)),
        "values must have one number per kept coordinate, got (2,)",
    ),
    "an upload before the first round": (
        lambda: pack(torch.zeros(2), round=-1),
        "round must be an integer of at least 0, got -1",
    ),
    "an upload that was cut": (
        lambda: unpack(pack(torch.zeros(2), round=0)[:-1], round=0, kept=2),
        f"upload must be {upload_size(2)} bytes long, got {upload_size(2) - 1}; leave it out",
    ),
    "an upload of somebody else's": (
        lambda: unpack(b"x" * upload_size(2), round=0, kept=2),
        "upload must start with b'fpu1' and contain 2 numbers, got b'xxxx'",
    ),
    "an upload of another round": (
        lambda: unpack(pack(torch.zeros(2), round=4), round=5, kept=2),
        "upload.round must be 5, the current round, got 4; leave it out",
    ),
    "an upload of another mask": (
        lambda: unpack(
            pack(torch.zeros(2), round=0, mask=torch.tensor([0, 1])),
            round=0,
            kept=2,
            mask=torch.tensor([0, 2]),
        ),
        "upload.mask must match the mask of the round, got ...; leave it out",
    ),
    "an upload of what is no number": (
        lambda: unpack(pack(torch.tensor([0.0, torch.nan]), round=0), round=0, kept=2),
        "upload must be finite, got 'a non-finite number'; leave it out",
    ),
}


def partial(**changed):
    given = {"step_size": 0.1, "local_steps": 2, "iterations": 4, "cohort": 2}
    return ld.partial_participation_bound(LD, **{**given, **changed})


@pytest.mark.parametrize("what", CALLS)
def test_what_a_system_refuses_says_all_four(what):
    call, wanted = CALLS[what]
    with pytest.raises(fp.ParameterError) as caught:
        call()
    assert fits(str(caught.value), wanted), str(caught.value)


# ---- SCAFFOLD, and averaging as a whole


def settings(**changed):
    given = {
        "model": training.logistic(3, 2),
        "scheme": fp.Poisson(0.5),
        "local_steps": 2,
        "perturbation": fp.Gaussian(noise_multiplier=1.0, unit="client"),
        "expected_cohort": 4,
    }
    return {**given, **changed}


SCAFFOLDS = {
    "passes over the records": (
        {"local_steps": None, "local_epochs": 1},
        "local_steps must be given, since different numbers of steps would change c by more "
        "than the account allows, got None; leave out local_epochs",
    ),
    "momentum": ({"momentum": 0.5}, "momentum must be 0.0 in SCAFFOLD, got 0.5"),
    "a pull to the start": ({"proximal": 0.1}, "proximal must be 0.0 in SCAFFOLD, got 0.1"),
    "somebody twice": (
        {"scheme": fp.WithReplacement(2, population=4), "perturbation": None},
        "scheme must draw no client twice in SCAFFOLD, got ...; use FixedSize",
    ),
    "noise of another law": (
        {"perturbation": fp.AdaptiveClipping(noise_multiplier=1.0, unit="client")},
        "perturbation must be Gaussian or None in SCAFFOLD, got 'AdaptiveClipping'",
    ),
}


@pytest.mark.parametrize("what", SCAFFOLDS)
def test_what_scaffold_refuses(what):
    changed, wanted = SCAFFOLDS[what]
    with pytest.raises(fp.ParameterError) as caught:
        training.Scaffold(**settings(**changed))
    assert fits(str(caught.value), wanted), str(caught.value)


def test_scaffold_has_no_theorem_for_draws_that_depend_on_each_other():
    with pytest.raises(fp.UnsupportedCombination, match="SCAFFOLD with FixedSize: clients store"):
        training.Scaffold(**settings(scheme=fp.FixedSize(2, population=4)))
    own = training.FederatedData(
        features=torch.zeros(8, 3),
        labels=torch.arange(8) % 2,
        clients=tuple(np.arange(8).reshape(4, 2)),
    )
    loop = training.Scaffold(**settings())
    with pytest.raises(
        fp.ParameterError, match="adjacency must not be add_remove, since c changes by a"
    ):
        loop.step(loop.init(), own, budget=fp.Budget(epsilon=9, delta=0.1, adjacency="add_remove"))


AVERAGES = {
    "noise on records": (
        {"perturbation": fp.Gaussian(noise_multiplier=1.0, unit="record")},
        "perturbation.unit must be 'client', got ...; pass unit='client'",
    ),
    "noise of a name": (
        {"perturbation": "gaussian"},
        "perturbation must be a Perturbation, such as Gaussian, or None, got 'str'",
    ),
    "a clip norm beyond single precision": (
        {"perturbation": fp.Gaussian(noise_multiplier=1.0, clip_norm=1e20, unit="client")},
        "clip_norm must be between 1e-15 and 1e15, for single precision, got 1e+20",
    ),
    "noise below single precision": (
        {"perturbation": fp.Gaussian(noise_multiplier=1e-20, unit="client")},
        "noise_multiplier must be between 1e-15 and 1e15, for single precision, got 1e-20",
    ),
    "a server's momentum of 1": (
        {"server_momentum": 1.0},
        "server_momentum must be in [0, 1), got 1.0",
    ),
    "no process": ({"processes": 0}, "processes must be an integer of at least 1, got 0"),
}


@pytest.mark.parametrize("what", AVERAGES)
def test_what_averaging_refuses(what):
    changed, wanted = AVERAGES[what]
    with pytest.raises(fp.ParameterError) as caught:
        training.FederatedAveraging(**settings(**changed))
    assert fits(str(caught.value), wanted), str(caught.value)


def test_nothing_is_evaluated_without_a_test_set():
    loop = training.FederatedAveraging(**settings(seed=0))
    own = training.FederatedData(
        features=torch.zeros(2, 3), labels=torch.tensor([0, 1]), clients=([0], [1])
    )
    with pytest.raises(fp.ParameterError) as caught:
        loop.evaluate(loop.init(), own)
    told = "test_features must be given to evaluate a model, got 'none'; reserve test records"
    assert str(caught.value) == told
    with pytest.raises(fp.ParameterError, match=r"state must be a State, got 'NoneType'"):
        loop.evaluate(None, own)
    with pytest.raises(fp.ParameterError, match="data must be FederatedData or LazyData"):
        loop.evaluate(loop.init(), None)
    other = training.State(0, torch.zeros(7), None)
    with pytest.raises(fp.ParameterError, match=r"state.parameters must have shape"):
        loop.evaluate(other, own)
