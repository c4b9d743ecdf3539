"""Fed-SMP's runs: they keep checkpoint, ledger and accuracies in a folder, and resume from there.

A run ends at a client's first update that is not finite. Without a guard the average would be NaN
from then on, and the run's best accuracy is from the rounds before. (The library leaves this update
out of the sum and continues. With ``guard`` the run does so too.) The server's own update, from the
public images, does not end a run: sorting puts NaN last, so top_k's mask is arbitrary.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...ledger import Ledger
from ...questions.epsilon import epsilon
from ...systems.averaging.loop import State
from ...training.checkpoint import Checkpoint, resumed, train
from ...training.rounds import RoundInfo
from ..base import CellRun, Values
from .settings import SmpRun, Unguarded
from .tables import ACCURACY, EPSILON, QUICK_ROUNDS, TARGETS, UPLOAD

TRAINING_IMAGES = 10_000
"""Number of images for the training loss after the last round."""
NOTES, STATE, LEDGER = "rounds.jsonl", "state.pt", "run.ledger"
"""Files of a run's folder."""


class Ended(Exception):
    """An update was not finite."""


def ledger_of(setting: SmpRun, loop: Unguarded, folder: Path) -> Ledger | None:
    """Return the run's ledger, a new one or the existing one; None without privacy."""
    if loop.round_mechanism is None:
        return None
    path = folder / LEDGER
    if path.exists():
        return Ledger.open(path, resume=True)
    return Ledger.create(
        path,
        unit="client",
        adjacency="zero_out",
        seed_policy="fixed",
        plan=loop.round_mechanism * setting.rounds,
    )


def run(
    setting: SmpRun,
    folder: Path,
    on_round: Callable[[int], None] = lambda number: None,
) -> None:
    """Run or continue one run until its rounds are done or a client's update is not finite.

    With a guard it continues without that update.

    Args:
        setting: the run.
        folder: its folder, which is made if necessary.
        on_round: called with the number of rounds that are done.
    """
    notes = folder / NOTES
    if not setting.guard and any(line["refused"] for line in lines(notes).values()):
        return
    data, loop = setting.data(), setting.loop()
    # After all checks, so that a refused run leaves no folder.
    settled(folder)
    ledger = ledger_of(setting, loop, folder)

    checkpoint, rounds = folder / STATE, _Rounds(setting, loop, data, notes)
    rounds.complete(checkpoint, ledger)

    def ended(state: State, info: RoundInfo) -> None:
        rounds.note(state, info)
        on_round(state.round)
        if info.refused and not setting.guard:
            raise Ended

    try:
        train(
            loop,
            data,
            rounds=setting.rounds,
            ledger=ledger,
            checkpoint=checkpoint,
            on_round=ended,
        )
    except Ended:
        pass
    finally:
        if ledger is not None:
            ledger.release()


@dataclass(frozen=True)
class _Rounds:
    """The lines of a run's rounds, with evaluations of some."""

    setting: SmpRun
    loop: Unguarded
    data: Any
    notes: Path

    def note(self, state: State, info: RoundInfo) -> None:
        """Write the line of a round that has ended."""
        line: dict[str, Any] = {"round": state.round, "upload_bytes": info.upload_bytes}
        line |= {"arrived": info.arrived, "refused": info.refused}
        line["trained_by"] = self.loop.trained_by
        if "top_k" in self.setting.method:
            line["public_update_finite"] = state.round not in self.loop.arbitrary
        # The server's view of the round cannot be recovered later. A run that is killed during an
        # evaluation resumes with the evaluation.
        add(self.notes, line)
        if seen := self._evaluated(state):
            add(self.notes, line | seen)

    def complete(self, checkpoint: Path, ledger: Ledger | None) -> None:
        """Evaluate the last round if the run was killed before or during its evaluation."""
        known = lines(self.notes)
        last = known.get(max(known, default=0), {})
        if last and self.setting.looks_at(last["round"]) and "accuracy" not in last:
            state = resumed(self.loop, self.data, checkpoint, ledger).state
            add(self.notes, last | self._evaluated(state))

    def _evaluated(self, state: State) -> dict[str, Any]:
        """Return the evaluation of a state, in rounds with an evaluation."""
        found: dict[str, Any] = {}
        if self.setting.looks_at(state.round):
            found["accuracy"], found["loss"] = self.loop.evaluate(state, self.data)
        if state.round == self.setting.rounds:
            images, labels = self.data.features, self.data.labels
            part = (images[:TRAINING_IMAGES], labels[:TRAINING_IMAGES])
            found["training_loss"] = self.loop.flat.evaluate(state.parameters, *part)[1]
        return found


