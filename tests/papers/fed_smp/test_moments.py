"""Fed-SMP's Lemma 3, the moments of its epsilons and their conversion, by other computations."""

import json
import math

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.bound import Verdict
from fedprivacy.errors import ParameterError
from fedprivacy.papers.fed_smp.moments import LEMMA_3_ORDERS, OPACUS_ORDERS
from fedprivacy.published import (
    converted_epsilon,
    fed_smp_lemma_3,
    fed_smp_printed_epsilon,
    lemma_3_divergence,
)
from tests.common import ROOT

pytest.importorskip("torch")


PAPER = {"population": 6000, "cohort": 100, "rounds": 180, "delta": 6000**-1.1}
HOLDS, FAILS = Verdict.HOLDS, Verdict.FAILS
RESULTS = ROOT / "benchmarks/papers/results/published_numbers.json"


def lemma_3_epsilon(setting, sensitivity, conversion):
    """Return Lemma 3's epsilon without its account."""
    rate = setting["cohort"] / setting["population"]
    found = []
    for order in LEMMA_3_ORDERS:
        one = lemma_3_divergence(
            order=order,
            sampling_probability=rate,
            noise_multiplier=setting["noise_multiplier"],
            sensitivity=sensitivity,
        )
        total = setting["rounds"] * one
        delta = setting["population"] ** -1.1
        found.append(
            converted_epsilon(order=order, divergence=total, delta=delta, conversion=conversion)
        )
    return min(found)


@pytest.mark.parametrize(
    ("sigma", "sensitivity", "conversion", "value", "verdict"),
    [
        (1.4, 1, "improved", 1.47183, FAILS),
        (1.4, 1, "mironov", 1.81934, FAILS),
        (1.4, 2, "improved", 5.35154, HOLDS),
        (1.4, 2, "mironov", 6.30631, HOLDS),
        (1.0, 1, "improved", 2.35986, FAILS),
        (1.0, 2, "improved", 13.56182, HOLDS),
    ],
)
def test_lemma_3_as_another_implementation_has_it(sigma, sensitivity, conversion, value, verdict):
    found = fed_smp_lemma_3(
        **PAPER, noise_multiplier=sigma, sensitivity=sensitivity, conversion=conversion
    )
    assert found.epsilon == pytest.approx(value, abs=1.1e-5)
    assert found.verdict is verdict and "another client takes the place" in found.reason


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_lemma_3_holds_with_the_sensitivity_that_it_asks_for(adjacency):
    found = fed_smp_lemma_3(**PAPER, noise_multiplier=2.0, sensitivity=2, adjacency=adjacency)
    assert found.verdict is HOLDS


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("rate", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("order", [2, 3, 4, 7])
def test_the_sum_term_by_term(order, rate, sigma):
    def rho(j):
        return j / (2 * sigma**2)

    second = min(4 * (math.exp(rho(2)) - 1), 2 * math.exp(rho(2)))
    total = 1 + rate**2 * math.comb(order, 2) * second
    for j in range(3, order + 1):
        total += rate**j * math.comb(order, j) * 2 * math.exp((j - 1) * rho(j))
    found = lemma_3_divergence(order=order, sampling_probability=rate, noise_multiplier=sigma)
    assert found == pytest.approx(math.log(total) / (order - 1), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("sigma", [1.0, 1.4, 4.0])
@pytest.mark.parametrize("order", [2, 3, 8, 32])
def test_the_sum_bounds_the_divergence_of_a_cohort_of_fixed_size(order, sigma):
    step = fp.Gaussian(noise_multiplier=sigma, unit="client")
    fixed = step.sampled(fp.FixedSize(100, population=6000))
    exact = fixed.privacy_loss("add_remove").curve.moments().log_moment(order) / (order - 1)
    known = {"order": order, "sampling_probability": 1 / 60, "noise_multiplier": sigma}
    assert exact <= lemma_3_divergence(**known, sensitivity=2)
    assert sigma > 2.0 or exact > lemma_3_divergence(**known)


@pytest.mark.parametrize(
    ("sigma", "conversion", "value"),
    [
        (1.4, "mironov", 1.00767),
        (1.4, "improved", 0.744191),
        (1.0, "mironov", 2.01410),
        (2.0, "mironov", 0.58125),
        (2.5, "mironov", 0.44203),
    ],
)
def test_what_the_paper_prints(sigma, conversion, value):
    setting = {**PAPER, "noise_multiplier": sigma, "conversion": conversion}
    found = fed_smp_printed_epsilon(**setting)
    assert found.epsilon == pytest.approx(value, abs=1.1e-5)
    assert found.verdict is FAILS
    assert fed_smp_printed_epsilon(**setting, cohorts="poisson").verdict is HOLDS


def test_the_moments_of_another_library():
    event = dp_accounting.PoissonSampledDpEvent(1 / 60, dp_accounting.GaussianDpEvent(1.4))
    theirs = RdpAccountant(OPACUS_ORDERS).compose(event, 180)
    setting = {**PAPER, "noise_multiplier": 1.4, "cohorts": "poisson"}
    found = fed_smp_printed_epsilon(**setting, conversion="improved")
    assert found.epsilon == pytest.approx(theirs.get_epsilon(PAPER["delta"]), rel=1e-6)


@pytest.mark.parametrize("conversion", ["mironov", "improved"])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("order", [1.01, 1.5, 4.0, 50.0])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9])
def test_the_conversions_hold_for_the_gaussian_mechanism(delta, order, sigma, conversion):
    divergence = order / (2 * sigma**2)
    epsilon = converted_epsilon(
        order=order, divergence=divergence, delta=delta, conversion=conversion
    )
    first, second = ndtr(0.5 / sigma - epsilon * sigma), ndtr(-0.5 / sigma - epsilon * sigma)
    assert first - (math.exp(epsilon) * second if second else 0.0) <= delta


