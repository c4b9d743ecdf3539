"""The training loops do what the papers' pseudo-code says, with noise and without."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from fedprivacy.mechanisms import SparsifiedPerturbation
from fedprivacy.sampling import Everyone
from fedprivacy.systems.fed_plt.proximal import L1
from fedprivacy.theory.targets import GaussianTarget
from fedprivacy.training import (
    AgentData,
    FederatedAveraging,
    FederatedData,
    FederatedSplitting,
    GaussianPosterior,
    HamiltonianSampling,
    LangevinSampling,
    LeastSquares,
    LocalSolver,
    Scaffold,
    logistic,
    train,
)
from tests.reference.papers import algorithms

FAILS = 1e-9
"""Chance that a right loop fails one statistical check; the seeds are fixed."""
CHAINS = 100_000
FEATURES, CLASSES, CLIENTS, RECORDS = 5, 3, 6, 8
pytestmark = pytest.mark.usefixtures("one_thread")


def data():
    generator = np.random.default_rng(11)
    inputs = generator.normal(size=(CLIENTS * RECORDS, FEATURES)).astype(np.float32)
    labels = generator.integers(CLASSES, size=len(inputs))
    return FederatedData(
        name="made up",
        features=torch.from_numpy(inputs),
        labels=torch.from_numpy(labels),
        clients=tuple(np.split(np.arange(len(inputs)), CLIENTS)),
        test_features=torch.from_numpy(inputs[:4]),
        test_labels=torch.from_numpy(labels[:4]),
        num_classes=CLASSES,
    )


def own_clients(held):
    inputs, labels = held.features.numpy().astype(float), held.labels.numpy()
    return [(inputs[rows], labels[rows]) for rows in held.clients]


def averaging(kind=FederatedAveraging, **options):
    usual = {"batch_size": RECORDS, "local_steps": 3, "learning_rate": 0.4, "seed": 1}
    return kind(model=logistic(FEATURES, CLASSES), scheme=Everyone(), **usual | options)


def first(loop):
    return loop.init().parameters.double().numpy()


def test_two_sided_averaging():
    held, loop = data(), averaging(server_learning_rate=1.7)
    settings = {"rounds": 4, "steps": 3, "rate": 0.4, "server_rate": 1.7}
    wanted = algorithms.two_sided_fedavg(first(loop), own_clients(held), CLASSES, **settings)
    found = train(loop, held, rounds=4).state.parameters.numpy()
    assert np.abs(wanted - first(loop)).max() > 0.1
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_scaffold():
    held, loop = data(), averaging(Scaffold)
    settings = {"rounds": 4, "steps": 3, "rate": 0.4}
    wanted = algorithms.scaffold(first(loop), own_clients(held), CLASSES, **settings)
    found = train(loop, held, rounds=4).state.parameters.numpy()
    np.testing.assert_allclose(found, wanted, atol=4e-6)
    plain = averaging()
    assert np.abs(train(plain, held, rounds=4).state.parameters.numpy() - wanted).max() > 1e-3


def test_fed_smp():
    dimension, kept, clip_norm, z = (FEATURES + 1) * CLASSES, 7, 0.3, 0.05
    noise = SparsifiedPerturbation(
        noise_multiplier=z,
        clip_norm=clip_norm,
        kept=kept,
        dimension=dimension,
        cohort=CLIENTS,
        sparsifier="rand_k",
    )
    held, stray, masks = data(), [], set()
    for seed in range(60):
        loop = averaging(perturbation=noise, seed=seed)
        moved = train(loop, held, rounds=1).state.parameters.double().numpy() - first(loop)
        mask = np.flatnonzero(moved)
        assert len(mask) == kept
        masks.add(tuple(mask))
        settings = {"steps": 3, "rate": 0.4, "clip_norm": clip_norm}
        wanted = algorithms.fed_smp_sum(first(loop), own_clients(held), CLASSES, mask, **settings)
        stray.append((moved[mask] * CLIENTS - wanted) / (z * clip_norm))
    assert len(masks) > 50
    # Standard normal, once the sum without noise is taken away.
    squares = float(np.sum(np.square(stray)))
    assert chi2.sf(squares, 60 * kept) > FAILS < chi2.cdf(squares, 60 * kept)
    assert abs(np.sum(stray)) < 6.2 * np.sqrt(60 * kept)


def target():
    generator = np.random.default_rng(5)
    hessians = []
    for _ in range(3):
        root = generator.normal(size=(2, 2))
        hessians.append(root @ root.T + np.eye(2))
    weights = np.array([0.2, 0.3, 0.5])
    return GaussianTarget(
        hessians=np.array(hessians), centres=generator.normal(size=(3, 2)), weights=weights
    )


START = np.array([2.0, -1.0])


def chains(kind, **options):
    posterior = GaussianPosterior(target=target())
    start = torch.from_numpy(START)
    loop = kind(target=posterior, chains=CHAINS, start=start, seed=4, **options)
    return train(loop, None, rounds=3).state.positions.numpy()


def moments(sample, centre):
    """Return distances from a centre, their squares and products, one row for each draw."""
    apart = sample - centre
    return np.hstack([apart, apart**2, apart[:, :1] * apart[:, 1:]])


def same_law(found, other):
    """Compare means and second moments of two samples, in standard errors."""
    centre = (found.mean(0) + other.mean(0)) / 2.0
    one, two = moments(found, centre), moments(other, centre)
    error = np.sqrt((one.var(0) + two.var(0)) / len(one))
    assert (np.abs(one.mean(0) - two.mean(0)) < 6.5 * error).all()


@pytest.mark.fast_cells("0.6")
@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_fa_ld(correlation):
    settings = {"step_size": 0.1, "temperature": 1.5, "correlation": correlation}
    found = chains(LangevinSampling, local_steps=4, **settings)
    start, generator = np.tile(START, (CHAINS, 1)), np.random.default_rng(8)
    own = algorithms.fa_ld(start, target(), generator, rounds=3, steps=4, **settings)
    same_law(found, own)
    # Almost without noise both are one path.
    cold = settings | {"temperature": 1e-26}
    quiet = chains(LangevinSampling, local_steps=4, **cold)
    wanted = algorithms.fa_ld(start, target(), generator, rounds=3, steps=4, **cold)
    np.testing.assert_allclose(quiet, wanted, atol=1e-11)


@pytest.mark.parametrize(("correlation", "steps"), [(0.0, 1), (0.3, 3)])
def test_fa_hmc(correlation, steps):
    settings = {"iterations": 2, "step_size": 0.3, "correlation": correlation}
    found = chains(HamiltonianSampling, leapfrog_steps=steps, **settings)
    start, generator = np.tile(START, (CHAINS, 1)), np.random.default_rng(8)
    same_law(
        found, algorithms.fa_hmc(start, target(), generator, rounds=3, steps=steps, **settings)
    )


def agents():
    generator = np.random.default_rng(3)
    found = []
    for size in (7, 12, 5):
        inputs = generator.normal(size=(size, 2))
        found.append((inputs, inputs @ generator.normal(size=2) + generator.normal(size=size)))
    return found


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_fed_plt(noise):
    held, shape = agents(), {"steps": 4, "step_size": 0.2}
    kind = {"method": "noisy", "noise_scale": noise, "clip_norm": 1e6} if noise else {}
    runs = CHAINS // 4 if noise else 1
    loop = FederatedSplitting.on(
        AgentData.of(held),
        loss=LeastSquares(regularisation=0.5),
        penalty=0.8,
        solver=LocalSolver(**shape, **kind),
        regulariser=L1(0.3),
        runs=runs,
        seed=2,
    )
    found = train(loop, AgentData.of(held), rounds=5).state.auxiliary.numpy()

    def shrunk(point, step):
        return np.sign(point) * np.maximum(np.abs(point) - 0.3 * step, 0.0)

    own = algorithms.fed_plt(
        held,
        shrunk,
        np.random.default_rng(9),
        rounds=5,
        penalty=0.8,
        noise_std=np.sqrt(2 * 0.2) * noise,
        runs=runs,
        **shape,
    )
    if not noise:
        np.testing.assert_allclose(found, own, atol=1e-12)
        return
    for agent in range(3):
        same_law(found[:, agent], own[:, agent])
