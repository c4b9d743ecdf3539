"""The code blocks of README.md and of docs/ run, and print what they say they print."""

import ast
import doctest
import importlib
import importlib.util
import pkgutil
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.cli import main
from tests.common import ROOT, tree_of

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """Return (line, text) of every fenced block in a language."""
    text = page.read_text(encoding="utf-8")
    found = [(m.start(), m.group(1), m.group(2)) for m in BLOCK.finditer(text)]
    return [(text[:at].count("\n") + 1, body) for at, name, body in found if name == language]


def with_blocks(language: str) -> list[Path]:
    return [page for page in PAGES if page.exists() and blocks(page, language)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def has_commands(page: Path) -> bool:
    return any(text.startswith("fedprivacy ") for _, text in blocks(page, "sh"))


RUN = [page for page in PAGES if blocks(page, "python") or has_commands(page)]


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_python_blocks(page, tmp_path, monkeypatch):
    """With the commands between them; a block whose first line names a file is that file too."""
    monkeypatch.chdir(tmp_path)
    if "torch" in sys.modules:
        sys.modules["torch"].seed()  # an earlier test may have set a seed, and pages report it
    names: dict[str, object] = {"__name__": "docs"}
    commands = [one for one in blocks(page, "sh") if one[1].startswith("fedprivacy ")]
    for line, code in sorted([*blocks(page, "python"), *commands]):
        if (line, code) in commands:
            run_command(code)
        elif ">>>" in code:
            run_session(page, line, code, names)
        else:
            if file := re.match(r"# (\w+\.py)\n", code):
                Path(file[1]).write_text(code, encoding="utf-8")
            exec(compile("\n" * line + code, str(page), "exec"), names)


def run_command(command: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(shlex.split(command.replace("\\\n", " "))[1:])
    assert left.value.code in (0, None), command


def run_session(page: Path, line: int, code: str, names: dict[str, object]) -> None:
    session = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), line)
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    said: list[str] = []
    runner.run(session, out=said.append, clear_globs=False)
    names.update(session.globs)
    assert not runner.failures, "".join(said)


@pytest.mark.parametrize("page", with_blocks("console"), ids=name_of)
def test_console_blocks(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for line, text in blocks(page, "console"):
        found = re.findall(r"^\$ (.*?[^\\])\n(.*?)(?=^\$ |\Z)", text, re.M | re.S)
        assert found, f"{page.name}, line {line}: nothing after a prompt"
        for command, expected in found:
            words = shlex.split(command.replace("\\\n", " "))
            assert words[0] == "fedprivacy"
            with pytest.raises(SystemExit) as left:
                main(words[1:])
            output = capsys.readouterr().out
            where = f"{page.name}, line {line}: {command}\n{output}"
            assert left.value.code in (0, None), where
            assert doctest.OutputChecker().check_output(expected, output, FLAGS), where


def heading_anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_inside_the_repository_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), target
        assert not anchor or anchor in heading_anchors(file), target


def words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def written_by_hand(page: Path) -> bool:
    parts = page.relative_to(ROOT).parts
    return not {"_build", "_generated", "generated", "notebooks"} & set(parts)


def test_the_pages_are_short():
    """As `wc -w` counts; tables in `benchmarks` that a page includes are not in it."""
    pages = [page for page in PAGES if written_by_hand(page)]
    theory = ROOT / "docs" / "theory"
    proofs = sum(words(page) for page in pages if theory in page.parents)
    assert sum(map(words, pages)) - proofs <= 36_500
    # Every new theorem comes with its proof.
    assert proofs <= 50_000
    long = {name_of(page): words(page) for page in pages if theory not in page.parents}
    assert not {page: count for page, count in long.items() if count > 2_600}


REFERENCE = (ROOT / "docs/reference/index.md").read_text(encoding="utf-8")


def listed(module: str) -> set[str]:
    """Return the names that the reference lists under a module."""
    parts = re.findall(rf"currentmodule:: {re.escape(module)}\n(.*?)```", REFERENCE, re.S)
    return {name for part in parts for name in re.findall(r"^   (\w[\w.]*)$", part, re.M)}


def test_the_reference_lists_every_public_name():
    modules = {"errors", "accountants", "published", "factors"}
    # The module of the same name can be called; the reference shows its function.
    names = {"audit.audit" if name == "audit" else name for name in fp.__all__}
    assert names - modules - {"__version__"} <= listed("fedprivacy")
    tables = {"ACCOUNTANTS", "BY_NAME"}
    assert set(fp.accountants.__all__) - tables <= listed("fedprivacy.accountants")
    assert set(factors.__all__) <= listed("fedprivacy.factors") | listed("fedprivacy")
    training = pytest.importorskip("fedprivacy.training")
    assert set(training.__all__) == listed("fedprivacy.training")


@pytest.mark.parametrize("module", sorted(set(re.findall(r"currentmodule:: (\S+)", REFERENCE))))
def test_everything_in_the_reference_has_a_docstring(module):
    if module == "fedprivacy.training":
        pytest.importorskip("torch")
    for name in sorted(listed(module)):
        assert pkgutil.resolve_name(f"{module}.{name}").__doc__, name


