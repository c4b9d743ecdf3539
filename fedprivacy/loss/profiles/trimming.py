"""Leaving out what hardly ever happens: a heavier pair, or label, that is rarer than delta.

One round in a billion with a hundredfold shift makes every moment huge, and says nothing about
delta = 1e-5. Moving its mass m to the likeliest component changes P, or the law of a label that
both data sets share, by at most m in total variation; T rounds by at most T m. A profile H_a(P, Q)
is 1-Lipschitz in P, and in the law of the shared label, so it moves by at most T m, either way.
"""

from __future__ import annotations

from typing import NamedTuple

from ..moments.gaussian_rules import Mixture
from ..pairs.combined import Composed, Fold, Mix, Sampled, compose
from ..pairs.curve import Curve
from ..pairs.gaussian import GaussianMix


class Trimmed(NamedTuple):
    """A curve and by how much its profile may be off, at every epsilon of at least 0."""

    curve: Curve
    slack: float


def trim(curve: Curve, allowed: float) -> Trimmed:
    """Return a curve without its rarest components, their mass moved to the likeliest one.

    Args:
        curve: one orientation.
        allowed: how much the profile may be off.
    """
    if not isinstance(curve, Composed):
        return Trimmed(curve, 0.0)
    share = allowed / curve.count
    found = [(_trim(part, share), count) for part, count in curve.parts]
    slack = sum(count * part.slack for part, count in found) * (1.0 + 1e-12)
    if slack == 0.0:
        return Trimmed(curve, 0.0)
    return Trimmed(compose((part.curve, count) for part, count in found), slack)


def _trim(curve: Curve, allowed: float) -> Trimmed:
    """Return one round's curve, trimmed where that is understood."""
    if isinstance(curve, GaussianMix):
        weights, moved = _moved([weight for weight, _ in curve.p], allowed)
        p: Mixture = tuple((w, m) for w, (_, m) in zip(weights, curve.p, strict=True) if w > 0)
        return Trimmed(GaussianMix(curve.std, p, curve.q), moved) if moved else Trimmed(curve, 0.0)
    if isinstance(curve, Mix):
        weights, moved = _moved([weight for weight, _ in curve.parts], allowed)
        parts = zip(weights, curve.parts, strict=True)
        return Trimmed(Mix(tuple((w, part) for w, (_, part) in parts if w > 0)), moved)
    if isinstance(curve, Sampled) and isinstance(curve.inner, Mix):
        inner = _trim(curve.inner, allowed)
        return Trimmed(Sampled(inner.curve, curve.q), inner.slack)
    if isinstance(curve, Fold) and curve.up == curve.down:
        half = _trim(curve.up, allowed) if isinstance(curve.up, Sampled) else Trimmed(curve, 0.0)
        return Trimmed(Fold(half.curve, half.curve), half.slack) if half.slack else half
    return Trimmed(curve, 0.0)


def _moved(weights: list[float], allowed: float) -> tuple[list[float], float]:
    """Return the weights with the rarest given to the largest, and how much was, rounded up."""
    kept, moved = list(weights), 0.0
    largest = weights.index(max(weights))
    for k in sorted(range(len(weights)), key=weights.__getitem__):
        if k == largest or (moved + weights[k]) * (1.0 + 1e-12) > allowed:
            break
        moved += weights[k]
        kept[k] = 0.0
    kept[largest] += moved
    return kept, moved * (1.0 + 1e-12)
