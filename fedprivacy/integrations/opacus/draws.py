"""What a loader's sampler draws, in order: a draw that was handed out waits for its step.

Whoever may drop a draw after a look at it chooses what is released, and no account of the scheme
holds: batches that are not empty hold a record more often than the scheme says. So a draw is never
dropped. While one waits, no other is handed out, and a new pass hands out those that wait first.
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
    "step every batch, an empty one too (Opacus handles it); the next pass hands this one out "
    "again; evaluate on another DataLoader, take a number of steps by "
    "itertools.islice(data_loader, steps), and where a step sums several batches call "
    "look_at(loader, optimizer)"
)
"""What to do about a draw that waits for its step."""


class Passes(Sampler[int]):
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


@dataclass(eq=False)
class Draw:
    """One draw.

    Attributes:
        number: of the draw, from 0.
        indices: of its records.
        of_pass: the pass that it belongs to; 0 where there are none.
        handed: whether the pass under way has handed it out.
        clipped: whether a step under way sums it already.
    """

    number: int
    indices: list[int]
    of_pass: int = 0
    handed: bool = False
    clipped: bool = False

    @property
    def records(self) -> int:
        """How many gradients it gives at most."""
        # Of an empty batch Opacus may make one that holds a random record.
        return max(1, len(self.indices))


class Draws:
    """The draws of one sampler, for all who look at its loader.

    Args:
        ahead: workers load batches before they are handed out.
    """

    def __init__(self, ahead: bool) -> None:
        self.ahead = ahead
        self.waiting: list[Draw] = []
        """Handed out, and used by no step yet."""
        self.listeners: list[Any] = []
        """Each a ``Loader``."""
        self.passes: Passes | None = None
        self.checked: Callable[[Callable[[], list[int] | None]], list[int] | None] | None = None
        """Makes a draw, and refuses one whose randomness was used before."""
        self.last = -1
        """The number of the draw that was handed out last."""
        self._ahead: deque[Draw] = deque()
        self._drawn = 0
        self._begun = 0

    def __deepcopy__(self, _: object) -> NoReturn:
        """Refuse: batches that a copy hands out would not be heard of."""
        way_out = "make another DataLoader, and look at it"
        refuse("a data loader that was looked at", "a copy", "be used itself", way_out)

    @classmethod
    def of(cls, loader: DataLoader[Any]) -> Draws:
        """Return the draws of a loader, which from now on are told."""
        batches: Any = loader.batch_sampler
        found: Draws | None = vars(batches).get("draws")
        if found is None:
            found = batches.draws = cls(loader.num_workers > 0)
            # A loader's sampler cannot be replaced, and others wrap this one: it is told apart by
            # its class, which is exactly one of the two.
            batches.__class__ = _TOLD[type(batches)]
            if found.ahead:
                _tell_deliveries(loader, found)
        return found

    def draw(self, batches: Iterator[list[int]]) -> Draw | None:
        """Draw the next batch; None where the pass has none any more.

        Raises:
            ParameterError: a draw waits for its step, or the randomness was used before.
        """
        # Workers draw ahead: there what is handed out is looked at.
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
        """Begin a pass, and return the draws that come first: those that wait for their step."""
        if self.waiting:
            for one in self.waiting:
                one.handed = one.clipped = False
            for listener in self.listeners:
                listener.restart()
        return list(self.waiting)

    def drawn(self, draw: Draw) -> None:
        """Hand out a draw; where workers draw ahead, later."""
        if self.ahead:
            self._ahead.append(draw)
        else:
            self._hand_out(draw)

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
            ParameterError: another one began since, whose batches would be taken for these; or a
                draw waits for its step.
        """
        if begun != self._begun:
            way_out = "end a pass, or leave it, before the next one begins"
            refuse("data loader", "two iterators at once", "be gone through by one", way_out)
        if self._ahead:
            self._hand_out(self._ahead.popleft())

    def _check(self) -> None:
        """Refuse to hand out a draw while another one waits for its step."""
        if all(one.clipped for one in self.waiting if one.handed):
            return
        for listener in self.listeners:
            listener.unstepped()
        rule = "be stepped before another one is asked for: dropping draws selects what is released"
        refuse("the batch drawn last", "not stepped", rule, WAY_OUT)

    def _hand_out(self, draw: Draw) -> None:
        self._check()
        draw.handed = True
        if draw not in self.waiting:
            self.waiting.append(draw)
            self.last = draw.number
        for listener in self.listeners:
            listener.handed_out(draw)

    def used(self, draws: list[Draw]) -> None:
        """Let draws wait no longer: a step uses them."""
        self.waiting = [one for one in self.waiting if one not in draws]

    def drop(self, draws: list[Draw]) -> None:
        """Give up draws whose step a rule refused that does not look at them."""
        self.used(draws)
        for listener in self.listeners:
            listener.dropped(draws)


class _Told(Sampler[list[int]]):
    """A sampler of batches whose draws are told."""

    draws: Draws

    def __iter__(self) -> Iterator[list[int]]:
        fresh = super().__iter__()
        for draw in chain(self.draws.again(), iter(lambda: self.draws.draw(fresh), None)):
            self.draws.drawn(draw)
            yield draw.indices


class PoissonBatches(_Told, UniformWithReplacementSampler):  # type: ignore[misc]
    """Poisson draws that are told."""


class OrderedBatches(_Told, BatchSampler):
    """Batches in some order that are told."""


_TOLD = {UniformWithReplacementSampler: PoissonBatches, BatchSampler: OrderedBatches}


def _tell_deliveries(loader: DataLoader[Any], draws: Draws) -> None:
    """Let a loader with workers, which draw ahead of what it hands out, tell what it hands out."""
    kind = type(loader)

    class Telling(kind):  # type: ignore[misc, valid-type]
        def __iter__(self) -> Iterator[Any]:
            begun = draws.begin()
            for batch in super().__iter__():
                draws.deliver(begun)
                yield batch

    loader.__class__ = Telling
