"""Pages of the reference: they show the members that users call, and a short sidebar."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
GENERATED = "reference/generated/"
FOR_AUTHORS = ("docs/extending.md", "docs/architecture.md", "docs/theory/", "examples/extend/")
"""Texts for people who write mechanisms, schemes or accountants of their own."""
ALWAYS = ("to_dict",)
"""Members that every user may call, though no text does."""
WHOLE = ("Mechanism", "Accountant", "Factor", "Loop", "PrivacyLoss")
"""Classes from which such people derive, whose pages show every member."""


@functools.cache
def used() -> frozenset[str]:
    """Return the names that the README, the pages and the examples call on an object."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = [*pages, *sorted((ROOT / "examples").rglob("*.py"))]
    made = {"_build", "_generated", "generated", "notebooks"}
    names: set[str] = set()
    for path in texts:
        place = path.relative_to(ROOT)
        if not made & set(place.parts) and not place.as_posix().startswith(FOR_AUTHORS):
            names |= set(re.findall(r"\.([a-z]\w*)", path.read_text(encoding="utf-8")))
    return frozenset(names)


def is_hidden(page: str, kind: str, name: str, fields: Any) -> bool:
    """Return whether a class's page leaves a member out: no field, and called in no text.

    Args:
        page: name of the page.
        kind: what has the member: "class", "module" and so on.
        name: name of the member.
        fields: the names of all fields of the class, as its annotations give them.
    """
    if kind != "class" or not page.startswith(GENERATED):
        return False
    return page.rpartition(".")[2] not in WHOLE and name not in (*used(), *ALWAYS, *fields)


def short_sidebar(tree: str) -> str:
    """Return a sidebar without the objects of the reference, which its first page lists."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(tree, "html.parser")
    for item in soup.select("li.toctree-l1"):
        if item.a is not None and item.a.get_text() == "Reference":
            for part in item.find_all(["ul", "input", "label"]):
                part.decompose()
            item["class"] = [one for one in item["class"] if one != "has-children"]
    return str(soup)
