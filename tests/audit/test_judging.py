"""Audits: verdicts follow from certified numbers, with matching reasons."""

import hashlib
import json
import math
import re

import pytest

import fedprivacy as fp
from fedprivacy.audit import RunSummary
from tests.cli.test_ledgers import ledger_of

pytestmark = pytest.mark.usefixtures("narrowest")


def test_account_equals_epsilon_of_what_the_ledger_holds(tmp_path):
    run = ledger_of(tmp_path / "a")
    ours = fp.account(tmp_path / "a", delta=1e-5)
    direct = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    assert (ours.lower, ours.upper) == (direct.lower, direct.upper)
    assert ours.unit == "client" and ours.adjacency == "replace_one"


@pytest.mark.parametrize("accountant", ["pld", "rdp", "advanced"])
def test_account_takes_every_accountant_observer_and_adjacency(tmp_path, accountant):
    run = ledger_of(tmp_path / "a")
    facts = {"adjacency": "zero_out", "observer": "server"}
    ours = fp.account(tmp_path / "a", delta=1e-5, accountant=accountant, **facts)
    assert ours.upper == fp.epsilon(run, delta=1e-5, accountant=accountant, **facts).upper


def test_the_three_verdicts():
    run = fp.Gaussian(noise_multiplier=2.0).sampled(fp.FixedSize(10, population=100)) * 20
    bound = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    assert bound.lower < bound.upper
    for claim, verdict in [
        (bound.upper, "HOLDS"),
        (0.5 * (bound.lower + bound.upper), "CANNOT BE CERTIFIED"),
        (0.99 * bound.lower, "FAILS"),
    ]:
        found = fp.audit(run, claim=(claim, 1e-5), adjacency="replace_one", accountant="pld")
        assert found.verdict == verdict == bound.verdict(claim)
        assert repr(claim) in found.reasons[0]


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove"])
@pytest.mark.parametrize(
    ("per_epoch", "epochs", "claim"),
    [(468, 5, 0.4315), (240, 60, 2.562)],
    ids=["jax_privacy's example", "TensorFlow Privacy's"],
)
def test_shuffled_batches_accounted_as_poisson_are_refuted(per_epoch, epochs, claim, adjacency):
    run = fp.Gaussian(noise_multiplier=1.1).sampled(fp.Shuffled(per_epoch)) * epochs
    found = fp.audit(run, claim=(claim, 1e-5), adjacency=adjacency)
    assert found.verdict == "FAILS"
    assert "epsilon is at least" in found.reasons[0] and "-C u" in found.reasons[0]
    assert f"{claim} would be the epsilon of Poisson sampling at the same rate" in found.reasons[1]
    assert len(found.reasons) == 2, "the same number is explained once"


