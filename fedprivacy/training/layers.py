"""Layers that a private model may have, and the replacement of those that it may not."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn

from ..errors import refuse, require

T = TypeVar("T")

NO_STATISTICS = (
    "keep no running statistics",
    "they learn from private data outside the clipped update; use GroupNorm, or "
    "track_running_stats=False. Constant buffers are allowed",
)
MOST_GROUPS = 32
"""Groups of a GroupNorm that replaces another layer."""
_BATCH = nn.modules.batchnorm._BatchNorm
_LAZY = (nn.parameter.UninitializedParameter,)


def checked_module(module: object) -> nn.Module:
    """Return the result of a model factory; refuse it if it is not a module."""
    if not isinstance(module, nn.Module):
        refuse("model", type(module).__name__, "build an nn.Module")
    return module


def copied(name: str, given: T) -> T:
    """Return a copy; refuse an object that cannot be copied."""
    try:
        return copy.deepcopy(given)
    except (RuntimeError, TypeError, ValueError) as error:
        refuse(name, type(given).__name__, f"be copied by copy.deepcopy ({error})")


def private_module(model: nn.Module) -> nn.Module:
    """Return a copy of a model in which GroupNorm replaces every BatchNorm.

    The output of BatchNorm for one record depends on the other records, so no clip norm bounds what
    one record changes. GroupNorm normalises each record by itself: over all channels for
    BatchNorm1d, otherwise in the largest possible number of groups up to 32. Weights and biases are
    kept; running statistics are dropped. The outputs of a trained model change, so train it again.
    InstanceNorm stays, without running statistics.

    Args:
        model: any torch module; unchanged.

    Raises:
        ParameterError: no module, one that cannot be copied, or a BatchNorm of unknown size, or a
            BatchNorm1d of one channel.
    """
    kept = copied("model", checked_module(model))
    replaced: dict[nn.Module, nn.Module] = {}
    for name, module in list(kept.named_modules()):
        if isinstance(module, _BATCH):
            replaced[module] = _grouped(name, module)
        elif isinstance(module, nn.modules.batchnorm._NormBase):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    if kept in replaced:
        return replaced[kept]
    for parent in list(kept.modules()):
        # One layer may have two names.
        for name, child in list(parent._modules.items()):
            if child in replaced:
                setattr(parent, name, replaced[child])
    return kept


def _grouped(name: str, norm: nn.modules.batchnorm._NormBase) -> nn.GroupNorm:
    """Return the GroupNorm for a BatchNorm: its channels, its weights, its place in memory."""
    channels, flat = norm.num_features, isinstance(norm, nn.BatchNorm1d)
    # Of a single number, the normalised value is always 0. A lazy layer has no channels yet.
    rule = f"have at least {1 + flat} channels"
    fits = channels > int(flat)
    require(fits, f"layer {name} ({type(norm).__name__})", channels, rule, "leave it out")
    groups = 1 if flat else max(g for g in range(1, MOST_GROUPS + 1) if channels % g == 0)
    found = nn.GroupNorm(groups, channels, eps=norm.eps, affine=norm.affine)
    if norm.affine:
        found.weight, found.bias = norm.weight, norm.bias
    return found.train(norm.training)


def check_layers(module: nn.Module) -> None:
    """Refuse layers that cannot be trained privately, or that have no known shape."""
    lazy = [name for name, p in module.named_parameters() if isinstance(p, _LAZY)]
    rule = "have parameters of known shapes (no lazy layer)"
    refuse_first(lazy, rule, "run one input through it, or state the sizes of the layers")
    empty = [name for name, p in module.named_parameters() if p.is_meta]
    refuse_first(empty, "contain numbers (not be on the meta device)", "build it on the cpu")
    _check_mixing(module)
    # The flat vector has one dtype.
    kinds = {parameter.dtype for parameter in module.parameters()}
    one = len(kinds) <= 1 and kinds <= {torch.float32, torch.float64}
    require(one, "model's precision", sorted(map(str, kinds)), "be torch.float32 throughout")


def _check_mixing(module: nn.Module) -> None:
    """Refuse layers whose output for one record depends on others."""
    named = [(f"layer {name} ({type(m).__name__})", m) for name, m in module.named_modules()]
    mixing = [told for told, m in named if isinstance(m, _BATCH)]
    way_out = "use GroupNorm, as training.private_module(model) does"
    refuse_first(mixing, "process each record separately", way_out)
    # InstanceNorm does not mix records, but it may keep statistics of records.
    counted = [
        told
        for told, m in named
        if isinstance(m, nn.modules.batchnorm._NormBase) and m.track_running_stats
    ]
    refuse_first(counted, *NO_STATISTICS)


def refuse_first(names: Sequence[str], rule: str, way_out: str) -> None:
    """Refuse a model because of the first of the given layers or tensors, if there is one."""
    for name in names[:1]:
        refuse("model", name, rule, way_out)
