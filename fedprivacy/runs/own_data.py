"""A user's own data and model, by their names on the command line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import ParameterError, refuse
from ..training.data import FederatedData, Indices, partition_by_label, partition_iid
from ..training.models import ModelFactory
from ..training.optimise import NUMBERED, FlatModel, LocalSGD, check_frozen
from ..training.posterior import Posterior

NEEDED = ("features", "labels")
OPTIONAL = ("clients", "test_features", "test_labels", "public_features", "public_labels")
MOST_CLASSES = 10**6
"""Larger labels are refused: the label count would become the model's output size."""
_PACKED, _READ_ANYWAY = 100, 1 << 26
"""Largest allowed ratio of unpacking for files above this size in bytes; images have 5 to 50."""

SAVE = "write it with numpy.savez(path, features=..., labels=..., clients=..., test_features=...)"


def read_npz(
    path: str | Path,
    *,
    clients: int | None = None,
    classes_per_client: int | None = None,
    seed: int = 0,
) -> FederatedData:
    """Return the data set in a file of ``numpy.savez``. Its content is never executed.

    The arrays are ``features`` (first axis the records, any numbers) and ``labels`` (classes from
    0). ``clients`` gives the owner of every record, by a number or a name. A model is scored on
    ``test_features`` and ``test_labels`` if they are there. ``public_features`` and
    ``public_labels`` belong to no client. The largest label sets the number of classes, so the
    labels together must be public knowledge.

    Args:
        path: the file.
        clients: number of clients that share the records of a file without ``clients``.
        classes_per_client: None for an even split, else see ``data.partition_by_label``.
        seed: of the split, which is public.

    Raises:
        ParameterError: the file does not exist or has another format; an array is missing or unfit;
            or a split is requested although the file names the owners.
    """
    arrays, split = _arrays(Path(path)), (clients, classes_per_client)
    owners = arrays.pop("clients", None)
    labels = {name: _classes(name, arrays[name]) for name in arrays if name.endswith("labels")}
    if owners is None:
        rows = _split(path, labels["labels"].numpy(), split, seed)
    elif split != (None, None):
        refuse("clients, classes_per_client", split, f"be left out, since {path} names the clients")
    else:
        rows = _owned(owners, len(labels["labels"]))
    features = {name: _inputs(name, arrays[name]) for name in arrays if name not in labels}
    return FederatedData(
        name=Path(path).name,
        clients=rows,
        num_classes=max(2, 1 + max(int(part.max()) for part in labels.values())),
        **features,
        **labels,
    )


def _split(
    path: str | Path, labels: NDArray[Any], split: tuple[int | None, int | None], seed: int
) -> tuple[Indices, ...]:
    """Return the records of each client of a file without owners."""
    clients, classes_per_client = split
    if clients is None:
        refuse("clients", None, f"be given: {path} has no array 'clients'", "pass --clients 200")
    if classes_per_client is None:
        return partition_iid(len(labels), clients, seed=seed)
    return partition_by_label(labels, clients, classes_per_client=classes_per_client, seed=seed)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    _check_file(path)
    try:
        with open(path, "rb") as file:
            # No pickles: they run code when they are read.
            content = np.load(file, allow_pickle=False)
            _check_names(path, list(content.files))
            _check_unpacked(path, content.zip)
            arrays = dict(content)
    except ParameterError:
        raise
    except Exception as error:  # a damaged file may raise any exception of its reader
        reason = _first_line(error)
        refuse("data", str(path), f"be a readable file of numpy.savez ({reason})", SAVE)
    # An archive may hold members that are not arrays.
    broken = [name for name, value in arrays.items() if not isinstance(value, np.ndarray)]
    if broken:
        refuse("data", broken[0], "be an array of numpy", SAVE)
    return arrays


def _check_file(path: Path) -> None:
    if not path.exists():
        refuse("data", str(path), "be an existing file", SAVE)
    # Opening a pipe blocks for ever. A single array would be read completely before its refusal.
    if not path.is_file() or not zipfile.is_zipfile(path):
        refuse("data", str(path), "be a readable file of numpy.savez", SAVE)


