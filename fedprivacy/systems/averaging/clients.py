"""What the clients of a round compute: here, or in processes beside.

All that is drawn for a client is drawn beforehand, in one order (``Job``), and its arithmetic does
not depend on its company (``FlatModel.clients_at_once``). Private contributions lie on a grid, and
sums of them are exact; updates whose sum is not, or whose contributions are drawn, come back one by
one, to be added in their order. So a round is the same, to the last bit, however many share it.
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

from ...training.optimise import FlatModel, Schedule
from .collect import Collected

if TYPE_CHECKING:
    from .loop import FederatedAveraging


class Work(NamedTuple):
    """What all clients of a round begin with.

    Attributes:
        parameters: shape (d,).
        learning_rate: of this round.
        momentum: of a client, from rest.
        proximal: mu of FedProx.
        control: of SCAFFOLD's server, shape (d,).
        controls: of its clients, shape (clients, d); None without SCAFFOLD.
    """

    parameters: Tensor
    learning_rate: float
    momentum: float = 0.0
    proximal: float = 0.0
    control: Tensor | None = None
    controls: Tensor | None = None


class Job(NamedTuple):
    """What a group of clients trains on.

    Attributes:
        clients: their numbers.
        records: (inputs, targets) that hold theirs.
        schedule: which of them each client uses in each step.
        seed: of layers that draw; None where none does.
    """

    clients: list[int]
    records: tuple[Tensor, Tensor]
    schedule: Schedule
    seed: int | None

    def alone(self) -> Job:
        """Return the same with the records that it uses and no others."""
        used, rows = torch.unique(self.schedule.rows, return_inverse=True)
        records = self.records[0][used], self.records[1][used]
        return self._replace(records=records, schedule=Schedule(rows, self.schedule.sizes))


class Part(NamedTuple):
    """What goes to a process: everything that some clients need.

    Attributes:
        loop: pickled; see ``_unpickled``.
        work: the round's.
        jobs: of some clients.
        empty: a sum of their contributions, nothing added yet.
        threads: of torch.
    """

    loop: bytes
    work: Work
    jobs: list[Job]
    empty: Collected
    threads: int


def trained(flat: FlatModel, work: Work, job: Job, device: str) -> Tensor:
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
    work: Work,
    jobs: Iterator[Job],
    running: Collected,
    share: int,
    processes: int,
) -> None:
    """Let processes train the clients of jobs, and add up what they contribute.

    Args:
        loop: whose model is trained.
        work: the round's.
        jobs: what there is to train.
        running: the sum, which gets everything.
        share: how many clients go to a process at a time.
        processes: how many.
    """
    import joblib

    sent, threads = _pickled(loop), torch.get_num_threads()
    parts = (
        Part(sent, work, few, running.empty(_clients_of(few)), threads)
        for few in _together(jobs, share)
    )
    # Memory is not mapped from files, and few parts wait: what is at work is all there is.
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


def _together(jobs: Iterator[Job], share: int) -> Iterator[list[Job]]:
    """Yield jobs of ``share`` clients together or a few more, the last ones of fewer."""
    held: list[Job] = []
    for job in jobs:
        held.append(job.alone())
        if sum(len(one.clients) for one in held) >= share:
            yield held
            held = []
    if held:
        yield held


def _clients_of(jobs: list[Job]) -> list[int]:
    return [client for job in jobs for client in job.clients]


def _done(part: Part) -> tuple[list[int], Collected | Tensor]:
    """Train a part's clients, in a process of its own; return their sum or their updates."""
    torch.set_num_threads(part.threads)
    loop, total = _unpickled(part.loop), part.empty
    clients = _clients_of(part.jobs)
    updates = (trained(loop.flat, part.work, job, "cpu") for job in part.jobs)
    if total.perturbation is None or total.perturbation.draws:
        return clients, torch.cat(list(updates))
    for client, update in zip(clients, chain.from_iterable(updates), strict=True):
        total.add(client, update)
    return clients, total


def _pickled(loop: FederatedAveraging) -> bytes:
    """Return a loop as bytes, without what it has built; functions within travel by value."""
    import joblib

    plain = replace(loop, processes=1)
    return pickle.dumps(joblib.wrap_non_picklable_objects(plain, keep_wrapper=False))


@lru_cache(maxsize=1)
def _unpickled(sent: bytes) -> Any:
    """Return the loop; it builds its model once a process."""
    return pickle.loads(sent)


@contextmanager
def own_randomness(seed: int, device: str = "cpu") -> Iterator[None]:
    """Let torch draw from a seed; its own state is as before afterwards."""
    devices = [torch.device(device)] if device != "cpu" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
