"""What a sampling scheme is, and a cell of the reference table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedCombination, integer, refuse
from ..loss import IDENTITY, Curve, Gdp, Mix, Side
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import own_parts, plain_fields
from ..relations import Adjacency, Facts, Observer, Unit

Indices = NDArray[np.int64]

VISIBLE = "T4: mixture of a round without the unit (loss 0) and a round with it; exact"

RECOGNISED = "; in a client of so many records that its upload shows who sent it"


class Lossy(Protocol):
    """What a scheme needs to know of the mechanism it samples for."""

    @property
    def protects(self) -> Unit | None:
        """Whose data is one unit."""

    @property
    def sum_multiplier(self) -> float | None:
        """Noise multiplier of a Gaussian sum of clipped vectors, else None."""

    @property
    def zeroed_is_absent(self) -> bool:
        """Whether a zeroed unit releases just what its absence would."""

    @property
    def zeroing_replaces(self) -> bool:
        """Whether to zero a unit out is one of the ways to replace its data."""

    def privacy_loss(self, adjacency: Any, observer: Any = ...) -> PrivacyLoss:
        """Return the loss of one run."""


class Scheme(Protocol):
    """How units (or clients) are drawn for a round."""

    @property
    def rate(self) -> float:
        """Probability that a given unit takes part in a round."""

    def amplify(self, inner: Lossy, adjacency: Adjacency, observer: Observer) -> PrivacyLoss:
        """Return the loss of ``inner`` run on units drawn by the scheme."""

    def group(self, inner: PrivacyLoss) -> PrivacyLoss:
        """Return the loss of a mechanism run inside one client that may be drawn."""

    def visible(self, inner: Curve, side: Side = Side.UP) -> Curve:
        """Return the pair of somebody who sees how often the unit takes part in a round.

        ``side`` says which way the law of taking part is rounded, where it is: up for a curve
        that dominates, down for an attained one.
        """

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the indices of the participants of one round."""

    @property
    def apart(self) -> bool:
        """Whether every unit is drawn independently of all others, so that it has no slot."""


FLOOR = "population (stated beforehand; no neighbouring data set has fewer units)"
"""What a scheme's population is under add_remove, which does not let the number itself be told."""


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


Rows = dict[tuple[Observer, Adjacency], Cell]
"""One scheme's cells of the table."""


class Odd(NamedTuple):
    """What is wrong with recorded cohorts, and which sizes show it."""

    told: str
    sizes: tuple[int, ...]


