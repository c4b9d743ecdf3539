"""The shared part of every training loop: rounds, their records, their randomness.

A private round has the following order, so that a crash at any moment counts too much, never too
little: budget checked, ``intent`` on disk, budget charged, noise drawn, release, ``done`` on disk.
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

The silent clients must not depend on data. If draws are secret, they must also not depend on the
other drawn clients: a server that takes only the first answers samples differently than it claims
(docs/sharp_edges.md).
"""

STREAMS = ("model", "cohort", "mask", "batches", "noise", "shared", "rotation")
"""The uses of randomness. Each use in each round has a separate stream."""


class RoundBudget(Protocol):
    """The interface of a budget for a loop; ``fedprivacy.Budget`` satisfies it."""

    @property
    def states(self) -> set[str]:
        """Digests of the states after rounds that only this budget was charged with."""

    def charge(self, ledger: Ledger) -> None:
        """Count the spent rounds of a ledger that were not charged yet."""

    def allows(self, next_round: Mechanism) -> bool:
        """Return whether one more of these rounds fits."""

    def spend(
        self,
        round_: Mechanism,
        *,
        ledger: Ledger | None = None,
        number: int | None = None,
    ) -> None:
        """Count one of these rounds, with its number in that ledger."""

    def seeded(self) -> None:
        """Mark the bound from now on: noise or draws came from a chosen seed."""

    def released(
        self, round_: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
    ) -> None:
        """Count a round again, as released, if it had less noise than it was charged for."""

    def ended(self, ledger: Ledger, number: int, *, spent: bool = True) -> None:
        """Note that a round of a ledger was confirmed, or aborted."""

    def confirm(self, ledger: Ledger) -> None:
        """Check whether a ledger contradicts the rounds that were counted."""

    @property
    def way_out(self) -> str:
        """What to do if a round does not fit."""

    def spent(self) -> object | None:
        """Return the bound on everything spent, None before the first round."""


class RoundState(Protocol):
    """The state of a run: a frozen dataclass of tensors, numbers and None."""

    @property
    def round(self) -> int:
        """Number of rounds run, aborted ones included."""


@dataclass(frozen=True, kw_only=True)
class RoundInfo:
    """The server's view of one round.

    ``cohort``, ``arrived`` and ``refused`` are the server's own view. The guarantee for the
    observer ``aggregate`` does not cover them: do not publish them with it.

    Args:
        round: its number, from 0.
        cohort: number of drawn clients.
        arrived: number of contributions in the release.
        refused: number of contributions left out: not finite, of a wrong shape, from a client that
            was not drawn or that had already reported.
        aborted: whether too many were missing, so that no result was released.
        upload_bytes: serialised bytes from all clients that answered.
        noise_std: of the noise in the release, on each coordinate; 0 without noise.
        payload_bytes: only the numbers in them, four bytes each; None if the loop sends something
            else.
        denominator: the public divisor of the noisy sum; None without a division.
        mask: fingerprint of the coordinates that were sent; None if all were.
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
        """The device of its computations."""

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
        """Run one round; return the next state and the server's view."""


@dataclass(frozen=True, kw_only=True)
class RoundBookkeeping:
    """The records of a round; each part may be missing.

    Args:
        mechanism: the round; None without privacy, and then no record is written.
        ledger: records the round.
        budget: is charged with the round.
        clip_norm: norm that contributions are clipped to, for the ledger.
        noise_std: std of the planned noise, for the ledger.
        seed: of the noise; None for the operating system.
    """

    mechanism: Mechanism | None
    ledger: Ledger | None
    budget: RoundBudget | None
    clip_norm: float
    noise_std: float
    seed: int | None = None

    def ask(self) -> None:
        """Check that the budget allows a round, without spending or writing it.

        Raises:
            BudgetExhausted: it does not.
        """
        if self.budget is None or self.mechanism is None or self.budget.allows(self.mechanism):
            return
        raise BudgetExhausted(
            f"the next round, {self.mechanism}, exceeds the budget, so it was not released; "
            f"{self.budget.way_out}"
        )

    def begin(self) -> int | None:
        """Check the budget and write the intent; return the round's number, None without a ledger.

        Raises:
            BudgetExhausted: the round does not fit; no result was released.
            ParameterError: the budget's schedule is adaptive, and the ledger does not say so.
        """
        if self.mechanism is None:
            return None
        # A new budget, or one that was left out before, does not know the rounds in the ledger.
        if self.ledger is not None and self.budget is not None:
            self.budget.charge(self.ledger)
        # Checked before the intent: a round that does not fit leaves no line.
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
        """Report the release to the budget, which counts it if it had less noise."""
        if self.budget is not None and self.mechanism is not None and self.noise_std > 0.0:
            self.budget.released(
                self.mechanism,
                clip_norm=self.clip_norm,
                planned_std=self.noise_std,
                used_std=info.noise_std,
            )

    def ended(self, state: RoundState) -> None:
        """Report the state after a round to the budget, if there is no ledger."""
        if self.mechanism is not None and self.budget is not None and self.ledger is None:
            self.budget.states.add(_digest(state))

    def abort(self, number: int | None, reason: str) -> None:
        """Record that no result was released."""
        if self.ledger is not None and number is not None:
            self.ledger.abort(number, reason)
            if self.budget is not None:
                self.budget.ended(self.ledger, number, spent=False)

    def done(self, number: int | None, info: RoundInfo) -> None:
        """Record the release."""
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
    """The result of ``collect`` if no release is allowed.

    Args:
        reason: for the ledger.
        state: the next state, without the result of a round.
        info: the server's view.
    """

    reason: str
    state: S
    info: RoundInfo


