"""Data sets, split among clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..errors import ParameterError, integer, refuse

Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class FederatedData:
    """A data set whose records belong to clients.

    The records are kept once; a client is a list of row numbers.

    Args:
        name: what to call it in a report.
        features: inputs, first axis the records; float, finite.
        labels: classes, shape (records,), int64, from 0 to ``num_classes - 1``.
        clients: row numbers of each client, none empty; a row belongs to one client, once.
        test_features: inputs of the test set.
        test_labels: labels of the test set.
        num_classes: number of classes.
        public_features: inputs that belong to no client (for the mask of top_k), or None.
        public_labels: their labels, or None.

    Raises:
        ParameterError: shapes that do not agree, a client without records, a row number out of
            range, an input that is not finite, a label that is not a class.
    """

    name: str
    features: Tensor
    labels: Tensor
    clients: tuple[Indices, ...]
    test_features: Tensor
    test_labels: Tensor
    num_classes: int
    public_features: Tensor | None = None
    public_labels: Tensor | None = None

    def __post_init__(self) -> None:
        integer(2, num_classes=self.num_classes)
        clients = _row_numbers(self.clients)
        object.__setattr__(self, "clients", clients)
        integer(1, clients=len(clients))
        for part in ("", "test_", "public_"):
            _check_records(self, part)
        inputs = [self.features, self.test_features, self.public_features]
        shapes = {tuple(part.shape[1:]) for part in inputs if part is not None}
        if len(shapes) > 1:
            refuse("features", sorted(shapes), "have one shape a record in all parts of the data")
        for number, rows in enumerate(clients):
            _check_client(number, rows, len(self.labels))
        _check_owners(np.concatenate(clients))

    @property
    def population(self) -> int:
        """Number of clients."""
        return len(self.clients)

    def records(self, client: int) -> tuple[Tensor, Tensor]:
        """Return one client's (inputs, labels)."""
        rows = torch.from_numpy(self.clients[client]).to(self.labels.device)
        return self.features[rows], self.labels[rows]

    def public(self) -> tuple[Tensor, Tensor]:
        """Return the public (inputs, labels).

        Raises:
            ParameterError: there are none.
        """
        if self.public_features is None or self.public_labels is None:
            refuse(
                "public_features",
                None,
                "be given for top_k, whose mask comes from public data",
                "set records aside with public=..., or use rand_k",
            )
        return self.public_features, self.public_labels


def _check_records(data: FederatedData, part: str) -> None:
    features, labels = getattr(data, f"{part}features"), getattr(data, f"{part}labels")
    if part == "public_" and features is None and labels is None:
        return
    if features is None or labels is None:
        refuse(f"{part}features, {part}labels", None, "be given together")
    for name, values in ((f"{part}features", features), (f"{part}labels", labels)):
        if not isinstance(values, Tensor):
            refuse(name, type(values).__name__, "be a tensor", "torch.as_tensor(...)")
    shapes = tuple(features.shape), tuple(labels.shape)
    if shapes[0][:1] != shapes[1]:
        refuse(f"{part}features, {part}labels", shapes, "have one label for every input")
    integer(1, **{f"{part}records": len(labels)})
    _check_values(f"{part}features", features, f"{part}labels", labels, data.num_classes)


def _check_values(inputs: str, features: Tensor, truth: str, labels: Tensor, classes: int) -> None:
    if labels.dtype != torch.int64:
        refuse(truth, labels.dtype, "be int64", "pass labels.long()")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        refuse(truth, (low, high), f"lie from 0 to {classes - 1}")
    if not features.is_floating_point():
        refuse(inputs, features.dtype, "be floating-point numbers")
    extremes = torch.stack(torch.aminmax(features)) if features.numel() else features
    if not bool(torch.isfinite(extremes).all()):
        refuse(inputs, "a non-finite entry", "be finite")


