"""Randomised response, discrete Laplace, mixtures, mu-GDP and zCDP against sums of 40 digits."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.ledger import REGISTRY
from fedprivacy.registry import decode, encode

SWAP, ZERO, ADD = "replace_one", "zero_out", "add_remove"
RESPONSES = [(2 / 3, 2), (0.3, 5), (0.999, 3), (1e-3, 2), (0.1, 1000)]
NOISES = [(0.5, 3), (1.0, 1), (1e-3, 40), (7.0, 2), (0.2, 17)]


def response(chance, answers, adjacency):
    """Laws (P, Q) of one answer, as 40-digit numbers."""
    with mpmath.workdps(40):
        each = mpmath.mpf(chance) / answers
        own = 1 - mpmath.mpf(chance) + each
        p = [own] + [each] * (answers - 1)
        if adjacency == ZERO:
            return p, [mpmath.mpf(1) / answers] * answers
        return p, [each, own] + [each] * (answers - 2)


def laplace(a, moves):
    """Laws (P, Q) of the relevant steps: all outcomes left of 0 together, and right of 0."""
    with mpmath.workdps(40):
        r = mpmath.exp(-mpmath.mpf(a))
        rest = [(1 - r) / (1 + r) * r**w for w in range(1, moves)]
        q = [1 / (1 + r), *rest, r**moves / (1 + r)]
        return q[::-1], q


def delta_of(p, q, epsilon, rounds=1):
    """The larger of H(P, Q) and H(Q, P), of so many rounds."""
    with mpmath.workdps(40):
        scale = mpmath.exp(mpmath.mpf(epsilon))
        found = [mpmath.mpf(0), mpmath.mpf(0)]
        law = {(mpmath.mpf(1), mpmath.mpf(1)): 1}
        for _ in range(rounds):
            grown = {}
            for (x, y), n in law.items():
                for s, t in zip(p, q, strict=True):
                    grown[x * s, y * t] = grown.get((x * s, y * t), 0) + n
            law = grown
        for (x, y), n in law.items():
            found[0] += n * max(x - scale * y, 0)
            found[1] += n * max(y - scale * x, 0)
        return max(found)


def contained(run, p, q, adjacency, rounds=1):
    for accountant in ("pld", "rdp", "advanced"):
        for delta in (0.3, 1e-3, 1e-9):
            bound = fp.epsilon(
                run * rounds, delta=delta, adjacency=adjacency, accountant=accountant
            )
            assert delta_of(p, q, bound.upper, rounds) <= delta
            assert bound.lower == 0.0 or delta_of(p, q, bound.lower, rounds) >= delta
        for epsilon in (0.0, 0.4):
            bound = fp.delta(
                run * rounds, epsilon=epsilon, adjacency=adjacency, accountant=accountant
            )
            assert bound.lower <= delta_of(p, q, epsilon, rounds) <= bound.upper


@pytest.mark.fast_cells(5)
@pytest.mark.parametrize("chance, answers", RESPONSES)
@pytest.mark.parametrize("adjacency", [SWAP, ZERO])
def test_randomised_response_is_contained(chance, answers, adjacency):
    run = fp.RandomizedResponse(chance=chance, answers=answers)
    p, q = response(chance, answers, adjacency)
    contained(run, p, q, adjacency)
    with mpmath.workdps(40):
        largest = max(abs(mpmath.log(x / y)) for x, y in zip(p, q, strict=True))
    pure = fp.epsilon(run, delta=0.0, adjacency=adjacency)
    assert pure.lower <= largest <= pure.upper <= largest * (1 + 1e-12) + 1e-300
    assert fp.delta(run, epsilon=pure.upper, adjacency=adjacency).upper == 0.0


@pytest.mark.parametrize("adjacency", [SWAP, ZERO])
def test_rounds_of_randomised_response_are_contained(adjacency):
    contained(
        fp.RandomizedResponse(chance=0.4, answers=3), *response(0.4, 3, adjacency), adjacency, 4
    )


@pytest.mark.fast_cells(6)
@pytest.mark.parametrize("a, sensitivity", NOISES)
@pytest.mark.parametrize("adjacency", [ADD, ZERO, SWAP])
def test_discrete_laplace_is_contained(a, sensitivity, adjacency):
    run = fp.DiscreteLaplace(noise_parameter=a, sensitivity=sensitivity)
    moves = sensitivity * (2 if adjacency == SWAP else 1)
    contained(run, *laplace(a, moves), adjacency)
    pure = fp.epsilon(run * 3, delta=0.0, adjacency=adjacency)
    assert pure.lower <= 3 * mpmath.mpf(a) * moves <= pure.upper <= 3 * a * moves * (1 + 1e-10)


@pytest.mark.parametrize("a", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("moves", [2, 3, 7])
def test_one_coordinate_is_the_worst_vector(a, moves):
    """The proof in docs/theory/theorems.md, by sums: every split of the moves loses no more."""
    whole = laplace(a, moves)
    for first in range(1, moves):
        one, other = laplace(a, first), laplace(a, moves - first)
        p, q = ([x * y for x, y in itertools.product(*each)] for each in zip(one, other))  # noqa: B905
        for share in (0.0, 0.1, 0.5, 0.9, 0.999):
            epsilon = share * a * moves
            assert delta_of(p, q, epsilon) <= delta_of(*whole, epsilon) * (
                1 + mpmath.mpf(10) ** -30
            )


def test_sampled_discrete_laplace_is_contained():
    """Poisson, zero_out: P is mixed with Q (T2)."""
    run = fp.DiscreteLaplace(noise_parameter=0.5, sensitivity=3).sampled(fp.Poisson(0.25))
    p, q = laplace(0.5, 3)
    mixed = [(x + 3 * y) / 4 for x, y in zip(p, q, strict=True)]
    contained(run, mixed, q, ADD)


def test_what_randomised_response_does_not_hide_is_refused():
    run = fp.RandomizedResponse(chance=0.5, answers=2)
    with pytest.raises(fp.UnsupportedCombination, match=r"number of answers"):
        fp.epsilon(run, delta=1e-5, adjacency=ADD)
    for draw in (run.sampled, (run * 2).sampled, run.in_cohort):
        with pytest.raises(fp.UnsupportedCombination, match="does not amplify"):
            draw(fp.Poisson(0.1))
    assert fp.epsilon(run.sampled(fp.Everyone()), delta=0.1, adjacency=SWAP).lower > 0.0


def test_answers_have_the_law_that_is_accounted():
    """40,000 answers each: 5 sigma is off once in 1.7 million times."""
    run = fp.RandomizedResponse(chance=0.3, answers=5)
    found = run.release(np.full(40_000, 2), np.random.default_rng(1))
    counts = np.bincount(found, minlength=5) / 40_000
    for at, wanted in enumerate([0.06, 0.06, 0.76, 0.06, 0.06]):
        assert abs(counts[at] - wanted) < 5 * math.sqrt(wanted * (1 - wanted) / 40_000)


def test_discrete_noise_has_the_law_that_is_accounted():
    """40,000 draws: 5 sigma is off once in 1.7 million times."""
    run = fp.DiscreteLaplace(noise_parameter=0.7, sensitivity=2)
    found = run.release(np.full(40_000, 9), np.random.default_rng(2)) - 9
    for step in range(-3, 4):
        wanted = math.exp(-0.7 * abs(step)) * math.tanh(0.35)
        share = np.mean(found == step)
        assert abs(share - wanted) < 5 * math.sqrt(wanted * (1 - wanted) / 40_000)


def test_noise_is_added_in_whole_numbers():
    """A sum of 64 bits without a sign was rounded to a double first: a unit's 1 was always seen."""
    run = fp.DiscreteLaplace(noise_parameter=0.5)
    found = run.release(np.full(64, 2**60 + 129))
    assert found.dtype == np.int64 and len(set(found.tolist())) > 4
    with pytest.raises(fp.errors.ParameterError, match="at most 63 bits, got 'uint64'; pass int64"):
        run.release(np.array([2**60 + 129], np.uint64))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64"])
