"""The command that tests accountants: vectors."""

from __future__ import annotations

from ..vectors.command import vectors
from .group import cli

cli.add_command(vectors)
