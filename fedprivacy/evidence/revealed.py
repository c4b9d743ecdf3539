"""Values of a run that may reveal secret cohort sizes or the number of units.

Under add_remove, neighbours differ in the number of units. With cohorts of random size,
amplification relies on a secret cohort size, under every adjacency (docs/theory/theorems.md). If
the size is known, the units of a round are a cohort of fixed size, which costs more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..mechanisms import Mechanism
from ..mechanisms.base import mechanisms_in
from ..sampling.scheme import secret_size


@dataclass(frozen=True)
class Revealed:
    """Values that may reveal the cohort sizes of one scheme.

    Attributes:
        secret: whether the cohort size is random and a secret that the account relies on.
        divisors: divisors of the sums; contains None if a round does not record it.
        noises: used noise as a fraction of the stated noise; 1 up to rounding.
        aborted: number of rounds that began and released no sum.
        rate: probability that a unit is drawn; None if there are several.
    """

    secret: bool
    rate: float | None
    divisors: frozenset[float | None]
    noises: frozenset[float]
    aborted: int

    @property
    def aborted_draws(self) -> bool:
        """Whether an abort may reveal a secret number."""
        return self.secret and self.aborted > 0


def secret_sizes(run: Mechanism | None) -> bool:
    """Return whether a step of the run relies on secret cohort sizes."""
    if run is None:
        return False
    own = run.traits.secret_size or secret_size(getattr(run, "scheme", None))
    return own or any(map(secret_sizes, mechanisms_in(run)))


def schemes(run: Mechanism) -> frozenset[object]:
    """Return every sampling scheme in a run, at any depth."""
    own = getattr(run, "scheme", None)
    inside = frozenset().union(*map(schemes, mechanisms_in(run)))
    return inside if own is None else inside | {own}


def draws_of(mechanism: Mechanism) -> Hashable:
    """Return the key that rounds with one kind of draw share, at any depth.

    The key is the set of schemes with a secret number. If there are none, it is the set of all
    schemes, or the mechanism.
    """
    every = schemes(mechanism)
    hidden = frozenset(filter(secret_size, every))
    return hidden or every or mechanism, secret_sizes(mechanism)


def rate_of(mechanism: Mechanism) -> float | None:
    """Return the rate of a unit in the number that a denominator may follow; None if unknown."""
    every = schemes(mechanism)
    hidden = frozenset(filter(secret_size, every))
    # Without a scheme, the rate of a secret draw is unknown.
    if len(hidden or every) > 1 or (secret_sizes(mechanism) and not hidden):
        return None
    return next((getattr(one, "rate", None) for one in hidden or every), 1.0) or None


def revealed_numbers(own: Iterable[Revealed], follows: bool) -> Iterator[str]:
    """Yield doubts about sums that reveal the number of units."""
    rounds = list(own)
    if not _one_population(rounds):
        yield VARYING_DENOMINATORS
    if any(one.secret and len(one.noises) > 1 for one in rounds):
        yield VARYING_NOISE
    if follows:
        yield STATED_DENOMINATORS


def _one_population(rounds: Sequence[Revealed]) -> bool:
    """Return whether denominators are one constant, or the expected sizes of one population.

    Denominators d_i at rates q_i match N units if N - 1 / q_i < d_i / q_i <= N, rounded up or not.
    """
    # With several rates in one round there is no expected size, so only one constant is valid.
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


VARYING_DENOMINATORS = (
    "sums divided by numbers that differ between rounds and may depend on the number of clients"
)
"""A doubt that applies if the number of clients is secret."""


VARYING_NOISE = (
    "noise that differs from the mechanism by factors that vary between rounds and may depend "
    "on the cohort size, which the account keeps secret"
)
"""A doubt that applies with cohorts of random size."""


STATED_DENOMINATORS = (
    "sums divided by numbers that depend on the number of units, as stated; the scale of the "
    "noise reveals this number, which is secret under add_remove and with random cohort sizes"
)


VOIDED = "a line that declares the record of the run void"
"""Doubt about a ledger whose run declared its record void."""

WITHOUT_COUNTS = (VARYING_DENOMINATORS, VARYING_NOISE, STATED_DENOMINATORS, VOIDED)
"""Doubts without any count, which every reader may see."""


PUBLIC_DENOMINATOR = "sums were divided by numbers that do not depend on the data"
"""Default assumption without a record of denominators."""
