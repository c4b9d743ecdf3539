"""An audit computes each number once, from the record to the page."""

import os
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.audit.imports import content
from fedprivacy.evidence import evidence, repricing
from fedprivacy.ledger import history
from fedprivacy.mechanisms import SampledMechanism
from fedprivacy.mechanisms.base import Run

STEP = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Poisson(0.1))


def ledger_of(path, rounds=20, step=STEP, close=True, **facts):
    given = {"unit": "client", "adjacency": "zero_out", "claim": (3.0, 1e-5)} | facts
    with fp.Ledger.create(path, **given) as ledger:
        for index in range(rounds):
            number = ledger.intent(step, clip_norm=1.0, noise_std=2.0)
            cohort = 5 + index % 3
            ledger.done(number, cohort=cohort, arrived=cohort, refused=0, noise_std=2.0)
        if close:
            ledger.close()
    return path


@pytest.fixture
def entered(monkeypatch):
    """Count how often functions are entered, with which arguments."""
    counts = Counter()

    def watch(owner, name, key=lambda *args, **kwargs: ()):
        real = getattr(owner, name)

        def counted(*args, **kwargs):
            counts[(name, *key(*args, **kwargs))] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    def question(self, facts):
        return type(self).__name__, self, facts

    for kind in (fp.Gaussian, SampledMechanism, Run):
        watch(kind, "loss_under", question)
    for accountant in ACCOUNTANTS.values():
        watch(accountant, "_epsilon", lambda self, loss, delta: (self.name, loss, delta))
    watch(history, "_read_lines")
    watch(content, "digest")
    for name in ("spent", "doubts", "revealed"):
        watch(evidence, name)
    watch(repricing, "_groups")
    watch(sys.modules["fedprivacy.audit.accounting"], "read_source")
    return counts


def test_no_function_is_entered_twice_for_the_same_question(tmp_path, entered):
    path = ledger_of(tmp_path / "run.ledger")
    entered.clear()
    found = fp.audit(path)
    assert entered.pop(("_read_lines",)) == 1 and ("digest",) not in entered
    assert {entered.pop((name,)) for name in ("spent", "doubts", "revealed", "_groups")} == {1}
    assert entered.pop(("read_source",)) == 1
    losses = Counter(kind[0] for kind in entered)
    # 3 mechanisms, 3 accountants, 2 observers.
    assert losses["loss_under"] == 6 and losses["_epsilon"] == 6
    fp.report(found, tmp_path / "run.html")
    asked = {name: count for name, count in entered.items() if name[0] == "loss_under"}
    assert set(asked.values()) == {1}


def test_a_claim_that_fails_is_explained_without_asking_again(tmp_path, entered):
    path = ledger_of(tmp_path / "run.ledger", claim=(0.01, 1e-5), observer="server")
    entered.clear()
    assert fp.audit(path).verdict == "FAILS"
    assert {count for (name, *_), count in entered.items() if name == "loss_under"} == {1}


def test_nothing_is_remembered_outside_of_an_audit(tmp_path, entered):
    for _ in range(2):
        STEP.privacy_loss("zero_out")
    assert max(entered.values()) >= 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda run: fp.epsilon(run, delta=1e-5, adjacency="zero_out"),
        lambda run: fp.delta(run, epsilon=1.0, adjacency="zero_out"),
        lambda run: fp.tradeoff_curve(run, fpr=[0.1], adjacency="zero_out"),
    ],
    ids=["epsilon", "delta", "tradeoff_curve"],
)
def test_a_question_asks_every_mechanism_once(entered, ask):
    ask(STEP * 20)
    losses = {name: count for name, count in entered.items() if name[0] == "loss_under"}
    assert {name[1] for name in losses} == {"Gaussian", "SampledMechanism", "Run"}
    assert set(losses.values()) == {1}


def test_a_frozen_mechanism_that_has_no_hash_is_asked_each_time():
    """A list in a frozen dataclass can change, so its answers are not cached."""

    @dataclass(frozen=True)
    class Listed(fp.Mechanism):
        multipliers: list

        @property
        def protects(self):
            return None

        def loss_under(self, facts):
            one = fp.Gaussian(noise_multiplier=self.multipliers[0])
            return one.privacy_loss(facts.adjacency, facts.observer)

    how = {"delta": 1e-5, "adjacency": "zero_out"}
    held = [2.0]
    assert (
        fp.epsilon(Listed(held), **how).upper
        == fp.epsilon(fp.Gaussian(noise_multiplier=2.0), **how).upper
    )
    audited = fp.audit(Listed(held), claim=(9.0, 1e-5), adjacency="zero_out")
    assert audited.verdict == "HOLDS"


# Equal rounds are kept once


def test_equal_rounds_are_kept_once_and_come_back_each_as_it_was(tmp_path):
    path = tmp_path / "run.ledger"
    masks = [None, "one", "", None, "two\n", "one", None]
    with fp.Ledger.create(path, unit="client", adjacency="zero_out") as ledger:
        for index, mask in enumerate(masks):
            number = ledger.intent(STEP, clip_norm=1.0, noise_std=2.0)
            if index == 3:
                ledger.abort(number, "too few")
            else:
                ledger.done(number, cohort=5, arrived=5, refused=0, noise_std=2.0, mask=mask)
        ledger.intent(STEP, clip_norm=1.0, noise_std=2.0)
        ledger.intent(STEP, clip_norm=1.0, noise_std=2.0)
        written = ledger.rounds
    read = fp.Ledger.open(path)
    assert read.rounds == written and [r.index for r in written] == list(range(9))
    assert [r.done and r.done.mask for r in written] == [*masks, None, None]
    assert [(r.index, r.times) for r in read.alike] == [(0, 6), (3, 1), (7, 1), (8, 1)]
    assert read.spent_rounds == 8 and read.digest == ledger.digest


