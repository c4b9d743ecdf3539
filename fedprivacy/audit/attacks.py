"""Attacks: experiments that give a lower bound on epsilon, with an error rate proved by a theorem.

A certified epsilon is a limit that no attack can exceed. An attack shows a level that at least one
attacker reaches. If an attack exceeds the certified number, the mechanism that ran is not the one
that was accounted.
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
    AttackSettings,
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
"""Default shares of the canaries that are guessed. The level is split over them."""

_COINS = "flipping one entry of included changes the data by one step of the adjacency"
_FRAME = "scores depend on the observer's view and on canaries that are independent of the coins"
_GAUSSIAN = (
    "lower applies to epsilon only if the worst-case pair is Gaussian; the rejection of mu-GDP "
    "does not need this condition"
)
_APART = "runs are independent: train draws all randomness from the generator, or anew in each run"


class Outcome(StrEnum):
    """What an attack says about a certified number."""

    CONSISTENT = "CONSISTENT"
    """The lower end is at most the certified upper end: the claim is neither refuted nor proved."""
    BUG_ALARM = "BUG ALARM"
    """The lower end is above the certified upper end: another mechanism ran."""
    NO_CLAIM = "NO CLAIM"
    """No certified number was given to compare with."""


class Estimator(StrEnum):
    """How the successes of an attack are turned into an epsilon."""

    GUESSES = "guesses"
    """Many canaries in each run (one run is enough): theorem A1."""
    RATES = "rates"
    """One canary in each run, many runs: theorem A2. The first half of the runs chooses the
    threshold.
    """
    GDP = "gdp"
    """Guesses compared with Gaussian trade-off curves: theorem A3. It has more power in one run.
    Its lower end applies to epsilon itself only if the worst-case pair is Gaussian.
    """


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A lower end of epsilon, measured by an experiment.

    Attributes:
        lower: lower end of epsilon. It is wrong with probability at most ``level``.
        upper_certified: the certified upper end of the run; None without a certificate.
        verdict: whether the two agree.
        delta: the delta that belongs to epsilon.
        level: P[lower > true epsilon] is at most this.
        observer: what the attack could see.
        guesses: number of guesses (or claims) in the deciding test.
        correct: number of correct guesses.
        canaries: number of coins, over all runs.
        runs: number of calls of ``train``.
        theorem: the theorem that proves the error rate.
        assumptions: conditions of the theorem that cannot be checked from outside.
        mu: the mechanism is not mu-GDP at this mu; this is wrong with probability at most
            ``level``. None if the estimator does not test mu.
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
            # A refuted mu bounds epsilon only if the worst-case pair is Gaussian. No experiment
            # shows that.
            found = (
                f"not {shown(self.mu, 6, ROUND_FLOOR)}-GDP; if the worst-case pair is "
                f"Gaussian, {found}"
            )
        return (
            f"{self.verdict}: {found}; "
            f"{self.correct} of {self.guesses} guesses right, {self.canaries} canaries in "
            f"{self.runs} run{'' if self.runs == 1 else 's'}, {self.observer}; wrong with "
            f"probability at most {exactly(self.level)}"
        )


class AttackScores(NamedTuple):
    """Coins and scores of all runs, each of shape (runs, canaries)."""

    coins: Coins
    scores: Array


class TestResult(NamedTuple):
    """The result of one test, about epsilon or about mu."""

    lower: float
    guesses: int
    correct: int


class CertifiedClaim(NamedTuple):
    """The certified epsilon at delta, and mu if known. None means not certified."""

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
    A3 ("gdp"). This holds for every mechanism, under ``Attack.assumptions``. A small lower end can
    come from a weak attack. It is no evidence of privacy.

    Args:
        train: a function, a loop, or the name of a method.
            A function gets ``included``, shape (canaries,), one fair coin per canary, and a
            generator. It returns scores, shape (canaries,); a larger score means that the canary is
            more likely in the data. With ``directions`` it returns the releases instead, shape (d,)
            or (rounds, d).
            A loop of federated averaging needs ``data`` and ``rounds``. Its first clients are the
            canaries. The claim is its certified epsilon under zero_out
            (``canaries.client_canaries``).
            A name is one that ``fedprivacy train --method`` takes. The attack then plants crafted
            clients in the loop of that method. If the privacy unit is a record, it plants records
            with one of two labels. The claim is the certified epsilon of that loop.
        canaries: number of canaries in every run.
        observer: "aggregate" and "server" use every release, "final" only the last one.
        level: probability of a lower end above the truth, in (0, 1).
        delta: the delta of epsilon. None takes that of the claim, or 1e-5 without a claim.
        runs: number of calls of ``train``. The canaries of all runs count together. 1 is the
            one-run audit.
        claim: the certified value: a Bound, an epsilon, or the mechanism that should have run.
        adjacency: required if ``claim`` is a mechanism.
        directions: shape (canaries, d): the vector that each canary adds. The score of a canary is
            the sum of its cosines with the releases that are seen. With a loop, crafted clients
            send these vectors, far above the clip norm; "random" draws them; None uses the updates
            of the clients.
        data: data of a loop. With a name: also "digits" (the default), "fashion-mnist" or a file.
        rounds: number of rounds of a loop.
        settings: with a name: the settings of the method, for example ``{"noise_multiplier":
            2.0}``. If the setting that determines privacy is missing, it is calibrated to epsilon
            4.
        estimator: "guesses"; "gdp" for more power in one run, under the last of the assumptions; or
            "rates" for one canary per run and at least 8 runs.
        guesses: number of guesses over all runs. None tries three numbers, at a third of the level
            each.
        generator: None for randomness from the operating system.
        jobs: number of parallel runs, by joblib.

    Raises:
            ParameterError: if a value is out of range, or scores have a wrong shape or are not
                finite.

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
    options = AttackSettings(each, rounds, at, seer, source, data, settings or {})
    if settings is not None and not isinstance(train, str):
        refuse("settings", settings, "be left out", "they configure a named method")
    subject = _subject(train, directions, options)
    # The claim is the account of the attacked loop unless the caller gives another one.
    if claim is None:
        claim, adjacency = subject.claim()
    certified = _claimed(claim, delta, adjacency, seer, way is Estimator.GDP)
    score = _scorer(subject.directions, each, seer)
    seen = _play(subject.train, score, (times, each), source, jobs)
    test = _EstimatorInput(certified, seen, chance, seer, guesses)
    return _ESTIMATORS[way](test)


class _EstimatorInput(NamedTuple):
    """The input of an estimator."""

    certified: CertifiedClaim
    seen: AttackScores
    level: float
    observer: Observer
    guesses: int | None


def _found(test: _EstimatorInput, found: TestResult, lower: float, theorem: str) -> Attack:
    """Return the result of a test on epsilon as an attack."""
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


def _by_guesses(test: _EstimatorInput) -> Attack:
    """Return the largest epsilon that the guesses refute."""
    found = _largest(test, partial(guessing.refuted, delta=test.certified.delta))
    return _found(test, found, found.lower, guessing.THEOREM_GUESSES)


def _by_curves(test: _EstimatorInput) -> Attack:
    """Return the attack for a lower end of mu; its epsilon holds for Gaussian pairs."""
    found = _largest(test, guessing.refuted_mu)
    delta, lower = test.certified.delta, 0.0
    # A mu of 0 is no refutation, and its noise would be infinite.
    if found.lower:
        at_least = Gaussian(noise_multiplier=1.0 / found.lower)
        lower = epsilon(at_least, delta=delta, adjacency=Adjacency.ZERO_OUT).lower
    attack_found = _found(test, found, lower, guessing.THEOREM_CURVE)
    # Mu is compared with mu. Epsilons are comparable only if the worst-case pair is Gaussian.
    verdict = _verdict(found.lower, test.certified.mu)
    return replace(
        attack_found,
        verdict=verdict,
        mu=found.lower,
        assumptions=(*attack_found.assumptions, _GAUSSIAN),
    )


class _AttackTarget(NamedTuple):
    """The attacked function, the vector that each canary adds, and the default claim."""

    train: Train
    directions: Any
    claim: Callable[[], tuple[Mechanism | None, Adjacency | None]]


def _subject(train: Train | str | Any, directions: Any, options: AttackSettings) -> _AttackTarget:
    """Return the attacked function or the loop with canaries in it."""
    if isinstance(train, str):
        rounds, delta = integer(1, rounds=options.rounds), closed_unit(delta=options.delta)
        loop = _named(train, directions, options._replace(rounds=rounds, delta=delta))
        return _AttackTarget(loop.train, loop.directions, lambda: (loop.claim, loop.adjacency))
    if not is_loop(train):
        return _AttackTarget(train, directions, lambda: (None, None))
    return _AttackTarget(
        *_of_loop(train, directions, options),
        lambda: (loop_mechanism(train, integer(1, rounds=options.rounds)), Adjacency.ZERO_OUT),
    )


def _named(name: str, directions: Any, options: AttackSettings) -> Planted:
    """Return the loop of a named method, with canaries in it."""
    if directions is not None:
        refuse("directions", directions, f"be left out with the method {name!r}", "pass the loop")
    return plant_named(name, options)


def _of_loop(loop: Any, directions: Any, options: AttackSettings) -> tuple[Train, Any]:
    """Return a ``train`` function for a loop, and the directions of its clients."""
    canaries, rounds, data = options.canaries, options.rounds, options.data
    if directions is None:
        return client_canaries(loop, data, canaries, rounds)
    if isinstance(directions, str):
        if directions != "random":
            refuse("directions", directions, "be 'random' or an array with one row per canary")
        # The directions must not depend on the coins. Otherwise scores would be no evidence.
        directions = random_directions(canaries, int(loop.flat.dimension), options.generator)
    wanted = _rows(directions, canaries)
    return crafted_canaries(loop, data, wanted, rounds), wanted


def _rows(directions: Any, canaries: int) -> Array:
    wanted = np.asarray(directions, dtype=np.float64)
    if wanted.ndim != 2 or len(wanted) != canaries:
        refuse("directions", wanted.shape, f"have shape ({canaries}, d), with one row per canary")
    return wanted


def plan(canaries: int, delta: float, level: float = 0.05, guesses: int | None = None) -> float:
    """Return the largest epsilon that an attack with this many canaries could show.

    This is the result if every guess is right. ``attack`` never returns more at the same
    ``guesses``.

    Args:
        canaries: number of canaries over all runs.
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
    # Each number of guesses is a separate test and gets its share of the level.
    return max(guessing.refuted(r, r, total, at, chance / len(tries)) for r in tries)


