"""Neighbouring runs with replayed randomness differ only in the accounted values.

Sizes, cohorts, masks, stds, denominators, every line of the ledger, every entry of the checkpoint,
of the private notes and of the model's file, scores, and whatever is printed, logged or warned of
are the same; the released parameters move by no more than a clipped contribution. Only values that
are random by themselves may differ too: a nonce, a key, and values made with them. With fixed seeds
no test fails by chance.
"""

import json
import warnings
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from fedprivacy.ledger import Ledger
from fedprivacy.mechanisms import Gaussian, Laplace, SparsifiedPerturbation
from fedprivacy.sampling import Everyone, FixedSize, Poisson, TruncatedPoisson, WithReplacement
from fedprivacy.systems.fa_ld.law import GaussianTarget
from fedprivacy.training import (
    AgentData,
    FederatedAveraging,
    FederatedSplitting,
    GaussianPosterior,
    HamiltonianSampling,
    LangevinSampling,
    LocalSolver,
    Logistic,
    Posterior,
    SoftmaxRegression,
    logistic,
    save_model,
    train,
)
from tests.systems.averaging.test_loop import small
from tests.systems.fa_ld.test_loop import records

SCHEMES = {
    "everyone": Everyone(),
    "fixed": FixedSize(3, 6),
    "poisson": Poisson(0.5),
    "replacement": WithReplacement(3, 6),
    "truncated": TruncatedPoisson(0.5, population=6, largest=4),
}
ROUNDING = 1e-5
"""Of the allowed move: parameters are released in single precision."""

RANDOM = {"nonce", "created", "check", "token"}
"""Of a ledger's line: random, of the clock, and the checksum of what is."""

KEYED = {"data", "ledger"}
"""Of a checkpoint: a digest with a random key, and a checksum of lines with a nonce."""


class OneNumber(torch.nn.Module):
    """A model of one parameter: Laplace noise is for one number."""

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs):
        """Return two scores."""
        return torch.stack([self.slope * inputs[:, 0], -self.slope * inputs[:, 1]], dim=1)