def test_releases_of_tensors_are_tensors(dtype):
    torch = pytest.importorskip("torch")
    answers = torch.tensor([[0, 1, 1]], dtype=getattr(torch, dtype))
    for run in (
        fp.DiscreteLaplace(noise_parameter=5.0),
        fp.RandomizedResponse(chance=0.1, answers=2),
    ):
        found = run.release(answers)
        assert found.dtype == torch.int64 and found.shape == (1, 3)


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 10.0])
def test_zcdp_is_the_best_of_all_orders(rho):
    """Canonne, Kamath and Steinke at the best order, found to 30 digits."""
    for delta in (1e-2, 1e-5, 1e-12):

        def converted(power, delta=delta):
            order = 1 + power
            gain = (mpmath.log(delta) + mpmath.log(order)) / power
            return rho * order + mpmath.log1p(-1 / order) - gain

        powers = [math.sqrt(-math.log(delta) / rho) * 1.01**k for k in range(-200, 100)]
        best = max(min(converted(power) for power in powers), 0)
        run = fp.ConcentratedDp(rho=rho, adjacency=ADD)
        for accountant in ("pld", "rdp"):
            found = fp.epsilon(run, delta=delta, adjacency=ADD, accountant=accountant).upper
            assert found <= best * (1 + 2e-3)
    gaussian = fp.Gaussian(noise_multiplier=1 / math.sqrt(2 * rho))
    at_least = fp.epsilon(gaussian, delta=1e-5, adjacency=ADD).lower
    for accountant in ("pld", "rdp", "advanced"):
        assert fp.epsilon(run, delta=1e-5, adjacency=ADD, accountant=accountant).upper >= at_least


