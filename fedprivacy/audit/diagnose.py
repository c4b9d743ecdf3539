"""Which wrong reading of a run gives the number that was claimed.

A remark beside a verdict, never a part of it: it names the assumption that would make a claim true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from functools import partial
from typing import Any

from ..bound import Bound, exactly, shown
from ..errors import FedPrivacyError
from ..mechanisms import Gaussian, Mechanism, Run, SampledMechanism
from ..questions.epsilon import epsilon as certified
from ..relations import Adjacency, Facts, Observer
from ..sampling import Everyone, Poisson, Scheme

_USELESS, _LONG = 1e4, 10**4
"""Readings of a run with a larger epsilon and more rounds cost most and explain nothing."""
MAX_PARTS = 20
"""Runs of more kinds of rounds are not looked at: every reading costs an account."""

MAX_TOLD = 2
"""How many readings are told."""

MAX_TIMES = 20
"""Larger multiples are not looked for: near enough to one of them is every number."""

_NEAR = 0.02
"""A number farther from the claim than this share of it does not reproduce it."""


@dataclass(frozen=True)
class Wrong:
    """One wrong reading.

    Attributes:
        what: the reading, to follow "is the number of" or "would hold for".
        why: what is wrong with it, in a sentence.
        numbers: gives the epsilons that the reading leads to.
        bound: whether the first of them is a bound for a run that is really so.
    """

    what: str
    why: str
    numbers: Callable[[], list[float]]
    bound: bool = True


@dataclass(frozen=True)
class Question:
    """A claim about a run, to be explained.

    Attributes:
        run: what was accounted.
        facts: what the claim is about.
        claim: the claimed epsilon.
        found: what was certified at the claimed delta, by accountant.
        sensitivity: what the claim's own arithmetic took for the clip norm, in clip norms.
        careless: the run as it would be without one thing that was said of it, by name.
    """

    run: Mechanism
    facts: Facts
    claim: float
    found: Mapping[str, Bound]
    sensitivity: float | None = None
    careless: Mapping[str, Mechanism] = field(default_factory=dict)

    @property
    def bound(self) -> Bound:
        """The first accountant's."""
        return next(iter(self.found.values()))

    @property
    def delta(self) -> float:
        """At which the claim is made."""
        return self.bound.given

    @property
    def least(self) -> float:
        """The least epsilon that is certified."""
        return min(bound.upper for bound in self.found.values())

    @property
    def can_be_read(self) -> bool:
        """Whether readings are tried: each costs an account."""
        # A pure or an impossible claim has no reading that would give its number.
        parts = self.run.sequence()
        hopeless = self.least > _USELESS and sum(times for _, times in parts) > _LONG
        readable = len(parts) <= MAX_PARTS and not hopeless
        return readable and self.claim > 0.0 and 0.0 < self.delta < 1.0

    def ask(
        self,
        run: Mechanism,
        adjacency: Adjacency | None = None,
        observer: Observer | None = None,
    ) -> list[float]:
        """Return upper ends of another run, or under other facts, by PLD and by RDP."""
        seen: dict[str, Any] = {
            "adjacency": adjacency or self.facts.adjacency,
            "observer": observer or self.facts.observer,
        }
        # Readings are remarks: a tolerance of the claim's own digits is enough.
        tolerance = 1e-3 * max(self.claim, 1e-2)
        return [
            certified(run, delta=self.delta, tolerance=tolerance, **seen).upper,
            certified(run, delta=self.delta, accountant="rdp", **seen).upper,
        ]


def failing_assumptions(asked: Question) -> tuple[str, ...]:
    """Return sentences that name what a claim that is not met seems to take for granted.

    Returns:
        Readings that lead to the claimed number; without one, those under which it would hold.
    """
    if not asked.can_be_read:
        return ()
    # A reading that refuses or diverges cannot be where a finite claim comes from.
    tried = [(wrong, [*filter(math.isfinite, _tried(wrong.numbers))]) for wrong in _readings(asked)]
    same = [told for wrong, values in tried if (told := _same(wrong, values, asked.claim))]
    # What gives the very number explains it: weaker readings are not told beside it.
    return tuple(same[:MAX_TOLD] or _enough(tried, asked.claim)[:MAX_TOLD])


def _same(wrong: Wrong, values: list[float], claim: float) -> str:
    """Return that a reading leads to the very number that is claimed; "" where it does not."""
    near = next((value for value in values if _rounds_to(value, claim)), None)
    told = f"{exactly(claim)} is the number of {wrong.what}"
    return "" if near is None else f"{told} ({_up(near)}). {wrong.why}"


