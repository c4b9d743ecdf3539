"""Rounds in the order they ran: how often one unit may be in them, and cohorts that do not fit.

Where units are drawn once a pass, one is in a single round of it; which one is not known, so that
the round with the least noise counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from scipy.special import betainc

from ...mechanisms import Mechanism
from ...sampling import Everyone, FixedSize, Poisson, Scheme, Shuffled, WithReplacement
from ...sampling.cohorts import told_by, too_alike
from ...sampling.scheme import secret_size

FALSE_DOUBT = 1e-9
"""Probability that a record's cohorts are doubted though its sampling drew them."""

ROUNDED = 1.01
"""A recorded share may be printed with two digits: so much above what is drawn it is no slip."""


class Kind(NamedTuple):
    """A round, as it is priced.

    Attributes:
        mechanism: what it released, sampled; of a pass, if the scheme draws one.
        scheme: how units were drawn.
        noise: noise multiplier of one sum that says as much as all of the round's.
        cohort: how many took part, as recorded.
        population: how many there are, as recorded.
        share: of the units in a round, as recorded.
    """

    mechanism: Mechanism
    scheme: Scheme
    noise: float
    cohort: int | None = None
    population: int | None = None
    share: float | None = None

    @property
    def per_pass(self) -> int | None:
        """Rounds of a pass, if the scheme draws a pass as a whole."""
        return getattr(self.scheme, "rounds_per_epoch", None)

    @property
    def drawn(self) -> float:
        """Share of the population that a round draws, in the mean."""
        return self.scheme.rate / (self.per_pass or 1)

    @property
    def fewer(self) -> bool:
        """Whether fewer took part, as recorded, than are drawn: then nobody surely did."""
        one = 1.0 / self.population if self.population else 0.0
        share = self.share
        # Of random size a cohort may well be small.
        if share is None and self.cohort and self.population and not secret_size(self.scheme):
            share = self.cohort / self.population
        return share is not None and ROUNDED * (share + one) < self.drawn


Group = tuple[Kind, int]
"""Neighbouring rounds that were alike, and how many."""


