"""Facts that a record lacks, as questions to the user with the options that answer them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...errors import ParameterError
from ...relations import Adjacency
from .fields import Field, absent
from .trace import Sampling

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
    """

    name: str
    why: str = ""

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
        near = [one for one in fields if {*one.name.split("_")} & wanted and is_value(one.value)]
        quoted = ", ".join(map(str, near[:3]))
        return cls(name, f"{MEANINGS[name]}; not settled by {quoted}" if quoted else "")


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
