"""Random settings of the box of certified tolerance: which take over a second, which stay wide.

Run as ``python benchmarks/box.py COUNT [SEED]``; prints a line for each such setting.
"""

import math
import sys
import time

import numpy as np

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant

ADJACENCIES = ("add_remove", "zero_out", "replace_one")
POPULATION = 100_000


def settings(count: int, seed: int):
    """Yield (scheme, adjacency, noise multiplier, rounds, delta), log-uniform, kinds in turn."""
    generator = np.random.default_rng(seed)

    def spread(low: float, high: float) -> float:
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    for k in range(count):
        noise, q, rounds, delta = (
            spread(0.3, 50),
            spread(1e-5, 1),
            spread(1, 1e6),
            spread(1e-15, 1e-3),
        )
        draws = round(spread(1, 100))
        scheme = (
            fp.Poisson(q),
            fp.FixedSize(max(1, int(q * POPULATION)), population=POPULATION),
            fp.WithReplacement(draws, probability=q / draws),
        )[k // 3 % 3]
        yield scheme, ADJACENCIES[k % 3], noise, round(rounds), delta


def main(count: int, seed: int = 1) -> None:
    """Ask for epsilon at the default tolerance; CPU seconds of one thread."""
    slow = wide = 0
    for scheme, adjacency, noise, rounds, delta in settings(count, seed):
        loss = fp.Gaussian(noise_multiplier=noise).sampled(scheme).privacy_loss(adjacency)
        begun = time.process_time()
        low, high = PldAccountant().compose(loss, rounds).epsilon(delta).resolution
        took = time.process_time() - begun
        slow, wide = slow + (took > 1.0), wide + (not high - low <= 1e-3)
        if took > 1.0 or not high - low <= 1e-3:
            facts = f"{scheme} {adjacency} z {noise:.4g} x {rounds} delta {delta:.3g}"
            print(f"{took:7.2f} s  [{low:.6g}, {high:.6g}]  {facts}", flush=True)
    print(f"{count} settings: {slow} over a second, {wide} wider than the tolerance")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
