"""Properties of every setting: order, monotonicity, symmetry and consistency."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS

BOUNDED = settings(
    derandomize=True,
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def numbers(low, high):
    """Floats spread evenly over the logarithm."""
    return st.floats(math.log(low), math.log(high)).map(math.exp)


NOISE = numbers(0.6, 50.0)
RATE = numbers(1e-9, 1.0)
ROUNDS = st.integers(1, 60)
DELTA = st.one_of(numbers(1e-12, 1e-2), st.floats(1e-2, 0.999))
ADJACENCY = st.sampled_from([str(a) for a in fp.Adjacency])
POPULATION = 1000


@st.composite
def schemes(draw):
    if draw(st.booleans()):
        return fp.Poisson(draw(RATE))
    return fp.FixedSize(draw(st.integers(1, POPULATION)), population=POPULATION)


def sampled(z, scheme):
    return fp.Gaussian(noise_multiplier=z).sampled(scheme)


def ordered(bound):
    low, high = bound.resolution
    assert bound.lower >= 0.0 and 0.0 <= low <= high == bound.upper
    assert bound.lower <= bound.upper
    assert not math.isnan(high)
    return bound


def not_above(smaller, larger):
    """Whether certified intervals allow smaller's truth <= larger's truth."""
    assert ordered(smaller).resolution[0] <= ordered(larger).resolution[1]
    assert smaller.lower <= larger.upper


@BOUNDED
@given(NOISE, schemes(), ROUNDS, DELTA, ADJACENCY, numbers(1.01, 3.0))
def test_epsilon_falls_with_noise(z, scheme, rounds, delta, adjacency, factor):
    ask = {"delta": delta, "adjacency": adjacency}
    quiet = fp.epsilon(sampled(z * factor, scheme) * rounds, **ask)
    not_above(quiet, fp.epsilon(sampled(z, scheme) * rounds, **ask))


@BOUNDED
@given(NOISE, schemes(), ROUNDS, DELTA, ADJACENCY, st.integers(1, 50))
def test_epsilon_rises_with_rounds(z, scheme, rounds, delta, adjacency, more):
    ask = {"delta": delta, "adjacency": adjacency}
    step = sampled(z, scheme)
    not_above(fp.epsilon(step * rounds, **ask), fp.epsilon(step * (rounds + more), **ask))


@BOUNDED
@given(NOISE, RATE, ROUNDS, DELTA, ADJACENCY, st.floats(0.0, 1.0))
def test_epsilon_rises_with_the_probability(z, q, rounds, delta, adjacency, share):
    ask = {"delta": delta, "adjacency": adjacency}
    larger = q + (1.0 - q) * share
    not_above(
        fp.epsilon(sampled(z, fp.Poisson(q)) * rounds, **ask),
        fp.epsilon(sampled(z, fp.Poisson(larger)) * rounds, **ask),
    )


@BOUNDED
@given(NOISE, schemes(), ROUNDS, DELTA, ADJACENCY, numbers(1.1, 1e6))
def test_epsilon_falls_with_delta(z, scheme, rounds, delta, adjacency, factor):
    run = sampled(z, scheme) * rounds
    not_above(
        fp.epsilon(run, delta=min(delta * factor, 0.999), adjacency=adjacency),
        fp.epsilon(run, delta=delta, adjacency=adjacency),
    )


@BOUNDED
@given(NOISE, schemes(), ROUNDS, numbers(1e-3, 20.0), ADJACENCY, numbers(1.01, 4.0))
def test_delta_falls_with_epsilon(z, scheme, rounds, epsilon, adjacency, factor):
    run = sampled(z, scheme) * rounds
    not_above(
        fp.delta(run, epsilon=epsilon * factor, adjacency=adjacency),
        fp.delta(run, epsilon=epsilon, adjacency=adjacency),
    )


@BOUNDED
@given(NOISE, schemes(), ROUNDS, numbers(1e-20, 0.5), ADJACENCY)
def test_delta_at_epsilon_is_delta_again(z, scheme, rounds, delta, adjacency):
    run = sampled(z, scheme) * rounds
    found = fp.epsilon(run, delta=delta, adjacency=adjacency)
    if math.isinf(found.upper):
        return
    back = ordered(fp.delta(run, epsilon=found.upper, adjacency=adjacency))
    assert back.resolution[0] <= delta
    if found.resolution[0] > 0.0:
        there = ordered(fp.delta(run, epsilon=found.resolution[0], adjacency=adjacency))
        assert there.upper >= delta


@BOUNDED
@given(NOISE, NOISE, schemes(), schemes(), DELTA, ADJACENCY)
def test_order_of_two_kinds_does_not_matter(z, other, scheme, another, delta, adjacency):
    a, b = sampled(z, scheme) * 3, sampled(other, another) * 2
    forth = fp.epsilon(a + b, delta=delta, adjacency=adjacency)
    back = fp.epsilon(b + a, delta=delta, adjacency=adjacency)
    not_above(forth, back)
    not_above(back, forth)
    not_above(fp.epsilon(a, delta=delta, adjacency=adjacency), forth)
    not_above(fp.epsilon(b, delta=delta, adjacency=adjacency), forth)


@BOUNDED
@given(NOISE, schemes(), st.integers(1, 12), st.integers(1, 12), DELTA, ADJACENCY)
def test_counts_multiply(z, scheme, a, b, delta, adjacency):
    step = sampled(z, scheme)
    assert (step * a) * b == step * (a * b) == b * (a * step)
    nested = fp.epsilon((step * a) * b, delta=delta, adjacency=adjacency)
    assert nested == fp.epsilon(step * (a * b), delta=delta, adjacency=adjacency)


@BOUNDED
@given(NOISE, schemes(), ROUNDS, DELTA, ADJACENCY)
def test_the_final_view_shows_no_more(z, scheme, rounds, delta, adjacency):
    run = sampled(z, scheme) * rounds
    final, aggregate = (
        ordered(fp.epsilon(run, delta=delta, adjacency=adjacency, observer=observer))
        for observer in ("final", "aggregate")
    )
    assert final.upper <= aggregate.upper


@BOUNDED
@given(NOISE, schemes(), st.integers(2, 60), numbers(1e-12, 0.5), ADJACENCY)
def test_every_upper_end_is_above_what_is_attained(z, scheme, rounds, delta, adjacency):
    heavy = isinstance(scheme, fp.FixedSize) and adjacency == "zero_out"  # seconds a round
    run = sampled(z, scheme) * rounds
    attained = fp.epsilon(run, delta=delta, adjacency=adjacency).lower
    for accountant in ["rdp"] if heavy else ACCOUNTANTS:
        bound = fp.epsilon(run, delta=delta, adjacency=adjacency, accountant=accountant)
        assert ordered(bound).upper >= attained


@BOUNDED
@given(NOISE, RATE, st.integers(1, 8), RATE, st.integers(1, 20), DELTA)
def test_nested_cohorts_amplify_nothing_and_grow_with_everything(z, q, local, p, rounds, delta):
    inner = sampled(z, fp.Poisson(q)) * local
    ask = {"delta": delta, "adjacency": "add_remove"}
    nested = fp.epsilon(inner.in_cohort(fp.Poisson(p)) * rounds, **ask)
    not_above(nested, fp.epsilon(inner * rounds, **ask))
    not_above(nested, fp.epsilon(inner.in_cohort(fp.Poisson(p)) * (rounds + 1), **ask))
    not_above(nested, fp.epsilon(inner.in_cohort(fp.Poisson((1 + p) / 2)) * rounds, **ask))
    longer = (inner * 2).in_cohort(fp.Poisson(p)) * rounds
    not_above(nested, fp.epsilon(longer, **ask))


@BOUNDED
@given(NOISE, st.integers(1, 8), st.integers(1, POPULATION), st.integers(1, 20), DELTA, ADJACENCY)
def test_blocks_are_sampled_as_one(z, local, size, rounds, delta, adjacency):
    """A block of K Gaussian steps is one Gaussian step of noise z / sqrt(K)."""
    scheme = fp.FixedSize(size, population=POPULATION)
    ask = {"delta": delta, "adjacency": adjacency}
    block = (fp.Gaussian(noise_multiplier=z) * local).sampled(scheme) * rounds
    single = sampled(z / math.sqrt(local), scheme) * rounds
    not_above(fp.epsilon(single, **ask), fp.epsilon(block, **ask))


@pytest.mark.parametrize("delta", [0.999, 0.9, 0.5])
@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_no_epsilon_is_negative(delta, accountant):
    for z in (0.3, 1.0, 50.0):
        run = sampled(z, fp.Poisson(0.3)) * 5
        bound = fp.epsilon(run, delta=delta, adjacency="add_remove", accountant=accountant)
        assert ordered(bound).upper >= 0.0


EXTREME = [
    ("add_remove", 1.0, fp.Poisson(1e-2), 1000, 1e-30),
    ("add_remove", 0.6, fp.Poisson(1e-9), 3, 1e-12),
    ("replace_one", 0.3, fp.Poisson(1e-3), 20, 1e-6),
    ("add_remove", 50.0, fp.Poisson(1.0), 10_000, 1e-9),
    ("replace_one", 50.0, fp.FixedSize(1, population=1000), 10_000, 1e-6),
    ("add_remove", 0.6, fp.FixedSize(1, population=1000), 2, 1e-5),
    ("zero_out", 2.0, fp.FixedSize(999, population=1000), 5, 0.999),
    ("zero_out", 0.5, fp.FixedSize(1, population=1000), 1, 1e-20),
]


@pytest.mark.parametrize("adjacency, z, scheme, rounds, delta", EXTREME)
def test_extreme_settings_are_certified_too(adjacency, z, scheme, rounds, delta):
    run = sampled(z, scheme) * rounds
    bound = ordered(fp.epsilon(run, delta=delta, adjacency=adjacency))
    rdp = ordered(fp.epsilon(run, delta=delta, adjacency=adjacency, accountant="rdp"))
    assert rdp.upper >= bound.resolution[0]
    if bound.upper == 0.0:
        return
    back = ordered(fp.delta(run, epsilon=bound.upper, adjacency=adjacency))
    assert back.resolution[0] <= delta * (1 + 1e-9)


@pytest.mark.parametrize(
    "z, scheme, rounds, adjacency, accountant",
    [
        pytest.param(0.05, fp.FixedSize(10, population=100), 3, "replace_one", "pld", id="losses"),
        pytest.param(0.05, fp.FixedSize(10, population=100), 1, "replace_one", "rdp", id="fold"),
        pytest.param(0.01, fp.Poisson(0.1), 3, "add_remove", "pld", id="little noise"),
        pytest.param(1e-200, fp.Everyone(), 3, "add_remove", "pld", id="no noise"),
        pytest.param(1.0, fp.Poisson(1e-300), 3, "add_remove", "pld", id="no sampling"),
    ],
)
def test_hopeless_settings_are_answered_without_a_word(z, scheme, rounds, adjacency, accountant):
    run = sampled(z, scheme) * rounds
    bound = fp.epsilon(run, delta=1e-5, adjacency=adjacency, accountant=accountant)
    assert ordered(bound).upper >= 0.0
