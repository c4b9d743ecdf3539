"""The parts of a run's epsilon, and the changes that would halve it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from ..errors import ParameterError
from ..mechanisms import Mechanism
from ..mechanisms.base import Run
from ..questions.calibrate import calibrate
from ..questions.epsilon import epsilon
from .run_specs import SampledRun


@dataclass(frozen=True)
class EpsilonShare:
    """One kind of rounds of a run.

    Args:
        mechanism: the mechanism of a round.
        rounds: number of these rounds.
        alone: epsilon of only these rounds.
        without: epsilon of all other rounds; 0 if there are none.
        share: saving without these rounds, divided by the sum of the savings over all parts.
    """

    mechanism: str
    rounds: int
    alone: float
    without: float
    share: float


def parts_of(run: Mechanism, **question: Any) -> list[EpsilonShare]:
    """Return the parts of a run, in the order of execution.

    Epsilons do not add up. The share of a part is therefore the saving without it, divided by the
    sum of the savings of all parts. A single part has the whole share.

    Args:
        run: the run.
        question: delta, adjacency and observer.

    Raises:
        UnsupportedCombination: no theorem covers the run.
    """
    sequence = run.sequence()
    whole = epsilon(run, **question).upper
    alone = [epsilon(one * count, **question).upper for one, count in sequence]
    without = [_rest(sequence, index, **question) for index in range(len(sequence))]
    # Certified ends may be in the wrong order, within their width.
    saved = [max(whole - rest, 0.0) for rest in without]
    # If the whole is infinite, each part that makes it infinite has the same share.
    if math.isinf(whole):
        saved = [float(math.isfinite(rest)) for rest in without]
    total = sum(saved) or 1.0
    return [
        EpsilonShare(shorten(str(one), 160), count, first, rest, gain / total)
        for (one, count), first, rest, gain in zip(sequence, alone, without, saved, strict=True)
    ]


def _rest(sequence: Any, index: int, **question: Any) -> float:
    others = tuple(part for at, part in enumerate(sequence) if at != index)
    return epsilon(Run(others), **question).upper if others else 0.0


def halved_by(run: SampledRun, unit: str | None, **question: Any) -> dict[str, float | None]:
    """Return the value of each number of a run that halves its epsilon; the others stay.

    Args:
        run: a described run.
        unit: of the run.
        question: delta, adjacency and observer.

    Returns:
        Name -> value; None if no value halves it.
    """
    target = 0.5 * epsilon(run.run(unit), **question).upper
    names = {"noise_multiplier": False}
    # Rounds of epochs come in multiples.
    names |= {"rounds": True} if run.rounds_per_epoch is None else {}
    names |= {"sampling_probability": False} if run.sampling_probability is not None else {}
    names |= {"cohort": True} if run.cohort is not None else {}

    def changed(name: str) -> Callable[[float], Mechanism]:
        return lambda value: run.changed({name: value}).run(unit)

    found: dict[str, float | None] = {}
    for name, integer in names.items():
        try:
            answer = calibrate(changed(name), epsilon=target, integer=integer, **question)
            found[name] = answer.value
        except ParameterError:  # no admissible value of this number reaches the target
            found[name] = None
    return found
