"""Rounds against the plan that a run was begun with: what the plan's would have cost instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..errors import UnsupportedCombination
from ..ledger import Joint, Ledger, Round
from ..mechanisms import CorrelatedNoise, CorrelatedRow, Mechanism
from .repricing import as_observed, as_released, in_sequence, spent


def record_as_planned(ledger: Ledger | Joint) -> Mechanism | None:
    """Return a run as ``as_planned`` does; of several ledgers each by its own plan.

    Returns:
        None where plans name every round that was spent, or where there are none.
    """
    if isinstance(ledger, Ledger):
        return as_planned(ledger.alike, ledger.plan)
    found, left = [], False
    for one, start in ledger.parts:
        rest = one.alike_from(start)
        # What copies share was a part of each one's plan.
        planned = as_planned(rest, one.plan, one.alike if start else rest)
        left = left or planned is not None
        found.append(spent(rest).run if planned is None else planned)
    return in_sequence([(run, 1) for run in found if run is not None]) if left else None


def as_planned(
    rounds: Iterable[Round], plan: Mechanism | None, whole: Iterable[Round] | None = None
) -> Mechanism | None:
    """Return a run with its rounds that the plan does not name replaced by those it does.

    A round that takes another's place has the noise that was recorded, more of it too, where that
    can be said. Where several parts of the plan are missing, it is not known which of them a round
    stands for: as many of each are taken, which costs no less.

    Args:
        rounds: what was run.
        plan: the whole run as planned, if given.
        whole: all that was run of the plan; None for ``rounds``.

    Returns:
        None where the plan names every round that was spent, or where there is no plan.
    """
    if plan is None:
        return None
    parts = dict(plan.sequence())
    named, others = _told_apart(rounds, parts)
    if not others:
        return None
    everything = named if whole is None else _told_apart(whole, parts)[0]
    try:
        replaced = list(_replaced(others, _missing(everything, parts)))
        kept = spent(named).run
    except UnsupportedCombination:
        # Less noise, of what cannot be said: then the whole plan is what the rounds stand for.
        return plan
    return in_sequence([*replaced, *(() if kept is None else kept.sequence())])


def _told_apart(
    rounds: Iterable[Round], parts: Mapping[Mechanism, int]
) -> tuple[list[Round], list[Round]]:
    """Return the rounds that parts of a plan name, and the others."""
    # What released nothing costs nothing, whatever it is called.
    held = [(r, _is_named(r.mechanism, parts)) for r in rounds if r.spent]
    return [r for r, named in held if named], [r for r, named in held if not named]


def _whole(mechanism: Mechanism) -> Mechanism:
    """Return what a plan calls a round: a row of correlated noise is of its whole run."""
    return mechanism.run if isinstance(mechanism, CorrelatedRow) else mechanism


def _is_named(mechanism: Mechanism, parts: Mapping[Mechanism, int]) -> bool:
    return all(part in parts for part, _ in _whole(mechanism).sequence())


def _parts(rounds: Iterable[Round]) -> Iterator[tuple[Mechanism, int]]:
    """Yield what rounds were made of, as a plan calls it, with counts."""
    for r in rounds:
        for part, count in _whole(r.mechanism).sequence():
            yield part, count * r.times


def _missing(named: Iterable[Round], parts: Mapping[Mechanism, int]) -> dict[Mechanism, int]:
    """Return the parts of a plan that were not run, and how often; all where none is missing."""
    run: Counter[Mechanism] = Counter()
    for part, count in _parts(named):
        run[part] += count
    missing = {part: count - run[part] for part, count in parts.items() if count > run[part]}
    # Rounds that a crash repeated leave a plan behind them: any part may have come again.
    return missing or dict(parts)


def _replaced(
    others: list[Round], missing: Mapping[Mechanism, int]
) -> Iterator[tuple[Mechanism, int]]:
    """Yield parts of the plan in the place of rounds that it does not name, and their counts."""
    first, *more = missing
    # All rows of correlated noise are one release.
    if not more and not isinstance(first, CorrelatedNoise):
        yield from ((_with_its_noise(first, r), r.times) for r in others)
        return
    steps = sum(count for _, count in _parts(others))
    yield from ((part, min(count, steps)) for part, count in missing.items())


def _with_its_noise(part: Mechanism, r: Round) -> Mechanism:
    """Return a part with the noise that a round had; as planned where none of it counts."""
    noise = {"clip_norm": r.clip_norm, "planned_std": r.noise_std, "used_std": r.noise_used}
    return as_observed(part, **noise) or as_released(part, **noise) or part
