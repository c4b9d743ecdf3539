"""A server of Flower's own private strategy, with our accountant and its file, which is killed."""

import os
import signal
import sys
from pathlib import Path

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from fedprivacy.integrations.flower import Accountant
from tests.integrations.flower import apps as apps

CONFIG = PrivacyConfig(
    1e-5, apps.CLIENTS, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
)
NOISE, CLIP = 2.0, 0.05


def plain_app(weight=lambda client: 1):
    """Return an app without our mod: Flower's strategy clips by itself."""
    app = ClientApp()

    @app.train()
    def _train(message: Message, context) -> Message:
        client = int(context.node_config["partition-id"])
        model = apps.module()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        apps.descended(model, client)
        content = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": weight(client)}),
        }
        return Message(RecordDict(content), reply_to=message)

    return app


def strategy_of(accountant, cohort=apps.CLIENTS):
    inner = FedAvg(
        fraction_train=cohort / apps.CLIENTS, min_train_nodes=1, min_available_nodes=apps.CLIENTS,
        fraction_evaluate=0.0,
    )  # fmt: skip
    return DifferentialPrivacyServerSideFixedClipping(
        inner, NOISE, CLIP, cohort, accountant=accountant
    )


def run(folder: Path, moment: str) -> None:
    """Run rounds, and die in the third one: before its release is recorded, or right after."""
    accountant = Accountant(CONFIG, state=folder / "state.json")
    compose, seen = accountant.compose, folder / "seen"

    def dying(event, count=1):
        last = accountant.num_releases == 2
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        compose(event, count)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    accountant.compose = dying

    def released(number, arrays):
        seen.write_text(str(number))

    grid = apps.HereGrid(plain_app())
    strategy_of(accountant).start(grid, apps.first_arrays(), 5, evaluate_fn=released)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
