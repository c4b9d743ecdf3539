"""Truncated Poisson sampling (T10) against enumeration: laws, pairs, limits."""

import functools
import itertools

import numpy as np
import pytest
from scipy.special import chdtri, ndtr

import fedprivacy as fp
from fedprivacy.loss import Mix
from fedprivacy.sampling import TruncatedPoisson

Z = 0.8
EPSILONS = np.array([-3.0, -1.0, -0.3, -0.05, 0.0, 0.05, 0.3, 1.0, 2.5, 5.0])
SETTINGS = [(4, 2, 0.3), (5, 1, 0.4), (4, 3, 0.9), (5, 2, 0.7), (3, 2, 1.0), (5, 4, 0.05)]


def cohorts(units, largest, q):
    """Return {cohort: probability} of the algorithm as it is described."""
    law = {}
    for size in range(len(units) + 1):
        for drawn in itertools.combinations(units, size):
            chance = q**size * (1 - q) ** (len(units) - size)
            kept = list(itertools.combinations(drawn, min(size, largest)))
            for cohort in kept:
                law[cohort] = law.get(cohort, 0.0) + chance / len(kept)
    return law


def edges(dimension):
    """Return the ends of the cells on one axis; the sums of at most 4 units lie within 4 of 0."""
    return np.concatenate([[-np.inf], np.linspace(-11.0, 11.0, 4001 if dimension == 1 else 201)])


def masses(law, sends):
    """Return the noisy sum's mass in each cell of a grid, a function of the sum."""
    ends = edges(sends.shape[1])
    total = 0.0
    for cohort, chance in law.items():
        centre = sum((sends[unit] for unit in cohort), np.zeros(sends.shape[1]))
        axes = [np.diff(ndtr((ends - c) / Z)) for c in centre]
        total = total + chance * functools.reduce(np.multiply.outer, axes).ravel()
    return total


def profile(curve, epsilons=EPSILONS):
    tails = curve.tails(epsilons)
    return np.exp(tails.p_above) - np.exp(epsilons + tails.q_above)


def contributions(case, n, generator):
    """Return what the n units send: worst guesses on a line first, then random vectors."""
    lines = {"alone": 0.0, "same": 1.0, "opposed": -1.0}
    if case in lines:
        return np.array([[1.0]] + [[lines[case]]] * (n - 1))
    if case == "line":
        return np.concatenate([[[1.0]], generator.uniform(-1, 1, (n - 1, 1))])
    vectors = generator.normal(size=(n, 2))
    size = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(size, 1.0 if case == "ball" else size)


def pair_of(adjacency, sends, largest, q):
    """Return the masses with unit 0 as it is, and without it or with other data."""
    n = len(sends)
    law = cohorts(range(n), largest, q)
    if adjacency == "add_remove":
        return masses(law, sends), masses(cohorts(range(1, n), largest, q), sends)
    other = sends.copy()
    other[0] *= 0.0 if adjacency == "zero_out" else -1.0
    return masses(law, sends), masses(law, other)


def both_profiles(p, q):
    """Return the profiles of two vectors of masses in both orders, shape (2, len(EPSILONS))."""
    factors = np.exp(EPSILONS)[:, None]
    return np.array([np.maximum(a - factors * b, 0.0).sum(axis=1) for a, b in ((p, q), (q, p))])


def both_claims(curve):
    return np.array([profile(curve), profile(curve.swap())])


def step_of(n, largest, q):
    return fp.Gaussian(noise_multiplier=Z).sampled(TruncatedPoisson(q, n, largest))


CASES = ["alone", "same", "opposed", "line", "line", "ball", "sphere"]


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize("n, largest, q", SETTINGS)
def test_no_data_sets_lose_more_than_the_pair(adjacency, n, largest, q):
    """Containment: merged cells lose less, and 1e-13 is the rounding of the sums."""
    loss = step_of(n, largest, q).privacy_loss(adjacency)
    generator = np.random.default_rng(n)
    for case in CASES:
        p, r = pair_of(adjacency, contributions(case, n, generator), largest, q)
        real = both_profiles(p, r)
        # Every pair that a run may be answered with dominates.
        for one in getattr(loss.curve, "curves", (loss.curve,)):
            assert (real <= both_claims(one) + 1e-13).all(), case
        if case == "alone":
            plain = getattr(loss.witness.curve, "curves", (loss.witness.curve,))[-1]
            assert both_claims(plain) == pytest.approx(real, abs=1e-5)


