"""The budget: never exceeded, and queried without spending."""

from copy import copy
from dataclasses import FrozenInstanceError, replace

import pytest

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted, LedgerError, UnsupportedCombination

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


def test_the_game_accountant_keeps_a_budget_too():
    """A KeyError came at the first round."""
    account = fp.Budget(0.1, 1e-5, adjacency="replace_one", accountant="game")
    round_ = fp.Gaussian(noise_multiplier=4.0).sampled(fp.FixedSize(20, population=200))
    assert not account.allows(round_)
    with pytest.raises(BudgetExhausted, match="game accountant"):
        account.spend(round_)


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


def test_names_are_checked():
    with pytest.raises(fp.ParameterError, match="accountant must be one of"):
        budget(accountant="moments")
    with pytest.raises(fp.ParameterError, match="adjacency must be one of"):
        budget(adjacency="removal")
    with pytest.raises(fp.ParameterError, match="observer must be one of"):
        budget(observer="nobody")
    with pytest.raises(fp.ParameterError, match="adaptive must be True or False, got 'no'"):
        budget(adaptive="no")
    with pytest.raises(fp.ParameterError, match="spending must be the spending of another budget"):
        budget(spending=3)
    with pytest.raises(fp.ParameterError, match="accountant must be left at its default"):
        budget(accountant="advanced", adaptive=True)


@pytest.mark.parametrize("adaptive", [True, False])
def test_units_do_not_add(adaptive):
    """A filter added them, and returned 6 for a client of 20 records that had lost 284."""
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
    """After a reset, a budget that had spent 3.85 returned .1, or allowed as many rounds again."""
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


def told(noise_std, cohort=5):
    shown = {"cohort": cohort, "arrived": cohort, "refused": 0, "denominator": 5.0}
    return shown | {"noise_std": noise_std}


def write(ledger, round_, count, noise_std=1.5, used=None, cohort=None):
    for index in range(count):
        number = ledger.intent(round_, clip_norm=1.0, noise_std=noise_std)
        if used is not None:
            ledger.done(number, **told(used, 5 + index % 3 if cohort is None else cohort))


def test_a_new_budget_is_charged_with_what_a_ledger_holds(tmp_path):
    """A loop that continued with a new budget began to spend anew."""
    other = fp.Gaussian(noise_multiplier=3.0, unit="client").sampled(fp.Poisson(0.02))
    with new_ledger(tmp_path / "run.ledger") as ledger:
        write(ledger, ROUND, 3)
        ledger.abort(2, "nobody answered")
        write(ledger, other, 1, noise_std=3.0)
        account, wanted = budget(), budget()
        for _ in range(2):
            # Again does no harm.
            account.charge(ledger)
        assert wanted.keeps([(ROUND, 2), (other, 1)])
        told = ("valid only if aborts do not depend on the cohort sizes",)
        assert account.spent() == replace(wanted.spent(), qualified=told)
        with pytest.raises(BudgetExhausted):
            budget(epsilon=1e-3).charge(ledger)


def test_an_adaptive_budget_asks_for_an_adaptive_ledger(tmp_path):
    """An audit certified 2.206 where the filter certifies 8: to it the rounds were fixed."""
    account = budget(adaptive=True)
    with new_ledger(tmp_path / "fixed") as ledger:
        with pytest.raises(fp.ParameterError, match=r"schedule must be 'adaptive' .*budget_rule"):
            account.charge(ledger)
        budget().charge(ledger)
    led = new_ledger(tmp_path / "led", schedule="adaptive")
    with led, pytest.raises(fp.ParameterError, match=r"schedule must be 'fixed' .*adaptive=True"):
        budget().charge(led)
    with new_ledger(tmp_path / "a", schedule="adaptive", budget_rule=account.rule) as ledger:
        write(ledger, ROUND, 2)
        account.charge(ledger)
        assert account.spent().upper == 1.0


CLIENTS = fp.Gaussian(noise_multiplier=1.5, unit="client").sampled(fp.Poisson(0.01))


def test_recorded_rounds_are_charged_with_the_noise_that_they_had(tmp_path):
    """A fifth of the noise was charged as the full noise: 2.35, the truth is 61.2."""
    account = budget(epsilon=100.0)
    with new_ledger(tmp_path / "run.ledger") as ledger:
        write(ledger, CLIENTS, 5, used=0.3)
        account.charge(ledger)
        known = fp.account(ledger, delta=1e-5)
        with pytest.raises(BudgetExhausted, match=r"the rounds of .* exceed epsilon = 1 "):
            (small := budget()).charge(ledger)
        # The spent part stays spent: no round fits any more.
        assert small.spent().upper == pytest.approx(known.upper, rel=2e-3)
        assert not small.allows(CLIENTS)
        small.charge(ledger)
    assert account.spent().upper == pytest.approx(known.upper, rel=2e-3)
    assert known.upper > 10.0


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_recorded_round_without_noise_has_no_price(tmp_path, adaptive):
    account = budget(adaptive=adaptive)
    schedule = "adaptive" if adaptive else "fixed"
    with new_ledger(tmp_path / "run.ledger", schedule=schedule) as ledger:
        write(ledger, CLIENTS, 1, used=1.5)
        write(ledger, CLIENTS, 1, used=0.0)
        with pytest.raises(LedgerError, match="no epsilon"):
            account.charge(ledger)
    assert account.spent() is None


