"""The training loops run their mechanisms, and a crash never counts too few rounds."""

import itertools
import math
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch.utils._python_dispatch import TorchDispatchMode

from fedprivacy.errors import BudgetExhausted, Diverged, ParameterError, UnsupportedCombination
from fedprivacy.evidence.repricing import run_of
from fedprivacy.ledger import Ledger
from fedprivacy.mechanisms import (
    Gaussian,
    Sparsification,
    SparsifiedPerturbation,
    exact_normals,
    rounded,
)
from fedprivacy.sampling import Everyone, FixedSize, Poisson, WithReplacement
from fedprivacy.training import FederatedAveraging, FederatedData, State, cnn, logistic, mlp, train
from fedprivacy.training.optimise import WORKSPACE
from fedprivacy.training.outer_product_layers import wide_layers
from tests.contract.kills import kill_often

FAILS = 1e-9  # chance that a sound run fails a statistical check
TINY = 1e-9
pytestmark = pytest.mark.usefixtures("one_thread")


def small(clients=6, features=3, records=4, poisoned=(), classes=2, public=5):
    """A made-up data set; the updates of ``poisoned`` clients overflow."""
    generator = np.random.default_rng(7)
    inputs = generator.normal(size=(clients * records, features)).astype(np.float32)
    for client in poisoned:
        inputs[client * records : (client + 1) * records] = 3e38
    labels = generator.integers(classes, size=clients * records)
    extra = generator.normal(size=(public, features)).astype(np.float32)
    return FederatedData(
        name="made up",
        features=torch.from_numpy(inputs),
        labels=torch.from_numpy(labels),
        clients=tuple(np.split(np.arange(clients * records), clients)),
        test_features=torch.from_numpy(inputs[:records]),
        test_labels=torch.from_numpy(labels[:records]),
        num_classes=classes,
        public_features=torch.from_numpy(extra),
        public_labels=torch.from_numpy(generator.integers(classes, size=public)),
    )


def loop(perturbation=None, scheme=None, model=None, **options):
    options = {"local_steps": 2, "batch_size": 3, "learning_rate": 0.3, "seed": 3} | options
    return FederatedAveraging(
        model=model or logistic(3, 2),
        scheme=scheme or Everyone(),
        perturbation=perturbation,
        **options,
    )


def fed_smp(**options):
    options = {
        "noise_multiplier": 1.0,
        "clip_norm": 0.5,
        "kept": 5,
        "dimension": 8,
        "cohort": 6,
    } | options
    return SparsifiedPerturbation(**options)


class Journal:
    """A ledger in memory that also notes the order of things."""

    seed_policy, schedule = "fixed", "fixed"
    nonce = "in memory"

    def __init__(self):
        self.lines = []

    @property
    def spent_rounds(self):
        aborted = [number for kind, number, _ in self.lines if kind == "abort"]
        return sum(kind == "intent" for kind, *_ in self.lines) - len(aborted)

    @property
    def begun_rounds(self):
        return len(self.rounds)

    @property
    def rounds(self):
        aborted = [number for kind, number, _ in self.lines if kind == "abort"]
        begun = [line for line in self.lines if line[0] == "intent"]
        return [
            SimpleNamespace(index=number, mechanism=facts["mechanism"], spent=number not in aborted)
            for _, number, facts in begun
        ]

    def note(self, kind, number, facts):
        self.lines.append((kind, number, facts))

    def intent(self, mechanism, *, clip_norm, noise_std):
        number = sum(kind == "intent" for kind, *_ in self.lines)
        facts = {"mechanism": mechanism, "clip_norm": clip_norm, "noise_std": noise_std}
        self.note("intent", number, facts)
        return number

    def done(self, number, **facts):
        self.note("done", number, facts)

    def abort(self, number, reason):
        self.note("abort", number, reason)

    @property
    def kinds(self):
        return [kind for kind, *_ in self.lines]


class Purse:
    """A budget of so many rounds."""

    def __init__(self, rounds, journal=None):
        self.left, self.rounds, self.journal = rounds, rounds, journal
        self.charges, self.states, self.way_out = {}, set(), "stop here"

    adaptive = False

    def charge(self, ledger):
        charged = self.charges.setdefault(ledger.nonce, set())
        for one in ledger.rounds:
            if one.spent and one.index not in charged:
                self.spend(one.mechanism)
                charged.add(one.index)

    def allows(self, mechanism):
        return self.left > 0

    def released(self, mechanism, **stds):
        pass

    def ended(self, ledger, number, spent=True):
        pass

    def confirm(self, ledger):
        pass

    def seeded(self):
        pass

    def spend(self, mechanism, ledger=None, number=None):
        if self.left == 0:
            raise BudgetExhausted("nothing left")
        self.left -= 1
        if ledger is not None:
            self.charges.setdefault(ledger.nonce, set()).add(number)
        if self.journal is not None:
            self.journal.note("spend", None, None)

    def spent(self):
        return None if self.left == self.rounds else self.rounds - self.left


