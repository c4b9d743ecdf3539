"""Units of several kinds, each in a mechanism of its own: the worst kind counts."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..errors import refuse
from ..loss import IDENTITY as NOTHING
from ..loss import AnyOf, Curve
from ..privacy_loss import PrivacyLoss, Witness, merge_facts, merge_units
from ..records import recorded
from ..relations import Facts, Unit
from ..sampling import Scheme
from .base import Mechanism

THEOREM = "parallel composition: a unit is of one kind, so the worst kind's whole run counts"


@recorded
@dataclass(frozen=True)
class Parallel(Mechanism):
    """One round in which every unit belongs to exactly one of several mechanisms.

    Neighbouring data sets differ in one unit, so only the mechanism that holds it differs between
    them, and the others' outputs are functions of the same data. A run is accounted kind by kind
    and the largest bound is taken at the end; the k-th mechanism of every round is the same
    kind's. Clients of different weight are such kinds of records: ``Parallel(tuple(
    FederatedLangevin(weight=p, ...).in_cohort(...) for p in weights)) * rounds``.

    Which unit is of which kind must not depend on the data of the unit in question.

    Args:
        mechanisms: one for each kind, at least one; all protect the same unit.

    Raises:
        ParameterError: no mechanism, something else, or mechanisms of different units.
    """

    mechanisms: tuple[Mechanism, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanisms", tuple(self.mechanisms))
        if not self.mechanisms:
            refuse("mechanisms", self.mechanisms, "hold at least one mechanism")
        for one in self.mechanisms:
            if not isinstance(one, Mechanism):
                refuse("mechanisms", type(one).__name__, "hold mechanisms only")
        _ = self.protects

    @property
    def protects(self) -> Unit | None:
        """The unit that all protect."""
        return functools.reduce(merge_units, (one.protects for one in self.mechanisms))

    @property
    def samples_its_unit(self) -> bool:
        """True: sampling goes inside, where each kind may have its own."""
        return True

    def in_cohort(self, scheme: Scheme) -> Parallel:  # type: ignore[override]
        """Return every kind run inside a client that the scheme draws."""
        return Parallel(tuple(one.in_cohort(scheme) for one in self.mechanisms))

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return every kind's."""
        return frozenset().union(*(one.noise_ratios(clip_norm) for one in self.mechanisms))

    def rescaled(self, fraction: float) -> Parallel | None:
        """Return it with the fraction of every kind's noise."""
        made = [one.rescaled(fraction) for one in self.mechanisms]
        kept = tuple(one for one in made if one is not None)
        return Parallel(kept) if len(kept) == len(made) else None

    def _loss(self, facts: Facts) -> PrivacyLoss:
        losses = [one.privacy_loss(facts.adjacency, facts.observer) for one in self.mechanisms]
        if len(set(losses)) == 1:
            return losses[0]
        return PrivacyLoss(
            AnyOf(tuple(loss.curve for loss in losses)),
            functools.reduce(merge_facts, (loss.facts for loss in losses)),
            _witness(losses),
            tuple(dict.fromkeys([THEOREM, *(t for loss in losses for t in loss.theorems)])),
            tuple(dict.fromkeys(a for loss in losses for a in loss.assumptions)),
        )


def _witness(losses: list[PrivacyLoss]) -> Witness | None:
    known = [loss.witness for loss in losses if loss.witness is not None]
    if not known:
        return None
    curves: list[Curve] = [NOTHING if s.witness is None else s.witness.curve for s in losses]
    names = dict.fromkeys(witness.datasets for witness in known)
    return Witness(AnyOf(tuple(curves)), "the unit is of the worst kind; " + " or ".join(names))
