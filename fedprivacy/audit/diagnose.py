"""Find the wrong reading of a run that gives the claimed number.

The result is a remark on a verdict and never changes the verdict. Many readings are tried, and some
of them come close to any number. Hence a match is reported only if a random claim would rarely
match. Each number of a reading covers the claims that equal it after rounding to the claim's
digits. All compared numbers together cover at most ``CHANCE`` of the claims between a tenth of the
audited epsilon and all of that epsilon. The remark is conditional ("would be"): it does not say
that this mistake was made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from functools import cached_property

from ..bound import Bound, exactly, shown
from ..mechanisms import Mechanism
from ..relations import Facts
from .misreadings import MAX_TIMES, WAYS, Audited, Misreading, Number, divided, peer, readings

_USELESS, _LONG = 1e4, 10**4
"""Readings beyond both limits (epsilon and rounds) are slow and explain no claim."""
MAX_PARTS = 20
"""Runs with more kinds of rounds are skipped, because every reading needs an account."""

MAX_MATCHES = 2
"""Number of matches that are reported."""

CHANCE = 0.01
"""Upper limit of the probability that a random claim matches one of the compared numbers."""
FREE = 0.003
"""The same limit with readings that have a free parameter, which are compared last."""

_ARITHMETIC = 3e-6
"""Relative difference of one formula's values in two programs with different lattices."""
_ESTIMATE = 1e-3
"""Relative error of accountants that estimate."""
_ROUNDED = 0.05
"""Largest relative distance to the certified value at which a claim can be a rounding."""
_FROM = 0.1
"""Random claims start at this fraction of the audited epsilon."""


@dataclass(frozen=True)
class ExplainedClaim:
    """A claim about a run that needs an explanation.

    Attributes:
        run: the mechanism that was accounted.
        facts: facts of the claim.
        claim: the claimed epsilon.
        found: certified bounds at the claimed delta, by accountant.
        sensitivity: sensitivity in the claim's own arithmetic, in clip norms.
        run_without: the run without one stated fact, by the name of that fact.
    """

    run: Mechanism
    facts: Facts
    claim: float
    found: Mapping[str, Bound]
    sensitivity: float | None = None
    run_without: Mapping[str, Mechanism] = field(default_factory=dict)

    @property
    def bound(self) -> Bound:
        """The bound of the first accountant."""
        return next(iter(self.found.values()))

    @property
    def delta(self) -> float:
        """The delta of the claim."""
        return self.bound.given

    @property
    def least(self) -> float:
        """The smallest certified epsilon; the largest lower end if no finite one is certified."""
        upper = min(bound.upper for bound in self.found.values())
        return upper if upper < math.inf else max(bound.lower for bound in self.found.values())

    @property
    def can_be_read(self) -> bool:
        """Whether readings are tried. Each one needs an account."""
        # No reading can give a pure or an impossible claim.
        parts = self.run.sequence()
        too_large = self.least > _USELESS and sum(times for _, times in parts) > _LONG
        readable = len(parts) <= MAX_PARTS and not too_large
        # A claim is no fraction of an infinite epsilon.
        finite = 0.0 < self.least < math.inf and self.claim > 0.0
        return readable and finite and 0.0 < self.delta < 1.0

    @cached_property
    def audited(self) -> Audited:
        """The run in the form that readings need."""
        rest = (self.sensitivity, self.run_without)
        return Audited(self.run, self.facts, self.delta, self.least, *rest)

    @property
    def own(self) -> list[float]:
        """The run's own numbers. A reading that gives one of them explains no difference."""
        return [bound.upper for bound in self.found.values() if math.isfinite(bound.upper)]

    @cached_property
    def digit(self) -> float:
        """The place value of the claim's last digit, or the rounding of two programs if larger."""
        return max(_last_digit(self.claim), _ARITHMETIC * self.claim)

    def rounds_from(self, value: float) -> bool:
        """Return whether the claim is this value, truncated or rounded to the claim's digits."""
        low, high = self.window(value)
        return low <= self.claim <= high

    def window(self, value: float) -> tuple[float, float]:
        """Return the range of claims that are this value, truncated or rounded."""
        slack = _ARITHMETIC * value
        return value - self.digit - slack, value + 0.5 * self.digit + slack


def _last_digit(claim: float) -> float:
    """Return the place value of the last digit of the shortest text that parses to the claim."""
    if claim == math.floor(claim):
        return 1.0
    # The repr of a float with a fraction ends in its last nonzero decimal.
    exponent = Decimal(repr(claim)).as_tuple().exponent
    return 10.0**exponent if isinstance(exponent, int) else 0.0


