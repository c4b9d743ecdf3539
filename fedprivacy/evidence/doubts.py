"""Find rounds in a ledger that contradict their mechanisms and sampling schemes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

from ..ledger import Ledger, LedgerRound
from ..mechanisms import (
    AdaptiveClipping,
    CorrelatedNoise,
    CorrelatedRow,
    Drawn,
    HiddenAveraging,
    Mechanism,
    NoisySGD,
    Parallel,
    Run,
)
from ..mechanisms.base import mechanisms_in
from ..mechanisms.noise_shares import noise_mismatch
from ..mechanisms.sparsification import fingerprint
from ..sampling import Poisson, Scheme
from ..sampling.cohorts import FALSE_DOUBT, told_by
from ..sampling.scheme import least_drawn, most_drawn, secret_size, unlikely


def doubts(rounds: Sequence[LedgerRound]) -> tuple[str, ...]:
    """Return doubts about a record: cohorts or noise that contradict its mechanisms.

    A doubt is either certain, or it is false with probability at most ``FALSE_DOUBT`` in a whole
    ledger.
    """
    return (
        *_odd_noise(rounds),
        *_odd_denominators(rounds),
        *_odd_cohorts(rounds),
        *_odd_for_all(rounds),
        *_noise_with_cohorts(rounds),
        *_odd_rows(rounds),
    )


def _odd_rows(rounds: Iterable[LedgerRound]) -> tuple[str, ...]:
    """Return doubts about correlated-noise rows that are out of order or may be duplicated."""
    found: dict[str, list[LedgerRound]] = {}
    last: dict[tuple[CorrelatedNoise, int], int] = {}
    norms: dict[tuple[CorrelatedNoise, int], float] = {}
    for r in rounds:
        if isinstance(r.mechanism, CorrelatedRow) and r.spent:
            run = r.mechanism.run, r.part
            # A row contains clipped updates of earlier rounds, so all rows need one clip norm.
            if r.clip_norm != norms.setdefault(run, r.clip_norm):
                doubt = "a row of correlated noise with a different clip norm than earlier rows"
                found.setdefault(doubt, []).append(r)
            before = last.get(run, -1)
            # A row that is repeated or out of order shows its noise twice.
            if r.mechanism.row <= before or r.times > 1:
                doubt = "a row of correlated noise that may have been released before"
                found.setdefault(doubt, []).append(r)
            last[run] = max(before, r.mechanism.row)
    return _in_words(found)


def odd_masks(ledger: Ledger, rounds: Iterable[LedgerRound]) -> tuple[str, ...]:
    """Return rows of correlated noise whose coordinates are not those of their block.

    The coordinates follow from the nonce of the ledger, which is fixed before any data. A run with
    a seed derives them from the seed, so for it the test only requires that they stay the same.
    """
    first: dict[Hashable, str | None] = {}
    found: dict[str, list[LedgerRound]] = {}
    for r, at, mask in _masks(ledger, rounds):
        wanted = fingerprint(at.run.mask(at.row, ledger.nonce))
        if wanted is not None and ledger.reproducible:
            wanted = first.setdefault((at.run, at.run.block_of(at.row)), mask)
        if mask != wanted:
            found.setdefault("a mask that differs from the mask of its block", []).append(r)
    return _in_words(found)


def _masks(
    ledger: Ledger, rounds: Iterable[LedgerRound]
) -> Iterator[tuple[LedgerRound, CorrelatedRow, str | None]]:
    """Yield the confirmed rows of correlated noise, with their masks."""
    # Masks need single rounds, which long ledgers without these rows should not expand.
    if any(isinstance(r.mechanism, CorrelatedRow) for r in rounds):
        for r in ledger.rounds:
            if r.done is not None and isinstance(r.mechanism, CorrelatedRow):
                yield r, r.mechanism, r.done.mask


def _odd_noise(rounds: Iterable[LedgerRound]) -> tuple[str, ...]:
    found: dict[str, list[LedgerRound]] = {}
    for r in rounds:
        if r.done is None or not r.spent:
            continue
        # A refused contribution still came with a share of the noise.
        shares = r.done.arrived + r.done.refused
        ratio = r.done.noise_std / r.clip_norm
        doubt = noise_mismatch(r.mechanism, shares=shares, noise_multiplier=ratio)
        if doubt:
            found.setdefault(doubt, []).append(r)
    return _in_words(found)


def _odd_denominators(rounds: Iterable[LedgerRound]) -> tuple[str, ...]:
    """Return hidden runs whose sums were divided by another number than stated."""
    found: dict[str, list[LedgerRound]] = {}
    for r in rounds:
        used = None if r.done is None else r.done.denominator
        inside = (r.mechanism, *(part for part, _ in _parts(r.mechanism)))
        kinds = NoisySGD, HiddenAveraging
        stated = {one.denominator for one in inside if isinstance(one, kinds)}
        if used is not None and stated and used not in stated:
            known = ", ".join(f"{one:.6g}" for one in sorted(stated))
            doubt = f"a denominator of {used:.6g}, but the steps state {known}"
            found.setdefault(doubt, []).append(r)
    return _in_words(found)


def _odd_cohorts(rounds: Iterable[LedgerRound]) -> tuple[str, ...]:
    drawn = _by_scheme(rounds)
    found: dict[str, list[LedgerRound]] = {}
    for scheme, by_size in drawn.items():
        counts = {size: _count(which) for size, which in by_size.items()}
        # All schemes of the ledger share the probability of a false doubt.
        for doubt, odd in unlikely(scheme, counts, FALSE_DOUBT / len(drawn)):
            found.setdefault(doubt, []).extend(r for size in odd for r in by_size[size])
    return _in_words(found)


def _odd_for_all(rounds: Iterable[LedgerRound]) -> tuple[str, ...]:
    """Return rounds of several draws with more or fewer participants than all draws allow."""
    found: dict[str, list[LedgerRound]] = {}
    for r in rounds:
        # A single draw is tested against its scheme's full law of cohort sizes.
        if r.done is None or _one_draw(r.mechanism) is not None:
            continue
        most, least = _most_drawn(r.mechanism), _least_drawn(r.mechanism)
        # These limits are valid whether a unit drawn twice counts once or twice.
        if most is not None and r.done.cohort > most:
            doubt = f"{r.done.cohort} participants, but all draws of a round take at most {most}"
            found.setdefault(doubt, []).append(r)
        if r.done.cohort < least:
            doubt = f"{r.done.cohort} participants, but one draw of a round takes at least {least}"
            found.setdefault(doubt, []).append(r)
    return _in_words(found)


def _most_drawn(mechanism: Mechanism) -> int | None:
    """Return the largest number of units in all draws of a mechanism; None if unknown."""
    drawn = _one_draw(mechanism)
    if drawn is not None:
        return most_drawn(drawn.scheme)
    parts, all_draws = _parts(mechanism), 0
    if not parts:
        return None
    for part, count in parts:
        most = _most_drawn(part)
        if most is None:
            return None
        all_draws += count * most
    return all_draws


def _least_drawn(mechanism: Mechanism) -> int:
    """Return the smallest number of different units in the draws of a mechanism."""
    drawn = _one_draw(mechanism)
    if drawn is not None:
        return least_drawn(drawn.scheme)
    # All draws may take the same units, and kinds may share a draw, so the largest minimum counts.
    return max((_least_drawn(part) for part, _ in _parts(mechanism)), default=0)


def _parts(mechanism: Mechanism) -> tuple[tuple[Mechanism, int], ...]:
    """Return the mechanisms that all run in a round, with counts; empty if this is not known."""
    if isinstance(mechanism, Parallel):
        return tuple((one, 1) for one in mechanism.mechanisms)
    # Trials of a selection are secret, and so are their participants.
    return mechanism.parts if isinstance(mechanism, Run) else ()


def _noise_with_cohorts(rounds: Iterable[LedgerRound]) -> tuple[str, ...]:
    """Return noise or clip norms that depend on the size of random cohorts and reveal it."""
    drawn = {
        scheme: by_size
        for scheme, by_size in _by_scheme(rounds).items()
        # Rounds of an epoch are not drawn independently.
        if secret_size(scheme) and not hasattr(scheme, "rounds_per_epoch")
    }
    found: dict[str, list[LedgerRound]] = {}
    for scheme, by_size in drawn.items():
        held = [(size, r) for size, which in by_size.items() for r in which]
        rate = scheme.probability if isinstance(scheme, Poisson) else None
        for what, number in (("noise that varies", _noise), ("clip norms that vary", _norm)):
            counts = Counter[tuple[int, float]]()
            for size, r in held:
                counts[size, number(r)] += r.times
            if told_by(counts, FALSE_DOUBT / (2.0 * len(drawn)), rate):
                doubt = f"{what} with the number of participants"
                found.setdefault(doubt, []).extend(r for _, r in held)
    return _in_words(found)


def _noise(r: LedgerRound) -> float:
    """Return the noise of a round in clip norms; 0 if the round did not end."""
    return 0.0 if r.done is None else r.done.noise_std / r.clip_norm


def _norm(r: LedgerRound) -> float:
    """Return the clip norm of a round; 0 for a learned one, which depends on earlier rounds."""
    return 0.0 if _learns(r.mechanism) else r.clip_norm


def _learns(mechanism: Mechanism) -> bool:
    """Return whether the clip norm of the rounds is learned from earlier rounds."""
    return isinstance(mechanism, AdaptiveClipping) or any(map(_learns, mechanisms_in(mechanism)))


def _one_draw(mechanism: Mechanism) -> Drawn | None:
    """Return the single draw of a round, also inside a run or a kind of one."""
    if isinstance(mechanism, Drawn):
        return mechanism
    parts = _parts(mechanism)
    return _one_draw(parts[0][0]) if [count for _, count in parts] == [1] else None


def _by_scheme(rounds: Iterable[LedgerRound]) -> dict[Scheme, dict[int, list[LedgerRound]]]:
    """Return the rounds with drawn cohorts, by scheme and by size."""
    drawn: dict[Scheme, dict[int, list[LedgerRound]]] = {}
    for r in rounds:
        one = None if r.done is None else _one_draw(r.mechanism)
        if r.done is not None and one is not None:
            by_size = drawn.setdefault(one.scheme, {})
            # Cohorts of one scheme are tested together, because one odd size among thousands is
            # expected.
            by_size.setdefault(r.done.cohort, []).append(r)
    return drawn


def _in_words(found: dict[str, list[LedgerRound]]) -> tuple[str, ...]:
    return tuple(
        f"{_count(which)} round(s), first in round {min(r.index for r in which)}: {doubt}"
        for doubt, which in found.items()
    )


def _count(rounds: Iterable[LedgerRound]) -> int:
    return sum(r.times for r in rounds)
