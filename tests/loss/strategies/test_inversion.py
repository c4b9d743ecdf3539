"""Inverted moments hold the truth: the moments, how fast they fall, and the profiles."""

import contextlib
import itertools
import math
import random

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from fedprivacy.loss import Composed, Fold, GaussianMix, Gdp, Mix, Sampled, Side
from fedprivacy.loss.curves.curve import Swapped
from fedprivacy.loss.moments.batched_rounds import Bundle
from fedprivacy.loss.moments.contour import Contour, NoMoments
from fedprivacy.loss.moments.gaussian_rules import legendre
from fedprivacy.loss.moments.mixtures import log_sum, log_sum_error
from fedprivacy.loss.moments.spectrum import uniform_envelope
from fedprivacy.loss.strategies import inversion, tail_splitting
from tests import truth
from tests.loss.moments.test_batched_gaussians import side_by_side


def log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def replaced(z, q):
    """Poisson sampling, replace_one."""
    return GaussianMix(z, ((1 - q, 0.0), (q, 1.0)), ((1 - q, 0.0), (q, -1.0)))


def zeroed(z, q):
    """FixedSize, zero_out: the upper half."""
    return GaussianMix(z, ((1 - q, -1.0), (q, 1.0)), ((1 - q, -1.0), (q, 0.0)))


def sampled(z, q):
    """Poisson sampling, add_remove."""
    return Sampled(Gdp(1 / z), q)


def folded(z, q):
    """FixedSize, replace_one."""
    return Fold(sampled(z, q), sampled(z, q))


def unlike(z, q):
    """FixedSize, zero_out."""
    return Fold(zeroed(z, q), sampled(z, q))


def erased(z, q):
    """A Gaussian that happens with probability q, visibly."""
    return Mix(((1 - q, Gdp(0.0)), (q, Gdp(1 / z))))


MAKERS = [sampled, replaced, zeroed, folded, unlike, erased]


# The truth: moments by sums that are refined until they stay, in extended precision.

wide, complex_wide = np.longdouble, np.clongdouble


def exact_pair(curve):
    """The mixtures behind a curve; the first weight of each is what the others leave of 1."""
    if isinstance(curve, Swapped):
        return exact_pair(curve.curve)[::-1]
    if isinstance(curve, Sampled):
        return truth.sampled_pair(mpf(curve.inner.mu), mpf(curve.q))
    sides = []
    for side in (curve.p, curve.q):
        weights = [mpf(w) for w, _ in side]
        weights[0] = 1 - sum(weights[1:])
        scaled = [mpf(m) / mpf(curve.std) for _, m in side]
        sides.append(tuple(zip(weights, scaled, strict=True)))
    return tuple(sides)


def ends(pair):
    """(a, b, w) with P - Q = w (N(b) - N(a)), w > 0."""
    net = {}
    for sign, side in zip((1, -1), pair, strict=True):
        for w, m in side:
            net[m] = net.get(m, mpf(0)) + sign * w
    (w, b), (_, a) = sorted(((w, m) for m, w in net.items() if abs(w) > mpf(10) ** -28))[::-1]
    return a, b, w


def long(x):
    return wide(mpmath.nstr(x, 25))


