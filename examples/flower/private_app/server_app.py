"""The server: FedAvg, wrapped for privacy."""

from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedprivacy as fp
from fedprivacy.integrations.flower import EQUALLY, PrivateStrategy

from .task import accuracy, images, network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train until all rounds are run or the budget is spent."""
    config = context.run_config
    clients, folder = int(config["clients"]), Path(str(config["folder"])).absolute()
    dataset = str(config["dataset"])
    strategy = PrivateStrategy(
        FedAvg(fraction_evaluate=0.0, weighted_by_key=EQUALLY),
        perturbation=fp.Gaussian(
            noise_multiplier=float(config["noise-multiplier"]), clip_norm=0.5, unit="client"
        ),
        scheme=fp.FixedSize(clients // 2, population=clients),
        population=clients,
        ledger=folder / "run.jsonl",
        budget=fp.Budget(float(config["epsilon"]), float(config["delta"]), adjacency="zero_out"),
        checkpoint=folder / "model.npz",
    )

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        model = network(dataset)
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": accuracy(model, images(dataset, clients))})

    result = strategy.start(
        grid,
        ArrayRecord(network(dataset).state_dict()),
        num_rounds=int(config["rounds"]),
        timeout=float(config["timeout"]),
        evaluate_fn=evaluate,
    )
    for number, metrics in result.train_metrics_clientapp.items():
        measured = result.evaluate_metrics_serverapp[number]["accuracy"]
        print(f"round {number}: epsilon {metrics['epsilon']:.3f}, accuracy {measured:.3f}")
