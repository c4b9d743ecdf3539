"""Compositions: independent pairs observed together."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ...registry import registered
from ...rounding import THOUSANDS, Up, rounded_up
from ..clock import check_deadline
from ..moments import spectrum as spectra
from ..moments.batched_rounds import LEAST, Bundle, FamilyRounds, Places, places_of, represented
from ..moments.contour import Contour, NoMoments
from ..moments.families import LEAST as LARGE
from ..moments.families import Family
from ..moments.moments import Moments
from ..moments.spectrum import Cumulants, Decay, Spectrum
from ..strategies.convolution import Composition
from . import lattice as lattices
from . import max_loss as max_losses
from .components import Components, Later, Trimmed, gaussian_shift, is_composed, parts_of, trim
from .curve import TAIL_MASS, Curve
from .gaussian import IDENTITY, Gdp
from .kept import kept, without_kept
from .lattice import Array, Lattice, Side, Tails
from .max_loss import UNKNOWN, MaxLoss
from .support import Support

Parts = Sequence[tuple[Moments, int]]
"""Moments of curves, with the numbers of rounds."""

_SOURCE = "_kept_source"
_FEW = 20
"""Up to this number of parts, each has its closest bound on the fall of its moments."""
_STRONG = 10
"""Number of the strongest parts of a long composition that are used to choose parameters."""
_ROUGH, _CLOSE = 0.06, 0.004
"""Distances of the members of families: for a few digits, and for certified moments."""
_STRATA = 54
"""Number of the other parts that are used for that."""
_SAMPLED = 1024
"""Of more rounds, members of their family are used for that."""
_FAR = 700.0
"""e to the power of it is still a double."""


class Source(NamedTuple):
    """Many different rounds of one family, which become curves when these are first read.

    Args:
        family: the family of their moments.
        shifts: their different places in the family, shape ``(kinds,)``.
        counts: numbers of runs of each, at least 1, integers.
        make: returns the curve of a round with a shift. All these curves have no rare components,
            and one shape.
        cover: factor of a shift that gives the cover of the curve.
        limit_varies: whether curves whose largest loss is finite differ in it.
    """

    family: Family
    shifts: Array
    counts: NDArray[np.int64]
    make: Callable[[float], Curve]
    cover: float = 1.0
    limit_varies: bool = False

    @property
    def first(self) -> Curve:
        """The first curve."""
        return self.make(float(self.shifts[0]))

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return int(self.counts.sum())

    def swap(self) -> Source:
        """Return the swapped rounds."""
        make = self.make
        return self._replace(family=self.family.swap(), make=lambda shift: make(shift).swap())

    def equals(self, other: Source) -> bool:
        """Return whether the rounds are the same, in the same order."""
        same = self.family == other.family and len(self.shifts) == len(other.shifts)
        pairs = ((self.shifts, other.shifts), (self.counts, other.counts))
        return same and all(np.array_equal(one, two) for one, two in pairs)


@registered
@dataclass(frozen=True)
class Composed(Curve):
    """Independent pairs observed together, each ``count`` times. Make one with ``compose``."""

    parts: tuple[tuple[Curve, int], ...]

    @classmethod
    def listed_later(cls, source: Source) -> Composed:
        """Return the composition of many different rounds, which make no curves until read."""
        made = object.__new__(cls)
        made.__dict__[_SOURCE] = source
        return made

    def __getattr__(self, name: str) -> Any:
        """List the parts when they are first read."""
        if name != "parts" or self._source is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        _, shifts, counts, make, *_ = self._source
        pairs = zip(map(make, shifts.tolist()), counts.tolist(), strict=True)
        self.__dict__["parts"] = parts = tuple(pairs)
        return parts

    def __getstate__(self) -> dict[str, Any]:
        """Return the parts."""
        return without_kept(self) | {"parts": self.parts}

    @property
    def _source(self) -> Source | None:
        found: Source | None = self.__dict__.get(_SOURCE)
        return found

    def __eq__(self, other: Any) -> bool:
        """Return whether the parts are equal."""
        if other.__class__ is not self.__class__:
            return NotImplemented
        one, two = self._source, other._source
        if one is not None and two is not None:
            return one is two or one.equals(two)
        return bool(self.parts == other.parts)

    def __hash__(self) -> int:
        """Return the hash of the ends, computed once: one question looks a run up 30 times."""
        return self._hashed()

    @kept
    def _hashed(self) -> int:
        if (source := self._source) is None:
            return hash((len(self.parts), self.parts[0], self.parts[-1]))
        ends = ((source.make(float(source.shifts[k])), int(source.counts[k])) for k in (0, -1))
        return hash((len(source.shifts), *ends))

    @property
    def count(self) -> int:
        """The number of composed rounds."""
        source = self._source
        return sum(count for _, count in self.parts) if source is None else source.rounds

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the composed lattice: dominating for UP, dominated for DOWN."""
        losses, p_above, q_above, p_below, q_below = _cumulated(self, side)
        index = np.searchsorted(losses, loss, side="right")
        return Tails(p_above[index], q_above[index], p_below[index], q_below[index])

    @kept
    def moments(self) -> Moments:
        """Return the products of the moments of the parts."""
        if (source := self._source) is not None:
            places = {source.family: (source.shifts, source.counts.astype(np.float64))}
            return ComposedMoments(_LaterMoments(source), places)
        return ComposedMoments([(curve.moments(), count) for curve, count in self.parts])

    @kept
    def support(self) -> Support:
        """Return the sums of the losses of the rounds."""
        if (source := self._source) is not None:
            return _support_of(source)
        parts = [(curve.support(), count) for curve, count in self.parts]
        # The tails are those of a lattice. From below it never raises Q if all parts are exact.
        return Support(
            largest=lambda: max_losses.summed((part.largest, n) for part, n in parts),
            symmetric=lambda: all(part.symmetric for part, _ in parts),
            exact=False,
            amplifiable=lambda: all(part.exact for part, _ in parts),
            above_only=lambda: any(part.above_only for part, _ in parts),
            mesh=lambda: lattices.common_mesh([part.mesh for part, _ in parts]),
            cover=lambda: math.hypot(*(math.sqrt(n) * part.cover for part, n in parts)),
        )

    @kept
    def components(self) -> Components:
        """Return the curves of all rounds with their counts."""
        if (source := self._source) is not None:
            places = source.shifts, source.counts
            return Later(((source.first, source.rounds),), places, lambda: self.parts)
        inside = tuple(curve for curve, _ in self.parts)
        return Components(inside=inside, rounds=self.parts, trim=self._trimmed)

    def _trimmed(self, allowed: float) -> Trimmed:
        # Total variation adds up over independent rounds, so each gets an equal share.
        share = allowed / self.count
        found = [(trim(part, share), count) for part, count in self.parts]
        slack = rounded_up(sum(count * part.slack for part, count in found), THOUSANDS)
        if slack == 0.0:
            return Trimmed(self, 0.0)
        reach = min(part.reach for part, _ in found)
        return Trimmed(compose((part.curve, count) for part, count in found), slack, reach)

    @kept
    def swap(self) -> Curve:
        """Return the composition of the swapped parts, the same object every time."""
        if (source := self._source) is not None:
            found = Composed.listed_later(source.swap())
        else:
            found = Composed(tuple((curve.swap(), count) for curve, count in self.parts))
        found.__dict__["_kept_swap"] = self
        return found

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the composed loss rounded to multiples of ``step``."""
        return self.composition(step, side, tail_mass).lattice()

    def composition(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Composition:
        """Return the convolution of the rounds' lattices; see ``convolved``."""
        return convolved(self, step, side, tail_mass)


