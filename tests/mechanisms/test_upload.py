"""Uploads of Langevin, Hamiltonian and noisy gradient clients; units of several kinds."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted, ParameterError, UnsupportedCombination
from fedprivacy.ledger import REGISTRY
from fedprivacy.loss import GaussianMix, Gdp
from fedprivacy.mechanisms.upload import MAX_SHIFT, _law, contracted, summed_witness, varying
from fedprivacy.registry import decode, encode
from fedprivacy.theory.gaussian import epsilon as gdp_epsilon

DELTA = 1e-5
ROOT = math.sqrt(2.0 * math.pi)


def langevin(multiplier=5.0, **options):
    """A client whose step has this noise multiplier, by its step size."""
    settings = {
        "temperature": 1.0,
        "correlation": 0.0,
        "weight": 0.1,
        "batch_fraction": 1.0,
        "gradient_sensitivity": 2.0,
    } | options
    private = (1.0 - settings["correlation"] ** 2) * settings["weight"]
    ratio = settings["batch_fraction"] / settings["gradient_sensitivity"] / multiplier
    step = 2.0 * settings["temperature"] * private * ratio**2
    return fp.FederatedLangevin(**{"step_size": step, **settings})


def hamiltonian(**options):
    settings = {
        "step_size": 0.02,
        "leapfrog_steps": 3,
        "correlation": 0.25,
        "weight": 0.2,
        "batch_fraction": 1.0,
        "gradient_sensitivity": 2.0,
        "gradient_noise_multiplier": 8.0,
    }
    return fp.FederatedHamiltonian(**(settings | options))


def descent(**options):
    settings = {
        "step_size": 0.5,
        "noise_std": 1.0,
        "sensitivity": 0.1,
        "strong_convexity": 0.5,
        "smoothness": 2.0,
        "steps": 5,
    }
    return fp.NoisyGradientDescent(**(settings | options))


def epsilon(mechanism, **options):
    return fp.epsilon(mechanism, delta=options.pop("delta", DELTA), adjacency="replace_one")


def hockey_stick(eps, first, second):
    """delta(eps) of two mixtures of unit Gaussians [(weight, mean)], by quadrature."""

    def density(x, mixture):
        return sum(w * math.exp(-0.5 * (x - m) ** 2) for w, m in mixture) / ROOT

    def over(x):
        return max(0.0, density(x, first) - math.exp(eps) * density(x, second))

    means = [m for _, m in first + second]
    at = np.linspace(min(means) - 8.0, max(means) + 8.0, 24)
    return sum(quad(over, a, b, limit=100)[0] for a, b in itertools.pairwise(at))


def test_contraction_against_composition():
    contracts = langevin(10.0, steps=20)
    step = contracts.step_size
    known = replace(contracts, strong_convexity=0.5 / step, smoothness=1.5 / step)
    assert epsilon(known * 30).upper == pytest.approx(4.118631, rel=1e-6)
    assert epsilon(contracts * 30).upper == pytest.approx(12.870662, rel=1e-6)
    assert any("T6" in t for t in epsilon(known * 30).theorems)
    batches = replace(known, batch_fraction=0.5)
    assert any("T6 does not apply to random batches" in t for t in epsilon(batches).theorems)


def test_more_private_noise_smaller_steps_and_larger_weights_lose_less():
    base = langevin(5.0, steps=4, batch_fraction=0.2)
    lose = [
        replace(base, temperature=2.0),
        replace(base, weight=0.2),
        replace(base, step_size=base.step_size / 2.0),
        replace(base, gradient_sensitivity=1.0),
        replace(base, steps=2),
    ]
    assert all(epsilon(one).upper < epsilon(base).upper for one in lose)
    assert epsilon(replace(base, correlation=0.5)).upper > epsilon(base).upper


# What linear losses show


def exact_law(weights, fraction):
    law = {0: Fraction(1)}
    q = Fraction(fraction)
    for weight in weights:
        longer = {}
        for total, mass in law.items():
            longer[total] = longer.get(total, 0) + mass * (1 - q)
            longer[total + weight] = longer.get(total + weight, 0) + mass * q
        law = longer
    return law


@pytest.mark.parametrize("fraction", [0.5, 0.01, 0.3])
@pytest.mark.parametrize("weights", [[1] * 12, [3, 2, 2, 1, 1], [5], [7] * 9 + [4] * 3])
def test_law_of_a_witness_never_shows_more(weights, fraction):
    exact, found = exact_law(weights, fraction), _law(weights, fraction)
    masses = [exact.get(total, Fraction(0)) for total in range(sum(weights) + 1)]
    assert math.isclose(math.fsum(found), 1.0, rel_tol=1e-15)
    above_exact = above_found = 0.0
    for total in range(sum(weights), 0, -1):
        above_exact += masses[total]
        above_found += Fraction(float(found[total])) if total < len(found) else 0
        assert above_found <= above_exact
    rest = [float(m) for m in masses[1 : len(found)]]
    assert np.allclose(found[1:], rest, rtol=1e-12, atol=1e-19)


def test_long_blocks_have_no_witness_and_take_no_time():
    assert _law([1] * 10**6, 0.5) is None
    assert summed_witness([1] * 10**5, 0.5, 1.0, 1.0) is None
    assert len(_law([1] * 10**4, 1e-3)) < 100


def test_tiny_noise_is_a_large_shift_and_no_overflow():
    witness = summed_witness([1, 1], 0.5, 1e-300, 1.0)
    assert isinstance(witness.curve, GaussianMix)
    assert summed_witness([1], 1.0, 0.0, 1.0).curve == Gdp(MAX_SHIFT)
    almost = langevin(1.0, correlation=0.0, steps=3, batch_fraction=0.5)
    # The loss is above 1e15 on average: a number without use, and without an overflow.
    assert epsilon(replace(almost, correlation=1.0 - 1e-16)).upper > 1e15


@pytest.mark.parametrize("fraction", [1.0, 0.25])
@pytest.mark.parametrize("eps", [0.1, 0.7])
def test_two_steps_seen_at_their_end(fraction, eps):
    multiplier = 2.0
    block = langevin(multiplier, steps=2, batch_fraction=fraction)
    q, far = fraction, 1.0 / (math.sqrt(2.0) * multiplier)
    shown = [((1 - q) ** 2, 0.0), (2 * q * (1 - q), far), (q * q, 2 * far)]
    there = hockey_stick(eps, shown, [(1.0, 0.0)])
    back = hockey_stick(eps, [(1.0, 0.0)], shown)
    bound = fp.delta(block, epsilon=eps, adjacency="replace_one")
    assert bound.lower == pytest.approx(max(there, back), rel=1e-4)
    assert max(there, back) <= bound.upper * (1.0 + 1e-9)


def test_iterations_inside_an_upload_show_less_than_one_by_one():
    whole = hamiltonian(iterations=6, batch_fraction=0.3, gradient_noise_multiplier=3.0)
    one_by_one = replace(whole, iterations=1) * 6
    assert epsilon(whole).upper == pytest.approx(epsilon(one_by_one).upper, rel=1e-6)
    assert epsilon(whole).lower < epsilon(one_by_one).lower
    exact = replace(whole, batch_fraction=1.0)
    together, apart = epsilon(exact), epsilon(replace(exact, iterations=1) * 6)
    assert together.lower == pytest.approx(apart.lower, rel=1e-6)


# Contraction


def end_of_quadratic(curvature, step_size, steps, multiplier):
    """mu of the end of noisy gradient steps whose gradient moves by a constant, by recursion."""
    slope, shift, variance = 1.0 - step_size * curvature, 0.0, 0.0
    for _ in range(steps):
        shift, variance = slope * shift + 1.0, slope**2 * variance + 1.0
    return abs(shift) / math.sqrt(variance) / multiplier


@pytest.mark.parametrize("step_size", [0.1, 0.6, 0.95, 1.9])
@pytest.mark.parametrize("steps", [1, 2, 7, 60])
def test_no_quadratic_of_the_class_shows_more_than_t6(step_size, steps):
    low, high, multiplier = 0.3, 1.05, 4.0
    curve, attained = contracted(multiplier, steps, step_size, (low, high))
    shown = end_of_quadratic(low, step_size, steps, multiplier)
    assert attained.mu == pytest.approx(shown, rel=1e-12)
    for curvature in np.linspace(low, high, 31):
        assert end_of_quadratic(curvature, step_size, steps, multiplier) <= curve.mu * (1 + 1e-12)


def test_a_slow_quadratic_beside_a_fast_one_keeps_its_digits():
    steps, slow = 1000, 1e-13
    attained = contracted(1.0, steps, 1.0, (slow, 2.0 - 1e-14))[1]
    assert attained.mu == pytest.approx(math.sqrt(steps), rel=1e-9)
    assert attained.mu <= math.sqrt(steps) * (1.0 + 1e-15)


# Steps that differ


def test_step_sizes_that_differ():
    sizes = (4e-3, 2e-3, 1e-3)
    base = langevin(1.0, steps=3)
    varied = replace(base, step_size=sizes)
    squares = [1.0 / replace(base, step_size=s, steps=1).step_multiplier ** 2 for s in sizes]
    bound = epsilon(varied)
    assert bound.upper == pytest.approx(gdp_epsilon(math.sqrt(sum(squares)), DELTA), rel=1e-9)
    assert bound.lower == pytest.approx(bound.upper, rel=1e-6)
    batches = replace(varied, batch_fraction=0.5)
    assert epsilon(batches).lower == 0.0 < epsilon(batches).upper
    assert replace(base, step_size=(1e-3,) * 3) == replace(base, step_size=1e-3)
    contracts = replace(varied, strong_convexity=1.0, smoothness=2.0)
    assert any("T6" in t for t in epsilon(contracts).theorems)
    assert epsilon(contracts).upper < bound.upper
    assert epsilon(replace(contracts, batch_fraction=0.5)).lower == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_t6_with_steps_that_differ_holds_every_linear_loss_of_the_class(seed):
    """125 random settings each: the exact Gaussian end of any curvature, drifts of best signs."""
    generator = np.random.default_rng(seed)
    for _ in range(125):
        low = 10 ** generator.uniform(-2, 0)
        high = low * (1 + 10 ** generator.uniform(-2, 2))
        steps = int(generator.integers(2, 40))
        sizes = tuple((2 / high * generator.uniform(0.01, 0.999, steps)).tolist())
        curve, attained = varying(3.0, sizes, (low, high))
        assert attained.mu <= curve.mu * (1 + 1e-12)
        for curvature in (low, high, *generator.uniform(low, high, 3)):
            left = np.append(1.0, np.cumprod(1 - np.array(sizes)[:0:-1] * curvature))[::-1]
            best = np.sum(np.abs(left) * sizes) / math.sqrt(np.sum(left**2 * sizes)) / 3.0
            assert best <= curve.mu * (1 + 1e-12)
        left = np.append(1.0, np.cumprod(1 - np.array(sizes)[:0:-1] * low))[::-1]
        shown = abs(np.sum(left * sizes)) / math.sqrt(np.sum(left**2 * sizes)) / 3.0
        assert attained.mu == pytest.approx(shown, rel=1e-9)
        equal = varying(3.0, (sizes[0],) * steps, (low, high))[0].mu
        one = contracted(3.0 / math.sqrt(sizes[0]), steps, sizes[0], (low, high))[0].mu
        assert equal == pytest.approx(one, rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {"step_size": 0.95, "strong_convexity": 2.0, "smoothness": 2.05, "steps": 40},
        {"step_size": 1.9, "strong_convexity": 0.1, "smoothness": 1.0, "steps": 40},
    ],
)
def test_a_drift_that_changes_sides_attains_t6_near_its_largest_step(options):
    client = descent(sensitivity=1.0, noise_std=2.0, **options)
    found = epsilon(client)
    assert found.upper * 0.9999 <= found.lower <= found.upper
    assert "every step crosses it" in found.witness
    flat = replace(client, strong_convexity=client.smoothness)
    assert "every step crosses it" not in epsilon(flat).witness


def test_a_drift_that_changes_sides_simulated():
    """20,000 runs from far away: the end moves by what the lower end says, none is misplaced."""
    step, curvature, steps, sensitivity, std = 0.95, 2.04, 40, 1.0, 2.0
    slope, generator, ends = 1 - step * curvature, np.random.default_rng(7), []
    for drift in (0.0, sensitivity):
        place = np.full(20_000, 1e4)
        for _ in range(steps):
            place = slope * place + step * drift * np.sign(place)
            place += generator.normal(0.0, std, len(place))
        ends.append(place)
    moved = abs(np.mean(ends[1]) - np.mean(ends[0])) / np.std(ends[0])
    client = descent(
        sensitivity=sensitivity,
        noise_std=std,
        step_size=step,
        steps=steps,
        strong_convexity=2.0,
        smoothness=2.05,
    )
    mu = client.privacy_loss("replace_one").witness.curve.mu
    assert moved <= mu + 5 * math.sqrt(2 / 20_000)  # 5 standard errors: once in 3 million
    assert moved >= 0.95 * mu


# No noise


@pytest.mark.parametrize(
    "client",
    [
        langevin(5.0, steps=3, batch_fraction=0.5),
        hamiltonian(leapfrog_steps=1, gradient_noise_multiplier=0.0),
        hamiltonian(gradient_noise_multiplier=0.0),
    ],
    ids=["langevin", "one step", "trajectory"],
)
def test_all_noise_shared_is_no_privacy(client, tmp_path):
    naked = replace(client, correlation=1.0)
    assert (
        epsilon(naked).upper == epsilon(naked.in_cohort(fp.FixedSize(1, 10)) * 3).upper == math.inf
    )
    assert epsilon(naked).lower > 1e7
    budget = fp.Budget(1e6, DELTA, adjacency="replace_one")
    assert not budget.allows(naked)
    with pytest.raises(BudgetExhausted):
        budget.spend(naked)
    path = tmp_path / "run.ledger"
    with fp.Ledger.create(path, unit="record", adjacency="replace_one") as ledger:
        ledger.done(
            ledger.intent(naked, clip_norm=1.0, noise_std=1.0),
            cohort=1,
            arrived=1,
            refused=0,
            noise_std=1.0,
        )
        ledger.close()
    assert fp.account(fp.Ledger.open(path), delta=DELTA).upper == math.inf
    assert fp.audit(path, claim=(50.0, DELTA)).verdict is fp.Verdict.FAILS


# Records, facts, bad input

EVERY = [
    langevin(steps=3),
    replace(langevin(steps=3), step_size=(3e-3, 2e-3, 1e-3)),
    replace(langevin(), strong_convexity=1.0, smoothness=2.0),
    hamiltonian(),
    hamiltonian(step_size=(0.1, 0.2), iterations=2),
    descent(),
    fp.Parallel((langevin(3.0), langevin(9.0))).in_cohort(fp.Poisson(0.3)),
]


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda m: type(m).__name__)
def test_uploads_are_recorded_exactly(mechanism):
    assert decode(encode(mechanism, REGISTRY), REGISTRY) == mechanism


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda m: type(m).__name__)
def test_only_replaced_records_are_served(mechanism):
    assert mechanism.protects is fp.Unit.RECORD
    for adjacency in ("add_remove", "zero_out"):
        with pytest.raises(UnsupportedCombination, match="replace_one"):
            mechanism.privacy_loss(adjacency)
    seen = {o: epsilon_for(mechanism, o) for o in ("aggregate", "server", "final")}
    assert len({b.upper for b in seen.values()}) == 1 and seen["final"].lower == 0.0


def epsilon_for(mechanism, observer):
    return fp.epsilon(mechanism, delta=DELTA, adjacency="replace_one", observer=observer)


@pytest.mark.parametrize("mechanism", [langevin(), hamiltonian()], ids=lambda m: type(m).__name__)
def test_records_are_not_sampled_twice(mechanism):
    with pytest.raises(UnsupportedCombination, match="in_cohort"):
        mechanism.sampled(fp.Poisson(0.1))


BAD = [
    (langevin(), {"correlation": 1.5}, "correlation must lie between"),
    (langevin(), {"correlation": -0.1}, "correlation must lie"),
    (langevin(), {"correlation": math.nan}, "NaN"),
    (langevin(), {"step_size": 0.0}, "step_size must be"),
    (langevin(), {"step_size": math.inf}, "step_size must be"),
    (langevin(), {"step_size": (1e-3, 1e-3)}, "one per step, 1 in all"),
    (langevin(steps=2), {"step_size": (1e-3, -1e-3)}, "step_size must be"),
    (langevin(), {"temperature": 0.0}, "temperature must be"),
    (langevin(), {"weight": 0.0}, "weight must be"),
    (langevin(), {"weight": 1.1}, "weight must be"),
    (langevin(), {"batch_fraction": 1.2}, "batch_fraction must be"),
    (langevin(), {"gradient_sensitivity": 0.0}, "gradient_sensitivity must be"),
    (langevin(), {"steps": 0}, "steps must be"),
    (langevin(), {"strong_convexity": 1.0}, "be given together or not at all"),
    (langevin(), {"strong_convexity": 3.0, "smoothness": 2.0}, "at most smoothness"),
    (
        langevin(),
        {"step_size": 1.0, "strong_convexity": 1.0, "smoothness": 2.0},
        "below 2 / smooth",
    ),
    (hamiltonian(), {"leapfrog_steps": 0}, "leapfrog_steps must be"),
    (hamiltonian(), {"iterations": 1.5}, "iterations must be"),
    (hamiltonian(), {"gradient_noise_multiplier": -1.0}, "gradient_noise_multiplier must be"),
    (hamiltonian(), {"correlation": 2.0}, "correlation must lie between"),
    (descent(), {"step_size": 1.0}, "below 2 / smoothness"),
    (descent(), {"noise_std": 0.0}, "noise_std must be"),
    (descent(), {"strong_convexity": 0.0}, "strong_convexity must be"),
    (descent(), {"steps": 0}, "steps must be"),
]


@pytest.mark.parametrize("base, change, wanted", BAD)
def test_bad_values(base, change, wanted):
    with pytest.raises(ParameterError, match=wanted):
        replace(base, **change)


@pytest.mark.slow
def test_random_settings_contain_their_witness_and_the_closed_forms():
    chance = np.random.default_rng(11)
    for _ in range(60):
        multiplier, steps = float(chance.uniform(1.0, 20.0)), int(chance.integers(1, 30))
        fraction = float(chance.choice([1.0, chance.uniform(0.02, 0.9)]))
        rounds = int(chance.integers(1, 20))
        client = langevin(multiplier, steps=steps, batch_fraction=fraction)
        run = client.in_cohort(fp.FixedSize(3, int(chance.integers(3, 12)))) * rounds
        bound = epsilon(run)
        assert 0.0 <= bound.lower <= bound.upper
        assert bound.upper <= gdp_epsilon(math.sqrt(steps * rounds) / multiplier, DELTA) + 1e-9


LARGE = {
    "langevin": fp.FederatedLangevin(
        step_size=1.0,
        temperature=1e308,
        correlation=0.0,
        weight=1.0,
        batch_fraction=1.0,
        gradient_sensitivity=1e154,
    ),
    "descent": fp.NoisyGradientDescent(
        step_size=1e-200, noise_std=1.0, sensitivity=1e-200, steps=3
    ),
    "long steps": fp.NoisyGradientDescent(
        step_size=1e200, noise_std=1e300, sensitivity=1e200, steps=3
    ),
}


@pytest.mark.parametrize("run", LARGE.values(), ids=list(LARGE))
def test_noise_that_overflows_hides_nothing(run):
    """The first costs 3.0 at delta = 1e-5, and an epsilon of 0 was certified and audited."""
    with pytest.raises(ParameterError, match="noise over sensitivity must be finite"):
        fp.epsilon(run, delta=1e-5, adjacency="replace_one")


def test_payments_that_underflow_pay_for_nothing():
    """Their squares were 0, and so was the epsilon of a run that loses everything."""
    kept = {"sensitivity": 1.0, "strong_convexity": 1.0, "smoothness": 2.0, "penalty": 1.0}
    kept |= {"local_steps": 3, "rounds": 3}
    with pytest.raises(ParameterError, match="step_size must be a number from 1e-50"):
        fp.SplittingRun(step_size=1e-200, noise_scale=1e-100, **kept)
    run = fp.SplittingRun(step_size=1e-50, noise_scale=1e-50, **kept)
    seen = {"delta": 1e-5, "adjacency": "replace_one"}
    assert fp.epsilon(run, observer="final", **seen).upper > 1.0
