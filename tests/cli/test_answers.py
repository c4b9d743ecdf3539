"""Commands print the answers of the questions, and refuse invalid files and options."""

import json

import click
import msgspec
import pytest

pytest.importorskip("torch")

from fedprivacy.cli.answers import ANSWERS, schema
from tests.commands import EVERY
from tests.common import ROOT
from tests.contract.test_command_line import command


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_every_schema_says_what_is_required_and_closes_nothing(capsys, name):
    """Fields may be added, so a reader of the schema must accept unknown fields."""
    code, out, _ = command(capsys, "schema", name)
    found = json.loads(out)
    assert code == 0 and "$defs" in found
    for kind in found["$defs"].values():
        if kind.get("type") == "object":
            assert set(kind.get("required", ())) <= set(kind["properties"])
            assert kind.get("additionalProperties", True) is True


RUN = ["--noise-multiplier", "2", "--sampling-probability", "0.1", "--rounds", "10"]
ADD = ["--adjacency", "add_remove"]
TRAIN = ["--rounds", "1", "--seed", "1"]
TABLE = ROOT / "tests" / "corpus" / "settings.csv"
"""A table of settings, one run a row."""
FEW = [*("--set", "rounds=5", "--set", "local_steps=5", "--set", "temperature=1")]
FEW += ["--set", "correlation=0"]
CALLS = {
    "epsilon": [*RUN, *ADD, "--delta", "1e-5"],
    "delta": [*RUN, *ADD, "--epsilon", "1"],
    "calibrate": [*RUN[2:], *ADD, "--epsilon", "1", "--delta", "1e-5"],
    "explain": [*RUN, *ADD, "--delta", "1e-5"],
    "tradeoff": [*RUN, *ADD, "--fpr", "0.01,0.1"],
    "pareto": [*RUN[:2], *ADD, "--delta", "1e-5", "--output", "front.png"],
    "choose": ["--epsilon", "5", "--delta", "1e-5", *FEW],
    "papers list": ["fed-smp/table-1"],
    "papers run": ["fa-ld/figure-1c", "--cells", "rho-0"],
    "audit": [*RUN, *ADD, "--sampling", "poisson", "--claim", "9,1e-5"],
    "audit --each": [str(TABLE), *ADD, "--sampling", "poisson", "--claim", "9,1e-5"],
    "report": [*RUN, *ADD, "--sampling", "poisson", "--claim", "9,1e-5"],
    "train": ["--method", "dp-fedavg", *TRAIN],
    "sweep": ["--set", "noise_multiplier=2", "--output", "sweep.png", *TRAIN],
    "sweep --private": [
        *["geometric", "--trials", "1", "--public-test", "--set", "noise_multiplier=2", *TRAIN],
    ],
    "demo": TRAIN,
    "verify": ["run.json"],
}


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "demo" else []) for n in ANSWERS]
)
def test_json_is_what_the_schema_says_and_nothing_else(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if name == "verify":
        pytest.importorskip("flint")
        asked = ["--noise-multiplier", "2", *ADD, "--delta", "1e-5", "--certificate", "run.json"]
        assert command(capsys, "epsilon", *asked)[0] == 0
    code, out, err = command(capsys, *name.split(), *CALLS[name], "--json")
    assert code == 0, err
    data = json.loads(out)
    read = json.loads(msgspec.json.encode(msgspec.convert(data, ANSWERS[name], strict=True)))
    missing = {key for key in read if key not in data}
    assert {key: read[key] for key in data} == data, "no field that the schema does not name"
    assert all(read[key] is None for key in missing)


def prints_json(one):
    inner = one.commands.values() if isinstance(one, click.Group) else [one]
    return any("--json" in p.opts and p.is_flag for each in inner for p in each.params[1:])


def test_every_command_that_prints_json_has_a_schema(capsys):
    takes = {name for name, one in EVERY.items() if prints_json(one)}
    assert takes - {"run"} == {name.split()[0] for name in ANSWERS}
    for name in ANSWERS:
        code, out, _ = command(capsys, "schema", name)
        assert code == 0 and json.loads(out) == json.loads(json.dumps(schema(name)))
        assert json.loads(out)["$schema"].endswith("2020-12/schema")
