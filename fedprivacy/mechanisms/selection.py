"""Private choice of hyper-parameters: a random number of trials; only the best is released."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from ..errors import UnsupportedCombination, between, refuse, validate_fields
from ..loss import IDENTITY, AnyOf, Curve, Mix, RenyiAndPoints, RenyiPoints, kinds, stated_pair
from ..loss.curves.curve import orientations
from ..loss.curves.lattice import Array
from ..loss.curves.stated import MAX_EPSILON
from ..loss.strategies import queries, renyi, search
from ..privacy_loss import PrivacyLoss, Witness, merged, repeatable
from ..registry import alike, plain_fields, registered
from ..relations import Adjacency, Facts, Observer
from ..rounding import FEW, HUNDREDS, TENS, THOUSANDS, rounded_down, rounded_up
from ..sampling import Scheme
from .base import Mechanism, Several, check_not_nested, mechanisms_in
from .noise import drawn_from
from .noise_shares import noise_mismatch

Points = tuple[tuple[float, float], ...]

_ORDERS: tuple[float, ...] = tuple((1.0 + np.geomspace(1e-2, 1e4, 97)).tolist())
"""Orders of the base's divergences."""
_GRID = 128
"""Number of epsilons of the base's profile."""
_STRETCHES = 8
"""Parts of the grid with separate inversions, so that a failure at one end stays local."""
_DEPTH = 1e-30
"""Approximate smallest delta of the profile."""
_MORE = 1.0 + 1e-10
"""Covers rounding, and the excess of the mean of the drawn law over the stated mean."""
_ROUNDED = 1.0 + TENS
_MAX_MEAN = 1e12


class Trials(ABC):
    """A law of the number of trials, drawn independently of the data."""

    @property
    @abstractmethod
    def nothing(self) -> float:
        """Probability of no trial, and so of no output; rounded up."""

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> int:
        """Return a number of trials. It must stay as secret as the outputs that are not shown."""

    @property
    @abstractmethod
    def theorem(self) -> str:
        """Theorem for the Renyi divergences."""

    @abstractmethod
    def divergences(self, base: Points, profile: Points) -> Points:
        """Return (order, divergence) of the best output.

        Args:
            base: (order, divergence) of one trial, for both orders of any two neighbours.
            profile: (epsilon, delta) of one trial, also for both orders; epsilons increase from 0.
        """

    @abstractmethod
    def shift(self, profile: Points) -> float:
        """Return the log of an upper bound of f'(F) / f'(G), f the law's generating function.

        F and G are the probabilities, on two neighbours, that a trial is no better than some given
        output. With E K = f'(1) this is enough for the profile of the best output (T14).
        """

    @property
    @abstractmethod
    def most(self) -> float:
        """The mean, rounded up."""


@registered
@dataclass(frozen=True)
class PoissonTrials(Trials):
    """A Poisson number of trials; with probability exp(-mean) there is none, and no output.

    Args:
        mean: from 1e-6 to 1e12.

    Raises:
        ParameterError: a mean outside its range.
    """

    mean: float

    def __post_init__(self) -> None:
        validate_fields(self, between(1e-6, _MAX_MEAN), "mean")

    @property
    def nothing(self) -> float:
        """exp(-mean), rounded up."""
        return max(rounded_up(math.exp(-self.mean)), 1e-16)

    @property
    def most(self) -> float:
        """The mean, rounded up."""
        return self.mean * _MORE

    # T14 sharpens the published theorem.
    theorem = "Poisson number of trials: Papernot, Steinke (2022), Theorem 6, sharpened (T14)"

    def draw(self, generator: np.random.Generator) -> int:
        """Return a number of trials, 0 or more."""
        return int(drawn_from(generator).poisson(self.mean))

    def divergences(self, base: Points, profile: Points) -> Points:
        """T14: log(1 + mu e^((a-1) mu delta) (e^((a-1) eps) - 1)) / (a - 1).

        delta is the base's at log(1 + 1/(a-1)), computed by a chord of its profile, which is convex
        in e^epsilon.
        """
        # A slightly smaller epsilon needs a slightly larger delta: the safe side.
        at = rounded_down(np.array([1.0 / (a - 1.0) for a, _ in base]), TENS)
        grid = np.expm1([epsilon for epsilon, _ in profile])
        found = rounded_up(np.interp(at, grid, [delta for _, delta in profile]), THOUSANDS)
        return tuple(
            (a, self._divergence(a - 1.0, each, delta))
            for (a, each), delta in zip(base, found.tolist(), strict=True)
        )

    def _divergence(self, power: float, base: float, delta: float) -> float:
        moment = power * base * _ROUNDED
        if moment <= 0.0:
            return 0.0
        rise = moment if moment > 700.0 else math.log(math.expm1(moment))
        terms = (math.log(self.most), power * self.most * delta, rise)
        exponent = math.fsum(terms) + TENS * (1.0 + math.fsum(map(abs, terms)))
        return float(np.logaddexp(0.0, exponent)) / power * _ROUNDED

    def shift(self, profile: Points) -> float:
        """Return mean times the total variation: f'(F) / f'(G) = e^(mean (F - G))."""
        return self.most * profile[0][1]


