"""dp-accounting in both directions: runs as events, events as runs, and its accountant interface.

A ``DpEvent`` describes the actions of a mechanism. The neighbouring relation belongs to the
accountant. A run in this package has the same division, so the two are converted without changing a
number. A feature that only one side can express raises ``ConversionError``. Only the ``dp_``
modules of this folder import ``dp_accounting``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, Self

import dp_accounting as dpa
from dp_accounting import dp_event

from .. import mechanisms, sampling
from ..bound import Bound
from ..errors import (
    ConversionError,
    LedgerError,
    ParameterError,
    at_least_zero,
    closed_unit,
    listed,
    member,
    refuse,
    require,
)
from ..questions import epsilon as answers
from ..questions.effort import Effort
from ..relations import Adjacency, Facts, Observer, Unit
from .dp_events import NOTHING, EventFacts, culprit, from_event, read
from .dp_states import plain, rebuilt

__all__ = [
    "CertifiedAccountant",
    "InvalidEventError",
    "adjacency_of",
    "from_event",
    "relation_of",
    "to_event",
]

_RELATIONS = {
    Adjacency.ADD_REMOVE: dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.ZERO_OUT: dpa.NeighboringRelation.REPLACE_SPECIAL,
    Adjacency.REPLACE_ONE: dpa.NeighboringRelation.REPLACE_ONE,
}


def relation_of(adjacency: Adjacency | str) -> dpa.NeighboringRelation:
    """Return dp-accounting's neighbouring relation for an adjacency.

    Raises:
        ParameterError: an unknown adjacency.
    """
    return _RELATIONS[member(Adjacency, adjacency=adjacency)]


def adjacency_of(relation: dpa.NeighboringRelation) -> Adjacency:
    """Return the adjacency of a neighbouring relation of dp-accounting.

    Raises:
        ParameterError: not a member of ``dp_accounting.NeighboringRelation``.
    """
    for adjacency, known in _RELATIONS.items():
        if relation is known:
            return adjacency
    names = listed(known.name for known in _RELATIONS.values())
    refuse("neighboring_relation", relation, f"be one of NeighboringRelation's {names}")


# ---- a run as an event


def to_event(
    run: mechanisms.Mechanism,
    *,
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
) -> dpa.DpEvent:
    """Return the event that describes a run exactly.

    An event has no clip norm and no unit: neither enters the arithmetic. A mechanism of another
    package is described by its method ``as_event()``, a scheme by ``as_event(inner)`` with the
    event of the inner mechanism. Both must be exact, or None.

    Args:
        run: a mechanism, sampled and repeated exactly as it ran.
        adjacency: the accountant that reads the event must use ``relation_of(adjacency)``.
        observer: an event is about the aggregate view. Another observer is accepted if the run has
            the same loss for both.

    Raises:
        ParameterError: not a mechanism, or an unknown adjacency or observer.
        UnsupportedCombination: the run has no privacy loss under these facts.
        ConversionError: no event describes the run; the message names the missing feature.
    """
    if not isinstance(run, mechanisms.Mechanism):
        refuse("run", type(run).__name__, "be a mechanism", "pass Gaussian, for example")
    # Checked first: a run without a loss under these facts has no event either.
    seen = run.privacy_loss(adjacency, observer)
    event = _event(run)
    # Accountants read an event as the aggregate view, so only an equal loss may be exported.
    if seen.curve != run.privacy_loss(adjacency).curve:
        _lost(
            "that participants are visible",
            f"observer={seen.facts.observer} loses more than an event's accountant would say",
        )
    return event


def _lost(what: str, why: str) -> NoReturn:
    raise ConversionError(
        f"dp-accounting cannot say {what}: {why}; account the run with fedprivacy.epsilon instead"
    )


def _event(run: mechanisms.Mechanism) -> dpa.DpEvent:
    writer = _WRITERS.get(type(run))
    found = _own_event(run) if writer is None else writer(run)
    if not isinstance(found, dpa.DpEvent):
        _lost(f"what {type(run).__name__} does", "it has no event for this mechanism")
    return found


def _own_event(run: mechanisms.Mechanism) -> object:
    """Return the event of a mechanism of another package, None if it defines none."""
    own = getattr(run, "as_event", None)
    return None if own is None else own()


def _gaussian_event(run: mechanisms.Gaussian) -> dpa.DpEvent:
    return dpa.GaussianDpEvent(run.noise_multiplier)


def _selection_event(run: mechanisms.PrivateSelection) -> dpa.DpEvent:
    law = run.trials
    if not isinstance(law, mechanisms.PoissonTrials | mechanisms.TruncatedNegativeBinomial):
        _lost(f"what {type(law).__name__} is", "it has two laws of the number of trials")
    if run.others:
        _lost("that trials differ", "its event has one mechanism for all of them")
    shape = law.shape if isinstance(law, mechanisms.TruncatedNegativeBinomial) else math.inf
    return dp_event.RepeatAndSelectDpEvent(_event(run.base), law.mean, shape)


def _guarantee_event(run: mechanisms.ApproximateDp) -> dpa.DpEvent:
    """One guarantee, if this version of dp-accounting has an event for it."""
    kind = getattr(dp_event, "EpsilonDeltaDpEvent", None)
    # Several points are stronger than any single one.
    if kind is None or len(run.guarantees) > 1:
        _lost("what ApproximateDp states", "it has an event for one guarantee, if any")
    return kind(*run.guarantees[0])


def _sparsified_event(run: mechanisms.SparsifiedPerturbation) -> dpa.DpEvent:
    """One Gaussian sum, if its noise is known exactly and not only bounded from below."""
    if run.counted_multiplier != run.noise_multiplier:
        _lost(
            f"that {run.missing} shares of the noise may be missing and {run.colluding} known",
            "an event has one noise multiplier"
            if run.colluding
            else "an event has one noise multiplier; for the worst case convert "
            f"Gaussian(noise_multiplier={run.counted_multiplier!r})",
        )
    # Absent clients change the population of a sample.
    if run.absent and not run.topped_up:
        _lost(f"that {run.absent} clients may be away", "an event has one population")
    return dpa.GaussianDpEvent(run.noise_multiplier)


def _run_event(run: mechanisms.Run) -> dpa.DpEvent:
    events = [
        _event(part) if count == 1 else dpa.SelfComposedDpEvent(_event(part), count)
        for part, count in run.parts
    ]
    return events[0] if len(events) == 1 else dpa.ComposedDpEvent(events)


def _sampled_event(run: mechanisms.SampledMechanism) -> dpa.DpEvent:
    inner, scheme = _event(run.inner), run.scheme
    writer: Callable[[Any, Any], object] = _SAMPLERS.get(type(scheme), _foreign_event)
    found = writer(scheme, inner)
    if isinstance(found, dpa.DpEvent):
        return found
    _lost(*_UNSAID.get(type(scheme), (f"what {type(scheme).__name__} does", "it has no event")))


def _foreign_event(scheme: sampling.Scheme, inner: dpa.DpEvent) -> object:
    """Return the event of a scheme of another package, None if it defines none."""
    foreign = getattr(scheme, "as_event", None)
    return None if foreign is None else foreign(inner)


def _truncated_event(scheme: sampling.TruncatedPoisson, inner: dpa.DpEvent) -> object:
    if type(inner) is not dpa.GaussianDpEvent:
        return None
    return dpa.TruncatedSubsampledGaussianDpEvent(
        scheme.population, scheme.probability, scheme.largest, inner.noise_multiplier
    )


_SAMPLERS: dict[type[sampling.Scheme], Callable[[Any, dpa.DpEvent], object]] = {
    sampling.Everyone: lambda _, inner: inner,
    sampling.Poisson: lambda s, inner: dpa.PoissonSampledDpEvent(s.probability, inner),
    sampling.FixedSize: lambda s, inner: dpa.SampledWithoutReplacementDpEvent(
        s.population, s.size, inner
    ),
    sampling.TruncatedPoisson: _truncated_event,
}


_UNSAID: dict[type[sampling.Scheme], tuple[str, str]] = {
    sampling.WithReplacement: (
        "that draws with replacement are independent",
        "SampledWithReplacementDpEvent makes all possible samples equally likely, which fits "
        "sequences of draws and, with other chances of repeats, collections",
    ),
    sampling.Shuffled: (
        "that every unit is in exactly one round of an epoch",
        "its sampling events draw afresh every time",
    ),
}
"""Scheme -> the feature that no event can express, and the reason."""


def _cohort_event(run: mechanisms.CohortMechanism) -> dpa.DpEvent:
    if type(run.scheme) is sampling.Everyone:
        return _event(run.inner)
    _lost(
        "that the units of one client take part together",
        "its sampling events draw units one by one, which would be counted as amplification",
    )


_WRITERS: dict[type[mechanisms.Mechanism], Callable[[Any], dpa.DpEvent]] = {
    # One Gaussian sum for the whole run, with its sensitivity rounded up and the noise down.
    mechanisms.CorrelatedNoise: lambda run: dpa.GaussianDpEvent(
        math.nextafter(run.noise_multiplier / run.sensitivity.upper, 0.0)
    ),
    mechanisms.AdaptiveClipping: _gaussian_event,
    mechanisms.Gaussian: _gaussian_event,
    mechanisms.Laplace: lambda run: dpa.LaplaceDpEvent(run.noise_multiplier),
    mechanisms.RandomizedResponse: lambda run: dpa.RandomizedResponseDpEvent(
        run.chance, run.answers
    ),
    mechanisms.DiscreteLaplace: lambda run: dp_event.DiscreteLaplaceDpEvent(
        run.noise_parameter, run.sensitivity
    ),
    mechanisms.MixtureOfGaussians: lambda run: dp_event.MixtureOfGaussiansDpEvent(
        run.standard_deviation, run.sensitivities, run.probabilities
    ),
    mechanisms.PrivateSelection: _selection_event,
    mechanisms.ConcentratedDp: lambda run: dpa.ZCDpEvent(run.rho, run.xi),
    mechanisms.ApproximateDp: _guarantee_event,
    mechanisms.SparsifiedPerturbation: _sparsified_event,
    mechanisms.Run: _run_event,
    mechanisms.SampledMechanism: _sampled_event,
    mechanisms.CohortMechanism: _cohort_event,
}


# ---- an accountant


class InvalidEventError(ParameterError, dpa.UnsupportedEventError):  # type: ignore[misc]
    """A field of an event breaks its rule: an unsupported event, and a ``ValueError``."""


class CertifiedAccountant(dpa.PrivacyAccountant):  # type: ignore[misc]
    """A ``dp_accounting.PrivacyAccountant`` that answers with certified upper ends.

    Args:
        neighboring_relation: a ``dp_accounting.NeighboringRelation``; there is no default on
            purpose.
        observer: who sees the outputs; an event itself means "aggregate".
        accountant: "pld", "rdp" or "advanced".
        tolerance: wanted width of the interval, see ``fedprivacy.epsilon``.
        unit: the meaning of one record of the events; optional.

    Raises:
        ParameterError: a value that breaks its rule.
    """

    def __init__(
        self,
        neighboring_relation: dpa.NeighboringRelation,
        *,
        observer: Observer | str = Observer.AGGREGATE,
        accountant: str = "pld",
        tolerance: float = 1e-3,
        unit: Unit | str | None = None,
    ) -> None:
        super().__init__(neighboring_relation)
        unit = None if unit is None else member(Unit, unit=unit)
        adjacency = adjacency_of(neighboring_relation)
        self._facts = Facts(unit, adjacency, member(Observer, observer=observer))
        # Checked now, so a wrong setting fails before the first question.
        Effort(accountant, tolerance)
        self._settings: dict[str, Any] = {"accountant": accountant, "tolerance": tolerance}
        self._composed = NOTHING

    def _maybe_compose(
        self, event: dpa.DpEvent, count: int, do_compose: bool
    ) -> dpa.PrivacyAccountant.CompositionErrorDetails | None:
        """Compose an event, or only return why it cannot be composed."""
        wrong = culprit(event, self._events)
        if wrong is not None:
            return self.CompositionErrorDetails(invalid_event=wrong[0], error_message=str(wrong[1]))
        if do_compose:
            self._composed = self._composed.then(read(event, self._events), count)
        return None

    @property
    def _events(self) -> EventFacts:
        return EventFacts(*self._facts)

    def compose(self, event: dpa.DpEvent, count: int = 1) -> Self:
        """Compose an event ``count`` times, and return self.

        Raises:
            InvalidEventError: a field of the event, or of an inner event, breaks its rule.
            UnsupportedEventError: the class is not supported, or has no loss under this relation.
            TypeError: not an event.
            ValueError: a count below 1.
        """
        # Checked before dp-accounting, which has a single error for all faults.
        wrong = culprit(event, self._events) if isinstance(event, dpa.DpEvent) else None
        if wrong is not None and isinstance(wrong[1], ParameterError):
            raise InvalidEventError(f"{event}: [{wrong[1]}] caused by subevent {wrong[0]}")
        # A list in the event may be changed later by its owner, so a copy is kept.
        own = rebuilt(plain(event)) if isinstance(event, dpa.DpEvent) and not wrong else event
        super().compose(own, count)
        return self

    def bound(self, target_delta: float) -> Bound:
        """Return the certified epsilon of everything composed, at a delta in [0, 1]."""
        delta = closed_unit(target_delta=target_delta)
        if not (self._composed.parts and self._composed.private):
            return self._plain_bound("epsilon", delta, math.inf)
        return answers.epsilon(self._composed.run, delta=delta, **self._asked)

    def delta_bound(self, target_epsilon: float) -> Bound:
        """Return the certified delta of everything composed, at an epsilon from 0 to infinity."""
        epsilon = at_least_zero(target_epsilon=target_epsilon)
        if not (self._composed.parts and self._composed.private):
            return self._plain_bound("delta", epsilon, 1.0)
        return answers.delta(self._composed.run, epsilon=epsilon, **self._asked)

    @property
    def _asked(self) -> dict[str, Any]:
        _, adjacency, observer = self._facts
        return {"adjacency": adjacency, "observer": observer, **self._settings}

    def get_epsilon(self, target_delta: float) -> float:
        """Return the upper end of ``bound``."""
        return self.bound(target_delta).upper

    def get_delta(self, target_epsilon: float) -> float:
        """Return the upper end of ``delta_bound``."""
        return self.delta_bound(target_epsilon).upper

    def _plain_bound(self, quantity: str, given: float, worst: float) -> Bound:
        """Return the bound of an empty composition, or of one that is not private."""
        upper = 0.0 if self._composed.private else worst
        nothing, everything = "nothing was released", "an event without privacy"
        return Bound(
            quantity=quantity,
            given=given,
            upper=upper,
            lower=0.0,
            resolution=(0.0, upper),
            witness=None,
            method=nothing if self._composed.private else everything,
            theorems=(),
            assumptions=(),
            facts=self._facts,
        )

    def state(self) -> dict[str, Any]:
        """Return the settings and everything composed as plain JSON values."""
        unit, _, observer = self._facts
        return {
            "integration": "dp_accounting",
            "version": 1,
            "neighboring_relation": self.neighboring_relation.name,
            "observer": str(observer),
            "unit": None if unit is None else str(unit),
            **self._settings,
            "ledger": plain(self.ledger),
        }

    def restore(self, state: dict[str, Any]) -> Self:
        """Load a result of ``state()`` in place of the current content, and return self.

        Raises:
            ParameterError: not a state, or one for another neighbouring relation.
            LedgerError: the state holds something that is not a supported event.
        """
        ours = isinstance(state, dict) and state.get("integration") == "dp_accounting"
        require(ours, "state", type(state).__name__, "be what state() returned")
        version, told = state.get("version"), state.get("neighboring_relation")
        require(version == 1, "version", version, "be 1", "upgrade fedprivacy")
        relation = self.neighboring_relation
        require(told == relation.name, "state", told, f"be for {relation.name}")
        settings: dict[str, Any] = {name: state.get(name) for name in _SETTINGS}
        twin = type(self)(relation, **settings)
        try:
            twin.compose(rebuilt(state.get("ledger")))
        except (dpa.UnsupportedEventError, TypeError, ValueError) as problem:
            raise LedgerError(f"accountant state is not readable: {problem}") from problem
        # Only after everything is rebuilt: a bad state leaves this accountant unchanged.
        self.__dict__.update(twin.__dict__)
        return self


_SETTINGS = ("observer", "unit", "accountant", "tolerance")
