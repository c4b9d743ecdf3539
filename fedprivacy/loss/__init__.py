"""The mathematics of privacy losses: curves, lattices, moments, composition."""

from .allocation import Allocated
from .any_of import AnyOf, compose, kinds
from .atoms import Atoms
from .curve import Curve, Swapped
from .guarantees import RenyiLine, RenyiPoints, stated_pair
from .largest import Largest, largest
from .lattice import Side, Tails
from .leaves import IDENTITY, GaussianMix, Gdp, LaplacePair
from .nodes import Composed, Fold, Mix, Sampled

__all__ = [
    "IDENTITY",
    "Allocated",
    "AnyOf",
    "Atoms",
    "Composed",
    "Curve",
    "Fold",
    "GaussianMix",
    "Gdp",
    "LaplacePair",
    "Largest",
    "Mix",
    "RenyiLine",
    "RenyiPoints",
    "Sampled",
    "Side",
    "Swapped",
    "Tails",
    "compose",
    "kinds",
    "largest",
    "stated_pair",
]