@pytest.mark.parametrize("n, largest, q", [*SETTINGS, (3, 3, 0.6), (2, 2, 1.0), (2, 3, 0.5)])
def test_no_data_sets_of_one_unit_more_lose_more_than_the_pair(n, largest, q):
    """A data set of n has neighbours of n - 1 and of n + 1 units; the scheme's population is n."""
    claims = both_claims(step_of(n, largest, q).privacy_loss("add_remove").curve)
    generator = np.random.default_rng(n)
    worst = -1.0
    for case in CASES:
        sends = contributions(case, n + 1, generator)
        real = both_profiles(*pair_of("add_remove", sends, largest, q))
        worst = max(worst, float((real - claims).max()))
        assert (real <= claims + 1e-13).all(), case
        fewer = both_profiles(*pair_of("add_remove", sends[:n], largest, q))
        assert (fewer <= claims + 1e-13).all(), case
    assert worst > -0.02


def test_one_unit_more_may_cost_more_than_one_less():
    """Poisson's number does not depend on n, a fixed size's falls with it, this one may grow."""

    def price(scheme):
        step = fp.Gaussian(noise_multiplier=1.0).sampled(scheme)
        return fp.epsilon(step * 20, delta=1e-5, adjacency="add_remove").upper

    for q, n, largest in ((0.1, 20, 3), (0.3, 5, 2), (0.5, 4, 4)):
        ours, more = (price(TruncatedPoisson(q, k, largest)) for k in (n, n + 1))
        assert ours >= price(TruncatedPoisson(q, n - 1, largest)) or q == 0.5
        assert ours <= 1.1 * more
    fixed = [price(fp.FixedSize(3, population=n)) for n in range(4, 12)]
    drawn = [price(fp.WithReplacement(3, population=n)) for n in range(2, 12)]
    for falling in (fixed, drawn):
        assert all(more < less for less, more in itertools.pairwise(falling))


@pytest.mark.parametrize(
    "adjacency, n, largest, q, case",
    [
        ("add_remove", 5, 2, 0.7, "opposed"),
        ("zero_out", 5, 2, 0.7, "same"),
        ("replace_one", 5, 1, 0.4, "same"),
    ],
)
def test_poissons_pair_is_no_bound(adjacency, n, largest, q, case):
    """Cutting large cohorts shows who was drawn: somebody's place, or a sum that may not grow."""
    plain = fp.Gaussian(noise_multiplier=Z).sampled(fp.Poisson(q)).privacy_loss(adjacency)
    sends = contributions(case, n, np.random.default_rng(0))
    real = both_profiles(*pair_of(adjacency, sends, largest, q))
    assert (real - both_claims(plain.curve)).max() > 0.009


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize("inner", [fp.Gaussian(noise_multiplier=Z), fp.Laplace(noise_multiplier=2)])
def test_a_cohort_for_everybody_is_poisson_sampling(adjacency, inner):
    poisson = inner.sampled(fp.Poisson(0.3)).privacy_loss(adjacency)
    for largest in (20, 21, 10**9)[adjacency == "add_remove" :]:
        loss = inner.sampled(TruncatedPoisson(0.3, 20, largest)).privacy_loss(adjacency)
        assert loss.curve == poisson.curve and loss.witness.curve == poisson.witness.curve
    nearly = inner.sampled(TruncatedPoisson(0.3, 400, 399)).privacy_loss(adjacency)
    assert profile(nearly.curve) == pytest.approx(profile(poisson.curve), abs=1e-12)
    assert (profile(nearly.curve) >= profile(poisson.curve) - 1e-15).all()


@pytest.mark.parametrize("inner", [fp.Gaussian(noise_multiplier=Z), fp.Laplace(noise_multiplier=2)])
def test_drawing_everybody_and_keeping_some_is_a_fixed_size(inner):
    fixed = inner.sampled(fp.FixedSize(3, population=30)).privacy_loss("add_remove")
    cut = inner.sampled(TruncatedPoisson(1.0, 30, 3)).privacy_loss("add_remove")
    assert both_claims(cut.curve) == pytest.approx(both_claims(fixed.curve), abs=1e-13)


