"""The commands about this program: run, schema, completion."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class

from ..errors import FedPrivacyError, ParameterError, listed
from .answers import ANSWERS, schema
from .group import cli
from .options import as_json, show

SHELLS = ["bash", "zsh", "fish"]

SETTINGS = "settings"
"""The table of a run file that replaces --set."""


@cli.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@as_json
@click.pass_context
def run(context: click.Context, file: Path, as_json: bool) -> Any:
    """Run the command that a TOML file describes.

    FILE contains command = "train" (or any other command), the command's options by name, and a
    table [settings] in place of --set. Paths are relative to the current folder, as on the command
    line.

    \b
    Example:
      command = "train"
      method = "fed-smp-top-k"
      epsilon = 8.0
      delta = 1e-3
      [settings]
      local_steps = 5
    """  # noqa: D301
    run_file = _RunFile.read(file)
    command = run_file.command()
    words = run_file.words(command) + (["--json"] if as_json else [])
    try:
        with command.make_context(run_file.name, words, parent=context) as inner:
            return command.invoke(inner)
    except (FedPrivacyError, click.ClickException) as problem:
        run_file.point_at(problem)


class _RunFile:
    """A run file: its content, and the line of each key."""

    def __init__(self, path: Path, text: str, content: dict[str, Any]) -> None:
        self.path, self.lines, self.content = path, text.splitlines(), content
        self.name = str(content.get("command", ""))

    @classmethod
    def read(cls, path: Path) -> _RunFile:
        """Return a file's content.

        Raises:
            ParameterError: it is not TOML; the message names the line.
        """
        from ..audit.imports.content import MAX_TOML, check_depth, whole

        raw = whole(path, MAX_TOML)
        check_depth(raw, str(path))
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as problem:
            raise ParameterError(f"{path} must be UTF-8, got {problem}") from problem
        try:
            return cls(path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as problem:
            # The message names the line, except at the end of the file.
            found = re.search(r"line (\d+)", str(problem))
            line = int(found[1]) if found else max(len(text.splitlines()), 1)
            raise ParameterError(f"{path}:{line}: {problem}") from problem

    def command(self) -> click.Command:
        """Return the command that the file names."""
        # "run" is excluded: it could call itself without end.
        context = click.get_current_context()
        names = cli.list_commands(context)
        # A group has no options that a file could give.
        groups = [name for name in names if isinstance(cli.get_command(context, name), click.Group)]
        known = [each for each in names if each not in ("run", "schema", "completion", *groups)]
        command = cli.get_command(context, self.name) if self.name in known else None
        if command is None:
            self._refuse("command", f"command must be one of {listed(known)}, got {self.name!r}")
        return command

    def words(self, command: click.Command) -> list[str]:
        """Return the file's options in the form of the command line."""
        words = (self._words(command, *pair) for pair in self.content.items())
        return list(chain.from_iterable(words))

    def _words(self, command: click.Command, key: str, value: Any) -> list[str]:
        # This key names the command and is not an option.
        if key == "command":
            return []
        if key == SETTINGS:
            return [word for pair in self._settings(value) for word in ("--set", pair)]
        known = {name.lstrip("-"): each for each in command.params for name in each.opts}
        name = key.replace("_", "-")
        option = known.get(name, known.get(key))
        if option is None:
            message = f"{key} must be one of {listed(sorted(known))}, of {self.name}'s options"
            self._refuse(key, message)
        return _words(option, f"--{name}", value)

    def _settings(self, table: Any) -> list[str]:
        """Return NAME=VALUES of every setting."""
        if not isinstance(table, dict):
            self._refuse(SETTINGS, f"{SETTINGS} must be a table, got {table!r}")
        return [f"{key}={','.join(_texts(value))}" for key, value in table.items()]

    def point_at(self, problem: Exception) -> NoReturn:
        """Raise a problem again, with the line of its cause."""
        message = problem.format_message() if isinstance(problem, click.ClickException) else problem
        words = re.findall(r"[\w-]+", str(message))
        spelled = [word.lstrip("-").replace("-", "_") for word in words]
        # Messages name options as on the command line.
        said = {
            spelled.index(name): key
            for key in self._keys()
            if (name := key.replace("-", "_")) in spelled
        }
        line = f":{self._line(said[min(said)])}" if said else ""
        raise ParameterError(f"{self.path}{line}: {message}") from problem

    def _keys(self) -> list[str]:
        inner = self.content.get(SETTINGS)
        return [*self.content, *(inner if isinstance(inner, dict) else ())]

    def _line(self, key: str) -> int:
        """Return the line number of a key."""
        # A key may be quoted, and the name of a table is in brackets.
        begins = re.compile(rf"\s*\[?[\"']?{re.escape(key)}[\"']?\s*[=\]]")
        found = (at for at, line in enumerate(self.lines, start=1) if begins.match(line))
        return next(found, 1)

    def _refuse(self, key: str, message: str) -> NoReturn:
        raise ParameterError(f"{self.path}:{self._line(key)}: {message}")


def _words(option: click.Parameter, name: str, value: Any) -> list[str]:
    """Return one option's words: a flag, an argument, or a name with each of its values."""
    if isinstance(option, click.Argument):
        return [str(value)]
    if getattr(option, "is_flag", False):
        return [name] if value else []
    # Options with several values in one word use commas.
    if not option.multiple:
        return [name, ",".join(_texts(value))]
    return [word for text in _texts(value) for word in (name, text)]


def _texts(value: Any) -> list[str]:
    """Return the values of an option as text: those of a list, or the only one."""
    return [str(each) for each in (value if isinstance(value, list) else [value])]


@cli.command("schema")
@click.argument("command", type=click.Choice(list(ANSWERS)), metavar="COMMAND")
def print_schema(command: str) -> None:
    """Print the JSON Schema of COMMAND's output with --json."""
    show(schema(command), True, lambda: None)


@cli.command()
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
def completion(shell: str) -> None:
    """Print a script that makes SHELL (bash, zsh or fish) complete commands and options.

    \b
    Examples:
      fedprivacy completion bash >> ~/.bashrc
      fedprivacy completion zsh >> ~/.zshrc
      fedprivacy completion fish > ~/.config/fish/completions/fedprivacy.fish
    """  # noqa: D301
    kind = get_completion_class(shell)
    assert kind is not None
    # Our own lines, for a shell and not for a person.
    click.echo(kind(cli, {}, "fedprivacy", "_FEDPRIVACY_COMPLETE").source())
