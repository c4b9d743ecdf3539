"""Records that contradict themselves or hide a larger loss: none of them HOLDS."""

import json

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import ConversionError, FedPrivacyError

pytestmark = pytest.mark.usefixtures("narrowest")

LOUD, QUIET = 100.0, 0.5


def passes(noise, number, **facts):
    """What a unit spends that is in so many passes, each with this noise."""
    step = fp.Gaussian(noise_multiplier=noise)
    return fp.epsilon(step * number, delta=1e-5, adjacency="zero_out", **facts)


@pytest.mark.parametrize(
    ("history", "quiet"),
    [
        ([[LOUD, 0.1, 5], [QUIET, 0.1, 5]] * 10, 10),  # the same half of every pass is quiet
        ([[LOUD, 0.1, 5], [QUIET, 0.1, 10], [LOUD, 0.1, 5]], 2),  # ten steps lie in two passes
        ([[LOUD, 0.1, 1], [QUIET, 0.1, 1]] * 15, 3),
    ],
)
def test_noise_that_changes_within_a_pass_costs_what_its_quietest_round_does(history, quiet):
    facts = {"sampling": "shuffled", "adjacency": "zero_out"}
    true = passes(QUIET, quiet).lower
    found = fp.audit({"history": history}, claim=(0.9 * true, 1e-5), **facts)
    assert found.verdict != "HOLDS", found
    assert found.bound.upper >= true


def test_noise_that_changes_between_passes_costs_no_more_than_it_has_to():
    history = [[LOUD, 0.1, 20], [QUIET, 0.1, 10]]
    found = fp.audit(
        {"history": history},
        claim=(1.0, 1e-5),
        sampling="shuffled",
        adjacency="zero_out",
        observer="server",
    )
    steps = [(fp.Gaussian(noise_multiplier=LOUD), 2), (fp.Gaussian(noise_multiplier=QUIET), 1)]
    run = steps[0][0] * steps[0][1] + steps[1][0] * steps[1][1]
    wanted = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    assert found.bound.upper == pytest.approx(wanted.upper, abs=1e-9)
    assert found.bound.lower == pytest.approx(wanted.lower, abs=1e-9)


def test_epochs_of_two_lengths_are_aligned_in_no_way_that_is_known(tmp_path):
    head = "round,noise_multiplier,sampling,rounds_per_epoch"
    rows = [f"{i},{QUIET if 5 <= i < 15 else LOUD},shuffled,10" for i in range(20)]
    rows += [f"{i},{LOUD},shuffled,7" for i in range(20, 34)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join([head, *rows]))
    found = fp.audit(path, claim=(0.9 * passes(QUIET, 2).lower, 1e-5), adjacency="zero_out")
    assert found.verdict != "HOLDS"


def test_noisy_sums_of_one_round_are_of_one_cohort():
    """Ten sums of a cohort that was drawn once are not ten draws."""
    true = fp.epsilon(
        (fp.Gaussian(noise_multiplier=2.0) * 10).sampled(fp.Poisson(0.01)) * 100,
        delta=1e-5,
        adjacency="add_remove",
    )
    facts = {"sampling": "poisson", "adjacency": "add_remove", "steps_per_round": 10}
    state = {"history": [[2.0, 0.01, 100]]}
    assert fp.audit(state, claim=(0.9 * true.lower, 1e-5), **facts).verdict == "FAILS"
    assert fp.audit(state, claim=(1.01 * true.upper, 1e-5), **facts).verdict == "HOLDS"


HEAD = "round,noise_multiplier,sampling,sampling_probability,cohort,population,rounds_per_epoch"


@pytest.mark.parametrize(
    ("row", "twin"),
    [
        ("1,poisson,0.01,1000,1000,", "1,poisson,0.01,{},1000,"),
        ("1,poisson,0.01,15,1000,", "1,poisson,0.01,{},1000,"),
        ("1,fixed,0.9,10,1000,", "1,fixed,0.01,10,1000,"),
        ("1,with-replacement,0.9,10,1000,", "1,with-replacement,0.01,10,1000,"),
        ("1,shuffled,,1000,1000,100", "1,shuffled,,10,1000,100"),
        ("1,shuffled,0.5,,,100", "1,shuffled,0.01,,,100"),
        ("1,allocation,,1000,1000,100", "1,allocation,,10,1000,100"),
    ],
)
def test_cohorts_that_their_own_sampling_denies_certify_nothing(tmp_path, row, twin):
    verdicts, drawn = [], np.random.default_rng(1).binomial(1000, 0.01, size=100)
    for cells in (row, twin):
        path = tmp_path / "a.csv"
        rows = (f"{i},{cells.format(size)}" for i, size in enumerate(drawn))
        path.write_text("\n".join([HEAD, *rows]))
        found = fp.audit(path, claim=(100.0, 1e-5), adjacency="zero_out")
        verdicts.append((found.verdict, found.void))
    assert verdicts == [("CANNOT BE CERTIFIED", True), ("HOLDS", False)]