def _claimed(
    claim: Bound | Mechanism | float | None,
    delta: float | None,
    adjacency: Adjacency | str | None,
    observer: Observer,
    curve: bool,
) -> CertifiedClaim:
    if isinstance(claim, Bound):
        return CertifiedClaim(*_of_bound(claim, delta, observer))
    at = closed_unit(delta=1e-5 if delta is None else delta)
    if claim is None:
        return CertifiedClaim(None, at)
    if not isinstance(claim, Mechanism):
        return CertifiedClaim(_plain(claim), at)
    if adjacency is None:
        refuse(
            "adjacency", None, "be given if claim is a mechanism", "pass 'zero_out', for example"
        )
    seen: dict[str, Any] = {"adjacency": adjacency, "observer": observer}
    # One rate is enough, because mu bounds the whole curve.
    mu = attack_risk(claim, fpr=(0.01,), **seen).mu.upper if curve else None
    return CertifiedClaim(epsilon(claim, delta=at, **seen).upper, at, mu)


def _plain(claim: object) -> float:
    if not isinstance(claim, int | float) or isinstance(claim, bool) or not claim >= 0.0:
        refuse("claim", claim, "be a Bound, a mechanism or an epsilon of at least 0")
    return float(claim)


def _of_bound(claim: Bound, delta: float | None, observer: Observer) -> tuple[float, float]:
    # The attack refutes epsilons, not bounds on delta or on a risk.
    if claim.quantity != "epsilon":
        refuse("claim", claim.quantity, "be a bound on epsilon", "use fp.epsilon, not fp.delta")
    # Another delta has another epsilon, so a comparison across deltas would be meaningless.
    if delta is not None and delta != claim.given:
        refuse("delta", delta, f"equal the claim's, {claim.given}", "leave delta out")
    # A claim about the last release does not cover the other releases.
    if claim.observer is Observer.FINAL and observer is not Observer.FINAL:
        refuse(
            "observer",
            str(observer),
            "be 'final', as the claim's",
            "the claim covers no other observer",
        )
    return claim.upper, claim.given


