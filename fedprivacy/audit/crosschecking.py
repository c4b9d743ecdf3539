"""Compare all accountants on one run, and show the wrong ones with the certificate."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from enum import StrEnum
from typing import Any, NamedTuple

from ..accountants import ACCOUNTANTS
from ..bound import Bound, exactly, shown
from ..errors import FedPrivacyError, UnsupportedCombination, closed_unit, member, refuse
from ..mechanisms import Mechanism
from ..questions.epsilon import epsilon
from ..relations import Adjacency, Observer


class Standing(StrEnum):
    """Position of an upper bound on epsilon relative to the certified interval."""

    CERTIFIED = "certified"
    """It is the certified interval."""
    AGREES = "agrees"
    """It lies between the two ends."""
    LOOSE = "loose"
    """It is above the certified upper end: valid, but larger than necessary."""
    WRONG = "wrong"
    """It is below the certified lower end, which two named data sets attain, so it is no upper
    bound.
    """
    NO_ANSWER = "no answer"
    """The accountant refused the run, or is not installed."""


class AccountantAnswer(NamedTuple):
    """The answer of one accountant.

    Attributes:
        who: library and accountant.
        adjacency: adjacency of the answer.
        epsilon: its upper bound; None if it gave none.
        standing: its position relative to the certified interval.
        why: the certificate behind the position, or the reason for a missing answer.
    """

    who: str
    adjacency: Adjacency
    epsilon: float | None
    standing: Standing
    why: str


@dataclass(frozen=True)
class Crosscheck:
    """One run under every accountant.

    Attributes:
        delta: the delta that belongs to epsilon.
        observer: the observer of the question.
        bounds: the certified interval under each adjacency.
        rows: the answer of each accountant.
    """

    delta: float
    observer: Observer
    bounds: dict[Adjacency, Bound]
    rows: tuple[AccountantAnswer, ...]

    @property
    def wrong(self) -> tuple[AccountantAnswer, ...]:
        """The accountants with an answer below the certified lower end."""
        return tuple(row for row in self.rows if row.standing is Standing.WRONG)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        rows = [
            {
                **row._asdict(),
                "adjacency": str(row.adjacency),
                "epsilon": _plain(row.epsilon),
                "standing": str(row.standing),
            }
            for row in self.rows
        ]
        bounds = {str(adjacency): bound.to_dict() for adjacency, bound in self.bounds.items()}
        seen = str(self.observer)
        return {"delta": self.delta, "observer": seen, "bounds": bounds, "rows": rows}

    def __str__(self) -> str:
        head = ("accountant", "adjacency", "epsilon", "standing", "why")
        table = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(4)]
        lines = [f"delta = {exactly(self.delta)}, {self.observer}"]
        for line in table:
            cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
            lines.append("  ".join([*cells, line[4]]).rstrip())
        return "\n".join(lines)


def _plain(value: float | None) -> float | str | None:
    # JSON has no infinity.
    return value if value is None or value < float("inf") else "inf"


def _cells(row: AccountantAnswer) -> tuple[str, ...]:
    number = "-" if row.epsilon is None else shown(row.epsilon, 6, ROUND_CEILING)
    return row.who, str(row.adjacency), number, str(row.standing), row.why


def crosscheck(
    run: Mechanism,
    delta: float,
    adjacency: Adjacency | str | None = None,
    observer: Observer | str = Observer.AGGREGATE,
) -> Crosscheck:
    """Account a run by all accountants of this package and of other installed libraries.

    dp-accounting (PLD, RDP) is always included. Opacus (RDP, PRV, GDP) and prv-accountant are
    included if they are installed. An answer below the certified lower end is wrong: two
    neighbouring data sets, named by the witness of the bound, leak more. An answer above the
    certified upper end is loose.

    Args:
        run: a mechanism, sampled and repeated as it really ran.
        delta: in [0, 1].
        adjacency: None for all that the run supports.
        observer: the observer; other libraries support only the aggregate view.

    Raises:
        ParameterError: if ``run`` is no mechanism, or a value is out of range.
        UnsupportedCombination: if no theorem covers the run under these facts.

    >>> import fedprivacy as fp
    >>> run = fp.Gaussian(noise_multiplier=1.4).sampled(fp.FixedSize(100, population=6000)) * 180
    >>> found = fp.crosscheck(run, delta=7e-5, adjacency="replace_one")
    >>> [(row.who, row.standing.value) for row in found.rows[:3]]
    [('ours, pld', 'certified'), ('ours, rdp', 'loose'), ('ours, advanced', 'loose')]
    """
    if not isinstance(run, Mechanism):
        refuse("run", type(run).__name__, "be a mechanism", "pass Gaussian, for example")
    at, seer = closed_unit(delta=delta), member(Observer, observer=observer)
    wanted = [*Adjacency] if adjacency is None else [member(Adjacency, adjacency=adjacency)]
    bounds = _served(run, wanted, delta=at, observer=seer)
    rows = [row for bound in bounds.values() for row in _rows(run, bound)]
    return Crosscheck(at, seer, bounds, tuple(rows))


def _served(run: Mechanism, wanted: list[Adjacency], **question: Any) -> dict[Adjacency, Bound]:
    """Return the certified bounds under the adjacencies that a run supports.

    Raises:
        UnsupportedCombination: if it supports none; the last refusal gives the reason.
    """
    bounds: dict[Adjacency, Bound] = {}
    for one in wanted:
        # Unsupported adjacencies are left out, unless none is left.
        try:
            bounds[one] = epsilon(run, adjacency=one, **question)
        except UnsupportedCombination:
            if one is wanted[-1] and not bounds:
                raise
    return bounds


def _rows(run: Mechanism, bound: Bound) -> list[AccountantAnswer]:
    # Other libraries load slowly, and only a cross-check needs them.
    from ..integrations import peers

    facts = bound.adjacency, bound.observer
    low, high = bound.ends(6)
    interval = f"[{low}, {high}]: {'; '.join(bound.theorems)}"
    rows = [
        AccountantAnswer("ours, pld", bound.adjacency, bound.upper, Standing.CERTIFIED, interval)
    ]
    # The PLD interval is the reference for the other answers.
    for name in (name for name in ACCOUNTANTS if name != "pld"):
        rows.append(_judged(f"ours, {name}", *_ours(run, bound, name), bound))
    for who, found, why in peers.answers((run, bound.given, *facts), bound.upper):
        rows.append(_judged(who, found, why, bound))
    return rows


def _ours(run: Mechanism, bound: Bound, name: str) -> tuple[float | None, str]:
    facts: dict[str, Any] = {"adjacency": bound.adjacency, "observer": bound.observer}
    try:
        return epsilon(run, delta=bound.given, accountant=name, **facts).upper, ""
    except FedPrivacyError as error:
        return None, str(error)


def _judged(who: str, found: float | None, why: str, bound: Bound) -> AccountantAnswer:
    low, high = shown(bound.lower, 6, ROUND_FLOOR), shown(bound.upper, 6, ROUND_CEILING)
    if found is None:
        standing = Standing.NO_ANSWER
    # This form of the test also counts NaN as wrong, because NaN is no upper bound.
    elif not found >= bound.lower:
        standing, why = Standing.WRONG, f"at least {low}, attained: {bound.witness}"
    elif found > bound.upper:
        standing, why = Standing.LOOSE, f"at most {high}, certified"
    else:
        standing, why = Standing.AGREES, ""
    return AccountantAnswer(who, bound.adjacency, found, standing, why)
