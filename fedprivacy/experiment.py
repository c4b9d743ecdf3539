"""From a privacy budget to an audited training run: what ``train`` and ``demo`` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from .audit import RunRecord, audit
from .budget import Budget
from .calibration import Calibration, calibrate
from .errors import BudgetExhausted, LedgerError, integer, positive, refuse
from .ledger import Ledger
from .mechanisms import Mechanism, SparsifiedPerturbation
from .relations import Adjacency, Observer, Unit
from .training import FederatedAveraging, RoundInfo, State, train
from .training.presets import METHODS, Preset

TITLES = dict(zip(METHODS, ("FedAvg", "DP-FedAvg", "Fed-SMP top-k", "Fed-SMP rand-k"), strict=True))
"""Every method that can be trained, with its name for people."""

OnRound = Callable[[State, RoundInfo], None]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A data set, the settings of a run on it, and the budget that its private forms must keep.

    Args:
        preset: data, loop, rounds, clip norm and share of the coordinates kept.
        epsilon: the budget.
        delta: the budget.
        adjacency: how neighbouring data sets differ; the unit is a client.
        observer: who looks.
        missing: how many clients of a cohort may fail to answer, at worst.
        noise_multiplier: None to calibrate it from the budget.
        seed: None for randomness from the operating system, as privacy needs.
        evaluate_every: rounds between two evaluations on the test set.
    """

    preset: Preset
    epsilon: float
    delta: float
    adjacency: Adjacency | str = Adjacency.ZERO_OUT
    observer: Observer | str = Observer.AGGREGATE
    missing: int = 0
    noise_multiplier: float | None = None
    seed: int | None = None
    evaluate_every: int = 1

    def __post_init__(self) -> None:
        integer(1, evaluate_every=self.evaluate_every)
        if self.noise_multiplier is not None:
            positive(noise_multiplier=self.noise_multiplier)

    def loop(self, method: str, noise_multiplier: float | None = None) -> FederatedAveraging:
        """Return a method's loop with a noise multiplier."""
        loop = self.preset.loop(method, noise_multiplier=noise_multiplier, seed=self.seed)
        if not isinstance(loop.perturbation, SparsifiedPerturbation):
            return loop
        return replace(loop, perturbation=replace(loop.perturbation, missing=self.missing))

    @cached_property
    def calibration(self) -> Calibration:
        """The smallest noise multiplier that meets the budget; the same for every method.

        Sparsifying and the clip norm cancel out of the privacy loss.
        """

        def run(noise_multiplier: float) -> Mechanism:
            one = self.loop("dp-fedavg", noise_multiplier).round_mechanism
            assert one is not None
            return one * self.preset.rounds

        return calibrate(
            run,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            observer=self.observer,
        )

    @property
    def multiplier(self) -> float:
        """The noise multiplier given, or the calibrated one."""
        given = self.noise_multiplier
        return float(self.calibration.value) if given is None else given

    def run(
        self,
        method: str,
        *,
        ledger_path: Path | None = None,
        checkpoint: Path | None = None,
        on_round: OnRound | None = None,
    ) -> RunRecord:
        """Train with one method; a private one is recorded, kept within the budget and audited.

        Args:
            method: one of ``training.presets.METHODS``.
            ledger_path: where a private run is recorded; a ledger that is there already is gone
                on with, if a checkpoint is there too.
            checkpoint: file that the run resumes from.
            on_round: called after every round.

        Raises:
            ParameterError: an unknown method, or a private one without a ledger.
            LedgerError: the ledger exists and there is no checkpoint to go on from.
            BudgetExhausted: the budget does not allow all rounds.
        """
        scores = _Scores(self, on_round)
        rounds = self.preset.rounds
        if method == "fedavg":
            plain = self.loop(method)
            train(plain, self.preset.data, rounds=rounds, checkpoint=checkpoint, on_round=scores)
            return scores.record()
        if ledger_path is None:
            refuse("ledger_path", None, "be given", "a private run must leave a ledger")
        loop = self.loop(method, self.multiplier)
        self._train_privately(loop, ledger_path, checkpoint, scores)
        return replace(scores.record(), audit=audit(ledger_path))

    def _train_privately(
        self, loop: FederatedAveraging, path: Path, checkpoint: Path | None, on_round: OnRound
    ) -> None:
        budget = Budget(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            observer=self.observer,
        )
        ledger = self._ledger(path, checkpoint, loop, budget.rule)
        before = ledger.spent_rounds
        try:
            train(
                loop,
                self.preset.data,
                rounds=self.preset.rounds,
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
                f"released was run again, so fewer than {self.preset.rounds} rounds fit; the "
                "last checkpoint holds the model"
            ) from problem
        finally:
            ledger.release()

    def _ledger(
        self, path: Path, checkpoint: Path | None, loop: FederatedAveraging, rule: str
    ) -> Ledger:
        if path.exists():
            if checkpoint is None or not checkpoint.exists():
                raise LedgerError(
                    f"{path} exists already; name another file, or pass the checkpoint of the run "
                    "that it records to go on with it"
                )
            return Ledger.open(path, resume=True)
        assert loop.round_mechanism is not None
        return Ledger.create(
            path,
            unit=Unit.CLIENT,
            adjacency=self.adjacency,
            observer=self.observer,
            claim=(self.epsilon, self.delta),
            schedule="fixed",
            budget_rule=rule,
            seed_policy="operating system" if loop.seed is None else "fixed",
            plan=loop.round_mechanism * self.preset.rounds,
        )


class _Scores:
    """Evaluates now and then, counts uploads, and passes every round on."""

    def __init__(self, experiment: Experiment, on_round: OnRound | None) -> None:
        self.experiment, self.on_round = experiment, on_round
        self.rounds: list[int] = []
        self.accuracy: list[float] = []
        self.upload_bytes = 0

    def __call__(self, state: State, info: RoundInfo) -> None:
        """Take note of one round."""
        self.upload_bytes += info.upload_bytes
        experiment = self.experiment
        last = state.round == experiment.preset.rounds
        if last or state.round % experiment.evaluate_every == 0:
            averaging = experiment.preset.averaging
            accuracy, _ = averaging.evaluate(state, experiment.preset.data)
            self.rounds.append(state.round)
            self.accuracy.append(accuracy)
        if self.on_round is not None:
            self.on_round(state, info)

    def record(self) -> RunRecord:
        """Return what was noted, for the report."""
        return RunRecord(
            accuracy=tuple(self.accuracy),
            rounds=tuple(self.rounds),
            upload_bytes=self.upload_bytes,
        )
