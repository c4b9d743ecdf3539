"""Tests of ``fedprivacy.sampling.binomial``."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import fedprivacy as fp
from fedprivacy.loss import Side
from fedprivacy.sampling import binomial
from fedprivacy.sampling.binomial import hypergeometric_law, log_mass, log_tail
from tests.sampling.test_held import hypergeometric, largest, merged
from tests.sampling.test_replacement import exact

HYPERGEOMETRIC = [(3, 2, 10), (5, 7, 9), (1, 1, 2), (10, 10, 10), (4, 10, 10), (50, 400, 1000)]


@pytest.mark.parametrize("drawn, marked, population", [*HYPERGEOMETRIC, (300, 500, 4000)])
def test_the_law_of_marked_units_is_right_and_on_its_side(drawn, marked, population):
    weights = hypergeometric(drawn, marked, population)
    up, down = (hypergeometric_law(drawn, marked, population, side) for side in Side)
    up, down = (up, down) if up[-1][1] >= down[-1][1] else (down, up)
    for found in (up, down):
        for w, s in found:
            assert w == pytest.approx(float(weights[s]), rel=1e-15) or w == 1e-30
    tail = Fraction(0)
    for s in reversed(weights):
        tail += weights[s]
        above, below = (math.fsum(w for w, t in one if t >= s) for one in (up, down))
        assert above >= float(tail) * (1 - 1e-14) and below <= float(tail) * (1 + 1e-14)


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("k, q, z", [(1, 0.3, 1.0), (2, 0.3, 1.0), (3, 0.1, 0.6), (3, 0.9, 2.0)])
def test_no_client_of_up_to_k_records_loses_more_under_poisson(k, q, z):
    """All records on one axis, of these sizes; fewer than k among them as zeros."""
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q), held=k)
    sends = list(itertools.combinations_with_replacement((-1.0, -0.5, 0.0, 1.0), k))
    laws = {mine: merged(drawn_apart(mine, q, z)) for mine in sends}
    nothing = laws[(0.0,) * k]
    found = {"replace_one": list(itertools.permutations(laws.values(), 2))}
    found["zero_out"] = [(law, nothing) for law in laws.values()]
    found["zero_out"] += [(nothing, law) for law in laws.values()]
    for adjacency, pairs in found.items():
        for epsilon in (0.0, 0.5, 2.0):
            bound = fp.delta(run, epsilon=epsilon, adjacency=adjacency)
            worst = max(largest(p, q, epsilon) for p, q in pairs)
            assert worst <= bound.upper + 2e-7
            assert bound.lower <= worst + 2e-7


def drawn_apart(mine, q, z):
    """The sum's law when each record is drawn with probability q, as a mixture."""
    for drawn in itertools.product((0, 1), repeat=len(mine)):
        weight = math.prod(q if one else 1 - q for one in drawn)
        yield weight, sum(x for x, one in zip(mine, drawn, strict=True) if one) / z


Y = np.linspace(-16.0, 16.0, 16001)
UP, DOWN = Side.UP, Side.DOWN
LAWS = [(1, 0.3), (5, 0.04), (10, 0.01), (100, 1e-4), (10**4, 1e-4), (10**5, 3e-5), (10**6, 2e-6)]
LAWS += [(40, 0.9), (700, 0.5), (10**9, 1e-9), (12, 1e-300)]


@pytest.mark.parametrize("draws, p", LAWS)
def test_every_probability_is_the_nearest_number_but_for_the_ends(draws, p):
    weights = exact(draws, p)
    for side, end in ((UP, draws), (DOWN, 0)):
        law = dict((s, w) for w, s in binomial.law(draws, p, side))
        assert sorted(law) == [s for _, s in binomial.law(draws, p, side)]
        if end not in weights or weights[end] < 1e-31:
            assert law.pop(end, 1e-30) == 1e-30
        for s, w in law.items():
            assert abs(w - weights[s]) <= mpf(2) ** -53 * weights[s] * mpf("1.00001")
        assert sum(w for s, w in weights.items() if s not in law) <= mpf("1e-30")


@pytest.mark.parametrize("draws, p", [*LAWS, (10**5, 0.2), (10**7, 1e-3), (10**9, 0.5)])
def test_laws_lie_on_their_side_in_the_usual_order(draws, p):
    up, down = (binomial.law(draws, p, side) for side in (UP, DOWN))
    assert len(up) <= 1100 and len(down) <= 1100
    for law in (up, down):
        assert math.fsum(w for w, _ in law) == pytest.approx(1.0, abs=1e-15)
    if len(up) > 1 and draws <= 10**6 and p != 0.2:
        weights = exact(draws, p)
        for s in range(1, max(weights) + 1):
            tail = sum(w for t, w in weights.items() if t >= s)
            above, below = (math.fsum(w for w, t in law if t >= s) for law in (up, down))
            assert above >= tail * (1 - 1e-15) and below <= tail * (1 + 1e-15)
    mean, std = draws * p, math.sqrt(draws * p * (1 - p))
    places = [sum(w * s for w, s in law if w > 1e-29) for law in (down, up)]
    assert places[0] <= mean * (1 + 1e-12) and places[1] + 1e-29 * draws >= mean * (1 - 1e-12)
    assert places[1] - places[0] <= 2e-12 * mean + 25.0 * std * (len(up) <= 2) + 0.06 * std


def test_a_law_with_nothing_left_out_is_the_same_on_both_sides():
    assert binomial.law(10, 0.01, UP) == binomial.law(10, 0.01, DOWN)
    assert binomial.law(7, 1.0, UP) == ((1.0, 7),)


Z = 0.8


@pytest.mark.fast_cells(8)
@pytest.mark.parametrize("seed", range(60))
def test_binomial_tails_contain_the_truth(seed):
    generator = np.random.default_rng(seed)
    trials = int(generator.choice([1, 2, 5, 40, 700]))
    successes = int(generator.integers(1, trials + 1))
    q = [generator.uniform(), 10 ** generator.uniform(-9, 0), 1 - 10 ** generator.uniform(-9, 0)]
    with mpmath.workdps(400):
        for chance in map(mpmath.mpf, q):
            masses = [
                mpmath.binomial(trials, k) * chance**k * (1 - chance) ** (trials - k)
                for k in range(successes, trials + 1)
            ]
            for found, truth in (
                (log_tail(trials, float(chance), successes), mpmath.fsum(masses)),
                (log_mass(trials, float(chance), successes), masses[0]),
            ):
                assert found[0] <= mpmath.log(truth) <= found[1]
                assert found[1] - found[0] < 1e-8
