"""The scripts in examples/ run, and print what they say they print."""

import ast
import doctest
import re
import runpy
import textwrap
from functools import partial

import numpy as np
import pytest

from tests.common import ROOT

EXAMPLES = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "examples/extend").glob("*.py")])
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


TUTORIAL = ROOT / "docs" / "tutorials" / "own_loop.md"
CELL = re.compile(r"```\{code-cell\}\n(.*?)```", re.DOTALL)

LONG = {"sequences"}
RUN = [pytest.param(p, marks=[pytest.mark.slow] * (p.stem in LONG), id=p.stem) for p in EXAMPLES]


SAMPLING = [ROOT / "examples" / "sample_a_posterior.py", ROOT / "docs/tutorials/posterior.md"]


@pytest.fixture
def seeded_samplers(monkeypatch):
    """Seed the samplers of pages: whether chains have mixed is a matter of chance."""
    training = pytest.importorskip("fedprivacy.training")
    seeded = partial(training.LangevinSampling, seed=1)
    monkeypatch.setattr(training, "LangevinSampling", seeded)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", RUN)
def test_example(path, tmp_path, monkeypatch, capsys, request):
    if path.stem in ("opacus_loop", "verify_framework"):
        pytest.importorskip("opacus")
    if path.stem == "jax_plan":
        pytest.importorskip(
            "jax_privacy", reason="pip install jax-privacy optax '.[test]' elsewhere"
        )
    if path in SAMPLING:
        request.getfixturevalue("seeded_samplers")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(path))
    if path in SAMPLING:
        _check_close(names["draws"][0].numpy(), *_exact_posterior(names["clients"]))
    printed = capsys.readouterr().out
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    expected = textwrap.dedent(said.partition("Prints::\n\n")[2]) + "\n"
    assert doctest.OutputChecker().check_output(expected, printed, FLAGS), printed


@pytest.mark.slow
def test_the_tutorials_draws_pass_their_own_diagnosis(seeded_samplers):
    from fedprivacy import training

    cells = CELL.findall(SAMPLING[1].read_text(encoding="utf-8"))
    upto = next(number for number, cell in enumerate(cells) if "state.draws" in cell)
    names = {}
    for cell in cells[: upto + 1]:
        exec(cell, names)
    found, truth = training.diagnose(names["draws"]), _exact_posterior(names["clients"])
    assert found.mixed, str(found)
    _check_close(names["draws"].reshape(-1, 2).numpy(), *truth)


def _exact_posterior(clients):
    """Return mean and standard deviations of slope and intercept in closed form, prior N(0, 1)."""
    x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    design = np.stack([x, np.ones_like(x)], axis=1)
    covariance = np.linalg.inv(design.T @ design / 0.25 + np.eye(2))
    return covariance @ design.T @ y / 0.25, np.sqrt(np.diag(covariance))


def _check_close(draws, mean, std):
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 0.5 * std)
    assert np.all((0.8 * std < draws.std(axis=0)) & (draws.std(axis=0) < 1.5 * std))


def test_every_page_that_samples_a_posterior_is_diagnosed_above():
    pages = [*EXAMPLES, *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    assert [page for page, text in texts.items() if "state.draws" in text] == SAMPLING
    assert all("training.diagnose(draws)" in texts[page] for page in SAMPLING)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short(path):
    most = 120 if path.parent.name == "extend" else 60
    assert 10 <= len(path.read_text(encoding="utf-8").splitlines()) <= most


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_whether_its_run_is_private(path):
    """An example that claims to be correct leaves a ledger, or the record of its library."""
    text = path.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""
    correct, shown = "Correct end to end" in said, "A demonstration" in said
    assert correct != shown
    assert not correct or "Ledger" in text or "state_dict" in text
    assert not shown or "Ledger.create" not in text


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
