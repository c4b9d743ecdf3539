"""Uploads of the clients of a Gaussian target, drawn in one step from their exact law."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..theory.targets import Chain
from .posterior import Array


class UploadLaw:
    """The exact law of the uploads of one round, in the eigenbases of the clients' Hessians."""

    def __init__(self, chain: Chain, index: int) -> None:
        local = chain.local_round(index)
        vectors, kinds = chain.target.spectra[1], chain.target.kinds[1]
        groups, size = local.contraction.shape
        self.contraction = local.contraction
        variance = local.own[kinds] / chain.target.shares[:, None]
        if local.gradient is not None:
            basis = vectors[kinds]
            variance = variance + np.einsum("cij,cik,ckj->cj", basis, local.gradient, basis)
        self.own = np.sqrt(variance)
        inner = np.einsum("gai,hak->gihk", vectors, vectors)
        joint = local.common.transpose(0, 2, 1, 3) * inner
        self.common = _root(joint.reshape(groups * size, groups * size))

    def shared(self, local: Any, common: np.random.Generator) -> Any:
        """Return the shared noise of each chain, as it enters every client's upload."""
        if self.common is None:
            return 0.0
        noise = common.standard_normal((len(local.points), len(self.common))) @ self.common
        return local.of_kinds(noise.reshape(len(local.points), *self.contraction.shape))


def _root(covariance: Array) -> NDArray[np.float64] | None:
    """Return the symmetric square root; None for zero."""
    if not covariance.any():
        return None
    values, vectors = np.linalg.eigh(covariance)
    # Eigenvalues of a covariance are at least 0, apart from rounding.
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
