"""Several rounds of an epoch for every unit: rows, draws, composition, training."""

import collections
import itertools
import math

import numpy as np
import pytest
from scipy.special import chdtri, ndtr

import fedprivacy as fp
from fedprivacy.loss import (
    Allocated,
    Composed,
    Exchanged,
    Gdp,
    LeastOf,
    Sampled,
    SummedRounds,
    compose,
)

Z = 0.9
EPSILONS = np.array([-2.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0])
ENDS = np.concatenate([[-np.inf], np.linspace(-7.0, 7.0, 57), [np.inf]])


def epoch(rounds, take, inner=None):
    inner = inner or fp.Gaussian(noise_multiplier=Z)
    return inner.sampled(fp.RandomAllocation(rounds, take=take))


def masses(sends, rounds=3, take=2):
    """Return the masses, on a grid of cells, of all rounds' noisy sums of units on a line."""
    sets = list(itertools.combinations(range(rounds), take))
    total = np.zeros((len(ENDS) - 1,) * rounds)
    for chosen in itertools.product(sets, repeat=len(sends)):
        law = np.ones(())
        for k in range(rounds):
            centre = sum(s for s, each in zip(sends, chosen, strict=True) if k in each)
            law = np.multiply.outer(law, np.diff(ndtr((ENDS - centre) / Z)))
        total += law / len(sets) ** len(sends)
    return total.ravel()


def claim(curve):
    tails = curve.tails(EPSILONS)
    return np.exp(tails.p_above) - np.exp(EPSILONS + tails.q_above)


def real(p, q):
    return np.maximum(p - np.exp(EPSILONS)[:, None] * q, 0.0).sum(axis=1)


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize("others", [(), (1.0,), (-1.0, 0.4)], ids=repr)
def test_no_data_sets_lose_more_than_the_pair(adjacency, others):
    """Containment: merged cells lose less."""
    loss = epoch(3, 2).privacy_loss(adjacency)
    other = {"add_remove": others, "zero_out": (0.0, *others), "replace_one": (-1.0, *others)}
    p, q = masses((1.0, *others)), masses(other[adjacency])
    assert (real(p, q) <= claim(loss.curve) + 1e-12).all()
    assert (real(q, p) <= claim(loss.curve.swap()) + 1e-12).all()


def test_the_curves_of_the_rows():
    zero_out = epoch(7, 3).privacy_loss("zero_out")
    assert zero_out.curve == compose([(Allocated(1 / Z, 2), 2), (Allocated(1 / Z, 3), 1)])
    assert zero_out.witness.curve.curves[0] == SummedRounds(1 / Z, 0.0, 7, 3)
    replaced = epoch(7, 3).privacy_loss("replace_one")
    blocks = [(Allocated(1 / Z, 2, replaced=True), 2), (Allocated(1 / Z, 3, replaced=True), 1)]
    own = compose([(Exchanged(1 / Z, 2), 2), (Exchanged(1 / Z, 3), 1)])
    assert replaced.curve == LeastOf((compose(blocks), own, compose([(Gdp(2 / Z), 3)])))
    assert replaced.witness.curve.curves[0] == SummedRounds(1 / Z, -1 / Z, 7, 3)
    # In blocks of a single round, the round of the unit is known.
    assert epoch(5, 4).privacy_loss("zero_out").curve == compose(
        [(Gdp(1 / Z), 3), (Allocated(1 / Z, 2), 1)]
    )
    for adjacency, mu in (("zero_out", 1 / Z), ("replace_one", 2 / Z)):
        known = compose([(Gdp(mu), 3)])
        assert epoch(7, 3).privacy_loss(adjacency, "server").curve == known
        assert epoch(3, 3).privacy_loss(adjacency).curve == known
        assert epoch(3, 3).privacy_loss(adjacency).witness.curve == known


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize(("rounds", "take", "z"), [(100, 10, 3.0), (60, 25, 2.0)])
def test_both_ends_are_near(rounds, take, z, adjacency):
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.RandomAllocation(rounds, take=take))
    bound = fp.epsilon(run, delta=1e-6, adjacency=adjacency)
    known = fp.epsilon(fp.Gaussian(noise_multiplier=z) * take, delta=1e-6, adjacency=adjacency)
    most = 1.05 if adjacency == "zero_out" else 1.2
    assert 0.0 < bound.lower <= bound.upper <= most * bound.lower
    assert bound.upper < known.lower


def test_more_rounds_of_a_unit_lose_more():
    bounds = [fp.epsilon(epoch(30, take), delta=1e-5, adjacency="zero_out") for take in (1, 3, 9)]
    assert bounds[0].upper < bounds[1].lower < bounds[1].upper < bounds[2].lower


