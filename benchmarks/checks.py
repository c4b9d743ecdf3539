"""Independent checks of the peers' answers that lie below an attained end.

    python benchmarks/checks.py

The checks use none of our numbers. A claim "epsilon at delta" is refuted if the delta of two named
neighbouring data sets at that epsilon is larger. That is shown by a closed form, in mpmath with
bounds on the truncation error, or by Monte Carlo with an exact binomial (Clopper-Pearson)
confidence limit.
"""

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import questions
from libraries import answer
from mpmath import mp, mpf
from questions import Question
from scipy.stats import beta

MISTAKE = 1e-6
"""Probability that a Monte Carlo check refutes a true claim."""


@dataclass(frozen=True)
class Checked:
    """A peer's claim, and a lower bound on delta at the claimed epsilon."""

    case: str
    claim: float
    delta: float
    at_least: float
    how: str

    @property
    def refuted(self) -> bool:
        return self.at_least > self.delta

    def __str__(self) -> str:
        verdict = "REFUTED" if self.refuted else "not refuted"
        end = f"delta there is at least {self.at_least:.6g}, not {self.delta:.6g}"
        return f"{verdict}: {self.case} says {self.claim:.8g}; {end} ({self.how})"


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta of N(mu, 1) against N(0, 1)."""
    e, m = mpf(epsilon), mpf(mu)
    return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m))


class SampledGaussian:
    """T rounds of (1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2), by mpmath.

    log_moment(c) is T log E_P e^{c L} for the loss L of one round, by the trapezoid rule on a line.
    For these entire integrands the rule is exact except for terms below e^{-2 pi^2 z^2 / step^2}.
    """

    def __init__(self, q: float, z: float, rounds: int, tilt: int, step: float = 1 / 6) -> None:
        self.rounds, self.tilt = rounds, mpf(tilt)
        low, high = -18 * z, 2 * tilt + 2 + 18 * z
        count = math.ceil((high - low) / (step * z))
        points = [mpf(low) + (mpf(high) - low) * k / count for k in range(count + 1)]
        width = (mpf(high) - low) / count
        z2 = 2 * mpf(z) ** 2
        shift = [mpmath.exp((2 * y - 1) / z2) for y in points]
        self._losses = [mpmath.log1p(mpf(q) * (s - 1)) for s in shift]
        self._weights = [mpmath.npdf(y, 0, z) * width for y in points]

    def log_moment(self, tilt: mpf) -> mpf:
        terms = (w * mpmath.exp((tilt + 1) * x) for w, x in zip(*self._both, strict=True))
        return self.rounds * mpmath.log(mpmath.fsum(terms))

    @property
    def _both(self) -> tuple[list[mpf], list[mpf]]:
        return self._weights, self._losses

    def least_delta(self, epsilon: float, width: float, heights: int) -> mpf:
        """Return a lower bound on delta at epsilon.

        delta = 1/(2 pi) int A(s) e^{-s epsilon} / (s (s+1)) over s = tilt + i v. Summed at spacing
        2 pi / width the result is delta plus images that are positive and, by Chernoff's bound,
        at most those of 1 to the left and of a larger tilt to the right.
        """
        c, x, spacing = self.tilt, mpf(epsilon), 2 * mp.pi / mpf(width)
        turning = [mpmath.expj(spacing * loss) for loss in self._losses]
        terms = [w * mpmath.exp((c + 1) * y) for w, y in zip(*self._both, strict=True)]
        total, size = mpf(0), mpf(0)
        for k in range(heights):
            s = mpmath.mpc(c, k * spacing)
            moment = mpmath.fsum(terms) ** self.rounds
            value = moment * mpmath.exp(-s * x) / (s * (s + 1))
            total += value.real / (2 if k == 0 else 1)
            size = abs(value)
            terms = [term * turn for term, turn in zip(terms, turning, strict=True)]
        assert size < total * mpf(10) ** -12, "more heights are needed"
        left = 1 / mpmath.expm1(c * width)
        right = min(self._images(c * (1 + mpf(k) / 10), x, width) for k in range(1, 10, 2))
        return total * spacing / mp.pi * (1 - mpf(10) ** -9) - left - right

    def _images(self, further: mpf, x: mpf, width: float) -> mpf:
        decay = (further - self.tilt) * width
        return mpmath.exp(self.log_moment(further) - further * x) / mpmath.expm1(decay)


def bernoulli_limit(hits: int, trials: int) -> float:
    """Return the Clopper-Pearson lower confidence limit of a probability."""
    return float(beta.ppf(MISTAKE, hits, trials - hits + 1)) if hits else 0.0


def tilted_delta(
    q: float, z: float, rounds: int, epsilon: float, tilt: int, trials: int, seed: int = 1
) -> float:
    """Return a lower confidence limit on delta at epsilon, by importance sampling.

    P tilted by e^{tilt L} is a mixture of Gaussians with means 0, 1, ..., tilt + 1, drawn exactly.
    A trial succeeds with probability weight / (largest possible weight), so successes are
    Bernoulli with mean delta / (largest possible weight).
    """
    generator = np.random.default_rng(seed)
    j = np.arange(tilt + 2)
    ways = np.array([math.comb(tilt + 1, k) for k in j], dtype=float)
    shares = ways * (1 - q) ** (tilt + 1 - j) * q**j * np.exp(j * (j - 1) / (2 * z * z))
    moment = shares.sum()
    best = math.log((tilt + 1) / tilt)
    bound = math.exp(rounds * math.log(moment) - tilt * (epsilon + best)) * -math.expm1(-best)
    hits, batch = 0, max(1, 2_000_000 // rounds)
    for start in range(0, trials, batch):
        size = min(batch, trials - start), rounds
        y = generator.choice(j, size=size, p=shares / moment) + z * generator.standard_normal(size)
        loss = np.log1p(q * np.expm1((2 * y - 1) / (2 * z * z))).sum(axis=1)
        above = np.maximum(loss - epsilon, 0.0)
        accept = np.exp(-tilt * (above - best)) * np.expm1(-above) / math.expm1(-best)
        hits += int((generator.random(size[0]) < accept).sum())
    return bound * bernoulli_limit(hits, trials)


def event_delta(q: float, z: float, rounds: int, epsilon: float, trials: int, seed: int = 2):
    """Return a lower confidence limit on delta: P(E) - e^epsilon Q(E), E: the loss is large.

    Both probabilities are counted, in simulated runs with and without the unit.
    """
    generator = np.random.default_rng(seed)

    def large(present: bool) -> int:
        hits = 0
        for _ in range(10):
            size = trials // 10, rounds
            part = generator.random(size) < q if present else np.zeros(size)
            y = part + z * generator.standard_normal(size)
            loss = np.log1p(q * np.expm1((2 * y - 1) / (2 * z * z))).sum(axis=1)
            hits += int((loss > epsilon + 1.0).sum())
        return hits

    with_unit, without = large(True), large(False)
    most = float(beta.ppf(1 - MISTAKE, without + 1, trials - without))
    return bernoulli_limit(with_unit, trials) - math.exp(epsilon) * most


def said(library: str, method: str, question: Question, option: float | None = None) -> float:
    return answer(library, method, question, option)[1]


def replaced_gaussian() -> Checked:
    """x = +C against x' = -C: N(2, 1) against N(0, 1), a closed form."""
    claim = said("dp-accounting", "RDP", questions.REPLACED_GAUSSIAN)
    found = gaussian_delta(claim, 2.0)
    return Checked("dp-accounting RDP, Gaussian, replace_one", claim, 1e-5, found, "closed form")


