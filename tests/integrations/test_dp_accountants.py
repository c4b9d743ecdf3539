"""Accountants and privacy-loss distributions in the place of dp-accounting's own."""

import copy
import inspect
import math
import pickle

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from scipy.special import ndtr, ndtri

import fedprivacy as fp
from fedprivacy.integrations import dp_accounting as ours
from fedprivacy.integrations.dp_constructors import SERVED

ADD = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
ONE = dpa.NeighboringRelation.REPLACE_ONE
SPECIAL = dpa.NeighboringRelation.REPLACE_SPECIAL
EPSILONS = np.array([-3.0, -1.0, -0.1, 0.0, 0.1, 0.5, 1.0, 2.0, 5.0])
RATES = np.array([1e-9, 1e-5, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9])


def gaussian_delta(epsilon, mu):
    """Return delta of N(mu, 1) against N(0, 1) (Balle and Wang 2018, Theorem 8)."""
    return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


def arguments(function):
    return [
        (each.name, each.default)
        for each in inspect.signature(function).parameters.values()
        if each.name != "self"
    ]


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [(each, getattr(privacy_loss_distribution, each.__name__)) for each in SERVED]
    + [
        (ours.PLDAccountant.__init__, dpa.pld.PLDAccountant.__init__),
        (ours.RdpAccountant.__init__, dpa.rdp.RdpAccountant.__init__),
    ],
    ids=lambda each: each.__qualname__,
)
def test_names_order_and_defaults_of_arguments_are_theirs(mine, theirs):
    assert arguments(mine) == arguments(theirs)


def test_every_public_method_of_theirs_has_the_same_arguments():
    pairs = [
        (ours.PLDAccountant, dpa.pld.PLDAccountant),
        (ours.RdpAccountant, dpa.rdp.RdpAccountant),
        (ours.PrivacyLossDistribution, privacy_loss_distribution.PrivacyLossDistribution),
    ]
    for mine, theirs in pairs:
        for name, method in inspect.getmembers(theirs, inspect.isfunction):
            if not name.startswith("_"):
                assert arguments(getattr(mine, name)) == arguments(method), name


def test_they_pass_the_checks_of_isinstance():
    assert isinstance(ours.PLDAccountant(), dpa.pld.PLDAccountant)
    assert isinstance(ours.RdpAccountant(), dpa.rdp.RdpAccountant)
    made = ours.from_gaussian_mechanism(1.0)
    assert isinstance(made, privacy_loss_distribution.PrivacyLossDistribution)


# ---- answers


@pytest.mark.parametrize(("std", "sensitivity"), [(1.0, 1), (3.0, 2.0), (0.7, 0.1)])
@pytest.mark.parametrize("times", [1, 4])
def test_ends_contain_the_closed_form(std, sensitivity, times):
    exact = gaussian_delta(EPSILONS, math.sqrt(times) * sensitivity / std)
    made = [
        ours.from_gaussian_mechanism(std, sensitivity, pessimistic_estimate=end).self_compose(times)
        for end in (True, False)
    ]
    high, low = (each.get_delta_for_epsilon(EPSILONS) for each in made)
    assert np.all(low <= exact) and np.all(exact <= high)
    assert np.allclose(low, high, rtol=1e-3)
    above, below = (each.get_epsilon_for_delta(1e-5) for each in made)
    assert below <= above <= below + 1e-4
    assert gaussian_delta(above, math.sqrt(times) * sensitivity / std) <= 1e-5


def test_replacing_moves_twice_as_far():
    made = ours.from_gaussian_mechanism(1.0, neighboring_relation=ONE)
    exact = gaussian_delta(EPSILONS, 2.0)
    assert np.all(made.get_delta_for_epsilon(EPSILONS) >= exact)
    assert np.allclose(made.get_delta_for_epsilon(EPSILONS), exact, rtol=1e-3)


