"""The command that compares settings: pareto."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import refuse
from ..runs.run_specs import SampledRun, runs_of_file, runs_of_grid
from ..systems.settings import Settings, read, single
from .group import cli
from .options import (
    EXACT,
    METHOD,
    QUESTION,
    as_json,
    facts_options,
    named_texts,
    option,
    options,
    picture_option,
    say,
    say_lines,
    set_option,
    setting_option,
    show,
)


def _langevin(texts: Mapping[str, str]) -> Any:
    from ..papers.fa_ld.grid import LangevinSetting, MeanProblem, mean_settings

    facts, axes = _facts_and_axes(texts, MeanProblem, LangevinSetting)
    return mean_settings(MeanProblem(**facts), axes)


def _splitting(texts: Mapping[str, str]) -> Any:
    from ..papers.fed_plt.grid import Regression, regression_settings
    from ..papers.fed_plt.tradeoff import SplittingSetting

    facts, axes = _facts_and_axes(texts, Regression, SplittingSetting)
    return regression_settings(Regression(**facts), axes)


def _facts_and_axes(
    texts: Mapping[str, str], problem: type[Settings], point: type[Settings]
) -> tuple[dict[str, Any], dict[str, Sequence[Any]]]:
    """Return the settings of a problem, one value each, and the axes of a grid."""
    values = read({**problem.known(), **point.known()}, texts)
    facts = {name: found for name, found in values.items() if name in problem.known()}
    return single(facts), {name: found for name, found in values.items() if name in point.known()}


METHODS: dict[str, Callable[[Mapping[str, str]], Any]] = {
    "fa-ld": _langevin,
    "fed-plt": _splitting,
}
"""Method -> function that makes its grid from texts."""


@cli.command()
@click.argument("settings", type=click.Path(path_type=Path), nargs=-1)
@option("--delta", float, QUESTION, "Compute epsilon at this delta.", required=True)
@option("--epsilon", float, QUESTION, "A budget; the best setting within it is shown.")
@option(
    "--method",
    click.Choice(list(METHODS)),
    METHOD,
    "Compare a grid of this method instead of a file: fa-ld by w2, the distance to a Gaussian "
    "target; fed-plt by asymptotic error and computation time.",
)
@set_option(
    "Values of a setting of the method, separated by commas, for example local_steps=1,5,20. "
    "Repeat it for more settings. An unknown name lists the known ones.",
)
@options(*(setting_option(each, several=True) for each in SampledRun.known().values()))
@option(
    "--cost",
    None,
    QUESTION,
    "A column of SETTINGS that is a cost.  [default: all columns that do not describe a run]  "
    "For a grid: noise (std in the mean update of a round, divided by the clip norm, times the "
    "population), averaged-noise (the same, averaged over all rounds), uploads (expected "
    "number per client), or rounds.  [default: noise]",
    multiple=True,
)
@option(
    "--maximise",
    None,
    QUESTION,
    "A cost that should be large, for example accuracy.",
    multiple=True,
)
@option(
    "--digits",
    int,
    EXACT,
    "Compare epsilons rounded up to this number of digits; smaller differences are ignored.",
    default=5,
)
@facts_options
@picture_option
@as_json
def pareto(
    settings: tuple[Path, ...],
    cost: tuple[str, ...],
    method: str | None,
    chosen: tuple[str, ...],
    unit: str | None,
    output: Path | None,
    as_json: bool,
    **question: Any,
) -> None:
    """Compare settings: certified epsilon against their costs.

    SETTINGS is a CSV file with a header, or a JSON list of objects. Columns: label; ledger (a path
    relative to the file's folder), or noise_multiplier, rounds, and sampling_probability or cohort
    and population. Every other column is a cost, or only the columns named by --cost. With several
    files, for example from sweeps of several methods, the labels begin with the folder.

    \b
    Examples:
      fedprivacy pareto runs.csv --maximise accuracy --delta 1e-5 \\
          --adjacency add_remove --epsilon 8 --output front.png
      fedprivacy pareto averaging/runs.csv ftrl/runs.csv --maximise accuracy \\
          --delta 1e-3 --adjacency zero_out --observer server --epsilon 8
      fedprivacy pareto --noise-multiplier 0.6,0.8,1,1.4 --rounds 200 \\
          --sampling-probability 0.01,0.02 --delta 1e-5 --adjacency add_remove
      fedprivacy pareto --method fa-ld --set correlation=0,0.9 --delta 1e-5 \\
          --adjacency replace_one --epsilon 4 --output front.png
    """  # noqa: D301
    from ..runs.pareto import pareto as compare
    from ..runs.pictures import check_picture

    # Before the accounts, which may take minutes.
    if output is not None:
        check_picture(output)
    # Only given options make a grid. The others keep their defaults.
    given = {n: said for n in SampledRun.known() if (said := question.pop(n)) is not None}
    found = compare(_runs(settings, method, given, chosen, unit, cost), **question)
    data = found.to_dict()
    if output is not None:
        data["plot"] = str(found.plot(output))

    def text() -> None:
        say_lines(found.table())
        if output is not None:
            say(f"plot: {output}")

    show(data, as_json, text)


def _runs(
    settings: tuple[Path, ...],
    method: str | None,
    given: dict[str, str],
    chosen: tuple[str, ...],
    unit: str | None,
    costs: tuple[str, ...],
) -> Any:
    """Return the settings to compare: a method's grid, a file's rows, or a grid of sampled runs."""
    # Named as typed, so that the message is actionable.
    options = [f"--{name.replace('_', '-')}" for name in given] + ["--set"] * bool(chosen)
    if method is not None:
        # A method's grid has its own costs and units. Others would be silently ignored.
        if settings or costs or unit == "client":
            refuse("--method", method, "be used without SETTINGS, --cost and --unit client")
        return METHODS[method]({**given, **named_texts(chosen)})
    if settings:
        return _of_files(settings, options, unit, costs)
    if chosen:
        refuse("--set", chosen[0], "be given with --method")
    if "noise_multiplier" not in given:
        refuse("SETTINGS", None, "be given", "or a grid, for example with --noise-multiplier")
    return runs_of_grid(read(SampledRun.known(), given), unit, costs or ("noise",))


def _of_files(
    settings: tuple[Path, ...], options: list[str], unit: str | None, costs: tuple[str, ...]
) -> Any:
    """Return the rows of files; with several files, labels begin with the folder."""
    if options:
        refuse("SETTINGS", str(settings[0]), f"be used without {', '.join(options)}")
    if len(settings) == 1:
        return runs_of_file(settings[0], unit, costs)
    found = [(path.parent.name or path.stem, runs_of_file(path, unit, costs)) for path in settings]
    return [(f"{place}: {label}", run) for place, runs in found for label, run in runs]
