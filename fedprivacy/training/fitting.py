"""A quadratic that is fitted to a posterior, so that ``fp.choose`` can plan a sampler for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UnsupportedCombination, refuse, require
from ..theory.targets import GaussianTarget
from .optimise import part_of
from .posterior import Posterior

Array = NDArray[np.float64]

LARGEST = 10**7
"""Most entries of all clients' Hessians."""

_STEPS, _SHORTEST = 100, 2.0**-30
"""Newton steps at most, and the shortest share of one that is tried."""

_MOVE = 1e-4
"""Step of the differences of gradients; their error is about 1e-8 of a third derivative."""

_PROBES = 32
"""Points at which the quadratic is compared with the posterior."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedQuadratic:
    """A Gaussian with the mode and the curvatures of a posterior; a problem for ``fp.choose``.

    Args:
        target: each client's second-order expansion at the common mode.
        gradient_sensitivity: the largest distance of two records' gradients, from the posterior.
        misfit: median relative error of the quadratic's gradient, over points at twice the width of
            the fitted posterior. Clipping counts as an error.
    """

    target: GaussianTarget
    gradient_sensitivity: float
    misfit: float

    @property
    def remark(self) -> str:
        """What the numbers are about."""
        return (
            "w2 is that of a quadratic fitted to the posterior; its gradients differ from those of "
            f"the run, which may be clipped, by {100.0 * self.misfit:.2g} % (median)"
        )


def fitted_quadratic(posterior: Posterior) -> FittedQuadratic:
    """Return the quadratic with a posterior's mode, and its clients' curvatures there.

    The mode is found by Newton's method, without clipping; ``misfit`` shows whether clipping acts.
    The fit reads the records, so use public or made-up records of the same kind: a setting that is
    chosen from private records is itself a private result.

    Args:
        posterior: with a ``clip_norm`` or an ``own_sensitivity``, and not too many parameters.

    Returns:
        A problem for ``fp.choose("fa-ld", problem=...)`` and ``"fa-hmc"``.

    Raises:
        ParameterError: no sensitivity, or more than 10^7 entries of Hessians.
        UnsupportedCombination: the posterior has no mode where all clients' Hessians are positive
            definite.
    """
    kept, kind = isinstance(posterior, Posterior), type(posterior).__name__
    require(kept, "posterior", kind, "be a training.Posterior")
    sensitivity = posterior.sensitivity
    if sensitivity is None:
        refuse(
            "clip_norm", None, "be given", "or own_sensitivity, since without it no run is private"
        )
    entries = len(posterior.counts) * posterior.dimension**2
    rule = f"have at most {LARGEST:,} entries of Hessians, one per client and pair of parameters"
    require(entries <= LARGEST, "posterior", f"{entries:,}", rule)
    shares = torch.from_numpy(posterior.shares)
    point = torch.zeros(posterior.dimension, dtype=torch.float64)
    slopes, bends = _expanded(posterior, point)
    for _ in range(_STEPS):
        pull = torch.einsum("c,ci->i", shares, slopes)
        step = _solved(torch.einsum("c,cij->ij", shares, bends), pull)
        moved = _shortened(posterior, point, step, float(pull.norm()))
        if moved is None:
            break
        point = moved
        slopes, bends = _expanded(posterior, point)
    values = torch.linalg.eigvalsh(bends)
    if not bool((values[:, 0] > 1e-9 * values[:, -1]).all()):
        raise UnsupportedCombination(
            "a quadratic needs clients whose functions curve upwards at the mode, got a least "
            f"curvature of {float(values[:, 0].min()):.3g}; raise prior_precision, or use a model "
            "with a concave log-likelihood"
        )
    centres = point - torch.linalg.solve(bends, slopes[..., None])[..., 0]
    target = GaussianTarget(
        hessians=bends.numpy(), centres=centres.numpy(), weights=posterior.shares
    )
    misfit = _misfit(posterior, target)
    return FittedQuadratic(target=target, gradient_sensitivity=sensitivity, misfit=misfit)


def _slope(
    posterior: Posterior, client: int, point: Tensor, clip_norm: float | None = None
) -> Tensor:
    """Return the gradient of a client's function, in doubles."""
    rows = torch.from_numpy(posterior.data.clients[client])[None]
    inputs, labels = (
        part_of(rows, part).to(posterior.device)
        for part in (posterior.data.features, posterior.data.labels)
    )
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    mask = torch.ones(rows.shape, dtype=torch.float64)
    found = posterior.model.gradient_sums(point[None], inputs, labels, mask, clip_norm)[0]
    prior = posterior.prior_precision * point
    return torch.as_tensor(found / float(posterior.shares[client]) + prior)


def _expanded(posterior: Posterior, point: Tensor) -> tuple[Tensor, Tensor]:
    """Return all clients' gradients (N, d) and Hessians (N, d, d) at a point.

    Hessians are central differences of gradients in doubles: closed forms of gradients write in
    place, which rules out automatic differentiation.
    """
    slopes, bends = [], []
    moves = _MOVE * torch.eye(posterior.dimension, dtype=torch.float64)
    for client in range(len(posterior.counts)):
        slopes.append(_slope(posterior, client, point))
        rows = [
            _slope(posterior, client, point + move) - _slope(posterior, client, point - move)
            for move in moves
        ]
        bend = torch.stack(rows) / (2.0 * _MOVE)
        bends.append((bend + bend.T) / 2.0)
    return torch.stack(slopes), torch.stack(bends)


def _solved(matrix: Tensor, pull: Tensor) -> Tensor:
    """Return Newton's step, or the gradient's where the function does not curve upwards."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed):
        return torch.div(pull, matrix.norm().clamp(min=1e-300))
    return torch.cholesky_solve(pull[:, None], factor)[:, 0]


def _shortened(posterior: Posterior, point: Tensor, step: Tensor, size: float) -> Tensor | None:
    """Return the point after the longest halving of a step that shortens the gradient, or None."""
    shares, share = torch.from_numpy(posterior.shares), 1.0
    while share >= _SHORTEST:
        moved = point - share * step
        each = [_slope(posterior, c, moved) for c in range(len(posterior.counts))]
        new = float(torch.einsum("c,ci->i", shares, torch.stack(each)).norm())
        if new < size * (1.0 - 1e-3 * share):
            return moved
        share /= 2.0
    return None


def _misfit(posterior: Posterior, target: GaussianTarget) -> float:
    """Return the median relative error of the quadratic's gradient, at twice the width of its law.

    It is compared with the gradient that a sampler uses, so clipping counts as an error.
    """
    law, generator = target.law(), np.random.default_rng(0)
    root = np.linalg.cholesky(law.covariance)
    errors = []
    for normal in generator.standard_normal((_PROBES, target.dimension)):
        away = 2.0 * root @ normal
        point = torch.from_numpy(law.mean + away)
        clip = posterior.clip_norm
        each = [_slope(posterior, c, point, clip).numpy() for c in range(target.clients)]
        real = np.einsum("c,ci->i", target.shares, np.array(each))
        straight = target.precision @ away
        errors.append(np.linalg.norm(real - straight) / np.linalg.norm(straight))
    return float(np.median(errors))
