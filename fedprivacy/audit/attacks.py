"""Attacks: lower ends of epsilon from experiments, with an error rate that a theorem states.

A certified epsilon says what no attack can beat. An attack says what at least one does. Where it
beats the certified number, the mechanism that ran is not the one that was accounted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..bound import Bound, exactly, shown
from ..errors import closed_unit, integer, member, open_unit, refuse
from ..mechanisms import Gaussian, Mechanism
from ..mechanisms.noise import drawn_from
from ..questions.epsilon import epsilon
from ..questions.risk import attack_risk
from ..relations import Adjacency, Observer
from . import guessing
from .canaries import (
    Asked,
    Coins,
    Planted,
    Train,
    client_canaries,
    crafted_canaries,
    is_loop,
    loop_mechanism,
    plant_named,
    random_directions,
)

Array = NDArray[np.float64]

SHARES = (0.025, 0.125, 0.75)
"""Shares of the canaries that are guessed, unless said otherwise; the level is split over them."""

_COINS = "flipping one entry of included changes the data by one step of the adjacency"
_FRAME = "scores are made of what the observer sees, and of canaries drawn without the coins"
_GAUSSIAN = (
    "lower is epsilon's own only if the worst pair is Gaussian; that the mechanism is not mu-GDP, "
    "and an alarm about a mechanism's own mu, need no such thing"
)
_APART = "runs are independent: train draws all it draws from the generator, or afresh"


class Outcome(StrEnum):
    """What an attack says about a certified number."""

    CONSISTENT = "CONSISTENT"
    """The lower end is at most the certified upper end: nothing is refuted, nothing proved."""
    BUG_ALARM = "BUG ALARM"
    """The lower end is above the certified upper end: another mechanism ran."""
    NO_CLAIM = "NO CLAIM"
    """There was no certified number to compare with."""


class Estimator(StrEnum):
    """How an attack's successes become an epsilon."""

    GUESSES = "guesses"
    """Many canaries in a run (one run is enough): theorem A1."""
    RATES = "rates"
    """One canary a run, many runs: theorem A2, the threshold chosen on the first half of them."""
    GDP = "gdp"
    """Guesses held against Gaussian trade-off curves: theorem A3. More power in one run, for a
    lower end that is epsilon's own only where the worst pair is Gaussian."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A lower end of epsilon from an experiment.

    Attributes:
        lower: epsilon is at least this, but for a chance of ``level``.
        upper_certified: what was certified of the run; None where nothing was.
        verdict: whether the two agree.
        delta: where epsilon is meant.
        level: P[lower > true epsilon] is at most this.
        observer: what the attack saw.
        guesses: how many guesses the deciding test counted, or claims.
        correct: how many of them were right.
        canaries: how many coins were thrown, over all runs.
        runs: how often ``train`` was called.
        theorem: what the error rate rests on.
        assumptions: its conditions that cannot be checked from outside.
        mu: the mechanism is not mu-GDP at this mu, but for a chance of ``level``; None where the
            estimator does not ask.
    """

    lower: float
    upper_certified: float | None
    verdict: Outcome
    delta: float
    level: float
    observer: Observer
    guesses: int
    correct: int
    canaries: int
    runs: int
    theorem: str
    assumptions: tuple[str, ...]
    mu: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        upper = self.upper_certified
        plain = {**self.__dict__, "verdict": str(self.verdict), "observer": str(self.observer)}
        plain["upper_certified"] = "inf" if upper == math.inf else upper
        return {**plain, "assumptions": list(self.assumptions)}

    def __str__(self) -> str:
        certified = "" if self.upper_certified is None else f" (certified: {self.upper_certified})"
        lower = shown(self.lower, 6, ROUND_FLOOR)
        found = f"epsilon >= {lower} at delta = {exactly(self.delta)}{certified}"
        if self.mu is not None:
            # Of epsilon nothing is known but in one case, which no experiment shows.
            found = (
                f"not {shown(self.mu, 6, ROUND_FLOOR)}-GDP; if its worst pair is Gaussian, {found}"
            )
        return (
            f"{self.verdict}: {found}; "
            f"{self.correct} of {self.guesses} guesses right, {self.canaries} canaries in "
            f"{self.runs} run{'' if self.runs == 1 else 's'}, {self.observer}; wrong with "
            f"probability at most {exactly(self.level)}"
        )


class Seen(NamedTuple):
    """Coins and scores of all runs, each of shape (runs, m)."""

    coins: Coins
    scores: Array


class Answer(NamedTuple):
    """What one test says: of epsilon, or of mu."""

    lower: float
    guesses: int
    correct: int


