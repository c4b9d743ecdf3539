"""A curve that dominates each of several of one shape, or that each of them dominates.

Noise and numbers of draws order such curves, parameter by parameter, so that the least noise with
the most draws lies above all of them ("Many different rounds", docs/theory/theorems.md): noise added
to both laws is post-processing; more draws lose more, and so does a larger sampling probability (T5);
labels and folds keep the order of what they are made of; epochs are in docs/theory/allocation.md.
Every curve is looked at: what is of no such shape, or has labels that do not rise, is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ...rounding import THOUSANDS
from .allocation import Allocated, with_few_bits
from .combined import Fold, Mix, Sampled
from .curve import Curve
from .gaussian import GaussianMix, Gdp
from .lattice import Side

_BITS = 6
"""So many of a number of rounds are kept: it is off by 1 in 32 at most."""
_ALL = 1 << 30
_ENDS: dict[Side, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    Side.UP: (min, max, 1.0 + THOUSANDS),
    Side.DOWN: (max, min, 1.0 - THOUSANDS),
}
"""Which noise, which chance, and what a chance is multiplied by for its rounding."""


class Unordered(Exception):  # noqa: N818
    """Curves that are not of one shape, or of none whose order is known."""


def bound(curves: Sequence[Any], side: Side, labels: int = _ALL) -> Curve:
    """Return a curve that dominates each (UP), or that each dominates (DOWN).

    Args:
        curves: at least one.
        side: which.
        labels: labels beyond so many are put together.

    Raises:
        Unordered: none is known.
    """
    kind = type(curves[0])
    if kind not in _RULES or any(type(curve) is not kind for curve in curves):
        raise Unordered
    return _RULES[kind](curves, side, labels)


def place(curve: Curve) -> tuple[float, float] | None:
    """Return about where a curve lies: the logs of its shift and of its chance; None if unknown.

    Only curves that take long are placed: the others need not be put together.
    """
    if isinstance(curve, Allocated) and not curve.swapped:
        return math.log(max(curve.mu, 1e-300)), -math.log(curve.rounds)
    if isinstance(curve, GaussianMix) and len(curve.p) > 3:
        return -math.log(curve.std), math.log1p(-max(weight for weight, _ in curve.p))
    if isinstance(curve, Fold) and isinstance(curve.down, Sampled):
        inside = curve.down.inner
        least = inside.parts[0][1] if isinstance(inside, Mix) else None
        if isinstance(least, Gdp) and least.mu > 0.0:
            return math.log(least.mu), math.log(curve.down.q)
    return None


def _epochs(curves: Sequence[Allocated], side: Side, _: int) -> Curve:
    """Return the epoch of the largest mu and the fewest rounds, or of the least and the most."""
    few, most, _factor = _ENDS[side]
    if len({curve.swapped for curve in curves}) > 1:
        raise Unordered
    rounds = with_few_bits(few(curve.rounds for curve in curves), side, _BITS)
    return Allocated(most(curve.mu for curve in curves), rounds, curves[0].swapped, coarse=True)


def _gaussians(curves: Sequence[Gdp], side: Side, _: int) -> Curve:
    return Gdp(_ENDS[side][1](curve.mu for curve in curves))


def _mixtures(curves: Sequence[GaussianMix], side: Side, _: int) -> Curve:
    """Return the mixture of the least noise and of the law above; or of the most and below."""
    few, most, _factor = _ENDS[side]
    std = few(curve.std for curve in curves)
    if all(_one_sided(curve) for curve in curves):
        means = sorted({mean for curve in curves for _, mean in curve.p})
        tails = [[sum(w for w, m in c.p if m >= mean) for mean in means] for c in curves]
        law = zip(_law(tails, side), means, strict=True)
        return GaussianMix(std, tuple((w, m) for w, m in law if w > 0.0), ((1.0, 0.0),))
    # Of one number of draws only the chance is left to differ.
    if not all(map(_drawn, curves)) or len({curve.p[1][1] for curve in curves}) > 1:
        raise Unordered
    likeliest = most(curves, key=lambda curve: curve.p[1][0])
    return GaussianMix(std, likeliest.p, likeliest.q)


def _one_sided(curve: GaussianMix) -> bool:
    """Return whether the curve is a mixture of N(a), a >= 0, against N(0)."""
    return curve.q == ((1.0, 0.0),) and all(mean >= 0.0 for _, mean in curve.p)


def _drawn(curve: Curve) -> bool:
    """Return whether the curve is (1-q) N(-s) + q N(s) against (1-q) N(-s) + q N(0), s > 0."""
    if not isinstance(curve, GaussianMix) or len(curve.p) != 2 or len(curve.q) != 2:
        return False
    (_, least), (q, most) = curve.p
    return curve.q == (curve.p[0], (q, 0.0)) and least == -most < 0.0


def _samples(curves: Sequence[Sampled], side: Side, labels: int) -> Curve:
    chance = _ENDS[side][1](curve.q for curve in curves)
    return Sampled(bound([curve.inner for curve in curves], side, labels), chance)


def _folds(curves: Sequence[Fold], side: Side, labels: int) -> Curve:
    """Return the fold of what bounds the halves, of equally many labels: it is a profile, too."""
    halves = [half for curve in curves for half in (curve.up, curve.down)]
    inside = [half.inner if isinstance(half, Sampled) else half for half in halves]
    labels = min(labels, *(_alike(one) for one in inside if isinstance(one, Mix)))
    up, down = ([getattr(curve, half) for curve in curves] for half in ("up", "down"))
    return Fold(bound(up, side, labels), bound(down, side, labels))


def _labelled(curves: Sequence[Mix], side: Side, labels: int) -> Curve:
    """Return the mixture of what bounds each label, in the order of the labels, by the law above.

    Labels that some curve lacks, or has of another shape, are rarer than anything that counts: from
    below they are the last that all have, from above one more that dominates them all.
    """
    kept = min(labels, *map(_alike, curves))
    found = [bound([curve.parts[k][1] for curve in curves], side) for k in range(kept)]
    rest = [part for curve in curves for _, part in curve.parts[kept:]]
    if rest and side is Side.UP:
        found.append(_above_all([*rest, found[-1]]))
    if not all(map(_rises, [[part for _, part in curve.parts] for curve in curves] + [found])):
        raise Unordered
    tails = [[sum(w for w, _ in c.parts[k:]) for k in range(len(found))] for c in curves]
    return Mix(tuple((w, one) for w, one in zip(_law(tails, side), found, strict=True) if w > 0))


def _alike(curve: Mix) -> int:
    """Return how many labels are of the first one's shape."""
    kind = type(curve.parts[0][1])
    return sum(1 for _ in itertools.takewhile(lambda part: type(part[1]) is kind, curve.parts))


