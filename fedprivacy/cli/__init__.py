"""The command line: every command prints for a person, or JSON with ``--json``.

Bad input ends with exit code 2 and one line on standard error, never with a traceback. A warning of
this package is also one line there.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ..errors import FedPrivacyError
from ..outputs import printable
from .group import cli

__all__ = ["cli", "main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit code 2 and one line on bad input."""
    try:
        with _warnings_in_a_line():
            code = cli.main(args=arguments, prog_name="fedprivacy", standalone_mode=False)
    except (FedPrivacyError, click.ClickException, OSError) as problem:
        message = problem.format_message() if isinstance(problem, click.ClickException) else problem
        click.echo(printable(_line(message)), err=True)
        sys.exit(2)
    except (OverflowError, MemoryError) as problem:
        problem_text = f"a value is too large to compute with ({type(problem).__name__}: {problem})"
        click.echo(printable(_line(problem_text)), err=True)
        sys.exit(2)
    # Shells expect 130 from an interrupted program.
    except (click.Abort, KeyboardInterrupt):
        click.echo("fedprivacy: stopped", err=True)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _line(message: object) -> str:
    """Return a message as one line: programs read standard error line by line."""
    return f"fedprivacy: {' '.join(str(message).split())}"


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Print our own warnings like errors, without their line of code."""
    usual = warnings.formatwarning

    def formatted(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        if category.__module__.startswith("fedprivacy."):
            return f"{_line(f'warning: {message}')}\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = formatted
    try:
        yield
    finally:
        warnings.formatwarning = usual
