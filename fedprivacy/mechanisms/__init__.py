"""Mechanisms: frozen values whose privacy loss is known."""

from .adaptive import AdaptiveClipping
from .base import CohortMechanism, HeldMechanism, Mechanism, Run, SampledMechanism
from .correlated import CorrelatedNoise, CorrelatedRow, SampledNoise
from .discrete import DiscreteLaplace, RandomizedResponse
from .distributed import DistributedDiscreteGaussian, IntegerPerturbation, Skellam
from .gaussian import Gaussian
from .gradient_descent import NoisyGradientDescent
from .hamiltonian import FederatedHamiltonian
from .langevin import FederatedLangevin
from .laplace import Laplace
from .mixture import MixtureOfGaussians
from .parallel import Parallel
from .perturbation import Perturbation
from .selection import PoissonTrials, PrivateSelection, Trials, TruncatedNegativeBinomial
from .sparsified import Sparsification, SparsifiedPerturbation, Sparsifier
from .splitting_run import SplittingRun
from .stated import ApproximateDp, ConcentratedDp, GaussianDp, RenyiDp

__all__ = [
    "AdaptiveClipping",
    "ApproximateDp",
    "CohortMechanism",
    "ConcentratedDp",
    "CorrelatedNoise",
    "CorrelatedRow",
    "DiscreteLaplace",
    "DistributedDiscreteGaussian",
    "FederatedHamiltonian",
    "FederatedLangevin",
    "Gaussian",
    "GaussianDp",
    "HeldMechanism",
    "IntegerPerturbation",
    "Laplace",
    "Mechanism",
    "MixtureOfGaussians",
    "NoisyGradientDescent",
    "Parallel",
    "Perturbation",
    "PoissonTrials",
    "PrivateSelection",
    "RandomizedResponse",
    "RenyiDp",
    "Run",
    "SampledMechanism",
    "SampledNoise",
    "Skellam",
    "Sparsification",
    "SparsifiedPerturbation",
    "Sparsifier",
    "SplittingRun",
    "Trials",
    "TruncatedNegativeBinomial",
]
