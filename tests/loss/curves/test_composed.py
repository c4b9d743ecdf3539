"""Curves made of composed curves keep bounds on both sides."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from fedprivacy.loss import Composed, Fold, GaussianMix, Gdp, Mix, Sampled, Side, compose
from fedprivacy.loss.strategies import direct
from tests import truth

INNER = [
    Composed(((Sampled(Gdp(4.0), 0.5), 10),)),
    Composed(((Sampled(Gdp(1.0), 0.1), 50),)),
    Composed(((Sampled(Gdp(0.3), 0.3), 4), (Gdp(1.0), 1))),
]
EPSILONS = np.array([0.0, 1e-3, 0.1, 1.0, 3.0, 8.0])


def ordered(curve, epsilons=EPSILONS):
    up, down = (direct.delta(curve, epsilons, side) for side in (Side.UP, Side.DOWN))
    assert (down <= up).all()


@pytest.mark.parametrize("inner", INNER, ids=range(3))
@pytest.mark.parametrize("q", [0.01, 0.5])
def test_both_sides_of_nested_curves_are_ordered(inner, q):
    sampled = Sampled(inner, q)
    nested = Mix(((q, inner), (1 - q, Gdp(0.0))))
    for curve in (inner, inner.swap(), sampled, nested, nested.swap(), Fold(sampled, sampled)):
        ordered(curve)


@pytest.mark.parametrize("q", [0.01, 0.5])
def test_both_sides_of_a_swapped_sampled_composition_are_ordered(q):
    ordered(Sampled(INNER[0], q).swap())


@pytest.mark.parametrize("inner", INNER, ids=range(3))
@pytest.mark.parametrize("q", [0.1, 0.5])
def test_no_mass_is_lost_from_above(inner, q):
    """An upper side that lost a round's mass would lose it again in every further round."""
    for curve in (
        Sampled(inner, q),
        Sampled(inner, q).swap(),
        Mix(((q, inner), (1 - q, Gdp(1.0)))),
    ):
        assert np.exp(curve.tails(np.array([-1e4]), Side.UP).p_above[0]) >= 1.0 - 1e-12


@pytest.mark.parametrize("q", [0.1, 0.5])
def test_no_mass_is_gained_from_below(q):
    curve = Sampled(INNER[0], q).swap()
    assert np.exp(curve.tails(np.array([-1e4]), Side.DOWN).p_above[0]) <= 1.0 + 1e-12


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("inner", INNER, ids=range(3))
@pytest.mark.parametrize("q", [0.1, 0.5])
def test_compositions_of_nested_curves_are_ordered(inner, q):
    for node in (Sampled(inner, q), Mix(((q, inner), (1 - q, Gdp(0.0))))):
        for curve in (compose([(node, 6)]), compose([(node.swap(), 6)])):
            up, down = (curve.composition(0.02, side) for side in (Side.UP, Side.DOWN))
            for epsilon in (0.0, 0.5, 4.0):
                assert down.delta(epsilon) <= up.delta(epsilon)
            assert down.epsilon(1e-5) <= up.epsilon(1e-5)


@pytest.mark.parametrize("q", [0.1, 0.5])
def test_a_sampled_block_of_gaussians_is_a_sampled_gaussian(q):
    """Composed(Gdp) inside Sampled, forced through a lattice, against the exact curve."""
    block = Composed(((Gdp(1.0), 2), (Gdp(0.5), 4)))
    exact = Sampled(Gdp(3.0**0.5), q)
    for curve, whole in ((Sampled(block, q), exact), (Sampled(block, q).swap(), exact.swap())):
        up, down = (direct.delta(curve, EPSILONS, side) for side in (Side.UP, Side.DOWN))
        assert (up >= direct.delta(whole, EPSILONS, Side.DOWN)).all()
        assert (down <= direct.delta(whole, EPSILONS, Side.UP)).all()


@pytest.mark.parametrize("q", [0.1, 0.5])
@pytest.mark.parametrize("swapped", [False, True])
def test_compositions_of_sampled_blocks_hold_the_exact_ones(q, swapped):
    block = Composed(((Gdp(1.0), 2), (Gdp(0.5), 4)))
    rough, exact = Sampled(block, q), Sampled(Gdp(3.0**0.5), q)
    if swapped:
        rough, exact = rough.swap(), exact.swap()
    for epsilon in (0.0, 0.5, 2.0):
        values = [compose([(exact, 6)]).composition(2e-3, side).delta(epsilon) for side in Side]
        up, down = (
            compose([(rough, 6)]).composition(2e-2, side).delta(epsilon)
            for side in (Side.UP, Side.DOWN)
        )
        assert up >= min(values)
        assert down <= max(values)


