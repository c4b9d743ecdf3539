"""Units of several kinds, each in its own mechanism: the worst kind counts."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..errors import UnsupportedCombination, refuse
from ..loss import IDENTITY as NOTHING
from ..loss import AnyOf, Curve
from ..privacy_loss import PrivacyLoss, Witness, merge_facts, merged, repeatable
from ..registry import registered
from ..relations import Adjacency, Facts, Observer
from ..sampling import Scheme
from ..sampling.scheme import independent_draws
from ..sampling.traits import Traits
from .base import (
    CohortMechanism,
    HeldMechanism,
    Mechanism,
    SampledMechanism,
    Several,
    check_not_nested,
    mechanisms_in,
)
from .correlated import SampledNoise

APART = (
    "draws and noise of different kinds are made independently of each other (of kinds with equal "
    "schemes: the noise)"
)
"""Assumption about the other kinds, in the account of one kind."""

ONE_DRAW = "one draw for several kinds: T4, with visible participants"

THEOREM = "parallel composition: a unit is of one kind, so the worst kind's whole run counts"


@registered
@dataclass(frozen=True)
class Parallel(Several):
    """One round in which every unit belongs to exactly one of several mechanisms.

    Neighbouring data sets differ in one unit. So only the mechanism of that unit differs between
    them, and the others' outputs are functions of the same data. A run is accounted kind by kind,
    and the largest bound is taken at the end. The k-th mechanism of every round is of the same
    kind. Clients of different weight are an example, with records as units:
    ``Parallel(tuple(FederatedLangevin(weight=p, ...).in_cohort(...) for p in weights)) * rounds``.

    The releases of the other kinds must not depend on the draw that hides the unit. Kinds with
    equal schemes in which units take each other's slots (all but Poisson, RandomAllocation and
    Everyone) may be drawn together. Participation then counts as seen (T4), and ``add_remove`` is
    refused.

    The kind of a unit must not depend on the data of that unit.

    Args:
        mechanisms: one for each kind, at least one; all protect the same unit.

    Raises:
        ParameterError: no mechanism, another object, or mechanisms with different units.
    """

    mechanisms: tuple[Mechanism, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.mechanisms, Iterable):
            refuse(
                "mechanisms", self.mechanisms, "be a sequence of mechanisms", "pass a tuple of them"
            )
        object.__setattr__(self, "mechanisms", tuple(self.mechanisms))
        if not self.mechanisms:
            refuse("mechanisms", self.mechanisms, "contain at least one mechanism")
        for one in self.mechanisms:
            if not isinstance(one, Mechanism):
                refuse("mechanisms", type(one).__name__, "contain only mechanisms")
            check_not_nested(one)
        # Nested kinds are flattened.
        nested = [
            one.mechanisms if isinstance(one, Parallel) else (one,) for one in self.mechanisms
        ]
        object.__setattr__(self, "mechanisms", tuple(one for kinds in nested for one in kinds))
        _ = self.protects

    @property
    def traits(self) -> Traits:
        """Those of all kinds. Sampling goes inside: each kind may have its own scheme."""
        return super().traits._replace(samples_its_unit=True)

    def in_cohort(self, scheme: Scheme) -> Parallel:  # type: ignore[override]
        """Return every kind run inside a client that the scheme draws."""
        return Parallel(tuple(one.in_cohort(scheme) for one in self.mechanisms))

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of the worst kind."""
        losses = [self._of_one_kind(k, facts) for k in range(len(self.mechanisms))]
        # Equal kinds have equal losses, so one curve is enough.
        if len(set(losses)) == 1:
            return losses[0]
        return PrivacyLoss(
            AnyOf(tuple(loss.curve for loss in losses)),
            functools.reduce(merge_facts, (loss.facts for loss in losses)),
            _witness(losses),
            tuple(dict.fromkeys([THEOREM, *(t for loss in losses for t in loss.theorems)])),
            tuple(dict.fromkeys([APART, *(a for loss in losses for a in loss.assumptions)])),
            merged(loss.public for loss in losses),
            max(loss.tv_error for loss in losses),
        )

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return an empty dict: the losses of the kinds have their own public numbers."""
        del adjacency
        return {}

    def _of_one_kind(self, k: int, facts: Facts) -> PrivacyLoss:
        """Return the loss of one kind in the presence of the others."""
        one = self.mechanisms[k]
        others = [
            scheme
            for other in self.mechanisms[:k] + self.mechanisms[k + 1 :]
            for scheme in _draws(other)
        ]
        # Schemes with independent draws never give a unit's slot to another kind.
        hidden = [scheme for scheme in _draws(one, seen=False) if not independent_draws(scheme)]
        if facts.observer is Observer.SERVER or not any(scheme in others for scheme in hidden):
            return one.privacy_loss(facts.adjacency, facts.observer)
        if facts.adjacency is Adjacency.ADD_REMOVE:
            raise UnsupportedCombination(
                "kinds with the same scheme may share a draw, and the slot of an absent unit "
                f"then goes to another kind, got {hidden[0]}; account for zero_out or "
                "replace_one, or draw each kind separately (Poisson, or separate cohorts)"
            )
        # The server's account counts no draw as hidden.
        try:
            loss = one.privacy_loss(facts.adjacency, Observer.SERVER)
        except UnsupportedCombination as problem:
            raise UnsupportedCombination(
                "kinds with the same scheme may share a draw, which needs a theorem for "
                f"visible participants: {problem}"
            ) from problem
        theorems = (ONE_DRAW, *loss.theorems)
        return replace(loss, facts=facts, witness=None, theorems=theorems)


def _draws(mechanism: Mechanism, *, seen: bool = True) -> list[Scheme]:
    """Return the schemes that draw a kind's participants; draws inside a client are its own.

    Args:
        mechanism: of one kind.
        seen: whether to include schemes with observed draws (``in_cohort``).
    """
    match mechanism:
        case SampledMechanism() | HeldMechanism() | SampledNoise():
            return [mechanism.scheme]
        case CohortMechanism():
            return [mechanism.scheme] if seen else []
    # Any inner mechanism may draw, also inside a user-defined wrapper.
    return [scheme for one in mechanisms_in(mechanism) for scheme in _draws(one, seen=seen)]


def _witness(losses: list[PrivacyLoss]) -> Witness | None:
    each = [repeatable(loss.witness) for loss in losses]
    known = [one for one in each if one is not None]
    if not known:
        return None
    # A kind without a witness enters as a curve without loss.
    curves: list[Curve] = [NOTHING if one is None else one.curve for one in each]
    names = dict.fromkeys(witness.datasets for witness in known)
    text = "the unit is of the worst kind; " + " or ".join(names)
    return Witness(AnyOf(tuple(curves)), text, free=all(one.free for one in known))
