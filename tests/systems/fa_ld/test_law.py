"""FA-LD's exact laws against the algorithm itself, its theorems against the exact laws."""

import itertools
import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.mechanisms import FederatedLangevin
from fedprivacy.papers.fa_ld.bounds import LangevinProblem
from fedprivacy.systems.fa_ld import law as langevin
from fedprivacy.systems.fa_ld.law import (
    DecayingSteps,
    GaussianTarget,
    LangevinChain,
    rounds_to_accuracy,
    w2_curve,
)
from fedprivacy.theory import gaussian
from fedprivacy.theory.gaussian import Normal, point, w2


def spd(generator, size, low=0.5, high=3.0):
    q, _ = np.linalg.qr(generator.normal(size=(size, size)))
    return (q * generator.uniform(low, high, size)) @ q.T


def symmetric(matrix):
    return (matrix + np.swapaxes(matrix, -1, -2)) / 2


def random_target(seed, clients=3, size=2, equal=False, **range_):
    generator = np.random.default_rng(seed)
    hessians = symmetric(np.array([spd(generator, size, **range_) for _ in range(clients)]))
    weights = np.full(clients, 1 / clients) if equal else generator.dirichlet(np.full(clients, 4.0))
    centres = generator.normal(size=(clients, size)) * 2
    return GaussianTarget(hessians=hessians, centres=centres, weights=weights)


# The algorithm, written out; laws by feeding it unit vectors.


def langevin_round(target, chain, theta, noises, index):
    """Algorithm 1's local steps, as printed. ``noises``: (K, N + 1, d), the shared one first."""
    rho, tau = chain.correlation, chain.temperature
    local = np.repeat(theta[None], target.clients, axis=0)
    for k in range(chain.local_steps):
        eta = chain.step_size
        if isinstance(eta, DecayingSteps):
            eta = 1 / (
                2 * eta.smoothness + eta.strong_convexity * (index * chain.local_steps + k) / 12
            )
        for c in range(target.clients):
            gradient = target.hessians[c] @ (local[c] - target.centres[c])
            shared = math.sqrt(2 * eta * tau) * rho * noises[k, 0]
            own = math.sqrt(2 * eta * tau * (1 - rho**2) / target.shares[c]) * noises[k, c + 1]
            local[c] = local[c] - eta * gradient + shared + own
    return local


def joint_of_clients(target, chain, law, index=0):
    """Exact mean (N d) and covariance of all clients' iterates after a round, column by column."""
    n, d, k = target.clients, target.dimension, chain.local_steps
    quiet = np.zeros((k, n + 1, d))
    base = langevin_round(target, chain, np.zeros(d), quiet, index).reshape(-1)
    moved = [langevin_round(target, chain, e, quiet, index).reshape(-1) - base for e in np.eye(d)]
    answers = []
    for unit in np.eye(quiet.size):
        noise = unit.reshape(quiet.shape)
        answers.append(langevin_round(target, chain, np.zeros(d), noise, index).reshape(-1) - base)
    left, noise = np.array(moved).T, np.array(answers).T
    return base + left @ law.mean, left @ law.covariance @ left.T + noise @ noise.T


def averages(target, chain):
    """Every way of averaging: (probability, matrix (d, N d))."""
    n, d = target.clients, target.dimension
    if chain.averaging == "full":
        cohorts = [(1.0, target.shares)]
    elif chain.averaging == "I":
        draws = list(itertools.product(range(n), repeat=chain.cohort))
        counts = [np.bincount(draw, minlength=n) / chain.cohort for draw in draws]
        cohorts = [
            (float(np.prod(target.shares[list(d)])), c) for d, c in zip(draws, counts, strict=True)
        ]
    else:
        subsets = list(itertools.combinations(range(n), chain.cohort))
        counts = [np.bincount(draw, minlength=n) / chain.cohort for draw in subsets]
        cohorts = [(1 / len(subsets), c) for c in counts]
    return [(p, np.kron(c, np.eye(d))) for p, c in cohorts]


