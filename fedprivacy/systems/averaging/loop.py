"""Federated averaging: FedAvg, DP-FedAvg and Fed-SMP are one loop with different perturbations.

The order of a private round ensures that a crash at any moment counts too much, never too little:
budget checked, ``intent`` on disk, updates summed, noise drawn once with the law of the shares that
arrived, release, ``done`` on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import mechanisms
from ...errors import (
    UnsupportedCombination,
    integer,
    natural,
    non_negative,
    positive,
    refuse,
    require,
    validate_fields,
    whole,
)
from ...ledger import Ledger
from ...relations import Adjacency
from ...sampling import Scheme
from ...sampling.epoch import EpochScheme, epoch_of
from ...sampling.scheme import cohort_of, independent_draws
from ...training import rounds
from ...training.data import ClientGroup, FederatedData
from ...training.lazy import LazyData
from ...training.models import ModelFactory
from ...training.optimise import (
    FlatModel,
    LocalSGD,
    Loss,
    check_frozen,
    checked_rates,
    default_device,
)
from .clients import ClientTask, RoundStart, own_randomness, spread, trained
from .collect import Collected
from .epochs import check_epochs, in_turn
from .rows import (
    NoiseFile,
    begun,
    caught_up,
    correlated,
    drawn,
    mask_of,
    may_come,
    noisy,
    of_clients,
    row_of,
    taken,
)
from .server import (
    at_norm,
    bookkeeping_for,
    check_cohort,
    check_data,
    check_perturbation,
    denominator,
    is_declared,
    is_there,
    learned_norm,
    released,
    top_mask,
)
from .state import AdaptiveState, CorrelatedState
from .state import State as State

Clients = FederatedData | LazyData
"""A population: with all of its records, or with records made when clients are drawn."""


@dataclass(frozen=True, kw_only=True)
class FederatedAveraging:
    """Federated averaging, private with any perturbation of the clients' updates.

    Without ``perturbation`` it is FedAvg with equal weights (McMahan et al. 2017), generalised to a
    server's learning rate (Yang, Fang and Liu, Algorithm 1). ``WithReplacement`` is their sampling
    strategy 1, ``FixedSize`` their strategy 2, and ``Everyone`` full participation. With
    ``Gaussian(unit="client")`` it is DP-FedAvg; with ``SparsifiedPerturbation`` it is Fed-SMP (Hu,
    Guo and Gong, Algorithm 2). A private sum is divided by ``expected_cohort``, a public number,
    never by the realised size. A client drawn s times counts s times.

    Args:
        model: builds the module, of single precision and without running statistics. Frozen
            parameters and buffers must be the same in every build.
        scheme: draws the clients of a round. ``RandomAllocation`` and ``Shuffled`` draw an epoch
            at once: ``step`` runs its rounds, and the ledger has one line for the epoch.
        perturbation: clips and perturbs; None for no privacy. With ``CorrelatedNoise`` it is
            DP-FTRL: ``scheme`` draws from the clients that its participation rule allows, the
            guarantee does not need a secret draw, and the noise's memory is stored next to the
            ledger. With ``AdaptiveClipping`` the state holds the clip norm of the next round,
            learned from released values.
        sparsification: coordinates that are sent, without noise and without clipping (FedAvg-rand-k
            and FedAvg-top-k); None for all, or for those of ``perturbation``.
        local_steps: mini-batch steps of a client in a round; either this or ``local_epochs``.
        local_epochs: passes over a client's records in a round.
        mask_epochs: passes over the public records for top_k's mask; None for the clients' steps
            or passes.
        batch_size: records in a mini-batch.
        learning_rate: local learning rate of the first round.
        momentum: local momentum; the velocity is 0 at the start of every round.
        proximal: mu of FedProx (Li et al. 2020): a client's loss plus mu / 2 times the squared
            distance from the round's start. The account does not depend on it, as updates are
            clipped.
        learning_rate_decay: factor on the local learning rate after every round, in (0, 1].
        server_learning_rate: factor on the averaged update.
        server_rates: factors on ``server_learning_rate``, one for every round; () for none. See
            ``fp.factors.rates``.
        server_momentum: heavy-ball momentum of the server, in [0, 1); only with ``CorrelatedNoise``
            (DP-FTRL with momentum).
        loss: takes the model's outputs and a batch's targets, returns their mean loss. For
            regression it is ``nn.MSELoss()``, or any loss that torch can differentiate. None for
            cross-entropy of classes. The account does not depend on it, as updates are clipped.
            Every client has a separate copy, so no client's data affect the next.
        expected_cohort: public denominator of the private average. None for
            ``SparsifiedPerturbation``'s cohort, ``WithReplacement``'s draws, or sampling rate times
            number of clients. Under ``add_remove`` the number of clients is not public. So it must
            be declared if the cohort varies with it; otherwise a ledger or budget is refused.
        seed: None for randomness from the operating system. With a number everything is
            reproducible, the noise too, and therefore not private.
        device: device of the model; by default CUDA if torch finds it.
        processes: number of local processes that train a round's clients, only on the CPU. The
            result is the same, to the last bit, for any number of processes.

    Raises:
        ParameterError: a value out of its range, a perturbation that this loop cannot run or whose
            unit is not a client.
        UnsupportedCombination: the perturbation's noise is not valid under the scheme, or
            sparsification is combined with correlated noise.
    """

    model: ModelFactory
    scheme: Scheme
    perturbation: mechanisms.Perturbation | None = None
    sparsification: mechanisms.Sparsification | None = None
    local_steps: int | None = None
    local_epochs: int | None = None
    mask_epochs: int | None = None
    batch_size: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.0
    proximal: float = 0.0
    learning_rate_decay: float = 1.0
    server_learning_rate: float = 1.0
    server_rates: tuple[float, ...] = ()
    server_momentum: float = 0.0
    loss: Loss | None = None
    expected_cohort: int | None = None
    seed: int | None = None
    device: str = field(default_factory=default_device)
    processes: int = 1

    def __post_init__(self) -> None:
        checked_rates(self.learning_rate, self.learning_rate_decay, self.server_learning_rate)
        non_negative(proximal=self.proximal)
        self._check_server()
        validate_fields(self, natural, "expected_cohort", "mask_epochs", or_none=True)
        validate_fields(self, whole, "seed", or_none=True)
        # LocalSGD checks its own values.
        _ = self.optimiser
        # A module could be used in one run only; a function makes a new one for every run.
        makes, kind = callable(self.model), type(self.model).__name__
        makes = makes and not isinstance(self.model, torch.nn.Module)
        rule = "be a function that builds the module"
        require(makes, "model", kind, rule, "pass lambda: ..., for example")
        there = isinstance(self.device, str) and is_there(self.device)
        require(there, "device", self.device, "be a device that torch finds", "pass 'cpu'")
        alone = integer(1, processes=self.processes) == 1 or self.device == "cpu"
        rule = f"be 1 on device {self.device!r}"
        require(alone, "processes", self.processes, rule, "pass device='cpu'")
        check_epochs(self.scheme, self.perturbation, self.sparsification)
        if self.perturbation is not None:
            self._check_perturbation(self.perturbation)
            _ = self.round_mechanism

    def _check_perturbation(self, perturbation: mechanisms.Perturbation) -> None:
        """Refuse a perturbation that this loop cannot run."""
        if self.sparsification is not None and correlated(perturbation) is not None:
            raise UnsupportedCombination(
                "sparsification with CorrelatedNoise: rows cancel only in common coordinates, "
                "so the mask must be constant in a block; use CorrelatedNoise(kept=, "
                "dimension=), or SparsifiedPerturbation, whose rounds have independent noise"
            )
        if self.sparsification is not None:
            rule = "be None with a perturbation"
            refuse("sparsification", "given", rule, "use SparsifiedPerturbation, which sparsifies")
        self._check_correlated()
        check_perturbation(perturbation)

    def _check_correlated(self) -> None:
        """Refuse schemes that cannot draw from the clients that a participation rule allows."""
        run = correlated(self.perturbation)
        if run is not None and not hasattr(self.scheme, "among_free"):
            way_out = "use FixedSize, Poisson, Everyone, or a scheme with a method among_free(n)"
            refuse("scheme", self.scheme, "draw each client at most once in a round", way_out)
        if run is not None and run.participation.apart and not independent_draws(self.scheme):
            way_out = "use Poisson or Everyone, or leave out apart and account for zero_out"
            rule = "draw every client independently for a participation with apart=True"
            refuse("scheme", self.scheme, rule, way_out)

    def _check_server(self) -> None:
        """Check the server's schedule and momentum."""
        many = isinstance(self.server_rates, Sequence) and not isinstance(self.server_rates, str)
        require(many, "server_rates", self.server_rates, "be a sequence with one rate per round")
        for rate in self.server_rates:
            positive(server_rates=rate)
            largest = float(torch.finfo(torch.float32).max)
            rule = f"be at most {largest:.3g} with server_learning_rate (single precision)"
            require(rate * self.server_learning_rate <= largest, "server_rates", rate, rule)
        fits = 0.0 <= self.server_momentum < 1.0
        require(fits, "server_momentum", self.server_momentum, "be in [0, 1)")
        if self.server_momentum and correlated(self.perturbation) is None:
            rule = "be 0 without CorrelatedNoise"
            refuse("server_momentum", self.server_momentum, rule, "use momentum for clients")

    @cached_property
    def optimiser(self) -> LocalSGD:
        """Local training of a client in one round."""
        return LocalSGD(
            steps=self.local_steps,
            epochs=self.local_epochs,
            batch_size=self.batch_size,
            momentum=self.momentum,
        )

    @cached_property
    def round_mechanism(self) -> mechanisms.SampledMechanism | mechanisms.CorrelatedRow | None:
        """One round as a mechanism, None without privacy; with correlated noise the first row."""
        if (run := correlated(self.perturbation)) is not None:
            return run.row(0)
        return None if self.perturbation is None else self.perturbation.sampled(self.scheme)

    @cached_property
    def flat(self) -> FlatModel:
        """The module for the training of all clients, one after the other."""
        model = self._fresh_model()
        kind = model.flatten().dtype
        single = kind == torch.float32
        require(single, "model's precision", kind, "be torch.float32 throughout")
        sparse = self.sparsification or getattr(self.perturbation, "sparsification", None)
        wanted = model.dimension if sparse is None else sparse.dimension
        rule = f"equal the number of parameters of the model, {model.dimension}"
        require(wanted == model.dimension, "dimension", wanted, rule)
        return model

    def init(self) -> State:
        """Return the state before the first round, with newly initialised parameters.

        Raises:
            ParameterError: frozen parameters differ from those of ``flat``, so a run could not be
                resumed.
        """
        fresh = self._fresh_model()
        check_frozen(fresh, self.flat)
        state = State(0, fresh.flatten(), float(self.learning_rate))
        noise = self.perturbation
        if isinstance(noise, mechanisms.AdaptiveClipping):
            return AdaptiveState(0, state.parameters, state.learning_rate, noise.clip_norm)
        return begun(state, run) if (run := correlated(noise)) else state

    def step(
        self,
        state: State,
        data: Clients,
        *,
        ledger: Ledger | None = None,
        budget: rounds.RoundBudget | None = None,
        dropout: rounds.Dropout | None = None,
        on_release: Callable[[State], None] | None = None,
    ) -> tuple[State, rounds.RoundInfo]:
        """Run one round; with a scheme that draws an epoch at once, all rounds of one epoch.

        Args:
            state: from ``init`` or an earlier ``step``; unchanged.
            data: the clients and their records.
            ledger: records the round; its ``intent`` is on disk before noise is drawn.
            budget: checked before the round, charged before noise is drawn. With
                ``CorrelatedNoise`` it needs a ledger, which has the list of released rows.
            dropout: gets the cohort, returns the clients that do not answer. It must depend neither
                on data nor on the rest of the cohort.
            on_release: gets the new state after the release and before ``done`` is written.

        Returns:
            The next state and the server's view. If more shares of the noise are missing than
                ``perturbation.missing``, the round is aborted: parameters unchanged, budget not
                charged.

        Raises:
            BudgetExhausted: the round does not fit; it released no output.
            ParameterError: state, data or ledger do not fit.
        """
        rounds.check_given(State, state, ledger, budget, dropout, on_release)
        self._check(state, data, ledger, budget)
        if (run := correlated(self.perturbation)) is not None:
            return self._row(state, data, run, ledger, budget, dropout, on_release)
        books = bookkeeping_for(self.round_mechanism, self._now(state), ledger, budget, self.seed)
        collect = partial(self._collect, data=data, dropout=dropout)
        release = partial(self._release, population=data.population)
        begin: Callable[[], Any] = partial(collect, state)
        end: Callable[[Any], tuple[State, rounds.RoundInfo]] = partial(release, state)
        if isinstance(self.scheme, EpochScheme):
            source = self._generator("cohort", state.round)
            begin = partial(epoch_of, self.scheme, data.population, source)
            end = partial(in_turn, state, collect=collect, release=release)
        return rounds.run_round(books, collect=begin, release=end, on_release=on_release)

    def _now(self, state: State) -> mechanisms.Perturbation | None:
        """Return the perturbation of a state's round."""
        noise = self.perturbation
        return None if noise is None else at_norm(noise, getattr(state, "clip_norm", None))

    def _row(
        self,
        state: State,
        data: Clients,
        noise: mechanisms.CorrelatedNoise,
        ledger: Ledger | None,
        budget: rounds.RoundBudget | None,
        dropout: rounds.Dropout | None,
        on_release: Callable[[State], None] | None,
    ) -> tuple[State, rounds.RoundInfo]:
        """Run a round with a row of correlated noise; after a crash, catch up first.

        A row that may have been released without a new state counts as a round without output.
        """
        if not isinstance(state, CorrelatedState):
            refuse("state", type(state).__name__, "be a CorrelatedState", "start with init()")
        # Row 0 pays for all rows: with only a budget, every other row could be released repeatedly.
        rule = "be given with a budget, since it records the released rows"
        given = ledger is not None or budget is None
        require(given, "ledger", None, rule, "pass fp.Ledger.create(...)")
        start = of_clients(state, data.population)
        now = caught_up(start, noise, ledger, rounds.noise_source(self.seed, state.round))
        if now.round > start.round:
            lost = rounds.RoundInfo(
                round=start.round,
                cohort=0,
                arrived=0,
                refused=0,
                aborted=True,
                upload_bytes=0,
                noise_std=0.0,
            )
            return now, lost
        # A case without a theorem is refused before clients are drawn.
        if ledger is not None:
            noise.privacy_loss(*ledger.facts[1:])
        free = may_come(now, noise)
        cohort = drawn(self.scheme, free, self._generator("cohort", now.round))
        mask = mask_of(noise, now.round, self.seed, ledger, self.device)
        books = bookkeeping_for(row_of(now, cohort, noise), noise, ledger, budget, self.seed)
        # Every drawn client counts as taken, even if it does not answer.
        following = taken(now, cohort, noise)
        return rounds.run_round(
            books,
            collect=lambda: self._collect(following, data, dropout, (cohort, mask)),
            release=lambda collected: self._release_row(
                following, collected, data.population, noise, ledger
            ),
            on_release=on_release,
        )

    def _release_row(
        self,
        state: CorrelatedState,
        collected: Collected,
        population: int,
        noise: mechanisms.CorrelatedNoise,
        ledger: Ledger | None,
    ) -> tuple[State, rounds.RoundInfo]:
        """Draw the row, write the memory after it to disk, and only then add the row to the sum."""
        row, std, after = noisy(state, noise, rounds.noise_source(self.seed, state.round))
        if ledger is not None:
            NoiseFile(ledger).write(after)
        size = self._denominator(collected, population)
        # Rounded to the model's precision after the noise, never before.
        release = (collected.total + row).to(state.parameters.dtype)
        # Momentum of noisy sums is post-processing, so it costs no privacy.
        velocity = state.velocity * self.server_momentum
        if collected.mask is None:
            velocity += release
        else:
            velocity.index_add_(0, collected.mask, release)
        step = -self._server_rate(state.round) / size
        parameters = torch.add(state.parameters, velocity, alpha=step)
        info = collected.info(state.round, noise_std=std, denominator=size)
        rate = state.learning_rate * self.learning_rate_decay
        moved = replace(after, parameters=parameters, learning_rate=rate, velocity=velocity)
        return moved, info

    def _server_rate(self, number: int) -> float:
        """Return the server's learning rate in a round."""
        factor = self.server_rates[number] if self.server_rates else 1.0
        return self.server_learning_rate * factor

    def evaluate(self, state: State, data: Clients) -> tuple[float, float]:
        """Return (accuracy, mean loss) on the test set.

        The loss is cross-entropy, or the given loss (accuracy is then NaN).

        Raises:
            ParameterError: no state of this loop, or data that it cannot use or without a test set.
        """
        self._check_fit(state, data)
        rule = "be given to evaluate a model"
        require(len(data.test_labels), "test_features", "none", rule, "reserve test records")
        features, labels = data.test_features.to(self.device), data.test_labels.to(self.device)
        return self.flat.evaluate(state.parameters, features, labels)

    def _fresh_model(self) -> FlatModel:
        """Build the module with this run's randomness, not with torch's global generator."""
        with own_randomness(int(self._generator("model", 0).integers(2**63))):
            return FlatModel(self.model(), torch.device(self.device), self.loss)

    def _check(
        self,
        state: State,
        data: Clients,
        ledger: Ledger | None,
        budget: rounds.RoundBudget | None,
    ) -> None:
        """Refuse arguments that do not fit, before any budget is spent."""
        self._check_fit(state, data)
        rounds.check_ledger(ledger, self.round_mechanism, self.seed)
        rounds.check_past(state, self.round_mechanism, ledger, budget)
        rounds.check_denominator(self._declared, ledger, budget)
        check_cohort(self.scheme, data.population, self._now(state))
        rule = f"have one rate per round, not {len(self.server_rates)} rates"
        last = (state.round + 1) * getattr(self.scheme, "rounds_per_epoch", 1)
        planned = not self.server_rates or last <= len(self.server_rates)
        require(planned, "server_rates", f"round {state.round}", rule, "run no more rounds")
        travels = self._travels
        if travels.sparsifier is mechanisms.Sparsifier.TOP_K and travels.kept < travels.dimension:
            # Raises if there are no public records for a mask.
            data.public()

    def _check_fit(self, state: State, data: Clients) -> None:
        """Refuse data that do not fit the model, checked on test records or zeros only."""
        check_data(data)
        parameters, shape = rounds.check_state(State, state).parameters, (self.flat.dimension,)
        rounds.check_tensor("state.parameters", parameters, shape, torch.float32)
        kind, rule = data.example()[0].dtype, "be torch.float32"
        require(kind == torch.float32, "features", kind, rule, "pass features.float()")
        classes = data.classes if self.loss is None else None
        few = min(2, len(data.test_labels))
        zeros = (part.new_zeros((2, *part.shape[1:])) for part in data.example())
        inputs, targets = (data.test_features[:few], data.test_labels[:few]) if few else zeros
        self.flat.check_outputs(inputs, targets, classes)

    def _collect(
        self,
        state: State,
        data: Clients,
        dropout: rounds.Dropout | None,
        chosen: tuple[rounds.Indices, Tensor | None] | None = None,
        parts: dict[int, Tensor] | None = None,
    ) -> Collected | rounds.Aborted[State]:
        if chosen is None:
            generator = self._generator("cohort", state.round)
            chosen = cohort_of(self.scheme, data.population, generator), self._mask(state, data)
        cohort, mask = chosen
        noise = self._now(state)
        if noise is not None:
            noise = noise.encoding.of_round(self._generator("rotation", state.round))
        running = Collected(cohort, self._travels, mask, noise, self.device, parts)
        missing = rounds.silent(dropout, cohort)
        answering = [client for client in running.turns if client not in missing]
        self._train(state, data, answering, running)
        if not running.short:
            return running
        return rounds.Aborted(
            running.answered, self._after(state, state.parameters), running.info(state.round)
        )

    def _train(self, state: State, data: Clients, clients: list[int], running: Collected) -> None:
        """Train clients, here or in worker processes, and add up their contributions."""
        work = self._work(state)
        jobs = self._jobs(clients, data, self._generator("batches", state.round))
        if self.processes > 1:
            spread(self, work, jobs, running, self._share(len(clients)), self.processes)
            return
        for job in jobs:
            for client, update in zip(job.clients, self._trained(work, job), strict=True):
                running.add(client, update)

    def _work(self, state: State) -> RoundStart:
        return RoundStart(state.parameters, state.learning_rate, self.momentum, self.proximal)

    def _share(self, clients: int) -> int:
        """Return the number of clients in one task of a worker; a worker has a few tasks."""
        return max(1, -(-clients // (4 * self.processes)))

    def _jobs(
        self, clients: list[int], data: Clients, order: np.random.Generator
    ) -> Iterator[ClientTask]:
        """Yield the training jobs; all their random values are drawn here, in one order."""
        most = self.flat.clients_at_once
        if self.processes > 1:
            most = min(most, self._share(len(clients)))
        for group in data.groups(clients, most):
            yield self._job(group, order)

    def _job(
        self, group: ClientGroup, order: np.random.Generator, epochs: int | None = None
    ) -> ClientTask:
        """Draw a group's batches, of as many passes as given, or else as clients make.

        Random layers, such as Dropout, also draw from ``order``, and not from torch's generator,
        whose state may be known to others.
        """
        work = replace(self.optimiser, steps=None, epochs=epochs) if epochs else self.optimiser
        schedule = work.schedule(group.rows, order)
        # The closed form has no random layers.
        seed = None if self.flat.dense is not None else int(order.integers(2**63))
        return ClientTask(group.clients, group.records, schedule, seed)

    def _trained(self, work: RoundStart, job: ClientTask) -> Tensor:
        """Return the updates of a few clients, shape (clients, d)."""
        return trained(self.flat, work, job, self.device)

    @property
    def _travels(self) -> mechanisms.Sparsification:
        """Coordinates that are sent."""
        sparsification = self.sparsification
        if self.perturbation is not None:
            sparsification = self.perturbation.sparsification
        dimension = self.flat.dimension
        return sparsification or mechanisms.Sparsification(kept=dimension, dimension=dimension)

    def _mask(self, state: State, data: Clients) -> Tensor | None:
        """Return the round's kept coordinates, from public randomness or public data."""
        travels = self._travels
        if travels.kept == travels.dimension:
            return None
        generator = self._generator("mask", state.round)
        if travels.sparsifier is mechanisms.Sparsifier.TOP_K:
            everyone = ClientGroup([0], data.public(), [np.arange(len(data.public()[1]))])
            job = self._job(everyone, generator, self.mask_epochs)
            return self._largest(self._trained(self._work(state), job)[0], state)
        return torch.from_numpy(travels.draw_mask(generator)).to(self.device)

    def _largest(self, update: Tensor, state: State) -> Tensor:
        return top_mask(update, self._travels.kept, state.round)

    def _release(
        self, state: State, collected: Collected, population: int
    ) -> tuple[State, rounds.RoundInfo]:
        """Let the perturbation draw the sum's noise; return the state and the round's record."""
        size = self._denominator(collected, population)
        step = self._server_rate(state.round) / size
        source = rounds.noise_source(self.seed, state.round)
        found = released(state.parameters, collected, source, step)
        info = collected.info(state.round, noise_std=found.noise_std, denominator=size)
        following = self._after(state, found.parameters)
        norm = learned_norm(collected.perturbation, found.noisy, size)
        if norm is not None and isinstance(following, AdaptiveState):
            following = replace(following, clip_norm=norm)
        return following, info

    def _denominator(self, collected: Collected, population: int) -> int:
        """Return the divisor of the sum: with privacy a public number, never the real size."""
        if self.perturbation is None:
            # A round without an answer divides its sum of 0 by 1.
            return max(1, collected.arrived)
        return denominator(self.scheme, self.perturbation, self.expected_cohort, population)

    def check_adjacency(self, adjacency: Adjacency | str) -> None:
        """Refuse add_remove if the denominator depends on the number of clients.

        Raises:
            ParameterError: it does.
        """
        rounds.check_denominator(self._declared, adjacency)

    @property
    def _declared(self) -> bool:
        return self.perturbation is None or is_declared(self.scheme, self.expected_cohort)

    def _after(self, state: State, parameters: Tensor) -> State:
        rate = state.learning_rate * self.learning_rate_decay
        return replace(state, round=state.round + 1, parameters=parameters, learning_rate=rate)

    def _generator(self, stream: str, number: int) -> np.random.Generator:
        return rounds.generator_for(self.seed, number, stream)
