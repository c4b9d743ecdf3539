"""How a unit's rounds are drawn, and what draws in secret lose."""

import itertools
import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.loss import Gdp
from fedprivacy.mechanisms import split_noise, unknown_position
from fedprivacy.mechanisms.draws import OnceAnEpoch, Repeated
from fedprivacy.mechanisms.shifted import spaced_sums, sums_above
from tests.mechanisms.test_unknown_position import (
    _profile,
    deltas,
    noise_of,
)


def law_of(draw, rounds):
    """Return all sets of rounds as rows of 0 and 1, and the probability of each."""
    sets = np.array(list(itertools.product((0.0, 1.0), repeat=rounds)))
    if isinstance(draw, OnceAnEpoch):
        each = sets.reshape(len(sets), -1, draw.places).sum(axis=2)
        return sets, (each == 1.0).all(axis=1) * draw.places ** (-rounds / draw.places)
    weights = np.ones(len(sets))
    for drawn, weight in zip(sets, range(len(sets)), strict=True):
        away = 0
        for taken in drawn:
            chance = 0.0 if away else draw.probability
            weights[weight] *= chance if taken else 1.0 - chance
            away = draw.separation - 1 if taken else max(away - 1, 0)
    assert math.isclose(weights.sum(), 1.0)
    return sets, weights


@pytest.mark.parametrize("most", [1, 4, 16])
def test_rounds_drawn_in_secret_lose_no_more_than_known_ones(most):
    """In 16 rounds of 256 the common part loses more than the worst pattern of rounds."""
    rule = fp.MinimumSeparation(1, at_most=most)
    run = noise_of(factors.SquareRootToeplitz(), 8.0, 256, rule)
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    known = fp.epsilon(run, **ask)
    drawn = fp.epsilon(run.sampled(fp.RandomAllocation(256)), **ask)
    assert drawn.upper <= known.upper
    assert ("joint convexity" in " ".join(drawn.theorems)) == (most == 16)


DRAWS = [Repeated(0.3), Repeated(0.3, 2), Repeated(0.6, 3), OnceAnEpoch(2), OnceAnEpoch(4)]


@pytest.mark.parametrize("draw", DRAWS, ids=str)
def test_tails_of_a_draw(draw):
    """Tails of sums of drawn steps lie above those of every draw, and the lower end's below."""
    steps = np.array([3, 0, 5, 1])
    sets, weights = law_of(draw, 4)
    sums = sets @ steps
    prior = (weights @ sets).max() if isinstance(draw, OnceAnEpoch) else draw.probability
    together = draw.places if isinstance(draw, OnceAnEpoch) else 1
    above = sums_above(steps, np.full(4, prior), together)
    exact = np.array([weights[sums >= k].sum() for k in range(len(above))])
    assert (above >= exact - 1e-15).all()
    if isinstance(draw, Repeated):
        found = spaced_sums(steps, draw.probability, draw.separation)
        exact = np.array([weights[sums >= k].sum() for k in range(len(found))])
        np.testing.assert_allclose(found, exact, atol=1e-15)
    else:
        np.testing.assert_allclose(above, exact, atol=1e-15)


def test_a_hardly_possible_round_is_not_forgotten():
    """Every number below P's is a lower end: with probability q the shift is there."""
    shift, q = 1.0, 1e-42
    line = unknown_position.rank_one(np.full(3, shift), q, 1.0)
    least = q * (deltas(Gdp(shift), [0.0])[0] - 1e-9)
    assert 0.0 < least <= line.swap().moments().log_moment(2.0) + line.moments().log_moment(2.0)
    # Tails of empty laws are bounded as well, by a positive rest.
    above = sums_above(np.array([5, 5]), np.array([1e-41, 1e-41]))
    assert len(above) == 2 and 2e-41 <= above[1] < 1e-36


HOSTILE = {
    "ones": np.tril(np.ones((6, 6))),
    "almost singular": np.tril(np.ones((4, 4)), -1) + 1e-9 * np.eye(4),
    "huge ratios": np.tril(10.0 ** np.random.default_rng(5).uniform(-6, 1, (4, 4))),
    "more rows than columns": np.array([[1, 0], [1, 1], [0, 1], [0.5, 2], [2, 2]], float),
}


@pytest.mark.fast_cells(6)
@pytest.mark.parametrize("matrix", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    ("draw", "z"),
    [
        (Repeated(0.1), 1.0),
        (Repeated(0.5), 4.0),
        (Repeated(0.3, 2), 2.0),
        (OnceAnEpoch(2), 1.0),
        (OnceAnEpoch(2), 4.0),
    ],
    ids=str,
)
def test_split_noise_lies_above_the_truth(matrix, draw, z):
    """Simulated: the allowances are five standard errors, one failure in a million."""
    many, rng = 20_000, np.random.default_rng(7)
    sets, weights = law_of(draw, matrix.shape[1])
    means = sets @ matrix.T / z
    drawn = means[rng.choice(len(sets), size=many, p=weights)]
    absent = rng.normal(size=drawn.shape)
    present = drawn + rng.normal(size=drawn.shape)
    curve, reasons = unknown_position.drawn_rounds(matrix, draw, z, Gdp(1e3))
    assert unknown_position.SPLIT in reasons
    points = np.array([0.0, 0.3, 1.0])
    bounds = [deltas(curve, points)]
    if isinstance(draw, Repeated):
        every = split_noise.bins_of_rounds(matrix, draw.probability, draw.separation, z)
        bounds += [_profile(fp.loss.compose(parts), points) for parts in every]
    bound = np.min(bounds, axis=0)
    log = [y @ means.T - 0.5 * (means**2).sum(axis=1) for y in (absent, present)]
    without, with_it = (np.exp(one) @ weights for one in log)
    for point, most in zip(np.exp(points), bound, strict=True):
        # Both as means of numbers from 0 to 1.
        for samples in (np.maximum(1 - point * without, 0), np.maximum(1 - point / with_it, 0)):
            assert samples.mean() <= most + 5 * 0.5 / math.sqrt(many)
