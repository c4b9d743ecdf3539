"""Settings that a program printed: ``Namespace(...)`` in a log, options of a command, a dict.

Each one becomes a mapping, which the readers of configurations take like a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from ...errors import ConversionError
from .content import yaml_of
from .fields import NUMBER, Fields, arguments, as_number, like_thousands, plain_name
from .words import (
    BATCH,
    CLIPS,
    DELTA,
    EPSILON,
    NOISE,
    PRIVACY,
    RATE,
    RECORDS,
    ROUNDS,
    STEPS,
    SWITCHES,
    UNCLEAR,
)

MAX_CALL = 20_000
"""Longest text of one call, in characters."""
MAX_FOUND = 100
"""Largest number of places of one text that are tried, for each of the four forms."""
MAX_SAID = 10_000
"""Largest number of facts outside the settings that are looked at."""

_CALL = re.compile(r"\b([A-Za-z_]\w{0,60})\((?=(?:[\w\s.,]{0,200},)?\s*[A-Za-z_]\w*\s*=)", re.ASCII)
_DICT = re.compile(r"\{\s*['\"]?[A-Za-z_][\w./-]*['\"]?\s*:", re.ASCII)
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*", re.ASCII)
_LATER = re.compile(r"\s*\n[^=\n]{0,200}?([A-Za-z_]\w*)\s*=(?!=)\s*", re.ASCII)
"""A name after the time and the place that a log writes before every line."""
_WORDS = {"None": None, "True": True, "False": False}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
ABOUT = (*NOISE, *UNCLEAR, *EPSILON, *DELTA, *CLIPS)
"""Names of a noise, an epsilon, a delta and a clip norm."""


def settings_in(text: str) -> Any:
    """Return the settings of runs that a text shows: a mapping, or a list of them; else None."""
    every = [*_calls(text), *_dicts(text), *_commands(text), *_attributes(text)]
    found = list(_different(every))
    if not found:
        return None
    names = [name for name, _ in found]
    # The rest of the text may say that the noise is one of clients.
    about = _CLIENTS.search(text)
    more = {} if about is None else {"federated": about[0]}
    more |= warnings_of(text)
    if len(found) == 1:
        name, settings = found[0]
        return {**_with_switch(name, settings), **more, **_beside(text, settings)}
    # Parts of one run have different names. Settings of one name are several runs.
    if len({*names}) == len(names):
        return {**dict(found), **more}
    (_, most), (_, least) = (f(found, key=lambda one: len(one[1])) for f in (max, min))
    if len(found) == 2 and isinstance(most, dict) and least.keys() < most.keys():
        # The second one replaces a part of the first.
        return {**most, "again": least, **more}
    return [{**settings, **more} for _, settings in found]


def _with_switch(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a call, inside its name if only that is about privacy."""
    # A switch in DPConfig(enabled=False) is about privacy by the name of the call.
    own = {*plain_name(name).split("_")} & PRIVACY and settings.keys() & SWITCHES
    return {name: settings} if own else settings


_CLIENTS = re.compile(
    r"\b(?:federated|fedavg|fedprox|fedsgd|flwr|clients_per_round|num_clients|client_fraction)\b",
    re.ASCII | re.IGNORECASE,
)
"""Words of a federated run."""


_SAID = re.compile(
    r"(?<![\w.$*-])([A-Za-z_][\w-]{0,40})[ \t]*(?:=|:[ \t])[ \t]*"
    rf"({NUMBER.pattern})(?![\w%]|\.\w)",
    re.ASCII,
)
_COUNTED = re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+) (?:steps|iterations)\b", re.ASCII)
_NOT_SAID = re.compile(
    r"^[ \t]*(?:def|class|async def)\b.*|(?:^|[ \t])(?:#|//).*"
    r"|^.*(?:add_argument|DEFINE_|\bhelp\b|\bdefault).*",
    re.ASCII | re.MULTILINE,
)
"""Comments, and defaults that a run may replace."""
_FACTS = {*NOISE, *RATE, *STEPS, *ROUNDS, *EPSILON, *DELTA, *BATCH, *RECORDS, "epochs"}


