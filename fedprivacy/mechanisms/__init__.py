"""Mechanisms: frozen values with a known privacy loss.

Names in ``__all__`` are also available as ``fp.NAME``.
"""

from ..sampling.traits import Traits as Traits
from .adaptive import AdaptiveClipping
from .base import CohortMechanism as CohortMechanism
from .base import Combined as Combined
from .base import Drawn as Drawn
from .base import HeldMechanism as HeldMechanism
from .base import Mechanism
from .base import Run as Run
from .base import SampledMechanism as SampledMechanism
from .correlated import CorrelatedNoise
from .correlated import CorrelatedRow as CorrelatedRow
from .correlated import SampledNoise as SampledNoise
from .discrete import DiscreteLaplace, RandomizedResponse
from .distributed import DistributedDiscreteGaussian, Skellam
from .distributed import IntegerPerturbation as IntegerPerturbation
from .gaussian import Gaussian
from .gradient_descent import NoisyGradientDescent
from .hamiltonian import FederatedHamiltonian
from .hidden_averaging import HiddenAveraging
from .langevin import FederatedLangevin
from .laplace import Laplace
from .mixture import MixtureOfGaussians
from .noisy_sgd import NoisySGD
from .parallel import Parallel
from .perturbation import Encoding as Encoding
from .perturbation import Perturbation as Perturbation
from .selection import PoissonTrials, PrivateSelection, TruncatedNegativeBinomial
from .selection import Trials as Trials
from .sparsification import Sparsification as Sparsification
from .sparsification import Sparsifier as Sparsifier
from .sparsified import SparsifiedPerturbation
from .splitting_run import SplittingRun
from .stated import ApproximateDp, ConcentratedDp, GaussianDp, RenyiDp

__all__ = [
    "AdaptiveClipping",
    "ApproximateDp",
    "ConcentratedDp",
    "CorrelatedNoise",
    "DiscreteLaplace",
    "DistributedDiscreteGaussian",
    "FederatedHamiltonian",
    "FederatedLangevin",
    "Gaussian",
    "GaussianDp",
    "HiddenAveraging",
    "Laplace",
    "Mechanism",
    "MixtureOfGaussians",
    "NoisyGradientDescent",
    "NoisySGD",
    "Parallel",
    "PoissonTrials",
    "PrivateSelection",
    "RandomizedResponse",
    "RenyiDp",
    "Skellam",
    "SparsifiedPerturbation",
    "SplittingRun",
    "TruncatedNegativeBinomial",
]
