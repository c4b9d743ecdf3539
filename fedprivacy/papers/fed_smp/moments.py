"""Fed-SMP's moments as printed: Lemma 3, the source of its epsilons, and their conversion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from enum import StrEnum

import numpy as np

from ...errors import count, member, moderate, non_negative, open_unit, positive, refuse, require
from ...mechanisms import Gaussian, SampledMechanism
from ...questions.claim import Claim, judged_by_account, sampling_rate_of
from ...relations import Adjacency
from ...sampling import FixedSize, Poisson

LEMMA_3_ORDERS = range(2, 257)
"""Integer orders; Lemma 3's epsilon is the smallest over these orders."""
OPACUS_ORDERS = (*(1.0 + x / 10.0 for x in range(1, 100)), *map(float, range(12, 64)))
"""Default orders of Opacus."""


class Conversion(StrEnum):
    """Conversion of a Rényi divergence to an epsilon; both hold for every order above 1.

    Attributes:
        MIRONOV: Mironov (2017), Proposition 3, which Fed-SMP's paper states as its Lemma 1.
        IMPROVED: Canonne, Kamath and Steinke (2020), Proposition 12; never above the other.
    """

    MIRONOV = "mironov"
    IMPROVED = "improved"


class Cohorts(StrEnum):
    """Scheme of drawing a round's clients.

    Attributes:
        FIXED: a fixed number, without replacement, as in the paper's algorithms.
        POISSON: each client independently; the noise has its full size for every cohort.
    """

    FIXED = "fixed"
    POISSON = "poisson"


def converted_epsilon(
    *,
    order: float,
    divergence: float,
    delta: float,
    conversion: Conversion | str = Conversion.MIRONOV,
) -> float:
    """Return the epsilon at ``delta`` that a Rényi divergence of one order implies.

    ``mironov``: divergence + log(1/delta)/(order - 1). ``improved``: divergence + log(1 - 1/order)
    - (log(delta) + log(order))/(order - 1), at least 0. Both are theorems for any mechanism and any
    order above 1. The number is in double precision, rounded to nearest.

    Args:
        order: above 1, finite.
        divergence: at least 0, of the same order, over all rounds.
        delta: in (0, 1).
        conversion: "mironov" or "improved".

    Raises:
        ParameterError: a value out of its range.
    """
    above = positive(order=order) - 1.0
    if above <= 0.0:
        refuse("order", order, "be above 1", "the divergence of order 1 implies no epsilon")
    total, log_delta = non_negative(divergence=divergence), math.log(open_unit(delta=delta))
    if member(Conversion, conversion=conversion) is Conversion.MIRONOV:
        return total - log_delta / above
    return max(total + math.log1p(-1.0 / order) - (log_delta + math.log(order)) / above, 0.0)


def lemma_3_divergence(
    *, order: int, sampling_probability: float, noise_multiplier: float, sensitivity: float = 1.0
) -> float:
    """Return Lemma 3's bound on one round's Rényi divergence, the sum as printed.

    With rho(j) = j (sensitivity/sigma)^2/2, the divergence of the Gaussian mechanism, it is log(1 +
    q^2 C(a,2) min(4 (e^rho(2) - 1), 2 e^rho(2)) + sum_{j=3}^a q^j C(a,j) 2 e^((j-1) rho(j)))/(a -
    1). Wang, Balle and Kasiviswanathan (2019) prove it for cohorts of fixed size and replaced
    clients. ``sensitivity`` must then be the change of the sum if one client *of the cohort* is
    replaced, in clip norms, which is 2.

    Args:
        order: a, an integer from 2 to 10,000.
        sampling_probability: q, in (0, 1].
        noise_multiplier: sigma, std of the summed noise over the clip norm.
        sensitivity: in clip norms.

    Raises:
        ParameterError: a value out of its range; Lemma 3 covers only integer orders from 2.
    """
    whole, rate = count(order=order), positive(sampling_probability=sampling_probability)
    require(2 <= whole <= 10000, "order", order, "be an integer from 2 to 10000")
    require(rate <= 1.0, "sampling_probability", rate, "be at most 1")
    shift = moderate(sensitivity=sensitivity) / moderate(noise_multiplier=noise_multiplier)
    unit = 0.5 * shift * shift
    # The smaller of the two: 4 (e^x - 1) is below 2 e^x if e^x is below 2.
    least = math.log(2.0) + 2.0 * unit
    if 2.0 * unit < math.log(2.0):
        least = math.log(4.0 * math.expm1(2.0 * unit))
    # In logarithms, because terms overflow at large orders.
    logs = [2.0 * math.log(rate) + math.log(math.comb(whole, 2)) + least]
    for j in range(3, whole + 1):
        chosen = j * math.log(rate) + math.log(math.comb(whole, j))
        logs.append(chosen + math.log(2.0) + (j - 1.0) * j * unit)
    return float(np.logaddexp(0.0, np.logaddexp.reduce(logs))) / (whole - 1.0)


