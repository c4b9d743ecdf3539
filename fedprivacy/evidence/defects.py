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


class Numbers(StrEnum):
    """The validity of a run's numbers, from best to worst."""

    CERTIFIED = "certified"
    RECORDED = "of the recorded rounds only"
    SECRET_SEED = "only against whoever does not know the seed"
    PUBLIC_DENOMINATOR = "only if denominators do not follow the data"
    SECRET_ABORTS = "only if aborts told nothing of how many were drawn"
    DENIED = "only if what was stated is right, which the record denies"
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
    numbers: Numbers
    qualifies: str
    why: str


class Defect(StrEnum):
    """Possible defects of a source."""

    OTHER_COHORTS = "cohorts, noise or denominators of another run"
    NO_DENOMINATOR = "sums whose denominator is not recorded"
    NO_FILTER = "an adaptive schedule that no filter kept"
    FIXED_SEED = "a fixed seed"
    OPEN = "a ledger without its end"
    GAPS = "rounds missing from the record"
    CONTRADICTED = "a statement that the record denies"
    IMPORTED = "a record that was imported"
    STATED = "parameters that were only stated"
    CHEAPER = "rounds that cost less than the plan's"
    UNPLANNED = "rounds that the plan does not name"
    UNCONFIRMED = "rounds begun and never confirmed"
    LESS_NOISE = "less noise than was priced"
    ABORTED = "rounds that were aborted"
    ABORTED_DRAWS = "rounds of random cohorts that were aborted"
    HALF_A_LINE = "a half-written line"
    NO_ROUNDS = "a record without a round"
    LARGE_DELTA = "a delta of 1/n or more for n units"


_HOLDS, _FAILS, _OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.CANNOT_BE_CERTIFIED

EFFECTS: dict[Defect, Effect] = {
    Defect.OTHER_COHORTS: Effect(
        _OPEN,
        _OPEN,
        Numbers.VOID,
        "",
        "something else was run than what was priced, so neither end is about it",
    ),
    Defect.NO_DENOMINATOR: Effect(
        _OPEN,
        _FAILS,
        Numbers.PUBLIC_DENOMINATOR,
        "denominators are not recorded",
        "where it is hidden how many there are, or were drawn, a denominator that follows their "
        "number tells it",
    ),
    Defect.NO_FILTER: Effect(
        _OPEN,
        _OPEN,
        Numbers.VOID,
        "",
        "other outputs would have made other rounds, which the sum of these says nothing about",
    ),
    Defect.FIXED_SEED: Effect(
        _OPEN,
        _FAILS,
        Numbers.SECRET_SEED,
        "the seed was fixed",
        "whoever knows the seed subtracts the noise, and no record says who does",
    ),
    Defect.OPEN: Effect(
        _OPEN,
        _FAILS,
        Numbers.RECORDED,
        "the ledger has no end",
        "later rounds may be missing, and each would add to what was spent",
    ),
    Defect.GAPS: Effect(
        _OPEN,
        _FAILS,
        Numbers.RECORDED,
        "rounds are missing",
        "the missing rounds add to what was spent",
    ),
    Defect.CONTRADICTED: Effect(
        _OPEN,
        _FAILS,
        Numbers.DENIED,
        "as it was stated against the record",
        "the record says otherwise; one of the two is wrong",
    ),
    Defect.IMPORTED: Effect(
        _HOLDS,
        _FAILS,
        Numbers.CERTIFIED,
        "on the word of an imported record",
        "the numbers are right for what the record says; another program wrote it",
    ),
    Defect.STATED: Effect(
        _HOLDS,
        _FAILS,
        Numbers.CERTIFIED,
        "for the run as it was stated, of which no record was seen",
        "the numbers are right for what was stated; nothing shows that it was run so",
    ),
    Defect.CHEAPER: Effect(
        _OPEN,
        _FAILS,
        Numbers.RECORDED,
        "rounds cost less than planned",
        "either the plan or the rounds are not what was run, and with the plan's more was spent",
    ),
    Defect.UNPLANNED: Effect(
        _HOLDS,
        _FAILS,
        Numbers.CERTIFIED,
        "rounds left the plan",
        "they are priced as they were recorded",
    ),
    Defect.UNCONFIRMED: Effect(
        _HOLDS,
        _FAILS,
        Numbers.CERTIFIED,
        "",
        "they count in the upper end and not in the lower one",
    ),
    Defect.LESS_NOISE: Effect(
        _HOLDS, _FAILS, Numbers.CERTIFIED, "", "the round is priced by the noise that it had"
    ),
    Defect.ABORTED: Effect(
        _HOLDS,
        _FAILS,
        Numbers.CERTIFIED,
        "",
        "they released nothing; it is assumed that not always the same clients stayed away",
    ),
    Defect.ABORTED_DRAWS: Effect(
        _OPEN,
        _OPEN,
        Numbers.SECRET_ABORTS,
        "only if aborts told nothing of how many were drawn",
        "whether a round was aborted may tell how many were drawn, which its account keeps secret",
    ),
    Defect.HALF_A_LINE: Effect(
        _HOLDS, _FAILS, Numbers.CERTIFIED, "", "no noise had been drawn on its account"
    ),
    Defect.NO_ROUNDS: Effect(
        _HOLDS,
        _FAILS,
        Numbers.CERTIFIED,
        "no round was recorded",
        "a loop that was never connected to its record leaves the same record",
    ),
    Defect.LARGE_DELTA: Effect(
        _HOLDS,
        _FAILS,
        Numbers.CERTIFIED,
        "delta is not below 1/n for n units",
        "the numbers are right; but a mechanism that publishes the whole data of one unit, chosen "
        "at random, keeps such a claim",
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
            changed.append(f"It cannot be {verdict}, because of {defect}: {effect.why}.")
    return now, tuple(changed)


def conditions(defects: Iterable[Defect]) -> tuple[Numbers, ...]:
    """Return all conditions of the numbers with these defects; empty if there are none."""
    found = {EFFECTS[defect].numbers for defect in defects} - {Numbers.CERTIFIED}
    return tuple(numbers for numbers in Numbers if numbers in found)


def worth(defects: Iterable[Defect]) -> Numbers:
    """Return the validity of the numbers with these defects: the worst of all."""
    # Later values are weaker, so the last one decides.
    return (Numbers.CERTIFIED, *conditions(defects))[-1]


def qualifiers(defects: Iterable[Defect]) -> tuple[str, ...]:
    """Return the conditions to show with a verdict and a number."""
    return tuple(EFFECTS[defect].qualifies for defect in defects if EFFECTS[defect].qualifies)


def qualified(verdict: Verdict, defects: Iterable[Defect]) -> str:
    """Return a verdict with its conditions, as it should be shown."""
    return ", ".join([str(verdict), *qualifiers(defects)])


def table() -> str:
    """Return the table in Markdown, for the documentation."""
    lines = [
        "| what is wrong | HOLDS becomes | FAILS becomes | the numbers are | why |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {defect} | {effect.holds} | {effect.fails} | {effect.numbers} | {effect.why} |"
        for defect, effect in EFFECTS.items()
    ]
    return "\n".join(lines) + "\n"
