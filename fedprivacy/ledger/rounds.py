"""Recorded rounds in compact form: equal rounds are stored once."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..mechanisms import Mechanism


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """The recorded facts of a finished round.

    Attributes:
        cohort: number of drawn participants.
        arrived: number of contributions in the sum.
        refused: number of contributions left out, for example non-finite ones.
        noise_std: std of the noise in the sum, colluders' shares included.
        denominator: divisor of the noisy sum; None if not recorded.
        mask: fingerprint of the sent coordinates; None if all were sent, or not recorded.
    """

    cohort: int
    arrived: int
    refused: int
    noise_std: float
    denominator: float | None = None
    mask: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerRound:
    """One recorded round, or several that differ only in their numbers and masks.

    Attributes:
        index: number of the round, from 0; of several, that of the first.
        mechanism: mechanism of the round, as priced.
        clip_norm: clip norm of the contributions.
        noise_std: planned std of the noise in the sum.
        done: facts of the finished round; None if it was never confirmed.
        aborted: reason for an abort; None if a value was released, or may have been.
        times: number of equal rounds.
        part: index of the ledger, if several are combined.
    """

    index: int
    mechanism: Mechanism
    clip_norm: float
    noise_std: float
    done: FinishedRound | None = None
    aborted: str | None = None
    times: int = 1
    part: int = 0

    @property
    def spent(self) -> bool:
        """Whether the round counts. Every round counts except aborted ones."""
        return self.aborted is None

    @property
    def noise_used(self) -> float:
        """Std of the used noise; the planned std if the round was not confirmed."""
        return self.noise_std if self.done is None else self.done.noise_std


Begun = tuple[int, float, float]
"""Number of the mechanism, clip norm, planned std of the noise."""
Ended = tuple[int, int, int, float, float | None] | str | None
"""``FinishedRound`` without the mask, or the reason for an abort, or None."""


_Kind = tuple[Begun, Ended]
"""The common fields of equal rounds."""

UNCONFIRMED, ABORTED = 0, 1
"""Marks for the end of an unconfirmed round, and of an aborted one."""


@dataclass(frozen=True)
class Trail:
    """The rounds of a ledger as marks. Copies of a ledger have equal marks until they diverge.

    A mark is Python's hash of the checksum of a line, which covers all earlier lines. It is
    constant only within one process and is never written to a file.

    Attributes:
        begun: the mark of each round's ``intent``.
        ended: 16 bits of the mark of each round's ``done``, or ``UNCONFIRMED`` or ``ABORTED``. A
            round in progress has no entry yet. 16 bits are enough: ends are compared only if two
            copies confirmed one round, on a cloned machine.
    """

    begun: array[int] = field(default_factory=lambda: array("q"))
    ended: array[int] = field(default_factory=lambda: array("H"))

    def end(self, round: int) -> int:
        """Return the mark of a round's end."""
        return self.ended[round] if 0 <= round < len(self.ended) else UNCONFIRMED

    def shared(self, other: Trail) -> int:
        """Return the number of leading rounds that two trails share."""
        low, high = 0, min(len(self.begun), len(other.begun))
        # Equal marks mean that all earlier rounds are equal too.
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
        # A round in progress here may have any end in the other trail.
        return count > len(self.ended) or self.ended[-1] == other.end(count - 1)

    def released_again(self, round: int, ends: Collection[int]) -> bool:
        """Return whether a round was confirmed here and, differently, in another copy.

        Args:
            round: a round that the copies share.
            ends: marks of its end in the other copies.
        """
        own, marks = self.end(round), (UNCONFIRMED, ABORTED)
        return own not in (*ends, *marks) and any(end not in marks for end in ends)

    def standing(self, round: int) -> int:
        """Return 0 for a confirmed round, 1 for an unconfirmed one, 2 for an aborted one."""
        return {UNCONFIRMED: 1, ABORTED: 2}.get(self.end(round), 0)

    def follow(self, other: Trail) -> None:
        """Append the rounds of another trail that continues this one."""
        self.begun.extend(other.begun[len(self.begun) :])
        self.ended.extend(other.ended[len(self.ended) :])

    def to(self, count: int) -> Trail:
        """Return a copy of the first ``count`` rounds."""
        return Trail(self.begun[:count], self.ended[:count])


