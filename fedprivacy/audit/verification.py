"""Conformance: replay a mechanism on neighbouring data sets and test it against its certificate.

An account assumes contributions clipped to C, their sum, and fresh noise with a stated law. The
replay tests each assumption. It measures how far a neighbour moves the release while the noise is
held fixed. It tests the scale and shape of the noise, and its independence over coordinates and
rounds. It tests whether data sets with equal sums give the same law. No test can try every pair of
data sets, so a pass is no proof.
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
from ..mechanisms.upload import NoisySteps
from ..relations import Adjacency
from .conformance import (
    Conformance,
    Finding,
    agreement,
    gaussian_ends,
    shape_p_value,
)
from .verify_integers import integer_replay

Array = NDArray[np.float64]
Release = Callable[[Array, np.random.Generator], Any]
"""Gets the updates of the units, shape (units, d), and a generator; returns the release."""

_LARGE = 1e6
"""Size of the largest updates, in clip norms. They show whether updates are clipped."""
_DATA = 6
"""Number of nonzero data sets at which the noise is tested."""


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """The certified properties of a release, and the settings of its replay.

    Attributes:
        release: see ``Release``.
        sums: the release without its noise, if available. None holds the noise fixed instead.
        clip_norm: largest movement of the release if a unit appears or is zeroed out; None if
            nothing is stated.
        noise_std: std of the noise on each coordinate of the release.
        shape: "gaussian" or "laplace".
        adjacencies: the adjacencies under which neighbours are tried.
        units: number of units.
        dimension: dimension of an update.
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
    """Replay a mechanism on neighbouring data sets and test it against its stated properties.

    The noise tests have exact error rates, which are added up. They use chi-square and gamma laws,
    Massart's inequality for the shape, and binomial laws of signs.

    Args:
        release: a mechanism of this package that releases, or a function of (updates, generator).
            The updates have shape (units, d). The function clips each row, sums the rows and adds
            noise drawn only from the generator. It returns a flat release, or one row per round.
            For zero updates it releases only noise. It must not sample units.
        clip_norm: largest movement of the release if a unit appears or is zeroed out (twice that if
            a unit is replaced), in units of the release. Required with a function.
        noise_std: std of the noise on each coordinate of the release. Required with a function.
        shape: law of the noise: "gaussian" or "laplace".
        adjacency: None for all three, or for all that the mechanism supports.
        units: number of updates, at least 2.
        dimension: dimension of an update.
        pairs: number of neighbouring pairs tried under each adjacency.
        draws: number of releases for the noise tests, at each data set.
        level: probability that a correct mechanism fails, in (0, 1).
        generator: None for randomness from the operating system.

    Raises:
        ParameterError: if a value is out of range, or the mechanism has no release.

    >>> import numpy as np, fedprivacy as fp
    >>> def average(updates, generator):
    ...     limits = np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), 1.0)
    ...     total = (updates / limits).sum(axis=0)
    ...     return (total + generator.normal(0, 2, total.shape)) / len(updates)
    >>> rng = np.random.default_rng(0)
    >>> fp.verify(average, clip_norm=0.25, noise_std=0.5, generator=rng).failures
    ('scale', 'shape')
    """
    # The default is fresh randomness, so that no mechanism passes only because of a fixed seed.
    source = drawn_from(generator)
    chance = open_unit(level=level)
    tries, times = integer(1, pairs=pairs), integer(20, draws=draws)
    if isinstance(release, IntegerPerturbation):
        adjacencies = _requested(_served(release), adjacency)
        return integer_replay(release, adjacencies, tries, times, chance, source)
    if isinstance(release, Mechanism):
        stated = _of_mechanism(release, source)
    else:
        stated = _of_function(release, clip_norm, noise_std, shape, units, dimension)
    stated = replace(stated, adjacencies=_requested(stated.adjacencies, adjacency))
    # Four groups of tests get a quarter of the level each: means, noise of zeros, independence, and
    # noise of data.
    replay = Replay(stated, source, times, chance / 4.0)
    findings = (
        *replay.replays(),
        *replay.movements(tries),
        *replay.equal_sums(tries),
        *replay.noise(),
        *replay.noise_of_data(),
    )
    return Conformance(all(one.passed for one in findings), findings, chance)


def _requested(
    served: tuple[Adjacency, ...], adjacency: Adjacency | str | None
) -> tuple[Adjacency, ...]:
    """Return the adjacencies to test: all supported ones, or the requested one."""
    if adjacency is None:
        return served
    one = member(Adjacency, adjacency=adjacency)
    if one not in served:
        refuse("adjacency", str(one), f"be one of {listed(served)}")
    return (one,)


# ---- stated properties


