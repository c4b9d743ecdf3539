"""Tests of ``fedprivacy.audit.guessing``."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import betainc

from fedprivacy.audit.guessing import MUS, _forced, at_least, at_most, p_value, refuted, refuted_mu

DELTA = 1e-5


# ---- theorem A1


def most_likely_guesses(m, r, v, epsilon, delta):
    """Return the largest P[right >= v] of any (epsilon, delta)-private mechanism, by its LP."""
    coins = list(itertools.product((0, 1), repeat=m))
    answers = [t for t in itertools.product((-1, 0, 1), repeat=m) if sum(map(abs, t)) == r]
    pairs = [(s, i) for s in range(len(coins)) for i in range(m)]
    cells = len(coins) * len(answers)

    def cell(s, t):
        return s * len(answers) + t

    def slack(p, t):
        return cells + p * len(answers) + t

    size = cells + len(pairs) * len(answers)
    gain = np.zeros(size)
    for (s, coin), (t, answer) in itertools.product(enumerate(coins), enumerate(answers)):
        right = sum(g == (1 if c else -1) for g, c in zip(answer, coin, strict=True))
        gain[cell(s, t)] = -(right >= v) / len(coins)
    rows, limits = [], []
    for p, (s, i) in enumerate(pairs):
        other = coins.index(tuple(c ^ (k == i) for k, c in enumerate(coins[s])))
        for t in range(len(answers)):
            row = np.zeros(size)
            row[cell(s, t)], row[cell(other, t)] = 1.0, -math.exp(epsilon)
            row[slack(p, t)] = -1.0
            rows.append(row)
            limits.append(0.0)
        row = np.zeros(size)
        row[[slack(p, t) for t in range(len(answers))]] = 1.0
        rows.append(row)
        limits.append(delta)
    whole = np.zeros((len(coins), size))
    for s in range(len(coins)):
        whole[s, cell(s, 0) : cell(s, 0) + len(answers)] = 1.0
    found = linprog(gain, np.array(rows), limits, whole, np.ones(len(coins)), method="highs")
    return -found.fun


@pytest.mark.parametrize("m, r", [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)])
@pytest.mark.parametrize("epsilon, delta", [(0.0, 0.1), (0.7, 0.0), (0.7, 0.05), (2.0, 0.01)])
def test_the_theorem_is_what_the_best_private_mechanism_reaches(m, r, epsilon, delta):
    for v in range(1, r + 1):
        bound = float(p_value(v, r, m, np.array([epsilon]), delta)[0])
        best = most_likely_guesses(m, r, v, epsilon, delta)
        assert best <= bound + 1e-9  # what the solver's own answer is off by
        assert bound <= best + 3e-6


def test_everything_told_with_probability_delta():
    for m in (1, 3, 10, 40):
        exact = 0.01 + 0.99 * 2.0**-m
        assert exact <= p_value(m, m, m, np.array([0.0]), 0.01)[0] <= exact * (1 + 2e-6)


def test_the_delta_term_stays_where_masses_underflow():
    """With 2,000 right guesses of 2,000, P[W >= v] is 0 in double precision and the term is 0.5."""
    assert p_value(2000, 2000, 10**6, np.zeros(1), 1e-3)[0] >= 0.5
    assert refuted(2000, 2000, 10**6, 1e-3, 0.05) == 0.0
    for v, r in itertools.product((1, 30, 38, 60), (60, 2000, 10**6)):
        for delta in (0.0, 1e-300, 1e-5, 1.0):
            found = p_value(v, r, 10**6, np.linspace(0.0, 40.0, 9), delta)
            assert ((found >= 0.0) & (found <= 1.0)).all()


def test_more_privacy_is_refuted_by_fewer_right_guesses():
    found = [refuted(v, 100, 1000, DELTA, 0.05) for v in range(101)]
    assert found[:50] == [0.0] * 50 and found == sorted(found) and found[100] > 3.4
    here = np.array([refuted(90, 100, 1000, DELTA, 0.05)])
    assert p_value(90, 100, 1000, here, DELTA) <= 0.05
    assert p_value(90, 100, 1000, here + 0.005, DELTA) > 0.05


def test_rates_have_clopper_pearson_ends():
    assert at_most(0, 100, 0.05) == pytest.approx(1.0 - 0.05**0.01, rel=2e-6)
    assert at_least(100, 100, 0.05) == pytest.approx(0.05**0.01, rel=2e-6)
    assert (at_most(100, 100, 0.05), at_least(0, 100, 0.05)) == (1.0, 0.0)
    for k in (1, 17, 99):
        assert betainc(k, 101 - k, at_least(k, 100, 0.05)) <= 0.05
        assert 1.0 - betainc(k + 1, 100 - k, at_most(k, 100, 0.05)) <= 0.05


def test_more_right_guesses_refute_more_curves():
    found = [refuted_mu(v, 100, 1000, 0.05) for v in range(40, 101, 10)]
    assert found[0] == 0.0 and found == sorted(found) and found[-1] > 1.0
    place = int(np.searchsorted(MUS, found[-2]))
    around = _forced(90, 100, 1000, 0.05, MUS[place : place + 2])
    assert around[0] > 1.0 + 1e-6 >= around[1]