def moment(pair, s, halved=False):
    """E_P e^{s L}, of the part with L > 0 if halved: a trapezoid sum, there a double exponential.

    The loss is computed as log(1 + (P - Q) / Q), without cancellation.
    """
    a, b, w = (long(x) for x in ends(pair))
    p, q = ([(long(w), long(m)) for w, m in side] for side in pair)
    means = [m for _, m in p + q]
    t = 1 + wide(s.real)
    centres = [t * x + (1 - t) * y for x in means for y in means]
    radius = np.sqrt(t * (t - 1) * (max(means) - min(means)) ** 2 + 100)
    low, high = min(centres) - radius, max(centres) + radius

    def integrand(y):
        rest = -y * y / 2 - np.log(2 * np.pi * wide(1)) / 2
        log_p, log_q = (
            np.logaddexp.reduce([np.log(w) + m * y - m * m / 2 for w, m in side]) for side in (p, q)
        )
        rise = w * np.exp(np.minimum(a * y - a * a / 2 - log_q, 11000))
        loss = np.log1p(rise * np.expm1(np.minimum((b - a) * (y - (a + b) / 2), 11000)))
        loss = np.where(np.isfinite(loss), loss, log_p - log_q)
        return np.exp(log_p + s.real * loss + rest + complex_wide(1j) * s.imag * loss)

    @np.errstate(all="ignore")
    def total(mesh):
        if not halved:
            y = low + mesh * np.arange(int((high - low) / mesh) + 2)
            return mesh * integrand(y).sum()
        u = np.arange(-5, 10, mesh / 4, dtype=wide)
        step = np.exp(u - np.exp(-u))
        sign = 1 if b > a else -1
        values = integrand((a + b) / 2 + sign * step) * step * (1 + np.exp(-u))
        return mesh / 4 * values[step < high - low + 100].sum()

    before, mesh = total(wide(1) / 4), wide(1) / 8
    while mesh > 1e-5:
        found, mesh = total(mesh), mesh / 2
        if abs(found - before) <= 1e-16 * abs(total_mass(found)):
            return found
        before = found
    raise ArithmeticError(pair, s)


def total_mass(found):
    """What rounding is measured by: A(tilt) is at least 1, or the sum itself."""
    return max(abs(found), 1.0)


def halves(fold):
    """The pairs of the losses above 0 and, turned, below."""
    return ((exact_pair(fold.up), False), (exact_pair(fold.down), True))


def exact_atom(curve):
    """The mass at loss 0."""
    if isinstance(curve, Mix):
        return sum(wide(w) * exact_atom(part) for w, part in curve.parts)
    if isinstance(curve, Composed):
        return np.prod([exact_atom(part) ** n for part, n in curve.parts])
    if isinstance(curve, Fold):
        left = mpf(1)
        for pair, turned in halves(curve):
            a, b, _ = ends(pair)
            sign = 1 if b > a else -1
            left -= sum(w * truth.phi(sign * (m - (a + b) / 2)) for w, m in pair[turned])
        return long(left)
    return wide(isinstance(curve, Gdp) and curve.mu == 0)


def exact_moment(curve, s):
    """E_P e^{s L}; the half below 0 is that of (Q, P) seen where P > Q."""
    if isinstance(curve, Mix):
        return sum(wide(w) * exact_moment(part, s) for w, part in curve.parts)
    if isinstance(curve, Composed):
        return np.prod([exact_moment(part, s) ** n for part, n in curve.parts])
    if isinstance(curve, Gdp):
        return np.exp(complex_wide(s) * (s + 1) * wide(curve.mu) ** 2 / 2)
    if isinstance(curve, Fold):
        up, down = (pair for pair, _ in halves(curve))
        return exact_atom(curve) + moment(up, s, True) + lower_moment(down, s)
    return moment(exact_pair(curve), s)


def exact_rest(curve, s):
    """E_P e^{s L} less the mass at loss 0; a mixture part by part, so that little cancels."""
    if isinstance(curve, Mix):
        return sum(wide(w) * exact_rest(part, s) for w, part in curve.parts)
    return exact_moment(curve, s) - exact_atom(curve)


def lower_moment(pair, s):
    """The integral of Q^{1+s} P^{-s} where P > Q: that of P at -1 - s."""
    return moment(pair, complex(-1 - s.real, -s.imag), True)


def leaf(rng):
    """A random curve of one round."""
    curve = rng.choice(MAKERS)(log_uniform(rng, 0.15, 30), log_uniform(rng, 1e-12, 0.99))
    return curve.swap() if rng.random() < 0.5 else curve


