"""The demo: one budget, four methods, real data, ledgers, audits and a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..audit import report
from ..audit.messages import guarantee
from ..bound import exactly
from ..errors import refuse, require
from ..outputs import aligned, in_folder
from .experiment import Experiment, TrainedRun
from .methods import METHODS
from .progress import Steps


@dataclass(frozen=True)
class DemoOutcome:
    """The result of the demo."""

    experiments: dict[str, Experiment]
    """By method. One budget, so all share one noise multiplier."""
    records: dict[str, TrainedRun]
    """By method."""
    report: Path
    ledgers: Path

    @property
    def one(self) -> Experiment:
        """A private experiment. Its budget is that of all experiments."""
        return next(e for e in self.experiments.values() if e.job.knob is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values."""
        one = self.one
        return {
            "data": one.job.data.name,
            "budget": {
                "epsilon": one.epsilon,
                "delta": one.delta,
                "adjacency": str(one.adjacency),
                "observer": str(one.observer),
            },
            "noise_multiplier": one.setting,
            "rounds": one.job.rounds,
            "runs": {method: _row(record) for method, record in self.records.items()},
            "report": str(self.report),
            "ledgers": str(self.ledgers),
        }


def _row(record: TrainedRun) -> dict[str, Any]:
    found = record.audit
    return {
        "accuracy": record.accuracy[-1],
        "upload_bytes": record.upload_bytes,
        "not_covered": dict(record.not_covered),
        "epsilon": None if found is None or found.void else [found.bound.lower, found.bound.upper],
        "verdict": None if found is None else str(found.verdict),
    }


def run_demo(
    experiments: dict[str, Experiment], output: Path, ledgers: Path | None = None
) -> DemoOutcome:
    """Calibrate, train every method, audit every ledger, write the report.

    Args:
        experiments: by method, on one data set with one budget.
        output: path of the page.
        ledgers: folder for the ledgers, new or empty; None for a new one next to the page.

    Raises:
        ParameterError: ``output`` or ``ledgers`` cannot be used.
    """
    folder = _folder(output, ledgers)
    records: dict[str, TrainedRun] = {}
    with Steps() as steps:
        with steps.step("calibrating the noise"):
            experiments = _at_one_level(experiments)
        for method, experiment in experiments.items():
            with steps.rounds(f"training {METHODS[method].title}", experiment.job.rounds) as tick:
                path = folder / f"{method}.ledger"
                records[method] = experiment.run(ledger_path=path, on_round=tick)
        with steps.step("writing the report"):
            named = {METHODS[method].title: _shown(record) for method, record in records.items()}
            data = next(iter(experiments.values())).job.data.name
            page = report(named, output, title=f"Private federated learning on {data}")
    return DemoOutcome(experiments, records, page, folder)


def _shown(record: TrainedRun) -> TrainedRun:
    """Return a run for its page, with the public numbers behind it as a note."""
    return replace(record, notes=tuple(filter(None, (*record.notes, record.rests_on))))


def _at_one_level(experiments: dict[str, Experiment]) -> dict[str, Experiment]:
    """Calibrate once: sparsification and the clip norm cancel out of the privacy loss."""
    level = next(e for e in experiments.values() if e.job.knob is not None).setting
    return {
        method: each if each.job.knob is None else replace(each, level=level)
        for method, each in experiments.items()
    }


def _folder(output: Path, ledgers: Path | None) -> Path:
    """Return an empty folder for the ledgers; earlier runs are never overwritten."""
    require(output.suffix.lower() == ".html", "output", str(output), "be a .html file")
    in_folder(output=output)
    if ledgers is not None:
        return _emptied(ledgers)
    number = 1
    while (folder := output.with_name(f"{output.stem}-ledgers-{number}")).exists():
        number += 1
    folder.mkdir()
    return folder


def _emptied(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        refuse("ledgers", str(folder), "be a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def table(outcome: DemoOutcome) -> None:
    """Print the outcome for a person."""
    experiment = outcome.one
    print(
        f"\nBudget: epsilon = {exactly(experiment.epsilon)}, delta = {exactly(experiment.delta)}, "
        f"client level, {experiment.adjacency!s}, {experiment.observer!s}. "
        f"Noise multiplier {experiment.setting}, {experiment.job.rounds} rounds, "
        f"{experiment.units:g} clients.\n"
    )
    rows = [("method", "accuracy", "uploaded", "epsilon, certified", "verdict")]
    rows += [(METHODS[name].title, *_cells(record)) for name, record in outcome.records.items()]
    print("\n".join(aligned(rows)))
    private = [record.audit for record in outcome.records.values() if record.audit is not None]
    if private:
        print("\n" + guarantee(private[0]))
    print(f"\nReport: {outcome.report}\nLedgers: {outcome.ledgers}")


def _cells(record: TrainedRun) -> tuple[str, str, str, str]:
    """Return accuracy, upload, certified interval and verdict as table cells."""
    found, interval = record.audit, "no guarantee"
    if found is not None and not found.void:
        interval = f"[{', '.join(found.bound.ends(5))}]"
    return (
        f"{100 * record.accuracy[-1]:.1f} %",
        f"{(record.upload_bytes or 0) / 1e6:.2f} MB",
        interval,
        "not private" if found is None else found.statement,
    )