def counted(groups: Sequence[Group]) -> Iterator[tuple[Kind, int, int]]:
    """Yield kinds of rounds, with how often a unit was in one at most, and at least."""
    if len({(type(kind.scheme), kind.per_pass) for kind, _ in groups}) == 1:
        length = groups[0][0].per_pass
        yield from _aligned(groups, length or 1)
        return
    # Where other rounds lie between, passes begin anywhere.
    for kind, times in groups:
        length = kind.per_pass or 1
        yield kind, 1 + -(-(times - 1) // length), max(0, (times - length + 1) // length)


def _aligned(groups: Sequence[Group], length: int) -> Iterator[tuple[Kind, int, int]]:
    """Yield passes of one length, the first of which begins with the record."""
    left, quietest = 0, groups[0][0]
    for kind, times in groups:
        used = min(left, times)
        if used:
            # The pass under way holds rounds of several kinds: less noise tells more.
            quietest = min(quietest, kind, key=lambda one: one.noise)
            left -= used
            if not left:
                yield quietest, 1, 0
        whole, rest = divmod(times - used, length)
        if whole:
            yield kind, whole, whole
        if rest:
            left, quietest = length - rest, kind
    if left:
        yield quietest, 1, 0


Norms = Mapping[Kind, Mapping[float, int]]
"""Of each kind of rounds, how many had which clip norm."""


def odd_cohorts(
    groups: Sequence[Group], *, by_round: bool = False, norms: Norms | None = None
) -> tuple[str, ...]:
    """Return sentences about cohorts, or shares, that the sampling of their rounds does not draw.

    Certain, or wrong with a probability of at most ``FALSE_DOUBT`` in a whole record; but for
    rounding: a share is taken to one in a hundred, a cohort to one unit.

    Args:
        groups: rounds in the order they ran.
        by_round: whether cohorts were written down round by round; else they may be means.
        norms: clip norms, where they were written down.
    """
    certain = ((*_odd_share(kind), *_odd_size(kind)) for kind, _ in groups)
    drawn = (*_too_alike(groups), *_going_along(groups, norms or {})) if by_round else ()
    doubted = [*_improbable(groups), *drawn]
    return tuple(dict.fromkeys([*chain.from_iterable(certain), *doubted]))


def telling_cohorts(groups: Sequence[Group], *, planned: bool) -> tuple[str, ...]:
    """Return a sentence where cohorts that are said to be of a fixed size differ.

    They may follow how many units there are, which is not public under add_remove. So does it tell
    where a part takes part of everybody: whoever is not there may give its place to another.

    Args:
        groups: rounds in the order they ran.
        planned: whether sizes are said not to follow the data.
    """
    sizes: dict[int | None, set[int | None]] = {}
    for kind, _ in groups:
        if isinstance(kind.scheme, FixedSize | WithReplacement):
            sizes.setdefault(kind.population, set()).add(kind.cohort)
    differ = not planned and (any(len(one) > 1 for one in sizes.values()) or len(sizes) > 1)
    part = any(isinstance(kind.scheme, Everyone) and kind.fewer for kind, _ in groups)
    told = {
        "cohorts, or populations, that are fixed and differ between rounds: they may follow how "
        "many units there are (denominator='public' if they were planned)": differ,
        "a part of the units where everybody takes part: others may take their places": part,
    }
    return tuple(words for words, so in told.items() if so)


def _odd_share(kind: Kind) -> Iterator[str]:
    """Yield a sentence about a share that is larger than the sampling ever draws."""
    one = 1.0 / kind.population if kind.population else 0.0
    # A larger share than is priced would cost more; a smaller one costs less.
    if kind.share is not None and kind.share > ROUNDED * kind.drawn + one:
        yield f"a share of {kind.share:g} where the sampling draws {kind.drawn:g}"


def _odd_size(kind: Kind) -> Iterator[str]:
    """Yield a sentence about a cohort that is larger than the sampling ever draws."""
    size, population = kind.cohort, kind.population
    if size is None or population is None:
        return
    # Drawn several times a unit counts as often.
    if size > population and not getattr(kind.scheme, "repeats", False):
        yield f"{size} participants of {population}"
    elif isinstance(kind.scheme, Shuffled) and size > ROUNDED * kind.drawn * population + 1:
        yield f"{size} participants of {population} in one of {kind.per_pass} batches"


def _improbable(groups: Sequence[Group]) -> Iterator[str]:
    """Yield sentences about cohorts of random size that are hardly ever as large, or as small."""
    drawn = _of_random_size(groups)
    chance = FALSE_DOUBT / 3.0 / max(len(drawn), 1)
    for (share, population), sizes in drawn.items():
        if _unlikely(sizes, share, population, chance):
            span = f"{min(sizes)} to {max(sizes)}"
            yield f"{span} participants of {population} at a probability of {share:g}"


def _too_alike(groups: Sequence[Group]) -> Iterator[str]:
    """Yield sentences about cohorts of random size that are hardly ever so much alike."""
    drawn: dict[tuple[float, int | None], Counter[int]] = {}
    for kind, times in groups:
        # Rounds of a pass are not independent, and cohorts that were cut may well be alike.
        if isinstance(kind.scheme, Poisson) and kind.cohort is not None:
            drawn.setdefault((kind.drawn, kind.population), Counter())[kind.cohort] += times
    for (share, population), sizes in drawn.items():
        if told := too_alike(sizes, share, FALSE_DOUBT / 3.0 / len(drawn), population):
            yield told


def _going_along(groups: Sequence[Group], norms: Norms) -> Iterator[str]:
    """Yield sentences about noise, or clip norms, that go with the size of random cohorts."""
    settled = [("noise that goes", kind, kind.noise, times) for kind, times in groups]
    settled += [
        ("clip norms that go", kind, norm, times)
        for kind, values in norms.items()
        for norm, times in values.items()
    ]
    found: dict[tuple[str, Scheme, int | None], Counter[tuple[int, float]]] = {}
    for what, kind, value, times in settled:
        # Rounds of a pass are not drawn apart.
        if secret_size(kind.scheme) and kind.cohort is not None and not kind.per_pass:
            counts = found.setdefault((what, kind.scheme, kind.population), Counter())
            counts[kind.cohort, value] += times
    for (what, scheme, population), rounds in found.items():
        rate = scheme.probability if isinstance(scheme, Poisson) else None
        if told_by(rounds, FALSE_DOUBT / 3.0 / len(found), rate, population):
            yield f"{what} with how many took part, which amplification counts on hiding"


def _of_random_size(groups: Sequence[Group]) -> dict[tuple[float, int], Counter[int]]:
    """Return how often cohorts had each size, by share and population."""
    drawn: dict[tuple[float, int], Counter[int]] = {}
    for kind, times in groups:
        size, population = kind.cohort, kind.population
        if size is None or population is None or size > population:
            continue
        if secret_size(kind.scheme):
            drawn.setdefault((kind.drawn, population), Counter())[size] += times
    return drawn


def _unlikely(sizes: Counter[int], share: float, population: int, chance: float) -> bool:
    """Return whether binomial cohorts, all together or the largest, are hardly as large, or small.

    A stated cohort may be a rounded mean: all together are given one unit a round.
    """
    rounds = sum(sizes.values())
    total = sum(size * times for size, times in sizes.items())
    throws = rounds * population
    # Three tests share the chance, the last one over all rounds.
    return (
        _at_least(total - rounds, throws, share) < chance / 3.0
        or _at_least(throws - total - rounds, throws, 1.0 - share) < chance / 3.0
        or _at_least(max(sizes), population, share) * rounds < chance / 3.0
    )


def _at_least(successes: int, trials: int, probability: float) -> float:
    """Return P[Binomial(trials, probability) >= successes]."""
    if successes <= 0:
        return 1.0
    return float(betainc(successes, trials - successes + 1, probability))
