"""Flower's SecAgg+: noise shares pass exactly under its masks of 32 bits."""

import runpy
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="pip install -e '.[flower,train,test]' elsewhere")

import flwr.compat.common.recorddict_compat as compat
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

import fedprivacy as fp
from fedprivacy.integrations.flower import private_mod

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower" / "secagg_shares.py"
RECIPE = runpy.run_path(str(EXAMPLE))  # the mod of docs/howto/flower.md

MODULUS, CLIENTS, WIDTH, DROPPED, BROKEN = 2**16, 7, 500, 3, 5
HALF = (MODULUS - 1) / 2
"""What is taken off a number from 0 to 2^16 - 1: Flower's quantization then gives it back."""


class Grid:
    """Clients in this process; one does not answer a request for training.

    Args:
        updates: what each client would send, by its node.
        mechanism: of the round.
    """

    def __init__(self, updates, mechanism):
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self.updates, self.stages = updates, 0
        self.mod = RECIPE["shares"](mechanism)
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
            for node in updates
        }

    def send_and_receive(self, messages, *, timeout=None):
        self.stages += 1
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            if self.stages == 3 and node == DROPPED:
                replies.append(Message(Error(code=1, reason="away"), reply_to=message))
                continue
            # As the engine does: what one client changes, no other one sees.
            content = RecordDict(
                {
                    name: ConfigRecord(dict(record)) if isinstance(record, ConfigRecord) else record
                    for name, record in message.content.items()
                }
            )
            copy = Message(content, node, message.metadata.message_type)
            replies.append(secaggplus_mod(copy, self.contexts[node], self.inner))
            replies[-1].metadata.__dict__["_src_node_id"] = node
        return replies

    def inner(self, message, context):
        return self.mod(message, context, self.app)

    def app(self, message, context):
        sent = ndarrays_to_parameters([self.updates[context.node_id]])
        result = FitRes(Status(Code.OK, ""), sent, 250, {"loss": 0.1})
        return Message(compat.fitres_to_recorddict(result, False), reply_to=message)


class Kept:
    """A strategy of the older API that asks every client, and keeps what it is given."""

    def __init__(self, nodes):
        self.asked = [
            (SimpleNamespace(node_id=n), FitIns(ndarrays_to_parameters([]), {})) for n in nodes
        ]
        self.average, self.answered = None, 0

    def configure_fit(self, *_):
        return self.asked

    def aggregate_fit(self, number, results, failures):
        self.answered = len(results)
        [self.average] = parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


def test_whole_numbers_pass_exactly_and_who_drops_is_left_out():
    generator = np.random.default_rng(1)
    nodes = range(1, CLIENTS + 1)
    sent = fp.DistributedDiscreteGaussian(
        noise_multiplier=1.0, clip_norm=1.0, kept=WIDTH, dimension=WIDTH, cohort=CLIENTS,
        bits=16, missing=1,
    ).of_round(generator)  # fmt: skip
    updates = {node: generator.normal(size=WIDTH) for node in nodes}
    updates[BROKEN] = np.full(WIDTH, np.nan)
    numbers, release = [], sent.release

    def noted(update):
        numbers.append(release(update))
        return numbers[-1]

    object.__setattr__(sent, "release", noted)
    grid, strategy = Grid(updates, sent), Kept(nodes)
    config = ConfigRecord({"current_round": 1})
    state = RecordDict({"config": config, "parameters": ArrayRecord()})
    context = Context(run_id=1, node_id=0, node_config={}, state=state, run_config={})
    workflow = SecAggPlusWorkflow(
        CLIENTS, 4, max_weight=1.0, clipping_range=HALF, quantization_range=MODULUS - 1,
        modulus_range=MODULUS,
    )  # fmt: skip
    manager = SimpleNamespace(num_available=lambda: CLIENTS)
    workflow(grid, LegacyContext(context, strategy=strategy, client_manager=manager))
    assert grid.stages == 4 and strategy.answered == CLIENTS - 1
    # What Flower makes an average of, taken back: its weights are summed modulo 2^16 too.
    weight = (MODULUS - 1) * strategy.answered % MODULUS
    total = strategy.average * weight / (MODULUS - 1) + HALF * strategy.answered
    assert np.abs(total - np.round(total)).max() < 1e-6
    assert len(numbers) == CLIENTS - 1 and sent.carries(strategy.answered)
    whole = np.round(total).astype(np.int64) % MODULUS
    assert np.array_equal(whole, sum(numbers) % MODULUS)
    # The trained update, and noise of std .93 on 500 coordinates: fails once in 10^8 times.
    plain = sum(
        update / np.linalg.norm(update)
        for node, update in updates.items()
        if node not in (DROPPED, BROKEN)
    )
    noise = sent.decoded(whole) - plain
    assert 0.76 < np.std(noise) < 1.1