_NOISE_SAID = re.compile(
    rf"\bnoise[ ]multiplier\b[^\n\d]{{0,30}}?({NUMBER.pattern})(?![\w%]|\.\w)",
    re.ASCII | re.IGNORECASE,
)
_CHANGED = re.compile(
    rf"\b([A-Za-z_][\w-]{{0,40}})[ \t:=]{{1,3}}{NUMBER.pattern}[ \t]*(?:->|=>|to)[ \t]*"
    rf"({NUMBER.pattern})",
    re.ASCII,
)
_ENDED = re.compile(
    r"\b(?:finished|done|completed?|stopped|ended|trained)\b[^\n\d]{0,40}?\b"
    r"(?:steps?[ ])?(\d{1,12})\b"
    r"|\bglobal_step[ \t]*[=:][ \t]*(\d{1,12})\b",
    re.ASCII | re.IGNORECASE,
)
_OFF = r"(?:is |was |has been |are )?(?:disabled|deactivated|turned off|switched off|off)\b"
_WARNINGS = {
    "dp_enabled": re.compile(
        rf"\b(?:dp|differential privacy|privacy|noise)[ ]{_OFF}"
        r"|\b(?:disabling|disabled)[ ](?:dp|differential privacy|privacy|noise)\b"
        r"|\b(?:train|training|trained|running|continuing)[ ]without[ ]"
        r"(?:noise|privacy|dp|differential privacy)\b"
        r"|\bprivacy engine[ ](?:is |was )?not attached\b",
        re.ASCII | re.IGNORECASE,
    ),
    "poisson_sampling": re.compile(
        rf"\bpoisson(?: sampling)?[ ]{_OFF}"
        r"|\b(?:using|with|use)[ ](?:shuffled|sequential)[ ](?:batches|data|loader)\b",
        re.ASCII | re.IGNORECASE,
    ),
}
"""Switch -> sentences of a log that say that it is off."""
_RESUMED = re.compile(
    r"\b(?:resum(?:ed|ing)|restor(?:ed|ing))\b[^\n]{0,20}?\b(?:from|at)\b[^\n]{0,60}",
    re.ASCII | re.IGNORECASE,
)


def commands_inside(values: Any) -> dict[str, Any]:
    """Return the numbers about privacy in the commands that a file quotes.

    Args:
        values: the file's values.
    """
    found: list[dict[str, Any]] = []
    for one in islice(Fields(values).every, MAX_SAID):
        if not isinstance(one.value, str) or not re.search(r"(?:^|\s)--[A-Za-z]", one.value):
            continue
        with suppress(ValueError):
            options = arguments(shlex.split(one.value[:MAX_CALL], comments=True))
            known = {name for name in options if plain_name(name) in {*ABOUT, *_FACTS}}
            # A placeholder, such as ${{ inputs.noise }}, is a value of the file itself.
            numbers = {name for name in known if as_number(options[name]) is not None}
            if numbers:
                found.append({name: options[name] for name in numbers})
    # Each command is kept, so that two that differ end in a question.
    return {f"command_line_{at}": options for at, options in enumerate(found, start=1)}


def without_privacy(text: str) -> bool:
    """Return whether a sentence says that privacy or its noise was off."""
    return _WARNINGS["dp_enabled"].search(text) is not None


def warnings_of(text: str) -> dict[str, Any]:
    """Return what the sentences of a log say against its settings, as switches that are off."""
    text = _NOT_SAID.sub("", text)
    found: dict[str, Any] = {
        name: False for name, words in _WARNINGS.items() if words.search(text) is not None
    }
    resumed = _RESUMED.search(text)
    if resumed is not None:
        found["resumed"] = " ".join(resumed[0].split())
    return {"log": found} if found else {}


def _beside(text: str, settings: Any) -> dict[str, Any]:
    """Return the facts that a text says outside the settings of one run.

    A fact with several numbers is a list, which ends in a question; an epsilon that grows with the
    epochs is left out.
    """
    text = _NOT_SAID.sub("", text)
    shown = {one.name: one.number for one in Fields(settings).every}
    said: dict[str, Any] = {}
    for name, numbers in _numbers_said(text, shown).items():
        values = {as_number(number) for number in numbers}
        several = len(values) > 1
        if values != {shown.get(name)} and not (several and name in EPSILON):
            said[name] = list(numbers)[:20] if several else next(iter(numbers))
    said |= _flower_rounds(text)
    found: dict[str, Any] = {"said": said} if said else {}
    counted = {number.replace(",", "") for number in _COUNTED.findall(text)}
    if len(counted) == 1 and not (said.keys() | shown.keys()) & {*STEPS}:
        found["counted"] = {"steps": counted.pop()}
    return found