def some_curve(rng):
    """A random curve, half of them with parts of very unequal weights."""
    if rng.random() < 0.5:
        return leaf(rng)
    w = rng.choice([1e-25, 1e-16, log_uniform(rng, 1e-9, 0.9)])
    mixed = Mix(((1 - w, rng.choice([Gdp(0.0), leaf(rng)])), (w, leaf(rng))))
    return mixed if rng.random() < 0.5 else Composed(((leaf(rng), 3), (mixed, 50)))


def holds(spectrum, k, exact, atom=0):
    """Whether the k-th value is within its error of the truth."""
    found = complex_wide(spectrum.values[k]) - atom
    return abs(found - exact * np.exp(-wide(spectrum.log_size))) <= spectrum.error[k]


def check_moments(rng):
    """Containment at one height of a random line, with the atom and without."""
    curve, tilt = some_curve(rng), log_uniform(rng, 1e-3, 30)
    spread = math.sqrt(max(curve.moments().cumulants(tilt).variance, 1e-24))
    top = log_uniform(rng, 1e-2, 20) / spread
    line = Contour(tilt, top / 4, 5)
    try:
        spectrum, k = curve.moments().spectrum(line), rng.randrange(5)
    except NoMoments:
        return
    exact = exact_moment(curve, complex(tilt, line.heights()[k]))
    assert holds(spectrum, k, exact), (curve, line)
    assert holds(spectrum, k, exact - exact_atom(curve), spectrum.atom), (curve, line)


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("seed", range(16))
def test_moments_on_a_line_hold_the_truth(seed):
    check_moments(random.Random(seed))


def exact_excess(pair, s, low=-16, high=16):
    """E_P (e^{s L} - 1) between two points, a trapezoid sum or on panels, to 25 digits."""
    p, q = pair

    def integrand(y):
        over, under = truth.density(p, y), truth.density(q, y)
        return over * (mpmath.exp(s * mpmath.log(over / under)) - 1)

    if (low, high) == (-16, 16):
        return sum(integrand(mpf(k) / 16) for k in range(-256, 257)) / 16
    return mpmath.quad(integrand, mpmath.linspace(low, high, 17))


def exact_near(curve, s):
    """A(s) - 1, summed over the losses that are not 0."""
    if not isinstance(curve, Fold):
        return exact_excess(exact_pair(curve), s)
    total = mpf(0)
    for pair, turned in halves(curve):
        a, b, _ = ends(pair)
        middle, sign = (a + b) / 2, 1 if b > a else -1
        edges = sorted([middle, middle + 16 * sign])
        total += exact_excess(pair[::-1] if turned else pair, s, *edges)
    return total


@pytest.mark.fast_cells(5)
@pytest.mark.parametrize("tilt", [0.3, 2.0])
@pytest.mark.parametrize("maker", [sampled, replaced, zeroed, folded, unlike])
def test_moments_near_one_are_right_beyond_the_digits_of_one(maker, tilt):
    """Rounds that hardly count: a million of them need A - 1 to 1e-6 of itself, or better."""
    curve, line = maker(0.9, 3e-6), Contour(tilt, 2.0, 3)
    spectrum = curve.moments().spectrum(line)
    for k in (0, 2):
        exact = exact_near(curve, mpmath.mpc(tilt, line.heights()[k]))
        off = abs(mpmath.mpc(complex(spectrum.near.values[k])) - exact)
        assert off <= spectrum.near.error[k] <= 1e-13
        logs = mpmath.mpc(complex(spectrum.logs()[0][k])) + spectrum.log_size
        slack = spectrum.logs()[1][k] + spectrum.near.error[k]
        assert abs(logs - mpmath.log(1 + exact)) <= 1.01 * slack


LABELS = ((0.899, 0.3), (0.1, 0.5), (1e-3, 3.0))
"""(weight, mean): the last one's own moment is far from 1, with its weight it is small."""


