"""dp-accounting, both ways: runs as events, events as runs, and an accountant for its interface.

A ``DpEvent`` says what a mechanism does; the neighbouring relation is the accountant's. So does a
run here, and so the two are exchanged without numbers being touched. What only one of them can say
raises ``ConversionError``. Nothing else in the package imports ``dp_accounting``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

import dp_accounting as dpa

from ..bound import Bound
from ..errors import (
    ConversionError,
    FedPrivacyError,
    LedgerError,
    integer,
    listed,
    member,
    non_negative,
    open_unit,
    probability,
    refuse,
)
from ..mechanisms import (
    CohortMechanism,
    Gaussian,
    Laplace,
    Mechanism,
    Run,
    SampledMechanism,
    SparsifiedPerturbation,
)
from ..questions import epsilon as answers
from ..relations import Adjacency, Facts, Observer, Unit
from ..sampling import (
    Everyone,
    FixedSize,
    Poisson,
    Scheme,
    Shuffled,
    TruncatedPoisson,
    WithReplacement,
)

__all__ = ["CertifiedAccountant", "adjacency_of", "from_event", "relation_of", "to_event"]

MAX_DEPTH = 32
"""Deepest nesting of an event that is read."""

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
    """Return the adjacency that a neighbouring relation of dp-accounting stands for.

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
    run: Mechanism,
    *,
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
) -> dpa.DpEvent:
    """Return the event that says exactly what a run does.

    Clip norms and the unit are not part of an event: neither enters the arithmetic.

    Args:
        run: a mechanism, sampled and repeated as it really ran.
        adjacency: the accountant that will read the event must use ``relation_of(adjacency)``.
        observer: an event is about the aggregate view; another observer is served where the run
            loses the same to both.

    Raises:
        ParameterError: not a mechanism, or an unknown adjacency or observer.
        UnsupportedCombination: the run has no privacy loss under these facts.
        ConversionError: no event says it; the message names what would be lost.
    """
    if not isinstance(run, Mechanism):
        refuse("run", type(run).__name__, "be a mechanism", "pass Gaussian, for instance")
    seen = run.privacy_loss(adjacency, observer)
    event = _event(run)
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


def _event(run: Mechanism) -> dpa.DpEvent:
    writer = _WRITERS.get(type(run))
    if writer is None:
        _lost(f"what {type(run).__name__} does", "it has no event for this mechanism")
    return writer(run)


def _gaussian_event(run: Gaussian) -> dpa.DpEvent:
    return dpa.GaussianDpEvent(run.noise_multiplier)


def _laplace_event(run: Laplace) -> dpa.DpEvent:
    return dpa.LaplaceDpEvent(run.noise_multiplier)


def _sparsified_event(run: SparsifiedPerturbation) -> dpa.DpEvent:
    """One Gaussian sum, if its noise is known rather than bounded from below."""
    if run.sum_multiplier != run.noise_multiplier:
        _lost(
            f"that {run.missing} shares of the noise may be missing and {run.colluding} known",
            "an event has one noise multiplier"
            if run.colluding
            else "an event has one noise multiplier; for the worst case convert "
            f"Gaussian(noise_multiplier={run.sum_multiplier!r})",
        )
    if run.absent and not run.topped_up:
        _lost(f"that {run.absent} clients may be away", "an event has one population")
    return dpa.GaussianDpEvent(run.noise_multiplier)


def _run_event(run: Run) -> dpa.DpEvent:
    events = [
        _event(part) if count == 1 else dpa.SelfComposedDpEvent(_event(part), count)
        for part, count in run.parts
    ]
    return events[0] if len(events) == 1 else dpa.ComposedDpEvent(events)


def _sampled_event(run: SampledMechanism) -> dpa.DpEvent:
    inner, scheme = _event(run.inner), run.scheme
    if type(scheme) is Everyone:
        return inner
    if type(scheme) is Poisson:
        return dpa.PoissonSampledDpEvent(scheme.probability, inner)
    if type(scheme) is FixedSize:
        return dpa.SampledWithoutReplacementDpEvent(scheme.population, scheme.size, inner)
    if type(scheme) is TruncatedPoisson and type(inner) is dpa.GaussianDpEvent:
        return dpa.TruncatedSubsampledGaussianDpEvent(
            scheme.population, scheme.probability, scheme.largest, inner.noise_multiplier
        )
    _lost(*_UNSAID.get(type(scheme), (f"what {type(scheme).__name__} does", "it has no event")))


