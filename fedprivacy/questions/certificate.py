"""The content of a certificate: the run, its pairs, and the proof of the ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ..bound import Bound
from ..errors import ParameterError
from ..loss import Curve, Mix, orientations
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
        rounds = [
            _round(part.privacy_loss(bound.adjacency, bound.observer), count)
            for part, count in self.run.sequence()
        ]
        return {
            "mechanism": encode(self.run, KINDS),
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


def _round(loss: PrivacyLoss, count: int) -> dict[str, Any]:
    if loss.off:
        raise ParameterError(
            "certificate proves the laws of pairs, but integer noise is drawn within a total "
            f"variation distance of {loss.off:g} of its law, which only the bound counts; "
            "publish the bound itself"
        )
    curve = loss.curve
    return {
        "pair": encode(_unfolded(curve), KINDS),
        "attained": None if loss.witness is None else encode(loss.witness.curve, KINDS),
        "count": count,
        "theorems": list(loss.theorems),
    }


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
