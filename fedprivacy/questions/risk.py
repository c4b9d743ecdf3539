"""The power of an attacker at every false-positive rate: trade-off curves and attack risk.

An attacker looks at the outputs of a run and says which of two neighbouring data sets they came
from. In the orientation ``present_to_absent`` (for ``replace_one``: x to x'), the attacker claims
that the unit is present. A false positive is a claim of presence when the unit is absent. In
``absent_to_present``, the attacker claims that the unit is absent. The theory is in
``docs/curves.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..accountants.base import kinds_of
from ..errors import contradict, non_negative, open_unit, refuse
from ..privacy_loss import PrivacyLoss
from ..relations import Adjacency, Facts, Observer
from .effort import Effort
from .epsilon import Accountable, axes, loss_of
from .tradeoff import Sandwich, gaussian_ends, symmetric_rates

Array = NDArray[np.float64]
_ROUNDED = 1.0 + 1e-9
"""Allowed excess of an attained end over an upper end: it covers the rounding of a rate."""
ORIENTATIONS = ("present_to_absent", "absent_to_present")


class RateEnds(NamedTuple):
    """Certified ends of an error rate at each false-positive rate, all of shape (n,).

    ``lower`` and ``upper`` bracket the rate of the dominating pair. ``attained`` is the rate of an
    attacker on the two data sets in ``witness``. It is the rate of guessing if none are known.
    """

    lower: Array
    upper: Array
    attained: Array


class NumberEnds(NamedTuple):
    """Certified ends of one number of the dominating pair, and its attained value; 0 if unknown."""

    lower: float
    upper: float
    attained: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _CurveFields:
    """The fields that every whole-curve answer has.

    Attributes:
        fpr: the attacker's false-positive rates, shape (n,).
        witness: two neighbouring data sets that reach ``attained``, or None.
        theorems: the theorems behind the curve.
        assumptions: facts about the run that no arithmetic can check.
        facts: unit, adjacency and observer.
        reason: why an interval is wider than requested; empty if none is.
    """

    fpr: Array
    present_to_absent: RateEnds
    absent_to_present: RateEnds
    witness: str | None
    theorems: tuple[str, ...]
    assumptions: tuple[str, ...]
    facts: Facts
    reason: str = ""

    def _words(self) -> dict[str, Any]:
        unit, adjacency, observer = self.facts
        return {
            "witness": self.witness,
            "theorems": list(self.theorems),
            "assumptions": list(self.assumptions),
            "unit": None if unit is None else str(unit),
            "adjacency": str(adjacency),
            "observer": str(observer),
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class TradeoffCurve(_CurveFields):
    """The best attacker's false-negative rate at each false-positive rate.

    The ``lower`` ends are the guarantee that may be published: no attacker has a smaller rate.

    Attributes:
        present_to_absent: the attacker who claims presence.
        absent_to_present: the attacker who claims absence; the inverse function.
        f_dp: one certified trade-off function for both attackers, shape (n,). It is symmetric,
            convex, and on or below ``worst``. The run is f-DP with it.
    """

    f_dp: Array

    @property
    def worst(self) -> RateEnds:
        """The smaller rate of the two orientations, separately at each false-positive rate."""
        pairs = zip(self.present_to_absent, self.absent_to_present, strict=True)
        return RateEnds(*(np.minimum(one, other) for one, other in pairs))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        ends = {name: _listed(getattr(self, name)) for name in (*ORIENTATIONS, "worst")}
        return {"fpr": self.fpr.tolist(), **ends, "f_dp": self.f_dp.tolist(), **self._words()}


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackRisk(_CurveFields):
    """The privacy risk of a run from the attacker's view. ``upper`` ends may be published.

    Attributes:
        present_to_absent: true-positive rates of the attacker who claims presence.
        absent_to_present: true-positive rates of the attacker who claims absence.
        advantage: the largest true-positive rate minus false-positive rate, which is delta at
            epsilon 0.
        mu: the run is mu-GDP with ``mu.upper``, at every false-positive rate; inf if no such mu is
            known.
        mu_within: the same, but true-positive rates may exceed the Gaussian's by ``slack``.
        slack: that excess.
    """

    advantage: NumberEnds
    mu: NumberEnds
    mu_within: NumberEnds
    slack: float

    @property
    def tpr(self) -> RateEnds:
        """The larger true-positive rate of the two orientations."""
        pairs = zip(self.present_to_absent, self.absent_to_present, strict=True)
        return RateEnds(*(np.maximum(one, other) for one, other in pairs))

    @property
    def worse(self) -> tuple[str, ...]:
        """The orientation with the larger upper end, at each false-positive rate."""
        first = self.present_to_absent.upper >= self.absent_to_present.upper
        return tuple(ORIENTATIONS[0 if here else 1] for here in first)

    def positive_predictive_value(self, prior: float = 0.5) -> RateEnds:
        """Return the probability that a claim of presence is right.

        It is prior * tpr / (prior * tpr + (1 - prior) * fpr); 1 if both rates are 0.

        Args:
            prior: probability of presence before the attack, in (0, 1).
        """
        share = open_unit(prior=prior)
        return RateEnds(*(_predictive(self.fpr, tpr, share) for tpr in self.present_to_absent))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; infinity as the string "inf"."""
        ends = {name: _listed(getattr(self, name)) for name in (*ORIENTATIONS, "tpr")}
        ranges = {name: _plain(getattr(self, name)) for name in ("advantage", "mu", "mu_within")}
        own = {"fpr": self.fpr.tolist(), **ends, "worse": list(self.worse), **ranges}
        return {**own, "slack": self.slack, **self._words()}


