"""The best of a random number of trials (T14, Papernot and Steinke 2022)."""

import itertools
import json
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.accountants.pld import delta_interval
from fedprivacy.integrations.dp_accounting import to_event
from fedprivacy.ledger import REGISTRY
from fedprivacy.mechanisms.base import mechanisms_in
from fedprivacy.mechanisms.selection import log_stops
from fedprivacy.registry import decode, encode

LAWS = [
    *(
        fp.TruncatedNegativeBinomial(mean=mean, shape=shape)
        for shape in (-0.5, 0.0, 1.0, 3.0)
        for mean in (1.0, 1.5, 20.0)
    ),
    *(fp.PoissonTrials(mean) for mean in (0.1, 1.0, 20.0)),
]
ACCOUNTANTS = ("pld", "rdp", "advanced")


def generating(law):
    """Return x -> E x^K for arrays, from the definition of the law."""
    if isinstance(law, fp.PoissonTrials):
        return lambda x: np.exp(law.mean * (np.asarray(x) - 1.0))
    gamma = math.exp(-log_stops(law.mean, law.shape))
    if gamma == 1.0:
        return np.asarray
    if law.shape == 0.0:
        return lambda x: np.log1p(-(1.0 - gamma) * np.asarray(x)) / math.log(gamma)
    bottom = gamma**-law.shape - 1.0
    return lambda x: ((1.0 - (1.0 - gamma) * np.asarray(x)) ** -law.shape - 1.0) / bottom


def best(masses, law):
    """Return the law of the best of K outcomes, the last being the best; first: no trial."""
    below = np.minimum(np.concatenate([[0.0], np.cumsum(masses)]), 1.0)
    below[-1] = 1.0
    made = generating(law)(below)
    return np.concatenate([[made[0]], np.diff(made)])


def lost(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def epsilon(run, delta, accountant="pld", adjacency="add_remove"):
    return fp.epsilon(run, delta=delta, adjacency=adjacency, accountant=accountant)


def orders(p, q):
    """Return the pair with its outcomes in every order, or in some hundreds of orders."""
    for order in itertools.islice(itertools.permutations(range(len(p))), 0, 720, 1):
        yield p[list(order)], q[list(order)]


# ---- brute force: every order of the outcomes, every law


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_approximate_responses_are_contained_in_every_order(law):
    """Failing randomised response is the worst (epsilon, delta)-DP; its best has a law by hand."""
    e, d = 0.7, 1e-3
    truth = (1 - d) / (1 + math.exp(e))
    p = np.array([d, truth * math.exp(e), truth, 0.0])
    q = p[[3, 2, 1, 0]]
    base = fp.ApproximateDp(guarantees=((e, d),), adjacency="add_remove")
    run = fp.PrivateSelection(base, trials=law)
    for accountant in ("pld", "advanced"):
        for delta in (0.3, 0.05):
            upper = epsilon(run, delta, accountant).upper
            for first, second in orders(p, q):
                found = lost(best(first, law), best(second, law), upper)
                assert found <= delta + 1e-12


@pytest.mark.fast_cells(15)
@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_randomised_responses_with_ties_broken_finely_are_contained(law, accountant):
    """A grid of 40 settings a response: outcome (answer, tag), in four orders of each."""
    half = np.full(40, 1 / 40)
    p, q = np.concatenate([0.7 * half, 0.3 * half]), np.concatenate([0.3 * half, 0.7 * half])
    run = fp.PrivateSelection(fp.RandomizedResponse(chance=0.6, answers=2), trials=law)
    mixed = np.random.default_rng(1).permutation(80)
    for delta in (0.2, 1e-3):
        upper = epsilon(run, delta, accountant, "replace_one").upper
        for order in (np.arange(80), np.arange(80)[::-1], mixed, np.argsort(np.arange(80) % 40)):
            found = lost(best(p[order], law), best(q[order], law), upper)
            assert found <= delta + 1e-12


@pytest.mark.fast_cells(8)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_gaussians_that_show_the_largest_are_contained(law):
    """The score is the output: cells of a line, which lose less than its points."""
    run = fp.PrivateSelection(fp.Gaussian(noise_multiplier=2.0), trials=law)
    cells = np.linspace(-6.0, 7.0, 1500)
    p, q = (np.diff(np.concatenate([[0.0], ndtr(cells - x), [1.0]])) for x in (0.5, 0.0))
    for delta in (0.1, 1e-4):
        for accountant in ACCOUNTANTS:
            upper = epsilon(run, delta, accountant).upper
            for a, b in ((p, q), (q, p), (p[::-1], q[::-1]), (q[::-1], p[::-1])):
                assert lost(best(a, law), best(b, law), upper) <= delta + 1e-12


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("order", [1.2, 2.0, 9.0])
def test_moments_are_contained(law, order):
    curve = fp.PrivateSelection(fp.Gaussian(noise_multiplier=2.0), trials=law)
    found = curve.privacy_loss("add_remove").curve.moments().log_moment(order)
    cells = np.linspace(-6.0, 7.0, 1500)
    p, q = (np.diff(np.concatenate([[0.0], ndtr(cells - x), [1.0]])) for x in (0.5, 0.0))
    for a, b in ((p, q), (q, p), (p[::-1], q[::-1])):
        top, low = best(a, law), best(b, law)
        kept = (top > 1e-13) & (low > 1e-13)  # what differences of a distribution still know
        sum_of = float(np.sum(top[kept] ** order * low[kept] ** (1 - order)))
        assert math.log(sum_of) <= found + 1e-9


# ---- peers, and closed forms


@pytest.mark.fast_cells(11)
@pytest.mark.parametrize(
    "base",
    [
        fp.Gaussian(noise_multiplier=4.0),
        fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.01)) * 300,
    ],
)
@pytest.mark.parametrize(
    "law", [law for law in LAWS if law.mean >= 1 and getattr(law, "shape", 0) >= 0], ids=str
)
def test_against_dp_accounting(base, law):
    run = fp.PrivateSelection(base, trials=law)
    theirs = RdpAccountant().compose(to_event(run, adjacency="add_remove")).get_epsilon(1e-6)
    rdp, pld = (epsilon(run, 1e-6, accountant).upper for accountant in ("rdp", "pld"))
    assert pld <= theirs * 1.001
    if isinstance(law, fp.TruncatedNegativeBinomial):
        # One theorem; theirs searches whole orders mostly, ours has chords between orders.
        assert theirs * 0.98 <= rdp <= theirs * 1.02
    else:
        assert rdp <= theirs


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("mean", [2.0, 1e6])
def test_pure_privacy_costs_two_and_eta_times_as_much(shape, mean):
    """Liu and Talwar (2019), Theorem 1.3 where the law is geometric: 3 epsilon."""
    law = fp.TruncatedNegativeBinomial(mean=mean, shape=shape)
    run = fp.PrivateSelection(fp.Laplace(noise_multiplier=2.0), trials=law)
    bound = epsilon(run, 0.0)
    assert bound.upper <= (2 + shape) * 0.5 * (1 + 1e-9)
    assert run.privacy_loss("add_remove").curve.support().largest.high == pytest.approx(bound.upper)


