"""What every training loop has in common: rounds, their books, their randomness.

A private round goes in this order, so that a crash at any moment counts too much, never too
little: budget asked, ``intent`` on disk, budget charged, noise drawn, release, ``done`` on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import BudgetExhausted, integer, refuse, require
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..mechanisms.noise import private_generator
from ..relations import is_add_remove

Indices = NDArray[np.int64]
Dropout = Callable[[Indices], Collection[int]]
"""Gets a cohort, returns the clients that do not answer.

Who they are must depend neither on data nor, where draws are secret, on who else was drawn: a
server that takes the first answers alone draws otherwise than it says (docs/sharp_edges.md).
"""

STREAMS = ("model", "cohort", "mask", "batches", "noise", "shared", "rotation")
"""What randomness is used for; each use of each round has a stream of its own."""


class RoundBudget(Protocol):
    """What a loop asks of a budget; ``fedprivacy.Budget`` is one."""

    @property
    def states(self) -> set[str]:
        """Digests of the states in which rounds ended that it alone was charged with."""

    def charge(self, ledger: Ledger) -> None:
        """Count the rounds that a ledger has spent and that it was not charged with."""

    def allows(self, next_round: Mechanism) -> bool:
        """Return whether one more such round fits."""

    def spend(
        self,
        round_: Mechanism,
        *,
        ledger: Ledger | None = None,
        number: int | None = None,
    ) -> None:
        """Count one such round, of that number in that ledger."""

    def seeded(self) -> None:
        """Say from now on that noise, or draws, came of a seed that was chosen."""

    def released(
        self, round_: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
    ) -> None:
        """Count what a round had less noise than it was spent with."""

    def ended(self, ledger: Ledger, number: int, *, spent: bool = True) -> None:
        """Note that a round of a ledger was confirmed, or aborted."""

    def confirm(self, ledger: Ledger) -> None:
        """Look whether a ledger speaks against the rounds that were counted."""

    @property
    def way_out(self) -> str:
        """What may be done where a round does not fit."""

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
        denominator: what the noisy sum was divided by, a public number; None where nothing is.
        mask: fingerprint of the coordinates that travelled; None where all did.
    """

    round: int
    cohort: int
    arrived: int
    refused: int
    aborted: bool
    upload_bytes: int
    noise_std: float
    payload_bytes: int | None = None
    denominator: float | None = None
    mask: str | None = None


S = TypeVar("S", bound=RoundState)
C = TypeVar("C")


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


@dataclass(frozen=True, kw_only=True)
class Books:
    """Where a round is written down; each part may be missing.

    Args:
        mechanism: the round; None without privacy, then nothing is written.
        ledger: where it is recorded.
        budget: what it is charged to.
        clip_norm: norm that contributions are clipped to, for the ledger.
        noise_std: std of the noise as planned, for the ledger.
        seed: what the noise comes of; None for the operating system.
    """

    mechanism: Mechanism | None
    ledger: Ledger | None
    budget: RoundBudget | None
    clip_norm: float
    noise_std: float
    seed: int | None = None

    def ask(self) -> None:
        """Ask the budget whether a round fits; nothing is spent or written.

        Raises:
            BudgetExhausted: it does not.
        """
        if self.budget is None or self.mechanism is None or self.budget.allows(self.mechanism):
            return
        raise BudgetExhausted(
            f"the next round, {self.mechanism}, exceeds the budget; nothing was released; "
            f"{self.budget.way_out}"
        )

    def begin(self) -> int | None:
        """Ask the budget and write the intent; return the round's number, None without a ledger.

        Raises:
            BudgetExhausted: the round does not fit; nothing was released.
            ParameterError: the ledger does not say that the budget's schedule is adaptive.
        """
        if self.mechanism is None:
            return None
        # A budget that is new, or was left out, knows nothing of rounds that are in the ledger.
        if self.ledger is not None and self.budget is not None:
            self.budget.charge(self.ledger)
        # Asked before the intent: a round that does not fit leaves no line.
        self.ask()
        if self.ledger is None:
            return None
        return self.ledger.intent(
            self.mechanism, clip_norm=self.clip_norm, noise_std=self.noise_std
        )

    def spend(self, number: int | None) -> None:
        """Charge the budget."""
        if self.budget is None or self.mechanism is None:
            return
        # With its number, so that `charge` does not charge it again.
        self.budget.spend(self.mechanism, ledger=self.ledger, number=number)
        if self.seed is not None:
            self.budget.seeded()

    def released(self, info: RoundInfo) -> None:
        """Let the budget know what was released, which counts where it had less noise."""
        if self.budget is not None and self.mechanism is not None and self.noise_std > 0.0:
            self.budget.released(
                self.mechanism,
                clip_norm=self.clip_norm,
                planned_std=self.noise_std,
                used_std=info.noise_std,
            )

    def ended(self, state: RoundState) -> None:
        """Let the budget know the state that a round ended in, where no ledger does."""
        if self.mechanism is not None and self.budget is not None and self.ledger is None:
            self.budget.states.add(_digest(state))

    def abort(self, number: int | None, reason: str) -> None:
        """Say that nothing was released."""
        if self.ledger is not None and number is not None:
            self.ledger.abort(number, reason)
            if self.budget is not None:
                self.budget.ended(self.ledger, number, spent=False)

    def done(self, number: int | None, info: RoundInfo) -> None:
        """Say what was released."""
        if self.ledger is not None and number is not None:
            self.ledger.done(
                number,
                cohort=info.cohort,
                arrived=info.arrived,
                refused=info.refused,
                noise_std=info.noise_std,
                denominator=info.denominator,
                mask=info.mask,
            )
            if self.budget is not None:
                self.budget.ended(self.ledger, number)


