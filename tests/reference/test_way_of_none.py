"""A unit replaced by way of the round without it: tighter where noise is small (T5, T13)."""

import mpmath
import pytest
import truth
from mpmath import mpf

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.loss import Composed, Fold, GaussianMix, Gdp, LeastOf, compose
from fedprivacy.loss.curves.between import readings


def drawn(draws, z, population=1000):
    return fp.Gaussian(noise_multiplier=z).sampled(fp.WithReplacement(draws, population=population))


@pytest.mark.parametrize(
    "draws, population, z, rounds, adjacency, attained, most",
    [
        (10, 1000, 1.0, 100, "replace_one", 9.580, 9.753),
        (10, 1000, 1.4, 180, "replace_one", 3.518, 3.700),
        (10, 1000, 1.4, 180, "zero_out", 2.957, 3.583),
        # Much noise: who is told how often the unit was drawn learns less.
        (10, 100, 10.0, 100, "replace_one", 0.762, 0.847),
        (20, 1000, 5.0, 200, "zero_out", 0.219, 0.266),
    ],
)
def test_the_less_of_two_dominating_pairs_counts(
    draws, population, z, rounds, adjacency, attained, most
):
    found = fp.epsilon(drawn(draws, z, population) * rounds, delta=1e-5, adjacency=adjacency)
    assert attained <= found.lower <= found.upper <= most


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_long_laws_keep_the_labels(adjacency):
    """Of draws by the billion each point of the mixtures took seconds."""
    short, long = (drawn(draws, 1.0).privacy_loss(adjacency).curve for draws in (1000, 4000))
    assert isinstance(short, LeastOf) and not isinstance(long, LeastOf)


@pytest.mark.parametrize("name", ["pld", "rdp", "advanced"])
def test_no_accountant_says_more_than_of_either_pair(name):
    run = (drawn(10, 1.0) * 20).privacy_loss("replace_one")
    found = []
    for curve in (run.curve, *readings(run.curve)):
        account = ACCOUNTANTS[name]()
        part, count = curve.parts[0]
        one = drawn(10, 1.0).privacy_loss("replace_one")
        account.compose(fp.PrivacyLoss(part, one.facts), count)
        found.append(account.epsilon(1e-5).upper)
    assert found[0] == pytest.approx(min(found[1:]), rel=1e-9)
    # Moments see draws that are far rarer than delta, where labels cost less.
    assert (found[1] > 1.1 * found[2]) == (name != "rdp")


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.5, 4.0])
@pytest.mark.parametrize("held, q, z", [(1, 0.2, 1.0), (3, 0.1, 1.5), (6, 0.5, 4.0)])
def test_records_drawn_apart_and_replaced_lose_what_their_mixtures_do(held, q, z, epsilon):
    weights = [mpmath.binomial(held, s) * mpf(q) ** s * (1 - mpf(q)) ** (held - s)
               for s in range(held + 1)]  # fmt: skip
    here, there = (
        truth.mixture(*((w, side * s / mpf(z)) for s, w in enumerate(weights))) for side in (1, -1)
    )
    value = truth.mixture_delta((here, there), mpf(epsilon))
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q), held=held)
    found = fp.delta(run, epsilon=epsilon, adjacency="replace_one")
    assert found.lower <= value <= found.upper
    assert found.upper - found.lower <= 1e-9 * found.upper + 1e-15


def test_a_run_has_one_reading_for_each_choice():
    pair = LeastOf((Gdp(1.0), GaussianMix(1.0, ((0.5, 0.0), (0.5, 1.0)), ((1.0, 0.0),))))
    other = Fold(Gdp(0.5), Gdp(0.5))
    run = compose([(pair, 3), (other, 2)])
    assert [type(one) for one in readings(run)] == [Composed, Composed]
    first, second = ({type(part) for part, _ in one.parts} for one in readings(run))
    assert first == {Gdp, Fold} and second == {GaussianMix, Fold}
    assert readings(other) == (other,)
    assert readings(pair.swap()) == tuple(one.swap() for one in pair.curves)


def test_a_profile_and_a_trade_off_curve_take_the_less_too():
    run = drawn(4, 1.0) * 5
    epsilons = [2.0, 4.0]
    profile = fp.profile(run, epsilons=epsilons, adjacency="replace_one")
    for epsilon, low, high in zip(epsilons, profile.lower, profile.upper, strict=True):
        alone = fp.delta(run, epsilon=epsilon, adjacency="replace_one")
        assert alone.lower <= high and low <= alone.upper
    loss = run.privacy_loss("replace_one")
    account = ACCOUNTANTS["pld"]().compose(fp.PrivacyLoss(readings(loss.curve)[0], loss.facts))
    assert profile.upper[-1] < 0.5 * account.delta(4.0).upper


def test_an_account_of_two_pairs_is_saved_and_taken_up():
    account = ACCOUNTANTS["pld"]().compose(drawn(2, 4.0).privacy_loss("replace_one"), 10)
    again = ACCOUNTANTS["pld"]().restore(account.state())
    assert again.epsilon(1e-5).upper == account.epsilon(1e-5).upper


@pytest.mark.parametrize("z", [1e-3, 1.0])
def test_who_is_always_drawn_as_often_is_told_exactly(z):
    """A unit that is alone, or holds every record, moves the sum by a known number of norms."""
    alone = drawn(3, z, population=1)
    step = fp.Gaussian(noise_multiplier=z, unit="record")
    every = step.sampled(fp.FixedSize(3, population=7), held=7)
    for run in (alone * 2, every * 2):
        found = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
        exact = fp.epsilon(
            fp.Gaussian(noise_multiplier=z / 3.0) * 2, delta=1e-5, adjacency="zero_out"
        )
        assert exact.lower * (1 - 1e-9) <= found.lower <= found.upper <= exact.upper * (1 + 1e-9)
