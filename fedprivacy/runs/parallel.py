"""Run work in several processes or machines with joblib; the backend's name chooses."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from ..errors import ParameterError, integer, listed, refuse

T = TypeVar("T")

BACKENDS = ("sequential", "loky", "dask", "ray")
"""Where work may run: here, in processes of this machine, or on a cluster of dask or ray.

Threads are not offered. Torch draws a model's first parameters from a state that all threads share,
so the results would depend on the other threads.
"""

_NEEDS = {"dask": "distributed", "ray": "ray.util.joblib"}
"""Backend -> the module that it needs."""


def check_backend(backend: str, jobs: int) -> None:
    """Refuse a backend that is unknown or not installed.

    Raises:
        ParameterError: the backend is refused, or ``jobs`` is below 1.
    """
    integer(1, jobs=jobs)
    if backend in ("threading", "threads"):
        rule = "not be threads, which share torch's randomness"
        refuse("backend", backend, rule, "use 'loky', which uses processes")
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
    """Return the results of calls, in their order; several calls run at once.

    Args:
        calls: without arguments; they travel to other processes by pickle.
        jobs: number of simultaneous calls; with 1 they run here, one after the other.
        backend: one of ``BACKENDS``. "dask" and "ray" join the cluster in their environment
            (``DASK_SCHEDULER_ADDRESS``, ``RAY_ADDRESS``), or make one on this machine; "dask" takes
            an existing ``Client``.
        done: gets the index of a call when it has returned.

    Raises:
        ParameterError: see ``check_backend``; or dask workers with several threads.
    """
    check_backend(backend, jobs)
    found: dict[int, T] = {}
    for place, value in _returned(calls, 1 if backend == "sequential" else jobs, backend):
        found[place] = value
        if done is not None:
            done(place)
    return [found[place] for place in range(len(calls))]


def _returned(calls: Sequence[Callable[[], T]], jobs: int, backend: str) -> Iterator[tuple[int, T]]:
    if jobs == 1:
        yield from ((place, call()) for place, call in enumerate(calls))
        return
    import joblib

    if backend == "ray":
        # joblib knows the backend only after this registration.
        importlib.import_module(_NEEDS["ray"]).register_ray()
    # Ray's backend returns everything at the end.
    how = "list" if backend == "ray" else "generator_unordered"
    with _dask(jobs) if backend == "dask" else nullcontext():
        with joblib.parallel_config(backend=backend, n_jobs=jobs):
            parallel = joblib.Parallel(return_as=how, batch_size=1)
        placed = (joblib.delayed(_placed)(*one) for one in enumerate(calls))
        yield from parallel(placed)


@contextmanager
def _dask(jobs: int) -> Iterator[None]:
    """Provide a client of dask whose workers have one thread each."""
    dask, distributed = importlib.import_module("dask"), importlib.import_module("distributed")
    try:
        there = nullcontext(distributed.get_client())
    except ValueError:
        # Join the named cluster, or make one here.
        here = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        named = dask.config.get("scheduler-address", None)
        there = distributed.Client(**({} if named else here))
    with there as client:
        if threads := max(client.nthreads().values(), default=1) - 1:
            rule = "have one thread, since threads share torch's randomness"
            refuse("threads of a dask worker", threads + 1, rule, "start workers with --nthreads 1")
        yield


def _placed(place: int, call: Callable[[], T]) -> tuple[int, T]:
    return place, call()
