"""Components much rarer than delta are removed before a question, and the error is counted.

One round in a billion with a hundredfold shift makes every moment huge but does not matter for
delta = 1e-5. Its mass m is moved to the likeliest component. This changes P, or the law of a label
that both data sets share, by at most m in total variation. Over T rounds the change is at most T m.
A profile H_a(P, Q) is 1-Lipschitz in P, and in the law of the shared label, so it moves by at most
T m in either direction. It is a-Lipschitz in Q, with a = e^epsilon. So mass moved within Q counts
e^epsilon times, which is bounded up to the largest relevant epsilon.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ...rounding import THOUSANDS
from ..curves.composed import Composed, compose
from ..curves.curve import Curve, Swapped
from ..curves.fold import Fold
from ..curves.gaussian import GaussianMix
from ..curves.mixture import Mix
from ..curves.sampled import Sampled

T = TypeVar("T")


_FARTHEST = 35.0
"""Mass that is moved within Q is counted up to this epsilon."""


class Trimmed(NamedTuple):
    """A curve, with a bound on the error of its profile at every epsilon from 0 to ``reach``."""

    curve: Curve
    slack: float
    reach: float = math.inf


def trim(curve: Curve, allowed: float) -> Trimmed:
    """Return a curve without its rarest components, whose mass moves to the likeliest one.

    Args:
        curve: one orientation.
        allowed: largest allowed error of the profile.
    """
    if not isinstance(curve, Composed):
        return _trim(curve, allowed)
    # Total variation adds up over independent rounds, so each gets an equal share.
    share = allowed / curve.count
    found = [(_trim(part, share), count) for part, count in curve.parts]
    slack = sum(count * part.slack for part, count in found) * (1.0 + THOUSANDS)
    if slack == 0.0:
        return Trimmed(curve, 0.0)
    reach = min(part.reach for part, _ in found)
    return Trimmed(compose((part.curve, count) for part, count in found), slack, reach)


def _trim(curve: Curve, allowed: float) -> Trimmed:
    """Return the curve of one round, trimmed if its form is supported."""
    if isinstance(curve, GaussianMix):
        # Only P is trimmed: a profile is 1-Lipschitz in P, but e^epsilon-Lipschitz in Q.
        p, moved = _moved(curve.p, allowed)
        if not moved:
            return Trimmed(curve, 0.0)
        # Without a component the pair may have an unsupported form; then it stays.
        with contextlib.suppress(ValueError):
            return Trimmed(GaussianMix(curve.std, p, curve.q), moved)
        return Trimmed(curve, 0.0)
    if isinstance(curve, Swapped) and isinstance(curve.curve, GaussianMix):
        inner = _trim(curve.curve, allowed * math.exp(-_FARTHEST))
        if inner.slack == 0.0:
            return Trimmed(curve, 0.0)
        return Trimmed(inner.curve.swap(), inner.slack * math.exp(_FARTHEST), _FARTHEST)
    if isinstance(curve, Mix):
        # The profile is the weighted mean of the labels' profiles, which lie in [0, 1].
        parts, moved = _moved(curve.parts, allowed)
        return Trimmed(Mix(parts), moved)
    if isinstance(curve, Sampled) and isinstance(curve.inner, Mix):
        # Sampling acts within every label, so trimming inside is trimming of the whole.
        inner = _trim(curve.inner, allowed)
        return Trimmed(Sampled(inner.curve, curve.q), inner.slack)
    if isinstance(curve, Fold) and _labels(curve.up) == _labels(curve.down) != []:
        # A fold of mixtures over one label is the mixture of the labels' folds.
        up, down = _trim(curve.up, allowed), _trim(curve.down, allowed)
        return Trimmed(Fold(up.curve, down.curve), up.slack) if up.slack else Trimmed(curve, 0.0)
    return Trimmed(curve, 0.0)


def _labels(curve: Curve) -> list[float]:
    """Return the weights of the labels that every observer sees, if any."""
    mixed = curve.inner if isinstance(curve, Sampled) else curve
    return [weight for weight, _ in mixed.parts] if isinstance(mixed, Mix) else []


def _moved(
    weighted: Sequence[tuple[float, T]], allowed: float
) -> tuple[tuple[tuple[float, T], ...], float]:
    """Return the parts, the rarest weights moved to the largest, and that mass, rounded up."""
    weights = [weight for weight, _ in weighted]
    kept, moved = list(weights), 0.0
    largest = weights.index(max(weights))
    # The rarest first, as long as the moved mass stays within the allowed error.
    for k in sorted(range(len(weights)), key=weights.__getitem__):
        if k == largest or (moved + weights[k]) * (1.0 + THOUSANDS) > allowed:
            # In increasing order: after the first that does not fit, none does; the likeliest is
            # last.
            break
        moved += weights[k]
        kept[k] = 0.0
    kept[largest] += moved
    left = tuple((w, part) for w, (_, part) in zip(kept, weighted, strict=True) if w > 0)
    return left, moved * (1.0 + THOUSANDS)
