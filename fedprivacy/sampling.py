"""How the participants of a round are drawn, and what that does to the privacy loss.

``TABLE`` is the reference table as data: one cell for every scheme, observer and adjacency. The
schemes look their cell up; the documentation prints it; the contract suite runs it. Theorem
numbers (T1 ...) are explained in ``docs/theory/theorems.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from .errors import UnsupportedCombination, integer, probability, refuse
from .loss import IDENTITY, Curve, Fold, GaussianMix, Gdp, Mix, compose
from .loss import Sampled as SampledPair
from .privacy_loss import PrivacyLoss, Witness
from .relations import Adjacency, Facts, Observer, Unit

Indices = NDArray[np.int64]


class Lossy(Protocol):
    """What a scheme needs to know of the mechanism it samples for."""

    @property
    def protects(self) -> Unit | None:
        """Whose data is one unit."""

    @property
    def sum_multiplier(self) -> float | None:
        """Noise multiplier of a Gaussian sum of clipped vectors, else None."""

    def privacy_loss(self, adjacency: Any, observer: Any = ...) -> PrivacyLoss:
        """Return the loss of one run."""


class Pair(NamedTuple):
    """One round's dominating curve and, where known, an attained one."""

    curve: Curve
    witness: Curve | None


Builder = Callable[[Lossy, Any, Observer], Pair]
"""Makes a cell's pair from the mechanism, the scheme and the observer."""


class Cell(NamedTuple):
    """One cell of the table: what the pair is, where it comes from, who attains it."""

    pair: str
    theorem: str
    attained: str
    datasets: str
    build: Builder


