"""Chains that sample from a posterior split over clients: the common part of FA-LD and FA-HMC.

In a round every chain draws its cohort, whose clients run from the chain's position and upload; the
uploads are averaged. An observer sees the uploads of all chains. C chains on the same data thus
cost C compositions, and the round's mechanism includes them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import Diverged, closed_unit, integer, probability, refuse, require
from ..ledger import Ledger
from ..mechanisms import FederatedHamiltonian, FederatedLangevin, Mechanism, Parallel, Run
from ..mechanisms.exact_normals import StoredDraws
from ..mechanisms.noise import system_seed
from ..mechanisms.rounded import drawn_ahead, noisy_scaled
from ..sampling import FixedSize, WeightedDraws, drawn_once
from ..theory.targets import Averaging, Chain, Stepped, once_if_equal
from .gaussian import GaussianPosterior
from .jumps import UploadLaw
from .posterior import Array, Local, Spread, Target
from .rounds import (
    STREAMS,
    Dropout,
    Indices,
    RoundBookkeeping,
    RoundBudget,
    RoundInfo,
    check_given,
    check_ledger,
    check_past,
    check_tensor,
    run_round,
    silent,
)

Client = FederatedLangevin | FederatedHamiltonian
Noise = StoredDraws | np.random.Generator
"""Source of the clients' own noise: correctly rounded where it is accounted, else numpy's."""


@dataclass(frozen=True, eq=False)
class ChainState:
    """State of the chains after a number of rounds.

    Args:
        round: number of rounds that were run.
        positions: position of every chain, shape (chains, d).
        draws: positions kept until now, shape (chains, draws, d); NaN for draws not made yet.
    """

    round: int
    positions: Tensor
    draws: Tensor


@dataclass(frozen=True, eq=False)
class Cohort:
    """Clients that take part in a round.

    Args:
        clients: client in each seat, shape (chains or 1, seats).
        shares: weight of the seat's upload in the next position, shape (chains, seats); 0 if the
            client also has an earlier seat or does not answer.
        cohort: number of different clients that any chain drew.
        arrived: number of these clients that answered.
    """

    clients: Indices
    shares: Array
    cohort: int
    arrived: int


class LocalWork(NamedTuple):
    """Work of the clients between two averages.

    Args:
        round: index of the round.
        local: the clients at work, in their seats.
        clients: client in each seat, shape (chains or 1, seats).
        private: source of the clients' own noise.
        common: source of the noise that clients share.
        known: public term of each client's gradients, in the coordinates of ``local``; or None.
    """

    round: int
    local: Local
    clients: Indices
    private: Noise
    common: np.random.Generator
    known: Any = None


@dataclass(frozen=True, kw_only=True, eq=False)
class SamplingLoop(Stepped):
    """Common part of ``LangevinSampling`` and ``HamiltonianSampling``.

    Each upload is released to every observer, the steps before it are not. The unit is a record,
    the adjacency ``replace_one``. Every gradient uses a fresh batch of ceil(gamma n_c) records,
    without replacement. Rounding up is conservative; the account uses the rounded fraction.

    Args:
        target: ``Posterior`` or ``GaussianPosterior``. If its gradients have no sensitivity, the
            run is not private and no round is recorded.
        correlation: rho in [0, 1], the correlation of the clients' noise. The shared noise gives no
            privacy: epsilon is infinite at rho = 1.
        averaging: "full": all clients, weighted by p_c. "I": the mean over ``cohort`` draws with
            replacement. Client c is drawn with probability p_c, runs once, and counts as often as
            it is drawn. "II": the mean over ``cohort`` clients of equal weights, drawn without
            replacement.
        cohort: S, for schemes I and II.
        batch_fraction: gamma in (0, 1].
        chains: number of chains. Each draws its own cohorts, batches and noise, and all are
            released.
        exact_jump: for a Gaussian target, draw an upload in one step from its exact law, which is
            faster and has the same law.
        start: public first position, shape (d,); the target's start if None.
        burn_in: rounds before the first position is kept.
        thinning: rounds from one kept position to the next.
        draws: number of positions that the state keeps for each chain.
        seed: None for randomness from the operating system. With a number everything is
            reproducible, the noise too, and therefore not private.

    Raises:
        ParameterError: a value out of its range.
    """

    target: Target
    correlation: float = 0.0
    averaging: Averaging | str = Averaging.FULL
    cohort: int | None = None
    batch_fraction: float = 1.0
    chains: int = 1
    exact_jump: bool = False
    start: Tensor | None = None
    burn_in: int = 0
    thinning: int = 1
    draws: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        closed_unit(correlation=self.correlation)
        probability(batch_fraction=self.batch_fraction)
        for name, least in (("chains", 1), ("thinning", 1), ("burn_in", 0), ("draws", 0)):
            integer(least, **{name: getattr(self, name)})
        if self.seed is not None:
            integer(0, seed=self.seed)
        if self.averaging not in list(Averaging):
            refuse("averaging", self.averaging, "be 'full', 'I' or 'II'")
        self._check_cohort()
        self._check_start()
        self.target.batch_sizes(self.batch_fraction)
        # Checked before the first round: a target without an exact law or an account.
        if self.exact_jump:
            _ = self.exact
        if self.private:
            _ = self.round_mechanism

    def _check_cohort(self) -> None:
        if (self.averaging == Averaging.FULL) != (self.cohort is None):
            refuse("cohort", self.cohort, "be given only for schemes I and II")
        if self.cohort is None:
            return
        size, clients = integer(1, cohort=self.cohort), len(self.target.shares)
        if self.averaging == Averaging.I:
            return
        require(size <= clients, "cohort", size, f"be at most the number of clients = {clients}")
        if not np.allclose(self.target.shares, 1.0 / clients, rtol=1e-9):
            way = "use scheme I, or equal weights, which change the noise of clients"
            refuse("weights", self.target.shares.tolist(), "be equal under scheme II", way)

    def _check_start(self) -> None:
        if self.start is None:
            return
        shape, wanted = tuple(self.start.shape), (self.target.dimension,)
        require(shape == wanted, "start", shape, f"have shape {wanted}")
        require(
            torch.isfinite(self.start).all(), "start", "an entry that is not finite", "be finite"
        )

    # The cost of a round

    @abstractmethod
    def _client(self, index: int, weight: float, fraction: float) -> Client:
        """Return the mechanism of a client of this weight and batch fraction in round ``index``."""

    @property
    def private(self) -> bool:
        """Whether gradients have a sensitivity, so that rounds have a mechanism."""
        return self.target.sensitivity is not None

    @cached_property
    def kinds(self) -> tuple[tuple[float, float], ...]:
        """The clients' different (weight, batch fraction) pairs, in the order of the clients."""
        fractions = self.target.batch_sizes(self.batch_fraction)[1]
        pairs = zip(self.target.shares.tolist(), fractions.tolist(), strict=True)
        return tuple(dict.fromkeys(pairs))

    @once_if_equal
    def mechanism(self, index: int) -> Mechanism | None:
        """Return round ``index`` as a mechanism over all kinds of clients and all chains, or None.

        A record belongs to one client, so kinds of clients are accounted one by one and the largest
        bound is taken. Under scheme I a client of weight p takes part with probability 1 - (1 -
        p)^S.
        """
        if not self.private:
            return None
        kinds = tuple(self._in_cohort(self._client(index, *kind), kind[0]) for kind in self.kinds)
        one = kinds[0] if len(kinds) == 1 else Parallel(kinds)
        return one if self.chains == 1 else one * self.chains

    def _in_cohort(self, client: Client, weight: float) -> Mechanism:
        # A client of weight 1 is in every draw, so the drawing does not protect its data.
        if self.scheme is None or weight == 1.0:
            return client
        if isinstance(self.scheme, WeightedDraws):
            return client.in_cohort(drawn_once(self.scheme.draws, weight))
        return client.in_cohort(self.scheme)

    @cached_property
    def scheme(self) -> FixedSize | WeightedDraws | None:
        """Scheme that draws every chain's cohort, and is accounted; None if all take part."""
        if self.cohort is None:
            return None
        if self.averaging == Averaging.I:
            return WeightedDraws(self.cohort, tuple(self.target.shares.tolist()))
        return FixedSize(self.cohort, len(self.target.shares))

    @property
    def round_mechanism(self) -> Mechanism | None:
        """The first round as a mechanism."""
        return self.mechanism(0)

    def run(self, rounds: int) -> Mechanism:
        """Return ``rounds`` rounds as one mechanism, to be accounted or recorded as the plan.

        Raises:
            ParameterError: the target has no sensitivity.
        """
        count = integer(1, rounds=rounds)
        if self.homogeneous:
            return self._required(0) * count
        # Equal rounds are counted: the cost of an account grows with the number of different
        # rounds.
        counts: dict[Mechanism, int] = {}
        for index in range(count):
            for part, times in self._required(index).sequence():
                counts[part] = counts.get(part, 0) + times
        return Run(tuple(counts.items()))

    def _required(self, index: int) -> Mechanism:
        mechanism = self.mechanism(index)
        if mechanism is None:
            way = "clip the records' gradients (Posterior(clip_norm=...)) or state a sensitivity"
            refuse("target.sensitivity", None, "be known for the account", way)
        return mechanism

    @property
    def rounds(self) -> int:
        """Number of rounds after which all draws are kept."""
        return self.burn_in + self.thinning * self.draws

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the batch sizes that were rounded up to an integer."""
        sizes, fractions = self.target.batch_sizes(self.batch_fraction)
        return tuple(
            f"client {c}: batch_fraction {self.batch_fraction:g} makes batches of {size} records, "
            f"rounded up; accounted with the fraction {real:g}"
            for c, (size, real) in enumerate(zip(sizes, fractions, strict=True))
            if not math.isclose(real, self.batch_fraction, rel_tol=1e-9)
        )

    # Running it

    def init(self) -> ChainState:
        """Return the state before the first round: all chains at the start."""
        like = self.target.start
        first = like if self.start is None else self.start.to(like.device, like.dtype)
        positions = first.repeat(self.chains, 1)
        kept = (self.chains, self.draws, self.target.dimension)
        return ChainState(0, positions, positions.new_full(kept, math.nan))

    @property
    def device(self) -> str:
        """Device of the computation."""
        return str(self.target.start.device)

    def step(
        self,
        state: ChainState,
        data: Target | None = None,
        *,
        ledger: Ledger | None = None,
        budget: RoundBudget | None = None,
        dropout: Dropout | None = None,
        on_release: Callable[[ChainState], None] | None = None,
    ) -> tuple[ChainState, RoundInfo]:
        """Run one round.

        Args:
            state: from ``init`` or an earlier ``step``; unchanged.
            data: the loop's target, or None: the data belong to the target.
            ledger: records the round; its ``intent`` is on disk before noise is drawn.
            budget: checked before the round, charged before noise is drawn.
            dropout: gets the cohort, returns the clients that do not answer; the others' shares are
                rescaled to sum to 1. It must not depend on data. If a chain's whole cohort is
                missing, no chain moves, but the round is spent. If only other rounds counted,
                clients that answer more often would be in more of them.
            on_release: gets the new state after the release and before ``done`` is written.

        Raises:
            BudgetExhausted: the round does not fit; it released no output.
            Diverged: a chain left every finite range; the round has no output and stays spent.
            ParameterError: state, data or ledger do not fit.
        """
        check_given(ChainState, state, ledger, budget, dropout, on_release)
        self._check(state, data, ledger)
        check_past(state, self.round_mechanism, ledger, budget)
        books = RoundBookkeeping(
            mechanism=self.mechanism(state.round),
            ledger=ledger,
            budget=budget,
            clip_norm=self._clip_norm,
            noise_std=self._planned_std(state.round),
            seed=self.seed,
        )
        return run_round(
            books,
            collect=lambda: self._seats(state.round, dropout),
            release=lambda seats: self._release(state, seats),
            on_release=on_release,
        )

    def _check(self, state: ChainState, data: Target | None, ledger: Ledger | None) -> None:
        if data is not None and data is not self.target:
            refuse("data", type(data).__name__, "be the loop's target", "pass loop.target or None")
        shape = (self.chains, self.target.dimension)
        check_tensor("state.positions", state.positions, shape, self.target.start.dtype)
        check_ledger(ledger, self.round_mechanism, self.seed)

    @property
    def _clip_norm(self) -> float:
        return (self.target.sensitivity or 0.0) / 2.0

    @once_if_equal
    def _planned_std(self, index: int) -> float:
        """Return the smallest std of a client step's private noise, or else of its shared noise."""
        own = min(client.step_noise_std for client in self._each(index))
        return own if own > 0.0 else self._shared_std(index)

    @abstractmethod
    def _shared_std(self, index: int) -> float:
        """Return the smallest std of the shared noise in one step."""

    @once_if_equal
    def _each(self, index: int) -> tuple[Client, ...]:
        """Return every client's mechanism in round ``index``; it defines the client's noise."""
        fractions = self.target.batch_sizes(self.batch_fraction)[1]
        kinds = {kind: self._client(index, *kind) for kind in self.kinds}
        pairs = zip(self.target.shares.tolist(), fractions.tolist(), strict=True)
        return tuple(kinds[pair] for pair in pairs)

    def _stds(self, index: int, of: Callable[[Any], Any]) -> Array:
        """Return one property of every client's mechanism, shape (clients, ...)."""
        return np.array([of(client) for client in self._each(index)])

    @staticmethod
    def _noisy(own: Any, spread: Spread, local: Local, source: Noise) -> tuple[Any, float]:
        """Return the private part of the clients' steps with its noise.

        In a private run it is correctly rounded, on each seat's own grid. Later terms are public.

        Args:
            own: the part that depends on the clients' data, shape of the points; may be
                overwritten.
            spread: stds and grid of the seats' mechanisms.
            local: the clients at work.
            source: source of the noise.

        Returns:
            The sum, and the smallest std that was used: 0 without noise.
        """
        if spread.least == 0.0:
            return own, 0.0
        if isinstance(source, StoredDraws):
            stds, grid = spread.stds, spread.grid
            return noisy_scaled(own, stds=stds, deviates=source, grid=grid), spread.least
        noise, stds = local.normal(source), spread.stds
        noise *= stds if isinstance(stds, float) else local.scaled(stds)
        noise += own
        return noise, spread.least

    def _seats(self, index: int, dropout: Dropout | None) -> Cohort:
        """Draw every chain's cohort."""
        if self.scheme is None and dropout is None:
            return self._everybody
        clients, shares = self._drawn(index)
        cohort = np.unique(clients)
        return self._answering(clients, shares, cohort, silent(dropout, cohort))

    @cached_property
    def _everybody(self) -> Cohort:
        clients, shares = self._drawn(0)
        return self._answering(clients, shares, clients[0], set())

    def _drawn(self, index: int) -> tuple[Indices, Array]:
        """Return the client in each seat and the share of its upload."""
        weights = self.target.shares
        if self.scheme is None:
            # One row for all chains: every client takes part in each chain.
            return np.arange(len(weights))[None], weights[None]
        generator = self._generator("cohort", index)
        clients = self.scheme.draw_rows(self.chains, len(weights), generator)
        if isinstance(self.scheme, WeightedDraws):
            return clients, _counted(clients)
        return clients, np.full(clients.shape, 1.0 / clients.shape[1])

    def _answering(
        self, clients: Indices, shares: Array, cohort: Indices, missing: set[int]
    ) -> Cohort:
        """Set missing clients' shares to 0; ``arrived`` is 0 if all of a chain are missing."""
        if not missing:
            full = np.broadcast_to(shares, (self.chains, shares.shape[1]))
            return Cohort(clients, full, len(cohort), len(cohort))
        # The shares of missing clients become 0. The seats stay, so the shapes stay too.
        there = np.where(np.isin(clients, list(missing)), 0.0, shares)
        totals = there.sum(axis=1, keepdims=True)
        arrived = int(np.sum(~np.isin(cohort, list(missing)))) if np.all(totals > 0.0) else 0
        rest = there / totals if arrived else there
        full = np.broadcast_to(rest, (self.chains, rest.shape[1]))
        return Cohort(clients, full, len(cohort), arrived)

    def _release(self, state: ChainState, seats: Cohort) -> tuple[ChainState, RoundInfo]:
        """Run the clients; return the next state and the facts of the round."""
        if seats.arrived == 0:
            info = self._info(state, seats, self._planned_std(state.round), aborted=True)
            return self._after(state, state.positions), info
        positions, std = self._averaged(self._work(state, seats), seats)
        return self._after(state, positions), self._info(state, seats, std, aborted=False)

    def _work(self, state: ChainState, seats: Cohort) -> LocalWork:
        """Return the clients at the start of a round."""
        batches = self._generator("batches", state.round)
        local = self.target.local(seats.clients, state.positions, self.batch_fraction, batches)
        private = self._source(state.round, local)
        # Without shared noise this stream is not used, and a new generator costs as much as a step.
        common = self._generator("shared", state.round) if self.correlation > 0.0 else batches
        return LocalWork(state.round, local, seats.clients, private, common)

    def _averaged(self, work: LocalWork, seats: Cohort) -> tuple[Tensor, float]:
        """Return the average of the uploads, shape (chains, d), and the std of their noise."""
        # `_check_finite` reports an overflow; a warning would be a second report.
        with np.errstate(over="ignore", invalid="ignore"):
            uploads, std = self._jumped(work) if self.exact_jump else self._locally(work)
            # Before the average: 0 times infinity would make the whole average NaN.
            self._check_finite(uploads, work.round)
        parts = torch.from_numpy(np.array(seats.shares)).to(uploads)
        return torch.bmm(parts[:, None, :], uploads)[:, 0, :], std

    @abstractmethod
    def _locally(self, work: LocalWork) -> tuple[Tensor, float]:
        """Run the clients' steps of a round.

        Returns:
            The uploads, shape (chains, seats, d), and the smallest std of a step's private noise
            (of its shared noise, where none is private).
        """

    def _source(self, index: int, local: Local) -> Noise:
        """Return the source of a round's private noise: correctly rounded if accounted."""
        if not self.private:
            return self._generator("noise", index)
        steps = 1 if self.exact_jump else self._noisy_steps
        numbers = steps * math.prod(local.points.shape)
        seeded = None if self.seed is None else self._generator("noise", index)
        return drawn_ahead(seeded, numbers)

    @property
    @abstractmethod
    def _noisy_steps(self) -> int:
        """Number of times that a client draws its own noise in a round."""

    def _check_finite(self, uploads: Tensor, index: int) -> None:
        # The square root of the largest float, so that squares of accepted values are finite too.
        limit = math.sqrt(torch.finfo(uploads.dtype).max)
        # One pass over the values; a NaN fails this comparison.
        if float(torch.linalg.vector_norm(uploads, math.inf)) < limit:
            return
        fine = (uploads.abs() < limit).flatten(1).all(dim=1)
        lost = [int(c) for c in torch.nonzero(~fine).flatten()]
        raise Diverged(
            f"{len(lost)} of {len(fine)} chains (first: {lost[0]}) diverged in round {index}; "
            "it is not released but counts as spent; use a smaller step size"
        )

    def _after(self, state: ChainState, positions: Tensor) -> ChainState:
        done, draws = state.round + 1, state.draws
        kept, left = divmod(done - self.burn_in, self.thinning)
        if not left and 1 <= kept <= self.draws:
            # A copy, because the caller may still hold the earlier state.
            draws = draws.clone()
            draws[:, kept - 1] = positions
        return replace(state, round=done, positions=positions, draws=draws)

    def _info(self, state: ChainState, seats: Cohort, std: float, *, aborted: bool) -> RoundInfo:
        # Clients of share 0 do not send.
        numbers = int(np.count_nonzero(seats.shares)) * state.positions[0].nbytes
        return RoundInfo(
            round=state.round,
            cohort=seats.cohort,
            arrived=seats.arrived,
            refused=0,
            aborted=aborted,
            upload_bytes=numbers,
            noise_std=std,
        )

    def _generator(self, stream: str, number: int) -> np.random.Generator:
        """Return a separate generator for each use, seeded by the system without ``seed``."""
        # Seeded by use and round: an additional round leaves all other draws unchanged.
        if self.seed is None:
            return np.random.Generator(np.random.SFC64(system_seed()))
        seeds = np.random.SeedSequence([self.seed, number, STREAMS.index(stream)])
        return np.random.Generator(np.random.SFC64(seeds))

    # Exact laws of Gaussian targets

    @property
    @abstractmethod
    def exact(self) -> Chain:
        """The chain's exact law on a Gaussian target, see ``systems.fa_ld.law``.

        Raises:
            ParameterError: the target is not a ``GaussianPosterior``.
        """

    def _gaussian(self) -> GaussianPosterior:
        if not isinstance(self.target, GaussianPosterior):
            name = type(self.target).__name__
            refuse("target", name, "be a GaussianPosterior for exact laws", "or run the steps")
        return self.target

    @once_if_equal
    def _law(self, index: int) -> UploadLaw:
        return UploadLaw(self.exact, index)

    def _jumped(self, work: LocalWork) -> tuple[Tensor, float]:
        """Return uploads drawn in one step from the clients' starts, and the std of their noise.

        The std is that of one step: the planned std times the used fraction of the jump's noise.
        """
        index, clients, private, common = work.round, work.clients, work.private, work.common
        local: Any = work.local
        law = self._law(index)
        own, public = local.contracted(law.contraction[local.kinds])
        spread = Spread.of(law.own[clients], local)
        points, used = self._noisy(own, spread, local, private)
        points = points if public is None else points + public
        std = self._planned_std(index) * (used / spread.least if spread.least else 1.0)
        return torch.as_tensor(local.finish(points + law.shared(local, common))), std


def _counted(drawn: Indices) -> Array:
    """Return the shares of sorted seats: a client's first seat has the share of all its draws."""
    first = np.ones(drawn.shape, dtype=bool)
    first[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
    times = (drawn[:, :, None] == drawn[:, None, :]).sum(axis=2)
    return np.where(first, times / drawn.shape[1], 0.0)
