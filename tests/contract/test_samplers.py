"""Samplers: their law is the exact one, their books are their rounds, and bad input is refused."""

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from scipy.stats import chi2
from sklearn.metrics import log_loss

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted, Diverged, ParameterError, UnsupportedCombination
from fedprivacy.evidence.repricing import run_of
from fedprivacy.systems.fa_hmc.law import DynamicSteps
from fedprivacy.systems.fa_hmc.law import transcript_gdp as hamiltonian_transcript
from fedprivacy.systems.fa_ld.law import DecayingSteps, GaussianTarget, transcript_gdp
from fedprivacy.theory.gaussian import Normal, point
from fedprivacy.theory.gaussian import epsilon as gdp_epsilon
from fedprivacy.training import (
    FederatedData,
    GaussianPosterior,
    HamiltonianSampling,
    LangevinSampling,
    Likelihood,
    Posterior,
    SoftmaxRegression,
    classifier,
    diagnose,
    fitted_w2,
    gaussian_fit,
    load,
    logistic,
    predictive,
    score,
    train,
)

from .kills import kill_often

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


def gradient(local):
    """The whole gradient of clients at work, at their points."""
    own, public = local.parts(local.points, 1.0)
    return own + public * local.points


def epsilon(mechanism):
    return fp.epsilon(mechanism, delta=DELTA, adjacency="replace_one")


# The law of the samples


def whitened(loop, rounds):
    """Final positions in the coordinates in which the exact law is standard normal."""
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


# Gradients


def by_torch(parameters, inputs, labels):
    scores = MODEL.logits(parameters, inputs)
    return -functional.cross_entropy(scores, labels, reduction="none")


