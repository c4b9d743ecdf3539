"""An audit as one self-contained page: the guarantee in words, the numbers, the plots."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fedprivacy

from ..errors import refuse
from ..ledger import free
from ..mechanisms import Mechanism
from ..mechanisms.base import Asked, asked_once
from ..questions.epsilon import epsilon, profile
from ..relations import Facts, Unit
from .account import NOT_COUNTED, Audit
from .defects import Numbers
from .words import GLOSSARY, attack_in_words, described, guarantee

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class RunRecord:
    """What a report can show of one run beside its audit."""

    audit: Audit | None = None
    accuracy: Sequence[float] = ()
    """Accuracy after each evaluated round, in [0, 1]."""
    rounds: Sequence[int] = ()
    """The rounds that ``accuracy`` belongs to."""
    upload_bytes: int | None = None
    notes: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    """What the final model is worth, by name."""


def report(
    audit: Audit | Sequence[Audit] | Mapping[str, Audit | RunRecord],
    path: str | PathLike[str],
    *,
    title: str = "Privacy report",
    subject: str = "",
) -> Path:
    """Write a self-contained HTML page and return its path.

    Args:
        audit: one audit, several, or named runs (audits, or records that also hold accuracies).
        path: where to write; must end in .html. An existing file is replaced whole.
        title: the page's heading.
        subject: what the page is about, in words, for its cover.

    Raises:
        ParameterError: the path does not end in .html, its folder does not exist, or something
            that was not audited is to be reported.
    """
    target = Path(path)
    if target.suffix.lower() != ".html":
        refuse("path", str(target), "end in .html", "the report is one HTML page")
    if not target.parent.is_dir():
        refuse("path", str(target), "lie in an existing folder", f"create {target.parent} first")
    runs = _named(audit)
    answers: Asked = {}
    for run in runs.values():
        answers |= {} if run.audit is None else run.audit.answers
    with asked_once(answers):
        page = _page(runs, title, subject)
    draft = target.with_name(target.name + ".part")
    free(target, draft)
    draft.write_text(page, encoding="utf-8")
    os.replace(draft, target)
    return target


def _page(runs: Mapping[str, RunRecord], title: str, subject: str) -> str:
    page: str = _template().render(
        title=title,
        cover=_cover(runs, subject),
        runs=[_run_view(name, run) for name, run in runs.items()],
        scored=any(run.accuracy for run in runs.values()),
        sent=any(run.upload_bytes is not None for run in runs.values()),
        plots=_plots(runs),
        not_counted=NOT_COUNTED,
        glossary=GLOSSARY,
    )
    return page


def _named(audit: object) -> dict[str, RunRecord]:
    """Return what is to be reported, by name."""
    if isinstance(audit, Audit):
        named: dict[Any, Any] = {audit.origin.name or "run": audit}
    elif isinstance(audit, Mapping):
        named = dict(audit)
    elif isinstance(audit, list | tuple):
        several = len(audit) > 1
        named = {f"run {i}" if several else "run": a for i, a in enumerate(audit, start=1)}
    else:
        named = {"": audit}
    for each in named.values():
        if not isinstance(each, Audit | RunRecord):
            way_out = (
                "fp.audit(source, claim=(epsilon, delta), ...) makes an audit of a mechanism, a "
                "ledger or a file, for a published claim too"
            )
            rule = "be an audit, a list of audits, or a dict of them by name"
            refuse("audit", type(each).__name__, rule, way_out)
    if not named:
        refuse("audit", audit, "hold at least one audit")
    return {n: r if isinstance(r, RunRecord) else RunRecord(audit=r) for n, r in named.items()}


def _cover(runs: Mapping[str, RunRecord], subject: str) -> list[tuple[str, str]]:
    """Return the rows of the page's head: of what, from what, by whom, when, with what verdict."""
    audits = [run.audit for run in runs.values() if run.audit is not None]
    rows = [("subject", subject)] if subject else []
    for found in audits:
        origin, more = found.origin, len(audits) > 1
        file = f"{origin.kind}{', ' if origin.name else ''}{origin.name}"
        check = f", SHA-256 {origin.sha256}" if origin.sha256 else ""
        rows.append(("source", file + check))
        if origin.at:
            rows.append(("imported", f"{origin.at} by {origin.by}"))
        told = f"{found.statement}; for the observer {found.facts.observer}"
        rows += [] if more else [("verdict", told)]
    rows += [
        (name, ", ".join(dict.fromkeys(filter(None, values))))
        for name, values in (
            ("audited", [found.audited for found in audits]),
            ("auditor", [found.auditor for found in audits] or [""]),
        )
    ]
    rows.append(("written by", f"fedprivacy {fedprivacy.__version__}"))
    return [(name, value or "not stated") for name, value in dict.fromkeys(rows)]


