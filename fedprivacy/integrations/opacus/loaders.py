"""How a data loader draws the batches of Opacus's steps, and which it has drawn."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

from ...errors import UnsupportedCombination, integer, refuse
from ...sampling import FixedSize, Poisson, Scheme, Shuffled, WithReplacement


def scheme_of(loader: DataLoader[Any]) -> Scheme:
    """Return how a data loader draws the batches of its steps.

    Opacus's own loader draws by Poisson sampling. One that goes through its data in some order is
    ``Shuffled``: a record is in one step of a pass, nothing is amplified; ``partial`` where a pass
    leaves some out. Draws with replacement, and one batch of a few drawn without, are what they
    are.

    Raises:
        UnsupportedCombination: weights, a sampler that is not known, batches of several sizes where
            the size counts.
    """
    batches: Any = loader.batch_sampler
    size = _length(loader)
    # By exact type: a subclass may draw otherwise. In spite of its name this sampler draws each
    # record independently.
    if type(batches) in (UniformWithReplacementSampler, _PoissonBatches):
        # The rate is of another data set than the one that is drawn from.
        if batches.num_samples != size:
            _unpriced(f"a sampler of {batches.num_samples} records over a data set of {size}")
        return Poisson(batches.sample_rate)
    if type(batches) not in (BatchSampler, _OrderedBatches):
        _unpriced(f"batches drawn by {type(batches).__name__}")
    # A loader that was looked at has a counter around its sampler.
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
        _unpriced("a stream of records, whose number is not known")


def _at_random(drawn: RandomSampler, batches: BatchSampler, size: int) -> Scheme:
    each, total = int(batches.batch_size), int(drawn.num_samples)
    # A short last batch would be a scheme of its own.
    if drawn.replacement:
        if total % each and not batches.drop_last:
            _unpriced(f"{total} draws in batches of {each}, the last one smaller (pass drop_last)")
        return WithReplacement(each, population=size)
    if total > size:
        _unpriced(f"{total} draws without replacement from {size}, some of them twice")
    stepped = _of_a_pass(batches, total)
    # A few in one batch: a cohort of fixed size, afresh in every pass.
    if len(batches) == 1 and stepped < size:
        return FixedSize(stepped, population=size)
    return Shuffled(len(batches), partial=stepped < size)


def _of_a_pass(batches: BatchSampler, total: int) -> int:
    """Return how many of the records that a pass draws are in its batches."""
    each = int(batches.batch_size)
    return total - total % each if batches.drop_last else total


def _unpriced(what: str) -> NoReturn:
    raise UnsupportedCombination(
        f"the data loader has {what}: no theorem here prices its steps; let make_private draw by "
        "Poisson sampling (poisson_sampling=True), or pass a loader with shuffle=True"
    )


class _Passes(Sampler[int]):
    """Counts the passes over a data set; two at once would put a record into two steps of one."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.begun = 0

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        mine = self.begun
        for index in self.sampler:
            if self.begun != mine:
                refuse("passes over the data loader", "two", "be one at a time")
            yield index


class _Told(Sampler[list[int]]):
    """A sampler of batches that tells how many records each has, when it is drawn."""

    heard: list[Callable[[int], None]]

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            for tell in self.heard:
                tell(len(batch))
            yield batch


class _PoissonBatches(_Told, UniformWithReplacementSampler):  # type: ignore[misc]
    pass


class _OrderedBatches(_Told, BatchSampler):
    pass


_TOLD = {UniformWithReplacementSampler: _PoissonBatches, BatchSampler: _OrderedBatches}


def _tell_deliveries(loader: DataLoader[Any], one: Loader) -> None:
    """Let a loader with workers, which draw ahead of what it hands out, tell what it hands out."""
    kind, heard = type(loader), vars(loader).setdefault("heard", [])
    heard.append(one)
    if len(heard) > 1:
        return

    class Telling(kind):  # type: ignore[misc, valid-type]
        def __iter__(self) -> Iterator[Any]:
            begun = [each.begin() for each in heard]
            for batch in super().__iter__():
                for each, number in zip(heard, begun, strict=True):
                    each.deliver(number)
                yield batch

    loader.__class__ = Telling


