"""Sources of an audit: accountants, events, lists, standard input and folders."""

import io
import json
import sys
from pathlib import Path

import dp_accounting as dpa
import pytest
from dp_accounting.pld import PLDAccountant

import fedprivacy as fp
from fedprivacy.audit import imports
from fedprivacy.audit.imports import content
from fedprivacy.cli import main
from fedprivacy.errors import ConversionError, LedgerError

pytestmark = pytest.mark.usefixtures("narrowest")

CORPUS = Path(__file__).parents[1] / "corpus"
FACTS = {"sampling": "poisson", "adjacency": "add_remove", "claim": (4.0, 1e-5)}
SAID = ["--sampling", "poisson", "--adjacency", "add_remove", "--claim", "1,1e-5"]


def command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def test_an_accountant_is_audited_by_its_state():
    accountants = pytest.importorskip("opacus.accountants")
    made = accountants.RDPAccountant()
    made.history = [(1.2, 0.05, 90)]
    found = fp.audit(made, **FACTS)
    assert found.verdict == "HOLDS" and found.rounds == 90
    assert found.bound.upper == fp.audit(made.state_dict(), **FACTS).bound.upper


def test_an_accountant_of_dp_accounting_is_audited_by_its_events_and_its_relation():
    event = dpa.PoissonSampledDpEvent(0.05, dpa.GaussianDpEvent(1.2))
    made = PLDAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event, 90)
    found = fp.audit(made, claim=(4.0, 1e-5))
    assert found.verdict == "HOLDS" and found.facts.adjacency == "add_remove"
    whole = dpa.SelfComposedDpEvent(event, 90)
    assert fp.audit(whole, claim=(4.0, 1e-5), adjacency="add_remove").verdict == "HOLDS"


def test_epsilon_of_an_event_names_the_converter():
    with pytest.raises(fp.ParameterError, match=r"dp_accounting\.from_event\(event\)"):
        fp.epsilon(dpa.GaussianDpEvent(1.0), delta=1e-5, adjacency="add_remove")


def test_a_list_of_states_names_the_function_that_judges_each():
    states = [{"history": [[1.0, 0.1, 20]]}, {"history": [[9.0, 0.1, 20]]}, {"history": []}]
    with pytest.raises(fp.ParameterError, match=r"fp\.audit\.each"):
        fp.audit(states, **FACTS)
    rows = fp.audit.each(states, **{**FACTS, "claim": (1.0, 1e-5)})
    assert [row.audit and row.audit.verdict for row in rows] == ["FAILS", "HOLDS", None]
    assert "empty" in rows[2].refused and "source 3: not judged" in str(rows[2])
    assert rows[2].to_dict() == {"name": "source 3", "audit": None, "refused": rows[2].refused}


def test_a_model_is_no_accountant():
    torch = pytest.importorskip("torch")
    with pytest.raises(fp.ParameterError, match="a mechanism or the record of a run"):
        fp.audit(torch.nn.Linear(2, 2), **FACTS)


@pytest.mark.parametrize("name", ["opacus/state_epoch.json", "tables/extra.csv"])
def test_standard_input_is_a_file(name, capsys, monkeypatch):
    data = (CORPUS / name).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    given = SAID if "csv" not in name else SAID[2:]
    code, out, err = command(capsys, "audit", "-", *given, "--json")
    assert code == 0, err
    whole = command(capsys, "audit", str(CORPUS / name), *given, "--json")[1]
    one, other = json.loads(out), json.loads(whole)
    assert one["bounds"] == other["bounds"] and one["source"]["name"] == "standard input"


def test_rows_have_a_verdict_each_in_text_and_in_json(capsys):
    code, out, _ = command(capsys, "audit", str(CORPUS / "settings.csv"), *SAID)
    low, high, note = out.splitlines()
    # A file does not say whether its runs used the same data, so the answer asks.
    assert note.startswith("Each run is judged by itself.") and "--trials" in note
    assert code == 0 and low.startswith("row 1 (low): FAILS") and high.startswith("row 2 (high): H")
    code, out, _ = command(capsys, "audit", str(CORPUS / "settings.csv"), *SAID, "--json")
    rows = json.loads(out)["rows"]
    assert [row["audit"]["verdict"] for row in rows] == ["FAILS", "HOLDS"]
    assert rows[0]["audit"]["source"]["name"] == "settings.csv, row 1 (low)"
    assert command(capsys, "audit", str(CORPUS / "settings.csv"), *SAID, "--strict")[0] == 3


