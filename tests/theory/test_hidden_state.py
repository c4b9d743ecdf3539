"""Tests of ``fedprivacy.theory.hidden_state``."""

import math

import numpy as np
import pytest
import torch
from scipy.special import erf
from scipy.stats import norm

from fedprivacy import delta
from fedprivacy.mechanisms import NoisyGradientDescent
from fedprivacy.theory.hidden_state import (
    contraction_gap,
    hidden_state_factor,
    projected_factor,
    projected_gap,
    pushed_to_walls,
    shown_on_a_ball,
)
from fedprivacy.training import AgentData, LeastSquares, LocalSolver, ModuleLoss
from tests.mechanisms.test_gradient_descent import steep
from tests.systems.fed_plt.test_loop import Bowl, agents, bounded, clip_solver

NOISY = LocalSolver(method="noisy", steps=5, step_size=0.4, noise_scale=0.3)
pytestmark = pytest.mark.usefixtures("one_thread")


def test_clipping_destroys_contraction_but_not_of_one_linear_output():
    loss = ModuleLoss(model=Bowl, criterion=steep)
    data, chance = AgentData.of([([[0.0]], [0.0])]), np.random.default_rng(5)
    place, apart = torch.from_numpy(chance.normal(size=(2, 500, 1, 2)))
    pair = (2.0 * place, 2.0 * place + 1e-3 * apart)
    ends = [p - 0.05 * loss.gradient(p, data, 1.0) for p in pair]
    worst = float(((ends[0] - ends[1]).norm(dim=-1) / (pair[0] - pair[1]).norm(dim=-1)).max())
    assert 1.05 < worst < 1.2
    linear = LeastSquares(regularisation=0.2, feature_bound=2.0)
    data = linear.prepared(AgentData.of(agents(sizes=(9,))))
    low, high = linear.curvature()
    gap = contraction_gap(0.3, low, high)
    sizes = 10.0 ** chance.uniform(-2, 2, size=(500, 1, 1))
    pair = torch.from_numpy(chance.normal(size=(2, 500, 1, 3)) * sizes)
    ends = [p - 0.3 * linear.gradient(p, data, 0.4) for p in pair]
    before, after = ((p[0] - p[1]).norm(dim=-1) for p in (pair, ends))
    assert bool((after <= (1 - gap) * before * (1 + 1e-12)).all())
    assert float((after / before).max()) > 0.99 * (1 - gap)


def test_clipped_linear_outputs_keep_t6_with_the_regulariser_alone():
    loss = LeastSquares(regularisation=0.5, feature_bound=1.0)
    one = bounded(loss=loss, solver=clip_solver(0.25)).round_mechanism
    assert isinstance(one, NoisyGradientDescent)
    assert (one.sensitivity, one.strong_convexity, one.smoothness) == (0.005, 1.5, 2.5)
    both = bounded(solver=clip_solver(7.0)).round_mechanism
    assert both.sensitivity == 0.02
    unknown = bounded(loss=LeastSquares(regularisation=0.5), solver=clip_solver(0.25))
    one = unknown.round_mechanism
    assert (one.steps, one.strong_convexity, one.sensitivity) == (5, None, 0.005)


def every_j(gap, steps, reach):
    """Return the least bound of T16 over all numbers of last steps, with plain sums."""
    c, best = 1.0 - gap, math.inf
    for j in range(1, steps + 1):
        powers = [c**i for i in range(j)]
        paid, squares = c**j * reach + sum(powers), sum(p * p for p in powers)
        # The last payment, paid / squares, must cover the last move.
        if c <= 1.0 or paid >= squares:
            best = min(best, paid / math.sqrt(squares))
    return best


@pytest.mark.parametrize("gap", [0.0, 1e-9, 0.01, 0.3, 0.999, 1.0, -1e-9, -0.02, -0.5, -3.0])
@pytest.mark.parametrize("reach", [1e-3, 0.9, 7.3, 55.0, 1e4])
@pytest.mark.parametrize("steps", [1, 2, 40])
def test_the_least_number_of_last_steps_is_found(gap, reach, steps):
    found, exact = projected_factor(gap, steps, reach), every_j(gap, steps, reach)
    # Above c = 1 the best real number is rounded to an integer that may not be the best.
    assert exact * (1.0 - 1e-12) <= found <= exact * (1.0 + (1e-7 if gap >= 0.0 else 0.3))


