"""Accountant, tolerance and deadline mean the same in every question."""

import inspect
import math
import sys
from functools import cache

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.loss import clock

STEP = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Poisson(0.1))
RUN = STEP * 50
ONE = fp.Gaussian(noise_multiplier=2.0)
# Many kinds of fixed-size rounds: no line suits them, so that a lattice is refined for a while.
SLOW = fp.Gaussian(noise_multiplier=1.0).sampled(fp.FixedSize(5, population=50)) * 30
for z in (1.1, 1.2):
    SLOW = SLOW + fp.Gaussian(noise_multiplier=z).sampled(fp.FixedSize(5, population=60)) * 20
ZERO = {"adjacency": "zero_out"}

QUESTIONS = {
    "epsilon": lambda run=RUN, **how: fp.epsilon(run, delta=1e-5, **ZERO, **how),
    "delta": lambda run=RUN, **how: fp.delta(run, epsilon=1.0, **ZERO, **how),
    "profile": lambda run=RUN, **how: fp.profile(run, epsilons=[0.5, 1.0], **ZERO, **how),
    "calibrate": lambda run=RUN, **how: fp.calibrate(
        lambda n: run * n, epsilon=30.0, delta=1e-5, integer=True, **ZERO, **how
    ),
    "tradeoff_curve": lambda run=RUN, **how: fp.tradeoff_curve(run, fpr=[0.1], **ZERO, **how),
    "attack_risk": lambda run=RUN, **how: fp.attack_risk(run, fpr=0.1, **ZERO, **how),
    "audit": lambda run=RUN, **how: fp.audit(run, claim=(30.0, 1e-5), **ZERO, **how),
    "account": lambda run=RUN, **how: fp.account(run, delta=1e-5, **ZERO, **how),
    "pareto": lambda run=RUN, **how: fp.pareto(
        {1: run}, cost=lambda label: label, delta=1e-5, **ZERO, **how
    ),
}
every = pytest.mark.parametrize("question", QUESTIONS)


def published(question, answer):
    """Return the number of an answer that may be published: an upper end."""
    return {
        "epsilon": lambda: answer.upper,
        "delta": lambda: answer.upper,
        "profile": lambda: answer.upper[0],
        "calibrate": lambda: answer.bound.upper,
        "tradeoff_curve": lambda: 1.0 - answer.worst.lower[0],
        "attack_risk": lambda: answer.tpr.upper[0],
        "audit": lambda: answer.bound.upper,
        "account": lambda: answer.upper,
        "pareto": lambda: answer.settings[0].bound.upper,
    }[question]()


def test_no_question_is_left_out():
    """Every public function with one of the three is tested here, unless it sets a budget."""
    asked = {
        name
        for name in fp.__all__
        if (inspect.isfunction(getattr(fp, name)) or name == "audit")
        and {"accountant", "tolerance", "deadline"}
        & set(inspect.signature(getattr(fp, name)).parameters)
    }
    # A search for a setting, whose answers all have the usual accountant.
    assert asked - {"choose"} == set(QUESTIONS)


@every
def test_every_question_takes_all_three(question):
    parameters = inspect.signature(getattr(fp, question)).parameters
    assert {"accountant", "tolerance", "deadline"} <= set(parameters)
    assert parameters["deadline"].default is None


@every
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"accountant": "moments"}, "accountant must be one of 'pld', 'rdp', 'advanced' or 'game'"),
        ({"accountant": 3}, "accountant must be one of"),
        ({"tolerance": 0.0}, "tolerance must be a finite number above 0"),
        ({"tolerance": math.nan}, "tolerance must be a finite number above 0"),
        ({"tolerance": "fine"}, "tolerance must be a finite number above 0"),
        ({"deadline": 0.0}, "deadline must be a finite number above 0"),
        ({"deadline": -1.0}, "deadline must be a finite number above 0"),
        ({"deadline": math.inf}, "deadline must be a finite number above 0"),
    ],
    ids=str,
)
def test_every_question_refuses_the_same_values_in_the_same_words(question, how, words):
    with pytest.raises(fp.ParameterError, match=words):
        QUESTIONS[question](**how)


