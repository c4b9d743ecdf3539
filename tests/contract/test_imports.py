"""Records of other programs: what is read, what is asked for, what is refused, what is found."""

import json
import math
import random
import re
import tracemalloc
import zipfile
from pathlib import Path

import dp_accounting as dpa
import pytest

import fedprivacy as fp
from fedprivacy.audit import imports
from fedprivacy.audit.imports import content, statement
from fedprivacy.errors import ConversionError, FedPrivacyError

RECORDS = Path(__file__).parent / "traces"
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
        "move a sum of clipped vectors by up to 2 C",
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
    "steps rounded down": (
        ("event_ceiling.json", (SAID["event_floor"], 1e-5)),
        {"adjacency": "add_remove"},
        "an epoch's steps rounded down",
        ("event_ceiling.json", (SAID["event_ceiling"], 1e-5), {}),
    ),
    "local steps of a record that has them all": (
        ("opacus_steps.json", (SAID["opacus_rounds"], 1e-5)),
        {"adjacency": "add_remove", "sampling": "poisson"},
        "several noisy sums counted as one",
        ("opacus_steps.json", (SAID["opacus_steps"], 1e-5), {}),
    ),
    "an estimate in place of an upper end": (
        ("event.json", (4.17, 1e-5)),
        {"adjacency": "add_remove"},
        "An estimate, or a number rounded down",
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
    assert "one run of those that were tried" in found.reasons[1]
    run = fp.Gaussian(noise_multiplier=3.0).sampled(fp.Poisson(0.2))
    whole = fp.epsilon(run * 1000, delta=TINY, adjacency="add_remove")
    one = fp.epsilon(run * 50, delta=TINY, adjacency="add_remove")
    assert found.bound.upper == whole.upper and found.bound.lower <= one.upper
    assert fp.audit(RECORDS / "opacus_rdp.json", claim=claim, trials=1, **OPACUS).verdict == "HOLDS"


def test_a_denominator_that_follows_the_data_certifies_nothing():
    claim = (SAID["opacus_rdp"], TINY)
    path = RECORDS / "opacus_rdp.json"
    for adjacency in ("add_remove", "zero_out"):
        facts = OPACUS | {"adjacency": adjacency}
        found = fp.audit(path, claim=claim, denominator="realised", **facts)
        assert found.verdict == "CANNOT BE CERTIFIED" and found.void
        assert "follow the number of units" in found.reasons[0]
        assert fp.audit(path, claim=claim, denominator="public", **facts).verdict == "HOLDS"


def test_epsilons_added_over_disjoint_clients_are_told():
    sums = (7 * SAID["opacus_rdp"], TINY)
    found = fp.audit(RECORDS / "opacus_rdp.json", claim=sums, **OPACUS)
    assert found.verdict == "HOLDS" and "7 times the number of this run" in found.reasons[1]
    fine = fp.audit(RECORDS / "opacus_rdp.json", claim=(SAID["opacus_rdp"], TINY), **OPACUS)
    assert fine.verdict == "HOLDS" and len(fine.reasons) == 1


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


def test_a_table_and_a_statement_hold_what_no_accountant_does(tmp_path):
    path = tmp_path / "a.csv"
    head = "round,noise_multiplier,cohort,population,sampling,steps_per_round,missing_shares"
    path.write_text("\n".join([head, "1,4.0,50,50,everyone,2,0", "2,4.0,50,50,everyone,2,30"]))
    found = fp.audit(path, claim=(3.0, 1e-5), adjacency="zero_out")
    step, quiet = (fp.Gaussian(noise_multiplier=z) for z in (4.0, 4.0 * math.sqrt(0.4)))
    wanted = fp.epsilon(step * 2 + quiet * 2, delta=1e-5, adjacency="zero_out")
    assert found.bound.upper == pytest.approx(wanted.upper, abs=1e-9)
    assert set(found.granted) == {"denominator", "trials", "rates"}
    path = tmp_path / "a.toml"
    path.write_text(
        "noise_multiplier = 4.0\nrounds = 3\nsampling = 'everyone'\nadjacency = 'add_remove'\n"
        "epsilon = 2.0\ndelta = 1e-5\ntrials = 5\ndenominator = 'realised'\n"
    )
    assert fp.audit(path).void
    kinder = fp.audit(path, denominator="public", trials=1)
    assert kinder.verdict == "FAILS" or kinder.bound.upper > 0
    text = path.read_text().replace("realised", "public")
    path.write_text(text.replace("trials = 5", "trials = 1\nsteps_per_round = 5"))
    five = fp.epsilon(step * 15, delta=1e-5, adjacency="add_remove")
    assert fp.audit(path).bound.upper == five.upper


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


def test_a_shuffled_pass_accounted_as_poisson_is_named(tmp_path):
    """An MNIST example of DP-SGD: 468 batches an epoch, z = 1.1, five epochs."""
    path = tmp_path / "log.csv"
    lines = ["round,noise_multiplier,sampling,rounds_per_epoch"]
    path.write_text("\n".join([*lines, *(f"{i},1.1,shuffled,468" for i in range(5 * 468))]))
    seen = {"adjacency": "zero_out", "observer": "server"}
    found = fp.audit(path, claim=(0.4315, 1e-5), **seen)
    assert found.verdict == "FAILS" and found.bound.lower > 10.19
    assert fp.audit(path, claim=(10.2, 1e-5), **seen).verdict == "HOLDS"
    secret = fp.audit(path, claim=(0.4315, 1e-5), adjacency="zero_out")  # the order is not known
    assert secret.verdict == "CANNOT BE CERTIFIED" and 0.41 < secret.bound.lower < 0.42
    assert "would be the number of Poisson sampling at the same rate" in secret.reasons[1]


def test_the_gaussian_limit_of_a_published_thread():
    facts = {"adjacency": "add_remove", "sampling": "poisson"}
    found = fp.audit(RECORDS / "opacus_gdp.json", claim=(1.83, TINY), **facts)
    assert found.verdict == "FAILS" and 1.9608 < found.bound.lower <= found.bound.upper < 1.9609
    assert "central limit theorem" in found.reasons[1]


@pytest.mark.parametrize(
    ("adjacency", "verdict"), [("zero_out", "HOLDS"), ("replace_one", "FAILS")]
)
def test_at_most_ten(adjacency, verdict):
    found = fp.audit(fp.Gaussian(noise_multiplier=2.4) * 20, claim=(10, 1e-5), adjacency=adjacency)
    assert found.verdict == verdict
    if verdict == "FAILS":
        assert found.bound.lower > 22.17 and "zero_out (9.16598)" in found.reasons[1]
    else:
        assert found.bound.upper < 9.166


def test_a_sensitivity_that_is_not_the_clip_norm(tmp_path):
    """A filter that clips to 1 and calibrates its noise for a sensitivity of 1e-4."""
    path = tmp_path / "filter.toml"
    std = 1e-4 * math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
    text = f"noise_std = {std!r}\nclip_norm = 1\nrounds = 1\nsampling = 'everyone'\n"
    path.write_text(
        text + "sensitivity = 1e-4\nadjacency = 'zero_out'\nepsilon = 10\ndelta = 1e-5\n"
    )
    found = fp.audit(path)
    assert found.verdict == "FAILS" and found.bound.lower >= 1e7
    assert "a sensitivity of 0.0001 clip norms" in found.reasons[1]
    right = text.replace(repr(std), "0.7")
    path.write_text(right + "adjacency = 'zero_out'\nepsilon = 10\ndelta = 1e-5\n")
    assert fp.audit(path).verdict == "HOLDS"


def test_flowers_account_of_replacement():
    found = fp.audit(RECORDS / "flower.json", claim=(1.4705, 7e-5))
    bound = found.bound
    assert found.verdict == "FAILS" and found.facts == ("client", "replace_one", "aggregate")
    assert bound.lower > 3.213 and bound.upper < 3.488


def test_three_ways_of_writing_an_event_are_one():
    event = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(1.0)), 30)
    ours = {
        "type": "SelfComposedDpEvent",
        "event": {
            "type": "PoissonSampledDpEvent",
            "sampling_probability": 0.1,
            "event": {"type": "GaussianDpEvent", "noise_multiplier": 1.0},
        },
        "count": 30,
    }
    facts = {"claim": (5.0, 1e-5), "adjacency": "add_remove"}
    sources = (event, ours, RECORDS / "event.json", RECORDS / "event_list.json")
    assert len({fp.audit(each, **facts).bound.upper for each in sources}) == 1
    assert fp.audit(event, **facts).verdict == "HOLDS"


