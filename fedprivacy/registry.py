"""Frozen dataclasses as plain JSON values and back, through a closed registry.

A dataclass becomes ``{"type": "Gaussian", "version": 1, "fields": {...}}``. A tuple becomes a list
and a StrEnum its string. None, booleans, integers, finite floats and strings are unchanged. Input
data are untrusted. A type is looked up only in the registry, so no name can import or execute code.
Depth and size are bounded. Every field must fit its annotation, and the dataclass runs its own
checks on the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cached_property, lru_cache, partial
from importlib import import_module
from types import MappingProxyType, NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import FedPrivacyError, LedgerError, listed, refuse

VERSION = 1
"""Version of the record layout."""
MAX_DEPTH = 32
"""Deepest nesting of records and tuples."""
MAX_NODES = 1_000_000
"""Most values in one record: a dense factor of 1,400 rounds."""
MAX_INTEGER = 2**63 - 1
"""Largest magnitude of an integer."""

REFERENCE = "Planned"
"""Type of a record that refers to another one by its ``digest``."""

_KEYS = {"type", "version", "fields"}
_PLAIN = {int, float, str, bool, NoneType}
_NO = object()


KINDS: dict[str, type] = {}
"""All classes declared with ``registered``, by name."""

K = TypeVar("K", bound=type)
T = TypeVar("T")

Held = Mapping[str, object]
"""Objects that records may refer to, by digest."""

NOTHING: Held = MappingProxyType({})


def registered(kind: K) -> K:
    """Declare, above ``@dataclass(frozen=True)``, that a class may be written to files and read.

    Names in a file are looked up only among the declared classes. Declare a user-defined mechanism,
    scheme or curve before you open a file that contains it. Its fields must be enough to make it
    again.

    Raises:
        ParameterError: not a frozen dataclass, or another class has the same name.
    """
    name = kind.__name__
    parameters = getattr(kind, "__dataclass_params__", None)
    # A subclass inherits its base's fields, so it must be a dataclass itself.
    if parameters is None or not parameters.frozen or "__dataclass_fields__" not in vars(kind):
        refuse(
            "kind", name, "be a frozen dataclass", "put @registered above @dataclass(frozen=True)"
        )
    # Files identify a class only by its name.
    known = KINDS.get(name, kind)
    # A reloaded module creates its classes again. The address identifies them.
    if _address(known) != _address(kind):
        rule = "have a unique name, since files identify classes by their names"
        refuse("kind", name, rule, f"rename it; {'.'.join(_address(known))} has this name")
    KINDS[name] = kind
    return kind


def equality_tells(kind: type) -> bool:
    """Return whether equal values of a class are equal in everything they hold.

    The fields of a ``registered`` class are enough to make it again. Equality may miss a difference
    in two cases: a dataclass that only inherits its fields, and a field excluded from comparison.
    For a class that is no dataclass, its own ``__eq__`` decides.
    """
    if KINDS.get(kind.__name__) is kind or not is_dataclass(kind):
        return True
    parameters = vars(kind).get("__dataclass_params__")
    return parameters is not None and parameters.eq and all(field.compare for field in fields(kind))


def alike(value: object) -> bool:
    """Return whether all values equal to ``value`` hold the same content, at any depth."""
    if isinstance(value, tuple):
        # A matrix has rows of plain numbers, which need no check one by one.
        return set(map(type, value)) <= _PLAIN or all(map(alike, value))
    kind: type = type(value)
    if kind in _PLAIN:
        return True
    if not equality_tells(kind):
        return False
    held = [getattr(value, name) for name in _names(kind)]
    return all([type(one) in _PLAIN or alike(one) for one in held])


@lru_cache(maxsize=1024)
def _names(kind: type, shown: bool = False) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, or of those in its repr; none of another class."""
    own = fields(kind) if is_dataclass(kind) else ()
    return tuple(field.name for field in own if field.repr or not shown)


def held_by(value: object, kind: type[T]) -> tuple[T, ...]:
    """Return the objects of a kind in a value's fields, in order, also inside tuples and lists."""
    own: type = type(value)
    names = dict.fromkeys([*_names(own), *getattr(value, "__dict__", ())])
    # Cached properties are derived from the other fields.
    stated = [name for name in names if not isinstance(getattr(own, name, None), cached_property)]
    return tuple(_found([getattr(value, name) for name in stated], kind))


def _found(values: Iterable[object], kind: type[T]) -> Iterator[T]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _found(value, kind)
        elif isinstance(value, kind):
            yield value


def own_parts(kind: type, base: type) -> frozenset[str]:
    """Return the names that a subclass redefines, without dunder names such as ``__init__``."""
    above = kind.__mro__[: kind.__mro__.index(base)]
    names = {name for each in above for name in vars(each)}
    # Every abstract class has its own ``_abc_impl``.
    return frozenset(name for name in names - {"_abc_impl"} if not name.startswith("__"))


