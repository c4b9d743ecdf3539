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
import operator
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain, islice, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

from flint import acb, acb_mat, arb, arb_mat, arb_poly, ctx, fmpq, fmpz_poly

BITS, ORDER, RHO, EDGES, DEPTH = 192, 40, 3, 20, 36.0
TARGET = 1e-31  # allowed error of a moment for each panel, relative to the moment
MOST_HEIGHTS, MOST_APART, MOST_ONCE = 1 << 16, 1 << 17, 4_000
MOST_STRIDE, STRIDES = 1 << 26, 1 << 11
KEPT_TAILS = 64
STRONG, STRATA = 8, 40
SLIP = arb(2) ** -120  # largest distance of a lattice point's outcome from the point, in loss
POINTS, FINER, MOST_POINTS = (1 << 12, 1 << 14), (1 << 16, 1 << 18), 1 << 21
FEW_ROUNDS, MOST_ROUNDS, UNIT, MOST_BITS = 64, 1 << 14, 64, 1 << 13
ZERO, TINY = arb(0), arb(2) ** -110
MOST_ATOMS, MOST_PIECES, MOST_WAYS, CELLS, MOST_CUTS, MOST_MOVE = 40, 12, 16, 64, 1 << 14, 100
FINE, COARSE, STEPS, MOST_STEPS = 150, 60, 150, 1 << 16
MOST_PLACES, MOST_WIDE, MOST_CELLS = 20_000, 3_000, 400
MOST_CELLS_OF_A_PROFILE = 1 << 20
LEAST_NOISE_INSIDE = 0.55
ASLANT = (25, 0), (15, 20), (7, 24), (0, 25)  # what others send back and across, in 25ths
FEW_FULL, MOST_PLANE, RARE_OUTCOMES = 5e-4, 1 << 18, 1e-3
LEFT_OUT = 1e-7, 1e-18  # shares of delta that laws of draws may leave out, one after the other
Terms = tuple[tuple[arb, arb], ...]  # (coefficient, exponent) of a sum of exponentials
Tree = dict[str, Any]


class Refused(Exception):
    """The document contradicts itself, or needs more than this program covers."""


class Undecided(Exception):
    """An enclosure could not be made small enough."""


SECONDS = 30.0
"""Processor time of a check. After it, all other ends are "not decided"."""
_STOP = [math.inf]


def _in_time() -> None:
    """Stop a loop whose length depends on the numbers of a document."""
    if time.thread_time() > _STOP[0]:
        raise Undecided(f"more than {SECONDS:g} s of processor time")


# --- the question: which pairs ----------------------------------------------------------------


def _node(kind: str, **fields: Any) -> Tree:
    return {"type": kind, "version": 1, "fields": fields}


def _check_listed(adjacency: str, observer: str) -> None:
    """Refuse an addition or removal that a list of participants shows."""
    if (adjacency, observer) == ("add_remove", "server"):
        raise Refused(
            f"the participants show the server which clients are present, so observer {observer!r} "
            f"with adjacency {adjacency!r} is not covered"
        )


def _check_filled(adjacency: str, whole: bool, drawn: Tree) -> None:
    """Refuse an addition or removal if a cohort of a fixed size is the whole population."""
    if adjacency == "add_remove" and whole:
        raise Refused(
            "a cohort of the whole population cannot be filled after an addition or removal "
            f"(size: {drawn['size']!r:.40})"
        )


def _seen(tree: Tree | None, q: float) -> Tree | None:
    rest = _node("Gdp", mu=0.0)
    return tree if q == 1 or tree is None else _node("Mix", parts=[[1 - q, rest], [q, tree]])


def _fields(tree: Tree) -> Tree:
    """Return the fields of a record. Only version 1 is known, and only some fields.

    A field that is not known may change the meaning of the others.
    """
    _one_of((1,), tree, "version")
    found = dict(tree["fields"])
    known = FIELDS.get(str(tree["type"]), "").split()
    if more := found.keys() - known - {"levels"}:
        raise Refused(f"the field {min(more)!r:.40} of {tree['type']!r:.40} is not covered")
    if "clip_norm" in found:
        _from(1e-300, 1e300, found, "clip_norm", int, float)
    return found


_INTEGERS = (
    "noise_multiplier clip_norm kept dimension cohort sparsifier missing colluding topped_up "
    "absent bits granularity rotated overflow seed"
)
FIELDS = {
    "Run": "parts",
    "Gaussian": "noise_multiplier clip_norm unit",
    "Laplace": "noise_multiplier clip_norm unit",
    "SampledMechanism": "inner scheme",
    "HeldMechanism": "inner scheme held",
    "CohortMechanism": "inner scheme",
    "CorrelatedNoise": (
        "noise_multiplier clip_norm unit factor rounds participation kept dimension"
    ),
    "SampledNoise": "noise scheme",
    "DistributedDiscreteGaussian": _INTEGERS,
    "Skellam": _INTEGERS,
    "Poisson": "probability",
    "FixedSize": "size population",
    "Everyone": "",
    "WithReplacement": "draws population probability",
    "TruncatedPoisson": "probability population largest",
    "Shuffled": "rounds_per_epoch population partial",
    "RandomAllocation": "rounds_per_epoch take",
    "SingleParticipation": "apart",
    "MinimumSeparation": "separation at_most apart",
    "FixedEpochs": "separation at_most apart",
    "Identity": "",
    "SquareRootToeplitz": "",
    "Banded": "bands weights",
    "BandedInverse": "bands",
    "BufferedToeplitz": "buffers scales decays",
    "Tree": "online",
    "Restarted": "factor every",
    "Matrix": "array",
}
"""The fields of each mechanism, scheme, rule and factor that this program covers."""


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
    kind = mechanism.get("type")
    if kind in ("HeldMechanism", *OF_CLIENTS):
        return {"client"}
    held = {"record"} if kind == "CohortMechanism" else set[str]()
    return inside | held | ({mechanism["unit"]} if mechanism.get("unit") else set())


OF_CLIENTS = ("DistributedDiscreteGaussian", "Skellam")


def asked(mechanism: Tree, adjacency: str, observer: str) -> tuple[Tree, Tree | None]:
    """Return (dominating pair, attained pair) of one round, from the reference table."""
    kind, f = mechanism["type"], _fields(mechanism)
    if alone := _unsampled(mechanism, MOVES[adjacency]):
        return alone, alone
    q = _chance_of_table(kind, f, adjacency, observer)
    inner = f["inner"]
    pair, attained = asked(inner, adjacency, observer)
    if kind == "CohortMechanism" or observer == "server" or q == 1:
        return _seen(pair, q) or pair, _seen(attained, q)
    if inner["type"] not in ("Gaussian", "Laplace"):
        raise Refused(f"{inner['type']} inside a sampled mechanism is not covered")
    near, far = (
        _node("Sampled", inner=asked(inner, a, observer)[0], q=q)
        for a in ("zero_out", "replace_one")
    )
    return _hidden(inner, near, far, q)[f["scheme"]["type"], adjacency]


def _chance_of_table(kind: str, f: Tree, adjacency: str, observer: str) -> float:
    """Return the chance that a unit takes part; a round outside the reference table is refused."""
    if kind not in ("CohortMechanism", "SampledMechanism"):
        raise Refused(f"{kind} is not covered")
    scheme = f["scheme"]["type"]
    if scheme not in CHANCES:
        raise Refused(f"{kind} {scheme} is not covered")
    drawn = _fields(f["scheme"])
    q = CHANCES[scheme](drawn)
    _check_filled(adjacency, scheme == "FixedSize" and q == 1, drawn)
    sampled = [part["type"] for part, _ in _counted_parts(f["inner"])]
    if kind == "SampledMechanism" and {"SampledMechanism", "CohortMechanism"} & {*sampled}:
        inside = ", ".join(map(str, sampled))
        raise Refused(f"units inside a sampled mechanism cannot be sampled again: {inside:.80}")
    if kind == "SampledMechanism":
        _check_listed(adjacency, observer)
    return q


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


# --- the question: pairs that are made here, in balls -----------------------------------------

Parts = list[tuple[Tree, int]]


def _is_zero(x: arb) -> bool:
    """Return whether a number is certainly 0; ``!=`` of balls holds only if it is certain."""
    return bool(x == 0)


MOST_COLUMN, MOST_DENSE, MOST_DRAWN, MOST_TRIALS, MOST_TERMS = 100_000, 128, 256, 100_000, 10**6


@dataclass(frozen=True)
class Known:
    """The pairs of one part of a run.

    ``above``: each entry composes to a run that dominates the part, except for outcomes of total
    probability ``lost``. ``below``: each entry is attained. The numbers that are drawn are within a
    total variation of ``off`` of the laws. ``trusts``: the theorems that are not proved here.
    """

    above: tuple[Parts, ...]
    below: tuple[Parts, ...] = ()
    lost: arb = arb(0)  # noqa: RUF009
    off: arb = arb(0)  # noqa: RUF009
    trusts: tuple[str, ...] = ()
    missing: arb = arb(0)  # noqa: RUF009
    """Mass that attained laws lack on either side."""

    def times(self, count: int, attained: bool, *trusts: str) -> Known:
        """Return the pairs of ``count`` rounds, attained only if ``attained``."""
        above, below = (
            tuple([(tree, n * count) for tree, n in parts] for parts in every)
            for every in (self.above, self.below if attained else ())
        )
        more = (*self.trusts, *trusts)
        lost, off, missing = (count * x for x in (self.lost, self.off, self.missing))
        return Known(above, below, lost, off, more, missing)

    def hidden(self, q: arb) -> Known:
        """Return a client's part if all see whether the client takes part, with a chance of q."""

        def seen(every: tuple[Parts, ...]) -> tuple[Parts, ...]:
            for counts in ([n for _, n in parts] for parts in every):
                if counts != [1]:
                    raise Refused(f"several rounds inside a cohort are not covered: {counts}")
            return tuple([(_or_idle(parts[0][0], q), 1)] for parts in every)

        return replace(self, above=seen(self.above), below=seen(self.below))


def _or_idle(tree: Tree, q: arb) -> Tree:
    rest = _node("Gdp", mu=arb(0))
    return tree if q == 1 else _node("Mix", parts=[[1 - q, rest], [q, tree]])


def _same(tree: Tree, *trusts: str) -> Known:
    """Return the pairs if a pair dominates and is attained."""
    return Known(([(tree, 1)],), ([(tree, 1)],), trusts=trusts)


def _whole(low: int, high: int, fields: Tree, name: str) -> int:
    return int(_from(low, high, fields, name, int))


def _chance(fields: Tree, name: str) -> arb:
    return arb(_from(1e-300, 1, fields, name, int, float))


# the law of how often a unit is drawn

Law = list[tuple[int, arb]]


def _falling_law(first: int, weight: arb, ratio: Callable[[int], arb], small: float) -> Law:
    """Return the weights from ``first`` on, without numbers of about ``small`` probability.

    ``ratio(s)`` is weight s + 1 over weight s; ratios fall.
    """
    found, s = [(first, weight)], first
    while ratio(s) > 0:
        s, weight = s + 1, weight * ratio(s)
        after = ratio(s)
        if after < 0.5 and weight / (1 - after) < small:
            break
        found.append((s, weight))
        if len(found) > MOST_DRAWN:
            raise Refused(f"more than {MOST_DRAWN} draws of one unit are not covered")
    return found


def _binomial(trials: int, p: arb, small: float) -> Law:
    """Return the law of Bin(trials, p); see ``_falling_law``."""
    if p == 1:
        return [(trials, arb(1))]
    odds = p / (1 - p)
    return _falling_law(0, (1 - p) ** trials, lambda s: odds * (trials - s) / (s + 1), small)


def _hypergeometric(drawn: int, marked: int, population: int, small: float) -> Law:
    """Return the law of the number of marked units among those drawn; see ``_falling_law``."""
    least, others = max(0, drawn + marked - population), population - marked
    log = _log_choose(marked, least) + _log_choose(others, drawn - least)

    def ratio(s: int) -> arb:
        return arb((marked - s) * (drawn - s)) / ((s + 1) * (others - drawn + s + 1))

    start = (log - _log_choose(population, drawn)).exp()
    return _falling_law(least, start, ratio, small)


def _log_choose(n: int, k: int) -> arb:
    return arb(n + 1).lgamma() - arb(k + 1).lgamma() - arb(n - k + 1).lgamma()


def _rest(law: Law) -> arb:
    """Return the chance of the numbers that are not listed."""
    return 1 - sum((w for _, w in law), ZERO) if len(law) > 1 else ZERO


def _given_listed(law: Law) -> Law:
    """Return the law of a listed number."""
    rest = _rest(law)
    return [(s, w / (1 - rest)) for s, w in law]


def _tail(trials: int, p: arb, k: int) -> arb:
    """Return P(Bin(trials, p) >= k)."""
    return _sides(trials, p, k)[1]


def _sides(trials: int, p: arb, k: int) -> tuple[arb, arb]:
    """Return P(Bin(trials, p) < k) and P(Bin(trials, p) >= k); the smaller keeps its digits."""
    if k > trials:
        return arb(1), arb(0)
    if k <= 0 or p == 1:
        return arb(0), arb(1)
    odds, mean = p / (1 - p), float(trials * p)
    upwards = k > mean
    at = k if upwards else k - 1
    weight = _mass(trials, p, at)
    first, total = weight, arb(0)
    for _ in range(MOST_TRIALS):
        total += weight
        step = odds * (trials - at) / (at + 1) if upwards else arb(at) / (odds * (trials - at + 1))
        weight, at = weight * step, at + (1 if upwards else -1)
        if not 0 <= at <= trials:
            break
        if step < 1 and weight / (1 - step) < first * arb(2) ** -200:
            total += _upto(weight / (1 - step))
            break
    else:
        raise Undecided(f"a binomial tail of more than {MOST_TRIALS} terms")
    return (1 - total, total) if upwards else (total, 1 - total)


def _mass(trials: int, p: arb, k: int) -> arb:
    """Return P(Bin(trials, p) = k) for p below 1."""
    return (_log_choose(trials, k) + k * p.log() + (trials - k) * (1 - p).log()).exp()


# one round of a sum of Gaussian noise or of noise that a Gaussian dominates


@dataclass(frozen=True)
class Sum:
    """The pair of a unit that comes or goes, and of a unit that is replaced.

    Attributes:
        near: the pair under ``zero_out``.
        far: the pair under ``replace_one``.
        z: noise multiplier if the mechanism is one Gaussian sum, else None.
        attained: whether these pairs are attained.
        absent: whether a unit that sends 0 looks like an absent one.
        off: total variation of the drawn numbers from their law.
    """

    near: Tree
    far: Tree
    z: arb | None = None
    attained: bool = True
    absent: bool = True
    off: arb = arb(0)  # noqa: RUF009
    trusts: tuple[str, ...] = ()

    def pair(self, adjacency: str) -> Tree:
        """Return the pair of a unit that always takes part."""
        return self.far if adjacency == "replace_one" else self.near

    def known(self, above: Tree, below: Tree | None, lost: arb = ZERO, *trusts: str) -> Known:
        """Return the pairs of a round."""
        shown = () if below is None or not self.attained else ([(below, 1)],)
        return Known(([(above, 1)],), shown, lost, self.off, (*self.trusts, *trusts))


def _sum_of(inner: Tree, scheme: Tree) -> Sum:
    """Return the mechanism that is sampled."""
    kind = inner["type"]
    if kind not in SUMS:
        raise Refused(f"{kind} inside a sampled mechanism is not covered")
    return SUMS[kind](inner, scheme)


def _gaussian_sum(inner: Tree, scheme: Tree | None = None) -> Sum:
    z = arb(_noise(_fields(inner)))
    return Sum(_node("Gdp", mu=1 / z), _node("Gdp", mu=2 / z), z)


def _one_sum(one: Sum, what: str) -> arb:
    if one.z is None:
        raise Refused(f"{what} of noise that is not one Gaussian sum is not covered")
    return one.z


def _at_rate(tree: Tree, q: arb) -> Tree:
    return tree if q == 1 else _node("Sampled", inner=tree, q=q)


def _opposite(one: Sum, q: arb) -> Tree:
    """Return the pair of a unit that is drawn with a chance of q and sends C u or -C u."""
    if q == 1:
        return one.far
    if one.z is None:  # a fold of replacement, which removal does not exceed
        far = _at_rate(one.far, q)
        return _node("Fold", up=far, down=far)
    stays = [1 - q, arb(0)]
    return _node("GaussianMix", std=one.z, p=[stays, [q, arb(1)]], q=[stays, [q, arb(-1)]])


def _check_absent(one: Sum, adjacency: str) -> None:
    """Refuse an addition or removal if an absent client's share of the noise is missing."""
    if adjacency == "add_remove" and not one.absent:
        raise Refused(
            f"adjacency {adjacency!r} needs topped_up noise: otherwise a sum shows that an absent "
            "client's share of the noise is missing"
        )


def _poisson(one: Sum, f: Tree, adjacency: str, small: float) -> Known:
    return _independent(one, _chance(f, "probability"), adjacency)


def _independent(one: Sum, q: arb, adjacency: str) -> Known:
    """Return the pairs if a unit is drawn with a chance of q, independently of all others."""
    if adjacency == "replace_one":
        pair, trust = _opposite(one, q), "T1" if one.z is None else "T9"
        return one.known(pair, None if one.z is None else pair, ZERO, trust)
    if adjacency == "zero_out" and not one.absent:
        return one.known(_or_idle(one.near, q), one.near if q == 1 else None, ZERO, "T4")
    pair = _at_rate(one.near, q)
    return one.known(pair, pair, ZERO, "T2")


def _fixed_size(one: Sum, f: Tree, adjacency: str, small: float) -> Known:
    n = _whole(1, 2**63, f, "population")
    q = arb(_whole(1, n, f, "size")) / n
    _check_filled(adjacency, bool(q == 1), f)
    if adjacency == "add_remove":
        pair = _at_rate(one.far, q)
        return one.known(pair, pair, ZERO, "T3, T9")
    if q == 1:
        return one.known(one.pair(adjacency), one.pair(adjacency))
    far = _at_rate(one.far, q)
    if adjacency == "replace_one" or one.z is None:
        shown = far if adjacency == "replace_one" else _at_rate(one.near, q)
        return one.known(_node("Fold", up=far, down=far), shown, ZERO, "T1")
    up = _given_way(one.z, q, arb(1))
    return one.known(_node("Fold", up=up, down=_at_rate(one.near, q)), up, ZERO, "T9")


def _given_way(z: arb, q: arb, s: arb) -> Tree:
    """Return the pair of a unit whose slot another one fills that sends the opposite, s times."""
    rest = [1 - q, -s]
    return _node("GaussianMix", std=z, p=[rest, [q, s]], q=[rest, [q, arb(0)]])


def _everyone(one: Sum, f: Tree, adjacency: str, small: float) -> Known:
    _check_absent(one, adjacency)
    return one.known(one.pair(adjacency), one.pair(adjacency))


def _shifted(z: arb, law: Law, there: int, back: int) -> Tree:
    """Return N(there s) against N(-back s), s of the law; without ``back`` against N(0)."""
    if len(law) == 1:
        return _node("Gdp", mu=arb((there + back) * law[0][0]) / z)
    other = [[w, arb(-back * s)] for s, w in law] if back else [[arb(1), arb(0)]]
    pair = [[w, arb(there * s)] for s, w in law]
    return _node("GaussianMix", std=z, p=pair, q=other, listed=True)


def _labelled(z: arb, law: Law, moves: int) -> Tree:
    """Return the pair of an observer who sees how often the unit is drawn."""
    if len(law) == 1:
        return _node("Gdp", mu=arb(moves * law[0][0]) / z)
    parts = [[w, _node("Gdp", mu=arb(moves * s) / z)] for s, w in law]
    return _node("Mix", parts=parts, listed=True)


def _apart(z: arb, law: Law, adjacency: str) -> Known:
    """Return the pairs if records of one client are drawn independently of each other (T13)."""
    pair = _shifted(z, law, 1, int(adjacency == "replace_one"))
    return _listed(([(pair, 1)],), ([(pair, 1)],), law, "T13")


def _listed(above: tuple[Parts, ...], below: tuple[Parts, ...], law: Law, trust: str) -> Known:
    """Return pairs whose laws lack the numbers that are not listed."""
    lost = arb(_rest(law).upper()).max(ZERO)
    return Known(above, below, lost, ZERO, (trust,), lost)


def _in_slots(z: arb, law: Law, adjacency: str) -> Known:
    """Return the pairs if every draw of a unit takes the slot of another one (T5, T9, T13, T19)."""
    shown = _shifted(z, law, 2, 0)
    if adjacency == "add_remove":
        return _listed(([(shown, 1)],), ([(shown, 1)],), law, "T9")
    up = _given_listed(law)
    q = 1 - up[0][1] if up[0][0] == 0 else arb(1)
    times = [(s, w / q) for s, w in up if s]
    moves = 2 if adjacency == "replace_one" else 1
    low = _at_rate(_labelled(z, times, moves), q)
    if adjacency == "replace_one":
        high, others = low, [shown]
    else:
        high = _slots_given(z, q, times)
        others = [_node("Opposed", std=z, law=law), _shifted(z, law, 1, 0)]
    folded: Tree = low if q == 1 else _node("Fold", up=high, down=low)
    above = [folded, _shifted(z, law, 2, moves)]
    if len(law) > 2 and z > LEAST_NOISE_INSIDE:
        inner = _node("InnerDraws", std=z, law=up, replaced=moves == 2, rest=_rest(law))
        above.append(inner)
    ways, shows = (tuple([(tree, 1)] for tree in trees) for trees in (above, others))
    return _listed(ways, shows, law, "T5, T9, T13, T19")


def _slots_given(z: arb, q: arb, times: Law) -> Tree:
    """Return the pair of a unit, drawn with a chance of q, whose slots other ones fill."""
    gone = [
        (w, _node("Gdp", mu=arb(s) / z) if q == 1 else _given_way(z, q, arb(s))) for s, w in times
    ]
    return gone[0][1] if len(gone) == 1 else _node("Mix", parts=gone)


def _seen_draws(z: arb, law: Law, adjacency: str) -> Known:
    """Return the pairs if the server sees how often the unit is drawn (T4)."""
    moves = 2 if adjacency == "replace_one" else 1
    pair = _labelled(z, law, moves)
    return _listed(([(pair, 1)],), ([(pair, 1)],), law, "T4")


