"""Doubts about a record: each looks at every row, share and mask."""

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.bound import Verdict
from fedprivacy.evidence import Defect
from fedprivacy.evidence.doubts import doubts
from fedprivacy.evidence.noiseless import noiseless
from fedprivacy.evidence.repricing import share_of_noise, spent
from fedprivacy.evidence.revealed import Revealed, revealed_numbers
from fedprivacy.questions.renyi_filter import RenyiFilter

pytestmark = pytest.mark.usefixtures("narrowest")

RUN = fp.CorrelatedNoise(
    factor=fp.factors.Matrix(np.array([[1.0, 0.0], [1.0, 1.0]])),
    noise_multiplier=4.0,
    rounds=2,
    participation=fp.SingleParticipation(),
    unit="client",
)


def recorded(tmp_path, rounds):
    """Record (mechanism, std of the noise, keywords of ``done``) and return the ledger."""
    path = tmp_path / "run.ledger"
    with fp.Ledger.create(path, unit="client", adjacency="zero_out", claim=(90.0, 1e-5)) as ledger:
        for mechanism, std, said in rounds:
            number = ledger.intent(mechanism, clip_norm=1.0, noise_std=std)
            ledger.done(number, **{"refused": 0, "noise_std": std, "denominator": 10.0} | said)
        ledger.close()
    return fp.Ledger.open(path)


ALL = {"cohort": 10, "arrived": 10}


@pytest.mark.parametrize("second", [4.0, 5.0])
def test_a_row_that_comes_twice_is_doubted_whatever_its_noise(tmp_path, second):
    """With other noise the two are not equal rounds, and only their numbers tell."""
    rows = [(RUN.row(0), 4.0, ALL), (RUN.row(1), 4.0, ALL), (RUN.row(1), second, ALL)]
    ledger = recorded(tmp_path, rows)
    assert any("may have been released before" in told for told in doubts(ledger.alike))
    assert fp.audit(ledger).verdict is Verdict.CANNOT_BE_CERTIFIED
    assert not doubts(recorded_again(tmp_path, rows[:2]).alike)


def recorded_again(tmp_path, rounds):
    (tmp_path / "run.ledger").unlink()
    return recorded(tmp_path, rounds)


def test_a_row_of_a_block_without_a_mask_is_doubted(tmp_path):
    """Which coordinates travelled is not known then."""
    block = fp.CorrelatedNoise(
        factor=fp.factors.Identity(),
        noise_multiplier=4.0,
        rounds=2,
        participation=fp.SingleParticipation(),
        unit="client",
        kept=2,
        dimension=8,
    )
    found = fp.audit(recorded(tmp_path, [(block.row(0), 4.0, ALL)]))
    assert found.verdict is Verdict.CANNOT_BE_CERTIFIED
    assert any(
        "a mask that differs from the mask of its block" in line for line in found.auditor_only
    )


def test_clients_whose_updates_are_refused_sent_their_noise(tmp_path):
    share = fp.SparsifiedPerturbation(
        noise_multiplier=2.0, clip_norm=1.0, kept=4, dimension=8, cohort=10
    )
    run = share.sampled(fp.FixedSize(10, population=100))
    some = {"cohort": 10, "arrived": 7, "refused": 3}
    assert not doubts(recorded(tmp_path, [(run, 2.0, some)]).alike)
    # Without the three shares the sum has less noise than the record says.
    less = {"cohort": 10, "arrived": 7}
    assert doubts(recorded_again(tmp_path, [(run, 2.0, less)]).alike)


def told(divisors, rate=0.1, secret=True, noises=(1.0,)):
    one = Revealed(secret, rate, frozenset(divisors), frozenset(noises), 0)
    return list(revealed_numbers([one], follows=False))


def test_a_round_of_several_draws_has_at_least_the_largest_of_them(tmp_path):
    one = fp.Gaussian(noise_multiplier=2.0, unit="client")
    both = one.sampled(fp.FixedSize(5, population=50)) + one.sampled(fp.FixedSize(3, population=50))
    assert not doubts(recorded(tmp_path, [(both, 2.0, {"cohort": 5, "arrived": 5})]).alike)
    found = doubts(recorded_again(tmp_path, [(both, 2.0, {"cohort": 4, "arrived": 4})]).alike)
    assert "one draw of a round takes at least 5" in found[0]
    assert doubts(recorded_again(tmp_path, [(both, 2.0, {"cohort": 9, "arrived": 9})]).alike)


def test_kinds_that_may_share_a_draw_do_not_add_up():
    found = noiseless([(0.3, 1, True), (0.4, 1, True)])
    assert found is not None and found.rounds == 2 and found.chance == 0.4


def test_only_rounds_with_an_arrival_surely_released_something(tmp_path):
    run = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.FixedSize(5, population=50))
    none = {"cohort": 5, "arrived": 0, "refused": 5}
    found = spent(recorded(tmp_path, [(run, 2.0, none)]).alike)
    assert found.certain is None and found.run is not None


