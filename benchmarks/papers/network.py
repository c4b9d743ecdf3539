"""The paper's network for Fed-SMP trained by ``network.cpp``, two to three times as fast.

What a client does is the same but for rounding: the loop, the ledger and the noise are the
library's. Needs g++.
"""

import ctypes
import hashlib
import platform
import shutil
import subprocess
import tempfile
from functools import cache, cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from fedprivacy.training import FederatedAveraging, FlatModel, cnn
from fedprivacy.training.optimise import Schedule

SOURCE = Path(__file__).with_suffix(".cpp")
OPTIONS = ["-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-std=c++17"]
PARAMETERS, SIDE, CLASSES = 1_663_370, 28, 10
AT_ONCE = 20
"""Clients in one call: each is trained alone, and the start is read once for all."""
FACTORS = 256
"""Records in all of a client's steps up to which its wide layer is kept as outer products."""


@cache
def compiled() -> ctypes.CDLL | None:
    """Return the compiled kernel, built where it is not yet; None without g++."""
    if (compiler := shutil.which("g++")) is None:
        return None
    facts = [SOURCE.read_text(encoding="utf-8"), *OPTIONS, platform.node(), platform.machine()]
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"fed-smp-network-{name}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            fresh = Path(folder) / target.name
            command = [compiler, *OPTIONS, "-shared", "-fPIC", str(SOURCE), "-o", str(fresh)]
            subprocess.run(command, check=True)
            # All or nothing: another process may look for it.
            fresh.rename(target)
    return ctypes.CDLL(str(target))


def kernel() -> ctypes.CDLL:
    """Return the compiled kernel, which must be there."""
    found = compiled()
    assert found is not None
    return found


def at(tensor: Tensor) -> ctypes.c_void_p:
    """Return where a tensor's numbers are."""
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


class PaperNetwork(FlatModel):
    """``cnn()`` on a processor, trained and evaluated by the kernel."""

    @property
    def clients_at_once(self) -> int:
        """How many clients are trained in one call, each alone."""
        return AT_ONCE

    def updates(
        self,
        start: Tensor,
        records: tuple[Tensor, Tensor],
        schedule: Schedule,
        learning_rate: float,
        momentum: float = 0.0,
        proximal: float = 0.0,
        drift: Tensor | None = None,
    ) -> Tensor:
        """See ``FlatModel.updates``; without ``proximal`` and ``drift``."""
        assert not proximal and drift is None
        inputs, labels = (part.contiguous() for part in records)
        check(start, inputs, labels)
        rows, sizes = schedule.rows.contiguous(), torch.tensor(schedule.sizes)
        assert int(rows.min()) >= 0 and int(rows.max()) < len(labels)
        result = torch.empty(rows.shape[1], PARAMETERS)
        numbers = map(ctypes.c_int64, (*rows.shape, FACTORS))
        rates = ctypes.c_float(learning_rate), ctypes.c_float(momentum)
        kernel().updates(at(start), at(inputs), at(labels), at(rows), at(sizes), *numbers, *rates,
                       at(result))  # fmt: skip
        return result

    def evaluate(self, parameters: Tensor, features: Tensor, labels: Tensor) -> tuple[float, float]:
        """See ``FlatModel.evaluate``."""
        inputs, scores = features.contiguous(), torch.empty(len(labels), CLASSES)
        check(parameters, inputs, labels)
        kernel().scores(at(parameters), at(inputs), ctypes.c_int64(len(labels)), at(scores))
        right = float((scores.argmax(1) == labels).double().mean())
        return right, float(functional.cross_entropy(scores, labels))


def check(parameters: Tensor, inputs: Tensor, labels: Tensor) -> None:
    """Refuse what the kernel would read wrongly."""
    assert parameters.shape == (PARAMETERS,) and parameters.dtype == torch.float32
    assert inputs.shape == (len(labels), SIDE, SIDE) and inputs.dtype == torch.float32
    assert labels.dtype == torch.int64 and labels.ne(labels.clamp(0, CLASSES - 1)).sum() == 0


class PaperAveraging(FederatedAveraging):
    """The library's loop with ``PaperNetwork`` in it."""

    @cached_property
    def flat(self) -> FlatModel:
        """The model that every client trains."""
        return PaperNetwork(cnn()(), torch.device("cpu"))