@dataclass
class Windows:
    """Claims that the readings up to now would explain, as a share of the random claims.

    Attributes:
        low: the smallest random claim.
        high: the largest random claim.
        spans: range of claims (first, last) that each number covers.
        more: share of the ranges that were counted without an account.
    """

    low: float
    high: float
    spans: list[tuple[float, float]] = field(default_factory=list)
    more: float = 0.0

    def share(self, more: Iterable[tuple[float, float]] = ()) -> float:
        """Return the share of the random claims that are covered, with further ranges included."""
        covered, end = 0.0, self.low
        for first, last in sorted([*self.spans, *more]):
            covered += max(0.0, min(last, self.high) - max(first, end))
            end = max(end, last)
        return self.more + covered / (self.high - self.low)

    def admits(self, window: tuple[float, float], most: float) -> bool:
        """Add a window if the share stays within ``most``. Return whether it was added."""
        if self.share([window]) > most:
            return False
        self.spans.append(window)
        return True

    def admit_all(self, claimed: ExplainedClaim, value: float) -> bool:
        """Add the windows of all multiples of a value if the share stays within ``CHANCE``."""
        windows = [claimed.window(times * value) for times in range(2, MAX_TIMES + 1)]
        if self.share(windows) > CHANCE:
            return False
        self.spans += windows
        return True

    def summary(self, many: int) -> str:
        """Return the number of compared readings and the chance of a random match, in words."""
        chance = shown(100.0 * self.share(), 2, ROUND_CEILING)
        tries = "1 reading was" if many == 1 else f"{many} readings were"
        return (
            f"({tries} compared; a random claim matches one with probability at most {chance} %.)"
        )


@dataclass(frozen=True)
class _Match:
    """A reading that gives the claim."""

    reading: Misreading
    number: Number


def failing_assumptions(claimed: ExplainedClaim) -> tuple[str, ...]:
    """Return sentences on the assumption that a failing claim seems to make.

    Returns:
        A sentence that the claim is the run's own number rounded down. Else, the readings that give
        the claimed number. Else, a reading under which the claim would hold.
    """
    if not claimed.can_be_read:
        return ()
    rounded = _rounded(claimed)
    if rounded:
        return rounded
    # A claim with few digits matches too many numbers, so only bounds are of use.
    precise = _windows(claimed).share([claimed.window(claimed.claim)]) <= CHANCE
    asked = [one for one in readings(claimed.audited) if one.bound or precise]
    tried = [(one, one.finite()) for one in asked]
    matches, text = _matches(claimed, tried)
    if matches:
        return tuple(_sentence(claimed, match, text) for match in matches[:MAX_MATCHES])
    return _enough(tried, claimed)


def _rounded(claimed: ExplainedClaim) -> tuple[str, ...]:
    """Return a sentence if the claim is a certified number of this run, rounded down."""
    why = "An estimate or a number rounded down is not an upper bound."
    for name, bound in claimed.found.items():
        near = bound.upper - claimed.claim <= _ROUNDED * claimed.claim
        if near and claimed.rounds_from(bound.upper):
            text = f"{exactly(claimed.claim)} is the certified value rounded down"
            return (f"{text} ({_up(bound.upper)}, {name.upper()}). {why}",)
    return ()


def _windows(claimed: ExplainedClaim) -> Windows:
    high = max(claimed.claim, claimed.least)
    return Windows(min(_FROM * high, 0.5 * claimed.claim), high)


def _matches(
    claimed: ExplainedClaim, tried: list[tuple[Misreading, list[Number]]]
) -> tuple[list[_Match], str]:
    """Return the readings that give the claim, and a sentence on the chance of a match."""
    windows = _windows(claimed)
    compared: list[str] = []
    found: list[_Match] = []
    for one, number in _distinct(claimed, tried):
        if windows.admits(claimed.window(number[0]), CHANCE):
            compared.append(one.what)
            # A further reading with the same number explains nothing more.
            new = all(number != match.number for match in found)
            found += [_Match(one, number)] * (new and claimed.rounds_from(number[0]))
    # Readings with a free parameter come close to every claim with few digits.
    if not found:
        found = _of_divisors(claimed, windows, compared) or _estimated(claimed, windows, compared)
    # All numbers of one reading count as one explanation.
    first = {match.reading.what: match for match in reversed(found)}
    return list(reversed(first.values())), windows.summary(len(dict.fromkeys(compared)))


def _distinct(
    claimed: ExplainedClaim, tried: Iterable[tuple[Misreading, list[Number]]]
) -> Iterator[tuple[Misreading, Number]]:
    """Yield the numbers of readings that differ from the run's own, the most likely first."""
    for one, numbers in tried:
        for number in numbers:
            if not any(abs(number[0] - own) <= claimed.digit for own in claimed.own):
                yield one, number