def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string((files(__package__) / "report.html").read_text("utf-8"))


def _run_view(name: str, run: RunRecord) -> dict[str, Any]:
    """Return what the page prints of one run."""
    found = run.audit
    view: dict[str, Any] = {
        "name": name,
        "accuracy": f"{100 * run.accuracy[-1]:.1f} %" if run.accuracy else "",
        "upload": _megabytes(run.upload_bytes),
        "notes": [*run.notes, *_score_note(run)],
        "private": found is not None,
    }
    if found is not None:
        view |= {
            "verdict": str(found.verdict),
            "statement": found.statement,
            "observer": str(found.facts.observer),
            "claim": f"epsilon = {found.claim[0]:g} at delta = {found.claim[1]:g}",
            "interval": _interval(found),
            "words": guarantee(found),
            "attack": attack_in_words(found),
            "reasons": found.reasons,
            "facts": _fact_rows(found.facts, found),
            "bounds": _bound_rows(found),
            "unsupported": found.unsupported,
            "theorems": found.bound.theorems,
            "assumptions": found.bound.assumptions,
        }
    return view


def _score_note(run: RunRecord) -> list[str]:
    found = [f"{name} {value:.4g}" for name, value in run.scores.items()]
    return [f"On the test set: {', '.join(found)}."] if found else []


def _megabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.2f} MB"


def _interval(found: Audit) -> str:
    """Return the certified interval, with what it is worth; none where it is void."""
    if found.void:
        return "none"
    added = "" if found.numbers is Numbers.CERTIFIED else f", {found.numbers}"
    return f"[{', '.join(found.bound.ends())}]{added}"


def _fact_rows(facts: Facts, found: Audit) -> list[tuple[str, str]]:
    unit = {Unit.CLIENT: "client (all data of one client)", Unit.RECORD: "record"}
    rows = [
        ("unit", unit[facts.unit] if facts.unit else "not stated"),
        ("adjacency", str(facts.adjacency)),
        ("observer", str(facts.observer)),
        ("rounds counted", str(found.rounds)),
        *[("what was run", told) for told in _parts(found)],
        *found.facts_recorded.items(),
    ]
    stated = ", ".join(f"{name} = {value}" for name, value in found.stated.items())
    return rows + ([("stated by the user, not recorded", stated)] if stated else [])


def _parts(found: Audit, most: int = 5) -> list[str]:
    """Return the mechanisms that were run, equal ones together; of many, the first."""
    parts = [] if found.run is None else list(found.run.sequence())
    told = [described(mechanism, count) for mechanism, count in parts[:most]]
    return told + [f"and {len(parts) - most} other mechanisms"] * (len(parts) > most)


def _bound_rows(found: Audit) -> list[dict[str, str]]:
    """Return the table of bounds; empty where they certify nothing."""
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


def _plots(runs: Mapping[str, RunRecord]) -> list[dict[str, str]]:
    """Return the plots that the runs have data for, as (caption, SVG)."""
    audited = {n: r.audit for n, r in runs.items() if r.audit is not None and _composes(r.audit)}
    plots = []
    if any(run.accuracy for run in runs.values()):
        plots.append(_plot("Accuracy by round", _draw_accuracy, runs))
    if audited:
        plots.append(_plot("Epsilon by round, certified upper end", _draw_epsilon, audited))
        plots.append(_plot("Privacy profile: delta at each epsilon", _draw_profile, audited))
    return plots


