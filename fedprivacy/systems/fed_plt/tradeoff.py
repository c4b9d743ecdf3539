"""What a setting of private Fed-PLT costs: privacy, accuracy and time together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ...errors import integer, member, non_negative, open_unit, positive, refuse
from ...theory.gaussian import epsilon as gaussian_epsilon
from ...theory.splitting_privacy import PrivateSplitting, Seen, final_models_mu, rounds_mu
from .bounds import asymptotic_error, convergence, local_noise


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A setting of Fed-PLT with noisy gradient descent, everybody active, and what it is worth.

    Attributes:
        run: the setting; ``run.rounds`` is the number of rounds that was asked for or predicted.
        time: (N_e t_G + t_C) K, in the units of the costs.
        remaining: bound on what is left of the start's distance after K rounds without noise.
        error: bound on the root mean square distance to the fixed point that the noise keeps up.
        mu: the run is mu-GDP for the observer asked for.
    """

    run: PrivateSplitting
    time: float
    remaining: float
    error: float
    mu: float

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that ``mu`` gives at a delta, to twelve digits.

        Numbers to publish come from ``fp.epsilon``, which rounds upwards.
        """
        return gaussian_epsilon(self.mu, delta)

    @property
    def costs(self) -> dict[str, float]:
        """Time and error by name, as ``fp.pareto`` takes them."""
        return {"time": self.time, "error": self.error}


def predict(
    run: PrivateSplitting,
    *,
    gradient_cost: float,
    round_cost: float,
    coordinates: int,
    seen: Seen | str = Seen.SERVER,
) -> Prediction:
    """Return what a setting costs (Proposition 1, Corollary 1, T6).

    Args:
        run: the setting.
        gradient_cost: t_G, time of one local step, at least 0.
        round_cost: t_C, time of one round's communication, at least 0.
        coordinates: n N, of all agents' models together.
        seen: whose mu: "server", or "final" for the models after the last round alone.

    Raises:
        ParameterError: a value out of its range, or a setting that need not converge.
    """
    view, many = member(Seen, seen=seen), integer(1, coordinates=coordinates)
    step = run.local_steps * non_negative(gradient_cost=gradient_cost)
    shape: dict[str, Any] = {
        "strong_convexity": run.strong_convexity,
        "smoothness": run.smoothness,
        "penalty": run.penalty,
        "local_steps": run.local_steps,
    }
    rate = convergence(**shape, step_size=run.step_size)
    noise = local_noise(
        **shape,
        noise_scale=run.noise_scale,
        step_size=run.step_size,
        coordinates=many,
    )
    mu = rounds_mu(run) if view is Seen.SERVER else min(rounds_mu(run), final_models_mu(run))
    return Prediction(
        run=run,
        time=(step + non_negative(round_cost=round_cost)) * run.rounds,
        remaining=rate.remaining(run.rounds),
        error=asymptotic_error(rate, noise),
        mu=mu,
    )


def trade_off(
    *,
    sensitivity: float,
    strong_convexity: float,
    smoothness: float,
    gradient_cost: float,
    round_cost: float,
    coordinates: int,
    penalties: Sequence[float],
    step_shares: Sequence[float],
    local_steps: Sequence[int],
    noise_scales: Sequence[float],
    accuracy: float = 1e-3,
    seen: Seen | str = Seen.SERVER,
) -> Iterator[Prediction]:
    """Yield a prediction for every stable setting of a grid over (rho, gamma, N_e, tau).

    Args:
        sensitivity: g, the largest move of an agent's gradient when one record is replaced.
        strong_convexity: l of every f_i.
        smoothness: L of every f_i.
        gradient_cost: t_G.
        round_cost: t_C.
        coordinates: n N.
        penalties: values of rho.
        step_shares: values of gamma (L + 1 / rho) / 2, in (0, 1).
        local_steps: values of N_e.
        noise_scales: values of tau.
        accuracy: K is so large that this share of the start's distance is left, in (0, 1).
        seen: "server" or "final".

    Raises:
        ParameterError: a value out of its range, or no stable setting in the grid.
    """
    open_unit(accuracy=accuracy)
    any_stable = False
    for rho, share, steps in product(penalties, step_shares, local_steps):
        step = open_unit(step_shares=share) * 2.0 / (smoothness + 1.0 / positive(penalty=rho))
        rate = convergence(
            strong_convexity=strong_convexity,
            smoothness=smoothness,
            penalty=rho,
            local_steps=steps,
            step_size=step,
        )
        if not rate.stable:
            continue
        any_stable, rounds = True, rate.rounds(accuracy)
        for tau in noise_scales:
            run = PrivateSplitting(
                sensitivity=sensitivity,
                strong_convexity=strong_convexity,
                smoothness=smoothness,
                penalty=rho,
                step_size=step,
                noise_scale=tau,
                local_steps=steps,
                rounds=rounds,
            )
            yield predict(
                run,
                gradient_cost=gradient_cost,
                round_cost=round_cost,
                coordinates=coordinates,
                seen=seen,
            )
    if not any_stable:
        most = max(local_steps, default=math.nan)
        refuse("local_steps", most, "reach the boundary of stability", "see fewest_local_steps")
