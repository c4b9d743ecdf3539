"""What a unit shows that is drawn several times while all others send its opposite."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import binom, norm

import fedprivacy as fp
from fedprivacy.loss import GaussianMix, Opposed, Side
from fedprivacy.loss.curves import opposed
from fedprivacy.loss.curves.opposed import masses

EPSILONS = np.array([-1.5, 0.0, 0.4, 1.5, 4.0])


def law(draws, chance):
    return tuple((float(binom.pmf(s, draws, chance)), s) for s in range(draws + 1))


def profile(curve, side):
    tails = curve.tails(EPSILONS, side)
    return np.exp(tails.p_above) - np.exp(EPSILONS + tails.q_above)


def quadrature(times, std, epsilon, swapped):
    """Return H at e^epsilon by adaptive quadrature over one outcome."""
    means = [[moves * s / std for _, s in times] for moves in (2.0, 1.0)]
    p, q = means[::-1] if swapped else means

    def gain(y):
        one, two = (
            sum(w * norm.pdf(y - m) for (w, _), m in zip(times, at, strict=True)) for at in (p, q)
        )
        return max(one - np.exp(epsilon) * two, 0.0)

    top = 2.0 * len(times) / std
    return quad(gain, -10.0, top + 10.0, limit=800, epsabs=1e-9)[0]


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("draws", "chance", "std"), [(3, 0.2, 0.5), (8, 0.05, 2.0), (2, 0.5, 1.0)])
def test_cells_show_little_less_than_everything(draws, chance, std, swapped):
    times = law(draws, chance)
    curve = Opposed(std, times, swapped)
    exact = [quadrature(times, std, x, swapped) for x in EPSILONS]
    shown = profile(curve, Side.DOWN)
    assert (shown <= np.array(exact) + 1e-8).all()
    assert shown == pytest.approx(exact, rel=2e-3, abs=1e-4)
    assert (profile(curve, Side.UP) >= shown).all()


def test_masses_of_cells_add_up():
    edges = np.concatenate([[-np.inf], np.linspace(-9.0, 30.0, 500), [np.inf]])
    times = law(5, 0.3)
    found = masses(edges, times, 2.0)
    assert found.sum() == pytest.approx(1.0, abs=1e-14)
    right = sum(w * ndtr(2.0 * s - edges[400]) for w, s in times)
    assert found[400:].sum() == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize(
    ("noise", "rounds", "draws", "least"),
    [(2.0, 20, 100, 3.83), (1.0, 100, 10, 6.92), (5.0, 1000, 100, 2.985)],
)
def test_opposed_data_lose_far_more_than_absent_data(noise, rounds, draws, least):
    """Of a population of 1,000; the numbers are a discrete Fourier transform's at mesh 2e-4."""
    scheme = fp.WithReplacement(draws, population=1000)
    run = fp.Gaussian(noise_multiplier=noise).sampled(scheme) * rounds
    found = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    assert least <= found.lower <= least + 0.01
    assert found.lower < found.upper


def test_a_law_that_is_not_the_true_one_is_not_used():
    """Two atoms represent a law this long, and a law that starts late has one moved to 0."""
    for scheme in (
        fp.WithReplacement(10**9, probability=0.5),
        fp.WithReplacement(600, probability=0.5),
    ):
        witness = fp.Gaussian(noise_multiplier=1e5).sampled(scheme).privacy_loss("zero_out").witness
        assert not isinstance(witness.curve, Opposed)
    assert not Opposed.serves(1.0, ((1e-30, 0), (1.0, 7)))
    # Where means are farther out than doubles can place, no lower end is shown.
    assert Opposed.serves(1e-8, law(9, 0.5)) and not Opposed.serves(1e-9, law(9, 0.5))


def test_cells_of_means_far_out_are_within_their_rounding():
    """Means 1e3 to 3e5 stds out: a place is off by 1e-11 of a std, and a tail by 38 times that."""
    curve = Opposed(1e-3, tuple(zip([1 / 143] * 143, range(143), strict=True)))
    low, high = (curve._cells(side) for side in (Side.DOWN, Side.UP))
    assert np.exp(low.loss).size and low.p.sum() < 1.0 < high.p.sum() + high.p_infinite
    most, count = 2.0 * curve.support().cover, opposed._MOST_CELLS
    inner = np.linspace(-12.0, most + 12.0, count)
    shown = masses(np.concatenate([[-np.inf], inner, [np.inf]]), curve.times, 2e3)
    off = opposed._ROUNDED + opposed._PLACED * curve.support().cover
    with mpmath.workdps(60):
        for at in np.flatnonzero(shown[1:-1] > 1e-280)[:60:3]:
            ends = [mpmath.mpf(float(end)) for end in inner[at : at + 2]]
            exact = mpmath.mpf(0)
            for weight, s in curve.times:
                near, far = ((end - 2000 * s) / mpmath.sqrt(2) for end in ends)
                if near > 0:
                    exact += weight * (mpmath.erfc(near) - mpmath.erfc(far)) / 2
                else:
                    exact += weight * (mpmath.erfc(-far) - mpmath.erfc(-near)) / 2
            assert abs(shown[1 + at] / exact - 1) < off


def test_the_other_order_has_a_largest_loss():
    """Q's means lie lower: its ratio to P falls to 0 above, and tends to 1 below."""
    curve = Opposed(1.0, law(3, 0.5))
    assert curve.support().largest.low == np.inf
    assert curve.swap().support().largest.low == 0.0
    assert Opposed(1.0, law(2, 0.5)).plain == GaussianMix(1.0, law(2, 0.5), ((1.0, 0.0),))
