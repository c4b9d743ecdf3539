"""The answer of every accountant: an interval that provably holds the truth."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from enum import StrEnum
from typing import Any, Protocol

from .errors import ParameterError
from .relations import Adjacency, Facts, Observer, Unit


class Verdict(StrEnum):
    """What a certified interval says about a claim."""

    HOLDS = "HOLDS"
    FAILS = "FAILS"
    CANNOT_BE_CERTIFIED = "CANNOT BE CERTIFIED"


class Evidence(Protocol):
    """What a bound was asked of."""

    def to_dict(self, bound: Bound) -> dict[str, Any]:
        """Return the question, its pairs and the way to the ends as plain JSON values."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A certified interval for one number, epsilon at a delta or delta at an epsilon.

    Attributes:
        quantity: "epsilon" or "delta".
        given: the delta or the epsilon it was asked at.
        upper: certified; may be published.
        lower: certified lower end of the mechanism's own worst case, attained by the data sets
            that ``witness`` names; 0 where none is known.
        resolution: (lo, hi) around the dominating pair's number; hi equals ``upper``.
        witness: two neighbouring data sets whose outputs are at least this far apart, or None.
        method: the accountant, and the rule of it that won.
        theorems: what the number rests on.
        assumptions: what must be true of the run and no arithmetic can check.
        facts: unit, adjacency and observer that the number is about.
        reason: why the interval is wider than asked; empty where it is not.
        qualified: what is wrong with the record that the number is about, or taken on its word:
            that the seed was fixed, for instance. Shown wherever the number is.
    """

    quantity: str
    given: float
    upper: float
    lower: float
    resolution: tuple[float, float]
    witness: str | None
    method: str
    theorems: tuple[str, ...]
    assumptions: tuple[str, ...]
    facts: Facts
    reason: str = ""
    evidence: Evidence | None = field(default=None, repr=False, compare=False)
    qualified: tuple[str, ...] = ()

    @property
    def unit(self) -> Unit | None:
        """Whose data is one unit."""
        return self.facts.unit

    @property
    def adjacency(self) -> Adjacency:
        """How neighbouring data sets differ."""
        return self.facts.adjacency

    @property
    def observer(self) -> Observer:
        """Who looks."""
        return self.facts.observer

    def verdict(self, claim: float) -> Verdict:
        """Return whether ``claim``, an upper bound on the quantity, holds.

        HOLDS where ``upper <= claim``, FAILS where ``lower > claim``, else it cannot be certified.

        Raises:
            ParameterError: the claim is NaN or below 0.
        """
        # NaN compares as false with everything: it would fall through to a verdict.
        if not isinstance(claim, int | float) or math.isnan(claim) or claim < 0:
            raise ParameterError(f"claim must be a number of at least 0, got {claim!r}")
        # The upper end first: what holds for certain is not put in doubt by what is attained.
        if self.upper <= claim:
            return Verdict.HOLDS
        return Verdict.FAILS if self.lower > claim else Verdict.CANNOT_BE_CERTIFIED

    def ends(self, digits: int = 4) -> tuple[str, str]:
        """Return (lower, upper) in so many digits, rounded outwards: both stay certified."""
        return shown(self.lower, digits, ROUND_FLOOR), shown(self.upper, digits, ROUND_CEILING)

    def to_dict(self) -> dict[str, Any]:
        """Return the bound as plain JSON values; infinity as the string "inf"."""
        return {
            "quantity": self.quantity,
            "given": _plain(self.given),
            "upper": _plain(self.upper),
            "lower": _plain(self.lower),
            "resolution": [_plain(end) for end in self.resolution],
            "witness": self.witness,
            "method": self.method,
            "theorems": list(self.theorems),
            "assumptions": list(self.assumptions),
            "unit": None if self.unit is None else str(self.unit),
            "adjacency": str(self.adjacency),
            "observer": str(self.observer),
            "reason": self.reason,
            "qualified": list(self.qualified),
        }

    def certificate(self) -> dict[str, Any]:
        """Return a JSON document that says what was asked, and from which everything follows.

        Keys: ``mechanism`` (the run), ``rounds`` (the dominating and the attained pair of each part
        of it, how often it runs, and its theorems), ``bound`` (see ``to_dict``), ``way`` (the
        method and, where moments were inverted, a line with its images and tail bound) and
        ``digest`` (SHA-256 of all else, as ``check_certificate.digest`` computes it).
        ``fedprivacy verify`` proves the ends again, in ball arithmetic and without this package.

        Raises:
            ParameterError: the bound was not asked of a run, by ``fp.epsilon`` or ``fp.delta``.
        """
        if self.evidence is None:
            raise ParameterError(
                f"certificate needs the run that was asked of, and this bound of {self.ends()[1]} "
                "holds none; ask with fp.epsilon(run, ...) or fp.delta(run, ...)"
            )
        document = {
            "format": "fedprivacy certificate",
            "version": 1,
            **self.evidence.to_dict(self),
            "bound": self.to_dict(),
        }
        # Sorted and without spaces, so that whoever has the document gets the same digest.
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return {**document, "digest": hashlib.sha256(text.encode()).hexdigest()}

    def __str__(self) -> str:
        at = "delta" if self.quantity == "epsilon" else "epsilon"
        unit = f"{self.unit} level, " if self.unit else ""
        lower, upper = self.ends(6)
        return (
            f"{self.quantity} in [{lower}, {upper}] at {at} = {exactly(self.given)} "
            f"({unit}{self.adjacency}, {self.observer}; {self.method})"
            + "".join(f", {words}" for words in self.qualified)
        )


def shown(value: float, digits: int, rounding: str) -> str:
    """Return a number in so many digits, rounded by ROUND_FLOOR or ROUND_CEILING of ``decimal``.

    A printed upper end must not lie below the end that is certified, nor a lower end above it.

    >>> shown(10.05363, 5, ROUND_CEILING), shown(10.05363, 5, ROUND_FLOOR)
    ('10.054', '10.053')
    """
    # 0 and infinity are exact, and decimal contexts have no digits for them.
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    # Rounding the double itself, not its shortest text, which may lie on the other side of it.
    exact = Context(prec=digits, rounding=rounding).create_decimal_from_float(value)
    # Below the normal doubles a way back through a double would round to a neighbour.
    return f"{float(exact):.{digits}g}" if value >= sys.float_info.min else f"{exact:.{digits}g}"


def exactly(value: float) -> str:
    """Return a number that was given as it was given: the shortest text that reads back the same.

    Rounded to either side, a claim or a delta would be another one than was answered for.

    >>> exactly(3.0), exactly(1e-5), exactly(1.0000004)
    ('3', '1e-05', '1.0000004')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def plain_bounds(bounds: Mapping[str, Mapping[str, Bound]]) -> dict[str, dict[str, Any]]:
    """Return bounds by observer and accountant as plain JSON values."""
    return {
        observer: {name: bound.to_dict() for name, bound in found.items()}
        for observer, found in bounds.items()
    }


def _plain(value: float) -> float | str:
    return "inf" if math.isinf(value) else value
