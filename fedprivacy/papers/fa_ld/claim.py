"""FA-LD (Deng et al.): Theorem 6.1 (G.3) as printed, its hypothesis checked, and its verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...bound import Bound, Verdict
from ...errors import half_open_unit, listed, probability, require
from ...mechanisms import FederatedLangevin
from ...questions.claim import Claim, judged
from ...questions.epsilon import epsilon as epsilon_of
from ...relations import Adjacency
from ...rounding import THOUSANDS
from ...sampling import Poisson, drawn_once
from ...systems.settings import (
    CLOSED_SHARE,
    COUNT,
    OPEN_SHARE,
    POSITIVE,
    SHARE,
    SettingRule,
    Settings,
    setting,
)

_TOLERANCES = (1e-2, 1e-4, 1e-6)
"""Wanted widths relative to the claim, tried in order until the verdict is clear."""
_PATIENCE = 5.0
"""Seconds after which an account starts no more expensive attempt."""
_ROUNDING = THOUSANDS
"""Largest relative excess of a step size over its limit, for rounding."""
_SCHEMES = ("I", "II")

_AMPLIFIED = (
    "The theorem uses the sampling of clients to amplify a guarantee for a record, not for a "
    "client. If the client's other records are D/2 u and all other clients' records are -D/2 "
    "u, its upload is recognisable under every sampling, so a round has the full loss with the "
    "probability of participation (T4)."
)

BELOW_1 = SettingRule("in [0, 1)", half_open_unit)


@dataclass(frozen=True, kw_only=True)
class TheoremSetting(Settings):
    """The arguments of Theorem 6.1; see ``fa_ld_theorem_6_1``.

    Raises:
        ParameterError: a value out of its range, or a step size above the theorem's limit.
    """

    clients: int = setting(COUNT, "N")
    cohort: int = setting(COUNT, "S")
    local_steps: int = setting(COUNT, "K")
    steps: int = setting(COUNT, "T, all local steps, a multiple of K")
    batch_fraction: float = setting(SHARE, "gamma")
    correlation: float = setting(CLOSED_SHARE, "rho")
    temperature: float = setting(POSITIVE, "tau")
    gradient_sensitivity: float = setting(POSITIVE, "D")
    weight: float = setting(SHARE, "min p_c, at most 1 / N")
    step_size: float = setting(POSITIVE, "eta")
    delta0: float = setting(OPEN_SHARE, "of one step")
    delta1: float = setting(BELOW_1, "of K steps; 0: basic composition")
    delta2: float = setting(BELOW_1, "of the rounds; 0: basic composition")
    scheme: str = "II"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = self.steps % self.local_steps == 0
        rule = f"be a multiple of local_steps = {self.local_steps}"
        require(whole, "steps", self.steps, rule)
        known = self.scheme in _SCHEMES
        require(known, "scheme", self.scheme, f"be one of {listed(_SCHEMES)}")
        enough = self.scheme == "I" or self.cohort <= self.clients
        require(enough, "cohort", self.cohort, f"be at most clients = {self.clients}")
        fits = self.weight * self.clients <= 1.0 + 1e-9
        require(fits, "weight", self.weight, f"be at most 1 / clients = {1.0 / self.clients:g}")
        small = self.step_size <= self.step_limit * (1.0 + _ROUNDING)
        rule = f"be at most {self.step_limit:.6g}, the limit of Theorem 6.1"
        way_out = f"use smaller steps, or account for {self.step_size:g} with FederatedLangevin"
        if self.correlation == 1.0:
            way_out = "with correlation 1 all noise is shared, so no epsilon is finite"
        require(small, "step_size", self.step_size, rule, way_out)

    @property
    def rounds(self) -> int:
        """T / K."""
        return self.steps // self.local_steps

    @property
    def deltas(self) -> tuple[float, float, float]:
        """The theorem's three deltas."""
        return self.delta0, self.delta1, self.delta2

    @property
    def step_limit(self) -> float:
        """Largest step size that the theorem covers."""
        private = self.temperature * (1.0 - self.correlation) * (1.0 + self.correlation)
        scale = self.batch_fraction / self.gradient_sensitivity
        return private * self.weight * scale * scale / math.log(1.25 / self.deltas[0])

    @property
    def drawn(self) -> float:
        """Probability, in the theorem, that a client is in a round's cohort."""
        if self.scheme == "II":
            return self.cohort / self.clients
        return drawn_once(self.cohort, 1.0 / self.clients).rate

    def upload(self, weight: float) -> FederatedLangevin:
        """Return one upload of a client of this weight."""
        return FederatedLangevin(
            step_size=self.step_size,
            temperature=self.temperature,
            correlation=self.correlation,
            weight=weight,
            batch_fraction=self.batch_fraction,
            gradient_sensitivity=self.gradient_sensitivity,
            steps=self.local_steps,
        )


