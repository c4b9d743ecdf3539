"""How a data loader draws the batches of Opacus's steps, and the batches already drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from ...errors import UnsupportedCombination, integer, refuse
from ...sampling import FixedSize, Poisson, Scheme, Shuffled, WithReplacement
from .draws import WAY_OUT, Draw, Draws, OrderedBatches, Passes, PoissonBatches


def scheme_of(loader: DataLoader[Any]) -> Scheme:
    """Return how a data loader draws the batches of its steps.

    Opacus's own loader draws by Poisson sampling. A loader that passes through its data in some
    order is ``Shuffled``: a record is in one step of a pass, and there is no amplification. It is
    ``partial`` if a pass leaves some records out. Draws with replacement give ``WithReplacement``.
    One batch of a few records drawn without replacement gives ``FixedSize``.

    Raises:
        UnsupportedCombination: weights, an unknown sampler, or batches of several sizes if the size
            matters.
    """
    batches: Any = loader.batch_sampler
    if not getattr(loader, "in_order", True):
        _unpriced("in_order=False, which hides the order of the batches")
    size = _length(loader)
    # By exact type: a subclass may draw differently. Despite its name, this sampler draws each
    # record independently.
    if type(batches) in (UniformWithReplacementSampler, PoissonBatches):
        # The rate belongs to another data set than the loader's.
        if batches.num_samples != size:
            _unpriced(f"a sampler of {batches.num_samples} records over a data set of {size}")
        return Poisson(batches.sample_rate)
    if type(batches) not in (BatchSampler, OrderedBatches):
        _unpriced(f"batches drawn by {type(batches).__name__}")
    # An inspected loader has a counter around its sampler.
    drawn = getattr(batches.sampler, "sampler", batches.sampler)
    if isinstance(drawn, SequentialSampler):
        return Shuffled(len(loader), partial=_of_a_pass(batches, size) < size)
    if not isinstance(drawn, RandomSampler):
        _unpriced(f"records drawn by {type(drawn).__name__}")
    return _at_random(drawn, batches, size)


def _length(loader: DataLoader[Any]) -> int:
    try:
        return integer(1, records=len(loader.dataset))  # type: ignore[arg-type]
    except TypeError:
        _unpriced("a stream with an unknown number of records")


def _at_random(drawn: RandomSampler, batches: BatchSampler, size: int) -> Scheme:
    each, total = int(batches.batch_size), int(drawn.num_samples)
    # A short last batch would be another scheme.
    if drawn.replacement:
        if total % each and not batches.drop_last:
            _unpriced(f"{total} draws in batches of {each}, the last one smaller (pass drop_last)")
        return WithReplacement(each, population=size)
    if total > size:
        _unpriced(f"{total} draws without replacement from {size}, some of them twice")
    stepped = _of_a_pass(batches, total)
    # One batch of some records: a cohort of fixed size, drawn again in every pass.
    if len(batches) == 1 and stepped < size:
        return FixedSize(stepped, population=size)
    return Shuffled(len(batches), partial=stepped < size)


def _of_a_pass(batches: BatchSampler, total: int) -> int:
    """Return the number of a pass's records that are in its batches."""
    each = int(batches.batch_size)
    return total - total % each if batches.drop_last else total


def _unpriced(what: str) -> NoReturn:
    raise UnsupportedCombination(
        f"no theorem covers the steps of a data loader with {what}; use Poisson sampling in "
        "make_private (poisson_sampling=True), or pass a loader with shuffle=True"
    )


def _nothing() -> None:
    return None