# The sum


def explicit_sum(averaging, data, state, mask, secure, left_out=()):
    """The sum of contributions, each client trained by itself on its own copy."""
    total = np.zeros(len(mask))
    for number, rows in enumerate(data.clients):
        if number in left_out:
            continue
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 2))
        torch.nn.utils.vector_to_parameters(state.parameters.clone(), model.parameters())
        optimiser = torch.optim.SGD(model.parameters(), lr=state.learning_rate, momentum=0.5)
        for _ in range(averaging.local_steps):
            optimiser.zero_grad()
            outputs = model(data.features[rows])
            torch.nn.functional.cross_entropy(outputs, data.labels[rows]).backward()
            optimiser.step()
        after = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        total += secure.contribution(state.parameters - after, mask).numpy()
    return total


def test_top_k_keeps_the_largest_of_an_update_on_public_data():
    averaging = loop(fed_smp(noise_multiplier=TINY, sparsifier="top_k", kept=3), batch_size=99)
    data, state = small(), averaging.init()
    after, _ = averaging.step(state, data)
    open_data = replace(
        data,
        features=data.public_features,
        labels=data.public_labels,
        clients=(np.arange(5),),
    )
    update = loop(batch_size=99).step(state, open_data)[0].parameters - state.parameters
    largest = set(update.abs().topk(3).indices.tolist())
    kept = set(torch.nonzero(after.parameters - state.parameters).flatten().tolist())
    assert kept == largest


def test_top_k_without_public_data_is_refused():
    data = replace(small(), public_features=None, public_labels=None)
    averaging = loop(fed_smp(sparsifier="top_k"))
    with pytest.raises(ParameterError, match=r"public_features must be given .* or use rand_k"):
        averaging.step(averaging.init(), data)


def test_top_k_of_an_update_that_is_not_finite_is_refused(tmp_path):
    """Its largest entries would be whichever come first."""
    data, averaging = small(), loop(fed_smp(sparsifier="top_k"))
    data = replace(data, public_features=data.public_features * 1e30)
    facts = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}
    with (
        Ledger.create(tmp_path / "run.ledger", **facts) as ledger,
        pytest.raises(Diverged, match=r"the update from public records in round 1 is not finite"),
    ):
        averaging.step(averaging.init(), data, ledger=ledger)
    assert Ledger.open(tmp_path / "run.ledger").spent_rounds == 1


def test_rand_k_masks_differ_between_rounds():
    averaging = loop(fed_smp(kept=2))
    state, data, seen = averaging.init(), small(), set()
    for _ in range(12):
        after, _ = averaging.step(state, data)
        seen.add(tuple(torch.nonzero(after.parameters - state.parameters).flatten().tolist()))
        state = after
    assert len(seen) > 3 and all(len(mask) == 2 for mask in seen)


def test_without_perturbation_it_is_the_plain_average_of_who_arrived():
    averaging = loop(batch_size=99)
    data, state = small(), averaging.init()
    wide = fed_smp(noise_multiplier=TINY, clip_norm=1e6, kept=8)
    after, info = averaging.step(state, data, dropout=lambda cohort: cohort[:2])
    still = loop(batch_size=99, momentum=0.0)
    total = 0
    for client in range(2, 6):
        alone = replace(data, clients=(data.clients[client],))
        total = total + (state.parameters - still.step(state, alone)[0].parameters)
    assert torch.allclose(state.parameters - after.parameters, total / 4, atol=1e-6)
    assert (info.cohort, info.arrived, info.noise_std) == (6, 4, 0.0)
    private, _ = loop(wide, batch_size=99).step(state, data)
    everyone, _ = averaging.step(state, data)
    assert torch.allclose(private.parameters, everyone.parameters, atol=1e-3)


def softmax_gradient(weights, inputs, labels):
    """Mean cross-entropy gradient of logistic regression, in numpy; weights (classes, 1 + f)."""
    padded = np.hstack([inputs, np.ones((len(inputs), 1))])
    scores = padded @ weights.T
    chance = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    chance[np.arange(len(labels)), labels] -= 1
    return chance.T @ padded / len(labels)