def labelled(kind, q):
    """Three labels with a pair each, and the excess of its moments over 1."""
    drawn = Mix(tuple((w, Gdp(mu)) for w, mu in LABELS))
    once = Sampled(drawn, q)
    curve = {"seen": drawn, "sampled": once, "folded": Fold(once, once)}[kind]

    def one(mu, s):
        if kind == "seen":
            return mpmath.expm1(s * (s + 1) * mpf(mu) ** 2 / 2)
        alone = Sampled(Gdp(mu), q)
        return exact_near(Fold(alone, alone) if kind == "folded" else alone, s)

    def excess(s):
        return sum(mpf(w) * one(mu, s) for w, mu in LABELS[1:]) + (
            1 - sum(mpf(w) for w, _ in LABELS[1:])
        ) * one(LABELS[0][1], s)

    return curve, excess


@pytest.mark.parametrize(
    "kind, q, tilt", [("seen", 0.5, 0.1), ("sampled", 0.05, 1.0), ("folded", 0.05, 1.0)]
)
def test_labelled_moments_near_one_are_right_beyond_the_digits_of_one(kind, q, tilt):
    curve, excess = labelled(kind, q)
    line = Contour(tilt, 0.4, 3)
    near = curve.moments().spectrum(line).near
    for k in (2,) if kind == "folded" else (0, 2):
        exact = excess(mpmath.mpc(tilt, line.heights()[k]))
        assert abs(mpmath.mpc(complex(near.values[k])) - exact) <= near.error[k] <= 1e-13


@pytest.mark.parametrize("kind", ["seen", "sampled", "folded"])
def test_many_labelled_rounds_meet_their_lattice(kind):
    """A label far from the others, whose own moments once cost those of all their digits."""
    curve, _ = labelled(kind, 0.002)
    rounds, delta = (30, 1e-9) if kind == "seen" else (3000, 1e-9)
    run = Composed(((curve, rounds),))
    low, high = inversion.epsilon_interval(run, delta, 1e-3)
    below, above = (run.composition(2e-3, side).epsilon(delta) for side in (Side.DOWN, Side.UP))
    assert below <= high and low <= above
    assert high - low < 1e-4


@pytest.mark.parametrize("maker", [sampled, replaced, folded, unlike])
@pytest.mark.parametrize("tilt, q", [(2.0, 0.01), (0.5, 0.2), (12.0, 0.001)])
def test_moments_near_one_fall_from_where_they_are(maker, tilt, q):
    """The bound on all heights above one bounds that one."""
    curve, heights = maker(1.0, q), np.array([1e-3, 0.1, 1.0])
    for fine in (False, True):
        decay = curve.moments().decay(tilt, heights, fine)
        for height, log_rest in zip(heights, decay.log_rest, strict=True):
            rest = exact_rest(curve, complex(tilt, height))
            assert float(np.log(np.abs(rest))) <= log_rest + 1e-13


@pytest.mark.parametrize(
    "curve, rounds, delta, step",
    [
        (sampled(1.311, 3e-5), 27_904, 6.4e-8, 1e-5),
        (replaced(20.48, 6.6e-5), 178, 6.3e-12, 2e-8),
        (folded(0.46, 6e-5), 311_328, 7.7e-14, 4e-4),
    ],
)
def test_rounds_that_hardly_count_meet_their_lattice(curve, rounds, delta, step):
    run = Composed(((curve, rounds),))
    low, high = inversion.epsilon_interval(run, delta, 1e-3)
    below, above = (run.composition(step, side).epsilon(delta) for side in (Side.DOWN, Side.UP))
    assert below <= high and low <= above
    assert high - low < 1e-3


def some_alike(rng):
    """Ten different curves of one shape; some need many more nodes than others."""
    maker, swapped = rng.choice([sampled, replaced, zeroed]), rng.random() < 0.5
    z, q = log_uniform(rng, 0.3, 10), log_uniform(rng, 1e-9, 0.3)
    found = [maker(z * rng.uniform(0.5, 2), q * rng.uniform(0.3, 3)) for _ in range(10)]
    return [curve.swap() if swapped else curve for curve in found]


