"""Records of results: written once, and refused if they are damaged or of another setting."""

import json

import pytest

import fedprivacy as fp
from fedprivacy.reproductions.base import CellRun, FigureCell, named, read_result, write_result

FACTS = {"seed": 1, "quick": False, "data": ""}


def run_in(folder, **facts):
    cell = FigureCell(name="cell", seconds=1.0, quick_seconds=1.0, settings={})
    return CellRun(cell=cell, folder=folder, **facts)


def test_names_of_files_have_the_facts():
    assert named("dp-fedavg", FACTS) == "dp-fedavg-seed1"
    assert (
        named("top_k-0.1", FACTS | {"data": "svhn", "quick": True}) == "top_k-0.1-seed1-svhn-quick"
    )


def test_an_intermediate_result_is_computed_once(tmp_path):
    made = []

    def make():
        made.append(len(made))
        return made[-1]

    for _ in range(2):
        assert run_in(tmp_path).kept("part", make) == 0
    assert run_in(tmp_path, seed=2).kept("part", make) == 1
    assert run_in(tmp_path, quick=True).kept("part", make) == 2
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "be a readable result"),
        ("[]", "be a readable result"),
        ('{"facts": {}}', "be a readable result"),
        ('{"facts": 1, "result": 1}', "differs in format, seed, quick, data"),
        ("[" * 100_000, "be a readable result"),
        ("\xff", "be a readable result"),
    ],
)
def test_a_damaged_result_is_refused(tmp_path, content, message):
    path = tmp_path / "cell.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(fp.ParameterError, match=message) as caught:
        read_result(path, FACTS)
    assert "move it away, or name another --folder" in str(caught.value)


def test_a_result_of_another_setting_is_refused(tmp_path):
    path = tmp_path / "cell.json"
    write_result(path, FACTS | {"settings": {"rounds": 3}}, 1.0)
    assert read_result(path, FACTS | {"settings": {"rounds": 3}}) == 1.0
    with pytest.raises(fp.ParameterError, match="differs in settings"):
        read_result(path, FACTS | {"settings": {"rounds": 4}})
    assert json.loads(path.read_text())["result"] == 1.0
    assert read_result(tmp_path / "none.json", FACTS) is None
