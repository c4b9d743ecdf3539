"""Factors of the matrix that correlates the noise of different rounds, and their errors."""

from .base import DenseFactor, Factor, Recurrence, ToeplitzFactor
from .dense import Matrix
from .interval import Interval
from .optimise import load, optimised, optimised_matrix, save
from .participation import (
    FixedEpochs,
    MinimumSeparation,
    Participation,
    SingleParticipation,
)
from .restarted import Restarted
from .toeplitz import (
    Banded,
    BandedInverse,
    BufferedToeplitz,
    Identity,
    SquareRootToeplitz,
)
from .tree import Tree
from .workload import Errors, Workload, errors, rates

__all__ = [
    "Banded",
    "BandedInverse",
    "BufferedToeplitz",
    "DenseFactor",
    "Errors",
    "Factor",
    "FixedEpochs",
    "Identity",
    "Interval",
    "Matrix",
    "MinimumSeparation",
    "Participation",
    "Recurrence",
    "Restarted",
    "SingleParticipation",
    "SquareRootToeplitz",
    "ToeplitzFactor",
    "Tree",
    "Workload",
    "errors",
    "load",
    "optimised",
    "optimised_matrix",
    "rates",
    "save",
]
