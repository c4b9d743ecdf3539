"""The audit: a record and a claim as a form; verdict, reasons, missing facts, and the report."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..audit.accounting import Audit
from ..audit.each import RunAudit
from ..audit.imports.questions import MissingFacts
from ..audit.messages import attack_in_words, attack_limits, guarantee, others_in_words
from ..audit.options import judge_files, several_of
from ..audit.registry import REQUIRED
from ..audit.reporting import report
from ..audit.summary import claimed, meaning, proved
from ..errors import FedPrivacyError, refuse
from .forms import CLAIM, DEPLOYMENT, FACTS, LISTS, WHOLE_NUMBERS, FormField
from .messages import Message, put
from .plan import WrongFields, sentence

FORMATS = {
    "html": "text/html",
    "md": "text/markdown",
    "json": "application/json",
    "yaml": "application/yaml",
}
"""Suffix of a report -> its media type."""
_STATED = ("noise_multiplier", "rounds", "sampling", "adjacency", "unit")
"""Facts that describe a run without a file."""
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_CLAIMED = {"claim": ("epsilon", "delta"), "claim-epsilon": ("epsilon",)}
_CLAIMED |= {"claim-delta": ("delta",)}


def answer(fields: dict[str, str], paths: list[Path]) -> Iterator[Message]:
    """Yield the messages that answer the form: the audit, or the file of its report."""
    try:
        if not paths and not fields.get("noise_multiplier", "").strip():
            yield {"asked": list(_STATED)}
            raise WrongFields({"files": "Choose the record of a run, or state the run below."})
        yield from _judged(fields, paths)
    except WrongFields as problem:
        yield {"problems": problem.problems, "say": " ".join(problem.problems.values())}
        # A report that lacks a field takes no verdict away.
        if not fields.get("format"):
            why = "Correct the marked fields to get a verdict."
            yield put("audit-answer", "unanswered", why=why)
    except MissingFacts as problem:
        asked = asked_in(str(problem))
        yield {"problems": {}, "asked": asked, "say": "The record leaves facts open."}
        yield put("audit-answer", "missing", problem=problem)
    except FedPrivacyError as problem:
        why = sentence(without_folder(str(problem), paths))
        asked = asked_in(why)
        yield {"problems": _about(why), "asked": asked, "say": why}
        yield put("audit-answer", "unanswered", why=why)


def _judged(fields: Mapping[str, str], paths: list[Path]) -> Iterator[Message]:
    given = options_of(fields)
    sources = tuple(paths)
    form = fields.get("format", "")
    rows = several_of(sources, given, apart=False)
    if rows:
        yield {"problems": {}, "say": f"{len(rows)} runs were judged."}
        yield put("audit-answer", "several", rows=[_row(row) for row in rows])
        return
    found = judge_files(sources, given)
    if form:
        yield {"problems": {}, "save": _report(found, paths, fields, form)}
        return
    yield {"problems": {}, "say": f"{found.statement}."}
    yield put("audit-answer", "verdict", found=found, **_view(found))
    if not found.void:
        limits = attack_limits(found)
        text = [meaning(found, limits), others_in_words(found), attack_in_words(found, limits)]
        yield put("audit-words", "words", text=text)


def options_of(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the form as the options of the command line.

    Raises:
        WrongFields: a field is no number, or none of its choices.
    """
    problems: dict[str, str] = {}
    given: dict[str, Any] = {"claim": None, "auditor": fields.get("auditor", "").strip()}
    for name, field in {**FACTS, **CLAIM}.items():
        given[name] = _value(field, fields.get(name, "").strip(), problems)
    if problems:
        raise WrongFields(problems)
    return given


def _value(field: FormField, text: str, problems: dict[str, str]) -> Any:
    if not text:
        return None
    if field.choices:
        if text not in [each.value for each in field.choices]:
            problems[field.name] = "Choose one."
        return text
    if field.kind == "text":
        return text
    whole = field.name in WHOLE_NUMBERS
    try:
        return int(text) if whole else float(text)
    except ValueError:
        kind = "an integer" if whole else "a number"
        problems[field.name] = f"It must be {kind}, got {text[:40]!r}."
        return None