def _support_of(source: Source) -> Support:
    """Return the sums of the losses of many rounds of one shape."""
    one, count = source.first.support(), source.rounds

    def largest() -> MaxLoss:
        found = max_losses.summed([(one.largest, count)])
        return UNKNOWN if source.limit_varies and found.certain < math.inf else found

    return Support(
        largest=largest,
        symmetric=lambda: one.symmetric,
        exact=False,
        amplifiable=lambda: one.exact,
        above_only=lambda: one.above_only,
        mesh=lambda: lattices.common_mesh([one.mesh]),
        cover=lambda: math.hypot(*(np.sqrt(source.counts) * source.cover * source.shifts).tolist()),
    )


class _LaterMoments(Sequence[tuple[Moments, int]]):
    """Moments of many rounds with their counts, made when they are read."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source.shifts)

    @overload
    def __getitem__(self, index: int) -> tuple[Moments, int]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[Moments, int]]: ...

    def __getitem__(self, index: Any) -> Any:
        return self._made[index]

    @functools.cached_property
    def _made(self) -> list[tuple[Moments, int]]:
        family, shifts, counts, *_ = self._source
        return list(zip(map(family.moments, shifts.tolist()), counts.tolist(), strict=True))


def convolved(curve: Curve, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Composition:
    """Return the convolution of the lattices of a composition's rounds, all of one step."""
    # The mass outside the tails adds up over the rounds.
    rounds = parts_of(curve)
    share, parts = tail_mass / sum(count for _, count in rounds), []
    for part, count in rounds:
        check_deadline()
        parts.append((part.lattice(step, side, share), count))
    return Composition(parts, side)


