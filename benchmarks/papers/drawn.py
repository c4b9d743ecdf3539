"""One cell of every table, drawn anew whenever results are checked, and done again.

The smallest cell is always checked; the drawn one is any other, so that in time all are. A cell
that does not end within ``SECONDS`` of the processor is told and counts as neither.
``REPRO_DRAW=N`` in the environment draws the cells of an earlier check again, whose N it printed.
"""

import math
import os
import random
import signal
from collections.abc import Callable, Mapping
from typing import Any

SECONDS = 60
Cells = Mapping[str, Callable[[], bool]]
"""By name: does a cell again and returns whether it comes out as recorded."""


class _Late(Exception):
    """Time is up."""


class Parted(Exception):
    """A chain's path depends on how this machine rounds: nothing can be compared."""


def redrawn(tables: Mapping[str, Cells], seconds: float = SECONDS) -> bool:
    """Do one random cell of every table again; return whether none came out otherwise."""
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
    """Return a table's cells that took no longer when they were made; tell how many did."""
    kept = {name: again for name, again in cells.items() if took[name] <= seconds}
    if over := len(cells) - len(kept):
        print(f"{table}: {over} of {len(cells)} cells took over {seconds:g} s and are not drawn")
    return kept


DIFFERENT = "DIFFERENT"


def _within(seconds: float, again: Callable[[], bool]) -> str:
    def late(number: int, frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGPROF, late)
    # Again each second, should the collector have swallowed it.
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
    """Return whether two results, dictionaries or lists of them too, agree."""
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
