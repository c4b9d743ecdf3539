"""The comparison: ledgers, files of settings and typed settings, by epsilon and by cost."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING
from pathlib import Path
from typing import Any

from ..audit.imports import is_ledger
from ..audit.imports.content import beginning
from ..bound import exactly, shown
from ..errors import FedPrivacyError, ParameterError, refuse
from ..runs.pareto import ComparedSetting, Pareto, pareto
from ..runs.run_specs import runs_of_file
from ..systems.settings import CLOSED_SHARE, NON_NEGATIVE
from .auditing import without_folder
from .drawing import points
from .forms import COSTS, EXAMPLE
from .messages import Message, put
from .plan import PlannedRun, WrongFields, number, sentence

MAX_SETTINGS = 40
"""Largest number of typed settings."""
MORE_IS_BETTER = ("accuracy",)
"""Costs that should be large."""

_COMMON = {name: EXAMPLE[name] for name in ("unit", "adjacency", "observer", "delta")}
_COMMON |= {"knows": "noise"}
"""Fields of a plan that a compared setting has in common with the others: they are not read."""

Row = tuple[str, tuple[Any, dict[str, float]]]


def answer(fields: dict[str, str], paths: list[Path]) -> Iterator[Message]:
    """Yield the messages that answer the form."""
    try:
        found = _compared(fields, paths)
    except WrongFields as problem:
        yield {"problems": problem.problems, "say": " ".join(problem.problems.values())}
        yield put("compare-answer", "unanswered", why=str(problem))
        return
    except FedPrivacyError as problem:
        why = sentence(without_folder(str(problem), paths))
        yield {"problems": {}, "say": why}
        yield put("compare-answer", "unanswered", why=why)
        return
    yield {"problems": {}, "say": f"{len(found.settings)} settings were compared."}
    yield put("compare-answer", "compared", **_view(found))


def _compared(fields: Mapping[str, str], paths: list[Path]) -> Pareto:
    problems: dict[str, str] = {}
    delta = number(fields, "delta", problems)
    budget = number(fields, "epsilon", problems) if fields.get("epsilon", "").strip() else None
    unit = fields.get("unit") or None
    rows = [*_of_files(fields, paths, unit, problems), *_typed(fields, problems)]
    if not rows and not problems:
        problems["files"] = "Add a setting, or drop a ledger or a file of settings."
    if problems:
        raise WrongFields(problems)
    rows = _with_one_cost(rows)
    names = rows[0][1][1]
    return pareto(
        rows,
        delta=delta,
        adjacency=fields.get("adjacency", ""),
        observer=fields.get("observer", ""),
        epsilon=budget,
        maximise=[name for name in names if name in MORE_IS_BETTER],
    )


def _of_files(
    fields: Mapping[str, str], paths: list[Path], unit: str | None, problems: dict[str, str]
) -> list[Row]:
    """Return the settings of the files: each ledger is one, a table of settings has several."""
    ledgers = {path.name: path for path in paths if is_ledger(beginning(path))}
    tables = [path for path in paths if path.name not in ledgers]
    rows: list[Row] = []
    used: set[str] = set()
    for table in tables:
        for label, (source, costs) in runs_of_file(table, unit, ()):
            if isinstance(source, Path):
                used.add(source.name)
                source = _sent(source.name, ledgers)
            rows.append((str(label), (source, costs)))
    for place, path in enumerate(paths):
        if path.name in ledgers and path.name not in used:
            costs = _costs(fields, f"file-{place}", problems)
            rows.append((path.stem, (path, costs)))
    return rows


def _sent(name: str, ledgers: Mapping[str, Path]) -> Path:
    """Return the ledger of this name that was sent too, and no other file of this computer."""
    if name not in ledgers:
        refuse("ledger", name, "be dropped with the table that names it")
    return ledgers[name]


def _typed(fields: Mapping[str, str], problems: dict[str, str]) -> Iterator[Row]:
    """Yield the settings of the form, in their order."""
    numbered = (re.match(r"setting-(\d{1,4})-", name) for name in fields)
    places = sorted({int(found[1]) for found in numbered if found})[:MAX_SETTINGS]
    for place in places:
        start = f"setting-{place}-"
        own = {
            name.removeprefix(start): text
            for name, text in fields.items()
            if name.startswith(start)
        }
        costs = _costs(fields, f"setting-{place}", problems)
        try:
            plan = PlannedRun.read({**_COMMON, **own})
        except WrongFields as problem:
            problems |= {start + name: text for name, text in problem.problems.items()}
            continue
        label = own.get("label", "").strip() or f"setting {place}"
        run = plan.run.run(fields.get("unit") or None)
        yield label, (run, costs)


def _costs(fields: Mapping[str, str], start: str, problems: dict[str, str]) -> dict[str, float]:
    found = {}
    for name in COSTS:
        text = fields.get(f"{start}-{name}", "").strip()
        if not text:
            continue
        try:
            value = float(text)
            rule = CLOSED_SHARE if name == "accuracy" else NON_NEGATIVE
            found[name] = float(rule.check(**{name: value}))
        except ParameterError as problem:
            problems[f"{start}-{name}"] = sentence(problem)
        except ValueError:
            problems[f"{start}-{name}"] = f"It must be a number, got {text[:40]!r}."
    return found


NO_COST = "no cost"


def _with_one_cost(rows: list[Row]) -> list[Row]:
    """Return the rows with the costs that all have; without any, with one that is equal for all."""
    common = [name for name in rows[0][1][1] if all(name in row[1][1] for row in rows)]
    every = dict.fromkeys(name for row in rows for name in row[1][1])
    missing = [name for name in every if name not in common]
    if missing:
        lacking = [row[0] for row in rows if missing[0] not in row[1][1]]
        rule = "be given for every setting, or for none"
        refuse(missing[0], f"no value for {', '.join(lacking[:5])}", rule)
    if common:
        return rows
    return [(label, (source, {NO_COST: 0.0})) for label, (source, _) in rows]


def _view(found: Pareto) -> dict[str, Any]:
    costs = [name for name in found.costs if name != NO_COST]
    taking = [one for one in found.settings if not one.refused]
    ordered = sorted(taking, key=lambda one: (not one.on_front, one.epsilon))
    rows = [
        {
            "number": place,
            "name": one.name,
            "front": one.on_front,
            "epsilon": shown(one.epsilon, found.digits, ROUND_CEILING),
            "costs": [_cost(one, name) for name in costs],
            "depends": one.depends,
        }
        for place, one in enumerate(ordered, start=1)
    ]
    return {
        "costs": [COSTS.get(name, name) for name in costs],
        "rows": rows,
        "refused": [(one.name, one.refused) for one in found.refused],
        "best": _best(found, costs),
        "question": f"delta = {exactly(found.delta)}, {found.adjacency}, {found.observer}",
        "pictures": [_picture(ordered, name) for name in costs] if len(ordered) > 1 else [],
    }


def _cost(one: ComparedSetting, name: str) -> str:
    spread = one.spread(name)
    return f"{one.cost(name):.6g}" + (f" ± {spread:.2g}" if spread else "")


def _best(found: Pareto, costs: list[str]) -> list[str]:
    if found.budget is None:
        return []
    best = {name: found.best(name) for name in costs}
    within = f"within epsilon = {exactly(found.budget)}"
    return [
        f"Best {COSTS.get(name, name)} {within}: " + ("none" if one is None else f"{one.name}")
        for name, one in best.items()
    ]


def _picture(ordered: list[ComparedSetting], name: str) -> Any:
    finite = [one for one in ordered if math.isfinite(one.epsilon)]
    return points(
        [one.epsilon for one in finite],
        [one.cost(name) for one in finite],
        [one.on_front for one in finite],
        across="epsilon, upper end",
        up=COSTS.get(name, name),
    )