@pytest.mark.parametrize("seed", range(8))
def test_moments_side_by_side_hold_the_truth_and_meet_those_taken_alone(seed):
    rng = random.Random(seed)
    curves = [*some_alike(rng), Gdp(0.3), Mix(((0.5, Gdp(0.1)), (0.5, Gdp(0.2))))]
    rng.shuffle(curves)
    tilt = log_uniform(rng, 1e-3, 30)
    line = Contour(tilt, log_uniform(rng, 0.03, 30), 7)
    together = side_by_side(curves, line)
    for curve, found in zip(curves, together, strict=True):
        alone = curve.moments().spectrum(line)
        apart = found.values - alone.values * math.exp(alone.log_size - found.log_size)
        assert np.all(np.abs(apart) <= 1.01 * (found.error + alone.error)), curve
        assert np.all(found.error <= 1e-11 + 10 * alone.error), curve
    for k in (0, rng.randrange(7)):
        index = rng.randrange(len(curves))
        exact = exact_moment(curves[index], complex(tilt, line.heights()[k]))
        assert holds(together[index], k, exact), curves[index]


def test_cumulants_side_by_side_are_those_taken_alone():
    curves = some_alike(random.Random(1))
    for tilt in (0.01, 1.0, 20.0):
        for at, found, _ in Bundle([(curve.moments(), 1) for curve in curves]).cumulants(tilt):
            for k, row in zip(at, np.atleast_2d(np.transpose(found)), strict=True):
                assert tuple(row) == pytest.approx(
                    curves[k].moments().cumulants(tilt), rel=1e-4, abs=1e-9
                )


def test_many_different_rounds_meet_their_lattice():
    """Fifty kinds of rounds: inverted side by side, and convolved one after the other."""
    rng = random.Random(5)
    curves = [sampled(rng.uniform(0.8, 2.0), rng.uniform(0.01, 0.05)) for _ in range(50)]
    run = Composed(tuple((curve, 4) for curve in curves))
    low, high = inversion.epsilon_interval(run, 1e-6, 1e-3)
    below, above = (run.composition(2e-3, side).epsilon(1e-6) for side in (Side.DOWN, Side.UP))
    assert below <= high and low <= above
    assert high - low < 1e-6 and above - below < 0.1


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("z, q", [(0.17, 4.8e-7), (0.288, 3.7e-7), (0.162, 2.3e-5)])
def test_moments_where_a_sum_is_nearly_zero(z, q, sign):
    """1 + (a sum near -1) once lost ten digits here."""
    curve = zeroed(z, q) if sign > 0 else zeroed(z, q).swap()
    line = Contour(3.0, 0.4, 2)
    for k in range(2):
        exact = exact_moment(curve, complex(3, line.heights()[k]))
        assert holds(curve.moments().spectrum(line), k, exact)


@pytest.mark.parametrize("q", [1e-25, 1e-9, 0.3])
@pytest.mark.parametrize("m", [0.01, 1.0, 6.0, 30.0])
def test_log_sums_are_as_close_as_they_say(q, m):
    mixture = ((1 - q, -m), (q, m))
    y = np.linspace(-m - 9, m + 9, 60)
    found, off = log_sum(mixture, y), log_sum_error(mixture, y)
    for at, value, error in zip(y, found, off, strict=True):
        at, half = mpf(at), mpf(m) ** 2 / 2
        weighed = (1 - mpf(q)) * mpmath.exp(-m * at - half) + q * mpmath.exp(m * at - half)
        assert abs(mpmath.log(weighed) - mpf(value)) <= error


@pytest.mark.parametrize("count", [12, 32, 192])
def test_quadrature_weights_are_right_to_the_last_bit(count):
    at, weight = legendre(count)
    for power in (0, 2, 2 * count - 2):
        exact = mpf(2) / (power + 1)
        found = mpmath.fsum(mpf(w) * mpf(x) ** power for x, w in zip(at, weight, strict=True))
        assert abs(found / exact - 1) <= 4e-16 * (1 + power)