def replaced_laplace() -> Checked:
    """Shift 2, scale 1, ten times: with probability 2^-10 all losses are 2, and their sum 20."""
    claim = said("dp-accounting", "RDP", questions.REPLACED_LAPLACE)
    found = 2.0**-10 * -math.expm1(claim - 20.0)
    return Checked("dp-accounting RDP, Laplace, replace_one", claim, 1e-5, found, "one event")


def replaced_cohort(library: str) -> Checked:
    """All other clients hold -C, the unit +C or -C: sums differ by 2C in cohorts with the unit."""
    question = questions.cohorts("replace_one")
    claim = said(library, "RDP", question)
    found = event_delta(1 / 60, 0.7, 180, claim, 200_000)
    name = f"{library} RDP, fixed-size cohorts, replace_one"
    return Checked(name, claim, question["delta"], found, "Monte Carlo, Clopper-Pearson")


def responses() -> Checked:
    """Ten randomised responses (right with probability 3/4), exactly."""
    from dp_accounting import dp_event, pld
    from dp_accounting.privacy_accountant import NeighboringRelation

    account = pld.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    claim = account.compose(dp_event.RandomizedResponseDpEvent(0.5, 2), 10).get_epsilon(1e-5)
    factor, found = Fraction(math.exp(claim)), Fraction(0)
    for right in range(11):
        p = math.comb(10, right) * Fraction(3**right, 4**10)
        p_other = math.comb(10, right) * Fraction(3 ** (10 - right), 4**10)
        found += max(p - factor * p_other, Fraction(0))
    name = "dp-accounting PLD, randomised response, count=10"
    return Checked(name, claim, 1e-5, float(found), "exact fractions")