def test_a_checkpoint_holds_its_accountants_history():
    pytest.importorskip("torch")
    facts = {"claim": (9.0, 1e-5), "adjacency": "add_remove", "sampling": "poisson"}
    found = fp.audit(RECORDS / "opacus.pt", **facts)
    run = fp.Gaussian(noise_multiplier=3.0, unit="record").sampled(fp.Poisson(0.2)) * 5
    assert found.run == run and found.rounds == 5


def test_pickles_and_packed_archives_are_refused(tmp_path):
    import pickle

    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"history": [(1.0, 0.1, 1)]}))
    with pytest.raises(ConversionError, match="pickle"):
        fp.audit(tmp_path / "a.pkl")
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b/data.pkl", b"0" * 2**20)
    with pytest.raises(ConversionError, match="compressed"):
        fp.audit(tmp_path / "b.pt")


def test_a_checkpoint_that_runs_a_program_is_refused(tmp_path):
    torch = pytest.importorskip("torch")

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "made"), "w"))

    torch.save({"history": [(1.0, 0.1, 1)], "mechanism": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ConversionError):
        fp.audit(tmp_path / "evil.pt", claim=(1.0, 1e-5), adjacency="zero_out")
    assert not (tmp_path / "made").exists()


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


def test_an_imported_record_says_so_and_never_speaks_of_our_seed_or_version(tmp_path):
    facts = {"claim": (9.0, TINY), "adjacency": "add_remove", "sampling": "poisson"}
    found = fp.audit(RECORDS / "opacus_rdp.json", auditor="A. Uditor", **facts)
    recorded, stated = found.facts_recorded, found.stated
    assert found.statement == "HOLDS, on the word of an imported record"
    assert "not recorded by fedprivacy" in recorded["source"]
    assert recorded["SHA-256 of the source"] == content.digest(RECORDS / "opacus_rdp.json")
    assert recorded["imported by"] == "A. Uditor" and recorded["imported"]
    assert set(stated) == {"adjacency", "sampling", "claim"}
    assert "seed policy" not in recorded and "versions" not in recorded
    page = fp.report(found, tmp_path / "a.html", subject="a network").read_text()
    for told in ("A. Uditor", found.origin.sha256, "a network", "stated by the user, not recorded"):
        assert told in page
    assert "operating system" not in page


def test_a_statement_against_the_record_cannot_hold():
    facts = {"claim": (500.0, 7e-5), "adjacency": "zero_out"}
    assert fp.audit(RECORDS / "fixed.csv", **facts).verdict == "HOLDS"
    for sampling in (fp.Poisson(0.001), "everyone"):
        found = fp.audit(RECORDS / "fixed.csv", sampling=sampling, **facts)
        assert found.verdict == "CANNOT BE CERTIFIED"
        assert "in the record" in str(found) and "against the record" in found.statement
    rare = fp.FixedSize(1, population=10**6)
    found = fp.audit(
        RECORDS / "opacus_rdp.json", sampling=rare, claim=(9, 1e-5), adjacency="zero_out"
    )
    assert found.verdict == "CANNOT BE CERTIFIED" and "a share of 0.2" in str(found)


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
    # Whoever is in another round of that pass has the noise of the others, in all three.
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


@pytest.mark.parametrize(
    "text",
    [
        "[10:02] noise_multiplier: 1.1 after 200 rounds\n",
        repr(dpa.GaussianDpEvent(noise_multiplier=1.1)),
    ],
)
def test_an_unknown_format_is_told_with_those_that_there_are(tmp_path, text):
    path = tmp_path / "a"
    path.write_text(text)
    told = r"a: plain text, which is no record; it mentions noise_multiplier = 1\.1\. State"
    with pytest.raises(ConversionError, match=told):
        fp.audit(path)


def test_all_fields_that_a_statement_does_not_have_are_named_with_ours():
    said = {"noise_multiplier": 1.1, "sample_rate": 0.03, "rounds": 200, "unit": "record"}
    with pytest.raises(ConversionError) as caught:
        fp.audit({**said, "adjacency": "add_remove", "delt": 1e-5})
    assert str(caught.value) == (
        "statement of parameters: no fields of a statement: 'delt' (here delta), 'sample_rate' "
        "(here sampling_probability); see docs/auditing.md, Statements"
    )


DEEP = 10**5


@pytest.mark.parametrize(
    "text",
    [
        "[" * DEEP,
        '{"a":' * DEEP,
        '{"type": "SelfComposedDpEvent", "event": ' * DEEP,
        "noise_multiplier = " + "[" * DEEP,
        '{"round": 1, "noise_multiplier": ' + "[" * 1000,
    ],
)
def test_deep_nesting_is_refused(tmp_path, text):
    path = tmp_path / "a"
    path.write_text(text)
    with pytest.raises(FedPrivacyError):
        fp.audit(path, claim=(1.0, 1e-5), adjacency="zero_out", sampling="poisson")


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


def test_the_schema_that_is_shipped_is_the_codes():
    file = Path(statement.__file__).with_name("statement.schema.json")
    assert json.loads(file.read_text()) == statement.schema()
    assert set(statement.schema()["$defs"]["Statement"]["properties"]) == set(
        statement.Statement.__struct_fields__
    )


SMALL = (1e-9, 1e-12)
"""A claim that not one round of any mutated record below can keep."""


def mutated(text, random):
    """Change a text in a few places, without writing a digit or an exponent that was not there."""
    for _ in range(random.randint(1, 3)):
        a = random.randrange(len(text) + 1)
        b = min(len(text), a + random.choice([1, 1, 2, 5, 40]))
        kind = random.randrange(5)
        if kind == 0:
            text = text[:a] + text[b:]
        elif kind == 1:
            text = text[:b] + text[a:b] + text[b:]
        elif kind == 2:
            text = text[:a] + random.choice('{}[],:"\n =#abcx\x00\ufffd') + text[a:]
        elif kind == 3:
            text = text[:a]
        else:
            c = random.randrange(len(text) + 1)
            text = text[:a] + text[c : c + 20] + text[b:]
    return text


@pytest.mark.parametrize("mutations", [100, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", ["opacus_rdp.json", "flower.json", "event.json", "event_list.json", "fixed.csv", "toml"]
)
def test_mutated_records_raise_our_errors_and_never_read_as_less_than_one_round(
    name, mutations, tmp_path
):
    """No traceback, no hang; whatever is still read has noise and rounds.

    A record that is read must price at least one whole round with the noise that it states, so
    that a claim which one quiet round breaks can never hold.
    """
    text = (
        "noise_multiplier = 1.4\nrounds = 180\nsampling = 'fixed'\ncohort = 100\n"
        "population = 6000\nadjacency = 'zero_out'\n"
        if name == "toml"
        else "\n".join((RECORDS / name).read_text().splitlines()[:30])
    )
    chance = random.Random(7)
    path = tmp_path / "a"
    read = 0
    for _ in range(mutations):
        path.write_text(mutated(text, chance), encoding="utf-8", errors="replace")
        try:
            record = imports.read(path)
            facts = {"sampling": None if name != "opacus_rdp.json" else "poisson"}
            if name.startswith("event"):
                facts = {}
            made = imports.assemble(record, imports.Stated(**facts))
        except FedPrivacyError:
            continue
        read += 1
        parts = made.run.sequence()
        assert parts and all(count >= 1 for _, count in parts)
        quietest = max(
            float(number)
            for number in [*re.findall(r"[0-9.]+(?:e[-+]?\d+)?", path.read_text()), "1"]
            if number.strip(".") and number.count(".") < 2
        )
        for part, _ in parts:
            inner = getattr(part, "inner", part)
            assert 0 < inner.sum_multiplier <= quietest
        if read % 25 == 1:
            assert fp.audit(record, **asked(name)).verdict != "HOLDS"
    assert read > 0 and fp.audit(path_of(name, text, tmp_path), **asked(name)).verdict == "FAILS"


def path_of(name, text, folder):
    path = folder / f"whole-{name}"
    path.write_text(text)
    return path


def asked(name):
    given = {"claim": SMALL, "adjacency": "zero_out"}
    return given | ({"sampling": "poisson"} if name == "opacus_rdp.json" else {})