def test_cohorts_that_a_stated_scheme_denies_certify_nothing(tmp_path):
    path = tmp_path / "a.csv"
    rows = (f"{i},1,1000,1000" for i in range(20))
    path.write_text("\n".join(["round,noise_multiplier,cohort,population", *rows]))
    facts = {"claim": (100.0, 1e-5), "adjacency": "zero_out"}
    for scheme in (fp.Poisson(0.01), fp.Shuffled(20), fp.RandomAllocation(20)):
        assert fp.audit(path, sampling=scheme, **facts).void, scheme
    assert fp.audit(path, sampling="everyone", **facts).verdict == "HOLDS"


@pytest.mark.parametrize("said", [{"denominator": "public"}, {"trials": 1}])
def test_what_is_stated_against_a_statement_keeps_its_claim_from_holding(tmp_path, said):
    path = tmp_path / "a.json"
    fields = {"rounds": 1, "noise_multiplier": 4.0, "sampling": "everyone"}
    path.write_text(json.dumps({**fields, "denominator": "realised", "trials": 50}))
    facts = {"claim": (100.0, 1e-5), "adjacency": "add_remove", "trials": 50}
    found = fp.audit(path, **{**facts, "denominator": "public", **said})
    assert found.verdict == "CANNOT BE CERTIFIED"
    assert any(next(iter(said)) in reason for reason in found.reasons)
    fine = {"adjacency": "zero_out", "denominator": "realised"}
    assert fp.audit(path, **{**facts, **fine}).verdict == "HOLDS"


@pytest.mark.parametrize(
    "text",
    [
        '{"rounds":1000,"rounds":1,"noise_multiplier":1,"sampling":"everyone"}',
        '{"round":0,"noise_multiplier":0.1,"noise_multiplier":100,"sampling":"everyone"}',
        '{"type":"GaussianDpEvent","noise_multiplier":0.1,"noise_multiplier":50}',
        '{"history":[[0.1,0.1,1]],"history":[[9.0,0.1,1]]}',
    ],
)
def test_a_name_that_is_there_twice_is_refused(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ConversionError, match="twice"):
        fp.audit(path, claim=(9.0, 1e-5), adjacency="zero_out", sampling=None)


def test_a_guarantee_stated_for_one_adjacency_is_not_relabelled():
    state = {
        "integration": 1e-4,
        "neighboring_relation": "ADD_OR_REMOVE_ONE",
        "ledger": {"type": "ZCDpEvent", "rho": 0.1, "xi": 0.0},
    }
    assert fp.audit(state, claim=(3.0, 1e-5)).verdict == "HOLDS"
    with pytest.raises(FedPrivacyError, match="add_remove"):
        fp.audit(state, claim=(3.0, 1e-5), adjacency="replace_one")


def test_an_event_with_two_names_is_refused(tmp_path):
    two = {"type": "GaussianDpEvent", "class_name": "NonPrivateDpEvent", "noise_multiplier": 5.0}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(two))
    with pytest.raises(FedPrivacyError, match="class_name"):
        fp.audit(path, claim=(3.0, 1e-5), adjacency="zero_out")


def test_an_entry_of_the_registry_says_what_no_record_shows(tmp_path):
    asked = ("name", "description", "intended_use", "data_product_region")
    said = {**dict.fromkeys(asked, "x"), "publication_date": "2026-11-22"}
    said |= {"data_curators": ["A"], "registry_authors": ["A"]}
    facts = {"adjacency": "zero_out", "sampling": "everyone", "claim": (9.0, 1e-5)}
    found = fp.audit({"history": [[4.0, 0.1, 2]]}, **facts)
    text = fp.report(found, tmp_path / "a.yaml", deployment=said).read_text()
    assert "certified, according to an imported record." in text
    assert "Stated by the user but not recorded: adjacency = zero_out; sampling = everyone" in text
    assert "Assumed by default: each recorded round released one noisy sum" in text
    assert 'model_name: "Central"' in text  # a record of one data set; no client is in it


def test_trials_that_a_statement_counts_are_told(tmp_path):
    path = tmp_path / "run.toml"
    text = "noise_multiplier = 4\nrounds = 9\nsampling = 'everyone'\nadjacency = 'zero_out'\n"
    path.write_text(text + "epsilon = 30\ndelta = 1e-5\ntrials = 3\n")
    found = fp.audit(path)
    assert found.facts_recorded["trials"] == "3"
    page = fp.report(found, tmp_path / "run.md").read_text()
    assert (
        "3 runs on the same data" in page and "only this run; tuning and other runs on" not in page
    )
