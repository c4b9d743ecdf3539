"""Clients of a Flower app that fail, lie or answer twice: counted, and clipped before release."""

from logging import getLogger

import pytest

pytest.importorskip("flwr", reason="pip install -e '.[flower,train,test]' elsewhere")
torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAvg, FedMedian, FedProx  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.errors import ParameterError  # noqa: E402
from fedprivacy.integrations.flower.wire import UPDATE  # noqa: E402
from tests.integrations.flower import apps as apps  # noqa: E402

QUIET = fp.Gaussian(noise_multiplier=1e-9, clip_norm=0.05, unit="client")
"""So little noise that the sum itself shows."""
DIMENSION = 650


def vector(values):
    return RecordDict({UPDATE: ArrayRecord({UPDATE: Array(values)})})


def replaced(content):
    """Return what sends ``content`` in place of client 3's answer."""

    def after(client, reply):
        if client == 3:
            reply.content = content
        return [reply]

    return after


def doubled(client, reply):
    return [reply, reply] if client == 3 else [reply]


def failing(client, reply):
    if client == 3:
        reply = Message(Error(2, "its own words"), reply_to=reply)
        # A reply to a reply comes from the other end.
        reply.metadata.__dict__["_src_node_id"] = 103
    return [reply]


def big(dtype=np.float32, factor=1e30):
    return np.full(DIMENSION, factor, dtype)


HOSTILE = {
    "fails": (failing, 1),
    "nan": (replaced(vector(np.full(DIMENSION, np.nan, np.float32))), 1),
    "wrong shape": (replaced(vector(np.zeros(7, np.float32))), 1),
    "wrong rank": (replaced(vector(np.zeros((1, DIMENSION), np.float32))), 1),
    "wrong type": (replaced(vector(big(np.float64))), 1),
    "bytes": (replaced(RecordDict({UPDATE: ArrayRecord({UPDATE: Array(
        "float32", (DIMENSION,), "numpy.ndarray", b"\x93NUMPY no array")})})), 1),
    "claims a size": (replaced(vector(np.zeros(10**6, np.float32))), 1),
    "nothing": (replaced(RecordDict()), 1),
    "huge": (replaced(vector(big())), 0),
    "twice": (doubled, 1),
}  # fmt: skip


@pytest.mark.parametrize(("after", "refused"), HOSTILE.values(), ids=HOSTILE)
def test_one_client_moves_the_model_by_no_more_than_its_norm(tmp_path, after, refused):
    models = []
    for kind, hook in (("quiet", None), ("hostile", after)):
        folder = tmp_path / kind
        folder.mkdir()
        strategy = apps.private(
            apps.equal(FedAvg), folder, perturbation=QUIET, scheme=fp.Everyone(),
            budget=fp.Budget(1e30, 0.5, adjacency="zero_out"), seed=1,
        )  # fmt: skip
        torch.manual_seed(0)
        start = apps.arrays_of(apps.module())
        result = strategy.start(apps.HereGrid(apps.client_app(), after=hook), start, 1)
        models.append(np.concatenate([one.numpy().ravel() for one in result.arrays.values()]))
    (info,) = strategy.history
    assert info.refused == refused
    assert info.arrived == apps.CLIENTS - (refused if after is not doubled else 0)
    assert np.isfinite(models[1]).all()
    # Its contribution before and after are each of norm 0.05 at most.
    moved = np.linalg.norm(models[1] - models[0])
    assert moved <= 2 * 0.05 / apps.CLIENTS * 1.001
    assert (moved > 0) == (after is not doubled)


def silent(client, reply):
    return [] if client == 3 else [reply]


def test_too_many_silent_clients_abort_the_round(tmp_path):
    start = apps.arrays_of(apps.module())
    for missing, aborted in ((0, True), (1, False)):
        folder = tmp_path / str(missing)
        folder.mkdir()
        strategy = apps.private(apps.equal(FedAvg), folder, scheme=fp.Everyone(), missing=missing)
        grid = apps.HereGrid(apps.client_app(), after=silent)
        result = strategy.start(grid, start, 1)
        assert strategy.history[0].aborted is aborted
        assert strategy.ledger.rounds[0].spent is not aborted
        assert bool(result.train_metrics_clientapp) is not aborted


@pytest.mark.parametrize("name", apps.KINDS)
def test_other_strategies_step_by_the_noisy_average_alone(tmp_path, name):
    """Two rounds equal those of the plain strategy that gets the noisy averages as replies."""
    seen, (kind, named) = [], apps.KINDS[name]

    def app(message, client):
        # FedProx's own setting reaches the app; ours do not.
        seen.append(set(message.content["config"]))
        assert set(message.content) == {"arrays", "config"}
        return apps.trained(message, client)

    start = apps.arrays_of(apps.module())
    settings = {"perturbation": apps.GAUSSIAN, "scheme": fp.Everyone(), "seed": 3}
    strategy = apps.private(apps.equal(kind, **named), tmp_path, **settings)
    averages = []
    plain = strategy.server.step

    def step(*args, **others):
        found = plain(*args, **others)
        averages.append(found[0].parameters.numpy())
        return found

    object.__setattr__(strategy.server, "step", step)
    result = strategy.start(apps.HereGrid(apps.client_app(app)), start, 2)
    assert all("server-round" in names for names in seen)
    assert all(("proximal-mu" in names) == (kind is FedProx) for names in seen)
    alone, arrays = apps.equal(kind, **named), start
    for number, average in enumerate(averages, 1):
        alone.configure_train(number, arrays, ConfigRecord(), apps.HereGrid(None))
        parts = np.split(average, [640])
        reply = ArrayRecord(
            {name: Array(part.reshape(held.shape))
             for (name, held), part in zip(start.items(), parts, strict=True)}
        )  # fmt: skip
        content = RecordDict({"a": reply, "m": MetricRecord({apps.EQUALLY: 1.0})})
        arrays, _ = alone.aggregate_train(
            number, [Message(content=content, dst_node_id=1, message_type="train")]
        )
    for key, array in arrays.items():
        np.testing.assert_allclose(result.arrays[key].numpy(), array.numpy(), atol=1e-6)


