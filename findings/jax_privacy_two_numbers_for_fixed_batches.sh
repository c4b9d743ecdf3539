#!/usr/bin/env bash
# jax-privacy: two of its accounts of fixed-size batches differ by a factor of almost four.
#
# The run is 1,000 steps of 100 of 10,000 records at multiplier 1. DpsgdTrainingAccountant with
# FIXED_BATCH_SIZE gives 13.4. experimental.accounting.fixed_dpsgd_event with the RDP accountant under
# REPLACE_ONE, the relation that its documentation names, gives 3.58.
# Read with jax-privacy 2.0.0 and dp-accounting 0.6.0 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check jax-privacy==2.0.0 dp-accounting==0.6.0
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import dp_accounting as dpa
from dp_accounting.rdp import RdpAccountant
from jax_privacy.accounting import (
    DpParams,
    DpsgdTrainingAccountant,
    PldAccountantConfig,
    SamplingMethod,
)
from jax_privacy.experimental.accounting import fixed_dpsgd_event

settings = DpParams(
    noise_multipliers=1.0,
    num_samples=10_000,
    delta=1e-5,
    batch_size=100,
    sampling_method=SamplingMethod.FIXED_BATCH_SIZE,
)
training = DpsgdTrainingAccountant(dp_accountant_config=PldAccountantConfig())
one = training.compute_epsilon(1000, settings)
event = fixed_dpsgd_event(1.0, 1000, dataset_size=10_000, batch_size=100)
account = RdpAccountant(neighboring_relation=dpa.NeighboringRelation.REPLACE_ONE)
other = account.compose(event).get_epsilon(1e-5)
print("jax-privacy", version("jax-privacy"))
print(f"training accountant {one:.4f}, event with RDP {other:.4f}")
assert one > 3.5 * other
PY
# Output seen: training accountant 13.3609, event with RDP 3.5761