def test_other_mechanisms_are_not_amplified():
    inner = fp.Laplace(noise_multiplier=2.0)
    for adjacency in fp.Adjacency:
        loss = epoch(8, 4, inner).privacy_loss(adjacency)
        assert loss.curve == compose([(inner.privacy_loss(adjacency).curve, 4)])
        seen = inner.privacy_loss("zero_out").witness.curve
        assert loss.witness.curve == Sampled(seen, 0.5)


def test_a_client_with_the_unit_runs_as_often_as_it_is_drawn():
    inner = fp.Gaussian(noise_multiplier=Z, unit="record")
    run = inner.in_cohort(fp.RandomAllocation(9, take=4))
    assert run.privacy_loss("zero_out").curve == compose([(Gdp(1 / Z), 4)])


def test_very_long_epochs_are_answered():
    bound = fp.epsilon(epoch(1 << 18, 2000), delta=1e-6, adjacency="zero_out", tolerance=0.1)
    assert 0.0 < bound.lower < bound.upper
    assert not isinstance(epoch(1 << 18, 2000).privacy_loss("zero_out").witness.curve, Composed)


def test_sets_of_rounds_are_uniform():
    """Chi-square over the pairs of sets of 2 units, 18,000 epochs: one seed in a million fails."""
    scheme, generator = fp.RandomAllocation(4, take=2), np.random.default_rng(5)
    sets = list(itertools.combinations(range(4), 2))
    seen = collections.Counter()
    for _ in range(18_000):
        rounds = scheme.epoch(2, generator)
        seen[tuple(tuple(k for k in range(4) if unit in rounds[k]) for unit in range(2))] += 1
    counts = np.array([seen[pair] for pair in itertools.product(sets, repeat=2)])
    assert counts.sum() == 18_000
    assert float(((counts - 500.0) ** 2 / 500.0).sum()) < chdtri(35, 1e-6)


def test_every_unit_is_in_its_rounds():
    rounds = fp.RandomAllocation(50, take=20).epoch(300, np.random.default_rng(0))
    assert len(rounds) == 50
    assert [list(part) for part in rounds] == [sorted(set(part)) for part in rounds]
    assert (np.bincount(np.concatenate(rounds), minlength=300) == 20).all()


@pytest.mark.parametrize(("take", "rule"), [(0, "at least 1"), (5, "at most"), (1.5, "integer")])
def test_bad_numbers_of_rounds(take, rule):
    with pytest.raises(fp.ParameterError, match=rf"take must .*{rule}"):
        fp.RandomAllocation(4, take=take)


def test_noise_from_a_budget():
    found = fp.calibrate(
        lambda z: epoch(100, 10, fp.Gaussian(noise_multiplier=z)) * 3,
        epsilon=2.0,
        delta=1e-5,
        adjacency="zero_out",
    )
    assert found.bound.upper <= 2.0
    assert found.bound.lower > 1.9


def best_test(epsilon, mu, rounds, width):
    """Return at least delta of one epoch under replace_one: of the most powerful test.

    The likelihood ratio of the mean of e^{mu x_k} and that of e^{-mu x_k} exceeds a if the sum of
    e^{mu x_k} - a e^{-mu x_k} is above 0: a sum over rounds, here in cells, each at its lower edge.
    """
    a, size = math.exp(epsilon), 1 << 21
    last = 5.0 * rounds * a
    edges = width * np.arange(-round(last / width), round(last / width) + 1)
    points = np.log((edges + np.sqrt(edges**2 + 4.0 * a)) / 2.0) / mu
    points[0], points[-1] = -np.inf, np.inf
    at = np.round(edges[:-1] / width).astype(int) % size

    def transform(mean):
        law = np.zeros(size)
        np.add.at(law, at, np.diff(ndtr(points - mean)))
        return np.fft.rfft(law)

    others = transform(0.0) ** (rounds - 1)
    above = [np.fft.irfft(others * transform(m), size)[1 : size // 2].sum() for m in (mu, -mu)]
    return above[0] - a * above[1]


def test_the_upper_end_of_a_replaced_unit_in_one_epoch_is_attained():
    """Within .3 %, while the lower end, of another sum of cells, is 2.5 % below."""
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.RandomAllocation(100))
    found = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    assert best_test(found.upper / 1.003, 1.0, 100, 0.05) > 1e-5
    assert best_test(found.upper * 1.003, 1.0, 100, 0.05) < 1e-5
    assert found.lower < found.upper / 1.02
