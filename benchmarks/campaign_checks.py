"""Checks of one setting: every account, way and model is compared with every other."""

from __future__ import annotations

import math
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import campaign_ceilings
import campaign_worlds as worlds
import numpy as np
from campaign_settings import Draw, Node, Setting, gaussian

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.errors import FedPrivacyError, UnsupportedCombination
from fedprivacy.loss import Composed, Curve, Side, clock, kinds
from fedprivacy.loss.curves.between import readings
from fedprivacy.loss.curves.components import trim
from fedprivacy.loss.curves.lattice import TooLarge
from fedprivacy.loss.moments.contour import NoMoments
from fedprivacy.loss.strategies import direct, inversion, queries, search, tail_splitting
from fedprivacy.privacy_loss import PrivacyLoss

_DEADLINE = 0.3
_LIMIT = 1.5
"""CPU seconds of a call: a longer call is stopped, and counted."""
_WHOLE = 5.0
"""CPU seconds for a setting."""
_CALLS = _LIMIT / _WHOLE


def give_up_after(seconds: float) -> None:
    """Set the CPU seconds of a setting, and the share of each of its calls."""
    global _LIMIT, _WHOLE
    _WHOLE, _LIMIT = seconds, _CALLS * seconds


class TimeUp(BaseException):
    """A call took too long."""


class Found(NamedTuple):
    """A contradiction, and the code that reproduces it."""

    setting: str
    check: str
    detail: str
    snippet: str


