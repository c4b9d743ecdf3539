"""Find the value of one parameter that just meets a privacy budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from numbers import Real
from typing import Any

from ..bound import Bound, exactly
from ..errors import (
    ImpossibleBudget,
    ParameterError,
    UnsupportedCombination,
    claimed,
    refuse,
    require,
)
from ..loss.strategies.queries import SETTLED
from ..privacy_loss import PrivacyLoss
from ..relations import Adjacency, Observer
from .effort import Effort
from .epsilon import Accountable, loss_of
from .units import remarks_on

_MAX_DOUBLINGS = 60
_FAR = 50.0
"""A value with epsilon above this many times (1 + budget) is not refined."""


@dataclass(frozen=True)
class Calibration:
    """The calibrated value, on the private side, and the bound certified at exactly that value."""

    value: float
    bound: Bound


class _BudgetCheck:
    """Answers whether the run at a value is within the budget, and stores the answers.

    A coarse interval decides most values. A value is refined only if its coarse interval contains
    the budget. The search does not depend on a clock, so its result is the same on every machine.
    """

    def __init__(
        self,
        ask: Callable[[float, float], Bound],
        epsilon: float,
        domain: tuple[float, float],
        tolerance: float,
        effort: Effort,
    ) -> None:
        self._ask, self.effort = ask, effort
        self.epsilon = epsilon
        self.domain = domain
        self.tolerances = (max(0.03 * epsilon, tolerance), tolerance)
        self.seen: dict[tuple[float, float], Bound | None] = {}
        self.refusals: dict[float, ParameterError | UnsupportedCombination] = {}

    def bound(self, value: float, tolerance: float) -> Bound | None:
        """Return the bound at a value; None if the mechanism refuses the value."""
        key = value, tolerance
        coarse = self.seen.get((value, self.tolerances[0]))
        # A coarse answer that is narrow enough also answers the fine question.
        if coarse is not None and coarse.upper - coarse.resolution[0] <= tolerance:
            return coarse
        if key not in self.seen:
            try:
                low, high = self.domain
                self.seen[key] = self._ask(value, tolerance) if low <= value <= high else None
            # A refused value bounds the search. A value without a theorem counts as refused too.
            except (ParameterError, UnsupportedCombination) as refusal:
                self.refusals.setdefault(value, refusal)
                self.seen[key] = None
        return self.seen[key]

    def upper(self, value: float) -> float | None:
        """Return a certified epsilon at a value, or None if the value is refused."""
        bound = self.bound(value, self.tolerances[0])
        return None if bound is None else bound.upper

    def best(self, value: float) -> Bound:
        """Return the bound with the smallest upper end at a value that was evaluated."""
        coarse, fine = self.tolerances
        found = [self.bound(value, fine), self.seen.get((value, coarse))]
        return min((each for each in found if each is not None), key=lambda each: each.upper)

    def best_upper(self, value: float) -> float:
        """Return the smallest certified epsilon known at a value; inf if it is refused."""
        known = [self.seen.get((value, tolerance)) for tolerance in self.tolerances]
        return min((bound.upper for bound in known if bound is not None), default=math.inf)

    def apart(self, value: float, other: float) -> bool:
        """Return whether the intervals at two accepted values are disjoint; coarse, then fine."""
        for tolerance in self.tolerances:
            one, two = (self.bound(each, tolerance) for each in (value, other))
            assert one is not None and two is not None
            if one.upper < two.resolution[0] or two.upper < one.resolution[0]:
                return True
        return False

    @property
    def near(self) -> bool:
        """Whether a coarse interval contained the budget. Later values are then near the budget."""
        fine = self.tolerances[1]
        return any(tolerance == fine and bound for (_, tolerance), bound in self.seen.items())

    def known(self, value: float) -> tuple[float, float]:
        """Return (width, approximate epsilon) of the narrowest answer at an evaluated value."""
        found = [self.seen.get((value, tolerance)) for tolerance in self.tolerances]
        ends = [(b.resolution[0], b.upper) for b in found if b is not None]
        low, high = min(ends, key=lambda each: each[1] - each[0], default=(0.0, math.inf))
        # The upper end of a fine answer must be inside the budget. A coarse upper end says little.
        wide = high - low > self.tolerances[1]
        return high - low, 0.5 * (low + high) if wide else high

    def fits(self, value: float) -> bool:
        """Return whether the value is admissible and within the budget."""
        for tolerance in self.tolerances[1:] if self.near else self.tolerances:
            bound = self.bound(value, tolerance)
            if bound is None or bound.resolution[0] > self.epsilon:
                return False
            if _FAR * (1.0 + self.epsilon) < bound.upper < math.inf:
                return False  # an infinite end may be finite at the fine tolerance
            if bound.upper <= self.epsilon:
                return True
        return False


def calibrate(
    make_run: Callable[[Any], Accountable],
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
    accountant: str = "pld",
    integer: bool = False,
    domain: tuple[float, float] | None = None,
    tolerance: float = 1e-3,
    deadline: float | None = None,
) -> Calibration:
    """Return the value of one parameter at which a run just meets (epsilon, delta).

    The parameter may raise or lower epsilon. The search finds the direction and the starting
    bracket itself. The value lies on the private side, and its bound is certified there.

    Args:
        make_run: takes the value, returns the run. A value bounds the search if the run refuses it,
            or if no theorem covers it.
        epsilon: the budget, at least 0.
        delta: the budget, in [0, 1). If delta is 1/n or more, ``bound.qualified`` says so; n is the
            number of units in the sampling schemes of the run.
        adjacency: how neighbouring data sets differ.
        observer: who sees the outputs.
        accountant: see ``epsilon``.
        integer: whether only integer values are allowed.
        domain: (smallest, largest) admissible value. By default, every value above 0.
        tolerance: see ``epsilon``, but relative to the budget and at most 0.01. It also applies to
            the value if the value is real.
        deadline: see ``epsilon``. The value then still lies on the private side, and its bound is
            certified. It may be farther from the budget.

    Raises:
        ImpossibleBudget: no admissible value meets the budget, or every value meets it and there is
            no last value.
        ParameterError: the budget is out of range, or the parameter does not change epsilon.
        UnsupportedCombination: no theorem covers the run at any value.
    """
    _check_function(make_run)
    budget, delta = claimed(epsilon, delta)
    require(isinstance(integer, bool), "integer", integer, "be True or False")
    low, high = _domain(domain, integer)
    effort = Effort(accountant, tolerance, deadline)
    number = int if integer else float

    def ask(value: float, width: float) -> Bound:
        loss = _upper_only(run_at(value))
        return _guide(effort.account(loss, tolerance=width).epsilon(delta), width)

    def run_at(value: float) -> PrivacyLoss:
        return loss_of(make_run(number(value)), adjacency, observer)

    fine = max(min(effort.tolerance * budget, 1e-2), 1e-6)
    question = _BudgetCheck(ask, budget, (low, high), fine, effort)
    start = _start(question, integer)
    rising = _direction(question, start, integer)
    good, bad = _bracket(question, start, rising, integer)
    value = good if bad is None else _bisect(question, good, bad, integer, effort.tolerance)
    if not integer and bad is not None:
        _check_parts(question, value, bad)
    bound = _unguided(question.best(value))
    loss = run_at(value)
    # The search left the witness out. Only this last bound shows an attained loss.
    if loss != _upper_only(loss) and not effort.late:
        attained = effort.account(loss, tolerance=fine).epsilon(delta)
        # A new evaluation may have an upper end above the budget. Then keep the certified bound.
        bound = attained if attained.upper <= budget else bound
    remarks = remarks_on(make_run(number(value)), delta)
    return Calibration(number(value), replace(bound, qualified=remarks))


def _guide(bound: Bound, width: float) -> Bound:
    """Return a bound for the search; a settled upper end counts as close to the pair's number.

    A curve that is known only from above has no lower end, and every value would be refined.
    """
    if bound.reason != SETTLED:
        return bound
    return replace(bound, resolution=(max(bound.resolution[0], bound.upper - width), bound.upper))


def _unguided(bound: Bound) -> Bound:
    """Return the bound without the estimate of ``_guide``."""
    if bound.reason != SETTLED:
        return bound
    return replace(bound, resolution=(bound.lower, bound.upper))


def _check_function(make_run: object) -> None:
    """Refuse anything that cannot be called with exactly one number."""
    rule = "be a function of one number"
    way_out = "pass lambda z: fp.Gaussian(noise_multiplier=z) * 100, for example"
    if not callable(make_run):
        refuse("make_run", type(make_run).__name__, rule, way_out)
    try:
        # Check the wrapper of a decorated function. The wrapped function may take other arguments.
        signature(make_run, follow_wrapped=False).bind(1.0)
    except (TypeError, ValueError) as error:
        # Some built-in functions have no readable signature.
        if isinstance(error, TypeError) or isinstance(make_run, partial):
            name = getattr(make_run, "__name__", make_run)
            refuse("make_run", name, f"{rule} ({error})", way_out)


def _check_parts(question: _BudgetCheck, value: float, bad: float) -> None:
    """Refuse a run over integers that was searched over real numbers: its value was truncated."""
    following = value + math.copysign(1.0, bad - value)
    whole = value.is_integer() and min(value, bad) < following < max(value, bad)
    if whole and question.fits(following):
        rule = (
            f"be True if the run accepts only integers, but {following:g} meets the budget as well"
        )
        refuse("integer", False, rule, "calibrate(..., integer=True)")


def _upper_only(loss: PrivacyLoss) -> PrivacyLoss:
    """Return the loss without a separate witness. A search does not need it, and it is costly."""
    if loss.witness is None or loss.witness.curve == loss.curve:
        return loss
    return replace(loss, witness=None)


def _domain(domain: tuple[float, float] | None, integer: bool) -> tuple[float, float]:
    given: Any = domain if domain is not None else (1.0 if integer else 0.0, math.inf)
    if not _is_range(given):
        refuse("domain", domain, "be (smallest, largest) with 0 <= smallest < largest")
    low, high = given
    if integer:
        low, high = math.ceil(low), math.floor(high) if math.isfinite(high) else high
        require(max(low, 1) <= high, "domain", domain, "contain an integer above 0")
    return float(low), float(high)


def _is_range(given: Any) -> bool:
    # Strings compare with each other and would pass for a domain.
    pair = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2
    return pair and all(isinstance(end, Real) for end in given) and 0 <= given[0] < given[1]


def _start(question: _BudgetCheck, integer: bool) -> float:
    """Return an admissible start value: 1, or the nearest accepted power of 2.

    Raises:
        ParameterError: no value is accepted.
    """
    for value in _candidates(*question.domain, integer):
        if math.isfinite(value) and value > 0 and question.upper(value) is not None:
            return value
    (value, refusal), *others = question.refusals.items()
    # If every value is refused with the same message, or none has a theorem, then another parameter
    # is the cause.
    unsupported = all(isinstance(one, UnsupportedCombination) for one in question.refusals.values())
    if unsupported or all(str(other) == str(refusal) for _, other in others):
        raise refusal
    raise ImpossibleBudget(
        f"no value in {question.domain} is accepted by the run; at {value:g}: {refusal}"
    )


def _candidates(low: float, high: float, integer: bool) -> Iterator[float]:
    first = min(max(1.0, low), high)
    # Any accepted value will do. Powers of 2 find one at any scale.
    yield from (first * 2.0**k for k in range(31))
    yield from (high, low)
    if not integer:
        yield from (first * 2.0**-k for k in range(1, 31))


def _direction(question: _BudgetCheck, start: float, integer: bool) -> bool:
    """Return whether epsilon rises with the value.

    Disjoint intervals decide. Coarse intervals that overlap say little, because their upper ends
    may be in the wrong order. They count only if no disjoint intervals are found.
    """
    here = question.upper(start)
    assert here is not None
    unclear: bool | None = None
    for value in _near_and_far(start, integer):
        there = question.upper(value)
        if there is None or there == here:
            continue
        if question.apart(start, value):
            return (question.best_upper(value) > question.best_upper(start)) == (value > start)
        unclear = (there > here) == (value > start) if unclear is None else unclear
    return _at_a_standstill(question, start, here) if unclear is None else unclear


def _near_and_far(start: float, integer: bool) -> Iterator[float]:
    """Yield other values to compare with: epsilon may be constant nearby and infinite far away."""
    if integer:
        others = (float(round(start * factor)) for factor in _FACTORS)
        yield from (value for value in others if value != start)
    else:
        yield from (start * factor for factor in (*_FACTORS, 0.5, 1 / 16, 1 / 256, 0.9))


_FACTORS = (2.0, 16.0, 256.0, 1.5, 1.1)


def _at_a_standstill(question: _BudgetCheck, start: float, here: float) -> bool:
    """Return the direction if epsilon is the same at every tried value: True for upwards.

    Raises:
        ImpossibleBudget: epsilon is infinite everywhere, or within the budget without a last value.
        ParameterError: the run does not depend on the value.
    """
    # Every value fits and the domain has a largest value. That value is the answer.
    if here <= question.epsilon and math.isfinite(question.domain[1]):
        return True
    if here <= question.epsilon:
        raise ImpossibleBudget(
            f"every tried value meets epsilon = {exactly(question.epsilon)}, and each gives "
            f"epsilon = {here:.6g}; pass a finite domain to get its last value, or check that "
            "make_run uses its argument"
        )
    if math.isinf(here):
        bound = question.bound(start, question.tolerances[0])
        why = bound.reason if bound is not None else ""
        raise ImpossibleBudget(f"epsilon is infinite at {start:g} and at every other value: {why}")
    raise ParameterError(
        f"the run must depend on the calibrated parameter: epsilon is {here:.6g} at {start:g} and "
        "at every other value tried; check that make_run uses its argument"
    )


def _bracket(
    question: _BudgetCheck, start: float, rising: bool, integer: bool
) -> tuple[float, float | None]:
    """Return (a value that fits, a further value that does not), by doubling."""
    less_private = 2.0 if rising else 0.5
    if question.fits(start):
        return _last_fit(question, start, less_private, integer)
    return _first_fit(question, start, 1.0 / less_private, integer)


def _last_fit(
    question: _BudgetCheck, value: float, factor: float, integer: bool
) -> tuple[float, float | None]:
    """Double or halve a value that fits until the next one does not; None at the domain's end."""
    for _ in range(_MAX_DOUBLINGS):
        following = _next(value, factor, question.domain, integer)
        # The end of the domain: there is no further value.
        if following == value:
            return value, None
        if not question.fits(following):
            return value, following
        value = following
    towards = "up" if factor > 1.0 else "down"
    raise ImpossibleBudget(
        f"every value {towards} to {value:g} meets epsilon = {exactly(question.epsilon)}; pass a "
        "finite domain to get its last value"
    )