@pytest.mark.usefixtures("no_plots")
def test_a_lower_end_alone_refutes_and_certifies_nothing(tmp_path):
    run = fp.Gaussian(noise_multiplier=1.0, unit="record").sampled(fp.Shuffled(100)) * 2
    least = fp.audit(run, claim=(1.0, 1e-5), adjacency="add_remove").bound.lower
    for claim, verdict in ((0.9 * least, "FAILS"), (9.0 * least, "CANNOT BE CERTIFIED")):
        found = fp.audit(run, claim=(claim, 1e-5), adjacency="add_remove")
        assert found.verdict == verdict and "at least 6.5" in found.reasons[0]
    assert "no finite number is certified from above" in found.reasons[0]
    fp.report(found, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "no finite epsilon is certified. It is at least 6.5" in page
    for accountant in ("rdp", "advanced"):
        alone = fp.audit(run, claim=(1.0, 1e-5), adjacency="add_remove", accountant=accountant)
        assert alone.verdict == "CANNOT BE CERTIFIED", "only pairs show a lower end"
    with pytest.raises(fp.UnsupportedCombination, match="no theorem bounds it from above"):
        fp.Budget(1e6, 1e-5, adjacency="add_remove").allows(run)
    with pytest.raises(fp.UnsupportedCombination, match="no theorem bounds it from above"):
        fp.calibrate(
            lambda z: fp.Gaussian(noise_multiplier=z).sampled(fp.Shuffled(100)),
            epsilon=1.0,
            delta=1e-5,
            adjacency="add_remove",
        )


def test_a_mechanism_states_no_adjacency_and_no_claim():
    run = fp.Gaussian(noise_multiplier=2.0)
    with pytest.raises(fp.ParameterError, match="adjacency"):
        fp.audit(run, claim=(1.0, 1e-5))
    with pytest.raises(fp.ParameterError, match="claim"):
        fp.audit(run, adjacency="zero_out")


@pytest.mark.parametrize(
    "claim", [(1.0,), (-1.0, 1e-5), (1.0, 1.5), (1.0, -0.1), (math.nan, 0.1), 3]
)
def test_bad_claims_are_refused(claim):
    with pytest.raises(fp.ParameterError):
        fp.audit(fp.Gaussian(noise_multiplier=2.0), claim=claim, adjacency="zero_out")


def test_an_open_ledger_is_accounted_and_says_so(tmp_path):
    ledger_of(tmp_path / "a", close=False)
    found = fp.audit(tmp_path / "a")
    assert found.verdict == "CANNOT BE CERTIFIED" and found.rounds == 5
    assert "cannot be HOLDS" in found.reasons[0] and "the ledger was not closed" in found.statement
    assert any("later rounds may be missing" in reason for reason in found.reasons)


def test_an_unconfirmed_round_counts_and_is_named(tmp_path):
    ledger_of(tmp_path / "a", close=False)
    ledger = fp.Ledger.open(tmp_path / "a", resume=True)
    one = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.FixedSize(10, population=100))
    ledger.intent(one, clip_norm=1.0, noise_std=2.0)
    ledger.release()
    found = fp.audit(tmp_path / "a")
    assert found.rounds == 6
    assert any("never confirmed" in reason for reason in found.reasons)


def test_a_ledger_without_rounds_spent_nothing(tmp_path):
    ledger_of(tmp_path / "a", rounds=0)
    assert fp.account(tmp_path / "a", delta=1e-5).upper == 0.0
    # A loop that never wrote leaves the same record.
    assert fp.audit(tmp_path / "a").verdict == "CANNOT BE CERTIFIED"


def test_less_noise_than_priced_is_found(tmp_path):
    ledger = fp.Ledger.create(
        tmp_path / "a", unit="client", adjacency="zero_out", claim=(3.0, 1e-5)
    )
    one = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Everyone())
    number = ledger.intent(one, clip_norm=1.0, noise_std=2.0)
    ledger.done(number, cohort=9, arrived=9, refused=0, noise_std=1.0)
    ledger.close()
    ledger.release()
    found = fp.audit(tmp_path / "a")
    truth = fp.epsilon(fp.Gaussian(noise_multiplier=1.0), delta=1e-5, adjacency="zero_out")
    assert found.bound.upper == truth.upper and found.verdict == "FAILS"


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize(("rounds", "verdict"), [(20, "HOLDS"), (200, "CANNOT BE CERTIFIED")])
def test_an_adaptive_schedule_is_judged_by_its_filter(tmp_path, rounds, verdict):
    path = tmp_path / "a"
    claim = {"claim": (4.0, 1e-5), "schedule": "adaptive", "budget_rule": "RDP filter"}
    ledger = fp.Ledger.create(path, unit="client", adjacency="zero_out", **claim)
    one = fp.Gaussian(noise_multiplier=10.0, unit="client").sampled(fp.Everyone())
    for _ in range(rounds):
        number = ledger.intent(one, clip_norm=1.0, noise_std=10.0)
        ledger.done(number, cohort=9, arrived=9, refused=0, noise_std=10.0)
    ledger.close()
    found = fp.audit(path)
    assert found.verdict == verdict
    assert "depended on outputs" in found.reasons[0]
    with pytest.raises(fp.UnsupportedCombination, match="filter"):
        fp.account(path, delta=1e-5)
    assert fp.report(found, tmp_path / "a.html").exists()


