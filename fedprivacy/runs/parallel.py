"""Work on several processes or machines, by joblib: one word says where it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..errors import ParameterError, integer, listed, refuse

T = TypeVar("T")

BACKENDS = ("sequential", "loky", "dask", "ray")
"""Where work may run: here, in processes of this machine, or on a cluster that dask or ray has.

Not in threads: torch draws a model's first parameters from a state that all of them share, so that
results would depend on who runs beside.
"""

_NEEDS = {"dask": "distributed", "ray": "ray.util.joblib"}
"""Backend -> the module that must be there."""


def check_backend(backend: str, jobs: int) -> None:
    """Refuse a backend that is not known or not there.

    Raises:
        ParameterError: as said; or not one job at least.
    """
    integer(1, jobs=jobs)
    if backend == "threading":
        rule = "not be threads: torch's randomness is one for all of them"
        refuse("backend", backend, rule, "use 'loky', which takes processes")
    if backend not in BACKENDS:
        refuse("backend", backend, f"be one of {listed(BACKENDS)}")
    try:
        importlib.import_module(_NEEDS.get(backend, "joblib"))
    except ImportError as error:
        package = {"dask": "'dask[distributed]'", "ray": "ray"}.get(backend, "joblib")
        raise ParameterError(
            f"backend must be one that is installed, got {backend!r} ({error}); pip install "
            f"{package}, or use another of {listed(BACKENDS)}"
        ) from error


def each(
    calls: Sequence[Callable[[], T]],
    *,
    jobs: int = 1,
    backend: str = "loky",
    done: Callable[[int], None] | None = None,
) -> list[T]:
    """Return what calls return, in their order, some of them run at once.

    Args:
        calls: without arguments; they travel to other processes by pickle.
        jobs: how many run at once; with 1 they run here, one after the other.
        backend: one of ``BACKENDS``. For "dask" make a ``Client`` before; "ray" joins the cluster
            that is named in its environment, or makes one.
        done: gets a call's place as soon as it has returned.

    Raises:
        ParameterError: see ``check_backend``; or no dask client.
    """
    check_backend(backend, jobs)
    found: dict[int, T] = {}
    for place, value in _returned(calls, 1 if backend == "sequential" else jobs, backend):
        found[place] = value
        if done is not None:
            done(place)
    return [found[place] for place in range(len(calls))]


def _returned(calls: Sequence[Callable[[], T]], jobs: int, backend: str) -> Iterable[tuple[int, T]]:
    if jobs == 1:
        return ((place, call()) for place, call in enumerate(calls))
    import joblib

    if backend == "ray":
        # Its name is known to joblib only from then on.
        importlib.import_module(_NEEDS["ray"]).register_ray()
    try:
        with joblib.parallel_config(backend=backend, n_jobs=jobs):
            # Ray's backend gives everything at the end.
            how = "list" if backend == "ray" else "generator_unordered"
            parallel = joblib.Parallel(return_as=how, batch_size=1)
    except ValueError as error:
        refuse("backend", backend, f"be ready ({error})", "make a dask Client before")
    held: Iterator[Any] = iter(parallel(joblib.delayed(_placed)(*one) for one in enumerate(calls)))
    return held


def _placed(place: int, call: Callable[[], T]) -> tuple[int, T]:
    return place, call()