class Scheme(Protocol):
    """How units (or clients) are drawn for a round."""

    @property
    def rate(self) -> float:
        """Probability that a given unit takes part in a round."""

    def amplify(self, inner: Lossy, adjacency: Adjacency, observer: Observer) -> PrivacyLoss:
        """Return the loss of ``inner`` run on units drawn by the scheme."""

    def group(self, inner: PrivacyLoss) -> PrivacyLoss:
        """Return the loss of a mechanism run inside one client that may be drawn."""

    def visible(self, inner: Curve) -> Curve:
        """Return the pair of somebody who sees how often the unit takes part in a round."""

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the indices of the participants of one round."""


def _mixed(probability: float, inner: Curve) -> Curve:
    """T4: with the given probability the inner pair, else no loss; recognisably."""
    if probability == 1.0:
        return inner
    return Mix(((1.0 - probability, IDENTITY), (probability, inner)))


def _sampled(inner: Curve, probability: float) -> Curve:
    return inner if probability == 1.0 else SampledPair(inner, probability)


def _as_it_is(inner: Lossy, adjacency: Adjacency, observer: Observer) -> Pair:
    loss = inner.privacy_loss(adjacency, observer)
    return Pair(loss.curve, None if loss.witness is None else loss.witness.curve)


def _sampled_zero_out(inner: Lossy, q: float, observer: Observer) -> Curve | None:
    """Return the pair of data sets in which everybody else, and the second unit, send nothing."""
    try:
        witness = inner.privacy_loss(Adjacency.ZERO_OUT, observer).witness
    except UnsupportedCombination:
        return None
    return None if witness is None else _sampled(witness.curve, q)


def _poisson_present(adjacency: Adjacency) -> Builder:
    def build(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
        return _sampled_pair(inner.privacy_loss(adjacency, observer), scheme.rate)

    return build


def _sampled_pair(loss: PrivacyLoss, q: float) -> Pair:
    attained = None if loss.witness is None else _sampled(loss.witness.curve, q)
    return Pair(_sampled(loss.curve, q), attained)


def _poisson_replace(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    q = scheme.rate
    z = inner.sum_multiplier
    if q == 1.0:
        return _as_it_is(inner, Adjacency.REPLACE_ONE, observer)
    if z is None:
        return Pair(_folded(inner, scheme, observer).curve, _sampled_zero_out(inner, q, observer))
    stays = (1.0 - q, 0.0)
    curve = GaussianMix(z, (stays, (q, 1.0)), (stays, (q, -1.0)))
    return Pair(curve, curve)


def _fixed_add_remove(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    q = scheme.rate
    return _sampled_pair(inner.privacy_loss(Adjacency.REPLACE_ONE, observer), q)


def _fixed_zero_out(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    q = scheme.rate
    z = inner.sum_multiplier
    if q == 1.0:
        return _as_it_is(inner, Adjacency.ZERO_OUT, observer)
    if z is None:
        return Pair(_folded(inner, scheme, observer).curve, _sampled_zero_out(inner, q, observer))
    stays = (1.0 - q, -1.0)
    up = GaussianMix(z, (stays, (q, 1.0)), (stays, (q, 0.0)))
    return Pair(Fold(up, SampledPair(Gdp(1.0 / z), q)), up)


def _folded(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    """F(S, S) of the replace-one curve (T1), which must be symmetric."""
    q = scheme.rate
    if q == 1.0:
        return _as_it_is(inner, Adjacency.REPLACE_ONE, observer)
    loss = inner.privacy_loss(Adjacency.REPLACE_ONE, observer)
    if not loss.curve.symmetric:
        raise UnsupportedCombination(
            "T1 needs a replace-one curve that equals its swap; this inner mechanism's is not "
            "known to; account for observer='server' instead"
        )
    sampled = SampledPair(loss.curve, q)
    attained = None if loss.witness is None else SampledPair(loss.witness.curve, q)
    return Pair(Fold(sampled, sampled), attained)


def _visible(adjacency: Adjacency) -> Builder:
    def build(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
        loss = inner.privacy_loss(adjacency, observer)
        attained = None if loss.witness is None else scheme.visible(loss.witness.curve)
        return Pair(scheme.visible(loss.curve), attained)

    return build


def _many_draws(inner: Lossy, scheme: WithReplacement) -> tuple[float, list[tuple[float, int]]]:
    """Return the multiplier of a Gaussian sum and the law of how often one unit is drawn."""
    if inner.sum_multiplier is None:
        raise UnsupportedCombination(
            "WithReplacement has theorems for one Gaussian sum of clipped contributions only; "
            "use Poisson or FixedSize for this mechanism"
        )
    return inner.sum_multiplier, scheme.law()


def _draws_add_remove(inner: Lossy, scheme: WithReplacement, observer: Observer) -> Pair:
    z, law = _many_draws(inner, scheme)
    curve = GaussianMix(z, tuple((w, 2.0 * s) for w, s in law), ((1.0, 0.0),))
    return Pair(curve, curve)


def _draws_visible(moves: float) -> Builder:
    def build(inner: Lossy, scheme: WithReplacement, observer: Observer) -> Pair:
        z, law = _many_draws(inner, scheme)
        curve = Mix(tuple((w, Gdp(moves * s / z)) for w, s in law))
        return Pair(curve, curve)

    return build


def _draws_folded(moves: float) -> Builder:
    """F(S, S) of the labelled number of draws (T5); attained with shifts of ``moves``."""

    def build(inner: Lossy, scheme: WithReplacement, observer: Observer) -> Pair:
        z, law = _many_draws(inner, scheme)
        drawn = Mix(tuple((w / scheme.rate, Gdp(2.0 * s / z)) for w, s in law if s))
        sampled = _sampled(drawn, scheme.rate)
        witness = GaussianMix(z, tuple((w, moves * s) for w, s in law), ((1.0, 0.0),))
        return Pair(Fold(sampled, sampled), witness)

    return build


_ADD, _ZERO, _SWAP = Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE
_AGG, _SERVER = Observer.AGGREGATE, Observer.SERVER

_APART = "one unit sends C u or nothing; every other sends 0"
_OPPOSED = "one unit sends C u, every other sends -C u, another of them takes its slot"
_EXCHANGED = "one unit sends C u or -C u; every other sends 0"
_T4 = "T4: mixture of a round without the unit (loss 0) and a round with it; exact"
_GAUSS = "Gaussian mechanism; no amplification when everyone takes part"


def _everyone(adjacency: Adjacency, datasets: str, pair: str) -> Cell:
    return Cell(pair, _GAUSS, "the same pair", datasets, _visible(adjacency))


TABLE: dict[tuple[str, Observer, Adjacency], Cell] = {
    ("Poisson", _AGG, _ADD): Cell(
        "S(G(1/z), q)", "T2", "the same pair", _APART, _poisson_present(_ADD)
    ),
    ("Poisson", _AGG, _ZERO): Cell(
        "S(G(1/z), q)", "T2", "the same pair", _APART, _poisson_present(_ZERO)
    ),
    ("Poisson", _AGG, _SWAP): Cell(
        "(1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1), std z",
        "T9 (one Gaussian sum; else T1: F(S, S), removal losing no more than replacement)",
        "the same pair (F(S, S): the zero-out pair)",
        _EXCHANGED,
        _poisson_replace,
    ),
    ("FixedSize", _AGG, _ADD): Cell(
        "S(G(2/z), q)", "T3, T9", "the same pair", _OPPOSED, _fixed_add_remove
    ),
    ("FixedSize", _AGG, _ZERO): Cell(
        "F(A, B): A = (1-q) N(-1) + q N(1) against (1-q) N(-1) + q N(0), std z; B = S(G(1/z), q)",
        "T9 (one Gaussian sum; else T1: F(S, S))",
        "A (F(S, S): the zero-out pair)",
        "one unit sends C u or nothing; every other sends -C u (or nothing)",
        _fixed_zero_out,
    ),
    ("FixedSize", _AGG, _SWAP): Cell(
        "F(S, S), S = S(G(2/z), q)",
        "T1",
        "S",
        "one unit sends C u or -C u; every other sends -C u",
        _folded,
    ),
    ("Everyone", _AGG, _ADD): _everyone(_ADD, _APART, "G(1/z)"),
    ("Everyone", _AGG, _ZERO): _everyone(_ZERO, _APART, "G(1/z)"),
    ("Everyone", _AGG, _SWAP): _everyone(_SWAP, _EXCHANGED, "G(2/z)"),
    ("Everyone", _SERVER, _ZERO): _everyone(_ZERO, _APART, "G(1/z)"),
    ("Everyone", _SERVER, _SWAP): _everyone(_SWAP, _EXCHANGED, "G(2/z)"),
}
for _name in ("Poisson", "FixedSize"):
    TABLE[_name, _SERVER, _ZERO] = Cell(
        "Mix(1-q: id, q: G(1/z))", _T4, "the same pair", _APART, _visible(_ZERO)
    )
    TABLE[_name, _SERVER, _SWAP] = Cell(
        "Mix(1-q: id, q: G(2/z))", _T4, "the same pair", _EXCHANGED, _visible(_SWAP)
    )
_LABELLED = "F(S, S), S = S(Mix(Bin(r,p)(s)/q: G(2s/z), s >= 1), q), q = 1 - (1-p)^r"
TABLE |= {
    ("WithReplacement", _AGG, _ADD): Cell(
        "sum_s Bin(r,p)(s) N(2s) against N(0), std z",
        "T9",
        "the same pair",
        _OPPOSED,
        _draws_add_remove,
    ),
    ("WithReplacement", _AGG, _ZERO): Cell(
        _LABELLED, "T5", "sum_s Bin(r,p)(s) N(s) against N(0), std z", _APART, _draws_folded(1.0)
    ),
    ("WithReplacement", _AGG, _SWAP): Cell(
        _LABELLED,
        "T5",
        "the add_remove pair",
        "one unit sends C u or -C u; every other sends -C u",
        _draws_folded(2.0),
    ),
    ("WithReplacement", _SERVER, _ZERO): Cell(
        "Mix(Bin(r,p)(s): G(s/z))", _T4, "the same pair", _APART, _draws_visible(1.0)
    ),
    ("WithReplacement", _SERVER, _SWAP): Cell(
        "Mix(Bin(r,p)(s): G(2s/z))", _T4, "the same pair", _EXCHANGED, _draws_visible(2.0)
    ),
}
_ONCE = "parallel composition: each unit is in one round of the epoch; no amplification"
for _observer in (_AGG, _SERVER):
    TABLE["Shuffled", _observer, _ZERO] = Cell(
        "G(1/z) once an epoch", _ONCE, "the same pair", _APART, _visible(_ZERO)
    )
    TABLE["Shuffled", _observer, _SWAP] = Cell(
        "G(2/z) once an epoch", _ONCE, "the same pair", _EXCHANGED, _visible(_SWAP)
    )


def _lookup(scheme: str, observer: Observer, adjacency: Adjacency) -> Cell:
    sees = Observer.AGGREGATE if observer is Observer.FINAL else observer
    cell = TABLE.get((scheme, sees, adjacency))
    if cell is None:
        works = [f"{a}/{o}" for s, o, a in TABLE if s == scheme]
        raise UnsupportedCombination(
            f"{scheme} has no theorem for adjacency={adjacency}, observer={observer}"
            + _why(sees, adjacency)
            + f"; these work: {', '.join(works)}"
        )
    return cell


def _why(observer: Observer, adjacency: Adjacency) -> str:
    if observer is Observer.SERVER and adjacency is Adjacency.ADD_REMOVE:
        return " (the list of participants shows membership)"
    return ""


class _TableScheme:
    """A scheme whose privacy is a row of the table."""

    name: ClassVar[str]
    assumption: ClassVar[str]

    @property
    def rate(self) -> float:
        """Probability that a given unit takes part in a round."""
        raise NotImplementedError

    def visible(self, inner: Curve) -> Curve:
        """T4: with probability ``rate`` the inner pair, else no loss; recognisably."""
        return _mixed(self.rate, inner)

    def amplify(
        self, inner: Lossy, adjacency: Adjacency, observer: Observer = Observer.AGGREGATE
    ) -> PrivacyLoss:
        """Return the loss of ``inner`` run on units drawn by the scheme: the table's cell.

        Raises:
            UnsupportedCombination: the table has no such cell, or the inner mechanism does not
                meet the cell's theorem; the message names the cells that work.
        """
        cell = _lookup(self.name, observer, adjacency)
        sees = Observer.AGGREGATE if observer is Observer.FINAL else observer
        pair = cell.build(inner, self, sees)
        base = inner.privacy_loss(_served(inner, adjacency), sees)
        witness = None if pair.witness is None else Witness(pair.witness, cell.datasets)
        theorems = (f"{self.name}, {adjacency}: {cell.theorem}", *base.theorems)
        return PrivacyLoss(
            pair.curve,
            Facts(inner.protects, adjacency, observer),
            witness,
            theorems,
            (*base.assumptions, self.assumption),
        )

    def group(self, inner: PrivacyLoss) -> PrivacyLoss:
        """Return the loss of ``inner`` run inside a client that takes part now and then.

        Nothing is amplified: participation may be visible, and T4 is exact when it is.
        """
        witness = inner.witness
        if witness is not None:
            witness = Witness(self.visible(witness.curve), witness.datasets)
        return PrivacyLoss(
            self.visible(inner.curve),
            inner.facts,
            witness,
            (f"{self.name} cohort: {_T4}", *inner.theorems),
            (*inner.assumptions, self.assumption),
        )


def _served(inner: Lossy, adjacency: Adjacency) -> Adjacency:
    """Return the adjacency itself, or replace_one for mechanisms that serve nothing else."""
    try:
        inner.privacy_loss(adjacency)
    except UnsupportedCombination:
        return Adjacency.REPLACE_ONE
    return adjacency


@dataclass(frozen=True)
class Poisson(_TableScheme):
    """Every unit takes part with the same probability, independently, in every round.

    Args:
        probability: in (0, 1].
    """

    probability: float

    name: ClassVar[str] = "Poisson"
    assumption: ClassVar[str] = "participants are drawn independently with the stated probability"

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", probability(probability=self.probability))

    @property
    def rate(self) -> float:
        """The sampling probability."""
        return self.probability

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants among ``population`` units; may be empty."""
        return np.flatnonzero(generator.random(population) < self.probability)


