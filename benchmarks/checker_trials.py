"""The checker is checked: changed certificates, and certificates of faulty accounting.

python benchmarks/checker_trials.py changes [--changes 1000] [--seed 1]
python benchmarks/checker_trials.py faults

``changes``: one number of a true certificate is changed and the digest made again. The changed
document makes another claim. ``judge`` says from the package's answer to the changed question
whether that claim is more than is true. All such documents must fail. The others may pass.

``faults``: each fault of `checker_faults.py` is put into a copy of the package. Its certificates
are given to the checker of this package. A fault is seen if a certificate fails that was proved
before.
"""

import argparse
import copy
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import check_certificate
from checker_faults import FAULTS

import fedprivacy as fp
from fedprivacy.errors import FedPrivacyError
from fedprivacy.registry import KINDS, decode

G, L = fp.Gaussian, fp.Laplace
Setting = tuple[Any, str, str]


def correlated(factor: Any, rounds: int, rule: Any, z: float = 4.0) -> Any:
    return fp.CorrelatedNoise(factor=factor, noise_multiplier=z, rounds=rounds, participation=rule)


def settings() -> list[Setting]:
    """Return runs of every group that certificates cover: (run, adjacency, observer)."""
    spaced, epochs = fp.MinimumSeparation(5), fp.FixedEpochs(5)
    whole = fp.DistributedDiscreteGaussian(
        noise_multiplier=2.0, clip_norm=1.0, dimension=100, cohort=10, bits=16, topped_up=True
    )
    skellam = fp.Skellam(
        noise_multiplier=2.0, clip_norm=1.0, dimension=100, cohort=10, bits=16, topped_up=True
    )
    noise = G(noise_multiplier=2.0)
    root, plain = fp.factors.SquareRootToeplitz(), fp.factors.Identity()
    anew = fp.MinimumSeparation(1, at_most=4)
    return [
        (noise.sampled(fp.Poisson(0.1)) * 20, "add_remove", "aggregate"),
        (noise.sampled(fp.Poisson(0.1)) * 20, "replace_one", "aggregate"),
        (noise.sampled(fp.FixedSize(10, population=100)) * 100, "zero_out", "aggregate"),
        (noise.sampled(fp.FixedSize(10, population=100)) * 100, "replace_one", "aggregate"),
        (noise.sampled(fp.FixedSize(10, population=100)) * 20, "zero_out", "server"),
        (L(noise_multiplier=2.0).sampled(fp.Poisson(0.1)) * 20, "add_remove", "aggregate"),
        (L(noise_multiplier=2.0) * 20, "add_remove", "aggregate"),
        (noise.sampled(fp.Poisson(0.1)) * 10 + noise * 2, "add_remove", "aggregate"),
        (
            noise.sampled(fp.TruncatedPoisson(0.1, population=20, largest=4)) * 20,
            "add_remove",
            "aggregate",
        ),
        (
            noise.sampled(fp.TruncatedPoisson(0.1, population=20, largest=4)) * 20,
            "zero_out",
            "aggregate",
        ),
        (noise.sampled(fp.WithReplacement(10, population=100)) * 20, "zero_out", "server"),
        (noise.sampled(fp.WithReplacement(4, population=100)), "add_remove", "aggregate"),
        (noise.sampled(fp.Poisson(0.1), held=3), "replace_one", "aggregate"),
        (noise.sampled(fp.Shuffled(rounds_per_epoch=10)), "zero_out", "aggregate"),
        (noise.sampled(fp.RandomAllocation(10)), "zero_out", "aggregate"),
        (correlated(root, 20, spaced), "zero_out", "aggregate"),
        (correlated(fp.factors.Tree(), 20, fp.MinimumSeparation(3)), "zero_out", "server"),
        (correlated(fp.factors.Banded(3), 21, spaced), "replace_one", "aggregate"),
        (correlated(fp.factors.Restarted(root, 10), 20, spaced), "zero_out", "aggregate"),
        (
            correlated(fp.factors.Banded(3), 20, epochs).sampled(fp.Poisson(0.1)),
            "zero_out",
            "aggregate",
        ),
        (correlated(root, 20, epochs).sampled(fp.RandomAllocation(5)), "zero_out", "aggregate"),
        (correlated(root, 20, epochs).sampled(fp.Poisson(0.1)), "zero_out", "aggregate"),
        (correlated(root, 20, spaced).sampled(fp.Poisson(0.1)), "zero_out", "aggregate"),
        (correlated(plain, 20, spaced).sampled(fp.Poisson(0.1)), "zero_out", "aggregate"),
        (correlated(root, 20, anew).sampled(fp.RandomAllocation(5)), "zero_out", "aggregate"),
        (correlated(plain, 20, anew).sampled(fp.RandomAllocation(5)), "zero_out", "aggregate"),
        (whole.sampled(fp.Poisson(0.1)) * 20, "add_remove", "aggregate"),
        (skellam.sampled(fp.Poisson(0.1)) * 20, "add_remove", "aggregate"),
    ]