def test_zcdp_divergences_are_above_the_line():
    for rho, xi in [(0.1, 0.0), (0.0, 0.3), (1e-8, 1.0), (1e6, 0.0)]:
        run = fp.ConcentratedDp(rho=rho, xi=xi, adjacency=ADD)
        orders = np.geomspace(1e-6, 1e9, 400) + 1.0
        for order in orders:
            least = (order - 1.0) * (xi + rho * order)
            assert run.curve.moments().log_moment(float(order)) >= least


def test_mu_gdp_is_a_gaussian():
    run, gaussian = fp.GaussianDp(mu=0.5, adjacency=ZERO), fp.Gaussian(noise_multiplier=2.0)
    one, other = (fp.epsilon(each * 9, delta=1e-6, adjacency=ZERO) for each in (run, gaussian))
    assert (one.resolution, one.lower) == (other.resolution, 0.0)
    with pytest.raises(fp.UnsupportedCombination, match=r"stated for adjacency='zero_out'"):
        run.privacy_loss(ADD)


ALL = [
    fp.RandomizedResponse(chance=0.5, answers=4, unit="client"),
    fp.DiscreteLaplace(noise_parameter=0.5, sensitivity=4, unit="record"),
    fp.MixtureOfGaussians(standard_deviation=1.0, sensitivities=(1.0,), probabilities=(1.0,)),
    fp.GaussianDp(mu=0.5, adjacency=ZERO),
    fp.ConcentratedDp(rho=0.5, xi=0.1, adjacency=ZERO),
]


@pytest.mark.parametrize("run", ALL, ids=lambda run: type(run).__name__)
def test_ledgers_hold_them(run):
    assert decode(encode(run * 3, REGISTRY), REGISTRY) == run * 3
    assert run.protects in (None, fp.Unit.CLIENT, fp.Unit.RECORD)


def mixture(**changed):
    given = {"standard_deviation": 1.0, "sensitivities": (0.0, 1.0), "probabilities": (0.5, 0.5)}
    return fp.MixtureOfGaussians(**given | changed)


WRONG = [
    (lambda: fp.RandomizedResponse(chance=0.0, answers=2), "chance"),
    (lambda: fp.RandomizedResponse(chance=1e-300, answers=2), "chance"),
    (lambda: fp.RandomizedResponse(chance=0.5, answers=1), "answers"),
    (lambda: fp.RandomizedResponse(chance=0.5, answers=2, unit="house"), "unit"),
    (lambda: fp.RandomizedResponse(chance=0.5, answers=2).release([2]), "value"),
    (lambda: fp.RandomizedResponse(chance=0.5, answers=2).release([0.5]), "value"),
    (lambda: fp.DiscreteLaplace(noise_parameter=0.0), "noise_parameter"),
    (lambda: fp.DiscreteLaplace(noise_parameter=100.0, sensitivity=5), "noise_parameter"),
    (lambda: fp.DiscreteLaplace(noise_parameter=1e-3, sensitivity=10_001), "sensitivity"),
    (lambda: fp.DiscreteLaplace(noise_parameter=1.0, sensitivity=1.5), "sensitivity"),
    (lambda: fp.DiscreteLaplace(noise_parameter=1.0).release(0.5), "value"),
    (lambda: mixture(standard_deviation=0.0), "standard_deviation"),
    (lambda: mixture(sensitivities=(-1.0, 1.0)), "sensitivities"),
    (lambda: mixture(sensitivities=(0.0, 0.0)), "sensitivities"),
    (lambda: mixture(sensitivities=5), "sensitivities"),
    (lambda: mixture(probabilities=(0.5,)), "probabilities"),
    (lambda: mixture(probabilities=(0.5, 0.6)), "probabilities"),
    (lambda: fp.GaussianDp(mu=0.0, adjacency=ZERO), "mu"),
    (lambda: fp.ConcentratedDp(rho=0.0, adjacency=ZERO), "rho"),
    (lambda: fp.ConcentratedDp(rho=-1.0, adjacency=ZERO), "rho"),
    (lambda: fp.ConcentratedDp(rho=1.0, adjacency="other"), "adjacency"),
]


@pytest.mark.parametrize("wrong, name", WRONG)
def test_bad_values_are_refused(wrong, name):
    with pytest.raises(fp.ParameterError, match=name):
        wrong()
