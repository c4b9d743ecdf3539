"""Fixed cohorts under replace_one: the game of adaptive rounds, against independent arithmetic."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.loss import Gdp, Sampled, given_way, orientations
from fedprivacy.loss.clock import LateError
from fedprivacy.loss.curves.lattice import Lattice, Side
from fedprivacy.loss.curves.triangles import Triangles
from fedprivacy.loss.strategies import adaptive_adversary
from fedprivacy.loss.strategies.adaptive_adversary import (
    _TOO_LARGE,
    MESHES,
    TooLarge,
    _Board,
    _corners,
)
from fedprivacy.loss.strategies.cells import above_zeroed, excess, given_way_excess
from fedprivacy.loss.strategies.game import chords, play
from fedprivacy.loss.strategies.queries import LATE, STUCK, EpsilonAt, Interval

ASK = {"adjacency": "replace_one"}


def run(size: int, population: int, z: float, rounds: int) -> fp.Mechanism:
    scheme = fp.FixedSize(size, population=population)
    return fp.Gaussian(noise_multiplier=z, clip_norm=1.0).sampled(scheme) * rounds


def plane(u: np.ndarray, v: np.ndarray, q: float) -> tuple[np.ndarray, np.ndarray]:
    """Return P's and Q's masses on a fine grid of the plane."""
    x = np.linspace(-8.0, 10.0, 700)
    one, two = np.meshgrid(x, x, indexing="ij")

    def normal(mean: np.ndarray) -> np.ndarray:
        square = (one - mean[0]) ** 2 + (two - mean[1]) ** 2
        return np.exp(-0.5 * square) * ((x[1] - x[0]) ** 2 / (2 * math.pi))

    none = (1 - q) * normal(np.zeros(2))
    return none + q * normal(u), none + q * normal(v)


def worst_round(a: np.ndarray, mu: float, q: float) -> np.ndarray:
    """Return the fold's profile at a, in closed form."""

    def above(one: np.ndarray) -> np.ndarray:
        c = 1.0 + (one - 1.0) / q
        cut = np.log(c) / mu + mu / 2
        return q * (ndtr(mu - cut) - c * ndtr(-cut))

    high = np.maximum(a, 1.0)
    low = np.minimum(np.maximum(a, 1e-300), 1.0)
    return np.where(a >= 1.0, above(high), 1.0 - low + low * above(1.0 / low))


