"""Accountants with the interface of dp-accounting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
from numpy.typing import NDArray

from ..bound import Bound
from ..errors import LedgerError, ParameterError, at_least_zero, closed_unit, member, require
from ..privacy_loss import PrivacyLoss
from ..questions import epsilon as answers
from ..questions.effort import Effort
from ..relations import Facts, Observer, Unit
from ..rounding import FEW
from .dp_answers import note, silent, uncertified
from .dp_events import NOTHING, EventFacts, culprit, read
from .dp_losses import LossSettings, PrivacyLossDistribution, Recipe, array_of
from .dp_runs import adjacency_of
from .dp_states import plain, rebuilt

_ADD = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE


class InvalidEventError(ParameterError, dpa.UnsupportedEventError):  # type: ignore[misc]
    """A field of an event breaks its rule: an unsupported event, and a ``ValueError``."""


class CertifiedAccountant(dpa.PrivacyAccountant):  # type: ignore[misc]
    """A ``dp_accounting.PrivacyAccountant`` that answers with certified upper ends.

    Args:
        neighboring_relation: a ``dp_accounting.NeighboringRelation``; there is no default on
            purpose.
        observer: who sees the outputs; an event itself means "aggregate".
        accountant: "pld", "rdp" or "advanced".
        tolerance: wanted width of the interval, see ``fedprivacy.epsilon``.
        unit: the meaning of one record of the events; optional.

    Raises:
        ParameterError: a value that breaks its rule.
    """

    def __init__(
        self,
        neighboring_relation: dpa.NeighboringRelation,
        *,
        observer: Observer | str = Observer.AGGREGATE,
        accountant: str = "pld",
        tolerance: float = 1e-3,
        unit: Unit | str | None = None,
    ) -> None:
        # Not super(): a drop-in has the class that it replaces among its bases.
        dpa.PrivacyAccountant.__init__(self, neighboring_relation)
        unit = None if unit is None else member(Unit, unit=unit)
        adjacency = adjacency_of(neighboring_relation)
        self._facts = Facts(unit, adjacency, member(Observer, observer=observer))
        # Checked now, so a wrong setting fails before the first question.
        Effort(accountant, tolerance)
        self._settings: dict[str, Any] = {"accountant": accountant, "tolerance": tolerance}
        self._composed = NOTHING

    def _maybe_compose(
        self, event: dpa.DpEvent, count: int, do_compose: bool
    ) -> dpa.PrivacyAccountant.CompositionErrorDetails | None:
        """Compose an event, or only return why it cannot be composed."""
        wrong = culprit(event, self._events)
        if wrong is not None:
            return self.CompositionErrorDetails(invalid_event=wrong[0], error_message=str(wrong[1]))
        if do_compose:
            self._composed = self._composed.then(read(event, self._events), count)
        return None

    @property
    def _events(self) -> EventFacts:
        return EventFacts(*self._facts)

    def compose(self, event: dpa.DpEvent, count: int = 1) -> Self:
        """Compose an event ``count`` times, and return self.

        Raises:
            InvalidEventError: a field of the event, or of an inner event, breaks its rule.
            UnsupportedEventError: the class is not supported, or has no loss under this relation.
            TypeError: not an event.
            ValueError: a count below 1.
        """
        # Checked before dp-accounting, which has a single error for all faults.
        wrong = culprit(event, self._events) if isinstance(event, dpa.DpEvent) else None
        if wrong is not None and isinstance(wrong[1], ParameterError):
            raise InvalidEventError(f"{event}: [{wrong[1]}] caused by subevent {wrong[0]}")
        # A list in the event may be changed later by its owner, so a copy is kept.
        own = rebuilt(plain(event)) if isinstance(event, dpa.DpEvent) and not wrong else event
        super().compose(own, count)
        return self

    def bound(self, target_delta: float) -> Bound:
        """Return the certified epsilon of everything composed, at a delta in [0, 1]."""
        delta = closed_unit(target_delta=target_delta)
        if not (self._composed.parts and self._composed.private):
            return self._plain_bound("epsilon", delta, math.inf)
        return answers.epsilon(self._composed.run, delta=delta, **self._asked)

    def delta_bound(self, target_epsilon: float) -> Bound:
        """Return the certified delta of everything composed, at an epsilon from 0 to infinity."""
        epsilon = at_least_zero(target_epsilon=target_epsilon)
        if not (self._composed.parts and self._composed.private):
            return self._plain_bound("delta", epsilon, 1.0)
        return answers.delta(self._composed.run, epsilon=epsilon, **self._asked)

    @property
    def _asked(self) -> dict[str, Any]:
        _, adjacency, observer = self._facts
        return {"adjacency": adjacency, "observer": observer, **self._settings}

    @property
    def loss_distribution(self) -> PrivacyLossDistribution:
        """Everything composed as a privacy-loss distribution."""
        settings = LossSettings(self._settings["tolerance"])
        recipe: Recipe = ("identity", (), {})
        return PrivacyLossDistribution.of(
            self._composed, [self.neighboring_relation], settings, recipe
        )

    def get_epsilon(self, target_delta: float) -> float:
        """Return the upper end of ``bound``."""
        return self.bound(target_delta).upper

    def get_delta(self, target_epsilon: float) -> float:
        """Return the upper end of ``delta_bound``."""
        return self.delta_bound(target_epsilon).upper

    def _plain_bound(self, quantity: str, given: float, worst: float) -> Bound:
        """Return the bound of an empty composition, or of one that is not private."""
        upper = 0.0 if self._composed.private else worst
        nothing, everything = "no release", "an event without privacy"
        return Bound(
            quantity=quantity,
            given=given,
            upper=upper,
            lower=0.0,
            resolution=(0.0, upper),
            witness=None,
            method=nothing if self._composed.private else everything,
            theorems=(),
            assumptions=(),
            facts=self._facts,
        )

    def state(self) -> dict[str, Any]:
        """Return the settings and everything composed as plain JSON values."""
        unit, _, observer = self._facts
        return {
            "integration": "dp_accounting",
            "version": 1,
            "neighboring_relation": self.neighboring_relation.name,
            "observer": str(observer),
            "unit": None if unit is None else str(unit),
            **self._settings,
            "ledger": plain(self.ledger),
        }

    def restore(self, state: dict[str, Any]) -> Self:
        """Load a result of ``state()`` in place of the current content, and return self.

        Raises:
            ParameterError: not a state, or one for another neighbouring relation.
            LedgerError: the state holds something that is not a supported event.
        """
        ours = isinstance(state, dict) and state.get("integration") == "dp_accounting"
        require(ours, "state", type(state).__name__, "be what state() returned")
        version, told = state.get("version"), state.get("neighboring_relation")
        require(version == 1, "version", version, "be 1", "upgrade fedprivacy")
        relation = self.neighboring_relation
        require(told == relation.name, "state", told, f"be for {relation.name}")
        settings: dict[str, Any] = {name: state.get(name) for name in _SETTINGS}
        twin = type(self)(relation, **settings)
        try:
            twin.compose(rebuilt(state.get("ledger")))
        except (dpa.UnsupportedEventError, TypeError, ValueError) as problem:
            raise LedgerError(f"accountant state is not readable: {problem}") from problem
        # Only after everything is rebuilt: a bad state leaves this accountant unchanged.
        self.__dict__.update(twin.__dict__)
        return self


_SETTINGS = ("observer", "unit", "accountant", "tolerance")


# ---- in the place of dp-accounting's own


class _DropIn(CertifiedAccountant):
    """An accountant with a constructor of dp-accounting, whose answers are recorded."""

    def _own(self) -> Any:
        """Return dp-accounting's own accountant with the same arguments, still empty."""
        raise NotImplementedError

    def _noted(self, method: str, found: Any, *asked: Any) -> Any:
        shown = ", ".join(f"{each}" for each in asked if each is not None and np.ndim(each) == 0)
        name = f"{type(self).__name__}({self.neighboring_relation.name}).{method}({shown})"
        # The ledger of this moment: their answer is computed later, after more compositions.
        ledger = self.ledger
        note(name, ledger, found, lambda: getattr(self._own().compose(ledger), method)(*asked))
        return found

    def get_epsilon(self, target_delta: float) -> float:
        """Return the certified epsilon at a delta in [0, 1]."""
        return float(self._noted("get_epsilon", super().get_epsilon(target_delta), target_delta))

    def get_delta(self, target_epsilon: float) -> float:
        """Return the certified delta at an epsilon of at least 0."""
        return float(self._noted("get_delta", super().get_delta(target_epsilon), target_epsilon))


