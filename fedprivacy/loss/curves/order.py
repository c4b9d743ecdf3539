"""Bounds of several curves of one shape: one that dominates each, or that each dominates.

Noise and numbers of draws order these curves, parameter by parameter. So the least noise with the
most draws lies above all of them ("Many different rounds", docs/theory/theorems.md):

- Noise added to both laws is post-processing.
- More draws lose more, and so does a larger sampling probability (T5).
- Labels and folds keep the order of their parts.
- For epochs, see docs/theory/allocation.md.

Each family of curves has its rule in its own file (``Order.bound``). Every curve is checked. A
curve of another shape, or with labels that do not rise, is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...rounding import THOUSANDS
from .components import UnitDraws, Unordered
from .lattice import Side

if TYPE_CHECKING:
    from .curve import Curve

ALL = 1 << 30
"""More labels than any mixture has."""
FARTHEST: dict[Side, Callable[..., Any]] = {Side.UP: max, Side.DOWN: min}
"""The choice among probabilities and shifts."""
NEAREST: dict[Side, Callable[..., Any]] = {Side.UP: min, Side.DOWN: max}
"""The choice among standard deviations of noise and numbers of rounds."""
_FACTOR = {Side.UP: 1.0 + THOUSANDS, Side.DOWN: 1.0 - THOUSANDS}
"""The factor for the rounding of a probability."""


def bound(curves: Sequence[Curve], side: Side, labels: int = ALL) -> Curve:
    """Return a curve that dominates each (UP), or that each dominates (DOWN).

    Args:
        curves: at least one.
        side: which of the two.
        labels: labels beyond this number are merged.

    Raises:
        Unordered: no curve of this kind is known.
    """
    orders = [curve.components().order for curve in curves]
    first = orders[0]
    if first is None or any(one is None or one.bound is not first.bound for one in orders):
        raise Unordered
    return first.bound(curves, side, labels)


def draws_of(curve: Curve) -> UnitDraws:
    """Return the draws of a unit in a label of a mixture.

    Raises:
        Unordered: the pair has another form.
    """
    order = curve.components().order
    if order is None or order.draws is None:
        raise Unordered
    return order.draws


def rise(labels: Sequence[Curve]) -> bool:
    """Return whether each pair dominates the one before; for half a fold, above loss 0."""
    pairs = itertools.pairwise(map(draws_of, labels))
    return all(a <= b for low, high in pairs for a, b in zip(low, high, strict=True))


def tails_of_weights(weighted: Sequence[tuple[float, object]]) -> list[float]:
    """Return, for each place, the weight of that place and all later ones."""
    return list(itertools.accumulate(w for w, _ in reversed(weighted)))[::-1]


def law(tails: Sequence[Sequence[float]], side: Side) -> list[float]:
    """Return the weights of a law above all laws in the usual order, or below all laws.

    Args:
        tails: for each law, the probability of each place or a later one; the first is 1.
        side: which of the two.
    """
    most, factor = FARTHEST[side], _FACTOR[side]
    # THOUSANDS is far more than the error of sums of few positive terms.
    ends = [min(most(column) * factor, 1.0) for column in zip(*tails, strict=True)]
    return [a - b for a, b in itertools.pairwise([1.0, *ends[1:], 0.0])]
