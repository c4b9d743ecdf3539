"""Squares of angles: their bounds lie above every triangle in them."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from fedprivacy.loss import Gdp, Sampled
from fedprivacy.loss.strategies.cells import mirrored
from fedprivacy.loss.strategies.triangle_cells import RIGHT, TriangleProfiles, squares

LOSSES = np.linspace(-2.0, 2.0, 21)


def exact(mu: float, q: float, g: float, b: float) -> np.ndarray:
    """Return the profile of a triangle minus (1 - a)^+, to about 1e-14."""
    half = len(LOSSES) // 2
    left = np.exp(LOSSES[:half]) * beyond(mu, q, b, g)[:0:-1]
    return np.concatenate([left, beyond(mu, q, g, b)])


def beyond(mu: float, q: float, g: float, b: float) -> np.ndarray:
    """Return the profile at the losses from 0 on.

    Given x along v, P - a Q is above 0 beyond one point of the other axis. The sum over x has equal
    steps; its integrand is smooth.
    """
    turn, v = math.pi - g - b, mu * math.sin(b)
    along, across = mu * math.sin(g) * math.cos(turn), mu * math.sin(g) * math.sin(turn)
    x, step = np.linspace(-14.0, 17.0, 6201, retstep=True)
    found = []
    for a in np.exp(LOSSES[len(LOSSES) // 2 :]):
        needed = a * np.exp(v * x - 0.5 * v * v) + (a - 1.0) * (1.0 - q) / q
        cut = (np.log(needed) - along * x + 0.5 * (along**2 + across**2)) / across
        masses = [
            share * norm.pdf(x - middle) * norm.sf(cut - shift)
            for share, middle, shift in (
                (q, along, across),
                (-a * q, v, 0.0),
                ((1.0 - a) * (1.0 - q), 0.0, 0.0),
            )
        ]
        found.append(step * np.sum(masses))
    return np.array(found)


def setting(seed: int) -> tuple[float, float, float, float, float]:
    """Return (mu, q, g, b, side) of a square with triangles."""
    draw = np.random.default_rng(seed)
    q, mu = draw.uniform(0.02, 0.5), draw.uniform(0.3, 3.0)
    side = draw.choice([0.02, 0.1, 0.3])
    g = draw.uniform(math.pi / 4, math.pi / 2 - side)
    b = draw.uniform(max(math.pi / 2 - g - side, 0.0), math.pi / 2 - side)
    return mu, q, g, b, float(side)


@pytest.mark.parametrize("seed", range(6))
def test_a_square_lies_above_its_triangles(seed):
    mu, q, g, b, side = setting(seed)
    bound = TriangleProfiles(mu, q, LOSSES).most([((g, g + side), (b, b + side))])
    draw = np.random.default_rng(100 + seed)
    for one, other in draw.uniform(size=(3, 2)):
        assert np.all(exact(mu, q, g + side * one, b + side * other) - 1e-13 <= bound)


@pytest.mark.parametrize("seed", range(6))
def test_corners_are_exact_and_the_middle_is_near_their_mean(seed):
    mu, q, g, b, side = setting(seed)
    profiles = TriangleProfiles(mu, q, LOSSES)
    square = ((g, g + side), (b, b + side))
    corners = [(x, y) for x in square[0] for y in square[1]]
    values = [exact(mu, q, *corner) for corner in corners]
    for corner, value in zip(corners, values, strict=True):
        assert profiles.at(*corner) == pytest.approx(value, abs=1e-11)
        assert np.all(profiles.at(*corner) >= value - 1e-13)
    (allowed,) = profiles._between([square])
    middle = exact(mu, q, g + 0.5 * side, b + 0.5 * side)
    assert np.all(middle <= np.mean(values, axis=0) + allowed + 1e-13)
    assert allowed.max() <= 2.0 * q * (1.0 + mu * mu) * side * side


def test_the_middle_may_lie_above_the_mean_of_the_corners():
    """Without the term of second order the statement about the mean would be wrong."""
    mu, q, g, b, side = 1.5, 0.1, 1.3, 0.4, 0.4
    profiles = TriangleProfiles(mu, q, LOSSES)
    square = ((g - 0.5 * side, g + 0.5 * side), (b - 0.5 * side, b + 0.5 * side))
    corners = [exact(mu, q, x, y) for x in square[0] for y in square[1]]
    above = exact(mu, q, g, b) - np.mean(corners, axis=0)
    (allowed,) = profiles._between([square])
    assert above.max() > 0.02 * allowed.max()
    assert np.all(above <= allowed)


@pytest.mark.parametrize(("edge", "growth"), [(0.3, 0.5), (0.05, 0.2)])
def test_squares_hold_every_triangle(edge, growth):
    found = squares(edge, growth)
    draw = np.random.default_rng(5)
    for g, b in draw.uniform(0.0, math.pi / 2, size=(500, 2)):
        if g + b >= math.pi / 2 and b <= g:
            assert any(x[0] <= g <= x[1] and y[0] <= b <= y[1] for x, y in found)
    # Those of a group are its part.
    for group in found:
        parts = squares(0.5 * edge, 0.5 * growth, group)
        assert all(group[k][0] <= x[k][0] < x[k][1] <= group[k][1] for x in parts for k in (0, 1))


def test_two_points_in_one_place():
    profiles = TriangleProfiles(1.5, 0.1, LOSSES)
    assert not profiles.at(0.0, 0.0).any()
    assert not profiles.at(RIGHT, RIGHT).any()
    for g in (0.8, RIGHT):
        tails = Sampled(Gdp(1.5 * math.sin(g)), 0.1).tails(LOSSES)
        a = np.exp(LOSSES)
        sampled = np.exp(tails.p_above) - a * np.exp(tails.q_above) - np.maximum(1 - a, 0)
        found = profiles.at(g, 0.0)
        assert np.all(found >= sampled - 1e-13)
        assert found == pytest.approx(sampled, abs=1e-11)
        # The other order has u and v exchanged.
        assert profiles.at(0.0, g) == pytest.approx(mirrored(found, LOSSES), abs=1e-14)
