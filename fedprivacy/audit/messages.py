"""Text for readers: guarantees, attacks, mechanisms and samplers in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from decimal import ROUND_CEILING
from typing import Any, NamedTuple

from .. import mechanisms, sampling
from ..bound import Bound, exactly, shown
from ..errors import FedPrivacyError
from ..evidence import Validity
from ..mechanisms.clear import WithoutNoise
from ..questions.risk import attack_risk
from ..relations import Adjacency, Observer, Unit
from .accounting import Audit
from .judging import SINGLE

_WHO = {
    Observer.AGGREGATE: "An attacker who sees every release but not the participants",
    Observer.SERVER: "An attacker who sees every release and the participants",
    Observer.FINAL: "An attacker who sees only the last release",
}
_WHAT = {
    Adjacency.ADD_REMOVE: "whether the data of one {unit} were in the training",
    Adjacency.ZERO_OUT: "whether the contribution of one {unit} was used or set to zero",
    Adjacency.REPLACE_ONE: "which of two possible data sets one {unit} had",
}
RATES = (0.01, 0.001)
"""False-positive rates at which the report states an attacker's success."""

TELLING = 3.0
"""Up to this epsilon the text states the ratio of the two rates; above, the ratio is not
informative.
"""

GLOSSARY = {
    "unit": (
        "The privacy unit: the data that are protected together, either all data of one client "
        "or one record."
    ),
    "adjacency": (
        "How two neighbouring data sets differ: one unit is present or absent (add_remove), "
        "contributes or sends zero (zero_out), or has other data (replace_one)."
    ),
    "observer": (
        "What the attacker sees: every release but not the participants (aggregate), both "
        "(server), or the last release only (final)."
    ),
    "epsilon, delta": (
        "The probability of every event is at most e^epsilon times its probability for a "
        "neighbouring data set, plus delta."
    ),
    "certified": "Proved, with all rounding errors included; neither estimated nor measured.",
    "privacy profile": (
        "The smallest delta at every epsilon. It is the complete guarantee; one pair (epsilon, "
        "delta) is one point."
    ),
    "trade-off": (
        "The false-negative rate of the best test at each false-positive rate. A curve further "
        "below the line of random guessing is less private."
    ),
    "certified interval": (
        "It contains the epsilon of the worst-case pair of data sets: one pair attains the "
        "lower end, and no pair exceeds the upper end."
    ),
    "advantage": (
        "The largest difference between the true-positive rate and the false-positive rate of "
        "any test."
    ),
}


def in_words(bound: Bound) -> str:
    """Return the meaning of an epsilon bound, in two sentences."""
    unit = str(bound.unit or "unit")
    what = _WHAT[bound.adjacency].format(unit=unit)
    if math.isinf(bound.upper):
        most = "holds" if bound.closed else f"is certified. It is at least {bound.ends()[0]}"
        return f"{_WHO[bound.observer]} may learn {what}: no finite epsilon {most}."
    text = f"(epsilon = {bound.ends()[1]}, delta = {exactly(bound.given)})"
    # Above this epsilon the factor is too large to be informative.
    if bound.upper <= TELLING:
        factor = shown(math.exp(bound.upper), 3, ROUND_CEILING)
        rates = (
            f"at most {factor} times its false-positive rate plus {exactly(bound.given)} "
            f"{text}. This "
        )
    else:
        rates = f"limited by {text}. This "
    return (
        f"{_WHO[bound.observer]} cannot reliably infer {what}. The true-positive rate of every "
        f"test is {rates}holds for all background knowledge, under the assumptions below."
    )


_CONDITION = {
    Validity.RECORDED: "For the recorded rounds only, not for rounds that may be missing: ",
    Validity.SECRET_SEED: "Only against attackers who do not know the fixed seed: ",
    Validity.PUBLIC_DENOMINATOR: (
        "Only if the denominators, which are not recorded, do not depend on the data: "
    ),
    Validity.SECRET_ABORTS: "Only if aborts do not depend on the cohort sizes: ",
    Validity.DENIED: "Only if the stated parameters are right, but the record contradicts them: ",
}