class LedgerRounds:
    """All rounds in order. A million equal rounds take only a few bytes each.

    The fields of a round, except its number and mask, are stored once for all equal rounds.

    Attributes:
        count: number of begun rounds.
        trail: marks that distinguish these rounds from those of a copy.
    """

    def __init__(self) -> None:
        self._mechanisms: list[Mechanism] = []
        self._kinds: dict[_Kind, int] = {}
        self._first: list[int] = []
        self._times: list[int] = []
        # Four bytes per round: the number of its kind.
        self._which = array("I")
        self._masks = _Texts()
        self._begun: Begun | None = None
        self._aborted = 0
        self.count = 0
        self.trail = Trail()

    def __len__(self) -> int:
        """Return the number of begun rounds."""
        return self.count

    @property
    def spent(self) -> int:
        """The number of spent rounds: all except aborted ones."""
        return self.count - self._aborted

    @property
    def open(self) -> int | None:
        """Number of the round that was begun and has not ended."""
        return None if self._begun is None else self.count - 1

    def known(self, mechanism: Mechanism) -> int:
        """Add a mechanism and return its number, for ``begin``."""
        self._mechanisms.append(mechanism)
        return len(self._mechanisms) - 1

    def begin(self, mechanism: int, clip_norm: float, noise_std: float, check: str = "") -> None:
        """Begin the next round. An earlier round without an end can no longer be confirmed.

        ``check`` is the checksum of its line.
        """
        # The unconfirmed round may have been released, so it stays and counts.
        if self._begun is not None:
            self.end(None)
        self._begun = (mechanism, clip_norm, noise_std)
        self.count += 1
        self.trail.begun.append(hash(check))

    def end(self, ended: Ended, mask: str | None = None, check: str = "") -> None:
        """Record the end of the current round; ``check`` is the checksum of its last line."""
        assert self._begun is not None
        # The mark of a confirmed round never equals the two special marks.
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
        # Stored separately: masks differ, and would make every round a separate kind.
        if mask is not None:
            self._masks.put(len(self._which), mask)
        self._which.append(number)
        self._begun = None

    def __iter__(self) -> Iterator[LedgerRound]:
        """Yield every round."""
        # One object per kind; the rounds are copies with another index.
        made = [self._round(kind, 0) for kind in self._kinds]
        for index, number in enumerate(self._which):
            one, mask = replace(made[number], index=index), self._masks.get(index)
            if mask is not None and one.done is not None:
                one = replace(one, done=replace(one.done, mask=mask))
            yield one
        yield from self._under_way()

    def alike(self, start: int = 0) -> Iterator[LedgerRound]:
        """Yield rounds that differ only in number and mask as one, in order of first occurrence.

        Rounds before ``start`` are left out.
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

    def _under_way(self) -> Iterator[LedgerRound]:
        if self._begun is not None:
            yield self._round((self._begun, None), len(self._which))

    def _round(self, kind: _Kind, index: int) -> LedgerRound:
        (mechanism, clip_norm, noise_std), ended = kind
        return LedgerRound(
            index,
            self._mechanisms[mechanism],
            clip_norm,
            noise_std,
            FinishedRound(*ended) if isinstance(ended, tuple) else None,
            ended if isinstance(ended, str) else None,
        )


class _Texts:
    """Texts for some of many rising numbers, in one block of memory."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("Q")

    def put(self, number: int, text: str) -> None:
        """Store a text. Numbers must rise."""
        end = len(self._bytes)
        # A number without a text has the same end as the number before it.
        self._ends.extend([end] * (number - len(self._ends)))
        # A leading mark distinguishes an empty text from a missing one.
        self._bytes += b"=" + text.encode()
        self._ends.append(len(self._bytes))

    def get(self, number: int) -> str | None:
        """Return the text of a number; None if it has none."""
        if number >= len(self._ends):
            return None
        begin = self._ends[number - 1] if number else 0
        found = self._bytes[begin : self._ends[number]]
        return found[1:].decode() if found else None