RUNS = {
    "gaussian": lambda: ours.from_gaussian_mechanism(1.0),
    "sampled": lambda: ours.from_gaussian_mechanism(1.0, sampling_prob=0.05).self_compose(40),
    "laplace": lambda: ours.from_laplace_mechanism(2.0, 1),
    "response": lambda: ours.from_randomized_response(0.5, 4, neighboring_relation=SPECIAL),
    "guarantee": lambda: ours.from_privacy_parameters(
        common.DifferentialPrivacyParameters(1.0, 1e-4)
    ),
    "nothing": ours.identity,
}


@pytest.mark.parametrize("name", RUNS)
def test_the_masses_dominate_both_orientations(name):
    made = RUNS[name]()
    found = made._pmf_remove
    assert made._pmf_add is found and made._symmetric
    assert found._probs.min() >= 0.0
    assert found._probs.sum() + found._infinity_mass == pytest.approx(1.0, abs=1e-12)
    wanted = made.get_delta_for_epsilon(EPSILONS)
    masses = np.array([found.get_delta_for_epsilon(each) for each in EPSILONS])
    # A lattice sum of 1e5 masses rounds by about 1e-13. Answers at many epsilons are 1 % wide.
    assert np.all(masses >= wanted * (1.0 - 1e-2) - 1e-12)
    low = np.array([fp_lower(made, each) for each in EPSILONS])
    assert np.all(masses >= low - 1e-12)
    assert np.allclose(masses, wanted, rtol=2e-2, atol=1e-4)


def fp_lower(made, epsilon):
    """Return a certified lower end of the larger divergence of both orientations."""
    if not made._reading.parts:
        return max(1.0 - math.exp(epsilon), 0.0)
    size = abs(epsilon)
    at = fp.delta(made._run, epsilon=size, adjacency=made._adjacency).resolution[0]
    return at if epsilon >= 0 else 1.0 - math.exp(-size) + math.exp(-size) * at


@pytest.mark.parametrize("name", ["gaussian", "sampled", "laplace", "response"])
def test_no_attacker_is_more_successful(name):
    made = RUNS[name]()
    found = made.get_true_positive_rates(RATES)
    known = fp.attack_risk(made._run, fpr=RATES, adjacency=made._adjacency).tpr
    assert np.all(found >= known.lower)
    both = fp.tradeoff_curve(made._run, fpr=RATES, adjacency=made._adjacency).f_dp
    assert np.allclose(found, 1.0 - both, rtol=1e-2, atol=1e-8)
    mu = made.get_gdp_parameter_estimate(np.array([1e-9]))
    assert np.all(known.lower[:7] <= ndtr(ndtri(RATES[:7]) + mu) * (1.0 + 1e-12))


def test_the_attacker_of_a_gaussian_is_known():
    made = ours.from_gaussian_mechanism(0.5)
    exact = ndtr(ndtri(RATES) + 2.0)
    assert np.all(made.get_true_positive_rates(RATES) >= exact)
    assert np.allclose(made.get_true_positive_rates(RATES), exact, rtol=1e-3)
    assert made.get_true_positive_rates(0.1) == made.get_true_positive_rates(np.array([0.1]))[0]
    assert 2.0 <= made.get_gdp_parameter_estimate() <= 2.001
    low = ours.from_gaussian_mechanism(0.5, pessimistic_estimate=False)
    assert np.all(low.get_true_positive_rates(RATES) <= exact)


def test_an_infinite_loss_has_no_mu():
    made = RUNS["guarantee"]()
    assert made.get_gdp_parameter_estimate() == math.inf
    assert math.isfinite(made.get_gdp_parameter_estimate(np.array([1e-3])))
    assert made.get_true_positive_rates(0.0) >= 1e-4


def test_nothing_is_no_loss():
    made = ours.identity()
    assert made.get_epsilon_for_delta(0.0) == 0.0
    assert made.get_gdp_parameter_estimate() == 0.0
    assert np.array_equal(made.get_true_positive_rates(RATES), RATES)