def test_a_filter_that_a_ledger_went_beyond_certifies_nothing(tmp_path):
    account = budget(adaptive=True)
    with new_ledger(tmp_path / "run.ledger", schedule="adaptive") as ledger:
        write(ledger, CLIENTS, 3, used=0.2)
        with pytest.raises(BudgetExhausted, match="exceed"):
            account.charge(ledger)
    assert not account.allows(CLIENTS)
    with pytest.raises(BudgetExhausted, match="exceed"):
        account.spent()


def test_a_ledger_that_speaks_against_its_rounds_is_not_charged(tmp_path):
    """An account refused a run for which a budget returned a number."""
    account, scheme = budget(epsilon=50.0), fp.FixedSize(10, population=100)
    step = fp.Gaussian(noise_multiplier=1.5, unit="client").sampled(scheme)
    with fp.Ledger.create(tmp_path / "l", unit="client", adjacency="zero_out") as ledger:
        write(ledger, step, 3, used=1.5, cohort=60)
        account = fp.Budget(50.0, 1e-5, adjacency="zero_out")
        with pytest.raises(
            UnsupportedCombination, match="the recorded run differs from the accounted one"
        ):
            account.charge(ledger)
    assert account.spent() is None


def test_what_the_number_depends_on_is_told_with_it(tmp_path):
    account = budget(epsilon=50.0)
    with new_ledger(tmp_path / "run.ledger", seed_policy="fixed") as ledger:
        write(ledger, CLIENTS, 2, used=1.5)
        account.charge(ledger)
    assert account.spent().qualified == ("the seed was fixed",)


def noise(**changed):
    rule = fp.MinimumSeparation(2, at_most=3)
    given = {"noise_multiplier": 4.0, "rounds": 6, "participation": rule, "unit": "client"}
    return fp.CorrelatedNoise(factor=fp.factors.Tree(), **given | changed)


def test_rows_with_less_noise_are_charged_as_a_run_that_has_as_little(tmp_path):
    account, run = fp.Budget(100.0, 1e-5, adjacency="zero_out"), noise()
    with fp.Ledger.create(tmp_path / "l", unit="client", adjacency="zero_out") as ledger:
        for index in range(4):
            number = ledger.intent(run.row(index), clip_norm=1.0, noise_std=4.0)
            ledger.done(number, **told(2.0 if index in (1, 3) else 4.0))
        account.charge(ledger)
    both = fp.epsilon(run + noise(noise_multiplier=2.0), delta=1e-5, adjacency="zero_out")
    assert account.spent().upper == pytest.approx(both.upper, rel=2e-3)


def test_a_budget_that_is_raised_knows_what_was_spent(tmp_path):
    """`replace` forgot it: 8 more were allowed after 8, and again after each."""
    account = budget()
    count = spend_all(account, lambda _: ROUND)
    before = account.spent()
    raised = replace(account, epsilon=2.0)
    assert raised.spent() == before
    more = spend_all(raised, lambda _: ROUND)
    run = ROUND * (count + more)
    assert fp.epsilon(run, delta=1e-5, adjacency="add_remove").upper <= 2.0
    # They count together: the first one is behind its end now.
    assert not account.allows(fp.Gaussian(noise_multiplier=50.0))
    with new_ledger(tmp_path / "run.ledger") as ledger:
        write(ledger, CLIENTS, 1)
        wide = fp.Budget(50.0, 1e-5, adjacency="add_remove")
        wide.charge(ledger)
        before = wide.spent()
        wider = replace(wide, epsilon=60.0)
        wider.charge(ledger)
    assert wider.spent().upper == pytest.approx(before.upper, rel=1e-3)


@pytest.mark.parametrize(
    "adaptive, changed",
    [
        (False, {"adjacency": "zero_out"}),
        (False, {"observer": "server"}),
        (False, {"adaptive": True}),
        (True, {"epsilon": 2.0}),
        (True, {"delta": 1e-4}),
    ],
)
def test_other_settings_do_not_take_over_what_was_spent(adaptive, changed):
    account = budget(adaptive=adaptive)
    assert account.allows(ROUND)
    account.spend(ROUND)
    with pytest.raises(fp.ParameterError, match=r"must stay .*, since rounds were spent under it"):
        replace(account, **changed)


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda b: b.charge("run.ledger"), "ledger must be a Ledger, got 'str'; Ledger.open|fp.Le"),
        (lambda b: b.charge(None), "ledger must be a Ledger, got 'NoneType'"),
        (lambda b: b.keeps(5), r"steps must be \(round, count\) pairs, got 5"),
        (lambda b: b.keeps([ROUND]), r"steps must be \(round, count\) pairs, got Sampled"),
    ],
)
def test_what_is_no_ledger_and_no_steps_is_refused(call, told):
    with pytest.raises(fp.ParameterError, match=told):
        call(budget())


