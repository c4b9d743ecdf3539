"""The properties that every accountant has for every composition."""

import contextlib
import itertools
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS, PldAccountant, RdpAccountant, base

STEP = fp.Gaussian(noise_multiplier=1.2)
POISSON = STEP.sampled(fp.Poisson(0.1))
FIXED = STEP.sampled(fp.FixedSize(3, population=30))
MECHANISMS = {
    "gaussian": STEP,
    "poisson": POISSON,
    "fixed": FIXED,
    "run": POISSON * 2 + STEP * 3,
    "cohort": (POISSON * 2).in_cohort(fp.FixedSize(2, population=8)),
    "nested": (POISSON * 2).in_cohort(fp.Poisson(0.3)) * 2,
}
EACH = pytest.mark.parametrize("kind", ACCOUNTANTS.values(), ids=list(ACCOUNTANTS))
LOSSES = {name: m.privacy_loss("add_remove") for name, m in MECHANISMS.items()}


@EACH
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_compose_m_n_is_n_times_compose_m(kind, name, count):
    at_once, one_by_one = kind().compose(LOSSES[name], count), kind()
    for _ in range(count):
        one_by_one.compose(LOSSES[name])
    assert at_once.loss == one_by_one.loss
    if count == 8:
        assert at_once.epsilon(1e-5) == one_by_one.epsilon(1e-5)


@EACH
def test_order_does_not_matter(kind):
    forth = kind().compose(LOSSES["poisson"], 2).compose(LOSSES["fixed"], 3)
    back = kind().compose(LOSSES["fixed"]).compose(LOSSES["poisson"], 2).compose(LOSSES["fixed"], 2)
    assert forth.epsilon(1e-5).upper == pytest.approx(back.epsilon(1e-5).upper, rel=1e-9)


@EACH
def test_counts_multiply(kind):
    run = POISSON * 3
    assert (run * 4) == POISSON * 12
    by_run = kind().compose(run.privacy_loss("add_remove"), 4)
    assert by_run.epsilon(1e-5).upper == kind().compose(LOSSES["poisson"], 12).epsilon(1e-5).upper


DELTAS = [(PldAccountant, name) for name in MECHANISMS]
DELTAS += [(kind, name) for kind in ACCOUNTANTS.values() for name in ("gaussian", "poisson")][2:]


@pytest.mark.fast_cells(5)
@pytest.mark.parametrize("kind, name", DELTAS)
def test_delta_of_epsilon_comes_back(kind, name):
    account = kind().compose(LOSSES[name], 4)
    epsilon = account.epsilon(1e-5).upper
    back = account.delta(epsilon)
    assert back.resolution[0] <= 1e-5 and back.upper <= 1e-5 * (1 + 5e-3)


@pytest.mark.fast_cells(9)
@EACH
@pytest.mark.parametrize("name", MECHANISMS)
def test_bounds_are_intervals(kind, name):
    account = kind().compose(LOSSES[name], 5)
    found = [account.epsilon(1e-6)]
    if kind is PldAccountant or name == "nested":
        found.append(account.delta(0.5))
    for bound in found:
        low, high = bound.resolution
        assert 0.0 <= bound.lower <= low + 1e-15 and low <= high == bound.upper
        assert not math.isnan(bound.upper)
        assert bound.upper <= 1.0 or bound.quantity == "epsilon"
        json.dumps(bound.to_dict())


@EACH
def test_epsilon_falls_in_delta_and_delta_in_epsilon(kind):
    account = kind().compose(LOSSES["poisson"], 20)
    epsilons = [account.epsilon(d) for d in (1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.9)]
    for tight, loose in itertools.pairwise(epsilons):
        assert loose.resolution[0] <= tight.upper
    deltas = [account.delta(e) for e in (0.0, 0.5, 3.0)]
    for small, large in itertools.pairwise(deltas):
        assert large.resolution[0] <= small.upper


@EACH
def test_a_copy_is_independent(kind):
    account = kind().compose(LOSSES["poisson"])
    twin = account.copy()
    before = twin.epsilon(1e-5)
    account.compose(LOSSES["gaussian"], 5)
    assert twin.epsilon(1e-5) == before
    assert account.epsilon(1e-5).upper > before.upper


