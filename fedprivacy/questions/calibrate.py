"""Find the value of any one parameter that just meets a privacy budget."""

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
from ..privacy_loss import PrivacyLoss
from ..relations import Adjacency, Observer
from .effort import Effort
from .epsilon import Accountable, loss_of
from .units import remarks_on

_MAX_DOUBLINGS = 60
_FAR = 50.0
"""An epsilon of so many times one plus the budget is not asked for again."""


@dataclass(frozen=True)
class Calibration:
    """The calibrated value, on the private side, and the bound certified at exactly that value."""

    value: float
    bound: Bound


class _Question:
    """Is the run at a value within the budget? Remembers what it was asked.

    A coarse interval decides most values; only one that holds the budget is asked for again. No
    clock steers the search, so that its value is the same on every machine.
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
        """Return the bound at a value; None where the mechanism refuses the value."""
        key = value, tolerance
        coarse = self.seen.get((value, self.tolerances[0]))
        # A coarse answer that came out narrow answers the fine question, too.
        if coarse is not None and coarse.upper - coarse.resolution[0] <= tolerance:
            return coarse
        if key not in self.seen:
            try:
                low, high = self.domain
                self.seen[key] = self._ask(value, tolerance) if low <= value <= high else None
            # A refused value bounds the search. One without a theorem counts as refused too.
            except (ParameterError, UnsupportedCombination) as refusal:
                self.refusals.setdefault(value, refusal)
                self.seen[key] = None
        return self.seen[key]

    def upper(self, value: float) -> float | None:
        """Return a certified epsilon at a value, or None where the value is refused."""
        bound = self.bound(value, self.tolerances[0])
        return None if bound is None else bound.upper

    def best(self, value: float) -> Bound:
        """Return the bound with the smallest upper end at a value that was asked about."""
        coarse, fine = self.tolerances
        found = [self.bound(value, fine), self.seen.get((value, coarse))]
        return min((each for each in found if each is not None), key=lambda each: each.upper)

    def best_upper(self, value: float) -> float:
        """Return the smallest certified epsilon known at a value; inf where it is refused."""
        known = [self.seen.get((value, tolerance)) for tolerance in self.tolerances]
        return min((bound.upper for bound in known if bound is not None), default=math.inf)

    def apart(self, value: float, other: float) -> bool:
        """Return whether the intervals at two accepted values do not overlap; coarse, then fine."""
        for tolerance in self.tolerances:
            one, two = (self.bound(each, tolerance) for each in (value, other))
            assert one is not None and two is not None
            if one.upper < two.resolution[0] or two.upper < one.resolution[0]:
                return True
        return False

    @property
    def near(self) -> bool:
        """Whether a coarse interval held the budget: values asked from then on are near to it."""
        fine = self.tolerances[1]
        return any(tolerance == fine and bound for (_, tolerance), bound in self.seen.items())

    def known(self, value: float) -> tuple[float, float]:
        """Return (width, about which epsilon) of what is known best of a value that was asked."""
        found = [self.seen.get((value, tolerance)) for tolerance in self.tolerances]
        ends = [(b.resolution[0], b.upper) for b in found if b is not None]
        low, high = min(ends, key=lambda each: each[1] - each[0], default=(0.0, math.inf))
        # A fine answer's upper end is what has to be inside the budget; a coarse one tells little.
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
    make_run: Callable[[float], Accountable],
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

    The parameter may raise or lower epsilon; the direction is found out, and no bracket is asked.
    The value lies on the private side and its bound is certified there.

    Args:
        make_run: takes the value, returns the run. A value that the run refuses, or that no theorem
            covers, bounds the search.
        epsilon: the budget, at least 0.
        delta: the budget, in [0, 1); ``bound.qualified`` says so where it is 1/n or more, for the
            n units that the run's schemes draw from.
        adjacency: how neighbouring data sets differ.
        observer: who looks.
        accountant: see ``epsilon``.
        integer: whether only whole values count.
        domain: (smallest, largest) admissible value; default everything above 0.
        tolerance: see ``epsilon``, but relative to the budget and at most 0.01; a real value is
            found as closely.
        deadline: see ``epsilon``; the value then stays on the private side, maybe farther from the
            budget, and its bound is certified.

    Raises:
        ImpossibleBudget: no admissible value meets the budget, or every value does and there is
            no last one.
        ParameterError: a budget out of range; or the parameter does not change epsilon.
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
        return effort.account(loss, tolerance=width).epsilon(delta)

    def run_at(value: float) -> PrivacyLoss:
        return loss_of(make_run(number(value)), adjacency, observer)

    fine = max(min(effort.tolerance * budget, 1e-2), 1e-6)
    question = _Question(ask, budget, (low, high), fine, effort)
    start = _start(question, integer)
    rising = _direction(question, start, integer)
    good, bad = _bracket(question, start, rising, integer)
    value = good if bad is None else _bisect(question, good, bad, integer, effort.tolerance)
    if not integer and bad is not None:
        _check_parts(question, value, bad)
    bound = question.best(value)
    loss = run_at(value)
    # The search left the witness out: only the last bound shows what is attained.
    if loss != _upper_only(loss) and not effort.late:
        attained = effort.account(loss, tolerance=fine).epsilon(delta)
        # Asked again, the upper end may lie above the budget: then the certified one stays.
        bound = attained if attained.upper <= budget else bound
    remarks = remarks_on(make_run(number(value)), delta)
    return Calibration(number(value), replace(bound, qualified=remarks))


def _check_function(make_run: object) -> None:
    """Refuse what cannot be called with one number and nothing else."""
    rule = "be a function of one number"
    way_out = "pass lambda z: fp.Gaussian(noise_multiplier=z) * 100, for instance"
    if not callable(make_run):
        refuse("make_run", type(make_run).__name__, rule, way_out)
    try:
        # Not what a decorated function hides, which may take something else.
        signature(make_run, follow_wrapped=False).bind(1.0)
    except (TypeError, ValueError) as error:
        # Some built-in functions do not say what they take.
        if isinstance(error, TypeError) or isinstance(make_run, partial):
            name = getattr(make_run, "__name__", make_run)
            refuse("make_run", name, f"{rule} ({error})", way_out)


def _check_parts(question: _Question, value: float, bad: float) -> None:
    """Refuse a run of whole numbers that was searched as if it took parts: it was cut short."""
    following = value + math.copysign(1.0, bad - value)
    whole = value.is_integer() and min(value, bad) < following < max(value, bad)
    if whole and question.fits(following):
        rule = f"be True where the run takes whole numbers alone: {following:g} fits as well"
        refuse("integer", False, rule, "calibrate(..., integer=True)")


def _upper_only(loss: PrivacyLoss) -> PrivacyLoss:
    """Return the loss without a witness of its own, which would cost and which no search needs."""
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
        require(max(low, 1) <= high, "domain", domain, "hold a whole number above 0")
    return float(low), float(high)


def _is_range(given: Any) -> bool:
    # Strings compare with each other, and would pass for a domain.
    pair = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2
    return pair and all(isinstance(end, Real) for end in given) and 0 <= given[0] < given[1]


def _start(question: _Question, integer: bool) -> float:
    """Return an admissible value to start from: 1, or the nearest power of 2 that is accepted.

    Raises:
        ParameterError: none is accepted.
    """
    for value in _candidates(*question.domain, integer):
        if math.isfinite(value) and value > 0 and question.upper(value) is not None:
            return value
    (value, refusal), *others = question.refusals.items()
    # The same words at every value, or no theorem at any value: another parameter is the cause.
    unsupported = all(isinstance(one, UnsupportedCombination) for one in question.refusals.values())
    if unsupported or all(str(other) == str(refusal) for _, other in others):
        raise refusal
    raise ImpossibleBudget(
        f"no value in {question.domain} is accepted by the run; at {value:g}: {refusal}"
    )


def _candidates(low: float, high: float, integer: bool) -> Iterator[float]:
    first = min(max(1.0, low), high)
    # Any accepted value will do: powers of 2 find one whatever its scale.
    yield from (first * 2.0**k for k in range(31))
    yield from (high, low)
    if not integer:
        yield from (first * 2.0**-k for k in range(1, 31))


def _direction(question: _Question, start: float, integer: bool) -> bool:
    """Return whether epsilon rises with the value.

    Intervals that lie apart decide. Coarse ones that overlap say little: their upper ends may come
    in the wrong order, and count only where nothing else is found.
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
    """Yield other values to compare with: epsilon may stand still near, and be infinite far."""
    if integer:
        others = (float(round(start * factor)) for factor in _FACTORS)
        yield from (value for value in others if value != start)
    else:
        yield from (start * factor for factor in (*_FACTORS, 0.5, 1 / 16, 1 / 256, 0.9))


