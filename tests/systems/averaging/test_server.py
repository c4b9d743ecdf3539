"""Averaging of clients that are trained elsewhere, and their messages, without an engine."""

from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")

import fedprivacy as fp  # noqa: E402
from fedprivacy.errors import BudgetExhausted, ParameterError  # noqa: E402
from fedprivacy.integrations import flower  # noqa: E402
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
    """Return client -> an update along a separate axis."""
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


@pytest.mark.skipif(find_spec("flwr") is not None, reason="flwr is installed here")
@pytest.mark.parametrize("name", flower.__all__)
def test_without_flwr_the_names_say_what_to_install(name):
    with pytest.raises(ParameterError, match="fedprivacy\\[flower\\]"):
        getattr(flower, name)


def test_the_intent_is_there_before_the_cohort_is_drawn(tmp_path):
    """A dropped cohort left no line, so a person who drew again could choose it."""
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
