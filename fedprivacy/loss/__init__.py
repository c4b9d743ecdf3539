"""The mathematics of privacy losses: curves, lattices, moments, composition."""

from .largest import Largest, largest
from .pairs.allocation import Allocated
from .pairs.any_of import AnyOf, compose, kinds
from .pairs.bracketed import Bracketed
from .pairs.combined import Composed, Fold, Mix, Sampled
from .pairs.curve import Curve, Swapped, orientations
from .pairs.discrete import Atoms
from .pairs.exchanged import LaplaceExchanged
from .pairs.gaussian import IDENTITY, GaussianMix, Gdp
from .pairs.laplace import LaplacePair
from .pairs.lattice import Side, Tails
from .pairs.least_of import LeastOf
from .pairs.nested import Nested, rough_epsilon, scale
from .pairs.opposed import Opposed
from .pairs.stated import RenyiAndPoints, RenyiLine, RenyiPoints, stated_pair
from .pairs.triangles import Triangles, given_way

__all__ = [
    "IDENTITY",
    "Allocated",
    "AnyOf",
    "Atoms",
    "Bracketed",
    "Composed",
    "Curve",
    "Fold",
    "GaussianMix",
    "Gdp",
    "LaplaceExchanged",
    "LaplacePair",
    "Largest",
    "LeastOf",
    "Mix",
    "Nested",
    "Opposed",
    "RenyiAndPoints",
    "RenyiLine",
    "RenyiPoints",
    "Sampled",
    "Side",
    "Swapped",
    "Tails",
    "Triangles",
    "compose",
    "given_way",
    "kinds",
    "largest",
    "orientations",
    "rough_epsilon",
    "scale",
    "stated_pair",
]
