"""Composed randomised responses and one curve's epsilon against mpmath, by containment."""

import math

import mpmath
import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants.advanced import basic, kairouz_homogeneous
from fedprivacy.accountants.points import Point
from fedprivacy.accountants.responses import Responses
from fedprivacy.loss import Gdp, Side
from fedprivacy.loss.strategies import direct

ZERO = {"adjacency": "zero_out"}
DIGITS = 60


def truth(epsilon, times, at, small=25):
    """Return delta(at) of ``times`` responses of ``epsilon``, to ``small`` digits."""
    e = mpmath.mpf(epsilon)
    lie = 1 / (1 + mpmath.exp(e))
    crossing = (times - mpmath.mpf(at) / e) / 2
    lies = int(mpmath.floor(crossing))
    if lies < 0:
        return mpmath.mpf(0)
    term = mpmath.binomial(times, lies) * lie**lies * (1 - lie) ** (times - lies)
    total = mpmath.mpf(0)
    while lies >= 0:
        total += term * (1 - mpmath.exp(-2 * e * (crossing - lies)))
        fall = mpmath.mpf(lies) / (times - lies + 1) * mpmath.exp(e)
        term, lies = term * fall, lies - 1
        if fall < 1 and term / (1 - fall) < total * mpmath.mpf(10) ** -small:
            break
    return total


def places(epsilon, times):
    """Return epsilons around the mean loss, in both tails, and close to the largest loss."""
    lie = 1 / (1 + math.exp(epsilon))
    most, deviation = times * epsilon, 2 * epsilon * math.sqrt(times * lie * (1 - lie))
    mean = most * math.tanh(epsilon / 2)
    found = [mean + z * deviation for z in (-2, -0.5, 0, 1, 3, 6, 15)]
    found += [0.0, 0.5 * most, 0.999 * most, (1 - 1e-9) * most, most - 1.5 * epsilon]
    return np.array([at for at in found if 0 <= at < most])


@pytest.mark.fast_cells(40)
@pytest.mark.parametrize("times", [1, 2, 3, 10, 100, 1000, 5000])
@pytest.mark.parametrize(
    "epsilon", [1e-6, 1e-3, 0.1, 1, 5, 18, 20, 26, 30, 35, 36.3, 36.7, 40, 300]
)
def test_delta_is_never_below_the_truth(epsilon, times):
    at = places(epsilon, times)
    found = Responses(epsilon, times).delta(at)
    with mpmath.workdps(DIGITS):
        for place, upper in zip(at, found, strict=True):
            exact = truth(epsilon, times, place)
            assert upper >= min(exact, 1 - mpmath.mpf(10) ** -50)
            if times * epsilon - place > 1e-6 * times * epsilon and exact > 1e-290:
                assert upper <= exact * (1 + mpmath.mpf("1e-3"))


@pytest.mark.parametrize(("epsilon", "times"), [(20, 2), (26, 10), (30, 10), (35, 10), (36.3, 10)])
def test_digits_are_not_lost_where_lies_are_rare(epsilon, times):
    """1 - lie has few correct digits of the lie; the result was up to 2.6 too small."""
    found = kairouz_homogeneous(Point(float(epsilon), 0.0, times), 1e-5)
    with mpmath.workdps(DIGITS):
        assert truth(epsilon, times, found) <= 1e-5
        assert truth(epsilon, times, found * (1 - 1e-6)) > 1e-5
    run = fp.ApproximateDp(guarantees=((epsilon, 0.0),), **ZERO) * times
    bound = fp.epsilon(run, delta=1e-5, accountant="advanced", **ZERO)
    with mpmath.workdps(DIGITS):
        assert truth(epsilon, times, bound.upper) <= 1e-5


def test_two_laplace_rounds_are_not_undersold():
    run = fp.Laplace(noise_multiplier=1 / 36.3) * 2
    ask = {"delta": 1e-5, "adjacency": "add_remove"}
    assert fp.epsilon(run, accountant="advanced", **ask).upper >= fp.epsilon(run, **ask).lower
    assert fp.epsilon(run, accountant="advanced", **ask).upper >= 72.5997


