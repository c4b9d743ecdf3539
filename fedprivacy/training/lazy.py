"""Clients whose records are made when they are drawn: a population of any size in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..errors import integer, refuse, require
from .data import FederatedData, Group

Records = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class LazyData:
    """A population whose clients' records are made by a function when they are drawn.

    Nothing of the other clients is kept, and nothing that was made outlives its round, so that
    memory follows the cohort's records at work, not the population.

    Args:
        name: what to call it; a checkpoint is bound to it and to the test set, as nobody can tell
            what the function will return.
        client: gets a client's number, from 0, returns its (inputs, targets): of at least one
            record, of the test set's types and shapes, finite. Whatever it draws must follow from
            the number alone: a client is the same whenever it is asked.
        population: how many clients there are.
        test_features: inputs of the test set; of no records (shape (0, ...)) where there is none.
        test_labels: targets of the test set.
        num_classes: number of classes, a public number; None where targets are no classes.
        public_features: inputs that belong to no client (for the mask of top_k), or None.
        public_labels: their targets, or None.

    Raises:
        ParameterError: as ``FederatedData``, of the test set and the public records.
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
        kind, rule = type(self.client).__name__, "be a function of a client's number"
        require(callable(self.client), "client", kind, rule)
        for name in ("test_features", "test_labels"):
            part = getattr(self, name)
            fits, rule = isinstance(part, Tensor), "be a tensor whose first axis is the records"
            require(fits and part.dim(), name, type(part).__name__, rule)
        # One record of nobody's stands for the clients: the rules are those of other data.
        nobody = tuple(part.new_zeros(1, *part.shape[1:]) for part in self.example())
        names = ("test_features", "test_labels", "public_features", "public_labels")
        others = {name: getattr(self, name) for name in names}
        object.__setattr__(self, "_checks", self._checked(nobody, **others))

    def _checked(self, made: Sequence[Tensor], **others: Tensor | None) -> FederatedData:
        """Return what one client has, as data whose rules are known."""
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
            ParameterError: it is not given: nobody has seen all labels.
        """
        if self.num_classes is None:
            refuse("num_classes", None, "be given for cross-entropy: labels are made as they come")
        return self.num_classes

    def example(self) -> Records:
        """Return (inputs, targets) of no records: their types and shapes."""
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
        # Raises for what is not finite, no class, or no record at all.
        self._checked(made)
        return made

    def groups(self, clients: Iterable[int], most: int) -> Iterator[Group]:
        """Yield clients of one size, at most so many at once, with their records.

        Clients wait for others of their size; with ``4 * most`` of them waiting, the largest group
        goes. What a client computes does not depend on its company.
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
    told = (getattr(given, "dtype", type(given).__name__), getattr(given, "shape", ""))
    rule = f"be like the test set's {like.dtype} of shape (records, *{like.shape[1:]})"
    require(fits, name, told, rule)


def _together(made: list[tuple[int, Records]]) -> Group:
    """Return clients of one size as a group, their records one after the other."""
    numbers = [client for client, _ in made]
    records = torch.cat([one[0] for _, one in made]), torch.cat([one[1] for _, one in made])
    rows = np.arange(len(records[0])).reshape(len(made), -1)
    return Group(numbers, records, list(rows))
