"""The fields of a nested file: found by name at any depth, each with its place in the file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ...outputs import printable
from .vocabulary import words_of

MAX_FIELDS = 20_000
"""Largest number of fields that are looked at in one file."""

NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
"""A number in text. YAML gives 1e-5 as a text, and so does every cell of a table. With a leading
zero it is no number here, because some programs read 010 as 8.
"""


class Field(NamedTuple):
    """A value of a file and its place.

    Attributes:
        place: names from the outside to the inside, joined by dots.
        name: the innermost name in lower case with underscores.
        value: the value.
    """

    place: str
    name: str
    value: Any

    def __str__(self) -> str:
        place = self.place if len(self.place) <= 60 else f"...{self.place[-57:]}"
        return printable(f"{place} = {str(self.value)[:40]}")

    @property
    def parent(self) -> str:
        """The place of the part that has the field; empty for the whole file."""
        return self.place.rpartition(".")[0]

    @property
    def part(self) -> str:
        """The name of that part."""
        return self.parent.rpartition(".")[2]

    @property
    def words(self) -> set[str]:
        """The words of the name."""
        return {*self.name.split("_")} - {""}

    @property
    def place_words(self) -> set[str]:
        """The words of the place."""
        return words_in(self.place)

    @property
    def said(self) -> set[str]:
        """The words of a text; empty for other values."""
        return words_in(self.value[:200]) if isinstance(self.value, str) else set()

    @property
    def number(self) -> float | int | None:
        """The value as a number; see ``as_number``."""
        return as_number(self.value)

    @property
    def flag(self) -> bool | None:
        """The value as a truth value; see ``as_flag``."""
        return as_flag(self.value)

    @property
    def empty(self) -> bool:
        """Whether the value is absent, or says that something is off."""
        if isinstance(self.value, str):
            return self.value.strip().lower() in ("", "false", "none")
        # An array of a running program compares element by element.
        return absent(self.value) or self.value is False or self.number == 0


_GREEK = str.maketrans(
    {"\u03b5": "epsilon", "\u03f5": "epsilon", "\u03b4": "delta", "\u03c3": "sigma"}
)


def plain_name(name: object) -> str:
    """Return a name in lower case with underscores: "clippingNorm" and "clipping-norm" agree."""
    return _plain(str(name))


@lru_cache(4096)
def _plain(text: str) -> str:
    text = text.strip().translate(_GREEK)
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})", "_", text)
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


_CONSTANT = re.compile(
    r"(.{1,60}?)\s*[(\[]\s*(?:at |for |with )?([A-Za-z\u03b4\u03b5\u03c3 _]{1,30}?)\s*=\s*"
    r"([^()\[\]]{1,20})[)\]]"
)


_AFTER = re.compile(
    r"(.*[A-Za-z]{3}.*?)\s*[(\[](?!.*[A-Za-z]{3})(?!.*[=\u03b5\u03f5\u03b4])[^()\[\]]{1,8}[)\]]"
)
"""A name with its symbol, such as "sampling rate (q)"."""
_BEFORE = re.compile(r"(?:sigma|\u03c3|[A-Za-z])\s*\(([A-Za-z][A-Za-z _-]{2,40})\)")
"""A symbol with its name, such as "q (sampling rate)"."""


def headed(names: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of columns, and the numbers that they state for all rows.

    The header "epsilon (delta = 1e-5)" names a column and a number.
    """
    plain, stated = [], dict[str, Any]()
    for name in names:
        short = len(name) <= 80
        symbol = short and (_AFTER.fullmatch(name.strip()) or _BEFORE.fullmatch(name.strip()))
        if symbol:
            plain.append(symbol[1])
            continue
        found = _CONSTANT.fullmatch(name.strip())
        number = None if found is None else as_number(found[3])
        plain.append(name if found is None or number is None else found[1])
        if found is not None and number is not None:
            stated[found[2]] = number
    return plain, stated