def _predictive(fpr: Array, tpr: Array, prior: float) -> Array:
    right, wrong = prior * tpr, (1.0 - prior) * fpr
    total = right + wrong
    # If both rates are 0, no claim is made, so no claim is wrong.
    return np.asarray(np.where(total > 0, right / np.where(total > 0, total, 1.0), 1.0))


def _listed(ends: RateEnds) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in ends._asdict().items()}


def _plain(ends: NumberEnds) -> dict[str, float | str]:
    return {k: "inf" if math.isinf(v) else v for k, v in ends._asdict().items()}


def _default_rates() -> Array:
    # The low rates matter most, so the grid is dense there.
    small = np.geomspace(1e-5, 0.1, 17)
    return np.concatenate([[0.0], small, np.linspace(0.15, 0.95, 17), [0.99, 0.999, 1.0]])


def _rates(fpr: object) -> Array:
    if axes(fpr) not in (0, 1) or np.size(fpr) == 0:  # type: ignore[arg-type]
        refuse("fpr", fpr, "be a rate in [0, 1], or a sequence of them")
    values = [fpr] if axes(fpr) == 0 else list(fpr)  # type: ignore[call-overload]
    return np.array([_rate(value) for value in values])


def _rate(value: object) -> float:
    number = non_negative("a false-positive rate lies in [0, 1]", fpr=value)
    # Per cent values are refused: 5 would otherwise mean a certain false positive.
    if number > 1.0:
        refuse("fpr", value, "lie in [0, 1]", "it is a false-positive rate")
    return number


class _RefinedPair(NamedTuple):
    """The pair of a run and its attained pair, refined at the requested rates."""

    loss: PrivacyLoss
    pair: Sandwich
    proof: Sandwich | None
    reason: str

    def rates(self, x: Array, turned: bool) -> RateEnds:
        """Return true-positive rates."""
        low, high = self.pair.rates(x, turned)
        attained = x if self.proof is None else self.proof.rates(x, turned)[0]
        attained = self.within("a true-positive rate", attained, high)
        # The pair dominates, so it has at least the attained rate.
        return RateEnds(*map(_frozen, (np.maximum(low, attained), high, attained)))

    def within(self, what: str, attained: Array, high: Array) -> Array:
        """Return the attained values, capped at the upper ends. Only rounding may exceed them.

        Raises:
            ContradictionError: a value exceeds its upper end by more than rounding.
        """
        above = np.flatnonzero(attained > high * _ROUNDED)
        if len(above):
            shown = self.loss.witness.datasets if self.loss.witness else "the pair itself"
            ends = float(attained[above[0]]), float(high[above[0]])
            contradict(what, f"{ends[0]!r} (attained by {shown})", f"{ends[1]!r}")
        return np.minimum(attained, high)

    def range(self, what: str, low: float, high: float, attained: float) -> NumberEnds:
        """Return the range of one number; see ``within``."""
        found = float(self.within(what, np.array([attained]), np.array([high]))[0])
        return NumberEnds(max(low, found), high, found)


