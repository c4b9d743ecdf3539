"""The clients: an ordinary app, and one mod."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprivacy.integrations.flower import private_mod

from .task import images, network, train

app = ClientApp(mods=[private_mod])


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train on this client's images; the mod clips the update and keeps the metrics local."""
    dataset = str(context.run_config["dataset"])
    data = images(dataset, int(context.run_config["clients"]))
    model = network(dataset)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, data, int(context.node_config["partition-id"]))
    arrays, metrics = ArrayRecord(model.state_dict()), MetricRecord({"num-examples": 320})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
