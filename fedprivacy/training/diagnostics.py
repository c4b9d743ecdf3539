"""Checks of draws: mixing of chains, the effect of clipping, and export to ArviZ."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ParameterError, integer, refuse, require
from ..theory.gaussian import Array
from .posterior import Posterior

MIXED = 1.05
"""Largest R-hat of mixed chains (Vehtari et al. 2021 require 1.01 with many draws)."""

WIDER = 1.1
"""Widening above this value gives a warning."""

_STEP = 1e-3
"""Step of the finite differences, in standard deviations of the draws or of the prior."""


class FlattenedPosterior(UserWarning):
    """Clipping has changed the sampled distribution; the message gives the size of the effect."""


@dataclass(frozen=True)
class Clipping:
    """Effect of clipping records' gradients on a posterior near a point.

    It is computed on the data and covered by no epsilon. Only the analyst should see it.

    Args:
        share: share of the records whose gradient is clipped there, from 0 to 1.
        widening: factor of a standard deviation. It is the root of a ratio of traces: the
            posterior's curvature over the curvature of the clipped gradients. 1 if no gradient is
            clipped.
    """

    share: float
    widening: float

    def __str__(self) -> str:
        """Return the effect as a sentence."""
        return (
            f"{self.share:.1%} of the records' gradients are clipped; expect standard "
            f"deviations about {self.widening:.2f} times those of the posterior (not covered "
            "by epsilon)"
        )


@dataclass(frozen=True)
class Diagnostics:
    """Mixing of the chains, by ArviZ, and the effect of clipping.

    Args:
        r_hat: rank-normalised split R-hat of each coordinate, shape (d,). Infinite if one half of a
            chain, as used in split R-hat, holds fewer than four different values.
        bulk_ess: effective sample size of the bulk of each coordinate, shape (d,). At most the
            number of draws that differ from the draw before.
        tail_ess: effective sample size of its tails, with the same limit.
        clipping: see ``Clipping``; None if no target was given, or it does not clip.
    """

    r_hat: Array
    bulk_ess: Array
    tail_ess: Array
    clipping: Clipping | None = None

    @property
    def worst(self) -> tuple[float, float]:
        """The largest R-hat and the smallest effective sample size of any coordinate."""
        sizes = np.minimum(self.bulk_ess, self.tail_ess)
        return float(np.max(self.r_hat)), float(np.min(sizes))

    @property
    def mixed(self) -> bool:
        """Whether R-hat is at most ``MIXED`` in every coordinate."""
        return bool((self.r_hat <= MIXED).all())

    def __str__(self) -> str:
        """Return a sentence that says whether the draws may be used."""
        largest, smallest = self.worst
        if self.mixed:
            text = f"the chains have mixed, with R-hat at most {largest:.2f}"
        else:
            text = f"do not use these draws: {self._problem()}"
        text += f"; the worst coordinate has an effective sample size of {smallest:.0f}"
        return text if self.clipping is None else f"{text}; {self.clipping}"

    def _problem(self) -> str:
        stuck, size = int(np.sum(np.isinf(self.r_hat))), len(self.r_hat)
        if stuck:
            return f"a chain hardly moved in {stuck} of {size} coordinates; use a larger step size"
        badly = int(np.sum(~(self.r_hat <= MIXED)))
        return (
            f"R-hat is up to {self.worst[0]:.2f}, above {MIXED}, in {badly} of {size} "
            "coordinates, so the chains have not mixed; run more rounds, drop more of the "
            "first ones, or use a larger step size"
        )


def diagnose(draws: Tensor, target: Posterior | None = None) -> Diagnostics:
    """Return split R-hat and effective sample sizes; a single chain is split in two.

    ArviZ counts repeated values as draws. Its R-hat is near 1 for chains that stayed at one point
    and moved once. Both numbers are therefore limited by the number of moves of the chains.

    Args:
        draws: draws of every chain, shape (chains, draws, d); at least 4 draws of each chain, 8 of
            a single chain.
        target: target of the sampling. If it clips, the effect of clipping near the draws' mean is
            computed too.

    Raises:
        ParameterError: too few draws, draws that are not finite, or ArviZ is not installed.
    """
    try:
        from arviz_stats.base import array_stats
    except ImportError as error:
        raise ParameterError(
            "diagnostics need ArviZ, which is not installed; pip install 'fedprivacy[train]'"
        ) from error
    given = _several_chains(draws.double().cpu().numpy())
    # Both numbers are invariant to scale. Sums of very large draws would overflow.
    scale = np.maximum(1.0, np.abs(given).max(axis=(0, 1)))
    values, found = given / scale, None
    if target is not None and target.clip_norm is not None:
        found = clipping(target, torch.from_numpy(values.mean((0, 1)) * scale))
    axes = {"chain_axis": 0, "draw_axis": 1}
    moves = _moves(values)
    # Constant draws have variance 0; they are reported as such below.
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.where(_hardly_moved(values), math.inf, array_stats.rhat(values, **axes))
        bulk = array_stats.ess(values, method="bulk", **axes)
        tail = array_stats.ess(values, method="tail", prob=(0.05, 0.95), **axes)
    return Diagnostics(r_hat, np.minimum(bulk, moves), np.minimum(tail, moves), found)


def _moves(values: Array) -> Array:
    """Return the number of moves of all chains, plus one for each chain, shape (d,)."""
    moved = np.diff(values, axis=1) != 0.0
    return np.asarray(moved.sum(axis=(0, 1)) + len(values), dtype=np.float64)


def _hardly_moved(values: Array) -> Array:
    """Return where half of some chain has fewer than four different values, shape (d,)."""
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, -half:]])
    different = 1 + np.sum(np.diff(np.sort(halves, axis=1), axis=1) != 0.0, axis=1)
    return np.asarray((different < min(4, half)).any(axis=0))


def _several_chains(values: Array) -> Array:
    """Return at least two chains, as needed for a comparison between chains."""
    least = 8 if len(values) == 1 else 4
    fits = values.ndim == 3 and len(values) and values.shape[1] >= least
    rule = "have shape (chains, draws, d), with at least 4 draws per chain, or 8 for one chain"
    require(fits, "draws", values.shape, rule)
    finite = bool(np.isfinite(values).all())
    require(finite, "draws", "an entry that is not finite", "be finite", "run all rounds first")
    if len(values) > 1:
        return values
    # The two halves of a single chain are used as two chains.
    half = values.shape[1] // 2
    return np.stack([values[0, :half], values[0, -half:]])


def clipping(target: Posterior, point: Any, *, probes: int = 16) -> Clipping:
    """Return the effect of clipping on a posterior near a point, and warn if it is large.

    The curvature's trace is estimated along random directions, by differences of gradients.

    Args:
        target: a target with a clip norm.
        point: parameters, shape (d,), such as the mean of draws.
        probes: number of directions; all d coordinates are used if d is not larger.

    Raises:
        ParameterError: the target does not clip, or the point has another shape.
    """
    clip = target.clip_norm
    if clip is None:
        refuse("clip_norm", None, "be given", "without clip_norm no gradient is clipped")
    at = torch.as_tensor(point, dtype=torch.float64)
    shape, wanted = tuple(at.shape), f"have shape ({target.dimension},)"
    require(shape == (target.dimension,), "point", shape, wanted)
    norms = _norms(target, at)
    directions = _directions(target.dimension, integer(1, probes=probes))
    # In proportion to the point, and large enough that differences exceed rounding errors.
    step = _STEP * float(at.abs().max().clamp(min=1.0))
    prior = target.prior_precision
    whole, clipped = (
        float(torch.stack([_curvature(target, at, one, step, norm) for one in directions]).mean())
        for norm in (None, clip)
    )
    # Estimates below 0 count as 0; 1e-300 prevents a division by 0 for a flat posterior.
    ratio = (max(whole, 0.0) + prior) / max(max(clipped, 0.0) + prior, 1e-300)
    found = Clipping(float((norms > clip).double().mean()), math.sqrt(ratio))
    if found.widening > WIDER:
        warnings.warn(str(found), FlattenedPosterior, stacklevel=2)
    return found


def _directions(dimension: int, probes: int) -> Tensor:
    """Return unit coordinates, or random signs scaled to length 1."""
    if dimension <= probes:
        return torch.eye(dimension, dtype=torch.float64)
    # A fixed seed, so that equal draws give equal diagnoses. No secret depends on it.
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(probes, dimension))
    return torch.from_numpy(signs) / math.sqrt(dimension)


def _rows(target: Posterior) -> Tensor:
    return torch.from_numpy(np.concatenate(target.data.clients))


def _sums(target: Posterior, points: Tensor, rows: Tensor, clip: float | None) -> Tensor:
    """Return gradient sums over rows, shape (seats, records), in double precision."""
    features = target.data.features[rows].double()
    labels, mask = target.data.labels[rows], torch.ones(rows.shape, dtype=torch.float64)
    return target.model.gradient_sums(points, features, labels, mask, clip).double()


def _norms(target: Posterior, at: Tensor, block: int = 4096) -> Tensor:
    """Return the norm of each record's gradient."""
    found = []
    for rows in torch.split(_rows(target), block):
        # A seat for each record: a sum is then a single record's gradient.
        points = at.expand(len(rows), -1)
        each = _sums(target, points, rows[:, None], None)
        found.append(torch.linalg.vector_norm(each, dim=1))
    return torch.cat(found)


