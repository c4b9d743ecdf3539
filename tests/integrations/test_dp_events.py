"""Each event of dp-accounting: its conversion, its loss, and its refusals."""

import copy
import itertools
import json
import math
import pickle

import attr
import dp_accounting as dpa
import mpmath
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import fedprivacy as fp
from fedprivacy.errors import ConversionError, UnsupportedCombination
from fedprivacy.integrations import dp_events, dp_states
from fedprivacy.integrations.dp_accounting import (
    CertifiedAccountant,
    InvalidEventError,
    adjacency_of,
    from_event,
    relation_of,
    to_event,
)
from fedprivacy.mechanisms.selection import log_stops
from tests import truth

ADD, SWAP, ZERO = (relation_of(name) for name in ("add_remove", "replace_one", "zero_out"))
G = dpa.GaussianDpEvent(1.5)
RESPONSE = dpa.RandomizedResponseDpEvent(0.3, 5)
LAPLACE = dp_event.DiscreteLaplaceDpEvent(0.5, 3)
MIXTURE = dp_event.MixtureOfGaussiansDpEvent(1.5, (0.0, 1.0, 2.0), (0.25, 0.5, 0.25))
ZCDP = dpa.ZCDpEvent(0.1, 0.05)
TREE = dpa.SingleEpochTreeAggregationDpEvent(4.0, [5, 100])
BEST = dp_event.RepeatAndSelectDpEvent(dpa.GaussianDpEvent(5.0), 3.0, 1.0)

SAME = {
    "response": (fp.RandomizedResponse(chance=0.3, answers=5), RESPONSE, ZERO),
    "laplace": (fp.DiscreteLaplace(noise_parameter=0.5, sensitivity=3), LAPLACE, SWAP),
    "mixture": (
        fp.MixtureOfGaussians(
            standard_deviation=1.5, sensitivities=(0.0, 1.0, 2.0), probabilities=(0.25, 0.5, 0.25)
        ),
        MIXTURE,
        ADD,
    ),
    "best": (
        fp.PrivateSelection(
            fp.Gaussian(noise_multiplier=5.0),
            trials=fp.TruncatedNegativeBinomial(mean=3.0, shape=1.0),
        ),
        BEST,
        ADD,
    ),
    "best of a Poisson number": (
        fp.PrivateSelection(fp.Gaussian(noise_multiplier=5.0), trials=fp.PoissonTrials(3.0)),
        dp_event.RepeatAndSelectDpEvent(dpa.GaussianDpEvent(5.0), 3.0, math.inf),
        ZERO,
    ),
    "zcdp": (fp.ConcentratedDp(rho=0.1, xi=0.05, adjacency="zero_out"), ZCDP, ZERO),
}


@pytest.mark.parametrize("run, event, relation", SAME.values(), ids=list(SAME))
def test_mechanisms_become_events_and_come_back(run, event, relation):
    adjacency = adjacency_of(relation)
    assert to_event(run, adjacency=adjacency) == event
    assert from_event(event, adjacency=adjacency, stated_for="server") == run
    bound = CertifiedAccountant(relation).compose(event, 3).bound(1e-5)
    if "zcdp" not in type(event).__name__.lower():
        assert bound == fp.epsilon(run * 3, delta=1e-5, adjacency=adjacency)


NEW = [
    (ZERO, RESPONSE),
    (SWAP, RESPONSE),
    (ADD, LAPLACE),
    (ZERO, LAPLACE),
    (SWAP, LAPLACE),
    (ADD, MIXTURE),
    (ZERO, MIXTURE),
    *[(relation, event) for relation in (ADD, ZERO, SWAP) for event in (ZCDP, BEST)],
    (ZERO, TREE),
]


