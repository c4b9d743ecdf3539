"""Repeat one randomly drawn cell of every table when results are checked.

The smallest cell is always checked. The drawn cell is any other, so that all are checked over time.
A cell that takes more than ``SECONDS`` of processor time is reported and counts as neither.
``REPRO_DRAW=N`` in the environment draws the cells of an earlier check again, which printed N.
"""

import math
import os
import random
import signal
from collections.abc import Callable, Mapping
from typing import Any

SECONDS = 60
Cells = Mapping[str, Callable[[], bool]]
"""Name -> function that repeats a cell and returns whether it agrees with the recorded one."""


class _Late(Exception):
    """The time is up."""


class Parted(Exception):
    """A chain's path depends on this machine's rounding, so it cannot be compared."""


def redrawn(tables: Mapping[str, Cells], seconds: float = SECONDS) -> bool:
    """Repeat one random cell of every table; return whether no cell disagrees."""
    number = int(os.environ.get("REPRO_DRAW") or random.SystemRandom().randrange(10**6))
    held = True
    for name, cells in tables.items():
        if cells:
            chosen = random.Random(f"{number} {name}").choice(sorted(cells))
            outcome = _within(seconds, cells[chosen])
            print(f"{name}, {chosen}: {outcome} (REPRO_DRAW={number})", flush=True)
            held = held and outcome != DIFFERENT
    return held


def affordable(
    table: str, cells: Cells, took: Mapping[str, float], seconds: float = SECONDS
) -> Cells:
    """Return a table's cells that took no longer than this when recorded; print their number."""
    kept = {name: again for name, again in cells.items() if took[name] <= seconds}
    if over := len(cells) - len(kept):
        print(f"{table}: {over} of {len(cells)} cells took over {seconds:g} s and are not drawn")
    return kept


DIFFERENT = "DIFFERENT"


def _within(seconds: float, again: Callable[[], bool]) -> str:
    def late(number: int, frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGPROF, late)
    # Again each second, in case the collector has swallowed it.
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        return "the same" if again() else DIFFERENT
    except _Late:
        return f"not done in {seconds:g} s of the processor, neither confirmed nor refuted"
    except Parted:
        return "parts by its rounding, neither confirmed nor refuted"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def near(fresh: Any, kept: Any, relative: float = 1e-5, absolute: float = 0.0) -> bool:
    """Return whether two results agree, including dictionaries and lists of results."""
    if isinstance(fresh, Mapping):
        pairs = [(fresh[key], kept[key]) for key in fresh] if fresh.keys() == kept.keys() else None
        return pairs is not None and all(near(a, b, relative, absolute) for a, b in pairs)
    if isinstance(fresh, list | tuple):
        whole = len(fresh) == len(kept)
        return whole and all(
            near(a, b, relative, absolute) for a, b in zip(fresh, kept, strict=True)
        )
    if isinstance(fresh, float):
        return math.isclose(fresh, kept, rel_tol=relative, abs_tol=absolute)
    return bool(fresh == kept)
