"""OpenFL: the noise function of its tutorial on global differential privacy."""

import ast
import sys
from importlib.metadata import files, version

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

import torch
from probe import printed, std_of
from torch.distributions.normal import Normal

NAME = "Global_DP/Workflow_Interface_Mnist_Implementation_1.py"


def function(name):
    """Return one function of the tutorial, which the package installs; its imports need data."""
    place = next(each for each in files("openfl") if str(each).endswith(NAME))
    tree = ast.parse(place.locate().read_text())
    tree.body = [each for each in tree.body if getattr(each, "name", "") == name]
    scope = {"torch": torch, "Normal": Normal}
    exec(compile(tree, NAME, "exec"), scope)
    return scope[name]


def main():
    add = function("add_noise_on_aggegated_parameters")
    settings = {"noise_multiplier": 1.0, "clip_norm": 1.0, "sample_rate": 0.5}
    model = torch.nn.Linear(200, 200, bias=False)
    torch.nn.init.zeros_(model.weight)
    add([f"c{at}" for at in range(20)], model, settings)
    std = std_of(model.weight.detach())
    rows = []
    for drawn in (10, 5):
        rows.append(
            {
                "program": f"OpenFL {version('openfl')}",
                "option": f"tutorial Global_DP, z 1, C 1, rate 0.5 of 20, {drawn} are drawn",
                "clipped": "update of a collaborator",
                "noise": f"{std:.4f} on the average; one client moves it by {1 / drawn:.4f}",
                "sampled": "Poisson sampling of collaborators",
                "printed": "by Opacus's RDP accountant, for z on the sum",
                "needs": "the average to divide by the expected number",
                "ratio": std * drawn,
            }
        )
    printed(rows)


main()
