"""Grids of FA-LD's settings: epsilon against the last iterate's W2 distance to its target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ParameterError, positive, refuse
from ...mechanisms import FederatedLangevin, Mechanism, Parallel
from ...sampling import FixedSize, drawn_once
from ...systems.fa_ld.law import Averaging, GaussianTarget, LangevinChain, batch_noise
from ...systems.settings import (
    CLOSED_SHARE,
    COUNT,
    POSITIVE,
    SHARE,
    WHOLE,
    Axis,
    Priced,
    Settings,
    axis,
    setting,
)
from ...theory.gaussian import Array, Normal, point, w2

ROUNDING = 1e-9
"""Relative margin of computed eigenvalues for the use in T6."""

DIGITS = 10
"""Digits of a distance: equal laws from different computations must not appear to differ."""


@dataclass(frozen=True, kw_only=True)
class MeanProblem(Settings):
    """A posterior for experiments with settings: of a mean, from records in the unit ball.

    Client c's records are drawn uniformly from a ball of radius 1 - ``spread``. The ball's centre
    has distance ``spread`` from 0 and differs between clients. The model assumes that records have
    covariance I, and the prior is flat. So the posterior is N(mean of all records, I / (clients x
    records)), and the gradients of any two possible records of a client differ by a constant of at
    most 2.

    Raises:
        ParameterError: a value out of its range.
    """

    clients: int = setting(COUNT, "N", default=10)
    dimension: int = setting(COUNT, "d", default=2)
    records: int = setting(COUNT, "of each client", default=20)
    spread: float = setting(CLOSED_SHARE, "distance between the clients", default=0.5)
    seed: int = setting(WHOLE, "of the records", default=0)

    # The largest distance of two records' gradients: the unit ball's diameter.
    gradient_sensitivity = 2.0

    @cached_property
    def held(self) -> Array:
        """All records, shape (N, records, d)."""
        generator = np.random.default_rng(self.seed)
        shape = self.clients, self.records, self.dimension
        centres = _directions(generator, (self.clients, 1, self.dimension))
        # Uniform in a ball: volume grows with the d-th power of the radius.
        radii = generator.random((*shape[:2], 1)) ** (1.0 / self.dimension)
        inside = radii * _directions(generator, shape)
        return self.spread * centres + (1.0 - self.spread) * inside

    @cached_property
    def target(self) -> GaussianTarget:
        """The posterior, split over the clients."""
        return GaussianTarget.of_records(list(self.held), np.eye(self.dimension))

    @property
    def gradients(self) -> list[Array]:
        """Each client's records' gradients at 0, shape (records, d)."""
        return [-records for records in self.held]


def _directions(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    drawn = generator.standard_normal(shape)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


@dataclass(frozen=True, kw_only=True)
class LangevinSetting(Settings):
    """One setting of FA-LD.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float = setting(POSITIVE, "eta")
    correlation: float = setting(CLOSED_SHARE, "rho; 1 has no finite epsilon", default=0.0)
    local_steps: int = setting(COUNT, "K", default=1)
    temperature: float = setting(POSITIVE, "tau", default=1.0)
    cohort: int | None = setting(COUNT, "S; by default all clients", default=None)
    batch_fraction: float = setting(SHARE, "gamma: ceil(gamma n_c) records are drawn", default=1.0)
    rounds: int = setting(COUNT, "R")


SHARES_OF_STABILITY = (0.01, 0.03, 0.1, 0.3)
"""Default step sizes, relative to 1 / smoothness."""


def mean_settings(problem: MeanProblem, axes: Mapping[str, Axis]) -> Priced:
    """Return a grid on the posterior of a mean, with default values for axes that are not given.

    Raises:
        ParameterError: see ``langevin_settings``.
    """
    smoothness = problem.target.smoothness
    usual: dict[str, Any] = {
        "step_size": [float(f"{each / smoothness:.3g}") for each in SHARES_OF_STABILITY],
        "correlation": [0.0, 0.5],
        "local_steps": [1, 5, 20],
        "temperature": [1.0, 1.5],
        "rounds": [10, 50],
    }
    return langevin_settings(
        problem.target,
        gradient_sensitivity=problem.gradient_sensitivity,
        gradients=problem.gradients,
        **{**usual, **axes},
    )


