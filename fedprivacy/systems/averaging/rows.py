"""Rounds with correlated noise: eligible clients, the row of noise, and its state on disk.

Before a row is released, the memory of the noise after it is written to disk, with the clients
drawn until then. The file lies next to the ledger. Only its owner may read it, because its content
can remove the noise. After a crash, a row that may have been released is therefore known. It is
never released again: it counts as a round without a result, and the run continues with the next
row.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import ParameterError, refuse, require
from ...ledger import Ledger, LedgerRound
from ...mechanisms import CorrelatedNoise, CorrelatedRow, Mechanism
from ...mechanisms.streams import NoiseMemory
from ...outputs import whole_file
from ...sampling import Scheme
from ...sampling.scheme import cohort_of
from ...training.checkpoint import passes
from ...training.rounds import Indices, generator_for
from .state import CorrelatedState, State

SUFFIX = ".noise"
"""Suffix of the ledger's name for the file with the noise's memory."""

FORMAT = "fedprivacy noise 1"

_HELD = ("memory", "errors", "drift", "last", "times")


def correlated(perturbation: object) -> CorrelatedNoise | None:
    """Return a perturbation whose noise is correlated between rounds; None for any other."""
    return perturbation if isinstance(perturbation, CorrelatedNoise) else None


def begun(state: State, noise: CorrelatedNoise) -> CorrelatedState:
    """Return the state before the first row; the number of clients is not known yet."""
    memory = noise.begin(state.parameters)
    nobody = torch.zeros(0, dtype=torch.int64)
    return CorrelatedState(
        state.round,
        state.parameters,
        state.learning_rate,
        memory=memory.vectors,
        errors=torch.tensor(memory.errors, dtype=torch.float64),
        drift=memory.drift,
        last=nobody,
        times=nobody.clone(),
        velocity=torch.zeros_like(state.parameters),
    )


def of_clients(state: CorrelatedState, population: int) -> CorrelatedState:
    """Return the state with an entry for every client.

    Raises:
        ParameterError: it has another number of clients.
    """
    if not len(state.last) and not state.round:
        nobody = torch.zeros(population, dtype=torch.int64)
        return replace(state, last=nobody - 1, times=nobody)
    if len(state.last) != population:
        refuse("population", population, f"be the {len(state.last)} clients of the earlier rounds")
    return state


def may_come(state: CorrelatedState, noise: CorrelatedNoise) -> Indices:
    """Return the clients that the rule of participation allows in the next round."""
    free = _allowed(state, noise, state.last, state.times)
    return np.asarray(torch.nonzero(free).flatten().numpy(), dtype=np.int64)


def _allowed(state: State, noise: CorrelatedNoise, last: Tensor, times: Tensor) -> Tensor:
    """Return whether some clients may take part in the next round, by last round and draws."""
    rule, rounds = noise.participation, noise.rounds
    away = state.round - last
    rested = away >= rule.gap(rounds)
    # A client keeps its position in every epoch.
    if rule.together:
        rested &= away % rule.gap(rounds) == 0
    # A client that never took part is eligible in any round.
    return (last < 0) | (rested & (times < rule.most(rounds)))


def drawn(scheme: Scheme, free: Indices, generator: np.random.Generator) -> Indices:
    """Return a cohort of the eligible clients, drawn by the scheme's ``among_free``.

    Raises:
        ParameterError: a fixed size with too few eligible clients, or a client drawn twice.
    """
    able: Any = scheme  # the loop checked that it has the method
    cohort: Indices = free[cohort_of(able.among_free(len(free)), len(free), generator)]
    return cohort


def taken(state: CorrelatedState, cohort: Indices, noise: CorrelatedNoise) -> CorrelatedState:
    """Return the state after a cohort was drawn.

    Raises:
        ParameterError: a client takes part too soon, or too often.
    """
    # Checked again for every cohort, because the account depends on it.
    chosen = torch.from_numpy(cohort)
    early = chosen[~_allowed(state, noise, state.last[chosen], state.times[chosen])]
    if len(early):
        client = int(early.min())
        rule = f"keep {noise.participation}; it was drawn in round {int(state.last[client])}"
        refuse("client", client, rule, "draw this client later")
    # Copies: the state before may be in a checkpoint.
    last, times = state.last.clone(), state.times.clone()
    last[chosen] = state.round
    times[chosen] += 1
    return replace(state, last=last, times=times)


def row_of(state: CorrelatedState, cohort: Indices, noise: CorrelatedNoise) -> CorrelatedRow:
    """Return the row of the next round, with its cohort's effect on the participation."""
    before = state.last[torch.from_numpy(cohort)]
    again = before[before >= 0]
    separation = int((state.round - again).min()) if len(again) else None
    # Includes this round, which the state does not count yet.
    most = int(state.times[torch.from_numpy(cohort)].max()) + 1 if len(cohort) else 0
    return noise.row(state.round, separation=separation, participations=most)


