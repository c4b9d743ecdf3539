"""Factors of the matrix by which noise of different rounds is correlated, and their errors."""

from .base import DenseFactor, Factor, Recurrence, ToeplitzFactor
from .dense import Matrix
from .interval import Interval
from .participation import (
    FixedEpochs,
    MinimumSeparation,
    Participation,
    SingleParticipation,
)
from .toeplitz import (
    BandedInverse,
    Banded,
    BufferedToeplitz,
    Identity,
    SquareRootToeplitz,
)
from .tree import Tree

__all__ = [
    "Banded",
    "BandedInverse",
    "BufferedToeplitz",
    "DenseFactor",
    "Factor",
    "FixedEpochs",
    "Identity",
    "Interval",
    "Matrix",
    "MinimumSeparation",
    "Participation",
    "Recurrence",
    "SingleParticipation",
    "SquareRootToeplitz",
    "ToeplitzFactor",
    "Tree",
]
