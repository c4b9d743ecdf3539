"""Truncated cohorts whose other units send a vector aslant: laws of draws, and brute force."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.loss import CohortSum, MostOf, Side
from fedprivacy.loss.curves import cohort_sum
from fedprivacy.relations import Adjacency
from fedprivacy.sampling.aslant import DIRECTIONS, cohort_laws

Z = 0.8
LOSSES = np.array([-1.0, -0.2, 0.0, 0.1, 0.5, 1.5, 3.0])
SETTINGS = [(4, 2, 0.3), (5, 2, 0.7), (4, 1, 0.5), (3, 2, 1.0)]


def cohorts(units, largest, q):
    """Return {cohort: probability} of the algorithm as it is described, exactly."""
    law, q = {}, Fraction(q)
    for size in range(len(units) + 1):
        for drawn in itertools.combinations(units, size):
            chance = q**size * (1 - q) ** (len(units) - size)
            kept = list(itertools.combinations(drawn, min(size, largest)))
            for cohort in kept:
                law[cohort] = law.get(cohort, Fraction(0)) + chance / len(kept)
    return law


def sums(law, sends):
    """Return {sum of what a cohort sends: probability}."""
    found = {}
    for cohort, chance in law.items():
        centre = tuple(round(sum(sends[unit][k] for unit in cohort), 12) for k in (0, 1))
        found[centre] = found.get(centre, 0.0) + float(chance)
    return found


def neighbours(adjacency, n, largest, q, back, across):
    """Return the laws of the sum with unit 0 as it is, and without it or with other data."""
    sends = [(1.0, 0.0)] + [(-back, across)] * (n - 1)
    there = sums(cohorts(range(n), largest, q), sends)
    if adjacency == "add_remove":
        return there, sums(cohorts(range(1, n), largest, q), sends)
    sends[0] = (0.0, 0.0) if adjacency == "zero_out" else (-1.0, 0.0)
    return there, sums(cohorts(range(n), largest, q), sends)


def masses(law, edges):
    """Return the masses of the noisy sum in cells of the plane."""
    total = 0.0
    for centre, chance in law.items():
        one, two = (np.diff(ndtr(ends - c / Z)) for ends, c in zip(edges, centre, strict=True))
        total = total + chance * np.multiply.outer(one, two)
    return total.ravel()


def finer_edges(members, back, across):
    """Return the edges of a curve's cells, and two more in each cell but the outermost."""
    centres = cohort_sum._centres(Z, members, back, across)
    fine, found = cohort_sum._fine(centres), []
    for places in centres:
        edges = cohort_sum._edges(places, fine)
        inner = edges[1:-1]
        third = [inner[:-1] + k / 3 * np.diff(inner) for k in (1, 2)]
        found.append(np.unique(np.concatenate([edges, *third])))
    return found


def profiles(p, q):
    return np.array([np.maximum(p - math.exp(x) * q, 0.0).sum() for x in LOSSES])


def claimed(curve, side):
    tails = curve.tails(LOSSES, side)
    return np.exp(tails.p_above) - np.exp(LOSSES + tails.q_above)


@pytest.mark.fast_cells(12)
@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize(("n", "largest", "q"), SETTINGS)
@pytest.mark.parametrize(("back", "across"), [*DIRECTIONS, (0.5, 0.0)])
def test_cells_show_no_more_than_data_sets_of_a_tiny_population(
    n, largest, q, adjacency, back, across
):
    """Every draw written out, and every cell cut in nine: these show more, and less than all."""
    laws = cohort_laws(n - 1, q, largest, Adjacency(adjacency))
    curve = CohortSum(Z, *laws, back, across)
    edges = finer_edges((*laws[0], *laws[1]), back, across)
    p, r = (masses(law, edges) for law in neighbours(adjacency, n, largest, q, back, across))
    for one, real in ((curve, profiles(p, r)), (curve.swap(), profiles(r, p))):
        shown = claimed(one, Side.DOWN)
        assert (shown <= real).all()
        assert shown == pytest.approx(real, rel=0.01, abs=2e-4)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("n", "largest", "q"), [*SETTINGS, (5, 3, 0.05)])
