"""The commands for one number of a run: epsilon, delta, calibrate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..bound import Bound
from ..errors import refuse
from ..runs.run_specs import SampledRun
from .group import cli
from .options import (
    BUDGET,
    QUESTION,
    as_json,
    certificate_option,
    deadline_option,
    facts_options,
    option,
    run_options,
    say,
    show,
    show_bound,
    whole_run_options,
    write_certificate,
)


@cli.command()
@option("--delta", float, QUESTION, "Compute epsilon at this delta.", required=True)
@whole_run_options
@facts_options
@deadline_option
@certificate_option
@as_json
def epsilon(unit: str | None, as_json: bool, **given: Any) -> None:
    """Print the epsilon of a run at a given delta.

    \b
    Example: 10,000 rounds, each client in a round with probability 1 %:
      fedprivacy epsilon --noise-multiplier 0.8 --sampling-probability 0.01 \\
          --rounds 10000 --delta 1e-5 --adjacency add_remove
    """  # noqa: D301
    from ..questions.epsilon import epsilon as ask

    _answer(ask, unit, as_json, given)


@cli.command()
@option("--epsilon", float, QUESTION, "Compute delta at this epsilon.", required=True)
@whole_run_options
@facts_options
@deadline_option
@certificate_option
@as_json
def delta(unit: str | None, as_json: bool, **given: Any) -> None:
    """Print the delta of a run at a given epsilon.

    \b
    Example: cohorts of 100 of 6,000 clients, 180 rounds:
      fedprivacy delta --noise-multiplier 1.4 --cohort 100 --population 6000 \\
          --rounds 180 --epsilon 3 --adjacency replace_one
    """  # noqa: D301
    from ..questions.epsilon import delta as ask

    _answer(ask, unit, as_json, given)


def _answer(
    ask: Callable[..., Bound], unit: str | None, as_json: bool, given: dict[str, Any]
) -> None:
    """Compute one number of the run that the options describe, and print it."""
    # Taken out: the remaining options are the arguments of the question.
    certificate: Path | None = given.pop("certificate")
    run = SampledRun.of({name: given.pop(name) for name in SampledRun.known()})
    bound = run.remarked(ask(run.run(unit), **given), unit)
    write_certificate(bound, certificate)
    show(bound.to_dict(), as_json, lambda: show_bound(bound))


SOLVABLE = {
    "noise-multiplier": ("noise_multiplier", False),
    "rounds": ("rounds", True),
    "sampling-probability": ("sampling_probability", False),
    "cohort": ("cohort", True),
    "population": ("population", True),
}


@cli.command()
@option("--epsilon", float, BUDGET, "Epsilon of the budget.", required=True)
@option("--delta", float, BUDGET, "Delta of the budget.", required=True)
@option(
    "--solve-for",
    click.Choice(list(SOLVABLE)),
    QUESTION,
    f"The parameter to compute: {', '.join(SOLVABLE)}. Give all others.",
    metavar="NAME",
    default="noise-multiplier",
)
@run_options
@facts_options
@as_json
def calibrate(solve_for: str, unit: str | None, as_json: bool, **question: Any) -> None:
    """Find the parameter value that just meets a privacy budget.

    The printed value lies on the private side. Its epsilon is certified at exactly that value.

    \b
    Example: how much noise do 180 rounds need?
      fedprivacy calibrate --epsilon 8 --delta 1e-5 --sampling-probability 0.01 \\
          --rounds 180 --adjacency add_remove
    """  # noqa: D301
    from ..questions.calibrate import calibrate as solve

    name, integer = SOLVABLE[solve_for]
    run = {each: question.pop(each) for each in SampledRun.known()}
    # The parameter to solve for must not also be fixed by an option.
    if run[name] is not None:
        refuse(f"--{solve_for}", run[name], "be left out", "--solve-for computes it")
    found = solve(
        lambda value: SampledRun.of({**run, name: value}).run(unit), integer=integer, **question
    )
    bound = SampledRun.of({**run, name: found.value}).remarked(found.bound, unit)
    data = {"parameter": name, "value": found.value, "bound": bound.to_dict()}

    def text() -> None:
        # In full: the certificate is for this value, not for a rounded one.
        remarks = "".join(f", {words}" for words in bound.qualified)
        say(f"{name} = {found.value!r}{remarks}")
        show_bound(bound)

    show(data, as_json, text)
