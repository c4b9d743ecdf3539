"""Samplers: their draws have the exact law, their ledgers their rounds; bad input is refused."""

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from scipy.stats import chi2

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted, ParameterError, UnsupportedCombination
from fedprivacy.evidence.repricing import run_of
from fedprivacy.systems.fa_hmc.law import DynamicSteps
from fedprivacy.systems.fa_hmc.law import transcript_gdp as hamiltonian_transcript
from fedprivacy.systems.fa_ld.law import DecayingSteps, GaussianTarget, transcript_gdp
from fedprivacy.theory.gaussian import epsilon as gdp_epsilon
from fedprivacy.theory.gaussian import point
from fedprivacy.training import (
    FederatedData,
    GaussianPosterior,
    HamiltonianSampling,
    LangevinSampling,
    Posterior,
    SoftmaxRegression,
    load,
    score,
    train,
)
from tests.contract.kills import kill_often

FAILS = 1e-9  # chance that a sound sampler fails a statistical check of these fixed seeds
DELTA = 1e-5
pytestmark = pytest.mark.usefixtures("one_thread")


def target(clients=6, size=3, kinds=3, weights=None, seed=5):
    generator = np.random.default_rng(seed)
    hessians = []
    for _ in range(kinds):
        basis = np.linalg.qr(generator.normal(size=(size, size)))[0]
        whole = basis @ np.diag(generator.uniform(1.0, 4.0, size)) @ basis.T
        hessians.append((whole + whole.T) / 2.0)
    return GaussianTarget(
        hessians=np.array([hessians[c % kinds] for c in range(clients)]),
        centres=generator.normal(size=(clients, size)),
        weights=weights,
    )


UNEQUAL = np.array([1.0, 2.0, 3.0, 2.0, 1.0, 3.0]) / 12.0


def gaussian(weights=None, sensitivity=1.0):
    return GaussianPosterior(target=target(weights=weights), sensitivity=sensitivity)


def langevin(posterior=None, **options):
    settings = {"step_size": 0.05, "local_steps": 3, "seed": 3} | options
    return LangevinSampling(target=posterior or gaussian(UNEQUAL), **settings)


def hamiltonian(posterior=None, **options):
    settings = {"step_size": 0.2, "leapfrog_steps": 3, "iterations": 2, "seed": 3} | options
    return HamiltonianSampling(target=posterior or gaussian(UNEQUAL), **settings)


def records(counts=(7, 5, 6), features=4, classes=3, seed=1):
    generator = np.random.default_rng(seed)
    total = sum(counts)
    inputs = torch.from_numpy(generator.normal(size=(total, features)).astype(np.float32))
    labels = torch.from_numpy(generator.integers(classes, size=total))
    return FederatedData(
        name="made up",
        features=inputs,
        labels=labels,
        clients=tuple(np.split(np.arange(total), np.cumsum(counts)[:-1])),
        test_features=inputs[:5],
        test_labels=labels[:5],
        num_classes=classes,
    )


MODEL = SoftmaxRegression(4, 3)


def posterior(counts=(7, 5, 6), **options):
    return Posterior(**({"model": MODEL, "data": records(counts), "clip_norm": 0.5} | options))


def epsilon(mechanism):
    return fp.epsilon(mechanism, delta=DELTA, adjacency="replace_one")


# The law of the samples


def whitened(loop, rounds):
    """Final positions in coordinates where the exact law is standard normal."""
    state = train(loop, loop.target, rounds=rounds).state
    law = next(islice(loop.exact.laws(point(np.zeros(loop.target.dimension))), rounds, None))
    factor = np.linalg.cholesky(law.covariance)
    return np.linalg.solve(factor, (state.positions.numpy() - law.mean).T).T, loop.exact.gaussian


