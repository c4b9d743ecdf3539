"""Misreadings of a run, and the epsilon that each one gives.

A reading depends on the run and on delta, never on the claim. Hence the number of claims that it
would explain can be counted before any claim is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

from ..bound import exactly
from ..errors import FedPrivacyError
from ..mechanisms import Gaussian, Mechanism, Run, SampledMechanism
from ..questions.epsilon import epsilon as certified
from ..relations import Adjacency, Facts, Observer
from ..sampling import (
    Everyone,
    FixedSize,
    Poisson,
    RandomAllocation,
    Scheme,
    Shuffled,
    WithReplacement,
    round_rate,
)

WAYS = 4
"""Number of accounts that price each number of rounds."""

MAX_TIMES = 20
"""Largest divisor or multiple that is tried. With larger ones, some ratio is close to every number.
"""

PEER = "dp-accounting's RDP accountant"

Number = tuple[float, str]
"""An epsilon, and the account that gives it."""


@dataclass(frozen=True)
class Misreading:
    """One wrong reading of a run.

    Attributes:
        what: the reading with its parameters, to follow "would be the number of".
        why: the error in it, as a sentence.
        numbers: computes the epsilons of this reading.
        bound: whether the first of these is a bound for a run that really is as read.
    """

    what: str
    why: str
    numbers: Callable[[], list[Number]]
    bound: bool = True

    def finite(self) -> list[Number]:
        """Return the finite epsilons of the reading; none if it is refused or diverges."""
        try:
            return [one for one in self.numbers() if math.isfinite(one[0])]
        except (FedPrivacyError, OverflowError):
            return []


@dataclass(frozen=True)
class Audited:
    """An accounted run, and the inputs of its readings.

    Attributes:
        run: the mechanism that was accounted.
        facts: facts of the claim.
        delta: delta of the claim.
        scale: an epsilon that sets the accuracy needed for readings.
        sensitivity: sensitivity in the claim's own arithmetic, in clip norms.
        run_without: the run without one stated fact, by the name of that fact.
    """

    run: Mechanism
    facts: Facts
    delta: float
    scale: float
    sensitivity: float | None = None
    run_without: Mapping[str, Mechanism] = field(default_factory=dict)

    def ask(
        self,
        run: Mechanism,
        adjacency: Adjacency | None = None,
        observer: Observer | None = None,
    ) -> list[Number]:
        """Return PLD and RDP upper ends of another run, or under other facts."""
        seen = (adjacency or self.facts.adjacency, observer or self.facts.observer)
        # A run that cannot be hashed cannot be a cache key.
        ask = _upper_kept if _hashes(run) else _upper
        return [
            (ask(run, self.delta, *seen, name, self.tolerance), name.upper())
            for name in ("pld", "rdp")
        ]

    @property
    def tolerance(self) -> float:
        """Width that a reading's interval may have. Readings are only remarks."""
        return 1e-3 * max(self.scale, 1e-2)

    @cached_property
    def total(self) -> int:
        """The number of rounds."""
        return sum(count for _, count in self.run.sequence())


def _upper(
    run: Mechanism,
    delta: float,
    adjacency: Adjacency,
    observer: Observer,
    accountant: str,
    tolerance: float,
) -> float:
    """Return an upper end. Audits of one run at several claims share these values."""
    seen: dict[str, Any] = {"adjacency": adjacency, "observer": observer}
    ask: dict[str, Any] = {"accountant": accountant, "tolerance": tolerance}
    return certified(run, delta=delta, **ask, **seen).upper


_upper_kept = lru_cache(maxsize=256)(_upper)


def readings(audited: Audited) -> Iterator[Misreading]:
    """Yield the wrong readings without a free parameter, the most likely first."""
    for name, run in audited.run_without.items():
        numbers = partial(_with_peer, audited, run)
        yield Misreading(*_CARELESS[name], numbers)
    yield from _of_relation(audited)
    if audited.facts.observer is Observer.SERVER:
        yield Misreading(
            "an observer who does not see the participants",
            "Sampling hides a unit only from observers who do not see the participants.",
            lambda: audited.ask(audited.run, observer=Observer.AGGREGATE),
        )
    yield from _of_sensitivity(audited)
    yield from _of_arithmetic(audited)
    yield from _of_counting(audited)


