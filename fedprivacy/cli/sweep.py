"""The command that trains many settings: sweep. It imports the training code when it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import refuse
from ..mechanisms.selection import LAWS
from ..runs.methods import METHODS, names
from ..systems.settings import read
from .group import cli
from .options import (
    METHOD,
    F,
    MethodCommand,
    as_json,
    file_option,
    named_texts,
    option,
    picture_option,
    say,
    say_lines,
    set_option,
    show,
)
from .train import SOURCE, begins, data_options, missing_parts, needs_torch, seed_option

if TYPE_CHECKING:
    from ..runs.private_sweep import PrivateSweep

WHERE, SELECTION = "Execution", "Private selection"
"""Groups of options."""


def _count(name: str, panel: str, text: str) -> Callable[[F], F]:
    """Return an option for a number, by default one."""
    return option(name, int, panel, text, default=1)


@cli.command(cls=MethodCommand)
@option(
    "--method",
    click.Choice(names(private=True)),
    METHOD,
    f"The method: {', '.join(names(private=True))}.",
    metavar="NAME",
    default="dp-fedavg",
)
@data_options
@set_option(
    "Values to try, separated by commas, for example noise_multiplier=1,2 or cohort=50,100. "
    "Repeat it for more settings. Without noise_multiplier, the noise is calibrated to the "
    "budget for every setting. The names are listed above.",
)
@file_option(
    "--folder",
    "Folder of ledgers and checkpoints; an interrupted sweep resumes from it.",
    default=Path("sweep"),
)
@picture_option
@seed_option
@_count(
    "--seeds",
    METHOD,
    "Number of runs of every setting; their means are compared and their spread is shown.",
)
@_count(
    "--jobs",
    WHERE,
    "Number of parallel runs, each in a separate process; results do not depend on it.",
)
@option(
    "--backend",
    None,
    WHERE,
    "Backend of joblib: loky (this machine), dask or ray (a cluster), sequential.",
    default="loky",
)
@option(
    "--private law",
    click.Choice(list(LAWS)),
    SELECTION,
    "Release only the best trial, within one budget: draw the number of trials from this "
    "distribution, and a setting of the grid for each trial.",
)
@option("--trials", float, SELECTION, "Mean number of trials of --private.", default=10.0)
@option(
    "--public-test",
    bool,
    SELECTION,
    "State that the test data, which select the best trial, are public.",
    is_flag=True,
)
@as_json
def sweep(
    method: str,
    chosen: tuple[str, ...],
    folder: Path,
    output: Path | None,
    jobs: int,
    backend: str,
    law: str | None,
    trials: float,
    public_test: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train every setting of a grid and compare them within a budget.

    Each setting leaves a ledger. "fedprivacy pareto FOLDER/runs.csv" prints the table again, also
    together with other runs.

    \b
    Example:
      fedprivacy sweep --method fed-smp-rand-k --epsilon 8 --delta 1e-3 \\
          --set cohort=50,100 --set rounds=20,40 --set kept_fraction=0.1,0.4
    """  # noqa: D301
    needs_torch()
    from ..runs.parallel import check_backend
    from ..runs.pictures import check_picture
    from ..runs.private_sweep import PrivateSweep
    from ..runs.progress import Steps
    from ..runs.sweep import Sweep

    texts = named_texts(chosen)
    # Names first: the message for a misspelt name lists the known ones.
    METHODS[method].check_names(texts)
    grid = read(METHODS[method].known, texts)
    source = {name: value for name in SOURCE if (value := options.pop(name)) is not None}
    whole = Sweep(method=method, grid=grid, folder=folder, source=source, **options)
    if law is not None:
        _alone(output, jobs)
        chosen_by = LAWS[law](trials)
        _choose(PrivateSweep(sweep=whole, trials=chosen_by, public_test=public_test), as_json)
        return
    # Before the first training, which may take hours.
    whole.check()
    check_backend(backend, jobs)
    if output is not None:
        check_picture(output)
    # On standard error, so that standard output holds only the JSON.
    say(begins(whole, missing_parts(options)), err=True)
    with Steps() as steps, steps.count("runs", len(whole.labels) * whole.seeds) as tick:
        trained = whole.train_all(jobs=jobs, backend=backend, on_run=lambda *_: tick())
    whole.write(trained)
    found = whole.compare(trained)
    # Choosing the best of several runs uses every run, so their joint epsilon is printed too.
    together = whole.together()
    data = found.to_dict() | {"together": [together.lower, together.upper]}
    data["runs"] = str(folder / "runs.csv")
    if output is not None:
        data["plot"] = str(found.plot(output))

    def text() -> None:
        say_lines(found.table())
        say(f"all runs in the folder together, for an observer who compares them: {together}")
        say(f"ledgers: {data['runs']}")
        if output is not None:
            say(f"plot: {output}")

    show(data, as_json, text)


def _alone(output: Path | None, jobs: int) -> None:
    """Refuse options that --private cannot serve: a plot of all trials, several trials at once."""
    if output is not None:
        refuse("--output", str(output), "be left out with --private")
    if jobs != 1:
        refuse("--jobs", str(jobs), "be left out with --private")


def _choose(one: PrivateSweep, as_json: bool) -> None:
    """Run a private sweep; print the best trial and the price of the selection."""
    from ..runs.pareto import in_words
    from ..runs.private_sweep import LEDGER
    from ..runs.progress import Steps

    # No count of trials is shown: their number is part of the secret.
    with Steps() as steps:
        with steps.step("calibrating a trial"):
            one.check()
        with steps.step("training a secret number of trials"):
            found = one.run()
    bound = found.audit.bound
    data = {
        "setting": found.setting,
        "accuracy": None if found.setting is None else found.accuracy,
        "model": None if found.model is None else str(found.model),
        "ledger": str(one.sweep.folder / LEDGER),
        "verdict": str(found.audit.verdict),
        "epsilon": None if bound is None else [bound.lower, bound.upper],
    }

    def text() -> None:
        if found.setting is None:
            say(
                "the drawn number of trials is 0, so there is no result; this is a possible outcome"
            )
        else:
            say(f"the best trial: {in_words(found.setting)}, accuracy {found.accuracy:.4g}")
            say(f"its model: {found.model}")
        say_lines(f"the selection: {found.audit}")
        say(f"ledger: {data['ledger']}")

    show(data, as_json, text)
