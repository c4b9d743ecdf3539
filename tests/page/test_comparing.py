"""Tests of ``fedprivacy.page.comparing``."""

import pytest

import fedprivacy as fp
from fedprivacy.page import comparing
from tests.page.test_auditing import ledger, part

QUESTION = {"delta": "1e-5", "adjacency": "zero_out", "observer": "aggregate", "unit": ""}


def settings(*noises, **costs):
    found = {}
    for place, noise in enumerate(noises):
        found |= {
            f"setting-{place}-label": f"noise {noise}",
            f"setting-{place}-noise_multiplier": noise,
            f"setting-{place}-rounds": "100",
            f"setting-{place}-sampling": "poisson",
            f"setting-{place}-population": "6000",
            f"setting-{place}-cohort": "100",
        }
        found |= {f"setting-{place}-{name}": values[place] for name, values in costs.items()}
    return found


def messages(*paths, **fields):
    return list(comparing.answer({**QUESTION, **fields}, list(paths)))


def test_epsilons_are_those_of_the_library_and_the_front_is_marked():
    found = messages(**settings("1", "2", accuracy=["0.8", "0.9"]))
    html = part(found, "html")
    for noise in (1.0, 2.0):
        run = fp.Gaussian(noise_multiplier=noise).sampled(fp.Poisson(100 / 6000)) * 100
        upper = fp.epsilon(run, delta=1e-5, adjacency="zero_out").ends(5)[1]
        assert upper in html
    # More noise has the smaller epsilon and the better accuracy here.
    assert html.count("<td>front</td>") == 1 and "<svg" in html


def test_ledgers_and_settings_are_compared_together(tmp_path):
    path = ledger(tmp_path / "run.ledger")
    fields = settings("1", bytes=["10"]) | {"file-0-bytes": "20"}
    html = part(messages(path, **fields), "html")
    assert "run" in html and "noise 1" in html and "Bytes sent" in html


def test_without_costs_only_epsilons_are_compared(tmp_path):
    html = part(messages(ledger(tmp_path / "run.ledger"), **settings("1")), "html")
    assert "no cost" not in html and "<svg" not in html


def test_a_table_names_only_ledgers_that_came_with_it(tmp_path):
    path = ledger(tmp_path / "run.ledger")
    table = tmp_path / "runs.csv"
    table.write_text("label,ledger,accuracy\na,run.ledger,0.9\n")
    assert "<td>0.9</td>" in part(messages(path, table), "html")
    elsewhere = ledger(tmp_path / "elsewhere.ledger")
    table.write_text(f"label,ledger,accuracy\na,{elsewhere},0.9\n")
    assert "must be dropped" in part(messages(path, table), "html")


def test_the_best_within_a_budget_is_named():
    fields = settings("0.5", "2", accuracy=["0.9", "0.7"]) | {"epsilon": "1"}
    assert "Best Accuracy within epsilon = 1: noise 2" in part(messages(**fields), "html")


@pytest.mark.parametrize(
    ("fields", "marked"),
    [
        ({}, "files"),
        ({"delta": ""}, "delta"),
        (settings("x"), "setting-0-noise_multiplier"),
        ({**settings("1"), "setting-0-rounds": ""}, "setting-0-rounds"),
        ({"setting-0-rounds": "1"}, "setting-0-noise_multiplier"),
        (settings("1", accuracy=["2"]), "setting-0-accuracy"),
        (settings("1", w2=["nan"]), "setting-0-w2"),
        (settings("1", bytes=["many"]), "setting-0-bytes"),
    ],
)
def test_a_wrong_field_is_marked(fields, marked):
    assert marked in part(messages(**fields), "problems")


def test_a_cost_is_given_for_all_or_none():
    html = part(messages(**settings("1", "2", accuracy=["0.8", ""])), "html")
    assert "for every setting" in html and "noise 2" in html


def test_names_of_fields_that_are_no_settings_are_refused():
    found = messages(**{"setting-x-rounds": "1", "setting-": "2"})
    assert "files" in part(found, "problems")