def extension(name: str):
    """Return a module of the pages, whatever else goes by its name."""
    spec = importlib.util.spec_from_file_location(f"pages_{name}", ROOT / f"docs/_ext/{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables():
    return extension("tables")


def test_badges_say_what_pyproject_says():
    """And the README's words for them say the same; classifiers name no Python that is excluded."""
    badges = extension("badges")
    shown = {path.name: path.read_text(encoding="utf-8") for path in badges.FOLDER.glob("*.svg")}
    assert shown == badges.drawn() and len(shown) == 4, "python docs/_ext/badges.py writes them"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    told = re.findall(r"!\[([^]]+)\]\(docs/_static/badges/(\w+)\.svg\)", PAGES[0].read_text())
    facts = {name: " ".join(words) for name, words in badges.facts(project["project"]).items()}
    assert {name: text.replace(":", "").lower() for text, name in told} == {
        name: text.lower() for name, text in facts.items()
    }
    assert project["tool"]["mypy"]["strict"] and (ROOT / "LICENSE").read_text().count("Apache")
    oldest = int(re.search(r"3\.(\d+)", project["project"]["requires-python"])[1])
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["project"]["classifiers"]))
    assert min(map(int, named)) == oldest


def test_troubleshooting_quotes_messages_that_there_are():
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| `([^`]+)` \|", page, re.M)
    source = " ".join(path.read_text() for path in sorted((ROOT / "fedprivacy").rglob("*.py")))
    plain = " ".join(re.sub(r'"\s*\n\s*f?"', "", source).split())
    missing = [one for one in quoted if one not in plain]
    assert len(quoted) >= 15 and missing == []


def test_every_refusal_is_in_the_list_of_messages():
    """Each that is refused or required, but where its rule is a variable, is a line of the list."""
    pages = tables()
    said = {text for texts in pages.messages().values() for text, _ in texts}
    count = 0
    for path in sorted((ROOT / "fedprivacy").rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            before = pages.SKIPPED.get(getattr(getattr(node, "func", None), "id", ""))
            given = [] if before is None else node.args[before:]
            if len(given) < 3 or not isinstance(given[2], ast.Constant):
                continue
            count += 1
            rule = " ".join(str(given[2].value).split())
            assert any(text.endswith(f"must {rule}") for text in said), (path, rule)
    assert count > 200


def test_a_picture_has_words_and_ids_of_its_own():
    pictures = extension("pictures")
    for name in ("unit", "verdict", "growth"):
        drawn = pictures.svg(name, *pictures.PICTURES[name])
        assert 'role="img"' in drawn and pictures.PICTURES[name][0] in drawn
        assert all(one.startswith(f"{name}-") for one in re.findall(r' id="([^"]+)"', drawn))
        assert pictures.INK not in drawn


def test_a_class_s_page_shows_the_members_that_users_call(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    pages = extension("members")

    def hidden(kind, name, fields=()):
        return pages.is_hidden(f"reference/generated/fedprivacy.{kind}", "class", name, fields)

    for shown in ("contribution", "release", "sampled", "in_cohort"):
        assert hasattr(fp.Gaussian, shown) and not hidden("Gaussian", shown)
    for internal in ("knows_norm", "noise_ratios", "worst_scheme", "loss_under"):
        assert hasattr(fp.Gaussian, internal) and hidden("Gaussian", internal)
        assert not hidden("Mechanism", internal), "authors of mechanisms read about it there"
    assert not hidden("Bound", "resolution", ["resolution"]) and not hidden("Bound", "to_dict")


def test_the_reference_is_one_line_of_the_sidebar():
    pytest.importorskip("bs4")
    item = '<li class="toctree-l1 has-children"><a>{}</a><ul><li><a>one</a></li></ul></li>'
    tree = f"<ul>{item.format('Reference')}{item.format('Theory')}</ul>"
    assert extension("members").short_sidebar(tree).count("<a>one</a>") == 1


def test_diagrams_of_loops_follow_their_calls():
    pytest.importorskip("torch")
    pages = extension("flows")
    runs = {name: run() for name, run in pages.loops().items()}
    kinds = {name: [mark.kind for mark in pages.flat(steps)] for name, steps in runs.items()}
    for name, order in kinds.items():
        assert order.index("clip") < order.index("noise") < order.index("release"), name
    for name in ("DP-FedAvg", "Fed-SMP", "DP-FTRL", "SCAFFOLD"):
        assert "secure aggregation" in pages.verdict(runs[name])
        (folded,) = [step for step in runs[name] if not hasattr(step, "words")]
        assert folded[0] == pages.CLIENTS and folded[1][0].kind == "clip"
    for name in ("FA-LD", "FA-HMC", "Fed-PLT"):
        assert "no trusted server" in pages.verdict(runs[name])
    assert pages.folded(list("abababc")) == [(3, ("a", "b")), "c"]
    assert pages.drawn(runs["FA-LD"]).count("<li") == 7
