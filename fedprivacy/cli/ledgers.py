"""The commands that judge a run: audit, report."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..bound import Verdict
from ..outputs import aligned, printable
from .group import cli
from .options import (
    ADJACENCIES,
    OBSERVERS,
    OUTPUT,
    RUN,
    THREAT,
    as_json,
    file_option,
    noise_option,
    option,
    options,
    say,
    show,
)

if TYPE_CHECKING:
    from ..audit import Audit, RunAudit

SAMPLINGS = click.Choice(
    ["poisson", "fixed", "shuffled", "with-replacement", "allocation", "everyone"]
)
CLAIM, UNRECORDED = "The claim", "Facts that a file may not state"
"""Groups of options."""

EXIT_CODES = {Verdict.HOLDS: 0, Verdict.FAILS: 3, Verdict.CANNOT_BE_CERTIFIED: 4}
"""Exit codes of ``--strict``."""

judge_options = options(
    click.argument("sources", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path)),
    option(
        "--claim",
        None,
        CLAIM,
        "The claim.  [default: the claim of the file]",
        metavar="EPSILON,DELTA",
    ),
    option(
        "--claim-epsilon --epsilon epsilon",
        float,
        CLAIM,
        "Epsilon of the claim; without --claim-delta, the delta is that of the file.",
    ),
    option("--claim-delta --delta delta", float, CLAIM, "Delta of the claim."),
    option(
        "--adjacency",
        ADJACENCIES,
        THREAT,
        "Judge under this adjacency.  [default: that of the file]",
    ),
    option(
        "--observer",
        OBSERVERS,
        THREAT,
        "Judge for this observer.  [default: that of the file, else aggregate]",
    ),
    option(
        "--sampling",
        SAMPLINGS,
        RUN,
        f"The sampling scheme, if the file does not state it: {', '.join(SAMPLINGS.choices)}. "
        "There is no default.",
        metavar="NAME",
    ),
    option("--population", int, RUN, "The number of units, if the file does not state it."),
    option("--sampling-probability", float, RUN, "For --sampling poisson."),
    option("--cohort", int, RUN, "For --sampling fixed and with-replacement."),
    option("--rounds-per-epoch", int, RUN, "For --sampling shuffled and allocation."),
    option(
        "--take",
        int,
        RUN,
        "For --sampling allocation: a unit's rounds in an epoch; 1 if not given.",
    ),
    noise_option,
    option("--rounds", int, RUN, "With --noise-multiplier.  [default: 1]"),
    option(
        "--unit",
        click.Choice(["client", "record"]),
        THREAT,
        "The privacy unit, if the file does not state it.",
    ),
    option(
        "--steps-per-round",
        int,
        UNRECORDED,
        "The number of released noisy sums in each recorded round.",
    ),
    option("--missing-shares", int, UNRECORDED, "The number of missing noise shares in a cohort."),
    option(
        "--denominator",
        click.Choice(["public", "realised"]),
        UNRECORDED,
        "The denominator of the sums: a public number, or a number that depends on the data.",
    ),
    option("--trials", int, UNRECORDED, "The number of runs on these data."),
    option(
        "--reviewed",
        None,
        UNRECORDED,
        "The code of entries of the file that are not understood: they were looked at, and the "
        "stated facts account for them.",
        metavar="CODE",
    ),
    option(
        "--auditor",
        None,
        OUTPUT,
        "The auditor, as shown on pages and in --json.  [default: the login name]",
        default="",
        show_default=False,
    ),
    option(
        "--strict",
        bool,
        CLAIM,
        "Exit with 0 for HOLDS, 3 for FAILS, 4 for CANNOT BE CERTIFIED.",
        is_flag=True,
    ),
)


@contextmanager
def _from_input(sources: tuple[Path, ...]) -> Iterator[tuple[Path, ...]]:
    """Yield the sources, with standard input in a file in place of ``-``."""
    from ..audit.imports.content import MAX_WHOLE

    if Path("-") not in sources:
        yield sources
        return
    content = sys.stdin.buffer.read(MAX_WHOLE + 1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "standard input"
        file.write_bytes(content)
        yield tuple(file if path == Path("-") else path for path in sources)


@cli.command()
@judge_options
@option(
    "--each apart",
    bool,
    CLAIM,
    "One verdict for each run, as for a folder and for a file with several runs.",
    is_flag=True,
)
@as_json
def audit(as_json: bool, strict: bool, apart: bool, **given: Any) -> int:
    """Re-account a run with every accountant and judge a claim.

    FILE is a ledger, or a record of another program: the state of an Opacus or Flower accountant, a
    dp-accounting event as JSON, a table of rounds, a statement of parameters, or the configuration
    of a run in YAML, TOML or JSON. If a configuration lacks facts, the answer lists them with their
    options. "-" reads standard input. A folder is searched for records, and each run of a file with
    several runs gets a verdict. Without FILE, give the parameters as options. Several ledgers are
    audited together: they are copies of one run, whose common rounds count once, or different runs
    on the same data.

    The verdict is HOLDS, FAILS, or CANNOT BE CERTIFIED. The exit code is 0 for every verdict; it is
    0, 3 or 4 with --strict.

    \b
    Examples:
      fedprivacy audit run.ledger --strict
      fedprivacy audit run.ledger restored.ledger --claim 8,1e-5
      fedprivacy audit config.yaml --rounds 300 --sampling poisson \\
          --adjacency add_remove --claim 8,1e-5
      fedprivacy audit opacus.json --claim 8,1e-5 --sampling poisson \\
          --adjacency add_remove
      fedprivacy audit --noise-multiplier 1.4 --sampling fixed --cohort 100 \\
          --population 6000 --rounds 180 --claim 8,1e-5 --adjacency replace_one
    """  # noqa: D301
    from ..audit.options import facts_of, judge_files, several_of

    # Options are checked before any file is read.
    facts_of(given)
    with _from_input(given.pop("sources")) as sources:
        rows = several_of(sources, given, apart=apart)
        if rows:
            judged = [row.audit for row in rows if row.audit is not None]
            data = {"rows": [_row_data(row) for row in rows], "judged": len(judged)}
            show(data, as_json, lambda: show_rows(rows))
            codes = [EXIT_CODES[each.verdict] for each in judged]
            # A run without a verdict is not certified either.
            codes += [EXIT_CODES[Verdict.CANNOT_BE_CERTIFIED]] * (len(rows) > len(judged))
            return (3 if 3 in codes else max(codes)) if strict else 0
        found = judge_files(sources, given)
    show(audit_data(found), as_json, lambda: show_audit(found))
    return EXIT_CODES[found.verdict] if strict else 0


def _row_data(row: RunAudit) -> dict[str, Any]:
    found = None if row.audit is None else audit_data(row.audit)
    return {"name": row.name, "audit": found, "refused": row.refused}


_APART = (
    "Each run is judged by itself. If several used the same data, all of them count: "
    "state how many by --trials."
)


def show_rows(rows: list[RunAudit]) -> None:
    """Print one line for each of several runs: its verdict, or why there is none."""
    lacking = Counter(map(_lacks, rows))
    # What several runs lack is printed once, below them.
    common = {lack: many for lack, many in lacking.items() if lack and many > 1}
    for row in rows:
        say(f"{row.name}: {_line(row, common)}")
    for lack, many in common.items():
        say(f"{many} of these runs lack the same: {lack.removeprefix('; ')}")
    if len(rows) > 1 and any(row.audit is not None for row in rows):
        say(_APART)


def _line(row: RunAudit, common: Mapping[str, int]) -> str:
    """Return the verdict and the interval of a run, or why there is no verdict."""
    if row.audit is None:
        lack = _lacks(row)
        short = row.refused.removesuffix(lack) if lack in common else ""
        return f"not judged: {short or row.refused}"
    verdict = str(row.audit).splitlines()[0]
    return verdict if row.audit.void else f"{verdict} [{', '.join(row.audit.bound.ends(4))}]"


def _lacks(row: RunAudit) -> str:
    """Return what a run without a verdict lacks, with the options that state it."""
    _, sign, rest = row.refused.partition("; not found: ")
    return sign + rest


def audit_data(found: Audit) -> dict[str, Any]:
    """Return an audit as plain JSON values, for the auditor."""
    return {**found.to_dict(), "auditor_only": list(found.auditor_only)}


def show_audit(found: Audit) -> None:
    """Print an audit: verdict, reasons and, if they certify a guarantee, a table of the bounds."""
    # Strings of a record contain no line ends there, so each line is our own.
    first, *rest = str(found).splitlines()
    # Only the verdict is styled: all other text may come from an untrusted file.
    click.echo(click.style(found.verdict, bold=True) + printable(first[len(found.verdict) :]))
    for line in rest:
        say(line)
    if found.void:
        say("  No number is shown, since the computed numbers are void.")
    else:
        for line in _table(found):
            say(line)
    for line in _rests_on(found):
        say(f"  {line}")


def _rests_on(found: Audit) -> Iterator[str]:
    """Yield the lines below the bounds."""
    from ..audit.imports import Unseen

    for observer, reason in found.unsupported.items():
        yield f"{observer}: not certified: {reason}"
    for name, value in found.facts_recorded.items():
        yield f"{name}: {value}"
    if found.stated:
        text = ", ".join(f"{name} = {value}" for name, value in found.stated.items())
        yield f"stated by the user but not recorded: {text}"
    for name, value in found.granted.items():
        # Some assumptions have no option.
        option = f" (--{name.replace('_', '-')})" if name in Unseen.__members__ else ""
        yield f"assumed by default: {value}{option}"


def _table(found: Audit) -> Iterator[str]:
    if found.conditions:
        yield f"numbers {found.worth}"
    rows = [("observer", "accountant", "lower", "upper", "method")]
    for observer, bounds in found.bounds.items():
        for name, bound in bounds.items():
            lower, upper = bound.ends(5)
            # A lower end of 0 carries no information.
            rows.append((observer, name, lower if bound.lower else "-", upper, bound.method))
    yield from aligned(rows)


@cli.command()
@judge_options
@file_option("--output", "Path of the page.  [default: the file's name with .html]")
@option("--subject", None, OUTPUT, "Subject of the page.", default="", show_default=False)
@file_option(
    "--deployment",
    "For --output X.yaml: a TOML file with the fields of the registry of deployments.",
)
@as_json
def report(
    as_json: bool,
    strict: bool,
    output: Path | None,
    subject: str,
    deployment: Path | None,
    **given: Any,
) -> int:
    """Write the audit of a run as one self-contained HTML page.

    FILE and the options are those of "fedprivacy audit". If the name of the output ends in .md,
    .json or .yaml, the same content is written as Markdown, plain values, or an entry for the
    registry of deployments.
    """
    from ..audit import report as write
    from ..audit.imports.content import MAX_TOML, toml_of, whole
    from ..audit.options import judge_files
    from ..outputs import refuse_overwrite

    files = given.pop("sources")
    found = judge_files(files, given)
    source, name = (files[0], files[0].stem) if files else (Path("parameters"), "stated run")
    title = f"Privacy of {subject or source.name}"
    target = output or source.with_suffix(".html")
    # Never overwrite the judged record.
    refuse_overwrite(target, besides=files or [source])
    said = None if deployment is None else toml_of(whole(deployment, MAX_TOML), deployment.name)
    path = write({name: found}, target, title=title, subject=subject, deployment=said)
    data = {**audit_data(found), "report": str(path)}
    show(data, as_json, lambda: say(f"{found.statement}: {path}"))
    return EXIT_CODES[found.verdict] if strict else 0
