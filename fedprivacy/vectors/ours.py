"""The adapter of this package: certified ends of every case, also those that are published."""

from __future__ import annotations

from typing import Any, cast

from ..bound import Bound
from ..errors import ConversionError, UnsupportedCombination
from ..integrations.event_json import event_from_json, runs_of
from ..mechanisms import Mechanism
from ..questions.calibrate import calibrate
from ..questions.epsilon import delta as delta_of
from ..questions.epsilon import epsilon as epsilon_of
from ..questions.risk import attack_risk
from ..registry import KINDS, decode
from ..version import VERSION as VERSION

NAME, ANSWERS = "fedprivacy", "bounds"
REFUSES = (UnsupportedCombination, ConversionError)
Ends = tuple[float, float]


def run_of(case: dict[str, Any], event: Any = None) -> Mechanism:
    """Return the run of a case, or of another event under its adjacency."""
    event = event or case.get("event")
    if event is None:
        return cast(Mechanism, decode(case["run"], KINDS))
    return runs_of(event_from_json(event))(case["adjacency"])


def facts(case: dict[str, Any]) -> dict[str, Any]:
    """Return the adjacency and the observer."""
    return {"adjacency": case["adjacency"], "observer": case["observer"]}


def epsilon(case: dict[str, Any]) -> Ends:
    """Return the ends of epsilon at the case's delta."""
    return _ends(epsilon_of(run_of(case), delta=case["delta"], **facts(case)), case)


def _ends(bound: Bound, case: dict[str, Any]) -> Ends:
    # The question is about the worst mechanism with these guarantees, and the pair is one.
    if "stated guarantees" in case["tags"]:
        return bound.resolution
    return bound.lower, bound.upper


def resumed(case: dict[str, Any]) -> Ends:
    """Return the ends of epsilon of pieces that are added up one by one."""
    first, *rest = (run_of(case, piece) for piece in case["pieces"])
    run = first
    for piece in rest:
        run = run + piece
    return _ends(epsilon_of(run, delta=case["delta"], **facts(case)), case)


def delta(case: dict[str, Any]) -> Ends:
    """Return the ends of delta at the case's epsilon."""
    return _ends(delta_of(run_of(case), epsilon=case["epsilon"], **facts(case)), case)


def power(case: dict[str, Any]) -> Ends:
    """Return the ends of the largest true-positive rate at a false-positive rate."""
    risk = attack_risk(run_of(case), fpr=case["fpr"], tolerance=1e-3, **facts(case))
    both = risk.present_to_absent, risk.absent_to_present
    low, high = (max(float(each[i][0]) for each in both) for i in (2, 1))
    return low, high


def advantage(case: dict[str, Any]) -> Ends:
    """Return the ends of the largest difference of the two rates."""
    found = attack_risk(run_of(case), tolerance=1e-3, **facts(case)).advantage
    return found.attained, found.upper


def noise_multiplier(case: dict[str, Any]) -> Ends:
    """Return a noise multiplier that exceeds the budget, and the one that keeps it."""
    asked = {"epsilon": case["epsilon"], "delta": case["delta"], **facts(case)}

    def run(value: float) -> Mechanism:
        return run_of(case, filled(case["event"], value))

    kept = calibrate(run, tolerance=1e-4 * case["epsilon"], **asked).value
    # The lower end is a proof as well: data sets attain more than the budget there.
    for share in (1e-4, 1e-3, 1e-2):
        tried = kept * (1.0 - share)
        bound = epsilon_of(run(tried), delta=case["delta"], tolerance=1e-4, **facts(case))
        if bound.lower > case["epsilon"]:
            return tried, kept
    return 0.0, kept


def filled(event: Any, value: float) -> Any:
    """Return an event with a value in the place of every null noise multiplier."""
    if isinstance(event, list):
        return [filled(each, value) for each in event]
    if not isinstance(event, dict):
        return event
    return {
        key: value if key == "noise_multiplier" and inner is None else filled(inner, value)
        for key, inner in event.items()
    }
