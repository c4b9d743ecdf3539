"""The command ``fedprivacy vectors``, and ``python -m fedprivacy.vectors``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from ..errors import FedPrivacyError, refuse
from ..outputs import printable, whole_file
from ..questions.epsilon import delta, epsilon
from .cases import VectorCase, cases
from .judging import Result, VectorOutcome
from .ours import facts, run_of
from .runner import MEGABYTES, SECONDS, Adapter

_BAD = {VectorOutcome.WRONG, VectorOutcome.CRASHED, VectorOutcome.SLOW}


def _table(results: Sequence[Result]) -> str:
    """Return the number of cases of each outcome, by family."""
    counts = Counter((each.case.family, each.outcome) for each in results)
    families = list(dict.fromkeys(each.case.family for each in results))
    width = max(map(len, [*families, "family"]))
    lines = [f"{'family':{width}} " + " ".join(f"{each:>9}" for each in VectorOutcome)]
    for family in families:
        row = (counts[family, each] or "" for each in VectorOutcome)
        lines.append(f"{family:{width}} " + " ".join(f"{each:>9}" for each in row))
    return "\n".join(lines)


FAMILY = click.option("--family", multiple=True, help="Only this family; may be repeated.")
TENTH = click.option("--tenth", is_flag=True, help="Only every tenth case of a family.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def vectors() -> None:
    """Ask a privacy accountant the test vectors, and judge its answers.

    \b
    Examples:
      fedprivacy vectors list --family pure-dp
      fedprivacy vectors run --adapter mine.py
    """  # noqa: D301


@vectors.command()
@click.option("--adapter", required=True, help="File or module that answers; see docs/vectors.md.")
@click.option("--python", default=sys.executable, help="Interpreter of the adapter.")
@click.option("--seconds", default=SECONDS, help="Limit on the processor time of one answer.")
@click.option("--megabytes", default=MEGABYTES, help="Limit on the memory of the adapter.")
@click.option("--id", "ids", multiple=True, help="Only this case; may be repeated.")
@click.option("--json", "kept", type=click.Path(path_type=Path), help="File for all results.")
@FAMILY
@TENTH
def run(
    adapter: str,
    python: str,
    seconds: float,
    megabytes: int,
    ids: Sequence[str],
    kept: Path | None,
    family: Sequence[str],
    tenth: bool,
) -> int:
    """Ask an adapter every question; exit code 1 for a wrong, slow or missing answer."""
    wanted = [case for case in _wanted(family, tenth) if not ids or case.id in ids]
    with Adapter(adapter, python=python, seconds=seconds, megabytes=megabytes) as asked:
        results = []
        for case in wanted:
            results.append(result := asked.ask(case))
            if result.outcome in _BAD:
                say(f"{result.outcome}: {case.id}: {result.detail}")
                say(f"  {case.question['words']}")
        about = asked.described
    click.echo(_table(results))
    if kept is not None:
        found = {"adapter": about, "results": [each.to_dict() for each in results]}
        whole_file(kept, json.dumps(found, indent=1) + "\n")
    return int(any(each.outcome in _BAD for each in results))


def _wanted(family: Sequence[str], tenth: bool) -> tuple[VectorCase, ...]:
    return cases(list(family), 10 if tenth else 1)


@vectors.command("list")
@FAMILY
@TENTH
def list_cases(family: Sequence[str], tenth: bool) -> None:
    """Print the questions in words, with the certified ends of their answers."""
    for case in _wanted(family, tenth):
        click.echo(f"{case.id}: {case.question['words']} [{case.lower!r}, {case.upper!r}]")


@vectors.command()
@click.argument("case")
def certificate(case: str) -> None:
    """Print the certificate of a case, made again from its question."""
    found = {each.id: each for each in cases()}.get(case)
    if found is None:
        refuse("id", case, "be the id of a case", "fedprivacy vectors list")
    question = found.question
    if found.ask == "epsilon":
        bound = epsilon(run_of(question), delta=question["delta"], **facts(question))
    elif found.ask == "delta":
        bound = delta(run_of(question), epsilon=question["epsilon"], **facts(question))
    else:
        refuse("id", case, "ask for an epsilon or a delta, which certificates are about")
    click.echo(json.dumps(bound.certificate()))


def say(text: str) -> None:
    """Print one line; the words of an adapter may hold control characters."""
    click.echo(printable(text))


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 1 for a wrong answer, a crash or a slow answer, or 2 for misuse."""
    given = None if words is None else list(words)
    try:
        code = vectors.main(given, prog_name="python -m fedprivacy.vectors", standalone_mode=False)
    except (FedPrivacyError, click.ClickException) as problem:
        text = problem.format_message() if isinstance(problem, click.ClickException) else problem
        click.echo(text, err=True)
        return 2
    return code if isinstance(code, int) else 0
