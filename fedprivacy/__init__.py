"""fedprivacy: differential privacy for federated learning, with certified bounds.

``import fedprivacy as fp`` and start from a mechanism::

    step = fp.Gaussian(noise_multiplier=0.8, unit="client")
    run = step.sampled(fp.Poisson(0.01)) * 10_000
    fp.epsilon(run, delta=1e-5, adjacency="add_remove")
"""

import typing as _typing

from .version import VERSION as __version__  # noqa: F401

if _typing.TYPE_CHECKING:
    from .public import *  # noqa: F403
    from .public import __all__ as __all__

_LATER = {
    **dict.fromkeys(
        (
            "Attack",
            "Audit",
            "Conformance",
            "Crosscheck",
            "account",
            "attack",
            "crosscheck",
            "report",
            "verify",
        ),
        "audit",
    ),
    "Budget": "questions.budget",
    "choose": "papers.choosing",
    "Ledger": "ledger",
    "Pareto": "runs.pareto",
    "pareto": "runs.pareto",
}
"""Names that are imported when they are first used, with their modules."""

_MODULES = ("audit", "ledger", "published", "runs", "training")
"""Modules that are imported when they are first used. Training needs torch."""


def __getattr__(name: str) -> _typing.Any:
    """Import a public name when it is first used, so that ``import fedprivacy`` is quick.

    Raises:
        AttributeError: torch is not installed, or there is no such name.
    """
    from importlib import import_module

    found = globals()
    if name in _LATER or name in _MODULES:
        from .errors import ParameterError

        try:
            module = import_module(f"{__name__}.{_LATER.get(name, name)}")
        except ParameterError as missing:
            raise AttributeError(str(missing)) from missing
        found[name] = getattr(module, name) if name in _LATER else module
    elif name == "__all__" or not name.startswith("__"):
        public = import_module(f"{__name__}.public")
        found.update({each: value for each, value in vars(public).items() if each[0] != "_"})
        found["__all__"] = public.__all__
    if name not in found:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found[name]


def __dir__() -> list[str]:
    return sorted({*__getattr__("__all__"), *globals()})
