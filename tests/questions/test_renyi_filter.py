"""The Renyi filter counts both orientations of a loss, and the larger sum decides."""

import math
from dataclasses import replace

import pytest

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted
from fedprivacy.questions.renyi_filter import RenyiFilter
from tests.questions.test_budget import budget, spend_all

ROUND = fp.Gaussian(noise_multiplier=1.5).sampled(fp.Poisson(0.01))
LOUD = fp.Gaussian(noise_multiplier=1.2).sampled(fp.Poisson(0.02))


def test_the_filter_for_adaptive_schedules_is_never_exceeded():
    """For any next request, the rounds together stay within the budget, by RDP and by PLD."""
    account = budget(adaptive=True, epsilon=2.0)
    kinds = [ROUND, LOUD, fp.Gaussian(noise_multiplier=30.0)]
    spent = [0, 0, 0]
    for i in range(3000):
        kind = (i * i + i // 7) % 3
        if account.allows(kinds[kind]):
            account.spend(kinds[kind])
            spent[kind] += 1
    run = None
    for kind, count in zip(kinds, spent, strict=True):
        assert count > 0
        run = kind * count if run is None else run + kind * count
    ask = {"delta": 1e-5, "adjacency": "add_remove"}
    assert fp.epsilon(run, accountant="rdp", **ask).upper <= 2.0
    assert fp.epsilon(run, accountant="pld", **ask).upper <= 2.0
    assert "filter" in account.rule


def test_the_filter_refuses_what_does_not_fit():
    account = budget(adaptive=True, epsilon=0.5)
    loudest = fp.Gaussian(noise_multiplier=0.5)
    assert not account.allows(loudest)
    with pytest.raises(BudgetExhausted, match="RDP filter"):
        account.spend(loudest)
    assert account.spent() is None


def test_the_filter_is_no_larger_than_the_rdp_account():
    fixed = spend_all(budget(accountant="rdp"), lambda _: ROUND)
    adaptive = spend_all(budget(adaptive=True), lambda _: ROUND)
    assert 0.9 * fixed <= adaptive <= fixed


EPSILON, DELTA = 2.0, 1e-6
ONE_SIDED = {
    0.1: fp.Gaussian(noise_multiplier=2.0).sampled(fp.Poisson(0.1)),
    0.3: fp.Gaussian(noise_multiplier=4.0).sampled(fp.Poisson(0.3)),
}


def sides(chance):
    """Return a loss whose orientations differ, and the same with them exchanged."""
    loss = ONE_SIDED[chance].privacy_loss("add_remove")
    return loss, replace(loss, curve=loss.curve.swap(), witness=None)


def filled(loss):
    """Return a filter after as many rounds as fit, and how many these are."""
    found, rounds = RenyiFilter(loss.curve, EPSILON, DELTA, 0.0), 0
    while found.allows(loss):
        found.spend(loss)
        rounds += 1
    return found, rounds


@pytest.mark.parametrize("chance", ONE_SIDED)
def test_the_dearer_orientation_decides_whichever_it_is(chance):
    loss, turned = sides(chance)
    (one, rounds), (other, as_many) = filled(loss), filled(turned)
    assert rounds == as_many > 1 and one.order == other.order
    divergences = [
        curve.moments().log_moment(one.order) / (one.order - 1.0)
        for curve in (loss.curve, turned.curve)
    ]
    assert max(divergences) > 1.2 * min(divergences)
    assert rounds == math.floor(one.limit / max(divergences))
    # In the order of each: what costs more in one orientation costs less in the other.
    assert one.total == pytest.approx([rounds * each for each in divergences], rel=1e-9)
    assert other.total == pytest.approx(one.total[::-1], rel=1e-9)
    assert one.kept and other.kept


@pytest.mark.parametrize("chance", ONE_SIDED)
def test_a_filter_is_not_kept_where_one_orientation_is_above_its_limit(chance):
    for loss in sides(chance):
        found, _ = filled(loss)
        found.spend(loss)
        assert not found.kept
        assert min(found.total) <= found.limit < max(found.total)
