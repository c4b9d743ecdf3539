"""Uploads, kinds and sampling compared with laws that are computed here independently."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant
from fedprivacy.evidence.repricing import as_released
from fedprivacy.loss import Fold, Gdp, Sampled
from fedprivacy.theory.splitting_privacy import PrivateSplitting, final_models_mu, rounds_mu

SOLVE = fp.NoisyGradientDescent(
    step_size=0.1, noise_std=0.5, sensitivity=1.0, strong_convexity=1.0, smoothness=2.0, steps=5
)


def between_mixtures(p, q, epsilon):
    """delta(epsilon) of two mixtures of unit Gaussians, each (weight, mean), by quadrature."""
    means = [mean for _, mean in p + q]
    grid = np.linspace(min(means) - 12, max(means) + 12, 400_001)
    first, second = (sum(w * norm.pdf(grid, mean) for w, mean in law) for law in (p, q))
    return np.trapezoid(np.maximum(first - math.exp(epsilon) * second, 0.0), grid)


def test_replacement_alone_does_not_bound_what_poisson_sampling_shows():
    """f(w) = w^2/2 - sum of x_i w over those drawn, x_i in [B, B + g]: B shows who is drawn."""
    mu, q, epsilon = SOLVE.privacy_loss("replace_one").curve.mu, 0.1, 0.5
    stays = (1.0 - q, 0.0)
    truth = between_mixtures([stays, (q, 40.0 + mu)], [stays, (q, 40.0)], epsilon)
    gauss = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert truth == pytest.approx(q * gauss, rel=1e-6)
    once = Sampled(Gdp(mu), q)
    tails = Fold(once, once).tails(np.array([epsilon]))
    amplified = math.exp(tails.p_above[0]) - math.exp(epsilon + tails.q_above[0])
    assert truth > 100.0 * amplified
    seen = SOLVE.sampled(fp.Poisson(q)).privacy_loss("replace_one", "server")
    assert PldAccountant().compose(seen).delta(epsilon).upper == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize(
    "mechanism",
    [SOLVE, fp.ApproximateDp(guarantees=((1.0, 1e-6),), adjacency="replace_one")],
    ids=["solve", "stated"],
)
@pytest.mark.parametrize(
    ("scheme", "adjacency"),
    [
        (fp.Poisson(0.1), "replace_one"),
        (fp.TruncatedPoisson(0.1, population=100, largest=20), "replace_one"),
        (fp.FixedSize(10, population=100), "zero_out"),
    ],
    ids=str,
)
def test_mechanisms_that_speak_of_replacing_only_are_not_amplified_there(
    mechanism, scheme, adjacency
):
    with pytest.raises(fp.UnsupportedCombination, match="absent unit"):
        fp.epsilon(mechanism.sampled(scheme), delta=1e-5, adjacency=adjacency)
    fixed = mechanism.sampled(fp.FixedSize(10, population=100))
    whole = fp.epsilon(mechanism, delta=1e-5, adjacency="replace_one")
    assert fp.epsilon(fixed, delta=1e-5, adjacency="replace_one").upper < 0.5 * whole.upper


def test_kinds_of_which_nothing_is_attained_compose_with_what_is():
    """A Gaussian round after a Parallel of guarantees: its own lower end is left, for all kinds."""
    gauss = fp.Gaussian(noise_multiplier=5.0, unit="record")
    stated = [
        fp.ApproximateDp(guarantees=((e, 1e-6),), adjacency="replace_one", unit="record")
        for e in (0.1, 0.2)
    ]
    both = fp.epsilon(fp.Parallel(stated) + gauss, delta=1e-5, adjacency="replace_one")
    apart = [fp.epsilon(one + gauss, delta=1e-5, adjacency="replace_one") for one in stated]
    assert both.upper == max(bound.upper for bound in apart)
    assert both.lower == max(bound.lower for bound in apart) > 1.5


@pytest.mark.parametrize("kind", ["upload", "kinds"])
def test_less_noise_than_planned_is_not_put_on_one_sum_alone(kind):
    """If one std represents several kinds of noise, all of them are scaled."""
    gauss = fp.Gaussian(noise_multiplier=5.0, unit="record")
    both = fp.Parallel((gauss, fp.Gaussian(noise_multiplier=8.0, unit="record")))
    run = {"upload": SOLVE, "kinds": both}[kind] + gauss
    assert as_released(run, clip_norm=1.0, planned_std=5.0, used_std=5.0) == run
    found = as_released(run, clip_norm=1.0, planned_std=5.0, used_std=2.5)
    (first, _), (second, _) = found.parts
    assert second.noise_multiplier == 2.5
    if kind == "upload":
        assert first.noise_std == 0.5 * SOLVE.noise_std
    else:
        assert [one.noise_multiplier for one in first.mechanisms] == [2.5, 4.0]


def final_responses(run, curvatures, proximal):
    """Every agent's x_K per unit noise; curvatures are (rounds, steps, agents)."""
    rounds, steps, agents = curvatures.shape
    rho, gamma = run.penalty, run.step_size
    x, z = (np.zeros((agents, curvatures.size)) for _ in range(2))
    noise = np.eye(curvatures.size).reshape(rounds, steps, agents, -1)
    for k in range(rounds):
        v, w = 2.0 * proximal * z.mean(axis=0) - z, x
        for j in range(steps):
            w = w - gamma * (curvatures[k, j][:, None] * w + (w - v) / rho) + noise[k, j]
        x, z = w, 2.0 * w - v
    return x


def best_signs(covariance, moved, generator):
    """A locally best pattern of signs, from twenty directions."""
    inverse, best = np.linalg.inv(np.linalg.cholesky(covariance)), 0.0
    for _ in range(20):
        seen = generator.normal(size=len(covariance))
        for _ in range(10):
            seen = inverse @ moved @ np.sign(seen @ inverse @ moved)
        best = max(best, float(np.linalg.norm(seen)))
    return best


def test_no_curvatures_signs_or_agents_beat_the_bound_on_final_models():
    """Curvatures drawn anew in every step and signs chosen against them: the proof allows both."""
    generator, closest = np.random.default_rng(11), 0.0
    for _ in range(150):
        low, ratio = 10 ** generator.uniform(-1, 1), generator.choice([1.0, 1.05, 1.3, 2.0])
        rho, share = 10 ** generator.uniform(-1, 1.5), generator.choice([0.1, 0.4, 0.7, 0.98])
        rounds, steps, agents = generator.integers(1, [7, 6, 4])
        run = PrivateSplitting(
            sensitivity=1.0,
            strong_convexity=low,
            smoothness=low * ratio,
            penalty=rho,
            step_size=2.0 * share / (low * ratio + 1.0 / rho),
            noise_scale=1.0,
            local_steps=int(steps),
            rounds=int(rounds),
        )
        curvatures = generator.choice([low, low * ratio], size=(rounds, steps, agents))
        x = final_responses(run, curvatures, generator.choice([0.0, 0.5, 1.0]))
        found = run.step_mu * best_signs(x @ x.T, x[:, ::agents], generator)
        closest = max(closest, found / min(final_models_mu(run), rounds_mu(run)))
    assert 0.98 < closest < 1.0