def mask_of(
    noise: CorrelatedNoise, row: int, seed: int | None, ledger: Ledger | None, device: str
) -> Tensor | None:
    """Return the coordinates of a row's block, shape (kept,); None if all are sent.

    They follow from the ledger, so they survive a crash and an audit can draw them again. With a
    seed, they follow from the seed.

    Raises:
        ParameterError: there is neither a ledger nor a seed.
    """
    sparse = noise.sparsification
    if sparse is None or sparse.kept == sparse.dimension:
        return None
    if seed is not None:
        drawn = sparse.draw_mask(generator_for(seed, noise.block_of(row), "mask"))
        return torch.from_numpy(drawn).to(device)
    if ledger is None:
        rule = "be given with kept, since it determines the mask of a block"
        refuse("ledger", None, rule, "pass fp.Ledger.create(...)")
    return torch.tensor(noise.mask(row, ledger.nonce), device=device)


def noisy(
    state: CorrelatedState, noise: CorrelatedNoise, generator: Any
) -> tuple[Tensor, float, CorrelatedState]:
    """Draw the next row.

    Returns:
        The row, shape (d,); the std of its independent draws, as drawn; the state with the memory
        after it.
    """
    held = NoiseMemory(state.round, state.memory, tuple(state.errors.tolist()), state.drift)
    row, after = noise.stream.draw(held, generator)
    errors = torch.tensor(after.errors, dtype=torch.float64)
    following = replace(
        state, round=after.row, memory=after.vectors, errors=errors, drift=after.drift
    )
    return row, after.drawn, following


class NoiseFile:
    """The memory of the noise after the last row that may have been released, next to a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        """Set the path of a ledger's file; it need not exist."""
        self.path = ledger.path.with_name(ledger.path.name + SUFFIX)
        self.ledger = ledger

    def write(self, state: CorrelatedState) -> None:
        """Write the memory to disk, readable only by its owner. It is on disk at return."""
        content: dict[str, Any] = {"format": FORMAT, "ledger": self.ledger.nonce}
        # Copies of a ledger share one nonce. They, and their memories, diverge at the next line.
        content |= {"place": self.ledger.place, "round": state.round}
        content |= {name: getattr(state, name) for name in _HELD}
        buffer = io.BytesIO()
        torch.save(content, buffer)
        whole_file(self.path, buffer.getbuffer(), mode=0o600)

    def content(self, device: torch.device) -> dict[str, Any]:
        """Return the content of the file.

        Raises:
            ParameterError: it is damaged, of another run, or of a different copy of this one.
        """
        found = _loaded(self.path, device)
        ours = found.get("format") == FORMAT and found.get("ledger") == self.ledger.nonce
        # Older files have no place.
        here = "place" not in found or passes(self.ledger, found["place"])
        if not (ours and here):
            rule = "be the secret noise state of this ledger's run, not of another run or a copy"
            way_out = (
                "restore the original file. For a new ledger, move the file to the ledger of "
                "its run, delete it if that run is finished, or rename the new ledger"
            )
            refuse("noise file", str(self.path), rule, way_out)
        return found

    def read(self, state: CorrelatedState) -> CorrelatedState | None:
        """Return a state with the memory on disk; None if there is no file.

        Raises:
            ParameterError: it is damaged, or of another run.
        """
        if not self.path.exists():
            return None
        found = self.content(state.parameters.device)
        held: dict[str, Any] = {name: found.get(name) for name in _HELD}
        # Not isinstance: True would pass for 1.
        if type(found.get("round")) is not int:
            refuse("noise file", str(self.path), "contain a valid 'round'", "restore it")
        for name, value in held.items():
            known = getattr(state, name)
            shape = getattr(known, "shape", None)
            if type(value) is not type(known) or getattr(value, "shape", None) != shape:
                refuse("noise file", str(self.path), f"contain a valid {name!r}", "restore it")
        return replace(state, round=found["round"], **held)


