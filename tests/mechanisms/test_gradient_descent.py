"""Tests of ``fedprivacy.mechanisms.gradient_descent``."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.mechanisms import NoisyGradientDescent, rounded
from fedprivacy.papers.fed_plt.claim import fed_plt_proposition_4
from fedprivacy.theory.gaussian import epsilon as gaussian_epsilon
from fedprivacy.theory.gaussian import epsilon as gdp_epsilon
from fedprivacy.theory.splitting_privacy import rounds_mu
from fedprivacy.training import FederatedSplitting, LocalSolver, ModuleLoss
from tests.mechanisms.test_splitting_run import run
from tests.mechanisms.test_upload import descent, epsilon, hamiltonian
from tests.papers.fed_plt.test_claim import BASE
from tests.systems.fed_plt.test_loop import Bowl, bounded
from tests.theory.test_splitting_privacy import (
    GRID,
    private,
    quadratic,
)


def test_upper_end_is_that_of_the_mechanism():
    """Rounds of NoisyGradientDescent, accounted by the toolkit, give the same upper end."""
    setting = dict(BASE, rounds=4)
    one = fp.NoisyGradientDescent(
        step_size=0.1,
        noise_std=math.sqrt(0.2),
        sensitivity=1.0,
        strong_convexity=2.0,
        smoothness=2.0,
        steps=5,
    )
    bound = fp.epsilon(one * 4, delta=1e-5, adjacency="replace_one", observer="server")
    reason = fed_plt_proposition_4(**setting, observer="server").reason
    assert f"at most {bound.upper:.5g}" in reason.replace(
        f"{bound.upper:.6g}", f"{bound.upper:.5g}"
    )


NOISY = LocalSolver(method="noisy", steps=5, step_size=0.4, noise_scale=0.3)
pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_round_is_t6_with_the_losss_own_sensitivity():
    step, noise = 0.4, math.sqrt(0.8) * 0.3
    solve = NoisyGradientDescent(
        step_size=step,
        noise_std=noise,
        sensitivity=0.02,
        strong_convexity=1.5,
        smoothness=1.75,
        steps=5,
    )
    assert bounded().round_mechanism == solve
    c = 1 - 0.4 * 1.5
    mu = step * 0.02 / noise * math.sqrt((1 - c**5) / (1 + c**5) * (1 + c) / (1 - c))
    found = fp.epsilon(bounded().round_mechanism * 20, delta=1e-5, adjacency="replace_one")
    exact = gaussian_epsilon(mu * math.sqrt(20), 1e-5)
    assert exact <= found.upper * (1 + 1e-12) and found.upper == pytest.approx(exact, rel=1e-3)


def steep(outputs, targets):
    return (outputs[0, 0] ** 2 + 20.0 * outputs[0, 1] ** 2) / 2


def test_clipped_steps_are_composed_one_by_one():
    """c = .95, s / sd = .1, t = 1000, delta = 1e-5: 17.857, where contraction would say 2.558."""
    size, clip, gamma, tau = 40, 0.3, 0.05, None
    moves = gamma * 2 * clip / size
    noise = 10.0 * moves
    tau = noise / math.sqrt(2 * gamma)
    solver = LocalSolver(
        method="noisy", steps=1000, step_size=gamma, noise_scale=tau, clip_norm=clip
    )
    loop = FederatedSplitting(
        loss=ModuleLoss(model=Bowl, criterion=steep),
        records=(size,),
        dimension=2,
        penalty=1.0,
        solver=solver,
    )
    one = loop.round_mechanism
    assert one == NoisyGradientDescent(
        step_size=gamma, noise_std=noise, sensitivity=2 * clip / size, steps=1000
    )
    assert one.step_multiplier == pytest.approx(10.0)
    with pytest.raises(fp.UnsupportedCombination, match="replace_one"):
        fp.epsilon(one, delta=1e-5, adjacency="add_remove")
    found = fp.epsilon(one, delta=1e-5, adjacency="replace_one", observer="server")
    assert found.lower <= 17.857 + 5e-4 and found.upper == pytest.approx(17.857, abs=2e-3)
    assert gaussian_epsilon(math.sqrt(1000) * 0.1, 1e-5) == pytest.approx(17.857, abs=5e-4)
    if_it_contracted = NoisyGradientDescent(
        step_size=gamma,
        noise_std=noise,
        sensitivity=2 * clip / size,
        strong_convexity=1.0,
        smoothness=1.0,
        steps=1000,
    )
    too_little = fp.epsilon(if_it_contracted, delta=1e-5, adjacency="replace_one")
    assert too_little.upper == pytest.approx(2.558, abs=2e-3)


ASK = {"delta": 1e-5, "adjacency": "replace_one"}


@pytest.mark.parametrize("observer", ["aggregate", "server"])
def test_uploads_are_accounted_round_by_round(observer):
    one = fp.NoisyGradientDescent(
        step_size=1 / 11,
        noise_std=math.sqrt(2 / 11),
        sensitivity=1.0,
        strong_convexity=1.1,
        smoothness=1.1,
        steps=60,
    )
    found = fp.epsilon(run(), observer=observer, **ASK)
    assert found.upper == fp.epsilon(one * 20, observer=observer, **ASK).upper
    assert found.lower > 0.99 * found.upper and found.witness


DELTA = 1e-5


def test_gradient_noise_composed_over_queries():
    client = hamiltonian(leapfrog_steps=5, iterations=100, gradient_noise_multiplier=30.0)
    first = math.hypot(client.momentum_multiplier, 30.0)
    mu = math.sqrt(100 / first**2 + 800 / 30.0**2)
    assert epsilon(client).upper == pytest.approx(gdp_epsilon(mu, DELTA), rel=1e-7)
    assert epsilon(client).upper < 0.99 * 4.3771781  # with the momentum left out
    assert (client.queries, replace(client, leapfrog_steps=1).queries) == (9, 1)


def test_local_solve_of_fed_plt():
    gamma, tau = 0.5, 0.01
    solve = descent(
        step_size=gamma,
        noise_std=math.sqrt(2.0 * gamma) * tau,
        sensitivity=0.004,
        strong_convexity=1.5,
        smoothness=2.0,
    )
    assert epsilon(solve * 100).upper == pytest.approx(gdp_epsilon(2.579468654, DELTA), rel=1e-6)


def test_noisy_descent_without_convexity_composes_its_steps():
    given = {"step_size": 0.05, "noise_std": 0.1, "sensitivity": 0.2, "steps": 1000}
    one = fp.NoisyGradientDescent(**given)
    found = fp.epsilon(one, delta=1e-5, adjacency="replace_one", observer="server")
    assert found.lower == pytest.approx(17.857, abs=1e-3) and found.upper - found.lower < 1e-6
    assert "composed" in found.theorems[0] and "clipped" in found.witness
    convex = fp.NoisyGradientDescent(strong_convexity=1.0, smoothness=2.0, **given)
    assert fp.epsilon(convex, delta=1e-5, adjacency="replace_one").upper < 3.0
    with pytest.raises(ParameterError, match="be given together or not at all"):
        fp.NoisyGradientDescent(strong_convexity=1.0, **given)


@pytest.mark.parametrize("dimension", [1, 100, 10_000])
@pytest.mark.parametrize("noise", [0.1, 1.0, 20.0])
def test_rounding_of_hidden_steps_is_paid_for_in_noise(noise, dimension):
    """The noise over a record's move and two roundings is at least the accounted one."""
    mechanism = fp.NoisyGradientDescent(
        step_size=0.5,
        noise_std=noise,
        sensitivity=1.0,
        strong_convexity=0.5,
        smoothness=1.0,
        steps=4,
    )
    std = noise * mechanism.widening(dimension)
    moved = 0.5 * 1.0 + 2.0 * math.sqrt(dimension) * rounded.HIDDEN_GRID * std
    assert std / moved >= mechanism.step_multiplier
    assert std / moved < mechanism.step_multiplier * (1.0 + 1e-9)
    composed = replace(mechanism, strong_convexity=None, smoothness=None)
    assert composed.widening(dimension) == 1.0