@pytest.mark.parametrize("shape", [5e-324, -5e-324, 1e-310])
@pytest.mark.parametrize("mean", [1.0 + 1e-9, 10.0, 1e12])
def test_a_shape_next_to_0_is_the_logarithmic_law(shape, mean):
    near, at = (fp.TruncatedNegativeBinomial(mean=mean, shape=one) for one in (shape, 0.0))
    assert near.stops == at.stops


def test_delta_falls_with_the_mean_of_trials():
    """Many trials of an (epsilon, delta) base: the mean times delta, and what pure ones cost.

    That is e + (1 + eta) log((gamma + E) / (1 + gamma E)), E = e^e, attained by responses.
    """
    base = fp.ApproximateDp(guarantees=((0.5, 1e-7),), adjacency="add_remove")
    law = fp.TruncatedNegativeBinomial(mean=10, shape=1.0)
    run = fp.PrivateSelection(base, trials=law)
    assert epsilon(run, 0.9e-6).upper == math.inf
    gamma, e = 0.1, math.exp(0.5)
    pure = 0.5 + 2.0 * math.log((gamma + e) / (1.0 + gamma * e))
    assert pure - 1e-3 <= epsilon(run, 1.1e-6).upper <= pure * 1.01


# ---- lower ends, facts, refusals


def test_one_trial_is_the_base():
    base = fp.Gaussian(noise_multiplier=1.5)
    run = fp.PrivateSelection(base, trials=fp.TruncatedNegativeBinomial(mean=1.0, shape=1.0))
    alone, one = epsilon(base, 1e-5), epsilon(run, 1e-5)
    assert alone.lower <= one.upper <= alone.upper * 1.002
    assert one.lower == pytest.approx(alone.lower, rel=1e-3)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_score_that_is_always_the_same_shows_the_base(law):
    base = fp.Gaussian(noise_multiplier=2.0)
    loss = fp.PrivateSelection(base, trials=law).privacy_loss("add_remove")
    assert "same score" in loss.witness.datasets
    shown = 1.0 - float(generating(law)(0.0))
    alone = delta_interval(base.privacy_loss("add_remove").curve, 0.5)
    there = delta_interval(loss.witness.curve, 0.5)
    assert there[0] <= shown * alone[1] * (1 + 1e-12)
    assert there[1] == pytest.approx(shown * alone[1], rel=1e-6)