def check_law(loop, rounds):
    """Exact tests where the law is Gaussian; normal approximations, 6.5 stds, of mixtures."""
    points, exact = whitened(loop, rounds)
    n, size = points.shape
    means, squares = points.sum(axis=0) / math.sqrt(n), (points**2).sum(axis=0)
    if exact:
        assert means @ means < chi2.isf(FAILS, size)
        assert np.all((chi2.isf(1 - FAILS, n) < squares) & (squares < chi2.isf(FAILS, n)))
    spread = points[:, :, None] * points[:, None, :]
    apart = spread.mean(axis=0) - np.eye(size)
    errors = spread.std(axis=0) / math.sqrt(n)
    assert np.all(np.abs(means) < 6.5)
    assert np.all(np.abs(apart) < 6.5 * errors)


AVERAGING = [("full", None, UNEQUAL), ("I", 4, UNEQUAL), ("II", 4, None)]
MOVES = {
    "langevin": lambda p, **o: langevin(p, correlation=0.6, temperature=0.7, **o),
    "decaying": lambda p, **o: langevin(
        p, step_size=DecayingSteps(strong_convexity=1.0, smoothness=4.0), correlation=0.3, **o
    ),
    "hamiltonian": lambda p, **o: hamiltonian(p, correlation=0.4, **o),
    "dynamic": lambda p, **o: hamiltonian(
        p, step_size=DynamicSteps(stages=((0.3, 2), (0.2, 1), (0.1, 9))), **o
    ),
}


@pytest.mark.parametrize("jump", [False, True], ids=["steps", "jump"])
@pytest.mark.parametrize("averaging, cohort, weights", AVERAGING, ids=["full", "I", "II"])
@pytest.mark.parametrize("move", MOVES)
def test_positions_have_the_exact_law(move, averaging, cohort, weights, jump):
    options = {"averaging": averaging, "cohort": cohort, "chains": 2500, "exact_jump": jump}
    check_law(MOVES[move](gaussian(weights), **options), 2)


@pytest.mark.parametrize("jump", [False, True], ids=["steps", "jump"])
def test_noise_on_gradients_has_its_law(jump):
    loop = hamiltonian(gaussian(), gradient_noise_multiplier=0.4, chains=2500, exact_jump=jump)
    check_law(loop, 2)
    quiet = replace(loop, gradient_noise_multiplier=0.0)
    start = point(np.zeros(3))
    noisy, plain = (np.trace(z.exact.law(start, 2).covariance) for z in (loop, quiet))
    assert noisy > 1.01 * plain


@pytest.mark.slow
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("averaging, cohort, weights", AVERAGING, ids=["full", "I", "II"])
def test_long_runs_have_the_exact_law(move, averaging, cohort, weights):
    options = {"averaging": averaging, "cohort": cohort, "chains": 20_000}
    check_law(MOVES[move](gaussian(weights), **options), 10)


def test_full_correlation_moves_all_clients_alike():
    check_law(langevin(correlation=1.0, chains=2000), 2)
    check_law(langevin(correlation=1.0, chains=2000, exact_jump=True), 2)


@pytest.mark.parametrize("fraction", [1.0, 0.4])
@pytest.mark.parametrize("averaging, cohort", [("full", None), ("I", 2)])
def test_one_leapfrog_step_is_langevin_path_by_path(fraction, averaging, cohort):
    shared = {"batch_fraction": fraction, "averaging": averaging, "cohort": cohort, "chains": 2}
    eta, target_ = 0.02, posterior()
    paths = []
    for loop in (
        hamiltonian(target_, step_size=eta, leapfrog_steps=1, correlation=0.36, **shared),
        langevin(target_, step_size=eta**2 / 2.0, local_steps=2, correlation=0.6, **shared),
    ):
        paths.append(train(loop, target_, rounds=4).state.positions)
    assert torch.allclose(*paths, rtol=0.0, atol=1e-5) and paths[0].abs().max() > 0.01


def test_the_rarest_heavy_and_the_light_client_are_both_accounted():
    loop = langevin(averaging="I", cohort=1, step_size=1e-3)
    each = [epsilon(one * 5).upper for one in loop.round_mechanism.mechanisms]
    assert epsilon(loop.run(5)).upper == max(each) and len(set(each)) == 3


