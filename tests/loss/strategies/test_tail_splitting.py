"""Rounds cut where their loss jumps: moments of the parts, sums over nodes, profiles, epsilons."""

import functools
import math
import random

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from scipy.stats import binom

from fedprivacy.loss import Fold, GaussianMix, Gdp, Mix, Sampled, Side
from fedprivacy.loss.curves.composed import Composed, compose
from fedprivacy.loss.moments import contour as lines
from fedprivacy.loss.moments.contour import Contour, NoMoments
from fedprivacy.loss.strategies import tail_splitting as jumps
from fedprivacy.rounding import UNIT
from tests import truth

wide, complex_wide = np.longdouble, np.clongdouble


def log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def sampled(z, q):
    return Sampled(Gdp(1 / z), q)


def replaced(z, q):
    return GaussianMix(z, ((1 - q, 0.0), (q, 1.0)), ((1 - q, 0.0), (q, -1.0)))


def zeroed(z, q):
    return GaussianMix(z, ((1 - q, -1.0), (q, 1.0)), ((1 - q, -1.0), (q, 0.0)))


def folded(z, q):
    return Fold(sampled(z, q), sampled(z, q))


def unlike(z, q):
    return Fold(zeroed(z, q), sampled(z, q))


def labelled(z, q):
    return Sampled(Mix(((0.9999, Gdp(1 / z)), (1e-4, Gdp(2 / z)))), q)


def folded_labels(z, q):
    return Fold(labelled(z, q), labelled(z, q))


MAKERS = [sampled, replaced, zeroed, folded, unlike, labelled, folded_labels]


def leaf(rng, least_z=0.2):
    curve = rng.choice(MAKERS)(log_uniform(rng, least_z, 30), log_uniform(rng, 1e-9, 0.3))
    return curve.swap() if rng.random() < 0.4 else curve


# Moments of a cut round: panels in extended precision, none of our nodes.


@functools.cache
def _nodes():
    found = mpmath.calculus.quadrature.GaussLegendre(mpmath.mp).calc_nodes(5, 80)
    return tuple(np.array([wide(mpmath.nstr(v, 22)) for v in row]) for row in zip(*found, strict=1))


def _log_density(side, y):
    """log of the mixture over N(0, 1), precise near 0; the first weight is what others leave."""
    rest = 1 - sum(wide(w) for w, _ in side[1:])
    side = [(rest, wide(side[0][1])), *[(wide(w), wide(m)) for w, m in side[1:]]]
    powers = [m * y - m * m / 2 for _, m in side]
    small = sum(
        w * np.expm1(np.minimum(e, wide(30))) for (w, _), e in zip(side, powers, strict=True)
    )
    large = np.logaddexp.reduce([np.log(w) + e for (w, _), e in zip(side, powers, strict=True)])
    near = (np.abs(small) < 0.5) & (np.maximum.reduce(powers) < 30)
    return np.where(near, np.log1p(np.where(near, small, 0)), large)


def exact_piece(piece, s):
    """(P's mass, E e^{s L}, E (e^{s L} - 1)) of a piece, with its label's weight."""
    means = [m for _, m in piece.pair.p + piece.pair.q]
    t, spread = 1 + s.real, max(max(means) - min(means), 0.5)
    centres = [t * a + (1 - t) * b for a in means for b in means] + means
    radius = math.sqrt(t * (t - 1) * spread**2 + 110 - 2 * math.log(piece.weight))
    low, high = min(centres) - radius, max(centres) + radius
    if piece.start > -math.inf:
        low, high = piece.start, max(high, piece.start + 15)
    if piece.stop < math.inf:
        low, high = min(low, piece.stop - 15), piece.stop
    low = max(low, piece.start)
    count = int((high - low) * max(1, spread / 2, abs(s.imag) * spread / 40)) + 2
    if count > 2000 or t * (t - 1) * spread**2 > 16_000:  # beyond what extended numbers hold
        raise NoMoments
    at, share = _nodes()
    edges = np.linspace(wide(low), wide(high), count + 1)
    half = np.diff(edges)[:, None] / 2
    y = ((edges[1:] + edges[:-1])[:, None] / 2 + half * at).ravel()
    log_p, log_q = _log_density(piece.pair.p, y), _log_density(piece.pair.q, y)
    width = wide(piece.weight) * (half * share).ravel() / np.sqrt(2 * np.pi * wide(1))
    loss, plain = log_p - log_q, width * np.exp(log_p - y * y / 2)
    tilted = width * np.exp(log_p - y * y / 2 + s.real * loss)
    turn = s.imag * loss
    rise = plain * np.expm1(np.minimum(s.real * loss, wide(30)))
    rise = np.where(s.real * loss < 30, rise, tilted - plain)
    i = complex_wide(1j)
    value = tilted @ np.cos(turn) + i * (tilted @ np.sin(turn))
    less_one = rise.sum() - 2 * (tilted @ np.sin(turn / 2) ** 2) + i * (tilted @ np.sin(turn))
    return plain.sum(), value, less_one


