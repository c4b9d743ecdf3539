"""Grids of Fed-PLT's settings: epsilon against the error that noise keeps up, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from ...mechanisms import SplittingRun
from ..settings import Settings, axis
from .tradeoff import trade_off


def splitting_settings(
    *,
    sensitivity: float,
    strong_convexity: float,
    smoothness: float,
    coordinates: int,
    penalty: float | Sequence[float],
    local_steps: int | Sequence[int],
    noise_scale: float | Sequence[float],
    step_share: float | Sequence[float] = 0.5,
    gradient_cost: float = 1.0,
    round_cost: float = 10.0,
    accuracy: float = 1e-3,
) -> Settings:
    """Return every stable setting of a grid of Fed-PLT with its run and what it costs.

    The costs are "error", a bound on the root mean square distance to the fixed point that the
    noise keeps up (Corollary 1 with squares), and "time", (N_e t_G + t_C) K. All agents take part
    and solve with noisy gradient descent; K is as many rounds as leave ``accuracy`` of the
    start's distance when nothing is noisy. Settings whose rounds need not converge are left out.
    The run is a ``SplittingRun``: of the observers, ``final`` sees the last models alone and may be
    shown less.

    Args:
        sensitivity: g, the largest move of an agent's gradient when one record is replaced; the
            loss's own, not made by clipping.
        strong_convexity: l of every f_i, above 0.
        smoothness: L of every f_i.
        coordinates: n N, of all agents' models together.
        penalty: rho, a value or several; so are ``local_steps`` to ``step_share``.
        local_steps: N_e.
        noise_scale: tau; a local step's noise has std sqrt(2 gamma) tau.
        step_share: gamma (L + 1 / rho) / 2, in (0, 1).
        gradient_cost: t_G, time of a local step.
        round_cost: t_C, time of a round's communication.
        accuracy: in (0, 1).

    Raises:
        ParameterError: a value out of its range, or no stable setting.
    """
    found = trade_off(
        sensitivity=sensitivity,
        strong_convexity=strong_convexity,
        smoothness=smoothness,
        gradient_cost=gradient_cost,
        round_cost=round_cost,
        coordinates=coordinates,
        penalties=axis("penalty", penalty),
        step_shares=axis("step_share", step_share),
        local_steps=axis("local_steps", local_steps),
        noise_scales=axis("noise_scale", noise_scale),
        accuracy=accuracy,
    )
    names = ("penalty", "step_size", "local_steps", "noise_scale", "rounds")
    return [
        (
            {name: getattr(one.run, name) for name in names},
            (SplittingRun(**asdict(one.run)), {"error": one.error, "time": one.time}),
        )
        for one in found
    ]
