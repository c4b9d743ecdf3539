"""Every exception that fedprivacy raises on purpose, and the checks that raise them.

::

    FedPrivacyError
    ├── ParameterError (also ValueError)     a value breaks its rule
    │   └── ImpossibleBudget                 no value of the parameter meets the budget
    ├── UnsupportedCombination               no theorem covers this combination
    ├── ConversionError                      another library's format cannot express it exactly
    ├── BudgetExhausted                      the next round does not fit
    ├── ContradictionError                   two certificates of ours exclude each other
    ├── Diverged                             an iteration left every finite range
    └── LedgerError
        ├── ForeignLedger                    not a fedprivacy ledger, or of a later schema
        └── DamagedLedger                    an earlier line was changed or lost
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from operator import index
from typing import NoReturn, TypeVar

E = TypeVar("E", bound=StrEnum)


class FedPrivacyError(Exception):
    """Base class: catch this to catch everything that the package refuses."""


class ParameterError(FedPrivacyError, ValueError):
    """A parameter breaks its rule. The message has name, value, rule and way out."""


class ImpossibleBudget(ParameterError):
    """No admissible value of the calibrated parameter meets the budget."""


class UnsupportedCombination(FedPrivacyError):
    """No theorem covers this mechanism, scheme, adjacency and observer together."""


class ConversionError(FedPrivacyError):
    """Another library's format cannot express this exactly, or its content has no loss here."""


class BudgetExhausted(FedPrivacyError):
    """The next round would exceed the budget; no result was released."""


class ContradictionError(FedPrivacyError):
    """A certified lower end lies above a certified upper end: one of the two is wrong.

    The message names both. There is no verdict, and no number of the run may be published. Please
    report the run.
    """


class Diverged(FedPrivacyError):
    """A chain, or a training on public records, left every finite range.

    The last round was not released but counts as spent.
    """


class LedgerError(FedPrivacyError):
    """A ledger cannot be read or written as requested."""


class ForeignLedger(LedgerError):
    """The file is not a fedprivacy ledger, or has a schema that this version cannot read."""


class DamagedLedger(LedgerError):
    """A line before the last one was changed or lost."""


def refuse(name: str, value: object, rule: str, way_out: str = "") -> NoReturn:
    """Raise ParameterError: ``name`` must ``rule``, got ``value``; ``way_out``."""
    advice = f"; {way_out}" if way_out else ""
    raise ParameterError(f"{name} must {rule}, got {value!r}{advice}")


def require(kept: object, name: str, value: object, rule: str, way_out: str = "") -> None:
    """Refuse a value unless its rule holds; see ``refuse``."""
    if not kept:
        refuse(name, value, rule, way_out)


