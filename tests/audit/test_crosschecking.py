"""Every accountant on one run, and the accountants that a certificate refutes."""

import json
import sys
import types

import pytest

import fedprivacy as fp
from fedprivacy.audit.crosschecking import Standing
from fedprivacy.integrations import peers

POISSON = fp.Gaussian(noise_multiplier=1.4).sampled(fp.Poisson(1 / 60)) * 180
FIXED = fp.Gaussian(noise_multiplier=1.4).sampled(fp.FixedSize(100, population=6000)) * 180


def by_name(found):
    return {(row.who, str(row.adjacency)): row for row in found.rows}


def test_a_run_that_all_can_account():
    found = fp.crosscheck(POISSON, delta=7e-5, adjacency="add_remove")
    rows = by_name(found)
    assert rows["ours, pld", "add_remove"].standing is Standing.CERTIFIED
    for who in ("ours, rdp", "ours, advanced", "dp-accounting rdp"):
        assert rows[who, "add_remove"].standing is Standing.LOOSE
    pld = rows["dp-accounting pld", "add_remove"]
    assert pld.standing in (Standing.AGREES, Standing.LOOSE)
    assert pld.epsilon == pytest.approx(0.63028, abs=1e-3)
    assert {row.who for row in found.wrong} <= {"opacus gdp"}  # where it is installed


def test_all_adjacencies_that_are_served():
    found = fp.crosscheck(POISSON, delta=7e-5)
    assert {str(one) for one in found.bounds} == {"add_remove", "zero_out", "replace_one"}
    alone = fp.Laplace(noise_multiplier=2.0).sampled(fp.Shuffled(rounds_per_epoch=2))
    assert "add_remove" not in fp.crosscheck(alone, delta=1e-5).bounds


def test_an_account_below_the_certified_lower_end_is_wrong(monkeypatch):
    """The central limit's number, Poisson sampling for fixed cohorts: both from the field."""
    monkeypatch.setattr(
        peers, "ACCOUNTANTS", {"poisson": lambda *asked: 0.6303, "broken": lambda *asked: 1 / 0}
    )
    found = fp.crosscheck(FIXED, delta=7e-5, adjacency="add_remove")
    assert [row.who for row in found.wrong] == ["poisson"]
    assert "at least 3.2" in found.wrong[0].why and "attained" in found.wrong[0].why
    broken = by_name(found)["broken", "add_remove"]
    assert broken.standing is Standing.NO_ANSWER and "ZeroDivisionError" in broken.why


def test_a_nan_is_no_upper_bound(monkeypatch):
    monkeypatch.setattr(peers, "ACCOUNTANTS", {"nan": lambda *asked: float("nan")})
    assert len(fp.crosscheck(POISSON, delta=7e-5, adjacency="add_remove").wrong) == 1


def test_dp_accounting_is_not_asked_for_what_it_cannot_say():
    rows = by_name(fp.crosscheck(FIXED, delta=7e-5, adjacency="zero_out"))
    assert rows["ours, pld", "zero_out"].epsilon < 2.5
    for who in ("dp-accounting pld", "opacus rdp", "prv-accountant"):
        assert rows[who, "zero_out"].standing in Standing
        assert rows[who, "zero_out"].epsilon is None and rows[who, "zero_out"].why


def test_opacus_gets_the_history_it_wants(monkeypatch):
    seen = []

    class Account:
        history: list

        def get_epsilon(self, delta):
            seen.append((self.history, delta))
            return 1.83

    fake = types.ModuleType("opacus.accountants")
    fake.create_accountant = lambda kind: Account()
    monkeypatch.setitem(sys.modules, "opacus", types.ModuleType("opacus"))
    monkeypatch.setitem(sys.modules, "opacus.accountants", fake)
    run = fp.Gaussian(noise_multiplier=3.0).sampled(fp.Poisson(0.2)) * 50
    rows = by_name(fp.crosscheck(run, delta=1 / 48000, adjacency="add_remove"))
    assert seen == [([(3.0, 0.2, 50)], 1 / 48000)] * 3
    assert rows["opacus gdp", "add_remove"].standing is Standing.WRONG
    assert "1.96" in rows["opacus gdp", "add_remove"].why


def test_real_opacus():
    pytest.importorskip("opacus")
    run = fp.Gaussian(noise_multiplier=3.0).sampled(fp.Poisson(0.2)) * 50
    rows = by_name(fp.crosscheck(run, delta=1 / 48000, adjacency="add_remove"))
    assert rows["opacus gdp", "add_remove"].standing is Standing.WRONG
    assert rows["opacus rdp", "add_remove"].standing is Standing.LOOSE


def test_a_table():
    found = fp.crosscheck(fp.Gaussian(noise_multiplier=1.0), delta=0.0, adjacency="zero_out")
    lines = str(found).splitlines()
    assert lines[0] == "delta = 0, aggregate" and lines[1].startswith("accountant")
    assert "ours, pld" in lines[2] and "inf" in lines[2]
    assert json.loads(json.dumps(found.to_dict()))["rows"][0]["epsilon"] == "inf"


def test_losses_of_thousands_take_no_minutes():
    run = fp.Gaussian(noise_multiplier=0.02)
    row = by_name(fp.crosscheck(run, delta=1e-5, adjacency="zero_out"))[
        "dp-accounting pld", "zero_out"
    ]
    assert row.epsilon == pytest.approx(1460.0, rel=0.01)


def test_what_is_refused():
    with pytest.raises(fp.ParameterError, match=r"^run must"):
        fp.crosscheck(3, delta=1e-5)
    with pytest.raises(fp.ParameterError, match=r"^delta must"):
        fp.crosscheck(POISSON, delta=2.0)
    with pytest.raises(fp.UnsupportedCombination):
        unit = fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(fp.Poisson(0.1))
        fp.crosscheck(unit, delta=0.1, adjacency="add_remove", observer="server")