@pytest.mark.fast_cells(14)
@pytest.mark.parametrize("relation, event", NEW, ids=str)
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_their_accountants_lie_above_our_lower_ends(relation, event, delta):
    ours = CertifiedAccountant(relation).compose(event).bound(delta)
    asked = 0
    coarse = PLDAccountant(relation, 1e-2 if event is MIXTURE else 1e-4)
    for account in (coarse, RdpAccountant(neighboring_relation=relation)):
        if account.supports(event):
            theirs = account.compose(event).get_epsilon(delta)
            if not (relation == SWAP and event is BEST):  # theirs moves a replaced sum by C only
                assert theirs >= ours.lower
                assert ours.resolution[0] <= theirs * 1.01 + 1e-2
            asked += 1
    assert asked or (relation == SWAP and event is LAPLACE)


@pytest.mark.parametrize("relation, event", NEW, ids=str)
def test_they_compose_and_survive_json_and_pickles(relation, event):
    at_once, one_by_one = CertifiedAccountant(relation), CertifiedAccountant(relation)
    at_once.compose(event, 3)
    for _ in range(3):
        one_by_one.compose(event)
    bound = at_once.bound(1e-3)
    assert one_by_one.bound(1e-3) == bound
    assert bound.upper >= CertifiedAccountant(relation).compose(event).bound(1e-3).lower
    state = json.loads(json.dumps(at_once.state()))
    assert CertifiedAccountant(relation).restore(state).bound(1e-3) == bound
    for twin in (pickle.loads(pickle.dumps(at_once)), copy.deepcopy(at_once)):
        assert (twin.bound(1e-3), twin.ledger) == (bound, at_once.ledger)


REFUSED = [
    (ADD, RESPONSE, r"number of answers"),
    (SWAP, MIXTURE, r"the direction between"),
    (ADD, TREE, r"zero_out"),
    (SWAP, TREE, r"zero_out"),
    (ZERO, dpa.PoissonSampledDpEvent(0.1, RESPONSE), r"does not amplify"),
    (ZERO, dpa.PoissonSampledDpEvent(0.1, MIXTURE), r"already sampled"),
    (ZERO, dpa.SampledWithReplacementDpEvent(30, 3, G), r"sequences of draws.*collections"),
]


@pytest.mark.parametrize("relation, event, why", REFUSED, ids=str)
@pytest.mark.parametrize("wrap", [0, 1, 2])
def test_what_has_no_bound_is_refused_and_blamed(relation, event, why, wrap):
    whole = event
    for _ in range(wrap):
        whole = dpa.ComposedDpEvent([G, dpa.SelfComposedDpEvent(whole, 2)])
    account = CertifiedAccountant(relation).compose(G)
    before = account.state()
    details = account._maybe_compose(whole, 1, False)
    assert details.invalid_event == event
    assert not account.supports(whole)
    with pytest.raises(dpa.UnsupportedEventError, match=why):
        account.compose(whole)
    assert account.state() == before


BAD = [
    dpa.GaussianDpEvent(-1.0),
    dpa.LaplaceDpEvent(math.nan),
    dpa.RandomizedResponseDpEvent(1.5, 2),
    dpa.RandomizedResponseDpEvent(0.5, 0),
    dp_event.DiscreteLaplaceDpEvent(-1.0, 1),
    dp_event.DiscreteLaplaceDpEvent(1.0, 1.5),
    dp_event.DiscreteLaplaceDpEvent(1.0, -1),
    dp_event.MixtureOfGaussiansDpEvent(-1.0, (1.0,), (1.0,)),
    dp_event.MixtureOfGaussiansDpEvent(1.0, (1.0,), (0.5,)),
    dp_event.MixtureOfGaussiansDpEvent(1.0, (), ()),
    dp_event.MixtureOfGaussiansDpEvent(1.0, 1.0, 1.0),
    dp_event.MixtureOfGaussiansDpEvent(1.0, (-1.0, 1.0), (0.5, 0.5)),
    dpa.ZCDpEvent(-0.1),
    dpa.ZCDpEvent(0.1, math.nan),
    dpa.SingleEpochTreeAggregationDpEvent(-1.0, 3),
    dpa.SingleEpochTreeAggregationDpEvent(1.0, []),
    dpa.SingleEpochTreeAggregationDpEvent(1.0, [2, -1]),
    dp_event.RepeatAndSelectDpEvent(G, 0.5, 1.0),
    dp_event.RepeatAndSelectDpEvent(G, 2.0, -1.0),
    dp_event.RepeatAndSelectDpEvent(G, math.nan, 1.0),
    dp_event.RepeatAndSelectDpEvent(G, "2", 1.0),
]


