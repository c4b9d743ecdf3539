"""Records: encoding and decoding is the identity, and no other class is built."""

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprivacy import registry
from fedprivacy.errors import LedgerError, positive
from fedprivacy.ledger import REGISTRY
from fedprivacy.registry import MAX_DEPTH, decode, encode


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Leaf:
    size: float
    count: int = 1
    colour: Colour | None = None
    name: str = ""
    certain: bool = False

    def __post_init__(self) -> None:
        positive(size=self.size)


@dataclass(frozen=True)
class Node:
    parts: "tuple[tuple[Node | Leaf, int], ...]"
    other: Any = None


KNOWN = {"Leaf": Leaf, "Node": Node}
sizes = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
integers = st.integers(-(2**63) + 1, 2**63 - 1)
leaves = st.builds(
    Leaf, sizes, integers, st.none() | st.sampled_from(Colour), st.text(), st.booleans()
)
plain = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(plain | st.text() | leaves, lambda x: st.lists(x, max_size=3).map(tuple))
nodes = st.recursive(
    leaves,
    lambda inner: st.builds(
        Node, st.lists(st.tuples(inner, integers), max_size=3).map(tuple), anything
    ),
    max_leaves=8,
)


def types_of(value: object) -> object:
    """Return a value's types all the way down: 1 == True == 1.0 must not pass."""
    if isinstance(value, tuple):
        return tuple(types_of(item) for item in value)
    inner = vars(value).values() if isinstance(value, Leaf | Node) else ()
    return (type(value), *(types_of(item) for item in inner))


@given(nodes | anything)
def test_round_trip_through_json(value):
    text = json.dumps(encode(value, KNOWN), allow_nan=False)
    back = decode(json.loads(text), KNOWN)
    assert back == value
    assert types_of(back) == types_of(value)


json_values = st.recursive(
    plain | st.text() | st.floats(),
    lambda x: st.lists(x, max_size=2) | st.dictionaries(st.text(), x, max_size=2),
    max_leaves=4,
)
records = st.recursive(
    json_values,
    lambda x: st.fixed_dictionaries(
        {
            "type": st.sampled_from([*REGISTRY, "os.system", 3]),
            "version": st.sampled_from([1, 1, 1, 2, True, None]),
            "fields": st.dictionaries(
                st.sampled_from(
                    ["inner", "scheme", "parts", "noise_multiplier", "probability", "size", "unit"]
                ),
                x,
                max_size=2,
            ),
        }
    ),
    max_leaves=5,
)


@settings(max_examples=100)
@given(records)
def test_whatever_is_read_is_refused_or_makes_sense(data):
    try:
        value = decode(data, REGISTRY)
    except LedgerError:
        return
    assert decode(encode(value, REGISTRY), REGISTRY) == value


def leaf(**changes: object) -> dict[str, object]:
    record: dict[str, object] = {"type": "Leaf", "version": 1, "fields": {"size": 1.0}}
    return {**record, **changes}


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (
            leaf(type="Tree"),
            "unknown type 'Tree'; import the file that defines and registers it, or use one of "
            "'Leaf' or 'Node'",
        ),
        (leaf(type="builtins.eval"), "unknown type"),
        (leaf(type=["Leaf"]), "unknown type"),
        (leaf(version=2), "version 2"),
        (leaf(version=True), "version True"),
        (leaf(version="1"), "version '1'"),
        (leaf(extra=1), "'extra'"),
        ({"type": "Leaf"}, "keys"),
        ({}, "got none"),
        (leaf(fields=[]), "fields of Leaf"),
        (leaf(fields={}), "lacks its field 'size'"),
        (leaf(fields={"size": 1.0, "weight": 2}), "no field 'weight'"),
        (leaf(fields={"size": -1.0}), "size must be a finite number above 0, got -1.0"),
        (leaf(fields={"size": math.nan}), "finite"),
        (leaf(fields={"size": math.inf}), "finite"),
        (leaf(fields={"size": "1"}), r"Leaf.size: must be float, got '1'"),
        (leaf(fields={"size": True}), "must be float"),
        (leaf(fields={"size": 1.0, "count": 1.5}), "Leaf.count: must be int"),
        (leaf(fields={"size": 1.0, "count": 2**63}), "64 bits"),
        (leaf(fields={"size": 1.0, "colour": "green"}), "Leaf.colour"),
        (leaf(fields={"size": 1.0, "name": None}), "Leaf.name"),
        (leaf(fields={"size": 1.0, "certain": 1}), "Leaf.certain"),
        ({"type": "Node", "version": 1, "fields": {"parts": [[leaf(), 1, 2]]}}, "Node.parts"),
        ({"type": "Node", "version": 1, "fields": {"parts": [[3, 1]]}}, "Node.parts"),
        (np.float64(1.0), "float64"),
        (b"bytes", "bytes"),
    ],
)
def test_refused_by_name(data, named):
    with pytest.raises(LedgerError, match=named):
        decode(data, KNOWN)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, math.nan, object(), {1}, b"", 2**63, np.int64(3), Leaf, [1]]
)
def test_what_cannot_be_recorded_is_not(value):
    with pytest.raises(LedgerError):
        encode((value,), KNOWN)


def test_a_class_with_a_known_name_is_not_that_class():
    impostor = type("Leaf", (Leaf,), {})
    with pytest.raises(LedgerError, match="unknown type 'Leaf'"):
        encode(impostor(1.0), KNOWN)


def test_depth_and_size_are_bounded_both_ways(monkeypatch):
    deep: object = 1
    deep_json: object = 1
    for _ in range(MAX_DEPTH):
        deep, deep_json = (deep,), [deep_json]
    assert decode(encode(deep, KNOWN), KNOWN) == deep
    with pytest.raises(LedgerError, match="deeper than 32"):
        encode((deep,), KNOWN)
    with pytest.raises(LedgerError, match="deeper than 32"):
        decode([deep_json], KNOWN)
    # A smaller bound than the real one: that takes seconds.
    monkeypatch.setattr(registry, "MAX_NODES", 1000)
    wide = (0,) * 999
    assert decode(encode(wide, KNOWN), KNOWN) == wide
    for call in (encode, decode):
        with pytest.raises(LedgerError, match="more than 1000 "):
            call((0,) * 1000 if call is encode else [0] * 1000, KNOWN)