def test_rates_momentum_and_decay_against_an_independent_computation():
    data = small(clients=2)
    options = {"momentum": 0.5, "learning_rate_decay": 0.25, "server_learning_rate": 0.7}
    averaging = loop(batch_size=99, local_steps=3, learning_rate=0.4, **options)
    weights, rate = np.zeros((2, 4)), 0.4
    for _ in range(2):
        updates = []
        for rows in data.clients:
            local, velocity = weights.copy(), 0
            for _ in range(3):
                inputs, labels = data.features[rows].numpy(), data.labels[rows].numpy()
                velocity = 0.5 * velocity + softmax_gradient(local, inputs, labels)
                local = local - rate * velocity
            updates.append(weights - local)
        weights, rate = weights - 0.7 * np.mean(updates, 0), rate * 0.25
    state = train(averaging, data, rounds=2).state
    ours = np.hstack([state.parameters[:6].reshape(2, 3), state.parameters[6:].reshape(2, 1)])
    np.testing.assert_allclose(ours, weights, rtol=1e-4, atol=1e-6)
    assert state.learning_rate == pytest.approx(rate)


class Wrapped(torch.nn.Module):
    """A module of unknown kind."""

    def __init__(self):
        super().__init__()
        self.inner = mlp(3, 2)()

    def forward(self, inputs):
        return self.inner(inputs)


def wide():
    """A network with a layer whose weight is kept as outer products."""
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(3, 300), torch.nn.ReLU(), torch.nn.Linear(300, 300),
        torch.nn.ReLU(), torch.nn.Linear(300, 2),
    )  # fmt: skip


def by_autograd(model, inputs, labels, settings):
    """Return a client's update where the proximal term is part of the loss, shape (d,)."""
    start = [one.detach().clone() for one in model.parameters()]
    optimiser = torch.optim.SGD(model.parameters(), settings["learning_rate"], settings["momentum"])
    for _ in range(settings["local_steps"]):
        optimiser.zero_grad()
        way = sum(
            (new - old).square().sum() for new, old in zip(model.parameters(), start, strict=True)
        )
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        (loss + settings["proximal"] / 2 * way).backward()
        optimiser.step()
    return torch.cat(
        [(a - b).flatten() for a, b in zip(start, model.parameters(), strict=True)]
    ).detach()


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("model", [logistic(3, 2), wide, Wrapped], ids=["closed", "wide", "any"])
def test_the_proximal_term_is_part_of_a_clients_loss(model, momentum):
    settings = {"momentum": momentum, "proximal": 0.7, "learning_rate": 0.3, "local_steps": 4}
    data = small(clients=2)
    averaging = loop(model=model, batch_size=99, **settings)
    state = averaging.init()
    assert bool(wide_layers(averaging.flat.module, 48)) == (model is wide)
    for number, update in enumerate(all_updates(averaging, state, data)):
        found = []
        for proximal in (settings["proximal"], 0.0):
            module = model()
            torch.nn.utils.vector_to_parameters(state.parameters.clone(), module.parameters())
            chosen = settings | {"proximal": proximal}
            found.append(by_autograd(module, *data.records(number), chosen))
        assert torch.allclose(update, found[0], atol=2e-6)
        assert not torch.allclose(update, found[1], atol=1e-4)


def test_the_proximal_term_changes_nothing_that_is_accounted(tmp_path):
    noise = Gaussian(noise_multiplier=1.0, clip_norm=0.5, unit="client")
    told = []
    for proximal in (0.0, 5.0):
        averaging = loop(perturbation=noise, proximal=proximal)
        path = tmp_path / f"{proximal}.jsonl"
        with Ledger.create(
            path, unit="client", adjacency="zero_out", seed_policy="fixed"
        ) as ledger:
            train(averaging, small(), rounds=2, ledger=ledger)
        told.append([(one.mechanism, one.clip_norm) for one in Ledger.open(path).rounds])
    assert told[0] == told[1]
    with pytest.raises(ParameterError, match="proximal"):
        loop(proximal=-1.0)


def test_clients_trained_together_get_what_they_get_alone():
    """Sizes differ, so the schedule is padded; a client's update depends on its records only."""
    data = replace(small(), clients=tuple(np.split(np.arange(24), [1, 3, 9, 10, 20])))
    averaging = loop(local_steps=None, local_epochs=3, batch_size=99, momentum=0.6, model=mlp(3, 2))
    state = averaging.init()
    together = all_updates(averaging, state, data)
    for number in range(data.population):
        (alone,) = all_updates(averaging, state, data, [number])
        assert torch.allclose(together[number], alone, atol=1e-6)


def all_updates(averaging, state, data, clients=None):
    """Return the updates as a round makes them, shape (clients, d)."""
    found, work = {}, averaging._work(state)
    for group in data.groups(clients or range(data.population), averaging.flat.clients_at_once):
        job = averaging._job(group, np.random.default_rng(0))
        found |= dict(zip(group.clients, averaging._trained(work, job), strict=True))
    return torch.stack([found[client] for client in sorted(found)])