@registered
@dataclass(frozen=True)
class TruncatedNegativeBinomial(Trials):
    """At least one trial; P(k trials) is proportional to (1-gamma)^k Gamma(k+shape) / k!.

    ``shape`` 1 is the geometric law, 0 the logarithmic law. A smaller shape with the same mean has
    a longer tail and costs less: about (2 + shape) times the epsilon of one trial.

    Args:
        mean: from 1 to 1e12; it determines gamma.
        shape: eta, from -0.9 to 1000.

    Raises:
        ParameterError: a mean or a shape outside its range.
    """

    mean: float
    shape: float

    def __post_init__(self) -> None:
        validate_fields(self, between(1.0, _MAX_MEAN), "mean")
        way_out = "use PoissonTrials(mean) for a Poisson number"
        validate_fields(self, partial(between(-0.9, 1e3), way_out), "shape")

    # There is at least one trial.
    nothing = 0.0

    @property
    def most(self) -> float:
        """The mean, rounded up."""
        return self.mean * _MORE

    theorem = "truncated negative binomial number of trials: Papernot, Steinke (2022), Theorem 2"

    @cached_property
    def stops(self) -> float:
        """log(1/gamma), rounded up."""
        return log_stops(self.mean, self.shape)

    def draw(self, generator: np.random.Generator) -> int:
        """Return a number of trials, 1 or more."""
        source = drawn_from(generator)
        if self.shape * self.stops <= math.log(2.0):
            return self._one_by_one(source.random())
        drawn = 0
        while drawn == 0:
            drawn = int(source.negative_binomial(self.shape, math.exp(-self.stops)))
        return drawn

    def _one_by_one(self, left: float) -> int:
        """Return the first number whose cumulative probability exceeds ``left``."""
        if self.stops == 0.0:
            return 1
        chance = math.exp(log_mean(self.stops, self.shape) - (1.0 + self.shape) * self.stops)
        number, goes_on = 1, -math.expm1(-self.stops)
        while left >= chance > 0.0:
            left -= chance
            chance *= goes_on * (number + self.shape) / (number + 1)
            number += 1
        return number

    def divergences(self, base: Points, profile: Points) -> Points:
        """Theorem 2: eps + (1 + eta) min_b ((1 - 1/b) eps_b + log(1/gamma)/b) + log(E K)/(a-1)."""
        del profile
        # At b = 1 the theorem's term is log(1/gamma) itself.
        least = min(self.stops, *((1.0 - 1.0 / b) * each + self.stops / b for b, each in base))
        more = (1.0 + self.shape) * least * _ROUNDED
        ends = math.log(self.mean) * (1.0 + FEW) + (1e-10 if self.mean > 1.0 else 0.0)
        return tuple((a, (each + more + ends / (a - 1.0)) * _ROUNDED) for a, each in base)

    def shift(self, profile: Points) -> float:
        """Return (1 + eta) max(eps, log(1 + (1/gamma - 1) delta)) at the best point."""
        odds = math.expm1(self.stops)
        each = (max(epsilon, math.log1p(odds * delta)) for epsilon, delta in profile)
        return (1.0 + self.shape) * min(each) * _ROUNDED


LAWS: dict[str, Callable[[float], Trials]] = {
    "logarithmic": lambda mean: TruncatedNegativeBinomial(mean=mean, shape=0.0),
    "geometric": lambda mean: TruncatedNegativeBinomial(mean=mean, shape=1.0),
    "poisson": PoissonTrials,
}
"""Laws of the number of trials by name; each is a function of its mean."""


def log_mean(stops: float, shape: float) -> float:
    """Return the log of E K for gamma = e^-stops: eta (1/gamma - 1) / (1 - gamma^eta)."""
    # Here expm1 would overflow, and its log equals its argument.
    rises = stops if stops > 700.0 else math.log(math.expm1(stops))
    # A product with a subnormal shape has no digits. The limit at 0 is off by half the product.
    limit = abs(shape) * stops < 1e-20
    falls = math.log(stops) if limit else math.log(-math.expm1(-shape * stops) / shape)
    return rises - falls


def log_stops(mean: float, shape: float) -> float:
    """Return log(1/gamma) of the law with this mean, rounded up; 0 if K is always 1.

    The mean increases with it. Bisection ends at a value whose mean is larger, rounding included.
    """
    if mean == 1.0:
        return 0.0
    above = partial(_above, shape=shape, goal=math.log(mean) * (1.0 + THOUSANDS) + HUNDREDS)
    low, high = 0.0, 1.0
    while not above(high):
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