@pytest.mark.parametrize("order", [1.3, 2.0, 5.5, -0.7, -3.0])
def test_moments_of_a_sampled_block_are_upper_bounds(order):
    block = Composed(((Gdp(1.0), 2), (Gdp(0.5), 4)))
    exact = truth.fast_log_moment(truth.sampled_pair(mp.sqrt(3), mpf(0.2)), order)
    assert Sampled(block, 0.2).moments().log_moment(order) >= exact - 1e-16


@pytest.mark.parametrize("order", [1.3, 2.0, 5.5, -0.7, -3.0])
def test_moments_of_a_fold_are_above_both_its_halves(order):
    up, down = Sampled(Gdp(1.5), 0.2), Sampled(Gdp(0.8), 0.3)
    same = Fold(up, up)
    assert same.moments().log_moment(order) >= up.moments().log_moment(order) * (1 - 1e-12)
    assert same.moments().log_moment(order) == pytest.approx(
        same.swap().moments().log_moment(order), rel=1e-9
    )
    assert Fold(up, down).swap() == Fold(down, up)


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_sampled_curves_refuse_what_is_no_sampling(q):
    with pytest.raises(ValueError, match=r"must be in \(0, 1\)"):
        Sampled(Gdp(1.0), q)


RARE_MEANS = [
    GaussianMix(0.3, ((1 - 2e-5, 0.0), (2e-5 - 1e-10, 2.0), (1e-10, 4.0)), ((1.0, 0.0),)),
    GaussianMix(0.3, ((0.9, 0.0), (0.1 - 1e-20, 2.0), (1e-20, 4.0)), ((1.0, 0.0),)),
    GaussianMix(0.1, ((0.9, 0.0), (0.09, 2.0), (0.01, 4.0)), ((1.0, 0.0),)),
    GaussianMix(0.05, ((0.7, 0.0), (0.3, 1.0)), ((0.7, 0.0), (0.3, -1.0))),
]


@pytest.mark.parametrize("curve", RARE_MEANS, ids=range(4))
def test_thresholds_in_closed_form_have_the_loss_that_was_asked(curve):
    """However far out, where the middle mean's share of P - e^x Q is a rounding error of 1."""
    furthest = max(m for _, m in curve.p) / curve.std + 38.0
    highest = float(curve._loss(np.array([furthest]))[0])
    losses = np.geomspace(0.05, min(highest, 1500.0), 60)
    for loss, right in zip(losses, curve._thresholds(losses)[1], strict=True):
        with mp.workdps(60):
            found = [
                mp.log(sum(mpf(w) * mp.exp(a * mpf(float(right)) - a * a / 2) for w, a in side))
                for side in ([(w, mpf(m) / mpf(curve.std)) for w, m in curve.p], at_q(curve))
            ]
            assert abs(found[0] - found[1] - mpf(float(loss))) < 1e-9 * (1 + loss)


def at_q(curve):
    return [(w, mpf(m) / mpf(curve.std)) for w, m in curve.q]


@pytest.mark.parametrize("epsilon", [30.0, 36.0, 38.0, 44.0])
def test_one_rare_round_far_out_has_the_profile_of_high_precision(epsilon):
    """Two draws of a unit in 1e5, little noise: P(S) - e^eps Q(S) with S = {y > root}."""
    curve = RARE_MEANS[0]
    with mp.workdps(60):
        p = [(mpf(w), mpf(m) / mpf(curve.std)) for w, m in curve.p]

        def loss(y):
            return mp.log(sum(w * mp.exp(a * y - a * a / 2) for w, a in p))

        root = mp.findroot(lambda y: loss(y) - epsilon, (5, 15), solver="anderson")
        above = sum(w * mp.ncdf(a - root) for w, a in p) - mp.exp(epsilon) * mp.ncdf(-root)
    for side in (Side.DOWN, Side.UP):
        found = float(direct.delta(curve, np.array([epsilon]), side)[0])
        assert abs(found / float(above) - 1.0) < 1e-8


@pytest.mark.parametrize("side", list(Side))
def test_losses_beyond_all_doubles_leave_the_tails_ordered(side):
    """e^-loss is infinite at the lowest points, whose masses are near 0."""
    curve = Composed(((Gdp(0.3), 1), (Sampled(Gdp(6.0), 0.25).swap(), 50)))
    losses = np.array([-2e3, -720.0, -705.0, -1.0, 0.0, 50.0, 900.0])
    found = curve.tails(losses, side)
    assert not any(np.isnan(each).any() for each in found)
    assert (found.q_above[1:] <= found.q_above[:-1]).all()
    assert (found.q_below[1:] >= found.q_below[:-1]).all()
    delta = direct.delta(curve, losses, side)
    assert ((delta >= 0.0) & (delta <= 1.0)).all()
