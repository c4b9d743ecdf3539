"""A fault in drawing, clipping, sampling or dividing is found, by the record or by the law.

Every loop runs on data with a sum of 0, so the release is its noise, and on neighbours with the
noise replayed, so that only one unit differs. The same checks are made of the loops and of loops
with a fault. The first must pass, the second must fail. A correct loop fails a check of the law
with probability below ``FAILS``.
"""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import binom, chi2

import fedprivacy as fp
from fedprivacy.ledger import Ledger
from fedprivacy.mechanisms import (
    Gaussian,
    Sparsification,
    SparsifiedPerturbation,
    perturbation,
    rounded,
    streams,
)
from fedprivacy.mechanisms.exact_normals import StoredDraws
from fedprivacy.sampling import FixedSize, Poisson, SeparateProbabilities, WeightedDraws
from fedprivacy.systems.averaging import collect
from fedprivacy.systems.averaging.collect import Collected
from fedprivacy.systems.averaging.loop import FederatedAveraging
from fedprivacy.systems.fa_ld.law import GaussianTarget
from fedprivacy.systems.fed_plt import solvers
from fedprivacy.training import (
    AgentData,
    FederatedSplitting,
    GaussianPosterior,
    HamiltonianSampling,
    LangevinSampling,
    LocalSolver,
    Logistic,
    Posterior,
    SoftmaxRegression,
    chains,
    likelihoods,
    logistic,
)
from tests.common import excluded
from tests.systems.averaging.test_loop import small
from tests.systems.fa_ld.test_loop import records

FAILS = 1e-9
DRAWS = 500
"""Releases that the search for the low bits looks at."""


pytestmark = pytest.mark.usefixtures("one_thread", "narrowest")


# The questions for every loop


@dataclass
class Averaging:
    """DP-FedAvg, Fed-SMP, DP-FTRL: clients that hardly learn, then one that learns a lot."""

    kind: str
    clients: int = 8

    def loop(self, rate=1e-30, size=4, clients=None, **options):
        scheme = FixedSize(size, clients or self.clients)
        noise = Gaussian(noise_multiplier=2.0, clip_norm=0.5, unit="client")
        if self.kind == "dp-ftrl":
            noise = fp.CorrelatedNoise(
                factor=fp.factors.Identity(),
                noise_multiplier=2.0,
                rounds=2,
                participation=fp.MinimumSeparation(1),
                clip_norm=0.5,
                unit="client",
            )
        elif self.kind != "dp-fedavg":
            shares = {"kept": self.kept, "dimension": 402, "cohort": size, "sparsifier": self.kind}
            noise = SparsifiedPerturbation(noise_multiplier=2.0, clip_norm=0.5, **shares)
        given = {"local_steps": 1, "batch_size": 4, "learning_rate": rate, "expected_cohort": 5}
        given |= {"scheme": scheme, "perturbation": noise}
        return FederatedAveraging(model=logistic(200, 2), **(given | options))

    @property
    def kept(self):
        return 402 if self.kind in ("dp-fedavg", "dp-ftrl") else 300

    def data(self, clients=None):
        return small(self.clients if clients is None else clients, features=200)

    def noise(self, rounds):
        """Noise of every round over the std that was recorded, and what it was divided by."""
        loop, data, found = self.loop(), self.data(), []
        for _ in range(rounds):
            state = loop.init()
            after, info = loop.step(state, data)
            moved = (state.parameters - after.parameters).numpy() * 5.0 / info.noise_std
            # Coordinates that are not kept do not change. A number may be drawn as 0 or be lost in
            # the last bit of a parameter, with a chance of 1e-6; four of 402 with one of 1e-15.
            there = moved[moved != 0.0]
            assert len(there) == 0 or self.kept - 3 <= len(there) <= self.kept
            found.append(np.concatenate([there, np.zeros(self.kept - len(there))]))
        assert info.noise_std == pytest.approx(loop.perturbation.full_noise_std, rel=1e-12)
        return np.array(found), info.denominator == 5

    def moved(self):
        """How far one client moves the sum, over its clip norm."""
        loop = self.loop(rate=50.0, size=2, clients=2, seed=3)
        data, ends = self.data(2), []
        for poisoned in (False, True):
            features = data.features.clone()
            features[:4] = 3e38 if poisoned else features[:4]
            after, _ = loop.step(loop.init(), replace(data, features=features))
            ends.append(after.parameters.double())
        return float((ends[0] - ends[1]).norm()) * 5.0 / 0.5

    def cohorts(self, rounds):
        loop, data = self.loop(), self.data()
        seen = [self._cohort(loop, data) for _ in range(rounds)]
        return np.array(seen), np.full(self.clients, 0.5)

    def _cohort(self, loop, data):
        here = np.zeros(self.clients, bool)

        def noted(cohort):
            here[cohort] = True
            return ()

        loop.step(loop.init(), data, dropout=noted)
        return here


