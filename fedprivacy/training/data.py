"""Data sets, split among clients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import as_file, files
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..errors import integer, refuse, require
from ..mechanisms.noise import check_readable

Indices = NDArray[np.int64]


class ClientGroup(NamedTuple):
    """Clients of one size, which are trained together.

    Attributes:
        clients: numbers of the clients.
        records: (inputs, targets) with the records of these clients.
        rows: row numbers of each client in ``records``.
    """

    clients: list[int]
    records: tuple[Tensor, Tensor]
    rows: list[Indices]


def _none() -> Tensor:
    """Return the placeholder for a tensor that was left out."""
    return torch.empty(0)


@dataclass(frozen=True, kw_only=True, eq=False)
class FederatedData:
    """A data set whose records belong to clients.

    The records are kept once; a client is a list of row numbers.

    Targets may be of any kind: class numbers, real responses, several columns for each record, or
    none.

    Args:
        name: name of the data set in a report.
        features: inputs, first axis the records; float, finite.
        labels: targets, first axis the records, finite. Classes are int64, shape (records,), from 0
            to ``num_classes - 1`` if that is given. Left out if records have no targets.
        clients: row numbers of each client, none empty; a row belongs to one client, once.
        test_features: inputs of the test set; left out if there is none.
        test_labels: targets of the test set.
        num_classes: number of classes. None if the targets are not classes, or if the number
            follows from the largest class, which is public then.
        public_features: inputs that belong to no client (for the mask of top_k), or None.
        public_labels: their targets, or None.

    Raises:
        ParameterError: shapes that do not agree, a client without records, a row number out of
            range, an input that is not finite, a label that is not a class.
    """

    name: str = "data"
    features: Tensor
    labels: Tensor = field(default_factory=_none)
    clients: tuple[Indices, ...]
    test_features: Tensor = field(default_factory=_none)
    test_labels: Tensor = field(default_factory=_none)
    num_classes: int | None = None
    public_features: Tensor | None = None
    public_labels: Tensor | None = None

    def __post_init__(self) -> None:
        if self.num_classes is not None:
            integer(2, num_classes=self.num_classes)
        clients = _row_numbers(self.clients)
        object.__setattr__(self, "clients", clients)
        integer(1, clients=len(clients))
        # Before the checks, so that the checks find a tensor in every field.
        self._fill()
        for part in ("", "test_", "public_"):
            _check_records(self, part)
        inputs = [self.features, self.test_features, self.public_features]
        shapes = {tuple(part.shape[1:]) for part in inputs if part is not None}
        rule = "have one shape per record in all parts of the data"
        require(len(shapes) == 1, "features", sorted(shapes), rule)
        for number, rows in enumerate(clients):
            _check_client(number, rows, len(self.labels))
        _check_owners(np.concatenate(clients))

    def _fill(self) -> None:
        """Replace left-out fields by tensors without columns, or without records."""
        names = ("features", "labels")
        for name in names:
            _check_tensor(name, getattr(self, name))
        if _is_left_out(self.labels) and len(self.features):
            object.__setattr__(self, "labels", self.features.new_empty((len(self.features), 0)))
        for name in names:
            if _is_left_out(getattr(self, f"test_{name}")):
                # No records, but the right dtype and shape of a record.
                object.__setattr__(self, f"test_{name}", getattr(self, name)[:0])

    @property
    def classes(self) -> int:
        """Number of classes: ``num_classes``, or the number that follows from all labels.

        Raises:
            ParameterError: the targets are not classes.
        """
        if self.num_classes is not None:
            return self.num_classes
        parts = [self.labels, self.test_labels, self.public_labels]
        known = [part for part in parts if part is not None and len(part)]
        kind = f"{self.labels.dtype} of shape {tuple(self.labels.shape)}"
        rule = "be class numbers for cross-entropy"
        require(all(map(_numbers_classes, known)), "labels", kind, rule, _OTHER_LOSS)
        ends = [(int(part.min()), int(part.max())) for part in known]
        rule = "be class numbers from 0"
        require(min(ends)[0] >= 0, "labels", "one below 0", rule, _OTHER_LOSS)
        # At least two: the cross-entropy of a single class is always 0.
        return max(2, *(1 + high for _, high in ends))

    @property
    def population(self) -> int:
        """Number of clients."""
        return len(self.clients)

    def records(self, client: int) -> tuple[Tensor, Tensor]:
        """Return one client's (inputs, labels)."""
        rows = torch.from_numpy(self.clients[client]).to(self.labels.device)
        return self.features[rows], self.labels[rows]

    @property
    def inputs(self) -> int:
        """Number of inputs of a record."""
        return math.prod(self.features.shape[1:])

    def example(self) -> tuple[Tensor, Tensor]:
        """Return (inputs, targets) of no records: their dtypes and shapes."""
        features, labels = self.features, self.labels
        return features.new_empty(0, *features.shape[1:]), labels.new_empty(0, *labels.shape[1:])

    def groups(self, clients: Iterable[int], most: int) -> Iterator[ClientGroup]:
        """Yield clients of one size, at most ``most`` at once."""

        def size(client: int) -> int:
            return len(self.clients[client])

        # By size: only plans of equal length are trained together; see ``LocalSGD.schedule``.
        for _, alike in itertools.groupby(sorted(clients, key=size), key=size):
            group = list(alike)
            for start in range(0, len(group), most):
                few = group[start : start + most]
                yield ClientGroup(few, (self.features, self.labels), [self.clients[c] for c in few])

    def public(self) -> tuple[Tensor, Tensor]:
        """Return the public (inputs, labels).

        Raises:
            ParameterError: the data set has no public records.
        """
        if self.public_features is None or self.public_labels is None:
            refuse(
                "public_features",
                None,
                "be given for top_k, whose mask is computed from public data",
                "reserve records with public=..., or use rand_k",
            )
        return self.public_features, self.public_labels


