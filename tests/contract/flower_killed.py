"""A light Flower app on the real Ray engine; run as a program, to be killed at any moment.

python -m tests.contract.flower_killed FOLDER ROUNDS
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import fedprivacy as fp
from fedprivacy.integrations.flower import private_mod

from . import flower_apps as apps


def main(folder: Path, rounds: int) -> None:
    server, client = ServerApp(), ClientApp(mods=[private_mod])

    @client.train()
    def train(message: Message, context: Context) -> Message:
        # As fast as it goes: nothing is trained.
        return Message(message.content, reply_to=message)

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        # More than fifty lives spend.
        strategy = apps.private(
            apps.equal(FedAvg), folder, scheme=fp.Everyone(), checkpoint=folder / "model.npz",
            budget=apps.a_budget(1e5),
        )  # fmt: skip
        strategy.start(grid, apps.arrays_of(apps.module()), rounds)

    resources = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": 1},
    }
    run_simulation(server, client, num_supernodes=apps.CLIENTS, backend_config=resources)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