@dataclass
class Sampler:
    """FA-LD and FA-HMC: clients centred at 0, then records whose gradients are clipped."""

    kind: str
    averaging: str = "I"

    def loop(self, target, **options):
        if self.kind == "fa-ld":
            return LangevinSampling(target=target, step_size=0.05, **options)
        return HamiltonianSampling(
            target=target, step_size=0.3, gradient_noise_multiplier=0.5, **options
        )

    def centred(self, clients=6, size=40, **options):
        hessians = np.repeat(np.eye(size)[None], clients, axis=0)
        target = GaussianTarget(hessians=hessians, centres=np.zeros((clients, size)))
        return self.loop(GaussianPosterior(target=target, sensitivity=1.0), **options)

    def noise(self, rounds):
        loop = self.centred(averaging="II", cohort=4, chains=10)
        found = []
        for _ in range(rounds):
            after, info = loop.step(loop.init())
            found.append(after.positions.numpy().reshape(-1) * math.sqrt(4.0) / info.noise_std)
        return np.array(found), True

    def moved(self):
        ends = []
        data = records((40,))
        for sign in (-1.0, 1.0):
            features = data.features.double()
            features[0] *= sign * 1e3
            held = replace(data, features=features)
            target = Posterior(model=SoftmaxRegression(4, 3), data=held, clip_norm=0.01)
            loop = self.loop(target, seed=3)
            ends.append(loop.step(loop.init())[0].positions)
        step = 0.05 if self.kind == "fa-ld" else 0.5 * 0.3**2
        return float((ends[0] - ends[1]).norm()) / step / (2.0 * 0.01)

    def cohorts(self, rounds):
        weights = np.array([1.0, 2.0, 3.0, 2.0]) / 8.0
        clients = np.repeat(np.eye(2)[None], 4, axis=0)
        target = GaussianTarget(hessians=clients, centres=np.zeros((4, 2)), weights=weights)
        loop = self.loop(GaussianPosterior(target=target, sensitivity=1.0), averaging="I", cohort=2)
        found = np.zeros((rounds, 4), bool)
        for row in found:
            loop.step(
                loop.init(), dropout=lambda cohort, row=row: row.__setitem__(cohort, True) or ()
            )
        return found, np.array([loop.scheme.of(c).rate for c in range(4)])


@dataclass
class Splitting:
    """Fed-PLT: agents whose inputs are 0, then one whose records are clipped."""

    kind: str = "fed-plt"

    def loop(self, parts, **options):
        solver = LocalSolver(method="noisy", steps=1, step_size=0.4, noise_scale=0.3, clip_norm=0.2)
        data = AgentData.of(parts)
        given = {"solver": solver, "penalty": 1.0} | options
        return FederatedSplitting.on(data, loss=Logistic(regularisation=0.1), **given), data

    def zeros(self, agents=20, size=50):
        return [(np.full((5, size), 1e-30), np.ones(5)) for _ in range(agents)]

    def noise(self, rounds):
        loop, data = self.loop(self.zeros())
        found = []
        for _ in range(rounds):
            after, info = loop.step(loop.init(), data)
            scale = loop._planned[1] / info.noise_std / loop.solvers[0].noise_std
            found.append(after.models.numpy().reshape(-1) * scale)
        return np.array(found), True

    def moved(self):
        ends = []
        for sign in (-1, 1):
            rows = [(np.full((5, 3), 9.0), np.array([1.0, 1, 1, 1, sign]))]
            loop, data = self.loop(rows, seed=3)
            ends.append(loop.step(loop.init(), data)[0].models)
        return float((ends[0] - ends[1]).norm()) / 0.4 / (2.0 * 0.2 / 5)

    def cohorts(self, rounds):
        rates = [0.2, 0.5, 0.7, 0.9]
        loop, data = self.loop(self.zeros(4, 2), participation=rates)
        state = loop.init()
        seen = [(loop.step(state, data)[0].models != 0).any(-1).numpy() for _ in range(rounds)]
        return np.array(seen), np.array(rates)


