"""A privacy loss: a curve together with the facts under which it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from .errors import UnsupportedCombination, refuse
from .loss import DISJOINT, IDENTITY, Curve, MostOf, check_own, compose
from .relations import Adjacency, Facts, Observer, Unit
from .rounding import rounded_up


class Witness(NamedTuple):
    """A pair of output laws that two named neighbouring data sets really produce.

    Attributes:
        curve: the pair.
        datasets: their description.
        alone: whether only the first of several equal releases is known to show the pair, because
            later ones start elsewhere.
        free: whether the unit's data can show the pair whatever the other units are, and whatever
            these data show in other releases. Sums of contributions are free. A pair that is not
            has no lower end if units are sampled, and adds up only with pairs of the same
            ``datasets`` and with free ones.
    """

    curve: Curve
    datasets: str
    alone: bool = False
    free: bool = False


def repeatable(witness: Witness | None) -> Witness | None:
    """Return a witness that every release of a run shows; None if there is none."""
    return None if witness is None or witness.alone else witness


Public = tuple[tuple[str, tuple[str, ...]], ...]
"""(name, its values as text, in order of appearance; empty if they are not known here)."""

NO_UPPER = "no theorem bounds it from above"
"""Words of a theorem whose loss has only a lower end: its curve is that of an infinite loss."""

_MOST_VALUES = 4


def without_upper(theorems: Iterable[str]) -> str | None:
    """Return the first theorem that has only a lower end, or None."""
    return next((each for each in theorems if NO_UPPER in each), None)


@dataclass(frozen=True)
class PrivacyLoss:
    """The loss of one mechanism in one orientation (present -> absent, or x -> x').

    The other orientation is ``curve.swap()``. Accountants compose the two separately.

    Attributes:
        curve: dominates every pair of neighbouring data sets at every order, so it composes.
        facts: unit, adjacency and observer.
        witness: an attained pair, for certified lower ends; None if none is known.
        theorems: theorems that the curve depends on.
        assumptions: conditions on the run that arithmetic does not check.
        public: numbers, apart from the protected data, that the release depends on; see
            ``Mechanism.public``.
        tv_error: bound on the total variation between the actual run and the laws of the curve, for
            every past. Accountants add (1 + e^epsilon) times it to delta.
    """

    curve: Curve
    facts: Facts
    witness: Witness | None = None
    theorems: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    public: Public = ()
    tv_error: float = 0.0

    def require_upper(self) -> Self:
        """Return the loss itself if a theorem bounds it from above.

        Raises:
            UnsupportedCombination: only a lower end is known. An audit may use it.
        """
        open_above = without_upper(self.theorems) if self.curve == DISJOINT else None
        if open_above is not None:
            raise UnsupportedCombination(
                f"{open_above}; these are covered: zero_out, replace_one; fp.audit judges a claim "
                "by the lower end"
            )
        return self

    @property
    def off(self) -> float:
        """An older name of ``tv_error``."""
        return self.tv_error

    @property
    def assumed(self) -> tuple[str, ...]:
        """``assumptions``, plus the assumption that the numbers in ``public`` are public."""
        rounds = getattr(self.curve, "count", 1)
        # A single round has no number of rounds that could depend on the data.
        known = self.public + ((("rounds", (str(rounds),)),) if rounds > 1 else ())
        if not known:
            return self.assumptions
        named = (name + _values(values) for name, values in known)
        return (*self.assumptions, f"{PUBLIC}: {', '.join(named)}")

    def seen_at_the_end(self) -> PrivacyLoss:
        """Return the aggregate view's loss for an observer of only the last release.

        This is post-processing: the last release is a function of all releases. The witness is
        removed, because no data sets are known to attain the loss at the end.
        """
        return replace(
            self,
            facts=self.facts._replace(observer=Observer.FINAL),
            witness=None,
            theorems=(*self.theorems, "final view: post-processing of the aggregate view"),
        )

    def under(self, facts: Facts) -> PrivacyLoss:
        """Return the same loss with other facts (post-processing, or a stated unit).

        Raises:
            UnsupportedCombination: the list of participants shows the stated unit.
            ParameterError: the units differ.
        """
        merge_units(self.facts.unit, facts.unit)
        check_listed(facts)
        return replace(self, facts=facts)


def check_listed(facts: Facts) -> None:
    """Refuse ``add_remove`` of clients for the server, which has the list of clients.

    A client on the list is present. No epsilon covers this, however the release is made.

    Raises:
        UnsupportedCombination: the facts are this combination.
    """
    if facts == (Unit.CLIENT, Adjacency.ADD_REMOVE, Observer.SERVER):
        raise UnsupportedCombination(
            "no theorem covers adjacency=add_remove, observer=server where the unit is a "
            "client (the list of participants shows membership); these are covered: "
            "zero_out/server, replace_one/server, add_remove/aggregate"
        )


def merge_units(first: Unit | None, second: Unit | None) -> Unit | None:
    """Return the common unit of two statements; two different units are refused."""
    if first is not None and second is not None and first is not second:
        refuse(
            "unit",
            str(second),
            f"agree with the other mechanism's unit {str(first)!r}",
            "account the client level and the record level separately",
        )
    return first if first is not None else second


def merge_facts(first: Facts, second: Facts) -> Facts:
    """Return the common facts of two losses.

    Raises:
        UnsupportedCombination: adjacency or observer differ.
        ParameterError: the units differ.
    """
    unit = merge_units(first.unit, second.unit)
    if second[1:] != first[1:]:
        raise UnsupportedCombination(
            f"{second.adjacency}/{second.observer} cannot be composed with "
            f"{first.adjacency}/{first.observer}; account both under one adjacency and observer"
        )
    return first._replace(unit=unit)


def asked_about(name: str, loss: object, facts: Facts) -> PrivacyLoss:
    """Check a loss returned by a user-defined mechanism or scheme, and set its unit.

    Args:
        name: name of the method that returned it.
        loss: the returned object.
        facts: the requested facts. Either side may state the unit.

    Raises:
        ParameterError: it is not a PrivacyLoss, its adjacency, observer or unit differs, or its
            curve is no pair of laws.
    """
    if not isinstance(loss, PrivacyLoss):
        refuse(name, type(loss).__name__, "return a PrivacyLoss")
    if loss.facts[1:] != facts[1:]:
        found, rule = (
            "/".join(loss.facts[1:]),
            (f"return a loss for {'/'.join(facts[1:])}, as requested"),
        )
        refuse(name, found, rule, "pass adjacency and observer to the inner mechanism")
    for curve in (loss.curve, loss.witness and loss.witness.curve):
        if curve is not None:
            check_own(curve)
    unit = merge_units(facts.unit, loss.facts.unit)
    return loss if unit is loss.facts.unit else loss.under(facts)


PUBLIC = "public, and chosen without access to the protected data"
"""First words of the assumption that names the public numbers."""


def _values(values: tuple[str, ...]) -> str:
    if not values:
        return ""
    shown = " or ".join(values[: _MOST_VALUES - 1] if len(values) > _MOST_VALUES else values)
    more = f" or {len(values) - _MOST_VALUES + 1} others" if len(values) > _MOST_VALUES else ""
    return f" = {shown}{more}"


def in_words(numbers: Mapping[str, object]) -> Public:
    """Return named numbers as text; None, and other types, are listed only by name."""
    kinds = (int, float, str)
    return tuple(
        (
            name,
            ((f"{value:.6g}" if isinstance(value, float) else str(value)),)
            if isinstance(value, kinds)
            else (),
        )
        for name, value in numbers.items()
    )


def merged(several: Iterable[Public]) -> Public:
    """Return several collections of public numbers as one; equal names keep all their values."""
    found: dict[str, dict[str, None]] = {}
    for numbers in several:
        for name, values in numbers:
            found.setdefault(name, {}).update(dict.fromkeys(values))
    return tuple((name, tuple(values)) for name, values in found.items())


def compose_losses(parts: list[tuple[PrivacyLoss, int]]) -> PrivacyLoss:
    """Compose losses with the same facts; their theorems and assumptions are joined.

    A part without a witness counts in the joint witness as a round that shows no loss. Ignoring a
    release is post-processing, so the composed witness stays attained.

    Raises:
        UnsupportedCombination: the parts' adjacency or observer differ, or there are no parts.
        ParameterError: the parts' units differ.
    """
    if not parts:
        raise UnsupportedCombination("there is no mechanism to compose; account at least one round")
    facts = parts[0][0].facts
    curves: list[tuple[Curve, int]] = []
    # Dictionaries keep the order, and each text once.
    theorems: dict[str, None] = {}
    assumptions: dict[str, None] = {}
    public, tv_errors = [], []
    for loss, count in parts:
        facts = merge_facts(facts, loss.facts)
        curves.append((loss.curve, count))
        theorems.update(dict.fromkeys(loss.theorems))
        assumptions.update(dict.fromkeys(loss.assumptions))
        public.append(loss.public)
        tv_errors.append(loss.tv_error * count)
    return PrivacyLoss(
        curve=compose(curves),
        facts=facts,
        witness=_joint_witness(
            [(loss.witness, count) for loss, count in parts if loss.witness is not None]
        ),
        theorems=tuple(theorems),
        assumptions=tuple(assumptions),
        public=merged(public),
        tv_error=rounded_up(math.fsum(tv_errors)),
    )


def _counted(parts: list[tuple[Witness, int]]) -> Iterator[tuple[Witness, int]]:
    """Yield witnesses and counts; of all pairs that only a first release shows, one counts."""
    alone = False
    for witness, count in parts:
        if not witness.alone:
            yield witness, count
        elif not alone:
            alone = True
            yield witness, 1


def _joint_witness(parts: list[tuple[Witness, int]]) -> Witness | None:
    """Return the pair that data sets show in all releases together."""
    free: list[tuple[Curve, int]] = []
    bound: dict[str, list[tuple[Curve, int]]] = {}
    names: dict[str, None] = {}
    alone = False
    for witness, count in _counted(parts):
        alone |= witness.alone
        names[witness.datasets] = None
        group = free if witness.free else bound.setdefault(witness.datasets, [])
        group.append((witness.curve, count))
    shown = [compose([*free, *group]) for group in bound.values()] or [compose(free)]
    # Data sets of different witnesses may be different ones, so the pairs do not add up.
    if len(shown) > 1 and not any(curve.components().kinds for curve in shown):
        text = "; or ".join(names)
        return Witness(MostOf(tuple(shown)), text, alone)
    # A pair without any loss is no witness.
    if shown[0] == IDENTITY:
        return None
    used = [name for name in names if name not in bound or name == next(iter(bound))]
    return Witness(shown[0], "; then ".join(used), alone, free=not bound)