_OTHER_LOSS = "number the classes from 0; for other targets pass a loss, such as nn.MSELoss()"


def _is_left_out(values: object) -> bool:
    return isinstance(values, Tensor) and values.shape == (0,)


def _check_records(data: FederatedData, part: str) -> None:
    names = f"{part}features", f"{part}labels"
    features, labels = (getattr(data, name) for name in names)
    if part == "public_" and features is labels is None:
        return
    together = features is not None and labels is not None
    require(together, ", ".join(names), None, "be given together")
    for name in names:
        _check_tensor(name, getattr(data, name))
        check_readable(name, getattr(data, name))
    _check_pair(data, part, features, labels)


def _check_tensor(name: str, values: object) -> None:
    kind = type(values).__name__
    require(isinstance(values, Tensor), name, kind, "be a tensor", "pass torch.as_tensor(...)")


def _check_pair(data: FederatedData, part: str, features: Tensor, labels: Tensor) -> None:
    """Refuse a part whose tensors do not fit each other or the records."""
    shapes, wanted = (tuple(features.shape), tuple(labels.shape)), tuple(data.labels.shape[1:])
    alike = all(shapes) and shapes[0][0] == shapes[1][0]
    rule = "have one label for every input"
    require(alike, f"{part}features, {part}labels", shapes, rule)
    # A test set may be empty; the other parts may not.
    integer(0 if part == "test_" else 1, **{f"{part}records": len(labels)})
    rule = f"have the shape of the other labels per record, {wanted}"
    require(shapes[1][1:] == wanted, f"{part}labels", shapes[1][1:], rule)
    if data.num_classes is not None and len(labels):
        _check_classes(f"{part}labels", labels, data.num_classes)
    _check_finite(f"{part}labels", labels)
    # A shorter dtype leaves few digits of a gradient, and the bounds on rounding do not cover it.
    long, rule = (torch.float32, torch.float64), "be torch.float32 or torch.float64"
    way_out = f"pass {part}features.to(torch.float32)"
    require(features.dtype in long, f"{part}features", features.dtype, rule, way_out)
    _check_finite(f"{part}features", features)