@dataclass(eq=False)
class Loader:
    """A data loader inspected by one bookkeeper, and the draws that wait for its step.

    Attributes:
        scheme: how the loader draws.
        draws: of the loader, for all bookkeepers.
        data: the loader itself.
        missed: whether another optimizer stepped a draw and this bookkeeper's did not.
        unstepped: called if a draw waits and another is requested, or a step does not match it.
        restart: called if draws are handed out again, so that no part is summed twice.
        divisor: the divisor of the sums; None before the first step.
    """

    scheme: Scheme
    draws: Draws
    data: DataLoader[Any]
    missed: bool = False
    unstepped: Callable[[], None] = _nothing
    restart: Callable[[], None] = _nothing
    divisor: float | None = None
    _waiting: list[Draw] = field(default_factory=list)
    _summed: list[Draw] = field(default_factory=list)
    _heard: int = -1
    _pass: int = 0
    _round: tuple[int, float] = (0, math.inf)

    @classmethod
    def looked_at(cls, loader: DataLoader[Any]) -> Loader:
        """Inspect a loader: from now on its draws are recorded."""
        scheme = scheme_of(loader)
        draws = Draws.of(loader)
        one = cls(scheme, draws, loader, _waiting=list(draws.waiting), _heard=draws.last)
        draws.listeners.append(one)
        draws.check_scheme = one.check_scheme
        if isinstance(scheme, Shuffled) and draws.passes is None:
            batches: Any = loader.batch_sampler
            draws.passes = batches.sampler = Passes(batches.sampler)
        return one

    @property
    def passes(self) -> Passes | None:
        """The counted passes, if a pass is a round."""
        return self.draws.passes

    @property
    def waits(self) -> bool:
        """Whether a draw was handed out and neither stepped, summed nor refused yet."""
        return any(not (one.clipped or one.refused) for one in self._waiting)

    @property
    def under_way(self) -> bool:
        """Whether a draw was handed out and neither stepped nor refused yet."""
        return any(not one.refused for one in self._waiting)

    @property
    def left(self) -> bool:
        """Whether a draw was handed out, and no step of it was taken or stopped by a rule."""
        return any(not (one.refused or one.stopped) for one in self._waiting)

    def check_scheme(self) -> None:
        """Refuse a loader that draws otherwise than it did when it was looked at.

        Raises:
            ParameterError: its rate, its batch size or its data set is another one.
            UnsupportedCombination: see ``scheme_of``.
        """
        now = scheme_of(self.data)
        if now != self.scheme:
            way_out = "make another loader, and call keep_books and look_at with it"
            refuse(
                "the data loader", now, f"draw as at the time of look_at: {self.scheme}", way_out
            )

    def handed_out(self, draw: Draw) -> None:
        """Record a draw that the loader hands out."""
        # Handed out again: it already waits, or was used.
        if draw.number <= self._heard:
            return
        self._heard = draw.number
        # No draw is handed out while all bookkeepers wait, so another optimizer stepped these.
        self.missed = self.missed or any(one not in self._summed for one in self._handed)
        kept = [one for one in self._waiting if one in self._summed or not one.handed]
        self._waiting = [*kept, draw]

    @property
    def _handed(self) -> list[Draw]:
        """The waiting draws of the current pass. Steps of other waiting draws are not due yet."""
        return [one for one in self._waiting if one.handed]

    def dropped(self, draws: list[Draw]) -> None:
        """Record dropped draws."""
        self._waiting = [one for one in self._waiting if one not in draws]
        self._summed = [one for one in self._summed if one not in draws]

    def unclip(self) -> None:
        """Let the handed-out draws wait for another step: the current one was stopped."""
        self._summed = []
        for one in self._waiting:
            one.clipped = False

    def stop(self) -> None:
        """Note that a rule stopped the step of what was handed out."""
        for one in self._handed:
            one.stopped = True

    def clipped(self) -> None:
        """Reserve the handed-out draws for the current step, which is summing them."""
        self._summed = self._handed
        for one in self._summed:
            one.clipped = True

    def settle(self) -> None:
        """Mark the waiting draws as used: their step is taken."""
        taken = self._handed
        self.draws.used(taken)
        self.dropped(taken)

    def drop(self) -> None:
        """Release the waiting draws after a refusal of their step that does not depend on them.

        A draw stays the next one to be stepped. A batch of a pass may be left out, because passes
        are not amplified.
        """
        if self.passes is not None:
            self.draws.drop(self._handed)
        for one in self._handed:
            one.refused = True

    def in_round(self, noise_multiplier: float) -> bool:
        """Return whether a step belongs to the current round: same pass, no less noise."""
        number, noise = self._round
        under_way = self.passes is not None and self._pass == number
        return under_way and noise_multiplier >= noise

    def begin_round(self, noise_multiplier: float) -> None:
        """Start a round: a draw or, under ``Shuffled``, a pass or its steps with less noise."""
        self._round = (self._pass, noise_multiplier)

    def end_round(self) -> None:
        """End the current round: the next step starts another."""
        self._round = (0, math.inf)

    def use(self, gradients: int, parts: int = 1, announced: bool = False) -> None:
        """Check that a step's gradients match the waiting draws; ``settle`` then uses them.

        Args:
            gradients: number of gradients in the step.
            parts: number of their physical batches.
            announced: every part was announced, as Opacus's BatchMemoryManager does.

        Raises:
            ParameterError: they cannot all be records of a batch that no step had before, or only
                another optimizer stepped a batch.
        """
        if self.missed:
            rule = (
                "be stepped by this optimizer as well, since dropping a batch selects the release"
            )
            refuse("a drawn batch", "a step of another optimizer", rule, WAY_OUT)
        waiting = self._handed
        # A pass is one round, and its steps may sum several batches. Otherwise a draw is a round.
        one = self.passes is None
        of_passes = {draw.of_pass for draw in waiting}
        drawn = len(waiting) == 1 if one else len(of_passes) == 1
        most = sum(draw.records for draw in waiting)
        # The whole batch is required: leaving records out would select the release.
        least = sum(len(draw.indices) for draw in waiting)
        if drawn and least <= gradients <= most and (announced or parts <= len(waiting)):
            (self._pass,) = of_passes
            return
        # Other refusals do not depend on the batch. A stop at this one may.
        if waiting:
            self.unstepped()
        rule = "come from one batch drawn for it, with each record once"
        if not one:
            rule = "come from batches drawn for it in this pass, with each record once"
        way_out = (
            f"{len(waiting)} drawn batches were left; draw one batch just before each step "
            "from the loader passed to look_at, and step it once. BatchMemoryManager splits "
            "large batches without workers; step every part"
        )
        refuse("a step's gradients", gradients, rule, way_out)