def _composes(found: Audit) -> bool:
    """Return whether there are numbers to draw: of some rounds, fixed beforehand, and not void."""
    composed = found.run is not None and "pld" in found.bounds[str(found.facts.observer)]
    return composed and not found.void


def _plot(caption: str, draw: Any, data: Any) -> dict[str, str]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(
        {"svg.fonttype": "none", "font.size": 10, "svg.hashsalt": "fedprivacy"}
    ):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        draw(axes, data)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if len(axes.get_legend_handles_labels()[0]) > 1:
            axes.legend(frameon=False, fontsize=8)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(_NO_METADATA))
    svg = buffer.getvalue()
    own = f"plot-{re.sub('[^a-z]+', '-', caption.lower())}-"
    unique = re.sub(r'(\bid="|href="#|url\(#)', lambda found: found[1] + own, svg)
    return {"caption": caption, "svg": unique[unique.index("<svg") :]}


def literal(name: str) -> str:
    """Return a name as matplotlib prints it to the letter: a dollar begins no formula."""
    return name.replace("$", r"\$")


_NO_METADATA = ("Date", "Creator", "Format", "Type")
_STYLES = ("-", "--", "-.", ":")


def _draw_accuracy(axes: Axes, runs: Mapping[str, RunRecord]) -> None:
    for index, (name, run) in enumerate(runs.items()):
        if run.accuracy:
            rounds = run.rounds or range(1, len(run.accuracy) + 1)
            axes.plot(rounds, run.accuracy, _STYLES[index % 4], label=literal(name))
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))


def _draw_epsilon(axes: Axes, audits: Mapping[str, Audit]) -> None:
    from matplotlib.ticker import MaxNLocator

    for index, (name, found) in enumerate(audits.items()):
        rounds, values = epsilon_by_round(found)
        axes.plot(rounds, values, _STYLES[index % 4], label=literal(name))
    claims = {found.claim[0] for found in audits.values()}
    for claim in claims:
        axes.axhline(claim, color="0.4", linewidth=0.8)
        across = axes.get_yaxis_transform()
        told = f"claimed: {claim:g}"
        axes.annotate(told, (0.02, claim), xycoords=across, fontsize=8, va="bottom", color="0.3")
    axes.set(xlabel="round", ylabel="epsilon", ylim=(0, 1.08 * axes.get_ylim()[1]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def epsilon_by_round(found: Audit, points: int = 12) -> tuple[list[int], list[float]]:
    """Return (rounds, certified epsilons after them) at about ``points`` moments of a run."""
    assert found.run is not None
    *moments, last = sorted({round(r) for r in np.linspace(1, found.rounds, points)})
    values = [
        epsilon(
            _first(found.run, count),
            delta=found.claim[1],
            adjacency=found.facts.adjacency,
            observer=found.facts.observer,
            tolerance=0.01 * max(found.claim[0], 0.1),
        ).upper
        for count in moments
    ]
    return [*moments, last], [*values, found.bound.upper]


def _first(run: Mechanism, count: int) -> Mechanism:
    """Return the first ``count`` rounds of a run."""
    prefix: Mechanism | None = None
    for part, times in run.sequence():
        taken = min(times, count)
        if taken:
            prefix = part * taken if prefix is None else prefix + part * taken
            count -= taken
    assert prefix is not None
    return prefix


def _draw_profile(axes: Axes, audits: Mapping[str, Audit]) -> None:
    for index, (name, found) in enumerate(audits.items()):
        assert found.run is not None
        reach = max(1.5 * found.bound.upper, 0.5) if math.isfinite(found.bound.upper) else 10.0
        curve = profile(
            found.run,
            epsilons=np.linspace(0.0, reach, 15),
            adjacency=found.facts.adjacency,
            observer=found.facts.observer,
            tolerance=0.1,
        )
        line = axes.plot(curve.epsilons, curve.upper, _STYLES[index % 4], label=literal(name))[0]
        axes.fill_between(
            curve.epsilons, curve.lower, curve.upper, alpha=0.2, color=line.get_color()
        )
    axes.set(xlabel="epsilon", ylabel="delta", yscale="log")