@pytest.mark.parametrize("order", [1.01, 2.0, 60.0])
@pytest.mark.parametrize("delta", [0.9, 1e-5])
def test_the_improved_conversion_is_never_above(delta, order):
    known = {"order": order, "divergence": 0.7, "delta": delta}
    improved = converted_epsilon(**known, conversion="improved")
    assert 0.0 <= improved <= converted_epsilon(**known)


def test_the_committed_table_is_of_these_functions():
    cells = json.loads(RESULTS.read_text(encoding="utf-8"))["fed_smp"]
    assert len(cells) == 5
    for cell in cells:
        kept = [reading["upper"] for reading in cell["readings"]]
        for at, (sensitivity, conversion) in enumerate(
            [(1, "mironov"), (1, "improved"), (2, "mironov"), (2, "improved")], start=3
        ):
            found = lemma_3_epsilon(cell, sensitivity, conversion)
            assert found == pytest.approx(kept[at], rel=1e-10)


def test_noise_without_a_finite_moment_claims_nothing():
    found = fed_smp_printed_epsilon(
        population=100, cohort=10, noise_multiplier=1e-160, rounds=10, delta=1e-5
    )
    assert (
        found.epsilon == math.inf and "order has a finite divergence, so there is" in found.reason
    )


@pytest.mark.parametrize("judge", [fed_smp_lemma_3, fed_smp_printed_epsilon])
@pytest.mark.parametrize(
    "change",
    [
        {"cohort": 6001},
        {"cohort": 0},
        {"rounds": 0},
        {"delta": 0.0},
        {"noise_multiplier": 0.0},
        {"noise_multiplier": math.nan},
        {"conversion": "best"},
        {"adjacency": "none"},
    ],
)
def test_bad_settings_are_refused(judge, change):
    with pytest.raises(ParameterError, match=next(iter(change))):
        judge(**{**PAPER, "noise_multiplier": 1.4, **change})


@pytest.mark.parametrize(
    ("call", "change"),
    [
        (lemma_3_divergence, {"order": 1}),
        (lemma_3_divergence, {"order": 2.5}),
        (lemma_3_divergence, {"order": 10_001}),
        (lemma_3_divergence, {"sampling_probability": 1.1}),
        (lemma_3_divergence, {"sampling_probability": 0.0}),
        (lemma_3_divergence, {"sensitivity": -1.0}),
        (converted_epsilon, {"order": 1.0}),
        (converted_epsilon, {"order": math.inf}),
        (converted_epsilon, {"divergence": -0.1}),
        (converted_epsilon, {"delta": 1.0}),
    ],
)
def test_bad_values_are_refused(call, change):
    good = {"order": 2, "sampling_probability": 0.1, "noise_multiplier": 1.0}
    if call is converted_epsilon:
        good = {"order": 2.0, "divergence": 1.0, "delta": 1e-5}
    with pytest.raises(ParameterError, match=next(iter(change))):
        call(**{**good, **change})


SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)


# ---- claims


@given(
    order=st.floats(1.01, 200.0),
    divergence=st.floats(0.0, 10.0),
    delta=st.floats(1e-9, 0.5),
)
@SETTINGS
def test_the_improved_conversion_is_never_above_the_paper_s(order, divergence, delta):
    ask = {"order": order, "divergence": divergence, "delta": delta}
    plain = converted_epsilon(**ask)
    improved = converted_epsilon(**ask, conversion="improved")
    assert plain == pytest.approx(divergence + math.log(1.0 / delta) / (order - 1.0))
    assert 0.0 <= improved <= plain
    more = converted_epsilon(**{**ask, "divergence": divergence + 1.0}, conversion="improved")
    assert improved <= more <= improved + 1.0 + 1e-9


@given(order=st.integers(2, 20), rate=st.floats(1e-3, 1.0), noise=st.floats(1.5, 20.0))
@SETTINGS
def test_lemma_three_word_by_word_in_whole_numbers(order, rate, noise):
    rho = [j / (2.0 * noise**2) for j in range(order + 1)]
    total = rate**2 * math.comb(order, 2) * min(4.0 * math.expm1(rho[2]), 2.0 * math.exp(rho[2]))
    for j in range(3, order + 1):
        total += rate**j * math.comb(order, j) * 2.0 * math.exp((j - 1) * rho[j])
    found = lemma_3_divergence(order=order, sampling_probability=rate, noise_multiplier=noise)
    assert found == pytest.approx(math.log1p(total) / (order - 1), rel=1e-9, abs=1e-13)
    # Twice the sensitivity is half the noise.
    both = {"order": order, "sampling_probability": rate}
    twice = lemma_3_divergence(**both, noise_multiplier=noise, sensitivity=2.0)
    assert twice == pytest.approx(lemma_3_divergence(**both, noise_multiplier=noise / 2.0))
    assert twice >= found
