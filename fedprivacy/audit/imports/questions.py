"""Facts that a record lacks, as questions to the user with the options that answer them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ...errors import ParameterError
from ...relations import Adjacency
from ...sampling.scheme import TableScheme
from .fields import Field, absent
from .trace import Rounds, Sampling, Stated

OPTIONS = {
    "noise_multiplier": "--noise-multiplier Z",
    "rounds": "--rounds N",
    "sampling": "--sampling NAME",
    "sampling_probability": "--sampling-probability P",
    "cohort": "--cohort N",
    "population": "--population N",
    "rounds_per_epoch": "--rounds-per-epoch N",
    "denominator": "--denominator NAME",
    "trials": "--trials N",
    "adjacency": "--adjacency NAME",
    "claim": "--claim EPSILON,DELTA",
    "claim_epsilon": "--claim-epsilon EPSILON",
    "claim_delta": "--claim-delta DELTA",
    "reviewed": "--reviewed CODE",
}
"""Fact -> the option that states it."""

MEANINGS = {
    "noise_multiplier": "std of the noise in the sum over the clip norm of one unit",
    "rounds": "how many noisy sums were released",
    "sampling": f"how units were drawn: {', '.join(Sampling)}",
    "sampling_probability": "probability of a unit to take part in a round",
    "cohort": "number of units in a round",
    "population": "number of units",
    "rounds_per_epoch": "number of rounds in a pass over the units",
    "trials": "number of runs on the same data",
    "denominator": "whether sums were divided by a public number, or a realised one",
    "adjacency": f"how neighbours differ: {', '.join(Adjacency)}",
    "claim": "epsilon and delta to judge",
    "claim_epsilon": "epsilon to judge",
    "claim_delta": "delta to judge",
    "reviewed": "entries that are not understood here",
}
"""Fact -> its meaning."""

_RELATED = {
    "rounds": {"round", "rounds", "step", "steps", "epoch", "epochs", "iterations", "iters", "t"},
    "sampling": {"sampler", "sampling", "subsampling", "shuffle", "fraction", "frac"},
    "adjacency": {"adjacency", "neighboring", "neighbouring", "neighbor", "neighbour", "relation"},
    "claim": {"epsilon", "eps", "delta"},
    "claim_epsilon": {"epsilon", "eps"},
    "claim_delta": {"delta"},
}
"""Fact -> words of fields that are quoted when it is asked for."""


@dataclass(frozen=True)
class Question:
    """A fact that the file does not hold.

    Attributes:
        name: the fact, one of ``OPTIONS``.
        why: why the file does not settle it; empty to print the meaning of the fact.
        code: the answer to ``reviewed``; empty for other facts.
        entries: all entries that ``reviewed`` is about; a message shows the first ones.
    """

    name: str
    why: str = ""
    code: str = ""
    entries: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The option that answers the question."""
        return f"--{self.name} {self.code}" if self.code else OPTIONS[self.name]

    def __str__(self) -> str:
        return f"{self.name.replace('_', ' ')} ({self.meaning})"

    @property
    def meaning(self) -> str:
        """Why the file does not settle the fact, or else its meaning."""
        return self.why or MEANINGS[self.name]

    @classmethod
    def about(cls, name: str, fields: Iterable[Field]) -> Question:
        """Return the question for a fact, which quotes the fields whose names are about it."""
        wanted = _RELATED.get(name, set())
        near = [one for one in fields if one.words & wanted and is_value(one.value)]
        quoted = ", ".join(map(str, near[:3]))
        return cls(name, f"{MEANINGS[name]}; not settled by {quoted}" if quoted else "")


MAX_SHOWN = 40
"""Largest number of entries that a message lists."""
_LENGTH = 100
_CODE = 8


def code_of(entries: Iterable[str]) -> str:
    """Return the code that confirms entries: it changes if one of them changes."""
    return sha256("\n".join(entries).encode("utf-8", "replace")).hexdigest()[:_CODE]


def review(entries: Sequence[str], reviewed: str | None) -> list[Question]:
    """Return the question for entries that are not understood; none if the user reviewed them.

    Args:
        entries: the entries, in words.
        reviewed: the codes that the user states, separated by commas; None for none.
    """
    code = code_of(entries)
    if not entries or code in re.split(r"[,\s]+", reviewed or ""):
        return []
    shown = "; ".join(each[:_LENGTH] for each in entries[:MAX_SHOWN])
    more = f"; and {len(entries) - MAX_SHOWN} more" if len(entries) > MAX_SHOWN else ""
    other = f"; {reviewed} is the code of other entries" if reviewed else ""
    why = (
        f"{shown}{more}{other} (if one of them changes the noise, the clip, the draws, the rounds "
        "or the runs, state the true facts; the code confirms that all were looked at)"
    )
    return [Question("reviewed", why, code, tuple(entries))]


