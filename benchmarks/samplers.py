"""Local Langevin steps per second: 300 chains x 50 clients x 2 dimensions on one core.

Usage: samplers.py [--rounds N] [--json FILE]. Ratios are measured within one process. The best of
several runs counts, in CPU time, so that other work on the machine has less effect.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
from rounding import seconds

from fedprivacy.systems.fa_ld.law import GaussianTarget
from fedprivacy.training import GaussianPosterior, LangevinSampling

CHAINS, CLIENTS, STEPS, ETA = 300, 50, 100, 1e-5
SPREAD = np.array([[5.0, -2.0], [-2.0, 1.0]])


def posterior():
    """Return a posterior of a mean, split over clients, as in FA-LD's section 7.1."""
    generator = np.random.default_rng(0)
    held = [generator.multivariate_normal(np.zeros(2), SPREAD, 20) for _ in range(CLIENTS)]
    return GaussianPosterior(target=GaussianTarget.of_records(held, SPREAD))


def ours(jump):
    """Return a function that runs one round of STEPS local steps."""
    options = {"chains": CHAINS, "local_steps": STEPS, "step_size": ETA, "exact_jump": jump}
    loop = LangevinSampling(target=posterior(), **options)
    state = loop.init()
    return lambda: loop.step(state)


def plain_numpy():
    """Return the same with only the step in numpy: one Hessian, one basis."""
    target = posterior().target
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence()))
    hessian, centres = target.hessians[0], target.centres
    scale = math.sqrt(2.0 * ETA * CLIENTS)

    def round_():
        points = np.zeros((CHAINS, CLIENTS, 2))
        for _ in range(STEPS):
            noise = generator.standard_normal(points.shape)
            points = points - ETA * ((points - centres) @ hessian) + scale * noise
        return points.mean(axis=1)

    return round_


def noise_alone():
    """Return a function that only draws a round's noise."""
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence()))
    return lambda: [generator.standard_normal((CHAINS, CLIENTS, 2)) for _ in range(STEPS)]


def plain_python():
    """Return one chain's client-by-client, coordinate-by-coordinate step: 1 / CHAINS of a step."""
    target = posterior().target
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence()))
    ((a, b), (_, d)), centres = target.hessians[0].tolist(), target.centres.tolist()
    scale = math.sqrt(2.0 * ETA * CLIENTS)

    def step():
        for centre in centres:
            x, y = 0.0 - centre[0], 0.0 - centre[1]
            x -= ETA * (a * x + b * y) - scale * generator.standard_normal()
            y -= ETA * (b * x + d * y) - scale * generator.standard_normal()

    return step


def main():
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--rounds", type=int, default=40)
    asked.add_argument("--json", type=Path)
    options = asked.parse_args()
    torch.set_num_threads(1)
    rates = {
        "exact jump": STEPS / seconds(ours(True), 10 * options.rounds),
        "local steps": STEPS / seconds(ours(False), options.rounds),
        "plain numpy": STEPS / seconds(plain_numpy(), options.rounds),
        "noise alone": STEPS / seconds(noise_alone(), options.rounds),
        "plain Python": 1.0 / (CHAINS * seconds(plain_python(), options.rounds)),
    }
    for name, rate in rates.items():
        to_python, to_numpy = rate / rates["plain Python"], rate / rates["plain numpy"]
        print(
            f"{name:13s} {rate:10,.0f} steps/s  {to_python:9,.1f} x Python  {to_numpy:6.2f} x numpy"
        )
    if options.json:
        options.json.write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