def check_cut_moments(rng):
    """How many of a round's two parts could be compared: values, A - 1, masses, decay."""
    curve, loss, tilt = leaf(rng), log_uniform(rng, 1e-4, 10), log_uniform(rng, 1e-3, 20)
    cut = jumps.cut_round(curve, loss)
    checked = 0
    for part in [cut.calm, cut.jumps] if cut.jumps else []:
        try:
            spread = math.sqrt(max(part.cumulants(tilt).variance, 1e-24))
            size = rng.choice([5, 5, 400])
            line = Contour(tilt, log_uniform(rng, 1e-2, 30) / spread / size, size)
            found, k = part.spectrum(line), rng.randrange(size)
            s = complex(tilt, line.heights()[k])
            exact = [exact_piece(piece, s) for piece in part.pieces]
            away = float(sum(exact_piece(piece, s)[0] for piece in cut.jumps.pieces))
        except NoMoments:
            continue
        mass, value, less_one = (sum(column) for column in zip(*exact, strict=True))
        value += 1 - away - mass if part is cut.calm and part.atom else 0
        off = abs(found.values[k] - value * np.exp(-wide(found.log_size)))
        assert off <= found.error[k], (curve, loss, line, k)
        assert cut.mass * (1 - 1e-11) <= away <= cut.mass
        if part is cut.calm and found.near is not None:
            off = abs(found.near.values[k] - (less_one - away))
            assert off <= found.near.error[k] <= 1e-8, (curve, loss, line, k)
        fall = part.decay(tilt, line.heights()[1:])
        bare = np.abs(found.values[1:] - found.atom) - found.error[1:]
        least = np.log(np.maximum(bare, 1e-300)) + found.log_size
        assert np.all(least <= fall.log_rest + 1e-13), (curve, loss, line)
        checked += 1
    return checked


@pytest.mark.fast_cells(1)
@pytest.mark.parametrize("first", [0, 20])
def test_moments_of_both_parts_hold_the_truth(first):
    assert sum(check_cut_moments(random.Random(seed)) for seed in range(first, first + 20)) >= 10


@pytest.mark.slow
def test_moments_of_many_cut_rounds_hold_the_truth():
    assert sum(check_cut_moments(random.Random(seed)) for seed in range(100, 400)) >= 150


def test_a_steep_tilt_reaches_the_cut_far_from_all_means():
    cut = jumps.cut_round(sampled(1.0, 1e-9), 10.0)
    found = cut.calm.spectrum(Contour(60.0, 0.5, 3))
    for k in range(3):
        value = sum(exact_piece(piece, complex(60.0, 0.5 * k))[1] for piece in cut.calm.pieces)
        assert value.real > 1e40 or k
        assert abs(found.values[k] - value * np.exp(-wide(found.log_size))) <= found.error[k] < 1e-9


@pytest.mark.parametrize("seed", range(30))
def test_no_loss_below_the_cut_exceeds_the_bound_of_its_piece(seed):
    rng = random.Random(seed)
    curve, loss = leaf(rng, 0.1), log_uniform(rng, 1e-5, 20)
    cut = jumps.cut_round(curve, loss)
    bounded = 0
    for piece in cut.calm.pieces if cut.jumps else []:
        if piece.most == math.inf:
            continue
        low, high = max(piece.start, -60.0), min(piece.stop, 120.0)
        y = np.linspace(low, high, 20_001).astype(wide)
        y = y[(y >= piece.start) & (y <= piece.stop)]
        seen = _log_density(piece.pair.p, y) - _log_density(piece.pair.q, y)
        assert np.max(seen) <= piece.most
        bounded += 1
    if isinstance(curve, Fold) and cut.jumps:
        assert bounded == len(cut.calm.pieces)


def test_parts_share_all_outcomes():
    for seed in range(20):
        rng = random.Random(seed)
        curve = leaf(rng)
        cut = jumps.cut_round(curve, log_uniform(rng, 1e-3, 3))
        if cut.jumps:
            kept = cut.calm.atom + sum(piece.mass for piece in cut.calm.pieces)
            away = sum(piece.mass for piece in cut.jumps.pieces)
            assert kept + away == pytest.approx(1.0, abs=4e-15)
            whole = curve.moments().spectrum(Contour(0.5, 0.3, 4))
            found = [part.spectrum(Contour(0.5, 0.3, 4)) for part in (cut.calm, cut.jumps)]
            total = sum(np.exp(one.log_size) * one.values for one in found)
            error = sum(np.exp(one.log_size) * one.error for one in [*found, whole])
            assert np.all(np.abs(total - np.exp(whole.log_size) * whole.values) <= error + 1e-15)


