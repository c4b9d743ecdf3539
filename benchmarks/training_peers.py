"""Cost of a private federated round here, in pfl and in Flower's simulation, run in turns.

    python -m venv peers && peers/bin/pip install 'torch==2.13.0' pfl
    python -m venv flower && flower/bin/pip install -c constraints.txt -e '.[flower]'
    python benchmarks/training_peers.py --pfl peers/bin/python --flower flower/bin/python

The peers need separate interpreters, because pfl requires an older dp-accounting than fedprivacy.
All must have the same torch. ``--quick`` draws 20 clients in a round instead of 100, ``--model``
runs only one model, ``--only`` some libraries.

The job is the same for all. 6,000 clients share Fashion-MNIST, 100 are drawn, and each makes 10
local steps on batches of its 9 or 10 images. Updates are clipped to one norm and summed, and noise
is added. Each library is a separate process with one thread. They take turns on one core, one round
each, and the first round of each is not counted. With ``--cores 2`` Flower's server and actor
overlap. "wall" is wall-clock time, "cpu" is the processor time of the process and its children, and
"peak" is the sum of their largest resident memories.

pfl and Flower train a plain module. "our layout" gives pfl the channels-last memory that our loop
uses for every module. Flower simulates 200 nodes, half of them drawn, with one actor. "Flower"
clips with its ``fixedclipping_mod`` at the client, and adds its own noise. "plain" is FedAvg
without privacy. "ours" is the same app with ``PrivateStrategy``, ``private_mod`` and a ledger.
Flower polls for answers every three seconds. Linux only.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import convolutions
from torch import nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "training_peers.json"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
AS_NICE = {"RAY_worker_niceness": "0"}
"""By default, Flower's actor yields to all other processes on the machine."""
CLIENTS, STEPS, BATCH, NODES_A_CLIENT = 6000, 10, 10, 2
RATE = 0.0125
MOMENTUM = {"cnn": 0.5, "logistic": 0.0}
NOISE, CLIP = 1.4, 1e-3
"""A small norm: the noise then hardly changes the model, so every round costs the same."""


class ChannelsLast(nn.Module):
    """Images as one channel, in the memory order of the fastest convolutions."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.unsqueeze(3).permute(0, 3, 1, 2)


def module_of(model: str, layout: str = "plain") -> nn.Sequential:
    """Return the module that the peers train."""
    if model == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    first = ChannelsLast() if layout == "ours" else nn.Unflatten(1, torch.Size((1, 28)))
    module = nn.Sequential(first, *convolutions())
    return module.to(memory_format=torch.channels_last) if layout == "ours" else module


@cache
def records(folder: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return every client's images and labels."""
    parts = [np.load(Path(folder) / f"{name}.npy") for name in ("images", "labels", "cuts")]
    images, labels = map(torch.from_numpy, parts[:2])
    cuts = parts[2].tolist()
    pieces = zip(torch.tensor_split(images, cuts), torch.tensor_split(labels, cuts), strict=True)
    return list(pieces)


def turns() -> Iterator[None]:
    """Yield when the parent requests a round, and report its end to the parent."""
    while sys.stdin.readline():
        began = time.perf_counter()
        yield
        say({"wall": time.perf_counter() - began})


def say(answer: dict[str, Any]) -> None:
    os.write(int(os.environ["ANSWERS"]), (json.dumps(answer) + "\n").encode())


def fedprivacy_rounds(model: str, cohort: int, folder: str) -> None:
    import training

    import fedprivacy as fp

    loop = training.FederatedAveraging(
        model=training.cnn() if model == "cnn" else training.logistic(784, 10),
        scheme=fp.FixedSize(cohort, population=CLIENTS),
        perturbation=fp.Gaussian(noise_multiplier=NOISE, clip_norm=CLIP, unit="client"),
        local_steps=STEPS,
        batch_size=BATCH,
        learning_rate=RATE,
        momentum=MOMENTUM[model],
        expected_cohort=cohort,
        seed=1,
    )
    data = training.fashion_mnist(clients=CLIENTS)
    state = loop.init()
    say({"ready": {name: version(name) for name in ("fedprivacy", "torch")}})
    for _ in turns():
        state, _ = loop.step(state, data)


