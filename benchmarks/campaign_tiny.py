"""Tiny populations with all cohorts enumerated: the exact loss of some data sets under a scheme."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from campaign_checks import Checker, Report, TimeUp, within
from campaign_settings import Draw, Node, Setting
from campaign_truth import Part, hockey
from mpmath import mpf
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.errors import FedPrivacyError

Outcome = tuple[Any, tuple[int, ...], tuple[float, ...]]
"""Probability, participants (in each round), and the sum of each round."""

_CELLS = 240
_SLACK = 1e-12


def setting(seed: int, index: int) -> tuple[Setting, Draw]:
    """Return a tiny query; its scheme's population is the larger data set's."""
    draw = Draw(f"{seed}:tiny:{index}")
    n = draw.rng.randint(1, 5)
    kind = draw.pick((4, "Gaussian"), (1, "Laplace"))
    step = Node(kind, {"noise_multiplier": draw.spread(0.3, 5.0)})
    run = Node("sampled", {"scheme": _scheme(draw, n)}, (step,))
    adjacency = draw.rng.choice(["add_remove", "zero_out", "replace_one"])
    observer = draw.pick((3, "aggregate"), (1, "server"))
    name = f"seed {seed}, tiny {index}, population {n}"
    epsilon = draw.pick((1, 0.0), (5, draw.spread(0.01, 6.0)))
    return Setting(name, run, adjacency, observer, 1e-5, epsilon, 1e-3), draw


def _scheme(draw: Draw, n: int) -> tuple[str, dict[str, Any]]:
    q = draw.pick((4, draw.rng.uniform(0.05, 0.95)), (1, draw.spread(1e-3, 0.1)))
    name = draw.rng.choice(
        [
            "Poisson",
            "FixedSize",
            "WithReplacement",
            "TruncatedPoisson",
            "Everyone",
            "Shuffled",
            "RandomAllocation",
        ]
    )
    values: dict[str, dict[str, Any]] = {
        "Poisson": {"probability": q},
        "FixedSize": {"size": draw.rng.randint(1, n), "population": n},
        "WithReplacement": {"draws": draw.rng.randint(1, 4), "population": n},
        "TruncatedPoisson": {
            "probability": q,
            "population": n,
            "largest": draw.rng.randint(1, n),
        },
        "Everyone": {},
        "Shuffled": {"rounds_per_epoch": 2},
        "RandomAllocation": {"rounds_per_epoch": 2, "take": draw.rng.choice([1, 1, 2])},
    }
    return name, values[name]


def outcomes(scheme: tuple[str, dict[str, Any]], data: tuple[float, ...]) -> Iterator[Outcome]:
    """Yield every cohort of a data set, by the scheme's definition."""
    name, v = scheme
    n = len(data)
    if name in ("Shuffled", "RandomAllocation"):
        yield from _epochs(name, v["rounds_per_epoch"], data, v.get("take", 1))
        return
    for chance, who in _cohorts(name, v, n):
        yield chance, who, (math.fsum(data[i] for i in who),)


def _cohorts(name: str, v: dict[str, Any], n: int) -> Iterator[tuple[Any, tuple[int, ...]]]:
    everybody = tuple(range(n))
    if name == "Everyone":
        yield mpf(1), everybody
    elif name == "FixedSize":
        cohorts = list(itertools.combinations(everybody, min(v["size"], n)))
        yield from ((mpf(1) / len(cohorts), who) for who in cohorts)
    elif name == "WithReplacement":
        drawn = list(itertools.product(everybody, repeat=v["draws"] if n else 0))
        yield from ((mpf(1) / len(drawn), tuple(sorted(who))) for who in drawn)
    else:
        q, largest = mpf(v["probability"]), v.get("largest", n)
        for size in range(n + 1):
            for drawn in itertools.combinations(everybody, size):
                kept = list(itertools.combinations(drawn, min(size, largest)))
                chance = q**size * (1 - q) ** (n - size) / len(kept)
                yield from ((chance, who) for who in kept)