def langevin_settings(
    target: GaussianTarget,
    *,
    gradient_sensitivity: float | Sequence[float],
    averaging: str = "II",
    gradients: Sequence[Array] | None = None,
    start: Array | None = None,
    **axes: Axis,
) -> Priced:
    """Return every setting of a grid of FA-LD with its run and its costs.

    The costs are "w2", the distance of the law of one chain's last iterate to the target at
    temperature 1, and "rounds". A chain at another temperature has another limit, which "w2"
    includes. If all clients take part with whole gradients, the law is Gaussian and "w2" is exact.

    With cohorts or batches the law is a mixture. Then "w2" is the distance of the exact moments, a
    lower bound (Gelbrich 1990), and the settings of the grid have one more cost, "w2_at_most". That
    is the distance of the chain with all clients' whole gradients, plus the root of the increase in
    the covariance's trace. This bounds W2: with the same noise in both chains, the mixture's
    iterate is the other chain's iterate plus a sum of terms of conditional mean 0, whose covariance
    is the difference. A chain whose averaged iteration does not contract has infinite costs.

    The observer sees all uploads. The unit is a record. Replacing one record changes its client's
    gradient by the same vector at every parameter, of length at most ``gradient_sensitivity``, and
    does not change the curvature. This is so if losses are quadratic and records enter linearly.
    Whole gradients with a step below 2 / smoothness are then accounted by T6, all other cases by
    composition. Clients of different weight, curvature or batch are accounted separately.

    Args:
        target: target of the chain.
        gradient_sensitivity: D, above 0, for all possible records; one value for all clients, or
            one for each client.
        averaging: "I" or "II", the scheme of drawing and averaging cohorts.
        gradients: for each client its records' gradients at any one parameter, shape (n_c, d);
            needed only for batches.
        start: start of the chain, shape (d,); 0 if None.
        axes: a value or several values for every field of ``LangevinSetting``; ``rounds`` and
            ``step_size`` are required.

    Raises:
        ParameterError: a value out of its range; batches without ``gradients``.
    """
    problem = _Problem(
        target=target,
        sensitivities=_sensitivities(target, gradient_sensitivity),
        averaging=averaging,
        gradients=gradients,
        start=_start(target, start),
    )
    found = [(one.values(), *problem.priced(one)) for one in LangevinSetting.grid(axes)]
    # All laws are exact, so both costs are equal.
    if all(costs["w2"] == costs["w2_at_most"] for _, _, costs in found):
        for _, _, costs in found:
            del costs["w2_at_most"]
    return [(_plain_label(label), (run, costs)) for label, run, costs in found]


