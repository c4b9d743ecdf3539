"""Draws inside draws: profiles by brute force and by quadrature, and the pair of their bounds."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.loss import Fold, InnerDraws, LeastOf, Side, compose
from fedprivacy.loss.curves.between import readings
from fedprivacy.loss.curves.inner_draws import RARE, bounds
from fedprivacy.loss.strategies import direct
from fedprivacy.loss.strategies.queries import EpsilonAt
from fedprivacy.loss.strategies.search import interval

EPSILONS = np.array([0.0, 0.05, 0.3, 1.0, 2.0, 4.0])


def law(draws, p):
    return fp.WithReplacement(draws, probability=p).law(Side.UP)


def curve(draws, p, z, replaced=False):
    return InnerDraws(z, law(draws, p), replaced)


def profile(one):
    """Return the profile of a pair at EPSILONS, in its own order."""
    return direct.delta(one, EPSILONS, Side.UP)


def outcomes(draws, unit, others, drawn):
    """Return {(mean): chance} of a round: every sequence of draws, listed."""
    values, found = [unit, *others], {}
    for chosen in itertools.product(range(len(values)), repeat=draws):
        mean = sum(values[k] for k in chosen)
        chance = math.prod(drawn if k == 0 else (1 - drawn) / len(others) for k in chosen)
        found[mean] = found.get(mean, 0.0) + chance
    return found


def hockey(one, other, z):
    """Return the profile of two mixtures at EPSILONS by the trapezoid rule."""
    y = np.linspace(-14.0 * z - 8.0, 14.0 * z + 8.0, 20_001)
    step = (y[1] - y[0]) / (z * math.sqrt(2 * math.pi))
    p, q = (
        step * sum(w * np.exp(-0.5 * ((y - m) / z) ** 2) for m, w in law.items())
        for law in (one, other)
    )
    return np.array([np.maximum(p - math.exp(x) * q, 0.0).sum() for x in EPSILONS])


CLIPPED = (-1.0, -0.4, 0.0, 1.0)


@pytest.mark.parametrize(
    "draws, z, q", [(2, 0.7, 0.5), (3, 1.0, 0.34), (3, 2.0, 0.1), (4, 1.5, 0.3)]
)
def test_no_data_set_of_three_units_loses_more(draws, z, q):
    """Units send any of four numbers; a zeroed unit sends 0, in both orders of the worlds."""
    zeroed, replaced = curve(draws, q, z), curve(draws, q, z, replaced=True)
    most = {"there": profile(zeroed), "back": profile(zeroed.swap()), "swap": profile(replaced)}
    worst = {name: np.zeros(len(EPSILONS)) for name in most}
    for others in itertools.combinations_with_replacement(CLIPPED, 2):
        rounds = {unit: outcomes(draws, unit, others, q) for unit in CLIPPED}
        for unit, other in itertools.permutations(CLIPPED, 2):
            name = "there" if other == 0.0 else "back" if unit == 0.0 else "swap"
            found = hockey(rounds[unit], rounds[other], z)
            worst[name] = np.maximum(worst[name], found)
            worst["swap"] = np.maximum(worst["swap"], found)
    for name, bound in most.items():
        assert (worst[name] <= bound * (1 + 1e-6) + 1e-9).all()
        # The bound is near: some of these data sets lose nearly as much.
        assert worst[name][2] >= 0.8 * bound[2]


@pytest.mark.parametrize("there, back", [(2.0, 1.0), (1.0, 0.0), (2.0, 0.0)])
@pytest.mark.parametrize("draws, p, z", [(10, 0.01, 1.0), (3, 0.3, 1.5), (40, 0.05, 3.0)])
def test_bounds_are_those_of_explicit_weights(there, back, draws, p, z):
    """The sum over numbers, integrated with weights that a greedy flow finds, is the bound."""
    times = law(draws, p)
    times = [(w, k) for w, k in times if w > 1e-12]
    found = bounds(z, tuple(times), there, back)
    w, k = map(np.array, zip(*times, strict=True))
    for at in range(20, len(found.a), len(found.a) // 7):
        a, delta = found.a[at], found.delta[at]
        if delta < 1e-6:
            break
        value = with_weights(w, there * k / z, back * k / z, a)
        assert delta * (1 - 1e-3) <= value <= 1.05 * delta


def with_weights(w, d, e, a):
    """Return the bound at a for the best weights of a fine search over one shared threshold."""
    y = np.linspace(-10.0, d[-1] + 12.0, 2001)
    step = y[1] - y[0]
    density = [np.exp(-0.5 * (y - m) ** 2) / math.sqrt(2 * math.pi) for m in d]
    other = [np.exp(-0.5 * (y - m) ** 2) / math.sqrt(2 * math.pi) for m in e]
    best = 1.0
    for t in np.linspace((d[1] + e[1]) / 2, d[-1] + 6.0, 600):
        left, rows = w * a, []
        for row in range(len(w)):
            # Columns nearest to the row first; the demand makes the ratio a at t.
            need, taken = w[row] * math.exp(-0.5 * (t - d[row]) ** 2), np.zeros_like(y)
            for column in range(row, -1, -1):
                size = math.exp(-0.5 * (t - e[column]) ** 2)
                share = min(left[column], need / size) if size > 0.0 else 0.0
                left[column] -= share
                need -= share * size
                taken = taken + share * other[column]
            rows.append(w[row] * density[row] - taken)
        # The rest of a column goes to its own row.
        rows = [one - x * y for one, x, y in zip(rows, left, other, strict=True)]
        best = min(best, sum(np.maximum(one, 0.0).sum() for one in rows) * step)
    return best


@pytest.mark.parametrize("draws, p, z", [(10, 0.01, 1.0), (5, 0.4, 2.0), (10_000, 1e-3, 30.0)])
def test_the_pair_is_convex_and_near_the_bounds(draws, p, z):
    one = curve(draws, p, z)
    for pair, (there, back) in ((one, (2.0, 1.0)), (one.swap(), (1.0, 0.0))):
        found = bounds(z, one.times, there, back)
        some = (found.delta > 1e-12) & (np.arange(len(found.a)) % 7 == 3)
        a = found.a[some]
        shown = direct.delta(pair, np.log(a), Side.UP)
        assert (shown <= found.delta[some] * (1 + 1e-9) + 1e-15).all()
        finer = np.interp(a, found.a, found.delta)
        assert shown == pytest.approx(finer, rel=2e-2)
    laws = one.pair.law(Side.UP)
    assert laws.p.sum() + laws.p_infinite == pytest.approx(1.0, abs=1e-12)
    assert laws.q.sum() + laws.q_infinite == pytest.approx(1.0, abs=1e-12)


def test_where_all_share_a_threshold_one_mixture_is_the_profile():
    """A replaced unit's best test of the round against the one without it is a half line."""
    times, z = law(10, 0.01), 1.0
    found = bounds(z, times, 2.0, 0.0)
    at = np.searchsorted(found.a, 50.0)
    a, w = found.a[at], np.array([w for w, _ in times])
    d = 2.0 * np.array([k for _, k in times]) / z
    y = np.linspace(0.0, 12.0, 4001)
    tests = (w * ndtr(d - y[:, None])).sum(axis=1) - a * ndtr(-y)
    assert found.delta[at] == pytest.approx(tests.max(), rel=1e-4)


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("draws, p, z", [(10, 0.01, 1.0), (3, 0.3, 1.0), (100, 0.1, 5.0)])
def test_it_is_below_the_older_pairs(adjacency, draws, p, z):
    scheme = fp.WithReplacement(draws, probability=p)
    known = fp.Gaussian(noise_multiplier=z).sampled(scheme).privacy_loss(adjacency).curve
    for one, older in ((known.usual, known), (known.usual.swap(), known.swap())):
        for other in older.curves:
            most = direct.delta(other, EPSILONS, Side.UP)
            assert (profile(one) <= most * (1 + 1e-3) + 1e-12).all()


