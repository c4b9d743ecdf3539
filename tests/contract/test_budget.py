"""The budget: never exceeded, and asked without spending."""

from copy import copy
from dataclasses import FrozenInstanceError

import pytest

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted

ROUND = fp.Gaussian(noise_multiplier=1.5).sampled(fp.Poisson(0.01))
LOUD = fp.Gaussian(noise_multiplier=1.2).sampled(fp.Poisson(0.02))


def budget(**changed):
    return fp.Budget(**{"epsilon": 1.0, "delta": 1e-5, "adjacency": "add_remove", **changed})


def spend_all(account, make):
    count = 0
    while account.allows(make(count)):
        account.spend(make(count))
        count += 1
        assert count < 10_000
    return count


@pytest.mark.parametrize("accountant", ["pld", "rdp", "advanced"])
def test_it_is_never_exceeded(accountant):
    account = budget(accountant=accountant)
    count = spend_all(account, lambda _: ROUND)
    assert (account.spent() is None) == (count == 0)
    assert count > 50 or accountant == "advanced"
    assert count == 0 or account.spent().upper <= 1.0
    more = fp.epsilon(
        ROUND * (count + 1), delta=1e-5, adjacency="add_remove", accountant=accountant
    )
    assert more.upper > 1.0


def test_it_takes_as_many_rounds_as_fit():
    count = spend_all(budget(), lambda _: ROUND)
    fits = fp.epsilon(ROUND * count, delta=1e-5, adjacency="add_remove").upper
    assert 0.98 <= fits <= 1.0


def test_a_round_that_does_not_fit_is_refused_and_not_counted():
    account = budget()
    count = spend_all(account, lambda _: ROUND)
    before = account.spent()
    with pytest.raises(BudgetExhausted, match="epsilon = 1 at delta = 1e-05"):
        account.spend(ROUND)
    assert account.spent() == before
    assert count > 50


def test_asking_spends_nothing():
    account = budget()
    for _ in range(5):
        assert account.allows(ROUND) and account.allows(LOUD)
    assert account.spent() is None


@pytest.mark.parametrize("accountant, limit", [("pld", 0.4), ("rdp", 0.8)])
def test_mixed_schedules_add_up(accountant, limit):
    account = budget(accountant=accountant, epsilon=limit)
    kinds = [ROUND] * 12 + [LOUD] * 4
    count = spend_all(account, lambda i: kinds[i % 16])
    loud = sum(kinds[i % 16] is LOUD for i in range(count))
    run = ROUND * (count - loud) + LOUD * loud
    exact = fp.epsilon(run, delta=1e-5, adjacency="add_remove", accountant=accountant)
    assert count > 12
    assert exact.resolution[0] <= limit
    assert account.spent().upper <= limit
    assert account.spent().upper == pytest.approx(exact.upper, abs=2e-3)


def test_a_quieter_round_may_still_fit():
    account = budget()
    spend_all(account, lambda _: LOUD)
    assert not account.allows(LOUD)
    assert account.allows(fp.Gaussian(noise_multiplier=50.0).sampled(fp.Poisson(0.001)))


def test_a_budget_of_nothing_allows_nothing():
    assert not budget(epsilon=0.0).allows(ROUND)


def test_the_filter_for_adaptive_schedules_is_never_exceeded():
    """Whatever is asked next, the rounds together stay within the budget, by RDP and by PLD."""
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


def test_names_are_checked():
    with pytest.raises(fp.ParameterError, match="accountant must be one of"):
        budget(accountant="moments")
    with pytest.raises(fp.ParameterError, match="adjacency must be one of"):
        budget(adjacency="removal")
    with pytest.raises(fp.ParameterError, match="observer must be one of"):
        budget(observer="nobody")
    with pytest.raises(fp.ParameterError, match="accountant must be left at its default"):
        budget(accountant="advanced", adaptive=True)


@pytest.mark.parametrize("adaptive", [True, False])
def test_units_do_not_add(adaptive):
    """A filter added them, and told 6 of a client of 20 records that had lost 284."""
    account = budget(adaptive=adaptive, epsilon=6.0)
    account.spend(fp.Gaussian(noise_multiplier=50.0))
    account.spend(fp.Gaussian(noise_multiplier=50.0, unit="client"))
    before, record = account.spent(), fp.Gaussian(noise_multiplier=50.0, unit="record")
    assert before.facts.unit == "client"
    for ask in (account.allows, account.spend, lambda round_: account.keeps([(round_, 2)])):
        with pytest.raises(fp.ParameterError, match="unit must agree"):
            ask(record)
    assert account.spent() == before


@pytest.mark.parametrize(
    "name, value",
    [("epsilon", 0.1), ("delta", 0.5), ("adjacency", "zero_out"), ("adaptive", True)],
)
def test_what_was_allowed_by_its_settings_keeps_them(name, value):
    """Set anew, a budget that had spent 3.85 told .1, or let as many rounds out again."""
    account = budget()
    account.spend(ROUND)
    with pytest.raises(FrozenInstanceError, match=name):
        setattr(account, name, value)


def test_a_copy_is_a_budget_of_its_own():
    account = budget(adaptive=True)
    other = copy(account)
    account.spend(ROUND)
    assert other.spent() is None
    other.spend(ROUND)
    assert other.spent() == account.spent()


def new_ledger(path, **options):
    return fp.Ledger.create(path, unit="client", adjacency="add_remove", **options)


def write(ledger, round_, count):
    for _ in range(count):
        ledger.intent(round_, clip_norm=1.0, noise_std=1.5)


def test_a_new_budget_is_charged_with_what_a_ledger_holds(tmp_path):
    """A loop that went on with a new budget began to spend anew."""
    other = fp.Gaussian(noise_multiplier=3.0, unit="client").sampled(fp.Poisson(0.02))
    with new_ledger(tmp_path / "run.ledger") as ledger:
        write(ledger, ROUND, 3)
        ledger.abort(2, "nobody answered")
        write(ledger, other, 1)
        account, wanted = budget(), budget()
        for _ in range(2):
            # Again does no harm.
            account.charge(ledger)
        assert wanted.keeps([(ROUND, 2), (other, 1)])
        assert account.spent() == wanted.spent()
        with pytest.raises(BudgetExhausted):
            budget(epsilon=1e-3).charge(ledger)


def test_an_adaptive_budget_asks_for_an_adaptive_ledger(tmp_path):
    """An audit certified 2.206 where the filter certifies 8: to it the rounds were fixed."""
    account = budget(adaptive=True)
    with new_ledger(tmp_path / "fixed") as ledger:
        with pytest.raises(fp.ParameterError, match=r"schedule must be 'adaptive' .*budget_rule"):
            account.charge(ledger)
        budget().charge(ledger)
    with new_ledger(tmp_path / "a", schedule="adaptive", budget_rule=account.rule) as ledger:
        write(ledger, ROUND, 2)
        account.charge(ledger)
        assert account.spent().upper == 1.0
