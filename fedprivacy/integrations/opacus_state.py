"""What an Opacus accountant's state of ours has to hold; written and read without Opacus."""

from __future__ import annotations

from collections.abc import Iterable


def steps_in_no_pass(
    history: Iterable[tuple[float, float, int]],
    passes: Iterable[tuple[float, int]],
    per_pass: int,
) -> str | None:
    """Return which steps the passes cannot hold, in words, or None.

    Every step is in a pass of no more noise than its own: one it is not in would be free.

    Args:
        history: (noise multiplier, sample rate, steps).
        passes: (least noise multiplier in it, how many such passes were begun).
        per_pass: most steps of a pass.
    """
    room = ((noise, 0, per_pass * begun) for noise, begun in passes)
    needed = ((noise, 1, -steps) for noise, _, steps in history)
    left = 0
    # From the least noise on, at equal noise the passes first.
    for noise, _, more in sorted((*room, *needed)):
        left += more
        if left < 0:
            which = f"{-left} steps of noise {noise:g} or less"
            return f"{which} are in none of its passes, of {per_pass} steps each"
    return None
