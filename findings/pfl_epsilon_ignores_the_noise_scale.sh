#!/usr/bin/env bash
# pfl: an accountant states the same epsilon with all the noise and with a tenth.
#
# A simulation multiplies the noise by noise_scale, the ratio of the simulated to the intended cohort.
# The accountants take noise_scale as an argument, and their epsilon is that of the intended cohort.
# The number is right for a later deployment, not for the simulated run.
# Read with pfl 0.6.0 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check pfl==0.6.0
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

from pfl.privacy import PLDPrivacyAccountant

facts = dict(
    num_compositions=1000,
    sampling_probability=0.01,
    mechanism="gaussian",
    noise_parameter=1.0,
    delta=1e-5,
)
spent = [PLDPrivacyAccountant(noise_scale=scale, **facts).epsilon for scale in (1.0, 0.1)]
print("pfl", version("pfl"))
print(f"epsilon at noise scale 1: {spent[0]:.4f}, at 0.1: {spent[1]:.4f}")
assert spent[0] == spent[1]
PY
# Output seen: epsilon at noise scale 1: 1.8282, at 0.1: 1.8282
