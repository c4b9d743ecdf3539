"""Train every setting of a grid, each with a ledger, as input for ``fp.pareto``.

A sweep answers this question: which noise, cohort, number of rounds and k give the best accuracy
within (epsilon, delta)?
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ..audit.imports import Stated
from ..audit.sources import accountable, read_source
from ..bound import Bound
from ..errors import LedgerError, ParameterError, integer, refuse, require
from ..evidence import qualifiers
from ..ledger import Ledger
from ..mechanisms.base import Mechanism, Run
from ..outputs import whole_file
from ..questions.epsilon import epsilon as epsilon_of
from ..relations import Adjacency, Observer
from .experiment import Experiment, OnRound, default_delta
from .jobs import Job, job
from .methods import method_named, names
from .parallel import check_backend, each
from .pareto import DIGITS, Pareto, Value, in_words, pareto

NOTE = "sweep.json"
"""File with the settings that all runs of a folder share."""

Trained = tuple[Path, dict[str, Value]]
"""The ledger of a setting's first repeat, and the setting's costs, in the form of ``fp.pareto``."""

_CALIBRATED_DIGITS = 2

SLACK = 1.001
"""Factor on the epsilon of a setting with given noise; the product is its claim and budget."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Runs of one method on one data set with different settings.

    A folder holds the ledger and the checkpoint of each setting. A sweep that was killed resumes
    from the folder, and a trained setting is not trained again.

    Args:
        method: any private one of ``methods.METHODS``.
        grid: name -> values. A name is the method's knob (``noise_multiplier`` for DP-FedAvg and
            Fed-SMP), ``rounds``, ``cohort``, ``kept_fraction`` or any other setting of the method.
            If the knob is missing, it is calibrated for every setting to (epsilon, delta).
        folder: folder of the runs; made if it does not exist.
        delta: of every ledger's claim; None for ``default_delta``, which refuses add_remove.
        epsilon: the budget that a missing knob is calibrated to.
        adjacency: how neighbouring data sets differ; None for the method's default.
        observer: who sees the outputs.
        seed: None for randomness from the operating system, which privacy requires.
        seeds: number of repeats of every setting. Means are compared, so the best setting is not
            only the luckiest. Every repeat has its own ledger and counts in ``together``.
        dropout_rate: see ``Experiment``.
        threads: number of processor threads; see ``Experiment``.
        source: other arguments of ``jobs.job``: ``data``, ``model``, ``clients``, and settings that
            are the same for all runs.

    Raises:
        ParameterError: a method without privacy, an empty axis, a value out of its range, no
            epsilon although the noise must be calibrated, or a folder of another sweep.
    """

    method: str
    grid: Mapping[str, Sequence[Any]]
    folder: Path
    delta: float = None  # type: ignore[assignment]  # a number after __post_init__
    epsilon: float | None = None
    adjacency: Adjacency | str | None = None
    observer: Observer | str = Observer.AGGREGATE
    seed: int | None = None
    seeds: int = 1
    dropout_rate: float = 0.0
    threads: int | None = None
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        method_named(self.method, names(private=True))
        object.__setattr__(self, "folder", Path(self.folder))
        integer(1, seeds=self.seeds)
        for name, values in self.grid.items():
            _check_axis(name, values)
        if self.delta is None:
            object.__setattr__(self, "delta", default_delta(self.job.units, self._adjacency))

    @property
    def labels(self) -> list[dict[str, Any]]:
        """The parameters of every setting."""
        points = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, values, strict=True)) for values in points]

    @cached_property
    def job(self) -> Job:
        """The shared job of all settings."""
        return job(self.method, **self.source)

    @property
    def knob(self) -> str:
        """The parameter that sets the privacy."""
        return str(self.job.knob)

    def _task(self, label: Mapping[str, Any]) -> tuple[Job, float | None]:
        """Return the job of one setting, with shared data, and its level."""
        settings = {**self.source, **label, "data": self.job.source}
        for name in ("data_dir", "clients", "classes_per_client", "public_records"):
            settings.pop(name, None)
        level = settings.pop(self.knob, None)
        return job(self.method, **settings), level

    def experiment(self, label: Mapping[str, Any], repeat: int = 0) -> Experiment:
        """Return one repeat of a setting as a job with its budget.

        Raises:
            ParameterError: see the class.
        """
        task, level = self._task(label)
        how = self.threat | {"dropout_rate": self.dropout_rate, "threads": self.threads}
        how |= {"job": task, "seed": self.seed_of(_name(label, repeat))}
        if level is not None:
            # A setting that was started keeps the claim of its ledger.
            begun = self.ledger_of(label, repeat)
            known = Ledger.open(begun).claim if begun.exists() else None
            own = known[0] if known else epsilon_of(task.run(level), **self.threat).upper * SLACK
            return Experiment(epsilon=own, level=level, **how)
        if self.epsilon is None:
            refuse("epsilon", None, "be given", f"or pass values of {self.knob}")
        return Experiment(epsilon=self.epsilon, **how)

    def plan(self, label: Mapping[str, Any]) -> Mechanism:
        """Return the whole run of one setting as a mechanism.

        Raises:
            ParameterError: see the class.
        """
        one = self.experiment(label)
        return one.job.run(float(one.setting or 0.0))

    def check(self) -> None:
        """Build every setting's loop, so that wrong settings are refused before any training.

        Raises:
            ParameterError: see the class.
        """
        for label in self.labels:
            task, level = self._task(label)
            # Any level will do: a wrong setting is refused at every level.
            task.loop(1.0 if level is None else level, self.seed)
            task.public(self._adjacency)

    def train(self, label: Mapping[str, Any], on_round: OnRound | None = None) -> Trained:
        """Train all repeats of one setting, or resume them; return its ledger and its costs.

        The costs are "accuracy" on the test set and, for averaging, "MB". "MB" is the average
        upload of a client in the whole run, at four bytes a number. With several repeats, each cost
        has one number for each repeat.

        Args:
            label: the setting's parameters.
            on_round: called after every round that runs.

        Raises:
            ParameterError: see the class.
        """
        return self._trained(
            label, [self.once(label, repeat, on_round) for repeat in range(self.seeds)]
        )

    def train_all(
        self,
        *,
        jobs: int = 1,
        backend: str = "loky",
        on_run: Callable[[Mapping[str, Any], int], None] | None = None,
    ) -> list[tuple[dict[str, Any], Trained]]:
        """Train every setting, several at once. The results equal those of sequential training.

        A killed sweep resumes: finished runs are not repeated, and other runs continue from their
        checkpoints.

        Args:
            jobs: number of simultaneous runs. Each one has its own process, and one thread unless
                ``threads`` is given. A model of more than a million parameters rounds differently
                with several threads, so equal results need equal ``threads``.
            backend: see ``parallel.each``.
            on_run: gets a setting and its repeat when that run has finished.

        Returns:
            Every setting with the result of ``train``.

        Raises:
            ParameterError: see the class, and ``parallel.each``.
        """
        check_backend(backend, jobs)
        self.check()
        # One process makes the folder. The others find it.
        self._open_folder()
        runs = list(itertools.product(self.labels, range(self.seeds)))

        def done(place: int) -> None:
            if on_run is not None:
                on_run(*runs[place])

        # Sent without its data. Every process reads the data by itself.
        sent = self if jobs == 1 else replace(self, threads=self.threads or 1)
        calls = [partial(sent.once, label, repeat, None) for label, repeat in runs]
        costs = iter(each(calls, jobs=jobs, backend=backend, done=done))
        return [
            (label, self._trained(label, [next(costs) for _ in range(self.seeds)]))
            for label in self.labels
        ]

    def _trained(self, label: Mapping[str, Any], costs: Sequence[Mapping[str, float]]) -> Trained:
        """Return a setting's ledger and its costs, with one number for each of several repeats."""
        if self.seeds == 1:
            return self.ledger_of(label, 0), dict(costs[0])
        return self.ledger_of(label, 0), {name: [one[name] for one in costs] for name in costs[0]}

    def model(self, label: Mapping[str, Any], repeat: int, path: Path) -> None:
        """Write the model of a finished repeat to a file that may be handed over.

        Raises:
            ParameterError: see the class, and ``training.save_model``.
        """
        ledger = self.ledger_of(label, repeat)
        checkpoint = ledger.with_name(f"{_name(label, repeat)}.pt")
        self.experiment(label, repeat).run(ledger_path=ledger, checkpoint=checkpoint, output=path)

    def once(
        self, label: Mapping[str, Any], repeat: int, on_round: OnRound | None
    ) -> dict[str, float]:
        """Train one repeat of a setting, or resume it; return its costs."""
        experiment = self.experiment(label, repeat)
        tested = len(experiment.job.source.test_labels)
        require(tested, "test_features", "none", "be given to compare accuracies")
        # Refuses a wrong setting before the folder exists.
        experiment.job.loop(experiment.setting, experiment.seed)
        self._open_folder()
        ledger = self.ledger_of(label, repeat)
        checkpoint = ledger.with_name(f"{_name(label, repeat)}.pt")
        run = experiment.run(ledger_path=ledger, checkpoint=checkpoint, on_round=on_round)
        costs = {"accuracy": run.scores["accuracy"]}
        if experiment.job.upload_per_client is not None:
            # A run that the budget stopped early sent less.
            share = run.rounds[-1] / experiment.job.rounds
            costs["MB"] = experiment.job.upload_per_client * share
        return costs

    def ledger_of(self, label: Mapping[str, Any], repeat: int) -> Path:
        """Return the path of the ledger of a setting's repeat."""
        return self.folder / f"{_name(label, repeat)}.ledger"

    def write(self, trained: Iterable[tuple[Mapping[str, Any], Trained]]) -> Path:
        """Write the settings to a file for ``fedprivacy pareto``; keep the rows already there.

        Returns:
            The path of the file.
        """
        path, text = self.folder / "runs.csv", io.StringIO()
        rows: list[dict[str, Any]] = [
            {"label": in_words(label) or "run", "ledger": ledger.name, **_cells(costs)}
            for label, (ledger, costs) in trained
        ]
        mine = {row["ledger"] for row in rows}
        others = [row for row in self._written(path, set(rows[0])) if row["ledger"] not in mine]
        writer = csv.DictWriter(text, list(rows[-1]))
        writer.writeheader()
        writer.writerows([*others, *rows])
        whole_file(path, text.getvalue())
        return path

    def _written(self, path: Path, columns: set[str]) -> list[dict[str, Any]]:
        """Return the comparable rows of an existing file."""
        if not path.exists():
            return []
        with open(path, newline="", encoding="utf-8") as file:
            # Rows with other costs, or without a ledger file, are not comparable.
            known = [row for row in csv.DictReader(file) if set(row) == columns]
        return [row for row in known if (self.folder / row["ledger"]).exists()]

    def compare(self, trained: Iterable[tuple[Mapping[str, Any], Trained]]) -> Pareto:
        """Return the comparison of the settings by accuracy and by average upload of a client.

        Settings that are calibrated to one budget have equal privacy. Their epsilons are compared
        by two digits, so the slack of the calibration does not matter.
        """
        return pareto(
            trained,
            maximise="accuracy",
            epsilon=self.epsilon,
            **self.threat,
            digits=DIGITS if self.knob in self.grid else _CALIBRATED_DIGITS,
        )

    def together(self) -> Bound:
        """Return the epsilon of all runs in the folder together.

        Choosing the best of several private runs on the same data reveals something about every
        run.

        Raises:
            LedgerError: a round had no noise.
            UnsupportedCombination: a ledger gives no certified bound on its rounds.
        """
        read = [read_source(path, Stated()) for path in sorted(self.folder.glob("*.ledger"))]
        facts = (one.facts(self._adjacency, self.observer) for one in read)
        found = [accountable(*each) for each in zip(read, facts, strict=True)]
        clear = next((one.noiseless for one, _ in found if one.noiseless is not None), None)
        if clear is not None:
            raise LedgerError(f"the runs in {self.folder} have no epsilon: {clear.description}")
        upper = epsilon_of(_sequence(evidence.run for evidence, _ in found), **self.threat)
        more = qualifiers(wrong for _, all_ in found for wrong in all_)
        upper = replace(upper, qualified=(*upper.qualified, *more))
        known = [one.certain for one, _ in found if one.certain is not None]
        if not known:
            return replace(upper, lower=0.0, witness=None)
        lower = epsilon_of(_sequence(known), **self.threat)
        return replace(upper, lower=min(lower.lower, upper.lower), witness=lower.witness)

    @property
    def threat(self) -> dict[str, Any]:
        """Delta, adjacency and observer, in the form that every question takes."""
        return {"delta": self.delta, "adjacency": self._adjacency, "observer": self.observer}

    @property
    def _adjacency(self) -> Adjacency | str:
        return self.adjacency or self.job.adjacency

    def seed_of(self, name: str) -> int | None:
        """Return a run's own seed: two runs with the same noise would reveal each other."""
        if self.seed is None:
            return None
        text = f"{self.seed} {name}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest())

    @property
    def _note(self) -> dict[str, Any]:
        """The description of the sweep in its folder."""
        calibrated = self.knob not in self.grid
        return {
            "method": self.method,
            "delta": self.delta,
            "target epsilon of the calibration": self.epsilon if calibrated else None,
            "adjacency": None if self.adjacency is None else str(self.adjacency),
            "observer": str(self.observer),
            "seed": self.seed,
            "source": {name: _plain(value) for name, value in sorted(self.source.items())},
        }

    def _open_folder(self) -> None:
        """Make the folder, or check that it belongs to this sweep."""
        path = self.folder / NOTE
        if path.exists():
            self._check_note(path)
            return
        # Ledgers of other runs would be counted in ``together``.
        if any(self.folder.glob("*.ledger")):
            rule = "contain only ledgers of this sweep"
            refuse("folder", str(self.folder), rule, "name another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        whole_file(path, json.dumps(self._note, indent=1) + "\n")

    def _check_note(self, path: Path) -> None:
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ParameterError(
                f"{path} must be JSON, got {error}; name another folder"
            ) from error
        for name, value in self._note.items():
            if not isinstance(known, dict) or known.get(name) != value:
                rule = f"be that of a sweep with the same {name}"
                refuse("folder", str(self.folder), rule, "name another folder")


def _check_axis(name: str, values: Sequence[Any]) -> None:
    if name in ("clients", "classes_per_client", "public_records", "data", "data_dir"):
        way_out = (
            "runs on different partitions protect different units; sweep each partition separately"
        )
        refuse(name, values, "be the same for all settings", way_out)
    if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
        refuse(name, values, "be a list of at least one value")
    if any(isinstance(value, list | dict | set) for value in values):
        refuse(name, values, "contain numbers or words")
    if len(set(values)) < len(values):
        refuse(name, values, "contain every value at most once")


def _sequence(runs: Iterable[Mechanism | None]) -> Mechanism:
    return Run(tuple(part for run in runs if run is not None for part in run.sequence()))


def _name(label: Mapping[str, Any], repeat: int) -> str:
    """Return the base name of the files of a setting's repeat."""
    parts = [f"{name}={value}" for name, value in label.items()]
    parts += [f"repeat={repeat + 1}"] if repeat else []
    # A slash in a value must not name a folder, and Windows refuses the other characters.
    return re.sub(r'[<>:"/\\|?*]', "_", ",".join(parts)) or "run"


def _cells(costs: Mapping[str, Value]) -> dict[str, Any]:
    """Return costs as cells of a file, several values separated by semicolons."""
    return {
        name: ";".join(map(str, value)) if isinstance(value, Sequence) else value
        for name, value in costs.items()
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
