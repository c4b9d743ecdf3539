"""Rounds as they were recorded: equal ones are kept once, whatever their number."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..mechanisms import Mechanism


@dataclass(frozen=True, slots=True)
class Done:
    """What a round really did.

    Attributes:
        cohort: number of participants drawn.
        arrived: number of contributions in the sum.
        refused: number of contributions left out, such as non-finite ones.
        noise_std: std of the noise in the sum, colluders' shares included.
        denominator: what the noisy sum was divided by; None where that was not recorded.
        mask: fingerprint of the coordinates that travelled; None where all did, or not recorded.
    """

    cohort: int
    arrived: int
    refused: int
    noise_std: float
    denominator: float | None = None
    mask: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One recorded round, or several that were equal but for their numbers and masks.

    Attributes:
        index: its number, from 0; of several, the first one's.
        mechanism: the round's mechanism as priced.
        clip_norm: norm that contributions were clipped to.
        noise_std: planned std of the noise in the sum.
        done: what happened; None if that was never confirmed.
        aborted: why nothing was released; None if something was, or may have been.
        times: how many rounds were so.
    """

    index: int
    mechanism: Mechanism
    clip_norm: float
    noise_std: float
    done: Done | None = None
    aborted: str | None = None
    times: int = 1

    @property
    def spent(self) -> bool:
        """Whether the round counts: everything does that was not aborted."""
        return self.aborted is None

    @property
    def noise_used(self) -> float:
        """Std of the noise really used, as far as recorded."""
        return self.noise_std if self.done is None else self.done.noise_std


Begun = tuple[int, float, float]
"""Number of the mechanism, clip norm, planned std of the noise."""
Ended = tuple[int, int, int, float, float | None] | str | None
"""``Done`` without the mask; or why the round was aborted; or None."""


_Kind = tuple[Begun, Ended]
"""What equal rounds have in common."""


class Rounds:
    """All rounds in order. A million that are alike take a few bytes each.

    What a round is, but for its number and its mask, is kept once for all that are equal.
    """

    def __init__(self) -> None:
        self._mechanisms: list[Mechanism] = []
        self._kinds: dict[_Kind, int] = {}
        self._first: list[int] = []
        self._times: list[int] = []
        # Four bytes a round: the number of its kind.
        self._which = array("I")
        self._masks = _Texts()
        self._begun: Begun | None = None
        self._aborted = 0

    def __len__(self) -> int:
        """Return how many rounds were begun."""
        return len(self._which) + (self._begun is not None)

    @property
    def spent(self) -> int:
        """How many count: everything does that was not aborted."""
        return len(self) - self._aborted

    @property
    def open(self) -> int | None:
        """Number of the round that was begun and not ended yet."""
        return None if self._begun is None else len(self._which)

    def known(self, mechanism: Mechanism) -> int:
        """Return the number of a new mechanism, for ``begin``."""
        self._mechanisms.append(mechanism)
        return len(self._mechanisms) - 1

    def begin(self, mechanism: int, clip_norm: float, noise_std: float) -> None:
        """Begin the next round; one that was begun before is never confirmed any more."""
        # Never confirmed, it may have been released: it stays, and counts.
        if self._begun is not None:
            self.end(None)
        self._begun = (mechanism, clip_norm, noise_std)

    def end(self, ended: Ended, mask: str | None = None) -> None:
        """Say what became of the round that was begun."""
        assert self._begun is not None
        kind = (self._begun, ended)
        number = self._kinds.get(kind)
        if number is None:
            number = self._kinds[kind] = len(self._first)
            self._first.append(len(self._which))
            self._times.append(0)
        self._times[number] += 1
        self._aborted += isinstance(ended, str)
        # Apart from the kind: masks differ, and would make every round a kind of its own.
        if mask is not None:
            self._masks.put(len(self._which), mask)
        self._which.append(number)
        self._begun = None

    def __iter__(self) -> Iterator[Round]:
        """Yield every round."""
        # One object for each kind; rounds of it are replaced copies.
        made = [self._round(kind, 0) for kind in self._kinds]
        for index, number in enumerate(self._which):
            one, mask = replace(made[number], index=index), self._masks.get(index)
            if mask is not None and one.done is not None:
                one = replace(one, done=replace(one.done, mask=mask))
            yield one
        yield from self._under_way()

    def alike(self) -> Iterator[Round]:
        """Yield rounds that are equal but for number and mask as one, in the order they came."""
        for kind, first, times in zip(self._kinds, self._first, self._times, strict=True):
            yield replace(self._round(kind, first), times=times)
        yield from self._under_way()

    def _under_way(self) -> Iterator[Round]:
        if self._begun is not None:
            yield self._round((self._begun, None), len(self._which))

    def _round(self, kind: _Kind, index: int) -> Round:
        (mechanism, clip_norm, noise_std), ended = kind
        return Round(
            index,
            self._mechanisms[mechanism],
            clip_norm,
            noise_std,
            Done(*ended) if isinstance(ended, tuple) else None,
            ended if isinstance(ended, str) else None,
        )


class _Texts:
    """A text for some of many rising numbers, in one piece of memory."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("Q")

    def put(self, number: int, text: str) -> None:
        """Keep a text; numbers rise."""
        end = len(self._bytes)
        # A number without a text ends where the one before it does.
        self._ends.extend([end] * (number - len(self._ends)))
        # A mark in front tells an empty text from none.
        self._bytes += b"=" + text.encode()
        self._ends.append(len(self._bytes))

    def get(self, number: int) -> str | None:
        """Return the text of a number; None where it has none."""
        if number >= len(self._ends):
            return None
        begin = self._ends[number - 1] if number else 0
        found = self._bytes[begin : self._ends[number]]
        return found[1:].decode() if found else None