class ComposedMoments(Moments):
    """Products of moments, one factor for each kind of round.

    Args:
        parts: the moments of the kinds, with their numbers of rounds.
        places: the families that hold all kinds, if they are known.
    """

    def __init__(self, parts: Parts, places: Places | None = None) -> None:
        self.parts = parts
        self._given = places
        self._between: dict[float, Moments | None] = {}

    def log_moment(self, order: float) -> Up:
        """Return the sum of the moments of the parts; many Gaussian pairs are batched."""
        if order > 1.0 and (close := self.between(_CLOSE)) is not None:
            return close.log_moment(order)
        if order > 1.0 and len(self.parts) > 1:
            # Batched moments are faster where they are available; else one by one.
            with contextlib.suppress(NoMoments):
                alone, sums = self._bundle.log_moments(order - 1.0)
                alike = [count * self.parts[k][0].log_moment(order) for k, count in alone]
                return Up(math.fsum(alike + sums))
        return Up(sum(float(count * part.log_moment(order)) for part, count in self.parts))

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the product of the spectra of the parts."""
        if len(self.parts) < LEAST:
            return spectra.power([(part.spectrum(line), count) for part, count in self.parts])
        return spectra.power([(some.spectrum, some.count) for some in self._bundle.spectra(line)])

    @functools.cached_property
    def _places(self) -> tuple[Places, list[int]]:
        """The large families, and the indices of the parts in none of them."""
        return places_of(self.parts) if self._given is None else (self._given, [])

    def between(self, step: float) -> Moments | None:
        """Return moments of a law that dominates, from a few members of each large family."""
        if self._given is None and len(self.parts) < LARGE:
            return None
        if step not in self._between:
            places, alone = self._places
            if found := represented(places, step):
                others = [self.parts[k] for k in alone]
                rest = ComposedMoments(others) if others else None
                self._between[step] = RepresentedMoments(found, rest)
            else:
                self._between[step] = None
        return self._between[step]

    @functools.cached_property
    def _bundle(self) -> Bundle:
        return Bundle(self.parts)

    @functools.cached_property
    def _sample(self) -> tuple[Bundle, frozenset[int]]:
        """Return parts that stand for all, with their counts, and their indices.

        The strongest parts decide, so they stand for themselves. The others are sorted by strength
        and cut into strata of nearly equal numbers of rounds. The middle of each stands for it.
        """
        parts = self.parts
        if len(parts) <= _STRONG + _STRATA:
            return self._bundle, frozenset(range(len(parts)))
        strength = np.empty(len(parts))
        for at, found, _ in self._bundle.cumulants(1.0):
            strength[at] = found.value
        order = np.argsort(-strength, kind="stable")
        strong, rest = order[:_STRONG], order[_STRONG:]
        counts = np.array([parts[k][1] for k in rest], dtype=np.float64)
        upto = np.cumsum(counts)
        stratum = np.minimum((upto - 0.5 * counts) * (_STRATA / upto[-1]), _STRATA - 1).astype(int)
        chosen = [(int(k), float(parts[k][1])) for k in strong]
        for here in np.unique(stratum):
            at = np.flatnonzero(stratum == here)
            chosen.append((int(rest[at[len(at) // 2]]), float(counts[at].sum())))
        bundle = Bundle([(parts[k][0], count) for k, count in chosen])
        return bundle, frozenset(k for k, _ in chosen)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the sums of the cumulants of the parts; with many parts, of a sample."""
        if len(self.parts) < LEAST:
            return spectra.power_cumulants([(part.cumulants(tilt), n) for part, n in self.parts])
        # The strongest rounds limit the useful orders. Members only bound their moments.
        if len(self.parts) > _SAMPLED and (rough := self.between(_ROUGH)) is not None:
            return rough.cumulants(tilt)
        found = self._sample[0].cumulants(tilt)
        return spectra.power_cumulants([(part, count) for _, part, count in found])

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the product of the bounds of the parts."""
        if len(self.parts) <= _FEW:
            found = [(part.decay(tilt, heights, fine), n) for part, n in self.parts]
        else:
            found = self._bundle.decay(tilt, heights, fine, self._sample[1])
        bound = spectra.power_decay(found)
        return bound.of_all() if len(self.parts) >= LEAST and self._bundle.keeps_atoms else bound


class RepresentedMoments(Moments):
    """Products of moments in which a few members represent each large family.

    Args:
        families: the large families.
        others: the moments of all other rounds; None if there are none.
    """

    def __init__(self, families: Sequence[FamilyRounds], others: Moments | None) -> None:
        self._families, self._others = families, others

    def log_moment(self, order: float) -> Up:
        """Return an upper bound on the log-moment, above order 1."""
        if order <= 1.0:
            return super().log_moment(order)
        found = [value for one in self._families for value in one.log_moments(order - 1.0)]
        rest = 0.0 if self._others is None else self._others.log_moment(order)
        return Up(math.fsum([*found, rest]))

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the moments of the dominating law, with their distance to those of the run."""
        found = [(one.spectrum, one.count) for each in self._families for one in each.spectra(line)]
        rest = [] if self._others is None else [(self._others.spectrum(line), 1.0)]
        return spectra.power([*found, *rest])

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the sums of the cumulants of the members, each with its number of rounds."""
        found = [one for each in self._families for one in each.cumulants(tilt)]
        rest = [] if self._others is None else [(self._others.cumulants(tilt), 1.0)]
        return spectra.power_cumulants([*found, *rest])

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return bounds for the run and for the law that dominates it."""
        found = [each.decay(tilt, heights) for each in self._families]
        if self._others is not None:
            found.append((self._others.decay(tilt, heights, fine), 1.0))
        return spectra.power_decay(found).of_all()


