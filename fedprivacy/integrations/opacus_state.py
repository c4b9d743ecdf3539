"""Required content of an Opacus accountant's state of this package; used without Opacus."""

from __future__ import annotations

from collections.abc import Iterable


def steps_in_no_pass(
    history: Iterable[tuple[float, float, int]],
    passes: Iterable[tuple[float, int]],
    per_pass: int,
) -> str | None:
    """Return the steps that the passes cannot hold, in words, or None.

    Every step belongs to a pass whose noise is no larger than the step's. A step outside all passes
    would be free.

    Args:
        history: (noise multiplier, sample rate, steps).
        passes: (its least noise multiplier, number of these passes that began).
        per_pass: largest number of steps of a pass.
    """
    room = ((noise, 0, per_pass * begun) for noise, begun in passes)
    needed = ((noise, 1, -steps) for noise, _, steps in history)
    left = 0
    # From the least noise on. At equal noise, the passes come first.
    for noise, _, more in sorted((*room, *needed)):
        left += more
        if left < 0:
            which = f"{-left} steps of noise {noise:g} or less"
            return f"{which} are in no pass of {per_pass} steps"
    return None
