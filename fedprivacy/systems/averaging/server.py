"""The server's side of private averaging, for any way of training and transport.

``FederatedAveraging`` trains the clients on this machine. The engine of a federation trains them
elsewhere. In both cases the cohort, the noise and the price of a round come from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import Diverged, natural, refuse, require, validate_fields, whole
from ...ledger import Ledger
from ...mechanisms import (
    AdaptiveClipping,
    CorrelatedNoise,
    Mechanism,
    Perturbation,
    SampledMechanism,
    Sparsification,
    Sparsifier,
)
from ...relations import Unit
from ...sampling import (
    Everyone,
    FixedSize,
    Scheme,
    WithReplacement,
    expected_size,
)
from ...sampling.epoch import EpochScheme
from ...sampling.scheme import among, cohort_of
from ...training import rounds
from ...training.data import FederatedData
from ...training.lazy import LazyData
from .collect import Collected, check_room


def check_draws(scheme: Scheme) -> None:
    """Refuse a scheme that does not draw every round independently."""
    if isinstance(scheme, EpochScheme):
        refuse("scheme", scheme.name, "draw round by round", "use Poisson or FixedSize")


def is_there(device: str) -> bool:
    """Return whether torch knows a device by this name, and finds it."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        return False
    return kind != "cuda" or torch.cuda.is_available()


def check_data(data: object) -> None:
    """Refuse anything but clients' data."""
    kept, way_out = isinstance(data, FederatedData | LazyData), "FederatedData(...)"
    require(kept, "data", type(data).__name__, "be FederatedData or LazyData", way_out)


def check_perturbation(perturbation: object) -> None:
    """Refuse a perturbation that cannot clip and perturb clients' updates in single precision."""
    if not isinstance(perturbation, Perturbation):
        kind = type(perturbation).__name__
        refuse("perturbation", kind, "be a Perturbation, such as Gaussian, or None")
    unit = perturbation.protects
    require(unit is Unit.CLIENT, "perturbation.unit", unit, "be 'client'", "pass unit='client'")
    clip_norm = perturbation.clip_norm
    multiplier = perturbation.full_noise_std / clip_norm
    for name, value in (("clip_norm", clip_norm), ("noise_multiplier", multiplier)):
        rule = "be between 1e-15 and 1e15, for single precision"
        require(1e-15 <= value <= 1e15, name, value, rule)


def bookkeeping_for(
    mechanism: Mechanism | None,
    perturbation: Perturbation | None,
    ledger: Ledger | None,
    budget: rounds.RoundBudget | None,
    seed: int | None,
) -> rounds.RoundBookkeeping:
    """Return the records of a perturbation's round."""
    return rounds.RoundBookkeeping(
        mechanism=mechanism,
        ledger=ledger,
        budget=budget,
        clip_norm=0.0 if perturbation is None else perturbation.clip_norm,
        noise_std=0.0 if perturbation is None else perturbation.full_noise_std,
        seed=seed,
    )


def contributions(scheme: Scheme, population: int) -> int:
    """Return the number of contributions of a round, on average if it varies."""
    if isinstance(scheme, WithReplacement):
        return scheme.draws
    if isinstance(scheme, FixedSize):
        return scheme.size
    return expected_size(scheme, population)


def largest(scheme: Scheme, population: int) -> int:
    """Return a certain upper bound on the contributions of a round, 0 if there is none."""
    if isinstance(scheme, Everyone):
        return population
    return int(getattr(scheme, "size", getattr(scheme, "draws", 0)))


def check_cohort(scheme: Scheme, population: int, perturbation: Perturbation | None) -> None:
    """Refuse a population that a scheme does not draw from, and cohorts too large for sums."""
    among(scheme, population)
    check_room(largest(scheme, population), perturbation, contributions(scheme, population))


def denominator(
    scheme: Scheme, perturbation: Perturbation, expected_cohort: int | None, population: int
) -> int:
    """Return the divisor of a private sum: a public number, never the real size."""
    if expected_cohort is not None:
        return expected_cohort
    return perturbation.full_cohort or contributions(scheme, population)


def is_declared(scheme: Scheme, expected_cohort: int | None) -> bool:
    """Return whether a private sum's denominator is independent of the number of clients."""
    # A fixed number of draws does not follow the number of clients.
    return expected_cohort is not None or isinstance(scheme, FixedSize | WithReplacement)


def top_mask(update: Tensor, kept: int, round: int) -> Tensor:
    """Return top_k's mask from the update of the public records.

    Raises:
        Diverged: the update is not finite.
    """
    if not update.isfinite().all():
        raise Diverged(
            f"the update from public records in round {round + 1} is not finite; the round is not "
            "released but counts as spent; use a smaller learning_rate"
        )
    return largest_entries(update, kept)


