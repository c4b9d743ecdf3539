"""fedprivacy: differential privacy for federated learning, with certified bounds.

``import fedprivacy as fp`` and start from a mechanism::

    step = fp.Gaussian(noise_multiplier=0.8, unit="client")
    run = step.sampled(fp.Poisson(0.01)) * 10_000
    fp.epsilon(run, delta=1e-5, adjacency="add_remove")
"""

import typing as _typing

from . import accountants, errors, factors, mechanisms, sampling
from .bound import Bound, Verdict
from .errors import ParameterError, UnsupportedCombination
from .factors import FixedEpochs, MinimumSeparation, SingleParticipation
from .mechanisms import *
from .privacy_loss import PrivacyLoss
from .questions.calibrate import Calibration, calibrate
from .questions.epsilon import Profile, delta, epsilon, profile
from .questions.risk import AttackRisk, TradeoffCurve, attack_risk, tradeoff_curve
from .relations import Adjacency, Observer, Unit
from .sampling import *
from .version import VERSION as __version__

if _typing.TYPE_CHECKING:
    from . import published

    # At run time ``audit`` is the module, which can be called; see there.
    from .audit import (
        Attack,
        Audit,
        Conformance,
        Crosscheck,
        account,
        attack,
        audit,
        crosscheck,
        report,
        verify,
    )
    from .ledger import Ledger
    from .questions.budget import Budget
    from .runs.pareto import Pareto, pareto

__all__ = [
    "Adjacency",
    "Attack",
    "AttackRisk",
    "Audit",
    "Bound",
    "Budget",
    "Calibration",
    "Conformance",
    "Crosscheck",
    "FixedEpochs",
    "Ledger",
    "MinimumSeparation",
    "Observer",
    "ParameterError",
    "Pareto",
    "PrivacyLoss",
    "Profile",
    "SingleParticipation",
    "TradeoffCurve",
    "Unit",
    "UnsupportedCombination",
    "Verdict",
    "__version__",
    "account",
    "accountants",
    "attack",
    "attack_risk",
    "audit",
    "calibrate",
    "crosscheck",
    "delta",
    "epsilon",
    "errors",
    "factors",
    "pareto",
    "profile",
    "published",
    "report",
    "tradeoff_curve",
    "verify",
]
# A mechanism and a scheme say themselves, in their folder, that they are public.
__all__ += mechanisms.__all__
__all__ += sampling.__all__


_LATER = {
    **dict.fromkeys(
        (
            "Attack",
            "Audit",
            "Conformance",
            "Crosscheck",
            "account",
            "attack",
            "crosscheck",
            "report",
            "verify",
        ),
        "audit",
    ),
    "Budget": "questions.budget",
    "Ledger": "ledger",
    "Pareto": "runs.pareto",
    "pareto": "runs.pareto",
}
"""Names that are imported when they are first used, with their modules."""

_MODULES = ("audit", "ledger", "published", "runs", "training")
"""Modules that are imported when they are first used. Training needs torch."""


def __getattr__(name: str) -> _typing.Any:
    """Import audits, records and training when they are first used.

    Raises:
        AttributeError: torch is not installed, or there is no such name.
    """
    if name not in _LATER and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(f"{__name__}.{_LATER.get(name, name)}")
    except ParameterError as missing:
        raise AttributeError(str(missing)) from missing
    found = getattr(module, name) if name in _LATER else module
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_MODULES})
