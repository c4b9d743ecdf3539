"""What every training loop has in common: rounds, their books, their randomness.

A private round goes in this order, so that a crash at any moment counts too much, never too
little: budget asked, ``intent`` on disk, budget charged, noise drawn, release, ``done`` on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetExhausted, refuse
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..mechanisms.noise import private_generator

Indices = NDArray[np.int64]
Dropout = Callable[[Indices], Collection[int]]
"""Gets a cohort, returns the clients that do not answer; must not depend on data."""

STREAMS = ("model", "cohort", "mask", "batches", "noise", "shared")
"""What randomness is used for; each use of each round has a stream of its own."""


class RoundBudget(Protocol):
    """What a loop asks of a budget; ``fedprivacy.Budget`` is one."""

    def allows(self, next_round: Mechanism) -> bool:
        """Return whether one more such round fits."""

    def spend(self, round_: Mechanism) -> None:
        """Count one such round."""

    def spent(self) -> object | None:
        """Return what was spent, None before the first round."""


class RoundState(Protocol):
    """Where a run stands: a frozen dataclass of tensors, numbers and None."""

    @property
    def round(self) -> int:
        """How many rounds were run, aborted ones included."""


@dataclass(frozen=True, kw_only=True)
class RoundInfo:
    """What the server saw of one round.

    ``cohort``, ``arrived`` and ``refused`` are the server's own view. The guarantee for the
    observer ``aggregate`` does not cover them: do not publish them with it.

    Args:
        round: its number, from 0.
        cohort: how many clients were drawn.
        arrived: how many contributions are in the release.
        refused: how many contributions were left out: not finite, of a wrong shape, from a client
            that was not drawn or that had reported.
        aborted: whether too many were missing, so that nothing was released.
        upload_bytes: sent by all clients that answered, as serialised.
        noise_std: of the noise in the release, on each coordinate; 0 without noise.
        payload_bytes: the numbers in them alone, four bytes each; None where the loop sends
            something else.
    """

    round: int
    cohort: int
    arrived: int
    refused: int
    aborted: bool
    upload_bytes: int
    noise_std: float
    payload_bytes: int | None = None


S = TypeVar("S", bound=RoundState)


class Loop(Protocol[S]):
    """A training loop: ``init`` once, then ``step`` for every round; the state is explicit."""

    @property
    def round_mechanism(self) -> Mechanism | None:
        """One round as a mechanism, None without privacy."""

    @property
    def device(self) -> str:
        """Where it computes."""

    def init(self) -> S:
        """Return the state before the first round."""

    def step(
        self,
        state: S,
        data: Any,
        *,
        ledger: Ledger | None = None,
        budget: RoundBudget | None = None,
        dropout: Dropout | None = None,
        on_release: Callable[[S], None] | None = None,
    ) -> tuple[S, RoundInfo]:
        """Run one round: the next state and what the server saw."""


_CHARGED: dict[int, tuple[RoundBudget, dict[str, set[int]]]] = {}
"""Budgets that loops have charged, and which rounds of which ledgers; they are few and small."""


def _charged(budget: RoundBudget, ledger: Ledger) -> set[int]:
    """Return which rounds of a ledger were charged to a budget."""
    _, ledgers = _CHARGED.setdefault(id(budget), (budget, {}))
    return ledgers.setdefault(ledger.nonce, set())


def charge_past(ledger: Ledger, budget: RoundBudget) -> None:
    """Charge a budget with the rounds that a ledger has spent and that it was not charged with.

    After a crash the budget is a new one, and the rounds before it are in the ledger alone.
    """
    charged = _charged(budget, ledger)
    for one in ledger.rounds:
        if one.spent and one.index not in charged:
            budget.spend(one.mechanism)
            charged.add(one.index)


class Entry:
    """One round in the books: a budget and a ledger, each of which may be missing."""

    def __init__(
        self, mechanism: Mechanism | None, ledger: Ledger | None, budget: RoundBudget | None
    ) -> None:
        """Use ``begin``."""
        self.mechanism, self.ledger, self.budget = mechanism, ledger, budget
        self._number = -1

    @classmethod
    def begin(
        cls,
        mechanism: Mechanism | None,
        *,
        ledger: Ledger | None,
        budget: RoundBudget | None,
        clip_norm: float,
        noise_std: float,
    ) -> Entry:
        """Ask the budget and write the round's intent; nothing private was done before.

        Args:
            mechanism: the round; None without privacy, then nothing is written.
            ledger: where it is recorded.
            budget: what it is charged to.
            clip_norm: norm that contributions are clipped to, for the ledger.
            noise_std: std of the noise as planned, for the ledger.

        Raises:
            BudgetExhausted: the round does not fit; nothing was released.
        """
        entry = cls(mechanism, ledger, budget)
        if mechanism is None:
            return entry
        if budget is not None and not budget.allows(mechanism):
            raise BudgetExhausted(
                f"the next round, {mechanism}, exceeds the budget; nothing was released; stop "
                "here or raise the budget"
            )
        if ledger is not None:
            entry._number = ledger.intent(mechanism, clip_norm=clip_norm, noise_std=noise_std)
        return entry

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Charge the budget if an error ends the round: in the ledger it counts, too.

        The error may have to do with somebody's data.
        """
        try:
            yield
        except BaseException:
            self.spend()
            raise

    def spend(self) -> None:
        """Charge the budget: noise is drawn next."""
        if self.budget is not None and self.mechanism is not None:
            self.budget.spend(self.mechanism)
            if self.ledger is not None:
                _charged(self.budget, self.ledger).add(self._number)

    def abort(self, reason: str) -> None:
        """Say that nothing was released."""
        if self.ledger is not None and self.mechanism is not None:
            self.ledger.abort(self._number, reason)

    def done(self, info: RoundInfo) -> None:
        """Say what was released."""
        if self.ledger is not None and self.mechanism is not None:
            self.ledger.done(
                self._number,
                cohort=info.cohort,
                arrived=info.arrived,
                refused=info.refused,
                noise_std=info.noise_std,
            )


def check_ledger(ledger: Ledger | None, mechanism: Mechanism | None, seed: int | None) -> None:
    """Raise ParameterError unless a ledger fits a run: private, and honest about its seed."""
    if ledger is None:
        return
    if mechanism is None:
        refuse("ledger", ledger, "be None without perturbation", "there is no loss to record")
    if seed is not None and ledger.seed_policy != "fixed":
        refuse(
            "ledger.seed_policy",
            ledger.seed_policy,
            "be 'fixed' for a run with a seed, which is not private",
            "create the ledger with seed_policy='fixed' or leave seed out",
        )


def generator_for(seed: int | None, number: int, stream: str) -> np.random.Generator:
    """Return a generator of its own for every use: masks and cohorts may be seen.

    Args:
        seed: None for the operating system's randomness, as privacy needs.
        number: the round's.
        stream: one of ``STREAMS``.
    """
    if seed is None:
        return private_generator()
    seeds = np.random.SeedSequence([seed, number, STREAMS.index(stream)])
    return np.random.Generator(np.random.PCG64DXSM(seeds))
