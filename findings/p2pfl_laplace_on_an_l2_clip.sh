#!/usr/bin/env bash
# p2pfl: the Laplace noise for epsilon = 3 is too small, by the root of the number of parameters.
#
# DifferentialPrivacyCompressor clips the update in the L2 norm and draws Laplace noise of scale
# clip_norm / epsilon, which is private for vectors at most clip_norm apart in the L1 norm. Two clipped
# updates of d numbers can be sqrt(d) clip_norm apart in that norm. Here one update is zero, the other
# has 1,000 equal numbers and length 1: epsilon is 95. A sum of the answer above 1.5 times that of the
# second update is some 150 times likelier with it; epsilon = 3 allows 20.
# Read with p2pfl 0.4.4 and opendp 0.16.0 on Python 3.11. Only the module of the compressor is imported.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check numpy==1.26.4 opendp==0.16.0
"$work/env/bin/pip" install --quiet --disable-pip-version-check --no-deps p2pfl==0.4.4
cd "$work"
"$work/env/bin/python" - <<'PY'
import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np

home = Path(importlib.util.find_spec("p2pfl").origin).parent
for name in ("p2pfl", "p2pfl.learning", "p2pfl.learning.compression"):
    package = ModuleType(name)
    package.__path__ = [str(home.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package

from p2pfl.learning.compression.dp_strategy import DifferentialPrivacyCompressor

size, trials = 1_000, 3_000
updates = {"without": np.zeros(size), "with": np.full(size, size**-0.5)}


def large(update: np.ndarray) -> int:
    ask = {"clip_norm": 1.0, "epsilon": 3.0, "noise_type": "laplace"}
    answers = (DifferentialPrivacyCompressor().apply_strategy([update], **ask) for _ in range(trials))
    return sum(float(noisy.sum()) > 1.5 * size**0.5 for (noisy,), _ in answers)


print("p2pfl", version("p2pfl"), "opendp", version("opendp"))
found = {name: large(update) for name, update in updates.items()}
print(f"large sums of {trials}:", found, f"largest privacy loss {3.0 * size**0.5:.0f}")
# The chances are .00075 and .14: 20 times 12 stays below 300 but for a chance of one in a million.
assert found["with"] > 300 > 20.1 * (found["without"] + 1)
PY
# Output seen: large sums of 3000: {'without': 4, 'with': 447}, largest privacy loss 95