def _epochs(name: str, rounds: int, data: tuple[float, ...], take: int) -> Iterator[Outcome]:
    n = len(data)
    if name == "RandomAllocation":
        sets = list(itertools.combinations(range(rounds), take))
        for places in itertools.product(sets, repeat=n):
            sums = [
                math.fsum(x for x, p in zip(data, places, strict=True) if r in p)
                for r in range(rounds)
            ]
            yield mpf(1) / len(sets) ** n, places, tuple(sums)
        return
    orders = list(itertools.permutations(range(n)))
    for order in orders:
        parts = np.array_split(np.array(order, dtype=int), rounds)
        places = tuple(int(next(r for r, p in enumerate(parts) if i in p)) for i in range(n))
        yield mpf(1) / len(orders), places, tuple(math.fsum(data[i] for i in p) for p in parts)


def data_sets(draw: Draw, n: int, adjacency: str) -> Iterator[tuple[Any, Any]]:
    """Yield neighbours (with the unit last): named ones, then arbitrary and adversarial ones."""
    others: list[tuple[float, ...]] = [(value,) * (n - 1) for value in (-1.0, 0.0, 1.0)]
    others += [tuple(draw.rng.choice([-1.0, 0.0, 1.0]) for _ in range(n - 1)) for _ in range(2)]
    others += [tuple(draw.rng.uniform(-1.0, 1.0) for _ in range(n - 1))]
    for rest in dict.fromkeys(others):
        if adjacency == "replace_one":
            yield (*rest, 1.0), (*rest, -1.0)
            yield (*rest, draw.rng.uniform(-1.0, 1.0)), (*rest, draw.rng.choice([-1.0, 1.0]))
        elif adjacency == "zero_out":
            yield (*rest, 1.0), (*rest, 0.0)
        else:
            yield (*rest, 1.0), rest


def delta_of(run: Node, observer: str, first: Any, second: Any, epsilon: float) -> float:
    """Return a true lower end of delta of two data sets: exact for one round, cells for two."""
    scheme, z = run.values["scheme"], mpf(run.inside[0].values["noise_multiplier"])
    kind = "laplace" if run.inside[0].kind == "Laplace" else "normal"
    laws = [_law(scheme, data, observer) for data in (first, second)]
    total = mpf(0)
    for label in laws[0]:
        weight = sum(w for w, _ in laws[0][label])
        if label not in laws[1]:
            total += weight
            continue
        other = sum(w for w, _ in laws[1][label])
        p, q = (_scaled(law[label], z, w) for law, w in ((laws[0], weight), (laws[1], other)))
        if len(p[0][1]) == 1:
            flat = [tuple((w, at[0]) for w, at in side) for side in (p, q)]
            # both data sets must give a label the same weight, or the hockey stick is not only the
            # label's
            if weight != other:
                epsilon_here = epsilon + math.log(other / weight)
                total += weight * hockey(Part(1, kind, *flat), epsilon_here)
            else:
                total += weight * hockey(Part(1, kind, *flat), epsilon)
        else:
            total += _in_cells(kind, p, q, weight, other, epsilon)
    return float(total)


def _law(scheme: Any, data: Any, observer: str) -> dict[Any, list[tuple[Any, tuple[float, ...]]]]:
    found: dict[Any, dict[tuple[float, ...], Any]] = {}
    for chance, who, sums in outcomes(scheme, data):
        label = who if observer == "server" else ()
        here = found.setdefault(label, {})
        here[sums] = here.get(sums, 0) + chance
    return {label: [(w, s) for s, w in law.items() if w > 0] for label, law in found.items()}


def _scaled(law: Any, z: Any, weight: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    return [(w / weight, tuple(mpf(s) / z for s in sums)) for w, sums in law]


def _in_cells(kind: str, p: Any, q: Any, weight: Any, other: Any, epsilon: float) -> float:
    """Return the hockey stick of the outcome's cell in a grid: post-processing, so no larger."""
    means = np.array([[float(m) for m in at] for _, at in (*p, *q)])
    edges = np.linspace(means.min() - 8.0, means.max() + 8.0, _CELLS + 1)
    edges[0], edges[-1] = -np.inf, np.inf
    masses = []
    for side, share in ((p, weight), (q, other)):
        total = np.zeros((_CELLS, _CELLS))
        for w, at in side:
            columns = [np.diff(_below(kind, edges - float(m))) for m in at]
            total += float(w * share) * np.outer(*columns)
        masses.append(total)
    gain = masses[0] - math.exp(epsilon) * masses[1]
    return float(np.maximum(gain, 0.0).sum()) - 1e-13


def _below(kind: str, x: np.ndarray) -> np.ndarray:
    if kind == "normal":
        return ndtr(x)
    return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0)), 1.0 - 0.5 * np.exp(-np.maximum(x, 0)))


