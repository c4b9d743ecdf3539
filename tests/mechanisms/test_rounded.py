"""Rounded noise: against 40 digits, cell by cell, bit by bit, and under the low-bit attack."""

import itertools
import math
import os
import ssl
import sys
import tracemalloc
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import gammaincc, ndtr

from fedprivacy.errors import ParameterError
from fedprivacy.mechanisms import exact_normals, exact_tails
from fedprivacy.mechanisms.exact_normals import StoredDraws
from fedprivacy.mechanisms.exact_tails import Uniform, nearest
from fedprivacy.mechanisms.rounded import (
    EXPONENTIAL,
    NORMAL,
    grid_for,
    noise_on_grid,
    noisy_laplace_sum,
    noisy_sum,
    on_grid,
    reproducible_bits,
    room,
)
from tests.common import excluded

TAILS = {"normal": NORMAL, "laplace": EXPONENTIAL}
ALWAYS = 0xD1B54A32D192ED03
"""The word that ``script`` answers with whenever more bits are drawn."""


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(60):
        yield


def seeded(seed):
    return reproducible_bits(np.random.Generator(np.random.PCG64(seed)))


def release(name, total, spread, grid, bits=None):
    if name == "normal":
        return noisy_sum(total, std=spread, grid=grid, bits=bits)
    return noisy_laplace_sum(total, scale=spread, grid=grid, bits=bits)


def real(fraction):
    return mpf(fraction.numerator) / fraction.denominator


def survival(name, x):
    if name == "laplace":
        return mpmath.exp(-x)
    return mpmath.erfc(x / mpmath.sqrt(2)) if x < 1e9 else mpf(0)


def quantile(name, v):
    """The x with P(X > x) = v."""
    return -mpmath.log(v) if name == "laplace" else mpmath.sqrt(2) * mpmath.erfinv(1 - v)


def cdf(name, x):
    """P(noise <= x) of the two-sided law, without loss in its tails."""
    half = survival(name, abs(x)) / 2
    return half if x < 0 else 1 - half


def script(words):
    """A source that gives these words, then ALWAYS, ALWAYS, ..."""
    left = [np.asarray(words, dtype="<u8").tobytes()]

    def bits(count):
        return left.pop() if left else ALWAYS.to_bytes(8, "little") * (count // 8)

    return bits


def truth(name, word, total, spread, grid):
    """The correct rounding for this word followed by ALWAYS for ever, to 60 digits."""
    v = (mpf(word >> 1) + mpf(ALWAYS) / (2**64 - 1)) / mpf(2) ** 63
    sign = -1 if word & 1 else 1
    exact = (real(Fraction(total)) + sign * real(Fraction(spread)) * quantile(name, v)) / grid
    low = mpmath.floor(exact + mpf(1) / 2)
    assert min(exact + mpf(1) / 2 - low, low + mpf(1) / 2 - exact) > 1e-28, "the truth is not clear"
    return int(low)


class TestSeries:
    @pytest.mark.parametrize("places", [63, 127, 300, 1000])
    @pytest.mark.parametrize("name", TAILS)
    def test_a_curve_is_within_one(self, name, places):
        generator = np.random.default_rng(places)
        xs = [
            *(generator.uniform(0, 1, 40) * 10.0 ** generator.integers(-9, 2, 40)),
            *generator.uniform(0, 14, 40),
            *(1e-50, 0.5, 1.0, 11.0, 12.0, 37.0, 63.0, 300.0, 1e5, 1e200),
        ]
        with mp.workdps(330):
            for x in xs:
                size, density = TAILS[name].curve(Fraction(float(x)), places)
                at = mpf(float(x))
                wanted = mpmath.exp(-at)
                if name == "normal":
                    wanted = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-at * at / 2)
                assert abs(size - survival(name, at) * mpf(2) ** places) <= 1
                assert abs(density - wanted * mpf(2) ** places) <= 1

    @pytest.mark.parametrize("places", [64, 500, 2500])
    def test_the_root_of_two_over_pi(self, places):
        with mp.workdps(900):
            wanted = mpmath.sqrt(2 / mpmath.pi) * mpf(2) ** places
            assert abs(exact_tails._root_two_over_pi(places) - wanted) <= 2

    def test_the_derivatives_follow_their_recurrence(self):
        rows = [np.poly1d([1.0])]
        for k in range(1, exact_tails.DEGREE):
            rows.append(rows[-1].deriv() + k * np.poly1d([1.0, 0.0]) * rows[-1])
        for x in (0.0, 0.5, 1.0, 4.0):
            assert [row(x) for row in rows] == NORMAL.polynomials(x)

    def test_the_remainder_that_is_proved(self):
        """P_6 R^7 / 7! <= 2.37 where R is Mills's ratio, for every size that the table serves."""
        row = np.poly1d([1.0])
        for k in range(1, 7):
            row = row.deriv() + k * np.poly1d([1.0, 0.0]) * row
        for i in range(600):
            x = mpf(i) / 100
            ratio = survival("normal", x) / 2 / mpmath.npdf(x)
            assert row(float(x)) * float(ratio) ** 7 / 5040 <= 2.37


