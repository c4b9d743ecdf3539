"""FA-HMC's exact laws against the algorithm itself, and the loss of its momentum."""

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.mechanisms import FederatedHamiltonian
from fedprivacy.papers.fa_hmc.bounds import HamiltonianProblem
from fedprivacy.systems.fa_hmc import law as hamiltonian
from fedprivacy.systems.fa_hmc.law import DebiasedLaws, DynamicSteps, HamiltonianChain
from fedprivacy.systems.fa_ld import law as langevin
from fedprivacy.theory import gaussian
from fedprivacy.theory.gaussian import Normal, point, w2
from fedprivacy.theory.targets import GaussianTarget, w2_curve
from tests.systems.fa_hmc.test_loop import debiased, target

SHARES = np.array([1.0, 2.0, 3.0]) / 6.0


def test_laws_agree_with_each_other():
    loop = debiased()
    start = point(np.array([1.0, -2.0]))
    for laws in (loop.exact_laws, DebiasedLaws(chain=replace(loop.exact_laws.chain))):
        stepped = list(zip(range(6), laws.laws(start), strict=False))
        for number, law in stepped:
            jumped = laws.law(start, number)
            assert np.allclose(law.mean, jumped.mean) and np.allclose(
                law.covariance, jumped.covariance
            )
    assert np.allclose(laws.stationary().covariance, laws.law(start, 400).covariance)
    assert len(w2_curve(laws, start, 5)) == 6


def test_clients_with_one_hessian_have_the_plain_chains_law_a_round_late():
    # Then every client pulls to the common mode once it has the mean gradient.
    chain = HamiltonianChain(
        target=target(kinds=1), step_size=0.3, leapfrog_steps=2, iterations=3, correlation=0.2
    )
    laws, start = DebiasedLaws(chain=chain), point(np.array([3.0, 1.0]))
    late = laws.law(start, 1)
    for rounds in (1, 2, 5):
        ours, plain = laws.law(start, rounds), chain.law(late, rounds - 1)
        assert np.allclose(ours.mean, plain.mean) and np.allclose(ours.covariance, plain.covariance)


def test_the_mean_is_the_posteriors_where_the_plain_chains_is_not():
    chain = HamiltonianChain(target=target(), step_size=0.2, leapfrog_steps=3, iterations=20)
    goal, plain = chain.target.law(), chain.local_round(0).average.stationary()
    ours = DebiasedLaws(chain=chain).stationary()
    assert np.allclose(ours.mean, goal.mean, rtol=0.0, atol=1e-12)
    assert np.linalg.norm(plain.mean - goal.mean) > 0.05
    assert w2(ours, goal) < 0.6 * w2(plain, goal)


def symmetric(matrix):
    return (matrix + np.swapaxes(matrix, -1, -2)) / 2


def random_target(seed, clients=3, size=2, low=0.3, high=2.5):
    generator = np.random.default_rng(seed)
    hessians = []
    for _ in range(clients):
        q, _ = np.linalg.qr(generator.normal(size=(size, size)))
        hessians.append((q * generator.uniform(low, high, size)) @ q.T)
    return GaussianTarget(
        hessians=symmetric(np.array(hessians)),
        centres=generator.normal(size=(clients, size)),
        weights=generator.dirichlet(np.full(clients, 4.0)),
    )


# Algorithms 1 to 3, written out.


def leapfrog(gradient, theta, momentum, eta, steps, noise, reused):
    """Algorithm 1. ``noise``: (K, 2, d); with ``reused`` the gradient at a step's end stays."""
    begin = gradient(theta) + noise[0, 0]
    for k in range(steps):
        if not reused and k:
            begin = gradient(theta) + noise[k, 0]
        theta = theta + eta * momentum - eta**2 / 2 * begin
        end = gradient(theta) + (noise[k, 1] if not reused or k == steps - 1 else noise[k + 1, 0])
        momentum = momentum - eta / 2 * begin - eta / 2 * end
        begin = end
    return theta


def hamiltonian_round(target, chain, theta, common, own, queries, index):
    """Algorithm 3's T iterations. common: (T, d), own: (T, N, d), queries: (T, N, K, 2, d)."""
    local = np.repeat(theta[None], target.clients, axis=0)
    rho = chain.correlation
    for t in range(chain.iterations):
        eta = chain.step_size
        if isinstance(eta, DynamicSteps):
            eta = eta.at(index * chain.iterations + t)
        for c in range(target.clients):
            private = math.sqrt((1 - rho) / target.shares[c]) * own[t, c]
            local[c] = leapfrog(
                lambda x, c=c: target.hessians[c] @ (x - target.centres[c]),
                local[c],
                math.sqrt(rho) * common[t] + private,
                eta,
                chain.leapfrog_steps,
                chain.gradient_std * queries[t, c],
                chain.gradient_reused,
            )
    return local


