"""Certified answers for unchanged programs that use dp-accounting."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TextIO

from dp_accounting.pld import pld_privacy_accountant, privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant

from ..errors import ParameterError, require
from .dp_accountants import PLDAccountant, RdpAccountant
from .dp_answers import OPEN, Answers, substituting
from .dp_constructors import SERVED

_CLASSES: dict[type, type] = {
    pld_privacy_accountant.PLDAccountant: PLDAccountant,
    rdp_privacy_accountant.RdpAccountant: RdpAccountant,
}
_UNSERVED = ("from_two_probability_mass_functions", "create_from_cdf")
_USAGE = (
    "usage: python -m fedprivacy.integrations.dp_accounting (SCRIPT | -m MODULE) [ARGUMENT ...]"
)

Restore = Callable[[], None]


@contextmanager
def certified(out: TextIO | None = None) -> Iterator[Answers]:
    """Answer dp-accounting's calls with certified numbers inside, and report them at the end.

    ``PLDAccountant``, ``RdpAccountant`` and the constructors of privacy-loss distributions are
    replaced wherever a module names them. Subclasses of the two accountants and distributions of
    given masses stay dp-accounting's own; the report counts them.

    Args:
        out: where the report goes; by default standard error.

    Returns:
        The answers, as a list that grows inside the block.

    Raises:
        ParameterError: inside another such block, or ``out`` cannot be written to.
    """
    if OPEN:
        raise ParameterError("certified() is open already; use one block")
    # At once, not after the program has run.
    require(out is None or hasattr(out, "write"), "out", out, "be an open text file or None")
    answers = Answers()
    undo: list[Restore] = []
    OPEN.append(answers)
    try:
        for theirs, ours in _CLASSES.items():
            undo.append(_replace_class(theirs, ours, answers))
        undo.append(_count_masses(answers))
        for ours_made in SERVED:
            made = getattr(privacy_loss_distribution, ours_made.__name__)
            undo.append(_replace_function(made, _either(made, ours_made)))
        for name in _UNSERVED:
            made = getattr(privacy_loss_distribution, name)
            undo.append(_replace_function(made, _counted(made, answers)))
        yield answers
    finally:
        for restore in reversed(undo):
            restore()
        OPEN.remove(answers)
        print(*answers.lines(), sep="\n", file=out or sys.stderr)


def _replace_class(theirs: Any, ours: Any, answers: Answers) -> Restore:
    """Let new objects of a class become ours. Every name and alias of the class counts."""
    begin = theirs.__init__

    @wraps(begin)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        if not substituting() or isinstance(self, ours):
            begin(self, *arguments, **named)
        elif type(self) is theirs:
            self.__class__ = ours
            ours.__init__(self, *arguments, **named)
        else:
            answers.uncertified[f"{type(self).__name__}, a subclass of {theirs.__name__}"] += 1
            begin(self, *arguments, **named)

    theirs.__init__ = __init__
    return lambda: setattr(theirs, "__init__", begin)


def _count_masses(answers: Answers) -> Restore:
    """Count distributions of given masses: no certified answer exists for them."""
    kind = privacy_loss_distribution.PrivacyLossDistribution
    begin = kind.__init__

    @wraps(begin)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        if substituting():
            answers.uncertified["PrivacyLossDistribution of given masses"] += 1
        begin(self, *arguments, **named)

    kind.__init__ = __init__
    return lambda: setattr(kind, "__init__", begin)


def _either(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(theirs)
    def made(*arguments: Any, **named: Any) -> Any:
        return (ours if substituting() else theirs)(*arguments, **named)

    return made


def _counted(theirs: Callable[..., Any], answers: Answers) -> Callable[..., Any]:
    @wraps(theirs)
    def made(*arguments: Any, **named: Any) -> Any:
        if substituting():
            answers.uncertified[theirs.__name__] += 1
        return theirs(*arguments, **named)

    return made


def _replace_function(old: Any, new: Any) -> Restore:
    """Replace a function wherever a loaded module names it."""
    places = [
        (module, name)
        for module in list(sys.modules.values())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is old and not str(module.__name__).startswith("fedprivacy")
    ]
    for module, name in places:
        setattr(module, name, new)

    def restore() -> None:
        for module, name in places:
            setattr(module, name, old)

    return restore


def main() -> NoReturn:
    """Run a script or a module with its arguments on certified numbers, and exit as it does."""
    arguments = sys.argv[1:]
    if not arguments or arguments in (["-m"], ["-h"], ["--help"]):
        print(_USAGE, file=sys.stderr)
        raise SystemExit(2)
    as_module = arguments[0] == "-m"
    if not as_module and not Path(arguments[0]).is_file():
        print(f"{arguments[0]!r} is not a script; {_USAGE}", file=sys.stderr)
        raise SystemExit(2)
    sys.argv = arguments[1:] if as_module else arguments
    # As Python does: the folder of a script, or the working folder for a module.
    sys.path.insert(0, "" if as_module else str(Path(sys.argv[0]).parent))
    with certified():
        if as_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    raise SystemExit(0)
