"""The command: ``python -m fedprivacy.vectors run --adapter mine.py``."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..errors import FedPrivacyError, refuse
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


def _run(options: argparse.Namespace) -> int:
    wanted = [case for case in _wanted(options) if not options.id or case.id in options.id]
    with Adapter(
        options.adapter,
        python=options.python,
        seconds=options.seconds,
        megabytes=options.megabytes,
    ) as adapter:
        results = []
        for case in wanted:
            results.append(result := adapter.ask(case))
            if result.outcome in _BAD:
                print(f"{result.outcome}: {case.id}: {result.detail}\n  {case.question['words']}")
        about = adapter.described
    print(_table(results))
    if options.json:
        kept = {"adapter": about, "results": [each.to_dict() for each in results]}
        Path(options.json).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return int(any(each.outcome in _BAD for each in results))


def _wanted(options: argparse.Namespace) -> tuple[VectorCase, ...]:
    return cases(options.family, 10 if options.tenth else 1)


def _list(options: argparse.Namespace) -> int:
    for case in _wanted(options):
        print(f"{case.id}: {case.question['words']} [{case.lower!r}, {case.upper!r}]")
    return 0


def _certificate(options: argparse.Namespace) -> int:
    """Print the certificate of a case, made again from its question."""
    found = {case.id: case for case in cases()}.get(options.id)
    if found is None:
        refuse("id", options.id, "be the id of a case", "python -m fedprivacy.vectors list")
    question = found.question
    if found.ask == "epsilon":
        bound = epsilon(run_of(question), delta=question["delta"], **facts(question))
    elif found.ask == "delta":
        bound = delta(run_of(question), epsilon=question["epsilon"], **facts(question))
    else:
        refuse("id", options.id, "ask for an epsilon or a delta, which certificates are about")
    print(json.dumps(bound.certificate()))
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 1 for a wrong answer, a crash or a slow answer, or 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m fedprivacy.vectors", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="ask an adapter, and judge its answers")
    run.set_defaults(call=_run)
    run.add_argument("--adapter", required=True, help="file or module, see docs/vectors.md")
    run.add_argument("--python", default=sys.executable, help="interpreter of the adapter")
    run.add_argument(
        "--seconds", type=float, default=SECONDS, help="limit on the processor time of one answer"
    )
    run.add_argument("--megabytes", type=int, default=MEGABYTES, help="limit on its memory")
    run.add_argument("--id", action="append", help="only this case; may be repeated")
    run.add_argument("--json", help="file for all results")
    shown = commands.add_parser("list", help="print the questions in words, with their ends")
    shown.set_defaults(call=_list)
    for each in (run, shown):
        each.add_argument("--family", action="append", default=[], help="may be repeated")
        each.add_argument("--tenth", action="store_true", help="every tenth case of a family")
    proof = commands.add_parser("certificate", help="print the certificate of a case")
    proof.set_defaults(call=_certificate)
    proof.add_argument("id")
    options = parser.parse_args(words)
    try:
        return int(options.call(options))
    except FedPrivacyError as problem:
        print(problem, file=sys.stderr)
        return 2
