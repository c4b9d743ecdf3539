"""Convergence of generalised FedAvg with two step sizes (Yang, Fang and Liu).

``docs/theory/averaging.md`` lists the errors in the printed theorems and proves the corrections.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ...errors import count, member, moderate, moderate_or_zero, refuse, require
from ...rounding import THOUSANDS
from ...theory import search
from ..statement import Statement

_ASSUMED = (
    "every client's loss has an L-Lipschitz gradient (Assumption 1)",
    "stochastic gradients are unbiased, their noise independent between clients (Assumption 2)",
    "stochastic gradients have at most the stated variance, and every client's gradient lies "
    "within sqrt(heterogeneity) of the mean at every iterate (Assumption 3)",
)
_PRIVATE = "no update is clipped; the privacy noise is independent of everything else"


class ParticipationScheme(StrEnum):
    """Scheme of the participation in a round."""

    EVERYONE = "everyone"
    WITH_REPLACEMENT = "with_replacement"
    """Strategy 1: n independent draws; the one update of a client drawn twice counts twice."""
    WITHOUT_REPLACEMENT = "without_replacement"
    """Strategy 2: n different clients."""


@dataclass(frozen=True, kw_only=True)
class ConvergenceBound(Statement):
    """A bound on the squared gradient norm, and the terms of its sum.

    Attributes:
        terms: (name, value) pairs; they add up to ``value``.
    """

    terms: tuple[tuple[str, float], ...]

    def term(self, name: str) -> float:
        """Return one term."""
        return dict(self.terms)[name]


class FedAvgSteps(NamedTuple):
    """The clients' step size and the server's."""

    local: float
    server: float


class _Draw(NamedTuple):
    """Effect of sampling n of m clients on the second moment of their mean.

    ``noise`` is the variance of the mean of unit noises. ``spread`` is the variance of the mean of
    unit vectors that differ. ``limit`` is the largest server_learning_rate * learning_rate * K * L.
    """

    noise: float
    spread: float
    limit: float


def two_sided_bound(
    *,
    clients: int,
    local_steps: int,
    rounds: int,
    smoothness: float,
    gap: float,
    gradient_variance: float,
    heterogeneity: float,
    learning_rate: float,
    server_learning_rate: float,
    participation: ParticipationScheme | str = ParticipationScheme.EVERYONE,
    cohort: int | None = None,
    noise_std: float = 0.0,
    dimension: int | None = None,
    as_printed: bool = False,
) -> ConvergenceBound:
    """Return a bound on the smallest expected squared gradient norm over the rounds.

    These are Theorems 1 and 2 of the paper, corrected. The paper's proofs drop the correlation
    between the noise of one local step and the gradients of later ones. The correction costs a
    factor of 2 in some terms and halves the largest product of the step sizes. The free constant c
    is the largest value that the proof allows.

    Args:
        clients: m.
        local_steps: K, steps of SGD in a client's round.
        rounds: T.
        smoothness: L, the Lipschitz constant of every client's gradient.
        gap: objective at the start minus its infimum.
        gradient_variance: sigma_L^2, variance of a client's stochastic gradient (its norm).
        heterogeneity: sigma_G^2, largest squared distance of a client's gradient from the mean.
        learning_rate: eta_L, at most 1 / (8 L K).
        server_learning_rate: eta.
        participation: "everyone", "with_replacement" (strategy 1) or "without_replacement" (2).
        cohort: n, the number of draws in a round; left out for "everyone".
        noise_std: std, in every coordinate, of the privacy noise on the sum of a round's updates.
        dimension: number of coordinates; needed with noise.
        as_printed: use the paper's constants and conditions, which are not all true.

    Returns:
        A ConvergenceBound with the terms "optimisation", "gradient noise", "sampling", "drift" and
            "privacy noise". The last term is ours: the server adds noise of std ``noise_std`` /
            cohort to the mean.

    Raises:
        ParameterError: a value out of range, or a condition of the theorem that fails.
    """
    k, smooth = count(local_steps=local_steps), moderate(smoothness=smoothness)
    inner, outer = (
        moderate(learning_rate=learning_rate),
        moderate(server_learning_rate=server_learning_rate),
    )
    kind = member(ParticipationScheme, participation=participation)
    m, n = _sizes(clients, cohort, kind)
    weight = 1.0 if as_printed else 2.0
    draw = _draw(kind, m, n, weight, as_printed)
    product = smooth * inner * outer
    checked = _check_steps(smooth * inner * k, product * k, draw)
    amplified = 90.0 * k * (smooth * inner * k) ** 2 + 3.0 * k
    c = 0.5 - 15.0 * (smooth * inner * k) ** 2 - 0.5 * weight * draw.spread * product * amplified
    require(c > 0.0, "c", c, "be above 0", "use smaller step sizes or a larger cohort")
    sigma, apart = moderate_or_zero(gradient_variance=gradient_variance), heterogeneity
    local = sigma + 6.0 * k * moderate_or_zero(heterogeneity=apart)
    curved = (smooth * inner) ** 2 * k
    per_round = inner * outer * k
    drift = 2.5 * curved + 7.5 * weight * draw.spread * product * curved * k
    terms = {
        "optimisation": moderate_or_zero(gap=gap) / (per_round * count(rounds=rounds)),
        "gradient noise": 0.5 * weight * product * draw.noise * sigma,
        "sampling": 1.5 * weight * product * k * draw.spread * apart,
        "drift": drift * local,
        "privacy noise": _privacy_noise(noise_std, dimension, smooth * outer / (inner * k), n),
    }
    return ConvergenceBound(
        value=math.fsum(terms.values()) / c,
        theorem=f"Yang et al., Theorem {1 if kind is ParticipationScheme.EVERYONE else 2}"
        + (", as printed" if as_printed else ", repaired"),
        checked=(*checked, f"c = {c:.6g} > 0"),
        assumed=(*_ASSUMED, _PRIVATE) if terms["privacy noise"] else _ASSUMED,
        bound=not as_printed,
        terms=tuple((name, value / c) for name, value in terms.items()),
    )


def recommended_steps(
    *, local_steps: int, rounds: int, smoothness: float, cohort: int
) -> FedAvgSteps:
    """Return the step sizes of Corollaries 1 and 2: 1 / (sqrt(T) K L) and sqrt(K n).

    With them, from ``rounds_needed`` rounds on, the bound falls as 1/sqrt(m K T) + 1/T if all
    clients take part. It falls as sqrt(K)/sqrt(n T) + 1/T if n of m do.

    Args:
        local_steps: K.
        rounds: T.
        smoothness: L.
        cohort: m if all clients take part, else n.

    Raises:
        ParameterError: a value out of its range.
    """
    k = count(local_steps=local_steps)
    slow = math.sqrt(count(rounds=rounds)) * k * moderate(smoothness=smoothness)
    return FedAvgSteps(1.0 / slow, math.sqrt(k * count(cohort=cohort)))


def rounds_needed(
    *,
    clients: int,
    local_steps: int,
    participation: ParticipationScheme | str = ParticipationScheme.EVERYONE,
    cohort: int | None = None,
    as_printed: bool = False,
) -> int:
    """Return the least number of rounds for which the recommended steps meet every condition.

    The corollaries do not state this requirement. It is at least 64 rounds. With all clients in
    every round it is also at least m K as printed and 4 m K corrected. Arguments and errors are
    those of ``two_sided_bound``.
    """
    kind = member(ParticipationScheme, participation=participation)
    k = count(local_steps=local_steps)
    m, n = _sizes(clients, cohort, kind)
    draw = _draw(kind, m, n, 1.0 if as_printed else 2.0, as_printed)
    require(draw.limit > 0.0, "cohort", n, "be above 1", "the printed condition excludes it")
    rounds = max(64, math.ceil(k * n / draw.limit**2))

    def meets(t: int) -> bool:
        steps = recommended_steps(local_steps=k, rounds=t, smoothness=1.0, cohort=n)
        try:
            two_sided_bound(
                clients=m,
                local_steps=k,
                rounds=t,
                smoothness=1.0,
                gap=1.0,
                gradient_variance=0.0,
                heterogeneity=0.0,
                learning_rate=steps.local,
                server_learning_rate=steps.server,
                participation=kind,
                cohort=None if kind is ParticipationScheme.EVERYONE else n,
                as_printed=as_printed,
            )
        # A failed condition raises; here it means that the number of rounds is too small.
        except ValueError:
            return False
        return True

    # Starts one lower, because the closed form may be rounded up.
    return search.first(meets, max(rounds - 1, 1))


def _sizes(clients: int, cohort: int | None, kind: ParticipationScheme) -> tuple[int, int]:
    """Return (m, n)."""
    m = count(clients=clients)
    if kind is ParticipationScheme.EVERYONE:
        if cohort is not None:
            refuse("cohort", cohort, "be left out", "all clients take part")
        return m, m
    n = count(cohort=cohort)
    enough = n <= m or kind is ParticipationScheme.WITH_REPLACEMENT
    require(enough, "cohort", n, f"be at most clients = {m}")
    return m, n


def _draw(kind: ParticipationScheme, m: int, n: int, weight: float, as_printed: bool) -> _Draw:
    """Return the moments of a draw; second moments are multiplied by ``weight``."""
    # If all clients are drawn, no client is left out by chance.
    if n == m and kind is not ParticipationScheme.WITH_REPLACEMENT:
        return _Draw(1.0 / m, 0.0, 1.0 / weight)
    if kind is ParticipationScheme.WITHOUT_REPLACEMENT:
        limit = _limit(n * (m - 1), weight * m * (n - 1))
        return _Draw(1.0 / n, (m - n) / (n * (m - 1)), limit)
    if as_printed:
        return _Draw(1.0 / n, 1.0 / n, (n - 1) / n)
    return _Draw((1.0 + (n - 1) / m) / n, 1.0 / n, _limit(n, weight * (n - 1)))


def _limit(above: float, below: float) -> float:
    """Return a quotient; infinity for a single client, whose draw sets no limit."""
    return above / below if below else math.inf


def _check_steps(local: float, product: float, draw: _Draw) -> tuple[str, ...]:
    """Check the step sizes' conditions, in units of 1 / (K L); return the conditions as text."""
    # Recommended steps may meet a limit with equality, apart from rounding.
    room = 1.0 + THOUSANDS
    name = "learning_rate * smoothness * local_steps"
    require(local <= room / 8.0, name, local, "be at most 1/8")
    name, rule = f"server_learning_rate * {name}", f"be at most {draw.limit:.6g}"
    fits = product <= draw.limit * room
    require(fits, name, product, rule, "take a smaller server_learning_rate")
    return (
        "learning_rate <= 1 / (8 L K)",
        "no limit on server_learning_rate * learning_rate"
        if math.isinf(draw.limit)
        else f"server_learning_rate * learning_rate <= {draw.limit:.6g} / (K L)",
    )


def _privacy_noise(std: float, dimension: int | None, factor: float, n: int) -> float:
    if moderate_or_zero(noise_std=std) == 0.0:
        return 0.0
    return 0.5 * factor * count(dimension=dimension) * (std / n) ** 2