@contextmanager
def needs(what: str, install: str, *packages: str) -> Iterator[None]:
    """Name the missing one of ``packages`` and its install command; pass other errors on.

    Raises:
        ParameterError: one of ``packages`` is missing.
        ModuleNotFoundError: another module is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        raise ParameterError(f"{what} needs {missing}; pip install {install}") from error


def contradict(question: str, lower: str, upper: str) -> NoReturn:
    """Raise ContradictionError about a question, naming the two certificates."""
    raise ContradictionError(
        f"{question}: certified to be at least {lower} and at most {upper}. One of the two is "
        "wrong, so no number of this run is certified; please report it with its settings"
    )


_EXACT = 1 << 53
"""Smaller integers are doubles."""


def _number(name: str, value: object, rule: str) -> float:
    # In Python True is 1 and "1" is convertible. Neither was meant as a number.
    if isinstance(value, bool | str | bytes) or value is None:
        refuse(name, value, rule, "pass a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        refuse(name, value, rule, "pass a number")
    if math.isnan(number):
        refuse(name, value, rule, "NaN is never accepted")
    return number


@dataclass(frozen=True)
class Check:
    """A range for one number: called with one ``name=value``, it returns the value as a float.

    Args:
        rule: the rule for the number, in words.
        low: the smallest allowed double.
        high: the largest allowed double.
        or_zero: 0 is also allowed.
    """

    rule: str
    low: float = 0.0
    high: float = math.inf
    or_zero: bool = False

    def __call__(self, way_out: str = "", /, **named: object) -> float:
        """Return the value, or refuse it by its name.

        Raises:
            ParameterError: it is not a number, or breaks the rule.
        """
        ((name, value),) = named.items()
        if type(value) is float and self.low <= value <= self.high:
            return value
        number = _number(name, value, self.rule)
        if not (self.low <= number <= self.high or (self.or_zero and number == 0.0)):
            refuse(name, value, self.rule, way_out)
        return number


def between(low: float, high: float) -> Check:
    """Return the check of numbers from ``low`` to ``high``, both included."""
    return Check(f"be a number from {low:g} to {high:g}", low, high)


_ABOVE_0, _BELOW_1, _FINITE = math.ulp(0.0), math.nextafter(1.0, 0.0), math.nextafter(math.inf, 0.0)
"""The doubles next to 0, 1 and infinity."""

MODERATE = 1e-50, 1e50
"""Products of five numbers in this range, or of integers up to 1e15, are finite doubles."""

positive = Check("be a finite number above 0", _ABOVE_0, _FINITE)
real = Check("be a finite number", -_FINITE, _FINITE)
non_negative = Check("be a finite number of at least 0", high=_FINITE)
at_least_zero = Check("be a number of at least 0")
"""Infinity included."""
moderate = between(*MODERATE)
moderate_or_zero = Check("be 0 or a number from {:g} to {:g}".format(*MODERATE), *MODERATE, True)
probability = Check("be a probability in (0, 1]", _ABOVE_0, 1.0)
open_unit = Check("lie strictly between 0 and 1", _ABOVE_0, _BELOW_1)
half_open_unit = Check("be in [0, 1)", high=_BELOW_1)
closed_unit = Check("lie between 0 and 1", high=1.0)


NO_CLAIM = (
    "at delta = 1 every mechanism satisfies every epsilon, so the claim has no meaning; did "
    "you swap epsilon and delta?"
)
"""Why a delta of 1 or more is refused."""


def claimed(epsilon: object, delta: object) -> tuple[float, float]:
    """Check a claim or a budget: epsilon finite and at least 0, delta in [0, 1).

    Raises:
        ParameterError: one of the two breaks its rule.
    """
    budget = non_negative(epsilon=epsilon)
    target = non_negative(delta=delta)
    if target >= 1.0:
        refuse("delta", delta, "be at least 0 and below 1", NO_CLAIM)
    return budget, target


def count(**named: object) -> int:
    """Check one integer ``name=value`` from 1 to 1e15 and return it as an int."""
    ((name, value),) = named.items()
    number = integer(1, **named)
    if number > 10**15:
        refuse(name, value, "be an integer of at most 1e15")
    return number


def integer(at_least: int, way_out: str = "", /, **named: object) -> int:
    """Check one integer ``name=value`` of at least ``at_least`` and return it as an int."""
    ((name, value),) = named.items()
    if type(value) is int and at_least <= value < _EXACT:
        return value
    rule = f"be an integer of at least {at_least}"
    number = _number(name, value, rule)
    if not math.isfinite(number) or number != math.floor(number) or number < at_least:
        refuse(name, value, rule, way_out)
    # From the value, not from the float: large integers keep their digits.
    return int(value)  # type: ignore[call-overload, no-any-return]


def counted(at_least: int, /, **named: object) -> int:
    """Check one ``name=value`` of an integer type and return it as an int.

    ``integer`` also accepts 3.0. A record that counts in floats is mistaken or damaged.
    """
    ((name, value),) = named.items()
    rule = f"be an integer of at least {at_least}"
    # In Python True is 1; arrays of one number also have an index.
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool", "ndarray"):
        refuse(name, value, rule, "pass an integer")
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        refuse(name, value, rule, "pass an integer")
    require(number >= at_least, name, number, rule)
    require(number <= 10**15, name, number, "be an integer of at most 1e15")
    return number


def member(kind: type[E], **named: object) -> E:
    """Turn one ``name=value`` (a member or its string) into a member of ``kind``."""
    ((name, value),) = named.items()
    if type(value) is kind:
        return value
    try:
        return kind(value)  # type: ignore[arg-type]
    except ValueError:
        refuse(name, value, f"be one of {listed(kind)}")


natural = partial(integer, 1)
"""Check one integer ``name=value`` of at least 1 and return it as an int."""
whole = partial(integer, 0)
"""The same, of at least 0."""


def validate_fields(
    owner: object, check: Callable[..., object], *names: str, or_none: bool = False
) -> None:
    """Check fields of a new frozen dataclass, and store the results of the checks in them.

    Args:
        owner: the dataclass.
        check: takes one ``name=value``, for example ``positive``.
        names: of the fields.
        or_none: a field may be None, and stays None.
    """
    for name in names:
        value = getattr(owner, name)
        if value is not None or not or_none:
            object.__setattr__(owner, name, check(**{name: value}))


def listed(values: Iterable[object]) -> str:
    """Join values for a message: ``'a', 'b' or 'c'``."""
    quoted = [repr(str(value)) for value in values]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
