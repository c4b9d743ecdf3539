"""Neighbouring runs with the randomness replayed differ in what is accounted, in nothing else.

Sizes, cohorts, masks, stds, denominators, what the ledger holds and what is said are the same; the
released parameters move by no more than a clipped contribution. Fixed seeds: no chance of failing.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedprivacy.ledger import Ledger
from fedprivacy.mechanisms import Gaussian, SparsifiedPerturbation
from fedprivacy.sampling import Everyone, FixedSize, Poisson, WithReplacement
from fedprivacy.training import (
    AgentData,
    FederatedAveraging,
    FederatedSplitting,
    HamiltonianSampling,
    LangevinSampling,
    LocalSolver,
    Logistic,
    Posterior,
    SoftmaxRegression,
    logistic,
)

from .test_samplers import records
from .test_training import small

SCHEMES = {
    "everyone": Everyone(),
    "fixed": FixedSize(3, 6),
    "poisson": Poisson(0.5),
    "replacement": WithReplacement(3, 6),
}
ROUNDING = 1e-5
"""Of the allowed move: parameters are released in single precision."""


def averaging(kind, scheme, seed):
    """A loop, a data set, the same with one client's records replaced, how far that may move."""
    generator, clip = np.random.default_rng(seed), 0.5
    noise = Gaussian(noise_multiplier=2.0, clip_norm=clip, unit="client")
    if kind != "dp-fedavg":
        size = {"everyone": 6}.get(scheme, 3)
        noise = SparsifiedPerturbation(
            noise_multiplier=2.0,
            clip_norm=clip,
            kept=5,
            dimension=8,
            cohort=size,
            sparsifier=kind,
            topped_up=scheme == "poisson",
        )
    loop = FederatedAveraging(
        model=logistic(3, 2),
        scheme=SCHEMES[scheme],
        perturbation=noise,
        local_steps=2,
        batch_size=3,
        learning_rate=float(10 ** generator.uniform(-2, 2)),
        expected_cohort=3,
        seed=seed,
    )
    one = small()
    features, labels = one.features.clone(), one.labels.clone()
    rows = one.clients[int(generator.integers(6))]
    scale = 10 ** generator.uniform(-2, 6)
    features[rows] = torch.from_numpy(scale * generator.normal(size=(4, 3))).float()
    labels[rows] = 1 - labels[rows]
    other = replace(one, features=features, labels=labels)
    drawn = loop.scheme.draw(6, loop._generator("cohort", 0))
    times = max(np.bincount(drawn, minlength=6)) if len(drawn) else 0
    return (loop, one), (loop, other), 2.0 * clip * times / 3.0


def sampler(kind, scheme, seed):
    generator, clip = np.random.default_rng(seed), 0.1
    one = records((7, 5, 6))
    features = one.features.clone()
    features[int(generator.integers(18))] *= float(-(10 ** generator.uniform(-2, 3)))
    options = {"averaging": scheme, "cohort": None if scheme == "full" else 2, "seed": seed}
    runs = []
    for data in (one, replace(one, features=features)):
        target = Posterior(
            model=SoftmaxRegression(4, 3), data=data, clip_norm=clip, weights=[1 / 3, 1 / 3, 1 / 3]
        )
        if kind == "fa-ld":
            loop = LangevinSampling(target=target, step_size=0.05, batch_fraction=0.5, **options)
            move = 0.05
        else:
            loop = HamiltonianSampling(
                target=target, step_size=0.3, gradient_noise_multiplier=0.5, **options
            )
            move = 0.5 * 0.3**2
        fraction = min(loop.target.batch_sizes(loop.batch_fraction)[1])
        runs.append((loop, None))
    return runs[0], runs[1], move * 2.0 * clip / fraction * 3.0


def splitting(kind, scheme, seed):
    del kind
    generator = np.random.default_rng(seed)
    solver = LocalSolver(method="noisy", steps=1, step_size=0.4, noise_scale=0.3, clip_norm=0.2)
    parts = [(generator.normal(size=(5, 3)), np.ones(5)) for _ in range(4)]
    other = [(inputs.copy(), targets.copy()) for inputs, targets in parts]
    other[int(generator.integers(4))][0][0] *= -(10 ** generator.uniform(-2, 6))
    participation = FixedSize(2, 4) if scheme == "fixed" else (0.5 if scheme == "poisson" else 1.0)
    options = {"solver": solver, "penalty": 1.0, "participation": participation, "seed": seed}
    runs = []
    for held in (parts, other):
        data = AgentData.of(held)
        loop = FederatedSplitting.on(data, loss=Logistic(regularisation=0.1), **options)
        runs.append((loop, data))
    return runs[0], runs[1], 0.4 * 2.0 * 0.2 / 5.0


SETTINGS = [
    *((averaging, kind, s) for kind in ("dp-fedavg", "top_k", "rand_k") for s in SCHEMES),
    *((sampler, kind, s) for kind in ("fa-ld", "fa-hmc") for s in ("full", "I", "II")),
    *((splitting, "fed-plt", s) for s in ("everyone", "fixed", "poisson")),
]


def released(state):
    return next(
        getattr(state, name).double()
        for name in ("parameters", "positions", "models")
        if hasattr(state, name)
    )


def recorded(path):
    """What a ledger says of its rounds, without the moment and the salt of its own."""
    return [(r.mechanism, r.clip_norm, r.noise_std, r.done, r.aborted) for r in path.rounds]


def compared(make, kind, scheme, seed, folder):
    """Run both; return how far the release moved over what is allowed."""
    *runs, allowed = make(kind, scheme, seed)
    ends, infos, books = [], [], []
    for number, (loop, data) in enumerate(runs):
        path = folder / f"{seed}-{number}.ledger"
        unit = "client" if make is averaging else "record"
        with Ledger.create(path, unit=unit, adjacency="replace_one", seed_policy="fixed") as ledger:
            state, info = loop.step(loop.init(), data, ledger=ledger)
            ledger.close()
        ends.append(released(state))
        infos.append(info)
        books.append((recorded(Ledger.open(path)), path.stat().st_size))
    assert infos[0] == infos[1] and books[0] == books[1]
    moved = float((ends[0] - ends[1]).norm())
    slack = ROUNDING * allowed + 1e-6 * float(ends[0].norm())
    assert moved <= allowed + slack
    return moved / allowed if allowed else 0.0


IDS = [f"{kind}-{scheme}" for _, kind, scheme in SETTINGS]


@pytest.mark.parametrize(("make", "kind", "scheme"), SETTINGS, ids=IDS)
def test_neighbours_differ_in_what_is_accounted(make, kind, scheme, tmp_path):
    moved = [compared(make, kind, scheme, seed, tmp_path) for seed in range(10, 16)]
    assert max(moved) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("make", "kind", "scheme"), SETTINGS, ids=IDS)
def test_many_neighbours_differ_in_what_is_accounted(make, kind, scheme, tmp_path):
    """25 pairs of each of 21 settings: 525."""
    moved = [compared(make, kind, scheme, seed, tmp_path) for seed in range(100, 125)]
    assert max(moved) > 0.1
