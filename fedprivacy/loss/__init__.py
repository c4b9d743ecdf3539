"""The mathematics of privacy losses: curves, lattices, moments, composition."""

from .curves.allocation import Allocated
from .curves.between import Bracketed, LeastOf, MostOf
from .curves.checks import check_own
from .curves.cohort_sum import CohortSum
from .curves.components import Components, kinds
from .curves.composed import Composed
from .curves.confined import Confined
from .curves.curve import Curve, Swapped, orientations
from .curves.discrete import Atoms
from .curves.exchanged import Exchanged
from .curves.fold import Fold
from .curves.gaussian import IDENTITY, GaussianMix, Gdp
from .curves.inner_draws import InnerDraws
from .curves.laplace import LaplacePair
from .curves.laplace_replace import LaplaceExchanged
from .curves.largest import LargestRound
from .curves.lattice import Side, Tails
from .curves.max_loss import MaxLoss
from .curves.mixture import Mix
from .curves.nested import Nested, rough_epsilon, scale
from .curves.opposed import Opposed
from .curves.sampled import Sampled
from .curves.stated import RenyiAndPoints, RenyiLine, RenyiPoints, stated_pair
from .curves.summed import SummedRounds
from .curves.support import Support
from .curves.triangles import Triangles, given_way
from .curves.worst_of import DISJOINT, AnyOf, compose
from .moments.moments import MomentBounds, Moments, PairMoments

__all__ = [
    "DISJOINT",
    "IDENTITY",
    "Allocated",
    "AnyOf",
    "Atoms",
    "Bracketed",
    "CohortSum",
    "Components",
    "Composed",
    "Confined",
    "Curve",
    "Exchanged",
    "Fold",
    "GaussianMix",
    "Gdp",
    "InnerDraws",
    "LaplaceExchanged",
    "LaplacePair",
    "LargestRound",
    "LeastOf",
    "MaxLoss",
    "Mix",
    "MomentBounds",
    "Moments",
    "MostOf",
    "Nested",
    "Opposed",
    "PairMoments",
    "RenyiAndPoints",
    "RenyiLine",
    "RenyiPoints",
    "Sampled",
    "Side",
    "SummedRounds",
    "Support",
    "Swapped",
    "Tails",
    "Triangles",
    "check_own",
    "compose",
    "given_way",
    "kinds",
    "orientations",
    "rough_epsilon",
    "scale",
    "stated_pair",
]