def spread(curve: Curve) -> float:
    """Return the root mean square of the finite loss under P, to a few per cent; for step sizes."""
    rounds = curve.components().rounds
    if rounds:
        return math.sqrt(sum(count * spread(part) ** 2 for part, count in rounds))
    half = np.geomspace(1e-9, 1e3, 700)
    above = np.exp(curve.tails(half).p_above)
    below = np.exp(curve.tails(-half).p_below)
    squares = half[1:] ** 2
    total = np.dot(squares, -np.diff(above)) + np.dot(squares, -np.diff(below))
    return math.sqrt(max(float(total), 1e-24))


def _floored(curve: Composed, step: float) -> Lattice:
    """Return a lattice from below that never raises Q."""
    share = TAIL_MASS / curve.count
    parts = [(lattices.floored(part.tails, step, share), count) for part, count in curve.parts]
    return Composition(parts, Side.DOWN).lattice()


def _at_any_step(curve: Composed, step: float, side: Side) -> Lattice:
    """Return the lattice of the given step, or of the first coarser one that is small enough."""
    for _ in range(30):
        try:
            return curve.lattice(step, side) if side is Side.UP else _floored(curve, step)
        except lattices.TooLarge:
            step *= 4.0
    return Lattice(step, 0, np.zeros(1), 1.0 if side is Side.UP else 0.0)


