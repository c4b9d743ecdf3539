"""Curves that dominate each of several curves of one shape, or that each of these dominates.

Noise and numbers of draws order these curves, parameter by parameter. So the least noise with the
most draws lies above all of them ("Many different rounds", docs/theory/theorems.md):

- Noise added to both laws is post-processing.
- More draws lose more, and so does a larger sampling probability (T5).
- Labels and folds keep the order of their parts.
- For epochs, see docs/theory/allocation.md.

Every curve is checked. A curve of another shape, or with labels that do not rise, is refused.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...rounding import FEW, THOUSANDS
from ..moments.mixtures import Mixture
from .allocation import Allocated, with_few_bits
from .curve import Curve
from .fold import Fold
from .gaussian import GaussianMix, Gdp
from .lattice import Side
from .mixture import Mix
from .sampled import Sampled

_BITS = 6
"""Number of leading bits kept of a number of rounds: an error of at most 1 in 32."""
_FAR = 60.0
"""Pairs at this distance, or at half the distance, lose all: their differences are below e^-400."""
_ALL = 1 << 30
_ENDS: dict[Side, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    Side.UP: (min, max, 1.0 + THOUSANDS),
    Side.DOWN: (max, min, 1.0 - THOUSANDS),
}
"""The choice of noise, the choice of probability, and the factor for the rounding of a probability.
"""


class Unordered(Exception):
    """The curves are not of one shape, or their shape has no known order."""


def bound(curves: Sequence[Any], side: Side, labels: int = _ALL) -> Curve:
    """Return a curve that dominates each (UP), or that each dominates (DOWN).

    Args:
        curves: at least one.
        side: which of the two.
        labels: labels beyond this number are merged.

    Raises:
        Unordered: no curve of this kind is known.
    """
    kind = type(curves[0])
    if kind not in _RULES or any(type(curve) is not kind for curve in curves):
        raise Unordered
    return _RULES[kind](curves, side, labels)


def place(curve: Curve) -> tuple[float, float] | None:
    """Return approximate logs of the loss's dependence on shift and probability; None if unknown.

    Only curves that take long have a position, because others need no grouping. A loss is about
    proportional to the shift. It is also about proportional to the root of the probability of a
    round of an epoch, or to the fourth root of the probability of draws. (For 2,000 rounds epsilon
    grows with powers 3 and .8 of shift and probability.)
    """
    if isinstance(curve, Allocated) and not curve.swapped:
        return math.log(max(curve.mu, 1e-300)), -0.5 * math.log(curve.rounds)
    if isinstance(curve, GaussianMix) and len(curve.p) > 3:
        chance = 1.0 - max(weight for weight, _ in curve.p)
        return -math.log(curve.std), 0.25 * math.log(max(chance, 1e-300))
    if isinstance(curve, Fold) and isinstance(curve.down, Sampled):
        inside = curve.down.inner
        least = inside.parts[0][1] if isinstance(inside, Mix) else None
        if isinstance(least, Gdp) and least.mu > 0.0:
            return math.log(least.mu), 0.25 * math.log(curve.down.q)
    return None


def _epochs(curves: Sequence[Allocated], side: Side, _: int) -> Curve:
    """Return the epoch of the largest mu and the fewest rounds, or of the smallest and the most."""
    few, most, _factor = _ENDS[side]
    if len({(curve.swapped, curve.replaced) for curve in curves}) > 1:
        raise Unordered
    rounds = with_few_bits(few(curve.rounds for curve in curves), side, _BITS)
    return replace(curves[0], mu=most(curve.mu for curve in curves), rounds=rounds, coarse=True)


def _gaussians(curves: Sequence[Gdp], side: Side, _: int) -> Curve:
    return Gdp(_ENDS[side][1](curve.mu for curve in curves))


def _mixtures(curves: Sequence[GaussianMix], side: Side, _: int) -> Curve:
    """Return the mixture of the least noise and of the law above; or of the most and below."""
    few, most, _factor = _ENDS[side]
    std = few(curve.std for curve in curves)
    if all(_one_sided(curve) for curve in curves):
        means = sorted({mean for curve in curves for _, mean in curve.p})
        law = zip(_law([_at(curve.p, means) for curve in curves], side), means, strict=True)
        return GaussianMix(std, tuple((w, m) for w, m in law if w > 0.0), ((1.0, 0.0),))
    # For one number of draws only the probability can differ.
    if not all(map(_drawn, curves)) or len({curve.p[1][1] for curve in curves}) > 1:
        raise Unordered
    likeliest = most(curves, key=lambda curve: curve.p[1][0])
    return GaussianMix(std, likeliest.p, likeliest.q)


def _at(mixture: Mixture, means: Sequence[float]) -> list[float]:
    """Return, for each of increasing means, the weight of that mean and all larger ones."""
    weights = dict.fromkeys(means, 0.0)
    for weight, mean in mixture:
        weights[mean] += weight
    return _tails([(weight, mean) for mean, weight in weights.items()])


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
    """Return the fold of bounds of the halves, with equally many labels; it is a profile too."""
    halves = [half for curve in curves for half in (curve.up, curve.down)]
    inside = [half.inner if isinstance(half, Sampled) else half for half in halves]
    labels = min(labels, *(_rising(one) for one in inside if isinstance(one, Mix)))
    up, down = ([getattr(curve, half) for curve in curves] for half in ("up", "down"))
    return Fold(bound(up, side, labels), bound(down, side, labels))


def _labelled(curves: Sequence[Mix], side: Side, labels: int) -> Curve:
    """Return the mixture of bounds of each label, in the order of the labels, by the law above.

    Some curves may lack a label, or have one of another shape. These labels are too rare to matter.
    From below they are replaced by the last label that all curves have. From above they are
    replaced by one more label that dominates them all.
    """
    kept = min(labels, *map(_rising, curves))
    found = [bound([curve.parts[k][1] for curve in curves], side) for k in range(kept)]
    rest = [part for curve in curves for _, part in curve.parts[kept:]]
    if rest and side is Side.UP:
        found.append(_above_all([*rest, found[-1]]))
    if not _rise(found):
        raise Unordered
    tails = [[*_tails(curve.parts), 0.0][: len(found)] for curve in curves]
    law = _law(tails, side)
    return Mix(tuple((w, one) for w, one in zip(law, found, strict=True) if w > 0.0))


@functools.lru_cache(maxsize=8192)
def _rising(curve: Mix) -> int:
    """Return the number of labels of the first one's shape.

    Raises:
        Unordered: not every label's pair is known to dominate the one before.
    """
    labels = [label for _, label in curve.parts]
    if not _rise(labels):
        raise Unordered
    return sum(1 for _ in itertools.takewhile(lambda one: type(one) is type(labels[0]), labels))


def _rise(labels: Sequence[Curve]) -> bool:
    """Return whether each pair dominates the one before; for half a fold, above loss 0."""
    pairs = itertools.pairwise(map(_draws, labels))
    return all(a <= b for low, high in pairs for a, b in zip(low, high, strict=True))


def _above_all(labels: Sequence[Any]) -> Curve:
    """Return a pair that dominates all; for half a fold, above loss 0.

    Samples of pairs replace draws that give way to others only at distances where both halves of a
    fold are equal.
    """
    ranks, chances, shifts = zip(*map(_draws, labels), strict=True)
    chance, shift = max(chances), max(shifts)
    if min(chances) == 1.0:
        return Gdp(shift)
    if max(ranks) == 0:
        (rest, _), (q, _) = labels[chances.index(chance)].p
        farthest = labels[shifts.index(shift)]
        s = farthest.p[1][1]
        sides = ((rest, -s), (q, s)), ((rest, -s), (q, 0.0))
        return GaussianMix(farthest.std * (1.0 - FEW), *sides)
    if shift < _FAR:
        raise Unordered
    return Sampled(Gdp(shift * (1.0 + FEW)), chance)


def _draws(label: Curve) -> tuple[int, float, float]:
    """Return (0, q, 2s/z) of draws that give way to others, (1, q, mu) of S(G(mu), q) and G(mu).

    If one triple is at least as large in every entry, its pair dominates the other.

    Raises:
        Unordered: the pair has another form.
    """
    if isinstance(label, Gdp):
        return 1, 1.0, label.mu
    if isinstance(label, Sampled) and isinstance(label.inner, Gdp):
        return 1, label.q, label.inner.mu
    if isinstance(label, GaussianMix) and _drawn(label):
        chance, shift = label.p[1]
        return 0, chance, 2.0 * shift / label.std
    raise Unordered


def _tails(weighted: Sequence[tuple[float, object]]) -> list[float]:
    """Return, for each place, the weight of that place and all later ones."""
    return list(itertools.accumulate(w for w, _ in reversed(weighted)))[::-1]


def _law(tails: Sequence[Sequence[float]], side: Side) -> list[float]:
    """Return the weights of a law above all laws in the usual order, or below all laws.

    Args:
        tails: for each law, the probability of each place or a later one; the first is 1.
        side: which of the two.
    """
    _, most, factor = _ENDS[side]
    # THOUSANDS is far more than the error of sums of few positive terms.
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