def _numbers_classes(labels: Tensor) -> bool:
    return labels.dtype == torch.int64 and labels.dim() == 1


def _check_classes(name: str, labels: Tensor, classes: int) -> None:
    """Refuse labels that are not class numbers; the advice must not truncate a real response."""
    rule = f"be integers (int64) from 0 to {classes - 1}, one per record"
    way_out = "leave out num_classes for other targets"
    if labels.is_floating_point() and labels.dim() == 1 and bool((labels == labels.round()).all()):
        way_out = f"pass {name}.to(torch.int64) if these are classes, else leave out num_classes"
    kind = f"{labels.dtype} of shape {tuple(labels.shape)}"
    require(_numbers_classes(labels), name, kind, rule, way_out)
    low, high = map(int, torch.aminmax(labels))
    require(0 <= low <= high < classes, name, (low, high), f"lie from 0 to {classes - 1}", way_out)


def _check_finite(name: str, values: Tensor) -> None:
    if not values.numel() or not values.is_floating_point():
        return
    # A NaN gives NaN extremes, and this needs no mask of the data's size.
    if not bool(torch.isfinite(torch.stack(torch.aminmax(values))).all()):
        refuse(name, "a non-finite entry", "be finite")


def _row_numbers(clients: object) -> tuple[Indices, ...]:
    """Return row numbers as arrays; refuse masks, fractions and a mapping."""
    if isinstance(clients, Mapping) or not isinstance(clients, Iterable):
        way_out = "pass tuple(clients.values()), for example"
        refuse("clients", type(clients).__name__, "be a sequence of row numbers", way_out)
    found = []
    for number, rows in enumerate(clients):
        given = np.asarray(rows).reshape(-1)
        # An empty list has no dtype; `_check_client` refuses it.
        if len(given) and given.dtype.kind not in "iu":
            way_out = "pass np.flatnonzero(mask) for a mask"
            refuse(f"clients[{number}]", given.dtype, "contain integer row numbers", way_out)
        found.append(given.astype(np.int64))
    return tuple(found)


def _check_owners(rows: Indices) -> None:
    """Refuse a record of several clients: replacing it would change more than one contribution."""
    ordered = np.sort(rows)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        refuse("clients", f"row {twice[0]} more than once", "contain every row at most once")


def _check_client(number: int, rows: Indices, records: int) -> None:
    require(
        len(rows),
        f"clients[{number}]",
        "no record",
        "contain at least one row",
        "use fewer clients",
    )
    low, high = int(rows.min()), int(rows.max())
    rule = f"be row numbers from 0 to {records - 1}"
    require(0 <= low <= high < records, f"clients[{number}]", (low, high), rule)


def partition_iid(records: int, clients: int, *, seed: int = 0) -> tuple[Indices, ...]:
    """Return a random split of ``records`` rows into ``clients`` parts; sizes differ by at most 1.

    Args:
        records: number of rows.
        clients: number of parts, at most ``records``.
        seed: seed of the split, which is public.

    Raises:
        ParameterError: a client would have no record.
    """
    count = _check_split(records, clients)
    order = np.random.default_rng(seed).permutation(records)
    return tuple(np.sort(part) for part in np.array_split(order, count))


