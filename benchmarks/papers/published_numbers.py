"""The privacy numbers of Fed-SMP's paper for every reading of its text, and two-sided FedAvg's.

    python benchmarks/papers/published_numbers.py            writes results and docs page
    python benchmarks/papers/published_numbers.py --check    recomputes the smallest cell

The computation is deterministic: the numbers depend only on the settings.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import partial
from pathlib import Path

from drawn import Cells, near, redrawn

import fedprivacy as fp
from fedprivacy.bound import shown as rounded
from fedprivacy.outputs import whole_file
from fedprivacy.papers.fed_smp.claim import theorem_1_epsilon
from fedprivacy.published import fed_smp_lemma_3, fed_smp_printed_epsilon

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "published_numbers.json"
TABLES = HERE / "results" / "published_numbers.md"
PAGE = HERE.parent.parent / "docs" / "papers" / "published_numbers.md"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One published epsilon and the setting behind it."""

    printed: float
    population: int
    cohort: int
    noise_multiplier: float
    rounds: int

    @property
    def rate(self) -> float:
        return self.cohort / self.population

    @property
    def delta(self) -> float:
        return self.population**-1.1

    @property
    def given(self) -> dict[str, float]:
        """Arguments of the published formulas."""
        own = {name: value for name, value in asdict(self).items() if name != "printed"}
        return own | {"delta": self.delta}

    def round(self, scheme: fp.Poisson | fp.FixedSize) -> fp.Mechanism:
        step = fp.Gaussian(noise_multiplier=self.noise_multiplier, unit="client")
        return step.sampled(scheme)

    @property
    def fixed(self) -> fp.FixedSize:
        return fp.FixedSize(self.cohort, population=self.population)


def fashion(printed: float, sigma: float) -> Setting:
    return Setting(printed=printed, population=6000, cohort=100, noise_multiplier=sigma, rounds=180)


SETTINGS = [
    fashion(2.02, 1.0),
    fashion(1.01, 1.4),
    fashion(0.58, 2.0),
    fashion(0.44, 2.5),
    Setting(printed=6.99, population=10**9, cohort=10, noise_multiplier=0.3, rounds=1000),
]
"""The paper prints the multipliers 1.4 and 0.3; the others are those that give its epsilons."""

SMALLEST = SETTINGS[1]


@dataclass(frozen=True, kw_only=True)
class Number:
    """Epsilon of one reading: certified ends, or one number without a certificate."""

    upper: float
    lower: float = 0.0


def poisson_rdp(s: Setting, conversion: str) -> Number:
    """Return Opacus's number: add/remove with Poisson cohorts, its orders."""
    return Number(upper=fed_smp_printed_epsilon(**s.given, conversion=conversion).epsilon)


def lemma_3(s: Setting, shift: float, conversion: str) -> Number:
    """Return the number of the paper's Lemma 3, the sum, if a client moves by shift * C."""
    claim = fed_smp_lemma_3(**s.given, sensitivity=shift, conversion=conversion)
    return Number(upper=claim.epsilon)


def certified(
    run: fp.Mechanism, delta: float, adjacency: str, observer: str, tolerance: float = 1e-3
) -> Number:
    bound = fp.epsilon(
        run, delta=delta, adjacency=adjacency, observer=observer, tolerance=tolerance
    )
    return Number(upper=bound.upper, lower=bound.lower)


def account(s: Setting, scheme: fp.Poisson | fp.FixedSize, adjacency: str, observer: str) -> Number:
    return certified(s.round(scheme) * s.rounds, s.delta, adjacency, observer)