@every
@pytest.mark.parametrize("accountant", ["rdp", "advanced"])
def test_every_question_asks_the_accountant_that_is_named(question, accountant):
    """An account by upper ends only is certified, and looser than the interval."""
    if accountant == "advanced" and question in ("tradeoff_curve", "attack_risk"):
        pytest.skip("a quarter of a minute: a curve is made of many deltas")
    best = published(question, QUESTIONS[question](ONE, tolerance=0.05))
    looser = published(question, QUESTIONS[question](ONE, accountant=accountant))
    if question == "calibrate":
        assert looser <= 30.0 and best <= 30.0
    else:
        assert looser >= best * (1 - 0.051)
    if question == "audit":
        found = QUESTIONS["audit"](ONE, accountant=accountant)
        assert set(found.bounds["aggregate"]) == {accountant}
        assert set(QUESTIONS["audit"](ONE).bounds["aggregate"]) == set(ACCOUNTANTS)


@cache
def unhurried(question):
    """The answer without a deadline; an account's is that of ``epsilon``."""
    return QUESTIONS[question](SLOW)


@pytest.mark.fast_cells(
    "epsilon", "delta", "profile", "calibrate", "attack_risk", "audit", "account", "pareto"
)
@every
def test_a_deadline_ends_every_question_with_a_certified_answer(question):
    fine = {"tolerance": 1e-8}
    # The clock of the tests advances with each look: see randomness.py.
    before = clock.now.count
    hasty = QUESTIONS[question](SLOW, deadline=1e-6, accountant="pld", **fine)
    assert clock.now.count - before < 2_000
    if question == "calibrate":
        assert hasty.bound.upper <= 30.0
    elif question in ("epsilon", "delta", "account"):
        truth = unhurried("epsilon" if question == "account" else question)
        assert published(question, hasty) >= published(question, truth) * (1 - 1e-3)
        assert hasty.reason or hasty.upper - hasty.resolution[0] <= 1e-8


def test_a_deadline_is_for_a_whole_comparison_and_not_for_each_setting(monkeypatch):
    """Each setting is given what those before it left, and answers all the same."""
    module, given = sys.modules["fedprivacy.runs.pareto"], []
    real = module.epsilon_of

    def asked(run, **how):
        given.append(how["deadline"])
        return real(run, **how)

    monkeypatch.setattr(module, "epsilon_of", asked)
    runs = {place: SLOW + STEP * place for place in (1, 2, 3)}
    found = fp.pareto(runs, cost=lambda place: place, delta=1e-5, deadline=0.05, **ZERO)
    assert 0.05 >= given[0] > given[1] >= given[2] > 0.0
    assert all(math.isfinite(setting.bound.upper) for setting in found.settings)


def test_a_tolerance_is_absolute_for_epsilon_and_relative_for_probabilities():
    for tolerance in (0.1, 1e-3):
        how = {"tolerance": tolerance}
        bound = QUESTIONS["epsilon"](**how)
        assert bound.upper - bound.resolution[0] <= tolerance
        bound = QUESTIONS["delta"](**how)
        assert bound.upper - bound.resolution[0] <= tolerance * bound.upper
        curve = QUESTIONS["profile"](**how)
        assert np.all(curve.upper - curve.lower <= tolerance * curve.upper)
        risk = QUESTIONS["attack_risk"](**how).tpr
        assert np.all(risk.upper - risk.lower <= tolerance * risk.upper)
        audit = QUESTIONS["audit"](**how).bound
        assert audit.upper - audit.resolution[0] <= tolerance


def test_a_profile_goes_to_infinity():
    run = fp.Gaussian(noise_multiplier=1.0)
    curve = fp.profile(run, epsilons=[0.0, math.inf], **ZERO)
    assert curve.upper[1] == 0.0 and 0.38 < curve.upper[0] < 0.39
    with pytest.raises(fp.ParameterError, match="epsilons must be a number of at least 0"):
        fp.profile(run, epsilons=[math.nan], **ZERO)


def test_the_filters_sum_never_rounds_down():
    """Ten thousand spends of a third cost no less than one of their number."""
    from fractions import Fraction

    step = fp.Gaussian(noise_multiplier=3.0**0.5 * 100)
    budget = fp.Budget(8.0, 1e-5, adjacency="zero_out", adaptive=True)
    for _ in range(1000):
        budget.spend(step)
    loss = step.privacy_loss("zero_out")
    kept = budget.spending.filter
    exact = Fraction(kept.order) / 2 / 30000 * 1000
    assert all(Fraction(total) >= exact * (1 - Fraction(1, 10**12)) for total in kept.total)
    one = Fraction(loss.curve.moments().log_moment(kept.order)) / (Fraction(kept.order) - 1)
    assert all(Fraction(total) >= 1000 * one for total in kept.total)
    assert all(total <= float(exact) * (1 + 1e-11) for total in kept.total)
