"""An audit as one self-contained HTML page, as Markdown, as JSON, or as a registry entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import cached_property
from importlib.resources import files
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

import fedprivacy

from ..bound import exactly, shown
from ..errors import ParameterError, refuse
from ..loss.strategies.memo import Answers, answered_once
from ..outputs import in_folder, path_of, printable, whole_file
from . import registry
from .accounting import NOT_COUNTED, Audit
from .messages import GLOSSARY, attack_in_words, attack_limits, guarantee, others_in_words
from .plots import (
    composes,
    epsilon_by_round,
    further_rounds,
    in_all,
    needs_matplotlib,
    plots_of,
)
from .statement import rows_of
from .summary import BEFORE, summary_of


@dataclass(frozen=True)
class RunSummary:
    """The results of one run that a report shows together with its audit."""

    audit: Audit | None = None
    accuracy: Sequence[float] = ()
    """Accuracy after each evaluated round, in [0, 1]."""
    rounds: Sequence[int] = ()
    """The rounds of ``accuracy``."""
    upload_bytes: int | None = None
    notes: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    """Scores of the final model, by name."""


def report(
    audit: Audit | Sequence[Audit] | Mapping[str, Audit | RunSummary],
    path: str | PathLike[str],
    *,
    title: str = "Privacy report",
    subject: str = "",
    deployment: Mapping[str, Any] | None = None,
) -> Path:
    """Write a report and return its path. The suffix of the path determines the format.

    Args:
        audit: one audit, several, or named runs (audits, or records that also hold accuracies).
        path: target file: .html for one self-contained page, .md for the same without plots, .json
            for plain values, .yaml for an entry of the OpenDP and NIST registry of deployments. An
            existing file is replaced completely.
        title: heading of the page.
        subject: subject of the report in words, for its cover.
        deployment: only for the registry, which takes one audit: facts that only the deployer
            knows; see ``registry.REQUIRED`` and ``registry.OPTIONAL``.

    Raises:
        ParameterError: if the suffix is not supported, the folder does not exist, an item is no
            audit, or a required field of the registry is missing.
    """
    target = path_of(path=path)
    form = _FORMS.get(target.suffix.lower())
    if form is None:
        refuse("path", str(target), f"end in {', '.join(_FORMS)}", "the report is one HTML page")
    # Check the folder first. An account may take minutes, and its result would be lost.
    in_folder(path=target)
    # Refused instead of ignored, because the reader would miss these facts in the report.
    if deployment is not None and form is not _entry:
        refuse("deployment", "given", "be left out", "it applies only to a path that ends in .yaml")
    request = _ReportArguments(_named(audit), title, subject, deployment)
    answers: Answers = {}
    for found in request.audits.values():
        # Plots reuse the losses that the audits computed.
        answers |= found.answers
    with answered_once(answers):
        text = form(request)
    whole_file(target, text)
    return target


@dataclass(frozen=True)
class _ReportArguments:
    """The arguments of ``report``."""

    runs: Mapping[str, RunSummary]
    title: str
    subject: str
    deployment: Mapping[str, Any] | None

    @property
    def audits(self) -> dict[str, Audit]:
        """The audited runs, by name."""
        return {name: run.audit for name, run in self.runs.items() if run.audit is not None}

    @cached_property
    def by_round(self) -> dict[str, tuple[list[int], list[float]]]:
        """Rounds and the epsilons after them, computed once, for the audits that can be drawn."""
        drawn = {name: found for name, found in self.audits.items() if composes(found)}
        return {name: epsilon_by_round(found) for name, found in drawn.items()}

    @cached_property
    def further(self) -> dict[str, int | None]:
        """The number of further rounds that each of these claims allows, computed once."""
        return {name: further_rounds(self.audits[name]) for name in self.by_round}


def _page(request: _ReportArguments) -> str:
    try:
        needs_matplotlib()
    except ParameterError as missing:
        return _rendered("report.html", request, autoescape=True, no_plots=str(missing))
    return _rendered("report.html", request, autoescape=True, plots=_plots(request))


def _markdown(request: _ReportArguments) -> str:
    return _rendered("report.md", request, autoescape=False)


def _json(request: _ReportArguments) -> str:
    data = {
        "title": request.title,
        "subject": request.subject,
        "runs": {name: found.to_dict() for name, found in request.audits.items()},
        "statement": {name: dict(rows_of(found)) for name, found in request.audits.items()},
        "summary": {name: summary_of(found) for name, found in request.audits.items()},
        "further_rounds": request.further,
        "not_counted": list(NOT_COUNTED),
    }
    # NaN and infinity are not JSON. An error is better than a file that no parser reads.
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _entry(request: _ReportArguments) -> str:
    if len(request.audits) != 1:
        refuse("audit", f"{len(request.audits)} audits", "be one audit for the registry")
    if request.deployment is None:
        fields = ", ".join(registry.REQUIRED)
        refuse("deployment", None, f"be given for the registry: a dict with {fields}")
    (found,) = request.audits.values()
    return registry.as_yaml(registry.entry(found, request.deployment))


_FORMS: dict[str, Callable[[_ReportArguments], str]] = {
    ".html": _page,
    ".md": _markdown,
    ".json": _json,
    ".yaml": _entry,
}


def _rendered(
    name: str,
    request: _ReportArguments,
    *,
    autoescape: bool,
    plots: Sequence[Any] = (),
    no_plots: str = "",
) -> str:
    made = environment(autoescape=autoescape)
    template = made.from_string((files(__package__) / name).read_text("utf-8"))
    views = [_run_view(name, run, request) for name, run in request.runs.items()]
    text: str = template.render(
        title=request.title,
        cover=_cover(list(request.audits.values()), request.subject),
        runs=views,
        shared=_shared([view for view in views if view["private"]]),
        scored=any(run.accuracy for run in request.runs.values()),
        sent=any(run.upload_bytes is not None for run in request.runs.values()),
        plots=plots,
        no_plots=no_plots,
        not_counted=NOT_COUNTED,
        glossary=GLOSSARY,
        before=BEFORE,
    )
    return text


def environment(*, autoescape: bool) -> Any:
    """Return the Jinja2 environment of every page: nothing undefined, and only printable text."""
    # Only pages need the template engine.
    from jinja2 import Environment, StrictUndefined

    # An undefined name is an error, so that a report never lacks a line silently.
    made = Environment(
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Strings of a record may hold terminal escapes or marks that reverse the text direction.
        # The result of a macro (Markup) is already printable and contains line ends.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    made.filters["cell"] = _cell
    return made


def _cell(text: object) -> str:
    """Return text for one cell of a Markdown table, with all markup escaped."""
    plain = " ".join(str(text).split())
    # Names come from untrusted files and must not become links or markup.
    for sign in "\\`*_[]<>|#$":
        plain = plain.replace(sign, f"\\{sign}")
    return plain


def _plots(request: _ReportArguments) -> list[Any]:
    accuracies = {
        name: (
            np.asarray(run.rounds or range(1, len(run.accuracy) + 1), float),
            np.asarray(run.accuracy, float),
        )
        for name, run in request.runs.items()
        if run.accuracy
    }
    return plots_of(
        accuracies, {name: request.audits[name] for name in request.by_round}, request.by_round
    )


_LISTS = ("rows", "recorded", "theorems", "assumptions", "granted")
"""The lists of a run that may be equal for all runs."""


def _shared(views: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Remove from the views the items that all runs share, and return these items."""
    # A single run shares no lists, so its lists stay in its view.
    several = views if len(views) > 1 else []
    found = {name: in_all([view[name] for view in several]) for name in _LISTS}
    for view in views:
        view |= {name: [item for item in view[name] if item not in found[name]] for name in _LISTS}
    return found


