"""NVFlare: PercentilePrivacy and SVTPrivacy on one update of a model."""

import sys
from importlib.metadata import version

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

import numpy as np
from nvflare.apis.dxo import (
    DXO,
    DataKind,
    MetaKey,
)
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from probe import printed

SIZE = 10_000


def filtered(used, update):
    dxo = DXO(DataKind.WEIGHT_DIFF, data={"w": np.array(update)})
    dxo.set_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, 1)
    shareable = dxo.to_shareable()
    out = used.process_dxo(dxo, shareable, FLContext())
    return out.data["w"], out.meta


def main():
    update = np.random.default_rng(0).normal(size=SIZE)
    cut, _ = filtered(PercentilePrivacy(percentile=10, gamma=0.01), update)
    again, _ = filtered(PercentilePrivacy(percentile=10, gamma=0.01), update)
    svt = SVTPrivacy(fraction=0.1, epsilon=0.1, noise_var=0.1, gamma=1e-5, replace=False)
    sent, meta = filtered(svt, update)
    spent = meta.get("svt_privacy_budget", {})
    total = spent.get("epsilon_total") if isinstance(spent, dict) else None
    noise = sent[np.nonzero(sent)]
    name = f"NVFlare {version('nvflare')}"
    rows = [
        {
            "program": name,
            "option": "PercentilePrivacy(percentile 10, gamma 0.01)",
            "clipped": f"each value to [-{np.abs(cut).max():g}, {np.abs(cut).max():g}]",
            "noise": "none" if np.array_equal(cut, again) else "random",
            "sampled": "each client by itself",
            "printed": "none",
            "needs": "no epsilon holds",
            "ratio": 0.0 if np.array_equal(cut, again) else None,
        },
        {
            "program": name,
            "option": "SVTPrivacy(fraction 0.1, epsilon 0.1, noise_var 0.1, gamma 1e-5), "
            "10,000 values",
            "clipped": "each sent value to [-1e-5, 1e-5]",
            "noise": f"Laplace, mean size {np.abs(noise).mean():.2e}, on {noise.size} values",
            "sampled": "each client by itself",
            "printed": f"svt_privacy_budget: epsilon_total {total:.4g} for one call",
            "needs": "the record, not the option: 0.1 is the choice alone",
            "ratio": None,
        },
    ]
    printed(rows)


main()