def _loaded(path: Path, device: torch.device) -> dict[str, Any]:
    try:
        found = torch.load(path, map_location=device, weights_only=True)
    except Exception as problem:
        raise ParameterError(
            f"noise file must be readable, got {str(path)!r} ({type(problem).__name__}); "
            "restore it, or start a new run with a new ledger"
        ) from problem
    return found if isinstance(found, dict) else {}


def caught_up(
    state: CorrelatedState, noise: CorrelatedNoise, ledger: Ledger | None, generator: Any
) -> CorrelatedState:
    """Return a state whose next row was certainly not released before.

    If a crash came between a release and its checkpoint, the file on disk is ahead of the
    checkpoint. If it came before the release, the ledger is ahead of the file. The rows that only
    the ledger has are drawn and discarded.

    Raises:
        ParameterError: the file is missing, belongs to another run, or is older than the last
            released row; or the state has another noise, whose memory makes no row of this one.
    """
    if ledger is None:
        return state
    held = [one for one in ledger.alike if isinstance(one.mechanism, CorrelatedRow)]
    rows = [one for one in held if _is_row(one.mechanism, noise)]
    rule = f"be the noise of the {state.round} rows of the state, as recorded in the ledger"
    way_out = "continue that run, or start a new run with loop.init()"
    require(state.round <= _after(rows), "perturbation", noise, rule, way_out)
    file, next_row = NoiseFile(ledger), _after(one for one in rows if one.spent)
    # The ledger has no row beyond this state: no row was released since.
    if next_row <= state.round:
        _begin(file, state, first=not rows)
        return state
    # One ledger has one file. It holds the memory of the run that continued last.
    last = max(held, key=lambda one: one.index)
    rule = "contain the noise of this run, but the ledger has later rows of another run"
    way_out = "start a new run with loop.init(), which is accounted in addition to this one"
    require(_is_row(last.mechanism, noise), "noise file", str(file.path), rule, way_out)
    state = _newest(file, state, next_row)
    # A confirmed row was released with noise that later rows must know.
    released = _after(one for one in rows if one.done is not None)
    rule = f"contain the noise up to the released row {released - 1}, not {state.round - 1}"
    way_out = "restore the newest one, or start a new run with a new ledger"
    require(state.round >= released, "noise file", str(file.path), rule, way_out)
    while state.round < next_row:
        _, _, state = noisy(state, noise, generator)
    return state


def _newest(file: NoiseFile, state: CorrelatedState, next_row: int) -> CorrelatedState:
    """Return the state on disk if it is ahead, otherwise the given one."""
    on_disk = file.read(state)
    if on_disk is None:
        rule = f"exist, since {next_row - state.round} row(s) may have been released with its noise"
        way_out = "restore it, or start a new run with a new ledger"
        refuse("noise file", str(file.path), rule, way_out)
    return on_disk if on_disk.round > state.round else state


def _begin(file: NoiseFile, state: CorrelatedState, first: bool) -> None:
    """Write the file if there is none; before a first row it may belong to another run."""
    # The file exists from the first row on. If it is missing later, it was lost.
    if not file.path.exists():
        file.write(state)
    elif first:
        # It belongs to a run whose ledger had this name: refused, not overwritten.
        file.content(state.parameters.device)


def _is_row(mechanism: Mechanism, noise: CorrelatedNoise) -> bool:
    """Return whether a round was of this run: another run in the ledger has another noise."""
    return isinstance(mechanism, CorrelatedRow) and mechanism.run == noise


def _after(rows: Iterable[LedgerRound]) -> int:
    """Return the row after the last one of some rounds."""
    return max((one.mechanism.row + 1 for one in rows), default=0)  # type: ignore[attr-defined]
