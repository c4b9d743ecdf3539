"""Advanced composition of many different rounds."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import advanced
from fedprivacy.loss import Composed, Gdp, Sampled, Side, orientations
from fedprivacy.loss.curves.components import parts_of
from fedprivacy.loss.strategies import direct
from fedprivacy.mechanisms.base import Run


@pytest.mark.parametrize("probability", [0.001, 0.2])
def test_representatives_find_the_best_rule_and_share(probability):
    """The choice is valid, and close to the best of all rules and shares."""
    steps = [fp.Gaussian(noise_multiplier=1.0 + k / 70) for k in range(70)]
    run = steps[0].sampled(fp.Poisson(probability))
    for step in steps[1:]:
        run = run + step.sampled(fp.Poisson(probability))
    parts = parts_of(run.privacy_loss("add_remove").curve)
    assert len(parts) == 70
    every = [advanced._basic_alone(parts, 1e-6)[0]]
    every += [advanced._with_share(parts, 1e-6, share)[0] for share in advanced._SHARES]
    found = advanced._guided(parts, 1e-6)[0]
    assert min(every) <= found <= 1.01 * min(every)


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
    points = advanced._points([(curve, 1) for curve in curves], delta)
    alone = [advanced._worse(curve, delta) for curve in curves]
    assert [point.epsilon for point in points] == pytest.approx(alone, rel=1e-11)
    for point, curve in zip(points, curves, strict=True):
        for turned in orientations(curve):
            at = np.array([point.epsilon])
            assert direct.delta(turned, at, Side.UP)[0] <= delta * (1 + 1e-12)


@pytest.mark.parametrize("observer", ["aggregate", "server"])
def test_zeroed_units_are_searched_together_unless_products_underflow(observer):
    scheme = fp.FixedSize(3, population=100)
    steps = [fp.Gaussian(noise_multiplier=z).sampled(scheme) for z in (0.02, 0.03, 0.5, 1.0, 40.0)]
    curves = [step.privacy_loss("zero_out", observer).curve for step in steps]
    (found,) = advanced._together([(curve, 1) for curve in curves], 1e-5)
    assert list(found) == ([2, 3, 4] if observer == "aggregate" else [0, 1, 2, 3, 4])
    many = advanced._points([(curve, 1) for curve in curves] * 4, 1e-5)
    alone = [advanced._worse(curve, 1e-5) for curve in curves]
    assert [point.epsilon for point in many[:5]] == pytest.approx(alone, rel=1e-11)


def test_epsilons_beyond_the_points_of_many_curves_are_finite():
    kinds = [fp.Gaussian(noise_multiplier=0.002 + k / 1e5) for k in range(20)]
    curves = [kind.privacy_loss("add_remove").curve for kind in kinds]
    points = advanced._points([(curve, 1) for curve in curves], 1e-5)
    alone = [advanced._worse(curve, 1e-5) for curve in curves]
    assert max(alone) > 2.0**16
    assert [point.epsilon for point in points] == pytest.approx(alone, rel=1e-11)


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


@pytest.mark.parametrize(
    "scheme, adjacency",
    [
        (fp.Poisson(0.02), "add_remove"),
        (fp.FixedSize(3, population=100), "zero_out"),
        (fp.FixedSize(3, population=100), "replace_one"),
    ],
)
def test_a_schedule_of_noise_has_the_epsilon_of_its_rounds(scheme, adjacency):
    noise = [0.8 + 0.7 * (k * 0.618 % 1.0) for k in range(300)]
    steps = [fp.Gaussian(noise_multiplier=z).sampled(scheme) for z in noise]
    loss = Run(tuple((one, 1 + k % 3) for k, one in enumerate(steps))).privacy_loss(adjacency)
    account = advanced.AdvancedCompositionAccountant()
    found = account._epsilon(loss, 1e-6)
    # No round became a curve.
    assert "parts" not in vars(loss.curve)
    listed = replace(loss, curve=Composed(loss.curve.parts))
    assert found.upper == pytest.approx(account._epsilon(listed, 1e-6).upper, rel=1e-12)


def test_a_schedule_with_rounds_that_are_not_found_together_is_searched_one_by_one():
    noise = [0.03 + 2e-4 * k for k in range(300)]
    steps = [
        fp.Gaussian(noise_multiplier=z).sampled(fp.FixedSize(3, population=100)) for z in noise
    ]
    curve = Run(tuple((one, 1) for one in steps)).privacy_loss("zero_out").curve
    schedule = advanced._scheduled(curve)
    assert len(advanced._together(schedule, 1e-5)[0]) < 300
    few = schedule.middles(60)
    assert [point.times for point in advanced._points(few, 1e-5)] == [60] * 5
    alone = [advanced._worse(curve.parts[k][0], 1e-5) for k in few.rows]
    found = [point.epsilon for point in advanced._points(few, 1e-5)]
    assert found == pytest.approx(alone, rel=1e-11)