def test_fewer_draws_and_more_noise_lose_less():
    more = curve(10, 0.05, 1.0)
    for less in (curve(10, 0.03, 1.0), curve(10, 0.05, 1.3), curve(6, 0.05, 1.0)):
        for one, other in ((less, more), (less.swap(), more.swap())):
            assert (profile(one) < profile(other)).all()


@pytest.mark.parametrize("delta, older", [(1e-5, False), (1e-30, True)])
def test_tiny_deltas_are_left_to_the_older_pairs(delta, older):
    step = fp.Gaussian(noise_multiplier=2.0).sampled(fp.WithReplacement(40, probability=1e-3))
    run = compose([(step.privacy_loss("zero_out").curve, 2)])
    ends = [interval(EpsilonAt.of(one, delta, 1e-3, 0.0)).high for one in readings(run)]
    found = interval(EpsilonAt.of(run, delta, 1e-3, 0.0)).high
    assert found == pytest.approx(min(ends) if older else ends[-1], abs=2e-3)
    assert (found < ends[-1]) == older


@pytest.mark.parametrize(
    "std, times",
    [
        (0.3, law(10, 0.01)),
        (1.0, law(1, 0.01)),
        (1.0, ((0.5, 0), (0.3, 2), (0.2, 3))),
        (1.0, ((0.9, 0), (0.05, 1), (0.05, 3))),
    ],
)
def test_other_numbers_are_refused(std, times):
    assert not InnerDraws.serves(std, times)
    with pytest.raises(ValueError, match="InnerDraws"):
        InnerDraws(std, times, False)


def test_missing_numbers_count_as_lost():
    times = law(400, 1e-4)
    assert times[-1] == (RARE, 400) and InnerDraws.serves(1.0, times)
    one = InnerDraws(1.0, times, False)
    assert RARE <= one.pair.infinite < 1e-28
    known = fp.Gaussian(noise_multiplier=1.0).sampled(fp.WithReplacement(400, probability=1e-4))
    curves = known.privacy_loss("zero_out").curve
    assert isinstance(curves, LeastOf) and isinstance(curves.first, Fold) and curves.usual == one


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize(("z", "draws", "n", "rounds"), [(5.0, 100, 1000, 1000), (1.0, 3, 10, 300)])
def test_the_upper_end_is_that_of_the_pair(adjacency, z, draws, n, rounds, monkeypatch):
    """Four times as many thresholds, whose error is second order, lower it by under .02 %."""
    found = []
    for step in (0.02, 0.01, 0.005):
        monkeypatch.setattr("fedprivacy.loss.curves.inner_draws._STEP", step)
        # Another noise, so that no remembered pair answers.
        noise = z * (1.0 + 1e-9 * step)
        run = fp.Gaussian(noise_multiplier=noise).sampled(fp.WithReplacement(draws, n)) * rounds
        found.append(fp.epsilon(run, delta=1e-5, adjacency=adjacency).upper)
    coarse, fine, finest = found
    assert 0.0 < fine - finest < 0.3 * (coarse - fine) < 0.3e-4 * coarse
