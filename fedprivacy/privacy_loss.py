"""A privacy loss: a curve together with the facts under which it is true."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from .errors import UnsupportedCombination, refuse
from .loss import IDENTITY, Curve, compose
from .relations import Adjacency, Facts, Observer, Unit
from .rounding import FEW


class Witness(NamedTuple):
    """A pair of outputs that two named neighbouring data sets really produce."""

    curve: Curve
    datasets: str


Public = tuple[tuple[str, tuple[str, ...]], ...]
"""(name, its values in words, in the order they came; none where they are not known here)."""

_MOST_VALUES = 4


@dataclass(frozen=True)
class PrivacyLoss:
    """What one mechanism loses, in one orientation (present -> absent, or x -> x').

    The other orientation is ``curve.swap()``; accountants compose the two apart.

    Attributes:
        curve: dominates every pair of neighbouring data sets, at every order, so it composes.
        facts: unit, adjacency and observer.
        witness: an attained pair, for certified lower ends; None where none is known.
        theorems: what the curve rests on.
        assumptions: what must be true of the run and is not checked by arithmetic.
        public: the numbers that the release depends on beside the protected data; see
            ``Mechanism.public``.
        off: total variation by which what runs may differ from the laws that the curve is of,
            whatever was released before; accountants add (1 + e^epsilon) times it to delta.
    """

    curve: Curve
    facts: Facts
    witness: Witness | None = None
    theorems: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    public: Public = ()
    off: float = 0.0

    @property
    def assumed(self) -> tuple[str, ...]:
        """``assumptions``, and that the numbers the release depends on are public."""
        rounds = getattr(self.curve, "count", 1)
        # A single round has no number of rounds that could follow the data.
        known = self.public + ((("rounds", (str(rounds),)),) if rounds > 1 else ())
        if not known:
            return self.assumptions
        named = (name + _values(values) for name, values in known)
        return (*self.assumptions, f"{PUBLIC}: {', '.join(named)}")

    def seen_at_the_end(self) -> PrivacyLoss:
        """Return the aggregate view's loss for somebody who sees the last release only.

        Post-processing: the last release is a function of all of them. Whether some data sets
        attain it at the end is not known, so the witness goes.
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
            UnsupportedCombination: the unit now stated is one that a list of participants shows.
            ParameterError: the units differ.
        """
        merge_units(self.facts.unit, facts.unit)
        check_listed(facts)
        return replace(self, facts=facts)


def check_listed(facts: Facts) -> None:
    """Refuse ``add_remove`` of clients for the server, who has the list of them.

    A client that is on the list is present: no epsilon covers that, however the release is made.

    Raises:
        UnsupportedCombination: these are the facts.
    """
    if facts == (Unit.CLIENT, Adjacency.ADD_REMOVE, Observer.SERVER):
        raise UnsupportedCombination(
            "no theorem covers adjacency=add_remove, observer=server where the unit is a client "
            "(the list of participants shows membership); these work: zero_out/server, "
            "replace_one/server, add_remove/aggregate"
        )


def merge_units(first: Unit | None, second: Unit | None) -> Unit | None:
    """Return the unit of two statements together; two different units do not add."""
    if first is not None and second is not None and first is not second:
        refuse(
            "unit",
            str(second),
            f"agree with the other mechanism's unit {str(first)!r}",
            "account the client level and the record level apart",
        )
    return first if first is not None else second


def merge_facts(first: Facts, second: Facts) -> Facts:
    """Return the facts of two losses together.

    Raises:
        UnsupportedCombination: adjacency or observer differ.
        ParameterError: the units differ.
    """
    unit = merge_units(first.unit, second.unit)
    if second[1:] != first[1:]:
        raise UnsupportedCombination(
            f"{second.adjacency}/{second.observer} does not add to "
            f"{first.adjacency}/{first.observer}; account each under one adjacency and observer"
        )
    return first._replace(unit=unit)


def asked_about(name: str, loss: object, facts: Facts) -> PrivacyLoss:
    """Return a loss that a mechanism or a scheme of a user's own answered with, under its facts.

    Args:
        name: who answered.
        loss: the answer.
        facts: what was asked. A unit is stated by either.

    Raises:
        ParameterError: it is no loss, or about another adjacency, observer or unit.
    """
    if not isinstance(loss, PrivacyLoss):
        refuse(name, type(loss).__name__, "return a PrivacyLoss")
    if loss.facts[1:] != facts[1:]:
        found, rule = "/".join(loss.facts[1:]), f"answer for {'/'.join(facts[1:])}, as it was asked"
        refuse(name, found, rule, "hand adjacency and observer on to what is inside")
    unit = merge_units(facts.unit, loss.facts.unit)
    return loss if unit is loss.facts.unit else loss.under(facts)


PUBLIC = "public, and chosen without a look at the protected data"
"""How the assumption that names the public numbers begins."""


def _values(values: tuple[str, ...]) -> str:
    if not values:
        return ""
    shown = " or ".join(values[: _MOST_VALUES - 1] if len(values) > _MOST_VALUES else values)
    more = f" or {len(values) - _MOST_VALUES + 1} others" if len(values) > _MOST_VALUES else ""
    return f" = {shown}{more}"


def in_words(numbers: Mapping[str, object]) -> Public:
    """Return named numbers in words; what is None, or no number or text, goes by its name."""
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
    """Return public numbers together, those of one name as its values."""
    found: dict[str, dict[str, None]] = {}
    for numbers in several:
        for name, values in numbers:
            found.setdefault(name, {}).update(dict.fromkeys(values))
    return tuple((name, tuple(values)) for name, values in found.items())


def compose_losses(parts: list[tuple[PrivacyLoss, int]]) -> PrivacyLoss:
    """Compose losses with the same facts; their theorems and assumptions are joined.

    A part without a witness takes part in the witness as a round that shows nothing: ignoring a
    release is post-processing, so the composed witness stays attained.

    Raises:
        UnsupportedCombination: the parts' adjacency or observer differ, or there are none.
        ParameterError: the parts' units differ.
    """
    if not parts:
        raise UnsupportedCombination("no mechanism to compose; account at least one round")
    facts = functools.reduce(merge_facts, (loss.facts for loss, _ in parts))
    return PrivacyLoss(
        curve=compose((loss.curve, count) for loss, count in parts),
        facts=facts,
        witness=_joint_witness(parts),
        theorems=_joined([loss.theorems for loss, _ in parts]),
        assumptions=_joined([loss.assumptions for loss, _ in parts]),
        public=merged(loss.public for loss, _ in parts),
        off=math.fsum(loss.off * count for loss, count in parts) * (1.0 + FEW),
    )


def _joint_witness(parts: list[tuple[PrivacyLoss, int]]) -> Witness | None:
    known = [(loss.witness, count) for loss, count in parts if loss.witness is not None]
    if not known:
        return None
    names = _joined([(witness.datasets,) for witness, _ in known])
    curve = compose((witness.curve, count) for witness, count in known)
    # A pair without any loss attains nothing that could be shown.
    return None if curve == IDENTITY else Witness(curve, "; then ".join(names))


def _joined(groups: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))
