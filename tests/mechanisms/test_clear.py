"""Tests of ``fedprivacy.mechanisms.clear``."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.evidence.noiseless import least_chance, noiseless, without_noise
from fedprivacy.mechanisms.clear import WithoutNoise


def test_the_chance_to_be_seen_is_no_more_than_that_of_taking_part():
    """Drawn many times, units take part at least as often as the evidence says."""
    clear, rng = WithoutNoise(), np.random.default_rng(7)
    schemes = (
        fp.Poisson(0.03),
        fp.FixedSize(3, population=40),
        fp.WithReplacement(4, population=40),
        fp.TruncatedPoisson(0.1, population=40, largest=3),
    )
    for scheme in schemes:
        chance = least_chance(clear.sampled(scheme))
        known = noiseless([(chance, 5, True)])
        seen = sum(any(0 in scheme.draw(40, rng) for _ in range(5)) for _ in range(4000))
        # Five standard deviations: 1 in 3 million.
        slack = 5 * math.sqrt(known.chance / 4000)
        assert chance > 0.0 and abs(seen / 4000 - known.chance) <= slack
    partial = clear.sampled(fp.Shuffled(4, partial=True))
    assert least_chance(partial) == 0.0
    assert least_chance(clear.sampled(fp.Shuffled(3, population=40))) <= 13 / 40


def test_delta_is_never_below_the_chance_to_be_in_a_round_without_noise():
    """What the evidence says of the lower end is what tiny noise comes to."""
    one = fp.Gaussian(noise_multiplier=0.02).sampled(fp.Poisson(0.01)) * 5
    lower = fp.delta(one, epsilon=50.0, adjacency="add_remove").lower
    chance = noiseless([(least_chance(WithoutNoise().sampled(fp.Poisson(0.01))), 5, True)]).chance
    assert lower == pytest.approx(chance, rel=1e-6) and chance <= 1 - 0.99**5


def test_what_ran_without_noise_is_described_as_it_was_drawn():
    one = fp.Gaussian(noise_multiplier=1.0)
    rate, clear = fp.Poisson(0.1), WithoutNoise()
    assert without_noise(one.sampled(rate)) == clear.sampled(rate)
    assert without_noise((one + one * 2).sampled(rate)) == clear.sampled(rate)
    assert without_noise(one.sampled(rate) * 2) == clear.sampled(rate) * 2
    assert without_noise(fp.Parallel((one.sampled(rate), one))) == fp.Parallel(
        (clear.sampled(rate), clear)
    )
    cohort = fp.FixedSize(2, population=10)
    assert without_noise(one.in_cohort(cohort)) == clear.in_cohort(cohort)
    client = WithoutNoise(unit="client")
    assert without_noise(one.sampled(rate, held=3)) == client.sampled(rate)
