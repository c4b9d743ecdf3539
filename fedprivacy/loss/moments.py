"""Renyi moments of Gaussian mixtures by a quadrature whose error is known.

For P = sum_i p_i N(a_i, 1) and Q = sum_j q_j N(b_j, 1) the integrand P^t Q^(1-t) is analytic where
neither density vanishes, that is for |Im y| < pi / (spread of the means). On the line
Im y = d the densities satisfy ``cos(d spread / 2) <= |density| / (exp(d^2 / 2) density) <= 1``, so
the integrand there is at most ``exp(d^2 / 2) cos(d spread / 2)^-max(t - 1, -t)`` times its value
on the real line. The trapezoid rule with mesh h then errs by at most
``2 / (exp(2 pi d / h) - 1)`` of that (Trefethen and Weideman 2014, Theorem 5.1).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from .lattice import Array

Mixture = tuple[tuple[float, float], ...]
"""Components (weight, mean) of a Gaussian mixture with a common standard deviation."""

_ACCURACY = 37.0
"""Quadrature and truncation errors are each at most exp(-37) = 9e-17 of the answer."""
_MAX_NODES = 1 << 20


def log_density(mixture: Mixture, y: Array) -> Array:
    """Return the log-density of a unit-variance mixture, up to -log(2 pi)/2, elementwise."""
    terms = [math.log(w) - 0.5 * (y - mean) ** 2 for w, mean in mixture if w > 0]
    total = terms[0]
    for term in terms[1:]:
        total = np.logaddexp(total, term)
    return np.asarray(total)


def _strip(spread: float, power: float) -> float:
    """Return a half-width d of the strip of analyticity that keeps its cost moderate."""
    if spread == 0.0:
        return 6.0
    return min(0.5 * math.pi / spread, 3.0 / (spread * math.sqrt(max(power, 0.1))), 6.0)


def log_moment(p: Mixture, q: Mixture, order: float) -> float:
    """Return an upper bound, tight to 1e-14, on log of the integral of P^order Q^(1-order).

    Args:
        p: components of P, unit variance.
        q: components of Q, unit variance.
        order: any real number outside [0, 1].

    Returns:
        The bound; ``inf`` where the quadrature would need more than 2^20 nodes.
    """
    means = [mean for _, mean in p + q]
    spread = max(means) - min(means)
    power = max(order - 1.0, -order)
    d = _strip(spread, power)
    log_line = 0.5 * d * d - power * math.log(math.cos(0.5 * d * spread))
    mesh = 2.0 * math.pi * d / (_ACCURACY + 1.0 + log_line)
    centres = [order * a + (1.0 - order) * b for a in means for b in means]
    radius = math.sqrt(order * (order - 1.0) * spread * spread + 2.0 * (_ACCURACY + 3.0))
    low, high = min(centres) - radius, max(centres) + radius
    if not (high - low) / mesh < _MAX_NODES:
        return math.inf
    y = np.arange(low, high + mesh, mesh)
    exponent = order * log_density(p, y) + (1.0 - order) * log_density(q, y)
    return _sum_with_rounding(exponent, order, y) + math.log(mesh / math.sqrt(2.0 * math.pi))


def _sum_with_rounding(exponent: Array, order: float, y: Array) -> float:
    """Return log of the sum of exp(exponent), raised by what rounding may have taken off."""
    heavy = exponent > np.max(exponent) - 40.0
    size = (abs(order) + abs(1.0 - order)) * float(np.max(0.5 * y[heavy] ** 2) + 1.0)
    return float(logsumexp(exponent)) + 1e-15 + 1e-15 * size
