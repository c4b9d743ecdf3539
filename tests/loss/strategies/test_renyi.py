"""Renyi accounts: sampled Laplace noise by its exact moments, and runs of billions of rounds."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp, ndtr

import fedprivacy as fp
from fedprivacy.loss import Gdp, compose
from fedprivacy.loss.curves.composed import Composed
from fedprivacy.loss.strategies import second_moment

ASK = {"delta": 1e-6, "adjacency": "add_remove"}


def laplace_log_moment(shift, q, order):
    """Log of the integral of P^order R^(1 - order), P sampled Laplace: by panels, in logs."""
    at, weight = np.polynomial.legendre.leggauss(60)
    ends = np.linspace(0.0, shift, 9)
    middle, half = (ends[1:] + ends[:-1]) / 2, (ends[1:] - ends[:-1]) / 2
    y = (middle[:, None] + half[:, None] * at).ravel()
    inside = np.log((half[:, None] * weight).ravel()) - y - math.log(2.0)
    ratio = np.log1p(q * np.expm1(2.0 * y - shift))
    # Outside [0, shift] the likelihood ratio is constant; each part has the mass 1/2 and less.
    low, high = math.log1p(q * math.expm1(-shift)), math.log1p(q * math.expm1(shift))
    logs = [*(inside + order * ratio), -math.log(2.0) + order * low]
    return float(logsumexp([*logs, -math.log(2.0) - shift + order * high]))


def exact_rdp(z, q, rounds, delta):
    """The Renyi account of sampled Laplace noise, the worse orientation at its best order."""

    def best(sign):
        found = []
        for order in 1.0 + np.geomspace(1e-3, 1e4, 600):
            # Of the swapped pair the moment at a is this one's at 1 - a.
            moment = rounds * laplace_log_moment(1.0 / z, q, order if sign > 0 else 1.0 - order)
            tail = (math.log(delta) + math.log(order)) / (order - 1.0)
            found.append(moment / (order - 1.0) + math.log1p(-1.0 / order) - tail)
        return min(found)

    return max(best(1), best(-1))


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize(
    ("z", "q", "rounds"),
    [
        *itertools.product((1.0, 5.0), (0.001, 0.1), (1_000,)),
        pytest.param(2.0, 0.01, 10_000),
        *(
            pytest.param(*rest, marks=pytest.mark.slow)
            for rest in itertools.product((1.0, 2.0, 5.0), (0.001, 0.01, 0.1), (1_000, 10_000))
        ),
    ],
)
def test_sampled_laplace_noise_has_its_exact_renyi_account(z, q, rounds):
    """It was up to 68 times too large: Jensen's bound was used for one orientation."""
    run = fp.Laplace(noise_multiplier=z).sampled(fp.Poisson(q)) * rounds
    found = fp.epsilon(run, accountant="rdp", **ASK).upper
    exact = exact_rdp(z, q, rounds, 1e-6)
    assert (1.0 - 1e-3) * exact <= found <= (1.0 + 1e-3) * exact
    assert fp.epsilon(run, **ASK).upper <= found


def test_an_adaptive_budget_allows_the_rounds_that_exact_moments_allow():
    budget = fp.Budget(2.0, 1e-6, adjacency="add_remove", adaptive=True)
    one = fp.Laplace(noise_multiplier=2.0).sampled(fp.Poisson(0.01))
    budget.spend(one * 7763)  # 1,232 by Jensen's bound
    assert budget.spent().upper <= 2.0 and not budget.allows(one)


BILLIONS = [(1.0, 1e-6), (50.0, 1e-3), (10.0, 0.01)]


@pytest.mark.fast_cells("1.0-1e-06", "10.0-0.01")
@pytest.mark.parametrize(("z", "q"), BILLIONS)
def test_nothing_jumps_at_billions_of_rounds(z, q):
    """An absolute error of 1e-8 a round chose the order: .45 became 52,900 at 7.3e9 rounds."""
    one, before = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q)), {"pld": 0.0, "rdp": 0.0}
    per_round = fp.epsilon(one * 10**9, accountant="rdp", delta=1e-5, adjacency="zero_out").upper
    for rounds in (10**9, 5 * 10**9, 7_299_300_611, 7_365_250_120, 10**10, 10**11, 10**12, 10**13):
        for accountant in ("pld", "rdp"):
            bound = fp.epsilon(
                one * rounds, accountant=accountant, delta=1e-5, adjacency="zero_out"
            )
            # Rising, and no faster than the number of rounds.
            assert before[accountant] < bound.upper <= 1.01 * per_round * rounds / 10**9
            before[accountant] = bound.upper
            if accountant == "pld":
                # Where digits are lost the interval stays within a few deviations of the loss.
                mean = 0.5 * rounds * q * q * math.expm1(z**-2)
                spread = math.sqrt(2.0 * mean)
                assert bound.resolution[0] > 0.0
                assert bound.upper - bound.resolution[0] <= 0.15 * mean + 4.0 * spread


@pytest.mark.parametrize(("z", "rounds"), [(0.02, 1_000), (0.01, 10)])
def test_sampling_never_makes_a_run_worse(z, rounds):
    """Its end was infinite where that of the unsampled rounds is not."""
    one = fp.Gaussian(noise_multiplier=z)
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    sampled = fp.epsilon(one.sampled(fp.Poisson(0.01)) * rounds, **ask)
    assert 0.0 < sampled.resolution[0] < sampled.upper < fp.epsilon(one * rounds, **ask).upper


@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_two_moments_show_less_than_the_profile(mu, delta):
    """Against the closed form of a Gaussian pair, which is composed of hundred here."""
    curve = Composed(((Gdp(mu / 10.0), 100),))
    assert compose([(Gdp(mu / 10.0), 100)]) == Gdp(mu)

    def profile(x):
        return float(ndtr(mu / 2 - x / mu) - math.exp(x) * ndtr(-mu / 2 - x / mu))

    found = second_moment.epsilon(curve, delta)
    assert found == 0.0 or profile(found) > delta
    for x in (0.0, 0.3 * mu * mu, 0.5 * mu * mu, mu * mu):
        shown = second_moment.delta(curve, x)
        assert 0.0 <= shown < profile(x)
        # Below the mean loss a fixed share of the profile is shown.
        assert x > 0.3 * mu * mu or mu < 1.0 or shown > 0.1 * profile(x)
