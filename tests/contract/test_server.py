"""Averaging of clients that are trained elsewhere, and what travels to them: without any engine."""

from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fedprivacy as fp  # noqa: E402
from fedprivacy.errors import BudgetExhausted, ParameterError  # noqa: E402
from fedprivacy.integrations import flower  # noqa: E402
from fedprivacy.integrations.flower.saved import Saved, SavedContent  # noqa: E402
from fedprivacy.integrations.flower.wire import (  # noqa: E402
    clipped_update,
    flat,
    may_hold,
    shaped,
    spread,
)
from fedprivacy.ledger import Ledger  # noqa: E402
from fedprivacy.systems.averaging.server import Average, Server  # noqa: E402

CLIENTS, DIMENSION, CLIP = 8, 16, 0.5
QUIET = fp.Gaussian(noise_multiplier=1e-9, clip_norm=CLIP, unit="client")
"""So little noise that the sum itself shows."""
START = Average(0, torch.linspace(-1.0, 1.0, DIMENSION))


def a_server(perturbation=QUIET, **named):
    settings = {"scheme": fp.Everyone(), "population": CLIENTS, "seed": 7}
    return Server(perturbation=perturbation, **{**settings, **named})


def a_budget(epsilon=1e30):
    return fp.Budget(epsilon, 0.5, adjacency="zero_out")


def one_round(server, folder, updates, budget=None, state=START):
    budget = budget or a_budget()
    ledger = Ledger.create(
        folder / "run.jsonl", unit="client", adjacency="zero_out", seed_policy="fixed"
    )
    with ledger:
        running = server.collected(state, server.cohort(state.round), server.mask(state))
        books = server.books(ledger, budget)
        return server.step(state, running, updates, books), ledger


def units(size=0.1):
    """Return client -> an update along an axis of its own."""
    return [(client, size * torch.eye(DIMENSION)[client]) for client in range(CLIENTS)]


def test_it_averages_what_was_sent(tmp_path):
    (after, info), _ = one_round(a_server(), tmp_path, units())
    expected = START.parameters.clone()
    expected[:CLIENTS] -= 0.1 / CLIENTS
    assert after.round == 1 and info.arrived == CLIENTS
    torch.testing.assert_close(after.parameters, expected, rtol=0, atol=1e-6)


HOSTILE = {
    "nothing": None,
    "text": "update",
    "nan": torch.full((DIMENSION,), torch.nan),
    "shape": torch.zeros(3),
    "one number": torch.ones(1),
    "huge": torch.full((DIMENSION,), 1e30),
}


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
def test_a_client_moves_the_average_by_no_more_than_its_norm(tmp_path, sent):
    updates = [*units()[1:], (0, sent), (0, torch.ones(DIMENSION)), (99, torch.ones(DIMENSION))]
    (after, info), _ = one_round(a_server(), tmp_path, updates)
    expected = START.parameters.clone()
    expected[1:CLIENTS] -= 0.1 / CLIENTS
    moved = torch.linalg.vector_norm(after.parameters - expected).item()
    fits = isinstance(sent, torch.Tensor) and len(sent) == DIMENSION and bool(sent.isfinite().all())
    assert moved == pytest.approx(CLIP / CLIENTS if fits else 0.0, abs=1e-6)
    # The second answer and the stranger are refused too.
    assert (info.arrived, info.refused) == ((8, 2) if fits else (7, 3))


@pytest.mark.parametrize(("missing", "aborted"), [(0, True), (1, False)])
def test_silent_clients_abort_the_round(tmp_path, missing, aborted):
    (after, info), ledger = one_round(a_server(missing=missing), tmp_path, units()[1:])
    assert info.aborted is aborted and after.round == 1
    assert torch.equal(after.parameters, START.parameters) is aborted
    assert (ledger.rounds == [] or not ledger.rounds[0].spent) is aborted


def test_a_round_that_does_not_fit_releases_nothing(tmp_path):
    noise = fp.Gaussian(noise_multiplier=1.0, clip_norm=CLIP, unit="client")
    with pytest.raises(BudgetExhausted):
        one_round(a_server(noise), tmp_path, units(), fp.Budget(0.01, 1e-5, adjacency="zero_out"))


@pytest.mark.parametrize("rotated", [True, False])
def test_whole_numbers_are_decoded_to_the_average(tmp_path, rotated):
    noise = fp.DistributedDiscreteGaussian(
        noise_multiplier=0.5, clip_norm=CLIP, dimension=DIMENSION, cohort=CLIENTS, bits=20,
        rotated=rotated,
    )  # fmt: skip
    update = CLIP * torch.eye(DIMENSION)[3]
    sent = [(client, update) for client in range(CLIENTS)]
    (after, info), _ = one_round(a_server(noise), tmp_path, sent)
    assert info.arrived == CLIENTS and info.refused == 0
    # Six stds of the average's noise.
    near = 6 * 0.5 * CLIP / CLIENTS
    torch.testing.assert_close(START.parameters - after.parameters, update, rtol=0, atol=near)


def sparse(kind, kept=4):
    return fp.SparsifiedPerturbation(
        noise_multiplier=1e-9, clip_norm=100.0, kept=kept, dimension=DIMENSION, cohort=CLIENTS,
        sparsifier=kind,
    )  # fmt: skip