def test_contraction_is_for_gradients_that_are_not_clipped():
    convex = {"strong_convexity": 1.0, "smoothness": 4.0}
    known, composed = langevin(**convex), langevin()
    assert any("T6" in t for t in epsilon(known.run(3)).theorems)
    assert epsilon(known.run(3)).upper < epsilon(composed.run(3)).upper
    with pytest.raises(ParameterError, match="be None for T6, since clipping breaks its"):
        langevin(posterior(), **convex)
    own = posterior(clip_norm=None, own_sensitivity=3.0)
    batches = langevin(own, step_size=1e-3, batch_fraction=0.5, **convex)
    assert any("T6 does not apply to random batches" in t for t in epsilon(batches.run(1)).theorems)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_accounts_of_quadratic_losses_are_exact(rho):
    """Isotropic quadratics attain T6, so theory's exact transcripts and the account coincide."""
    curvature, rounds = 3.0, 4
    flat = GaussianTarget(
        hessians=np.tile(curvature * np.eye(2), (6, 1, 1)),
        centres=np.eye(6)[:, :2],
        weights=UNEQUAL,
    )
    loop = langevin(
        GaussianPosterior(target=flat, sensitivity=0.1),
        correlation=rho,
        strong_convexity=curvature,
        smoothness=curvature,
    )
    exact = [transcript_gdp(loop.exact, client=c, difference=0.1, rounds=rounds) for c in range(6)]
    bound = epsilon(loop.run(rounds))
    assert bound.upper == pytest.approx(gdp_epsilon(max(exact), DELTA), rel=1e-8)
    assert bound.lower == pytest.approx(bound.upper, rel=1e-8)
    anywhere = langevin(correlation=rho, strong_convexity=1.0, smoothness=4.0)
    shown = transcript_gdp(anywhere.exact, client=0, difference=1.0, rounds=rounds)
    assert gdp_epsilon(shown, DELTA) <= epsilon(anywhere.run(rounds)).upper * (1 + 1e-9)
    assert (
        epsilon(anywhere.run(rounds)).upper < epsilon(langevin(correlation=rho).run(rounds)).upper
    )


def test_one_leapfrog_step_of_quadratics_is_exact():
    loop = hamiltonian(gaussian(), leapfrog_steps=1, iterations=1, correlation=0.3)
    shown = hamiltonian_transcript(loop.exact, client=2, difference=1.0, rounds=3)
    assert epsilon(loop.run(3)).upper == pytest.approx(gdp_epsilon(shown, DELTA), rel=1e-8)


def ledger_at(path, **options):
    seeds = {"seed_policy": "fixed"} | options
    return fp.Ledger.create(path, unit="record", adjacency="replace_one", **seeds)


def test_decaying_steps_are_recorded_round_by_round(tmp_path):
    steps = DecayingSteps(strong_convexity=1.0, smoothness=400.0)
    loop = langevin(step_size=steps)
    with ledger_at(tmp_path / "run.ledger", plan=loop.run(3)) as ledger:
        train(loop, loop.target, rounds=3, ledger=ledger)
        sizes = [r.mechanism.mechanisms[0].step_size for r in ledger.rounds]
        assert run_of(ledger.rounds) == loop.run(3) == ledger.plan
    assert sizes == [tuple(steps.at(3 * r, 3).tolist()) for r in range(3)]
    alone = [epsilon(loop.mechanism(r)).upper for r in range(3)]
    assert alone == sorted(alone, reverse=True)
    constant = epsilon(langevin(step_size=1.0 / 800.0).run(3)).upper
    assert max(alone) < epsilon(loop.run(3)).upper < constant


