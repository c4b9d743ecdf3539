"""Clients that are made as they are drawn, and rounds in several processes."""

import pickle

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.sampling import poisson

torch = pytest.importorskip("torch")

from fedprivacy.systems.averaging.clients import _unpickled  # noqa: E402
from fedprivacy.training import (  # noqa: E402
    FederatedAveraging,
    FederatedData,
    LazyData,
    logistic,
    train,
)

MILLION = 10**6
NOISE = fp.Gaussian(noise_multiplier=1.0, clip_norm=0.1, unit="client")
EMPTY = torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64)


def made(client):
    """Return a client's 3 to 5 records, determined by its number."""
    generator = np.random.default_rng(client)
    inputs = generator.normal(size=(3 + client % 3, 5)).astype(np.float32)
    return torch.from_numpy(inputs), torch.from_numpy((inputs[:, 0] > 0).astype(np.int64))


def lazy(population=40, client=made, **named):
    chosen = {"test_features": EMPTY[0], "test_labels": EMPTY[1], "num_classes": 2, **named}
    return LazyData(client=client, population=population, **chosen)


def whole(population=40):
    """Return the same clients, all of their records in memory."""
    parts = [made(client) for client in range(population)]
    ends = np.cumsum([len(labels) for _, labels in parts])
    rows = np.split(np.arange(ends[-1]), ends[:-1])
    inputs, labels = (torch.cat([part[at] for part in parts]) for at in (0, 1))
    return FederatedData(features=inputs, labels=labels, clients=tuple(rows), num_classes=2)


def loop_of(**changed):
    chosen = {"scheme": fp.FixedSize(12, population=40), "perturbation": NOISE, "local_steps": 2}
    return FederatedAveraging(model=logistic(5, 2), seed=3, device="cpu", **{**chosen, **changed})


@pytest.mark.parametrize(
    "scheme", [fp.FixedSize(12, population=40), fp.WithReplacement(12, population=40)], ids=str
)
def test_made_clients_train_as_kept_ones_to_the_last_bit(scheme):
    loop = loop_of(scheme=scheme)
    kept, made_up = (train(loop, data, rounds=3) for data in (whole(), lazy()))
    assert torch.equal(kept.state.parameters, made_up.state.parameters)
    assert kept.history == made_up.history


def test_of_a_million_clients_those_drawn_are_made_and_no_others():
    asked = []

    def client(number):
        asked.append(number)
        return made(number)

    loop = loop_of(scheme=fp.Poisson(1e-5))
    _, info = loop.step(loop.init(), lazy(MILLION, client))
    assert len(asked) == len(set(asked)) == info.cohort == info.arrived
    assert max(asked) > 10**5


def test_groups_are_of_one_size_and_no_larger_than_asked():
    groups = list(lazy().groups(range(40), 4))
    assert sorted(client for group in groups for client in group.clients) == list(range(40))
    for group in groups:
        assert len(group.clients) <= 4 and len({client % 3 for client in group.clients}) == 1
        for client, rows in zip(group.clients, group.rows, strict=True):
            assert torch.equal(group.records[0][torch.from_numpy(rows)], made(client)[0])


WRONG = {
    "no pair": (lambda _: made(0)[0], "inputs, targets"),
    "another type": (lambda _: (made(0)[0].double(), made(0)[1]), "float32"),
    "another shape": (lambda _: (made(0)[0][:, :4], made(0)[1]), "shape"),
    "not finite": (lambda _: (made(0)[0] * np.nan, made(0)[1]), "finite"),
    "no class": (lambda _: (made(0)[0], made(0)[1] + 2), "labels"),
    "no record": (lambda _: EMPTY, "at least 1"),
    "two lengths": (lambda _: (made(0)[0], made(0)[1][:1]), "one label for every input"),
}


@pytest.mark.parametrize(("client", "reason"), WRONG.values(), ids=WRONG)
def test_what_a_client_may_not_have_is_told(client, reason):
    with pytest.raises(ParameterError, match=reason):
        lazy(client=client).records(0)


def test_classes_are_not_guessed():
    with pytest.raises(ParameterError, match="num_classes"):
        loop_of().step(loop_of().init(), lazy(num_classes=None))
    with pytest.raises(ParameterError, match="function"):
        lazy(client=3)
    with pytest.raises(ParameterError, match="tensor"):
        lazy(test_features=[1.0])


@pytest.mark.parametrize("population", [0, 1, poisson.AT_ONCE, 3 * poisson.AT_ONCE + 5])
def test_a_cohort_is_drawn_as_from_one_array(population):
    drawn = fp.Poisson(0.01).draw(population, np.random.default_rng(1))
    at_once = np.random.default_rng(1).random(population) < 0.01
    assert np.array_equal(drawn, np.flatnonzero(at_once))


class HerePool:
    """Replaces joblib's processes: all values pass through pickle, in this process."""

    def __init__(self, **named):
        assert named["n_jobs"] > 1 and named["return_as"] == "generator"

    def __call__(self, calls):
        _unpickled.cache_clear()
        for function, args, named in calls:
            yield pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps(args)), **named)))


def with_dropout():
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(5, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)
    )


SHARED = {
    "closed form": {},
    "drawn layers": {"model": with_dropout},
    "without privacy": {"model": with_dropout, "perturbation": None},
    "sparse": {
        "perturbation": fp.SparsifiedPerturbation(
            noise_multiplier=1.0, clip_norm=0.1, kept=6, dimension=12, cohort=12
        )
    },
    "whole numbers": {
        "perturbation": fp.DistributedDiscreteGaussian(
            noise_multiplier=1.0, clip_norm=0.1, dimension=12, cohort=12, bits=18
        )
    },
    "learned norm": {
        "perturbation": fp.AdaptiveClipping(noise_multiplier=1.0, clip_norm=0.1, unit="client")
    },
    "drawn twice": {"scheme": fp.WithReplacement(30, population=40)},
}


def by_processes(processes, settings, rounds=2):
    chosen = {"model": logistic(5, 2), "batch_size": 2, "local_epochs": 2, "local_steps": None}
    loop = FederatedAveraging(
        **{
            "scheme": fp.FixedSize(12, population=40), "perturbation": NOISE, "seed": 3,
            "device": "cpu", "processes": processes, **chosen, **settings,
        }
    )  # fmt: skip
    return train(loop, whole(), rounds=rounds)


def check_shared(settings, counts):
    alone = by_processes(1, settings)
    for processes in counts:
        shared = by_processes(processes, settings)
        assert torch.equal(alone.state.parameters, shared.state.parameters)
        assert alone.history == shared.history


@pytest.mark.parametrize("settings", SHARED.values(), ids=SHARED)
def test_a_shared_round_is_the_same_to_the_last_bit(monkeypatch, settings):
    import joblib

    monkeypatch.setattr(joblib, "Parallel", HerePool)
    check_shared(settings, (2, 4))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("settings", SHARED.values(), ids=SHARED)
def test_processes_share_a_round_to_the_last_bit(settings):
    check_shared(settings, (2, 4))


def test_processes_are_counted_from_one_and_on_the_cpu():
    with pytest.raises(ParameterError, match="processes"):
        loop_of(processes=0)