def test_the_row_with_least_noise_prices_the_whole_run(tmp_path):
    loud = recorded(tmp_path, [(RUN.row(0), 4.0, ALL), (RUN.row(1), 4.0, ALL)])
    quiet = recorded_again(tmp_path, [(RUN.row(0), 4.0, ALL), (RUN.row(1), 2.0, ALL)])
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    before, after = (fp.epsilon(spent(one.alike).run, **ask).upper for one in (loud, quiet))
    assert after > 1.2 * before


def test_rounds_behind_a_place_keep_their_numbers(tmp_path):
    one, other = (fp.Gaussian(noise_multiplier=z, unit="client") for z in (2.0, 3.0))
    ledger = recorded(tmp_path, [(one, 2.0, ALL), (other, 3.0, ALL), (one, 2.0, ALL)])
    assert [(r.index, r.mechanism) for r in ledger.alike_from(1)] == [(1, other), (2, one)]


def test_a_filter_whose_laws_are_too_far_off_kept_nothing():
    curve = fp.Gaussian(noise_multiplier=9.0).privacy_loss("zero_out").curve
    found = RenyiFilter(curve, 2.0, 1e-5, 1e-9)
    assert found.kept
    found.off = 1e-3
    assert not found.kept


def test_a_claim_at_the_certified_lower_end_does_not_fail():
    """It may be true: the lower end is no larger than the truth."""
    run = fp.Gaussian(noise_multiplier=1.4).sampled(fp.FixedSize(100, population=6000)) * 180
    ask = {"adjacency": "replace_one"}
    lower = fp.epsilon(run, delta=1e-5, **ask).lower
    assert fp.audit(run, claim=(lower, 1e-5), **ask).verdict is Verdict.CANNOT_BE_CERTIFIED
    assert fp.audit(run, claim=(0.999 * lower, 1e-5), **ask).verdict is Verdict.FAILS


def test_a_round_that_was_aborted_since_it_was_charged_is_charged_no_more(tmp_path):
    one = fp.Gaussian(noise_multiplier=2.0, unit="client")
    facts = {"unit": "client", "adjacency": "zero_out"}
    budget = fp.Budget(9.0, 1e-5, adjacency="zero_out")
    with fp.Ledger.create(tmp_path / "run.ledger", **facts) as ledger:
        number = ledger.intent(one, clip_norm=1.0, noise_std=2.0)
        budget.charge(ledger)
        ledger.abort(number, "none")
        budget.charge(ledger)
    [held] = budget.spending.charges[ledger.nonce]
    assert held.rounds == set() == held.open


def test_a_doubt_about_single_clients_is_for_the_auditor_only(tmp_path):
    run = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.FixedSize(5, population=50))
    found = fp.audit(recorded(tmp_path, [(run, 2.0, {"cohort": 4, "arrived": 4})]))
    assert str(Defect.OTHER_COHORTS) in found.reasons[0]
    private = [line for line in found.auditor_only if "participants" in line or "cohort" in line]
    assert private and not any(line in " ".join(found.reasons) for line in private)
    [doubt] = doubts(fp.Ledger.open(tmp_path / "run.ledger").alike)
    assert doubt not in " ".join(found.reasons)


def test_a_row_that_is_spent_twice_pays_for_another_run():
    budget = fp.Budget(90.0, 1e-5, adjacency="zero_out")
    spent_after = []
    for row in (0, 1, 1):
        budget.spend(RUN.row(row))
        spent_after.append(budget.spent().upper)
    assert spent_after[0] == spent_after[1] < 0.9 * spent_after[2]


def test_of_several_kinds_of_noise_the_smaller_share_decides():
    both = fp.Gaussian(noise_multiplier=2.0, unit="client") + fp.Gaussian(noise_multiplier=4.0)
    assert share_of_noise(both, 1.0, 4.0, 2.0) == 0.5
    assert share_of_noise(both, 1.0, 2.0, 1.0) == 0.5
    assert share_of_noise(fp.Gaussian(noise_multiplier=2.0), 1.0, 4.0, 2.0) == 1.0


def test_clients_that_came_more_often_than_planned_are_priced_so(tmp_path):
    run = fp.CorrelatedNoise(
        factor=fp.factors.Identity(),
        noise_multiplier=4.0,
        rounds=4,
        participation=fp.MinimumSeparation(2, at_most=1),
        unit="client",
    )
    rows = [
        (run.row(number, separation=2, participations=1 + number // 2), 4.0, ALL)
        for number in range(4)
    ]
    found = spent(recorded(tmp_path, rows).alike)
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    assert fp.epsilon(found.run, **ask).upper > 1.2 * fp.epsilon(run, **ask).upper
