"""Refusals of attacks, replays, pages, budgets and certificates."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.audit.attacks import plan
from fedprivacy.audit.guessing import refuted, refuted_mu
from fedprivacy.errors import BudgetExhausted, ImpossibleBudget
from fedprivacy.loss.strategies import adaptive_adversary
from fedprivacy.questions.certificate import CertificateRun
from fedprivacy.registry import KINDS, decode
from tests.common import noisy, told
from tests.contract.test_refused_inside import says

BOUNDED = settings(derandomize=True, max_examples=25, deadline=None)
STEP = fp.Gaussian(noise_multiplier=2.0)
RUN = STEP.sampled(fp.Poisson(0.2)) * 4
ZERO = {"adjacency": "zero_out"}
CLAIMED = fp.audit(STEP, claim=(9.0, 1e-4), **ZERO)
BOUND = fp.epsilon(STEP, delta=1e-2, **ZERO)
ANSWERS = told(1.0)


def seeded():
    return np.random.default_rng(3)


def attacked(train=ANSWERS, **given):
    return lambda: fp.attack(train, **{"canaries": 16, "runs": 1, "generator": seeded(), **given})


def vectors(included, generator):
    return generator.normal(0, 1, (2, 3))


# The call, and the whole message; "..." matches any text.
REFUSED = {
    # attacks
    "scores of other canaries": (
        attacked(lambda included, generator: np.zeros(3)),
        "train's scores must have shape (16,), got (3,); pass directions= if train returns "
        "the releases",
    ),
    "scores that are none": (
        attacked(lambda included, generator: np.full(16, np.nan)),
        "train's scores must be numbers, got 'NaN'",
    ),
    "releases of another length": (
        attacked(vectors, directions=np.ones((16, 4))),
        "train's releases must have shape (rounds, 4), got (2, 3)",
    ),
    "releases that are not finite": (
        attacked(lambda *_: np.full(4, np.inf), directions=np.ones((16, 4))),
        "train's releases must be finite, got 'an entry'",
    ),
    "directions of other canaries": (
        attacked(vectors, directions=np.ones((2, 3))),
        "directions must have shape (16, d), with one row per canary, got (2, 3)",
    ),
    "what is not called": (
        attacked(3),
        "train must be a function of (included, generator), got 'int'",
    ),
    "a method that there is not": (
        attacked("magic"),
        "train must be one of ..., got 'magic'...",
    ),
    "directions of a name": (
        attacked("dp-fedavg", directions="random"),
        "directions must be left out with the method 'dp-fedavg', got 'random'; pass the loop",
    ),
    "settings of no name": (
        attacked(settings={"rounds": 2}),
        "settings must be left out, got {'rounds': 2}; they configure a named method",
    ),
    "a claim without neighbours": (
        attacked(claim=STEP),
        "adjacency must be given if claim is a mechanism, got None; pass 'zero_out', for example",
    ),
    "a claim of less than nothing": (
        attacked(claim=-1.0),
        "claim must be a Bound, a mechanism or an epsilon of at least 0, got -1.0",
    ),
    "a claim that is true": (
        attacked(claim=True),
        "claim must be a Bound, a mechanism or an epsilon of at least 0, got True",
    ),
    "more guesses than canaries": (
        attacked(guesses=17),
        "guesses must be at most the 16 canaries of all runs, got 17",
    ),
    "rates of several canaries": (
        attacked(estimator="rates", runs=8),
        "canaries, runs must be 1 and at least 8 for the estimator 'rates', got (16, 8)",
    ),
    "rates of few runs": (
        attacked(estimator="rates", canaries=1, runs=7),
        "canaries, runs must be 1 and at least 8 for the estimator 'rates', got (1, 7)",
    ),
    "an estimator": (
        attacked(estimator="best"),
        "estimator must be one of 'guesses', ..., got 'best'",
    ),
    "a level of all": (attacked(level=1.0), "level must lie strictly between 0 and 1, got 1.0"),
    "no canary": (attacked(canaries=0), "canaries must be an integer of at least 1, got 0"),
    "no run": (attacked(runs=0), "runs must be an integer of at least 1, got 0"),
    "a plan at a delta of 2": (
        lambda: plan(10, 2.0),
        "delta must lie between 0 and 1, got 2.0",
    ),
    # replays
    "a replay of a number": (
        lambda: fp.verify(3, clip_norm=1.0, noise_std=1.0),
        "release must be a mechanism or a function of (updates, generator), got 'int'",
    ),
    "a replay of answers": (
        lambda: fp.verify(fp.RandomizedResponse(chance=0.5, answers=2), generator=seeded()),
        "release must be a mechanism that clips and releases sums, got 'RandomizedResponse'; pass "
        "a function",
    ),
    "a replay without a norm": (
        lambda: fp.verify(lambda u, g: u.sum(axis=0), noise_std=1.0),
        "clip_norm must be a finite number above 0, got None; pass a number",
    ),
    "a replay of one unit": (
        lambda: fp.verify(lambda u, g: u.sum(axis=0), clip_norm=1.0, noise_std=1.0, units=1),
        "units must be an integer of at least 2, got 1",
    ),
    "a replay of few draws": (
        lambda: fp.verify(STEP, draws=19),
        "draws must be an integer of at least 20, got 19",
    ),
    "a replay under what is not served": (
        lambda: fp.verify(
            fp.NoisyGradientDescent(step_size=0.1, noise_std=1.0, sensitivity=0.5, steps=7),
            generator=seeded(),
            **ZERO,
        ),
        "adjacency must be one of 'replace_one', got 'zero_out'",
    ),
    "a replay that diverges": (
        lambda: fp.verify(
            lambda u, g: u.sum(axis=0) + math.inf, clip_norm=1.0, noise_std=1.0, generator=seeded()
        ),
        "release's result must be finite, of shape (k,) or (rounds, k), got (1, ...)",
    ),
    # cross-checks
    "a cross-check of a number": (
        lambda: fp.crosscheck(3, delta=1e-5),
        "run must be a mechanism, got 'int'; pass Gaussian, for example",
    ),
    "a cross-check at a delta of 2": (
        lambda: fp.crosscheck(STEP, delta=2),
        "delta must lie between 0 and 1, got 2",
    ),
    # pages
    "a page of a verdict": (
        lambda: fp.report("HOLDS", "a.html"),
        "audit must be an audit, a list of audits, or a dict of them by name, got 'str'; "
        "fp.audit(source, claim=(epsilon, delta), ...) audits a mechanism, ...",
    ),
    "a page of a verdict among audits": (
        lambda: fp.report([CLAIMED, None], "a.html"),
        "audit must be an audit, a list of audits, or a dict of them by name, got 'NoneType'; ...",
    ),
    "a page nowhere": (
        lambda: fp.report(CLAIMED, "no/such/folder/a.html"),
        "path must be in an existing folder, got 'no/such/folder/a.html'; create the folder ...",
    ),
    "a page with a deployment": (
        lambda: fp.report(CLAIMED, "a.html", deployment={}),
        "deployment must be left out, got 'given'; it applies only to a path that ends in .yaml",
    ),
    "an entry of two audits": (
        lambda: fp.report([CLAIMED, CLAIMED], "a.yaml", deployment={}),
        "audit must be one audit for the registry, got '2 audits'",
    ),
    "an entry of nobody": (
        lambda: fp.report(CLAIMED, "a.yaml"),
        "deployment must be given for the registry: a dict with ..., got None",
    ),
    # budgets and questions
    "an accountant of a filter": (
        lambda: fp.Budget(1.0, 1e-5, adaptive=True, accountant="advanced", **ZERO),
        "accountant must be left at its default for adaptive schedules, got 'advanced'",
    ),
    "a filter without a delta": (
        lambda: fp.Budget(1.0, 0.0, adaptive=True, **ZERO),
        "delta must lie strictly between 0 and 1, got 0.0",
    ),
    "a budget below nothing": (
        lambda: fp.Budget(-1.0, 1e-5, **ZERO),
        "epsilon must be a finite number of at least 0, got -1.0",
    ),
    "an accountant that there is not": (
        lambda: fp.epsilon(STEP, delta=1e-5, accountant="best", **ZERO),
        "accountant must be one of ..., got 'best'",
    ),
    "a rate in per cent": (
        lambda: fp.attack_risk(STEP, fpr=5, **ZERO),
        "fpr must lie in [0, 1], got 5; it is a false-positive rate",
    ),
    "rates of two axes": (
        lambda: fp.tradeoff_curve(STEP, fpr=np.zeros((1, 1)), **ZERO),
        "fpr must be a rate in [0, 1], or a sequence of them, got array(...",
    ),
    "rates of rows of other lengths": (
        lambda: fp.attack_risk(STEP, fpr=[[0.1], [0.1, 0.2]], **ZERO),
        "fpr must be a rate in [0, 1], or a sequence of them, got [[0.1], [0.1, 0.2]]",
    ),
    "no rate": (
        lambda: fp.tradeoff_curve(STEP, fpr=[], **ZERO),
        "fpr must be a rate in [0, 1], or a sequence of them, got []",
    ),
    "a rate that is a word": (
        lambda: fp.attack_risk(STEP, fpr="0.1", **ZERO),
        "fpr must be a rate in [0, 1], or a sequence of them, got '0.1'",
    ),
    "a run that is the same at every value": (
        lambda: fp.calibrate(lambda z: STEP, epsilon=1.0, delta=1e-5, **ZERO),
        "the run must depend on the calibrated parameter: epsilon is ... at ... and at every "
        "other value tried; check that make_run uses its argument",
    ),
    "a budget that every value meets": (
        lambda: fp.calibrate(
            lambda z: fp.Gaussian(noise_multiplier=max(z, 1.0)), epsilon=1.0, delta=0.9, **ZERO
        ),
        "every tried value meets epsilon = 1, and each gives epsilon = 0; pass a finite "
        "domain to get its last value, or check that make_run uses its argument",
    ),
    "a domain without a whole number": (
        lambda: fp.calibrate(
            lambda n: STEP * n, epsilon=1.0, delta=1e-5, domain=(0.2, 0.8), integer=True, **ZERO
        ),
        "domain must contain an integer above 0, got (0.2, 0.8)",
    ),
    "a certificate of a loss": (
        lambda: CertificateRun(3, BOUND.evidence.curve).to_dict(BOUND),
        "certificate needs a mechanism, got int: a certificate states the run. Pass "
        "fp.Gaussian(...).sampled(...) * rounds, for example",
    ),
    "a certificate of a game": (
        lambda: replace(BOUND, method=adaptive_adversary.METHOD).certificate(),
        "certificate proves one pair per round, but this bound covers a game over many "
        "rounds (PLD, game of adaptive rounds); use accountant='pld'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_evidence_that_is_none_is_refused_in_a_line(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    says(REFUSED[what], fp.ParameterError)
    assert list(tmp_path.iterdir()) == []


def test_a_crosscheck_of_what_nothing_serves_says_why():
    run = STEP.sampled(fp.Shuffled(3, partial=True))
    with pytest.raises(fp.UnsupportedCombination, match="Shuffled has no theorem"):
        fp.crosscheck(run, delta=1e-5, adjacency="add_remove")


IMPOSSIBLE = {
    "no noise is enough": (
        lambda: fp.calibrate(
            lambda z: fp.Gaussian(noise_multiplier=z),
            epsilon=0.1,
            delta=1e-5,
            domain=(0.5, 2.0),
            **ZERO,
        ),
        "no admissible value meets epsilon = 0.1: epsilon is still ... at 2; raise the "
        "budget or change another parameter",
    ),
    "every value is": (
        lambda: fp.calibrate(
            lambda x: fp.Gaussian(noise_multiplier=1.0 + 1.0 / x),
            epsilon=10.0,
            delta=1e-5,
            **ZERO,
        ),
        "every value up to ... meets epsilon = 10; pass a finite domain to get its last value",
    ),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_a_budget_that_no_value_meets_says_how_far_it_is(what):
    says(IMPOSSIBLE[what], ImpossibleBudget)


def test_an_exhausted_budget_says_what_it_was_and_keeps_its_count():
    budget = fp.Budget(fp.epsilon(STEP * 2, delta=1e-5, **ZERO).upper * (1 + 1e-6), 1e-5, **ZERO)
    budget.spend(STEP)
    budget.spend(STEP)
    spent = budget.spent()
    with pytest.raises(BudgetExhausted) as caught:
        budget.spend(STEP)
    words = str(caught.value)
    assert words.startswith(f"one more round exceeds epsilon = {budget.epsilon!r} at delta = 1e-05")
    rule = "(pld accountant (schedule fixed beforehand)); stop here or raise the budget: "
    assert words.endswith(rule + "dataclasses.replace(budget, epsilon=...) keeps the spent rounds")
    assert budget.spent() == spent and spent.upper <= budget.epsilon


@BOUNDED
@given(
    st.lists(st.tuples(st.sampled_from([2.0, 3.0, 8.0]), st.integers(1, 4)), max_size=6),
    st.floats(0.5, 6.0),
)
def test_a_budget_spends_what_fits_and_nothing_else(steps, most):
    """Round by round against the question itself."""
    budget, run = fp.Budget(most, 1e-4, accountant="rdp", **ZERO), None
    for noise, times in steps:
        step = fp.Gaussian(noise_multiplier=noise)
        for _ in range(times):
            longer = step * 1 if run is None else run + step
            upper = fp.epsilon(longer, delta=1e-4, accountant="rdp", **ZERO).upper
            allowed = budget.allows(step)
            # Within the tolerance of a search either answer is right; outside one is.
            if upper <= most * (1 - 1e-2):
                assert allowed
            elif upper > most * (1 + 1e-2):
                assert not allowed
            if allowed:
                budget.spend(step)
                run = longer
    spent = budget.spent()
    assert (spent is None) == (run is None)
    if run is not None:
        assert spent.upper <= most
        assert spent.upper == pytest.approx(
            fp.epsilon(run, delta=1e-4, accountant="rdp", **ZERO).upper, rel=1e-2
        )


# Guesses


@BOUNDED
@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.01, 0.3))
def test_more_right_guesses_refute_more_and_more_canaries_less(guesses, wrong, level):
    wrong = min(wrong, guesses)
    right, canaries = guesses - wrong, guesses + 5
    here = refuted(right, guesses, canaries, 1e-5, level)
    assert here <= refuted(guesses, guesses, canaries, 1e-5, level)
    assert refuted(right, guesses, canaries * 100, 1e-5, level) <= here + 1e-9
    assert refuted(right, guesses, canaries, 1e-3, level) <= here + 1e-9
    assert refuted(right, guesses, canaries, 1e-5, level / 2) <= here + 1e-9
    mu = refuted_mu(right, guesses, canaries, level)
    assert 0.0 <= mu <= refuted_mu(guesses, guesses, canaries, level)
    # A result that a coin reaches with a good chance refutes no claim.
    if right <= guesses / 2:
        assert here == 0.0 and mu == 0.0


@pytest.mark.parametrize("estimator", ["guesses", "gdp"])
def test_an_attack_sees_no_more_than_its_plan_and_less_through_more_noise(estimator):
    given = {"canaries": 200, "estimator": estimator}
    found = {std: attacked(noisy(std), **given)() for std in (0.05, 0.6, 50.0)}
    assert found[0.05].lower >= found[0.6].lower >= found[50.0].lower
    assert found[0.05].lower > 2.0 and found[50.0].lower < 0.7
    assert found[0.05].correct / found[0.05].guesses > 0.99
    if estimator == "guesses":
        assert found[0.05].lower <= plan(200, 1e-5)
    assert found[0.05].verdict == "NO CLAIM" and found[0.05].upper_certified is None
    same = attacked(noisy(0.6), **given)()
    assert (same.lower, same.correct) == (found[0.6].lower, found[0.6].correct)


def test_the_observer_of_the_end_sees_the_last_release():
    """An observer of the end does not see the earlier releases."""
    directions = np.eye(16)

    def early(included, generator):
        shown = included * 100.0 - 50.0
        return np.stack([*[shown] * 30, generator.normal(0, 1, 16)])

    given = {"directions": directions, "canaries": 16}
    always = attacked(early, observer="aggregate", **given)()
    late = attacked(early, observer="final", **given)()
    assert always.correct >= always.guesses - 1 and always.lower > late.lower


# Certificates


CERTIFIED = {
    "a release": (STEP, "zero_out", "aggregate"),
    "drawn rounds": (RUN, "add_remove", "aggregate"),
    "replaced": (RUN, "replace_one", "aggregate"),
    "cohorts": (STEP.sampled(fp.FixedSize(2, population=9)) * 3, "zero_out", "aggregate"),
    "seen cohorts": (STEP.sampled(fp.FixedSize(2, population=9)) * 3, "zero_out", "server"),
    "two kinds": (RUN + fp.Laplace(noise_multiplier=4.0) * 2, "zero_out", "aggregate"),
    "answers": (fp.RandomizedResponse(chance=0.5, answers=3) * 2, "replace_one", "aggregate"),
    "inside a client": (
        RUN.in_cohort(fp.Poisson(0.5)) * 2,
        "zero_out",
        "aggregate",
    ),
}


@pytest.mark.fast_cells(8)
@pytest.mark.parametrize("what", CERTIFIED)
@pytest.mark.parametrize("question", ["epsilon", "delta"])
def test_a_certificate_holds_the_question_the_run_and_the_answer(what, question):
    """Read as JSON by somebody else, it asks the same question again."""
    run, adjacency, observer = CERTIFIED[what]
    facts = {"adjacency": adjacency, "observer": observer}
    asked = {"delta": 1e-4} if question == "epsilon" else {"epsilon": 0.5}
    bound = getattr(fp, question)(run, **asked, **facts)
    read = json.loads(json.dumps(bound.certificate(), allow_nan=False))
    assert read["bound"] == json.loads(json.dumps(bound.to_dict()))
    again = decode(read["mechanism"], KINDS)
    assert again == run and hash(again) == hash(run)
    assert getattr(fp, question)(again, **asked, **facts) == bound
    assert [part["count"] for part in read["rounds"]] == [count for _, count in run.sequence()]
    # A pair that the checker makes itself is not in the document.
    stated = [part["pair"] for part in read["rounds"] if part["pair"] is not None]
    curves = [decode(pair, KINDS) for pair in stated]
    parts = [part.privacy_loss(adjacency, observer) for part, _ in run.sequence()]
    assert all(curve.swap().swap() == curve for curve in curves)
    assert [part["theorems"] for part in read["rounds"]] == [list(p.theorems) for p in parts]
    assert len(read["digest"]) == 64 and bound.certificate()["digest"] == read["digest"]


def test_a_certificates_digest_is_of_every_field():
    import hashlib

    whole = BOUND.certificate()
    digest = whole.pop("digest")

    def signed(document):
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    assert signed(whole) == digest
    for name in whole:
        assert signed({**whole, name: None}) != digest
        assert signed({k: v for k, v in whole.items() if k != name}) != digest


# Verdicts


WIDE = fp.epsilon(
    STEP.sampled(fp.FixedSize(10, population=100)) * 20, delta=1e-5, adjacency="replace_one"
)


@BOUNDED
@given(st.floats(-0.5, 1.5), st.sampled_from([WIDE, BOUND]))
def test_a_verdict_is_the_place_of_the_claim(share, bound):
    """Below, within and above an interval that is not a point."""
    assert WIDE.lower < 0.999 * WIDE.upper
    claim = bound.lower + share * (bound.upper - bound.lower)
    wanted = "CANNOT BE CERTIFIED"
    wanted = "HOLDS" if claim >= bound.upper else "FAILS" if claim < bound.lower else wanted
    assert bound.verdict(claim) == wanted
    # Certified ends, printed in any number of digits, stay on their sides.
    for digits in (1, 3, 6):
        low, high = map(float, bound.ends(digits))
        assert low <= bound.lower and high >= bound.upper
    assert bound.verdict(bound.upper) == "HOLDS" and bound.verdict(math.inf) == "HOLDS"
