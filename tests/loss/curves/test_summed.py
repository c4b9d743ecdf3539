"""What the sum over an epoch's rounds shows of a unit that is in some of them."""

import itertools

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.loss import Allocated, Gdp, Side, SummedRounds
from fedprivacy.loss.curves import summed

EPSILONS = np.array([-1.5, -0.2, 0.0, 0.4, 1.5, 3.0])


def profile(curve, side=Side.DOWN):
    tails = curve.tails(EPSILONS, side)
    return np.exp(tails.p_above) - np.exp(EPSILONS + tails.q_above)


def exact(mu, hidden, rounds, take):
    """Return both orientations' deltas of the whole epoch, by a sum over a grid of outcomes."""
    line, step = np.linspace(-8.0, 8.0 + mu, 121, retstep=True)
    axes = np.meshgrid(*[line] * rounds, indexing="ij")
    base = np.exp(-0.5 * sum(axis**2 for axis in axes)) * (step / np.sqrt(2 * np.pi)) ** rounds
    sets = list(itertools.combinations(range(rounds), take))

    def law(mean):
        ratios = (
            np.exp(sum(mean * axes[i] - 0.5 * mean * mean for i in chosen)) for chosen in sets
        )
        return base * sum(ratios) / len(sets)

    p, q = law(mu), law(hidden)
    return tuple(
        np.array([np.maximum(a - np.exp(e) * b, 0.0).sum() for e in EPSILONS])
        for a, b in ((p, q), (q, p))
    )


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.parametrize(("mu", "rounds", "take"), [(0.7, 3, 2), (1.5, 3, 1), (2.5, 2, 1)])
def test_the_sum_shows_little_less_than_the_epoch(mu, rounds, take, opposite):
    hidden = -mu if opposite else 0.0
    curve = SummedRounds(mu, hidden, rounds, take)
    for turned, truth in zip((curve, curve.swap()), exact(mu, hidden, rounds, take), strict=True):
        shown = profile(turned)
        assert (shown <= truth + 2e-4).all()
        # Of few rounds with little noise a sum forgets much: where one stands out.
        assert (shown >= (0.9 if mu < 1.0 else 0.45) * truth - 5e-3).all()


@pytest.mark.parametrize("chance", [0.05, 1 / 7, 0.9, 1.0])
def test_every_chance_is_valid_from_below(chance):
    """One round of seven: the law of the whole epoch is known from above."""
    for turned in (False, True):
        curve = SummedRounds(1.2, 0.0, 7, 1, chance=chance, swapped=turned)
        above = profile(Allocated(1.2, 7, swapped=turned), Side.UP)
        assert (profile(curve) <= above).all()


def test_a_unit_in_every_round_is_a_gaussian():
    curve, known = SummedRounds(0.5, 0.0, 16, 16), Gdp(2.0)
    assert profile(curve) == pytest.approx(profile(known), abs=3e-3)
    assert (profile(curve) <= profile(known)).all()


def test_wider_cells_show_less_and_cost_less():
    fine = SummedRounds(1.0, 0.0, 100, 10)
    rough = SummedRounds(1.0, 0.0, 100, 10, rough=True)
    assert len(rough.laws[0].mass) < 0.5 * len(fine.laws[0].mass)
    assert (profile(rough) <= profile(fine) + 1e-3).all()


def test_the_masses_are_whole():
    for law in SummedRounds(1.0, -1.0, 1000, 30).laws:
        assert law.mass.sum() == pytest.approx(1.0, abs=1e-9)
        assert (law.error <= 1e-6 * law.mass + 1e-300).all()


@pytest.mark.parametrize(
    "values",
    [(0.0, 0.0, 3, 1), (31.0, 0.0, 3, 1), (1.0, 0.5, 3, 1), (1.0, 0.0, 3, 4), (1.0, 0.0, 0, 0)],
)
def test_values_out_of_range(values):
    with pytest.raises(ValueError, match="SummedRounds"):
        SummedRounds(*values)
    with pytest.raises(ValueError, match="chance"):
        SummedRounds(1.0, 0.0, 3, 1, chance=0.0)


def test_extreme_means_keep_the_lower_end_below():
    for z in (0.04, 50.0, 1e6):
        run = fp.Gaussian(noise_multiplier=z).sampled(fp.RandomAllocation(12, take=5))
        bound = fp.epsilon(run, delta=1e-6, adjacency="zero_out")
        assert 0.0 <= bound.lower <= bound.upper


@pytest.mark.parametrize(("rounds", "take"), [(1 << 12, 1), (4095, 2047), (7, 3), (1, 1)])
def test_all_that_is_dropped_counts_as_missing(monkeypatch, rounds, take):
    """With ends of a millionth the sums of the masses show what all steps dropped."""
    monkeypatch.setattr(summed, "_DROPPED", 1e-6)
    curve = SummedRounds(0.5, -0.5, rounds, take, chance=0.5 * take / rounds, rough=True)
    for law in summed._laws.__wrapped__(curve):
        assert 1.0 - law.mass.sum() <= curve.missing


def test_a_close_choice_of_the_chance_is_made_in_the_final_cells():
    """Wide cells would choose a quarter of the chance here, which shows less."""
    found = summed._chosen(SummedRounds(0.17764123027140974, 0.0, 3065, 1))
    assert found.chance == 1.0 / 3065
    assert not found.rough