def _above(stops: float, shape: float, goal: float) -> bool:
    return stops > 0.0 and log_mean(stops, shape) >= goal


_ASSUMED = (
    "the number of trials is drawn from the stated distribution, independently of the data; "
    "the number and all outputs but the best stay secret",
    "every trial is an independent run whose loss is at most that of the base, for every setting",
    "the order that selects the best is fixed beforehand and uses only the outputs (a score is "
    "an output of the base) and public data",
)


@registered
@dataclass(frozen=True)
class PrivateSelection(Several):
    """The best of a random number of trials of one mechanism; only this output is released.

    This describes a private choice of hyper-parameters. Every trial draws its setting from a public
    grid, trains by ``base`` and scores itself. ``base`` must account for the score, or the score
    must come from public data. Renyi divergences are those of Papernot and Steinke (2022), Theorems
    2 and 6. The profile is T14's. Both start from the base's certified ends, and accountants use
    the better one. It is not known whether a score attains them. ``Bound.lower`` is the base's,
    which a constant score attains.

    The observer ``server`` is not supported, because it sees all trials. Compose the trials for it.
    Ties may be broken in any way fixed beforehand.

    Args:
        base: one trial.
        trials: ``TruncatedNegativeBinomial(mean=, shape=)`` or ``PoissonTrials(mean)``.
        others: other possible mechanisms of a trial, if settings of the grid differ in cost. A
            trial costs at most the worst of all at every order and epsilon. No attained end is
            known then, because it depends on how settings are drawn.

    Raises:
        ParameterError: ``base`` is not a mechanism; ``trials`` is not a law; ``others`` are not
            mechanisms or protect another unit. A fixed number of trials is ``base * number``; no
            theorem makes a selection cheaper.
    """

    base: Mechanism
    trials: Trials
    others: tuple[Mechanism, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.others, Iterable):
            refuse("others", self.others, "be a sequence of mechanisms", "pass a tuple of them")
        object.__setattr__(self, "others", tuple(self.others))
        for name, each in (("base", self.base), *(("others", one) for one in self.others)):
            if not isinstance(each, Mechanism):
                refuse(name, each, "be a mechanism", "pass Gaussian(noise_multiplier=1.0) * 10")
            check_not_nested(each)
        units = {each.protects for each in mechanisms_in(self)}
        if len(units) > 1:
            rule = "protect the same unit as the base"
            refuse("others", sorted(map(str, units)), rule, "account for each unit separately")
        if not isinstance(self.trials, Trials):
            rule = "be a distribution of the number of trials"
            way_out = (
                "pass TruncatedNegativeBinomial(mean=10, shape=0) or PoissonTrials(10); "
                "compose a fixed number of trials: base * number"
            )
            refuse("trials", self.trials, rule, way_out)

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the law's numbers; the base's loss has its own."""
        del adjacency
        return {f"{name} of trials": value for name, value in plain_fields(self.trials).items()}

    def worst_scheme(self, scheme: Scheme) -> Scheme:
        """Return the common scheme of all trials.

        Raises:
            UnsupportedCombination: the trials have different schemes.
        """
        found = {each.worst_scheme(scheme) for each in mechanisms_in(self)}
        if len(found) > 1:
            raise UnsupportedCombination(
                f"trials with different draws under {scheme!r} are not covered; account for a "
                "selection among trials of one scheme"
            )
        return found.pop()

    def noise_mismatch(self, *, shares: int, noise_multiplier: float) -> str:
        """Return the first error text of a trial; empty if no trial has one."""
        said = (
            noise_mismatch(each, shares=shares, noise_multiplier=noise_multiplier)
            for each in mechanisms_in(self)
        )
        return next(filter(None, said), "")

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of the best trial, by Renyi divergences and by T14."""
        if facts.observer is Observer.SERVER:
            raise UnsupportedCombination(
                "PrivateSelection releases only the best trial, but "
                f"observer='{facts.observer}' sees the participants and results of all trials; "
                "account for observer='aggregate', or compose all trials: base * number"
            )
        every = [each.privacy_loss(facts.adjacency, facts.observer) for each in mechanisms_in(self)]
        return PrivacyLoss(
            self._curve([each.curve for each in every]),
            facts,
            None if self.others else self._witness(every[0].witness),
            (
                self.trials.theorem,
                "profile of the best of several trials (T14)",
                *_all("theorems", every),
            ),
            (*_ASSUMED, *_all("assumptions", every)),
            merged(each.public for each in every),
            # On average ``most`` trials run, each with at most the largest ``tv_error``.
            self.trials.most * max(each.tv_error for each in every),
        )

    def _curve(self, curves: Sequence[Curve]) -> Curve:
        """Return the curve of the best trial, kind by kind if units of one mechanism differ."""
        if len(curves) == 1:
            return _of_kinds(curves[0], lambda curve: _selected((curve,), self.trials))
        # With several mechanisms, any trial may be of any kind of any mechanism.
        every = dict.fromkeys(one for each in curves for one in kinds(each))
        return _selected(tuple(every), self.trials)

    def _witness(self, base: Witness | None) -> Witness | None:
        """Return the base's witness, shown whenever there is a trial.

        With a constant score the first trial is the best.
        """
        base = repeatable(base)
        if base is None:
            return None
        names = f"{base.datasets}; every output has the same score, so the first trial is released"
        return Witness(_of_kinds(base.curve, self._shown), names, free=base.free)

    def _shown(self, curve: Curve) -> Curve:
        nothing = self.trials.nothing
        if nothing == 0.0:
            return curve
        return Mix(((nothing, IDENTITY), (1.0 - nothing, curve)))


