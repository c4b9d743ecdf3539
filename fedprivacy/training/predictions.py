"""Predictions from samples, their calibration, and their distance to a Gaussian target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from ..errors import integer, refuse, require
from ..theory.gaussian import Normal, w2

Logits = Callable[[Tensor, Tensor], Tensor]
"""(parameters (d,), features (records, ...)) -> scores (records, classes)."""


@dataclass(frozen=True)
class Scores:
    """Quality of predicted probabilities on a test set; computed after the release.

    Args:
        accuracy: share of records whose most probable class is right.
        brier: mean squared distance of the probabilities from the truth, summed over classes.
        ece: expected calibration error (Guo et al. 2017): mean gap between confidence and accuracy.
        nll: mean negative log-likelihood of the truth.
    """

    accuracy: float
    brier: float
    ece: float
    nll: float


def predictive(logits: Logits, draws: Tensor, features: Tensor) -> Tensor:
    """Return the posterior predictive probabilities: the mean over draws, shape (records, classes).

    Args:
        logits: the function of a model, such as ``SoftmaxRegression.logits``.
        draws: positions, shape (..., d); those that are not finite (not kept yet) are left out.
        features: inputs of the records.

    Raises:
        ParameterError: no draw is left.
    """
    flat = draws.reshape(-1, draws.shape[-1])
    kept = flat[torch.isfinite(flat).all(dim=1)]
    require(len(kept), "draws", tuple(draws.shape), "contain a finite draw", "run more rounds")
    with torch.no_grad():
        total = logits(kept[0], features).softmax(-1)
        # One draw at a time: all at once would need draws x records x classes numbers.
        for point in kept[1:]:
            total += logits(point, features).softmax(-1)
    return total / len(kept)


def score(probabilities: Tensor, labels: Tensor, *, bins: int = 15) -> Scores:
    """Return accuracy, Brier score, ECE and NLL.

    Args:
        probabilities: shape (records, classes), rows sum to 1.
        labels: shape (records,).
        bins: number of bins of equal width, for the calibration error.

    Raises:
        ParameterError: shapes that do not match, rows that are not probabilities, or a label
            without a column.
    """
    shape = tuple(probabilities.shape)
    if len(shape) != 2 or tuple(labels.shape) != shape[:1] or not shape[0]:
        refuse("probabilities, labels", (shape, tuple(labels.shape)), "have one row per label")
    exact = probabilities.double()
    _check_scored(exact, labels)
    confidence, guess = exact.max(dim=1)
    right = (guess == labels).double()
    apart = exact - functional.one_hot(labels, shape[1])
    truth = exact.gather(1, labels[:, None])
    return Scores(
        accuracy=float(right.mean()),
        brier=float(apart.square().sum(1).mean()),
        ece=_calibration_error(confidence, right, integer(1, bins=bins)),
        # A true class of probability 0 costs 690, not infinity.
        nll=-float(truth.clamp(min=1e-300).log().mean()),
    )


def _check_scored(exact: Tensor, labels: Tensor) -> None:
    """Refuse rows that are not probabilities, and labels without a column."""
    if not bool(((exact.sum(1) - 1.0).abs() < 1e-3).all()):
        refuse("probabilities", "a row that does not sum to 1", "sum to 1 in every row")
    if bool((exact < 0.0).any()):
        refuse("probabilities", "an entry below 0", "be at least 0")
    classes = int(labels.min()), int(labels.max())
    if classes[0] < 0 or classes[1] >= exact.shape[1]:
        refuse("labels", classes, f"be column numbers from 0 to {exact.shape[1] - 1}")


def _calibration_error(confidence: Tensor, right: Tensor, bins: int) -> float:
    # A bin contains its upper end, not its lower one; the first bin also contains 0.
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gaps = torch.zeros(bins, dtype=torch.float64).index_add(0, place, confidence - right)
    return float(gaps.abs().sum()) / len(right)


def gaussian_fit(draws: Tensor) -> Normal:
    """Return the Gaussian with the draws' mean and covariance.

    Args:
        draws: shape (n, d), n at least 2.
    """
    points = draws.reshape(-1, draws.shape[-1]).double().cpu().numpy()
    if len(points) < 2 or not np.isfinite(points).all():
        refuse("draws", tuple(draws.shape), "contain at least two finite draws", "run more rounds")
    covariance = np.atleast_2d(np.cov(points, rowvar=False))
    return Normal(mean=points.mean(axis=0), covariance=covariance)


def fitted_w2(draws: Tensor, law: Normal) -> float:
    """Return W2 of the draws' Gaussian fit to a Gaussian law, as in the papers' figures.

    It is not a bound: n draws from the law itself have a distance of about sqrt(trace of its
    covariance / n).

    Args:
        draws: independent draws, such as the positions of many chains, shape (n, d).
        law: a Gaussian target's ``law``.
    """
    return float(w2(gaussian_fit(draws), law))