def test_the_server_view_is_never_below_the_aggregate_view(tmp_path):
    ledger_of(tmp_path / "a")
    bounds = fp.audit(tmp_path / "a").bounds
    assert bounds["server"]["pld"].upper >= bounds["aggregate"]["pld"].lower


def test_an_observer_without_a_theorem_is_named_not_hidden():
    run = fp.Gaussian(noise_multiplier=2.0).sampled(fp.Poisson(0.1)) * 3
    found = fp.audit(run, claim=(1.0, 1e-5), adjacency="add_remove")
    assert "membership" in found.unsupported["server"] and "server" not in found.bounds


def test_a_report_escapes_what_it_prints_and_replaces_whole(tmp_path):
    run = fp.Gaussian(noise_multiplier=2.0, unit="client") * 3
    found = fp.audit(run, claim=(3.0, 1e-5), adjacency="zero_out")
    page = tmp_path / "page.html"
    page.write_text("old")
    runs = {"<b>x</b>": RunSummary(audit=found, accuracy=(0.1, 0.5), upload_bytes=10)}
    assert fp.report(runs, page) == page
    text = page.read_text()
    assert "<b>x</b>" not in text.replace("&lt;b&gt;", "") and text.count("<svg") == 4
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("name", ["page.pdf", "missing/page.html"])
def test_bad_report_paths_are_refused(tmp_path, name):
    found = fp.audit(fp.Gaussian(noise_multiplier=2.0), claim=(3.0, 1e-5), adjacency="zero_out")
    with pytest.raises(fp.ParameterError, match="path"):
        fp.report(found, tmp_path / name)


def fed_smp(scheme, **options):
    perturbation = fp.SparsifiedPerturbation(
        noise_multiplier=4.0, clip_norm=1.0, kept=10, dimension=100, cohort=16, **options
    )
    return perturbation.sampled(scheme) * 20


def test_an_upload_without_a_secure_sum_is_a_line_of_its_own():
    run = fed_smp(fp.FixedSize(16, population=200))
    found = fp.audit(run, claim=(8.0, 1e-5), adjacency="zero_out")
    alone = fp.Gaussian(noise_multiplier=1.0).sampled(fp.FixedSize(16, population=200)) * 20
    wanted = fp.epsilon(alone, delta=1e-5, adjacency="zero_out", observer="server")
    assert found.bounds["single uploads"]["pld"].upper == wanted.upper
    assert wanted.lower > found.bounds["server"]["pld"].upper
    assert str(found.verdict) == "HOLDS" and found.bound.upper < 8.0 < wanted.lower


def test_topped_up_shares_have_no_price_of_their_own():
    run = fed_smp(fp.Poisson(0.08), topped_up=True)
    found = fp.audit(run, claim=(8.0, 1e-5), adjacency="add_remove")
    assert "single uploads" not in found.bounds
    assert "topped up" in found.unsupported["single uploads"]


def test_other_mechanisms_have_no_uploads_to_look_at():
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.1)) * 3
    found = fp.audit(run, claim=(8.0, 1e-5), adjacency="add_remove")
    assert "single uploads" not in found.bounds and "single uploads" not in found.unsupported


def judged(path, step, rounds, claim, *, finish=True, **facts):
    """Record rounds given as (cohort, std) or None for one that is never confirmed; audit them."""
    given = {"unit": "client", "adjacency": "zero_out", "claim": claim} | facts
    with fp.Ledger.create(path, **given) as ledger:
        for one in rounds:
            number = ledger.intent(step, clip_norm=1.0, noise_std=2.0)
            if one is not None:
                cohort, std = one
                ledger.done(number, cohort=cohort, arrived=cohort, refused=0, noise_std=std)
        if finish:
            ledger.close()
    return fp.audit(path, accountant="pld")


