"""Tests of ``fedprivacy.runs.explaining``."""

import pytest

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.runs.explaining import halved_by, parts_of
from fedprivacy.runs.run_specs import SampledRun

ASK = {"delta": 1e-5, "adjacency": "add_remove", "observer": "aggregate"}


def test_the_parts_of_a_run_have_shares_and_add_up_to_it():
    quiet = fp.Gaussian(noise_multiplier=8.0).sampled(fp.Poisson(0.1)) * 10
    loud = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.1)) * 10
    first, second = parts_of(quiet + loud, **ASK)
    assert first.share + second.share == pytest.approx(1.0) and second.share > 0.9
    assert first.without == second.alone == fp.epsilon(loud, **ASK).upper
    (alone,) = parts_of(loud, **ASK)
    assert (alone.share, alone.without) == (1.0, 0.0)


def test_what_halves_epsilon_halves_it():
    run = SampledRun(noise_multiplier=1.0, sampling_probability=0.05, rounds=200)
    whole = fp.epsilon(run.run(), **ASK).upper
    found = halved_by(run, None, **ASK)
    assert set(found) == {"noise_multiplier", "rounds", "sampling_probability"}
    for name, value in found.items():
        assert 0.49 * whole < fp.epsilon(run.changed({name: value}).run(), **ASK).upper
        assert fp.epsilon(run.changed({name: value}).run(), **ASK).upper <= 0.5 * whole
