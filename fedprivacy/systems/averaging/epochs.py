"""Epochs whose cohorts are drawn together: one step of a loop, one line of a ledger.

The line is on disk before the first cohort is drawn. So a crash in an epoch leaves it counted. It
is not continued, since the draws of its other rounds are lost; the next step draws a new epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ... import mechanisms
from ...errors import refuse
from ...sampling import Scheme
from ...sampling.epoch import EpochScheme
from ...training.rounds import Aborted, Indices, RoundInfo
from .collect import Collected
from .state import State


def check_epochs(
    scheme: Scheme,
    noise: mechanisms.Perturbation | None,
    sparsification: mechanisms.Sparsification | None,
) -> None:
    """Refuse what one line of a ledger, for a whole epoch, cannot record.

    Raises:
        ParameterError: the scheme draws epochs, and the clip norm or the mask may change in an
            epoch, or the noise comes in shares, whose number may change.
    """
    if not isinstance(scheme, EpochScheme):
        return
    way_out = "use Gaussian, or draw round by round with Poisson or FixedSize"
    if isinstance(noise, mechanisms.AdaptiveClipping):
        rule = f"keep its clip norm with {scheme.name}"
        refuse("perturbation", "AdaptiveClipping", rule, way_out)
    if noise is not None and noise.full_cohort:
        rule = f"draw its noise at the server, not in shares, with {scheme.name}"
        refuse("perturbation", type(noise).__name__, rule, way_out)
    masks = sparsification or getattr(noise, "sparsification", None)
    if masks is not None and masks.kept < masks.dimension:
        refuse("sparsification", masks, f"send all coordinates with {scheme.name}", way_out)


def in_turn(
    state: State,
    cohorts: Sequence[Indices],
    collect: Callable[..., Collected | Aborted[State]],
    release: Callable[[State, Collected], tuple[State, RoundInfo]],
) -> tuple[State, RoundInfo]:
    """Run all rounds of an epoch; return the state after it and one record.

    Args:
        state: before the epoch; ``round`` counts epochs.
        cohorts: of the rounds, drawn together.
        collect: trains a cohort, ``chosen`` with its mask, from a state whose ``round`` counts
            rounds.
        release: adds noise to a sum and returns the next state.
    """
    now, infos = replace(state, round=state.round * len(cohorts)), []
    for cohort in cohorts:
        collected = collect(now, chosen=(cohort, None))
        # Only noise in shares can be too little for a release, and is refused for epochs.
        assert not isinstance(collected, Aborted)
        now, info = release(now, collected)
        infos.append(info)
    return replace(now, round=state.round + 1), _together(infos, state.round)


def _together(infos: Sequence[RoundInfo], number: int) -> RoundInfo:
    """Return one record for the rounds of an epoch: sums of counts, and the least noise.

    Args:
        infos: of the rounds, at least one.
        number: of the epoch, from 0.
    """

    def total(name: str) -> int:
        return sum(getattr(info, name) for info in infos)

    payloads = [info.payload_bytes for info in infos if info.payload_bytes is not None]
    return replace(
        infos[0],
        round=number,
        cohort=total("cohort"),
        arrived=total("arrived"),
        refused=total("refused"),
        upload_bytes=total("upload_bytes"),
        payload_bytes=sum(payloads) if len(payloads) == len(infos) else None,
        noise_std=min(info.noise_std for info in infos),
    )