@pytest.mark.parametrize("event", BAD, ids=str)
def test_bad_fields_are_value_errors(event):
    account = CertifiedAccountant(ZERO)
    for kind in (ValueError, InvalidEventError, dpa.UnsupportedEventError, fp.ParameterError):
        with pytest.raises(kind, match=r"must"):
            account.compose(dpa.ComposedDpEvent([G, event]))
    assert (
        account._maybe_compose(dpa.SelfComposedDpEvent(event, 2), 1, False).invalid_event == event
    )
    assert isinstance(account.ledger, dpa.NoOpDpEvent)


NOTHING = [
    (SWAP, dpa.RandomizedResponseDpEvent(0.0, 1)),
    (ZERO, dpa.RandomizedResponseDpEvent(1.0, 7)),
    (ADD, dp_event.DiscreteLaplaceDpEvent(0.0, 0)),
    (ADD, dp_event.MixtureOfGaussiansDpEvent(0.0, (0.0,), (1.0,))),
    (ADD, dp_event.MixtureOfGaussiansDpEvent(0.0, (0.0, 3.0), (1.0, 0.0))),
    (ADD, dpa.ZCDpEvent(0.0)),
    (ZERO, dpa.SingleEpochTreeAggregationDpEvent(0.0, [0, 0])),
    (ADD, dp_event.RepeatAndSelectDpEvent(dpa.NoOpDpEvent(), 2.0, 1.0)),
]
EVERYTHING = [
    (SWAP, dpa.RandomizedResponseDpEvent(0.0, 2)),
    (ADD, dp_event.DiscreteLaplaceDpEvent(0.0, 1)),
    (ADD, dp_event.MixtureOfGaussiansDpEvent(0.0, (0.0, 3.0), (0.5, 0.5))),
    (ADD, dpa.ZCDpEvent(math.inf)),
    (ZERO, dpa.SingleEpochTreeAggregationDpEvent(0.0, 3)),
    (ADD, dp_event.RepeatAndSelectDpEvent(dpa.NonPrivateDpEvent(), 2.0, 1.0)),
]


@pytest.mark.parametrize("relation, event", NOTHING, ids=str)
def test_nothing_is_free(relation, event):
    account = CertifiedAccountant(relation).compose(event, 4)
    for target in (0.0, 1e-9, 1.0):
        assert account.get_epsilon(target) == 0.0
    assert account.get_delta(0.0) == account.get_delta(math.inf) == 0.0


@pytest.mark.parametrize("relation, event", EVERYTHING, ids=str)
def test_everything_is_infinite(relation, event):
    account = CertifiedAccountant(relation).compose(event)
    assert (account.get_epsilon(1e-5), account.get_delta(3.0)) == (math.inf, 1.0)


def test_a_state_is_audited_under_its_own_facts():
    """The server's view of a sampled round differs from the sum's."""
    account = CertifiedAccountant(ZERO, observer="server", unit="record")
    account.compose(dpa.PoissonSampledDpEvent(0.01, G), 100)
    found = fp.audit(json.loads(json.dumps(account.state())), claim=(1.0, 1e-5))
    bound = account.bound(1e-5)
    assert found.facts == bound.facts and found.bound.upper == bound.upper
    assert found.verdict == "FAILS"
    for name, wrong in (("observer", "everyone"), ("unit", "household")):
        with pytest.raises(fp.ParameterError, match=f"{name} must be"):
            fp.audit({**account.state(), name: wrong}, claim=(1.0, 1e-5))


@pytest.mark.parametrize("wrong", [None, {}, [1.0], "2", True, math.nan], ids=str)
@pytest.mark.parametrize("name", ["mean", "shape"])
def test_a_law_of_trials_has_numbers(name, wrong):
    fields = {"mean": 2.0, "shape": 1.0} | {name: wrong}
    with pytest.raises(fp.ParameterError, match=f"{name} must"):
        from_event(dp_event.RepeatAndSelectDpEvent(G, **fields))


