"""The commands papers list and papers run."""

import json

import pytest

from fedprivacy.cli.papers import duration
from fedprivacy.reproductions.catalogue import FIGURES
from tests.contract.test_command_line import command


def test_the_list_has_every_figure_and_its_cells(capsys):
    code, out, _ = command(capsys, "papers", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(FIGURES)
    code, out, _ = command(capsys, "papers", "list", "fed-plt")
    assert code == 0 and {line.split("/")[0] for line in out.splitlines()[1:]} == {"fed-plt"}
    code, out, _ = command(capsys, "papers", "list", "fed-smp/table-1")
    assert code == 0 and "72.72" in out and "--quick" in out and "fashion-mnist" in out
    code, out, err = command(capsys, "papers", "list", "fed-smp/table-99")
    assert code == 2 and "fed-smp/table-1" in err and err.count("\n") == 1


def test_a_run_is_printed_with_the_papers_numbers_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ["papers", "run", "fa-ld/figure-1c", "--cells", "rho-0, rho-1", "--folder", "mine"]
    code, out, err = command(capsys, *asked, "--dry-run")
    assert code == 0 and out == "" and "2 cells to run" in err and not (tmp_path / "mine").exists()
    code, first, err = command(capsys, *asked)
    assert code == 0 and "W2, round 150" in first and "2 cells to run" in err
    code, second, err = command(capsys, *asked)
    assert code == 0 and second == first and "2 of 2 cells are finished in mine" in err
    code, out, _ = command(capsys, *asked, "--json")
    found = json.loads(out)
    assert code == 0 and [each["recorded"] for each in found["cells"]] == [True, True]
    assert found["cells"][0]["values"]["W2, round 150"] < 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fa-ld"], "name must be one of 'fa-ld/figure-1a'"),
        (["nothing"], "name must be one of"),
        (["fa-ld/figure-1c", "--cells", "rho-7"], "cells must be of fa-ld/figure-1c: 'rho-0'"),
        (["fa-ld/figure-1c", "--seed", "-3"], "seed must be an integer of at least 0"),
        (["fa-ld/figure-1c", "--data", "mnist"], "data must be left out"),
        (["fa-ld/figure-1c", "--data-dir", "."], "data_dir must be left out"),
        (["fed-smp/table-2", "--data", "mnist"], "data must be one of 'svhn'"),
        (["fa-ld/figure-1c", "--folder", "file"], "file"),
        (["fa-ld/figure-1c", "--folder", "file/below"], "file"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("a file")
    code, out, err = command(capsys, "papers", "run", *arguments)
    last = err.splitlines()[-1]
    assert code == 2 and out == "" and message in last and last.startswith("fedprivacy: ")
    assert not (tmp_path / "papers").exists()


@pytest.mark.parametrize(("name", "file"), [("table-2", "train_32x32.mat"), ("table-3", "train")])
def test_missing_data_are_named(tmp_path, monkeypatch, capsys, name, file):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    asked = ["papers", "run", f"fed-smp/{name}", "--cells", "fedavg", "--quick"]
    code, _, err = command(capsys, *asked)
    assert code == 2 and "data_dir must be given" in err.splitlines()[-1]
    code, _, err = command(capsys, *asked, "--data-dir", str(tmp_path))
    assert code == 2 and file in err.splitlines()[-1]


def test_times_are_short():
    assert [duration(one) for one in (0.2, 89.0, 300.0, 6000.0)] == [
        "1 s",
        "89 s",
        "5 min",
        "1.7 h",
    ]
