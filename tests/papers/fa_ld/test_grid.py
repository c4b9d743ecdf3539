"""Grids of settings: costs against closed forms and enumeration, runs against exact privacy."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import fedprivacy as fp
from fedprivacy.papers.fa_ld.grid import MeanProblem, langevin_settings
from fedprivacy.systems.fa_ld.law import GaussianTarget, LangevinChain, transcript_gdp
from fedprivacy.theory.gaussian import epsilon as gaussian_epsilon
from tests import truth

ASK = {"delta": 1e-5, "adjacency": "replace_one"}
PROBLEM = MeanProblem(clients=4, dimension=2, records=10)
TARGET = PROBLEM.target


def line(centres, curvatures, weights=None):
    """A target on the line."""
    return GaussianTarget(
        hessians=np.array(curvatures, float)[:, None, None],
        centres=np.array(centres, float)[:, None],
        weights=weights,
    )


def round_of(run):
    """The mechanism of one repeated round."""
    ((one, _),) = run.sequence()
    return one


def only(settings):
    ((label, (run, costs)),) = settings
    return label, run, costs


@pytest.mark.parametrize("heat", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("rounds", [1, 7])
def test_w2_is_that_to_the_target_at_temperature_1(heat, rounds):
    eta, curvature, steps = 0.1, 4.0, 3
    _, _, costs = only(
        langevin_settings(
            line([2.0], [curvature]),
            gradient_sensitivity=1.0,
            rounds=rounds,
            step_size=eta,
            local_steps=steps,
            temperature=heat,
            correlation=0.3,
        )
    )
    left = (1.0 - eta * curvature) ** (steps * rounds)
    variance = 2.0 * eta * heat * (1.0 - left**2) / (1.0 - (1.0 - eta * curvature) ** 2)
    expected = math.hypot(2.0 * left, math.sqrt(variance) - math.sqrt(1.0 / curvature))
    assert costs == pytest.approx({"w2": expected, "rounds": rounds}, rel=1e-9)


def quantile_w2(means, stds, weights, mean, std):
    """W2 on the line of a mixture of Gaussians to a Gaussian, by quantiles."""
    at = (np.arange(4_000) + 0.5) / 4_000
    low = np.full(len(at), np.min(means - 9 * stds))
    high = np.full(len(at), np.max(means + 9 * stds))
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = weights @ ndtr((middle - means[:, None]) / stds[:, None])
        low, high = np.where(below < at, middle, low), np.where(below < at, high, middle)
    return math.sqrt(float(np.mean((low - mean - std * ndtri(at)) ** 2)))


@pytest.mark.parametrize("averaging", ["I", "II"])
@pytest.mark.parametrize("apart", [0.2, 3.0, 30.0])
def test_a_cohorts_w2_lies_between_the_two_that_are_told(averaging, apart):
    """Two clients, one drawn a round: a mixture of 2^rounds Gaussians, all of them computed."""
    eta, curvatures, centres = 0.2, (1.0, 2.0), (-apart, apart)
    weights = (0.5, 0.5) if averaging == "II" else (0.3, 0.7)
    target, rounds = line(centres, curvatures, np.array(weights)), 4
    _, _, costs = only(
        langevin_settings(
            target,
            gradient_sensitivity=1.0,
            rounds=rounds,
            step_size=eta,
            cohort=1,
            averaging=averaging,
            start=np.array([1.0]),
        )
    )
    means, variances, shares = [], [], []
    for drawn in itertools.product((0, 1), repeat=rounds):
        mean, variance, share = 1.0, 0.0, 1.0
        for c in drawn:
            left = 1.0 - eta * curvatures[c]
            mean = centres[c] + left * (mean - centres[c])
            variance = left**2 * variance + 2.0 * eta / weights[c]
            share *= weights[c]
        means.append(mean), variances.append(variance), shares.append(share)
    law = target.law()
    true = quantile_w2(
        np.array(means),
        np.sqrt(variances),
        np.array(shares),
        law.mean[0],
        math.sqrt(law.covariance[0, 0]),
    )
    room = 5e-3 * true
    assert costs["w2"] <= true + room and true - room <= costs["w2_at_most"]
    assert costs["w2"] < costs["w2_at_most"]


def test_a_batchs_w2_lies_between_the_two_that_are_told():
    """One client with two records, one drawn a step: all 2^4 ways computed."""
    records, eta, rounds, start = np.array([-3.0, 4.0]), 0.15, 4, 2.0
    target = GaussianTarget.of_records([records[:, None]], np.eye(1))
    _, run, costs = only(
        langevin_settings(
            target,
            gradient_sensitivity=7.0,
            rounds=rounds,
            step_size=eta,
            batch_fraction=0.4,
            gradients=[-records[:, None]],
            start=np.array([start]),
        )
    )
    left, ways = 1.0 - 2.0 * eta, list(itertools.product(records, repeat=rounds))
    means = np.full(len(ways), start)
    for step in np.array(ways).T:
        means = left * means + 2.0 * eta * step
    variance = 2.0 * eta * sum(left ** (2 * j) for j in range(rounds))
    shares = np.full(len(ways), 1.0 / len(ways))
    law = target.law()
    true = quantile_w2(
        means, np.full(len(ways), math.sqrt(variance)), shares, law.mean[0], math.sqrt(0.5)
    )
    assert costs["w2"] <= true * 1.005 and true * 0.995 <= costs["w2_at_most"]
    assert round_of(run).batch_fraction == 0.5


RANDOM = [
    line((0.0, 1.0, 5.0), (3.0, 0.4, 1.0), np.array([0.2, 0.5, 0.3])),
    GaussianTarget(
        hessians=np.array([[[5.0, 1.0], [1.0, 2.0]], [[1.0, -0.5], [-0.5, 3.0]]]),
        centres=np.array([[0.0, 1.0], [2.0, -1.0]]),
        weights=np.array([0.1, 0.9]),
    ),
]


@pytest.mark.parametrize("target", RANDOM)
@pytest.mark.parametrize("observer", ["aggregate", "server"])
def test_what_is_certified_contains_the_exact_privacy_of_every_client(target, observer):
    grid = {"step_size": [0.05, 0.3, 0.6], "correlation": [0.0, 0.7], "local_steps": [1, 4, 30]}
    settings = langevin_settings(target, gradient_sensitivity=0.3, rounds=3, **grid)
    assert len(settings) == 18
    for label, (run, _) in settings:
        exact = 0.0
        for client in range(target.clients):
            chain = LangevinChain(
                target=target,
                step_size=label["step_size"],
                correlation=label["correlation"],
                local_steps=label["local_steps"],
            )
            exact = max(exact, transcript_gdp(chain, client=client, difference=0.3, rounds=3))
        bound = fp.epsilon(run, **ASK, observer=observer)
        assert gaussian_epsilon(exact, 1e-5) <= bound.upper
        if label["step_size"] * target.smoothness < 2.0:  # else composed, and linear losses attain
            assert bound.lower <= gaussian_epsilon(exact, 1e-5) * (1 + 1e-9)
        if label["step_size"] == 0.05:  # flat directions contract least: T6 is exact
            assert bound.upper <= gaussian_epsilon(exact, 1e-5) * 1.01 + 1e-3


def test_what_is_certified_of_a_cohort_contains_the_exact_delta():
    settings = langevin_settings(
        TARGET,
        gradient_sensitivity=PROBLEM.gradient_sensitivity,
        rounds=9,
        step_size=[1e-3, 1e-2],
        local_steps=[1, 5],
        cohort=3,
    )
    for label, (run, _) in settings:
        chain = LangevinChain(
            target=TARGET, step_size=label["step_size"], local_steps=label["local_steps"]
        )
        mu = transcript_gdp(chain, client=0, difference=2.0, rounds=1)
        upper = fp.epsilon(run, **ASK).upper
        assert truth.erased_delta(upper, mu, 9, 0.75) <= 1e-5
        assert truth.erased_delta(upper - 0.01, mu, 9, 0.75) > 1e-5


def test_records_of_the_problem_are_what_it_says():
    held = PROBLEM.held
    assert held.shape == (4, 10, 2)
    assert np.linalg.norm(held, axis=-1).max() <= 1.0 + 1e-12
    law = TARGET.law()
    np.testing.assert_allclose(law.mean, held.reshape(-1, 2).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(law.covariance, np.eye(2) / 40.0, rtol=1e-12)
    apart = MeanProblem(clients=4, records=10, spread=1.0)
    assert np.ptp(apart.held, axis=1).max() == 0.0
    assert not np.array_equal(held, dataclasses.replace(PROBLEM, seed=1).held)


def test_a_records_gradient_moves_an_upload_as_the_account_assumes():
    """A step's gradient is 1 / p times the sum over records; so is the target's function."""
    other = PROBLEM.held.copy()
    other[2, 4] = [1.0, 0.0]
    moved = GaussianTarget.of_records(list(other), np.eye(2))
    at = np.array([3.0, -2.0])

    def gradient(target):
        return target.hessians[2] @ (at - target.centres[2])

    change = gradient(TARGET) - gradient(moved)
    np.testing.assert_allclose(change, (other[2, 4] - PROBLEM.held[2, 4]) / 0.25, rtol=1e-9)
    run = only(langevin_settings(TARGET, gradient_sensitivity=2.0, rounds=1, step_size=1e-3))[1]
    noise = math.sqrt(2e-3 / 0.25)
    assert round_of(run).step_multiplier == pytest.approx(noise / (1e-3 * 2.0 / 0.25))


def test_every_client_may_have_a_sensitivity_of_its_own():
    target, apart = RANDOM[1], [0.9, 0.05]
    settings = langevin_settings(
        target, gradient_sensitivity=apart, rounds=4, step_size=0.1, local_steps=[1, 8]
    )
    for label, (run, _) in settings:
        chain = LangevinChain(target=target, step_size=0.1, local_steps=label["local_steps"])
        each = [
            transcript_gdp(chain, client=c, difference=d, rounds=4) for c, d in enumerate(apart)
        ]
        exact = gaussian_epsilon(max(each), 1e-5)
        assert exact <= fp.epsilon(run, **ASK).upper <= 1.01 * exact + 1e-3


def test_the_best_is_the_smallest_w2_within_the_budget():
    settings = langevin_settings(
        TARGET,
        gradient_sensitivity=2.0,
        rounds=20,
        step_size=[3e-4, 1e-3, 3e-3],
        correlation=[0.0, 0.5, 1.0],
        local_steps=[1, 10],
        temperature=[1.0, 2.0],
    )
    found = fp.pareto(settings, **ASK, epsilon=4.0, observer="server")
    certified = [fp.epsilon(run, **ASK, observer="server").upper for _, (run, _) in settings]
    within = [c["w2"] for e, (_, (_, c)) in zip(certified, settings, strict=True) if e <= 4.0]
    assert found.best().cost("w2") == min(within)
    assert 0 < len(within) < len(settings)
    assert {s.label["correlation"] for s in found.refused} == {1.0}
    assert len(found.refused) == 12


def test_whole_cohorts_are_everybody_and_cost_what_is_exact():
    both = langevin_settings(
        TARGET, gradient_sensitivity=2.0, rounds=5, step_size=1e-3, cohort=[None, 4]
    )
    (plain, (run, costs)), (whole, (drawn, same)) = both
    assert "cohort" not in plain and whole["cohort"] == 4
    assert costs == same and set(costs) == {"w2", "rounds"}
    ours, theirs = fp.epsilon(run, **ASK), fp.epsilon(drawn, **ASK)
    assert (ours.lower, ours.upper) == (theirs.lower, theirs.upper)


def test_scheme_i_counts_a_client_with_the_chance_to_be_drawn():
    run = only(
        langevin_settings(
            line((0.0, 1.0), (1.0, 1.0), np.array([0.2, 0.8])),
            gradient_sensitivity=1.0,
            rounds=3,
            step_size=0.1,
            cohort=5,
            averaging="I",
        )
    )[1]
    light, heavy = round_of(run).mechanisms
    assert light.scheme.probability == pytest.approx(1.0 - 0.8**5)
    assert heavy.scheme.probability == pytest.approx(1.0 - 0.2**5)


@pytest.mark.parametrize("cohort", [None, 1])
@pytest.mark.parametrize("step", [2.0, 2.1, 1e200])
def test_a_chain_that_does_not_contract_costs_infinity_and_is_accounted_by_composition(
    step, cohort
):
    settings = langevin_settings(
        line((0.0, 1.0), (1.0, 1.0)),
        gradient_sensitivity=0.1,
        rounds=300,
        step_size=[step, 0.1],
        cohort=cohort,
    )
    assert math.isinf(settings[0][1][1]["w2"])
    assert math.isfinite(settings[1][1][1]["w2"])
    found = fp.pareto(settings, **ASK, accountant="rdp")
    assert found.settings[0].refused and not found.settings[1].refused


def test_moments_that_overflow_cost_infinity():
    """The mean contracts and the second moment does not: clients pull far beyond each other."""
    costs = only(
        langevin_settings(
            line((0.0, 1.0), (1.0, 1e-3)),
            gradient_sensitivity=0.1,
            rounds=4000,
            step_size=3.9,
            cohort=1,
        )
    )[2]
    assert math.isinf(costs["w2"])


def test_the_same_run_as_the_training_loops():
    training = pytest.importorskip("fedprivacy.training")
    loop = training.LangevinSampling(
        target=training.GaussianPosterior(target=TARGET, sensitivity=2.0),
        step_size=1e-3,
        local_steps=4,
        correlation=0.5,
        averaging="II",
        cohort=3,
        strong_convexity=TARGET.strong_convexity,
        smoothness=TARGET.smoothness,
    )
    _, run, costs = only(
        langevin_settings(
            TARGET,
            gradient_sensitivity=2.0,
            rounds=6,
            step_size=1e-3,
            local_steps=4,
            correlation=0.5,
            cohort=3,
        )
    )
    ours, theirs = fp.epsilon(run, **ASK), fp.epsilon(loop.run(6), **ASK)
    assert ours.upper == pytest.approx(theirs.upper, rel=1e-6)
    assert costs["w2"] < costs["w2_at_most"]


PLAIN = fp.SplittingRun(
    sensitivity=0.02,
    strong_convexity=0.5,
    smoothness=2.0,
    penalty=1.0,
    step_size=0.3,
    noise_scale=0.1,
    local_steps=5,
    rounds=30,
)


@pytest.mark.parametrize(
    ("name", "integer", "domain"),
    [("noise_scale", False, None), ("local_steps", True, (1, 500)), ("rounds", True, (1, 500))],
)
def test_any_one_of_tau_and_both_counts_is_found_for_a_budget(name, integer, domain):
    def run(value):
        return dataclasses.replace(PLAIN, **{name: value})

    budget = 0.999 * fp.epsilon(PLAIN, **ASK).upper
    found = fp.calibrate(run, epsilon=budget, **ASK, integer=integer, domain=domain)
    assert fp.epsilon(run(found.value), **ASK).upper <= budget
    more = found.value + 1 if integer else found.value * 0.99
    assert fp.epsilon(run(more), **ASK).upper > budget


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "rounds must"),
        ({"rounds": []}, "rounds must contain"),
        ({"step_size": -1.0}, "step_size must"),
        ({"step_size": "fast"}, "step_size must"),
        ({"correlation": 1.5}, "correlation must"),
        ({"local_steps": 0}, "local_steps must"),
        ({"temperature": 0.0}, "heat must|temperature must"),
        ({"cohort": 5}, "cohort must"),
        ({"averaging": "III", "cohort": 2}, "averaging must"),
        ({"batch_fraction": 0.5}, "gradients must"),
        ({"batch_fraction": 0.0}, "batch_fraction must"),
        ({"gradient_sensitivity": 0.0}, "gradient_sensitivity must"),
        ({"gradient_sensitivity": [1.0, 2.0]}, "one per client, 4 in all"),
        ({"start": [1.0, 2.0, 3.0]}, "start must"),
    ],
)
def test_bad_input_is_refused(options, words):
    usual = {"gradient_sensitivity": 2.0, "rounds": 3, "step_size": 1e-3}
    with pytest.raises(fp.ParameterError, match=words):
        langevin_settings(TARGET, **{**usual, **options})


@pytest.mark.parametrize("options", [{"spread": 1.5}, {"records": 0}, {"clients": 1.5}])
def test_a_problem_that_is_none_is_refused(options):
    with pytest.raises(fp.ParameterError, match=next(iter(options))):
        MeanProblem(**options)
