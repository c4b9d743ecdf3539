"""Mechanisms: frozen values whose privacy loss is known."""

from .base import CohortMechanism, Mechanism, Run, SampledMechanism
from .gaussian import Gaussian
from .laplace import Laplace
from .sparsified import SparsifiedPerturbation, Sparsifier

__all__ = [
    "CohortMechanism",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Run",
    "SampledMechanism",
    "SparsifiedPerturbation",
    "Sparsifier",
]