def by_enumeration(target, chain, law, index):
    mean, covariance = joint_of_clients(target, chain, law, index)
    ways = averages(target, chain)
    laws = Normal(
        mean=np.array([a @ mean for _, a in ways]),
        covariance=np.array([symmetric(a @ covariance @ a.T) for _, a in ways]),
    )
    shares = np.array([p for p, _ in ways])
    middle = shares @ laws.mean
    apart = laws.mean - middle
    between = np.einsum("n,ni,nj->ij", shares, apart, apart)
    within = np.einsum("n,nij->ij", shares, laws.covariance)
    return Normal(mean=middle, covariance=within + between)


CHAINS = [
    {"step_size": 0.1, "local_steps": 4, "correlation": 0.0},
    {"step_size": 0.3, "local_steps": 1, "correlation": 1.0},
    {"step_size": 0.25, "local_steps": 5, "correlation": 0.6, "temperature": 0.3},
    {"step_size": 0.55, "local_steps": 3, "correlation": 0.9},  # overshoots along some directions
    {
        "step_size": DecayingSteps(strong_convexity=0.5, smoothness=3.0),
        "local_steps": 3,
        "correlation": 0.5,
    },
]
WAYS = [{"averaging": "full"}, {"averaging": "I", "cohort": 2}, {"averaging": "II", "cohort": 2}]


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w["averaging"])
@pytest.mark.parametrize("settings", CHAINS, ids=range(len(CHAINS)))
def test_laws_are_the_algorithms(settings, way):
    target = random_target(1, equal=way["averaging"] == "II")
    chain = LangevinChain(target=target, **settings, **way)
    law = Normal(mean=np.array([1.0, -2.0]), covariance=np.diag([0.5, 0.1]))
    laws = chain.laws(law)
    assert next(laws) is law
    for index in range(3):
        law = by_enumeration(target, chain, law, index)
        found = next(laws)
        assert found.mean == pytest.approx(law.mean, rel=1e-11, abs=1e-12)
        assert found.covariance == pytest.approx(law.covariance, rel=1e-11, abs=1e-12)
    start = Normal(mean=np.array([1.0, -2.0]), covariance=np.diag([0.5, 0.1]))
    jumped = chain.law(start, 3)
    assert jumped.covariance == pytest.approx(law.covariance, rel=1e-11, abs=1e-12)
    assert chain.gaussian == (way["averaging"] == "full")


def test_gradient_noise():
    """Its covariance at a client after K steps, by powers of the matrix."""
    target = random_target(4)
    generator = np.random.default_rng(9)
    noise = symmetric(np.array([spd(generator, 2) for _ in range(3)]))
    chains = [
        LangevinChain(target=target, step_size=0.2, local_steps=4, gradient_covariance=given)
        for given in (None, noise)
    ]
    quiet, noisy = (chain.law(point([0.0, 0.0]), 1).covariance for chain in chains)
    added = np.zeros((2, 2))
    for c in range(3):
        left = np.eye(2) - 0.2 * target.hessians[c]
        for j in range(4):
            power = np.linalg.matrix_power(left, j)
            added += target.shares[c] ** 2 * 0.04 * power @ noise[c] @ power.T
    assert noisy - quiet == pytest.approx(added, rel=1e-10)


def test_batch_noise_by_all_batches():
    generator = np.random.default_rng(7)
    gradients = generator.normal(size=(6, 2))
    for batch in (1, 2, 4, 6):
        drawn = [
            6 / batch * gradients[list(b)].sum(axis=0) / 0.3
            for b in itertools.combinations(range(6), batch)
        ]
        true = np.cov(np.array(drawn).T, bias=True) if batch < 6 else np.zeros((2, 2))
        assert langevin.batch_noise(gradients, batch, 0.3) == pytest.approx(true, abs=1e-10)


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w["averaging"])
def test_against_simulation(way):
    """6e4 chains; an entry outside 8 standard errors has probability below 1e-14.

    The mixture's fourth moments are at most 5 times a Gaussian's here, which the factor for the
    covariances allows for.
    """
    target = random_target(11, equal=way["averaging"] == "II")
    chain = LangevinChain(target=target, step_size=0.15, local_steps=3, correlation=0.5, **way)
    generator, runs, rounds = np.random.default_rng(2024), 60_000, 2
    theta = np.zeros((runs, 2))
    for _ in range(rounds):
        local = np.repeat(theta[:, None], 3, axis=1)
        for _ in range(3):
            gradient = np.einsum("cij,mcj->mci", target.hessians, local - target.centres)
            own = (
                math.sqrt(0.75)
                / np.sqrt(target.shares)[:, None]
                * generator.normal(size=local.shape)
            )
            shared = 0.5 * generator.normal(size=(runs, 1, 2))
            local = local - 0.15 * gradient + math.sqrt(0.3) * (own + shared)
        if way["averaging"] == "full":
            theta = np.einsum("c,mci->mi", target.shares, local)
        elif way["averaging"] == "I":
            drawn = generator.choice(3, size=(runs, 2), p=target.shares)
            theta = np.take_along_axis(local, drawn[:, :, None], axis=1).mean(axis=1)
        else:
            out = generator.integers(0, 3, size=runs)
            theta = (local.sum(axis=1) - local[np.arange(runs), out]) / 2
    law = chain.law(point([0.0, 0.0]), rounds)
    scale = np.sqrt(np.diag(law.covariance))
    assert np.all(np.abs(theta.mean(axis=0) - law.mean) < 8 * scale / math.sqrt(runs))
    wide = 8 * math.sqrt(14 / runs) * np.outer(scale, scale)
    assert np.all(np.abs(np.cov(theta.T) - law.covariance) < wide)


