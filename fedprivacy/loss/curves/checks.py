"""Checks of a curve that a user defines: 40 losses show most mistakes in its tails and its support.

They do not prove that the pair dominates. They hold for every pair of laws, so a curve that breaks
one is no such pair.
"""

from __future__ import annotations

import functools
from typing import NoReturn

import numpy as np

from ...errors import refuse
from .curve import Curve
from .lattice import Array, Tails
from .max_loss import MaxLoss

_LOSSES = np.concatenate([-np.geomspace(1e-3, 40.0, 20)[::-1], np.geomspace(1e-3, 40.0, 20)])
_FAR = np.array([1e6])
_OFF = 1e-9
"""Errors of a probability that are no mistake."""


def check_own(curve: Curve) -> None:
    """Refuse a curve of a class outside the package if it is no pair of laws.

    Raises:
        ParameterError: its tails are not those of a pair, or its support contradicts them.
    """
    if not type(curve).__module__.startswith("fedprivacy."):
        _check(curve)


@functools.lru_cache(maxsize=256)
def _check(curve: Curve) -> None:
    support = curve.support()
    if not support.exact:
        return
    tails = _tails(curve, _LOSSES)
    chances = Tails(*(np.exp(np.minimum(logs, 1.0)) for logs in tails))
    _check_probabilities(curve, tails, chances)
    _check_losses(curve, chances)
    _check_infinite(curve, support.largest)
    if support.symmetric:
        _check_symmetric(curve, chances.p_above)


def _check_probabilities(curve: Curve, tails: Tails, chances: Tails) -> None:
    """Refuse tails that are no logarithms of probabilities, or do not add up to 1."""
    if any(np.isnan(logs).any() or (logs > _OFF).any() for logs in tails):
        _wrong(curve, "return logarithms of probabilities")
    p_above, q_above, p_below, q_below = chances
    for name, sums in (("P", p_above + p_below), ("Q", q_above + q_below)):
        if (np.abs(sums - 1.0) > _OFF).any():
            _wrong(curve, f"have {name}(L > x) + {name}(L <= x) = 1, and return logarithms")


def _check_losses(curve: Curve, chances: Tails) -> None:
    """Refuse tails of another variable than the logarithm of P's density over Q's."""
    p_above, q_above, p_below, q_below = chances
    # L > x is where P is more than e^x Q, and L <= x where it is not.
    grown = np.exp(_LOSSES)
    if (p_above < grown * q_above * (1.0 - _OFF) - _OFF).any():
        _wrong(
            curve, "have P(L > x) >= e^x Q(L > x); the order is P above, Q above, P below, Q below"
        )
    if (p_below > grown * q_below * (1.0 + _OFF) + _OFF).any():
        _wrong(curve, "have P(L <= x) <= e^x Q(L <= x)")


def _check_infinite(curve: Curve, largest: MaxLoss) -> None:
    """Refuse a support that states another mass at infinite loss than the tails."""
    far = float(np.exp(_tails(curve, _FAR).p_above[0]))
    # Of losses without a limit some may be larger.
    most = largest.infinite_high if largest.high < _FAR[0] else 1.0
    if not largest.infinite_low - _OFF <= far <= most + _OFF:
        given = f"[{largest.infinite_low:.6g}, {largest.infinite_high:.6g}]"
        rule = f"state P's mass at infinite loss in its support, about {far:.6g}"
        refuse(f"{type(curve).__name__}.support().largest", given, rule, _WAY_OUT)


def _check_symmetric(curve: Curve, p_above: Array) -> None:
    """Refuse a curve that is called symmetric and differs from its own swap."""
    # Of (Q, P) the loss is -L, so P(L > x) is Q's mass of losses below -x; atoms may lie between.
    before, after = (np.exp(_tails(curve, -_LOSSES + off).q_below) for off in (-1e-9, 1e-9))
    if ((p_above < before - 1e-6) | (p_above > after + 1e-6)).any():
        _wrong(curve, "equal its own swap, since its support says so (symmetric)")


def _tails(curve: Curve, losses: Array) -> Tails:
    """Return the tails at losses; their shape is that of the losses."""
    tails = Tails(*(np.asarray(logs, dtype=np.float64) for logs in curve.tails(losses)))
    if any(logs.shape != losses.shape for logs in tails):
        shapes = ", ".join(str(logs.shape) for logs in tails)
        refuse(f"{type(curve).__name__}.tails", shapes, "return four arrays like its losses")
    return tails


def _wrong(curve: Curve, rule: str) -> NoReturn:
    refuse(f"{type(curve).__name__}.tails", "other tails", rule, _WAY_OUT)


_WAY_OUT = "see 'A curve of your own' in docs/extending.md"