def _estimated(claimed: ExplainedClaim, windows: Windows, compared: list[str]) -> list[_Match]:
    """Return a match if the claim is slightly below the certified value, as estimates are."""
    # Without a certified lower end, the claim is compared with the upper end.
    least = claimed.bound.lower or claimed.bound.upper
    what = "an estimate slightly below the certified value"
    window = (least * (1.0 - _ESTIMATE), least)
    if not math.isfinite(least) or not windows.admits(window, CHANCE):
        return []
    compared.append(what)
    why = "An estimate or a number rounded down is not an upper bound."
    near = window[0] <= claimed.claim < least
    return [_Match(Misreading(what, why, list), (least, "certified"))] * near


def _of_divisors(claimed: ExplainedClaim, windows: Windows, compared: list[str]) -> list[_Match]:
    """Return the divisors that give the claim, if the chance of a random match allows them."""
    ways = list(divided(claimed.audited))
    first, last = claimed.window(claimed.claim)
    # The chance is computed before any account.
    share = WAYS * len(ways) * (last - first) / (windows.high - windows.low)
    if not ways or windows.share() + share > FREE:
        return []
    windows.more += share
    compared += [one.what for one in ways]
    numbers = ((one, number) for one in _near(claimed, ways) for number in one.finite())
    return [_Match(one, number) for one, number in numbers if claimed.rounds_from(number[0])]


def _near(claimed: ExplainedClaim, ways: list[Misreading]) -> list[Misreading]:
    """Return the divisors whose numbers are closest to the claim, by each accountant.

    Numbers fall as the divisor grows, so a bisection needs only a few accounts.
    """
    found: dict[str, Misreading] = {}
    for by in range(WAYS):
        low, high = 0, len(ways) - 1
        while low <= high:
            middle = (low + high) // 2
            one = ways[middle]
            found[one.what] = one
            value = ([number for number, _ in one.finite()] + [math.inf] * WAYS)[by]
            low, high = (middle + 1, high) if value > claimed.claim else (low, middle - 1)
    return list(found.values())


def _sentence(claimed: ExplainedClaim, match: _Match, text: str) -> str:
    value, by = match.number
    what = f"{exactly(claimed.claim)} would be the epsilon of {match.reading.what}"
    return f"{what} ({_up(value)}, {by}). {match.reading.why} {text}"


def _enough(
    tried: list[tuple[Misreading, list[Number]]], claimed: ExplainedClaim
) -> tuple[str, ...]:
    """Return the reading with the largest bound under which the claim would hold."""
    bounds = [
        (numbers[0][0], one)
        for one, numbers in tried
        if one.bound and numbers and numbers[0][0] <= claimed.claim
    ]
    if not bounds:
        return ()
    # With equal values, max() takes the first, so simple readings have priority.
    value, one = max(bounds, key=lambda pair: pair[0])
    return (f"{exactly(claimed.claim)} would hold for {one.what} ({_up(value)}). {one.why}",)


def _up(value: float) -> str:
    return shown(value, 6, ROUND_CEILING)


def overcounts(claimed: ExplainedClaim) -> tuple[str, ...]:
    """Return a sentence if a claim that holds is an integer multiple of the spent epsilon."""
    # The factor is 1.99 instead of 2, because certified upper ends slightly exceed other programs'
    # values.
    if not claimed.can_be_read or not 0.0 < 1.99 * claimed.least <= claimed.claim:
        return ()
    known = [(bound.upper, name.upper()) for name, bound in claimed.found.items()]
    # Multiples of a looser account may lie far above those of the tightest one.
    high = max((MAX_TIMES + 1) * claimed.least, claimed.claim)
    windows = Windows(claimed.least, high)
    # Every multiple that explains the claim has a window around it, which is too wide here.
    if windows.share([claimed.window(claimed.claim)]) > CHANCE:
        return ()
    # The claim may be a multiple of any accountant's number, also that of another library.
    for value, by in (*known, *peer(claimed.audited, claimed.run)):
        # Every multiple of every number raises the chance of a random match.
        if not 0.0 < value < math.inf or not windows.admit_all(claimed, value):
            continue
        times = round(claimed.claim / value)
        if 2 <= times <= MAX_TIMES and claimed.rounds_from(times * value):
            return (
                f"{exactly(claimed.claim)} would be {times} times the epsilon of this run "
                f"({_up(value)}, {by}). Epsilons of clients whose data are disjoint are not "
                f"added: the largest counts. {windows.summary(MAX_TIMES - 1)}",
            )
    return ()