class Claimed(NamedTuple):
    """What was certified: epsilon at delta, and mu where it is known; None for nothing."""

    epsilon: float | None
    delta: float
    mu: float | None = None


def attack(
    train: Train | str | Any,
    canaries: int = 1000,
    observer: Observer | str = Observer.AGGREGATE,
    level: float = 0.05,
    *,
    delta: float | None = None,
    runs: int = 20,
    claim: Bound | Mechanism | float | None = None,
    adjacency: Adjacency | str | None = None,
    directions: Any = None,
    data: Any = None,
    rounds: int = 1,
    settings: Mapping[str, Any] | None = None,
    estimator: Estimator | str = Estimator.GUESSES,
    guesses: int | None = None,
    generator: np.random.Generator | None = None,
    jobs: int = 1,
) -> Attack:
    """Attack a mechanism or a training run and return a lower end of its epsilon.

    P[``lower`` > the true epsilon] is at most ``level``, by theorem A1 ("guesses"), A2 ("rates") or
    A3 ("gdp"), whatever the mechanism, under ``Attack.assumptions``. A weak attack is a small lower
    end, no evidence of privacy.

    Args:
        train: gets ``included``, shape (canaries,), a fair coin for each canary, and a generator.
            Returns scores, shape (canaries,), larger where the canary is likelier in the data; or,
            with ``directions``, what was released, shape (d,) or (rounds, d). Or a loop of
            federated averaging, with ``data`` and ``rounds``: its first clients are the canaries,
            and what is certified of it under zero_out is the claim (``canaries.client_canaries``).
            Or the name of a method, as ``fedprivacy train --method`` takes it: crafted clients, or
            records with one of two labels where the unit is a record, in the loop that would be
            trained; the claim is what is certified of it.
        canaries: m, in every run.
        observer: "aggregate" and "server" look at every release, "final" at the last.
        level: chance of a lower end above the truth, in (0, 1).
        delta: where epsilon is meant; None for the claim's, 1e-5 without one.
        runs: how often ``train`` is called; their canaries count together. 1 is the one-run audit.
        claim: what was certified: a Bound, an epsilon, or the mechanism that should have run.
        adjacency: needed where ``claim`` is a mechanism.
        directions: shape (canaries, d): what each canary adds. Its score is then the sum over the
            releases seen of its cosine with them. With a loop, crafted clients send them, far above
            the clip norm; "random" for random ones; None for the clients' own updates.
        data: of a loop; with a name also "digits" (None stands for it), "fashion-mnist" or a file.
        rounds: of a loop.
        settings: with a name, those of the method, such as ``{"noise_multiplier": 2.0}``. Where the
            one that pays for privacy is left out, it is calibrated to epsilon 4.
        estimator: "guesses"; "gdp" for more power in one run, read as the last of the assumptions
            says; or "rates" for one canary a run and at least 8 runs.
        guesses: r, over all runs; None for three numbers of them, at a third of the level each.
        generator: None for randomness from the operating system.
        jobs: how many runs at once, by joblib.

    Raises:
        ParameterError: a value out of its range, scores of a wrong shape or not finite.

    >>> import numpy as np, fedprivacy as fp
    >>> release = lambda included, generator: included + generator.normal(0, 1, len(included))
    >>> step = fp.Gaussian(noise_multiplier=2.0)
    >>> rng = np.random.default_rng(0)
    >>> found = fp.attack(release, claim=step, adjacency="zero_out", generator=rng)
    >>> found.verdict, found.lower > found.upper_certified
    (<Outcome.BUG_ALARM: 'BUG ALARM'>, True)
    """
    seer = member(Observer, observer=observer)
    way = member(Estimator, estimator=estimator)
    chance = open_unit(level=level)
    each, times = integer(1, canaries=canaries), integer(1, runs=runs)
    source = drawn_from(generator)
    at = 1e-5 if delta is None else delta
    asked = Asked(each, rounds, at, seer, source, data, settings or {})
    if settings is not None and not isinstance(train, str):
        refuse("settings", settings, "be left out", "they are for a method that is named")
    subject = _subject(train, directions, asked)
    # What is attacked has its own account, which is the claim unless another is given.
    if claim is None:
        claim, adjacency = subject.claim()
    certified = _claimed(claim, delta, adjacency, seer, way is Estimator.GDP)
    score = _scorer(subject.directions, each, seer)
    seen = _play(subject.train, score, (times, each), source, jobs)
    test = _Test(certified, seen, chance, seer, guesses)
    return _ESTIMATORS[way](test)


