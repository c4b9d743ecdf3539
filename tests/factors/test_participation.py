"""Tests of ``fedprivacy.factors.participation``."""

import itertools

import numpy as np
import pytest

from fedprivacy import factors
from tests.mechanisms.test_correlated import factors_of

RNG = np.random.default_rng(21)


def patterns(rounds, participation):
    gap, most = participation.gap(rounds), participation.most(rounds)
    for size in range(1, most + 1):
        for found in itertools.combinations(range(rounds), size):
            steps = [b - a for a, b in itertools.pairwise(found)]
            exact = participation.together and any(step % gap for step in steps)
            if all(step >= gap for step in steps) and not exact:
                yield list(found)


def truth(matrix, participation):
    """Return the largest |C s| over all patterns and signs: vectors on one line."""
    best = 0.0
    for chosen in patterns(matrix.shape[1], participation):
        part = matrix[:, chosen]
        every = itertools.product([1.0, -1.0], repeat=len(chosen) - 1)
        signs = [(1.0, *rest) for rest in every] if (part < 0).any() else [(1.0,) * len(chosen)]
        best = max(best, max(float(np.linalg.norm(part @ np.array(s))) for s in signs))
    return best


PARTICIPATIONS = [
    factors.SingleParticipation(),
    factors.FixedEpochs(3, 2),
    factors.FixedEpochs(4),
    factors.MinimumSeparation(3, 2),
    factors.MinimumSeparation(4),
    factors.MinimumSeparation(1, 2),
]


@pytest.mark.parametrize("participation", PARTICIPATIONS, ids=str)
@pytest.mark.parametrize("rounds", [1, 2, 7, 11])
def test_sensitivities_hold_the_worst_of_all_patterns(participation, rounds):
    for factor in factors_of(rounds, participation.gap(rounds)):
        lower, upper = factor.sensitivity(rounds, participation)
        worst = truth(factor.matrix(rounds), participation)
        assert lower <= worst * (1 + 1e-15), factor
        assert upper >= worst * (1 - 1e-15), factor
        decreasing = not isinstance(factor, factors.Matrix | factors.Tree | factors.Restarted)
        signed = getattr(factor, "weights", None) is not None and participation.gap(rounds) < 3
        if decreasing and not signed:
            assert upper / lower < 1 + 1e-12, factor


@pytest.mark.slow
def test_sensitivities_of_fourteen_rounds():
    for participation in (factors.MinimumSeparation(2), factors.MinimumSeparation(3, 3)):
        for factor in factors_of(14, participation.separation):
            lower, upper = factor.sensitivity(14, participation)
            worst = truth(factor.matrix(14), participation)
            assert lower <= worst * (1 + 1e-15) <= upper * (1 + 2e-15), factor
