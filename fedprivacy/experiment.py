"""From a privacy budget to an audited training run: what ``train`` and ``demo`` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from .audit import RunRecord, audit
from .budget import Budget
from .calibration import Calibration, calibrate
from .errors import LedgerError, positive, probability, refuse
from .ledger import Ledger
from .mechanisms import SparsifiedPerturbation
from .relations import Adjacency, Observer, Unit
from .sampling import Poisson, expected_size
from .training import FederatedAveraging, FederatedData, RoundInfo, State, train

METHODS = {
    "fedavg": "FedAvg",
    "dp-fedavg": "DP-FedAvg",
    "fed-smp-top-k": "Fed-SMP top-k",
    "fed-smp-rand-k": "Fed-SMP rand-k",
}
"""Every method that can be trained, with its name for people."""

OnRound = Callable[[State, RoundInfo], None]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Data, a loop without privacy, and the budget that its private forms must keep.

    Args:
        data: the clients and their records.
        averaging: the loop, without a perturbation.
        rounds: how many rounds are run.
        clip_norm: norm that a client's update is clipped to.
        kept_fraction: share of the coordinates that Fed-SMP keeps, in (0, 1].
        epsilon: the budget.
        delta: the budget.
        adjacency: how neighbouring data sets differ; the unit is a client.
        observer: who looks.
        missing: how many clients of a cohort may fail to answer.
        noise_multiplier: None to calibrate it from the budget.
        evaluate_every: rounds between two evaluations on the test set.
    """

    data: FederatedData
    averaging: FederatedAveraging
    rounds: int
    clip_norm: float
    kept_fraction: float = 0.1
    epsilon: float = 8.0
    delta: float = 1e-3
    adjacency: Adjacency | str = Adjacency.ZERO_OUT
    observer: Observer | str = Observer.AGGREGATE
    missing: int = 0
    noise_multiplier: float | None = None
    evaluate_every: int = 1

    def __post_init__(self) -> None:
        positive(clip_norm=self.clip_norm)
        probability(kept_fraction=self.kept_fraction)

    def perturbation(self, method: str, noise_multiplier: float) -> SparsifiedPerturbation:
        """Return a private method's perturbation; DP-FedAvg keeps every coordinate."""
        dimension = self.averaging.flat.dimension
        kept = max(1, round(self.kept_fraction * dimension))
        scheme = self.averaging.scheme
        return SparsifiedPerturbation(
            noise_multiplier=noise_multiplier,
            clip_norm=self.clip_norm,
            kept=dimension if method == "dp-fedavg" else kept,
            dimension=dimension,
            cohort=expected_size(scheme, self.data.population),
            sparsifier="top_k" if method == "fed-smp-top-k" else "rand_k",
            missing=self.missing,
            topped_up=isinstance(scheme, Poisson),
        )

    @cached_property
    def calibration(self) -> Calibration:
        """The smallest noise multiplier that meets the budget; the same for every method.

        Sparsifying and the clip norm cancel out of the privacy loss.
        """
        return calibrate(
            lambda z: (
                self.perturbation("dp-fedavg", z).sampled(self.averaging.scheme) * self.rounds
            ),
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            observer=self.observer,
        )

    @property
    def multiplier(self) -> float:
        """The noise multiplier given, or the calibrated one."""
        if self.noise_multiplier is not None:
            return positive(noise_multiplier=self.noise_multiplier)
        return float(self.calibration.value)

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
            method: a key of ``METHODS``.
            ledger_path: where a private run is recorded; a ledger that is there already is gone
                on with, if a checkpoint is too.
            checkpoint: file that the run resumes from.
            on_round: called after every round.

        Raises:
            ParameterError: an unknown method, or a private one without a ledger.
            BudgetExhausted: the budget does not allow all rounds.
        """
        if method not in METHODS:
            refuse("method", method, f"be one of {', '.join(METHODS)}")
        scores = _Scores(self, on_round)
        if method == "fedavg":
            train(
                self.averaging,
                self.data,
                rounds=self.rounds,
                checkpoint=checkpoint,
                on_round=scores,
            )
            return scores.record()
        if ledger_path is None:
            refuse("ledger_path", None, "be given", "a private run must leave a ledger")
        return self._run_private(method, ledger_path, checkpoint, scores)

    def _run_private(
        self, method: str, path: Path, checkpoint: Path | None, scores: _Scores
    ) -> RunRecord:
        loop = replace(self.averaging, perturbation=self.perturbation(method, self.multiplier))
        budget = Budget(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            observer=self.observer,
        )
        ledger = self._ledger(path, checkpoint, loop, budget)
        try:
            train(
                loop,
                self.data,
                rounds=self.rounds,
                ledger=ledger,
                budget=budget,
                checkpoint=checkpoint,
                on_round=scores,
            )
            ledger.close()
        finally:
            ledger.release()
        return replace(scores.record(), audit=audit(path))

    def _ledger(
        self, path: Path, checkpoint: Path | None, loop: FederatedAveraging, budget: Budget
    ) -> Ledger:
        if path.exists():
            if checkpoint is None or not checkpoint.exists():
                raise LedgerError(
                    f"{path} exists already; name another file, or pass the checkpoint of the run "
                    "it records to go on with it"
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
            budget_rule=budget.rule,
            seed_policy="operating system" if loop.seed is None else "fixed",
            plan=loop.round_mechanism * self.rounds,
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
        last = state.round == self.experiment.rounds
        if last or state.round % self.experiment.evaluate_every == 0:
            accuracy, _ = self.experiment.averaging.evaluate(state, self.experiment.data)
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