def _with_peer(audited: Audited, run: Mechanism) -> list[Number]:
    return [*audited.ask(run), *peer(audited, run)]


_CARELESS = {
    "steps_per_round": (
        "one noisy sum per round, with local steps counted once",
        "Every released noisy sum counts, not only every round.",
    ),
    "missing_shares": (
        "all shares of the noise",
        "The sum lacks the noise shares of clients that do not answer.",
    ),
    "trials": (
        "only one of the runs on these data",
        "All runs on the same data count, including discarded ones.",
    ),
}


def _of_relation(audited: Audited) -> Iterator[Misreading]:
    """Yield readings under another adjacency, or with Poisson sampling."""
    # Most published numbers assume Poisson sampling, whatever the real sampling was.
    drawn = _changed(audited.run, _as_poisson)
    moved = None if drawn is None else _changed(drawn, _noise_times(0.5))
    if audited.facts.adjacency is Adjacency.REPLACE_ONE and moved is not None:
        # For replaced units, some accountants halve the noise and take the pair of an added unit.
        yield Misreading(
            f"{_POISSON}, added or removed, with a sensitivity of 2 C",
            _DRAWN,
            partial(audited.ask, moved, Adjacency.ADD_REMOVE),
        )
    kinder = _KINDER[audited.facts.adjacency]
    for other in kinder:
        why = _why(audited.run, audited.facts.adjacency, other)
        yield Misreading(f"adjacency {other}", why, partial(audited.ask, audited.run, other))
    if drawn is None:
        return
    yield Misreading(_POISSON, _DRAWN, partial(audited.ask, drawn))
    for other in kinder:
        why = f"{_DRAWN} {_why(drawn, audited.facts.adjacency, other)}"
        yield Misreading(
            f"{_POISSON} and adjacency {other}", why, partial(audited.ask, drawn, other)
        )


def _why(run: Mechanism, adjacency: Adjacency, other: Adjacency) -> str:
    """Return the error in an account under another adjacency."""
    if adjacency is Adjacency.ADD_REMOVE:
        return (
            "Without the unit, another unit takes its place, or the sampling of the others changes."
        )
    # If another unit replaces an absent one, the sum also moves by 2 C.
    schemes = [_opened(part)[1] for part, _ in run.sequence()]
    if other is Adjacency.ADD_REMOVE and not all(map(_moves_by_one, schemes)):
        return "Replacing the data of a unit differs from adding or removing a unit."
    return _TWICE


def _moves_by_one(scheme: Scheme | None) -> bool:
    return scheme is None or isinstance(scheme, Everyone | Poisson)


_POISSON = "Poisson sampling at the same rate"
_TWICE = "Replaced data change a sum of clipped vectors by up to 2 C, not by C."
_KINDER: dict[Adjacency, tuple[Adjacency, ...]] = {
    Adjacency.REPLACE_ONE: (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE),
    Adjacency.ADD_REMOVE: (Adjacency.ZERO_OUT,),
    Adjacency.ZERO_OUT: (),
}
_DRAWN = (
    "Amplification by Poisson sampling holds only for independent draws, and these are not "
    "independent."
)


def _of_sensitivity(audited: Audited) -> Iterator[Misreading]:
    if audited.facts.adjacency is Adjacency.REPLACE_ONE:
        doubled = _changed(audited.run, _noise_times(2.0))
        if doubled is not None:
            what = "a sensitivity of C for a replaced unit"
            yield Misreading(what, _TWICE, partial(audited.ask, doubled))
    taken = audited.sensitivity
    smaller = None if taken is None else _changed(audited.run, _noise_times(1.0 / taken))
    if taken is not None and smaller is not None:
        what = f"a sensitivity of {exactly(taken)} clip norms"
        why = (
            "A contribution clipped to C changes the sum by up to C, whatever sensitivity is "
            "assumed."
        )
        yield Misreading(what, why, partial(audited.ask, smaller))
        formula = partial(_classical, smaller, audited.delta)
        yield Misreading(f"{what} and the classical formula", why, formula, bound=False)