def _named(audit: object) -> dict[str, RunSummary]:
    """Return the items to report, by name."""
    named = _by_name(audit)
    for each in named.values():
        if not isinstance(each, Audit | RunSummary):
            way_out = (
                "fp.audit(source, claim=(epsilon, delta), ...) audits a mechanism, a ledger or "
                "a file, also for a published claim"
            )
            rule = "be an audit, a list of audits, or a dict of them by name"
            refuse("audit", type(each).__name__, rule, way_out)
    if not named:
        refuse("audit", audit, "contain at least one audit")
    return {n: r if isinstance(r, RunSummary) else RunSummary(audit=r) for n, r in named.items()}


def _by_name(audit: object) -> dict[Any, Any]:
    if isinstance(audit, Audit):
        return {audit.origin.name or "run": audit}
    if isinstance(audit, Mapping):
        return dict(audit)
    # Other types go to the common check, which refuses them with one message.
    each = audit if isinstance(audit, list | tuple) else [audit]
    return {f"run {i}" if len(each) > 1 else "run": a for i, a in enumerate(each, start=1)}


def _cover(audits: list[Audit], subject: str) -> list[tuple[str, str]]:
    """Return the head rows of the page: subject, source, auditor, date and verdict."""
    moments = sorted({found.audited for found in audits})
    auditors = dict.fromkeys(found.auditor for found in audits)
    rows = [
        *([("subject", subject)] if subject else []),
        *chain.from_iterable(map(_origin, audits)),
        # With several audits, each verdict is shown with its run and none on the cover.
        *(map(_verdict, audits) if len(audits) == 1 else ()),
        ("audited", " to ".join(moments[:: max(1, len(moments) - 1)])),
        ("auditor", ", ".join(filter(None, auditors))),
        ("written by", f"fedprivacy {fedprivacy.__version__}"),
    ]
    # A source that several audits share is listed once.
    return [(name, value or "not stated") for name, value in dict.fromkeys(rows)]


def _verdict(found: Audit) -> tuple[str, str]:
    return "verdict", f"{found.statement}; for the observer {found.facts.observer}"