SMALL = fp.Gaussian(noise_multiplier=2.0, unit="client")


def test_clients_that_hold_the_unit_are_drawn_as_stated(tmp_path):
    """A unit in every round is not drawn with probability 1/10."""
    step = fp.Gaussian(noise_multiplier=2.0).in_cohort(fp.FixedSize(10, population=100))
    for name, cohort, verdict in (("a", 10, "HOLDS"), ("b", 100, "CANNOT BE CERTIFIED")):
        rounds = [(cohort, 2.0)] * 20
        found = judged(tmp_path / name, step, rounds, (9.0, 1e-4), unit="record")
        assert found.verdict == verdict and found.void == (name == "b")


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize(
    ("scheme", "cohort"),
    [
        (fp.FixedSize(10, population=100), 100),
        (fp.FixedSize(10, population=100), 7),
        (fp.WithReplacement(10, population=100), 30),
        (fp.TruncatedPoisson(0.1, population=100, largest=12), 20),
    ],
)
def test_cohorts_that_the_scheme_does_not_draw_certify_nothing(tmp_path, scheme, cohort):
    found = judged(tmp_path / "a", SMALL.sampled(scheme), [(10, 2.0), (cohort, 2.0)], (9.0, 1e-4))
    assert found.verdict == "CANNOT BE CERTIFIED"
    told = f"1 round(s), first in round 1: {cohort} participants"
    assert told in found.auditor_only[0] and "cohorts" in found.reasons[0]
    assert told not in "".join(found.reasons) and told in str(found)
    page = fp.report(found, tmp_path / "a.html").read_text()
    assert "participants where" not in page
    with pytest.raises(fp.UnsupportedCombination, match="participants, but the scheme draws"):
        fp.account(tmp_path / "a", delta=1e-4)
    fine = judged(tmp_path / "b", SMALL.sampled(scheme), [(10, 2.0)] * 2, (9.0, 1e-4))
    assert fine.verdict == "HOLDS"


TEN, FIVE = fp.FixedSize(10, population=100), fp.WithReplacement(5, population=100)


@pytest.mark.parametrize(
    ("mechanism", "most"),
    [
        (SMALL.sampled(TEN) * 2, 20),
        (SMALL.sampled(TEN) * 2 + SMALL.sampled(FIVE), 25),
        (fp.Parallel((SMALL.sampled(TEN), SMALL.sampled(FIVE) * 3)), 25),
        (fp.Parallel((SMALL.sampled(fp.TruncatedPoisson(0.1, population=100, largest=12)),)), 12),
    ],
)
def test_rounds_of_several_draws_have_no_more_than_all_of_them(tmp_path, mechanism, most):
    fine = judged(tmp_path / "fine", mechanism, [(most, 2.0)], (30.0, 1e-4))
    assert fine.verdict == "HOLDS"
    odd = judged(tmp_path / "odd", mechanism, [(most, 2.0), (most + 1, 2.0)], (30.0, 1e-4))
    assert odd.verdict == "CANNOT BE CERTIFIED"
    assert f"at most {most}" in odd.auditor_only[0]