def test_top_k_keeps_what_public_training_moved_most(tmp_path):
    public = torch.zeros(DIMENSION)
    public[[2, 3, 5, 11]] = torch.tensor([1.0, -4.0, 2.0, -3.0])
    server = a_server(sparse("top_k"), public_update=lambda parameters: public)
    assert server.mask(START).tolist() == [2, 3, 5, 11]
    (after, _), _ = one_round(
        server, tmp_path, [(each, torch.ones(DIMENSION)) for each in range(CLIENTS)]
    )
    moved = START.parameters - after.parameters
    torch.testing.assert_close(moved, (public != 0).float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"perturbation": sparse("top_k")}, "public_update"),
        ({"perturbation": sparse("rand_k"), "public_update": lambda _: None}, "public_update"),
        ({"scheme": fp.Shuffled(2)}, "round by round"),
        ({"missing": -1}, "missing"),
        ({"population": 0}, "population"),
    ],
)
def test_bad_settings_are_refused(named, reason):
    with pytest.raises(ParameterError, match=reason):
        a_server(**named)


@pytest.mark.parametrize("update", [torch.ones(3), torch.full((DIMENSION,), torch.inf)])
def test_a_bad_public_update_is_refused(update):
    server = a_server(sparse("top_k"), public_update=lambda _: update)
    with pytest.raises(ParameterError, match="public_update"):
        server.mask(START)


LAYOUT = {"a": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.float32)}
AFTER = {"a": np.full(3, 3.0, np.float32), "b": np.full((2, 2), -1.0, np.float32)}


def test_a_client_sends_one_norm_over_all_arrays():
    sent = clipped_update(LAYOUT, AFTER, clip_norm=1.0)
    assert np.linalg.norm(sent) == pytest.approx(1.0)
    np.testing.assert_allclose(sent / sent[0], [1, 1, 1] + [-1 / 3] * 4, rtol=1e-6)
    assert np.array_equal(clipped_update(LAYOUT, AFTER, clip_norm=100.0), -flat(AFTER))
    # The server multiplies kept coordinates: what it clips to is the norm of the product.
    kept = clipped_update(LAYOUT, AFTER, clip_norm=1.0, factor=2.0, mask=np.array([0, 6]))
    assert np.linalg.norm(kept) == pytest.approx(0.5)
    assert spread(kept, 7, np.array([0, 6])).tolist() == [kept[0], 0, 0, 0, 0, 0, kept[1]]


BAD = {
    "a part": ({"a": AFTER["a"]}, "FedBN"),
    "another shape": ({**AFTER, "a": np.zeros(4, np.float32)}, "shapes"),
    "infinite": ({**AFTER, "a": np.full(3, np.inf, np.float32)}, "finite"),
    "counter": ({**AFTER, "a": np.zeros(3, np.int64)}, "float32"),
}


@pytest.mark.parametrize(("after", "reason"), BAD.values(), ids=BAD)
def test_what_has_no_common_sum_is_refused(after, reason):
    with pytest.raises(ParameterError, match=reason):
        clipped_update(LAYOUT, after, clip_norm=1.0)


def test_arrays_are_one_vector_and_back():
    back = shaped(flat(AFTER), AFTER)
    assert all(np.array_equal(back[name], AFTER[name]) for name in AFTER)
    assert may_hold(bytes(4 * 7 + 128), 7) and not may_hold(bytes(10**6), 7)
    with pytest.raises(ParameterError, match="at least one"):
        flat({})


def test_a_saved_model_belongs_to_its_ledger(tmp_path):
    path, facts = tmp_path / "model.npz", {"unit": "client", "adjacency": "zero_out"}
    one, another = (Ledger.create(tmp_path / name, **facts) for name in ("one", "another"))
    saved = Saved(path, one)
    assert saved.read() is None
    saved.write(SavedContent(AFTER, 5, 0.25))
    arrays, rounds, norm = saved.read()
    assert (rounds, norm) == (5, 0.25) and all(
        np.array_equal(arrays[name], AFTER[name]) for name in AFTER
    )
    with pytest.raises(ParameterError, match="the run of this ledger"):
        Saved(path, another).read()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ParameterError, match="restore"):
        saved.read()


@pytest.mark.skipif(find_spec("flwr") is not None, reason="flwr is installed here")
@pytest.mark.parametrize("name", flower.__all__)
def test_without_flwr_the_names_say_what_to_install(name):
    with pytest.raises(ParameterError, match="fedprivacy\\[flower\\]"):
        getattr(flower, name)


def test_the_intent_is_there_before_the_cohort_is_drawn(tmp_path):
    """A cohort that was drawn and dropped left no line: whoever drew again chose it."""
    server, budget = a_server(), a_budget()
    path = tmp_path / "run.jsonl"
    facts = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}
    with Ledger.create(path, **facts) as ledger:
        begun = server.begin(START, server.books(ledger, budget))
        assert begun.number == 0 and Ledger.open(path).begun_rounds == 1
        running = server.collected(START, server.cohort(0), None)
        after, info = server.step(START, running, units(), begun)
        assert after.round == 1 and info.arrived == CLIENTS
        # Another one is begun, drawn, and dropped: it stays spent.
        server.begin(after, server.books(ledger, budget))
    found = Ledger.open(path)
    assert found.spent_rounds == 2 and [one.done is None for one in found.rounds] == [False, True]
    with pytest.raises(BudgetExhausted), Ledger.open(path, resume=True) as ledger:
        server.begin(after, server.books(ledger, a_budget(1e-3)))
    assert Ledger.open(path).begun_rounds == 2