@dataclass
class Loader:
    """A data loader that was looked at, and the batches that it handed out and no step has used.

    Of those that were not clipped yet the last alone: whoever holds others back cannot be told from
    whoever steps one twice.
    """

    scheme: Scheme
    passes: _Passes | None = None
    _draws_ahead: bool = False
    _ahead: deque[int] = field(default_factory=deque)
    _waiting: list[int] = field(default_factory=list)
    _clipped: int = 0
    _begun: int = 0
    _pass: int = 0
    _round: tuple[int, float] = (0, math.inf)

    @classmethod
    def looked_at(cls, loader: DataLoader[Any]) -> Loader:
        """Look at a loader: from now on it tells what it draws."""
        scheme = scheme_of(loader)
        batches: Any = loader.batch_sampler
        # A loader's sampler cannot be replaced, and others wrap this one: it is told apart by
        # its class, which is exactly one of the two.
        batches.__class__ = _TOLD.get(type(batches), type(batches))
        one = cls(scheme, _draws_ahead=loader.num_workers > 0)
        vars(batches).setdefault("heard", []).append(one._drawn)
        if one._draws_ahead:
            _tell_deliveries(loader, one)
        if isinstance(scheme, Shuffled):
            # Looked at twice, the passes are still counted once.
            if not isinstance(batches.sampler, _Passes):
                batches.sampler = _Passes(batches.sampler)
            one.passes = batches.sampler
        return one

    def _drawn(self, records: int) -> None:
        # Without workers what is drawn is handed out at once.
        if self._draws_ahead:
            self._ahead.append(records)
        else:
            self._handed_out(records)

    def begin(self) -> int:
        """Begin to hand out, and return the how many-th time it is.

        What workers had drawn ahead is not handed out any more.
        """
        self._ahead.clear()
        self._begun += 1
        return self._begun

    def deliver(self, begun: int) -> None:
        """Hand out the first of the batches that workers have drawn.

        Args:
            begun: what ``begin`` returned to whoever asks for it.

        Raises:
            ParameterError: another one began since, whose batches would be taken for these.
        """
        if begun != self._begun:
            way_out = "end a pass, or leave it, before the next one begins"
            refuse("data loader", "two iterators at once", "be gone through by one", way_out)
        if self._ahead:
            self._handed_out(self._ahead.popleft())

    def _handed_out(self, records: int) -> None:
        # What an earlier pass left over is no part of this one's round.
        if self.passes is not None and self.passes.begun != self._pass:
            self._pass = self.passes.begun
            self.forget()
        # Of an empty batch Opacus may make one that holds a random record.
        self._waiting = [*self._waiting[: self._clipped], max(1, records)]

    def forget(self) -> None:
        """Leave what was handed out to no step."""
        self._waiting, self._clipped = [], 0

    def in_round(self, noise_multiplier: float) -> bool:
        """Return whether a step belongs to the round under way: to its pass, with no less noise."""
        number, noise = self._round
        under_way = self.passes is not None and self.passes.begun == number
        return under_way and noise_multiplier >= noise

    def begin_round(self, noise_multiplier: float) -> None:
        """Begin a round: a draw or, under ``Shuffled``, a pass or what is quieter within it."""
        self._round = (0 if self.passes is None else self.passes.begun), noise_multiplier

    def end_round(self) -> None:
        """End the round under way: the next step begins another."""
        self._round = (0, math.inf)

    def clipped(self) -> None:
        """Keep what was handed out for the step under way: it is being summed."""
        self._clipped = len(self._waiting)

    def use(self, gradients: int, parts: int = 1, told: bool = False) -> None:
        """Take the batches of a step from those that were handed out.

        Args:
            gradients: how many the step sums.
            parts: in how many physical batches they came.
            told: every part was announced, as Opacus's BatchMemoryManager does.

        Raises:
            ParameterError: they cannot all be records of a batch that no step had before.
        """
        waiting = self._waiting
        self.forget()
        # A pass is one round, in which a step may sum several batches; a draw is a round.
        one = self.passes is None
        drawn = len(waiting) == 1 if one else len(waiting) > 0
        if drawn and (told or parts <= len(waiting)) and gradients <= sum(waiting):
            return
        rule = "come from one batch that was drawn for it, each record once"
        if not one:
            rule = "come from batches that were drawn for it in this pass, each record once"
        way_out = (
            f"{len(waiting)} drawn batches were left; take one for every step, just before it, "
            "from the loader that was looked at: stepped twice it is sampled once; "
            "BatchMemoryManager splits large ones, without workers"
        )
        refuse("a step's gradients", gradients, rule, way_out)
