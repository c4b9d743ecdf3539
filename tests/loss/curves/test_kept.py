"""Results that a curve computes once."""

import copy
import pickle

import pytest

from fedprivacy.loss import Composed, Fold, Gdp, Mix, Sampled

ONE = Sampled(Gdp(0.7), 0.2)
CURVES = [Gdp(1.0), ONE, ONE.swap(), Fold(ONE, ONE), Mix(((0.5, ONE), (0.5, Gdp(1.0))))]
CURVES.append(Composed(((ONE, 3), (Gdp(1.0), 1))))


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: type(curve).__name__)
@pytest.mark.parametrize("name", ["moments", "support", "components"])
def test_a_result_is_kept_and_left_out_of_copies(curve, name):
    """The same object each time; copies and pickles equal the curve and compute their own."""
    found = getattr(curve, name)()
    assert getattr(curve, name)() is found
    for same in (copy.copy(curve), copy.deepcopy(curve), pickle.loads(pickle.dumps(curve))):
        assert same == curve and hash(same) == hash(curve)
        assert getattr(same, name)() is not found
