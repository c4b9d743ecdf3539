"""An accountant for Flower's own private strategies, with our bounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    PrivacySpent,
    SamplingMethod,
)

from ...bound import Bound
from ...errors import ParameterError, integer, positive, refuse
from ...mechanisms import Gaussian, Mechanism
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

    Args:
        config: Flower's: population, delta, relation, sampling and optionally the largest epsilon.
    """

    def __init__(self, config: PrivacyConfig) -> None:
        self._config = config
        self._counts = Counter[GaussianPrivacyEvent]()

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
        self._counts[event] += times

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
        events = [
            EventCount(Event(one.noise_multiplier, one.sample_size, one.population_size), count)
            for one, count in self._counts.items()
        ]
        state = AccountantState(1, METHOD, self._config_now, events)
        plain: dict[str, object] = msgspec.to_builtins(state)
        return plain

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Load a state, of this class or of Flower's accountant.

        Raises:
            ParameterError: it is not a state, or has another configuration.
        """
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