def _of_arithmetic(audited: Audited) -> Iterator[Misreading]:
    run, facts, delta = audited.run, audited.facts, audited.delta
    yield Misreading(
        "the central limit theorem for Gaussian differential privacy",
        "It is a limit, not a bound; with finitely many rounds epsilon may be larger.",
        lambda: _central_limit(run, delta),
        bound=False,
    )
    yield Misreading(
        f"{PEER} under {facts.adjacency}",
        _TWICE if facts.adjacency is Adjacency.REPLACE_ONE else "It accounts a different run.",
        lambda: peer(audited, run),
        bound=False,
    )
    # The classical formula gives a number for any epsilon but is proved only for small ones.
    yield Misreading(
        "the classical formula sqrt(2 ln(1.25 / delta)) / z, for one round or for all",
        "It is proved only for epsilon below 1 and one round.",
        lambda: _classical(run, delta),
        bound=False,
    )


def _of_counting(audited: Audited) -> Iterator[Misreading]:
    """Yield readings with fewer rounds: only one, or without the last step of each epoch."""
    (first, _), *more = audited.run.sequence()
    total = audited.total
    if total == 1:
        return
    yield Misreading(
        f"one round of {total:,}",
        "Every round increases epsilon.",
        lambda: audited.ask(first)[:1],
        bound=False,
    )
    # Counting errors of mixed rounds cannot be distinguished.
    for lost in () if more else _lost(first, total):
        yield Misreading(
            f"the steps of an epoch rounded down, {total - lost:,} in all instead of {total:,}",
            "An incomplete last batch is a step as well, so steps are rounded up.",
            partial(_with_peer, audited, first * (total - lost)),
            bound=False,
        )