BENCHES = {
    "dp-fedavg": Averaging("dp-fedavg"),
    "dp-ftrl": Averaging("dp-ftrl"),
    "fed-smp rand_k": Averaging("rand_k"),
    "fed-smp top_k": Averaging("top_k"),
    "fa-ld": Sampler("fa-ld"),
    "fa-hmc": Sampler("fa-hmc"),
    "fed-plt": Splitting(),
}
EVERY = pytest.mark.parametrize("name", BENCHES)


def complaints(bench):
    """The faults of a loop's released law; empty for a correct loop."""
    return of_noise(bench) | of_clipping(bench) | of_cohorts(bench)


def of_noise(bench):
    found = []
    noise, divided = bench.noise(12)
    count, far = noise.size, 6.5  # exceeded with probability below 1e-10
    if not divided:
        found.append("denominator")
    squares = float((noise**2).sum())
    if not chi2.ppf(FAILS / 2, count) <= squares <= chi2.isf(FAILS / 2, count):
        found.append("std")
    if abs(noise.sum()) > far * math.sqrt(count):
        found.append("mean")
    for lag in (1, 2):
        pairs = (noise[lag:] * noise[:-lag]).ravel(), (noise[:, lag:] * noise[:, :-lag]).ravel()
        for one in pairs:
            if abs(one.sum()) > far * max(1.0, squares / count) * math.sqrt(one.size):
                found.append("independence")
    return set(found)


def of_clipping(bench):
    right = 0.9 < bench.moved() <= 1.0 + 1e-5  # of the clip norm, stored as float32
    return set() if right else {"clip norm"}


def of_cohorts(bench):
    cohorts, rates = bench.cohorts(120)
    for taken, rate in zip(cohorts.sum(axis=0), rates, strict=True):
        if min(binom.cdf(taken, 120, rate), binom.sf(taken - 1, 120, rate)) < FAILS:
            return {"cohort"}
    return set()


@EVERY
def test_every_loop_releases_what_is_accounted(name):
    assert complaints(BENCHES[name]) == set()


# Sabotage that no record could know


def no_noise(patch):
    patch.setattr(
        StoredDraws, "rounded", lambda self, totals, *given: quietly(self, totals, *given)
    )


def quietly(self, totals, count, scale, unit=1.0, largest=math.inf, out=None):
    return np.zeros(count) if totals is None else np.rint(totals / unit)


def half_the_noise(patch):
    real = StoredDraws.rounded
    patch.setattr(
        StoredDraws,
        "rounded",
        lambda self, t, n, scale, *rest: real(self, t, n, 0.5 * scale, *rest),
    )


def the_same_noise(patch):
    real = StoredDraws.rounded

    def again(self, *given):
        fresh = StoredDraws(self.tail, np.random.default_rng(0).bytes)
        return real(fresh, *given)

    patch.setattr(StoredDraws, "rounded", again)


def twice_the_clip_norm(patch):
    real, factor = rounded.on_grid, likelihoods.clip_factor
    patch.setattr(
        perturbation,
        "on_grid",
        lambda value, clip_norm, grid: real(value, clip_norm=2.0 * clip_norm, grid=grid),
    )
    patch.setattr(likelihoods, "clip_factor", lambda norms, clip: factor(norms, 2.0 * clip))
    inside = solvers.LocalProblem._clip
    patch.setattr(solvers.LocalProblem, "_clip", lambda self, solver: 2.0 * inside(self, solver))