def _rises(labels: Sequence[Curve]) -> bool:
    """Return whether each label's pair dominates the one before, whose cover says how far it is."""
    # Draws that give way to others lie below a sample of a pair as far apart, not above it.
    each = [(type(one) is not GaussianMix, _chance(one), one.cover()) for one in labels]
    return all(a <= b for low, high in itertools.pairwise(each) for a, b in zip(low, high))


def _above_all(labels: Sequence[Curve]) -> Curve:
    """Return what dominates all, above loss 0: the farthest, with the largest chance."""
    chance = max(map(_chance, labels))
    farthest = Gdp(max(one.cover() for one in labels))
    return Sampled(farthest, chance) if chance < 1.0 else farthest


def _chance(label: Curve) -> float:
    """Return the chance q of a pair, of a sample of one, or of draws that give way to others.

    Raises:
        Unordered: it is none of these.
    """
    if isinstance(label, Gdp):
        return 1.0
    if isinstance(label, Sampled) and isinstance(label.inner, Gdp):
        return label.q
    if isinstance(label, GaussianMix) and _drawn(label):
        return label.p[1][0]
    raise Unordered


def _law(tails: Sequence[Sequence[float]], side: Side) -> list[float]:
    """Return the weights of a law above all laws in the usual order, or below them.

    Args:
        tails: of each law, the chance of each place or a later one; the first is certain.
        side: which.
    """
    _, most, factor = _ENDS[side]
    # THOUSANDS is far more than sums of few terms above 0 are off.
    ends = [min(most(column) * factor, 1.0) for column in zip(*tails, strict=True)]
    return [a - b for a, b in itertools.pairwise([1.0, *ends[1:], 0.0])]


_RULES: dict[type[Curve], Callable[[Sequence[Any], Side, int], Curve]] = {
    Allocated: _epochs,
    Gdp: _gaussians,
    GaussianMix: _mixtures,
    Sampled: _samples,
    Fold: _folds,
    Mix: _labelled,
}