TINY = 1e-12


def test_clipping_destroys_contraction():
    """c = .95, s/sd = .1, t = 1000, delta 1e-5: T6 says 2.558, the truth is 17.857."""
    t6 = NoisyGradientDescent(
        step_size=0.05,
        noise_std=0.5,
        sensitivity=1.0,
        strong_convexity=1.0,
        smoothness=1.0,
        steps=1000,
    )
    mu = t6.privacy_loss("replace_one", "server").curve.mu
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(2.558, abs=5e-4)
    assert gaussian_epsilon(math.sqrt(1000) * 0.1, 1e-5) == pytest.approx(17.857, abs=5e-4)


@pytest.mark.fast_cells(48)
@pytest.mark.parametrize("low, ratio, rho, share, steps", GRID)
def test_the_mechanism_contains_the_law(low, ratio, rho, share, steps):
    """Every quadratic, every observer, constant and switching shifts; the worst is attained."""
    high = low * ratio
    gamma = share * 2 / (high + 1 / rho)
    mechanism = NoisyGradientDescent(
        step_size=gamma,
        noise_std=math.sqrt(2 * gamma),
        sensitivity=1.0,
        strong_convexity=low + 1 / rho,
        smoothness=high + 1 / rho,
        steps=steps,
    )
    one = mechanism.privacy_loss("replace_one", "server").curve.mu
    signs = (-1.0) ** np.arange(steps - 1, -1, -1)[None, :]
    found = []
    for curvature in np.linspace(low, high, 3):
        for shifts in (1.0, signs, np.cos(np.arange(steps))[None, :]):
            for rounds in (1, 3):
                law = quadratic(rho, gamma, steps, rounds, curvature=curvature, secret=False)
                whole = np.broadcast_to(shifts, (rounds, steps))
                for view in ("transcript", "final_model"):
                    mu = law.mu(whole, view)
                    assert mu <= math.sqrt(rounds) * one * (1 + TINY)
                    if rounds == 1:
                        found.append(mu)
    assert max(found) == pytest.approx(one, rel=1e-9)
    mine = rounds_mu(private(rho, gamma, steps, 1, low=low, high=high))
    assert one <= mine <= one * (1 + 1e-8)


