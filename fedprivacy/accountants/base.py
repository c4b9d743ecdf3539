"""Shared code of the accountants: adding losses up, and turning numbers into Bounds."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from ..bound import Bound
from ..errors import (
    LedgerError,
    at_least_zero,
    closed_unit,
    contradict,
    integer,
    non_negative,
    positive,
    refuse,
)
from ..loss import Curve, MaxLoss, Side, kinds, orientations
from ..loss.clock import time_limit
from ..loss.curves.between import one_side
from ..loss.strategies.memo import uncollected
from ..privacy_loss import PrivacyLoss, Witness, compose_losses, merge_facts
from ..registry import Registry, decode, encode
from ..relations import Adjacency, Facts, Observer, Unit
from ..rounding import Down, Up, rounded_up

CURVES = Registry(lambda kind: issubclass(kind, Curve))
"""Every curve that a saved accountant may hold."""


_NO_NUMBER = "no finite number can be certified"
_BY_LARGEST = "sum of the largest losses"
_UNBOUNDED = (
    "the loss has no known limit, so no epsilon is certified at delta = 0; ask at a delta above 0"
)

_TOO_FAR_OFF = (
    "the drawn noise is within a total variation of {:.1g} of its law; (1 + e^epsilon) times this "
    "exceeds delta at every epsilon above {:.4g}, and no smaller epsilon is certified; use more "
    "noise, fewer rounds or a larger delta"
)
_NEAR_ONE = 1.01
"""Order of the Renyi divergence that detects runs with a larger loss on average."""
_SPARE = (2.0**-40, 0.5)
"""Shares of delta reserved for the total variation of sampled laws; the first sufficient one."""
_LITTLE = 2.0**-30
"""A relative increase of delta below this share does not matter for a lower end."""


NOTHING = Down(0.0)
"""The lower end that always holds."""


@dataclass(frozen=True)
class Answer:
    """An accountant's numbers before they become a Bound. NaN means unknown."""

    upper: Up
    low: Down = NOTHING
    """Lower end for the dominating pair."""
    attained: Down = NOTHING
    """Lower end for the attained pair."""
    method: str = ""
    reason: str = ""
    datasets: str = ""
    """The data sets that attain it, if they are not those of the attained pair."""

    def __post_init__(self) -> None:
        # Written so that NaN also counts as infinite.
        if not self.upper < math.inf:
            object.__setattr__(self, "upper", math.inf)
            object.__setattr__(self, "reason", self.reason or _NO_NUMBER)
        for end in ("low", "attained"):
            if math.isnan(getattr(self, end)):
                object.__setattr__(self, end, 0.0)


@dataclass
class _Known:
    """Results that do not depend on the question, for everything composed; reset by each loss."""

    loss: PrivacyLoss | None = None
    kinds: list[PrivacyLoss] | None = None
    largest: dict[Curve, list[MaxLoss]] = field(default_factory=dict)


def counted(tv_error: float, epsilon: float) -> Up:
    """Return (1 + e^epsilon) tv_error, rounded up: the amount that inexact laws add to delta."""
    return Up(rounded_up(tv_error * (1.0 + math.exp(min(epsilon, 700.0)))) if tv_error else 0.0)


def _divergence(loss: PrivacyLoss) -> float:
    """Return the largest Renyi divergence over all kinds of units, near order 1."""
    curves = [one for kind in kinds_of(loss) for one in orientations(kind.curve)]
    power = _NEAR_ONE - 1.0
    return max(one_side(one, Side.UP).moments().log_moment(_NEAR_ONE) / power for one in curves)


