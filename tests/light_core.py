"""Every command without the extras: it works, or it names its extra in one line and ends with 2.

``python tests/light_core.py`` runs them all where only the core is installed; ``make dist`` does.
``--hide`` hides every installed package that the core does not depend on, for a full environment.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
RUN = ["--noise-multiplier", "2", "--sampling-probability", "0.1", "--rounds", "10"]
ADD = ["--adjacency", "add_remove"]
AT = ["--delta", "1e-5", *ADD]
CLAIM = ["--claim", "8,1e-5", *ADD, "--sampling", "poisson", "--sampling-probability", "0.1"]
JUDGED = ["--noise-multiplier", "2", "--rounds", "10", *CLAIM]
BUDGET = ["--method", "dp-fedavg", "--epsilon", "8", "--delta", "1e-3"]

WORKS = [
    [],
    ["epsilon", *RUN, *AT, "--certificate", "run.json"],
    ["delta", *RUN, *ADD, "--epsilon", "1"],
    ["calibrate", "--sampling-probability", "0.1", "--rounds", "10", "--epsilon", "1", *AT],
    ["explain", *RUN, *AT],
    ["tradeoff", *RUN, *ADD, "--fpr", "0.01"],
    ["pareto", "--noise-multiplier", "1,2", *RUN[2:], *AT],
    ["choose", "--epsilon", "5", "--delta", "1e-5", "--set", "rounds=5", "--deadline", "1"],
    ["audit", *JUDGED],
    ["vectors", "list", "--family", "pure-dp"],
    ["papers", "list"],
    ["report", *JUDGED, "--output", "page.html"],
    ["report", *JUDGED, "--output", "page.md"],
    ["run", "run.toml"],
    ["schema", "audit"],
    ["completion", "bash"],
]
"""Command lines that need no extra."""

NEEDS = {
    "train": [
        ["train", *BUDGET],
        ["demo"],
        ["sweep", *BUDGET, "--set", "rounds=2,3"],
        ["papers", "run", "fed-plt/table-7", "--quick"],
    ],
    "report": [
        ["tradeoff", *RUN, *ADD, "--plot", "curve.png"],
        ["pareto", "--noise-multiplier", "1,2", *RUN[2:], *AT, "--output", "front.png"],
    ],
    "page": [["page"]],
    "verify": [["verify", "run.json"]],
}
"""Extra -> command lines that need it."""

RUN_FILE = """
command = "epsilon"
noise-multiplier = 2.0
sampling-probability = 0.1
rounds = 10
delta = 1e-5
adjacency = "add_remove"
"""


class Hidden:
    """An import blocker: these packages are not there."""

    def __init__(self, hidden: set[str]) -> None:
        self.hidden = hidden

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise the error of a missing package, or leave the import to others."""
        top = name.partition(".")[0]
        if top in self.hidden:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        return None


def beyond_the_core() -> set[str]:
    """Return the import names of the installed packages that the core does not depend on."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    waiting = [_named(one) for one in declared["project"]["dependencies"]]
    found = {"fedprivacy"}
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            asked = metadata.requires(name) or []
            waiting += [_named(one) for one in asked if not _is_conditional(one)]
    tops = metadata.packages_distributions()
    return {top for top, owners in tops.items() if not found & {_named(one) for one in owners}}


def _is_conditional(requirement: str) -> bool:
    # Extras, other systems and older Pythons.
    return ";" in requirement


def _named(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def answered(words: list[str]) -> tuple[int, str, str]:
    """Return the exit code of a command line, and what it printed."""
    from fedprivacy.cli import main

    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    return code, out.getvalue(), err.getvalue()


def problems() -> Iterator[str]:
    """Run every command line in the current folder; yield the failures."""
    Path("run.toml").write_text(RUN_FILE, encoding="utf-8")
    for words in WORKS:
        code, out, err = answered(words)
        if code != 0 or err or not out:
            yield f"{words}: exit code {code}, {err}"
    if "pip install &#39;fedprivacy[report]&#39;" not in Path("page.html").read_text("utf-8"):
        yield "the page without plots does not say how to get them"
    for extra, asked in NEEDS.items():
        for words in asked:
            code, out, err = answered(words)
            told = rf"fedprivacy: [\w ]+ needs \w+; pip install 'fedprivacy\[{extra}\]'\n"
            if (code, out) != (2, "") or not re.fullmatch(told, err):
                yield f"{words}: exit code {code}, {out}{err}"
    import click

    from fedprivacy.cli.group import cli

    every = set(cli.list_commands(click.Context(cli)))
    needing = [words for asked in NEEDS.values() for words in asked]
    tried = {words[0] for words in [*WORKS, *needing] if words}
    if tried != every:
        yield f"not tried: {sorted(every - tried)}"


def main() -> None:
    """Print the failures, and end with 1 if there is one."""
    if "--hide" in sys.argv:
        sys.meta_path.insert(0, Hidden(beyond_the_core()))  # type: ignore[arg-type]
    os.chdir(tempfile.mkdtemp())
    found = list(problems())
    print("\n".join(found) or "every command works, or names its extra")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
