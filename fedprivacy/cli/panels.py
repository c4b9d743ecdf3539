"""Options and commands whose help is shown in panels: groups under a heading, by purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

OWN = "Help"
"""The panel of --help and --version."""


class PanelOption(click.Option):
    """An option in a panel of the help.

    Args:
        names: its names, as for ``click.Option``.
        panel: heading of its panel.
        more: see ``click.Option``.
    """

    def __init__(self, names: Sequence[str], panel: str = OWN, **more: Any) -> None:
        super().__init__(names, **more)
        self.panel = panel


class PanelCommand(click.Command):
    """A command whose help shows its options in panels, in the order of their first option."""

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

    Args:
        panels: heading -> names of commands.
        more: see ``click.Group``.
    """

    command_class = PanelCommand

    def __init__(self, panels: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(**more)
        self.panels = panels

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and the commands."""
        super().format_options(ctx, formatter)
        for title, names in self.panels.items():
            with formatter.section(title):
                said = [(name, self.commands[name].get_short_help_str(200)) for name in names]
                formatter.write_dl(said)


def option(*names: str, panel: str, **more: Any) -> Any:
    """Return the decorator of an option in a panel; see ``click.option``."""
    return click.option(*names, cls=PanelOption, panel=panel, **more)
