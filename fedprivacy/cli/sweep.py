"""The command that trains many settings: sweep. Training is imported only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from ..runs.methods import METHODS, names
from ..systems.settings import read
from .options import (
    METHOD,
    OUTPUT,
    as_json,
    cli,
    named_texts,
    picture_option,
    say,
    show,
    told_settings,
)
from .train import begins, data_options, seed_option

WHERE = "Where it runs"


@told_settings
@cli.command()
@click.option(
    "--method",
    type=click.Choice(names(private=True)),
    metavar="NAME",
    panel=METHOD,
    default="dp-fedavg",
    show_default=True,
    help=f"What to train with: {', '.join(names(private=True))}.",
)
@data_options
@click.option(
    "--set",
    "chosen",
    panel=METHOD,
    multiple=True,
    metavar="NAME=VALUES",
    help="Values to try, with commas between, such as noise_multiplier=1,2 or cohort=50,100; "
    "repeat for more. Without noise_multiplier the noise is calibrated to the budget for every "
    "setting. The names are those above.",
)
@click.option(
    "--folder",
    panel=OUTPUT,
    type=click.Path(path_type=Path),
    default=Path("sweep"),
    show_default=True,
    help="Where ledgers and checkpoints are kept; a sweep that was stopped goes on from there.",
)
@picture_option
@seed_option
@click.option(
    "--seeds",
    panel=METHOD,
    type=int,
    default=1,
    show_default=True,
    help="Run every setting so often; means are compared, with their spread.",
)
@click.option(
    "--jobs",
    panel=WHERE,
    type=int,
    default=1,
    show_default=True,
    help="How many runs at once, each in a process of its own; results do not depend on it.",
)
@click.option(
    "--backend",
    panel=WHERE,
    default="loky",
    show_default=True,
    help="What runs them, by joblib: loky (this machine), dask or ray (a cluster), sequential.",
)
@as_json
def sweep(
    method: str,
    epsilon: float,
    delta: float | None,
    chosen: tuple[str, ...],
    folder: Path,
    adjacency: str | None,
    observer: str,
    output: Path | None,
    seed: int | None,
    seeds: int,
    dropout_rate: float,
    threads: int | None,
    jobs: int,
    backend: str,
    as_json: bool,
    **source: Any,
) -> None:
    """Train every setting of a grid and compare them within a budget.

    Each setting leaves a ledger. The table can be had again, and joined with other runs, with
    "fedprivacy pareto FOLDER/runs.csv".

    \b
    Example:
      fedprivacy sweep --method fed-smp-rand-k --epsilon 8 --delta 1e-3 \\
          --set cohort=50,100 --set rounds=20,40 --set kept_fraction=0.1,0.4
    """  # noqa: D301
    from ..runs.pictures import check_picture
    from ..runs.progress import Steps
    from ..runs.sweep import Sweep

    texts = named_texts(chosen)
    # Names first: a misspelt one is told with those that there are.
    METHODS[method].check_names(texts)
    grid = read(METHODS[method].known, texts)
    whole = Sweep(
        method=method,
        grid=grid,
        folder=folder,
        epsilon=epsilon,
        delta=delta,  # type: ignore[arg-type]  # None: by the number of units
        adjacency=adjacency,
        observer=observer,
        seed=seed,
        seeds=seeds,
        dropout_rate=dropout_rate,
        threads=threads,
        source={name: value for name, value in source.items() if value is not None},
    )
    # Before the first setting is trained, which may take hours.
    whole.check()
    if output is not None:
        check_picture(output)
    unsaid = {"delta": delta, "adjacency": adjacency}
    # On the error stream, so that --json leaves nothing but JSON on the other.
    say(begins(whole, [name for name, value in unsaid.items() if value is None]), err=True)
    with Steps() as steps, steps.count("runs", len(whole.labels) * seeds) as tick:
        trained = whole.train_all(jobs=jobs, backend=backend, on_run=lambda *_: tick())
    whole.write(trained)
    found = whole.compare(trained)
    # Picking the best of several runs uses them all: their joint epsilon is told, too.
    together = whole.together()
    data = found.to_dict() | {"together": [together.lower, together.upper]}
    data["runs"] = str(folder / "runs.csv")
    if output is not None:
        data["plot"] = str(found.plot(output))

    def text() -> None:
        say(found.table())
        say(f"all runs in the folder together, as whoever picks the best sees them: {together}")
        say(f"ledgers: {data['runs']}")
        if output is not None:
            say(f"plot: {output}")

    show(data, as_json, text)
