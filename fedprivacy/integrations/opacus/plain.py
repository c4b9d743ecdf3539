"""An ``IAccountant`` without a data loader, for code that only passes noise and a rate."""

from __future__ import annotations

import math
from typing import Any

from opacus.accountants import IAccountant

from ...bound import Bound
from ...errors import integer, member, non_negative, probability, refuse, require
from ...mechanisms import Gaussian, Mechanism, Run
from ...questions.calibrate import calibrate
from ...questions.epsilon import epsilon
from ...relations import Adjacency
from ...sampling import Poisson

NAME_PLAIN = "fedprivacy-poisson"
"""The mechanism of a state of ``PoissonAccountant``."""

History = list[tuple[float, float, int]]


class PoissonAccountant(IAccountant):  # type: ignore[misc]
    """Opacus's accountant interface with certified numbers, for stated Poisson batches.

    It trusts its caller: every step is a Poisson sample at the given rate, and every record's
    gradient is clipped to the norm of the noise multiplier. Opacus's own accountants assume the
    same. ``CertifiedAccountant`` inspects the loader and the optimizer.

    Args:
        adjacency: how neighbouring data sets differ; by default Opacus's own relation.

    Attributes:
        history: (noise multiplier, sample rate, steps) of equal steps, in Opacus's form.

    Raises:
        ParameterError: not an adjacency.
    """

    def __init__(self, adjacency: Adjacency | str = Adjacency.ADD_REMOVE) -> None:
        self.history: History = []
        self.adjacency = member(Adjacency, adjacency=adjacency)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step.

        Args:
            noise_multiplier: std of the noise over the clip norm; 0 means no privacy.
            sample_rate: probability that a record is in the batch, in (0, 1].

        Raises:
            ParameterError: a value that breaks its rule; also a ``ValueError``.
        """
        kind = _kind(noise_multiplier, sample_rate)
        # Equal consecutive steps share one entry, as in Opacus's own history.
        steps = self.history.pop()[2] if self.history and self.history[-1][:2] == kind else 0
        self.history.append((*kind, steps + 1))

    def bound(self, delta: float) -> Bound:
        """Return the certified epsilon of all steps, at a delta in [0, 1].

        Raises:
            ParameterError: no step, a step without noise, or a delta outside [0, 1].
            UnsupportedCombination: no theorem covers the run under this adjacency.
        """
        if not self.history:
            refuse("history", "empty", "hold a step", "call step first")
        return epsilon(_run(self.history), delta=delta, adjacency=self.adjacency)

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Return the certified upper end of epsilon: 0 without a step, infinity without noise.

        Args:
            delta: in [0, 1].
            *args: settings of Opacus's own accountants (orders, error bounds); not needed.
            **kwargs: the same.
        """
        if not self.history:
            return 0.0
        if any(noise == 0.0 for noise, _, _ in self.history):
            return math.inf
        return self.bound(delta).upper

    def load_state_dict(self, state_dict: Any) -> None:
        """Continue from a state in Opacus's form.

        Raises:
            ParameterError: an entry of the history that is no number of steps; also a
                ``ValueError``. The accountant is unchanged then.
            ValueError: Opacus refuses it: empty, or of another mechanism.
        """
        before = self.history
        super().load_state_dict(state_dict)
        try:
            self.history = _checked(self.history)
        except BaseException:
            self.history = before
            raise

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Return the name in a state."""
        return NAME_PLAIN


def get_noise_multiplier(
    *,
    target_epsilon: float,
    target_delta: float,
    sample_rate: float,
    epochs: float | None = None,
    steps: int | None = None,
    accountant: str = NAME_PLAIN,
    epsilon_tolerance: float = 0.01,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    **kwargs: Any,
) -> float:
    """Return a noise multiplier at which the certified epsilon meets the budget.

    The signature is that of ``opacus.accountants.utils.get_noise_multiplier``. A last, incomplete
    epoch counts as a step more, where Opacus drops it.

    Args:
        target_epsilon: the budget, above 0.
        target_delta: the budget, in [0, 1).
        sample_rate: probability that a record is in a batch, in (0, 1].
        epochs: number of epochs; or give ``steps``.
        steps: number of steps.
        accountant: accepted and not needed: there is one certified number.
        epsilon_tolerance: the certified epsilon is at most this much below the budget.
        adjacency: how neighbouring data sets differ; by default Opacus's own relation.
        **kwargs: settings of Opacus's own accountants; not needed.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
        ImpossibleBudget: no noise multiplier meets the budget.
    """
    if (steps is None) == (epochs is None):
        refuse("steps", steps, "be given, or epochs, but not both")
    rate = probability(sample_rate=sample_rate)
    target = non_negative(target_epsilon=target_epsilon)
    width = non_negative(epsilon_tolerance=epsilon_tolerance)
    require(target > 0.0, "target_epsilon", target, "be above 0")
    require(width > 0.0, "epsilon_tolerance", width, "be above 0")
    count = math.ceil(non_negative(epochs=epochs) / rate) if steps is None else steps
    count = integer(1, steps=count)
    found = calibrate(
        lambda noise: _run([(noise, rate, count)]),
        epsilon=target,
        delta=target_delta,
        adjacency=adjacency,
        tolerance=min(width / target, 1e-3),
    )
    return float(found.value)


def _kind(noise_multiplier: object, sample_rate: object) -> tuple[float, float]:
    rate = probability(sample_rate=sample_rate)
    return non_negative(noise_multiplier=noise_multiplier), rate


def _checked(history: object) -> History:
    if not isinstance(history, list | tuple):
        refuse("history", type(history).__name__, "be a list of (noise, rate, steps)")
    found: History = []
    for entry in history:
        if not isinstance(entry, list | tuple) or len(entry) != 3:
            refuse("history", entry, "hold entries of (noise multiplier, sample rate, steps)")
        found.append((*_kind(entry[0], entry[1]), integer(1, steps=entry[2])))
    return found


def _run(history: History) -> Mechanism:
    """Return the run of steps, equal steps together."""
    counts: dict[tuple[float, float], int] = {}
    for noise, rate, steps in history:
        counts[noise, rate] = counts.get((noise, rate), 0) + steps
    return Run(tuple((_step(noise, rate), n) for (noise, rate), n in counts.items()))


def _step(noise: float, rate: float) -> Mechanism:
    step = Gaussian(noise_multiplier=noise, unit="record")
    return step if rate == 1.0 else step.sampled(Poisson(rate))
