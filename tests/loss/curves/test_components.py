"""Omitted components move a profile by no more than the stated amount."""

from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant
from fedprivacy.loss import Composed, Fold, GaussianMix, Gdp, Mix, Sampled, Side
from fedprivacy.loss.curves.between import readings
from fedprivacy.loss.curves.components import trim
from fedprivacy.loss.strategies import direct

RARE = ((0.9, 0.0), (0.0989, 1.0), (1e-3, 6.0), (1e-4, 9.0))
LABELLED = Mix(((0.7, Gdp(0.5)), (0.2989, Gdp(1.0)), (1e-3, Gdp(6.0)), (1e-4, Gdp(9.0))))
PAIR = GaussianMix(1.0, RARE, ((1.0, 0.0),))
FOLD = Fold(Sampled(LABELLED, 0.3), Sampled(LABELLED, 0.3))
CURVES = [PAIR, LABELLED, Sampled(LABELLED, 0.3), FOLD]
EPSILONS = np.array([0.0, 0.1, 0.5, 2.0, 5.0, 12.0, 30.0])


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("allowed, least", [(2e-4, 5e-5), (5e-3, 5e-4)])
def test_one_round_moves_by_what_is_said(curve, allowed, least):
    """Two rounds' worth is allowed; one of them is looked at."""
    trimmed = trim(Composed(((curve, 2),)), 2 * allowed)
    [(alone, count)] = trimmed.curve.parts
    assert count == 2 and least <= trimmed.slack / 2 <= allowed
    before, after = (direct.delta(one, EPSILONS, Side.UP) for one in (curve, alone))
    assert np.all(np.abs(before - after) <= trimmed.slack / 2 + 1e-14)
    assert np.max(np.abs(before - after)) >= 0.05 * trimmed.slack


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("count", [3, 40])
def test_many_rounds_move_by_what_is_said(curve, count):
    run = Composed(((curve, count),))
    trimmed = trim(run, 0.02 if count == 3 else 0.1)
    assert trimmed.slack > 1e-4
    for epsilon in (0.3, 4.0, 25.0):
        low, high = (one_sided(run, side, epsilon) for side in (Side.DOWN, Side.UP))
        below, above = (one_sided(trimmed.curve, side, epsilon) for side in (Side.DOWN, Side.UP))
        assert below - trimmed.slack <= high and low <= above + trimmed.slack


def one_sided(run, side, epsilon):
    return run.composition(2e-3, side, 1e-12).delta(epsilon)


@pytest.mark.parametrize("allowed", [0.0, 1e-30])
def test_nothing_is_left_out_that_counts(allowed):
    run = Composed(tuple((curve, 5) for curve in CURVES))
    assert trim(run, allowed)[:2] == (run, 0.0)


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_repeated_draws_hold_the_lattice_of_all_of_them(adjacency):
    """Drawn 40 times once in 1e30 rounds: too heavy for moments, too rare to count."""
    once = fp.Gaussian(noise_multiplier=1.1).sampled(fp.WithReplacement(40, probability=1e-4))
    loss = once.privacy_loss(adjacency)
    loss = replace(loss, curve=readings(loss.curve)[0])
    found = PldAccountant().compose(loss, 300).epsilon(1e-6).resolution
    ends = []
    for one in {loss.curve, loss.curve.swap()}:
        run = Composed(((one, 300),))
        sides = (Side.DOWN, Side.UP)
        ends.append([run.composition(1e-3, side, 1e-13).epsilon(1e-6) for side in sides])
    low, high = np.max(ends, axis=0)
    assert low <= found[1] and found[0] <= high
    assert found[1] - found[0] <= 1e-3


def test_mass_that_moves_within_q_counts_by_the_epsilon():
    """(Q, P) of a pair whose P has a far component: up to the reach the profile moves by less."""
    weights = ((0.99, 0.0), (0.01 - 1e-20, 1.0), (1e-20, 9.0))
    turned = GaussianMix(1.0, weights, ((1.0, 0.0),)).swap()
    trimmed = trim(turned, 1e-4)
    assert 0.0 < trimmed.slack <= 1e-4 and trimmed.reach < np.inf
    epsilons = np.append(np.linspace(0.0, trimmed.reach, 15), trimmed.reach)
    before, after = (direct.delta(one, epsilons, Side.UP) for one in (turned, trimmed.curve))
    assert trimmed.curve != turned
    assert np.all(np.abs(before - after) <= trimmed.slack)
    # Without spare delta no component is left out.
    assert trim(turned, 1e-12).curve == turned


def test_a_rare_mean_of_q_that_is_far_away_is_left_out():
    """Its mass counts e^35 times, and only a pair that gets much shorter is worth that."""
    p = ((0.99, 0.0), (0.01 - 1e-9, 1.0), (1e-9, 40.0))
    far, near = (
        GaussianMix(1.0, p, ((0.99, 0.0), (0.01 - 1e-24, -1.0), (1e-24, mean)))
        for mean in (-40.0, -1.5)
    )
    trimmed = trim(far, 1e-6)
    assert len(trimmed.curve.p) == len(trimmed.curve.q) == 2
    assert 1e-9 < trimmed.slack <= 1e-6 and trimmed.reach == 35.0
    epsilons = np.linspace(0.0, trimmed.reach, 15)
    before, after = (direct.delta(one, epsilons, Side.UP) for one in (far, trimmed.curve))
    assert np.all(np.abs(before - after) <= trimmed.slack + 1e-14)
    assert trim(near, 1e-6).curve.q == near.q and trim(near, 1e-6).reach == np.inf
    # Turned around, that mass is P's and counts once.
    turned = trim(near.swap(), 1e-6)
    assert len(turned.curve.swap().q) == 2 and turned.slack < 1e-23


def test_a_pair_that_would_lose_its_shape_is_kept():
    """Without its largest mean this pair's losses would be above 0 to the left."""
    q = 1e-14
    stays = (1.0 - q, -1.0)
    pair = GaussianMix(1.0, (stays, (q, 1.0)), (stays, (q, 0.0)))
    assert trim(pair, 1e-9) == (pair, 0.0, np.inf)
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.FixedSize(10, population=10**15)) * 3
    bound = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    assert 0.0 <= bound.lower <= bound.upper < 1e-6
