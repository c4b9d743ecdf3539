"""Rounds against the plan that a run was begun with: what the plan's would have cost instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..errors import UnsupportedCombination
from ..ledger import Round
from ..mechanisms import CorrelatedNoise, CorrelatedRow, Mechanism
from .repricing import as_observed, as_released, in_sequence, spent


def as_planned(rounds: Iterable[Round], plan: Mechanism | None) -> Mechanism | None:
    """Return a run with its rounds that the plan does not name replaced by those it does.

    A round that takes another's place has the noise that was recorded, more of it too, where that
    can be said. Where several parts of the plan are missing, it is not known which of them a round
    stands for: as many of each are taken, which costs no less.

    Returns:
        None where the plan names every round that was spent, or where there is no plan.
    """
    if plan is None:
        return None
    parts = dict(plan.sequence())
    named: list[Round] = []
    others: list[Round] = []
    for r in rounds:
        # What released nothing costs nothing, whatever it is called.
        if r.spent:
            (named if _is_named(r.mechanism, parts) else others).append(r)
    if not others:
        return None
    try:
        replaced = list(_replaced(others, _missing(named, parts)))
        kept = spent(named).run
    except UnsupportedCombination:
        # Less noise, of what cannot be said: then the whole plan is what the rounds stand for.
        return plan
    return in_sequence([*replaced, *(() if kept is None else kept.sequence())])


def _whole(mechanism: Mechanism) -> Mechanism:
    """Return what a plan calls a round: a row of correlated noise is of its whole run."""
    return mechanism.run if isinstance(mechanism, CorrelatedRow) else mechanism


def _is_named(mechanism: Mechanism, parts: Mapping[Mechanism, int]) -> bool:
    return all(part in parts for part, _ in _whole(mechanism).sequence())


def _missing(named: Iterable[Round], parts: Mapping[Mechanism, int]) -> dict[Mechanism, int]:
    """Return the parts of a plan that were not run, and how often; all where none is missing."""
    run: Counter[Mechanism] = Counter()
    for r in named:
        for part, count in _whole(r.mechanism).sequence():
            run[part] += count * r.times
    missing = {part: count - run[part] for part, count in parts.items() if count > run[part]}
    # Rounds that a crash repeated leave a plan behind them: any part may have come again.
    return missing or dict(parts)


def _replaced(
    others: Iterable[Round], missing: Mapping[Mechanism, int]
) -> Iterator[tuple[Mechanism, int]]:
    """Yield parts of the plan in the place of rounds that it does not name, and their counts."""
    held = list(others)
    steps = sum(count * r.times for r in held for _, count in _whole(r.mechanism).sequence())
    only = next(iter(missing)) if len(missing) == 1 else None
    for part, count in missing.items():
        # All rows of correlated noise are one release.
        if part is not only or isinstance(part, CorrelatedNoise):
            yield part, min(count, steps)
    if only is not None and not isinstance(only, CorrelatedNoise):
        for r in held:
            yield _with_its_noise(only, r), r.times


def _with_its_noise(part: Mechanism, r: Round) -> Mechanism:
    """Return a part with the noise that a round had; as planned where none of it counts."""
    noise = {"clip_norm": r.clip_norm, "planned_std": r.noise_std, "used_std": r.noise_used}
    return as_observed(part, **noise) or as_released(part, **noise) or part