def guarantee(found: Audit) -> str:
    """Return the guarantee of an audit, with its conditions; empty if the bounds are void."""
    return "" if found.void else _condition(found) + in_words(found.bound)


def _condition(found: Audit) -> str:
    """Return all conditions of the numbers: a record with gaps may also have a fixed seed."""
    return "".join(_CONDITION[numbers] for numbers in found.conditions)


_TO = {
    str(Observer.AGGREGATE): "For an attacker who sees every release but not the participants",
    str(Observer.SERVER): "For the server, which knows the participants",
    str(Observer.FINAL): "For an attacker who sees only the last release",
    SINGLE: "For a server that sees each upload separately",
}


def others_in_words(found: Audit) -> str:
    """Return one sentence with epsilon for every other known observer; empty if there is none."""
    if found.void:
        return ""
    text = []
    for observer, bounds in found.bounds.items():
        best = min(bounds.values(), key=lambda bound: bound.upper)
        if observer != str(found.facts.observer) and observer in _TO:
            end = (
                "no finite epsilon"
                if math.isinf(best.upper)
                else f"epsilon at most {best.ends()[1]}"
            )
            text.append(f"{_TO[observer]}: {end}.")
    return _condition(found) + " ".join(text) if text else ""


class AttackLimits(NamedTuple):
    """Upper ends of every attack's advantage, and of its true-positive rates at ``RATES``."""

    advantage: float
    rates: list[float]


def attack_limits(found: Audit) -> AttackLimits | None:
    """Return certified limits of every attack; None without a finite epsilon."""
    if found.void or math.isinf(found.bound.upper):
        return None
    return AttackLimits(*_attack(found))


def attack_in_words(found: Audit, limits: AttackLimits | None = None) -> str:
    """Return certified limits of every attack in words; empty without a finite epsilon.

    Args:
        found: the audit.
        limits: if they are known already.
    """
    known = attack_limits(found) if limits is None else limits
    if known is None:
        return ""
    advantage, rates = known
    text = " and ".join(
        (
            f"{shown(100.0 * tpr, 3, ROUND_CEILING)} % at a false-positive rate of "
            f"{exactly(100 * fpr)} %"
        )
        for fpr, tpr in zip(RATES, rates, strict=True)
    )
    return (
        f"{_condition(found)}The true-positive rate of the best attack is at most {text}. Its "
        f"advantage is at most {shown(advantage, 3, ROUND_CEILING)} (1 is the maximum)."
    )


def _attack(found: Audit) -> tuple[float, list[float]]:
    """Return upper ends of the advantage and of the true-positive rates at ``RATES``."""
    bound = found.bound
    rates = [largest_rate(bound.upper, bound.given, fpr) for fpr in RATES]
    # The advantage is tanh(epsilon / 2) plus delta, at equal error rates: Kairouz, Oh and Viswanath
    # 2015.
    advantage = min(1.0, math.tanh(bound.upper / 2.0) + bound.given)
    # The bound of a filter also covers rounds that other outputs would have led to, not only this
    # run.
    if found.run is None or "filter" in found.bounds[str(found.facts.observer)]:
        return advantage, rates
    try:
        risk = attack_risk(
            found.run,
            adjacency=found.facts.adjacency,
            observer=found.facts.observer,
            fpr=RATES,
            tolerance=0.05,
        )
    except (FedPrivacyError, OverflowError):
        return advantage, rates
    exact = [min(float(end), rate) for end, rate in zip(risk.tpr.upper, rates, strict=True)]
    return min(risk.advantage.upper, advantage), exact


def largest_rate(epsilon: float, delta: float, fpr: float) -> float:
    """Return the largest true-positive rate that (epsilon, delta) allows, in both directions."""
    # The limit avoids an overflow. The rate is already 1 there.
    one = math.exp(min(epsilon, 700.0)) * fpr + delta
    other = 1.0 - math.exp(-epsilon) * (1.0 - delta - fpr)
    return max(fpr, min(1.0, one, other))


