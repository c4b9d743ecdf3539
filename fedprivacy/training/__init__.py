"""Training loops, data sets and models: the only part of fedprivacy that needs torch."""

from ..errors import ParameterError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ParameterError("training needs torch; pip install 'fedprivacy[train]'") from error

from ..systems.averaging.collect import Collected
from ..systems.averaging.loop import FederatedAveraging, State
from ..systems.averaging.upload import pack, unpack, upload_size
from ..systems.fa_hmc.loop import HamiltonianSampling
from ..systems.fa_ld.loop import LangevinSampling
from ..systems.fed_plt.agents import AgentData, AgentLoss, LeastSquares, Logistic, ModuleLoss
from ..systems.fed_plt.loop import FederatedSplitting, SplittingState
from ..systems.fed_plt.solvers import LocalSolver
from .chains import ChainState
from .checkpoint import TrainingResult, load, save, train
from .data import FederatedData, digits, federate, partition_by_label, partition_iid
from .datasets import load_named
from .fashion import fashion_mnist
from .models import cnn, colour_cnn, logistic, lstm, mlp
from .optimise import FlatModel, LocalSGD
from .posterior import GaussianPosterior, Likelihood, Posterior, SoftmaxRegression, classifier
from .predictive import Diagnostics, Scores, diagnose, fitted_w2, gaussian_fit, predictive, score
from .rounds import Loop, RoundInfo

__all__ = [
    "AgentData",
    "AgentLoss",
    "ChainState",
    "Collected",
    "Diagnostics",
    "FederatedAveraging",
    "FederatedData",
    "FederatedSplitting",
    "FlatModel",
    "GaussianPosterior",
    "HamiltonianSampling",
    "LangevinSampling",
    "LeastSquares",
    "Likelihood",
    "LocalSGD",
    "LocalSolver",
    "Logistic",
    "Loop",
    "ModuleLoss",
    "Posterior",
    "RoundInfo",
    "Scores",
    "SoftmaxRegression",
    "SplittingState",
    "State",
    "TrainingResult",
    "classifier",
    "cnn",
    "colour_cnn",
    "diagnose",
    "digits",
    "fashion_mnist",
    "federate",
    "fitted_w2",
    "gaussian_fit",
    "load",
    "load_named",
    "logistic",
    "lstm",
    "mlp",
    "pack",
    "partition_by_label",
    "partition_iid",
    "predictive",
    "save",
    "score",
    "train",
    "unpack",
    "upload_size",
]
