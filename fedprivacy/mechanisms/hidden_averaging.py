"""Averaging of clients' local steps that releases only its last point."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from ..errors import count, positive, require, validate_fields
from ..factors import FixedEpochs
from ..privacy_loss import PrivacyLoss
from ..registry import plain_fields, registered
from ..relations import Adjacency, Facts, Unit
from ..rounding import TENS, rounded_up
from ..sampling.traits import Traits
from .gradient_descent import DEPENDS_ON, IN_BALL
from .noisy_sgd import CLIPPED, DRAWS, ORDER, SMOOTH, Drawn, NoisySGD, check_draws, largest
from .upload import NoisySteps

_NONEXPANSIVE = (
    "every client takes gradient steps on a convex loss with the stated smoothness, for all data "
    "(for example the mean over records with one linear output)"
)
_LIPSCHITZ = "every client's gradient has a norm of at most gradient_norm at every point"
_FIXED = "no client changes its cohort, and no cohort has more than denominator clients"
_LINEAR = (
    "one client has one gradient everywhere, of norm gradient_norm or none; all others have none"
)


@registered
@dataclass(frozen=True, kw_only=True)
class HiddenAveraging(NoisySteps):
    """Rounds x <- P(x + s sum_i (x_i - x) / denominator + N(0, noise_std^2)), end only.

    x_i is where client i of the round's cohort arrives from x after ``local_steps`` gradient steps,
    which no clip norm limits. P is the projection on a ball, or nothing. The unit is a client, and
    the start is public. The points between stay secret, also from clients: their data are in one
    place, or in hardware that hides the points.

    A round moves no two points apart, and a client moves it by at most ``largest_move`` (T16).
    T17 and T18 then hold as for a ``NoisySGD`` whose records are the clients.

    Args:
        local_steps: gradient steps of a client in a round.
        learning_rate: of these steps, at most 2 / ``smoothness``.
        gradient_norm: largest norm of the gradient of any client's loss at any point, above 0. It
            is a property of the loss: clipping the move of a client may move points apart.
        smoothness: largest second derivative of any client's loss, above 0.
        server_learning_rate: s, at most ``denominator`` over the size of the largest cohort.
        noise_std: std of the noise of each round on each coordinate, above 0.
        denominator: public number that the sum of moves is divided by, above 0.
        cohorts: ``FixedSize``, ``Poisson`` or ``TruncatedPoisson``, drawn anew in every round; or
            ``FixedEpochs(l)``: l cohorts in a fixed order, none of more than ``denominator``
            clients. ``FixedEpochs(1)`` has all clients in every round.
        rounds: number of rounds.
        radius: of the ball that every round is projected on; None for no projection.
        population: upper limit of the number of clients, needed for ``Poisson`` only.
        dimension: number of coordinates, for the rounding of a loop that runs these rounds; None if
            rounds are exact.

    Raises:
        ParameterError: a value out of its range, or a step size for which rounds may move points
            apart.
    """

    protects = Unit.CLIENT

    local_steps: int
    learning_rate: float
    gradient_norm: float
    smoothness: float
    server_learning_rate: float = 1.0
    noise_std: float
    denominator: float
    cohorts: Drawn | FixedEpochs
    rounds: int
    radius: float | None = None
    population: int | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        above = (
            "learning_rate",
            "gradient_norm",
            "smoothness",
            "server_learning_rate",
            "denominator",
        )
        validate_fields(self, positive, *above, "noise_std")
        validate_fields(self, count, "local_steps", "rounds")
        # Exact arithmetic, as at the end of the range only rounding would decide.
        most = 2 / Fraction(self.smoothness)
        rule = f"be at most 2 / smoothness = {_just_below(most)!r}"
        require(Fraction(self.learning_rate) <= most, "learning_rate", self.learning_rate, rule)
        validate_fields(self, count, "population", "dimension", or_none=True)
        check_draws("cohorts", self.cohorts, self.population)
        cohort = largest(self.cohorts, self.denominator, self.population, self.rounds)
        fits = Fraction(self.server_learning_rate) * Fraction(cohort) <= Fraction(self.denominator)
        rule = (
            f"be at most {self.denominator / cohort:.6g}, denominator over the largest cohort, "
            f"{cohort:g}, so that no round moves points apart"
        )
        require(fits, "server_learning_rate", self.server_learning_rate, rule)
        # This checks the rest.
        _ = self.as_descent

    @cached_property
    def largest_move(self) -> float:
        """Largest distance from a round's start that a client arrives at, rounded up."""
        # Exact until its end: a factor may underflow.
        exact = self.local_steps * Fraction(self.learning_rate) * Fraction(self.gradient_norm)
        fits = sys.float_info.min <= exact <= sys.float_info.max / 2
        name, rule = "local_steps * learning_rate * gradient_norm", "be a double of full precision"
        require(fits, name, f"about 1e{_digits(exact)}", rule, "rescale the loss")
        return rounded_up(float(exact), TENS)

    @cached_property
    def as_descent(self) -> NoisySGD:
        """The descent on clients that has the same loss.

        A client's "gradient" is its move, reversed. It has the smoothness 2, since no client moves
        two points apart.
        """
        return NoisySGD(
            step_size=self.server_learning_rate,
            noise_std=self.noise_std,
            clip_norm=self.largest_move,
            denominator=self.denominator,
            batches=self.cohorts,
            steps=self.rounds,
            smoothness=2.0,
            radius=self.radius,
            population=self.population,
            dimension=self.dimension,
        )

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the fields, and what they follow from."""
        return plain_fields(self) | dict.fromkeys(DEPENDS_ON[2:3])

    # Cohorts are drawn inside.
    traits = Traits(samples_its_unit=True)

    @cached_property
    def step_noise_std(self) -> float:
        """``noise_std``."""
        return self.noise_std

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the noise on the sum of a cohort's moves over the smaller bound of a move."""
        return self.as_descent.noise_ratios(clip_norm)

    def rescaled(self, fraction: float) -> HiddenAveraging | None:
        """Return the run with the fraction of its noise."""
        noise = self.noise_std * fraction
        return replace(self, noise_std=noise) if noise > 0.0 else None

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of the descent on clients, with the conditions on clients."""
        found = self.as_descent.loss_under(facts)
        words = {
            SMOOTH: _NONEXPANSIVE,
            CLIPPED: _LIPSCHITZ,
            ORDER: _FIXED,
            DRAWS: DRAWS.replace("batches", "cohorts"),
            IN_BALL: IN_BALL.replace("step", "round"),
        }
        shown = found.witness
        return replace(
            found,
            assumptions=tuple(words.get(each, each) for each in found.assumptions),
            witness=None if shown is None else shown._replace(datasets=_LINEAR),
        )


def _just_below(number: Fraction) -> float:
    """Return the largest double that is at most the number."""
    found = float(min(number, Fraction(sys.float_info.max)))
    return math.nextafter(found, 0.0) if Fraction(found) > number else found


def _digits(number: Fraction) -> int:
    """Return the order of magnitude of a number above 0."""
    return round((number.numerator.bit_length() - number.denominator.bit_length()) * 0.30103)