@EACH
def test_what_was_asked_before_changes_no_answer(kind):
    fresh = kind().compose(LOSSES["poisson"]).compose(LOSSES["fixed"], 2)
    account = kind().compose(LOSSES["poisson"])
    account.epsilon(1e-5), account.delta(0.5)
    account.compose(LOSSES["fixed"], 2)
    assert account.loss == fresh.loss
    assert (account.epsilon(1e-5), account.delta(0.5)) == (fresh.epsilon(1e-5), fresh.delta(0.5))
    other = kind().compose(LOSSES["gaussian"])
    account.restore(other.state())
    assert account.epsilon(1e-5) == other.epsilon(1e-5) and account.loss == other.loss


@pytest.mark.fast_cells(9)
@EACH
@pytest.mark.parametrize("name", MECHANISMS)
def test_state_survives_json(kind, name):
    account = kind(tolerance=2e-3).compose(LOSSES[name], 3).compose(LOSSES["gaussian"])
    state = json.loads(json.dumps(account.state()))
    back = kind().restore(state)
    assert back.epsilon(1e-5) == account.epsilon(1e-5)
    assert back.tolerance == 2e-3
    assert back.compose(LOSSES[name]).epsilon(1e-5).upper >= account.epsilon(1e-5).resolution[0]


@EACH
@pytest.mark.parametrize(
    "broken", [{}, {"version": 2}, {"version": 1, "accountant": "other"}, None]
)
def test_a_foreign_state_is_refused(kind, broken):
    with pytest.raises(fp.ParameterError, match=r"state"):
        kind().restore(broken)


@EACH
@pytest.mark.parametrize(
    "part",
    [
        {},
        {"count": 1},
        {"loss": {}, "count": 1},
        {"loss": None, "count": 1},
    ],
)
def test_a_damaged_state_is_refused(kind, part):
    state = kind().compose(LOSSES["poisson"]).state()
    with pytest.raises((fp.ParameterError, fp.errors.LedgerError)):
        kind().restore({**state, "parts": [part]})


@EACH
def test_statements_of_different_kinds_do_not_add(kind):
    account = kind().compose(LOSSES["poisson"])
    before = account.epsilon(1e-5)
    for other in (POISSON.privacy_loss("zero_out"), POISSON.privacy_loss("add_remove", "final")):
        with pytest.raises(fp.UnsupportedCombination, match=r"cannot be composed with"):
            account.compose(other)
    client = kind().compose(fp.Gaussian(noise_multiplier=1, unit="client").privacy_loss("zero_out"))
    with pytest.raises(fp.ParameterError, match=r"unit .*record.*client"):
        client.compose(fp.Gaussian(noise_multiplier=1, unit="record").privacy_loss("zero_out"))
    assert account.epsilon(1e-5) == before


@EACH
def test_nothing_composed_is_said_so(kind):
    with pytest.raises(fp.UnsupportedCombination, match=r"at least one round"):
        kind().epsilon(1e-5)


@pytest.mark.fast_cells(9)
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("delta, rounds", [(1e-2, 50), (1e-6, 50), (1e-12, 50)])
def test_all_upper_ends_are_above_the_attained_lower_end(name, delta, rounds):
    attained = PldAccountant().compose(LOSSES[name], rounds).epsilon(delta).lower
    for kind in ACCOUNTANTS.values():
        assert kind().compose(LOSSES[name], rounds).epsilon(delta).upper >= attained


@pytest.mark.parametrize("name", ["gaussian", "fixed", "cohort"])
@pytest.mark.parametrize("epsilon", [0.3])
def test_all_upper_deltas_are_above_the_attained_lower_end(name, epsilon):
    attained = PldAccountant().compose(LOSSES[name], 7).delta(epsilon).lower
    for kind in ACCOUNTANTS.values():
        assert kind().compose(LOSSES[name], 7).delta(epsilon).upper >= attained


