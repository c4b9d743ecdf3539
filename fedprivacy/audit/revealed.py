"""What a run tells of how many units were drawn, where nobody may learn it.

Under add_remove neighbours differ in how many there are. Where cohorts are of random size, how many
were drawn is a secret that amplification counts on (docs/theory/theorems.md), under every
adjacency: once it is known, the units of a round are a cohort of fixed size, which costs more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """

    secret: bool
    divisors: frozenset[float | None]
    noises: frozenset[float]
    aborted: int

    @property
    def aborted_draws(self) -> bool:
        """Whether an abort may tell a secret number."""
        return self.secret and self.aborted > 0


def secret_sizes(run: Mechanism | None) -> bool:
    """Return whether some step of a run counts on nobody's learning how many were drawn."""
    return run is not None and any(map(secret_size, schemes(run)))


def schemes(run: Mechanism) -> frozenset[object]:
    """Return every scheme that draws somewhere in a run, at whatever depth."""
    own = getattr(run, "scheme", None)
    inside = frozenset().union(*map(schemes, run.holds))
    return inside if own is None else inside | {own}


def numbers_told(own: Iterable[Revealed], follows: bool) -> Iterator[str]:
    """Yield what sums tell of the number of units."""
    rounds = list(own)
    # One constant denominator tells nothing; several may follow the number of clients.
    if any(len(one.divisors - {None}) > 1 for one in rounds):
        yield FOLLOWING
    if any(one.secret and len(one.noises) > 1 for one in rounds):
        yield LOUDER
    if follows:
        yield SAID_TO_FOLLOW


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


TELLABLE = (FOLLOWING, LOUDER, SAID_TO_FOLLOW)
"""Doubts that count nothing, so that they may be told to anybody."""


PUBLIC_DENOMINATOR = "sums were divided by numbers that do not follow the data"
"""What is taken for granted where nothing is said of denominators."""
