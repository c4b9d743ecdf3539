"""Tables of the site that are printed from the code, when it is built."""

from __future__ import annotations

import ast
import functools
import json
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
        "rules": rules(),
        "ratios": ratios(),
        "before": before(),
        "correlated_matrix": correlated_matrix(),
        "whole_matrix": whole_matrix(),
        "messages": messages_table(),
        "arrows": arrows(),
        "rooms": rooms(),
        "walk": walk(),
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
_WIDTH = 0.016
"""Width, relative to the upper end, at which a game may stop."""
NEAR = 1.02
"""Ends within this ratio need no footnote."""


RULES = {
    "MinimumSeparation(5)": fp.MinimumSeparation(5),
    "FixedEpochs(10)": fp.FixedEpochs(10),
    "SingleParticipation()": fp.SingleParticipation(),
    "SingleParticipation(apart=True)": fp.SingleParticipation(apart=True),
}
"""What may be known of participation without any draw."""

Make = Callable[[Any], fp.Mechanism]


Cell = tuple[str, str]
"""A number or a dash, and its footnote; without a footnote an empty text."""
SEEN = (Observer.AGGREGATE, Observer.SERVER)
DASH = "\N{EN DASH}"
APART = "the ends are more than 2 % apart: see the next table"


def grid(name: str, groups: dict[str, list[str]], rows: dict[str, list[Cell]]) -> str:
    """Return a table in HTML with one row for each key, grouped columns, and footnotes."""
    notes = list(dict.fromkeys(note for cells in rows.values() for _, note in cells if note))
    several = any(len(columns) > 1 for columns in groups.values())
    span = ' rowspan="2"' if several else ""
    heads = [f'<th{span} scope="col"></th>']
    for group, columns in groups.items():
        heads.append(f'<th colspan="{len(columns)}" scope="colgroup">{group}</th>')
    kind = "answers" if several else "answers many"
    lines = [f'<table class="{kind} docutils">\n<thead>\n<tr>{"".join(heads)}</tr>']
    if several:
        names = [column for columns in groups.values() for column in columns]
        lines.append(
            "<tr>" + "".join(f'<th scope="col">{column}</th>' for column in names) + "</tr>"
        )
    lines.append("</thead>\n<tbody>")
    for label, found in rows.items():
        code = re.sub(r"`([^`]*)`", r"<code>\1</code>", label if "`" in label else f"`{label}`")
        told = [f'<th scope="row">{code}</th>']
        for text, note in found:
            number = notes.index(note) + 1 if note else 0
            mark = f'<sup><a href="#{name}-{number}">{number}</a></sup>' if note else ""
            told.append(f"<td>{text}{mark}</td>")
        lines.append(f"<tr>{''.join(told)}</tr>")
    lines.append('</tbody>\n</table>\n<ol class="notes">')
    lines += [f'<li id="{name}-{at}">{note}</li>' for at, note in enumerate(notes, start=1)]
    return "```{raw} html\n" + "\n".join([*lines, "</ol>"]) + "\n```\n"


def by_relation(name: str, make: Make, whos: dict[str, Any]) -> str:
    """Return a grid of schemes, or rules, by adjacency and observer."""
    rows = {
        label: [cell(make, who, *ask) for ask in product(Adjacency, SEEN)]
        for label, who in whos.items()
    }
    return grid(name, {str(one): [str(seen) for seen in SEEN] for one in Adjacency}, rows)


def matrix() -> str:
    """Return what is answered and what is refused of noise that is drawn anew."""
    return by_relation("drawn-anew", independent, SCHEMES)


def rules() -> str:
    """Return the same of correlated noise, which needs a rule of participation and no draw."""
    schemes = {name: who for name, who in SCHEMES.items() if isinstance(who, UNDRAWN)}
    named = {name: correlated_rule(who) for name, who in schemes.items()}
    return by_relation("correlated", tied, named | RULES)


UNDRAWN = (fp.Shuffled, fp.Everyone)
"""Schemes without an independent draw, which are rules for correlated noise."""


def correlated_rule(scheme: Any) -> Any:
    """Return how often a unit takes part under a scheme without a draw."""
    at_most = ROUNDS // 10 if isinstance(scheme, fp.Shuffled) else None
    return fp.MinimumSeparation(1, at_most=at_most)