def add(notes: Path, line: dict[str, Any]) -> None:
    """Append a round's line; an infinite loss is recorded as None."""
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in line.items()
    }
    with notes.open("a", encoding="utf-8") as file:
        file.write(json.dumps(finite) + "\n")


def settled(folder: Path) -> None:
    """Make a run's folder, or a new one if the run was killed between a round and its line."""
    checkpoint, notes = folder / STATE, folder / NOTES
    if checkpoint.exists():
        behind = Checkpoint.read(checkpoint).content["round"]
        if set(lines(notes)) != set(range(1, behind + 1)):
            shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def lines(path: Path) -> dict[int, dict[str, Any]]:
    """Return the facts of every round; for a round that was run twice, the later ones."""
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    known = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return {line["round"]: line for line in known}


def end_of(rounds: dict[int, dict[str, Any]]) -> int | None:
    """Return the first round with an update that is not finite, or None."""
    return min((number for number, line in rounds.items() if line["refused"]), default=None)


def accuracies(rounds: dict[int, dict[str, Any]], end: int | None = None) -> dict[int, float]:
    """Return the accuracy of every evaluated round before the end."""
    seen = {n: line["accuracy"] for n, line in sorted(rounds.items()) if "accuracy" in line}
    return {n: one for n, one in seen.items() if end is None or n < end}


def megabytes(setting: SmpRun, rounds: int) -> float:
    """Return the upload of a client by the paper's count, 32 k T r / n bits, in MB."""
    share = setting.task.cohort / setting.population
    return 4e-6 * setting.kept * rounds * share


# ---- cells


def accuracy(job: CellRun) -> Values:
    """Return best accuracy, upload and epsilon of a run, as in the tables."""
    setting, rounds = _ran(job)
    end, last = end_of(rounds), max(rounds)
    best = max(accuracies(rounds, end).values(), default=None)
    found: Values = {ACCURACY: None if best is None else 100.0 * best}
    found["rounds"] = last
    if end is not None:
        found["first round that is not finite"] = end
    found[UPLOAD] = megabytes(setting, last)
    mechanism = setting.loop().round_mechanism
    if mechanism is not None:
        for observer, name in (("aggregate", EPSILON), ("server", f"{EPSILON}, for the server")):
            bound = epsilon(
                mechanism * last, delta=setting.delta, adjacency="zero_out", observer=observer
            )
            found[name] = bound.upper
    return found


def to_target(job: CellRun) -> Values:
    """Return the rounds and the upload to Figure 2's accuracy; None if it is not reached."""
    setting, rounds = _ran(job)
    target, seen = TARGETS[job.data], accuracies(rounds, end_of(rounds))
    reached = next((number for number, one in seen.items() if one >= target), None)
    share = f"{100.0 * target:g} per cent"
    upload = None if reached is None else megabytes(setting, reached)
    return {f"rounds to {share}": reached, f"upload of a client to {share}, MB": upload}


def losses(job: CellRun) -> Values:
    """Return best accuracy and the last training loss of a run, as in Figure 3."""
    _, rounds = _ran(job)
    best = max(accuracies(rounds, end_of(rounds)).values(), default=None)
    return {
        ACCURACY: None if best is None else 100.0 * best,
        "training loss after the last round": rounds[max(rounds)].get("training_loss"),
    }


def _ran(job: CellRun) -> tuple[SmpRun, dict[int, dict[str, Any]]]:
    """Run or continue the run of a cell; figures and tables with the same run share it."""
    asked = job.cell.settings
    setting = SmpRun.of(
        asked["label"],
        dataset=job.data,
        seed=job.seed,
        rounds=QUICK_ROUNDS if job.quick else asked["rounds"],
        inputs=asked["inputs"],
        data_dir=job.data_dir,
    )
    folder = job.place(asked["label"])
    run(setting, folder, on_round=lambda number: job.tick(number / setting.rounds))
    return setting, lines(folder / NOTES)
