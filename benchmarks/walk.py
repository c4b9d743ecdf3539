"""The calls of a question, and the functions that it visits, in order: README's epsilon and others.

    python benchmarks/walk.py            # functions and files of every question
    python benchmarks/walk.py epsilon    # the stops of one question, as a table

Everything is imported first, and a question with other numbers is asked before, so neither imports
nor caches that serve every question count.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import fedprivacy as fp

PACKAGE = Path(fp.__file__).parent


def epsilon(z: float) -> object:
    """Ask README's first question, at a noise multiplier."""
    run = fp.Gaussian(noise_multiplier=z, unit="client").sampled(fp.Poisson(1 / 60)) * 180
    return fp.epsilon(run, delta=1e-5, adjacency="add_remove")


def gaussian(z: float) -> object:
    """Ask for the epsilon of rounds without sampling."""
    run = fp.Gaussian(noise_multiplier=z, unit="client") * 180
    return fp.epsilon(run, delta=1e-5, adjacency="add_remove")


def calibrate(z: float) -> object:
    """Ask README's third question, for an epsilon next to 1."""
    return fp.calibrate(
        lambda z: fp.Gaussian(noise_multiplier=z, unit="client").sampled(fp.Poisson(1 / 60)) * 180,
        epsilon=z / 1.4,
        delta=1e-5,
        adjacency="add_remove",
    )


def audit(z: float) -> object:
    """Write a ledger of three rounds, and audit it."""
    step = fp.Gaussian(noise_multiplier=z, unit="client").sampled(fp.Poisson(1 / 60))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.ledger"
        with fp.Ledger.create(path, unit="client", adjacency="add_remove", plan=step) as ledger:
            for _ in range(3):
                number = ledger.intent(step, clip_norm=1.0, noise_std=z)
                ledger.done(number, cohort=100, arrived=100, refused=0, noise_std=z)
        return fp.audit(path, claim=(1.0, 1e-5))


QUESTIONS = {"epsilon": epsilon, "gaussian": gaussian, "calibrate": calibrate, "audit": audit}


def calls(ask: Callable[[float], object]) -> list[tuple[CodeType | None, CodeType]]:
    """Return the calls within the package that a question makes, in order: (caller, called)."""
    ask(1.3)
    found: list[tuple[CodeType | None, CodeType]] = []
    root = str(PACKAGE)
    stack: list[CodeType | None] = [None]

    def note(frame: FrameType, event: str, _: Any) -> None:
        if not frame.f_code.co_filename.startswith(root):
            return
        if event == "call":
            found.append((stack[-1], frame.f_code))
            stack.append(frame.f_code)
        elif event == "return":
            stack.pop()

    sys.setprofile(note)
    try:
        ask(1.4)
    finally:
        sys.setprofile(None)
    return found


def visited(ask: Callable[[float], object]) -> list[CodeType]:
    """Return the code that a question runs, in order of the first call."""
    return list(dict.fromkeys(code for _, code in calls(ask)))


def part_of(code: CodeType) -> str:
    """Return the part of the package that holds some code, as in ``tests/arrows.py``."""
    return Path(code.co_filename).relative_to(PACKAGE).parts[0].removesuffix(".py")


def stops(ask: Callable[[float], object]) -> list[tuple[str, str, str]]:
    """Return (file, function, its first sentence) for the first documented function of each file.

    The order is that of the first visits.
    """
    found: dict[str, tuple[str, str]] = {}
    for code in visited(ask):
        path = Path(code.co_filename)
        place = path.relative_to(PACKAGE).as_posix()
        if place not in found and (text := _sentence(path, code)):
            found[place] = code.co_qualname, text
    return [(place, *entry) for place, entry in found.items()]


def _sentence(path: Path, code: CodeType) -> str:
    """Return the first line of a function's docstring; "" without one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            lines = (node.lineno, *(each.lineno for each in node.decorator_list))
            if code.co_firstlineno in lines:
                return (ast.get_docstring(node) or "").split("\n")[0]
    return ""


def table(ask: Callable[[float], object] = epsilon) -> str:
    """Return the stops of a question as a table, with its numbers of functions and files."""
    code = visited(ask)
    files = len({each.co_filename for each in code})
    lines = [
        f"The question enters {len(code)} functions (comprehensions count) in {files} files.",
        "",
        "| file | entered by | what it does |",
        "|---|---|---|",
    ]
    for place, name, text in stops(ask):
        told = text.replace("|", "\\|")
        lines.append(f"| `{place}` | `{name}` | {told} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the numbers of all questions, or the stops of one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("question", nargs="?", choices=QUESTIONS)
    asked = parser.parse_args().question
    if asked:
        print(table(QUESTIONS[asked]))
        return
    print(
        f"{'question':<12}{'calls':>8}{'functions':>11}{'without comprehensions':>24}{'files':>7}"
    )
    for name, ask in QUESTIONS.items():
        made = calls(ask)
        code = {each for _, each in made}
        plain = [each for each in code if not each.co_name.startswith("<")]
        files = {each.co_filename for each in code}
        print(f"{name:<12}{len(made):>8}{len(code):>11}{len(plain):>24}{len(files):>7}")


if __name__ == "__main__":
    main()
