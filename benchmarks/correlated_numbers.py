"""The numbers of docs/theory/correlated_noise.md: secret sampling with correlated noise.

The rows have epsilon at delta = 1e-5, zero_out, aggregate, as upper ends unless marked as lower.
Every row is stored when it is ready. Stored rows are not computed again, so a stopped run can
continue.

    python benchmarks/correlated_numbers.py [--seconds 200]
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.bound import Bound
from fedprivacy.errors import FedPrivacyError
from fedprivacy.loss import Curve, Nested, compose
from fedprivacy.mechanisms import split_noise, unknown_position
from fedprivacy.privacy_loss import PrivacyLoss, Witness
from fedprivacy.relations import Adjacency, Facts, Observer

KEPT = Path(__file__).parent / "results" / "correlated_numbers.json"
ASK = {"delta": 1e-5, "adjacency": "zero_out"}
FACTS = Facts(None, Adjacency.ZERO_OUT, Observer.AGGREGATE)
SEPARATIONS = (12, 16, 24, 32, 48, 64, 96, 128)


def cut_root(bands: int) -> factors.Banded:
    """Return the square root's first coefficients, columns of norm 1."""
    column = factors.Banded(bands).column()
    return factors.Banded(bands, weights=tuple((column / np.linalg.norm(column)).tolist()))


def of_curve(curve: Curve) -> float:
    """Return the upper end of epsilon of a pair."""
    return asked(curve).upper


def asked(curve: Curve, delta: float = 1e-5) -> Bound:
    """Return epsilon of a pair."""
    accountant = fp.accountants.PldAccountant()
    accountant.compose(PrivacyLoss(curve, FACTS, Witness(curve, "itself")))
    return accountant.epsilon(delta)


ROOT, CUT, ONCE = factors.SquareRootToeplitz(), cut_root(64), fp.SingleParticipation()
BINS = {
    "A: square root, 1024 rounds once": (ROOT, ONCE, 1024, (1.0, 2.0, 4.0)),
    "B: 64 bands, 1024 rounds once": (CUT, ONCE, 1024, (0.5, 1.0)),
    "C: 64 bands, 4 x 256": (CUT, fp.FixedEpochs(256), 256, (1.0, 2.0)),
    "D: square root, 4 x 256": (ROOT, fp.FixedEpochs(256), 256, (4.0,)),
}


Row = dict[str, float | str]


def bins(factor: factors.Factor, rule: fp.factors.Participation, count: int, z: float) -> Row:
    """Return epsilons of balls in bins: known, by one level, by trees, and lower ends."""
    run = fp.CorrelatedNoise(factor=factor, noise_multiplier=z, rounds=1024, participation=rule)
    gram = unknown_position.kernel(factor.magnitudes(1024), count, z)
    above = unknown_position.envelope(gram)
    leaf = float(above[0])
    levels = {
        s: of_curve(Nested(((count // s, float(above[s])),), leaf))
        for s in SEPARATIONS
        if s < len(above)
    }
    tree: Bound = fp.epsilon(run.sampled(fp.RandomAllocation(count)), **ASK)
    best = min(levels, key=lambda s: levels[s])
    return {
        "known": fp.epsilon(run, **ASK).upper,
        "one level": levels[best],
        "its s": best,
        "at s = 48": levels[48],
        "tree": tree.upper,
        "lower": tree.lower,
        "lower, contiguous blocks": contiguous(gram),
    }


def contiguous(gram: np.ndarray) -> float:
    """Return the best lower end of two-level trees of contiguous blocks, smallest entries inside.

    The trees' laws are rounded down, so the result is a lower end.
    """
    # Entries were rounded up; less covariance loses less.
    gram, best = gram * (1.0 - 1e-9), 0.0
    for blocks in (2, 4, 8, 16, 32, 64, 128):
        size = len(gram) // blocks
        inside = min(
            float(gram[i * size : (i + 1) * size, i * size : (i + 1) * size].min())
            for i in range(blocks)
        )
        root, leaf = float(gram.min()), float(np.diag(gram).min())
        law = Nested(((blocks, root), (size, max(inside, root))), leaf)
        best = max(best, asked(law).lower)
    return best


POISSON = (
    *((64, 1 / 64, z) for z in (4.0, 8.0, 32.0)),
    (256, 1 / 256, 8.0),
    *((64, 1 / 8, z) for z in (8.0, 32.0)),
)


def poisson(rounds: int, q: float, z: float) -> Row:
    """Return epsilons of Poisson sampling of the square root, by each theorem."""
    matrix = ROOT.magnitudes(rounds)
    norms = np.linalg.norm(matrix, axis=0) * (1.0 + 1e-12)
    run = fp.CorrelatedNoise(
        factor=ROOT, noise_multiplier=z, rounds=rounds, participation=fp.FixedEpochs(1)
    )
    used = fp.epsilon(run.sampled(fp.Poisson(q)), **ASK)
    return {
        "F, one dimension": of_curve(unknown_position.rank_one(norms, q, z)),
        "J, shares": min(
            of_curve(compose(parts)) for parts in split_noise.bins_of_rounds(matrix, q, 1, z)
        ),
        "used": used.upper,
        "lower": used.lower,
        "known": fp.epsilon(run, **ASK).upper,
    }


def several(factor: factors.Factor, z: float, k: int) -> Row:
    """Return epsilon of k of 256 rounds together, and of the same number of known rounds."""
    rule = fp.MinimumSeparation(1, at_most=k)
    try:
        run = fp.CorrelatedNoise(factor=factor, noise_multiplier=z, rounds=256, participation=rule)
        drawn = fp.epsilon(run.sampled(fp.RandomAllocation(256)), **ASK).upper
    except FedPrivacyError as refusal:
        return {"refused": type(refusal).__name__}
    return {"known": fp.epsilon(run, **ASK).upper, "drawn": drawn}


def table() -> Iterator[tuple[str, str, Callable[[], Row]]]:
    """Yield every row: its table, its name, and its function."""
    for name, (factor, rule, count, multipliers) in BINS.items():
        for z in multipliers:
            yield "bins", f"{name}, z = {z:g}", functools.partial(bins, factor, rule, count, z)
    for rounds, q, z in POISSON:
        made = functools.partial(poisson, rounds, q, z)
        yield "poisson", f"{rounds} rounds, q = {q:g}, z = {z:g}", made
    for noise, z in ((factors.Identity(), 1.0), (ROOT, 8.0), (CUT, 2.0)):
        for k in (1, 4, 16):
            name = f"{type(noise).__name__}, {k} of 256, z = {z:g}"
            yield "k of n", name, functools.partial(several, noise, z, k)


def main() -> None:
    """Compute and store the missing rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=math.inf, help="then begin no further row")
    end = time.monotonic() + parser.parse_args().seconds
    found: dict[str, dict[str, Row]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for part, name, made in table():
        if name in found.setdefault(part, {}):
            continue
        if time.monotonic() > end:
            print("not done: run it again")
            return
        start = time.process_time()
        found[part][name] = made()
        print(f"{time.process_time() - start:.0f} s", name, found[part][name], flush=True)
        KEPT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
