"""Small Flower apps on the real Ray engine; run as programs, one engine each.

python -m tests.contract.flower_ray equal|hostile FOLDER
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import fedprivacy as fp
from fedprivacy.integrations.flower import private_mod
from fedprivacy.integrations.flower.wire import UPDATE

from . import flower_apps as apps

TIMEOUT, ASLEEP = 60, 80
"""Seconds until the server goes on, and of the client that hangs."""
NAN, SHAPE, RAISES, HANGS = 1, 2, 3, 4


def lying(message, context, call_next):
    """Answer in place of the honest mod: these clients were never clipped."""
    client = int(context.node_config["partition-id"])
    first = message.content["config"]["server-round"] == 1
    if client == RAISES:
        raise RuntimeError("its own words")
    if client == HANGS and first:
        time.sleep(ASLEEP)
    reply = call_next(message, context)
    lies = {NAN: np.full(650, np.nan, np.float32), SHAPE: np.full(7, 1e30, np.float32)}
    if client in lies:
        reply.content = RecordDict({UPDATE: ArrayRecord({UPDATE: Array(lies[client])})})
    return reply


def run(kind: str, folder: Path) -> None:
    server = ServerApp()
    client = ClientApp(mods=[lying, private_mod] if kind == "hostile" else [private_mod])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        with open(folder / "workers", "a") as told:
            told.write(f"{os.getpid()}\n")
        return apps.trained(message, int(context.node_config["partition-id"]))

    settings = {"seed": 5}
    if kind == "hostile":
        quiet = fp.Gaussian(noise_multiplier=1e-9, clip_norm=0.05, unit="client")
        budget = fp.Budget(1e30, 0.5, adjacency="zero_out")
        settings |= {"perturbation": quiet, "scheme": fp.Everyone(), "budget": budget, "missing": 1}

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = apps.private(apps.equal(FedAvg), folder, **settings)
        start = apps.first_arrays()
        result = strategy.start(grid, start, 2, timeout=TIMEOUT)
        rounds = [
            {"cohort": one.cohort, "arrived": one.arrived, "refused": one.refused,
             "aborted": one.aborted}
            for one in strategy.history
        ]  # fmt: skip
        for name, arrays in (("before", start), ("after", result.arrays)):
            np.save(folder / name, apps.flat(arrays))
        (folder / "rounds.json").write_text(json.dumps(rounds))

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=apps.CLIENTS, backend_config=resources)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
