#!/usr/bin/env bash
# arviz-stats: chains that stayed at one point and moved once look converged.
#
# Rank-normalised split R-hat and the bulk effective sample size count tied values as draws. Four
# chains of 1,000 draws at 0, of which only the last draw differs, get an R-hat below 1.01 and about
# 4,000 effective draws. There are two different values in 4,000 draws.
# Read with arviz-stats 0.8.0 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check arviz-stats==0.8.0 numpy==2.4.6 scipy==1.17.1
"$work/env/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np
from arviz_stats.base import array_stats

print("arviz-stats", version("arviz-stats"))
draws = np.zeros((4, 1000, 1))
draws[:, -1] = 1e-9
axes = {"chain_axis": 0, "draw_axis": 1}
r_hat = float(array_stats.rhat(draws, **axes)[0])
size = float(array_stats.ess(draws, method="bulk", **axes)[0])
print(f"different values {len(np.unique(draws))}, R-hat {r_hat:.4f}, effective draws {size:.0f}")
assert r_hat < 1.01 and size > 3000
PY
# Output seen: different values 2, R-hat 0.9996, effective draws 4007
