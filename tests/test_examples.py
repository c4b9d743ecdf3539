"""The scripts in examples/ run, and print what they say they print."""

import ast
import doctest
import runpy
import textwrap
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


LONG = {"sequences"}
RUN = [pytest.param(p, marks=[pytest.mark.slow] * (p.stem in LONG), id=p.stem) for p in EXAMPLES]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", RUN)
def test_example(path, tmp_path, monkeypatch, capsys):
    if path.stem == "opacus_loop":
        pytest.importorskip("opacus")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path))
    printed = capsys.readouterr().out
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    expected = textwrap.dedent(said.partition("Prints::\n\n")[2]) + "\n"
    assert doctest.OutputChecker().check_output(expected, printed, FLAGS), printed


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short(path):
    assert 10 <= len(path.read_text(encoding="utf-8").splitlines()) <= 60