def _plain_label(label: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters without the defaults that mean full participation or full batches."""
    silent = {"cohort": None, "batch_fraction": 1.0}
    return {k: v for k, v in label.items() if k not in silent or v != silent[k]}


def _sensitivities(target: GaussianTarget, given: Any) -> list[float]:
    """Return D of every client."""
    values = [positive(gradient_sensitivity=each) for each in axis("gradient_sensitivity", given)]
    if len(values) not in (1, target.clients):
        rule = f"be one number, or one per client, {target.clients} in all"
        refuse("gradient_sensitivity", f"{len(values)} numbers", rule)
    return values if len(values) == target.clients else values * target.clients


def _start(target: GaussianTarget, start: Array | None) -> Normal:
    law = point(np.zeros(target.dimension) if start is None else start)
    if law.mean.shape != (target.dimension,):
        refuse("start", law.mean.shape, f"have shape ({target.dimension},)")
    return law


@dataclass(frozen=True, kw_only=True, eq=False)
class _Problem:
    """Common part of all settings of an FA-LD grid; arguments as in ``langevin_settings``."""

    target: GaussianTarget
    sensitivities: list[float]
    averaging: str
    gradients: Sequence[Array] | None
    start: Normal

    def priced(self, one: LangevinSetting) -> tuple[Mechanism, dict[str, float]]:
        """Return one setting's run and costs."""
        sizes = self._batches(one.batch_fraction)
        chain = LangevinChain(
            target=self.target,
            averaging="full" if one.cohort is None else self.averaging,
            cohort=one.cohort,
            step_size=one.step_size,
            local_steps=one.local_steps,
            correlation=one.correlation,
            temperature=one.temperature,
            gradient_covariance=self._batch_noise(sizes),
        )
        low, high = (
            float(f"{end:.{DIGITS}g}") for end in _distances(chain, self.start, one.rounds)
        )
        costs = {"w2": low, "w2_at_most": high, "rounds": float(one.rounds)}
        return _round(chain, self.sensitivities, self._fractions(sizes)) * one.rounds, costs

    def _batches(self, fraction: float) -> list[int] | None:
        """Return every client's batch size; None for whole gradients."""
        if fraction == 1.0:
            return None
        held = self.gradients
        if held is None or len(held) != self.target.clients:
            way_out = "or use batch_fraction = 1"
            refuse("gradients", held, f"be given for all {self.target.clients} clients", way_out)
        return [math.ceil(fraction * len(each)) for each in held]

    def _batch_noise(self, sizes: list[int] | None) -> Array | None:
        if sizes is None or self.gradients is None:
            return None
        each = zip(self.gradients, sizes, self.target.shares, strict=True)
        return np.array([batch_noise(of, size, float(share)) for of, size, share in each])

    def _fractions(self, sizes: list[int] | None) -> list[float]:
        """Return the share of its records that each client really draws."""
        if sizes is None or self.gradients is None:
            return [1.0] * self.target.clients
        return [size / len(of) for of, size in zip(self.gradients, sizes, strict=True)]


def _distances(chain: LangevinChain, start: Normal, rounds: int) -> tuple[float, float]:
    """Return W2 to the target at temperature 1 from the moments, and an upper end of W2."""
    aim = chain.target.law()
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            if not _contracts(chain.local_round(0).average.matrix):
                return math.inf, math.inf
            law = chain.law(start, rounds)
    except (ParameterError, OverflowError):  # the moments left every finite range
        return math.inf, math.inf
    near = float(w2(law, aim))
    if chain.gaussian and chain.gradient_covariance is None:
        return near, near
    # The same noise with all clients' whole gradients: the mixture differs by its covariance.
    plain = replace(chain, averaging="full", cohort=None, gradient_covariance=None)
    calm = plain.law(start, rounds)
    more = float(np.trace(law.covariance - calm.covariance))
    # Rounding must not put the upper end below the lower end.
    return near, max(near, float(w2(calm, aim)) + math.sqrt(max(0.0, more)))


def _contracts(matrix: Array) -> bool:
    finite = bool(np.isfinite(matrix).all())
    return finite and bool(np.max(np.abs(np.linalg.eigvals(matrix))) < 1.0)


def _round(
    chain: LangevinChain, sensitivities: Sequence[float], fractions: Sequence[float]
) -> Mechanism:
    """Return one round of a chain as a mechanism over every kind of client."""
    (_, hessian), (curvatures, _) = chain.target.kinds, chain.target.spectra
    shares = chain.target.shares.tolist()
    # Equal clients are one kind, which is accounted once.
    kinds = dict.fromkeys(zip(shares, hessian.tolist(), sensitivities, fractions, strict=True))
    clients = tuple(
        _in_cohort(chain, _client(chain, share, curvatures[of], sensitivity, fraction))
        for share, of, sensitivity, fraction in kinds
    )
    return clients[0] if len(clients) == 1 else Parallel(clients)


def _client(
    chain: LangevinChain, share: float, curvatures: Array, sensitivity: float, fraction: float
) -> FederatedLangevin:
    assert isinstance(chain.step_size, float)
    low = float(curvatures.min()) * (1.0 - ROUNDING)
    high = float(curvatures.max()) * (1.0 + ROUNDING)
    contracts = fraction == 1.0 and chain.step_size * high < 2.0
    return FederatedLangevin(
        step_size=chain.step_size,
        temperature=chain.temperature,
        correlation=chain.correlation,
        weight=share,
        batch_fraction=fraction,
        gradient_sensitivity=sensitivity,
        steps=chain.local_steps,
        strong_convexity=low if contracts else None,
        smoothness=high if contracts else None,
    )


def _in_cohort(chain: LangevinChain, client: FederatedLangevin) -> Mechanism:
    """Return the client in its cohort; under scheme I a client drawn twice runs once."""
    if chain.cohort is None:
        return client
    if chain.averaging is Averaging.II:
        return client.in_cohort(FixedSize(chain.cohort, population=chain.target.clients))
    if client.weight == 1.0:
        return client
    return client.in_cohort(drawn_once(chain.cohort, client.weight))