def projected(**options):
    options = {
        "step_size": 4.0,
        "noise_std": 0.05,
        "sensitivity": 2e-4,
        "strong_convexity": 0.0,
        "smoothness": 0.25,
        "steps": 100_000,
        "radius": 10.0,
    } | options
    return NoisyGradientDescent(**options)


def test_a_projected_descent_stops_losing():
    """A million steps cost what a hundred thousand cost; composed they would cost 195."""
    bounds = [
        fp.epsilon(projected(steps=n), delta=1e-5, adjacency="replace_one").upper
        for n in (1_000, 100_000, 1_000_000)
    ]
    assert bounds == pytest.approx([2.0197, 33.656, 33.656], abs=1e-3)
    composed = projected(steps=1_000_000, strong_convexity=None, smoothness=None)
    assert fp.epsilon(composed, delta=1e-5, adjacency="replace_one").upper > 195.0


def test_a_projected_descent_without_a_dimension_names_no_attained_data_sets():
    for one in (projected(), projected(strong_convexity=None, smoothness=None)):
        assert one.privacy_loss("replace_one").witness is None
    with pytest.raises(fp.UnsupportedCombination, match="radius"):
        _ = projected().quadratic


def on_interval(slope, drift, radius, steps):
    """Return the law of projected steps with noise of std 1 from the middle, in 801 cells."""
    edges = np.linspace(-radius, radius, 802)
    middle = 0.5 * (edges[1:] + edges[:-1])
    below = ndtr(edges[None] - (slope * middle + drift)[:, None])
    below[:, 0], below[:, -1] = 0.0, 1.0
    law, step = np.zeros(801), np.diff(below, axis=1)
    law[400] = 1.0
    for _ in range(steps):
        law = law @ step
    return law


@pytest.mark.parametrize(
    ("radius", "steps", "shift"), [(30.0, 10, 0.3), (12.0, 60, 0.1), (8.0, 400, 0.5), (9.0, 1, 1.0)]
)
def test_a_projected_descent_shows_no_more_than_quadratics(radius, steps, shift):
    """In one dimension exact laws of quadratics lose at least the lower end, at some curvature."""
    run = NoisyGradientDescent(
        step_size=1.0,
        noise_std=1.0,
        sensitivity=shift,
        strong_convexity=0.0,
        smoothness=1.0,
        steps=steps,
        radius=radius,
        dimension=1,
    )
    slopes = (1.0, 0.98, 0.9, 0.7, 0.4, 0.0)
    laws = [on_interval(slope, 0.5 * shift, radius, steps) for slope in slopes]
    for place in (0.0, 0.5, 1.5):
        bound = fp.delta(run, epsilon=place, adjacency="replace_one")
        exact = max(np.maximum(p - math.exp(place) * p[::-1], 0.0).sum() for p in laws)
        # The cells change a law by less than a hundredth.
        assert 0.0 < bound.lower <= 1.01 * exact and exact <= 1.01 * bound.upper
    if radius > 29.0:
        assert bound.lower > 0.9 * bound.upper


