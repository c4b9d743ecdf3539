"""dp-accounting both ways, against the real library; its known errors are measured here."""

import json
import logging
import math
from fractions import Fraction

import dp_accounting as dpa
import mpmath
import pytest
from dp_accounting import dp_event, privacy_accountant_test
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as distribution
from dp_accounting.rdp import RdpAccountant

import fedprivacy as fp
from fedprivacy.errors import ConversionError, LedgerError
from fedprivacy.integrations.dp_accounting import (
    CertifiedAccountant,
    adjacency_of,
    from_event,
    relation_of,
    to_event,
)
from fedprivacy.integrations.dp_events import READERS
from fedprivacy.integrations.dp_states import FIELDS
from tests import truth

logging.disable(logging.WARNING)

ADD, SWAP, ZERO = (relation_of(name) for name in ("add_remove", "replace_one", "zero_out"))
RELATIONS = pytest.mark.parametrize("relation", [ADD, SWAP, ZERO], ids=lambda r: r.name)
ADJACENCIES = pytest.mark.parametrize("adjacency", list(fp.Adjacency))

NOISE, LAPLACE = fp.Gaussian(noise_multiplier=1.5), fp.Laplace(noise_multiplier=2.0)
POISSON, FIXED = NOISE.sampled(fp.Poisson(0.1)), NOISE.sampled(fp.FixedSize(6, population=60))
G, L = dpa.GaussianDpEvent(1.5), dpa.LaplaceDpEvent(2.0)
SAME = {
    "gaussian": (NOISE, G),
    "laplace": (LAPLACE, L),
    "poisson": (POISSON, dpa.PoissonSampledDpEvent(0.1, G)),
    "fixed": (FIXED, dpa.SampledWithoutReplacementDpEvent(60, 6, G)),
    "truncated": (
        NOISE.sampled(fp.TruncatedPoisson(0.1, population=60, largest=9)),
        dpa.TruncatedSubsampledGaussianDpEvent(60, 0.1, 9, NOISE.noise_multiplier),
    ),
    "repeated": (POISSON * 7, dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.1, G), 7)),
    "sum": (NOISE * 3 + LAPLACE, dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(G, 3), L])),
    "one sample": (
        (NOISE * 3 + LAPLACE).sampled(fp.Poisson(0.2)) * 2,
        dpa.SelfComposedDpEvent(
            dpa.PoissonSampledDpEvent(0.2, dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(G, 3), L])),
            2,
        ),
    ),
}
EACH = pytest.mark.parametrize("run, event", SAME.values(), ids=list(SAME))
# A sample of a sum takes seconds: under one relation in every run of the tests.
PRICED = pytest.mark.parametrize(
    "run, event, relation",
    [
        pytest.param(
            *pair,
            relation,
            id=f"{relation.name}-{name}",
            marks=[pytest.mark.slow] * (name == "one sample" and relation is not ADD),
        )
        for relation in (ADD, SWAP, ZERO)
        for name, pair in SAME.items()
    ],
)


def sparsified(**changed):
    given = {"noise_multiplier": 1.5, "clip_norm": 2.0, "kept": 5, "dimension": 50, "cohort": 6}
    return fp.SparsifiedPerturbation(**given | changed)


# ---- words


@ADJACENCIES
def test_relations_and_adjacencies_are_the_same_things(adjacency):
    assert adjacency_of(relation_of(adjacency)) is adjacency
    assert relation_of(str(adjacency)) is relation_of(adjacency)


def test_every_relation_has_an_adjacency():
    assert {adjacency_of(relation) for relation in dpa.NeighboringRelation} == set(fp.Adjacency)


@pytest.mark.parametrize("wrong", ["ADD_OR_REMOVE_ONE", 1, None, []])
def test_other_relations_are_refused(wrong):
    with pytest.raises(fp.ParameterError, match=r"neighboring_relation .*REPLACE_SPECIAL"):
        adjacency_of(wrong)
    with pytest.raises(fp.ParameterError, match=r"neighboring_relation"):
        CertifiedAccountant(wrong)


# ---- to events