def theorem_1(s: Setting) -> Number:
    return Number(upper=theorem_1_epsilon(**s.given))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One reading of the paper."""

    name: str
    sound_for: str
    number: Callable[[Setting], Number]


FIXED, POISSON = "the printed algorithm", "Poisson cohorts, noise topped up"
READINGS = [
    Reading(
        name="RDP of Poisson cohorts, Opacus's orders, Mironov's conversion",
        sound_for=POISSON,
        number=lambda s: poisson_rdp(s, "mironov"),
    ),
    Reading(
        name="the same, improved conversion",
        sound_for=POISSON,
        number=lambda s: poisson_rdp(s, "improved"),
    ),
    Reading(
        name="Theorem 1",
        sound_for="nothing in general",
        number=theorem_1,
    ),
    Reading(
        name="Lemma 3, a client moves the sum by C, Mironov",
        sound_for="nothing printed",
        number=lambda s: lemma_3(s, 1, "mironov"),
    ),
    Reading(
        name="the same, improved conversion",
        sound_for="nothing printed",
        number=lambda s: lemma_3(s, 1, "improved"),
    ),
    Reading(
        name="Lemma 3, a client moves the sum by 2C, Mironov",
        sound_for=FIXED,
        number=lambda s: lemma_3(s, 2, "mironov"),
    ),
    Reading(
        name="the same, improved conversion",
        sound_for=FIXED,
        number=lambda s: lemma_3(s, 2, "improved"),
    ),
    Reading(
        name="PLD, Poisson cohorts, add_remove",
        sound_for=POISSON,
        number=lambda s: account(s, fp.Poisson(s.rate), "add_remove", "aggregate"),
    ),
    Reading(
        name="PLD, Poisson cohorts, replace_one",
        sound_for=POISSON,
        number=lambda s: account(s, fp.Poisson(s.rate), "replace_one", "aggregate"),
    ),
    Reading(
        name="PLD, cohorts of fixed size, add_remove",
        sound_for=FIXED,
        number=lambda s: account(s, s.fixed, "add_remove", "aggregate"),
    ),
    Reading(
        name="PLD, cohorts of fixed size, zero_out",
        sound_for=FIXED,
        number=lambda s: account(s, s.fixed, "zero_out", "aggregate"),
    ),
    Reading(
        name="PLD, cohorts of fixed size, replace_one",
        sound_for=FIXED,
        number=lambda s: account(s, s.fixed, "replace_one", "aggregate"),
    ),
    Reading(
        name="the server, who draws the cohorts, zero_out",
        sound_for=FIXED,
        number=lambda s: account(s, s.fixed, "zero_out", "server"),
    ),
    Reading(
        name="the server, who draws the cohorts, replace_one",
        sound_for=FIXED,
        number=lambda s: account(s, s.fixed, "replace_one", "server"),
    ),
]

TWO_SIDED = [(100, 10, 10.0, 100), (1000, 20, 5.0, 200)]
"""(workers, cohort, noise multiplier, rounds), at delta 1e-5, client level, replace_one."""


def two_sided(m: int, n: int, z: float, rounds: int) -> dict[str, dict[str, Number]]:
    """Return the epsilons of two-sided FedAvg's private form: strategy -> observer -> Number."""
    step = fp.Gaussian(noise_multiplier=z, unit="client")
    schemes = {
        "strategy 1 (with replacement)": fp.WithReplacement(n, population=m),
        "strategy 2 (without replacement)": fp.FixedSize(n, population=m),
    }
    return {
        name: {
            observer: certified(step.sampled(scheme) * rounds, 1e-5, "replace_one", observer, 1e-5)
            for observer in ("aggregate", "server")
        }
        for name, scheme in schemes.items()
    }


def column(s: Setting) -> list[Number]:
    return [reading.number(s) for reading in READINGS]


def computed() -> dict[str, object]:
    columns = [column(s) for s in SETTINGS]
    return {
        "fed_smp": [
            {
                **asdict(s),
                "delta": s.delta,
                "readings": [
                    {"reading": r.name, "sound_for": r.sound_for, **asdict(number)}
                    for r, number in zip(READINGS, numbers, strict=True)
                ],
            }
            for s, numbers in zip(SETTINGS, columns, strict=True)
        ],
        "two_sided": [
            {
                "workers": m,
                "cohort": n,
                "noise_multiplier": z,
                "rounds": t,
                "delta": 1e-5,
                "epsilon": {
                    name: {o: asdict(number) for o, number in views.items()}
                    for name, views in two_sided(m, n, z, t).items()
                },
            }
            for m, n, z, t in TWO_SIDED
        ],
        "fedprivacy": fp.__version__,
    }


