"""Chains on images: scores of running means, and resuming between a round and its look."""

import pytest

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy.reproductions import chains
from fedprivacy.training import digits

SHAPE = {"local_steps": 2, "step_size": 1e-4, "batch": 20, "temperature": 0.05}


@pytest.fixture(scope="module")
def loop():
    return chains.langevin(chains.regression(digits(clients=10)), **SHAPE)


def test_a_chain_that_stops_continues_as_if_it_had_not(loop, tmp_path):
    whole, done = chains.curve(loop, 6, 2, 3)
    assert done == 6 and [row["round"] for row in whole] == [2, 4, 6]
    assert [set(row) for row in whole] == [{"round", "all"}, *[{"round", "all", "warm"}] * 2]
    kept = tmp_path / "chain"

    class Stopped(Exception):
        pass

    def stop_at(last):
        def stop(number):
            if number == last:
                raise Stopped

        return stop

    for last in (1, 4, 5):
        with pytest.raises(Stopped):
            chains.curve(loop, 6, 2, 3, kept=kept, on_round=stop_at(last))
    assert chains.curve(loop, 6, 2, 3, kept=kept) == (whole, 6)
    # A finished chain is read.
    assert chains.curve(loop, 6, 2, 3, kept=kept) == (whole, 6)


def test_a_chain_that_was_killed_before_the_look_at_its_state_looks_again(loop, tmp_path):
    whole, _ = chains.curve(loop, 4, 2)
    kept = tmp_path / "chain"
    chains.curve(loop, 3, 2, kept=kept)
    before = kept.read_bytes()
    chains.curve(loop, 4, 2, kept=kept)
    # The state is that of round 4, the scores those of round 3.
    kept.write_bytes(before)
    assert chains.curve(loop, 4, 2, kept=kept) == (whole, 4)


def test_damaged_progress_is_refused(loop, tmp_path):
    kept = tmp_path / "chain"
    chains.curve(loop, 2, 1, kept=kept)
    kept.write_bytes(b"no archive")
    with pytest.raises(fp.ParameterError, match="progress must be readable"):
        chains.curve(loop, 3, 1, kept=kept)


def test_a_network_with_one_leapfrog_step_is_fa_ld(loop):
    asked = {"method": "fa-hmc", "leapfrog_steps": 1, "iterations": 3, "step_size": 0.1}
    asked |= {"batch": 20, "hidden": [4, 4]}
    records = loop.target.data
    one = chains.loop_of(records, asked, 0)
    assert isinstance(one, chains.LangevinSampling) and one.local_steps == 3
    assert one.step_size == pytest.approx(0.1**2 / 2) and one.temperature == 1.0
    other = chains.loop_of(records, asked | {"leapfrog_steps": 2}, 0)
    assert isinstance(other, chains.HamiltonianSampling)
    assert torch.equal(one.start, other.start)


def test_batches_beyond_every_client_are_refused(loop):
    with pytest.raises(fp.ParameterError, match="have a client of at least 500 records"):
        chains.langevin(loop.target, **{**SHAPE, "batch": 500})
