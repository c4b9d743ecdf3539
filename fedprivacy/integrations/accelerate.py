"""Hugging Face Accelerate: a loop's objects made private, with a budget and a ledger.

    private = PrivateLoop(
        accelerator, noise_multiplier=1.0, clip_norm=1.0, ledger="run.ledger",
        budget=fp.Budget(3.0, 1e-5, adjacency="zero_out"),
    )
    model, optimizer, loader = private.prepare(model, optimizer, loader)  # not accelerator.prepare
    ...  # the loop, unchanged; loader hands out no batch beyond the budget
    private.complete()

The steps are those of Opacus (``integrations.opacus``), in one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import needs, refuse, require

with needs("PrivateLoop", "accelerate 'fedprivacy[train]' opacus", "accelerate", "torch", "opacus"):
    from accelerate import Accelerator
    from accelerate.utils import send_to_device
    from torch import nn
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader

    from .opacus.hosts import PrivateRun

__all__ = ["PrivateLoop"]


class PrivateLoop(PrivateRun):
    """Makes one training loop private; see ``PrivateRun`` for the other arguments.

    Before a step is released, its intent is on disk. ``Accelerator.save_state`` saves the place in
    the ledger, and ``load_state`` requires the ledger of that run. At the end call ``complete``. A
    loop that ends without it leaves an open ledger, which can be resumed.

    Args:
        accelerator: one process, full precision, no accumulated gradients.
        **named: see ``PrivateRun``.

    Raises:
        ParameterError: a setting of the accelerator that would change the steps.
    """

    def __init__(self, accelerator: Accelerator, **named: Any) -> None:
        super().__init__(**named)
        self._accelerator = accelerator
        self._check()

    def prepare(
        self, module: nn.Module, optimizer: Optimizer, loader: DataLoader[Any]
    ) -> tuple[nn.Module, Any, Batches]:
        """Prepare a loop's objects, in place of ``Accelerator.prepare``.

        Args:
            module: it stays the same object, with per-record gradients.
            optimizer: of the module.
            loader: passes over the records; batches are drawn anew, by Poisson sampling.

        Returns:
            The module, Accelerate's optimizer, and the loader that stops at the budget.

        Raises:
            ParameterError: prepared objects, or another call before; see also ``begin``.
        """
        self._check()
        if isinstance(getattr(optimizer, "optimizer", None), Optimizer):
            way_out = "pass it only to this method"
            refuse("optimizer", type(optimizer).__name__, "not be prepared yet", way_out)
        draws = self.loader(loader)
        prepared = self._accelerator.prepare_model(module)
        if prepared is not module:
            rule = "stay unwrapped, since per-record gradients come from its layers"
            refuse("module", type(prepared).__name__, rule, "use one process, do not compile")
        private = self._accelerator.prepare_optimizer(self.begin(module, optimizer))
        self._accelerator.register_for_checkpointing(self)
        return module, private, Batches(self, draws, self._accelerator)

    def _check(self) -> None:
        here = self._accelerator
        processes = here.num_processes
        rule = "be 1, since the sum of several processes' steps has other noise"
        require(processes == 1, "num_processes", processes, rule)
        rule = "be 'no', since sums are rounded in the precision of the gradients"
        require(here.mixed_precision == "no", "mixed_precision", here.mixed_precision, rule)
        batches = here.gradient_accumulation_steps
        rule = "be 1: a batch is a step"
        require(batches == 1, "gradient_accumulation_steps", batches, rule, "take a larger batch")


class Batches:
    """The batches of a private loop, on its device; it ends when no further step fits the budget.

    Accelerate's own loader draws one batch ahead, which would be dropped at the end.
    """

    def __init__(self, run: PrivateRun, loader: DataLoader[Any], accelerator: Accelerator) -> None:
        self._run, self._loader, self._accelerator = run, loader, accelerator

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if not self._run.fits:
            return
        for batch in self._loader:
            yield send_to_device(batch, self._accelerator.device)
            if not self._run.fits:
                return
