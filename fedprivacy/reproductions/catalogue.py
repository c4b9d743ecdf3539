"""All figures and tables that can be run again, by name."""

from __future__ import annotations

from ..errors import listed, refuse
from .base import Figure
from .fa_hmc.figures import FIGURES as FA_HMC
from .fa_hmc.images import FIGURES as FA_HMC_IMAGES
from .fa_ld.figures import FIGURES as FA_LD
from .fa_ld.images import FIGURES as FA_LD_IMAGES
from .fed_plt.tables import FIGURES as FED_PLT
from .fed_smp.tables import FIGURES as FED_SMP
from .fedavg_two_sided.tables import FIGURES as TWO_SIDED

_EVERY = (*FA_HMC, *FA_HMC_IMAGES, *FA_LD, *FA_LD_IMAGES, *FED_PLT, *FED_SMP, *TWO_SIDED)
FIGURES: dict[str, Figure] = {figure.name: figure for figure in _EVERY}
"""Name -> figure or table; the papers in the order of their names."""


def figure(name: str) -> Figure:
    """Return a figure or table.

    Raises:
        ParameterError: an unknown name.
    """
    if name not in FIGURES:
        paper = name.partition("/")[0]
        known = [each for each in FIGURES if each.startswith(f"{paper}/")]
        # All names at once would not help.
        papers = dict.fromkeys(each.partition("/")[0] + "/..." for each in FIGURES)
        refuse("name", name, f"be one of {listed(known or papers)}", "see fedprivacy papers list")
    return FIGURES[name]