_UNSAID: dict[type[Scheme], tuple[str, str]] = {
    WithReplacement: (
        "that draws with replacement are independent",
        "SampledWithReplacementDpEvent makes all possible samples equally likely, which fits "
        "sequences of draws and, with other chances of repeats, collections",
    ),
    Shuffled: (
        "that every unit is in exactly one round of an epoch",
        "its sampling events draw afresh every time",
    ),
}
"""Scheme -> what no event can say of it, and why."""


def _cohort_event(run: CohortMechanism) -> dpa.DpEvent:
    if type(run.scheme) is Everyone:
        return _event(run.inner)
    _lost(
        "that the units of one client take part together",
        "its sampling events draw units one by one, which would be counted as amplification",
    )


_WRITERS: dict[type[Mechanism], Callable[[Any], dpa.DpEvent]] = {
    Gaussian: _gaussian_event,
    Laplace: _laplace_event,
    SparsifiedPerturbation: _sparsified_event,
    Run: _run_event,
    SampledMechanism: _sampled_event,
    CohortMechanism: _cohort_event,
}


# ---- an event as a run


@dataclass(frozen=True)
class _Reading:
    """What an event does: mechanisms with their counts, or something without any privacy."""

    parts: Counter[Mechanism] = field(default_factory=Counter)
    private: bool = True

    @property
    def run(self) -> Mechanism:
        """The parts as one mechanism; there must be some."""
        ((first, count), *rest) = self.parts.items()
        return first if count == 1 and not rest else Run(tuple(self.parts.items()))

    def then(self, other: _Reading, times: int = 1) -> _Reading:
        """Return this followed by ``times`` of the other."""
        repeated = Counter({part: count * times for part, count in other.parts.items()})
        return _Reading(self.parts + repeated, self.private and other.private)


_NOTHING = _Reading()
_EVERYTHING = _Reading(private=False)


def from_event(event: dpa.DpEvent, *, unit: Unit | str | None = None) -> Mechanism:
    """Return the run that an event describes.

    Events of exactly these classes are read, nested as dp-accounting allows: ``GaussianDpEvent``,
    ``LaplaceDpEvent``, ``SelfComposedDpEvent``, ``ComposedDpEvent``, ``PoissonSampledDpEvent``,
    ``SampledWithoutReplacementDpEvent``, ``TruncatedSubsampledGaussianDpEvent`` (which is
    ``TruncatedPoisson``: its ``dataset_size``, too, counts the record in question), and
    ``NoOpDpEvent`` among others.

    Args:
        event: what was done.
        unit: whose data one record of the event is; may be left out.

    Raises:
        ConversionError: another class (a subclass too), or an event that releases nothing or is
            not private at all, for which there is no mechanism.
        ParameterError: a field breaks its rule.
        UnsupportedCombination: records are sampled twice.
    """
    reading = _read(event, unit)
    if not reading.private:
        raise ConversionError(
            f"{event!r} is not private: no mechanism says so; use noise above 0, or ask "
            "CertifiedAccountant, which answers infinity"
        )
    if not reading.parts:
        raise ConversionError(f"{event!r} releases nothing: there is no mechanism to return")
    return reading.run


def _read(event: dpa.DpEvent, unit: Unit | str | None, depth: int = 0) -> _Reading:
    reader = _READERS.get(type(event))
    if reader is None:
        works = listed(kind.__name__ for kind in _READERS)
        raise ConversionError(
            f"no loss is known here for a {type(event).__name__}; these are read: {works}"
        )
    if depth > MAX_DEPTH:
        raise ConversionError(f"the event is nested deeper than {MAX_DEPTH} levels; flatten it")
    return reader(event, unit, depth + 1)


def _read_noise(kind: type[Gaussian | Laplace]) -> Callable[[Any, Any, int], _Reading]:
    def read(event: Any, unit: Any, _depth: int) -> _Reading:
        multiplier = non_negative(noise_multiplier=event.noise_multiplier)
        if multiplier == 0.0:
            return _EVERYTHING
        return _Reading(Counter({kind(noise_multiplier=multiplier, unit=unit): 1}))

    return read


def _read_repeated(event: Any, unit: Any, depth: int) -> _Reading:
    times = integer(1, count=event.count)
    return _NOTHING.then(_read(event.event, unit, depth), times)


