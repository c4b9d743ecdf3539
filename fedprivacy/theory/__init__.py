"""The papers' theorems as functions, and exact laws where every iterate is Gaussian.

What several systems share lies here: ``gaussian`` W2 distances, affine maps, the privacy of two
Gaussians with one covariance; ``targets`` Gaussian targets split over clients and chains on them;
``hidden_state`` the account of contractive steps of which only the last is seen;
``splitting_privacy`` what a run of Fed-PLT shows; ``statement`` what the theorems return.

The rest lies with the system that it is about, and can be imported from here as well:
``averaging`` two-sided FedAvg, ``sparsified`` Fed-SMP, ``langevin`` FA-LD and ``hamiltonian``
FA-HMC with their convergence theorems ``langevin_bounds`` and ``hamiltonian_bounds``,
``splitting``, ``splitting_law`` and ``splitting_tradeoff`` Fed-PLT.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ROOMS = {
    "averaging": "averaging.bounds",
    "hamiltonian": "fa_hmc.law",
    "hamiltonian_bounds": "fa_hmc.bounds",
    "langevin": "fa_ld.law",
    "langevin_bounds": "fa_ld.bounds",
    "sparsified": "fed_smp.bounds",
    "splitting": "fed_plt.bounds",
    "splitting_law": "fed_plt.law",
    "splitting_tradeoff": "fed_plt.tradeoff",
}
"""Name in this package -> where the module lies in ``fedprivacy.systems``."""


class _Rooms(MetaPathFinder, Loader):
    """Finds this package's other modules where they lie; only when they are asked for.

    Importing them here would make ``import fedprivacy`` a third slower, for theorems that an
    account does not need.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for ``fedprivacy.theory.<name>`` with a name of ``ROOMS``."""
        parent, _, name = fullname.rpartition(".")
        return ModuleSpec(fullname, self) if parent == __name__ and name in ROOMS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the one module, so that a class is the same class under both names."""
        module = import_module(f"fedprivacy.systems.{ROOMS[spec.name.rpartition('.')[2]]}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but give the module its own spec back: it was executed where it lies."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.append(_Rooms())


def __getattr__(name: str) -> ModuleType:
    if name in ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
