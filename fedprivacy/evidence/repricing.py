"""Rounds as they were really released: priced by the noise that was used.

A ledger holds facts; what they amount to is said here, once for all who ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import MODERATE, LedgerError, ParameterError, UnsupportedCombination
from ..factors import Matrix
from ..ledger import Round
from ..mechanisms import CorrelatedNoise, CorrelatedRow, Mechanism, Run
from ..mechanisms.base import ROUNDING, together

_TOLD_APART = 1024
"""Most rounds of which rows with noise of different size are told apart."""

_OFF = 1e-9
"""More than coefficients of so many rounds are off by, relatively."""


@dataclass(frozen=True)
class Spent:
    """What recorded rounds amount to.

    Attributes:
        run: the mechanism that was spent, equal rounds together; None if nothing was. A round with
            less noise than its mechanism says is priced by what it had, one with more as its
            mechanism says.
        certain: what was surely released, for lower ends: rounds that were confirmed, with the
            noise that they really had, more of it too; None if nothing was.
        notes: rounds whose noise was less than priced.
        noiseless: why no epsilon holds; empty where one may.
        clear: rounds in which no noise counts, with their counts, as they were priced; and whether
            each surely released a sum without any noise.
        others: the mechanism of all other rounds.
    """

    run: Mechanism | None
    certain: Mechanism | None
    notes: tuple[str, ...] = ()
    noiseless: str = ""
    clear: tuple[tuple[Mechanism, int, bool], ...] = ()
    others: Mechanism | None = None


def spent(rounds: Iterable[Round]) -> Spent:
    """Return what rounds amount to.

    Raises:
        UnsupportedCombination: a round had less noise than planned, and what that is cannot be
            said.
    """
    held = list(rounds)
    # Rows of correlated noise are priced as one run: a row alone has no epsilon.
    groups = [*_groups(held), *_correlated(held)]
    noiseless = next((group.note for group in groups if group.actual is None), "")
    actual = [(group.actual, group.count) for group in groups if group.actual is not None]
    certain = [(group.certain, group.count) for group in groups if group.certain is not None]
    others = in_sequence(actual)
    return Spent(
        # One round without noise leaves no epsilon for the whole.
        run=None if noiseless else others,
        certain=in_sequence(certain),
        notes=tuple(group.note for group in groups if group.note),
        noiseless=noiseless,
        clear=tuple((g.priced, g.count, g.bare) for g in groups if g.actual is None),
        others=others,
    )


def run_of(rounds: Iterable[Round]) -> Mechanism | None:
    """Return the mechanism that rounds spent; None if none did.

    Raises:
        LedgerError: a round was released with so little noise that no epsilon holds.
        UnsupportedCombination: see ``spent``.
    """
    found = spent(rounds)
    if found.noiseless:
        raise LedgerError(f"the ledger has no epsilon: {found.noiseless}")
    return found.run


def in_sequence(counted: Iterable[tuple[Mechanism, int]]) -> Mechanism | None:
    """Return mechanisms in sequence, equal ones together; None if there are none."""
    steps = [
        (step, times * count)
        for mechanism, count in counted
        # Nested runs are opened, so that equal steps meet wherever they stand.
        for step, times in mechanism.sequence()
    ]
    return Run(together(steps)) if steps else None


def as_released(
    mechanism: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
) -> Mechanism | None:
    """Return the mechanism with the noise that was used, where that is less than it says.

    Where all noise inside has one ratio to the clip norm, that is compared with ``used_std /
    clip_norm``. Of several kinds, all are scaled together: by the smallest of them, or by
    ``used_std / planned_std`` if that is less. Where none is known, by the latter alone.

    Args:
        mechanism: as priced.
        clip_norm: norm that contributions were clipped to.
        planned_std: std of the noise as planned, above 0.
        used_std: std of the noise as used, colluders' shares included.

    Returns:
        The mechanism itself if the noise was enough (more noise gains nothing), else one with less
        noise; None if no noise is left that counts.

    Raises:
        UnsupportedCombination: there was less noise, and the mechanism cannot be repriced.
    """
    fraction = share_of_noise(mechanism, clip_norm, planned_std, used_std)
    # The record's decimals may round the noise down a little: that is not less noise.
    return mechanism if fraction >= 1.0 - ROUNDING else mechanism.rescaled(fraction)


def as_observed(
    mechanism: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
) -> Mechanism | None:
    """Return the mechanism with just the noise that was used: what a lower end may count on.

    Arguments are those of ``as_released``.

    Returns:
        The mechanism with less noise or with more; None where nothing is certain: no noise counts,
        or there was more, and what of it is where cannot be said.
    """
    fraction = share_of_noise(mechanism, clip_norm, planned_std, used_std)
    if not _knows_norm(mechanism, clip_norm):
        return None
    if abs(fraction - 1.0) <= ROUNDING:
        return mechanism
    kinds = len(mechanism.noise_ratios(clip_norm))
    # Of several kinds of noise more in all may mean less of one, and less in all more.
    if kinds > 1 or (fraction > 1.0 and kinds != 1):
        return None
    if fraction > MODERATE[1]:
        return None  # so loud that nothing is to be told apart
    try:
        return mechanism.rescaled(fraction)
    except (UnsupportedCombination, ParameterError):
        return None  # a scheme, or a theorem, that asks for what this round did not need


def _knows_norm(mechanism: Mechanism, clip_norm: float) -> bool:
    """Return whether a clip norm says of what unit the noise is, of all that a mechanism holds."""
    inside = all(_knows_norm(one, clip_norm) for one in mechanism.holds)
    return inside and mechanism.knows_norm(clip_norm)


def share_of_noise(mechanism: Mechanism, clip_norm: float, planned: float, used: float) -> float:
    """Return how much of the noise that a mechanism says was used."""
    ratios = mechanism.noise_ratios(clip_norm)
    if not ratios:
        return used / planned
    # The smallest noise is the weakest: what reaches it decides.
    stated = used / clip_norm / min(ratios)
    return stated if len(ratios) == 1 else min(stated, used / planned)


@dataclass(frozen=True)
class _Group:
    """Spent rounds that are priced alike.

    ``actual`` is None where no noise counts, ``certain`` where nothing was surely released.
    ``bare`` is whether every round surely released something without any noise.
    """

    priced: Mechanism
    actual: Mechanism | None
    certain: Mechanism | None
    count: int
    note: str = ""
    bare: bool = False


def _groups(rounds: Iterable[Round]) -> list[_Group]:
    """Return the spent rounds, those with equal mechanism and noise together; no rows."""
    first: dict[tuple[Hashable, ...], Round] = {}
    counts: Counter[tuple[Hashable, ...]] = Counter()
    for r in rounds:
        if r.spent and not isinstance(r.mechanism, CorrelatedRow):
            # By identity: rounds share the objects of their mechanisms, and comparing costs more.
            key = (id(r.mechanism), r.clip_norm, r.noise_std, r.noise_used, _released(r))
            first.setdefault(key, r)
            counts[key] += r.times
    return [_group(r, counts[key]) for key, r in first.items()]


def _correlated(rounds: Iterable[Round]) -> list[_Group]:
    """Return runs of correlated noise: any row of one is priced as the whole of it.

    Every row has the noise that it had, or all that of the one that had least where rows cannot be
    told apart; units came as soon and as often as any row says. What surely ran are the first rows,
    as far as each was confirmed.
    """
    # What a copy of a ledger adds is a whole run more (correlated_noise.md, "copied").
    runs: dict[tuple[CorrelatedNoise, int], list[tuple[Round, CorrelatedRow]]] = {}
    for r in rounds:
        if r.spent and isinstance(r.mechanism, CorrelatedRow):
            runs.setdefault((r.mechanism.run, r.part), []).append((r, r.mechanism))
    return [_whole_run(run, held) for (run, _), held in runs.items()]


def _whole_run(run: CorrelatedNoise, held: list[tuple[Round, CorrelatedRow]]) -> _Group:
    rows = [row for _, row in held]
    if all(row.kept for row in rows):
        certain, came = _surely(run, held), ""
    else:
        certain, (run, came) = None, _as_clients_came(run, rows)
    priced, less = _priced(run, held)
    told = "; ".join(filter(None, (came, less)))
    note = told and f"{len(held)} rows of correlated noise: {told}"
    # A row without noise of its own still holds that of other rows, unless they have none either.
    bare = all(r.noise_used == 0.0 and _released(r) for r, _ in held)
    return _Group(run, priced, certain, 1, note, bare)


def _priced(
    run: CorrelatedNoise, held: list[tuple[Round, CorrelatedRow]]
) -> tuple[CorrelatedNoise | None, str]:
    """Return a run with the noise that its rows had, and a line that tells where it is less."""
    # One weak row shows the whole sequence, since rows are correlated.
    ratio = min(r.noise_used / r.clip_norm for r, _ in held)
    if ratio >= run.noise_multiplier * (1.0 - ROUNDING):
        return run, ""
    told = f"a row had noise of {ratio:.6g} of the clip norm; it is priced by what it had"
    return _with_less(run, ratio, held), told


def _surely(
    run: CorrelatedNoise, held: list[tuple[Round, CorrelatedRow]]
) -> CorrelatedNoise | None:
    """Return what surely ran: the leading rows, as far as each was confirmed; None for none."""
    had: dict[int, float] = {}
    for r, row in held:
        if _released(r):
            # A row that is there twice is known by the louder one's noise at least.
            had[row.row] = max(r.noise_used / r.clip_norm, had.get(row.row, 0.0))
    # A lower end needs the leading rows without a gap.
    first = next(i for i in range(len(had) + 1) if i not in had)
    if not first:
        return None
    try:
        leading = run.leading(first)
    except ParameterError:
        return None  # so few rounds that the factor does not serve them
    return _loudest(leading, [had[row] for row in range(first)])


def _loudest(leading: CorrelatedNoise, had: Sequence[float]) -> CorrelatedNoise | None:
    """Return rows with the noise of the one that had most, told apart where that can be said.

    A row with less shows no less: independent noise added to its z makes it one with the most.
    """
    most = max(had)
    told_apart = most - min(had) > ROUNDING * most
    own = _by_rows(leading, had, certain=True) if told_apart else None
    if own is not None:
        return own
    share = most / leading.noise_multiplier
    return leading if abs(share - 1.0) <= ROUNDING else leading.rescaled(share)


def _with_less(
    run: CorrelatedNoise, least: float, held: list[tuple[Round, CorrelatedRow]]
) -> CorrelatedNoise | None:
    """Return a run some of whose rows had less noise than planned, the least as said."""
    weakest = run.rescaled(least / run.noise_multiplier)
    had = [run.noise_multiplier] * run.rounds
    for r, row in held:
        had[row.row] = min(r.noise_used / r.clip_norm, had[row.row])
    own = _by_rows(run, had, certain=False)
    if weakest is None or own is None:
        return weakest
    return min(own, weakest, key=lambda one: one.sensitivity.upper / one.noise_multiplier)


def _by_rows(
    run: CorrelatedNoise, had: Sequence[float], *, certain: bool
) -> CorrelatedNoise | None:
    """Return a run whose rows had noise of different size; None where that cannot be said.

    With std s_i of z_i it is the run of diag(s / s_i) C, by multiplying rows.

    Args:
        run: as planned.
        had: every row's std of z over the clip norm.
        certain: whether it is for lower ends, else for upper ones.
    """
    if run.rounds > _TOLD_APART or min(had) <= 0.0:
        return None
    of, off = (run.factor.matrix, -_OFF) if certain else (run.factor.magnitudes, _OFF)
    matrix = of(run.rounds)
    # A tree has more rows than rounds; sums with signs may lose what numbers are off by.
    if len(matrix) != run.rounds or (certain and (matrix < 0.0).any()):
        return None
    scales = run.noise_multiplier / np.array(had)
    try:
        rows = Matrix(matrix * scales[:, None] * (1.0 + off))  # type: ignore[arg-type]
        return replace(run, factor=rows)
    except ParameterError:
        return None  # noise so small that nothing is left to be said


def _as_clients_came(
    run: CorrelatedNoise, rows: list[CorrelatedRow]
) -> tuple[CorrelatedNoise, str]:
    """Return the run with clients as soon and as often as any row says, and a line that tells."""
    # A ledger without a separation says nothing against the plan.
    soonest = min((row.separation for row in rows if row.separation), default=run.rounds)
    most = max((row.participations or 0 for row in rows), default=0)
    told = f"somebody came after {soonest} rounds, or {most} times; it is priced by that"
    rule = run.participation
    gap, times = min(soonest, rule.gap(run.rounds)), max(most, rule.most(run.rounds))
    try:
        return run.with_gaps(gap, times), told
    except ParameterError as problem:
        raise UnsupportedCombination(f"clients came sooner than planned: {problem}") from problem


def _released(r: Round) -> bool:
    """Return whether a round surely released something: confirmed, and somebody of it arrived."""
    # A cohort without members releases noise alone, which is a release as well.
    return r.done is not None and (r.done.arrived > 0 or r.done.cohort == 0)


def _group(r: Round, count: int) -> _Group:
    noise = {"clip_norm": r.clip_norm, "planned_std": r.noise_std, "used_std": r.noise_used}
    actual = as_released(r.mechanism, **noise)
    certain = as_observed(r.mechanism, **noise) if _released(r) else None
    if actual == r.mechanism:
        return _Group(r.mechanism, actual, certain, count)
    which = f"round {r.index}" if count == 1 else f"{count} rounds, the first of them {r.index},"
    priced = "it is priced by what it had" if actual else "no noise counts in it"
    note = (
        f"{which} had noise of std {r.noise_used:.6g} at clip norm {r.clip_norm:.6g}, less than "
        f"its mechanism says; {priced}"
    )
    bare = r.noise_used == 0.0 and r.done is not None and r.done.arrived > 0
    return _Group(r.mechanism, actual, certain, count, note, bare)
