"""Local training: mini-batch SGD on flat parameter vectors, for a few clients at once."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import (
    ParameterError,
    integer,
    natural,
    non_negative,
    positive,
    refuse,
    require,
    validate_fields,
)
from .dense import DenseNetwork
from .layers import NO_STATISTICS, check_layers, checked_module, copied, refuse_first
from .outer_product_layers import FactoredLayers, is_known

Indices = NDArray[np.int64]

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of the model, targets) -> mean over the records of a batch, a scalar."""

ONE_NUMBER = "return one differentiable real number, the mean over a batch"

NUMBERED = "number the labels from 0: the largest one sets the number of classes"

CLIENTS_AT_ONCE = 64
ALIGNED = 16
"""Numbers in 64 bytes, the alignment of torch's allocations."""
WORKSPACE = 2**20
"""Parameters held for clients at work: a larger model has one client at work at a time."""
MOST_STEPS = 10**6
"""Most steps of a client in a round; more is treated as a mistake."""
EVALUATED_AT_ONCE = 256
"""Records at a time; a convolution's output for more records no longer fits a processor's cache."""


@dataclass(frozen=True)
class BatchSchedule:
    """Rows that clients of one size use in each step.

    Args:
        rows: row numbers in the data set, shape (steps, clients, width).
        sizes: records in each step's batch, at most ``width``; the client's first row is the
            padding.
    """

    rows: Tensor
    sizes: tuple[int, ...]

    def alone(self, client: int) -> BatchSchedule:
        """Return one client's part."""
        return BatchSchedule(self.rows[:, client : client + 1], self.sizes)


@dataclass(frozen=True, kw_only=True)
class LocalSGD:
    """Local training of a client in one round.

    Args:
        steps: number of mini-batch steps; either this or ``epochs``.
        epochs: number of passes over the client's records; either this or ``steps``.
        batch_size: records in a mini-batch; a client with fewer uses all of its records.
        momentum: heavy-ball momentum in [0, 1); the velocity is 0 at the start of every round.

    Raises:
        ParameterError: a value out of its range, or not exactly one of ``steps`` and ``epochs``.
    """

    steps: int | None = None
    epochs: int | None = None
    batch_size: int = 32
    momentum: float = 0.0

    def __post_init__(self) -> None:
        one, given = (self.steps is None) != (self.epochs is None), (self.steps, self.epochs)
        rule = "have exactly one value other than None"
        require(one, "local_steps, local_epochs", given, rule, "leave out the other one")
        for name in ("steps", "epochs"):
            if (given := getattr(self, name)) is not None:
                value = integer(1, **{f"local_{name}": given})
                require(value <= MOST_STEPS, f"local_{name}", value, f"be at most {MOST_STEPS}")
                object.__setattr__(self, name, value)
        validate_fields(self, natural, "batch_size")
        below = non_negative(momentum=self.momentum) < 1.0
        require(below, "momentum", self.momentum, "be below 1")

    def batches(self, records: int, generator: np.random.Generator) -> list[Indices]:
        """Return the record numbers of each step's mini-batch.

        The records are shuffled anew before every pass; the last batch of a pass may be smaller.
        """
        per_pass = math.ceil(records / self.batch_size)
        steps = self.steps or (self.epochs or 0) * per_pass
        # All records are in one batch, so no order is drawn.
        if per_pass == 1:
            return [np.arange(records)] * steps
        cuts = range(self.batch_size, records, self.batch_size)
        plan: list[Indices] = []
        while len(plan) < steps:
            plan += np.split(generator.permutation(records), cuts)
        return plan[:steps]

    def schedule(self, clients: Sequence[Indices], generator: np.random.Generator) -> BatchSchedule:
        """Return the schedule of several clients of one size.

        They must have equally many records. Padding a smaller client to a larger one's shapes would
        change its rounding. Many local steps amplify that, so its update would depend on the
        other's data.

        Args:
            clients: row numbers of each client, shape (records,), none empty.
            generator: for the order of the records.
        """
        plans = [self.batches(len(own), generator) for own in clients]
        sizes = tuple(map(len, plans[0]))
        assert all(tuple(map(len, plan)) == sizes for plan in plans)
        shape = (len(sizes), len(plans), max(sizes))
        # Copied, because a broadcast array is read-only.
        rows = np.broadcast_to(np.array([own[0] for own in clients])[:, None], shape).copy()
        for client, (own, plan) in enumerate(zip(clients, plans, strict=True)):
            for step, batch in enumerate(plan):
                rows[step, client, : len(batch)] = own[batch]
        return BatchSchedule(torch.from_numpy(rows), sizes)


