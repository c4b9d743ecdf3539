"""Computation of the clients of a round, in this process or in worker processes.

All random values of a client are drawn in advance, in one order (``ClientTask``), and its
arithmetic does not depend on the other clients (``FlatModel.clients_at_once``). Private
contributions lie on a grid, so their sums are exact. If the sum of updates is not exact, or
contributions are random, the updates come back one by one and are added in their order. So the
result of a round is the same, to the last bit, for every number of processes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ...training.optimise import BatchSchedule, FlatModel
from .collect import Collected

if TYPE_CHECKING:
    from .loop import FederatedAveraging


class RoundStart(NamedTuple):
    """Common start of all clients of a round.

    Attributes:
        parameters: shape (d,).
        learning_rate: learning rate of this round.
        momentum: a client's momentum; its velocity starts at 0.
        proximal: mu of FedProx.
        control: control variate of SCAFFOLD's server, shape (d,).
        controls: control variates of its clients, shape (clients, d); None without SCAFFOLD.
    """

    parameters: Tensor
    learning_rate: float
    momentum: float = 0.0
    proximal: float = 0.0
    control: Tensor | None = None
    controls: Tensor | None = None


class ClientTask(NamedTuple):
    """Training task of a group of clients.

    Attributes:
        clients: numbers of the clients.
        records: (inputs, targets) with the records of these clients.
        schedule: records that each client uses in each step.
        seed: seed of random layers; None without such layers.
    """

    clients: list[int]
    records: tuple[Tensor, Tensor]
    schedule: BatchSchedule
    seed: int | None

    def alone(self) -> ClientTask:
        """Return the same job with only the records that it uses."""
        used, rows = torch.unique(self.schedule.rows, return_inverse=True)
        records = self.records[0][used], self.records[1][used]
        return self._replace(records=records, schedule=BatchSchedule(rows, self.schedule.sizes))


class ProcessInput(NamedTuple):
    """Complete input of a process for some clients.

    Attributes:
        loop: pickled; see ``_unpickled``.
        work: the round's work.
        jobs: jobs of some clients.
        empty: a sum for their contributions, still zero.
        threads: number of torch's threads.
    """

    loop: bytes
    work: RoundStart
    jobs: list[ClientTask]
    empty: Collected
    threads: int


def trained(flat: FlatModel, work: RoundStart, job: ClientTask, device: str) -> Tensor:
    """Return the updates of a few clients, shape (clients, d)."""
    rates = (work.learning_rate, work.momentum, work.proximal)
    drift = None
    if work.control is not None and work.controls is not None:
        drift = work.control - work.controls[job.clients]
    facts = (work.parameters, job.records, job.schedule, *rates, drift)
    if job.seed is None:
        return flat.updates(*facts)
    with own_randomness(job.seed, device):
        return flat.updates(*facts)


def spread(
    loop: FederatedAveraging,
    work: RoundStart,
    jobs: Iterator[ClientTask],
    running: Collected,
    share: int,
    processes: int,
) -> None:
    """Train the clients of jobs in processes, and add up their contributions.

    Args:
        loop: the loop whose model is trained.
        work: the round's work.
        jobs: jobs of the round.
        running: the sum that receives all contributions.
        share: number of clients for one task of a process.
        processes: number of processes.
    """
    import joblib

    sent, threads = _pickled(loop), torch.get_num_threads()
    parts = (
        ProcessInput(sent, work, few, running.empty(_clients_of(few)), threads)
        for few in _together(jobs, share)
    )
    # Memory is not mapped from files, and few parts wait, so only the parts at work use memory.
    parallel = joblib.Parallel(
        n_jobs=processes, backend="loky", return_as="generator", batch_size=1,
        pre_dispatch=2 * processes, max_nbytes=None,
    )  # fmt: skip
    for clients, found in parallel(map(joblib.delayed(_done), parts)):
        if isinstance(found, Collected):
            running.merge(clients, found)
            continue
        for client, update in zip(clients, found, strict=True):
            running.add(client, update)


def _together(jobs: Iterator[ClientTask], share: int) -> Iterator[list[ClientTask]]:
    """Yield lists of jobs with ``share`` clients or a few more; the last list may have fewer."""
    held: list[ClientTask] = []
    for job in jobs:
        held.append(job.alone())
        if sum(len(one.clients) for one in held) >= share:
            yield held
            held = []
    if held:
        yield held


def _clients_of(jobs: list[ClientTask]) -> list[int]:
    return [client for job in jobs for client in job.clients]


def _done(part: ProcessInput) -> tuple[list[int], Collected | Tensor]:
    """Train a part's clients, in a separate process; return their sum or their updates."""
    torch.set_num_threads(part.threads)
    loop, total = _unpickled(part.loop), part.empty
    clients = _clients_of(part.jobs)
    updates = (trained(loop.flat, part.work, job, "cpu") for job in part.jobs)
    if total.perturbation is None or total.perturbation.encoding.draws:
        return clients, torch.cat(list(updates))
    for client, update in zip(clients, chain.from_iterable(updates), strict=True):
        total.add(client, update)
    return clients, total


def _pickled(loop: FederatedAveraging) -> bytes:
    """Return a loop as bytes, without its built model; functions in it are sent by value."""
    import joblib

    plain = replace(loop, processes=1)
    return pickle.dumps(joblib.wrap_non_picklable_objects(plain, keep_wrapper=False))


@lru_cache(maxsize=1)
def _unpickled(sent: bytes) -> Any:
    """Return the loop; it builds its model once in a process."""
    return pickle.loads(sent)


@contextmanager
def own_randomness(seed: int, device: str = "cpu") -> Iterator[None]:
    """Let torch draw from a seed; restore its own random state afterwards."""
    devices = [torch.device(device)] if device != "cpu" else []
    # torch.manual_seed also seeds devices that are not in use: until CUDA starts, it keeps the
    # stack of every call.
    begin = torch.manual_seed if devices else torch.default_generator.manual_seed
    with torch.random.fork_rng(devices=devices):
        begin(seed)
        yield