def _curvature(
    target: Posterior, at: Tensor, direction: Tensor, step: float, clip: float | None
) -> Tensor:
    """Return the second derivative along a direction, from differences of gradients."""
    ends = torch.stack([at + step * direction, at - step * direction])
    rows = _rows(target).expand(2, -1)
    plus, minus = _sums(target, ends, rows, clip)
    return torch.dot(plus - minus, direction) / (2.0 * step)


def inference_data(draws: Tensor, names: Sequence[str] | None = None) -> Any:
    """Return draws in ArviZ's format, for its trace, pair and rank plots and summaries.

    The result is a ``DataTree`` of arviz-base (ArviZ 1), or an ``InferenceData`` with ArviZ 0.

    Args:
        draws: shape (chains, draws, d).
        names: names of the d coordinates, which become variables; None for one variable,
            "parameters".

    Raises:
        ParameterError: a wrong shape or number of names, or ArviZ is not installed.
    """
    values = draws.detach().double().cpu().numpy()
    require(values.ndim == 3, "draws", values.shape, "have shape (chains, draws, d)")
    if names is not None and len(names) != values.shape[2]:
        refuse("names", list(names), f"be {values.shape[2]} names, one per coordinate")
    if names is not None and len(set(names)) != len(names):
        refuse(
            "names", list(names), "be different", "a later variable would replace an earlier one"
        )
    held = {"parameters": values}
    if names is not None:
        held = {name: values[:, :, number] for number, name in enumerate(names)}
    try:
        from arviz_base import from_dict
    except ImportError:
        return _legacy(held)
    return from_dict({"posterior": held})


def _legacy(held: dict[str, Array]) -> Any:
    try:
        from arviz import from_dict
    except ImportError as error:
        raise ParameterError(
            "inference_data needs ArviZ, which is not installed; pip install 'fedprivacy[arviz]'"
        ) from error
    return from_dict(posterior=held)
