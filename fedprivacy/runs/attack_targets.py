"""The names under which ``fp.attack`` finds our loops: those of ``fedprivacy train --method``.

Imported with the package, so it does not import what trains: an attack does, when it is at work.
"""

from __future__ import annotations

from functools import partial

from ..audit.canaries import BY_NAME, Asked, Planted
from .methods import names


def _plant(method: str, asked: Asked) -> Planted:
    # Needs torch, which is imported for those who train or attack; the first says so without it.
    from .. import training  # noqa: F401
    from .planting import plant

    return plant(method, asked)


BY_NAME.update({method: partial(_plant, method) for method in names(private=True)})
