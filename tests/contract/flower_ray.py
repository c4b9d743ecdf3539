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

TIMEOUT = {"equal": 3600, "hostile": 120}
"""Seconds until the server goes on without whoever is silent; workers take a while to start."""
NAN, SHAPE, RAISES, HANGS = 1, 2, 3, 4


def liar(folder: Path):
    """Return a mod for clients that were never clipped: it answers in place of the honest one."""

    def lying(message, context, call_next):
        client = int(context.node_config["partition-id"])
        # Until the server has gone on without it.
        while client == HANGS and not (folder / "went-on").exists():
            time.sleep(0.2)
        if client == RAISES:
            raise RuntimeError("its own words")
        reply = call_next(message, context)
        lies = {NAN: np.full(650, np.nan, np.float32), SHAPE: np.full(7, 1e30, np.float32)}
        if client in lies:
            reply.content = RecordDict({UPDATE: ArrayRecord({UPDATE: Array(lies[client])})})
        return reply

    return lying


def run(kind: str, folder: Path) -> None:
    server = ServerApp()
    client = ClientApp(mods=[liar(folder), private_mod] if kind == "hostile" else [private_mod])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        with open(folder / "workers", "a") as told:
            told.write(f"{os.getpid()}\n")
        return apps.trained(message, int(context.node_config["partition-id"]))

    # Everyone: nodes are numbered by the engine's ids, which are not in the order of the data.
    settings = {"seed": apps.SEED, "scheme": fp.Everyone()}
    if kind == "hostile":
        quiet = fp.Gaussian(noise_multiplier=1e-9, clip_norm=0.05, unit="client")
        budget = fp.Budget(1e30, 0.5, adjacency="zero_out")
        settings |= {"perturbation": quiet, "budget": budget, "missing": 1}

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = apps.private(apps.equal(FedAvg), folder, **settings)

        def went_on(number: int, arrays: ArrayRecord) -> None:
            if number:
                (folder / "went-on").touch()

        start = apps.first_arrays()
        result = strategy.start(grid, start, 2, timeout=TIMEOUT[kind], evaluate_fn=went_on)
        rounds = [
            {"cohort": one.cohort, "arrived": one.arrived, "refused": one.refused,
             "aborted": one.aborted}
            for one in strategy.history
        ]  # fmt: skip
        for name, arrays in (("before", start), ("after", result.arrays)):
            np.save(folder / name, apps.flat(arrays))
        (folder / "rounds.json").write_text(json.dumps(rounds))

    # Two workers on any machine: one of them may hang.
    resources = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": 2},
    }
    run_simulation(server, client, num_supernodes=apps.CLIENTS, backend_config=resources)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
