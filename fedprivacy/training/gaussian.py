"""Gaussian posteriors split over clients, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..errors import positive, refuse
from ..theory.targets import GaussianTarget
from .posterior import Array, Indices


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianPosterior:
    """A Gaussian target in closed form; gradients are exact and computed in float64.

    Args:
        target: see ``theory.targets.GaussianTarget``.
        sensitivity: largest change of p_c times the gradient of f^c when one record is replaced,
            over all allowed parameters and data; None for chains without privacy. The caller must
            know it from the data: a Gaussian likelihood of unbounded records has no finite
            sensitivity.

    Raises:
        ParameterError: a sensitivity that is not above 0.
    """

    target: GaussianTarget
    sensitivity: float | None = None

    def __post_init__(self) -> None:
        if self.sensitivity is not None:
            positive(sensitivity=self.sensitivity)

    @property
    def shares(self) -> Array:
        """The clients' weights."""
        return self.target.shares

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.target.dimension

    @property
    def curvature(self) -> tuple[float, float]:
        """The smallest and the largest eigenvalue of all Hessians."""
        return self.target.strong_convexity, self.target.smoothness

    @property
    def clip_norm(self) -> None:
        """None, because no gradient is clipped."""

    @property
    def start(self) -> Tensor:
        """Zero."""
        return torch.zeros(self.dimension, dtype=torch.float64)

    def batch_sizes(self, fraction: float) -> tuple[Indices, Array]:
        """Return 1 for each client; refuse a fraction below 1, because records are not kept.

        Raises:
            ParameterError: a fraction below 1.
        """
        if fraction != 1.0:
            way = "pass the records as a Posterior to draw batches of them"
            refuse("batch_fraction", fraction, "be 1 for a target in closed form", way)
        count = self.target.clients
        return np.ones(count, dtype=np.int64), np.ones(count)

    def local(
        self, clients: Indices, starts: Tensor, fraction: float, generator: np.random.Generator
    ) -> GaussianLocal:
        """Return the clients at work in the eigenbases of their Hessians."""
        del fraction, generator
        return GaussianLocal(self.target, clients, starts.numpy(), self.sensitivity is not None)


class GaussianLocal:
    """Clients of a Gaussian target: in its eigenbasis a client's gradient is a product.

    In a private run the Hessians are public: a record that changed a Hessian would change gradients
    without limit. The centres are not public, and a centre added after the noise would be visible
    in the low bits. So the points of a private run are not measured from the centres, and a
    centre's contribution to the gradient is the private part.
    """

    def __init__(
        self, target: GaussianTarget, clients: Indices, starts: Array, private: bool
    ) -> None:
        """See ``Local``."""
        self.values, self.vectors = target.spectra
        self.kinds = target.kinds[1][clients]
        self._curvature = self.values[self.kinds]
        centres, points = target.centres[clients], starts[:, None, :]
        self._centres, self._turned_centres = 0.0 if private else centres, None
        if private:
            # Every seat gets a separate array, because steps write to it.
            points = points + np.zeros((1, *clients.shape[1:], 1))
            turned = self._turned(centres, forward=True)
            alike = len(turned) == len(points)
            self._turned_centres = turned if alike else np.broadcast_to(turned, points.shape)
        else:
            points = points - centres
        self.points: Array = self._turned(points, forward=True)
        self._factor: float | None = None
        self._scaled: tuple[Array, Array | None] = self._curvature, None

    def _turned(self, points: Array, *, forward: bool) -> Array:
        """Return points in the eigenbases, or back."""
        # With one basis for all clients a matrix product suffices.
        if len(self.vectors) == 1:
            return np.asarray(points @ (self.vectors[0] if forward else self.vectors[0].T))
        basis = self.vectors[self.kinds]
        text = "cwi,cwij->cwj" if forward else "cwj,cwij->cwi"
        shape = (len(points), *basis.shape[1:])
        return np.asarray(np.einsum(text, points, np.broadcast_to(basis, shape)))

    def parts(self, points: Array, factor: float) -> tuple[Array, Array | None]:
        """Return curvature times the distance from the client's centre, as the two parts."""
        curvature, pull = self._slopes(factor)
        return (curvature * points, None) if pull is None else (pull, curvature)

    def _slopes(self, factor: float) -> tuple[Array, Array | None]:
        """Return ``factor`` times the curvatures, and the centres' part, shape of the points."""
        # Most steps of a round have the same length.
        if factor != self._factor:
            centres, self._factor = self._turned_centres, factor
            curvature = factor * self._curvature
            pull = None if centres is None else -curvature * centres
            if pull is not None:
                # Constant over the steps, so its conversion to units of the noise is done once.
                pull.flags.writeable = False
            self._scaled = curvature, pull
        return self._scaled

    def contracted(self, factor: Array) -> tuple[Array, Array | None]:
        """Return ``factor`` times the distance from the client's centre, as the two parts."""
        if self._turned_centres is None:
            return factor * self.points, None
        return (1.0 - factor) * self._turned_centres, factor * self.points

    def normal(self, generator: np.random.Generator) -> Array:
        """Return noise; its law is the same in every basis."""
        return generator.standard_normal(self.points.shape)

    def shared(self, generator: np.random.Generator) -> Array:
        """Return each chain's noise, rotated into every client's basis."""
        noise = generator.standard_normal((len(self.points), self.points.shape[2]))
        # Drawn once in the parameters' own basis, then rotated for each client.
        return self.of_kinds(np.einsum("ci,gij->cgj", noise, self.vectors))

    def of_kinds(self, each: Array) -> Array:
        """Return values of kinds of clients, shape (chains, kinds, d), for each seat."""
        if each.shape[1] == 1:
            return each
        return np.take_along_axis(each, self._seat_kinds, axis=1)

    @cached_property
    def _seat_kinds(self) -> Indices:
        shape = (len(self.points), self.kinds.shape[1], 1)
        return np.broadcast_to(self.kinds[..., None], shape)

    def spread(self, each: Array) -> Array:
        """Return values of the seats, repeated for each coordinate, as numpy is faster then."""
        return np.broadcast_to(each, (*each.shape[:-1], self.points.shape[2])).copy()

    def scaled(self, each: Array) -> Array:
        """Return the values unchanged."""
        return each

    def finish(self, points: Array) -> Tensor:
        """Return the clients' parameters."""
        return torch.from_numpy(self._turned(points, forward=False) + self._centres)

    def outward(self, directions: Array) -> Tensor:
        """Return directions in the parameters' own basis."""
        return torch.from_numpy(self._turned(directions, forward=False))

    def inward(self, directions: Tensor) -> Array:
        """Return directions in the clients' eigenbases."""
        return self._turned(directions.numpy(), forward=True)