def test_payments_that_grow_too_small_are_not_used():
    """Steps that double distances: from 3 moves apart, few steps may be paid for together."""
    assert projected_factor(-1.0, 40, 3.0) == pytest.approx((2.0**2 * 3.0 + 3.0) / math.sqrt(5.0))
    # At ten steps the smallest payment would be .006 of a move.
    assert every_j(-1.0, 40, 3.0) == pytest.approx(projected_factor(-1.0, 40, 3.0))


def test_limits_of_long_runs():
    """The closed forms of docs/theory/theorems.md, T16."""
    for reach in (3.0, 400.0):
        assert projected_factor(0.0, 10**12, reach) == pytest.approx(
            2.0 * math.sqrt(reach), rel=0.05
        )
    gap, reach = 1e-4, 3000.0
    limit = math.sqrt((2.0 - gap) * reach * (2.0 - gap * reach))
    assert projected_factor(gap, 10**9, reach) == pytest.approx(limit, rel=1e-6)
    # A ball larger than the runs ever come apart is of no use: T6's limit.
    assert projected_factor(gap, 10**7, 2.0 / gap) == pytest.approx(
        hidden_state_factor(gap, 10**7), rel=1e-9
    )
    assert projected_factor(gap, 10**300, 1.0) < 10.0
    # Above c = 1 the same closed form holds.
    limit = math.sqrt((2.0 + gap) * reach * (2.0 + gap * reach))
    assert projected_factor(-gap, 10**9, reach) == pytest.approx(limit, rel=1e-6)


