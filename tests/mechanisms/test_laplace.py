"""Tests of ``fedprivacy.mechanisms.laplace``."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import fedprivacy as fp
from fedprivacy.loss import LaplaceExchanged, Side


def test_beyond_the_largest_loss_nothing_has_mass():
    curve = LaplaceExchanged(0.2, 1.0, 1.0)
    found = curve.tails(np.array([curve.most * 1.0000001, -curve.most * 1.0000001]), Side.UP)
    assert np.isneginf(found.p_above[0]) and np.isneginf(found.q_below[1])
    run = fp.Laplace(noise_multiplier=1.0).sampled(fp.Poisson(0.2))
    pure = fp.epsilon(run, delta=0.0, adjacency="replace_one")
    assert pure.lower <= curve.most <= pure.upper <= curve.most * (1 + 1e-12)


@pytest.mark.parametrize("scale", [1 / 299.0, 1 / 301.0, 1e-3, 1e-9])
def test_noise_that_hides_nothing_has_answers_too(scale):
    """Exponentials of these losses leave doubles: above 300 scales F(S, S) is used."""
    run = fp.Laplace(noise_multiplier=scale).sampled(fp.Poisson(0.5))
    facts = {"adjacency": "replace_one"}
    pure = fp.epsilon(run * 3, delta=0.0, **facts)
    assert pure.lower <= 3 * (2.0 / scale) and pure.upper >= 3 * (1.0 / scale - 1.0)
    found = fp.delta(run, epsilon=1.0, **facts)
    # A drawn unit is distinguished with certainty, an undrawn one never.
    assert found.lower <= 0.5 <= found.upper <= 0.5 * (1 + 1e-9)


def sends(counts, unit, q, y):
    """Density of a sum of +-1 from one unit, by chance, and of 0 or 1 from three others."""
    found = mpf(0)
    for drawn, chance in ((1, mpf(q)), (0, 1 - mpf(q))):
        for others, weight in enumerate(counts):
            found += chance * weight * mpmath.exp(-abs(y - drawn * unit - others)) / 2
    return found


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3])
def test_no_data_of_a_tiny_population_lose_more(epsilon):
    q = 0.1
    bound = fp.delta(
        fp.Laplace(noise_multiplier=1.0).sampled(fp.Poisson(q)),
        epsilon=epsilon,
        adjacency="replace_one",
    )
    grid = np.linspace(-12, 14, 5201)
    for senders in (0, 1, 3):
        law = [mpmath.binomial(senders, k) * mpf(q) ** k * (1 - mpf(q)) ** (senders - k)
               for k in range(senders + 1)]  # fmt: skip
        for here, there in ((1, -1), (1, 0), (0.5, -1), (-1, 1)):
            p, r = (
                np.array([float(sends(law, unit, q, y)) for y in grid[::10]])
                for unit in (here, there)
            )
            shown = float(np.sum(np.maximum(p - np.exp(epsilon) * r, 0.0)) * 0.05)
            assert shown <= bound.upper + 2e-3 * q
    assert bound.upper - bound.lower <= 1e-9


def test_hundred_rounds_are_bracketed_closely_by_every_question():
    run = fp.Laplace(noise_multiplier=2.0).sampled(fp.Poisson(0.05)) * 100
    found = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    assert 1.678 < found.lower <= found.upper < 1.679
    assert fp.delta(run, epsilon=found.upper, adjacency="replace_one").lower <= 1e-5
    rdp = fp.epsilon(run, delta=1e-5, adjacency="replace_one", accountant="rdp")
    assert found.upper < rdp.upper < 2.1


def test_pure_epsilon_holds_the_exact_quotient():
    """1 / z is rounded up if it is no double, and three rounds of 1 keep a budget of 3."""
    for z in np.random.default_rng(2).uniform(0.1, 5.0, 200):
        for moves, adjacency in ((1, "add_remove"), (2, "replace_one")):
            found = fp.epsilon(fp.Laplace(noise_multiplier=z) * 3, delta=0.0, adjacency=adjacency)
            assert Fraction(found.lower) <= 3 * moves / Fraction(z) <= Fraction(found.upper)
            assert found.upper - found.lower <= 1e-15 * found.upper
    assert (
        fp.epsilon(fp.Laplace(noise_multiplier=0.5), delta=0.0, adjacency="zero_out").upper == 2.0
    )
    budget = fp.Budget(3.0, 0.0, adjacency="add_remove")
    assert budget.keeps([(fp.Laplace(noise_multiplier=1.0), 3)])
