"""Tests of ``fedprivacy.audit.summary``."""

import re

import pytest

import fedprivacy as fp
from fedprivacy.audit import summary
from tests.page.test_auditing import OPACUS, ledger

pytestmark = pytest.mark.usefixtures("narrowest")

RUN = fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(fp.Poisson(0.1)) * 20
ASK = {"adjacency": "zero_out"}


def test_a_claim_that_holds_is_true_with_its_number():
    found = fp.audit(RUN, claim=(12.0, 1e-4), **ASK)
    said = summary.summary_of(found)
    assert "epsilon = 12 at delta = 0.0001, for one client whose contribution" in said["claimed"]
    assert (
        said["proved"]
        == f"The claim is true: epsilon is proved to be at most {found.bound.ends()[1]}."
    )
    (first, second) = said["attack"]
    assert first[0] == "1 %" and second[0] == "0.1 %"
    rate = float(re.search(r"at most ([\d.]+) % of those whose data were used", said["meaning"])[1])
    risk = fp.attack_risk(RUN, fpr=0.01, **ASK)
    assert 100 * risk.tpr.lower[0] <= rate <= 101 * risk.tpr.upper[0] + 0.01


def test_a_claim_that_fails_is_false_with_its_number():
    found = fp.audit(RUN, claim=(0.1, 1e-4), **ASK)
    lower = found.bound.ends()[0]
    assert summary.proved(found) == f"The claim is false: epsilon is proved to be at least {lower}."


def test_a_claim_between_the_ends_is_neither():
    bound = fp.epsilon(RUN, delta=1e-4, **ASK)
    middle = 0.5 * (bound.lower + bound.upper)
    found = fp.audit(RUN, claim=(middle, 1e-4), tolerance=0.2, **ASK)
    if found.verdict == "CANNOT BE CERTIFIED":
        assert "neither proved nor refuted" in summary.proved(found)
    open_ended = fp.audit(
        fp.Gaussian(noise_multiplier=1.0).sampled(fp.FixedSize(10, population=100)) * 20,
        claim=(3.5, 1e-4),
        **ASK,
    )
    assert ("neither" in summary.proved(open_ended)) == (
        open_ended.verdict == "CANNOT BE CERTIFIED"
    )


def test_a_run_without_noise_has_no_limit(tmp_path):
    path = tmp_path / "run.ledger"
    one = fp.Gaussian(noise_multiplier=1.0, unit="client")
    record = fp.Ledger.create(path, unit="client", adjacency="zero_out", claim=(8.0, 1e-5))
    number = record.intent(one, clip_norm=1.0, noise_std=1.0)
    record.done(number, cohort=10, arrived=10, refused=0, noise_std=0.0)
    record.close()
    record.release()
    found = fp.audit(path)
    said = summary.summary_of(found)
    assert found.verdict == "FAILS" and "false" in said["proved"]
    assert "no limit" in said["meaning"] and said["attack"] == []


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_every_observer_has_a_number_or_none(adjacency):
    found = fp.audit(RUN, claim=(12.0, 1e-4), adjacency=adjacency)
    rows = dict(summary.observers(found))
    assert len(rows) == len(found.bounds) + len(found.unsupported)
    server = next(text for who, text in rows.items() if who.startswith("server"))
    assert (server == "none") == (adjacency == "add_remove")


def test_conditions_stand_in_every_sentence_with_a_number():
    facts = {"sampling": "poisson", "adjacency": "add_remove", "trials": 3}
    found = fp.audit(OPACUS, claim=(8.0, 1e-5), **facts)
    said = summary.summary_of(found)
    assert "according to an imported record" in said["proved"]
    assert "trials = 3" in said["confirm"][0] and "sampling = poisson" in said["confirm"][0]
    answers = {document: answer for document, _, answer in said["guidelines"]}
    assert answers["OWASP AISVS 12.3.3"].startswith("3 runs")
    assert answers["OWASP AISVS 12.3.1"].startswith("no ledger")


def test_a_ledger_answers_that_rounds_are_recorded(tmp_path):
    found = fp.audit(ledger(tmp_path / "run.ledger"))
    answers = {document: answer for document, _, answer in summary.guidelines(found, None)}
    assert answers["OWASP AISVS 12.3.1"].startswith("yes")
    assert not any("stated facts" in text for text in summary.to_confirm(found))


@pytest.mark.usefixtures("no_plots")
def test_the_page_begins_with_the_three_sentences(tmp_path):
    found = fp.audit(RUN, claim=(12.0, 1e-4), **ASK)
    said = summary.summary_of(found)
    for end in ("html", "md"):
        text = fp.report(found, tmp_path / f"a.{end}").read_text().replace("\\", "")
        places = [text.index(said[name]) for name in ("claimed", "proved", "meaning")]
        order = [text.index(summary.BEFORE), *places, text.index("Technical annex")]
        assert order == sorted(order)
        assert text.index("To be confirmed") < order[-1] < text.index("Every accountant")
        boxes = text.count('type="checkbox"' if end == "html" else "- [ ] ")
        assert boxes == len(said["confirm"])
