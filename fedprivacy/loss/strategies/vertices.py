"""Meshes of pairs with an error of second order in the size of a cell.

A cell holds the pairs whose means u and v lie on two arcs. ``cells`` bounds all of them by one
pair, with an error of first order. Here mixtures of the pairs at the cell's vertices bound them.
With d the length of a chord, kappa = d^2 / 8 and t the coordinate along the chord from u, a mixture
of the ends is near n_u on the chord:

    n_u - mixture <= (1 - e^-kappa) n_u,    mixture - n_u <= (e^{kappa t^2} - 1) n_u.

This gives a function E with D(u, v) <= mixture of D(vertices) + E. The game is linear in D, so the
best vertex bounds the cell. An arc is nearer to its chord than the square of its length; this is
added to the squares of the means. The proof is in docs/theory/game.md.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ...rounding import HUNDREDS, rounded_up
from ..curves.lattice import Array
from .cells import RELATIVE, Gram

Range = tuple[float, float]
_STEEP = 0.1
"""The largest kappa. A cell with longer chords has no bound here."""


class ArcCell(NamedTuple):
    """The means of a cell, in stds of the noise."""

    u: Range
    """The least and the largest length of u."""
    v: Range
    apart: float
    """The largest distance of u and v."""
    chord_u: float
    """The length of the chord of u; 0 if u is fixed."""
    chord_v: float
    more_u: float
    """What the arcs beyond their chords add to the square of u."""
    more_v: float


class Vertex(NamedTuple):
    """A pair, and how far beyond mixtures of such pairs the pairs of its cells lie."""

    gram: Gram
    error: Array


def beyond_mixtures(cell: ArcCell, q: float, losses: Array) -> Array:
    """Return E at a = e^loss, for symmetric losses: above what mixtures of vertices leave."""
    away = losses[len(losses) // 2 :]
    kappas = [rounded_up(0.125 * chord * chord, HUNDREDS) for chord in (cell.chord_u, cell.chord_v)]
    right = _left_out(cell.u, cell.apart, (kappas[0], kappas[1]), q, away)
    left = _left_out(cell.v, cell.apart, (kappas[1], kappas[0]), q, away)
    return np.concatenate([(np.exp(-away) * left)[:0:-1], right])


def _left_out(lengths: Range, apart: float, kappas: Range, q: float, losses: Array) -> Array:
    """Return E at losses of at least 0, where the first mean's half plane counts.

    P exceeds a Q only where n_u exceeds c n_0. This is a half plane, whose edge has the distance
    log c / |u| - |u| / 2 from u. The least distance counts; it belongs to an end of the lengths.
    """
    own, other = kappas
    if max(kappas) > _STEEP:
        return np.full(len(losses), np.inf)
    with np.errstate(divide="ignore"):
        log_c = np.log(np.expm1(losses) * ((1.0 - q) / q))
    edge = np.minimum(*(log_c / length - 0.5 * length for length in lengths))
    edge -= HUNDREDS * (1.0 + np.where(np.isfinite(edge), np.abs(edge), 0.0))
    found = -math.expm1(-own) * ndtr(-edge) + _spread(edge, other, apart)
    return np.asarray(rounded_up(q * found, 100.0 * RELATIVE) + 1e-300)


def _spread(edge: Array, kappa: float, apart: float) -> Array:
    """Return at least the integral of n(w) (c e^{k (|w| + apart)^2} - 1) over w > edge.

    c = (1 - 2 kappa)^(-1/2), k = kappa / (1 - 2 kappa). The mean of e^{kappa t^2} at a distance w
    from u, across the half plane, is at most c e^{k (|w| + apart)^2}.
    """
    if kappa == 0.0:
        return np.zeros(len(edge))
    k = kappa / (1.0 - 2.0 * kappa)
    left = 1.0 - 2.0 * k
    scale = math.exp(k * apart * apart / left) / math.sqrt(left * (1.0 - 2.0 * kappa))
    moved, root = 2.0 * k * apart / left, math.sqrt(left)

    def beyond(far: Array) -> Array:
        more, less = scale * ndtr((moved - far) * root), ndtr(-far)
        return np.asarray(np.maximum(more - less, 0.0) + RELATIVE * (more + less))

    right = beyond(np.abs(edge))
    # The integrand is even in w.
    whole = 2.0 * beyond(np.zeros(1)) + 4.0 * RELATIVE * scale
    return np.asarray(np.where(edge >= 0.0, right, whole - right))


def _squares(uu: float, vv: float, uv: float, mu: float) -> Gram:
    """Return products that are raised by far more than their rounding errors."""
    more = 8.0 * HUNDREDS * mu * mu
    return Gram(rounded_up(uu, HUNDREDS) + more, rounded_up(vv, HUNDREDS) + more, uv)


def _ladder(least: float, ratio: float, width: float, stop: float) -> list[float]:
    """Return increasing numbers that grow by a ratio, and by at most ``width``."""
    found = [least]
    while found[-1] < stop:
        found.append(found[-1] + min((ratio - 1.0) * found[-1], width))
    found[-1] = stop
    return found


def _lengths(least: float, most: float, more: float) -> Range:
    """Return the range of the length of a mean whose square is raised by up to ``more``."""
    return max(least, 1e-9), math.sqrt(most * most + more)


def zeroed_ends(least: float, ratio: float, width: float) -> list[float]:
    """Return the ends of cells of the angle between x and y, small in proportion at both ends."""
    first = _ladder(least, ratio, width, 0.5 * math.pi)
    return [*first, *(math.pi - x for x in first[-2::-1])]


def zeroed_vertices(mu: float, ends: list[float], q: float, losses: Array) -> list[Vertex]:
    """Return the vertices of the cells of u = x - y, v = -y, |x| = |y| = mu, by the angle."""
    cells = [_zeroed_cell(mu, angles) for angles in itertools.pairwise(ends)]
    errors = [beyond_mixtures(cell, q, losses) for cell in cells]
    found = []
    for k, angle in enumerate(ends):
        near = slice(max(k - 1, 0), k + 1)
        away = 2.0 * math.sin(0.5 * angle) ** 2
        uu = 2.0 * mu * mu * away + max(cell.more_u for cell in cells[near])
        vv = mu * mu + max(cell.more_v for cell in cells[near])
        gram = _squares(uu, vv, mu * mu * away, mu)
        found.append(Vertex(gram, np.max(errors[near], axis=0)))
    return found


def _zeroed_cell(mu: float, angles: Range) -> ArcCell:
    """Return the cell of u = x - y and v = -y, where y is fixed and x moves on an arc."""
    low, high = angles
    off = 2.0 * mu * math.sin(0.25 * (high - low)) ** 2
    least, most = (2.0 * mu * math.sin(0.5 * x) for x in angles)
    # The arc lies beyond its chord in the direction of its middle, whose product with y is known.
    inner = math.cos(0.5 * (low + high))
    mixed = off * mu * (abs(inner) + HUNDREDS)
    share = math.exp(min(max(0.5 * (mu * mu - most * most), -30.0), 30.0))
    more_u, more_v = 2.0 * off * mu * (1.0 - inner) + mixed * share, mixed / share
    return ArcCell(
        _lengths(least - off, most, more_u),
        _lengths(mu, mu, more_v),
        mu,
        2.0 * mu * math.sin(0.5 * (high - low)),
        0.0,
        more_u,
        more_v,
    )