def turned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a table with one run in a column as one with a run in a row.

    Its first column holds the names of settings, each one once, and the header the
    names of the runs.
    """
    if len(rows) < 2 or len(rows[0]) < 2:
        return rows
    first, *runs = rows[0]
    names = [str(row.get(first, "")) for row in rows]
    settings = {setting_name(name) for name in names}
    if as_number(names[0]) is not None or not settings & _SETTINGS or len(settings) < len(rows):
        return rows
    if {setting_name(name) for name in rows[0]} & _SETTINGS:
        return rows
    plain, _ = headed(names)
    found = []
    for run in runs:
        _, stated = headed([f"run ({run})"])
        of_run = {name: row[run] for name, row in zip(plain, rows, strict=True) if run in row}
        found.append({"run": run, **stated, **of_run})
    return found


_SETTINGS = {"noise_multiplier", "noise_mult", "sigma", "noise_std", "noise_scale", "dp_sigma"}
"""Names of a noise in the first column of a table."""
_PATH = re.compile(r"[A-Za-z_][\w-]*(?:[./][A-Za-z_][\w-]*)+", re.ASCII)
_GROUP = re.compile(r"(?:params|user_attrs)_(?=.)", re.ASCII)


def setting_name(name: object) -> str:
    """Return the plain name of a setting, without the groups that programs write before it.

    MLflow writes "params.noise_multiplier", Optuna "params_noise_multiplier", and Weights & Biases
    "dp/noise_multiplier".
    """
    text = str(name).strip()
    last = re.split(r"[./]", text)[-1] if _PATH.fullmatch(text) else text
    return plain_name(_GROUP.sub("", last, count=1) if _GROUP.match(last) else last)


_BESIDE = words_of(
    """
    seed acc accuracy loss auc f1 score lr learning model arch dataset time date duration id
    name notes note comment author precision recall runtime state status created tags hostname
    gpu seconds rmse mse mae perplexity bleu momentum optimizer url top1 top5 architecture
    experiment exp error run index
    """
)
_WITH = words_of(
    """
    rate val valid test train eval final best mean weight decay random global metric run index
    number user server network
    """
)


def cannot_bear(name: object) -> bool:
    """Return whether a field's name is about something that cannot change the privacy of a run."""
    words = {*plain_name(name).split("_")} - {""}
    return words <= _BESIDE | _WITH and (bool(words & _BESIDE) or words == {"weight", "decay"})


_TESTS = {"eval", "evaluation", "test", "val", "valid", "validation", "predict"}


def of_a_test(field: Field) -> bool:
    """Return whether a field belongs to the evaluation of a model, which releases no noisy sum."""
    return bool(field.place_words & _TESTS)


_PRINTED = re.compile(r"(?:(?:np|numpy|torch)\.)?(?:float\d+|int\d+|tensor)\(([^(),]*)\)", re.ASCII)
"""A number as numpy and torch print it."""


