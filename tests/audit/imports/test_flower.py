"""Tests of ``fedprivacy.audit.imports.flower``."""

import fedprivacy as fp
from tests.common import RECORDS


def test_flowers_account_of_replacement():
    found = fp.audit(RECORDS / "flower.json", claim=(1.4705, 7e-5))
    bound = found.bound
    assert found.verdict == "FAILS" and found.facts == ("client", "replace_one", "aggregate")
    assert bound.lower > 3.213 and bound.upper < 3.488
