"""Which wrong reading of a run gives the number that was claimed.

A remark beside a verdict, never a part of it. Many readings are tried, and some of them come near
any number. So a match is told only where a random claim would have hardly matched: each number of a
reading stands for the claims that are this number rounded to the claim's digits, and all that are
told together cover at most ``CHANCE`` of the claims from a tenth of the audited epsilon to all of
it. What a reading would make of the run is told as a condition, not as what was done.
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
"""Readings of a run with a larger epsilon and more rounds cost most and explain nothing."""
MAX_PARTS = 20
"""Runs of more kinds of rounds are not looked at: every reading costs an account."""

MAX_TOLD = 2
"""How many matches are told."""

CHANCE = 0.01
"""At most so often a random claim matches one of the numbers that are compared with claims."""
FREE = 0.003
"""The same with readings that have a free parameter, which are compared last."""

_ARITHMETIC = 3e-6
"""Relative difference of one formula's numbers in two programs, whose lattices differ."""
_ESTIMATE = 1e-3
"""Relative error of accountants that estimate."""
_ROUNDED = 0.05
"""A claim farther below the certified value than this share of it is no rounding of it."""
_FROM = 0.1
"""Random claims are taken from this share of the audited epsilon."""


@dataclass(frozen=True)
class Question:
    """A claim about a run, to be explained.

    Attributes:
        run: what was accounted.
        facts: what the claim is about.
        claim: the claimed epsilon.
        found: what was certified at the claimed delta, by accountant.
        sensitivity: what the claim's own arithmetic took for the clip norm, in clip norms.
        careless: the run as it would be without one thing that was said of it, by name.
    """

    run: Mechanism
    facts: Facts
    claim: float
    found: Mapping[str, Bound]
    sensitivity: float | None = None
    careless: Mapping[str, Mechanism] = field(default_factory=dict)

    @property
    def bound(self) -> Bound:
        """The first accountant's."""
        return next(iter(self.found.values()))

    @property
    def delta(self) -> float:
        """At which the claim is made."""
        return self.bound.given

    @property
    def least(self) -> float:
        """The least epsilon that is certified."""
        return min(bound.upper for bound in self.found.values())

    @property
    def can_be_read(self) -> bool:
        """Whether readings are tried: each costs an account."""
        # A pure or an impossible claim has no reading that would give its number.
        parts = self.run.sequence()
        hopeless = self.least > _USELESS and sum(times for _, times in parts) > _LONG
        readable = len(parts) <= MAX_PARTS and not hopeless
        # Of an infinite epsilon no claim is a share.
        finite = math.isfinite(self.least) and self.claim > 0.0
        return readable and finite and 0.0 < self.delta < 1.0

    @cached_property
    def audited(self) -> Audited:
        """The run, for its readings."""
        told = (self.sensitivity, self.careless)
        return Audited(self.run, self.facts, self.delta, self.least, *told)

    @property
    def own(self) -> list[float]:
        """The run's own numbers; a reading that comes to one of them explains nothing."""
        return [bound.upper for bound in self.found.values() if math.isfinite(bound.upper)]

    @cached_property
    def digit(self) -> float:
        """The last digit of the claim, and at least what one formula differs by in two programs."""
        return max(_last_digit(self.claim), _ARITHMETIC * self.claim)

    def rounds_from(self, value: float) -> bool:
        """Return whether the claim is a number cut or rounded to the claim's digits."""
        low, high = self.window(value)
        return low <= self.claim <= high

    def window(self, value: float) -> tuple[float, float]:
        """Return between which claims of these digits lie that are a number cut or rounded."""
        slack = _ARITHMETIC * value
        return value - self.digit - slack, value + 0.5 * self.digit + slack


def _last_digit(claim: float) -> float:
    """Return the place of the last digit of the shortest text that reads back as the claim."""
    if claim == math.floor(claim):
        return 1.0
    # A double with a fraction ends in digits behind the point, of which repr writes no more.
    exponent = Decimal(repr(claim)).as_tuple().exponent
    return 10.0**exponent if isinstance(exponent, int) else 0.0