def as_number(value: Any) -> float | int | None:
    """Return a finite number, also from its text; None for any other value."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        value = _number_of(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        # A larger integer has no double. No count or size is that large.
        return value if abs(value) < 2**63 else None
    # JSON writes 100.0 for an integer that was a float in the program.
    whole = value.is_integer() and abs(value) < 2**53
    return int(value) if whole else value if math.isfinite(value) else None


def _number_of(text: str) -> float | int | None:
    printed = _PRINTED.fullmatch(text) if len(text) < 80 else None
    text = text if printed is None else printed[1].rstrip(".") or text
    if len(text) > 40 or not NUMBER.fullmatch(text):
        return None
    return int(text) if text.isdecimal() else float(text)


_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+", re.ASCII)


def numbers_in(value: Any) -> list[float]:
    """Return the numbers of a value: also of its parts, and of a text around them."""
    number = as_number(value)
    if number is not None:
        return [number]
    if isinstance(value, str):
        return [float(text) for text in _NUMBERS.findall(value[:400])]
    parts = value.values() if isinstance(value, Mapping) else value
    many = isinstance(value, Mapping | list | tuple)
    return [number for part in (parts if many else ()) for number in numbers_in(part)][:1000]


def like_thousands(value: Any) -> bool:
    """Return whether a text is 1 in some countries and 1,000 in others, such as "1.000"."""
    return isinstance(value, str) and _THOUSANDS.fullmatch(value.strip()) is not None


def as_flag(value: Any) -> bool | None:
    """Return a truth value, also from its text; None for any other value."""
    if isinstance(value, bool):
        return value
    return _FLAGS.get(str(value).strip().lower())


_FLAGS = {"true": True, "yes": True, "on": True, "1": True}
_FLAGS |= {"y": True, "t": True, "n": False, "f": False}
_FLAGS |= {"false": False, "no": False, "off": False, "0": False}


def words_in(text: object) -> set[str]:
    """Return the words of a name or a text."""
    return {*plain_name(text).split("_")} - {""}


def absent(value: Any) -> bool:
    """Return whether a field has no value."""
    return value is None or (isinstance(value, str | list | dict) and not value)


def fields_of(data: Any) -> list[Field]:
    """Return the fields of plain values in their order, at most one more than ``MAX_FIELDS``."""
    return list(islice(_walk(data, "", 0), MAX_FIELDS + 1))


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | list)


_VALUES = {"value", "default", "default_value", "constant", "runtime_value"}
_VALUES |= {f"{kind}_value" for kind in ("float", "int", "integer", "double", "number", "long")}
_VALUES |= {f"{kind}_value" for kind in ("string", "str", "bool", "boolean")}
_ABOUT_IT = {"desc", "description", "py_object", "dtype", "type", "field_type", "required", "ops"}
_ABOUT_IT |= {"section", "help", "title", "doc", "optional", "display_name"}
_TYPES = {"float", "int", "integer", "number", "double", "long", "string", "str", "bool", "boolean"}
DEFAULT = " (default)"
"""End of the place of a value that a run may replace."""


def _wrapped(name_of: object, value: Any, end: str = "", depth: int = 0) -> tuple[str, Any]:
    """Return the end of a place, and the value inside an object that describes one setting.

    Weights & Biases writes ``{value, desc}``, MLflow ``{type, default}``, TensorBoard
    ``{float_value}``, and ml_collections ``{_field_type, _value}``.
    """
    if not isinstance(value, Mapping) or not 0 < len(value) <= 8 or depth > 3:
        return end, value
    names = {plain_name(name): name for name in value}
    inner = names.keys() & _VALUES
    kind = str(value[names["type"]]).lower() if "type" in names else "float"
    if "name" in names and plain_name(value[names["name"]]) == plain_name(name_of):
        names.pop("name")
    if len(inner) != 1 or names.keys() - inner - _ABOUT_IT or kind not in _TYPES:
        return end, value
    (name,) = inner
    default = DEFAULT if name.startswith("default") else end
    return _wrapped(name_of, value[names[name]], default, depth + 1)


_NAMES = {"key", "name", "parameter", "param", "param_name"}
_OTHERS = {"step", "timestamp", "type", "desc", "description", "valueMin", "valueMax"}


def unwrapped(data: Any, known: dict[int, Any] | None = None) -> Any:
    """Return plain values with settings as mappings, however a program wrote them.

    MLflow writes a list of ``{"key": ..., "value": ...}``. A list of arguments is
    ``["--noise-multiplier", "1.1"]``, and one of an environment ``["NOISE_MULTIPLIER=1.1"]``.
    """
    if not isinstance(data, Mapping | list):
        return data
    known = {} if known is None else known
    if id(data) not in known:
        # References in YAML may lead to the same part many times, or back to it.
        known[id(data)] = data
        known[id(data)] = _unwrapped(data, known)
    return known[id(data)]


def _unwrapped(data: Any, known: dict[int, Any]) -> Any:
    if isinstance(data, Mapping):
        return {name: unwrapped(value, known) for name, value in data.items()}
    if data and all(isinstance(each, str) for each in data):
        return arguments(data) or _assigned(data) or data
    return _of_pairs(data) or [unwrapped(each, known) for each in data]


def _of_pairs(data: list[Any]) -> dict[str, Any]:
    """Return a list of names with values as a mapping; empty if it is another list."""
    pairs = [_pair(each) for each in data]
    named = {pair[0]: pair[1] for pair in pairs if pair is not None}
    # Another entry, or a name that occurs twice, makes the mapping shorter.
    return named if len(named) == len(pairs) else {}


def _pair(data: Any) -> tuple[str, Any] | None:
    """Return the name and the value of ``{"key": ..., "value": ...}``; None for other values."""
    if not isinstance(data, Mapping):
        return None
    names = [name for name in data if name in _NAMES and isinstance(data[name], str)]
    values = [name for name in data if name in ("value", "valueCurrent")]
    if (len(names), len(values)) != (1, 1) or not data.keys() <= {*values, *names, *_OTHERS}:
        return None
    return data[names[0]], data[values[0]]


_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.ASCII | re.DOTALL)


def arguments(words: list[str]) -> dict[str, Any]:
    """Return the options in a list of arguments by name; empty if one occurs twice."""
    found: dict[str, Any] = {}
    last = ""
    for word in words:
        option = _OPTION.fullmatch(word) if len(word) < 400 else None
        if option is not None:
            last = option[1]
            if last in found:
                return {}
            found[last] = True if option[2] is None else option[2].strip("\"'")
        elif last and found[last] is True:
            found[last] = word.strip("\"'")
            last = ""
    return found


_ASSIGNED = re.compile(r"[+~]{0,2}([A-Za-z_][\w./@-]*)\s*=(?!=)\s*(.*)", re.ASCII | re.DOTALL)


def _assigned(words: list[str]) -> dict[str, str]:
    """Return a list of ``name=value`` as a mapping; empty if it is another list.

    Hydra writes its overrides so, Docker an environment, and Sacred its updates. A program and its
    file may come first.
    """
    found = [_ASSIGNED.fullmatch(word) if len(word) < 2000 else None for word in words]
    first = next((at for at, one in enumerate(found) if one is not None), 0)
    pairs = [one for one in found[first:] if one is not None]
    begun = first == 0 or any(word.endswith(".py") for word in words[:first])
    named = {one[1]: one[2].strip("\"'") for one in pairs}
    return named if begun and len(named) == len(words) - first else {}


_COMPOUND = {"noise_multiplier", "noise_std", "sampling_rate", "sampling_probability"}
_COMPOUND |= {"sample_rate", "clip_norm", "clipping_norm", "noise_scale", "sampling_prob"}
_COMPOUND |= {"noise_sigma"}
_IN_ALL = {"batch_size_total": "batch_size"}
"""Names of a number whose part has the name already, as ``batch_size: {total: 256}``."""


def _named(name: object, place: str) -> str:
    """Return the name of a setting; ``noise: {multiplier: 1}`` is a noise_multiplier."""
    plain = setting_name(name)
    joined = f"{plain_name(place.rpartition('.')[2])}_{plain}"
    return joined if joined in _COMPOUND else _IN_ALL.get(joined, plain)


def _inside(place: str, name: object) -> str:
    """Return the place of a setting in a part of a file; dp/noise is the noise of dp."""
    text = str(name).replace("/", ".") if _PATH.fullmatch(str(name)) else str(name)
    return f"{place}.{text}" if place else text


def _shown(value: Any) -> Any:
    """Return the value of a field; an empty one if its parts are fields too."""
    if isinstance(value, list) and not any(map(_nested, value)):
        # The parts of a list of plain values have no names, so it is one field.
        return value[:20]
    if _nested(value):
        return type(value)()
    # Python writes no integer of more than 4,300 digits.
    long = isinstance(value, int) and abs(value) >= 2**64
    return f"an integer of {value.bit_length()} bits" if long else value


def _walk(data: Any, place: str, depth: int) -> Iterator[Field]:
    # References in YAML may lead back to the same part, so the depth is limited here too.
    if depth > 64:
        return
    if isinstance(data, Mapping):
        for name, value in data.items():
            end, value = _wrapped(name, value)
            inside = _inside(place, name) + end
            if isinstance(value, np.ndarray):
                value = value.ravel()[:20].tolist()
            yield Field(inside, _named(name, place), _shown(value))
            if _nested(value):
                yield from _walk(value, inside, depth + 1)
    elif isinstance(data, list):
        for at, value in enumerate(data):
            yield from _walk(value, f"{place}[{at}]", depth + 1)


_WITH_PREFIX = {"sample_rate", "sampling_rate", "sampling_probability", "target_epsilon"}
_WITH_PREFIX |= {"steps", "num_steps", "max_steps", "target_delta", "dataset_size", "batch_size"}


class Fields:
    """The fields of one file.

    Attributes:
        every: all fields in the order of the file.
        whole: whether these are all fields, and not only the first ``MAX_FIELDS``.
        used: fields that a reader looked up, by place.
    """

    def __init__(self, data: Any) -> None:
        every = fields_of(data)
        self.every, self.whole = every[:MAX_FIELDS], len(every) <= MAX_FIELDS
        self.used: dict[str, Field] = {}
        self._by_name: dict[str, list[Field]] = {}
        for field in self.every:
            self._by_name.setdefault(field.name, []).append(field)
            # In a list of variables every name has the prefix that a nested file has as a part.
            if field.name.startswith("dp_") and field.name[3:] in _WITH_PREFIX:
                self._by_name.setdefault(field.name[3:], []).append(field)

    def outside(self, place: str) -> Fields:
        """Return the fields that are not inside a place."""
        found = Fields({})
        found.every = [one for one in self.every if not f"{one.place}.".startswith(f"{place}.")]
        for one in found.every:
            found._by_name.setdefault(one.name, []).append(one)
        return found

    def names(self) -> set[str]:
        """Return the names of all fields."""
        return set(self._by_name)

    def has(self, *names: str) -> bool:
        """Return whether there is a field with one of these names."""
        return any(name in self._by_name for name in names)

    def all(self, *names: str) -> list[Field]:
        """Return the fields with one of these names and a value, and mark them as read."""
        found = [field for name in names for field in self._by_name.get(name, ())]
        self.used |= {field.place: field for field in found}
        return [field for field in found if not absent(field.value)]

    def one(self, *names: str) -> Field | None:
        """Return the first field with one of these names, or None."""
        return next(iter(self.all(*names)), None)

    def number(self, *names: str) -> float | int | None:
        """Return the number with one of these names; None if there are none, or several ones.

        The numbers of an evaluation do not count. A number below 0 is no setting: None.
        """
        found = {each.number for each in self.all(*names) if not of_a_test(each)}
        known = found - {None}
        value = known.pop() if len(known) == 1 else None
        return None if value is None or value < 0 else value

    def flag(self, *names: str) -> bool | None:
        """Return the truth value with one of these names; None if there is none, or both."""
        found = {field.flag for field in self.all(*names)} - {None}
        return found.pop() if len(found) == 1 else None

    def text(self, *names: str) -> str:
        """Return the first text with one of these names in lower case; empty if there is none."""
        found = self.one(*names)
        return "" if found is None else str(found.value).strip().lower()

    def read(self, field: Field) -> bool:
        """Return whether a reader looked the field up."""
        return field.place in self.used

    def unread(self) -> list[Field]:
        """Return the fields that no reader looked up."""
        return [field for field in self.every if not self.read(field)]