def averaging(kind, scheme, seed):
    """A loop, a data set, the same with one client's records replaced, how far that may move."""
    generator, clip = np.random.default_rng(seed), 0.5
    noise = Gaussian(noise_multiplier=2.0, clip_norm=clip, unit="client")
    if kind == "laplace":
        noise = Laplace(noise_multiplier=2.0, clip_norm=clip, unit="client")
    elif kind != "dp-fedavg":
        size = {"everyone": 6}.get(scheme, 3)
        noise = SparsifiedPerturbation(
            noise_multiplier=2.0,
            clip_norm=clip,
            kept=5,
            dimension=8,
            cohort=size,
            sparsifier=kind,
            topped_up=scheme in ("poisson", "truncated"),
        )
    loop = FederatedAveraging(
        model=OneNumber if kind == "laplace" else logistic(3, 2),
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
    """Records whose gradients are clipped."""
    generator, clip = np.random.default_rng(seed), 0.1
    one = records((7, 5, 6))
    features = one.features.clone()
    features[int(generator.integers(18))] *= float(-(10 ** generator.uniform(-2, 3)))
    runs = []
    for data in (one, replace(one, features=features)):
        target = Posterior(
            model=SoftmaxRegression(4, 3), data=data, clip_norm=clip, weights=[1 / 3, 1 / 3, 1 / 3]
        )
        fraction = 0.5 if kind == "fa-ld" else 1.0
        loop, move = chain(kind, scheme, seed, target, batch_fraction=fraction)
        fraction = min(loop.target.batch_sizes(fraction)[1])
        runs.append((loop, target))
    return runs[0], runs[1], move * 2.0 * clip / fraction * 3.0


def chain(kind, scheme, seed, target, **options):
    """A sampler, and how far a step of its goes for a gradient of 1."""
    options |= {"averaging": scheme, "cohort": None if scheme == "full" else 2, "seed": seed}
    if kind == "fa-ld":
        return LangevinSampling(target=target, step_size=0.05, draws=1, **options), 0.05
    if not options.get("exact_jump"):
        options |= {"gradient_noise_multiplier": 0.5}
    loop = HamiltonianSampling(target=target, step_size=0.3, draws=1, **options)
    return loop, 0.5 * 0.3**2


def jumping(kind, scheme, seed):
    """A client's centre moves, in closed form: uploads are drawn from their exact law."""
    generator = np.random.default_rng(seed)
    centres, sensitivity, runs = generator.normal(size=(3, 2)), 0.2, []
    for number in range(2):
        moved = centres.copy()
        if number:
            angle = generator.uniform(0.0, 2.0 * np.pi)
            step = 3.0 * sensitivity * (1.0 - 1e-9) * np.array([np.cos(angle), np.sin(angle)])
            moved[int(generator.integers(3))] += step  # p_c = 1/3 times the Hessian, 1, times it
        target = GaussianTarget(hessians=np.repeat(np.eye(2)[None], 3, axis=0), centres=moved)
        held = GaussianPosterior(target=target, sensitivity=sensitivity)
        loop, move = chain(kind, scheme, seed, held, exact_jump=True)
        runs.append((loop, held))
    return runs[0], runs[1], move * 3.0 * sensitivity


def splitting(kind, scheme, seed):
    """Clipped steps that are composed, or unclipped ones that are accounted together (T6)."""
    generator, rate = np.random.default_rng(seed), 0.4
    hidden = kind == "fed-plt, hidden"
    given = {"steps": 3} if hidden else {"steps": 1, "clip_norm": 0.2}
    solver = LocalSolver(method="noisy", step_size=rate, noise_scale=0.3, **given)
    parts = [(generator.normal(size=(5, 3)), np.ones(5)) for _ in range(4)]
    other = [(inputs.copy(), targets.copy()) for inputs, targets in parts]
    other[int(generator.integers(4))][0][0] *= -(10 ** generator.uniform(-2, 6))
    participation = FixedSize(2, 4) if scheme == "fixed" else (0.5 if scheme == "poisson" else 1.0)
    options = {"solver": solver, "penalty": 1.0, "participation": participation, "seed": seed}
    loss, runs = Logistic(regularisation=0.1, feature_bound=0.5 if hidden else None), []
    for held in (parts, other):
        data = AgentData.of(held)
        runs.append((FederatedSplitting.on(data, loss=loss, **options), data))
    moved = 3.0 * 2.0 * 0.5 / 5.0 if hidden else 2.0 * 0.2 / 5.0
    return runs[0], runs[1], rate * moved


SETTINGS = [
    *(
        (averaging, kind, s)
        for kind in ("dp-fedavg", "top_k", "rand_k", "laplace")
        for s in SCHEMES
        # Repeats have a theorem only for Gaussian sums.
        if (kind, s) != ("laplace", "replacement")
    ),
    *((sampler, kind, s) for kind in ("fa-ld", "fa-hmc") for s in ("full", "I", "II")),
    *((jumping, kind, s) for kind in ("fa-ld", "fa-hmc") for s in ("full", "I", "II")),
    *(
        (splitting, kind, s)
        for kind in ("fed-plt", "fed-plt, hidden")
        for s in ("everyone", "fixed", "poisson")
    ),
]
IDS = [f"{make.__name__}-{kind}-{scheme}" for make, kind, scheme in SETTINGS]


def released(state):
    """What a round releases, by its names in the state."""
    named = {"parameters": 0, "positions": 1, "draws": 1, "models": 0, "auxiliary": 0}
    return {name: getattr(state, name).double() for name in named if hasattr(state, name)}


def written(folder):
    """All values in the files of a run, except releases and values that are random anyway."""
    ledger = [json.loads(line) for line in (folder / "run.ledger").read_bytes().splitlines()]
    found = {"ledger": [{k: v for k, v in line.items() if k not in RANDOM} for line in ledger]}
    notes = (folder / "run.ledger.private").read_bytes().splitlines()
    found["notes"] = [json.loads(line) for line in notes[1:] if line]
    for name in ("state.pt", "model.pt"):
        content = torch.load(folder / name, weights_only=True)
        found[name] = {
            k: (tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else v
            for k, v in content.items()
            if k not in KEYED
        }
    found["sizes"] = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    return found


def scores(loop, state, data, other):
    """Scores of one state on the test records of both data sets: none for a loop that has none."""
    if not hasattr(loop, "evaluate"):
        return None
    mine, theirs = loop.evaluate(state, data), loop.evaluate(state, other)
    assert mine == theirs  # they depend only on the state and on public records
    return [type(number).__name__ for number in mine]


def ran(loop, data, other, folder, unit):
    """Run a round with everything that ``train`` leaves; return the state and the reports."""
    folder.mkdir()
    told, facts = [], {"unit": unit, "adjacency": "replace_one", "seed_policy": "fixed"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Ledger.create(folder / "run.ledger", **facts) as ledger:
            result = train(
                loop,
                data,
                rounds=1,
                ledger=ledger,
                checkpoint=folder / "state.pt",
                on_round=lambda state, info: told.append(info),
                description="a run",
            )
            ledger.close()
        save_model(folder / "model.pt", loop, result.state)
        shown = scores(loop, result.state, data, other)
    said = [(w.category, str(w.message)) for w in caught]
    return result.state, (
        told,
        [asdict(i) for i in result.history],
        result.upload_bytes,
        shown,
        said,
    )


def compared(make, kind, scheme, seed, folder, capfd, caplog):
    """Run both; return how far the release moved, relative to the allowed distance."""
    (loop, one), (twin, other), allowed = make(kind, scheme, seed)
    unit, ends, told = "client" if make is averaging else "record", [], []
    for number, (each, data, rest) in enumerate(((loop, one, other), (twin, other, one))):
        caplog.clear()
        state, seen = ran(each, data, rest, folder / f"{seed}-{number}", unit)
        ends.append(state)
        shown = capfd.readouterr()
        told.append((seen, written(folder / f"{seed}-{number}"), shown, caplog.messages[:]))
    assert told[0] == told[1]
    assert told[0][2] == ("", "") and not told[0][3]
    # The checkpoint and the model's file hold only the released state.
    for number, state in enumerate(ends):
        path = folder / f"{seed}-{number}"
        kept = torch.load(path / "state.pt", weights_only=True)
        assert all(torch.equal(kept[n], getattr(state, n)) for n in released(state))
    moved = max(
        float(torch.nan_to_num(one - released(ends[1])[name]).flatten().norm())
        for name, one in released(ends[0]).items()
        if name != "auxiliary"  # z moves by twice what x moves by
    )
    slack = ROUNDING * allowed + 1e-6 * float(next(iter(released(ends[0]).values())).norm())
    assert moved <= allowed + slack
    return moved / allowed if allowed else 0.0


@pytest.mark.parametrize(("make", "kind", "scheme"), SETTINGS, ids=IDS)
def test_neighbours_differ_in_what_is_accounted(make, kind, scheme, tmp_path, capfd, caplog):
    given = make, kind, scheme
    moved = [compared(*given, seed, tmp_path, capfd, caplog) for seed in range(10, 14)]
    assert max(moved) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("make", "kind", "scheme"), SETTINGS, ids=IDS)
def test_many_neighbours_differ_in_what_is_accounted(make, kind, scheme, tmp_path, capfd, caplog):
    """100 pairs of each setting: at least 500 of each loop and of each mechanism."""
    given = make, kind, scheme
    moved = [compared(*given, seed, tmp_path, capfd, caplog) for seed in range(100, 200)]
    assert max(moved) > 0.1
