"""Epsilons of many kinds of rounds, searched together or one by one."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import points
from fedprivacy.loss import Gdp, Sampled, Side, orientations
from fedprivacy.loss.curves.components import parts_of
from fedprivacy.loss.strategies import direct
from fedprivacy.mechanisms.base import Run


def listed(curves):
    return points.RoundKinds.listed([(curve, 1) for curve in curves])


@pytest.mark.parametrize(
    ("scheme", "adjacency", "observer"),
    [
        (fp.Everyone(), "add_remove", "aggregate"),
        (fp.Poisson(1e-3), "add_remove", "aggregate"),
        (fp.Poisson(0.3), "replace_one", "aggregate"),
        (fp.FixedSize(3, population=100), "replace_one", "aggregate"),
        (fp.FixedSize(3, population=100), "zero_out", "aggregate"),
        (fp.FixedSize(3, population=100), "zero_out", "server"),
    ],
)
@pytest.mark.parametrize("delta", [1e-3, 1e-12])
def test_many_kinds_at_a_time_have_the_epsilons_of_each(scheme, adjacency, observer, delta):
    steps = [fp.Gaussian(noise_multiplier=0.3 + k / 8).sampled(scheme) for k in range(20)]
    curves = [step.privacy_loss(adjacency, observer).curve for step in steps]
    found = points.points_of(listed(curves), delta)
    alone = [points._worse(curve, delta) for curve in curves]
    assert [point.epsilon for point in found] == pytest.approx(alone, rel=1e-11)
    for point, curve in zip(found, curves, strict=True):
        for turned in orientations(curve):
            at = np.array([point.epsilon])
            assert direct.delta(turned, at, Side.UP)[0] <= delta * (1 + 1e-12)


@pytest.mark.parametrize("observer", ["aggregate", "server"])
def test_zeroed_units_are_searched_together_unless_products_underflow(observer):
    scheme = fp.FixedSize(3, population=100)
    steps = [fp.Gaussian(noise_multiplier=z).sampled(scheme) for z in (0.02, 0.03, 0.5, 1.0, 40.0)]
    curves = [step.privacy_loss("zero_out", observer).curve for step in steps]
    (ends,) = points._together(listed(curves * 4), [1e-5])
    missed = [] if observer == "server" else [0, 1]
    assert np.flatnonzero(~np.isfinite(ends[:5])).tolist() == missed
    many = points.points_of(listed(curves * 4), 1e-5)
    alone = [points._worse(curve, 1e-5) for curve in curves]
    assert [point.epsilon for point in many[:5]] == pytest.approx(alone, rel=1e-11)


def test_epsilons_beyond_the_points_of_many_curves_are_finite():
    kinds = [fp.Gaussian(noise_multiplier=0.002 + k / 1e5) for k in range(20)]
    curves = [kind.privacy_loss("add_remove").curve for kind in kinds]
    found = points.points_of(listed(curves), 1e-5)
    alone = [points._worse(curve, 1e-5) for curve in curves]
    assert max(alone) > 2.0**16
    assert [point.epsilon for point in found] == pytest.approx(alone, rel=1e-11)


def test_an_epsilon_near_a_wrong_guess_is_the_same():
    curve = fp.Gaussian(noise_multiplier=1.0).privacy_loss("add_remove").curve
    known = direct.epsilon(curve, 1e-5, Side.UP)
    for guess in (known, 0.95 * known, 3.0 * known, 0.01 * known, 0.0, -1.0, math.inf, math.nan):
        assert direct.epsilon(curve, 1e-5, Side.UP, guess) == pytest.approx(known, rel=1e-13)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("q, delta", [(0.01, 1e-8), (0.3, 1e-4), (0.9, 1e-12), (0.001, 1e-3)])
def test_guesses_from_a_few_pairs_change_no_epsilon(q, delta, swapped):
    mu = np.linspace(0.3, 2.5, 150)[np.random.default_rng(1).permutation(150)]
    chance, target = np.full(150, q), np.full(150, delta)
    found = direct.sampled_gaussian_epsilons(chance, mu, target, swapped)
    # Fewer pairs at a time are searched without guesses.
    parts = [direct.sampled_gaussian_epsilons(chance[:50], one, target[:50], swapped)
             for one in mu.reshape(3, 50)]  # fmt: skip
    # Where the profile is nearly flat its rounding decides.
    assert found == pytest.approx(np.concatenate(parts), rel=1e-6)
    curves = [Sampled(Gdp(float(m)), q) for m in mu[:5]]
    for curve, epsilon in zip(curves, found, strict=False):
        turned = curve.swap() if swapped else curve
        assert direct.delta(turned, np.array([epsilon]), Side.UP)[0] <= delta * (1 + 1e-12)


def test_a_schedule_with_rounds_that_are_not_found_together_is_searched_one_by_one():
    noise = [0.03 + 2e-4 * k for k in range(300)]
    steps = [
        fp.Gaussian(noise_multiplier=z).sampled(fp.FixedSize(3, population=100)) for z in noise
    ]
    curve = Run(tuple((one, 1) for one in steps)).privacy_loss("zero_out").curve
    schedule = points.RoundKinds.of(curve)
    assert not np.isfinite(points._together(schedule, [1e-5])).all()
    few = schedule.middles(60)
    alone = [points._worse(one, 1e-5) for one in few.curves]
    found = points.points_of(few, 1e-5)
    assert [point.times for point in found] == [60] * 5
    assert [point.epsilon for point in found] == pytest.approx(alone, rel=1e-11)


def test_a_schedule_has_the_points_of_its_curves():
    steps = [
        fp.Gaussian(noise_multiplier=1.0 + k / 300).sampled(fp.Poisson(0.1)) for k in range(300)
    ]
    curve = (
        Run(tuple((one, 1 + k % 3) for k, one in enumerate(steps))).privacy_loss("zero_out").curve
    )
    schedule, parts = points.RoundKinds.of(curve), points.RoundKinds.listed(parts_of(curve))
    assert points.points_of(schedule, 1e-6) == points.points_of(parts, 1e-6)
    assert schedule.middles(7).counts == parts.middles(7).counts
    for one, two in zip(schedule.middles(7).pairs, parts.middles(7).pairs, strict=True):
        assert one.rows.tolist() == two.rows.tolist() == list(range(43))
        assert (one.numbers == two.numbers).all()


@pytest.mark.parametrize("end", [math.nan, math.inf])
def test_an_epsilon_that_one_order_does_not_give_is_searched_alone(monkeypatch, end):
    steps = [fp.Gaussian(noise_multiplier=1.0 + k / 8).sampled(fp.Poisson(0.1)) for k in range(16)]
    curves = [step.privacy_loss("add_remove").curve for step in steps]
    known = points.points_of(listed(curves), 1e-5)
    search = direct.sampled_gaussian_epsilons

    def broken(*asked):
        ends = search(*asked)
        ends[3] = end
        return ends

    monkeypatch.setattr(direct, "sampled_gaussian_epsilons", broken)
    found = points.points_of(listed(curves), 1e-5)
    assert found[3].epsilon == pytest.approx(known[3].epsilon, rel=1e-11)
    assert found[:3] + found[4:] == known[:3] + known[4:]
