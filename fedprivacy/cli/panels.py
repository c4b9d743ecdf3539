"""Options and commands whose help is shown in panels: groups under a heading, by purpose."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

OWN = "Help"
"""The panel of --help and --version."""


class PanelOption(click.Option):
    """An option in a panel of the help.

    Args:
        names: its names, as for ``click.Option``.
        panel: heading of its panel.
        wanted: whether a command needs it, although the command itself says so.
        more: see ``click.Option``.
    """

    def __init__(
        self, names: Sequence[str], panel: str = OWN, wanted: bool = False, **more: Any
    ) -> None:
        super().__init__(names, **more)
        self.panel, self.wanted = panel, wanted


HINTS = {
    "--noise-multiplier": ("--sigma", "--noise", "--noise-scale", "--z", "--multiplier"),
    "--sampling-probability": ("--q", "--sample-rate", "--sampling-rate", "--rate", "--fraction"),
    "--cohort": ("--batch-size", "--clients-per-round", "--sample-size", "--lot-size"),
    "--rounds": ("--steps", "--epochs", "--iterations", "--num-rounds"),
    "--population": ("--n", "--num-clients", "--dataset-size", "--records"),
    "--clip-norm": ("--clip", "--max-grad-norm", "--l2-norm-clip", "--clipping-norm"),
    "--epsilon": ("--eps", "--target-epsilon", "--budget"),
    "--delta": ("--target-delta",),
    "--adjacency": ("--neighbouring", "--neighboring", "--relation"),
}
"""Our options, and the names that other programs have for them."""

_OURS = {name: ours for ours, names in HINTS.items() for name in names}


class PanelCommand(click.Command):
    """A command whose help shows its options in panels, in the order of their first option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; an error names our option for another's, or all missing ones."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            ours = _OURS.get(problem.option_name)
            if ours is not None and any(ours in each.opts for each in self.params):
                text = f"{problem.message} Did you mean '{ours}'?"
                raise click.UsageError(text, ctx) from problem
            raise
        except click.MissingParameter as problem:
            found = self.make_parser(ctx).parse_args(args=given)[0]
            wanted = [p for p in self.params if p.required or getattr(p, "wanted", False)]
            missing = [each for each in wanted if each.name not in found]
            if len(missing) < 2:
                raise
            names = ", ".join(f"'{each.opts[0]}'" for each in missing)
            raise click.UsageError(f"Missing options {names}.", ctx) from problem

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and the panel of --help last."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                panels.setdefault(getattr(each, "panel", OWN), []).append(record)
        own = panels.pop(OWN, [])
        for title, records in [*panels.items(), (OWN, own)]:
            with formatter.section(title):
                formatter.write_dl(records)


class PanelGroup(PanelCommand, click.Group):
    """A group of commands whose help shows the commands in panels.

    A command's module is imported when the command is looked up, so the help is quick.

    Args:
        panels: heading -> name of a command -> (name of its module, its help in one line).
        package: the package of the modules.
        more: see ``click.Group``.
    """

    command_class = PanelCommand

    def __init__(
        self, panels: Mapping[str, Mapping[str, tuple[str, str]]], package: str, **more: Any
    ) -> None:
        super().__init__(**more)
        self.panels, self.package = panels, package

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(name for commands in self.panels.values() for name in commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of this name."""
        for commands in self.panels.values():
            if cmd_name in commands:
                module = commands[cmd_name][0]
                # Accounts multiply small matrices, for which threads cost more than they save.
                if module in ("ask", "explain", "ledgers", "page") and "numpy" not in sys.modules:
                    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
                import_module(f"{self.package}.{module}")
        return super().get_command(ctx, cmd_name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and the commands."""
        super().format_options(ctx, formatter)
        for title, commands in self.panels.items():
            with formatter.section(title):
                formatter.write_dl([(name, help) for name, (_, help) in commands.items()])


def option(*names: str, panel: str, **more: Any) -> Any:
    """Return the decorator of an option in a panel; see ``click.option``."""
    return click.option(*names, cls=PanelOption, panel=panel, **more)
