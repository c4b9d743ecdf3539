"""Bounds on the privacy loss of a setting's run on two data sets, from the setting's numbers.

This module does not use the package. ``shown`` gives attacks: an upper end below an attack is
wrong. ``named`` gives models of the data sets that a lower end names: a lower end above its model
is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mpmath
import numpy as np
from campaign_settings import Node, Setting
from campaign_truth import (
    Ends,
    Part,
    Show,
    binomial_law,
    delta_ends,
    responses_delta,
    shift,
    summed_law,
    variance_log_delta,
)
from mpmath import mpf

Pair = tuple[Part, ...]
Rounds = tuple[tuple[Pair, int], ...]
Law = list[tuple[Any, int]]

SUMS = ("Gaussian", "Laplace", "SparsifiedPerturbation")
WHOLE = ("DistributedDiscreteGaussian", "Skellam")
UPLOADS = (
    "FederatedLangevin",
    "FederatedHamiltonian",
    "NoisyGradientDescent",
    "NoisySGD",
    "SplittingRun",
)
STATED = ("ApproximateDp", "RenyiDp", "GaussianDp", "ConcentratedDp")
SAME = Part(1.0, "same")
APART = Part(1.0, "apart")
NAMES = (
    "one unit sends C u or 0; every other sends 0",
    "one unit sends C u, every other sends -C u, and another unit takes its slot",
    "one unit sends C u or -C u; every other sends 0",
    "one unit sends C u or -C u; every other sends -C u",
    "one unit sends C u or 0; every other sends -C u (or 0)",
    "one unit sends C u, every other sends 0 (replace_one: it sends C u or -C u)",
    "linear losses -<x, w>: one record's gradient is D/2 u or -D/2 u, every other's is -D/2 u, "
    "D the gradient sensitivity",
    "quadratic losses of curvature strong_convexity; the record changes the gradient by the "
    "sensitivity, equally in every step",
    "gradients that are equal at every point and differ by the sensitivity, like clipped ones",
)
"""The named data sets with a model here."""
_RECOGNISED = "; in a client with so many records that its upload identifies it"


class Model(NamedTuple):
    """Data sets, and ends of their delta at an epsilon; None if not known."""

    name: str
    ends: Callable[[float], Ends | None]


class Unknown(Exception):
    """The setting has a part without a model."""


def shown(setting: Setting) -> Iterator[Model]:
    """Yield attacks: data sets that the observer can distinguish at least this well."""
    yield from _canonical(setting)
    yield from _special(setting)


def named(setting: Setting, witness: str | None) -> Iterator[Model]:
    """Yield the data sets of a Bound's witness, if they have a model."""
    if witness is None or not _modelled(setting.run):
        return
    said = witness.replace(_RECOGNISED, "")
    parts = [name for known in NAMES for name in [known] if name in said]
    for name in parts:
        said = said.replace(name, "")
    if said.replace("; then ", "").strip():
        return
    models = list(_canonical(setting))
    if len(models) == 1:
        yield models[0]


def _modelled(node: Node) -> bool:
    """Return whether the canonical data sets of a run are the named ones (or better ones)."""
    unnamed = ("Laplace", "Parallel", "RandomizedResponse", "DiscreteLaplace", "MixtureOfGaussians")
    if node.kind in (*unnamed, *STATED):
        return False
    if node.kind == "FederatedLangevin" and node.values["strong_convexity"] is not None:
        return node.values["batch_fraction"] == 1.0
    if node.kind == "in_cohort" and is_client(node.inside[0]):
        return False
    if "scheme" in node.values and node.values["scheme"][0] == "RandomAllocation":
        return False
    return all(map(_modelled, node.inside))


# Canonical data sets ------------------------------------------------------------------------------


def _canonical(setting: Setting) -> Iterator[Model]:
    for kind in range(_width(setting.run)):
        try:
            rounds = _rounds(setting.run, setting.adjacency, setting.observer, kind)
        except Unknown:
            continue
        yield _model(f"canonical data sets, kind {kind}", rounds, _rounding(setting.run))


