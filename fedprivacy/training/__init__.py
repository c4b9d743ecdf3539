"""Training: the kernel that all loops share, and the loops of all systems under one name.

The loops are part of their systems (``fedprivacy.systems``) and are imported from there on first
use. Everything here needs torch; no other part of the package imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import needs

with needs("training", "'fedprivacy[train]'", "torch"):
    import torch as _torch  # noqa: F401

from .chains import ChainState
from .checkpoint import EmptySum, TrainingResult, load, save, train
from .data import FederatedData, digits, federate, partition_by_label, partition_iid
from .datasets import load_named
from .diagnostics import (
    Clipping,
    Diagnostics,
    FlattenedPosterior,
    clipping,
    diagnose,
    inference_data,
)
from .fashion import fashion_mnist
from .fitting import FittedQuadratic, fitted_quadratic
from .gaussian import GaussianPosterior
from .layers import private_module
from .lazy import LazyData
from .likelihoods import Likelihood, SoftmaxRegression, classifier
from .models import cnn, colour_cnn, logistic, lstm, mlp
from .optimise import FlatModel, LocalSGD
from .posterior import Posterior
from .predictions import Scores, fitted_w2, gaussian_fit, predictive, score
from .release_files import released, save_model
from .rounds import Loop, RoundInfo

if TYPE_CHECKING:
    from ..systems.averaging.collect import Collected
    from ..systems.averaging.loop import FederatedAveraging, State
    from ..systems.averaging.scaffold import Scaffold, ScaffoldState
    from ..systems.averaging.upload import pack, unpack, upload_size
    from ..systems.fa_hmc.loop import DebiasedSampling, DebiasedState, HamiltonianSampling
    from ..systems.fa_ld.loop import LangevinSampling
    from ..systems.fed_plt.agents import AgentData, AgentLoss, LeastSquares, Logistic, ModuleLoss
    from ..systems.fed_plt.loop import FederatedSplitting, SplittingState
    from ..systems.fed_plt.solvers import LocalSolver
    from ..systems.projected.averaging import ProjectedAveraging
    from ..systems.projected.hidden import DescentState
    from ..systems.projected.loop import ProjectedDescent

_LOOPS = {
    "averaging.collect": ("Collected",),
    "averaging.loop": ("FederatedAveraging", "State"),
    "averaging.scaffold": ("Scaffold", "ScaffoldState"),
    "averaging.upload": ("pack", "unpack", "upload_size"),
    "fa_hmc.loop": ("DebiasedSampling", "DebiasedState", "HamiltonianSampling"),
    "fa_ld.loop": ("LangevinSampling",),
    "fed_plt.agents": ("AgentData", "AgentLoss", "LeastSquares", "Logistic", "ModuleLoss"),
    "fed_plt.loop": ("FederatedSplitting", "SplittingState"),
    "fed_plt.solvers": ("LocalSolver",),
    "projected.averaging": ("ProjectedAveraging",),
    "projected.hidden": ("DescentState",),
    "projected.loop": ("ProjectedDescent",),
}
"""Module of ``fedprivacy.systems`` -> its names that are imported from here."""

_ROOM = {name: room for room, names in _LOOPS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _ROOM:
        return getattr(import_module(f"fedprivacy.systems.{_ROOM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "AgentData",
    "AgentLoss",
    "ChainState",
    "Clipping",
    "Collected",
    "DebiasedSampling",
    "DebiasedState",
    "DescentState",
    "Diagnostics",
    "EmptySum",
    "FederatedAveraging",
    "FederatedData",
    "FederatedSplitting",
    "FittedQuadratic",
    "FlatModel",
    "FlattenedPosterior",
    "GaussianPosterior",
    "HamiltonianSampling",
    "LangevinSampling",
    "LazyData",
    "LeastSquares",
    "Likelihood",
    "LocalSGD",
    "LocalSolver",
    "Logistic",
    "Loop",
    "ModuleLoss",
    "Posterior",
    "ProjectedAveraging",
    "ProjectedDescent",
    "RoundInfo",
    "Scaffold",
    "ScaffoldState",
    "Scores",
    "SoftmaxRegression",
    "SplittingState",
    "State",
    "TrainingResult",
    "classifier",
    "clipping",
    "cnn",
    "colour_cnn",
    "diagnose",
    "digits",
    "fashion_mnist",
    "federate",
    "fitted_quadratic",
    "fitted_w2",
    "gaussian_fit",
    "inference_data",
    "load",
    "load_named",
    "logistic",
    "lstm",
    "mlp",
    "pack",
    "partition_by_label",
    "partition_iid",
    "predictive",
    "private_module",
    "released",
    "save",
    "save_model",
    "score",
    "train",
    "unpack",
    "upload_size",
]
