"""The public names of ``fedprivacy``. The package imports this module when a name is first used."""

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
    from .papers.choosing import choose
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
    "choose",
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
