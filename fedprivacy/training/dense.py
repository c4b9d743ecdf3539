"""Fully connected networks for several clients at once, with the gradient in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class DenseNetwork:
    """Affine layers with ReLU between them and the cross-entropy on top.

    Automatic differentiation of many small clients costs several times the arithmetic. Here a step
    is one batched product for each layer in each direction, and the update is added to the
    parameters directly.

    Args:
        shapes: (outputs, inputs) of each layer; the parameters are in the order weight, bias,
            weight, bias.
    """

    shapes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, module: nn.Module) -> DenseNetwork | None:
        """Return ``module`` as a dense network, or None if it has another form.

        It must be exactly ``nn.Sequential`` of ``nn.Flatten``, then ``nn.Linear`` with bias and
        ``nn.ReLU`` in turn. Its parameters must have single precision and must all be trained. No
        layer may have a single unit, because torch rounds its product differently for one client.
        """
        if type(module) is not nn.Sequential or any(map(is_hooked, [module, *module])):
            return None
        affine = _affine(list(module))
        if not affine or not _plain(module, affine):
            return None
        return cls(tuple((layer.out_features, layer.in_features) for layer in affine))

    def views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return (weight, bias) of each layer as views of flat vectors, shape (clients, d)."""
        parts, at = [], 0
        for outputs, inputs in self.shapes:
            weight = flat[:, at : at + outputs * inputs].view(-1, outputs, inputs)
            at += outputs * inputs
            parts.append((weight, flat[:, at : at + outputs].unsqueeze(1)))
            at += outputs
        return parts

    @torch.no_grad()
    def step(
        self,
        parameters: Tensor,
        inputs: Tensor,
        labels: Tensor,
        weights: Tensor,
        into: Tensor,
        *,
        scale: float,
        keep: float = 1.0,
    ) -> None:
        """Set ``into`` to ``keep * into + scale * gradient`` of each client's weighted loss.

        Args:
            parameters: parameters of each client, shape (clients, d); ``into`` may be the same
                tensor.
            inputs: shape (clients, width, ...).
            labels: shape (clients, width).
            weights: weights of the records, shape (clients, width); 0 leaves a record out.
            into: shape (clients, d).
            scale: factor on the gradient.
            keep: factor on the old value of ``into``.
        """
        layers = self.views(parameters)
        outputs = [inputs.flatten(2)]
        for (weight, bias), last in zip(layers, [False] * (len(layers) - 1) + [True], strict=True):
            result = torch.baddbmm(bias, outputs[-1], weight.mT)
            outputs.append(result if last else result.relu_())
        slope = torch.softmax(outputs.pop(), 2)
        truth = labels.unsqueeze(2)
        # The gradient of the cross-entropy in the scores: probabilities, less 1 at the label.
        slope.scatter_add_(2, truth, torch.full_like(truth, -1, dtype=slope.dtype))
        slope *= weights.unsqueeze(2)
        targets = self.views(into)
        for layer in reversed(range(len(layers))):
            below, behind = outputs[layer], slope
            # Computed before this layer's weight changes, as ``into`` may be ``parameters``.
            if layer:
                slope = torch.bmm(behind, layers[layer][0]).mul_(below > 0)
            weight, bias = targets[layer]
            weight.baddbmm_(behind.mT, below, beta=keep, alpha=scale)
            bias.mul_(keep).add_(behind.sum(1, keepdim=True), alpha=scale)


def _affine(layers: list[Any]) -> list[nn.Linear]:
    """Return the affine layers if the list has the form of ``DenseNetwork.of``, else no layer."""
    half = len(layers) // 2
    turns = [nn.Flatten, *([nn.Linear, nn.ReLU] * half)][: 2 * half]
    # Compared by repr: a Flatten of other dimensions is another layer.
    fits = list(map(type, layers)) == turns and repr(layers[:1]) == repr([nn.Flatten()])
    affine = layers[1::2] if fits else []
    return affine if all(layer.out_features > 1 for layer in affine) else []


_HOOKS = tuple(f"_{kind}_hooks" for kind in ("forward", "forward_pre", "backward", "backward_pre"))
_GLOBAL_HOOKS = tuple(f"_global{kind}" for kind in _HOOKS)
_HOOKS_OF_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def is_hooked(module: nn.Module) -> bool:
    """Return whether the module has an attachment that a closed form would ignore.

    These are hooks of this module, of all modules and of its parameters, and an overridden
    ``forward``.
    """
    return (
        _any_of(nn.modules.module, _GLOBAL_HOOKS)
        or "forward" in vars(module)
        or _any_of(module, _HOOKS)
        or any(_any_of(p, _HOOKS_OF_PARAMETERS) for p in module.parameters(recurse=False))
    )


def _any_of(owner: object, names: tuple[str, ...]) -> bool:
    return any(getattr(owner, name) for name in names)


def _plain(module: nn.Module, layers: list[nn.Linear]) -> bool:
    """Return whether the parameters are exactly the layers', of single precision and trained."""
    wanted = [part for layer in layers for part in (layer.weight, layer.bias)]
    # Compared by identity and order, to exclude tied weights and parameters of the module itself.
    if list(map(id, module.parameters())) != list(map(id, wanted)):
        return False
    return all(part.requires_grad and part.dtype == torch.float32 for part in wanted)