def _numbers_said(text: str, shown: dict[str, float | int | None]) -> dict[str, dict[str, None]]:
    """Return the numbers of each fact in a text, without the shown settings."""
    found: dict[str, dict[str, None]] = {}
    noises = (("noise_multiplier", number) for number in _NOISE_SAID.findall(text))
    for pairs in (_SAID.findall(text), noises, _CHANGED.findall(text)):
        for name, number in islice(pairs, MAX_SAID):
            if plain_name(name) in _FACTS:
                found.setdefault(plain_name(name), {})[number] = None
    # Steps are counted while a run goes on, so only a larger count contradicts the settings.
    ends = [int(one or other) for one, other in islice(_ENDED.findall(text), MAX_SAID)]
    planned = [known for name in shown.keys() & {*STEPS} if (known := shown[name]) is not None]
    if ends and planned and max(ends) > max(planned):
        found.setdefault("steps", {})[str(max(ends))] = None
    return found


_ROUND = re.compile(r"\[ROUND (\d{1,7})\]", re.ASCII)
_SAMPLED = re.compile(r"sampled (\d{1,9}) clients \(out of (\d{1,9})\)", re.ASCII)
_ANSWERED = re.compile(
    r"(?:aggregate_fit|aggregate_train): [Rr]eceived (\d{1,9}) results", re.ASCII
)


def _flower_rounds(text: str) -> dict[str, Any]:
    """Return what a log of Flower says about its rounds: how many, their cohorts and answers."""
    rounds = [int(each) for each in _ROUND.findall(text)]
    # The clients of an evaluation get no noise.
    fit = "\n".join(line for line in text.splitlines() if "configure_fit" in line)
    sampled = {(int(drawn), int(of)) for drawn, of in _SAMPLED.findall(fit)}
    answers = [int(each) for each in _ANSWERED.findall(text)]
    found: dict[str, Any] = {"logged_rounds": max(rounds)} if rounds else {}
    if sampled:
        drawn, of = ([*{pair[at] for pair in sampled}] for at in (0, 1))
        found["sampled_clients"] = drawn[0] if len(drawn) == 1 else drawn[:20]
        found["num_clients"] = of[0] if len(of) == 1 else of[:20]
    return found | ({"fewest_answers": min(answers)} if answers else {})


def about_privacy(values: Any) -> bool:
    """Return whether plain values have a noise, an epsilon, a delta or a clip norm."""
    return Fields(values).has(*ABOUT)


