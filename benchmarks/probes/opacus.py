"""Opacus: the std of the noise and the norm of one record's step, for every kind of clipping."""

import sys
import warnings
from importlib.metadata import version

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

import torch
from opacus import PrivacyEngine
from probe import printed, std_of
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
NORM, BATCH = 1.0, 8


def step(clipping, noise, value):
    """Return a step's gradient times the batch size; one record has this value, the others 0."""
    torch.manual_seed(1)
    layers = torch.nn.Sequential(
        torch.nn.Linear(150, 150, bias=False), torch.nn.Linear(150, 150, bias=False)
    )
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.0)
    data = torch.zeros(BATCH, 150)
    data[0] = value
    loader = DataLoader(TensorDataset(data, torch.zeros(BATCH, dtype=torch.long)), batch_size=BATCH)
    norm = [NORM / 2**0.5] * 2 if clipping == "per_layer" else NORM
    more = {}
    if clipping == "adaptive":
        more = {
            "target_unclipped_quantile": 0.5,
            "clipbound_learning_rate": 0.2,
            "max_clipbound": 10.0,
            "min_clipbound": 0.01,
            "unclipped_num_std": 2.0,
        }
    ghost = (
        {"grad_sample_mode": "ghost", "criterion": torch.nn.CrossEntropyLoss()}
        if clipping == "ghost"
        else {}
    )
    made = PrivacyEngine().make_private(
        module=layers,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=norm,
        clipping="flat" if ghost else clipping,
        poisson_sampling=False,
        **more,
        **ghost,
    )
    if ghost:
        model, optimizer, criterion, loader = made
    else:
        model, optimizer, loader = made
        criterion = torch.nn.CrossEntropyLoss()
    multiplier = optimizer.noise_multiplier
    inputs, targets = next(iter(loader))
    loss = criterion(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()]) * BATCH
    return flat, multiplier


def main():
    rows = []
    for clipping in ("flat", "per_layer", "adaptive", "ghost"):
        noise, multiplier = step(clipping, 1.0, 0.0)
        moved, _ = step(clipping, 1e-9 if clipping == "adaptive" else 0.0, 1e2)
        std, norm = std_of(noise), float(moved.norm())
        rows.append(
            {
                "program": f"Opacus {version('opacus')}",
                "option": f"clipping {clipping}, noise_multiplier 1, max_grad_norm 1 in all",
                "clipped": "gradient of a record, "
                + ("one norm for each layer" if clipping == "per_layer" else "one norm in all"),
                "noise": f"{std:.4f} on the sum (multiplier {float(multiplier):.4f})",
                "sampled": "Poisson by default; shuffled with poisson_sampling=False",
                "printed": "for Poisson sampling, add_remove",
                "needs": "add_remove, and the number of batches to be public",
                "ratio": std / NORM,
                "moved": norm,
            }
        )
    printed(rows)


main()