@EACH
@ADJACENCIES
def test_runs_become_events_and_come_back(run, event, adjacency):
    assert to_event(run, adjacency=adjacency) == event
    assert from_event(event) == run


ALIKE = {
    "everyone": (POISSON.inner.sampled(fp.Everyone()), G),
    "cohort of everyone": ((NOISE * 2).in_cohort(fp.Everyone()), dpa.SelfComposedDpEvent(G, 2)),
    "sparsified": (sparsified(topped_up=True), G),
    "topped up": (
        sparsified(topped_up=True, missing=3).sampled(fp.Poisson(0.1)),
        dpa.PoissonSampledDpEvent(0.1, G),
    ),
}


@pytest.mark.parametrize("run, event", ALIKE.values(), ids=list(ALIKE))
@ADJACENCIES
def test_what_comes_back_otherwise_loses_the_same(run, event, adjacency):
    assert to_event(run, adjacency=adjacency) == event
    back = from_event(event)
    assert back.privacy_loss(adjacency).curve == run.privacy_loss(adjacency).curve


LOSSY = {
    "draws": (NOISE.sampled(fp.WithReplacement(3, population=30)), r"independent"),
    "epochs": (NOISE.sampled(fp.Shuffled(rounds_per_epoch=4)), r"one round of an epoch"),
    "cohorts": (POISSON.in_cohort(fp.Poisson(0.5)) * 3, r"take part together"),
    "missing": (sparsified(missing=2), r"2 shares .*Gaussian\(noise_multiplier=1\.22"),
    "colluding": (sparsified(colluding=1) * 2, r"1 known"),
    "absent": (sparsified(absent=3).sampled(fp.FixedSize(6, population=30)), r"3 clients may"),
}


@pytest.mark.parametrize("run, lost", LOSSY.values(), ids=list(LOSSY))
def test_what_no_event_says_is_refused(run, lost):
    with pytest.raises(ConversionError, match=lost) as refused:
        to_event(run, adjacency="zero_out")
    assert "fedprivacy.epsilon" in str(refused.value)


def test_a_subclass_may_lose_anything_and_is_refused():
    class Weaker(fp.Gaussian):
        pass

    with pytest.raises(ConversionError, match=r"Weaker"):
        to_event(Weaker(noise_multiplier=1.0), adjacency="add_remove")
    with pytest.raises(fp.ParameterError, match=r"mechanism"):
        to_event(G, adjacency="add_remove")


@pytest.mark.parametrize("run", [POISSON, FIXED * 2, NOISE + POISSON])
def test_an_event_hides_the_participants(run):
    with pytest.raises(ConversionError, match=r"participants are visible.*observer=server"):
        to_event(run, adjacency="zero_out", observer="server")
    with pytest.raises(fp.UnsupportedCombination):
        to_event(run, adjacency="add_remove", observer="server")
    assert to_event(run, adjacency="zero_out", observer="final")


def test_where_nobody_is_sampled_the_observers_are_alike():
    assert to_event(NOISE * 2, adjacency="zero_out", observer="server")


# ---- from events


NOT_READ = {dpa.DpEvent(), dpa.UnsupportedDpEvent(), dpa.SampledWithReplacementDpEvent(30, 3, G)}


def test_every_class_of_the_library_is_read_or_refused():
    kinds = {kind for kind in vars(dp_event).values() if isinstance(kind, type)}
    known = {kind for kind in kinds if issubclass(kind, dpa.DpEvent)}
    assert known == READERS.keys() | {type(event) for event in NOT_READ}
    assert READERS.keys() == FIELDS.keys()


@pytest.mark.parametrize("event", [*NOT_READ, None, "GaussianDpEvent", G.to_named_tuple()])
@pytest.mark.parametrize("inside", [False, True])
def test_other_events_are_refused(event, inside):
    event = dpa.ComposedDpEvent([G, dpa.SelfComposedDpEvent(event, 2)]) if inside else event
    with pytest.raises(
        ConversionError, match=r"no loss is known.*these events are supported: 'GaussianDpEve"
    ):
        from_event(event)
    assert not CertifiedAccountant(ZERO).supports(event)