def _different(found: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the settings that are about privacy, each once."""
    seen: list[tuple[str, Any]] = []
    for each in found:
        if each not in seen and about_privacy(each[1]):
            seen.append(each)
            yield each


def _calls(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the named arguments of every call in a text."""
    end, constants = 0, _constants(text)
    for found in islice(_CALL.finditer(text), MAX_FOUND):
        if found.start() < end:
            continue
        close = _closing(text, found.end() - 1)
        if close is not None:
            end = close
            named = _named(text[found.end() : close])
            named = {
                key: constants.get(value, value) if isinstance(value, str) else value
                for key, value in named.items()
            }
            # Only Opacus has a function of this name.
            yield found[1], named | ({found[1]: True} if "make_private" in found[1] else {})


def _constants(text: str) -> dict[str, float]:
    """Return the names that a text sets to one number, wherever it sets them."""
    found: dict[str, set[str]] = {}
    for name, value in _CONSTANT.findall(text):
        found.setdefault(name, set()).add(value.strip())
    numbers = {
        name: as_number(next(iter(values))) for name, values in found.items() if len(values) == 1
    }
    return {name: number for name, number in numbers.items() if number is not None}


_CONSTANT = re.compile(
    r"^[ \t]{0,40}([A-Za-z_]\w{0,60})[ \t]*=[ \t]*([^=#\n][^#\n]{0,60})", re.ASCII | re.MULTILINE
)


def _dicts(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the mappings that lines of a text show in braces."""
    end = read = 0
    for found in islice(_DICT.finditer(text), MAX_FOUND):
        close = _closing(text, found.start()) if found.start() >= end else None
        if close is None or read > MAX_CALL:
            continue
        end, read = close, read + close - found.start()
        try:
            shown = plain_words(text[found.start() : close + 1]).encode("utf-8", "replace")
            values = yaml_of(shown, "a line")
        except ConversionError:
            continue
        if isinstance(values, dict):
            yield "settings", values


def plain_words(text: str) -> str:
    """Return a mapping of Python with the words that YAML has for None, True and False."""
    return _PYTHON.sub(lambda found: _YAML[found[0]], text)


_YAML = {"None": "null", "True": "true", "False": "false"}
_PYTHON = re.compile(r"(?<=[\s:\[])(?:None|True|False)(?=[\s,}\]])", re.ASCII)


def _closing(text: str, start: int) -> int | None:
    """Return the place of the bracket that closes the one at a place; None if there is none."""
    waiting: list[str] = []
    quote = ""
    for at in range(start, min(len(text), start + MAX_CALL)):
        sign = text[at]
        if quote:
            quote = "" if sign == quote and text[at - 1] != "\\" else quote
        elif sign in "'\"":
            quote = sign
        elif sign in _CLOSING:
            waiting.append(_CLOSING[sign])
            if len(waiting) > 20:
                return None
        elif sign in ")]}":
            if waiting.pop() != sign:
                return None
            if not waiting:
                return at
    return None


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between its outer commas."""
    at = last = 0
    while at < len(text):
        sign = text[at]
        if sign in _CLOSING:
            at = _closing(text, at) or at
        elif sign in "'\"":
            end = text.find(sign, at + 1)
            at = end if end > 0 else at
        elif sign == ",":
            yield text[last:at]
            last = at + 1
        at += 1
    yield text[last:]


def _named(text: str) -> dict[str, Any]:
    found = {}
    for part in _parts(text):
        name = _NAME.match(part) or _LATER.match(part)
        if name is not None:
            found[name[1]] = _value(part[name.end() :].strip())
    return found


def _value(text: str) -> Any:
    call = _CALL.match(text)
    if call is not None and text.endswith(")"):
        return _named(text[call.end() : -1])
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if len(text) > 1 and text[0] == "[" and text[-1] == "]":
        return [_value(part.strip()) for part in _parts(text[1:-1]) if part.strip()][:20]
    number = as_number(text)
    return _WORDS.get(text, text) if number is None or like_thousands(text) else number


def _commands(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the options of the commands in a text, for example of a script."""
    loops, variables = _loops(text), _variables(text)
    lines = re.sub(r"(?:\\|(?<=\s)[\^`])[ \t]?\r?\n", " ", text).splitlines()
    commands = (line for line in map(_as_command, lines) if line)
    for line in islice(commands, MAX_FOUND):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        if options := _options(words, line):
            yield "command", _expanded(options, loops, variables)


def _as_command(line: str) -> str:
    """Return a line without the signs around its words; empty if it is no command."""
    # A list of arguments has quotes and commas.
    line = re.sub(r"[\[\]\",]", " ", line) if '"--' in line else line
    # The end of a command in a loop of one line is no part of its last value.
    line = re.sub(r";(?=\s|$)", " ", line)[:MAX_CALL]
    several = len(re.findall(r"(?:^|\s)--[A-Za-z]", line)) > 1
    return line if several or _overrides(line) else ""


def _overrides(line: str) -> bool:
    """Return whether a command has settings of Hydra."""
    return _PROGRAM.search(line) is not None and len(_OVERRIDE.findall(line)) > 1


def _options(words: list[str], line: str) -> dict[str, Any]:
    """Return the options of a command by name, settings of Hydra among them."""
    options = arguments(words)
    given = [word.lstrip("+").partition("=") for word in words if _OVERRIDE.fullmatch(f" {word}")]
    names = {name for name, _, _ in given}
    if _overrides(line) and len(names) == len(given) and not names & options.keys():
        options |= {name: value for name, _, value in given}
    return options


_LOOP = re.compile(
    r"^[ \t]{0,40}for[ \t]+([A-Za-z_]\w{0,40})[ \t]+in[ \t]+([^;\n]{1,400}?)[ \t]*"
    r"(?:;[ \t]*do|\n\s*do)\b",
    re.ASCII | re.MULTILINE,
)
_COUNT = re.compile(r"\$\(seq (?:(\d{1,3}) )?(\d{1,3})\)|\{(\d{1,3})\.\.(\d{1,3})\}", re.ASCII)
_VARIABLE = re.compile(
    r"^[ \t]{0,40}(?:export[ \t]+)?([A-Za-z_]\w{0,40})=(\([^()\n]{0,400}\)|[^\s;#()]{1,80})",
    re.ASCII | re.MULTILINE,
)
_USED = re.compile(r"\$\{?([A-Za-z_]\w{0,40})(?:\[@\]|:-[^}]{0,40})?\}?", re.ASCII)
_ENTRY = re.compile(r"\$\{([A-Za-z_]\w{0,40})\[[^\]@*]{1,60}\]\}", re.ASCII)
"""An entry of an array, for example one for each job of a batch."""


def _variables(text: str) -> dict[str, str]:
    """Return the variables of a shell script that are set once."""
    found: dict[str, list[str]] = {}
    for name, value in islice(_VARIABLE.findall(text), MAX_FOUND):
        found.setdefault(name, []).append(value.strip("\"'"))
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _loops(text: str) -> dict[str, list[str]]:
    """Return the values of the loops of a shell script, by the name of the variable."""
    found: dict[str, list[str]] = {}
    variables = _variables(text)
    for name, values in islice(_LOOP.findall(text), MAX_FOUND):
        counted, used = _COUNT.fullmatch(values), _USED.fullmatch(values.strip("\"'"))
        if counted is not None:
            first, last = counted[1] or counted[3] or 1, counted[2] or counted[4]
            found[name] = [str(each) for each in range(int(first), int(last) + 1)]
        elif used is not None and used[1] in variables:
            found[name] = variables[used[1]].strip("()").split()
        else:
            found[name] = values.split()
    return found


def _expanded(
    options: dict[str, Any], loops: dict[str, list[str]], variables: dict[str, str]
) -> dict[str, Any]:
    """Return options with the values of variables; those of a loop are values to try."""
    found: dict[str, Any] = {}
    tried: dict[str, list[str]] = {}
    for name, value in options.items():
        used = _USED.fullmatch(value) if isinstance(value, str) else None
        set_to = value if used is None else variables.get(used[1], "")
        array = _array_of(set_to, variables)
        if array is not None:
            tried[name] = array
        elif used is not None and len(loops.get(used[1], ())) > 1:
            tried[name] = [each.strip("\"'") for each in loops[used[1]]]
        else:
            found[name] = value if used is None else variables.get(used[1], value)
    return {**found, "sweep": tried} if tried else found


def _array_of(value: Any, variables: dict[str, str]) -> list[str] | None:
    """Return the values of the array that an entry is taken from; None for another value."""
    entry = _ENTRY.fullmatch(value) if isinstance(value, str) else None
    array = "" if entry is None else variables.get(entry[1], "")
    return array.strip("()").split() if array.startswith("(") else None


_ATTRIBUTE = re.compile(
    r"^[ \t]{0,40}((?:[A-Za-z_]\w{0,40}\.){1,6})([A-Za-z_]\w{0,60})[ \t]*=[ \t]*"
    r"([^=#\n][^#\n]{0,200})",
    re.ASCII | re.MULTILINE,
)


def _attributes(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the settings that a program sets as attributes, as ``config.dp.noise = 1``."""
    found: dict[str, dict[str, list[Any]]] = {}
    for places, name, text_of in islice(_ATTRIBUTE.findall(text), MAX_SAID):
        first, _, inside = f"{places}{name}".partition(".")
        value = _value(text_of.strip().rstrip(";"))
        known = found.setdefault(first, {}).setdefault(inside, [])
        if value not in known:
            known.append(value)
    for name, settings in found.items():
        if name != "self" and len(settings) > 1:
            yield (
                name,
                {key: each[0] if len(each) == 1 else each for key, each in settings.items()},
            )


_PROGRAM = re.compile(r"\.py\b|\bpython\d?\b|\s-m\s|\b(?:docker|podman) run\b", re.ASCII)
_OVERRIDE = re.compile(r"\s\+{0,2}[A-Za-z_][\w./-]*=[^\s=]+", re.ASCII)
"""A setting of Hydra on a command line."""