class _Test(NamedTuple):
    """What an estimator judges by."""

    certified: Claimed
    seen: Seen
    level: float
    observer: Observer
    guesses: int | None


def _found(test: _Test, found: Answer, lower: float, theorem: str) -> Attack:
    """Return what a test found of epsilon."""
    certified = test.certified
    return Attack(
        lower=lower,
        upper_certified=certified.epsilon,
        verdict=_verdict(lower, certified.epsilon),
        delta=certified.delta,
        level=test.level,
        observer=test.observer,
        guesses=found.guesses,
        correct=found.correct,
        canaries=test.seen.coins.size,
        runs=len(test.seen.coins),
        theorem=theorem,
        assumptions=(_COINS, _FRAME, _APART),
    )


def _by_guesses(test: _Test) -> Attack:
    """Return the largest epsilon that is refuted by guesses."""
    found = _largest(test, partial(guessing.refuted, delta=test.certified.delta))
    return _found(test, found, found.lower, guessing.THEOREM_GUESSES)


def _by_curves(test: _Test) -> Attack:
    """Return what a lower end of mu says: of the claim's mu, and of epsilon in Gaussian pairs."""
    found = _largest(test, guessing.refuted_mu)
    delta, lower = test.certified.delta, 0.0
    # A mu of 0 refutes nothing, and its noise would be infinite.
    if found.lower:
        at_least = Gaussian(noise_multiplier=1.0 / found.lower)
        lower = epsilon(at_least, delta=delta, adjacency=Adjacency.ZERO_OUT).lower
    told = _found(test, found, lower, guessing.THEOREM_CURVE)
    # mu against mu: epsilons would compare only if the worst pair were Gaussian.
    verdict = _verdict(found.lower, test.certified.mu)
    return replace(
        told, verdict=verdict, mu=found.lower, assumptions=(*told.assumptions, _GAUSSIAN)
    )


class _Subject(NamedTuple):
    """What is attacked: what is run, what each canary adds, and how it is claimed by itself."""

    train: Train
    directions: Any
    claim: Callable[[], tuple[Mechanism | None, Adjacency | None]]


def _subject(train: Train | str | Any, directions: Any, asked: Asked) -> _Subject:
    """Return what is attacked: a function, or a loop with canaries in it."""
    if isinstance(train, str):
        rounds, delta = integer(1, rounds=asked.rounds), closed_unit(delta=asked.delta)
        loop = _named(train, directions, asked._replace(rounds=rounds, delta=delta))
        return _Subject(loop.train, loop.directions, lambda: (loop.claim, loop.adjacency))
    if not is_loop(train):
        return _Subject(train, directions, lambda: (None, None))
    return _Subject(
        *_of_loop(train, directions, asked),
        lambda: (loop_mechanism(train, integer(1, rounds=asked.rounds)), Adjacency.ZERO_OUT),
    )


def _named(name: str, directions: Any, asked: Asked) -> Planted:
    """Return the loop of a name, with canaries in it."""
    if directions is not None:
        refuse("directions", directions, f"be left out with the name {name!r}", "pass the loop")
    return plant_named(name, asked)


def _of_loop(loop: Any, directions: Any, asked: Asked) -> tuple[Train, Any]:
    """Return a ``train`` of a loop, and the directions of its clients."""
    canaries, rounds, data = asked.canaries, asked.rounds, asked.data
    if directions is None:
        return client_canaries(loop, data, canaries, rounds)
    if isinstance(directions, str):
        if directions != "random":
            refuse("directions", directions, "be 'random', or vectors, one row a canary")
        # Directions must not depend on the coins, or scores would prove nothing.
        directions = random_directions(canaries, int(loop.flat.dimension), asked.generator)
    wanted = _rows(directions, canaries)
    return crafted_canaries(loop, data, wanted, rounds), wanted


def _rows(directions: Any, canaries: int) -> Array:
    wanted = np.asarray(directions, dtype=np.float64)
    if wanted.ndim != 2 or len(wanted) != canaries:
        refuse("directions", wanted.shape, f"have shape ({canaries}, d), one row a canary")
    return wanted


def plan(canaries: int, delta: float, level: float = 0.05, guesses: int | None = None) -> float:
    """Return the largest epsilon that an attack with so many canaries could show.

    Every guess is right. ``attack`` never returns more at the same ``guesses``.

    Args:
        canaries: over all runs.
        delta: in [0, 1].
        level: in (0, 1).
        guesses: see ``attack``; None for its three numbers.

    >>> plan(1000, 1e-5), plan(20_000, 1e-5)
    (5.205, 8.205)
    """
    total, at, chance = (
        integer(1, canaries=canaries),
        closed_unit(delta=delta),
        open_unit(level=level),
    )
    tries = _numbers(total, guesses)
    # Each number of guesses is a test of its own and gets its share of the level.
    return max(guessing.refuted(r, r, total, at, chance / len(tries)) for r in tries)