def largest_entries(update: Tensor, kept: int) -> Tensor:
    """Return top_k's mask: the indices of an update's largest entries, ascending, shape (kept,)."""
    # Sorted, like random masks: a mask is a set.
    return update.abs().topk(kept, sorted=False).indices.sort().values


class Released(NamedTuple):
    """The release of a round.

    Attributes:
        parameters: the next ones, shape (d,).
        noise_std: of the noise, as drawn.
        noisy: the noisy sum of contributions behind them.
    """

    parameters: Tensor
    noise_std: float
    noisy: Tensor


def released(
    parameters: Tensor, collected: Collected, source: np.random.Generator | None, step: float
) -> Released:
    """Let the perturbation add noise to a sum, and subtract the noisy sum from the parameters.

    Args:
        parameters: shape (d,).
        collected: the sum.
        source: see ``noise_source``.
        step: factor on the noisy sum.
    """
    noisy, std = collected.noisy(source)
    # Rounded to the model's precision after the noise, never before.
    update = collected.decoded(noisy).to(parameters.dtype)
    if collected.mask is None:
        moved = torch.add(parameters, update, alpha=-step)
    else:
        moved = parameters.index_add(0, collected.mask, update, alpha=-step)
    return Released(moved, std, noisy)


def at_norm(perturbation: Perturbation, clip_norm: float | None) -> Perturbation:
    """Return the perturbation of a round with a learned clip norm, None for its own norm."""
    # For the ledger, other clip norms that vary by round belong to one mechanism.
    if isinstance(perturbation, AdaptiveClipping) and clip_norm is not None:
        return perturbation.at(clip_norm)
    return perturbation


def learned_norm(
    perturbation: Perturbation | None, noisy: Tensor, denominator: float
) -> float | None:
    """Return the next round's clip norm, a function of a release; None if it is constant."""
    if not isinstance(perturbation, AdaptiveClipping):
        return None
    return perturbation.after(noisy, denominator).clip_norm


@dataclass(frozen=True, eq=False)
class Average:
    """The state of private averaging.

    Args:
        round: number of rounds run, aborted ones included.
        parameters: flat vector, shape (d,), single precision.
        clip_norm: of the next round, if it is learned; None for the perturbation's own.
    """

    round: int
    parameters: Tensor
    clip_norm: float | None = None


class StartedRound(NamedTuple):
    """A round whose intent is written, and whose cohort may be drawn.

    Attributes:
        books: its records.
        number: its number in the ledger; None without one.
    """

    books: rounds.RoundBookkeeping
    number: int | None


