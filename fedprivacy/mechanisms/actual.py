"""A mechanism as it was really released: priced by the noise that was used."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ..errors import ParameterError, UnsupportedCombination
from .base import CohortMechanism, Mechanism, Run, SampledMechanism
from .gaussian import Gaussian
from .laplace import Laplace
from .parallel import Parallel
from .sparsified import SparsifiedPerturbation
from .upload import Upload

ROUNDING = 1e-9
"""Relative shortfall of a noise std that counts as rounding."""

Leaf = Gaussian | Laplace | SparsifiedPerturbation


def as_released(
    mechanism: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
) -> Mechanism | None:
    """Return the mechanism with the noise that was used, where that is less than it says.

    The stds are of the whole sum, colluders' shares included; what colluders know is subtracted
    here. With one Gaussian sum inside, its total noise is compared with ``used_std / clip_norm``;
    with several, all are scaled by ``used_std / planned_std``.

    Args:
        mechanism: as priced.
        clip_norm: norm that contributions were clipped to.
        planned_std: std of the noise as planned, above 0.
        used_std: std of the noise as used.

    Returns:
        The mechanism itself if the noise was enough (more noise gains nothing), else one with less
        noise; None if no noise is left that counts.

    Raises:
        UnsupportedCombination: there was less noise, and no Gaussian sum inside to reprice, or
            uploads or several kinds beside it.
    """
    leaves = set() if _holds_uploads(mechanism) else set(_leaves(mechanism))
    if len(leaves) == 1:
        (leaf,) = leaves
        fraction = used_std / clip_norm / _total(leaf)
    else:
        fraction = used_std / planned_std
    if fraction >= 1.0 - ROUNDING:
        return mechanism
    if not leaves:
        raise UnsupportedCombination(
            f"the noise used, std {used_std:g}, is less than planned, {planned_std:g}, and "
            f"{type(mechanism).__name__} cannot be repriced; account the round by hand"
        )
    changed = {leaf: _weaker(leaf, fraction) for leaf in leaves}
    kept = {leaf: weaker for leaf, weaker in changed.items() if weaker is not None}
    return _rebuilt(mechanism, kept.__getitem__) if len(kept) == len(changed) else None


def as_observed(
    mechanism: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
) -> Mechanism | None:
    """Return the mechanism with just the noise that was used: what a lower end may count on.

    Arguments are those of ``as_released``.

    Returns:
        The mechanism with less noise or with more; None where nothing is certain: no noise counts,
        or there was more, and what of it is where cannot be said.
    """
    try:
        released = as_released(
            mechanism, clip_norm=clip_norm, planned_std=planned_std, used_std=used_std
        )
    except UnsupportedCombination:
        return None
    if released != mechanism:
        return released
    leaves = set() if _holds_uploads(mechanism) else set(_leaves(mechanism))
    if len(leaves) != 1:
        return mechanism if used_std <= planned_std * (1.0 + ROUNDING) else None
    (leaf,) = leaves
    fraction = used_std / clip_norm / _total(leaf)
    if fraction <= 1.0 + ROUNDING:
        return mechanism
    quieter = _weaker(leaf, fraction)
    try:
        return None if quieter is None else _rebuilt(mechanism, lambda _: quieter)
    except ParameterError:  # a scheme that asks for what this round did not need
        return None


def single_uploads(mechanism: Mechanism) -> Mechanism | None:
    """Return what clients' uploads show where no secure sum hides the single ones.

    An upload carries its own share of the noise and no other: std C z / sqrt(cohort).

    Returns:
        The mechanism with every Fed-SMP sum replaced by one upload; None where there is none, or
        another noisy sum beside it.

    Raises:
        UnsupportedCombination: shares depend on the realised cohort.
    """
    leaves = _leaves(mechanism)
    if not leaves or not all(isinstance(leaf, SparsifiedPerturbation) for leaf in leaves):
        return None
    return _rebuilt(mechanism, _alone)


def _alone(leaf: Leaf) -> Leaf:
    assert isinstance(leaf, SparsifiedPerturbation)
    if leaf.topped_up:
        raise UnsupportedCombination(
            "the noise is topped up to the realised cohort, so a single upload's share has no "
            "fixed size; without secure aggregation let every client add the whole noise"
        )
    if leaf.absent:
        raise UnsupportedCombination(
            "clients may be away for good (absent), so that the others are drawn more often than "
            "the scheme says; this line has no theorem for that"
        )
    return Gaussian(
        noise_multiplier=leaf.noise_multiplier / math.sqrt(leaf.cohort),
        clip_norm=leaf.clip_norm,
        unit=leaf.protects,
    )


def _holds_uploads(mechanism: Mechanism) -> bool:
    """Return whether noise is inside that one std of a sum says nothing about."""
    match mechanism:
        case Upload() | Parallel():
            return True
        case SampledMechanism() | CohortMechanism():
            return _holds_uploads(mechanism.inner)
        case Run():
            return any(_holds_uploads(part) for part, _ in mechanism.parts)
    return False


def _leaves(mechanism: Mechanism) -> list[Leaf]:
    match mechanism:
        case Gaussian() | Laplace() | SparsifiedPerturbation():
            return [mechanism]
        case SampledMechanism() | CohortMechanism():
            return _leaves(mechanism.inner)
        case Run():
            return [leaf for part, _ in mechanism.parts for leaf in _leaves(part)]
    return []


def _rebuilt(mechanism: Mechanism, change: Callable[[Leaf], Leaf]) -> Mechanism:
    match mechanism:
        case Gaussian() | Laplace() | SparsifiedPerturbation():
            return change(mechanism)
        case SampledMechanism() | CohortMechanism():
            return replace(mechanism, inner=_rebuilt(mechanism.inner, change))
        case Run():
            return Run(tuple((_rebuilt(part, change), count) for part, count in mechanism.parts))
    return mechanism


def _total(leaf: Leaf) -> float:
    """Return the std of the sum's whole noise over the clip norm, colluders' shares included."""
    match leaf:
        case Gaussian():
            return leaf.noise_multiplier
        case Laplace():
            return math.sqrt(2.0) * leaf.noise_multiplier
    return _full(leaf).sum_multiplier


def _full(leaf: SparsifiedPerturbation) -> SparsifiedPerturbation:
    return replace(leaf, colluding=0)


def _weaker(leaf: Leaf, fraction: float) -> Leaf | None:
    """Return a leaf whose whole noise is the given fraction of what it was."""
    if isinstance(leaf, Gaussian | Laplace):
        multiplier = fraction * leaf.noise_multiplier
        return replace(leaf, noise_multiplier=multiplier) if multiplier > 0.0 else None
    total = fraction * _total(leaf)
    return _with_missing(leaf, total) or _scaled(leaf, total)


def _with_missing(leaf: SparsifiedPerturbation, total: float) -> SparsifiedPerturbation | None:
    """Return the leaf with as many clients missing as explains it, if a whole number does."""
    if leaf.topped_up:
        return None
    arrived = round(leaf.cohort * (total / leaf.noise_multiplier) ** 2)
    if not leaf.colluding < arrived <= leaf.cohort:
        return None
    found = replace(leaf, missing=leaf.cohort - arrived)
    return found if abs(_total(found) - total) <= ROUNDING * total else None


def _scaled(leaf: SparsifiedPerturbation, total: float) -> SparsifiedPerturbation | None:
    """Return the leaf with less noise in every share, colluders knowing theirs in full."""
    known = leaf.colluding * leaf.noise_multiplier**2 / leaf.cohort
    counts = total**2 - known
    if counts <= 0.0:
        return None
    return replace(
        leaf, noise_multiplier=leaf.noise_multiplier * math.sqrt(counts) / leaf.sum_multiplier
    )