def pfl_rounds(model: str, cohort: int, folder: str, layout: str = "plain") -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module_of(model, layout)

        def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(self.inner(images), labels)

        def metrics(self, *_: torch.Tensor) -> dict[str, Any]:
            return {}

    class Turns(TrainingProcessCallback):
        """Makes pfl's own loop wait for its turn."""

        def __init__(self) -> None:
            self.turns = turns()

        def on_train_begin(self, *, model: Any) -> Metrics:
            next(self.turns)
            return Metrics()

        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
            return next(self.turns, self) is self, Metrics()

    users = records(folder)
    data = FederatedDataset(
        lambda user: Dataset(raw_data=list(users[user])),
        get_user_sampler("minimize_reuse", list(range(CLIENTS))),
    )
    noise = GaussianMechanism(clipping_bound=CLIP, relative_noise_stddev=NOISE)
    module = Trained()
    trainer = PyTorchModel(
        module,
        lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=MOMENTUM[model]),
        torch.optim.SGD(module.parameters(), 1.0),
    )
    say({"ready": {name: version(name) for name in ("pfl", "torch")}})
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**7,
            train_cohort_size=cohort,
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data, postprocessors=[CentrallyAppliedPrivacyMechanism(noise)]),
        trainer,
        NNTrainHyperParams(
            local_num_epochs=STEPS,
            local_learning_rate=RATE,
            local_batch_size=BATCH,
            local_max_grad_norm=None,
            local_num_steps=None,
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Turns()],
        send_metrics_to_platform=False,
    )


@cache
def actor_module(model: str) -> nn.Sequential:
    """Return the module that an actor trains; built once."""
    torch.set_num_threads(1)
    return module_of(model)


def flower_client(model: str, folder: str, message: Any, context: Any) -> Any:
    """Train one node, as Flower's own examples do."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    module = actor_module(model)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    node = int(context.node_config["partition-id"])
    images, labels = records(folder)[node * CLIENTS // int(context.node_config["num-partitions"])]
    optimiser = torch.optim.SGD(module.parameters(), RATE, momentum=MOMENTUM[model])
    for _ in range(STEPS):
        optimiser.zero_grad()
        functional.cross_entropy(module(images), labels).backward()
        optimiser.step()
    content = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"num-examples": BATCH}),
    }
    return Message(content=RecordDict(content), reply_to=message)


def flower_strategy(kind: str, cohort: int, folder: str) -> tuple[Any, list[Any]]:
    """Return the server's strategy and the clients' mods."""
    from flwr.clientapp.mod import fixedclipping_mod
    from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg

    settings = {
        "fraction_train": 1 / NODES_A_CLIENT,
        "fraction_evaluate": 0.0,
        "min_train_nodes": cohort,
        "min_evaluate_nodes": 0,
        "min_available_nodes": NODES_A_CLIENT * cohort,
    }
    if kind == "plain":
        return FedAvg(**settings), []
    if kind == "theirs":
        average = FedAvg(**settings)
        private = DifferentialPrivacyClientSideFixedClipping(average, NOISE, CLIP, cohort)
        return private, [fixedclipping_mod]
    import fedprivacy as fp
    from fedprivacy.integrations.flower import EQUALLY, PrivateStrategy, private_mod

    strategy = PrivateStrategy(
        FedAvg(weighted_by_key=EQUALLY, **settings),
        perturbation=fp.Gaussian(noise_multiplier=NOISE, clip_norm=CLIP, unit="client"),
        scheme=fp.FixedSize(cohort, population=NODES_A_CLIENT * cohort),
        population=NODES_A_CLIENT * cohort,
        ledger=Path(folder) / f"{os.getpid()}.jsonl",
        budget=fp.Budget(1e4, 1e-5, adjacency="zero_out"),
        checkpoint=Path(folder) / f"{os.getpid()}.npz",
    )
    return strategy, [private_mod]


def flower_rounds(model: str, cohort: int, folder: str, kind: str = "theirs") -> None:
    from flwr.app import ArrayRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    strategy, mods = flower_strategy(kind, cohort, folder)
    client, server = ClientApp(mods=mods), ServerApp()

    @client.train()
    def train(message: Any, context: Any) -> Any:
        import training_peers

        return training_peers.flower_client(model, folder, message, context)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        arrays, waits = ArrayRecord(module_of(model).state_dict()), turns()
        say({"ready": {name: version(name) for name in ("flwr", "ray", "torch")}})

        def wait(number: int, arrays: Any) -> None:
            next(waits)

        # Called before the first round and after every round; it ends when the parent stops asking.
        with contextlib.suppress(StopIteration):
            strategy.start(grid, arrays, num_rounds=10**6, evaluate_fn=wait)

    run_simulation(
        server,
        client,
        NODES_A_CLIENT * cohort,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 1},
        },
    )


LIBRARIES: dict[str, Callable[[str, int, str], None]] = {
    "fedprivacy": fedprivacy_rounds,
    "pfl": pfl_rounds,
    "pfl, our layout": lambda model, cohort, folder: pfl_rounds(model, cohort, folder, "ours"),
    "Flower": flower_rounds,
    "Flower, plain": lambda model, cohort, folder: flower_rounds(model, cohort, folder, "plain"),
    "Flower, ours": lambda model, cohort, folder: flower_rounds(model, cohort, folder, "ours"),
}


def serve(library: str, model: str, cohort: int, folder: str) -> None:
    """Run one library's rounds, when the parent asks."""
    torch.set_num_threads(1)
    LIBRARIES[library](model, cohort, folder)


