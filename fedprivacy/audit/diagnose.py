"""Which wrong reading of a run gives the number that was claimed.

A remark beside a verdict, never a part of it: it names the assumption that would make a claim true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..bound import Bound
from ..errors import FedPrivacyError
from ..mechanisms import Gaussian, Mechanism, Run, SampledMechanism
from ..questions.epsilon import epsilon as certified
from ..relations import Adjacency, Facts, Observer
from ..sampling import Everyone, Poisson, Scheme

MAX_PARTS = 20
"""Runs of more kinds of rounds are not looked at: every reading costs an account."""

MAX_TOLD = 2
"""How many readings are told."""

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


def failing_assumptions(
    run: Mechanism, facts: Facts, claim: float, found: Bound, sensitivity: float | None = None
) -> tuple[str, ...]:
    """Return sentences that name what a claim that is not met seems to take for granted.

    Args:
        run: what was accounted.
        facts: what the claim is about.
        claim: the claimed epsilon.
        found: what was certified, at the claimed delta.
        sensitivity: what the claim's own arithmetic took for the clip norm, in clip norms.

    Returns:
        Readings that lead to the claimed number; without one, those under which it would hold.
    """
    if len(run.sequence()) > MAX_PARTS or claim <= 0.0 or not 0.0 < found.given < 1.0:
        return ()
    same: list[str] = []
    enough: dict[str, tuple[float, str]] = {}
    for wrong in _readings(run, facts, claim, found, sensitivity):
        values = [value for value in _tried(wrong.numbers) if math.isfinite(value)]
        near = next((value for value in values if _rounds_to(value, claim)), None)
        if near is not None:
            same.append(f"{claim:g} is the number of {wrong.what} ({near:.6g}). {wrong.why}")
        elif values and wrong.bound and values[0] <= claim:
            told = f"{claim:g} would hold for {wrong.what} ({values[0]:.6g}). {wrong.why}"
            enough.setdefault(wrong.why, (values[0], told))
    if same:
        return tuple(same[:MAX_TOLD])
    # The closest first; sorted() keeps the order of equals, so that simple readings lead.
    closest = sorted(enough.values(), key=lambda pair: -pair[0])
    return tuple(told for _, told in closest[:MAX_TOLD])


def _tried(numbers: Callable[[], list[float]]) -> list[float]:
    try:
        return numbers()
    except (FedPrivacyError, OverflowError):
        return []


def _rounds_to(value: float, claim: float) -> bool:
    """Return whether a claim is a number rounded or cut to its digits, or as near as numerics."""
    exponent = Decimal(repr(claim)).as_tuple().exponent
    last = 10.0**exponent if isinstance(exponent, int) else 0.0
    within = max(last, 2e-3 * claim)
    return abs(value - claim) <= min(within, _NEAR * claim)


def _readings(
    run: Mechanism, facts: Facts, claim: float, found: Bound, sensitivity: float | None
) -> Iterator[Wrong]:
    delta = found.given

    def ask(mechanism: Mechanism, adjacency: Adjacency, observer: Observer) -> list[float]:
        seen: dict[str, Any] = {"adjacency": adjacency, "observer": observer}
        tolerance = 1e-3 * max(claim, 1e-3)
        return [
            certified(mechanism, delta=delta, tolerance=tolerance, **seen).upper,
            certified(mechanism, delta=delta, accountant="rdp", **seen).upper,
        ]

    adjacency, observer = facts.adjacency, facts.observer
    drawn = _changed(run, _as_poisson)
    kinder = _KINDER[adjacency]
    for other, why in kinder:
        yield Wrong(f"adjacency {other}", why, lambda o=other: ask(run, o, observer))  # type: ignore[misc]
    if drawn is not None:
        yield Wrong(
            "Poisson sampling at the same rate",
            _DRAWN,
            lambda: ask(drawn, adjacency, observer),
        )
        for other, why in kinder:
            yield Wrong(
                f"Poisson sampling at the same rate and adjacency {other}",
                f"{_DRAWN} {why}",
                lambda o=other: ask(drawn, o, observer),  # type: ignore[misc]
            )
    if observer is Observer.SERVER:
        yield Wrong(
            "an observer who does not see who took part",
            "Sampling hides a unit only from those who are not told who was drawn.",
            lambda: ask(run, adjacency, Observer.AGGREGATE),
        )
    yield from _of_sensitivity(run, facts, delta, sensitivity, ask)
    yield from _of_arithmetic(run, facts, found)


_Ask = Callable[[Mechanism, Adjacency, Observer], list[float]]

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


def _of_sensitivity(
    run: Mechanism, facts: Facts, delta: float, sensitivity: float | None, ask: _Ask
) -> Iterator[Wrong]:
    if facts.adjacency is Adjacency.REPLACE_ONE:
        doubled = _changed(run, _louder(2.0))
        if doubled is not None:
            yield Wrong(
                "a sum that moves by C when a unit is replaced",
                _TWICE,
                lambda: ask(doubled, facts.adjacency, facts.observer),
            )
    smaller = None if sensitivity is None else _changed(run, _louder(1.0 / sensitivity))
    if smaller is not None:
        what = f"a sensitivity of {sensitivity:g} clip norms"
        why = "What is clipped to C moves the sum by up to C, whatever it is taken for."
        yield Wrong(what, why, lambda: ask(smaller, facts.adjacency, facts.observer))
        yield Wrong(
            f"{what} and the classical formula",
            why,
            lambda: _classical(smaller, delta),
            bound=False,
        )


def _of_arithmetic(run: Mechanism, facts: Facts, found: Bound) -> Iterator[Wrong]:
    delta = found.given
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
        lambda: _peer(run, delta, facts.adjacency),
        bound=False,
    )
    yield Wrong(
        "the classical formula sqrt(2 ln(1.25 / delta)) / z, for one round or for all",
        "It is proved for epsilon below 1 and one round only.",
        lambda: _classical(run, delta),
        bound=False,
    )
    if sum(count for _, count in run.sequence()) > 1:
        (first, _), *_ = run.sequence()
        yield Wrong(
            "one round",
            "Every round adds to what is spent.",
            lambda: [certified(first, delta=delta, **_seen(facts)).upper],
            bound=False,
        )
    yield Wrong(
        "an estimate, a little too small",
        "An estimate, or a number rounded down, is no upper end.",
        lambda: [found.lower or found.upper],
        bound=False,
    )


def _seen(facts: Facts) -> dict[str, Any]:
    return {"adjacency": facts.adjacency, "observer": facts.observer}


def _peer(run: Mechanism, delta: float, adjacency: Adjacency) -> list[float]:
    from ..integrations.event_json import peer_epsilon

    value = peer_epsilon(run, delta, adjacency)
    return [] if value is None else [value]


# ---- a run, read otherwise

_Change = Callable[[Mechanism, Scheme | None, int], tuple[Mechanism, int] | None]
"""Makes of a sampled mechanism and its count another one; None where it says nothing of it."""


def _changed(run: Mechanism, change: _Change) -> Mechanism | None:
    """Return a run with every part changed; None where a part cannot be, or nothing changes."""
    parts: list[tuple[Mechanism, int]] = []
    for part, count in run.sequence():
        inner, scheme = (
            (part.inner, part.scheme) if isinstance(part, SampledMechanism) else (part, None)
        )
        try:
            made = change(inner, scheme, count)
        except FedPrivacyError:
            return None
        if made is None:
            return None
        parts.append(made)
    return None if tuple(parts) == run.sequence() else Run(tuple(parts))


def _as_poisson(
    inner: Mechanism, scheme: Scheme | None, count: int
) -> tuple[Mechanism, int] | None:
    if scheme is None or isinstance(scheme, Everyone):
        return inner, count
    rounds = getattr(scheme, "rounds_per_epoch", 1)
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
        sampled = isinstance(part, SampledMechanism)
        inner = part.inner if isinstance(part, SampledMechanism) else part
        if inner.sum_multiplier is None:
            return None
        scheme = part.scheme if isinstance(part, SampledMechanism) else None
        rounds = getattr(scheme, "rounds_per_epoch", 1)
        share = scheme.rate / rounds if sampled and scheme is not None else 1.0
        found.append((inner.sum_multiplier, share, count * rounds))
    return found


def _central_limit(run: Mechanism, delta: float) -> list[float]:
    """Bu, Dong, Long and Su 2020: mu = q sqrt(T (e^(1 / z^2) - 1))."""
    rounds = _gaussian_rounds(run)
    if rounds is None:
        return []
    squares = [q * q * count * math.expm1(z**-2) for z, q, count in rounds]
    limit = Gaussian(noise_multiplier=1.0 / math.sqrt(math.fsum(squares)))
    return [certified(limit, delta=delta, adjacency=Adjacency.ZERO_OUT).upper]


def _classical(run: Mechanism, delta: float) -> list[float]:
    rounds = _gaussian_rounds(run)
    if rounds is None:
        return []
    each = [(math.sqrt(2.0 * math.log(1.25 / delta)) / z, count) for z, _, count in rounds]
    return [each[0][0], math.fsum(value * count for value, count in each)]
