"""Tables of the site that are printed from the code, when it is built."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import fedprivacy as fp
from fedprivacy import sampling
from fedprivacy.errors import FedPrivacyError
from fedprivacy.evidence import defects
from fedprivacy.relations import Adjacency, Observer

ROOT = Path(__file__).parent.parent.parent


def write(folder: Path) -> None:
    """Write every table that the pages include."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        "reference_table": reference_table(),
        "defects_table": defects.table(),
        "matrix": matrix(),
        "ratios": ratios(),
        "correlated_matrix": correlated_matrix(),
        "whole_matrix": whole_matrix(),
        "messages": messages_table(),
        "arrows": arrows(),
        "rooms": rooms(),
        "disclosure_table": disclosure_table(),
        "settings_tables": settings_tables(),
    }
    for name, text in parts.items():
        target = folder / f"{name}.md"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")


def row(scheme: str, observer: Observer, adjacency: Adjacency) -> str:
    """Return one line of the reference table."""
    cell = sampling.TABLE.get((scheme, observer, adjacency))
    if cell is None:
        return f"| {scheme} | {observer} | {adjacency} | **UNSUPPORTED** | | |"
    attained = f"{cell.attained}: {cell.datasets}" if cell.attained else "not known"
    pair = cell.pair.replace("|", "\\|")
    return f"| {scheme} | {observer} | {adjacency} | {pair} | {cell.theorem} | {attained} |"


def reference_table() -> str:
    """Return every scheme, observer and adjacency of the code's table, in its order."""
    schemes = dict.fromkeys(scheme for scheme, _, _ in sampling.TABLE)
    seen = (Observer.AGGREGATE, Observer.SERVER)
    lines = [
        "| scheme | observer | adjacency | pair of one round | theorem | attained by |",
        "|---|---|---|---|---|---|",
        *(row(*key) for key in product(schemes, seen, Adjacency)),
    ]
    return "\n".join(lines) + "\n"


SCHEMES = {
    "Poisson(0.1)": fp.Poisson(0.1),
    "TruncatedPoisson(0.1, n=100, B=25)": fp.TruncatedPoisson(0.1, population=100, largest=25),
    "FixedSize(10 of 100)": fp.FixedSize(10, population=100),
    "WithReplacement(10 of 100)": fp.WithReplacement(10, population=100),
    "Shuffled(10 rounds)": fp.Shuffled(rounds_per_epoch=10),
    "RandomAllocation(10 rounds)": fp.RandomAllocation(rounds_per_epoch=10),
    "Everyone()": fp.Everyone(),
}
"""One of each kind; the same settings as far as they can be."""

ROUNDS = 20
DELTA = 1e-5


RULES = {
    "MinimumSeparation(5)": fp.MinimumSeparation(5),
    "FixedEpochs(10)": fp.FixedEpochs(10),
    "SingleParticipation()": fp.SingleParticipation(),
    "SingleParticipation(apart=True)": fp.SingleParticipation(apart=True),
}
"""What may be known of participation without any draw."""

Make = Callable[[Any], fp.Mechanism]


def matrix() -> str:
    """Return what is answered and what is refused, scheme by adjacency by observer."""
    lines = [
        "| who takes part | adjacency | observer | noise drawn anew | noise correlated |",
        "|---|---|---|---|---|",
    ]
    for (name, scheme), *ask in product(SCHEMES.items(), Adjacency, Observer):
        told = f"{answer(independent, scheme, *ask)} | {answer(correlated, scheme, *ask)}"
        lines.append(f"| `{name}` | {ask[0]} | {ask[1]} | {told} |")
    for (name, rule), *ask in product(RULES.items(), Adjacency, Observer):
        lines.append(f"| `{name}` | {ask[0]} | {ask[1]} | - | {answer(tied, rule, *ask)} |")
    return "\n".join(lines) + "\n"