def test_rounds_and_units_beyond_doubles_end_in_a_bound_or_a_refusal():
    run = from_event(dp_event.DiscreteLaplaceDpEvent(1.7, 2)) * 10**308
    assert fp.epsilon(run, delta=1e-5, adjacency="add_remove").upper == math.inf
    event = dpa.TruncatedSubsampledGaussianDpEvent(10**16, 0.02, 10, 2.0)
    with pytest.raises(fp.ParameterError, match="population must be an integer of at most"):
        from_event(event)


# ---- stated guarantees


def test_a_guarantee_is_about_one_adjacency():
    with pytest.raises(
        ConversionError, match=r"states a guarantee under one adjacency; pass adjacency="
    ):
        from_event(ZCDP)
    for event in (ZCDP, BEST):
        assert from_event(event, adjacency="add_remove", unit="client").protects is fp.Unit.CLIENT


@pytest.mark.parametrize("name", ["pld", "rdp", "advanced"])
def test_zcdp_adds_up(name):
    """(xi, rho) so many times is (n xi, n rho) once, and Gaussian rounds lose no more."""
    accounts = [CertifiedAccountant(ADD, accountant=name) for _ in range(2)]
    accounts[0].compose(dpa.ZCDpEvent(0.125, 0.25), 40).compose(G)
    accounts[1].compose(dpa.ZCDpEvent(5.0, 10.0)).compose(G)
    assert accounts[0].get_epsilon(1e-5) == accounts[1].get_epsilon(1e-5)
    many = CertifiedAccountant(ADD, accountant=name).compose(dpa.ZCDpEvent(0.005), 100)
    gaussian = CertifiedAccountant(ADD).compose(dpa.GaussianDpEvent(10.0), 100)
    assert gaussian.bound(1e-5).lower <= many.get_epsilon(1e-5) <= 1.1 * 5.0


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8, 9, 64, 100])
def test_trees_are_a_gaussian_on_the_longest_path(steps):
    """Nodes of a full binary tree that hold a leaf, counted; nodes that never fill up left out."""
    sizes = [2**level for level in range(20)]
    longest = max(
        sum((leaf // size + 1) * size <= steps for size in sizes) for leaf in range(steps)
    )
    event = dpa.SingleEpochTreeAggregationDpEvent(3.0, [1, steps])
    ours = CertifiedAccountant(ZERO).compose(event).bound(1e-5)
    moves = mpmath.sqrt(longest) / 3
    assert truth.gaussian_delta(ours.upper, moves) <= 1e-5
    assert truth.gaussian_delta(ours.upper - 2e-3, moves) > 1e-5


# ---- the best of several runs


LAWS = [(shape, mean) for shape in (0.0, 0.5, 1.0, 3.0, math.inf) for mean in (1.0, 1.5, 4.0, 30.0)]


def generating(shape, mean, x):
    """E x^K in 40 digits."""
    if shape == math.inf:
        return mpmath.exp(mean * (x - 1))
    if mean == 1.0:
        return x
    gamma = mpmath.exp(-log_stops(mean, shape))
    left = 1 - (1 - gamma) * x
    if shape == 0.0:
        return mpmath.log(left) / mpmath.log(gamma)
    return (left**-shape - 1) / (gamma**-shape - 1)


@pytest.mark.fast_cells(8)
@pytest.mark.parametrize("shape, mean", LAWS)
def test_best_of_randomised_responses_is_contained(shape, mean):
    """The best of K answers of 0 or 1 has a law in closed form: P(no 1) = E p0^K."""
    event = dp_event.RepeatAndSelectDpEvent(dpa.RandomizedResponseDpEvent(0.6, 2), mean, shape)
    for accountant in ("pld", "rdp", "advanced"):
        ours = CertifiedAccountant(SWAP, accountant=accountant).compose(event)
        for delta in (0.1, 1e-3):
            with mpmath.workdps(40):
                none = generating(shape, mean, mpmath.mpf(0))
                laws = [
                    (none, generating(shape, mean, p0) - none, 1 - generating(shape, mean, p0))
                    for p0 in (mpmath.mpf("0.3"), mpmath.mpf("0.7"))
                ]
                epsilon = ours.get_epsilon(delta)
                for p, q in itertools.permutations(laws):
                    lost = sum(
                        max(x - mpmath.exp(epsilon) * y, 0) for x, y in zip(p, q, strict=True)
                    )
                    assert lost <= delta


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("mean", [1.0 + 1e-9, 1.5, 1e3, 1e10])
def test_halting_chances_have_the_mean_or_more(shape, mean):
    with mpmath.workdps(60):
        gamma = mpmath.exp(-mpmath.mpf(log_stops(mean, shape)))
        if shape == 0.0:
            found = (1 - 1 / gamma) / mpmath.log(gamma)
        else:
            found = shape * (1 - gamma) / (gamma * (1 - gamma**shape))
        assert mean <= found <= mean * (1 + 1e-9)


@pytest.mark.parametrize("shape", [0.0, 1.0, 2.5, math.inf])
def test_divergences_are_not_below_the_theorems(shape):
    """Theorem 2 and T14 for a Gaussian base, over far more orders than are used."""
    rho, mean = 0.02, 8.0
    event = dp_event.RepeatAndSelectDpEvent(dpa.GaussianDpEvent(5.0), mean, shape)
    curve = from_event(event).privacy_loss("add_remove").curve
    powers = [10 ** (k / 50) for k in range(-150, 251)]

    def formula(power):
        order = 1 + power
        if shape == math.inf:
            delta = truth.gaussian_delta(mpmath.log1p(1 / power), mpmath.mpf("0.2"))
            more = mean * mpmath.exp(power * mean * delta) * mpmath.expm1(power * rho * order)
            return mpmath.log1p(more) / power
        value = rho * order + math.log(mean) / power
        stops = log_stops(mean, shape)
        return value + (1 + shape) * min(
            power2 / (1 + power2) * rho * (1 + power2) + stops / (1 + power2) for power2 in powers
        )

    least = math.inf
    values = {power: formula(power) for power in powers}
    for power in reversed(powers):
        least = min(least, values[power])
        moment = curve.moments().log_moment(1.0 + power)
        assert moment >= power * least * (1 - 1e-3)


def test_the_server_sees_who_took_part_in_all_runs():
    account = CertifiedAccountant(ZERO, observer="server")
    with pytest.raises(
        dpa.UnsupportedEventError, match=r"' sees the participants and results of all"
    ):
        account.compose(BEST)


def test_the_best_of_sampled_runs_hides_nothing_from_the_server_by_any_way():
    """One run costs 2.318 for the server; 0.788 was returned for the best of two."""
    once = dpa.PoissonSampledDpEvent(1e-3, dpa.GaussianDpEvent(1.0))
    event = dp_event.RepeatAndSelectDpEvent(once, 2.0, 1.0)
    seen = {"adjacency": "zero_out", "observer": "server"}
    best = from_event(event, adjacency="zero_out")
    again = from_event(BEST).sampled(fp.Poisson(0.5))
    for run in (best, best * 2 + fp.Gaussian(noise_multiplier=1.0), again):
        fp.epsilon(run, delta=1e-5, adjacency="zero_out")
        with pytest.raises(UnsupportedCombination, match=r"sees the participants"):
            fp.epsilon(run, delta=1e-5, **seen)
    with pytest.raises(UnsupportedCombination, match=r"sees the participants"):
        fp.audit(event, claim=(1.0, 1e-5), **seen)


# ---- classes of newer versions


def event_class(name, **fields):
    made = {key: attr.ib(default=value) for key, value in fields.items()}
    return attr.make_class(name, made, bases=(dpa.DpEvent,), frozen=True)


LATER = {
    "EpsilonDeltaDpEvent": ({"epsilon": 0.5, "delta": 1e-7}, dp_events._read_guarantee),
    "DiscreteGaussianDpEvent": (
        {"sigma": 4.0, "sensitivity": 2.0, "dimension": None},
        dp_events._read_discrete_gaussian,
    ),
    "ExponentialMechanismDpEvent": ({"epsilon": 0.5}, dp_events._read_pure),
    "PermuteAndFlipDpEvent": ({"epsilon": 0.5}, dp_events._read_pure),
}


@pytest.fixture(params=list(LATER))
def later(request, monkeypatch):
    """A class as a newer version has it, read as if it had been there."""
    if hasattr(dp_event, request.param):
        return getattr(dp_event, request.param)
    fields, reader = LATER[request.param]
    kind = event_class(request.param, **fields)
    monkeypatch.setattr(dp_event, request.param, kind, raising=False)
    assert dp_events.later(**{request.param: reader}) == {kind: reader}
    monkeypatch.setitem(dp_events.READERS, kind, reader)
    plain = {name: dp_states._FLOAT for name in fields} | {"dimension": dp_states._MAYBE}
    monkeypatch.setitem(dp_states.FIELDS, kind, {name: plain[name] for name in fields})
    return kind


def test_later_classes_are_read(later):
    fields = LATER[later.__name__][0]
    account = CertifiedAccountant(SWAP).compose(later(**fields), 3)
    if "sigma" in fields:
        with mpmath.workdps(30):
            weights = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / 32) for k in range(-80, 81)}
            total = sum(weights.values())
            epsilon = CertifiedAccountant(SWAP).compose(later(**fields)).get_epsilon(1e-3)
            lost = sum(
                max(w - mpmath.exp(epsilon) * weights.get(k - 2, 0), 0) for k, w in weights.items()
            )
            assert lost / total <= 1e-3
        assert not CertifiedAccountant(SWAP).compose(later(4.0, 0.0)).get_epsilon(0.0)
    else:
        point = fields["epsilon"], fields.get("delta", 0.0)
        run = fp.ApproximateDp(guarantees=(point,), adjacency="replace_one")
        assert from_event(later(**fields), adjacency="replace_one", stated_for="server") == run
        assert account.bound(1e-5) == fp.epsilon(run * 3, delta=1e-5, adjacency="replace_one")
        assert CertifiedAccountant(SWAP).compose(
            later(**fields | {"epsilon": math.inf})
        ).get_epsilon(0.5) == (math.inf)
    state = json.loads(json.dumps(account.state()))
    assert CertifiedAccountant(SWAP).restore(state).bound(1e-5) == account.bound(1e-5)


