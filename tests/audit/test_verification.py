"""Conformance by replay: correct mechanisms pass, and each fault is named."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp

SHARES = {"noise_multiplier": 1.0, "clip_norm": 2.0, "kept": 5, "dimension": 12, "cohort": 6}
RELEASE = [
    fp.Gaussian(noise_multiplier=2.0, clip_norm=0.3),
    fp.Laplace(noise_multiplier=2.0, clip_norm=3.0),
    fp.SparsifiedPerturbation(**SHARES),
    fp.SparsifiedPerturbation(**SHARES, topped_up=True),
    fp.SparsifiedPerturbation(**{**SHARES, "kept": 12}, sparsifier="top_k"),
]
STEPS = {"batch_fraction": 1.0, "gradient_sensitivity": 2.0, "weight": 0.1, "step_size": 0.1}
UPLOAD = [
    fp.FederatedLangevin(temperature=1.0, correlation=0.2, **STEPS),
    fp.FederatedHamiltonian(leapfrog_steps=1, correlation=0.2, **STEPS),
    fp.NoisyGradientDescent(step_size=0.1, noise_std=1.0, sensitivity=1.0, steps=1),
]


def seeded(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("mechanism", [*RELEASE, *UPLOAD], ids=lambda one: type(one).__name__)
def test_every_mechanism_releases_what_is_certified_of_it(mechanism):
    """A sound mechanism would fail with probability 10^-3; the seed is fixed."""
    found = fp.verify(mechanism, draws=60, generator=seeded())
    assert found.passed, found
    assert found.error_rate == 1e-3
    names = [one.name for one in found.findings]
    assert names.count("movement") == (0 if mechanism in UPLOAD else 3 - (names.count("scale") < 2))


# ---- a user-defined release, and its faults

CLIP, STD = 1.0, 2.0


def clip(updates, limit=CLIP):
    return updates / np.maximum(np.linalg.norm(updates, axis=1, keepdims=True) / limit, 1.0)


def gaussian(updates, generator, std=STD):
    return clip(updates).sum(axis=0) + generator.normal(0.0, std, updates.shape[1])


def two_rounds(updates, generator, reuse=False):
    first = generator.normal(0.0, STD, updates.shape[1])
    second = first if reuse else generator.normal(0.0, STD, updates.shape[1])
    return clip(updates).sum(axis=0) + np.stack([first, second])


def alternating(updates, generator):
    """Draw sizes once for all coordinates: every sign is fair, every coordinate normal."""
    size = abs(generator.normal(0.0, STD))
    signs = generator.integers(0, 2, updates.shape[1]) * 2 - 1
    return clip(updates).sum(axis=0) + size * signs


def laplace(updates, generator):
    return clip(updates).sum(axis=0) + generator.laplace(0.0, STD / math.sqrt(2.0), 12)


def by_layer(updates, generator):
    parts = [clip(part) for part in np.split(updates, 3, axis=1)]
    return np.hstack(parts).sum(axis=0) + generator.normal(0.0, STD, 12)


def dependent(updates, generator):
    total = clip(updates).sum(axis=0)
    return total + generator.normal(0.0, STD, 12) * (1.0 + 0.5 * (len(updates) > 3))


def weighted(updates, generator):
    """Norms add up to C, but not vectors: two halves weigh more than a whole."""
    sizes = np.linalg.norm(updates, axis=1, keepdims=True)
    scaled = clip(updates) * np.minimum(1.0, 1.0 / np.maximum(sizes, 1e-12)) ** 0.5
    return scaled.sum(axis=0) + np.sign(updates[0]) * 1e-2 + generator.normal(0.0, STD, 12)


FAULTS = {
    "movement": [
        lambda u, g: u.sum(axis=0) + g.normal(0.0, STD, 12),
        lambda u, g: clip(u, 2.0).sum(axis=0) + g.normal(0.0, STD, 12),
        lambda u, g: clip(u).clip(-0.9, 0.9).sum(axis=0) * 1.2 + g.normal(0.0, STD, 12),
        by_layer,
    ],
    "scale": [lambda u, g: gaussian(u, g, 0.95 * STD), dependent],
    "shape": [laplace],
    "coordinates": [
        lambda u, g: clip(u).sum(axis=0) + g.normal(0.0, STD),
        alternating,
    ],
    "rounds": [lambda u, g: two_rounds(u, g, reuse=True)],
    "fresh noise": [lambda u, g: gaussian(u, seeded(7))],
    "replay": [lambda u, g: gaussian(u, np.random.default_rng())],
    "equal sums": [weighted],
}


@pytest.mark.parametrize("right", [gaussian, two_rounds])
def test_what_is_as_stated_passes(right):
    found = fp.verify(right, clip_norm=CLIP, noise_std=STD, generator=seeded(1))
    assert found.passed and found.failures == (), found


@pytest.mark.parametrize("name, wrong", [(name, f) for name in FAULTS for f in FAULTS[name]])
def test_each_fault_is_named(name, wrong):
    settings = {"clip_norm": CLIP, "noise_std": STD, "pairs": 200, "draws": 400}
    found = fp.verify(wrong, **settings, generator=seeded(2))
    assert not found.passed and name in found.failures, found
    assert f"FAIL {name}" in str(found)


def test_held_noise_that_does_not_line_up_is_judged_by_means():
    def shuffled(updates, generator):
        generator.random(int(1e3 * abs(updates).sum()) % 7)
        return gaussian(updates, generator)

    def moved(updates, generator):
        generator.random(int(1e3 * abs(updates).sum()) % 7)
        return clip(updates, 3.0).sum(axis=0) + generator.normal(0.0, 0.2, 12)

    settings = {"clip_norm": CLIP, "pairs": 50, "generator": seeded(3)}
    found = fp.verify(shuffled, noise_std=STD, **settings)
    assert found.passed and "so means are compared" in str(found)
    found = fp.verify(moved, noise_std=0.2, **settings)
    assert "movement" in found.failures and "so means are compared" in str(found)


def test_an_average_over_those_who_came_is_accused_and_over_a_public_number_is_not():
    def average(updates, generator, fixed=None):
        return gaussian(updates, generator) / (fixed or len(updates))

    settings = {"clip_norm": CLIP / 4, "noise_std": STD / 4, "generator": seeded(4)}
    assert "scale" in fp.verify(average, **settings).failures
    assert fp.verify(lambda u, g: average(u, g, 4), **settings).passed
    assert fp.verify(average, **settings, adjacency="zero_out").passed


# ---- a loop


def averaging(noise):
    """A round of federated averaging on a linear model: a record is its client's gradient."""
    import torch

    from fedprivacy.training import FederatedAveraging, FederatedData

    class Zero(torch.nn.Linear):
        def reset_parameters(self):
            torch.nn.init.zeros_(self.weight)

    def release(updates, generator):
        records = torch.as_tensor(updates, dtype=torch.float32)
        labels = torch.zeros(len(records), dtype=torch.int64)
        data = FederatedData(
            name="one record a client",
            features=records,
            labels=labels,
            test_features=records[:1],
            test_labels=labels[:1],
            clients=tuple(np.array([row]) for row in range(len(records))),
            num_classes=2,
        )
        loop = FederatedAveraging(
            model=lambda: Zero(updates.shape[1], 2, bias=False),
            scheme=fp.Everyone(),
            perturbation=noise,
            local_steps=1,
            learning_rate=1.0,
            expected_cohort=4,
            seed=int(generator.integers(2**31)),
            device="cpu",
        )
        state, _ = loop.step(loop.init(), data)
        return 4.0 * state.parameters.numpy()

    return release