def _read_sequence(event: Any, unit: Any, depth: int) -> _Reading:
    if not isinstance(event.events, list | tuple):
        refuse("events", event.events, "be a list of events")
    readings = [_read(each, unit, depth) for each in event.events]
    parts = Counter[Mechanism]()
    for reading in readings:
        parts.update(reading.parts)
    return _Reading(parts, all(reading.private for reading in readings))


def _read_poisson(event: Any, unit: Any, depth: int) -> _Reading:
    inner = _read(event.event, unit, depth)
    if non_negative(sampling_probability=event.sampling_probability) == 0.0:
        return _NOTHING
    return _sampled(inner, Poisson(probability(sampling_probability=event.sampling_probability)))


def _read_fixed_size(event: Any, unit: Any, depth: int) -> _Reading:
    inner = _read(event.event, unit, depth)
    population = integer(1, source_dataset_size=event.source_dataset_size)
    if integer(0, sample_size=event.sample_size) == 0:
        return _NOTHING
    return _sampled(inner, FixedSize(event.sample_size, population=population))


def _read_truncated(event: Any, unit: Any, depth: int) -> _Reading:
    """Read Poisson sampling of which at most so many take part, uniformly chosen."""
    inner = _read_noise(Gaussian)(event, unit, depth)
    chance = non_negative(sampling_probability=event.sampling_probability)
    population = integer(0, dataset_size=event.dataset_size)
    largest = integer(0, truncated_batch_size=event.truncated_batch_size)
    if chance == 0.0 or population == 0 or largest == 0:
        return _NOTHING
    chance = probability(sampling_probability=chance)
    return _sampled(inner, TruncatedPoisson(chance, population=population, largest=largest))


def _sampled(inner: _Reading, scheme: Scheme) -> _Reading:
    if not inner.private:
        return _EVERYTHING
    return _Reading(Counter({inner.run.sampled(scheme): 1})) if inner.parts else _NOTHING


_READERS: dict[type, Callable[[Any, Any, int], _Reading]] = {
    dpa.GaussianDpEvent: _read_noise(Gaussian),
    dpa.LaplaceDpEvent: _read_noise(Laplace),
    dpa.SelfComposedDpEvent: _read_repeated,
    dpa.ComposedDpEvent: _read_sequence,
    dpa.PoissonSampledDpEvent: _read_poisson,
    dpa.SampledWithoutReplacementDpEvent: _read_fixed_size,
    dpa.TruncatedSubsampledGaussianDpEvent: _read_truncated,
    dpa.NoOpDpEvent: lambda event, unit, depth: _NOTHING,
    dpa.NonPrivateDpEvent: lambda event, unit, depth: _EVERYTHING,
}
"""The classes that are read, and how."""


# ---- an accountant


