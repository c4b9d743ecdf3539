"""Mechanisms: frozen values whose privacy loss is known."""

from .base import CohortMechanism, Mechanism, Run, SampledMechanism
from .gaussian import Gaussian
from .gradient_descent import NoisyGradientDescent
from .hamiltonian import FederatedHamiltonian
from .langevin import FederatedLangevin
from .laplace import Laplace
from .parallel import Parallel
from .perturbation import Perturbation
from .sparsified import Sparsification, SparsifiedPerturbation, Sparsifier
from .splitting_run import SplittingRun
from .stated import ApproximateDp, RenyiDp

__all__ = [
    "ApproximateDp",
    "CohortMechanism",
    "FederatedHamiltonian",
    "FederatedLangevin",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "NoisyGradientDescent",
    "Parallel",
    "Perturbation",
    "RenyiDp",
    "Run",
    "SampledMechanism",
    "Sparsification",
    "SparsifiedPerturbation",
    "Sparsifier",
    "SplittingRun",
]