REFUSED = {
    "median": (apps.equal(FedMedian), {}, "average its replies"),
    "weights": (FedAvg(fraction_evaluate=0.0), {}, "weighted_by_key"),
    "evaluates": (FedAvg(weighted_by_key=apps.EQUALLY), {}, "client metrics"),
    "metrics": (apps.equal(FedAvg, train_metrics_aggr_fn=lambda *_: None), {}, "client metrics"),
    "correlated": (
        apps.equal(FedAvg),
        {"perturbation": fp.CorrelatedNoise(
            factor=fp.factors.Tree(), noise_multiplier=1.0, rounds=4, unit="client",
            participation=fp.SingleParticipation())},
        "CorrelatedNoise",
    ),
    "record": (
        apps.equal(FedAvg), {"perturbation": fp.Gaussian(noise_multiplier=1.0, unit="record")},
        "unit",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("strategy", "named", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_would_make_the_account_untrue_is_refused(tmp_path, strategy, named, reason):
    with pytest.raises(ParameterError, match=reason):
        apps.private(strategy, tmp_path, **named)
    assert not (tmp_path / "run.jsonl").exists()


def test_the_budget_stops_the_run_and_a_closed_ledger_stays_closed(tmp_path):
    one = fp.epsilon(apps.GAUSSIAN.sampled(fp.Everyone()) * 2, delta=1e-3, adjacency="zero_out")
    budget = apps.a_budget(one.upper + 0.01)
    strategy = apps.private(apps.equal(FedAvg), tmp_path, scheme=fp.Everyone(), budget=budget)
    grid = apps.HereGrid(apps.client_app())
    result = strategy.start(grid, apps.arrays_of(apps.module()), 9)
    assert len(strategy.history) == 2 and len(result.train_metrics_clientapp) == 2
    # No client was queried for a third round.
    assert len(grid.asked) == 2 * apps.CLIENTS
    claim = (budget.epsilon, budget.delta)
    assert fp.audit(tmp_path / "run.jsonl", claim=claim).verdict == "HOLDS"
    with pytest.raises(fp.errors.LedgerError, match="closed"):
        apps.private(apps.equal(FedAvg), tmp_path, scheme=fp.Everyone(), budget=budget)


def nudged(arrays):
    """Train on public data: here, move the first 65 numbers."""
    moved = apps.flat(arrays)
    moved[:65] += 1.0
    parts = np.split(moved, [640])
    return ArrayRecord(
        {name: Array(part.reshape(held.shape))
         for (name, held), part in zip(arrays.items(), parts, strict=True)}
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["rand_k", "top_k"])
def test_sparse_rounds_send_kept_coordinates_alone(tmp_path, kind):
    sizes = []

    def after(client, reply):
        sizes.append(reply.content.array_records[UPDATE][UPDATE].shape)
        return [reply]

    perturbation = fp.SparsifiedPerturbation(
        noise_multiplier=1.0, clip_norm=0.05, kept=65, dimension=DIMENSION, cohort=4,
        sparsifier=kind,
    )  # fmt: skip
    by_size = {"public_training": nudged} if kind == "top_k" else {}
    strategy = apps.private(apps.equal(FedAvg), tmp_path, perturbation=perturbation, **by_size)
    start = apps.arrays_of(apps.module())
    result = strategy.start(apps.HereGrid(apps.client_app(), after=after), start, 1)
    assert set(sizes) == {(65,)} and strategy.history[0].arrived == 4
    moved = np.flatnonzero(apps.flat(result.arrays) != apps.flat(start))
    assert len(moved) == 65 and (kind == "rand_k" or moved[-1] == 64)
    assert fp.audit(tmp_path / "run.jsonl", claim=(50.0, 1e-3)).verdict == "HOLDS"


def test_whole_numbers_of_every_client_arrive(tmp_path):
    perturbation = fp.DistributedDiscreteGaussian(
        noise_multiplier=1.0, clip_norm=0.05, dimension=DIMENSION, cohort=4, bits=18
    )
    strategy = apps.private(apps.equal(FedAvg), tmp_path, perturbation=perturbation)
    start = apps.arrays_of(apps.module())
    result = strategy.start(apps.HereGrid(apps.client_app()), start, 2)
    assert [one.arrived for one in strategy.history] == [4, 4]
    # The noise of two rounds, and little else.
    moved = np.std(apps.flat(result.arrays) - apps.flat(start))
    assert 0.8 < moved / (0.05 / 4 * 2**0.5) < 1.2
    assert fp.audit(tmp_path / "run.jsonl", claim=(50.0, 1e-3)).verdict == "HOLDS"


def test_the_log_speaks_of_the_cohort_that_was_drawn(tmp_path, caplog):
    getLogger("flwr").propagate = True
    strategy = apps.private(apps.equal(FedAvg), tmp_path)
    with caplog.at_level("INFO", logger="flwr"):
        strategy.start(apps.HereGrid(apps.client_app()), apps.arrays_of(apps.module()), 1)
    assert "4 of 12 nodes were drawn" in caplog.text
    assert "4 of 4 updates are in the sum" in caplog.text
    assert "configure_train: Sampled" not in caplog.text and "Received" not in caplog.text
