"""pfl: noise of the Gaussian mechanism, with and without noise scale, and its accountants."""

import sys
from importlib.metadata import version

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

import torch
from pfl.hyperparam import get_param_value
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy import (
    GaussianMechanism,
    PLDPrivacyAccountant,
    RDPPrivacyAccountant,
)
from pfl.stats import MappedVectorStatistics
from probe import printed, std_of

SIZE = 40_000
set_framework_module(pytorch_ops)


def noise(scale):
    mechanism = GaussianMechanism.construct_single_iteration(1.0, 2.0, 1e-5)
    statistics = MappedVectorStatistics({"w": torch.zeros(SIZE)}, weight=1)
    noised, _ = (
        mechanism.add_noise(statistics, cohort_size=1, noise_scale=scale, seed=1)
        if ("noise_scale" in mechanism.add_noise.__code__.co_varnames)
        else mechanism.add_noise(statistics, cohort_size=1)
    )
    return std_of(noised["w"]), get_param_value(mechanism.relative_noise_stddev)


def main():
    std, relative = noise(1.0)
    facts = dict(num_compositions=1000, sampling_probability=0.01, mechanism="gaussian")
    spent = [
        kind(noise_parameter=1.0, delta=1e-5, noise_scale=scale, **facts).epsilon
        for kind in (PLDPrivacyAccountant, RDPPrivacyAccountant)
        for scale in (1.0, 0.1)
    ]
    name = f"pfl {version('pfl')}"
    rows = [
        {
            "program": name,
            "option": "GaussianMechanism from clip 1, epsilon 2, delta 1e-5",
            "clipped": "update of a client",
            "noise": f"{std:.4f} on the sum (relative noise {relative:.4f})",
            "sampled": "one iteration, no sampling",
            "printed": "epsilon 2",
            "needs": "zero_out or add_remove",
            "ratio": std,
        },
        {
            "program": name,
            "option": "accountants, z 1, probability 0.01, 1,000 steps, noise_scale 1 and 0.1",
            "clipped": "update of a client",
            "noise": "z times noise_scale",
            "sampled": "Poisson in the account; fixed cohorts in the simulation",
            "printed": "PLD {:.4f} and {:.4f}, RDP {:.4f} and {:.4f}".format(*spent),
            "needs": "noise_scale 1",
            "ratio": 1.0,
            "run": {"sampling_probability": 0.01, "rounds": 1000},
        },
    ]
    printed(rows)


main()