def run_round(
    books: RoundBookkeeping,
    *,
    collect: Callable[[], C | Aborted[S]],
    release: Callable[[C], tuple[S, RoundInfo]],
    on_release: Callable[[S], None] | None = None,
) -> tuple[S, RoundInfo]:
    """Run one round in the order that makes a crash at any moment count too much, never too little.

    The order is: budget checked, ``intent`` on disk, ``collect``, budget charged, ``release``
    (which draws the noise and reports it in its ``RoundInfo``), ``on_release``, ``done`` on disk.
    An error in ``collect`` may depend on private data. It charges the budget, because the intent
    counts.

    Args:
        books: the records of the round.
        collect: does everything before the noise; returns ``Aborted`` if no release is allowed.
        release: gets the result of ``collect``, returns the next state and the actual numbers.
        on_release: gets the next state before ``done`` is written.

    Raises:
        BudgetExhausted: the round does not fit; no result was released.
    """
    return finish_round(
        books, books.begin(), collect=collect, release=release, on_release=on_release
    )


def finish_round(
    books: RoundBookkeeping,
    number: int | None,
    *,
    collect: Callable[[], C | Aborted[S]],
    release: Callable[[C], tuple[S, RoundInfo]],
    on_release: Callable[[S], None] | None = None,
) -> tuple[S, RoundInfo]:
    """Run a round whose intent was written before its cohort was drawn; see ``run_round``.

    Args:
        books: the records of the round.
        number: the result of ``RoundBookkeeping.begin``.
        collect: see ``run_round``.
        release: see ``run_round``.
        on_release: see ``run_round``.

    Raises:
        BudgetExhausted: the round does not fit any more; no result was released.
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
        # Another spender used the budget meanwhile: no result was released.
        books.abort(number, "it exceeds the budget")
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
    """Refuse, by name, arguments that ``step`` cannot take, before a round begins and is spent.

    Raises:
        ParameterError: no state of this kind, no ledger, no budget or no function.
    """
    integer(0, **{"state.round": check_state(kind, state).round})
    check_bookkeeping(ledger, budget)
    check_called(dropout=dropout, on_release=on_release)


def check_state(kind: type[S], state: object) -> S:
    """Return a state of this kind; refuse any other object."""
    if not isinstance(state, kind):
        refuse("state", type(state).__name__, f"be a {kind.__name__}", "start with init()")
    return state


def check_tensor(name: str, found: object, shape: tuple[int, ...], kind: torch.dtype) -> None:
    """Refuse, by name, anything but a tensor of this shape and dtype."""
    got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    require(isinstance(found, Tensor) and got == shape, name, got, f"have shape {shape}")
    own = getattr(found, "dtype", None)
    require(own == kind, f"{name}.dtype", str(own), f"be {kind}")


def check_bookkeeping(ledger: object, budget: object) -> None:
    """Refuse anything but a ledger and a budget."""
    rule, way_out = "be a Ledger or None", "pass fp.Ledger.create(...) or fp.Ledger.open(...)"
    require(ledger is None or has(ledger, "intent", "done"), "ledger", ledger, rule, way_out)
    acts = ("allows", "charge", "spend", "seeded", "released", "ended", "confirm")
    wanted = (*acts, "spent", "states", "way_out")
    rule, way_out = "be a Budget or None", "pass fp.Budget(epsilon, delta, ...)"
    require(budget is None or has(budget, *wanted), "budget", budget, rule, way_out)


def has(one: object, *names: str) -> bool:
    """Return whether an object has all of these attributes; a class of such objects does not."""
    return not isinstance(one, type) and all(hasattr(one, name) for name in names)


def check_called(**functions: object) -> None:
    """Refuse anything but functions."""
    for name, one in functions.items():
        # A class can be called, but would make an unwanted object.
        fits = one is None or (callable(one) and not isinstance(one, type))
        require(fits, name, one, "be a function or None", _GETS[name])


_GETS = {
    "dropout": "it receives the cohort of a round",
    "on_round": "it receives the state and the server's view",
    "on_release": "it receives the state",
}


def check_denominator(declared: bool, *books: object) -> None:
    """Raise ParameterError for add_remove if the denominator follows the number of units.

    Neighbours then differ in that number, and a release divided by it reveals it: the noise of an
    average of 20 clients has another scale than that of 21.

    Args:
        declared: whether the denominator is a number that was stated beforehand.
        books: the ledger and the budget of a run, or None.
    """
    rule = "be given for add_remove, since the number of clients is then not public"
    way_out = "pass a public number near the expected cohort, or account for zero_out"
    public = declared or not any(map(is_add_remove, books))
    require(public, "expected_cohort", None, rule, way_out)


def check_ledger(ledger: Ledger | None, mechanism: Mechanism | None, seed: int | None) -> None:
    """Raise ParameterError unless a ledger fits a run: private, and with a correct seed policy."""
    if ledger is None:
        return
    if mechanism is None:
        refuse(
            "ledger",
            ledger,
            "be None without perturbation",
            "without noise there is no loss to record",
        )
    rule = "be 'fixed' for a run with a seed, which is not private"
    way_out = "create the ledger with seed_policy='fixed' or leave out seed"
    honest = seed is None or ledger.seed_policy == "fixed"
    require(honest, "ledger.seed_policy", ledger.seed_policy, rule, way_out)
    # A round without a theorem for the ledger's facts would be released and never priced.
    if (facts := getattr(ledger, "facts", None)) is not None:
        mechanism.privacy_loss(*facts[1:])


def check_past(
    state: RoundState,
    mechanism: Mechanism | None,
    ledger: Ledger | None,
    budget: RoundBudget | None,
) -> None:
    """Refuse a state whose rounds neither a ledger nor this very budget knows.

    A ledger gives only their number: it must have had at least as many rounds. Whether they are the
    rounds of the state is checked by a checkpoint, not here.

    Args:
        state: the state before a round.
        mechanism: the round; None without privacy.
        ledger: records the rounds.
        budget: is charged with them. It stores the states after them.

    Raises:
        ParameterError: the price of the rounds before the state is unknown.
    """
    if mechanism is not None and ledger is not None:
        begun = ledger.begun_rounds
        rule = f"contain all {state.round} rounds of the state, since an audit counts only these"
        way_out = (
            "pass the ledger of those rounds, or init() with their parameters if they were not "
            "private"
        )
        require(begun >= state.round, "ledger", f"one of {begun} rounds", rule, way_out)
    if mechanism is None or ledger is not None or budget is None:
        return
    known = not state.round or _digest(state) in budget.states
    rule = "be given with a budget, since it records the rounds before this state"
    way_out = (
        "pass fp.Ledger.create(...) from the first round on, or the latest state of this budget"
    )
    require(known, "ledger", None, rule, way_out)


def _digest(state: RoundState) -> str:
    """Return a digest that identifies a state; a copy from a file has the same digest."""
    found = sha256()
    for each in fields(state):  # type: ignore[arg-type]
        value = getattr(state, each.name)
        plain = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        numbers = isinstance(plain, np.ndarray)
        got = (each.name, plain.dtype.str, plain.shape) if numbers else (each.name, plain)
        found.update(repr(got).encode() + (plain.tobytes() if numbers else b""))
    return found.hexdigest()


def silent(dropout: Dropout | None, cohort: Indices) -> set[int]:
    """Return the clients of a cohort that do not answer.

    Raises:
        ParameterError: they are not clients of the cohort.
    """
    if dropout is None:
        return set()
    rule, way_out = "return client numbers of the cohort", "use cohort[mask] for a mask"
    answer = dropout(cohort)
    many = isinstance(answer, Iterable)
    require(many, "dropout", type(answer).__name__, rule, "return [] if all clients answer")
    got = np.asarray([getattr(one, "item", lambda one=one: one)() for one in answer])
    # Not a mask: True and False would be clients 1 and 0.
    whole = got.size == 0 or (got.ndim == 1 and got.dtype.kind in "iu")
    require(whole, "dropout", f"{got.dtype} of shape {got.shape}", rule, way_out)
    found = set(map(int, got))
    require(found <= set(map(int, cohort)), "dropout", sorted(found), rule, way_out)
    return found


def generator_for(seed: int | None, number: int, stream: str) -> np.random.Generator:
    """Return a separate generator for every use: masks and cohorts may be seen.

    Args:
        seed: None for the operating system's randomness, which privacy requires.
        number: the round's number.
        stream: one of ``STREAMS``.
    """
    if seed is None:
        return private_generator()
    seeds = np.random.SeedSequence([seed, number, STREAMS.index(stream)])
    return np.random.Generator(np.random.PCG64DXSM(seeds))


def noise_source(seed: int | None, number: int) -> np.random.Generator | None:
    """Return the source of private noise: None, the operating system, unless there is a seed.

    Args:
        seed: see ``generator_for``.
        number: the round's number.
    """
    return None if seed is None else generator_for(seed, number, "noise")