# Sums over nodes.


@pytest.mark.fast_cells(12)
@pytest.mark.parametrize("size", [2, 3, 64, 65, 1024, 1025, 40_000])
@pytest.mark.parametrize("kind", ["spread", "one bin", "whole periods", "tiny", "far"])
def test_sums_over_nodes_are_as_close_as_they_say(size, kind, monkeypatch):
    rng = np.random.default_rng(size)
    spacing, count = 0.37, 3000
    period = 2 * math.pi / spacing
    loss = {
        "spread": rng.normal(size=count) * period,
        "one bin": np.full(count, 0.3456),
        "whole periods": rng.integers(-3, 4, count) * period,
        "tiny": rng.normal(size=count) * 1e-9,
        "far": rng.normal(size=count) * 1e5,
    }[kind]
    weight = np.exp(-3 * rng.exponential(size=count))
    weight /= weight.sum()
    line = Contour(1.0, spacing, size)
    for direct in (0, 1 << 40) if size < 2000 else (0,):
        monkeypatch.setattr(lines, "_DIRECT", direct)
        sums, units = lines.transform(weight, loss, line)
        less, off = lines.turned(weight, loss, line)
        for k in {0, 1, size // 2, size - 1}:
            angle = wide(k) * wide(spacing) * loss.astype(wide)
            real, turn = weight @ np.cos(angle), complex_wide(1j) * (weight @ np.sin(angle))
            phases = 6 * UNIT * float(weight @ np.abs(loss)) * k * spacing
            assert abs(sums[k] - real - turn) <= units + phases
            bent = -2 * (weight @ np.sin(angle / 2) ** 2)
            assert abs(less[k] - bent - turn) <= off[k] + phases


# Numbers of jumps.


@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_terms_left_out_have_no_more_mass_than_is_said(count):
    run = Composed(((sampled(0.5, 0.05), count), (replaced(0.7, 1e-3), 2 * count)))
    for log_least in (-2.0, -8.0, -30.0):
        cuts = [jumps.cut_round(part, 1.5) for part, _ in run.parts]
        numbers = [np.arange(n + 1) for _, n in run.parts]
        pmf = [
            binom.pmf(k, n, cut.mass)
            for k, (_, n), cut in zip(numbers, run.parts, cuts, strict=True)
        ]
        joint = np.multiply.outer(*pmf)
        try:
            terms = jumps.divide(run, 1.5, log_least)
        except NoMoments:
            continue
        kept, seen = 0.0, set()
        for term, log_mass in terms.counting:
            parts = dict(term.parts)
            pattern = tuple(parts.get(cut.jumps, 0) for cut in cuts)
            assert pattern not in seen
            seen.add(pattern)
            assert log_mass >= math.log(joint[pattern]) - 1e-9
            assert sum(parts.values()) == 3 * count
            ways = [math.comb(n, k) for (_, n), k in zip(run.parts, pattern, strict=True)]
            assert term.log_ways == pytest.approx(sum(map(math.log, ways)), abs=1e-9)
            kept += float(joint[pattern])
        assert 1.0 - kept <= math.exp(terms.log_rest) + 1e-12


def test_rare_patterns_among_the_counted_numbers_are_left_out_with_their_mass():
    run = Composed(((sampled(0.5, 0.05), 20), (sampled(0.5, 1e-4), 20)))
    cuts = [jumps.cut_round(part, 1.5) for part, _ in run.parts]
    terms = jumps.divide(run, 1.5, -6.5)
    kept = {tuple(dict(term.parts).get(cut.jumps, 0) for cut in cuts) for term, _ in terms.counting}
    most = max(map(sum, kept))
    dropped = [(i, j) for i in range(most) for j in range(most - i) if (i, j) not in kept]
    assert dropped
    single = [[binom.pmf(k, 20, cut.mass) for k in range(most + 1)] for cut in cuts]
    beyond = jumps._log_more(20 * sum(cut.mass for cut in cuts), most)
    least = sum(single[0][i] * single[1][j] for i, j in dropped)
    assert math.exp(terms.log_rest) >= least + math.exp(beyond) * (1 - 1e-6)


# Whole runs with a law in closed form: labels with separate Gaussians.


def labels_delta(count, q, calm, jump, alone, epsilon):
    """delta of rounds that are calm-GDP, with probability q jump-GDP, visibly; and one more."""
    q, total = mpf(q), mpf(0)
    chance = (1 - q) ** count
    for j in range(count + 1):
        square = (count - j) * mpf(calm) ** 2 + j * mpf(jump) ** 2 + mpf(alone) ** 2
        if square > 0:
            total += chance * truth.gaussian_delta(epsilon, mpmath.sqrt(square))
        chance *= mpf(count - j) / (j + 1) * q / (1 - q)
        if j > count * q and chance < mpf(10) ** -60:
            break
    return total


LABELS = [
    (1_000_000, 1e-6, 5e-4, 3.0, 0.0, 4.0),
    (1_000_000, 3e-6, 1e-3, 5.0, 0.0, 20.0),
    (20, 1e-3, 0.1, 2.0, 0.0, 1.0),
    (3, 0.05, 0.0, 1.0, 0.3, 2.0),
    (50_000, 1e-4, 0.0, 0.5, 0.5, 3.0),
    (400, 1e-7, 0.02, 4.0, 0.0, 5.0),
]


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("case", LABELS)
def test_profiles_and_epsilons_of_labelled_gaussians_hold_the_truth(case):
    count, q, calm, jump, alone, epsilon = case
    rounds = [(Mix(((1 - q, Gdp(calm)), (q, Gdp(jump)))), count)]
    run = compose(rounds + ([(Gdp(alone), 1)] if alone else []))
    exact = labels_delta(*case)
    low, high = jumps.delta_interval(run, epsilon, 1e-6)
    assert low <= exact <= high
    assert high - low <= 1e-3 * exact
    least, most = jumps.epsilon_interval(run, float(exact), 1e-4)
    assert least <= epsilon + 1e-12
    assert most >= epsilon - 1e-12
    assert most - least <= 2e-2


def test_several_kinds_of_rounds_that_jump_hold_the_truth():
    a, b = (300, 1e-3, 0.02, 3.0), (1000, 2e-4, 0.01, 4.0)
    kinds = [(Mix(((1 - q, Gdp(c)), (q, Gdp(j)))), n) for n, q, c, j in (a, b)]
    run, epsilon, exact = compose(kinds), 6.0, mpf(0)
    for i in range(25):
        for j in range(25):
            chance, square = mpf(1), mpf(0)
            for k, (n, q, calm, jump) in zip((i, j), (a, b), strict=True):
                chance *= mpmath.binomial(n, k) * mpf(q) ** k * (1 - mpf(q)) ** (n - k)
                square += (n - k) * mpf(calm) ** 2 + k * mpf(jump) ** 2
            exact += chance * truth.gaussian_delta(epsilon, mpmath.sqrt(square))
    low, high = jumps.delta_interval(run, epsilon, 1e-6)
    assert low <= exact <= high
    assert high - low <= 1e-3 * exact


# Two rounds, by quadrature over the first.


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("z, q, epsilon", [(0.7, 0.01, 1.5), (2.0, 0.05, 0.2), (1.0, 0.1, 0.5)])
def test_two_rounds_hold_the_truth(z, q, epsilon):
    pair = truth.HalfLines(truth.sampled_pair(1 / mpf(z), mpf(q)))
    alone, both = pair.twice(epsilon), truth.folded_twice(pair, pair, epsilon)
    for curve, exact in ((sampled(z, q), alone), (folded(z, q), both)):
        low, high = jumps.delta_interval(Composed(((curve, 2),)), epsilon, 1e-5)
        assert low <= exact * (1 + 1e-9)
        assert high >= exact * (1 - 1e-9)
        assert high <= 3 * low


# Many rounds, on two lattices.


def check_lattice(rng):
    parts = [(leaf(rng, 0.4), int(log_uniform(rng, 1, 1e5))) for _ in range(rng.choice([1, 1, 2]))]
    run, delta = compose(parts), log_uniform(rng, 1e-14, 1e-3)
    try:
        low, high = jumps.epsilon_interval(run, delta, 1e-3)
    except NoMoments:
        return 0
    if not high > 1e-6:
        return 0
    below, above = (
        run.composition(high / 600, side, 1e-3 * delta).epsilon(delta)
        for side in (Side.DOWN, Side.UP)
    )
    assert low <= above + 1e-12, (run, delta)
    assert below <= high + 1e-12, (run, delta)
    return 1


def test_lattices_agree():
    assert sum(check_lattice(random.Random(seed)) for seed in range(3)) >= 2


@pytest.mark.slow
def test_many_lattices_agree():
    assert sum(check_lattice(random.Random(seed)) for seed in range(10, 70)) >= 40
