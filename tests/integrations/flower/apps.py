"""A Flower app on few records, and a grid that runs it in this process."""

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvgM, FedProx
from flwr.supercore.task_identity import TaskIdentity
from torch.nn import functional

import fedprivacy as fp
from fedprivacy.integrations.flower import EQUALLY, PrivateStrategy, private_mod
from fedprivacy.ledger import Ledger
from fedprivacy.training import FederatedAveraging, digits, logistic, train

CLIENTS, STEPS, RATE = 12, 2, 0.5
GAUSSIAN = fp.Gaussian(noise_multiplier=1.0, clip_norm=0.05, unit="client")
SCHEME = fp.FixedSize(4, population=CLIENTS)
SEED = 5
KINDS = {
    "FedAvgM": (FedAvgM, {"server_momentum": 0.9}),
    "FedProx": (FedProx, {"proximal_mu": 0.1}),
    "FedAdam": (FedAdam, {"eta": 0.01}),
}
"""Flower's strategies beside FedAvg, with settings of theirs."""


def data():
    return digits(clients=CLIENTS, public=1000, test=360)


def module():
    return logistic(64, 10)()


def arrays_of(model):
    return ArrayRecord(model.state_dict())


def flat(arrays):
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


def our_loop(scheme, perturbation=GAUSSIAN):
    return FederatedAveraging(
        model=module, scheme=scheme, perturbation=perturbation, local_steps=STEPS,
        batch_size=1000, learning_rate=RATE, seed=SEED, device="cpu",
    )  # fmt: skip


def by_our_loop(path, scheme, rounds, records=None, perturbation=GAUSSIAN):
    """Train by our own loop, with a ledger at ``path``."""
    with Ledger.create(path, unit="client", adjacency="zero_out", seed_policy="fixed") as own:
        found = train(
            our_loop(scheme, perturbation),
            records or data(),
            rounds=rounds,
            ledger=own,
            budget=a_budget(),
        )
        own.close()
    return found


def first_arrays():
    """Return what our own loop begins with."""
    model = module()
    start = our_loop(SCHEME).init().parameters
    torch.nn.utils.vector_to_parameters(start, model.parameters())
    return arrays_of(model)


def a_budget(epsilon=50.0):
    return fp.Budget(epsilon, 1e-3, adjacency="zero_out")


def descended(model, client):
    """Train a model by full-batch gradient descent on a client's records; return the last loss."""
    held = data()
    rows = held.clients[client]
    for _ in range(STEPS):
        model.zero_grad()
        loss = functional.cross_entropy(model(held.features[rows]), held.labels[rows])
        loss.backward()
        with torch.no_grad():
            for one in model.parameters():
                one -= RATE * one.grad
    return loss.item()


def trained(message, client):
    """Return what a client's app replies: its arrays, and two metrics."""
    model = module()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    metrics = MetricRecord({"num-examples": 1, "loss": descended(model, client)})
    return Message(RecordDict({"arrays": arrays_of(model), "metrics": metrics}), reply_to=message)


def client_app(train=trained, mods=(private_mod,)):
    """Return the private app; ``train`` gets the message and the client's number."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def _train(message: Message, context: Context) -> Message:
        return train(message, int(context.node_config["partition-id"]))

    return app


class HereGrid(Grid):
    """Runs every message at once, in this process, one client after the other.

    Args:
        app: the clients'.
        nodes: their ids; the client's number is the place in it.
        after: gets (message, replies so far, reply or None), returns what arrives in its place.
    """

    def __init__(self, app, nodes=range(100, 100 + CLIENTS), after=None):
        self.app, self.nodes, self.after = app, list(nodes), after
        self.asked = []
        # What the engine sets before a server app runs.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            client = self.nodes.index(message.metadata.dst_node_id)
            self.asked.append(client)
            replies += self.answers(message, client)
        return replies

    def answers(self, message, client):
        state = RecordDict()
        config = {"partition-id": client, "num-partitions": len(self.nodes)}
        context = Context(
            run_id=1, node_id=self.nodes[client], node_config=config, state=state, run_config={}
        )
        # As the engine does: what one client changes, no other one sees.
        copy = Message(
            RecordDict(dict(message.content.items())),
            message.metadata.dst_node_id,
            message.metadata.message_type,
        )
        reply = self.app(copy, context)
        return [reply] if self.after is None else self.after(client, reply)

    def set_run(self, run):
        raise NotImplementedError

    run = property()

    def create_message(self, *args, **named):
        raise NotImplementedError

    def get_nodes(self):
        raise NotImplementedError

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError


def private(strategy, folder, **named):
    settings = {
        "perturbation": GAUSSIAN,
        "scheme": SCHEME,
        "population": CLIENTS,
        "ledger": folder / "run.jsonl",
        "budget": a_budget(),
    }
    return PrivateStrategy(strategy, **{**settings, **named})


def equal(kind, **named):
    """Return one of Flower's strategies with the two settings that privacy needs."""
    return kind(fraction_evaluate=0.0, weighted_by_key=EQUALLY, **named)
