"""Runs as events of dp-accounting, and its neighbouring relations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import dp_accounting as dpa
from dp_accounting import dp_event

from .. import mechanisms, sampling
from ..errors import ConversionError, listed, member, refuse
from ..relations import Adjacency, Observer

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

    An event has no clip norm and no unit: neither enters the arithmetic.

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
    # Mechanisms of other packages may define their event.
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
        "its sampling events draw independently in every round",
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