def _first_fit(
    question: _BudgetCheck, value: float, factor: float, integer: bool
) -> tuple[float, float]:
    """Double or halve a value that does not fit until the next one fits."""
    for _ in range(_MAX_DOUBLINGS):
        following = _next(value, factor, question.domain, integer)
        if following == value:
            break
        if question.fits(following):
            return following, value
        if question.upper(following) is None:
            break
        value = following
    raise ImpossibleBudget(
        f"no admissible value meets epsilon = {exactly(question.epsilon)}: epsilon is still "
        f"{question.upper(value):.6g} at {value:g}; raise the budget or change another "
        "parameter"
    )


def _next(value: float, factor: float, domain: tuple[float, float], integer: bool) -> float:
    low, high = domain
    following = value * factor
    if integer:
        following = float(math.floor(following))
    # 0 is not admissible, and repeated halving would end there.
    if low == 0.0 and following <= 0.0:
        return value
    return min(max(following, low), high)


def _bisect(
    question: _BudgetCheck, good: float, bad: float, integer: bool, tolerance: float
) -> float:
    """Shrink (fits, does not fit) until they are neighbours, close, or the budget is used up."""
    tried = 0
    while not _settled(question, good, bad, integer, tolerance):
        tried += 1
        if integer:
            middle = float((good + bad) // 2)
        elif tried % (8 if question.near else 4) == 0:
            # Every few steps the bracket is halved, so bad guesses cannot stall the search.
            middle = math.sqrt(good * bad)
        else:
            middle = _guess(question, good, bad)
        good, bad = (middle, bad) if question.fits(middle) else (good, middle)
    return good


def _settled(
    question: _BudgetCheck, good: float, bad: float, integer: bool, tolerance: float
) -> bool:
    """Return whether a further search is useless."""
    # After the deadline, any fitting value is an answer.
    if question.effort.late:
        return True
    if integer:
        return abs(good - bad) <= 1
    if abs(good - bad) <= 0.1 * tolerance * abs(good):
        return True
    enough = (1.0 - tolerance) * question.epsilon
    if question.best_upper(good) < enough or enough <= 0:
        return False
    question.bound(good, question.tolerances[1])  # a coarse end may be far above
    return question.best_upper(good) >= enough


def _guess(question: _BudgetCheck, good: float, bad: float) -> float:
    """Return the value where a line in (log value, log epsilon) is just inside the budget.

    If that point lies outside the bracket, the bracket is halved instead.
    """
    if question.epsilon <= 0.0:
        return math.sqrt(good * bad)
    # Aim just inside the budget. A guess at the budget itself would fail half of the time.
    inside = max(question.epsilon - 0.4 * question.tolerances[1], 0.5 * question.epsilon)
    points = _points(question, math.log(inside))
    low, high = sorted((math.log(good), math.log(bad)))
    guess = 0.5 * (low + high)
    if len(points) == 2 and points[0][1] != points[1][1]:
        (x, off), (other, further) = points
        line = x - off * (other - x) / (further - off)
        # Outside the bracket the line is an extrapolation, so halve instead.
        guess = line if low < line < high else guess
    return math.exp(guess)


def _points(question: _BudgetCheck, aim: float) -> list[tuple[float, float]]:
    """Return two points (log value, log epsilon - aim) of a line, near the aim and accurate.

    The error of a coarse end exceeds the length of the last steps. The line therefore starts at a
    fine answer if there is one. Its slope uses an answer that is equally accurate, or far enough
    away.
    """
    found = {value: question.known(value) for value, _ in question.seen}
    about = {
        value: (math.log(value), math.log(epsilon) - aim, width / epsilon)
        for value, (width, epsilon) in found.items()
        if min(value, epsilon) > 0.0 and max(epsilon, width) < math.inf
    }
    fine = question.tolerances[1] / question.epsilon
    points = sorted(about.values(), key=lambda p: (p[2] > 2.0 * fine, abs(p[1])))
    if len(points) < 2:
        return []
    start = points[0]
    # Choose the second point so that the error of the slope is smallest: width over distance.
    apart = [p for p in points[1:] if p[0] != start[0]]
    other = min(apart, key=lambda p: _off(start, p), default=None)
    return [] if other is None else [start[:2], other[:2]]


def _off(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """Return about the relative error of the slope between two points: width and curvature."""
    apart = abs(one[1] - other[1])
    return (one[2] + other[2]) / max(apart, 1e-12) + 0.2 * apart
