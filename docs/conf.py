"""Sphinx configuration. Two tables, of pairs and of defects, are printed from the code."""

import sys
from itertools import product
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from fedprivacy import __version__ as release  # noqa: E402
from fedprivacy import sampling  # noqa: E402
from fedprivacy.audit import defects  # noqa: E402
from fedprivacy.relations import Adjacency, Observer  # noqa: E402

project = "fedprivacy"
author = "the fedprivacy authors"
version = release
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "reference_table.md", "defects_table.md"]
html_theme = "furo"
html_title = f"fedprivacy {release}"
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["opacus"]
napoleon_use_ivar = True
napoleon_use_rtype = False


def row(scheme: str, observer: Observer, adjacency: Adjacency) -> str:
    """Return one line of the reference table."""
    cell = sampling.TABLE.get((scheme, observer, adjacency))
    if cell is None:
        return f"| {scheme} | {observer} | {adjacency} | **UNSUPPORTED** | | |"
    attained = f"{cell.attained}: {cell.datasets}" if cell.attained else "not known"
    pair = cell.pair.replace("|", "\\|")
    return f"| {scheme} | {observer} | {adjacency} | {pair} | {cell.theorem} | {attained} |"


def reference_table() -> str:
    """Return every scheme, observer and adjacency of the code's table, in its order."""
    schemes = dict.fromkeys(scheme for scheme, _, _ in sampling.TABLE)
    seen = (Observer.AGGREGATE, Observer.SERVER)
    lines = [
        "| scheme | observer | adjacency | pair of one round | theorem | attained by |",
        "|---|---|---|---|---|---|",
        *(row(*key) for key in product(schemes, seen, Adjacency)),
    ]
    return "\n".join(lines) + "\n"


(HERE / "reference_table.md").write_text(reference_table(), encoding="utf-8")
(HERE / "defects_table.md").write_text(defects.table(), encoding="utf-8")


def plain_bars(app, what, name, obj, options, lines):
    """Keep the bars of |x| in docstrings from being read as substitutions."""
    for i, line in enumerate(lines):
        pieces = line.split("``")
        pieces[::2] = [piece.replace("|", "\\|") for piece in pieces[::2]]
        lines[i] = "``".join(pieces)


def setup(app):
    """Connect the hook."""
    app.connect("autodoc-process-docstring", plain_bars)
