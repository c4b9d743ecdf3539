"""FL4Health: noise of the unweighted, the weighted and the adaptive aggregation."""

import logging
import sys
from importlib.metadata import version

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

import numpy as np
from fl4health.parameter_exchange.parameter_packer import (
    ParameterPackerWithClippingBit,
)
from fl4health.strategies import noisy_aggregate as aggregates
from fl4health.strategies.client_dp_fedavgm import ClientLevelDPFedAvgM
from flwr.common import (
    Code,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from probe import printed, std_of

logging.disable(logging.CRITICAL)
SIZE = 40_000


def adaptive():
    """Return the bound before and after a round of zero updates, the multiplier and the noise."""
    strategy = ClientLevelDPFedAvgM(
        initial_parameters=ndarrays_to_parameters([np.zeros(SIZE)]),
        adaptive_clipping=True,
        initial_clipping_bound=0.1,
        clipping_learning_rate=0.2,
        clipping_quantile=0.5,
        weight_noise_multiplier=1.0,
        clipping_noise_multiplier=2.0,
        beta=0.0,
    )
    used, results = strategy.clipping_bound, []
    for _ in range(20):
        packed = ParameterPackerWithClippingBit().pack_parameters([np.zeros(SIZE)], 1.0)
        sent = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(packed), 10, {})
        results.append((None, sent))
    out, _ = strategy.aggregate_fit(1, results, [])
    noise = parameters_to_ndarrays(out)[0] * 20
    return used, strategy.clipping_bound, strategy.modify_noise_multiplier(), std_of(noise)


def main():
    # The aggregation changes the arrays that it gets, so every call has its own.
    def updates(value, counts):
        return [([np.full(SIZE, value if at == 0 else 0.0)], n) for at, n in enumerate(counts)]

    one = 1.0 / np.sqrt(SIZE)
    plain = aggregates.gaussian_noisy_unweighted_aggregate
    noise = plain(updates(0.0, [10] * 5), 1.0, 1.0)[0]
    moved = plain(updates(one, [10] * 5), 0.0, 1.0)[0]
    weighted = aggregates.gaussian_noisy_weighted_aggregate
    facts = (0.5, 100.0, 2.0)
    heavy = [100, 20, 20, 20, 20]
    noise_w = weighted(updates(0.0, heavy), 1.0, 1.0, *facts)[0]
    moved_w = weighted(updates(one, heavy), 0.0, 1.0, *facts)[0]
    name = f"FL4Health {version('fl4health')}"
    rows = []
    for option, std, norm, needs in (
        ("client level, unweighted, z 1, C 1, 5 clients", std_of(noise), np.linalg.norm(moved), ""),
        (
            "client level, weighted, z 1, C 1, 5 clients, one with 100 of 180 examples",
            std_of(noise_w),
            np.linalg.norm(moved_w),
            "; the total weight to be public",
        ),
    ):
        rows.append(
            {
                "program": name,
                "option": option,
                "clipped": "update of a client",
                "noise": f"{std:.4f} on the average; that client moves it by {norm:.4f}",
                "sampled": "Poisson or a fixed number of clients, by the client manager",
                "printed": "by dp-accounting, for the stated sampling",
                "needs": "a public number of answers: the sum is divided by it" + needs,
                "ratio": float(std / norm),
            }
        )
    used, after, multiplier, std = adaptive()
    rows.append(
        {
            "program": name,
            "option": "client level, adaptive clipping, z 1, bits 2, 20 clients below the bound",
            "clipped": f"update of a client to {used:.4f}; the next bound is {after:.4f}",
            "noise": f"{std:.4f} on the sum, multiplier {multiplier:.4f}",
            "sampled": "the same",
            "printed": "by dp-accounting, for z 1",
            "needs": "noise from the bound that clipped",
            # The clipping bits have the noise that the strategy sets aside for them.
            "ratio": ((used / std) ** 2 + 1 - 1 / multiplier**2) ** -0.5,
        }
    )
    printed(rows)


main()