def tiny_images(**options):
    """Images of 28 x 28 for the convolutional network."""
    data = small(features=784, **options)
    parts = {
        name: getattr(data, name).view(-1, 28, 28)
        for name in ("features", "test_features", "public_features")
    }
    return replace(data, **parts)


def factory(*layers):
    return lambda: torch.nn.Sequential(torch.nn.Flatten(), *layers)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("sizes", [[4, 8, 12], [1, 3, 9, 10, 20]])
@pytest.mark.parametrize("model", [logistic(3, 2), mlp(3, 2, hidden=(5, 4))])
def test_closed_form_gradients_train_as_automatic_ones_do(momentum, sizes, model):
    data = replace(small(), clients=tuple(np.split(np.arange(24), sizes)))
    options = {"local_steps": None, "local_epochs": 3, "batch_size": 3}
    averaging = loop(momentum=momentum, model=model, **options)
    state = averaging.init()
    state = replace(state, parameters=state.parameters + 0.05)
    found = []
    for _ in range(2):
        each = [all_updates(averaging, state, data, [c]) for c in range(data.population)]
        found.append(torch.cat(each))
        averaging.flat.dense = None
    assert torch.allclose(*found, atol=1e-6) and float(found[0].abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("activation", "hidden"),
    [
        (torch.nn.ReLU, 64),
        (torch.nn.Softplus, 13),
        pytest.param(torch.nn.ReLU, 13, marks=pytest.mark.slow),
        pytest.param(torch.nn.Softplus, 64, marks=pytest.mark.slow),
    ],
)
def test_no_client_s_update_depends_on_who_trains_beside_it(activation, hidden):
    """To the last bit: long training on labels at odds makes much of a rounding."""
    layers = [torch.nn.Linear(64, hidden), activation(), torch.nn.Linear(hidden, 2)]
    averaging = loop(
        model=factory(*layers),
        scheme=FixedSize(17, population=17),
        local_steps=60,
        batch_size=32,
        learning_rate=1.0,
    )
    generator = torch.Generator().manual_seed(3)
    sizes = [9, *[7] * 12, 6, 6, 4, 9]
    starts = np.cumsum([0, *sizes])
    rows = tuple(np.arange(a, b) for a, b in itertools.pairwise(starts))
    data = FederatedData(
        name="at odds",
        num_classes=2,
        features=torch.randn(int(starts[-1]), 64, generator=generator),
        labels=torch.randint(0, 2, (int(starts[-1]),), generator=generator),
        clients=rows,
        test_features=torch.zeros(2, 64),
        test_labels=torch.zeros(2, dtype=torch.int64),
    )
    state = averaging.init()
    averaging._check(state, data, None, None)

    whole = all_updates(averaging, state, data)
    shorter = replace(data, clients=(rows[0][:2], *rows[1:]))
    alike = replace(data, clients=(rows[0][:7], *rows[1:]))
    assert torch.equal(whole[1:], all_updates(averaging, state, data, range(1, 17)))
    for other in (shorter, alike):
        assert torch.equal(whole[1:], all_updates(averaging, state, other)[1:])
    assert float(whole[1].abs().max()) > 0.1


def test_convolutions_keep_the_order_of_the_flat_vector():
    averaging = loop(model=cnn(2, padded=False), local_steps=1, batch_size=4, learning_rate=0.1)
    data, state = tiny_images(clients=1, records=4), averaging.init()
    after = averaging.step(state, data)[0].parameters
    module = cnn(2, padded=False)()
    torch.nn.utils.vector_to_parameters(state.parameters.clone(), module.parameters())
    loss = torch.nn.functional.cross_entropy(module(data.features), data.labels)
    gradient = torch.autograd.grad(loss, list(module.parameters()))
    expected = state.parameters - 0.1 * torch.cat([part.reshape(-1) for part in gradient])
    assert torch.allclose(after, expected, atol=1e-6)
    correct = (module(data.test_features).argmax(1) == data.test_labels).float().mean()
    assert averaging.evaluate(state, data)[0] == pytest.approx(float(correct))


@pytest.mark.parametrize(("found", "device"), [(True, "cuda"), (False, "cpu")])
def test_a_gpu_is_used_where_torch_finds_one_unless_the_device_is_named(monkeypatch, found, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found)
    assert loop().device == device
    assert loop(device="cpu").device == "cpu"


# The noise


