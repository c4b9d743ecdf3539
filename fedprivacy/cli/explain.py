"""The commands about the protection of a run and its strength: explain, tradeoff."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..accountants import ACCOUNTANTS
from ..bound import Bound, exactly, plain_bounds, shown
from ..errors import UnsupportedCombination, refuse
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..mechanisms.base import SampledMechanism
from ..privacy_loss import PrivacyLoss
from ..relations import Adjacency, Observer
from ..runs.run_specs import SampledRun
from ..sampling import TABLE
from ..systems.settings import CLOSED_SHARE, Setting
from .group import cli
from .options import (
    OUTPUT,
    QUESTION,
    as_json,
    file_option,
    option,
    run_options,
    say,
    show,
    show_grounds,
    threat_options,
)

if TYPE_CHECKING:
    from ..audit.sources import SourceFacts

VIEWS = (Observer.AGGREGATE, Observer.SERVER)
RATES = (0.01, 0.001)
NEIGHBOURS = {
    "add_remove": "one unit is present or absent",
    "zero_out": "one unit contributes or sends zero",
    "replace_one": "one unit has these or other data",
}
SEEN = {
    "aggregate": "every release but not the participants",
    "server": "every release and the participants",
    "final": "only the last release",
}
RATE = Setting("--fpr", CLOSED_SHARE, "a false-positive rate", "", MISSING)
CLAIMS = {
    "present_to_absent": ("claims that the unit is present", "claims that the unit has these data"),
    "absent_to_present": (
        "claims that the unit is absent",
        "claims that the unit has the other data",
    ),
}
"""The attacker's claims: under add_remove and zero_out, and under replace_one."""


@cli.command()
@click.argument("ledger", required=False, type=click.Path(path_type=Path))
@option("--delta", float, QUESTION, "Compute epsilon at this delta.", required=True)
@run_options
@threat_options
@option("--theory", bool, OUTPUT, "Print the pair, the theorems and mu as well.", is_flag=True)
@as_json
def explain(
    ledger: Path | None, unit: str | None, theory: bool, as_json: bool, **question: Any
) -> None:
    """Explain the protection of a run, and its strength, in plain words.

    Prints what is protected and from whom; the assumptions, and the worst data; epsilon for every
    observer; the cost of each part of the run; the changes that would halve epsilon; and the power
    of an attacker. With --theory it also prints the row of the reference table and its theorems,
    epsilon by every accountant, and mu of Gaussian DP. The run is that of LEDGER, or the options
    describe it.

    \b
    Example: cohorts of 100 of 6,000 clients, 180 rounds:
      fedprivacy explain --noise-multiplier 1.4 --cohort 100 --population 6000 \\
          --rounds 180 --delta 1e-5 --adjacency zero_out
    """  # noqa: D301
    from ..audit import account
    from ..audit.imports import Stated
    from ..audit.sources import read_source
    from ..runs.explaining import halved_by, parts_of

    source, described = _source(ledger, unit, _described(question))
    delta, adjacency, observer = (question[name] for name in ("delta", "adjacency", "observer"))
    # First, so that a record without a guarantee is refused before any number is printed.
    bound = account(source, **question)
    read = read_source(source, Stated())
    if read.evidence.noiseless is not None:
        rule = "have a finite epsilon"
        refuse("LEDGER", str(ledger), rule, f"{read.evidence.noiseless.description}; see audit")
    # As actually released: rounds with less noise get the price of that noise.
    whole = read.evidence.run
    if whole is None:
        refuse("LEDGER", str(ledger), "contain a round that was released")
    risk, unknown = _risk(_Released(read), adjacency, observer)
    bounds, unsupported = _views(source, delta, adjacency)
    data = {
        "delta": delta,
        "row": _row(whole, adjacency, observer),
        "theorems": list(bound.theorems),
        "assumptions": list(bound.assumptions),
        "qualified": list(bound.qualified),
        "attained_by": bound.witness,
        "epsilon": plain_bounds(bounds),
        "unsupported": unsupported,
        "parts": [_finite(asdict(part)) for part in parts_of(whole, **question)],
        "halved_by": {} if described is None else halved_by(described, unit, **question),
        "risk": None if risk is None else risk.to_dict(),
    }

    def text() -> None:
        _print_threat(data, adjacency, observer, theory)
        _print_bounds(bounds, unsupported, delta, theory)
        _print_shares(data)
        say("Limits of every attack")
        _print_risk(risk, unknown, data["qualified"], theory)

    show(data, as_json, text)