def test_a_folder_is_searched_for_records(tmp_path, capsys):
    inside = tmp_path / "runs" / "a"
    inside.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for place in (inside / "state.json", tmp_path / ".git" / "state.json"):
        place.write_text((CORPUS / "opacus/state_epoch.json").read_text())
    (tmp_path / "package.json").write_text('{"name": "tulip", "version": "1.0.0"}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "settings.csv").write_text((CORPUS / "settings.csv").read_text())
    rows = fp.audit.each(tmp_path, **FACTS)
    names = ["settings.csv, row 1 (low)", "settings.csv, row 2 (high)", "runs/a/state.json"]
    assert [row.name for row in rows] == names and all(row.audit for row in rows)
    assert len(command(capsys, "audit", str(tmp_path), *SAID)[1].splitlines()) == 4
    (tmp_path / "empty").mkdir()
    code, _, err = command(capsys, "audit", str(tmp_path / "empty"), *SAID)
    assert code == 2 and "none was found in this folder" in err


def test_a_run_that_mlflow_tracked_is_one_run(tmp_path):
    place = tmp_path / "mlruns" / "0" / "abc" / "params"
    place.mkdir(parents=True)
    settings = {"noise_multiplier": 1.1, "max_grad_norm": 1.0, "sample_rate": 0.01, "steps": 900}
    for name, value in settings.items():
        (place / name).write_text(str(value))
    direct = fp.audit(settings, **FACTS)
    for folder, name in ((tmp_path, "mlruns/0/abc/params"), (place, ".")):
        (row,) = fp.audit.each(folder, **FACTS)
        assert row.name == name and row.audit is not None
        assert row.audit.bound == direct.bound
    (place / "noise_multiplier").write_text("none")
    (row,) = fp.audit.each(tmp_path, **FACTS)
    assert row.audit is None and "noise_multiplier = none" in row.refused


def test_what_is_missing_is_listed_with_its_options(capsys):
    code, _, err = command(capsys, "audit", str(CORPUS / "generic/nested.json"))
    assert code == 2 and err.count("\n") == 1
    assert "found experiment.dp.noise_multiplier = 1.0, experiment.dp.sample_rate = 0.01" in err
    offered = "--rounds N --adjacency NAME --claim EPSILON,DELTA and one of: --sampling poisson, or"
    assert f"State it: {offered} --sampling fixed --population N --cohort M, or" in err


DEEP = 100


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * DEEP,
        "- " * DEEP + "x",
        "\n".join(" " * depth + "a:" for depth in range(200)),
        "a: &a [x]\nb: [" + "*a, " * 200 + "]",
        "dp: !!python/object/apply:os.getpid []\nnoise_multiplier: 1.0",
        "noise_multiplier: 1.0\nnoise_multiplier: 2.0",
        "x" * (content.MAX_YAML + 1) + ": 1",
        "noise_multiplier: &a\n  b: *a\nsteps: 3",
    ],
    ids=["brackets", "dashes", "indents", "aliases", "tag", "twice", "long", "loop"],
)
def test_hostile_yaml_is_refused(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises((ConversionError, fp.ParameterError)):
        fp.audit(path, **FACTS)


def test_a_missing_file_is_an_error_of_ours(tmp_path):
    with pytest.raises(LedgerError):
        imports.several(tmp_path / "gone.csv")


def test_an_epsilon_of_an_accountant_names_the_audit():
    opacus = pytest.importorskip("opacus.accountants")
    with pytest.raises(fp.ParameterError, match=r"fp\.audit\(accountant, claim="):
        fp.epsilon(opacus.RDPAccountant(), delta=1e-5, adjacency="add_remove")
