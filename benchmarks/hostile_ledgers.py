"""Small ledgers with huge numbers: each is answered or refused within a second and 200 MB.

    python benchmarks/hostile_ledgers.py [--only TEXT] [--seconds 1] [--megabytes 200] [--kept FILE]

Every mechanism, scheme and factor of correlated noise gets a huge value in each of its numbers in
turn. It is run under each accountant, and each adjacency and observer with a theorem. A case is a
separate process with limits on processor time and memory: it reads the mechanism from a ledger's
line and accounts it. The script prints cases that are late, large, or end without an answer or a
typed refusal, and the exit status is then 1. With --kept, results are appended to a file, and cases
in that file are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.errors import FedPrivacyError
from fedprivacy.ledger.lines import decoded, encoded

HUGE = (10**6, 10**7, 10**9, 10**15)
ADJACENCIES = ("add_remove", "zero_out", "replace_one")
OBSERVERS = ("aggregate", "server")
SCHEMES = (
    fp.Poisson(0.01),
    fp.FixedSize(10, population=1000),
    fp.WithReplacement(10, population=1000),
    fp.WithReplacement(10, probability=0.01),
    fp.Shuffled(10),
    fp.TruncatedPoisson(0.01, population=1000, largest=20),
    fp.RandomAllocation(10),
    fp.Everyone(),
)
FACTORS = (
    fp.factors.Banded(4),
    fp.factors.BufferedToeplitz(2),
    fp.factors.SquareRootToeplitz(),
    fp.factors.Tree(),
    fp.factors.BandedInverse(4),
    fp.factors.Identity(),
)
WIDE = (
    fp.factors.Banded(10),
    fp.factors.BufferedToeplitz(64),
    fp.factors.BandedInverse(64),
    fp.factors.BandedInverse(10**6),
)
"""Factors with many numbers each."""
RECORD = fp.Gaussian(noise_multiplier=1.0, unit="record")
STEP = {"step_size": 0.1, "correlation": 0.0, "weight": 0.1, "batch_fraction": 0.1}
CONVEX = {"step_size": 0.1, "strong_convexity": 1.0, "smoothness": 2.0, "sensitivity": 0.1}
WHOLE = {"clip_norm": 1.0, "dimension": 64, "cohort": 4, "bits": 20}
SPARSE = {"clip_norm": 1.0, "kept": 8, "dimension": 64, "cohort": 4}
MIXED = {"standard_deviation": 1.0, "sensitivities": (0.0, 1.0), "probabilities": (0.9, 0.1)}
TRIALS = (fp.PoissonTrials(5.0), fp.TruncatedNegativeBinomial(5.0, shape=1.0))
MECHANISMS = (
    fp.AdaptiveClipping(noise_multiplier=1.0, clip_norm=1.0),
    fp.RandomizedResponse(answers=4, chance=0.5),
    fp.DiscreteLaplace(noise_parameter=1.0, sensitivity=2),
    fp.DistributedDiscreteGaussian(noise_multiplier=4.0, **WHOLE),
    fp.Skellam(noise_multiplier=4.0, **WHOLE),
    fp.SparsifiedPerturbation(noise_multiplier=1.0, **SPARSE),
    fp.FederatedLangevin(temperature=1.0, gradient_sensitivity=0.1, **STEP),
    fp.FederatedLangevin(
        temperature=1.0, gradient_sensitivity=0.1, strong_convexity=1.0, smoothness=2.0, **STEP
    ),
    fp.FederatedHamiltonian(leapfrog_steps=2, gradient_sensitivity=0.1, **STEP),
    fp.FederatedHamiltonian(
        leapfrog_steps=2, gradient_sensitivity=0.1, gradient_noise_multiplier=1.0, **STEP
    ),
    fp.NoisyGradientDescent(noise_std=1.0, steps=3, **CONVEX),
    fp.SplittingRun(noise_scale=1.0, penalty=1.0, local_steps=3, rounds=3, **CONVEX),
    fp.MixtureOfGaussians(**MIXED),
    fp.GaussianDp(mu=0.1, adjacency="zero_out"),
    fp.ConcentratedDp(rho=0.1, adjacency="zero_out"),
    RECORD.sampled(fp.Poisson(0.01), held=4),
    RECORD.sampled(fp.FixedSize(10, population=10**6), held=4),
    RECORD.sampled(fp.WithReplacement(10, population=10**6), held=4),
    (RECORD * 3).in_cohort(fp.FixedSize(3, population=10)),
    *(fp.PrivateSelection(fp.Gaussian(noise_multiplier=4.0), trials=law) for law in TRIALS),
)


class Case(NamedTuple):
    """A query of a ledger's line, and its name."""

    name: str
    line: bytes
    accountant: str
    adjacency: str
    observer: str


class Outcome(NamedTuple):
    """Result of a case: its number or refusal, processor seconds, peak growth in megabytes."""

    said: str
    seconds: float
    megabytes: float