def shapes(target, chain):
    t, n, d = chain.iterations, target.clients, target.dimension
    return (t, d), (t, n, d), (t, n, chain.leapfrog_steps, 2, d)


def responses(target, chain, index=0, skip_common=False):
    """The round's end at rest, its matrix and its answers to a unit of every noise."""
    quiet = [np.zeros(s) for s in shapes(target, chain)]
    base = hamiltonian_round(target, chain, np.zeros(target.dimension), *quiet, index).reshape(-1)
    moved = [
        hamiltonian_round(target, chain, e, *quiet, index).reshape(-1) - base
        for e in np.eye(target.dimension)
    ]
    answers = []
    for kind, shape in enumerate(shapes(target, chain)):
        if skip_common and kind == 0:
            continue
        for position in itertools.product(*(range(s) for s in shape)):
            noise = [q.copy() for q in quiet]
            noise[kind][position] = 1.0
            end = hamiltonian_round(target, chain, np.zeros(target.dimension), *noise, index)
            answers.append(end.reshape(-1) - base)
    return base, np.array(moved).T, np.array(answers).T


CHAINS = [
    {"step_size": 0.3, "leapfrog_steps": 1, "iterations": 1},
    {"step_size": 0.3, "leapfrog_steps": 5, "iterations": 3, "correlation": 0.4},
    {"step_size": 1.1, "leapfrog_steps": 3, "iterations": 2, "correlation": 1.0},
    {"step_size": 0.2, "leapfrog_steps": 4, "iterations": 2, "gradient_std": 0.7},
    {
        "step_size": 0.2,
        "leapfrog_steps": 4,
        "iterations": 2,
        "gradient_std": 0.7,
        "gradient_reused": True,
        "correlation": 0.5,
    },
    {"step_size": 0.4, "leapfrog_steps": 1, "gradient_std": 1.5, "gradient_reused": True},
    {"step_size": DynamicSteps(stages=((0.4, 3), (0.2, 1))), "leapfrog_steps": 2, "iterations": 2},
]


@pytest.mark.parametrize("settings", CHAINS, ids=range(len(CHAINS)))
def test_laws_are_the_algorithms(settings):
    target = random_target(1)
    chain = HamiltonianChain(target=target, **settings)
    law = Normal(mean=np.array([1.0, -2.0]), covariance=np.diag([0.5, 0.1]))
    laws = chain.laws(law)
    next(laws)
    average = np.kron(target.shares, np.eye(2))
    for index in range(3):
        base, left, noise = responses(target, chain, index)
        left, noise = average @ left, average @ noise
        law = Normal(
            mean=average @ base + left @ law.mean,
            covariance=symmetric(left @ law.covariance @ left.T + noise @ noise.T),
        )
        found = next(laws)
        assert found.mean == pytest.approx(law.mean, rel=1e-11, abs=1e-12)
        assert found.covariance == pytest.approx(law.covariance, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("reused", [False, True])
def test_how_many_queries_count(reused):
    """2 K - 1 with a fresh gradient at every turn, K where the end's gradient is used again."""
    target = random_target(0, clients=1, size=1)
    chain = HamiltonianChain(
        target=target, step_size=0.3, leapfrog_steps=5, gradient_std=1.0, gradient_reused=reused
    )
    _, _, answers = responses(target, chain, skip_common=True)
    queries = answers[0][1:]
    assert np.count_nonzero(np.abs(queries) > 1e-12) == (5 if reused else 9)
    values = target.spectra[0]
    assert chain._query_variance(values, 0.3).sum() == pytest.approx(queries @ queries, rel=1e-11)


@pytest.mark.parametrize("lam, eta, steps", [(1.0, 0.1, 40), (2.5, 0.9, 7), (1e-4, 0.01, 3)])
def test_leapfrog_in_extended_precision(lam, eta, steps):
    mpmath.mp.dps = 40
    step, curve = mpmath.mpf(eta), mpmath.mpf(lam)
    once = mpmath.matrix(
        [
            [1 - step**2 * curve / 2, step],
            [-step * curve * (1 - step**2 * curve / 4), 1 - step**2 * curve / 2],
        ]
    )
    power = once**steps
    turned, pushed = hamiltonian.leapfrog(np.array([lam]), eta, steps)
    assert turned[0] == pytest.approx(float(power[0, 0]), rel=1e-12)
    assert pushed[0] == pytest.approx(float(power[0, 1]), rel=1e-12)


# One leapfrog step is FA-LD with step eta^2 / 2 and correlation sqrt(rho).


def test_one_step_is_langevin_path_by_path():
    target = random_target(3)
    chain = HamiltonianChain(target=target, step_size=0.4, iterations=6, correlation=0.3)
    generator = np.random.default_rng(0)
    common, own = generator.normal(size=(6, 2)), generator.normal(size=(6, 3, 2))
    start = np.array([1.0, 2.0])
    one = hamiltonian_round(target, chain, start, common, own, np.zeros((6, 3, 1, 2, 2)), 0)
    eta, rho = 0.4**2 / 2, math.sqrt(0.3)
    two = np.repeat(start[None], 3, axis=0)
    for k in range(6):
        gradient = np.einsum("cij,cj->ci", target.hessians, two - target.centres)
        shared = math.sqrt(2 * eta * rho**2) * common[k]
        private = np.sqrt(2 * eta * (1 - rho**2) / target.shares)[:, None] * own[k]
        two = two - eta * gradient + shared + private
    assert one == pytest.approx(two, rel=1e-13)


@pytest.mark.parametrize("averaging, cohort", [("full", None), ("I", 2)])
def test_one_step_is_langevin_in_law_and_in_privacy(averaging, cohort):
    target, way = random_target(3), {"averaging": averaging, "cohort": cohort}
    one = HamiltonianChain(target=target, step_size=0.4, iterations=5, correlation=0.3, **way)
    two = langevin.LangevinChain(
        target=target, step_size=0.08, local_steps=5, correlation=math.sqrt(0.3), **way
    )
    start = point([1.0, 2.0])
    assert w2_curve(one, start, 20) == pytest.approx(w2_curve(two, start, 20), rel=1e-11)
    numbers = [
        module.transcript_gdp(chain, client=1, difference=0.2, rounds=3)
        for module, chain in ((hamiltonian, one), (langevin, two))
    ]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-12)