def _enough(tried: Iterable[tuple[Wrong, list[float]]], claim: float) -> list[str]:
    """Return the readings under which a claim would hold, the closest first, one for each why."""
    found: dict[str, tuple[float, str]] = {}
    for wrong, values in tried:
        if values and wrong.bound and values[0] <= claim:
            given = f"{exactly(claim)} would hold for {wrong.what}"
            told = f"{given} ({_up(values[0])}). {wrong.why}"
            found.setdefault(wrong.why, (values[0], told))
    # sorted() keeps the order of equals, so that simple readings lead.
    return [told for _, told in sorted(found.values(), key=lambda pair: -pair[0])]


def _up(value: float) -> str:
    return shown(value, 6, ROUND_CEILING)


def overcounts(asked: Question) -> tuple[str, ...]:
    """Return a sentence where a claim that holds is a whole multiple of what was spent."""
    # 1.99 and not 2, since certified upper ends lie a little above what others compute.
    if not asked.can_be_read or not 0.0 < 1.99 * asked.least <= asked.claim:
        return ()
    known = [bound.upper for bound in asked.found.values()]
    # The claim may have been a multiple of any accountant's number, another library's too.
    for value in (*known, *_tried(lambda: _peer(asked, asked.run))):
        times = _multiple(asked.claim, value)
        if times:
            return (
                f"{exactly(asked.claim)} is {times} times the number of this run ({_up(value)}). "
                "Epsilons of clients whose data are disjoint are not added: the largest counts.",
            )
    return ()


def _multiple(claim: float, value: float) -> int:
    """Return how many times a number a claim is; 0 where it is no multiple that is looked for."""
    if not 0.0 < value < math.inf:
        return 0
    times = round(claim / value)
    near = abs(claim / value - times) <= 1e-3 * times
    return times if near and 2 <= times <= MAX_TIMES else 0


def _tried(numbers: Callable[[], list[float]]) -> list[float]:
    try:
        return numbers()
    except (FedPrivacyError, OverflowError):
        return []


def _rounds_to(value: float, claim: float) -> bool:
    """Return whether a claim is a number rounded or cut to its digits, or as near as numerics."""
    exponent = Decimal(repr(claim)).as_tuple().exponent
    # repr gives the shortest digits, so its last place is the one that was rounded.
    last = 10.0**exponent if isinstance(exponent, int) else 0.0
    within = max(last, 2e-3 * claim)
    # Of a claim of one digit the last place is nearly the claim itself: capped at two per cent.
    return abs(value - claim) <= min(within, _NEAR * claim)


def _readings(asked: Question) -> Iterator[Wrong]:
    """Yield every wrong reading, the likeliest first."""
    for name, run in asked.careless.items():
        yield Wrong(*_CARELESS[name], lambda r=run: [*asked.ask(r), *_peer(asked, r)])  # type: ignore[misc]
    yield from _of_relation(asked)
    if asked.facts.observer is Observer.SERVER:
        yield Wrong(
            "an observer who does not see who took part",
            "Sampling hides a unit only from those who are not told who was drawn.",
            lambda: asked.ask(asked.run, observer=Observer.AGGREGATE),
        )
    yield from _of_sensitivity(asked)
    yield from _of_arithmetic(asked)
    yield from _of_counting(asked)


_CARELESS = {
    "steps_per_round": (
        "one noisy sum a round, local steps counted once",
        "Every noisy sum that is released counts, not every round.",
    ),
    "missing_shares": (
        "all shares of the noise",
        "Noise of clients that do not answer is not in the sum.",
    ),
    "trials": (
        "one run of those that were tried",
        "All runs on the same data count, the ones that were thrown away too.",
    ),
}


def _of_relation(asked: Question) -> Iterator[Wrong]:
    """Yield readings under another adjacency, or with Poisson sampling."""
    # Most published numbers assume Poisson sampling, whatever was really drawn.
    drawn = _changed(asked.run, _as_poisson)
    kinder = _KINDER[asked.facts.adjacency]
    for other, why in kinder:
        yield Wrong(f"adjacency {other}", why, partial(asked.ask, asked.run, other))
    if drawn is None:
        return
    yield Wrong("Poisson sampling at the same rate", _DRAWN, partial(asked.ask, drawn))
    for other, why in kinder:
        yield Wrong(
            f"Poisson sampling at the same rate and adjacency {other}",
            f"{_DRAWN} {why}",
            partial(asked.ask, drawn, other),
        )