def check_decay(rng):
    """Bounds on the rest of A at and above a height."""
    curve, tilt = some_curve(rng), log_uniform(rng, 1e-2, 20)
    spread = math.sqrt(max(curve.moments().cumulants(tilt).variance, 1e-24))
    heights = np.geomspace(0.1, 60, 24) / spread
    try:
        decay = curve.moments().decay(tilt, heights)
    except NoMoments:
        return
    if rng.random() < 0.4:
        with contextlib.suppress(NoMoments):
            decay = curve.moments().decay(tilt, heights, True)
    for k in (rng.randrange(12), rng.randrange(18)):
        height = heights[k] * rng.choice([1, rng.uniform(1, 2)])
        rest = abs(exact_rest(curve, complex(tilt, height)))
        assert rest == 0 or np.log(rest) <= decay.log_rest[k], (curve, tilt, height)


@pytest.mark.fast_cells("0", "6", "9")
@pytest.mark.parametrize("seed", range(12))
def test_moments_fall_as_fast_as_they_say(seed):
    check_decay(random.Random(1000 + seed))


def test_envelope_of_the_uniform_law():
    x = np.geomspace(1e-12, 100, 4000)
    envelope = uniform_envelope(x)
    assert np.all(np.diff(envelope) <= 1e-15)
    assert np.all(envelope >= np.abs(np.sinc(x / np.pi)))


# Profiles.


def contains(curve, profile, epsilon, delta):
    """Check delta at an epsilon, and epsilon at a delta by the profile at both ends."""
    low, high = inversion.delta_interval(curve, epsilon)
    assert low <= profile(epsilon) <= high
    low, high = inversion.epsilon_interval(curve, delta, 1e-3)
    assert low == 0.0 or profile(low) >= delta
    assert high == math.inf or profile(high) <= delta
    return low, high


def erased_profile(rounds, q, mu):
    """The binomial closed form; terms beyond 50 standard deviations are left out."""
    mean, reach = rounds * q, 50 * math.sqrt(rounds * q) + 150
    first, last = max(0, int(mean - reach)), min(rounds, int(mean + reach))
    share = mpmath.binomial(rounds, first) * mpf(q) ** first * (1 - mpf(q)) ** (rounds - first)
    shares = []
    for j in range(first, last + 1):
        shares.append((j, share))
        share *= (rounds - j) * mpf(q) / ((j + 1) * (1 - mpf(q)))

    def profile(epsilon):
        return sum(
            w * truth.gaussian_delta(epsilon, mpmath.sqrt(j) * mpf(mu)) for j, w in shares if j
        )

    return profile


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize(
    "rounds, q, mu, delta, width",
    [
        (2, 0.3, 1.0, 1e-5, 1e-9),
        (50, 0.1, 0.7, 1e-30, 1e-8),
        (1000, 0.01, 2.0, 0.5, 1e-8),
        (10**6, 1e-4, 0.5, 1e-10, 1e-5),
        (10**9, 1e-7, 0.05, 1e-15, 1e-3),
        (10**9, 1e-9, 3.0, 1e-3, 1e-2),
        (400, 0.2, 8.0, 1e-8, 1e-6),
    ],
)
def test_visible_draws_hold_the_closed_form(rounds, q, mu, delta, width):
    curve = Composed(((Mix(((1 - q, Gdp(0.0)), (q, Gdp(mu)))), rounds),))
    profile = erased_profile(rounds, q, mu)
    low, high = contains(curve, profile, 1.0, delta)
    assert high - low <= width


@pytest.mark.parametrize("mu", [1e-3, 0.3, 5.0, 80.0])
@pytest.mark.parametrize("delta", [1e-30, 1e-6, 0.9])
def test_gaussians_hold_the_closed_form(mu, delta):
    curve = Composed(((Gdp(mu), 1),))

    def profile(epsilon):
        return truth.gaussian_delta(epsilon, mpf(mu))

    low, high = contains(curve, profile, mu, delta)
    assert high - low <= 1e-8 * (1 + low)


