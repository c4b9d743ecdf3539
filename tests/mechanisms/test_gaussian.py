"""Tests of ``fedprivacy.mechanisms.gaussian``."""

import numpy as np
import pytest

import fedprivacy as fp
from tests.mechanisms.test_base import BOTH, sparse


@BOTH
def test_the_gaussian_adds_its_noise_to_the_sum(kind):
    step = fp.Gaussian(noise_multiplier=3.0, clip_norm=0.2)
    noise = np.asarray(step.release(kind(np.full(20_000, 7.0)), np.random.default_rng(8))) - 7.0
    assert abs(noise.std() / 0.6 - 1.0) < 0.025


@pytest.mark.system_randomness
def test_two_private_releases_differ():
    step = fp.Gaussian(noise_multiplier=1.0)
    # Two numbers are alike with a chance of 3e-7, three of eight pairs with one of 2e-18.
    assert (step.release(np.zeros(8)) != step.release(np.zeros(8))).sum() >= 6


@BOTH
def test_a_release_leaves_its_input_alone(kind):
    value = kind(np.ones(400))
    sparse(kept=400).release(value)
    fp.Gaussian(noise_multiplier=1.0).release(value)
    assert (np.asarray(value) == 1.0).all()


def test_single_precision_is_summed_in_double():
    step = sparse(kept=2000, dimension=2000, clip_norm=1.0)
    update = np.full(2000, 0.0037097, dtype=np.float32)
    update[0] = 1.0
    kept = step.contribution(update).astype(np.longdouble)
    assert 0.999 < np.sqrt((kept**2).sum()) <= 1.0
    half = step.contribution(np.full(2000, 6e4, dtype=np.float16)).astype(np.longdouble)
    assert 0.9 < np.sqrt((half**2).sum()) <= 1.0
