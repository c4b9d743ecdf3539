"""The command line as a person uses it: real processes, real files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedprivacy as fp
from fedprivacy.cli import main
from fedprivacy.cli.answers import ANSWERS
from fedprivacy.runs.demo import _folder


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "fedprivacy.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=200,
    )


def answer(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def test_a_warning_is_a_line_and_changes_no_exit_code(tmp_path):
    pytest.importorskip("torch")
    found = run(
        *["train", "--method", "dp-fedavg", "--data", "digits", "--epsilon", "8", "--delta=1e-3"],
        *["--rounds", "1", "--set", "learning_rate=3e38", "--set", "local_steps=4"],
        *["--ledger", "run.jsonl", "--json"],
        cwd=tmp_path,
    )
    told = [line for line in found.stderr.splitlines() if "all that came" in line]
    assert found.returncode == 0 and json.loads(found.stdout)
    assert len(told) == 1 and told[0].startswith("fedprivacy: warning: all that came of a round's")


RUN = ["--noise-multiplier", "0.8", "--sampling-probability", "0.01", "--rounds", "100"]


def test_epsilon_prints_the_certified_interval_as_json(capsys):
    code, out, _ = answer(
        capsys, "epsilon", *RUN, "--delta", "1e-5", "--adjacency", "add_remove", "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert found["lower"] <= 1.510838 and found["upper"] >= 1.510837
    assert found["adjacency"] == "add_remove" and found["witness"]


def test_a_largest_cohort_truncates_poisson_sampling(capsys):
    ask = ["epsilon", *RUN, "--delta", "1e-5", "--adjacency", "add_remove", "--json"]
    uppers = {}
    for largest in ("20", "1000"):
        code, out, _ = answer(capsys, *ask, "--population", "1000", "--largest-cohort", largest)
        assert code == 0 and "truncatedpoisson" in out.replace("_", "").lower()
        uppers[largest] = json.loads(out)["upper"]
    assert uppers["20"] > uppers["1000"] > 1.510837


def test_epsilon_and_delta_speak_of_the_same_curve(capsys):
    _, out, _ = answer(
        capsys, "epsilon", *RUN, "--delta", "1e-5", "--adjacency", "zero_out", "--json"
    )
    upper = json.loads(out)["upper"]
    _, out, _ = answer(
        capsys, "delta", *RUN, "--epsilon", str(upper), "--adjacency", "zero_out", "--json"
    )
    assert json.loads(out)["lower"] <= 1e-5


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        ("noise-multiplier", ["--rounds", "100", "--sampling-probability", "0.01"]),
        ("rounds", ["--noise-multiplier", "2", "--sampling-probability", "0.01"]),
        ("sampling-probability", ["--noise-multiplier", "2", "--rounds", "100"]),
        ("cohort", ["--noise-multiplier", "2", "--rounds", "100", "--population", "1000"]),
        ("population", ["--noise-multiplier", "2", "--rounds", "100", "--cohort", "10"]),
    ],
)
def test_calibrate_solves_for_any_parameter(capsys, parameter, given):
    code, out, err = answer(
        capsys,
        *["calibrate", "--solve-for", parameter, *given],
        *["--epsilon", "2", "--delta", "1e-5", "--adjacency", "replace_one", "--json"],
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["value"] > 0 and found["bound"]["upper"] <= 2.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["epsilon", "--noise-multiplier", "0", "--delta", "1e-5"], ["noise_multiplier", "0.0"]),
        (["epsilon", "--noise-multiplier", "nan", "--delta", "1e-5"], ["noise_multiplier", "NaN"]),
        (["epsilon", "--noise-multiplier", "1", "--delta", "1.5"], ["delta", "1.5"]),
        (["epsilon", "--delta", "1e-5"], ["noise_multiplier", "give it"]),
        (
            ["epsilon", *RUN, "--delta", "1e-5", "--cohort", "3"],
            ["sampling_probability", "alone"],
        ),
        (["epsilon", *RUN[:2], "--delta", "1e-5", "--cohort", "3"], ["population", "together"]),
        (
            ["epsilon", *RUN, "--delta", "1e-5", "--largest-cohort", "3"],
            ["largest_cohort", "population", "without cohort"],
        ),
        (
            ["epsilon", *RUN, "--delta", "1e-5", "--largest-cohort", "0", "--population", "9"],
            ["largest", "0"],
        ),
        (
            ["epsilon", *RUN[:2], "--delta", "1e-5", "--cohort", "9", "--population", "5"],
            ["size", "9", "population = 5"],
        ),
        (
            ["epsilon", "--noise-multiplier", "1", "--sampling-probability", "2", "--delta", "0.1"],
            ["probability", "2.0"],
        ),
        (
            ["epsilon", *RUN, "--delta", "1e-5", "--observer", "server"],
            ["Poisson", "server", "membership", "these work"],
        ),
        (["epsilon", *RUN, "--delta", "1e-5", "--rounds", "0"], ["rounds", "0"]),
        (["delta", *RUN, "--epsilon", "-1"], ["epsilon", "-1.0"]),
        (
            ["calibrate", *RUN, "--epsilon", "1", "--delta", "1e-5"],
            ["--noise-multiplier", "left out"],
        ),
        (
            [
                *["calibrate", "--solve-for", "rounds", "--noise-multiplier", "0.5"],
                *["--epsilon", "0.1", "--delta", "1e-9"],
            ],
            ["epsilon = 0.1", "at 1"],
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys, arguments, words):
    code, out, err = answer(capsys, *arguments, "--adjacency", "add_remove")
    assert code == 2 and out == ""
    assert len(err.strip().splitlines()) == 1 and "Traceback" not in err
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["epsilon"], ["epsilon", *RUN, "--delta", "1e-5", "--adjacency", "sideways"]],
)
def test_usage_errors_are_one_line_and_code_2(capsys, arguments):
    code, _, err = answer(capsys, *arguments)
    assert code == 2 and len(err.strip().splitlines()) == 1


def test_files_that_are_no_ledgers_are_one_line_and_code_2(capsys, tmp_path):
    empty, foreign = tmp_path / "empty", tmp_path / "foreign"
    empty.touch()
    foreign.write_text('{"hello": 1}\n')
    for path in (empty, foreign, tmp_path / "absent", tmp_path):
        code, out, err = answer(capsys, "audit", str(path))
        assert code == 2 and out == "" and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("command", sorted(name for name in ANSWERS if " " not in name))
def test_every_command_has_help_and_json(capsys, command):
    code, out, _ = answer(capsys, command, "--help")
    assert code == 0
    assert "--json" in out and len(out.splitlines()[2]) > 20


def ledger_of(path, multiplier=2.0, rounds=5, claim=(8.0, 1e-5), close=True):
    step = fp.Gaussian(noise_multiplier=multiplier, clip_norm=1.0, unit="client")
    one = step.sampled(fp.FixedSize(10, population=100))
    ledger = fp.Ledger.create(path, unit="client", adjacency="replace_one", claim=claim)
    for _ in range(rounds):
        number = ledger.intent(one, clip_norm=1.0, noise_std=multiplier)
        ledger.done(number, cohort=10, arrived=10, refused=0, noise_std=multiplier)
    if close:
        ledger.close()
    ledger.release()
    return one * rounds if rounds else None


def test_audit_and_report_of_a_ledger(capsys, tmp_path):
    path = tmp_path / "run.ledger"
    ledger_of(path)
    code, out, _ = answer(capsys, "audit", str(path), "--json")
    found = json.loads(out)
    assert code == 0 and found["verdict"] == "HOLDS"
    assert set(found["bounds"]) == {"aggregate", "server"}
    assert set(found["bounds"]["aggregate"]) == {"pld", "rdp", "advanced"}
    code, out, _ = answer(capsys, "report", str(path))
    page = (tmp_path / "run.html").read_text()
    assert code == 0 and "HOLDS" in page and page.count("<svg") == 3, out
    assert not re.search(r"(src|href)=.?https?:|url\(https?:|@import|<script", page)
    assert "Not counted" in page


def test_claims_on_the_command_line_override_the_ledger(capsys, tmp_path):
    path = tmp_path / "run.ledger"
    ledger_of(path)
    code, out, _ = answer(
        capsys, "audit", str(path), "--epsilon", "0.01", "--delta", "1e-5", "--json"
    )
    assert code == 0 and json.loads(out)["verdict"] == "FAILS"


STATED = [
    *["audit", "--noise-multiplier", "1.4", "--rounds", "180", "--sampling", "fixed"],
    *["--cohort", "100", "--population", "6000", "--adjacency", "replace_one"],
]


@pytest.mark.parametrize(
    ("claim", "strict", "verdict"),
    [
        ("3.49,7e-5", 0, "HOLDS"),
        ("1.4705,7e-5", 3, "FAILS"),
        pytest.param("3.3,7e-5", 4, "CANNOT BE CERTIFIED", marks=pytest.mark.slow),
    ],
)
def test_parameters_alone_are_audited_and_strict_tells_by_the_exit_code(
    capsys, claim, strict, verdict
):
    code, out, _ = answer(capsys, *STATED, "--claim", claim, "--json")
    found = json.loads(out)
    assert code == 0 and found["verdict"] == verdict
    assert found["statement"].endswith("for the run as it was stated, of which no record was seen")
    assert found["stated"]["noise_multiplier"] == "1.4" and found["recorded"] == {}
    epsilon, delta = claim.split(",")
    apart = ["--claim-epsilon", epsilon, "--claim-delta", delta, "--strict"]
    code, out, _ = answer(capsys, *STATED, *apart)
    assert code == strict and out.startswith(verdict)


RECORDS = Path(__file__).parent / "traces"


def test_files_of_other_programs_are_audited(capsys):
    history = str(RECORDS / "opacus_gdp.json")
    ask = ["audit", history, "--claim", "1.83,2.0833333e-5", "--adjacency", "add_remove"]
    code, out, _ = answer(capsys, *ask, "--sampling", "poisson", "--strict")
    assert code == 3 and "central limit" in out and "stated by the user, not recorded" in out
    code, _, err = answer(capsys, *ask, "--strict")
    assert code == 2 and "sampling must be stated" in err
    code, out, _ = answer(
        capsys, *ask, "--sampling", "fixed", "--cohort", "20", "--population", "100", "--json"
    )
    assert code == 0 and "FixedSize" in json.loads(out)["stated"]["sampling"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["FILE", "--noise-multiplier"]),
        (["--noise-multiplier", "1"], ["--sampling"]),
        ([*STATED[1:], "--claim", "8"], ["--claim", "two numbers"]),
        ([*STATED[1:], "--claim", "8,1e-5", "--delta", "1"], ["--claim", "without"]),
        ([*STATED[1:], "--claim", "nan,1e-5"], ["epsilon", "NaN"]),
        ([*STATED[1:], "--epsilon", "8"], ["claim", "--claim-delta"]),
        ([*STATED[1:], "--claim", "1e-5,8"], ["delta", "below 1", "did you swap"]),
        ([str(RECORDS / "flower.json"), "--rounds", "3"], ["rounds", "left out"]),
        ([str(RECORDS / "flower.json"), "--cohort", "3"], ["--cohort", "--sampling fixed"]),
        ([str(RECORDS / "said.json")], ["nothing here can be audited", "no noise is recorded"]),
    ],
)
def test_bad_audits_are_one_line_and_code_2(capsys, arguments, words):
    code, out, err = answer(capsys, "audit", *arguments, "--strict")
    assert code == 2 and out == "" and len(err.strip().splitlines()) == 1
    for word in words:
        assert word in err


def test_a_report_of_a_foreign_record(capsys, tmp_path):
    ask = ["report", str(RECORDS / "flower.json"), "--claim", "3.49,7e-5", "--subject", "phones"]
    path = tmp_path / "page.html"
    code, out, _ = answer(capsys, *ask, "--auditor", "me", "--output", str(path), "--strict")
    assert code == 0 and out.startswith("HOLDS, on the word of an imported record")
    assert "Flower accountant state, flower.json" in path.read_text()


def test_the_demo_trains_audits_and_reports(tmp_path):
    done = run("demo", "--rounds", "3", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (tmp_path / "demo-report.html").exists()
    assert set(found["runs"]) == {"fedavg", "dp-fedavg", "fed-smp-top-k", "fed-smp-rand-k"}
    for method, row in found["runs"].items():
        if method != "fedavg":
            assert row["verdict"] == "HOLDS" and row["epsilon"][1] <= 8.0
    assert (
        found["runs"]["fed-smp-top-k"]["upload_bytes"] < found["runs"]["dp-fedavg"]["upload_bytes"]
    )
    # Where another demo would put its ledgers: earlier ones are never overwritten.
    assert _folder(tmp_path / "demo-report.html", None) != tmp_path / found["ledgers"]
    assert (tmp_path / found["ledgers"] / "dp-fedavg.ledger").exists()


def test_train_leaves_a_ledger_and_never_overwrites_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--method", "dp-fedavg", "--rounds", "2", "--json"]
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["audit"]["verdict"] == "HOLDS" and found["audit"]["rounds"] == 2
    content = (tmp_path / "dp-fedavg.ledger").read_bytes()
    code, _, err = answer(capsys, *arguments)
    assert code == 2 and "exists already" in err.strip().splitlines()[-1]
    # Before data are read: it is told even where there are none.
    code, _, err = answer(capsys, *arguments, "--data", "nowhere.npz")
    assert code == 2 and "exists already" in err.strip().splitlines()[-1]
    assert (tmp_path / "dp-fedavg.ledger").read_bytes() == content


def test_a_seeded_run_says_that_it_is_not_private(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, out, _ = answer(capsys, "train", "--rounds", "1", "--seed", "7", "--json")
    recorded = json.loads(out)["audit"]["recorded"]
    assert recorded["seed policy"] == "reproducible: not private"


@pytest.mark.skipif(
    Path("/usr/share/datasets/fashion-mnist").exists(), reason="Debian's package is installed"
)
def test_fashion_mnist_that_is_not_there_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = answer(capsys, "train", "--data", "fashion-mnist", "--data-dir", str(tmp_path))
    assert code == 2
    assert "dataset-fashion-mnist" in err and "Traceback" not in err
