"""APPFL: the Laplace and Gaussian noise on a model after one call of its trainer."""

import logging
import sys
from importlib.metadata import version

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

import torch
from appfl.algorithm.trainer import VanillaTrainer
from appfl.logger import ClientAgentFileLogger
from omegaconf import OmegaConf
from probe import printed

logging.disable(logging.CRITICAL)
WIDE = 200


def noise(kind, steps):
    """Return the noise that the trainer adds to a model whose gradients are 0."""
    model = torch.nn.Linear(WIDE, WIDE, bias=False)
    before = model.weight.detach().clone()
    data = torch.utils.data.TensorDataset(torch.zeros(8, WIDE), torch.zeros(8, WIDE))
    settings = {
        "mode": "step",
        "num_local_steps": steps,
        "device": "cpu",
        "optim": "SGD",
        "optim_args": {"lr": 0.1},
        "train_batch_size": 8,
        "train_data_shuffle": True,
        "do_validation": False,
        "do_pre_validation": False,
        "use_dp": True,
        "dp_mechanism": kind,
        "epsilon": 1.0,
        "clip_grad": True,
        "clip_value": 1.0,
        "clip_norm": 1,
    }
    trainer = VanillaTrainer(
        model=model,
        loss_fn=torch.nn.MSELoss(),
        metric=lambda target, output: 0.0,
        train_dataset=data,
        val_dataset=data,
        train_configs=OmegaConf.create(settings),
        logger=ClientAgentFileLogger(logging_id="probe"),
    )
    trainer.train()
    sent = trainer.get_parameters()
    sent = sent[0] if isinstance(sent, tuple) else sent
    return (sent["weight"] - before).double()


def main():
    rows = []
    for kind in ("laplace", "gaussian"):
        one, many = noise(kind, 1), noise(kind, 20)
        size = "mean size" if kind == "laplace" else "std"
        measure = (lambda x: x.abs().mean()) if kind == "laplace" else (lambda x: x.std())
        rows.append(
            {
                "program": f"APPFL {version('appfl')}",
                "option": f"use_dp {kind}, epsilon 1, clip_value 1, clip_norm 1, lr 0.1",
                "clipped": "gradient of a batch, and only with clip_grad",
                "noise": f"{size} {measure(one):.3f} after 1 step, {measure(many):.3f} after 20",
                "sampled": "each client by itself",
                "printed": "none; epsilon is an argument",
                "needs": "one step, and for Laplace one coordinate",
                "ratio": None,
            }
        )
    printed(rows)


main()