@pytest.mark.parametrize(
    ("perturbation", "scheme", "dropped", "std"),
    [
        (fed_smp(kept=2000, dimension=5000), Everyone(), 0, 0.5),
        (fed_smp(kept=2000, dimension=5000, missing=3), Everyone(), 2, 0.5 * math.sqrt(4 / 6)),
        (fed_smp(kept=2000, dimension=5000, topped_up=True), Poisson(1e-9), 0, 0.5),
        (fed_smp(kept=2000, dimension=5000, topped_up=True, cohort=3), Everyone(), 0, 0.5),
        (Gaussian(noise_multiplier=1.5, clip_norm=2.0, unit="client"), Poisson(1e-9), 0, 3.0),
        (Gaussian(noise_multiplier=1.5, clip_norm=2.0, unit="client"), Everyone(), 5, 3.0),
    ],
)
def test_the_noise_has_the_law_of_the_shares_that_arrived(perturbation, scheme, dropped, std):
    averaging = loop(
        perturbation,
        scheme,
        model=logistic(499, 10),
        learning_rate=1e-12,
        expected_cohort=4,
        seed=None,
    )
    data = small(features=499, classes=10)
    after, info = averaging.step(averaging.init(), data, dropout=lambda cohort: cohort[:dropped])
    kept = getattr(perturbation, "kept", 5000)
    noise = after.parameters.double().numpy() * -4
    # Noise is of steps of 2^-23: 0 itself is drawn once in 1e4 such runs, three times in 6e12.
    assert kept - 2 <= np.count_nonzero(noise) <= kept
    assert info.noise_std == pytest.approx(std)
    low, high = chi2.ppf([FAILS / 2, 1 - FAILS / 2], kept)
    assert low <= (noise**2).sum() / std**2 <= high
    mean = noise.sum() / (std * math.sqrt(kept))
    assert abs(mean) < 6.2  # a normal deviate beyond that has chance 6e-10


def test_an_empty_poisson_cohort_releases_noise_and_counts():
    journal, purse = Journal(), Purse(1)
    averaging = loop(fed_smp(topped_up=True), Poisson(1e-9))
    state = averaging.init()
    after, info = averaging.step(state, small(), ledger=journal, budget=purse)
    assert info.cohort == info.arrived == 0 and not info.aborted
    # A number is 0, or lost in a parameter's last bit, with a chance of 1e-6: three with 1e-17.
    assert 3 <= int(torch.count_nonzero(after.parameters - state.parameters)) <= 5
    assert journal.kinds == ["intent", "done"] and purse.left == 0
    assert journal.lines[1][2]["noise_std"] == pytest.approx(0.5)


def test_without_a_seed_the_noise_comes_from_the_operating_system(monkeypatch):
    made, asked = [], []

    def counted():
        made.append(np.random.default_rng(0))
        return made[-1]

    def bits(count):
        asked.append(count)
        return bytes(count)

    monkeypatch.setattr("fedprivacy.training.rounds.private_generator", counted)
    monkeypatch.setattr(exact_normals.os, "urandom", bits)
    averaging = loop(fed_smp(), seed=None)
    with pytest.raises(ParameterError, match="bits must be random"):
        averaging.step(averaging.init(), small())
    assert len(made) == 6 and len(set(map(id, made))) == 6  # the model twice, one for each use
    assert asked[0] == 5 * 8  # a word for each kept coordinate, from the system's own generator
    seeded = loop(fed_smp())
    seeded.step(seeded.init(), small())
    assert len(made) == 6 and asked[0] == 40


