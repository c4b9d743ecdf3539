"""Mechanisms, and their algebra: sampling, repetition, sequence, a mechanism inside a cohort.

``Mechanism`` is what a class of a mechanism implements. ``Algebra`` is what a user writes with
mechanisms: ``step.sampled(scheme)`` samples the mechanism's own units, ``inner.in_cohort(scheme)``
samples the clients that hold them, ``m * count`` repeats a mechanism and ``a + b`` runs both.
``Combined`` is the base of the results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial, reduce
from typing import Any, Self, cast, overload

from ..errors import UnsupportedCombination, integer, member, refuse, validate_fields
from ..loss.strategies.memo import answers
from ..privacy_loss import (
    PrivacyLoss,
    asked_about,
    check_listed,
    compose_losses,
    in_words,
    merge_units,
    merged,
)
from ..registry import alike, held_by, plain_fields, registered
from ..relations import Adjacency, Facts, Observer, Unit
from ..sampling import MOST_HELD, Scheme, holding
from ..sampling.scheme import check_kind, independent_draws
from ..sampling.traits import Traits
from .noise_shares import Shared, noise_mismatch, single_uploads
from .schedules import schedule_of
from .sums import listed, together

ROUNDING = 1e-9
"""Relative shortfall of a noise std that counts as rounding."""

_UNLISTED = (
    "the unit is a record (the list of participants would reveal the membership of a client)"
)


class Algebra:
    """What users write with mechanisms; a class of a mechanism implements none of it."""

    @overload
    def sampled(self, scheme: Scheme) -> SampledMechanism: ...

    @overload
    def sampled(self, scheme: Scheme, held: int) -> SampledMechanism | HeldMechanism: ...

    def sampled(self, scheme: Scheme, held: int = 1) -> SampledMechanism | HeldMechanism:
        """Return the mechanism run on the units that ``scheme`` draws.

        Args:
            scheme: how units are drawn.
            held: largest number of drawn units that one client holds. Above 1 they are records, the
                privacy unit is the client, and a neighbour differs in all of its records (T13).

        Raises:
            ParameterError: ``held`` is not an integer from 1 to 10^9, or exceeds the population.
            UnsupportedCombination: no theorem covers a client with several records here.
        """
        if integer(1, held=held) == 1:
            return SampledMechanism(cast(Mechanism, self), scheme)
        return HeldMechanism(cast(Mechanism, self), scheme, held)

    def in_cohort(self, scheme: Scheme) -> CohortMechanism:
        """Return the mechanism run inside one client of a cohort that ``scheme`` draws.

        The privacy unit is a record of the client. A mechanism that protects clients raises.
        """
        return CohortMechanism(cast(Mechanism, self), scheme)

    def __mul__(self, count: int) -> Run:
        """Return ``count`` runs in sequence."""
        times = integer(1, count=count)
        return Run(tuple((part, k * times) for part, k in self.sequence()))

    __rmul__ = __mul__

    def __add__(self, other: Mechanism) -> Run:
        """Return this mechanism followed by another."""
        if not isinstance(other, Mechanism):
            return NotImplemented
        return Run.of(cast(Mechanism, self), other)

    def sequence(self) -> tuple[tuple[Mechanism, int], ...]:
        """Return the mechanism as (part, count) pairs, in the order of their first run."""
        return ((cast(Mechanism, self), 1),)


class Mechanism(Algebra, ABC):
    """Base class of everything with a known privacy loss.

    A class of a mechanism implements ``protects`` and ``loss_under``. Six more members state
    further properties. A property that is not stated is not assumed (docs/extending.md).
    """

    @property
    @abstractmethod
    def protects(self) -> Unit | None:
        """Privacy unit; None if the mechanism was made without one."""

    @abstractmethod
    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of one run. Users call ``privacy_loss``, which checks the result.

        Args:
            facts: the unit, the adjacency and the observer, all valid. The observer is ``final``
                only if ``traits.states_final``.

        Raises:
            UnsupportedCombination: no theorem covers the facts.
        """

    @property
    def traits(self) -> Traits:
        """The properties that theorems about sampling and nesting need; by default none."""
        return Traits()

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the public numbers: those that a release or its law shows or depends on.

        The assumptions of every Bound name them. The guarantee holds only if these numbers are
        public and the same for neighbouring data sets. By default they are the fields.

        Args:
            adjacency: how neighbouring data sets differ. A number that may differ between
                neighbours is not public.

        Returns:
            Numbers by name; None for a number that is not known here.
        """
        del adjacency
        return plain_fields(self)

    def worst_scheme(self, scheme: Scheme) -> Scheme:
        """Return the scheme as seen by an observer who knows which units cannot take part.

        Args:
            scheme: draws the units, or the clients that hold them.

        Raises:
            UnsupportedCombination: the mechanism's noise is not valid under ``scheme``.
            ParameterError: a number of the scheme contradicts one of the mechanism.
        """
        return scheme

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the std of private noise over the clip norm, for every kind of noise inside.

        Args:
            clip_norm: as a ledger states it for a round of this mechanism.

        Returns:
            Ratios above 0, as ledgers write them. For a sum: all of its noise, including colluders'
            shares. For an upload: the smallest ratio of a step. Empty if they are not known.
        """
        del clip_norm
        return frozenset()

    def knows_norm(self, clip_norm: float) -> bool:
        """Return whether a ledger's clip norm is the unit of its recorded noise.

        If it is not, an audit prices the smallest possible clip norm, and no noise is certain.
        """
        del clip_norm
        return True

    def rescaled(self, fraction: float) -> Mechanism | None:
        """Return the mechanism with a fraction of all its noise; None if no counted noise is left.

        Args:
            fraction: at least 0; above 1 for more noise.

        Raises:
            UnsupportedCombination: the mechanism with that noise has no known description.
        """
        raise UnsupportedCombination(
            f"{type(self).__name__} cannot be accounted with {fraction:g} of its noise; define "
            "its method rescaled, or account the round manually"
        )

    def privacy_loss(
        self,
        adjacency: Adjacency | str,
        observer: Observer | str = Observer.AGGREGATE,
    ) -> PrivacyLoss:
        """Return the privacy loss of one run of the mechanism.

        Args:
            adjacency: how neighbouring data sets differ.
            observer: who sees the outputs.

        Raises:
            ParameterError: an unknown adjacency or observer.
            UnsupportedCombination: no theorem covers it; the message names supported cases.
        """
        threat = member(Adjacency, adjacency=adjacency), member(Observer, observer=observer)
        facts, known = Facts(self.protects, *threat), answers()
        frozen = getattr(getattr(self, "__dataclass_params__", None), "frozen", False)
        # Only frozen values that equality describes fully can be cached by value.
        if known is None or not frozen or not self._equals_lose_alike:
            return self._checked_loss(facts)
        found: PrivacyLoss | None = known.get((self, facts))
        if found is None:
            known[self, facts] = found = self._checked_loss(facts)
        return found

    def _checked_loss(self, facts: Facts) -> PrivacyLoss:
        # The final view is a function of the aggregate view.
        at_end = facts.observer is Observer.FINAL and not self.traits.states_final
        asked = facts._replace(observer=Observer.AGGREGATE) if at_end else facts
        # A wrapper may forget to pass the facts on.
        own = asked_about(f"{type(self).__name__}.loss_under", self.loss_under(asked), asked)
        loss = self._with_public(own.seen_at_the_end() if at_end else own)
        check_listed(facts)
        if facts[1:] != (Adjacency.ADD_REMOVE, Observer.SERVER) or facts.unit is not None:
            return loss
        return replace(loss, assumptions=(*loss.assumptions, _UNLISTED))

    @cached_property
    def _equals_lose_alike(self) -> bool:
        """Whether every equal value has the same loss."""
        try:
            hash(self)
        except TypeError:  # it holds a mutable value
            return False
        return alike(self)

    def _with_public(self, loss: PrivacyLoss) -> PrivacyLoss:
        """Return the loss with this mechanism's public numbers added."""
        own = self.public(loss.facts.adjacency)
        # Under add_remove, neighbours differ in the number of units.
        if loss.facts.adjacency is not Adjacency.ADD_REMOVE and "population" not in own:
            own = own | {f"number of {loss.facts.unit or 'unit'}s": None}
        words = in_words(own)
        return replace(loss, public=merged([loss.public, words]) if loss.public else words)