def cell(make: Make, who: Any, adjacency: Adjacency, observer: Observer) -> Cell:
    """Return a certified upper end, a lower end without one, or a dash and the refusal."""
    ask: dict[str, Any] = {"adjacency": adjacency, "observer": observer, "tolerance": 0.02}
    try:
        found = fp.epsilon(make(who), delta=DELTA, **ask)
    except FedPrivacyError as refusal:
        return below(make(who), adjacency, observer) or DASH, reason_of(refusal, who)
    apart = found.lower > 0.0 and found.upper > NEAR * found.lower
    return found.ends(3)[1], APART if apart else ""


def below(run: fp.Mechanism, adjacency: Adjacency, observer: Observer) -> str:
    """Return the lower end that an audit uses of a run without an upper one; else empty."""
    try:
        loss = run.privacy_loss(adjacency, observer)
    except FedPrivacyError:
        return ""
    found = fp.accountants.PldAccountant(tolerance=0.02).compose(loss).epsilon(DELTA)
    return f"&ge; {found.ends(3)[0]}" if found.lower > 0.0 else ""


def reason_of(refusal: FedPrivacyError, who: Any) -> str:
    """Return the first sentence of a refusal, without the settings of this row."""
    text = re.sub(r" ?\([^()]*=[^()]*\)|, got .*", "", str(refusal).partition("; ")[0])
    return re.sub(rf"^{type(who).__name__}\b", "the scheme", text)


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


SETTINGS = ((2.0, 0.1, 20), (1.0, 0.01, 100), (5.0, 0.1, 1000))
"""Noise multiplier, sampling rate and rounds."""