def _claimed(
    claim: Bound | Mechanism | float | None,
    delta: float | None,
    adjacency: Adjacency | str | None,
    observer: Observer,
    curve: bool,
) -> Claimed:
    if isinstance(claim, Bound):
        return Claimed(*_of_bound(claim, delta, observer))
    at = closed_unit(delta=1e-5 if delta is None else delta)
    if claim is None:
        return Claimed(None, at)
    if not isinstance(claim, Mechanism):
        return Claimed(_plain(claim), at)
    if adjacency is None:
        refuse("adjacency", None, "be given where claim is a mechanism", "'zero_out', for instance")
    seen: dict[str, Any] = {"adjacency": adjacency, "observer": observer}
    # One rate is enough: mu bounds the whole curve.
    mu = attack_risk(claim, fpr=(0.01,), **seen).mu.upper if curve else None
    return Claimed(epsilon(claim, delta=at, **seen).upper, at, mu)


def _plain(claim: object) -> float:
    if not isinstance(claim, int | float) or isinstance(claim, bool) or not claim >= 0.0:
        refuse("claim", claim, "be a Bound, a mechanism or an epsilon of at least 0")
    return float(claim)


def _of_bound(claim: Bound, delta: float | None, observer: Observer) -> tuple[float, float]:
    # What a delta or a risk certifies is not what is refuted.
    if claim.quantity != "epsilon":
        refuse("claim", claim.quantity, "be a bound on epsilon", "ask fp.epsilon, not fp.delta")
    # Another delta has another epsilon: comparing across would alarm or calm for nothing.
    if delta is not None and delta != claim.given:
        refuse("delta", delta, f"equal the claim's, {claim.given}", "leave delta out")
    # A claim about the last release says nothing of the others.
    if claim.observer is Observer.FINAL and observer is not Observer.FINAL:
        refuse("observer", str(observer), "be 'final', as the claim's", "it covers no more")
    return claim.upper, claim.given


def _verdict(lower: float, certified: float | None) -> Outcome:
    if certified is None:
        return Outcome.NO_CLAIM
    return Outcome.BUG_ALARM if lower > certified else Outcome.CONSISTENT


# ---- runs


def _scorer(directions: Any, canaries: int, observer: Observer) -> Callable[[Any], Array]:
    """Return what makes scores, shape (m,), of what ``train`` returned."""
    if directions is None:
        return lambda found: _checked(found, canaries)
    wanted = _rows(directions, canaries)
    lengths = np.linalg.norm(wanted, axis=1, keepdims=True)
    # Cosines need lengths, and a zero row has no direction.
    if not np.isfinite(wanted).all() or not lengths.all():
        refuse("directions", "a row", "be finite and not zero")
    units = wanted / lengths
    return lambda found: _cosines(units, found, observer)


def _checked(found: Any, canaries: int) -> Array:
    scores = np.asarray(found, dtype=np.float64)
    if scores.shape != (canaries,):
        way_out = "pass directions= where train returns what was released"
        refuse("train's scores", scores.shape, f"have shape ({canaries},)", way_out)
    # NaN would sort last and count as the surest guess.
    if np.isnan(scores).any():
        refuse("train's scores", "NaN", "be numbers")
    return scores


def _cosines(units: Array, found: Any, observer: Observer) -> Array:
    """Return each canary's cosine with the releases that are seen, summed over them."""
    releases = np.atleast_2d(np.asarray(found, dtype=np.float64))
    if releases.ndim != 2 or releases.shape[1] != units.shape[1]:
        refuse("train's releases", releases.shape, f"have shape (rounds, {units.shape[1]})")
    if not np.isfinite(releases).all():
        refuse("train's releases", "an entry", "be finite")
    if observer is Observer.FINAL:
        # The observer of a claim decides what an attack may look at.
        releases = releases[-1:]
    # A release of zeros has no direction: it adds nothing to any score.
    lengths = np.maximum(np.linalg.norm(releases, axis=1, keepdims=True), np.finfo(float).tiny)
    return np.asarray(units @ (releases / lengths).sum(axis=0), dtype=np.float64)