class _Task(NamedTuple):
    """Training of clients of one size from the same start; see ``FlatModel.updates``."""

    start: Tensor
    records: tuple[Tensor, Tensor]
    schedule: BatchSchedule
    learning_rate: float
    momentum: float
    proximal: float
    drift: Tensor | None

    def alone(self, client: int) -> _Task:
        """Return one client's part, with a drift of shape (d,)."""
        drift = None if self.drift is None else self.drift[client]
        return self._replace(schedule=self.schedule.alone(client), drift=drift)

    def doubled(self) -> _Task:
        """Return the part of one client, twice."""
        drift = None if self.drift is None else self.drift.repeat(2, 1)
        rows, sizes = self.schedule.rows.repeat(1, 2, 1), self.schedule.sizes
        return self._replace(schedule=BatchSchedule(rows, sizes), drift=drift)


class FlatModel:
    """A module as a function of one flat vector of parameters.

    Convolutions work on channels-last memory, which is faster on processors. The order within the
    flat vector stays that of ``module.parameters()``.

    Args:
        module: any module, all parameters of one precision, single or double. It is copied. Buffers
            must be constants, such as position numbers or a causal mask.
        device: device of the computation.
        loss: loss for the training, see ``Loss``; None for cross-entropy of classes. It is copied
            too.

    Raises:
        ParameterError: the module keeps running statistics, has no parameters, mixes precisions, or
            mixes records as BatchNorm does.
    """

    def __init__(self, module: nn.Module, device: torch.device, loss: Loss | None = None) -> None:
        checked_module(module)
        module = copied("model", module)
        check_layers(module)
        self.device = device
        self._adopt(module)
        require(self.trained, "model", type(module).__name__, "have parameters to train")
        self.dimension = sum(shape.numel() for shape in self.shapes.values())
        self.loss = copied("loss", loss)
        self.dense = DenseNetwork.of(self.module) if loss is None else None
        # Known layers keep no state; of other modules each client gets a new copy.
        self._pristine = None if is_known(self.module) else copy.deepcopy(self.module)
        # A loss is copied too, because its weights may depend on earlier calls.
        self._pristine_loss = copied("loss", loss)
        self._checked: tuple[int | None, ...] | None = None

    def _adopt(self, module: nn.Module) -> None:
        """Use this module for all training from now on."""
        self.module = module.to(self.device)
        self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # Frozen parameters are not part of the flat vector.
        named = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        self.shapes = {name: parameter.shape for name, parameter in named.items()}
        self.trained = list(named.values())
        fixed = [p for p in self.module.parameters() if not p.requires_grad]
        self.frozen: list[Tensor] = [*fixed, *self.module.buffers()]

    @property
    def clients_at_once(self) -> int:
        """Number of clients of one size that are trained together.

        It is more than 1 only for networks in closed form, whose arithmetic for a client does not
        depend on the number of clients. Torch's other layers may round the end of a row differently
        from its middle, and the position of that end depends on the other clients.
        """
        most = min(CLIENTS_AT_ONCE, max(1, WORKSPACE // self.dimension))
        return 1 if self.dense is None else most

    def flatten(self) -> Tensor:
        """Return a copy of the module's parameters, shape (d,)."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.trained])

    def split(self, flat: Tensor) -> list[Tensor]:
        """Return each parameter's part of a flat vector of shape (d,), in its own shape."""
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = zip(self.shapes.values(), torch.split(flat, sizes), strict=True)
        return [part.view(shape) for shape, part in parts]

    @torch.no_grad()
    def load(self, flat: Tensor) -> None:
        """Copy a flat vector of shape (d,) into the module."""
        for parameter, part in zip(self.trained, self.split(flat), strict=True):
            parameter.copy_(part)

    def whole(self, parameters: Tensor) -> dict[str, Tensor]:
        """Return the state dict of a fresh module with these parameters, flat, shape (d,)."""
        self._renew()
        self.load(parameters)
        return self.module.state_dict()

    def logits(self, parameters: Tensor, features: Tensor) -> Tensor:
        """Return the module's output for inputs of shape (records, ...), shape (records, classes).

        Args:
            parameters: flat, shape (d,).
            features: the inputs.
        """
        named = dict(zip(self.shapes, self.split(parameters), strict=True))
        # Clones, because a module may write to its buffers.
        named |= {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        result = torch.func.functional_call(self.module, named, (features,))
        return torch.as_tensor(result)

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
        """Train clients from the same start and return ``start - trained``, shape (clients, d).

        Args:
            start: the round's parameters, shape (d,).
            records: (inputs, labels) of the whole data set.
            schedule: rows that each client uses in each step.
            learning_rate: learning rate of this round.
            momentum: heavy-ball momentum; the velocity starts at 0.
            proximal: mu of FedProx: the loss plus mu / 2 times the squared distance from the start.
            drift: added to every gradient of each client, shape (clients, d), without momentum.
        """
        task = _Task(start, records, schedule, learning_rate, momentum, proximal, drift)
        if self.dense is not None:
            few = task.schedule.rows.shape[1]
            # A single client rounds differently from several, so a copy is added to it.
            alone = few == 1 < self.clients_at_once
            return self._together(self.dense, task.doubled() if alone else task)[:few]
        clients = range(task.schedule.rows.shape[1])
        return torch.cat([self._alone(task.alone(client)) for client in clients])

    def check_outputs(self, inputs: Tensor, targets: Tensor, classes: int | None) -> None:
        """Check the model, once, on records that belong to no client.

        Args:
            inputs: inputs of some records, shape (records, ...).
            targets: their targets.
            classes: least number of outputs; None with a loss from the caller.

        Raises:
            ParameterError: the model cannot be called on the inputs, has too few outputs, or
                changes its buffers. Or the loss is not a differentiable number, or differs in a
                second call.
        """
        # One pass for each shape of records, not for each round.
        facts = (*inputs.shape[1:], *targets.shape[1:], classes)
        if self._checked == facts:
            return
        self._renew()
        # Two records show whether the model returns one output for each.
        inputs, targets = inputs[:2].to(self.device), targets[:2].to(self.device)
        # Compared before and after: a forward pass changes running statistics.
        before = {name: values.clone() for name, values in self.module.named_buffers()}
        outputs = self._tried(inputs)
        now = self.module.named_buffers()
        changed = [name for name, values in now if not torch.equal(before[name], values)]
        refuse_first(changed, *NO_STATISTICS)
        if classes is not None:
            self._check_scores(outputs, len(inputs), classes)
        elif self.loss is not None:
            self._check_loss(inputs, targets)
        self._checked = facts

    def _tried(self, inputs: Tensor) -> object:
        try:
            # A random layer, such as dropout, must not change the caller's random state.
            with torch.random.fork_rng(devices=[]):
                outputs: object = self.module(inputs.clone())
        except Exception as error:
            rule = f"be called on inputs of shape {tuple(inputs.shape)} ({error})"
            refuse("model", type(self.module).__name__, rule)
        return outputs

    def _check_scores(self, outputs: object, records: int, classes: int) -> None:
        wanted = f"return shape (records, k) with k at least {classes}"
        if not isinstance(outputs, Tensor):
            refuse("model's output", type(outputs).__name__, wanted)
        rule = "be real and depend on its parameters"
        require(has_slope(outputs), "model's output", type_and_shape(outputs), rule)
        shape = tuple(outputs.shape)
        fits = shape[:1] == (records,) and len(shape) == 2 and shape[1] >= classes
        short = shape == (records, classes - 1)
        way_out = NUMBERED if short else "pass a loss for other outputs"
        require(fits, "model's output", shape, wanted, way_out)

    def _check_loss(self, inputs: Tensor, targets: Tensor) -> None:
        try:
            first, again = self._loss_of(inputs, targets), self._loss_of(inputs, targets)
        except ParameterError:
            raise
        except Exception as error:
            way_out = f"targets have shape {tuple(targets.shape)}"
            refuse("loss", f"{type(error).__name__}: {error}", ONE_NUMBER, way_out)
        # State outside the object, such as a captured variable, is not reset by a copy. It would
        # pass from client to client, and no clip norm bounds the effect.
        same = math.isclose(first, again, rel_tol=1e-5) or math.isnan(first + again)
        rule = "be a deterministic function of outputs and targets, up to torch's randomness"
        way_out = "remove state that one client leaves for the next"
        require(same, "loss", (first, again), rule, way_out)

    def _loss_of(self, inputs: Tensor, targets: Tensor) -> float:
        """Return the loss of a client that starts with these records."""
        self._renew()
        outputs = self._tried(inputs)
        # The caller's random state must not change, and the second call must use the same draws.
        with torch.random.fork_rng(devices=[]):
            return float(self._trained_loss(outputs, targets.clone()).detach())

    def _renew(self) -> None:
        """Take new copies of the module and the loss, which may depend on earlier calls."""
        if self._pristine is not None:
            self._adopt(copy.deepcopy(self._pristine))
        self.loss = copy.deepcopy(self._pristine_loss)
        self.module.train()

    def _together(self, dense: DenseNetwork, task: _Task) -> Tensor:
        """Train clients of one size together.

        The rounding of a product depends on memory positions. So all clients' numbers start at
        multiples of ``ALIGNED`` from the first client's. Batches are filled up with weight 0.
        """
        start, records, schedule, learning_rate, momentum, proximal, drift = task
        rows, apart = schedule.rows, len(start) + -len(start) % ALIGNED
        clients = rows.shape[1]
        trained, velocity = start.new_zeros(2, clients, apart)[:, :, : len(start)].unbind()
        trained.copy_(start)
        filling = rows[:, :, :1].expand(-1, -1, -rows.shape[2] % ALIGNED)
        batches = self._batches(records, torch.cat([rows, filling], dim=2))
        for size, (inputs, labels) in zip(schedule.sizes, batches, strict=True):
            weights = start.new_zeros(clients, size + -size % ALIGNED)
            weights[:, :size] = 1.0 / size
            width = weights.shape[1]
            batch = (inputs[:, :width], labels[:, :width], weights)
            # Without momentum a step updates the parameters directly, without a velocity.
            if not momentum:
                pull = learning_rate * proximal
                dense.step(trained, *batch, trained, scale=-learning_rate, keep=1.0 - pull)
                if pull:
                    trained.add_(start, alpha=pull)
                if drift is not None:
                    trained.sub_(drift, alpha=learning_rate)
                continue
            dense.step(trained, *batch, velocity, scale=1.0, keep=momentum)
            if proximal:
                velocity.add_(trained - start, alpha=proximal)
            trained.sub_(velocity, alpha=learning_rate)
        return start - trained

    def _alone(self, task: _Task) -> Tensor:
        """Train one client in the module itself: a large model is limited by memory traffic."""
        start, records, schedule, learning_rate, momentum, proximal, drift = task
        self._renew()
        self.load(start)
        # A fused optimiser makes one pass over the parameters, on devices that support it.
        fused = self.device.type in ("cpu", "cuda")
        # A new optimiser for every client, because its velocity must start at 0.
        optimiser = torch.optim.SGD(self.trained, learning_rate, momentum, fused=fused)
        # A drift has no outer-product form, so wide layers are written in full.
        used = sum(schedule.sizes) if drift is None else 2**62
        model = FactoredLayers(self.module, used, learning_rate, momentum, proximal)
        batches = self._batches(records, schedule.rows[:, 0])
        for size, (inputs, labels) in zip(schedule.sizes, batches, strict=True):
            optimiser.zero_grad()
            loss = self._trained_loss(model(inputs[:size]), labels[:size])
            torch.autograd.backward(loss)
            if proximal:
                self._pull(start, proximal)
            optimiser.step()
            if drift is not None:
                self._move(drift, -learning_rate)
        # Otherwise this client's gradients would stay in memory together with the update.
        optimiser.zero_grad()
        return self._lost(start, model).unsqueeze(0)

    @torch.no_grad()
    def _pull(self, start: Tensor, proximal: float) -> None:
        """Add the proximal term's gradient; wide layers have it in their factors."""
        for parameter, old in zip(self.trained, self.split(start), strict=True):
            # A parameter without a gradient has not moved.
            if parameter.grad is not None:
                parameter.grad.add_(parameter - old, alpha=proximal)

    def _trained_loss(self, outputs: Any, targets: Tensor) -> Tensor:
        found: object = self._mean_loss(outputs, targets)
        # A loss may return another kind of value in a later step.
        if not isinstance(found, Tensor) or found.dim() or not has_slope(found):
            refuse("loss", type_and_shape(found), ONE_NUMBER, "pass nn.MSELoss(), for example")
        return found

    @torch.no_grad()
    def _move(self, direction: Tensor, step: float) -> None:
        """Add ``step`` times a flat vector to the parameters."""
        for parameter, part in zip(self.trained, self.split(direction), strict=True):
            parameter.add_(part, alpha=step)

    def _mean_loss(self, outputs: Any, targets: Tensor) -> Tensor:
        if self.loss is not None:
            return self.loss(outputs, targets)
        return functional.cross_entropy(outputs, targets)

    @torch.no_grad()
    def _lost(self, start: Tensor, model: FactoredLayers) -> Tensor:
        """Return start less the trained parameters, shape (d,)."""
        # Filled part by part, so that no second flat copy of the model is made.
        update = torch.empty_like(start)
        parts = zip(self.trained, self.split(start), self.split(update), strict=True)
        for trained, old, new in parts:
            factors = model.lost(trained)
            if factors is None:
                torch.sub(old, trained, out=new)
            else:
                factors.total(new)
        return update

    def _batches(
        self, records: tuple[Tensor, Tensor], schedule: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the (inputs, labels) of each step's rows; the same rows are fetched once.

        A module may write to its inputs, so it gets a copy.
        """
        before: Tensor | None = None
        for rows in schedule.to(records[1].device):
            if before is None or not torch.equal(rows, before):
                before = rows
                inputs, labels = (part_of(rows, part).to(self.device) for part in records)
            yield inputs if self.dense else inputs.clone(), labels

    @torch.no_grad()
    def evaluate(self, parameters: Tensor, features: Tensor, labels: Tensor) -> tuple[float, float]:
        """Return (accuracy, mean loss) of flat ``parameters`` on a data set.

        Accuracy is NaN with a loss from the caller, because the right answer is not defined then.
        """
        self._renew()
        self.module.eval()
        self.load(parameters)
        right, loss = 0.0, 0.0
        parts = (torch.split(every, EVALUATED_AT_ONCE) for every in (features, labels))
        for part, truth in zip(*parts, strict=True):
            # A module may write to its inputs.
            outputs = self.module(part.clone())
            if self.loss is None:
                right += float((outputs.argmax(1) == truth).sum())
            loss += len(truth) * float(self._mean_loss(outputs, truth))
        # An empty test set has accuracy NaN, without an error.
        count = len(labels) or math.nan
        return (right if self.loss is None else math.nan) / count, loss / count


def part_of(rows: Tensor, values: Tensor) -> Tensor:
    """Return some rows of a tensor, shape (*rows.shape, ...).

    Whole rows are copied at once, three times as fast as by an index.
    """
    return values.index_select(0, rows.flatten()).view(*rows.shape, *values.shape[1:])


def check_frozen(one: FlatModel, other: FlatModel) -> None:
    """Refuse a model whose frozen parameters and buffers differ when it is built again."""
    kept = [tuple(model.frozen) for model in (one, other)]
    same = len(kept[0]) == len(kept[1]) and all(map(torch.equal, *kept))
    rule, way_out = "be equal for every build of the model", "load them from a file"
    require(same, "model's frozen parameters and buffers", "new ones", rule, way_out)


def has_slope(found: Tensor) -> bool:
    """Return whether a tensor has real numbers and torch can differentiate it."""
    return found.is_floating_point() and found.requires_grad


def type_and_shape(found: object) -> str:
    """Return a short description of the value that a caller's function returned."""
    if not isinstance(found, Tensor):
        return type(found).__name__
    slope = "" if found.requires_grad else " without a gradient"
    return f"{found.dtype} of shape {tuple(found.shape)}{slope}"


def default_device() -> str:
    """Return "cuda" if torch finds it, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def checked_rates(
    learning_rate: object, learning_rate_decay: object, server_learning_rate: object
) -> None:
    """Raise ParameterError unless the rates are above 0 and the decay is at most 1."""
    largest = torch.finfo(torch.float32).max
    rates = {"learning_rate": learning_rate, "server_learning_rate": server_learning_rate}
    for name, rate in rates.items():
        if positive(**{name: rate}) > largest:
            refuse(name, rate, f"be at most {largest:.3g}, the largest value in single precision")
    if positive(learning_rate_decay=learning_rate_decay) > 1.0:
        refuse("learning_rate_decay", learning_rate_decay, "be at most 1", "1 keeps the rate")