SINGLE = [sampled(1.0, 0.1), replaced(0.8, 0.2), zeroed(1.2, 0.05), zeroed(0.3, 1e-6)]


@pytest.mark.fast_cells(
    "1e-08-Sampled(inner=Gdp(mu=1.0), q=0.1)", "1e-08-GaussianMix(std=1.2, p=((0.95, -1.0), (0"
)
@pytest.mark.parametrize("curve", SINGLE, ids=lambda c: repr(c)[:40])
@pytest.mark.parametrize("tolerance", [pytest.param(1e-3, marks=pytest.mark.slow), 1e-8])
def test_one_round_holds_the_truth(curve, tolerance):
    """One round has no density enough: this is the smoothed branch, too."""
    pair = exact_pair(curve)
    for turned, exact in ((curve, pair), (curve.swap(), pair[::-1])):
        for epsilon in (0.0, 1e-3, 0.1, 1.0):
            try:
                low, high = tail_splitting.delta_interval(
                    Composed(((turned, 1),)), epsilon, tolerance
                )
            except NoMoments:
                continue
            value = truth.mixture_delta(exact, epsilon)
            assert low - mpf(10) ** -26 <= value <= high + mpf(10) ** -26


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("z, q, epsilon", [(1.0, 0.2, 0.3), (2.0, 0.5, 0.1), (0.7, 0.05, 1.0)])
def test_two_rounds_hold_the_truth(z, q, epsilon):
    for maker in (sampled, replaced, zeroed):
        curve = maker(z, q)
        value = truth.HalfLines(exact_pair(curve)).twice(epsilon)
        with contextlib.suppress(NoMoments):
            low, high = inversion.delta_interval(Composed(((curve, 2),)), epsilon)
            assert low * (1 - 1e-8) <= value <= high * (1 + 1e-8)
    right, left = (truth.HalfLines(exact_pair(sampled(z, q))) for _ in range(2))
    value = truth.folded_twice(right, left, epsilon)
    with contextlib.suppress(NoMoments):
        low, high = inversion.delta_interval(Composed(((folded(z, q), 2),)), epsilon)
        assert low * (1 - 1e-8) <= value <= high * (1 + 1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_lattices_and_inversion_intersect(seed):
    rng = random.Random(seed)
    curve = Composed(((leaf(rng), int(log_uniform(rng, 2, 1000))),))
    delta = log_uniform(rng, 1e-20, 0.5)
    try:
        low, high = inversion.epsilon_interval(curve, delta, 1e-3)
    except NoMoments:
        return
    step = max(low, 0.1) / 300
    below, above = (curve.composition(step, side, 1e-7 * delta).epsilon(delta) for side in Side)
    below, above = min(below, above), max(below, above)
    assert below <= high and low <= above


# Extremes: an end may be of no use, but it is an end.

EXTREMES = list(
    itertools.product(
        MAKERS,
        [
            (0.05, 0.9, 10**9),
            (0.05, 1e-9, 2),
            (1e3, 1e-9, 10**9),
            (1e3, 0.9, 2),
            (0.3, 1e-5, 10**6),
        ],
        [1e-30, 0.999],
    )
)


@pytest.mark.fast_cells(20)
@pytest.mark.parametrize("maker, setting, delta", EXTREMES)
def test_extremes_answer_or_decline(maker, setting, delta):
    z, q, rounds = setting
    curve = Composed(((maker(z, q), rounds),))
    try:
        low, high = inversion.epsilon_interval(curve, delta, 1e-3)
        below, above = inversion.delta_interval(curve, 1.0)
    except NoMoments:
        return
    assert 0.0 <= low <= high
    assert 0.0 <= below <= above <= 1.0


def test_what_is_not_a_number_is_no_end():
    """A search that never ends says infinity, not 0."""
    assert inversion._first(lambda x: False, math.nan, math.nan) is None
    assert inversion._first(lambda x: False, 1.0, 1.0) is None
    assert inversion._first(lambda x: False, 1.0, -0.1) is None
