"""Recorded rounds in order: limits on one unit's participation, and cohorts that contradict it.

If units are drawn once per pass, each unit is in one round of the pass. This round is unknown, so
the round with the least noise counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, starmap
from typing import NamedTuple

from ...mechanisms import Mechanism
from ...sampling import (
    Everyone,
    FixedSize,
    Scheme,
    Shuffled,
    TruncatedPoisson,
    WithReplacement,
)
from ...sampling.cohorts import FALSE_DOUBT, improbable, told_by, too_alike
from ...sampling.scheme import TableScheme, most_drawn, round_rate, secret_size, unlikely

ROUNDED = 1.05
"""Tolerance for a recorded share, which may be printed with only two digits."""

MEAN = 0.01
"""Tolerance of a mean cohort against a rounded share: this fraction plus half a unit."""


def round_share(scheme: Scheme | TableScheme) -> float:
    """Return the mean share of the units in one round, with repeated draws counted."""
    if isinstance(scheme, WithReplacement):
        return scheme.draws * scheme.chance
    if isinstance(scheme, TruncatedPoisson):
        return scheme.probability
    return round_rate(scheme)


class Kind(NamedTuple):
    """A round in the form that is priced.

    Attributes:
        mechanism: the sampled release; that of a whole pass, if the scheme draws passes.
        scheme: the sampling scheme.
        noise: noise multiplier of one sum that is equivalent to all sums of the round.
        cohort: recorded number of participants.
        population: recorded number of units.
        share: recorded share of the units in a round.
    """

    mechanism: Mechanism
    scheme: Scheme
    noise: float
    cohort: int | None = None
    population: int | None = None
    share: float | None = None

    @property
    def per_pass(self) -> int | None:
        """The number of rounds in a pass, if the scheme draws a pass as a whole."""
        return getattr(self.scheme, "rounds_per_epoch", None)

    @property
    def has_everyone(self) -> bool:
        """Whether every unit is in every pass, of one or more rounds."""
        return self.per_pass is not None or isinstance(self.scheme, Everyone)

    @property
    def drawn(self) -> float:
        """The mean share of the population in a round."""
        return round_share(self.scheme)

    @property
    def expected(self) -> float | None:
        """The mean number of units in a round, if the population is recorded."""
        return None if self.population is None else self.drawn * self.population

    @property
    def less(self) -> bool:
        """Whether the recorded share is smaller than the drawn share."""
        if self.share is None:
            return False
        # A probability need not correspond to an integer number of units.
        if secret_size(self.scheme) and self.per_pass is None:
            return self.share < self.drawn * (1.0 - 1e-9)
        one = 1.0 / self.population if self.population else 0.0
        return ROUNDED * (self.share + one) < self.drawn


class Pass(NamedTuple):
    """Consecutive passes of one kind.

    Attributes:
        kinds: kinds of their rounds.
        times: number of passes.
        total: recorded number of participants in one pass.
        whole: whether the passes were complete.
    """

    kinds: tuple[Kind, ...]
    times: int
    total: int | None
    whole: bool

    @property
    def least_noisy(self) -> Kind:
        """The kind of round with the least noise, which reveals the most."""
        return min(self.kinds, key=lambda one: one.noise)

    @property
    def population(self) -> int | None:
        """The recorded number of units; the largest one if it differs."""
        return max((one.population for one in self.kinds if one.population), default=None)


Group = tuple[Kind, int]
"""Consecutive rounds of one kind, and their number."""

Norms = Mapping[Kind, Mapping[float, int]]
"""For each kind of rounds, the number with each clip norm."""


_Sizes = dict[tuple[Scheme | float, int | None], Counter[int]]
"""Law or share of random cohorts, and the population -> how often each size occurs."""


@dataclass(frozen=True)
class ImportedRounds:
    """The rounds of a record.

    Attributes:
        groups: consecutive rounds of one kind, and their number. No group continues across a gap.
        by_round: whether cohorts were recorded for each round; otherwise they may be means.
        ordered: whether groups are in the order they ran.
        gaps: whether rounds are missing, before the first or between groups.
        norms: clip norms, if recorded.
    """

    groups: tuple[Group, ...]
    by_round: bool = False
    ordered: bool = True
    gaps: bool = False
    norms: Norms = field(default_factory=dict)

    def counted(self) -> Iterator[tuple[Kind, int, int]]:
        """Yield kinds of rounds with the largest and smallest number that one unit can be in."""
        if self._passes is not None:
            for one in self._passes:
                alike = one.whole and len({kind.mechanism for kind in one.kinds}) == 1
                surely = alike and not self._leaves_out(one)
                yield one.least_noisy, one.times, one.times if surely else 0
        elif self._length is not None and not self.gaps:
            yield from self._in_any_order(self._length)
        else:
            yield from map(self._anywhere, self.groups)

    @cached_property
    def _length(self) -> int | None:
        """The number of rounds in every pass; None if the passes differ."""
        lengths = {kind.per_pass and (type(kind.scheme), kind.per_pass) for kind, _ in self.groups}
        return (self.groups[0][0].per_pass or 1) if len(lengths) == 1 else None

    @cached_property
    def _passes(self) -> tuple[Pass, ...] | None:
        """All passes, the first one starting with the record; None if the starts are unknown."""
        known = (self.ordered or len(self.groups) == 1) and not self.gaps
        if self._length == 1 or (self._length is not None and known):
            return tuple(_cut(self.groups, self._length))
        return None

    def _anywhere(self, group: Group) -> tuple[Kind, int, int]:
        """Return the limits for a group of rounds, wherever passes begin."""
        kind, times = group
        length = kind.per_pass or 1
        if length == 1:
            alone = Pass((kind,), times, kind.cohort, True)
            return kind, times, 0 if self._leaves_out(alone) else times
        # In an unknown order, every round may belong to a different pass.
        most = _touched(times, length) if self.ordered else times
        whole = Pass((kind,), 1, kind.cohort and kind.cohort * length, True)
        surely = self.ordered and not self._leaves_out(whole)
        return kind, most, max(0, (times - length + 1) // length) if surely else 0

    def fewer(self, kind: Kind) -> bool:
        """Return whether fewer units took part than are drawn, so that none is certain."""
        if kind.less:
            return True
        # A cohort of random size may be small. Cohorts of single rounds are checked by pass.
        if self.by_round or kind.cohort is None or kind.expected is None:
            return False
        return not secret_size(kind.scheme) and kind.cohort + 1 <= kind.expected * (1.0 + 1e-9)

    def _in_any_order(self, length: int) -> Iterator[tuple[Kind, int, int]]:
        """Yield one round per pass: the rounds with the least noise may all count."""
        passes = -(-sum(times for _, times in self.groups) // length)
        for kind, times in sorted(self.groups, key=lambda group: group[0].noise):
            yield kind, min(times, passes), 0
            passes -= min(times, passes)

    @cached_property
    def _largest(self) -> float:
        """The largest total of a pass that includes every unit: a lower end of the population."""
        totals: Iterable[float]
        if self._passes is not None:
            totals = (one.total or 0 for one in self._passes if one.kinds[0].has_everyone)
        elif any(kind.has_everyone and kind.per_pass for kind, _ in self.groups):
            # If the starts of passes are unknown, the population is unknown too.
            totals = (math.inf,)
        else:
            totals = (kind.cohort or 0 for kind, _ in self.groups if kind.has_everyone)
        return max(totals, default=0)

    def _leaves_out(self, one: Pass) -> bool:
        """Return whether a pass that should include every unit had fewer participants."""
        if not self.by_round or one.total is None or not one.kinds[0].has_everyone:
            return False
        return one.total < (one.population or self._largest)

    # Cohorts that do not fit

    def odd_cohorts(self) -> tuple[str, ...]:
        """Return sentences about cohorts or shares that the sampling does not draw.

        A sentence is certain, or wrong with a probability of at most ``FALSE_DOUBT`` in a whole
        record. This allows for rounding: one in twenty for a share, and one in a hundred plus half
        a unit for a mean cohort.
        """
        kinds = dict.fromkeys(kind for kind, _ in self.groups)
        certain = chain.from_iterable((*_odd_share(kind), *self._odd_size(kind)) for kind in kinds)
        drawn = (*self._too_alike(), *self._going_along()) if self.by_round else ()
        return tuple(dict.fromkeys([*certain, *self._odd_passes(), *self._improbable(), *drawn]))

    def size_doubts(self, *, planned: bool) -> tuple[str, ...]:
        """Return sentences on cohorts that may reveal the number of units.

        Cohorts of a fixed size that differ may follow the number of units, which is not public
        under add_remove. The same holds if every unit should take part and fewer did, because
        another unit may take the place of an absent one.

        Args:
            planned: whether the user states that sizes do not depend on the data.
        """
        sizes: dict[int | None, set[int | None]] = {}
        for kind, _ in self.groups:
            if isinstance(kind.scheme, FixedSize | WithReplacement):
                sizes.setdefault(kind.scheme.population, set()).add(most_drawn(kind.scheme))
        differ = not planned and (any(len(one) > 1 for one in sizes.values()) or len(sizes) > 1)
        everyone = [kind for kind, _ in self.groups if isinstance(kind.scheme, Everyone)]
        one_round = (Pass((kind,), 1, kind.cohort, True) for kind in everyone)
        part = any(map(self.fewer, everyone)) or any(map(self._leaves_out, one_round))
        doubts = {
            "cohorts, or populations, that are fixed and differ between rounds: they may follow "
            "how many units there are (denominator='public' if they were planned)": differ,
            "only a part of the units in a round of everyone, so others may follow": part,
        }
        return tuple(doubt for doubt, applies in doubts.items() if applies)

    def _odd_size(self, kind: Kind) -> Iterator[str]:
        """Yield a sentence about a cohort that the sampling never draws."""
        size, population, most = kind.cohort, kind.population, most_drawn(kind.scheme)
        if size is None:
            return
        # With repeated draws, a unit counts once per draw.
        if population and size > population and not getattr(kind.scheme, "repeats", False):
            yield f"{size} participants of {population}"
        elif most is not None and size > most:
            yield f"{size} participants where the sampling draws at most {most}"
        elif isinstance(kind.scheme, Shuffled) and not self.by_round and not _make_up(size, kind):
            yield f"{size} participants of {population} in one of {kind.per_pass} batches"

    def _odd_passes(self) -> Iterator[str]:
        """Yield sentences about passes with a unit in two rounds."""
        if not self.by_round:
            return
        if self._passes is None:
            yield from chain.from_iterable(starmap(_odd_stretch, self.groups))
        else:
            yield from chain.from_iterable(map(_odd_pass, self._passes))

    def _improbable(self) -> Iterator[str]:
        """Yield sentences about random cohorts with an improbably large or small size."""
        drawn = self._random_sizes()
        chance = FALSE_DOUBT / 3.0 / max(len(drawn), 1)
        for (law, population), sizes in drawn.items():
            if isinstance(law, float):
                yield from filter(None, [improbable(sizes, law, chance, population)])
            else:
                yield from (one.reason for one in unlikely(law, sizes, chance))

    def _random_sizes(self) -> _Sizes:
        """Return how often each size of a random cohort occurs, without means that fit."""
        drawn: _Sizes = {}
        for kind, times in self.groups:
            size, n = kind.cohort, kind.population
            if size is None or not secret_size(kind.scheme) or (n is not None and size > n):
                continue
            cut = isinstance(kind.scheme, TruncatedPoisson)
            # A value that may be a mean counts as a mean if it fits.
            mean = kind.expected
            fits = cut or mean is None or abs(size - mean) <= MEAN * mean + 0.5
            if self.by_round or not fits:
                law = kind.scheme if cut else kind.drawn
                drawn.setdefault((law, n), Counter())[size] += times
        return drawn

    @cached_property
    def _places(self) -> tuple[tuple[int, Kind, int], ...]:
        """Rounds of random size by position in a pass; rounds at one position are independent."""
        found, begun = Counter[tuple[int, Kind]](), 0
        for kind, times in self.groups:
            length = kind.per_pass or 1
            if secret_size(kind.scheme) and kind.cohort is not None:
                for place in range(begun, begun + min(times, length)):
                    found[place % length, kind] += -(-(begun + times - place) // length)
            begun += times
        # If the starts of passes are unknown, the positions are unknown too.
        known = self._passes is not None
        return tuple((at, one, n) for (at, one), n in found.items() if known or not one.per_pass)

    def _too_alike(self) -> Iterator[str]:
        """Yield sentences about random cohorts whose sizes vary improbably little."""
        drawn: dict[tuple[int, float, int | None], Counter[int]] = {}
        for place, kind, times in self._places:
            # Truncated cohorts may well have equal sizes.
            if not isinstance(kind.scheme, TruncatedPoisson) and kind.cohort is not None:
                sizes = drawn.setdefault((place, kind.drawn, kind.population), Counter())
                sizes[kind.cohort] += times
        for (_, share, population), sizes in drawn.items():
            if doubt := too_alike(sizes, share, FALSE_DOUBT / 3.0 / len(drawn), population):
                yield doubt

    def _going_along(self) -> Iterator[str]:
        """Yield sentences about noise, or clip norms, that depend on the size of random cohorts."""
        settled = [("noise that goes", at, kind, kind.noise, n) for at, kind, n in self._places]
        # For clip norms, the position of the round in its pass is unknown.
        settled += [
            ("clip norms that go", 0, kind, norm, times)
            for kind, values in self.norms.items()
            for norm, times in values.items()
            if secret_size(kind.scheme) and not kind.per_pass
        ]
        found: dict[tuple[str, int, Scheme, int | None], Counter[tuple[int, float]]] = {}
        for what, place, kind, value, times in settled:
            if kind.cohort is not None:
                counts = found.setdefault((what, place, kind.scheme, kind.population), Counter())
                counts[kind.cohort, value] += times
        for (what, _, scheme, population), rounds in found.items():
            rate = None if isinstance(scheme, TruncatedPoisson) else round_share(scheme)
            if told_by(rounds, FALSE_DOUBT / 3.0 / len(found), rate, population):
                yield f"{what} with how many took part, which amplification counts on hiding"


def _cut(groups: tuple[Group, ...], length: int) -> Iterator[Pass]:
    """Yield the passes of rounds that start at the beginning of a pass."""
    # A dictionary, because a long pass may have many kinds.
    kinds: dict[Kind, None] = {}
    total, left = 0.0, 0
    for kind, times in groups:
        # Infinite if a round does not record its cohort.
        size = math.inf if kind.cohort is None else kind.cohort
        used = min(left, times)
        if used:
            kinds[kind] = None
            total, left = total + size * used, left - used
            if not left:
                yield Pass(tuple(kinds), 1, _known(total), True)
        whole, rest = divmod(times - used, length)
        if whole:
            yield Pass((kind,), whole, _known(size * length), True)
        if rest:
            kinds, total, left = {kind: None}, size * rest, length - rest
    if left:
        yield Pass(tuple(kinds), 1, _known(total), False)


def _known(total: float) -> int | None:
    return None if math.isinf(total) else int(total)


def _touched(times: int, length: int) -> int:
    """Return the largest number of passes that consecutive rounds can touch."""
    return 1 + -(-(times - 1) // length)


def _make_up(size: int, kind: Kind) -> bool:
    """Return whether batches of a size can form a pass: even ones, or all but the last full."""
    n, batches = kind.population, kind.per_pass
    if n is None or batches is None:
        return True
    return batches <= n and ((size - 1) * batches < n or size * (batches - 1) < n)


def _odd_pass(one: Pass) -> Iterator[str]:
    """Yield a sentence about a pass with a unit in two rounds."""
    n, passes = one.population, one.kinds[0].per_pass is not None
    if passes and one.total is not None and n is not None and one.total > n:
        yield f"{one.total} participants of {n} in a pass"


def _odd_stretch(kind: Kind, times: int) -> Iterator[str]:
    """Yield a sentence about consecutive rounds with a unit in two rounds of a pass."""
    size, n, length = kind.cohort, kind.population, kind.per_pass
    if size is None or n is None or length is None:
        return
    # If passes may begin anywhere, consecutive rounds can belong to several passes.
    if size * times > n * _touched(times, length):
        yield f"{size} participants of {n}, {times} times in passes of {length} rounds"


def _odd_share(kind: Kind) -> Iterator[str]:
    """Yield a sentence about a recorded share that exceeds every draw of the sampling."""
    if kind.share is None:
        return
    # A larger share than the priced one would cost more, and a smaller one less.
    larger = kind.share > ROUNDED * kind.drawn
    if larger and isinstance(kind.scheme, Shuffled) and kind.population is not None:
        size = math.ceil(kind.share * kind.population / ROUNDED - 1e-9)
        larger = not _make_up(size, kind)
    if larger:
        yield f"a share of {kind.share:g} where the sampling draws {kind.drawn:g}"