def _verdict(lower: float, certified: float | None) -> Outcome:
    if certified is None:
        return Outcome.NO_CLAIM
    return Outcome.BUG_ALARM if lower > certified else Outcome.CONSISTENT


# ---- runs


def _scorer(directions: Any, canaries: int, observer: Observer) -> Callable[[Any], Array]:
    """Return the function that turns the result of ``train`` into scores, shape (canaries,)."""
    if directions is None:
        return lambda found: _checked(found, canaries)
    wanted = _rows(directions, canaries)
    lengths = np.linalg.norm(wanted, axis=1, keepdims=True)
    # Cosines need nonzero lengths: a zero row has no direction.
    if not np.isfinite(wanted).all() or not lengths.all():
        refuse("directions", "a row", "be finite and nonzero")
    units = wanted / lengths
    return lambda found: _cosines(units, found, observer)


def _checked(found: Any, canaries: int) -> Array:
    scores = np.asarray(found, dtype=np.float64)
    if scores.shape != (canaries,):
        way_out = "pass directions= if train returns the releases"
        refuse("train's scores", scores.shape, f"have shape ({canaries},)", way_out)
    # NaN would sort last and count as the surest guess.
    if np.isnan(scores).any():
        refuse("train's scores", "NaN", "be numbers")
    return scores


