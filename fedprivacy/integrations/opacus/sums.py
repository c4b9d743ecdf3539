"""The sums of steps of Opacus's optimizers, and their required properties."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from opacus.optimizers import DPOptimizer, DPPerLayerOptimizer

from ...errors import refuse
from ...mechanisms import Gaussian, Mechanism
from ...relations import Adjacency, Unit
from ...sampling import Scheme, Shuffled
from .loaders import Loader


class Sums:
    """The clipped and unreleased gradients of an optimizer: number of records, clip norm."""

    def __init__(self, optimizer: Any, loader: Loader) -> None:
        check_kind(optimizer)
        self.of, self.loader = optimizer, loader
        self.forget()
        # If a step is stopped for any reason, every object that sums it must forget it.
        vars(optimizer).setdefault("sums", []).append(self)
        optimizer.clip_and_accumulate = partial(self._gathered, optimizer.clip_and_accumulate)
        loader.restart = self._restart

    def forget(self) -> None:
        """Start again."""
        self._records, self._parts, self._announced, self._clip = 0, 0, True, 0.0

    def stop(self) -> None:
        """Forget a refused step. Its handed-out draws wait for another step."""
        self.forget()
        self.loader.unclip()

    def _restart(self) -> None:
        """Forget the sums of draws that are handed out again, and their signals."""
        self.stop()
        forget_gradients(self.of)
        self.of._step_skip_queue.clear()
        self.of._is_last_step_skipped = False

    def _gathered(self, clip: Callable[[], None]) -> None:
        """Count the records of a physical batch, then clip them."""
        check_precision(self.of)
        self._records += len(self.of.grad_samples[0])
        self._parts += 1
        self._announced = self._announced and bool(self.of._step_skip_queue)
        # The norm may change between the parts of a step.
        self._clip = max(self._clip, clipped_to(self.of))
        self.loader.clipped()
        clip()

    def used(self) -> int:
        """Check a step's sums against the draws for it, and return the number of records.

        Raises:
            ParameterError: they were not drawn for it, or are clipped to more than the noise hides.
        """
        records, parts, announced, clip = self._records, self._parts, self._announced, self._clip
        self.forget()
        check_norm(self.of, clip)
        take_batch(self.of, self.loader, records, parts, announced)
        return records


def forget_gradients(optimizer: Any) -> None:
    """Delete the gradients of a step, so that no later step uses them."""
    for parameter in optimizer.params:
        parameter.grad = parameter.summed_grad = None


def take_batch(optimizer: Any, loader: Loader, gradients: int, parts: int, announced: bool) -> None:
    """Check the gradients of a step against a loader's draws for it; see ``Loader.use``."""
    check_divisor(optimizer, loader)
    times = optimizer.accumulated_iterations
    if loader.passes is None and times != 1:
        refuse("batches of a step", times, "be one", "accumulate no gradients")
    loader.use(gradients, max(times, parts), announced)


def check_divisor(optimizer: Any, loader: Loader) -> None:
    """Refuse another divisor than the first step's: it may tell how many records were drawn."""
    divisor = 1.0 if optimizer.loss_reduction == "sum" else float(optimizer.expected_batch_size)
    loader.divisor = divisor if loader.divisor is None else loader.divisor
    if divisor != loader.divisor:
        rule = (
            f"stay {loader.divisor:g}, since a divisor that depends on the batch reveals the "
            "number of drawn records"
        )
        refuse("expected_batch_size", divisor, rule, "set it once, before the first step")


def check_kind(optimizer: Any) -> None:
    """Refuse an optimizer whose steps are not known to be noisy sums of clipped gradients."""
    if type(optimizer) not in (DPOptimizer, DPPerLayerOptimizer):
        kind = type(optimizer).__name__
        way_out = (
            "use clipping='flat' or 'per_layer' in one process; adaptive clipping also "
            "releases the number of clipped records, and the others add different noise or "
            "have no per-record gradients"
        )
        refuse("optimizer", kind, "be DPOptimizer or DPPerLayerOptimizer", way_out)


def clipped_to(optimizer: Any) -> float:
    """Return the current clip norm of a record's gradients."""
    layers = getattr(optimizer, "max_grad_norms", None)
    return float(optimizer.max_grad_norm) if layers is None else math.hypot(*layers)


def check_norm(optimizer: Any, clip: float) -> None:
    """Refuse noise of a smaller norm than gradients were clipped to."""
    # Opacus stores the norm of several layers in single precision.
    if float(optimizer.max_grad_norm) < clip * (1.0 - 1e-6):
        rule = (
            f"be at least {clip:g}, the norm that gradients were clipped to, since the noise "
            "is a multiple of it"
        )
        way_out = (
            "change it only between complete steps, together with max_grad_norms of all layers"
        )
        refuse("max_grad_norm", float(optimizer.max_grad_norm), rule, way_out)


def check_precision(optimizer: Any) -> None:
    """Refuse gradients of half precision: their norms are rounded, so clipped ones may exceed C."""
    kinds = {sample.dtype for sample in optimizer.grad_samples}
    for kind in kinds - {torch.float32, torch.float64}:
        rule = "be of single or double precision, since a rounded norm does not bound a gradient"
        refuse("a record's gradient", kind, rule, "train without autocast or half precision")


def check_scheme(drawn: Scheme, declared: Scheme | None, adjacency: object) -> None:
    """Refuse a rate or cohort that may follow a hidden number of records."""
    if declared is None and adjacency == Adjacency.ADD_REMOVE:
        rule = (
            "be given for add_remove, since Opacus's rate and steps depend on the number of records"
        )
        way_out = (
            f"make a loader from public numbers and pass them, for example scheme={drawn}, or "
            "account for zero_out"
        )
        refuse("scheme", None, rule, way_out)
    if declared not in (None, drawn):
        refuse("scheme", declared, f"be the scheme of the loader, {drawn}")


def check_denominator(optimizer: Any, declared: int | None, adjacency: object) -> None:
    """Refuse, under add_remove, an average over a number that follows the number of records."""
    averages = optimizer.loss_reduction == "mean" and declared is None
    if averages and adjacency == Adjacency.ADD_REMOVE:
        rule = "be given for add_remove, since the number of records is then not public"
        way_out = "pass a public number near the batch size, or account for zero_out"
        refuse("expected_batch_size", None, rule, way_out)


def step_of(noise_multiplier: float, scheme: Scheme) -> Mechanism:
    """Return a step: a noisy sum of a scheme's records; for a pass, all of its steps.

    A pass may stop before its end. Then it did not contain every record.
    """
    if isinstance(scheme, Shuffled):
        scheme = replace(scheme, partial=True)
    return Gaussian(noise_multiplier=noise_multiplier, unit=Unit.RECORD).sampled(scheme)
