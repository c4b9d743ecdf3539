"""Tutorials as Jupyter notebooks to download, made from the pages themselves."""

from __future__ import annotations

from pathlib import Path

import nbformat
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig


def write(pages: Path, folder: Path) -> None:
    """Write NAME.ipynb for every page that runs."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in sorted(pages.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if is_myst_markdown_notebook(text):
            found = read_myst_markdown_notebook(text, MdParserConfig())
            for number, cell in enumerate(found.cells):
                cell.id = f"cell-{number}"
            nbformat.write(found, folder / f"{page.stem}.ipynb")