@pytest.mark.parametrize("correlation", [0.0, 0.7, 1.0])
def test_draws_of_a_whole_round(correlation):
    """Joint moments of all clients; 8 standard errors of 5e4 draws, chance below 1e-13 an entry."""
    target, runs = random_target(12), 50_000
    chain = LangevinChain(target=target, step_size=0.2, local_steps=5, correlation=correlation)
    start = np.array([1.0, -1.0])
    drawn = chain.local_round(0).sample(
        np.repeat(start[None], runs, axis=0), np.random.default_rng(8)
    )
    mean, covariance = joint_of_clients(target, chain, point(start))
    found = drawn.reshape(runs, -1)
    scale = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(found.mean(axis=0) - mean) < 8 * scale / math.sqrt(runs))
    wide = 8 * math.sqrt(2 / runs) * np.outer(scale, scale)
    assert np.all(np.abs(np.cov(found.T) - covariance) < wide)


def test_draws_with_gradient_noise():
    """As above, 5e4 draws and 8 standard errors, for one client."""
    target, runs = random_target(12), 50_000
    noise = np.repeat(np.array([[[2.0, 0.5], [0.5, 1.0]]]), 3, axis=0)
    chain = LangevinChain(target=target, step_size=0.2, local_steps=5, gradient_covariance=noise)
    local = chain.local_round(0)
    drawn = local.sample(np.zeros((runs, 2)), np.random.default_rng(8))[:, 1]
    slope = np.eye(2) - chain.step_size * target.hessians[1]
    # x <- A x + own noise, five times: its private part is the sum of A^k N A^k'.
    private = 2 * chain.step_size / target.shares[1] * np.eye(2) + chain.step_size**2 * noise[1]
    true = sum(
        np.linalg.matrix_power(slope, k) @ private @ np.linalg.matrix_power(slope, k).T
        for k in range(5)
    )
    scale = np.sqrt(np.diag(true))
    wide = 8 * math.sqrt(2 / runs) * np.outer(scale, scale)
    assert np.all(np.abs(np.cov(drawn.T) - true) < wide)


# Rounds and W2, in the setting of the paper's Figure 1.


def figure_target(alpha=1.0, seed=0, records=1000):
    generator = np.random.default_rng(seed)
    spread = np.array([[5.0, -2.0], [-2.0, 1.0]])
    held = [
        generator.multivariate_normal(math.sqrt(alpha) * generator.normal(size=2), spread, records)
        for _ in range(50)
    ]
    return GaussianTarget.of_records(held, spread), np.concatenate(held), spread


def test_the_target_is_the_posterior():
    target, records, spread = figure_target()
    law = target.law()
    assert law.mean == pytest.approx(records.mean(axis=0), rel=1e-10)
    assert law.covariance == pytest.approx(spread / len(records), rel=1e-10)


def test_heterogeneous_hessians_have():
    target = random_target(3, low=0.2, high=4.0)
    biases = []
    for local in (1, 4, 16):
        chain = LangevinChain(target=target, step_size=0.02, local_steps=local)
        limit = chain.local_round(0).average.stationary()
        biases.append(float(w2(limit, target.law())))
    assert biases[0] < biases[1] < biases[2]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("way", WAYS, ids=lambda w: w["averaging"])
