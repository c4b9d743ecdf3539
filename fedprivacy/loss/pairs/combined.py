"""Curves made of curves: sampled, folded, mixed, composed."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp

from ...registry import registered
from ...rounding import FEW, HUNDREDS, TENS
from ..clock import tick
from ..moments import spectrum as spectra
from ..moments.line import Line, NoSpectrum
from ..moments.pieces import Part, above
from ..moments.spectrum import Cumulants, Decay, Spectrum
from ..moments.stacks import Bundle
from ..profiles.convolution import Composition
from . import lattice as lattices
from .curve import TAIL_MASS, Curve, Labelled, OfPart
from .gaussian import IDENTITY, Gdp
from .lattice import Array, Lattice, Side, Tails

Parts = Sequence[tuple[Curve, int]]
"""Curves, and how often each is run."""

_MAX_CHORD_ORDER = 2048
_FEW = 10
"""How many parts of a long composition are looked at to choose parameters, twice."""
_FALLING = 25
"""Of so many parts of a very long one, one is looked at closely: half the time goes there then."""
_FALL = 200.0
"""By how much in the exponent those that are looked at should be able to fall, where they can."""


@registered
@dataclass(frozen=True)
class Sampled(Curve):
    """The pair ((1 - q) Q + q P, Q) made of the inner pair (P, Q).

    The loss is log(1 - q + q e^L), so tails are the inner ones at log(1 + (e^x - 1) / q).
    """

    inner: Curve
    q: float

    def __post_init__(self) -> None:
        if not 0.0 < self.q < 1.0:
            raise ValueError(f"Sampled: q = {self.q} must be in (0, 1); at 1 it is the inner curve")

    @property
    def inside(self) -> tuple[Curve, ...]:
        """The sampled curve."""
        return (self.inner,)

    def cover(self) -> float:
        """Return the inner curve's: with probability 1 - q replace the output by a draw of Q."""
        return self.inner.cover()

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the inner tails at the inner loss, mixed; nothing from below where not exact."""
        # Sampling mixes Q into P: where a lattice raised Q, that would no longer be from below.
        if side is Side.DOWN and not self.inner.amplifiable:
            return lattices.nothing(loss)
        inner_loss = _inner_loss(loss, self.q)
        inner = self.inner.tails(inner_loss, side)
        rest = math.log1p(-self.q)
        p_above = np.logaddexp(rest + inner.q_above, math.log(self.q) + inner.p_above)
        p_below = np.logaddexp(rest + inner.q_below, math.log(self.q) + inner.p_below)
        # At losses of log(1 - q) and less nothing of the sampled pair is left below.
        none_below = inner_loss == -np.inf
        return Tails(
            np.where(none_below, 0.0, p_above),
            np.where(none_below, 0.0, inner.q_above),
            np.where(none_below, -np.inf, p_below),
            np.where(none_below, -np.inf, inner.q_below),
        )

    @property
    def exact(self) -> bool:
        """Whether the inner tails are."""
        return self.inner.exact

    @property
    def amplifiable(self) -> bool:
        """Whether the inner curve is."""
        return self.inner.amplifiable

    def pairs(self) -> Labelled:
        """Return the sampled pairs: the label has the same law with and without the unit."""
        return tuple((weight, pair.sampled(self.q)) for weight, pair in self.inner.pairs())

    def log_moment(self, order: float) -> float:
        """Return log E_Q (1 - q + q e^L)^order, by exact quadrature where the inner curve has one.

        Otherwise: for order > 1 the binomial sum at the two neighbouring integers and the chord
        between them (the log-moment is convex in the order); for order < 0, E_Q e^{q order L}, by
        1 - q + q e^L >= e^{q L}.
        """
        exact = self.quadrature_moment(order)
        if math.isfinite(exact):
            return exact
        if order < 0:
            return self.inner.log_moment(self.q * order)
        # Longer binomial sums cost more than a moment is worth; infinity is always a bound.
        if order > _MAX_CHORD_ORDER:
            return math.inf
        below = math.floor(order)
        share = order - below
        at_below = _binomial_moment(self.inner, self.q, below)
        if share == 0.0:
            return at_below
        return (1 - share) * at_below + share * _binomial_moment(self.inner, self.q, below + 1)


def _inner_loss(loss: Array, q: float) -> Array:
    """Return log(1 + (e^x - 1) / q), -inf where the argument is not positive."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # For x above 0 in a form in which e^x cannot overflow.
        high = loss - math.log(q) + np.log1p(-(1.0 - q) * np.exp(-np.abs(loss)))
        low = np.log1p(np.maximum(np.expm1(np.minimum(loss, 0.0)) / q, -1.0))
    return np.asarray(np.where(loss > 0, high, low))