class PLDAccountant(_DropIn, pld_privacy_accountant.PLDAccountant):  # type: ignore[misc]
    """dp-accounting's ``PLDAccountant`` with certified answers.

    It supports more events and relations than the original: see ``supports``.

    Args:
        neighboring_relation: how neighbouring data sets differ.
        value_discretization_interval: wanted width of an interval (from 1e-6 to 1e-3 counts). There
            is no lattice of this spacing.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
    """

    def __init__(
        self,
        neighboring_relation: dpa.NeighboringRelation = _ADD,
        value_discretization_interval: float = 1e-4,
    ) -> None:
        settings = LossSettings.of(value_discretization_interval)
        super().__init__(neighboring_relation, tolerance=settings.tolerance)
        self._value_discretization_interval = value_discretization_interval

    def _own(self) -> Any:
        return own(
            pld_privacy_accountant.PLDAccountant,
            self.neighboring_relation,
            self._value_discretization_interval,
        )

    @property
    def _pld(self) -> PrivacyLossDistribution:
        return self.loss_distribution

    @property
    def _contains_non_dp_event(self) -> bool:
        return not self._composed.private

    def get_true_positive_rates(self, false_positive_rates: Any, deltas: Any = None) -> Any:
        """Return upper ends of the attacker's true-positive rate.

        See ``PrivacyLossDistribution.get_true_positive_rates``.
        """
        with silent():
            found = self._pld.get_true_positive_rates(false_positive_rates, deltas)
        return self._noted("get_true_positive_rates", found, false_positive_rates, deltas)

    def get_gdp_parameter_estimate(
        self, false_positive_rates: Any = None, deltas: Any = None
    ) -> float:
        """Return a mu that covers the trade-off curve from the smallest rate on.

        See ``PrivacyLossDistribution.get_gdp_parameter_estimate``.
        """
        with silent():
            found = self._pld.get_gdp_parameter_estimate(false_positive_rates, deltas)
        noted = self._noted("get_gdp_parameter_estimate", found, false_positive_rates, deltas)
        return float(noted)