def partition_by_label(
    labels: ArrayLike, clients: int, *, classes_per_client: int = 2, seed: int = 0
) -> tuple[Indices, ...]:
    """Return a heterogeneous split: a client holds records of few classes.

    The rows are sorted by label and shuffled within a label, then cut into ``clients *
    classes_per_client`` runs. Each client gets ``classes_per_client`` runs at random, as in McMahan
    et al. (2017), section 3. A run may contain two classes.

    Args:
        labels: shape (records,).
        clients: number of parts.
        classes_per_client: number of runs that a client gets.
        seed: seed of the split, which is public.

    Raises:
        ParameterError: a run would have no record.
    """
    runs = integer(1, classes_per_client=classes_per_client)
    values = np.asarray(labels)
    count = _check_split(len(values), clients, runs)
    generator = np.random.default_rng(seed)
    # Shuffled first and then sorted stably: random within a label.
    order = generator.permutation(len(values))
    order = order[np.argsort(values[order], kind="stable")]
    shards = np.array_split(order, count * runs)
    dealt = generator.permutation(count * runs).reshape(count, runs)
    return tuple(np.sort(np.concatenate([shards[s] for s in hand])) for hand in dealt)


def _check_split(records: int, clients: int, runs: int = 1) -> int:
    count = integer(1, clients=clients)
    rule = f"be at most {records // runs}, for {records} records and {runs} part(s) each"
    way_out = "every client needs data; use fewer clients"
    require(count * runs <= records, "clients", clients, rule, way_out)
    return count


@lru_cache(maxsize=1)
def _digits() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the digits: images (1797, 8, 8) of integers from 0 to 16, and labels (1797,)."""
    with as_file(files(__package__) / "digits.npz") as path, np.load(path) as held:
        return held["images"], held["labels"]


def digits(
    *,
    clients: int = 300,
    public: int = 100,
    test: int = 360,
    classes_per_client: int | None = None,
    seed: int = 0,
) -> FederatedData:
    """Return handwritten digits: 1797 images of 8 x 8, scaled to [0, 1], ten classes.

    The data are part of this package (Alpaydin and Kaynak, 1998; see NOTICE) and equal
    scikit-learn's ``load_digits``.

    Args:
        clients: number of clients that share the remaining records.
        public: records set aside as public; 0 for none.
        test: records set aside for the test.
        classes_per_client: None for an even split, else see ``partition_by_label``.
        seed: seed of the split, which is public.

    Raises:
        ParameterError: not enough records.
    """
    images, labels = _digits()
    inputs = images.reshape(len(images), -1)
    order = np.random.default_rng(seed).permutation(len(labels))
    features = torch.from_numpy(np.asarray(inputs[order] / 16.0, dtype=np.float32))
    truth = torch.from_numpy(np.asarray(labels[order], dtype=np.int64))
    held = integer(1, test=test) + integer(0, public=public)
    if held >= len(truth):
        refuse("test + public", held, f"be below the number of records, {len(truth)}")
    return federate(
        "digits",
        (features[held:], truth[held:]),
        (features[:test], truth[:test]),
        (features[test:held], truth[test:held]),
        clients=clients,
        classes_per_client=classes_per_client,
        seed=seed,
    )


def federate(
    name: str,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    public: tuple[Tensor, Tensor] | None = None,
    *,
    clients: int,
    classes_per_client: int | None = None,
    num_classes: int | None = 10,
    seed: int = 0,
) -> FederatedData:
    """Split ``train`` among clients.

    Args:
        name: name of the data set.
        train: (inputs, labels) to split.
        test: (inputs, labels) for the test.
        public: (inputs, labels) that belong to no client; None or empty for none.
        clients: number of clients.
        classes_per_client: None for an even split, else see ``partition_by_label``.
        num_classes: number of classes; None if the labels are not classes.
        seed: seed of the split, which is public.

    Raises:
        ParameterError: a client would have no record, or the tensors do not agree.
    """
    rows: Sequence[Indices]
    if classes_per_client is None:
        rows = partition_iid(len(train[1]), clients, seed=seed)
    else:
        rows = partition_by_label(
            train[1].cpu().numpy(), clients, classes_per_client=classes_per_client, seed=seed
        )
    open_data = public if public is not None and len(public[1]) else (None, None)
    return FederatedData(
        name=name,
        features=train[0],
        labels=train[1],
        clients=tuple(rows),
        test_features=test[0],
        test_labels=test[1],
        num_classes=num_classes,
        public_features=open_data[0],
        public_labels=open_data[1],
    )
