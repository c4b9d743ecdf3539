"""One name for one thing: class names of the package, and the theorems that its text names."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.common import statements, tree_of
from tests.plain_words import STRING_OR_COMMENT

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fedprivacy"

ALONE = {"check_certificate.py"}
"""Files that are read without the rest of the package."""

SHARED_NAMES = {
    "Accountant": "the word of Flower's interface, and of the package",
    "CertifiedAccountant": "an accountant for dp-accounting, and one for Opacus",
    "Interval": "a public enclosure of a number, and the answer of a strategy",
    "RdpAccountant": "of this package, and with the constructor of dp-accounting's",
    "Statement": "of a run in a file, and of a theorem",
    "_Plan": "of two strategies",
}
"""Class names with two meanings, and the meanings. Remove a name once a class is renamed."""

HEADING = re.compile(r"^#+ (Theorems? )?([A-Z][0-9]*(?: and [A-Z])?): ", re.M)
NUMBERED = re.compile(r"\b[TI][0-9]{1,2}\b|\bA[0-9]\b")
LETTERED = re.compile(r"Theorems? ([A-Z](?:(?:, | and )[A-Z])*) (?:of|in) (\w+\.md)")
PAGE = re.compile(r"docs/[\w/]+\.md")


@cache
def classes() -> dict[str, list[str]]:
    """Return every class name with the files that define it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name not in ALONE:
            for node in statements(tree_of(path)):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(PACKAGE)))
    return found


@cache
def texts() -> dict[Path, str]:
    """Return the docstrings, comments and other strings of every module."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        said = STRING_OR_COMMENT.findall(path.read_text(encoding="utf-8"))
        plain = " ".join(part.lstrip("# ") for part in said)
        found[path] = " ".join(plain.replace('"', " ").split())
    return found


@cache
def headings(page: Path) -> frozenset[str]:
    """Return the names of the theorems that have a heading on a page."""
    found = HEADING.findall(page.read_text(encoding="utf-8"))
    return frozenset(name for _, names in found for name in names.split(" and "))


def test_a_class_name_is_defined_once():
    several = {name: places for name, places in classes().items() if len(places) > 1}
    assert len(classes()) > 300
    new = {name: places for name, places in several.items() if name not in SHARED_NAMES}
    assert not new, f"name each class by what it is: {new}"
    assert not set(SHARED_NAMES) - set(several), "remove names that are defined once"


def test_theorems_have_one_heading_each():
    found = [
        name for page in sorted((ROOT / "docs/theory").glob("*.md")) for name in headings(page)
    ]
    numbered = [name for name in found if NUMBERED.fullmatch(name)]
    assert len(numbered) >= 20 and len(set(numbered)) == len(numbered)


def test_every_theorem_that_the_package_names_has_a_heading():
    pages = (ROOT / "docs/theory").glob("*.md")
    known = {name for page in pages for name in headings(page) if NUMBERED.fullmatch(name)}
    named = {
        (str(path.relative_to(PACKAGE)), name)
        for path, text in texts().items()
        for name in NUMBERED.findall(text)
    }
    assert len(named) > 50
    missing = sorted(place for place in named if place[1] not in known)
    assert not missing, f"docs/theory has no heading for {missing}"


def test_every_lettered_theorem_has_a_heading_on_its_page():
    count = 0
    for path, text in texts().items():
        for letters, page in LETTERED.findall(text):
            for letter in re.findall("[A-Z]", letters):
                count += 1
                assert letter in headings(ROOT / "docs/theory" / page), (path, letter, page)
    assert count >= 5


@pytest.mark.parametrize("line", ["## T6: contraction", "### Theorems D and E: bins"])
def test_a_heading_is_read(line, tmp_path):
    page = tmp_path / "a.md"
    page.write_text(line)
    assert headings(page) == (frozenset({"T6"}) if "T6" in line else frozenset({"D", "E"}))


def test_every_page_that_the_package_names_is_there():
    named = {page for text in texts().values() for page in PAGE.findall(text)}
    assert len(named) > 5
    assert [page for page in sorted(named) if not (ROOT / page).is_file()] == []
