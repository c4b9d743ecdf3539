"""Random settings of the reference table, certified and checked: `make certify`.

Every certificate goes through JSON to ``check_certificate``, which shares no arithmetic with the
package. An end that is refuted, refused or undecided is printed with the code that reproduces it.

    python benchmarks/certify.py [--settings 200] [--seed 1]
    python benchmarks/certify.py --matrix

With ``--matrix`` the cells of docs/matrix.md are certified instead, and counted by table.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import check_certificate

import fedprivacy as fp
from fedprivacy.relations import Adjacency

FACTS = [
    ("add_remove", "aggregate"),
    ("zero_out", "aggregate"),
    ("replace_one", "aggregate"),
    ("zero_out", "server"),
    ("replace_one", "server"),
    ("zero_out", "final"),
]


LIMIT = 10.0
"""Seconds of processor time that a cell of the matrix page may take."""


def scheme(draw: random.Random) -> object:
    """Return Poisson, FixedSize or Everyone; rates from 1/10,000 to 1/2."""
    rate = 10.0 ** draw.uniform(-4, -0.3)
    size = draw.randint(1, 100)
    fixed = fp.FixedSize(size, population=max(size + 1, round(size / rate)))
    return draw.choice([fp.Poisson(rate), fixed, fixed, fp.Everyone()])


def other(draw: random.Random, multiplier: float) -> fp.mechanisms.Mechanism:
    """Return a run whose pairs a certificate leaves to the checker."""
    one, rate = fp.Gaussian(noise_multiplier=multiplier), 10.0 ** draw.uniform(-2, -0.7)
    rounds, gap = draw.randint(5, 30), draw.randint(2, 5)
    factor = draw.choice([fp.factors.SquareRootToeplitz(), fp.factors.Tree()])
    run = fp.CorrelatedNoise(
        noise_multiplier=multiplier,
        factor=factor,
        rounds=rounds * gap,
        participation=draw.choice([fp.FixedEpochs(gap), fp.MinimumSeparation(gap)]),
    )
    population, size = draw.randint(20, 200), draw.randint(2, 10)
    return draw.choice(
        [
            one.sampled(fp.TruncatedPoisson(rate, population=population, largest=2 * size)),
            one.sampled(fp.Shuffled(rounds_per_epoch=draw.randint(1, 20))),
            one.sampled(fp.RandomAllocation(draw.randint(2, 20))),
            one.sampled(fp.Poisson(rate), held=draw.randint(2, 4)),
            run,
        ]
    )


def part(draw: random.Random) -> fp.mechanisms.Mechanism:
    """Return a sum with noise, sampled or inside a cohort."""
    multiplier = 10.0 ** draw.uniform(-0.3, 1.3)
    if draw.random() < 0.3:
        return other(draw, max(multiplier, 1.0))
    made = draw.choice([fp.Gaussian, fp.Gaussian, fp.Laplace])(noise_multiplier=multiplier)
    if draw.random() < 0.15:
        return made.in_cohort(scheme(draw))
    return made.sampled(scheme(draw))


def run(draw: random.Random) -> fp.mechanisms.Mechanism:
    """Return 1 to a million rounds of one kind, or rounds of two or three kinds."""
    if draw.random() < 0.25:
        kinds = [part(draw) * round(10 ** draw.uniform(0, 3)) for _ in range(draw.randint(2, 3))]
        return sum(kinds[1:], kinds[0])
    return part(draw) * round(10 ** draw.choice([0.0, draw.uniform(0, 2), draw.uniform(2, 6)]))


def bound(draw: random.Random) -> fp.Bound | None:
    """Return the answer to a random question; None if no theorem covers it."""
    adjacency, observer = draw.choice(FACTS)
    try:
        asked, delta = run(draw), 10.0 ** draw.uniform(-10, -2)
        found = fp.epsilon(asked, delta=delta, adjacency=adjacency, observer=observer, deadline=2.0)
        if draw.random() < 0.3:
            at = round(found.upper * draw.uniform(0.3, 1.1), 6)
            facts = {"adjacency": adjacency, "observer": observer}
            return fp.delta(asked, epsilon=min(at, 1e6), deadline=2.0, **facts)
        return found
    except (fp.errors.UnsupportedCombination, fp.ParameterError):
        # Kinds of different units do not add up.
        return None


def judged(document: dict) -> tuple[str, float]:
    """Return "proved", or the ends that are not, and the processor time."""
    begun = time.process_time()
    try:
        ends = check_certificate.check(document)
        verdict = ", ".join(f"{name} {told}" for name, told in ends.items() if told != "proved")
    except check_certificate.Refused as problem:
        verdict = f"refused: {problem}"
    except check_certificate.Undecided as problem:
        verdict = f"not decided: {problem}"
    return verdict or "proved", time.process_time() - begun


def certified(settings: int, seed: int) -> Iterator[tuple[int, str, float, dict]]:
    """Yield (number, verdict, seconds, certificate) of a number of settings."""
    left = settings
    for number in itertools.count():
        answer = bound(random.Random(f"{seed}/{number}"))
        if answer is None:
            continue
        document = json.loads(json.dumps(answer.certificate()))
        yield number, *judged(document), document
        left -= 1
        if not left:
            return


def cells() -> Iterator[tuple[str, str, fp.Bound]]:
    """Yield (table, cell, answer) of every answered cell of docs/matrix.md."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "_ext"))
    import tables

    rules = {
        name: tables.correlated_rule(who)
        for name, who in tables.SCHEMES.items()
        if isinstance(who, tables.UNDRAWN)
    }
    asks = [
        (table, f"{name}, {adjacency}, {observer}", partial(make, who), adjacency, observer)
        for table, make, whos in (
            ("noise drawn anew", tables.independent, tables.SCHEMES),
            ("correlated noise", tables.tied, rules | tables.RULES),
        )
        for name, who in whos.items()
        for adjacency, observer in itertools.product(Adjacency, tables.SEEN)
    ]
    asks += [
        (
            "correlated, drawn",
            f"{name}, {kind}",
            partial(drawn, *who, factor),
            "zero_out",
            "aggregate",
        )
        for name, who in tables.DRAWS.items()
        for kind, factor in tables.FACTORS.items()
    ]
    asks += [
        (name, f"{label}, {adjacency}", partial(tables.whole, kind, who), adjacency, "aggregate")
        for name, kind in tables.KINDS.items()
        for label, who in tables.SCHEMES.items()
        for adjacency in Adjacency
    ]
    for table, cell, make, adjacency, observer in asks:
        ask = {"adjacency": adjacency, "observer": observer, "tolerance": 0.02}
        try:
            yield table, cell, fp.epsilon(make(), delta=tables.DELTA, **ask)
        except fp.errors.FedPrivacyError:
            continue