def fa_ld_theorem_6_1(
    *,
    clients: int,
    cohort: int,
    local_steps: int,
    steps: int,
    batch_fraction: float,
    correlation: float,
    temperature: float,
    gradient_sensitivity: float,
    weight: float,
    step_size: float,
    delta0: float,
    delta1: float,
    delta2: float,
    scheme: str = "II",
    weights: Sequence[float] | None = None,
) -> Claim:
    """Return the claim of FA-LD's Theorem 6.1 for a setting, with a verdict on it.

    The unit is a record, and neighbours differ by replacing one (replace_one). The verdict is based
    on a sound account for an observer of the uploads. It uses T1 for each local step at the
    client's own multiplier, and composes K steps (an upload hides the steps in between). It then
    uses T4 with the client's probability of being in the cohort, and composes T / K rounds. Every
    client is accounted separately, and the largest result is taken. Under scheme I client c is
    drawn with p_c, whereas the theorem has 1 / N. A client drawn twice counts its one run twice, so
    it is seen with probability 1 - (1 - p_c)^S.

    Args:
        clients: N.
        cohort: S, drawn without replacement (scheme II) or with (scheme I).
        local_steps: K.
        steps: T, total number of local steps, a multiple of K.
        batch_fraction: gamma.
        correlation: rho.
        temperature: tau.
        gradient_sensitivity: D, the largest distance of two records' gradients.
        weight: min p_c, at most 1 / N.
        step_size: eta, at most tau (1 - rho^2) gamma^2 min p_c / (D^2 log(1.25 / delta0)).
        delta0: in (0, 1).
        delta1: in [0, 1); 0 means basic composition of the K steps.
        delta2: in [0, 1); 0 means basic composition of the rounds.
        scheme: "I" or "II".
        weights: p_c of every client; needed under scheme I unless all are 1 / N.

    Returns:
        A Claim; a claimed delta of 1 or more promises no privacy and HOLDS.

    Raises:
        ParameterError: a value out of its range; a step size above the theorem's limit, which the
            theorem does not cover; scheme I with weights that are not equal and not given.
    """
    # All arguments except the weights are the fields of one value.
    given = {name: value for name, value in locals().items() if name != "weights"}
    setting = TheoremSetting(**given)
    shares = _shares(setting, weights)
    claimed, delta = _formula(setting, amplified=True)
    if delta >= 1.0:
        reason = f"delta = {delta:.6g} is claimed, but a delta of 1 or more has no meaning."
        return Claim(claimed, delta, Verdict.HOLDS, reason)
    bound = _judge(setting, shares, claimed, delta)
    fails = bound.verdict(claimed) is Verdict.FAILS
    return judged(claimed, delta, bound, _AMPLIFIED if fails else "")


def theorem_6_1_repaired(setting: TheoremSetting) -> tuple[float, float]:
    """Return Theorem 6.1's (epsilon, delta) under scheme II with its wrong step corrected.

    A round's epsilon is that of the K local steps, not amplified. Its delta keeps the factor S / N
    (T4 at a point: q delta(epsilon) of the inner loss). The rest is as printed.

    Raises:
        ParameterError: scheme I.
    """
    way_out = "under scheme I a client may be drawn twice"
    require(setting.scheme == "II", "scheme", setting.scheme, "be 'II'", way_out)
    return _formula(setting, amplified=False)


def _shares(setting: TheoremSetting, weights: Sequence[float] | None) -> list[float]:
    """Return the weights to account, ascending: only the smallest, or all distinct ones."""
    if weights is None:
        equal = math.isclose(setting.weight * setting.clients, 1.0)
        rule = "be given under scheme I, where client c is drawn with probability p_c"
        way_out = "pass the weight of every client (weight is their minimum)"
        require(setting.scheme == "II" or equal, "weights", None, rule, way_out)
        return [setting.weight]
    found = [probability(weights=value) for value in weights]
    fits = len(found) == setting.clients and math.isclose(math.fsum(found), 1.0, rel_tol=1e-9)
    rule = f"be {setting.clients} numbers that sum to 1"
    require(fits, "weights", f"{len(found)} numbers", rule)
    smallest = math.isclose(min(found), setting.weight, rel_tol=1e-9)
    require(smallest, "weight", setting.weight, f"be the smallest of weights = {min(found):g}")
    # With equal draw probabilities, the client of least weight has the least noise multiplier.
    return sorted(set(found)) if setting.scheme == "I" else [min(found)]


def _composed(epsilon: float, times: int, slack: float) -> float:
    """Return epsilon min(sqrt(2 k log(1 / slack)) + k (e^epsilon - 1), k); slack 0 gives k."""
    # Beyond 700 e^epsilon overflows, and basic composition is much smaller.
    if slack == 0.0 or epsilon > 700.0:
        return times * epsilon
    advanced = math.sqrt(-2.0 * times * math.log(slack)) + times * math.expm1(epsilon)
    return epsilon * min(advanced, float(times))


