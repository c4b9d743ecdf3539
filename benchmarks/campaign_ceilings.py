"""Upper limits of epsilon for lower ends, from arithmetic that is independent of the package."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from campaign_settings import Node, Setting
from campaign_truth import allocated_epsilon, gaussian_epsilon
from campaign_worlds import last, multiplier
from scipy.special import logsumexp
from scipy.stats import norm


def ceilings(setting: Setting) -> Iterator[tuple[str, float]]:
    """Yield epsilons at the setting's delta that a lower end must not exceed, with the reason."""
    node, times = last(setting.run)
    if node.kind == "FederatedLangevin" and node.values["strong_convexity"] is not None:
        mu = _hidden(node.values) * math.sqrt(times)
        yield "strongly convex losses, the record in every batch", _gaussian(mu, setting.delta)
    if node.kind == "sampled" and node.inside[0].kind in ("Gaussian", "SparsifiedPerturbation"):
        yield from _sum_ceilings(setting, node, times)


def _gaussian(mu: float, delta: float) -> float:
    return gaussian_epsilon(mu, delta)[1] * (1.0 + 1e-12) if mu < 1e5 else math.inf


def _hidden(v: dict[str, Any]) -> float:
    """sum C_j s_j / sqrt(sum C_j^2 sd_j^2), C_j the product of the later contractions."""
    etas = v["step_size"]
    etas = etas if isinstance(etas, tuple) else (etas,) * min(v["steps"], 100_000)
    private = (1.0 - v["correlation"] ** 2) * v["weight"]
    if private == 0.0:
        return math.inf
    moved = squared = 0.0
    for eta in etas:
        slope = max(abs(1.0 - eta * v["strong_convexity"]), abs(1.0 - eta * v["smoothness"]))
        noise = math.sqrt(2.0 * v["temperature"] * private / eta)
        noise *= v["batch_fraction"] / v["gradient_sensitivity"]
        # in units of the change by a drawn record: eta for each, std noise * eta
        moved, squared = slope * moved + eta, slope**2 * squared + (noise * eta) ** 2
    if v["steps"] > 100_000 and not isinstance(v["step_size"], tuple):
        return math.inf
    return moved / math.sqrt(squared) * (1.0 + 1e-10)


def _sum_ceilings(setting: Setting, node: Node, times: int) -> Iterator[tuple[str, float]]:
    (name, v), z = node.values["scheme"], multiplier(node.inside[0])
    seen = setting.observer != "server"
    if name == "Shuffled" and seen and z > 0.05:
        yield from _secret_order(setting, v["rounds_per_epoch"], times, 1.0 / z)
    if setting.adjacency != "add_remove" or not seen:
        return
    if name == "FixedSize" and v["size"] == v["population"]:
        mu = math.sqrt(times) / z
        yield "all the others take part, too", _gaussian(mu, setting.delta)
    if name == "WithReplacement" and v.get("population") == 1:
        mu = v["draws"] * math.sqrt(times) / z
        yield "nobody is left to take the slots", _gaussian(mu, setting.delta)


def _secret_order(
    setting: Setting, rounds: int, epochs: int, mu: float
) -> Iterator[tuple[str, float]]:
    """Yield ceilings of the named data sets, of which all others send 0 or all the opposite."""
    delta, words = setting.delta, "named data sets in rounds of a secret order"
    if rounds == 1:
        if setting.adjacency != "replace_one":
            yield "all the others take part, too", _gaussian(mu * math.sqrt(epochs), delta)
    elif setting.adjacency == "zero_out":
        opposite = _largest((2.0 * mu, mu), rounds, epochs, delta)
        yield words, max(_shuffled(mu, rounds, epochs, delta), opposite)
    elif setting.adjacency == "add_remove":
        # A unit that also shows in the last round shows at least as much.
        yield words, _shuffled(2.0 * mu, rounds, epochs, delta)


def _largest(means: tuple[float, float], rounds: int, epochs: int, delta: float) -> float:
    """Return an upper end for the largest of normal outcomes: the best of a few Renyi orders."""
    best = [math.inf, math.inf]
    for b in (0.02 * 1.4**k for k in range(28)):
        order, reach = 1.0 + b, (1.0 + b) * means[0] + 15.0
        x = np.linspace(-reach, reach, 20_001)
        one, two = (_log_density(x, mean, rounds) for mean in means)
        for turned, (p, q) in enumerate(((one, two), (two, one))):
            total = logsumexp(order * p - b * q) + math.log(x[1] - x[0])
            gain = (math.log(delta) + math.log(order)) / b
            found = epochs * total / b + math.log1p(-1.0 / order) - gain
            best[turned] = min(best[turned], found)
    return max(*best, 0.0) * (1.0 + 1e-6)


def _log_density(x: Any, mean: float, rounds: int) -> Any:
    """Return the log-density of the largest of normal outcomes, one of which has a mean."""
    below = norm.logcdf(x)
    of_others = math.log(rounds - 1) + norm.logcdf(x, mean) + norm.logpdf(x) - below
    return np.logaddexp(norm.logpdf(x, mean), of_others) + (rounds - 1) * below


def _shuffled(mu: float, rounds: int, epochs: int, delta: float) -> float:
    """Return an upper end for an allocated epoch, in both orientations."""
    if rounds > 100_000 or mu > 20.0 or mu < 1e-4:
        return math.inf
    first = allocated_epsilon(mu, rounds, epochs, delta)
    best = math.inf
    for k in range(40):
        b = 0.05 * 1.3**k
        divergence = epochs * (0.5 * mu * mu + 0.5 * b * mu * mu / rounds)
        order = 1.0 + b
        gain = (math.log(delta) + math.log(order)) / b
        best = min(best, divergence + math.log1p(-1.0 / order) - gain)
    return max(first, best, 0.0) * (1.0 + 1e-9)
