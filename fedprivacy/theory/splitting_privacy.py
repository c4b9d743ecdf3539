"""Bounds on the privacy loss of Fed-PLT: upper for its final models, lower for named losses.

Proofs: docs/theory/splitting.md. A round of an agent is N_e steps w <- w - gamma (grad f(w) + (w -
v) / rho) + N(0, 2 gamma tau^2). Every f is l-strongly convex and L-smooth, and replacing a record
moves grad f by at most g at every point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from ..errors import moderate, natural, open_unit, refuse, validate_fields
from ..relations import Observer
from ..rounding import TENS
from .hidden_state import contraction_gap, hidden_state_factor

Array = NDArray[np.float64]

SLACK = 1e-9
"""Relative margin for rounding: upper ends are raised by it, lower ends lowered."""

LEAST = 1e-290
"""Sums of squares below this may have lost terms to underflow."""

APART = 1e-9
"""Least distance of two points that counts as distinct, relative to the size of their inputs."""

SMALLEST = 1e-200
"""Places closer to each other than this, relative to the size of the start, count as one."""

MOST_PAID = 20_000
"""Most local steps before the last round in which ``final_models_mu`` pays for drifts."""

SHARES = (1e-6, 0.1, 0.5, 0.9, 1.0 - 1e-6)
"""Positions between l and L of the curvatures that are tried."""

LONGEST = 100_000
"""Most local steps in total for a loss that follows the iterates.

For a constant shift it is the most rounds, and the most local steps of one round.
"""


def server_or_final(observer: Observer | str) -> Observer:
    """Return the observer of a run of Fed-PLT.

    ``server`` is the coordinator, who sees every z_i,k. ``final`` sees only all agents' models
    x_i,K after the last round.

    Raises:
        ParameterError: any other observer: the coordinator gets separate uploads, not their sum.
    """
    if observer not in (Observer.SERVER, Observer.FINAL):
        refuse("observer", str(observer), "be one of 'server' or 'final'")
    return Observer(observer)


@dataclass(frozen=True, kw_only=True)
class PrivateSplitting:
    """Fed-PLT with noisy gradient descent as its local solver.

    Args:
        sensitivity: g, the largest move of an agent's gradient if one record is replaced.
        strong_convexity: l of every f_i, above 0.
        smoothness: L of every f_i, at least l.
        penalty: rho, above 0.
        step_size: gamma, above 0 and below 2 / (L + 1 / rho).
        noise_scale: tau; a step's noise has std sqrt(2 gamma) tau.
        local_steps: N_e.
        rounds: K.

    Raises:
        ParameterError: a value out of its range.
    """

    sensitivity: float
    strong_convexity: float
    smoothness: float
    penalty: float
    step_size: float
    noise_scale: float
    local_steps: int
    rounds: int

    def __post_init__(self) -> None:
        validate_fields(self, moderate, "sensitivity", "strong_convexity", "smoothness", "penalty")
        validate_fields(self, moderate, "step_size", "noise_scale")
        validate_fields(self, natural, "local_steps", "rounds")
        # The smallest curvature of a loss cannot exceed its largest.
        if self.strong_convexity > self.smoothness:
            refuse("strong_convexity", self.strong_convexity, f"be at most {self.smoothness:g}")
        limit = 2.0 / (self.smoothness + 1.0 / self.penalty)
        # Beyond the limit a local step no longer contracts, and neither bound is proved.
        if self.step_size >= limit:
            refuse(
                "step_size", self.step_size, f"be below 2 / (smoothness + 1 / penalty) = {limit:g}"
            )

    @property
    def gap(self) -> float:
        """1 - c, with c the contraction factor of a local step."""
        inverse = 1.0 / self.penalty
        return contraction_gap(
            self.step_size, self.strong_convexity + inverse, self.smoothness + inverse
        )

    @property
    def noise_std(self) -> float:
        """Std of the noise of one local step."""
        return math.sqrt(2.0 * self.step_size) * self.noise_scale

    @property
    def start_std(self) -> float:
        """Std of the secret start in Proposition 4: sqrt(2 / l) tau."""
        return math.sqrt(2.0 / self.strong_convexity) * self.noise_scale

    @property
    def step_mu(self) -> float:
        """Mu of a single local step."""
        return self.step_size * self.sensitivity / self.noise_std


def rounds_mu(of: PrivateSplitting) -> float:
    """Return mu of K rounds for every observer: sqrt(K) times that of one local solve (T6).

    Given the coordinator's view until then, a round starts from a known point and contracts, and
    its end is the coordinator's next observation. Adaptive composition of Gaussian guarantees adds
    squares (Dong, Roth and Su 2022). It needs the loss's own sensitivity, without clipping.
    """
    factor = hidden_state_factor(of.gap, of.local_steps)
    return math.sqrt(of.rounds) * of.step_mu * factor * (1.0 + SLACK)


def steps_mu(of: PrivateSplitting) -> float:
    """Return mu of all local steps composed, which is also valid with clipped gradients."""
    return math.sqrt(of.rounds * of.local_steps) * of.step_mu * (1.0 + SLACK)


def final_models_mu(of: PrivateSplitting) -> float:
    """Return mu of all agents' models after the last round, if no other output is seen.

    With the same noise, runs on neighbouring data keep x and z within X and Z of each other:

        X <- c^N_e X + b Z + E,    Z <- 2 c^N_e X + q Z + 2 E.

    Here b and q bound the local solve's Jacobian B in v and |2 B - I|, and E is the sum of the
    drifts of a round. A drift g gamma may be paid for in part: a_j of it at a cost of (a_j /
    std)^2, and the rest stays in E. The last round pays for all that is left, as T6 from starts at
    distance X with sensitivity g + Z / rho. Every choice of payments is sound; those used here are
    the cheapest, up to rounding. The result is bounded in K if the matrix of X and Z is stable,
    which requires L / l not far above 1. ``rounds_mu`` may be smaller.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = _cheapest(_Payments.of(of), of.rounds)
    lost = not LEAST <= squares < math.inf  # lost to underflow or overflow
    return math.inf if lost else math.sqrt(squares) / of.noise_std * (1.0 + SLACK)