def _origin(found: Audit) -> list[tuple[str, str]]:
    """Return the rows that state the source of an audit and its import."""
    origin = found.origin
    said = ", ".join(filter(None, [origin.kind, origin.name]))
    check = f", SHA-256 {origin.sha256}" if origin.sha256 else ""
    imported = [("imported", f"{origin.at} by {origin.by}")] if origin.at else []
    return [("source", said + check), *imported]


def _run_view(name: str, run: RunSummary, request: _ReportArguments) -> dict[str, Any]:
    """Return the printed values of one run."""
    found = run.audit
    view: dict[str, Any] = {
        "name": name,
        "accuracy": f"{100 * run.accuracy[-1]:.1f} %" if run.accuracy else "",
        "upload": _megabytes(run.upload_bytes),
        "notes": [*run.notes, *_score_note(run)],
        "private": found is not None,
    }
    if found is not None:
        limits = attack_limits(found)
        view |= {
            **summary_of(found, limits),
            "verdict": str(found.verdict),
            "statement": found.statement,
            "observer": str(found.facts.observer),
            "claim": f"epsilon = {exactly(found.claim[0])} at delta = {exactly(found.claim[1])}",
            "interval": _interval(found),
            "under": _under(found),
            "words": guarantee(found),
            "others": others_in_words(found),
            "attacked": attack_in_words(found, limits),
            "reasons": found.reasons,
            "rows": rows_of(found),
            "recorded": _recorded_rows(found),
            "granted": [f"{value}." for value in found.granted.values()],
            "bounds": _bound_rows(found),
            "unsupported": found.unsupported,
            "moments": _moments(found, *request.by_round.get(name, ([], []))),
            "left": _left(found, request.further.get(name)),
            "theorems": list(found.bound.theorems),
            "assumptions": list(found.bound.assumptions),
        }
    return view


def _score_note(run: RunSummary) -> list[str]:
    found = [f"{name} {value:.4g}" for name, value in run.scores.items()]
    return [f"On the test set: {', '.join(found)}."] if found else []


def _megabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.2f} MB"


def _interval(found: Audit) -> str:
    """Return the certified interval with its conditions; "none" if it is void."""
    if found.void:
        return "none"
    return f"[{', '.join(found.bound.ends())}]{_under(found)}"


def _under(found: Audit) -> str:
    """Return the conditions of the numbers as a suffix; empty if there are none."""
    return f", {found.worth}" if found.conditions else ""


def _recorded_rows(found: Audit) -> list[tuple[str, str]]:
    stated = ", ".join(f"{name} = {value}" for name, value in found.stated.items())
    rows = list(found.facts_recorded.items())
    return rows + ([("stated by the user but not recorded", stated)] if stated else [])


def _moments(found: Audit, rounds: list[int], values: list[float]) -> list[tuple[str, ...]]:
    """Return table rows, head first: epsilon after a few rounds, and the remaining budget.

    The remaining budget is left out if the numbers have conditions, as in ``_left``.
    """
    if len(rounds) < 2:
        return []
    # Five points show the curve. A set removes duplicates, which occur with few rounds.
    chosen = sorted({round(i) for i in np.linspace(0, len(rounds) - 1, 5)})
    # Spent values are rounded up and remaining values down, so that neither looks better than
    # certified.
    rows = [
        ("round", "epsilon (upper end)", "remaining epsilon (lower end)"),
        *((f"{rounds[i]:,}", _up(values[i]), _down(found.claim[0] - values[i])) for i in chosen),
    ]
    return [row[:2] if found.conditions else row for row in rows]


def _left(found: Audit, further: int | None) -> str:
    """Return a lower end of the remaining claim in words; empty if it is not certified.

    A record with gaps may omit spent budget, and other conditions may not be met.

    Args:
        found: the audit.
        further: number of further rounds that the rest allows; None if unknown.
    """
    left = found.claim[0] - found.bound.upper
    # This form of the test also excludes an infinite epsilon.
    if found.conditions or not found.rounds or not left > -np.inf:
        return ""
    if left < 0.0:
        return "No part of the claimed epsilon certainly remains."
    return f"At least {_down(left)} of the claimed epsilon remains{_enough(further)}."


def _enough(further: int | None) -> str:
    """Return the number of further rounds that the rest allows, in words."""
    if further is None:
        return ""
    many = f"at least {further:,} more round{'' if further == 1 else 's'} like the last"
    return f": enough for {many if further else 'no further round like the last'}"


def _up(value: float) -> str:
    return shown(value, 4, ROUND_CEILING)


def _down(value: float) -> str:
    return shown(value, 4, ROUND_FLOOR) if value > 0.0 else "none"


def _bound_rows(found: Audit) -> list[dict[str, str]]:
    """Return the table of bounds; empty if they are void."""
    return (
        []
        if found.void
        else [
            {
                "observer": observer,
                "accountant": name,
                "lower": bound.ends()[0] if bound.lower else "-",
                "upper": bound.ends()[1],
                "method": bound.method + (f" ({bound.reason})" if bound.reason else ""),
            }
            for observer, bounds in found.bounds.items()
            for name, bound in bounds.items()
        ]
    )