def test_the_base_decides_on_units_and_adjacencies():
    base = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Poisson(0.1)) * 10
    run = fp.PrivateSelection(base, trials=fp.PoissonTrials(4))
    assert (run.protects, run.traits.samples_its_unit) == (fp.Unit.CLIENT, True)
    for adjacency in ("add_remove", "zero_out", "replace_one"):
        bound = epsilon(run, 1e-5, adjacency=adjacency)
        assert 0.0 < bound.lower < bound.upper < math.inf
    assert epsilon(run * 2, 1e-5).upper > epsilon(run, 1e-5).upper
    assert any("mean of trials = 4" in each for each in run.privacy_loss("zero_out").assumed)
    stated = fp.ApproximateDp(guarantees=((1.0, 0.0),), adjacency="zero_out")
    with pytest.raises(fp.UnsupportedCombination, match="was stated for"):
        epsilon(fp.PrivateSelection(stated, trials=fp.PoissonTrials(4)), 1e-5)


def test_who_sees_every_trial_is_refused():
    law = fp.TruncatedNegativeBinomial(mean=4, shape=0)
    run = fp.PrivateSelection(fp.Gaussian(noise_multiplier=2.0), trials=law)
    for each in (run, run.sampled(fp.Poisson(0.5)), run * 2):
        with pytest.raises(
            fp.UnsupportedCombination,
            match=r"account for observer='aggregate', or compose all trials: base",
        ):
            fp.epsilon(each, delta=1e-5, adjacency="zero_out", observer="server")


def test_units_that_differ_are_chosen_among_kind_by_kind():
    one, two = (fp.Gaussian(noise_multiplier=z) for z in (2.0, 3.0))
    law = fp.PoissonTrials(4)
    both = fp.PrivateSelection(fp.Parallel((one, two)), trials=law)
    assert epsilon(both, 1e-5).upper == epsilon(fp.PrivateSelection(one, trials=law), 1e-5).upper


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_selections_are_kept_as_json(law):
    run = fp.PrivateSelection(fp.Gaussian(noise_multiplier=2.0) * 3, trials=law)
    assert decode(json.loads(json.dumps(encode(run, REGISTRY))), REGISTRY) == run


@pytest.mark.parametrize(
    "name, value, make",
    [
        ("mean", 0.5, lambda v: fp.TruncatedNegativeBinomial(mean=v, shape=1)),
        ("mean", 2e12, lambda v: fp.TruncatedNegativeBinomial(mean=v, shape=1)),
        ("mean", math.nan, lambda v: fp.TruncatedNegativeBinomial(mean=v, shape=1)),
        ("mean", True, lambda v: fp.PoissonTrials(v)),
        ("mean", "4", lambda v: fp.PoissonTrials(v)),
        ("mean", 0.0, lambda v: fp.PoissonTrials(v)),
        ("shape", -1.0, lambda v: fp.TruncatedNegativeBinomial(mean=2, shape=v)),
        ("shape", math.inf, lambda v: fp.TruncatedNegativeBinomial(mean=2, shape=v)),
        ("base", 3, lambda v: fp.PrivateSelection(v, trials=fp.PoissonTrials(4))),
        ("trials", 10, lambda v: fp.PrivateSelection(fp.Gaussian(noise_multiplier=1.0), trials=v)),
    ],
)
def test_bad_values_are_named(name, value, make):
    with pytest.raises(fp.ParameterError, match=rf"^{name} must .*got {value!r}"):
        make(value)


# ---- the draw