def the_first_come(patch):
    patch.setattr(FixedSize, "draw", lambda self, n, generator: np.arange(self.size))
    patch.setattr(WeightedDraws, "draw_rows", lambda self, r, n, g: np.zeros((r, 2), np.int64))
    patch.setattr(SeparateProbabilities, "draw", lambda self, n, generator: np.arange(n // 2))


def half_the_denominator(patch):
    real = FederatedAveraging._denominator
    patch.setattr(FederatedAveraging, "_denominator", lambda *given: real(*given) / 2)
    seats = chains.SamplingLoop._seats

    def doubled(self, index, dropout):
        found = seats(self, index, dropout)
        return replace(found, shares=2.0 * found.shares)

    patch.setattr(chains.SamplingLoop, "_seats", doubled)
    patch.setattr(AgentData, "weights", property(lambda self: 0.4 * torch.ones(self.targets.shape)))


SABOTAGE = {
    "std": no_noise,
    "std ": half_the_noise,
    "independence": the_same_noise,
    "clip norm": twice_the_clip_norm,
    "cohort": the_first_come,
    "denominator": half_the_denominator,
}


@EVERY
@pytest.mark.parametrize("told", SABOTAGE)
def test_a_tampered_loop_is_told_by_what_it_releases(name, told, monkeypatch):
    SABOTAGE[told](monkeypatch)
    bench = BENCHES[name]
    if told == "denominator":
        assert of_noise(bench) & {"denominator", "std"} or of_clipping(bench)
    else:
        looks = {"clip norm": of_clipping, "cohort": of_cohorts}
        assert told.strip() in looks.get(told, of_noise)(bench)


# Sabotage that the record shows


def ledger_of(path, loop, data=None, unit="record", **options):
    with Ledger.create(path, unit=unit, adjacency="replace_one", **options) as ledger:
        loop.step(loop.init(), data, ledger=ledger)
        ledger.close()
    return Ledger.open(path)


def half(spread):
    return chains.Spread(0.5 * spread.stds, 0.5 * spread.least)


@EVERY
def test_less_noise_that_is_drawn_stands_in_the_record(name, tmp_path, monkeypatch):
    """The ledger has the noise that the mechanism drew, not the planned noise."""
    bench, unit = BENCHES[name], "record"
    if isinstance(bench, Averaging):
        loop, data, unit = bench.loop(), bench.data(), "client"
        kind = type(loop.perturbation)
        real = kind.noise
        spare = streams.SPARE
        if name == "dp-ftrl":
            less = property(lambda self: 0.5 * self.std * (1.0 + spare))
            monkeypatch.setattr(streams.NoiseStream, "drawn_std", less)

        def quiet(self, like, generator=None, *, shares=None):
            noise, std = real(self, like, generator, shares=shares)
            return 0.5 * noise, 0.5 * std

        monkeypatch.setattr(kind, "noise", quiet)
    elif isinstance(bench, Sampler):
        loop, data, noisy = bench.centred(), None, chains.SamplingLoop._noisy
        monkeypatch.setattr(
            chains.SamplingLoop,
            "_noisy",
            staticmethod(lambda own, spread, *rest: noisy(own, half(spread), *rest)),
        )
    else:
        loop, data = bench.loop(bench.zeros())
        noisy = solvers._noisy
        monkeypatch.setattr(solvers, "_noisy", lambda m, stds, g: noisy(m, 0.5 * stds, g))
    read = ledger_of(tmp_path / "run.ledger", loop, data, unit)
    (written,) = read.rounds
    assert written.done.noise_std == pytest.approx(0.5 * written.noise_std, rel=1e-12)
    bound = fp.epsilon(loop.round_mechanism, delta=1e-5, adjacency="replace_one")
    found = fp.audit(tmp_path / "run.ledger", claim=(bound.upper * 1.01, 1e-5))
    assert found.verdict is fp.Verdict.FAILS


def test_less_noise_in_a_jump_or_in_a_later_step_stands_in_the_record(tmp_path, monkeypatch):
    """Whatever part of an upload had less noise, the record says so."""
    target = GaussianTarget(
        hessians=np.repeat(np.eye(8)[None], 2, axis=0), centres=np.zeros((2, 8))
    )
    posterior = GaussianPosterior(target=target, sensitivity=1.0)
    jump = LangevinSampling(target=posterior, step_size=0.05, exact_jump=True)
    leaps = {"step_size": 0.3, "leapfrog_steps": 2, "gradient_noise_multiplier": 0.5}
    steps = HamiltonianSampling(target=posterior, **leaps)
    noisy = chains.SamplingLoop._noisy
    for loop, spared in ((jump, 0), (steps, 1)):
        calls = []

        def quiet(own, spread, *rest, calls=calls, spared=spared):
            calls.append(spread)
            return noisy(own, spread if len(calls) <= spared else half(spread), *rest)

        monkeypatch.setattr(chains.SamplingLoop, "_noisy", staticmethod(quiet))
        _, info = loop.step(loop.init())
        assert len(calls) > spared
        assert info.noise_std == pytest.approx(0.5 * loop._planned_std(0), rel=1e-12)


def test_another_size_of_cohort_is_told_by_the_audit(tmp_path, monkeypatch):
    bench = BENCHES["dp-fedavg"]
    monkeypatch.setattr(FixedSize, "draw", lambda self, n, g: np.arange(n))
    ledger_of(tmp_path / "run.ledger", bench.loop(), bench.data(), "client")
    found = fp.audit(tmp_path / "run.ledger", claim=(50.0, 1e-5))
    assert found.verdict is fp.Verdict.CANNOT_BE_CERTIFIED


def test_the_denominator_stands_in_the_record(tmp_path):
    bench = BENCHES["dp-fedavg"]
    read = ledger_of(tmp_path / "run.ledger", bench.loop(), bench.data(), "client")
    assert read.rounds[0].done.denominator == 5


# Low bits


def sums(mechanism, generator, numbers):
    """A sum of contributions, and the same with another one's in place of one."""
    parts = [mechanism.contribution(generator.normal(size=numbers)) for _ in range(7)]
    rest = sum(parts[:5])
    return rest + parts[5], rest + parts[6]


SMP = SparsifiedPerturbation(
    noise_multiplier=3.0, clip_norm=1.0, kept=400, dimension=400, cohort=6, sparsifier="top_k"
)


def summed(value, generator):
    """The secure sum of a loop, with its noise."""
    running = Collected(range(6), SMP.sparsification, None, SMP)
    running.total.add_(torch.from_numpy(value))
    running.arrived = 6
    return running.noisy(generator)[0].numpy()


RELEASES = {
    "gaussian": (fp.Gaussian(noise_multiplier=5.0), 400, None),
    "gaussian, much noise": (fp.Gaussian(noise_multiplier=3000.0, clip_norm=0.01), 400, None),
    "laplace": (fp.Laplace(noise_multiplier=1.0), 1, None),
    "fed-smp sum": (SMP, 400, summed),
}


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("source", ["system", "numpy", "torch"])
def test_no_release_excludes_a_neighbouring_sum(name, source):
    mechanism, numbers, release = RELEASES[name]
    generator, found = np.random.default_rng(1), 0
    given = {"system": None, "numpy": generator, "torch": torch.Generator().manual_seed(0)}[source]
    draws = DRAWS if source == "system" else 20
    for _ in range(draws):
        true, other = sums(mechanism, generator, numbers)
        out = release(true, given) if release else mechanism.release(true, given)
        found += excluded(out, other) + excluded(out, true)
    assert found == 0


def test_no_share_excludes_another_update():
    generator, found = np.random.default_rng(1), 0
    for _ in range(DRAWS):
        one, other = generator.normal(size=(2, 400))
        out = SMP.release(one)
        found += excluded(out, SMP.contribution(other)) + excluded(out, SMP.contribution(one))
    assert found == 0


def private_steps(kind, counts):
    """Uploads of one client after one step, and the unit that they are multiples of."""
    if kind == "fed-plt":
        parts = [(np.random.default_rng(0).normal(size=(7, 64)), np.ones(7))]
        loop, data = Splitting().loop(parts)
        draw = lambda: loop.step(loop.init(), data)[0].models  # noqa: E731
        return draw, loop.solvers[0].noise_std
    data = records((20,), features=64)
    data = replace(data, features=data.features.double())
    target = Posterior(model=SoftmaxRegression(64, 3), data=data, clip_norm=0.3)
    loop = Sampler(kind).loop(target)
    return lambda: loop.step(loop.init())[0].positions, loop._planned_std(0)


@pytest.mark.parametrize("kind", ["fa-ld", "fa-hmc", "fed-plt"])
def test_every_step_from_the_start_is_a_point_of_the_grid_and_no_other(kind):
    """Whatever the data: no output belongs to some of them only, and its low bits are uniform."""
    draw, std = private_steps(kind, 20)
    unit, low = std * rounded.STEP_GRID, []
    for _ in range(DRAWS):
        out = draw().numpy().reshape(-1)
        points = np.rint(out / unit)
        assert (points * rounded.STEP_GRID * std == out).all()
        low.append(points.astype(np.int64) & 63)
    counts = np.bincount(np.concatenate(low), minlength=64)
    expected = counts.sum() / 64
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(FAILS, 63)


def hidden_steps(kind):
    """Uploads after three steps that T6 accounts together, and their mechanism at one client."""
    if kind == "fed-plt":
        parts = [(np.random.default_rng(0).normal(size=(7, 64)), np.ones(7))]
        solver = LocalSolver(method="noisy", steps=3, step_size=0.4, noise_scale=0.3)
        loss, data = Logistic(regularisation=0.1, feature_bound=1.0), AgentData.of(parts)
        loop = FederatedSplitting.on(data, loss=loss, solver=solver, penalty=1.0)
        return lambda: loop.step(loop.init(), data)[0].models, solver.mechanism(loss, 7, 1.0)
    target = GaussianTarget(hessians=np.eye(40)[None], centres=np.full((1, 40), math.pi))
    loop = LangevinSampling(
        target=GaussianPosterior(target=target, sensitivity=1.0),
        step_size=0.1,
        local_steps=3,
        strong_convexity=1.0,
        smoothness=1.0,
    )
    return lambda: loop.step(loop.init())[0].positions, loop.round_mechanism


@pytest.mark.parametrize("kind", ["fa-ld", "fed-plt"])
def test_steps_that_are_accounted_together_are_rounded_whole(kind):
    """The end of a solve lies on a public grid, so that it is a function of the ideal end."""
    draw, mechanism = hidden_steps(kind)
    assert mechanism.contracts
    out = draw().numpy().reshape(-1)
    factor = mechanism.widening(out.size)
    unit, low = mechanism.step_noise_std * factor * rounded.HIDDEN_GRID, []
    assert 1.0 < factor < 1.001
    for _ in range(DRAWS // 5):
        out = draw().numpy().reshape(-1)
        points = np.rint(out / unit)
        assert (points * unit == out).all()
        low.append(points.astype(np.int64) & 63)
    counts = np.bincount(np.concatenate(low), minlength=64)
    expected = counts.sum() / 64
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(FAILS, 63)


def test_a_centre_is_not_added_after_the_noise():
    """A Gaussian client's own centre would show in every low bit of what it uploads."""
    target = GaussianTarget(hessians=np.eye(3)[None], centres=np.array([[math.pi, math.e, 0.1]]))
    for jump in (False, True):
        loop = LangevinSampling(
            target=GaussianPosterior(target=target, sensitivity=1.0),
            step_size=0.1,
            exact_jump=jump,
        )
        out = loop.step(loop.init())[0].positions.numpy()
        unit = loop._planned_std(0) * rounded.STEP_GRID
        assert (np.rint(out / unit) * rounded.STEP_GRID * loop._planned_std(0) == out).all()


# What a client may send


class Hostile(torch.Tensor):
    """A tensor that fails at every access."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError("not for you")


def hostile():
    return torch.ones(8).as_subclass(Hostile)


def masked():
    tensor = torch.ones(8)
    tensor.detach = tensor.dim = lambda: 1 / 0
    return tensor


UPLOADS = {
    "attributes of its own": masked,
    "functional": lambda: torch._to_functional_tensor(torch.ones(8)),
    "a transform's": lambda: torch._C._functorch._add_batch_dim(torch.ones(8, 3), 1, 1),
    "sparse": lambda: torch.ones(8).to_sparse(),
    "compressed": lambda: torch.ones(8, 8).to_sparse_csr(),
    "meta": lambda: torch.ones(8, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(8)]),
    "mkldnn": lambda: torch.ones(8).to_mkldnn(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.quint8),
    "complex": lambda: torch.ones(8, dtype=torch.complex64),
    "subclass": hostile,
    "a list": lambda: [1.0] * 8,
    "none": lambda: None,
    "one number": lambda: torch.ones(1),
    "too many numbers": lambda: torch.ones(9),
    "no numbers": lambda: torch.ones(0),
    "a table": lambda: torch.ones(1, 8),
    "a million of one number": lambda: torch.ones(1, dtype=torch.half).expand(10**6),
    "a byte a number": lambda: torch.ones(8).to(torch.float8_e4m3fn),
}
PRIVATE = {
    "none": None,
    "sparsified": SparsifiedPerturbation(
        noise_multiplier=1.0, clip_norm=1.0, kept=8, dimension=8, cohort=2
    ),
    "gaussian": fp.Gaussian(noise_multiplier=1.0, clip_norm=1.0, unit="client"),
}


@pytest.mark.parametrize(("held", "readable"), [(4, False), (31, False), (32, True)])
def test_numbers_beyond_their_storage_are_not_read(held, readable):
    vector = SimpleNamespace(
        dtype=torch.float32,
        shape=(8,),
        untyped_storage=lambda: SimpleNamespace(nbytes=lambda: held),
        storage_offset=lambda: 0,
        stride=lambda dimension: 1,
        element_size=lambda: 4,
    )
    assert collect._is_readable(vector) is readable


@pytest.mark.parametrize("name", UPLOADS)
@pytest.mark.parametrize("private", PRIVATE)
@pytest.mark.filterwarnings("ignore")
def test_an_upload_of_any_kind_is_refused_and_counted(name, private):
    running = Collected(range(2), Sparsification(kept=8, dimension=8), None, PRIVATE[private])
    assert not running.add(0, UPLOADS[name]())
    assert not running.total.any()
    assert running.add(1, torch.ones(8))
    assert (running.arrived, running.refused, running.shares) == (1, 1, 2)


def test_a_mechanism_whose_contributions_would_be_spread_over_all_coordinates_is_refused():
    class Short(fp.Gaussian):
        def contribution(self, update, mask=None):
            return super().contribution(update)[:1]

    noise = Short(noise_multiplier=1.0, clip_norm=1.0, unit="client")
    running = Collected(range(2), Sparsification(kept=8, dimension=8), None, noise)
    with pytest.raises(
        fp.errors.ParameterError, match=r"Short.contribution must have shape \(8,\)"
    ):
        running.add(0, torch.ones(8))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_a_share_does_not_tell_the_signs_of_what_stays_at_home(kind):
    noise = SparsifiedPerturbation(
        noise_multiplier=1.0, clip_norm=1.0, kept=2, dimension=6, cohort=1
    )
    share = noise.release(kind([1.0, -1.0, 2.0, -2.0, -3.0, 3.0]), mask=kind([0, 1]))
    assert not np.signbit(np.asarray(share)[2:]).any()


def test_a_share_does_not_lead_back_to_the_update():
    noise = fp.SparsifiedPerturbation(
        noise_multiplier=1.0, clip_norm=1.0, kept=3, dimension=3, cohort=1
    )
    assert noise.release(torch.ones(3, requires_grad=True)).grad_fn is None


SPARSE = SparsifiedPerturbation(noise_multiplier=1.0, clip_norm=1.0, kept=8, dimension=8, cohort=1)
STEP = {"step_size": 0.1, "correlation": 0.0, "weight": 0.1, "batch_fraction": 0.1}
RELEASING = {
    "Gaussian": fp.Gaussian(noise_multiplier=1.0).release,
    "its clip": fp.Gaussian(noise_multiplier=1.0).contribution,
    "Laplace": fp.Laplace(noise_multiplier=1.0).release,
    "SparsifiedPerturbation": SPARSE.release,
    "DiscreteLaplace": fp.DiscreteLaplace(noise_parameter=1.0, sensitivity=1).release,
    "RandomizedResponse": fp.RandomizedResponse(answers=2, chance=0.5).release,
    "FederatedLangevin": fp.FederatedLangevin(
        **STEP, temperature=1.0, gradient_sensitivity=1.0
    ).release,
    "FederatedHamiltonian": fp.FederatedHamiltonian(
        **STEP, leapfrog_steps=1, gradient_sensitivity=1.0, gradient_noise_multiplier=1.0
    ).release,
}


@pytest.mark.parametrize("name", RELEASING)
@pytest.mark.parametrize("kind", ["sparse", "compressed", "meta", "nested", "quantised", "complex"])
@pytest.mark.filterwarnings("ignore")
def test_no_release_takes_a_tensor_that_holds_no_real_numbers(name, kind):
    """A complex one would lose its imaginary part without a word."""
    with pytest.raises(fp.ParameterError, match=kind.replace("compressed", "sparse")):
        RELEASING[name](UPLOADS[kind]())


def lazy():
    return torch.nn.LazyLinear(2)


def meta():
    return torch.nn.Linear(3, 2, device="meta")


@pytest.mark.parametrize(("model", "words"), [(lazy, "LazyLinear|lazy"), (meta, "meta")])
@pytest.mark.filterwarnings("ignore")
def test_a_model_without_numbers_is_refused_in_one_line(model, words):
    loop = FederatedAveraging(model=model, scheme=Poisson(0.5), local_steps=1)
    with pytest.raises(fp.ParameterError, match=words) as told:
        loop.init()
    assert "\n" not in str(told.value)