@dataclass
class Report:
    """Results of some settings: violations, and the number of each kind of check."""

    found: list[Found] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)

    def add(self, other: Report) -> None:
        self.found += other.found
        self.counts += other.counts
        self.refusals += other.refusals


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return the result of a call; raise TimeUp after some CPU seconds. Keep an outer alarm."""

    def stop(*_: Any) -> None:
        raise TimeUp

    def swallowed(what: Any) -> None:
        if what.exc_type is not TimeUp:
            hook(what)

    before = signal.signal(signal.SIGPROF, stop)
    # A finalizer, or a callback of the collector, swallows an exception raised in it. The alarm
    # then comes again a second later, and the lost exception is not reported.
    hook, sys.unraisablehook = sys.unraisablehook, swallowed
    left, every = signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    begun = time.process_time()
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
        sys.unraisablehook = hook
        if left:
            rest = max(left - (time.process_time() - begun), 0.01)
            signal.setitimer(signal.ITIMER_PROF, rest, every)


class Checker:
    """Checks one setting, and keeps contradictions."""

    def __init__(self, setting: Setting, report: Report) -> None:
        self.setting, self.report = setting, report
        self.rng = random.Random(setting.name)

    # Queries -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run every check that this setting has time for."""
        self.report.counts["settings"] += 1
        try:
            loss = self._loss(self.setting.run)
        except FedPrivacyError as problem:
            self.report.refusals[f"{type(problem).__name__}: {_start(problem)}"] += 1
            return
        self.report.counts["accounted"] += 1
        bound = self._epsilon(loss, self.setting.delta)
        if bound is None:
            return
        self._accounts(loss, bound, "epsilon")
        self._witness(loss, bound)
        self._models(bound)
        self._ceilings(bound)
        if self.rng.random() < 0.4:
            self._ways(loss, bound)
        for check in self.rng.sample(_MORE, 2):
            self._guarded(check.__name__, lambda check=check: check(self, loss, bound))

    def _loss(self, node: Node, **facts: str) -> PrivacyLoss:
        run = eval(str(node), {"fp": fp})
        adjacency = facts.get("adjacency", self.setting.adjacency)
        return run.privacy_loss(adjacency, facts.get("observer", self.setting.observer))

    def _epsilon(self, loss: PrivacyLoss, delta: float, name: str = "pld") -> Any:
        return self._asked(loss, name, lambda account: account.epsilon(delta))

    def _delta(self, loss: PrivacyLoss, epsilon: float, name: str = "pld") -> Any:
        return self._asked(loss, name, lambda account: account.delta(epsilon))

    def _asked(self, loss: PrivacyLoss, name: str, ask: Callable[[Any], Any]) -> Any:
        """Return the Bound, or None after the time limit; any other result is a violation."""

        def call() -> Any:
            account = ACCOUNTANTS[name](tolerance=self.setting.tolerance, deadline=_DEADLINE)
            return ask(account.compose(loss))

        bound = self._guarded(f"accountant {name}", call)
        if bound is not None:
            self.report.counts[f"answers, {name}"] += 1
            low, high = bound.resolution
            ends = (0.0, bound.lower, low, high, bound.upper)
            ordered = bound.lower <= low <= high == bound.upper and bound.lower >= 0.0
            if any(math.isnan(end) for end in ends) or not ordered:
                self._violated(f"{name}: ends in order", f"{bound}, resolution {bound.resolution}")
        return bound

    def _guarded(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return within(_LIMIT, call)
        except TimeUp:
            self.report.counts[f"given up: {what}"] += 1
        except UnsupportedCombination as problem:
            self.report.refusals[f"later, {what}: {_start(problem)}"] += 1
        except Exception as problem:
            self._violated(f"{what} raised", f"{type(problem).__name__}: {problem}"[:300])
        return None

    def _violated(self, check: str, detail: str, snippet: str = "") -> None:
        code = snippet or self.setting.snippet()
        self.report.found.append(Found(self.setting.name, check, detail, code))

    def _at_most(self, check: str, low: float, high: float, words: str, snippet: str = "") -> None:
        """Check that a certified lower end is not above a certified upper end."""
        self.report.counts[f"compared: {check}"] += 1
        if not low <= high:
            self._violated(check, f"{words}: {low!r} > {high!r}", snippet)

    # Checks --------------------------------------------------------------------------------------

    def _accounts(self, loss: PrivacyLoss, bound: Any, quantity: str) -> None:
        """Check every other accountant's upper end against the certified lower end."""
        low = _certified(loss, bound)
        for name in ("rdp", "advanced"):
            ask = self._epsilon if quantity == "epsilon" else self._delta
            other = ask(loss, bound.given, name)
            if other is not None:
                words = f"{quantity} at {bound.given!r}, pld from below and {name}"
                code = self.setting.snippet(f"accountant={name!r}")
                self._at_most(f"{name} above pld's lower end", low, other.upper, words, code)
                self._at_most(f"{name} lower end", other.lower, bound.upper, words, code)

    def _witness(self, loss: PrivacyLoss, bound: Any) -> None:
        """Check that the attained pair, accounted separately, is between both ends."""
        if loss.witness is None or loss.witness.curve == loss.curve:
            return
        ends = []
        for curve in dict.fromkeys(kinds(loss.witness.curve)):
            alone = PrivacyLoss(curve, loss.facts)
            found = self._epsilon(alone, bound.given)
            if found is None:
                return
            ends.append(found)
        most = max(end.resolution[0] for end in ends)
        highest = max(end.upper for end in ends)
        self._at_most("witness below the upper end", most, bound.upper, "the witness alone")
        self._at_most("lower end is the witness's", bound.lower, highest, "the witness alone")

    def _models(self, bound: Any, at_epsilon: bool = True) -> None:
        """Check the bound against data sets, by the campaign's own arithmetic."""
        upper, lower = bound.upper, bound.lower
        for model in worlds.shown(self.setting):
            ends = self._ends(model, upper if at_epsilon else bound.given)
            if ends is not None:
                words = f"{model.name} show delta at epsilon {upper!r}"
                most = bound.given if at_epsilon else upper
                self._at_most("upper end above what data sets show", ends[0], most, words)
                self._exactly(model, bound, at_epsilon)
        for model in worlds.named(self.setting, bound.witness) if lower > 0.0 else ():
            ends = self._ends(model, lower if at_epsilon else bound.given)
            if ends is not None:
                words = f"delta at the lower end {lower!r} and by {model.name}"
                least = bound.given if at_epsilon else lower
                self._at_most("lower end attained", least, ends[1], words)

    def _exactly(self, model: worlds.Model, bound: Any, at_epsilon: bool) -> None:
        """Check both ends against a stated pair, whose number is known as the worst of its kind."""
        low = 0.0 if self.setting.observer == "final" else bound.resolution[0]
        if model.name != "randomised responses" or not at_epsilon or low == 0.0:
            return
        ends = self._ends(model, low)
        if ends is not None:
            self._at_most("stated pair from below", bound.given, ends[1], f"delta at {low!r}")

    def _ends(self, model: worlds.Model, epsilon: float) -> Any:
        if not math.isfinite(epsilon):
            return None
        try:
            ends = within(_LIMIT, lambda: model.ends(epsilon))
        except (TimeUp, np.linalg.LinAlgError):
            ends = None
        self.report.counts["models" if ends else "models without a sharp number"] += 1
        return ends

    def _ceilings(self, bound: Any) -> None:
        for why, most in campaign_ceilings.ceilings(self.setting):
            self._at_most("lower end below what is possible", bound.lower, most, why)

    def _ways(self, loss: PrivacyLoss, bound: Any) -> None:
        """Check every way of the PLD accountant, forced: every low end is below every high end."""
        curves = list(dict.fromkeys(kinds(loss.curve)))
        curve = self.rng.choice(curves)
        turned = self.rng.choice([curve, curve.swap()])
        # Several curves may dominate the same run, each with other ends.
        several = readings(turned)
        turned, ends = self.rng.choice(several), []
        for name, way in brackets(turned, bound.given, self.setting.tolerance):
            try:
                found = within(_LIMIT / 2, way)
            except TimeUp:
                self.report.counts[f"given up: way {name}"] += 1
                continue
            except (NoMoments, TooLarge):
                self.report.counts[f"not served: way {name}"] += 1
                continue
            except Exception as problem:
                self._violated(f"way {name} raised", f"{type(problem).__name__}: {problem}"[:300])
                continue
            self.report.counts[f"way {name}"] += 1
            ends.append((name, *found))
        for one, low, _ in ends:
            for other, _, high in ends:
                words = (
                    f"low of {one}, high of {other}, {'swapped' if turned != curve else 'as is'}"
                )
                self._at_most("ways meet", low, high, words)
        floor = max((low for _, low, _ in ends), default=0.0)
        if "Renyi" not in repr(curve) and len(several) == 1:
            self._at_most("ways and the bound", floor, bound.upper, "a way from below")


def _start(problem: Exception) -> str:
    return " ".join(str(problem).split()[:7])


def _certified(loss: PrivacyLoss, bound: Any) -> float:
    """Return the lower end that every account of the curve must respect.

    Moments and tails of stated Renyi divergences do not belong to one pair. Of several pairs inside
    a mixture the first has the tails, and any the moments.
    """
    several = any(name in repr(loss.curve) for name in ("Renyi", "LeastOf"))
    return bound.lower if several else bound.resolution[0]


def _in_time(ask: Callable[[], Any]) -> Callable[[], Any]:
    def asked() -> Any:
        try:
            with clock.time_limit(_DEADLINE):
                return ask()
        except clock.LateError as problem:
            raise NoMoments from problem

    return asked


def brackets(
    curve: Curve, delta: float, tolerance: float
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield name and call of every method that brackets one orientation's epsilon."""
    trimmed, slack, reach = trim(curve, queries.SLACK * tolerance * delta)
    if math.isfinite(reach):  # a move within Q counts only up to this point
        trimmed, slack = curve, 0.0
    yield "inversion", lambda: inversion.epsilon_interval(trimmed, delta, tolerance, slack)
    whole = queries.EpsilonAt.of(curve, delta, tolerance, 0.0)
    if "Renyi" not in repr(curve):  # its moments, evaluated late, are not the pair's
        yield "whole", _in_time(lambda: search.interval(whole)[:2])
    if not isinstance(curve, Composed):
        yield "tails", lambda: [direct.epsilon(curve, delta, side) for side in (Side.DOWN, Side.UP)]
        return
    yield "cut", _in_time(lambda: tail_splitting.epsilon_interval(curve, delta, tolerance)[:2])
    step = min(16.0 * math.sqrt(tolerance / (4.0 * curve.count)), 1.0)
    for name, share in (("coarse lattice", 1.0), ("fine lattice", 0.13)):
        yield name, lambda share=share: _lattice(curve, delta, share * step)


def _lattice(curve: Composed, delta: float, step: float) -> tuple[float, float]:
    for _ in range(6):
        try:
            both = [curve.composition(step, side, 1e-7 * delta) for side in (Side.DOWN, Side.UP)]
            if max(one.points for one in both) > 1 << 18:
                raise TooLarge
            low, high = (one.epsilon(delta) for one in both)
        except TooLarge:
            step *= 4.0
            continue
        return low, high
    raise TooLarge


# Checks of some settings -------------------------------------------------------------------------


def delta_rises(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check that epsilon falls as delta rises."""
    more = min(bound.given * 10.0 ** self.rng.uniform(0.01, 3.0), 0.99999)
    other = self._epsilon(loss, more) if more > bound.given else None
    if other is not None:
        words = f"epsilon at delta {more!r} from below and at {bound.given!r}"
        self._at_most("falls with delta", other.resolution[0], bound.upper, words)


def more_rounds(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check that more rounds lose more."""
    more = Node("repeat", {"times": self.rng.choice([2, 3, 10])}, (self.setting.run,))
    other = self._epsilon(self._loss(more), bound.given)
    if other is not None:
        words = f"a run and {more.values['times']} of it"
        self._at_most("rises with rounds", _certified(loss, bound), other.upper, words)


def more_noise(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check that more noise loses less."""
    factor = self.rng.choice([1.001, 1.1, 2.0])
    quieter = self._loss(noisier(self.setting.run, factor))
    other = self._epsilon(quieter, bound.given)
    if other is not None:
        words = f"{factor} times the noise, and the noise"
        code = replace(self.setting, run=noisier(self.setting.run, factor)).snippet()
        self._at_most("falls with noise", _certified(quieter, other), bound.upper, words, code)


_LOUDER = {
    "noise_multiplier": 1.0,
    "temperature": 2.0,
    "noise_std": 1.0,
    "noise_scale": 1.0,
    "gradient_noise_multiplier": 1.0,
    "standard_deviation": 1.0,
    "noise_parameter": -1.0,
    "mu": -1.0,
    "rho": -1.0,
    "xi": -1.0,
}


def noisier(node: Node, factor: float) -> Node:
    """Return the same mechanism with more noise (or a stronger guarantee)."""
    values = dict(node.values)
    for name, power in _LOUDER.items():
        if name in values:
            values[name] = values[name] * factor**power
    for name in ("guarantees", "divergences"):
        if name in values and name == "guarantees":
            values[name] = tuple((e / factor, d) for e, d in values[name])
        elif name in values:
            values[name] = tuple((a, r / factor) for a, r in values[name])
    return Node(node.kind, values, tuple(noisier(part, factor) for part in node.inside))


def server_sees_more(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check that an observer who sees more loses no less, for every pair of the three observers."""
    seen = self.setting.observer
    for other in ("aggregate", "server"):
        if seen == other or (seen, other) == ("server", "aggregate"):
            continue
        with suppress(UnsupportedCombination):
            more = self._epsilon(self._loss(self.setting.run, observer=other), bound.given)
            if more is not None:
                words = f"{seen}'s lower end and {other}'s upper"
                self._at_most("observers in order", bound.lower, more.upper, words)


def replacing_is_more(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check that replace_one loses more: a unit that sends zeros is a valid replacement."""
    if self.setting.adjacency == "add_remove" or '"adjacency"' in str(self.setting.run):
        return
    both = []
    for adjacency in ("zero_out", "replace_one"):
        with suppress(UnsupportedCombination):
            both.append(
                self._epsilon(self._loss(self.setting.run, adjacency=adjacency), bound.given)
            )
    if len(both) == 2 and None not in both:
        words = "zero_out's lower end and replace_one's upper"
        self._at_most("adjacencies in order", both[0].lower, both[1].upper, words)


def sum_is_more(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check that a sum loses at least as much as its part."""
    other = gaussian(Draw(self.setting.name))
    other.values["unit"] = None
    whole = self._loss(Node("sum", {}, (self.setting.run, other)))
    if self.setting.observer == "final":
        return
    both = self._epsilon(whole, bound.given)
    if both is not None:
        words = f"a run, and the run followed by {other}"
        self._at_most("a sum is more", _certified(loss, bound), both.upper, words)


def there_and_back(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check delta at the ends of epsilon."""
    if not math.isfinite(bound.upper):
        return
    at_upper = self._delta(loss, bound.upper)
    if at_upper is not None:
        words = f"delta at {bound.upper!r} from below"
        self._at_most("there and back, up", at_upper.resolution[0], bound.given, words)
    low = bound.resolution[0]
    at_low = self._delta(loss, low) if low > 0.0 else None
    if at_low is not None:
        words = f"delta at {low!r} from above"
        self._at_most("there and back, down", bound.given, at_low.upper, words)


def asked_for_delta(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check accountants and models for delta at an epsilon."""
    near = self.rng.random() < 0.7 and 0.0 < bound.upper < 1e6
    epsilon = bound.upper * self.rng.uniform(0.3, 1.2) if near else self.setting.epsilon
    found = self._delta(loss, epsilon)
    if found is not None:
        self._accounts(loss, found, "delta")
        self._models(found, at_epsilon=False)


def counted_alike(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check that ``compose(m, n)`` is n times ``compose(m)``, and that ``*`` is associative."""
    n = self.rng.randint(2, 5)
    ends = []
    for single in (False, True):
        account = ACCOUNTANTS["pld"](tolerance=0.1, deadline=0.2)
        for _ in range(n if single else 1):
            account.compose(loss, 1 if single else n)
        ends.append(account.loss.curve)
    self.report.counts["compared: counted alike"] += 1
    twice = Node("repeat", {"times": n}, (Node("repeat", {"times": 3}, (self.setting.run,)),))
    once = Node("repeat", {"times": 3 * n}, (self.setting.run,))
    both = [self._loss(node).curve for node in (twice, once)]
    if ends[0] != ends[1] or both[0] != both[1]:
        self._violated("counted alike", f"{n} times one, and one {n} times")


def same_cohort(self: Checker, loss: PrivacyLoss, bound: Any) -> None:
    """Check that two descriptions of sampling with the client as unit agree."""
    node, _ = worlds.last(self.setting.run)
    base = (*worlds.SUMS, *worlds.STATED)
    if node.kind != "in_cohort" or not worlds.is_client(node) or node.inside[0].kind not in base:
        return
    as_sampled = _with_kind(self.setting.run, "sampled")
    other = self._epsilon(self._loss(as_sampled), bound.given)
    if other is not None:
        words = "clients in a cohort, and clients sampled"
        self._at_most("clients in a cohort", bound.lower, other.upper, words)
        self._at_most("clients sampled", other.lower, bound.upper, words)


def _with_kind(node: Node, kind: str) -> Node:
    if node.kind == "in_cohort":
        return replace(node, kind=kind)
    return replace(node, inside=tuple(_with_kind(part, kind) for part in node.inside))


_MORE = (
    delta_rises,
    more_rounds,
    more_noise,
    server_sees_more,
    replacing_is_more,
    sum_is_more,
    there_and_back,
    asked_for_delta,
    counted_alike,
    same_cohort,
)


def check(setting: Setting) -> Report:
    """Run every check of one setting; contradictions are in the report."""
    report = Report()
    try:
        within(_WHOLE, Checker(setting, report).run)
    except TimeUp:
        report.counts["given up: setting"] += 1
    return report
