"""The mathematics of privacy losses: curves, lattices, moments, composition."""

from .curve import (
    IDENTITY,
    Composed,
    Curve,
    Fold,
    GaussianMix,
    Gdp,
    LaplacePair,
    Mix,
    Sampled,
    Swapped,
    compose,
)
from .lattice import Side, Tails

__all__ = [
    "IDENTITY",
    "Composed",
    "Curve",
    "Fold",
    "GaussianMix",
    "Gdp",
    "LaplacePair",
    "Mix",
    "Sampled",
    "Side",
    "Swapped",
    "Tails",
    "compose",
]
