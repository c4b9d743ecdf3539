#!/usr/bin/env bash
# Flower: adaptive clipping takes its noise from the clip norm of the next round.
#
# DifferentialPrivacyServerSideAdaptiveClipping clips with one norm, moves the norm, and then draws
# noise for the moved norm. If all updates are longer than the norm, the norm falls, although the
# quantile asks for a larger one: the count is of clipped updates. The noise is then smaller than
# noise_multiplier times the norm that was used.
# Read with flwr 1.42.0 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check flwr==1.42.0
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
import logging
from importlib.metadata import version

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, DifferentialPrivacyServerSideAdaptiveClipping as Private
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
SIZE = 40_000


def reply(update):
    content = RecordDict(
        {
            "arrays": ArrayRecord([update]),
            "metrics": MetricRecord({"num-examples": 100}),
        }
    )
    message = Message(RecordDict(), dst_node_id=1, message_type="train")
    return Message(content, reply_to=message)


strategy = Private(FedAvg(), 1.0, 20, initial_clipping_norm=0.1, clip_norm_lr=0.2)
strategy.current_arrays = ArrayRecord([np.zeros(SIZE)])
used, multiplier = strategy.clipping_norm, strategy.noise_multiplier
# Updates in pairs of opposite signs, all of norm 200: their clipped sum is 0.
updates = [np.full(SIZE, (-1.0) ** k) for k in range(20)]
arrays, _ = strategy.aggregate_train(1, [reply(update) for update in updates])
std = arrays.to_numpy_ndarrays()[0].std()
print("flwr", version("flwr"))
print(f"norm used {used}, next norm {strategy.clipping_norm:.4f}")
print(f"std {std * 20:.4f} on the sum, {multiplier * used:.4f} for the norm that was used")
assert strategy.clipping_norm < used
assert abs(std * 20 / (multiplier * strategy.clipping_norm) - 1) < 0.03
PY
# Output seen: norm used 0.1, next norm 0.0899;
# std 0.1042 on the sum, 0.1155 for the norm that was used (the next norm varies)