def test_subclasses_of_events_are_refused():
    class Renamed(dpa.GaussianDpEvent):
        pass

    with pytest.raises(ConversionError, match=r"Renamed"):
        from_event(Renamed(1.0))


@pytest.mark.parametrize(
    "event",
    [
        dpa.GaussianDpEvent(-1.0),
        dpa.GaussianDpEvent(math.nan),
        dpa.GaussianDpEvent(math.inf),
        dpa.LaplaceDpEvent("1"),
        dpa.LaplaceDpEvent(True),
        dpa.SelfComposedDpEvent(G, 0),
        dpa.SelfComposedDpEvent(G, 1.5),
        dpa.ComposedDpEvent(5),
        dpa.PoissonSampledDpEvent(1.5, G),
        dpa.PoissonSampledDpEvent(-0.1, G),
        dpa.SampledWithoutReplacementDpEvent(5, 6, G),
        dpa.SampledWithoutReplacementDpEvent(0, 0, G),
    ],
    ids=str,
)
def test_bad_fields_are_refused(event):
    with pytest.raises(fp.ParameterError):
        from_event(event)
    with pytest.raises(dpa.UnsupportedEventError, match=r"must"):
        CertifiedAccountant(ZERO).compose(event)


def test_records_are_sampled_once():
    twice = dpa.PoissonSampledDpEvent(0.5, dpa.PoissonSampledDpEvent(0.5, G))
    with pytest.raises(fp.UnsupportedCombination, match=r"already sampled"):
        from_event(twice)
    assert not CertifiedAccountant(ZERO).supports(twice)


def test_deep_nests_are_refused():
    event = G
    for _ in range(5000):
        event = dpa.SelfComposedDpEvent(event, 1)
    with pytest.raises(ConversionError, match=r"deeper"):
        from_event(event)


NOTHING = [
    dpa.NoOpDpEvent(),
    dpa.ComposedDpEvent([]),
    dpa.PoissonSampledDpEvent(0.0, dpa.NonPrivateDpEvent()),
    dpa.SampledWithoutReplacementDpEvent(10, 0, dpa.GaussianDpEvent(0.0)),
    dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.1, dpa.NoOpDpEvent()), 3),
]
EVERYTHING = [
    dpa.NonPrivateDpEvent(),
    dpa.GaussianDpEvent(0),
    dpa.LaplaceDpEvent(0.0),
    dpa.ComposedDpEvent([G, dpa.NonPrivateDpEvent(), L]),
    dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(0.0)), 3),
]


@pytest.mark.parametrize("event", NOTHING, ids=str)
def test_what_releases_nothing_is_free(event):
    with pytest.raises(ConversionError, match=r"releases no output"):
        from_event(event)
    account = CertifiedAccountant(ADD).compose(event)
    assert (account.get_epsilon(1e-5), account.get_delta(0.0)) == (0.0, 0.0)
    assert from_event(dpa.ComposedDpEvent([event, G])) == NOISE


@pytest.mark.parametrize("event", EVERYTHING, ids=str)
def test_what_is_not_private_costs_everything(event):
    with pytest.raises(ConversionError, match=r"not private"):
        from_event(event)
    account = CertifiedAccountant(ADD).compose(G).compose(event)
    assert (account.get_epsilon(1e-5), account.get_delta(9.0)) == (math.inf, 1.0)
    assert account.bound(1e-5).to_dict()["upper"] == "inf"


def test_the_unit_is_restated():
    assert from_event(L, unit="client").protects is fp.Unit.CLIENT
    with pytest.raises(fp.ParameterError, match=r"unit"):
        from_event(L, unit="house")


# ---- the accountant


class TheirContract(privacy_accountant_test.PrivacyAccountantTest):
    """dp-accounting's own tests of any accountant."""

    __test__ = False

    relation = ADD
    name = "pld"

    def _make_test_accountants(self):
        return [CertifiedAccountant(self.relation, accountant=self.name)]


CONTRACT = [name for name in dir(TheirContract) if name.startswith("test_")]


