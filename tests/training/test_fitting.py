"""A quadratic fitted to a posterior: exact for a Gaussian one, and open about its error."""

import numpy as np
import pytest
import torch

import fedprivacy as fp
from fedprivacy.theory.targets import GaussianTarget
from fedprivacy.training import (
    FederatedData,
    Posterior,
    SoftmaxRegression,
    classifier,
    fitted_quadratic,
)
from fedprivacy.training.fitting import FittedQuadratic


def normal(parameters, records):
    return -0.5 * (records - parameters).square().sum(1)


def records(clients=3, count=40, size=2):
    generator = np.random.default_rng(4)
    return [generator.normal(c, 1.0, (count + c, size)) for c in range(clients)]


def test_a_gaussian_posterior_is_its_own_quadratic():
    held = records()
    flat = Posterior.of(normal, clients=held, dimension=2, prior_precision=0.0, own_sensitivity=2.0)
    found, exact = fitted_quadratic(flat), GaussianTarget.of_records(held, np.eye(2))
    assert np.allclose(found.target.hessians, exact.hessians)
    assert np.allclose(found.target.centres, exact.centres)
    assert np.allclose(found.target.weights, exact.weights)
    assert found.misfit < 1e-10
    assert found.gradient_sensitivity == 2.0
    fixed = {"rounds": 5, "local_steps": 1, "temperature": 1.0, "correlation": 0.0}
    budget = {"epsilon": 5.0, "delta": 1e-5, "deadline": 0.0}
    chosen = fp.choose("fa-ld", **budget, problem=found, fixed=fixed | {"step_size": 1e-5})
    assert "fitted to the posterior" in str(chosen)
    assert chosen.to_dict()["remark"] == found.remark


def logistic(parameters, inputs, targets):
    outputs = inputs @ parameters
    return targets * outputs - torch.nn.functional.softplus(outputs)


def logistic_posterior(clip_norm=8.0, **options):
    generator = np.random.default_rng(0)
    clients = []
    for _ in range(2):
        inputs = generator.normal(size=(150, 1))
        chance = 1.0 / (1.0 + np.exp(-1.5 * inputs[:, 0]))
        clients.append((inputs, (generator.random(150) < chance).astype(float)))
    post = Posterior.of(logistic, clients=clients, dimension=1, clip_norm=clip_norm, **options)
    return post, clients


def test_a_logistic_posterior_has_the_mean_and_width_of_its_integral():
    post, clients = logistic_posterior()
    law = fitted_quadratic(post).target.law()
    points = np.linspace(0.0, 3.5, 2001)
    inputs, targets = (np.concatenate(part) for part in zip(*clients, strict=True))
    outputs = inputs * points
    logs = (targets[:, None] * outputs - np.logaddexp(0.0, outputs)).sum(0) - points**2 / 2
    masses = np.exp(logs - logs.max())
    masses /= masses.sum()
    mean = masses @ points
    std = np.sqrt(masses @ (points - mean) ** 2)
    assert law.mean[0] == pytest.approx(points[logs.argmax()], abs=0.002)
    assert law.covariance[0, 0] ** 0.5 == pytest.approx(std, rel=0.05)


def test_clipping_that_acts_is_a_misfit():
    loose, tight = (fitted_quadratic(logistic_posterior(clip)[0]).misfit for clip in (8.0, 0.3))
    assert loose < 0.15 < 0.3 < tight


def labelled(features, classes, count):
    generator = torch.Generator().manual_seed(1)
    return FederatedData(
        features=torch.randn(count, features, generator=generator),
        labels=torch.randint(classes, (count,), generator=generator),
        clients=tuple(np.array_split(np.arange(count), 3)),
    )


def test_a_softmax_regression_needs_its_prior():
    data = labelled(features=2, classes=3, count=60)
    settings = {"model": SoftmaxRegression(2, 3), "data": data, "clip_norm": 5.0}
    found = fitted_quadratic(Posterior(**settings, prior_precision=1.0))
    assert isinstance(found, FittedQuadratic)
    assert found.target.dimension == 9
    with pytest.raises(fp.UnsupportedCombination, match="raise prior_precision"):
        fitted_quadratic(Posterior(**settings, prior_precision=0.0))


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(fp.ParameterError, match="posterior must be a training"):
        fitted_quadratic("posterior")
    open_ended = Posterior.of(normal, clients=records(), dimension=2)
    with pytest.raises(fp.ParameterError, match="clip_norm must be given"):
        fitted_quadratic(open_ended)
    data = labelled(features=700, classes=5, count=30)
    wide = Posterior(model=classifier(lambda: torch.nn.Linear(700, 5)), data=data, clip_norm=1.0)
    with pytest.raises(fp.ParameterError, match="at most 10,000,000 entries"):
        fitted_quadratic(wide)
