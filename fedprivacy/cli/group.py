"""The command group. A command's module is imported when the command is used."""

from __future__ import annotations

import click

from ..version import VERSION
from .panels import PanelGroup

EXIT_CODES = (
    "Exit codes: 0 success; 2 invalid input, with one line of explanation; with --strict, 3 if "
    "the claim FAILS and 4 if it CANNOT BE CERTIFIED; 130 interrupted by the keyboard."
)

COMMANDS = {
    "Compute one number": {
        "epsilon": ("ask", "Print the epsilon of a run at a given delta."),
        "delta": ("ask", "Print the delta of a run at a given epsilon."),
        "calibrate": ("ask", "Find the parameter value that just meets a privacy budget."),
    },
    "Understand": {
        "explain": (
            "explain",
            "Explain the protection of a run, and its strength, in plain words.",
        ),
        "tradeoff": (
            "explain",
            "Print the false-negative rate of the best attacker at each false-positive rate "
            "(f-DP).",
        ),
        "page": (
            "page",
            "Plan, audit and compare on a page in the browser of this computer.",
        ),
    },
    "Train": {
        "train": ("train", "Train within a privacy budget, leave a ledger, and audit it."),
        "demo": ("train", "Run everything on real data: calibrate, train, audit, report."),
        "run": ("program", "Run the command that a TOML file describes."),
    },
    "Compare": {
        "choose": (
            "choose",
            "Search the setting of a system with the smallest error within a budget.",
        ),
        "sweep": ("sweep", "Train every setting of a grid and compare them within a budget."),
        "pareto": ("pareto", "Compare settings: certified epsilon against their costs."),
    },
    "Reproduce": {
        "papers": (
            "papers",
            "Run a figure or table of a paper again, and compare it with the paper's numbers.",
        ),
    },
    "Judge": {
        "audit": ("ledgers", "Re-account a run with every accountant and judge a claim."),
        "report": ("ledgers", "Write the audit of a run as one self-contained HTML page."),
        "verify": (
            "certificates",
            "Prove the ends of certificates, or report the ends that fail.",
        ),
        "vectors": (
            "vectors",
            "Ask a privacy accountant the test vectors, and judge its answers.",
        ),
    },
    "This program": {
        "schema": ("program", "Print the JSON Schema of COMMAND's output with --json."),
        "completion": (
            "program",
            "Print a script that makes SHELL (bash, zsh or fish) complete commands and options.",
        ),
    },
}
"""Every command, by purpose: its module, and the first sentence of its help."""


@click.group(
    cls=PanelGroup,
    panels=COMMANDS,
    package=__package__,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
    epilog=EXIT_CODES,
)
@click.version_option(VERSION, prog_name="fedprivacy")
@click.pass_context
def cli(context: click.Context) -> None:
    """Differential privacy for federated learning, with certified bounds.

    Calibrate noise from a budget, account for a run, train, and audit a run. Start with "fedprivacy
    demo".
    """
    # Without a command, the help is more useful than an error.
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