def _model(name: str, rounds: Rounds, lean: float = 0.0) -> Model:
    """Return the rounds' model; ``lean`` bounds the rounding error of its noise."""
    less, more = (Show(name, _scaled(rounds, 1 + turn * mpf(lean))) for turn in (-1, 1))

    def ends(epsilon: float) -> Ends | None:
        low = delta_ends(less, epsilon)
        high = delta_ends(more, epsilon) if lean else low
        return None if low is None or high is None else (low[0], high[1])

    return Model(name, ends)


def _scaled(rounds: Rounds, factor: Any) -> Rounds:
    """Return the same rounds with all means multiplied by a factor."""

    def part(one: Part) -> Part:
        if one.kind not in ("normal", "laplace") or factor == 1:
            return one
        p, q = (tuple((w, mean * factor) for w, mean in side) for side in (one.p, one.q))
        return one._replace(p=p, q=q)

    return tuple((tuple(map(part, pair)), n) for pair, n in rounds)


def _rounding(node: Node) -> float:
    """Return the error of the noise in the canonical rounds, which is computed in doubles."""
    here = 0.0 if node.kind in ("Gaussian", "Laplace") else 1e-15
    here = 1e-12 if node.kind in UPLOADS else here if not node.inside else 0.0
    return max([here, *map(_rounding, node.inside)])


def _width(node: Node) -> int:
    here = len(node.inside) if node.kind == "Parallel" else 1
    return max([here, *map(_width, node.inside)])


def _rounds(node: Node, adjacency: str, observer: str, kind: int) -> Rounds:
    """Return the rounds' pairs of a run, for the canonical data sets."""
    match node.kind:
        case "repeat":
            inner = _rounds(node.inside[0], adjacency, observer, kind)
            times = 1 if observer == "final" else node.values["times"]
            return tuple((pair, n * times) for pair, n in inner)
        case "sum":
            parts = node.inside[-1:] if observer == "final" else node.inside
            return tuple(r for part in parts for r in _rounds(part, adjacency, observer, kind))
        case "Parallel":
            return _rounds(node.inside[min(kind, len(node.inside) - 1)], adjacency, observer, kind)
        case "sampled":
            return ((_sampled(node, adjacency, observer), 1),)
        case "in_cohort":
            return _cohort(node, adjacency, observer, kind)
    if observer == "server" and adjacency == "add_remove" and is_client(node):
        return (((APART,), 1),)
    return _bare(node, adjacency, observer)


def is_client(node: Node) -> bool:
    """Return whether one client is one unit."""
    if node.kind == "SparsifiedPerturbation" or node.values.get("unit") == "client":
        return True
    return any(map(is_client, node.inside))


def multiplier(node: Node) -> float:
    z = node.values["noise_multiplier"]
    if node.kind != "SparsifiedPerturbation" or node.values["topped_up"]:
        return z
    r = node.values["cohort"]
    return z * math.sqrt((r - node.values["missing"] - node.values["colluding"]) / r)


def _bare(node: Node, adjacency: str, observer: str) -> Rounds:
    """Return rounds with full participation."""
    if node.kind in SUMS:
        moves = 2.0 if adjacency == "replace_one" else 1.0
        kind = "laplace" if node.kind == "Laplace" else "normal"
        mean = mpf(moves) / mpf(multiplier(node))
        return (((Part(1.0, kind, ((1.0, mean),), ((1.0, 0.0),)),), 1),)
    if node.kind in STATED:
        if node.values["adjacency"] != adjacency:
            raise Unknown
        return (((_stated(node),), 1),)
    if node.kind in ("RandomizedResponse", "DiscreteLaplace", "MixtureOfGaussians"):
        return (((_finite(node, adjacency),), 1),)
    if node.kind == "NoisySGD":
        return _batched(node.values, adjacency, observer)
    if adjacency != "replace_one":
        raise Unknown
    if node.kind in WHOLE:
        raise Unknown
    return _upload(node, observer)