def _cosines(units: Array, found: Any, observer: Observer) -> Array:
    """Return the sum of each canary's cosines with the seen releases, shape (canaries,)."""
    releases = np.atleast_2d(np.asarray(found, dtype=np.float64))
    if releases.ndim != 2 or releases.shape[1] != units.shape[1]:
        refuse("train's releases", releases.shape, f"have shape (rounds, {units.shape[1]})")
    if not np.isfinite(releases).all():
        refuse("train's releases", "an entry", "be finite")
    if observer is Observer.FINAL:
        # The attack may use only what the observer of the claim sees.
        releases = releases[-1:]
    # A release of zeros has no direction and leaves every score unchanged.
    lengths = np.maximum(np.linalg.norm(releases, axis=1, keepdims=True), np.finfo(float).tiny)
    return np.asarray(units @ (releases / lengths).sum(axis=0), dtype=np.float64)


def _play(
    train: Train,
    score: Callable[[Any], Array],
    shape: tuple[int, int],
    source: np.random.Generator,
    jobs: int,
) -> AttackScores:
    """Draw the coins and run ``train``, with a separate generator for each run."""
    if not callable(train):
        refuse("train", type(train).__name__, "be a function of (included, generator)")
    # The theorems require fair and independent coins.
    coins = source.integers(0, 2, size=shape).astype(np.bool_)
    # With one generator per run, results do not depend on the number of parallel runs.
    streams = source.spawn(shape[0])

    def once(number: int) -> Array:
        return score(train(coins[number].copy(), streams[number]))

    return AttackScores(coins, np.stack(_each(once, shape[0], jobs)))


