"""Integer noise: its law, its loss, and the sent vectors, compared with other arithmetic."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import fedprivacy as fp
from fedprivacy.mechanisms import integer_laws as laws
from fedprivacy.mechanisms import integers


def gaussian_law(variance, reach):
    return {k: mp.exp(-mp.mpf(k * k) / (2 * mp.mpf(variance))) for k in range(-reach, reach + 1)}


def skellam_law(variance, reach):
    return {k: mp.besseli(abs(k), mp.mpf(variance)) for k in range(-reach, reach + 1)}


def test_wide_numbers_are_two_narrow_ones_of_the_same_law():
    std = 2500.0
    spread = round(math.sqrt(std / 4.0))
    fine = 16.0 * spread**2
    coarse = (std**2 - fine) / spread**2
    y = np.arange(-2000, 2001)
    for x in (0, 1, spread // 2, 777, -4000):
        log = -((x - spread * y) ** 2) / (2.0 * fine) - y**2 / (2.0 * coarse)
        ideal = -(x**2) / (2.0 * std**2)
        factor = np.exp(log - ideal).sum()
        level = math.sqrt(2.0 * math.pi * fine * coarse / std**2)
        assert factor == pytest.approx(level, rel=1e-12)


@pytest.mark.fast_cells(6)
@pytest.mark.parametrize("shares", [2, 3, 7, 12])
@pytest.mark.parametrize("variance", [0.45, 0.7, 1.0])
def test_sums_of_shares_are_within_their_factor_of_one_number(shares, variance):
    eta = laws.sum_error(shares, variance)
    if eta == math.inf:
        pytest.skip("too small for the theorem, and so refused")
    with mp.workdps(40):
        one = gaussian_law(variance, 14)
        total = mp.fsum(one.values())
        law = np.array([one[k] / total for k in range(-14, 15)])
        summed = law
        for _ in range(shares - 1):
            summed = np.convolve(summed, law)
        middle = len(summed) // 2
        ratios = [
            summed[middle + k] * mp.exp(mp.mpf(k * k) / (2 * shares * mp.mpf(variance)))
            for k in range(-6, 7)
        ]
        spread = max(ratios) / min(ratios)
        assert 1 <= spread <= (1 + mp.mpf(eta)) / (1 - mp.mpf(eta))
        # And the bound is of the right size: the true spread is below a thousandth.
        assert spread - 1 > 1e-3 * eta


def profile(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("variance", [9.0, 100.0])
def test_chains_contain_skellam_divergences(variance):
    top = 1.0 + 2.0 * variance
    unit = laws.concentrated_unit(variance, top)
    assert unit * variance < 1.01
    reach = int(40 + 14 * math.sqrt(variance))
    with mp.workdps(50):
        law = skellam_law(variance, 3 * reach)
        total = mp.fsum(law.values())
        for shift in (1, 2, 5):
            for order in (1.001, 1.5, 3.0, top / shift):
                if order <= 1.0:
                    continue
                a = mp.mpf(order)
                parts = (
                    law[k] ** a * law[k + shift] ** (1 - a) for k in range(-2 * reach, 2 * reach)
                )
                true = mp.log(mp.fsum(parts) / total) / (a - 1)
                assert true <= order * unit * shift**2 / 2.0


@pytest.mark.parametrize("variance", [0.3, 2.25, 40.0])
def test_every_node_is_above_its_cumulant_and_next_to_it(variance):
    """Cumulants of a shift by one against 60 digits; the unit is above all cumulants."""
    most = 2.0 * variance
    law, unit = laws._UnitShift.of(variance, most), laws.concentrated_unit(variance, 1.0 + most)
    reach = int(40 + 30 * math.sqrt(variance) + 8 * variance)
    with mp.workdps(60):
        bessel = [mp.besseli(k, mp.mpf(variance)) for k in range(reach + 2)]
        total = bessel[0] + 2 * mp.fsum(bessel[1:])
        pairs = [(bessel[abs(y)], bessel[abs(y + 1)]) for y in range(-reach, reach)]
        for b in (3e-4, 1e-3, 0.1 * most, 0.77 * most, most):
            true = mp.log(mp.fsum(p * (p / q) ** mp.mpf(b) for p, q in pairs) / total)
            assert true <= unit * b * (b + 1.0) / 2.0
            assert true <= law.cumulant(b) <= true * (1 + mp.mpf(1e-9))


@pytest.mark.parametrize("variance", [16.0, 100.0, 1e4])
def test_one_gaussian_dominates_every_event_of_wide_skellam_noise(variance):
    """I7 and its step: normal quantiles of all tails, from weights of 400 bits."""
    weights = integers.skellam_weights(Fraction(variance))
    tails = np.cumsum([w / (1 << 400) for w in weights][::-1])[::-1]
    total = 2.0 * tails[0] - weights[0] / (1 << 400)
    share = tails[1:] / total
    z = stats.norm.isf(share[share > 1e-60])
    least = np.arcsinh((np.arange(len(z)) + 0.5) / variance) * math.sqrt(variance - 1.0)
    assert np.all(z >= least)
    steps = np.append(2.0 * z[0], np.diff(z)) * math.sqrt(variance)
    assert 1.0 + 0.16 / variance <= steps.max() <= 1.0 + 4.0 / variance


def summed(shares, variance, skellam):
    """Return the law of a sum of shares as doubles, by convolution."""
    one = integers.skellam_weights if skellam else integers.gaussian_weights
    half = np.array([float(Fraction(w, 1 << 400)) for w in one(Fraction(variance))])
    half = half[half > 1e-22]
    law = np.concatenate([half[:0:-1], half])
    law, found = law / law.sum(), np.ones(1)
    for _ in range(shares):
        found = np.convolve(found, law)
    return found[found > 1e-18]


def moved(law, shifts, modulus):
    """Return P and Q of a product law whose coordinates move by so much, seen modulo something."""
    p, q = np.ones(1), np.ones(1)
    for shift in shifts:
        gap = np.zeros(shift)
        one, other = np.append(gap, law), np.append(law, gap)
        if modulus:
            place = np.arange(len(one)) % modulus
            one, other = np.bincount(place, one), np.bincount(place, other)
        p, q = np.outer(p, one).reshape(-1), np.outer(q, other).reshape(-1)
    return p, q


@pytest.mark.fast_cells(6)
@pytest.mark.parametrize("skellam", [False, True])
@pytest.mark.parametrize(
    ("shares", "variance"), [(1, 0.05), (1, 0.2), (2, 0.25), (3, 0.3), (3, 0.6), (10, 0.45)]
)
def test_every_move_of_small_shares_is_within_its_account(shares, variance, skellam):
    """All whole-number moves of up to two coordinates, wrapped or not, both orientations."""
    law = summed(shares, variance, skellam)
    gaussian = fp.Gaussian(noise_multiplier=1.0).privacy_loss("zero_out").facts
    for square, times in ((1, 1), (2, 1), (5, 1), (1, 2), (2, 2)):
        shift = laws.shift_of(square, 2, times)
        if skellam:
            found = laws.skellam_curve(shift, shares * variance)
        else:
            found = laws.gaussian_curve(shift, shares, variance)
        if found is None:
            continue
        account = fp.accountants.PldAccountant().compose(fp.PrivacyLoss(found[0], gaussian))
        side = math.isqrt(shift.square) + 1
        moves = [(i, j) for i in range(side) for j in range(i + 1) if i and i + j <= shift.one_norm]
        for move in [m for m in moves if m[0] ** 2 + m[1] ** 2 <= shift.square]:
            for modulus in (0, 8):
                p, q = moved(law, move, modulus)
                for epsilon in (0.0, 0.3, 1.0, 3.0):
                    true = max(profile(p, q, epsilon), profile(q, p, epsilon))
                    assert account.delta(epsilon).upper >= true * (1.0 - 1e-9) - 1e-15


@pytest.mark.parametrize("skellam", [False, True])
def test_witness_is_below_the_exact_pair_at_every_epsilon(skellam):
    """Also modulo 16, where the law wraps; in both orientations, and its masses add up to 1."""
    law = summed(1, 9.0, skellam)
    for modulus in (16, 1 << 20):
        weights, off = laws.scalar_law(1, 9.0, skellam)
        atoms = laws.scalar_witness(weights, 4, modulus, error=off)
        p, q = moved(law, (4,), modulus if modulus < 100 else 0)
        for one in (atoms, atoms.swap()):
            for epsilon in (0.0, 0.5, 2.0, 3.5):
                true, points = profile(p, q, epsilon), np.array(one.points)
                shown = points[:, 1] @ np.maximum(-np.expm1(epsilon - points[:, 0]), 0.0)
                assert true * (1.0 - 5e-3) - 1e-9 < shown <= true * (1.0 - 1e-12)
        assert points[:, 1].sum() == pytest.approx(1.0, abs=1e-14)


def exact_profile(law, moves, epsilon):
    """Return delta of a law {k: mass} moved by an integer, with 60 digits."""
    total, a = mp.fsum(law.values()), mp.exp(mp.mpf(epsilon))
    gains = (law.get(k - moves, mp.mpf(0)) - a * law.get(k, mp.mpf(0)) for k in law)
    return mp.fsum(gain for gain in gains if gain > 0) / total


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("make", [gaussian_law, skellam_law])
@pytest.mark.parametrize(("variance", "moves"), [(0.09, 1), (2.25, 3), (30.0, 4), (30.0, 25)])
def test_scalar_losses_are_above_the_exact_ones_and_next_to_them(make, variance, moves):
    """I5 at all epsilons, smaller moves as well; one number and twenty rounds between bounds."""
    weights, off = laws.scalar_law(1, variance, make is skellam_law)
    points = dict(laws.scalar_guarantees(weights, moves, off))
    with mp.workdps(60):
        law = make(variance, len(weights) + 40)
        for epsilon in list(points)[:: max(1, len(points) // 6)]:
            for smaller in {1, moves // 2, moves} - {0}:
                assert exact_profile(law, smaller, epsilon) <= points[epsilon]
            assert points[epsilon] <= exact_profile(law, moves, epsilon) * (1 + 1e-10) + 1e-40
        pair = laws.scalar_curve(weights, moves, off, None)[0]
        table = np.array(pair.points)
        for epsilon in (0.0, 0.01, 1.0, 3.3):
            chord = table[:, 1] @ np.maximum(-np.expm1(epsilon - table[:, 0]), 0.0)
            true = float(exact_profile(law, moves, epsilon))
            # A profile of few outcomes is its own chord, but for its point nearest to 0.
            assert true * (1 - 1e-12) - 1e-50 <= chord + pair.infinite


def test_shares_of_any_size_are_summed_exactly():
    weights = laws._summed(5, Fraction(1, 10))
    with mp.workdps(60):
        one = gaussian_law(mp.mpf(1) / 10, 40)
        total = {0: mp.mpf(1)}
        for _ in range(5):
            found = {}
            for i, p in total.items():
                for j in range(-6, 7):
                    found[i + j] = found.get(i + j, mp.mpf(0)) + p * one[j]
            total = found
        for k in range(5):
            assert mp.mpf(weights[k]) / weights[0] == pytest.approx(total[k] / total[0], rel=1e-30)


def one_number(kind, **options):
    facts = {"noise_multiplier": 1.5, "clip_norm": 1.0, "dimension": 1, "cohort": 1, "bits": 12}
    return kind(**facts | options, rotated=False)


@pytest.mark.parametrize("rounds", [1, 20])
@pytest.mark.parametrize("skellam", [False, True])
def test_one_number_is_accounted_between_dp_accountings_ends(skellam, rounds):
    """Theirs of the exact masses, up and down; ours are attained: lower and upper ends meet."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    mechanism = one_number(fp.Skellam if skellam else fp.DistributedDiscreteGaussian, cohort=3)
    mechanism = replace(mechanism, granularity=0.125)
    ours = fp.epsilon(mechanism * rounds, delta=1e-6, adjacency="zero_out")
    half = laws.scalar_law(3, mechanism.share_variance, skellam)[0]
    total = 2 * sum(half) - half[0]
    law = {k: math.log(half[abs(k)] / total) for k in range(-len(half) + 1, len(half))}
    ends = [
        pld.from_two_probability_mass_functions(
            {k + 8: log for k, log in law.items()},
            law,
            pessimistic_estimate=up,
            value_discretization_interval=1e-4,
        )
        .self_compose(rounds)
        .get_epsilon_for_delta(1e-6)
        for up in (False, True)
    ]
    assert ours.lower <= ends[1] * (1 + 1e-9) and ends[0] <= ours.upper * (1 + 1e-9)
    assert ours.upper - ours.lower < 1e-3 * ours.upper
    if not skellam:
        theirs = pld.from_discrete_gaussian_mechanism(mechanism.whole_std, 8).self_compose(rounds)
        assert theirs.get_epsilon_for_delta(1e-6) == pytest.approx(ours.upper, rel=2e-4)