def test_memory_does_not_grow_with_equal_rounds(tmp_path, monkeypatch):
    import tracemalloc

    monkeypatch.setattr(os, "fsync", lambda fd: None)
    peaks = []
    for rounds in (1000, 8000):
        path = ledger_of(tmp_path / f"{rounds}", rounds)
        tracemalloc.start()
        ledger = fp.Ledger.open(path)
        assert len(ledger.alike) == 3
        peaks.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 7000 * 16


# A defect of a record is shown wherever its numbers are


@pytest.mark.parametrize(
    ("facts", "close", "words"),
    [
        ({"seed_policy": "fixed"}, True, "the seed was fixed"),
        ({}, False, "the ledger was not closed"),
        ({"adjacency": "add_remove"}, True, "denominators are not recorded"),
    ],
)
def test_a_number_says_what_it_depends_on_everywhere(tmp_path, facts, close, words):
    path = ledger_of(tmp_path / "run.ledger", close=close, **facts)
    bound = fp.account(path, delta=1e-5)
    assert bound.qualified == (words,) and words in str(bound)
    assert bound.to_dict()["qualified"] == [words]
    assert fp.audit(path).bound.qualified == (words,)
    adjacency = facts.get("adjacency", "zero_out")
    found = fp.pareto({"this": (path, 1.0), "other": (STEP, 2.0)}, delta=1e-5, adjacency=adjacency)
    assert f"not comparable: this: {words}" in found.table()
    assert found.to_dict()["settings"][0]["epsilon"]["qualified"] == [words]
    assert not found.settings[1].depends


def test_an_imported_number_says_so():
    state = {"history": [[3.0, 0.2, 50]], "mechanism": "rdp"}
    bound = fp.account(state, delta=1e-5, sampling="poisson", adjacency="add_remove")
    assert "according to an imported record" in str(bound)


def test_a_whole_ledgers_number_is_not_qualified(tmp_path):
    bound = fp.account(ledger_of(tmp_path / "run.ledger"), delta=1e-5)
    assert bound.qualified == () and str(bound).endswith(")")


# Values that no epsilon covers are only for the auditor


def run_with(path, refused):
    step = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Everyone())
    with fp.Ledger.create(path, unit="client", adjacency="zero_out", claim=(9.0, 1e-5)) as ledger:
        for _ in range(3):
            number = ledger.intent(step, clip_norm=1.0, noise_std=2.0)
            ledger.done(number, cohort=5, arrived=5 - refused, refused=refused, noise_std=2.0)
        ledger.close()
    return fp.audit(path)


def test_a_page_does_not_tell_whether_anything_was_refused(tmp_path):
    """One client decides by its data whether its update is finite."""
    one, other = (run_with(tmp_path / f"{refused}", refused) for refused in (0, 1))
    assert other.auditor_only == (
        "3 contribution(s) were refused and counted as zeros in the sums.",
    )
    assert "for the auditor only: 3 contribution(s)" in str(other)
    assert (one.reasons, one.defects, one.statement) == (
        other.reasons, other.defects, other.statement,
    )  # fmt: skip
    pages = []
    for found, name in ((one, "0"), (other, "1")):
        page = fp.report({"run": found}, tmp_path / "page.html").read_text()
        changing = (found.origin.sha256, found.audited, found.facts_recorded["created"])
        for text in (*changing, f"ledger, {name},"):
            page = page.replace(text, "")
        pages.append(page)
    assert pages[0] == pages[1] and "refused" not in pages[0]


def test_dollars_in_names_are_printed(tmp_path):
    # Without sampling, whose numbers take longer.
    step = fp.Gaussian(noise_multiplier=20.0)
    runs = {
        name: fp.audit(step * len(name), claim=(3.0, 1e-5), adjacency="zero_out")
        for name in (r"$\frac{1$", "a$bcd", r"c\$")
    }
    page = fp.report(runs, tmp_path / "a.html", title="$x$ & $y").read_text()
    assert "<title>$x$ &amp; $y</title>" in page
    for name in (r"$\frac{1$", "a$bcd", r"c\$"):
        assert f">{name}<" in page[page.index("<svg") :]
    settings = {name: (step * 3, {r"cost $\frac{$": 1.0}) for name in runs}
    fp.pareto(settings, delta=1e-5, adjacency="zero_out").plot(tmp_path / "a.svg")


def test_epsilon_by_round_is_of_the_rounds(tmp_path):
    from fedprivacy.audit.plots import epsilon_by_round

    found = fp.audit(ledger_of(tmp_path / "run.ledger"))
    rounds, values = epsilon_by_round(found)
    assert values[-1] == found.bound.upper and rounds[-1] == 20
    assert all(np.isfinite(values)) and all(a <= 1.02 * b for a, b in pairwise(values))
