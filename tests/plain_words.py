"""Turns of phrase that engineers in this field do not use, counted in prose and in messages.

    python tests/plain_words.py

Prose is docstrings and comments, and Markdown without code, tables and formulas.
Messages are the other string literals of the package with three words or more. A count says where
to look. Whether a sentence is clear only a reader can say.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent

MARKS = (
    r"\b(told|tells)\b",
    r"\b(whoever|whatever they)\b",
    r"\bbeside\b",
    r"\b(mend|mended|mends)\b",
    r"\bof (it|them)[.,;:]",
    r"\b(so|as) far as\b",
    r"\b\w+ alone\b",
    r"\bwhat (is|was|are|were|has|had|does|did|comes|came|goes|stands)\b",
    r"\b(stands?|stood)\b",
    r"\b(is|was|are|were) asked\b",
    r"\b(goes|went|go) on\b",
    r"\bsuch an?\b",
    r"\banother than\b",
    r"\b(by|of|to|in|on|from) which\b",
    r"\bof (its|one's|their) own\b",
    r"\bthat there (is|are|was|were)\b",
    r"\b(whole numbers?|true alarms?|false alarms?)\b",
    r"\b(nobody|nothing)\b",
)
MESSAGE_MARKS = (
    *MARKS,
    r"\b(somebody|everybody)\b",
    r"\bgone on\b",
    r"\b(asked|priced|afresh)\b",
    r"\bfor instance\b",
    r"\bthe (rate of )?(true|false) alarms?\b",
    r"\bno such thing\b",
)
"""Marks of messages: those of prose, and words that a reader of a message may not know."""

AROUND = ("tests", "benchmarks", "examples")
"""Folders of code around the package; each is one room, without its messages."""

WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
"""Ends of paragraphs: empty lines, and the beginnings of the items of a list."""


STRING_OR_COMMENT = re.compile(
    r"\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|#[^\n]*",
    re.S,
)
"""Much faster than the tokenizer of the standard library."""


def documented(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and all its classes and functions, without a look at expressions."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from documented(child)


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file, which the tests of the whole repository share."""
    return ast.parse(path.read_text(encoding="utf-8"))


def prose_of_code(text: str, tree: ast.Module | None = None) -> str:
    """Return docstrings and comments of a module, without code in them."""
    found = [ast.get_docstring(node) or "" for node in documented(tree or ast.parse(text))]
    found += [part.lstrip("# ") for part in STRING_OR_COMMENT.findall(text) if part[0] == "#"]
    plain = re.sub(r"^\s*(>>>|\.\.\.).*$", "", "\n".join(found), flags=re.M)
    return re.sub(r"``[^`]*``|`[^`]*`", "X", plain)


def messages_of_code(tree: ast.Module) -> list[str]:
    """Return the string literals of a module that are not docstrings, without code in them."""
    nodes = list(ast.walk(tree))
    statements = (node.value for node in nodes if isinstance(node, ast.Expr))
    skipped = {id(value) for value in statements if isinstance(value, ast.Constant)}
    found = []
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] * (id(node) not in skipped)
    plain = (" ".join(re.sub(r"``[^`]*``|`[^`]*`|\b\w+=", "X", one).split()) for one in found)
    return [one for one in plain if " " in one and len(WORD.findall(one)) >= 3]


def sentence_lengths(texts: Iterable[str]) -> list[int]:
    """Return the number of words of every sentence, in increasing order."""
    sentences = (part for text in texts for part in re.split(r"[.;:!?]\s+", text))
    return sorted(count for one in sentences if (count := len(WORD.findall(one))) >= 3)


def prose_of_page(text: str) -> str:
    """Return a Markdown page without code, tables, headings and formulas."""
    text = re.sub(r"^(```|~~~).*?^\1.*?$", " ", text, flags=re.S | re.M)
    text = re.sub(r"^:::+.*$|^[ \t]*\|.*$|^    .*$|^#+ .*$", " ", text, flags=re.M)
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|<!--.*?-->", "X", text, flags=re.S)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def room_of(path: Path) -> str:
    """Return the room that a file counts for: a folder of the package or of docs, or the file."""
    parts = path.relative_to(ROOT).parts
    if len(parts) == 1 or parts[0] in AROUND:
        return parts[0]
    return "/".join(parts[:2]) if len(parts) > 2 else f"{parts[0]}/*"


@cache
def prose() -> dict[str, list[str]]:
    """Return the paragraphs of every room: of docstrings, comments and Markdown."""
    found: dict[str, list[str]] = defaultdict(list)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    code = [path for folder in ("fedprivacy", *AROUND) for path in (ROOT / folder).rglob("*.py")]
    for path in sorted([*code, *pages]):
        if {"_build", "_generated", "generated"} & set(path.parts):
            continue
        text = path.read_text(encoding="utf-8")
        shared = tree_of(path) if (ROOT / "fedprivacy") in path.parents else None
        plain = prose_of_page(text) if path.suffix == ".md" else prose_of_code(text, shared)
        found[room_of(path)] += [" ".join(part.split()) for part in PARAGRAPH.split(plain)]
    return found


def measured() -> dict[str, tuple[int, int]]:
    """Return (marks, words) of every room."""
    found = {}
    for room, parts in prose().items():
        text = " ".join(parts)
        marks = sum(len(re.findall(mark, text, flags=re.I)) for mark in MARKS)
        found[room] = marks, len(WORD.findall(text))
    return found


@cache
def messages() -> dict[str, list[str]]:
    """Return the messages of every room of the package."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "fedprivacy").rglob("*.py")):
        found[room_of(path)] += messages_of_code(tree_of(path))
    return found


def marked(texts: Iterable[str]) -> list[str]:
    """Return the messages that contain a mark."""
    rules = [re.compile(mark, re.I) for mark in MESSAGE_MARKS]
    return [text for text in texts if any(rule.search(text) for rule in rules)]


def shown(texts: Iterable[str]) -> str:
    """Return the mean of the words of a sentence, and their 95 % quantile."""
    lengths = sentence_lengths(texts)
    mean, most = sum(lengths) / len(lengths), lengths[int(0.95 * (len(lengths) - 1))]
    return f"{mean:5.1f} words a sentence, 95 %: {most}"


if __name__ == "__main__":
    for name, (marks, words) in sorted(measured().items()):
        share = f"{marks:5d} marks in {words:6d} words, {1000 * marks / words:5.1f} a 1,000"
        print(f"{name:28s} {share}, {shown(prose()[name])}")
    for name, texts in sorted(messages().items()):
        print(f"{name:28s} {len(marked(texts)):5d} marked of {len(texts):5d}, {shown(texts)}")
        for text in marked(texts):
            print(f"    {text[:160]}")
