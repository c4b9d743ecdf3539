"""A ledger for a run of Opacus."""

import pytest

import fedprivacy as fp


@pytest.fixture
def ledger(tmp_path):
    from tests.integrations.opacus.loops import FACTS

    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        yield ledger