def _of_function(
    release: Release,
    clip_norm: float | None,
    noise_std: float | None,
    shape: str,
    units: int,
    dimension: int,
) -> ReplaySettings:
    if not callable(release):
        kind = type(release).__name__
        refuse("release", kind, "be a mechanism or a function of (updates, generator)")
    # Only these laws have an exact test of the scale.
    if shape not in _SIZES:
        refuse("shape", shape, f"be one of {listed(_SIZES)}")
    return ReplaySettings(
        release=release,
        clip_norm=positive(clip_norm=clip_norm),
        noise_std=positive(noise_std=noise_std),
        shape=shape,
        units=integer(2, units=units),
        dimension=integer(1, dimension=dimension),
    )


def _of_mechanism(mechanism: Mechanism, source: np.random.Generator) -> ReplaySettings:
    served = _served(mechanism)
    if isinstance(mechanism, SparsifiedPerturbation):
        return _of_shares(mechanism, served, source)
    if isinstance(mechanism, NoisySteps):
        return ReplaySettings(
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


def _of_sums(mechanism: Perturbation, served: tuple[Adjacency, ...]) -> ReplaySettings:
    """Return the stated properties of a noisy sum of clipped contributions."""

    def total(updates: Array) -> Array:
        return np.asarray(sum(mechanism.contribution(row) for row in updates))

    def released(updates: Array, generator: np.random.Generator) -> Any:
        value = total(updates)
        # A mechanism's own release method may round or clip after the noise, so the replay uses it.
        own = getattr(mechanism, "release", None)
        return own(value, generator) if own else value + mechanism.noise(value, generator)[0]

    laplace = isinstance(mechanism, Laplace)
    return ReplaySettings(
        release=released,
        sums=total,
        clip_norm=mechanism.clip_norm,
        noise_std=mechanism.full_noise_std,
        shape="laplace" if laplace else "gaussian",
        adjacencies=served,
        # The account of Laplace noise uses an L1 norm, which equals the clip norm in one dimension.
        dimension=1 if laplace else 12,
    )


def _served(mechanism: Mechanism) -> tuple[Adjacency, ...]:
    return tuple(one for one in Adjacency if _serves(mechanism, one))


def _serves(mechanism: Mechanism, adjacency: Adjacency) -> bool:
    try:
        mechanism.privacy_loss(adjacency)
    # A refused adjacency has no bound to test.
    except UnsupportedCombination:
        return False
    return True


def _of_shares(
    mechanism: SparsifiedPerturbation,
    served: tuple[Adjacency, ...],
    source: np.random.Generator,
) -> ReplaySettings:
    """Return the stated properties of the secure sum of a full cohort's shares, with one mask."""
    # All replays use one mask, as in one round. Another mask would move coordinates, not sums.
    mask = mechanism.draw_mask(source)

    def total(updates: Array) -> Array:
        return np.asarray(sum(mechanism.contribution(row, mask) for row in updates))

    def released(updates: Array, generator: np.random.Generator) -> Any:
        shares = len(updates) if mechanism.topped_up else None
        sent = [mechanism.release(row, generator, mask=mask, shares=shares) for row in updates]
        return np.sum(sent, axis=0)[mask]

    return ReplaySettings(
        release=released,
        sums=total,
        clip_norm=mechanism.clip_norm,
        noise_std=mechanism.full_noise_std,
        adjacencies=served,
        units=mechanism.cohort,
        dimension=mechanism.dimension,
    )


# ---- laws of one coordinate, scaled to std 1


def _laplace_cdf(x: Array) -> Array:
    scaled = math.sqrt(2.0) * x
    half = 0.5 * np.exp(-np.abs(scaled))
    return np.where(x < 0.0, half, 1.0 - half)


def _laplace_ends(values: Array) -> float:
    """Return the two-sided p-value of the sum of absolute values, a gamma variable."""
    total = math.sqrt(2.0) * float(np.abs(values).sum())
    return 2.0 * float(min(gammainc(values.size, total), gammaincc(values.size, total)))


_SIZES = {"gaussian": gaussian_ends, "laplace": _laplace_ends}
_CDFS: dict[str, Callable[[Array], Array]] = {"gaussian": ndtr, "laplace": _laplace_cdf}
_MEDIANS = {"gaussian": float(ndtri(0.75)), "laplace": math.log(2.0) / math.sqrt(2.0)}
"""Median of the absolute value."""


def _laplace_difference_cdf(x: Array) -> Array:
    """Return the cdf of the difference of two Laplace variables of std 1."""
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
    """Repeated releases of one stated mechanism."""

    stated: ReplaySettings
    source: np.random.Generator
    draws: int
    level: float
    _digits: float = field(default=0.0, init=False)

    @property
    def _zeros(self) -> Array:
        return np.zeros((self.stated.units, self.stated.dimension))

    def at(self, updates: Array, seed: int) -> Array:
        """Return a release, shape (rounds, k), with the noise of ``seed``."""
        # Pass a copy, because a release may clip in place and change the data for the next call.
        released = self.stated.release(updates.copy(), np.random.default_rng(seed))
        rule = "be finite, of shape (k,) or (rounds, k)"
        try:
            found = np.asarray(released)
            numbers = np.atleast_2d(np.asarray(found, dtype=np.float64))
        except (TypeError, ValueError):
            refuse("release's result", type(released).__name__, rule)
        if not found.size:
            refuse("release's result", found.shape, rule)
        # Rounding in single precision must not look like a movement.
        self._digits = max(np.finfo(np.float64).eps, _resolution(found))
        found = numbers
        # Non-finite values have no distance.
        if found.ndim != 2 or not np.isfinite(found).all():
            refuse("release's result", found.shape, rule)
        return found

    def many(self, updates: Array) -> Array:
        """Return releases with fresh noise, shape (draws, rounds, k)."""
        return np.stack([self.at(updates, self.seed()) for _ in range(self.draws)])

    def seed(self) -> int:
        """Return a fresh seed."""
        return int(self.source.integers(2**62))

    def replays(self) -> Iterator[Finding]:
        """Test that all randomness comes from the generator, and that some randomness exists."""
        one, other = self.seed(), self.seed()
        # Two releases share a seed and one has another. A difference between the first two shows
        # other randomness.
        first, again, fresh = (self.at(self._zeros, seed) for seed in (one, one, other))
        # The comparison is exact: with the same draws, even the rounding is the same.
        apart = float(np.abs(first - again).max())
        detail = "the same generator gives the same release"
        yield Finding("replay", apart == 0.0, apart, 0.0, detail)
        same = float(np.mean(first == fresh))
        yield Finding("fresh noise", same < 0.5, same, 0.5, "another generator gives another one")

    # -- movement

    def movements(self, pairs: int) -> Iterator[Finding]:
        """Measure the distance of neighbours under each adjacency, with the noise held fixed."""
        if self.stated.clip_norm is None:
            return
        for adjacency in self.stated.adjacencies:
            allowed = self.stated.clip_norm * adjacency.moves
            tried = [self._apart(*self._neighbours(adjacency, n)) for n in range(pairs)]
            yield self._judged("movement", tried, allowed, f"{adjacency}, ")

    def equal_sums(self, pairs: int) -> Iterator[Finding]:
        """Measure the distance between data sets with equal sums of clipped updates."""
        if self.stated.clip_norm is None:
            return
        tried = [self._apart(*self._same_sum(number)) for number in range(pairs)]
        yield self._judged("equal sums", tried, 0.0, "")

    def _judged(self, name: str, tried: list[_DataSetPair], allowed: float, under: str) -> Finding:
        # A pair with a large sum has more rounding, so it may move farther and still pass.
        worst = max(tried, key=lambda one: one.moved - one.room)
        detail = f"{under}the worst of {len(tried)} pairs of data sets"
        if worst.moved <= allowed + worst.room:
            return Finding(name, True, worst.moved, allowed + worst.room, detail)
        if self._lines_up(worst):
            return Finding(name, False, worst.moved, allowed + worst.room, detail)
        along, far = self._means(worst)
        # Noise that depends on the data cannot be held fixed, so the test compares only means.
        detail = (
            f"{detail}; the noise differs between equal generators (by {worst.moved:.4g}), so "
            "means are compared"
        )
        return Finding(name, along <= allowed + far, along, allowed + far, detail)

    def _apart(self, one: Array, other: Array) -> _DataSetPair:
        """Return how far two data sets' releases differ in the worst round, and the rounding."""
        if self.stated.sums is not None:
            first, second = (np.atleast_2d(self.stated.sums(data)) for data in (one, other))
            self._digits = float(np.finfo(np.float64).eps)
        else:
            seed = self.seed()
            first, second = self.at(one, seed), self.at(other, seed)
        moved = float(np.linalg.norm(first - second, axis=1).max())
        largest = float(max(np.abs(first).max(), np.abs(second).max()))
        terms = (len(one) + 2) * math.sqrt(first.shape[1])
        # Each term of a sum may be wrong in its last digit, on every coordinate.
        room = 2.0 * terms * self._digits * (largest + (self.stated.clip_norm or 0.0))
        # Releases are rounded after the noise, to the coarsest grid of the package's loops or a
        # finer one.
        room += STEP_GRID * self.stated.noise_std * math.sqrt(first.shape[1])
        return _DataSetPair(moved, room, one, other)

    def _lines_up(self, pair: _DataSetPair) -> bool:
        """Return whether other held noise leaves the same distance between two data sets."""
        if self.stated.sums is not None:
            return True
        again = [self._apart(pair.one, pair.other) for _ in range(6)]
        # If the noise does not line up, distances vary by a relative 1 / sqrt(2 k). Arithmetic in
        # single precision varies by much less than this tolerance.
        same = pair.room + 1e-5 * pair.moved
        return all(abs(one.moved - pair.moved) <= one.room + same for one in again)

    def _means(self, pair: _DataSetPair) -> tuple[float, float]:
        """Return the distance of two data sets' means, and the distance that noise can explain.

        The mean difference over one half of the draws gives a direction. The mean difference over
        the other half is normal along it (for Laplace noise: by Chebyshev). Hence the test keeps
        its level.
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
        """Return two neighbouring data sets, with small to large updates of the other units."""
        updates = self._updates(number)
        other = updates.copy()
        # A random unit changes, because the error may be in the weight of any unit.
        who = int(self.source.integers(len(updates)))
        if adjacency is Adjacency.ADD_REMOVE:
            return updates, np.delete(updates, who, axis=0)
        turned = adjacency is Adjacency.REPLACE_ONE
        other[who] = (
            # Opposite updates have the largest distance that two clipped updates can have.
            (-updates[who] if number % 2 else self._updates(number)[who]) if turned else 0.0
        )
        return updates, other

    def _updates(self, number: int) -> Array:
        """Return random updates: spikes, small ones, ones at the clip norm, or far above it."""
        shape = self.stated.units, self.stated.dimension
        rows = self.source.normal(size=shape)
        # Every third data set has spikes, which reveal a norm other than the stated one.
        if number % 3 == 0:
            rows = np.zeros(shape)
            rows[np.arange(shape[0]), self.source.integers(shape[1], size=shape[0])] = 1.0
        # Some lengths are between zero and the clip norm, because an error may show only there.
        inside = self.source.uniform(size=(shape[0], 1))
        which = self.source.integers(5, size=(shape[0], 1))
        lengths = np.choose(which, [1e-3, inside, 1.0, 3.0, _LARGE])
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        # Lengths range from far below to far above the clip norm, so that clipping is exercised.
        return np.asarray(rows / norms * lengths * (self.stated.clip_norm or 1.0))

    def _same_sum(self, number: int) -> tuple[Array, Array]:
        """Return two data sets with equal sums: reordered, or with an additional zero unit.

        A third case: two units share an update of one unit that is too small to be clipped. This
        case is left out for mechanisms of this package. They round each contribution to a grid, so
        the sums would differ.
        """
        updates = self._updates(number)
        if Adjacency.ADD_REMOVE in self.stated.adjacencies and number % 3 == 0:
            return updates, np.vstack([updates, np.zeros((1, updates.shape[1]))])
        if number % 3 == 1 or self.stated.sums is not None:
            return updates, updates[self.source.permutation(len(updates))]
        small = updates / np.linalg.norm(updates, axis=1, keepdims=True)
        small *= 1e-3 * (self.stated.clip_norm or 1.0)
        # The second of the sharing units exists in both data sets, so that the numbers of units are
        # equal.
        small[1] = 0.0
        shared = small.copy()
        shared[:2] = small[0] / 2.0
        return small, shared

    # -- noise

    def noise_of_data(self) -> Iterator[Finding]:
        """Test the noise at nonzero data sets, by differences of releases of the same data."""
        # Both releases have the same sum, so that their difference is only noise.
        cdf = _DIFFERENCES[self.stated.shape]
        for number in range(_DATA):
            values = self.many(self._updates(number)) / self.stated.noise_std
            half = len(values) // 2
            # Large sums are rounded to a coarser grid than the noise's last digits.
            p = shape_p_value(values[:half] - values[half : 2 * half], cdf)
            share = self.level / _DATA
            detail = f"noise of data set {number + 1} of {_DATA}, p-value"
            yield Finding("noise of data", p >= share, p, share, detail)

    def noise(self) -> Iterator[Finding]:
        """Test the noise at zero sums for several numbers of units, all against the same law."""
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
        """Compare pairs of signs, and of the events "size above its median", as fair coins."""
        # Sizes are tested as well as signs, because uncorrelated noise may still be dependent.
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
        # The Bonferroni correction covers all pairs, so that many coordinates cause no false
        # positive.
        share = self.level / 2.0 / max(len(ps), 1)
        least = min(ps, default=1.0)
        detail = f"smallest p-value of {len(ps)} pairs of signs and sizes"
        return Finding(name, least >= share, least, share, detail)


class _DataSetPair(NamedTuple):
    """Two data sets, the distance of their releases, and the distance that rounding can explain."""

    moved: float
    room: float
    one: Array
    other: Array


def _resolution(found: Any) -> float:
    return float(np.finfo(found.dtype).eps) if found.dtype.kind == "f" else 0.0
