#!/usr/bin/env bash
# flwr-datasets: if labels start at 1, the inner Dirichlet partition leaves the last label out.
#
# InnerDirichletPartitioner counts the different labels and takes 0, 1, ... for their names. Of labels
# 1 to 4 it deals out 1 to 3. No record of label 4 reaches a client. The one warning, about the sum of
# the sizes, also comes for labels 0 to 3, of which all four are dealt out.
# Read with flwr-datasets 0.6.1 and datasets 4.8.5 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check flwr-datasets==0.6.1 datasets==4.8.5 numpy==2.4.6
cd "$work"
HF_HUB_OFFLINE=1 "$work/env/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
from datasets import Dataset
from flwr_datasets.partitioner import InnerDirichletPartitioner


def dealt(first: int) -> list[int]:
    labels = np.repeat(np.arange(first, first + 4), 500).tolist()
    parts = InnerDirichletPartitioner([100] * 10, partition_by="label", alpha=100.0, seed=1)
    parts.dataset = Dataset.from_dict({"label": labels})
    every = [parts.load_partition(i)["label"] for i in range(10)]
    return sorted({int(one) for part in every for one in part})


print("flwr-datasets", version("flwr-datasets"), "datasets", version("datasets"))
print("labels of all clients:", dealt(0), dealt(1))
assert dealt(0) == [0, 1, 2, 3] and dealt(1) == [1, 2, 3]
PY
# Output seen: labels of all clients: [0, 1, 2, 3] [1, 2, 3]