def fed_smp_lemma_3(
    *,
    population: int,
    cohort: int,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    sensitivity: float = 1.0,
    conversion: Conversion | str = Conversion.MIRONOV,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
) -> Claim:
    """Return the epsilon of Fed-SMP's Lemma 3 and Lemma 1 for a setting, with a verdict on it.

    The order is the best integer from 2 to 256. The paper uses the Gaussian mechanism of
    sensitivity 1 (in clip norms). The verdict is for the printed algorithm: the account uses
    cohorts of fixed size, where one client moves the sum by 2. With ``sensitivity=2`` the number
    holds, for both add_remove and replace_one, and is larger than necessary.

    Args:
        population: n. This and the next four arguments are those of ``fed_smp_theorem_1``.
        cohort: r.
        noise_multiplier: sigma.
        rounds: T.
        delta: in (0, 1).
        sensitivity: assumed change of the sum by a client, in clip norms.
        conversion: "mironov", the paper's, or "improved".
        adjacency: adjacency of the account for the verdict; the paper's is "add_remove".

    Raises:
        ParameterError: a value out of its range.
    """
    rate, scheme = sampling_rate_of(population, cohort), FixedSize(cohort, population=population)
    known = {"sampling_probability": rate, "noise_multiplier": noise_multiplier}
    total = count(rounds=rounds)

    def divergence(order: float) -> float:
        one = lemma_3_divergence(order=int(order), sensitivity=sensitivity, **known)
        return total * one

    claimed, order = _best(LEMMA_3_ORDERS, divergence, delta, conversion)
    step = Gaussian(noise_multiplier=noise_multiplier, unit="client").sampled(scheme)
    remark = (
        f"{_named(order)} The claim assumes a sensitivity of {sensitivity:g} clip norms; with "
        "a fixed cohort size another client takes the place of an absent one, so the "
        "sensitivity is 2."
    )
    return judged_by_account(claimed, delta, step * total, adjacency, remark=remark)


def fed_smp_printed_epsilon(
    *,
    population: int,
    cohort: int,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    conversion: Conversion | str = Conversion.MIRONOV,
    cohorts: Cohorts | str = Cohorts.FIXED,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
) -> Claim:
    """Return the epsilon of Fed-SMP's tables for a setting, with a verdict on it.

    The paper's epsilons on Fashion-MNIST are those of Poisson cohorts and add_remove, from the
    moments of the sampled Gaussian mechanism at ``OPACUS_ORDERS`` and Mironov's conversion. They
    hold for ``cohorts="poisson"``, and fail for cohorts of fixed size, as in its algorithms.

    Args:
        population: n, number of clients, the client in question included.
        cohort: r, number of clients in a round, or the mean number if it varies.
        noise_multiplier: sigma, std of the summed noise over the clip norm.
        rounds: T.
        delta: in (0, 1).
        conversion: "mironov", the paper's, or "improved".
        cohorts: scheme of the verdict, "fixed" as printed or "poisson".
        adjacency: adjacency of the account for the verdict; the paper's is "add_remove".

    Raises:
        ParameterError: a value out of its range.
    """
    rate, total = sampling_rate_of(population, cohort), count(rounds=rounds)
    step = Gaussian(noise_multiplier=noise_multiplier, unit="client")
    varying = step.sampled(Poisson(rate))
    curve = varying.privacy_loss(Adjacency.ADD_REMOVE).curve

    def divergence(order: float) -> float:
        # A log moment is at least 0, apart from rounding.
        return total * max(curve.moments().log_moment(order), 0.0) / (order - 1.0)

    claimed, order = _best(OPACUS_ORDERS, divergence, delta, conversion)
    remark = f"{_named(order)} The moments are those of Poisson cohorts under add_remove."
    drawn: SampledMechanism = varying
    if member(Cohorts, cohorts=cohorts) is Cohorts.FIXED:
        drawn = step.sampled(FixedSize(cohort, population=population))
        remark += (
            " Cohorts of fixed size are a different mechanism, since another client takes the "
            "place of an absent one."
        )
    return judged_by_account(claimed, delta, drawn * total, adjacency, remark=remark)


def _best(
    orders: Iterable[float],
    divergence: Callable[[float], float],
    delta: float,
    conversion: Conversion | str,
) -> tuple[float, float]:
    """Return the smallest epsilon over orders, and its order."""
    known = ((float(order), divergence(order)) for order in orders)
    found = [
        (converted_epsilon(order=order, divergence=d, delta=delta, conversion=conversion), order)
        for order, d in known
        # An infinite moment implies no epsilon.
        if math.isfinite(d)
    ]
    return min(found, default=(math.inf, math.inf))


def _named(order: float) -> str:
    if math.isinf(order):
        return "No tried order has a finite divergence, so there is no claim."
    return f"The best order is {order:g}."
