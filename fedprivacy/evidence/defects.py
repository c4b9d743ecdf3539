"""Defects of a record, and their effect on the verdict and the numbers.

One table is the source for the text, the JSON, the page and the documentation. A verdict is about
the whole run as it really was. A defect is a
way for the record to differ from that run.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from ..bound import Verdict


class Validity(StrEnum):
    """The validity of a run's numbers, from best to worst."""

    CERTIFIED = "certified"
    RECORDED = "valid for the recorded rounds only"
    SECRET_SEED = "valid only against attackers who do not know the seed"
    PUBLIC_DENOMINATOR = "valid only if denominators do not depend on the data"
    SECRET_ABORTS = "valid only if aborts do not depend on the cohort sizes"
    DENIED = "valid only if the stated parameters are right, but the record contradicts them"
    VOID = "void"


class Effect(NamedTuple):
    """The effect of one defect.

    Attributes:
        holds: the verdict that replaces HOLDS.
        fails: the verdict that replaces FAILS.
        numbers: the validity of the numbers.
        qualifies: text added to the verdict wherever it is shown; empty for none.
        why: the reason, in one sentence.
    """

    holds: Verdict
    fails: Verdict
    numbers: Validity
    qualifies: str
    why: str


class Defect(StrEnum):
    """Possible defects of a source."""

    OTHER_COHORTS = "cohorts, noise or denominators of another run"
    NO_DENOMINATOR = "sums whose denominator is not recorded"
    NO_FILTER = "an adaptive schedule without a privacy filter"
    FIXED_SEED = "a fixed seed"
    OPEN = "a ledger that was not closed"
    GAPS = "rounds missing from the record"
    CONTRADICTED = "a statement that the record contradicts"
    IMPORTED = "an imported record"
    STATED = "parameters that were stated, not recorded"
    CHEAPER = "rounds that cost less than planned"
    UNPLANNED = "rounds that are not in the plan"
    UNCONFIRMED = "rounds that were begun but never confirmed"
    LESS_NOISE = "less noise than planned"
    ABORTED = "aborted rounds"
    ABORTED_DRAWS = "aborted rounds of random cohorts"
    HALF_A_LINE = "a half-written line"
    NO_ROUNDS = "a record without rounds"
    LARGE_DELTA = "a delta of at least 1/n for n units"


_HOLDS, _FAILS, _OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.CANNOT_BE_CERTIFIED

