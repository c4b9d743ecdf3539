"""Costs of a setting of private Fed-PLT: privacy, accuracy and time together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...errors import refuse
from ...relations import Observer
from ...systems.fed_plt.bounds import asymptotic_error, convergence, local_noise
from ...systems.settings import COUNT, NON_NEGATIVE, OPEN_SHARE, POSITIVE, Settings, setting
from ...theory.gaussian import epsilon as gaussian_epsilon
from ...theory.splitting_privacy import (
    PrivateSplitting,
    final_models_mu,
    rounds_mu,
    server_or_final,
)


@dataclass(frozen=True, kw_only=True)
class Costs(Settings):
    """Costs of computation and communication, and the accuracy that ends a run."""

    gradient_cost: float = setting(NON_NEGATIVE, "t_G, time of a local step", default=1.0)
    round_cost: float = setting(NON_NEGATIVE, "t_C, time of a round's communication", default=10.0)
    accuracy: float = setting(
        OPEN_SHARE, "share of the initial distance that remains after the rounds", default=1e-3
    )


@dataclass(frozen=True, kw_only=True)
class SplittingProblem(Costs):
    """Common part of all settings of a trade-off: the losses, and the costs.

    Raises:
        ParameterError: a value out of its range.
    """

    sensitivity: float = setting(
        POSITIVE, "g, the largest change of an agent's gradient if one record is replaced"
    )
    strong_convexity: float = setting(POSITIVE, "l of every f_i")
    smoothness: float = setting(POSITIVE, "L of every f_i")
    coordinates: int = setting(COUNT, "n N, the number of coordinates of all agents' models")


@dataclass(frozen=True, kw_only=True)
class SplittingSetting(Settings):
    """One setting of private Fed-PLT.

    Raises:
        ParameterError: a value out of its range.
    """

    penalty: float = setting(POSITIVE, "rho")
    step_share: float = setting(OPEN_SHARE, "gamma (L + 1 / rho) / 2", default=0.5)
    local_steps: int = setting(COUNT, "N_e")
    noise_scale: float = setting(POSITIVE, "tau; a local step's noise has std sqrt(2 gamma) tau")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predictions for a setting of Fed-PLT with noisy gradient descent and all agents active.

    Attributes:
        run: the setting; ``run.rounds`` is the requested or predicted number of rounds.
        time: (N_e t_G + t_C) K, in the units of the costs.
        remaining: bound on the remaining share of the start's distance after K rounds without
            noise.
        error: bound on the root mean square distance to the fixed point that the noise causes.
        mu: the run is mu-GDP for the requested observer.
    """

    run: PrivateSplitting
    time: float
    remaining: float
    error: float
    mu: float

    def epsilon(self, delta: float) -> float:
        """Return the epsilon for ``mu`` at a delta, to twelve digits.

        Publish numbers from ``fp.epsilon`` instead, which rounds upwards.
        """
        return gaussian_epsilon(self.mu, delta)

    @property
    def costs(self) -> dict[str, float]:
        """Time and error by name, the input format of ``fp.pareto``."""
        return {"time": self.time, "error": self.error}


def predict(
    run: PrivateSplitting, problem: SplittingProblem, *, observer: Observer | str = Observer.SERVER
) -> Prediction:
    """Return the predicted costs of a setting (Proposition 1, Corollary 1, T6).

    Args:
        run: the setting.
        problem: its costs and its size.
        observer: observer for mu: "server", or "final", which sees only the models after the last
            round.

    Raises:
        ParameterError: a setting that may not converge, or an unknown observer.
    """
    view = server_or_final(observer)
    shape = {name: getattr(run, name) for name in ("strong_convexity", "smoothness", "penalty")}
    rate = convergence(**shape, local_steps=run.local_steps, step_size=run.step_size)
    noise = local_noise(
        **shape,
        local_steps=run.local_steps,
        noise_scale=run.noise_scale,
        step_size=run.step_size,
        coordinates=problem.coordinates,
    )
    # Both bounds hold, so the smaller one is used.
    mu = rounds_mu(run) if view is Observer.SERVER else min(rounds_mu(run), final_models_mu(run))
    return Prediction(
        run=run,
        time=(run.local_steps * problem.gradient_cost + problem.round_cost) * run.rounds,
        remaining=rate.remaining(run.rounds),
        error=asymptotic_error(rate, noise),
        mu=mu,
    )


def trade_off(
    problem: SplittingProblem,
    settings: Iterable[SplittingSetting],
    *,
    observer: Observer | str = Observer.SERVER,
) -> Iterator[Prediction]:
    """Yield a prediction for every stable setting of several.

    Args:
        problem: common part of the settings.
        settings: for example the result of ``SplittingSetting.grid``.
        observer: "server" or "final".

    Raises:
        ParameterError: no stable setting among them, or an unknown observer.
    """
    stable, most = False, 0
    for one in settings:
        most = max(most, one.local_steps)
        run = _run(problem, one)
        if run is not None:
            stable = True
            yield predict(run, problem, observer=observer)
    # Known only at the end, because settings are generated one by one.
    if not stable:
        refuse("local_steps", most, "be enough for stability", "see fewest_local_steps")


def _run(problem: SplittingProblem, one: SplittingSetting) -> PrivateSplitting | None:
    """Return a setting's run, with enough rounds for the accuracy; None if it is unstable."""
    shape = {name: getattr(problem, name) for name in ("strong_convexity", "smoothness")}
    shape |= {
        "penalty": one.penalty,
        "step_size": one.step_share * 2.0 / (problem.smoothness + 1.0 / one.penalty),
    }
    rate = convergence(**shape, local_steps=one.local_steps)
    if not rate.stable:
        return None
    return PrivateSplitting(
        **shape,
        sensitivity=problem.sensitivity,
        noise_scale=one.noise_scale,
        local_steps=one.local_steps,
        rounds=rate.rounds(problem.accuracy),
    )