def test_a_fresh_budget_is_charged_with_the_rounds_of_the_ledger(tmp_path):
    loop = langevin(step_size=DecayingSteps(strong_convexity=1.0, smoothness=400.0))
    path, checkpoint = tmp_path / "run.ledger", tmp_path / "state.pt"
    with ledger_at(path) as ledger:
        train(loop, loop.target, rounds=2, ledger=ledger, checkpoint=checkpoint)
    limit = epsilon(loop.run(4)).upper * 1.001
    budget = fp.Budget(limit, DELTA, adjacency="replace_one")
    with fp.Ledger.open(path, resume=True) as ledger, pytest.raises(BudgetExhausted):
        train(loop, loop.target, rounds=9, ledger=ledger, budget=budget, checkpoint=checkpoint)
    assert load(checkpoint, loop.init()).round == 4
    assert budget.spent().upper == pytest.approx(epsilon(loop.run(4)).upper, rel=1e-6)


def test_correlation_one_has_no_finite_epsilon(tmp_path):
    loop = langevin(correlation=1.0)
    assert epsilon(loop.run(1)).upper == math.inf
    budget = fp.Budget(100.0, DELTA, adjacency="replace_one")
    with pytest.raises(BudgetExhausted, match="exceeds the budget, so it was not released"):
        train(loop, loop.target, rounds=1, budget=budget)
    assert budget.spent() is None
    path = tmp_path / "run.ledger"
    with ledger_at(path) as ledger:
        train(loop, loop.target, rounds=2, ledger=ledger)
        ledger.close()
    assert fp.account(path, delta=DELTA).upper == math.inf
    assert fp.audit(path, claim=(1e3, DELTA)).verdict is fp.Verdict.FAILS


def test_trajectories_without_noise_on_gradients_cannot_be_budgeted():
    loop = hamiltonian()
    with pytest.raises(UnsupportedCombination, match="gradient_noise_multiplier above 0"):
        train(
            loop,
            loop.target,
            rounds=1,
            budget=fp.Budget(8.0, DELTA, adjacency="replace_one"),
        )


def test_a_run_in_pieces_is_the_run(tmp_path):
    loop = langevin(posterior(), batch_fraction=0.5, chains=2, burn_in=2, thinning=2, draws=3)
    assert loop.rounds == 8
    whole = train(loop, loop.target, rounds=8).state
    checkpoint = tmp_path / "state.pt"
    for rounds in (3, 4, 8):
        pieces = train(loop, loop.target, rounds=rounds, checkpoint=checkpoint).state
    assert torch.equal(whole.positions, pieces.positions)
    assert torch.equal(whole.draws, pieces.draws) and bool(torch.isfinite(whole.draws).all())
    assert torch.equal(whole.draws[:, -1], whole.positions)
    early = train(loop, loop.target, rounds=5).state.draws
    assert torch.equal(early[:, 0], whole.draws[:, 0]) and bool(torch.isnan(early[:, 1:]).all())
    assert torch.equal(train(loop, loop.target, rounds=9).state.draws, whole.draws)


def test_noise_comes_from_the_system_unless_a_seed_is_named(tmp_path):
    loop = langevin(seed=None)
    first, second = (train(loop, None, rounds=1).state.positions for _ in range(2))
    assert not torch.equal(first, second)
    seeded = replace(loop, seed=1)
    first, second = (train(seeded, None, rounds=1).state.positions for _ in range(2))
    assert torch.equal(first, second)
    private = ledger_at(tmp_path / "run.ledger", seed_policy="operating system")
    with private as ledger, pytest.raises(ParameterError, match="seed"):
        train(seeded, None, rounds=1, ledger=ledger)


@pytest.mark.parametrize(
    ("loop", "kills"),
    [
        ("sampling", 4),
        *(pytest.param(name, 50, marks=pytest.mark.slow) for name in ("sampling", "hamiltonian")),
    ],
)
def test_a_killed_run_never_counts_too_little(tmp_path, loop, kills):
    kill_often(loop, tmp_path, kills, seed=kills)
    fp.account(tmp_path / "run.ledger", delta=0.1, accountant="rdp")


# Bad input


def unfit(**options):
    return lambda: posterior(**options)