def asked_in(text: str) -> list[str]:
    """Return the fields that a message asks for by options, or by its first word."""
    names = _OPTION.findall(text)
    found = [each for name in names for each in _CLAIMED.get(name, (name.replace("-", "_"),))]
    first = re.match(r"(\w+) must be given", text)
    found += [first[1].lower()] if first else []
    return [name for name in dict.fromkeys(found) if name in FACTS or name in CLAIM]


def _about(why: str) -> dict[str, str]:
    """Return the field that a refusal begins with, and the refusal."""
    name = why.partition(" must ")[0].lower().lstrip("-").replace(" ", "_").replace("-", "_")
    names = _CLAIMED.get(name, (name,))
    if entry := re.match(r"Deployment\['(\w+)'\]", why):
        return {f"deployment_{entry[1]}": why}
    return {each: why for each in names[:1] if each in FACTS or each in CLAIM}


def without_folder(text: str, paths: list[Path]) -> str:
    """Return a message without the temporary folder of the files."""
    for path in paths:
        text = text.replace(f"{path.parent}/", "").replace(str(path.parent), "")
    return text


def _row(row: RunAudit) -> dict[str, str]:
    if row.audit is None:
        return {"name": row.name, "verdict": "not judged", "text": row.refused, "interval": ""}
    low, high = ("", "") if row.audit.void else row.audit.bound.ends(4)
    interval = f"[{low}, {high}]" if high else "none"
    reason = row.audit.reasons[0] if row.audit.reasons else ""
    return {
        "name": row.name,
        "verdict": row.audit.statement,
        "text": reason,
        "interval": interval,
    }


def _view(found: Audit) -> dict[str, Any]:
    rows = [
        {
            "observer": observer,
            "accountant": name,
            "lower": bound.ends(5)[0] if bound.lower else "-",
            "upper": bound.ends(5)[1],
        }
        for observer, bounds in found.bounds.items()
        for name, bound in bounds.items()
    ]
    stated = ", ".join(f"{name} = {value}" for name, value in found.stated.items())
    recorded = list(found.facts_recorded.items())
    recorded += [("stated by you but not recorded", stated)] if stated else []
    return {
        "claimed": claimed(found),
        "proved": proved(found),
        "guarantee": guarantee(found),
        "rows": [] if found.void else rows,
        "recorded": recorded,
        "finite": not found.void and math.isfinite(found.bound.upper),
    }


def _report(
    found: Audit, paths: list[Path], fields: Mapping[str, str], form: str
) -> dict[str, str]:
    """Return the file of a report: name, media type and text.

    Raises:
        ParameterError: the format is unknown, or a field of the registry is missing.
    """
    if form not in FORMATS:
        refuse("format", form, f"be one of {', '.join(FORMATS)}")
    subject = fields.get("subject", "").strip()
    name, source = (paths[0].stem, paths[0].name) if paths else ("stated run", "parameters")
    where = paths[0].parent if paths else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        target = report(
            {name: found},
            Path(folder) / f"report.{form}",
            title=f"Privacy of {subject or source}",
            subject=subject,
            deployment=_deployment(fields) if form == "yaml" else None,
        )
        text = target.read_text("utf-8")
    return {"name": f"{name}-report.{form}", "type": FORMATS[form], "text": text}


def _deployment(fields: Mapping[str, str]) -> dict[str, Any]:
    given = {name: fields.get(f"deployment_{name}", "").strip() for name in DEPLOYMENT}
    said: dict[str, Any] = {name: text for name, text in given.items() if text}
    lists = {
        name: [each.strip() for each in said[name].split(",") if each.strip()]
        for name in LISTS & said.keys()
    }
    problems = {
        f"deployment_{name}": "The registry needs this field."
        for name in REQUIRED
        if not said.get(name)
    }
    if problems:
        raise WrongFields(problems)
    return said | lists
