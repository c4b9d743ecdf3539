"""Price recorded rounds by the noise that they really used.

A ledger holds only facts. This module turns them into mechanisms, for all other code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import MODERATE, LedgerError, ParameterError, UnsupportedCombination
from ..factors import Matrix
from ..ledger import LedgerRound
from ..mechanisms import CorrelatedNoise, CorrelatedRow, Mechanism, Run
from ..mechanisms.base import ROUNDING, mechanisms_in
from ..mechanisms.sums import together

_TOLD_APART = 1024
"""Above this number of rounds, rows with different noise are priced together."""

_OFF = 1e-9
"""Exceeds the relative error of the coefficients, for up to this number of rounds."""


@dataclass(frozen=True)
class Spent:
    """Recorded rounds as mechanisms.

    Attributes:
        run: the spent mechanism, equal rounds merged; None if no round was spent. A round with less
            noise than its mechanism states is priced by the used noise. A round with more noise is
            priced by its mechanism.
        certain: the part that was certainly released, for lower ends: the confirmed rounds with
            their real noise, even if it was more; None if there is none.
        notes: rounds with less noise than priced, in words.
        noiseless: the reason why no epsilon holds; empty if one may hold.
        noiseless_rounds: rounds without effective noise: their priced mechanism, their number, and
            whether each certainly released a sum without any noise.
        others: the mechanism of all other rounds.
    """

    run: Mechanism | None
    certain: Mechanism | None
    notes: tuple[str, ...] = ()
    noiseless: str = ""
    noiseless_rounds: tuple[tuple[Mechanism, int, bool], ...] = ()
    others: Mechanism | None = None


def spent(rounds: Iterable[LedgerRound]) -> Spent:
    """Return the mechanisms that rounds spent.

    Raises:
        UnsupportedCombination: if a round had less noise than planned and cannot be repriced.
    """
    held = list(rounds)
    # Rows of correlated noise are priced as one run, because a single row has no epsilon.
    groups = [*_groups(held), *_correlated(held)]
    noiseless = next((group.note for group in groups if group.actual is None), "")
    actual = [(group.actual, group.count) for group in groups if group.actual is not None]
    certain = [(group.certain, group.count) for group in groups if group.certain is not None]
    others = in_sequence(actual)
    return Spent(
        # One round without noise leaves no epsilon for the whole run.
        run=None if noiseless else others,
        certain=in_sequence(certain),
        notes=tuple(group.note for group in groups if group.note),
        noiseless=noiseless,
        noiseless_rounds=tuple((g.priced, g.count, g.bare) for g in groups if g.actual is None),
        others=others,
    )


def run_of(rounds: Iterable[LedgerRound]) -> Mechanism | None:
    """Return the mechanism that rounds spent; None if there are none.

    Raises:
        LedgerError: if a round was released with so little noise that no epsilon holds.
        UnsupportedCombination: see ``spent``.
    """
    found = spent(rounds)
    if found.noiseless:
        raise LedgerError(f"the ledger has no epsilon: {found.noiseless}")
    return found.run


def in_sequence(counted: Iterable[tuple[Mechanism, int]]) -> Mechanism | None:
    """Return mechanisms in sequence, equal ones merged; None if there are none."""
    steps = [
        (step, times * count)
        for mechanism, count in counted
        # Nested runs are expanded, so that equal steps are merged at any depth.
        for step, times in mechanism.sequence()
    ]
    return Run(together(steps)) if steps else None


def as_released(
    mechanism: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
) -> Mechanism | None:
    """Return the mechanism with the used noise, if this is less than the mechanism states.

    If all noise inside has one ratio to the clip norm, this ratio is compared with ``used_std /
    clip_norm``. With several kinds of noise, all are scaled together: by the smallest ratio, or by
    ``used_std / planned_std`` if that is smaller. If no ratio is known, the scale is ``used_std /
    planned_std``.

    Args:
        mechanism: the mechanism as priced.
        clip_norm: clip norm of the contributions.
        planned_std: planned std of the noise, above 0.
        used_std: std of the used noise, colluders' shares included.

    Returns:
        The mechanism itself if the noise was enough (more noise gains no credit), else one with
        less noise; None if no effective noise is left.

    Raises:
        UnsupportedCombination: if there was less noise and the mechanism cannot be repriced.
    """
    fraction = share_of_noise(mechanism, clip_norm, planned_std, used_std)
    # Decimals in the record may round the noise down a little. This does not count as less noise.
    return mechanism if fraction >= 1.0 - ROUNDING else mechanism.rescaled(fraction)


def as_observed(
    mechanism: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
) -> Mechanism | None:
    """Return the mechanism with exactly the used noise, for lower ends.

    The arguments are those of ``as_released``.

    Returns:
        The mechanism with less or more noise. None if no lower end is certain: no noise is
        effective, or there was more noise and its location is unknown.
    """
    fraction = share_of_noise(mechanism, clip_norm, planned_std, used_std)
    if not _knows_norm(mechanism, clip_norm):
        return None
    if abs(fraction - 1.0) <= ROUNDING:
        return mechanism
    kinds = len(mechanism.noise_ratios(clip_norm))
    # With several kinds of noise, more in total may mean less of one kind, and vice versa.
    if kinds > 1 or (fraction > 1.0 and kinds != 1):
        return None
    if fraction > MODERATE[1]:
        return None  # with this much noise, the data sets are indistinguishable
    try:
        return mechanism.rescaled(fraction)
    except (UnsupportedCombination, ParameterError):
        return None  # the scheme or theorem has a condition that this noise breaks


def _knows_norm(mechanism: Mechanism, clip_norm: float) -> bool:
    """Return whether the clip norm fixes the scale of the noise, in every part of a mechanism."""
    inside = all(_knows_norm(one, clip_norm) for one in mechanisms_in(mechanism))
    return inside and mechanism.knows_norm(clip_norm)


def share_of_noise(mechanism: Mechanism, clip_norm: float, planned: float, used: float) -> float:
    """Return the used fraction of the noise that a mechanism states."""
    ratios = mechanism.noise_ratios(clip_norm)
    if not ratios:
        return used / planned
    # The smallest noise ratio is the weakest part, so it decides.
    stated = used / clip_norm / min(ratios)
    return stated if len(ratios) == 1 else min(stated, used / planned)


@dataclass(frozen=True)
class _PricedRounds:
    """Spent rounds with one price.

    ``actual`` is None if no noise is effective, ``certain`` if no release is certain. ``bare``
    states whether every round certainly released a value without any noise.
    """

    priced: Mechanism
    actual: Mechanism | None
    certain: Mechanism | None
    count: int
    note: str = ""
    bare: bool = False


def _groups(rounds: Iterable[LedgerRound]) -> list[_PricedRounds]:
    """Return the spent rounds, merged by mechanism and noise, without rows of correlated noise."""
    first: dict[tuple[Hashable, ...], LedgerRound] = {}
    counts: Counter[tuple[Hashable, ...]] = Counter()
    for r in rounds:
        if r.spent and not isinstance(r.mechanism, CorrelatedRow):
            # Keys use the identity: rounds share their mechanism objects, and comparison costs
            # more.
            key = (id(r.mechanism), r.clip_norm, r.noise_std, r.noise_used, _released(r))
            first.setdefault(key, r)
            counts[key] += r.times
    return [_group(r, counts[key]) for key, r in first.items()]


def _correlated(rounds: Iterable[LedgerRound]) -> list[_PricedRounds]:
    """Return runs of correlated noise: any row of a run is priced as the whole run.

    Every row keeps its own noise, or gets the smallest noise of all rows if rows cannot be priced
    separately. The participation of units is the most frequent and the closest that any row
    records. The certain part is the first rows, up to the first unconfirmed one.
    """
    # The additional rounds of a copied ledger are one more whole run (correlated_noise.md,
    # "copied").
    runs: dict[tuple[CorrelatedNoise, int], list[tuple[LedgerRound, CorrelatedRow]]] = {}
    for r in rounds:
        if r.spent and isinstance(r.mechanism, CorrelatedRow):
            runs.setdefault((r.mechanism.run, r.part), []).append((r, r.mechanism))
    return [_whole_run(run, held) for (run, _), held in runs.items()]


def _whole_run(
    run: CorrelatedNoise, held: list[tuple[LedgerRound, CorrelatedRow]]
) -> _PricedRounds:
    rows = [row for _, row in held]
    if all(row.kept for row in rows):
        certain, came = _surely(run, held), ""
    else:
        certain, (run, came) = None, _as_clients_came(run, rows)
    priced, less = _priced(run, held)
    remarks = "; ".join(filter(None, (came, less)))
    note = remarks and f"{len(held)} rows of correlated noise: {remarks}"
    # A row without noise still contains the noise of other rows, unless these have none either.
    bare = all(r.noise_used == 0.0 and _released(r) for r, _ in held)
    return _PricedRounds(run, priced, certain, 1, note, bare)


def _priced(
    run: CorrelatedNoise, held: list[tuple[LedgerRound, CorrelatedRow]]
) -> tuple[CorrelatedNoise | None, str]:
    """Return a run with the noise of its rows, and a note if this is less than planned."""
    # One weak row reveals the whole sequence, because rows are correlated.
    ratio = min(r.noise_used / r.clip_norm for r, _ in held)
    if ratio >= run.noise_multiplier * (1.0 - ROUNDING):
        return run, ""
    note = (
        f"a row had noise of std {ratio:.6g} clip norms, less than planned; it is accounted "
        "with that noise"
    )
    return _with_less(run, ratio, held), note


def _surely(
    run: CorrelatedNoise, held: list[tuple[LedgerRound, CorrelatedRow]]
) -> CorrelatedNoise | None:
    """Return the certain part: leading rows up to the first unconfirmed one, or None."""
    had: dict[int, float] = {}
    for r, row in held:
        if _released(r):
            # A row that occurs twice reveals at least as much as its noisier release.
            had[row.row] = max(r.noise_used / r.clip_norm, had.get(row.row, 0.0))
    # A lower end needs the leading rows without a gap.
    first = next(i for i in range(len(had) + 1) if i not in had)
    if not first:
        return None
    try:
        leading = run.leading(first)
    except ParameterError:
        return None  # too few rounds for the factor
    return _with_least_loss(leading, [had[row] for row in range(first)])


def _with_least_loss(leading: CorrelatedNoise, had: Sequence[float]) -> CorrelatedNoise | None:
    """Return rows for a lower end: row by row if possible, else all with the largest noise.

    A row with less noise reveals no less: independent noise added to its z gives a row with the
    largest noise.
    """
    most = max(had)
    differ = most - min(had) > ROUNDING * most
    own = _by_rows(leading, had, certain=True) if differ else None
    if own is not None:
        return own
    share = most / leading.noise_multiplier
    return leading if abs(share - 1.0) <= ROUNDING else leading.rescaled(share)


def _with_less(
    run: CorrelatedNoise, least: float, held: list[tuple[LedgerRound, CorrelatedRow]]
) -> CorrelatedNoise | None:
    """Return a run in which some rows had less noise than planned; ``least`` is the smallest."""
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
    """Return a run whose rows had different noise; None if this cannot be represented.

    If z_i has std s_i instead of s, the run is that of the factor diag(s / s_i) C: its rows are
    scaled.

    Args:
        run: the run as planned.
        had: std of z in every row, divided by the clip norm.
        certain: whether the result is for lower ends; otherwise for upper ends.
    """
    if run.rounds > _TOLD_APART or min(had) <= 0.0:
        return None
    of, off = (run.factor.matrix, -_OFF) if certain else (run.factor.magnitudes, _OFF)
    matrix = of(run.rounds)
    # A tree has more rows than rounds. With mixed signs, sums could lose the rounding margin.
    if len(matrix) != run.rounds or (certain and (matrix < 0.0).any()):
        return None
    scales = run.noise_multiplier / np.array(had)
    try:
        rows = Matrix(matrix * scales[:, None] * (1.0 + off))  # type: ignore[arg-type]
        return replace(run, factor=rows)
    except ParameterError:
        return None  # the noise is too small to represent


def _as_clients_came(
    run: CorrelatedNoise, rows: list[CorrelatedRow]
) -> tuple[CorrelatedNoise, str]:
    """Return the run with the most frequent participation of any row, and a note on it."""
    # A ledger without a separation does not contradict the plan.
    soonest = min((row.separation for row in rows if row.separation), default=run.rounds)
    most = max((row.participations or 0 for row in rows), default=0)
    note = (
        f"a client took part after {soonest} rounds, or {most} times; the run is accounted "
        "with these numbers"
    )
    rule = run.participation
    gap, times = min(soonest, rule.gap(run.rounds)), max(most, rule.most(run.rounds))
    try:
        return run.with_gaps(gap, times), note
    except ParameterError as problem:
        raise UnsupportedCombination(
            f"clients took part sooner than planned: {problem}"
        ) from problem


def _released(r: LedgerRound) -> bool:
    """Return whether a round certainly released a value: confirmed, with at least one arrival."""
    # A cohort without members releases only noise, which is a release as well.
    return r.done is not None and (r.done.arrived > 0 or r.done.cohort == 0)


def _group(r: LedgerRound, count: int) -> _PricedRounds:
    noise = {"clip_norm": r.clip_norm, "planned_std": r.noise_std, "used_std": r.noise_used}
    actual = as_released(r.mechanism, **noise)
    certain = as_observed(r.mechanism, **noise) if _released(r) else None
    if actual == r.mechanism:
        return _PricedRounds(r.mechanism, actual, certain, count)
    which = f"round {r.index}" if count == 1 else f"{count} rounds from round {r.index}"
    priced = "it is accounted with this noise" if actual else "it is accounted without noise"
    note = (
        f"{which} had noise of std {r.noise_used:.6g} at clip norm {r.clip_norm:.6g}, less "
        f"than the mechanism states; {priced}"
    )
    bare = r.noise_used == 0.0 and r.done is not None and r.done.arrived > 0
    return _PricedRounds(r.mechanism, actual, certain, count, note, bare)