def triples(seed: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (x - y, x' - y) of three points in the unit disc, some on its edge."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        points = draw.normal(size=(3, 2))
        points /= np.linalg.norm(points, axis=1)[:, None]
        points *= draw.choice([1.0, 1.0, 0.7], size=(3, 1))
        found.append((points[0] - points[2], points[1] - points[2]))
    e = np.array([2.0, 0.0])
    # Three points of the circle as far from each other as they can be: sides of sqrt(3).
    side = math.sqrt(3.0)
    even = np.array([side, 0.0]), np.array([0.5 * side, 1.5])
    return [*found, (e, 0 * e), (0 * e, e), even]


@pytest.mark.parametrize("seed", range(4))
def test_cells_lie_above_the_pairs_of_zeroed_units(seed):
    draw = np.random.default_rng(seed)
    q, mu = draw.uniform(0.02, 0.5), draw.uniform(0.3, 2.0)
    x, y = draw.normal(size=(2, 2))
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    inner = float(x @ y)
    gram = above_zeroed(mu, max(inner - 1e-3, -1.0), min(inner + 1e-3, 1.0))
    losses = np.linspace(-2.0, 2.0, 21)
    shorter = draw.choice([1.0, 0.8], size=2)
    p, none = plane(mu * (shorter[0] * x - shorter[1] * y), -mu * shorter[1] * y, q)
    a = np.exp(losses)
    for products, one, other in ((gram, p, none), (gram.swap(), none, p)):
        exact = np.array([np.maximum(one - z * other, 0).sum() for z in a]) - np.maximum(1 - a, 0)
        bound = excess(products, q, losses)
        assert np.all(exact - 1e-13 <= bound)
        if shorter.min() == 1.0:
            assert np.all(bound <= exact + 0.02 * q)


@pytest.mark.parametrize(("mu", "q"), [(0.4, 0.3), (1.5, 0.02), (2.5, 0.5)])
def test_the_corner_of_a_zeroed_unit_is_its_curve(mu, q):
    losses = np.linspace(-3.0, 3.0, 25)
    a, curve = np.exp(losses), given_way(1.0 / mu, q)
    found = given_way_excess(mu, q, losses)
    tails = curve.tails(losses)
    exact = np.exp(tails.p_above) - a * np.exp(tails.q_above) - np.maximum(1 - a, 0)
    assert np.all(found >= exact - 1e-13)
    assert found == pytest.approx(exact, abs=1e-11)


@pytest.mark.fast_cells(1)
@pytest.mark.parametrize("population", [2, 5])
def test_two_rounds_are_above_every_pair_of_zeroed_data(population):
    """The first round is any pair, in either order, the second a corner: adaptive data can."""
    z, q = 1.5, 1.0 / population
    asked = (0.0, 0.4, 1.2)
    ask = {"adjacency": "zero_out", "accountant": "game", "tolerance": 0.2}
    found = [fp.delta(run(1, population, z, 2), epsilon=x, **ask).upper for x in asked]
    draw = np.random.default_rng(population)
    corners = given_way(z, q), Sampled(Gdp(1.0 / z), q).swap()
    grid = np.linspace(-8.0, 8.0, 4001)

    def worst(pairs, losses):
        tails = [pair.tails(grid) for pair in pairs]
        values = [np.exp(t.p_above) - np.exp(grid + t.q_above) for t in tails]
        # Between points a profile is at most its chord: by about 1e-6 here.
        return np.interp(losses, grid, np.maximum(*values), left=1.0, right=0.0)

    for x, y in draw.normal(size=(6, 2, 2)):
        x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
        p, none = plane((x - y) / z, -y / z, q)
        turned = [pair.swap() for pair in corners]
        for one, other, pairs in ((p, none, corners), (none, p, turned)):
            losses = np.log(np.maximum(other, 1e-300)) - np.log(np.maximum(one, 1e-300))
            for epsilon, bound in zip(asked, found, strict=True):
                shown = float((one * worst(pairs, epsilon + losses)).sum())
                assert shown <= bound + 1e-5


def test_the_game_closes_the_gap_of_zeroed_units():
    one = fp.Gaussian(noise_multiplier=2.0).sampled(fp.FixedSize(100, population=1000)) * 20
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    fold = fp.epsilon(one, **ask)
    game = fp.epsilon(one, accountant="game", tolerance=0.01, **ask)
    assert fold.lower < game.lower <= game.upper < fold.upper
    assert game.upper - game.lower < 0.01 < fold.upper - fold.lower
    assert "C u or 0" in game.witness


@pytest.mark.slow
@pytest.mark.parametrize(("z", "rounds", "width"), [(3.0, 5, 1e-3), (0.7, 3, 4e-3)])
def test_few_rounds_of_a_zeroed_unit_have_narrow_intervals(z, rounds, width):
    """Pairs between the corners lose almost as much, so short arcs are needed."""
    found = fp.delta(
        run(1, 2, z, rounds), epsilon=0.3, adjacency="zero_out", accountant="game", deadline=60.0
    )
    assert found.upper - found.lower < width * found.upper


def given_way_above(loss: float, mu: float, q: float) -> mpmath.mpf:
    """Return the profile of the pair that gives way at e^loss, loss > 0, to so many digits."""
    mu, q, a = mpmath.mpf(mu), mpmath.mpf(q), mpmath.exp(mpmath.mpf(loss))
    shrunk, c = mpmath.exp(-mu * mu), (a - 1) * (1 - q) / q
    cut = mpmath.log((a + mpmath.sqrt(a * a + 4 * shrunk * c)) / (2 * shrunk)) / mu + mu / 2
    beyond = [mpmath.erfc((cut - i * mu) / mpmath.sqrt(2)) / 2 for i in range(3)]
    return q * (beyond[2] - a * beyond[1] - c * beyond[0])


@pytest.mark.parametrize("mu", [15.0, 20.0, 30.0])
def test_losses_in_the_hundreds_are_not_lost_to_the_ends_of_doubles(mu):
    """Squares of e^loss overflow, and e^-mu^2 underflows: the profile there is still above 0."""
    half = np.array([0.0, 100.0, 340.0, 356.0, 400.0, 500.0, 600.0])
    losses = np.concatenate([-half[:0:-1], half])
    for q in (1e-9, 0.5):
        found = given_way_excess(mu, q, losses)
        with mpmath.workdps(400):
            exact = [given_way_above(loss, mu, q) for loss in half[1:]]
        assert all(bound >= x for bound, x in zip(found[len(half) :], exact, strict=True))
        assert found[len(half)] <= float(exact[0]) * (1.0 + 1e-9) + 1e-22


def absent_excess(loss: float, mu: float, q: float) -> mpmath.mpf:
    """Return what S has above 1 - a at a = e^-loss, to 40 digits."""
    c = 1 + mpmath.expm1(-mpmath.mpf(loss)) / mpmath.mpf(q)
    cut = mpmath.log(c) / mu + mpmath.mpf(mu) / 2
    return mpmath.mpf(q) * (c * mpmath.ncdf(cut) - mpmath.ncdf(cut - mu))


@pytest.mark.parametrize("q", [0.25, 0.5])
def test_corners_are_above_where_hardly_a_ratio_is_left(q):
    """Next to a = 1 - q the ratio c that decides is the small difference of two numbers."""
    pair = Sampled(Gdp(2.0), q)
    one = Triangles(pair, pair)
    half = np.append(0.0, -math.log1p(-q) * (1.0 - np.geomspace(0.1, 1e-9, 30)))
    s, w = _corners(one, np.concatenate([-half[:0:-1], half]))
    with mpmath.workdps(40):
        exact = [absent_excess(loss, one.mu, q) for loss in half[:0:-1]]
        assert all(bound >= x for bound, x in zip(s, exact, strict=False))
        turned = [mpmath.exp(loss) * x for loss, x in zip(half[:0:-1], exact, strict=True)]
        assert all(bound >= x for bound, x in zip(w[::-1], turned, strict=False))


def test_masses_are_above_chords_of_close_knots():
    """Knots 1e-9 apart, under a profile that falls by half in 2e-4."""
    step, knots = 1e-9, np.arange(-200, 201)
    above = 1e-3 * np.exp(-3000.0 * np.maximum(step * knots, 0) - np.maximum(-step * knots, 0))
    made = chords(above, knots, step)
    with mpmath.workdps(40):
        p, q = mpmath.mpf(made.infinite), mpmath.mpf(0)
        for knot, mass, least in zip(knots[::-1], made.mass[::-1], above[::-1], strict=True):
            a = mpmath.exp(mpmath.mpf(step) * int(knot))
            assert p - a * q >= max(0, 1 - a) + mpmath.mpf(least)
            p, q = p + mpmath.mpf(mass), q + mpmath.mpf(mass) / a


@pytest.mark.fast_cells(1)
@pytest.mark.parametrize("population", [2, 5])
def test_two_rounds_are_above_every_triple(population):
    z, q = 1.5, 1.0 / population
    asked = (0.0, 0.4, 1.2)
    found = [
        fp.delta(run(1, population, z, 2), epsilon=x, accountant="game", tolerance=0.2, **ASK)
        for x in asked
    ]
    for u, v in triples(population, 12):
        p, none = plane(u / z, v / z, q)
        ratio = none / np.maximum(p, 1e-300)
        for x, bound in zip(asked, found, strict=True):
            shown = float((p * worst_round(math.exp(x) * ratio, 2.0 / z, q)).sum())
            assert shown <= bound.upper


def test_a_zeroed_unit_is_near_the_attained_number_in_both_orders():
    one = run(10, 100, 4.0, 30)
    asked = {"delta": 1e-5, "adjacency": "zero_out"}
    fold = fp.epsilon(one, **asked)
    game = fp.epsilon(one, accountant="game", tolerance=0.01, **asked)
    assert fold.lower - 1e-3 <= game.lower <= game.upper <= game.lower + 0.01 < fold.upper


def test_one_round_is_the_fold_and_exact():
    ask = {"delta": 1e-5, **ASK}
    game = fp.epsilon(run(10, 1000, 1.0, 1), accountant="game", **ask)
    fold = fp.epsilon(run(10, 1000, 1.0, 1), **ask)
    assert (game.lower, game.upper) == (fold.lower, fold.upper)


def test_the_game_is_below_the_fold_and_above_what_adaptive_data_attain():
    ask = {"delta": 1e-5, **ASK}
    one = run(10, 1000, 1.0, 100)
    fold = fp.epsilon(one, **ask)
    game = fp.epsilon(one, accountant="game", tolerance=0.05, **ask)
    assert fold.lower < game.lower <= 6.513
    assert 6.510 <= game.upper < fold.upper
    assert "game" in game.method
    assert "releases" in game.witness
    with pytest.raises(ParameterError, match="accountant='pld'"):
        game.certificate()


def test_it_grows_with_rounds_and_probability_and_falls_with_noise():
    ask = {"delta": 1e-5, "accountant": "game", "tolerance": 0.3, **ASK}
    here = fp.epsilon(run(10, 100, 2.0, 10), **ask)
    for more in (run(10, 100, 2.0, 20), run(20, 100, 2.0, 10), run(10, 100, 1.5, 10)):
        assert fp.epsilon(more, **ask).upper > here.lower


def test_a_deadline_is_kept_and_different_rounds_are_the_folds():
    one = run(10, 1000, 1.0, 100)
    late = fp.epsilon(one, delta=1e-5, accountant="game", tolerance=1e-6, deadline=0.5, **ASK)
    assert "deadline" in late.reason
    both = run(10, 100, 2.0, 2) + run(20, 100, 2.0, 2)
    game, fold = (fp.epsilon(both, delta=1e-5, accountant=n, **ASK) for n in ("game", "pld"))
    assert game.upper == fold.upper


def random_settings(count: int) -> list[tuple[int, int, float, int, float]]:
    draw = np.random.default_rng(7)
    found = []
    for _ in range(count):
        population = int(draw.integers(2, 3000))
        size = int(draw.integers(1, population))
        rounds = int(np.exp(draw.uniform(math.log(2), math.log(200))))
        z = float(np.exp(draw.uniform(math.log(0.7), math.log(20))))
        found.append((size, population, z, rounds, float(10 ** draw.uniform(-9, -2))))
    return found


def _ordered(settings):
    for size, population, z, rounds, delta in settings:
        one, ask = run(size, population, z, rounds), {"delta": delta, **ASK}
        fold = fp.epsilon(one, **ask)
        game = fp.epsilon(one, accountant="game", deadline=1.0, **ask)
        assert game.lower <= game.upper <= fold.upper
        assert game.lower >= fold.lower * (1 - 1e-9) - 1e-3


def test_ends_are_in_order():
    _ordered(itertools.islice(random_settings(200), 2))


@pytest.mark.slow
def test_ends_are_in_order_at_many_settings():
    _ordered(random_settings(200))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "population", "z", "rounds", "delta", "attained", "most"),
    [
        (100, 6000, 1.4, 180, 6000**-1.1, 3.2395, 3.26),
        (10, 1000, 1.0, 100, 1e-5, 6.505, 6.535),
    ],
)
def test_long_runs_come_close(size, population, z, rounds, delta, attained, most):
    one = run(size, population, z, rounds)
    bound = fp.epsilon(one, delta=delta, accountant="game", deadline=60.0, **ASK)
    assert attained <= bound.lower <= bound.upper <= most