class MissingFacts(ParameterError):
    """A record lacks facts that the user must state. The message lists them with their options.

    Attributes:
        kind: what the record was read as.
        found: what it states, in words.
        questions: the missing facts.
    """

    def __init__(self, text: str, kind: str, found: str, questions: Iterable[Question]) -> None:
        super().__init__(text)
        self.kind, self.found, self.questions = kind, found, tuple(questions)


def is_value(value: Any) -> bool:
    """Return whether a field has a value that a message can quote."""
    return not absent(value) and not isinstance(value, list | dict)


def missing_in_sampling(rounds: Rounds, stated: Stated) -> Iterable[str]:
    """Return the missing facts of the sampling."""
    if isinstance(stated.sampling, TableScheme):
        return []
    name = str(stated.sampling or rounds.sampling or "").replace("_", "-")
    population = rounds.population if stated.population is None else stated.population
    if not name:
        return ["sampling"]
    if name == Sampling.POISSON:
        return [] if rounds.rate is not None else ["sampling_probability"]
    if name in (Sampling.FIXED, Sampling.WITH_REPLACEMENT):
        return _missing_in_cohort(rounds, population)
    if name in (Sampling.SHUFFLED, Sampling.ALLOCATION):
        return _missing_in_pass(rounds, population)
    return []


def _missing_in_cohort(rounds: Rounds, population: int | None) -> list[str]:
    """Return the missing facts of a cohort of fixed size."""
    # A share of the population gives the cohort.
    size = rounds.cohort is None and rounds.rate is None
    return ["cohort"] * size + ["population"] * (population is None)


def _missing_in_pass(rounds: Rounds, population: int | None) -> list[str]:
    """Return the missing fact of a pass: its number of rounds, unless a share gives it."""
    share = rounds.rate is not None or None not in (rounds.cohort, population)
    return [] if rounds.per_epoch is not None or share else ["rounds_per_epoch"]


def how_drawn(
    rounds: Rounds, stated: Stated, suggested: Mapping[str, Any], *, denominator: bool = False
) -> str:
    """Return the options that state a sampling with all of its missing numbers.

    With ``denominator`` a sum is divided by the number of answers. That number is public for every
    sampling but Poisson's, so only these have the question.
    """
    chosen = str(stated.sampling or rounds.sampling or "").replace("_", "-")
    numbers = _numbers_for(rounds, suggested)
    if denominator and chosen not in numbers and stated.denominator is None:
        for each in numbers.keys() - {Sampling.POISSON}:
            numbers[each] += f" {OPTIONS['denominator']}"
    shown = [chosen] if chosen in numbers else _USUAL
    return ", or ".join(f"--sampling {each}{numbers[Sampling(each)]}" for each in shown)


def _numbers_for(rounds: Rounds, suggested: Mapping[str, Any]) -> dict[Sampling, str]:
    """Return the options for the numbers that rounds lack, by sampling."""
    known = {"population": rounds.population, "cohort": rounds.cohort}

    def option(name: str, letter: str) -> str:
        value = known.get(name) or suggested.get(name) or letter
        return f" --{name.replace('_', '-')} {value}"

    sizes = "" if _has_sizes(rounds) else option("population", "N") + option("cohort", "M")
    passes = "" if _has_passes(rounds) else option("rounds_per_epoch", "N")
    return {
        Sampling.POISSON: "" if rounds.rate is not None else option("sampling_probability", "P"),
        Sampling.FIXED: sizes,
        Sampling.WITH_REPLACEMENT: sizes,
        Sampling.SHUFFLED: passes,
        Sampling.ALLOCATION: passes,
        Sampling.EVERYONE: "",
    }


def _has_sizes(rounds: Rounds) -> bool:
    """Return whether rounds state the cohort and the population, or one and the share."""
    rate, population = rounds.rate, rounds.population
    if None not in (population, rounds.cohort):
        return True
    return bool(rate and population and _whole(rate * population))


def _has_passes(rounds: Rounds) -> bool:
    """Return whether rounds state the length of a pass, or a share that divides one evenly."""
    share, cohort, population = rounds.rate, rounds.cohort, rounds.population
    if share is None and cohort and population:
        share = cohort / population
    return bool(rounds.per_epoch or (share and _whole(1.0 / share)))


def _whole(number: float) -> bool:
    return math.isfinite(number) and abs(number - round(number)) <= 1e-6 * max(number, 1.0)


_USUAL = [Sampling.POISSON, Sampling.FIXED, Sampling.SHUFFLED, Sampling.EVERYONE]
