"""The interface of a sampling scheme, and the cells of the reference table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedCombination, integer, refuse
from ..loss import IDENTITY, Curve, Mix, Side
from ..loss.curves.components import gaussian_shift
from ..privacy_loss import PrivacyLoss, Witness, repeatable
from ..registry import own_parts, plain_fields
from ..relations import Adjacency, Facts, Observer, Unit
from .traits import Traits

Indices = NDArray[np.int64]

VISIBLE = "T4: mixture of a round without the unit (loss 0) and a round with it; exact"

RECOGNISED = "; in a client with so many records that its upload identifies it"


class Lossy(Protocol):
    """The properties of a mechanism that a sampling scheme reads."""

    @property
    def protects(self) -> Unit | None:
        """The privacy unit: the owner of one unit of data."""

    @property
    def traits(self) -> Traits:
        """The properties that theorems need."""

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
        """Return the pair of an observer who sees how often the unit takes part in a round.

        If the law of participation is rounded, ``side`` is the direction: up for a curve that
        dominates, down for an attained curve.
        """

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the indices of the participants of one round."""

    @property
    def independent_draws(self) -> bool:
        """Whether every unit is drawn independently of all others, so that it has no slot."""


FLOOR = "population (stated beforehand; no neighbouring data set has fewer units)"
"""Label of the population under add_remove, which does not let the number of units be revealed."""


class Pair(NamedTuple):
    """The dominating curve of one round and, if known, an attained one."""

    curve: Curve
    witness: Curve | None


Builder = Callable[[Lossy, Any, Observer], Pair]
"""Makes the pair of a cell from the mechanism, the scheme and the observer."""


class Cell(NamedTuple):
    """One cell of the table: its pair, the theorem behind it, and the data sets that attain it."""

    pair: str
    theorem: str
    attained: str
    datasets: str
    build: Builder


Rows = dict[tuple[Observer, Adjacency], Cell]
"""The cells of one scheme in the table."""


class UnlikelySizes(NamedTuple):
    """A fault of recorded cohorts, and the sizes that show it."""

    reason: str
    sizes: tuple[int, ...]


