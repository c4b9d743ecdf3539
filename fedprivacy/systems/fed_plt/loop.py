"""Federated splitting: Fed-PLT of Bastianello, Liu and Johansson, private with a noisy solver.

N agents minimise sum f_i + h. In a round the coordinator computes y = prox of (rho / N) h at the
mean of the z_i. Every agent that takes part moves from its last model x_i towards the minimiser of
f_i(w) + |w - (2 y - z_i)|^2 / (2 rho), and sends z_i + 2 (x_i - y). Agents that do not take part
keep x_i and z_i (the paper's Algorithm 1).

The unit is a record. The coordinator sees only the end of an agent's local solve, once in each
round of its participation. Given all earlier outputs, the solve starts from a known point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import (
    ParameterError,
    integer,
    natural,
    positive,
    probability,
    refuse,
    require,
    validate_fields,
    whole,
)
from ...ledger import Ledger
from ...mechanisms import Mechanism, Parallel
from ...relations import Unit, is_add_remove
from ...sampling import Everyone, FixedSize, Scheme, SeparateProbabilities
from ...training.rounds import (
    Dropout,
    RoundBookkeeping,
    RoundBudget,
    RoundInfo,
    check_given,
    check_ledger,
    check_past,
    check_tensor,
    generator_for,
    noise_source,
    run_round,
    silent,
)
from .agents import AgentData, AgentLoss
from .bounds import Parameters, Solver, find_parameters
from .proximal import Prox, checked_prox
from .solvers import (
    GRADIENT_DESCENT,
    Constants,
    LocalProblem,
    LocalSolver,
    SolverKind,
    check_targets,
)

Participation = float | Sequence[float] | FixedSize


@dataclass(frozen=True, eq=False)
class SplittingState:
    """State of a run.

    Args:
        round: number of rounds that were run.
        models: x, float64, shape (..., agents, dimension).
        auxiliary: z, same shape.
    """

    round: int
    models: Tensor
    auxiliary: Tensor


@dataclass(frozen=True, kw_only=True)
class FederatedSplitting:
    """Fed-PLT; private if every agent's solver is the noisy one.

    ``FederatedSplitting.on(data, loss=...)`` takes ``records`` and ``dimension`` from the data. If
    the loss does not know its constants itself, it also takes ``constants`` from the data.

    Args:
        loss: loss of every agent.
        records: q_i, each agent's number of records; public, and with it the number of agents.
        dimension: length of a model.
        penalty: rho, above 0; None for the theory's search, as for the solver's steps.
        solver: solver of every agent, or one for each agent.
        regulariser: proximal operator of h, a function of a point and a step; None for h = 0.
        participation: probability in (0, 1] that an agent takes part, independently in every round,
            or one for each agent; ``FixedSize`` for a fixed number of agents.
        constants: strong convexity, above 0, and smoothness of every f_i, if the loss does not know
            them itself. They are used only for convergence; the privacy account uses the loss's
            own.
        gradient_cost: t_G, time of a local step; for the search.
        round_cost: t_C, time of a communication; for the search.
        runs: number of independent runs in one batch; None for one run without the dimension.
            Batches are for experiments: they accept no ledger and no budget.
        seed: None for randomness from the operating system. With a number everything is
            reproducible, the noise too, and therefore not private.
        device: device of the computation.

    Raises:
        ParameterError: a value out of its range; a step size that does not contract; a private
            solver without a sensitivity; private and other solvers together.
    """

    loss: AgentLoss
    records: Sequence[int]
    dimension: int
    penalty: float | None = None
    solver: LocalSolver | Sequence[LocalSolver] = GRADIENT_DESCENT
    regulariser: Prox | None = None
    participation: Participation = 1.0
    constants: Constants | None = None
    gradient_cost: float = 1.0
    round_cost: float = 10.0
    runs: int | None = None
    seed: int | None = None
    device: str = "cpu"

    @classmethod
    def on(cls, data: AgentData, *, loss: AgentLoss, **options: Any) -> FederatedSplitting:
        """Return the loop for some data.

        Args:
            data: determines the numbers of records and the dimension. Without privacy it also
                determines the constants of a loss that has none itself. With noisy solvers penalty,
                steps and step size must not depend on the data, so they must then be given.
            loss: loss of every agent.
            options: the other arguments.
        """
        if not isinstance(data, AgentData):
            rule, way_out = "be AgentData", "use AgentData.of([(features, targets), ...])"
            refuse("data", type(data).__name__, rule, way_out)
        given = options.get("solver", GRADIENT_DESCENT)
        each = given if isinstance(given, Sequence) else [given]
        private = any(getattr(one, "private", False) for one in each)
        # Only without privacy: constants computed from the data reveal information about the data.
        if loss.curvature() is None and not private:
            options = {"constants": loss.curvature(data)} | options
        return cls(loss=loss, records=data.records, dimension=loss.dimension(data), **options)

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", _sizes(self.records))
        integer(1, dimension=self.dimension)
        validate_fields(self, positive, "penalty", or_none=True)
        validate_fields(self, natural, "runs", or_none=True)
        validate_fields(self, whole, "seed", or_none=True)
        if self.constants is not None:
            pair = isinstance(self.constants, Sequence) and len(self.constants) == 2
            rule = "be two numbers, strong convexity and smoothness"
            require(pair, "constants", self.constants, rule)
        if self.curvature is not None:
            positive(
                "Fed-PLT converges for strongly convex losses, so add a regulariser",
                strong_convexity=self.curvature[0],
            )
        _ = self.schemes
        self._check_solvers()
        # Tried on a point that does not depend on data.
        checked_prox(self.regulariser, torch.zeros(self.dimension, dtype=torch.float64), 1.0)
        # This refuses a private solver without an account.
        _ = self.round_mechanism

    @property
    def agents(self) -> int:
        """N."""
        return len(self.records)

    @property
    def curvature(self) -> Constants | None:
        """Strong convexity and smoothness of every f_i, from the loss itself or as given."""
        own = self.loss.curvature()
        return self.constants if own is None else own

    @property
    def _given(self) -> tuple[LocalSolver, ...]:
        """One solver for each agent, as given."""
        given = self.solver
        each = (given,) * self.agents if isinstance(given, LocalSolver) else given
        if not isinstance(each, Sequence) or not all(isinstance(one, LocalSolver) for one in each):
            refuse("solver", given, "be a LocalSolver, or one per agent")
        return tuple(each)

    @property
    def _searched(self) -> Solver:
        """Solver kind for the theory's search, which supports one kind for all agents."""
        fast = {each.method for each in self._given} == {SolverKind.ACCELERATED}
        # Gradient steps, the slower ones, represent a mixture.
        return Solver.ACCELERATED if fast else Solver.GRADIENT

    @cached_property
    def found(self) -> Parameters | None:
        """Result of the theory's search; None if all values were given."""
        given_steps = {each.steps for each in self._given}
        if self.penalty is not None and None not in given_steps:
            return None
        if self.curvature is None:
            rule = "be given if the curvature of the loss is unknown"
            way_out = "give both, bound the inputs, or use FederatedSplitting.on(data, ...)"
            refuse("penalty, steps", (self.penalty, *given_steps), rule, way_out)
        return find_parameters(
            strong_convexity=self.curvature[0],
            smoothness=self.curvature[1],
            gradient_cost=self.gradient_cost,
            round_cost=self.round_cost,
            local_steps=given_steps.pop() if len(given_steps) == 1 else None,
            penalty=self.penalty,
            solver=self._searched,
        )

    @cached_property
    def rho(self) -> float:
        """The penalty, given or found."""
        if self.penalty is not None:
            return self.penalty
        assert self.found is not None
        return self.found.penalty

    @cached_property
    def solvers(self) -> tuple[LocalSolver, ...]:
        """Every agent's solver, with steps and step size as numbers."""
        given = self._given
        rule = f"be one, or one per agent, {self.agents} in all"
        require(len(given) == self.agents, "solver", len(given), rule)
        steps = None if self.found is None else self.found.local_steps
        # Equal solvers are settled once.
        settled = {
            each: each.settled(self.curvature, self.rho, steps) for each in dict.fromkeys(given)
        }
        return tuple(settled[each] for each in given)

    @cached_property
    def scheme(self) -> FixedSize | SeparateProbabilities:
        """Scheme that draws the agents of a round."""
        given = self.participation
        if isinstance(given, FixedSize):
            fits, rule = given.population == self.agents, f"draw from {self.agents} agents"
            require(fits, "participation", given, rule)
            return given
        if isinstance(given, str) or not isinstance(given, int | float | Sequence | np.ndarray):
            way_out = "pass p for Poisson(p); no other scheme is supported"
            refuse("participation", given, "be FixedSize or probabilities", way_out)
        chances = [given] * self.agents if isinstance(given, int | float) else list(given)
        rule = f"be one, or one per agent, {self.agents} in all"
        require(len(chances) == self.agents, "participation", len(chances), rule)
        return SeparateProbabilities(tuple(probability(participation=each) for each in chances))

    @cached_property
    def schemes(self) -> tuple[Scheme, ...]:
        """Scheme of each agent."""
        if isinstance(self.scheme, FixedSize):
            return (self.scheme,) * self.agents
        return tuple(self.scheme.of(agent) for agent in range(self.agents))

    @cached_property
    def round_mechanism(self) -> Mechanism | None:
        """One round as a mechanism, None without privacy; different agents are separate kinds."""
        if not self.solvers[0].private:
            return None
        # Agents with equal solver, size and scheme are one kind.
        kinds = dict.fromkeys(zip(self.solvers, self.records, self.schemes, strict=True))
        mechanisms = [
            _taking_part(solver.mechanism(self.loss, size, self.rho), scheme)
            for solver, size, scheme in kinds
        ]
        return mechanisms[0] if len(mechanisms) == 1 else Parallel(tuple(mechanisms))

    def init(self) -> SplittingState:
        """Return the state before the first round: public, the same for every agent."""
        lead = () if self.runs is None else (self.runs,)
        generator = torch.Generator()
        generator.manual_seed(int(generator_for(self.seed, 0, "model").integers(2**62)))
        start = self.loss.start(generator)
        point = torch.zeros(self.dimension, dtype=torch.float64) if start is None else start
        # A user's loss may start in another precision than that of the steps.
        point = point.to(self.device, torch.float64)
        # Expanded rows share memory, so they are copied: agents' models must be separate.
        models = point.expand(*lead, self.agents, self.dimension).clone()
        return SplittingState(0, models, models.clone())

    def step(
        self,
        state: SplittingState,
        data: AgentData,
        *,
        ledger: Ledger | None = None,
        budget: RoundBudget | None = None,
        dropout: Dropout | None = None,
        on_release: Callable[[SplittingState], None] | None = None,
    ) -> tuple[SplittingState, RoundInfo]:
        """Run one round.

        Args:
            state: from ``init`` or an earlier ``step``; unchanged.
            data: the agents and their records.
            ledger: records the round; its ``intent`` is on disk before noise is drawn.
            budget: checked before the round, charged before noise is drawn.
            dropout: gets the agents drawn and returns those that do not answer. Dropouts must not
                depend on data.
            on_release: gets the new state after the release and before ``done`` is written.

        Returns:
            The next state and the coordinator's view of the round, counted over all runs. An agent
                whose solve is not finite counts as refused and keeps its state.

        Raises:
            BudgetExhausted: the round does not fit; it released no output.
            ParameterError: state, data, ledger or budget do not fit, or the regulariser returns a
                value other than a finite point.
        """
        check_given(SplittingState, state, ledger, budget, dropout, on_release)
        ready = self._checked(state, data, ledger, budget)
        # Before the ledger and budget: a regulariser that fails spends no round.
        average = self.consensus(state)
        clip_norm, noise_std = self._planned
        books = RoundBookkeeping(
            mechanism=self.round_mechanism,
            ledger=ledger,
            budget=budget,
            clip_norm=clip_norm,
            noise_std=noise_std,
            seed=self.seed,
        )
        return run_round(
            books,
            collect=lambda: self._draw(state.round, dropout),
            release=lambda drawn: self._release(state, ready, average, drawn),
            on_release=on_release,
        )

    def consensus(self, state: SplittingState) -> Tensor:
        """Return y, the coordinator's model, shape (..., dimension); it meets h's constraints."""
        mean = state.auxiliary.mean(-2)
        return checked_prox(self.regulariser, mean, self.rho / self.agents)

    def average(self, state: SplittingState) -> Tensor:
        """Return the mean of the agents' models, shape (..., dimension)."""
        return state.models.mean(-2)

    @cached_property
    def _planned(self) -> tuple[float, float]:
        """Clip norm and noise std for the ledger, of the agent with the least noise.

        With clipped gradients these are the clip norm, and the noise on the sum of a step's clipped
        gradients. Without clipping they are the largest change of a gradient by one record, and the
        noise on the gradient.
        """
        rows = []
        for solver, size in dict.fromkeys(zip(self.solvers, self.records, strict=True)):
            if not solver.private or solver.step_size is None:
                return 0.0, 0.0
            noise = solver.noise_std / solver.step_size
            own = self.loss.sensitivity(size)
            rows.append(
                (own or 0.0, noise)
                if solver.clip_norm is None
                else (0.5 * size * self._moves(solver, size), noise * size)
            )
        return min(rows, key=lambda row: row[1] / row[0])

    @cached_property
    def _noise_stds(self) -> NDArray[np.float64]:
        """Planned std of the noise in each agent's steps."""
        return np.array([solver.noise_std for solver in self.solvers])

    @cached_property
    def _widening(self) -> NDArray[np.float64] | None:
        """Each agent's factor on its noise if T6 accounts its steps together, else None.

        T6 applies to all agents or to none, as they have one loss and one clip norm.
        """
        if not self.solvers[0].private:
            return None
        kinds = dict.fromkeys(zip(self.solvers, self.records, strict=True))
        factors = {}
        for solver, size in kinds:
            mechanism = solver.mechanism(self.loss, size, self.rho)
            if not mechanism.contracts:
                return None
            factors[solver, size] = mechanism.widening(self.dimension)
        return np.array([factors[pair] for pair in zip(self.solvers, self.records, strict=True)])

    def _moves(self, solver: LocalSolver, size: int) -> float:
        """Return the largest change of a clipped gradient by one record, as accounted."""
        return solver.mechanism(self.loss, size, self.rho).sensitivity

    def _check_solvers(self) -> None:
        alike = len({each.private for each in self.solvers}) == 1
        rule = "be noisy for all agents or for none"
        way_out = "the records of agents without noise are not protected"
        require(alike, "solver", "noisy for some agents", rule, way_out)
        alike = len({each.clip_norm for each in self.solvers}) == 1
        require(alike, "solver.clip_norm", "several", "be the same for all agents")
        newton = SolverKind.NEWTON in {each.method for each in self.solvers}
        solved = not newton or type(self.loss).hessian is not AgentLoss.hessian
        rule = "not be newton for a loss without a hessian"
        require(solved, "solver.method", "newton", rule, "Logistic and LeastSquares have one")

    def _checked(
        self,
        state: SplittingState,
        data: AgentData,
        ledger: Ledger | None,
        budget: RoundBudget | None,
    ) -> AgentData:
        """Check the arguments of a round; return the data in the form that the loss requires."""
        lead = () if self.runs is None else (self.runs,)
        shape = (*lead, self.agents, self.dimension)
        for name in ("models", "auxiliary"):
            check_tensor(f"state.{name}", getattr(state, name), shape, torch.float64)
        kind, way_out = isinstance(data, AgentData), "AgentData.of([(A, b), ...])"
        require(kind, "data", type(data).__name__, "be AgentData", way_out)
        # Sensitivities were divided by the declared sizes.
        declared, rule = data.records == self.records, f"be the declared numbers, {self.records}"
        require(declared, "data.records", data.records, rule)
        dimension, rule = self.loss.dimension(data), f"have dimension {self.dimension}"
        require(dimension == self.dimension, "data", dimension, rule)
        check_targets(self.loss, data)
        require(data.runs in (None, self.runs), "data.runs", data.runs, f"be {self.runs} or None")
        self._check_books(ledger, budget)
        check_past(state, self.round_mechanism, ledger, budget)
        return self.loss.prepared(data)

    def _check_books(self, ledger: Ledger | None, budget: RoundBudget | None) -> None:
        for name, book in (("ledger", ledger), ("budget", budget)):
            if book is None:
                continue
            rule, way_out = "be None for a batch of runs", "leave out runs for a private run"
            require(self.runs is None, name, f"{self.runs} runs", rule, way_out)
            rule = "not be add_remove, since an agent divides by its number of records"
            public = not is_add_remove(book)
            require(public, f"{name}.adjacency", "add_remove", rule, "use replace_one")
            unit = getattr(getattr(book, "facts", book), "unit", None)
            require(unit is not Unit.CLIENT, f"{name}.unit", "client", "be 'record'")
        check_ledger(ledger, self.round_mechanism, self.seed)

    def _draw(self, number: int, dropout: Dropout | None) -> _DrawnAgents:
        """Draw the agents that take part, in every run."""
        generator = generator_for(self.seed, number, "cohort")
        lead = () if self.runs is None else (self.runs,)
        here = np.zeros((*lead, self.agents), dtype=bool)
        # Rows are views, so setting a row sets the whole array.
        for row in here.reshape(-1, self.agents):
            row[self.scheme.draw(self.agents, generator)] = True
        cohort = int(here.sum())
        for row in here.reshape(-1, self.agents):
            row[list(silent(dropout, np.flatnonzero(row)))] = False
        return _DrawnAgents(torch.from_numpy(here).to(self.device), cohort)

    def _release(
        self, state: SplittingState, data: AgentData, average: Tensor, drawn: _DrawnAgents
    ) -> tuple[SplittingState, RoundInfo]:
        """Run the agents' solves; return the next state and the facts of the round."""
        on = drawn.answering
        after, failed, share = self._solved(state, data, average, on)
        answered = int(on.sum())
        info = RoundInfo(
            round=state.round,
            cohort=drawn.cohort,
            arrived=answered - failed,
            refused=failed,
            aborted=False,
            # Models are sent in double precision.
            upload_bytes=answered * self.dimension * 8,
            # The little extra noise that covers rounding would reveal which agents took part.
            noise_std=min(share, 1.0) * self._planned[1],
        )
        return after, info

    def _solved(
        self, state: SplittingState, data: AgentData, average: Tensor, on: Tensor
    ) -> tuple[SplittingState, int, float]:
        """Solve locally for the agents that take part.

        Returns:
            The next state, the number of solves that are not finite, and the smallest share of its
                planned noise that any agent used.
        """
        centre = average.unsqueeze(-2)
        anchors = 2.0 * centre - state.auxiliary
        everybody = bool(on.all())
        # Only agents that take part compute; in a batch they differ between runs.
        if self.runs is None and not everybody:
            chosen = on.nonzero()[:, 0]
            models = state.models.clone()
            models[chosen], share = self._solve(
                state, data.only(chosen), state.models[chosen], anchors[chosen], chosen.tolist()
            )
        else:
            everyone = range(self.agents)
            models, share = self._solve(state, data, state.models, anchors, everyone)
        moved = state.auxiliary + 2.0 * (models - centre)
        finite = torch.isfinite(moved).all(-1)
        if everybody and bool(finite.all()):
            return SplittingState(state.round + 1, models, moved), 0, share
        kept = (on & finite)[..., None]
        after = SplittingState(
            state.round + 1,
            torch.where(kept, models, state.models),
            torch.where(kept, moved, state.auxiliary),
        )
        return after, int((on & ~finite).sum()), share

    def _solve(
        self,
        state: SplittingState,
        data: AgentData,
        start: Tensor,
        anchors: Tensor,
        agents: Sequence[int],
    ) -> tuple[Tensor, float]:
        # No agent takes part: no solve and no noise.
        if not len(agents):
            return start, 1.0
        widening = None if self._widening is None else self._widening[list(agents)]
        problem = LocalProblem(self.loss, data, anchors, self.rho, self.curvature, widening)
        solvers = [self.solvers[agent] for agent in agents]
        ends, used = problem.solve(
            start,
            solvers,
            generator_for(self.seed, state.round, "batches"),
            noise_source(self.seed, state.round),
        )
        planned = self._noise_stds[list(agents)]
        return ends, float(np.min(used / planned)) if planned.all() else 0.0


@dataclass(frozen=True)
class _DrawnAgents:
    """Agents that take part: booleans of shape (..., agents), and the number of drawn agents."""

    answering: Tensor
    cohort: int


def _sizes(records: Sequence[int]) -> tuple[int, ...]:
    many = isinstance(records, Sequence) and not isinstance(records, str)
    require(many, "records", records, "be a sequence with the number of records of each agent")
    require(len(records), "records", records, "have one entry per agent and at least one agent")
    sizes = []
    for agent, size in enumerate(records):
        try:
            sizes.append(integer(1, records=size))
        except ParameterError:
            rule = "be an integer of at least 1"
            refuse(f"records[{agent}]", size, rule, "leave out agents without data")
    return tuple(sizes)


def _taking_part(mechanism: Mechanism, scheme: Scheme) -> Mechanism:
    return mechanism if isinstance(scheme, Everyone) else mechanism.in_cohort(scheme)
