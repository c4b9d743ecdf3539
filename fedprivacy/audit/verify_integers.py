"""Replays of mechanisms with integer noise, tested against the exact law of the noise.

A noise value k is mapped to the normal quantile of P(X < k) + U P(X = k), with U uniform. The
result is exactly normal if k has the stated law, so the tests of normal noise apply. Movements are
compared as integers, without any tolerance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..mechanisms import IntegerPerturbation
from ..mechanisms.integers import gaussian_weights, skellam_weights
from ..relations import Adjacency
from .conformance import Conformance, Finding, agreement, gaussian_ends, shape_p_value

Array = NDArray[np.float64]

_ONE_LAW = 2048.0
"""Wider discrete Gaussians are tested as rounded normal numbers. Their law differs by at most 1e-8
in total variation, and each number adds this much to the probability of failure.
"""

_CLIENTS = 3
_COORDINATES = 12
"""Numbers of clients and coordinates in the noise tests. The law is the same for all others."""


def integer_replay(
    mechanism: IntegerPerturbation,
    adjacencies: Sequence[Adjacency],
    pairs: int,
    draws: int,
    level: float,
    source: np.random.Generator,
) -> Conformance:
    """Replay the messages of clients; the arguments are those of ``verify``."""
    replay = _IntegerReplay(mechanism, draws, level, source)
    findings = (*replay.replays(), *replay.movements(adjacencies, pairs), *replay.noise())
    return Conformance(all(one.passed for one in findings), findings, level)


class _IntegerReplay:
    """Repeated uploads of one mechanism."""

    def __init__(
        self, mechanism: IntegerPerturbation, draws: int, level: float, source: np.random.Generator
    ) -> None:
        self.mechanism, self.draws, self.level, self.source = mechanism, draws, level, source
        self.shares = mechanism.cohort if mechanism.topped_up else None
        self.mask = mechanism.draw_mask(source)

    def _update(self, number: int) -> Array:
        """Return an update: one spike or all coordinates, far below to far above the clip norm."""
        size = self.mechanism.dimension
        if number % 3 == 0:
            direction = np.zeros(size)
            direction[self.mask[self.source.integers(len(self.mask))]] = 1.0
        else:
            direction = self.source.normal(size=size)
        length = (1e-3, float(self.source.uniform()), 1.0, 3.0, 1e6)[number % 5]
        return direction / np.linalg.norm(direction) * length * self.mechanism.clip_norm

    def _sent(self, update: Array, seed: int, noise_seed: int) -> tuple[Array, NDArray[np.int64]]:
        """Return a contribution, and the upload of the same update with the same rounding."""
        one, other = (self.mechanism.of_round(np.random.default_rng(seed)) for _ in range(2))
        own = np.asarray(one.contribution(update, self.mask), dtype=np.float64)
        generator = np.random.default_rng(noise_seed)
        return own, other.release(update, generator, mask=self.mask, shares=self.shares)

    def _seed(self) -> int:
        return int(self.source.integers(2**62))

    def replays(self) -> Iterator[Finding]:
        """Test that all randomness comes from the generators, and that some randomness exists."""
        update, seed, noise = self._update(1), self._seed(), self._seed()
        first, again = (self._sent(update, seed, noise)[1] for _ in range(2))
        apart = float(np.abs(first - again).max())
        yield Finding("replay", apart == 0.0, apart, 0.0, "equal generators send equal values")
        if self.mechanism.rotated:
            rounds = [np.random.default_rng(self._seed()) for _ in range(8)]
            # If a client knows the signs in advance, it can choose the coordinates that wrap
            # around.
            seeds = len({self.mechanism.of_round(one).seed for one in rounds})
            yield Finding("rotation", seeds == 8, float(seeds), 8.0, "every round has new signs")

    def movements(self, adjacencies: Sequence[Adjacency], pairs: int) -> Iterator[Finding]:
        """Measure how far one client moves the sum, also if it is replaced."""
        one = self.mechanism.of_round(np.random.default_rng(self._seed()))
        for adjacency in adjacencies:
            replaced = adjacency is Adjacency.REPLACE_ONE
            allowed, worst, whole = one.square * (4 if replaced else 1), 0, True
            for number in range(pairs):
                moved = self._moved(one, number, replaced)
                whole = whole and bool((moved == np.floor(moved)).all())
                # Python integers are exact.
                worst = max(worst, sum(int(each) ** 2 for each in moved[moved != 0.0]))
            detail = f"{adjacency}, squared, the worst of {pairs} pairs"
            yield Finding("movement", worst <= allowed, float(worst), float(allowed), detail)
            yield Finding("whole", whole, float(whole), 1.0, f"{adjacency}, only integers are sent")

    def _moved(self, one: IntegerPerturbation, number: int, replaced: bool) -> Array:
        """Return a client's contribution to the sum, minus that of its replacement if replaced."""
        update = self._update(number)
        moved = np.asarray(one.contribution(update, self.mask), dtype=np.float64)
        return moved - np.asarray(one.contribution(-update, self.mask)) if replaced else moved

    def noise(self) -> Iterator[Finding]:
        """Test noise shares of clients, and the noise that a loop draws at once."""
        size = self.mechanism.dimension
        data = {"zeros": np.zeros(size)}
        data |= {f"data set {k + 1}": self._update(k) for k in range(_CLIENTS - 1)}
        judged = {f"a share, {name}": self._shares(update) for name, update in data.items()}
        judged["the sum's"] = self._sums()
        # The four tests of each noise share the level.
        share = self.level / (4.0 * len(judged))
        for name, values in judged.items():
            p = gaussian_ends(values)
            yield Finding("scale", p >= share, p, share, f"{name} noise, p-value")
            p = shape_p_value(values, ndtr)
            yield Finding("shape", p >= share, p, share, f"{name} noise, p-value")
            yield _apart("coordinates", values, share, name)
            yield _apart("rounds", values.T, share, name)

    def _shares(self, update: Array) -> Array:
        """Return normal quantiles of a client's noise shares, shape (draws, coordinates)."""
        # The stated std of the share of one client.
        std = self.mechanism.share_std / self.mechanism.grid
        modulus, found = 1 << self.mechanism.bits, []
        for _ in range(self.draws):
            own, sent = self._sent(update, self._seed(), self._seed())
            found.append((sent - own.astype(np.int64))[:_COORDINATES] % modulus)
        return self._deviates(np.stack(found), std)

    def _sums(self) -> Array:
        found = []
        for _ in range(self.draws):
            drawn, _ = self.mechanism.noise(
                np.zeros(min(self.mechanism.width, _COORDINATES)),
                np.random.default_rng(self._seed()),
                shares=self.mechanism.cohort,
            )
            found.append(drawn.astype(np.int64) % (1 << self.mechanism.bits))
        return self._deviates(np.stack(found), self.mechanism.whole_std)

    def _deviates(self, numbers: NDArray[np.int64], std: float) -> Array:
        """Return normal quantiles of numbers modulo 2^bits, under the law with this std."""
        modulus = 1 << self.mechanism.bits
        centred = (numbers + modulus // 2) % modulus - modulus // 2
        spread = self.source.uniform(size=centred.shape)
        skellam = self.mechanism.divisible
        if std > _ONE_LAW and not skellam:
            return np.asarray((centred - 0.5 + spread) / std)
        half = _half_law(std, skellam)
        reach = len(half) - 1
        law = np.concatenate([half[:0:-1], half])
        # Computed by absolute value, so that both tails keep their digits.
        below = np.append(0.0, np.cumsum(law))
        at = np.clip(np.abs(centred), 0, reach)
        low = below[reach - at] + (1.0 - spread) * law[reach - at]
        flipped = np.where((centred > 0) | ((centred == 0) & (spread > 0.5)), -1.0, 1.0)
        low = np.where(centred == 0, below[reach] + np.minimum(spread, 1.0 - spread) * half[0], low)
        return np.asarray(flipped * ndtri(np.clip(low, 1e-300, 0.5)))


def _half_law(std: float, skellam: bool) -> Array:
    """Return the masses at 0, 1, ... of the law, as doubles."""
    weights = (skellam_weights if skellam else gaussian_weights)(Fraction(std) ** 2)
    half = np.array([weight / (1 << 400) for weight in weights])
    return np.asarray(half / (2.0 * math.fsum(half[1:]) + half[0]))


def _apart(name: str, values: Array, share: float, of: str) -> Finding:
    """Compare pairs of columns: signs, and the event "size above its median", as fair coins."""
    coins = np.stack([values > 0.0, np.abs(values) > float(ndtri(0.75))])
    # Further columns add no information.
    sides = itertools.combinations(range(min(values.shape[1], _COORDINATES)), 2)
    ps = [p for i, j in sides for p in agreement(coins[:, :, i], coins[:, :, j])]
    least = min(ps, default=1.0)
    detail = f"{of} noise, smallest p-value of {len(ps)} pairs of signs and sizes"
    return Finding(name, least * max(len(ps), 1) >= share, least, share / max(len(ps), 1), detail)