def board_of(one: fp.Mechanism, adjacency: str, order: int) -> _Board:
    """Return the board of one order of the data sets, at delta = 1e-4."""
    curve = list(orientations(one.privacy_loss(adjacency).curve))[order]
    known = Interval(0.0, fp.epsilon(one, delta=1e-4, adjacency=adjacency).upper, "", "")
    return _Board.of(EpsilonAt.of(curve, 1e-4, 1e-3, 0.0), known)


def profile_of(made: Lattice, losses: np.ndarray) -> np.ndarray:
    """Return the profile of masses at e^loss, term by term."""
    gains = -np.expm1(np.minimum(losses[:, None] - made.losses(), 0.0))
    return gains @ made.mass + made.infinite


@pytest.mark.parametrize(
    ("adjacency", "order"), [("replace_one", 0), ("zero_out", 0), ("zero_out", 1)]
)
def test_a_block_is_above_its_rounds_at_every_ratio(adjacency, order):
    """Below 1 too: a block's loss may be negative while that of the others is not."""
    board = board_of(run(1, 5, 1.5, 12), adjacency, order)
    step = 0.02
    family = board._family(MESHES[1], step)
    made = board.block(family, step, 3)
    both = [corner.lattice(0.5 * step, Side.DOWN, 1e-12) for corner in board.one.corners]
    window = board.window(0.5 * step)
    shown = np.exp(play(both, 3, window, Side.DOWN))
    losses = window.losses()
    asked = np.flatnonzero((losses > -4.0) & (shown > 1e-9))[::7]
    found = profile_of(made, losses[asked])
    assert losses[asked].min() < -2.0 < 2.0 < losses[asked].max()
    assert np.all(found >= shown[asked])
    # It is close, so that the test would see a loss of a tenth.
    middle = np.abs(losses[asked]) < 1.0
    assert np.all(0.9 * found[middle] < shown[asked][middle])


