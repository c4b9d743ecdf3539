"""The pair of C u against -C u in one of some rounds, from above."""

import math

import numpy as np
import pytest

from fedprivacy.loss import Allocated, Exchanged, Side
from fedprivacy.loss.curves import exchanged

EPSILONS = np.array([0.0, 0.3, 1.0, 2.5])


def profile(curve):
    tails = curve.tails(EPSILONS)
    return np.exp(tails.p_above) - np.exp(EPSILONS + tails.q_above)


def exact(mu, rounds, epsilon):
    """Return the profile of two or three rounds by the midpoint rule."""
    axis = np.linspace(-7.0, 7.0 + mu, {2: 1501, 3: 161}[rounds])
    weight = np.exp(-0.5 * axis**2) * (axis[1] - axis[0]) / math.sqrt(2.0 * math.pi)
    number = (np.exp(mu * axis) - math.exp(epsilon) * np.exp(-mu * axis)) * math.exp(-0.5 * mu**2)
    total, mass = number, weight
    for _ in range(rounds - 1):
        total = (total[:, None] + number).ravel()
        mass = np.multiply.outer(mass, weight).ravel()
    return float(mass @ np.maximum(total, 0.0)) / rounds


@pytest.mark.parametrize(
    ("mu", "rounds", "near"), [(0.3, 2, 1.04), (1.0, 2, 1.04), (2.0, 2, 1.2), (0.7, 3, 1.04)]
)
def test_the_profile_lies_little_above_the_exact_one(mu, rounds, near):
    found = profile(Exchanged(mu, rounds))
    wanted = np.array([exact(mu, rounds, epsilon) for epsilon in EPSILONS])
    assert (found >= wanted - 1e-6).all()
    assert (found <= near * wanted + 1e-6).all()


@pytest.mark.parametrize(("mu", "rounds"), [(0.3, 10), (0.5, 100), (1.0, 1000)])
def test_it_is_closer_than_two_steps(mu, rounds):
    curve = Exchanged(mu, rounds)
    near, far = profile(curve), profile(Allocated(mu, rounds, replaced=True))
    some = far > 1e-9
    assert (near[some] <= far[some]).all() and near[0] < 0.995 * far[0]
    assert curve.swap() == curve and curve.support().above_only
    assert np.exp(curve.tails(EPSILONS, Side.DOWN).p_above).max() == 0.0


def test_a_sum_of_more_rounds_is_convolved_with_its_error():
    """A coarse transform is above a fine one only by the cells' spread, and never below it."""
    one = exchanged._numbers(1.0, 1.2, 0.1, 800)
    assert abs(one.mass.sum() - 1.0) < 1e-12 and one.moved < 1e-11
    found = [
        exchanged._positive_part(one, 20, 0.1, 1 << 15, tilt, exchanged._log_mean(one, tilt))
        for tilt in (1e-9, 0.05, 0.1)
    ]
    assert found == pytest.approx([found[0]] * 3, rel=1e-8)


@pytest.mark.parametrize("bad", [(1e-4, 5), (4.5, 5), (1.0, 1), (1.0, exchanged.MOST_ROUNDS + 1)])
def test_parameters_out_of_range(bad):
    assert not Exchanged.serves(*bad)
    with pytest.raises(ValueError, match="Exchanged"):
        Exchanged(*bad)


@pytest.mark.parametrize(("mu", "rounds"), [(1e-3, 2), (4.0, 2), (4.0, 500), (1e-3, 2000)])
def test_points_of_extreme_settings(mu, rounds):
    epsilons, deltas = np.array(Exchanged(mu, rounds).points).T
    assert (np.diff(epsilons) > 0.0).all() and (np.diff(deltas) <= 0.0).all()
    assert 0.0 <= deltas.min() <= deltas.max() <= 1.0
