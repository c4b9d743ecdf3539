"""Badges as pictures of the project's own: ``python docs/_ext/badges.py`` writes them.

They say what pyproject.toml says and nothing else; ``tests/test_docs.py`` holds the two together.
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs/_static/badges"
LETTER = 6.6
"""Width of a letter of 11 pixels, generously."""


def facts(project: dict[str, object]) -> dict[str, tuple[str, str]]:
    """Return each badge's name, and what stands on its left and on its right."""
    found = {
        "python": ("python", str(project["requires-python"]).replace(">=", "") + " or newer"),
        # That of the code; the data have another one.
        "license": ("license", str(project["license"]).partition(" AND ")[0]),
    }
    classifiers = project["classifiers"]
    assert isinstance(classifiers, list)
    status = next(each for each in classifiers if each.startswith("Development Status"))
    found["status"] = ("status", status.rpartition(" - ")[2].lower())
    typed = "Typing :: Typed" in classifiers and (ROOT / "fedprivacy/py.typed").exists()
    return found | ({"typed": ("types", "mypy, strict")} if typed else {})


def badge(left: str, right: str) -> str:
    """Return one badge as SVG."""
    first, second = (round(LETTER * len(text) + 12) for text in (left, right))
    told = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="20" role="img" '
        f'aria-label="{told}"><title>{told}</title>'
        f'<rect width="{first}" height="20" fill="#444"/>'
        f'<rect x="{first}" width="{second}" height="20" fill="#1f6f66"/>'
        '<g fill="#fff" text-anchor="middle" font-family="sans-serif" font-size="11">'
        f'<text x="{first / 2:g}" y="14">{escape(left)}</text>'
        f'<text x="{first + second / 2:g}" y="14">{escape(right)}</text></g></svg>\n'
    )


def drawn() -> dict[str, str]:
    """Return every badge by the name of its file."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {f"{name}.svg": badge(*words) for name, words in facts(told["project"]).items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