def matches(printed: float, upper: float) -> bool:
    """Return whether a number equals the printed one, within one unit of its last digit."""
    return abs(upper - printed) <= 0.01


def shown(number: dict[str, float], printed: float) -> str:
    upper, lower = number["upper"], number["lower"]
    text = rounded(upper, 6, ROUND_CEILING)
    if upper - lower > 1e-3 * upper and lower > 0:
        text = f"{rounded(lower, 6, ROUND_FLOOR)} to {text}"
    return f"**{text}**" if matches(printed, upper) else text


TRUE = "PLD, cohorts of fixed size, add_remove"


def said(settings: list[dict]) -> dict[str, str]:
    """Return the numbers of the text."""
    attained = [
        (one["lower"] / s["printed"], s["printed"])
        for s in settings
        for one in s["readings"]
        if one["reading"] == TRUE
    ]
    ends = {"least": min(attained), "most": max(attained)}
    told = {name: f"{factor:.1f} ({printed:g})" for name, (factor, printed) in ends.items()}
    mironov, improved, *_ = settings[-1]["readings"]
    return {
        **told,
        "mironov": f"{mironov['upper']:.2f}",
        "improved": f"{improved['upper']:.2f}",
    }


def page(data: dict) -> tuple[str, str]:
    """Return the page of the documentation, and the tables that it includes."""
    settings = data["fed_smp"]
    head = ["reading", "true of", *(f"{s['printed']:g}" for s in settings)]
    rows = []
    for index, reading in enumerate(READINGS):
        cells = [shown(s["readings"][index], s["printed"]) for s in settings]
        rows.append([reading.name, reading.sound_for, *cells])
    facts = [
        ["noise multiplier", *(f"{s['noise_multiplier']:g}" for s in settings)],
        ["clients", *(f"{s['population']:,}" for s in settings)],
        ["in a round", *(str(s["cohort"]) for s in settings)],
        ["rounds", *(str(s["rounds"]) for s in settings)],
        [r"$\delta = \text{clients}^{-1.1}$", *(f"{s['delta']:.4g}" for s in settings)],
    ]
    private = []
    for row in data["two_sided"]:
        setting = f"{row['workers']}, {row['cohort']}, {row['noise_multiplier']:g}, {row['rounds']}"
        for name, views in row["epsilon"].items():
            private.append([setting, name, *(shown(views[o], -1) for o in views)])
    kept = {
        "settings": table(["printed epsilon", *(f"{s['printed']:g}" for s in settings)], facts),
        "readings": table(head, rows),
        "two-sided": table(["$m$, $n$, $z$, $T$", "cohorts", "aggregate", "server"], private),
    }
    marked = [f"<!-- {name} -->\n\n{text}\n\n<!-- end -->\n" for name, text in kept.items()]
    head_line = "# Tables of docs/papers/published_numbers.md\n\n"
    return TEXT.format(**said(settings)), head_line + "\n".join(marked)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TEXT = r"""# Published privacy numbers, under every reading

`benchmarks/papers/published_numbers.py` writes this page. All digits are in
`benchmarks/papers/results/published_numbers.json`. Epsilons are rounded up; `a to b` is a certified
interval, and two neighbouring data sets attain its lower end.

## Fed-SMP (Hu, Guo and Gong)

```{{include}} ../../benchmarks/papers/results/published_numbers.md
:start-after: "<!-- settings -->"
:end-before: "<!-- end -->"
```

The paper prints the multipliers 1.4 and 0.3; 1.0, 2.0 and 2.5 are those that give its other
epsilons. In **bold**: within 0.01 of the printed number.

```{{include}} ../../benchmarks/papers/results/published_numbers.md
:start-after: "<!-- readings -->"
:end-before: "<!-- end -->"
```

- **The source of the printed numbers.** The first row: an accountant for Poisson sampling and
  add_remove, with Mironov's conversion. The algorithm draws cohorts of a fixed size instead.
- **The true numbers of the printed algorithm.** The rows on cohorts of a fixed size. For the
  paper's own add_remove the printed epsilons are too small by a factor of {least} to
  {most}. The server of the paper's attack model knows the cohorts. Under add_remove the list of
  participants shows membership ([Fed-SMP's Theorem 1](../theory/averaging.md#fed-smp-theorem-1)).
- **A correction.** The numbers hold for Poisson cohorts with noise that is topped up to its full
  size.
- **6.99 is not reproduced.** No reading gives it; the first row gives {mironov}, with the
  improved conversion {improved}.

## Two-sided FedAvg (Yang, Fang and Liu)

The paper has no privacy. In its private form every update is clipped, and noise of std $z$ times
the clip norm is added to the sum of a round. Client level, replace_one, $\delta = 10^{{-5}}$; $m$
workers, $n$ drawn in each of $T$ rounds:

```{{include}} ../../benchmarks/papers/results/published_numbers.md
:start-after: "<!-- two-sided -->"
:end-before: "<!-- end -->"
```
"""