@pytest.mark.parametrize("test", CONTRACT)
@pytest.mark.parametrize("name", ["pld", "rdp", "advanced"])
@RELATIONS
def test_their_contract_is_kept(relation, name, test):
    case = type("Contract", (TheirContract,), {"relation": relation, "name": name})(test)
    result = case.run()
    assert (result.testsRun, result.skipped) == (1, [])
    assert result.wasSuccessful(), result.errors + result.failures


def test_the_contract_is_thirteen_tests():
    assert len(CONTRACT) >= 13
    assert issubclass(type(CertifiedAccountant(ADD)), dpa.PrivacyAccountant)


@pytest.mark.fast_cells(11)
@PRICED
def test_the_accountant_says_what_epsilon_says(run, event, relation):
    account = CertifiedAccountant(relation, unit="record").compose(event)
    bound = fp.epsilon(run, delta=1e-4, adjacency=adjacency_of(relation))
    assert account.get_epsilon(1e-4) == bound.upper
    assert account.bound(1e-4).resolution == bound.resolution
    assert account.bound(1e-4).unit is fp.Unit.RECORD
    assert account.delta_bound(0.5).upper == account.get_delta(0.5)


def test_it_is_an_accountant_of_theirs():
    account = CertifiedAccountant(ADD)
    assert isinstance(account, dpa.PrivacyAccountant)
    assert isinstance(account.ledger, dpa.NoOpDpEvent)
    assert account.neighboring_relation is ADD
    assert account.compose(G, 2).compose(L) is account
    assert account.ledger == dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(G, 2), L])


@RELATIONS
def test_composing_n_is_n_times_composing(relation):
    at_once, one_by_one = CertifiedAccountant(relation).compose(G, 5), CertifiedAccountant(relation)
    for _ in range(5):
        one_by_one.compose(G)
    nested = CertifiedAccountant(relation).compose(dpa.SelfComposedDpEvent(G, 5))
    bounds = {account.bound(1e-6) for account in (at_once, one_by_one, nested)}
    assert len(bounds) == 1


def test_a_refused_event_is_not_counted():
    account = CertifiedAccountant(ADD, observer="server").compose(G)
    before = account.bound(1e-5)
    for event in (dpa.UnsupportedDpEvent(), dpa.PoissonSampledDpEvent(0.1, G)):
        with pytest.raises(dpa.UnsupportedEventError):
            account.compose(event)
    with pytest.raises(ValueError, match=r"positive"):
        account.compose(L, 0)
    assert account.bound(1e-5) == before and account.ledger == G


def test_a_visible_draw_amplifies_less():
    event = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.1, G), 20)
    seen, hidden = (CertifiedAccountant(ZERO, observer=o) for o in ("server", "aggregate"))
    assert seen.compose(event).bound(1e-5).lower > hidden.compose(event).get_epsilon(1e-5)


@pytest.mark.parametrize("name", ["pld", "rdp", "advanced"])
def test_any_accountant_may_answer(name):
    account = CertifiedAccountant(ADD, accountant=name, tolerance=0.01).compose(G, 4)
    assert account.get_epsilon(1e-5) == pytest.approx(
        fp.epsilon(NOISE * 4, delta=1e-5, adjacency="add_remove", accountant=name).upper, abs=0.01
    )


@pytest.mark.parametrize("wrong", [{"accountant": "moments"}, {"tolerance": 0}, {"observer": "me"}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(fp.ParameterError):
        CertifiedAccountant(ADD, **wrong)


@pytest.mark.parametrize("wrong", [1.0000001, -1.0, math.inf, math.nan, "1e-5"])
def test_bad_targets_are_refused(wrong):
    for account in (CertifiedAccountant(ADD), CertifiedAccountant(ADD).compose(G)):
        with pytest.raises(fp.ParameterError, match=r"target_delta"):
            account.get_epsilon(wrong)
    with pytest.raises(fp.ParameterError, match=r"target_epsilon"):
        CertifiedAccountant(ADD).get_delta(-0.5)


@RELATIONS
def test_their_calibration_runs_on_it(relation):
    found = dpa.calibrate_dp_mechanism(
        lambda: CertifiedAccountant(relation),
        lambda z: dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(z), 10),
        target_epsilon=1.0,
        target_delta=1e-5,
    )
    moves = (2 if relation is SWAP else 1) * mpmath.sqrt(10)
    assert truth.gaussian_delta(1, moves / found) <= 1e-5
    assert truth.gaussian_delta(1, moves / (found - 1e-3)) > 1e-5


def test_their_calibration_finds_whole_numbers_too():
    def rounds(count):
        return dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, G), count)

    def account():
        return CertifiedAccountant(ZERO)

    bracket = dpa.ExplicitBracketInterval(1, 4000)
    found = dpa.calibrate_dp_mechanism(account, rounds, 1.0, 1e-5, bracket, discrete=True)
    assert account().compose(rounds(found)).get_epsilon(1e-5) <= 1.0
    assert account().compose(rounds(found + 2)).bound(1e-5).resolution[0] > 1.0 - 1e-3