def _all(name: str, losses: Sequence[PrivacyLoss]) -> tuple[str, ...]:
    """Return the named texts of all losses, without duplicates."""
    return tuple(dict.fromkeys(said for one in losses for said in getattr(one, name)))


def _of_kinds(curve: Curve, change: Callable[[Curve], Curve]) -> Curve:
    """Return the changed curve; a curve of several kinds is changed kind by kind."""
    several = curve.components().kinds
    return AnyOf(tuple(map(change, several))) if several else change(curve)


def _selected(bases: tuple[Curve, ...], trials: Trials) -> Curve:
    """Return the curve of the best trial; each of its orientations covers both of each base."""
    # Equal user-defined laws may differ in behaviour.
    ask = _selected_once if alike(trials) else _selected_once.__wrapped__
    return ask(bases, trials)


@lru_cache(maxsize=64)
def _selected_once(bases: tuple[Curve, ...], trials: Trials) -> Curve:
    turned = tuple(each for base in bases for each in orientations(base))
    found, profile = _divergences(turned), _profile(turned)
    shift = trials.shift(profile)
    shifted = (((epsilon + shift) * _ROUNDED, trials.most * delta) for epsilon, delta in profile)
    guarantees = tuple(
        (epsilon, delta) for epsilon, delta in shifted if epsilon <= MAX_EPSILON and delta < 1.0
    )
    if not found:
        return stated_pair(guarantees)
    return RenyiAndPoints(trials.divergences(found, profile), guarantees)


@lru_cache(maxsize=64)
def _divergences(turned: tuple[Curve, ...]) -> Points:
    """Return (order, divergence) of one trial in its worse orientation, where it is finite."""
    found = []
    for order in _ORDERS:
        moment = max(each.moments().log_moment(order) for each in turned)
        divergence = rounded_up(max(moment, 0.0) / (order - 1.0))
        # Log-moments are convex: after the first infinite order all are infinite.
        if not math.isfinite(divergence):
            break
        found.append((order, divergence))
    return tuple(found)


@lru_cache(maxsize=64)
def _profile(turned: tuple[Curve, ...]) -> Points:
    """Return certified (epsilon, delta) of one trial: increasing epsilons, decreasing deltas."""
    ends = [each.support().largest for each in turned]
    top = max(each.high for each in ends)
    far = max(renyi.epsilon(each, _DEPTH)[0] for each in turned)
    reach = min(far, top, MAX_EPSILON)
    epsilons = reach * (np.arange(_GRID + 1) / _GRID) ** 2
    deltas = np.max([_deltas(each, epsilons) for each in turned], axis=0)
    if top <= MAX_EPSILON:
        # At the largest finite loss only the infinite loss is left.
        epsilons = np.append(epsilons, top)
        deltas = np.append(deltas, max(each.infinite_high for each in ends))
    falling = np.minimum.accumulate(deltas)
    return tuple(zip(epsilons.tolist(), falling.tolist(), strict=True))


def _deltas(curve: Curve, epsilons: Array) -> Array:
    """Return certified upper ends of one orientation.

    Deltas are inverted on lines shared by neighbouring epsilons, stretch by stretch. The remaining
    ones follow from Renyi divergences. Beyond the largest loss only the infinite loss is left.
    """
    known, end = _divergences((curve,)), curve.support().largest
    start = np.where(epsilons >= end.high, end.infinite_high, 1.0)
    if known:
        start = np.minimum(start, RenyiPoints(known).implied_delta(epsilons))
    found: dict[float, queries.Interval] = {}
    for part in np.array_split(epsilons[epsilons < end.high], _STRETCHES):
        if len(part):
            found |= search.deltas(curve, part, 1e-3)
    pairs = zip(epsilons.tolist(), start.tolist(), strict=True)
    return np.array([min(found[x].high, bound) if x in found else bound for x, bound in pairs])