def drawn(rule: object, scheme: object, factor: object) -> fp.mechanisms.Mechanism:
    """Return 20 rounds with correlated noise, drawn in secret if a scheme is given."""
    run = fp.CorrelatedNoise(factor=factor, noise_multiplier=4.0, rounds=20, participation=rule)
    return run if scheme is None else run.sampled(scheme)


def matrix() -> int:
    """Certify the cells of the matrix page; print the count of each table."""
    found = dict[str, list[bool]]()
    for table, cell, answer in cells():
        try:
            verdict, seconds = judged(json.loads(json.dumps(answer.certificate())))
        except fp.errors.FedPrivacyError as refusal:
            verdict, seconds = f"refused: {refusal}", 0.0
        done = verdict == "proved" and seconds <= LIMIT
        found.setdefault(table, []).append(done)
        if not done:
            print(f"{table}: {cell}: {verdict}, {seconds:.1f} s"[:160], flush=True)
    for table, each in found.items():
        print(f"{table}: {sum(each)} of {len(each)} answered cells")
    every = [one for each in found.values() for one in each]
    print(f"{sum(every)} of {len(every)} are proved in at most {LIMIT:g} s of processor time")
    return 0


def main() -> int:
    """Certify and check; print every end that was not proved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--matrix", action="store_true")
    options = parser.parse_args()
    if options.matrix:
        return matrix()
    found, begun = [], time.perf_counter()
    for number, verdict, seconds, document in certified(options.settings, options.seed):
        found.append((verdict, seconds))
        if len(found) % 10 == 0:
            done = sum(told == "proved" for told, _ in found)
            took = time.perf_counter() - begun
            print(f"{done} of {len(found)} proved, {took:.0f} s", flush=True)
        if verdict != "proved":
            told = {key: document["bound"][key] for key in ("adjacency", "observer", "method")}
            ends = [document["bound"][key] for key in ("quantity", "given", "lower", "upper")]
            print(f"seed {options.seed}, setting {number}: {verdict} ({seconds:.1f} s)")
            print(f"  {told} {ends} {json.dumps(document['mechanism'])}", flush=True)
    proved = sum(verdict == "proved" for verdict, _ in found)
    slowest = max(seconds for _, seconds in found)
    print(f"{proved} of {len(found)} certificates proved; the slowest took {slowest:.1f} s")
    if any("wrong" in verdict or "refused" in verdict for verdict, _ in found):
        return 1
    return 0 if proved == len(found) else 3


if __name__ == "__main__":
    sys.exit(main())
