"""Look for links of the built site that lead nowhere: ``python docs/_ext/links.py FOLDER``.

Pages, files and anchors inside the site; addresses elsewhere are not asked.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and which anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links and anchors."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


@cache
def page(path: Path) -> Page:
    """Return a page, read once."""
    found = Page()
    found.feed(path.read_text(encoding="utf-8"))
    return found


def dead(path: Path, link: str) -> bool:
    """Return whether a link of a page leads nowhere."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
    if target.is_dir():
        target = target / "index.html"
    if not target.exists():
        return True
    anchored = parts.fragment and target.suffix == ".html"
    return bool(anchored) and unquote(parts.fragment) not in page(target).anchors


def main(folder: str) -> int:
    """Print dead links and return how many there are."""
    count, found = 0, 0
    for path in sorted(Path(folder).rglob("*.html")):
        for link in page(path.resolve()).links:
            count += 1
            if dead(path, link):
                found += 1
                print(f"{path.relative_to(folder)}: {link}")
    print(f"{count} links, {found} lead nowhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