def mechanisms_in(mechanism: Mechanism) -> tuple[Mechanism, ...]:
    """Return the mechanisms in a mechanism's fields, in order; those inside them are not listed."""
    return held_by(mechanism, Mechanism)  # type: ignore[type-abstract]


def check_not_nested(mechanism: Mechanism) -> None:
    """Refuse a mechanism whose loss is not valid inside another mechanism.

    Raises:
        UnsupportedCombination: its traits state a reason.
    """
    if mechanism.traits.alone:
        raise UnsupportedCombination(mechanism.traits.alone)


class UnitGiven(Mechanism):
    """A mechanism with an optional field for the privacy unit."""

    unit: Unit | str | None

    def __post_init__(self) -> None:
        validate_fields(self, partial(member, Unit), "unit", or_none=True)

    @property
    def protects(self) -> Unit | None:
        """The given unit, if any."""
        return None if self.unit is None else Unit(self.unit)


class Combined(Shared, Mechanism):
    """A mechanism that is made of the mechanisms in its fields and adds no noise to them."""

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the ratios of all mechanisms inside."""
        return frozenset().union(*(one.noise_ratios(clip_norm) for one in mechanisms_in(self)))

    def rescaled(self, fraction: float) -> Self | None:
        """Return it with the fraction of the noise of every mechanism inside."""
        return self.changed(lambda one: one.rescaled(fraction))

    def single_uploads(self) -> Self | None:
        """Return it made of the single uploads of every mechanism inside; None if one has none."""
        return self.changed(single_uploads)

    def noise_mismatch(self, *, shares: int, noise_multiplier: float) -> str:
        """Return the error text of the only mechanism inside; one number cannot check several."""
        inside = mechanisms_in(self)
        if len(inside) > 1:
            return ""
        return noise_mismatch(inside[0], shares=shares, noise_multiplier=noise_multiplier)

    def changed(self, change: Callable[[Mechanism], Mechanism | None]) -> Self | None:
        """Return it with all mechanisms inside changed; None if a change returns None."""
        made = {id(one): change(one) for one in mechanisms_in(self)}
        if any(one is None for one in made.values()):
            return None
        own: Any = self
        new = {each.name: _replaced(getattr(self, each.name), made) for each in fields(own)}
        return cast(Self, replace(own, **new))


def _replaced(value: object, made: dict[int, Mechanism | None]) -> object:
    """Return a field's value with new mechanisms in place of those with the given identities."""
    if isinstance(value, tuple):
        return tuple(_replaced(each, made) for each in value)
    return made.get(id(value), value)


