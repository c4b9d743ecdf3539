"""The names of our loops in ``fp.attack``: those of ``fedprivacy train --method``.

The package imports this module, so it does not import torch. An attack imports torch when it runs.
"""

from __future__ import annotations

from functools import partial

from ..audit.canaries import BY_NAME, AttackSettings, Planted
from .methods import names


def _plant(method: str, attack: AttackSettings) -> Planted:
    # Needs torch. The import of ``training`` gives the clear message if torch is missing.
    from .. import training  # noqa: F401
    from .planting import plant

    return plant(method, attack)


BY_NAME.update({method: partial(_plant, method) for method in names(private=True)})
