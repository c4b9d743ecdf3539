"""Result of a theorem for one setting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A theorem evaluated at one setting.

    Attributes:
        value: the theorem's number, in the units that its function names.
        theorem: its name and paper.
        checked: conditions that were checked on the arguments.
        assumed: conditions that no computation on the arguments can check.
        bound: whether ``value`` is a bound. False if the paper does not specify a constant; then
            the value is only a rate.
    """

    value: float
    theorem: str
    checked: tuple[str, ...]
    assumed: tuple[str, ...]
    bound: bool = True