@dataclass
class Windows:
    """Claims that the readings tried so far would explain, as shares of the random ones.

    Attributes:
        low: the least random claim.
        high: the largest.
        spans: first and last of the claims that one number stands for.
        more: the share of those that were counted without an account.
    """

    low: float
    high: float
    spans: list[tuple[float, float]] = field(default_factory=list)
    more: float = 0.0

    def share(self, more: Iterable[tuple[float, float]] = ()) -> float:
        """Return the share of the random claims that are covered, by more windows as well."""
        covered, end = 0.0, self.low
        for first, last in sorted([*self.spans, *more]):
            covered += max(0.0, min(last, self.high) - max(first, end))
            end = max(end, last)
        return self.more + covered / (self.high - self.low)

    def admits(self, window: tuple[float, float], most: float) -> bool:
        """Add a window if the share stays within ``most``; return whether it did."""
        if self.share([window]) > most:
            return False
        self.spans.append(window)
        return True

    def admit_all(self, asked: Question, value: float) -> bool:
        """Add the windows of all multiples of a number if the share stays within ``CHANCE``."""
        windows = [asked.window(times * value) for times in range(2, MAX_TIMES + 1)]
        if self.share(windows) > CHANCE:
            return False
        self.spans += windows
        return True

    def told(self, many: int) -> str:
        """Return how many readings were compared, and how often a random claim matches."""
        chance = shown(100.0 * self.share(), 2, ROUND_CEILING)
        tries = "1 reading was" if many == 1 else f"{many} readings were"
        return f"({tries} compared; a random claim matches with a chance of {chance} % at most.)"


@dataclass(frozen=True)
class _Match:
    """A reading that leads to the claim."""

    reading: Misreading
    number: Number


def failing_assumptions(asked: Question) -> tuple[str, ...]:
    """Return sentences that name what a claim that is not met seems to take for granted.

    Returns:
        That the claim is the run's own number rounded down; else readings that lead to the claimed
        number; without one, a reading under which it would hold.
    """
    if not asked.can_be_read:
        return ()
    rounded = _rounded(asked)
    if rounded:
        return rounded
    tried = [(one, one.finite()) for one in readings(asked.audited)]
    matches, told = _matches(asked, tried)
    if matches:
        return tuple(_sentence(asked, match, told) for match in matches[:MAX_TOLD])
    return _enough(tried, asked)


def _rounded(asked: Question) -> tuple[str, ...]:
    """Return that the claim is a certified number of this very run, rounded down."""
    why = "An estimate, or a number rounded down, is no upper end."
    for name, bound in asked.found.items():
        near = bound.upper - asked.claim <= _ROUNDED * asked.claim
        if near and asked.rounds_from(bound.upper):
            told = f"{exactly(asked.claim)} is the certified value rounded down"
            return (f"{told} ({_up(bound.upper)}, {name.upper()}). {why}",)
    return ()


def _matches(
    asked: Question, tried: list[tuple[Misreading, list[Number]]]
) -> tuple[list[_Match], str]:
    """Return the readings that lead to the claim, and of how many, with which chance."""
    high = max(asked.claim, asked.least)
    windows = Windows(min(_FROM * high, 0.5 * asked.claim), high)
    compared: list[str] = []
    found: list[_Match] = []
    for one, number in _distinct(asked, tried):
        if windows.admits(asked.window(number[0]), CHANCE):
            compared.append(one.what)
            found += [_Match(one, number)] * asked.rounds_from(number[0])
    # Readings with a free parameter come near to every claim of few digits.
    if not found:
        found = _of_divisors(asked, windows, compared) or _estimated(asked, windows, compared)
    # The numbers of one reading are one reason.
    first = {match.reading.what: match for match in reversed(found)}
    return list(reversed(first.values())), windows.told(len(dict.fromkeys(compared)))


def _distinct(
    asked: Question, tried: Iterable[tuple[Misreading, list[Number]]]
) -> Iterator[tuple[Misreading, Number]]:
    """Yield the numbers of readings that are not the run's own, the likeliest first."""
    for one, numbers in tried:
        for number in numbers:
            if not any(abs(number[0] - own) <= asked.digit for own in asked.own):
                yield one, number