SUMMED = {2**31 - 1, 3 * 10**9}
# Where the exact sum is taken, too, it takes seconds: at one of them in every run of the tests.
FAR = [
    pytest.param(times, total, marks=[pytest.mark.slow] * (total == 1.0 and times in SUMMED))
    for total in (1.0, 40.0)
    for times in (2**31 - 1, 2**31, 3 * 10**9, 10**15)
]


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize(("times", "total"), FAR)
def test_numbers_of_rounds_beyond_every_library_function(times, total):
    """For tiny responses the loss is normal: the composed curve is that of a Gaussian pair."""
    epsilon = total / math.sqrt(times)
    found = kairouz_homogeneous(Point(epsilon, 0.0, times), 1e-5)
    normal = direct.epsilon(Gdp(total), 1e-5, Side.DOWN)
    assert normal * (1 - 1e-4) <= found <= normal * (1 + 1e-4)
    if times < 10**10 and total == 1.0:
        with mpmath.workdps(30):
            exact = truth(epsilon, times, found, small=10)
            assert exact * (1 - mpmath.mpf(10) ** -9) <= 1e-5 <= exact * (1 + mpmath.mpf("1e-3"))


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("times", [2**31 - 1, 2**31, 3 * 10**9, 10**15, 10**17])
@pytest.mark.parametrize("name", ["rdp", "advanced"])
def test_nothing_is_never_certified(times, name):
    """Many rounds once came to NaN, and NaN to epsilon = 0."""
    loss = (fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.01))).privacy_loss("zero_out")
    account = fp.accountants.ACCOUNTANTS[name]().compose(loss, times)
    assert account.epsilon(1e-5).upper > 1e4
    assert account.delta(1.0).upper == 1.0


@pytest.mark.parametrize(("epsilon", "times"), [(1e-3, 10**6), (0.5, 40), (3.0, 3)])
def test_what_is_known_only_shortens_the_search(epsilon, times):
    point = Point(epsilon, 1e-9, times)
    alone = kairouz_homogeneous(point, 1e-5 + times * 2e-9)
    for known in (1.0001 * alone, 3.0 * alone, 10.0 * basic([point])):
        found = kairouz_homogeneous(point, 1e-5 + times * 2e-9, known)
        assert found == pytest.approx(alone, rel=1e-6) and found <= known
    assert kairouz_homogeneous(point, 1e-5 + times * 2e-9, 0.999 * alone) == math.inf


def test_out_of_reach_is_infinite():
    assert kairouz_homogeneous(Point(301.0, 0.0, 2), 1e-5) == math.inf
    assert kairouz_homogeneous(Point(1.0, 0.0, 2**53 + 1), 1e-5) == math.inf
    assert kairouz_homogeneous(Point(1.0, 1e-5, 2), 1e-5) == math.inf
    assert kairouz_homogeneous(Point(0.0, 1e-7, 2), 1e-5) == 0.0
    assert basic([Point(math.nan, 0.0, 2)]) == math.inf


NOISES = [10.0, 0.5, 1e-3, 1 / 4095, 1 / 4100, 1 / 4300, 1 / 4470, 1 / 5000, 1e-8, 1e-20, 1e-50]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.5, 1 - 1e-12])
def test_one_gaussian_of_any_size(noise, delta):
    """Between 2^23 and 1e7 the lower end was 1e7 and the upper end infinite."""
    mu = 1 / noise
    found = [direct.epsilon(Gdp(mu), delta, side) for side in (Side.DOWN, Side.UP)]

    def exact(epsilon):
        size, at = mpmath.mpf(mu), mpmath.mpf(epsilon)
        above = [
            mpmath.erfc((at / size - sign * size / 2) / mpmath.sqrt(2)) / 2 for sign in (1, -1)
        ]
        return above[0] - mpmath.exp(at) * above[1]

    with mpmath.workdps(DIGITS):
        assert found[0] == 0.0 or exact(found[0]) >= delta
        assert exact(found[1]) <= delta
    assert math.isfinite(found[1])
    if 1e-8 <= noise < 1.0 and delta <= 0.5:
        assert found[1] - found[0] <= 1e-10 * found[1]
    rdp = fp.epsilon(
        fp.Gaussian(noise_multiplier=noise), delta=delta, accountant="rdp", adjacency="add_remove"
    )
    assert rdp.upper >= found[0]


def test_what_only_one_data_set_shows_is_not_inflated():
    """Beyond the largest finite loss Q has no mass, and P's is known as well as before."""
    stated = fp.ApproximateDp(guarantees=((1.0, 1e-6),), **ZERO)
    for name in ("pld", "advanced"):
        assert fp.epsilon(stated, delta=1.001e-6, accountant=name, **ZERO).upper <= 1.0 + 1e-14
    renyi = fp.RenyiDp(divergences=((2.0, 0.1), (32.0, 1.6)), **ZERO)
    assert fp.epsilon(renyi, delta=1e-5, **ZERO).upper < 3.0
    assert direct.epsilon(renyi.privacy_loss("zero_out").curve, 1e-5, Side.UP) < 3.0
