"""From a privacy budget to an audited training run: what ``train`` and ``demo`` have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..audit import RunRecord, audit
from ..errors import BudgetExhausted, LedgerError, integer, positive, refuse
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..questions.budget import Budget
from ..questions.calibrate import Calibration, calibrate
from ..questions.epsilon import epsilon
from ..relations import Adjacency, Observer
from ..training import RoundInfo, TrainingResult, train
from ..training.checkpoint import Checkpoint, resumed
from ..training.notes import Notes
from ..training.rounds import Loop
from .jobs import Job

OnRound = Callable[[Any, RoundInfo], None]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A job, and the budget that it must keep.

    Args:
        job: data, loop and rounds; see ``training.jobs``.
        epsilon: the budget.
        delta: the budget.
        adjacency: how neighbouring data sets differ; None for the job's own.
        observer: who looks.
        level: value of the job's knob; None to calibrate it from the budget.
        seed: None for randomness from the operating system, as privacy needs.
        evaluate_every: rounds between two evaluations on the test set.
    """

    job: Job
    epsilon: float
    delta: float
    adjacency: Adjacency | str | None = None
    observer: Observer | str = Observer.AGGREGATE
    level: float | None = None
    seed: int | None = None
    evaluate_every: int = 1

    def __post_init__(self) -> None:
        integer(1, evaluate_every=self.evaluate_every)
        if self.adjacency is None:
            object.__setattr__(self, "adjacency", self.job.adjacency)
        if self.level is not None:
            level = positive(**{self.job.knob or "level": self.level})
            object.__setattr__(self, "level", level)

    @cached_property
    def calibration(self) -> Calibration:
        """The value of the knob that just meets the budget."""
        assert self.adjacency is not None
        return calibrate(
            self.job.run,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            observer=self.observer,
        )

    @property
    def setting(self) -> float | None:
        """The level given, or the calibrated one; None for a job without privacy."""
        if self.job.knob is None:
            return None
        return float(self.calibration.value) if self.level is None else self.level

    def run(
        self,
        *,
        ledger_path: Path | None = None,
        checkpoint: Path | None = None,
        on_round: OnRound | None = None,
    ) -> RunRecord:
        """Train; a private run is recorded, kept within the budget and audited.

        Args:
            ledger_path: where a private run is recorded; a ledger that is there already is gone
                on with, as it was planned, if its checkpoint is there too.
            checkpoint: file that the run resumes from.
            on_round: called after every round.

        Returns:
            What came of it. A run that was interrupted between a release and its checkpoint has
            spent a round more than it can show; it then ends when the budget does, and ``notes``
            says so.

        Raises:
            ParameterError: a private job without a ledger, or one without privacy with a level; a
                ledger of another budget or plan.
            LedgerError: the ledger exists and there is no checkpoint to go on from.
            BudgetExhausted: the budget does not allow all rounds; nothing was spent.
        """
        if checkpoint is not None and not Path(checkpoint).parent.is_dir():
            refuse("checkpoint", str(checkpoint), "be in a folder that is there")
        if self.job.knob is None:
            return self._train_openly(checkpoint, on_round)
        if ledger_path is None:
            refuse("ledger_path", None, "be given", "a private run must leave a ledger")
        record = self._train_privately(Path(ledger_path), checkpoint, on_round)
        return replace(record, audit=audit(ledger_path))

    def _train_openly(self, checkpoint: Path | None, on_round: OnRound | None) -> RunRecord:
        if self.level is not None:
            refuse("level", self.level, "be left out: nothing is private here")
        loop = self.job.loop(None, self.seed)
        scores = _Scores(self, loop, on_round)
        done = train(
            loop,
            self.job.data,
            rounds=self.job.rounds,
            checkpoint=checkpoint,
            on_round=scores,
            description=self._description(loop),
        )
        return scores.record(done)

    def _train_privately(
        self, path: Path, checkpoint: Path | None, on_round: OnRound | None
    ) -> RunRecord:
        level = self._level(path, checkpoint)
        loop, plan = self.job.loop(level, self.seed), self.job.run(level)
        scores = _Scores(self, loop, on_round)
        if not path.exists():
            self._check_affordable(plan, level)
            if checkpoint is not None and checkpoint.exists():
                past, notes = Checkpoint.read(checkpoint), Notes.beside(checkpoint, None)
                past.check(None, notes, self.job.data, self._description(loop), private=True)
            ledger = self._new_ledger(path, plan, level)
        else:
            known = Ledger.open(path)
            self._check_same(known, plan)
            if known.closed and checkpoint is not None:
                return scores.record(self._finished(loop, checkpoint, known))
            ledger = Ledger.open(path, resume=True)
        try:
            done = self._rounds(loop, ledger, checkpoint, scores)
            ledger.close()
        finally:
            ledger.release()
        return scores.record(done)

    def _rounds(
        self, loop: Loop[Any], ledger: Ledger, checkpoint: Path | None, on_round: OnRound
    ) -> TrainingResult[Any]:
        """Run the rounds."""
        before = ledger.spent_rounds
        try:
            return train(
                loop,
                self.job.data,
                rounds=self.job.rounds,
                ledger=ledger,
                budget=self._budget,
                checkpoint=checkpoint,
                on_round=on_round,
                description=self._description(loop),
            )
        except BudgetExhausted:
            if not before or checkpoint is None:
                raise
            return self._finished(loop, checkpoint, ledger)

    def _finished(self, loop: Loop[Any], path: Path, ledger: Ledger) -> TrainingResult[Any]:
        """Return what a checkpoint holds, as the end of its run."""
        return resumed(loop, self.job.data, path, ledger, self._description(loop))

    def _description(self, loop: Any) -> str:
        """Return what is trained, but for the number of rounds: that may be raised."""
        settings = {name: value for name, value in self.job.settings.items() if name != "rounds"}
        method = getattr(self.job, "method", type(self.job).__name__)
        model = repr(loop.flat.module) if hasattr(loop, "flat") else ""
        model = re.sub(r" at 0x[0-9a-f]+", "", model)
        return json.dumps({"method": method, "settings": settings, "model": model})

    @property
    def _budget(self) -> Budget:
        assert self.adjacency is not None
        return Budget(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            observer=self.observer,
        )

    def _level(self, path: Path, checkpoint: Path | None) -> float:
        """Return the level of this run: that of the ledger that is there, if there is one."""
        if not path.exists():
            assert self.setting is not None
            return self.setting
        if (checkpoint is None or not checkpoint.exists()) and Ledger.open(path).rounds:
            raise LedgerError(
                f"{path} exists already; name another file, or pass the checkpoint of the run "
                "that it records to go on with it"
            )
        known = self.recorded_level(path)
        if self.level is not None and self.level != known:
            refuse(str(self.job.knob), self.level, f"be {known}, as in {path}", "or leave it out")
        return known

    def recorded_level(self, path: Path) -> float:
        """Return the level that a ledger of this command was begun with.

        Raises:
            LedgerError: it says none.
        """
        known = _described(Ledger.open(path)).get(str(self.job.knob))
        if not isinstance(known, float):
            raise LedgerError(f"{path} does not say its {self.job.knob}: it is not of this command")
        return known

    def _new_ledger(self, path: Path, plan: Mechanism, level: float) -> Ledger:
        assert self.adjacency is not None
        described = {str(self.job.knob): level, "settings": self.job.settings}
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
        """Raise ParameterError unless a run is that of a ledger that is there."""
        assert self.adjacency is not None
        pairs = {
            "epsilon, delta": (ledger.claim, (self.epsilon, self.delta)),
            "adjacency": (str(ledger.facts.adjacency), str(self.adjacency)),
            "observer": (str(ledger.facts.observer), str(self.observer)),
            "seed": (ledger.reproducible, self.seed is not None),
        }
        for name, (known, asked) in pairs.items():
            if known != asked:
                rule = f"be as in the ledger, {known!r}"
                refuse(name, asked, rule, f"a run is gone on with as it began: {ledger.path}")
        way_out = f"name another ledger and checkpoint than {ledger.path}"
        known = _described(ledger).get("settings", {})
        for name, asked in json.loads(json.dumps(self.job.settings)).items():
            if name not in known or known[name] != asked:
                refuse(name, asked, f"be {known.get(name)!r}, as in the ledger", way_out)
        if ledger.plan != plan:
            refuse("method or missing", "others", "be as the ledger planned them", way_out)

    def _check_affordable(self, plan: Mechanism, level: float) -> None:
        """Raise BudgetExhausted before anything is spent on a run that does not fit."""
        if self.level is None or self._budget.allows(plan):
            return
        assert self.adjacency is not None
        whole = epsilon(plan, delta=self.delta, adjacency=self.adjacency, observer=self.observer)
        raise BudgetExhausted(
            f"{self.job.rounds} rounds at {self.job.knob} = {level:g} cost epsilon = "
            f"{whole.ends(5)[1]}, more than {self.epsilon:g}; leave {self.job.knob} out to have it "
            "calibrated, raise epsilon or run fewer rounds; nothing was spent"
        )