@functools.lru_cache(maxsize=64)
def _cumulated(curve: Composed, side: Side) -> tuple[Array, Array, Array, Array, Array]:
    """Return lattice points and the four log-masses above or at-or-below each gap between them."""
    # The lattice from below has a first-order error in the step, so its step is smaller.
    finer = 400.0 if side is Side.UP else 2000.0
    rounded = _at_any_step(curve, max(spread(curve) / finer, 1e-7), side)
    losses = rounded.losses()
    q = _other_mass(rounded.mass, losses, side)
    # The Q-mass that UP lost lies below all losses, because the total of Q is 1.
    absent = max(1.0 - float(q.sum()), 0.0) if side is Side.UP else 0.0
    with np.errstate(divide="ignore"):
        p_above = np.log(
            np.append(_cumulated_sum(rounded.mass[::-1])[::-1], 0.0) + rounded.infinite
        )
        q_above = np.log(np.append(_cumulated_sum(q[::-1])[::-1], 0.0))
        p_below = np.log(np.append(0.0, _cumulated_sum(rounded.mass)))
        q_below = np.log(absent + np.append(0.0, _cumulated_sum(q)))
    return losses, p_above, q_above, p_below, q_below


def _other_mass(mass: Array, losses: Array, side: Side) -> Array:
    """Return the Q-masses of lattice points with the given P-masses."""
    q: Array = mass * np.exp(-np.maximum(losses, -_FAR))
    far = losses < -_FAR
    if far.any():
        with np.errstate(divide="ignore", over="ignore"):
            q[far] = np.exp(np.log(mass[far]) - losses[far])
        if side is Side.UP:
            # The lowest point has the tail's mass from above, which may be too much for its loss.
            q[far] = np.minimum(q[far], 1.0)
    return q


def _cumulated_sum(values: Array) -> Array:
    """Return cumulated sums, rounded once: in extended precision where the machine supports it."""
    return np.cumsum(values, dtype=np.longdouble).astype(np.float64)


def _flat(parts: Iterable[tuple[Curve, int]]) -> Iterator[tuple[Curve, int]]:
    """Yield curves that are not compositions, with their counts."""
    for curve, count in parts:
        yield from ((part, count * times) for part, times in parts_of(curve) if count * times)


def compose(parts: Iterable[tuple[Curve, int]]) -> Curve:
    """Compose curves: nested compositions are flattened, Gaussians add in mu^2, equals are grouped.

    Args:
        parts: (curve, count) pairs; counts of at least 0.

    Returns:
        The composed curve; ``IDENTITY`` for no parts at all.
    """
    given = list(parts)
    # A composition that ran once is itself.
    if len(given) == 1 and given[0][1] == 1 and is_composed(given[0][0]):
        return given[0][0]
    counts: dict[Curve, int] = {}
    length = 0.0
    for part, count in _flat(given):
        if (mu := gaussian_shift(part)) is not None:
            # Gaussian rounds add up to a single one, exactly.
            length = math.hypot(length, math.sqrt(count) * mu)
        else:
            counts[part] = counts.get(part, 0) + count
    if length:
        counts[Gdp(length)] = 1
    if not counts:
        return IDENTITY
    # A single round keeps its own tails, which may be exact.
    if list(counts.values()) == [1]:
        return next(iter(counts))
    return Composed(tuple(counts.items()))
