"""Runs of many rounds that differ only in their noise: all losses follow from one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..loss.curves.schedules import like
from ..loss.moments.families import LEAST
from ..privacy_loss import PrivacyLoss, Public, in_words
from ..registry import KINDS
from ..relations import Facts
from ..sampling.fixed_size import FixedSize
from ..sampling.poisson import Poisson

if TYPE_CHECKING:
    from .base import Mechanism, Run

_MOST_RUNS = 2**53
"""Up to this number of runs, sums of counts are exact in double precision."""


class NoiseSchedule(NamedTuple):
    """Rounds of one Gaussian sum under one scheme, with a noise multiplier each.

    Args:
        rounds: the rounds.
        multipliers: their noise multipliers, shape ``(n,)``.
        counts: their numbers of runs, shape ``(n,)``.
    """

    rounds: list[Any]
    multipliers: NDArray[np.float64]
    counts: NDArray[np.int64]

    def loss(self, facts: Facts) -> PrivacyLoss | None:
        """Return the composed loss; None if the first round's loss is of no family."""
        one: PrivacyLoss = self.rounds[0].privacy_loss(facts.adjacency, facts.observer)
        witness = one.witness
        if one.tv_error or witness is None or witness.alone or not witness.free:
            return None
        curve = like(one.curve, self.multipliers, self.counts)
        if curve is None:
            return None
        shown = curve
        if witness.curve != one.curve:
            other = like(witness.curve, self.multipliers, self.counts)
            if other is None:
                return None
            shown = other
        witness = witness._replace(curve=shown)
        return replace(one, curve=curve, witness=witness, public=self._public(one.public))

    def _public(self, first: Public) -> Public:
        """Return the first round's public numbers with the values of all rounds."""
        inner = [one.inner for one in self.rounds]
        names = {field.name.replace("_", " "): field.name for field in fields(inner[0])}
        found = []
        for name, values in first:
            if values and name in names:
                every = dict.fromkeys(getattr(one, names[name]) for one in inner)
                text = [in_words({name: value})[0][1] for value in every]
                values = tuple(dict.fromkeys(word for words in text for word in words))
            found.append((name, values))
        return tuple(found)


def schedule_of(run: Run) -> NoiseSchedule | None:
    """Return the parts of a run as a schedule; None if they are few or differ in more than noise.

    The answer is kept: one question looks at a run several times.
    """
    known: NoiseSchedule | None
    try:
        known = run._schedule
    except AttributeError:
        known = _found(run.parts) if len(run.parts) >= LEAST else None
        object.__setattr__(run, "_schedule", known)
    return known


def _alike(one: Any, first: Any) -> bool:
    """Return whether two sampled mechanisms differ in nothing but their noise."""
    if type(one.inner) is not type(first.inner):
        return False
    drawn_alike = one.scheme is first.scheme or one.scheme == first.scheme
    return drawn_alike and (one.inner.unit is first.inner.unit or one.protects == first.protects)


def _found(parts: Sequence[tuple[Mechanism, int]]) -> NoiseSchedule | None:
    first: Any = parts[0][0]
    sampled = type(first)
    if KINDS.get("SampledMechanism") is not sampled:
        return None
    scheme, kind = first.scheme, type(first.inner)
    # A subclass may have another loss, so only the package's own classes count.
    name = vars(kind).get("scaled_by") if kind.__module__.startswith("fedprivacy.") else None
    if name is None or type(scheme) not in (Poisson, FixedSize):
        return None
    rounds: list[Any] = [part for part, _ in parts]
    if not all(type(one) is sampled and _alike(one, first) for one in rounds):
        return None
    counts = [count for _, count in parts]
    # Larger sums are not exact in the arrays of a schedule.
    if sum(counts) >= _MOST_RUNS:
        return None
    multipliers = np.array([getattr(one.inner, name) for one in rounds], dtype=np.float64)
    return NoiseSchedule(rounds, multipliers, np.array(counts, dtype=np.int64))
