"""From a privacy budget to an audited training run: the shared part of ``train`` and ``demo``."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Context
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..audit import RunSummary, audit
from ..bound import exactly
from ..errors import BudgetExhausted, LedgerError, claimed, closed_unit, integer, positive, refuse
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..outputs import TEMPORARY, in_folder
from ..questions.budget import Budget
from ..questions.calibrate import Calibration, calibrate
from ..questions.epsilon import epsilon
from ..relations import Adjacency, Observer
from ..systems.averaging.rows import SUFFIX as NOISE
from ..training import RoundInfo, TrainingResult, save_model, train
from ..training.checkpoint import Checkpoint, resumed
from ..training.private_sidecar import SUFFIX, PrivateSidecar
from ..training.release_files import checked_path
from ..training.rounds import Loop
from .jobs import Job

OnRound = Callable[[Any, RoundInfo], None]

_COUNTS = ("clients", "records")
"""Settings that follow the number of units. Neighbours under add_remove differ in it."""


@dataclass(frozen=True)
class TrainedRun(RunSummary):
    """The result of an experiment. Public and private parts are separate.

    Args:
        public: see ``Experiment.public``.
        not_covered: numbers that only the operator has seen and that no epsilon covers, by name.
        output: file of the model to hand over; None if it was not requested.
    """

    public: Mapping[str, Any] = field(default_factory=dict)
    not_covered: Mapping[str, int | None] = field(default_factory=dict)
    output: Path | None = None

    @property
    def rests_on(self) -> str:
        """The public numbers in one sentence; empty if the run is not private."""
        text = ", ".join(f"{name} {value}" for name, value in self.public.items())
        return f"assumed public, since the release depends on it: {text}" if text else ""


def default_delta(units: int, adjacency: Adjacency | str) -> float:
    """Return n^-1.1 for n units, rounded down to two digits: below 1/n, and never above 0.1.

    Raises:
        ParameterError: the adjacency is add_remove, whose neighbours differ in n.
    """
    if adjacency == Adjacency.ADD_REMOVE:
        refuse(
            "delta", None, "be given for add_remove, since n^-1.1 would reveal the number of units"
        )
    # Rounded down in decimal. Rounding to nearest might exceed n^-1.1.
    known = Context(prec=2, rounding=ROUND_FLOOR).create_decimal_from_float(units**-1.1)
    return min(float(known), 0.1)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A job, and its budget.

    Args:
        job: data, loop and rounds; see ``jobs.Job``.
        epsilon: the budget.
        delta: the budget; None for ``default_delta``, which refuses add_remove.
        adjacency: how neighbouring data sets differ; None for the job's default.
        observer: who sees the outputs.
        level: value of the job's knob; None to calibrate it from the budget.
        seed: None for randomness from the operating system, which privacy requires.
        evaluate_every: rounds between two evaluations on the test set.
        dropout_rate: probability, in [0, 1), that a client of a cohort does not answer, drawn in
            every round. It is only simulated. The price of a round follows from ``missing`` of the
            job.
        threads: number of processor threads in training; None for one if the model is small.
    """

    job: Job
    epsilon: float
    delta: float = None  # type: ignore[assignment]  # a number after __post_init__
    adjacency: Adjacency | str = None  # type: ignore[assignment]  # likewise
    observer: Observer | str = Observer.AGGREGATE
    level: float | None = None
    seed: int | None = None
    evaluate_every: int = 1
    dropout_rate: float = 0.0
    threads: int | None = None

    def __post_init__(self) -> None:
        integer(1, evaluate_every=self.evaluate_every)
        if closed_unit(dropout_rate=self.dropout_rate) == 1.0:
            refuse("dropout_rate", self.dropout_rate, "be below 1", "otherwise no client answers")
        if self.adjacency is None:
            object.__setattr__(self, "adjacency", self.job.adjacency)
        # Numbers that may not be public are refused before any computation.
        _ = self.public
        if self.delta is None:
            object.__setattr__(self, "delta", default_delta(self.job.units, self.adjacency))
        if self.epsilon is not None:
            claimed(self.epsilon, self.delta)
        if self.level is not None:
            level = positive(**{self.job.knob or "level": self.level})
            object.__setattr__(self, "level", level)

    @cached_property
    def calibration(self) -> Calibration:
        """The value of the knob that just meets the budget."""
        return calibrate(self.job.run, epsilon=self.epsilon, **self._threat)

    @property
    def _threat(self) -> dict[str, Any]:
        """Delta, adjacency and observer, in the form that every question takes."""
        return {"delta": self.delta, "adjacency": self.adjacency, "observer": self.observer}

    @cached_property
    def public(self) -> dict[str, Any]:
        """The numbers that the release depends on and that count as public, by name."""
        return self.job.public(self.adjacency)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings by name; under add_remove without the number of units."""
        hidden = _COUNTS if self.adjacency == Adjacency.ADD_REMOVE else ()
        known = {name: value for name, value in self.job.settings.items() if name not in hidden}
        return known | ({"dropout_rate": self.dropout_rate} if self.dropout_rate else {})

    @property
    def units(self) -> float:
        """Number of units; under add_remove the declared number."""
        return self.job.declared_units(self.adjacency)

    @property
    def setting(self) -> float | None:
        """The given or calibrated level; None for a job without privacy."""
        if self.job.knob is None:
            return None
        return float(self.calibration.value) if self.level is None else self.level

    def run(
        self,
        *,
        ledger_path: Path | None = None,
        checkpoint: Path | None = None,
        output: Path | None = None,
        on_round: OnRound | None = None,
    ) -> TrainedRun:
        """Train. A private run is recorded, kept within the budget and audited.

        Args:
            ledger_path: file that records a private run. An existing ledger is resumed as planned,
                if its checkpoint also exists.
            checkpoint: file that the run resumes from; private, see ``training.train``.
            output: file for the model that may be handed over, see ``training.save_model``.
            on_round: called after every round.

        Returns:
            The result. If a run was interrupted between a release and its checkpoint, it has spent
            one round without a result. It then stops when the budget is used up, and ``notes`` says
            so.

        Raises:
            ParameterError: a private job without a ledger, or a job without privacy with a level; a
                ledger of another budget or plan.
            LedgerError: the ledger exists, but there is no checkpoint to resume from.
            BudgetExhausted: the budget does not allow all rounds; no round was spent.
        """
        if self.job.knob is not None and ledger_path is None:
            refuse("ledger_path", None, "be given", "a private run needs a ledger")
        self.check_places(ledger_path, checkpoint, output)
        if ledger_path is None or self.job.knob is None:
            return self._train_openly(checkpoint, output, on_round)
        record = self._train_privately(Path(ledger_path), checkpoint, output, on_round)
        # Read from the file, as an auditor would.
        return replace(record, audit=audit(ledger_path))

    def check_places(
        self, ledger: Path | None, checkpoint: Path | None, output: Path | None
    ) -> None:
        """Refuse files that cannot be written or are the same, before any computation."""
        known: set[Path] = set()
        if ledger is not None:
            known = _taken(in_folder(ledger=ledger))
        if checkpoint is not None:
            in_folder(checkpoint=checkpoint)
            if known & _replaced(checkpoint):
                rule = "differ from the ledger and its private files"
                refuse("checkpoint", str(checkpoint), rule)
            known |= _taken(checkpoint)
        if output is not None and known & _replaced(checked_path(output)):
            refuse("output", str(output), "differ from ledger and checkpoint")

    def _train_openly(
        self, checkpoint: Path | None, output: Path | None, on_round: OnRound | None
    ) -> TrainedRun:
        if self.level is not None:
            refuse("level", self.level, "be left out, since this run is not private")
        loop = self.job.loop(None, self.seed)
        scores = _Scores(self, loop, on_round)
        done = train(loop, self.job.data, on_round=scores, **self._course(loop, checkpoint))
        return scores.record(done, output)

    def _course(self, loop: Any, checkpoint: Path | None) -> dict[str, Any]:
        """Return the shared arguments of every training run of this experiment."""
        return {
            "rounds": self.job.rounds,
            "checkpoint": checkpoint,
            "dropout": self._dropout(checkpoint) if self.dropout_rate else None,
            "threads": self.threads,
            "description": self._description(loop),
        }

    def _dropout(self, checkpoint: Path | None) -> Callable[[Any], set[int]]:
        """Return a function that draws the clients that do not answer.

        In a seeded run, the draw follows from the number of the round. If a crash repeats a round,
        the same clients are lost.
        """
        # Rounds are numbered from the checkpoint.
        begun = checkpoint if _is_there(checkpoint) else None
        behind = 0 if begun is None else Checkpoint.read(begun).content["round"]
        rounds = itertools.count(behind)

        def lost(cohort: Any) -> set[int]:
            seed = None if self.seed is None else [self.seed, next(rounds)]
            gone = np.random.default_rng(seed).random(len(cohort)) < self.dropout_rate
            return {int(client) for client, away in zip(cohort, gone, strict=True) if away}

        return lost

    def _train_privately(
        self, path: Path, checkpoint: Path | None, output: Path | None, on_round: OnRound | None
    ) -> TrainedRun:
        level = self._level(path, checkpoint)
        loop, plan = self.job.loop(level, self.seed), self.job.run(level)
        scores = _Scores(self, loop, on_round)
        if not path.exists():
            # Checked before a ledger exists: a run that cannot finish does not begin.
            self._check_affordable(plan, level)
            # Rounds of a checkpoint whose ledger is gone would not be counted anywhere.
            if checkpoint is not None and checkpoint.exists():
                past, notes = Checkpoint.read(checkpoint), PrivateSidecar.beside(checkpoint, None)
                past.check(None, notes, self.job.data, self._description(loop), private=True)
            ledger = self._new_ledger(path, plan, level)
        else:
            known = Ledger.open(path)
            self._check_same(known, plan)
            # The run is complete: only its result is needed.
            if known.closed and checkpoint is not None:
                return scores.record(self._finished(loop, checkpoint, known), output)
            ledger = Ledger.open(path, resume=True)
        try:
            done = self._rounds(loop, ledger, checkpoint, scores)
            ledger.close()
        finally:
            # Not closed after an error: the run may be resumed.
            ledger.release()
        return scores.record(done, output)

    def _rounds(
        self, loop: Loop[Any], ledger: Ledger, checkpoint: Path | None, on_round: OnRound
    ) -> TrainingResult[Any]:
        """Run the rounds."""
        before = ledger.spent_rounds
        try:
            return train(
                loop,
                self.job.data,
                ledger=ledger,
                budget=self._budget,
                on_round=on_round,
                **self._course(loop, checkpoint),
            )
        except BudgetExhausted:
            # Rounds lost in a crash are spent. A resumed run may run out before its last round.
            if not before or checkpoint is None:
                raise
            return self._finished(loop, checkpoint, ledger)

    def _finished(self, loop: Loop[Any], path: Path, ledger: Ledger) -> TrainingResult[Any]:
        """Return the content of a checkpoint as the end of its run."""
        return resumed(loop, self.job.data, path, ledger, self._description(loop))

    def _description(self, loop: Any) -> str:
        """Return a description of the training, without the number of rounds: it may rise."""
        settings = {name: value for name, value in self.settings.items() if name != "rounds"}
        method = self.job.method.name
        model = repr(loop.flat.module) if hasattr(loop, "flat") else ""
        # Addresses in memory differ from run to run.
        model = re.sub(r" at 0x[0-9a-f]+", "", model)
        return json.dumps({"method": method, "settings": settings, "model": model})

    @property
    def _budget(self) -> Budget:
        return Budget(epsilon=self.epsilon, **self._threat)

    def _level(self, path: Path, checkpoint: Path | None) -> float:
        """Return the level of this run; an existing ledger decides it."""
        if not path.exists():
            assert self.setting is not None
            return self.setting
        check_free(path, checkpoint)
        known = self.recorded_level(path)
        if self.level is not None and self.level != known:
            refuse(str(self.job.knob), self.level, f"be {known}, as in {path}", "or leave it out")
        return known

    def recorded_level(self, path: Path) -> float:
        """Return the level in an existing ledger of this command.

        Raises:
            LedgerError: the ledger has no level.
        """
        known = _described(Ledger.open(path)).get(str(self.job.knob))
        if not isinstance(known, float):
            raise LedgerError(
                f"{path} does not state {self.job.knob}, so another command wrote it; name "
                "another file"
            )
        return known

    def _new_ledger(self, path: Path, plan: Mechanism, level: float) -> Ledger:
        described = {str(self.job.knob): level, "settings": self.settings}
        return Ledger.create(
            path,
            unit=self.job.unit,
            adjacency=self.adjacency,
            observer=self.observer,
            claim=(self.epsilon, self.delta),
            schedule="fixed",
            budget_rule=self._budget.rule,
            seed_policy="operating system" if self.seed is None else "fixed",
            plan=plan,
            description=json.dumps(described),
        )

    def _check_same(self, ledger: Ledger, plan: Mechanism) -> None:
        """Raise ParameterError unless the run matches its existing ledger."""
        pairs = {
            "epsilon, delta": (ledger.claim, (self.epsilon, self.delta)),
            "adjacency": (str(ledger.facts.adjacency), str(self.adjacency)),
            "observer": (str(ledger.facts.observer), str(self.observer)),
            "seed": (ledger.reproducible, self.seed is not None),
        }
        for name, (known, wanted) in pairs.items():
            if known != wanted:
                rule = f"be as in the ledger, {known!r}"
                refuse(name, wanted, rule, f"resume {ledger.path} with its original settings")
        way_out = f"name another ledger and checkpoint than {ledger.path}"
        known = _described(ledger).get("settings", {})
        # Converted through JSON, like the settings in the ledger: tuples are lists there.
        for name, wanted in json.loads(json.dumps(self.settings)).items():
            if known.get(name, _ABSENT) != wanted:
                refuse(name, wanted, f"be {known.get(name)!r}, as in the ledger", way_out)
        # The plan holds everything that the settings do not name.
        if ledger.plan != plan:
            refuse("method or missing", "others", "be those of the plan in the ledger", way_out)

    def _check_affordable(self, plan: Mechanism, level: float) -> None:
        """Raise BudgetExhausted for a run that does not fit, before any round is spent."""
        # A calibrated level fits by construction.
        if self.level is None or self._budget.allows(plan):
            return
        whole = epsilon(plan, **self._threat)
        raise BudgetExhausted(
            f"{self.job.rounds} rounds at {self.job.knob} = {exactly(level)} cost epsilon = "
            f"{whole.ends(5)[1]}, more than {exactly(self.epsilon)}; leave out {self.job.knob} "
            "to calibrate it, raise epsilon or run fewer rounds; no epsilon was spent"
        )


def _described(ledger: Ledger) -> dict[str, Any]:
    """Return the description in a ledger of this command; empty for other ledgers."""
    try:
        found = json.loads(ledger.description)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_ABSENT = object()
NO_TEST = "not scored: the data have no test records (test_features and test_labels)"


class _Scores:
    """Evaluates at intervals, counts refused contributions, and forwards every round."""

    def __init__(self, experiment: Experiment, loop: Any, on_round: OnRound | None) -> None:
        self.experiment, self.loop, self.on_round = experiment, loop, on_round
        self.rounds: list[int] = []
        self.found: list[dict[str, float]] = []
        self.refused = 0

    def __call__(self, state: Any, info: RoundInfo) -> None:
        """Process one round. An observer of only the last release learns no earlier score."""
        self.refused += info.refused
        last = state.round == self.experiment.job.rounds
        due = state.round % self.experiment.evaluate_every == 0
        if last or (due and self.experiment.observer != Observer.FINAL):
            self._evaluate(state)
        if self.on_round is not None:
            self.on_round(state, info)

    def _evaluate(self, state: Any) -> None:
        self.rounds.append(state.round)
        self.found.append(self.experiment.job.scores(self.loop, state))

    def record(self, done: TrainingResult[Any], output: Path | None) -> TrainedRun:
        """Return the collected results; evaluate and write the last state if that is missing."""
        state, job = done.state, self.experiment.job
        if state.round not in self.rounds[-1:]:
            self._evaluate(state)
        if output is not None:
            save_model(output, self.loop, state)
        expected, planned = job.expected_bytes, job.rounds
        unscored = not self.found[-1] and not len(job.source.test_labels)
        short = (
            f"{state.round} of {planned} rounds; the budget was spent on more rounds than the "
            "model "
        )
        short += "contains, since the run was interrupted after a release"
        return TrainedRun(
            accuracy=tuple(found.get("accuracy", math.nan) for found in self.found),
            rounds=tuple(self.rounds),
            upload_bytes=done.upload_bytes if expected is None else expected,
            scores=dict(self.found[-1]),
            notes=(short,) * (state.round < planned) + (NO_TEST,) * unscored,
            public=self.experiment.public,
            not_covered={"upload_bytes": done.upload_bytes, "refused": self.refused},
            output=output,
        )


def check_free(ledger: Path, checkpoint: Path | None) -> None:
    """Refuse a ledger without a folder, or a ledger with rounds but without a checkpoint.

    Raises:
        LedgerError: the ledger has rounds, and there is no checkpoint to resume them.
        ParameterError: the path is not the path of a file, or its folder does not exist.
    """
    in_folder(ledger=ledger)
    # A ledger without rounds has no spent loss, so a run may begin there.
    if ledger.exists() and not _is_there(checkpoint) and Ledger.open(ledger).rounds:
        raise LedgerError(
            f"{ledger} exists already; name another file, or pass the checkpoint of its run to "
            "resume it"
        )


def _is_there(path: Path | None) -> bool:
    return path is not None and path.exists()


def _replaced(path: Path) -> set[Path]:
    """Return the paths that an atomic write replaces: the file and its temporary name."""
    return {Path(f"{path}{end}").resolve() for end in ("", TEMPORARY)}


def _taken(path: Path) -> set[Path]:
    """Return the files of a ledger or a checkpoint: itself and its companion files."""
    # Private notes belong to both kinds of file, the memory of correlated noise to the ledger.
    return {Path(f"{path}{end}").resolve() for end in ("", SUFFIX, NOISE, TEMPORARY)}
