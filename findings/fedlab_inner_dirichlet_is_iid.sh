#!/usr/bin/env bash
# FedLab: the inner Dirichlet partition gives every client the labels of the whole data set.
#
# client_inner_dirichlet_partition shuffles the targets, chooses positions in the shuffled array, and
# returns them as positions in the data set. With alpha = 0.01 a client is to hold about one label of
# ten. It holds all ten, at most a third of one, so an experiment on clients that differ runs on clients that
# are alike. The call also leaves the caller's array of sizes at zero.
# Only the module of the function is imported; the package imports torch and torchvision.
# Read with fedlab 1.3.0 and numpy 2.4.6 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 pandas==3.0.0
"$work/env/bin/pip" install --quiet --disable-pip-version-check --no-deps fedlab==1.3.0
cd "$work"
"$work/env/bin/python" - <<'PY'
import importlib.util
from importlib.metadata import version
from pathlib import Path

import numpy as np

home = Path(importlib.util.find_spec("fedlab").origin).parent
spec = importlib.util.spec_from_file_location(
    "functional", home / "utils/dataset/functional.py"
)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

np.random.seed(1)
targets = np.repeat(np.arange(10), 1000)
sizes = np.full(10, 500)
parts = module.client_inner_dirichlet_partition(targets, 10, 10, 0.01, sizes, verbose=False)
largest = [np.bincount(targets[rows], minlength=10).max() / len(rows) for rows in parts.values()]
print("fedlab", version("fedlab"))
print(f"share of a client's commonest label: {min(largest):.2f} to {max(largest):.2f}; sizes {sizes.sum()}")
assert max(largest) < 0.5 and sizes.sum() == 0
PY
# Output seen: share of a client's commonest label: 0.13 to 0.27; sizes 0
