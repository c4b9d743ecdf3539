"""Tests of ``fedprivacy.evidence.evidence``."""

import math

import pytest

import fedprivacy as fp
from fedprivacy.errors import LedgerError
from fedprivacy.evidence import RunEvidence
from tests.evidence.test_noiseless import MECHANISMS, one_round


@pytest.mark.parametrize("what", MECHANISMS)
def test_a_ledger_with_a_round_without_noise_fails(tmp_path, what):
    path = one_round(tmp_path / "a.ledger", MECHANISMS[what], 0.0)
    found = fp.audit(path)
    assert found.verdict == "FAILS", found
    assert (found.bound.lower, found.bound.upper) == (math.inf, math.inf)
    assert found.rounds == 2 and "1 round released a sum without noise" in str(found)
    fine = one_round(tmp_path / "b.ledger", MECHANISMS[what], 1.0)
    assert fp.audit(fine).verdict == "HOLDS"
    with pytest.raises(fp.UnsupportedCombination, match="no accountant applies"):
        RunEvidence.of(fp.Ledger.open(path)).loss(found.facts)
    # A run without a certified number cannot continue to spend.
    account = fp.Budget(10.0, 1e-5, adjacency="zero_out")
    with fp.Ledger.open(path) as ledger, pytest.raises(LedgerError, match="has no epsilon"):
        account.charge(ledger)
