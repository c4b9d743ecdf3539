"""Records of other programs: read fields, missing facts, refusals and verdicts."""

import json
import time
import tracemalloc

import dp_accounting as dpa
import pytest

import fedprivacy as fp
from fedprivacy.audit import imports
from fedprivacy.audit.imports import content
from fedprivacy.audit.imports.syntax import content_of
from fedprivacy.errors import ConversionError, FedPrivacyError
from tests.common import RECORDS

pytestmark = pytest.mark.usefixtures("narrowest")

SAID = json.loads((RECORDS / "said.json").read_text())
TINY = 1 / 48000


def cut(value, digits):
    """A number as somebody prints it."""
    return float(f"{value:.{digits}f}")


# Each fault with its right twin: the same record, and the claim that it bears.
FAULTS = {
    "central limit": (
        ("opacus_gdp.json", (cut(SAID["opacus_gdp"], 2), TINY)),
        {"adjacency": "add_remove", "sampling": "poisson"},
        "central limit theorem",
        ("opacus_rdp.json", (SAID["opacus_rdp"], TINY), {}),
    ),
    "batches shuffled, accounted as Poisson": (
        ("opacus_rdp.json", (cut(SAID["opacus_rdp"], 2), TINY)),
        {"adjacency": "zero_out", "sampling": "shuffled", "observer": "server"},
        "1 round",
        (
            "opacus_rdp.json",
            (cut(SAID["opacus_rdp"], 2), TINY),
            {"sampling": "poisson", "observer": "aggregate"},
        ),
    ),
    "sensitivity C where it is 2 C": (
        ("flower.json", (cut(SAID["flower"], 4), 7e-5)),
        {},
        "a sum of clipped vectors by up to",
        ("flower.json", (3.49, 7e-5), {}),
    ),
    "fixed size accounted as Poisson": (
        ("fixed.csv", (0.6303, 7e-5)),
        {"adjacency": "add_remove"},
        "Poisson sampling at the same rate",
        ("fixed.csv", (3.2133, 7e-5), {}),
    ),
    "local steps counted once": (
        ("opacus_rounds.json", (SAID["opacus_rounds"], 1e-5)),
        {"adjacency": "add_remove", "sampling": "poisson", "steps_per_round": 10},
        "local steps counted once",
        ("opacus_steps.json", (SAID["opacus_steps"], 1e-5), {"steps_per_round": 1}),
    ),
    "noise of clients that did not answer": (
        ("shares.csv", (SAID["flower_shares"], 1e-5)),
        {"missing_shares": 20, "adjacency": "replace_one"},
        "all shares of the noise",
        (
            "shares.csv",
            (SAID["flower_shares"], 1e-5),
            {"missing_shares": 0, "adjacency": "replace_one"},
        ),
    ),
    "the steps of an epoch rounded down": (
        ("event_ceiling.json", (SAID["event_floor"], 1e-5)),
        {"adjacency": "add_remove"},
        "the steps of an epoch rounded down",
        ("event_ceiling.json", (SAID["event_ceiling"], 1e-5), {}),
    ),
    "local steps of a record that has them all": (
        ("opacus_steps.json", (SAID["opacus_rounds"], 1e-5)),
        {"adjacency": "add_remove", "sampling": "poisson"},
        "noisy sums counted as one",
        ("opacus_steps.json", (SAID["opacus_steps"], 1e-5), {}),
    ),
    "an estimate in place of an upper end": (
        ("event.json", (4.17, 1e-5)),
        {"adjacency": "add_remove"},
        "An estimate or a number rounded down is",
        ("event.json", (SAID["event"], 1e-5), {}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named_and_its_twin_holds(fault):
    (name, claim), facts, words, (twin, right, others) = FAULTS[fault]
    found = fp.audit(RECORDS / name, claim=claim, **facts)
    assert found.verdict == "FAILS", found
    assert words in str(found) or fault.startswith("batches")
    fine = fp.audit(RECORDS / twin, claim=right, **{**facts, **others})
    assert fine.verdict == "HOLDS", fine


OPACUS = {"adjacency": "add_remove", "sampling": "poisson"}


def test_runs_that_were_tried_count_for_upper_ends():
    claim = (SAID["opacus_rdp"], TINY)
    found = fp.audit(RECORDS / "opacus_rdp.json", claim=claim, trials=20, **OPACUS)
    assert found.verdict == "CANNOT BE CERTIFIED"
    assert "only one of the runs on these data" in found.reasons[1]
    run = fp.Gaussian(noise_multiplier=3.0).sampled(fp.Poisson(0.2))
    whole = fp.epsilon(run * 1000, delta=TINY, adjacency="add_remove")
    one = fp.epsilon(run * 50, delta=TINY, adjacency="add_remove")
    assert found.bound.upper == whole.upper and found.bound.lower <= one.upper
    assert fp.audit(RECORDS / "opacus_rdp.json", claim=claim, trials=1, **OPACUS).verdict == "HOLDS"


def test_what_no_record_shows_is_asked_for_and_told_when_nobody_answers():
    path, claim = RECORDS / "opacus_rdp.json", (9.0, TINY)
    found = fp.audit(path, claim=claim, **OPACUS)
    assert set(found.granted) == {
        "steps_per_round",
        "missing_shares",
        "denominator",
        "trials",
        "rates",
    }
    found = fp.audit(path, claim=claim, trials=1, denominator="public", **OPACUS)
    assert set(found.granted) == {"steps_per_round", "missing_shares", "rates"}
    assert found.stated["trials"] == "1" and found.stated["denominator"] == "public"
    for wrong in ({"trials": 0}, {"denominator": "none"}, {"missing_shares": 3}):
        with pytest.raises(fp.ParameterError, match=next(iter(wrong)) + r"|cohort"):
            fp.audit(path, claim=claim, **wrong, **OPACUS)
    with pytest.raises(fp.ParameterError, match="trials"):
        fp.audit(fp.Gaussian(noise_multiplier=1.0), claim=claim, adjacency="zero_out", trials=3)


def test_rounds_that_hold_steps_count_whole_in_a_pass_that_is_not(tmp_path):
    """Five rounds of a pass of ten, four noisy sums each: a unit is in one of the rounds."""
    path = tmp_path / "a.toml"
    path.write_text(
        "noise_multiplier = 2.0\nrounds = 5\nsampling = 'shuffled'\nrounds_per_epoch = 10\n"
        "steps_per_round = 4\nadjacency = 'zero_out'\nepsilon = 9.0\ndelta = 1e-5\n"
    )
    four = fp.epsilon(fp.Gaussian(noise_multiplier=2.0) * 4, delta=1e-5, adjacency="zero_out")
    assert fp.audit(path, observer="server").bound.upper == pytest.approx(four.upper, abs=1e-9)


def test_a_history_alone_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[[3.0, 0.2, 50]]")
    found = fp.audit(path, claim=(SAID["opacus_rdp"], TINY), **OPACUS)
    assert found.verdict == "HOLDS" and found.origin.kind == "Opacus accountant state"


@pytest.mark.parametrize(
    ("name", "given", "asked"),
    [
        ("opacus_rdp.json", {"adjacency": "zero_out", "claim": (1, 1e-5)}, "sampling"),
        ("opacus_rdp.json", {"sampling": "poisson", "claim": (1, 1e-5)}, "adjacency"),
        ("opacus_rdp.json", {"sampling": "poisson", "adjacency": "zero_out"}, "claim"),
        (
            "opacus_rdp.json",
            {"sampling": "fixed", "adjacency": "zero_out", "claim": (1, 1e-5)},
            "population",
        ),
        ("event.json", {"claim": (1, 1e-5)}, "adjacency"),
        ("flower.json", {}, "claim"),
        ("flower.json", {"claim": (1, 1e-5), "sampling": "poisson"}, "sampling_probability"),
        ("fixed.csv", {"claim": (1, 1e-5)}, "adjacency"),
    ],
)
def test_what_a_format_does_not_hold_is_asked_for(name, given, asked):
    with pytest.raises(fp.ParameterError, match=rf"^{asked} must"):
        fp.audit(RECORDS / name, **given)


@pytest.mark.usefixtures("no_plots")
def test_an_imported_record_says_so_and_never_speaks_of_our_seed_or_version(tmp_path):
    facts = {"claim": (9.0, TINY), "adjacency": "add_remove", "sampling": "poisson"}
    found = fp.audit(RECORDS / "opacus_rdp.json", auditor="A. Uditor", **facts)
    recorded, stated = found.facts_recorded, found.stated
    assert found.statement == "HOLDS, according to an imported record"
    assert "not recorded by fedprivacy" in recorded["source"]
    assert recorded["SHA-256 of the source"] == content.digest(RECORDS / "opacus_rdp.json")
    assert recorded["imported by"] == "A. Uditor" and recorded["imported"]
    assert set(stated) == {"adjacency", "sampling", "claim"}
    assert "seed policy" not in recorded and "versions" not in recorded
    page = fp.report(found, tmp_path / "a.html", subject="a network").read_text()
    for told in (
        "A. Uditor",
        found.origin.sha256,
        "a network",
        "stated by the user but not recorded",
    ):
        assert told in page
    assert "operating system" not in page


def test_missing_rounds_cannot_hold(tmp_path):
    lines = (RECORDS / "fixed.csv").read_text().splitlines()
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines[:50] + lines[60:]))
    facts = {"adjacency": "zero_out"}
    found = fp.audit(path, claim=(50.0, 7e-5), **facts)
    assert found.verdict == "CANNOT BE CERTIFIED" and "rounds are missing" in found.statement
    assert fp.audit(path, claim=(0.01, 7e-5), **facts).verdict == "FAILS"
    path.write_text("\n".join(lines[:50] + lines[40:]))
    with pytest.raises(ConversionError, match="numbers must rise"):
        fp.audit(path, claim=(50.0, 7e-5), **facts)


def test_a_pass_that_is_not_whole_counts_up_for_upper_ends_and_down_for_lower(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["round,noise_multiplier", *(f"{i},2.0" for i in range(25))]))
    facts = {"adjacency": "zero_out", "sampling": fp.Shuffled(10), "claim": (9.0, 1e-5)}
    facts |= {"observer": "server"}
    found = fp.audit(path, **facts).bound
    low, high = (
        fp.epsilon(fp.Gaussian(noise_multiplier=2.0) * n, delta=1e-5, adjacency="zero_out")
        for n in (2, 3)
    )
    assert found.lower == pytest.approx(low.lower, abs=1e-3)
    assert found.upper == pytest.approx(high.upper, abs=1e-3)
    path.write_text(path.read_text().replace("7,2.0", "7,4.0"))
    mixed = fp.audit(path, **facts)
    # A unit in another round of that pass gets the same noise, in all three.
    assert mixed.bound.upper == found.upper and mixed.bound.lower < found.lower


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "{",
        '{"hello": 1}',
        "[1, 2]",
        '{"history": [[NaN, 0.1, 1]]}',
        '{"history": [[Infinity, 0.1, 1]]}',
        '{"history": [[1e999, 0.1, 1]]}',
        '{"history": [[-1, 0.1, 1]]}',
        '{"history": [[1.0, 0.1, 0]]}',
        '{"history": [[1.0, 0.1, 1.5]]}',
        '{"history": [[true, 0.1, 1]]}',
        '{"history": []}',
        '{"history": [[1.0, 0.1, 1]], "mechanism": "rdp", "noise": 1}',
        '{"noise_multiplier": 1.0}',
        '{"noise_multiplier": 1.0, "rounds": 1, "sigma": 2}',
        '{"noise_multiplier": 1.0, "noise_std": 3.0, "clip_norm": 1.0, "rounds": 1}',
        '{"noise_std": 3.0, "rounds": 1}',
        '{"type": "SystemDpEvent", "command": "rm"}',
        '["dp_accounting.dp_event", "GaussianDpEvent"]',
        '["os", "system", "true"]',
        "noise_multiplier = nan\nrounds = 1",
        "noise_multiplier = inf\nrounds = 1",
        "round,noise_multiplier\n1,nan",
        "round,noise_multiplier\n1,inf",
        "round,noise_multiplier\n1,-1",
        "round,noise_multiplier\n1",
        "round,noise_multiplier,round\n1,1,1",
        'round,noise_multiplier\n1,"1',
        '{"round": 1, "noise_multiplier": 1e400}',
    ],
)
def test_what_is_no_record_is_refused_with_an_error_of_ours(tmp_path, text):
    path = tmp_path / "a"
    path.write_text(text)
    with pytest.raises(FedPrivacyError) as caught:
        fp.audit(path, claim=(1.0, 1e-5), adjacency="zero_out", sampling="poisson")
    assert len(str(caught.value)) < 700


