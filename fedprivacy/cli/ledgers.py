"""The commands that judge a ledger: audit, report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import refuse
from .options import ADJACENCIES, OBSERVERS, as_json, cli, options, show

ledger_argument = click.argument("ledger", type=click.Path(path_type=Path))
claim_options = options(
    click.option("--epsilon", type=float, help="Claimed epsilon.  [default: the ledger's claim]"),
    click.option("--delta", type=float, help="Claimed delta.  [default: the ledger's claim]"),
    click.option(
        "--adjacency",
        type=ADJACENCIES,
        help="Judge under this adjacency.  [default: what the ledger states]",
    ),
    click.option(
        "--observer",
        type=OBSERVERS,
        help="Judge for this observer.  [default: what the ledger states]",
    ),
)


def _claim(epsilon: float | None, delta: float | None) -> tuple[float, float] | None:
    if (epsilon is None) != (delta is None):
        refuse("--epsilon and --delta", (epsilon, delta), "be given together")
    return None if epsilon is None or delta is None else (epsilon, delta)


@cli.command()
@ledger_argument
@claim_options
@as_json
def audit(
    ledger: Path,
    epsilon: float | None,
    delta: float | None,
    adjacency: str | None,
    observer: str | None,
    as_json: bool,
) -> None:
    """Re-account a LEDGER with every accountant and judge a claim.

    The verdict is HOLDS, FAILS, or CANNOT BE CERTIFIED. The exit code is 0 whatever the verdict.
    """
    from ..audit import audit as judge

    found = judge(ledger, claim=_claim(epsilon, delta), adjacency=adjacency, observer=observer)
    show(audit_data(found), as_json, lambda: show_audit(found))


def audit_data(found: Any) -> dict[str, Any]:
    """Return an audit as plain JSON values."""
    return {
        "verdict": str(found.verdict),
        "claim": {"epsilon": found.claim[0], "delta": found.claim[1]},
        "reasons": list(found.reasons),
        "rounds": found.rounds,
        "bounds": {o: {n: b.to_dict() for n, b in bs.items()} for o, bs in found.bounds.items()},
        "unsupported": found.unsupported,
        "recorded": found.facts_recorded,
    }


def show_audit(found: Any) -> None:
    """Print an audit: verdict, reasons and a table of the bounds."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(
        f"[bold]{found.verdict}[/bold]: epsilon = {found.claim[0]:g} at delta = {found.claim[1]:g}"
        ", "
        f"{found.facts.unit or 'unit not stated'} level, {found.facts.adjacency}, "
        f"{found.facts.observer}, {found.rounds} rounds",
        soft_wrap=True,
    )
    for reason in found.reasons:
        console.print(f"  {reason}", markup=False, soft_wrap=True)
    table = Table("observer", "accountant", "lower", "upper", "method", box=None, pad_edge=False)
    for observer, bounds in found.bounds.items():
        for name, bound in bounds.items():
            lower, upper = bound.ends(5)
            table.add_row(observer, name, lower if bound.lower else "-", upper, bound.method)
    console.print(table)
    for observer, reason in found.unsupported.items():
        console.print(f"  {observer}: not certified: {reason}", markup=False, soft_wrap=True)
    for name, value in found.facts_recorded.items():
        console.print(f"  {name}: {value}", markup=False, soft_wrap=True)


@cli.command()
@ledger_argument
@claim_options
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Where to write the page.  [default: the ledger's name with .html]",
)
@as_json
def report(
    ledger: Path,
    epsilon: float | None,
    delta: float | None,
    adjacency: str | None,
    observer: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Write the audit of a LEDGER as one self-contained HTML page."""
    from ..audit import audit as judge
    from ..audit import report as write

    found = judge(ledger, claim=_claim(epsilon, delta), adjacency=adjacency, observer=observer)
    target = output or ledger.with_suffix(".html")
    path = write({ledger.stem: found}, target, title=f"Privacy of {ledger.name}")
    data = {**audit_data(found), "report": str(path)}
    show(data, as_json, lambda: click.echo(f"{found.verdict}: {path}"))