@dataclass(frozen=True)
class FixedSize(_TableScheme):
    """A fixed number of units is drawn uniformly without replacement, afresh in every round.

    Args:
        size: how many, from 1 to ``population``.
        population: how many units there are.
    """

    size: int
    population: int

    name: ClassVar[str] = "FixedSize"
    assumption: ClassVar[str] = "participants are drawn uniformly without replacement every round"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", integer(1, size=self.size))
        object.__setattr__(self, "population", integer(1, population=self.population))
        if self.size > self.population:
            refuse("size", self.size, f"be at most population = {self.population}")

    @property
    def rate(self) -> float:
        """Cohort size over population."""
        return self.size / self.population

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants, sorted.

        Raises:
            ParameterError: there are not ``self.population`` units.
        """
        if population != self.population:
            refuse("population", population, f"equal the scheme's population = {self.population}")
        return np.sort(generator.choice(population, size=self.size, replace=False))


@dataclass(frozen=True)
class Everyone(_TableScheme):
    """Every unit takes part in every round."""

    name: ClassVar[str] = "Everyone"
    assumption: ClassVar[str] = "every unit takes part in every round"

    @property
    def rate(self) -> float:
        """One."""
        return 1.0

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return all indices."""
        return np.arange(population)


_RARE = 1e-30
"""Draw counts rarer than this together are taken for the largest possible one."""


