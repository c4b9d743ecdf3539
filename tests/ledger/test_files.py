"""Tests of ``fedprivacy.ledger.files``."""

import os
from pathlib import Path

import pytest

import fedprivacy as fp
from fedprivacy.errors import LedgerError
from fedprivacy.ledger import Ledger
from fedprivacy.ledger.files import stamp
from tests.ledger.test_ledger import new

GAUSS = fp.Gaussian(noise_multiplier=1.0, unit="client")
FACTS = {"unit": "client", "adjacency": "zero_out"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_stops_the_round(path):
    with new(path) as ledger:
        full = os.open("/dev/full", os.O_WRONLY)
        aside = path.rename(path.with_name("aside"))
        path.symlink_to("/dev/full")
        keep, ledger._fd = ledger._fd, full
        ledger._stamp = stamp(full)
        with pytest.raises(LedgerError, match="No space left"):
            ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
        ledger._fd = keep
        path.unlink()
        aside.rename(path)
        with pytest.raises(LedgerError, match="an earlier write failed"):
            ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
        os.close(full)
    assert Ledger.open(path).spent_rounds == 0
