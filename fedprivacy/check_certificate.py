#!/usr/bin/env python3
"""Proves the ends of a certificate, or reports the ends that fail: a self-contained program.

It shares no code with the program that made the certificate. It needs only Python and python-flint:
``python check_certificate.py FILE...``. It builds the pairs again from the question. (Their numbers
are accurate to a unit in the last place.) It then encloses delta at each end in balls, which are
intervals that contain the true value.

One round: P - e^x Q is integrated in closed form where its sign is certain. Several rounds: let
A(s) = E_P e^{sL} with L = log dP/dQ. For any tilt c > 0, delta(x) is 1 / 2 pi times the integral
over v of A(s) e^{-sx} / (s (s + 1)), s = c + iv. A trapezoid sum exceeds this integral by its
images e^{cmW} delta(x + mW), m = +-1, +-2, ... The A of a round is integrated along a path off the
real line. On that path |e^{ivL}| falls as v grows, so one sum over the path bounds A for all larger
v. For smaller v, a bound on the slope of A connects values at strides. Panels are Gauss-Legendre
sums, with the error bound for functions that are analytic in an ellipse. Slowly falling terms are
removed and added separately: single outcomes in all rounds, or in all rounds but one.

Exit codes: 0 proved, 1 an end is wrong, 2 refused, 3 not decided.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any

from flint import acb, acb_mat, arb, arb_poly, arb_series, ctx

BITS, ORDER, RHO, EDGES, DEPTH = 192, 40, 3, 20, 36.0
TARGET = 1e-31  # allowed error of a moment for each panel, relative to the moment
MOST_HEIGHTS, MOST_APART, MOST_ONCE = 1 << 16, 20_000, 1_000
MOST_STRIDE, STRIDES = 1 << 26, 1 << 11
SLIP = arb(2) ** -120  # largest distance of a lattice point's outcome from the point, in loss
POINTS, MOST_POINTS = (1 << 12, 1 << 14, 1 << 16, 1 << 18), 1 << 21
FEW_ROUNDS, MOST_ROUNDS = 64, 1 << 14
Terms = tuple[tuple[arb, arb], ...]  # (coefficient, exponent) of a sum of exponentials
Tree = dict[str, Any]


class Refused(Exception):
    """The document contradicts itself, or needs more than this program covers."""


class Undecided(Exception):
    """An enclosure could not be made small enough."""


# --- the question: which pairs ----------------------------------------------------------------


def _node(kind: str, **fields: Any) -> Tree:
    return {"type": kind, "version": 1, "fields": fields}


def _seen(tree: Tree | None, q: float) -> Tree | None:
    rest = _node("Gdp", mu=0.0)
    return tree if q == 1 or tree is None else _node("Mix", parts=[[1 - q, rest], [q, tree]])


def _fields(tree: Tree) -> Tree:
    """Return the fields of a record. Only version 1 is known."""
    _one_of((1,), tree, "version")
    return dict(tree["fields"])


def _one_of(known: Iterable[Any], fields: Tree, name: str) -> Any:
    if fields[name] not in known:
        raise Refused(f"{name} {fields[name]!r:.40} is not covered")
    return fields[name]


def _from(low: float, high: float, fields: Tree, name: str, *kinds: type) -> Any:
    """Return a number of the question; a number that no run can have is refused."""
    value = fields[name]
    if type(value) not in kinds or not low <= value <= high:
        raise Refused(f"{name} must be a number from {low:g} to {high:g}, got {value!r:.40}")
    return value


def _noise(fields: Tree) -> float:
    return float(_from(1e-150, 1e150, fields, "noise_multiplier", int, float))


def _counted_parts(run: Tree) -> list[tuple[Tree, int]]:
    """Return the parts of a run with counts; a mechanism is its own single part."""
    parts: list[Any] = _fields(run)["parts"] if run["type"] == "Run" else [[run, 1]]
    return [(part, _from(1, 2**53, {"count": n}, "count", int)) for part, n in parts]


def _units(mechanism: Any) -> set[str]:
    """Return every unit that a mechanism, or a mechanism inside it, claims to protect."""
    if isinstance(mechanism, list):
        return set().union(*map(_units, mechanism))
    if not isinstance(mechanism, dict):
        return set()
    inside = set[str]().union(*map(_units, mechanism.values()))
    held = {"record"} if mechanism.get("type") == "CohortMechanism" else set[str]()
    return inside | held | ({mechanism["unit"]} if mechanism.get("unit") else set())


def asked(mechanism: Tree, adjacency: str, observer: str) -> tuple[Tree, Tree | None]:
    """Return (dominating pair, attained pair) of one round, from the reference table."""
    kind, f = mechanism["type"], _fields(mechanism)
    if alone := _unsampled(mechanism, MOVES[adjacency]):
        return alone, alone
    if kind not in ("CohortMechanism", "SampledMechanism"):
        raise Refused(f"{kind} is not covered")
    inner, scheme = f["inner"], f["scheme"]["type"]
    if scheme not in CHANCES:
        raise Refused(f"{kind} {scheme} is not covered")
    q = CHANCES[scheme](_fields(f["scheme"]))
    if (scheme, adjacency, q) == ("FixedSize", "add_remove", 1):
        raise Refused(
            "a cohort of the whole population cannot be filled after an addition or removal"
        )
    sampled = [part["type"] for part, _ in _counted_parts(inner)]
    if kind == "SampledMechanism" and {"SampledMechanism", "CohortMechanism"} & {*sampled}:
        raise Refused("units inside a sampled mechanism cannot be sampled again")
    if (kind, adjacency, observer) == ("SampledMechanism", "add_remove", "server"):
        raise Refused("the participants show the server which clients are present")
    pair, attained = asked(inner, adjacency, observer)
    if kind == "CohortMechanism" or observer == "server" or q == 1:
        return _seen(pair, q) or pair, _seen(attained, q)
    if inner["type"] not in ("Gaussian", "Laplace"):
        raise Refused(f"{inner['type']} inside a sampled mechanism is not covered")
    near, far = (
        _node("Sampled", inner=asked(inner, a, observer)[0], q=q)
        for a in ("zero_out", "replace_one")
    )
    return _hidden(inner, near, far, q)[scheme, adjacency]


def _unsampled(mechanism: Tree, moves: float) -> Tree | None:
    """Return the pair of noise with full participation; None for any other mechanism."""
    if mechanism["type"] == "Laplace":
        noise = _noise(_fields(mechanism))
        shift = moves / noise
        # The pair rounds its shift up if it is no double.
        rounded = Fraction(shift) * Fraction(noise) != moves
        return _node("LaplacePair", shift=shift, rounded=rounded)
    parts = _counted_parts(mechanism)
    if any(part["type"] != "Gaussian" for part, _ in parts):
        return None
    mus = [math.sqrt(n) * (moves / _noise(_fields(part))) for part, n in parts]
    return _node("Gdp", mu=math.hypot(*mus))


MOVES = {"add_remove": 1.0, "zero_out": 1.0, "replace_one": 2.0}  # a sum, in clip norms
CHANCES: dict[str, Callable[[Tree], float]] = {
    "Poisson": lambda drawn: float(_from(1e-300, 1, drawn, "probability", int, float)),
    "FixedSize": lambda drawn: (
        _from(1, drawn["population"], drawn, "size", int)
        / _from(1, 2**63, drawn, "population", int)
    ),
    "Everyone": lambda drawn: 1.0,
}


def _hidden(
    inner: Tree, near: Tree, far: Tree, q: float
) -> dict[tuple[str, str], tuple[Tree, Tree]]:
    """Return (dominating pair, attained pair) if the draw is hidden from every observer."""
    both = _node("Fold", up=far, down=far)
    table = {
        ("Poisson", "add_remove"): (near, near),
        ("Poisson", "zero_out"): (near, near),
        ("Poisson", "replace_one"): (both, near),
        ("FixedSize", "add_remove"): (far, far),
        ("FixedSize", "zero_out"): (both, near),
        ("FixedSize", "replace_one"): (both, far),
    }
    # for a sum, the contribution of the other members is also known
    if inner["type"] == "Gaussian":

        def mix(stays: float, other: float) -> Tree:
            rest, std = [1 - q, stays], inner["fields"]["noise_multiplier"]
            return _node("GaussianMix", std=std, p=[rest, [q, 1.0]], q=[rest, [q, other]])

        up, changed = mix(-1.0, 0.0), mix(0.0, -1.0)
        table["Poisson", "replace_one"] = (changed, changed)
        table["FixedSize", "zero_out"] = (_node("Fold", up=up, down=near), up)
    else:
        s = near["fields"]["inner"]["fields"]["shift"]
        moved = _node("LaplaceExchanged", q=q, there=s, back=s)
        table["Poisson", "replace_one"] = (moved, moved)
    return table


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    numbers = all(type(x) in (int, float) for x in (one, other))
    return bool(abs(one - other) <= 5e-16 * abs(other) if numbers else one == other)


# --- what a pair is ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """Outcomes y from low to high (None: no end); the densities of P, Q, P - Q: sums w e^{my}.

    Each sum is times a base, the normal density or 1. P > Q on the ``side`` of ``cross``, if used.
    """

    gaussian: bool
    p: Terms
    q: Terms
    d: Terms
    low: arb | None
    high: arb | None
    cross: arb
    side: int = 1
    bend: arb | None = None  # an end where L' = 0

    def value(self, y: Any, slopes: int = 0) -> tuple[Any, Any, Any]:
        """Return (P, Q, P - Q) over the base at y, or derivatives."""
        every = ([w * m**slopes * (y * m).exp() for w, m in x] for x in (self.p, self.q, self.d))
        p, q, d = (sum(terms[1:], terms[0]) for terms in every)
        return p, q, d

    def logs(self, y: acb) -> tuple[acb, acb] | None:
        """Return (log Q over the base, L) at y, or None if a logarithm may meet its branch cut."""
        p, q, d = self.value(y)
        if any(z.imag.contains(0) and not z.real > 0 for z in (p, q)):
            return None
        small = abs(d / q) < 0.5
        return q.log(), (d / q).log1p() if small else p.log() - q.log()

    def held(self, terms: Terms, low: arb | None, high: arb | None) -> arb:
        """Return the integral of one of the two densities from low to high."""
        total, root = arb(0), arb(2).sqrt()
        for w, m in terms:
            if not self.gaussian:
                total += w * ((m * arb(high)).exp() - (m * arb(low)).exp()) / m
                continue
            a, b = (None if end is None else (end - m) / root for end in (low, high))
            if a is None or a < 0:  # the smaller tails are accurate to more digits
                a, b = (None if end is None else -end for end in (b, a))
            tail = (arb(2) if a is None else a.erfc()) - (arb(0) if b is None else b.erfc())
            total += w * (m * m / 2).exp() * tail / 2
        return total


@dataclass(frozen=True)
class Pair:
    """Two laws: masses of single outcomes under P and Q, the mass without loss, and pieces."""

    atoms: tuple[tuple[arb, arb], ...] = ()
    still: arb = arb(0)  # noqa: RUF009
    pieces: tuple[Piece, ...] = ()

    def swap(self) -> Pair:
        """Return (Q, P)."""
        turned = [replace(x, p=x.q, q=x.p, d=_times(x.d, arb(-1))) for x in self.pieces]
        pieces = tuple(replace(x, side=-x.side) for x in turned)
        return Pair(tuple((b, a) for a, b in self.atoms), self.still, pieces)

    def split(self) -> Pair:
        """Return the pair with every piece split where its loss turns from falling to rising."""
        return replace(self, pieces=tuple(part for x in self.pieces for part in _monotone(x)))

    def gains(self) -> Pair:
        """Return the part with P > Q."""
        halves = [
            replace(x, low=x.cross) if x.side > 0 else replace(x, high=x.cross) for x in self.pieces
        ]
        return Pair(tuple((a, b) for a, b in self.atoms if a > b), pieces=tuple(halves))


def _monotone(piece: Piece) -> list[Piece]:
    """Return the piece, or two: L' = (p' q - p q') / (p q) changes sign at most once.

    p' q - p q' is a sum of exponentials. It has at most as many zeros as its coefficients, ordered
    by exponents, have sign changes (Laguerre's rule).
    """
    if not piece.gaussian:
        return [piece]

    def rises(y: arb) -> Any:
        (p, q, _), (dp, dq, _) = piece.value(y), piece.value(y, 1)
        return dp * q - p * dq

    signs = _signs(piece)
    first = signs[0] if piece.low is None else rises(piece.low) > 0
    last = signs[-1] if piece.high is None else rises(piece.high) > 0
    if first == last:
        return [piece]
    low, high = piece.cross - 30, piece.cross + 30
    while (rises(low) > 0) == (rises(high) > 0):
        low, high = 2 * low - piece.cross, 2 * high - piece.cross
    for _ in range(2 * BITS):
        middle = ((low + high) / 2).mid()
        low, high = (middle, high) if rises(middle) * rises(low) > 0 else (low, middle)
    ends = (
        replace(piece, high=high, bend=high, side=-piece.side),
        replace(piece, low=high, bend=high),
    )
    return list(ends)


def _signs(piece: Piece) -> list[bool]:
    """Return the signs of the coefficients of p' q - p q', by exponents; at most one changes."""
    every = sorted(
        ((m + n, w * v * (m - n)) for w, m in piece.p for v, n in piece.q if m.repr() != n.repr()),
        key=lambda term: float(term[0]),
    )
    signs = [w > 0 for _, w in every]
    known = all(w > 0 or w < 0 for _, w in every)
    if not known or sum(a != b for a, b in pairwise(signs)) > 1:
        raise Undecided("the number of turning points of a loss")
    return signs


def _completed(weighted: list[Any]) -> list[tuple[arb, Any]]:
    """Return (weight, item) pairs; the largest weight becomes 1 minus the others."""
    *rest, top = sorted(weighted, key=lambda pair: pair[0])
    found = [(arb(w), x) for w, x in rest]
    return [*found, (1 - sum((w for w, _ in found), arb(0)), top[1])]


def _normal(weighted: list[Any], std: Any) -> Terms:
    every = [(w, arb(m) / std) for w, m in _completed(weighted)]
    return tuple((w * (-m * m / 2).exp(), m) for w, m in every)


def _joined(terms: Terms) -> Terms:
    """Return the terms, with terms of equal exponents added up."""
    found: dict[str, tuple[arb, arb]] = {}
    for w, m in terms:
        found[m.repr()] = (found[m.repr()][0] + w if m.repr() in found else w, m)
    return tuple(found.values())


def _less(p: Terms, q: Terms) -> Terms:
    """Return p - q; common terms are left out."""
    names = [{(w.repr(), m.repr()) for w, m in terms} for terms in (p, q)]
    kept = [t for t in p if (t[0].repr(), t[1].repr()) not in names[1]]
    return (*kept, *((-w, m) for w, m in q if (w.repr(), m.repr()) not in names[0]))


def _times(terms: Terms, w: arb) -> Terms:
    return tuple((w * x, m) for x, m in terms)


def made(tree: Tree) -> Pair:
    """Return the two laws of an expression of pairs."""
    return MADE[tree["type"]](tree["fields"])


def _gdp(f: Tree) -> Pair:
    p, q = _normal([[1, f["mu"]]], 1), _normal([[1, 0.0]], 1)
    whole = Piece(True, p, q, _less(p, q), None, None, arb(f["mu"]) / 2)
    return Pair(pieces=(whole,)) if f["mu"] else Pair(still=arb(1))


def _laplace(f: Tree) -> Pair:
    s, half = arb(f["shift"]), arb(1) / 2
    far = half * (-s).exp()
    p, q = ((far, arb(1)),), ((half, arb(-1)),)
    inside = Piece(False, p, q, _less(p, q), arb(0), s, s / 2)
    return Pair(((half, far), (far, half)), pieces=(inside,))


def _exchanged(f: Tree) -> Pair:
    if f["there"] != f["back"]:
        raise Refused("Laplace noise and two parts at different distances")
    s, r, half = arb(f["there"]), arb(f["q"]), arb(1) / 2
    stays, far = half * (1 - r), half * r * (-s).exp()
    own, other = ((stays, arb(1)), (far, arb(-1))), ((stays + far, arb(1)),)
    d = ((far, arb(1)), (-far, arb(-1)))
    left = Piece(False, other, own, d, -s, arb(0), arb(0))
    mirrored, plain = (tuple((w, -m) for w, m in terms) for terms in (own, other))
    right = Piece(False, mirrored, plain, d, arb(0), s, arb(0))
    end = stays * (-s).exp() + half * r, stays * (-s).exp() + far * (-s).exp()
    return Pair((end, end[::-1]), pieces=(left, right))


def _gaussian_mix(f: Tree) -> Pair:
    p, q, std = _normal(f["p"], f["std"]), _normal(f["q"], f["std"]), arb(f["std"])
    cross = (arb(f["p"][-1][1]) + arb(f["q"][-1][1])) / 2 / std
    return Pair(pieces=(Piece(True, p, q, _less(p, q), None, None, cross),))


def _sampled(f: Tree) -> Pair:
    base, r = made(f["inner"]), arb(f["q"])
    mixed = [_joined(_times(x.p, r) + _times(x.q, 1 - r)) for x in base.pieces]
    both = zip(base.pieces, mixed, strict=True)
    pieces = [replace(x, p=p, d=_times(x.d, r)) for x, p in both]
    atoms = tuple((r * a + (1 - r) * b, b) for a, b in base.atoms)
    return Pair(atoms, base.still, tuple(pieces))


def _fold(f: Tree) -> Pair:
    up, down = made(f["up"]).gains(), made(f["down"]).gains().swap()
    atoms, every = up.atoms + down.atoms, up.pieces + down.pieces
    held = [a for a, _ in atoms] + [x.held(x.p, x.low, x.high) for x in every]
    return Pair(atoms, 1 - sum(held, arb(0)), every)


def _mix(f: Tree) -> Pair:
    parts = [(w, made(part)) for w, part in _completed(f["parts"])]
    pieces = [
        replace(x, p=_times(x.p, w), q=_times(x.q, w), d=_times(x.d, w))
        for w, pair in parts
        for x in pair.pieces
    ]
    atoms = tuple((w * a, w * b) for w, pair in parts for a, b in pair.atoms)
    return Pair(atoms, sum((w * pair.still for w, pair in parts), arb(0)), tuple(pieces))


MADE: dict[str, Callable[[Tree], Pair]] = {
    "Gdp": _gdp,
    "LaplacePair": _laplace,
    "LaplaceExchanged": _exchanged,
    "GaussianMix": _gaussian_mix,
    "Sampled": _sampled,
    "Fold": _fold,
    "Mix": _mix,
}


# --- one round --------------------------------------------------------------------------------


def _upto(x: arb) -> arb:
    """Return a ball that contains 0 and everything up to x."""
    return arb(0).union(x.max(arb(0)))


def alone(pair: Pair, x: arb, share: arb) -> arb:
    """Return delta(x) of one round, to a small part of ``share``."""
    total = sum(((a - x.exp() * b).max(arb(0)) for a, b in pair.atoms), arb(0))
    for piece in pair.pieces:
        low, high, beyond = _near(piece, 12 + (-2 * share.log()).sqrt())
        total += beyond
        for part in _above(piece, x, share, low, high):
            total += part
    return total


def _near(piece: Piece, far: arb) -> tuple[arb, arb, arb]:
    """Return outcomes at a distance ``far`` from all means, and a ball for the mass beyond."""
    means, beyond = [m for _, m in piece.p + piece.q], arb(0)
    low, high = piece.low, piece.high
    if low is None:
        low = (min(means, key=float) - far).mid()
        beyond += _upto(piece.held(piece.p, None, low))
    if high is None:
        high = (max(means, key=float) + far).mid()
        beyond += _upto(piece.held(piece.p, high, None))
    return low, high, beyond


def _above(piece: Piece, x: arb, share: arb, low: arb, high: arb) -> Iterator[arb]:
    """Yield the parts of P - e^x Q between two outcomes where it is above 0."""
    todo = [(low, high)]
    while todo:  # split where the sign of P - e^x Q is uncertain
        a, b = todo.pop()
        found = piece.logs(acb(a.union(b)))
        here, loss = piece.held(piece.p, a, b), arb("nan") if found is None else found[1].real
        if loss > x:
            yield here - x.exp() * piece.held(piece.q, a, b)
        elif loss < x:
            continue
        elif here.upper() < share * arb(2) ** -60:
            yield _upto(here)
        else:
            todo += [(a, ((a + b) / 2).mid()), (((a + b) / 2).mid(), b)]


# --- moments of a round -----------------------------------------------------------------------


@lru_cache
def _ellipse() -> list[acb]:
    turns = [acb(0, arb(2 * k + 1, 1) * arb.pi() / EDGES).exp() for k in range(EDGES)]
    return [(RHO * w + 1 / (RHO * w)) / 2 for w in turns]


@lru_cache
def _legendre() -> list[tuple[arb, arb]]:
    return [arb.legendre_p_root(ORDER, k, weight=True) for k in range(ORDER)]


def _window(piece: Piece, tilt: arb) -> tuple[arb, arb, arb]:
    """Return the range of integration, and a bound on the contribution outside it.

    P^t Q^(1-t) is jointly convex. It is therefore below the largest of e^{t (t-1) (a-b)^2 / 2}
    times the normal density about t a - (t-1) b, over the means a of P and b of Q.
    """
    low, high = piece.low, piece.high
    if not piece.gaussian:
        assert low is not None and high is not None
        return low, high, arb(0)
    pairs = [(a, b) for _, a in piece.p for _, b in piece.q]
    excess = tilt * (tilt + 1) / 2 * max(((a - b) ** 2 for a, b in pairs), key=float)
    far, at = (2 * (excess + 80)).sqrt(), [(1 + tilt) * a - tilt * b for a, b in pairs]
    least, most = min(at, key=float) - far, max(at, key=float) + far
    if low is None:
        low = least if high is None or least < high - 1 else high - 1
    if high is None:
        high = most if most > low + 1 else low + 1
    return low, high, excess.exp() * (far / arb(2).sqrt()).erfc()


def _legs(piece: Piece, tilt: arb, real: bool) -> tuple[list[tuple[acb, acb]], arb, float]:
    """Return (the legs of the path, a bound on the omitted part, the height of the path).

    On the path no phase turns by pi / 2.
    """
    low, high, lost = _window(piece, tilt)
    if real:
        return [(acb(low), acb(high))], lost, 0.0
    exponents = [float(m) for _, m in piece.p + piece.q]
    up = piece.side * min(1.5, 1.25 / (max(exponents) - min(exponents)))
    stub, slant = arb(2) ** -96, piece.bend is not None
    a, b = (end + side * stub * slant * (end is piece.bend) for end, side in ((low, 1), (high, -1)))
    wide = abs(up) if slant else 0.0
    corners = [acb(a), acb(a + wide, up), acb(b - wide, up), acb(b)]
    ends = [acb(low), *corners, acb(high)] if slant else corners
    return list(pairwise(ends)), lost, up


def tilted(piece: Piece, tilt: arb, y: acb) -> tuple[acb, acb] | None:
    """Return (log of P e^{tilt L}, L) at y, or None if a logarithm may meet its branch cut."""
    found = piece.logs(y)
    if found is None:
        return None
    base = -y * y / 2 - (2 * arb.pi()).log() / 2 if piece.gaussian else acb(0)
    return base + found[0] + (1 + tilt) * found[1], found[1]


def _edge(piece: Piece, tilt: arb, top: arb, middle: acb, half: acb) -> arb | None:
    """Return a bound on |P e^{(tilt + iv) L}| in a panel's ellipse for all v up to ``top``."""
    most = arb(0)
    for w in _ellipse():
        found = tilted(piece, tilt, middle + half * w)
        size = found and (found[0].real + top * (-found[1].imag).max(arb(0))).exp()
        if size is None or not size.is_finite():
            return None
        most = most.max(arb(size.upper()))
    return most


def nodes(pair: Pair, tilt: arb, top: arb, real: bool = False) -> tuple[list[acb], list[acb], arb]:
    """Return (w, L, error): A(tilt + iv) is sum w e^{ivL} and the mass without loss, v <= top."""
    losses = [acb((a / b).log()) for a, b in pair.atoms]
    weights = [a * (tilt * x).exp() for (a, _), x in zip(pair.atoms, losses, strict=True)]
    error, allowed = arb(0), TARGET * arb(log_moment(pair, float(tilt))).exp()
    for piece in pair.pieces:
        legs, lost, _ = _legs(piece, tilt, real)
        error += lost
        for middle, half, slip, counts in _panels(piece, tilt, top, legs, allowed):
            error += slip
            for weight, loss in _gauss(piece, tilt, middle, half) if counts else ():
                weights.append(weight)
                losses.append(loss)
    return weights, losses, error


def _panels(
    piece: Piece, tilt: arb, top: arb, legs: list[tuple[acb, acb]], allowed: arb
) -> Iterator[tuple[acb, acb, arb, bool]]:
    """Yield a path's panels: (middle, half, error, whether it counts or is only an error)."""
    rate = arb(64) / (15 * arb(RHO) ** (2 * ORDER) * (1 - arb(RHO) ** -2))
    todo = [((a + b) / 2, (b - a) / 2, 0) for a, b in legs]
    while todo:
        middle, half, depth = todo.pop()
        size = _edge(piece, tilt, top, middle, half)
        whole = arb("inf") if size is None else size * abs(half)
        if 2 * whole < allowed:
            yield middle, half, 2 * whole, False
        elif rate * whole < allowed:
            yield middle, half, rate * whole, True
        elif depth > 60:
            raise Undecided("a panel of a moment's integral")
        else:
            todo += [(middle + s * half / 2, half / 2, depth + 1) for s in (-1, 1)]


def _gauss(piece: Piece, tilt: arb, middle: acb, half: acb) -> Iterator[tuple[acb, acb]]:
    """Yield (weight, loss) of a panel's nodes."""
    for at, share in _legendre():
        found = tilted(piece, tilt, middle + half * at)
        if found is None:
            raise Undecided("a node of a moment's integral")
        yield share * half * found[0].exp(), found[1]


def cover(piece: Piece, tilt: arb) -> Iterator[tuple[arb, arb]]:
    """Yield (a, b): |A(tilt + iv)| is at most the sum of all a e^{-v b}, at every v >= 0."""
    legs, lost, up = _legs(piece, tilt, False)
    yield lost, arb(0)
    for a, b in legs:
        if a.imag == 0 and b.imag == 0:  # there |e^{ivL}| is 1
            found = tilted(piece, tilt, acb(a.real.union(b.real)))
            yield arb("inf") if found is None else found[0].real.exp().upper() * abs(b - a), arb(0)
    todo = [(u, v, 0) for a, b in legs for u, v in pairwise(_cuts(a, b, up))]
    while todo:
        u, v, depth = todo.pop()
        falls = _falling(piece, tilt, acb(u.real.union(v.real), u.imag.union(v.imag)))
        if falls is not None:
            yield falls[0] * abs(v - u), falls[1]
        elif depth > 12:
            raise Undecided("the bound for large heights")
        else:
            todo += [(u, (u + v) / 2, depth + 1), ((u + v) / 2, v, depth + 1)]


def _cuts(a: acb, b: acb, up: float) -> list[acb]:
    """Return the cuts of a leg that is not on the real line."""
    if a.imag == b.imag:
        count = 0 if a.imag == 0 else math.ceil(abs(float((b - a).real / up)) * 4)
        return [a + (b - a) * k / count for k in range(count + 1)] if count else []
    a, b = (b, a) if a.imag == 0 else (a, b)  # towards the real line by powers of 2
    return [b + (a - b) * arb(2) ** -(arb(k) / 4) for k in range(400)] + [b]


def _falling(piece: Piece, tilt: arb, y: acb) -> tuple[arb, arb] | None:
    """Return (a, b): |P e^{(tilt + iv) L}| <= a e^{-v b} in y; None if b is uncertain."""
    found = tilted(piece, tilt, y)
    if found is None:
        return None
    size, fall = found[0].real.exp().upper(), found[1].imag.lower()
    if not fall < 0:
        return size, fall
    down = acb(y.real, y.imag.union(arb(0)))  # from the real line on, L' has the sign of the side
    (p, q, d), (dp, dq, dd) = piece.value(down), piece.value(down, 1)
    slopes = ((dd - d * dq / q) / p, dp / p - dq / q)
    return (size, arb(0)) if any((piece.side * x).real > 0 for x in slopes) else None


def log_moment(pair: Pair, tilt: float) -> float:
    """Return log A(tilt) in plain floats, to a few digits: it only chooses parameters."""
    return _rough(pair, tilt) - _rough(pair, 0.0)


def _rough(pair: Pair, tilt: float) -> float:
    logs = [_log(float(pair.still))] + [
        _log(float(a)) + tilt * _log(float(a / b)) for a, b in pair.atoms
    ]
    for piece in pair.pieces:
        legs = _legs(piece, arb(tilt), True)[0]
        low, high = float(legs[0][0].real), float(legs[-1][1].real)
        p, q = ([(float(w.log()), float(m)) for w, m in terms] for terms in (piece.p, piece.q))
        for count in (120, 120):  # first the whole range, then the part that matters
            step, found = (high - low) / count, []
            for k in range(count):
                y = low + (k + 0.5) * step
                up, down = (_log_sum([w + m * y for w, m in terms]) for terms in (p, q))
                base = -y * y / 2 - 0.9189385 if piece.gaussian else 0.0
                found.append(base + up + tilt * (up - down) + _log(step))
            near = [k for k, value in enumerate(found) if value > max(found) - 35.0]
            if not near:  # beyond the range of floats
                return math.inf
            low, high = low + (near[0] - 1) * step, low + (near[-1] + 2) * step
        logs += found
    return _log_sum(logs)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _log_sum(logs: list[float]) -> float:
    top = max(logs)
    return top if math.isinf(top) else top + math.log(sum(math.exp(x - top) for x in logs))


# --- several rounds ---------------------------------------------------------------------------


class Line:
    """A line of inversion for (pair, count) rounds near x, where delta is about ``share``.

    If sums of that size cancel, a line ``nearer`` to the imaginary axis cancels less but needs more
    heights.
    """

    def __init__(
        self, rounds: list[tuple[Pair, int]], x: float, share: float, nearer: bool
    ) -> None:
        self.rounds, left = rounds, DEPTH - math.log(share)

        highest = (
            6 if _normals(rounds) else 14
        )  # any tilts will do: large ones widen normal integrals

        @lru_cache
        def moment(tilt: float) -> float:
            return sum(n * log_moment(pair, tilt) for pair, n in rounds)

        further = _least(lambda t: (moment(t) + 2 * left) / t, highest)
        tilt = left / max((moment(further) + 2 * left) / further - x, 1e-9)
        self.cancels = moment(tilt) - tilt * x > math.log(share) + 30
        if nearer and self.cancels:
            tilt = min(tilt, max(tilt / 16, _least(lambda t: moment(t) - t * x, highest)))
        # otherwise delta is so small that the bound of a moment suffices
        self.reaches = tilt < further
        self.tilt, self.further, self.width = arb(tilt), arb(further), arb(left) / tilt
        self.spacing = 2 * arb.pi() / self.width
        self.edge = sum((n * _log_most(pair, self.further) for pair, n in rounds), arb(0))
        self.covers: list[list[tuple[arb, arb]]] = []
        for pair, _ in rounds if self.reaches else []:
            self.covers.append([x for one in pair.pieces for x in cover(one, self.tilt)])
        self.jumps = _jumps(rounds)
        self.found: dict[int, list[acb]] = {}
        self.single: dict[tuple[float, float], arb] = {}
        self.between: dict[int, tuple[int, list[arb]]] = {}
        self.apart = self.jumps is not None
        self.once = _others(rounds) if self.apart else []

    def _flat(self, s: Any) -> list[Any]:
        """Return for each round the part of A(s) that does not fall: no loss, single outcomes."""
        every = (([*pair.atoms] if self.apart else [], pair.still) for pair, _ in self.rounds)
        return [sum(((s * (a / b).log()).exp() * a for a, b in x), s * 0 + y) for x, y in every]

    def _known(self, flat: list[Any], whole: list[Any]) -> Any:
        """Return the part of A without falling rounds, or (with ``once``) with at most one."""
        counts = [n for _, n in self.rounds]
        total = _product(flat, counts)
        for i, n in enumerate(counts) if self.once else ():
            fewer = [m - (i == j) for j, m in enumerate(counts)]
            total += n * (whole[i] - flat[i]) * _product(flat, fewer)
        return total

    def rest(self, top: arb) -> arb:
        """Return a bound on the contribution of heights of at least ``top`` to the sum."""
        whole, counts = [], [n for _, n in self.rounds]
        for (pair, _), parts in zip(self.rounds, self.covers, strict=True):
            sizes = [a * (self.tilt * (a / b).log()).exp() for a, b in pair.atoms]
            sizes += [a * (-top * b).exp() for a, b in parts]
            whole.append(pair.still + sum(sizes, arb(0)))
        more: arb = _product(whole, counts) - self._known(self._flat(self.tilt), whole)
        return self._spread(more, top)

    def _spread(self, most: arb, top: arb) -> arb:
        """Return the contribution of a bound on A from ``top`` on, |s (s + 1)| being v^2."""
        return most * (1 / top + self.spacing / top**2) / arb.pi()

    def _reach(self, allowed: arb) -> tuple[int, arb]:
        """Return a number of heights to sum, and a bound on the others, allowed if possible.

        If the sum would need many heights, the heights after a shorter sum are enclosed at a
        stride.
        """
        count = 16
        while count < MOST_STRIDE and not self.rest(count * self.spacing) < allowed:
            count = count * 5 // 4
        beyond = self.rest(count * self.spacing)
        if count < 4 * STRIDES:
            return count, beyond
        if not beyond < allowed:
            return MOST_HEIGHTS, self.rest(MOST_HEIGHTS * self.spacing)
        if count not in self.between:
            self.between[count] = self._strides(count)
        stride, most = self.between[count]
        for k in range(1, min(STRIDES, MOST_HEIGHTS // stride)):
            added = self._spread(most[k], k * stride * self.spacing)
            if added < allowed:
                return k * stride, beyond + added
        return min(count, MOST_HEIGHTS), self.rest(min(count, MOST_HEIGHTS) * self.spacing)

    def _strides(self, count: int) -> tuple[int, list[arb]]:
        """Return a stride, and a bound on the unknown part of A from each multiple of it on.

        A(s + iu) - A(s)| is at most |u| times E |L| e^{cL}. Its square is at most u^2 A(c) times
        E L^2 e^{cL}, and t^2 L^2 <= e^{tL} + e^{-tL} - 2.
        """
        stride, powers = -(-count // STRIDES), [n for _, n in self.rounds]
        rows, flat = [], self._flat(self.tilt)
        for pair, _ in self.rounds:
            step, sizes = min(self.tilt, arb(1) / 4), []
            for t in (self.tilt - step, self.tilt, self.tilt + step):
                weights, _, error = nodes(pair, t, arb(0), True)
                sizes.append(sum((w.real for w in weights), arb(0)) + arb(0, error.upper()))
            square = (sizes[0] + sizes[2] - 2 * sizes[1]) / step**2
            slip = stride * self.spacing * (square * (sizes[1] + pair.still)).sqrt()
            table = self._table(pair, STRIDES + 1, stride * self.spacing)
            rows.append([(abs(a + pair.still) + slip).upper() for a in table])
        found, worst = [], [arb(0) for _ in rows]
        for k in reversed(range(STRIDES + 1)):
            worst = [w.max(arb(row[k])) for w, row in zip(worst, rows, strict=True)]
            whole = [w + 2 * a for w, a in zip(worst, flat, strict=True)]
            found.append(_product(worst, powers) + self._known(flat, whole))
        return stride, found[::-1]

    def singly(self, x: arb, share: arb) -> arb:
        """Return the contribution to delta(x) of single outcomes in all rounds, or all but one."""
        every, rest = self.jumps or ([], arb(0))
        total = sum(((p - x.exp() * q).max(arb(0)) for p, q in every), arb(0)) + _upto(rest)
        for (pair, n), (others, left) in zip(self.rounds, self.once, strict=False):
            falling = Pair(pieces=pair.pieces)
            for p, q in others:
                total += n * p * alone(falling, x + (q / p).log(), share) if p > 0 else _upto(n * p)
            total += _upto(n * left)
        return total

    def delta(self, x: arb, level: float, share: arb) -> arb:
        """Return a ball that contains delta at x."""
        if not self.reaches:
            return _upto((self.edge - self.further * x).exp())
        scale = (-self.tilt * x).exp()
        count, beyond = self._reach(share * level / scale)
        beyond = (beyond * scale).upper()
        total = acb(0)
        for k, moment in enumerate(self.moments(count)):
            total += moment * acb(0, -k * self.spacing * x).exp() / (1 if k else 2)
        left, apart = (
            (-self.tilt * self.width).exp(),
            ((self.tilt - self.further) * self.width).exp(),
        )
        images = left / (1 - left) + (self.edge - self.further * x).exp() * apart / (1 - apart)
        found = total.real * self.spacing / arb.pi() * scale
        at = (float(x), float(share))
        if at not in self.single:
            self.single[at] = self.singly(x, share)
        return found + self.single[at] + arb(0, beyond) - _upto(images)

    def moments(self, count: int) -> list[acb]:
        """Return (A(s) minus the known part) / (s (s + 1)) at ``count`` heights."""
        if count not in self.found:
            tables, self.found[count] = (
                [self._table(pair, count, self.spacing) for pair, _ in self.rounds],
                [],
            )
            for k, here in enumerate(zip(*tables, strict=True)):
                s = acb(self.tilt, k * self.spacing)
                whole = [a + pair.still for a, (pair, _) in zip(here, self.rounds, strict=True)]
                moment = _product(whole, [n for _, n in self.rounds])
                known = self._known(self._flat(s), whole)
                self.found[count].append((moment - known) / (s * (s + 1)))
        return self.found[count]

    def _table(self, pair: Pair, count: int, spacing: arb) -> list[acb]:
        """Return a pair's moments at ``count`` heights: products of two tables of powers."""
        weights, losses, error = nodes(pair, self.tilt, count * spacing)
        width = math.isqrt(count - 1) + 1
        turns = [acb(0, spacing) * loss for loss in losses]
        fine = _powers([turn.exp() for turn in turns], width)
        coarse = _powers([(width * turn).exp() for turn in turns], -(-count // width))
        rows = acb_mat([[w * z for w, z in zip(weights, row, strict=True)] for row in coarse])
        slip = acb(arb(0, error.upper()), arb(0, error.upper()))
        return [z + slip for z in (rows * acb_mat(fine).transpose()).entries()[:count]]


def _normals(rounds: list[tuple[Pair, int]]) -> bool:
    """Return whether any of the noise is normal."""
    return any(piece.gaussian for pair, _ in rounds for piece in pair.pieces)


def _log_most(pair: Pair, tilt: arb) -> arb:
    """Return the log of a bound on a round's moment."""
    weights, _, error = nodes(pair, tilt, arb(0), True)
    return (sum((abs(w) for w in weights), error) + pair.still).log()


def _least(value: Callable[[float], float], highest: int) -> float:
    """Return the approximate minimiser of a value, from e^-9 up to e^highest."""
    best = min(range(-9, highest), key=lambda k: value(math.exp(k)))
    return math.exp(min((best + k / 8 for k in range(-8, 9)), key=lambda k: value(math.exp(k))))


def _powers(first: list[acb], count: int) -> list[list[acb]]:
    """Return the powers 0, 1, ... of numbers with few products, since each product widens balls."""
    table = [[acb(1)] * len(first), first]
    for k in range(2, count):
        table.append([a * b for a, b in zip(table[k // 2], table[k - k // 2], strict=True)])
    return table[:count]


def _product(numbers: list[Any], powers: list[int]) -> Any:
    total = numbers[0] ** powers[0]
    for x, n in zip(numbers[1:], powers[1:], strict=True):
        total *= x**n
    return total


def _others(rounds: list[tuple[Pair, int]]) -> list[tuple[list[tuple[arb, arb]], arb]]:
    """Return for each kind of rounds the single outcomes of all but one; [] if too many."""
    found = []
    for i in range(len(rounds)):
        here = _jumps([(pair, n - (i == j)) for j, (pair, n) in enumerate(rounds)])
        if here is None or len(here[0]) > MOST_ONCE:
            return []
        found.append((here[0], here[1]))
    return found


def _jumps(rounds: list[tuple[Pair, int]]) -> tuple[list[tuple[arb, arb]], arb] | None:
    """Return the (P, Q) masses of all rounds' single outcomes, and P's mass of the omitted ones.

    None if there are too many. The counts of the atoms leave the draws without loss.
    """
    every, rest = [(arb(1), arb(1))], arb(0)
    for pair, count in rounds:
        if count * sum(float(a) for a, _ in pair.atoms) > 150.0:
            return None
        here = _drawn(pair, count)
        if pair.atoms:
            total = (sum((a for a, _ in pair.atoms), arb(0)) + pair.still) ** count
            rest += total - sum((p for p, _ in here), arb(0))
        if len(here) * len(every) > MOST_APART:
            return None
        every = [(p * u, q * v) for p, q in every for u, v in here]
    return every, rest


def _drawn(pair: Pair, count: int) -> list[tuple[arb, arb]]:
    """Return the (P, Q) masses of how often each outcome is drawn; truncated if too many."""
    found = [(arb(1), arb(1), count)]
    for a, b in pair.atoms:
        more = (one for p, q, n in found for one in _times_drawn(a, b, p, q, n))
        found = list(islice(more, MOST_APART + 1))
    return [(p * pair.still**n, q * pair.still**n) for p, q, n in found]


def _times_drawn(a: arb, b: arb, p: arb, q: arb, rounds: int) -> Iterator[tuple[arb, arb, int]]:
    """Yield (P, Q, rounds left) for an outcome drawn 0, 1, ... times, while it may matter."""
    ways = arb(1)
    for k in range(rounds + 1):
        mass = p * ways * a**k
        if k > rounds * float(a) * 4 and float(mass) < 1e-45:
            return
        yield mass, q * ways * b**k, rounds - k
        ways = ways * (rounds - k) / (k + 1)


# --- several rounds, on a lattice -------------------------------------------------------------


class Lattice:
    """Delta at x of (pair, count) rounds between two numbers; x is a lattice point.

    The outcomes of a round are cut where the loss meets a lattice point. The outcomes of a cell are
    spread over its two ends, with the masses of P and Q preserved. The spread round dominates: 1 -
    e^{y - L} is convex in e^{-L}. The excess has a bound. If one more round is spread, delta grows
    by the mean of g(x - R). R is the sum of the other losses. g is the growth of one round's delta
    by its spread: 0 at the points, and within a cell at most the value where the tangents at its
    ends meet. R differs from its spread value by at most a spacing for each round.
    """

    def __init__(self, rounds: list[tuple[Pair, int]], x: float, points: int, small: arb) -> None:
        self.rounds = rounds
        ends = [_reaching(pair, small) for pair, _ in rounds]
        least = sum((n * low for low, (_, n) in zip(ends, rounds, strict=True)), arb(0)) - x / 64
        self.up = max(1, int(points * x / float(x - least)))  # points from 0 to x
        self.h = arb(x) / self.up
        firsts = [math.floor(float(low / self.h)) - 1 for low in ends]
        self.first = sum(n * k for k, (_, n) in zip(firsts, rounds, strict=True))
        self.count = sum(n for _, n in rounds)
        if self.up - self.first > MOST_POINTS:  # an end near 0 next to losses far below it
            raise Undecided("a lattice of too many points")
        self.spreads = [
            Spread(pair, self.h, k, self.up - self.first + self.count, small)
            for k, (pair, _) in zip(firsts, rounds, strict=True)
        ]

    def delta(self, x: arb) -> arb:
        """Return a ball that contains delta at x."""
        counts, whole = [n for _, n in self.rounds], self.up - self.first + 1
        ctx.cap = whole + self.count
        masses = self._composed(counts)[:whole]
        kept = sum(masses, arb(0))
        factor, low = (-self.h).exp(), (-self.first * self.h).exp()
        other = low * arb_poly(masses)(factor)
        lost = sum((n * one.lost for n, one in zip(counts, self.spreads, strict=True)), arb(0))
        p, q = (_product([one.held[k] for one in self.spreads], counts) for k in (0, 1))
        found = p - kept - x.exp() * (q - other)
        slip = 2 * self.count * SLIP
        most = (found + lost + slip).upper()
        return arb(found - self._added(counts) - slip).lower().max(arb(0)).union(arb(most))

    def _composed(self, counts: list[int]) -> list[arb]:
        total = arb_series([1])
        for one, n in zip(self.spreads, counts, strict=True):
            total = total * _power(arb_series(one.masses), n)
        return total.coeffs() + [arb(0)] * (ctx.cap - len(total.coeffs()))

    def _added(self, counts: list[int]) -> arb:
        """Return a bound on the total growth of delta by spreading, over all rounds."""
        total = arb(0)
        for i, one in enumerate(self.spreads):
            others = self._composed([n - (i == j) for j, n in enumerate(counts)])
            gaps = _widened(one.gaps, self.count)  # of cells from one.first - count on
            at = self.up - self.first + self.count  # the index of the gap where R is least
            skipped = max(0, at + 1 - len(gaps))
            pairs = zip(others[skipped:], reversed(gaps[: at + 1]), strict=False)
            total += counts[i] * sum((mass * gap for mass, gap in pairs if gap), arb(0))
        return total


class Spread:
    """A round on a lattice: ``masses`` of P from the point ``first`` on, P's and Q's mass held."""

    def __init__(self, pair: Pair, h: arb, first: int, size: int, small: arb) -> None:
        self.h, self.first, self.lost = h, first, arb(0)
        self.masses, self.gaps = [arb(0)] * (size + 2), [0.0] * (size + 2)
        self.held = [pair.still, pair.still]
        self.masses[-first] += pair.still
        for a, b in pair.atoms:
            self._put(a, b, _place((a / b).log(), h))
        for piece in pair.pieces:
            self._cut(piece, small)

    def _put(self, p: arb, q: arb, k: int) -> None:
        """Spread masses whose loss is between the points k and k + 1."""
        self.held = [self.held[0] + p, self.held[1] + q]
        place = k - self.first
        if place + 1 >= len(self.masses):
            return
        q = q * arb(1, 2 * SLIP)  # losses may exceed an end by this much
        low, high = (k * self.h).exp(), ((k + 1) * self.h).exp()
        top = high * (p - q * low) / (high - low)
        self.masses[place] += p - top
        self.masses[place + 1] += top
        gap = abs((p - top) * top / (low * high * q)) * (high - low)
        self.gaps[place] += float(gap.upper()) * (1 + 1e-9) + 1e-300

    def _cut(self, piece: Piece, small: arb) -> None:
        a, b, lost = _within(piece, small)
        self.lost += lost
        (start, slope), (end, _) = _rising(piece, a), _rising(piece, b)
        if not start < end:
            raise Undecided("the loss of a piece does not increase")
        k, last = _place(start, self.h), _place(end, self.h)
        last = min(last, self.first + len(self.masses))
        while k < last:
            at, slope = _meeting(piece, (k + 1) * self.h, a, b, self.h / slope)
            self._put(*_masses(piece, a, at), k)
            a, k = at, k + 1
        self._put(*_masses(piece, a, b), k)


def _place(loss: arb, h: arb) -> int:
    """Return the point below a loss; the loss may be below it by SLIP."""
    found = (loss / h + SLIP / 8).floor().unique_fmpz()
    if found is None:
        raise Undecided("the position of a loss on the lattice")
    return int(found)


def _masses(piece: Piece, a: arb, b: arb) -> tuple[arb, arb]:
    low, high = (a, b) if a < b else (b, a)
    return piece.held(piece.p, low, high), piece.held(piece.q, low, high)


def _within(piece: Piece, small: arb) -> tuple[arb, arb, arb]:
    """Return the outcomes of the least and the largest loss, and P's mass outside them."""
    low, high, lost = piece.low, piece.high, arb(0)
    if low is None:
        low = (piece.cross if high is None else high.min(piece.cross)).mid()
        while not piece.held(piece.p, None, low) < small:
            low -= 1
        lost += piece.held(piece.p, None, low)
    if high is None:
        high = (piece.cross if piece.low is None else low.max(piece.cross)).mid()
        while not piece.held(piece.p, high, None) < small:
            high += 1
        lost += piece.held(piece.p, high, None)
    turned = _rising(piece, high)[0] < _rising(piece, low)[0]
    return (high, low, lost) if turned else (low, high, lost)


def _reaching(pair: Pair, small: arb) -> arb:
    """Return the approximate least loss."""
    every = [(a / b).log() for a, b in pair.atoms] + [arb(0)]
    every += [_rising(piece, _within(piece, small)[0])[0] for piece in pair.pieces]
    return min((x.mid() for x in every), key=float)


def _rising(piece: Piece, y: arb) -> tuple[arb, arb]:
    """Return (L, L') at y."""
    powers = {m.repr(): (y * m).exp() for _, m in piece.p + piece.q}
    sums = []
    for terms in (piece.p, piece.q):
        every = [(w * powers[m.repr()], m) for w, m in terms]
        sums.append((sum((z for z, _ in every), arb(0)), sum((z * m for z, m in every), arb(0))))
    (p, dp), (q, dq) = sums
    return (p / q).log(), dp / p - dq / q


def _meeting(piece: Piece, target: arb, a: arb, b: arb, step: arb) -> tuple[arb, arb]:
    """Return (y, L' at y) between a and b with L equal to the target, up to SLIP."""
    y = (a + step).mid()
    for _ in range(400):
        if not (y - a) * (b - y) > 0:
            y = ((a + b) / 2).mid()
        loss, slope = _rising(piece, y)
        if abs(loss - target) < SLIP:
            return y, slope
        a, b = (y, b) if loss < target else (a, y)
        y = (y - (loss - target) / slope).mid()
    raise Undecided("a lattice point's outcome")


def _power(base: arb_series, n: int) -> arb_series:
    total = arb_series([1])
    for bit in bin(n)[2:]:
        total = total * total
        total = total * base if bit == "1" else total
    return total


def _widened(values: list[float], reach: int) -> list[float]:
    """Return the maximum within ``reach`` of each place, on ``reach`` more places each side."""
    found, width = [0.0] * (2 * reach) + values + [0.0] * (2 * reach), 1
    while width < 2 * reach + 1:
        step = min(width, 2 * reach + 1 - width)
        found = [max(a, b) for a, b in zip(found, found[step:], strict=False)]
        width += step
    return found


# --- a certificate ----------------------------------------------------------------------------


class Run:
    """One orientation of a run."""

    def __init__(self, parts: list[tuple[Pair, int]], wide: bool) -> None:
        self.rounds, self.wide = parts, wide
        self.lines: dict[tuple[float, bool], Line] = {}
        self.at_most = lru_cache(self._at_most)  # two ends may be one number

    def largest(self) -> arb:
        """Return the largest loss; infinite for Gaussian noise."""
        if _normals(self.rounds):
            return arb("inf")
        tops = [
            max([(a / b).log() for a, b in p.atoms] + [arb(0)], key=float) for p, _ in self.rounds
        ]
        return sum((n * top for top, (_, n) in zip(tops, self.rounds, strict=True)), arb(0))

    def enclosures(self, x: float, share: float) -> Iterator[arb]:
        """Yield balls that contain delta at an epsilon, where delta is about ``share``."""
        if math.isinf(x) or self.largest() <= x:
            yield arb(0)
        elif [n for _, n in self.rounds] == [1]:
            yield alone(self.rounds[0][0], arb(x), arb(share))
        elif share > 0:  # a line is faster for many rounds; for few, the document suggests one
            few = sum(n for _, n in self.rounds) <= FEW_ROUNDS
            ways = (self.on_lattices, self.on_a_line)
            for way in ways if self.wide and few else ways[::-1]:
                with suppress(Undecided):
                    yield from way(x, share)

    def on_lattices(self, x: float, share: float) -> Iterator[arb]:
        """Yield the enclosures of finer and finer lattices."""
        count = sum(n for _, n in self.rounds)
        for points in POINTS if x > 0 and count <= MOST_ROUNDS else ():
            yield Lattice(self.rounds, x, points, arb(share) * 1e-12 / count).delta(arb(x))

    def on_a_line(self, x: float, share: float) -> Iterator[arb]:
        """Yield the enclosures of more and more heights, on the further line too."""
        for nearer in (True, False):
            line = self._line(x, share, nearer)
            level = 1e-3  # allowed relative contribution of the omitted heights
            for _ in range(6):
                found = line.delta(arb(x), level, arb(share))
                yield found
                level = min(level / 10, max(abs(float(found / share) - 1) / 2, 1e-15))
            if not line.cancels:
                return

    def _line(self, x: float, share: float, nearer: bool) -> Line:
        """Return a known line of a nearby end, or a new one."""
        for (y, own), line in self.lines.items():
            if own == nearer and abs(y - x) <= 0.01 * (x + 0.1):
                return line
        return self.lines.setdefault((x, nearer), Line(self.rounds, x, share, nearer))

    def _at_most(self, x: float, value: float) -> bool:
        """Return whether delta(x) is at most a value. False means it is at least the value."""
        if value >= 1:
            return True
        for found in self.enclosures(x, value):
            if found <= value or found >= value:
                return bool(found <= value)
        if value == 0:  # a sum of logarithms, equal to the end if 40 digits agree
            return bool(self.largest() - x < 1e-40)
        raise Undecided(f"delta at epsilon {x!r} against {value!r}")


def _number(value: Any) -> float:
    if value != "inf" and type(value) not in (int, float):
        raise Refused(f"{value!r} is not a number")
    return float(value)


def digest(document: dict[str, Any]) -> str:
    """Return SHA-256 of everything else in the document."""
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _symmetric(tree: Tree) -> bool:
    """Return whether (Q, P) is known to have the profile of (P, Q)."""
    f = tree["fields"]
    if tree["type"] == "Mix":
        return all(_symmetric(part) for _, part in f["parts"])
    return tree["type"] in ("Gdp", "LaplacePair", "LaplaceExchanged") or (
        tree["type"] == "Fold" and f["up"] == f["down"]
    )


def _runs(document: dict[str, Any], which: str) -> list[Run]:
    """Return the orientations of the dominating or the attained run; [] if none is known."""
    every = _counted(document["rounds"], which)
    pairs = _laws(every)
    method = document["bound"]["method"]  # only the order of the methods depends on it
    wide = "lattice" in method or "largest" in method
    if all(_symmetric(tree) for tree, _ in every):
        return [Run(pairs, wide)] if pairs else []
    return [Run(pairs, wide), Run([(pair.swap(), n) for pair, n in pairs], wide)]


def _counted(rounds: list[Tree], which: str) -> list[tuple[Tree, int]]:
    """Return the expressions of rounds, equal ones together."""
    trees: dict[str, int] = {}
    for one in rounds:
        if one[which] is not None:
            tree = json.dumps(one[which], sort_keys=True)
            trees[tree] = trees.get(tree, 0) + one["count"]
    return [(json.loads(tree), n) for tree, n in trees.items()]


def _laws(every: list[tuple[Tree, int]]) -> list[tuple[Pair, int]]:
    """Return the laws of expressions; N(mu, 1) against N(0, 1) add up in mu^2."""
    gaussian = [(t["fields"]["mu"], n) for t, n in every if t["type"] == "Gdp"]
    pairs = [(made(t).split(), n) for t, n in every if t["type"] != "Gdp"]
    if gaussian:
        mu = sum((n * arb(m) ** 2 for m, n in gaussian), arb(0)).sqrt()
        pairs.append((made(_node("Gdp", mu=mu)), 1))
    return pairs


def _check_rounds(mechanism: Tree, rounds: list[Tree], adjacency: str, observer: str) -> None:
    """Refuse rounds whose pairs are not those of the mechanism."""
    parts = _counted_parts(mechanism)
    if len(parts) != len(rounds):
        raise Refused(
            f"the number of rounds differs from the question: {len(rounds)} for {len(parts)} parts"
        )
    for (part, count), one in zip(parts, rounds, strict=True):
        pair, attained = asked(part, adjacency, observer)
        attained = None if observer == "final" else attained
        said = [one["pair"], one["attained"], one["count"]]
        if not _alike(said, [pair, attained, count]):
            raise Refused(f"the pair of {part['type']} x {count} differs from the question")


def _check_facts(bound: dict[str, Any]) -> None:
    """Refuse unknown words: their meaning would not be proved."""
    _one_of(MOVES, bound, "adjacency")
    _one_of(("aggregate", "server", "final"), bound, "observer")
    _one_of(("epsilon", "delta"), bound, "quantity")
    if (bound["unit"], bound["adjacency"], bound["observer"]) == ("client", "add_remove", "server"):
        raise Refused("a client on the server's list is present")


def _check_units(bound: dict[str, Any], units: set[str]) -> None:
    """Refuse another unit than the mechanism's."""
    if units != {bound["unit"]} - {None}:
        raise Refused(
            f"unit {bound['unit']!r:.40} differs from the units of the mechanism: {sorted(units)}"
        )


def check(document: Any) -> dict[str, str]:
    """Return for each end "proved", "wrong" or "not decided", with the reason.

    Args:
        document: a certificate as plain values.

    Raises:
        Refused: it is not a certificate, the digest or a pair does not match the document, or the
            question is not covered.
    """
    if not isinstance(document, dict):
        kind = type(document)
        raise Refused(f"a certificate is a JSON object, not {_WORDS.get(kind, kind.__name__)}")
    try:
        return _checked(document)
    except KeyError as problem:
        raise Refused(f"the field {problem.args[0]!r:.40} is missing") from problem
    except (*_MISSHAPEN, LookupError, ArithmeticError, RecursionError) as problem:
        raise Refused(f"a field has the wrong type ({problem!s:.100})") from problem


_WORDS = {
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
_MISSHAPEN = (ValueError, TypeError, AttributeError)


def _checked(document: dict[str, Any]) -> dict[str, str]:
    ctx.prec = BITS
    if document.get("digest") != digest(document):
        raise Refused("the digest differs from the document, so the document was changed")
    _one_of((1,), document, "version")
    bound, rounds = document["bound"], document["rounds"]
    _check_facts(bound)
    _check_rounds(document["mechanism"], rounds, bound["adjacency"], bound["observer"])
    _check_units(bound, _units(document["mechanism"]))
    dominating = _runs(document, "pair")
    same = all(x["pair"] == x["attained"] for x in rounds)
    shown = dominating if same else _runs(document, "attained")
    low, high = map(_number, bound["resolution"])
    if high != _number(bound["upper"]):
        raise Refused(f"the upper end must be that of the resolution, {high}, got {bound['upper']}")
    epsilon, given = bound["quantity"] == "epsilon", _number(bound["given"])
    _from(0, 1 if epsilon else math.inf, {"given": given}, "given", float)
    question = Question(epsilon, given)
    return {
        "upper": verdict(question.below, dominating, high),
        "lower": verdict(question.above, shown, _number(bound["lower"])),
        "resolution": verdict(question.above, dominating, low),
    }


@dataclass(frozen=True)
class Question:
    """Whether the true epsilon at a delta, or delta at an epsilon, is beyond an end."""

    epsilon: bool
    given: float

    def _at(self, end: float) -> tuple[float, float]:
        return (end, self.given) if self.epsilon else (self.given, end)

    def below(self, runs: list[Run], end: float) -> bool:
        """Return whether the true value is at most this end."""
        return end == math.inf or all(run.at_most(*self._at(end)) for run in runs)

    def above(self, runs: list[Run], end: float) -> bool:
        """Return whether the true value is at least this end."""
        if end == 0:
            return True
        if self.given == 0 and self.epsilon:
            return any(not end > run.largest() for run in runs)
        return any(not run.at_most(*self._at(end)) for run in runs)


def verdict(holds: Callable[[list[Run], float], bool], runs: list[Run], end: float) -> str:
    """Return in words whether an end holds."""
    try:
        return "proved" if holds(runs, end) else "wrong"
    except Undecided as problem:
        return f"not decided ({problem})"


LONGEST = 2**26
"""Largest number of characters of a certificate."""


def content(path: Path) -> str:
    """Return a file's text; a pipe, a device or a file of more than ``LONGEST`` is refused."""
    if path.exists() and not path.is_file():
        raise Refused("not a file")
    with open(path, encoding="utf-8") as file:
        text = file.read(LONGEST + 1)
    if len(text) > LONGEST or deepest(text) > 64:
        raise Refused(f"more than {LONGEST} characters, or nested more than 64 deep")
    return text


def deepest(text: str) -> int:
    """Return the largest number of open brackets, including those in strings."""
    steps = [1 if c in "[{" else -1 for c in text if c in "[]{}"]
    return max(accumulate(steps), default=0)


def printable(text: str) -> str:
    """Return text with control characters escaped, so a file cannot control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's fields; readers disagree about a field that occurs twice.

    Raises:
        Refused: a field occurs twice.
    """
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(f"the field {twice!r:.40} occurs twice")
    return fields


def read(path: str) -> tuple[int, str]:
    """Return a file's exit code, and its proved ends in words."""
    try:
        document = json.loads(content(Path(path)), object_pairs_hook=once)
        found, bound = check(document), document["bound"]
    except Undecided as problem:
        return 3, f"not decided ({problem})"
    except json.JSONDecodeError as problem:
        return 2, f"refused: not JSON ({problem})"
    except (Refused, OSError, ArithmeticError, LookupError, *_MISSHAPEN) as problem:
        return 2, f"refused: {problem}"
    said = f"{bound['quantity']} in [{bound['lower']}, {bound['upper']}]: "
    said += ", ".join(f"{name} {verdict}" for name, verdict in found.items())
    return 1 if "wrong" in found.values() else 3 if set(found.values()) != {"proved"} else 0, said


def main(paths: list[str]) -> int:
    """Check files; print the proved ends of each."""
    worst = 0
    for path in paths:
        code, said = read(path)
        print(printable(f"{path}: {said}"))
        worst = max(worst, code)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