def alone(x: float, other: float, y: float, q: float, rounds: int) -> float:
    """Return epsilon at 1e-4 of data that send x or ``other``, while all others send y.

    The loss of a round is convolved on a fine grid, rounded to its nearest point.
    """
    at, step = np.linspace(-14.0, 14.0, 60_001), 2e-4
    width = at[1] - at[0]

    def law(mean: float) -> np.ndarray:
        both = (1 - q) * np.exp(-0.5 * (at - y) ** 2) + q * np.exp(-0.5 * (at - mean) ** 2)
        return both * (width / math.sqrt(2 * math.pi))

    p, none = law(x), law(other)
    places = np.rint(np.log(p / none) / step).astype(int)
    size = 1 << 17
    mass = np.bincount(places % size, weights=p, minlength=size)
    total = np.fft.irfft(np.fft.rfft(mass) ** rounds, size)
    losses = step * np.where(np.arange(size) < size // 2, np.arange(size), np.arange(size) - size)
    low, high = 0.0, 12.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        delta = float(total @ np.maximum(-np.expm1(np.minimum(middle - losses, 0.0)), 0.0))
        low, high = (middle, high) if delta > 1e-4 else (low, middle)
    return low


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_blocks_are_above_data_sets_of_a_tiny_population(adjacency, monkeypatch):
    """One of two units is drawn: every pair of some data sets, in both orders, round by round."""
    monkeypatch.setattr(adaptive_adversary, "BLOCK", 4)
    z, q, rounds = 2.0, 0.5, 13
    run_of = run(1, 2, z, rounds)
    found = max(
        board.high_of_blocks(MESHES[1], Interval(0.0, 12.0, "", ""))
        for board in (
            board_of(run_of, adjacency, k) for k in range(2 - (adjacency == "replace_one"))
        )
    )
    ends = (-1.0, 0.0, 1.0)
    pairs = [(x, 0.0) for x in ends] if adjacency == "zero_out" else itertools.product(ends, ends)
    shown = [
        alone(a / z, b / z, y / z, q, rounds)
        for x, other in pairs
        for a, b in ((x, other), (other, x))
        for y in ends
        if x != other
    ]
    assert max(shown) < found < 1.1 * max(shown)


def test_long_runs_are_cut_and_the_ends_come_close():
    one, ask = run(100, 1000, 5.0, 1000), {"delta": 1e-5, "adjacency": "zero_out"}
    fold = fp.epsilon(one, **ask)
    game = fp.epsilon(one, accountant="game", tolerance=0.02, **ask)
    assert 2.9158 <= game.upper < 1.01 * game.lower
    assert fold.upper > 1.09 * fold.lower


class _Narrow:
    """A question whose answer is never narrow enough."""

    @staticmethod
    def excess(_):
        return 10.0


@pytest.mark.parametrize(("error", "reason"), [(LateError, LATE), (TooLarge, _TOO_LARGE)], ids=str)
def test_what_coarse_meshes_narrowed_stays(error, reason):
    """A mesh that came too late, or was too large, undid the ones before it."""
    asked = []

    def high_of(mesh, best):
        asked.append(mesh)
        if len(asked) > 1:
            raise error
        return 2.0

    best = Interval(1.0, 3.0, "fold", STUCK)
    found = adaptive_adversary._narrowed(_Narrow, best, 0.0, high_of, adaptive_adversary.MESHES)
    assert (found.low, found.high, found.reason) == (1.0, 2.0, reason)
