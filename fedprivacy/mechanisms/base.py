"""The algebra of mechanisms: sampled, repeated, put in sequence, put inside a cohort.

A mechanism is a frozen value that answers one question, ``privacy_loss(adjacency, observer)``.
``step.sampled(scheme)`` samples the mechanism's own units; ``inner.in_cohort(scheme)`` samples
the clients that hold them; ``m * count`` repeats and ``a + b`` runs both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from ..errors import UnsupportedCombination, integer, member, refuse
from ..privacy_loss import PrivacyLoss, check_listed, compose_losses, merge_units
from ..relations import Adjacency, Facts, Observer, Unit
from ..sampling import Scheme

_UNLISTED = "the unit is a record (a client's membership would show in the list of participants)"


class Mechanism(ABC):
    """Anything whose privacy loss is known."""

    @property
    @abstractmethod
    def protects(self) -> Unit | None:
        """Whose data is one unit; None where the mechanism was made without saying."""

    @property
    def sum_multiplier(self) -> float | None:
        """Noise std over clip norm if this is one Gaussian sum of clipped vectors, else None.

        Theorem T9's rows of the table hold for such a sum only.
        """
        return None

    @property
    def zeroed_is_absent(self) -> bool:
        """Whether a unit that is zeroed out releases just what its absence would (T2, T10, T11).

        So it is of a sum whose noise does not depend on how many contribute. A mechanism that does
        not say so is not amplified under ``zero_out`` (T4): it may show who takes part.
        """
        return self.sum_multiplier is not None

    @property
    def zeroing_replaces(self) -> bool:
        """Whether to zero a unit out is one of the ways to replace its data (T1)."""
        return self.sum_multiplier is not None

    @property
    def samples_its_unit(self) -> bool:
        """Whether the mechanism's own units are sampled somewhere inside."""
        return False

    @abstractmethod
    def _loss(self, facts: Facts) -> PrivacyLoss:
        """Return the loss under validated facts."""

    def check_scheme(self, scheme: Scheme) -> None:  # noqa: B027
        """Raise if the mechanism's noise does not hold under ``scheme``."""

    def worst_scheme(self, scheme: Scheme) -> Scheme:
        """Return the scheme by which units look drawn to whoever knows who cannot take part."""
        return scheme

    def privacy_loss(
        self,
        adjacency: Adjacency | str,
        observer: Observer | str = Observer.AGGREGATE,
    ) -> PrivacyLoss:
        """Return the privacy loss of one run of the mechanism.

        Args:
            adjacency: how neighbouring data sets differ.
            observer: who looks.

        Raises:
            ParameterError: an unknown adjacency or observer.
            UnsupportedCombination: no theorem covers it; the message names what works.
        """
        facts = Facts(
            self.protects,
            member(Adjacency, adjacency=adjacency),
            member(Observer, observer=observer),
        )
        if facts.observer is Observer.FINAL:
            return self._loss(facts._replace(observer=Observer.AGGREGATE)).seen_at_the_end()
        loss = self._loss(facts)
        check_listed(facts)
        if facts[1:] != (Adjacency.ADD_REMOVE, Observer.SERVER) or facts.unit is not None:
            return loss
        return replace(loss, assumptions=(*loss.assumptions, _UNLISTED))

    def sampled(self, scheme: Scheme) -> SampledMechanism:
        """Return the mechanism run on the units that ``scheme`` draws."""
        return SampledMechanism(self, scheme)

    def in_cohort(self, scheme: Scheme) -> CohortMechanism:
        """Return the mechanism run inside one client of a cohort that ``scheme`` draws.

        The unit is a record that the client holds; a mechanism whose unit is the client raises.
        """
        return CohortMechanism(self, scheme)

    def __mul__(self, count: int) -> Run:
        """Return ``count`` runs in sequence."""
        times = integer(1, count=count)
        return Run(tuple((part, k * times) for part, k in self.sequence()))

    __rmul__ = __mul__

    def __add__(self, other: Mechanism) -> Run:
        """Return this mechanism followed by another."""
        if not isinstance(other, Mechanism):
            return NotImplemented
        counts: dict[Mechanism, int] = {}
        for part, count in self.sequence() + other.sequence():
            counts[part] = counts.get(part, 0) + count
        return Run(tuple(counts.items()))

    def sequence(self) -> tuple[tuple[Mechanism, int], ...]:
        """Return the mechanism as (part, count) pairs, in the order they first ran."""
        return ((self, 1),)