def _formula(setting: TheoremSetting, *, amplified: bool) -> tuple[float, float]:
    """Return the theorem's epsilon and delta; without ``amplified`` its corrected form."""
    d0, d1, d2 = setting.deltas
    k, rounds, q = setting.local_steps, setting.rounds, setting.drawn
    private = setting.temperature * (1.0 - setting.correlation) * (1.0 + setting.correlation)
    ratio = setting.step_size * math.log(1.25 / d0) / (private * setting.weight)
    local = _composed(2.0 * setting.gradient_sensitivity * math.sqrt(ratio), k, d1)
    once = _amplify(local, q) if amplified else local
    if setting.scheme == "II":
        each = q * (k * setting.batch_fraction * d0 + d1)
    else:
        each = _redrawn_delta(setting, local)
    return _composed(once, rounds, d2), rounds * each + d2


def _amplify(epsilon: float, q: float) -> float:
    """Return log(1 + q (e^epsilon - 1))."""
    if q == 1.0:
        return epsilon
    if epsilon < 1.0:
        return math.log1p(q * math.expm1(epsilon))
    # e^epsilon may overflow here.
    return float(np.logaddexp(math.log1p(-q), math.log(q) + epsilon))


def _redrawn_delta(setting: TheoremSetting, epsilon: float) -> float:
    """Return scheme I's delta of a round: group privacy for a client drawn s times."""
    d0, d1, _ = setting.deltas
    n, draws = setting.clients, setting.cohort
    total = 0.0
    for s in range(1, draws + 1):
        # A single client is drawn every time, so other counts have probability 0.
        if n == 1 and s < draws:
            continue
        law = math.lgamma(draws + 1) - math.lgamma(s + 1) - math.lgamma(draws - s + 1)
        law += (draws - s) * math.log1p(-1.0 / n) - s * math.log(n) if n > 1 else 0.0
        inner = 1.25 * setting.local_steps * setting.batch_fraction * (d0 / 1.25) ** (1.0 / s**2)
        grown = _log_expm1(epsilon) - _log_expm1(epsilon / s)
        # exp overflows beyond 700, and a delta above 1 promises no privacy anyway.
        total += math.exp(min(law + grown, 700.0)) * (inner + d1)
    return total


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))


def _judge(setting: TheoremSetting, shares: list[float], claimed: float, delta: float) -> Bound:
    """Return the Bound of the deciding client, the one with the largest upper end.

    The largest and the smallest weight are accounted first, because one of them usually decides.
    Then clients of neighbouring weights are accounted together, with the smallest of their
    multipliers and the largest of their probabilities. That bounds each of these clients. Only if
    the claim is then still undecided are they accounted separately.
    """
    for share in (shares[-1], shares[0]):
        extreme = _bound(setting, share, share, claimed, delta, _TOLERANCES[:1])
        if extreme.verdict(claimed) is Verdict.FAILS:
            return extreme
    return _all(setting, shares, claimed, delta)


def _all(setting: TheoremSetting, shares: list[float], claimed: float, delta: float) -> Bound:
    """Return the deciding Bound by halving the clients, ordered by weight."""
    if len(shares) == 1:
        return _bound(setting, shares[0], shares[0], claimed, delta, _TOLERANCES)
    together = _bound(setting, shares[0], shares[-1], claimed, delta, _TOLERANCES[:1])
    if together.verdict(claimed) is Verdict.HOLDS:
        return together
    half = len(shares) // 2
    first = _all(setting, shares[half:], claimed, delta)
    if first.verdict(claimed) is Verdict.FAILS:
        return first
    second = _all(setting, shares[:half], claimed, delta)
    if second.verdict(claimed) is Verdict.FAILS:
        return second
    return max(first, second, key=lambda bound: bound.upper)


def _bound(
    setting: TheoremSetting,
    smallest: float,
    largest: float,
    claimed: float,
    delta: float,
    tolerances: tuple[float, ...],
) -> Bound:
    """Return epsilon's Bound for a client of the smallest weight, drawn like the largest one.

    A client is in the cohort independently in every round with the same probability, as in
    ``Poisson``.
    """
    q = setting.drawn
    if setting.scheme == "I" and largest < 1.0:
        q = drawn_once(setting.cohort, largest).rate
    run = setting.upload(smallest).in_cohort(Poisson(q)) * setting.rounds
    for tolerance in tolerances:
        wanted = tolerance * min(claimed, 1.0)
        bound = epsilon_of(
            run,
            delta=delta,
            adjacency=Adjacency.REPLACE_ONE,
            tolerance=wanted,
            deadline=_PATIENCE,
        )
        # If the verdict is clear, a finer account would give the same verdict.
        if bound.verdict(claimed) is not Verdict.CANNOT_BE_CERTIFIED:
            break
    return bound