def strict_pld(q: float, z: float, rounds: int, delta: float, tilt: int, width: float) -> Checked:
    """dp-accounting's PLD at its default mesh, at a small delta."""
    claim = said("dp-accounting", "PLD", questions.poisson(q, z, rounds, delta=delta))
    pair = SampledGaussian(q, z, rounds, tilt)
    found = float(pair.least_delta(claim, width, 60))
    name = f"dp-accounting PLD default, q {q:g}, z {z:g}, {rounds} rounds, delta {delta:g}"
    return Checked(name, claim, delta, found, "mpmath, bounded from below")


def strict_prv() -> Checked:
    """Opacus' PRV, whose end is an upper end, at a small delta."""
    q, z, rounds, delta = 0.1, 20.0, 10_000, 1e-12
    claim = said("opacus", "PRV", questions.poisson(q, z, rounds, delta=delta))
    found = float(SampledGaussian(q, z, rounds, 13).least_delta(claim, 6, 60))
    name = f"opacus PRV default, q {q:g}, z {z:g}, {rounds} rounds, delta {delta:g}"
    return Checked(name, claim, delta, found, "mpmath, bounded from below")


def strict_pld_sampled(trials: int = 1_000_000) -> Checked:
    """The same failure by Monte Carlo."""
    q, z, rounds, delta = 0.1, 0.8, 100, 1e-14
    claim = said("dp-accounting", "PLD", questions.poisson(q, z, rounds, delta=delta))
    found = tilted_delta(q, z, rounds, claim, 2, trials)
    name = f"dp-accounting PLD default, q {q:g}, z {z:g}, {rounds} rounds, delta {delta:g}"
    return Checked(name, claim, delta, found, "Monte Carlo, Clopper-Pearson")


def limit_theorem() -> Checked:
    """Opacus' GDP: the central limit theorem's mu, not a bound."""
    claim = said("opacus", "GDP", questions.poisson(0.01, 0.8, 100))
    found = tilted_delta(0.01, 0.8, 100, claim, 4, 200_000)
    how = "Monte Carlo, Clopper-Pearson"
    return Checked("opacus GDP, q 0.01, z 0.8, 100 rounds", claim, 1e-5, found, how)


CHECKS: list[Any] = [
    replaced_gaussian,
    replaced_laplace,
    lambda: replaced_cohort("dp-accounting"),
    lambda: replaced_cohort("autodp"),
    responses,
    lambda: strict_pld(0.01, 0.8, 10_000, 1e-9, 3, 40),
    lambda: strict_pld(0.5, 8.0, 1_000, 1e-9, 3, 30),
    lambda: strict_pld(0.1, 0.8, 100, 1e-12, 2, 60),
    strict_pld_sampled,
    strict_prv,
    limit_theorem,
]


def main() -> None:
    mp.dps = 30
    warnings.filterwarnings("ignore")
    for check in CHECKS:
        try:
            print(check(), flush=True)
        except ImportError as problem:
            print(f"skipped: {problem}")


if __name__ == "__main__":
    main()
