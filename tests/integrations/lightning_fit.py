"""A small Lightning module and its fits, also in a process that is to be killed."""

import os
import signal
import sys
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import fedprivacy as fp
from fedprivacy.integrations.lightning import PrivateFit

SIZE, BATCH, RATE = 40, 8, 0.1


class Linear(LightningModule):
    """A linear model; a still one has no gradient."""

    def __init__(self, width=3, validate=False, still=False):
        super().__init__()
        self.layer = torch.nn.Linear(3, width)
        self.still = still
        if still:
            torch.nn.init.zeros_(self.layer.weight)
        if validate:
            self.validation_step = lambda batch: self.log("val", self.loss(batch))

    def loss(self, batch):
        return ((self.layer(batch[0]) - batch[1]) ** 2).sum() * (0.0 if self.still else 1.0)

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    def val_dataloader(self):
        return loader() if hasattr(self, "validation_step") else []

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=RATE)


def loader(**named):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SIZE, 3, generator=generator)
    data = TensorDataset(x, torch.ones(SIZE, 1))
    return DataLoader(data, **{"batch_size": BATCH, "shuffle": True, **named})


def private(folder, epsilon=9.0):
    budget = fp.Budget(epsilon, 1e-5, adjacency="zero_out")
    return PrivateFit(
        noise_multiplier=2.0, clip_norm=1.5, ledger=Path(folder) / "run.ledger", budget=budget
    )


def trainer(folder, callback, checkpoints=False, **named):
    more = [ModelCheckpoint(dirpath=folder, filename="saved")] if checkpoints else []
    return Trainer(
        callbacks=[callback, *more], accelerator="cpu", logger=False,
        enable_checkpointing=checkpoints, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, **named,
    )  # fmt: skip


def resume(folder, saved):
    callback = private(folder)
    made = trainer(folder, callback, max_epochs=3)
    made.fit(Linear(), callback.loader(loader()), ckpt_path=saved)


def die(folder, moment):
    """Die in the third step: after the parameters moved and before its line, or after the line."""
    callback = private(folder)
    begin = callback.begin

    def begun(module, optimizer):
        found = begin(module, optimizer)
        steps, confirm = [0], callback.books._confirm

        def confirmed():
            # Called once before every step, and once after it has moved the parameters.
            released = callback.books._released
            steps[0] += released
            if released:
                (Path(folder) / "moved").write_text(str(steps[0]))
            if moment == "released" and steps[0] == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            confirm()
            if steps[0] == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        callback.books._confirm = confirmed
        return found

    callback.begin = begun
    trainer(folder, callback, max_epochs=2).fit(Linear(), callback.loader(loader()))


if __name__ == "__main__":
    die(Path(sys.argv[1]), sys.argv[2])
