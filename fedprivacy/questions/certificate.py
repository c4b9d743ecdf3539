"""The content of a certificate: the run, its pairs, and the proof of the ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ..bound import Bound
from ..errors import ParameterError
from ..factors import BufferedToeplitz
from ..loss import Curve, Mix, orientations
from ..loss.curves.components import parts_of
from ..loss.moments.contour import NoMoments
from ..loss.strategies import adaptive_adversary, inversion
from ..mechanisms.base import Mechanism
from ..privacy_loss import PrivacyLoss
from ..registry import KINDS, encode


@dataclass(frozen=True)
class CertificateRun:
    """A run with a bound, and the curve of the whole run."""

    run: object
    curve: Curve

    def to_dict(self, bound: Bound) -> dict[str, Any]:
        """Return ``mechanism``, ``rounds`` and ``way``; see ``Bound.certificate``.

        Raises:
            ParameterError: the run is not a mechanism.
            LedgerError: a part of the run cannot be written to a file.
        """
        if not isinstance(self.run, Mechanism):
            raise ParameterError(
                f"certificate needs a mechanism, got {type(self.run).__name__}: a certificate "
                "states the run. Pass fp.Gaussian(...).sampled(...) * rounds, for example"
            )
        if bound.method == adaptive_adversary.METHOD:
            raise ParameterError(
                "certificate proves one pair per round, but this bound covers a game over many "
                f"rounds ({bound.method}); use accountant='pld'"
            )
        mechanism = _explicit(encode(self.run, KINDS))
        rounds = [
            _round(part.privacy_loss(bound.adjacency, bound.observer), count, stated(written))
            for (part, count), written in zip(self.run.sequence(), _parts(mechanism), strict=True)
        ]
        return {
            "mechanism": mechanism,
            "rounds": rounds,
            "way": {"method": bound.method, "lines": self._lines(bound)},
        }

    def _lines(self, bound: Bound) -> list[dict[str, Any]]:
        """Return a line for each orientation that is inverted at the upper end."""
        # Only inversions rest on a line. Other methods are recorded only by name.
        if "inverted" not in bound.method or not math.isfinite(bound.upper):
            return []
        ends = (bound.upper, bound.given)
        epsilon, delta = ends if bound.quantity == "epsilon" else ends[::-1]
        # A delta of 0 or 1 has no line of finite depth and needs none as a proof.
        if not 0.0 < delta < 1.0:
            return []
        lines = (_line(one, epsilon, delta) for one in orientations(self.curve))
        return list(chain.from_iterable(lines))


STATED = frozenset(
    {"Gaussian", "Laplace", "SampledMechanism", "CohortMechanism", "Run"}
    | {"Poisson", "FixedSize", "Everyone"}
)
"""Mechanisms and schemes whose pairs a certificate states. The checker makes all other pairs."""


def stated(mechanism: Any) -> bool:
    """Return whether a certificate states the pairs of a mechanism, given as plain values."""
    if isinstance(mechanism, dict):
        known = mechanism.get("type", "Run") in STATED
        return known and all(map(stated, mechanism.values()))
    return not isinstance(mechanism, list) or all(map(stated, mechanism))


def _explicit(tree: Any, rounds: int = 0) -> Any:
    """Return plain values with the numbers of each BufferedToeplitz, which depend on rounds."""
    if isinstance(tree, list):
        return [_explicit(one, rounds) for one in tree]
    if not isinstance(tree, dict):
        return tree
    fields = tree.get("fields", {})
    if tree.get("type") == "BufferedToeplitz" and fields["scales"] is None:
        return encode(BufferedToeplitz(fields["buffers"]).leading(rounds, rounds), KINDS)
    # A factor inside Restarted has the rounds of a block.
    inside = {"CorrelatedNoise": "rounds", "Restarted": "every"}.get(tree.get("type", ""))
    rounds = fields[inside] if inside else rounds
    return {name: _explicit(value, rounds) for name, value in tree.items()}


def _parts(mechanism: dict[str, Any]) -> list[Any]:
    """Return the parts of a run; a mechanism is its own single part."""
    if mechanism["type"] != "Run":
        return [mechanism]
    return [part for part, _ in mechanism["fields"]["parts"]]


def _round(loss: PrivacyLoss, count: int, is_stated: bool) -> dict[str, Any]:
    attained = None if loss.witness is None else loss.witness.curve
    return {
        "pair": encode(_unfolded(loss.curve), KINDS) if is_stated else None,
        "attained": encode(attained, KINDS) if is_stated and attained is not None else None,
        "count": count,
        "theorems": list(loss.theorems),
        **_levels(loss.curve),
    }


def _levels(curve: Curve) -> dict[str, Any]:
    """Return what a checker tests: the tree of a unit's places, or the profiles of epochs.

    It is empty for other pairs.
    """
    parts = chain.from_iterable(map(parts_of, curve.components().choices))
    each = [one.components().levels for one in (curve, *(part for part, _ in parts))]
    known = dict.fromkeys(found() for found in each if found is not None)
    levels = [level for found in known for level in found]
    return {"levels": [list(level) for level in levels]} if levels else {}


def _unfolded(curve: Curve) -> Curve:
    """Return a curve as the pairs that compose it, in the form that the checker knows."""
    if (family := curve.components().adaptive) is not None:
        return family.fold
    if isinstance(curve, Mix):
        return Mix(tuple((weight, _unfolded(part)) for weight, part in curve.parts))
    return curve


def _line(curve: Curve, epsilon: float, delta: float) -> list[dict[str, Any]]:
    """Return the bounds on delta from one line at an epsilon; empty if the line gives none."""
    try:
        found = inversion.invert(curve, epsilon, math.log(delta))
    # A curve without a line was proved in another way. The certificate holds without it.
    except NoMoments:
        return []
    low, high = (float(end[0]) for end in found.bounds(np.array([epsilon])))
    return [
        {
            "tilt": found.line.tilt,
            "spacing": found.line.spacing,
            "nodes": found.line.size,
            "further_tilt": found.further[0],
            "log_moment_there": found.further[1],
            "tail_bound": found.beyond,
            "delta": [low, high],
        }
    ]