INDEFINITE = np.tile(np.diag([1.0, -1.0]), (2, 1, 1))
BAD = {
    "rho above 1": (lambda: langevin(correlation=1.1), "correlation must lie between"),
    "rho below 0": (lambda: hamiltonian(correlation=-0.1), "correlation must lie"),
    "weights sum": (unfit(weights=[0.5, 0.5, 0.5]), "weights must sum to 1"),
    "weights sign": (unfit(weights=[1.0, -0.5, 0.5]), "numbers above 0"),
    "weights length": (unfit(weights=[0.5, 0.5]), "3 numbers"),
    "indefinite": (
        lambda: GaussianTarget(hessians=INDEFINITE, centres=np.zeros((2, 2))),
        "eigenvalues of the hessians must be above 0",
    ),
    "both sensitivities": (unfit(own_sensitivity=1.0), "one without the other"),
    "clip": (unfit(clip_norm=0.0), "clip_norm must be"),
    "prior": (unfit(prior_precision=-1.0), "prior_precision must be"),
    "sensitivity": (lambda: gaussian(sensitivity=-1.0), "sensitivity must be"),
    "batches of a formula": (lambda: langevin(batch_fraction=0.5), "batch_fraction must be 1"),
    "fraction": (lambda: langevin(posterior(), batch_fraction=0.0), "batch_fraction must be"),
    "step": (lambda: langevin(step_size=-1.0), "step_size must be"),
    "step of T6": (
        lambda: langevin(step_size=0.6, strong_convexity=1.0, smoothness=4.0),
        "below 2 / smoothness",
    ),
    "unstable leapfrog": (
        lambda: hamiltonian(step_size=1.5, exact_jump=True),
        r"below 2 / sqrt\(L\)",
    ),
    "local steps": (lambda: langevin(local_steps=0), "local_steps must be"),
    "iterations": (lambda: hamiltonian(iterations=0), "iterations must be"),
    "temperature": (lambda: langevin(temperature=0.0), "temperature must be"),
    "noise without": (
        lambda: hamiltonian(gaussian(sensitivity=None), gradient_noise_multiplier=1.0),
        "without a sensitivity",
    ),
    "averaging": (lambda: langevin(averaging="III"), "'full', 'I' or 'II'"),
    "no cohort": (lambda: langevin(averaging="I"), "cohort must be given"),
    "cohort": (lambda: langevin(cohort=2), "cohort must be given"),
    "large cohort": (lambda: langevin(gaussian(), averaging="II", cohort=7), "at most the number"),
    "unequal": (lambda: langevin(averaging="II", cohort=2), "equal under scheme II"),
    "chains": (lambda: langevin(chains=0), "chains must be"),
    "draws": (lambda: langevin(draws=-1), "draws must be"),
    "start shape": (lambda: langevin(start=torch.zeros(2)), "start must have shape"),
    "start": (lambda: langevin(start=torch.full((3,), math.nan)), "start must be finite"),
    "jump": (lambda: langevin(posterior(), exact_jump=True), "GaussianPosterior for exact"),
    "unequal noise": (
        lambda: hamiltonian(gradient_noise_multiplier=1.0, exact_jump=True),
        "equal for the law of noisy",
    ),
    "no account": (lambda: langevin(gaussian(sensitivity=None)).run(2), "be known for the account"),
    "data": (lambda: langevin().step(langevin().init(), gaussian()), "be the loop's target"),
    "state": (lambda: langevin().step(langevin(chains=2).init()), "state.positions must"),
    "scores": (lambda: score(torch.ones(2, 3), torch.zeros(2).long()), "sum to 1 in every row"),
    "labels": (
        lambda: score(torch.ones(2, 3) / 3, torch.zeros(3).long()),
        "have one row per label",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    make, wanted = BAD[name]
    with pytest.raises(ParameterError, match=wanted):
        make()


def test_a_ledger_needs_a_private_target(tmp_path):
    loop = langevin(gaussian(sensitivity=None))
    with (
        ledger_at(tmp_path / "run.ledger") as ledger,
        pytest.raises(ParameterError, match="ledger"),
    ):
        train(loop, None, rounds=1, ledger=ledger)
