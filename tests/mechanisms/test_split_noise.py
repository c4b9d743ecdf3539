"""Theorem J: every bin of rounds gets a share of the noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.mechanisms import split_noise
from fedprivacy.mechanisms.draws import epsilon_by_moments

SIDE = np.linspace(-8.0, 8.0, 81)
COARSE = np.linspace(-7.0, 7.0, 31)


def density(law, multiplier, side):
    """Masses of the cells of a grid for a mixture of unit Gaussians, means over the multiplier."""
    total = 0.0
    for weight, mean in law:
        one = weight
        for axis, at in enumerate(np.asarray(mean) / multiplier):
            each = np.exp(-0.5 * (side - at) ** 2) / math.sqrt(2.0 * math.pi) * (side[1] - side[0])
            one = one * each.reshape([-1 if i == axis else 1 for i in range(len(mean))])
        total = total + one
    return total


def profile(first, second, ratio):
    return float(np.maximum(first - ratio * second, 0.0).sum())


def drawn_sets(rounds, q, separation):
    """All sets of rounds of a unit with rests, and their probabilities."""
    for chosen in itertools.product((0, 1), repeat=rounds):
        weight, free = 1.0, 0
        for i, taken in enumerate(chosen):
            if i < free:
                weight *= not taken
            else:
                weight *= q if taken else 1.0 - q
                free = i + separation if taken else free
        if weight:
            yield weight, np.array(chosen, dtype=float)


def run_of(factor, scheme, rule, multiplier=1.5, rounds=3):
    run = fp.CorrelatedNoise(
        factor=factor, noise_multiplier=multiplier, rounds=rounds, participation=rule
    )
    return run.sampled(scheme)


def assert_dominated(present, absent, run, adjacency="zero_out", side=SIDE):
    first, second = (density(law, 1.5, side) for law in (present, absent))
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        most = fp.delta(run, epsilon=epsilon, adjacency=adjacency).upper
        ratio = math.exp(epsilon)
        assert profile(first, second, ratio) <= most + 1e-9
        assert profile(second, first, ratio) <= most + 1e-9


FACTORS = {
    "square root": fp.factors.SquareRootToeplitz(),
    "flat": fp.factors.Banded(3, weights=(1.0, 1.0, 1.0)),
    "matrix": fp.factors.Matrix(np.array([[1.0, 0, 0], [1.0, 1.0, 0], [0.2, 0.5, 2.0]])),
}


@pytest.mark.parametrize(
    ("factor", "q", "separation"),
    [
        *((FACTORS[name], q, 3) for name in FACTORS for q in (0.1, 0.5)),
        (FACTORS["square root"], 0.3, 2),
        (FACTORS["matrix"], 0.3, 2),
        (FACTORS["matrix"], 0.2, 1),
    ],
)
def test_rounds_with_rests_lose_no_more(factor, q, separation):
    matrix = factor.matrix(3)
    present = [(weight, matrix @ chosen) for weight, chosen in drawn_sets(3, q, separation)]
    run = run_of(factor, fp.Poisson(q), fp.MinimumSeparation(separation))
    assert_dominated(present, [(1.0, np.zeros(3))], run)


def test_epochs_lose_no_more():
    factor = fp.factors.SquareRootToeplitz()
    matrix = factor.matrix(4)
    present = [
        (0.25, matrix @ np.array([i == 0, i == 1, j == 0, j == 1], dtype=float))
        for i, j in itertools.product((0, 1), repeat=2)
    ]
    rule = fp.MinimumSeparation(1, at_most=2)
    run = run_of(factor, fp.RandomAllocation(2), rule, rounds=4)
    assert_dominated(present, [(1.0, np.zeros(4))], run, side=COARSE)


@pytest.mark.parametrize("factor", ["square root", "matrix"])
@pytest.mark.parametrize("other", [1.0, 0.0, -1.0])
@pytest.mark.parametrize(("adjacency", "instead"), [("zero_out", 0.0), ("replace_one", -1.0)])
def test_cohorts_of_a_fixed_size_lose_no_more(factor, other, adjacency, instead):
    """One of two clients is drawn in each of three rounds; groups of one round."""
    matrix, scheme = FACTORS[factor].matrix(3), fp.FixedSize(1, population=2)
    run = run_of(FACTORS[factor], scheme, fp.FixedEpochs(1))
    laws = [
        [
            (0.125, matrix @ np.where(np.array(drawn) == 0, own, other))
            for drawn in itertools.product((0, 1), repeat=3)
        ]
        for own in (1.0, instead)
    ]
    assert_dominated(*laws, run, adjacency)


@pytest.mark.parametrize("width", [1, 2, 5, 16])
def test_shares_of_a_row_add_up_to_one(width):
    rng = np.random.default_rng(width)
    matrix = np.tril(rng.exponential(size=(16, 16)) * (rng.random((16, 16)) < 0.7)) + np.eye(16)
    entries = split_noise._Entries(matrix, width)
    squares, sums = entries.squares(12)
    share = matrix[entries.rows, entries.columns] ** 2 / squares
    total = np.zeros((16, 16))
    total[entries.rows, entries.columns // width] = share
    assert np.allclose(total.sum(axis=1), 1.0, rtol=1e-12)
    # All rounds of a bin have its share.
    assert np.allclose(share, total[entries.rows, entries.columns // width], rtol=1e-12)
    assert np.allclose(np.bincount(entries.columns, squares), sums)


def test_one_round_a_bin_has_the_sum_of_the_column():
    matrix = fp.factors.Banded(4).magnitudes(40)
    assert split_noise.longest(matrix) == pytest.approx(matrix[:4, 0].sum(), rel=0.01)


def test_a_tiny_entry_is_not_lost():
    matrix = np.eye(3)
    matrix[2, 0] = 1e-200
    assert len(split_noise._Entries(matrix, 1).squares(3)[0]) == 4
    assert math.isfinite(split_noise.longest(matrix))


def test_wider_bins_are_better_where_rounds_are_rare():
    """Banded noise with rests: 9.86 where the unit's rounds are known."""
    run = run_of(
        fp.factors.Banded(5), fp.Poisson(0.01), fp.MinimumSeparation(20), multiplier=2, rounds=200
    )
    found = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    assert 0.5 < found.lower < found.upper < 1.4
    assert any("Theorem J" in one for one in found.theorems)
    counts = [
        parts[0][1]
        for parts in split_noise.bins_of_rounds(fp.factors.Banded(5).magnitudes(200), 0.01, 20, 2.0)
    ]
    assert min(counts) < 100 and max(counts) == 200