def law(drift, slope, std, steps, points, ends):
    """Return the masses of the end of projected steps on [-1, 1] from 0, in cells."""
    moved = slope * points + drift
    table = np.diff(norm.cdf((ends - moved[:, None]) / std), axis=1)
    masses = np.zeros(len(points))
    masses[len(points) // 2] = 1.0
    for _ in range(steps):
        masses = masses @ table
    return masses


@pytest.mark.parametrize(
    ("slope", "drift", "std", "steps"),
    [
        (1.0, 0.01, 0.1, 400),
        (1.0, 0.05, 0.3, 60),
        (0.98, 0.02, 0.15, 200),
        (0.8, 0.1, 0.2, 30),
        (1.03, 0.02, 0.15, 200),
        (1.2, 0.05, 0.3, 50),
    ],
)
def test_exact_laws_on_an_interval_lose_no_more(slope, drift, std, steps):
    """Neighbours that differ by a constant drift; everything beyond the ends is at the ends."""
    points = np.linspace(-1.0, 1.0, 801)
    ends = np.concatenate([[-np.inf], 0.5 * (points[1:] + points[:-1]), [np.inf]])
    one, other = (law(sign * drift / 2, slope, std, steps, points, ends) for sign in (1.0, -1.0))
    factor = projected_factor(1.0 - slope, steps, 2.0 / drift)
    shared = math.sqrt(steps) if slope >= 1.0 else hidden_state_factor(1.0 - slope, steps)
    mu = drift / std * min(factor, shared)
    for epsilon in np.linspace(0.0, 4.0, 17):
        claimed = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(
            -mu / 2 - epsilon / mu
        )
        for p, q in ((one, other), (other, one)):
            assert np.maximum(p - np.exp(epsilon) * q, 0.0).sum() <= claimed + 2e-4


def test_a_convex_loss_needs_a_step_size_up_to_two_over_smoothness():
    assert projected_gap(8.0, 0.0, 0.25) == 0.0
    assert projected_gap(1.0, 0.1, 0.25) == contraction_gap(1.0, 0.1, 0.25)
    # Without convexity steps may move points apart: by 1 + s w, or by s L - 1.
    assert projected_gap(1.0, -0.1, 0.25) == pytest.approx(-0.1)
    assert projected_gap(10.0, -0.1, 0.25) == -1.0
    for step, low, match in (
        (8.0000001, 0.0, "at most"),
        (8.0, 0.1, "below"),
        (1.0, -0.3, "at least"),
    ):
        with pytest.raises(ValueError, match=match):
            projected_gap(step, low, 0.25)


def test_the_smallest_gaps_compose():
    for gap in (5e-324, 1e-323, 1e-310, 1e-200):
        assert hidden_state_factor(gap, 49) == pytest.approx(7.0, rel=1e-12)


def ends_in_a_ball(slopes, drift, radius, steps, many=20_000):
    """Return ends along the drift of projected noisy steps in as many dimensions as slopes."""
    rng, x = np.random.default_rng(11), np.zeros((many, len(slopes)))
    for _ in range(steps):
        x = x * slopes + rng.normal(size=x.shape)
        x[:, 0] += drift
        x *= np.minimum(1.0, radius / np.linalg.norm(x, axis=1))[:, None]
    return x[:, 0]


@pytest.mark.parametrize(("radius", "steps", "multiplier"), [(9.0, 60, 5.0), (30.0, 30, 2.0)])
def test_ends_on_a_ball_are_gaussian_but_for_what_is_lost(radius, steps, multiplier):
    """Half-spaces have the Gaussian's probabilities; five standard errors are allowed."""
    shown = shown_on_a_ball((0.0, 0.8), steps, multiplier, radius, 3, 0.05)
    gaps = np.linspace(0.0, 0.8, 80_001)
    mus = np.array([hidden_state_factor(max(gap, 1e-15), steps) for gap in gaps]) / multiplier
    slope = 1.0 - gaps[int(np.argmin(np.abs(mus - shown.mu)))]
    found = ends_in_a_ball([slope, 0.2, 0.2], 0.5 / multiplier, radius, steps)
    std = math.sqrt(sum(slope ** (2 * k) for k in range(steps)))
    for place in np.linspace(-0.99, 0.99, 7) * shown.reach:
        exact = norm.sf(place - 0.5 * shown.mu)
        assert abs((found > place * std).mean() - exact) <= shown.lost + 5 * 0.5 / math.sqrt(20_000)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_drifts_push_to_opposite_sides_of_a_ball(share):
    """The half-space is found from the bound for a walk above one wall."""
    radius, steps, multiplier, lost = 12.0, 400, 5.0, 1e-3
    p, q = pushed_to_walls(0.8, steps, multiplier, radius, 3, lost, share)
    along = 12.0**2 - (1 / (1 - 0.2**2)) * (
        2 + 2 * math.sqrt(2 * math.log(steps / lost)) + 2 * math.log(steps / lost)
    )
    place = math.sqrt(along) + multiplier * math.log1p(-share)
    found = ends_in_a_ball([1.0, 0.2, 0.2], 0.5 / multiplier, radius, steps)
    slack = 5 * 0.5 / math.sqrt(20_000)
    assert p <= (found > place).mean() + slack
    assert q >= (found < -place).mean() - slack
    assert 0.8 * share < p < share and q < 0.5 * p


def test_a_ball_that_is_too_small_shows_nothing():
    assert shown_on_a_ball((0.0, 0.5), 100, 5.0, 0.5, 1, 1e-10) is None
    assert pushed_to_walls(0.5, 100, 5.0, 0.5, 4, 1e-10, 0.5) is None


LOCAL_STEPS, BOUND, RATE = 3, 2.0, 0.7


def local_end(x, features, labels, step_size):
    """Return a client's model after its steps on unclipped logistic losses."""
    for _ in range(LOCAL_STEPS):
        slopes = -labels / (1.0 + np.exp(labels * (features @ x)))
        x = x - step_size * slopes @ features / len(labels)
    return x


def holders_of(draw, count, dimension):
    """Return (features, labels) of clients; every record's features have the norm ``BOUND``."""
    found = []
    for _ in range(count):
        features = draw.normal(size=(int(draw.integers(1, 4)), dimension))
        features *= BOUND / np.linalg.norm(features, axis=1, keepdims=True)
        found.append((features, draw.choice([-1.0, 1.0], size=len(features))))
    return found


def averaged(x, holders, step_size):
    ends = [local_end(x, *each, step_size) for each in holders]
    return (1.0 - RATE) * x + RATE * np.mean(ends, axis=0)


# The largest second derivative of the logistic loss is 1/4.
LIMIT = 2.0 / (0.25 * BOUND**2)


def stretch(step_size, seed):
    """Return the largest ratio of distances after and before a step of the server."""
    draw, most = np.random.default_rng(seed), 0.0
    for _ in range(200):
        holders = holders_of(draw, 2, 2)
        x = draw.normal(size=2) * 0.2
        y = x + 1e-4 * draw.normal(size=2)
        apart = averaged(x, holders, step_size) - averaged(y, holders, step_size)
        most = max(most, float(np.linalg.norm(apart) / np.linalg.norm(x - y)))
    return most


def test_a_step_of_averaging_moves_no_two_points_apart():
    assert stretch(LIMIT, 1) <= 1.0 + 1e-9
    # Beyond the limit it does: the condition is needed.
    assert stretch(3.0 * LIMIT, 1) > 1.2


def test_clipped_updates_move_points_apart():
    """x - clip(A x), A = diag(1, 1/2), at a point whose update is just clipped."""
    matrix, norm = np.diag([1.0, 0.5]), 1.0
    point = np.linalg.solve(matrix, np.array([1.0, 1.0]) * (norm / math.sqrt(2.0)))

    def step(x):
        update = matrix @ x
        return x - update * min(1.0, norm / np.linalg.norm(update))

    # On the outer side of the kink, where the update is clipped.
    outward = point * (1 + 1e-5)
    slope = np.array(
        [(step(outward + 1e-7 * e) - step(outward - 1e-7 * e)) / 2e-7 for e in np.eye(2)]
    )
    most = np.linalg.norm(slope, 2) ** 2
    assert most == pytest.approx((9.0 + math.sqrt(65.0)) / 16.0, abs=1e-3)
    assert most > 1.06


@pytest.mark.parametrize("rounds", [1, 5, 40])
def test_exact_laws_of_two_clients_on_an_interval_lose_no_more(rounds):
    """The law of the end on a grid, for several replaced clients, in both orders."""
    radius, std, step_size = 1.0, 0.6, 0.5
    grid = np.linspace(-radius, radius, 801)
    half = 0.5 * (grid[1] - grid[0])
    edges = np.concatenate([[-np.inf], grid[1:] - half, [np.inf]])

    def end(slopes):
        ahead = grid.copy()
        total = np.zeros_like(grid)
        for slope in slopes:
            x = ahead.copy()
            for _ in range(LOCAL_STEPS):
                x = x + step_size * slope / (1.0 + np.exp(slope * x))
            total += x
        mean = (1.0 - RATE) * grid + RATE * total / len(slopes)
        below = 0.5 * (1.0 + erf((edges - mean[:, None]) / (std * math.sqrt(2))))
        kernel, law = np.diff(below, axis=1), np.zeros_like(grid)
        law[len(grid) // 2] = 1.0
        for _ in range(rounds):
            law = law @ kernel
        return law

    moved = RATE * 2.0 * LOCAL_STEPS * step_size * BOUND / 2.0
    account = NoisyGradientDescent(
        step_size=1.0,
        noise_std=std,
        sensitivity=moved,
        strong_convexity=0.0,
        smoothness=2.0,
        steps=rounds,
        radius=radius,
    )
    closest = 0.0
    for other in (BOUND, 0.5, -BOUND):
        for mine, theirs in ((BOUND, -BOUND), (BOUND, 0.3), (-BOUND, 0.5)):
            laws = end((mine, other)), end((theirs, other))
            for epsilon in (0.1, 1.0, 3.0):
                bound = delta(account, epsilon=epsilon, adjacency="replace_one").upper
                for one, two in (laws, laws[::-1]):
                    shown = float(np.maximum(one - math.exp(epsilon) * two, 0.0).sum())
                    assert shown <= bound + 1e-9
                    closest = max(closest, shown / bound)
    assert closest > 0.02
