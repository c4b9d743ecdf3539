"""What the largest round of an epoch shows of a unit, and the cells that it is read in."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import fedprivacy as fp
from fedprivacy.loss import Allocated, LargestRound, MostOf, Side, compose
from fedprivacy.loss.strategies.queries import EpsilonAt
from fedprivacy.loss.strategies.search import deltas, interval

EPSILONS = np.array([-1.5, 0.0, 0.4, 1.5, 4.0])
CURVES = [
    LargestRound(2.0, 1.0, 1000),
    LargestRound(2.0, 0.0, 9, idle=0.1),
    LargestRound(0.4, 0.2, 3),
    LargestRound(8.0, 4.0, 40),
    LargestRound(1.5, 0.0, 1, idle=0.5),
]


def profile(curve, side):
    tails = curve.tails(EPSILONS, side)
    return np.exp(tails.p_above) - np.exp(EPSILONS + tails.q_above)


def density(x, mean, idle, rounds):
    """Return the density of the largest of independent normal outcomes at x."""
    one, below = norm.pdf(x - mean), norm.cdf(x - mean)
    one, below = (1 - idle) * one + idle * norm.pdf(x), (1 - idle) * below + idle * norm.cdf(x)
    others = norm.cdf(x) ** (rounds - 1)
    if rounds == 1:
        return one
    return one * others + below * (rounds - 1) * norm.pdf(x) * norm.cdf(x) ** (rounds - 2)


def quadrature(curve, epsilon):
    def gain(x):
        p = density(x, curve.shown, curve.idle, curve.rounds)
        q = density(x, curve.hidden, 0.0, curve.rounds)
        p, q = (q, p) if curve.swapped else (p, q)
        return max(p - np.exp(epsilon) * q, 0.0)

    return quad(gain, -9.0, curve.shown + 10.0, limit=2000, epsabs=1e-10)[0]


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("curve", CURVES, ids=str)
@pytest.mark.parametrize("swapped", [False, True])
def test_cells_show_little_less_than_the_largest_round(curve, swapped):
    turned = curve.swap() if swapped else curve
    exact = np.array([quadrature(turned, x) for x in EPSILONS])
    shown = profile(turned, Side.DOWN)
    assert (shown <= exact + 1e-8).all()
    assert shown == pytest.approx(exact, rel=3e-3, abs=1e-4)
    assert (profile(turned, Side.UP) >= shown).all()
    assert turned.swap().swap() == turned


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize(
    ("shown", "hidden", "rounds", "idle"),
    [(60.0, 30.0, 10**6, 0.0), (60.0, 0.0, 1, 0.5), (2.0, 0.0, 999, 1e-3), (4e-6, 2e-6, 2**40, 0)],
)
def test_masses_are_right_to_their_errors(monkeypatch, shown, hidden, rounds, idle):
    """Against 340 digits, in cells from the first that has mass to the last."""
    monkeypatch.setattr(mpmath.mp, "dps", 340)
    curve = LargestRound(shown, hidden, rounds, idle)
    count = int((shown + 50.0) * 40)
    edges = np.linspace(-12.0, shown + 38.0, count)
    for law, mean, rest in zip(curve.laws, (shown, hidden), (idle, 0.0), strict=True):
        assert law.mass.sum() == pytest.approx(1.0, abs=1e-11)
        for at in range(3, count - 1, count // 9):
            start, end = (
                ((1 - mpmath.mpf(rest)) * mpmath.ncdf(c - mpmath.mpf(mean)) + rest * mpmath.ncdf(c))
                * mpmath.exp((rounds - 1) * mpmath.log(mpmath.ncdf(c)))
                for c in map(mpmath.mpf, (edges[at], edges[at + 1]))
            )
            true = float(end - start)
            assert abs(float(law.mass[at + 1]) - true) <= law.error[at + 1] + 1e-307
            assert law.error[at + 1] <= 1e-8 * true + 1e-11 * rest + 1e-290


def test_what_the_largest_round_shows_is_attained_by_simulation():
    """200,000 epochs each way of T = 50 at z = 1; the allowance is five standard deviations."""
    generator, count, rounds = np.random.default_rng(11), 200_000, 50
    curve = LargestRound(2.0, 1.0, rounds)
    others = generator.standard_normal((count, rounds - 1)).max(axis=1)
    one = generator.standard_normal(count)
    p, q = (np.maximum(others, one + mean) for mean in (2.0, 1.0))
    for threshold in (3.0, 4.0, 5.0):
        shares = [float((x > threshold).mean()) for x in (p, q)]
        for epsilon in (0.1, 0.5, 1.0):
            gain = shares[0] - np.exp(epsilon) * shares[1]
            tails = curve.tails(np.array([epsilon]))
            best = float(np.exp(tails.p_above[0]) - np.exp(epsilon + tails.q_above[0]))
            assert gain <= best + 5 * (1 + np.exp(epsilon)) * np.sqrt(shares[0] / count)


def from_below(run, delta):
    """Return the interval that an audit uses; ``fp.epsilon`` refuses it."""
    loss = run.privacy_loss("add_remove")
    return fp.accountants.PldAccountant().compose(loss).epsilon(delta)


def test_questions_refuse_a_loss_without_an_upper_end():
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Shuffled(10))
    told = "no theorem bounds it from above.*these are covered: zero_out, replace_one; fp.audit"
    ask = {"adjacency": "add_remove"}
    for refused in (
        lambda: fp.epsilon(run * 3, delta=1e-5, **ask),
        lambda: fp.epsilon(run + fp.Gaussian(noise_multiplier=2.0), delta=1e-5, **ask),
        lambda: fp.epsilon(run, delta=1e-5, observer="final", **ask),
        lambda: fp.delta(run, epsilon=1.0, **ask),
        lambda: fp.attack_risk(run, fpr=0.01, **ask),
        lambda: fp.account(run, delta=1e-5, **ask),
    ):
        with pytest.raises(fp.UnsupportedCombination, match=told):
            refused()
    # One round holds all units; with a loss that really is infinite the answer is an answer.
    assert fp.epsilon(fp.Gaussian(noise_multiplier=1.0).sampled(fp.Shuffled(1)), delta=1e-5, **ask)


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize(
    ("noise", "rounds", "delta", "epochs", "zeroed", "absent"),
    [
        (1.0, 1000, 1e-5, 1, 2.881, 3.132),
        (1.0, 1000, 1e-5, 5, 3.812, 4.171),
        (0.5, 10_000, 1e-5, 1, 9.990, 15.16),
        (0.4, 10_000, 1e-5, 1, 13.206, 23.89),
        (0.8, 1000, 1e-6, 1, 6.044, 7.54),
        (1.1, 468, 1e-5, 5, 3.406, 3.803),
        (1.1, 240, 1e-5, 60, 10.69, 12.58),
        (5.0, 10, 1e-5, 100, 2.617, 3.97),
    ],
)
def test_ends_that_others_published(noise, rounds, delta, epochs, zeroed, absent):
    run = fp.Gaussian(noise_multiplier=noise).sampled(fp.Shuffled(rounds)) * epochs
    found = fp.epsilon(run, delta=delta, adjacency="zero_out")
    assert zeroed <= found.lower < found.upper
    above = from_below(run, delta)
    assert above.lower >= absent and above.upper == np.inf
    assert f"epsilon at least {above.ends(6)[0]}" in str(above)


def test_the_largest_of_several_answers_counts():
    pair = (LargestRound(0.4, 0.2, 10), Allocated(0.2, 10))
    for count in (1, 100):
        run = compose([(MostOf(pair), count)])
        alone = [interval(EpsilonAt.of(compose([(one, count)]), 1e-5, 1e-3, 0.0)) for one in pair]
        found = interval(EpsilonAt.of(run, 1e-5, 1e-3, 0.0))
        assert found.low == pytest.approx(max(one.low for one in alone), abs=2e-3)
    at = np.array([0.1, 0.5])
    for x, found in deltas(MostOf(pair), at, 0.01).items():
        lows = [deltas(one, at, 0.01).get(x) for one in pair]
        assert found.low == max(one.low for one in lows)


@pytest.mark.parametrize(
    ("shown", "hidden", "rounds", "idle"),
    [
        (1.0, 1.0, 3, 0.0),
        (61.0, 0.0, 3, 0.0),
        (2.0, -1.0, 3, 0.0),
        (2.0, 1.0, 0, 0.0),
        (2, 1, 3, 1),
    ],
)
def test_values_out_of_range_are_refused(shown, hidden, rounds, idle):
    with pytest.raises(ValueError, match="LargestRound"):
        LargestRound(shown, hidden, rounds, idle)


def test_extreme_settings_have_ordered_ends():
    for noise in (1e-300, 0.05, 50.0, 1e300):
        for rounds in (1, 2, 10**6):
            run = fp.Gaussian(noise_multiplier=noise).sampled(fp.Shuffled(rounds))
            for delta in (0.0, 1e-300, 0.5):
                zeroed = fp.epsilon(run, delta=delta, adjacency="zero_out")
                for found in (zeroed, from_below(run, delta)):
                    assert 0.0 <= found.lower <= found.upper
