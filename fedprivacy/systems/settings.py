"""What the systems' grids of settings share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import refuse
from ..mechanisms import Mechanism

Settings = list[tuple[dict[str, Any], tuple[Mechanism, dict[str, float]]]]
"""(parameters, (run, costs by name)) of each setting, as ``fp.pareto`` takes them."""


def axis(name: str, values: Any) -> list[Any]:
    """Return the values of one axis of a grid; one value is an axis by itself."""
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        return [values]
    if len(values) == 0:
        refuse(name, values, "hold at least one value")
    return list(values)
