"""The paper's network for Fed-SMP trained by ``network.cpp``, about twice as fast.

A client's training is the same except for rounding, and its batches are the same. The loop, the
ledger and the noise are the library's. (Winograd's sums overflow at values of 1e36 and more, one or
two powers of ten before torch's do; such a run has diverged anyway.) It needs g++ and runs only on
a CPU.
"""

import ctypes
from functools import cached_property
from typing import Any

import kernels
import numpy as np
import torch
from kernels import at
from torch import Tensor, nn
from torch.nn import functional

from fedprivacy.reproductions.fed_smp.settings import Unguarded
from fedprivacy.systems.averaging.clients import ClientTask
from fedprivacy.training import FlatModel, cnn
from fedprivacy.training.data import ClientGroup
from fedprivacy.training.optimise import BatchSchedule

PARAMETERS, SIDE, CLASSES = 1_663_370, 28, 10
SHAPES = [(32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 3136), (512,), (10, 512), (10,)]
AT_ONCE = 20
"""Clients in one call: each is trained separately, and the start is read once for all."""
FACTORS = 256
"""Most records in all of a client's steps for which its wide layer is kept as outer products."""


class Logarithm(nn.Module):
    """The logarithm of probabilities; a loss takes the label's."""

    def forward(self, probabilities: Tensor) -> Tensor:
        """Return the logarithms; an unused logarithm of 0 has the gradient 0 / 0."""
        return probabilities.log()


class LabelLogarithm(Logarithm):
    """The same if only the label's logarithm is ever computed."""

    def forward(self, probabilities: Tensor) -> Tensor:
        """Return the logarithms; an unused one has no gradient."""
        found: Tensor = _LookedAt.apply(probabilities)
        return found


class _LookedAt(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(probabilities: Tensor) -> Tensor:
        return probabilities.log()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (probabilities,) = ctx.saved_tensors
        return torch.where(slope == 0.0, slope, slope / probabilities)


def softmax_cnn(logarithm: type[Logarithm] = Logarithm) -> nn.Module:
    """Return ``cnn()`` with a softmax as its last layer, and the logarithm for its loss.

    In exact arithmetic that is ``cnn()`` itself. In single precision a probability may be 0, and
    its logarithm then has no gradient.
    """
    return nn.Sequential(*cnn()(), nn.Softmax(dim=-1), logarithm())


def compiled() -> ctypes.CDLL | None:
    """Return the compiled kernel; None without g++."""
    return kernels.compiled("network.cpp")


def kernel() -> ctypes.CDLL:
    """Return the compiled kernel; raise without g++."""
    found = compiled()
    assert found is not None
    return found


class PaperNetwork(FlatModel):
    """``cnn()`` or ``softmax_cnn()`` on a CPU, trained and evaluated by the kernel."""

    @property
    def logarithms(self) -> int:
        """Kind of logarithm in the loss, as in ``network.cpp``."""
        # Another last layer would be a different model.
        last = type(list(self.module.children())[-1])
        return {nn.Linear: 0, LabelLogarithm: 1, Logarithm: 2}[last]

    @property
    def clients_at_once(self) -> int:
        """Number of clients that are trained in one call, each separately."""
        return AT_ONCE

    def updates(
        self,
        start: Tensor,
        records: tuple[Tensor, Tensor],
        schedule: BatchSchedule,
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
        assert rows.dtype == torch.int64 and max(schedule.sizes) <= rows.shape[2]
        assert int(rows.min()) >= 0 and int(rows.max()) < len(labels)
        result = torch.empty(rows.shape[1], PARAMETERS)
        numbers = map(ctypes.c_int64, (*rows.shape, FACTORS, self.logarithms))
        rates = ctypes.c_float(learning_rate), ctypes.c_float(momentum)
        kernel().updates(at(start), at(inputs), at(labels), at(rows), at(sizes), *numbers, *rates,
                       at(result))  # fmt: skip
        return result

    def evaluate(self, parameters: Tensor, features: Tensor, labels: Tensor) -> tuple[float, float]:
        """See ``FlatModel.evaluate``."""
        inputs, scores = features.contiguous(), torch.empty(len(labels), CLASSES)
        check(parameters, inputs, labels)
        kernel().scores(at(parameters), at(inputs), ctypes.c_int64(len(labels)), at(scores))
        scores = scores.softmax(1).log() if self.logarithms else scores
        right = float((scores.argmax(1) == labels).double().mean())
        return right, float(functional.cross_entropy(scores, labels))


def check(parameters: Tensor, inputs: Tensor, labels: Tensor) -> None:
    """Refuse tensors that the kernel would read incorrectly."""
    assert parameters.shape == (PARAMETERS,) and parameters.dtype == torch.float32
    assert inputs.shape == (len(labels), SIDE, SIDE) and inputs.dtype == torch.float32
    assert labels.dtype == torch.int64 and labels.ne(labels.clamp(0, CLASSES - 1)).sum() == 0


class PaperAveraging(Unguarded):
    """``Unguarded`` with ``PaperNetwork``."""

    trained_by = "network.cpp"

    @cached_property
    def flat(self) -> FlatModel:
        """The model that every client trains."""
        plain = super().flat
        shapes = [tuple(shape) for shape in plain.shapes.values()]
        assert self.loss is None and plain.device.type == "cpu" and shapes == SHAPES
        return PaperNetwork(plain.module, plain.device)

    def _job(
        self, group: ClientGroup, order: np.random.Generator, epochs: int | None = None
    ) -> ClientTask:
        """Draw for one client after another, as for a network that torch trains.

        Batches are then the same as with torch, for every number of clients in one call.
        """
        draw = super()._job
        clients = zip(group.clients, group.rows, strict=True)
        alone = [
            draw(ClientGroup([client], group.records, [rows]), order, epochs)
            for client, rows in clients
        ]
        rows = torch.cat([job.schedule.rows for job in alone], dim=1)
        # The kernel itself draws no random numbers.
        return ClientTask(
            group.clients, group.records, BatchSchedule(rows, alone[0].schedule.sizes), None
        )