def test_two_runs_without_a_seed_differ_and_torch_s_own_generator_is_left_alone():
    before = torch.random.get_rng_state()
    noise = Gaussian(noise_multiplier=1.0, unit="client")
    averaging = loop(noise, seed=None, model=mlp(3, 2))
    first, second = (train(averaging, small(), rounds=1).state.parameters for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(before, torch.random.get_rng_state())


# The order of things, refusals, aborts


def test_budget_then_intent_then_noise_then_release_then_done(monkeypatch):
    journal = Journal()
    real = rounded.noise_like

    def noted(value, **given):
        journal.note("noise", None, given["std"])
        return real(value, **given)

    monkeypatch.setattr("fedprivacy.mechanisms.sparsified.noise_like", noted)
    averaging = loop(fed_smp())
    averaging.step(
        averaging.init(),
        small(),
        ledger=journal,
        budget=Purse(1, journal),
        on_release=lambda state: journal.note("release", state.round, None),
    )
    assert journal.kinds == ["intent", "spend", "noise", "release", "done"]
    facts = journal.lines[0][2]
    assert facts["mechanism"] == averaging.round_mechanism
    assert (facts["clip_norm"], facts["noise_std"]) == (0.5, 0.5)


def test_an_exhausted_budget_releases_nothing_and_writes_nothing():
    journal = Journal()
    averaging = loop(fed_smp())
    with pytest.raises(BudgetExhausted, match="exceeds the budget, so it was not released"):
        averaging.step(averaging.init(), small(), ledger=journal, budget=Purse(0))
    assert journal.lines == []


def test_non_finite_updates_are_refused_and_counted_and_nothing_is_lost():
    data = small(poisoned=(1, 4))
    secure = fed_smp(noise_multiplier=TINY)
    averaging, journal = loop(secure, batch_size=99, momentum=0.5), Journal()
    state = averaging.init()
    state = replace(state, parameters=state.parameters + 0.1)
    after, info = averaging.step(state, data, ledger=journal)
    assert (info.cohort, info.arrived, info.refused, info.aborted) == (6, 4, 2, False)
    assert bool(torch.isfinite(after.parameters).all())
    moved = (state.parameters - after.parameters).numpy() * 6
    mask = torch.from_numpy(np.flatnonzero(moved))
    expected = explicit_sum(averaging, data, state, mask, secure, left_out=(1, 4))
    np.testing.assert_allclose(moved[mask], expected, rtol=1e-4, atol=1e-6)
    assert journal.lines[1][2]["refused"] == 2
    assert info.noise_std == pytest.approx(0.5 * TINY)  # a refused client's share still counts
    plain, info = loop(batch_size=99).step(state, data)
    assert info.refused == 2 and bool(torch.isfinite(plain.parameters).all())


def test_a_finite_update_whose_scaled_part_overflows_is_refused():
    """rand_k scales by d/k: 3.2e38 * 8/7 is infinite in single precision."""
    secure = fed_smp(kept=7)
    averaging = loop(secure)
    data, state = small(), averaging.init()
    updates = torch.zeros(6, 8)
    updates[0, averaging._mask(state, data)[0]] = 3.2e38
    object.__setattr__(averaging, "_trained", lambda *_: updates)
    after, info = averaging.step(state, data)
    assert (info.arrived, info.refused) == (5, 1)
    assert bool(torch.isfinite(after.parameters).all())


@pytest.mark.parametrize("scheme", [Everyone(), FixedSize(6, 6)])
def test_too_many_missing_aborts_and_releases_nothing(scheme):
    journal, purse, released = Journal(), Purse(1), []
    averaging = loop(fed_smp(missing=1), scheme)
    state, data = averaging.init(), small()
    after, info = averaging.step(
        state,
        data,
        ledger=journal,
        budget=purse,
        dropout=lambda cohort: cohort[:2],
        on_release=released.append,
    )
    assert info.aborted and (info.arrived, info.refused, info.noise_std) == (4, 0, 0.0)
    assert torch.equal(after.parameters, state.parameters) and after.round == 1
    assert journal.kinds == ["intent", "abort"] and "4 of 6" in journal.lines[1][2]
    assert purse.left == 1 and released == []
    topped = loop(fed_smp(missing=1, topped_up=True), scheme)
    assert not topped.step(state, data, dropout=lambda cohort: cohort[:2])[1].aborted


def test_neither_the_abort_nor_the_noise_depends_on_a_client_s_data():
    """One client's data decide whether its update is finite: no other client may notice."""
    averaging = loop(fed_smp(missing=0))
    state = averaging.init()
    infos = [averaging.step(state, small(poisoned=bad))[1] for bad in ((), (2,))]
    assert [info.refused for info in infos] == [0, 1]
    assert not any(info.aborted for info in infos)
    assert infos[0].noise_std == infos[1].noise_std
    assert infos[0].upload_bytes == infos[1].upload_bytes


def test_a_ledger_of_a_run_with_dropouts_states_what_was_priced(tmp_path):
    averaging = loop(fed_smp(missing=2, colluding=1), seed=None)
    plan = averaging.round_mechanism
    facts = {"unit": "client", "adjacency": "zero_out", "observer": "aggregate", "plan": plan * 3}
    with Ledger.create(
        tmp_path / "ledger", claim=(8.0, 1e-3), schedule="fixed", budget_rule="none", **facts
    ) as ledger:
        data = small(poisoned=(0,))
        result = train(averaging, data, rounds=3, ledger=ledger, dropout=lambda cohort: cohort[1:2])
        aborted = train(averaging, data, rounds=1, ledger=ledger, dropout=lambda cohort: cohort[2:])
        assert aborted.history[0].aborted and not any(info.aborted for info in result.history)
        assert (ledger.spent_rounds, len(ledger.rounds)) == (3, 4)
        assert run_of(ledger.rounds) == plan * 3 and ledger.notes == ()
        done = ledger.rounds[0].done
        assert (done.cohort, done.arrived, done.refused) == (6, 4, 1)


# Messages of a client, and refusals


def travels(kept=3, dimension=8, sparsifier="rand_k"):
    return Sparsification(kept=kept, dimension=dimension, sparsifier=sparsifier)


def test_the_public_denominator_with_replacement_is_the_number_of_draws():
    noise = Gaussian(noise_multiplier=TINY, clip_norm=50.0, unit="client")
    scheme = WithReplacement(9, population=6)
    data, states = small(), []
    for perturbation in (noise, None):
        averaging = loop(perturbation, scheme, batch_size=99, server_learning_rate=0.5)
        states.append(averaging.step(averaging.init(), data)[0].parameters)
    assert torch.allclose(*states, atol=1e-6)


def test_sparsifying_without_noise_keeps_k_scales_and_does_not_clip():
    data = small()
    dense = loop(batch_size=99)
    state = dense.init()
    update = state.parameters - dense.step(state, data)[0].parameters
    for sparsifier, scale in (("rand_k", 8 / 3), ("top_k", 1.0)):
        averaging = loop(sparsification=travels(sparsifier=sparsifier), batch_size=99)
        after, info = averaging.step(state, data)
        moved = state.parameters - after.parameters
        kept = torch.nonzero(moved).flatten()
        assert len(kept) == 3 and averaging.round_mechanism is None
        assert torch.allclose(moved[kept], update[kept] * scale, atol=1e-6)
        assert (info.payload_bytes, info.noise_std) == (6 * 3 * 4, 0.0)
        secret = loop(fed_smp(kept=3, sparsifier=sparsifier, noise_multiplier=TINY), batch_size=99)
        noisy = secret.step(state, data)[0].parameters
        assert torch.equal(torch.nonzero(state.parameters - noisy).flatten(), kept)


@pytest.mark.parametrize("kept", [0, 9, -1, 2.5])
def test_as_many_coordinates_as_there_are_not_are_refused(kept):
    for build in (travels, fed_smp):
        with pytest.raises(ParameterError, match="kept must be"):
            build(kept=kept, dimension=8)


def test_a_cohort_larger_than_the_population_is_refused():
    with pytest.raises(ParameterError, match="size must be at most population = 6"):
        FixedSize(7, population=6)
    averaging = loop(scheme=FixedSize(7, population=9))
    with pytest.raises(ParameterError, match="population must equal"):
        averaging.step(averaging.init(), small())


def test_what_the_paper_counts_is_the_payload():
    """32 k T r / n bits a client, Fed-SMP section 6.3: the payload of all over their number."""
    averaging = loop(fed_smp(kept=5, cohort=2), FixedSize(2, population=6))
    history = train(averaging, small(), rounds=9).history
    paper = 32 * 5 * 9 * (2 / 6) / 8
    assert sum(info.payload_bytes for info in history) / 6 == pytest.approx(paper)


def test_a_round_that_fails_is_spent_in_the_budget_as_in_the_ledger():
    """Retried with the same budget in one process, it must not be free."""

    def failing(cohort):
        raise RuntimeError("the network is down")

    averaging, journal, purse = loop(fed_smp()), Journal(), Purse(4)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="network"):
            train(averaging, small(), rounds=4, ledger=journal, budget=purse, dropout=failing)
    assert journal.spent_rounds == 3 and purse.left == 1
    with pytest.raises(BudgetExhausted):
        train(averaging, small(), rounds=2, ledger=journal, budget=purse)
    assert journal.spent_rounds == 4