def _row_numbers(clients: object) -> tuple[Indices, ...]:
    """Return row numbers as arrays; masks, fractions and the keys of a mapping are none."""
    if isinstance(clients, Mapping) or not isinstance(clients, Iterable):
        way_out = "tuple(clients.values()), for instance"
        refuse("clients", type(clients).__name__, "be a sequence of row numbers", way_out)
    found = []
    for number, rows in enumerate(clients):
        given = np.asarray(rows).reshape(-1)
        if len(given) and given.dtype.kind not in "iu":
            way_out = "np.flatnonzero(mask) for a mask"
            refuse(f"clients[{number}]", given.dtype, "hold whole row numbers", way_out)
        found.append(given.astype(np.int64))
    return tuple(found)


def _check_owners(rows: Indices) -> None:
    """Refuse a record that several hold: replacing it would move more than one contribution."""
    ordered = np.sort(rows)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        refuse("clients", f"row {twice[0]} more than once", "hold every row at most once")


def _check_client(number: int, rows: Indices, records: int) -> None:
    if not len(rows):
        refuse(f"clients[{number}]", "no record", "hold at least one", "use fewer clients")
    low, high = int(rows.min()), int(rows.max())
    if low < 0 or high >= records:
        refuse(f"clients[{number}]", (low, high), f"be row numbers from 0 to {records - 1}")


def partition_iid(records: int, clients: int, *, seed: int = 0) -> tuple[Indices, ...]:
    """Return a random split of ``records`` rows into ``clients`` parts whose sizes differ by 1.

    Args:
        records: number of rows.
        clients: number of parts, at most ``records``.
        seed: of the split, which is public.

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

    The rows, sorted by label and shuffled within a label, are cut into
    ``clients * classes_per_client`` runs and each client gets that many runs at random, as in
    McMahan et al. (2017), section 3. A run may straddle two classes.

    Args:
        labels: shape (records,).
        clients: number of parts.
        classes_per_client: number of runs that a client gets.
        seed: of the split, which is public.

    Raises:
        ParameterError: a run would have no record.
    """
    runs = integer(1, classes_per_client=classes_per_client)
    values = np.asarray(labels)
    count = _check_split(len(values), clients, runs)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(values))
    order = order[np.argsort(values[order], kind="stable")]
    shards = np.array_split(order, count * runs)
    dealt = generator.permutation(count * runs).reshape(count, runs)
    return tuple(np.sort(np.concatenate([shards[s] for s in hand])) for hand in dealt)


def _check_split(records: int, clients: int, runs: int = 1) -> int:
    count = integer(1, clients=clients)
    if count * runs > records:
        refuse(
            "clients",
            clients,
            f"be at most {records // runs}, for {records} records and {runs} part(s) each",
            "a client with no data is refused; use fewer clients",
        )
    return count


def digits(
    *,
    clients: int = 300,
    public: int = 100,
    test: int = 360,
    classes_per_client: int | None = None,
    seed: int = 0,
) -> FederatedData:
    """Return scikit-learn's digits: 1797 images of 8 x 8, scaled to [0, 1], ten classes.

    Args:
        clients: number of clients that share the records left over.
        public: records set aside as public; 0 for none.
        test: records set aside for the test.
        classes_per_client: None for an even split, else see ``partition_by_label``.
        seed: of the split, which is public.

    Raises:
        ParameterError: not enough records, or scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ParameterError(
            "digits needs scikit-learn, which is not installed; pip install 'fedprivacy[train]'"
        ) from error
    inputs, labels = load_digits(return_X_y=True)
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
    num_classes: int = 10,
    seed: int = 0,
) -> FederatedData:
    """Split ``train`` among clients.

    Args:
        name: what to call the data set.
        train: (inputs, labels) to split.
        test: (inputs, labels) for the test.
        public: (inputs, labels) that belong to no client; None or empty for none.
        clients: number of clients.
        classes_per_client: None for an even split, else see ``partition_by_label``.
        num_classes: number of classes.
        seed: of the split, which is public.

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
