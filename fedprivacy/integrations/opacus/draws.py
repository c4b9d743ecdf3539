"""The draws of a loader's sampler, in order: a draw that was handed out waits for its step.

If draws could be dropped after a look at them, the release would be selected, and no account of the
scheme would hold: nonempty batches contain a record more often than the scheme says. A draw is
therefore never dropped. While one waits, no other is handed out. A new pass hands out the waiting
ones first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import BatchSampler, DataLoader, Sampler

from ...errors import refuse

WAY_OUT = (
    "step every batch, including empty ones (Opacus handles them); the next pass returns this "
    "one again. Evaluate with another DataLoader, limit the steps with "
    "itertools.islice(data_loader, steps), and call look_at(loader, optimizer) if a step sums "
    "several batches"
)
"""Advice for a draw that waits for its step."""


class Passes(Sampler[int]):
    """Counts the passes over a data set. Two at once would put a record into two steps of one."""

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
                refuse("passes over the data loader", "two", "run one at a time")
            yield index


@dataclass(eq=False)
class Draw:
    """One draw.

    Attributes:
        number: of the draw, from 0.
        indices: of its records.
        of_pass: its pass; 0 without passes.
        handed: whether the current pass has handed it out.
        clipped: whether a current step already sums it.
        refused: whether a budget refused its step. A run may then end without it. No other draw is
            handed out, because a step that does not fit can be made up for any draw.
        stopped: whether a rule stopped its step.
    """

    number: int
    indices: list[int]
    of_pass: int = 0
    handed: bool = False
    clipped: bool = False
    refused: bool = False
    stopped: bool = False

    @property
    def records(self) -> int:
        """The largest number of its gradients."""
        # From an empty batch Opacus may make one with a random record.
        return max(1, len(self.indices))


class Draws:
    """The draws of one sampler, shared by everything that inspects its loader.

    Args:
        ahead: workers load batches before they are handed out.
    """

    def __init__(self, ahead: bool) -> None:
        self.ahead = ahead
        self.waiting: list[Draw] = []
        """Handed out, and not yet used by a step."""
        self.listeners: list[Any] = []
        """Each a ``Loader``."""
        self.passes: Passes | None = None
        self.check_scheme: Callable[[], None] = lambda: None
        """Refuses a loader that draws otherwise than it did when it was looked at."""
        self.checked: Callable[[Callable[[], list[int] | None]], list[int] | None] | None = None
        """Makes a draw, and refuses one whose randomness was used before."""
        self.last = -1
        """The number of the last draw that was handed out."""
        self._ahead: deque[Draw] = deque()
        self._drawn = 0
        self._begun = 0

    def __deepcopy__(self, _: object) -> NoReturn:
        """Refuse: the batches of a copy would not be recorded."""
        way_out = "make another DataLoader, and call look_at with it"
        refuse("a data loader that was passed to look_at", "a copy", "be used directly", way_out)

    @classmethod
    def of(cls, loader: DataLoader[Any]) -> Draws:
        """Return the draws of a loader, which are recorded from now on."""
        batches: Any = loader.batch_sampler
        found: Draws | None = vars(batches).get("draws")
        if found is None:
            found = batches.draws = cls(loader.num_workers > 0)
            # A loader's sampler cannot be replaced, and other objects wrap this one. Its class
            # marks it as recorded; it is exactly one of the two.
            batches.__class__ = _TOLD[type(batches)]
            if found.ahead:
                _tell_deliveries(loader, found)
        return found

    def draw(self, batches: Iterator[list[int]]) -> Draw | None:
        """Draw the next batch; None if the pass has no more.

        Raises:
            ParameterError: a draw waits for its step, the randomness was used before, or the loader
                draws otherwise than it did.
        """
        self.check_scheme()
        # Workers draw ahead, so there the check comes when a batch is handed out.
        if not self.ahead:
            self._check()

        def next_batch() -> list[int] | None:
            return next(batches, None)

        made = next_batch() if self.checked is None else self.checked(next_batch)
        if made is None:
            return None
        number, self._drawn = self._drawn, self._drawn + 1
        return Draw(number, made, 0 if self.passes is None else self.passes.begun)

    def again(self) -> list[Draw]:
        """Start a pass, and return the draws that come first: those that wait for their step."""
        if self.waiting:
            for one in self.waiting:
                one.handed = one.clipped = False
            for listener in self.listeners:
                listener.restart()
        return list(self.waiting)

    def drawn(self, draw: Draw) -> None:
        """Hand out a draw; if workers draw ahead, later."""
        if self.ahead:
            self._ahead.append(draw)
        else:
            self._hand_out(draw)

    def begin(self) -> int:
        """Start to hand out, and return the number of this start.

        Batches that workers had drawn ahead are not handed out any more.
        """
        self._ahead.clear()
        self._begun += 1
        return self._begun

    def deliver(self, begun: int) -> None:
        """Hand out the first of the batches that workers have drawn.

        Args:
            begun: the result of ``begin`` for this iterator.

        Raises:
            ParameterError: another iterator began since, and its batches could be confused with
                these; or a draw waits for its step.
        """
        if begun != self._begun:
            way_out = "finish or leave a pass before the next one starts"
            refuse("data loader", "two iterators at once", "be read by one iterator", way_out)
        if self._ahead:
            self._hand_out(self._ahead.popleft())

    def _check(self) -> None:
        """Refuse to hand out a draw while another one waits for its step."""
        if all(one.clipped for one in self.waiting if one.handed):
            return
        for listener in self.listeners:
            listener.unstepped()
        rule = "be stepped before the next one is drawn, since dropping a batch selects the release"
        refuse("the last drawn batch", "not stepped", rule, WAY_OUT)

    def _hand_out(self, draw: Draw) -> None:
        self._check()
        draw.handed = True
        if draw not in self.waiting:
            self.waiting.append(draw)
            self.last = draw.number
        for listener in self.listeners:
            listener.handed_out(draw)

    def used(self, draws: list[Draw]) -> None:
        """Mark draws as used by a step: they no longer wait."""
        self.waiting = [one for one in self.waiting if one not in draws]

    def drop(self, draws: list[Draw]) -> None:
        """Drop draws after a refusal of their step that does not depend on them."""
        self.used(draws)
        for listener in self.listeners:
            listener.dropped(draws)


class _LoggedSampler(Sampler[list[int]]):
    """A sampler of batches whose draws are recorded."""

    draws: Draws

    def __iter__(self) -> Iterator[list[int]]:
        fresh = super().__iter__()
        for draw in chain(self.draws.again(), iter(lambda: self.draws.draw(fresh), None)):
            self.draws.drawn(draw)
            yield draw.indices


class PoissonBatches(_LoggedSampler, UniformWithReplacementSampler):  # type: ignore[misc]
    """Poisson draws that are recorded."""


class OrderedBatches(_LoggedSampler, BatchSampler):
    """Batches in some order that are recorded."""


_TOLD = {UniformWithReplacementSampler: PoissonBatches, BatchSampler: OrderedBatches}


def _tell_deliveries(loader: DataLoader[Any], draws: Draws) -> None:
    """Make a loader with workers, which draw ahead, record each batch that it hands out."""
    kind = type(loader)

    class Telling(kind):  # type: ignore[misc, valid-type]
        def __iter__(self) -> Iterator[Any]:
            begun = draws.begin()
            batches = super().__iter__()
            while True:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                except BaseException:
                    # A worker that could not load a batch may have looked at it: it waits, too.
                    draws.deliver(begun)
                    raise
                draws.deliver(begun)
                yield batch

    loader.__class__ = Telling
