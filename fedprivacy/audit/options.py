"""The options of the commands that judge a run, as arguments of ``audit``.

The command line and the browser page pass the same options, so they give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import integer, refuse
from ..sampling import FixedSize, Poisson, RandomAllocation, Scheme, Shuffled, WithReplacement
from .accounting import Audit, audit
from .each import RunAudit, each
from .imports import Origin, Rounds, Sampling, Trace, Unseen, is_ledger, several
from .imports.content import beginning
from .sources import PARAMETERS


def _claim(
    text: str | None, epsilon: float | None, delta: float | None
) -> tuple[float | None, float | None] | None:
    if text is not None:
        # Two forms of one claim might differ.
        if (epsilon, delta) != (None, None):
            refuse("--claim", text, "be given without --claim-epsilon and --claim-delta")
        return _pair(text)
    # The file gives the other half, if it states one.
    return None if (epsilon, delta) == (None, None) else (epsilon, delta)


def _pair(text: str) -> tuple[float, float]:
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        refuse("--claim", text, "be two numbers, epsilon and delta", "such as --claim 8,1e-5")
    return first, second


def facts_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options as named arguments of ``audit``, for a file."""
    names = ("adjacency", "observer", "auditor", "unit", "rounds", "noise_multiplier")
    facts = {name: given[name] for name in (*names, *Unseen.__members__)}
    facts["reviewed"] = given.get("reviewed")
    scheme = _scheme(given)
    # A scheme of a cohort holds its population. A second value might differ.
    held = getattr(scheme, "population", None) is not None
    facts |= {"sampling": scheme, "population": None if held else given["population"]}
    return facts | {"claim": _claim(given["claim"], given["epsilon"], given["delta"])}


def judge_files(sources: tuple[Path, ...], given: dict[str, Any]) -> Audit:
    """Return the audit of files, or of parameters if there is no file."""
    facts = facts_of(given)
    if not sources:
        typed = {**facts, "sampling": None, "population": None}
        return audit(_trace(given), **typed | {"rounds": None, "noise_multiplier": None})
    # Several sources are ledgers, audited together.
    return audit(sources[0] if len(sources) == 1 else sources, **facts)


def several_of(sources: tuple[Path, ...], given: dict[str, Any], *, apart: bool) -> list[RunAudit]:
    """Return the audits of a folder, or of a file with several runs; empty for anything else.

    Args:
        sources: files and folders.
        given: the options.
        apart: whether all sources are judged one by one.
    """
    if apart and sources:
        return [row for path in sources for row in each(path, **facts_of(given))]
    if len(sources) != 1:
        return []
    (path,) = sources
    if path.is_dir():
        found = each(path, **facts_of(given))
        if not found:
            refuse("FILE", str(path), "hold a record of a run", "none was found in this folder")
        return found
    many = not is_ledger(beginning(path)) and several(path)
    return each(path, **facts_of(given)) if many else []


def _trace(given: dict[str, Any]) -> Any:
    """Return the options as a trace. All of its facts are only stated."""
    if given["noise_multiplier"] is None:
        refuse("FILE", None, "be given", "or pass --noise-multiplier and --sampling instead")
    if given["sampling"] is None:
        refuse("--sampling", None, "be given", f"pass one of {', '.join(Sampling)}")
    rounds = Rounds(
        given["noise_multiplier"],
        Sampling(given["sampling"]),
        given["sampling_probability"],
        given["cohort"],
        given["population"],
        given["rounds_per_epoch"],
        take=given.get("take"),
    )
    count = 1 if given["rounds"] is None else integer(1, rounds=given["rounds"])
    counts = ("cohort", "population", "rounds_per_epoch", "take")
    names = ("noise_multiplier", "sampling", "sampling_probability", *counts)
    said = {**given, "rounds": count}
    return Trace(
        Origin(PARAMETERS),
        ((rounds, count),),
        other_facts={n: str(said[n]) for n in (*names, "rounds") if said.get(n) is not None},
    )


def _sized(kind: type[FixedSize | WithReplacement]) -> Callable[[int, int | None], Scheme]:
    """Return a function that makes a scheme of a cohort and a population."""

    def made(cohort: int, population: int | None) -> Scheme:
        # A cohort amplifies by its share of the population, so the population is required.
        if population is None:
            refuse("--population", None, "be given with --cohort")
        if kind is FixedSize and cohort > integer(1, population=population):
            refuse("--cohort", cohort, f"be at most the population of {population}")
        return kind(cohort, population=population)

    return made


_WHOLE: dict[str, dict[str, Callable[[Any, int | None], Scheme]]] = {
    "sampling_probability": {"poisson": lambda rate, _: Poisson(rate)},
    "cohort": {"fixed": _sized(FixedSize), "with-replacement": _sized(WithReplacement)},
    "rounds_per_epoch": {
        "shuffled": lambda rounds, _: Shuffled(rounds),
        "allocation": lambda rounds, _: RandomAllocation(rounds),
    },
}
"""Option -> the names of --sampling that it completes."""


def _scheme(given: dict[str, Any]) -> Scheme | str | None:
    """Return the stated sampling: a name, or a complete scheme."""
    name: str | None = given["sampling"]
    scheme: Scheme | str | None = name
    for said, kinds in _WHOLE.items():
        value = given[said]
        # Only options of the named scheme: an unused one would go unnoticed.
        if value is not None and name not in kinds:
            rule = f"be given with --sampling {' or '.join(kinds)}"
            refuse(f"--{said.replace('_', '-')}", value, rule)
        if value is not None and name is not None:
            scheme = kinds[name](value, given["population"])
    take = given.get("take")
    if take is None:
        return scheme
    if not isinstance(scheme, RandomAllocation):
        refuse("--take", take, "be given with --sampling allocation and --rounds-per-epoch")
    return RandomAllocation(scheme.rounds_per_epoch, take)
