"""What a run tells of how many units were drawn, where nobody may learn it.

Under add_remove neighbours differ in how many there are. Where cohorts are of random size, how many
were drawn is a secret that amplification counts on (docs/theory/theorems.md), under every
adjacency: once it is known, the units of a round are a cohort of fixed size, which costs more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..mechanisms import Mechanism
from ..sampling.scheme import secret_size


@dataclass(frozen=True)
class Revealed:
    """What the rounds of one scheme tell of how many it drew.

    Attributes:
        secret: whether that is random, and a secret that the account counts on.
        divisors: what sums were divided by; None in it for a round that does not say.
        noises: shares of the noise that mechanisms say, as it was used; 1 up to rounding.
        aborted: how many rounds were begun and released nothing.
        rate: the probability by which a unit is drawn; None where there are several.
    """

    secret: bool
    rate: float | None
    divisors: frozenset[float | None]
    noises: frozenset[float]
    aborted: int

    @property
    def aborted_draws(self) -> bool:
        """Whether an abort may tell a secret number."""
        return self.secret and self.aborted > 0


def secret_sizes(run: Mechanism | None) -> bool:
    """Return whether some step of a run counts on nobody's learning how many were drawn."""
    if run is None:
        return False
    own = run.secret_size or secret_size(getattr(run, "scheme", None))
    return own or any(map(secret_sizes, run.holds))


def schemes(run: Mechanism) -> frozenset[object]:
    """Return every scheme that draws somewhere in a run, at whatever depth."""
    own = getattr(run, "scheme", None)
    inside = frozenset().union(*map(schemes, run.holds))
    return inside if own is None else inside | {own}


def draws_of(mechanism: Mechanism) -> Hashable:
    """Return what rounds have in common that belong together, whatever they stand in.

    Schemes by which a secret number is drawn; where there are none, all schemes, or the mechanism.
    """
    every = schemes(mechanism)
    hidden = frozenset(filter(secret_size, every))
    return hidden or every or mechanism, secret_sizes(mechanism)


def rate_of(mechanism: Mechanism) -> float | None:
    """Return how often a unit is in the number that a denominator may follow; None if not known."""
    every = schemes(mechanism)
    hidden = frozenset(filter(secret_size, every))
    # Of what is drawn by no scheme nobody says how often.
    if len(hidden or every) > 1 or (secret_sizes(mechanism) and not hidden):
        return None
    return next((getattr(one, "rate", None) for one in hidden or every), 1.0) or None


def numbers_told(own: Iterable[Revealed], follows: bool) -> Iterator[str]:
    """Yield what sums tell of the number of units."""
    rounds = list(own)
    if not _one_population(rounds):
        yield FOLLOWING
    if any(one.secret and len(one.noises) > 1 for one in rounds):
        yield LOUDER
    if follows:
        yield SAID_TO_FOLLOW


def _one_population(rounds: Sequence[Revealed]) -> bool:
    """Return whether denominators are one constant, or what is expected of one population.

    Numbers d_i by rates q_i are of N units if N - 1 / q_i < d_i / q_i <= N, rounded up or not.
    """
    # Of several rates in one round nothing is expected: it has one constant.
    if any(one.rate is None and len(one.divisors - {None}) > 1 for one in rounds):
        return False
    drawn = [
        (one.rate, d)
        for one in rounds
        if one.rate is not None
        for d in one.divisors
        if d is not None
    ]
    if len({d for _, d in drawn}) <= 1:
        return True
    return max((d - 1.0) / rate for rate, d in drawn) < min(d / rate for rate, d in drawn)


FOLLOWING = (
    "sums divided by numbers that differ between rounds, which may follow the number of clients"
)
"""A doubt where that number is hidden."""


LOUDER = (
    "noise that differs between rounds from what their mechanisms say, by factors that may follow "
    "how many were drawn, which their account keeps secret"
)
"""A doubt where cohorts are of random size."""


SAID_TO_FOLLOW = (
    "sums divided by numbers that are said to follow the number of units: the noise's scale tells "
    "that number, which is hidden under add_remove and where cohorts are of random size"
)


VOIDED = "a line in which the run declares its own record void"
"""Why nothing is certified of a ledger that its run declared void."""

TELLABLE = (FOLLOWING, LOUDER, SAID_TO_FOLLOW, VOIDED)
"""Doubts that count nothing, so that they may be told to anybody."""


PUBLIC_DENOMINATOR = "sums were divided by numbers that do not follow the data"
"""What is taken for granted where nothing is said of denominators."""
