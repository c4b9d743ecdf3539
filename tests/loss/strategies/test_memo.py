"""Answers within a block."""

from __future__ import annotations

import gc

import pytest

from fedprivacy.loss.strategies.memo import uncollected


@pytest.mark.parametrize("before", [True, False])
def test_cycles_are_looked_for_as_before_once_a_block_ends(before):
    was = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        with pytest.raises(ZeroDivisionError), uncollected():
            assert not gc.isenabled()
            _ = 1 / 0
        assert gc.isenabled() is before
    finally:
        (gc.enable if was else gc.disable)()
