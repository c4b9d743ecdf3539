"""The Renyi filter counts both orientations of a loss, and the larger sum decides."""

import math
from dataclasses import replace

import pytest

import fedprivacy as fp
from fedprivacy.questions.renyi_filter import RenyiFilter

EPSILON, DELTA = 2.0, 1e-6
ONE_SIDED = {
    0.1: fp.Gaussian(noise_multiplier=2.0).sampled(fp.Poisson(0.1)),
    0.3: fp.Gaussian(noise_multiplier=4.0).sampled(fp.Poisson(0.3)),
}


def sides(chance):
    """Return a loss whose orientations differ, and the same with them exchanged."""
    loss = ONE_SIDED[chance].privacy_loss("add_remove")
    return loss, replace(loss, curve=loss.curve.swap(), witness=None)


def filled(loss):
    """Return a filter after as many rounds as fit, and how many these are."""
    found, rounds = RenyiFilter(loss.curve, EPSILON, DELTA, 0.0), 0
    while found.allows(loss):
        found.spend(loss)
        rounds += 1
    return found, rounds


@pytest.mark.parametrize("chance", ONE_SIDED)
def test_the_dearer_orientation_decides_whichever_it_is(chance):
    loss, turned = sides(chance)
    (one, rounds), (other, as_many) = filled(loss), filled(turned)
    assert rounds == as_many > 1 and one.order == other.order
    divergences = [
        curve.moments().log_moment(one.order) / (one.order - 1.0)
        for curve in (loss.curve, turned.curve)
    ]
    assert max(divergences) > 1.2 * min(divergences)
    assert rounds == math.floor(one.limit / max(divergences))
    # In the order of each: what costs more in one orientation costs less in the other.
    assert one.total == pytest.approx([rounds * each for each in divergences], rel=1e-9)
    assert other.total == pytest.approx(one.total[::-1], rel=1e-9)
    assert one.kept and other.kept


@pytest.mark.parametrize("chance", ONE_SIDED)
def test_a_filter_is_not_kept_where_one_orientation_is_above_its_limit(chance):
    for loss in sides(chance):
        found, _ = filled(loss)
        found.spend(loss)
        assert not found.kept
        assert min(found.total) <= found.limit < max(found.total)