def test_composition_is_the_run():
    one, other = ours.from_gaussian_mechanism(1.0), ours.from_laplace_mechanism(2.0)
    both = one.compose(other)
    exact = fp.Gaussian(noise_multiplier=1.0) + fp.Laplace(noise_multiplier=2.0)
    wanted = fp.epsilon(exact, delta=1e-5, adjacency="add_remove", tolerance=1e-4)
    assert both.get_epsilon_for_delta(1e-5) == wanted.upper
    assert one.compose(one).get_epsilon_for_delta(1e-5) == one.self_compose(
        2
    ).get_epsilon_for_delta(1e-5)
    assert one.get_delta_for_epsilon_for_composed_pld(other, 1.0) == pytest.approx(
        both.get_delta_for_epsilon(1.0)
    )
    assert ours.identity().compose(one).get_epsilon_for_delta(1e-5) == (
        one.get_epsilon_for_delta(1e-5)
    )


def test_a_guarantee_takes_the_relation_of_its_partner():
    guarantee = RUNS["guarantee"]()
    replaced = ours.from_gaussian_mechanism(50.0, neighboring_relation=ONE)
    both = guarantee.compose(replaced)
    assert both._adjacency == "replace_one"
    assert 1.0 <= both.get_epsilon_for_delta(1e-3) <= 1.3


def test_discrete_gaussian_noise_has_its_zcdp():
    made = ours.from_discrete_gaussian_mechanism(10.0, 3)
    rho = 9 / 200
    assert made.get_epsilon_for_delta(1e-5) <= rho + 2 * math.sqrt(rho * math.log(1e5))
    theirs = privacy_loss_distribution.from_discrete_gaussian_mechanism(10.0, 3)
    assert made.get_epsilon_for_delta(1e-5) >= theirs.get_epsilon_for_delta(1e-5)


def test_copies_answer_alike():
    made = RUNS["sampled"]()
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert again.get_epsilon_for_delta(1e-5) == made.get_epsilon_for_delta(1e-5)


# ---- refusals


def refused(call, *kinds):
    with pytest.raises(Exception) as caught:
        call()
    for kind in kinds:
        assert isinstance(caught.value, kind)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_distributions_of_theirs_do_not_mix():
    mine = ours.from_gaussian_mechanism(1.0)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(1.0)
    assert "make both with fedprivacy" in refused(lambda: mine.compose(theirs), ValueError)
    refused(lambda: theirs.compose(mine), ValueError)
    refused(lambda: mine.get_delta_for_epsilon_for_composed_pld(theirs, 1.0), ValueError)


def test_relations_and_ends_do_not_mix():
    mine = ours.from_gaussian_mechanism(1.0)
    replaced = ours.from_gaussian_mechanism(1.0, neighboring_relation=ONE)
    assert "relations differ" in refused(lambda: mine.compose(replaced), ValueError)
    low = ours.from_gaussian_mechanism(1.0, pessimistic_estimate=False)
    refused(lambda: mine.compose(low), ValueError)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ours.PrivacyLossDistribution(None),
        lambda: ours.PrivacyLossDistribution.create_from_rounded_probability({0: 1.0}, 0.0, 1e-4),
        lambda: ours.identity().compute_mixture(ours.identity(), 0.5),
        lambda: ours.from_discrete_gaussian_mechanism(1.0, sampling_prob=0.5),
        lambda: ours.from_discrete_gaussian_mechanism(1.0, truncation_bound=5),
        lambda: ours.from_gaussian_mechanism(1.0, pessimistic_estimate=False)._pmf_remove,
    ],
)
def test_what_has_no_theorem_is_an_unsupported_event(call):
    refused(call, dpa.UnsupportedEventError, ValueError)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ours.from_gaussian_mechanism(0.0),
        lambda: ours.from_gaussian_mechanism(1.0, sensitivity=-1.0),
        lambda: ours.from_gaussian_mechanism(1.0, sampling_prob=1.5),
        lambda: ours.from_gaussian_mechanism(1.0, neighboring_relation="replace-one"),
        lambda: ours.from_gaussian_mechanism(1.0, value_discretization_interval=0.0),
        lambda: ours.from_randomized_response(0.5, 4, neighboring_relation=ADD),
        lambda: ours.from_randomized_response(0.5, 1),
        lambda: ours.from_laplace_mechanism(math.nan),
        lambda: ours.from_gaussian_mechanism(1.0).self_compose(0),
        lambda: ours.from_gaussian_mechanism(1.0).get_epsilon_for_delta(2.0),
        lambda: ours.from_gaussian_mechanism(1.0).get_true_positive_rates(-0.1),
        lambda: ours.from_gaussian_mechanism(1.0).get_gdp_parameter_estimate(np.array([])),
    ],
)
def test_wrong_values_are_value_errors(call):
    refused(call, ValueError)


