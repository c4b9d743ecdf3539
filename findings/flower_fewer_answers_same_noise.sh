#!/usr/bin/env bash
# Flower: if fewer clients answer, the average has the same noise and each client weighs more.
#
# DifferentialPrivacyServerSideFixedClipping adds noise of std z C / num_sampled_clients to the
# average. With 7 answers of 10 the average moves by C / 7 with one client, and the noise stays z C /
# 10. The noise of the sum is then 0.7 z C. A warning is logged, and the average is released.
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
from flwr.serverapp.strategy import FedAvg, DifferentialPrivacyServerSideFixedClipping as Private
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


def released(noise, updates):
    strategy = Private(FedAvg(), noise, 1.0, 10)
    strategy.current_arrays = ArrayRecord([np.zeros(SIZE)])
    arrays, _ = strategy.aggregate_train(1, [reply(update) for update in updates])
    return arrays.to_numpy_ndarrays()[0]


print("flwr", version("flwr"))
ratios = {}
for answers in (10, 7):
    small = [np.full(SIZE, 1e-12) for _ in range(answers)]
    std = released(1.0, small).std()
    moved = np.linalg.norm(released(0.0, [np.full(SIZE, 1.0), *small[1:]]))
    ratios[answers] = std / moved
    print(f"{answers} answers: std {std:.4f}, one client moves it by {moved:.4f}")
assert 0.97 < ratios[10] < 1.03 and 0.68 < ratios[7] < 0.72
PY
# Output seen: 10 answers: std 0.1000, one client moves it by 0.1000;
# 7 answers: std 0.0999, one client moves it by 0.1429