def sampling(kind, **options):
    """A round of FA-LD or FA-HMC at one client: a record is its own gradient."""
    import fedprivacy.training as training

    def release(updates, generator):
        target = training.Posterior.of(
            lambda parameters, inputs: -(inputs @ parameters),
            clients=[updates],
            dimension=updates.shape[1],
            clip_norm=1.0,
            prior_precision=0.0,
        )
        seed = int(generator.integers(2**31))
        loop = getattr(training, kind)(target=target, seed=seed, **options)
        return loop.step(loop.init())[0].positions[0].numpy()

    return release


def splitting(updates, generator):
    """A round of Fed-PLT at one agent, whose records' gradients are clipped; z is released."""
    import torch

    from fedprivacy.training import AgentData, FederatedSplitting, LocalSolver, Logistic

    settings = {"steps": 1, "step_size": 0.2, "noise_scale": 0.5, "clip_norm": 1.0}
    features = torch.as_tensor(updates)[None]
    data = AgentData(features, torch.ones(features.shape[:2], dtype=features.dtype))
    loop = FederatedSplitting.on(
        data,
        loss=Logistic(regularisation=0.1),
        solver=LocalSolver(method="noisy", **settings),
        penalty=1.0,
        seed=int(generator.integers(2**31)),
    )
    return loop.step(loop.init(), data)[0].auxiliary[0].numpy()