def _batched(v: dict[str, Any], adjacency: str, observer: str) -> Rounds:
    """Return the end of steps on linear losses: a binomial number of equal moves.

    A fixed size draws one record; all others send 0, which the account does not assume.
    """
    name, scheme = v["batches"]
    if "radius" in v or adjacency == "replace_one" or observer == "server":
        raise Unknown
    if adjacency == "add_remove" and name != "Poisson":
        raise Unknown
    steps, moved = v["steps"], 1 / (mpf(v["noise_std"]) * v["denominator"])
    move = moved / mpmath.sqrt(steps)
    if name == "FixedEpochs":
        times = -(-steps // scheme["separation"])
        return (((Part(1.0, "normal", ((1.0, times * move),), ((1.0, mpf(0)),)),), 1),)
    chance = scheme.get("probability") or scheme["size"] / scheme["population"]
    if steps > 60 or chance == 1.0:
        raise Unknown
    law = tuple(
        (float(mpmath.binomial(steps, k) * mpf(chance) ** k * (1 - mpf(chance)) ** (steps - k)), k)
        for k in range(steps + 1)
    )
    kept = tuple((w, k * move) for w, k in law if w > 1e-15)
    left = math.fsum(w for w, _ in kept)
    return (((Part(1.0, "normal", tuple((w / left, m) for w, m in kept), ((1.0, mpf(0)),)),), 1),)


def _finite(node: Node, adjacency: str) -> Part:
    """Return the part of randomised response, discrete Laplace noise, or a random move."""
    v, replaced = node.values, adjacency == "replace_one"
    if node.kind == "RandomizedResponse":
        told, each = 1 - mpf(v["chance"]), mpf(v["chance"]) / v["answers"]
        rest = (v["answers"] - 2) * each
        if adjacency == "add_remove":
            raise Unknown
        if replaced:
            return Part(1.0, "atoms", (told + each, each, rest), (each, told + each, rest))
        even = mpf(1) / v["answers"]
        return Part(1.0, "atoms", (told + each, each + rest), (even, 1 - even))
    if node.kind == "DiscreteLaplace":
        a, move = mpf(v["noise_parameter"]), v["sensitivity"] * (2 if replaced else 1)
        most = [mpmath.exp(-a * k) / (1 + mpmath.exp(-a)) for k in range(move + 1)]
        inside = [mpmath.tanh(a / 2) * mpmath.exp(-a * k) for k in range(1, move)]
        p = (most[move], *inside[::-1], 1 - most[1])
        return Part(1.0, "atoms", p, p[::-1])
    if replaced:
        raise Unknown
    std, moves = mpf(v["standard_deviation"]), v["sensitivities"]
    law = tuple((w, mpf(c) / std) for w, c in zip(v["probabilities"], moves, strict=True))
    return Part(1.0, "normal", law, ((1.0, mpf(0)),))


def _stated(node: Node) -> Part:
    """Return the part of a mechanism that satisfies the stated guarantee."""
    if node.kind in ("GaussianDp", "ConcentratedDp"):
        return shift(node.values.get("mu") or mpmath.sqrt(2 * mpf(node.values["rho"])))
    if node.kind == "RenyiDp":
        square = min(2.0 * r / a for a, r in node.values["divergences"])
        return shift(math.sqrt(square) * (1.0 - 1e-12))
    if len(node.values["guarantees"]) != 1:
        raise Unknown
    [(epsilon, delta)] = node.values["guarantees"]
    lie = 1 / (1 + mpmath.exp(mpf(epsilon)))
    kept, lost = 1 - mpf(delta), mpf(delta)
    p = (lost, kept * (1 - lie), kept * lie, mpf(0))
    return Part(1.0, "atoms", p, p[::-1])


def _upload(node: Node, observer: str) -> Rounds:
    """Return the rounds of one client's upload."""
    v = node.values
    if node.kind == "FederatedLangevin":
        return _langevin(v)
    if node.kind == "NoisyGradientDescent":
        # A projection moves mass to the ends of a ball.
        if "radius" in v:
            raise Unknown
        noise = v["noise_std"] / (v["step_size"] * v["sensitivity"])
        slope = 1.0 - v["step_size"] * (v["strong_convexity"] or 0.0)
        return (((shift(_contracted(slope, v["steps"]) / noise),), 1),)
    if node.kind == "FederatedHamiltonian":
        return _hamiltonian(v)
    if observer == "final":
        raise Unknown
    std = math.sqrt(2.0 * v["step_size"]) * v["noise_scale"]
    slope = 1.0 - v["step_size"] * (v["strong_convexity"] + 1.0 / v["penalty"])
    noise = std / (v["step_size"] * v["sensitivity"])
    return (((shift(_contracted(slope, v["local_steps"]) / noise),), v["rounds"]),)


def _contracted(slope: float, steps: int) -> float:
    """Return sum a^j / sqrt(sum a^2j), j below steps, summed in mpmath."""
    a = mpf(slope)
    if a == 1:
        return float(mpmath.sqrt(steps))
    once = (1 - a**steps) / (1 - a)
    twice = (1 - a ** (2 * steps)) / (1 - a * a)
    return float(once / mpmath.sqrt(twice))


def _langevin(v: dict[str, Any]) -> Rounds:
    if v["correlation"] == 1.0:
        return (((APART,), 1),)
    eta = v["step_size"]
    convex = v["strong_convexity"] is not None
    if isinstance(eta, tuple):
        return _varying(v)
    private = (1.0 - v["correlation"] ** 2) * v["weight"]
    noise = v["batch_fraction"] / v["gradient_sensitivity"]
    noise *= math.sqrt(2.0 * v["temperature"] * private / eta)
    if convex and v["batch_fraction"] < 1.0:
        raise Unknown
    slope = 1.0 - eta * v["strong_convexity"] if convex else 1.0
    return _linear(v["steps"], v["batch_fraction"], noise, slope)


def _varying(v: dict[str, Any]) -> Rounds:
    """Return steps that differ, without batches: each contracts earlier shifts and noise."""
    if v["batch_fraction"] < 1.0:
        raise Unknown
    private = mpf((1.0 - v["correlation"] ** 2) * v["weight"]) * 2 * mpf(v["temperature"])
    moved = squared = mpf(0)
    for eta in v["step_size"]:
        slope = 1 - mpf(eta) * mpf(v["strong_convexity"] or 0.0)
        moved = slope * moved + mpf(eta)
        squared = slope**2 * squared + private * mpf(eta)
    return (((shift(moves_over(moved, squared, v["gradient_sensitivity"])),), 1),)


def moves_over(moved: Any, squared: Any, sensitivity: float) -> Any:
    """Return a shift of ``moved`` times the gradients' sensitivity, in stds."""
    return mpf(sensitivity) * moved / mpmath.sqrt(squared)


def _hamiltonian(v: dict[str, Any]) -> Rounds:
    if v["leapfrog_steps"] > 1 or isinstance(v["step_size"], tuple):
        raise Unknown
    momentum = 2.0 * v["batch_fraction"] * math.sqrt((1.0 - v["correlation"]) * v["weight"])
    momentum /= v["step_size"] * v["gradient_sensitivity"]
    noise = math.hypot(momentum, v["gradient_noise_multiplier"])
    if noise == 0.0:
        return (((APART,), 1),)
    return _linear(v["iterations"], v["batch_fraction"], noise, 1.0)


def _linear(steps: int, fraction: float, noise: float, slope: float) -> Rounds:
    """Return the end of steps on linear losses (slope 1) or quadratics, with or without batches."""
    if fraction == 1.0:
        return (((shift(_contracted(slope, steps) / noise),), 1),)
    law = binomial_law(steps, fraction)
    if law is None:
        raise Unknown
    means = tuple((w, mpf(s) / (mpmath.sqrt(steps) * mpf(noise))) for w, s in law)
    return (((Part(1.0, "normal", means, ((1.0, mpf(0)),)),), 1),)


# Schemes ------------------------------------------------------------------------------------------


def law_of(scheme: tuple[str, dict[str, Any]]) -> Law:
    """Return how often a given unit takes part in a round (an epoch): (weight, count)."""
    name, v = scheme
    match name:
        case "Poisson":
            return _once(mpf(v["probability"]))
        case "FixedSize":
            return _once(mpf(v["size"]) / v["population"])
        case "WithReplacement":
            chance = mpf(v["probability"]) if "probability" in v else mpf(1) / v["population"]
            law = binomial_law(v["draws"], chance)
            if law is None:
                raise Unknown
            return law
        case "TruncatedPoisson":
            return _once(_kept(v["population"], v["probability"], v["largest"]))
        case "RandomAllocation" if v.get("take", 1) > 1:
            raise Unknown
    return [(mpf(1), 1)]


def _once(q: Any) -> Law:
    return [(1 - q, 0), (q, 1)] if q < 1 else [(mpf(1), 1)]


def _kept(n: int, q: float, largest: int) -> Any:
    """Return E min(N, B) / n, N ~ Bin(n, q)."""
    if largest >= n or q == 1.0:
        return mpf(q) if largest >= n else mpf(largest) / n
    if n > 300:
        raise Unknown
    total, p = mpf(0), mpf(q)
    for m in range(n + 1):
        total += mpmath.binomial(n, m) * p**m * (1 - p) ** (n - m) * min(m, largest)
    return total / n


def _sampled(node: Node, adjacency: str, observer: str) -> Pair:
    [inner], scheme = node.inside, node.values["scheme"]
    if inner.kind not in (*SUMS, *STATED):
        raise Unknown
    if inner.kind in STATED and inner.values["adjacency"] != adjacency:
        raise Unknown
    if scheme[0] == "RandomAllocation" and scheme[1].get("take", 1) > 1:
        return _of_several(inner, scheme[1], adjacency, observer)
    law, name = law_of(scheme), scheme[0]
    if observer == "server" and adjacency == "add_remove":
        return (APART._replace(weight=1 - _never(law)), Part(_never(law), "same"))
    if inner.kind in STATED:
        return _sampled_stated(inner, law, name, adjacency, observer)
    if observer == "server":
        return _labelled(inner, law, adjacency)
    if name == "RandomAllocation" and scheme[1]["rounds_per_epoch"] > 1:
        law = _once(mpf(1) / scheme[1]["rounds_per_epoch"])
    return (_mixture(inner, law, scheme, adjacency),)


def _of_several(inner: Node, v: dict[str, Any], adjacency: str, observer: str) -> Pair:
    """Return a pair for a unit in several rounds of an epoch, with normal noise only.

    For the server the rounds are known. For others: one round, with the unit in it with probability
    k / t, or the sum of all rounds.
    """
    if inner.kind not in SUMS or inner.kind == "Laplace":
        raise Unknown
    rounds, take, z = v["rounds_per_epoch"], v["take"], mpf(multiplier(inner))
    zero = ((1.0, mpf(0)),)
    if observer == "server" and adjacency == "add_remove":
        return (APART,)
    if observer == "server" or take == rounds:
        moves = 2 if adjacency == "replace_one" else 1
        return (Part(1.0, "normal", ((1.0, moves * mpmath.sqrt(take) / z),), zero),)
    back = -1 if adjacency == "replace_one" else 0
    whole = take / (mpmath.sqrt(rounds) * z)
    if whole * rounds > 1 / z:
        return (Part(1.0, "normal", ((1.0, whole),), ((1.0, back * whole),)),)
    law = _once(mpf(take) / rounds)
    p, q = (tuple((w, move * s / z) for w, s in law) for move in (1, back))
    return (Part(1.0, "normal", _joined(p), _joined(q)),)


def _never(law: Law) -> Any:
    return sum((w for w, s in law if s == 0), mpf(0))


def _labelled(inner: Node, law: Law, adjacency: str) -> Pair:
    """Return the pair for an observer who sees the participation."""
    moves = 2 if adjacency == "replace_one" else 1
    kind = "laplace" if inner.kind == "Laplace" else "normal"
    z, zero = mpf(multiplier(inner)), ((1.0, mpf(0)),)
    return tuple(
        Part(w, kind, ((1.0, moves * s / z),), zero) if s else Part(w, "same") for w, s in law
    )


def _mixture(inner: Node, law: Law, scheme: tuple[str, Any], adjacency: str) -> Part:
    """Return the part for an observer who sees only the noisy sum."""
    name, v = scheme
    z = mpf(multiplier(inner))
    kind = "laplace" if inner.kind == "Laplace" else "normal"
    refilled = name in ("FixedSize", "WithReplacement")
    if adjacency == "add_remove":
        alone = refilled and v.get("population") == (v["size"] if name == "FixedSize" else 1)
        first, second = (2 if refilled and not alone else 1), 0
    elif adjacency == "zero_out":
        # The others send -C u, so the unit's place shows it twice.
        first, second = (2, 1) if refilled else (1, 0)
    else:
        first, second = (2, 0) if refilled else (1, -1)
    p, q = (tuple((w, move * s / z) for w, s in law) for move in (first, second))
    return Part(1.0, kind, _joined(p), _joined(q))


def _joined(mixture: tuple[Any, ...]) -> tuple[Any, ...]:
    if all(mean == 0 for _, mean in mixture):
        return ((1.0, mpf(0)),)
    return mixture


def _sampled_stated(inner: Node, law: Law, name: str, adjacency: str, observer: str) -> Pair:
    """Return public participation under a stated guarantee; absent units under add_remove."""
    part = _stated(inner)
    public = adjacency == "zero_out" and name in ("Poisson", "TruncatedPoisson")
    public = public and not inner.values.get("zeroed_is_absent")
    if public or observer == "server" or name in ("Everyone", "Shuffled"):
        return tuple(part._replace(weight=w) if s else Part(w, "same") for w, s in law)
    if name != "Poisson":
        raise Unknown
    q = 1 - _never(law)
    if part.kind == "atoms":
        mixed = tuple((1 - q) * b + q * a for a, b in zip(part.p, part.q, strict=True))
        return (part._replace(p=mixed),)
    return (part._replace(p=((1 - q, mpf(0)), (q, part.p[0][1]))),)


def _cohort(node: Node, adjacency: str, observer: str, kind: int) -> Rounds:
    """Return rounds of a record inside a client, or of the client itself, which is then sampled."""
    [inner], scheme = node.inside, node.values["scheme"]
    if is_client(inner):
        if inner.kind not in SUMS:
            raise Unknown
        return ((_sampled(node, adjacency, observer), 1),)
    if _is_unitless(inner) and adjacency == "add_remove" and observer == "server":
        raise Unknown
    law, inside = law_of(scheme), _rounds(inner, adjacency, observer, kind)
    parts: list[Part] = []
    for weight, times in law:
        parts += _times(inside, times, weight)
    return ((tuple(parts), 1),)


def _is_unitless(node: Node) -> bool:
    return node.kind in SUMS and node.values.get("unit") is None


def _times(inside: Rounds, times: int, weight: Any) -> list[Part]:
    """Return the parts of ``times`` runs of the inner rounds, under one label."""
    if times == 0:
        return [Part(weight, "same")]
    [*pairs] = inside
    if len(pairs) == 1 and pairs[0][1] * times == 1:
        return [part._replace(weight=weight * mpf(part.weight)) for part in pairs[0][0]]
    square = mpf(0)
    for pair, n in pairs:
        if len(pair) != 1 or pair[0].kind != "normal" or len(pair[0].p) + len(pair[0].q) != 2:
            raise Unknown
        square += n * times * (mpf(pair[0].p[0][1]) - mpf(pair[0].q[0][1])) ** 2
    return [shift(mpmath.sqrt(square), weight)]


# Special attacks ----------------------------------------------------------------------------------


def last(node: Node) -> tuple[Node, int]:
    """Return the mechanism that a run repeats, and its count."""
    times = 1
    while node.kind == "repeat":
        times *= node.values["times"]
        node = node.inside[0]
    return node, times


def _special(setting: Setting) -> Iterator[Model]:
    node, times = last(setting.run)
    times = 1 if setting.observer == "final" else times
    if node.kind == "ApproximateDp" and len(node.values["guarantees"]) == 1 and times <= 1500:
        yield from _responses(setting, node, times)
    yield from _whole_numbers(setting, node)
    if setting.adjacency == "add_remove":
        yield from _missing_share(node, times)
    elif setting.observer == "server":
        yield from _uneven_rounds(setting, node, times)
    else:
        yield from _public_draw(setting, node, times)


def _responses(setting: Setting, node: Node, times: int) -> Iterator[Model]:
    [(epsilon, delta)] = node.values["guarantees"]
    if node.values["adjacency"] != setting.adjacency:
        return

    def ends(at: float) -> Ends:
        value = float(responses_delta(at, epsilon, delta, times))
        return value * (1.0 - 1e-13), value * (1.0 + 1e-13)

    yield Model("randomised responses", ends)


def _whole_numbers(setting: Setting, node: Node) -> Iterator[Model]:
    """Yield one round of integer noise with a move of the full clip norm; all take part."""
    (name, v), step = node.values.get("scheme", ("Everyone", {})), node
    if node.kind == "sampled":
        [step] = node.inside
    if step.kind not in WHOLE or step.values["rotated"] or setting.adjacency == "add_remove":
        return
    if name != "Everyone" and (name != "FixedSize" or v["size"] != v["population"]):
        return
    own = step.values
    moves = round(1.0 / own["granularity"]) * (2 if setting.adjacency == "replace_one" else 1)
    shares = own["cohort"] - own["missing"] - own["colluding"]
    variance = (own["noise_multiplier"] / own["granularity"]) ** 2 / own["cohort"]
    if shares * variance > 1e6:
        return
    law = summed_law(step.kind == "Skellam", variance, shares)

    def ends(epsilon: float) -> Ends:
        padding = np.zeros(moves)
        p, q = np.append(padding, law), np.append(law, padding)
        found = float(np.maximum(p - math.exp(min(epsilon, 500.0)) * q, 0.0).sum())
        # Sums of thousands of doubles; the far tails of the law are cut off.
        return found * (1.0 - 1e-9) - 1e-12, 1.0

    yield Model("one whole number is moved by the clip norm", ends)


def _missing_share(node: Node, times: int) -> Iterator[Model]:
    """Yield Fed-SMP with an absent client that is not replaced: its noise share is missing."""
    scheme = node.values.get("scheme")
    step = node.inside[0] if node.kind == "sampled" else node
    if step.kind != "SparsifiedPerturbation" or step.values["topped_up"]:
        return
    if scheme is not None and scheme[0] not in ("Everyone", "FixedSize"):
        return
    if scheme is not None and scheme[1].get("size") != scheme[1].get("population"):
        return
    r, dimensions = step.values["cohort"], step.values["kept"] * times
    lost = step.values["missing"] + step.values["colluding"]
    honest = r - lost

    def ends(epsilon: float) -> Ends:
        if honest == 1:
            return 1.0 - 1e-12, 1.0
        return math.exp(variance_log_delta(epsilon, (honest - 1) / honest, dimensions)), 1.0

    yield Model("the absent client's share of the noise is absent, too", ends)


def _uneven_rounds(setting: Setting, node: Node, times: int) -> Iterator[Model]:
    """Yield Fed-SMP in shuffled rounds; one round has one client fewer than ``cohort``."""
    if node.kind != "sampled" or node.inside[0].kind != "SparsifiedPerturbation":
        return
    [step], (name, v) = node.inside, node.values["scheme"]
    rounds, r = v.get("rounds_per_epoch", 0), step.values["cohort"]
    lost = step.values["missing"] + step.values["colluding"]
    if name != "Shuffled" or step.values["topped_up"] or rounds < 2 or r - 1 - lost < 1:
        return
    # With a population smaller rounds count as missing shares, as in the canonical data sets.
    if "population" in v:
        return
    clients = rounds * r - 1
    moves = 2 if setting.adjacency == "replace_one" else 1
    std = [
        mpf(step.values["noise_multiplier"]) * mpmath.sqrt(mpf(n - lost) / r) for n in (r - 1, r)
    ]
    share = mpf(r - 1) / clients
    pair = (shift(moves / std[0], share), shift(moves / std[1], 1 - share))
    yield _model(f"{clients} clients in {rounds} rounds, one of them smaller", ((pair, times),))


def _public_draw(setting: Setting, node: Node, times: int) -> Iterator[Model]:
    """Yield kinds that share one cohort of fixed size, one kind with recognisable members."""
    if node.kind != "Parallel" or len(node.inside) < 2:
        return
    first, second = node.inside[:2]
    if (first.kind, second.kind) != ("sampled", "in_cohort"):
        return
    drawn = first.values["scheme"]
    if drawn != second.values["scheme"] or drawn[0] != "FixedSize":
        return
    # Otherwise units and clients are drawn separately.
    if not (is_client(first) and is_client(second)):
        return
    pair = _labelled(first.inside[0], law_of(drawn), setting.adjacency)
    yield _model("the second kind's list tells how many of the first were drawn", ((pair, times),))
