"""FA-HMC: federated Hamiltonian Monte Carlo (Liang et al., Algorithms 1 to 3) as a loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import integer, non_negative, positive, refuse, require
from ...ledger import Ledger
from ...mechanisms import FederatedHamiltonian, Mechanism
from ...rounding import THOUSANDS
from ...training.chains import ChainState, Client, Cohort, LocalWork, SamplingLoop
from ...training.posterior import Array, Spread
from ...training.rounds import Dropout, RoundBudget, RoundInfo
from .law import DebiasedLaws, DynamicSteps, HamiltonianChain


@dataclass(frozen=True, kw_only=True, eq=False)
class HamiltonianSampling(SamplingLoop):
    """Sample with FA-HMC: T trajectories of K leapfrog steps, then an average.

    A trajectory starts with the momentum sqrt(rho) shared + sqrt((1 - rho) / w_c) own and uses 2 K
    - 1 gradients. Each gradient has its own batch and, with ``gradient_noise_multiplier``, its own
    noise. For K > 1 this noise determines the privacy. The temperature is 1. With one leapfrog step
    the path is the same as that of ``LangevinSampling`` with step size eta^2 / 2 and the square
    root of the correlation.

    Args:
        step_size: eta, above 0, or ``systems.fa_hmc.law.DynamicSteps``, counted in trajectories.
        leapfrog_steps: K.
        iterations: T.
        gradient_noise_multiplier: std of the noise on each coordinate of a query's gradient,
            divided by D / (gamma w_c), the largest change by one record.
        correlation: rho, the shared part of the momentum's *variance*.

    Raises:
        ParameterError: a value out of its range; noise on gradients without a sensitivity.
    """

    step_size: float | DynamicSteps
    leapfrog_steps: int = 1
    iterations: int = 1
    gradient_noise_multiplier: float = 0.0

    def __post_init__(self) -> None:
        integer(1, leapfrog_steps=self.leapfrog_steps)
        integer(1, iterations=self.iterations)
        if not isinstance(self.step_size, DynamicSteps):
            positive(step_size=self.step_size)
        if non_negative(gradient_noise_multiplier=self.gradient_noise_multiplier):
            self._check_noise()
        super().__post_init__()

    def _check_noise(self) -> None:
        if self.target.sensitivity is None:
            noise = self.gradient_noise_multiplier
            rule = "be 0 for a target without a sensitivity"
            refuse(
                "gradient_noise_multiplier",
                noise,
                rule,
                "the noise is a multiple of the sensitivity",
            )

    @property
    def steps_a_round(self) -> int:
        """T trajectories."""
        return self.iterations

    def _client(self, index: int, weight: float, fraction: float) -> FederatedHamiltonian:
        return FederatedHamiltonian(
            step_size=self.steps_of(index),
            leapfrog_steps=self.leapfrog_steps,
            correlation=self.correlation,
            weight=weight,
            batch_fraction=fraction,
            gradient_sensitivity=self.target.sensitivity or 1.0,
            gradient_noise_multiplier=self.gradient_noise_multiplier,
            iterations=self.iterations,
        )

    def _gradient_std(self) -> Array:
        """Return the std of the noise on a query's gradient of f^c, for every client."""
        return self._stds(0, lambda client: client.gradient_noise_std)

    def _shared_std(self, index: int) -> float:
        return min(self.steps_of(index)) * math.sqrt(self.correlation)

    @property
    def _noisy_steps(self) -> int:
        # The first query of a trajectory, then one or two for each later step.
        return self.iterations * (1 + (1 + self._fresh) * (self.leapfrog_steps - 1))

    def _locally(self, work: LocalWork) -> tuple[Tensor, float]:
        index, local, clients, _, common, _ = work
        momenta = self._stds(index, lambda client: client.momentum_noise_std)[clients]
        queries = self._gradient_std()[clients]
        points, planned, shares = local.points, math.inf, [1.0]
        for eta in self.steps_of(index):
            gradients, factor = 0.5 * eta**2 * queries, -0.5 * eta**2
            first = Spread.of(np.hypot(eta * momenta, gradients)[..., None], local)
            later = Spread.of(gradients[..., None], local)
            move = self._noised(work, points, factor, first, shares)
            planned = min(planned, first.least)
            if self.correlation > 0.0:
                move = move + eta * math.sqrt(self.correlation) * local.shared(common)
            points = points + move
            for _ in range(self.leapfrog_steps - 1):
                end = again = self._noised(work, points, factor, later, shares)
                # A whole gradient without noise is the same when it is computed again.
                if self._fresh:
                    again = self._noised(work, points, factor, later, shares)
                move = move + end + again
                points = points + move
        return local.finish(points), planned * min(shares) or self._shared_std(index)

    def _noised(
        self, work: LocalWork, points: Any, factor: float, spread: Spread, shares: list[float]
    ) -> Any:
        """Return ``factor`` times a gradient at points, with private noise and the known term.

        Args:
            work: the clients at work.
            points: positions of the gradient.
            factor: factor of the gradient.
            spread: stds of the noise.
            shares: a list; the ratio of the used std to the planned std is appended.
        """
        own, public = work.local.parts(points, factor)
        own, std = self._noisy(own, spread, work.local, work.private)
        shares.append(std / spread.least if spread.least else 1.0)
        own = own if public is None else own + public * points
        return own if work.known is None else own + factor * work.known

    @property
    def _fresh(self) -> bool:
        """Whether a second gradient at the same point differs from the first."""
        return self.batch_fraction < 1.0 or self.gradient_noise_multiplier > 0.0

    @property
    def exact(self) -> HamiltonianChain:
        """The chain's exact law on a Gaussian target: W2 curves, privacy of quadratic losses.

        Raises:
            ParameterError: the target is not a ``GaussianPosterior``, or its clients' weights
                differ while gradients carry noise, whose std then differs too.
        """
        target, stds = self._gaussian().target, self._gradient_std()
        equal = np.allclose(stds, stds[0], rtol=THOUSANDS)
        rule = "be equal for the law of noisy gradients"
        require(equal, "weights", target.shares.tolist(), rule)
        return HamiltonianChain(
            target=target,
            averaging=self.averaging,
            cohort=self.cohort,
            step_size=self.step_size,
            leapfrog_steps=self.leapfrog_steps,
            iterations=self.iterations,
            correlation=self.correlation,
            gradient_std=float(stds[0]),
        )