class TestTable:
    @pytest.mark.parametrize("name", TAILS)
    def test_every_cell_is_within_what_is_proved(self, name):
        """At both ends and the middle, for the least and the largest V that has these 63 bits."""
        starts = [
            2**power // 64 * (64 + i)
            for power in range(exact_tails.FAST_FROM, 63)
            for i in range(64)
        ]
        width = [2 ** (start.bit_length() - 1) // 64 for start in starts]
        ends = [start + w - 1 for start, w in zip(starts, width, strict=True)]
        middles = [start + w // 2 for start, w in zip(starts, width, strict=True)]
        uniforms = np.array(starts + middles + ends)
        found = exact_normals.sizes(TAILS[name], uniforms.astype(np.float64))
        bound = mpf(2) ** -43
        for m, x in zip(uniforms.tolist(), found.tolist(), strict=True):
            low, high = mpf(m) / mpf(2) ** 63, mpf(m + 1) / mpf(2) ** 63
            assert survival(name, mpf(x) + bound) <= low
            assert survival(name, mpf(x) - bound) >= high

    @pytest.mark.parametrize("name", TAILS)
    def test_every_small_polynomial_is_as_near_to_the_table_as_is_proved(self, name):
        """At both ends, the middle and a place between, where the higher powers are largest."""
        tail, cells = TAILS[name], exact_tails.QUICK_CELLS
        starts = [
            2**power // cells * (cells + i)
            for power in range(exact_tails.QUICK_FROM, 63)
            for i in range(cells)
        ]
        starts = np.array(starts, dtype=np.uint64)
        width = 2.0 ** np.floor(np.log2(starts)) / cells
        for share in (0.0, 0.125, 0.5, 1.0):
            uniforms = starts + np.minimum(width * share, width - 1.0).astype(np.uint64)
            # What rounds up to the next cell's first number is in that one, or in none.
            within = uniforms.astype(np.float64) < starts + width
            space = exact_normals.Workspace(len(starts))
            found = exact_normals.signed_sizes(tail, uniforms << np.uint64(1), space)[within]
            wanted = exact_normals.sizes(tail, uniforms.astype(np.float64))[within]
            assert abs(found - wanted).max() <= exact_tails.QUICK_ERROR
            assert share == 1.0 or within.all()

    @pytest.mark.parametrize("name", TAILS)
    def test_what_has_no_cell_is_never_clear(self, name):
        uniforms = np.array(
            [0, 1, 2**44, 2**exact_tails.QUICK_FROM - 1, 2**63 - 1], dtype=np.uint64
        )
        words, space = uniforms << np.uint64(1), exact_normals.Workspace(5)
        assert np.isnan(exact_normals.signed_sizes(TAILS[name], words, space)).all()
        assert np.isnan(exact_normals.signed_sizes(TAILS[name], words + np.uint64(1), space)).all()

    def test_what_is_believed_leaves_a_factor_of_eight(self):
        """The rounding differs between machines; the omitted part of a polynomial does not."""
        assert exact_normals.MARGIN >= 8 * 2.0**-43
        assert exact_normals.QUICK_MARGIN >= exact_tails.QUICK_ERROR + exact_normals.MARGIN

    def test_a_machine_that_guesses_wrongly_is_put_right_or_refused(self):
        class Rough(exact_tails.ExponentialTail):
            def guess(self, v):
                return -math.log(v) * 1.01

        class Wrong(exact_tails.ExponentialTail):
            def curve(self, x, places):
                return 0, 1 << places

        right = exact_tails.table(EXPONENTIAL).coefficients[0]
        assert abs(exact_tails.table(Rough()).coefficients[0] - right).max() < 1e-13
        with pytest.raises(ArithmeticError):
            exact_tails.table(Wrong())


def boundary_words(name, scale, offset, count, generator):
    """Words whose 63 bits leave the rounding open, or nearly: S at the edges of cells."""
    found = []
    for _ in range(count):
        x = abs(float(generator.normal()))
        edge = (math.floor(offset + scale * x) + Fraction(1, 2) - Fraction(offset)) / Fraction(
            scale
        )
        if edge > 0:
            exact = int(mpmath.floor(survival(name, real(edge)) * 2**63))
            found += [min(max(exact + d, 0), 2**63 - 1) << 1 for d in (-1, 0, 1)]
    return found


class TestBits:
    """The released number is the rounding of what the bits say, to 60 digits."""

    @pytest.mark.parametrize(
        ("scale", "total"), [(0.3, 0.0), (1.0, 0.3), (7.0, -5.25), (2.0**20, 1e-7)]
    )
    @pytest.mark.parametrize("name", TAILS)
    def test_every_word_is_rounded_correctly(self, name, scale, total):
        generator = np.random.default_rng(7)
        grid = 0.25
        words = generator.integers(0, 2**64, 250, dtype=np.uint64).tolist()
        words += boundary_words(name, scale, total / grid, 50, generator)
        words += [m << 1 | s for m in (0, 1, 5, 2**20, 2**44 - 1, 2**44, 2**63 - 1) for s in (0, 1)]
        totals = np.full(len(words), total)
        out = release(name, totals, scale * grid, grid, script(words))
        wanted = [truth(name, word, total, scale * grid, grid) for word in words]
        assert (out / grid).astype(int).tolist() == wanted

    @pytest.mark.parametrize("name", TAILS)
    def test_some_of_these_words_are_decided_by_later_bits_alone(self, name):
        drawn = []

        class Counting(Uniform):
            def below(self, survival):
                before = self.places
                answer = super().below(survival)
                drawn.append(self.places - before)
                return answer

        generator = np.random.default_rng(7)
        for word in boundary_words(name, 7.0, 0.0, 50, generator):
            scale = Fraction(7)
            uniform = Counting(word >> 1, 63, script([ALWAYS]))
            assert nearest(TAILS[name], Fraction(0), 1 / scale, uniform, 3) == truth(
                name, word, 0.0, 7.0, 1.0
            )
        assert max(drawn) >= 64

    @pytest.mark.parametrize("name", TAILS)
    def test_one_question_is_enough_between_two_numbers(self, name, monkeypatch):
        """Where the table has determined the two candidates."""
        generator, asked = np.random.default_rng(11), []
        words = boundary_words(name, 7.0, 0.25, 40, generator)
        below = Uniform.below
        monkeypatch.setattr(Uniform, "below", lambda *a: asked.append(1) or below(*a))
        out = release(name, np.full(len(words), 0.25), 7.0, 1.0, script(words))
        assert out.tolist() == [truth(name, word, 0.25, 7.0, 1.0) for word in words]
        assert 0 < len(asked) <= len(words)

    @pytest.mark.parametrize("name", TAILS)
    def test_few_bits_and_wrong_guesses_end_at_the_same_number(self, name):
        generator = np.random.default_rng(3)
        for word in generator.integers(2**63, 2**64, 150, dtype=np.uint64).tolist():
            places = int(generator.integers(1, 12))
            guess = int(generator.integers(-50, 50))
            rest = word % 2 ** (64 - places)
            more = (rest << places).to_bytes(8, "little"), *([bytes(8)] * 9)
            source = iter(more)
            uniform = Uniform(word >> (64 - places), places, lambda _, source=source: next(source))
            found = nearest(TAILS[name], Fraction(1, 3), Fraction(1, 9), uniform, guess)
            v = mpf(word) / mpf(2) ** 64
            assert found == int(mpmath.floor(9 * quantile(name, v) + mpf(1) / 3 + mpf(1) / 2))

    @pytest.mark.parametrize("name", TAILS)
    def test_the_three_ways_agree_where_more_than_one_decides(self, name, monkeypatch):
        totals = np.random.default_rng(0).uniform(-3, 3, 2000)
        fast = release(name, totals, 1.0, 2.0**-20, seeded(1))
        for way in ("QUICK_MARGIN", "MARGIN"):  # neither the small polynomials, nor the table
            monkeypatch.setattr(exact_normals, way, 1.0)
            assert (release(name, totals, 1.0, 2.0**-20, seeded(1)) == fast).all()

    @pytest.mark.parametrize("name", TAILS)
    @pytest.mark.parametrize("unit", [1.0, 2.0**-20])
    def test_totals_nearby_are_rounded_as_those_far_away(self, name, unit):
        """Up to the limit, where the sum in doubles rounds most; not one may differ."""
        scale, generator = 2.0**24, np.random.default_rng(5)
        limit = exact_normals.NEARBY * scale * unit
        totals = generator.uniform(-limit, limit, 40_000)
        totals[::3] = np.rint(totals[::3] / unit) * unit  # on the grid, as sums of loops are
        near, far = (
            StoredDraws(TAILS[name], seeded(3)).rounded(totals, len(totals), scale, unit, largest)
            for largest in (limit, math.inf)
        )
        assert (near == far).all() and not np.signbit(near[near == 0.0]).any()

    @pytest.mark.parametrize("name", TAILS)
    def test_another_machines_last_bits_change_nothing(self, name, monkeypatch):
        """Four times the error that is proved, and rint that rounds down: the same releases."""
        totals = np.random.default_rng(0).uniform(-3, 3, 3000)
        scale, grid = 1.0, 2.0**-30
        wanted = release(name, totals, scale, grid, seeded(1))
        generator = np.random.default_rng(1)

        def moved(real, far):
            def perturbed(*arguments):
                found = real(*arguments)
                found += generator.choice([-1, 1], found.size) * far
                return found

            return perturbed

        monkeypatch.setattr(exact_normals, "sizes", moved(exact_normals.sizes, 2.0**-41))
        far = 2.0**-33 * scale / grid
        monkeypatch.setattr(exact_normals, "signed_sizes", moved(exact_normals.signed_sizes, far))
        assert (release(name, totals, scale, grid, seeded(1)) == wanted).all()
        monkeypatch.setattr(np, "rint", np.floor)
        assert (release(name, totals, scale, grid, seeded(1)) == wanted).all()

    def test_the_share_that_needs_whole_numbers_is_tiny(self, monkeypatch):
        exact, calls = StoredDraws._exact, []
        monkeypatch.setattr(StoredDraws, "_exact", lambda *a: calls.append(a) or exact(*a))
        noise_on_grid(1_000_000, std=1.0, grid=2.0**-20, bits=seeded(2))
        assert 0 < len(calls) < 30  # about 2 expected from the margin, 2 from the tail


def chance(counts, probabilities):
    """The p-value of a chi-square test; the rarest cells are joined until 100 are expected."""
    expected = np.array([float(p) for p in probabilities]) * counts.sum()
    order = np.argsort(expected)
    joined = int(np.searchsorted(np.cumsum(expected[order]), 100.0)) + 1
    rare, rest = order[:joined], order[joined:]
    observed = np.append(counts[rest], counts[rare].sum())
    wanted = np.append(expected[rest], expected[rare].sum())
    statistic = ((observed - wanted) ** 2 / wanted).sum()
    return float(gammaincc((len(wanted) - 1) / 2, statistic / 2))


class TestLaw:
    """Fresh bits: each test here fails by accident with probability of about 1e-7."""

    @pytest.mark.parametrize("offset", [0.0, 0.3])
    @pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
    @pytest.mark.parametrize("name", TAILS)
    def test_cells_of_a_coarse_grid_have_their_probabilities(self, name, scale, offset):
        out = release(name, np.full(300_000, offset), scale, 1.0)
        reach = 300  # beyond it e^-42 for each of the numbers
        cells = np.arange(-reach, reach + 1)
        counts = np.bincount((out + reach).astype(int), minlength=cells.size)
        assert counts.size == cells.size
        edges = [(k - mpf(1) / 2 - mpf(offset)) / mpf(scale) for k in [*cells.tolist(), reach + 1]]
        at = [cdf(name, edge) for edge in edges]
        assert chance(counts, [b - a for a, b in itertools.pairwise(at)]) > 1e-7

    @pytest.mark.parametrize("name", TAILS)
    def test_a_fine_grid_has_the_law_and_uniform_low_bits(self, name):
        grid = 2.0**-24
        units = (release(name, np.zeros(1_000_000), 1.0, grid) / grid).astype(np.int64)
        v = np.arange(1, 256) / 256
        cuts = [(1 if p > 0.5 else -1) * quantile(name, 2 * min(p, 1 - p)) for p in map(mpf, v)]
        edges = np.array([math.floor(cut / grid) for cut in cuts])
        counts = np.bincount(np.searchsorted(edges, units, side="left"), minlength=256)
        at = [mpf(0), *(cdf(name, (int(e) + mpf(1) / 2) * grid) for e in edges), mpf(1)]
        assert chance(counts, [b - a for a, b in itertools.pairwise(at)]) > 1e-7
        assert chance(np.bincount(units & 255, minlength=256), [1 / 256] * 256) > 1e-7

    def test_neighbours_in_a_vector_are_not_related(self):
        noise = noise_on_grid(1_000_000, std=1.0, grid=2.0**-20)
        for lag in (1, 2, exact_normals.BLOCK):
            assert abs(np.mean(noise[lag:] * noise[:-lag])) < 5.4 / math.sqrt(noise.size - lag)


class TestLowBits:
    DRAWS = 500

    def sums(self, generator, numbers, grid):
        rest = sum(
            on_grid(generator.normal(size=numbers), clip_norm=1.0, grid=grid) for _ in range(5)
        )
        one = on_grid(generator.normal(size=numbers), clip_norm=1.0, grid=grid)
        return rest, rest + one

    @pytest.mark.parametrize("spread", [1.0, 5.0, 50.0])
    @pytest.mark.parametrize(("name", "numbers"), [("normal", 1000), ("laplace", 1)])
    def test_no_neighbouring_sum_is_excluded(self, name, numbers, spread):
        generator = np.random.default_rng(11)
        grid, found = grid_for(spread, 1.0), 0
        for _ in range(self.DRAWS):
            without, with_one = self.sums(generator, numbers, grid)
            out = release(name, with_one, spread, grid)
            found += excluded(out, without) + excluded(out, with_one)
        assert found == 0

    def test_the_attack_works_on_sums_and_noise_of_doubles(self):
        generator, found = np.random.default_rng(11), 0
        for _ in range(200):
            without = generator.normal(size=1000)
            with_one = without + generator.normal(size=1000) / 32
            out = with_one + generator.normal(size=1000)
            assert not excluded(out, with_one)
            found += excluded(out, without)
        assert found == 200

    def test_zero_has_no_sign(self):
        for totals in (np.zeros(4000), np.full(4000, -0.0), np.full(4000, -0.2)):
            out = noisy_sum(totals, std=0.5, grid=1.0)
            assert (out == 0).sum() > 1000 and not np.signbit(out[out == 0]).any()
        assert not np.signbit(on_grid(np.array([-0.2]), clip_norm=1.0, grid=1.0)).any()


class TestContributions:
    @pytest.mark.fast_cells(8)
    @pytest.mark.parametrize("clip_norm", [1.0, 0.7, 3.1e-6, 5.5e10])
    @pytest.mark.parametrize("numbers", [1, 2, 3, 40, 1000])
    def test_the_norm_holds_exactly(self, numbers, clip_norm):
        generator = np.random.default_rng(numbers)
        for places in (1, 3, 20, 30):
            grid = grid_for(clip_norm, clip_norm, places)
            for size in (0.1, 1.0 - 2.0**-53, 1.0, 1.0 + 2.0**-52, 40.0, 1e30):
                for value in (generator.normal(size=numbers), np.ones(numbers)):
                    value *= size * clip_norm / np.linalg.norm(value)
                    out = on_grid(value, clip_norm=clip_norm, grid=grid)
                    exact = [Fraction(number) for number in out.tolist()]
                    assert sum(number**2 for number in exact) <= Fraction(clip_norm) ** 2
                    assert all((number / Fraction(grid)).denominator == 1 for number in exact)

    def test_what_is_short_enough_is_moved_by_half_a_spacing_at_most(self):
        value = np.random.default_rng(0).normal(size=1000) / 64
        out = on_grid(value, clip_norm=1.0, grid=2.0**-20)
        assert abs(out - value).max() <= 2.0**-21

    def test_little_is_lost_where_it_is_clipped(self):
        value = np.random.default_rng(0).normal(size=100_000)
        out = on_grid(value, clip_norm=1.0, grid=2.0**-20)
        assert np.linalg.norm(out - value / np.linalg.norm(value)) < 2.0**-21 * 100_000**0.5
        assert 1.0 - 2.0**-19 < np.linalg.norm(out) <= 1.0

    def test_sums_are_exact_in_any_order(self):
        grid, generator = grid_for(1.0, 0.7), np.random.default_rng(0)
        parts = [on_grid(generator.normal(size=50), clip_norm=0.7, grid=grid) for _ in range(300)]
        assert len(parts) <= room(0.7, grid)
        total = sum(parts)
        for i in range(50):
            assert Fraction(total[i]) == sum(Fraction(part[i]) for part in parts)
        assert (np.sum(parts[::-1], axis=0) == total).all()

    @pytest.mark.parametrize(("std", "clip_norm"), [(1.0, 1.0), (0.3, 5.0), (70.0, 0.2)])
    def test_the_grid_is_a_power_of_two_below_both(self, std, clip_norm):
        grid = grid_for(std, clip_norm)
        assert math.frexp(grid)[0] == 0.5
        assert 2.0**-21 < grid / min(std, clip_norm) <= 2.0**-20

    @pytest.mark.parametrize("ratio", [70.0 / 0.02, 1e9, 1e15, 1e-9, 1e-15])
    def test_the_grid_of_noise_far_from_the_clip_norm_can_be_used(self, ratio):
        """Finer than 2^-32 of the noise none can be drawn; below 2^-31 of C few can be summed."""
        grid = grid_for(ratio, 1.0, 24)
        assert room(1.0, grid) >= 2**20
        assert noise_on_grid(10, std=ratio, grid=grid).shape == (10,)
        assert abs(on_grid(np.ones(4), clip_norm=1.0, grid=grid)).max() <= 0.5


class TestShares:
    """A sum of rounded shares compared with a rounded sum with the whole noise and more."""

    @staticmethod
    def masses(std, reach=60):
        edges = (np.arange(-reach, reach + 2) - 0.5) / std
        return np.diff(ndtr(edges))

    @pytest.mark.parametrize("std", [0.3, 0.5, 0.7, 1.0])
    @pytest.mark.parametrize("shares", [2, 3])
    def test_the_two_laws_are_as_near_as_is_proved(self, shares, std):
        one = self.masses(std)
        summed = one
        for _ in range(shares - 1):
            summed = np.convolve(summed, one)
        reach = len(summed) // 2
        nodes, weights = np.polynomial.legendre.leggauss(30)
        wanted = 0.0
        for parts in itertools.product(range(30), repeat=shares - 1):
            shift = sum(nodes[i] for i in parts) / 2
            weight = math.prod(weights[i] / 2 for i in parts)
            cells = np.arange(-reach, reach + 2) - 0.5 - shift
            wanted = wanted + weight * np.diff(ndtr(cells / (std * math.sqrt(shares))))
        distance = abs(summed - wanted).sum() / 2
        near = math.exp(-((math.pi * std) ** 2) / 2)
        bound = (shares + 1) * (shares + 7 * math.sqrt(shares) * std**2 + 4) * near
        assert distance < bound + 1e-14
        assert distance > 1e-3 or std > 0.5  # on so coarse a grid they do differ

    def test_it_is_nothing_for_any_cohort(self):
        shares, std = 10**6, 8.0
        log = math.log((shares + 1) * (shares + 7 * math.sqrt(shares) * std**2 + 4))
        assert (log - (math.pi * std) ** 2 / 2) / math.log(10) < -120


class TestUse:
    def test_noise_alone_is_what_is_added_to_a_sum_on_the_grid(self):
        grid = 2.0**-10
        total = np.arange(-500, 500) * grid
        noise = noise_on_grid(1000, std=1.0, grid=grid, bits=seeded(5))
        assert (noisy_sum(total, std=1.0, grid=grid, bits=seeded(5)) == total + noise).all()

    @pytest.mark.parametrize(
        "total", [0.5, np.float32(0.5), 3, np.zeros((2, 0)), np.ones((3, 4, 2))]
    )
    def test_shapes_and_kinds(self, total):
        out = noisy_sum(total, std=1.0, grid=0.5)
        assert out.shape == np.shape(total) and out.dtype == np.float64

    def test_a_strided_total_is_read_and_left_alone(self):
        whole = np.arange(20.0)
        out = noisy_sum(whole[::2], std=1e-9, grid=1.0)
        assert (out == whole[::2]).all() and (whole == np.arange(20.0)).all()

    def test_totals_that_doubles_hardly_hold(self):
        tiny = np.array([5e-324, -5e-324, 1e-310])
        assert (noisy_sum(tiny, std=1e-9, grid=1.0) == 0).all()
        large = np.array([2.0**52, -(2.0**52)])
        assert abs(noisy_sum(large, std=1.0, grid=1.0) - large).max() < 40

    @pytest.mark.system_randomness
    def test_randomness_is_the_systems(self, monkeypatch):
        asked, real_source = [], os.urandom
        monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or real_source(n))
        noisy_sum(np.zeros(100), std=1.0, grid=0.5)
        noisy_laplace_sum(np.zeros(100), scale=1.0, grid=0.5)
        assert sum(asked) == 1600

    @pytest.mark.system_randomness
    def test_many_numbers_come_from_a_generator_that_the_system_keys(self, monkeypatch):
        """A key for each request, so that no copy of this process draws the same numbers."""
        told, drawn, add, give = [], [], ssl.RAND_add, ssl.RAND_bytes
        monkeypatch.setattr(ssl, "RAND_add", lambda key, bits: told.append(key) or add(key, bits))
        monkeypatch.setattr(ssl, "RAND_bytes", lambda n: drawn.append(n) or give(n))
        noisy_sum(np.zeros(3 * exact_normals.BLOCK), std=1.0, grid=0.5)
        assert drawn == [8 * exact_normals.BLOCK] * 3
        assert len(set(told)) == 3 and all(len(key) == 32 for key in told)

    def test_without_openssl_the_system_gives_everything(self, monkeypatch):
        asked, real_source = [], os.urandom
        monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or real_source(n))
        monkeypatch.setitem(sys.modules, "ssl", None)
        noisy_sum(np.zeros(1000), std=1.0, grid=0.5)
        assert asked == [8000]

    @pytest.mark.system_randomness
    def test_a_forked_process_draws_other_numbers(self):
        ssl.RAND_bytes(10_000)
        reader, writer = os.pipe()
        if not (child := os.fork()):
            os.write(writer, exact_normals.system_bits(8000))
            os._exit(0)
        os.waitpid(child, 0)
        theirs, ours = os.read(reader, 8000), exact_normals.system_bits(8000)
        words = [np.frombuffer(part, "<u8") for part in (theirs, ours)]
        assert len(theirs) == 8000 and not np.intersect1d(*words).size  # a chance of 2^-44

    def test_what_is_drawn_ahead_is_given_out_once_and_in_order(self):
        """In steps of any size: the correct rounding for each word, one word a number."""
        steps, words = (7, 1, 300, 7, 0, 85), []

        def bits(count):
            drawn = seeded(4)(count)
            words.append(np.frombuffer(drawn, "<u8"))
            return drawn

        drawn, found = StoredDraws(NORMAL, bits, ahead=400), []
        for step in steps:
            found += drawn.rounded(np.full(step, 0.3), step, 7.0).tolist()
        used = np.concatenate(words)[:400].tolist()
        assert len(found) == 400
        assert found == [truth("normal", word, 0.3, 7.0, 1.0) for word in used]

    def test_a_seed_replays_and_no_seed_does_not(self):
        one, two = (noise_on_grid(50_000, std=1.0, grid=0.5, bits=seeded(1)) for _ in range(2))
        assert (one == two).all()
        one, two = (noise_on_grid(50, std=1.0, grid=2.0**-20) for _ in range(2))
        # Two are alike with a chance of 3e-7, four of fifty pairs with one of 2e-21.
        assert (one != two).sum() >= 47

    def test_memory_is_the_answer_and_a_block(self):
        exact_tails.quick_table(NORMAL)
        totals = np.zeros(2_000_000)
        tracemalloc.start()
        noisy_sum(totals, std=1.0, grid=2.0**-20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * totals.size + 20 * 8 * exact_normals.BLOCK


GOOD = {"total": np.zeros(3), "std": 1.0, "grid": 0.5}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("std", value) for value in (0, 0.0, -1.0, math.inf, math.nan, None, "1", 1e-60, 1e60)),
        *(("grid", value) for value in (0.0, -0.5, 0.3, 3, math.inf, math.nan, None, 2.0**-33)),
        *(("total", value) for value in (math.inf, [0.0, math.nan], 2.0**52, "a", 1j, None)),
        *(("total", value) for value in ([2**60], [True], np.zeros(2, np.longdouble))),
        *(("bits", value) for value in (3, np.random.default_rng(0), lambda n: b"", lambda n: "a")),
    ],
)
def test_bad_input(name, value):
    with pytest.raises(ParameterError, match=name):
        noisy_sum(**{**GOOD, name: value})
    other = {("scale" if key == "std" else key): v for key, v in {**GOOD, name: value}.items()}
    with pytest.raises(ParameterError, match="scale" if name == "std" else name):
        noisy_laplace_sum(**other)


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_a_source_that_repeats_itself_is_refused_or_harmless(byte):
    def bits(count):
        return byte * count

    if byte == b"\0":  # V = 0: no size is large enough
        with pytest.raises(ParameterError, match="bits"):
            noisy_sum(0.0, std=1.0, grid=0.5, bits=bits)
    else:
        assert noisy_sum(0.0, std=1.0, grid=0.5, bits=bits) == 0


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: on_grid([math.nan], clip_norm=1.0, grid=0.5), "value"),
        (lambda: on_grid([math.inf, 1.0], clip_norm=1.0, grid=0.5), "value"),
        (lambda: on_grid([1.0], clip_norm=0.0, grid=0.5), "clip_norm"),
        (lambda: on_grid([1.0], clip_norm=1.0, grid=0.7), "grid"),
        (lambda: on_grid([1.0], clip_norm=1.0, grid=2.0**-53), "grid"),
        (lambda: grid_for(0.0, 1.0), "std"),
        (lambda: grid_for(1.0, math.inf), "clip_norm"),
        (lambda: grid_for(1.0, 1.0, 0), "places"),
        (lambda: grid_for(1.0, 1.0, 31), "places"),
        (lambda: room(1.0, 0.3), "grid"),
        (lambda: noise_on_grid(3, std=0.0, grid=0.5), "std"),
        (lambda: reproducible_bits(7), "generator"),
    ],
)
def test_other_bad_input(call, name):
    with pytest.raises(ParameterError, match=name):
        call()