class CertifiedAccountant(dpa.PrivacyAccountant):  # type: ignore[misc]
    """A ``dp_accounting.PrivacyAccountant`` that answers with certified upper ends.

    Args:
        neighboring_relation: a ``dp_accounting.NeighboringRelation``; it has no default on purpose.
        observer: who looks; an event's own reading is "aggregate".
        accountant: "pld", "rdp" or "advanced".
        tolerance: wanted width of the interval, see ``fedprivacy.epsilon``.
        unit: whose data one record of the events is; may be left out.

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
        answers.accountant_named(accountant, tolerance)
        self._settings: dict[str, Any] = {"accountant": accountant, "tolerance": tolerance}
        self._composed = _NOTHING

    def _maybe_compose(
        self, event: dpa.DpEvent, count: int, do_compose: bool
    ) -> dpa.PrivacyAccountant.CompositionErrorDetails | None:
        """Compose an event, or only say why it cannot be composed."""
        try:
            reading = _read(event, self._facts.unit)
            if reading.parts:
                reading.run.privacy_loss(*self._facts[1:])
        except FedPrivacyError as problem:
            return self.CompositionErrorDetails(invalid_event=event, error_message=str(problem))
        if do_compose:
            self._composed = self._composed.then(reading, count)
        return None

    def bound(self, target_delta: float) -> Bound:
        """Return the certified epsilon of everything composed, at a delta in (0, 1)."""
        delta = open_unit(target_delta=target_delta)
        if not (self._composed.parts and self._composed.private):
            return self._plain_bound("epsilon", delta, math.inf)
        return answers.epsilon(self._composed.run, delta=delta, **self._asked)

    def delta_bound(self, target_epsilon: float) -> Bound:
        """Return the certified delta of everything composed, at an epsilon of at least 0."""
        epsilon = non_negative(target_epsilon=target_epsilon)
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
        """Return the bound of nothing at all, or of something that is not private."""
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
            "ledger": _plain(self.ledger),
        }

    def restore(self, state: dict[str, Any]) -> Self:
        """Take the place of the accountant that ``state()`` was asked of, and return self.

        Raises:
            ParameterError: not such a state, or one for another neighbouring relation.
            LedgerError: the state holds something that is not an event read here.
        """
        if not isinstance(state, dict) or state.get("integration") != "dp_accounting":
            refuse("state", type(state).__name__, "be what state() returned")
        if state.get("version") != 1:
            refuse("version", state.get("version"), "be 1", "upgrade fedprivacy")
        relation = self.neighboring_relation
        if state.get("neighboring_relation") != relation.name:
            refuse("state", state.get("neighboring_relation"), f"be for {relation.name}")
        settings: dict[str, Any] = {name: state.get(name) for name in _SETTINGS}
        twin = type(self)(relation, **settings)
        try:
            twin.compose(_rebuilt(state.get("ledger")))
        except (dpa.UnsupportedEventError, TypeError, ValueError) as problem:
            raise LedgerError(f"accountant state is not readable: {problem}") from problem
        self.__dict__.update(twin.__dict__)
        return self


_SETTINGS = ("observer", "unit", "accountant", "tolerance")


# ---- events as JSON


def _plain_list(events: list[dpa.DpEvent]) -> list[Any]:
    return [_plain(event) for event in events]


def _plain(event: dpa.DpEvent) -> dict[str, Any]:
    """Return an event that was read as plain JSON values."""
    content = {name: to(getattr(event, name)) for name, (to, _) in _FIELDS[type(event)].items()}
    return {"type": type(event).__name__, **content}


def _rebuilt(data: Any, depth: int = 0) -> dpa.DpEvent:
    """Return the event of plain JSON values from an untrusted source.

    Raises:
        LedgerError: anything but the names and fields of the classes that are read.
    """
    if depth > MAX_DEPTH:
        raise LedgerError(f"an event is nested deeper than {MAX_DEPTH} levels")
    name = data.get("type") if isinstance(data, dict) else None
    kind = next((kind for kind in _FIELDS if kind.__name__ == name), None)
    if kind is None or set(data) != {"type", *_FIELDS[kind]}:
        raise LedgerError(f"accountant state is not readable: not an event: {data!r:.80}")
    rebuild = {field: back for field, (_, back) in _FIELDS[kind].items()}
    return kind(**{name: back(data[name], depth + 1) for name, back in rebuild.items()})


def _rebuilt_list(data: Any, depth: int) -> list[dpa.DpEvent]:
    if not isinstance(data, list):
        raise LedgerError(f"accountant state is not readable: not a list: {data!r:.80}")
    return [_rebuilt(item, depth) for item in data]


def _as_it_is(data: Any, _depth: int) -> Any:
    return data


_Field = tuple[Callable[[Any], Any], Callable[[Any, int], Any]]
_FLOAT: _Field = (float, _as_it_is)
_INT: _Field = (int, _as_it_is)
_EVENT: _Field = (_plain, _rebuilt)
_FIELDS: dict[type, dict[str, _Field]] = {
    dpa.NoOpDpEvent: {},
    dpa.NonPrivateDpEvent: {},
    dpa.GaussianDpEvent: {"noise_multiplier": _FLOAT},
    dpa.LaplaceDpEvent: {"noise_multiplier": _FLOAT},
    dpa.SelfComposedDpEvent: {"event": _EVENT, "count": _INT},
    dpa.ComposedDpEvent: {"events": (_plain_list, _rebuilt_list)},
    dpa.PoissonSampledDpEvent: {"sampling_probability": _FLOAT, "event": _EVENT},
    dpa.SampledWithoutReplacementDpEvent: {
        "source_dataset_size": _INT,
        "sample_size": _INT,
        "event": _EVENT,
    },
    dpa.TruncatedSubsampledGaussianDpEvent: {
        "dataset_size": _INT,
        "sampling_probability": _FLOAT,
        "truncated_batch_size": _INT,
        "noise_multiplier": _FLOAT,
    },
}
"""Event class -> field -> (to JSON, back). Numbers are checked when the event is read."""
