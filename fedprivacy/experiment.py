"""From a privacy budget to an audited training run: what ``train`` and ``demo`` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .audit import RunRecord, audit
from .budget import Budget
from .calibration import Calibration, calibrate
from .errors import BudgetExhausted, LedgerError, integer, positive, refuse
from .ledger import Ledger
from .relations import Adjacency, Observer
from .training import RoundInfo, train
from .training.jobs import Job
from .training.rounds import Loop

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
            positive(**{self.job.knob or "level": self.level})

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
                on with, if a checkpoint is there too.
            checkpoint: file that the run resumes from.
            on_round: called after every round.

        Raises:
            ParameterError: a private job without a ledger.
            LedgerError: the ledger exists and there is no checkpoint to go on from.
            BudgetExhausted: the budget does not allow all rounds.
        """
        loop = self.job.loop(self.setting, self.seed)
        scores = _Scores(self, loop, on_round)
        if self.job.knob is None:
            rounds, data = self.job.rounds, self.job.data
            train(loop, data, rounds=rounds, checkpoint=checkpoint, on_round=scores)
            return scores.record()
        if ledger_path is None:
            refuse("ledger_path", None, "be given", "a private run must leave a ledger")
        self._train_privately(loop, ledger_path, checkpoint, scores)
        return replace(scores.record(), audit=audit(ledger_path))

    def _train_privately(
        self, loop: Loop[Any], path: Path, checkpoint: Path | None, on_round: OnRound
    ) -> None:
        assert self.adjacency is not None
        budget = Budget(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            observer=self.observer,
        )
        ledger = self._ledger(path, checkpoint, budget.rule)
        before = ledger.spent_rounds
        try:
            train(
                loop,
                self.job.data,
                rounds=self.job.rounds,
                ledger=ledger,
                budget=budget,
                checkpoint=checkpoint,
                on_round=on_round,
            )
            ledger.close()
        except BudgetExhausted as problem:
            if not before:
                raise
            raise BudgetExhausted(
                f"{problem}; the run was interrupted before and a round that may have been "
                f"released was run again, so fewer than {self.job.rounds} rounds fit; the "
                "last checkpoint holds the model"
            ) from problem
        finally:
            ledger.release()

    def _ledger(self, path: Path, checkpoint: Path | None, rule: str) -> Ledger:
        if path.exists():
            if checkpoint is None or not checkpoint.exists():
                raise LedgerError(
                    f"{path} exists already; name another file, or pass the checkpoint of the run "
                    "that it records to go on with it"
                )
            return Ledger.open(path, resume=True)
        assert self.setting is not None and self.adjacency is not None
        return Ledger.create(
            path,
            unit=self.job.unit,
            adjacency=self.adjacency,
            observer=self.observer,
            claim=(self.epsilon, self.delta),
            schedule="fixed",
            budget_rule=rule,
            seed_policy="operating system" if self.seed is None else "fixed",
            plan=self.job.run(self.setting),
        )


class _Scores:
    """Evaluates now and then, counts uploads, and passes every round on."""

    def __init__(self, experiment: Experiment, loop: Any, on_round: OnRound | None) -> None:
        self.experiment, self.loop, self.on_round = experiment, loop, on_round
        self.rounds: list[int] = []
        self.found: list[dict[str, float]] = []
        self.upload_bytes = 0

    def __call__(self, state: Any, info: RoundInfo) -> None:
        """Take note of one round."""
        self.upload_bytes += info.upload_bytes
        last = state.round == self.experiment.job.rounds
        if last or state.round % self.experiment.evaluate_every == 0:
            self.rounds.append(state.round)
            self.found.append(self.experiment.job.scores(self.loop, state))
        if self.on_round is not None:
            self.on_round(state, info)

    def record(self) -> RunRecord:
        """Return what was noted, for the report."""
        return RunRecord(
            accuracy=tuple(found["accuracy"] for found in self.found),
            rounds=tuple(self.rounds),
            upload_bytes=self.upload_bytes,
            scores=dict(self.found[-1]) if self.found else {},
        )
