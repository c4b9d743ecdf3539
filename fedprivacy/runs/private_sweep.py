"""The best of a random number of private runs, for little more than the price of one.

Training every setting of a grid and publishing the best one costs as much as all runs together. A
private sweep draws the number of trials at random. Every trial draws its setting, and only the best
one is shown. The sweep is accounted as ``PrivateSelection``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..audit import Audit, audit
from ..errors import LedgerError, refuse
from ..ledger import Ledger
from ..ledger.files import BINARY, NO_LINK, lock, unlock_and_close
from ..mechanisms import PrivateSelection, Trials
from ..outputs import whole_file
from ..questions.epsilon import epsilon as epsilon_of
from .sweep import Sweep

SECRET = "secret"
"""Folder of trials that are not, or not yet, chosen; deleted when the best is shown."""

MODEL = "model.pt"
"""File name of the best trial's model."""

LEDGER = "selection.ledger"
_DRAWN = "trials.json"
_ATTEMPTS = 8
"""Largest number of attempts at the price of a trial; about three suffice."""
_AIM, _NEAR = 0.998, 0.99
"""The share of the budget to aim at, and the share that is close enough."""


@dataclass(frozen=True)
class Chosen:
    """The published result of a private sweep.

    Args:
        setting: setting of the best trial; None if no trial was drawn.
        accuracy: its accuracy on the public test data; NaN if there was no trial.
        model: path of its model.
        audit: audit of the selection's ledger.
    """

    setting: Mapping[str, Any] | None
    accuracy: float
    model: Path | None
    audit: Audit


