"""Tests of ``fedprivacy.mechanisms.sparsified``."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from tests.mechanisms.test_base import BOTH, sparse

PUBLIC = np.random.default_rng(5)


@BOTH
@pytest.mark.parametrize("sparsifier", ["rand_k", "top_k"])
def test_nothing_leaves_off_the_mask(kind, sparsifier):
    step = sparse(sparsifier=sparsifier)
    mask = step.draw_mask(np.random.default_rng(1))
    assert len(mask) == len(set(mask.tolist())) == 40
    share = np.asarray(step.release(kind(np.ones(400)), np.random.default_rng(2), mask=mask))
    off = np.setdiff1d(np.arange(400), mask)
    assert (share[off] == 0.0).all()
    assert (share[mask] != 0.0).all()
    assert share.shape == (400,)


@BOTH
def test_the_noise_on_kept_coordinates_has_the_share_of_the_std(kind):
    """20 000 normal draws: a sample std is off by 5 sigma = 2.5 % once in 1.7 million times."""
    step = sparse()
    mask = np.arange(40)
    generator = np.random.default_rng(3)
    draws = [
        np.asarray(step.release(kind(np.zeros(400)), generator, mask=mask)) for _ in range(500)
    ]
    noise = np.concatenate([draw[mask] for draw in draws])
    std = 0.5 * 2.0 / math.sqrt(25)
    assert step.share_std == pytest.approx(std, rel=1e-15)
    assert abs(noise.std() / std - 1.0) < 0.025
    assert abs(noise.mean()) < 5 * std / math.sqrt(len(noise))


@BOTH
def test_rand_k_is_scaled_by_d_over_k_and_top_k_is_not(kind):
    update = kind(np.full(400, 1e-4))
    mask = np.arange(40)
    scaled = np.asarray(sparse().contribution(update, mask))
    plain = np.asarray(sparse(sparsifier="top_k").contribution(update, mask))
    near = sparse().grid / 2
    assert scaled == pytest.approx(np.full(40, 1e-3), abs=near)
    assert plain == pytest.approx(np.full(40, 1e-4), abs=near)


@BOTH
@pytest.mark.parametrize("sparsifier", ["rand_k", "top_k"])
def test_clipping_comes_after_sparsifying(kind, sparsifier):
    """An update whose whole norm is huge and whose kept part is small is not clipped."""
    values = np.full(400, 50.0)
    mask = np.arange(40)
    values[mask] = 1e-4
    step = sparse(sparsifier=sparsifier)
    scale = 10.0 if sparsifier == "rand_k" else 1.0
    kept = np.asarray(step.contribution(kind(values), mask))
    assert kept == pytest.approx(np.full(40, 1e-4 * scale), abs=step.grid / 2)
    values[mask] = PUBLIC.normal(size=40)
    clipped = np.asarray(step.contribution(kind(values), mask))
    assert np.linalg.norm(clipped) == pytest.approx(0.5, rel=2.0**-19)
    assert clipped / np.linalg.norm(clipped) == pytest.approx(
        values[mask] / np.linalg.norm(values[mask]), abs=2.0**-19
    )


def test_top_k_needs_a_public_mask():
    with pytest.raises(fp.ParameterError, match=r"mask must be given for top_k.*public data"):
        sparse(sparsifier="top_k").release(np.zeros(400))


def test_rand_k_draws_every_coordinate_equally_often():
    """4000 masks, each coordinate 400 +- 19: 6 sigma happens once in 1.2 million batches."""
    step, generator = sparse(), np.random.default_rng(7)
    seen = np.zeros(400)
    for _ in range(4000):
        seen[step.draw_mask(generator)] += 1
    assert np.abs(seen - 400).max() < 6 * math.sqrt(4000 * 0.1 * 0.9)


MASKS = [
    (np.zeros(4, int), "contain every index at most once"),
    (np.array([0, 1, 2, -1]), "contain indices from 0 to 399"),
    (np.array([0, 1, 2, 400]), "contain indices from 0 to 399"),
    (np.array([0.0, 1.0, 2.0, 3.0]), "contain integers"),
    (np.array([True, False, True, False]), "contain integers"),
    (np.arange(5), "have shape"),
    ([0, 1, 2, 3], "have shape"),
]


@pytest.mark.parametrize(("mask", "words"), MASKS)
def test_a_mask_that_does_not_fit_is_refused(mask, words):
    step = sparse(kept=4)
    with pytest.raises(fp.ParameterError, match=f"mask must {words}"):
        step.contribution(np.ones(400), mask)
    with pytest.raises(fp.ParameterError, match=f"mask must {words}"):
        step.release(np.ones(400), mask=mask)
    unsorted = np.array([7, 3, 9, 1])
    # A number is 0 with a chance of 1e-6, three of four with one of 4e-18.
    assert (step.release(np.ones(400), mask=unsorted)[unsorted] != 0.0).sum() >= 2


def test_sparsifying_does_not_change_privacy():
    whole = sparse(kept=400).privacy_loss("replace_one").curve
    for changed in ({"kept": 1}, {"sparsifier": "top_k"}, {"clip_norm": 9.0}):
        assert sparse(**changed).privacy_loss("replace_one").curve == whole
    assert whole == fp.Gaussian(noise_multiplier=2.0).privacy_loss("replace_one").curve
