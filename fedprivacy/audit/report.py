"""An audit as one self-contained page: the guarantee in words, the numbers, the plots."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..bound import Bound, shown
from ..errors import refuse
from ..mechanisms import Mechanism
from ..questions.epsilon import epsilon, profile
from ..relations import Adjacency, Facts, Observer, Unit
from .account import NOT_COUNTED, Audit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WHO = {
    Observer.AGGREGATE: "Somebody who sees every release, but not who took part,",
    Observer.SERVER: "Somebody who sees every release and who took part",
    Observer.FINAL: "Somebody who sees the last release only",
}
_WHAT = {
    Adjacency.ADD_REMOVE: "whether one {unit}'s data were in the training at all",
    Adjacency.ZERO_OUT: "whether one {unit}'s contribution was used or replaced by nothing",
    Adjacency.REPLACE_ONE: "which of two possible data sets one {unit} had",
}


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


def in_words(bound: Bound) -> str:
    """Return what an epsilon bound means, in two sentences."""
    unit = str(bound.unit or "unit")
    what = _WHAT[bound.adjacency].format(unit=unit)
    if math.isinf(bound.upper):
        return f"{_WHO[bound.observer]} may learn {what}: no finite epsilon holds."
    odds = math.exp(min(bound.upper, 700.0))
    factor = shown(odds, 3, ROUND_CEILING) if odds < 1000 else f"{math.ceil(odds):,}"
    factor = factor if bound.upper < 30 else f"e^{bound.ends(3)[1]}"
    return (
        f"{_WHO[bound.observer]} cannot reliably tell {what}: whatever test they use, its rate of "
        f"true alarms is at most {factor} times its rate of false alarms plus {bound.given:.3g} "
        f"(epsilon = {bound.ends()[1]}, delta = {bound.given:.3g}). This holds whatever else they "
        "know, under the assumptions below."
    )


def report(
    audit: Audit | Mapping[str, Audit | RunRecord],
    path: str | PathLike[str],
    *,
    title: str = "Privacy report",
) -> Path:
    """Write a self-contained HTML page and return its path.

    Args:
        audit: one audit, or named runs (audits, or records that also hold accuracies).
        path: where to write; must end in .html. An existing file is replaced whole.
        title: the page's heading.

    Raises:
        ParameterError: the path does not end in .html, or its folder does not exist.
    """
    target = Path(path)
    if target.suffix.lower() != ".html":
        refuse("path", str(target), "end in .html", "the report is one HTML page")
    if not target.parent.is_dir():
        refuse("path", str(target), "lie in an existing folder", f"create {target.parent} first")
    named = {"run": audit} if isinstance(audit, Audit) else dict(audit)
    runs = {n: r if isinstance(r, RunRecord) else RunRecord(audit=r) for n, r in named.items()}
    page = _template().render(
        title=title,
        runs=[_run_view(name, run) for name, run in runs.items()],
        scored=any(run.accuracy for run in runs.values()),
        sent=any(run.upload_bytes is not None for run in runs.values()),
        plots=_plots(runs),
        not_counted=NOT_COUNTED,
    )
    draft = target.with_name(target.name + ".part")
    draft.write_text(page, encoding="utf-8")
    os.replace(draft, target)
    return target


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
            "claim": f"epsilon = {found.claim[0]:g} at delta = {found.claim[1]:g}",
            "interval": _interval(found.bound),
            "words": in_words(found.bound),
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


def _interval(bound: Bound) -> str:
    return f"[{', '.join(bound.ends())}]"


def _fact_rows(facts: Facts, found: Audit) -> list[tuple[str, str]]:
    unit = {Unit.CLIENT: "client (all data of one client)", Unit.RECORD: "record"}
    rows = [
        ("unit", unit[facts.unit] if facts.unit else "not stated"),
        ("adjacency", str(facts.adjacency)),
        ("observer", str(facts.observer)),
        ("rounds counted", str(found.rounds)),
        *[("what was run", told) for told in _parts(found)],
    ]
    return rows + list(found.facts_recorded.items())


def _parts(found: Audit, most: int = 5) -> list[str]:
    """Return the mechanisms that were run, equal ones together; of many, the first."""
    parts = [] if found.run is None else list(found.run.sequence())
    told = [f"{count} x {mechanism}" for mechanism, count in parts[:most]]
    return told + [f"and {len(parts) - most} other mechanisms"] * (len(parts) > most)


def _bound_rows(found: Audit) -> list[dict[str, str]]:
    return [
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
    """Return whether the audited rounds can be composed: some, on a schedule fixed beforehand."""
    return found.run is not None and "pld" in found.bounds[str(found.facts.observer)]


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
    return {"caption": caption, "svg": svg[svg.index("<svg") :]}


_NO_METADATA = ("Date", "Creator", "Format", "Type")
_STYLES = ("-", "--", "-.", ":")


def _draw_accuracy(axes: Axes, runs: Mapping[str, RunRecord]) -> None:
    for index, (name, run) in enumerate(runs.items()):
        if run.accuracy:
            rounds = run.rounds or range(1, len(run.accuracy) + 1)
            axes.plot(rounds, run.accuracy, _STYLES[index % 4], label=name)
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))


def _draw_epsilon(axes: Axes, audits: Mapping[str, Audit]) -> None:
    from matplotlib.ticker import MaxNLocator

    for index, (name, found) in enumerate(audits.items()):
        rounds, values = epsilon_by_round(found)
        axes.plot(rounds, values, _STYLES[index % 4], label=name)
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
    moments = sorted({round(r) for r in np.linspace(1, found.rounds, points)})
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
    return moments, values


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
        line = axes.plot(curve.epsilons, curve.upper, _STYLES[index % 4], label=name)[0]
        axes.fill_between(
            curve.epsilons, curve.lower, curve.upper, alpha=0.2, color=line.get_color()
        )
    axes.set(xlabel="epsilon", ylabel="delta", yscale="log")