@dataclass(frozen=True, eq=False)
class DebiasedState(ChainState):
    """State of de-biased chains.

    Args:
        corrections: term added to every client's gradients in the next round, shape (chains, N, d).
            It is the mean of all clients' gradients at the last round's start, less the client's
            own.
    """

    corrections: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class DebiasedSampling(HamiltonianSampling):
    """Sample with de-biased FA-HMC (Algorithms B.1 and B.2): gradients point to the common mode.

    Client c follows grad f^c(x) - grad f^c(y) + grad f(y), where y is the start of the round
    before. So every client also uploads its gradient at the round's start, and the server
    broadcasts their mean.

    The first round differs from the printed one unless the chains start at 0. Algorithm B.2 sets
    both y and grad f(y) to 0 there. This class sets grad f(y) to 0 and takes y = x, the start. The
    printed round needs every client's gradient at the origin, which is one more private release.

    A client keeps the gradient that it released, batch and noise included, and subtracts that. The
    term added to its gradients is then known to every observer of the uploads, and costs no
    privacy. A round is one of ``HamiltonianSampling`` plus one gradient release. The release is
    accounted as an upload of one leapfrog step whose momentum is public. Without noise on gradients
    it gives no privacy, even with one leapfrog step. All clients take part and answer: the mean is
    that of all clients' gradients.

    Args:
        step_size: see ``HamiltonianSampling``, as for all the others.

    Raises:
        ParameterError: a value out of its range, scheme I or II, or ``exact_jump``.
    """

    def __post_init__(self) -> None:
        rule, way_out = "be 'full'", "the gradients of all clients are needed"
        require(self.cohort is None, "averaging", self.averaging, rule, way_out)
        way_out = "the law of a round depends on the previous round"
        require(not self.exact_jump, "exact_jump", True, "be False", way_out)
        super().__post_init__()

    def _in_cohort(self, client: Client, weight: float) -> Mechanism:
        assert isinstance(client, FederatedHamiltonian)
        return client + self._release_of(client)

    def _release_of(self, client: FederatedHamiltonian) -> FederatedHamiltonian:
        """Return the release of one gradient: a leapfrog step with public momentum."""
        steps = client.step_size
        eta = steps if isinstance(steps, float) else steps[0]
        return replace(client, step_size=eta, leapfrog_steps=1, iterations=1, correlation=1.0)

    @property
    def _noisy_steps(self) -> int:
        return super()._noisy_steps + 1

    @property
    def exact(self) -> HamiltonianChain:
        """Not available: a round's law depends on the round before.

        Raises:
            ParameterError: always.
        """
        refuse(
            "exact",
            "a chain",
            "be computed with exact_laws",
            "it needs the positions of two rounds",
        )

    @property
    def exact_laws(self) -> DebiasedLaws:
        """The exact law of every round's positions on a Gaussian target.

        Raises:
            ParameterError: the target is not a ``GaussianPosterior``, or gradients carry noise.
        """
        return DebiasedLaws(chain=super().exact)

    def init(self) -> DebiasedState:
        """Return the state before the first round: all chains at the start."""
        first = super().init()
        shape = (self.chains, len(self.target.shares), self.target.dimension)
        return DebiasedState(0, first.positions, first.draws, first.positions.new_zeros(shape))

    def step(
        self,
        state: ChainState,
        data: Any = None,
        *,
        ledger: Ledger | None = None,
        budget: RoundBudget | None = None,
        dropout: Dropout | None = None,
        on_release: Any = None,
    ) -> tuple[ChainState, RoundInfo]:
        """Run one round; see ``HamiltonianSampling.step``.

        Raises:
            ParameterError: a state of other chains; clients that drop out.
        """
        if not isinstance(state, DebiasedState):
            refuse("state", type(state).__name__, "be a DebiasedState", "start with init()")
        way_out = "the gradients of all clients are needed"
        require(dropout is None, "dropout", dropout, "be None", way_out)
        own: dict[str, Any] = {"ledger": ledger, "budget": budget, "on_release": on_release}
        return super().step(state, data, **own)

    def _release(self, state: ChainState, seats: Cohort) -> tuple[ChainState, RoundInfo]:
        assert isinstance(state, DebiasedState)
        work = self._work(state, seats)
        gradients, share = self._gradients(work)
        # No mean is known before the first exchange. B.2 takes y = 0 here, this loop y = the start.
        known = state.corrections if state.round else -gradients
        positions, std = self._averaged(work._replace(known=work.local.inward(known)), seats)
        mean = torch.einsum(
            "rc,rcd->rd", torch.from_numpy(np.array(seats.shares)).to(gradients), gradients
        )
        after = replace(state, corrections=mean[:, None] - gradients)
        info = self._info(state, seats, std * share, aborted=False)
        return self._after(after, positions), replace(info, upload_bytes=2 * info.upload_bytes)

    def _gradients(self, work: LocalWork) -> tuple[Tensor, float]:
        """Return the released gradients of clients, (chains, N, d), and the noise's share.

        The share is the used std divided by the planned std.
        """
        local, shares = work.local, list[float]()
        spread = Spread.of(self._gradient_std()[work.clients][..., None], local)
        own = self._noised(work, local.points, 1.0, spread, shares)
        return local.outward(own), shares[0]