def test_only_what_was_surely_released_makes_a_claim_fail(tmp_path):
    """A lower end counts confirmed rounds, with the noise that they had."""
    whole = SMALL.sampled(fp.Everyone())
    three, four = (fp.epsilon(whole * n, delta=1e-5, adjacency="zero_out") for n in (3, 4))
    between = (three.upper + four.upper) / 2
    rounds = [(9, 2.0)] * 3
    begun = judged(tmp_path / "a", whole, [*rounds, None], (between, 1e-5), finish=False)
    assert begun.verdict == "CANNOT BE CERTIFIED" and begun.bound.upper >= four.upper - 1e-3
    assert judged(tmp_path / "b", whole, [*rounds, (9, 2.0)], (between, 1e-5)).verdict == "FAILS"
    quieter = judged(tmp_path / "c", whole, [(9, 4.0)] * 3, (0.9 * three.upper, 1e-5))
    louder = fp.Gaussian(noise_multiplier=4.0).sampled(fp.Everyone()) * 3
    truth = fp.epsilon(louder, delta=1e-5, adjacency="zero_out")
    assert quieter.verdict == "CANNOT BE CERTIFIED"
    assert quieter.bound.lower == pytest.approx(truth.lower, abs=1e-3)
    declared = fp.SparsifiedPerturbation(
        noise_multiplier=2.0, clip_norm=1.0, kept=1, dimension=1, cohort=9, missing=5
    ).sampled(fp.Everyone())
    nobody = judged(tmp_path / "d", declared, [(9, 2.0)] * 3, (1.1 * three.upper, 1e-5))
    assert nobody.verdict == "CANNOT BE CERTIFIED"
    assert nobody.bound.lower == pytest.approx(three.lower, abs=1e-3)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"claim": (2.0, 1e-5)}, "other outputs could have spent all of it"),
        ({"claim": (4.0, 1e-6)}, "other outputs could have spent all of it"),
        ({"adjacency": "replace_one"}, "another adjacency or observer"),
        ({"observer": "server"}, "another adjacency or observer"),
    ],
)
def test_a_filter_certifies_its_own_budget_alone(tmp_path, asked, words):
    whole = fp.Gaussian(noise_multiplier=20.0, unit="client").sampled(fp.Everyone())
    path = tmp_path / "a"
    facts = {"schedule": "adaptive", "budget_rule": "RDP filter (adaptive schedule)"}
    given = {"unit": "client", "adjacency": "zero_out", "claim": (4.0, 1e-5)} | facts
    with fp.Ledger.create(path, **given) as ledger:
        number = ledger.intent(whole, clip_norm=1.0, noise_std=20.0)
        ledger.done(number, cohort=9, arrived=9, refused=0, noise_std=20.0)
        ledger.close()
    assert fp.audit(path).verdict == "HOLDS"
    assert fp.audit(path, claim=(4.5, 1e-4)).verdict == "HOLDS"
    found = fp.audit(path, **asked)
    assert found.verdict == "CANNOT BE CERTIFIED" and words in found.reasons[0]
    assert found.bound.upper == math.inf


def test_an_adaptive_run_without_a_filter_certifies_nothing(tmp_path):
    whole = SMALL.sampled(fp.Everyone())
    found = judged(tmp_path / "a", whole, [(9, 2.0)], (90.0, 1e-5), schedule="adaptive")
    assert found.verdict == "CANNOT BE CERTIFIED" and "budget rule is None" in found.reasons[0]


def test_what_the_server_may_see_the_others_may():
    """The fold of two replaced numbers is loose where units are often drawn; T4 is smaller."""
    run = fp.Laplace(noise_multiplier=2.0).sampled(fp.FixedSize(90, population=100)) * 3
    found = fp.audit(run, claim=(1.6, 1e-3), adjacency="zero_out")
    assert found.verdict == "HOLDS" and "for the server as well" in found.reasons[0]
    assert found.bounds["aggregate"]["pld"].upper > 1.6 > found.bounds["server"]["pld"].upper


def test_a_round_in_which_nobody_answered_makes_no_claim_fail(tmp_path):
    whole = SMALL.sampled(fp.Everyone())
    path = tmp_path / "a"
    facts = {"unit": "client", "adjacency": "zero_out", "claim": (1.0, 1e-5)}
    with fp.Ledger.create(path, **facts) as ledger:
        for arrived in (9, 0):
            number = ledger.intent(whole, clip_norm=1.0, noise_std=2.0)
            ledger.done(number, cohort=9, arrived=arrived, refused=0, noise_std=2.0)
        ledger.close()
    once, twice = (fp.epsilon(whole * n, delta=1e-5, adjacency="zero_out") for n in (1, 2))
    found = fp.audit(path).bound
    assert found.lower == pytest.approx(once.lower, abs=1e-3)
    assert found.upper == pytest.approx(twice.upper, abs=1e-3)