def _described(question: dict[str, Any]) -> dict[str, Any]:
    """Remove the options that describe a run, and return them."""
    return {name: question.pop(name) for name in SampledRun.known()}


def _source(
    ledger: Path | None, unit: str | None, run: dict[str, Any]
) -> tuple[Ledger | Mechanism, SampledRun | None]:
    """Return a ledger, or the run that the options describe with their values."""
    if ledger is None:
        described = SampledRun.of(run)
        return described.run(unit), described
    given = [name for name, value in run.items() if value is not None] + ["unit"] * bool(unit)
    if given:
        refuse(f"--{given[0].replace('_', '-')}", run.get(given[0]), "be left out with LEDGER")
    return Ledger.open(ledger), None


@dataclass(frozen=True)
class _Released:
    """The release, with an attained end from its certain part."""

    read: SourceFacts

    def privacy_loss(
        self, adjacency: Adjacency | str, observer: Observer | str = Observer.AGGREGATE
    ) -> PrivacyLoss:
        return self.read.evidence.loss(self.read.facts(adjacency, observer))


def _risk(run: _Released, adjacency: str, observer: str) -> tuple[Any, str]:
    """Return the power of an attacker, or why it is unknown."""
    from ..questions.risk import attack_risk

    try:
        return attack_risk(run, adjacency=adjacency, observer=observer, fpr=RATES), ""
    except UnsupportedCombination as problem:
        return None, str(problem)