class Process:
    """A running library."""

    def __init__(self, python: str, library: str, model: str, cohort: int, folder: str) -> None:
        call = f"import training_peers as t; t.serve({library!r}, {model!r}, {cohort}, {folder!r})"
        read, write = os.pipe()
        kept = {name: "1" for name in ONE_THREAD} | AS_NICE | {"ANSWERS": str(write)}
        path = os.pathsep.join((str(HERE), str(HERE.parent)))
        with (Path(folder) / f"{library}.{model}.log").open("w") as log:
            self.child = subprocess.Popen(
                [python, "-c", call],
                env={**os.environ, **kept, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                pass_fds=(write,),
            )
        os.close(write)
        self.answers = os.fdopen(read)
        self.log = Path(log.name)
        self.spent: list[tuple[float, float]] = []
        self.versions: dict[str, str] = self.answer()["ready"]

    def answer(self) -> dict[str, Any]:
        line = self.answers.readline()
        if not line:
            raise SystemExit(f"{self.child.args[-1]}\n{self.log.read_text()[-3000:]}")
        return json.loads(line)

    def round(self) -> None:
        """Request a round and record its seconds."""
        before = self.tree("cpu")
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        wall = self.answer()["wall"]
        self.spent.append((wall, self.tree("cpu") - before))

    def tree(self, what: str) -> float:
        """Return processor seconds or peak megabytes of the process and all its descendants."""
        fields, memory = {}, {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields[int(folder.name)] = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                lines = (folder / "status").read_text().splitlines()
                memory[int(folder.name)] = sum(int(x.split()[1]) for x in lines if "VmHWM" in x)
            except OSError:
                continue
        own = {self.child.pid}
        while more := {p for p, f in fields.items() if int(f[1]) in own} - own:
            own |= more
        if what == "cpu":
            ticks = sum(int(x) for p in own & fields.keys() for x in fields[p][11:15])
            return ticks / os.sysconf("SC_CLK_TCK")
        return sum(memory.get(p, 0) for p in own) / 1024

    def end(self) -> dict[str, float]:
        """Return medians and the peak, and stop."""
        peak = self.tree("peak")
        self.child.stdin.close()
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.child.kill()
        wall, cpu = zip(*self.spent[1:], strict=True)
        return {"wall": statistics.median(wall), "cpu": statistics.fmean(cpu), "peak_mb": peak}


def data_for_all(folder: str) -> None:
    """Write the clients' records in a file that every interpreter can read."""
    import training

    data = training.fashion_mnist(clients=CLIENTS)
    rows = torch.from_numpy(np.concatenate(data.clients))
    np.save(Path(folder) / "images.npy", data.features[rows].numpy())
    np.save(Path(folder) / "labels.npy", data.labels[rows].numpy())
    np.save(Path(folder) / "cuts.npy", np.cumsum([len(own) for own in data.clients])[:-1])


def compare(
    model: str, pythons: dict[str, str], names: list[str], cohort: int, rounds: int, folder: str
) -> dict[str, Any]:
    """Return every library's seconds a round, taken in turns."""
    processes = {
        name: Process(pythons[name.partition(",")[0]], name, model, cohort, folder)
        for name in names
        if model == "cnn" or "layout" not in name
    }
    for number in range(rounds + 1):
        for name, process in processes.items():
            process.round()
            wall, cpu = process.spent[-1]
            # Printed at once, so that a run that is stopped early has shown its results.
            print(f"  round {number}, {name}: {wall:.2f} s, {cpu:.2f} s of processor", flush=True)
    versions = {k: v for process in processes.values() for k, v in process.versions.items()}
    turns_ = {name: process.spent for name, process in processes.items()}
    return {
        "versions": versions,
        "libraries": {name: process.end() for name, process in processes.items()},
        "rounds_wall_cpu": turns_,
    }


def show(model: str, found: dict[str, Any]) -> None:
    """Print seconds and ratios to ours."""
    print(f"\n{model}, {', '.join(f'{k} {v}' for k, v in found['versions'].items())}")
    print(
        f"  {'a round':18s} {'wall':>9s} {'to ours':>8s} {'cpu':>9s} {'to ours':>8s}"
        f" {'peak MB':>8s}"
    )
    ours = next(iter(found["libraries"].values()))
    for name, its in found["libraries"].items():
        wall, cpu = its["wall"] / ours["wall"], its["cpu"] / ours["cpu"]
        print(
            f"  {name:18s} {its['wall']:9.4f} {wall:8.2f} {its['cpu']:9.4f} {cpu:8.2f}"
            f" {its['peak_mb']:8.0f}",
            flush=True,
        )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pfl", default=sys.executable, help="the Python that has pfl")
    parser.add_argument("--flower", default=sys.executable, help="the one that has flwr and ray")
    parser.add_argument("--only", choices=LIBRARIES, nargs="+", default=list(LIBRARIES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--model", choices=MOMENTUM)
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the CNN; five times as many of the other"
    )
    parser.add_argument("--cores", type=int, default=1, help="how many all may use together")
    parser.add_argument("--into", type=Path, help="file for the numbers of a part, too")
    options = parser.parse_args()
    load = os.getloadavg()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    cohort = 20 if options.quick else 100
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        data_for_all(folder)
        for model in (options.model,) if options.model else MOMENTUM:
            rounds = options.rounds * (1 if model == "cnn" else 5)
            pythons = {"fedprivacy": sys.executable, "pfl": options.pfl, "Flower": options.flower}
            found[model] = compare(model, pythons, options.only, cohort, rounds, folder)
            show(model, found[model])
    whole = not options.quick and not options.model and options.only == list(LIBRARIES)
    if into := options.into or (RESULTS if whole else None):
        content = {"python": platform.python_version(), "cores": options.cores}
        # The machine's load shows how reliable the wall-clock times are.
        content |= {"load_before_after": [load, os.getloadavg()], "processors": os.cpu_count()}
        content |= {"clients_a_round": cohort, **found}
        into.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
