"""The result of every accountant: an interval that provably contains the true value."""

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
    """Result of checking a claim against a certified interval."""

    HOLDS = "HOLDS"
    FAILS = "FAILS"
    CANNOT_BE_CERTIFIED = "CANNOT BE CERTIFIED"


class Evidence(Protocol):
    """The question that a bound answers."""

    def to_dict(self, bound: Bound) -> dict[str, Any]:
        """Return the question, its pairs and the derivation of the ends as plain JSON values."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A certified interval for one number: epsilon at a delta, or delta at an epsilon.

    Attributes:
        quantity: "epsilon" or "delta".
        given: the delta or epsilon of the question.
        upper: certified; may be published.
        lower: certified lower end of the mechanism's own worst case, attained by the data sets in
            ``witness``; 0 if none is known.
        resolution: (lo, hi) around the dominating pair's number; hi equals ``upper``.
        witness: two neighbouring data sets whose outputs are at least this far apart, or None.
        method: the accountant, and the rule that gave the best value.
        theorems: theorems that the number depends on.
        assumptions: conditions on the run that no arithmetic can check.
        facts: unit, adjacency and observer of the number.
        reason: why the interval is wider than requested; empty if it is not.
        qualified: defects or unverified statements of the underlying record, for example a fixed
            seed. They are shown with the number everywhere.
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
        """The privacy unit."""
        return self.facts.unit

    @property
    def adjacency(self) -> Adjacency:
        """How neighbouring data sets differ."""
        return self.facts.adjacency

    @property
    def observer(self) -> Observer:
        """Who sees the outputs."""
        return self.facts.observer

    @property
    def closed(self) -> bool:
        """Whether the interval has a finite upper end, or shows that there is none."""
        return not self.lower < self.upper == math.inf

    def verdict(self, claim: float) -> Verdict:
        """Return whether ``claim``, an upper bound on the quantity, holds.

        The verdict is HOLDS if ``upper <= claim`` and FAILS if ``lower > claim``. Otherwise the
        claim cannot be certified.

        Raises:
            ParameterError: the claim is NaN or below 0.
        """
        # All comparisons with NaN are false, so NaN would reach a verdict.
        if not isinstance(claim, int | float) or math.isnan(claim) or claim < 0:
            raise ParameterError(f"claim must be a number of at least 0, got {claim!r}")
        # The upper end first: an attained lower end cannot contradict a certified upper end.
        if self.upper <= claim:
            return Verdict.HOLDS
        return Verdict.FAILS if self.lower > claim else Verdict.CANNOT_BE_CERTIFIED

    def ends(self, digits: int = 4) -> tuple[str, str]:
        """Return (lower, upper) with ``digits`` digits, rounded outwards: both stay certified."""
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
        """Return a JSON document with the question and all data needed to verify the answer.

        Its keys are:

        - ``mechanism``: the run.
        - ``rounds``: for each part of the run, the dominating and the attained pair, its number of
          runs, and its theorems.
        - ``bound``: see ``to_dict``.
        - ``way``: the method and, if moments were inverted, a line with its images and tail bound.
        - ``digest``: SHA-256 of all else, as ``check_certificate.digest`` computes it.

        ``fedprivacy verify`` proves the ends again, in ball arithmetic and without this package.

        Raises:
            ParameterError: the bound does not come from ``fp.epsilon`` or ``fp.delta`` of a run.
        """
        if self.evidence is None:
            raise ParameterError(
                f"certificate needs the run of the bound, but this bound of {self.ends()[1]} "
                "contains none; compute it with fp.epsilon(run, ...) or fp.delta(run, ...)"
            )
        document = {
            "format": "fedprivacy certificate",
            "version": 1,
            **self.evidence.to_dict(self),
            "bound": self.to_dict(),
        }
        # Sorted and without spaces, so that every reader computes the same digest.
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return {**document, "digest": hashlib.sha256(text.encode()).hexdigest()}

    def __str__(self) -> str:
        at = "delta" if self.quantity == "epsilon" else "epsilon"
        unit = f"{self.unit} level, " if self.unit else ""
        lower, upper = self.ends(6)
        known = f"in [{lower}, {upper}]" if self.closed else f"at least {lower}"
        return (
            f"{self.quantity} {known} at {at} = {exactly(self.given)} "
            f"({unit}{self.adjacency}, {self.observer}; {self.method})"
            + "".join(f", {words}" for words in self.qualified)
        )


def shown(value: float, digits: int, rounding: str) -> str:
    """Return a number with ``digits`` digits, rounded down or up by a ``decimal`` mode.

    The mode is ROUND_FLOOR or ROUND_CEILING. A printed upper end must not lie below the certified
    end, nor a printed lower end above it.

    >>> shown(10.05363, 5, ROUND_CEILING), shown(10.05363, 5, ROUND_FLOOR)
    ('10.054', '10.053')
    """
    # 0 and infinity are exact, and decimal contexts have no digits for them.
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    # Round the double itself. Its shortest text may lie on the other side of the result.
    exact = Context(prec=digits, rounding=rounding).create_decimal_from_float(value)
    # Below the normal doubles, converting back to a double would round to a neighbour.
    return f"{float(exact):.{digits}g}" if value >= sys.float_info.min else f"{exact:.{digits}g}"


def exactly(value: float) -> str:
    """Return the shortest text that reads back as the given number.

    A rounded claim or delta would differ from the one that was answered.

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