class TableScheme:
    """A scheme whose privacy is given by its rows of the table."""

    repeats: ClassVar[bool] = False
    """Whether a unit may be drawn more than once in a round."""
    name: ClassVar[str]
    assumption: ClassVar[str]
    rows: ClassVar[Rows]

    @property
    def independent_draws(self) -> bool:
        """Whether every unit is drawn independently of all others; False by default."""
        return False

    @property
    def rate(self) -> float:
        """Probability that a given unit takes part in a round."""
        raise NotImplementedError

    @property
    def secret_size(self) -> bool:
        """Whether the rows need the number of drawn units, which is random, to stay secret."""
        return False

    @property
    def max_cohort(self) -> int | None:
        """Upper bound on the number of units in one draw; None if no number is stated."""
        return None

    @property
    def min_cohort(self) -> int:
        """Lower bound on the number of different units in one draw."""
        return 0

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the numbers that a release depends on; see ``Mechanism.public``."""
        del adjacency
        return plain_fields(self)

    def visible(self, inner: Curve, side: Side = Side.UP) -> Curve:
        """T4: the inner pair with probability ``rate``, else no loss."""
        del side
        # At rate 1 the inner curve itself is returned, which keeps its own tails and symmetry.
        if self.rate == 1.0:
            return inner
        return Mix(((1.0 - self.rate, IDENTITY), (self.rate, inner)))

    def amplify(
        self, inner: Lossy, adjacency: Adjacency, observer: Observer = Observer.AGGREGATE
    ) -> PrivacyLoss:
        """Return the loss of ``inner`` run on units drawn by the scheme: the cell of the table.

        Raises:
            UnsupportedCombination: the table has no cell for these arguments, or the inner
                mechanism does not meet the theorem of the cell. The message names the cells that
                work.
        """
        cell = self._cell(observer, adjacency)
        sees = _seen(observer)
        pair = cell.build(inner, self, sees)
        # The theorems and assumptions of the inner mechanism, for the observer of the cell.
        base = _served(inner, adjacency, sees)
        _check_sum(inner, base)
        witness = None if pair.witness is None else Witness(pair.witness, cell.datasets, free=True)
        inside = base.witness
        if inside is not None and not inside.free and self.rate == 1.0:
            witness = inside
        # Which other units are drawn is random, so a pair that needs some of them is not attained.
        elif inside is not None and (inside.alone or not inside.free):
            witness = None
        theorems = (f"{self.name}, {adjacency}: {cell.theorem}", *base.theorems)
        return PrivacyLoss(
            pair.curve,
            Facts(inner.protects, adjacency, observer),
            witness,
            theorems,
            (*base.assumptions, self.assumption),
            tv_error=base.tv_error,
        )

    def _cell(self, observer: Observer, adjacency: Adjacency) -> Cell:
        cell = self.rows.get((_seen(observer), adjacency))
        if cell is None:
            raise UnsupportedCombination(
                f"{self.name} has no theorem for adjacency={adjacency}, observer={observer}"
                + _why(observer, adjacency)
                + f"; these are covered: {', '.join(f'{a}/{o}' for o, a in self.rows)}"
            )
        return cell

    def unlikely(self, sizes: Mapping[int, int], chance: float) -> list[UnlikelySizes]:
        """Return faults of recorded cohorts: none with probability at least 1 - ``chance``.

        The test assumes that the scheme drew all rounds from one population.

        Args:
            sizes: cohort size -> number of rounds.
            chance: largest probability of reporting a fault in cohorts that the scheme drew.
        """
        del sizes, chance
        return []

    def group(self, inner: PrivacyLoss) -> PrivacyLoss:
        """Return the loss of ``inner`` run inside a client that takes part in some rounds.

        There is no amplification, because participation may be visible, and T4 is exact if it is.
        An observer without the list of participants sees participation in the limit of a client
        with many records. The upload of that client lies far from all other uploads.
        """
        witness = repeatable(inner.witness)
        if witness is not None:
            names = witness.datasets
            if inner.facts.observer is not Observer.SERVER:
                names += RECOGNISED
            # An attained pair may only use guaranteed events, so the rate is rounded down.
            witness = Witness(self.visible(witness.curve, Side.DOWN), names, free=witness.free)
        return PrivacyLoss(
            self.visible(inner.curve),
            inner.facts,
            witness,
            (f"{self.name} cohort: {VISIBLE}", *inner.theorems),
            (*inner.assumptions, self.assumption),
            tv_error=inner.tv_error,
        )


def check_kind(scheme: object) -> None:
    """Refuse an object that is not a sampling scheme."""
    # A class has the methods too, but it has no parameters to draw with.
    draws = hasattr(scheme, "amplify") and hasattr(scheme, "group")
    if isinstance(scheme, type) or not draws:
        refuse("scheme", scheme, "be a sampling scheme", "pass Poisson(0.01), for example")


_BESIDE = frozenset({"draw", "epoch", "unlikely", "public", "as_event", "name", "assumption"})
"""Attributes of a scheme that no theorem reads."""


def priced_as(scheme: object, kind: type[TableScheme]) -> bool:
    """Return whether a scheme is of a kind, or is a subclass with the same accounting.

    Some theorems read only the numbers of a kind and not its rows. They must not serve a subclass
    that changes anything except its draws and its descriptions. The rows of other subclasses, or
    the numbers that the rows read, may differ.
    """
    return isinstance(scheme, kind) and own_parts(type(scheme), kind) <= _BESIDE


def among(scheme: Scheme, population: int) -> Scheme:
    """Return the scheme for a draw from ``population`` units, covered by the same accounting.

    The stated population of ``FixedSize`` and ``WithReplacement`` is a floor: more units are
    allowed. See docs/theory/theorems.md, *A public floor*.

    Raises:
        ParameterError: there are fewer units than stated, or the number differs and the scheme was
            accounted for exactly the stated number.
    """
    stated = getattr(scheme, "population", None)
    # A scheme without a stated population can draw from any number of units.
    if stated is None or stated == population:
        return scheme
    grown = getattr(scheme, "grown", None)
    # With fewer units than stated, each is drawn more often than was accounted.
    if grown is None or population < stated:
        refuse("population", population, f"equal the scheme's population = {stated}")
    larger: Scheme = grown(population)
    return larger


def asked_of(
    population: int, generator: np.random.Generator, stated: int | None = None
) -> tuple[int, np.random.Generator]:
    """Return the checked arguments of a draw.

    Args:
        population: number of units.
        generator: source of randomness.
        stated: the population that the scheme is defined for; None for any.

    Raises:
        ParameterError: ``population`` is not a number of units or differs from ``stated``, or
            ``generator`` is not a NumPy generator.
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
        ParameterError: as ``among``, or the draws do not match the accounting. They are not numbers
            of clients, or a client occurs twice although the scheme does not set ``repeats``.
    """
    drawn = among(scheme, population).draw(population, generator)
    repeats = getattr(scheme, "repeats", False)
    return checked_cohort(f"{type(scheme).__name__}.draw", drawn, population, repeats)


def checked_cohort(name: str, cohort: object, population: int, repeats: bool = False) -> Indices:
    """Return the clients of one round; refuse what the accounting does not cover.

    Args:
        name: of the method that drew them.
        cohort: numbers of clients, array-like of shape (draws,).
        population: number of clients.
        repeats: whether a client may be drawn several times.
    """
    drawn = np.asarray(cohort)
    # Require indices and refuse a mask: True and False would be read as clients 1 and 0, many times
    # each.
    if drawn.ndim != 1 or (len(drawn) and drawn.dtype.kind not in "iu"):
        kind = f"{drawn.dtype} of shape {drawn.shape}"
        refuse(name, kind, "return integers, one per draw", "pass np.flatnonzero(mask) for a mask")
    found = drawn.astype(np.int64)
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < population:
        refuse(name, found.tolist(), f"return numbers from 0 to {population - 1}")
    # A client that counts twice moves the sum by twice the accounted amount.
    if not repeats and len(np.unique(found)) < len(found):
        rule = "return each client at most once"
        refuse(name, found.tolist(), rule, "set repeats=True if the account covers repeated draws")
    return found


def _seen(observer: Observer) -> Observer:
    """Return the observer whose cell applies: the last release is a function of all releases."""
    # Post-processing: an observer of all releases can compute the last one.
    return Observer.AGGREGATE if observer is Observer.FINAL else observer


def _why(observer: Observer, adjacency: Adjacency) -> str:
    # The reason is added because every other scheme lacks this cell too.
    if observer is Observer.SERVER and adjacency is Adjacency.ADD_REMOVE:
        return " (the list of participants shows membership)"
    return ""


def _check_sum(inner: Lossy, loss: PrivacyLoss) -> None:
    """Refuse a mechanism that claims to be a Gaussian sum but has a different loss.

    The rows of a Gaussian sum read only its multiplier. A subclass that returns its own loss but
    inherits the multiplier would be accounted by the multiplier.

    Raises:
        ParameterError: the two disagree.
    """
    z = inner.traits.sum_multiplier
    if z is None:
        return
    moves = Adjacency(loss.facts.adjacency).moves
    curve = loss.curve
    found = gaussian_shift(curve)
    if found is None:
        # The moment of order 2 of a Gaussian pair is mu^2.
        found = math.sqrt(max(curve.moments().log_moment(2.0), 0.0))
    if not math.isclose(found, moves / z, rel_tol=1e-6):
        rule = f"agree with the loss, whose shift is {moves:g} / sum_multiplier, not {found:.6g}"
        way_out = (
            "set sum_multiplier to None if the mechanism is not one Gaussian sum with that noise"
        )
        refuse(f"{type(inner).__name__}.traits.sum_multiplier", z, rule, way_out)


def _served(inner: Lossy, adjacency: Adjacency, observer: Observer) -> PrivacyLoss:
    """Return the inner loss, under replace_one for mechanisms that do not serve the adjacency."""
    try:
        loss = inner.privacy_loss(adjacency)
    # A cell exists at this point, so the inner mechanism serves some adjacency.
    except UnsupportedCombination:
        return inner.privacy_loss(Adjacency.REPLACE_ONE, observer)
    return loss if observer is Observer.AGGREGATE else inner.privacy_loss(adjacency, observer)


def round_rate(scheme: Scheme | TableScheme) -> float:
    """Return the probability that a given unit is in a round, of an epoch if one is drawn whole."""
    share: float = getattr(scheme, "take", 1) / getattr(scheme, "rounds_per_epoch", 1)
    return scheme.rate * share


def expected_size(scheme: Scheme, population: int) -> int:
    """Return the mean number of participants of a round, rounded up, at least 1."""
    # Rounding can lift the product just above an integer.
    return max(1, math.ceil(round_rate(scheme) * population - 1e-9))


def unlikely(scheme: object, sizes: Mapping[int, int], chance: float) -> list[UnlikelySizes]:
    """Return the faults that a scheme finds in recorded cohorts; none if it lacks the method.

    See ``TableScheme.unlikely``.
    """
    # Schemes defined by users need no test of cohort sizes.
    method = getattr(scheme, "unlikely", None)
    return [] if method is None else list(method(sizes, chance))


def secret_size(scheme: object) -> bool:
    """Return whether the rows of a scheme need the number of drawn units to stay secret."""
    return bool(getattr(scheme, "secret_size", False))


def independent_draws(scheme: object) -> bool:
    """Return whether a scheme draws every unit independently of all others; False if not stated."""
    return bool(getattr(scheme, "independent_draws", False))


def most_drawn(scheme: object) -> int | None:
    """Return an upper bound on the number of units in one draw of a scheme; None if not stated."""
    return getattr(scheme, "max_cohort", None)


def least_drawn(scheme: object) -> int:
    """Return a lower bound on the number of different units in one draw of a scheme, or 0."""
    return int(getattr(scheme, "min_cohort", 0))


def beyond(sizes: Mapping[int, int], fits: Callable[[int], bool], what: str) -> list[UnlikelySizes]:
    """Return one fault for each size that does not fit; ``what`` describes the sizes that do."""
    return [
        UnlikelySizes(f"{size} participants, but the scheme draws {what}", (size,))
        for size in sizes
        if not fits(size)
    ]


def at_least_once(draws: int, chance: float) -> float:
    """Return 1 - (1 - chance)^draws: the probability of an event in any of independent draws."""
    # log1p and expm1 keep the digits of tiny chances.
    return 1.0 if chance == 1.0 else min(1.0, -math.expm1(draws * math.log1p(-chance)))
