#!/usr/bin/env bash
# NVFlare: SVTPrivacy(epsilon=0.1) spends an epsilon of 100.1 in one call, by its own record.
#
# The argument epsilon is the budget of the choice of values. Each of the fraction * size values that
# are sent costs noise_var besides. For 10,000 values at the default settings 1,000 are sent, and the
# record in the metadata of the result (svt_privacy_budget) states 100.1.
# Read with nvflare 2.9.0 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check nvflare==2.9.0 numpy==2.4.6
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

dxo = DXO(DataKind.WEIGHT_DIFF, data={"w": np.random.default_rng(0).normal(size=10_000)})
private = SVTPrivacy(fraction=0.1, epsilon=0.1, noise_var=0.1, replace=False)
out = private.process_dxo(dxo, dxo.to_shareable(), FLContext())
spent = out.meta["svt_privacy_budget"]
print("nvflare", version("nvflare"))
print("values sent", spent["n_upload"], "epsilon_total", round(spent["epsilon_total"], 4))
assert spent["n_upload"] == 1000 and abs(spent["epsilon_total"] - 100.1) < 1e-6
PY
# Output seen: values sent 1000 epsilon_total 100.1