class Tiny(Checker):
    """Compares a scheme's certified delta with its data sets."""

    def compare(self, draw: Draw) -> None:
        self.report.counts["tiny"] += 1
        asked = self.setting
        try:
            loss = self._loss(asked.run)
        except FedPrivacyError as problem:
            self.report.refusals[
                f"{type(problem).__name__}: " + " ".join(str(problem).split()[:7])
            ] += 1
            return
        bound = self._delta(loss, asked.epsilon)
        if bound is None:
            return
        n = _population(asked)
        sizes = [n, n + 1] if asked.adjacency == "add_remove" else [n]
        most = 0.0
        for size in sizes:
            for first, second in data_sets(draw, size, asked.adjacency):
                for pair in ((first, second), (second, first)):
                    value = delta_of(asked.run, asked.observer, *pair, asked.epsilon)
                    words = f"delta at epsilon {asked.epsilon!r} of {pair[0]} and {pair[1]}"
                    low = value * (1.0 - _SLACK)
                    snippet = self.snippet()
                    self._at_most(
                        "upper end above tiny data sets", low, bound.upper, words, snippet
                    )
                    most = max(most, value if size == n else 0.0)
        if asked.run.values["scheme"][0] not in ("Shuffled", "RandomAllocation"):
            words = f"lower end of delta at {asked.epsilon!r} and the most of the tiny data sets"
            high = most * (1.0 + _SLACK)
            if _all_are_named(asked):
                self._at_most(
                    "lower end attained by tiny data sets", bound.lower, high, words, snippet
                )

    def snippet(self) -> str:
        asked = self.setting
        facts = f"adjacency={asked.adjacency!r}, observer={asked.observer!r}"
        return (
            f"import fedprivacy as fp; "
            f"print(fp.delta({asked.run}, epsilon={asked.epsilon!r}, {facts}))"
        )


def _all_are_named(asked: Setting) -> bool:
    """Return whether the data sets include those of lower ends: all others C, 0 or -C."""
    return asked.run.inside[0].kind == "Gaussian"


def _population(asked: Setting) -> int:
    return int(asked.name.rsplit(" ", 1)[1])


def check(seed: int, index: int) -> Report:
    """Check one tiny setting."""
    asked, draw = setting(seed, index)
    report = Report()
    report.counts["settings"] += 1
    try:
        within(8.0, lambda: Tiny(asked, report).compare(draw))
    except TimeUp:
        report.counts["given up: tiny"] += 1
    return report


# Arithmetic in single precision ------------------------------------------------------------------


def clipping(seed: int, index: int) -> Report:
    """Check that clipped vectors of every size are within the norm, in higher precision."""
    draw, report = Draw(f"{seed}:clip:{index}"), Report()
    report.counts["settings"] += 1
    generator = np.random.default_rng(draw.rng.getrandbits(32))
    for kind in (np.float32, np.float64):
        most = 38.0 if kind is np.float32 else 300.0
        length, norm = draw.whole(1, 200_000), draw.spread(1e-4, 10.0)
        least = most - 6.0 if draw.chance(0.6) else -3.0
        scale = 10.0 ** draw.rng.uniform(least, most)
        with np.errstate(over="ignore"):
            vector = (generator.standard_normal(length) * scale).astype(kind)
        if not np.isfinite(vector).all():
            continue
        report.counts["compared: clipped"] += 1
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            step = fp.Gaussian(noise_multiplier=1.0, clip_norm=norm)
            made = np.asarray(step.contribution(vector), dtype=np.longdouble)
        size = float(np.sqrt(np.sum(made * made)))
        if not size <= norm:
            words = f"norm {size!r} > {norm!r}: {length} entries about {scale:.3g}, {kind.__name__}"
            code = (
                "import numpy as np; import fedprivacy as fp; "
                f"step = fp.Gaussian(noise_multiplier=1.0, clip_norm={norm!r}); "
                f"update = np.full({length}, {scale!r}, np.{kind.__name__}); "
                "print(np.linalg.norm(step.contribution(update)))"
            )
            from campaign_checks import Found

            name = f"seed {seed}, clip {index}"
            report.found.append(Found(name, "clipped to the norm", words, code))
    return report
