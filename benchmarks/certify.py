"""Random settings of the reference table, certified and checked: `make certify`.

Every certificate goes through JSON to ``check_certificate``, which shares no arithmetic with the
package. An end that is refuted, refused or undecided is printed with the code that reproduces it.

    python benchmarks/certify.py [--settings 200] [--seed 1]
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator

import check_certificate

import fedprivacy as fp

FACTS = [
    ("add_remove", "aggregate"),
    ("zero_out", "aggregate"),
    ("replace_one", "aggregate"),
    ("zero_out", "server"),
    ("replace_one", "server"),
    ("zero_out", "final"),
]


def scheme(draw: random.Random) -> object:
    """Return Poisson, FixedSize or Everyone; rates from 1/10,000 to 1/2."""
    rate = 10.0 ** draw.uniform(-4, -0.3)
    size = draw.randint(1, 100)
    fixed = fp.FixedSize(size, population=max(size + 1, round(size / rate)))
    return draw.choice([fp.Poisson(rate), fixed, fixed, fp.Everyone()])


def part(draw: random.Random) -> fp.mechanisms.Mechanism:
    """Return a sum with noise, sampled or inside a cohort."""
    multiplier = 10.0 ** draw.uniform(-0.3, 1.3)
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
    asked, delta = run(draw), 10.0 ** draw.uniform(-10, -2)
    try:
        found = fp.epsilon(asked, delta=delta, adjacency=adjacency, observer=observer, deadline=2.0)
        if draw.random() < 0.3:
            at = round(found.upper * draw.uniform(0.3, 1.1), 6)
            facts = {"adjacency": adjacency, "observer": observer}
            return fp.delta(asked, epsilon=min(at, 1e6), deadline=2.0, **facts)
        return found
    except fp.errors.UnsupportedCombination:
        return None


def certified(settings: int, seed: int) -> Iterator[tuple[int, str, float, dict]]:
    """Yield (number, verdict, seconds, certificate) of a number of settings."""
    left = settings
    for number in itertools.count():
        answer = bound(random.Random(f"{seed}/{number}"))
        if answer is None:
            continue
        document = json.loads(json.dumps(answer.certificate()))
        begun = time.perf_counter()
        try:
            ends = check_certificate.check(document)
            verdict = ", ".join(f"{name} {told}" for name, told in ends.items() if told != "proved")
        except check_certificate.Refused as problem:
            verdict = f"refused: {problem}"
        yield number, verdict or "proved", time.perf_counter() - begun, document
        left -= 1
        if not left:
            return


def main() -> int:
    """Certify and check; print every end that was not proved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = []
    for number, verdict, seconds, document in certified(options.settings, options.seed):
        found.append((verdict, seconds))
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