NUMBER = 28
"""Number of these runs."""


def answered(setting: Setting) -> fp.Bound:
    run, adjacency, observer = setting
    return fp.epsilon(run, delta=1e-5, adjacency=adjacency, observer=observer, deadline=5.0)


def documents() -> list[dict[str, Any]]:
    return [json.loads(json.dumps(answered(one).certificate())) for one in settings()]


def verdict(document: dict[str, Any]) -> str:
    """Return "proved", or the first end that is not, or the refusal."""
    try:
        found = check_certificate.check(document)
    except (check_certificate.Refused, check_certificate.Undecided) as problem:
        return f"refused: {problem}"
    bad = [f"{name} {told}" for name, told in found.items() if told != "proved"]
    return bad[0] if bad else "proved"


def numbers(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every number that a checker may read."""
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for name, value in items:
            if name not in ("digest", "way"):
                yield from numbers(value, (*path, name))
    elif type(tree) in (int, float):
        yield path


def changed(value: float, draw: random.Random) -> float:
    """Return another number."""
    if isinstance(value, int):
        return draw.choice([value + 1, value - 1, 2 * value, value // 2, 0, -value, 10**20])
    factors = (1 + 1e-9, 1 - 1e-9, 1.001, 0.999, 1.5, 0.5, 2.0, 0.0, -1.0, 1e300)
    return value * draw.choice(factors)


def signed(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "digest": check_certificate.digest(document)}


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def altered(document: dict[str, Any], path: tuple[Any, ...], value: float) -> dict[str, Any]:
    """Return the document with another number; the upper end also where it is repeated."""
    found = copy.deepcopy(document)
    paths = [path]
    if path in (("bound", "upper"), ("bound", "resolution", 1)):
        paths = [("bound", "upper"), ("bound", "resolution", 1)]
    for one in paths:
        at(found, one[:-1])[one[-1]] = value
    return signed(found)


def judge(document: dict[str, Any], before: dict[str, Any], path: tuple[Any, ...]) -> str:
    """Return whether a changed claim is "more than is true", "true", or not known.

    A stated pair is a claim about the mechanism. Ends are compared with the answer of the package
    to the changed question. The package's interval of the dominating pair is ``resolution``.
    """
    bound = document["bound"]
    if path[0] == "rounds":
        return "true" if "levels" in path else "more than is true"
    if path == ("version",) or "version" in path:
        return "more than is true"
    try:
        run = decode(document["mechanism"], KINDS)
        facts = {"adjacency": bound["adjacency"], "observer": bound["observer"]}
        found = fp.epsilon(run, delta=bound["given"], **facts, deadline=5.0)
    except (FedPrivacyError, ValueError, TypeError):
        return "of a run that the package does not make"
    low, high = map(float, found.to_dict()["resolution"])
    upper, lower = float(bound["upper"]), float(bound["lower"])
    stated = document["rounds"][0]["pair"] is not None
    resolved = bound["resolution"][0] if stated else 0.0
    # A checker that makes the pair itself may have a smaller one than the package.
    least = low if stated else float(found.lower)
    if upper < least or lower > found.upper or resolved > high:
        return "more than is true"
    if path[0] == "mechanism" and before["rounds"][0]["pair"] is not None and not same(run, before):
        return "more than is true"  # its stated pairs are those of another run
    return "true" if upper >= high and lower <= found.lower else "not known"


def same(run: Any, before: dict[str, Any]) -> bool:
    """Return whether a run has the stated pairs of another one."""
    bound = before["bound"]
    facts = (bound["adjacency"], bound["observer"])
    other = decode(before["mechanism"], KINDS)
    return bool(run.privacy_loss(*facts).curve == other.privacy_loss(*facts).curve)


QUICK = 1.5
"""Largest processor time, in seconds, of the proof of a certificate that is changed."""


LIMIT = 5.0
"""Largest processor time, in seconds, of the check of a changed certificate."""


def quick(document: dict[str, Any]) -> bool:
    """Return whether a certificate is proved in a short time."""
    begun = time.process_time()
    return verdict(document) == "proved" and time.process_time() - begun <= QUICK


def changes(count: int, seed: int) -> int:
    """Change one number at a time; print the counts, false claims that pass, and long checks."""
    draw, begun = random.Random(seed), time.perf_counter()
    base = [one for one in documents() if quick(one)]
    took = time.perf_counter() - begun
    print(f"{len(base)} certificates are proved in {QUICK:g} s each ({took:.0f} s)", flush=True)
    found, passed, longest = Counter[str](), 0, 0.0
    for number in range(count):
        document = base[number % len(base)]
        path = draw.choice(list(numbers(document)))
        value = changed(at(document, path), draw)
        if value == at(document, path) or not math.isfinite(value):
            value = at(document, path) + 1
        other, started = altered(document, path, value), time.process_time()
        told, claim = verdict(other), "fails"
        seconds = time.process_time() - started
        longest = max(longest, seconds)
        if told == "proved":
            claim = f"proved, and {judge(other, document, path)}"
        found[claim] += 1
        false = claim == "proved, and more than is true"
        passed += false
        if false or "not make" in claim or seconds > LIMIT:
            what = f"{path}: {at(document, path)!r} became {value!r}"
            print(f"{claim} in {seconds:.1f} s: {what}", flush=True)
        if number % 50 == 49:
            print(f"{number + 1} of {count}, {time.perf_counter() - begun:.0f} s", flush=True)
    for claim, n in sorted(found.items()):
        print(f"{n} changed certificates: {claim}")
    print(f"the slowest check of a changed certificate took {longest:.1f} s of processor time")
    return 1 if passed or longest > LIMIT else 0


def produced(fault: tuple[str, str, str, str] | None) -> list[Any]:
    """Return the certificates of a copy of the package with a fault; None for a refused answer."""
    root = Path(fp.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "fedprivacy"
        shutil.copytree(root, copied, ignore=shutil.ignore_patterns("__pycache__", "vectors"))
        shutil.copytree(root / "vectors", copied / "vectors")
        if fault:
            _, name, text, wrong = fault
            path = copied / name
            source = path.read_text(encoding="utf-8")
            if text not in source:
                raise SystemExit(f"the text of the fault {fault[0]!r} is no longer in {name}")
            path.write_text(source.replace(text, wrong, 1), encoding="utf-8")
        here = Path(__file__)
        environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{here.parent}"}
        command = [sys.executable, str(here), "produce"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return list(json.loads(done.stdout))


def produce() -> int:
    """Print the certificates of the package that is imported, as JSON."""
    made: list[Any] = []
    try:
        every = settings()
    except FedPrivacyError as problem:  # the package itself notices the fault
        every, made = [], [f"{type(problem).__name__}: {problem}"[:200]] * NUMBER
    for one in every:
        try:
            made.append(answered(one).certificate())
        except Exception as problem:  # a fault may break anything
            made.append(f"{type(problem).__name__}: {problem}"[:200])
    print(json.dumps(made))
    return 0


def faults(first: int) -> int:
    """Put one fault at a time into a copy of the package; print which of them are seen."""
    begun = time.perf_counter()
    right = [json.loads(json.dumps(one)) for one in produced(None)]
    before = [verdict(one) for one in right]
    print(f"{before.count('proved')} of {len(before)} certificates are proved without a fault")
    seen = 0
    for number, fault in list(enumerate(FAULTS, 1))[first - 1 :]:
        said, moved = "", 0
        for one, good, told in zip(produced(fault), right, before, strict=True):
            if told != "proved" or one == good or said:
                continue
            moved += 1
            now = one if isinstance(one, str) else verdict(one)
            said = "" if now == "proved" else now
        seen += bool(said)
        if said:
            how = f"seen: {said}"
        else:
            how = f"not seen: {moved} certificates differ" if moved else "not seen: none differs"
        took = time.perf_counter() - begun
        print(f"{number:2} ({took:4.0f} s) {fault[0]}: {how}"[:160], flush=True)
    print(f"{seen} of {len(FAULTS) - first + 1} faults are seen")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["changes", "faults", "produce"])
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="number of the first fault")
    options = parser.parse_args()
    if options.what == "changes":
        return changes(options.changes, options.seed)
    return faults(options.first) if options.what == "faults" else produce()


if __name__ == "__main__":
    sys.exit(main())