@pytest.mark.parametrize("kind", [fp.DistributedDiscreteGaussian, fp.Skellam])
def test_one_number_is_never_worse_than_its_theorem_for_vectors(kind):
    ask = {"delta": 1e-6, "adjacency": "replace_one"}
    one = one_number(kind, granularity=1.0, noise_multiplier=2.0)
    vector = replace(one, dimension=2, kept=2)
    assert one.square == 1
    assert fp.epsilon(one, **ask).upper < fp.epsilon(vector, **ask).upper
    # Shares too small for the theorems on vectors are served, and rdp by divergences.
    small = one_number(kind, granularity=1.0, cohort=20)
    assert fp.epsilon(small, **ask).lower > 0.99 * fp.epsilon(small, **ask).upper
    assert fp.epsilon(one * 5, **ask).upper < fp.epsilon(one * 5, accountant="rdp", **ask).upper


FACTS = {"noise_multiplier": 1.0, "clip_norm": 2.0, "dimension": 100, "cohort": 10, "bits": 14}
KINDS = [fp.DistributedDiscreteGaussian, fp.Skellam]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rotated", [True, False])
def test_shares_sum_modulo_a_power_of_two_to_the_noisy_sum(kind, rotated):
    """The root mean square is within 6 of its deviations of the stated one."""
    mechanism = kind(**FACTS | {"dimension": 3000, "bits": 16}, rotated=rotated).of_round()
    updates = np.random.default_rng(0).normal(size=(10, 3000))
    total = sum(mechanism.release(update) for update in updates)
    assert mechanism.release(updates[0]).shape == (mechanism.width,)
    clipped = updates * (2.0 / np.linalg.norm(updates, axis=1))[:, None]
    for wrapped in (total, total % 2**16):
        error = mechanism.decoded(wrapped) - clipped.sum(0)
        rounding = 10 * mechanism.grid**2 / 4.0
        ratio = float((error**2).mean()) / mechanism.full_noise_std**2
        assert 1.0 - 6 * math.sqrt(2 / 3000) < ratio
        assert ratio < (1.0 + rounding / mechanism.full_noise_std**2) * (
            1 + 6 * math.sqrt(2 / 3000)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_is_whole_and_within_the_counted_norm(kind):
    torch = pytest.importorskip("torch")
    mechanism = kind(**FACTS | {"bits": 11}).of_round()
    rng = np.random.default_rng(1)
    hostile = [np.eye(100)[3] * 1e300, np.full(100, 1e-320), rng.normal(size=100) * 1e150]
    hostile += [np.full(100, 0.2), rng.standard_cauchy(100), np.zeros(100)]
    for update in [*hostile, *(torch.tensor(h, dtype=torch.float32) for h in hostile[3:])]:
        sent = np.asarray(mechanism.contribution(update), dtype=np.float64)
        assert (sent == np.rint(sent)).all() and float(sent @ sent) <= mechanism.square
    for bad in (np.full(100, math.nan), np.full(100, math.inf), np.zeros(99)):
        with pytest.raises(fp.ParameterError, match="update"):
            mechanism.contribution(bad)


@pytest.mark.parametrize("kind", KINDS)
def test_roundings_are_unbiased(kind):
    """A mean of 4000 roundings is within 6 of its deviations of the unrounded value."""
    mechanism = kind(**FACTS, rotated=False).of_round(np.random.default_rng(2))
    update = np.full(100, 0.01234)
    mean = sum(mechanism.contribution(update) for _ in range(4000)) / 4000
    assert (np.abs(mean - update / mechanism.grid) < 6 * 0.5 / math.sqrt(4000)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_cannot_work_are_refused_with_what_would(kind):
    with pytest.raises(fp.ParameterError, match=r"bits must be at least \d+ at granularity"):
        kind(**FACTS | {"bits": 3})
    with pytest.raises(fp.ParameterError, match=r"bits must be at least (\d+) at") as refusal:
        kind(**FACTS | {"bits": 8}, granularity=1e-3)
    needed = int(str(refusal.value).split("at least ")[1].split(" ")[0])
    kind(**FACTS | {"bits": needed}, granularity=1e-3)
    with pytest.raises(fp.ParameterError):
        kind(**FACTS | {"bits": needed - 1}, granularity=1e-3)
    with pytest.raises(fp.ParameterError, match="granularity must give each share"):
        kind(**FACTS, granularity=100.0)
    with pytest.raises(fp.ParameterError, match="seed must be given"):
        kind(**FACTS).contribution(np.zeros(100))
    with pytest.raises(fp.UnsupportedCombination, match="are too small for every theorem here"):
        kind(**FACTS, granularity=3.0).privacy_loss("zero_out")


@pytest.mark.parametrize("kind", KINDS)
def test_varying_cohorts_are_served_where_the_noise_is_topped_up(kind):
    run = kind(**FACTS | {"bits": 16}, topped_up=True).sampled(fp.Poisson(0.01)) * 100
    for adjacency in ("add_remove", "zero_out"):
        bound = fp.epsilon(run, delta=1e-5, adjacency=adjacency, accountant="rdp")
        assert 0.1 < bound.upper < 5.0
    with pytest.raises(fp.UnsupportedCombination, match="its share of the noise, so the variance"):
        fp.epsilon(kind(**FACTS), delta=1e-5, adjacency="add_remove")


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_known_shares_are_paid_for(kind):
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    full, less = kind(**FACTS | {"bits": 16}), kind(**FACTS | {"bits": 16}, missing=3, colluding=1)
    assert not less.carries(6) and less.carries(7)
    gaussian = fp.epsilon(fp.Gaussian(noise_multiplier=math.sqrt(0.6)), **ask).upper
    assert fp.epsilon(full, **ask).upper < gaussian < fp.epsilon(less, **ask).upper < 1.2 * gaussian


def test_more_bits_cost_less_and_are_calibrated():
    def run(bits):
        return (
            fp.DistributedDiscreteGaussian(**FACTS | {"bits": bits, "noise_multiplier": 4.0}) * 10
        )

    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    ends = [fp.epsilon(run(bits), **ask).upper for bits in (10, 12, 16, 20)]
    assert ends == sorted(ends, reverse=True)
    plain = fp.epsilon(fp.Gaussian(noise_multiplier=4.0) * 10, **ask).upper
    assert plain < ends[-1] < plain * 1.001
    few = fp.calibrate(run, epsilon=ends[1], integer=True, domain=(9, 20), **ask)
    assert few.value <= 12 and few.bound.upper <= ends[1]
    noise = fp.calibrate(
        lambda z: fp.DistributedDiscreteGaussian(**FACTS | {"bits": 16, "noise_multiplier": z}),
        epsilon=2.0,
        **ask,
    )
    assert noise.bound.upper <= 2.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "wrong",
    [{"clip_norm": 1e300}, {"clip_norm": 1e-300}, {"rotated": "no"}, {"seed": -1}, {"seed": "a"}],
)
def test_sizes_at_the_ends_of_doubles_and_wrong_kinds_are_refused(kind, wrong):
    """Products of such clip norms overflow: the search for a granularity did not end."""
    with pytest.raises(fp.ParameterError, match=next(iter(wrong))):
        kind(**FACTS | wrong)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rotated", [True, False])
def test_what_is_no_sum_of_clients_is_not_decoded(kind, rotated):
    mechanism = kind(**FACTS, rotated=rotated).of_round()
    width = mechanism.width
    for bad in (np.zeros(width - 1), np.zeros((1, width)), np.full(width, 0.5)):
        with pytest.raises(fp.ParameterError, match="total"):
            mechanism.decoded(bad)
    for value in (math.nan, math.inf):
        with pytest.raises(fp.ParameterError, match="total"):
            mechanism.decoded(np.full(width, value))
    assert len(mechanism.decoded(np.zeros(width))) == 100


def test_cohorts_that_vary_have_room_for_more_than_their_mean():
    """Unrotated clients of one sign, as many as come with a chance of 10^-6, do not wrap."""
    varies = fp.Skellam(**FACTS | {"bits": 12}, topped_up=True, rotated=False)
    steady = fp.Skellam(**FACTS | {"bits": 12}, rotated=False)
    most = int(stats.poisson.isf(2.5e-7, 10)) + 1
    assert most > 20
    own = most * math.ceil(varies.clip_norm / varies.grid)
    assert own + 4 * varies.whole_std < 2**11 < most * math.ceil(steady.clip_norm / steady.grid)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_what_samplers_are_off_is_in_delta(accountant):
    mechanism = fp.DistributedDiscreteGaussian(**FACTS | {"bits": 16})
    loss = mechanism.sampled(fp.FixedSize(10, population=100)).privacy_loss("zero_out")
    # 128 coordinates, 10 clients.
    assert loss.tv_error == 2.0**-235 * 128 * 10
    how = {"pld": fp.accountants.PldAccountant, "rdp": fp.accountants.RdpAccountant}[accountant]
    assert how().compose(loss, 3).loss.tv_error == pytest.approx(3 * loss.tv_error, rel=1e-14)
    ends = []
    for off in (0.0, loss.tv_error, 1e-12, 1e-11):
        account = how().compose(replace(loss, tv_error=off), 3)
        at = account.epsilon(1e-5)
        ends.append(at.upper)
        # For every returned epsilon, its delta includes the distance of the laws.
        ideal = how().compose(replace(loss, tv_error=0.0), 3).delta(at.upper).lower
        assert ideal + (1 + math.exp(at.upper)) * 3 * off <= 1e-5
        told = account.delta(1.0).upper
        plain = how().compose(replace(loss, tv_error=0.0), 3).delta(1.0).upper
        assert told >= plain + (1 + math.e) * 3 * off
        assert off == 0.0 or told > plain
    assert ends == sorted(ends) and ends[1] == pytest.approx(ends[0], rel=1e-9)
    too_far = how().compose(replace(loss, tv_error=1e-5), 3).epsilon(1e-5)
    assert too_far.upper == math.inf and "exceeds delta" in too_far.reason
    assert how().compose(loss).epsilon(1e-69).upper == math.inf
    assert how().compose(loss, 3).delta(math.inf).upper <= 1e-30
    state = how().compose(loss, 3).state()
    assert how().restore(state).loss == how().compose(loss, 3).loss


class Off:
    """A Gaussian whose law is off by a total variation."""

    def __init__(self, off):
        self.off = off

    def privacy_loss(self, adjacency, observer="aggregate"):
        loss = fp.Gaussian(noise_multiplier=1.0).privacy_loss(adjacency, observer)
        return replace(loss, tv_error=self.off, witness=None)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_what_samplers_are_off_is_in_rates_of_attackers(accountant):
    """Laws that are off by 1e-4 each, the worst ones: rates reach t(x + off) + off."""
    ask = {"adjacency": "zero_out", "accountant": accountant}
    off, rates = 1e-4, np.array([0.0, 1e-5, 1e-3, 0.05, 0.5, 1.0])
    worst = np.minimum(
        stats.norm.cdf(stats.norm.ppf(np.minimum(rates + off, 1.0)) + 1.0) + off, 1.0
    )
    for run, least in ((Off(0.0), None), (Off(off), worst)):
        risk = fp.attack_risk(run, fpr=rates, **ask)
        curve = fp.tradeoff_curve(run, fpr=rates, **ask)
        if least is None:
            assert risk.mu.upper == 1.0
            continue
        assert (risk.tpr.upper >= least * (1 - 1e-13)).all()
        assert (risk.tpr.upper < least + 0.02).all()
        assert (curve.f_dp <= 1.0 - least + 1e-13).all()
        assert risk.mu.upper == math.inf and risk.mu_within.upper == math.inf
        assert risk.advantage.upper >= 2 * stats.norm.cdf(0.5) - 1 + 2 * off
        loose = fp.attack_risk(run, slack=0.01, **ask)
        assert loose.mu_within.upper == 1.0


def test_what_samplers_are_off_is_in_adaptive_budgets():
    mechanism = fp.DistributedDiscreteGaussian(**FACTS | {"bits": 16, "noise_multiplier": 4.0})
    facts = {"adjacency": "zero_out", "adaptive": True}
    budget = fp.Budget(8.0, 1e-5, **facts)
    while budget.allows(mechanism):
        budget.spend(mechanism)
    assert (
        budget.spending.filter.off
        >= sum(budget.spending.rounds.values()) * 2.0**-235 * 128 * 10
        > 0.0
    )
    assert sum(budget.spending.rounds.values()) > 10
    for off, allowed in ((1e-22, True), (1e-18, False)):
        assert fp.Budget(8.0, 1e-5, **facts).allows(Off(off)) is allowed


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_skellam_cohorts_of_fixed_size_are_amplified(adjacency):
    """T1 with the pair that divergences imply: above the Gaussian's attained end, below no draw."""
    ask = {"delta": 1e-5, "adjacency": adjacency}
    step, drawn = fp.Skellam(**FACTS | {"bits": 16}), fp.FixedSize(10, population=1000)
    found = fp.epsilon(step.sampled(drawn) * 10, **ask).upper
    gaussian = fp.epsilon(fp.Gaussian(noise_multiplier=1.0).sampled(drawn) * 10, **ask)
    assert gaussian.lower < found < 2.0 * gaussian.upper
    assert found < 0.5 * fp.epsilon(step * 10, **ask).upper
