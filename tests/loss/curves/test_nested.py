"""Tests of ``fedprivacy.loss.curves.nested``."""

import numpy as np

import fedprivacy as fp
from fedprivacy.loss import Allocated, Gdp, Nested, Side
from tests.mechanisms.test_unknown_position import _profile, deltas


def test_a_tree_of_one_level_is_a_common_part_and_an_allocation():
    """Nested(((t, 0),), mu^2) is Allocated(mu, t); with a common part, the two composed."""
    points = np.linspace(0.0, 3.0, 7)
    for swap in (False, True):
        tree, leaf = Nested(((50, 0.0),), 1.0), Allocated(1.0, 50)
        one, other = (c.swap() if swap else c for c in (tree, leaf))
        np.testing.assert_allclose(deltas(one, points), deltas(other, points), rtol=2e-3, atol=1e-9)
        assert (deltas(one, points) >= deltas(other, points, Side.DOWN)).all()
        assert (deltas(one, points, Side.DOWN) <= deltas(other, points)).all()
    whole = _profile(Nested(((50, 0.25),), 1.25), points)
    parts = _profile(fp.loss.compose([(Gdp(0.5), 1), (leaf, 1)]), points)
    np.testing.assert_allclose(whole, parts, rtol=3e-3)


def test_trees_with_more_levels_lie_between_their_ends():
    """Raising a covariance raises the law: r_1 <= r_2 <= v."""
    points = np.linspace(0.0, 3.0, 7)
    low, middle, high = (
        deltas(Nested(levels, 1.5), points)
        for levels in (((20, 0.2),), ((5, 0.2), (4, 0.7)), ((20, 0.7),))
    )
    assert (low <= middle * (1 + 1e-3)).all()
    assert (middle <= high * (1 + 1e-3)).all()