def test_a_fresh_budget_is_charged_with_what_the_ledger_says():
    averaging, journal = loop(fed_smp()), Journal()
    train(averaging, small(), rounds=3, ledger=journal, budget=Purse(9))
    purse = Purse(9)
    with pytest.raises(BudgetExhausted):
        train(averaging, small(), rounds=8, ledger=journal, budget=purse)
    assert purse.left == 0 and journal.spent_rounds == 9
    purse = Purse(20)
    for _ in range(2):
        train(averaging, small(), rounds=1, ledger=journal, budget=purse)
    assert 20 - purse.left == journal.spent_rounds


def test_rounds_without_the_budget_are_charged_when_it_comes_back():
    """They were only in the ledger: 47 rounds, 17 reported, 15.76 of a budget of 8."""
    averaging, journal, purse = loop(fed_smp()), Journal(), Purse(9)
    state, _ = averaging.step(averaging.init(), small(), ledger=journal, budget=purse)
    for _ in range(3):
        state, _ = averaging.step(state, small(), ledger=journal)
    with pytest.raises(BudgetExhausted):
        while True:
            state, _ = averaging.step(state, small(), ledger=journal, budget=purse)
    assert journal.spent_rounds == 9 and purse.left == 0


def test_killed_at_random_moments_it_never_counts_too_little(tmp_path):
    kill_often("averaging", tmp_path, 6, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(30, 1), (300, 2), (300, 3)])
def test_killed_hundreds_of_times_it_never_counts_too_little(tmp_path, kills, seed):
    kill_often("averaging", tmp_path, kills, seed)


# Memory


