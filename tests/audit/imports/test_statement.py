"""Tests of ``fedprivacy.audit.imports.statement``."""

import json
from pathlib import Path

import pytest

import fedprivacy as fp
from fedprivacy.audit.imports import statement
from tests.common import RECORDS

pytestmark = pytest.mark.usefixtures("narrowest")


def test_a_statement_against_the_record_cannot_hold():
    facts = {"claim": (500.0, 7e-5), "adjacency": "zero_out"}
    assert fp.audit(RECORDS / "fixed.csv", **facts).verdict == "HOLDS"
    for sampling in (fp.Poisson(0.001), "everyone"):
        found = fp.audit(RECORDS / "fixed.csv", sampling=sampling, **facts)
        assert found.verdict == "CANNOT BE CERTIFIED"
        assert (
            "in the record" in str(found)
            and "as stated, although the record contradicts it" in found.statement
        )
    rare = fp.FixedSize(1, population=10**6)
    found = fp.audit(
        RECORDS / "opacus_rdp.json", sampling=rare, claim=(9, 1e-5), adjacency="zero_out"
    )
    assert found.verdict == "CANNOT BE CERTIFIED" and "a share of 0.2" in str(found)


def test_the_schema_that_is_shipped_is_the_codes():
    file = Path(statement.__file__).with_name("statement.schema.json")
    assert json.loads(file.read_text()) == statement.schema()
    assert set(statement.schema()["$defs"]["Statement"]["properties"]) == set(
        statement.Statement.__struct_fields__
    )
