"""Lightning: a callback that makes a fit private, stops it at a budget and keeps its ledger.

    private = PrivateFit(
        noise_multiplier=1.0, clip_norm=1.0, ledger="run.ledger",
        budget=fp.Budget(3.0, 1e-5, adjacency="zero_out"),
    )
    Trainer(callbacks=[private]).fit(module, private.loader(loader))

The steps are those of Opacus (``integrations.opacus``), in one process.
"""

from __future__ import annotations

from typing import Any

from ..errors import needs, refuse, require

with needs("PrivateFit", "lightning 'fedprivacy[train]' opacus", "lightning", "torch", "opacus"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import SingleDeviceStrategy

    from .opacus.hosts import PrivateRun

__all__ = ["PrivateFit"]


class PrivateFit(PrivateRun, Callback):
    """Makes one ``Trainer.fit`` private; see ``PrivateRun`` for the arguments.

    Train on ``loader(data_loader)``. Before a step is released, its intent is on disk. When the
    next step no longer fits the budget, the trainer stops. If the fit ends, the ledger is closed;
    if it is interrupted, the ledger is released and can be resumed, also from a checkpoint. What
    the module logs of its records is not covered by any epsilon.

    Raises:
        ParameterError: at the start of the fit, for a setting of the trainer that would change the
            steps: several processes or optimizers, half precision, accumulated or clipped
            gradients, or another loader.
    """

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace the trainer's optimizer by a private one, and open the ledger."""
        _check_trainer(trainer)
        trainer.optimizers = [self.begin(pl_module, trainer.optimizers[0])]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that the fit uses the private loader and optimizer; stop a spent budget."""
        if trainer.train_dataloader is not self._data:
            way_out = "call Trainer.fit(module, private.loader(data_loader))"
            refuse("train_dataloader", "another one", "be the loader of this run", way_out)
        self._check_optimizer(trainer)
        self.settle()
        self._stop(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop the trainer before it draws a batch whose step does not fit."""
        self._check_optimizer(trainer)
        self._stop(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the ledger."""
        self.complete()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Release the ledger."""
        self.interrupt()

    def _check_optimizer(self, trainer: Trainer) -> None:
        assert self.books is not None
        if trainer.optimizers != [self.books.optimizer]:
            self.books.void("the trainer got another optimizer")
            refuse("the trainer's optimizers", "others", "stay those of on_fit_start")

    def _stop(self, trainer: Trainer) -> None:
        trainer.should_stop = trainer.should_stop or not self.fits


def _check_trainer(trainer: Trainer) -> None:
    """Refuse what would make other steps than those that are priced."""
    one = isinstance(trainer.strategy, SingleDeviceStrategy) and trainer.world_size == 1
    kind = type(trainer.strategy).__name__
    require(one, "strategy", kind, "be one device in one process", "pass devices=1")
    full = trainer.precision in ("32-true", "64-true")
    rule = "be '32-true' or '64-true', since sums are rounded in the precision of the gradients"
    require(full, "precision", trainer.precision, rule)
    number = len(trainer.optimizers)
    rule = "be one, since another one's steps would not be recorded"
    require(number == 1, "number of optimizers", number, rule)
    batches = trainer.accumulate_grad_batches
    way_out = "take a larger batch"
    require(batches == 1, "accumulate_grad_batches", batches, "be 1: a batch is a step", way_out)
    clip = trainer.gradient_clip_val
    rule = "be None, since it clips another gradient than the released one"
    require(clip is None, "gradient_clip_val", clip, rule, "pass clip_norm to PrivateFit")