class _RefinedKinds(NamedTuple):
    """Several kinds of units, each refined at the requested rates. A unit has one kind.

    At each rate the worst kind counts, so every end is the largest over the kinds.
    """

    loss: PrivacyLoss
    kinds: tuple[_RefinedPair, ...]

    def rates(self, x: Array, turned: bool) -> RateEnds:
        """Return true-positive rates."""
        found = [kind.rates(x, turned) for kind in self.kinds]
        return RateEnds(*(_frozen(np.max(ends, axis=0)) for ends in zip(*found, strict=True)))

    def advantage(self) -> NumberEnds:
        """Return the largest difference between true- and false-positive rate."""
        return _largest(map(_advantage, self.kinds))

    def mu(self, slack: float) -> NumberEnds:
        """Return the smallest mu of the worst kind, given a slack."""
        return _largest(_mu(kind, slack) for kind in self.kinds)

    def symmetric(self, x: Array) -> Array:
        """Return true-positive rates of one trade-off function for all kinds and orientations."""
        return symmetric_rates([kind.pair for kind in self.kinds], x)

    def words(self) -> dict[str, Any]:
        """Return the descriptive fields of every answer."""
        loss = self.loss
        return {
            "witness": loss.witness and loss.witness.datasets,
            "theorems": loss.theorems,
            "assumptions": loss.assumed,
            "facts": loss.facts,
            "reason": "; ".join(dict.fromkeys(kind.reason for kind in self.kinds if kind.reason)),
        }


def _largest(ranges: Iterable[NumberEnds]) -> NumberEnds:
    return NumberEnds(*map(max, zip(*ranges, strict=True)))


def _frozen(values: Array) -> Array:
    copy = np.array(values)
    # Answers share arrays, so no array may change in place.
    copy.flags.writeable = False
    return copy


def _worst(loss: PrivacyLoss, x: Array, effort: Effort) -> _RefinedKinds:
    return _RefinedKinds(loss, tuple(_ask(kind, x, effort) for kind in kinds_of(loss)))


def _ask(loss: PrivacyLoss, x: Array, effort: Effort) -> _RefinedPair:
    pair = Sandwich(loss.curve, effort, loss.off)
    reason = pair.refine(x)
    if loss.witness is None:
        return _RefinedPair(loss, pair, None, reason)
    # The pair itself is attained, so no second curve is needed.
    if loss.witness.curve == loss.curve:
        return _RefinedPair(loss, pair, pair, reason)
    proof = Sandwich(loss.witness.curve, effort, loss.off)
    proof.refine(x)
    return _RefinedPair(loss, pair, proof, reason)


def _missed(rates: RateEnds) -> RateEnds:
    """Return false-negative rates, rounded outwards, from true-positive rates."""
    # 1 - x is rounded once, so the next lower number is surely below it.
    lower = np.maximum(np.nextafter(1.0 - rates.upper, -1.0), 0.0)
    upper, attained = (_above(1.0 - end) for end in (rates.lower, rates.attained))
    return RateEnds(*map(_frozen, (lower, upper, attained)))


def _above(values: Array) -> Array:
    """Return the next number above each value in (0, 1); 0 and 1 are exact."""
    return np.where((values > 0) & (values < 1), np.nextafter(values, 2.0), values)