@functools.lru_cache(maxsize=256)
def _known_moments(curve: Curve) -> dict[int, float]:
    """Return the moments that are known by order, to which those that are asked for are added.

    One dict for a curve: looking it up for every order would cost more than a moment.
    """
    del curve
    return {0: 0.0, 1: 0.0}


def _integer_moments(curve: Curve, order: int) -> list[float]:
    """Return the log-moments at orders 0 .. ``order``."""
    known = _known_moments(curve)
    # By order, not in turn: another thread may be adding the same ones.
    for pick in range(len(known), order + 1):
        known[pick] = curve.log_moment(float(pick))
    return [known[pick] for pick in range(order + 1)]


def _binomial_moment(inner: Curve, q: float, order: int) -> float:
    """Return log sum_l C(order, l) (1-q)^(order-l) q^l e^{inner moment at l}, rounded up."""
    if order <= 1:
        return 0.0
    picks = np.arange(order + 1)
    inside = np.array(_integer_moments(inner, order))
    choose = gammaln(order + 1) - gammaln(picks + 1) - gammaln(order - picks + 1)
    terms = choose + (order - picks) * math.log1p(-q) + picks * math.log(q) + inside
    # gammaln's rounding grows with the order.
    return float(logsumexp(terms)) + TENS * order


@registered
@dataclass(frozen=True)
class Fold(OfPart):
    """The profile of ``up`` at epsilon >= 0 and of ``down.swap()`` below 0."""

    up: Curve
    down: Curve

    @property
    def symmetric(self) -> bool:
        """A fold of a curve with itself equals its swap."""
        return self.up == self.down

    @property
    def exact(self) -> bool:
        """Whether both halves' tails are."""
        return self.up.exact and self.down.exact

    def cover(self) -> float:
        """Return the worse half's."""
        return max(self.up.cover(), self.down.cover())

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return ``up``'s tails at losses of at least 0 and the swapped ``down``'s below."""
        rising = np.asarray(loss >= 0)
        if rising.all():
            return self.up.tails(loss, side)
        right = self.up.tails(loss[rising], side)
        left = self.down.swap().tails(loss[~rising], side)
        found = Tails(*np.empty((4, *np.shape(loss))))
        for column, r, ell in zip(found, right, left, strict=True):
            column[rising], column[~rising] = r, ell
        return found

    def log_moment(self, order: float) -> float:
        """Return the quadrature's upper bound; without one the smaller of two others.

        Either log(M_up + M_swap(down) - 1), from E = 1 + a (a-1) int_0^inf [e^{(a-1)e} d_up(e)
        + e^{-ae} d_down(e)] de with both halves completed to whole moments; or the moment of the
        connected dots on a geometric grid, which dominate the fold, with the part beyond the grid
        bounded by a higher moment of ``up``.
        """
        # A negative order of (P, Q) is one above 1 of (Q, P).
        if order < 0:
            return Fold(self.down, self.up).log_moment(1.0 - order)
        if math.isfinite(exact := self.quadrature_moment(order)):
            return exact
        whole = self.up.log_moment(order)
        both = np.logaddexp(whole, self.down.log_moment(1.0 - order))
        # log(e^both - 1), without a difference of two large numbers.
        cheap = float(both + math.log1p(-math.exp(-both))) if both > 0 else 0.0
        known = math.inf if math.isnan(whole) else max(cheap, whole)
        return min(known, self._dotted_moment(order))

    def _dotted_moment(self, order: float) -> float:
        losses, mass = _dots(self)
        inside = float(logsumexp((order - 1.0) * losses, b=mass))
        extra = [(s, self.up.log_moment(order + s)) for s in (1.0, 8.0, 64.0)]
        beyond = min(moment - s * float(losses[-1]) for s, moment in extra)
        return float(np.logaddexp(inside, beyond))

    @property
    def inside(self) -> tuple[Curve, ...]:
        """Both halves."""
        return self.up, self.down

    def swap(self) -> Curve:
        """Return the fold with its halves exchanged."""
        return Fold(self.down, self.up)

    @functools.cached_property
    def part(self) -> Part:
        """All outcomes: half lines with loss above 0, others below 0; the rest is at loss 0."""
        pieces = [above(w, pair) for w, pair in self.up.pairs()]
        # Below, what is seen of Q where P is rarer: losses of at most 0.
        pieces += [above(w, pair).swap() for w, pair in self.down.pairs()]
        atom = 1.0 - sum(piece.mass for piece in pieces)
        # More than all the mass: then these are no halves of one fold.
        if atom < -FEW:
            raise NoSpectrum
        return Part(tuple(pieces), max(atom, 0.0))

    def lone_part(self) -> Part | None:
        """Return the part, None where its moments are not known."""
        try:
            return self.part
        except NoSpectrum:
            return None


def _reach(curve: Curve) -> float:
    """Return a loss beyond which P keeps at most ``TAIL_MASS`` on either side."""
    # Finest first: the first step whose support fits is also the sharpest.
    for step in (1e-4, 1e-2, 1.0, 100.0):
        try:
            low, high = lattices.support(curve.tails, step, TAIL_MASS)
        except lattices.TooLarge:
            continue
        return step * max(-low, high)
    return 1e9


@functools.lru_cache(maxsize=64)
def _dots(curve: Curve) -> tuple[Array, Array]:
    """Return (losses, masses) of connected dots on a geometric grid, masses rounded up."""
    reach = _reach(curve)
    # Losses of small rounds crowd around 0, so the grid is finest there.
    half = np.geomspace(1e-9, reach, 6000)
    edges = np.concatenate([-half[::-1], [0.0], half])
    return edges, lattices.connect_the_dots(curve.tails, edges)[0] * (1 + HUNDREDS)


@registered
@dataclass(frozen=True)
class Mix(Curve):
    """A labelled mixture: with probability w_i the i-th pair, and everybody sees which."""

    parts: tuple[tuple[float, Curve], ...]

    @property
    def symmetric(self) -> bool:
        """A mixture of symmetric curves is symmetric."""
        return all(curve.symmetric for _, curve in self.parts)

    @property
    def exact(self) -> bool:
        """Whether all parts' tails are."""
        return all(curve.exact for _, curve in self.parts)

    @property
    def amplifiable(self) -> bool:
        """Whether all parts are."""
        return all(curve.amplifiable for _, curve in self.parts)

    @property
    def mesh(self) -> float:
        """The parts' common one."""
        return lattices.common_mesh([part.mesh for _, part in self.parts])

    def cover(self) -> float:
        """Return the worst label's."""
        return max(part.cover() for _, part in self.parts)

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the weighted sums of the parts' tails."""
        logs = [math.log(weight) for weight, _ in self.parts]
        found = [curve.tails(loss, side) for _, curve in self.parts]
        columns = zip(*found, strict=True)
        return Tails(
            *(
                functools.reduce(
                    np.logaddexp, [w + part for w, part in zip(logs, column, strict=True)]
                )
                for column in columns
            )
        )

    def log_moment(self, order: float) -> float:
        """Return log of the weighted sum of the parts' moments."""
        terms = [curve.log_moment(order) for _, curve in self.parts]
        return float(logsumexp(terms, b=[weight for weight, _ in self.parts])) + FEW

    def pairs(self) -> Labelled:
        """Return the parts' pairs, each with both labels."""
        found = [(weight, curve.pairs()) for weight, curve in self.parts]
        return tuple((weight * w, pair) for weight, pairs in found for w, pair in pairs)

    def spectrum(self, line: Line) -> Spectrum:
        """Return the weighted sum of the parts'."""
        return spectra.mix([(w, curve.spectrum(line)) for w, curve in self.parts])

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the mixture's cumulants."""
        return spectra.mix_cumulants([(w, curve.cumulants(tilt)) for w, curve in self.parts])

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the weighted sum of the parts' bounds."""
        return spectra.mix_decay([(w, curve.decay(tilt, heights, fine)) for w, curve in self.parts])

    @property
    def inside(self) -> tuple[Curve, ...]:
        """Those of all labels."""
        return tuple(curve for _, curve in self.parts)

    def swap(self) -> Curve:
        """Return the mixture of the swapped parts."""
        return Mix(tuple((weight, curve.swap()) for weight, curve in self.parts))

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the weighted sum of the parts' lattices."""
        return lattices.add([c.lattice(step, side, tail_mass).scaled(w) for w, c in self.parts])


