"""One word for one thing in public signatures: the table of CONTRIBUTING.md."""

import ast
import dataclasses
import inspect
import re
from functools import cache

import pytest

import fedprivacy as fp
from tests.common import ROOT, statements, tree_of

PACKAGE = ROOT / "fedprivacy"
CODE = re.compile(r"`([^`]+)`")


@cache
def rows():
    """Return (words not to use, places where they stay) of every row."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Words in signatures")[2]
    lines = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    return [(CODE.findall(instead), CODE.findall(places)) for _, _, instead, places in lines]


def table():
    """Return word not to use -> places where it stays."""
    allowed: dict[str, set[str]] = {}
    for words, places in rows():
        for word in words:
            allowed.setdefault(word, set()).update(places)
    return allowed


def is_data(node):
    """Return whether a class is a dataclass or the like: its fields are its signature."""
    told = [ast.unparse(each) for each in (*node.decorator_list, *node.bases)]
    return any(kind in each for each in told for kind in ("dataclass", "NamedTuple", "Struct"))


def public_names(body, place):
    """Yield (where, name) of every public parameter and field below a list of statements."""
    inherited = {
        ast.unparse(base).partition("[")[0]
        for node in body
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    }
    for node in body:
        # Fields of a private base are typed by the user of the public class.
        if isinstance(node, ast.ClassDef) and (node.name[0] != "_" or node.name in inherited):
            inside = f"{place}:{node.name}"
            if is_data(node):
                held = [n.target for n in node.body if isinstance(n, ast.AnnAssign)]
                yield from ((inside, t.id) for t in held if isinstance(t, ast.Name))
            yield from public_names(node.body, inside)
        if isinstance(node, ast.FunctionDef) and not re.match(r"_(?!_init__)", node.name):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            yield from ((f"{place}:{node.name}", each.arg) for each in every)


@cache
def signatures():
    return [
        found
        for path in sorted(PACKAGE.rglob("*.py"))
        for found in public_names(
            tree_of(path).body,
            str(path.relative_to(PACKAGE)).removesuffix(".py"),
        )
    ]


def has_word(name, word):
    return re.search(rf"(^|_){word}(_|$)", name) is not None


def test_the_table_is_read_and_the_walk_sees_what_people_type():
    assert len(table()) >= 25 and len(rows()) >= 15
    found = set(signatures())
    assert {name for where, name in found if where.endswith(":fa_ld_theorem_6_1")} >= {
        "clients",
        "local_steps",
        "temperature",
    }
    assert ("mechanisms/sparsified:SparsifiedPerturbation", "clip_norm") in found


def test_the_walk_sees_every_public_name():
    """The newest mechanism as well: by its class, or by the one that its fields are declared in."""
    seen = {where for where, _ in signatures()}
    missed = []
    for name in fp.__all__:
        thing = getattr(fp, name)
        if not inspect.isfunction(thing) and not dataclasses.is_dataclass(thing):
            continue
        kinds = thing.__mro__ if inspect.isclass(thing) else (thing,)
        places = {f"{k.__module__}.{k.__qualname__}" for k in kinds}
        known = {f"fedprivacy.{where}".replace("/", ".").replace(":", ".") for where in seen}
        if not places & known:
            missed.append(name)
    assert not missed


@pytest.mark.parametrize("word", sorted(table()))
def test_no_public_name_says_it_otherwise(word):
    places = table()[word]
    wrong = [
        f"{where}({name})"
        for where, name in signatures()
        if has_word(name, word) and not any(where.startswith(place) for place in places)
    ]
    assert not wrong, f"say it as CONTRIBUTING.md does: {wrong}"


def test_every_place_of_the_table_still_says_its_word():
    """An unused exception is removed."""
    for words, places in rows():
        for place in places:
            inside = [name for where, name in signatures() if where.startswith(place)]
            assert any(has_word(name, word) for name in inside for word in words), (words, place)


def test_a_record_is_a_piece_of_data_and_nothing_else():
    """No class is called so but those of data; what other programs leave is a trace."""
    named = [
        f"{path.relative_to(PACKAGE)}:{node.name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in statements(tree_of(path))
        if isinstance(node, ast.ClassDef) and re.search(r"Record(?!s)", node.name)
    ]
    assert named == ["runs/methods/records.py:RecordJob"]
    data = (
        "training",
        "systems",
        "papers",
        "runs",
        "theory",
        "audit/attacks",
        "audit/canaries",
        "cli",
    )
    wrong = [
        (at, n) for at, n in signatures() if has_word(n, "records?") and not at.startswith(data)
    ]
    assert not wrong, wrong
