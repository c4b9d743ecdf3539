"""The command line: every command prints for a person, or JSON with ``--json``.

Bad input ends with exit code 2 and one line on standard error, never with a traceback.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from . import __version__
from .bound import Bound
from .errors import FedPrivacyError, refuse
from .mechanisms import Gaussian, Mechanism
from .sampling import Everyone, FixedSize, Poisson, Scheme

F = TypeVar("F", bound=Callable[..., Any])

ADJACENCIES = click.Choice(["add_remove", "zero_out", "replace_one"])
OBSERVERS = click.Choice(["aggregate", "server", "final"])
ACCOUNTANT_NAMES = click.Choice(["pld", "rdp", "advanced"])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96})
@click.version_option(__version__, prog_name="fedprivacy")
def cli() -> None:
    """Differential privacy for federated learning, with certified bounds.

    Calibrate noise from a budget, account for a run, train, and audit what was run. Start with
    "fedprivacy demo".
    """


def _options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
facts_options = _options(
    click.option(
        "--adjacency",
        type=ADJACENCIES,
        required=True,
        help="How neighbouring data sets differ: a unit is added or removed, zeroed out, or "
        "replaced. There is no default: it changes the answer.",
    ),
    click.option(
        "--observer",
        type=OBSERVERS,
        default="aggregate",
        show_default=True,
        help="Who looks: at every release (aggregate), at who took part too (server), or at the "
        "last release only (final).",
    ),
    click.option("--unit", type=click.Choice(["client", "record"]), help="Whose data is one unit."),
    click.option(
        "--accountant",
        type=ACCOUNTANT_NAMES,
        default="pld",
        show_default=True,
        help="pld gives an interval; rdp and advanced give upper ends only.",
    ),
    click.option(
        "--tolerance",
        type=float,
        default=1e-3,
        show_default=True,
        help="Wanted width of the interval.",
    ),
)
noise_option = click.option(
    "--noise-multiplier",
    type=float,
    help="Std of the noise on the sum, over the clip norm of one unit.",
)
run_options = _options(
    click.option("--rounds", type=int, help="How many rounds are run.  [default: 1]"),
    click.option(
        "--sampling-probability",
        type=float,
        help="Each unit takes part in a round with this probability (Poisson sampling).",
    ),
    click.option("--cohort", type=int, help="This many units take part in every round ..."),
    click.option("--population", type=int, help="... drawn afresh from this many."),
)


def _scheme(probability: float | None, cohort: int | None, population: int | None) -> Scheme:
    if probability is not None:
        if cohort is not None or population is not None:
            refuse("--sampling-probability", probability, "stand alone, without --cohort")
        return Poisson(probability)
    if cohort is None and population is None:
        return Everyone()
    if cohort is None or population is None:
        refuse("--cohort and --population", (cohort, population), "be given together")
    return FixedSize(cohort, population=population)


def _run(
    noise_multiplier: float | None,
    unit: str | None,
    rounds: int | None,
    sampling_probability: float | None,
    cohort: int | None,
    population: int | None,
) -> Mechanism:
    if noise_multiplier is None:
        refuse("--noise-multiplier", None, "be given")
    scheme = _scheme(sampling_probability, cohort, population)
    one = Gaussian(noise_multiplier=noise_multiplier, unit=unit).sampled(scheme)
    return one * (1 if rounds is None else rounds)


def _print(data: dict[str, Any], as_json: bool, text: Callable[[], None]) -> None:
    if as_json:
        click.echo(json.dumps(data, indent=2, allow_nan=False))
    else:
        text()


def _print_bound(bound: Bound) -> None:
    click.echo(str(bound))
    if bound.witness:
        click.echo(f"  attained by: {bound.witness}")
    for theorem in bound.theorems:
        click.echo(f"  rests on: {theorem}")
    for assumption in bound.assumptions:
        click.echo(f"  assumes: {assumption}")
    if bound.reason:
        click.echo(f"  wider than asked: {bound.reason}")


@cli.command()
@click.option("--delta", type=float, required=True, help="Ask for epsilon at this delta.")
@noise_option
@run_options
@facts_options
@as_json
def epsilon(
    delta: float,
    adjacency: str,
    observer: str,
    unit: str | None,
    accountant: str,
    tolerance: float,
    as_json: bool,
    **run: Any,
) -> None:
    """Tell the epsilon of a run at a given delta.

    \b
    Example: 10,000 rounds, each client in a round with probability 1 %:
      fedprivacy epsilon --noise-multiplier 0.8 --sampling-probability 0.01 \\
          --rounds 10000 --delta 1e-5 --adjacency add_remove
    """  # noqa: D301
    from .answers import epsilon as ask

    bound = ask(
        _run(unit=unit, **run),
        delta=delta,
        adjacency=adjacency,
        observer=observer,
        accountant=accountant,
        tolerance=tolerance,
    )
    _print(bound.to_dict(), as_json, lambda: _print_bound(bound))


@cli.command()
@click.option("--epsilon", type=float, required=True, help="Ask for delta at this epsilon.")
@noise_option
@run_options
@facts_options
@as_json
def delta(
    epsilon: float,
    adjacency: str,
    observer: str,
    unit: str | None,
    accountant: str,
    tolerance: float,
    as_json: bool,
    **run: Any,
) -> None:
    """Tell the delta of a run at a given epsilon.

    \b
    Example: cohorts of 100 of 6,000 clients, 180 rounds:
      fedprivacy delta --noise-multiplier 1.4 --cohort 100 --population 6000 \\
          --rounds 180 --epsilon 3 --adjacency replace_one
    """  # noqa: D301
    from .answers import delta as ask

    bound = ask(
        _run(unit=unit, **run),
        epsilon=epsilon,
        adjacency=adjacency,
        observer=observer,
        accountant=accountant,
        tolerance=tolerance,
    )
    _print(bound.to_dict(), as_json, lambda: _print_bound(bound))


SOLVABLE = {
    "noise-multiplier": ("noise_multiplier", False),
    "rounds": ("rounds", True),
    "sampling-probability": ("sampling_probability", False),
    "cohort": ("cohort", True),
    "population": ("population", True),
}


@cli.command()
@click.option("--epsilon", type=float, required=True, help="The budget's epsilon.")
@click.option("--delta", type=float, required=True, help="The budget's delta.")
@click.option(
    "--solve-for",
    type=click.Choice(list(SOLVABLE)),
    default="noise-multiplier",
    show_default=True,
    help="Which parameter to find; give all the others.",
)
@noise_option
@run_options
@facts_options
@as_json
def calibrate(
    epsilon: float,
    delta: float,
    solve_for: str,
    adjacency: str,
    observer: str,
    unit: str | None,
    accountant: str,
    tolerance: float,
    as_json: bool,
    **run: Any,
) -> None:
    """Find the parameter value that just meets a privacy budget.

    The value printed lies on the private side, and its epsilon is certified at exactly that value.

    \b
    Example: how much noise do 180 rounds need?
      fedprivacy calibrate --epsilon 8 --delta 1e-5 --sampling-probability 0.01 \\
          --rounds 180 --adjacency add_remove
    """  # noqa: D301
    from .calibration import calibrate as solve

    name, integer = SOLVABLE[solve_for]
    if run[name] is not None:
        refuse(f"--{solve_for}", run[name], "be left out", "it is what --solve-for looks for")
    found = solve(
        lambda value: _run(unit=unit, **{**run, name: value}),
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        observer=observer,
        accountant=accountant,
        integer=integer,
        tolerance=tolerance,
    )
    data = {"parameter": name, "value": found.value, "bound": found.bound.to_dict()}

    def text() -> None:
        click.echo(f"{name} = {found.value:.6g}")
        _print_bound(found.bound)

    _print(data, as_json, text)


ledger_argument = click.argument("ledger", type=click.Path(path_type=Path))
claim_options = _options(
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
    from .audit import audit as judge

    found = judge(ledger, claim=_claim(epsilon, delta), adjacency=adjacency, observer=observer)
    _print(_audit_data(found), as_json, lambda: _print_audit(found))


def _audit_data(found: Any) -> dict[str, Any]:
    return {
        "verdict": str(found.verdict),
        "claim": {"epsilon": found.claim[0], "delta": found.claim[1]},
        "reasons": list(found.reasons),
        "rounds": found.rounds,
        "bounds": {o: {n: b.to_dict() for n, b in bs.items()} for o, bs in found.bounds.items()},
        "unsupported": found.unsupported,
        "recorded": found.facts_recorded,
    }


def _print_audit(found: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(
        f"[bold]{found.verdict}[/bold]: epsilon = {found.claim[0]:g} at delta = {found.claim[1]:g}"
        ", "
        f"{found.facts.unit or 'unit not stated'} level, {found.facts.adjacency}, "
        f"{found.facts.observer}, {found.rounds} rounds"
    )
    for reason in found.reasons:
        console.print(f"  {reason}", markup=False)
    table = Table("observer", "accountant", "lower", "upper", "method", box=None, pad_edge=False)
    for observer, bounds in found.bounds.items():
        for name, bound in bounds.items():
            lower = f"{bound.lower:.5g}" if bound.lower else "-"
            table.add_row(observer, name, lower, f"{bound.upper:.5g}", bound.method)
    console.print(table)
    for observer, reason in found.unsupported.items():
        console.print(f"  {observer}: not certified: {reason}", markup=False)
    for name, value in found.facts_recorded.items():
        console.print(f"  {name}: {value}", markup=False)


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
    from .audit import audit as judge
    from .audit import report as write

    found = judge(ledger, claim=_claim(epsilon, delta), adjacency=adjacency, observer=observer)
    path = write(found, output or ledger.with_suffix(".html"), title=f"Privacy of {ledger.name}")
    data = {**_audit_data(found), "report": str(path)}
    _print(data, as_json, lambda: click.echo(f"{found.verdict}: {path}"))


data_options = _options(
    click.option(
        "--data",
        type=click.Choice(["digits", "fashion-mnist"]),
        default="digits",
        show_default=True,
        help="digits comes with scikit-learn; fashion-mnist is looked for on disk.",
    ),
    click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        help="Folder with Fashion-MNIST's IDX files.  [default: where Debian's package "
        "dataset-fashion-mnist puts them]",
    ),
    click.option("--rounds", type=int, help="How many rounds.  [default: the data set's own]"),
    click.option("--epsilon", type=float, default=8.0, show_default=True, help="The budget."),
    click.option("--delta", type=float, default=1e-3, show_default=True, help="The budget."),
    click.option(
        "--adjacency",
        type=ADJACENCIES,
        default="zero_out",
        show_default=True,
        help="How neighbouring data sets differ; the unit is a client.",
    ),
    click.option(
        "--observer",
        type=OBSERVERS,
        default="aggregate",
        show_default=True,
        help="Who looks: at every release, at who took part too, or at the last release only.",
    ),
)


def _preset(data: str, data_dir: Path | None, rounds: int | None) -> Any:
    from dataclasses import replace

    from .errors import integer
    from .training.presets import digits_preset, fashion_mnist_preset

    found = digits_preset() if data == "digits" else fashion_mnist_preset(data_dir)
    return found if rounds is None else replace(found, rounds=integer(1, rounds=rounds))


@cli.command()
@click.option(
    "--method",
    type=click.Choice(["fedavg", "dp-fedavg", "fed-smp-top-k", "fed-smp-rand-k"]),
    default="fed-smp-top-k",
    show_default=True,
    help="What to train with.",
)
@data_options
@click.option(
    "--noise-multiplier",
    type=float,
    help="Std of the noise over the clip norm.  [default: calibrated from the budget]",
)
@click.option("--clip-norm", type=float, help="Norm that a client's update is clipped to.")
@click.option("--kept", type=float, help="Share of the coordinates that Fed-SMP keeps, in (0, 1].")
@click.option(
    "--missing",
    type=int,
    default=0,
    show_default=True,
    help="How many clients of a cohort may fail to answer.",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    help="Where a private run is recorded.  [default: METHOD.ledger]",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="File to save progress in, and to resume from where it exists.",
)
@click.option("--seed", type=int, help="Make the run reproducible; it is then not private.")
@as_json
def train(
    method: str,
    data: str,
    data_dir: Path | None,
    rounds: int | None,
    clip_norm: float | None,
    kept: float | None,
    ledger: Path | None,
    checkpoint: Path | None,
    as_json: bool,
    **budget: Any,
) -> None:
    """Train within a privacy budget, leave a ledger, and audit it.

    \b
    Example:
      fedprivacy train --method fed-smp-top-k --epsilon 8 --delta 1e-3 --ledger run.ledger
    """  # noqa: D301
    from dataclasses import replace

    from .errors import positive, probability
    from .experiment import TITLES, Experiment
    from .progress import Steps

    preset = _preset(data, data_dir, rounds)
    if clip_norm is not None:
        preset = replace(preset, clip_norm=positive(clip_norm=clip_norm))
    if kept is not None:
        preset = replace(preset, kept_fraction=probability(kept=kept))
    experiment = Experiment(preset=preset, **budget)
    path = ledger or Path(f"{method}.ledger")
    with Steps() as steps:
        if method != "fedavg" and experiment.noise_multiplier is None:
            with steps.step("calibrating the noise"):
                _ = experiment.calibration
        with steps.rounds(f"training {TITLES[method]}", preset.rounds) as tick:
            record = experiment.run(method, ledger_path=path, checkpoint=checkpoint, on_round=tick)
    result = {
        "method": method,
        "accuracy": record.accuracy[-1],
        "upload_bytes": record.upload_bytes,
        "ledger": None if record.audit is None else str(path),
        "noise_multiplier": None if record.audit is None else experiment.multiplier,
        "audit": None if record.audit is None else _audit_data(record.audit),
    }

    def text() -> None:
        click.echo(
            f"{TITLES[method]}: accuracy {100 * record.accuracy[-1]:.1f} %, "
            f"{(record.upload_bytes or 0) / 1e6:.2f} MB uploaded"
        )
        if record.audit is not None:
            click.echo(f"noise multiplier {experiment.multiplier:.6g}, recorded in {path}")
            _print_audit(record.audit)

    _print(result, as_json, text)


@cli.command()
@data_options
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("demo-report.html"),
    show_default=True,
    help="Where to write the page.",
)
@click.option(
    "--ledgers",
    type=click.Path(path_type=Path),
    help="Folder for the ledgers.  [default: beside the page, a new folder for each demo]",
)
@click.option("--seed", type=int, help="Make the runs reproducible; they are then not private.")
@as_json
def demo(
    data: str,
    data_dir: Path | None,
    rounds: int | None,
    output: Path,
    ledgers: Path | None,
    as_json: bool,
    **budget: Any,
) -> None:
    """Do it all on real data: calibrate, train, audit, report.

    Trains FedAvg, DP-FedAvg and Fed-SMP (top-k and rand-k) within one privacy budget at client
    level, audits every ledger with every accountant, prints a table and writes one page.
    """
    from .demo import run_demo, table
    from .experiment import Experiment

    outcome = run_demo(
        Experiment(preset=_preset(data, data_dir, rounds), **budget), output, ledgers
    )
    _print(outcome.to_dict(), as_json, lambda: table(outcome))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit code 2 and one line on bad input."""
    try:
        code = cli.main(args=arguments, standalone_mode=False)
    except (FedPrivacyError, click.ClickException, OSError) as problem:
        message = problem.format_message() if isinstance(problem, click.ClickException) else problem
        click.echo(f"fedprivacy: {' '.join(str(message).split())}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("fedprivacy: stopped", err=True)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
