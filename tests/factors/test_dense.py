"""Tests of ``fedprivacy.factors.dense``."""

import math

import numpy as np

from fedprivacy import factors
from tests.factors.test_participation import patterns
from tests.mechanisms.test_correlated import lower_triangular

RNG = np.random.default_rng(21)


def test_vectors_move_no_more_than_certified():
    """Unit vectors in 5 dimensions, alternately turned to the worst for each other."""
    matrix = lower_triangular(9, signs=True)
    _, upper = factors.Matrix(matrix).sensitivity(9, factors.MinimumSeparation(2))
    gram = matrix.T @ matrix
    best = 0.0
    for chosen in patterns(9, factors.MinimumSeparation(2)):
        part = gram[np.ix_(chosen, chosen)]
        vectors = RNG.normal(size=(len(chosen), 5))
        for _ in range(30):
            for i in range(len(chosen)):
                pull = part[i] @ vectors - part[i, i] * vectors[i]
                size = np.linalg.norm(pull)
                vectors[i] = pull / size if size else vectors[i] / np.linalg.norm(vectors[i])
        best = max(best, math.sqrt(np.einsum("ij,id,jd->", part, vectors, vectors)))
    assert 0.5 * upper < best <= upper