def test_one_guarantee_is_an_event_where_there_is_one(monkeypatch):
    run = fp.ApproximateDp(guarantees=((0.5, 1e-7),), adjacency="add_remove")
    if not hasattr(dp_event, "EpsilonDeltaDpEvent"):
        with pytest.raises(ConversionError, match=r"ApproximateDp"):
            to_event(run, adjacency="add_remove")
        kind = event_class("EpsilonDeltaDpEvent", epsilon=0.0, delta=0.0)
        monkeypatch.setattr(dp_event, "EpsilonDeltaDpEvent", kind, raising=False)
    assert to_event(run, adjacency="add_remove") == dp_event.EpsilonDeltaDpEvent(0.5, 1e-7)


def test_a_stated_guarantee_says_nothing_of_the_server_unless_it_is_said_to():
    """It may count on a sample that stays secret: dp-accounting's events do not say."""
    for event in (ZCDP, dpa.ZCDpEvent(0.1)):
        run = from_event(event, adjacency="zero_out")
        assert fp.epsilon(run, delta=1e-5, adjacency="zero_out").upper > 0
        with pytest.raises(fp.UnsupportedCombination, match="state it with observer='server'"):
            fp.epsilon(run, delta=1e-5, adjacency="zero_out", observer="server")
        told = from_event(event, adjacency="zero_out", stated_for="server")
        assert fp.epsilon(told, delta=1e-5, adjacency="zero_out", observer="server").upper > 0
    both = from_event(dpa.ComposedDpEvent([ZCDP, dpa.GaussianDpEvent(1.0)]), adjacency="zero_out")
    with pytest.raises(
        fp.UnsupportedCombination, match="not see the participants, not for the server"
    ):
        fp.epsilon(both, delta=1e-5, adjacency="zero_out", observer="server")