@pytest.mark.parametrize("law", [law for law in LAWS if hasattr(law, "shape")], ids=str)
def test_the_law_that_is_drawn_is_the_one_that_is_accounted(law):
    """Chances one by one against the generating function's derivatives at 0, in 40 digits."""
    with mpmath.workdps(40):
        gamma = mpmath.exp(-mpmath.mpf(log_stops(law.mean, law.shape)))

        def chance(k):
            if gamma == 1:
                return mpmath.mpf(k == 1)
            raw = (1 - gamma) ** k * mpmath.rf(law.shape, k) / mpmath.factorial(k)
            if law.shape == 0:
                return (1 - gamma) ** k / (k * -mpmath.log(gamma))
            return raw / (gamma ** -mpmath.mpf(law.shape) - 1)

        below = mpmath.mpf(0)
        for k in range(1, 30):
            middle = below + chance(k) / 2
            below += chance(k)
            if chance(k) > 1e-9:
                assert law._one_by_one(float(middle)) == k


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_have_the_mean_and_the_chance_of_one(law):
    """100,000 draws: fails by accident once in 1e6 times or less (5 standard deviations)."""
    generator = np.random.default_rng(7)
    drawn = np.array([law.draw(generator) for _ in range(100_000)])
    assert abs(drawn.mean() - law.mean) <= 5.0 * drawn.std() / math.sqrt(len(drawn)) + 1e-12
    made = generating(law)
    for k, chance in ((0, float(made(0.0))), (1, float((made(1e-7) - made(0.0)) / 1e-7))):
        spread = math.sqrt(chance * (1 - min(chance, 1.0)) / len(drawn))
        assert abs((drawn == k).mean() - chance) <= 5.0 * spread + 1e-4


def test_other_laws_have_no_event():
    event = to_event(
        fp.PrivateSelection(fp.Gaussian(noise_multiplier=2.0), trials=fp.PoissonTrials(4)),
        adjacency="zero_out",
    )
    assert type(event) is dp_event.RepeatAndSelectDpEvent
    assert event.shape == math.inf


def test_trials_that_differ_cost_no_less_than_the_dearest_and_no_more_than_worse_ones():
    law = fp.TruncatedNegativeBinomial(mean=4, shape=0)
    cheap, dear = (fp.Gaussian(noise_multiplier=z) for z in (4.0, 2.0))
    alone = epsilon(fp.PrivateSelection(dear, trials=law), 1e-5)
    for base, others in ((cheap, (dear,)), (dear, (cheap,)), (dear, (dear, cheap))):
        mixed = epsilon(fp.PrivateSelection(base, trials=law, others=others), 1e-5)
        assert mixed.upper == alone.upper, "a larger multiplier loses less at every order"
        assert mixed.lower == 0.0, "how settings are drawn is not known"
    few, many = dear.sampled(fp.Poisson(0.1)) * 3, fp.Laplace(noise_multiplier=2.0)
    both = epsilon(fp.PrivateSelection(few, trials=law, others=(many,)), 1e-5).upper
    assert both >= max(epsilon(fp.PrivateSelection(x, trials=law), 1e-5).upper for x in (few, many))


def test_a_law_of_two_trials_that_differ_is_contained():
    """Each trial is one of two randomised responses, drawn evenly; scores in every order."""
    law = fp.TruncatedNegativeBinomial(mean=3, shape=1)
    one, two = (fp.RandomizedResponse(chance=c, answers=2) for c in (0.6, 0.3))
    run = fp.PrivateSelection(one, trials=law, others=(two,))
    p = np.array([0.35, 0.15, 0.425, 0.075])
    q = p[[1, 0, 3, 2]]
    for delta in (0.2, 0.01):
        upper = epsilon(run, delta, "pld", "replace_one").upper
        for first, second in orders(p, q):
            assert lost(best(first, law), best(second, law), upper) <= delta + 1e-12


def test_others_are_asked_and_checked():
    law, base = fp.PoissonTrials(4), fp.Gaussian(noise_multiplier=2.0, unit="client")
    with pytest.raises(fp.ParameterError, match=r"^others must be a mechanism"):
        fp.PrivateSelection(base, trials=law, others=(3,))
    with pytest.raises(fp.ParameterError, match=r"^others must protect the same unit"):
        other = fp.Gaussian(noise_multiplier=2.0, unit="record")
        fp.PrivateSelection(base, trials=law, others=(other,))
    both = fp.PrivateSelection(base, trials=law, others=(replace(base, noise_multiplier=3.0),))
    assert both.noise_ratios(1.0) == {2.0, 3.0}
    assert [each.noise_multiplier for each in mechanisms_in(both.rescaled(0.5))] == [1.0, 1.5]
    with pytest.raises(fp.errors.ConversionError, match="trials differ"):
        to_event(both, adjacency="zero_out")


def test_trials_are_drawn_from_a_generator():
    for trials in (fp.PoissonTrials(3.0), fp.TruncatedNegativeBinomial(mean=3.0, shape=0.0)):
        with pytest.raises(fp.ParameterError, match="generator must be a NumPy generator, got 5"):
            trials.draw(5)
