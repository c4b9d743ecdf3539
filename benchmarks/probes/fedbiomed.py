"""Fed-BioMed: the two types of its DPController on a model whose gradients are 0."""

import sys
import warnings
from importlib.metadata import version

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

import torch
from fedbiomed.common.models import TorchModel
from fedbiomed.common.optimizers.generic_optimizers import NativeTorchOptimizer
from fedbiomed.common.privacy import DPController
from probe import printed, std_of
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
WIDE, BATCH = 200, 8


def measured(kind):
    """Return the std of the noise of a step (times the batch), and of the model after training."""
    controller = DPController({"type": kind, "sigma": 0.4, "clip": 0.005})
    layer = torch.nn.Linear(WIDE, WIDE, bias=False)
    model = TorchModel(layer)
    optimizer = NativeTorchOptimizer(model, torch.optim.SGD(layer.parameters(), lr=1.0))
    data = TensorDataset(torch.zeros(64, WIDE), torch.zeros(64, WIDE))
    optimizer, loader = controller.before_training(optimizer, DataLoader(data, batch_size=BATCH))
    private = optimizer._model.model
    inputs, targets = next(batch for batch in loader if len(batch[0]))
    optimizer.optimizer.zero_grad()
    torch.nn.functional.mse_loss(private(inputs), targets).backward()
    before = next(private.parameters()).detach().clone()
    optimizer.optimizer.step()
    after = next(private.parameters()).detach().clone()
    sent = controller.after_training({"_module.weight": after.clone()})
    return std_of((after - before) * BATCH), std_of(next(iter(sent.values())) - after)


def main():
    rows = []
    for kind in ("central", "local"):
        step, model = measured(kind)
        rows.append(
            {
                "program": f"Fed-BioMed {version('fedbiomed')}",
                "option": f"dp_args type {kind}, sigma 0.4, clip 0.005",
                "clipped": "gradient of a record to 0.005",
                "noise": f"{step:.2e} on the sum of a step, {model:.2e} on each model number",
                "sampled": "Poisson batches at each node",
                "printed": "none",
                "needs": "a bound on a node's model"
                if kind == "central"
                else "add_remove of a record, every step counted",
                "ratio": step / 0.005 if kind == "local" else None,
            }
        )
    printed(rows)


main()
