"""Every command of the command line, by name; each is imported."""

import click

from fedprivacy.cli.group import cli

CONTEXT = click.Context(cli)
EVERY: dict[str, click.Command] = {
    name: command
    for name in cli.list_commands(CONTEXT)
    if (command := cli.get_command(CONTEXT, name)) is not None
}