_FACTORS = (2.0, 16.0, 256.0, 1.5, 1.1)


def _at_a_standstill(question: _Question, start: float, here: float) -> bool:
    """Return the direction where epsilon is the same at every value tried: upwards, or none.

    Raises:
        ImpossibleBudget: it is infinite everywhere, or within the budget without a last value.
        ParameterError: the run does not depend on the value.
    """
    # Everything fits and there is a largest value: that is the answer.
    if here <= question.epsilon and math.isfinite(question.domain[1]):
        return True
    if here <= question.epsilon:
        raise ImpossibleBudget(
            f"every value tried meets epsilon = {exactly(question.epsilon)}: at each epsilon is "
            f"{here:.6g}; pass a finite domain to get its last value, or check that make_run uses "
            "its argument"
        )
    if math.isinf(here):
        bound = question.bound(start, question.tolerances[0])
        why = bound.reason if bound is not None else ""
        raise ImpossibleBudget(f"epsilon is infinite at {start:g} and every other value: {why}")
    raise ParameterError(
        f"the run must depend on the calibrated parameter: epsilon is {here:.6g} at {start:g} and "
        "at every other value tried; check that make_run uses its argument"
    )


def _bracket(
    question: _Question, start: float, rising: bool, integer: bool
) -> tuple[float, float | None]:
    """Return (a value that fits, a neighbour further out that does not), by doubling."""
    less_private = 2.0 if rising else 0.5
    if question.fits(start):
        return _last_fit(question, start, less_private, integer)
    return _first_fit(question, start, 1.0 / less_private, integer)


