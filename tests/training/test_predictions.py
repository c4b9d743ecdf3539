"""Tests of ``fedprivacy.training.predictions``."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from fedprivacy.errors import ParameterError
from fedprivacy.theory.gaussian import Normal
from fedprivacy.training import (
    Posterior,
    SoftmaxRegression,
    diagnose,
    fitted_w2,
    gaussian_fit,
    predictive,
    score,
    train,
)
from tests.systems.fa_ld.test_loop import langevin, records

pytest.importorskip("torch")

import torch

from fedprivacy import training

pytestmark = pytest.mark.usefixtures("one_thread")
UNEQUAL = np.array([1.0, 2.0, 3.0, 2.0, 1.0, 3.0]) / 12.0
MODEL = SoftmaxRegression(4, 3)


# What samples say


def test_scores_by_hand_and_by_scikit_learn():
    probabilities = torch.tensor(
        [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.05, 0.05, 0.9], [0.5, 0.5, 0]], dtype=torch.float64
    )
    labels = torch.tensor([0, 2, 2, 1])
    found = score(probabilities, labels)
    assert found.accuracy == 0.5
    squares = 0.09 + 0.04 + 0.01 + 0.09 + 0.16 + 0.49 + 0.0025 + 0.0025 + 0.01 + 0.5
    assert found.brier == pytest.approx(squares / 4, rel=1e-6)
    assert found.nll == pytest.approx(log_loss(labels, probabilities.numpy()), rel=1e-6)
    assert found.ece == pytest.approx((0.3 + 0.4 + 0.1 + 0.5) / 4, rel=1e-6)
    one_bin = score(probabilities, labels, bins=1)
    assert one_bin.ece == pytest.approx(abs((0.7 + 0.4 + 0.9 + 0.5) / 4 - 0.5), rel=1e-6)


def test_predictions_average_probabilities_over_finite_draws():
    draws = torch.randn(2, 3, MODEL.dimension, generator=torch.Generator().manual_seed(0))
    inputs = records().features
    each = torch.stack([MODEL.logits(p, inputs).softmax(-1) for p in draws.reshape(6, -1)[:5]])
    draws[1, 2] = math.nan
    assert torch.allclose(predictive(MODEL.logits, draws, inputs), each.mean(dim=0), atol=1e-6)
    with pytest.raises(ParameterError, match="finite draw"):
        predictive(MODEL.logits, draws * math.nan, inputs)


def test_distance_to_a_gaussian_target():
    law = Normal(mean=np.zeros(2), covariance=np.diag([1.0, 4.0]))
    corners = torch.tensor([[a, b] for a in (-1.0, 1.0) for b in (-2.0, 2.0)]).double()
    unbiased = corners * math.sqrt(3.0 / 4.0)
    assert fitted_w2(unbiased, law) == pytest.approx(0.0, abs=1e-12)
    assert fitted_w2(unbiased + torch.tensor([3.0, 4.0]), law) == pytest.approx(5.0, rel=1e-12)
    with pytest.raises(ParameterError, match="two finite draws"):
        gaussian_fit(torch.full((3, 2), math.nan))


def test_a_sampler_learns():
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=240)
    inputs = generator.normal(size=(240, 4)) + 2.0 * np.eye(4)[labels]
    part = records()
    data = replace(
        part,
        features=torch.from_numpy(inputs.astype(np.float32)),
        labels=torch.from_numpy(labels),
        clients=tuple(np.split(np.arange(240), 6)),
        test_features=torch.from_numpy(inputs[:100].astype(np.float32)),
        test_labels=torch.from_numpy(labels[:100]),
    )
    target_ = Posterior(model=MODEL, data=data, clip_norm=1.0)
    loop = langevin(
        target_, step_size=2e-3, batch_fraction=0.5, chains=2, burn_in=20, thinning=2, draws=20
    )
    state = train(loop, target_, rounds=loop.rounds).state
    found = score(predictive(MODEL.logits, state.draws, data.test_features), data.test_labels)
    assert found.accuracy > 0.8 and found.nll < 0.7 < math.log(3)
    assert 1.0 <= diagnose(state.draws).worst[0] < 10.0


SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)


# ---- what draws are worth


@given(seed=st.integers(0, 20), records=st.integers(1, 30), bins=st.sampled_from([1, 2, 15]))
@SETTINGS
def test_scores_are_those_of_their_definitions(seed, records, bins):
    draw = np.random.default_rng(seed)
    chances, labels = draw.dirichlet(np.ones(3), size=records), draw.integers(3, size=records)
    found = training.score(torch.from_numpy(chances), torch.from_numpy(labels), bins=bins)
    sure, guess = chances.max(1), chances.argmax(1)
    assert found.accuracy == pytest.approx((guess == labels).mean())
    assert found.brier == pytest.approx(((chances - np.eye(3)[labels]) ** 2).sum(1).mean())
    assert found.nll == pytest.approx(-np.log(chances[np.arange(records), labels]).mean())
    gap = 0.0
    for low in range(bins):
        inside = (sure > low / bins) & (sure <= (low + 1) / bins)
        gap += abs((sure[inside] - (guess == labels)[inside]).sum()) / records
    assert found.ece == pytest.approx(gap, abs=1e-12)
    order = draw.permutation(records)
    again = training.score(
        torch.from_numpy(chances[order]), torch.from_numpy(labels[order]), bins=bins
    )
    assert vars(again) == pytest.approx(vars(found), abs=1e-12)


def test_whoever_is_always_right_and_sure_has_nothing_to_pay():
    labels = torch.tensor([0, 2, 1])
    found = training.score(torch.eye(3)[labels], labels)
    assert found == training.Scores(accuracy=1.0, brier=0.0, ece=0.0, nll=0.0)
    wrong = training.score(torch.eye(3)[(labels + 1) % 3], labels)
    # A truth that was given no chance costs 690, not infinity.
    assert (wrong.accuracy, wrong.brier, wrong.ece) == (0.0, 2.0, 1.0) and 690 < wrong.nll < 691


def test_predictions_are_a_mean_over_the_draws_that_are_there():
    model = training.SoftmaxRegression(2, 3)
    draws = torch.randn(2, 4, 9, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    each = torch.stack([model.logits(one, inputs).softmax(-1) for one in draws.reshape(-1, 9)])
    torch.testing.assert_close(training.predictive(model.logits, draws, inputs), each.mean(0))
    draws[1, 2:] = torch.nan
    kept = training.predictive(model.logits, draws, inputs)
    torch.testing.assert_close(kept, each[:6].mean(0))
    torch.testing.assert_close(kept.sum(1), torch.ones(5))


@given(seed=st.integers(0, 9), count=st.integers(2, 30), size=st.integers(1, 3))
@SETTINGS
def test_a_fit_moves_with_the_draws(seed, count, size):
    draw = np.random.default_rng(seed)
    points, shift = draw.normal(size=(count, size)), draw.normal(size=size)
    turn = draw.normal(size=(size, size))
    plain = training.gaussian_fit(torch.from_numpy(points))
    moved = training.gaussian_fit(torch.from_numpy(points @ turn.T + shift))
    np.testing.assert_allclose(plain.mean, points.mean(0), atol=1e-12)
    np.testing.assert_allclose(plain.covariance, np.cov(points.T).reshape(size, size), atol=1e-12)
    np.testing.assert_allclose(moved.mean, turn @ plain.mean + shift, atol=1e-9)
    np.testing.assert_allclose(moved.covariance, turn @ plain.covariance @ turn.T, atol=1e-9)
    assert training.fitted_w2(torch.from_numpy(points), plain) == pytest.approx(0.0, abs=1e-6)
    far = training.fitted_w2(torch.from_numpy(points + shift), plain)
    assert far == pytest.approx(np.linalg.norm(shift), rel=1e-6)