# ---- JSON


@pytest.mark.fast_cells(9)
@PRICED
def test_state_survives_json(run, event, relation):
    account = CertifiedAccountant(relation, unit="client", tolerance=2e-3, observer="final")
    account.compose(event, 2).compose(L)
    state = json.loads(json.dumps(account.state()))
    back = CertifiedAccountant(relation).restore(state)
    assert back.bound(1e-4) == account.bound(1e-4)
    assert (back.ledger, back.state()) == (account.ledger, account.state())
    assert back.compose(G).get_epsilon(1e-4) == account.compose(G).get_epsilon(1e-4)


@pytest.mark.parametrize("event", [None, *NOTHING, *EVERYTHING], ids=str)
def test_empty_and_infinite_states_survive_json(event):
    account = CertifiedAccountant(ADD)
    if event is not None:
        account.compose(event)
    back = CertifiedAccountant(ADD).restore(json.loads(json.dumps(account.state())))
    assert (back.bound(1e-5), back.ledger) == (account.bound(1e-5), account.ledger)


FOREIGN = [
    None,
    {},
    fp.accountants.PldAccountant().state(),
    {"version": 2},
    {"neighboring_relation": "REPLACE_ONE"},
    {"observer": "me"},
    {"tolerance": None},
    {"accountant": []},
]


@pytest.mark.parametrize("changed", FOREIGN, ids=str)
def test_foreign_states_are_refused(changed):
    account = CertifiedAccountant(ADD).compose(G)
    before = account.state()
    partly = isinstance(changed, dict) and changed and "parts" not in changed
    with pytest.raises(fp.ParameterError):
        account.restore({**before, **changed} if partly else changed)
    assert account.state() == before


NEST: dict = {"type": "GaussianDpEvent", "noise_multiplier": 1.0}
for _ in range(200):
    NEST = {"type": "SelfComposedDpEvent", "count": 1, "event": NEST}
DAMAGED = [
    None,
    {"type": "os.system"},
    {"type": "DpEvent"},
    {"type": "UnsupportedDpEvent"},
    {"type": "ZCDpEvent", "rho": 1.0},
    {"type": "MixtureOfGaussiansDpEvent", "standard_deviation": 1.0, "sensitivities": 1},
    {"type": ["GaussianDpEvent"], "noise_multiplier": 1.0},
    {"type": "GaussianDpEvent"},
    {"type": "GaussianDpEvent", "noise_multiplier": "1"},
    {"type": "GaussianDpEvent", "noise_multiplier": -1.0},
    {"type": "GaussianDpEvent", "noise_multiplier": 1.0, "count": 1},
    {"type": "ComposedDpEvent", "events": {}},
    {"type": "ComposedDpEvent", "events": [1]},
    {"type": "SelfComposedDpEvent", "event": None, "count": 1},
    {"type": "SelfComposedDpEvent", "event": {"type": "NoOpDpEvent"}, "count": "2"},
    NEST,
]


@pytest.mark.parametrize("ledger", DAMAGED, ids=lambda ledger: str(ledger)[:60])
def test_damaged_states_are_refused(ledger):
    account = CertifiedAccountant(ADD).compose(G)
    before = account.state()
    with pytest.raises(LedgerError):
        account.restore({**before, "ledger": ledger})
    assert account.state() == before