@registered
@dataclass(frozen=True)
class Composed(Curve):
    """Independent pairs seen together, each ``count`` times. Make one with ``compose``."""

    parts: tuple[tuple[Curve, int], ...]

    @property
    def symmetric(self) -> bool:
        """A composition of symmetric curves is symmetric."""
        return all(curve.symmetric for curve, _ in self.parts)

    # The tails are those of a lattice.
    exact = False

    @property
    def amplifiable(self) -> bool:
        """Whether the lattice from below never raises Q: it does not where all parts are exact."""
        return all(curve.exact for curve, _ in self.parts)

    @property
    def count(self) -> int:
        """How many rounds are composed."""
        return sum(count for _, count in self.parts)

    @property
    def mesh(self) -> float:
        """The parts' common one."""
        return lattices.common_mesh([part.mesh for part, _ in self.parts])

    def cover(self) -> float:
        """Return the root of the sum of squares."""
        return math.hypot(*(math.sqrt(n) * part.cover() for part, n in self.parts))

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the composed lattice: dominating for UP, dominated for DOWN."""
        losses, p_above, q_above, p_below, q_below = _cumulated(self, side)
        index = np.searchsorted(losses, loss, side="right")
        return Tails(p_above[index], q_above[index], p_below[index], q_below[index])

    def log_moment(self, order: float) -> float:
        """Return the sum of the parts' moments; of many Gaussian pairs, all at once."""
        if order > 1.0 and len(self.parts) > 1:
            # Side by side where that is known, which is quicker; else one by one.
            with contextlib.suppress(NoSpectrum):
                alone, sums = self._bundle.log_moments(order - 1.0)
                alike = [count * self.parts[k][0].log_moment(order) for k, count in alone]
                return math.fsum(alike + sums)
        return sum(count * curve.log_moment(order) for curve, count in self.parts)

    def spectrum(self, line: Line) -> Spectrum:
        """Return the product of the parts'."""
        return spectra.power([(some.spectrum, some.count) for some in self._bundle.spectra(line)])

    @functools.cached_property
    def _bundle(self) -> Bundle:
        return Bundle(self.parts)

    @functools.cached_property
    def _typical(self) -> tuple[Bundle, Composed, Bundle | None]:
        """Return parts and counts that stand for all; those that fall with the height; the others.

        The strongest are among both, and some of the others.
        """
        if len(self.parts) <= 2 * _FEW:
            return self._bundle, self, None
        strength = np.empty(len(self.parts))
        for at, found, _ in self._bundle.cumulants(1.0):
            strength[at] = found.value
        # The strongest parts decide; of the others every n-th stands for its like.
        ordered = [self.parts[k] for k in np.argsort(-strength, kind="stable")]
        strong, rest = ordered[:_FEW], ordered[_FEW:]
        chosen = rest[:: -(-len(rest) // _FEW)]
        # Heights are bounded by what falls: of very many parts that each run a few times, more.
        each = -(-len(rest) // max(_FEW, len(rest) // _FALLING))
        falling, others = rest[::each], [part for k, part in enumerate(rest) if k % each]
        # A moment never falls below its atom: where rounds often show nothing, many must fall.
        more = _until([*strong, *falling], others)
        falling, others = falling + others[:more], others[more:]
        # Counts are scaled, so that the few weigh as much as all they stand for.
        share = sum(count for _, count in rest) / sum(count for _, count in chosen)
        few = [(curve, count * share) for curve, count in chosen]
        left = Bundle(others) if others else None
        return Bundle([*strong, *few]), Composed((*strong, *falling)), left

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the sums of the parts'; of many parts, those of some."""
        found = self._typical[0].cumulants(tilt)
        return spectra.power_cumulants([(part, count) for _, part, count in found])

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the product of the parts' bounds; of many parts, only some fall off."""
        _, falling, others = self._typical
        found = [(curve.decay(tilt, heights, fine), n) for curve, n in falling.parts]
        # Parts that are not looked at do not fall: their level is always a bound.
        bound = spectra.power_decay(found + (others.level(tilt, heights) if others else []))
        return bound.of_all() if self._bundle.keeps_atoms else bound

    @property
    def inside(self) -> tuple[Curve, ...]:
        """Those of all rounds."""
        return tuple(curve for curve, _ in self.parts)

    def swap(self) -> Curve:
        """Return the composition of the swapped parts."""
        return Composed(tuple((curve.swap(), count) for curve, count in self.parts))

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the composed loss rounded to multiples of ``step``."""
        return self.composition(step, side, tail_mass).lattice()

    def composition(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Composition:
        """Return the convolution of the parts' lattices of the given step."""
        # What the tails leave out adds up over the rounds.
        share, parts = tail_mass / self.count, []
        for curve, count in self.parts:
            tick()
            parts.append((curve.lattice(step, side, share), count))
        return Composition(parts, side)


def _until(parts: Parts, others: Parts) -> int:
    """Return how many of the others, with the parts, have moments that can fall by e^-_FALL."""
    left = _FALL
    for k, (curve, count) in enumerate((*parts, *others)):
        left -= count * _deepest(curve)
        if left <= 0.0:
            return max(k + 1 - len(parts), 0)
    return len(others)


def _deepest(curve: Curve) -> float:
    """Return minus the log of a curve's mass at loss 0, about; inf where it has none."""
    if curve.lone_pair() is not None:
        return math.inf
    try:
        return -curve.spectrum(Line(1.0, 0.0, 1)).log_atom
    except NoSpectrum:
        return math.inf


def spread(curve: Curve) -> float:
    """Return the root mean square of the finite loss under P, to a few per cent; for step sizes."""
    if isinstance(curve, Composed):
        return math.sqrt(sum(count * spread(part) ** 2 for part, count in curve.parts))
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
    # From below the lattice errs in first order of the step, so it is finer.
    finer = 400.0 if side is Side.UP else 2000.0
    rounded = _at_any_step(curve, max(spread(curve) / finer, 1e-7), side)
    losses = rounded.losses()
    q = rounded.mass * np.exp(-losses)
    # What UP lost of Q lies below all losses: its total is 1.
    absent = max(1.0 - float(q.sum()), 0.0) if side is Side.UP else 0.0
    with np.errstate(divide="ignore"):
        p_above = np.log(
            np.append(_cumulated_sum(rounded.mass[::-1])[::-1], 0.0) + rounded.infinite
        )
        q_above = np.log(np.append(_cumulated_sum(q[::-1])[::-1], 0.0))
        p_below = np.log(np.append(0.0, _cumulated_sum(rounded.mass)))
        q_below = np.log(absent + np.append(0.0, _cumulated_sum(q)))
    return losses, p_above, q_above, p_below, q_below


def _cumulated_sum(values: Array) -> Array:
    """Return cumulated sums, rounded once: in extended precision where the machine has it."""
    return np.cumsum(values, dtype=np.longdouble).astype(np.float64)


def parts_of(curve: Curve) -> tuple[tuple[Curve, int], ...]:
    """Return what is composed, and how often each is run; of a lone round itself, once."""
    return curve.parts if isinstance(curve, Composed) else ((curve, 1),)


def _flat(parts: Iterable[tuple[Curve, int]]) -> Iterator[tuple[Curve, int]]:
    """Yield curves that are no compositions, and how often each is run."""
    for curve, count in parts:
        yield from ((part, count * times) for part, times in parts_of(curve) if count * times)


def compose(parts: Iterable[tuple[Curve, int]]) -> Curve:
    """Compose curves: nested compositions are flattened, Gaussians add in mu^2, equals are grouped.

    Args:
        parts: (curve, count) pairs; counts of at least 0.

    Returns:
        The composed curve; ``IDENTITY`` for no parts at all.
    """
    counts: dict[Curve, int] = {}
    length = 0.0
    for part, count in _flat(parts):
        if isinstance(part, Gdp):
            # Gaussian rounds add up to a single one, exactly.
            length = math.hypot(length, math.sqrt(count) * part.mu)
        else:
            counts[part] = counts.get(part, 0) + count
    if length:
        counts[Gdp(length)] = 1
    if not counts:
        return IDENTITY
    # A lone round keeps its own tails, which may be exact.
    if list(counts.values()) == [1]:
        return next(iter(counts))
    return Composed(tuple(counts.items()))