@dataclass(frozen=True)
class WithReplacement(_TableScheme):
    """``draws`` units are drawn one after the other, each time from everybody; repeats count.

    A unit drawn s times contributes its clipped update s times.

    Args:
        draws: how many draws a round has, at least 1.
        population: how many units there are, drawn uniformly; or
        probability: the unit's probability in one draw, in (0, 1]. Exactly one of the two.
    """

    draws: int
    population: int | None = None
    probability: float | None = None

    name: ClassVar[str] = "WithReplacement"
    assumption: ClassVar[str] = "participants are drawn independently with replacement every round"

    def __post_init__(self) -> None:
        object.__setattr__(self, "draws", integer(1, draws=self.draws))
        if (self.population is None) == (self.probability is None):
            given = (self.population, self.probability)
            refuse("population, probability", given, "be given one without the other")
        if self.population is not None:
            object.__setattr__(self, "population", integer(1, population=self.population))
        else:
            object.__setattr__(self, "probability", probability(probability=self.probability))

    @property
    def chance(self) -> float:
        """Probability of a given unit in one draw."""
        return self.probability if self.probability is not None else 1.0 / (self.population or 1)

    @property
    def rate(self) -> float:
        """Probability that a given unit is drawn at least once."""
        if self.chance == 1.0:
            return 1.0
        return -math.expm1(self.draws * math.log1p(-self.chance))

    def law(self) -> list[tuple[float, int]]:
        """Return (probability, number of times a given unit is drawn), sums to 1.

        Numbers rarer than 1e-30 together are given to the largest, ``draws``, which only adds
        loss: likelihood ratios grow with every mean (T9).
        """
        times = np.arange(self.draws + 1)
        log_choose = gammaln(self.draws + 1) - gammaln(times + 1) - gammaln(self.draws - times + 1)
        chance = self.chance
        if chance == 1.0:
            return [(1.0, self.draws)]
        logs = log_choose + times * math.log(chance) + (self.draws - times) * math.log1p(-chance)
        weights = np.exp(logs)
        tails = np.append(np.cumsum(weights[::-1])[::-1][1:], 0.0)
        last = int(np.argmax(tails <= _RARE))
        kept = [
            (float(w), int(s)) for w, s in zip(weights[: last + 1], times, strict=False) if w > 0
        ]
        if last < self.draws:
            kept.append((_RARE, self.draws))
        total = math.fsum(w for w, _ in kept[1:])
        return [(1.0 - total, kept[0][1]), *kept[1:]] if kept[0][0] > 0.5 else kept

    def visible(self, inner: Curve) -> Curve:
        """Return the labelled mixture over how often the client runs."""
        parts = ((w, compose([(inner, s)]) if s else IDENTITY) for w, s in self.law())
        return Mix(tuple(parts))

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants, sorted, one entry for each draw.

        Raises:
            ParameterError: there are not ``self.population`` units, or only a probability is known.
        """
        if population != self.population:
            refuse("population", population, f"equal the scheme's population = {self.population}")
        return np.sort(generator.integers(population, size=self.draws))


@dataclass(frozen=True)
class Shuffled(_TableScheme):
    """Units are put in random order and cut into rounds: each is in one round of an epoch.

    A mechanism sampled this way is one EPOCH of ``rounds_per_epoch`` rounds.

    Args:
        rounds_per_epoch: at least 1.
    """

    rounds_per_epoch: int

    name: ClassVar[str] = "Shuffled"
    assumption: ClassVar[str] = "each unit takes part in exactly one round of every epoch"

    def __post_init__(self) -> None:
        checked = integer(1, rounds_per_epoch=self.rounds_per_epoch)
        object.__setattr__(self, "rounds_per_epoch", checked)

    @property
    def rate(self) -> float:
        """One: every unit takes part in every epoch."""
        return 1.0

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Refuse: an epoch is drawn as a whole; use ``epoch``."""
        del generator
        raise UnsupportedCombination(
            f"Shuffled draws {self.rounds_per_epoch} rounds at once from {population} units; use "
            "epoch(population, generator)"
        )

    def epoch(self, population: int, generator: np.random.Generator) -> list[Indices]:
        """Return the participants of each round of one epoch."""
        order = generator.permutation(population)
        return [np.sort(part) for part in np.array_split(order, self.rounds_per_epoch)]


def expected_size(scheme: Scheme, population: int) -> int:
    """Return how many participants a round has on average, rounded up, at least 1."""
    return max(1, math.ceil(scheme.rate * population - 1e-9))