@dataclass(frozen=True)
class Run(Mechanism):
    """Mechanisms in sequence, each ``count`` times; made by ``*`` and ``+``."""

    parts: tuple[tuple[Mechanism, int], ...]

    def __post_init__(self) -> None:
        if not self.parts:
            refuse("parts", self.parts, "hold at least one mechanism")
        for _, count in self.parts:
            integer(1, count=count)
        _ = self.protects

    @property
    def protects(self) -> Unit | None:
        """The unit that all parts protect."""
        unit = None
        for part, _ in self.parts:
            unit = merge_units(unit, part.protects)
        return unit

    @property
    def zeroed_is_absent(self) -> bool:
        """Whether it is in every part."""
        return all(part.zeroed_is_absent for part, _ in self.parts)

    @property
    def zeroing_replaces(self) -> bool:
        """Whether it does in every part."""
        return all(part.zeroing_replaces for part, _ in self.parts)

    @property
    def samples_its_unit(self) -> bool:
        """Whether any part samples its units."""
        return any(part.samples_its_unit for part, _ in self.parts)

    def check_scheme(self, scheme: Scheme) -> None:
        """Ask every part."""
        for part, _ in self.parts:
            part.check_scheme(scheme)

    def worst_scheme(self, scheme: Scheme) -> Scheme:
        """Return the part's that draws a unit most often."""
        schemes = [part.worst_scheme(scheme) for part, _ in self.parts]
        return max(schemes, key=lambda each: each.rate)

    def _loss(self, facts: Facts) -> PrivacyLoss:
        losses = [(part.privacy_loss(facts.adjacency, facts.observer), k) for part, k in self.parts]
        return compose_losses(losses)

    def sequence(self) -> tuple[tuple[Mechanism, int], ...]:
        """Return ``parts``."""
        return self.parts


def _check_kind(scheme: object) -> None:
    if not (hasattr(scheme, "amplify") and hasattr(scheme, "group")):
        refuse("scheme", scheme, "be a sampling scheme", "pass Poisson(0.01), for instance")


@dataclass(frozen=True)
class SampledMechanism(Mechanism):
    """A mechanism run on sampled units; made by ``sampled``."""

    inner: Mechanism
    scheme: Scheme

    def __post_init__(self) -> None:
        _check_kind(self.scheme)
        if self.inner.samples_its_unit:
            raise UnsupportedCombination(
                "the unit was already sampled inside this mechanism; use .in_cohort(scheme) to "
                "sample the clients that hold it"
            )
        self.inner.check_scheme(self.scheme)

    @property
    def protects(self) -> Unit | None:
        """The inner mechanism's unit."""
        return self.inner.protects

    @property
    def samples_its_unit(self) -> bool:
        """True: this is where they are sampled."""
        return True

    def _loss(self, facts: Facts) -> PrivacyLoss:
        as_stated = self.scheme.amplify(self.inner, facts.adjacency, facts.observer)
        worst = self.inner.worst_scheme(self.scheme)
        if worst == self.scheme:
            return as_stated
        if facts.adjacency is Adjacency.ADD_REMOVE:
            raise UnsupportedCombination(
                "how often clients that are away, or known, are drawn tells how many others there "
                "are, so no theorem covers add_remove with absent; account for zero_out or "
                "replace_one, or top the noise up"
            )
        loss = worst.amplify(self.inner, facts.adjacency, facts.observer)
        return replace(loss, witness=as_stated.witness)


@dataclass(frozen=True)
class CohortMechanism(Mechanism):
    """A mechanism run inside a client that may be drawn; made by ``in_cohort``.

    T4 compares rounds with the same cohort, as it is when a record changes. A client that comes or
    goes changes who else is drawn, and is on the list of participants or is not.
    """

    inner: Mechanism
    scheme: Scheme

    def __post_init__(self) -> None:
        _check_kind(self.scheme)
        if self.inner.protects is Unit.CLIENT:
            raise UnsupportedCombination(
                "in_cohort draws the clients that hold the unit, and this mechanism's unit is a "
                "client itself; use .sampled(scheme), or unit='record'"
            )
        self.inner.check_scheme(self.scheme)
        if self.inner.worst_scheme(self.scheme) != self.scheme:
            raise UnsupportedCombination(
                "no theorem covers units that are known to be away inside a cohort; use .sampled"
            )

    @property
    def protects(self) -> Unit:
        """A record of a client, also where the inner mechanism was made without saying."""
        return Unit.RECORD

    @property
    def samples_its_unit(self) -> bool:
        """True: the units inside a client cannot be sampled again from outside."""
        return True

    def _loss(self, facts: Facts) -> PrivacyLoss:
        inner = self.inner.privacy_loss(facts.adjacency, facts.observer)
        return self.scheme.group(inner.under(facts))
