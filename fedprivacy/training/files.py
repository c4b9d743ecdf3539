"""A user's own data and model, as named on the command line."""

from __future__ import annotations

import pkgutil
import runpy
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import refuse
from .data import FederatedData, Indices, partition_by_label, partition_iid
from .models import ModelFactory

NEEDED = ("features", "labels", "test_features", "test_labels")
OPTIONAL = ("clients", "public_features", "public_labels")
SAVE = "write it with numpy.savez(path, features=..., labels=..., clients=..., test_features=...)"


def read_npz(
    path: str | Path,
    *,
    clients: int | None = None,
    classes_per_client: int | None = None,
    seed: int = 0,
) -> FederatedData:
    """Return the data set in a file of ``numpy.savez``; nothing in it is executed.

    The arrays are ``features`` (first axis the records, any numbers), ``labels`` (classes from 0),
    ``test_features``, ``test_labels``; ``clients`` says of every record whose it is, by a number or
    a name; ``public_features`` and ``public_labels`` belong to no client. There are as many
    classes as the largest label says, so the labels together must be public knowledge.

    Args:
        path: the file.
        clients: into how many clients to split the records of a file without ``clients``.
        classes_per_client: None for an even split, else see ``data.partition_by_label``.
        seed: of the split, which is public.

    Raises:
        ParameterError: no such file, not of this kind, an array missing or unfit, or a split asked
            for where the file says whose the records are.
    """
    arrays = _arrays(Path(path))
    owners = arrays.pop("clients", None)
    labels = {name: _classes(name, arrays[name]) for name in arrays if name.endswith("labels")}
    if owners is not None:
        if clients is not None or classes_per_client is not None:
            given = (clients, classes_per_client)
            refuse("clients, classes_per_client", given, f"be left out: {path} names the clients")
        rows = _owned(owners, len(labels["labels"]))
    elif clients is None:
        refuse("clients", None, f"be given: {path} has no array 'clients'", "say how many")
    elif classes_per_client is None:
        rows = partition_iid(len(labels["labels"]), clients, seed=seed)
    else:
        truth = labels["labels"].numpy()
        rows = partition_by_label(truth, clients, classes_per_client=classes_per_client, seed=seed)
    features = {name: _inputs(name, arrays[name]) for name in arrays if name not in labels}
    return FederatedData(
        name=Path(path).name,
        clients=rows,
        num_classes=max(2, 1 + max(int(part.max(initial=0)) for part in _numpy(labels))),
        **features,
        **labels,
    )


def _numpy(labels: Mapping[str, Tensor]) -> list[NDArray[np.int64]]:
    return [part.numpy() for part in labels.values()]


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            arrays = dict(content) if isinstance(content, np.lib.npyio.NpzFile) else {}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        refuse("data", str(path), f"be a readable file of numpy.savez ({error})", SAVE)
    missing = [name for name in NEEDED if name not in arrays]
    unknown = [name for name in arrays if name not in (*NEEDED, *OPTIONAL)]
    if missing:
        refuse("data", str(path), f"hold an array {missing[0]!r}", SAVE)
    if unknown:
        rule = f"hold no arrays but {', '.join((*NEEDED, *OPTIONAL))}"
        refuse("data", unknown[0], rule, "leave it out or rename it")
    return arrays


def _inputs(name: str, values: NDArray[Any]) -> Tensor:
    if values.dtype.kind not in "fiub" or values.ndim < 2:
        got = f"{values.dtype} of shape {values.shape}"
        refuse(name, got, "be numbers, first axis the records, then each one's inputs")
    return torch.from_numpy(values.astype(np.float32))


def _classes(name: str, values: NDArray[Any]) -> Tensor:
    if values.dtype.kind not in "iu" or values.ndim != 1 or not len(values):
        got = f"{values.dtype} of shape {values.shape}"
        refuse(name, got, "be integers, one for each record", "number the classes from 0")
    return torch.from_numpy(values.astype(np.int64))


def _owned(owners: NDArray[Any], records: int) -> tuple[Indices, ...]:
    """Return each client's rows, clients in the order of their numbers or names."""
    if owners.dtype.kind not in "iuUS" or owners.shape != (records,):
        got = f"{owners.dtype} of shape {owners.shape}"
        refuse("clients", got, f"be a number or a name for each of the {records} records")
    of = np.unique(owners, return_inverse=True)[1]
    order = np.argsort(of, kind="stable")
    return tuple(np.split(order, np.flatnonzero(np.diff(of[order])) + 1))


def model_at(place: str) -> ModelFactory:
    """Return the function that builds the user's module.

    Args:
        place: "FILE.py:NAME" or "package.module:NAME"; the code there is run. NAME is called
            without arguments and must return a module, or is a subclass of ``nn.Module`` that can
            be made without arguments.

    Raises:
        ParameterError: nothing there, or it cannot be called.
    """
    source, _, name = place.rpartition(":")
    if not source or not name.isidentifier():
        refuse("model", place, "be FILE.py:NAME or package.module:NAME")
    try:
        known = runpy.run_path(source) if source.endswith(".py") else None
        found = pkgutil.resolve_name(place) if known is None else known.get(name)
    except (OSError, ImportError, AttributeError) as error:
        refuse("model", place, f"be found ({error})", "FILE.py:NAME or package.module:NAME")
    if not callable(found) or isinstance(found, nn.Module):
        refuse("model", place, "be a function that builds the module", "give the function's name")
    return found  # type: ignore[no-any-return]


def check_model(model: ModelFactory, data: FederatedData) -> None:
    """Build a model and put two of the data's test inputs through it.

    Raises:
        ParameterError: it is no module, does not take the inputs, or does not return one number
            for each class.
    """
    with torch.random.fork_rng(devices=[]):
        module: object = model()
    if not isinstance(module, nn.Module):
        refuse("model", type(module).__name__, "build an nn.Module")
    inputs = data.test_features[:2]
    shape = tuple(inputs.shape[1:])
    try:
        with torch.no_grad():
            outputs = module(inputs)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        refuse("model", type(module).__name__, f"take inputs of shape {shape} a record ({reason})")
    wanted = (len(inputs), data.num_classes)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != wanted:
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        refuse("model's output", got, f"have shape (records, {data.num_classes} classes)")
