"""The scripts that rerun the papers' experiments refuse, pass over and tell what they should."""

import copy
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

PAPERS = Path(__file__).parents[2] / "benchmarks" / "papers"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(PAPERS))


def results(name):
    return json.loads((PAPERS / "results" / f"{name}.json").read_text(encoding="utf-8"))


# ---- best settings at the edge of their grid


@pytest.mark.parametrize(
    ("way", "tables"),
    [
        (("II", "convex", "Fed-PLT"), {"II", "III", "IX"}),
        (("II", "convex", "LED"), {"II", "III"}),
        (("IV", "5GCS", "accelerated"), {"IV"}),
        (("V", "FedLin"), {"V"}),
        (("VI", "60"), {"VI"}),
    ],
    ids=str,
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
    assert refused == tables