def test_an_unknown_event_is_unsupported_with_a_way_out():
    class Unknown(dpa.DpEvent):
        pass

    for account in (ours.PLDAccountant(), ours.RdpAccountant()):
        assert not account.supports(Unknown())
        words = refused(lambda a=account: a.compose(Unknown()), dpa.UnsupportedEventError)
        assert "these events are supported" in words


# ---- accountants

DP_SGD = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.0)), 1_000)


@pytest.mark.parametrize("kind", [ours.PLDAccountant, ours.RdpAccountant])
def test_both_accountants_give_the_certified_number(kind):
    account = kind().compose(DP_SGD)
    run = ours.from_event(DP_SGD)
    wanted = fp.epsilon(run, delta=1e-6, adjacency="add_remove", tolerance=1e-4).upper
    assert account.get_epsilon(1e-6) == wanted
    assert account.ledger == DP_SGD
    assert account.get_delta(wanted) <= 1.01e-6


def test_replacing_is_counted_where_their_divergences_forget_it():
    account = ours.RdpAccountant(neighboring_relation=ONE).compose(dpa.GaussianDpEvent(1.0))
    assert account.get_epsilon(1e-5) == pytest.approx(9.99725, abs=1e-4)


def test_divergences_contain_the_closed_form():
    account = ours.RdpAccountant(orders=[1.0, 1.5, 2.0, 8.0]).compose(dpa.GaussianDpEvent(2.0), 3)
    exact = 3 * account.orders / 8
    assert np.all(account.rdp >= exact)
    assert np.allclose(account.rdp, exact, rtol=1e-5)
    epsilon, order = account.get_epsilon_and_optimal_order(1e-5)
    assert epsilon == account.get_epsilon(1e-5) and order in account.orders
    delta, order = account.get_delta_and_optimal_order(1.0)
    assert delta == account.get_delta(1.0) and order in account.orders


def test_their_private_distribution_is_ours_too():
    account = ours.PLDAccountant().compose(DP_SGD)
    assert account._pld.get_epsilon_for_delta(1e-6) == account.get_epsilon(1e-6)
    assert account._contains_non_dp_event is False
    rates = account.get_true_positive_rates(RATES)
    assert np.array_equal(rates, account.loss_distribution.get_true_positive_rates(RATES))
    assert account.get_gdp_parameter_estimate() > 0.0


def test_an_event_without_privacy_leaves_nothing():
    account = ours.PLDAccountant().compose(dpa.NonPrivateDpEvent())
    assert account.get_true_positive_rates(0.1) == 1.0
    assert account.get_gdp_parameter_estimate() == account.get_epsilon(0.1) == math.inf
    assert account._contains_non_dp_event
    assert np.all(np.isinf(ours.RdpAccountant().compose(dpa.NonPrivateDpEvent()).rdp))
    assert not ours.RdpAccountant().rdp.any()
