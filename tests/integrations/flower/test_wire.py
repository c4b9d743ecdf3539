"""Tests of ``fedprivacy.integrations.flower.wire``."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprivacy.errors import ParameterError
from fedprivacy.integrations.flower.wire import clipped_update, flat, may_hold, shaped, spread
from tests.contract.test_refused_outside import arrays

LAYOUT = {"a": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.float32)}
AFTER = {"a": np.full(3, 3.0, np.float32), "b": np.full((2, 2), -1.0, np.float32)}


def test_a_client_sends_one_norm_over_all_arrays():
    sent = clipped_update(LAYOUT, AFTER, clip_norm=1.0)
    assert np.linalg.norm(sent) == pytest.approx(1.0)
    np.testing.assert_allclose(sent / sent[0], [1, 1, 1] + [-1 / 3] * 4, rtol=1e-6)
    assert np.array_equal(clipped_update(LAYOUT, AFTER, clip_norm=100.0), -flat(AFTER))
    # The server multiplies kept coordinates: what it clips to is the norm of the product.
    kept = clipped_update(LAYOUT, AFTER, clip_norm=1.0, factor=2.0, mask=np.array([0, 6]))
    assert np.linalg.norm(kept) == pytest.approx(0.5)
    assert spread(kept, 7, np.array([0, 6])).tolist() == [kept[0], 0, 0, 0, 0, 0, kept[1]]


BAD = {
    "a part": ({"a": AFTER["a"]}, "FedBN"),
    "another shape": ({**AFTER, "a": np.zeros(4, np.float32)}, "shapes"),
    "infinite": ({**AFTER, "a": np.full(3, np.inf, np.float32)}, "finite"),
    "counter": ({**AFTER, "a": np.zeros(3, np.int64)}, "float32"),
}


@pytest.mark.parametrize(("after", "reason"), BAD.values(), ids=BAD)
def test_what_has_no_common_sum_is_refused(after, reason):
    with pytest.raises(ParameterError, match=reason):
        clipped_update(LAYOUT, after, clip_norm=1.0)


def test_arrays_are_one_vector_and_back():
    back = shaped(flat(AFTER), AFTER)
    assert all(np.array_equal(back[name], AFTER[name]) for name in AFTER)
    assert may_hold(bytes(4 * 7 + 128), 7) and not may_hold(bytes(10**6), 7)
    with pytest.raises(ParameterError, match="at least one"):
        flat({})


SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)
ZEROS = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.float32)}


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    scale=st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e3, 1e30]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    factor=st.sampled_from([1.0, 2.5]),
    seed=st.integers(0, 9),
)
@SETTINGS
def test_what_leaves_is_no_longer_than_the_norm_and_keeps_its_direction(
    sizes, scale, clip, factor, seed
):
    rng = np.random.default_rng(seed)
    after = {
        f"{n}": (scale * rng.normal(size=(size, 2))).astype(np.float32)
        for n, size in enumerate(sizes)
    }
    before = {name: np.zeros_like(value) for name, value in after.items()}
    whole = -flat(after).astype(np.float64)
    sent = clipped_update(before, after, clip_norm=clip, factor=factor).astype(np.float64)
    long, norm = np.linalg.norm(whole), np.linalg.norm(sent) * factor
    assert norm <= clip * (1.0 + 1e-6)
    if long * factor <= clip:
        assert np.array_equal(sent, whole)
    else:
        assert norm >= clip * (1.0 - 1e-5)
        np.testing.assert_allclose(sent / np.linalg.norm(sent), whole / long, atol=1e-5)


def test_a_mask_is_clipped_by_what_travels_alone():
    after, mask = arrays(a=3.0, b=100.0), np.array([0, 2])
    sent = clipped_update(ZEROS, after, clip_norm=5.0, mask=mask)
    assert sent.tolist() == [-3.0, -3.0]
    assert spread(sent, 10, mask).tolist() == [-3.0, 0.0, -3.0] + [0.0] * 7
    short = clipped_update(ZEROS, after, clip_norm=1.0, factor=5.0, mask=mask)
    assert np.linalg.norm(short) * 5.0 == pytest.approx(1.0, rel=1e-6)
    whole = clipped_update(ZEROS, after, clip_norm=1e9)
    assert spread(whole, 10, None) is whole


@given(shapes=st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
@SETTINGS
def test_a_vector_goes_back_into_its_arrays(shapes):
    rng = np.random.default_rng(1)
    like = {f"{n}": rng.normal(size=s).astype(np.float32) for n, s in enumerate(shapes)}
    back = shaped(flat(like), like)
    assert list(back) == list(like)
    assert all(np.array_equal(back[name], value) for name, value in like.items())
    assert all(back[name].shape == value.shape for name, value in like.items())


def test_a_saved_vector_is_no_longer_than_its_numbers_and_a_header():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(1000, np.float32))
    assert may_hold(buffer.getvalue(), 1000)
    assert may_hold(bytes(4 * 7 + 4096), 7) and not may_hold(bytes(4 * 7 + 4097), 7)