def _draw_chance(f: Tree, held: int = 1) -> arb:
    """Return the chance that a draw with replacement is of one of ``held`` units."""
    if f["population"] is None:
        chance = held * _chance(f, "probability")
    else:
        _one_of((None,), f, "probability")
        chance = arb(held) / _whole(held, 2**63, f, "population")
    if not chance <= 1:
        raise Refused(f"a draw is of one of {held} units with a chance of {chance.str(5)}, above 1")
    return chance


def _with_replacement(one: Sum, f: Tree, adjacency: str, small: float) -> Known:
    return _replaced(one, f, adjacency, small)[0]


def _replaced(one: Sum, f: Tree, adjacency: str, small: float, held: int = 1) -> tuple[Known, Law]:
    """Return the pairs of draws with replacement, and the law of a unit's draws."""
    p = _draw_chance(f, held)
    if p == 1 and adjacency == "add_remove":
        raise Refused(
            f"all {f['draws']!r:.40} draws are of one unit, so no round is possible without it"
        )
    law = _binomial(_whole(1, 2**53, f, "draws"), p, small)
    return _in_slots(_one_sum(one, "WithReplacement"), law, adjacency), law


def _truncated(one: Sum, f: Tree, adjacency: str, small: float) -> Known:
    """Return the pairs of truncated Poisson sampling (T10)."""
    q, n = _chance(f, "probability"), _whole(1, 2**53, f, "population")
    most = _whole(1, 2**53, f, "largest")
    share = arb(most) / n
    if most >= n + (adjacency == "add_remove"):
        return _independent(one, q, adjacency)
    takes = _takes_part(q, n, most)
    trust = "T10" if adjacency != "replace_one" or one.z is None else "T10, T9"
    if adjacency == "add_remove":
        pair = _truncated_more(one, q, n, most)
        found = one.known(pair, _at_rate(one.near, takes), ZERO, trust)
        found = replace(found, above=(*_who_else(one, q, n, most), *found.above))
        return _among_others(found, one, q, n, most, adjacency, small)
    if adjacency == "zero_out" and not one.absent:
        return one.known(_or_idle(one.near, takes), None, ZERO, "T4")
    at = partial(_opposite, one) if adjacency == "replace_one" else partial(_at_rate, one.near)
    shown = None if adjacency == "replace_one" and one.z is None else at(takes)
    found = one.known(_among_few_or_last(q, n, most, at), shown, ZERO, trust)
    if one.z is None:
        return found
    free, full = _sides(n - 1, q, most)
    kept = share * _tail(n, q, most + 1) / full
    slot = _node("Fold", **_in_a_slot(one, one.z, kept, adjacency))
    slots = _mixed([[free, at(q)], [full, slot]])
    found = replace(found, above=([(slots, 1)], *found.above))
    return _among_others(found, one, q, n, most, adjacency, small)


def _among_few_or_last(q: arb, n: int, most: int, at: Callable[[arb], Tree]) -> Tree:
    """Return the pair of a unit that is not kept, is drawn among few, or is the last that fits.

    Args:
        q: the chance that a unit is drawn.
        n: number of units.
        most: largest number of units that are kept.
        at: the pair of a unit that is drawn with a chance.
    """
    filled = _tail(n, q, most)
    chosen = arb(most) / n * filled
    leaves = ZERO if q == 1 else (1 - q) * _mass(n - 1, q, most - 1)
    alone = chosen + leaves
    none = filled * (n - most) / n
    last = at(arb(1)) if q == 1 else at(chosen / alone)
    few = [_sides(n - 1, q, most - 1)[0], at(q)]
    return _mixed([[none, _node("Gdp", mu=arb(0))], few, [alone, last]])


def _truncated_more(one: Sum, q: arb, n: int, most: int) -> Tree:
    """Return the pair of a unit more or less under truncated Poisson sampling (T10)."""
    low, free = _tail(n - 1, q, most), _sides(n, q, most)[0]
    between = ZERO if q == 1 else q * _mass(n - 1, q, most - 1)
    kept = arb(most) / n * _tail(n, q, most + 1) / low if most < n else q
    parts = [
        [free, _at_rate(one.near, q)],
        [low, _at_rate(one.far, kept)],
        [between, _at_rate(one.far, q)],
    ]
    return _mixed(parts)


def _in_a_slot(one: Sum, z: arb, q: arb, adjacency: str) -> Tree:
    """Return both halves of the pair of a cohort of a fixed size."""
    if adjacency == "replace_one":
        far = _at_rate(one.far, q)
        return {"up": far, "down": far}
    return {"up": _given_way(z, q, arb(1)), "down": _at_rate(one.near, q)}


def _among_others(
    found: Known, one: Sum, q: arb, n: int, most: int, adjacency: str, small: float
) -> Known:
    """Return the pairs with those of data sets whose other units send a vector aslant (T10)."""
    full, rest = _sides(n - 1, q, most)[::-1]
    if one.z is None or not one.attained or not full > FEW_FULL:
        return found
    taken = arb(most) / n * _tail(n, q, most + 1)
    there = [(taken, 1, most - 1), (full - taken, 0, most)]
    none = [(full, 0, most)]
    left = _places_left(q, n, most, small)
    if left is None:
        return found
    for weight, at in left:
        there += [(q * weight, 1, at), ((1 - q) * weight, 0, at)]
        none.append((weight, 0, at))
        rest -= weight
    away = {"zero_out": 0, "replace_one": -1}.get(adjacency)
    gone = none if away is None else [(w, i * away, j) for w, i, j in there]
    ways = tuple(
        [(_node("CohortSum", std=one.z, there=there, gone=gone, back=back, across=across), 1)]
        for back, across in ASLANT
    )
    missing = found.missing.max(arb(rest.upper()).max(ZERO))
    return replace(found, below=(*found.below, *ways), missing=missing)


def _places_left(q: arb, n: int, most: int, small: float) -> list[tuple[arb, int]] | None:
    """Return chances of numbers of others that leave places, from the largest on; None if too many.

    Numbers of about ``small`` probability are left out.
    """
    found, at = list[tuple[arb, int]](), most - 1
    if not q < 1:
        return found
    odds, weight = q / (1 - q), _mass(n - 1, q, at)
    while len(found) < MOST_DRAWN:
        found.append((weight, at))
        step = arb(at) / (odds * (n - at))
        if at == 0 or (step < 0.5 and weight * step < small / 4):
            return found
        at, weight = at - 1, weight * step
    return None


def _who_else(one: Sum, q: arb, n: int, most: int) -> list[Parts]:
    """Return the pair that also shows which others take part: a unit more or less (T10); or none.

    Labels are: no place is left, one place, or more. The chance of one place stands for the law of
    who else takes part, which is another one without the unit.
    """
    if one.near["type"] != "Gdp" or q == 1:
        return []
    mu, cases = one.near["fields"]["mu"], []
    for others in (n - 1, n):
        # Fewer others than places are never too many.
        if others < most:
            continue
        full, above = _tail(others, q, most), _tail(others + 1, q, most + 1)
        near, taken = _tail(others, q, most - 1) - full, arb(most) / (others + 1) * above
        if not (full > 0 and near > 0 and q + taken / near < 1):
            return []
        if (b := _crowded(mu, q, full, near, taken)) is None:
            return []
        cases.append((full, near, b))
    full, near, b = cases[0]
    for other in cases[1:]:
        full, near, b = full.min(other[0]), near.max(other[1]), b.max(other[2])
    if most > n - 1:
        full = arb(0)
    if not 1 - full - near > 0:
        return []
    parts = [
        [full, _node("Gdp", mu=arb(0))],
        [1 - full - near, _at_rate(one.near, q)],
        [near, _at_rate(one.near, b)],
    ]
    return [[(_mixed(parts), 1)]]


def _crowded(mu: arb, q: arb, full: arb, near: arb, taken: arb) -> arb | None:
    """Return a chance b that meets the condition of T10, or None."""
    least, lost = q + taken / near, taken / full

    def area(b: arb, v: arb) -> arb:
        """Return b H_{v/b} of N(mu) against N(0)."""
        if not v > 0:
            return arb("nan")  # no condition holds with it
        cut = (v / b).log() / mu
        return b * _normal_below(mu / 2 - cut) - v * _normal_below(-mu / 2 - cut)

    def serves(b: arb) -> bool:
        for k in range(32):
            low, high = -lost * (k + 1) / 32, -lost * k / 32
            if not near * (area(b, b + low) - area(least, q + low)) >= full * high:
                return False
        return bool(area(b, b) >= area(least, q))

    low, high = float(least.upper()), 1.0 - 1e-7
    if not serves(arb(high)):
        return None
    while high - low > 1e-8 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if serves(arb(middle)) else (middle, high)
    return arb(high)


def _mixed(parts: list[Any]) -> Tree:
    """Return the mixture of labels, without those of weight 0."""
    kept = [part for part in parts if not _is_zero(part[0])]
    if unclear := [w for w, _ in kept if not w > 0]:
        raise Undecided(f"whether the weight {unclear[0].str(5)} of a label is above 0")
    return _node("Mix", parts=kept)


def _takes_part(q: arb, n: int, most: int) -> arb:
    """Return the chance that a unit is drawn and kept."""
    if most >= n:
        return q
    return (1 - _tail(n - 1, q, most)) * q + arb(most) / n * _tail(n, q, most + 1)


def _shuffled(one: Sum, f: Tree, adjacency: str, small: float) -> Known:
    t, partial = _whole(1, 2**53, f, "rounds_per_epoch"), _one_of((True, False), f, "partial")
    if adjacency == "add_remove" and (t > 1 or partial):
        raise Refused(
            f"no upper end is known of a unit more in a shuffled epoch of {t} rounds "
            f"(partial: {partial})"
        )
    pair = one.pair(adjacency)
    found = one.known(pair, None if partial else pair)
    if t == 1 or partial:
        return found
    below: tuple[Parts, ...] = ()
    if one.z is not None:
        mu = (2 if adjacency == "replace_one" else 1) / one.z
        below = ([(_allocation(mu, t, -1, small), 1)],)
        if adjacency == "zero_out":
            cells = _node("LargestRound", shown=2 * mu, hidden=mu, rounds=t)
            below = ([(cells, 1)], *below)
    return replace(found, below=below, trusts=(*found.trusts, "parallel composition"))


def _allocated(one: Sum, f: Tree, adjacency: str, small: float) -> Known:
    """Return the pairs of units that draw some rounds of an epoch (T11)."""
    t, pair = _whole(1, 2**53, f, "rounds_per_epoch"), one.pair(adjacency)
    k = _whole(1, t, {"take": 1} | f, "take")
    plain = one.known(pair, pair if t == k else None, ZERO, "joint convexity").times(k, True)
    if t == k or one.z is None:
        return plain
    mu, swap = 1 / one.z, adjacency == "replace_one"
    length, longer = divmod(t, k)
    blocks = [(length, k - longer), (length + 1, longer)]
    above = [(_one_of_rounds(mu, size, swap, small), n) for size, n in blocks if n]
    below = _attained_sums(mu, t, k, swap)
    if k == 1 and not swap:
        below = [[(_allocation(mu, t, -1, small), 1)]]
    ways = (*_own_pairs(mu, f.get("levels"), blocks), above, *plain.above) if swap else (above,)
    return Known(ways, tuple(below), ZERO, one.off, ("T11",))


def _attained_sums(mu: arb, t: int, k: int, swap: bool) -> list[Parts]:
    """Return the pairs of sums over an epoch's t rounds, k of which a unit is in."""
    shown = (2 if swap else 1) * mu * k / arb(t).sqrt()
    sums = [
        _node("SummedRounds", mu=mu, opposite=swap, rounds=t, take=k, share=share)
        for share in (4, 2, 1)
    ]
    return [[(tree, 1)] for tree in (*sums, _node("Gdp", mu=shown))]


def _own_pairs(mu: arb, named: Any, blocks: list[tuple[int, int]]) -> list[Parts]:
    """Return the way by profiles that a certificate proposes for a replaced unit; [] if none."""
    points = {size: known for size, known in named or () if type(size) is int}
    sizes = [(size, n) for size, n in blocks if n]
    if not all(size == 1 or size in points for size, _ in sizes):
        return []
    one = (
        _node("Gdp", mu=2 * mu)
        if size == 1
        else _node("Exchanged", mu=mu, rounds=size, points=points[size])
        for size, _ in sizes
    )
    return [[(tree, n) for tree, (_, n) in zip(one, sizes, strict=True)]]


def _one_of_rounds(mu: arb, rounds: int, swap: bool, small: float) -> Tree:
    """Return the pair of a unit that is in one of some rounds, or is replaced by another."""
    if rounds == 1:
        return _node("Gdp", mu=2 * mu if swap else mu)
    found = _allocation(mu, rounds, 1, small)
    return _node("Replaced", **found["fields"]) if swap else found


def _allocation(mu: arb, rounds: int, side: int, small: float) -> Tree:
    """Return the pair of a unit that takes part in one of some rounds."""
    return _node("Averages", levels=[[rounds, mu * mu]], side=side, small=small)


SUMS: dict[str, Callable[[Tree, Tree], Sum]] = {
    "Gaussian": _gaussian_sum,
    **dict.fromkeys(OF_CLIENTS, lambda inner, scheme: _integer_sum(inner, scheme)),
}
DRAWN: dict[str, Callable[[Sum, Tree, str, float], Known]] = {
    "Poisson": _poisson,
    "FixedSize": _fixed_size,
    "Everyone": _everyone,
    "WithReplacement": _with_replacement,
    "TruncatedPoisson": _truncated,
    "Shuffled": _shuffled,
    "RandomAllocation": _allocated,
}


def _on_drawn_units(f: Tree, adjacency: str, observer: str, small: float) -> Known:
    """Return the pairs of a mechanism whose units are sampled."""
    scheme = f["scheme"]
    if scheme["type"] == "RandomAllocation" and f.get("levels"):
        scheme = scheme | {"fields": scheme["fields"] | {"levels": f["levels"]}}
    return _of_sum(_sum_of(f["inner"], f["scheme"]), scheme, adjacency, observer, small)


def _of_sum(one: Sum, scheme: Tree, adjacency: str, observer: str, small: float) -> Known:
    """Return the pairs of a sum whose units a scheme draws."""
    kind, drawn = _one_of(DRAWN, scheme, "type"), _fields(scheme)
    if observer != "server":
        return DRAWN[kind](one, drawn, adjacency, small)
    _check_listed(adjacency, observer)
    if kind == "WithReplacement":
        law = _replaced(one, drawn, adjacency, small)[1]
        return _seen_draws(_one_sum(one, kind), law, adjacency)
    pair, q = one.pair(adjacency), _rate(kind, drawn)
    if kind == "RandomAllocation":
        rounds = _whole(1, drawn["rounds_per_epoch"], {"take": 1} | drawn, "take")
        return one.known(pair, pair).times(rounds, True, "parallel composition")
    found = one.known(_or_idle(pair, q), _or_idle(pair, q), ZERO, "T4")
    return replace(found, below=()) if kind == "Shuffled" and drawn["partial"] else found


def _rate(kind: str, f: Tree) -> arb:
    """Return the chance that a unit takes part in a round, or in an epoch of rounds."""
    if kind == "Poisson":
        return _chance(f, "probability")
    if kind == "FixedSize":
        n = _whole(1, 2**63, f, "population")
        return arb(_whole(1, n, f, "size")) / n
    if kind == "TruncatedPoisson":
        n, most = (_whole(1, 2**53, f, name) for name in ("population", "largest"))
        return _takes_part(_chance(f, "probability"), n, most)
    return arb(1)


def _held(f: Tree, adjacency: str, observer: str, small: float) -> Known:
    """Return the pairs of a client that holds several of the records that are drawn (T13)."""
    if f["inner"]["type"] != "Gaussian":
        raise Refused(
            f"several records of a client are covered in Gaussian noise only, not in "
            f"{f['inner']['type']!r:.40}"
        )
    one, scheme, held = _gaussian_sum(f["inner"]), f["scheme"], _whole(2, 10**9, f, "held")
    kind, drawn, z = scheme["type"], _fields(scheme), _one_sum(one, "held")
    fills = True
    if kind == "Poisson":
        law = _binomial(held, _chance(drawn, "probability"), small)
    elif kind == "Everyone":
        law = [(held, arb(1))]
    elif kind == "FixedSize":
        n = _whole(held, 2**53, drawn, "population")
        size = _whole(1, n, drawn, "size")
        law, fills = _hypergeometric(size, held, n, small), size <= n - held
    elif kind == "WithReplacement":
        law = _replaced(one, drawn, adjacency, small, held)[1]
    else:
        raise Refused(f"a client that holds several records under {kind} is not covered")
    _check_listed(adjacency, observer)
    if observer == "server":
        return _seen_draws(z, law, adjacency)
    if kind in ("Poisson", "Everyone"):
        return _apart(z, law, adjacency)
    if adjacency == "add_remove" and not fills:
        raise Refused(
            f"without the client's {held} records a cohort of {drawn['size']} cannot be filled "
            f"from a population of {drawn['population']}"
        )
    return _in_slots(z, law, adjacency)


# correlated noise: a factor C, and how much one unit changes C x


@dataclass(frozen=True)
class Rule:
    """A unit's rounds: at least ``gap`` apart, ``most`` in all; multiples of it if ``together``."""

    gap: int
    most: int
    together: bool
    apart: bool