def _last_fit(
    question: _Question, value: float, factor: float, integer: bool
) -> tuple[float, float | None]:
    """Double or halve a value that fits until the next one does not; None for no next one."""
    for _ in range(_MAX_DOUBLINGS):
        following = _next(value, factor, question.domain, integer)
        # The end of the domain: there is nowhere left to go.
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
    question: _Question, value: float, factor: float, integer: bool
) -> tuple[float, float]:
    """Double or halve a value that does not fit until the next one does."""
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
        f"{question.upper(value):.6g} at {value:g}; raise it, or change another parameter"
    )


def _next(value: float, factor: float, domain: tuple[float, float], integer: bool) -> float:
    low, high = domain
    following = value * factor
    if integer:
        following = float(math.floor(following))
    # 0 itself is not admissible, and halving would end there.
    if low == 0.0 and following <= 0.0:
        return value
    return min(max(following, low), high)


def _bisect(question: _Question, good: float, bad: float, integer: bool, tolerance: float) -> float:
    """Shrink (fitting, not fitting) until they are neighbours, close, or the budget is used up."""
    tried = 0
    while not _settled(question, good, bad, integer, tolerance):
        tried += 1
        if integer:
            middle = float((good + bad) // 2)
        elif tried % (8 if question.near else 4) == 0:
            # Now and then a step halves, so that bad guesses cannot hold the search up.
            middle = math.sqrt(good * bad)
        else:
            middle = _guess(question, good, bad)
        good, bad = (middle, bad) if question.fits(middle) else (good, middle)
    return good


def _settled(question: _Question, good: float, bad: float, integer: bool, tolerance: float) -> bool:
    """Return whether nothing is gained by searching on."""
    # Out of time any fitting value is an answer.
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


def _guess(question: _Question, good: float, bad: float) -> float:
    """Return where log epsilon, taken as linear in log value, passes just inside the budget.

    Where the line leaves the bracket, the bracket is halved.
    """
    if question.epsilon <= 0.0:
        return math.sqrt(good * bad)
    # Just inside the budget: a guess at the budget itself would fail half of the time.
    inside = max(question.epsilon - 0.4 * question.tolerances[1], 0.5 * question.epsilon)
    points = _points(question, math.log(inside))
    low, high = sorted((math.log(good), math.log(bad)))
    guess = 0.5 * (low + high)
    if len(points) == 2 and points[0][1] != points[1][1]:
        (x, off), (other, further) = points
        line = x - off * (other - x) / (further - off)
        # Outside of the bracket the line has left what is known: halve instead.
        guess = line if low < line < high else guess
    return math.exp(guess)


def _points(question: _Question, aim: float) -> list[tuple[float, float]]:
    """Return two points (log value, log epsilon - aim) of a line: near to the aim, known closely.

    A coarse end is off by more than the last steps are long: the line starts at a fine answer once
    there is one, and has the slope of answers that are equally close, or far enough apart.
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
    # Of answers beside it that whose slope is off least: by its width over how far away it is.
    apart = [p for p in points[1:] if p[0] != start[0]]
    other = min(apart, key=lambda p: _off(start, p), default=None)
    return [] if other is None else [start[:2], other[:2]]


def _off(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """Return by about which share the slope between two points is off: width, and bending."""
    apart = abs(one[1] - other[1])
    return (one[2] + other[2]) / max(apart, 1e-12) + 0.2 * apart