def _cheapest(paid: _Payments, rounds: int) -> float:
    """Return the least sum of squared payments; not finite if the distances overflow."""
    ahead = paid.start(rounds - 1 - len(paid.weights))
    free = paid.end(ahead, np.zeros_like(paid.weights))
    # At the upper rate the last round would pay for everything.
    low, high = 0.0, free / paid.squares
    for _ in range(60 if math.isfinite(free) else 0):
        rate = 0.5 * (low + high)
        needed = free - float((paid.weights * np.minimum(paid.drift, rate * paid.weights)).sum())
        low, high = (rate, high) if needed > rate * paid.squares else (low, rate)
    # The cheapest payments are proportional to their savings, with none above its drift.
    payments = np.minimum(paid.drift, high * paid.weights)
    # The payments include rounding over all rounds.
    last = paid.end(ahead, payments) * (1.0 + SLACK + TENS * rounds)
    return float((payments * payments).sum()) + last * last / paid.squares


@dataclass(frozen=True)
class _Payments:
    """Dynamics of the distances, and the savings in the last round by earlier payments."""

    once: Array
    left: Array
    ending: Array
    drift: float
    squares: float
    weights: Array

    @classmethod
    def of(cls, run: PrivateSplitting) -> _Payments:
        """Return them with weights of shape (rounds that pay before the last, local steps)."""
        c, times, inverse = 1.0 - run.gap, run.local_steps, 1.0 / run.penalty
        left = c ** np.arange(times - 1, -1, -1.0)
        grown = float(left.sum())
        kept, (b, q) = c**times, _reflected(run)
        # Two bounds on the effect of v on the end; the smaller one is used.
        once = np.array([[kept, min(b, run.step_size * inverse * grown)], [2.0 * kept, q]])
        ending = np.array([kept, run.step_size * inverse * grown])
        drift = run.step_size * run.sensitivity
        count = min(run.rounds - 1, MOST_PAID // times)
        with np.errstate(over="ignore", invalid="ignore"):
            responses = _orbit(once, np.array([1.0, 2.0]), count) @ ending
        weights = responses[::-1, None] * left
        return cls(once, left, ending, drift, float(left @ left), weights)

    def start(self, rounds: int) -> Array:
        """Return (X, Z) after some rounds without payments."""
        pushed = self.drift * float(self.left.sum()) * np.array([1.0, 2.0])
        # One more row makes the affine round a matrix, whose power gives all rounds at once.
        affine = np.block([[self.once, pushed[:, None]], [np.zeros((1, 2)), np.ones((1, 1))]])
        return np.asarray(np.linalg.matrix_power(affine, rounds)[:2, 2])

    def end(self, distances: Array, payments: Array) -> float:
        """Return the distance that the last round closes, after rounds with these payments."""
        for residual in (self.drift - payments) @ self.left:
            distances = self.once @ distances + residual * np.array([1.0, 2.0])
        return float(self.ending @ distances) + self.drift * float(self.left.sum())


def _reflected(of: PrivateSplitting) -> tuple[float, float]:
    """Return bounds on |B| and |2 B - I|, B the Jacobian of a local solve in v.

    B <- B - gamma (H + 1/rho) B + gamma / rho, with symmetric H between l and L that differs
    between steps. The distance of B from its value for the middle curvature is at most ``off``.
    """
    step, inverse = of.step_size, 1.0 / of.penalty
    middle, radius = (
        0.5 * (of.strong_convexity + of.smoothness),
        0.5 * (of.smoothness - of.strong_convexity),
    )
    slope = 1.0 - step * (middle + inverse)
    largest = max(abs(inverse - of.strong_convexity), abs(of.smoothness - inverse))
    centre, off, direct = 0.0, 0.0, 1.0
    for _ in range(of.local_steps):
        last = (centre, off, direct)
        off = abs(slope) * off + step * radius * (abs(centre) + off)
        centre = slope * centre + step * inverse
        direct = (1.0 - of.gap) * direct + step * largest
        # A fixed point: further steps would repeat it.
        if last == (centre, off, direct):
            break
    room = 1.0 + SLACK
    return (abs(centre) + off) * room, min(abs(2.0 * centre - 1.0) + 2.0 * off, direct) * room


@dataclass(frozen=True, kw_only=True)
class Attained:
    """Two neighbouring data sets, and the distance of their outputs.

    Attributes:
        mu: the outputs are within ``error`` in total variation of a pair that contains N(mu, 1) and
            N(0, 1).
        error: upper bound of that total variation; only the distance of the data depends on it.
        curvature: curvature of the quadratic f_0 on D.
        distance: distance of the run's start from the optimum.
        witness: description of the data sets.
    """

    mu: float
    error: float
    curvature: float
    distance: float
    witness: str


QUADRATIC = (
    "one agent, h = 0, f_0 quadratic of curvature {:.6g}; the record changes its gradient by g"
)
FOLLOWING = (
    "one agent, h = 0, f_0 quadratic of curvature {:.6g} and optimum {:.3g} away from the "
    "start; the record adds a loss with gradient g or -g, which changes sign between the {} "
    "groups of points that the run visits, so that the drifts of all steps add up"
)
TOO_LONG = "none; no pair is computed for a run of this length"
CLIPPED = (
    "one agent, h = 0, one record whose optimum is distant, on opposite sides under D and D'; "
    "the clipped gradients differ by g in every step and do not depend on the point"
)


def attained(of: PrivateSplitting, observer: Observer | str, error: float) -> Attained:
    """Return the best known lower end for Fed-PLT with the start N(0, 2 tau^2 / l), secret.

    It has one agent and h = 0. D has a quadratic. D' adds to it a loss whose gradient is g or -g at
    all places of the run. As data may be arbitrarily far away, the run's places can be arbitrarily
    far apart. So almost surely the drift of every step has the best sign, and both outputs are
    Gaussian. All curvatures stay within [l, L]. If L = l, only a constant shift remains.

    Args:
        of: the run.
        observer: "server" or "final".
        error: total variation that may be lost to iterates in the wrong place, in (0, 1).

    Returns:
        The pair with the largest mu. Curvature and distance describe its data.

    Raises:
        ParameterError: an unknown observer, or ``error`` outside (0, 1).
    """
    view, wrong = server_or_final(observer), open_unit(error=error)
    of = _prefix(of, view)
    low, high = of.strong_convexity, of.smoothness
    found = [_quadratic(of, curvature, view) for curvature in {low, high}]
    if low < high and of.rounds * of.local_steps <= LONGEST:
        inside = _inside(low, high)
        found += chain.from_iterable(_following(of, each, view, wrong) for each in inside)
    return max(found, key=lambda each: each.mu)


def _inside(low: float, high: float) -> list[float]:
    """Return the curvatures to try between two; rounding may leave none."""
    every = [low + share * (high - low) for share in SHARES]
    return [each for each in every if low < each < high]


def clipped_attained(of: PrivateSplitting, observer: Observer | str) -> Attained:
    """Return the lower end for clipped gradients, which are constant far from the optimum.

    The local step then is w <- w - gamma (w - v) / rho with a drift of g. Only the proximal term
    contracts.

    Raises:
        ParameterError: an unknown observer.
    """
    view = server_or_final(observer)
    found = _quadratic(_prefix(of, view), 0.0, view)
    return Attained(mu=found.mu, error=0.0, curvature=0.0, distance=math.inf, witness=CLIPPED)


@dataclass(frozen=True)
class _AgentDynamics:
    """Linear dynamics of one agent with h = 0: (x, v) <- M (x, v) + (1, 2) times the new term."""

    slope: float
    keep: float
    gain: float
    matrix: Array
    responses: Array
    start: float
    spread: tuple[float, float]

    @classmethod
    def of(cls, run: PrivateSplitting, curvature: float) -> _AgentDynamics:
        """Return the dynamics at a curvature."""
        inverse = 1.0 / run.penalty
        slope = 1.0 - run.step_size * (curvature + inverse)
        keep = slope**run.local_steps
        gain = inverse / (curvature + inverse) * (1.0 - keep)
        matrix = np.array([[keep, gain], [2.0 * keep, 2.0 * gain - 1.0]])
        both = _orbit(matrix, np.array([1.0, 2.0]), run.rounds)
        origin = _orbit(matrix, np.array([1.0, 0.0]), run.rounds + 1)
        noise = run.noise_std * float(np.linalg.norm(_powers(slope, run.local_steps)))
        std = (
            # Noise from all rounds may add up in one direction, so absolute responses are summed.
            noise * float(np.abs(both).sum(axis=0) @ np.array([1.0, 2.0]))
            + run.start_std * float(np.abs(origin).max(axis=0) @ np.array([1.0, 2.0]))
            + noise
        )
        push = (
            run.step_size * run.sensitivity * float(np.abs(_powers(slope, run.local_steps)).sum())
        )
        drift = push * (1.0 + float(np.abs(both).sum(axis=0) @ np.array([1.0, 2.0])))
        return cls(slope, keep, gain, matrix, both[::-1, 0], float(origin[-1, 0]), (std, drift))


def _powers(slope: float, steps: int) -> Array:
    """Return slope^(steps - 1), ..., slope, 1: the remaining share of each step at the end."""
    return np.asarray(slope ** np.arange(steps - 1, -1, -1.0))


def _orbit(matrix: Array, start: Array, length: int) -> Array:
    """Return matrix^j start for j < length, shape (length, 2), by doubling."""
    # Doubling: the orbit until now, shifted by its own length.
    found, power = start[None, :], matrix
    while len(found) < length:
        found = np.concatenate([found, found @ power.T])
        power = power @ power
    return found[:length]


def _mu(
    run: PrivateSplitting, rounds: _AgentDynamics, signs: Array | float, observer: Observer
) -> float:
    """Return mu of a pattern of signs, shape (rounds, local_steps); 0 if variances underflow."""
    powers = _powers(rounds.slope, run.local_steps)
    every = np.broadcast_to(np.asarray(signs, float), (run.rounds, run.local_steps))
    shifts = run.step_size * run.sensitivity * (every @ powers)
    variance = run.noise_std**2 * float(powers @ powers)
    if observer is Observer.SERVER:
        variances = np.full(run.rounds, variance)
        # Only the first round has a secret start; the observer has seen later starts.
        variances[0] += (rounds.keep * run.start_std) ** 2
        # Sums that underflowed would give a distance that is too large, so 0 is returned.
        if float(variances.min()) < LEAST:
            return 0.0
        return math.sqrt(float((shifts**2 / variances).sum()))
    total = variance * float(rounds.responses @ rounds.responses)
    total += (rounds.start * run.start_std) ** 2
    return abs(float(shifts @ rounds.responses)) / math.sqrt(total) if total >= LEAST else 0.0


def _prefix(run: PrivateSplitting, observer: Observer) -> PrivateSplitting:
    """Return as many rounds as are worth computing: the coordinator also sees the first rounds."""
    # Leaving out later rounds is post-processing, so the lower end of a prefix holds.
    return replace(run, rounds=min(run.rounds, LONGEST)) if observer is Observer.SERVER else run


def _quadratic(run: PrivateSplitting, curvature: float, observer: Observer) -> Attained:
    """Return the lower end of a constant shift."""
    # Without a computation 0 is the lower end.
    if max(run.rounds, run.local_steps) > LONGEST:
        return Attained(mu=0.0, error=0.0, curvature=curvature, distance=0.0, witness=TOO_LONG)
    mu = _mu(run, _AgentDynamics.of(run, curvature), 1.0, observer)
    return Attained(
        mu=mu * (1.0 - SLACK),
        error=0.0,
        curvature=curvature,
        distance=0.0,
        witness=QUADRATIC.format(curvature),
    )


def _following(
    run: PrivateSplitting, curvature: float, observer: Observer, error: float
) -> list[Attained]:
    """Return lower ends of losses that follow the iterates, one for each start direction."""
    rounds = _AgentDynamics.of(run, curvature)
    weights = rounds.responses if observer is Observer.FINAL else np.ones(run.rounds)
    wanted = weights[:, None] * _powers(rounds.slope, run.local_steps)
    found = []
    for start in _starts(rounds, run.rounds):
        groups, gap = _groups(run, rounds, curvature, start)
        sums = np.bincount(groups, wanted.ravel())
        # Steps in one group of places share a gradient, so its sign is that of their sum.
        signs = np.where(sums >= 0.0, 1.0, -1.0)[groups].reshape(wanted.shape)
        # Groups without a gap leave no room for the change of sign.
        far = _distance(run, rounds, curvature, error) / gap if gap > 0.0 else math.inf
        if math.isfinite(far):
            found.append(
                Attained(
                    mu=_mu(run, rounds, signs, observer) * (1.0 - SLACK),
                    error=error,
                    curvature=curvature,
                    distance=far,
                    witness=FOLLOWING.format(curvature, far, len(sums)),
                )
            )
    return found


def _starts(rounds: _AgentDynamics, count: int) -> list[tuple[float, float, float]]:
    """Return starts (x, v), each with its growth factor in a round."""
    if count == 1:
        # One round has no later start that would have to keep its direction.
        return [(1.0, 0.0, 0.0)]
    (a, b), (_, d) = rounds.matrix
    half = 0.5 * (a + d)
    square = half * half + rounds.keep
    # No real eigenvalue: no start keeps its direction from round to round.
    if square < 0.0 or half == square == 0.0:
        return []
    # The larger root first, without cancellation; the other from their product, -keep.
    large = half + math.copysign(math.sqrt(square), half)
    starts = [(b, factor - a, factor) for factor in (large, -rounds.keep / large)]
    # A direction that is mostly rounding error would not be kept.
    return [each for each in starts if abs(b) + abs(each[1]) > 1e-4 * (abs(each[2]) + abs(a))]


def _distance(
    run: PrivateSplitting, rounds: _AgentDynamics, curvature: float, error: float
) -> float:
    """Return the distance between two groups of places that the change of drift requires.

    The places of a run on D' are those of the noiseless run, plus a drift of at most ``drift`` and
    a Gaussian of std at most ``std``. By the union bound, all places stay in their intervals,
    except with probability ``error``. The change itself needs 2 g over the room in curvature.
    """
    # The change adds curvature, which must stay between l and L.
    room = min(curvature - run.strong_convexity, run.smoothness - curvature)
    std, drift = rounds.spread
    # From the log: with many steps the tail's probability is too small for a double.
    quantile = -float(ndtri_exp(math.log(error / (2.0 * run.rounds * run.local_steps))))
    return 2.0 * (2.0 * run.sensitivity / room + drift + quantile * std)


def _groups(
    run: PrivateSplitting,
    rounds: _AgentDynamics,
    curvature: float,
    start: tuple[float, float, float],
) -> tuple[NDArray[np.int64], float]:
    """Return each local step's group of places and the least gap between two groups.

    In round k a run from an eigenvector is at v_k / (1 + rho l) + a^j d_k, where d_k is the
    distance of its start to that centre. Groups differ by their places. Places that are too close
    for that, but have the same centre, are separated by their side of the centre. The side is exact
    at any distance.
    """
    x, v, factor = start
    count, steps = run.rounds, run.local_steps
    sizes = factor ** np.arange(count, dtype=float)
    middle = v / (1.0 + run.penalty * curvature) * sizes[:, None] * np.ones(steps)
    apart = x - v / (1.0 + run.penalty * curvature)
    offsets = apart * sizes[:, None] * rounds.slope ** np.arange(steps, dtype=float)
    centres = np.repeat(np.arange(count), steps).reshape(count, steps)
    offsets[1:, 0] = apart * sizes[:-1] * rounds.keep
    middle[1:, 0], centres[1:, 0] = middle[:-1, 0], centres[:-1, 0]
    size = abs(x) + abs(v)
    reach = np.maximum(APART * np.abs(sizes)[centres], SMALLEST) * size
    coarse, gap = _apart((middle + offsets).ravel(), reach.ravel())
    side = np.sign(np.where(np.abs(offsets) > SMALLEST * size, offsets, 0.0)).ravel()
    if abs(apart) <= APART * size:
        side[:] = 0.0
    side[_several(coarse, centres.ravel())[coarse]] = 0.0
    split = _several(coarse, side)[coarse] & (side != 0.0)
    if split.any():
        gap = min(gap, float(np.abs(offsets.ravel()[split]).min()))
    _, groups = np.unique(3 * coarse + 1 + side.astype(np.int64), return_inverse=True)
    return groups.ravel().astype(np.int64), gap


def _several(groups: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for every group whether its members have different values."""
    first = np.empty(groups.max() + 1, dtype=values.dtype)
    first[groups] = values
    return np.asarray(np.bincount(groups, values != first[groups]) > 0)


def _apart(places: Array, reach: Array) -> tuple[NDArray[np.int64], float]:
    """Return the connected groups of the intervals place +- reach, and their least gap."""
    # Sorted by left ends, touching intervals are neighbours.
    order = np.argsort(places - reach, kind="stable")
    left, right = (places - reach)[order], np.maximum.accumulate((places + reach)[order])
    between = left[1:] - right[:-1]
    new = between > 0.0
    gap = float(between[new].min() + 2.0 * reach.min()) if new.any() else math.inf
    groups = np.empty(len(order), dtype=np.int64)
    groups[order] = np.concatenate([[0], np.cumsum(new)])
    return groups, gap
