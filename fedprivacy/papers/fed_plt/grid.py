"""Grids of Fed-PLT's settings: epsilon against the error caused by noise, and the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ...mechanisms import SplittingRun
from ...systems.settings import COUNT, POSITIVE, Axis, Priced, setting
from .tradeoff import Costs, SplittingProblem, SplittingSetting, trade_off


@dataclass(frozen=True, kw_only=True)
class Regression(Costs):
    """A logistic regression with features of bounded norm, and the costs of its rounds.

    Raises:
        ParameterError: a value out of its range.
    """

    agents: int = setting(COUNT, "N", default=100)
    dimension: int = setting(COUNT, "of an agent's model", default=5)
    records: int = setting(COUNT, "of each agent", default=250)
    regularisation: float = setting(POSITIVE, "strong convexity of every loss", default=0.5)
    feature_bound: float = setting(POSITIVE, "largest norm of a record's features", default=2.0)

    @property
    def splitting(self) -> SplittingProblem:
        """The same problem in the theory's form; the logistic loss has curvature at most 1/4."""
        return SplittingProblem(
            sensitivity=2.0 * self.feature_bound / self.records,
            strong_convexity=self.regularisation,
            smoothness=self.regularisation + 0.25 * self.feature_bound**2,
            coordinates=self.agents * self.dimension,
            **{name: getattr(self, name) for name in Costs.known()},
        )


def regression_settings(problem: Regression, axes: Mapping[str, Axis]) -> Priced:
    """Return a grid on a regression, with default values for axes that are not given.

    Raises:
        ParameterError: see ``splitting_settings``.
    """
    usual: dict[str, Axis] = {
        "penalty": [0.3, 1.0, 3.0],
        "step_share": [0.25, 0.5, 0.75],
        "local_steps": [5, 10, 20],
        "noise_scale": [0.01, 0.03, 0.1, 0.3],
    }
    return splitting_settings(problem.splitting, **{**usual, **axes})


def splitting_settings(problem: SplittingProblem, **axes: Axis) -> Priced:
    """Return every stable setting of a grid of Fed-PLT with its run and its costs.

    The costs are "error" and "time". "error" is a bound on the root mean square distance to the
    fixed point that the noise causes (Corollary 1 with squares). "time" is (N_e t_G + t_C) K. All
    agents take part and solve with noisy gradient descent. K is the number of rounds after which
    the distance is ``accuracy`` of the start's distance without noise. Settings whose rounds may
    not converge are left out. The run is a ``SplittingRun``. The observer ``final`` sees only the
    last models and may have a smaller epsilon.

    Args:
        problem: the losses and the costs; the sensitivity is that of the losses themselves, not
            from clipping.
        axes: a value or several values for every field of ``SplittingSetting``.

    Raises:
        ParameterError: a value out of its range, or no stable setting.
    """
    found = trade_off(problem, SplittingSetting.grid(axes))
    names = ("penalty", "step_size", "local_steps", "noise_scale", "rounds")
    return [
        (
            {name: getattr(one.run, name) for name in names},
            (SplittingRun(**asdict(one.run)), {"error": one.error, "time": one.time}),
        )
        for one in found
    ]
