"""Rounds as they were recorded: equal ones are kept once, whatever their number."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

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
        part: of which ledger it is, where several are put together.
    """

    index: int
    mechanism: Mechanism
    clip_norm: float
    noise_std: float
    done: Done | None = None
    aborted: str | None = None
    times: int = 1
    part: int = 0

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

UNCONFIRMED, ABORTED = 0, 1
"""Marks of the end of a round that was not confirmed, and of one that was aborted."""


@dataclass(frozen=True)
class Trail:
    """Which rounds a ledger has. Copies of a ledger have equal marks up to where they part.

    A mark is Python's hash of a line's checksum, which covers all lines before it. It is the same
    within one process alone, and is never written down.

    Attributes:
        begun: the mark of each round's ``intent``.
        ended: 16 bits of the mark of each round's ``done``; ``UNCONFIRMED`` or ``ABORTED`` where
            there is none. A round under way has no entry yet. Fewer bits will do: ends are compared
            where two copies confirmed one round, on a machine that was cloned.
    """

    begun: array[int] = field(default_factory=lambda: array("q"))
    ended: array[int] = field(default_factory=lambda: array("H"))

    def end(self, round: int) -> int:
        """Return the mark of a round's end."""
        return self.ended[round] if 0 <= round < len(self.ended) else UNCONFIRMED

    def shared(self, other: Trail) -> int:
        """Return how many leading rounds two trails share."""
        low, high = 0, min(len(self.begun), len(other.begun))
        # An equal mark means that all before it is equal too.
        while low < high:
            middle = (low + high + 1) // 2
            if self.begun[middle - 1] == other.begun[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low

    def leads_to(self, other: Trail) -> bool:
        """Return whether another trail continues this one, or equals it."""
        count = len(self.begun)
        if not count:
            return True
        if count > len(other.begun) or self.begun[-1] != other.begun[count - 1]:
            return False
        # A round that was under way here may have ended there in any way.
        return count > len(self.ended) or self.ended[-1] == other.end(count - 1)

    def released_again(self, round: int, ends: Collection[int]) -> bool:
        """Return whether a round was confirmed here, and otherwise confirmed elsewhere.

        Args:
            round: one that copies share.
            ends: the marks of its end in the other copies.
        """
        own, marks = self.end(round), (UNCONFIRMED, ABORTED)
        return own not in (*ends, *marks) and any(end not in marks for end in ends)

    def standing(self, round: int) -> int:
        """Return 0 for a round that was confirmed, 1 for one that was not, 2 for an aborted one."""
        return {UNCONFIRMED: 1, ABORTED: 2}.get(self.end(round), 0)

    def follow(self, other: Trail) -> None:
        """Add what another trail has beyond this one, which leads to it."""
        self.begun.extend(other.begun[len(self.begun) :])
        self.ended.extend(other.ended[len(self.ended) :])

    def to(self, count: int) -> Trail:
        """Return a copy of the first ``count`` rounds."""
        return Trail(self.begun[:count], self.ended[:count])


class Rounds:
    """All rounds in order. A million that are alike take a few bytes each.

    What a round is, but for its number and its mask, is kept once for all that are equal.

    Attributes:
        count: how many were begun.
        trail: marks that tell them from those of a copy.
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
        self.count = 0
        self.trail = Trail()

    def __len__(self) -> int:
        """Return how many rounds were begun."""
        return self.count

    @property
    def spent(self) -> int:
        """How many count: everything does that was not aborted."""
        return self.count - self._aborted

    @property
    def open(self) -> int | None:
        """Number of the round that was begun and not ended yet."""
        return None if self._begun is None else self.count - 1

    def known(self, mechanism: Mechanism) -> int:
        """Return the number of a new mechanism, for ``begin``."""
        self._mechanisms.append(mechanism)
        return len(self._mechanisms) - 1

    def begin(self, mechanism: int, clip_norm: float, noise_std: float, check: str = "") -> None:
        """Begin the next round; one that was begun before is never confirmed any more.

        ``check`` is the checksum of its line.
        """
        # Never confirmed, it may have been released: it stays, and counts.
        if self._begun is not None:
            self.end(None)
        self._begun = (mechanism, clip_norm, noise_std)
        self.count += 1
        self.trail.begun.append(hash(check))

    def end(self, ended: Ended, mask: str | None = None, check: str = "") -> None:
        """Say what became of the round that was begun; ``check`` is that of its last line."""
        assert self._begun is not None
        # Of one that was confirmed never one of the two marks that are no checksums.
        other = UNCONFIRMED if ended is None else ABORTED
        self.trail.ended.append(hash(check) & 0xFFFF | 2 if isinstance(ended, tuple) else other)
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

    def alike(self, start: int = 0) -> Iterator[Round]:
        """Yield rounds that are equal but for number and mask as one, in the order they came.

        Those before round ``start`` are left out.
        """
        kinds = list(self._kinds)
        if start <= 0:
            counts = dict(enumerate(self._times))
            first: Mapping[int, int] = dict(enumerate(self._first))
        else:
            rest = self._which[start:]
            counts = Counter(rest)
            first = {number: start + rest.index(number) for number in counts}
        for number in sorted(counts, key=first.__getitem__):
            yield replace(self._round(kinds[number], first[number]), times=counts[number])
        if start < len(self):
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