# ---- the library as a peer: where it is right, it lies above our lower ends


def pair(relation):
    """Their two accountants."""
    return PLDAccountant(relation), RdpAccountant(neighboring_relation=relation)


PEERS = [
    *[(relation, event) for relation in (ADD, ZERO) for _, event in list(SAME.values())[:3]],
    (ADD, dpa.SelfComposedDpEvent(G, 7)),
    (ADD, dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.1, G), 5), L])),
    (ZERO, dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(0.8)), 99)),
    (ZERO, dpa.SelfComposedDpEvent(L, 40)),
]


@pytest.mark.fast_cells(7)
@pytest.mark.parametrize("relation, event", PEERS, ids=str)
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_both_their_accountants_lie_above_our_lower_end(relation, event, delta):
    ours = CertifiedAccountant(relation).compose(event).bound(delta)
    for account in pair(relation):
        assert account.compose(event).get_epsilon(delta) >= ours.lower > 0.0
    assert PLDAccountant(relation).compose(event).get_epsilon(delta) <= ours.upper + 2e-3


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("relation", [ADD, ZERO], ids=str)
@pytest.mark.parametrize("largest", [1, 6, 12])
def test_their_truncated_samples_are_ours(relation, largest):
    """The same law of who takes part; theirs takes a worse pair for the rounds that are full."""
    event = dpa.TruncatedSubsampledGaussianDpEvent(60, 0.1, largest, 1.3)
    theirs = PLDAccountant(relation).compose(event, 20).get_epsilon(1e-5)
    ours = CertifiedAccountant(relation).compose(event, 20).bound(1e-5)
    assert 0.0 < ours.lower <= theirs
    if relation == ADD:
        assert 0.999 * ours.upper <= theirs <= 1.1 * ours.upper


def test_truncated_samples_of_nobody_release_nothing():
    for fields in [(0, 0.1, 9, 1.0), (60, 0.0, 9, 1.0), (60, 0.1, 0, 1.0)]:
        with pytest.raises(ConversionError, match=r"releases no output"):
            from_event(dpa.TruncatedSubsampledGaussianDpEvent(*fields))
    with pytest.raises(ConversionError, match=r"not private"):
        from_event(dpa.TruncatedSubsampledGaussianDpEvent(60, 0.1, 9, 0.0))


@pytest.mark.fast_cells("10")
@pytest.mark.parametrize("count", [1, 10])
def test_their_distributions_know_replace_one(count):
    for event in (G, dpa.PoissonSampledDpEvent(0.1, G)):
        ours = CertifiedAccountant(SWAP).compose(event, count).bound(1e-5)
        theirs = PLDAccountant(SWAP).compose(event, count).get_epsilon(1e-5)
        assert ours.lower <= theirs <= ours.upper + 2e-3


# ---- the library's errors, each against an independent value


def test_their_distributions_forget_the_count_of_randomised_response():
    """Ten flips lose 6.930; the accountant says what one flip loses."""
    event, delta = dpa.RandomizedResponseDpEvent(2 / 3, 2), 1e-5
    stays = mpmath.mpf(2) / 3  # 1 - p + p/2 at p = 2/3: odds 2 to 1
    losses = [(2 * k - 10) * mpmath.log(2) for k in range(11)]
    chances = [mpmath.binomial(10, k) * stays**k * (1 - stays) ** (10 - k) for k in range(11)]

    def true_delta(epsilon):
        pairs = zip(losses, chances, strict=True)
        return sum(p * (1 - mpmath.exp(epsilon - x)) for x, p in pairs if x > epsilon)

    pld, rdp = (account.compose(event, 10).get_epsilon(delta) for account in pair(SWAP))
    directly = distribution.from_randomized_response(2 / 3, 2).self_compose(10)
    assert true_delta(6.930) > delta > true_delta(6.931)
    assert pld == pytest.approx(math.log(2), abs=1e-3)
    assert true_delta(pld) > 0.6
    ours = CertifiedAccountant(SWAP).compose(event, 10).bound(delta)
    assert true_delta(ours.lower) >= delta >= true_delta(ours.upper)
    for sound in (rdp, directly.get_epsilon_for_delta(delta), ours.upper):
        assert 6.930 < sound < 6.932