def independent(scheme: Any) -> fp.Mechanism:
    """Return 20 rounds whose noise is drawn anew."""
    epoch = isinstance(scheme, fp.Shuffled | fp.RandomAllocation)
    return fp.Gaussian(noise_multiplier=2.0).sampled(scheme) * (ROUNDS // 10 if epoch else ROUNDS)


def tied(rule: Any) -> fp.Mechanism:
    """Return 20 rounds whose noise is correlated."""
    factor = fp.factors.SquareRootToeplitz()
    return fp.CorrelatedNoise(
        factor=factor, noise_multiplier=2.0, rounds=ROUNDS, participation=rule
    )


def correlated(scheme: Any) -> fp.Mechanism:
    """Return 20 such rounds; what a scheme says of how often a unit takes part is a rule."""
    if isinstance(scheme, fp.Everyone):
        return tied(fp.MinimumSeparation(1))
    if isinstance(scheme, fp.Shuffled):
        return tied(fp.MinimumSeparation(1, at_most=ROUNDS // 10))
    return tied(fp.MinimumSeparation(1)).sampled(scheme)


def answer(make: Make, who: Any, adjacency: Adjacency, observer: Observer) -> str:
    """Return the interval of 20 rounds and the ratio of its ends, or why there is none."""
    ask: dict[str, Any] = {"adjacency": adjacency, "observer": observer, "tolerance": 0.02}
    try:
        found = fp.epsilon(make(who), delta=DELTA, **ask)
    except FedPrivacyError as refusal:
        return "refused: " + str(refusal).partition("; ")[0].replace("|", "\\|")
    lower, upper = found.ends(4)
    ratio = f"{found.upper / found.lower:.3f}" if found.lower else "no lower end"
    return f"[{lower}, {upper}], ratio {ratio}"


SETTINGS = ((2.0, 0.1, 20), (1.0, 0.01, 100), (5.0, 0.1, 1000))
"""Noise multiplier, sampling rate and rounds."""

NEAR = 1.02
"""Ends within this ratio need no word."""

_LABEL = (
    "above, everybody is told how often a unit that may be drawn is drawn, or it goes and another "
    "comes, in two steps; data that show as much as either are not known"
)
_ORDER = "the upper end is that of a known order; no theorem amplifies an order for `aggregate`"
REASONS = {
    (
        "TruncatedPoisson",
        "add_remove",
    ): "truncation is labelled above, and hidden in what data show",
    ("FixedSize", "zero_out"): 'the fold; `accountant="game"` closes it',
    ("FixedSize", "replace_one"): 'the fold; `accountant="game"` closes it',
    ("WithReplacement", "zero_out"): _LABEL,
    ("WithReplacement", "replace_one"): _LABEL,
    ("Shuffled", "zero_out"): _ORDER,
    ("Shuffled", "replace_one"): _ORDER,
    ("RandomAllocation", "replace_one"): (
        "two steps, out and in; data are known for one of them only"
    ),
}
"""Why the ends of a cell are apart."""


def at_rate(q: float) -> dict[str, Any]:
    """Return one scheme of each kind that draws a unit with about one chance."""
    size, rounds = round(1000 * q), round(1 / q)
    return {
        "Poisson": fp.Poisson(q),
        "TruncatedPoisson": fp.TruncatedPoisson(q, population=1000, largest=size * 5 // 2),
        "FixedSize": fp.FixedSize(size, population=1000),
        "WithReplacement": fp.WithReplacement(size, population=1000),
        "Shuffled": fp.Shuffled(rounds_per_epoch=rounds),
        "RandomAllocation": fp.RandomAllocation(rounds_per_epoch=rounds),
        "Everyone": fp.Everyone(),
    }


def apart(scheme: str, setting: tuple[float, float, int], **ask: Any) -> float | None:
    """Return upper over lower end, or None where the cell is refused."""
    noise, q, rounds = setting
    who = at_rate(q)[scheme]
    count = max(1, round(rounds * q)) if hasattr(who, "rounds_per_epoch") else rounds
    try:
        found = fp.epsilon(fp.Gaussian(noise_multiplier=noise).sampled(who) * count, **ask)
    except FedPrivacyError:
        return None
    return found.upper / found.lower


def ratios() -> str:
    """Return how far apart both ends are, cell by cell, and why where that is more than 2 %."""
    lines = [
        "| scheme | adjacency | observer | ratio, three settings | why |",
        "|---|---|---|---|---|",
    ]
    seen = (Observer.AGGREGATE, Observer.SERVER)
    for scheme, adjacency, observer in product(at_rate(0.1), Adjacency, seen):
        ask = {"delta": DELTA, "adjacency": adjacency, "observer": observer}
        found = [one for one in (apart(scheme, each, **ask) for each in SETTINGS) if one]
        if not found:
            continue
        told = ", ".join(f"{one:.3f}" for one in found)
        # A cell that is apart and has no reason ends the build: somebody is to find one.
        why = REASONS[scheme, str(adjacency)] if max(found) > NEAR else ""
        lines.append(f"| {scheme} | {adjacency} | {observer} | {told} | {why} |")
    return "\n".join(lines) + "\n"


FACTORS = {
    "Identity()": fp.factors.Identity(),
    "Banded(5)": fp.factors.Banded(5),
    "BandedInverse(5)": fp.factors.BandedInverse(5),
    "BufferedToeplitz(4)": fp.factors.BufferedToeplitz(4),
    "SquareRootToeplitz()": fp.factors.SquareRootToeplitz(),
    "Tree()": fp.factors.Tree(),
    "Restarted(SquareRootToeplitz(), 10)": fp.factors.Restarted(
        fp.factors.SquareRootToeplitz(), 10
    ),
    "Matrix(...)": fp.factors.Matrix(fp.factors.SquareRootToeplitz().matrix(ROUNDS)),
}
"""One of each kind; the matrix is any, here the square root's."""

_KEPT = fp.FixedEpochs(5)
DRAWS: dict[str, tuple[Any, Any]] = {
    "no draw, `SingleParticipation()`": (fp.SingleParticipation(), None),
    "no draw, `FixedEpochs(5)`": (_KEPT, None),
    "no draw, `MinimumSeparation(5)`": (fp.MinimumSeparation(5), None),
    "every round `Poisson(0.1)`": (fp.FixedEpochs(1), SCHEMES["Poisson(0.1)"]),
    "groups of 5 in turns, `Poisson(0.1)`": (_KEPT, SCHEMES["Poisson(0.1)"]),
    "groups of 5 in turns, `TruncatedPoisson`": (_KEPT, list(SCHEMES.values())[1]),
    "groups of 5 in turns, `FixedSize(10 of 100)`": (_KEPT, SCHEMES["FixedSize(10 of 100)"]),
    "balls in bins, `RandomAllocation(5)`": (_KEPT, fp.RandomAllocation(5)),
    "one round of all, `RandomAllocation(20)`": (
        fp.SingleParticipation(),
        fp.RandomAllocation(ROUNDS),
    ),
    "2 rounds of all, `RandomAllocation(20)`": (
        fp.MinimumSeparation(1, at_most=2),
        fp.RandomAllocation(ROUNDS),
    ),
    "at least 5 rounds apart, `Poisson(0.1)`": (
        fp.MinimumSeparation(5),
        SCHEMES["Poisson(0.1)"],
    ),
    "new bins in every epoch, `RandomAllocation(10)`": (_KEPT, fp.RandomAllocation(10)),
}
"""How a unit's rounds come about: the rule of participation, and the secret draw if any."""


def correlated_matrix() -> str:
    """Return how rounds are drawn by factor: upper ends, or why there is none."""
    lines = [f"| rounds | {' | '.join(f'`{name}`' for name in FACTORS)} |"]
    lines.append("|---" * (len(FACTORS) + 1) + "|")
    for name, (rule, scheme) in DRAWS.items():
        told = " | ".join(drawn(factor, rule, scheme) for factor in FACTORS.values())
        lines.append(f"| {name} | {told} |")
    return "\n".join(lines) + "\n"


def drawn(factor: Any, rule: Any, scheme: Any) -> str:
    """Return the certified upper end of one cell, or the name of its refusal."""
    try:
        run: fp.Mechanism = fp.CorrelatedNoise(
            factor=factor, noise_multiplier=4.0, rounds=ROUNDS, participation=rule
        )
        if scheme is not None:
            run = run.sampled(scheme)
        found = fp.epsilon(run, delta=DELTA, adjacency="zero_out", tolerance=0.02)
    except FedPrivacyError as refusal:
        return f"{type(refusal).__name__}"
    return found.ends(4)[1]


def whole_matrix() -> str:
    """Return what is answered of noise in whole numbers, and what is refused."""
    lines = [
        "| who takes part | adjacency | observer | discrete Gaussian | Skellam |",
        "|---|---|---|---|---|",
    ]
    kinds = (fp.DistributedDiscreteGaussian, fp.Skellam)
    for (name, scheme), *ask in product(SCHEMES.items(), Adjacency, [Observer.AGGREGATE]):
        told = (answer(functools.partial(whole, kind), scheme, *ask) for kind in kinds)
        lines.append(f"| `{name}` | {ask[0]} | {ask[1]} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def whole(kind: Any, scheme: Any) -> fp.Mechanism:
    """Return 20 rounds of 10 clients in 16 bits, topped up where cohorts vary."""
    epoch = isinstance(scheme, fp.Shuffled | fp.RandomAllocation)
    steady = isinstance(scheme, fp.FixedSize | fp.WithReplacement | fp.Everyone)
    one = kind(
        noise_multiplier=2.0,
        clip_norm=1.0,
        dimension=100,
        cohort=10,
        bits=16,
        topped_up=not steady,
    )
    run: fp.Mechanism = one.sampled(scheme) * (ROUNDS // 10 if epoch else ROUNDS)
    return run


Message = tuple[str, str]
"""What is said, and the way out that is said with it; values are "..."."""

_RAISED = re.compile(r"[A-Z]\w*(Error|Combination|Budget|Exhausted|Diverged|Ledger)")


SKIPPED = {"refuse": 0, "require": 1}
"""What refuses a value, and how many arguments stand before its name."""


def raised(path: Path) -> list[Message]:
    """Return the messages of every refusal in a file, as far as they are literal."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        given = [*node.args, *(word.value for word in node.keywords)][SKIPPED.get(name, 0) :]
        if name in SKIPPED and len(given) >= 3:
            way_out = _text(given[3]) if len(given) > 3 else ""
            found.append((f"{_text(given[0])} must {_text(given[2])}", way_out))
        elif _RAISED.fullmatch(name) and node.args:
            found.append(_parted(_text(node.args[0])))
    tidy = [(" ".join(text.split()), " ".join(way.split())) for text, way in found]
    return [(text, way) for text, way in tidy if re.search(r"[a-z]{3}", text)]


def _parted(text: str) -> Message:
    told, _, way_out = text.partition("; ")
    return told, way_out


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return "..."


def messages() -> dict[str, list[Message]]:
    """Return what the package can say, by its part."""
    found: dict[str, list[Message]] = {}
    for path in sorted((ROOT / "fedprivacy").rglob("*.py")):
        part = path.relative_to(ROOT / "fedprivacy").parts[0].removesuffix(".py")
        found.setdefault(part, []).extend(raised(path))
    return {part: sorted(set(texts)) for part, texts in found.items() if texts}


def messages_table() -> str:
    """Return every message and its way out, by part of the package."""
    lines = []
    for part, said in messages().items():
        lines += [f"### {part}", "", "| message | way out |", "|---|---|"]
        lines += [f"| {_cell(text)} | {_cell(way)} |" for text, way in said]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    plain = text.replace("`", "'").replace("|", "/")
    return f"`{plain}`" if plain.strip(". ") else ""


def _architecture() -> dict[str, set[str]]:
    sys.path.insert(0, str(ROOT))
    from tests.arrows import ARROWS

    return ARROWS


def arrows() -> str:
    """Return which part may import which, from the test that holds it."""
    lines = ["| part | may import |", "|---|---|"]
    for part, needs in _architecture().items():
        lines.append(f"| `{part}` | {', '.join(f'`{need}`' for need in sorted(needs)) or '-'} |")
    return "\n".join(lines) + "\n"


def disclosure_table() -> str:
    """Return everything that a run shows, from the table that the tests compare with the code."""
    sys.path.insert(0, str(ROOT))
    from tests.disclosure import table

    return table() + "\n"


def settings_tables() -> str:
    """Return the settings of every training method of the command line."""
    from fedprivacy.runs import methods

    return methods.tables() + "\n"


def rooms() -> str:
    """Return what each part of the package is, from its own first sentence."""
    lines = ["| part | what it is |", "|---|---|"]
    for part in _architecture():
        path = ROOT / "fedprivacy" / part
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        told = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").split("\n")
        lines.append(f"| `{part}` | {told[0].replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"
