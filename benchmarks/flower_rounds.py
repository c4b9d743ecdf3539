"""What privacy costs a Flower app: FedAvg alone, Flower's own wrapper and ours, in turns.

    make flower
    .venv-flower/bin/python benchmarks/flower_rounds.py

The job is that of ``training_peers``: the same clients' app, nodes, actor and turns. FedAvg alone
neither clips nor adds noise; Flower's own wrapper clips at the client; ours clips there and again
at the server, prices every round, writes its ledger to disk before the noise and the model after
it. Linux only; needs about 3 GB for each of the three engines.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import training_peers as peers  # noqa: E402

RESULTS = HERE / "results" / "flower_rounds.json"
KINDS = ("Flower, FedAvg alone", "Flower", "Flower, PrivateStrategy")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cohort", type=int, default=100, help="clients a round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--model", choices=peers.MOMENTUM, default="cnn")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    with tempfile.TemporaryDirectory() as folder:
        peers.data_for_all(folder)
        pythons = dict.fromkeys(KINDS, sys.executable)
        size = options.model, options.cohort, options.rounds
        found = peers.compare(pythons, *size, folder)
    peers.show(options.model, found)
    content = {"python": platform.python_version(), "cores": 1, "model": options.model}
    content |= {"clients_a_round": options.cohort, **found}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
