"""Tables of results: short ones between two markers of a page, long ones among the results."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from fedprivacy.outputs import whole_file

DOCS = Path(__file__).parents[2] / "docs" / "papers"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def put(page: str, name: str, text: str) -> None:
    """Replace the text between a page's two markers of a name."""
    path = DOCS / page
    begin, end = f"<!-- {name}: written by a script -->\n", f"\n<!-- end of {name} -->"
    known = path.read_text()
    before, _, rest = known.partition(begin)
    _, ended, after = rest.partition(end)
    if not ended:
        raise SystemExit(f"{path.name} lacks the marks of {name!r}, or a line between them")
    whole_file(path, f"{before}{begin}\n{text}\n{end}{after}")


def keep(path: Path, title: str, parts: Mapping[str, str]) -> None:
    """Write long tables to a file among the results, one section for each."""
    sections = [f"## {name}\n\n{text}\n" for name, text in parts.items()]
    whole_file(path, f"# {title}\n\n" + "\n".join(sections))
