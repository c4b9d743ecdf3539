"""The command that tells in words what protects a run, and how well: explain."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Any

import click

from ..accountants import ACCOUNTANTS
from ..bound import Bound, shown
from ..errors import UnsupportedCombination
from ..mechanisms import Mechanism
from ..mechanisms.base import SampledMechanism
from ..relations import Adjacency, Observer
from ..runs.described import SampledRun
from ..sampling import TABLE
from .options import as_json, cli, run_options, say, show, threat_options

VIEWS = (Observer.AGGREGATE, Observer.SERVER)
RATES = (0.01, 0.001)
NEIGHBOURS = {
    "add_remove": "one unit is there or not",
    "zero_out": "one unit contributes or sends nothing",
    "replace_one": "one unit has these data or others",
}
SEEN = {
    "aggregate": "every release, but not who took part",
    "server": "every release and who took part",
    "final": "the last release only",
}
CLAIMS = {
    "present_to_absent": ("claims that the unit is present", "claims that it has these data"),
    "absent_to_present": ("claims that the unit is absent", "claims that it has the others"),
}
"""What the attacker claims: under add_remove and zero_out, and under replace_one."""


@cli.command()
@click.option("--delta", type=float, required=True, help="Ask for epsilon at this delta.")
@run_options
@threat_options
@as_json
def explain(
    delta: float,
    adjacency: str,
    observer: str,
    unit: str | None,
    as_json: bool,
    **run: Any,
) -> None:
    """Explain what protects a run, and how well, in plain words.

    Tells the row of the reference table, its theorems and assumptions, who attains it, epsilon by
    every accountant for every observer, and what an attacker can do.

    \b
    Example: cohorts of 100 of 6,000 clients, 180 rounds:
      fedprivacy explain --noise-multiplier 1.4 --cohort 100 --population 6000 \\
          --rounds 180 --delta 1e-5 --adjacency zero_out
    """  # noqa: D301
    from ..questions.risk import attack_risk

    whole = SampledRun.of(run).run(unit)
    risk = attack_risk(whole, adjacency=adjacency, observer=observer, fpr=RATES)
    bounds, unsupported = _views(whole, delta, adjacency)
    data = {
        "delta": delta,
        "row": _row(whole, adjacency, observer),
        "theorems": list(risk.theorems),
        "assumptions": list(risk.assumptions),
        "attained_by": risk.witness,
        "epsilon": {o: {n: b.to_dict() for n, b in bs.items()} for o, bs in bounds.items()},
        "unsupported": unsupported,
        "risk": risk.to_dict(),
    }

    def text() -> None:
        _print_row(data, adjacency, observer)
        _print_bounds(bounds, unsupported, delta)
        _print_risk(risk)

    show(data, as_json, text)


def _row(run: Mechanism, adjacency: str, observer: str) -> dict[str, str]:
    """Return the row of the reference table that a run of one sampled mechanism reads."""
    one = run.sequence()[0][0]
    assert isinstance(one, SampledMechanism)
    scheme = type(one.scheme).__name__
    sees = Observer.SERVER if observer == "server" else Observer.AGGREGATE
    cell = TABLE[scheme, sees, Adjacency(adjacency)]
    return {"scheme": scheme, "pair": cell.pair, "theorem": cell.theorem, "attained": cell.attained}


def _views(
    run: Mechanism, delta: float, adjacency: str
) -> tuple[dict[str, dict[str, Bound]], dict[str, str]]:
    """Return each observer's bounds by every accountant, and why others have none."""
    from ..questions.epsilon import epsilon

    bounds: dict[str, dict[str, Bound]] = {}
    unsupported: dict[str, str] = {}
    for view in VIEWS:
        ask = {"delta": delta, "adjacency": adjacency, "observer": view}
        try:
            bounds[view.value] = {n: epsilon(run, accountant=n, **ask) for n in ACCOUNTANTS}  # type: ignore[arg-type]
        except UnsupportedCombination as problem:
            unsupported[view.value] = str(problem)
    return bounds, unsupported


def _print_row(data: dict[str, Any], adjacency: str, observer: str) -> None:
    row = data["row"]
    say("The threat")
    say(f"  neighbouring data sets: {adjacency}: {NEIGHBOURS[adjacency]}")
    say(f"  the attacker sees: {observer}: {SEEN[observer]}")
    say("What protects one round")
    say(f"  row of the reference table: {row['scheme']}, {observer}, {adjacency}")
    say(f"  compared with the pair: {row['pair']}")
    for theorem in data["theorems"]:
        say(f"  rests on: {theorem}")
    for assumption in data["assumptions"]:
        say(f"  assumes: {assumption}")
    attained = data["attained_by"]
    if attained is None:
        say("  attained: no two data sets are known that reach it")
    else:
        say(f"  attained by {row['attained']}: {attained}")


def _print_bounds(
    bounds: dict[str, dict[str, Bound]], unsupported: dict[str, str], delta: float
) -> None:
    say(f"Epsilon at delta = {delta:g}")
    for view, found in bounds.items():
        say(f"  {view} ({SEEN[view]})")
        for name, bound in found.items():
            least = f", at least {_down(bound.lower, 6)}" if bound.lower else ""
            say(f"    {name}: at most {_up(bound.upper, 6)}{least}")
    for view, reason in unsupported.items():
        say(f"  {view}: {reason}")


def _up(value: float, digits: int = 4) -> str:
    return shown(value, digits, ROUND_CEILING)


def _down(value: float, digits: int = 4) -> str:
    return shown(value, digits, ROUND_FLOOR)


def _print_risk(risk: Any) -> None:
    replaced = int(risk.facts.adjacency is Adjacency.REPLACE_ONE)
    say("What an attacker can do")
    say(f"  advantage (true minus false positives): at most {_up(risk.advantage.upper)}")
    for rate, most, least, worse in zip(
        risk.fpr, risk.tpr.upper, risk.tpr.attained, risk.worse, strict=True
    ):
        say(
            f"  at {100 * rate:g} % false positives: at most {_up(100 * most)} % true positives"
            f" (attained: {_down(100 * least)} %), by one who {CLAIMS[worse][replaced]}"
        )
    say(f"  at every false-positive rate: mu-GDP with mu = {_up(risk.mu.upper)}")
    say(
        f"  but for a share {risk.slack:g} of true positives more: mu-GDP with mu ="
        f" {_up(risk.mu_within.upper)}"
    )
    if risk.reason:
        say(f"  wider than asked: {risk.reason}")
