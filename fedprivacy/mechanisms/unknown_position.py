"""Units with a secret position: kernels of their rounds, and trees that dominate them.

Let V be the absolute values of C summed over the rounds of each position, and G = V'V / z^2. The
run is dominated by the average over positions b of exp(X_b - G_bb / 2), X Gaussian with covariance
G (Theorem A). It is also dominated by every tree with larger covariances (Theorems D and E;
correlated_noise.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from ..loss import Allocated, Curve, Gdp, LeastOf, Nested, compose, rough_epsilon, scale
from ..privacy_loss import PrivacyLoss
from ..rounding import SPACING, TENS, THOUSANDS, rounded_down, rounded_up
from . import draws, split_noise
from .shifted import moved_down, moved_up, shifts, spaced_sums, sums_above

Array = NDArray[np.float64]
_SEPARATIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_CHILDREN = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
_DEPTH = 3
_TRIED = 48
_MOVES = 256
"""Number of means of a lower end's mixture."""
_BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers of blocks of neighbouring positions in a lower end's tree."""
_PARTS = 128
_POINTS = 256
_LITTLE = 1e-3

Levels = tuple[tuple[int, float], ...]

SERVES = (
    "these are covered: RandomAllocation(b) with FixedEpochs(b) (bins kept in every epoch) or, "
    "for b = rounds, SingleParticipation, any factor; RandomAllocation(rounds) with "
    "MinimumSeparation(1, at_most=k) (k of all rounds); RandomAllocation(b) with "
    "MinimumSeparation(1, at_most=rounds / b) (bins drawn anew in every epoch); any scheme that "
    "draws in every round with FixedEpochs(b) (groups in turns), any factor; Poisson with "
    "MinimumSeparation(b), any factor"
)
CYCLE = "cyclic sampling, bands <= groups: blocks share no row (Theorem C of correlated_noise.md)"
ALONG = "projected on the sum of all columns"
BINS = "bins: positions of a tree dominate (Theorems A, D and E of correlated_noise.md)"
SOME = "k of n rounds: a common part and k allocations dominate (Theorem A of correlated_noise.md)"
UNHIDDEN = "no amplification: joint convexity over the unit's rounds"
SPLIT = "every bin of rounds gets a share of the noise (Theorem J of correlated_noise.md)"
_LINE = "Poisson, any factor: one dimension dominates (Theorem F of correlated_noise.md)"


def kernel(matrix: Array, places: int, multiplier: float) -> Array:
    """Return G rounded up, shape (places, places).

    Args:
        matrix: |C|, shape (m, n); round i belongs to position i modulo ``places``.
        places: number of positions.
        multiplier: noise multiplier z.
    """
    sums = np.zeros((len(matrix), places))
    for start in range(0, matrix.shape[1], places):
        part = matrix[:, start : start + places]
        sums[:, : part.shape[1]] += part
    # All entries are non-negative, so nothing cancels. Relative errors add up to at most this.
    terms = len(matrix) + matrix.shape[1] // places + 16.0
    return np.asarray(rounded_up((sums.T @ sums) / multiplier**2, 2.0 * terms * SPACING))