def _estimated(asked: Question, windows: Windows, compared: list[str]) -> list[_Match]:
    """Return that the claim is a little below the certified value, as estimates are."""
    # Where nothing is certified from below, the upper end is all there is to be near to.
    least = asked.bound.lower or asked.bound.upper
    what = "an estimate, a little too small"
    window = (least * (1.0 - _ESTIMATE), least)
    if not math.isfinite(least) or not windows.admits(window, CHANCE):
        return []
    compared.append(what)
    why = "An estimate, or a number rounded down, is no upper end."
    near = window[0] <= asked.claim < least
    return [_Match(Misreading(what, why, list), (least, "certified"))] * near


def _of_divisors(asked: Question, windows: Windows, compared: list[str]) -> list[_Match]:
    """Return the divisors that lead to the claim, if all of them together may be compared."""
    ways = list(divided(asked.audited))
    first, last = asked.window(asked.claim)
    # Counted before any account is made.
    share = WAYS * len(ways) * (last - first) / (windows.high - windows.low)
    if not ways or windows.share() + share > FREE:
        return []
    windows.more += share
    compared += [one.what for one in ways]
    numbers = ((one, number) for one in _near(asked, ways) for number in one.finite())
    return [_Match(one, number) for one, number in numbers if asked.rounds_from(number[0])]


def _near(asked: Question, ways: list[Misreading]) -> list[Misreading]:
    """Return the divisors whose numbers are nearest to the claim, by each accountant.

    Numbers fall with the divisor, so that a bisection asks for few of them.
    """
    found: dict[str, Misreading] = {}
    for by in range(WAYS):
        low, high = 0, len(ways) - 1
        while low <= high:
            middle = (low + high) // 2
            one = ways[middle]
            found[one.what] = one
            value = ([number for number, _ in one.finite()] + [math.inf] * WAYS)[by]
            low, high = (middle + 1, high) if value > asked.claim else (low, middle - 1)
    return list(found.values())


def _sentence(asked: Question, match: _Match, told: str) -> str:
    value, by = match.number
    what = f"{exactly(asked.claim)} would be the number of {match.reading.what}"
    return f"{what} ({_up(value)}, {by}). {match.reading.why} {told}"


def _enough(tried: list[tuple[Misreading, list[Number]]], asked: Question) -> tuple[str, ...]:
    """Return the reading with the largest bound under which a claim would hold."""
    bounds = [
        (numbers[0][0], one)
        for one, numbers in tried
        if one.bound and numbers and numbers[0][0] <= asked.claim
    ]
    if not bounds:
        return ()
    # max() takes the first of equals, so that simple readings lead.
    value, one = max(bounds, key=lambda pair: pair[0])
    return (f"{exactly(asked.claim)} would hold for {one.what} ({_up(value)}). {one.why}",)


def _up(value: float) -> str:
    return shown(value, 6, ROUND_CEILING)


def overcounts(asked: Question) -> tuple[str, ...]:
    """Return a sentence where a claim that holds is a whole multiple of what was spent."""
    # 1.99 and not 2, since certified upper ends lie a little above what others compute.
    if not asked.can_be_read or not 0.0 < 1.99 * asked.least <= asked.claim:
        return ()
    known = [(bound.upper, name.upper()) for name, bound in asked.found.items()]
    windows = Windows(asked.least, (MAX_TIMES + 1) * asked.least)
    # The claim may be a multiple of any accountant's number, another library's too.
    for value, by in (*known, *peer(asked.audited, asked.run)):
        # Every multiple of every number is one more that a random claim may come near to.
        if not 0.0 < value < math.inf or not windows.admit_all(asked, value):
            continue
        times = round(asked.claim / value)
        if 2 <= times <= MAX_TIMES and asked.rounds_from(times * value):
            return (
                f"{exactly(asked.claim)} would be {times} times the number of this run "
                f"({_up(value)}, {by}). Epsilons of clients whose data are disjoint are not added: "
                f"the largest counts. {windows.told(MAX_TIMES - 1)}",
            )
    return ()
