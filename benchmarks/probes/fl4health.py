"""FL4Health: noise of the unweighted and of the weighted aggregation."""

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

import numpy as np
from probe import printed, std_of

# Only the module of the noise is imported: the package pins a Python before 3.11.
home = Path(importlib.util.find_spec("fl4health").submodule_search_locations[0])
package = ModuleType("fl4health.strategies")
package.__path__ = [str(home / "strategies")]
sys.modules["fl4health.strategies"] = package

from fl4health.strategies import noisy_aggregate as aggregates  # noqa: E402

SIZE = 40_000


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
    printed(rows)


main()