@dataclass(frozen=True)
class Aborted(Generic[S]):
    """What ``collect`` returns where nothing may be released.

    Args:
        reason: for the ledger.
        state: the next state: no round's result in it.
        info: what the server saw.
    """

    reason: str
    state: S
    info: RoundInfo


def run_round(
    books: Books,
    *,
    collect: Callable[[], C | Aborted[S]],
    release: Callable[[C], tuple[S, RoundInfo]],
    on_release: Callable[[S], None] | None = None,
) -> tuple[S, RoundInfo]:
    """Run one round in the order that makes a crash at any moment count too much, never too little.

    Budget asked, ``intent`` on disk, ``collect``, budget charged, ``release`` (which draws the
    noise and says in its ``RoundInfo`` what it drew), ``on_release``, ``done`` on disk. An error in
    ``collect`` may have to do with somebody's data: it charges the budget, as the intent counts.

    Args:
        books: where the round is written down.
        collect: does all that comes before the noise; ``Aborted`` where nothing may be released.
        release: gets what was collected, returns the next state and what really happened.
        on_release: gets the next state before ``done`` is written.

    Raises:
        BudgetExhausted: the round does not fit; nothing was released.
    """
    return finish_round(
        books, books.begin(), collect=collect, release=release, on_release=on_release
    )


def finish_round(
    books: Books,
    number: int | None,
    *,
    collect: Callable[[], C | Aborted[S]],
    release: Callable[[C], tuple[S, RoundInfo]],
    on_release: Callable[[S], None] | None = None,
) -> tuple[S, RoundInfo]:
    """Run a round whose intent was written before its cohort was drawn; see ``run_round``.

    Args:
        books: where the round is written down.
        number: what ``Books.begin`` returned.
        collect: see ``run_round``.
        release: see ``run_round``.
        on_release: see ``run_round``.

    Raises:
        BudgetExhausted: the round does not fit any more; nothing was released.
    """
    try:
        collected = collect()
    except BaseException:
        books.spend(number)
        raise
    if isinstance(collected, Aborted):
        books.abort(number, collected.reason)
        books.ended(collected.state)
        return collected.state, collected.info
    try:
        books.spend(number)
    except BudgetExhausted:
        # Somebody else spent meanwhile: nothing was released.
        books.abort(number, "it does not fit the budget any more")
        raise
    state, info = release(collected)
    books.released(info)
    books.ended(state)
    if on_release is not None:
        on_release(state)
    books.done(number, info)
    return state, info


def check_given(
    kind: type[S],
    state: object,
    ledger: object,
    budget: object,
    dropout: object,
    on_release: object,
) -> None:
    """Refuse, by its name, what ``step`` cannot take, before a round begins and is spent.

    Raises:
        ParameterError: no state of this kind, no ledger, no budget or no function.
    """
    integer(0, **{"state.round": check_state(kind, state).round})
    check_books(ledger, budget)
    check_called(dropout=dropout, on_release=on_release)


def check_state(kind: type[S], state: object) -> S:
    """Return a state that is of this kind; refuse what is none."""
    if not isinstance(state, kind):
        refuse("state", type(state).__name__, f"be a {kind.__name__}", "begin with init()")
    return state


def check_tensor(name: str, found: object, shape: tuple[int, ...], kind: torch.dtype) -> None:
    """Refuse, by its name, what is no tensor of this shape and kind."""
    told = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    require(isinstance(found, Tensor) and told == shape, name, told, f"have shape {shape}")
    own = getattr(found, "dtype", None)
    require(own == kind, f"{name}.dtype", str(own), f"be {kind}")


def check_books(ledger: object, budget: object) -> None:
    """Refuse what is no ledger and no budget."""
    rule, way_out = "be a Ledger or None", "fp.Ledger.create(...), or fp.Ledger.open(...)"
    require(ledger is None or has(ledger, "intent", "done"), "ledger", ledger, rule, way_out)
    acts = ("allows", "charge", "spend", "seeded", "released", "ended", "confirm")
    asked = (*acts, "spent", "states", "way_out")
    rule, way_out = "be a Budget or None", "fp.Budget(epsilon, delta, ...)"
    require(budget is None or has(budget, *asked), "budget", budget, rule, way_out)


