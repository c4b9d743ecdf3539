"""What privacy costs a Flower app: FedAvg alone, Flower's own wrapper and ours, in turns.

    make flower
    .venv-flower/bin/python benchmarks/flower_rounds.py

One client app trains the CNN of ``training_peers``: 10 steps on 10 images of Fashion-MNIST for each
client. FedAvg alone neither clips nor adds noise; Flower's own wrapper clips at the client
(``fixedclipping_mod``); ours clips there and again at the server, prices every round, writes its
ledger to disk before the noise and the model after it. The three take turns, a round each, in one
process with one thread: strategies, mods and messages are Flower's, but no engine carries the
messages, which would cost all three the same. Processor seconds; the first round is not counted.
"""

import argparse
import json
import logging
import platform
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import torch  # noqa: E402
from flwr.app import ArrayRecord, ConfigRecord  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.clientapp.mod import fixedclipping_mod  # noqa: E402
from flwr.serverapp.strategy import (  # noqa: E402
    DifferentialPrivacyClientSideFixedClipping,
    FedAvg,
)
from training_peers import CLIP, NOISE, data_for_all, flower_client, module_of  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.integrations.flower import EQUALLY, PrivateStrategy, private_mod  # noqa: E402
from tests.contract.flower_apps import HereGrid  # noqa: E402

RESULTS = HERE / "results" / "flower_rounds.json"


def kinds(cohort: int, folder: Path) -> dict[str, tuple[list[Any], Any]]:
    """Return name -> the client's mods and the server's strategy."""
    nodes = 2 * cohort
    sampled = {"fraction_train": 0.5, "fraction_evaluate": 0.0, "min_available_nodes": nodes}
    ours = PrivateStrategy(
        FedAvg(fraction_evaluate=0.0, weighted_by_key=EQUALLY),
        perturbation=fp.Gaussian(noise_multiplier=NOISE, clip_norm=CLIP, unit="client"),
        scheme=fp.FixedSize(cohort, population=nodes),
        population=nodes,
        ledger=folder / "run.jsonl",
        budget=fp.Budget(1e4, 1e-5, adjacency="zero_out"),
        checkpoint=folder / "model.npz",
    )
    theirs = DifferentialPrivacyClientSideFixedClipping(FedAvg(**sampled), NOISE, CLIP, cohort)
    return {
        "FedAvg alone": ([], FedAvg(**sampled)),
        "Flower's own wrapper": ([fixedclipping_mod], theirs),
        "PrivateStrategy": ([private_mod], ours),
    }


def app_of(mods: list[Any], folder: Path) -> ClientApp:
    """Return the clients' app with its mods."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Any, context: Any) -> Any:
        return flower_client("cnn", str(folder), message, context)

    return app


def measure(cohort: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Return name -> processor seconds of each round."""
    seconds: dict[str, list[float]] = {}
    states = {}
    for name, (mods, strategy) in kinds(cohort, folder).items():
        grid = HereGrid(app_of(mods, folder), range(1, 2 * cohort + 1))
        states[name] = strategy, grid, ArrayRecord(module_of("cnn").state_dict())
    for number in range(1, rounds + 2):
        for name, (strategy, grid, arrays) in states.items():
            began = time.process_time()
            asked = strategy.configure_train(number, arrays, ConfigRecord(), grid)
            after, _ = strategy.aggregate_train(number, grid.send_and_receive(asked))
            seconds.setdefault(name, []).append(time.process_time() - began)
            states[name] = strategy, grid, after
    return {name: found[1:] for name, found in seconds.items()}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cohort", type=int, default=100, help="clients a round")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        data_for_all(folder)
        found = measure(options.cohort, options.rounds, Path(folder))
    medians = {name: statistics.median(spent) for name, spent in found.items()}
    for name, median in medians.items():
        print(f"{name:22s} {median:8.3f} s {median / medians['FedAvg alone']:6.3f}")
    content = {"python": platform.python_version(), "flwr": version("flwr"), "model": "cnn"}
    content |= {"clients_a_round": options.cohort, "processor_seconds": found, "medians": medians}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
