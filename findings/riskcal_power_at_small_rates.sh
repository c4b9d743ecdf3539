#!/usr/bin/env bash
# riskcal: the power of an attack at a false-positive rate of 1e-8 is 170,000 times too small.
#
# get_beta_from_pld turns a privacy-loss distribution of dp-accounting into error rates. For one
# Gaussian of multiplier 1, the exact power at rate 1e-8 is 2.0e-6. The default grid gives 1.2e-11. At
# rates of 1e-4 and more the two agree.
# Read with riskcal 1.5.1 and dp-accounting 0.6.0 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check riskcal==1.5.1 dp-accounting==0.6.0
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from riskcal.analysis import get_beta_from_pld
from scipy.stats import norm

print("riskcal", version("riskcal"))
loss = from_gaussian_mechanism(1.0)
for rate in (1e-2, 1e-8):
    power = 1.0 - get_beta_from_pld(loss, alpha=rate)
    exact = norm.cdf(norm.ppf(rate) + 1.0)
    print(f"rate {rate:g}: power {power:.3g}, exact {exact:.3g}")
assert power < 1e-4 * exact
PY
# Output seen: rate 0.01: power 0.0924, exact 0.0924;
# rate 1e-08: power 1.17e-11, exact 1.99e-06