class RdpAccountant(_DropIn, rdp_privacy_accountant.RdpAccountant):  # type: ignore[misc]
    """dp-accounting's ``RdpAccountant`` with certified answers.

    epsilon and delta come from the whole privacy loss, not from divergences, so they do not depend
    on ``orders``.

    Args:
        orders: shape (n,), at least 1; only ``rdp`` and the reported optimal order use them.
        neighboring_relation: how neighbouring data sets differ.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
    """

    def __init__(
        self,
        orders: Sequence[float] | None = None,
        neighboring_relation: dpa.NeighboringRelation = _ADD,
    ) -> None:
        super().__init__(neighboring_relation, tolerance=LossSettings().tolerance)
        given = rdp_privacy_accountant.DEFAULT_RDP_ORDERS if orders is None else orders
        self._orders = np.array(np.atleast_1d(array_of(orders=given)))
        well = self._orders.size and (self._orders >= 1.0).all()
        require(well, "orders", given, "be one or more numbers of at least 1")

    def _own(self) -> Any:
        return own(rdp_privacy_accountant.RdpAccountant, self._orders, self.neighboring_relation)

    @property
    def _rdp(self) -> NDArray[np.float64]:
        return self.rdp

    @property
    def rdp(self) -> NDArray[np.float64]:
        """Upper ends of the Renyi divergence at each order, the larger of both orientations."""
        if not (self._composed.parts and self._composed.private):
            return np.full(len(self._orders), 0.0 if self._composed.private else math.inf)
        _, adjacency, observer = self._facts
        loss = self._composed.run.privacy_loss(adjacency, observer)
        # Divergences increase with the order up to the largest loss, which bounds all of them.
        largest = self.bound(0.0).upper
        found = [_divergence(loss, float(order)) for order in self._orders]
        return np.minimum(found, largest)

    def get_epsilon_and_optimal_order(self, target_delta: float) -> tuple[float, float]:
        """Return the certified epsilon, and the order with the smallest converted divergence."""
        order = rdp_privacy_accountant.compute_epsilon(self._orders, self.rdp, target_delta)[1]
        return self.get_epsilon(target_delta), float(order)

    def get_delta_and_optimal_order(self, target_epsilon: float) -> tuple[float, float]:
        """Return the certified delta, and the order with the smallest converted divergence."""
        order = rdp_privacy_accountant.compute_delta(self._orders, self.rdp, target_epsilon)[1]
        return self.get_delta(target_epsilon), float(order)


def _divergence(loss: PrivacyLoss, order: float) -> float:
    """Return an upper end of the divergence of one order; infinity for the infinite order."""
    if math.isinf(order):
        return math.inf
    order = max(order, _NEAR_ONE)
    moments = (each.moments().log_moment(order) for each in (loss.curve, loss.curve.swap()))
    return max(max(moments) / (order - 1.0) * (1.0 + FEW), 0.0)


_NEAR_ONE = 1.0 + 1e-6
"""Stands for order 1, whose divergence is the limit from above."""


def own(kind: Any, *arguments: Any) -> Any:
    """Return an object of a class of dp-accounting, also within a ``certified()`` block."""
    with uncertified():
        return kind(*arguments)