_TWICE = "Data that are exchanged move a sum of clipped vectors by up to 2 C, not by C."
_KINDER: dict[Adjacency, tuple[tuple[Adjacency, str], ...]] = {
    Adjacency.REPLACE_ONE: ((Adjacency.ZERO_OUT, _TWICE), (Adjacency.ADD_REMOVE, _TWICE)),
    Adjacency.ADD_REMOVE: (
        (
            Adjacency.ZERO_OUT,
            "Without the unit another takes its place, or the others' draw moves.",
        ),
    ),
    Adjacency.ZERO_OUT: (),
}
_DRAWN = "Amplification by Poisson sampling holds for independent draws only, not for these."


def _of_sensitivity(asked: Question) -> Iterator[Wrong]:
    if asked.facts.adjacency is Adjacency.REPLACE_ONE:
        doubled = _changed(asked.run, _louder(2.0))
        if doubled is not None:
            what = "a sum that moves by C when a unit is replaced"
            yield Wrong(what, _TWICE, partial(asked.ask, doubled))
    taken = asked.sensitivity
    smaller = None if taken is None else _changed(asked.run, _louder(1.0 / taken))
    if taken is not None and smaller is not None:
        what = f"a sensitivity of {exactly(taken)} clip norms"
        why = "What is clipped to C moves the sum by up to C, whatever it is taken for."
        yield Wrong(what, why, partial(asked.ask, smaller))
        formula = partial(_classical, smaller, asked.delta)
        yield Wrong(f"{what} and the classical formula", why, formula, bound=False)


def _of_arithmetic(asked: Question) -> Iterator[Wrong]:
    run, facts, delta = asked.run, asked.facts, asked.delta
    yield Wrong(
        "the central limit theorem for Gaussian differential privacy",
        "It is a limit, no bound: at finite numbers of rounds the truth may be more.",
        lambda: _central_limit(run, delta),
        bound=False,
    )
    yield Wrong(
        f"dp-accounting's RDP accountant under {facts.adjacency}",
        _TWICE
        if facts.adjacency is Adjacency.REPLACE_ONE
        else "Its account is of another run than this one.",
        lambda: _peer(asked, run),
        bound=False,
    )
    # The classical formula gives a number for any epsilon but is proved for small ones only.
    yield Wrong(
        "the classical formula sqrt(2 ln(1.25 / delta)) / z, for one round or for all",
        "It is proved for epsilon below 1 and one round only.",
        lambda: _classical(run, delta),
        bound=False,
    )
    yield Wrong(
        "an estimate, a little too small",
        "An estimate, or a number rounded down, is no upper end.",
        # Where nothing is certified from below, the upper end is all there is to be near to.
        lambda: [asked.bound.lower or asked.bound.upper],
        bound=False,
    )