def _check_names(path: Path, names: list[str]) -> None:
    """Refuse unknown arrays before they are read."""
    tested = ("test_features", "test_labels")
    wanted = (*NEEDED, *tested) if {*tested} & {*names} else NEEDED
    missing = [name for name in wanted if name not in names]
    unknown = [name for name in names if name not in (*NEEDED, *OPTIONAL)]
    if missing:
        refuse("data", str(path), f"contain an array {missing[0]!r}", SAVE)
    if unknown:
        rule = f"contain only the arrays {', '.join((*NEEDED, *OPTIONAL))}"
        refuse("data", unknown[0], rule, "leave it out or rename it")
    if len(names) > len(set(names)):
        refuse("data", str(path), "contain every array at most once", SAVE)


def _check_unpacked(path: Path, packed: zipfile.ZipFile) -> None:
    """Refuse a small file that claims a huge size; a reader returns no more than that size."""
    unpacked = sum(member.file_size for member in packed.infolist())
    if unpacked > max(_READ_ANYWAY, _PACKED * path.stat().st_size):
        rule = f"not unpack to {unpacked:,} bytes, more than {_PACKED} times its size"
        refuse(
            "data", str(path), rule, "write these arrays with numpy.savez, which does not compress"
        )


def _inputs(name: str, values: NDArray[Any]) -> Tensor:
    if values.dtype.kind not in "fiub" or values.ndim < 2:
        got = f"{values.dtype} of shape {values.shape}"
        refuse(
            name,
            got,
            "be numbers with the records on the first axis and their inputs on the others",
        )
    ends = (float(values.min()), float(values.max())) if values.size else (0.0,)
    if max(map(abs, ends)) > float(np.finfo(np.float32).max):
        refuse(
            name,
            "a number outside single precision",
            "fit into single precision",
            "scale the features",
        )
    return torch.from_numpy(values.astype(np.float32))


def _classes(name: str, values: NDArray[Any]) -> Tensor:
    if values.dtype.kind not in "iub" or values.ndim != 1 or not len(values):
        got = f"{values.dtype} of shape {values.shape}"
        way_out = "number the classes from 0, as numpy.unique(labels, return_inverse=True)[1] does"
        refuse(name, got, "be integers, one per record", way_out)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= MOST_CLASSES:
        refuse(name, (low, high), f"lie from 0 to {MOST_CLASSES - 1}", "number the classes from 0")
    return torch.from_numpy(values.astype(np.int64))


def _owned(owners: NDArray[Any], records: int) -> tuple[Indices, ...]:
    """Return each client's rows, clients in the order of their numbers or names."""
    if owners.dtype.kind not in "iuUS" or owners.shape != (records,):
        got = f"{owners.dtype} of shape {owners.shape}"
        refuse("clients", got, f"be one number or name per record, {records} in all")
    of = np.unique(owners, return_inverse=True)[1]
    # Stable: rows of a client keep the order of the file.
    order = np.argsort(of, kind="stable")
    return tuple(np.split(order, np.flatnonzero(np.diff(of[order])) + 1))


def model_at(place: str) -> ModelFactory:
    """Return the function that builds the user's module.

    Args:
        place: "FILE.py:NAME" or "package.module:NAME". The code there is executed. It may import
            files from its own folder, or from the working directory of the command. NAME is called
            without arguments and must return a module; or it is a subclass of ``nn.Module`` that
            needs no arguments.

    Raises:
        ParameterError: NAME does not exist, or it cannot be called.
    """
    found = _found("model", place)
    if not callable(found) or isinstance(found, nn.Module):
        source, _, name = place.rpartition(":")
        rule = f"name a function in {source} that builds the module"
        kind = "does not exist" if found is None else f"is of type {type(found).__name__}"
        refuse("model", place, rule, f"{name!r} {kind}")
    return found