def _each(once: Callable[[int], Array], times: int, jobs: int) -> Sequence[Array]:
    if jobs == 1:
        return [once(number) for number in range(times)]
    try:
        # Only parallel runs need joblib, so it is not a dependency.
        import joblib
    except ImportError:
        refuse("jobs", jobs, "be 1 if joblib is not installed", "pip install joblib")
    found: list[Array] = joblib.Parallel(n_jobs=jobs)(joblib.delayed(once)(n) for n in range(times))
    return found


# ---- tests


def _numbers(canaries: int, guesses: int | None) -> list[int]:
    """Return the number of guesses of each test. The numbers are fixed before the run."""
    if guesses is None:
        # A set removes duplicates: with few canaries, several shares give the same number.
        return sorted({max(1, round(share * canaries)) for share in SHARES})
    number = integer(1, guesses=guesses)
    if number > canaries:
        refuse("guesses", number, f"be at most the {canaries} canaries of all runs")
    return [number]


def _tries(seen: AttackScores, guesses: int | None) -> tuple[Coins, dict[int, int]]:
    """Guess "in" for the canaries with the largest scores and "out" for those with the smallest.

    Returns:
        The coins in order of rising score, and the number of correct guesses for each number of
        guesses.
    """
    # A stable sort breaks ties by position, which is independent of the coins.
    coins = seen.coins.reshape(-1)[np.argsort(seen.scores.reshape(-1), kind="stable")]
    found = {}
    for number in _numbers(len(coins), guesses):
        # Half of the guesses are "out", so that an attack that is good on only one side still
        # counts.
        out = number // 2
        found[number] = int(coins[len(coins) - (number - out) :].sum()) + int((~coins[:out]).sum())
    return coins, found


def _largest(test: _EstimatorInput, refuted: Callable[..., float]) -> TestResult:
    """Return the answer with the largest refuted value, over all numbers of guesses."""
    coins, tries = _tries(test.seen, test.guesses)
    # Every number of guesses is a separate test. The level covers all of them together.
    share = test.level / len(tries)
    return max(
        TestResult(refuted(right, number, len(coins), level=share), number, right)
        for number, right in tries.items()
    )


def _by_rates(test: _EstimatorInput) -> Attack:
    """Choose a threshold and a side on the first half of the runs; test both on the second half."""
    runs, each = test.seen.coins.shape
    if each != 1 or runs < 8:
        refuse("canaries, runs", (each, runs), "be 1 and at least 8 for the estimator 'rates'")
    half = runs // 2
    coins, scores = test.seen.coins[:, 0], test.seen.scores[:, 0]
    # Thresholds come only from the first half. One chosen on the second half would break its level.
    marks = np.unique(scores[:half])
    choices = [(mark, side) for mark in marks for side in (True, False)]

    def on(rows: slice, choice: tuple[float, bool]) -> TestResult:
        mark, side = choice
        says = (scores[rows] >= mark) if side else (scores[rows] <= mark)
        return _of_rates(says, coins[rows] == side, test)

    best = max(choices, key=lambda choice: on(slice(0, half), choice).lower)
    found = on(slice(half, runs), best)
    return _found(test, found, found.lower, guessing.THEOREM_RATES)


def _of_rates(says: Coins, there: Coins, test: _EstimatorInput) -> TestResult:
    """Return the result of the true-positive and false-positive counts."""
    hits, misses = int((says & there).sum()), int((says & ~there).sum())
    totals = int(there.sum()), int((~there).sum())
    # Without any included or any excluded canary, one of the two rates does not exist.
    if not min(totals):
        return TestResult(0.0, hits + misses, hits)
    rates = (hits, totals[0]), (misses, totals[1])
    lower = guessing.refuted_by_rates(*rates, test.certified.delta, test.level)
    return TestResult(lower, hits + misses, hits)


_ESTIMATORS: Mapping[Estimator, Callable[[_EstimatorInput], Attack]] = {
    Estimator.GUESSES: _by_guesses,
    Estimator.RATES: _by_rates,
    Estimator.GDP: _by_curves,
}
