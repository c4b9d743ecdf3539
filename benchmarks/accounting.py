"""Time and width of our answers beside dp-accounting's, in one run.

Run with one thread: ``OMP_NUM_THREADS=1 .venv/bin/python benchmarks/accounting.py``.
"""

import time
from importlib.metadata import version

from dp_accounting import dp_event, pld

import fedprivacy as fp

SETTINGS = [(0.01, 0.8, 100), (0.01, 0.8, 1_000), (0.01, 0.8, 10_000), (256 / 60_000, 1.1, 14_063)]


def timed(ask):
    start = time.perf_counter()
    return ask(), time.perf_counter() - start


def ours(q, z, rounds):
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q)) * rounds
    return fp.epsilon(run, delta=1e-5, adjacency="add_remove")


def theirs(q, z, rounds):
    step = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(z))
    accountant = pld.PLDAccountant().compose(dp_event.SelfComposedDpEvent(step, rounds))
    return accountant.get_epsilon(1e-5)


def main():
    print(f"fedprivacy {fp.__version__}, dp-accounting {version('dp-accounting')}, delta 1e-5")
    for q, z, rounds in SETTINGS:
        bound, seconds = timed(lambda s=(q, z, rounds): ours(*s))
        other, others = timed(lambda s=(q, z, rounds): theirs(*s))
        low, high = bound.resolution
        print(
            f"q {q:.4g}, z {z}, {rounds} rounds: [{low:.5f}, {high:.5f}] in {seconds:.3f} s; "
            f"dp-accounting {other:.5f} in {others:.3f} s, ratio {others / seconds:.1f}"
        )


if __name__ == "__main__":
    main()
