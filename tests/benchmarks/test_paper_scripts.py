"""The scripts that rerun the papers' experiments: refusals, skipped cells, messages."""

import copy
import importlib
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.common import ROOT

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy import training

PAPERS = ROOT / "benchmarks" / "papers"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(PAPERS))


def results(name):
    return json.loads((PAPERS / "results" / f"{name}.json").read_text(encoding="utf-8"))


# ---- best settings at the edge of their grid


@pytest.mark.parametrize(
    ("way", "tables"),
    [
        (("II", "convex", "Fed-PLT"), ["II", "III", "IX"]),
        (("II", "convex", "LED"), ["II", "III"]),
        (("IV", "5GCS", "accelerated"), ["IV"]),
        (("V", "FedLin"), ["V"]),
        (("VI", "60"), ["VI"]),
    ],
)
def test_every_table_of_fed_plt_refuses_what_was_tuned_to_an_edge(way, tables):
    import fed_plt_page as page

    found = copy.deepcopy(results("fed_plt"))
    cell = found
    for name in way:
        cell = cell[name]
    cell["edges"] = ["step_size"]
    written = dict([*page.compared(found), *page.swept(found)])
    refused = {name for name, text in written.items() if "refused: step_size" in text}
    assert refused == set(tables)


# ---- a cell drawn from every table


def test_too_long_cells_are_told_and_not_drawn(capsys):
    from drawn import affordable, redrawn

    cells = {"short": lambda: True, "long": lambda: False}
    kept = affordable("table", cells, {"short": 1.0, "long": 61.0})
    assert list(kept) == ["short"] and redrawn({"table": kept})
    told = capsys.readouterr().out
    assert "table: 1 of 2 cells took over 60 s and are not drawn" in told
    assert "table, short: the same" in told


def test_what_parts_by_rounding_fails_no_check(capsys):
    from drawn import Parted, redrawn

    def parted():
        raise Parted

    assert redrawn({"table": {"cell": parted}})
    assert "parts by its rounding, neither confirmed nor refuted" in capsys.readouterr().out
    assert not redrawn({"table": {"cell": lambda: False}})


@pytest.mark.parametrize(
    ("script", "tables"),
    [
        ("fa_ld", {"figure 1b", "figure 1c", "figure 1b, 300 chains, alpha 1", "mu of an upload"}),
        ("fa_hmc", {"figure 1c, d = 1000", "figure 1d, chains", "figure 1d, privacy"}),
        ("tradeoff", {"figure 1", "figure 2", "budgets", "FA-HMC", "table VII"}),
    ],
)
def test_a_check_can_draw_from_every_table_of_the_simulations(script, tables):
    module = __import__(script)
    found = module.tables(results(script))
    assert tables <= {name for name, cells in found.items() if cells}


def test_a_check_can_draw_from_every_table_of_fed_plt():
    import fed_plt

    found = fed_plt.drawn_from(fed_plt.Tables(fed_plt.RUNS))
    assert [name for name, cells in found.items() if cells] == [
        f"Table {name}" for name in fed_plt.NAMES
    ]


# ---- two-sided FedAvg: rounding, and shortened runs


@pytest.fixture
def two_sided(monkeypatch, tmp_path):
    import fedavg_two_sided as script

    generator = torch.Generator().manual_seed(0)
    images, labels = torch.rand(600, 784, generator=generator), torch.arange(600) % 10
    own = training.federate(
        "small", (images[:500], labels[:500]), (images[500:], labels[500:]), clients=100
    )
    monkeypatch.setattr(script, "data_for", lambda classes, seed: own)
    monkeypatch.setattr(script, "results", lambda: tmp_path / "cells.json")
    monkeypatch.setattr(script, "pages", lambda cells: None)
    return script


def cell_of(script, **changed):
    return replace(script.SMALLEST, **changed)


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_run_cut_short_is_written_as_such_and_run_on(two_sided, method):
    cell = cell_of(two_sided, method=method, epochs=1)
    short = two_sided.run(cell, 1)
    assert (short["rounds_run"], short["rounds_planned"]) == (1, cell.rounds)
    two_sided.write([short])
    (kept,) = two_sided.known()
    assert not two_sided.finished(kept) and not two_sided.finished(None)
    longer = two_sided.run(cell, 2)
    assert longer["accuracy"][:1] == short["accuracy"]
    two_sided.write(two_sided.with_result(two_sided.known(), longer))
    (kept,) = two_sided.known()
    assert kept["rounds_run"] == 2
    assert two_sided.finished(kept | {"rounds_run": kept["rounds_planned"]})
    assert two_sided.finished(kept | {"rounds_to_target": 2})