class Several(Combined):
    """A mechanism made of several mechanisms with the same unit."""

    @property
    def protects(self) -> Unit | None:
        """The common unit of all parts."""
        return reduce(merge_units, (one.protects for one in mechanisms_in(self)))

    @property
    def traits(self) -> Traits:
        """The properties that hold for every part; a sample of any part counts."""
        every = [one.traits for one in mechanisms_in(self)]
        return Traits(
            zeroed_is_absent=all(one.zeroed_is_absent for one in every),
            zeroing_replaces=all(one.zeroing_replaces for one in every),
            samples_its_unit=any(one.samples_its_unit for one in every),
        )

    def worst_scheme(self, scheme: Scheme) -> Scheme:
        """Return the scheme of the part that draws a unit most often."""
        return max((x.worst_scheme(scheme) for x in mechanisms_in(self)), key=lambda y: y.rate)


@registered
@dataclass(frozen=True)
class Run(Several):
    """Mechanisms in sequence, each ``count`` times; made by ``*`` and ``+``.

    A sum keeps its two terms until its parts are read, so that a long sum takes linear time.
    """

    # Slots, because attributes in ``__dict__`` count as what a mechanism holds.
    __slots__ = ("_schedule", "_terms", "_unit")

    parts: tuple[tuple[Mechanism, int], ...]

    def __post_init__(self) -> None:
        if not self.parts:
            refuse("parts", self.parts, "contain at least one mechanism")
        try:
            pairs = tuple((part, count) for part, count in self.parts)
        except (TypeError, ValueError):
            pairs = ()
        if not pairs or not all(isinstance(part, Mechanism) for part, _ in pairs):
            way_out = "write mechanism * count, or one mechanism + another"
            refuse("parts", self.parts, "be pairs of a mechanism and a count", way_out)
        for part, _ in pairs:
            check_not_nested(part)
        settled = tuple((part, integer(1, count=count)) for part, count in pairs)
        object.__setattr__(self, "parts", settled)
        # This refuses parts with different units now.
        _ = self.protects

    @classmethod
    def of(cls, first: Mechanism, second: Mechanism) -> Run:
        """Return the first mechanism followed by the second; equal parts are merged.

        Raises:
            ParameterError: the units differ.
            UnsupportedCombination: the loss of one of them is not valid in a sequence.
        """
        # The constructor checks the parts of everything that is no run.
        terms = tuple(one if type(one) is Run else cls(one.sequence()) for one in (first, second))
        run = object.__new__(cls)
        object.__setattr__(run, "_unit", merge_units(terms[0].protects, terms[1].protects))
        object.__setattr__(run, "_terms", terms)
        return run

    def __getattr__(self, name: str) -> Any:
        """List the parts of a sum when they are first read."""
        if name != "parts":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        parts = together(listed(self))
        object.__setattr__(self, "parts", parts)
        # From here on the terms are not needed. Another thread may have listed the same parts.
        object.__setattr__(self, "_terms", None)
        return parts

    def __getstate__(self) -> dict[str, Any]:
        """Return the parts: terms may be nested deeper than a file can hold."""
        return {"parts": self.parts}

    @property
    def protects(self) -> Unit | None:
        """The common unit of all parts."""
        try:
            unit: Unit | None = self._unit
        except AttributeError:
            unit = super().protects
            object.__setattr__(self, "_unit", unit)
        return unit

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return an empty dict: the losses of the parts have their own public numbers."""
        del adjacency
        return {}

    def __hash__(self) -> int:
        """Return the hash of a few parts."""
        return hash((len(self.parts), self.parts[:: max(len(self.parts) // 8, 1)]))

    @cached_property
    def _equals_lose_alike(self) -> bool:
        parts = self.parts[: 1 if schedule_of(self) else None]
        return all(one._equals_lose_alike for one, _ in parts)

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the composed losses of the parts."""
        if (schedule := schedule_of(self)) and (found := schedule.loss(facts)):
            return found
        seen = facts.adjacency, facts.observer
        return compose_losses([(part.privacy_loss(*seen), k) for part, k in self.parts])

    def sequence(self) -> tuple[tuple[Mechanism, int], ...]:
        """Return ``parts``."""
        return self.parts


