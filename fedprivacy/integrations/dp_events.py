"""Events of dp-accounting as mechanisms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import dp_accounting as dpa
from dp_accounting import dp_event

from .. import mechanisms
from ..errors import (
    ConversionError,
    FedPrivacyError,
    integer,
    listed,
    member,
    non_negative,
    probability,
    refuse,
    require,
)
from ..relations import Adjacency, Observer, Unit
from ..rounding import rounded_up
from ..sampling import FixedSize, Poisson, Scheme, TruncatedPoisson

MAX_DEPTH = 32
"""Deepest nesting of an event that is accepted."""

_MAX_RHO = 1e9


class EventFacts(NamedTuple):
    """Facts that an event leaves open: unit, adjacency, observer, observer of stated guarantees."""

    unit: Unit | str | None = None
    adjacency: Adjacency | None = None
    observer: Observer = Observer.AGGREGATE
    stated_for: Observer = Observer.AGGREGATE


@dataclass(frozen=True)
class EventContent:
    """The content of an event: mechanisms with their counts, or a release without any privacy."""

    parts: Counter[mechanisms.Mechanism] = field(default_factory=Counter)
    private: bool = True

    @property
    def run(self) -> mechanisms.Mechanism:
        """The parts as one mechanism; there must be at least one."""
        ((first, count), *rest) = parts = _added(self.parts)
        return first if count == 1 and not rest else mechanisms.Run(tuple(parts))

    def then(self, other: EventContent, times: int = 1) -> EventContent:
        """Return this followed by ``times`` of the other."""
        repeated = Counter({part: count * times for part, count in other.parts.items()})
        return EventContent(self.parts + repeated, self.private and other.private)


def _added(parts: Counter[mechanisms.Mechanism]) -> list[tuple[mechanisms.Mechanism, int]]:
    """Return the parts, with zCDP guarantees added up: the sum is sharper than a sequence."""
    concentrated = [part for part in parts if isinstance(part, mechanisms.ConcentratedDp)]
    found = [(part, n) for part, n in parts.items() if part not in concentrated]
    for observer in dict.fromkeys(part.observer for part in concentrated):
        found += _summed({part: parts[part] for part in concentrated if part.observer == observer})
    return found


def _summed(stated: dict[mechanisms.ConcentratedDp, int]) -> list[tuple[mechanisms.Mechanism, int]]:
    """Return zCDP guarantees for one observer as one."""
    apart: list[tuple[mechanisms.Mechanism, int]] = list(stated.items())
    # A single guarantee stays as stated.
    if sum(stated.values()) < 2:
        return apart
    total = {
        name: _up(sum(n * Fraction(getattr(part, name)) for part, n in stated.items()))
        for name in ("rho", "xi")
    }
    # The mechanism does not take a larger sum.
    if max(total.values()) > _MAX_RHO:
        return apart
    return [(replace(next(iter(stated)), rho=total["rho"], xi=total["xi"]), 1)]


def _up(value: Fraction | int) -> float:
    found = float(value)
    # float() rounds to nearest: move one step up if it rounded down.
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)


NOTHING = EventContent()
EVERYTHING = EventContent(private=False)


def from_event(
    event: dpa.DpEvent,
    *,
    unit: Unit | str | None = None,
    adjacency: Adjacency | str | None = None,
    stated_for: Observer | str = Observer.AGGREGATE,
) -> mechanisms.Mechanism:
    """Return the run that an event describes.

    The supported classes are on the page "Other libraries": exactly these, nested as dp-accounting
    allows. ``TruncatedSubsampledGaussianDpEvent`` is ``TruncatedPoisson``: the ``dataset_size`` of
    both counts the record in question.

    Args:
        event: the event.
        unit: the meaning of one record of the event; optional.
        adjacency: how neighbouring data sets differ. Only for events that state a guarantee, which
            is about one adjacency (zCDP, (epsilon, delta), exponential mechanism).
        stated_for: the observer of zCDP and (epsilon, delta) guarantees in events. They may depend
            on a secret sample. Unless this is "server", the run has no loss for the server.

    Raises:
        ConversionError: another class (even a subclass); an event without a release or without any
            privacy, for which there is no mechanism; or a missing adjacency.
        ParameterError: a field breaks its rule.
        UnsupportedCombination: records are sampled twice.
    """
    known = None if adjacency is None else member(Adjacency, adjacency=adjacency)
    eyes = member(Observer, stated_for=stated_for)
    reading = read(event, EventFacts(unit, known, stated_for=eyes))
    if not reading.private:
        raise ConversionError(
            f"{event!r} is not private, so it has no mechanism; use noise above 0, or "
            "CertifiedAccountant, which returns infinity"
        )
    if not reading.parts:
        raise ConversionError(f"{event!r} releases no output, so it has no mechanism")
    return reading.run


def read(event: dpa.DpEvent, asked: EventFacts, depth: int = 0) -> EventContent:
    """Return the content of an event.

    Raises:
        ConversionError: an unsupported class.
        ParameterError: a field breaks its rule.
        UnsupportedCombination: no theorem covers its nesting.
    """
    # By exact type: a subclass may have another meaning.
    reader = READERS.get(type(event))
    if reader is None:
        raise ConversionError(_unread(type(event)))
    # Checked before going deeper: untrusted nesting must not exhaust the stack.
    if depth > MAX_DEPTH:
        raise ConversionError(f"the event is nested deeper than {MAX_DEPTH} levels; flatten it")
    return reader(event, asked, depth + 1)


def _unread(kind: type) -> str:
    why = f": {_UNREAD[kind]}" if kind in _UNREAD else ""
    works = listed(each.__name__ for each in READERS)
    return f"no loss is known for a {kind.__name__}{why}; these events are supported: {works}"


def fault(event: dpa.DpEvent, asked: EventFacts) -> FedPrivacyError | None:
    """Return why an event has no loss under the given facts; None if it has one."""
    try:
        reading = read(event, asked)
        if reading.parts:
            reading.run.privacy_loss(asked.adjacency or "", asked.observer)
    except FedPrivacyError as problem:
        return problem
    return None


def culprit(event: dpa.DpEvent, asked: EventFacts) -> tuple[dpa.DpEvent, FedPrivacyError] | None:
    """Return the innermost sub-event without a loss, and why; None if there is none."""
    problem = fault(event, asked)
    if problem is None:
        return None
    found = event, problem
    inside = iter(_children(event))
    # Descend to the innermost one. Children with a loss are skipped.
    while (child := next(inside, None)) is not None:
        problem = fault(child, asked)
        if problem is not None:
            found, inside = (child, problem), iter(_children(child))
    return found


def _children(event: Any) -> Iterable[Any]:
    if type(event) is dpa.ComposedDpEvent:
        return event.events if isinstance(event.events, list | tuple) else ()
    return (event.event,) if type(event) in _NESTS else ()


# ---- the classes one by one


def _one(mechanism: mechanisms.Mechanism) -> EventContent:
    return EventContent(Counter({mechanism: 1}))


def _read_noise(
    kind: type[mechanisms.Gaussian | mechanisms.Laplace],
) -> Callable[[Any, EventFacts, int], EventContent]:
    def reader(event: Any, asked: EventFacts, _depth: int) -> EventContent:
        multiplier = non_negative(noise_multiplier=event.noise_multiplier)
        if multiplier == 0.0:
            return EVERYTHING
        return _one(kind(noise_multiplier=multiplier, unit=asked.unit))

    return reader


def _read_repeated(event: Any, asked: EventFacts, depth: int) -> EventContent:
    times = integer(1, count=event.count)
    return NOTHING.then(read(event.event, asked, depth), times)


def _read_sequence(event: Any, asked: EventFacts, depth: int) -> EventContent:
    if not isinstance(event.events, list | tuple):
        refuse("events", event.events, "be a list of events")
    readings = [read(each, asked, depth) for each in event.events]
    # In one counter: adding readings one by one takes quadratic time.
    parts = Counter[mechanisms.Mechanism]()
    for reading in readings:
        parts.update(reading.parts)
    return EventContent(parts, all(reading.private for reading in readings))


def _read_poisson(event: Any, asked: EventFacts, depth: int) -> EventContent:
    # Read even with an empty sample: the inner event may be invalid.
    inner = read(event.event, asked, depth)
    if non_negative(sampling_probability=event.sampling_probability) == 0.0:
        return NOTHING
    return _sampled(inner, Poisson(probability(sampling_probability=event.sampling_probability)))


def _read_fixed_size(event: Any, asked: EventFacts, depth: int) -> EventContent:
    inner = read(event.event, asked, depth)
    population = integer(1, source_dataset_size=event.source_dataset_size)
    if integer(0, sample_size=event.sample_size) == 0:
        return NOTHING
    return _sampled(inner, FixedSize(event.sample_size, population=population))


def _read_truncated(event: Any, asked: EventFacts, depth: int) -> EventContent:
    """Read Poisson sampling with a maximum batch size, reduced to it uniformly at random."""
    inner = _read_noise(mechanisms.Gaussian)(event, asked, depth)
    chance = non_negative(sampling_probability=event.sampling_probability)
    population = integer(0, dataset_size=event.dataset_size)
    largest = integer(0, truncated_batch_size=event.truncated_batch_size)
    if chance == 0.0 or population == 0 or largest == 0:
        return NOTHING
    chance = probability(sampling_probability=chance)
    return _sampled(inner, TruncatedPoisson(chance, population=population, largest=largest))


def _sampled(inner: EventContent, scheme: Scheme) -> EventContent:
    # A release without privacy stays so under sampling.
    if not inner.private:
        return EVERYTHING
    return _one(inner.run.sampled(scheme)) if inner.parts else NOTHING


def _read_response(event: Any, asked: EventFacts, _depth: int) -> EventContent:
    """Read k buckets and the probability of a uniform one; one bucket only shows participation."""
    chance = non_negative(noise_parameter=event.noise_parameter)
    buckets = integer(1, num_buckets=event.num_buckets)
    require(chance <= 1.0, "noise_parameter", chance, "be a probability")
    if chance == 0.0 and buckets > 1:
        return EVERYTHING
    if buckets == 1:
        return _one(mechanisms.RandomizedResponse(chance=1.0, answers=2, unit=asked.unit))
    return _one(mechanisms.RandomizedResponse(chance=chance, answers=buckets, unit=asked.unit))


def _read_discrete_laplace(event: Any, asked: EventFacts, _depth: int) -> EventContent:
    a = non_negative(noise_parameter=event.noise_parameter)
    moves = integer(0, sensitivity=event.sensitivity)
    if moves == 0:
        return NOTHING
    if a == 0.0:
        return EVERYTHING
    return _one(mechanisms.DiscreteLaplace(noise_parameter=a, sensitivity=moves, unit=asked.unit))


def _read_mixture(event: Any, asked: EventFacts, _depth: int) -> EventContent:
    std = non_negative(standard_deviation=event.standard_deviation)
    moves, chances = _numbers(event, "sensitivities"), _numbers(event, "sampling_probs")
    # The mechanism below refuses lists of different lengths.
    moved = any(move for move, chance in zip(moves, chances, strict=False) if chance > 0.0)
    # Made even if no sensitivity is positive, to check its fields; 1 replaces 0.
    checked = mechanisms.MixtureOfGaussians(
        standard_deviation=std or 1.0,
        sensitivities=moves if moved else (1.0,) * len(moves),
        probabilities=chances,
        unit=asked.unit,
    )
    if not moved:
        return NOTHING
    return _one(checked) if std > 0.0 else EVERYTHING


def _numbers(event: Any, name: str) -> tuple[float, ...]:
    try:
        return tuple(non_negative(**{name: each}) for each in getattr(event, name))
    except TypeError:
        refuse(name, getattr(event, name), "be a sequence of numbers")


def _read_zcdp(event: Any, asked: EventFacts, _depth: int) -> EventContent:
    # An infinite guarantee is empty: everything may be released.
    if math.inf in (event.rho, event.xi):
        return EVERYTHING
    rho, xi = non_negative(rho=event.rho), non_negative(xi=event.xi)
    if rho == xi == 0.0:
        return NOTHING
    facts: dict[str, Any] = {"adjacency": _adjacency(event, asked), "unit": asked.unit}
    return _one(mechanisms.ConcentratedDp(rho=rho, xi=xi, observer=asked.stated_for, **facts))


def _adjacency(event: Any, asked: EventFacts) -> Adjacency:
    """Return the adjacency of a stated guarantee."""
    if asked.adjacency is None:
        name = type(event).__name__
        raise ConversionError(f"{name} states a guarantee under one adjacency; pass adjacency=")
    return asked.adjacency


def _guaranteed(
    epsilon: object,
    delta: object,
    event: Any,
    asked: EventFacts,
    observer: Observer = Observer.SERVER,
) -> EventContent:
    if epsilon == math.inf or delta == 1.0:
        return EVERYTHING
    point = non_negative(epsilon=epsilon), non_negative(delta=delta)
    if point == (0.0, 0.0):
        return NOTHING
    facts: dict[str, Any] = {"adjacency": _adjacency(event, asked), "unit": asked.unit}
    return _one(mechanisms.ApproximateDp(guarantees=(point,), observer=observer, **facts))


def _read_guarantee(event: Any, asked: EventFacts, _depth: int) -> EventContent:
    return _guaranteed(event.epsilon, event.delta, event, asked, asked.stated_for)


def _read_pure(event: Any, asked: EventFacts, _depth: int) -> EventContent:
    """Read an epsilon-DP mechanism. No other property is used."""
    return _guaranteed(event.epsilon, 0.0, event, asked)


def _read_discrete_gaussian(event: Any, asked: EventFacts, _depth: int) -> EventContent:
    """Read discrete Gaussian noise, in any dimension, as its zCDP guarantee.

    Canonne, Kamath and Steinke (2020), Theorem 14: integers of Euclidean sensitivity D and noise of
    scale s give D^2 / (2 s^2)-zCDP.
    """
    sigma, moves = non_negative(sigma=event.sigma), non_negative(sensitivity=event.sensitivity)
    if event.dimension is not None:
        integer(1, dimension=event.dimension)
    if moves == 0.0:
        return NOTHING
    if sigma == 0.0:
        return EVERYTHING
    rho = _up(Fraction(moves) ** 2 / (2 * Fraction(sigma) ** 2))
    return _one(
        mechanisms.ConcentratedDp(rho=rho, adjacency=_adjacency(event, asked), unit=asked.unit)
    )


def _read_tree(event: Any, asked: EventFacts, _depth: int) -> EventContent:
    """Read trees of noisy sums, with a record in one leaf of all, as a Gaussian on its path.

    Kairouz et al. (2021), appendix D: a leaf of a tree of n steps is in at most floor(log2 n) + 1
    nodes. Each node is a Gaussian sum, which zeroing out the record moves by at most C. Gaussian
    mechanisms compose in mu^2, adaptively too.
    """
    multiplier = non_negative(noise_multiplier=event.noise_multiplier)
    given = (
        event.step_counts if isinstance(event.step_counts, list | tuple) else [event.step_counts]
    )
    require(given, "step_counts", given, "contain at least one number")
    # bit_length is floor(log2 n) + 1, and 0 for no step.
    depth = max(integer(0, step_counts=each) for each in given).bit_length()
    if depth == 0:
        return NOTHING
    if multiplier == 0.0:
        return EVERYTHING
    # Rounded up: the mu is a guarantee.
    mu = math.nextafter(rounded_up(math.sqrt(depth) / multiplier), math.inf)
    return _one(mechanisms.GaussianDp(mu=mu, adjacency=Adjacency.ZERO_OUT, unit=asked.unit))


def _read_best(event: Any, asked: EventFacts, depth: int) -> EventContent:
    inner = read(event.event, asked, depth)
    # The best of no release is no release. The best of unprotected releases is unprotected.
    if not (inner.private and inner.parts):
        return inner
    # The law refuses invalid numbers.
    return _one(mechanisms.PrivateSelection(inner.run, trials=_law(event.mean, event.shape)))


def _law(mean: float, shape: float) -> mechanisms.Trials:
    if shape != math.inf:
        return mechanisms.TruncatedNegativeBinomial(mean=mean, shape=shape)
    return mechanisms.PoissonTrials(mean)


Reader = Callable[[Any, EventFacts, int], EventContent]
T = TypeVar("T")


def later(**named: T) -> dict[type, T]:
    """Return the entries for classes that only newer versions of dp-accounting have, by class."""
    kinds = ((getattr(dp_event, name, None), each) for name, each in named.items())
    return {kind: each for kind, each in kinds if kind is not None}


READERS: dict[type, Reader] = {
    dpa.GaussianDpEvent: _read_noise(mechanisms.Gaussian),
    dpa.LaplaceDpEvent: _read_noise(mechanisms.Laplace),
    dpa.SelfComposedDpEvent: _read_repeated,
    dpa.ComposedDpEvent: _read_sequence,
    dpa.PoissonSampledDpEvent: _read_poisson,
    dpa.SampledWithoutReplacementDpEvent: _read_fixed_size,
    dpa.TruncatedSubsampledGaussianDpEvent: _read_truncated,
    dpa.RandomizedResponseDpEvent: _read_response,
    dp_event.DiscreteLaplaceDpEvent: _read_discrete_laplace,
    dp_event.MixtureOfGaussiansDpEvent: _read_mixture,
    dpa.ZCDpEvent: _read_zcdp,
    dpa.SingleEpochTreeAggregationDpEvent: _read_tree,
    dp_event.RepeatAndSelectDpEvent: _read_best,
    dpa.NoOpDpEvent: lambda event, asked, depth: NOTHING,
    dpa.NonPrivateDpEvent: lambda event, asked, depth: EVERYTHING,
    **later(
        EpsilonDeltaDpEvent=_read_guarantee,
        DiscreteGaussianDpEvent=_read_discrete_gaussian,
        ExponentialMechanismDpEvent=_read_pure,
        PermuteAndFlipDpEvent=_read_pure,
    ),
}
"""The supported classes, and their readers."""

_NESTS = {
    dpa.SelfComposedDpEvent,
    dpa.PoissonSampledDpEvent,
    dpa.SampledWithoutReplacementDpEvent,
    dp_event.RepeatAndSelectDpEvent,
}
"""The classes with one inner event."""

_UNREAD: dict[type, str] = {
    dpa.SampledWithReplacementDpEvent: (
        "all possible samples are equally likely, which fits sequences of draws and, with other "
        "chances of repeats, collections; account fedprivacy's WithReplacement if draws are "
        "independent"
    ),
}
"""Why a class with fields is not supported."""