ORDERS = {
    "ours inside": lambda grid: partial(wrapped, secaggplus_mod, private_mod, grid.app),
    "ours outside": lambda grid: partial(wrapped, private_mod, secaggplus_mod, grid.app),
}
"""The two orders of mods of a client app."""


def wrapped(first, second, app, message, context):
    return first(message, context, lambda *given: second(*given, app))


@pytest.mark.parametrize("order", ORDERS)
def test_the_private_mod_lets_no_update_into_the_workflow(order):
    """A round of the workflow states no clip norm, so that our mod never calls the app."""
    trained = []

    class Refusing(Grid):
        def app(self, message, context):
            trained.append(context.node_id)
            return super().app(message, context)

    sent = fp.DistributedDiscreteGaussian(
        noise_multiplier=1.0, clip_norm=1.0, kept=WIDTH, dimension=WIDTH, cohort=CLIENTS, bits=16
    ).of_round(np.random.default_rng(1))
    nodes = range(1, CLIENTS + 1)
    grid = Refusing(dict.fromkeys(nodes, np.ones(WIDTH)), sent)
    mods, replies = ORDERS[order](grid), []

    def asked(messages, *, timeout=None):
        found = []
        for message in messages:
            context = grid.contexts[message.metadata.dst_node_id]
            # The engine makes an error of what a mod raises.
            try:
                found.append(mods(message, context))
            except Exception as problem:
                found.append(Message(Error(code=1, reason=repr(problem)), reply_to=message))
            found[-1].metadata.__dict__["_src_node_id"] = context.node_id
        replies.extend(found)
        return found

    grid.send_and_receive = asked
    strategy = Kept(nodes)
    config = ConfigRecord({"current_round": 1})
    state = RecordDict({"config": config, "parameters": ArrayRecord()})
    context = Context(run_id=1, node_id=0, node_config={}, state=state, run_config={})
    manager = SimpleNamespace(num_available=lambda: CLIENTS)
    legacy = LegacyContext(context, strategy=strategy, client_manager=manager)
    SecAggPlusWorkflow(CLIENTS, 4)(grid, legacy)
    assert replies[-1].has_error() and not trained and strategy.average is None


@pytest.mark.parametrize("order", ORDERS)
def test_a_round_of_ours_gets_no_update_through_the_masks(order, tmp_path):
    """Every client's answer is an error, so that each counts as zero."""
    from tests.integrations.flower import apps

    mods = [private_mod, secaggplus_mod]
    app = apps.client_app(mods=mods if order == "ours outside" else reversed(mods))

    class Reporting(apps.HereGrid):
        def answers(self, message, client):
            try:
                return super().answers(message, client)
            except Exception as problem:
                reply = Message(Error(code=1, reason=repr(problem)), reply_to=message)
                reply.metadata.__dict__["_src_node_id"] = self.nodes[client]
                return [reply]

    strategy = apps.private(apps.equal(FedAvg), tmp_path)
    strategy.start(Reporting(app), apps.first_arrays(), 1)
    assert [(one.arrived, one.refused) for one in strategy.history] == [(0, 4)]


def test_the_workflow_refuses_our_strategy(tmp_path):
    from tests.integrations.flower import apps

    strategy = apps.private(apps.equal(FedAvg), tmp_path)
    state = RecordDict({"config": ConfigRecord({"current_round": 1}), "parameters": ArrayRecord()})
    context = Context(run_id=1, node_id=0, node_config={}, state=state, run_config={})
    manager = SimpleNamespace(num_available=lambda: CLIENTS)
    legacy = LegacyContext(context, strategy=strategy, client_manager=manager)
    with pytest.raises(fp.ParameterError, match=r"run by PrivateStrategy\.start"):
        SecAggPlusWorkflow(CLIENTS, 4)(apps.HereGrid(None), legacy)