def test_the_kept_widths_come_in_order():
    every = split_noise.bins_of_rounds(fp.factors.Banded(5).magnitudes(60), 0.05, 20, 2.0)
    costs = [epsilon_by_moments(parts) for parts in every]
    assert len(every) >= 3 and costs[0] == min(costs)


def test_a_large_matrix_is_answered_by_other_theorems(monkeypatch):
    monkeypatch.setattr(split_noise, "MOST_ENTRIES", 10)
    factor, rule = fp.factors.SquareRootToeplitz(), fp.FixedEpochs(5)
    run = run_of(factor, fp.Poisson(0.1), rule, multiplier=4.0, rounds=20)
    found = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    assert not any("Theorem J" in one for one in found.theorems)
    twice = run_of(factor, fp.WithReplacement(10, population=100), rule, multiplier=4.0, rounds=20)
    with pytest.raises(fp.errors.UnsupportedCombination, match="at most 10 entries"):
        fp.epsilon(twice, delta=1e-5, adjacency="zero_out")


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_known_rounds_are_no_account_if_others_move(adjacency):
    """If a unit leaves a population with cohorts of a fixed size, another one takes its place."""
    scheme = fp.FixedSize(50, population=100)
    run = run_of(
        fp.factors.SquareRootToeplitz(), scheme, fp.FixedEpochs(1), multiplier=4, rounds=20
    )
    loss = run.privacy_loss(adjacency)
    known = any("joint convexity" in theorem for theorem in loss.theorems)
    assert known == (adjacency == "zero_out")
    length = split_noise.longest(fp.factors.SquareRootToeplitz().magnitudes(20))
    rounds = fp.Gaussian(noise_multiplier=4 / length).sampled(scheme) * 20
    if adjacency == "add_remove":
        assert loss.curve == rounds.privacy_loss(adjacency).curve


def test_a_server_sees_records_come_and_go():
    rule = fp.FixedEpochs(5, apart=True)
    run = fp.CorrelatedNoise(
        factor=fp.factors.SquareRootToeplitz(),
        noise_multiplier=4,
        rounds=20,
        participation=rule,
        unit="record",
    )
    ask = {"delta": 1e-5, "adjacency": "add_remove", "observer": "server"}
    known = fp.epsilon(run, **ask).upper
    assert fp.epsilon(run.sampled(fp.Poisson(0.1)), **ask).upper == pytest.approx(known)


def test_no_run_is_refused_because_its_matrix_is_large():
    """Unamplified, as the matrix of 5,000 rounds is not made."""
    factor = fp.factors.BufferedToeplitz(2)
    ask = {"delta": 1e-5, "adjacency": "replace_one"}
    run = fp.CorrelatedNoise(
        factor=factor, noise_multiplier=8, rounds=5000, participation=fp.FixedEpochs(100)
    )
    known = fp.epsilon(run, **ask).upper
    for scheme in (fp.Poisson(0.1), fp.FixedSize(10, population=100)):
        assert fp.epsilon(run.sampled(scheme), **ask).upper == pytest.approx(known)


def test_the_matrix_of_a_group_decides_whether_it_is_large(monkeypatch):
    monkeypatch.setattr(split_noise, "MOST_ENTRIES", 100)
    factor, rule = fp.factors.SquareRootToeplitz(), fp.FixedEpochs(10)
    assert np.count_nonzero(factor.magnitudes(40)) > 100
    run = run_of(factor, fp.Poisson(0.1), rule, multiplier=4, rounds=40)
    found = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    assert any("Theorem J" in theorem for theorem in found.theorems)


@pytest.mark.parametrize("scheme", [fp.WithReplacement(2, population=10), fp.Poisson(0.1)])
@pytest.mark.parametrize("factor", [fp.factors.SquareRootToeplitz(), fp.factors.Banded(1)])
def test_what_is_public_and_assumed_is_that_of_the_run(scheme, factor):
    run = run_of(factor, scheme, fp.FixedEpochs(1), multiplier=2.0)
    loss = run.privacy_loss("zero_out")
    public = dict(loss.public)
    assert public["noise multiplier"] == ("2",)
    assert {"factor", "rounds", "participation"} <= public.keys()
    stated = " ".join(loss.assumptions)
    for part in ("memory of the noise is kept secret", "no unit takes part more often"):
        assert part in stated


def test_small_entries_are_proved_too():
    from fedprivacy import check_certificate

    matrix = np.eye(4)
    matrix[2, 0] = 1e-170
    scheme = fp.FixedSize(2, population=10)
    run = run_of(fp.factors.Matrix(matrix), scheme, fp.FixedEpochs(1), multiplier=2.0, rounds=4)
    document = fp.epsilon(run, delta=1e-5, adjacency="zero_out").certificate()
    assert check_certificate.judged(document)[0] == {"upper": "proved", "lower": "proved"}
