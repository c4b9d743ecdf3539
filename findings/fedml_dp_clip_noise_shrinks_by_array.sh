#!/usr/bin/env bash
# FedML: in dp_clip every array of a model has less noise than the array before.
#
# DP_Clip.compute_noise divides the kept scale by the weight at every call, and add_noise calls it
# once for each array. With weight 10 the third array has a hundredth of the noise of the first.
# Only the modules of differential privacy are imported; the others need more packages.
# Read with fedml 0.9.6 and torch 2.13.0 (CPU) on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check --no-deps fedml==0.9.6
"$work/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6 scipy==1.17.1
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
import importlib.util
import sys
from collections import OrderedDict
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch

home = Path(importlib.util.find_spec("fedml").origin).parent
for name, folder in {"fedml": home, "fedml.core": home / "core"}.items():
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
package = ModuleType("fedml.core.common")
package.__path__ = [str(home / "core/common")]
sys.modules["fedml.core.common"] = package

from fedml.core.dp.frames.dp_clip import DP_Clip

settings = SimpleNamespace(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    train_data_num_in_total=100,
    client_num_per_round=10,
    client_num_in_total=100,
)
model = OrderedDict((name, torch.zeros(40_000)) for name in ("first", "second", "third"))
noisy = DP_Clip(settings).add_noise(model, 10.0)
print("fedml", version("fedml"))
stds = [float(noisy[name].std()) for name in model]
print("std by array:", ", ".join(f"{std:.2e}" for std in stds))
assert 9.5 < stds[0] / stds[1] < 10.5 and 9.5 < stds[1] / stds[2] < 10.5
PY
# Output seen: std by array: 9.97e-02, 9.94e-03, 1.00e-03
