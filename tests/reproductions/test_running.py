"""Cells run, resume after a kill, and are refused in a folder of another setting."""

import json
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest

import fedprivacy as fp
from fedprivacy.reproductions.base import Figure, FigureCell
from fedprivacy.reproductions.running import Plan, chosen

CELLS = tuple(
    FigureCell(
        name=name, seconds=2.0, quick_seconds=1.0, settings={"n": n}, printed={"number": 7.0}
    )
    for n, name in enumerate("abc")
)
FIGURE = Figure(
    name="paper/table-1", shows="numbers", work=":", cells=CELLS, megabytes=1, quick="fewer"
)


@pytest.fixture
def computed(monkeypatch):
    """The cells that were computed, by name; each has its own settings as its number."""
    found = []

    def compute(run):
        found.append(run.cell.name)
        run.tick(0.5)
        return {"number": float(run.cell.settings["n"])}

    monkeypatch.setattr(Figure, "work_of", lambda self: compute)
    return found


def shares(name):
    return nullcontext(lambda share: None)


def plan(folder, **facts):
    return Plan(**{"figure": FIGURE, "cells": CELLS, "folder": folder, **facts})


def test_finished_cells_are_read_and_not_run_again(tmp_path, computed):
    first = plan(tmp_path, cells=CELLS[:1])
    assert first.seconds == 2.0
    (ran,) = first.run(shares)
    assert ran.values == {"number": 0.0} and ran.printed == {"number": 7.0} and not ran.recorded
    whole = plan(tmp_path)
    assert whole.seconds == 4.0 and [cell.name for cell in whole.left] == ["b", "c"]
    again = list(whole.run(shares))
    assert [one.recorded for one in again] == [True, False, False]
    assert computed == ["a", "b", "c"] and whole.seconds == 0.0
    # A seed and --quick have records of their own.
    assert plan(tmp_path, seed=2).seconds == 6.0 and plan(tmp_path, quick=True).seconds == 3.0


def test_a_result_of_another_setting_is_refused_before_a_cell_runs(tmp_path, computed):
    list(plan(tmp_path, cells=CELLS[2:]).run(shares))
    changed = replace(CELLS[2], settings={"n": 9})
    with pytest.raises(fp.ParameterError, match=r"c-seed1\.json.*|differs in settings"):
        list(plan(tmp_path, cells=(CELLS[0], changed)).run(shares))
    assert computed == ["c"]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"seed": 2**31}, "seed must be below"),
        ({"cells": ()}, "cells must name at least one cell"),
        ({"data": "mnist"}, "data must be left out for paper/table-1"),
        ({"data_dir": "here"}, "data_dir must be left out for paper/table-1"),
        ({"figure": replace(FIGURE, data=("mnist",))}, "data must be one of 'mnist'"),
    ],
)
def test_values_out_of_range_are_refused(tmp_path, facts, message):
    with pytest.raises(fp.ParameterError, match=message):
        plan(tmp_path, **facts)


def test_cells_are_found_by_name():
    assert chosen(FIGURE, []) == CELLS
    assert chosen(FIGURE, ["c", "a", "c"]) == (CELLS[2], CELLS[0])
    with pytest.raises(fp.ParameterError, match="cells must be of paper/table-1: 'a', 'b' or 'c'"):
        chosen(FIGURE, ["d"])


def test_two_processes_do_not_share_a_folder(tmp_path, computed):
    first = plan(tmp_path).run(shares)
    next(first)
    with pytest.raises(fp.ParameterError, match="another process runs cells"):
        next(plan(tmp_path).run(shares))
    first.close()
    assert len(list(plan(tmp_path).run(shares))) == 3


PROGRAM = """
import pathlib, sys, time, types
from contextlib import nullcontext
from fedprivacy.reproductions.base import Figure, FigureCell
from fedprivacy.reproductions.running import Plan

folder = pathlib.Path(sys.argv[1])

def compute(run):
    def part(number):
        with (folder / "computed").open("a") as file:
            file.write(f"{number}\\n")
        return number
    def slow():
        if not (folder / "stop").exists():
            (folder / "stop").touch()
            time.sleep(250)
        return part(2)
    return {"sum": float(run.kept("one", lambda: part(1)) + run.kept("two", slow))}

module = types.ModuleType("fedprivacy.reproductions.slow")
module.compute = compute
sys.modules[module.__name__] = module
cells = (FigureCell(name="cell", seconds=1.0, quick_seconds=1.0, settings={}),)
figure = Figure(
    name="paper/table-1", shows="", work="slow:compute", cells=cells, megabytes=1, quick=""
)
plan = Plan(figure=figure, cells=cells, folder=folder / "papers")
for one in plan.run(lambda name: nullcontext(lambda share: None)):
    print(one.values["sum"], one.recorded)
"""


def test_a_killed_run_continues_with_the_same_command(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        for _ in range(2500):
            if (tmp_path / "stop").exists() or first.poll() is not None:
                break
            time.sleep(0.1)
        first.send_signal(signal.SIGKILL)
        assert first.communicate()[0] == "" and first.returncode == -signal.SIGKILL
    again = [subprocess.run(command, capture_output=True, text=True, timeout=250) for _ in range(2)]
    assert [one.stdout for one in again] == ["3.0 False\n", "3.0 True\n"], again[0].stderr
    # The first part was computed before the kill, and only then.
    assert (tmp_path / "computed").read_text() == "1\n2\n"
    (kept,) = (tmp_path / "papers" / "paper" / "table-1").iterdir()
    assert json.loads(kept.read_text())["result"]["values"] == {"sum": 3.0}
