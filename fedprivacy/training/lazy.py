"""Clients whose records are made when they are drawn: large populations in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..errors import integer, refuse, require
from .data import ClientGroup, FederatedData

Records = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class LazyData:
    """A population whose clients' records are made by a function when they are drawn.

    The records of other clients are not in memory, and no record outlives its round. Memory
    therefore grows with the records of the cohort at work, not with the population.

    Args:
        name: name of the data. A checkpoint is bound to the name and the test set, because the
            results of the function cannot be known in advance.
        client: gets a client's number, from 0, and returns its (inputs, targets). It returns at
            least one record, of the test set's dtypes and shapes, finite. The result must depend
            only on the number: a client has the same records in every call.
        population: number of clients.
        test_features: inputs of the test set; of no records (shape (0, ...)) if there is none.
        test_labels: targets of the test set.
        num_classes: number of classes, a public number; None if targets are not classes.
        public_features: inputs that belong to no client (for the mask of top_k), or None.
        public_labels: their targets, or None.

    Raises:
        ParameterError: as for ``FederatedData``, for the test set and the public records.
    """

    name: str = "lazy data"
    client: Callable[[int], Records]
    population: int
    test_features: Tensor
    test_labels: Tensor
    num_classes: int | None = None
    public_features: Tensor | None = None
    public_labels: Tensor | None = None
    _checks: FederatedData = field(init=False, repr=False)

    def __post_init__(self) -> None:
        integer(1, population=self.population)
        kind, rule = type(self.client).__name__, "be a function of the client number"
        require(callable(self.client), "client", kind, rule)
        for name in ("test_features", "test_labels"):
            part = getattr(self, name)
            fits, rule = isinstance(part, Tensor), "be a tensor whose first axis is the records"
            require(fits and part.dim(), name, type(part).__name__, rule)
        # One artificial record represents the clients, so that the checks of ``FederatedData``
        # apply.
        nobody = tuple(part.new_zeros(1, *part.shape[1:]) for part in self.example())
        names = ("test_features", "test_labels", "public_features", "public_labels")
        others = {name: getattr(self, name) for name in names}
        object.__setattr__(self, "_checks", self._checked(nobody, **others))

    def _checked(self, made: Sequence[Tensor], **others: Tensor | None) -> FederatedData:
        """Return one client's records as ``FederatedData``, which checks them."""
        return FederatedData(
            features=made[0],
            labels=made[1],
            clients=(np.arange(len(made[0])),),
            num_classes=self.num_classes,
            **others,  # type: ignore[arg-type]
        )

    @property
    def classes(self) -> int:
        """Number of classes.

        Raises:
            ParameterError: it is not given; the labels are made on demand, so it is unknown.
        """
        if self.num_classes is None:
            refuse(
                "num_classes", None, "be given for cross-entropy, since labels are generated later"
            )
        return self.num_classes

    def example(self) -> Records:
        """Return (inputs, targets) of no records: their dtypes and shapes."""
        return self.test_features[:0], self.test_labels[:0]

    def public(self) -> Records:
        """Return the public (inputs, labels); see ``FederatedData.public``."""
        return self._checks.public()

    def records(self, client: int) -> Records:
        """Return one client's (inputs, labels), made now.

        Raises:
            ParameterError: they do not fit the test set, or are not finite.
        """
        made, name = self.client(client), f"client({client})"
        pair = isinstance(made, tuple) and len(made) == 2
        require(pair, name, type(made).__name__, "be (inputs, targets)")
        for given, like in zip(made, self.example(), strict=True):
            _check_like(name, given, like)
        # Raises for values that are not finite, labels that are not classes, or no records.
        self._checked(made)
        return made

    def groups(self, clients: Iterable[int], most: int) -> Iterator[ClientGroup]:
        """Yield clients of one size, at most ``most`` at once, with their records.

        Clients wait for others of their size. When ``4 * most`` clients wait, the largest group is
        yielded. The computation of a client does not depend on the other clients of its group.
        """
        waiting: dict[int, list[tuple[int, Records]]] = {}
        for client in clients:
            made = self.records(client)
            alike = waiting.setdefault(len(made[0]), [])
            alike.append((client, made))
            if len(alike) == most:
                yield _together(waiting.pop(len(made[0])))
            elif sum(map(len, waiting.values())) >= 4 * most:
                yield _together(waiting.pop(max(waiting, key=lambda size: len(waiting[size]))))
        for alike in waiting.values():
            yield _together(alike)


def _check_like(name: str, given: object, like: Tensor) -> None:
    wanted = like.dtype, like.shape[1:], like.device
    fits = (
        isinstance(given, Tensor)
        and given.dim() > 0
        and (given.dtype, given.shape[1:], given.device) == wanted
    )
    got = (getattr(given, "dtype", type(given).__name__), getattr(given, "shape", ""))
    rule = f"be like those of the test set, {like.dtype} of shape (records, *{like.shape[1:]})"
    require(fits, name, got, rule)


def _together(made: list[tuple[int, Records]]) -> ClientGroup:
    """Return clients of one size as a group, with their records concatenated."""
    numbers = [client for client, _ in made]
    records = torch.cat([one[0] for _, one in made]), torch.cat([one[1] for _, one in made])
    rows = np.arange(len(records[0])).reshape(len(made), -1)
    return ClientGroup(numbers, records, list(rows))