def test_laws_are_those_of_all_draws(n, largest, q, adjacency):
    """The probabilities of the unit's part and of the number of the others that take part."""
    law = cohorts(range(n), largest, q)
    there, gone = cohort_laws(n - 1, q, largest, adjacency)
    exact = {}
    for cohort, chance in law.items():
        key = (int(0 in cohort), len(cohort) - (0 in cohort))
        exact[key] = exact.get(key, 0) + chance
    assert {(i, j): w for w, i, j in there} == {k: float(w) for k, w in exact.items() if w}
    assert math.fsum(w for w, _, _ in gone) == pytest.approx(1.0, abs=1e-15)
    if adjacency is Adjacency.ADD_REMOVE:
        exact = {}
        for cohort, chance in cohorts(range(1, n), largest, q).items():
            exact[0, len(cohort)] = exact.get((0, len(cohort)), 0) + chance
        assert {(i, j): w for w, i, j in gone} == {k: float(w) for k, w in exact.items() if w}


@pytest.mark.parametrize(
    ("adjacency", "size", "q", "least", "most"),
    [
        ("add_remove", 5, 0.01, 1.155, 4.56),
        ("add_remove", 5, 0.05, 4.649, 4.652),
        ("zero_out", 5, 0.05, 3.829, 3.837),
        ("replace_one", 5, 0.05, 4.649, 4.714),
        ("zero_out", 10, 0.01, 0.775, 1.565),
    ],
)
def test_frequent_truncation_is_shown(adjacency, size, q, least, most):
    """1,000 units, 100 rounds; others that send -C u show .846 of the first cell in brute force.

    Before, the ends were [.343, 4.553], [.346, 4.651], [.346, 6.925], [.426, 18.219] and
    [.627, 1.565].
    """
    scheme = fp.TruncatedPoisson(q, population=1000, largest=size)
    run = fp.Gaussian(noise_multiplier=1.0).sampled(scheme) * 100
    found = fp.epsilon(run, delta=1e-5, adjacency=adjacency)
    assert least <= found.lower <= found.upper <= most


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_no_lower_end_is_below_that_of_silent_others(adjacency):
    """Rounds of two kinds are answered as well."""
    step = fp.Gaussian(noise_multiplier=2.0)
    schemes = [fp.TruncatedPoisson(0.1, population=100, largest=size) for size in (5, 12)]
    run = step.sampled(schemes[0]) * 10 + step.sampled(schemes[1]) * 10
    found = fp.epsilon(run, delta=1e-5, adjacency=adjacency)
    curves = [step.sampled(one).privacy_loss(adjacency).witness.curve for one in schemes]
    assert all(isinstance(curve, MostOf) for curve in curves)
    silent = fp.Gaussian(noise_multiplier=2.0).sampled(fp.Poisson(schemes[0].surely)) * 20
    plain = fp.epsilon(silent, delta=1e-5, adjacency=adjacency)
    assert plain.lower < found.lower < found.upper


def test_rare_truncation_keeps_the_closed_form():
    """Also where the others are too many to list: 10^9 units, and cells that would be too many."""
    step = fp.Gaussian(noise_multiplier=1.0)
    for scheme in (
        fp.TruncatedPoisson(0.01, population=1000, largest=30),
        fp.TruncatedPoisson(0.5, population=10**9, largest=5 * 10**8),
        fp.TruncatedPoisson(0.5, population=10**5, largest=5 * 10**4),
    ):
        for adjacency in ("add_remove", "zero_out"):
            loss = step.sampled(scheme).privacy_loss(adjacency)
            assert not isinstance(loss.witness.curve, MostOf)


def test_a_cohort_that_is_always_full_is_a_fixed_size():
    """All are drawn and three of thirty stay: the data sets with -C u attain the pair."""
    step = fp.Gaussian(noise_multiplier=Z)
    cut = step.sampled(fp.TruncatedPoisson(1.0, population=30, largest=3)) * 5
    fixed = step.sampled(fp.FixedSize(3, population=30)) * 5
    ends, known = (fp.epsilon(run, delta=1e-5, adjacency="add_remove") for run in (cut, fixed))
    assert known.lower - 5e-3 <= ends.lower <= known.upper


def test_one_coordinate_has_no_direction_across():
    """With a mask of one coordinate the largest delta of a search by hand is .1701."""
    step = fp.SparsifiedPerturbation(
        noise_multiplier=0.5, clip_norm=1.0, kept=1, dimension=3, cohort=2, topped_up=True
    )
    scheme = fp.TruncatedPoisson(0.8, population=3, largest=2)
    found = fp.delta(step.sampled(scheme), epsilon=4.0, adjacency="replace_one")
    plane = fp.Gaussian(noise_multiplier=0.5).sampled(scheme)
    assert found.lower < 0.1702
    assert fp.delta(plane, epsilon=4.0, adjacency="replace_one").lower > 0.18
