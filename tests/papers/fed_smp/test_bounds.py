"""Tests of ``fedprivacy.papers.fed_smp.bounds``."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprivacy.errors import ParameterError
from fedprivacy.papers.fed_smp.bounds import preferred_kept
from tests.papers.averaging.test_bounds import SMP, quiet

pytest.importorskip("torch")

from fedprivacy.papers.fed_smp.bounds import SmpSetting, fed_smp_bound


def test_fed_smp_word_by_word():
    bound = fed_smp_bound(SmpSetting(**SMP))
    k, d, r, tau, t, smooth, e0, zeta, _, kappa, eta, sigma, clip = SMP.values()
    phi = d / k - 1
    start = 8 * e0 / (t * eta * tau) + 8 * eta * tau * smooth * (3 * kappa + 2 * zeta)
    assert bound.term("optimisation") == pytest.approx(start)
    sparse = 8 * eta * tau * smooth * (2 * kappa + zeta) * phi
    assert bound.term("sparsification") == pytest.approx(sparse)
    noise = 4 * smooth * k * clip**2 * sigma**2 / (eta * tau * r**2)
    assert bound.term("privacy noise") == pytest.approx(noise)
    assert bound.value == pytest.approx(start + sparse + noise)


def test_fed_smp_top_k_word_by_word():
    top = {**SMP, "kept": 70, "sparsifier": "top_k"}
    sparse = (8 * 4e-3 * 2 * (2 * 0.5 + 1) + 4 * 1.0 / (1 / 3)) * 0.3
    assert fed_smp_bound(SmpSetting(**top)).term("sparsification") == pytest.approx(sparse)


def mean_gradient_of_rand_k(s, n, a, start):
    """Return the mean over t < T of E |grad f|^2 of Fed-SMP with rand_k, exactly."""
    d, k, r = s["dimension"], s["kept"], s["cohort"]
    smooth, eta, tau = s["smoothness"], s["step_size"], s["local_steps"]
    shrink = 1 - eta * smooth
    pull = 1 - shrink**tau
    noise = eta**2 * s["gradient_variance"] / d * sum(shrink ** (2 * j) for j in range(tau)) / r
    drawn = a.var(axis=0) * (n - r) / (r * max(n - 1, 1))
    moment, total = (start - a.mean(axis=0)) ** 2, 0.0
    for _ in range(s["rounds"]):
        total += smooth**2 * moment.sum()
        kept = d / k * (pull**2 * (moment + drawn) + noise)
        private = k / d * (s["clip_norm"] * s["noise_multiplier"] / r) ** 2
        moment = moment * (1 - 2 * pull) + kept + private
    return total / s["rounds"]


def test_fed_smp_contains_exact_iterates():
    draw = np.random.default_rng(3)
    for _ in range(150):
        d, n, tau = int(draw.integers(1, 12)), int(draw.integers(1, 20)), int(draw.integers(1, 6))
        k, r = int(draw.integers(1, d + 1)), int(draw.integers(1, n + 1))
        smooth = float(10 ** draw.uniform(-1, 1))
        a = draw.normal(size=(n, d)) * draw.choice([0.0, 1.0, 4.0])
        start = draw.normal(size=d) * 5
        largest = min(k / (24 * d), 1 / (4 * math.sqrt(6)), 1 / 12) / (tau * smooth)
        s = {
            "kept": k,
            "dimension": d,
            "cohort": r,
            "local_steps": tau,
            "rounds": int(draw.integers(1, 400)),
            "smoothness": smooth,
            "gap": 0.5 * smooth * float(((start - a.mean(axis=0)) ** 2).sum()),
            "gradient_variance": float(draw.choice([0.0, 1.0, 25.0])),
            "dissimilarity": 1.0,
            "heterogeneity": smooth**2 * float(a.var(axis=0).sum()),
            "step_size": largest * float(draw.choice([0.1, 0.5, 1.0])),
            "noise_multiplier": float(draw.choice([0.0, 1.0])),
            "clip_norm": float(draw.choice([0.1, 1.0])),
        }
        assert mean_gradient_of_rand_k(s, n, a, start) <= fed_smp_bound(SmpSetting(**s)).value


def top_k_descent(d, k, rounds, eta):
    """Return the mean squared gradient of steps on |x|^2 / 2 along its k largest coordinates."""
    x, total = np.ones(d), 0.0
    for _ in range(rounds):
        total += float(x @ x)
        kept = np.argsort(-np.abs(x), kind="stable")[:k]
        x[kept] *= 1 - eta
    return total / rounds


def test_top_k_needs_the_hypothesis_that_is_not_printed():
    """One of 100 coordinates: all printed hypotheses hold, the printed bound does not."""
    d, k, rounds = 100, 1, 1000
    phi = 1 - k / d
    eta = min(1 / (24 * (phi + 1)), 1 / (4 * math.sqrt(6)), 1 / 12)
    printed = 8 * (d / 2) / (rounds * eta)
    truth = top_k_descent(d, k, rounds, eta)
    assert truth > 4 * printed
    with pytest.raises(ParameterError, match="kept must be at least 67"):
        fed_smp_bound(SmpSetting(**quiet(d, k, rounds, eta)))


@pytest.mark.parametrize(("k", "rounds"), [(67, 50), (67, 1000), (80, 300), (100, 300)])
def test_top_k_within_its_hypotheses(k, rounds):
    eta = 1 / (24 * (2 - k / 100))
    bound = fed_smp_bound(SmpSetting(**quiet(100, k, rounds, eta)))
    assert top_k_descent(100, k, rounds, eta) <= bound.value


def without(setting, *names):
    return {key: value for key, value in setting.items() if key not in names}


CHOICE = without(SMP, "kept", "rounds", "gap")


@pytest.mark.parametrize("sparsifier", ["rand_k", "top_k"])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("free", ["clip_norm", "update_norm"])
def test_the_preferred_k_is_the_best_of_all_that_are_allowed(sparsifier, noise, free):
    choice = {**without(CHOICE, "clip_norm"), "noise_multiplier": noise, "sparsifier": sparsifier}
    choice[free] = 0.5
    values = {}
    for k in range(1, 101):
        clip = 0.5 * (100 / k if (free, sparsifier) == ("update_norm", "rand_k") else 1.0)
        setting = {**choice, free: 0.5, "clip_norm": clip}
        try:
            values[k] = fed_smp_bound(SmpSetting(**setting, kept=k, rounds=1, gap=0.0)).value
        except ParameterError:
            continue
    found = preferred_kept(SmpSetting(**choice))
    assert values[found] <= min(values.values()) * (1 + 1e-12)
    if (free, sparsifier) == ("update_norm", "rand_k"):
        assert found == 100


def test_more_noise_never_asks_for_more_coordinates():
    ks = [
        preferred_kept(SmpSetting(**{**CHOICE, "noise_multiplier": z}))
        for z in np.geomspace(0.01, 10, 30)
    ]
    assert ks == sorted(ks, reverse=True) and len(set(ks)) > 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kept": 101}, "kept must be at most"),
        ({"kept": 0}, "kept"),
        ({"step_size": 1.0}, "step_size must be at most"),
        ({"dissimilarity": 0.9}, "dissimilarity must be at least 1"),
        ({"heterogeneity": -1.0}, "heterogeneity"),
        ({"update_norm": 0.3}, "clip_norm must be at least 0.75"),
        ({"sparsifier": "best"}, "sparsifier"),
        ({"sparsifier": "top_k", "kept": 90, "gamma": 0.5}, "gamma"),
        ({"sparsifier": "top_k"}, "kept must be at least 68"),
        ({"gap": math.nan}, "gap"),
        ({"noise_multiplier": 1e160}, "noise_multiplier must be 0 or a number from 1e-50 to 1e"),
        ({"clip_norm": 1e-200}, "clip_norm must be a number from 1e-50 to 1e"),
        ({"step_size": 5e-324}, "step_size must be a number from"),
        ({"rounds": 1e308}, "rounds must be an integer of at most 1e15"),
    ],
)
def test_fed_smp_refuses(change, words):
    with pytest.raises(ParameterError, match=words):
        fed_smp_bound(SmpSetting(**{**SMP, **change}))


@pytest.mark.parametrize("given", [{}, {"clip_norm": 1.0, "update_norm": 1.0}])
def test_the_preferred_k_needs_one_norm(given):
    with pytest.raises(ParameterError, match="clip_norm"):
        preferred_kept(SmpSetting(**without(CHOICE, "clip_norm"), **given))


SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)
SCALES = st.sampled_from([1e-3, 0.5, 3.0, 1e4])


@given(scale=SCALES, sparsifier=st.sampled_from(["rand_k", "top_k"]))
@SETTINGS
def test_a_sparsified_bound_is_in_the_loss_s_units_too(scale, sparsifier):
    one = SmpSetting(
        kept=9,
        dimension=10,
        cohort=5,
        local_steps=2,
        rounds=7,
        smoothness=1.0,
        gap=2.0,
        gradient_variance=0.3,
        dissimilarity=1.5,
        heterogeneity=0.2,
        step_size=1e-3,
        noise_multiplier=1.3,
        clip_norm=0.7,
        sparsifier=sparsifier,
    )
    other = replace(
        one,
        smoothness=scale,
        gap=scale * 2.0,
        gradient_variance=scale**2 * 0.3,
        heterogeneity=scale**2 * 0.2,
        step_size=1e-3 / scale,
    )
    before, after = fed_smp_bound(one), fed_smp_bound(other)
    assert after.value == pytest.approx(scale**2 * before.value, rel=1e-9)
    assert math.fsum(value for _, value in before.terms) == pytest.approx(before.value)
    # More noise costs more only by its square.
    louder = fed_smp_bound(replace(one, noise_multiplier=2.6))
    assert louder.term("privacy noise") == pytest.approx(4.0 * before.term("privacy noise"))
    assert louder.term("optimisation") == before.term("optimisation")