# Privacy of the momentum on quadratics.

TABLE = {
    1: 0.05,
    2: 0.10025126,
    5: 0.25513349,
    10: 0.54588969,
    20: 1.55688779,
    30: 14.20978,
    31: 49.55959,
    40: 2.17750,
}


@pytest.mark.parametrize("steps", TABLE)
def test_momentum_table(steps):
    assert hamiltonian.momentum_gdp(1.0, 0.1, steps, 1.0, 1.0) == pytest.approx(
        TABLE[steps], rel=3e-6
    )


@pytest.mark.parametrize("steps", [1, 2, 5, 20, 31])
@pytest.mark.parametrize("lam, eta", [(1.0, 0.1), (3.0, 0.7), (0.01, 0.3)])
def test_momentum_closed_form(steps, lam, eta):
    mpmath.mp.dps = 40
    step, curve = mpmath.mpf(eta), mpmath.mpf(lam)
    turn = mpmath.acos(1 - step**2 * curve / 2)
    true = mpmath.mpf(2) / (mpmath.mpf(0.5) * mpmath.sqrt(curve))
    true *= mpmath.sqrt(1 - step**2 * curve / 4) * abs(mpmath.tan(steps * turn / 2))
    found = hamiltonian.momentum_gdp(lam, eta, steps, 2.0, 0.5)
    assert found == pytest.approx(float(true), rel=1e-10)


@pytest.mark.parametrize(
    "steps, eta", [(2, math.sqrt(2)), (3, 1.0), (4, math.sqrt(2 - math.sqrt(2)))]
)
def test_infinite_loss_where_the_momentum_cancels(steps, eta):
    assert hamiltonian.momentum_gdp(1.0, eta, steps, 1e-6, 1.0) == math.inf
    target = GaussianTarget(hessians=np.ones((1, 1, 1)), centres=np.zeros((1, 1)))
    chain = HamiltonianChain(target=target, step_size=eta, leapfrog_steps=steps)
    assert hamiltonian.upload_gdp(chain, client=0, difference=1e-6) == math.inf
    noisy = HamiltonianChain(target=target, step_size=eta, leapfrog_steps=steps, gradient_std=1.0)
    assert hamiltonian.upload_gdp(noisy, client=0, difference=1.0) < math.inf


def test_a_full_turn_shows_nothing():
    """K phi = 2 pi: the trajectory ends where it began, whatever the data."""
    assert hamiltonian.momentum_gdp(1.0, 1.0, 6, 1.0, 1.0) == 0.0


def test_linear_in_the_steps_under_the_papers_condition():
    """K eta sqrt(L) <= 1 keeps mu below 2 tan(1/2) = 1.0926 times K eta g / (2 sd)."""
    generator = np.random.default_rng(1)
    for _ in range(300):
        steps, lam = int(generator.integers(1, 60)), float(10 ** generator.uniform(-3, 3))
        eta = float(generator.uniform(0.01, 1.0)) / (steps * math.sqrt(lam))
        ratio = hamiltonian.momentum_gdp(lam, eta, steps, 1.0, 1.0) / (steps * eta / 2)
        assert ratio <= 2 * math.tan(0.5) * (1 + 1e-12)
        assert ratio >= 1 - eta**2 * lam / 4