_INSIDE = (
    "both orders are attained, but not by the same data; above, one pair has both, and the upper "
    "end is within .02 % of that pair's own"
)
_GAME = 'with `accountant="game"`; the fold, which certificates prove again, is up to 12 % above'
_ORDER = (
    "the upper end is exactly that of a known order; no theorem amplifies an order for `aggregate`"
)
REASONS = {
    ("FixedSize", "zero_out"): _GAME,
    ("FixedSize", "replace_one"): _GAME,
    ("WithReplacement", "zero_out"): _INSIDE,
    ("WithReplacement", "replace_one"): _INSIDE,
    ("Shuffled", "zero_out"): _ORDER,
    ("Shuffled", "replace_one"): _ORDER,
    ("RandomAllocation", "replace_one"): (
        "the pair is attained (in one epoch within .3 %, by the best test); from below only a sum "
        "of cells of all rounds is computed"
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


def at(scheme: str, setting: tuple[float, float, int]) -> fp.Mechanism:
    """Return a setting's run under one scheme."""
    noise, q, rounds = setting
    who = at_rate(q)[scheme]
    count = max(1, round(rounds * q)) if hasattr(who, "rounds_per_epoch") else rounds
    return fp.Gaussian(noise_multiplier=noise).sampled(who) * count


def apart(scheme: str, setting: tuple[float, float, int], **ask: Any) -> float | None:
    """Return upper over lower end, or None where the cell is refused."""
    run = at(scheme, setting)
    try:
        found = fp.epsilon(run, **ask)
    except FedPrivacyError:
        return None
    if REASONS.get((scheme, str(ask["adjacency"]))) == _GAME and found.upper > NEAR * found.lower:
        found = fp.epsilon(run, accountant="game", tolerance=_WIDTH * found.upper, **ask)
    return found.upper / found.lower


def ratios() -> str:
    """Return the largest upper end over lower end, cell by cell, and why it is above 1.02."""
    rows = {
        scheme: [widest(scheme, *ask) for ask in product(Adjacency, SEEN)]
        for scheme in at_rate(0.1)
    }
    return grid("ratios", {str(one): [str(seen) for seen in SEEN] for one in Adjacency}, rows)


def widest(scheme: str, adjacency: Adjacency, observer: Observer) -> Cell:
    """Return the largest ratio over the settings; a dash if there is no upper end."""
    ask = {"delta": DELTA, "adjacency": adjacency, "observer": observer}
    found = [one for one in (apart(scheme, each, **ask) for each in SETTINGS) if one]
    if not found:
        return DASH, "no upper end: see the first table"
    # A cell that is apart and has no reason ends the build: somebody is to find one.
    reason = REASONS.get((scheme, str(adjacency)), "")
    played = reason == _GAME and observer is Observer.AGGREGATE
    why = REASONS[scheme, str(adjacency)] if max(found) > NEAR or played else ""
    return f"{max(found):.3f}", re.sub(r"`([^`]*)`", r"<code>\1</code>", why)


BEFORE = ROOT / "benchmarks" / "results" / "matrix_before.json"
"""Ends at an earlier commit, of the cells that changed since: [lower, upper] by setting."""


def before() -> str:
    """Return the ends of cells that changed since an earlier commit, and the ends now."""
    lines = ["| cell | " + " | ".join(map(_in_words, SETTINGS)) + " |", "|---|" + "---|" * 3]
    for name, then in json.loads(BEFORE.read_text(encoding="utf-8"))["cells"].items():
        scheme, adjacency, observer = name.split()
        ask = Adjacency(adjacency), Observer(observer)
        pairs = zip(then, (ends(scheme, setting, *ask) for setting in SETTINGS), strict=True)
        cells = [f"{_interval(old)} &rarr; {_interval(new)}" for old, new in pairs]
        lines.append(f"| {scheme}, `{adjacency}`, `{observer}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def ends(
    scheme: str, setting: tuple[float, float, int], adjacency: Adjacency, observer: Observer
) -> list[Any] | None:
    """Return [lower, upper] of a cell, the upper end None if there is none; None if refused."""
    run = at(scheme, setting)
    try:
        found = fp.epsilon(run, delta=DELTA, adjacency=adjacency, observer=observer)
    except FedPrivacyError:
        least = below(run, adjacency, observer).removeprefix("&ge; ")
        return [float(least), None] if least else None
    return [found.lower, found.upper]


def _in_words(setting: tuple[float, float, int]) -> str:
    noise, q, rounds = setting
    return f"{noise:g}, 1/{round(1 / q)}, {rounds:,}"


def _interval(pair: list[Any] | None) -> str:
    if pair is None:
        return DASH
    low, high = pair
    return f"at least {low:.2f}" if high is None else f"[{low:.2f}, {high:.2f}]"


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
    "new bins in every epoch, `RandomAllocation(5)`": (
        fp.MinimumSeparation(1, at_most=4),
        fp.RandomAllocation(5),
    ),
}
"""How a unit's rounds come about: the rule of participation, and the secret draw if any."""


def correlated_matrix() -> str:
    """Return upper ends by the draw of rounds and the factor, or why there is none."""
    rows = {
        name: [drawn(factor, rule, scheme) for factor in FACTORS.values()]
        for name, (rule, scheme) in DRAWS.items()
    }
    return grid("by-factor", {name: [""] for name in FACTORS}, rows)


def drawn(factor: Any, rule: Any, scheme: Any) -> Cell:
    """Return the certified upper end of one cell, or a dash and the kind of its refusal."""
    try:
        run: fp.Mechanism = fp.CorrelatedNoise(
            factor=factor, noise_multiplier=4.0, rounds=ROUNDS, participation=rule
        )
        if scheme is not None:
            run = run.sampled(scheme)
        found = fp.epsilon(run, delta=DELTA, adjacency="zero_out", tolerance=0.02)
    except fp.errors.UnsupportedCombination:
        return DASH, "no theorem covers it; the message lists supported combinations"
    except FedPrivacyError:
        return DASH, "an impossible setting, for example more bands than the separation"
    return found.ends(3)[1], ""


KINDS = {"discrete Gaussian": fp.DistributedDiscreteGaussian, "Skellam": fp.Skellam}


def whole_matrix() -> str:
    """Return what is answered of integer noise, and what is refused."""
    rows = {
        label: [
            cell(functools.partial(whole, kind), who, adjacency, Observer.AGGREGATE)
            for adjacency, kind in product(Adjacency, KINDS.values())
        ]
        for label, who in SCHEMES.items()
    }
    return grid("integer", {str(one): list(KINDS) for one in Adjacency}, rows)


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


def walk() -> str:
    """Return the files that README's epsilon visits, with what each does first."""
    # Opacus installs a package with the name of this folder.
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from walk import table

    return table()