@dataclass(frozen=True, kw_only=True)
class PrivateSweep:
    """A random number of trials, each with a setting drawn evenly from a sweep's grid.

    Trials run in a folder that only their owner may read. Anyone who sees more than the best trial
    has seen unaccounted information; this includes the number of trials and their run time. A
    killed sweep resumes with the trials that it had drawn.

    Args:
        sweep: grid, folder and budget; its epsilon is that of the whole selection.
        trials: the law of the number of trials.
        public_test: whether the test data, which select the best trial, are public.

    Raises:
        ParameterError: test data that are not declared public, repeats, or no epsilon.
    """

    sweep: Sweep
    trials: Trials
    public_test: bool = False

    def __post_init__(self) -> None:
        if self.public_test is not True:
            way_out = (
                "pass --public-test if they are public; a private score is another noisy "
                "release, which belongs to the base of fedprivacy.PrivateSelection"
            )
            refuse(
                "public_test",
                self.public_test,
                "be True, since the test data select the best trial",
                way_out,
            )
        if self.sweep.seeds != 1:
            refuse("seeds", self.sweep.seeds, "be 1, since every repeat would be a trial")
        if self.sweep.epsilon is None:
            refuse("epsilon", None, "be given as the budget of the whole selection")

    @cached_property
    def trial_epsilon(self) -> float:
        """The largest epsilon of a trial that keeps the selection within the budget.

        If the grid sets the noise itself, it is the budget, and the price at the budget must fit.

        Raises:
            ParameterError: the budget does not allow a useful selection.
        """
        budget = float(self.sweep.epsilon or 0.0)
        if self.sweep.knob in self.sweep.grid:
            if (price := self._price(budget)) > budget:
                self._too_little(price)
            return budget
        found, price = self._largest_trial(budget)
        if not found:
            self._too_little(price)
        return found

    def _largest_trial(self, budget: float) -> tuple[float, float]:
        """Return the largest epsilon found for a trial, 0 for none, and the last price."""
        # A selection costs about a constant multiple of a trial, at every price of a trial.
        trial, found, price = 0.5 * budget, 0.0, math.inf
        for _ in range(_ATTEMPTS):
            price = self._price(trial)
            if price <= budget:
                found = max(found, trial)
                if price >= _NEAR * budget:
                    break
            trial *= min(max(_AIM * budget / price, 0.1), 10.0)
        return found, price

    def _too_little(self, price: float) -> NoReturn:
        rule = f"be enough for the selection, which costs {price:.4g}"
        refuse(
            "epsilon", self.sweep.epsilon, rule, "raise epsilon, draw fewer trials, or add noise"
        )

    def _price(self, trial: float) -> float:
        return epsilon_of(self._selection(trial), **self.sweep.threat).upper

    def _selection(self, trial: float) -> PrivateSelection:
        inner = replace(self.sweep, epsilon=trial)
        base, *others = dict.fromkeys(inner.plan(label) for label in inner.labels)
        return PrivateSelection(base, trials=self.trials, others=tuple(others))

    @cached_property
    def mechanism(self) -> PrivateSelection:
        """The accounted mechanism."""
        return self._selection(self.trial_epsilon)

    def check(self) -> None:
        """Refuse wrong settings before any draw.

        Raises:
            ParameterError: see the class, and ``Sweep.check``.
            UnsupportedCombination: an observer that sees more than the best.
        """
        self.sweep.check()
        _ = self.mechanism

    def run(self, on_trial: Callable[[], None] | None = None) -> Chosen:
        """Draw, train and show the best; if the sweep was shown before, show it again.

        Args:
            on_trial: called after every trial. An observer of the calls learns the secret number.

        Raises:
            ParameterError: see ``check``; or a folder with other content.
            LedgerError: another process works in the folder.
        """
        self.check()
        folder = self.sweep.folder
        ledger, chosen = folder / LEDGER, folder / "chosen.json"
        if ledger.exists():
            self._check_same(Ledger.open(ledger).description)
        with self._alone():
            if not chosen.exists():
                best = self._best(on_trial)
                # Up to here, no data has left the folder that only its owner reads.
                self._show(best, ledger, chosen)
            elif not Ledger.open(ledger).closed:
                # The best was shown before the kill. The files on disk remain the answer.
                with Ledger.open(ledger, resume=True) as known:
                    known.close()
            shutil.rmtree(folder / SECRET, ignore_errors=True)
        shown, model = json.loads(chosen.read_text(encoding="utf-8")), folder / MODEL
        return Chosen(
            setting=shown["setting"],
            accuracy=math.nan if shown["accuracy"] is None else float(shown["accuracy"]),
            model=model if model.exists() else None,
            audit=audit(ledger),
        )

    @cached_property
    def _inner(self) -> Sweep:
        """The trials as a separate sweep, within the secret folder.

        Others may query the size and times of the secret folder itself, but cannot access its
        content.
        """
        folder = self.sweep.folder / SECRET / "trials"
        return replace(self.sweep, folder=folder, epsilon=self.trial_epsilon)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the secret folder: two processes could show two selections and count one."""
        file = self._secret() / "lock"
        held = os.open(file, os.O_RDWR | os.O_CREAT | BINARY | NO_LINK, 0o600)
        try:
            self._lock(held, file)
            yield
        finally:
            unlock_and_close(held, os.getpid())

    def _lock(self, held: int, file: Path) -> None:
        folder = self.sweep.folder
        try:
            lock(held, file)
        # Its message is about ledgers.
        except LedgerError as error:
            text = "is running in another process or object; wait for it to end"
            raise LedgerError(f"the private sweep of {folder} {text}") from error

    def _secret(self) -> Path:
        """Return the secret folder, made and closed to others."""
        secret = self.sweep.folder / SECRET
        secret.mkdir(parents=True, exist_ok=True, mode=0o700)
        # An existing folder may be open to others.
        secret.chmod(0o700)
        return secret

    def _drawn(self) -> list[int]:
        """Return the setting of each trial; drawn once, and kept for a resumed sweep."""
        path = self.sweep.folder / SECRET / _DRAWN
        if not path.exists():
            if (self.sweep.folder / LEDGER).exists():
                rule = "contain the trials that are in the ledger of the selection"
                refuse("folder", str(self.sweep.folder), rule, "name another folder")
            self._secret()
            seed = self.sweep.seed_of("number of trials")
            # Without a seed, the generator starts from 256 bits of the operating system.
            generator = np.random.default_rng(secrets.randbits(256) if seed is None else seed)
            number = self.trials.draw(generator)
            settings = generator.integers(len(self.sweep.labels), size=number).tolist()
            note = {"settings": settings, "selection": self._description()}
            whole_file(path, json.dumps(note).encode(), mode=0o600)
        known = json.loads(path.read_text(encoding="utf-8"))
        self._check_same(known["selection"])
        return [int(each) for each in known["settings"]]

    def _check_same(self, known: object) -> None:
        """Refuse a folder with other content than this sweep's."""
        if known != self._description():
            rule = "be that of the same private sweep"
            refuse("folder", str(self.sweep.folder), rule, "name another folder")

    def _description(self) -> str:
        """Return a description that differs for another sweep in the same folder."""
        content = {
            "private sweep of": self.sweep.method,
            "data": self.sweep.job.data.name,
            "model": str(self.sweep.source.get("model")),
            "settings of a run": self._settings(),
            "grid": dict(self.sweep.grid),
            "trials": repr(self.trials),
            "epsilon": self.sweep.epsilon,
            "delta": self.sweep.delta,
            "adjacency": str(self.sweep.threat["adjacency"]),
            "observer": str(self.sweep.observer),
        }
        return json.dumps(content)

    def _settings(self) -> str:
        """Return a digest of every input of a run except its grid setting.

        As text, these inputs would fill every page of the ledger.
        """
        sweep = self.sweep
        source = {name: str(value) for name, value in sorted(sweep.source.items())}
        text = json.dumps([source, sweep.dropout_rate, sweep.seeds, sweep.seed])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def _best(self, on_trial: Callable[[], None] | None) -> tuple[int, int, float] | None:
        """Run the trials; return setting, repeat and accuracy of the best, the first one on ties.

        None if the law drew no trial.
        """
        best: tuple[int, int, float] | None = None
        seen: Counter[int] = Counter()
        for setting in self._drawn():
            label = self.sweep.labels[setting]
            costs = self._inner.once(label, seen[setting], None)
            self._check_priced(self._inner.ledger_of(label, seen[setting]))
            # A trial without an accuracy ranks last, even if it came first.
            if best is None or _rank(costs["accuracy"]) > _rank(best[2]):
                best = setting, seen[setting], costs["accuracy"]
            seen[setting] += 1
            if on_trial is not None:
                on_trial()
        return best

    def _check_priced(self, ledger: Path) -> None:
        """Refuse a trial whose mechanism is not accounted: it was started differently."""
        if Ledger.open(ledger).plan not in (self.mechanism.base, *self.mechanism.others):
            rule = "contain trials with the accounted noise"
            refuse("folder", str(self.sweep.folder), rule, "name another folder")

    def _show(self, best: tuple[int, int, float] | None, path: Path, target: Path) -> None:
        """Count the selection, write the best trial's model and its description, confirm."""
        run, std = self.mechanism, min(self.mechanism.noise_ratios(1.0), default=1.0)
        with Ledger.open(path, resume=True) if path.exists() else self._new(path) as ledger:
            # Started and killed: the same trials show the same result, which is counted once.
            round_ = None
            if not ledger.rounds:
                round_ = ledger.intent(run, clip_norm=1.0, noise_std=std)
            self._write(best, target)
            if round_ is not None:
                ledger.done(round_, cohort=0, arrived=0, refused=0, noise_std=std)
            ledger.close()

    def _new(self, path: Path) -> Ledger:
        sweep = self.sweep
        return Ledger.create(
            path,
            unit=sweep.job.unit,
            adjacency=sweep.threat["adjacency"],
            observer=sweep.observer,
            claim=(float(sweep.epsilon or 0.0), sweep.delta),
            seed_policy="operating system" if sweep.seed is None else "fixed",
            plan=self.mechanism,
            description=self._description(),
        )

    def _write(self, best: tuple[int, int, float] | None, target: Path) -> None:
        shown: dict[str, Any] = {"setting": None, "accuracy": None}
        if best is not None:
            setting, repeat, accuracy = best
            label = self.sweep.labels[setting]
            self._inner.model(label, repeat, self.sweep.folder / MODEL)
            shown = {"setting": label, "accuracy": None if math.isnan(accuracy) else accuracy}
        whole_file(target, json.dumps(shown, indent=1).encode() + b"\n")


def _rank(accuracy: float) -> float:
    return -math.inf if math.isnan(accuracy) else accuracy