@pytest.mark.parametrize("settings", CHAINS, ids=range(len(CHAINS)))
def test_an_upload_by_its_law(settings):
    """A client's upload given the shared momentum: mean and covariance from the algorithm."""
    target, client, difference = random_target(2), 1, np.array([0.3, -0.1])
    chain = HamiltonianChain(target=target, **settings)
    pulled = np.linalg.solve(target.hessians[client], difference / target.shares[client])
    moved = GaussianTarget(
        hessians=target.hessians,
        centres=target.centres - np.eye(3)[client][:, None] * pulled,
        weights=target.weights,
    )
    base, _, noise = responses(target, chain, skip_common=True)
    other, _, _ = responses(moved, chain, skip_common=True)
    mine = slice(2 * client, 2 * client + 2)
    true = gaussian.gdp((other - base)[mine], noise[mine] @ noise[mine].T)
    found = hamiltonian.upload_gdp(chain, client=client, difference=difference)
    assert found == pytest.approx(true, rel=1e-8)
    norm = float(np.linalg.norm(difference))
    assert hamiltonian.upload_gdp(chain, client=client, difference=norm) >= found * (1 - 1e-12)


def test_one_step_agrees_with_the_mechanism():
    target = random_target(5)
    chain = HamiltonianChain(target=target, step_size=0.3, correlation=0.4)
    mu = hamiltonian.transcript_gdp(chain, client=0, difference=0.1, rounds=4)
    upload = FederatedHamiltonian(
        step_size=0.3,
        leapfrog_steps=1,
        correlation=0.4,
        weight=float(target.shares[0]),
        batch_fraction=1.0,
        gradient_sensitivity=0.1,
    )
    bound = fp.epsilon(upload * 4, delta=1e-6, adjacency="replace_one")
    assert bound.lower <= gaussian.epsilon(mu, 1e-6) * (1 + 1e-9)
    assert bound.upper == pytest.approx(gaussian.epsilon(mu, 1e-6), rel=1e-6)


def test_gradient_noise_alone_is_bounded_by_composing_the_queries():
    """The sound account of K > 1 (momentum not counted) is never below the exact quadratic one."""
    target = random_target(5)
    for reused, queries in ((False, 7), (True, 4)):
        chain = HamiltonianChain(
            target=target,
            step_size=0.2,
            leapfrog_steps=4,
            gradient_std=2.0,
            gradient_reused=reused,
            correlation=0.9,
        )
        exact = hamiltonian.upload_gdp(chain, client=0, difference=1.0)
        composed = math.sqrt(queries) / (2.0 * target.shares[0])
        assert exact <= composed


def test_alike_coordinates_count_d_times():
    """Section 5.2 of the paper by one coordinate, and by all coordinates."""
    dimension, start = 40, 0.0
    eyes = np.repeat(np.eye(dimension)[None], 2, axis=0) * np.array([1.0, 0.25])[:, None, None]
    centres = np.array([20.0, 1.0])[:, None]
    wide = GaussianTarget(hessians=eyes, centres=np.repeat(centres, dimension, axis=1))
    one = GaussianTarget(hessians=np.array([[[1.0]], [[0.25]]]), centres=centres)
    assert one.law().mean == pytest.approx([16.2])
    assert one.law().covariance == pytest.approx(np.array([[1.6]]))
    settings = {"step_size": 0.02, "leapfrog_steps": 5, "iterations": 10, "correlation": 1.0}
    curves = [
        w2_curve(HamiltonianChain(target=t, **settings), point([start] * t.dimension), 30)
        for t in (wide, one)
    ]
    assert curves[0] == pytest.approx(math.sqrt(dimension) * curves[1], rel=1e-12)


# Theorems.


def problem(**changes):
    given = {
        "dimension": 100,
        "strong_convexity": 0.5,
        "smoothness": 2.0,
        "weights": (0.25,) * 4,
        "correlation": 0.9,
        "gradient_std": 0.3,
        "leapfrog_steps": 5,
        "iterations": 10,
    }
    return HamiltonianProblem(**{**given, **changes})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"weights": (0.5, 0.6)}, "sum to 1"),
        ({"weights": ()}, "weights"),
        ({"smoothness": 0.1}, "smoothness"),
        ({"correlation": 2.0}, "correlation"),
    ],
)
def test_problems_that_are_none(change, message):
    with pytest.raises(ParameterError, match=message):
        problem(**change)
