"""Runs that a few numbers describe: on the command line, in a grid, in a row of a file."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ..bound import Bound
from ..errors import ParameterError, listed, refuse
from ..mechanisms import Gaussian, Mechanism
from ..questions.units import allows_publishing
from ..sampling import (
    Everyone,
    FixedSize,
    Poisson,
    RandomAllocation,
    Scheme,
    Shuffled,
    TruncatedPoisson,
    WithReplacement,
)
from ..systems.settings import COUNT, POSITIVE, SHARE, Settings, choice, setting

Row = tuple[Any, tuple[Any, dict[str, Any]]]
"""(label, (run or path of a ledger, costs by name)), in the form of ``fp.pareto``."""


EPOCHS: dict[str, type[Shuffled | RandomAllocation]] = {
    "shuffled": Shuffled,
    "allocation": RandomAllocation,
}
"""Schemes whose mechanism is a whole epoch."""


@dataclass(frozen=True, kw_only=True)
class SampledRun(Settings):
    """Rounds of the Gaussian mechanism on sampled units."""

    noise_multiplier: float = setting(
        POSITIVE, "Std of the noise on the sum, divided by the clip norm of one unit."
    )
    sampling_probability: float | None = setting(
        SHARE,
        "Each unit takes part in a round with this probability (Poisson sampling).",
        default=None,
    )
    cohort: int | None = setting(
        COUNT, "Number of units of the population that take part in every round.", default=None
    )
    population: int | None = setting(
        COUNT,
        "Number of units. The cohort is drawn from them anew in every round. With "
        "sampling_probability it is only used to compare delta with 1 / population.",
        default=None,
    )
    rounds: int = setting(COUNT, "Number of rounds.", default=1)
    largest_cohort: int | None = setting(
        COUNT,
        "Largest number of participants: if Poisson sampling draws more, a random subset of "
        "this size takes part (truncated Poisson sampling).",
        default=None,
    )
    sampling: str | None = setting(
        choice("with-replacement", "shuffled", "allocation"),
        "Another way to draw: the cohort with replacement, or each unit once in the rounds of an "
        "epoch, by a shuffle or by chance.",
        default=None,
    )
    rounds_per_epoch: int | None = setting(
        COUNT, "Rounds of an epoch, for shuffled and allocation.", default=None
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the run; see ``Settings.of``. A value of None counts as missing."""
        return super().of({name: value for name, value in given.items() if value is not None})

    @property
    def scheme(self) -> Scheme:
        """How units are drawn.

        Raises:
            ParameterError: the numbers contradict each other.
        """
        sizes = (self.cohort, self.population)
        if self.sampling in EPOCHS or self.rounds_per_epoch is not None:
            return self._epoch()
        if self.sampling is not None:
            return self._replaced()
        if self.largest_cohort is not None:
            return self._truncated(self.largest_cohort)
        if self.sampling_probability is not None:
            if self.cohort is not None:
                rule = "be given without cohort"
                refuse("sampling_probability", self.sampling_probability, rule)
            return Poisson(self.sampling_probability)
        if self.cohort is not None and self.population is not None:
            return FixedSize(self.cohort, population=self.population)
        if sizes != (None, None):
            refuse("cohort and population", sizes, "be given together")
        return Everyone()

    def _epoch(self) -> Scheme:
        length, others = self.rounds_per_epoch, ("cohort", "sampling_probability", "largest_cohort")
        if self.sampling not in EPOCHS or length is None:
            rule = f"be given with sampling {listed(EPOCHS)}"
            refuse("rounds_per_epoch", length, rule)
        for name in others:
            if getattr(self, name) is not None:
                rule = "be left out, since an epoch has every unit once"
                refuse(name, getattr(self, name), rule)
        if self.rounds % length:
            rule = f"be a multiple of the {length} rounds of an epoch"
            refuse("rounds", self.rounds, rule)
        return EPOCHS[self.sampling](rounds_per_epoch=length)

    def _replaced(self) -> Scheme:
        known = (self.sampling_probability, self.largest_cohort)
        if self.cohort is None or self.population is None or known != (None, None):
            refuse("sampling", self.sampling, "be given with cohort and population only")
        return WithReplacement(self.cohort, population=self.population)

    def _truncated(self, largest: int) -> Scheme:
        chance, population = self.sampling_probability, self.population
        if chance is None or population is None or self.cohort is not None:
            rule = "be given with sampling_probability and population, without cohort"
            refuse("largest_cohort", largest, rule)
        return TruncatedPoisson(chance, population=population, largest=largest)

    def run(self, unit: str | None = None) -> Mechanism:
        """Return all rounds as one mechanism.

        Args:
            unit: "client" or "record"; None leaves it open.

        Raises:
            ParameterError: see ``scheme``.
        """
        one = Gaussian(noise_multiplier=self.noise_multiplier, unit=unit)
        return one.sampled(self.scheme) * (self.rounds // (self.rounds_per_epoch or 1))

    def remarked(self, bound: Bound, unit: str | None = None) -> Bound:
        """Return a bound of the run, with a remark if its delta is 1/n or more for n units.

        Args:
            bound: of epsilon at a delta; other bounds are returned unchanged.
            unit: see ``run``.
        """
        if bound.quantity != "epsilon":
            return bound
        text = allows_publishing(bound.given, self.population, unit)
        return replace(
            bound, qualified=tuple(dict.fromkeys([*bound.qualified, *filter(None, [text])]))
        )

    @property
    def rate(self) -> float:
        """Expected share of the units that take part in a round."""
        if self.cohort is not None and self.population is not None:
            return self.cohort / self.population
        if self.rounds_per_epoch is not None:
            return 1.0 / self.rounds_per_epoch
        # With neither given, every unit takes part.
        return self.sampling_probability or 1.0


GRID_COSTS: dict[str, Callable[[SampledRun], float]] = {
    "noise": lambda run: run.noise_multiplier / run.rate,
    "averaged-noise": lambda run: run.noise_multiplier / (run.rate * math.sqrt(run.rounds)),
    "uploads": lambda run: run.rate * run.rounds,
    "rounds": lambda run: float(run.rounds),
}
"""Costs that follow from the numbers of a run."""


def runs_of_grid(
    axes: Mapping[str, Sequence[Any]], unit: str | None, costs: Sequence[str]
) -> list[Row]:
    """Return every combination of some values.

    Args:
        axes: fields of ``SampledRun`` -> their values.
        unit: of all runs.
        costs: of ``GRID_COSTS``.

    Raises:
        ParameterError: an unknown cost, or numbers that contradict each other.
    """
    for name in costs:
        if name not in GRID_COSTS:
            refuse("--cost", name, f"be one of {listed(GRID_COSTS)}")
    return [
        (
            {name: value for name, value in one.values().items() if name in axes},
            (one.run(unit), {name: GRID_COSTS[name](one) for name in costs}),
        )
        for one in SampledRun.grid(axes)
    ]


def runs_of_file(path: Path, unit: str | None, costs: Sequence[str]) -> list[Row]:
    """Return the setting in every row of a file.

    Args:
        path: CSV with a header, or a JSON list of objects. Columns: label; ledger (a path relative
            to the file's folder), or fields of ``SampledRun`` and unit. Every other column is a
            cost.
        unit: of rows that name none.
        costs: the columns that are costs; empty for all columns that do not describe a run.

    Raises:
        ParameterError: another format, a row without a cost, or an invalid value.
    """
    rows = _rows(path)
    if not rows:
        refuse("SETTINGS", str(path), "contain at least one setting")
    return [
        _FileRow(row, number, unit).setting(path.parent, costs)
        for number, row in enumerate(rows, start=1)
    ]


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = _content(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        refuse("SETTINGS", str(path), "be a list of objects")
    # An empty cell is the same as a missing column.
    return [{k: v for k, v in row.items() if v is not None and v != ""} for row in rows]


def _content(path: Path) -> Any:
    from ..audit.imports.content import json_of, whole

    try:
        # Spreadsheets write a byte-order mark before UTF-8.
        text = whole(path).decode("utf-8-sig")
        if path.suffix.lower() == ".json":
            return json_of(text.encode(), path.name)
        # Cells beyond the header get an empty name. It is refused later.
        return list(csv.DictReader(text.splitlines(), restkey="", strict=True))
    except (ValueError, csv.Error) as problem:
        refuse("SETTINGS", str(path), "be CSV, or JSON with the ending .json", str(problem))


def _describing() -> set[str]:
    """Return the columns that describe a run."""
    return {"label", "ledger", "unit", *SampledRun.known()}


def _repeats(cell: Any) -> Any:
    """Return a cell's value, or the values of several runs separated by semicolons."""
    return cell.split(";") if isinstance(cell, str) and ";" in cell else cell


@dataclass(frozen=True)
class _FileRow:
    """One row of a file without its empty cells; its number and unit appear in messages."""

    row: dict[str, Any]
    number: int
    unit: str | None

    def setting(self, folder: Path, chosen: Sequence[str]) -> Row:
        """Return the row's label, run and costs."""
        row, costs = self.row, self._costs(chosen)
        described = {name: self._read(name) for name in SampledRun.known() if name in row}
        if "ledger" in row:
            if described:
                rule = "be left out with a ledger"
                refuse(f"row {self.number}", sorted(described), rule)
            label = row.get("label", row["ledger"])
            return str(label), (folder / str(row["ledger"]), costs)
        unit = row.get("unit", self.unit)
        words = described | ({"unit": row["unit"]} if "unit" in row else {})
        words |= {name: value for name, value in self._others.items() if name not in costs}
        text = ", ".join(f"{name} = {value}" for name, value in words.items())
        return str(row.get("label", text)), (SampledRun.of(described).run(unit), costs)

    @property
    def _others(self) -> dict[str, Any]:
        """The cells that do not describe the run."""
        return {name: value for name, value in self.row.items() if name not in _describing()}

    def _costs(self, chosen: Sequence[str]) -> dict[str, Any]:
        others = self._others
        if "" in others:
            rule = "have one number for every column of the header"
            refuse(f"row {self.number}", others[""], rule)
        missing = next((name for name in chosen if name not in others), None)
        if missing in _describing():
            refuse("--cost", missing, "not be a column that describes a run")
        if missing is not None:
            refuse("--cost", missing, f"be a column with a value in row {self.number}")
        if not others:
            way_out = f"add a column besides {listed(SampledRun.known())}"
            refuse(f"row {self.number}", sorted(self.row), "have a cost", way_out)
        return {name: _repeats(others[name]) for name in chosen or others}

    def _read(self, name: str) -> Any:
        try:
            return SampledRun.known()[name].read(str(self.row[name]))
        except ParameterError as problem:
            raise ParameterError(f"row {self.number}: {problem}") from problem