def test_later_releases_start_elsewhere_and_show_nothing_more():
    """In a sequence, in a cohort, in trials and in a saved accountant."""
    one = projected(dimension=20, steps=1000)
    first, more = (run.privacy_loss("replace_one").witness for run in (one, one * 7))
    assert first.alone and more == first
    assert fp.epsilon(one, delta=1e-5, adjacency="replace_one").lower > 1.99
    in_cohort = one.in_cohort(fp.Poisson(0.5)).privacy_loss("replace_one")
    assert in_cohort.witness is None
    kept = fp.accountants.PldAccountant()
    kept.compose(one.privacy_loss("replace_one"), 2)
    again = fp.accountants.PldAccountant().restore(kept.state())
    assert again.epsilon(1e-5).lower == kept.epsilon(1e-5).lower < 2.01


def test_a_ball_never_costs_more_than_none():
    free = projected(strong_convexity=0.01, radius=None, steps=500)
    for radius in (1e-6, 0.01, 1.0, 1e9):
        one = projected(strong_convexity=0.01, radius=radius, steps=500)
        mu = one.privacy_loss("replace_one").curve.mu
        assert mu <= free.privacy_loss("replace_one").curve.mu * (1.0 + 1e-9)
        assert mu >= 1.0 / one.step_multiplier


@pytest.mark.parametrize(
    "options", [{"radius": 0.0}, {"radius": -1.0}, {"radius": math.inf}, {"step_size": 8.1}]
)
def test_balls_and_steps_out_of_range(options):
    with pytest.raises(fp.ParameterError, match=r"radius|step_size"):
        projected(**options)
    # Without a ball a convex loss is not enough for T6.
    with pytest.raises(fp.ParameterError, match="strong_convexity"):
        projected(radius=None)


def test_balls_of_extreme_sizes():
    """A ball that is too large or too small for doubles, and a curvature that underflows."""
    free = math.sqrt(100_000) / projected().step_multiplier
    for options in ({"radius": 1e308}, {"strong_convexity": 1e-323}, {"strong_convexity": 1e-300}):
        one = projected(**{"radius": 1e308} | options).privacy_loss("replace_one")
        assert one.curve.mu == pytest.approx(free, rel=1e-12)
    one = projected(radius=5e-324, step_size=1e6, smoothness=1e-7).privacy_loss("replace_one")
    assert one.curve.mu == pytest.approx(1e6 * 2e-4 / 0.05, rel=1e-9)
    # Products of which doubles keep only a few digits, or none.
    for options in ({"step_size": 1e-162, "sensitivity": 7e-162}, {"sensitivity": 5e-324}):
        with pytest.raises(fp.ParameterError, match="noise over sensitivity"):
            projected(noise_std=1e-320, **options).privacy_loss("replace_one")


def test_a_loss_that_is_not_convex_has_a_limit_on_a_ball():
    """And its Bound begins with the assumption that no code checks."""
    settings = {"step_size": 0.1, "noise_std": 0.5, "sensitivity": 0.1, "radius": 2.0}
    ends = [
        fp.epsilon(
            fp.NoisyGradientDescent(**settings, strong_convexity=low, smoothness=1.0, steps=10**6),
            delta=1e-5,
            adjacency="replace_one",
        )
        for low in (0.0, -0.01, -1.0)
    ]
    assert ends[0].upper < ends[1].upper < 1.5 * ends[0].upper
    mu = math.sqrt(2.1 * 4.0 * (0.02 + 0.1 * 4.0)) / 0.5
    limit = fp.epsilon(fp.GaussianDp(mu=mu, unit="record", adjacency="replace_one"), delta=1e-5,
                       adjacency="replace_one")  # fmt: skip
    assert ends[2].upper == pytest.approx(limit.upper, rel=0.03)
    assert ends[2].assumptions[0].startswith("the loss has curvatures between")
    with pytest.raises(fp.ParameterError, match="strong_convexity"):
        fp.NoisyGradientDescent(
            **settings | {"radius": None}, strong_convexity=-0.01, smoothness=1.0, steps=3
        )
