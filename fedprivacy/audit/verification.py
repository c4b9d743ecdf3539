"""Conformance: does a mechanism do what is certified of it? By replay on neighbouring data sets.

An account speaks of contributions clipped to C, of their sum, and of fresh noise of a stated law.
Each of these is looked at: how far a neighbour moves the release, with the noise held; the noise's
scale and shape; its independence over coordinates and over rounds; and whether data sets with equal
sums release the same law. What holds of every pair cannot be tried out: a pass is no proof.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, ndtr, ndtri

from ..errors import UnsupportedCombination, integer, listed, member, open_unit, positive, refuse
from ..mechanisms import (
    IntegerPerturbation,
    Laplace,
    Mechanism,
    Perturbation,
    SparsifiedPerturbation,
)
from ..mechanisms.noise import drawn_from
from ..mechanisms.rounded import STEP_GRID
from ..mechanisms.upload import Upload
from ..relations import Adjacency
from .conformance import (
    Conformance,
    Finding,
    agreement,
    gaussian_ends,
    shape_p_value,
)
from .verify_integers import whole_numbers

Array = NDArray[np.float64]
Release = Callable[[Array, np.random.Generator], Any]
"""Gets the units' updates, shape (units, d), and a generator; returns what is released."""

_LARGE = 1e6
"""Updates of so many clip norms show whether they are clipped."""
_DATA = 6
"""At how many data sets beside zeros the noise is judged."""


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What is certified of a release, and how it is replayed.

    Attributes:
        release: see ``Release``.
        sums: the release without its noise, where that can be had; None to hold the noise instead.
        clip_norm: how far the release moves at most if a unit appears or is zeroed out; None where
            nothing is stated.
        noise_std: of the noise in the release, on each coordinate.
        shape: "gaussian" or "laplace".
        adjacencies: under which neighbours are tried.
        units: how many there are.
        dimension: of an update.
    """

    release: Release
    sums: Callable[[Array], Array] | None = None
    clip_norm: float | None
    noise_std: float
    shape: str = "gaussian"
    adjacencies: tuple[Adjacency, ...] = tuple(Adjacency)
    units: int = 4
    dimension: int = 12


def verify(
    release: Release | Mechanism,
    *,
    clip_norm: float | None = None,
    noise_std: float | None = None,
    shape: str = "gaussian",
    adjacency: Adjacency | str | None = None,
    units: int = 4,
    dimension: int = 12,
    pairs: int = 500,
    draws: int = 400,
    level: float = 1e-3,
    generator: np.random.Generator | None = None,
) -> Conformance:
    """Replay a mechanism on neighbouring data sets and hold it against what is stated of it.

    The tests of noise have exact error rates (chi-square and gamma laws, Massart's inequality for
    the shape, binomial laws of signs), which are added up.

    Args:
        release: a mechanism of this package that releases; or a function of (updates, generator),
            updates of shape (units, d), that clips each row, sums them, adds noise drawn from the
            generator alone and returns a flat release, or one a round as rows. Of zeros it
            releases noise alone. No units are sampled in it.
        clip_norm: how far the release moves at most if a unit appears or is zeroed out (twice that
            if one is replaced), in the release's own units. Needed with a function.
        noise_std: std of the noise on each coordinate of the release. Needed with a function.
        shape: of the noise: "gaussian" or "laplace".
        adjacency: None for all three, or all that the mechanism serves.
        units: how many updates there are, at least 2.
        dimension: of an update.
        pairs: neighbouring pairs tried under each adjacency.
        draws: releases that the noise is judged by, at each data set.
        level: chance that a mechanism that is as stated fails, in (0, 1).
        generator: None for randomness from the operating system.

    Raises:
        ParameterError: a value out of its range, or a mechanism that releases nothing.

    >>> import numpy as np, fedprivacy as fp
    >>> def average(updates, generator):
    ...     limits = np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), 1.0)
    ...     total = (updates / limits).sum(axis=0)
    ...     return (total + generator.normal(0, 2, total.shape)) / len(updates)
    >>> rng = np.random.default_rng(0)
    >>> fp.verify(average, clip_norm=0.25, noise_std=0.5, generator=rng).failures
    ('scale', 'shape')
    """
    # Fresh by default: nothing should pass because of the seed that it is tried with.
    source = drawn_from(generator)
    chance = open_unit(level=level)
    tries, times = integer(1, pairs=pairs), integer(20, draws=draws)
    if isinstance(release, IntegerPerturbation):
        asked = _asked(_served(release), adjacency)
        return whole_numbers(release, asked, tries, times, chance, source)
    if isinstance(release, Mechanism):
        stated = _of_mechanism(release, source)
    else:
        stated = _of_function(release, clip_norm, noise_std, shape, units, dimension)
    stated = replace(stated, adjacencies=_asked(stated.adjacencies, adjacency))
    # Means, noise of zeros, independence and noise of data get a quarter of the level each.
    replay = Replay(stated, source, times, chance / 4.0)
    findings = (
        *replay.replays(),
        *replay.movements(tries),
        *replay.equal_sums(tries),
        *replay.noise(),
        *replay.noise_of_data(),
    )
    return Conformance(all(one.passed for one in findings), findings, chance)


def _asked(
    served: tuple[Adjacency, ...], adjacency: Adjacency | str | None
) -> tuple[Adjacency, ...]:
    """Return under which adjacencies neighbours are tried: all, or the one that is asked about."""
    if adjacency is None:
        return served
    one = member(Adjacency, adjacency=adjacency)
    if one not in served:
        refuse("adjacency", str(one), f"be one of {listed(served)}")
    return (one,)


# ---- what is stated


def _of_function(
    release: Release,
    clip_norm: float | None,
    noise_std: float | None,
    shape: str,
    units: int,
    dimension: int,
) -> Stated:
    if not callable(release):
        kind = type(release).__name__
        refuse("release", kind, "be a mechanism or a function of (updates, generator)")
    # Other laws have no exact test of their scale here.
    if shape not in _SIZES:
        refuse("shape", shape, f"be one of {listed(_SIZES)}")
    return Stated(
        release=release,
        clip_norm=positive(clip_norm=clip_norm),
        noise_std=positive(noise_std=noise_std),
        shape=shape,
        units=integer(2, units=units),
        dimension=integer(1, dimension=dimension),
    )


def _of_mechanism(mechanism: Mechanism, source: np.random.Generator) -> Stated:
    served = _served(mechanism)
    if isinstance(mechanism, SparsifiedPerturbation):
        return _of_shares(mechanism, served, source)
    if isinstance(mechanism, Upload):
        return Stated(
            release=lambda updates, generator: mechanism.release(updates.sum(axis=0), generator),
            sums=lambda updates: np.asarray(updates.sum(axis=0)),
            clip_norm=None,
            noise_std=mechanism.step_noise_std,
            adjacencies=served,
        )
    if not isinstance(mechanism, Perturbation):
        kind = type(mechanism).__name__
        refuse("release", kind, "be a mechanism that clips and releases sums", "pass a function")
    return _of_sums(mechanism, served)


def _of_sums(mechanism: Perturbation, served: tuple[Adjacency, ...]) -> Stated:
    """Return the sum of clipped contributions, with noise."""

    def total(updates: Array) -> Array:
        return np.asarray(sum(mechanism.contribution(row) for row in updates))

    def released(updates: Array, generator: np.random.Generator) -> Any:
        value = total(updates)
        # A mechanism with its own release may round or clip after the noise: that is what ran.
        own = getattr(mechanism, "release", None)
        return own(value, generator) if own else value + mechanism.noise(value, generator)[0]

    laplace = isinstance(mechanism, Laplace)
    return Stated(
        release=released,
        sums=total,
        clip_norm=mechanism.clip_norm,
        noise_std=mechanism.full_noise_std,
        shape="laplace" if laplace else "gaussian",
        adjacencies=served,
        # The Laplace mechanism is accounted by an L1 norm, which is the clip norm in one dimension.
        dimension=1 if laplace else 12,
    )


def _served(mechanism: Mechanism) -> tuple[Adjacency, ...]:
    return tuple(one for one in Adjacency if _serves(mechanism, one))


def _serves(mechanism: Mechanism, adjacency: Adjacency) -> bool:
    try:
        mechanism.privacy_loss(adjacency)
    # A refused adjacency has no bound that neighbours could break.
    except UnsupportedCombination:
        return False
    return True


def _of_shares(
    mechanism: SparsifiedPerturbation,
    served: tuple[Adjacency, ...],
    source: np.random.Generator,
) -> Stated:
    """Return the secure sum of a whole cohort's shares, on one round's mask."""
    # One mask for all replays, as in one round: another would move coordinates, not sums.
    mask = mechanism.draw_mask(source)

    def total(updates: Array) -> Array:
        return np.asarray(sum(mechanism.contribution(row, mask) for row in updates))

    def released(updates: Array, generator: np.random.Generator) -> Any:
        shares = len(updates) if mechanism.topped_up else None
        sent = [mechanism.release(row, generator, mask=mask, shares=shares) for row in updates]
        return np.sum(sent, axis=0)[mask]

    return Stated(
        release=released,
        sums=total,
        clip_norm=mechanism.clip_norm,
        noise_std=mechanism.full_noise_std,
        adjacencies=served,
        units=mechanism.cohort,
        dimension=mechanism.dimension,
    )


# ---- the laws of one number, its std being 1


def _laplace_cdf(x: Array) -> Array:
    scaled = math.sqrt(2.0) * x
    half = 0.5 * np.exp(-np.abs(scaled))
    return np.where(x < 0.0, half, 1.0 - half)


def _laplace_ends(values: Array) -> float:
    """Return the two-sided p-value of the sum of sizes, a gamma variable."""
    total = math.sqrt(2.0) * float(np.abs(values).sum())
    return 2.0 * float(min(gammainc(values.size, total), gammaincc(values.size, total)))


_SIZES = {"gaussian": gaussian_ends, "laplace": _laplace_ends}
_CDFS: dict[str, Callable[[Array], Array]] = {"gaussian": ndtr, "laplace": _laplace_cdf}
_MEDIANS = {"gaussian": float(ndtri(0.75)), "laplace": math.log(2.0) / math.sqrt(2.0)}
"""Median of the size."""


def _laplace_difference_cdf(x: Array) -> Array:
    """Return the law of the difference of two Laplace variables of std 1."""
    scaled = math.sqrt(2.0) * np.abs(x)
    tail = (2.0 + scaled) * np.exp(-scaled) / 4.0
    return np.where(x < 0.0, tail, 1.0 - tail)


_DIFFERENCES: dict[str, Callable[[Array], Array]] = {
    "gaussian": lambda x: np.asarray(ndtr(x / math.sqrt(2.0))),
    "laplace": _laplace_difference_cdf,
}


# ---- replays


@dataclass
class Replay:
    """Releases of one stated mechanism, again and again."""

    stated: Stated
    source: np.random.Generator
    draws: int
    level: float
    _digits: float = field(default=0.0, init=False)

    @property
    def _zeros(self) -> Array:
        return np.zeros((self.stated.units, self.stated.dimension))

    def at(self, updates: Array, seed: int) -> Array:
        """Return a release, shape (rounds, k), with the noise of ``seed``."""
        # A copy, since a release may clip in place and spoil the data for the next.
        released = self.stated.release(updates.copy(), np.random.default_rng(seed))
        rule = "be finite, of shape (k,) or (rounds, k)"
        try:
            found = np.asarray(released)
            numbers = np.atleast_2d(np.asarray(found, dtype=np.float64))
        except (TypeError, ValueError):
            refuse("release's result", type(released).__name__, rule)
        if not found.size:
            refuse("release's result", found.shape, rule)
        # Single precision has its own rounding, which must not look like a movement.
        self._digits = max(np.finfo(np.float64).eps, _resolution(found))
        found = numbers
        # What is not finite has no distance to anything.
        if found.ndim != 2 or not np.isfinite(found).all():
            refuse("release's result", found.shape, rule)
        return found

    def many(self, updates: Array) -> Array:
        """Return releases with fresh noise, shape (draws, rounds, k)."""
        return np.stack([self.at(updates, self.seed()) for _ in range(self.draws)])

    def seed(self) -> int:
        """Return a fresh one."""
        return int(self.source.integers(2**62))

    def replays(self) -> Iterator[Finding]:
        """Tell whether all randomness comes from the generator, and some does."""
        one, other = self.seed(), self.seed()
        # Twice the same seed and once another: whatever is not held comes from elsewhere.
        first, again, fresh = (self.at(self._zeros, seed) for seed in (one, one, other))
        # Exact: with the same draws even the rounding is the same.
        apart = float(np.abs(first - again).max())
        detail = "the same generator gives the same release"
        yield Finding("replay", apart == 0.0, apart, 0.0, detail)
        same = float(np.mean(first == fresh))
        yield Finding("fresh noise", same < 0.5, same, 0.5, "another generator gives another one")

    # -- movement

    def movements(self, pairs: int) -> Iterator[Finding]:
        """Measure how far neighbours are apart, the noise held, under each adjacency."""
        if self.stated.clip_norm is None:
            return
        for adjacency in self.stated.adjacencies:
            allowed = self.stated.clip_norm * adjacency.moves
            tried = [self._apart(*self._neighbours(adjacency, n)) for n in range(pairs)]
            yield self._judged("movement", tried, allowed, f"{adjacency}, ")

    def equal_sums(self, pairs: int) -> Iterator[Finding]:
        """Measure how far data sets with equal sums of clipped updates are apart."""
        if self.stated.clip_norm is None:
            return
        tried = [self._apart(*self._same_sum(number)) for number in range(pairs)]
        yield self._judged("equal sums", tried, 0.0, "")

    def _judged(self, name: str, tried: list[_Pair], allowed: float, under: str) -> Finding:
        # A pair with a large sum has more rounding: it may move farther and still be fine.
        worst = max(tried, key=lambda one: one.moved - one.room)
        detail = f"{under}the worst of {len(tried)} pairs"
        if worst.moved <= allowed + worst.room:
            return Finding(name, True, worst.moved, allowed + worst.room, detail)
        if self._lines_up(worst):
            return Finding(name, False, worst.moved, allowed + worst.room, detail)
        along, far = self._means(worst)
        # Noise that depends on the data cannot be held, so that only means can be compared.
        detail = f"{detail}; held noise does not line up ({worst.moved:.4g} apart), so by means"
        return Finding(name, along <= allowed + far, along, allowed + far, detail)

    def _apart(self, one: Array, other: Array) -> _Pair:
        """Return how far two data sets' releases are apart in the worst round, and rounding."""
        if self.stated.sums is not None:
            first, second = (np.atleast_2d(self.stated.sums(data)) for data in (one, other))
            self._digits = float(np.finfo(np.float64).eps)
        else:
            seed = self.seed()
            first, second = self.at(one, seed), self.at(other, seed)
        moved = float(np.linalg.norm(first - second, axis=1).max())
        largest = float(max(np.abs(first).max(), np.abs(second).max()))
        terms = (len(one) + 2) * math.sqrt(first.shape[1])
        # Each term of a sum may be off by its last digit, on every coordinate.
        room = 2.0 * terms * self._digits * (largest + (self.stated.clip_norm or 0.0))
        # Rounded after the noise, to the coarsest grid of our loops or a finer one.
        room += STEP_GRID * self.stated.noise_std * math.sqrt(first.shape[1])
        return _Pair(moved, room, one, other)

    def _lines_up(self, pair: _Pair) -> bool:
        """Return whether other noise, held, leaves the same distance between two data sets."""
        if self.stated.sums is not None:
            return True
        again = [self._apart(pair.one, pair.other) for _ in range(6)]
        # Noise that does not line up leaves distances that spread by 1 / sqrt(2 k) of themselves;
        # arithmetic in single precision by far less than this.
        same = pair.room + 1e-5 * pair.moved
        return all(abs(one.moved - pair.moved) <= one.room + same for one in again)

    def _means(self, pair: _Pair) -> tuple[float, float]:
        """Return how far apart two data sets' means are, and how far noise alone may carry that.

        The mean difference of one half of the draws says in which direction; that of the other
        half is normal along it (Laplace noise: by Chebyshev), so the test has its level.
        """
        gaps = self.many(pair.one) - self.many(pair.other)
        half = len(gaps) // 2
        guide, mean = gaps[:half].mean(axis=0), gaps[half:].mean(axis=0)
        number = int(np.linalg.norm(guide, axis=1).argmax())
        along = float(guide[number] @ mean[number] / np.linalg.norm(guide[number]))
        share = self.level / (1 + len(self.stated.adjacencies))
        spread = self.stated.noise_std * math.sqrt(2.0 / (len(gaps) - half))
        far = -float(ndtri(share)) if self.stated.shape == "gaussian" else share**-0.5
        return along, far * spread

    def _neighbours(self, adjacency: Adjacency, number: int) -> tuple[Array, Array]:
        """Return two neighbouring data sets; what the others send goes from nothing to a lot."""
        updates = self._updates(number)
        other = updates.copy()
        # Any unit may be the one that is weighted too much.
        who = int(self.source.integers(len(updates)))
        if adjacency is Adjacency.ADD_REMOVE:
            return updates, np.delete(updates, who, axis=0)
        turned = adjacency is Adjacency.REPLACE_ONE
        other[who] = (
            # Opposite updates are the farthest that two clipped ones can be apart.
            (-updates[who] if number % 2 else self._updates(number)[who]) if turned else 0.0
        )
        return updates, other

    def _updates(self, number: int) -> Array:
        """Return random updates: spikes, small, at the clip norm, or far above it."""
        shape = self.stated.units, self.stated.dimension
        rows = self.source.normal(size=shape)
        # Every third data set has spikes: a norm other than the stated one shows there.
        if number % 3 == 0:
            rows = np.zeros(shape)
            rows[np.arange(shape[0]), self.source.integers(shape[1], size=shape[0])] = 1.0
        # Between none and the clip norm as well: a rule may be wrong there alone.
        inside = self.source.uniform(size=(shape[0], 1))
        which = self.source.integers(5, size=(shape[0], 1))
        lengths = np.choose(which, [1e-3, inside, 1.0, 3.0, _LARGE])
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        # Lengths from far below to far above the clip norm, so that clipping is seen at work.
        return np.asarray(rows / norms * lengths * (self.stated.clip_norm or 1.0))

    def _same_sum(self, number: int) -> tuple[Array, Array]:
        """Return two data sets with equal sums: in another order, or a unit more that is zero.

        Or one unit's update shared by two, where nothing is clipped; not of mechanisms of this
        package, which round each contribution to a grid, so that the sums are equal no more.
        """
        updates = self._updates(number)
        if Adjacency.ADD_REMOVE in self.stated.adjacencies and number % 3 == 0:
            return updates, np.vstack([updates, np.zeros((1, updates.shape[1]))])
        if number % 3 == 1 or self.stated.sums is not None:
            return updates, updates[self.source.permutation(len(updates))]
        small = updates / np.linalg.norm(updates, axis=1, keepdims=True)
        small *= 1e-3 * (self.stated.clip_norm or 1.0)
        # The unit that shares must be there in both, so that the numbers of units are equal.
        small[1] = 0.0
        shared = small.copy()
        shared[:2] = small[0] / 2.0
        return small, shared

    # -- noise

    def noise_of_data(self) -> Iterator[Finding]:
        """Judge the noise of data that are not zeros, by what two releases of them differ by."""
        # The sum is the same in both, whatever it is: only noise is left.
        cdf = _DIFFERENCES[self.stated.shape]
        for number in range(_DATA):
            values = self.many(self._updates(number)) / self.stated.noise_std
            half = len(values) // 2
            # Large sums are rounded to more than the noise's last digits.
            p = shape_p_value(values[:half] - values[half : 2 * half], cdf)
            share = self.level / _DATA
            detail = f"noise of data set {number + 1} of {_DATA}, p-value"
            yield Finding("noise of data", p >= share, p, share, detail)

    def noise(self) -> Iterator[Finding]:
        """Judge the noise at zero sums of several numbers of units; all are held to one law."""
        data = {f"{len(self._zeros)} units": self._zeros}
        if Adjacency.ADD_REMOVE in self.stated.adjacencies:
            data[f"{len(self._zeros) - 1} units"] = self._zeros[1:]
        # Two tests at each data set share this part of the level.
        share = self.level / (2 * len(data))
        for name, updates in data.items():
            values = self.many(updates) / self.stated.noise_std
            p = _SIZES[self.stated.shape](values)
            spread = float(np.sqrt((values**2).mean())) * self.stated.noise_std
            detail = f"std at {name}, p = {p:.3g}"
            yield Finding("scale", p >= share, spread, self.stated.noise_std, detail)
            p = shape_p_value(values, _CDFS[self.stated.shape])
            yield Finding("shape", p >= share, p, share, f"{self.stated.shape}, p-value at {name}")
            if len(updates) == self.stated.units:
                yield from self._independence(values)

    def _independence(self, values: Array) -> Iterator[Finding]:
        """Compare signs, and whether sizes are above their median, by pairs of fair coins."""
        # Sizes as well as signs: noise may be uncorrelated and still not independent.
        coins = np.stack([values > 0.0, np.abs(values) > _MEDIANS[self.stated.shape]])
        kinds, draws, rounds, width = coins.shape
        rows = coins.reshape(kinds, draws * rounds, width)
        sides = itertools.combinations(range(width), 2)
        ps = [agreement(rows[:, :, i], rows[:, :, j]) for i, j in sides]
        yield self._least("coordinates", [*itertools.chain.from_iterable(ps)])
        by_round = coins.transpose(2, 0, 1, 3).reshape(rounds, kinds, draws * width)
        ps = [agreement(one, other) for one, other in itertools.combinations(by_round, 2)]
        yield self._least("rounds", [*itertools.chain.from_iterable(ps)])

    def _least(self, name: str, ps: list[float]) -> Finding:
        # Bonferroni over all pairs, so that many coordinates raise no false alarm.
        share = self.level / 2.0 / max(len(ps), 1)
        least = min(ps, default=1.0)
        detail = f"least p-value of {len(ps)} pairs of signs and sizes"
        return Finding(name, least >= share, least, share, detail)


class _Pair(NamedTuple):
    """Two data sets, how far apart their releases are, and how far rounding alone may move them."""

    moved: float
    room: float
    one: Array
    other: Array


def _resolution(found: Any) -> float:
    return float(np.finfo(found.dtype).eps) if found.dtype.kind == "f" else 0.0