def test_their_accountants_disagree_on_replace_one():
    """The event promises norms of at most C, so a replacement moves the sum by 2 C."""
    event, delta = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1.0), 3), 1e-5
    pld, rdp = (account.compose(event).get_epsilon(delta) for account in pair(SWAP))
    low, high = CertifiedAccountant(SWAP).compose(event).bound(delta).resolution
    moves = 2 * mpmath.sqrt(3)
    assert truth.gaussian_delta(low, moves) >= delta >= truth.gaussian_delta(high, moves)
    assert pld == pytest.approx(high, abs=1e-3) == pytest.approx(20.125, abs=1e-3)
    assert rdp == pytest.approx(9.01, abs=1e-2)
    assert truth.gaussian_delta(rdp, moves) > 1000 * delta


def test_their_renyi_accountant_halves_laplace_under_replace_one():
    theirs = RdpAccountant(neighboring_relation=SWAP).compose(dpa.LaplaceDpEvent(1.0))
    ours = CertifiedAccountant(SWAP).compose(dpa.LaplaceDpEvent(1.0)).bound(1e-5)
    true = 2 + 2 * mpmath.log(1 - mpmath.mpf("1e-5"))  # delta = 1 - exp((epsilon - 2) / 2)
    assert ours.lower <= true <= ours.upper
    assert theirs.get_epsilon(1e-5) < 1.01


def test_their_renyi_accountant_forgets_repeats_inside_a_sample_with_whole_noise():
    """Sixteen sums on one sample are one sum with a quarter of the noise."""
    found = {}
    for noise in (1, 1.0):
        inner = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(noise), 16)
        event = dpa.PoissonSampledDpEvent(0.5, inner)
        found[noise, type(noise)] = RdpAccountant().compose(event).get_epsilon(1e-5)
        low, high = CertifiedAccountant(ADD).compose(event).bound(1e-5).resolution
        assert truth.sampled_delta(low, 4, 0.5) >= 1e-5 >= truth.sampled_delta(high, 4, 0.5)
    assert found[1.0, float] > high > 20.0
    assert found[1, int] < 5.0


# ---- vectors


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("moves", [0.5, 2.0, 6.0])
def test_one_number_is_the_worst_vector_for_laplace(share, moves):
    """Events allow vectors of bounded 1-norm; one coordinate taking it all dominates."""
    one = fp.Laplace(noise_multiplier=1 / moves)
    parts = [fp.Laplace(noise_multiplier=1 / (moves * part)) for part in (share, 1 - share)]
    for epsilon in (0.0, 0.2 * moves, 0.6 * moves, 0.95 * moves):
        spread = fp.delta(parts[0] + parts[1], epsilon=epsilon, adjacency="zero_out")
        assert spread.lower <= fp.delta(one, epsilon=epsilon, adjacency="zero_out").upper


def test_a_list_that_is_changed_later_changes_nothing_composed():
    """Its state gave .027 for a run that had cost 4.377."""
    account, events = CertifiedAccountant(ADD), [dpa.GaussianDpEvent(1.0)]
    account.compose(dpa.ComposedDpEvent(events))
    events[0] = dpa.GaussianDpEvent(100.0)
    twin = CertifiedAccountant(ADD).restore(json.loads(json.dumps(account.state())))
    assert twin.get_epsilon(1e-5) == account.get_epsilon(1e-5)


def test_an_event_of_correlated_noise_never_has_more_of_it():
    """Divided to the nearest, five of these had more by a rounding."""
    factor, rule = fp.factors.BufferedToeplitz(2), fp.MinimumSeparation(4)
    for step in range(40):
        run = fp.CorrelatedNoise(
            factor=factor, noise_multiplier=0.5 + step / 16.1, rounds=8, participation=rule
        )
        told = to_event(run, adjacency="zero_out").noise_multiplier
        most = Fraction(run.noise_multiplier) / Fraction(run.sensitivity.upper)
        assert 0 <= 1 - Fraction(told) / most < 2**-51
