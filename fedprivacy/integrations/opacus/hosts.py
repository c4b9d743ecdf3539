"""A module, an optimizer and a loader made private at once, for training loops of other programs.

The hosts (``integrations.lightning``, ``integrations.accelerate``) call the parts of a
``PrivateRun`` at the moments that their program offers.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ...errors import ParameterError, positive, refuse, require
from ...ledger import Ledger
from ...outputs import in_folder
from ...questions.budget import Budget
from ...sampling import Poisson, Shuffled
from ...training.checkpoint import passes
from ..flower.saved import opened
from .books import StepBooks, keep_books
from .loaders import scheme_of
from .randomness import keyed

_CPU = torch.device("cpu")

MOVED = "parameters changed outside of the recorded steps"
"""Why a record is void."""

_PLACE = "ledger"


class PrivateRun:
    """A run of Opacus steps with a budget and a ledger; the ledger is opened by ``begin``.

    Noise and draws have generators of their own, keyed by the operating system. A seed of torch, or
    the state that a checkpoint restores, does not touch them.

    Args:
        noise_multiplier: std of the noise over the clip norm.
        clip_norm: the clip norm of every record's gradient.
        ledger: file of the ledger, of unit "record"; resumed if it exists.
        budget: asked before every step; all steps in the ledger are charged to it.
        scheme: the draw of a batch; None for the rate of the given loader. Needed for
            ``add_remove``, because that rate follows the number of records.
        expected_batch_size: see ``keep_books``; needed for ``add_remove``.

    Attributes:
        books: of the run; None before ``begin``.

    Raises:
        ParameterError: a value out of its range.
    """

    def __init__(
        self,
        *,
        noise_multiplier: float,
        clip_norm: float,
        ledger: str | PathLike[str],
        budget: Budget,
        scheme: Poisson | None = None,
        expected_batch_size: int | None = None,
    ) -> None:
        self.noise_multiplier = positive(noise_multiplier=noise_multiplier)
        self.clip_norm = positive(clip_norm=clip_norm)
        self.budget, self.scheme = budget, scheme
        self.books: StepBooks | None = None
        self._file: Path = in_folder(ledger=ledger)
        self._expected_batch_size = expected_batch_size
        self._ledger: Ledger | None = None
        self._data: DataLoader[Any] | None = None
        self._place: Any = None
        self._versions: list[int] | None = None

    def loader(self, loader: DataLoader[Any]) -> DataLoader[Any]:
        """Return a loader of Poisson batches of the same records, for this run alone.

        Args:
            loader: passes over all of its records, in order or shuffled.

        Raises:
            ParameterError: it draws otherwise; or the run has a loader.
        """
        require(self._data is None, "loader", "a second one", "be called once", "make another run")
        found = scheme_of(loader)
        if not isinstance(found, Shuffled):
            way_out = "pass DataLoader(data, batch_size=...); this run draws the batches itself"
            refuse("loader", found, "pass over its records, in order or shuffled", way_out)
        made: DataLoader[Any] = DPDataLoader.from_data_loader(loader)
        draws: Any = made.batch_sampler
        if self.scheme is not None:
            draws.sample_rate = self.scheme.probability
            draws.steps = int(1.0 / self.scheme.probability)
        draws.generator = keyed(_CPU)
        self._data = made
        return made

    def begin(self, module: nn.Module, optimizer: Optimizer) -> DPOptimizer:
        """Make an optimizer private, open the ledger and keep its books.

        Args:
            module: the layers compute per-record gradients from now on; use it as before.
            optimizer: of all its trained parameters.

        Returns:
            Opacus's optimizer, which must take every step.

        Raises:
            ParameterError: no loader, or a restored state of another run; see also ``keep_books``.
            LedgerError: the ledger is complete, of other facts, or written by another process.
            BudgetExhausted: the steps in the ledger exceed the budget.
        """
        data = self._data
        if data is None:
            refuse("the run", "no loader", "draw the batches", "train on run.loader(data_loader)")
        if isinstance(optimizer, DPOptimizer):
            way_out = "pass the plain optimizer; this run wraps it"
            refuse("optimizer", type(optimizer).__name__, "not be private yet", way_out)
        devices = {parameter.device for parameter in module.parameters()}
        require(len(devices) == 1, "module", devices, "be on one device")
        hooks, private, _ = PrivacyEngine().make_private(
            module=module,
            optimizer=optimizer,
            data_loader=data,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.clip_norm,
            poisson_sampling=False,
            noise_generator=keyed(devices.pop()),
            wrap_model=False,
        )
        # The loader is a Poisson one already.
        hooks.forbid_grad_accumulation()
        self._ledger = opened(self._file, self.budget, None, "Opacus", unit="record")
        try:
            self.books = keep_books(
                private,
                data,
                ledger=self._ledger,
                budget=self.budget,
                scheme=self.scheme,
                expected_batch_size=self._expected_batch_size,
            )
            self._check_place()
        except BaseException:
            self._ledger.release()
            raise
        self._watch(private)
        return private

    @property
    def fits(self) -> bool:
        """Whether the budget allows another step."""
        return self.books is not None and self.books.fits

    def complete(self) -> None:
        """Close the ledger: the run is complete. Without a step it is only released.

        Raises:
            ParameterError: the record is void, or a batch waits for its step.
        """
        if self._ledger is None or self.books is None:
            return
        self._check_parameters()
        if self._ledger.begun_rounds:
            self.books.close()
        else:
            self._ledger.release()

    def interrupt(self) -> None:
        """Release the ledger: the run may be resumed, and its steps stay spent."""
        if self._ledger is not None:
            self._ledger.release()

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the ledger, for a checkpoint: it counts all steps until here."""
        place = None if self._ledger is None else self._ledger.place
        return {_PLACE: None if place is None else list(place)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint: require that the ledger counts the steps before it.

        Raises:
            ParameterError: it does not.
        """
        self._place = state_dict.get(_PLACE)
        if self._ledger is not None:
            self._check_place()
        # The checkpoint has set the parameters.
        self.settle()

    def settle(self) -> None:
        """Note the parameters as they are, for example after a checkpoint was loaded."""
        if self._versions is not None:
            self._versions = self._now()

    def _check_place(self) -> None:
        assert self._ledger is not None
        if self._place is not None and not passes(self._ledger, self._place):
            rule = "be of the run of this ledger, which must count the steps before it"
            way_out = (
                "pass the ledger of that run; or load only its weights, and charge the budget with "
                "that ledger"
            )
            refuse("checkpoint", "another one", rule, way_out)

    def _watch(self, optimizer: Any) -> None:
        """Detect other optimizers of the same parameters, which would not be recorded."""
        self._parameters = optimizer.params
        self._versions = self._now()
        inner = optimizer.original_optimizer
        inner.register_step_pre_hook(lambda *_: self._check_parameters())
        inner.register_step_post_hook(lambda *_: self.settle())

    def _now(self) -> list[int]:
        # Torch counts the changes of a tensor in place.
        return [parameter._version for parameter in self._parameters]

    def _check_parameters(self) -> None:
        if self._versions is None or self._versions == self._now():
            return
        assert self.books is not None
        self.books.void(MOVED)
        raise ParameterError(
            f"{MOVED}, so the record is void; use one optimizer, and change weights only before "
            "the first step or by a checkpoint that was saved with this run"
        )