EFFECTS: dict[Defect, Effect] = {
    Defect.OTHER_COHORTS: Effect(
        _OPEN,
        _OPEN,
        Validity.VOID,
        "",
        "the run differed from the accounted one, so neither end of the interval applies to it",
    ),
    Defect.NO_DENOMINATOR: Effect(
        _OPEN,
        _FAILS,
        Validity.PUBLIC_DENOMINATOR,
        "denominators are not recorded",
        "a denominator that depends on the number of units, or of drawn units, reveals a "
        "number that the account keeps secret",
    ),
    Defect.NO_FILTER: Effect(
        _OPEN,
        _OPEN,
        Validity.VOID,
        "",
        "other outputs would have led to other rounds, and the sum of the recorded rounds "
        "does not bound their loss",
    ),
    Defect.FIXED_SEED: Effect(
        _OPEN,
        _FAILS,
        Validity.SECRET_SEED,
        "the seed was fixed",
        "an attacker who knows the seed can subtract the noise, and no record shows who knows it",
    ),
    Defect.OPEN: Effect(
        _OPEN,
        _FAILS,
        Validity.RECORDED,
        "the ledger was not closed",
        "later rounds may be missing, and each would increase epsilon",
    ),
    Defect.GAPS: Effect(
        _OPEN,
        _FAILS,
        Validity.RECORDED,
        "rounds are missing",
        "the missing rounds increase epsilon",
    ),
    Defect.CONTRADICTED: Effect(
        _OPEN,
        _FAILS,
        Validity.DENIED,
        "as stated, although the record contradicts it",
        "the record contradicts the statement, so one of the two is wrong",
    ),
    Defect.IMPORTED: Effect(
        _HOLDS,
        _FAILS,
        Validity.CERTIFIED,
        "according to an imported record",
        "the numbers are right for the imported record, which another program wrote",
    ),
    Defect.STATED: Effect(
        _HOLDS,
        _FAILS,
        Validity.CERTIFIED,
        "for the run as stated, without a record",
        "the numbers are right for the stated parameters, but no record shows that the run "
        "used them",
    ),
    Defect.CHEAPER: Effect(
        _OPEN,
        _FAILS,
        Validity.RECORDED,
        "rounds cost less than planned",
        "either the plan or the rounds are wrong, and the plan would give a larger epsilon",
    ),
    Defect.UNPLANNED: Effect(
        _HOLDS,
        _FAILS,
        Validity.CERTIFIED,
        "some rounds are not in the plan",
        "they are accounted as recorded",
    ),
    Defect.UNCONFIRMED: Effect(
        _HOLDS,
        _FAILS,
        Validity.CERTIFIED,
        "",
        "they count in the upper end but not in the lower end",
    ),
    Defect.LESS_NOISE: Effect(
        _HOLDS, _FAILS, Validity.CERTIFIED, "", "the round is accounted with its recorded noise"
    ),
    Defect.ABORTED: Effect(
        _HOLDS,
        _FAILS,
        Validity.CERTIFIED,
        "",
        "they released no sum, and the missing clients are assumed to differ between rounds",
    ),
    Defect.ABORTED_DRAWS: Effect(
        _OPEN,
        _OPEN,
        Validity.SECRET_ABORTS,
        "valid only if aborts do not depend on the cohort sizes",
        "an abort may reveal the cohort size, which the account keeps secret",
    ),
    Defect.HALF_A_LINE: Effect(_HOLDS, _FAILS, Validity.CERTIFIED, "", "no noise was drawn for it"),
    Defect.NO_ROUNDS: Effect(
        _OPEN,
        _FAILS,
        Validity.RECORDED,
        "no round was recorded",
        "a training loop that never wrote to the ledger leaves the same record",
    ),
    Defect.LARGE_DELTA: Effect(
        _HOLDS,
        _FAILS,
        Validity.CERTIFIED,
        "delta is not below 1/n for n units",
        "the numbers are right, but a mechanism that publishes all data of one random unit "
        "also satisfies this claim",
    ),
}
"""Defect -> effect. No other code in the package decides this."""


def judged_with(verdict: Verdict, defects: Iterable[Defect]) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict after all defects, and a sentence for each defect that changed it."""
    changed = []
    now = verdict
    for defect in defects:
        effect = EFFECTS[defect]
        # Looked up with the first verdict, so that the order of defects does not matter.
        after = {_HOLDS: effect.holds, _FAILS: effect.fails}.get(verdict, verdict)
        if after is not verdict:
            now = after
            changed.append(f"The verdict cannot be {verdict} because of {defect}: {effect.why}.")
    return now, tuple(changed)


def conditions(defects: Iterable[Defect]) -> tuple[Validity, ...]:
    """Return all conditions of the numbers with these defects; empty if there are none."""
    found = {EFFECTS[defect].numbers for defect in defects} - {Validity.CERTIFIED}
    return tuple(numbers for numbers in Validity if numbers in found)


def worth(defects: Iterable[Defect]) -> Validity:
    """Return the validity of the numbers with these defects: the worst of all."""
    # Later values are weaker, so the last one decides.
    return (Validity.CERTIFIED, *conditions(defects))[-1]


def qualifiers(defects: Iterable[Defect]) -> tuple[str, ...]:
    """Return the conditions to show with a verdict and a number."""
    return tuple(EFFECTS[defect].qualifies for defect in defects if EFFECTS[defect].qualifies)


def qualified(verdict: Verdict, defects: Iterable[Defect]) -> str:
    """Return a verdict with its conditions, as it should be shown."""
    return ", ".join([str(verdict), *qualifiers(defects)])


def table() -> str:
    """Return the table in Markdown, for the documentation."""
    lines = [
        "| defect | HOLDS becomes | FAILS becomes | the numbers are | why |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {defect} | {effect.holds} | {effect.fails} | {effect.numbers} | {effect.why} |"
        for defect, effect in EFFECTS.items()
    ]
    return "\n".join(lines) + "\n"