def _of_counting(asked: Question) -> Iterator[Wrong]:
    """Yield readings with fewer rounds: one, a share of them, or each epoch's last one left out."""
    (first, rounds), *more = asked.run.sequence()
    total = rounds + sum(count for _, count in more)
    if total == 1:
        return
    yield Wrong(
        "one round",
        "Every round adds to what is spent.",
        lambda: asked.ask(first)[:1],
        bound=False,
    )
    # Counting errors of mixed rounds cannot be told apart.
    if more:
        return
    yield Wrong(
        "an epoch's steps rounded down",
        "A last batch that is not full is a step, too: steps are rounded up.",
        lambda: _near(asked, first, [total - n for n in _lost(first, total)]),
        bound=False,
    )
    # Only whole ratios: nobody loses a fraction of a noisy sum.
    fewer = [total // n for n in range(2, MAX_TIMES + 1) if total % n == 0]
    yield Wrong(
        "several noisy sums counted as one",
        "Every noisy sum that is released counts, local steps too.",
        lambda: _near(asked, first, fewer),
        bound=False,
    )


def _lost(step: Mechanism, total: int) -> list[int]:
    """Return how many of the steps may have been lost by rounding: one, or one an epoch."""
    _, scheme = _opened(step)
    # Schemes that have whole epochs leave no last batch to lose.
    if scheme is None or hasattr(scheme, "rounds_per_epoch") or not 0.0 < scheme.rate < 1.0:
        return []
    each = math.ceil(1.0 / scheme.rate - 1e-9)
    # Epochs that divide evenly lose nothing by rounding.
    if abs(each * scheme.rate - 1.0) <= 1e-9:
        return []
    return sorted({1, total // each} if total > total // each > 0 else {1})


def _near(asked: Question, step: Mechanism, counts: list[int]) -> list[float]:
    """Return, by each accountant, the number of the count of steps that is nearest to the claim."""
    ways: list[Callable[[int], float]] = [
        lambda n: asked.ask(step * n)[0],
        lambda n: asked.ask(step * n)[1],
        lambda n: (*_peer(asked, step * n), math.inf)[0],
    ]
    return [_nearest(number, counts, asked.claim) for number in ways]


def _nearest(number: Callable[[int], float], counts: list[int], claim: float) -> float:
    """Return the number, which rises with the count, that is nearest to the claim; inf for none."""
    found = [math.inf]
    low, high, counts = 0, len(counts) - 1, sorted(counts)
    while low <= high:
        middle = (low + high) // 2
        # Numbers rise with the count, so that a bisection asks few accounts.
        found.append(number(counts[middle]))
        low, high = (middle + 1, high) if found[-1] < claim else (low, middle - 1)
    return min(found, key=lambda value: abs(value - claim))


def _peer(asked: Question, run: Mechanism) -> list[float]:
    # dp-accounting takes long to import, and few audits come here.
    from ..integrations.event_json import peer_epsilon

    value = peer_epsilon(run, asked.delta, asked.facts.adjacency)
    return [] if value is None else [value]


# ---- a run, read otherwise

_Change = Callable[[Mechanism, Scheme | None, int], tuple[Mechanism, int] | None]
"""Makes of a sampled mechanism and its count another one; None where it says nothing of it."""


def _opened(part: Mechanism) -> tuple[Mechanism, Scheme | None]:
    """Return what is sampled, and how; a mechanism itself, and None, where nothing is."""
    return (part.inner, part.scheme) if isinstance(part, SampledMechanism) else (part, None)


def _changed(run: Mechanism, change: _Change) -> Mechanism | None:
    """Return a run with every part changed; None where a part cannot be, or nothing changes."""
    parts: list[tuple[Mechanism, int]] = []
    for part, count in run.sequence():
        try:
            made = change(*_opened(part), count)
        except FedPrivacyError:
            return None
        if made is None:
            return None
        parts.append(made)
    # A reading that changes nothing would only repeat what was found.
    return None if tuple(parts) == run.sequence() else Run(tuple(parts))


def _as_poisson(
    inner: Mechanism, scheme: Scheme | None, count: int
) -> tuple[Mechanism, int] | None:
    if scheme is None:
        return inner, count
    # Nobody is drawn: there is nothing to be read otherwise.
    if isinstance(scheme, Everyone):
        return inner.sampled(scheme), count
    rounds = getattr(scheme, "rounds_per_epoch", 1)
    # An epoch's scheme stands for several rounds, Poisson's for one.
    return inner.sampled(Poisson(scheme.rate / rounds)), count * rounds


def _louder(factor: float) -> _Change:
    """Return a change to more noise in plain Gaussian sums."""

    def change(inner: Mechanism, scheme: Scheme | None, count: int) -> tuple[Mechanism, int] | None:
        if inner.sum_multiplier is None:
            return None
        louder: Mechanism = Gaussian(noise_multiplier=inner.sum_multiplier * factor)
        return (louder if scheme is None else louder.sampled(scheme)), count

    return change


def _gaussian_rounds(run: Mechanism) -> list[tuple[float, float, int]] | None:
    """Return (noise multiplier, share, rounds) of every part; None where one is something else."""
    found = []
    for part, count in run.sequence():
        inner, scheme = _opened(part)
        if inner.sum_multiplier is None:
            return None
        rounds = getattr(scheme, "rounds_per_epoch", 1)
        share = 1.0 if scheme is None else scheme.rate / rounds
        found.append((inner.sum_multiplier, share, count * rounds))
    return found


def _central_limit(run: Mechanism, delta: float) -> list[float]:
    """Bu, Dong, Long and Su 2020: mu = q sqrt(T (e^(1 / z^2) - 1))."""
    rounds = _gaussian_rounds(run)
    if rounds is None:
        return []
    # The limit is a Gaussian mechanism, whose epsilon is certified by itself.
    squares = [q * q * count * math.expm1(z**-2) for z, q, count in rounds]
    limit = Gaussian(noise_multiplier=1.0 / math.sqrt(math.fsum(squares)))
    return [certified(limit, delta=delta, adjacency=Adjacency.ZERO_OUT).upper]


def _classical(run: Mechanism, delta: float) -> list[float]:
    rounds = _gaussian_rounds(run)
    if rounds is None:
        return []
    each = [(math.sqrt(2.0 * math.log(1.25 / delta)) / z, count) for z, _, count in rounds]
    return [each[0][0], math.fsum(value * count for value, count in each)]
