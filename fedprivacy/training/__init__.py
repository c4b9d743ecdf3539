"""Training loops, data sets and models: the only part of fedprivacy that needs torch."""

from ..errors import ParameterError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ParameterError("training needs torch; pip install 'fedprivacy[train]'") from error

from .agents import AgentData, AgentLoss, LeastSquares, Logistic, ModuleLoss
from .averaging import FederatedAveraging, State
from .checkpoint import TrainingResult, load, save, train
from .data import FederatedData, digits, federate, partition_by_label, partition_iid
from .fashion import fashion_mnist
from .models import cnn, logistic, mlp
from .optimise import FlatModel, LocalSGD
from .rounds import Loop, RoundInfo
from .solvers import LocalSolver
from .splitting import FederatedSplitting, SplittingState

__all__ = [
    "AgentData",
    "AgentLoss",
    "FederatedAveraging",
    "FederatedData",
    "FederatedSplitting",
    "FlatModel",
    "LeastSquares",
    "LocalSGD",
    "LocalSolver",
    "Logistic",
    "Loop",
    "ModuleLoss",
    "RoundInfo",
    "SplittingState",
    "State",
    "TrainingResult",
    "cnn",
    "digits",
    "fashion_mnist",
    "federate",
    "load",
    "logistic",
    "mlp",
    "partition_by_label",
    "partition_iid",
    "save",
    "train",
]