@pytest.mark.parametrize(
    "first, changed",
    [
        ({"adaptive": True}, {"epsilon": 8.0}),
        ({"adaptive": True}, {"delta": 1e-9}),
        ({}, {"adaptive": True}),
        ({}, {"adjacency": "zero_out"}),
    ],
)
def test_two_budgets_of_one_spending_do_not_count_by_different_settings(first, changed):
    """One budget reported 1 by its own filter, although the other had spent 7.39."""
    one = budget(**first)
    other = replace(one, **changed)
    other.spend(ROUND)
    for ask in (one.spent, lambda: one.allows(ROUND), lambda: one.spend(ROUND)):
        with pytest.raises(
            fp.ParameterError, match=r"must stay .*, since rounds were spent under it"
        ):
            ask()


def test_a_round_that_was_counted_under_way_counts_again_for_less_noise(tmp_path):
    """It stayed charged as planned: 2.75 of 49.88."""
    account = budget(epsilon=500.0)
    with new_ledger(tmp_path / "run.ledger") as ledger:
        number = ledger.intent(CLIENTS, clip_norm=1.0, noise_std=1.5)
        account.charge(ledger)
        before = account.spent()
        ledger.done(number, **told(0.15))
        account.charge(ledger)
        known = fp.account(ledger, delta=1e-5)
        again = account.spent()
        account.charge(ledger)
        assert account.spent() == again
    assert before.upper < known.upper <= again.upper <= 1.2 * known.upper


def test_a_round_aborted_after_it_was_charged_stands_for_no_other(tmp_path):
    """Only how many were charged was compared: 4.09 of 19.63."""
    account = budget(epsilon=500.0)
    loud = fp.Gaussian(noise_multiplier=0.3, unit="client").sampled(fp.Poisson(0.01))
    with new_ledger(tmp_path / "run.ledger") as ledger:
        number = ledger.intent(CLIENTS, clip_norm=1.0, noise_std=1.5)
        account.charge(ledger)
        ledger.abort(number, "nobody answered")
        ledger.done(ledger.intent(loud, clip_norm=1.0, noise_std=0.3), **told(0.3))
        account.charge(ledger)
        assert fp.account(ledger, delta=1e-5).upper <= account.spent().upper


def test_equal_rows_of_another_ledger_are_of_another_run(tmp_path):
    """Rows 0 and 1 here and 2 and 3 there were one run: 3.34 of 4.98."""
    account, run = fp.Budget(100.0, 1e-5, adjacency="zero_out"), noise()
    for name, rows in (("a", (0, 1)), ("b", (2, 3))):
        with fp.Ledger.create(tmp_path / name, unit="client", adjacency="zero_out") as ledger:
            for row in rows:
                number = ledger.intent(run.row(row), clip_norm=1.0, noise_std=4.0)
                ledger.done(number, **told(4.0))
            account.charge(ledger)
    two = fp.epsilon(run * 2, delta=1e-5, adjacency="zero_out")
    assert account.spent().upper == pytest.approx(two.upper, rel=2e-3)


def test_of_a_copy_that_went_another_way_the_rest_is_counted(tmp_path):
    """They share a nonce, and its rounds passed for those that were charged."""
    account, path = budget(epsilon=500.0), tmp_path / "run.ledger"
    with new_ledger(path) as ledger:
        write(ledger, CLIENTS, 1, used=1.5)
    (tmp_path / "fork").write_bytes(path.read_bytes())
    for place, cohort in ((path, 7), (tmp_path / "fork", 8)):
        with fp.Ledger.open(place, resume=True) as ledger:
            write(ledger, CLIENTS, 1, used=1.5, cohort=cohort)
        account.charge(fp.Ledger.open(place))
    assert sum(account.spending.rounds.values()) == 3


def test_a_ledger_far_beyond_a_budget_is_counted_at_once(tmp_path):
    """Every round was queried separately, with its own account: 93 s for 10,000."""
    account = budget(epsilon=0.01)
    with new_ledger(tmp_path / "run.ledger") as ledger:
        write(ledger, CLIENTS, 300)
        asked = []
        object.__setattr__(account, "_fits", lambda parts: asked.append(parts) or False)
        with pytest.raises(BudgetExhausted):
            account.charge(ledger)
    assert len(asked) == 1 and sum(account.spending.rounds.values()) == 300


def test_what_speaks_against_a_run_is_looked_for_as_it_ends(tmp_path):
    account = fp.Budget(50.0, 1e-5, adjacency="zero_out")
    step = fp.Gaussian(noise_multiplier=1.5, unit="client")
    step = step.sampled(fp.FixedSize(10, population=100))
    with fp.Ledger.create(tmp_path / "l", unit="client", adjacency="zero_out") as ledger:
        account.charge(ledger)
        number = ledger.intent(step, clip_norm=1.0, noise_std=1.5)
        account.spend(step, ledger=ledger, number=number)
        ledger.done(number, **told(1.5, cohort=60))
        account.ended(ledger, number)
        assert account.spent() is not None
        account.confirm(ledger)
    assert not account.allows(step)
    with pytest.raises(
        UnsupportedCombination, match="the recorded run differs from the accounted one"
    ):
        account.spent()
