"""Tests of ``fedprivacy.mechanisms.integers``."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import fedprivacy as fp
from fedprivacy.mechanisms import integer_laws as laws
from fedprivacy.mechanisms import integers
from tests.mechanisms.test_integer_laws import gaussian_law, profile, skellam_law


@pytest.mark.parametrize("std", [0.125, 0.7, 3.5])
@pytest.mark.parametrize(
    ("table", "law"),
    [(integers.gaussian_table, gaussian_law), (integers.skellam_table, skellam_law)],
)
def test_thresholds_are_the_law_to_sixty_digits(std, table, law):
    exact = Fraction(std) ** 2
    found = table(exact)
    with mp.workdps(110):
        variance = mp.mpf(exact.numerator) / exact.denominator
        masses = law(variance, found.reach + 20)
        total, running = mp.fsum(masses.values()), mp.mpf(0)
        for k in range(-found.reach - 20, found.reach):
            running += masses[k]
            if k >= -found.reach:
                threshold = mp.mpf(found.thresholds[k + found.reach]) / 2**256
                assert abs(running / total - threshold) < mp.mpf(2) ** -240
        beyond = masses[found.reach + 1] / total
        assert beyond < mp.mpf(2) ** -269


def test_bits_beyond_the_first_64_decide_where_those_do_not():
    table = integers.gaussian_table(Fraction(9))
    at = table.reach + 1
    word = int(table.tops[at])
    rest = table.thresholds[at] & ((1 << 192) - 1)
    for add, place in ((-1, at), (0, at + 1), (1, at + 1)):
        given = iter([word.to_bytes(8, "little"), (rest + add).to_bytes(24, "little")])
        found = table.draw(1, lambda count, given=given: next(given))
        assert found[0] == place - table.reach


@pytest.mark.parametrize("std", [0.3, 5.0, 400.0, 5000.0])
@pytest.mark.parametrize("draw", [integers.discrete_gaussian, integers.skellam])
def test_drawn_numbers_have_the_law(draw, std):
    """Chi-square over 40 cells of about equal mass; fails by accident once in 10^8 runs."""
    found, count = draw(200_000, variance=std * std), 200_000
    table = {"discrete_gaussian": integers.gaussian_weights, "skellam": integers.skellam_weights}
    weights = table[draw.__name__](Fraction(std) ** 2)
    half = np.array([float(Fraction(w, 1 << 400)) for w in weights])
    law = np.concatenate([half[:0:-1], half]) / (2.0 * half.sum() - half[0])
    cell = np.minimum((np.cumsum(law) * 40).astype(int), 39)
    expected = np.bincount(cell, law) * count
    reach = len(half) - 1
    seen = np.bincount(cell[np.clip(found, -reach, reach) + reach], minlength=len(expected))
    held = expected > 5
    expected, seen = expected[held], seen[held]
    expected *= seen.sum() / expected.sum()
    assert stats.chisquare(seen, expected).pvalue > 1e-8


def shifted(weights, *shifts):
    """Return P and Q of a product law whose coordinates move by so much."""
    half = np.array([float(Fraction(w, 1 << 400)) for w in weights])
    law = np.concatenate([half[:0:-1], half])
    law = law[law > 1e-24]
    p, q = np.ones(1), np.ones(1)
    for shift in shifts:
        gap = np.zeros(shift)
        p = np.outer(p, np.append(gap, law)).reshape(-1)
        q = np.outer(q, np.append(law, gap)).reshape(-1)
    return p / p.sum(), q / q.sum()


@pytest.mark.parametrize(
    ("std", "moves"), [(2.0, (3,)), (4.0, (2, 3)), (3.0, (2, 2, 1)), (40.0, (35,))]
)
def test_certified_profiles_contain_the_true_ones(std, moves):
    square = sum(m * m for m in moves)
    for make, weights in (
        (lambda s: laws.gaussian_curve(s, 1, std**2), integers.gaussian_weights),
        (lambda s: laws.skellam_curve(s, std**2), integers.skellam_weights),
    ):
        found = make(laws.shift_of(square, len(moves), 1))
        if found is None:
            continue
        p, q = shifted(weights(Fraction(std) ** 2), *moves)
        lattice = found[0]
        loss = fp.PrivacyLoss(
            lattice, fp.Gaussian(noise_multiplier=1.0).privacy_loss("zero_out").facts
        )
        for how in (fp.accountants.PldAccountant, fp.accountants.RdpAccountant):
            account = how().compose(loss)
            for epsilon in (0.0, 0.3, 1.0, 3.0):
                assert account.delta(epsilon).upper >= profile(p, q, epsilon) * (1.0 - 1e-9)