@pytest.mark.parametrize("clip", [None, 1.0, 0.2])
def test_closed_forms_are_torchs_gradients(clip):
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(3, MODEL.dimension, generator=generator)
    inputs = torch.randn(3, 7, 4, generator=generator)
    labels = torch.randint(3, (3, 7), generator=generator)
    mask = torch.ones(3, 7)
    mask[1, 5:] = 0.0
    models = (MODEL, Likelihood(by_torch, MODEL.dimension), classifier(logistic(4, 3)))
    closed, traced, module = (m.gradient_sums(points, inputs, labels, mask, clip) for m in models)
    assert torch.allclose(closed, traced, atol=2e-6) and torch.allclose(closed, module, atol=2e-6)
    one = points[1].clone().requires_grad_()
    total = torch.zeros(MODEL.dimension)
    for record in range(5):
        loss = -by_torch(one, inputs[1, record][None], labels[1, record][None])[0]
        (gradient,) = torch.autograd.grad(loss, one)
        total += gradient * min(1.0, math.inf if clip is None else clip / float(gradient.norm()))
    assert torch.allclose(closed[1], total.to(closed), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("model", [MODEL, Likelihood(by_torch, MODEL.dimension)])
def test_one_record_moves_a_sum_by_at_most_twice_the_clip_norm(model):
    generator = torch.Generator().manual_seed(3)
    inputs, labels = torch.randn(1, 2, 4, generator=generator), torch.tensor([[0, 1]])
    points, mask = torch.randn(1, MODEL.dimension, generator=generator), torch.ones(1, 2)
    base = model.gradient_sums(points, inputs, labels, mask, 0.3)
    for scale in (1.0, -50.0, 1e18, 3e38):
        other = inputs.clone()
        other[0, 0] = scale * inputs[0, 0].sign()
        moved = model.gradient_sums(points, other, labels, mask, 0.3)
        assert torch.isfinite(moved).all()
        assert float((moved.double() - base.double()).norm()) <= 0.6


def test_functions_of_the_clients_add_up():
    target_ = posterior(clip_norm=None, prior_precision=2.0, weights=[0.2, 0.5, 0.3])
    at = torch.randn(MODEL.dimension, generator=torch.Generator().manual_seed(1))
    local = target_.local(np.arange(3)[None], at[None], 1.0, np.random.default_rng(0))
    average = (torch.from_numpy(target_.shares) @ gradient(local)[0]).float()
    inputs, labels = target_.data.features, target_.data.labels
    point_ = at.clone().requires_grad_()
    whole = by_torch(point_, inputs, labels).sum() - point_.square().sum()
    assert torch.allclose(average, -torch.autograd.grad(whole, point_)[0], rtol=1e-4, atol=1e-4)


def test_batches_are_drawn_without_replacement_and_evenly():
    target_ = posterior(counts=(10, 4))
    local = target_.local(np.array([[0, 1]]), target_.start[None], 0.25, np.random.default_rng(2))
    counts, rounds = np.zeros(14), 800
    for _ in range(rounds):
        rows, mask = local._drawn()
        for seat, size in ((0, 3), (1, 1)):
            drawn = rows[seat][mask[seat] > 0].tolist()
            assert len(set(drawn)) == len(drawn) == size
            assert set(drawn) <= set(target_.data.clients[seat].tolist())
            counts[drawn] += 1
    for own, rate in ((counts[:10], 0.3), (counts[10:], 0.25)):
        errors = (own - rounds * rate) / math.sqrt(rounds * rate * (1 - rate))
        assert np.abs(errors).max() < 6.5


def test_batches_rounded_up_are_accounted_as_they_are():
    loop = langevin(posterior(counts=(10, 4)), batch_fraction=0.25)
    assert loop.kinds == ((10 / 14, 0.3), (4 / 14, 0.25))
    assert len(loop.notes) == 1 and "batches of 3 records, rounded up" in loop.notes[0]
    asked = [part.batch_fraction for part in loop.round_mechanism.mechanisms]
    assert asked == [0.3, 0.25]
    assert langevin(posterior(counts=(10, 10)), batch_fraction=0.3).notes == ()


def test_a_gradient_from_a_batch_is_unbiased():
    target_ = posterior(clip_norm=None)
    at = torch.zeros(1, MODEL.dimension)
    make = lambda f: target_.local(np.array([[0]]), at, f, np.random.default_rng(4))  # noqa: E731
    whole, part = make(1.0), make(0.3)
    exact = gradient(whole)[0, 0]
    drawn = torch.stack([gradient(part)[0, 0] for _ in range(400)])
    error = (drawn.mean(dim=0) - exact) / (drawn.std(dim=0) / 20.0)
    assert float(error.abs().max()) < 6.5


# What a round costs


def test_rounds_say_what_every_client_does():
    kinds = langevin().round_mechanism.mechanisms
    assert [k.weight for k in kinds] == pytest.approx([1 / 12, 2 / 12, 3 / 12])
    first = langevin(averaging="I", cohort=4).round_mechanism.mechanisms[0]
    assert first.scheme == fp.Poisson(-math.expm1(4 * math.log1p(-1 / 12)))
    second = langevin(gaussian(), averaging="II", cohort=4).round_mechanism
    assert second.scheme == fp.FixedSize(4, 6) and second.inner.steps == 3
    long = hamiltonian(gaussian(), gradient_noise_multiplier=2.0).round_mechanism
    assert (long.leapfrog_steps, long.iterations, long.gradient_sensitivity) == (3, 2, 1.0)
    assert langevin(gaussian(sensitivity=None)).round_mechanism is None
    assert langevin(posterior()).round_mechanism.mechanisms[0].gradient_sensitivity == 1.0


def test_the_rarest_heavy_and_the_light_client_are_both_accounted():
    loop = langevin(averaging="I", cohort=1, step_size=1e-3)
    each = [epsilon(one * 5).upper for one in loop.round_mechanism.mechanisms]
    assert epsilon(loop.run(5)).upper == max(each) and len(set(each)) == 3


def test_chains_on_the_same_data_add_up(tmp_path):
    one, four = langevin(step_size=1e-3), langevin(step_size=1e-3, chains=4)
    assert four.run(3) == one.run(12)
    assert epsilon(four.run(3)).upper == epsilon(one.run(12)).upper > epsilon(one.run(3)).upper
    limit = epsilon(one.run(12)).upper * 1.001
    for loop, fits in ((one, 12), (four, 3)):
        budget = fp.Budget(limit, DELTA, adjacency="replace_one")
        with pytest.raises(BudgetExhausted):
            train(loop, loop.target, rounds=20, budget=budget)
        assert sum(budget.spending.rounds.values()) == fits
    with ledger_at(tmp_path / "run.ledger") as ledger:
        train(four, four.target, rounds=3, ledger=ledger)
        assert run_of(ledger.rounds) == one.run(12)


def test_cohorts_of_chains_are_drawn_apart():
    loop = langevin(gaussian(), averaging="II", cohort=2, chains=400)
    seats = loop._seats(0, None)
    assert len({tuple(sorted(row)) for row in seats.clients.tolist()}) == 15
    assert all(len(set(row)) == 2 for row in seats.clients.tolist())


def test_a_client_drawn_twice_runs_once():
    loop = langevin(averaging="I", cohort=9, chains=300)
    seats = loop._seats(0, None)
    assert np.allclose(seats.shares.sum(axis=1), 1.0)
    for clients, shares in zip(seats.clients[:50], seats.shares[:50], strict=True):
        for client in set(clients.tolist()):
            mine = shares[clients == client]
            assert np.count_nonzero(mine) == 1
            assert mine.max() == pytest.approx(np.sum(clients == client) / 9)
    counts = np.array([np.sum(seats.clients == c) for c in range(6)]) / seats.clients.size
    errors = (counts - UNEQUAL) / np.sqrt(UNEQUAL * (1 - UNEQUAL) / seats.clients.size)
    assert np.abs(errors).max() < 6.5


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


# Chains that go wrong, runs that stop


def test_a_diverging_chain_stops_the_run_and_stays_spent(tmp_path):
    loop = langevin(step_size=5.0, local_steps=40, chains=2)
    path, checkpoint = tmp_path / "run.ledger", tmp_path / "state.pt"
    released = []
    with (
        ledger_at(path) as ledger,
        pytest.raises(Diverged, match=r"2 of 2 chains.*smaller step size"),
    ):
        train(
            loop,
            loop.target,
            rounds=50,
            ledger=ledger,
            checkpoint=checkpoint,
            on_release=released.append,
        )
    read = fp.Ledger.open(path)
    assert len(released) < read.spent_rounds == len(released) + 1 < 50
    assert read.rounds[-1].done is None and read.rounds[-1].aborted is None
    kept = load(checkpoint, loop.init())
    assert kept.round == len(released) and bool(torch.isfinite(kept.positions).all())


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


def test_clients_that_do_not_answer(tmp_path):
    loop = langevin(gaussian(UNEQUAL), correlation=1.0, step_size=1e-9)
    far = replace(loop, start=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    state, info = far.step(far.init(), dropout=lambda cohort: cohort[:4])
    assert (info.cohort, info.arrived, info.aborted) == (6, 2, False)
    assert torch.allclose(state.positions[0], far.start, atol=1e-3)
    with ledger_at(tmp_path / "run.ledger") as ledger:
        state, info = far.step(far.init(), ledger=ledger, dropout=lambda cohort: cohort)
        assert info.aborted and ledger.spent_rounds == 1 and state.round == 1
        assert torch.equal(state.positions, far.init().positions)


@pytest.mark.parametrize(
    ("loop", "kills"),
    [
        ("sampling", 6),
        *(pytest.param(name, 50, marks=pytest.mark.slow) for name in ("sampling", "hamiltonian")),
    ],
)
def test_a_killed_run_never_counts_too_little(tmp_path, loop, kills):
    kill_often(loop, tmp_path, kills, seed=kills)
    fp.account(tmp_path / "run.ledger", delta=0.1, accountant="rdp")


# What samples say


def test_scores_by_hand_and_by_scikit_learn():
    probabilities = torch.tensor(
        [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.05, 0.05, 0.9], [0.5, 0.5, 0]], dtype=torch.float64
    )
    labels = torch.tensor([0, 2, 2, 1])
    found = score(probabilities, labels)
    assert found.accuracy == 0.5
    squares = 0.09 + 0.04 + 0.01 + 0.09 + 0.16 + 0.49 + 0.0025 + 0.0025 + 0.01 + 0.5
    assert found.brier == pytest.approx(squares / 4, rel=1e-6)
    assert found.nll == pytest.approx(log_loss(labels, probabilities.numpy()), rel=1e-6)
    assert found.ece == pytest.approx((0.3 + 0.4 + 0.1 + 0.5) / 4, rel=1e-6)
    one_bin = score(probabilities, labels, bins=1)
    assert one_bin.ece == pytest.approx(abs((0.7 + 0.4 + 0.9 + 0.5) / 4 - 0.5), rel=1e-6)


def test_predictions_average_probabilities_over_finite_draws():
    draws = torch.randn(2, 3, MODEL.dimension, generator=torch.Generator().manual_seed(0))
    inputs = records().features
    each = torch.stack([MODEL.logits(p, inputs).softmax(-1) for p in draws.reshape(6, -1)[:5]])
    draws[1, 2] = math.nan
    assert torch.allclose(predictive(MODEL.logits, draws, inputs), each.mean(dim=0), atol=1e-6)
    with pytest.raises(ParameterError, match="finite draw"):
        predictive(MODEL.logits, draws * math.nan, inputs)


def test_distance_to_a_gaussian_target():
    law = Normal(mean=np.zeros(2), covariance=np.diag([1.0, 4.0]))
    corners = torch.tensor([[a, b] for a in (-1.0, 1.0) for b in (-2.0, 2.0)]).double()
    unbiased = corners * math.sqrt(3.0 / 4.0)
    assert fitted_w2(unbiased, law) == pytest.approx(0.0, abs=1e-12)
    assert fitted_w2(unbiased + torch.tensor([3.0, 4.0]), law) == pytest.approx(5.0, rel=1e-12)
    with pytest.raises(ParameterError, match="two finite draws"):
        gaussian_fit(torch.full((3, 2), math.nan))


def test_diagnostics_see_a_chain_that_is_elsewhere():
    draws = torch.randn(4, 200, 2, generator=torch.Generator().manual_seed(0))
    good = diagnose(draws)
    assert good.worst[0] < 1.02 and good.worst[1] > 400
    draws[0, :, 1] += 3.0
    bad = diagnose(draws)
    assert bad.r_hat[0] < 1.02 < 1.2 < bad.r_hat[1] and bad.bulk_ess[1] < 50
    assert "have mixed" in str(good) and "do not use these draws: R-hat is up to 1." in str(bad)
    alone = diagnose(draws[1:2])
    assert alone.worst[0] < 1.05 and alone.worst[1] > 40
    for shape in ((200, 2), (1, 7, 2), (4, 3, 2)):
        with pytest.raises(ParameterError, match="with at least 4 draws per chain, or"):
            diagnose(torch.zeros(shape))
    with pytest.raises(ParameterError, match="finite"):
        diagnose(draws * math.nan)


@pytest.mark.parametrize("size", [1e-9, 1e-300, 1.0, 1e300])
def test_chains_that_moved_once_have_not_mixed(size):
    draws = torch.zeros(4, 1000, 2, dtype=torch.float64)
    draws[:, :, 1] = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    draws[:, -1, 0] = size
    found = diagnose(draws)
    assert found.r_hat[0] == math.inf and found.r_hat[1] < 1.02 and not found.mixed
    assert found.bulk_ess[0] <= 8 and found.tail_ess[0] <= 8 and found.bulk_ess[1] > 2000
    assert "do not use these draws: a chain hardly moved in 1 of 2 coordinates" in str(found)


def test_draws_that_repeat_count_once():
    once = torch.randn(4, 250, 1, generator=torch.Generator().manual_seed(0))
    found, each = diagnose(once.repeat_interleave(4, dim=1)), diagnose(once)
    assert found.mixed and each.bulk_ess[0] > 700
    # ArviZ counts up to a thousand draws here; there are 4 x 250 different ones.
    assert found.bulk_ess[0] <= 1000 and found.tail_ess[0] <= 1000


def test_large_finite_draws_are_finite():
    draws = torch.randn(4, 200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    small, large = diagnose(draws), diagnose(draws / draws.abs().max() * 1.5e308)
    assert np.allclose(small.r_hat, large.r_hat) and np.allclose(small.bulk_ess, large.bulk_ess)


def test_a_sampler_learns():
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=240)
    inputs = generator.normal(size=(240, 4)) + 2.0 * np.eye(4)[labels]
    part = records()
    data = replace(
        part,
        features=torch.from_numpy(inputs.astype(np.float32)),
        labels=torch.from_numpy(labels),
        clients=tuple(np.split(np.arange(240), 6)),
        test_features=torch.from_numpy(inputs[:100].astype(np.float32)),
        test_labels=torch.from_numpy(labels[:100]),
    )
    target_ = Posterior(model=MODEL, data=data, clip_norm=1.0)
    loop = langevin(
        target_, step_size=2e-3, batch_fraction=0.5, chains=2, burn_in=20, thinning=2, draws=20
    )
    state = train(loop, target_, rounds=loop.rounds).state
    found = score(predictive(MODEL.logits, state.draws, data.test_features), data.test_labels)
    assert found.accuracy > 0.8 and found.nll < 0.7 < math.log(3)
    assert 1.0 <= diagnose(state.draws).worst[0] < 10.0


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
        "positive definite",
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
    "scores": (lambda: score(torch.ones(2, 3), torch.zeros(2).long()), "be probabilities"),
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


@pytest.mark.parametrize("records", [100, 60_000])
def test_replacing_a_record_moves_a_gradient_sum_by_no_more_than_its_sensitivity(records):
    """Added up in single precision, 60,000 gradients once moved by 1.0003 times as much."""
    generator, clip = torch.Generator().manual_seed(3), 0.5
    model = SoftmaxRegression(30, 10)
    inputs = torch.randn(1, records, 30, generator=generator)
    labels = torch.randint(10, (1, records), generator=generator)
    mask, worst = torch.ones(1, records), 0.0
    for draw in range(8):
        point = 3.0 * torch.randn(1, model.dimension, generator=generator)
        before = model.gradient_sums(point, inputs, labels, mask, clip)
        for record in range(3):
            changed, other = inputs.clone(), labels.clone()
            other[0, record] = (labels[0, record] + 1 + draw) % 10
            changed[0, record] *= -100.0
            after = model.gradient_sums(point, changed, other, mask, clip)
            worst = max(worst, float((after - before).double().norm()))
    assert 0.5 * clip < worst <= 2.0 * clip


def test_points_are_rounded_after_their_noise_only():
    """A gradient sum that is cut to single precision before noise is added moves by its cut."""
    data = records(features=5)
    target = Posterior(model=SoftmaxRegression(5, 3), data=data, clip_norm=1.0)
    assert data.features.dtype == torch.float32
    local = target.local(np.arange(3)[None], target.start[None], 1.0, np.random.default_rng(0))
    assert local.points.dtype == gradient(local).dtype == torch.float64
    noise = np.random.default_rng(1)
    assert local.normal(noise).dtype == local.shared(noise).dtype == torch.float64
    assert local.finish(local.points).dtype == torch.float32


@pytest.mark.parametrize(("size", "clip"), [(1e18, 1e-7), (1e19, 1e-5)])
def test_a_residual_whose_square_vanishes_is_clipped_all_the_same(size, clip):
    """In single precision e^-53 squared is 0, and a long input makes its gradient long."""
    inputs, points = torch.tensor([[[size, 0.0]]]), torch.zeros(1, 9)
    points[0, 6] = 53.0
    labels, mask = torch.tensor([[0]]), torch.ones(1, 1)
    found = SoftmaxRegression(2, 3).gradient_sums(points, inputs, labels, mask, clip)
    assert float(found.norm()) <= clip