class Peak(TorchDispatchMode):
    """Notes the most bytes that tensors made under it held at once."""

    def __init__(self):
        super().__init__()
        self.alive, self.most = {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, torch.Tensor):
                storage = part.untyped_storage()
                self.alive[storage.data_ptr()] = (weakref.ref(part), storage.nbytes())
        self.alive = {at: kept for at, kept in self.alive.items() if kept[0]() is not None}
        self.most = max(self.most, sum(size for _, size in self.alive.values()))
        return result


@pytest.mark.fast_cells("32")
@pytest.mark.parametrize("clients", [8, 32])
def test_memory_is_a_few_models_whatever_the_cohort(clients):
    features = WORKSPACE // 2
    data = small(clients=clients, features=features, records=1, public=1)
    averaging = loop(
        Gaussian(noise_multiplier=1.0, unit="client"), model=logistic(features, 2), local_steps=1
    )
    state = averaging.init()
    with Peak() as peak:
        averaging.step(state, data)
    model = 4 * averaging.flat.dimension
    assert model > 2**22
    assert peak.most < 14 * model  # the mask's int64 indices count twice


# Bad input

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must .* above 0, got 0.0"),
        ({"learning_rate": NAN}, "learning_rate must .* got nan"),
        ({"server_learning_rate": -1.0}, "server_learning_rate must"),
        ({"learning_rate_decay": 1.1}, "learning_rate_decay must be at most 1, got 1.1"),
        ({"momentum": 1.0}, "momentum must be below 1, got 1.0"),
        ({"momentum": INF}, "momentum must"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"local_steps": 0}, "local_steps must"),
        ({"local_steps": None}, "have exactly one value other than None"),
        ({"local_epochs": 1}, "have exactly one value other than None, got .2, 1."),
        ({"seed": -1}, "seed must"),
        ({"expected_cohort": 0}, "expected_cohort must"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(ParameterError, match=message):
        loop(**options)


def test_perturbations_that_do_not_fit_are_refused():
    with pytest.raises(ParameterError, match=r"perturbation.unit must be 'client'"):
        loop(Gaussian(noise_multiplier=1.0))
    with pytest.raises(
        ParameterError, match="perturbation must be a Perturbation, such as Gaussian"
    ):
        loop(Gaussian(noise_multiplier=1.0, unit="client") * 2)
    with pytest.raises(UnsupportedCombination, match="topped_up"):
        loop(fed_smp(), Poisson(0.5))
    with pytest.raises(ParameterError, match="cohort must equal the scheme's size"):
        loop(fed_smp(), FixedSize(3, 6))
    with pytest.raises(
        ParameterError,
        match="dimension must equal the number of parameters of the model, 8",
    ):
        loop(fed_smp(dimension=9)).flat  # noqa: B018
    with pytest.raises(ParameterError, match="population must equal"):
        averaging = loop(scheme=FixedSize(3, 7))
        averaging.step(averaging.init(), small())


def test_models_that_leak_through_buffers_are_refused():
    def build():
        return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))

    with pytest.raises(ParameterError, match=r"got 'layer 1 \(BatchNorm1d\)'; .*GroupNorm"):
        loop(model=build).init()
    with pytest.raises(ParameterError, match="have parameters to train"):
        loop(model=torch.nn.Flatten).init()


def test_ledgers_that_do_not_fit_are_refused():
    plain = loop()
    with pytest.raises(ParameterError, match="ledger must be None without perturbation"):
        plain.step(plain.init(), small(), ledger=Journal())
    journal = Journal()
    journal.seed_policy = "operating system"
    seeded = loop(fed_smp())
    with pytest.raises(ParameterError, match=r"seed_policy must be 'fixed'.*leave out seed"):
        seeded.step(seeded.init(), small(), ledger=journal)
    other = State(0, torch.zeros(9), 0.1)
    with pytest.raises(ParameterError, match=r"state.parameters must have shape"):
        plain.step(other, small())
    with pytest.raises(ParameterError, match="rounds must"):
        train(plain, small(), rounds=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": ([0], [])}, r"clients\[1\] must contain at least one row"),
        ({"clients": ([0], [99])}, r"clients\[1\] must be row numbers from 0 to 23"),
        ({"clients": ()}, "clients must be an integer of at least 1, got 0"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "one label for every input"),
        ({"labels": torch.full((24,), 2)}, "labels must lie from 0 to 1"),
        (
            {"test_labels": torch.zeros(4)},
            "test_labels must be integers \\(int64\\) from 0 to 1",
        ),
        ({"features": torch.full((24, 3), NAN)}, "features must be finite"),
        (
            {"features": torch.zeros(24, 3, dtype=torch.int64)},
            "features must be torch.float32 or torch.float64",
        ),
        ({"public_labels": None}, "public_features, public_labels must be given together"),
    ],
)
def test_bad_data_is_refused(change, message):
    with pytest.raises(ParameterError, match=message):
        replace(small(), **change)
