"""What a theorem says of one setting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A theorem evaluated at one setting.

    Attributes:
        value: the theorem's number, in the units that its function names.
        theorem: its name and paper.
        checked: conditions that were checked on the arguments.
        assumed: conditions that no arithmetic on the arguments can check.
        bound: whether ``value`` is a bound as it stands; False where the paper leaves a constant
            unnamed, so that only the rate counts.
    """

    value: float
    theorem: str
    checked: tuple[str, ...]
    assumed: tuple[str, ...]
    bound: bool = True
