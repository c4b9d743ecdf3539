"""Tables of results between two markers: in a page, or in its file of long tables."""

from collections.abc import Iterable
from pathlib import Path

from fedprivacy.outputs import whole_file

DOCS = Path(__file__).parents[2] / "docs" / "papers"
LONG = Path(__file__).parent / "results"
"""Folder of the long tables: those of ``docs/papers/fa_ld.md`` are in ``results/fa_ld.md``."""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def put(page: str, name: str, text: str) -> None:
    """Replace the text between the two markers of a name, in a page or its long tables."""
    begin, end = f"<!-- {name}: written by a script -->\n", f"\n<!-- end of {name} -->"
    for path in (DOCS / page, LONG / Path(page).name):
        known = path.read_text(encoding="utf-8") if path.exists() else ""
        before, _, rest = known.partition(begin)
        _, ended, after = rest.partition(end)
        if ended:
            whole_file(path, f"{before}{begin}\n{text}\n{end}{after}")
            return
    raise SystemExit(f"{page} lacks the marks of {name!r}, or a line between them")
