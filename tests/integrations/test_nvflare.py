"""NVFlare: a run in its simulator, and the checks of the filter and the server."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.common import ROOT

pytest.importorskip("nvflare", reason="pip install 'nvflare>=2.9,<2.10' elsewhere")
torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from nvflare.apis.dxo import DXO, DataKind, from_shareable  # noqa: E402
from nvflare.apis.fl_constant import ReturnCode  # noqa: E402
from nvflare.apis.fl_context import FLContext  # noqa: E402
from nvflare.apis.shareable import Shareable, make_reply  # noqa: E402
from nvflare.apis.signal import Signal  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.errors import ParameterError  # noqa: E402
from fedprivacy.integrations.flower.saved import Saved  # noqa: E402
from fedprivacy.integrations.nvflare import ClippedUpdate, PrivateAveraging  # noqa: E402
from fedprivacy.ledger import Ledger  # noqa: E402
from fedprivacy.systems.averaging.server import Average  # noqa: E402

JOB = ROOT / "examples" / "nvflare"
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def job(monkeypatch):
    monkeypatch.syspath_prepend(str(JOB))
    import private_job

    return private_job


def simulated(folder, *seed):
    command = [sys.executable, str(JOB / "job.py"), str(folder), *seed]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, (found.stdout + found.stderr)[-3000:]
    return found.stdout


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_a_run_in_the_simulator_audits_holds(tmp_path):
    assert "HOLDS" in simulated(tmp_path)
    found = fp.audit(tmp_path / "run.jsonl")
    assert found.statement.startswith("HOLDS")
    with Ledger.open(tmp_path / "run.jsonl") as ledger:
        assert len(ledger.rounds) == 2


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_it_equals_the_same_rounds_in_one_process(tmp_path, job):
    simulated(tmp_path, "3")
    flow = job.Workflow(str(tmp_path / "own"), seed=3)
    mechanism = flow.server.mechanism
    names, clip = [f"site-{number + 1}" for number in range(job.CLIENTS)], ClippedUpdate(0.5)
    state = Average(0, torch.from_numpy(flow._first))
    path = tmp_path / "own.jsonl"
    with Ledger.create(path, unit="client", adjacency="zero_out", seed_policy="fixed") as ledger:
        books = flow.server.books(ledger, flow.budget)
        for number in range(2):
            running = flow.server.collected(state, flow.server.cohort(number), None)
            arrays = flow._arrays(state)
            updates = []
            for client in running.turns:
                sent = DXO(DataKind.WEIGHT_DIFF, data=job.change(arrays, names[client]))
                updates.append((client, flow._update(clip.process(sent.to_shareable(), None))))
            state, info = flow.server.step(state, running, updates, books)
            assert info.arrived == 3
        ledger.close()
    with Ledger.open(tmp_path / "run.jsonl") as there, Ledger.open(path) as own:
        held = Saved(tmp_path / "model.npz", there).read()
        assert [one.mechanism for one in there.rounds] == [one.mechanism for one in own.rounds]
    assert mechanism.scheme == fp.FixedSize(3, population=job.CLIENTS)
    # Sums on one grid do not depend on who came first.
    for name, array in flow._arrays(state).items():
        assert np.array_equal(held.arrays[name], array)


def test_the_filter_clips_and_keeps_everything_else():
    update = {"b": np.full(4, 3.0, np.float32), "a": np.full((1, 2), -3.0, np.float32)}
    full = DXO(DataKind.WEIGHT_DIFF, data=update, meta={"NUM_STEPS": 7, "loss": 0.2}).to_shareable()
    full.set_header("secret", "text")
    out = ClippedUpdate(0.5).process(full, None)
    sent = from_shareable(out)
    norm = np.sqrt(sum(float(np.sum(np.square(part))) for part in sent.data.values()))
    assert norm == pytest.approx(0.5, rel=1e-6) and list(sent.data) == ["b", "a"]
    assert np.all(sent.data["b"] > 0) and sent.data["a"].shape == (1, 2)
    assert "secret" not in str(out) and "loss" not in str(out) and "NUM_STEPS" not in str(out)


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        (DataKind.WEIGHTS, {"a": np.ones(2, np.float32)}, "data kind"),
        (DataKind.METRICS, {"accuracy": 0.5}, "data kind"),
        (DataKind.WEIGHT_DIFF, {"a": np.ones(2)}, "single precision"),
        (DataKind.WEIGHT_DIFF, {"a": np.array([np.nan], np.float32)}, "finite"),
    ],
)
def test_the_filter_refuses(kind, data, told):
    with pytest.raises(ParameterError, match=told):
        ClippedUpdate(0.5).process(DXO(kind, data=data).to_shareable(), None)


def test_of_an_error_its_code_alone_leaves():
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION, headers={"text": "a record"})
    out = ClippedUpdate(0.5).process(reply, None)
    assert out.get_return_code() == ReturnCode.EXECUTION_EXCEPTION and "record" not in str(out)


def good(value):
    return {"weight": np.full(3, value, np.float32), "bias": np.zeros(1, np.float32)}


LIES = {
    "an error": lambda: make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR),
    "nothing": Shareable,
    "other names": lambda: DXO(DataKind.WEIGHT_DIFF, data={"weight": np.ones(4, np.float32)}),
    "another shape": lambda: DXO(
        DataKind.WEIGHT_DIFF, data=good(1.0) | {"bias": np.ones((1, 1), np.float32)}
    ),
    "weights": lambda: DXO(DataKind.WEIGHTS, data=good(1.0)),
    "a number": lambda: DXO(DataKind.WEIGHT_DIFF, data=good(1.0) | {"bias": 1.0}),
    "nan": lambda: DXO(DataKind.WEIGHT_DIFF, data=good(np.nan)),
    "huge": lambda: DXO(DataKind.WEIGHT_DIFF, data=good(1e30)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_liar_moves_the_sum_by_no_more_than_its_norm(tmp_path, job, lie):
    flow = job.Workflow(str(tmp_path), seed=1)
    running = flow.server.collected(Average(0, torch.zeros(4)), [0, 1], None)
    sent = LIES[lie]()
    shareable = sent.to_shareable() if isinstance(sent, DXO) else sent
    running.add(0, flow._update(shareable))
    assert running.add(1, flow._update(DXO(DataKind.WEIGHT_DIFF, data=good(0.01)).to_shareable()))
    assert (running.arrived, running.refused) == ((2, 0) if lie == "huge" else (1, 1))
    # Start less result: the other way round than what NVFlare's clients send.
    plain = torch.tensor([0.0, -0.01, -0.01, -0.01], dtype=torch.float64)
    assert (running.total - plain).norm() <= job.CLIP_NORM * (1 + 1e-6)


class Engine:
    def __init__(self, clients):
        names = [f"site-{number}" for number in range(clients, 0, -1)]
        self.clients = [SimpleNamespace(name=name) for name in names]

    def get_clients(self):
        return self.clients


def test_another_number_of_clients_ends_the_job(tmp_path, job, monkeypatch):
    said = []
    monkeypatch.setattr(
        PrivateAveraging, "system_panic", lambda self, told, context: said.append(told)
    )
    flow = job.Workflow(str(tmp_path))
    flow.start_controller(SimpleNamespace(get_engine=lambda: Engine(5)))
    flow.control_flow(SimpleNamespace(triggered=False), None)
    assert "population must be the job's 5 clients, got 4" in said[0]
    # No file was opened, no client queried.
    assert not (tmp_path / "run.jsonl").exists()


def test_a_spent_budget_asks_nobody(tmp_path, job, monkeypatch):
    said, asked = [], []
    monkeypatch.setattr(
        PrivateAveraging, "log_warning", lambda self, context, told: said.append(told)
    )
    monkeypatch.setattr(PrivateAveraging, "broadcast_and_wait", lambda *given: asked.append(given))
    flow = job.Workflow(str(tmp_path), epsilon=0.5)
    flow.start_controller(SimpleNamespace(get_engine=lambda: Engine(4)))
    flow.control_flow(SimpleNamespace(triggered=False), None)
    assert said[0].startswith("Stopped") and not asked
    with Ledger.open(tmp_path / "run.jsonl") as ledger:
        assert not ledger.rounds


def test_what_failed_goes_on_and_stays_spent(tmp_path, job, monkeypatch):
    said, answered = [], []

    def answers(flow, task, context, targets, least, wait, signal):
        assert least == len(targets) == 3
        answered.append(targets)
        for name in targets:
            arrays = from_shareable(task.data).data
            update = DXO(DataKind.WEIGHT_DIFF, data=job.change(arrays, name)).to_shareable()
            client = SimpleNamespace(name=name)
            task.result_received_cb(SimpleNamespace(client=client, result=update), context)

    def fails(flow, *given):
        if len(answered) == 1:
            raise RuntimeError("the cell is gone")
        answers(flow, *given)

    def run(broadcast, expected):
        monkeypatch.setattr(PrivateAveraging, "broadcast_and_wait", broadcast)
        flow = job.Workflow(str(tmp_path))
        flow.start_controller(SimpleNamespace(get_engine=lambda: Engine(4)))
        flow.control_flow(SimpleNamespace(triggered=False), None)
        assert len(flow.history) == expected

    panic = "system_panic"
    monkeypatch.setattr(PrivateAveraging, panic, lambda self, told, context: said.append(told))
    monkeypatch.setattr(PrivateAveraging, "log_info", lambda *given: None)
    run(fails, 1)
    assert said == ["the cell is gone"]
    with Ledger.open(tmp_path / "run.jsonl") as ledger:
        # The one that failed had drawn its cohort.
        assert [one.done is None for one in ledger.rounds] == [False, True] and not ledger.closed
    run(answers, 1)
    assert len(said) == 1 and len(answered) == 2
    with Ledger.open(tmp_path / "run.jsonl") as ledger:
        assert len(ledger.rounds) == 3 and ledger.closed
        assert Saved(tmp_path / "model.npz", ledger).read().rounds == 2
    assert fp.audit(tmp_path / "run.jsonl").statement.startswith("HOLDS")


@pytest.mark.parametrize(
    "perturbation",
    [
        fp.AdaptiveClipping(noise_multiplier=1.0, clip_norm=0.5, unit="client"),
        fp.SparsifiedPerturbation(
            noise_multiplier=1.0, clip_norm=0.5, dimension=4, kept=2, cohort=4, sparsifier="rand_k"
        ),
    ],
    ids=["learned", "sparse"],
)
def test_what_the_filter_cannot_hear_of_is_refused(tmp_path, perturbation):
    with pytest.raises(ParameterError, match="one clip norm and all coordinates"):
        PrivateAveraging(
            arrays=good(0.0), perturbation=perturbation, scheme=fp.Everyone(), population=4,
            ledger=tmp_path / "l", model=tmp_path / "m", rounds=1,
            budget=fp.Budget(8.0, 1e-3, adjacency="zero_out"),
        )  # fmt: skip


def test_a_job_that_is_stopped_has_spent_the_round_that_it_drew(tmp_path, job, monkeypatch):
    """A dropped cohort left no line, so a person who resumed the job could choose the cohort."""
    flow = job.Workflow(str(tmp_path))
    flow._names = [f"site-{number + 1}" for number in range(job.CLIENTS)]
    asked = []

    def stop(task, fl_ctx, targets, least, wait, abort_signal):
        asked.append(targets)
        abort_signal.trigger("stopped")

    monkeypatch.setattr(flow, "broadcast_and_wait", stop)
    flow.control_flow(Signal(), FLContext())
    with Ledger.open(flow.ledger.path) as there:
        assert len(asked) == 1 and there.spent_rounds == 1 and not there.closed
