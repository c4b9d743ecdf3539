"""Small Flower apps on the real Ray engine, run as a program that writes its results to a folder.

python -m tests.contract.flower_ray lasting|equal|hostile FOLDER [ROUNDS]
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedprivacy as fp
from fedprivacy.integrations.flower import private_mod
from fedprivacy.integrations.flower.wire import UPDATE
from tests.integrations.flower import apps

SCHEMES = {
    "fixed": apps.SCHEME,
    "poisson": fp.Poisson(0.4),
    "replacement": fp.WithReplacement(4, population=apps.CLIENTS),
    "everyone": fp.Everyone(),
}
EQUAL_ROUNDS = 2
TIMEOUT, START = 40.0, 300.0
"""Seconds for a round with a client that hangs (it hangs for longer), and for any other."""


def simulate(server, client, workers=2):
    """Run an app on Ray with some worker processes of one core each."""
    # Only here: it imports much, with warnings that the tests would take for errors.
    from flwr.simulation import run_simulation

    resources = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": workers, "include_dashboard": False},
    }
    run_simulation(server, client, num_supernodes=apps.CLIENTS, backend_config=resources)


def noted(folder, context):
    """Leave behind which partition a node is, and which of Ray's workers trained it."""
    import ray

    own = {
        "partition": int(context.node_config["partition-id"]),
        "worker": ray.get_runtime_context().get_actor_id(),
        "process": os.getpid(),
    }
    # A file a client: each is trained in one place at a time.
    (folder / f"node-{context.node_id}.json").write_text(json.dumps(own))
    return own["partition"]


def lasting(folder: Path, rounds: int) -> None:
    """Run rounds as fast as they go, to be killed at any moment."""
    server, client = ServerApp(), ClientApp(mods=[private_mod])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        # Clients are not trained.
        return Message(message.content, reply_to=message)

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        # More than fifty lives spend.
        strategy = apps.private(
            apps.equal(FedAvg), folder, scheme=fp.Everyone(), checkpoint=folder / "model.npz",
            budget=apps.a_budget(1e5),
        )  # fmt: skip
        strategy.start(grid, apps.arrays_of(apps.module()), rounds)

    simulate(server, client, workers=1)


def equal(folder: Path) -> None:
    """Train by every scheme, from the start and the seed of our own loop, and every strategy."""
    server, client = ServerApp(), ClientApp(mods=[private_mod])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        return apps.trained(message, noted(folder, context))

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        for name, scheme in SCHEMES.items():
            own = folder / name
            own.mkdir()
            strategy = apps.private(apps.equal(FedAvg), own, scheme=scheme, seed=apps.SEED)
            result = strategy.start(grid, apps.first_arrays(), EQUAL_ROUNDS)
            np.save(own / "model.npy", apps.flat(result.arrays))
            told = [[one.cohort, one.arrived, one.refused] for one in strategy.history]
            spent = result.train_metrics_clientapp[EQUAL_ROUNDS]["epsilon"]
            (own / "told.json").write_text(json.dumps({"rounds": told, "epsilon": spent}))
        for name, (kind, named) in apps.KINDS.items():
            np.save(folder / f"{name}.npy", stepped(kind, named, folder / name, grid))
        (folder / "nodes.json").write_text(json.dumps(sorted(grid.get_node_ids())))
        (folder / "actors.json").write_text(json.dumps(actors()))

    simulate(server, client)


def stepped(kind, named, folder, grid):
    """Return the model after rounds of everyone under one of Flower's strategies."""
    folder.mkdir()
    strategy = apps.private(apps.equal(kind, **named), folder, scheme=fp.Everyone(), seed=apps.SEED)
    return apps.flat(strategy.start(grid, apps.first_arrays(), EQUAL_ROUNDS).arrays)


def actors() -> list[str]:
    """Return the ids of the living actors that Ray's own table of its state names."""
    from ray._private.state import actors as table

    return [name for name, one in table().items() if one["State"] == "ALIVE"]


WIDTH = 650
LIES = {
    0: "fails", 1: "hangs", 2: "nan", 3: "huge", 4: "wrong shape", 5: "wrong type",
    6: "claims a size", 7: "another's name",
}  # fmt: skip
"""Partition -> what it does in the second round of three; the others are honest."""
NAMED, TWICE = 8, 9
"""The partition whose name another one takes, and the one whose answer the grid brings twice."""
VECTORS = {
    "nan": np.full(WIDTH, np.nan, np.float32),
    "huge": np.full(WIDTH, 1e30, np.float32),
    "wrong shape": np.zeros(7, np.float32),
    "wrong type": np.zeros(WIDTH, np.float64),
    "claims a size": np.zeros(10**6, np.float32),
}
QUIET = fp.Gaussian(noise_multiplier=1e-9, clip_norm=0.05, unit="client")
"""So little noise that the sum itself shows."""


def lying(folder: Path):
    """Return a mod outside of the private one: what a client may do that does not run ours."""

    def mod(message: Message, context: Context, call_next) -> Message:
        partition, number = noted(folder, context), message.content["config"]["server-round"]
        lie = LIES.get(partition) if number == 2 else None
        if lie == "hangs":
            time.sleep(1.5 * TIMEOUT)
        if lie == "fails":
            raise RuntimeError("a client's own words")
        reply = call_next(message, context)
        if lie in VECTORS:
            record = reply.content.array_records[UPDATE]
            record[UPDATE] = type(record[UPDATE])(VECTORS[lie])
        if lie == "another's name":
            reply.metadata.__dict__["_src_node_id"] = node_of(folder, NAMED)
        return reply

    return mod


def node_of(folder: Path, partition: int) -> int:
    """Return a partition's node; every client has left a note in the first round."""
    for note in folder.glob("node-*.json"):
        if json.loads(note.read_text())["partition"] == partition:
            return int(note.stem.removeprefix("node-"))
    raise LookupError(partition)


class Echoing:
    """A grid that brings one client's answers twice, and is patient but in the second round."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        self.grid, self.folder, self.rounds = grid, folder, 0

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        # Flower sends the messages of an evaluation too: none.
        self.rounds += bool(messages)
        patience = timeout if self.rounds == 2 else START
        replies = list(self.grid.send_and_receive(messages, timeout=patience))
        node = node_of(self.folder, TWICE)
        return replies + [one for one in replies if one.metadata.src_node_id == node]


def hostile(folder: Path) -> None:
    """Run three rounds of everyone; in the second one most clients lie or stay away."""
    server, client = ServerApp(), ClientApp(mods=[lying(folder), private_mod])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        return apps.trained(message, int(context.node_config["partition-id"]))

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = apps.private(
            apps.equal(FedAvg), folder, perturbation=QUIET, scheme=fp.Everyone(), seed=1,
            budget=fp.Budget(1e30, 0.5, adjacency="zero_out"), missing=4,
        )  # fmt: skip
        models, start = [], apps.first_arrays()

        def keep(number, arrays):
            models.append(apps.flat(arrays))

        strategy.start(Echoing(grid, folder), start, 3, timeout=TIMEOUT, evaluate_fn=keep)
        np.save(folder / "models.npy", np.stack(models))
        told = [[one.cohort, one.arrived, one.refused, one.aborted] for one in strategy.history]
        (folder / "told.json").write_text(json.dumps(told))

    simulate(server, client)


JOBS = {"lasting": lasting, "equal": equal, "hostile": hostile}

if __name__ == "__main__":
    JOBS[sys.argv[1]](Path(sys.argv[2]), *map(int, sys.argv[3:]))