class Accountant(ABC):
    """Adds privacy losses up and answers with certified bounds.

    The two orientations of a loss are composed separately, and the worse result counts. Composing a
    single worse-of-two curve is not sound (Lebeda, Regehr, Kamath and Steinke 2024).

    Args:
        tolerance: wanted width of ``Bound.resolution``: absolute for epsilon, relative for delta.
        deadline: seconds for an answer. After it the answer may be wider and says so; None: no
            limit. "pld" then bounds the rest by Renyi divergences. "rdp" and "advanced" have no
            faster way.
    """

    name: ClassVar[str]
    interruptible: ClassVar[bool] = False
    """Whether there is an answer at the deadline."""
    ceiling = math.inf
    """Epsilons above it need no precise value, for accountants that can stop there."""
    spares: ClassVar[bool] = False
    """Whether the accountant uses ``spare``."""
    spare = 0.0
    """An upper end uses a delta smaller by this amount, a lower end a delta larger by it."""

    def __init__(self, *, tolerance: float = 1e-3, deadline: float | None = None) -> None:
        self.tolerance = positive(tolerance=tolerance)
        self.deadline = None if deadline is None else positive(deadline=deadline)
        self._parts: dict[PrivacyLoss, int] = {}
        self._facts: Facts | None = None
        self._known = _Known()

    def compose(self, loss: PrivacyLoss, count: int = 1) -> Self:
        """Add ``count`` runs of a loss; ``compose(m, n)`` equals n times ``compose(m)``.

        Raises:
            ParameterError: a count that is not an integer of at least 1, or another unit.
            UnsupportedCombination: another adjacency or observer than before.
        """
        times = integer(1, count=count)
        # A bare curve lacks the facts that decide whether it may be added.
        if not isinstance(loss, PrivacyLoss):
            way_out = "pass mechanism.privacy_loss(adjacency, observer)"
            refuse("loss", type(loss).__name__, "be a PrivacyLoss", way_out)
        if self._facts is not None:
            self._facts = merge_facts(self._facts, loss.facts)
        else:
            self._facts = loss.facts
        self._parts[loss] = self._parts.get(loss, 0) + times
        self._known = _Known()
        return self

    def copy(self) -> Self:
        """Return an independent accountant with the same losses composed."""
        # Losses are frozen, so copying the counts is enough.
        twin = type(self)(tolerance=self.tolerance, deadline=self.deadline)
        twin._parts, twin._facts = dict(self._parts), self._facts
        return twin

    @property
    def loss(self) -> PrivacyLoss:
        """The composed loss so far."""
        # Read once: a composition in another thread replaces the stored object.
        known = self._known
        if known.loss is None:
            known.loss = compose_losses(list(self._parts.items()))
        return known.loss

    def epsilon(self, delta: float) -> Bound:
        """Return the epsilon of everything composed, at a delta in [0, 1].

        At delta = 0 it is the sum of the largest losses. That sum also bounds the epsilon at any
        other delta. If the losses have no limit, for example with Gaussian noise, both ends are
        infinite if that is attained.
        """
        target = closed_unit(delta=delta)
        loss = self.loss
        # Only accountants that can stop early get the clock. Others would end without a result.
        with time_limit(self.deadline if self.interruptible else None), uncollected():
            answer = self._off_epsilon(loss, target) if loss.tv_error else self._at(loss, target)
        return _bound("epsilon", target, loss, answer)

    def delta(self, epsilon: float) -> Bound:
        """Return the delta of everything composed, at an epsilon of at least 0, or infinity.

        For an epsilon from the sum of the largest losses on, it is the mass at infinite loss,
        mostly 0.
        """
        target = at_least_zero(epsilon=epsilon)
        loss = self.loss
        # delta does not grow with epsilon, but the correction for inexact laws does, so a smaller
        # epsilon may be used.
        reduced = min(target, max(0.0, -0.5 * math.log(loss.tv_error))) if loss.tv_error else target
        with time_limit(self.deadline if self.interruptible else None), uncollected():
            answer = _worst([self._capped_delta(one, reduced) for one in self._kinds(loss)])
        if loss.tv_error:
            upper = Up(math.nextafter(answer.upper + counted(loss.tv_error, reduced), math.inf))
            answer = replace(answer, upper=upper)
        if reduced < target:
            answer = replace(answer, low=NOTHING, attained=NOTHING)
        return _bound("delta", target, loss, answer)

    def _at(self, loss: PrivacyLoss, delta: float) -> Answer:
        """Return the answer at a delta over all kinds of units, for the curve's own laws."""
        return _worst([self._capped_epsilon(one, delta) for one in self._kinds(loss)])

    def _kinds(self, loss: PrivacyLoss) -> list[PrivacyLoss]:
        """Return the kinds of units of the composed loss, for every question."""
        known = self._known
        # Another thread may have composed more since this question began.
        if known.loss is not loss:
            return kinds_of(loss)
        if known.kinds is None:
            known.kinds = kinds_of(loss)
        return known.kinds

    def _largest(self, curve: Curve) -> list[MaxLoss]:
        """Return the largest losses of a curve's orientations, for every question."""
        found = self._known.largest.get(curve)
        if found is None:
            found = self._known.largest[curve] = _largest(curve)
        return found

    def _off_epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        """Return the answer for laws within a total variation ``tv_error`` of the curve's.

        P~(E) - e^epsilon Q~(E) <= P(E) - e^epsilon Q(E) + (1 + e^epsilon) tv_error for all E.
        The result is therefore an epsilon of the curve's own laws, at a delta reduced by that
        amount.
        """
        most = math.log(delta / loss.tv_error) if delta else -math.inf
        found = Answer(Up(math.inf), reason=_TOO_FAR_OFF.format(loss.tv_error, max(most, 0.0)))
        # If the loss exceeds that on average, no closer look is needed.
        if most < _divergence(loss) < math.inf:
            return found
        # Two threads may query one accountant, so the reserve is set on a copy.
        twin = self.copy()
        for share in _SPARE:
            # Epsilons above the ceiling leave no room. Their exact value does not matter.
            twin.ceiling = most + math.log(share)
            near = twin._aside(loss, delta, share)
            if counted(loss.tv_error, near.upper) <= delta * share:
                return near
            # An upper end that stopped at the ceiling may be far above its best value.
            if near.low > most or near.low <= twin.ceiling < most < near.upper:
                break
        return found

    def _aside(self, loss: PrivacyLoss, delta: float, share: float) -> Answer:
        """Return an answer whose upper end uses a reduced delta, and whose lower ends do not."""
        if self.spares and share < _LITTLE:
            # Lower ends at an increased delta cost no second answer.
            self.spare = delta * share
            near = self._at(loss, delta)
            self.spare = 0.0
            return near
        near = self._at(loss, delta * (1.0 - share))
        # Lower ends are those at delta itself, which are slightly smaller.
        if (near.low or near.attained) and near.low <= self.ceiling:
            at = self._at(loss, delta)
            near = replace(near, low=min(near.low, at.low), attained=at.attained)
        return near

    def foresee(self, epsilons: Sequence[float]) -> None:
        """Prepare for ``delta`` at many epsilons. By default there is no shared work."""
        del epsilons

    def _capped_epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        """Return the accountant's answer, or the sum of the largest losses if that is smaller."""
        if delta == 1.0:
            # Every mechanism is (0, 1)-private: no account is needed.
            return Answer(Up(0.0), method="delta = 1 allows everything")
        found = self._largest(loss.curve)
        # No loss exceeds the sum of the largest ones: pure privacy caps epsilon at every delta.
        cap = max(one.epsilon(delta - self.spare) for one in found)
        if delta == 0.0:
            # At delta 0, only an attained loss shows that no smaller epsilon holds.
            shown = self._largest(loss.witness.curve) if loss.witness else []
            attained = max((one.certain for one in shown), default=NOTHING)
            reason = _UNBOUNDED if math.isinf(cap) else ""
            return Answer(cap, max(one.certain for one in found), attained, _BY_LARGEST, reason)
        answer = self._epsilon(loss, delta)
        if cap >= answer.upper:
            return answer
        # If the cap closes the interval, the accountant's reason for a wide one is obsolete.
        reason = answer.reason if cap - answer.low > self.tolerance else ""
        return replace(answer, upper=cap, method=_BY_LARGEST, reason=reason)

    def _capped_delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        """Return the accountant's answer, or the mass at infinite loss if that decides."""
        found = self._largest(loss.curve)
        cap = max(one.delta(epsilon) for one in found)
        if math.isinf(epsilon):
            shown = self._largest(loss.witness.curve) if loss.witness else []
            attained = max((one.infinite_low for one in shown), default=NOTHING)
            return Answer(cap, max(one.infinite_low for one in found), attained, _BY_LARGEST)
        if cap == 0.0:
            return Answer(Up(0.0), method=_BY_LARGEST)
        answer = self._delta(loss, epsilon)
        # A loss above epsilon has a positive delta, however small. An underflow is no upper end.
        if answer.upper == 0.0 and max(one.certain for one in found) > epsilon:
            answer = replace(answer, upper=min(Up(sys.float_info.min), cap))
        if cap >= answer.upper:
            return answer
        reason = answer.reason if cap - answer.low > self.tolerance * cap else ""
        return replace(answer, upper=cap, method=_BY_LARGEST, reason=reason)

    @abstractmethod
    def _epsilon(self, loss: PrivacyLoss, delta: float) -> Answer: ...

    @abstractmethod
    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer: ...

    def state(self) -> dict[str, Any]:
        """Return everything composed as plain JSON values."""
        parts = [{"loss": _encode(loss), "count": k} for loss, k in self._parts.items()]
        return {"accountant": self.name, "version": 1, "tolerance": self.tolerance, "parts": parts}

    def restore(self, state: dict[str, Any]) -> Self:
        """Load a result of ``state()`` in place of the current content, and return self.

        Raises:
            ParameterError: the state is of another accountant or another version.
            LedgerError: the state holds something that is not a curve of this package.
        """
        if not isinstance(state, dict) or state.get("version") != 1:
            refuse("state", type(state).__name__, "be what state() returned, version 1")
        if state.get("accountant") != self.name:
            refuse("state", state.get("accountant"), f"be of a {self.name!r} accountant")
        # Built separately first: a state that fails half way leaves this accountant unchanged.
        restored = type(self)(tolerance=positive(tolerance=state.get("tolerance")))
        for loss, count in _read_parts(state.get("parts")):
            restored.compose(loss, count)
        self.tolerance, self._parts = restored.tolerance, restored._parts
        self._facts, self._known = restored._facts, _Known()
        return self