class TableScheme:
    """A scheme whose privacy is its rows of the table."""

    repeats: ClassVar[bool] = False
    """Whether a unit may be drawn more than once in a round."""
    name: ClassVar[str]
    assumption: ClassVar[str]
    rows: ClassVar[Rows]

    @property
    def apart(self) -> bool:
        """Whether every unit is drawn independently of all others; not unless a scheme says so."""
        return False

    @property
    def rate(self) -> float:
        """Probability that a given unit takes part in a round."""
        raise NotImplementedError

    @property
    def secret_size(self) -> bool:
        """Whether its rows count on nobody's learning how many were drawn: that is random."""
        return False

    @property
    def most(self) -> int | None:
        """How many units one draw has at most; None where no number is stated."""
        return None

    @property
    def least(self) -> int:
        """How many different units one draw has at least."""
        return 0

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the numbers that a release depends on; see ``Mechanism.public``."""
        del adjacency
        return plain_fields(self)

    def visible(self, inner: Curve, side: Side = Side.UP) -> Curve:
        """T4: with probability ``rate`` the inner pair, else no loss; recognisably."""
        del side
        # Recognisably the inner pair, so that its own tails and symmetry are kept.
        if self.rate == 1.0:
            return inner
        return Mix(((1.0 - self.rate, IDENTITY), (self.rate, inner)))

    def amplify(
        self, inner: Lossy, adjacency: Adjacency, observer: Observer = Observer.AGGREGATE
    ) -> PrivacyLoss:
        """Return the loss of ``inner`` run on units drawn by the scheme: the table's cell.

        Raises:
            UnsupportedCombination: the table has no such cell, or the inner mechanism does not
                meet the cell's theorem; the message names the cells that work.
        """
        cell = self._cell(observer, adjacency)
        sees = _seen(observer)
        pair = cell.build(inner, self, sees)
        # Theorems and assumptions of the inner mechanism, in the cell's own view.
        base = inner.privacy_loss(_served(inner, adjacency), sees)
        _check_sum(inner, base)
        witness = None if pair.witness is None else Witness(pair.witness, cell.datasets)
        theorems = (f"{self.name}, {adjacency}: {cell.theorem}", *base.theorems)
        return PrivacyLoss(
            pair.curve,
            Facts(inner.protects, adjacency, observer),
            witness,
            theorems,
            (*base.assumptions, self.assumption),
            off=base.off,
        )

    def _cell(self, observer: Observer, adjacency: Adjacency) -> Cell:
        cell = self.rows.get((_seen(observer), adjacency))
        if cell is None:
            raise UnsupportedCombination(
                f"{self.name} has no theorem for adjacency={adjacency}, observer={observer}"
                + _why(observer, adjacency)
                + f"; these work: {', '.join(f'{a}/{o}' for o, a in self.rows)}"
            )
        return cell

    def unlikely(self, sizes: Mapping[int, int], chance: float) -> list[Odd]:
        """Return what is wrong with recorded cohorts; nothing with probability 1 - ``chance``.

        All rounds are taken to be drawn by the scheme, from one population.

        Args:
            sizes: cohort size -> in how many rounds.
            chance: most probability of an answer about cohorts that the scheme drew.
        """
        del sizes, chance
        return []

    def group(self, inner: PrivacyLoss) -> PrivacyLoss:
        """Return the loss of ``inner`` run inside a client that takes part now and then.

        Nothing is amplified: participation may be visible, and T4 is exact when it is. An observer
        who is not told who took part sees it in the limit of a client with many records, whose
        upload lies far from everybody else's.
        """
        witness = inner.witness
        if witness is not None:
            names = witness.datasets
            if inner.facts.observer is not Observer.SERVER:
                names += RECOGNISED
            # An attained pair may only count on what surely happens: the rate is rounded down.
            witness = Witness(self.visible(witness.curve, Side.DOWN), names)
        return PrivacyLoss(
            self.visible(inner.curve),
            inner.facts,
            witness,
            (f"{self.name} cohort: {VISIBLE}", *inner.theorems),
            (*inner.assumptions, self.assumption),
            off=inner.off,
        )


def check_kind(scheme: object) -> None:
    """Refuse what is no sampling scheme."""
    # The class has the methods too, and nobody said with which numbers it draws.
    draws = hasattr(scheme, "amplify") and hasattr(scheme, "group")
    if isinstance(scheme, type) or not draws:
        refuse("scheme", scheme, "be a sampling scheme", "pass Poisson(0.01), for instance")


_BESIDE = frozenset({"draw", "epoch", "unlikely", "public", "as_event", "name", "assumption"})
"""What no theorem reads of a scheme."""


def priced_as(scheme: object, kind: type[TableScheme]) -> bool:
    """Return whether a scheme is of a kind, or a subclass that is accounted as that is.

    Theorems that read a kind's numbers alone, and not its rows, must not serve a subclass that
    says anything anew but how it draws and what is told of it: its rows, or the numbers that rows
    read, may be others.
    """
    return isinstance(scheme, kind) and own_parts(type(scheme), kind) <= _BESIDE


def among(scheme: Scheme, population: int) -> Scheme:
    """Return the scheme as it draws from so many units; what it is accounted for holds for it.

    Of ``FixedSize`` and ``WithReplacement`` the stated population is a floor: more units are fine,
    see docs/theory/theorems.md, *A public floor*.

    Raises:
        ParameterError: there are fewer, or not just as many where that is what was accounted.
    """
    stated = getattr(scheme, "population", None)
    # A scheme that states no population draws from any.
    if stated is None or stated == population:
        return scheme
    grown = getattr(scheme, "grown", None)
    # Fewer units than stated are drawn more often than was accounted.
    if grown is None or population < stated:
        refuse("population", population, f"equal the scheme's population = {stated}")
    larger: Scheme = grown(population)
    return larger


def asked_of(
    population: int, generator: np.random.Generator, stated: int | None = None
) -> tuple[int, np.random.Generator]:
    """Return what a draw is asked of, after a look at it.

    Args:
        population: how many units there are.
        generator: where randomness comes from.
        stated: the population that a scheme is for; None for any.

    Raises:
        ParameterError: no number of units, or not the one stated, or no generator of NumPy's.
    """
    count = integer(0, population=population)
    if stated not in (None, count):
        refuse("population", population, f"equal the scheme's population = {stated}")
    if not isinstance(generator, np.random.Generator):
        refuse("generator", generator, "be a NumPy generator", "pass np.random.default_rng()")
    return count, generator


def cohort_of(scheme: Scheme, population: int, generator: np.random.Generator) -> Indices:
    """Return the clients of one round, one entry for each draw.

    Raises:
        ParameterError: as ``among``; or draws that are not what was accounted: other than numbers
            of clients, or one client twice by a scheme that does not say that it ``repeats``.
    """
    drawn = np.asarray(among(scheme, population).draw(population, generator))
    name = f"{type(scheme).__name__}.draw"
    # Indices, not a mask: True and False would be clients 1 and 0, many times each.
    if drawn.ndim != 1 or (len(drawn) and drawn.dtype.kind not in "iu"):
        told = f"{drawn.dtype} of shape {drawn.shape}"
        refuse(name, told, "return whole numbers, one for each draw", "np.flatnonzero of a mask")
    cohort = drawn.astype(np.int64)
    if len(cohort) and not 0 <= int(cohort.min()) <= int(cohort.max()) < population:
        refuse(name, cohort.tolist(), f"return numbers from 0 to {population - 1}")
    # Whoever counts twice moves the sum by twice as much as is accounted.
    if not getattr(scheme, "repeats", False) and len(np.unique(cohort)) < len(cohort):
        rule = "return each client at most once"
        refuse(name, cohort.tolist(), rule, "a scheme whose account covers more says repeats=True")
    return cohort


def _seen(observer: Observer) -> Observer:
    """Return the observer whose cell counts: the last release is a function of all of them."""
    # Post-processing: whoever sees all releases could compute the last one.
    return Observer.AGGREGATE if observer is Observer.FINAL else observer


def _why(observer: Observer, adjacency: Adjacency) -> str:
    # Told with its reason, since no other scheme would serve it either.
    if observer is Observer.SERVER and adjacency is Adjacency.ADD_REMOVE:
        return " (the list of participants shows membership)"
    return ""


def _check_sum(inner: Lossy, loss: PrivacyLoss) -> None:
    """Refuse a mechanism that says it is a Gaussian sum and loses something else.

    The rows of a Gaussian sum read its multiplier alone. A subclass that answers with a loss of its
    own and inherits the multiplier would be priced by the latter.

    Raises:
        ParameterError: the two disagree.
    """
    z = inner.sum_multiplier
    if z is None:
        return
    moves = Adjacency(loss.facts.adjacency).moves
    curve = loss.curve
    # A Gaussian pair's moment of order 2 is mu^2.
    found = curve.mu if isinstance(curve, Gdp) else math.sqrt(max(curve.log_moment(2.0), 0.0))
    if not math.isclose(found, moves / z, rel_tol=1e-6):
        rule = f"be the noise of what it loses: {moves:g} / sum_multiplier, not {found:.6g}"
        way_out = "let sum_multiplier be None where this is not one Gaussian sum of that noise"
        refuse(f"{type(inner).__name__}.sum_multiplier", z, rule, way_out)


def _served(inner: Lossy, adjacency: Adjacency) -> Adjacency:
    """Return the adjacency itself, or replace_one for mechanisms that serve nothing else."""
    try:
        inner.privacy_loss(adjacency)
    # A cell has been built by now: some adjacency of the inner mechanism must do.
    except UnsupportedCombination:
        return Adjacency.REPLACE_ONE
    return adjacency


def expected_size(scheme: Scheme, population: int) -> int:
    """Return how many participants a round has on average, rounded up, at least 1."""
    # The product may lie above a whole number by rounding alone.
    return max(1, math.ceil(scheme.rate * population - 1e-9))


def unlikely(scheme: object, sizes: Mapping[int, int], chance: float) -> list[Odd]:
    """Return what a scheme says of recorded cohorts; a scheme that has no such method says nothing.

    See ``TableScheme.unlikely``.
    """
    # Schemes of users need not know what cohorts are likely.
    asked = getattr(scheme, "unlikely", None)
    return [] if asked is None else list(asked(sizes, chance))


def secret_size(scheme: object) -> bool:
    """Return whether a scheme counts on nobody's learning how many it drew."""
    return bool(getattr(scheme, "secret_size", False))


def most_drawn(scheme: object) -> int | None:
    """Return how many units one draw of a scheme has at most; None where it does not say."""
    return getattr(scheme, "most", None)


def least_drawn(scheme: object) -> int:
    """Return how many different units one draw of a scheme has at least, as far as it says."""
    return int(getattr(scheme, "least", 0))


def beyond(sizes: Mapping[int, int], fits: Callable[[int], bool], what: str) -> list[Odd]:
    """Return every size that does not fit, told as participants where the scheme draws ``what``."""
    return [
        Odd(f"{size} participants where the scheme draws {what}", (size,))
        for size in sizes
        if not fits(size)
    ]


def at_least_once(draws: int, chance: float) -> float:
    """Return 1 - (1 - chance)^draws: the probability of an event in any of independent draws."""
    # log1p and expm1 keep the digits of tiny chances.
    return 1.0 if chance == 1.0 else min(1.0, -math.expm1(draws * math.log1p(-chance)))
