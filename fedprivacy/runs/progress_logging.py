"""Log every round of ``training.train`` to a CSV file, TensorBoard or MLflow.

Each takes two lines::

    report = progress_logging.to_csv("rounds.csv", loop, **budget)
    train(loop, data, rounds=40, on_round=report)

Every number that no epsilon covers has "not_covered" in its name. Such numbers are only for the
operator. The conditions on the epsilon, for example a fixed seed, are logged with it.

A writer whose library is not installed raises ParameterError.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import (
    ParameterError,
    UnsupportedCombination,
    claimed,
    closed_unit,
    integer,
    member,
    positive,
    require,
)
from ..evidence import Defect, priced_evidence, qualifiers
from ..ledger import Ledger
from ..mechanisms import CorrelatedRow
from ..outputs import in_folder, named, refuse_overwrite
from ..questions.epsilon import epsilon as certified
from ..relations import Adjacency, Observer
from ..training.rounds import RoundInfo

OnRound = Callable[[Any, RoundInfo], None]

_PRIVATE = ("cohort", "arrived", "refused", "upload_bytes")
"""Numbers that the server saw and no epsilon covers."""


class Meter:
    """The totals after a round, as numbers by name.

    Args:
        loop: the loop of the training, the same object.
        delta: the delta of the epsilon.
        adjacency: how neighbouring data sets differ.
        observer: who sees the outputs.
        epsilon: the budget; None if there is none.
        tolerance: of the logged epsilon.
        ledger: the ledger of the run, which records the spent rounds; required for a resumed run.

    Attributes:
        depends_on: conditions on the last logged epsilon, in words; empty if there are none.

    Raises:
        ParameterError: a value out of its range, or a loop whose denominator follows the number of
            clients under add_remove.
        UnsupportedCombination: no theorem covers the loop's rounds, or the ledger's schedule is
            adaptive. For an adaptive schedule, only a budget gives a certified bound.
    """

    def __init__(
        self,
        loop: Any,
        *,
        delta: float,
        adjacency: Adjacency | str,
        observer: Observer | str = Observer.AGGREGATE,
        epsilon: float | None = None,
        tolerance: float = 1e-2,
        ledger: Ledger | None = None,
    ) -> None:
        self.loop, self.budget, self.ledger = loop, epsilon, ledger
        if epsilon is not None:
            claimed(epsilon, delta)
        self._ask: dict[str, Any] = {
            "delta": closed_unit(delta=delta),
            "adjacency": member(Adjacency, adjacency=adjacency),
            "observer": member(Observer, observer=observer),
            "tolerance": positive(tolerance=tolerance),
        }
        self._check()
        self._last, self._aborted, self._broken = -1, 0, False
        self._before: torch.Tensor | None = None
        self.depends_on: tuple[str, ...] = ()

    def _check(self) -> None:
        """Refuse now instead of after a spent round."""
        rule, way_out = "be a Ledger or None", "pass the ledger that train writes to"
        fits = self.ledger is None or isinstance(self.ledger, Ledger)
        require(fits, "ledger", self.ledger, rule, way_out)
        if self.ledger is not None and self.ledger.schedule == "adaptive":
            raise UnsupportedCombination(
                "the schedule of the ledger depends on outputs, so the sum of its rounds has "
                "no certified epsilon; budget.spent() gives the budget of the filter"
            )
        one = getattr(self.loop, "round_mechanism", None)
        if one is not None:
            one.privacy_loss(self._ask["adjacency"], self._ask["observer"]).require_upper()
        check = getattr(self.loop, "check_adjacency", None)
        if check is not None:
            check(self._ask["adjacency"])

    def note(self, info: RoundInfo) -> None:
        """Record a round. An aborted round released no result and costs no epsilon.

        Raises:
            ParameterError: there is no ledger, and rounds ran before the first recorded one, or a
                round ran again.
        """
        known = self.ledger is not None or self.loop.round_mechanism is None
        rule = (
            "be given for a resumed run, since a crash may have spent rounds that are not in "
            "the state"
        )
        fits = known or (not self._broken and (self._last >= 0 or not info.round))
        require(fits, "ledger", None, rule, "pass the ledger that train writes to")
        rule = f"be given for repeated rounds, since round {info.round} was recorded before"
        again = not known and info.round <= self._last
        require(not again, "ledger", None, rule, "pass it, or make a new Meter for a new run")
        self._last = info.round
        self._aborted += info.aborted

    def interrupted(self) -> None:
        """Record that a round raised an error. Only a ledger knows its possible releases."""
        self._broken = True

    def __call__(self, state: Any, info: RoundInfo) -> dict[str, float]:
        """Return the numbers after a round.

        ``epsilon_upper`` is certified for the rounds in the ledger; without a ledger, for the
        rounds of the state. ``released_change`` is the norm of the change of the released values.
        It depends only on releases.

        Raises:
            LedgerError: a recorded round had so little noise that no epsilon holds.
            UnsupportedCombination: the ledger contradicts the prices of its rounds.
        """
        found = {"round": float(state.round)}
        spent = self._spent(state.round)
        if spent is not None:
            found["epsilon_upper"] = certified(spent, **self._ask).upper
            if self.budget is not None:
                found["budget_left"] = self.budget - found["epsilon_upper"]
        now = _released(state)
        if self._before is not None:
            found["released_change"] = float(torch.linalg.vector_norm(now - self._before))
        # A copy: for values in doubles, ``now`` is the state's own tensor.
        self._before = now.clone()
        return found | {f"not_covered_{name}": float(getattr(info, name)) for name in _PRIVATE}

    def _spent(self, rounds: int) -> Any:
        """Return the mechanism of the rounds so far, by their number; None for no loss."""
        one, run = self.loop.round_mechanism, getattr(self.loop, "run", None)
        if self.ledger is not None:
            rule = (
                "contain the rounds of the state, but train writes to another ledger, or this "
                "one is a copy"
            )
            whole = self.ledger.begun_rounds >= rounds
            require(
                whole, "ledger", str(self.ledger.path), rule, "pass the ledger that train writes to"
            )
            question = {name: self._ask[name] for name in ("adjacency", "observer")}
            evidence, self.depends_on = priced_evidence(
                self.ledger, self.ledger.facts._replace(**question)
            )
            return evidence.run
        if one is None:
            return None
        seeded = getattr(self.loop, "seed", None) is not None
        self.depends_on = qualifiers([Defect.FIXED_SEED] if seeded else [])
        # Rounds of one run may differ, so a sampler itself gives the mechanism of its run. A round
        # without any answer is spent.
        if run is not None:
            return run(rounds)
        # The first row of correlated noise pays for all rows.
        count = rounds - self._aborted
        return one if isinstance(one, CorrelatedRow) else one * count if count else None


def _released(state: Any) -> torch.Tensor:
    """Return the released values in a state."""
    for name in ("parameters", "positions", "models"):
        if hasattr(state, name):
            return torch.as_tensor(getattr(state, name)).double()
    return torch.zeros(1, dtype=torch.float64)


def to_csv(path: str | Path, loop: Any, *, every: int = 1, **budget: Any) -> OnRound:
    """Return a function that appends one line a round to a CSV file; an own file is continued.

    Args:
        path: the file.
        loop: the loop of the training.
        every: rounds between two lines.
        budget: see ``Meter``.

    Raises:
        ParameterError: the existing file has another format; or see ``Meter``.
    """
    target = in_folder(path=path)
    # Checked before a round is spent, not when the first line is written.
    refuse_overwrite(target)
    require(not target.is_dir(), "path", str(path), "be a file or a new name", "it is a folder")
    names = ("round", "epsilon_upper", "budget_left", "released_change")
    columns = [*names, *(f"not_covered_{name}" for name in _PRIVATE), "depends_on"]
    _check_table(target, columns)

    def write(numbers: dict[str, float], depends_on: str, step: int) -> None:
        del step
        refuse_overwrite(target)
        fresh = not target.exists() or not target.stat().st_size
        # Opened for each line, so the written lines survive a kill.
        with named(target), open(target, "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            if fresh:
                writer.writeheader()
            elif _torn(target):
                file.write("\r\n")
            writer.writerow({**numbers, "depends_on": depends_on})

    return _RoundCallback(write, Meter(loop, **budget), every)


def to_tensorboard(folder: str | Path, loop: Any, *, every: int = 1, **budget: Any) -> OnRound:
    """Return a function that writes TensorBoard scalars to a folder, under "privacy/".

    See ``to_csv``.
    """
    with _installed("TensorBoard"):
        from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(str(folder))

    def write(numbers: dict[str, float], depends_on: str, step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(f"privacy/{name}", value, step)
        if depends_on:
            writer.add_text("privacy/depends_on", depends_on, step)
        writer.flush()

    return _RoundCallback(write, Meter(loop, **budget), every)


def to_mlflow(loop: Any, *, every: int = 1, **budget: Any) -> OnRound:
    """Return a function that logs metrics to MLflow's active run, under "privacy/".

    See ``to_csv``.
    """
    with _installed("MLflow"):
        import mlflow

    def write(numbers: dict[str, float], depends_on: str, step: int) -> None:
        mlflow.log_metrics({f"privacy/{name}": v for name, v in numbers.items()}, step=step)
        # Also set if empty: otherwise the value of an earlier run with the same name would remain.
        mlflow.set_tag("privacy/depends_on", depends_on)

    return _RoundCallback(write, Meter(loop, **budget), every)


def _check_table(target: Path, columns: list[str]) -> None:
    """Refuse a file with other columns than the appended lines."""
    if not target.exists() or not target.stat().st_size:
        return
    head = ",".join(columns)
    # Read no more than is compared: the file may be anything.
    with named(target), open(target, "rb") as file:
        found = file.readline(len(head) + 2)
    rule, way_out = f"be a new name, or a table with the columns {head}", "use another name"
    require(found.rstrip(b"\r\n") == head.encode(), "path", str(target), rule, way_out)


def _torn(target: Path) -> bool:
    """Return whether a table's last line has no end, because its writer was killed."""
    with open(target, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


@contextmanager
def _installed(library: str) -> Iterator[None]:
    way_out = "pip install 'fedprivacy[progress]', or write a file with to_csv"
    try:
        yield
    except ImportError as error:
        raise ParameterError(f"{library} is not installed; {way_out}") from error


@dataclass(frozen=True)
class _RoundCallback:
    """The callback of ``training.train`` after every round."""

    write: Callable[[dict[str, float], str, int], None]
    meter: Meter
    every: int

    def __post_init__(self) -> None:
        integer(1, every=self.every)

    def __call__(self, state: Any, info: RoundInfo) -> None:
        # Every round is recorded, but only some are written.
        self.meter.note(info)
        if state.round % self.every == 0:
            numbers = self.meter(state, info)
            self.write(numbers, "; ".join(self.meter.depends_on), state.round)

    def interrupted(self) -> None:
        """Record a round that raised an error."""
        self.meter.interrupted()