@dataclass(frozen=True)
class Drawn(Combined):
    """A mechanism whose units or clients a scheme draws; its noise is that of ``inner``."""

    inner: Mechanism
    scheme: Scheme

    def __post_init__(self) -> None:
        check_kind(self.scheme)
        check_not_nested(self.inner)

    # The unit, or the client that holds it, is sampled here.
    traits = Traits(samples_its_unit=True)

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the public numbers of the scheme and of the inner mechanism."""
        return {**self.inner.public(adjacency), **public_of(self.scheme, adjacency)}

    def noise_mismatch(self, *, shares: int, noise_multiplier: float) -> str:
        """Return the inner mechanism's error text; empty if a client may send several shares."""
        if getattr(self.scheme, "repeats", False):
            return ""
        return super().noise_mismatch(shares=shares, noise_multiplier=noise_multiplier)


@registered
@dataclass(frozen=True)
class SampledMechanism(Drawn):
    """A mechanism run on sampled units; made by ``sampled``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.traits.samples_its_unit:
            raise UnsupportedCombination(
                f"the unit is already sampled inside this mechanism, got {self.scheme}; use "
                ".in_cohort(scheme) to sample its client"
            )
        # This refuses a scheme under which the mechanism's noise is not valid.
        _ = self.inner.worst_scheme(self.scheme)

    @property
    def protects(self) -> Unit | None:
        """The inner mechanism's unit."""
        return self.inner.protects

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the scheme's loss, for the worst scheme that an observer may see."""
        drawn = self.scheme.amplify(self.inner, facts.adjacency, facts.observer)
        as_stated = asked_about(f"{type(self.scheme).__name__}.amplify", drawn, facts)
        worst = self.inner.worst_scheme(self.scheme)
        if worst == self.scheme:
            return as_stated
        if facts.adjacency is Adjacency.ADD_REMOVE:
            raise UnsupportedCombination(
                "no theorem covers add_remove with absent clients, since the draws of absent "
                f"or known clients reveal the number of others, got {self.scheme}; account for "
                "zero_out or replace_one, or pass topped_up=True"
            )
        loss = worst.amplify(self.inner, facts.adjacency, facts.observer)
        # The worst scheme gives the upper end. The stated scheme gives the attained lower end.
        return replace(loss, witness=as_stated.witness)