def envelope(gram: Array) -> Array:
    """Return g(k), the largest entry of a kernel at a cyclic distance of at least k.

    Returns:
        shape (places // 2 + 1,).
    """
    places = len(gram)
    at = np.zeros(places // 2 + 1)
    for distance in range(places):
        near = min(distance, places - distance)
        at[near] = max(at[near], float(np.diag(gram, distance).max()))
    return np.asarray(np.maximum.accumulate(at[::-1])[::-1])


def best_tree(gram: Array) -> Nested | Gdp:
    """Return a tree of windows, of depth up to 3, with a small loss (Theorem E).

    Any tree is valid. Trees with the least second moment are ranked by their approximate loss.
    """
    above = envelope(gram)
    leaf = float(above[0])
    alone = Gdp(rounded_up(math.sqrt(leaf), SPACING))
    best: dict[object, tuple[float, Levels]] = {}
    for levels in _trees(len(gram), above):
        # Keep the best of each root and depth: the second moment is a poor guide to tails.
        moment, key = scale(levels, leaf), (len(levels), levels[0])
        if key not in best or moment < best[key][0]:
            best[key] = moment, levels
    tried = [levels for _, levels in nsmallest(_TRIED, best.values())]
    # Too few positions for any tree: treat the position as known.
    if not tried:
        return alone
    # First a coarse ranking, then a finer one of the best four.
    few = nsmallest(4, tried, key=lambda levels: rough_epsilon(levels, leaf, 6))
    return Nested(min(few, key=lambda levels: rough_epsilon(levels, leaf, 16)), leaf)


def _trees(places: int, above: Array) -> Iterator[Levels]:
    """Yield levels of windows that fit: children m, windows of L positions, s apart: m (L+s-1)."""
    known = [s for s in _SEPARATIONS if s < len(above)]

    def grow(inner: Levels, length: int, least: int, depth: int) -> Iterator[Levels]:
        # Outer windows are farther apart than inner ones.
        for s in (s for s in known if s >= least):
            window = length + s - 1
            root = places // window
            if root > 1:
                yield ((root, float(above[s])), *inner)
            for children in (many for many in _CHILDREN if depth > 1 and 1 < many < root):
                level = (children, float(above[s]))
                yield from grow((level, *inner), children * window, s + 1, depth - 1)

    return grow((), 1, 1, _DEPTH)


def one_direction(gram: Array) -> Curve:
    """Return a pair attained if C >= 0: the run projected on the sum of all positions' means.

    Means are rounded down to few values, which only reduces the loss (Lemma G).
    """
    sums = gram.sum(axis=1)
    # Rounded down, because this is a lower end.
    means = sums / math.sqrt(float(sums.sum())) * (1.0 - 1e-9)
    levels = np.linspace(0.0, float(means.max()), _MOVES)
    # Each mean moves to the level at or below it.
    index = np.clip(np.searchsorted(levels, means, side="right") - 1, 0, _MOVES - 1)
    counts = np.bincount(index, minlength=_MOVES) / len(means)
    return shifts(levels, counts)


def attained(gram: Array) -> tuple[Curve, str]:
    """Return a curve that the run attains if C >= 0, with a large loss, and its description.

    Candidates are the means along one direction, and trees of contiguous blocks. A tree uses the
    smallest entry inside any block, and the smallest of all entries between blocks (principle B;
    the tree is post-processing).

    Args:
        gram: as of ``kernel``, shape (places, places).
    """
    # Rounded down, because this is a lower end.
    less, best = gram * (1.0 - 1e-9), one_direction(gram)
    how, most = "projected on the sum of all means", draws.rough_epsilon_of_rows([(best, 1)])
    root, leaf = float(less.min()), float(np.diag(less).min())
    for blocks in (many for many in _BLOCKS if len(less) % many == 0):
        size = len(less) // blocks
        inside = less.reshape(blocks, size, blocks, size).min(axis=(1, 3)).diagonal().min()
        levels = ((blocks, root), (size, float(inside)))
        found = rough_epsilon(levels, leaf, 16)
        # Beyond the variances with a computed law, a tree gives no bound.
        if most < found < math.inf:
            best, most = Nested(levels, leaf), found
            how = f"in {blocks} block(s) of positions, with the smallest counted"
    return best, how


def several_of(gram: Array, count: int, known: Curve) -> Curve:
    """Return the curve that dominates participation in ``count`` random positions.

    Args:
        gram: as of ``kernel``, shape (places, places).
        count: number of chosen positions.
        known: curve that dominates if they are known. It is returned if its loss is smaller.
    """
    inside = float(np.diag(gram).max())
    shared = gram - np.diag(np.diag(gram))
    common = float(shared.max()) if len(gram) > 1 else 0.0
    apart = rounded_up(math.sqrt(max(inside - common, 0.0)), SPACING)
    parts: list[tuple[Curve, int]] = [(Gdp(rounded_up(count * math.sqrt(common), SPACING)), 1)]
    # Fewer positions hide less, so their number is rounded down.
    parts.append((Allocated(apart, len(gram) // count), count))
    drawn, plain = map(draws.rough_epsilon_of_rows, (parts, [(known, 1)]))
    return compose(parts) if drawn < plain else known


def rank_one(norms: Array, probability: float, multiplier: float) -> Curve:
    """Return N_S = sum over S of |c_j| / z against 0 in one dimension, S Poisson (Theorem F).

    Norms are rounded up to parts of the largest, and tails to the largest sum.
    """
    unit = float(norms.max()) / _PARTS
    # Keep a quotient that is an integer up to rounding; ``moved_up`` covers the error.
    steps = np.ceil(rounded_down(norms / unit, TENS)).astype(np.int64)
    # Every nonzero norm counts, however small.
    steps = np.maximum(steps, norms > 0.0)
    above = sums_above(steps, np.full(len(norms), probability))
    return moved_up(above, int(steps.sum()), unit / multiplier, points=_POINTS)


def drawn_rounds(
    matrix: Array, draw: draws.Draw, multiplier: float, known: Curve
) -> tuple[Curve, tuple[str, ...]]:
    """Return a curve that dominates a draw of rounds, and the theorems.

    The best curve depends on delta. So every curve is kept, the one with the smallest rough epsilon
    first.

    Args:
        matrix: |C|, shape (m, n).
        draw: how a unit's rounds are drawn.
        multiplier: noise multiplier z.
        known: curve that dominates if the rounds of the unit are known.
    """
    able: list[tuple[Curve, str, draws.Parts]] = [(known, UNHIDDEN, [(known, 1)])]
    if isinstance(draw, draws.Repeated):
        if draw.probability == 1.0:
            return known, (UNHIDDEN,)
        # Rounded up, to cover rounding and underflow in squares and roots.
        norms = rounded_up((matrix**2).sum(axis=0) ** 0.5, THOUSANDS)
        # A unit that stays away for some rounds takes part in fewer.
        line = rank_one(np.maximum(norms, matrix.max(axis=0)), draw.probability, multiplier)
        able.insert(0, (line, _LINE, [(line, 1)]))
    able += [(compose(parts), SPLIT, parts) for parts in _split(matrix, draw, multiplier)]
    # Negligible losses count as ties.
    able.sort(key=lambda one: max(draws.rough_epsilon_of_rows(one[2]), _LITTLE))
    curves = tuple(curve for curve, _, _ in able)
    reasons = tuple(dict.fromkeys(why for _, why, _ in able))
    return LeastOf(curves) if len(curves) > 1 else curves[0], reasons


def _split(matrix: Array, draw: draws.Draw, multiplier: float) -> list[draws.Parts]:
    """Return bins of rounds, each with a share of the noise; none if too large (Theorem J)."""
    if isinstance(draw, draws.Repeated):
        return split_noise.bins_of_rounds(matrix, draw.probability, draw.separation, multiplier)
    gram = split_noise.kernel_of_epochs(matrix, draw.places, multiplier)
    return [] if gram is None else [[(best_tree(gram), matrix.shape[1] // draw.places)]]


def of_any_group(matrix: Array, groups: int) -> Array:
    """Return a matrix whose columns dominate those of every group: 0, b, 2 b, ... of the first one.

    The rows of a square matrix before a group's first column are 0, and are left out. Then every
    entry is the largest of any group (principle B); groups of a Toeplitz matrix are alike.

    Args:
        matrix: |C|, shape (m, n), lower triangular if m = n.
        groups: b.
    """
    found = np.zeros((len(matrix), -(-matrix.shape[1] // groups)))
    for group in range(min(groups, matrix.shape[1])):
        late = group if len(matrix) == matrix.shape[1] else 0
        own = matrix[late:, group::groups]
        inside = found[: len(own), : own.shape[1]]
        np.maximum(inside, own, out=inside)
    return found


def one_each(matrix: Array, places: int, multiplier: float) -> Gdp:
    """Return the curve that dominates known rounds, one in every epoch of ``places`` rounds."""
    gram = kernel(matrix, matrix.shape[1], multiplier)
    # The largest products with one round of every epoch, then the worst round of every epoch.
    most = gram.reshape(len(gram), -1, places).max(axis=2).sum(axis=1)
    square = float(most.reshape(-1, places).max(axis=1).sum())
    return Gdp(rounded_up(math.sqrt(square), THOUSANDS))


def shown_sum(matrix: Array, draw: draws.Draw, multiplier: float) -> Curve:
    """Return a curve that a draw attains if C >= 0: the run along the sum of all columns.

    The amounts by which rounds move it are rounded down (Lemma G).
    """
    towards = matrix.sum(axis=1)
    moves = towards @ matrix / float(np.linalg.norm(towards)) / multiplier * (1.0 - 1e-9)
    unit = float(moves.max()) / _MOVES
    steps = np.floor(moves / unit).astype(np.int64)
    if isinstance(draw, draws.OnceAnEpoch):
        above = sums_above(steps, np.full(len(steps), 1.0 / draw.places), draw.places)
    else:
        above = spaced_sums(steps, draw.probability, draw.separation)
    return moved_down(above, unit)


def least(loss: PrivacyLoss, other: PrivacyLoss) -> PrivacyLoss:
    """Return a loss with the curves of both; every question takes the better one."""
    return replace(
        loss,
        curve=LeastOf((other.curve, loss.curve)),
        witness=other.witness,
        theorems=(*other.theorems, *loss.theorems),
        assumptions=tuple(dict.fromkeys((*loss.assumptions, *other.assumptions))),
        tv_error=max(loss.tv_error, other.tv_error),
    )