def has(one: object, *names: str) -> bool:
    """Return whether something has all of these; a class, whose objects have, does not."""
    return not isinstance(one, type) and all(hasattr(one, name) for name in names)


def check_called(**functions: object) -> None:
    """Refuse what is no function."""
    for name, one in functions.items():
        # A class can be called, and makes an object that was never asked for.
        fits = one is None or (callable(one) and not isinstance(one, type))
        require(fits, name, one, "be a function or None", _GETS[name])


_GETS = {
    "dropout": "it gets a round's cohort",
    "on_round": "it gets the state and what the server saw",
    "on_release": "it gets the state",
}


def check_denominator(declared: bool, *books: object) -> None:
    """Raise ParameterError for add_remove where the denominator follows the number of units.

    Neighbours differ in that number then, and a release divided by it tells it: the noise of 20
    clients' average has another scale than that of 21.

    Args:
        declared: whether the denominator is a number that was stated beforehand.
        books: the ledger and the budget of a run, or None.
    """
    rule = "be declared for add_remove: the number of clients is then not public"
    way_out = "pass a public number near the expected cohort, or account for zero_out"
    public = declared or not any(map(is_add_remove, books))
    require(public, "expected_cohort", None, rule, way_out)


def check_ledger(ledger: Ledger | None, mechanism: Mechanism | None, seed: int | None) -> None:
    """Raise ParameterError unless a ledger fits a run: private, and honest about its seed."""
    if ledger is None:
        return
    if mechanism is None:
        refuse("ledger", ledger, "be None without perturbation", "there is no loss to record")
    rule = "be 'fixed' for a run with a seed, which is not private"
    way_out = "create the ledger with seed_policy='fixed' or leave seed out"
    honest = seed is None or ledger.seed_policy == "fixed"
    require(honest, "ledger.seed_policy", ledger.seed_policy, rule, way_out)
    # What no theorem serves under the ledger's facts would be released and never priced.
    if (facts := getattr(ledger, "facts", None)) is not None:
        mechanism.privacy_loss(*facts[1:])


def check_past(
    state: RoundState,
    mechanism: Mechanism | None,
    ledger: Ledger | None,
    budget: RoundBudget | None,
) -> None:
    """Refuse a state whose rounds neither a ledger nor this very budget knows.

    Of a ledger their number is known: it must have had as many rounds. That they are those behind
    the state a checkpoint shows, not this.

    Args:
        state: where a round begins.
        mechanism: the round; None without privacy.
        ledger: where rounds are recorded.
        budget: what they are charged to. It remembers the states that they ended in.

    Raises:
        ParameterError: what the rounds behind the state cost is not known.
    """
    if mechanism is not None and ledger is not None:
        begun = ledger.begun_rounds
        rule = f"have all {state.round} rounds of the state behind it: an audit counts no others"
        way_out = "the ledger of those rounds, or init() with their parameters if they cost nothing"
        require(begun >= state.round, "ledger", f"one of {begun} rounds", rule, way_out)
    if mechanism is None or ledger is not None or budget is None:
        return
    known = not state.round or _digest(state) in budget.states
    rule = "be given with a budget: it alone tells what the rounds before this state cost"
    way_out = "fp.Ledger.create(...), from the first round on, or this budget's very last state"
    require(known, "ledger", None, rule, way_out)


def _digest(state: RoundState) -> str:
    """Return what tells a state from others; one that was read from a file has the same."""
    found = sha256()
    for each in fields(state):  # type: ignore[arg-type]
        value = getattr(state, each.name)
        plain = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        numbers = isinstance(plain, np.ndarray)
        told = (each.name, plain.dtype.str, plain.shape) if numbers else (each.name, plain)
        found.update(repr(told).encode() + (plain.tobytes() if numbers else b""))
    return found.hexdigest()


def silent(dropout: Dropout | None, cohort: Indices) -> set[int]:
    """Return the clients of a cohort that do not answer.

    Raises:
        ParameterError: they are no clients of the cohort.
    """
    if dropout is None:
        return set()
    rule, way_out = "return numbers of clients of the cohort", "cohort[mask] where a mask is known"
    answer = dropout(cohort)
    many = isinstance(answer, Iterable)
    require(many, "dropout", type(answer).__name__, rule, "return [] where everybody answers")
    told = np.asarray([getattr(one, "item", lambda one=one: one)() for one in answer])
    # Not a mask: True and False would be clients 1 and 0.
    whole = told.size == 0 or (told.ndim == 1 and told.dtype.kind in "iu")
    require(whole, "dropout", f"{told.dtype} of shape {told.shape}", rule, way_out)
    found = set(map(int, told))
    require(found <= set(map(int, cohort)), "dropout", sorted(found), rule, way_out)
    return found


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


def noise_source(seed: int | None, number: int) -> np.random.Generator | None:
    """Return what private noise is drawn from: None, the operating system, unless there is a seed.

    Args:
        seed: see ``generator_for``.
        number: the round's.
    """
    return None if seed is None else generator_for(seed, number, "noise")
