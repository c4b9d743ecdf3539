#!/usr/bin/env bash
# APPFL: output perturbation leaves the running statistics of batch normalisation as they are.
#
# gaussian_mechanism_output_perturb and laplace_mechanism_output_perturb add noise to the parameters
# and return the whole state of the model. A BatchNorm layer keeps the mean and the variance of a
# client's data in buffers, which are no parameters. The server gets them bit by bit, at any epsilon.
# Only the module of the mechanisms is imported; the package needs more.
# Read with appfl 1.12.0 and torch 2.13.0 (CPU) on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$work/env/bin/pip" install --quiet --disable-pip-version-check --no-deps appfl==1.12.0
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
import importlib.util
from importlib.metadata import version
from pathlib import Path

import torch

home = Path(importlib.util.find_spec("appfl").origin).parent
spec = importlib.util.spec_from_file_location("dp", home / "privacy/dp.py")
dp = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dp)

torch.manual_seed(1)
ages = torch.tensor([[31.0], [47.0], [62.0]])
model = torch.nn.Sequential(torch.nn.BatchNorm1d(1, momentum=1.0), torch.nn.Linear(1, 1))
model(ages)
print("appfl", version("appfl"))
for perturb in (dp.gaussian_mechanism_output_perturb, dp.laplace_mechanism_output_perturb):
    sent = perturb(model, sensitivity=1.0, epsilon=0.01)
    moved = float((sent["1.weight"] - model[1].weight).detach().abs())
    mean, spread = float(sent["0.running_mean"]), float(sent["0.running_var"])
    print(f"weight moved by {moved:.0f}; mean sent {mean:.3f}, variance {spread:.3f}")
    assert abs(mean - float(ages.mean())) < 1e-4 and abs(spread - float(ages.var())) < 1e-3
    assert moved > 1
PY
# Output seen: weight moved by 273; mean sent 46.667, variance 240.333
# Output seen: weight moved by 45; mean sent 46.667, variance 240.333