@pytest.mark.parametrize("absent", [0, 40])
def test_what_a_server_without_a_secure_sum_saw_in_aborted_rounds_is_not_forgotten(
    tmp_path, absent
):
    one = fp.SparsifiedPerturbation(
        noise_multiplier=2.0, clip_norm=1.0, kept=1, dimension=1, cohort=9, absent=absent
    ).sampled(fp.FixedSize(9, population=90))
    path = tmp_path / "a"
    facts = {"unit": "client", "adjacency": "zero_out", "claim": (1.0, 1e-5)}
    with fp.Ledger.create(path, **facts) as ledger:
        number = ledger.intent(one, clip_norm=1.0, noise_std=2.0)
        ledger.done(number, cohort=9, arrived=9, refused=0, noise_std=2.0)
        assert ("single uploads" in fp.audit(path).bounds) == (absent == 0)
        ledger.abort(ledger.intent(one, clip_norm=1.0, noise_std=2.0), "too few")
    found = fp.audit(path)
    assert "single uploads" not in found.bounds
    assert ("aborted" if absent == 0 else "always absent") in found.unsupported["single uploads"]


SURE = fp.audit(
    fp.Gaussian(noise_multiplier=5.0, unit="client") * 3, claim=(9.0, 1e-5), adjacency="zero_out"
)


def void_run(path):
    """Five rounds priced as 10 of 1,000, although the ledger records that all units took part."""
    scheme = fp.FixedSize(10, population=1000)
    step = fp.Gaussian(noise_multiplier=5.0, unit="client").sampled(scheme)
    given = {"unit": "client", "adjacency": "zero_out", "claim": (1.0, 1e-5)}
    with fp.Ledger.create(path, **given) as ledger:
        for _ in range(5):
            number = ledger.intent(step, clip_norm=1.0, noise_std=5.0)
            ledger.done(number, cohort=1000, arrived=1000, refused=0, noise_std=5.0)
        ledger.close()
    return fp.audit(path)


def test_numbers_that_certify_nothing_are_shown_nowhere(tmp_path):
    found = void_run(tmp_path / "a")
    assert found.verdict == "CANNOT BE CERTIFIED" and found.void and found.numbers == "void"
    numbers = {end for bounds in found.bounds.values() for b in bounds.values() for end in b.ends()}
    page = fp.report(found, tmp_path / "a.html").read_text()
    shown = re.sub(r"<style>.*?</style>|SHA-256 [0-9a-f]+", "", page, flags=re.S)
    for number in numbers - {"0"}:
        assert number not in shown
    assert (
        "<svg" not in page
        and 'class="words"' not in page
        and "holds for all background knowledge, under the assumptions" not in page
    )
    assert fp.report(SURE, tmp_path / "b.html").read_text().count("<svg") == 3


def test_void_numbers_are_void_in_json_and_in_text(tmp_path, capsys):
    from tests.cli.test_program import answer

    void_run(tmp_path / "a")
    _, out, _ = answer(capsys, "audit", str(tmp_path / "a"), "--json")
    told = json.loads(out)
    assert "bounds" not in told and told["void_bounds"] and told["numbers"] == "void"
    _, out, _ = answer(capsys, "audit", str(tmp_path / "a"))
    assert "No number is shown" in out and "accountant" not in out


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize(
    ("facts", "close", "words"),
    [
        ({}, False, "the ledger was not closed"),
        ({"seed_policy": "fixed"}, True, "the seed was fixed"),
    ],
)
@pytest.mark.parametrize(("claim", "verdict"), [(9.0, "CANNOT BE CERTIFIED"), (0.01, "FAILS")])
def test_the_verdict_itself_says_what_is_wrong(tmp_path, facts, close, words, claim, verdict):
    path = tmp_path / "a"
    whole = SMALL.sampled(fp.Everyone())
    found = judged(path, whole, [(9, 2.0)], (claim, 1e-5), finish=close, **facts)
    assert found.verdict == verdict and words in found.statement
    assert ("cannot be HOLDS" in found.reasons[0]) == (verdict != "FAILS")
    page = fp.report(found, tmp_path / "a.html").read_text()
    assert words in page and str(found.numbers) in page
    assert re.search(r'class="words">(For the recorded rounds|Only against)', page)


