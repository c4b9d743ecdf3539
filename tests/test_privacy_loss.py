"""Tests of ``fedprivacy.privacy_loss``."""

import itertools
import math
from dataclasses import dataclass

import pytest

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.errors import ContradictionError
from fedprivacy.loss import Composed, Gdp, LaplacePair, Sampled
from fedprivacy.privacy_loss import (
    PrivacyLoss,
    Witness,
    compose_losses,
    merge_facts,
    merge_units,
)
from fedprivacy.relations import Adjacency, Facts, Observer, Unit
from tests.accountants.test_base import Blind

FACTS = Facts(None, Adjacency.ZERO_OUT, Observer.AGGREGATE)


@pytest.mark.parametrize(
    ("accountant", "count"), [("pld", 1), ("rdp", 1), ("rdp", 3), ("advanced", 1), ("advanced", 3)]
)
def test_what_is_no_number_certifies_nothing(accountant, count):
    """A NaN in a max or min may come out as 0, and did."""
    account = ACCOUNTANTS[accountant](deadline=0.1).compose(PrivacyLoss(Blind(), FACTS), count)
    epsilon, delta = account.epsilon(1e-5), account.delta(1.0)
    assert (epsilon.lower, epsilon.upper) == (0.0, math.inf)
    assert epsilon.reason
    assert (delta.lower, delta.upper) == (0.0, 1.0)
    shown = Witness(Blind(), "two")
    account = ACCOUNTANTS[accountant](deadline=0.1).compose(
        PrivacyLoss(Gdp(1.0), FACTS, shown), count
    )
    assert account.epsilon(1e-5).lower == 0.0


@pytest.mark.parametrize(
    ("curve", "more"),
    [
        (Gdp(1.0), Gdp(1.1)),
        (Gdp(1.0), Gdp(1.0 + 1e-9)),
        (LaplacePair(1.0), LaplacePair(1.01)),
        (Composed(((Sampled(Gdp(1.0), 0.1), 10),)), Composed(((Sampled(Gdp(1.1), 0.1), 10),))),
    ],
    ids=str,
)
def test_more_attained_than_allowed_is_an_error(curve, more):
    """The lower end was cut down to the upper end without a message."""
    account = ACCOUNTANTS["pld"](tolerance=1e-6)
    account.compose(PrivacyLoss(curve, FACTS, Witness(more, "this and that")))
    with pytest.raises(ContradictionError, match="this and that"):
        account.epsilon(1e-3)
    with pytest.raises(ContradictionError, match=r"delta at 0\.1"):
        account.delta(0.1)


def test_pure_ends_are_held_against_each_other_too():
    account = ACCOUNTANTS["rdp"]()
    account.compose(PrivacyLoss(LaplacePair(1.0), FACTS, Witness(Gdp(0.1), "a Gaussian")))
    with pytest.raises(ContradictionError, match="at least inf"):
        account.epsilon(0)


@pytest.mark.parametrize(
    "more",
    [
        Gdp(1.001),
        *(pytest.param(x, marks=pytest.mark.slow) for x in (Gdp(2.0), Sampled(Gdp(9.0), 0.5))),
    ],
    ids=str,
)
@pytest.mark.parametrize("ask", [fp.attack_risk, fp.tradeoff_curve])
def test_an_attack_better_than_the_best_is_an_error(ask, more):
    """The attained number was cut down to the upper end here too."""

    class Torn(fp.Mechanism):
        protects = None

        def loss_under(self, facts):
            return PrivacyLoss(Gdp(1.0), facts, Witness(more, "this and that"))

    with pytest.raises(ContradictionError, match="this and that"):
        ask(Torn(), adjacency="zero_out", tolerance=1e-5)


# ---- facts


@pytest.mark.parametrize("first", [None, *fp.Unit])
@pytest.mark.parametrize("second", [None, *fp.Unit])
def test_units_of_two_statements(first, second):
    if first and second and first != second:
        with pytest.raises(fp.ParameterError, match=f"unit must agree .*got '{second}'; account"):
            merge_units(first, second)
        return
    assert merge_units(first, second) == (first or second)


WATCHED = list(itertools.product(fp.Adjacency, fp.Observer))


@pytest.mark.parametrize("first", WATCHED, ids=str)
def test_statements_about_different_things_do_not_add(first):
    for second in WATCHED:
        one, other = Facts(None, *first), Facts(fp.Unit.RECORD, *second)
        if first == second:
            assert merge_facts(one, other) == other
            continue
        with pytest.raises(fp.UnsupportedCombination) as caught:
            merge_facts(one, other)
        told = str(caught.value)
        assert f"{second[0]}/{second[1]}" in told and f"{first[0]}/{first[1]}" in told


def test_of_different_pairs_that_only_a_first_release_shows_one_counts():
    """The second descent starts where the first one ended, so its pair is not shown."""
    facts = Facts(None, Adjacency.REPLACE_ONE, Observer.AGGREGATE)
    losses = [
        (PrivacyLoss(Gdp(2.0 * mu), facts, Witness(Gdp(mu), f"middle, {mu}", True, True)), 3)
        for mu in (0.5, 0.25)
    ]
    plain = PrivacyLoss(Gdp(1.0), facts, Witness(Gdp(1.0), "always", free=True))
    found = compose_losses([*losses, (plain, 2)]).witness
    assert found is not None and found.alone
    assert found.curve == Gdp(math.sqrt(0.5**2 + 2.0))
    assert found.datasets == "middle, 0.5; then always"


@dataclass(frozen=True)
class CountOf(fp.Mechanism):
    """A noisy number of records of one kind; a record has one kind."""

    kind: str
    free: bool = False
    protects = Unit.RECORD

    def loss_under(self, facts):
        shown = Witness(Gdp(0.5), f"a record of kind {self.kind}, or none", free=self.free)
        return PrivacyLoss(Gdp(0.5), facts, shown, ("GDP",))


def test_pairs_of_different_data_sets_do_not_add_up():
    """A record of kind a is not of kind b: both counts lose no more than one."""
    facts = {"delta": 1e-5, "adjacency": "add_remove"}
    a, b, noisy = CountOf("a"), CountOf("b"), fp.Gaussian(noise_multiplier=2.0)
    one, same, both = (fp.epsilon(run, **facts) for run in (a, a * 2, a + b))
    assert one.lower == pytest.approx(one.upper) and same.lower == pytest.approx(same.upper)
    assert both.lower == pytest.approx(one.lower) and both.upper == pytest.approx(same.upper)
    assert both.witness == "a record of kind a, or none; or a record of kind b, or none"
    # The contribution to a sum is free.
    assert fp.epsilon(a + noisy, **facts).lower == pytest.approx(same.lower)
    assert fp.epsilon(CountOf("a", True) + b, **facts).lower == pytest.approx(same.lower)


def test_a_pair_that_needs_other_units_is_not_attained_by_a_sample():
    facts = {"delta": 1e-5, "adjacency": "add_remove"}
    sampled = [CountOf("a", free).sampled(fp.Poisson(0.1)) for free in (False, True)]
    found = [fp.epsilon(run, **facts) for run in sampled]
    assert found[0].lower == 0.0 < found[1].lower and found[0].upper == found[1].upper
    everyone = fp.epsilon(CountOf("a").sampled(fp.Everyone()), **facts)
    assert everyone.witness == "a record of kind a, or none" and everyone.lower > 1.0
