"""The shared code of commands: options and printing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import MISSING
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..bound import Bound
from ..errors import refuse
from ..outputs import printable, whole_file
from ..runs.run_specs import SampledRun
from ..systems.settings import Setting
from . import panels
from .panels import PanelCommand

if TYPE_CHECKING:
    from ..questions.risk import TradeoffCurve

F = TypeVar("F", bound=Callable[..., Any])

ADJACENCIES = click.Choice(["add_remove", "zero_out", "replace_one"])
OBSERVERS = click.Choice(["aggregate", "server", "final"])
ACCOUNTANT_NAMES = click.Choice(["pld", "game", "rdp", "advanced"])


def option(names: str, kind: Any, panel: str, text: str, **more: Any) -> Callable[[F], F]:
    """Return an option; its names are separated by blanks, and a given default is shown."""
    more.setdefault("show_default", "default" in more)
    added: Callable[[F], F] = panels.option(
        *names.split(), type=kind, panel=panel, help=text, **more
    )
    return added


def options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds all the options, in the given order."""

    def apply(function: F) -> F:
        # Decorators apply from the bottom up. Reversed, the help has the given order.
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


class MethodCommand(PanelCommand):
    """A command with --method. Its help, given a method, lists the settings of that method."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the method before --help, which ends the parsing, is met."""
        named = [word.removeprefix("--method=") for word in args if word.startswith("--method=")]
        named += [value for word, value in pairwise(args) if word == "--method"]
        ctx.meta[__name__] = named[-1] if named else None
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            from ..runs.methods import METHODS

            # A setting of a method is no option of the command.
            name = problem.option_name.lstrip("-").replace("-", "_")
            if not any(name in each.known for each in METHODS.values()):
                raise
            text = f"{problem.message} Did you mean '--set {name}=VALUE'?"
            raise click.UsageError(text, ctx) from problem

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help, and the settings of the method."""
        from ..runs.methods import METHODS, settings_in_words

        super().format_help_text(ctx, formatter)
        method = ctx.meta.get(__name__)
        told = f"Settings of a method (--set): {ctx.command_path} --method NAME --help"
        if method in METHODS:
            told = settings_in_words(method)
        formatter.write_paragraph()
        with formatter.indentation():
            for line in told.splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}".rstrip() + "\n")


OUTPUT, THREAT, RUN = "Output", "Privacy unit and attacker", "The run"
EXACT, QUESTION, BUDGET, METHOD = "How exact", "The question", "The budget", "The method"
"""Groups of options that several commands share."""


def file_option(
    name: str, text: str, *, panel: str = OUTPUT, default: Path | None = None
) -> Callable[[F], F]:
    """Return the option for a file or folder."""
    kind = click.Path(path_type=Path)
    shown = default is not None
    more = {"default": default, "show_default": shown}
    return option(name, kind, panel, text, **more)


def set_option(text: str, *, several: bool = True) -> Callable[[F], F]:
    """Return --set, which gives a method's settings by name."""
    metavar = "NAME=VALUES" if several else "NAME=VALUE"
    return option("--set chosen", None, METHOD, text, multiple=True, metavar=metavar)


as_json = option(
    "--json as_json",
    bool,
    OUTPUT,
    "Print JSON instead of text; see fedprivacy schema.",
    is_flag=True,
    show_default=False,
)
threat_options = options(
    option(
        "--adjacency",
        ADJACENCIES,
        THREAT,
        "How neighbouring data sets differ: a unit is added or removed, zeroed out, or "
        "replaced. There is no default, since epsilon depends on it.",
        required=True,
    ),
    option(
        "--observer",
        OBSERVERS,
        THREAT,
        "What the attacker sees: every release (aggregate), the participants as well (server), "
        "or only the last release (final).",
        default="aggregate",
    ),
    option("--unit", click.Choice(["client", "record"]), THREAT, "The privacy unit."),
)
facts_options = options(
    threat_options,
    option(
        "--accountant",
        ACCOUNTANT_NAMES,
        EXACT,
        "pld and game give an interval; rdp and advanced give only upper ends.",
        default="pld",
    ),
    option(
        "--tolerance",
        float,
        EXACT,
        "Width of the interval: absolute for an epsilon, relative for a probability.",
        default=1e-3,
    ),
)
deadline_option = option("--deadline", float, EXACT, "Seconds after which no refinement starts.")
picture_option = file_option("--output", "Write a plot to this file.")


def setting_option(
    one: Setting, *, several: bool = False, panel: str = RUN, wanted: bool = False
) -> Callable[[F], F]:
    """Return the option for a setting; ``several``: text with values separated by commas."""
    default = "" if one.default in (None, MISSING) else f"  [default: {one.default}]"
    kind = str if several else one.rule.kind
    name = f"--{one.name.replace('_', '-')}"
    metavar = "VALUES" if several else None
    return option(name, kind, panel, _sentence(one) + default, metavar=metavar, wanted=wanted)


def _sentence(one: Setting) -> str:
    """Return a setting's help in the form of an option's help."""
    return one.help[0].upper() + one.help[1:].rstrip(".") + "."


noise_option = setting_option(SampledRun.known()["noise_multiplier"])
run_options = options(*(setting_option(each) for each in SampledRun.known().values()))
"""The options of a run of a sampled Gaussian, for ``SampledRun.of``."""
whole_run_options = options(
    *(setting_option(one, wanted=one.default is MISSING) for one in SampledRun.known().values())
)
"""The same for a command that takes nothing else, and so needs those without a default."""


certificate_option = option(
    "--certificate",
    click.Path(dir_okay=False, path_type=Path),
    OUTPUT,
    "Write a certificate to this file; `fedprivacy verify` checks it.",
)


def write_certificate(bound: Bound, path: Path | None) -> None:
    """Write a bound's certificate if there is a path."""
    if path is not None:
        whole_file(path, json.dumps(bound.certificate(), indent=2, allow_nan=False) + "\n")


def named_texts(chosen: Iterable[str]) -> dict[str, str]:
    """Return the NAME=VALUES of --set by name, spelled with underscores.

    Raises:
        ParameterError: text without NAME=, or a name that is given twice.
    """
    found: dict[str, str] = {}
    for text in chosen:
        name, equals, values = text.partition("=")
        key = name.strip().replace("-", "_")
        if not equals:
            refuse("--set", text, "be NAME=VALUE, or NAME=VALUES separated by commas")
        # Otherwise the last one would win silently.
        if key in found:
            way_out = "separate several values by commas"
            refuse("--set", key, "be given once", way_out)
        found[key] = values
    return found


def say(text: object, *, err: bool = False) -> None:
    """Print one line for a person; see ``printable``."""
    click.echo(printable(text), err=err)


def say_lines(text: str) -> None:
    """Print the lines of a table for a person."""
    for line in text.splitlines():
        say(line)


def show(data: dict[str, Any], as_json: bool, text: Callable[[], None]) -> None:
    """Print the data as JSON, or let ``text`` print for a person."""
    if as_json:
        click.echo(json.dumps(data, indent=2, allow_nan=False))
    else:
        text()


def show_bound(bound: Bound) -> None:
    """Print a bound and its grounds."""
    say(str(bound))
    show_grounds(bound)


def show_grounds(answer: Bound | TradeoffCurve) -> None:
    """Print the grounds of an answer."""
    if answer.witness:
        say(f"  attained by: {answer.witness}")
    for theorem in answer.theorems:
        say(f"  rests on: {theorem}")
    for assumption in answer.assumptions:
        say(f"  assumes: {assumption}")
    if answer.reason:
        say(f"  wider than the tolerance: {answer.reason}")