WHOLE = fp.Gaussian(noise_multiplier=2.0, clip_norm=1.0, unit="client")
SUMMED = fp.SparsifiedPerturbation(
    noise_multiplier=2.0, clip_norm=1.0, kept=24, dimension=24, cohort=4
)
HMC = {"step_size": 0.6, "leapfrog_steps": 1, "gradient_noise_multiplier": 1.5}
LOOPS = {
    "dp-fedavg": (lambda: averaging(WHOLE), 1.0, 2.0),
    "fed-smp": (lambda: averaging(SUMMED), 1.0, 2.0),
    # x - eta g + N(0, 2 eta T): a record moves it by 2 eta C
    "fa-ld": (
        lambda: sampling("LangevinSampling", step_size=0.3, temperature=4.0),
        0.3,
        math.sqrt(2 * 0.3 * 4.0),
    ),
    # x + h p - h^2 / 2 (g + N(0, (2 z C)^2)), p the momentum
    "fa-hmc": (
        lambda: sampling("HamiltonianSampling", **HMC),
        0.6**2 / 2,
        math.hypot(0.6, 0.6**2 / 2 * 2 * 1.5),
    ),
    # z = 2 x, x = -gamma g / q + N(0, 2 gamma tau^2), of q = 4 records
    "fed-plt": (lambda: splitting, 2 * 0.2 / 4, 2 * math.sqrt(2 * 0.2) * 0.5),
}


def judged(name, pairs, draws, quieter=1.0):
    pytest.importorskip("torch")
    build, clip_norm, std = LOOPS[name]
    few = {"pairs": pairs, "draws": draws, "adjacency": "replace_one", "generator": seeded(6)}
    return fp.verify(build(), clip_norm=clip_norm / quieter, noise_std=std, **few)


@pytest.mark.parametrize("name", LOOPS)
def test_a_round_of_every_loop(name):
    found = judged(name, 2, 20)
    assert found.passed, found
    assert judged(name, 6, 20, quieter=50.0).failures == ("movement",)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_a_round_of_every_loop_on_500_pairs(name):
    found = judged(name, 500, 400)
    assert found.passed, found


# ---- refusals


@pytest.mark.parametrize(
    "release, change, name",
    [
        (3, {}, "release"),
        (fp.RandomizedResponse(chance=0.5, answers=2), {}, "release"),
        (gaussian, {"clip_norm": None}, "clip_norm"),
        (gaussian, {"noise_std": -1.0}, "noise_std"),
        (gaussian, {"shape": "uniform"}, "shape"),
        (gaussian, {"units": 1}, "units"),
        (gaussian, {"pairs": 0}, "pairs"),
        (gaussian, {"draws": 19}, "draws"),
        (gaussian, {"level": 0.0}, "level"),
        (gaussian, {"adjacency": "any"}, "adjacency"),
        (RELEASE[2], {"adjacency": "add_remove"}, "adjacency"),
        (lambda u, g: np.full(3, np.nan), {}, "release's result"),
        (lambda u, g: np.zeros((2, 2, 2)), {}, "release's result"),
    ],
)
def test_what_is_refused(release, change, name):
    settings = {"clip_norm": CLIP, "noise_std": STD, "generator": seeded()}
    with pytest.raises(fp.ParameterError, match=f"^{name} must"):
        fp.verify(release, **{**settings, **change})


def _clipped(updates):
    return updates / np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), 1.0)


def _noisy_at_zeros_only(updates, generator):
    total = _clipped(updates).sum(axis=0)
    return total + generator.normal(0.0, 2.0, total.shape) * (0.0 if total.any() else 1.0)


