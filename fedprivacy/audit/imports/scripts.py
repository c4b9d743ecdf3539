"""Shell scripts: lines around the command of a run that may repeat it, change it or switch it off.

A command gives the settings of one run. A loop, a second command or a start on a timer makes it
several; several processes make a larger batch; and words that a shell expands may be any option.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from .fields import as_flag, words_in
from .remarks import Doubt
from .unclear import name_is_clear

_PROGRAM = re.compile(
    r"(?:^|[\s;&|(])(?:[^\s;&|(]*/)?(?:python[\d.]*|torchrun|accelerate)\s|\.py\s", re.A
)
_PRIVATE = re.compile(r"noise|sigma|\bdp\b|dp[-_.]|epsilon|max[-_]grad[-_]norm|clip", re.A | re.I)
_HELPERS = re.compile(
    r"\bpip3?\b|venv|activate|\b(?:\w*(?:eval|test|plot|prepare|prepro|download|report|account"
    r"|compute|setup|convert|export|analy|visual|tokeniz|summar)\w*\.py)\b|-m (?:pip|venv|pytest)",
    re.A | re.I,
)
_AGAIN = re.compile(
    r"^\s*(?:for|while|until)\b|;\s*do\b|\bxargs\b|\bparallel\b|^\s*watch\s"
    r"|^\s*(?:[\d*/,-]+\s+){4}[\d*/,-]+\s+\S|^\s*@(?:daily|hourly|weekly|monthly|reboot)\b"
    r"|^#SBATCH\s+(?:--array|-a)[= ]",
    re.A,
)
_PROCESSES = re.compile(
    r"(?:\b(?:mpirun|mpiexec|srun|torchrun|horovodrun)\b[^\n]{0,200}?\s|^#SBATCH\s+)"
    r"(?:-np|-n|-N|--np|--ntasks|--nodes|--nproc[-_]per[-_]node|--nnodes)[= ]?\s*(\d{1,6})\b",
    re.A,
)
_FUNCTION = re.compile(r"^\s*(?:function\s+)?([A-Za-z_]\w*)\s*\(\)\s*\{", re.A)
_SET = re.compile(r"(?:^|[\s;&])(?:export\s+|set\s+|env\s+|-e\s+)?([A-Za-z_]\w{0,60})=([^\s;&]*)")
_STEMS = {"dp", "privacy", "private", "noise", "opacus", "clip", "clipping", "dpsgd"}
_OFF = {"disable", "disabled", "no", "non", "without", "off", "skip", "bypass"}
_KNOWN = re.compile(
    r"(?:cd|mkdir|source|\.|module|conda|mamba|pip3?|uv|echo|printf|set|date|nvidia-smi|hostname|ls"
    r"|pwd|whoami|which|wait|sleep|exit|done|do|fi|then|esac|ulimit|umask|trap|apt-get|sudo apt-get"
    r"|git|wget|curl|tar|unzip|rsync|cp|mv|rm|ln|chmod|cat|tail|head|df|free|deactivate)(?:\s|;|$)|[{}]"
    r"|#!|[\w.-]+:\s*$|\.PHONY|#SBATCH\s|#\$\s|#PBS\s+-[lNoejqSmMA]\s|@?echo\b|::|rem\s",
    re.A | re.I,
)
"""Beginnings of lines that start no run and set no variable of one."""
_SETS = re.compile(r"(?:export\s+|set\s+)?([A-Za-z_]\w{0,60})=(?![=(])[^\s;&|`]*", re.A)
_PARTS = re.compile(r"\s*(?:&&|\|\||;|\bdo\b|\bthen\b)\s*")
MAX_LINES = 10_000
"""Largest number of lines of a script that are looked at."""


def _lines(text: str) -> list[str]:
    joined = re.sub(r"\\[ \t]?\r?\n", " ", text).splitlines()[:MAX_LINES]
    return [line for line in joined if not line.lstrip().startswith("#") or "#SBATCH" in line]


def switches_in(text: str) -> dict[str, Any]:
    """Return the variables of a script that may turn privacy off."""
    found = {}
    for line in _lines(text):
        for name, value in _SET.findall(line):
            named, flag = words_in(name), as_flag(value.strip("\"'"))
            if named & _STEMS and flag is (named & _OFF != set()):
                found[name] = value.strip("\"'")
    return found


def others_in(text: str) -> list[Doubt]:
    """Return the lines of a script that may start another run, or change this one."""
    lines = _lines(text)
    if not any(_PROGRAM.search(f"{line} ") and _PRIVATE.search(line) for line in lines):
        return []
    parts = (part.strip() for line in lines for part in _PARTS.split(line.strip()))
    return [Doubt("reviewed", part, "") for part in parts if part and not _is_known(part)]


def _is_known(part: str) -> bool:
    """Return whether a part of a line is the command of the run, a helper, or about the machine."""
    started = _PROGRAM.search(f"{part} ") is not None
    if started and (_PRIVATE.search(part) or _HELPERS.search(part)):
        return "`" not in part and "$(" not in part
    if started:
        # ``doubts_in`` asks for the number of runs.
        return True
    named = _SETS.match(part)
    if named is None:
        return _KNOWN.match(part) is not None
    # ``switches_in`` knows a variable that turns privacy on or off.
    known = words_in(named[1]) & (_STEMS | _OFF) and as_flag(named[0].partition("=")[2]) is not None
    return bool(known) or name_is_clear(named[1])


def doubts_in(text: str) -> list[Doubt]:
    """Return the doubts in the lines around the command of a run; empty without a command."""
    lines = _lines(text)
    commands = [line.strip() for line in lines if _PROGRAM.search(f"{line} ")]
    private = [line for line in commands if _PRIVATE.search(line)]
    if not private:
        return []
    again = [line.strip() for line in lines if _AGAIN.search(line)]
    again += [line for line, n in Counter(commands).items() if n > 1]
    again += [line for line in commands if line not in private and not _HELPERS.search(line)]
    return [
        *(Doubt("trials", line, _RUNS) for line in again),
        *_called_again(lines),
        *_in_processes(lines),
        *_with_any_option(private),
    ]


_RUNS = "how many runs were made on these data"


def _in_processes(lines: list[str]) -> Iterator[Doubt]:
    """Yield a doubt for each line that starts several processes."""
    for line in lines:
        processes = _PROCESSES.search(line)
        if processes is not None and int(processes[1]) > 1:
            why = "every process may draw its own batch"
            yield Doubt("sampling_probability", line.strip(), why)


def _with_any_option(commands: list[str]) -> Iterator[Doubt]:
    """Yield a doubt for each command with a word that the shell may replace by any option."""
    for line in commands:
        word = _unexpanded(line)
        if word:
            why = f"{word} may be any option, also another noise"
            yield Doubt("noise_multiplier", line, why)


_MOST_FUNCTIONS = 50


def _called_again(lines: list[str]) -> list[Doubt]:
    """Return a doubt for each function that a script calls more than once."""
    found = []
    defined = list(islice(filter(None, map(_FUNCTION.match, lines)), _MOST_FUNCTIONS + 1))
    if len(defined) > _MOST_FUNCTIONS:
        return [Doubt("trials", f"more than {_MOST_FUNCTIONS} functions", _RUNS)]
    for one in defined:
        call = re.compile(rf"(?:^|[;&|]|\bdo\b)\s*{one[1]}(?:\s|;|$)(?!\s*\()")
        calls = sum(len(call.findall(other)) for other in lines if other is not one.string)
        if calls > 1:
            found.append(Doubt("trials", f"{one[1]}, called {calls} times", _RUNS))
    return found


def _unexpanded(line: str) -> str:
    """Return a word of a command that the shell replaces by options; empty if there is none."""
    try:
        parts = shlex.split(line, comments=True)
    except ValueError:
        return ""
    for before, word in zip(["", *parts], parts, strict=False):
        expands = word.startswith("$") or (word.startswith("@") and len(word) > 1)
        value = before.startswith("-") and "=" not in before
        if expands and (not value or word in ("$@", "$*")) and "=" not in word:
            return word
    return ""