def kinds_of(loss: PrivacyLoss) -> list[PrivacyLoss]:
    """Return the distinct losses of the kinds of units. A unit has one kind, so one counts."""
    curves = kinds(loss.curve)
    if len(curves) == 1:
        return [replace(loss, curve=curves[0])]
    shown: tuple[Curve | None, ...] = (None,)
    if loss.witness is not None:
        shown = kinds(loss.witness.curve)
    # Every kind without its own attained pair takes the single one.
    shown *= len(curves) // len(shown)
    # Kinds with equal losses are evaluated once.
    pairs = dict.fromkeys(zip(curves, shown, strict=True))
    return [replace(loss, curve=curve, witness=_of(loss.witness, seen)) for curve, seen in pairs]


def _of(witness: Witness | None, seen: Curve | None) -> Witness | None:
    return None if witness is None or seen is None else witness._replace(curve=seen)


def _worst(answers: list[Answer]) -> Answer:
    """Return the answer that holds for every kind: each end is the largest over the kinds."""
    top = max(answers, key=lambda answer: answer.upper)
    return replace(
        top,
        low=max(answer.low for answer in answers),
        attained=max(answer.attained for answer in answers),
    )


def _largest(curve: Curve) -> list[MaxLoss]:
    return [turned.support().largest for turned in orientations(curve)]