def test_rounds_to_accuracy_is_the_first(seed, way):
    target = random_target(seed, equal=True)
    chain = LangevinChain(target=target, step_size=0.05, local_steps=2, **way)
    start = point(target.mean + np.array([3.0, -1.0]))
    curve = w2_curve(chain, start, 150)
    for accuracy in (5.0, 1.0, float(curve[-1]) * 1.05 + 0.01, float(curve.min()) * 0.9):
        inside = np.flatnonzero(curve <= accuracy)
        expected = int(inside[0]) if len(inside) else None
        assert rounds_to_accuracy(chain, start, accuracy, limit=150) == expected


def test_hopeless_accuracies_are_given_up_early():
    target = random_target(0)
    chain = LangevinChain(target=target, step_size=0.1, local_steps=5)
    start = point(target.mean + 1.0)
    least = float(w2_curve(chain, start, 300).min())
    assert rounds_to_accuracy(chain, start, 0.99 * least, limit=10**9) is None
    assert rounds_to_accuracy(chain, start, 1.01 * least) is not None


def test_a_diverging_chain_says_so():
    chain = LangevinChain(target=random_target(0), step_size=5.0, local_steps=50)
    with pytest.raises(ParameterError, match="use smaller steps"), np.errstate(all="ignore"):
        w2_curve(chain, point([1.0, 1.0]), 100)


# Privacy of quadratic losses.


def test_an_upload_is_the_hidden_state_bound():
    """PAPERS: m = 10, c = 1/2, K = 20, R = 30."""
    target = GaussianTarget(hessians=np.array([[[0.5]]]), centres=np.zeros((1, 1)))
    chain = LangevinChain(target=target, step_size=1.0, local_steps=20, temperature=1.0)
    step = math.sqrt(2.0) / 10  # sensitivity at which one step has m = 10
    assert langevin.upload_gdp(chain, client=0, difference=step) == pytest.approx(
        0.1732049, rel=1e-6
    )
    mu = langevin.transcript_gdp(chain, client=0, difference=step, rounds=30)
    assert gaussian.epsilon(mu, 1e-5) == pytest.approx(4.118631, rel=1e-6)
    assert gaussian.epsilon(math.sqrt(600) / 10, 1e-5) == pytest.approx(12.870662, rel=1e-6)


def test_the_mechanisms_number_is_attained():
    target = random_target(6, size=2)
    chain = LangevinChain(
        target=target, step_size=0.1, local_steps=6, correlation=0.7, temperature=0.4
    )
    values = target.spectra[0][target.kinds[1][1]]
    upload = FederatedLangevin(
        step_size=0.1,
        temperature=0.4,
        correlation=0.7,
        weight=float(target.shares[1]),
        batch_fraction=1.0,
        gradient_sensitivity=0.2,
        steps=6,
        strong_convexity=float(values.min()) * (1 - 1e-12),
        smoothness=float(values.max()) * (1 + 1e-12),
    )
    mu = langevin.transcript_gdp(chain, client=1, difference=0.2, rounds=5)
    bound = fp.epsilon(upload * 5, delta=1e-6, adjacency="replace_one")
    exact = gaussian.epsilon(mu, 1e-6)
    assert bound.lower <= exact * (1 + 1e-9)
    assert bound.upper == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("settings", CHAINS, ids=range(len(CHAINS)))
def test_the_transcript_by_its_joint_law(settings):
    """Uploads of two rounds given the shared noise: one big Gaussian, written out."""
    target, client = random_target(8), 2
    chain = LangevinChain(target=target, **settings)
    difference = np.array([0.3, -0.2])
    moved = GaussianTarget(
        hessians=target.hessians,
        centres=target.centres
        - np.eye(3)[client][:, None]
        * np.linalg.solve(target.hessians[client], difference / target.shares[client]),
        weights=target.weights,
    )
    n, d, k = 3, 2, chain.local_steps

    def uploads(problem, noises):
        theta, seen = np.zeros(d), []
        for r in range(2):
            local = langevin_round(problem, chain, theta, noises[r], r)
            seen.append(local.reshape(-1))
            theta = problem.shares @ local
        return np.concatenate(seen)

    quiet = np.zeros((2, k, n + 1, d))
    base = uploads(target, quiet)
    answers = []
    for index in itertools.product(range(2), range(k), range(1, n + 1), range(d)):
        noise = quiet.copy()
        noise[index] = 1.0
        answers.append(uploads(target, noise) - base)
    noise = np.array(answers).T
    shift = uploads(moved, quiet) - base
    found = langevin.transcript_gdp(chain, client=client, difference=difference, rounds=2)
    if chain.correlation == 1.0:
        assert found == math.inf
        return
    true = gaussian.gdp(shift, noise @ noise.T)
    assert found == pytest.approx(true, rel=1e-8)
    norm = float(np.linalg.norm(difference))
    worst = langevin.transcript_gdp(chain, client=client, difference=norm, rounds=2)
    assert worst >= found * (1 - 1e-12)


