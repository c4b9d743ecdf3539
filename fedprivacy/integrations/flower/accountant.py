"""An accountant for Flower's own private strategies, with our bounds."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from dataclasses import replace
from os import PathLike
from pathlib import Path

import msgspec
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    PrivacySpent,
    SamplingMethod,
)

from ...bound import Bound
from ...errors import LedgerError, ParameterError, integer, positive, refuse
from ...ledger import files
from ...mechanisms import Gaussian, Mechanism
from ...outputs import in_folder, whole_file
from ...questions.epsilon import delta as delta_of
from ...questions.epsilon import epsilon as epsilon_of
from ...relations import Adjacency
from ...sampling import Everyone, FixedSize, Poisson, Scheme
from ..flower_state import AccountantState, Config, Event, EventCount

METHOD = "fedprivacy-pld"
"""The value of "backend" in states of this accountant."""

_ADJACENCY = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Adjacency.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Adjacency.REPLACE_ONE,
}


class Accountant:
    """Satisfies Flower's ``PrivacyAccountant``; its epsilons are certified upper ends.

    For one of Flower's own strategies, for example ``DifferentialPrivacyServerSideFixedClipping``.
    That strategy divides by the number of clients. Its account states no other assumption: see the
    page on Flower. If the configuration has no amplification and only some clients take part, the
    account does not rely on the draw. Under add_remove, an absent client may then have left its
    place to another. The sum moves by twice the clip norm under either relation. States of Flower's
    accountant load here, and ``fedprivacy audit`` reads our states as Flower's.

    Flower composes a release after it has drawn the noise and before the sum leaves the strategy.
    With ``state``, ``compose`` returns after the release is on disk. So a killed server loses no
    release that anybody saw, and the next accountant of this file continues.

    Args:
        config: Flower's: population, delta, relation, sampling and optionally the largest epsilon.
        state: file of the state, as JSON; read if it exists. It is locked until this accountant is
            collected. None keeps the releases in memory only.

    Raises:
        ParameterError: the file has no state, or the state of another configuration.
        LedgerError: another accountant has the file.
    """

    def __init__(self, config: PrivacyConfig, *, state: str | PathLike[str] | None = None) -> None:
        self._config = config
        self._counts = Counter[GaussianPrivacyEvent]()
        self._file = None if state is None else in_folder(state=state).absolute()
        self._text: bytes | None = None
        if self._file is not None:
            self._resume(self._file)

    def _resume(self, file: Path) -> None:
        """Lock the file of the state, and continue from it."""
        with files.ledger_errors(file, "create its lock file"):
            fd = files.open_lock_file(file)
        weakref.finalize(self, files.unlock_and_close, fd, os.getpid())
        files.lock(fd, file)
        if file.exists():
            self._text = file.read_bytes()
            try:
                found = msgspec.json.decode(self._text)
            except msgspec.MsgspecError as problem:
                raise ParameterError(
                    f"state must be a file of an accountant's state, got {str(file)!r}; restore "
                    "it, or name a new file and charge its releases to another budget"
                ) from problem
            self._load(found)

    def _keep(self, counts: Counter[GaussianPrivacyEvent]) -> None:
        """Count releases, on disk first."""
        if self._file is not None:
            text = self._file.read_bytes() if self._file.exists() else None
            if text != self._text:
                raise LedgerError(
                    f"{self._file} was changed or removed since this accountant wrote it, so its "
                    "releases are unknown; restore it and create the accountant again"
                )
            text = msgspec.json.encode(self._state(counts))
            whole_file(self._file, text)
            self._text = text
        self._counts = counts

    @property
    def config(self) -> PrivacyConfig:
        """The configuration of the constructor."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Number of composed releases."""
        return self._counts.total()

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Count releases.

        Raises:
            ParameterError: a count below 1, or another population than the configuration's.
        """
        times = integer(1, count=count)
        # Refused before anything is counted.
        self._round(event)
        wanted = Counter(self._counts)
        wanted[event] += times
        self._keep(wanted)

    def get_epsilon(self, delta: float) -> float:
        """Return the certified epsilon of all releases; 0 before the first."""
        return self._upper(self._counts, delta)

    def get_delta(self, epsilon: float) -> float:
        """Return the certified delta of all releases; 0 before the first."""
        if not self._counts:
            return 0.0
        found: Bound = delta_of(self._run(self._counts), epsilon=epsilon, adjacency=self._adjacency)
        return found.upper

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """Return the amount spent, by default at the configuration's delta."""
        at = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(at), at, self.num_releases, METHOD)

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Return whether more releases would exceed an epsilon; do not count them.

        Raises:
            ParameterError: neither this call nor the configuration has an epsilon.
        """
        most = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if most is None:
            refuse("max_epsilon", None, "be given", "here or in PrivacyConfig")
        wanted = Counter(self._counts)
        wanted[event] += integer(1, count=count)
        return self._upper(wanted, self._config.target_delta) > most

    def state_dict(self) -> dict[str, object]:
        """Return the state as plain values, in Flower's form."""
        return self._state(self._counts)

    def _state(self, counts: Counter[GaussianPrivacyEvent]) -> dict[str, object]:
        events = [
            EventCount(Event(one.noise_multiplier, one.sample_size, one.population_size), count)
            for one, count in counts.items()
        ]
        state = AccountantState(1, METHOD, self._config_now, events)
        plain: dict[str, object] = msgspec.to_builtins(state)
        return plain

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Load a state, of this class or of Flower's accountant.

        Raises:
            ParameterError: it is not a state, has another configuration, or would replace releases
                that are on disk.
        """
        if self._file is not None and self._counts:
            rule = "be loaded before a release, since the releases on disk stay spent"
            refuse("state", "a state for a used file", rule, "name a new file")
        self._load(state)
        self._keep(self._counts)

    def _load(self, state: object) -> None:
        try:
            found = msgspec.convert(state, AccountantState)
        except msgspec.ValidationError as problem:
            raise ParameterError(
                f"state must be an accountant's state of schema 1, got one where {problem}; load "
                "what state_dict() returned"
            ) from problem
        if found.config != self._config_now:
            rule = "be that of this accountant, since a run has one configuration"
            refuse(
                "state's config",
                found.config,
                rule,
                "create the accountant with that configuration",
            )
        counts = Counter[GaussianPrivacyEvent]()
        for one in found.compositions:
            # An audit reads a release without noise. No accountant can continue after one.
            positive("it has no finite epsilon", noise_multiplier=one.event.noise_multiplier)
            event = GaussianPrivacyEvent(
                one.event.noise_multiplier, one.event.sample_size, one.event.population_size
            )
            self._round(event)
            counts[event] += one.count
        self._counts = counts

    @property
    def _adjacency(self) -> Adjacency:
        return _ADJACENCY[self._config.neighboring_relation]

    @property
    def _config_now(self) -> Config:
        plain = {name: getattr(self._config, name) for name in Config.__struct_fields__}
        # Flower's enumerations become text.
        return msgspec.convert({name: getattr(v, "value", v) for name, v in plain.items()}, Config)

    def _upper(self, counts: Counter[GaussianPrivacyEvent], delta: float) -> float:
        if not counts:
            return 0.0
        found: Bound = epsilon_of(self._run(counts), delta=delta, adjacency=self._adjacency)
        return found.upper

    def _run(self, counts: Counter[GaussianPrivacyEvent]) -> Mechanism:
        first, *others = (self._round(event) * count for event, count in counts.items())
        run: Mechanism = first
        for part in others:
            run = run + part
        return run

    def _round(self, event: GaussianPrivacyEvent) -> Mechanism:
        """Return one release as a mechanism."""
        if event.population_size != self._config.population_size:
            rule = f"be {self._config.population_size}, as in the configuration"
            refuse("event's population_size", event.population_size, rule)
        noise = Gaussian(noise_multiplier=event.noise_multiplier, unit="client")
        part = event.sample_size < event.population_size
        if part and self._config.sampling_method is SamplingMethod.NO_AMPLIFICATION:
            # Under replace_one a Gaussian sum already moves by two clip norms.
            moves = 2.0 if self._adjacency is Adjacency.ADD_REMOVE else 1.0
            return replace(noise, noise_multiplier=event.noise_multiplier / moves)
        return noise.sampled(self._scheme(event))

    def _scheme(self, event: GaussianPrivacyEvent) -> Scheme:
        method = self._config.sampling_method
        rate = event.sample_size / event.population_size
        if rate == 1.0:
            return Everyone()
        if method is SamplingMethod.POISSON:
            return Poisson(rate)
        return FixedSize(event.sample_size, population=event.population_size)