def divided(audited: Audited) -> Iterator[Misreading]:
    """Yield the readings that count several noisy sums as one, the smallest divisor first."""
    (first, total), *more = audited.run.sequence()
    # Only integer ratios, because no mistake loses a fraction of a noisy sum.
    for n in range(2, MAX_TIMES + 1) if not more else ():
        if total % n == 0:
            yield Misreading(
                f"{n} noisy sums counted as one, {total // n:,} in all instead of {total:,}",
                "Every released noisy sum counts, including those of local steps.",
                partial(_with_peer, audited, first * (total // n)),
                bound=False,
            )


def _lost(step: Mechanism, total: int) -> list[int]:
    """Return possible numbers of steps lost by rounding: one, or one per epoch."""
    _, scheme = _opened(step)
    # Schemes with complete epochs have no partial last batch.
    if scheme is None or hasattr(scheme, "rounds_per_epoch") or not 0.0 < scheme.rate < 1.0:
        return []
    each = math.ceil(1.0 / scheme.rate - 1e-9)
    # Epochs that divide evenly lose no steps by rounding.
    if abs(each * scheme.rate - 1.0) <= 1e-9:
        return []
    return sorted({1, total // each} if total > total // each > 0 else {1})


def peer(audited: Audited, run: Mechanism) -> list[Number]:
    """Return the epsilons of other programs' RDP accountants; empty if they give none."""
    ask = _peers_kept if _hashes(run) else _peers
    return ask(run, audited.delta, audited.facts.adjacency)


def _peers(run: Mechanism, delta: float, adjacency: Adjacency) -> list[Number]:
    if not all(_has_peer(_opened(part)[1], adjacency) for part, _ in run.sequence()):
        return []
    # dp-accounting takes long to import, and few audits need it.
    from ..integrations.event_json import OPACUS_ORDERS, peer_epsilon

    values = (
        (peer_epsilon(run, delta, adjacency), PEER),
        (peer_epsilon(run, delta, adjacency, OPACUS_ORDERS), f"{PEER} at Opacus's orders"),
    )
    return [(value, name) for value, name in values if value is not None]


def _has_peer(scheme: Scheme | None, adjacency: Adjacency) -> bool:
    """Return whether dp-accounting's RDP accountant may account a scheme under an adjacency."""
    if isinstance(scheme, FixedSize):
        return adjacency is Adjacency.REPLACE_ONE
    if isinstance(scheme, Poisson):
        return adjacency is not Adjacency.REPLACE_ONE
    return not isinstance(scheme, Shuffled | RandomAllocation | WithReplacement)


_peers_kept = lru_cache(maxsize=256)(_peers)


def _hashes(run: Mechanism) -> bool:
    try:
        hash(run)
    except TypeError:
        return False
    return True


_Change = Callable[[Mechanism, Scheme | None, int], tuple[Mechanism, int] | None]
"""Maps a sampled mechanism and its count to another one; None if it does not apply."""


def _opened(part: Mechanism) -> tuple[Mechanism, Scheme | None]:
    """Return the sampled mechanism and its scheme; the mechanism and None if it is not sampled."""
    return (part.inner, part.scheme) if isinstance(part, SampledMechanism) else (part, None)


def _changed(run: Mechanism, change: _Change) -> Mechanism | None:
    """Return a run with every part changed; None if a part cannot change, or no part does."""
    parts: list[tuple[Mechanism, int]] = []
    for part, count in run.sequence():
        try:
            made = change(*_opened(part), count)
        except FedPrivacyError:
            return None
        if made is None:
            return None
        parts.append(made)
    # A reading that changes no part would only repeat the audited number.
    return None if tuple(parts) == run.sequence() else Run(tuple(parts))


def _as_poisson(
    inner: Mechanism, scheme: Scheme | None, count: int
) -> tuple[Mechanism, int] | None:
    if scheme is None:
        return inner, count
    # No unit is drawn here, so the scheme stays.
    if isinstance(scheme, Everyone):
        return inner.sampled(scheme), count
    rounds = getattr(scheme, "rounds_per_epoch", 1)
    # A scheme for an epoch covers several rounds, a Poisson scheme only one.
    return inner.sampled(Poisson(round_rate(scheme))), count * rounds


def _noise_times(factor: float) -> _Change:
    """Return a change that multiplies the noise of plain Gaussian sums by ``factor``."""

    def change(inner: Mechanism, scheme: Scheme | None, count: int) -> tuple[Mechanism, int] | None:
        if inner.traits.sum_multiplier is None:
            return None
        changed: Mechanism = Gaussian(noise_multiplier=inner.traits.sum_multiplier * factor)
        return (changed if scheme is None else changed.sampled(scheme)), count

    return change


def _gaussian_rounds(run: Mechanism) -> list[tuple[float, float, int]] | None:
    """Return (noise multiplier, share, rounds) of every part; None if a part is not Gaussian."""
    found = []
    for part, count in run.sequence():
        inner, scheme = _opened(part)
        if inner.traits.sum_multiplier is None:
            return None
        rounds = getattr(scheme, "rounds_per_epoch", 1)
        share = 1.0 if scheme is None else round_rate(scheme)
        found.append((inner.traits.sum_multiplier, share, count * rounds))
    return found


def _central_limit(run: Mechanism, delta: float) -> list[Number]:
    """Return the central-limit epsilon: mu = q sqrt(T (e^(1 / z^2) - 1)).

    Source: Bu, Dong, Long and Su 2020.
    """
    rounds = _gaussian_rounds(run)
    if rounds is None:
        return []
    # The limit is a Gaussian mechanism, whose epsilon is certified on its own.
    squares = [q * q * count * math.expm1(z**-2) for z, q, count in rounds]
    limit = Gaussian(noise_multiplier=1.0 / math.sqrt(math.fsum(squares)))
    found = certified(limit, delta=delta, adjacency=Adjacency.ZERO_OUT).upper
    return [(found, "mu-GDP")]


def _classical(run: Mechanism, delta: float) -> list[Number]:
    rounds = _gaussian_rounds(run)
    if rounds is None:
        return []
    each = [(math.sqrt(2.0 * math.log(1.25 / delta)) / z, count) for z, _, count in rounds]
    whole = math.fsum(value * count for value, count in each)
    return [(each[0][0], "one round"), (whole, "all rounds")]