def test_tolerance_is_kept_or_the_reason_is_told():
    account_at = {
        t: PldAccountant(tolerance=t).compose(LOSSES["poisson"], 300) for t in (0.1, 1e-5)
    }
    for tolerance, account in account_at.items():
        low, high = account.epsilon(1e-6).resolution
        assert high - low <= tolerance


def test_rdp_searches_orders_far_beyond_a_fixed_grid():
    """sigma = 1000, one round: the best order is in the thousands."""
    bound = RdpAccountant().compose(fp.Gaussian(noise_multiplier=1000.0).privacy_loss("zero_out"))
    found = bound.epsilon(1e-6)
    assert (
        found.upper
        < 1.2
        * fp.epsilon(fp.Gaussian(noise_multiplier=1000.0), delta=1e-6, adjacency="zero_out").upper
    )


def test_rare_rounds_in_rare_cohorts_are_answered():
    inner = fp.Gaussian(noise_multiplier=0.3).sampled(fp.Poisson(7e-8)) * 3
    run = inner.in_cohort(fp.Poisson(0.1)) * 4
    assert fp.epsilon(run, delta=1e-5, adjacency="zero_out", accountant="advanced").upper >= 0.0


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (POISSON * 3, False),
        ((POISSON * 2).in_cohort(fp.Poisson(0.3)) * 2, True),
        (fp.Laplace(noise_multiplier=1.0) * 2 + POISSON, False),
        (POISSON + (POISSON * 2).in_cohort(fp.Poisson(0.3)), True),
    ],
    ids=["plain", "nested", "two kinds", "nested beside plain"],
)
def test_the_method_tells_of_rounds_inside_rounds(run, told):
    found = fp.epsilon(run, delta=1e-5, adjacency="replace_one", accountant="advanced")
    assert ("nested rounds" in found.method) is told


@pytest.mark.parametrize("stage", ["compose_losses", "kinds_of"])
def test_what_is_composed_during_a_question_counts_in_the_next(monkeypatch, stage):
    """As another thread may, in the middle of an answer."""
    accountant = RdpAccountant().compose(
        fp.Gaussian(noise_multiplier=50.0).privacy_loss("add_remove")
    )
    louder = [fp.Gaussian(noise_multiplier=0.3).privacy_loss("add_remove")]
    plain = getattr(base, stage)

    def meanwhile(given):
        found = plain(given)
        if louder:
            accountant.compose(louder.pop())
        return found

    monkeypatch.setattr(base, stage, meanwhile)
    early = accountant.epsilon(1e-5)
    late, fresh = accountant.epsilon(1e-5), accountant.copy().epsilon(1e-5)
    assert early.upper < late.upper == fresh.upper


def test_numbers_that_underflow_keep_their_side():
    quiet = fp.Gaussian(noise_multiplier=1.0)
    facts = {"adjacency": "add_remove"}
    # Phi(1/2 - e) - e^e Phi(-1/2 - e) is 5e-324 at e = 38.8718.
    assert fp.epsilon(quiet, delta=5e-324, **facts).lower <= 38.8718
    assert fp.epsilon(quiet, delta=1e-300, **facts).lower > 36.0
    # A Gaussian delta is never 0.
    assert fp.delta(quiet, epsilon=1e155, **facts).upper > 0.0
    loud = fp.Laplace(noise_multiplier=1.0)
    assert fp.delta(loud, epsilon=1.0, **facts).upper == 0.0


def test_threads_that_share_a_budget_spend_no_more(monkeypatch):
    step = fp.Gaussian(noise_multiplier=10.0)
    one, shared = (fp.Budget(1.0, 1e-5, adjacency="add_remove") for _ in range(2))
    alone = 0
    while one.allows(step):
        one.spend(step)
        alone += 1
    spent: list[int] = []
    plain = fp.Budget.allows

    def slowly(budget, step):
        found = plain(budget, step)
        time.sleep(1e-3)
        return found

    monkeypatch.setattr(fp.Budget, "allows", slowly)

    def spend(number: int) -> None:
        with contextlib.suppress(fp.errors.BudgetExhausted):
            while True:
                shared.spend(step)
                spent.append(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(spend, range(8)))
    assert len(spent) == alone > 1