@pytest.mark.usefixtures("no_plots")
def test_the_page_begins_with_what_was_audited(tmp_path):
    ledger_of(tmp_path / "run.ledger")
    found = fp.audit(tmp_path / "run.ledger", auditor="A. Uditor")
    page = fp.report(found, tmp_path / "a.html", subject="digits").read_text()
    cover = page[page.index("<main>") : page.index("</table>")]
    digest = hashlib.sha256((tmp_path / "run.ledger").read_bytes()).hexdigest()
    for told in ("digits", "run.ledger", digest, "A. Uditor", found.audited):
        assert told in cover
    assert fp.__version__ in page
    assert "aggregate" in page
    assert "10 of 100 units are drawn anew" in page and "SampledMechanism" not in page
    assert "at a false-positive rate of 0.1 %" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.usefixtures("no_plots")
def test_several_audits_are_reported_and_claims_are_not(tmp_path):
    page = fp.report([SURE, SURE], tmp_path / "a.html").read_text()
    assert "run 1" in page and "run 2" in page
    for wrong in (fp.published.Claim(1.0, 1e-5, fp.Verdict.HOLDS, "x"), [1], [], "x"):
        with pytest.raises(fp.ParameterError, match="audit"):
            fp.report(wrong, tmp_path / "b.html")
    with pytest.raises(fp.ParameterError, match="source"):
        fp.audit(3)
    with pytest.raises(fp.ParameterError, match="sampling"):
        fp.audit(SMALL, claim=(1, 1e-5), adjacency="zero_out", sampling="poisson")


def test_what_is_asked_against_a_ledger_is_told(tmp_path):
    """It said HOLDS of zero_out, and no word that the ledger is of replace_one."""
    step = fp.Gaussian(noise_multiplier=4.0, unit="client")
    facts = {"unit": "client", "adjacency": "replace_one", "claim": (1.0, 1e-5)}
    with fp.Ledger.create(tmp_path / "run.ledger", **facts) as ledger:
        number = ledger.intent(step, clip_norm=1.0, noise_std=4.0)
        shown = {"cohort": 5, "arrived": 5, "refused": 0, "denominator": 5.0}
        ledger.done(number, noise_std=4.0, **shown)
        ledger.close()
    told = "The adjacency in question is zero_out, but the fedprivacy ledger states replace_one."
    assert told in str(fp.audit(ledger.path, adjacency="zero_out"))
    assert "in question is" not in str(fp.audit(ledger.path))


def test_a_claim_inside_a_narrow_interval_is_asked_again():
    """700 rounds of different noise: the first interval is as wide as the tolerance allows."""
    noise = [1.1 * (0.7 / 1.1) ** (k / 700) for k in range(700)]
    steps = [
        fp.Gaussian(noise_multiplier=z, unit="client").sampled(fp.Poisson(0.002)) for z in noise
    ]
    run = sum(steps[1:], steps[0])
    facts = {"delta": 1e-5, "adjacency": "add_remove"}
    low, high = fp.epsilon(run, **facts).resolution
    exact = fp.epsilon(run, tolerance=1e-6, **facts)
    assert low < exact.lower and exact.upper < high
    for claim, verdict in ((exact.upper + 1e-6, "HOLDS"), (exact.lower - 1e-6, "FAILS")):
        assert low <= claim < high
        assert fp.audit(run, claim=(claim, 1e-5), adjacency="add_remove").verdict == verdict