def tables(kept: dict) -> dict[str, Cells]:
    """Return the cells that may be drawn for a check: one reading of one setting, or one row."""
    fed_smp = {
        f"{s.printed:g}, {reading.name}": partial(agrees, kept, s, reading)
        for s in SETTINGS
        for reading in READINGS
    }
    both = {str(row): partial(agrees_two_sided, kept, row) for row in TWO_SIDED}
    return {"Fed-SMP": fed_smp, "two-sided FedAvg": both}


def agrees(kept: dict, setting: Setting, reading: Reading) -> bool:
    """Return whether a reading reproduces the recorded number."""
    [cell] = [s for s in kept["fed_smp"] if s["printed"] == setting.printed]
    old = cell["readings"][READINGS.index(reading)]
    return same(reading.number(setting), old)


def same(number: Number, kept: dict) -> bool:
    """Return whether both ends are the recorded ones; a lower end of 0 does not count."""
    return near([number.lower, number.upper], [kept["lower"], kept["upper"]], 1e-3)


def agrees_two_sided(kept: dict, row: tuple[int, int, float, int]) -> bool:
    """Return whether a row of two-sided FedAvg reproduces the recorded numbers."""
    old = kept["two_sided"][TWO_SIDED.index(row)]["epsilon"]
    fresh = {
        name: {o: asdict(number) for o, number in views.items()}
        for name, views in two_sided(*row).items()
    }
    return near(fresh, old, 1e-3, 1e-6)


def check() -> int:
    """Recompute the smallest cell and a drawn one and compare; return the exit code."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    [cell] = [s for s in kept["fed_smp"] if s["printed"] == SMALLEST.printed]
    found = list(zip(cell["readings"], column(SMALLEST), strict=True))
    wrong = [(old, now) for old, now in found if not same(now, old)]
    for old, now in wrong:
        was, now_is = f"[{old['lower']}, {old['upper']}]", f"[{now.lower}, {now.upper}]"
        print(f"{old['reading']}: recorded as {was}, now {now_is}", file=sys.stderr)
    right = len(found) - len(wrong)
    print(f"{right} of {len(found)} readings of epsilon = {SMALLEST.printed:g} are as recorded")
    return int(not redrawn(tables(kept)) or bool(wrong))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="recompute the smallest cell")
    if parser.parse_args().check:
        return check()
    data = computed()
    text, kept = page(data)
    files = {RESULTS: json.dumps(data, indent=1) + "\n", PAGE: text, TABLES: kept}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_file(path, text)
        print(path.relative_to(HERE.parent.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