def test_plain_text_is_told_with_the_options_that_state_it(tmp_path):
    path = tmp_path / "a"
    path.write_text(
        "[10:02] noise_multiplier: 1.1 after 200 rounds, (\u03b5 = 0.7, \u03b4 = 1e-5)\n"
    )
    with pytest.raises(ConversionError, match="a: plain text, which is no record") as caught:
        fp.audit(path)
    told = str(caught.value)
    assert "fedprivacy audit --noise-multiplier 1.1" in told and "--claim 0.7,1e-5" in told


def test_an_event_that_was_printed_is_read_by_its_names(tmp_path):
    path = tmp_path / "a"
    path.write_text(repr(dpa.GaussianDpEvent(noise_multiplier=1.1)))
    with pytest.raises(fp.ParameterError, match=r"found noise_multiplier = 1\.1"):
        fp.audit(path)


def test_all_fields_that_a_statement_does_not_have_are_named_with_ours():
    said = {"noise_multiplier": 1.1, "smple_rate": 0.03, "rounds": 200, "unit": "record"}
    with pytest.raises(ConversionError) as caught:
        fp.audit({**said, "adjacency": "add_remove", "delt": 1e-5})
    assert str(caught.value) == (
        "statement of parameters: no fields of a statement: 'delt' (here delta), 'smple_rate'; see "
        "docs/auditing.md, Statements"
    )


