"""Constructors of privacy-loss distributions: dp-accounting's names, arguments and defaults."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import common

from .. import mechanisms
from ..errors import integer, positive, probability, refuse, require
from ..rounding import FEW
from ..sampling import Poisson, TruncatedPoisson
from .dp_events import NOTHING, EventContent
from .dp_losses import LossSettings, PrivacyLossDistribution, UnsupportedLossError, array_of

_ADD = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
_SPECIAL = dpa.NeighboringRelation.REPLACE_SPECIAL
_ONE = dpa.NeighboringRelation.REPLACE_ONE
_ANY = (_ADD, _SPECIAL, _ONE)
_UNSAID = (_ADD, _SPECIAL)
"""Relations of constructors without an argument for it: the sum moves by the sensitivity."""


def _made(
    name: str,
    named: dict[str, Any],
    build: Callable[[], mechanisms.Mechanism],
    relations: Sequence[dpa.NeighboringRelation] = _ANY,
) -> PrivacyLossDistribution:
    settings = LossSettings.of(
        named["value_discretization_interval"], named.get("pessimistic_estimate", True)
    )
    reading = EventContent(Counter({build(): 1}))
    return PrivacyLossDistribution.of(reading, relations, settings, (name, (), named))


def _related(
    neighboring_relation: dpa.NeighboringRelation, known: Sequence[dpa.NeighboringRelation] = _ANY
) -> list[dpa.NeighboringRelation]:
    if neighboring_relation not in known:
        names = " or ".join(each.name for each in known)
        refuse("neighboring_relation", neighboring_relation, f"be {names}")
    return [neighboring_relation]


def _multiplier(name: str, scale: float, sensitivity: float) -> float:
    """Return noise scale over sensitivity, rounded down."""
    scale, moved = positive(**{name: scale}), positive(sensitivity=sensitivity)
    found = scale / moved
    exact = Fraction(scale) / Fraction(moved)
    return found if Fraction(found) <= exact else math.nextafter(found, 0.0)


def _sampled(run: mechanisms.Mechanism, sampling_prob: float) -> mechanisms.Mechanism:
    chance = probability(sampling_prob=sampling_prob)
    return run if chance == 1.0 else run.sampled(Poisson(chance))


def identity(
    value_discretization_interval: float = 1e-4, pessimistic_estimate: bool = True
) -> PrivacyLossDistribution:
    """Return the distribution of a release that is independent of the data."""
    settings = LossSettings.of(value_discretization_interval, pessimistic_estimate)
    named = dict(
        value_discretization_interval=value_discretization_interval,
        pessimistic_estimate=pessimistic_estimate,
    )
    return PrivacyLossDistribution.of(NOTHING, _ANY, settings, ("identity", (), named))


def from_gaussian_mechanism(
    standard_deviation: float,
    sensitivity: float = 1,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    log_mass_truncation_bound: float = -50,
    sampling_prob: float = 1.0,
    use_connect_dots: bool = True,
    neighboring_relation: dpa.NeighboringRelation = _ADD,
) -> PrivacyLossDistribution:
    """Return the distribution of Gaussian noise on a sum, with Poisson sampling or without.

    Args:
        standard_deviation: of the noise, above 0.
        sensitivity: norm of one unit's contribution, above 0. Under ``REPLACE_ONE`` a unit moves
            the sum by up to twice as much.
        pessimistic_estimate: True for certified upper ends, False for lower ends.
        value_discretization_interval: wanted width of an interval; spacing of masses.
        log_mass_truncation_bound: not needed.
        sampling_prob: in (0, 1].
        use_connect_dots: not needed.
        neighboring_relation: how neighbouring data sets differ.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
        UnsupportedLossError: no theorem covers the run.
    """
    named = dict(locals())
    return _made(
        "from_gaussian_mechanism",
        named,
        lambda: _sampled(
            mechanisms.Gaussian(
                noise_multiplier=_multiplier("standard_deviation", standard_deviation, sensitivity)
            ),
            sampling_prob,
        ),
        _related(neighboring_relation),
    )


def from_laplace_mechanism(
    parameter: float,
    sensitivity: float = 1,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    sampling_prob: float = 1.0,
    use_connect_dots: bool = True,
) -> PrivacyLossDistribution:
    """Return the distribution of Laplace noise on a number.

    Args:
        parameter: the scale of the noise, above 0.
        sensitivity: largest move of the number, above 0. It is a move by adding or removing.
        pessimistic_estimate: see ``from_gaussian_mechanism``.
        value_discretization_interval: see ``from_gaussian_mechanism``.
        sampling_prob: in (0, 1].
        use_connect_dots: not needed.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
        UnsupportedLossError: no theorem covers the run.
    """
    named = dict(locals())
    return _made(
        "from_laplace_mechanism",
        named,
        lambda: _sampled(
            mechanisms.Laplace(noise_multiplier=_multiplier("parameter", parameter, sensitivity)),
            sampling_prob,
        ),
        _UNSAID,
    )


def from_discrete_laplace_mechanism(
    parameter: float,
    sensitivity: int = 1,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    sampling_prob: float = 1.0,
    use_connect_dots: bool = False,
) -> PrivacyLossDistribution:
    """Return the distribution of discrete Laplace noise: masses fall by e^-parameter a step.

    Arguments and errors are those of ``from_laplace_mechanism``; the sensitivity is whole.
    """
    named = dict(locals())
    return _made(
        "from_discrete_laplace_mechanism",
        named,
        lambda: _sampled(
            mechanisms.DiscreteLaplace(
                noise_parameter=positive(parameter=parameter), sensitivity=sensitivity
            ),
            sampling_prob,
        ),
        _UNSAID,
    )


def from_discrete_gaussian_mechanism(
    sigma: float,
    sensitivity: int = 1,
    truncation_bound: int | None = None,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    sampling_prob: float = 1.0,
    use_connect_dots: bool = False,
) -> PrivacyLossDistribution:
    """Return the distribution of discrete Gaussian noise, from its zCDP guarantee.

    A move of D integers and noise of scale s give D^2 / (2 s^2)-zCDP (Canonne, Kamath and
    Steinke 2020, Theorem 14). Lower ends are 0: only the guarantee is known.

    Args:
        sigma: the scale of the noise, above 0.
        sensitivity: largest move, an integer above 0.
        truncation_bound: refused unless None: cut noise has no zCDP.
        pessimistic_estimate: see ``from_gaussian_mechanism``.
        value_discretization_interval: see ``from_gaussian_mechanism``.
        sampling_prob: only 1: a guarantee of the whole is none of a sample.
        use_connect_dots: not needed.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
        UnsupportedLossError: truncated noise, or sampling.
    """
    named = dict(locals())
    if truncation_bound is not None or sampling_prob != 1.0:
        raise UnsupportedLossError(
            "discrete Gaussian noise is certified as it is, without truncation_bound and "
            f"sampling_prob, got {truncation_bound!r} and {sampling_prob!r}; for a sampled sum use "
            "fedprivacy.DistributedDiscreteGaussian"
        )
    moved = integer(1, sensitivity=sensitivity)

    def build() -> mechanisms.Mechanism:
        # rho = 1 / (2 z^2) with z rounded down, so rho is no smaller but for its own rounding.
        ratio = _multiplier("sigma", sigma, moved)
        rho = math.nextafter(0.5 / ratio**2 * (1.0 + FEW), math.inf)
        return mechanisms.ConcentratedDp(rho=rho, adjacency="add_remove")

    return _made("from_discrete_gaussian_mechanism", named, build)


def from_mixture_gaussian_mechanism(
    standard_deviation: float,
    sensitivities: Sequence[float],
    sampling_probs: Sequence[float],
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    log_mass_truncation_bound: float = -50,
    use_connect_dots: bool = True,
) -> PrivacyLossDistribution:
    """Return the distribution of Gaussian noise on a sum that moves by a random sensitivity.

    Args:
        standard_deviation: of the noise, above 0.
        sensitivities: the possible moves, shape (n,).
        sampling_probs: their probabilities, shape (n,).
        pessimistic_estimate: see ``from_gaussian_mechanism``.
        value_discretization_interval: see ``from_gaussian_mechanism``.
        log_mass_truncation_bound: not needed.
        use_connect_dots: not needed.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
        UnsupportedLossError: no theorem covers the run.
    """
    named = dict(locals())
    moves = np.ravel(array_of(sensitivities=sensitivities))
    chances = np.ravel(array_of(sampling_probs=sampling_probs))
    rule = f"have one entry for each of the {len(moves)} sensitivities"
    require(len(moves) == len(chances), "sampling_probs", sampling_probs, rule)
    return _made(
        "from_mixture_gaussian_mechanism",
        named,
        lambda: mechanisms.MixtureOfGaussians(
            standard_deviation=standard_deviation,
            sensitivities=tuple(map(float, moves)),
            probabilities=tuple(map(float, chances)),
        ),
        _UNSAID,
    )


def from_truncated_subsampled_gaussian_mechanism(
    dataset_size: int,
    sampling_probability: float,
    truncated_batch_size: int,
    noise_multiplier: float,
    value_discretization_interval: float = 1e-4,
    log_mass_truncation_bound: float = -50,
    use_connect_dots: bool = True,
    neighboring_relation: dpa.NeighboringRelation = _ADD,
) -> PrivacyLossDistribution:
    """Return the distribution of a Gaussian sum of a Poisson sample, cut at a largest batch.

    Args:
        dataset_size: number of records, the record in question included.
        sampling_probability: in (0, 1].
        truncated_batch_size: largest batch; a larger one is reduced to it uniformly at random.
        noise_multiplier: std of the noise over the clip norm, above 0.
        value_discretization_interval: see ``from_gaussian_mechanism``.
        log_mass_truncation_bound: not needed.
        use_connect_dots: not needed.
        neighboring_relation: how neighbouring data sets differ.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
        UnsupportedLossError: no theorem covers the run.
    """
    named = dict(locals())
    integer(1, dataset_size=dataset_size)
    integer(1, truncated_batch_size=truncated_batch_size)
    return _made(
        "from_truncated_subsampled_gaussian_mechanism",
        named,
        lambda: mechanisms.Gaussian(noise_multiplier=noise_multiplier).sampled(
            TruncatedPoisson(
                sampling_probability, population=dataset_size, largest=truncated_batch_size
            )
        ),
        _related(neighboring_relation),
    )


def from_randomized_response(
    noise_parameter: float,
    num_buckets: int,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    neighboring_relation: dpa.NeighboringRelation = _ONE,
) -> PrivacyLossDistribution:
    """Return the distribution of randomised response.

    Args:
        noise_parameter: probability of a uniform answer, in (0, 1].
        num_buckets: number of answers, at least 2.
        pessimistic_estimate: see ``from_gaussian_mechanism``.
        value_discretization_interval: see ``from_gaussian_mechanism``.
        neighboring_relation: ``REPLACE_ONE`` or ``REPLACE_SPECIAL``.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
    """
    named = dict(locals())
    probability(noise_parameter=noise_parameter)
    integer(2, num_buckets=num_buckets)
    return _made(
        "from_randomized_response",
        named,
        lambda: mechanisms.RandomizedResponse(chance=noise_parameter, answers=num_buckets),
        _related(neighboring_relation, (_ONE, _SPECIAL)),
    )


def from_privacy_parameters(
    privacy_parameters: common.DifferentialPrivacyParameters,
    value_discretization_interval: float = 1e-4,
) -> PrivacyLossDistribution:
    """Return the distribution of a mechanism with one (epsilon, delta) guarantee.

    Raises:
        ParameterError: a value that breaks its rule; also a ``ValueError``.
    """
    named = dict(locals())
    if not isinstance(privacy_parameters, common.DifferentialPrivacyParameters):
        kind = "dp_accounting.pld.common.DifferentialPrivacyParameters"
        refuse("privacy_parameters", privacy_parameters, f"be {kind}")
    point = (privacy_parameters.epsilon, privacy_parameters.delta)
    return _made(
        "from_privacy_parameters",
        named,
        lambda: mechanisms.ApproximateDp(guarantees=(point,), adjacency="add_remove"),
    )


SERVED = (
    identity,
    from_gaussian_mechanism,
    from_laplace_mechanism,
    from_discrete_laplace_mechanism,
    from_discrete_gaussian_mechanism,
    from_mixture_gaussian_mechanism,
    from_truncated_subsampled_gaussian_mechanism,
    from_randomized_response,
    from_privacy_parameters,
)
"""The constructors that have certified answers."""
