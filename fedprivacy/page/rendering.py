"""Pages and parts of pages, from the templates of this folder."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from ..audit.reporting import environment

FILES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""Files that the page needs -> their media types."""


def content(name: str) -> str:
    """Return the content of a file of this folder."""
    return (files(__package__) / name).read_text("utf-8")


@cache
def _templates() -> Any:
    from jinja2 import DictLoader

    made = environment(autoescape=True)
    names = ("page.html", "parts.html", "fields.html")
    made.loader = DictLoader({name: content(name) for name in names})
    return made


def page(**values: Any) -> str:
    """Return the whole page."""
    text: str = _templates().get_template("page.html").render(**values)
    return text


def html(part: str, **values: Any) -> str:
    """Return a part of the page: a macro of ``parts.html``, given its arguments by name."""
    macro = getattr(_templates().get_template("parts.html").module, part)
    return str(macro(**values))