def tradeoff_curve(
    run: Accountable,
    *,
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
    fpr: Sequence[float] | Array | None = None,
    accountant: str = "pld",
    tolerance: float = 0.01,
    deadline: float | None = None,
) -> TradeoffCurve:
    """Return the trade-off function of a run (f-DP): certified error rates of the best attacker.

    If units are of several kinds (``Parallel``), the worst kind counts, separately at each rate.

    Args:
        run: see ``epsilon``.
        adjacency: see ``epsilon``; there is no default on purpose.
        observer: see ``epsilon``.
        fpr: false-positive rates in [0, 1], shape (n,). By default 38 rates from 0 to 1, dense near
            0.
        accountant: see ``epsilon``. The curve is computed from its deltas.
        tolerance: see ``epsilon``. It is relative to the true-positive rate, so the interval of a
            rate has at most this absolute width. A width of 1e-9 is always narrow enough.
        deadline: see ``epsilon``.

    Returns:
        A TradeoffCurve; its ``lower`` ends and ``f_dp`` may be published.

    Raises:
        ParameterError: a value that breaks its rule.
        UnsupportedCombination: no theorem covers the run under these facts.

    >>> import fedprivacy as fp
    >>> run = fp.Gaussian(noise_multiplier=1.0)
    >>> curve = fp.tradeoff_curve(run, fpr=[0.05], adjacency="zero_out")
    >>> print(f"misses at least {curve.worst.lower[0]:.2f} of the members at a 5 % FPR")
    misses at least 0.74 of the members at a 5 % FPR
    """
    x = _default_rates() if fpr is None else _rates(fpr)
    effort = Effort(accountant, tolerance, deadline)
    refined = _worst(loss_of(run, adjacency, observer), x, effort)
    both = np.maximum(np.nextafter(1.0 - refined.symmetric(x), -1.0), 0.0)
    return TradeoffCurve(
        fpr=_frozen(x),
        present_to_absent=_missed(refined.rates(x, False)),
        absent_to_present=_missed(refined.rates(x, True)),
        f_dp=_frozen(both),
        **refined.words(),
    )


def attack_risk(
    run: Accountable,
    *,
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
    fpr: float | Sequence[float] | Array = 0.01,
    slack: float = 1e-6,
    accountant: str = "pld",
    tolerance: float = 0.01,
    deadline: float | None = None,
) -> AttackRisk:
    """Return the power of an attacker: advantage, true-positive rates, mu-GDP equivalent.

    If units are of several kinds (``Parallel``), the worst kind counts, separately at each rate.

    Args:
        run: see ``epsilon``.
        adjacency: see ``epsilon``; there is no default on purpose.
        observer: see ``epsilon``.
        fpr: one false-positive rate in [0, 1], or several, shape (n,).
        slack: the excess that ``mu_within`` allows, in (0, 1). Sampled runs need a slack: at
            vanishing false-positive rates they are as bad as without sampling.
        accountant: see ``epsilon``. The curve is computed from its deltas.
        tolerance: see ``epsilon``. It is relative; 1e-9 is always narrow enough for a rate. The
            interval of ``mu`` may stay wide: see ``docs/curves.md``.
        deadline: see ``epsilon``.

    Returns:
        An AttackRisk; its ``upper`` ends may be published.

    Raises:
        ParameterError: a value that breaks its rule.
        UnsupportedCombination: no theorem covers the run under these facts.

    >>> import fedprivacy as fp
    >>> risk = fp.attack_risk(fp.Gaussian(noise_multiplier=1.0), adjacency="zero_out")
    >>> print(f"advantage at most {risk.advantage.upper:.3f}, mu {risk.mu.upper:g}")
    advantage at most 0.383, mu 1
    """
    x, excess = _rates(fpr), open_unit(slack=slack)
    effort = Effort(accountant, tolerance, deadline)
    refined = _worst(loss_of(run, adjacency, observer), x, effort)
    within, words = refined.mu(excess), refined.words()
    low, high, attained = refined.mu(0.0)
    return AttackRisk(
        fpr=_frozen(x),
        present_to_absent=refined.rates(x, False),
        absent_to_present=refined.rates(x, True),
        advantage=refined.advantage(),
        # mu without slack is at least mu with slack, so the lower ends of the latter also hold.
        mu=NumberEnds(max(low, within.lower), high, max(attained, within.attained)),
        mu_within=within,
        slack=excess,
        **{**words, "reason": "; ".join(filter(None, (words["reason"], _unbounded(high))))},
    )


def _unbounded(mu: float) -> str:
    return "no mu is known to hold at every false-positive rate" if math.isinf(mu) else ""


def _advantage(refined: _RefinedPair) -> NumberEnds:
    low, high = refined.pair.advantage()
    return refined.range(
        "advantage", low, high, refined.proof.advantage()[0] if refined.proof else 0.0
    )


def _mu(refined: _RefinedPair, slack: float) -> NumberEnds:
    low, high = gaussian_ends(refined.pair, slack)
    if refined.proof is None:
        return NumberEnds(low, high, 0.0)
    attained = low if refined.proof is refined.pair else gaussian_ends(refined.proof, slack)[0]
    return refined.range("mu", low, high, attained)