def _finite(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part with its infinities in the form of JSON."""
    return {name: "inf" if value == math.inf else value for name, value in part.items()}


def _row(run: Mechanism, adjacency: str, observer: str) -> dict[str, str] | None:
    """Return the row of the reference table for a run's first rounds; None for other kinds."""
    one = run.sequence()[0][0]
    if not isinstance(one, SampledMechanism) or (
        (type(one.scheme).__name__, Observer.AGGREGATE, Adjacency(adjacency)) not in TABLE
    ):
        return None
    scheme = type(one.scheme).__name__
    sees = Observer.SERVER if observer == "server" else Observer.AGGREGATE
    cell = TABLE[scheme, sees, Adjacency(adjacency)]
    return {"scheme": scheme, "pair": cell.pair, "theorem": cell.theorem, "attained": cell.attained}


def _views(
    source: Ledger | Mechanism, delta: float, adjacency: str
) -> tuple[dict[str, dict[str, Bound]], dict[str, str]]:
    """Return each observer's bounds by every accountant, and why others have none."""
    from ..audit import account

    bounds: dict[str, dict[str, Bound]] = {}
    unsupported: dict[str, str] = {}
    for view in VIEWS:
        ask = {"delta": delta, "adjacency": adjacency, "observer": view}
        try:
            bounds[view.value] = {n: account(source, accountant=n, **ask) for n in ACCOUNTANTS}  # type: ignore[arg-type]
        # An observer without a theorem does not hide the others.
        except UnsupportedCombination as problem:
            unsupported[view.value] = str(problem)
    return bounds, unsupported


def _print_threat(data: dict[str, Any], adjacency: str, observer: str, theory: bool) -> None:
    row = data["row"]
    say("The threat")
    say(f"  neighbouring data sets: {adjacency}: {NEIGHBOURS[adjacency]}")
    say(f"  the attacker sees: {observer}: {SEEN[observer]}")
    say("Protection of one round")
    if theory and row is not None:
        say(f"  row of the reference table: {row['scheme']}, {observer}, {adjacency}")
        say(f"  worst-case pair: {row['pair']}")
    for theorem in data["theorems"] if theory else ():
        say(f"  rests on: {theorem}")
    for assumption in data["assumptions"]:
        say(f"  assumes: {assumption}")
    for words in data["qualified"]:
        say(f"  but: {words}")
    attained = data["attained_by"]
    if attained is None:
        say("  worst data: not known; the lower end of epsilon may be too small")
    else:
        kind = f" (attained by {row['attained']})" if theory and row else ""
        say(f"  worst data, which attain the lower end: {attained}{kind}")


def _print_bounds(
    bounds: dict[str, dict[str, Bound]], unsupported: dict[str, str], delta: float, theory: bool
) -> None:
    say(f"Epsilon at delta = {exactly(delta)}")
    for view, found in bounds.items():
        say(f"  {view} ({SEEN[view]})")
        # The first accountant gives the interval; the others are looser.
        for name, bound in list(found.items())[: None if theory else 1]:
            # A lower end of 0 carries no information.
            least = f", at least {_down(bound.lower, 6)}" if bound.lower else ""
            text = f"at most {_up(bound.upper, 6)}{least}"
            say(f"    {name}: {', '.join([text, *bound.qualified])}")
        factor = _factor(next(iter(found.values())).upper)
        if factor:
            say(f"    in words: an event is at most {factor} times as probable, plus delta")
    for view, reason in unsupported.items():
        say(f"  {view}: {reason}")


def _factor(epsilon: float) -> str:
    """Return exp(epsilon), rounded up; empty if it is too large to help."""
    return _up(math.exp(epsilon) * (1.0 + 1e-12)) if epsilon < 20.0 else ""


def _print_shares(data: dict[str, Any]) -> None:
    say("Shares of epsilon")
    for part in data["parts"]:
        text = f"  {100 * part['share']:.0f} %: {part['rounds']} rounds of {_short(part)}"
        say(f"{text}; alone {_up(float(part['alone']))}, without it {_up(float(part['without']))}")
    for name, value in data["halved_by"].items():
        found = "no value" if value is None else repr(value)
        say(f"  half of epsilon by changing only {name}: {found}")


def _short(part: dict[str, Any]) -> str:
    """Return a part's mechanism without the names of its classes and the absent settings."""
    sampled = r"SampledMechanism\(inner=(.*), scheme=(.*)\)$"
    text = re.sub(sampled, r"\1 sampled by \2", part["mechanism"])
    return re.sub(r", \w+=None\b", "", text)


def _up(value: float, digits: int = 4) -> str:
    return shown(value, digits, ROUND_CEILING)


def _down(value: float, digits: int = 4) -> str:
    return shown(value, digits, ROUND_FLOOR)


def _print_risk(risk: Any, unknown: str, qualified: list[str], theory: bool) -> None:
    if risk is None:
        say(f"  not known: {unknown}")
        return
    for words in qualified:
        say(f"  but: {words}")
    replaced = int(risk.facts.adjacency is Adjacency.REPLACE_ONE)
    say(
        "  advantage (true-positive rate minus false-positive rate): at most "
        f"{_up(risk.advantage.upper)}"
    )
    for rate, most, least, worse in zip(
        risk.fpr, risk.tpr.upper, risk.tpr.attained, risk.worse, strict=True
    ):
        say(
            f"  at {exactly(100 * rate)} % false positives: at most {_up(100 * most)} % true "
            f"positives (attained: {_down(100 * least)} %), by an attacker who "
            f"{CLAIMS[worse][replaced]}"
        )
    if not theory:
        return
    say(f"  at every false-positive rate: mu-GDP with mu = {_up(risk.mu.upper)}")
    say(
        f"  up to a true-positive rate larger by {_up(risk.slack)}: mu-GDP with mu = "
        f"{_up(risk.mu_within.upper)}"
    )
    if risk.reason:
        say(f"  wider than the tolerance: {risk.reason}")


@cli.command()
@option("--fpr", None, QUESTION, "False-positive rates, separated by commas.", metavar="RATES")
@run_options
@threat_options
@file_option("--plot", "Write a plot to this file.")
@as_json
def tradeoff(
    fpr: str | None, unit: str | None, plot: Path | None, as_json: bool, **question: Any
) -> None:
    """Print the false-negative rate of the best attacker at each false-positive rate (f-DP).

    \b
    Example:
      fedprivacy tradeoff --noise-multiplier 1 --sampling-probability 0.01 \\
          --rounds 1000 --adjacency add_remove --fpr 0.001,0.01,0.1 \\
          --plot curve.png
    """  # noqa: D301
    from ..questions.risk import tradeoff_curve
    from ..runs.pictures import check_picture, draw_tradeoff

    # Before the curve is computed: an impossible path for a picture is refused at once.
    if plot is not None:
        check_picture(plot)
    rates = None if fpr is None else [RATE.read(part) for part in fpr.split(",")]
    run = SampledRun.of(_described(question))
    curve = tradeoff_curve(run.run(unit), fpr=rates, **question)
    data = curve.to_dict()
    if plot is not None:
        data["plot"] = str(draw_tradeoff(curve, plot))

    def text() -> None:
        level = [f"{unit} level"] * bool(unit)
        facts = ", ".join([*level, *(str(question[name]) for name in ("adjacency", "observer"))])
        say(
            "false-positive rate: certified lower end of the false-negative rate, "
            f"false-negative rate of the best known attack ({facts})"
        )
        for at, least, known in zip(
            curve.fpr, curve.worst.lower, curve.worst.attained, strict=True
        ):
            say(f"  {exactly(at)}: {_down(least)}, {_up(known)}")
        show_grounds(curve)
        if plot is not None:
            say(f"plot: {plot}")

    show(data, as_json, text)