def _address(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def plain_fields(value: object) -> dict[str, object]:
    """Return a dataclass's fields by name: numbers and text, None for anything else.

    Fields without a value are omitted, and so are enumerated words such as a unit or an adjacency.
    An object that is not a dataclass has no fields.
    """
    kind: type = type(value)
    found = [(name, getattr(value, name)) for name in _names(kind, shown=True)]
    return {
        name.replace("_", " "): one if isinstance(one, (int, float, str)) else None
        for name, one in found
        if one is not None and not isinstance(one, (StrEnum, bool))
    }


class Registry(Mapping[str, type]):
    """The registered classes of some families, by name; later declarations are included.

    Args:
        belongs: whether a class belongs to the families.
    """

    def __init__(self, belongs: Callable[[type], bool]) -> None:
        self._belongs = belongs

    def __getitem__(self, name: str) -> type:
        # The classes of this package declare themselves when they are imported.
        if name not in KINDS:
            import_module("fedprivacy.public")
        if self._belongs(KINDS[name]):
            return KINDS[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        import_module("fedprivacy.public")
        return (name for name, kind in sorted(KINDS.items()) if self._belongs(kind))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def encode(value: object, registry: Mapping[str, type], held: Held = NOTHING) -> Any:
    """Return a value as plain JSON values.

    Args:
        value: a frozen dataclass of the registry, a tuple, or a plain value; any nesting.
        registry: name -> dataclass; the name must be the class's own.
        held: digest -> object that the reader already has. It is written as a reference.

    Raises:
        LedgerError: a type that is not in the registry, a number that is not finite, or a value too
            deep or too large to be read back.
    """
    return _Walk(registry, held).encoded(value, 0, "value")


def decode(data: object, registry: Mapping[str, type], held: Held = NOTHING) -> Any:
    """Return the value that ``encode`` was given; lists become tuples.

    Args:
        data: plain JSON values from an untrusted source.
        registry: name -> dataclass that may be built.
        held: digest -> object that the data may refer to.

    Raises:
        LedgerError: a reference to a missing object, an unknown type, version or field, a missing
            field, a value that does not fit its field or that the dataclass refuses, or data too
            deep or too large.
    """
    return _Walk(registry, held).decoded(data, 0, "value")


@dataclass
class _Walk:
    """One pass over a value, with a count of visited nodes."""

    registry: Mapping[str, type]
    held: Held
    nodes: int = 0

    def encoded(self, value: object, depth: int, where: str) -> Any:
        self._count(depth, where)
        if isinstance(value, StrEnum):
            return value.value
        if isinstance(value, tuple):
            return [self.encoded(item, depth + 1, where) for item in value]
        if not is_dataclass(value) or isinstance(value, type):
            return _plain(value, where)
        return self._encoded(value, depth, where)

    def _encoded(self, value: Any, depth: int, where: str) -> dict[str, Any]:
        """Return a dataclass as a record, or as a reference to a held object."""
        digest = next((digest for digest, known in self.held.items() if value == known), None)
        if digest is not None:
            return {"type": REFERENCE, "version": VERSION, "fields": {"digest": digest}}
        own, name = fields(value), type(value).__name__
        # The name is not enough: the registry must hold this very class.
        if self.registry.get(name) is not type(value):
            self._unknown(name, where)
        content = {
            field.name: self.encoded(getattr(value, field.name), depth + 1, f"{name}.{field.name}")
            for field in own
            # Fields with init=False are computed again by the constructor.
            if field.init
        }
        return {"type": name, "version": VERSION, "fields": content}

    def decoded(self, data: object, depth: int, where: str) -> Any:
        self._count(depth, where)
        if isinstance(data, list):
            return tuple(self.decoded(item, depth + 1, where) for item in data)
        if isinstance(data, dict):
            return self._record(data, depth, where)
        return _plain(data, where)

    def _record(self, data: dict[Any, Any], depth: int, where: str) -> object:
        if data.get("type") == REFERENCE:
            return self._referred(data, where)
        kind = self._kind(data, where)
        name, given = data["type"], data["fields"]
        known = _layout(kind)
        for field in given:
            if field not in known:
                _fail(where, f"{name} has no field {field!r}; it has {listed(known)}")
        for field, (_, needed) in known.items():
            if needed and field not in given:
                _fail(where, f"{name} lacks its field {field!r}")
        values = {
            field: self._fitted(item, known[field][0], depth + 1, f"{name}.{field}")
            for field, item in given.items()
        }
        return _build(kind, values, where)

    def _kind(self, data: dict[Any, Any], where: str) -> type:
        if set(data) != _KEYS:
            keys = ", ".join(map(repr, data)) or "none"
            _fail(where, f"a record has the keys 'type', 'version' and 'fields', got {keys}")
        name = data["type"]
        if not isinstance(name, str) or name not in self.registry:
            self._unknown(name, where)
        _check_version(name, data["version"], where)
        if not isinstance(data["fields"], dict):
            _fail(where, f"the fields of {name} must be an object, got {data['fields']!r}")
        return self.registry[name]

    def _referred(self, data: dict[Any, Any], where: str) -> object:
        content = data.get("fields")
        digest = content.get("digest") if isinstance(content, dict) and len(content) == 1 else None
        if data != {"type": REFERENCE, "version": VERSION, "fields": {"digest": digest}}:
            _fail(where, f"a reference must have only a digest, got {data!r:.200}")
        if not isinstance(digest, str) or digest not in self.held:
            _fail(where, f"refers to {digest!r:.80}, which is not in the plan")
        return self.held[digest]

    def _fitted(self, item: object, hint: Any, depth: int, where: str) -> object:
        value = self.decoded(item, depth, where)
        fitted = _fit(value, hint)
        if fitted is _NO:
            _fail(where, f"must be {_name(hint)}, got {value!r}")
        return fitted

    def _count(self, depth: int, where: str) -> None:
        self.nodes += 1
        if depth > MAX_DEPTH:
            _fail(where, f"nested deeper than {MAX_DEPTH} levels")
        if self.nodes > MAX_NODES:
            _fail(where, f"more than {MAX_NODES} values in one record")

    def _unknown(self, name: object, where: str) -> NoReturn:
        way_out = "import the file that defines and registers it"
        _fail(where, f"unknown type {name!r}; {way_out}, or use one of {listed(self.registry)}")


def _check_version(name: str, version: object, where: str) -> None:
    # True equals 1, but is not a version.
    if version is True or version != VERSION:
        text = f"{name} has version {version!r}, this release reads {VERSION}"
        _fail(where, f"{text}; upgrade fedprivacy")


def _fail(where: str, what: str) -> NoReturn:
    raise LedgerError(f"{where}: {what}")


def _plain(value: object, where: str) -> object:
    """Return a plain JSON value unchanged, or refuse it."""
    if type(value) in (bool, str, NoneType):
        return value
    if type(value) is int:
        # JSON readers in other languages lose digits beyond 64 bits.
        if abs(value) > MAX_INTEGER:
            _fail(where, f"an integer must be below 2**63, got one of {value.bit_length()} bits")
        return value
    if type(value) is not float:
        _fail(where, f"a {type(value).__name__} cannot be recorded; use plain values and tuples")
    if not math.isfinite(value):
        _fail(where, f"a number must be finite, got {value!r}")
    return value


@lru_cache(maxsize=256)
def _layout(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return field -> (annotation, whether it is required) of a dataclass."""
    hints = get_type_hints(kind)
    return {f.name: (hints[f.name], _required(f)) for f in fields(kind) if f.init}


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _build(kind: type, values: dict[str, object], where: str) -> object:
    try:
        return kind(**values)
    # Values of a file may fail in any check of a class. All failures are reported as a bad record.
    except (FedPrivacyError, TypeError, ValueError, ArithmeticError, AttributeError) as problem:
        raise LedgerError(f"{where}: {kind.__name__} refuses it: {problem}") from problem


def _fit(value: Any, hint: Any) -> Any:
    """Return the value in the type of its annotation (a string as its enum member), else _NO."""
    if hint is Any:
        return value
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        fits = map(partial(_fit, value), get_args(hint))
        return next((fitted for fitted in fits if fitted is not _NO), _NO)
    if origin is tuple:
        return _fit_tuple(value, get_args(hint))
    return value if _is(value, hint) else _fit_member(value, hint)


def _fit_tuple(value: Any, hints: tuple[Any, ...]) -> Any:
    if not isinstance(value, tuple):
        return _NO
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        return _NO
    items = tuple(_fit(item, hint) for item, hint in zip(value, hints, strict=True))
    return _NO if any(item is _NO for item in items) else items


def _fit_member(value: Any, hint: Any) -> Any:
    if not (isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(value, str)):
        return _NO
    return hint(value) if value in set(hint) else _NO


def _is(value: object, hint: Any) -> bool:
    """Return whether a value is an instance of a class, or has a protocol's members."""
    if hint is float:
        # By exact type, because a Python bool is an int.
        return type(value) in (float, int)
    if hint is int:
        return type(value) is int
    if getattr(hint, "_is_protocol", False):
        members = (name for name in vars(hint) if not name.startswith("_"))
        return all(hasattr(type(value), name) for name in members)
    return isinstance(value, hint)


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
