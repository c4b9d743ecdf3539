"""Wide linear layers of one client at work: a start, and outer products subtracted from it."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from .dense import is_hooked

LEAST = 2**16
"""Number of entries of a weight below which factors save no time."""


class OuterProducts:
    """The change of a linear layer's weight since a client's start, as factors.

    SGD on b records changes the weight by a matrix of rank b, and so does its momentum. The weight
    itself stays unchanged until the client has finished. A step then reads the weight twice, while
    plain SGD reads and writes a gradient, a velocity and the weight.

    Args:
        weight: weight of the layer, shape (outputs, inputs), at the client's start.
        learning_rate: learning rate of this round.
        momentum: heavy-ball momentum; the velocity starts at 0.
        proximal: factor on the distance from the start that is added to the gradient.
    """

    def __init__(
        self, weight: Tensor, learning_rate: float, momentum: float, proximal: float = 0.0
    ) -> None:
        self.weight, self.proximal = weight, proximal
        self.learning_rate, self.momentum = learning_rate, momentum
        at = weight.detach()
        outputs, inputs = at.shape
        self._inputs, self._slopes = at.new_empty(0, inputs), at.new_empty(0, outputs)
        self._velocity, self._lost = at.new_empty(0), at.new_empty(0)

    def __len__(self) -> int:
        """Return the number of outer products."""
        return len(self._lost)

    def product(self, inputs: Tensor) -> Tensor:
        """Return ``inputs`` times the current weight, transposed."""
        result = inputs @ self.weight.detach().T
        # The start's product less that of the change: thin products, without writing the weight.
        return result.addmm_(inputs @ self._inputs.T, self._scaled(), alpha=-1)

    def pulled_back(self, slope: Tensor) -> Tensor:
        """Return ``slope``, shape (records, outputs), times the current weight."""
        result = slope @ self.weight.detach()
        return result.addmm_(slope @ self._scaled().T, self._inputs, alpha=-1)

    def step(self, inputs: Tensor, slope: Tensor) -> None:
        """Take the step of SGD whose gradient is the transposed ``slope`` times ``inputs``."""
        fresh = slope.new_ones(len(slope))
        # Copied at every step, but small compared with the weight.
        self._inputs = torch.cat([self._inputs, inputs])
        self._slopes = torch.cat([self._slopes, slope])
        # Momentum scales a whole outer product, so its velocity is one number.
        kept = self.momentum * self._velocity
        if self.proximal:
            kept = kept.sub_(self._lost, alpha=self.proximal)
        self._velocity = torch.cat([kept, fresh])
        moved = torch.cat([self._lost, torch.zeros_like(fresh)])
        self._lost = moved.add_(self._velocity, alpha=self.learning_rate)

    def total(self, out: Tensor) -> None:
        """Write the total decrease of the weight to ``out``, shape (outputs, inputs)."""
        torch.mm(self._scaled().T, self._inputs, out=out)

    def _scaled(self) -> Tensor:
        return self._slopes * self._lost.unsqueeze(1)


class _Product(torch.autograd.Function):
    """The product with a weight that is kept as ``OuterProducts``."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, kept: OuterProducts) -> Tensor:
        """Take ``weight`` so that autograd asks for its gradient even if ``inputs`` need none."""
        ctx.kept = kept
        ctx.save_for_backward(inputs)
        return kept.product(inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, None, None]:
        """Return the gradient in the inputs; the weight's gradient goes to the factors."""
        (inputs,), (slope,) = ctx.saved_tensors, slopes
        # Uses the weight before this step.
        below = ctx.kept.pulled_back(slope) if ctx.needs_input_grad[0] else None
        ctx.kept.step(inputs, slope)
        return below, None, None


class FactoredLayers:
    """A model in the training of one client, with wide weights kept as outer products.

    A layer is wide if its factors have at most half as many numbers as its weight. Only in a plain
    ``nn.Sequential`` of torch's own layers it is certain that a weight is used once, by its layer.
    Any other model is called unchanged.

    Args:
        module: the model, at the client's start.
        records: number of records in all steps of the client together.
        learning_rate: learning rate of this round.
        momentum: heavy-ball momentum; the velocity starts at 0.
        proximal: see ``OuterProducts``.
    """

    def __init__(
        self,
        module: nn.Module,
        records: int,
        learning_rate: float,
        momentum: float,
        proximal: float = 0.0,
    ) -> None:
        self.module = module
        self._kept = {
            layer: OuterProducts(layer.weight, learning_rate, momentum, proximal)
            for layer in wide_layers(module, records)
        }
        self._of = {id(kept.weight): kept for kept in self._kept.values()}

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the model's output; the backward pass takes the steps of the wide weights."""
        if not self._kept:
            return torch.as_tensor(self.module(inputs))
        assert isinstance(self.module, nn.Sequential)
        batch = len(inputs)
        layer: Any
        for layer in self.module:
            # Inputs of more dimensions have several rows for each record: more products than were
            # counted.
            alone = inputs.dim() == 2 and len(inputs) == batch
            kept = self._kept.get(layer) if alone else None
            inputs = layer(inputs) if kept is None else _linear(kept, layer.bias, inputs)
        return inputs

    def lost(self, weight: Tensor) -> OuterProducts | None:
        """Return the decrease of a weight, or None if the weight itself was trained."""
        kept = self._of.get(id(weight))
        # Without a step the weight is unchanged.
        return kept if kept is not None and len(kept) else None


def _linear(kept: OuterProducts, bias: Tensor | None, inputs: Tensor) -> Tensor:
    outputs: Tensor = _Product.apply(inputs, kept.weight, kept)  # type: ignore[no-untyped-call]
    return outputs if bias is None else outputs + bias


def wide_layers(module: nn.Module, records: int) -> list[nn.Linear]:
    """Return the layers whose weights may be kept as factors; see ``FactoredLayers``."""
    if not isinstance(module, nn.Sequential):
        return []
    wide = [layer for layer in module if _wide(layer, records)]
    # Autocast changes the precision of layers, but not of these products.
    if not wide or not is_known(module) or torch.is_autocast_enabled(wide[0].weight.device.type):
        return []
    return _used_once(module, wide)


def _used_once(module: nn.Module, wide: list[nn.Linear]) -> list[nn.Linear]:
    # Under every name: a weight that is used twice also gets gradients from its other use.
    everything = module.named_parameters(remove_duplicate=False)
    uses = Counter(parameter.untyped_storage().data_ptr() for _, parameter in everything)
    return [one for one in wide if uses[one.weight.untyped_storage().data_ptr()] == 1]


def _wide(layer: nn.Module, records: int) -> TypeGuard[nn.Linear]:
    if type(layer) is not nn.Linear:
        return False
    inputs, outputs = layer.in_features, layer.out_features
    enough = inputs * outputs >= max(LEAST, 2 * records * (inputs + outputs))
    return enough and layer.weight.requires_grad


def is_known(module: nn.Module) -> bool:
    """Return whether every layer is torch's or from this package, without attachments."""
    ours = ("torch.nn.modules.", __package__)
    own = (type(layer).__module__.startswith(ours) for layer in module.modules())
    return all(own) and not any(map(is_hooked, module.modules()))
