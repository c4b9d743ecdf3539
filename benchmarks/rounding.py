"""Normal numbers per second on one core: rounded noise compared with numpy's, in one run.

Usage: rounding.py [--numbers N] [--repeats N] [--json FILE]. CPU time, the best of several.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

import numpy as np

from fedprivacy.mechanisms.rounded import (
    grid_for,
    noisy_laplace_sum,
    noisy_sum,
    on_grid,
    reproducible_bits,
)


def seconds(work, times):
    """Return the least CPU time of one call, after a warm-up call."""
    work()
    best = math.inf
    for _ in range(times):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best


def works(numbers):
    """Return the measured functions, by name."""
    total, grid = np.zeros(numbers), grid_for(1.0, 1.0)
    off_grid = np.random.default_rng(0).normal(size=numbers)
    fine = grid_for(1.0, 2.0**-10)
    generator = np.random.Generator(np.random.SFC64())
    pcg = np.random.Generator(np.random.PCG64DXSM())
    seeded = reproducible_bits(generator)
    return {
        "normal, grid 2^-20 std": lambda: noisy_sum(total, std=1.0, grid=grid),
        "normal, sum off the grid": lambda: noisy_sum(off_grid, std=1.0, grid=grid),
        "normal, grid 2^-30 std": lambda: noisy_sum(total, std=1.0, grid=fine),
        "normal, bits from SFC64": lambda: noisy_sum(total, std=1.0, grid=grid, bits=seeded),
        "Laplace, grid 2^-20 scale": lambda: noisy_laplace_sum(total, scale=1.0, grid=grid),
        "a contribution to the grid": lambda: on_grid(off_grid, clip_norm=1.0, grid=grid),
        "os.urandom alone, 8 bytes each": lambda: os.urandom(8 * numbers),
        "numpy standard_normal, PCG64DXSM": lambda: pcg.standard_normal(numbers),
        "numpy standard_normal, SFC64": lambda: generator.standard_normal(numbers),
    }


def main():
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--numbers", type=int, default=1_500_000)
    asked.add_argument("--repeats", type=int, default=7)
    asked.add_argument("--json", type=Path)
    options = asked.parse_args()
    rates = {
        name: options.numbers / seconds(work, options.repeats)
        for name, work in works(options.numbers).items()
    }
    for name, rate in rates.items():
        print(f"{name:36s} {rate / 1e6:8.1f} million/s")
    if options.json:
        options.json.write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
