"""Compare rounds with the plan of the run, and price the planned rounds instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..errors import UnsupportedCombination
from ..ledger import Joint, Ledger, LedgerRound
from ..mechanisms import CorrelatedNoise, Mechanism
from ..mechanisms.correlated import whole_run
from .repricing import as_observed, as_released, in_sequence, spent


def record_as_planned(ledger: Ledger | Joint) -> Mechanism | None:
    """Return a run as ``as_planned`` does; with several ledgers, each by its own plan.

    Returns:
        None if the plans name every spent round, or if there are no plans.
    """
    if isinstance(ledger, Ledger):
        return as_planned(ledger.alike, ledger.plan)
    found, left = [], False
    for one, start in ledger.parts:
        rest = one.alike_from(start)
        # Rounds that copies share were part of each copy's plan.
        planned = as_planned(rest, one.plan, one.alike if start else rest)
        left = left or planned is not None
        found.append(spent(rest).run if planned is None else planned)
    return in_sequence([(run, 1) for run in found if run is not None]) if left else None


def as_planned(
    rounds: Iterable[LedgerRound],
    plan: Mechanism | None,
    whole: Iterable[LedgerRound] | None = None,
) -> Mechanism | None:
    """Return a run in which rounds outside the plan are replaced by rounds of the plan.

    A replacement has the recorded noise, even if this is more, as long as it can be represented. If
    several parts of the plan are missing, the part that a round belongs to is unknown. Then as many
    of each part are taken, which costs no less.

    Args:
        rounds: the rounds that ran.
        plan: the whole run as planned, if given.
        whole: all rounds of the plan that ran; None for ``rounds``.

    Returns:
        None if the plan names every spent round, or if there is no plan.
    """
    if plan is None:
        return None
    parts = dict(plan.sequence())
    named, others = _split_by_plan(rounds, parts)
    if not others:
        return None
    everything = named if whole is None else _split_by_plan(whole, parts)[0]
    try:
        replaced = list(_replaced(others, _missing(everything, parts)))
        kept = spent(named).run
    except UnsupportedCombination:
        # Less noise that cannot be represented: then the rounds are priced as the whole plan.
        return plan
    return in_sequence([*replaced, *(() if kept is None else kept.sequence())])


def _split_by_plan(
    rounds: Iterable[LedgerRound], parts: Mapping[Mechanism, int]
) -> tuple[list[LedgerRound], list[LedgerRound]]:
    """Return the rounds that parts of a plan name, and the others."""
    # A round that released no value costs no privacy, whatever its name.
    held = [(r, _is_named(r.mechanism, parts)) for r in rounds if r.spent]
    return [r for r, named in held if named], [r for r, named in held if not named]


def _is_named(mechanism: Mechanism, parts: Mapping[Mechanism, int]) -> bool:
    return all(part in parts for part, _ in whole_run(mechanism).sequence())


def _parts(rounds: Iterable[LedgerRound]) -> Iterator[tuple[Mechanism, int]]:
    """Yield the parts of rounds under the names of the plan, with counts."""
    for r in rounds:
        for part, count in whole_run(r.mechanism).sequence():
            yield part, count * r.times


def _missing(named: Iterable[LedgerRound], parts: Mapping[Mechanism, int]) -> dict[Mechanism, int]:
    """Return the parts of a plan that did not run, with counts; all parts if none is missing."""
    run: Counter[Mechanism] = Counter()
    for part, count in _parts(named):
        run[part] += count
    missing = {part: count - run[part] for part, count in parts.items() if count > run[part]}
    # Rounds repeated after a crash exceed the plan, so any part may have been repeated.
    return missing or dict(parts)


def _replaced(
    others: list[LedgerRound], missing: Mapping[Mechanism, int]
) -> Iterator[tuple[Mechanism, int]]:
    """Yield parts of the plan in place of rounds that it does not name, with counts."""
    first, *more = missing
    # All rows of correlated noise are one release.
    if not more and not isinstance(first, CorrelatedNoise):
        yield from ((_with_its_noise(first, r), r.times) for r in others)
        return
    steps = sum(count for _, count in _parts(others))
    yield from ((part, min(count, steps)) for part, count in missing.items())


def _with_its_noise(part: Mechanism, r: LedgerRound) -> Mechanism:
    """Return a part with the noise of a round; as planned if no noise is effective."""
    noise = {"clip_norm": r.clip_norm, "planned_std": r.noise_std, "used_std": r.noise_used}
    return as_observed(part, **noise) or as_released(part, **noise) or part