def grown(one: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name of the number, the value with it huge) for each number, including nested ones."""
    for field in fields(one):
        value = getattr(one, field.name)
        found = [(f"{field.name} 1e{len(str(huge)) - 1}", huge) for huge in HUGE]
        if is_dataclass(value):
            found = [(f"{field.name}.{name}", part) for name, part in grown(value)]
        elif not isinstance(value, int | float) or isinstance(value, bool):
            continue
        for name, huge in found:
            try:
                yield name, replace(one, **{field.name: huge})
            except FedPrivacyError:
                continue


def lines() -> Iterator[tuple[str, bytes]]:
    """Yield (name, line) of runs with one huge number."""
    step = fp.Gaussian(noise_multiplier=1.0)
    for number, mechanism in enumerate(MECHANISMS):
        kind = f"{type(mechanism).__name__} {number}"
        runs = [(huge, changed * 3) for huge, changed in grown(mechanism)]
        runs += [(f"count 1e{len(str(n)) - 1}", mechanism * n) for n in HUGE]
        for huge, run in runs:
            yield f"{kind} {huge}", encoded("plan", run, run.protects)
    for scheme in SCHEMES:
        by = " by probability" if getattr(scheme, "probability", None) else ""
        kind = f"{type(scheme).__name__}{by}"
        runs = [(huge, step.sampled(changed) * 3) for huge, changed in grown(scheme)]
        runs += [(f"count 1e{len(str(n)) - 1}", step.sampled(scheme) * n) for n in HUGE]
        for huge, run in runs:
            yield f"{kind} {huge}", encoded("plan", run, run.protects)
    participation = fp.MinimumSeparation(10, at_most=3)
    named = [(type(factor).__name__, factor) for factor in FACTORS]
    named += [(f"{type(factor).__name__} wide {n}", factor) for n, factor in enumerate(WIDE)]
    for kind, factor in named:
        small = fp.CorrelatedNoise(
            factor=factor, noise_multiplier=1.0, rounds=64, participation=participation
        )
        line = encoded("plan", small, None)
        for huge in HUGE:
            changed = line.replace(b'"rounds":64', b'"rounds":%d' % huge)
            yield f"{kind} rounds 1e{len(str(huge)) - 1}", changed


def cases() -> Iterator[Case]:
    """Yield every line with every accountant, adjacency and observer."""
    for (name, line), *asked in product(lines(), ACCOUNTANTS, ADJACENCIES, OBSERVERS):
        yield Case(" ".join((name, *asked)), line, *asked)


def answer(case: Case) -> str:
    """Return a case's interval, or the refusal."""
    asked = {"adjacency": case.adjacency, "observer": case.observer}
    try:
        run = decoded(case.line)
        found = fp.epsilon(run, delta=1e-5, accountant=case.accountant, **asked)
    except FedPrivacyError as problem:
        return f"{type(problem).__name__}: {problem}"
    return f"[{found.resolution[0]:.6g}, {found.resolution[1]:.6g}] {found.reason}"


def _child(case: Case, seconds: float, megabytes: float) -> str:
    """Account within limits; return the text to report."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    # Twice the limits: a small excess is measured, a large one ends the process.
    room = held + int(2.0 * megabytes * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    spent = time.process_time()
    most = int(spent + 2.0 * seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        said = answer(case)
    except MemoryError:
        said = "MemoryError"
    # Every exception is a finding.
    except Exception as problem:
        said = f"untyped {type(problem).__name__}: {problem}"
    grown_by = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return f"{time.process_time() - spent}\t{grown_by}\t{said}"


def outcome(case: Case, seconds: float, megabytes: float) -> Outcome:
    """Account one case in a separate process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, _child(case, seconds, megabytes).encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if not told:
        return Outcome(f"ended by signal {status & 127}", float("inf"), float("nan"))
    spent, grown_by, said = told.split("\t", 2)
    return Outcome(said, float(spent), float(grown_by))


def wrong(found: Outcome, seconds: float, megabytes: float) -> bool:
    """Return whether a case was late, large, or ended in a way that is not allowed."""
    untyped = found.said.startswith(("untyped", "MemoryError", "ended"))
    return untyped or found.seconds > seconds or found.megabytes > megabytes


def outcomes(chosen: str, kept: Path | None, seconds: float, megabytes: float) -> Iterator[Any]:
    """Yield (name, outcome) of every case whose name contains the text; known ones from a file."""
    known = kept.read_text().splitlines() if kept and kept.exists() else []
    told = {name: Outcome(*found) for name, *found in map(json.loads, known)}
    for case in cases():
        if not all(word in case.name for word in chosen.split()):
            continue
        found = told.get(case.name) or outcome(case, seconds, megabytes)
        if kept and case.name not in told:
            with kept.open("a") as lines:
                lines.write(json.dumps([case.name, *found]) + "\n")
        yield case.name, found


def main() -> int:
    """Run the cases and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="words that a case's name must hold")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--kept", type=Path, help="file that outcomes are added to and read from")
    args = parser.parse_args()
    limits = (args.seconds, args.megabytes)
    count = bad = 0
    for name, found in outcomes(args.only, args.kept, *limits):
        count += 1
        if wrong(found, *limits):
            bad += 1
            numbers = f"{found.seconds:5.2f} s {found.megabytes:5.0f} MB"
            print(f"{name:60} {numbers}  {found.said[:100]}", flush=True)
    print(f"{count} cases, {bad} late, large or untyped")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
