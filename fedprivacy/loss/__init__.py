"""The mathematics of privacy losses: curves, lattices, moments, composition."""

from .pairs.allocation import Allocated
from .pairs.any_of import AnyOf, compose, kinds
from .pairs.bracketed import Bracketed
from .pairs.composed import Composed
from .pairs.curve import Curve, Swapped, orientations
from .pairs.discrete import Atoms
from .pairs.exchanged import LaplaceExchanged
from .pairs.fold import Fold
from .pairs.gaussian import IDENTITY, GaussianMix, Gdp
from .pairs.laplace import LaplacePair
from .pairs.lattice import Side, Tails
from .pairs.least_of import LeastOf
from .pairs.max_loss import MaxLoss
from .pairs.mixture import Mix
from .pairs.nested import Nested, rough_epsilon, scale
from .pairs.opposed import Opposed
from .pairs.sampled import Sampled
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
    "LeastOf",
    "MaxLoss",
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
    "orientations",
    "rough_epsilon",
    "scale",
    "stated_pair",
]