def _play(
    train: Train,
    score: Callable[[Any], Array],
    shape: tuple[int, int],
    source: np.random.Generator,
    jobs: int,
) -> Seen:
    """Throw the coins and run ``train``, each run with a generator of its own."""
    if not callable(train):
        refuse("train", type(train).__name__, "be a function of (included, generator)")
    # Fair and independent coins are what the theorems ask for.
    coins = source.integers(0, 2, size=shape).astype(np.bool_)
    # A generator a run: results do not depend on how many run at once.
    streams = source.spawn(shape[0])

    def once(number: int) -> Array:
        return score(train(coins[number].copy(), streams[number]))

    return Seen(coins, np.stack(_each(once, shape[0], jobs)))


def _each(once: Callable[[int], Array], times: int, jobs: int) -> Sequence[Array]:
    if jobs == 1:
        return [once(number) for number in range(times)]
    try:
        # Needed for parallel runs only, so it is no dependency.
        import joblib
    except ImportError:
        refuse("jobs", jobs, "be 1 where joblib is not installed", "pip install joblib")
    found: list[Array] = joblib.Parallel(n_jobs=jobs)(joblib.delayed(once)(n) for n in range(times))
    return found


# ---- tests


def _numbers(canaries: int, guesses: int | None) -> list[int]:
    """Return how many guesses are made, once for each test; fixed before the run."""
    if guesses is None:
        # A set, since few canaries make several shares the same number.
        return sorted({max(1, round(share * canaries)) for share in SHARES})
    number = integer(1, guesses=guesses)
    if number > canaries:
        refuse("guesses", number, f"be at most the {canaries} canaries of all runs")
    return [number]


def _tries(seen: Seen, guesses: int | None) -> tuple[Coins, dict[int, int]]:
    """Guess that the canaries with the largest scores are in, and those with the smallest not.

    Returns:
        The coins by rising score, and how many guesses were right for each number of them.
    """
    # Stable, so that ties are broken by position, which is independent of the coins.
    coins = seen.coins.reshape(-1)[np.argsort(seen.scores.reshape(-1), kind="stable")]
    found = {}
    for number in _numbers(len(coins), guesses):
        # Half of the guesses say out: an attack that is only good at one side still counts.
        out = number // 2
        found[number] = int(coins[len(coins) - (number - out) :].sum()) + int((~coins[:out]).sum())
    return coins, found


def _largest(test: _Test, refuted: Callable[..., float]) -> Answer:
    """Return the largest number that is refuted, of all numbers of guesses."""
    coins, tries = _tries(test.seen, test.guesses)
    # Every number that is tried is a test, and the level is for all of them.
    share = test.level / len(tries)
    return max(
        Answer(refuted(right, number, len(coins), level=share), number, right)
        for number, right in tries.items()
    )


def _by_rates(test: _Test) -> Attack:
    """Choose a threshold and a side on the first half of the runs, test them on the second."""
    runs, each = test.seen.coins.shape
    if each != 1 or runs < 8:
        refuse("canaries, runs", (each, runs), "be 1 and at least 8 for the estimator 'rates'")
    half = runs // 2
    coins, scores = test.seen.coins[:, 0], test.seen.scores[:, 0]
    # Marks of the first half only: a threshold chosen on the second would break its level.
    marks = np.unique(scores[:half])
    choices = [(mark, side) for mark in marks for side in (True, False)]

    def on(rows: slice, choice: tuple[float, bool]) -> Answer:
        mark, side = choice
        says = (scores[rows] >= mark) if side else (scores[rows] <= mark)
        return _of_rates(says, coins[rows] == side, test)

    best = max(choices, key=lambda choice: on(slice(0, half), choice).lower)
    found = on(slice(half, runs), best)
    return _found(test, found, found.lower, guessing.THEOREM_RATES)


def _of_rates(says: Coins, there: Coins, test: _Test) -> Answer:
    """Return what the rates of hits and of false alarms say."""
    hits, misses = int((says & there).sum()), int((says & ~there).sum())
    totals = int(there.sum()), int((~there).sum())
    # A half without any canary there, or none away, has no rate.
    if not min(totals):
        return Answer(0.0, hits + misses, hits)
    rates = (hits, totals[0]), (misses, totals[1])
    lower = guessing.refuted_by_rates(*rates, test.certified.delta, test.level)
    return Answer(lower, hits + misses, hits)


_ESTIMATORS: Mapping[Estimator, Callable[[_Test], Attack]] = {
    Estimator.GUESSES: _by_guesses,
    Estimator.RATES: _by_rates,
    Estimator.GDP: _by_curves,
}
