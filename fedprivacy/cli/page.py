"""The command that serves the page in the browser: page."""

from __future__ import annotations

import webbrowser

import click

from ..errors import needs
from .group import cli
from .options import option, say

ADDRESS = "The address"
"""Group of options."""


@cli.command()
@option(
    "--port",
    click.IntRange(0, 65535),
    ADDRESS,
    "Port of the address.  [default: any free port]",
    default=0,
    show_default=False,
    metavar="PORT",
)
@option(
    "--open opens",
    bool,
    ADDRESS,
    "Open the address in the browser. Other users may see it in the list of processes.",
    is_flag=True,
)
def page(port: int, opens: bool) -> None:
    """Plan, audit and compare on a page in the browser of this computer.

    Prints an address with a secret token; open it in a browser. Only this computer can reach it.
    The page sends no request to another computer and keeps no data. It ends with Ctrl-C.

    \b
    Example: at a port of your choice, opened at once:
      fedprivacy page --port 8700 --open
    """  # noqa: D301
    with needs("fedprivacy page", "'fedprivacy[page]'", "starlette", "uvicorn"):
        from ..page.server import serve

    def opened(address: str) -> None:
        say(f"Open this address in a browser (Ctrl-C ends the page): {address}")
        if opens:
            webbrowser.open(address)

    serve(port, opened)