def test_the_server_sees_who_takes_part():
    scheme = TruncatedPoisson(0.3, 20, 6)
    loss = fp.Gaussian(noise_multiplier=Z).sampled(scheme).privacy_loss("zero_out", "server")
    assert isinstance(loss.curve, Mix)
    assert [weight for weight, _ in loss.curve.parts] == [1.0 - scheme.rate, scheme.rate]
    assert [weight for weight, _ in loss.witness.curve.parts][1] == scheme.surely < scheme.rate


@pytest.mark.parametrize("largest", [1, 2, 5, 8, 20, 40])
@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_a_general_mechanism_gets_the_same_labels(adjacency, largest):
    """The Gaussian sum as if it were any mechanism: add_remove and zero_out need no more.

    Slots of a fixed-size cohort give zero_out a second pair, for a Gaussian sum only.
    """
    scheme = TruncatedPoisson(0.2, 40, largest)
    sum_ = fp.Gaussian(noise_multiplier=Z)
    one, general = (m.sampled(scheme).privacy_loss(adjacency).curve for m in (sum_, sum_ * 1))
    assert (both_claims(general) >= both_claims(one) - 1e-15).all()
    if adjacency != "replace_one":
        assert (
            general in getattr(one, "curves", ())
            if adjacency == "zero_out" and largest < 20
            else general == one
        )


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_rare_truncation_costs_next_to_nothing(adjacency):
    """6000 units, 100 drawn on average, 180 rounds: 160 is six standard deviations above."""
    step = fp.Gaussian(noise_multiplier=1.4)
    ask = {"delta": 6000**-1.1, "adjacency": adjacency}
    poisson = fp.epsilon(step.sampled(fp.Poisson(1 / 60)) * 180, **ask)
    for largest in (160, 180, 190, 200, 250, 400, 4000):
        run = step.sampled(TruncatedPoisson(1 / 60, 6000, largest)) * 180
        bound = fp.epsilon(run, **ask)
        assert poisson.resolution[0] <= bound.upper <= poisson.upper + 1e-3
        assert poisson.lower - 1e-3 <= bound.lower <= poisson.upper


@pytest.mark.parametrize("q, n, largest, z", [(0.1, 200, 24, 1.0), (0.1, 200, 40, 0.7)])
def test_no_more_than_dp_accounting_says(q, n, largest, z):
    """Its truncated label loses as much as a replacement; ours takes each orientation by itself."""
    dpa = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    def theirs(size):
        """Its number for data sets of ``size`` and ``size`` - 1 records; ours is for n + 1 too."""
        event = dpa.TruncatedSubsampledGaussianDpEvent(size, q, largest, z)
        found = PLDAccountant(value_discretization_interval=1e-3).compose(event, 10)
        return found.get_epsilon(1e-5)

    run = fp.Gaussian(noise_multiplier=z).sampled(TruncatedPoisson(q, n, largest)) * 10
    ours = fp.epsilon(run, delta=1e-5, adjacency="add_remove", tolerance=1e-3)
    poisson = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q)) * 10
    least = fp.epsilon(poisson, delta=1e-5, adjacency="add_remove").lower
    assert least < ours.upper <= max(theirs(n), theirs(n + 1)) + 2e-3


@pytest.mark.parametrize("n, largest, q", [(5, 2, 0.5), (5, 3, 0.8), (4, 1, 0.3), (4, 4, 0.5)])
def test_cohorts_are_drawn_with_the_stated_law(n, largest, q):
    """Chi-square over all cohorts, 40,000 draws: one seed in a million fails."""
    scheme, generator = TruncatedPoisson(q, n, largest), np.random.default_rng(11)
    law = cohorts(range(n), largest, q)
    seen = dict.fromkeys(law, 0)
    for _ in range(40_000):
        seen[tuple(scheme.draw(n, generator).tolist())] += 1
    expected = {cohort: 40_000 * chance for cohort, chance in law.items()}
    statistic = sum((seen[c] - expected[c]) ** 2 / expected[c] for c in law)
    assert min(expected.values()) > 5 and statistic < chdtri(len(law) - 1, 1e-6)
    takes_part = sum(chance for cohort, chance in law.items() if 0 in cohort)
    assert scheme.surely <= takes_part * (1 + 1e-14) and takes_part <= scheme.rate * (1 + 1e-14)