def posterior_at(place: str) -> Posterior:
    """Return the user's own posterior.

    Args:
        place: as for ``model_at``; NAME is a ``Posterior``, or a function without arguments that
            returns one.

    Raises:
        ParameterError: NAME does not exist, or it is not a posterior.
    """
    found = _found("posterior", place)
    if callable(found):
        try:
            found = found()
        except ParameterError:
            raise
        # A script may end by sys.exit, which does not raise an Exception.
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {_first_line(error)}"
            refuse("posterior", place, f"be a function that runs ({reason})")
    if not isinstance(found, Posterior):
        way_out = "training.Posterior.of(log_likelihood, clients=[...], dimension=...)"
        refuse("posterior", type(found).__name__, "be a Posterior", way_out)
    return found


def _found(what: str, place: str) -> object:
    """Run the code at a place and return the object with the name; None if it is missing."""
    source, _, name = place.rpartition(":")
    if not source or not name.isidentifier():
        refuse(what, place, "be FILE.py:NAME or package.module:NAME")
    # The user's code may seed torch, but only for itself.
    with torch.random.fork_rng(devices=[]):
        try:
            module = _run(Path(source)) if source.endswith(".py") else _imported(source)
        except FileNotFoundError:
            refuse(what, place, "name an existing file")
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {_first_line(error)}"
            refuse(what, place, f"be code that runs ({reason})")
    return getattr(module, name, None)


def _run(path: Path) -> ModuleType:
    """Run a file as a module with a unique name, which its classes use to find their module."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    spec = importlib.util.spec_from_file_location(f"fedprivacy_model_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    _beside(path.resolve().parent)
    spec.loader.exec_module(module)
    return module


def _imported(name: str) -> ModuleType:
    _beside(Path.cwd())
    return importlib.import_module(name)


def _beside(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def check_model(model: ModelFactory, data: FederatedData) -> None:
    """Build a model. Train and evaluate two small clients with test records, or with zeros.

    Raises:
        ParameterError: it is not a module, cannot be trained as a client trains it, or does not
            return one number for each class.
    """
    features, labels = data.test_features[:3].clone(), data.test_labels[:3]
    if not len(labels):
        features, labels = (part.new_zeros((3, *part.shape[1:])) for part in data.example())
    shape = tuple(features.shape[1:])
    # Two clients, because clients of one size may be trained together.
    owners = [np.arange(len(labels))] * 2
    with torch.random.fork_rng(devices=[]):
        flat = _built(model)
        name = type(flat.module).__name__
        check_frozen(_built(model), flat)
        plan = LocalSGD(steps=1).schedule(owners, np.random.default_rng(0))
        try:
            with torch.no_grad():
                outputs = flat.module(features.clone())
            _check_outputs(outputs, (len(features), data.classes))
            flat.check_outputs(features, labels, data.classes)
            flat.updates(flat.flatten(), (features, labels), plan, 0.1)
            flat.evaluate(flat.flatten(), features, labels)
        except ParameterError:
            raise
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {_first_line(error)}"
            refuse("model", name, f"train on inputs of shape {shape} per record ({reason})")


def _check_outputs(outputs: object, wanted: tuple[int, int]) -> None:
    got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs)
    if not isinstance(outputs, Tensor) or got != wanted:
        short = got == (wanted[0], wanted[1] - 1)
        way_out = NUMBERED if short else ""
        refuse("model's output", got, f"have shape (records, {wanted[1]} classes)", way_out)
    if not bool(torch.isfinite(outputs).all()):
        way_out = "check the initial parameters, since no update would be finite"
        refuse("model's output", "NaN or infinity", "be finite", way_out)


def _built(model: ModelFactory) -> FlatModel:
    """Build a model with torch's randomness."""
    try:
        module = model()
    except (Exception, SystemExit) as error:
        refuse("model", type(error).__name__, f"be built without arguments ({error})")
    return FlatModel(module, torch.device("cpu"))