def _described(ledger: Ledger) -> dict[str, Any]:
    """Return what a ledger of this command says of its run; nothing of another's."""
    try:
        found = json.loads(ledger.description)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class _Scores:
    """Evaluates now and then, counts what was refused, and passes every round on."""

    def __init__(self, experiment: Experiment, loop: Any, on_round: OnRound | None) -> None:
        self.experiment, self.loop, self.on_round = experiment, loop, on_round
        self.rounds: list[int] = []
        self.found: list[dict[str, float]] = []
        self.refused = 0

    def __call__(self, state: Any, info: RoundInfo) -> None:
        """Take note of one round."""
        self.refused += info.refused
        last = state.round == self.experiment.job.rounds
        if last or state.round % self.experiment.evaluate_every == 0:
            self.rounds.append(state.round)
            self.found.append(self.experiment.job.scores(self.loop, state))
        if self.on_round is not None:
            self.on_round(state, info)

    def record(self, done: TrainingResult[Any]) -> RunRecord:
        """Return what was noted, for the report; the last state is evaluated if it was not."""
        state = done.state
        planned = self.experiment.job.rounds
        if not self.rounds or self.rounds[-1] != state.round:
            self.rounds.append(state.round)
            self.found.append(self.experiment.job.scores(self.loop, state))
        notes = []
        if self.refused:
            notes.append(f"{self.refused} updates were refused and counted as zero")
        short = f"{state.round} of {planned} rounds: the budget was spent on more than the model "
        short += "shows, since the run was interrupted after a release"
        return RunRecord(
            accuracy=tuple(found["accuracy"] for found in self.found),
            rounds=tuple(self.rounds),
            upload_bytes=done.upload_bytes,
            scores=dict(self.found[-1]),
            notes=tuple([*notes, short] if state.round < planned else notes),
        )