def _rule(tree: Tree, rounds: int) -> Rule:
    kind, f = tree["type"], _fields(tree)
    apart = bool(_one_of((True, False), f, "apart"))
    if kind == "SingleParticipation":
        return Rule(rounds, 1, False, apart)
    if kind not in ("MinimumSeparation", "FixedEpochs"):
        raise Refused(f"participation {kind!r:.40} is not covered")
    b = _whole(1, 2**53, f, "separation")
    k = -(-rounds // b) if f["at_most"] is None else _whole(1, 2**53, f, "at_most")
    return Rule(min(b, rounds), min(k, -(-rounds // b)), kind == "FixedEpochs", apart)


def _column(tree: Tree, rounds: int) -> list[arb] | None:
    """Return the first column of a lower-triangular Toeplitz matrix; None for other factors."""
    kind, f = tree["type"], _fields(tree)
    if kind not in COLUMNS:
        return None
    if rounds > MOST_COLUMN:
        raise Refused(f"more than {MOST_COLUMN} rounds of correlated noise are not covered")
    found = COLUMNS[kind](f, rounds)[:rounds]
    return found + [arb(0)] * (rounds - len(found))


def _check_work(rounds: int, count: int, what: str) -> None:
    """Refuse sums of too many terms."""
    if rounds * count > MOST_TERMS:
        raise Refused(
            f"{rounds} rounds with {count} {what} are not covered; their product may be at most "
            f"{MOST_TERMS}"
        )


def _roots(count: int, odd: int) -> list[arb]:
    """Return coefficients of (1 - x)^(-1/2) (odd = 1), or of its inverse (odd = 3)."""
    found = [arb(1)]
    for k in range(1, count):
        found.append(found[-1] * (2 * k - odd) / (2 * k))
    return found


def _banded(f: Tree, rounds: int) -> list[arb]:
    bands = _whole(1, 2**53, f, "bands")
    if f["weights"] is None:
        return _roots(min(bands, rounds), 1)
    if len(f["weights"]) != bands:
        raise Refused(f"{bands} bands need as many weights, got {len(f['weights'])}")
    return _positive_first([arb(_entry(w)) for w in f["weights"]])


def _positive_first(column: list[arb]) -> list[arb]:
    if not column[0] > 0:
        raise Refused(f"a factor needs a diagonal above 0, got {column[0].str(5)}")
    return column


def _entry(value: Any) -> float:
    return float(_from(-1e150, 1e150, {"entry": value}, "entry", int, float))


def _banded_inverse(f: Tree, rounds: int) -> list[arb]:
    inverse, found = _roots(min(_whole(1, 2**53, f, "bands"), rounds), 3), [arb(1)]
    _check_work(rounds, len(inverse), "bands")
    for k in range(1, rounds):
        near = range(1, min(k, len(inverse) - 1) + 1)
        found.append(-sum((inverse[j] * found[k - j] for j in near), arb(0)))
    return found


def _buffered(f: Tree, rounds: int) -> list[arb]:
    if f["scales"] is None or f["decays"] is None:
        raise Refused(
            "scales and decays of a BufferedToeplitz must be stated, got "
            f"{f['scales']!r:.40} and {f['decays']!r:.40}"
        )
    terms = [
        [
            arb(_from(0, 1e150, {"scales": s}, "scales", float)),
            arb(_from(0, 1, {"decays": d}, "decays", float)),
        ]
        for s, d in zip(f["scales"], f["decays"], strict=True)
    ]
    _check_work(rounds, len(terms), "buffers")
    found = [arb(1)]
    for _ in range(rounds - 1):
        found.append(sum((s for s, _ in terms), arb(0)))
        terms = [[s * d, d] for s, d in terms]
    return found


COLUMNS: dict[str, Callable[[Tree, int], list[arb]]] = {
    "Identity": lambda f, rounds: [arb(1)],
    "SquareRootToeplitz": lambda f, rounds: _roots(rounds, 1),
    "Banded": _banded,
    "BandedInverse": _banded_inverse,
    "BufferedToeplitz": _buffered,
}


def _dense(tree: Tree, rounds: int) -> list[list[arb]]:
    """Return the rows of C; a tree has more rows than rounds."""
    if rounds > MOST_DENSE:
        raise Refused(f"more than {MOST_DENSE} rounds of this factor are not covered")
    column = _column(tree, rounds)
    if column is not None:
        return [[column[i - j] if i >= j else arb(0) for j in range(rounds)] for i in range(rounds)]
    if tree["type"] not in ROWS:
        raise Refused(f"the factor {tree['type']!r:.40} is not covered")
    return ROWS[tree["type"]](_fields(tree), rounds)


def _rows_of_nodes(f: Tree, rounds: int) -> list[list[arb]]:
    """Return a row for each node of a binary tree: the rounds below it."""
    sizes = [2**k for k in range(rounds.bit_length())]
    nodes = [(end - n, end) for end in range(1, rounds + 1) for n in sizes if end % n == 0]
    return [[arb(int(a <= j < b)) for j in range(rounds)] for a, b in nodes]


def _rows_of_blocks(f: Tree, rounds: int) -> list[list[arb]]:
    """Return the rows of a factor that begins again after every block of rounds."""
    every, found = _whole(1, rounds, f, "every"), []
    for start in range(0, rounds, every):
        size = min(every, rounds - start)
        before, after = [arb(0)] * start, [arb(0)] * (rounds - start - size)
        found += [before + row + after for row in _dense(f["factor"], size)]
    return found


def _rows_of_matrix(f: Tree, rounds: int) -> list[list[arb]]:
    """Return the first rows of a lower triangular matrix with a diagonal above 0."""
    array = f["array"]
    if len(array) < rounds:
        raise Refused(
            f"the matrix has {len(array)} rows, fewer than the {rounds} rounds of the run"
        )
    rows = [[arb(_entry(x)) for x in row] for row in array[:rounds]]
    for i, row in enumerate(rows):
        if len(row) != i + 1 or not row[i] > 0:
            raise Refused(
                f"row {i} of the matrix must have {i + 1} entries, the last one above 0, got "
                f"{len(row)}"
            )
    return [row + [arb(0)] * (rounds - len(row)) for row in rows]


ROWS: dict[str, Callable[[Tree, int], list[list[arb]]]] = {
    "Tree": _rows_of_nodes,
    "Restarted": _rows_of_blocks,
    "Matrix": _rows_of_matrix,
}


def _change(tree: Tree, rounds: int, rule: Rule) -> tuple[arb, arb]:
    """Return bounds on the largest |C X|^2 over a rule's patterns and vectors of norm at most 1."""
    _in_time()
    column = _column(tree, rounds)
    if column is not None:
        return _toeplitz_change(column, rule)
    kind, f = tree["type"], _fields(tree)
    if kind == "Tree":
        return _tree_change(rounds, rule)
    if kind == "Restarted" and _whole(1, 2**53, f, "every") < rounds:
        return _restarted_change(f, rounds, rule)
    inner = f["factor"] if kind == "Restarted" else tree
    return _matrix_change(_dense(inner, rounds), rule)


def _squares(column: Iterable[arb]) -> arb:
    return sum((x * x for x in column), arb(0))


def _toeplitz_change(column: list[arb], rule: Rule) -> tuple[arb, arb]:
    n, b, k = len(column), rule.gap, rule.most
    single, width = _squares(column), max(i for i, x in enumerate(column) if not _is_zero(x)) + 1
    if k == 1:
        return single, single
    if width <= b:  # no two columns of a unit share a row; later ones are shorter
        sums = list(accumulate((x * x for x in column), initial=ZERO))
        total = sum((sums[n - r * b] for r in range(k)), ZERO)
        return total, total
    above, most = [], arb(0)
    for x in reversed(column):
        most = most.max(abs(x))
        above.append(most)
    low = _squares(_comb(column, b, k))
    return low if low > single else single, _squares(_comb(above[::-1], b, k))


def _comb(column: list[arb], gap: int, count: int) -> list[arb]:
    """Return the sum of the columns 0, gap, 2 gap, ..."""
    if gap * count >= len(column):
        found: list[arb] = []
        for i, x in enumerate(column):
            found.append(x + found[i - gap] if i >= gap else x)
        return found
    _check_work(len(column), count, "participations")
    return [
        sum((column[i - r * gap] for r in range(min(count, i // gap + 1))), arb(0))
        for i in range(len(column))
    ]


def _tree_change(rounds: int, rule: Rule) -> tuple[arb, arb]:
    """Count a unit's rounds in the nodes of every level."""
    if rounds > MOST_COLUMN:
        raise Refused(f"more than {MOST_COLUMN} rounds of correlated noise are not covered")
    low = high = 0
    places = range(0, rounds, rule.gap)[: rule.most]
    for level in range(rounds.bit_length()):
        size = 1 << level
        complete, room = rounds // size, min(rule.most, -(-size // rule.gap))
        full = min(rule.most // room, complete)
        rest = min(rule.most - full * room, room) if full < complete else 0
        high += full * room * room + rest * rest
        held: dict[int, int] = {}
        for place in places:
            held[place // size] = held.get(place // size, 0) + 1
        low += sum(n * n for node, n in held.items() if node < complete)
    return arb(low), arb(high)


def _restarted_change(f: Tree, rounds: int, rule: Rule) -> tuple[arb, arb]:
    """Add up the squares of blocks, which share no row."""
    every = _whole(1, rounds, f, "every")
    room = min(rule.most, -(-every // rule.gap))
    inside = replace(rule, gap=min(rule.gap, every), most=room)
    low, high = _change(f["factor"], every, inside)
    blocks = -(-rounds // every)
    most = min(blocks, rule.most) * high
    if rule.most < blocks * room and 1 < room <= 64:
        rules = (replace(inside, most=j) for j in range(1, room + 1))
        each = [_change(f["factor"], every, one)[1] / j for j, one in enumerate(rules, 1)]
        other = rule.most * max(x.upper() for x in each)
        most = other if other < most else most
    step = rule.gap // math.gcd(rule.gap, every)
    used = min(-(-(rounds // every) // step), max(rule.most // room, 1))
    return used * low, most


def _matrix_change(rows: list[list[arb]], rule: Rule) -> tuple[arb, arb]:
    """Return bounds for any matrix; sums of |C'C| over patterns are bounded one by one."""
    columns = list(zip(*rows, strict=True))
    n, b, k = len(columns), rule.gap, rule.most
    gram = [[abs(sum(map(operator.mul, x, y), arb(0))).upper() for y in columns] for x in columns]
    if rule.together:
        classes = [range(j, n, b) for j in range(b)]
        high = max(_most_together(gram, c, k) for c in classes)
        patterns = [list(c)[:k] for c in classes]
    else:
        high = _most_apart(gram, rule)
        patterns = [list(range(j, n, b))[:k] for j in range(n if k == 1 else min(n, 4 * b))]
    low = max(_signed([columns[j] for j in pattern]) for pattern in patterns)
    return low, arb(high)


def _most_together(gram: list[list[arb]], rounds: range, count: int) -> arb:
    """Return a bound on the largest sum of |C'C| over ``count`` of some rounds."""
    sums = [_largest([gram[i][j] for j in rounds], count) for i in rounds]
    return _largest(sums, count)


def _most_apart(gram: list[list[arb]], rule: Rule) -> arb:
    """Return a bound on the largest sum of |C'C| over patterns of rounds that are apart."""
    b, sums = rule.gap, []
    for i, row in enumerate(gram):
        far = [x if abs(i - j) >= b else arb(0) for j, x in enumerate(row)]
        sums.append((row[i] + _best_pattern(far, b, rule.most - 1)).upper())
    return _best_pattern(sums, b, rule.most)


def _largest(values: list[arb], count: int) -> arb:
    """Return the sum of the ``count`` largest upper ends."""
    return sum(sorted((x.upper() for x in values), reverse=True)[:count], arb(0)).upper()


def _best_pattern(weights: list[arb], gap: int, most: int) -> arb:
    """Return a bound on the largest sum of ``most`` exact weights at least ``gap`` apart."""
    best = [arb(0)] * (len(weights) + 1)
    for _ in range(most):
        found = [arb(0)]
        for i, w in enumerate(weights, 1):
            taken = (w + best[max(i - gap, 0)]).upper()
            found.append(taken if taken > found[-1] else found[-1])
        if all(x == y for x, y in zip(found, best, strict=True)):
            break
        best = found
    return best[-1]


def _signed(columns: list[tuple[arb, ...]]) -> arb:
    """Return a lower bound on |C s|^2 for signs s, taken one by one."""
    total = [arb(0)] * len(columns[0])
    for column in columns:
        sign = 1 if float(sum(map(operator.mul, total, column), arb(0))) >= 0 else -1
        total = [x + sign * y for x, y in zip(total, column, strict=True)]
    return arb(_squares(total).lower())


def _correlated(f: Tree, adjacency: str, observer: str, small: float) -> Known:
    """Return the pairs of a run with correlated noise: one Gaussian."""
    rounds = _whole(1, 10**6, f, "rounds")
    rule = _rule(f["participation"], rounds)
    if adjacency == "add_remove" and not rule.apart:
        raise Refused(
            f"apart must be true in {f['participation']['type']!r:.40} for adjacency "
            f"{adjacency!r}: otherwise the removal of a unit moves others to other rounds"
        )
    low, high = _change(f["factor"], rounds, rule)
    scale = int(MOVES[adjacency]) / arb(_noise(f))
    above, below = (_node("Gdp", mu=scale * x.sqrt()) for x in (high, low))
    return Known(([(above, 1)],), ([(below, 1)],), trusts=("correlated noise is one Gaussian",))


# integer noise: sums of discrete Gaussian or Skellam numbers, dominated by one Gaussian


MOST_SHARES = 20_000
RADII = [arb(k) / 20 for k in range(14, 81)]


@dataclass(frozen=True)
class Shares:
    """Integer noise: ``count`` counted shares of variance ``share`` each, in integer units.

    Attributes:
        square: largest squared norm of a contribution.
        width: number of integers that are sent.
        most: largest number of shares in a sum.
        off: total variation of a round's drawn numbers from their law.
        mu: function from a number of contributions to the Gaussian pair that dominates their move.
        trust: the theorems behind it.
    """

    count: int
    share: arb
    square: int
    width: int
    most: int
    off: arb
    mu: Callable[[Shares, int], arb]
    trust: str


def _share_noise(kind: str, f: Tree) -> Shares:
    """Return the noise of a round of integers, and what its contributions are checked against."""
    mu, trust, divisible = INTEGER_NOISE[kind]
    z, clip = arb(_noise(f)), Fraction(_from(1e-100, 1e100, f, "clip_norm", int, float))
    step = Fraction(_from(1e-150, 1e150, f, "granularity", float))
    kept, cohort = _whole(1, 2**40, f, "kept"), _whole(1, 2**40, f, "cohort")
    _ = _whole(kept, 2**40, f, "dimension"), _whole(2, 40, f, "bits")
    lost = _whole(0, cohort, f, "missing") + _whole(0, cohort, f, "colluding")
    topped, rotated = (_one_of((True, False), f, name) for name in ("topped_up", "rotated"))
    _one_of((0,), f, "absent")
    _one_of(("rand_k", "top_k"), f, "sparsifier")  # of public coordinates
    if f["seed"] is not None:
        _whole(0, 2**63, f, "seed")
    if lost >= cohort or (topped and f["colluding"]):
        raise Refused(
            f"no honest share of the noise counts: {lost} of {cohort} clients are missing or "
            f"colluding (topped_up: {topped})"
        )
    width = 1 << (kept - 1).bit_length() if rotated else kept
    if width == 1:
        raise Refused(f"integer noise on one coordinate is not covered (kept: {kept})")
    square = _rounded_square(
        arb(clip.numerator) / clip.denominator * step.denominator / step.numerator, width
    )
    whole = (z * clip.numerator / clip.denominator * step.denominator / step.numerator) ** 2
    overflow = arb(_from(1e-300, 0.1, f, "overflow", float))
    most, room, apart = cohort, cohort, ZERO
    if topped:
        most, room = _largest_cohort(cohort, overflow), math.isqrt(2**104 // square) + 1
        apart = ZERO if divisible else _sum_of_shares(most, whole)
    off = width * (arb(2) ** -235 * room + apart)
    share = whole if topped else whole / cohort
    return Shares(1 if topped else cohort - lost, share, square, width, most, off, mu, trust)


def _largest_cohort(cohort: int, overflow: arb) -> int:
    """Return a number of clients that a drawn cohort rarely exceeds."""
    depth = (4 / overflow).log()
    bound = cohort + depth / 3 + ((depth / 3) ** 2 + 2 * depth * cohort).sqrt()
    return math.ceil(float(bound) * (1 + 1e-9))


def _sum_of_shares(most: int, variance: arb) -> arb:
    """Return the total variation of a sum of topped-up shares from one draw of its variance."""
    if _whole(1, MOST_SHARES, {"shares": most}, "shares") == 1:
        return ZERO
    eta = _sum_error(most, variance / most)
    return eta / (1 - eta)


def _rounded_square(length: arb, width: int) -> int:
    """Return the largest squared norm of a rounded vector; the slack covers a program's doubles."""
    d, rejected = arb(width), arb(1) / 1000
    spread = (-2 * rejected.log()).sqrt() * (length + d.sqrt() / 2)
    found = ((length + d.sqrt()) ** 2).min(length**2 + d / 4 + spread)
    number = (found * (1 + arb(2) ** -40)).upper().ceil().unique_fmpz()
    if number is None:
        raise Undecided(f"the norm of a rounded vector of length {length.str(5)}")
    return int(number)


def _sum_error(shares: int, variance: arb) -> arb:
    """Return eta of I1: how far a sum of discrete Gaussians is from one."""
    if shares == 1:
        return ZERO
    exponent = 2 * arb.pi() ** 2 * variance
    first = shares * (-exponent).exp()
    if not first < arb(6) / 10 or shares > MOST_SHARES:
        raise Refused(
            f"{shares} shares of noise, each of a variance of {variance.str(5)}, are not covered; "
            "use fewer or larger ones"
        )
    total, ways = first**2, arb(1)
    for j in range(1, shares // 2 + 1):
        ways = ways * (shares + j - 1) / j
        total += 2 * ways * (-exponent * (j - arb(j * j) / shares)).exp()
    found = total / (1 - first**2)
    if not found <= arb(1) / 2:
        raise Refused(
            f"shares of the noise are too small: their sum is {found.str(5)} apart from one draw, "
            "above 1/2"
        )
    return arb(found.upper())


def _width_of(error: arb) -> arb:
    return ((1 + error) / (1 - error)).log()


def _gaussian_above(noise: Shares, times: int) -> arb:
    """Return mu of I2: a Gaussian pair of it dominates a sum that is moved by a contribution."""
    variance, square = noise.count * noise.share, arb(times**2 * noise.square)
    moved, eta, found = (
        min(noise.width, times * noise.square),
        _sum_error(noise.count, noise.share),
        [],
    )
    for r in RADII:
        left, q = variance - r * r, (-2 * arb.pi() ** 2 * r * r).exp()
        error = 2 * q / (1 - q)
        if not (2 * left > variance and 2 * error < 1):
            continue
        mu, slack = (square / left).sqrt(), (_width_of(eta) + _width_of(error)) * moved
        b = mu * 101 / 200 + slack / mu
        wider = mu + 2 * (2 * arb.pi()).sqrt() * slack * (b * b / 2).exp()
        if 100 * wider <= 101 * mu:
            found.append(wider.upper())
    if not found:
        raise Refused(
            "shares of the noise are too small for a Gaussian pair within 1 %: "
            f"a variance of {variance.str(5)} in integer units"
        )
    return arb(min(found))


def _skellam_above(noise: Shares, times: int) -> arb:
    """Return mu of I7: a Gaussian pair of it dominates a sum that is moved by a contribution."""
    variance = noise.count * noise.share
    if not variance >= 16:
        raise Refused(
            "Skellam noise of a variance below 16 integer units is not covered, got "
            f"{variance.str(5)}"
        )
    return times * (noise.square / variance).sqrt() * (1 + 4 / variance)


INTEGER_NOISE: dict[str, tuple[Callable[[Shares, int], arb], str, bool]] = {
    "DistributedDiscreteGaussian": (_gaussian_above, "I1, I2", False),
    "Skellam": (_skellam_above, "I7", True),
}
"""The Gaussian above each noise, its theorems, and whether any number of shares has one law."""


def _integer_sum(inner: Tree, scheme: Tree | None = None) -> Sum:
    """Return the pairs of a round of integers with noise."""
    f = _fields(inner)
    _check_cohort(f, scheme)
    noise = _share_noise(inner["type"], f)
    near, far = (_node("Gdp", mu=noise.mu(noise, times)) for times in (1, 2))
    trusts = noise.trust, "the sampler's distance"
    return Sum(near, far, None, False, f["topped_up"], noise.off, trusts)


def _check_cohort(f: Tree, scheme: Tree | None) -> None:
    """Refuse cohorts in which the shares of the noise do not add up to the stated noise."""
    if scheme is None:
        return
    kind, drawn, cohort = scheme["type"], _fields(scheme), f["cohort"]
    if kind == "FixedSize" and drawn["size"] != cohort:
        raise Refused(
            f"the cohort of the noise, {cohort!r:.40}, is not that of the scheme, "
            f"{drawn['size']!r:.40}"
        )
    if f["topped_up"] or kind in ("FixedSize", "Everyone"):
        return
    units = drawn.get("population")
    if kind != "Shuffled" or units is None:
        raise Refused(f"noise that is not topped up under {kind} is not covered")
    units, rounds = _whole(1, 2**53, drawn, "population"), drawn["rounds_per_epoch"]
    if -(-units // rounds) != cohort or units // rounds < cohort - f["missing"]:
        raise Refused(
            f"{rounds} rounds of {units} units have fewer shares of the noise than the counted "
            f"cohort of {cohort!r:.40}"
        )


def _integers(kind: str, f: Tree, adjacency: str, observer: str, small: float) -> Known:
    one = _integer_sum(_node(kind, **f))
    _check_absent(one, adjacency)
    return one.known(one.pair(adjacency), None)


# correlated noise with units that are drawn in secret


PARTS, POINTS_OF_LINE, FEW_POINTS = 512, 640, 48
BIN_WIDTHS, RENYI_ORDERS = (
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128),
    (2, 3, 5, 8, 12, 20, 32),
)
MOST_SHARED = 20_000


Way = Callable[[list[list[arb]], arb], Known]
"""The account of drawn rounds, from the rows of a factor and the noise multiplier."""


def _sampled_noise(f: Tree, adjacency: str, observer: str, small: float) -> Known:
    """Return the pairs of a run with correlated noise whose units are drawn in secret."""
    noise, scheme = _fields(f["noise"]), f["scheme"]
    _one_of(("CorrelatedNoise",), f["noise"], "type")
    rounds = _whole(1, 10**6, noise, "rounds")
    rule, column = _rule(noise["participation"], rounds), _column(noise["factor"], rounds)
    _fields(scheme)
    named = noise["participation"]["type"], _fields(noise["participation"]).get("at_most")
    in_turns = named == ("FixedEpochs", None) and scheme["type"] in DRAWN.keys() - {
        "Shuffled",
        "RandomAllocation",
    }
    if in_turns and column is not None and _bands(column) <= rule.gap:
        return _cyclic(noise, scheme, rule, column, adjacency, observer, small)
    way = _way_of_draw(f, named, rule, rounds, adjacency, small, in_turns)
    stays = dict(_fields(noise["participation"]), apart=True)
    apart = noise | {"participation": _node(named[0], **stays)}
    plain = replace(_correlated(apart, adjacency, observer, small), below=())
    seen = adjacency == "replace_one" or observer == "server"
    if in_turns and (way is None or (seen and adjacency != "add_remove")):
        return _not_only_in_turns(plain, noise, scheme, rule, adjacency, observer, small)
    if seen or way is None:
        return plain
    found = way(_dense(noise["factor"], rounds), arb(_noise(noise)))
    trusts = ("Theorem A of correlated noise", *found.trusts)
    return replace(found, above=(*found.above, *plain.above), trusts=trusts)


def _not_only_in_turns(
    plain: Known, noise: Tree, scheme: Tree, rule: Rule, adjacency: str, observer: str, small: float
) -> Known:
    """Return the pairs if groups take turns, and those of rounds that are known where they hold."""
    # A unit that is drawn twice contributes twice; if one leaves, others may move.
    moves = scheme["type"] == "WithReplacement" or adjacency == "add_remove"
    known = () if moves else plain.above
    if known and noise["rounds"] > MOST_DENSE:
        return plain
    found = _in_turns(noise, scheme, rule, adjacency, observer, small)
    return replace(found, above=(*found.above, *known), trusts=(*found.trusts, *plain.trusts))


def _way_of_draw(
    f: Tree,
    named: tuple[str, Any],
    rule: Rule,
    rounds: int,
    adjacency: str,
    small: float,
    in_turns: bool,
) -> Way | None:
    """Return the account of rounds that are drawn in secret; None if groups only take turns."""
    scheme, drawn, free = f["scheme"], _fields(f["scheme"]), named == ("FixedEpochs", None)
    if scheme["type"] == "RandomAllocation":
        return _once_an_epoch(drawn, f.get("levels"), named, rule, rounds, small)
    if scheme["type"] != "Poisson" or not (free or named == ("MinimumSeparation", None)):
        if in_turns:
            return None
        raise Refused(
            f"correlated noise under {scheme['type']!r:.40} with {named[0]} (at most "
            f"{named[1]!r:.40} rounds) is not covered"
        )
    q = _chance(drawn, "probability")
    if free and rule.gap > 1:
        _check_groups(rule, scheme, adjacency)
        return partial(_in_groups, rule.gap, q, small)
    return partial(_by_rows, Repeated(q, rule.gap), small)


def _once_an_epoch(
    drawn: Tree, levels: Any, named: tuple[str, Any], rule: Rule, rounds: int, small: float
) -> Way:
    """Return the account of rounds that a unit draws once an epoch, for all epochs or anew."""
    t = _whole(1, 2**53, drawn, "rounds_per_epoch")
    _one_of((1,), {"take": 1} | drawn, "take")
    keeps = named == ("FixedEpochs", None) or named[0] == "SingleParticipation"
    if keeps and t == rule.gap:
        return partial(_bins, t, levels, small)
    if named[0] == "MinimumSeparation" and rule.gap == 1 and rule.most < rounds:
        if t * rule.most == rounds > t:
            return partial(_by_rows, OnceAnEpoch(t, levels), small)
        if t == rounds:
            return partial(_some, rule.most, small)
    raise Refused(
        f"an allocation of one of {t} rounds, of {rounds} in all, under {named[0]} with separation "
        f"{rule.gap} is not covered"
    )


def _bands(column: list[arb]) -> int:
    return max(i for i, x in enumerate(column) if not _is_zero(x)) + 1


def _check_groups(rule: Rule, scheme: Tree, adjacency: str) -> None:
    """Refuse the removal of a unit if the groups of others may depend on it."""
    apart = scheme["type"] == "Poisson" and rule.apart
    if adjacency == "add_remove" and rule.gap > 1 and not apart:
        raise Refused(
            f"the group of a unit may depend on other units: adjacency {adjacency!r} needs "
            f"Poisson sampling and apart, got {scheme['type']!r:.40} and {rule.apart}"
        )


def _cyclic(
    noise: Tree,
    scheme: Tree,
    rule: Rule,
    column: list[arb],
    adjacency: str,
    observer: str,
    small: float,
) -> Known:
    """Return the pairs if groups take turns: each round is one Gaussian of a whole column."""
    _check_groups(rule, scheme, adjacency)
    z = arb(_noise(noise)) / _squares(column).sqrt()
    one = Sum(_node("Gdp", mu=1 / z), _node("Gdp", mu=2 / z), z)
    count = -(-len(column) // rule.gap)
    found = _of_sum(one, scheme, adjacency, observer, small / count)
    fits = (count - 1) * rule.gap + _bands(column) <= len(column)
    return found.times(count, fits, "Theorem C of correlated noise")


def _bins(places: int, named: Any, small: float, rows: list[list[arb]], z: arb) -> Known:
    """Return the pairs if a unit keeps one of some places in every epoch (Theorems D and E)."""
    gram = _kernel(rows, places, z)
    n, near = len(gram), _envelope(gram)
    levels = _levels_of(named, n, near)
    above = [*_trees(levels, near[0], small)] if levels else []
    below: list[Parts] = []
    if all(x >= 0 for row in rows for x in row):
        sums = [sum(row, ZERO) for row in gram]
        root, least = (
            sum(sums, ZERO).sqrt(),
            min((x.lower() for row in gram for x in row), default=ZERO),
        )
        moves = [[arb(1) / n, x / root] for x in sums]
        line = _node("GaussianMix", std=arb(1), p=moves, q=[[arb(1), ZERO]])
        below = [
            [(line, 1)],
            _tree([(n, arb(least))], arb(min(gram[i][i].lower() for i in range(n))), -1, small),
        ]
    return Known(tuple(above), tuple(below), trusts=("Theorems D, E",))


def _envelope(gram: list[list[arb]]) -> list[arb]:
    """Return the largest entries at a cyclic distance of at least 0, 1, ... places."""
    n = len(gram)
    near = [ZERO] * (n // 2 + 1)
    for i in range(n):
        for j in range(i + 1):
            at = min(i - j, n - i + j)
            near[at] = near[at].max(gram[i][j])
    for k in reversed(range(n // 2)):
        near[k] = near[k].max(near[k + 1])
    return near


def _kernel(rows: list[list[arb]], places: int, z: arb) -> list[list[arb]]:
    """Return V'V / z^2 for V the sums of |C|'s columns over the rounds of each place."""
    sums = [
        [sum((abs(x) for x in row[k::places]), ZERO) for row in rows]
        for k in range(min(places, len(rows[0])))
    ]
    return [[sum(map(operator.mul, x, y), ZERO) / z**2 for y in sums] for x in sums]


def _levels_of(named: Any, places: int, near: list[arb]) -> list[tuple[int, arb]]:
    """Return the levels of windows that a certificate proposes; [] if they do not fit.

    A level has children at a distance of at least s, with the largest entry between them.
    """
    if not isinstance(named, list) or len(named) > 8:
        return []
    found, length, least = list[tuple[int, arb]](), 1, 1
    for children, value in reversed(named):
        m = _whole(2, places, {"levels": children}, "levels")
        most = float(_from(0, 1e300, {"levels": value}, "levels", float)) * (1 + 1e-9) + 1e-12
        s = next((s for s in range(least, len(near)) if float(near[s]) <= most), None)
        if s is None:
            return []
        found.append((m, near[s]))
        length, least = m * (length + s - 1), s + 1
    return found[::-1] if length <= places else []


def _tree(levels: list[tuple[int, arb]], leaf: arb, side: int, small: float) -> Parts:
    """Return the pairs of a tree: its root's Gaussian, and the averages below."""
    root = (
        [(_node("Gdp", mu=levels[0][1].max(ZERO).sqrt()), 1)] if not _is_zero(levels[0][1]) else []
    )
    steps = [r for _, r in levels[1:]] + [leaf]
    grown = [
        [m, (after - before).max(ZERO)] for (m, before), after in zip(levels, steps, strict=True)
    ]
    return [*root, (_node("Averages", levels=grown, side=side, small=small), 1)]


def _trees(levels: list[tuple[int, arb]], leaf: arb, small: float) -> Iterator[Parts]:
    """Yield the pair of a tree with its root's factor in one law, and both composed."""
    composed = _tree(levels, leaf, 1, small)
    *root, (tree, _) = composed
    if root:
        whole = [[1, levels[0][1].max(ZERO)], *tree["fields"]["levels"]]
        yield [(_node("Averages", levels=whole, side=1, small=small), 1)]
    yield composed


def _some(count: int, small: float, rows: list[list[arb]], z: arb) -> Known:
    """Return the pairs if a unit draws ``count`` of all rounds."""
    gram = _kernel(rows, len(rows[0]), z)
    n = len(gram)
    inside = max(arb(gram[i][i].upper()) for i in range(n))
    shared = max(arb(gram[i][j].upper()) for i in range(n) for j in range(i)) if n > 1 else ZERO
    apart = (inside - shared).max(ZERO).sqrt()
    one = _allocation(apart, n // count, 1, small)
    return Known(
        ([(_node("Gdp", mu=count * shared.sqrt()), 1), (one, count)],), trusts=("Theorem A",)
    )


@dataclass(frozen=True)
class Repeated:
    """A unit takes part with a chance of ``q``, unless it did in the ``gap`` - 1 rounds before."""

    q: arb
    gap: int = 1

    def sums(self, steps: list[int]) -> arb_poly:
        """Return the law of the unit's sum of steps."""
        free = [arb_poly([1]), *[arb_poly([0])] * (len(steps) + self.gap)]
        for i, step in enumerate(steps):
            _in_time()
            free[i + 1] += free[i] * (1 - self.q)
            free[i + self.gap] += free[i].left_shift(step) * self.q
        return sum(free[len(steps) :], arb_poly([0]))


@dataclass(frozen=True)
class OnceAnEpoch:
    """A unit takes part in one round of every epoch of ``places`` rounds, drawn anew."""

    places: int
    levels: Any = None

    def blocks(self, rounds: int) -> list[range]:
        """Return ranges of rounds; the unit is in at most one of each."""
        return [range(j, j + self.places) for j in range(0, rounds, self.places)]

    def sums(self, steps: list[int]) -> arb_poly:
        """Return the law of the unit's sum of steps."""
        law = arb_poly([1])
        for epoch in self.blocks(len(steps)):
            _in_time()
            one = sum((arb_poly([1]).left_shift(steps[j]) for j in epoch), arb_poly([0]))
            law *= one * (arb(1) / self.places)
        return law


Draw = Repeated | OnceAnEpoch
Entries = list[tuple[int, int, arb]]


def _most(values: Iterable[arb]) -> arb:
    """Return the largest upper end."""
    return arb(max(x.upper() for x in values))


def _by_rows(draw: Draw, small: float, rows: list[list[arb]], z: arb) -> Known:
    """Return the pairs of rounds that are drawn again and again (Theorems F, G, I, J)."""
    return _of_columns(draw, small, [[abs(x) for x in row] for row in rows], rows, z)


def _in_groups(groups: int, q: arb, small: float, rows: list[list[arb]], z: arb) -> Known:
    """Return the pairs of Poisson sampling of groups in turns.

    Above: the largest entries of any group, without the rows before its first round. Below: the
    first group.
    """
    first = [row[::groups] for row in rows]
    return _of_columns(Repeated(q), small, _any_group(groups, rows), first, z)


def _any_group(groups: int, rows: list[list[arb]]) -> list[list[arb]]:
    """Return the largest entries of any group, without the rows before its first round."""
    rounds = len(rows[0])
    found = [[ZERO] * -(-rounds // groups) for _ in rows]
    for group in range(min(groups, rounds)):
        own = [[abs(x) for x in row[group::groups]] for row in rows]
        late = group if len(rows) == rounds else 0
        late = late if all(_is_zero(x) for row in own[:late] for x in row) else 0
        for i, row in enumerate(own[late:]):
            found[i][: len(row)] = [x.max(y) for x, y in zip(found[i], row, strict=False)]
    return found


def _in_turns(
    noise: Tree, scheme: Tree, rule: Rule, adjacency: str, observer: str, small: float
) -> Known:
    """Return the pairs if groups take turns, and each round has a share of all noise it is in."""
    _check_groups(rule, scheme, adjacency)
    rows, z = _dense(noise["factor"], _whole(1, 10**6, noise, "rounds")), arb(_noise(noise))
    matrix = _any_group(rule.gap, rows)
    lengths = _lengths(_entries_of(matrix), len(matrix[0]), 1)
    split = z / _most(lengths).sqrt()
    one = Sum(_node("Gdp", mu=1 / split), _node("Gdp", mu=2 / split), split)
    found = _of_sum(one, scheme, adjacency, observer, small / len(lengths))
    found = found.times(len(lengths), False, "Theorem J of correlated noise")
    if scheme["type"] != "FixedSize" or adjacency != "zero_out" or observer == "server":
        return found
    fields = _fields(scheme)
    size, units = _whole(1, 2**53, fields, "size"), _whole(1, 2**53, fields, "population")
    first = [row[:: rule.gap] for row in rows]
    return replace(found, below=_along(Repeated(arb(size) / units), first, z, small))


def _entries_of(rows: list[list[arb]]) -> Entries:
    """Return the entries above 0 with their places."""
    return [(i, j, x) for i, row in enumerate(rows) for j, x in enumerate(row) if not _is_zero(x)]


def _of_columns(
    draw: Draw, small: float, above: list[list[arb]], below: list[list[arb]], z: arb
) -> Known:
    """Return the pairs of a draw of columns.

    Args:
        draw: how a unit's columns are drawn.
        small: largest probability that may be left out.
        above: a matrix, entries of at least 0, that dominates the factor.
        below: columns that a unit attains.
        z: noise multiplier.
    """
    if isinstance(draw, Repeated) and draw.q == 1:
        return Known(())
    ways: list[Parts] = []
    trusts = ["Theorem I", "Theorem J"]
    if isinstance(draw, Repeated):
        trusts = ["Theorem F", "Lemma G", *trusts]
        norms = [_squares(column).sqrt() for column in zip(*above, strict=True)]
        ways.append(_moved(norms, Repeated(draw.q), 1, small, z))
    else:
        ways.append(_each_known(draw, above, z))
    ways += _noise_split(draw, above, z, small)
    return Known(tuple(ways), _along(draw, below, z, small), trusts=tuple(trusts))


def _along(draw: Draw, rows: list[list[arb]], z: arb, small: float) -> tuple[Parts, ...]:
    """Return pairs that a draw attains: the run along the sum of all columns."""
    total, columns = [sum(row, ZERO) for row in rows], zip(*rows, strict=True)
    along = [sum(map(operator.mul, column, total), ZERO) for column in columns]
    if not all(x > 0 for x in along):
        return ()
    moves = [x / _squares(total).sqrt() for x in along]
    return tuple(_moved(moves, draw, -1, small, z, fine) for fine in (1, 2))


def _noise_split(draw: Draw, rows: list[list[arb]], z: arb, small: float) -> list[Parts]:
    """Return pairs of bins of rounds, each with a share of the noise of every row (Theorem J).

    If there are rests, a bin has at most as many rounds as lie between two participations. Of
    several widths the four with the least loss by Renyi divergences are taken. An epoch is a bin.
    """
    size, held = len(rows[0]), _entries_of(rows)
    if len(held) > MOST_SHARED:
        return []
    if isinstance(draw, OnceAnEpoch):
        epochs = size // draw.places
        near = _envelope(_epochs_apart(_parted(held, size, draw.places), epochs, draw.places, z))
        levels = _levels_of(draw.levels, draw.places, near)
        trees = _trees(levels, near[0], small / epochs) if levels else ()
        return [[(tree, n * epochs) for tree, n in parts] for parts in trees]
    widths = (w for w in BIN_WIDTHS if w <= size and (draw.gap == 1 or w <= draw.gap))
    found = [_in_bins(draw, held, size, width, z, small) for width in widths]
    single = found[0]
    found.sort(key=lambda one: one[0])
    best = found[:4] if single in found[:4] else [*found[:4], single]
    return [pair for _, pair in best]


def _lengths(held: Entries, rounds: int, width: int) -> list[arb]:
    """Return the squared length of every column after the noise is parted among bins."""
    lengths = [ZERO] * rounds
    for _, j, x in _parted(held, rounds, width):
        lengths[j] += x * x
    return lengths


def _in_bins(
    draw: Repeated, held: Entries, size: int, width: int, z: arb, small: float
) -> tuple[float, Parts]:
    """Return the pairs of bins of one width, and about their loss by Renyi divergences."""
    _in_time()
    length = _most(_lengths(held, size, width)).sqrt()
    q, count, mu = 1 - (1 - draw.q) ** width, -(-size // width), length / z
    loss = min((count * _renyi(float(q), float(mu), k) + 12) / (k - 1) for k in RENYI_ORDERS)
    if width <= draw.gap:
        return loss, [(_node("Sampled", inner=_node("Gdp", mu=mu), q=q), count)]
    # Without rests several rounds of a bin may be taken.
    several = _moved([length] * width, Repeated(draw.q), 1, small / count, z)
    return loss, [(tree, n * count) for tree, n in several]


def _epochs_apart(held: Entries, epochs: int, places: int, z: arb) -> list[list[arb]]:
    """Return the largest inner products of two rounds of one epoch, over all epochs."""
    gram = [[ZERO] * places for _ in range(places)]
    for epoch in range(epochs):
        _in_time()
        rows = dict[int, list[tuple[int, arb]]]()
        for i, j, x in held:
            if j // places == epoch:
                rows.setdefault(i, []).append((j % places, x / z))
        own = [[ZERO] * places for _ in range(places)]
        for row in rows.values():
            for (j, x), (k, y) in product(row, repeat=2):
                own[j][k] += x * y
        gram = [
            [x.max(y) for x, y in zip(*both, strict=True)] for both in zip(gram, own, strict=True)
        ]
    return gram


def _renyi(q: float, mu: float, order: int) -> float:
    """Return about the logarithm of the moment of a sampled Gaussian pair, for a choice."""
    terms = (
        math.log(math.comb(order, k))
        + k * math.log(q)
        + (order - k) * math.log1p(-q)
        + k * (k - 1) * mu * mu / 2
        for k in range(order + 1)
    )
    logs = list(terms) if 0 < q < 1 else [order * (order - 1) * mu * mu / 2]
    return max(logs) + math.log(sum(math.exp(x - max(logs)) for x in logs))


def _parted(held: Entries, rounds: int, width: int) -> Entries:
    """Return the entries over the root of their bin's share of the row.

    Any shares above 0 that add up to 1 in a row are valid. These make the longest column short.
    """
    least = max((float(x.upper()) for _, _, x in held), default=1.0) * 1e-100
    squares = [(i, j, j // width, max(float(x.upper()), least) ** 2) for i, j, x in held]
    weights, best, shares = [1.0] * rounds, math.inf, dict[tuple[int, int], float]()
    for _ in range(12):
        sums, total, found = dict[tuple[int, int], float](), dict[int, float](), [0.0] * rounds
        for i, j, m, x in squares:
            sums[i, m] = sums.get((i, m), 0.0) + weights[j] * x
        roots = {at: math.sqrt(x) for at, x in sums.items()}
        for (i, _), x in roots.items():
            total[i] = total.get(i, 0.0) + x
        for i, j, m, x in squares:
            found[j] += x * total[i] / roots[i, m]
        most = max(found)
        if most < best:
            best, shares = most, roots
        weights = [max(w * (x / most) ** 4, 1e-6) for w, x in zip(weights, found, strict=True)]
    rows = dict[int, arb]()
    for (i, _), x in shares.items():
        rows[i] = rows.get(i, ZERO) + arb(x)
    return [(i, j, x * (rows[i] / arb(shares[i, j // width])).sqrt()) for i, j, x in held]


def _each_known(draw: OnceAnEpoch, rows: list[list[arb]], z: arb) -> Parts:
    """Return the pair if the unit's round of every epoch is known: the worst ones."""
    columns = list(zip(*rows, strict=True))
    every, square = draw.blocks(len(columns)), ZERO
    for epoch in every:
        _in_time()
        products = (
            [sum(map(operator.mul, columns[j], column), ZERO) for column in columns] for j in epoch
        )
        square += _most(sum((_most(row[s] for s in e) for e in every), ZERO) for row in products)
    return [(_node("Gdp", mu=square.sqrt() / z), 1)]


def _moved(moves: list[arb], draw: Draw, side: int, small: float, z: arb, fine: int = 1) -> Parts:
    """Return a sum of moves of drawn rounds against none, and the chance left out.

    Moves are rounded up (side 1) or down to multiples of a unit, and rare sums are left out or 0.
    """
    unit = _unit_of(moves, side) / fine
    law = draw.sums([_steps(x / unit, side) for x in moves]).coeffs()
    return _line(law, unit / z, side, small, POINTS_OF_LINE * fine)


def _unit_of(moves: Iterable[arb], side: int) -> arb:
    """Return about the largest of some moves over ``PARTS``, so that it is ``PARTS`` steps."""
    if side > 0:
        return _most(moves) / PARTS * (1 + TINY)
    return arb(max(x.lower() for x in moves)) / PARTS * (1 - TINY)


def _steps(x: arb, side: int) -> int:
    """Return a number rounded up (side 1), to at least 1 if it may be above 0, or down."""
    whole = (x.upper().ceil() if side > 0 else x.lower().floor()).unique_fmpz()
    if whole is None:
        raise Undecided(f"the whole part of {x.str(5)}, an entry of the factor")
    return max(int(whole), 0)


def _line(law: list[arb], unit: arb, side: int, small: float, points: int) -> Parts:
    """Return shifts by multiples of a unit against none, and the chance left out.

    More than ``FEW_POINTS`` shifts are rounded up (side 1) or down to about ``points`` of them,
    which loses more or less (Lemma G).
    """
    top, rest = len(law), ZERO
    while top > 1 and rest + law[top - 1] < small:
        top, rest = top - 1, rest + law[top - 1]
    dense = sum(1 for w in law[:top] if not _is_zero(w)) > FEW_POINTS
    wide, found = max(1, top // points) if dense else 1, {0: law[0]}
    for k in range(1, top):
        at = -(-k // wide) if side > 0 else k // wide
        found[at] = found.get(at, ZERO) + law[k]
    if side > 0:
        found = {k: w / (1 - rest) for k, w in found.items()}
    else:
        found[0] += rest
    listed = [[w, k] for k, w in found.items() if not _is_zero(w)]
    line = (_node("Shifts", unit=unit * wide, law=listed, dense=dense), 1)
    return [line, (_node("Unlikely", chance=arb(rest.upper())), 1)] if side > 0 else [line]


def known(part: Tree, adjacency: str, observer: str, small: float) -> Known:
    """Return the pairs of one part of a run.

    Args:
        part: a mechanism.
        adjacency: how neighbours differ.
        observer: who looks.
        small: largest probability that a listed law may leave out.
    """
    kind, f = _one_of(KNOWN, part, "type"), _fields(part)
    return KNOWN[kind](f, adjacency, observer, small)


def _plain(f: Tree, adjacency: str, observer: str, small: float) -> Known:
    return _same(_gaussian_sum({"version": 1, "fields": f}).pair(adjacency))


def _in_cohort(f: Tree, adjacency: str, observer: str, small: float) -> Known:
    scheme = f["scheme"]
    kind = _one_of(DRAWN.keys() - {"WithReplacement", "RandomAllocation"}, scheme, "type")
    drawn = _fields(scheme)
    whole = kind == "FixedSize" and drawn["size"] == drawn["population"]
    _check_filled(adjacency, whole, drawn)
    inside = f["inner"]
    epoch = inside["type"] == "SampledMechanism" and "rounds_per_epoch" in json.dumps(inside)
    if inside["type"] not in ("Gaussian", "SampledMechanism") or epoch:
        raise Refused(f"{inside['type']!r:.40} inside a cohort is not covered")
    found = known(inside, adjacency, observer, small).hidden(_rate(kind, drawn))
    return replace(found, below=()) if kind == "Shuffled" and drawn["partial"] else found


KNOWN: dict[str, Callable[[Tree, str, str, float], Known]] = {
    "Gaussian": _plain,
    "SampledMechanism": _on_drawn_units,
    "HeldMechanism": _held,
    "CohortMechanism": _in_cohort,
    "CorrelatedNoise": _correlated,
    "SampledNoise": _sampled_noise,
    **{kind: partial(_integers, kind) for kind in OF_CLIENTS},
}


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
    unit: arb | None = None
    """A number that all exponents are whole multiples of, so that the sums are polynomials."""

    def value(self, y: Any, slopes: int = 0) -> tuple[Any, Any, Any]:
        """Return (P, Q, P - Q) over the base at y, or derivatives."""
        if self.unit is not None:
            step = (y * self.unit).exp()
            p, q, d = (each(step) for each in self._polynomials[slopes])
            return p, q, d
        powers = self._powers(y)
        every = (
            [w * m**slopes * powers[i] if slopes else w * powers[i] for (w, m), i in x]
            for x in self._places
        )
        p, q, d = (sum(terms[1:], terms[0]) for terms in every)
        return p, q, d

    @cached_property
    def _polynomials(self) -> list[list[arb_poly]]:
        """P, Q and P - Q in e^{y unit}, and their derivatives; exponents are at least 0."""
        return [
            [self._polynomial(x, slopes) for x in (self.p, self.q, self.d)] for slopes in (0, 1)
        ]

    def _polynomial(self, terms: Terms, slopes: int) -> arb_poly:
        unit, found = arb(self.unit), dict[int, arb]()
        for w, m in terms:
            k = round(float(m / unit))
            if k < 0 or (unit * k).repr() != m.repr():
                raise Undecided(f"whether {m.str(5)} is a multiple of {unit.str(5)}")
            found[k] = found.get(k, ZERO) + (w * m if slopes else w)
        return arb_poly([found.get(k, ZERO) for k in range(max(found) + 1)])

    @cached_property
    def _exponents(self) -> dict[str, arb]:
        return {m.repr(): m for _, m in self.p + self.q + self.d}

    @cached_property
    def _places(self) -> list[list[tuple[tuple[arb, arb], int]]]:
        """The terms of P, Q and P - Q with the numbers of their exponents."""
        at = {name: i for i, name in enumerate(self._exponents)}
        return [[(term, at[term[1].repr()]) for term in x] for x in (self.p, self.q, self.d)]

    @cached_property
    def _chain(self) -> tuple[arb, list[int]] | None:
        """A number and the multiples of it that all exponents are; None if they are few or none."""
        every = list(self._exponents.values())
        steps = [m for m in every if m != 0]
        if len(steps) < 3:
            return None
        unit = min((abs(m) for m in steps), key=float)
        counts = [round(float(m / unit)) for m in every]
        known = all((unit * k).repr() == m.repr() for m, k in zip(every, counts, strict=True))
        return (unit, counts) if known and max(map(abs, counts)) < 64 else None

    def _powers(self, y: Any) -> list[Any]:
        """Return e^{my} for all exponents m."""
        if self._chain is None:
            return [(y * m).exp() for m in self._exponents.values()]
        unit, counts = self._chain
        first = (y * unit).exp()
        most, least = max(counts), min(counts)
        powers = {0: first * 0 + 1}
        for k in range(1, most + 1):
            powers[k] = powers[k - 1] * first
        if least < 0:
            back = 1 / first
            for k in range(1, 1 - least):
                powers[-k] = powers[1 - k] * back
        return [powers[k] for k in counts]

    @cached_property
    def plain(self) -> bool:
        """Whether both densities are normal on the whole line, so that moments have a form."""
        whole = self.low is None and self.high is None
        return self.gaussian and whole and len(self.p) == len(self.q) == 1

    @cached_property
    def _rough(self) -> tuple[float, float, float, float]:
        ((v, a),), ((w, b),) = self.p, self.q
        return float(v.log()), float(a), float(w.log()), float(b)

    def log_moment(self, s: float) -> float:
        """Return the log of ``moment`` in plain floats."""
        v, a, w, b = self._rough
        return (1 + s) * v - s * w + (a + s * (a - b)) ** 2 / 2

    @property
    def closed(self) -> bool:
        """Whether moments have a form: plain, or one exponential on each side."""
        return self.plain or (not self.gaussian and len(self.p) == len(self.q) == 1)

    def moment(self, s: Any) -> Any:
        """Return the integral of P^(1 + s) Q^(-s), of a piece with a form."""
        ((v, a),), ((w, b),) = self.p, self.q
        scale = (1 + s) * v.log() - s * w.log()
        if self.gaussian:
            return (scale + (a + s * (a - b)) ** 2 / 2).exp()
        m = a + s * (a - b)
        return ((scale + m * arb(self.high)).exp() - (scale + m * arb(self.low)).exp()) / m

    def gained(self, x: arb) -> arb:
        """Return the integral of (P - e^x Q)^+, of a piece with a form: L is linear."""
        ((v, a),), ((w, b),) = self.p, self.q
        at = (x - (v / w).log()) / (a - b)
        at = at if self.low is None else at.max(self.low)
        at = at if self.high is None else at.min(self.high)
        if not (a > b or a < b):
            raise Undecided(f"the slope of a loss between the means {a.str(5)} and {b.str(5)}")
        low, high = (at, self.high) if a > b else (self.low, at)
        return self.held(self.p, low, high) - x.exp() * self.held(self.q, low, high)

    def logs(self, y: acb) -> tuple[acb, acb] | None:
        """Return (log Q over the base, L) at y, or None if a logarithm may meet its branch cut."""
        p, q, d = self.value(y)
        if any(z.imag.contains(0) and not z.real > 0 for z in (p, q)):
            return None
        small = abs(d / q) < 0.5
        return q.log(), (d / q).log1p() if small else p.log() - q.log()

    @cached_property
    def _tails(self) -> dict[tuple[int, int, bool, int], tuple[arb, arb, arb]]:
        """Some tails with the numbers that they belong to: cells in a row share their ends."""
        return {}

    def _tail(self, end: arb, m: arb, turned: bool) -> arb:
        """Return twice the mass of N(m) above an end, or below it."""
        key = id(end), id(m), turned, ctx.prec
        if key not in self._tails:
            if len(self._tails) >= KEPT_TAILS:
                self._tails.clear()
            a = (end - m) / arb(2).sqrt()
            # The numbers are kept too, so that no other number gets their identity.
            self._tails[key] = end, m, (-a if turned else a).erfc()
        return self._tails[key][2]

    def held(self, terms: Terms, low: arb | None, high: arb | None) -> arb:
        """Return the integral of one of the two densities from low to high."""
        total = arb(0)
        for w, m in terms:
            if not self.gaussian:
                total += w * ((m * arb(high)).exp() - (m * arb(low)).exp()) / m
                continue
            # The smaller tails are accurate to more digits.
            turned = low is None or low - m < 0
            ends = (high, low) if turned else (low, high)
            start, stop = (None if end is None else self._tail(end, m, turned) for end in ends)
            tail = (arb(2) if start is None else start) - (arb(0) if stop is None else stop)
            total += w * (m * m / 2).exp() * tail / 2
        return total


@dataclass(frozen=True)
class Pair:
    """Two laws: masses of single outcomes under P and Q, the mass without loss, and pieces."""

    atoms: tuple[tuple[arb, arb], ...] = ()
    still: arb = arb(0)  # noqa: RUF009
    pieces: tuple[Piece, ...] = ()
    only: tuple[arb, arb] = (arb(0), arb(0))
    """Mass that only P has, and mass that only Q has."""
    exact: bool = True
    """False if the laws stand on a grid, so that a finer one may prove more."""

    @cached_property
    def rough_atoms(self) -> list[tuple[float, float]]:
        """The logs of P's masses of single outcomes, and the losses, in plain floats."""
        return [(_log(float(a)), _log(float(a / b))) for a, b in self.atoms]

    @cached_property
    def rough_moments(self) -> dict[float, float]:
        """The logs of moments that were needed, in plain floats, by tilt."""
        return {0.0: _rough(self, 0.0)}

    def curved(self) -> list[Piece]:
        """Return the pieces whose moments have no closed form."""
        return [piece for piece in self.pieces if not piece.closed]

    def closed(self, s: Any) -> Any:
        """Return the moment of the other pieces."""
        return sum((piece.moment(s) for piece in self.pieces if piece.closed), s * 0)

    def swap(self) -> Pair:
        """Return (Q, P)."""
        turned = [replace(x, p=x.q, q=x.p, d=_times(x.d, arb(-1))) for x in self.pieces]
        pieces = tuple(replace(x, side=-x.side) for x in turned)
        atoms = tuple((b, a) for a, b in self.atoms)
        return Pair(atoms, self.still, pieces, self.only[::-1], self.exact)

    def split(self) -> Pair:
        """Return the pair with every piece split where its loss turns from falling to rising."""
        return replace(self, pieces=tuple(part for x in self.pieces for part in _monotone(x)))

    def but_rare(self, count: int) -> Pair:
        """Return the pair with P's rarest outcomes as one, those of the least losses.

        It is post-processing, for a pair that only bounds from below. A lattice of ``count`` rounds
        begins at their least loss.
        """
        if self.exact or self.pieces or not self.atoms:
            return self
        order = sorted(self.atoms, key=lambda one: float(one[0] / one[1]))
        upto, held = 0, 0.0
        while upto < len(order) - 1 and held + float(order[upto][0]) < RARE_OUTCOMES / count:
            held, upto = held + float(order[upto][0]), upto + 1
        if upto < 2:
            return self
        one, two = (sum((x[k] for x in order[:upto]), ZERO) for k in (0, 1))
        return replace(self, atoms=((one, two), *order[upto:]))

    def gains(self) -> Pair:
        """Return the part with P > Q."""
        halves = [
            replace(x, low=x.cross) if x.side > 0 else replace(x, high=x.cross) for x in self.pieces
        ]
        more = tuple((a, b) for a, b in self.atoms if a > b)
        return Pair(more, pieces=tuple(halves), exact=self.exact)


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
    for _ in range(BITS):
        if (rises(low) > 0) != (rises(high) > 0):
            break
        low, high = 2 * low - piece.cross, 2 * high - piece.cross
    else:
        raise Undecided(f"where a loss turns, near {piece.cross.str(5)}")
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
        raise Undecided(f"the number of turning points of a loss of {len(every)} terms")
    return signs


def _completed(weighted: list[Any], listed: bool = False) -> list[tuple[arb, Any]]:
    """Return (weight, item) pairs; the largest weight becomes 1 minus the others.

    ``listed`` weights stay as they are: those of other numbers are left out.
    """
    *rest, top = sorted(weighted, key=lambda pair: float(pair[0]))
    found = [(arb(w), x) for w, x in rest]
    last = arb(top[0]) if listed else 1 - sum((w for w, _ in found), arb(0))
    return [*found, (last, top[1])]


def _normal(weighted: list[Any], std: Any, listed: bool = False) -> Terms:
    every = [(w, arb(m) / std) for w, m in _completed(weighted, listed)]
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
    _in_time()
    return MADE[tree["type"]](tree["fields"])


def _gdp(f: Tree) -> Pair:
    p, q = _normal([[1, f["mu"]]], 1), _normal([[1, 0.0]], 1)
    whole = Piece(True, p, q, _less(p, q), None, None, arb(f["mu"]) / 2)
    return Pair(pieces=(whole,)) if not _is_zero(f["mu"]) else Pair(still=arb(1))


def _laplace(f: Tree) -> Pair:
    s, half = arb(f["shift"]), arb(1) / 2
    far = half * (-s).exp()
    p, q = ((far, arb(1)),), ((half, arb(-1)),)
    inside = Piece(False, p, q, _less(p, q), arb(0), s, s / 2)
    return Pair(((half, far), (far, half)), pieces=(inside,))


def _exchanged(f: Tree) -> Pair:
    if f["there"] != f["back"]:
        raise Refused(
            f"Laplace noise and two parts at different distances, {f['there']!r:.40} and "
            f"{f['back']!r:.40}"
        )
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
    listed, std = f.get("listed", False), arb(f["std"])
    p, q = (_normal(f[side], std, listed) for side in ("p", "q"))
    cross = (arb(f["p"][-1][1]) + arb(f["q"][-1][1])) / 2 / std
    return Pair(pieces=(Piece(True, p, q, _less(p, q), None, None, cross),))


def _shifts(f: Tree) -> Pair:
    """Return N(k unit, 1), k of a law, against N(0, 1)."""
    unit = f["unit"]
    moves = [(w, unit * k) for w, k in _completed(f["law"])]
    p, q = tuple((w * (-m * m / 2).exp(), m) for w, m in moves), ((arb(1), ZERO),)
    if all(_is_zero(m) for _, m in moves):
        return Pair(still=arb(1))
    cross = unit * max(k for _, k in f["law"]) / 2
    whole = Piece(True, p, q, _less(p, q), None, None, cross)
    return Pair(pieces=(replace(whole, unit=unit) if f["dense"] else whole,))


def _unlikely(f: Tree) -> Pair:
    """Return no loss but for a chance of everything."""
    return Pair(still=arb(1), only=(f["chance"], f["chance"]))


def _sampled(f: Tree) -> Pair:
    base, r = made(f["inner"]), arb(f["q"])
    mixed = [_joined(_times(x.p, r) + _times(x.q, 1 - r)) for x in base.pieces]
    both = zip(base.pieces, mixed, strict=True)
    pieces = [replace(x, p=p, d=_times(x.d, r)) for x, p in both]
    atoms = tuple((r * a + (1 - r) * b, b) for a, b in base.atoms)
    return Pair(atoms, base.still, tuple(pieces), exact=base.exact)


def _fold(f: Tree) -> Pair:
    up, down = made(f["up"]).gains(), made(f["down"]).gains().swap()
    atoms, every = up.atoms + down.atoms, up.pieces + down.pieces
    held = [a for a, _ in atoms] + [x.held(x.p, x.low, x.high) for x in every]
    return Pair(atoms, 1 - sum(held, arb(0)), every, exact=up.exact and down.exact)


def _mix(f: Tree) -> Pair:
    weighted = _completed(f["parts"], f.get("listed", False))
    parts = [(w, made(part)) for w, part in weighted]
    pieces = [
        replace(x, p=_times(x.p, w), q=_times(x.q, w), d=_times(x.d, w))
        for w, pair in parts
        for x in pair.pieces
    ]
    atoms = tuple((w * a, w * b) for w, pair in parts for a, b in pair.atoms)
    still, exact = (
        sum((w * pair.still for w, pair in parts), arb(0)),
        all(x.exact for _, x in parts),
    )
    return Pair(atoms, still, tuple(pieces), exact=exact)


def _in_cells(far: arb, cells: int, below: Callable[[arb], tuple[arb, arb]]) -> Pair:
    """Return the masses of cells from -12 to ``far``, given the (P, Q) mass below a point.

    It is post-processing, so it only bounds from below; so do cells that are left out.
    """
    if not far < MOST_MOVE:
        raise Undecided(f"cells of so large a move: {far.str(5)}, at most {MOST_MOVE}")
    count = math.ceil((float(far) + 12) * cells)
    edges = [below(arb(k) / cells - 12) for k in range(count + 1)]
    ends = [(ZERO, ZERO), *edges, (arb(1), arb(1))]
    masses = [(v - p, w - q) for (p, q), (v, w) in pairwise(ends)]
    return Pair(_clear(masses), exact=False)


def _clear(masses: Iterable[tuple[arb, arb]]) -> tuple[tuple[arb, arb], ...]:
    """Return the masses that are large enough to have many digits."""
    return tuple((p, q) for p, q in masses if p > TINY and q > TINY)


def _normal_below(y: arb) -> arb:
    return (-y / arb(2).sqrt()).erfc() / 2


def _opposed(f: Tree) -> Pair:
    """Return cells of N(2 s) against N(s), s of a law of draws."""
    z, law = arb(f["std"]), f["law"]
    means = [(w, s / z) for s, w in law]

    def below(y: arb) -> tuple[arb, arb]:
        p, q = (sum((w * _normal_below(y - k * m) for w, m in means), ZERO) for k in (2, 1))
        return p, q

    return _in_cells(2 * means[-1][1] + 12, CELLS, below)


def _cohort_sum(f: Tree) -> Pair:
    """Return cells of a plane where members (w, i, j) have the means (i - back j, across j) / 25.

    Cells of nearly one loss are merged; any would do. See ``_in_cells``.
    """
    unit, laws = 1 / (25 * f["std"]), (f["there"], f["gone"])
    places = [
        (
            [(25 * i - f["back"] * j) * unit for _, i, j in law],
            [f["across"] * j * unit for _, _, j in law],
        )
        for law in laws
    ]
    edges = _edges_of_plane(places, bool(f.get("coarse")))
    found = []
    for law, at in zip(laws, places, strict=True):
        _in_time()
        one, two = (
            [_masses_of(edge, x) for x in each] for edge, each in zip(edges, at, strict=True)
        )
        weighted = [[w * x for x in row] for (w, _, _), row in zip(law, one, strict=True)]
        found.append((arb_mat(weighted).transpose() * arb_mat(two)).entries())
    fine = 300 if all(edges) else 1 << 12
    return Pair(_clear(_by_loss(found[0], found[1], fine)), exact=False)


def _extent(places: list[tuple[list[arb], list[arb]]], axis: int) -> tuple[float, float]:
    """Return where the cells along an axis begin, and their length: 0 if all means are equal."""
    every = [float(x) for means in places for x in means[axis]]
    low, high = min(every), max(every)
    return low - 8, high - low + 16 if high > low else 0.0


def _edges_of_plane(
    places: list[tuple[list[arb], list[arb]]], coarse: bool
) -> tuple[list[float], list[float]]:
    """Return the edges of cells along both axes; none along an axis where all means are equal."""
    lows, wide = zip(*(_extent(places, axis) for axis in (0, 1)), strict=True)
    line, area, size = 0.0 in wide, math.prod(w or 1.0 for w in wide), len(places[0][0])
    most = 8.0 * CELLS * min(1.0, 8 / size)  # one round is decided to all digits
    fine = max(most, float(CELLS)) if line else min(16.0, math.sqrt(MOST_PLANE / area))
    if fine < 8.0 or fine * sum(wide) > MOST_PLANE:
        raise Undecided(f"cells of so many cohorts: {size}, in an area of {area:g}")
    fine = fine / 4 if coarse else fine
    one, two = (
        [low + k / fine for k in range(math.ceil(w * fine) + 1)] if w else []
        for low, w in zip(lows, wide, strict=True)
    )
    return one, two


def _by_loss(p: list[arb], q: list[arb], fine: int) -> list[tuple[arb, arb]]:
    """Return the masses of cells, with cells of nearly one loss together."""
    rough = [(float(a), float(b)) for a, b in zip(p, q, strict=True)]
    losses = [math.log(a / b) if a > 1e-40 and b > 1e-40 else 0.0 for a, b in rough]
    square = sum((a + b) * x * x for (a, b), x in zip(rough, losses, strict=True)) / 2
    typical = math.sqrt(square) + 1e-9
    sums: dict[int, tuple[arb, arb]] = {}
    for a, b, x in zip(p, q, losses, strict=True):
        at = round(fine * math.asinh(x / typical))
        one, two = sums.get(at, (ZERO, ZERO))
        sums[at] = (one + a, two + b)
    return list(sums.values())


def _largest_round(f: Tree) -> Pair:
    """Return cells of the largest of some outcomes: one has the mean shown or hidden."""
    shown, hidden, rounds = f["shown"], f["hidden"], f["rounds"]

    def below(y: arb) -> tuple[arb, arb]:
        others = _normal_below(y) ** (rounds - 1)
        return others * _normal_below(y - shown), others * _normal_below(y - hidden)

    return _in_cells(arb(shown) + 12, 4 * CELLS, below)


# averages of log-normal ratios: a unit takes part in one of several rounds


@dataclass(frozen=True)
class Ratios:
    """A law of the ratio dP/dQ under Q, at e^{ck} for the places k from ``first`` on.

    ``side`` 1: the places are values, ``zero`` is the mass at 0, and what P lacks has an infinite
    ratio. The law is above the true one in convex order. ``side`` -1: places are labels of cells
    with masses (P, Q), a function of the outcome.
    """

    cell: arb
    first: int
    q: list[arb]
    p: list[arb]
    zero: arb
    side: int

    def trimmed(self, small: float) -> Ratios:
        """Return the law with rare ends moved to 0 and infinity, or merged."""
        start, stop, gone = 0, len(self.q), [ZERO, ZERO]
        while stop - start > 2 and gone[0] + self.q[start] < small:
            gone[0], start = gone[0] + self.q[start], start + 1
        while stop - start > 2 and gone[1] + self.p[stop - 1] < small:
            gone[1], stop = gone[1] + self.p[stop - 1], stop - 1
        q, p, zero = self.q[start:stop], self.p[start:stop], self.zero
        if self.side > 0:
            zero += sum(self.q[:start] + self.q[stop:], ZERO)
        else:
            q[0], p[0] = sum(self.q[:start], q[0]), sum(self.p[:start], p[0])
            q[-1], p[-1] = sum(self.q[stop:], q[-1]), sum(self.p[stop:], p[-1])
        return replace(self, first=self.first + start, q=q, p=p, zero=zero)

    def pair(self) -> Pair:
        """Return the pair of the law."""
        atoms = _clear(zip(self.p, self.q, strict=True))
        if self.side < 0:  # outcomes may be left out below
            return Pair(atoms, exact=False)
        lost = (
            (1 - sum((p for p, _ in atoms), ZERO)).upper(),
            (1 - sum((q for _, q in atoms), ZERO)).upper(),
        )
        only = arb(lost[0]).max(ZERO), arb(lost[1]).max(ZERO)
        return Pair(atoms, only=only, exact=False)


def _valued(cell: arb, first: int, q: list[arb], zero: arb) -> Ratios:
    """Return the law with masses at values."""
    step, at, p = cell.exp(), (cell * first).exp(), []
    for w in q:
        p.append(w * at)
        at = at * step
    return Ratios(cell, first, q, p, zero, 1)


def _log_normal(variance: arb, cell: arb, small: float, side: int) -> Ratios:
    """Return the law of exp(s y - s^2 / 2), y standard normal, s^2 the variance."""
    s, far = variance.sqrt(), math.sqrt(-2 * math.log(small)) + 1
    if variance == 0:
        return Ratios(cell, 0, [arb(1)], [arb(1)], ZERO, side)
    ends = float(-s * far - variance / 2), float(s * (s + far) - variance / 2)
    first, last = math.floor(ends[0] / float(cell)), math.ceil(ends[1] / float(cell))
    if last - first > MOST_PLACES:
        raise Undecided(f"a law of {last - first} places, more than {MOST_PLACES}")
    edges = [(cell * k + variance / 2) / s for k in range(first, last + 1)]
    below = [(_normal_below(y - s), _normal_below(y)) for y in edges]
    masses = [(v - p, w - q) for (p, q), (v, w) in pairwise(below)]
    low, high = below[0], (1 - below[-1][0], 1 - below[-1][1])
    if side < 0:
        masses = [low, *masses, high]
        return Ratios(cell, first - 1, [q for _, q in masses], [p for p, _ in masses], ZERO, -1)
    found, step, at = [ZERO] * (last - first + 1), cell.exp(), (cell * first).exp()
    found[0] = low[0] / at
    zero = low[1] - found[0] + high[1]
    for k, (p, q) in enumerate(masses):
        top = (p - at * q) / (at * (step - 1))
        found[k], found[k + 1] = found[k] + q - top, found[k + 1] + top
        at = at * step
    return _valued(cell, first, found, zero)


def _averaged(one: Ratios, other: Ratios, share: arb) -> Ratios:
    """Return the law of share X + (1 - share) Y, X and Y independent."""
    cell, side, made = one.cell, one.side, dict[int, list[arb]]()
    weights = (share, 1 - share)
    for a, b, (own, rest), ties in ((one, other, weights, 0), (other, one, weights[::-1], 1)):
        span = max(0, a.first + len(a.q) - b.first)
        for shift, kernel in _groups(cell, own, rest, ties, span):
            _add(a, b, own, shift, kernel, made)
        if side > 0 and not _is_zero(b.zero):  # the other one is 0
            shift, up = _place_of(own, cell)
            for i, w in enumerate(a.q):
                _put_at(made, a.first + i + shift, w * b.zero, up)
    first = min(made)
    rows = [made.get(k, [ZERO, ZERO]) for k in range(first, max(made) + 1)]
    if side > 0:
        return _valued(cell, first, [q for q, _ in rows], one.zero * other.zero)
    return Ratios(cell, first, [q for q, _ in rows], [p for _, p in rows], ZERO, -1)


def _place_of(value: arb, cell: arb) -> tuple[int, arb]:
    """Return the place below a value, and the share that the place above gets."""
    if value == 1:
        return 0, ZERO
    place = math.floor(float(value.log() / cell))
    up = (value * (-cell * place).exp() - 1) / (cell.exp() - 1)
    if not (up >= 0 and up <= 1):
        raise Undecided(f"the place of an average, {value.str(5)}")
    return place, up


def _groups(
    cell: arb, own: arb, rest: arb, ties: int, span: int
) -> Iterator[tuple[int, list[tuple[int, arb]]]]:
    """Yield (shift, [(distance, share above)]) of the places of own + rest e^{-c distance}."""
    step, other, found, last = (-cell).exp(), rest, list[tuple[int, arb]](), 0
    for distance in range(span + 1):
        _in_time()
        if distance >= ties:
            value = arb(1) if distance == 0 else own + other
            shift, up = _place_of(value, cell)
            if found and shift != last:
                yield last, found
                found = []
            last = shift
            found.append((distance, up))
        other = other * step
    if found:
        yield last, found


def _add(
    a: Ratios,
    b: Ratios,
    own: arb,
    shift: int,
    kernel: list[tuple[int, arb]],
    made: dict[int, list[arb]],
) -> None:
    """Add the averages of all places of ``a`` with those of ``b`` at some distances below."""
    start = kernel[0][0]
    parts = [[1 - up for _, up in kernel], [up for _, up in kernel]]
    if a.side > 0:
        sums = [arb_poly(part) * arb_poly(b.q) for part in parts]
    else:
        ones = arb_poly([1] * len(kernel))
        sums = [ones * arb_poly(b.q), ones * arb_poly(b.p)]
    low, high = (one.coeffs() for one in sums)
    for i, w in enumerate(a.q):
        at = a.first + i - b.first - start
        if not 0 <= at < max(len(low), len(high)):
            continue
        below, above = (x[at] if at < len(x) else ZERO for x in (low, high))
        place = made.setdefault(a.first + i + shift, [ZERO, ZERO])
        if a.side > 0:
            place[0] += w * below
            made.setdefault(a.first + i + shift + 1, [ZERO, ZERO])[0] += w * above
        else:
            place[0] += w * below
            place[1] += own * a.p[i] * below + (1 - own) * w * above


def _put_at(made: dict[int, list[arb]], place: int, mass: arb, up: arb) -> None:
    made.setdefault(place, [ZERO, ZERO])[0] += mass * (1 - up)
    made.setdefault(place + 1, [ZERO, ZERO])[0] += mass * up


def _multiplied(one: Ratios, other: Ratios) -> Ratios:
    """Return the law of a product of independent ratios."""
    first = one.first + other.first
    q = (arb_poly(one.q) * arb_poly(other.q)).coeffs()
    if one.side > 0:
        return _valued(one.cell, first, q, one.zero + other.zero - one.zero * other.zero)
    return Ratios(one.cell, first, q, (arb_poly(one.p) * arb_poly(other.p)).coeffs(), ZERO, -1)


def _tree_of_ratios(levels: list[tuple[int, arb]], side: int, small: float) -> Ratios:
    """Return the law of averages of products of averages; see ``_tree``."""
    law: Ratios | None = None
    for m, v in reversed(levels):
        cell = arb(max(float(v), 1e-30)).sqrt() / FINE if law is None else law.cell
        one = _log_normal(v, cell, small, side)
        one = one if law is None else _multiplied(one, law)
        law = _mean_of(one.trimmed(small), m, small)
    assert law is not None
    return law


def _mean_of(one: Ratios, copies: int, small: float) -> Ratios:
    """Return the law of the mean of independent copies, on steps of equal length if they serve.

    Above, a value is spread over the ends of its step, with its mean. Below, a step is a label.
    Labels add up, and so do the steps.
    """
    if copies == 1:
        return one
    values = [float((one.cell * (one.first + k)).exp()) for k in range(len(one.q))]
    square = sum(float(w) * z * z for w, z in zip(one.q, values, strict=True)) - 1
    std = math.sqrt(max(square, 1e-12))
    most = values[-1] * 1.01 + copies + 12 * std * math.sqrt(copies)
    step = max(std / STEPS, most / MOST_STEPS)
    if step > std / 25:
        return _by_doubling(one, copies, small)
    size = int(most / step) + 2
    q, p, h = [ZERO] * size, [ZERO] * size, arb(step)
    q[0] += one.zero
    for w, v in zip(one.q, one.p, strict=True):
        if not w > 0:  # above, its value is moved to 0 and infinity; below, it is left out
            q[0] += w if one.side > 0 else ZERO
            continue
        k = max(math.floor(float(v / w / h)), 0)
        if one.side < 0:
            k = min(k, size - 1)  # the outermost mass may lie farther out; every label is valid
            q[k], p[k] = q[k] + w, p[k] + v
        else:
            k, up = _upwards(w, v / h, k, size)
            q[k], q[k + 1] = q[k] + w - up, q[k + 1] + up
    steps = Masses.of(q, BITS + UNIT)
    others = steps.power(copies - 1, size)
    total = others.times(steps, size).balls()
    spread = arb(math.log1p(square / copies)).sqrt() / FINE
    if one.side < 0:
        shown = others.times(Masses.of(p, BITS + UNIT), size).balls()
        return _labelled_places(total, shown, h / copies, spread)
    return _placed(total, h / copies, spread).trimmed(small)


def _upwards(mass: arb, total: arb, k: int, size: int) -> tuple[int, arb]:
    """Return the step of a value, and the mass at its upper end that keeps the mean.

    Args:
        mass: of the value.
        total: mass times value, in steps.
        k: the step of the value, or one next to it.
        size: number of steps.
    """
    up = total - k * mass
    if not (up >= 0 and up <= mass):
        k, up = (k - 1, up + mass) if up < mass / 2 else (k + 1, up - mass)
    if not 0 <= k < size - 1 or not (up >= 0 and up <= mass):
        raise Undecided(f"the step of a value, near {k} of {size}")
    return k, up


def _placed(masses: list[arb], step: arb, cell: arb) -> Ratios:
    """Return the law with masses at 0, step, 2 step, ... spread over the places of a cell."""
    first = math.floor(float(step.log() / cell)) - 2
    size = math.ceil(float((step * len(masses)).log() / cell)) - first + 4
    if size > MOST_STEPS:
        raise Undecided(f"a law of {size} places, more than {MOST_STEPS}")
    places = [(cell * (first + k)).exp() for k in range(size)]
    found, wide = [ZERO] * size, cell.exp() - 1
    base, unit = math.log(float(step)), float(cell)
    for k, w in enumerate(masses[1:], 1):
        at = math.floor((base + math.log(k)) / unit) - first
        up = (k * step / places[at] - 1) / wide
        if not (up >= 0 and up <= 1):
            at = at - 1 if up < 0.5 else at + 1
            up = (k * step / places[at] - 1) / wide
        if not (up >= 0 and up <= 1):
            raise Undecided(f"the place of a mean, step {k} of {len(masses)}")
        found[at], found[at + 1] = found[at] + w - w * up, found[at + 1] + w * up
    return _valued(cell, first, found, 1 - sum(masses[1:], ZERO))


def _labelled_places(q: list[arb], p: list[arb], step: arb, cell: arb) -> Ratios:
    """Return the law with steps collected in labels."""
    first = math.floor(float(step.log() / cell)) - 1
    made = dict[int, list[arb]]()
    base, unit = math.log(float(step)), float(cell)
    for k, (w, v) in enumerate(zip(q, [*p, *[ZERO] * (len(q) - len(p))], strict=False)):
        at = math.floor((base + math.log(k + 0.5)) / unit)
        row = made.setdefault(max(at, first), [ZERO, ZERO])
        row[0], row[1] = row[0] + w, row[1] + v
    rows = [made.get(k, [ZERO, ZERO]) for k in range(first, max(made) + 1)]
    return Ratios(cell, first, [w for w, _ in rows], [v for _, v in rows], ZERO, -1)


def _by_doubling(one: Ratios, copies: int, small: float) -> Ratios:
    """Return the law of a mean of a wide law, by means of two laws on the places of a cell."""
    values = [(float((one.cell * (one.first + k)).exp()), float(w)) for k, w in enumerate(one.q)]
    square = sum(w * z * z for z, w in values) - 1
    cell = arb(math.sqrt(math.log1p(square / copies)) / COARSE)
    one = _coarser(one, cell)
    law, count = one, 1
    for bit in bin(copies)[3:]:
        law, count = _averaged(law, law, arb(1) / 2).trimmed(small), 2 * count
        if bit == "1":
            law = _averaged(law, one, arb(count) / (count + 1)).trimmed(small)
            count += 1
    return law


def _coarser(one: Ratios, cell: arb) -> Ratios:
    """Return a law on the places of another cell."""
    if len(one.q) * one.cell > MOST_WIDE * cell:
        raise Undecided(f"a law of {len(one.q)} places in cells of {cell.str(5)}")
    made = dict[int, list[arb]]()
    for k, (w, v) in enumerate(zip(one.q, one.p, strict=True)):
        value = (one.cell * (one.first + k)).exp()
        if one.side > 0:
            shift, up = _place_of(value, cell)
            _put_at(made, shift, w, up)
        else:
            row = made.setdefault(math.floor(float(value.log() / cell)), [ZERO, ZERO])
            row[0], row[1] = row[0] + w, row[1] + v
    first = min(made)
    rows = [made.get(k, [ZERO, ZERO]) for k in range(first, max(made) + 1)]
    if one.side > 0:
        return _valued(cell, first, [w for w, _ in rows], one.zero)
    return Ratios(cell, first, [w for w, _ in rows], [v for _, v in rows], ZERO, -1)


def _averages(f: Tree) -> Pair:
    return _tree_of_ratios(f["levels"], f["side"], f["small"]).pair()


def _replaced_ratios(f: Tree) -> Pair:
    """Return the pair by way of the round without the unit: both ratios at one quantile (T11)."""
    law = _tree_of_ratios(f["levels"], 1, f["small"])
    masses, ratio, ratios = [_exact(w.lower()) for w in [law.zero, *law.q]], ZERO, [ZERO]
    rest = 1 - sum(masses, Fraction(0))
    for k in range(len(law.q)):
        ratio = (law.cell * (law.first + k)).exp()
        ratios.append(ratio)
    if rest < 0:
        raise Undecided(f"the mass of a law: {float(rest):g} is left")
    # Steps at larger quantiles only increase losses, so the rest comes first.
    rising: list[list[Any]] = [[r, w] for r, w in zip(ratios, masses, strict=True)]
    falling: list[list[Any]] = [[r, w] for r, w in rising[::-1]]
    rising[0][1] += rest
    falling[0][1] += rest
    lost, atoms, i, j = (1 - sum(law.p, ZERO)).upper(), list[tuple[arb, arb]](), 0, 0
    only = [arb(lost).max(ZERO), arb(lost).max(ZERO)]
    while i < len(rising) and j < len(falling):
        width = min(rising[i][1], falling[j][1])
        q, p = (
            arb(fmpq(width.numerator, width.denominator)) * x for x in (rising[i][0], falling[j][0])
        )
        if width and q > TINY and p > TINY:
            atoms.append((p, q))
        else:
            only = [only[0] + p, only[1] + q]
        rising[i][1] -= width
        falling[j][1] -= width
        i, j = i + (not rising[i][1]), j + (not falling[j][1])
    ends = arb(only[0].upper()), arb(only[1].upper())
    return Pair(tuple(atoms), only=ends, exact=False)


def _exchanged_units(f: Tree) -> Pair:
    """Return the pair of points of a replaced unit's profile, each of them tested (T11, T12)."""
    known, work = list[tuple[Fraction, Fraction]](), 0
    for point in f["points"]:
        _in_time()
        named = dict(zip(("epsilon", "delta"), point, strict=True))
        epsilon, delta = _from(0, 200, named, "epsilon", float), _from(0, 1, named, "delta", float)
        if known and delta >= known[-1][1]:  # an earlier point is lower
            continue
        with ctx.workprec(BITS // 2):
            gain, cells = _gain(arb(f["mu"]), f["rounds"], float(epsilon), float(delta))
        work += cells
        if not gain <= delta or work > MOST_CELLS_OF_A_PROFILE:
            raise Undecided(f"a point of a profile, epsilon {epsilon:g}, or its {work} cells")
        known.append((_exact(arb(epsilon).exp().upper()), Fraction(float(delta))))
    return _of_points(known)


def _gain(mu: arb, t: int, epsilon: float, delta: float) -> tuple[arb, int]:
    """Return a bound on E (X_1 + ... + X_t)^+ / t, spread on a grid (T11), and its cells.

    It serves to show that the number is at most ``delta``.
    """
    a, little = arb(epsilon).exp(), max(delta, 1e-300) * 1e-6
    spread = float(((1 + a * a) * (mu * mu).expm1() - 2 * a * (-mu * mu).expm1()).sqrt())
    cell, scale = arb(spread / 13), (mu * mu / 2).exp()

    @lru_cache
    def over(k: int) -> arb:
        x, c = cell * k, cell * k * scale
        root = (c * c + 4 * a).sqrt()
        y = ((c + root) / 2 if k >= 0 else 2 * a / (root - c)).log() / mu
        return _normal_below(mu - y) - a * _normal_below(-mu - y) - x * _normal_below(-y)

    most = math.ceil(13 * (8.5 * math.sqrt(t) + t * float(a - 1) / spread))
    if most > MOST_STEPS:
        raise Undecided(f"a profile of so many rounds, {t}: {most} places")

    def reach(rest: Callable[[int], arb]) -> int:
        k = 26
        while k < most and not rest(k) < little:
            k += k // 8
        return min(k, most)

    top, bottom = reach(over), reach(lambda k: over(-k) - (1 - a + k * cell))
    # far below the mean, fewer places will do
    near = -min(bottom, math.ceil(float((a - 1) / cell)) + 78)
    places = [*range(-bottom, near, 8), *range(near, top + 1)]
    calls = [over(k) for k in places]
    every = zip(pairwise(calls), pairwise(places), strict=True)
    falls = [arb(1), *((u - v) / (cell * (k - j)) for (u, v), (j, k) in every), ZERO]
    law = {k: (u - v).upper().max(ZERO) for k, (u, v) in zip(places, pairwise(falls), strict=True)}
    high, beyond = _far_sums(law, cell, t, little)
    low = _far_sums({-k: w for k, w in law.items()}, cell, t, little)[0]
    size = high + low + 1
    if size > MOST_STEPS:
        raise Undecided(f"a profile of so many rounds, {t}: {size} places")
    bits = math.ceil(-math.log2(little)) + 64
    gains = _power_above(law, t, size, bits)[1 : high + 1]
    found = cell * sum(k * w for k, w in enumerate(gains, 1)) / arb(2) ** bits
    return arb(((found + beyond) / t + calls[-1]).upper()), size


def _far_sums(law: dict[int, arb], cell: arb, t: int, little: float) -> tuple[int, arb]:
    """Return a place, and a bound on E (S; S beyond it), S a sum of t; about ``little`` (Chernoff).

    s <= w e^{(s - w) / w} for s >= w, so s <= w e^{h (s - w)} for h w >= 1.
    """
    rough = [(k, float(w)) for k, w in law.items() if w > 0]
    mean = sum(k * w for k, w in rough)
    std = math.sqrt(sum((k - mean) ** 2 * w for k, w in rough))

    def place(h: float) -> float:
        top = max(h * k for k, _ in rough)
        log = top + math.log(sum(w * math.exp(h * k - top) for k, w in rough))
        return max((t * log - math.log(little) + 14) / h, 1 / h)

    h = min((2.0 ** (k / 2) / (std * math.sqrt(t)) for k in range(-8, 9)), key=place)
    last, rate = math.ceil(place(h)), arb(h)
    moment = sum((w * (rate * k).exp() for k, w in law.items()), ZERO)
    return last, cell * last * (t * moment.log() - rate * last).exp()


def _power_above(law: dict[int, arb], t: int, size: int, bits: int) -> list[int]:
    """Return bounds on the masses of a sum of t in units of 2^-bits, places taken modulo ``size``.

    All are rounded up, and more mass is above.
    """

    def folded(product: fmpz_poly) -> fmpz_poly:
        _in_time()
        units = [int(x) for x in product.coeffs()]
        rest = [*units[size:], *[0] * size]
        return fmpz_poly([-(-(u + v) >> bits) for u, v in zip(units[:size], rest, strict=False)])

    units = [0] * size
    for k, w in law.items():
        units[k % size] += _integer((w * arb(2) ** bits).upper().ceil())
    one = found = fmpz_poly(units)
    for bit in bin(t)[3:]:
        found = folded(found * found)
        found = folded(found * one) if bit == "1" else found
    return [int(x) for x in found.coeffs()]


def _inner_draws(f: Tree) -> Pair:
    """Return the pair of a unit whose rounds of fewer draws lie inside those of more (T19)."""
    moves = [(2, 0)] if f["replaced"] else [(2, 1), (1, 0)]
    small = max(float(f["rest"].upper()), 1e-40) / 1000
    sides = [_shared_thresholds(f["std"], f["law"], *move, small) for move in moves]
    if f["replaced"]:  # it is not asked the other way round: outcomes of a low loss may have none
        sides.append(_shared_thresholds(f["std"], f["law"], 2, 0, small**0.5))
    up, down = sides[0], sides[-1].swap()
    every = up.pieces + down.pieces
    still = 1 - sum((x.held(x.p, x.low, x.high) for x in every), ZERO)
    if not still > 0:
        raise Undecided(
            f"draws inside draws, if no outcome is left at a loss of 0 ({still.str(5)})"
        )
    return Pair((), still, every, (up.only[0], down.only[1]))


@dataclass(frozen=True)
class Numbers:
    """Numbers of draws: their chances, and the means at which they are compared."""

    w: list[arb]
    d: list[arb]
    e: list[arb]
    unit: arb

    def ratio(self, t: arb, first: int, last: int) -> tuple[arb, arb]:
        """Return log of sum w phi(t - d) / sum w phi(t - e) of some numbers, and its slope."""
        found = []
        for means in (self.d, self.e):
            some = list(zip(self.w, means, strict=True))[first:last]
            each = [(w * (m * t - m * m / 2).exp(), m) for w, m in some]
            total = sum((x for x, _ in each), ZERO)
            found.append((total.log(), sum((x * m for x, m in each), ZERO) / total))
        (over, up), (under, down) = found
        return over - under, up - down

    def outside(self, ends: list[arb]) -> arb:
        """Return P's mass of every number above its own end; those without an end are left out."""
        some = zip(self.w, self.d, ends, strict=False)
        return sum((w * _normal_below(d - end) for w, d, end in some), ZERO)

    def lost_where_joins(self, n: int, t: arb) -> arb:
        """Return P's mass that is lost if number n joins those below it at a threshold.

        Between both ratios there the columns are not used up: a tail is at most 1.26 densities.
        """
        (low, _), (high, _) = (self.ratio(t, 0, k) for k in (n, n + 1))
        if not (self.e[n] <= t and high >= low):
            raise Undecided(f"where the mean {self.e[n].str(5)} joins those below it")
        below = zip(self.w[:n], self.e, strict=False)
        rest = sum((w * (m * t - m * m / 2).exp() for w, m in below), ZERO)
        return (high.exp() - low.exp()) * rest * (-t * t / 2).exp()

    def beyond(self, first: int, last: int, small: float) -> arb:
        """Return a threshold above which some numbers have less than ``small`` of P."""
        t, some = arb(0), list(zip(self.w, self.d, strict=True))[first:last]
        while not sum((w * _normal_below(d - t) for w, d in some), ZERO) < small:
            t += arb(1) / 8
        return t

    def piece(self, first: int, last: int, low: arb, high: arb) -> Piece:
        """Return the outcomes of some numbers between two thresholds."""
        p, q = (
            tuple(
                (w * (-m * m / 2).exp(), m)
                for w, m in list(zip(self.w, x, strict=True))[first:last]
            )
            for x in (self.d, self.e)
        )
        return Piece(True, p, q, _less(p, q), low, high, low, unit=self.unit)


def _shared_thresholds(z: arb, law: Law, there: int, back: int, small: float) -> Pair:
    """Return the part with P > Q of N(there k) against draws inside, at N(back j) (T19).

    Numbers below some n share a threshold t, and the next one joins where its own best threshold is
    t. At every t the ratio of all partial sums is at most the whole one, so weights exist.
    """
    unit = 1 / z
    means = [[unit * (move * s) for s, _ in law] for move in (there, back)]
    known = Numbers([w for _, w in law], means[0], means[1], unit)
    far = known.beyond(0, len(law), small)
    starts = [(d + e) / 2 for d, e in zip(*means, strict=True)]
    n = first = 1 if law[0][0] else 2
    t, pieces, lost = starts[n - 1], list[Piece](), arb(2) ** -140
    ends = [known.beyond(k, k + 1, small) for k in range(len(law))]
    lost += known.outside(ends)
    while True:
        following = _joins(known, n, t, far) if n < len(law) else far
        _check_shares(known, n, t, following)
        pieces.append(known.piece(0, n, t, following))
        if following is far:
            break
        lost += known.lost_where_joins(n, following)
        ends[n], n, t = min(ends[n], following, key=float), n + 1, following
    lost += known.outside([far] * n)
    alone = [k for k in range(first, len(law)) if starts[k] < ends[k]]
    pieces += [known.piece(k, k + 1, starts[k], ends[k]) for k in alone]
    return Pair(pieces=tuple(pieces), only=(arb(lost.upper()), ZERO))


def _joins(known: Numbers, n: int, t: arb, far: arb) -> arb:
    """Return a threshold where number n's own ratio is just above that of the numbers below."""

    def above(x: arb) -> bool:
        return bool(known.ratio(x, n, n + 1)[0] > known.ratio(x, 0, n)[0])

    low = t
    while not above(low + arb(1) / 16):
        low = arb((low + arb(1) / 16).mid())
        if not low < far - arb(1) / 8:
            return far
    high = arb((low + arb(1) / 16).mid())
    while high - low > arb(2) ** -100:
        middle = arb(((low + high) / 2).mid())
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


def _check_shares(known: Numbers, n: int, low: arb, high: arb) -> None:
    """Raise unless the ratio of the first n numbers grows between two thresholds.

    No partial sum of the numbers may have a larger ratio.
    """
    _never_below(lambda t: (known.ratio(t, 0, n)[1], ZERO), low, high)
    for m in range(1, n):

        def gap(t: arb, m: int = m) -> tuple[arb, arb]:
            (last, up), (part, down) = known.ratio(t, m, n), known.ratio(t, 0, m)
            return last - part, up - down

        _never_below(gap, low, high)


def _never_below(at: Callable[[arb], tuple[arb, arb]], low: arb, high: arb) -> None:
    """Raise unless a function, given with its slope, is at least -2^-150 between two points."""
    todo, tiny = [(low, high, 0)], arb(2) ** -150
    while todo:
        _in_time()
        a, b, depth = todo.pop()
        value, slope = at(arb(a.union(b)))
        if value > 0 or (slope > 0 and at(a)[0] > -tiny):
            continue
        if depth > 40:
            raise Undecided(f"whether numbers of draws may share a threshold near {a.str(5)}")
        middle = arb(((a + b) / 2).mid())
        todo += [(a, middle, depth + 1), (middle, b, depth + 1)]


def _of_points(known: list[tuple[Fraction, Fraction]]) -> Pair:
    """Return the pair whose profile is the greatest convex function below points (T12)."""
    least = min(delta for _, delta in known)
    mirrored = [(1 / a, 1 - (1 - delta) / a) for a, delta in known]
    hull: list[tuple[Fraction, Fraction]] = []
    for a, delta in sorted([(Fraction(0), Fraction(1)), *mirrored, *known]):
        if hull and hull[-1][0] == a:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (a - hull[-2][0]) >= (
            delta - hull[-2][1]
        ) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((a, delta))
        if delta == least:
            break
    falls = [(d - e) / (b - a) for (a, d), (b, e) in pairwise(hull)]
    atoms = [
        (a * (one - two), one - two)
        for (a, _), one, two in zip(hull[1:], falls, [*falls[1:], Fraction(0)], strict=True)
    ]
    pairs = tuple((_ball(p), _ball(q)) for p, q in atoms if p > 0)
    return Pair(pairs, only=(_ball(least), _ball(1 - falls[0])), exact=False)


def _ball(x: Fraction) -> arb:
    return arb(fmpq(x.numerator, x.denominator))


def _exact(x: arb) -> Fraction:
    """Return an exact number as a fraction."""
    man, exp = x.man_exp()
    return Fraction(int(man)) * Fraction(2) ** int(exp)


def _summed_rounds(f: Tree) -> Pair:
    """Return a sum over all rounds of cells of one round's outcome; see ``_in_cells``.

    A cell is one of the log ratio of a round that the unit is in by chance. The sum of the numbers
    of cells does not depend on which rounds the unit is in.
    """
    mu, chance = float(f["mu"]), f["take"] / f["rounds"] * f["share"] / 4
    if mu > MOST_MOVE:
        raise Undecided(f"cells of so large a move: {mu:g}, at most {MOST_MOVE}")
    hidden = -mu if f["opposite"] else 0.0

    def ratio(y: float) -> float:
        up, down = (chance * math.exp(m * y - m * m / 2) for m in (mu, hidden))
        return math.log((1 - chance + up) / (1 - chance + down))

    edges = _edges_of_ratio(ratio, mu)
    if len(edges) * f["rounds"] > 1 << 18:
        raise Undecided(f"a sum over {f['rounds']} rounds of {len(edges)} cells")
    every = [_masses_of(edges, arb(m)) for m in (ZERO, f["mu"], hidden and -f["mu"])]
    rest, p, q = (arb_poly(masses) for masses in every)
    rest = _to_power(rest, f["rounds"] - f["take"])
    p, q = (rest * _to_power(one, f["take"]) for one in (p, q))
    atoms = zip(p.coeffs(), q.coeffs(), strict=False)
    return Pair(_clear(atoms), exact=False)


def _edges_of_ratio(ratio: Callable[[float], float], mu: float) -> list[float]:
    """Return outcomes about where a rising log ratio meets multiples of a width; any will do."""
    ys = [k / 64 - 10 for k in range(math.ceil((20 + mu) * 64))]
    mean = sum(ratio(y) * math.exp(-y * y / 2) for y in ys) / 160.43
    spread = sum((ratio(y) - mean) ** 2 * math.exp(-y * y / 2) for y in ys) / 160.43
    width = max(math.sqrt(spread) / 10, (ratio(ys[-1]) - ratio(ys[0])) / MOST_CELLS)
    edges, at = [ys[0]], math.floor(ratio(ys[0]) / width) + 1
    for a, b in pairwise(ys):
        while ratio(b) > at * width:
            edges.append(a + (b - a) * (at * width - ratio(a)) / (ratio(b) - ratio(a)))
            at += 1
    return edges


def _masses_of(edges: list[float], mean: arb) -> list[arb]:
    """Return the masses of N(mean, 1) between edges and beyond them."""
    below = [ZERO, *(_normal_below(arb(y) - mean) for y in edges), arb(1)]
    return [b - a for a, b in pairwise(below)]


def _to_power(base: arb_poly, n: int) -> arb_poly:
    total = arb_poly([1])
    for bit in bin(n)[2:]:
        _in_time()
        total = total * total
        total = total * base if bit == "1" else total
    return total


MADE: dict[str, Callable[[Tree], Pair]] = {
    "CohortSum": _cohort_sum,
    "Opposed": _opposed,
    "LargestRound": _largest_round,
    "Averages": _averages,
    "Replaced": _replaced_ratios,
    "Exchanged": _exchanged_units,
    "InnerDraws": _inner_draws,
    "SummedRounds": _summed_rounds,
    "Gdp": _gdp,
    "LaplacePair": _laplace,
    "LaplaceExchanged": _exchanged,
    "GaussianMix": _gaussian_mix,
    "Shifts": _shifts,
    "Unlikely": _unlikely,
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
        if piece.closed:
            total += piece.gained(x)
            continue
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
    todo, sure = [(low, high, 0)], list[tuple[arb, arb]]()
    while todo:  # split where the sign of P - e^x Q is uncertain
        _in_time()
        a, b, depth = todo.pop()
        found = piece.logs(acb(a.union(b)))
        loss = arb("nan") if found is None else found[1].real
        if loss > x:  # next to each other, from the right to the left
            sure[-1:] = [(a, sure[-1][1])] if sure and sure[-1][0] is b else [*sure[-1:], (a, b)]
        elif loss < x:
            continue
        elif depth % 4 == 0 and piece.held(piece.p, a, b).upper() < share * arb(2) ** -60:
            yield _upto(piece.held(piece.p, a, b))
        else:
            middle = ((a + b) / 2).mid()
            todo += [(a, middle, depth + 1), (middle, b, depth + 1)]
    for a, b in sure:
        yield piece.held(piece.p, a, b) - x.exp() * piece.held(piece.q, a, b)


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
    """Return (w, L, error): A(tilt + iv) without its closed form is sum w e^{ivL}, v <= top.

    The mass without loss is not counted.
    """
    losses = [acb((a / b).log()) for a, b in pair.atoms]
    weights = [a * (tilt * x).exp() for (a, _), x in zip(pair.atoms, losses, strict=True)]
    error, allowed = arb(0), TARGET * arb(log_moment(pair, float(tilt))).exp()
    for piece in pair.curved():
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
        _in_time()
        middle, half, depth = todo.pop()
        size = _edge(piece, tilt, top, middle, half)
        whole = arb("inf") if size is None else size * abs(half)
        if 2 * whole < allowed:
            yield middle, half, 2 * whole, False
        elif rate * whole < allowed:
            yield middle, half, rate * whole, True
        elif depth > 60:
            raise Undecided(f"a panel of a moment's integral near {middle.str(5)}")
        else:
            todo += [(middle + s * half / 2, half / 2, depth + 1) for s in (-1, 1)]


def _gauss(piece: Piece, tilt: arb, middle: acb, half: acb) -> Iterator[tuple[acb, acb]]:
    """Yield (weight, loss) of a panel's nodes."""
    for at, share in _legendre():
        found = tilted(piece, tilt, middle + half * at)
        if found is None:
            raise Undecided(f"a node of a moment's integral near {middle.str(5)}")
        yield share * half * found[0].exp(), found[1]


def cover(piece: Piece, tilt: arb) -> Iterator[tuple[arb, arb, arb]]:
    """Yield (a, b, c): |A(tilt + iv)| is at most the sum of all a e^{-vb - v^2 c}, v >= 0."""
    if piece.plain:
        yield piece.moment(tilt), ZERO, (piece.p[0][1] - piece.q[0][1]) ** 2 / 2
        return
    for a, b in _bounds(piece, tilt):
        yield a, b, ZERO


def _bounds(piece: Piece, tilt: arb) -> Iterator[tuple[arb, arb]]:
    """Yield (a, b): |A(tilt + iv)| is at most the sum of all a e^{-v b}, at every v >= 0."""
    legs, lost, up = _legs(piece, tilt, False)
    yield lost, arb(0)
    for a, b in legs:
        if a.imag == 0 and b.imag == 0:  # there |e^{ivL}| is 1
            found = tilted(piece, tilt, acb(a.real.union(b.real)))
            yield arb("inf") if found is None else found[0].real.exp().upper() * abs(b - a), arb(0)
    todo = [(u, v, 0) for a, b in legs for u, v in pairwise(_cuts(a, b, up))]
    while todo:
        _in_time()
        u, v, depth = todo.pop()
        falls = _falling(piece, tilt, acb(u.real.union(v.real), u.imag.union(v.imag)))
        if falls is not None:
            yield falls[0] * abs(v - u), falls[1]
        elif depth > 12:
            raise Undecided(f"the bound for large heights near {u.str(5)}")
        else:
            todo += [(u, (u + v) / 2, depth + 1), ((u + v) / 2, v, depth + 1)]


def _cuts(a: acb, b: acb, up: float) -> list[acb]:
    """Return the cuts of a leg that is not on the real line."""
    if a.imag == b.imag:
        count = 0 if a.imag == 0 else math.ceil(abs(float((b - a).real / up)) * 4)
        if count > MOST_CUTS:
            raise Undecided(f"a path of {count} cells, more than {MOST_CUTS}")
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
    if tilt not in pair.rough_moments:
        pair.rough_moments[tilt] = _rough(pair, tilt)
    return pair.rough_moments[tilt] - pair.rough_moments[0.0]


def _few(rounds: list[tuple[Pair, int]]) -> list[tuple[Pair, int]]:
    """Return rounds that stand for all where parameters are chosen: the strongest, and strata."""
    if len(rounds) <= STRONG + STRATA:
        return rounds
    order = sorted(rounds, key=lambda one: log_moment(one[0], 1.0), reverse=True)
    chosen, rest = order[:STRONG], order[STRONG:]
    size = -(-len(rest) // STRATA)
    strata = [rest[k : k + size] for k in range(0, len(rest), size)]
    return chosen + [(some[len(some) // 2][0], sum(n for _, n in some)) for some in strata]


def _rough(pair: Pair, tilt: float) -> float:
    _in_time()
    logs = [_log(float(pair.still)), *(a + tilt * loss for a, loss in pair.rough_atoms)]
    for piece in pair.pieces:
        if piece.plain:
            logs.append(piece.log_moment(tilt))
            continue
        found = _rough_cells(piece, tilt)
        if not found:  # beyond the range of floats
            return math.inf
        logs += found
    return _log_sum(logs)


def _rough_cells(piece: Piece, tilt: float) -> list[float]:
    """Return the logs of parts of a piece's moment in plain floats; [] beyond their range."""
    legs = _legs(piece, arb(tilt), True)[0]
    low, high = float(legs[0][0].real), float(legs[-1][1].real)
    p, q = ([(float(w.log()), float(m)) for w, m in terms] for terms in (piece.p, piece.q))
    found = list[float]()
    for count in (120, 120):  # first the whole range, then the part that matters
        step, found = (high - low) / count, []
        for k in range(count):
            y = low + (k + 0.5) * step
            up, down = (_log_sum([w + m * y for w, m in terms]) for terms in (p, q))
            base = -y * y / 2 - 0.9189385 if piece.gaussian else 0.0
            found.append(base + up + tilt * (up - down) + _log(step))
        near = [k for k, value in enumerate(found) if value > max(found) - 35.0]
        if not near:
            return []
        low, high = low + (near[0] - 1) * step, low + (near[-1] + 2) * step
    return found


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _log_sum(logs: list[float]) -> float:
    if len(logs) == 1:
        return logs[0]
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

        some = _few(rounds)

        @lru_cache
        def moment(tilt: float) -> float:
            return sum(n * log_moment(pair, tilt) for pair, n in some)

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
        self.covers: list[list[tuple[arb, arb, arb]]] = []
        for pair, _ in rounds if self.reaches else []:
            self.covers.append([x for one in pair.pieces for x in cover(one, self.tilt)])
        self.jumps = _jumps(rounds, share * 1e-20)
        self.found: dict[int, list[acb]] = {}
        self.single: dict[tuple[float, float], arb] = {}
        self.between: dict[int, tuple[int, list[arb]]] = {}
        self.apart = self.jumps is not None
        self.once = _others(rounds, share * 1e-20) if self.apart else []

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
            sizes += [a * (-top * b - top * top * c).exp() for a, b, c in parts]
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
                total = sum((w.real for w in weights), pair.closed(t))
                sizes.append(total + arb(0, error.upper()))
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
                _in_time()
                s = acb(self.tilt, k * self.spacing)
                whole = [a + pair.still for a, (pair, _) in zip(here, self.rounds, strict=True)]
                moment = _product(whole, [n for _, n in self.rounds])
                known = self._known(self._flat(s), whole)
                self.found[count].append((moment - known) / (s * (s + 1)))
        return self.found[count]

    def _table(self, pair: Pair, count: int, spacing: arb) -> list[acb]:
        """Return a pair's moments at ``count`` heights: products of two tables of powers."""
        weights, losses, error = nodes(pair, self.tilt, count * spacing)
        known = [pair.closed(acb(self.tilt, k * spacing)) for k in range(count)]
        if not weights:
            return known
        width = math.isqrt(count - 1) + 1
        turns = [acb(0, spacing) * loss for loss in losses]
        fine = _powers([turn.exp() for turn in turns], width)
        coarse = _powers([(width * turn).exp() for turn in turns], -(-count // width))
        slip, turned = acb(arb(0, error.upper()), arb(0, error.upper())), acb_mat(fine).transpose()
        sums: list[acb] = []
        for k in range(0, len(coarse), 32):
            _in_time()
            some = [map(operator.mul, weights, row) for row in coarse[k : k + 32]]
            sums += (acb_mat([list(row) for row in some]) * turned).entries()
        return [z + slip + more for z, more in zip(sums[:count], known, strict=True)]


def _normals(rounds: list[tuple[Pair, int]]) -> bool:
    """Return whether any of the noise is normal."""
    return any(piece.gaussian for pair, _ in rounds for piece in pair.pieces)


def _log_most(pair: Pair, tilt: arb) -> arb:
    """Return the log of a bound on a round's moment."""
    weights, _, error = nodes(pair, tilt, arb(0), True)
    total: arb = sum((abs(w) for w in weights), error) + pair.closed(tilt) + pair.still
    return total.log()


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


def _others(
    rounds: list[tuple[Pair, int]], small: float
) -> list[tuple[list[tuple[arb, arb]], arb]]:
    """Return for each kind of rounds the single outcomes of all but one; [] if too many."""
    found = []
    for i in range(len(rounds)):
        here = _jumps([(pair, n - (i == j)) for j, (pair, n) in enumerate(rounds)], small)
        if here is None or len(here[0]) > MOST_ONCE:
            return []
        found.append((here[0], here[1]))
    return found


def _jumps(
    rounds: list[tuple[Pair, int]], small: float
) -> tuple[list[tuple[arb, arb]], arb] | None:
    """Return the (P, Q) masses of all rounds' single outcomes, and P's mass of the omitted ones.

    None if there are too many of more than about ``small``. The counts of the atoms leave the draws
    without loss.
    """
    every, rest = [(arb(1), arb(1))], arb(0)
    for pair, count in rounds:
        _in_time()
        if count * sum(float(a) for a, _ in pair.atoms) > 150.0:
            return None
        here = _drawn(pair, count, small)
        if pair.atoms:
            total = (sum((a for a, _ in pair.atoms), arb(0)) + pair.still) ** count
            rest += total - sum((p for p, _ in here), arb(0))
        if len(here) * len(every) > 4 * MOST_APART:
            return None
        every, rare = _but_rare([(p * u, q * v) for p, q in every for u, v in here], small)
        rest += rare
        if len(every) > MOST_APART:
            return None
    return every, rest


def _but_rare(masses: list[tuple[arb, arb]], small: float) -> tuple[list[tuple[arb, arb]], arb]:
    """Return the (P, Q) masses without those of P below ``small``, and the sum of those."""
    kept = [(p, q) for p, q in masses if not p < small]
    return kept, sum((p for p, _ in masses if p < small), arb(0))


def _drawn(pair: Pair, count: int, small: float) -> list[tuple[arb, arb]]:
    """Return the (P, Q) masses of how often each outcome is drawn; truncated if too many.

    Of two outcomes with opposite losses, draws that differ equally often have one loss.
    """
    found: list[tuple[arb, arb, int, list[int]]] = [(arb(1), arb(1), count, [])]
    for a, b in pair.atoms:
        more = (each for one in found for each in _times_drawn(a, b, one, small))
        found = list(islice(more, MOST_APART + 1))
    turned = [(b.repr(), a.repr()) for a, b in pair.atoms]
    opposite = len(turned) == 2 and turned[1] == (pair.atoms[0][0].repr(), pair.atoms[0][1].repr())
    made: dict[Any, tuple[arb, arb]] = {}
    for p, q, n, times in found:
        name = times[0] - times[1] if opposite else tuple(times)
        rest, (u, v) = pair.still**n, made.get(name, (ZERO, ZERO))
        made[name] = u + p * rest, v + q * rest
    return list(made.values())


def _times_drawn(
    a: arb, b: arb, one: tuple[arb, arb, int, list[int]], small: float
) -> Iterator[tuple[arb, arb, int, list[int]]]:
    """Yield (P, Q, rounds left, counts) for an outcome drawn 0, 1, ... times, if it may matter."""
    (p, q, rounds, times), ways = one, arb(1)
    for k in range(rounds + 1):
        mass = p * ways * a**k
        if k > rounds * float(a) * 4 and float(mass) < small:
            return
        yield mass, q * ways * b**k, rounds - k, [*times, k]
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
            raise Undecided(f"a lattice of too many points, {self.up - self.first}")
        self.spreads = [
            Spread(pair, self.h, k, self.up - self.first + self.count, small)
            for k, (pair, _) in zip(firsts, rounds, strict=True)
        ]
        self.size = self.up - self.first + 1
        self.bits = _bits_of_masses(x, small)
        sides = zip(*(one.both() for one in self.spreads), strict=True)
        self.masses = [
            [Masses.of(each, bits) for each in every]
            for every, bits in zip(sides, self.bits, strict=True)
        ]

    def delta(self, x: arb) -> arb:
        """Return a ball that contains delta at x."""
        counts = [n for _, n in self.rounds]
        kept, other = (self._composed(counts, side) for side in (0, 1))
        lost = sum((n * one.lost for n, one in zip(counts, self.spreads, strict=True)), arb(0))
        p, q = (_product([one.held[k] for one in self.spreads], counts) for k in (0, 1))
        found = p - kept.sum() - x.exp() * (q - other.sum())
        slip = 2 * self.count * SLIP
        most = (found + lost + slip).upper()
        return arb(found - self._added(counts) - slip).lower().max(arb(0)).union(arb(most))

    def _composed(self, counts: list[int], side: int) -> Masses:
        """Return the masses of P (side 0) or Q of a number of rounds of each kind, up to x."""
        total = Masses([1 << self.bits[side]], 0, self.bits[side])
        for masses, n in zip(self.masses[side], counts, strict=True):
            if n:
                total = total.times(masses.power(n, self.size), self.size)
        return total

    def _added(self, counts: list[int]) -> arb:
        """Return a bound on the total growth of delta by spreading, over all rounds."""
        total = arb(0)
        for i, one in enumerate(self.spreads):
            others = self._composed([n - (i == j) for j, n in enumerate(counts)], 0)
            gaps = _widened(one.gaps, self.count)  # of cells from one.first - count on
            at = self.up - self.first + self.count  # the index of the gap where R is least
            total += counts[i] * others.mean(at, gaps)
        return total


def _bits_of_masses(x: float, small: arb) -> list[int]:
    """Return the bits of the masses of P and of Q: an error of Q's counts e^x times."""
    exponents = (-small.log(), x - small.log())
    bits = [UNIT + math.ceil(float(each / arb(2).log())) for each in exponents]
    if bits[1] > MOST_BITS:
        raise Undecided(f"so small a delta, or so large a loss: {bits[1]} bits")
    return bits


@dataclass(frozen=True)
class Masses:
    """Masses in units of 2^-bits from a point on; ``error`` bounds the sum of their errors."""

    units: list[int]
    error: int
    bits: int

    @classmethod
    def of(cls, masses: list[arb], bits: int) -> Masses:
        """Return masses with 0 or more at every point, rounded to units."""
        units, error = list[int](), 0
        for mass in masses:
            low, high = ((end * arb(2) ** bits).floor() for end in (mass.lower(), mass.upper()))
            units.append(_integer(low))
            error += _integer(high) + 1 - units[-1]
        return cls(units, error, bits)

    def times(self, other: Masses, size: int) -> Masses:
        """Return the masses of sums, of at most ``size`` points."""
        _in_time()
        product = fmpz_poly(self.units) * fmpz_poly(other.units)
        units = [int(x) >> self.bits for x in product.coeffs()[:size]]
        sums = [sum(map(abs, one.units)) for one in (self, other)]
        slips = self.error * (sums[1] + other.error) + other.error * sums[0]
        return Masses(units, (slips >> self.bits) + 1 + len(units), self.bits)

    def power(self, n: int, size: int) -> Masses:
        """Return the masses of sums of ``n`` losses."""
        found = self
        for bit in bin(n)[3:]:
            found = found.times(found, size)
            found = found.times(self, size) if bit == "1" else found
        return found

    def sum(self) -> arb:
        """Return a ball that contains the sum."""
        return (arb(sum(self.units)) + arb(0, self.error)) / arb(2) ** self.bits

    def balls(self) -> list[arb]:
        """Return balls that contain the masses."""
        unit = arb(2) ** -self.bits
        slip = arb(0, (self.error * unit).upper())
        return [units * unit + slip for units in self.units]

    def mean(self, at: int, gaps: list[float]) -> arb:
        """Return a bound on the sum of mass k times the gap at ``at`` - k."""
        start = max(0, at + 1 - len(gaps))
        pairs = zip(self.units[start:], reversed(gaps[: at + 1]), strict=False)
        total = sum((mass * arb(gap) for mass, gap in pairs if gap and mass), arb(0))
        return (total + self.error * arb(max(gaps))) / arb(2) ** self.bits


def _integer(x: arb) -> int:
    found = x.unique_fmpz()
    if found is None:
        raise Undecided(f"a mass of a lattice, {x.str(5)}")
    return int(found)


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

    def both(self) -> tuple[list[arb], list[arb]]:
        """Return the masses of P and of Q."""
        step, at, other = (-self.h).exp(), (-self.first * self.h).exp(), []
        for mass in self.masses:
            other.append(mass * at)
            at = at * step
        return self.masses, other

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
        if not gap.is_finite():  # so small a mass that q may be 0; no delta is above P's mass
            gap = abs(p - top) + abs(top)
        self.gaps[place] += float(gap.upper()) * (1 + 1e-9) + 1e-300

    def _cut(self, piece: Piece, small: arb) -> None:
        a, b, lost = _within(piece, small)
        self.lost += lost
        (start, slope), (end, _) = _rising(piece, a), _rising(piece, b)
        if not start < end:
            raise Undecided(
                f"the loss of a piece does not increase from {start.str(5)} to {end.str(5)}"
            )
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
        raise Undecided(f"the position of the loss {loss.str(5)} on the lattice")
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
            _in_time()
            low -= 1
        lost += piece.held(piece.p, None, low)
    if high is None:
        high = (piece.cross if piece.low is None else low.max(piece.cross)).mid()
        while not piece.held(piece.p, high, None) < small:
            _in_time()
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
    if piece.unit is not None:
        (p, q, _), (dp, dq, _) = piece.value(y), piece.value(y, 1)
        return (p / q).log(), dp / p - dq / q
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
    _in_time()
    for _ in range(400):
        if not (y - a) * (b - y) > 0:
            y = ((a + b) / 2).mid()
        loss, slope = _rising(piece, y)
        if abs(loss - target) < SLIP:
            return y, slope
        a, b = (y, b) if loss < target else (a, y)
        y = (y - (loss - target) / slope).mid()
    raise Undecided(f"a lattice point's outcome, at the loss {target.str(5)}")


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
    """One orientation of a run.

    Args:
        parts: the pairs that compose, with counts. Those without any loss are left out.
        wide: whether lattices are tried first.
        apart: function from epsilon to the amount that the run's delta may be above that of the
            pairs (for an attained run, below it: negative).
    """

    def __init__(
        self, parts: list[tuple[Pair, int]], wide: bool, apart: Callable[[float], arb] | None = None
    ) -> None:
        kept = [one for one in parts if one[0].atoms or one[0].pieces or one[0].still != 1]
        self.parts, self.rounds, self.wide = parts, kept or parts[:1], wide
        alone = sum((n * pair.only[0] for pair, n in parts), ZERO)
        self.apart: Callable[[float], arb] = lambda x: alone + (apart(x) if apart else ZERO)
        self.lines: dict[tuple[float, bool], Line] = {}
        self.few = _few(self.rounds)
        self.at_most = lru_cache(self._at_most)  # two ends may be one number
        self.tilt = lru_cache(self._tilt)

    def but(self, apart: Callable[[float], arb]) -> Run:
        """Return the same run with another amount ``apart``."""
        found = Run(self.parts, self.wide, apart)
        found.lines = self.lines
        return found

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
        else:
            if found := self.by_a_moment(x, share):
                yield found
            for way in self._methods():
                with suppress(Undecided):
                    yield from way(x, share)

    def _methods(self) -> list[Callable[[float, float], Iterator[arb]]]:
        """Return the methods for several rounds, the best first.

        A line is faster for many rounds; for few, the document suggests one.
        """
        coarse, fine = (partial(self.on_lattices, points) for points in (POINTS, FINER))
        if any(len(pair.atoms) > MOST_ATOMS for pair, _ in self.rounds):
            return [coarse, fine]  # a sum of so many single outcomes does not fall
        if self.wide and sum(n for _, n in self.rounds) <= FEW_ROUNDS:
            return [coarse, self.on_a_line, fine]
        if self.wide and any(len(pair.pieces) > MOST_PIECES for pair, _ in self.rounds):
            return [coarse, fine, self.on_a_line]
        return [self.on_a_line, coarse, fine]

    def _size(self, t: float, x: float) -> float:
        """Return the log of ``by_a_moment`` at a tilt, in plain floats."""
        moment = sum(n * log_moment(pair, t) for pair, n in self.few)
        return moment - t * x + t * math.log(t) - (1 + t) * math.log1p(t)

    def _tilt(self, x: float) -> float:
        # Of mixtures of many terms, a large tilt has a long and slow integral.
        terms = (len(piece.p + piece.q) for pair, _ in self.rounds for piece in pair.curved())
        return _least(lru_cache(lambda t: self._size(t, x)), 4 if max(terms, default=0) > 4 else 6)

    def rough(self, x: float) -> float:
        """Return about the log of delta; it only orders the ways to see a run."""
        return self._size(self.tilt(x), x) if math.isfinite(x) else 0.0

    def by_a_moment(self, x: float, share: float) -> arb | None:
        """Return a ball from 0 to a moment's bound on delta, if that is below ``share``.

        (1 - e^{x - L})^+ is at most e^{t (L - x)} t^t / (1 + t)^{1 + t}.
        """
        tilt = self.tilt(x)
        if not self._size(tilt, x) < math.log(share) - 0.01:
            return None
        with suppress(Undecided):
            t = arb(tilt)
            edge = sum((n * _log_most(pair, t) for pair, n in self.rounds), ZERO)
            return _upto((edge - t * x + t * t.log() - (1 + t) * t.log1p()).exp())
        return None

    def on_lattices(self, sizes: tuple[int, ...], x: float, share: float) -> Iterator[arb]:
        """Yield the enclosures of lattices of some sizes."""
        count = sum(n for _, n in self.rounds)
        for points in sizes if x > 0 and count <= MOST_ROUNDS else ():
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
        if value == 0:
            return self._never(x)
        apart = self.apart(x)
        for found in self.enclosures(x, value):
            if found + apart <= value or found + apart >= value:
                return bool(found + apart <= value)
        raise Undecided(f"delta at epsilon {x!r} against {value!r}")

    def _never(self, x: float) -> bool:
        """Return whether delta(x) is 0; False if it is certainly more."""
        apart, largest = self.apart(x), self.largest()
        # a sum of logarithms, equal to the end if 40 digits agree
        if apart == 0 and (math.isinf(x) or largest - x < 1e-40):
            return True
        if apart >= 0 and largest > x:
            return False
        raise Undecided(f"a delta of 0 at epsilon {x!r}")


def _number(value: Any) -> float:
    if value != "inf" and (type(value) not in (int, float) or not value >= 0):
        raise Refused(f"{value!r:.40} is not a number of at least 0")
    return float(value)


def digest(document: dict[str, Any]) -> str:
    """Return SHA-256 of everything else in the document."""
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


SYMMETRIC = frozenset(
    ("Gdp", "Unlikely", "LaplacePair", "LaplaceExchanged", "Replaced", "Exchanged")
)


def _symmetric(tree: Tree) -> bool:
    """Return whether (Q, P) is known to have the profile of (P, Q)."""
    f = tree["fields"]
    if tree["type"] == "Mix":
        return all(_symmetric(part) for _, part in f["parts"])
    if tree["type"] == "GaussianMix" and f.get("listed"):
        sides = (
            [(w.repr(), (m * sign).repr()) for w, m in f[side]]
            for side, sign in (("p", 1), ("q", -1))
        )
        one, other = sides
        return one == other
    if tree["type"] == "InnerDraws":
        return bool(f["replaced"])
    return tree["type"] in SYMMETRIC or (tree["type"] == "Fold" and f["up"] == f["down"])


def _runs(document: dict[str, Any], plan: Plan, known: dict[str, list[Run]]) -> Iterator[list[Run]]:
    """Yield the orientations for each way to see a run; nothing for an unknown run.

    Args:
        document: a certificate.
        plan: the ways to see the run.
        known: orientations that were made before, by name; others are added.
    """
    method = document["bound"]["method"]  # only the order of the methods depends on it
    wide = "lattice" in method or "largest" in method
    every = (
        _counted([(tree, n * count) for way, count in one for tree, n in way])
        for one in islice(product(*plan.ways), MOST_WAYS)
    )
    make = partial(_made, wide=wide, plan=plan, known=known)
    given = document["bound"]["quantity"] != "epsilon"
    end = _number(document["bound"]["given" if given else "upper" if plan.above else "lower"])
    return _most_promising(every, make, end) if plan.above else _most_shown(every, make, end)


Make = Callable[[Parts], Iterator[list[Run]]]


def _most_shown(every: Iterable[Parts], make: Make, x: float) -> Iterator[list[Run]]:
    """Yield the orientations of attained pairs; of cells of cohorts, the largest delta first."""
    shown = [parts for parts in every if parts]
    if any(tree["type"] == "CohortSum" for parts in shown for tree, _ in parts):
        shown.sort(key=lambda parts: _promise(make, parts, x), reverse=True)
    yield from chain.from_iterable(map(make, shown))


def _most_promising(every: Iterable[Parts], make: Make, x: float) -> Iterator[list[Run]]:
    """Yield the orientations of dominating pairs: single ones first, then the smallest delta."""
    ordered = sorted(every, key=_kind_of_sum)
    yield from chain.from_iterable(make(parts) for parts in ordered if _kind_of_sum(parts) < 2)
    several = (make(parts) for parts in ordered if _kind_of_sum(parts) == 2)
    ways = list(chain.from_iterable(several))
    if len(ways) > 1:
        with suppress(Undecided):  # of the time: any order will do
            ways.sort(key=lambda runs: max(run.rough(x) for run in runs))
    yield from ways


def _promise(make: Make, parts: Parts, x: float) -> float:
    """Return about the log of delta of a way to see a run, in coarse cells; it only orders them."""
    coarse = [
        (_node("CohortSum", **tree["fields"], coarse=True), n)
        if tree["type"] == "CohortSum"
        else (tree, n)
        for tree, n in parts
    ]
    with suppress(Undecided):
        return max((run.rough(x) for runs in make(coarse) for run in runs), default=-math.inf)
    return -math.inf


def _kind_of_sum(parts: Parts) -> int:
    """Return 0 for Gaussian pairs, which are one, 1 for one round of another pair, else 2."""
    kinds = [(tree["type"], n) for tree, n in parts if tree["type"] != "Unlikely"]
    return 0 if all(kind == "Gdp" for kind, _ in kinds) else 2 - ([n for _, n in kinds] == [1])


def _made(parts: Parts, wide: bool, plan: Plan, known: dict[str, list[Run]]) -> Iterator[list[Run]]:
    """Yield the orientations of one way to see a run, unless its pairs cannot be made."""
    name = json.dumps(parts, sort_keys=True, default=arb.repr)
    with suppress(Undecided):
        if name not in known:
            known[name] = _orientations(parts, wide)
        yield [run.but(plan.apart) for run in known[name]]


def _orientations(every: Parts, wide: bool) -> list[Run]:
    pairs = _laws(every)
    ways = [pairs]
    if not all(_symmetric(tree) for tree, _ in every):
        ways.append([(pair.swap(), n) for pair, n in pairs])
    if any(tree["type"] == "CohortSum" for tree, _ in every):
        ways = [[(pair.but_rare(n), n) for pair, n in way] for way in ways]
    return [Run(way, wide) for way in ways]


def _counted(every: Parts) -> Parts:
    """Return the expressions of rounds, equal ones together."""
    found: dict[str, tuple[Tree, int]] = {}
    for tree, n in every:
        name = json.dumps(tree, sort_keys=True, default=arb.repr)
        found[name] = (tree, n + (found[name][1] if name in found else 0))
    return list(found.values())


def _laws(every: list[tuple[Tree, int]]) -> list[tuple[Pair, int]]:
    """Return the laws of expressions; N(mu, 1) against N(0, 1) add up in mu^2."""
    gaussian = [(t["fields"]["mu"], n) for t, n in every if t["type"] == "Gdp"]
    pairs = [(_split(t), n) for t, n in every if t["type"] != "Gdp"]
    if gaussian:
        mu = sum((n * arb(m) ** 2 for m, n in gaussian), arb(0)).sqrt()
        pairs.append((made(_node("Gdp", mu=mu)), 1))
    return pairs


def _split(tree: Tree) -> Pair:
    """Return the laws of an expression; losses of draws inside draws rise in every piece."""
    return made(tree) if tree["type"] == "InnerDraws" else made(tree).split()


@dataclass(frozen=True)
class Plan:
    """The ways to see a run: for each part, the lists of pairs to choose from, and its count.

    ``apart`` is the amount that delta may be above that of the pairs; see ``Run``.
    """

    ways: list[list[tuple[Parts, int]]]
    apart: Callable[[float], arb] = lambda x: ZERO
    above: bool = True


class Plans(NamedTuple):
    """The dominating and the attained run, whether pairs are stated, and the trusted theorems."""

    above: Plan
    below: Plan
    stated: bool
    trusts: list[str]


def _plans(document: dict[str, Any], small: float) -> Plans:
    """Return the pairs of the run of a document.

    Raises:
        Refused: the document states other pairs than those of the mechanism.
    """
    counted = _known_parts(document, small)
    lost, off, missing = (
        sum((n * getattr(one, name) for n, one, _ in counted), ZERO)
        for name in ("lost", "off", "missing")
    )
    above = [[(way, n) for way in one.above] for n, one, _ in counted]
    # A part without an attained pair counts as a round that is not looked at.
    below = [[(way, n) for way in one.below or ([],)] for n, one, _ in counted]
    trusts = list(dict.fromkeys(trust for _, one, _ in counted for trust in one.trusts))
    return Plans(
        Plan(above, lambda x: lost + (1 + arb(x).exp()) * off),
        Plan(below, lambda x: -(1 + arb(x).exp()) * off - arb(x).exp() * missing, False),
        all(stated for _, _, stated in counted),
        trusts,
    )


def _known_parts(document: dict[str, Any], small: float) -> list[tuple[int, Known, bool]]:
    """Return the count and the pairs of every part, and whether the document states them."""
    bound, rounds = document["bound"], document["rounds"]
    facts = bound["adjacency"], bound["observer"]
    parts = _counted_parts(document["mechanism"])
    if len(parts) != len(rounds):
        raise Refused(
            f"the number of rounds differs from the question: {len(rounds)} for {len(parts)} parts"
        )
    stated = [_stated(part, n, one, *facts) for (part, n), one in zip(parts, rounds, strict=True)]
    count, found = sum(n for _, n in parts), list[tuple[int, Known, bool]]()
    for (part, n), own, said in zip(parts, stated, rounds, strict=True):
        one = own or known(_proposed(part, said), *facts, small / count)
        unseen = bound["observer"] == "final" and own is None
        found.append((n, replace(one, below=()) if unseen else one, own is not None))
    return found


def _proposed(part: Tree, one: Tree) -> Tree:
    """Return a part with the tree of bins that a certificate proposes; the checker tests it."""
    return part | {"fields": part["fields"] | {"levels": one.get("levels")}}


def _stated(part: Tree, count: int, one: Tree, adjacency: str, observer: str) -> Known | None:
    """Return the pairs that a document states; None if it leaves them to this program.

    Raises:
        Refused: they are not those of the mechanism.
    """
    if one["count"] != count:
        raise Refused(f"the count of {part['type']} differs from the question")
    if one["pair"] is None and one["attained"] is None:
        return None
    pair, attained = asked(part, adjacency, observer)
    attained = None if observer == "final" else attained
    if not _alike([one["pair"], one["attained"]], [pair, attained]):
        raise Refused(f"the pair of {part['type']} x {count} differs from the question")
    shown = () if one["attained"] is None else ([(one["attained"], 1)],)
    return Known(([(one["pair"], 1)],), shown, trusts=("the reference table",))


def _check_facts(bound: dict[str, Any]) -> None:
    """Refuse unknown words: their meaning would not be proved."""
    _one_of(MOVES, bound, "adjacency")
    _one_of(("aggregate", "server", "final"), bound, "observer")
    _one_of(("epsilon", "delta"), bound, "quantity")
    if bound["unit"] == "client":
        _check_listed(bound["adjacency"], bound["observer"])


def _resolution(bound: dict[str, Any]) -> tuple[float, float]:
    """Return the ends of the dominating pair; the upper one is that of the answer."""
    low, high = map(_number, bound["resolution"])
    if high != _number(bound["upper"]):
        raise Refused(f"the upper end must be that of the resolution, {high}, got {bound['upper']}")
    return low, high


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
    return judged(document)[0]


def judged(document: Any) -> tuple[dict[str, str], list[str]]:
    """Return the result of ``check``, and the theorems that are taken on trust."""
    if not isinstance(document, dict):
        kind = type(document)
        raise Refused(f"a certificate is a JSON object, not {_WORDS.get(kind, kind.__name__)}")
    _STOP[0] = time.thread_time() + SECONDS
    try:
        return _checked(document)
    except KeyError as problem:
        raise Refused(f"the field {problem.args[0]!r:.40} is missing") from problem
    except (*_MISSHAPEN, LookupError, ArithmeticError, RecursionError) as problem:
        raise Refused(f"a field has the wrong type ({problem!s:.100})") from problem
    finally:
        _STOP[0] = math.inf


_WORDS = {
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
_MISSHAPEN = (ValueError, TypeError, AttributeError)


def _checked(document: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    ctx.prec = BITS
    if document.get("digest") != digest(document):
        raise Refused(
            f"the digest {document.get('digest')!r:.16} differs from the document, so the document "
            "was changed"
        )
    _one_of((1,), document, "version")
    bound = document["bound"]
    _check_facts(bound)
    low, high = _resolution(bound)
    epsilon, given = bound["quantity"] == "epsilon", _number(bound["given"])
    _from(0, 1 if epsilon else math.inf, {"given": given}, "given", float)
    share = max(min(given if epsilon else high, 1.0), 1e-290)
    plans = [_plans(document, share * least) for least in LEFT_OUT]
    _check_units(bound, _units(document["mechanism"]))
    stated = plans[0].stated
    if stated:
        plans = plans[:1]
    known = dict[str, list[Run]]()
    dominating, shown = (
        Ways(chain.from_iterable(_runs(document, side, known) for side in sides))
        for sides in ([plan.above for plan in plans], [plan.below for plan in plans])
    )
    question = Question(epsilon, given)
    found = {
        # A stated pair claims the upper end for itself, and the lower end of the resolution.
        "upper": verdict(
            question.below,
            dominating,
            high,
            math.inf,
            question.beyond,
            dominating if stated else shown,
        ),
        "lower": verdict(
            question.above, shown, _number(bound["lower"]), 0.0, question.short, dominating
        ),
    }
    if stated:
        found["resolution"] = verdict(
            question.above, dominating, low, 0.0, question.short, dominating
        )
    return found, plans[0].trusts


@dataclass(frozen=True)
class Question:
    """Whether the true epsilon at a delta, or delta at an epsilon, is beyond an end."""

    epsilon: bool
    given: float

    def _at(self, end: float) -> tuple[float, float]:
        return (end, self.given) if self.epsilon else (self.given, end)

    def below(self, runs: list[Run], end: float) -> bool:
        """Return whether the true value is at most this end."""
        return all(run.at_most(*self._at(end)) for run in runs)

    def above(self, runs: list[Run], end: float) -> bool:
        """Return whether the true value is at least this end."""
        if self.given == 0 and self.epsilon:
            if any(not _is_zero(run.apart(end)) for run in runs):
                raise Undecided(
                    f"a largest loss, {end:g}, of numbers that are drawn nearly by their law"
                )
            return any(not end > run.largest() for run in runs)
        return any(not run.at_most(*self._at(end)) for run in runs)

    def beyond(self, runs: list[Run], end: float) -> bool:
        """Return whether the true value is more than this end."""
        if self.given == 0 and self.epsilon:
            return any(run.apart(end) == 0 and run.largest() > end for run in runs)
        return self.above(runs, end)

    def short(self, runs: list[Run], end: float) -> bool:
        """Return whether the true value is less than this end."""
        if self.given == 0 and self.epsilon:
            return all(run.apart(end) == 0 and run.largest() < end for run in runs)
        return self.below(runs, end)


Test = Callable[["list[Run]", float], bool]


def verdict(holds: Test, ways: Ways, end: float, trivial: float, fails: Test, others: Ways) -> str:
    """Return in words whether an end holds; one of the ways to see the run is enough.

    Args:
        holds: whether one way shows that the end is true.
        ways: the ways to see the run.
        end: the end.
        trivial: the value that is always true.
        fails: whether one of the ways ``others`` shows that the end is false.
        others: ways that bound the true value from the other side.
    """
    if end == trivial:
        return "proved"
    problems, count = [], 0
    for runs in ways:
        count += 1
        try:
            if holds(runs, end):
                return "proved"
            if not all(pair.exact for run in runs for pair, _ in run.rounds):
                problems.append("a finer grid may prove more")
        except Undecided as problem:
            problems.append(str(problem))
    for runs in others:
        with suppress(Undecided):
            if fails(runs, end):
                return "wrong"
    reasons = problems or ["no pair is known" if not count else "another pair may prove it"]
    return f"not decided ({reasons[0]})"


class Ways:
    """The ways to see a run, each made when it is first needed and kept."""

    def __init__(self, every: Iterable[list[Run]]) -> None:
        self._made, self._next = list[list[Run]](), iter(every)

    def __iter__(self) -> Iterator[list[Run]]:
        yield from self._made
        for one in self._next:
            self._made.append(one)
            yield one


LONGEST = 2**23
"""Largest number of characters of a certificate."""


def content(path: Path) -> str:
    """Return a file's text; a pipe, a device or a file of more than ``LONGEST`` is refused."""
    if path.exists() and not path.is_file():
        raise Refused(f"{path.name!r} is not a file")
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
        (found, trusts), bound = judged(document), document["bound"]
    except Undecided as problem:
        return 3, f"not decided ({problem})"
    except json.JSONDecodeError as problem:
        return 2, f"refused: not JSON ({problem})"
    except (Refused, OSError, ArithmeticError, LookupError, *_MISSHAPEN) as problem:
        return 2, f"refused: {problem}"
    said = f"{bound['quantity']} in [{bound['lower']}, {bound['upper']}]: "
    said += ", ".join(f"{name} {verdict}" for name, verdict in found.items())
    said += f"; taken on trust: {'; '.join(trusts)}" if trusts else ""
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
