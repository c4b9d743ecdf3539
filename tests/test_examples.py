"""The scripts in examples/ run, and print what they say they print."""

import ast
import doctest
import re
import runpy
import textwrap
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorials" / "own_loop.md"
CELL = re.compile(r"```\{code-cell\}\n(.*?)```", re.DOTALL)

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


@pytest.mark.parametrize("where", ["example", "tutorial"])
def test_the_own_loops_send_what_a_client_did_and_leave_the_servers_weights_alone(where):
    """Parameters made of a vector live in it: trained in place, clients wrote to the weights."""
    torch = pytest.importorskip("torch")
    if where == "example":
        path = next(path for path in EXAMPLES if path.stem == "own_pytorch_loop")
        begin = path.read_text(encoding="utf-8").partition("with fp.Ledger")[0]
    else:
        begin = CELL.findall(TUTORIAL.read_text(encoding="utf-8"))[0]
    names = {}
    with torch.random.fork_rng():
        exec(begin, names)
    parameters = names["model"].parameters()
    weights = torch.nn.utils.parameters_to_vector(parameters).detach().clone()
    before = weights.clone()
    moved = names["update"](names["clients"][0], weights)
    assert torch.equal(weights, before) and float(moved.norm()) > 0.01