@pytest.mark.parametrize("start", ["round,noise_multiplier\n1,", '{"history": [[1.0, ', "{", ""])
def test_a_line_of_a_gigabyte_is_refused_in_bounded_memory(tmp_path, start):
    path = tmp_path / "a"
    path.write_text(start)
    with open(path, "r+b") as file:
        file.truncate(2**30)  # a hole: a gigabyte of zeros that takes no room on disk
    # Reading it all would take memory: that it is not read is what bounds the time as well.
    tracemalloc.start()
    try:
        with pytest.raises(FedPrivacyError):
            imports.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * content.MAX_WHOLE


SMALL = (1e-9, 1e-12)
"""A claim that not one round of any mutated record below can keep."""


def asked(name):
    given = {"claim": SMALL, "adjacency": "zero_out"}
    return given | ({"sampling": "poisson"} if name == "opacus_rdp.json" else {})


COMMENTED = """{ // a run
 "url": "http://a//b", /* its
 noise */ noise_multiplier: 1.1, 'text': "/* kept */",
}"""


def test_comments_in_json_are_left_out_and_texts_stay(tmp_path):
    path = tmp_path / "a.json5"
    path.write_text(COMMENTED)
    values = {"url": "http://a//b", "noise_multiplier": 1.1, "text": "/* kept */"}
    assert content_of(path).values == values


@pytest.mark.parametrize("piece", ["/*", '"\\', "//", "'", "\n", "a {", "b, (", "| ", "x = "])
def test_a_long_file_takes_a_bounded_time(tmp_path, piece):
    path, start = tmp_path / "a.txt", time.process_time()
    for opening in ("", "{", "noise\n"):
        path.write_text(opening + piece * (200_000 // len(piece)))
        with pytest.raises(FedPrivacyError):
            fp.audit(path, claim=(1.0, 1e-5))
    assert time.process_time() - start < 20.0