def test_the_final_iterate_by_two_runs():
    target, client, difference = random_target(8), 0, np.array([0.3, -0.2])
    chain = LangevinChain(target=target, step_size=0.2, local_steps=3, correlation=0.5)
    moved = GaussianTarget(
        hessians=target.hessians,
        centres=target.centres
        - np.eye(3)[client][:, None]
        * np.linalg.solve(target.hessians[client], difference / target.shares[client]),
        weights=target.weights,
    )
    other = LangevinChain(target=moved, step_size=0.2, local_steps=3, correlation=0.5)
    start = point([1.0, 1.0])
    one, two = chain.law(start, 7), other.law(start, 7)
    true = gaussian.gdp(one.mean - two.mean, one.covariance)
    found = langevin.final_gdp(chain, start, client=client, difference=difference, rounds=7)
    assert found == pytest.approx(true, rel=1e-9)
    transcript = langevin.transcript_gdp(chain, client=client, difference=difference, rounds=7)
    assert found < transcript


def test_curvature_costs_nothing_extra_and_correlation_does():
    target = random_target(2)
    numbers = [
        langevin.upload_gdp(
            LangevinChain(target=target, step_size=0.1, local_steps=3, correlation=rho),
            client=0,
            difference=1.0,
        )
        for rho in (0.0, 0.5, 0.9, 1.0)
    ]
    assert numbers == sorted(numbers)
    assert numbers[-1] == math.inf


def problem(**changes):
    given = {
        "dimension": 2,
        "strong_convexity": 1.0,
        "smoothness": 4.0,
        "smallest_weight": 0.25,
        "clients": 4,
        "start_distance": 1.5,
        "heterogeneity": 3.0,
        "gradient_std": 0.5,
        "temperature": 2.0,
    }
    return LangevinProblem(**{**given, **changes})


GOOD = {"hessians": np.array([np.eye(2)] * 2), "centres": np.zeros((2, 2)), "weights": [0.5, 0.5]}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"step_size": 0.0}, "step_size"),
        ({"local_steps": 0}, "local_steps"),
        ({"correlation": 1.1}, "correlation"),
        ({"temperature": -1.0}, "temperature"),
        ({"averaging": "III"}, "averaging"),
        ({"averaging": "I"}, "cohort"),
        ({"cohort": 2}, "cohort"),
        ({"averaging": "II", "cohort": 3}, "cohort"),
        ({"gradient_covariance": np.zeros((2, 2))}, "covariance"),
    ],
)
def test_chains_that_are_none(change, message):
    with pytest.raises(ParameterError, match=message):
        LangevinChain(**{"target": GaussianTarget(**GOOD), "step_size": 0.1, **change})


def test_scheme_two_needs_equal_weights():
    target = GaussianTarget(**{**GOOD, "weights": [0.4, 0.6]})
    with pytest.raises(ParameterError, match="equal under scheme II"):
        LangevinChain(target=target, step_size=0.1, averaging="II", cohort=1)


def test_privacy_refuses_batches():
    chain = LangevinChain(
        target=GaussianTarget(**GOOD), step_size=0.1, gradient_covariance=np.array([np.eye(2)] * 2)
    )
    with pytest.raises(ParameterError, match="gradient_covariance"):
        langevin.upload_gdp(chain, client=0, difference=1.0)
    quiet = LangevinChain(target=GaussianTarget(**GOOD), step_size=0.1)
    with pytest.raises(ParameterError, match="client"):
        langevin.upload_gdp(quiet, client=2, difference=1.0)
