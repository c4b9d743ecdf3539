"""Privacy-loss distributions with dp-accounting's interface, and certified answers.

An object holds its run. Composition adds runs, and every answer is a question
about the whole run. Lattices, truncations and Fourier transforms of the caller do not enter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from numpy.typing import NDArray

from .. import mechanisms
from ..errors import (
    FedPrivacyError,
    ParameterError,
    closed_unit,
    integer,
    positive,
    refuse,
    require,
)
from ..questions.epsilon import epsilon as epsilon_of
from ..questions.epsilon import profile
from ..questions.risk import attack_risk
from ..rounding import TENS
from .dp_answers import note, uncertified
from .dp_events import NOTHING, EventContent
from .dp_masses import CertifiedPmf, Divergence
from .dp_runs import adjacency_of

Array = NDArray[np.float64]
_FINEST, _COARSEST = 1e-6, 1e-3
_WIDE, _MANY = 1e-2, 8
"""Relative width of a delta among more than eight: finer ones take minutes for Laplace noise."""


class UnsupportedLossError(ParameterError, dpa.UnsupportedEventError):  # type: ignore[misc]
    """No theorem covers a distribution: an unsupported event, and a ``ValueError``."""


def array_of(**named: object) -> Array:
    """Return one ``name=value`` as an array of numbers, none of them NaN.

    Raises:
        ParameterError: it is something else; also a ``ValueError``.
    """
    ((name, value),) = named.items()
    rule = "be a number or an array of numbers"
    # numpy reads None as NaN.
    require(value is not None, name, value, rule)
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        refuse(name, value, rule)
    require(not np.isnan(found).any(), name, value, rule, "NaN is never accepted")
    return found


class LossSettings(NamedTuple):
    """Lattice spacing of the caller, and whether upper ends are wanted (else lower ends)."""

    interval: float = 1e-4
    pessimistic: bool = True

    @classmethod
    def of(cls, value_discretization_interval: float, pessimistic_estimate: bool = True) -> Self:
        """Return the settings that a caller gives.

        Raises:
            ParameterError: the spacing is not above 0; also a ``ValueError``.
        """
        interval = positive(value_discretization_interval=value_discretization_interval)
        return cls(interval, bool(pessimistic_estimate))

    @property
    def tolerance(self) -> float:
        """Wanted width of an interval: the spacing, but from 1e-6 to 1e-3."""
        return min(max(self.interval, _FINEST), _COARSEST)


Recipe = tuple[str, tuple[Any, ...], dict[str, Any]]
"""Constructor or method of dp-accounting, its arguments; objects of this module stay objects."""


class PrivacyLossDistribution(privacy_loss_distribution.PrivacyLossDistribution):  # type: ignore[misc]
    """A ``PrivacyLossDistribution`` of dp-accounting that answers with certified ends.

    Make it with the ``from_`` functions of this module. ``value_discretization_interval`` is the
    wanted width of an interval (from 1e-6 to 1e-3). ``pessimistic_estimate=False`` asks for
    certified lower ends in place of upper ends. Bounds on truncated mass and
    ``use_connect_dots`` are accepted and not needed.

    ``_pmf_remove`` and ``_pmf_add`` are the same masses on the caller's lattice. They dominate the
    run in both orientations. Programs that read or compose these masses themselves compute in
    floating point, without a certificate.

    Raises:
        UnsupportedLossError: the class is called with probability masses.
    """

    _symmetric = True

    def __init__(self, pmf_remove: object, pmf_add: object = None) -> None:
        raise UnsupportedLossError(
            f"{type(self).__name__} of given probability masses has no certified answer; use "
            "from_gaussian_mechanism and its like, or dp_accounting's own class"
        )

    @classmethod
    def of(
        cls,
        reading: EventContent,
        relations: Sequence[dpa.NeighboringRelation],
        settings: LossSettings,
        recipe: Recipe,
    ) -> Self:
        """Return the distribution of what events release.

        Args:
            reading: the runs and their counts.
            relations: the neighbouring relations under which the distribution holds.
            settings: spacing, and the wanted end.
            recipe: how dp-accounting makes its own.

        Raises:
            UnsupportedLossError: no theorem covers a run under these relations.
        """
        made = cls.__new__(cls)
        made._reading, made._relations, made._settings = reading, tuple(relations), settings
        made._recipe = recipe
        if reading.parts:
            made._checked()
        return made

    _reading: EventContent
    _relations: tuple[dpa.NeighboringRelation, ...]
    _settings: LossSettings
    _recipe: Recipe

    def _checked(self) -> None:
        try:
            self._run.privacy_loss(self._adjacency)
        except FedPrivacyError as problem:
            raise UnsupportedLossError(str(problem)) from problem

    @property
    def _adjacency(self) -> str:
        return str(adjacency_of(self._relations[0]))

    @cached_property
    def _run(self) -> mechanisms.Mechanism:
        """The whole run. Guarantees hold under every relation, so they take the run's."""
        stated = (mechanisms.ApproximateDp, mechanisms.ConcentratedDp)
        parts = Counter[mechanisms.Mechanism]()
        for part, count in self._reading.parts.items():
            own = replace(part, adjacency=self._adjacency) if isinstance(part, stated) else part
            parts[own] += count
        return EventContent(parts).run

    # ---- answers

    @property
    def _asked(self) -> dict[str, Any]:
        return {"adjacency": self._adjacency, "tolerance": self._settings.tolerance}

    def _certain(self, private: float, open_: float) -> float | None:
        """Return the answer for an empty or an open release; None in all other cases."""
        if not self._reading.private:
            return open_
        return None if self._reading.parts else private

    def _epsilon(self, delta: float) -> float:
        if (known := self._certain(0.0, math.inf)) is not None:
            return known
        found = epsilon_of(self._run, delta=delta, **self._asked)
        return found.upper if self._settings.pessimistic else found.resolution[0]

    def _ends(self, epsilons: Array, tolerance: float) -> tuple[Array, Array]:
        """Return upper and lower ends of delta at epsilons of at least 0, both shape (n,)."""
        if (known := self._certain(0.0, 1.0)) is not None:
            return np.full(len(epsilons), known), np.full(len(epsilons), known)
        asked = {**self._asked, "tolerance": tolerance}
        at, where = np.unique(epsilons, return_inverse=True)
        found = profile(self._run, epsilons=at, **asked)
        return found.upper[where], found.lower[where]

    def _delta(self, epsilons: Array) -> Array:
        """Return delta at each epsilon of any sign, shape (n,)."""
        size = np.abs(epsilons)
        pessimistic = self._settings.pessimistic
        width = _WIDE if len(size) > _MANY else min(10.0 * self._settings.tolerance, _WIDE)
        ends = self._ends(size, width)[0 if pessimistic else 1]
        # h(a) = 1 - a + a h(1 / a), for the larger of both orientations.
        turned = -np.expm1(-size) + np.exp(-size) * ends
        turned *= 1.0 + (TENS if pessimistic else -TENS)
        return np.asarray(np.clip(np.where(epsilons < 0, turned, ends), 0.0, 1.0))

    def get_epsilon_for_delta(self, delta: float) -> float:
        """Return the certified epsilon at a delta in [0, 1]; infinity if there is none.

        Raises:
            ParameterError: delta is not in [0, 1]; also a ``ValueError``.
        """
        found = self._epsilon(closed_unit(delta=delta))
        self._noted("get_epsilon_for_delta", found, delta)
        return found

    def get_delta_for_epsilon(self, epsilon: float | Sequence[float]) -> Any:
        """Return the certified delta at each epsilon, of any sign; a number for a number.

        At a negative epsilon, it is the larger hockey-stick divergence of the two orientations.

        Raises:
            ParameterError: an epsilon is not a number; also a ``ValueError``.
        """
        given = array_of(epsilon=epsilon)
        found = self._delta(given.ravel()).reshape(given.shape)
        answer: Any = float(found) if given.ndim == 0 else found
        self._noted("get_delta_for_epsilon", answer, epsilon)
        return answer

    def get_delta_for_epsilon_for_composed_pld(
        self, privacy_loss_distribution: Any, epsilon: float
    ) -> float:
        """Return the certified delta of the composition with another distribution.

        Raises:
            ValueError: see ``compose``.
        """
        return float(self.compose(privacy_loss_distribution).get_delta_for_epsilon(epsilon))

    def get_true_positive_rates(
        self, false_positive_rates: float | Array, deltas: Array | None = None
    ) -> Any:
        """Return upper ends of the attacker's true-positive rate, for the worse orientation.

        Args:
            false_positive_rates: in [0, 1]; a number or shape (n,).
            deltas: accepted and not needed: the whole privacy profile counts.

        Returns:
            A number for a number, else shape (n,). With ``pessimistic_estimate=False``, lower ends.

        Raises:
            ParameterError: a rate outside [0, 1]; also a ``ValueError``.
        """
        rates = np.atleast_1d(array_of(false_positive_rates=false_positive_rates))
        found = self._rates(rates)
        answer: Any = float(found[0]) if np.ndim(false_positive_rates) == 0 else found
        self._noted("get_true_positive_rates", answer, false_positive_rates, deltas)
        return answer

    def _rates(self, rates: Array) -> Array:
        for rate in rates:
            closed_unit(false_positive_rates=float(rate))
        if self._certain(0.0, 1.0) is not None:
            return rates.copy() if self._reading.private else np.ones_like(rates)
        if self._settings.pessimistic:
            return self._divergence.true_positive_rates(rates)
        found = attack_risk(self._run, fpr=rates, **self._asked) if len(rates) else None
        return rates.copy() if found is None else np.array(found.tpr.lower)

    def get_gdp_parameter_estimate(
        self, false_positive_rates: Array | None = None, deltas: Array | None = None
    ) -> float:
        """Return a mu that covers the trade-off curve at all false-positive rates of a range.

        At every rate from the smallest given one to 1/2, the attacker's certified true-positive
        rate is at most that of N(mu, 1) against N(0, 1), for both orientations. It is no statement
        about smaller rates.

        Args:
            false_positive_rates: shape (n,); by default from 1e-12 on. Only the smallest counts,
                since the rates in between are covered too.
            deltas: accepted and not needed.

        Returns:
            The mu; infinity if the loss is infinite with a probability above the smallest rate.

        Raises:
            ParameterError: no rate, or a rate outside (0, 1]; also a ``ValueError``.
            UnsupportedLossError: ``pessimistic_estimate=False``: a lower end has no use here.
        """
        rates = 1e-12 if false_positive_rates is None else false_positive_rates
        given = np.ravel(array_of(false_positive_rates=rates))
        smallest = min(map(float, given), default=math.nan)
        require(0.0 < smallest <= 0.5, "false_positive_rates", smallest, "begin in (0, 1/2]")
        if not self._settings.pessimistic:
            raise UnsupportedLossError("mu has no lower end here; ask pessimistic_estimate=True")
        found = self._gaussian(smallest)
        self._noted("get_gdp_parameter_estimate", found, false_positive_rates, deltas)
        return found

    def _gaussian(self, smallest: float) -> float:
        if (known := self._certain(0.0, math.inf)) is not None:
            return known
        known_losses = self._divergence
        return (
            math.inf
            if known_losses.forever > smallest
            else known_losses.gaussian_parameter(smallest)
        )

    # ---- composition

    def validate_composable(self, privacy_loss_distribution: Any) -> None:
        """Check that another distribution can be composed with this one.

        Raises:
            ValueError: one of dp-accounting's own, one for another neighbouring relation, or one
                of upper and one of lower ends.
        """
        other = privacy_loss_distribution
        if not isinstance(other, PrivacyLossDistribution):
            raise ValueError(
                f"privacy_loss_distribution is {type(other).__module__}.{type(other).__name__}, "
                "which has no certificate; make both with fedprivacy.integrations.dp_accounting"
            )
        if not set(self._relations) & set(other._relations):
            raise ValueError(
                f"neighbouring relations differ: {_names(self)} and {_names(other)}; make both "
                "with the same neighboring_relation"
            )
        if self._settings.pessimistic != other._settings.pessimistic:
            own = self._settings.pessimistic
            raise ValueError(
                f"estimation types differ: pessimistic_estimate is {own} here and {not own} in "
                "the other; make both with one pessimistic_estimate"
            )

    def compose(
        self, privacy_loss_distribution: Any, tail_mass_truncation: float = 1e-15
    ) -> PrivacyLossDistribution:
        """Return the distribution of this and another one, without truncation.

        Raises:
            ValueError: see ``validate_composable``.
        """
        other = privacy_loss_distribution
        self.validate_composable(other)
        common_ = [each for each in self._relations if each in other._relations]
        finer = min(self._settings, other._settings)
        recipe: Recipe = ("compose", (self, other, tail_mass_truncation), {})
        return type(self).of(self._reading.then(other._reading), common_, finer, recipe)

    def self_compose(
        self, num_times: int, tail_mass_truncation: float = 1e-15
    ) -> PrivacyLossDistribution:
        """Return the distribution of this one, ``num_times`` in a row.

        Raises:
            ParameterError: ``num_times`` is not an integer above 0; also a ``ValueError``.
        """
        times = integer(1, num_times=num_times)
        recipe: Recipe = ("self_compose", (self, times, tail_mass_truncation), {})
        reading = NOTHING.then(self._reading, times)
        return type(self).of(reading, self._relations, self._settings, recipe)

    def compute_mixture(self, other: Any, self_weight: float) -> PrivacyLossDistribution:
        """Refuse: no theorem of this package covers a mixture of two runs.

        Raises:
            UnsupportedLossError: always.
        """
        raise UnsupportedLossError(
            "a mixture of two distributions has no certified composition here; for truncated "
            "samples use from_truncated_subsampled_gaussian_mechanism"
        )

    # ---- masses, and their own distribution

    @property
    def _pmf_remove(self) -> CertifiedPmf:
        return self._masses

    @property
    def _pmf_add(self) -> CertifiedPmf:
        return self._masses

    @cached_property
    def _masses(self) -> CertifiedPmf:
        if not (self._settings.pessimistic and self._reading.private):
            raise UnsupportedLossError(
                "masses exist for upper ends only; ask pessimistic_estimate=True"
            )
        return self._divergence.masses()

    @cached_property
    def _divergence(self) -> Divergence:
        return Divergence(self._epsilon, self._ends, self._settings.interval)

    def theirs(self) -> Any:
        """Return dp-accounting's own distribution of the same calls."""
        name, arguments, named = self._recipe
        with uncertified():
            if name not in ("compose", "self_compose"):
                return getattr(privacy_loss_distribution, name)(*arguments, **named)
            own = [a.theirs() if isinstance(a, PrivacyLossDistribution) else a for a in arguments]
            return getattr(own[0], name)(*own[1:])

    def __repr__(self) -> str:
        parts = " + ".join(f"{part} x {n}" for part, n in self._reading.parts.items())
        return f"PrivacyLossDistribution({_names(self)}: {parts or 'nothing'})"

    def _noted(self, method: str, found: Any, *asked: Any) -> None:
        shown = ", ".join(f"{each}" for each in asked if each is not None and np.ndim(each) == 0)
        name = f"PrivacyLossDistribution.{method}({shown})"
        note(name, self, found, lambda: getattr(self.theirs(), method)(*asked))


def _names(loss: PrivacyLossDistribution) -> str:
    return "/".join(each.name for each in loss._relations)