# ---- mechanisms


def described(mechanism: mechanisms.Mechanism, count: int = 1) -> str:
    """Return the mechanism and its number of rounds, in words."""
    scheme = mechanism.scheme if isinstance(mechanism, mechanisms.SampledMechanism) else None
    epoch = getattr(scheme, "rounds_per_epoch", None)
    if epoch is None:
        often = "once" if count == 1 else f"{count:,} rounds"
    else:
        often = f"{count:,} epoch{'s' if count > 1 else ''} of {epoch:,} rounds"
    return f"{_mechanism(mechanism)}; {often}"


def _mechanism(mechanism: Any) -> str:
    if isinstance(mechanism, mechanisms.SampledMechanism):
        return f"{_mechanism(mechanism.inner)}; {scheme_in_words(mechanism.scheme)}"
    if isinstance(mechanism, mechanisms.HeldMechanism):
        records = scheme_in_words(mechanism.scheme).replace("units", "records")
        held = f"for a client with at most {mechanism.held:,} of the records"
        return f"{_mechanism(mechanism.inner)}; {records}; {held}"
    if isinstance(mechanism, mechanisms.CohortMechanism):
        clients = scheme_in_words(mechanism.scheme).replace("units", "clients")
        return f"inside one client, {clients}: {_mechanism(mechanism.inner)}"
    return _WORDS.get(type(mechanism), _by_its_fields)(mechanism)


def _sparsified(m: mechanisms.SparsifiedPerturbation) -> str:
    if m.kept == m.dimension:
        name = "DP-FedAvg: the sum"
    else:
        sparsifier = str(m.sparsifier).replace("_", "-")
        name = f"Fed-SMP, {sparsifier}, {m.kept:,} of {m.dimension:,} coordinates: the sum"
    less = [f"{n} {word}" for n, word in ((m.missing, "missing"), (m.colluding, "colluding")) if n]
    shares = f", {' and '.join(less)} shares of it subtracted" if less else ""
    return (
        f"{name} of {m.cohort:,} clients' updates, each clipped to norm "
        f"{exactly(m.clip_norm)}, with Gaussian noise of std {exactly(m.noise_multiplier)} clip "
        f"norms{shares}"
    )


def _integers(m: mechanisms.IntegerPerturbation) -> str:
    kind = "Skellam" if m.divisible else "discrete Gaussian"
    turned = "rotated, " if m.rotated else ""
    whole = f"{turned}rounded to multiples of {exactly(m.grid)} and summed modulo 2^{m.bits}"
    return f"{_sparsified(m).replace('Gaussian', kind)}; updates are {whole}"


def _in_sequence(run: mechanisms.Run) -> str:
    """Return the releases of one round with several noisy sums, in words."""
    return " and ".join(f"{count:,} times {_mechanism(part)}" for part, count in run.sequence())


def _factor(m: mechanisms.CorrelatedNoise) -> str:
    """Return the factor that correlates the noise, its restart period, and its coordinates."""
    block, text = m.factor.block(m.rounds), type(m.factor).__name__
    if block < m.rounds:
        text += f" restarted every {block:,} rounds"
    if m.kept is not None:
        text += f"; {m.kept:,} of {m.dimension:,} coordinates, the same ones until the restart"
    return text


_FEDAVG = "DP-FedAvg: the sum of clients' clipped updates"

