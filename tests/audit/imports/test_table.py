"""Tests of ``fedprivacy.audit.imports.table``."""

import math

import pytest

import fedprivacy as fp
from tests.audit.imports.test_content import SAID
from tests.common import RECORDS

TINY = 1 / 48000
OPACUS = {"adjacency": "add_remove", "sampling": "poisson"}


def test_a_denominator_that_follows_the_data_certifies_nothing():
    claim = (SAID["opacus_rdp"], TINY)
    path = RECORDS / "opacus_rdp.json"
    for adjacency in ("add_remove", "zero_out"):
        facts = OPACUS | {"adjacency": adjacency}
        found = fp.audit(path, claim=claim, denominator="realised", **facts)
        assert found.verdict == "CANNOT BE CERTIFIED" and found.void
        assert "depend on the number of units" in found.reasons[0]
        assert fp.audit(path, claim=claim, denominator="public", **facts).verdict == "HOLDS"


def test_epsilons_added_over_disjoint_clients_are_told():
    sums = (7 * SAID["opacus_rdp"], TINY)
    found = fp.audit(RECORDS / "opacus_rdp.json", claim=sums, **OPACUS)
    assert found.verdict == "HOLDS" and "7 times the epsilon of this run" in found.reasons[1]
    fine = fp.audit(RECORDS / "opacus_rdp.json", claim=(SAID["opacus_rdp"], TINY), **OPACUS)
    assert fine.verdict == "HOLDS" and len(fine.reasons) == 1


def test_a_table_and_a_statement_hold_what_no_accountant_does(tmp_path):
    path = tmp_path / "a.csv"
    head = "round,noise_multiplier,cohort,population,sampling,steps_per_round,missing_shares"
    path.write_text("\n".join([head, "1,4.0,50,50,everyone,2,0", "2,4.0,50,50,everyone,2,30"]))
    found = fp.audit(path, claim=(3.0, 1e-5), adjacency="zero_out")
    step, quiet = (fp.Gaussian(noise_multiplier=z) for z in (4.0, 4.0 * math.sqrt(0.4)))
    wanted = fp.epsilon(step * 2 + quiet * 2, delta=1e-5, adjacency="zero_out")
    assert found.bound.upper == pytest.approx(wanted.upper, abs=1e-9)
    assert set(found.granted) == {"denominator", "trials", "rates"}
    path = tmp_path / "a.toml"
    path.write_text(
        "noise_multiplier = 4.0\nrounds = 3\nsampling = 'everyone'\nadjacency = 'add_remove'\n"
        "epsilon = 2.0\ndelta = 1e-5\ntrials = 5\ndenominator = 'realised'\n"
    )
    assert fp.audit(path).void
    kinder = fp.audit(path, denominator="public", trials=1)
    assert kinder.verdict == "FAILS" or kinder.bound.upper > 0
    text = path.read_text().replace("realised", "public")
    path.write_text(text.replace("trials = 5", "trials = 1\nsteps_per_round = 5"))
    five = fp.epsilon(step * 15, delta=1e-5, adjacency="add_remove")
    assert fp.audit(path).bound.upper == five.upper