@registered
@dataclass(frozen=True)
class HeldMechanism(Drawn):
    """A mechanism run on sampled records, for a client that holds several of them (T13).

    Made by ``sampled(scheme, held=k)``. Every record is clipped and drawn separately. The unit is
    the client, with all its records.

    Args:
        inner: one Gaussian sum of clipped contributions of records.
        scheme: Poisson, FixedSize, WithReplacement or Everyone.
        held: largest number of records of one client, from 2 to 10^9.

    Raises:
        ParameterError: ``held`` outside its range, or above the scheme's population.
        UnsupportedCombination: no theorem covers this mechanism or scheme.
    """

    held: int

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_fields(self, partial(integer, 2), "held")
        if self.held > MOST_HELD:
            refuse("held", self.held, f"be at most {MOST_HELD}")
        if self.inner.protects is Unit.CLIENT:
            raise UnsupportedCombination(
                f"held={self.held} counts the records of a client, but the unit of this "
                "mechanism is already a client; leave out held, or make the mechanism with "
                "unit='record'"
            )
        if self.inner.traits.sum_multiplier is None:
            raise UnsupportedCombination(
                f"held={self.held} records of one client need one Gaussian sum of clipped "
                f"contributions, got {self.inner}; sample Gaussian(noise_multiplier=...) in "
                "every round, or account for a record and use group privacy: (eps, delta) "
                "becomes (k eps, delta (e^(k eps) - 1)/(e^eps - 1))"
            )
        if self.inner.worst_scheme(self.scheme) != self.scheme:
            raise UnsupportedCombination(
                f"no theorem covers absent units with held={self.held}, got {self.scheme}; "
                "leave out held"
            )
        holding(self.scheme, self.held)

    # The unit is the client that holds the records.
    protects = Unit.CLIENT

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the public numbers of scheme and mechanism, and the most records of a client."""
        return {**super().public(adjacency), "largest number of records of a client": self.held}

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the scheme's loss for a client that holds several records (T13)."""
        drawn = holding(self.scheme, self.held)
        loss = drawn.amplify(self.inner, facts.adjacency, facts.observer)
        assumed = [
            f"a client has at most {self.held} records; each is clipped and drawn independently"
        ]
        shown = facts.observer is Observer.SERVER or not independent_draws(self.scheme)
        if shown and facts.adjacency is Adjacency.REPLACE_ONE:
            assumed.append("replacement keeps the number of records of a client")
        return replace(
            loss,
            facts=loss.facts._replace(unit=Unit.CLIENT),
            assumptions=(*loss.assumptions, *assumed),
        )


@registered
@dataclass(frozen=True)
class CohortMechanism(Drawn):
    """A mechanism run inside a client that may be drawn; made by ``in_cohort``.

    T4 compares rounds with the same cohort, which holds when a record changes. Adding or removing a
    client would change who else is drawn, and the list of participants.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.protects is Unit.CLIENT:
            raise UnsupportedCombination(
                "in_cohort draws the clients of a record, but the unit of this mechanism is a "
                f"client, got {self.scheme}; use .sampled(scheme), or unit='record'"
            )
        if self.inner.worst_scheme(self.scheme) != self.scheme:
            raise UnsupportedCombination(
                f"no theorem covers absent units inside a cohort, got {self.scheme}; use .sampled"
            )

    # The unit is a client's record, also if the inner mechanism was made without a unit.
    protects = Unit.RECORD

    def worst_scheme(self, scheme: Scheme) -> Scheme:
        """Return the inner mechanism's: this scheme draws it too."""
        return self.inner.worst_scheme(scheme)

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the scheme's mixture of rounds with and without the client (T4)."""
        inner = self.inner.privacy_loss(facts.adjacency, facts.observer)
        drawn = self.scheme.group(inner.under(facts))
        return asked_about(f"{type(self.scheme).__name__}.group", drawn, facts)


def public_of(scheme: Any, adjacency: Adjacency) -> dict[str, object]:
    """Return the public numbers of a scheme; a user-defined one may lack ``public``."""
    public = getattr(scheme, "public", None)
    return plain_fields(scheme) if public is None else public(adjacency)
