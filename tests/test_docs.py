"""The code blocks of README.md and of docs/ run, and print what they say they print."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from fedprivacy.cli import main

ROOT = Path(__file__).parent.parent
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


@pytest.mark.parametrize("page", with_blocks("python"), ids=name_of)
def test_python_blocks(page, tmp_path, monkeypatch):
    """With the commands between them; a block whose first line names a file is that file too."""
    monkeypatch.chdir(tmp_path)
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
        for command, expected in re.findall(r"^\$ (.*?[^\\])\n(.*?)(?=^\$ |\Z)", text, re.M | re.S):
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