_WORDS: dict[type, Callable[[Any], str]] = {
    mechanisms.Run: _in_sequence,
    mechanisms.Gaussian: lambda m: (
        f"{_FEDAVG if m.protects is Unit.CLIENT else 'the sum of clipped contributions'} with "
        f"Gaussian noise of std {exactly(m.noise_multiplier)} clip norms"
    ),
    mechanisms.AdaptiveClipping: lambda m: (
        f"{_FEDAVG if m.protects is Unit.CLIENT else 'the sum of clipped contributions'} and "
        "of bits for the norms within the threshold, with Gaussian noise of std "
        f"{exactly(m.noise_multiplier)} times their joint norm; the next clip norm tracks the "
        f"quantile {exactly(m.quantile)}"
    ),
    WithoutNoise: lambda m: "the sum of clipped contributions, without noise",
    mechanisms.Laplace: lambda m: (
        f"the sum of clipped contributions with Laplace noise of scale "
        f"{exactly(m.noise_multiplier)} clip norms"
    ),
    mechanisms.SparsifiedPerturbation: _sparsified,
    mechanisms.CorrelatedNoise: lambda m: (
        f"{'DP-FTRL: ' if m.protects is Unit.CLIENT else ''}{m.rounds:,} sums of clipped "
        f"contributions with Gaussian noise of std {exactly(m.noise_multiplier)} clip norms, "
        f"correlated from round to round ({_factor(m)}), accounted as one release"
    ),
    mechanisms.DistributedDiscreteGaussian: _integers,
    mechanisms.Skellam: _integers,
}

_NAMES = {
    "FederatedLangevin": "FA-LD, one upload of a client",
    "FederatedHamiltonian": "FA-HMC, one upload of a client",
    "NoisyGradientDescent": "noisy gradient descent, one local solve",
    "HiddenAveraging": "averaging of local steps, released at its end",
    "NoisySGD": "noisy SGD, released at its end",
    "SplittingRun": "Fed-PLT, a whole run",
    "ApproximateDp": "a release known only by its (epsilon, delta)",
    "RenyiDp": "a release known only by its Renyi divergences",
    "Parallel": "units of several kinds, accounted by the worst kind",
}


def _by_its_fields(mechanism: Any) -> str:
    kind = type(mechanism).__name__
    known = [(each.name, getattr(mechanism, each.name)) for each in fields(mechanism)]
    text = [
        f"{name.replace('_', ' ')} {exactly(value)}"
        for name, value in known
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return f"{_NAMES.get(kind, kind)} ({', '.join(text)})" if text else _NAMES.get(kind, kind)


_SCHEMES: dict[type, Callable[[Any], str]] = {
    sampling.Poisson: lambda s: (
        "a random cohort: every unit takes part with probability "
        f"{exactly(s.probability)} (Poisson)"
    ),
    sampling.TruncatedPoisson: lambda s: (
        f"every unit of {s.population:,} takes part with probability {exactly(s.probability)}, "
        f"at most {s.largest:,} of them (truncated Poisson)"
    ),
    sampling.FixedSize: lambda s: (
        f"{s.size:,} of {s.population:,} units are drawn anew every round, without replacement"
    ),
    sampling.WithReplacement: lambda s: (
        f"{s.draws:,} draws from "
        + (
            f"{s.population:,} units"
            if s.population
            else (f"units of probability {exactly(s.chance)} each")
        )
        + " every round, with replacement"
    ),
    sampling.Shuffled: lambda s: (
        f"every unit is in exactly one of the {s.rounds_per_epoch:,} rounds of an epoch (shuffled)"
    ),
    sampling.RandomAllocation: lambda s: (
        f"every unit draws {'one' if s.take == 1 else s.take} of the {s.rounds_per_epoch:,} "
        f"rounds of an epoch{' (balls in bins)' if s.take == 1 else ''}"
    ),
    sampling.Everyone: lambda s: "all units take part in every round",
}


def participation_in_words(rule: Any) -> str:
    """Return the participation limits for correlated noise, in words."""
    most = getattr(rule, "at_most", 1)
    apart = getattr(rule, "separation", None)
    times = (
        "at most once"
        if most == 1
        else f"at most {most:,} times"
        if most
        else ("any number of times")
    )
    soon = "" if most == 1 or apart is None else f", at least {apart:,} rounds apart"
    return f"every unit takes part {times}{soon}; no guarantee depends on sampling"


def scheme_in_words(scheme: Any) -> str:
    """Return a sampling scheme in words."""
    return _SCHEMES.get(type(scheme), repr)(scheme)
