"""Training loops, data sets and models: the only part of fedprivacy that needs torch."""

from ..errors import ParameterError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ParameterError("training needs torch; pip install 'fedprivacy[train]'") from error

from .averaging import FederatedAveraging, State
from .checkpoint import TrainingResult, load, save, train
from .data import FederatedData, digits, federate, partition_by_label, partition_iid
from .fashion import fashion_mnist
from .models import cnn, logistic, mlp
from .optimise import FlatModel, LocalSGD
from .rounds import Loop, RoundInfo

__all__ = [
    "FederatedAveraging",
    "FederatedData",
    "FlatModel",
    "LocalSGD",
    "Loop",
    "RoundInfo",
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