def test_results_count_the_images_that_were_read(two_sided):
    two_sided.write([])
    content = json.loads(two_sided.results().read_text())
    assert content["settings"]["data"] == "fashion-mnist, 500 images among 100 workers"


def test_a_cell_that_does_not_agree_with_itself_is_not_compared(two_sided, monkeypatch):
    monkeypatch.setattr(two_sided, "FIRST", 2)
    cell = cell_of(two_sided, epochs=1)
    kept = two_sided.run(cell, 2)
    assert two_sided.agrees(kept)
    other = kept | {"accuracy": [one + 0.1 for one in kept["accuracy"]]}
    assert not two_sided.agrees(other)
    # If it moves by more than rounding, the start decides the result.
    monkeypatch.setattr(two_sided, "ROUNDING", 1.0)
    monkeypatch.setattr(two_sided, "apart", lambda one, two: 0.0 if one is two else 1.0)
    with pytest.raises(two_sided.Parted):
        two_sided.agrees(other)


def test_every_table_of_two_sided_fedavg_may_be_drawn(two_sided, capsys):
    cells = results("fedavg_two_sided")["cells"]
    found = two_sided.drawn_from(cells)
    assert list(found) == list(two_sided.tables()) and all(found.values())
    assert "cells took over 60 s and are not drawn" in capsys.readouterr().out


# ---- one's own files


@pytest.mark.parametrize("script", ["fedavg_two_sided", "fa_ld_fashion"])
@pytest.mark.parametrize("folder", [None, "nowhere"])
def test_files_that_are_not_there_are_told_in_one_line(script, folder, monkeypatch, capsys):
    from told import told

    module = __import__(script)
    monkeypatch.setattr(module, "OWN", {"name": "", "data_dir": None}, raising=False)
    asked = [] if folder is None else ["--data-dir", folder]
    monkeypatch.setattr(sys, "argv", [script, "--dataset", "mnist", *asked])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    with pytest.raises(SystemExit) as ended, told():
        module.main()
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: data_dir must") and shown.count("\n") == 1


# ---- arguments


@pytest.mark.parametrize(
    ("script", "arguments", "told"),
    [
        ("fed_plt", ["--runs", "0"], "an integer of at least 10"),
        ("fed_plt", ["--runs", "ten"], "an integer of at least 10"),
        ("fedavg_two_sided", ["--most", "0"], "an integer of at least 1"),
        ("fed_smp", [], "one of --run, --plan, --collect, --measure, --check is needed"),
        ("fed_smp", ["--run", "fedavg", "--seed", "-1"], "an integer of at least 0"),
        ("fed_smp", ["--run", "fedavg", "--threads", "0"], "an integer of at least 1"),
        ("correlated", ["--rounds", "0"], "an integer of at least 1"),
        ("long_network", ["--most", "nan"], "hours, above 0"),
    ],
)
def test_arguments_out_of_range_are_refused_before_anything_is_written(
    monkeypatch, capsys, script, arguments, told
):
    """``fed_plt.py --runs 0`` wrote NaN over the results."""
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *arguments])
    with pytest.raises(SystemExit) as caught:
        importlib.import_module(script).main()
    assert caught.value.code == 2 and told in capsys.readouterr().err


def test_inputs_are_scaled_by_their_own_data_s_numbers():
    from fed_smp_settings import setting_of

    for dataset in ("mnist", "svhn"):
        with pytest.raises(fp.ParameterError, match="Fashion-MNIST's mean"):
            setting_of("fedavg", 1, 2, inputs="standardised", dataset=dataset)


def test_a_lower_end_that_moved_is_told():
    import published_numbers as numbers

    kept = {"lower": 30.7, "upper": 31.12}
    assert numbers.same(numbers.Number(upper=31.12, lower=30.71), kept)
    assert not numbers.same(numbers.Number(upper=31.12, lower=31.11), kept)


@pytest.mark.slow
def test_the_smallest_cell_of_the_papers_tables_is_as_recorded():
    command = [sys.executable, str(PAPERS / "fed_plt.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stderr
    assert "the same as recorded" in done.stdout