@dataclass(frozen=True, kw_only=True)
class Server:
    """A private average of clients trained elsewhere: one object draws, adds noise and is priced.

    Args:
        scheme: draws the clients of a round.
        perturbation: clips their updates again, and perturbs the sum.
        population: number of clients; they are numbered from 0.
        expected_cohort: public denominator; see ``FederatedAveraging``.
        missing: largest number of silent clients in a cohort. With more, the round is aborted: no
            result is released, and no loss is charged. Silence must depend neither on data nor on
            the other drawn clients.
        public_update: gets the parameters, shape (d,), returns the update of training on public
            data, shape (d,), which gives top_k's mask. Required for top_k, and refused otherwise.
        seed: None for the operating system's randomness, which privacy requires.

    Raises:
        ParameterError: a value out of its range, or a perturbation that cannot run here.
        UnsupportedCombination: the perturbation's noise does not hold under the scheme.
    """

    scheme: Scheme
    perturbation: Perturbation
    population: int
    expected_cohort: int | None = None
    missing: int = 0
    public_update: Callable[[Tensor], Tensor] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        check_draws(self.scheme)
        check_perturbation(self.perturbation)
        fresh = not isinstance(self.perturbation, CorrelatedNoise)
        rule = "draw new noise in every round, since the participants of earlier rounds are unknown"
        way_out = "use FederatedAveraging or Gaussian"
        require(fresh, "perturbation", "CorrelatedNoise", rule, way_out)
        given = "none" if self.public_update is None else "a function"
        rule = "be given only for a mask of top_k"
        require((given != "none") == self._by_size, "public_update", given, rule)
        validate_fields(self, natural, "population")
        validate_fields(self, whole, "missing")
        validate_fields(self, natural, "expected_cohort", or_none=True)
        validate_fields(self, whole, "seed", or_none=True)
        check_cohort(self.scheme, self.population, self.perturbation)
        _ = self.mechanism

    @cached_property
    def mechanism(self) -> SampledMechanism:
        """One round."""
        return self.perturbation.sampled(self.scheme)

    @property
    def denominator(self) -> int:
        """The divisor of the noisy sum."""
        return denominator(self.scheme, self.perturbation, self.expected_cohort, self.population)

    @property
    def _masks(self) -> bool:
        sparse = self.perturbation.sparsification
        return sparse is not None and sparse.kept < sparse.dimension

    @property
    def _by_size(self) -> bool:
        sparse = self.perturbation.sparsification
        return self._masks and sparse is not None and sparse.sparsifier is Sparsifier.TOP_K

    def books(self, ledger: Ledger, budget: rounds.RoundBudget) -> rounds.RoundBookkeeping:
        """Return the records of rounds.

        Raises:
            ParameterError: the ledger does not fit, or the denominator follows the number of
                clients.
        """
        rounds.check_ledger(ledger, self.mechanism, self.seed)
        rounds.check_denominator(is_declared(self.scheme, self.expected_cohort), ledger, budget)
        return bookkeeping_for(self.mechanism, self.perturbation, ledger, budget, self.seed)

    def now(self, state: Average) -> Perturbation:
        """Return the clipping and noise of a state's round."""
        return at_norm(self.perturbation, state.clip_norm)

    def begin(self, state: Average, books: rounds.RoundBookkeeping) -> StartedRound:
        """Write a round's intent; call it before its cohort is drawn.

        A cohort that is drawn and then dropped stays on the record, as a round that counts.

        Args:
            state: the start of the clients.
            books: from ``books``.

        Raises:
            BudgetExhausted: the round does not fit; no client may get a message.
        """
        now = self._at(state, books)
        return StartedRound(now, now.begin())

    def _at(self, state: Average, books: rounds.RoundBookkeeping) -> rounds.RoundBookkeeping:
        """Return the records with the clip norm and the noise of a state's round."""
        now = self.now(state)
        return replace(books, clip_norm=now.clip_norm, noise_std=now.full_noise_std)

    def cohort(self, number: int) -> rounds.Indices:
        """Return the clients of a round, an entry for each draw; call ``begin`` before it."""
        return cohort_of(
            self.scheme, self.population, rounds.generator_for(self.seed, number, "cohort")
        )

    def mask(self, state: Average) -> Tensor | None:
        """Return the coordinates to send in a round, shape (kept,); None for all.

        Raises:
            ParameterError: ``public_update`` returned no finite update of the model's size.
        """
        sparse = self.perturbation.sparsification
        if sparse is None or not self._masks:
            return None
        if self.public_update is None:
            return torch.from_numpy(
                sparse.draw_mask(rounds.generator_for(self.seed, state.round, "mask"))
            )
        update = self.public_update(state.parameters)
        shape = tuple(state.parameters.shape)
        fits = update.shape == shape and update.isfinite().all()
        require(
            fits, "public_update's result", tuple(update.shape), f"be finite and of shape {shape}"
        )
        return largest_entries(update, sparse.kept)

    def collected(self, state: Average, cohort: rounds.Indices, mask: Tensor | None) -> Collected:
        """Return an empty sum.

        Raises:
            ParameterError: the perturbation is for another dimension.
        """
        dimension = len(state.parameters)
        travels = self.perturbation.sparsification
        if travels is not None and travels.dimension != dimension:
            rule = f"equal the number of parameters of the model, {dimension}"
            refuse("dimension", travels.dimension, rule)
        travels = travels or Sparsification(kept=dimension, dimension=dimension)
        drawn = rounds.generator_for(self.seed, state.round, "rotation")
        own = self.now(state).encoding.of_round(drawn)
        return Collected(cohort, travels, mask, own)

    def step(
        self,
        state: Average,
        running: Collected,
        updates: Iterable[tuple[int, object]],
        books: rounds.RoundBookkeeping | StartedRound,
        on_release: Callable[[Average], None] | None = None,
    ) -> tuple[Average, rounds.RoundInfo]:
        """Run one round on the clients' updates.

        Args:
            state: the start of the clients.
            running: from ``collected``, still empty.
            updates: (client, update) in any order; an unfit one counts as refused.
            books: the result of ``begin`` before the cohort was drawn. Or, if the cohort cannot be
                dropped in between, the result of ``books``: the intent is then written now.
            on_release: gets the new state before ``done`` is written.

        Raises:
            BudgetExhausted: the round does not fit; no result was released.
        """

        def collect() -> Collected | rounds.Aborted[Average]:
            for client, update in updates:
                running.add(client, update)
            silent = running.drawn - running.shares
            if not running.short and silent <= self.missing:
                return running
            same = replace(state, round=state.round + 1)
            return rounds.Aborted(running.answered, same, running.info(state.round))

        def release(collected: Collected) -> tuple[Average, rounds.RoundInfo]:
            size = self.denominator
            source = rounds.noise_source(self.seed, state.round)
            found = released(state.parameters, collected, source, 1.0 / size)
            info = collected.info(state.round, noise_std=found.noise_std, denominator=size)
            norm = learned_norm(collected.perturbation, found.noisy, size)
            return Average(state.round + 1, found.parameters, norm), info

        begun = books if isinstance(books, StartedRound) else self.begin(state, books)
        return rounds.finish_round(
            begun.books, begun.number, collect=collect, release=release, on_release=on_release
        )