def _less_noise_for_long_updates(updates, generator):
    total = _clipped(updates).sum(axis=0)
    less = 0.7 if np.linalg.norm(updates) > 1e3 else 1.0
    return total + generator.normal(0.0, 2.0, total.shape) * less


def _more_noise_for_long_sums(updates, generator):
    total = _clipped(updates).sum(axis=0)
    more = 1.3 if np.linalg.norm(total) > 1.5 else 1.0
    return total + generator.normal(0.0, 2.0, total.shape) * more


def _wrong_below_the_clip_norm(updates, generator):
    sent, norms = _clipped(updates), np.linalg.norm(updates, axis=1)
    sent[(norms > 0.1) & (norms < 0.9)] *= 50.0
    return sent.sum(axis=0) + generator.normal(0.0, 2.0, updates.shape[1])


@pytest.mark.parametrize(
    ("release", "failure"),
    [
        (_noisy_at_zeros_only, "noise of data"),
        (_less_noise_for_long_updates, "noise of data"),
        (_more_noise_for_long_sums, "noise of data"),
        (_wrong_below_the_clip_norm, "movement"),
    ],
)
def test_noise_and_clipping_are_looked_at_where_data_are_not_zeros(release, failure):
    rng = np.random.default_rng(5)
    found = fp.verify(release, clip_norm=1.0, noise_std=2.0, pairs=50, generator=rng)
    assert failure in found.failures


# ---- integers

LATTICE = {"noise_multiplier": 1.0, "clip_norm": 2.0, "dimension": 12, "cohort": 6, "bits": 14}


@pytest.mark.parametrize("kind", [fp.DistributedDiscreteGaussian, fp.Skellam])
@pytest.mark.parametrize(
    "more",
    [
        {"rotated": False, "granularity": 0.5},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"kept": 5}, marks=pytest.mark.slow),
    ],
)
def test_whole_numbers_are_as_certified(kind, more):
    """A sound mechanism would fail with probability 10^-3; the seed is fixed."""
    found = fp.verify(kind(**LATTICE | more), draws=40, pairs=30, generator=seeded())
    assert found.passed, found
    assert {one.name for one in found.findings} >= {"movement", "whole", "scale", "shape"}
    one = fp.verify(kind(**LATTICE | more), adjacency="zero_out", draws=20, pairs=5)
    assert [f.name for f in one.findings].count("movement") == 1
    with pytest.raises(fp.ParameterError, match="adjacency"):
        fp.verify(kind(**LATTICE), adjacency="add_remove", draws=20, pairs=5)


class Weak(fp.Skellam):
    def _numbers(self, count, variance, generator):
        return super()._numbers(count, 0.7 * variance, generator)


class Long(fp.Skellam):
    def contribution(self, update, mask=None):
        return 2.0 * super().contribution(update, mask)


class Same(fp.DistributedDiscreteGaussian):
    def _numbers(self, count, variance, generator):
        return np.repeat(super()._numbers(-(-count // 2), variance, generator), 2)[:count]


class Rounded(fp.DistributedDiscreteGaussian):
    def _numbers(self, count, variance, generator):
        return 2 * super()._numbers(count, variance / 4.0, generator)


class Broken(fp.DistributedDiscreteGaussian):
    def contribution(self, update, mask=None):
        return super().contribution(update, mask) * 0.999


class OneKey(fp.DistributedDiscreteGaussian):
    def of_round(self, generator=None):
        return replace(super().of_round(generator), seed=7)


@pytest.mark.parametrize(
    ("kind", "named", "more"),
    [
        (Weak, "scale", {}),
        (Long, "movement", {}),
        (Same, "coordinates", {}),
        pytest.param(
            *(Rounded, "shape", {"granularity": 0.5, "noise_multiplier": 1.2}),
            marks=pytest.mark.slow,
        ),
        (Broken, "whole", {}),
        (OneKey, "rotation", {}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_faults_of_whole_numbers_are_named(kind, named, more):
    found = fp.verify(
        kind(**LATTICE | more), draws=400 if more else 40, pairs=30, generator=seeded()
    )
    assert named in found.failures