def _bound(quantity: str, given: float, loss: PrivacyLoss, answer: Answer) -> Bound:
    """Return the Bound. A loss that the attained pair reaches is a loss of the dominating pair.

    Raises:
        ContradictionError: a lower end lies above the upper end.
    """
    # A delta is a probability.
    upper = min(answer.upper, 1.0) if quantity == "delta" else answer.upper
    low = max(answer.low, answer.attained)
    shown = answer.datasets or (loss.witness.datasets if loss.witness else "")
    # Never silently: either a theorem or its program is wrong.
    if low > upper:
        whose = f"attained by {shown}" if shown else "the dominating pair's own"
        ends = (f"{low!r} ({whose})", f"{upper!r} ({answer.method})")
        contradict(f"{quantity} at {given:g} ({', '.join(map(str, loss.facts))})", *ends)
    return Bound(
        quantity=quantity,
        given=given,
        upper=upper,
        lower=answer.attained,
        resolution=(low, upper),
        witness=shown if loss.witness and answer.attained > 0 else None,
        method=answer.method,
        theorems=loss.theorems,
        assumptions=loss.assumed,
        facts=loss.facts,
        reason=answer.reason,
    )


def _encode(loss: PrivacyLoss) -> dict[str, Any]:
    unit, adjacency, observer = loss.facts
    witness = loss.witness
    return {
        "curve": encode(loss.curve, CURVES),
        "facts": [None if unit is None else str(unit), str(adjacency), str(observer)],
        "witness": witness and witness._asdict() | {"curve": encode(witness.curve, CURVES)},
        "theorems": list(loss.theorems),
        "assumptions": list(loss.assumptions),
        "public": [[name, list(values)] for name, values in loss.public],
        "off": loss.tv_error,
    }


def _read_parts(parts: Any) -> list[tuple[PrivacyLoss, int]]:
    try:
        return [(_decode(part["loss"]), part["count"]) for part in parts]
    except (KeyError, TypeError) as problem:
        raise LedgerError(f"accountant state is not readable: {problem!r}") from problem


def _decode(data: dict[str, Any]) -> PrivacyLoss:
    try:
        unit, adjacency, observer = data["facts"]
        witness = data["witness"]
        return PrivacyLoss(
            decode(data["curve"], CURVES),
            Facts(None if unit is None else Unit(unit), Adjacency(adjacency), Observer(observer)),
            witness
            and Witness(
                decode(witness["curve"], CURVES),
                str(witness["datasets"]),
                bool(witness.get("alone", False)),
                bool(witness.get("free", False)),
            ),
            tuple(map(str, data["theorems"])),
            tuple(map(str, data["assumptions"])),
            tuple((str(n), tuple(map(str, values))) for n, values in data.get("public", ())),
            non_negative(off=data.get("off", 0.0)),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise LedgerError(f"accountant state is not readable: {problem}") from problem
