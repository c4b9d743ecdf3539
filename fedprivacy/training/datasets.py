"""The papers' other data sets, from the user's files; no code in a file is executed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.io import loadmat
from torch import Tensor

from ..errors import integer, listed, refuse, require
from .data import FederatedData
from .fashion import (
    FILES,
    NAMES,
    fashion_mnist,
    holds_all,
    image_tensors,
    read_part,
    split_among,
)

Records = tuple[Tensor, Tensor]

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare, in its order."""
TEXT = 80
"""Length of the text from which the next character is predicted."""

WAYS_OUT = {
    "mnist": "pass data_dir with MNIST's four IDX files, .gz or not",
    "kmnist": "pass data_dir with Kuzushiji-MNIST's four IDX files, .gz or not",
    "svhn": (
        "pass data_dir with SVHN's cropped digits, train_32x32.mat and test_32x32.mat, and "
        "extra_32x32.mat for the 531,131 additional images"
    ),
    "cifar10": (
        "pass data_dir with CIFAR-10's binary version, data_batch_1.bin to _5 and test_batch.bin "
        "(the Python version holds pickled code and is not read)"
    ),
    "shakespeare": (
        "pass data_dir with LEAF's Shakespeare, JSON files in its folders train and test"
    ),
}
"""Advice for missing or unreadable files of each data set."""


def load_named(
    name: str,
    data_dir: str | Path | None,
    *,
    clients: int = 6000,
    public: int = 0,
    classes_per_client: int | None = None,
    seed: int = 0,
) -> FederatedData:
    """Return a data set from one of the papers.

    Images are float32 in [0, 1]: 28 x 28 (mnist, kmnist, fashion-mnist) or 3 x 32 x 32 (svhn,
    cifar10). Texts (shakespeare) are the numbers of 80 characters, as float32, and the label is the
    next character. The clients of shakespeare are the speaking roles of the files, and ``clients``
    is ignored. SVHN's additional examples are read if ``extra_32x32.mat`` exists.

    Args:
        name: "mnist", "kmnist", "svhn", "cifar10", "shakespeare" or "fashion-mnist".
        data_dir: the folder with the files; None is allowed only for Fashion-MNIST.
        clients: number of clients that share the remaining training records.
        public: training records set aside as public; 0 for none.
        classes_per_client: None for an even split, else see ``data.partition_by_label``.
        seed: seed of the split, which is public.

    Raises:
        ParameterError: an unknown name, or files that are missing, damaged or do not agree.
    """
    split: dict[str, Any] = {
        "clients": clients,
        "public": public,
        "classes_per_client": classes_per_client,
        "seed": seed,
    }
    if name == "fashion-mnist":
        return fashion_mnist(data_dir, **split)
    if name not in WAYS_OUT:
        refuse("dataset", name, f"be one of {listed([*WAYS_OUT, 'fashion-mnist'])}")
    if data_dir is None:
        refuse("data_dir", None, "be given", WAYS_OUT[name])
    if name == "shakespeare":
        if classes_per_client is not None:
            rule = "be None, since the files name the clients"
            refuse("classes_per_client", classes_per_client, rule)
        return shakespeare(data_dir, public=public, seed=seed)
    train, test = _READERS[name](Path(data_dir), WAYS_OUT[name])
    return split_among(name, train, test, **split)


def _idx(below: str) -> Callable[[Path, str], tuple[Records, Records]]:
    """Return a reader of four IDX files in a folder, or in torchvision's folder below it."""

    def read(folder: Path, way_out: str) -> tuple[Records, Records]:
        found = list(filter(holds_all, (folder, folder / below / "raw")))
        require(found, "data_dir", str(folder), f"contain {', '.join(NAMES)}", way_out)
        train, test = (image_tensors(*read_part(found[0], part, way_out)) for part in FILES)
        return train, test

    return read


def _svhn(folder: Path, way_out: str) -> tuple[Records, Records]:
    parts = [_mat(folder / "train_32x32.mat", way_out)]
    if (folder / "extra_32x32.mat").is_file():
        parts.append(_mat(folder / "extra_32x32.mat", way_out))
    images, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _scaled(images, labels), _scaled(*_mat(folder / "test_32x32.mat", way_out))


def _mat(path: Path, way_out: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return images of shape (records, 3, 32, 32) and labels; a label of 10 is the digit 0."""
    images, labels = _arrays(path, way_out)
    labels = labels.reshape(-1)
    fits = images.shape == (32, 32, 3, len(labels)) and images.dtype == np.uint8
    got = f"X {images.dtype} {images.shape}, y {labels.shape}"
    require(fits, str(path), got, "contain bytes of shape (32, 32, 3, n) and n labels", way_out)
    _check_labels(path, labels, 1, 10, way_out)
    return images.transpose(3, 2, 0, 1), labels % 10


def _arrays(path: Path, way_out: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return X and y of a MATLAB file."""
    # For a missing file, scipy's error would say that it was opened the wrong way.
    require(path.is_file(), "data_dir", str(path.parent), f"contain {path.name}", way_out)
    try:
        content = loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # a damaged file may raise any error in its reader
        refuse("data_dir", str(path), f"be a readable MATLAB file ({error})", way_out)
    there = {"X", "y"} <= content.keys()
    require(there, "data_dir", str(path), "contain arrays X and y", way_out)
    return content["X"], content["y"]


def _cifar10(folder: Path, way_out: str) -> tuple[Records, Records]:
    below = folder / "cifar-10-batches-bin"
    place = below if below.is_dir() else folder
    parts = [_batch(place / f"data_batch_{number}.bin", way_out) for number in range(1, 6)]
    images, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _scaled(images, labels), _scaled(*_batch(place / "test_batch.bin", way_out))


def _batch(path: Path, way_out: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a file's images of shape (records, 3, 32, 32) and labels: 3,073 bytes a record."""
    try:
        content = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        refuse("data_dir", str(path), f"be a readable file ({error.strerror})", way_out)
    whole, rule = len(content) and not len(content) % 3073, "be a multiple of 3073 bytes long"
    require(whole, str(path), len(content), rule, way_out)
    rows = content.reshape(-1, 3073)
    _check_labels(path, rows[:, 0], 0, 9, way_out)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def _check_labels(path: Path, labels: NDArray[Any], low: int, high: int, way_out: str) -> None:
    whole, kind = len(labels) and labels.dtype.kind in "iu", f"{len(labels)} labels, {labels.dtype}"
    require(whole, str(path), kind, "contain integers", way_out)
    ends = int(labels.min()), int(labels.max())
    rule = f"contain labels from {low} to {high}"
    require(low <= ends[0] <= ends[1] <= high, str(path), ends, rule, way_out)


def _scaled(images: NDArray[Any], labels: NDArray[Any]) -> Records:
    # Transposed images are not contiguous in memory; one copy here saves one in every batch.
    inputs = torch.from_numpy(np.ascontiguousarray(images)).to(torch.float32).div_(255.0)
    return inputs, torch.from_numpy(labels.astype(np.int64))


_READERS = {"mnist": _idx("MNIST"), "kmnist": _idx("KMNIST"), "svhn": _svhn, "cifar10": _cifar10}


def shakespeare(data_dir: str | Path, *, public: int = 0, seed: int = 0) -> FederatedData:
    """Return LEAF's Shakespeare: texts of 80 characters and the next one, by speaking role.

    Args:
        data_dir: the folder with ``train`` and ``test``, each with JSON files of users' data.
        public: training records taken from the roles at random and set aside as public.
        seed: seed of that choice, which is public.

    Raises:
        ParameterError: no such files, a text of another length or alphabet, or too few records.
    """
    way_out, folder = WAYS_OUT["shakespeare"], Path(data_dir)
    train, test = (list(_roles(folder / part, way_out)) for part in ("train", "test"))
    features, labels = map(torch.cat, zip(*train, strict=True))
    test_features, test_labels = map(torch.cat, zip(*test, strict=True))
    held, rule = integer(0, public=public), f"be below the number of records, {len(labels)}"
    require(held < len(labels), "public", public, rule)
    order = np.random.default_rng(seed).permutation(len(labels))
    # Back in the order of the roles, as the cuts below require.
    aside, kept = order[:held], np.sort(order[held:])
    owners = np.repeat(np.arange(len(train)), [len(own) for _, own in train])[kept]
    # A role whose records were all set aside is not a client.
    turns = np.flatnonzero(np.diff(owners)) + 1
    return FederatedData(
        name="shakespeare",
        features=features[kept],
        labels=labels[kept],
        clients=tuple(np.split(np.arange(len(kept)), turns)),
        test_features=test_features,
        test_labels=test_labels,
        num_classes=len(LETTERS),
        public_features=features[aside] if held else None,
        public_labels=labels[aside] if held else None,
    )


def _roles(folder: Path, way_out: str) -> Iterator[Records]:
    """Yield the records of every role with records, files in the order of their names."""
    seen: set[str] = set()
    any_records = False
    # Sorted, because the order of a folder depends on the file system, and clients are numbered by
    # it.
    for path in sorted(folder.glob("*.json")):
        for name, own in _users(path, way_out).items():
            # One role in two files would be two units.
            require(name not in seen, str(path), name, "be in only one file", way_out)
            seen.add(name)
            kind = type(own).__name__
            require(kind == "dict", f"{path.name}, user {name}", kind, "contain x and y", way_out)
            if own.get("y"):
                any_records = True
                yield _texts(path, name, own, way_out)
    rule = "contain JSON files with users and texts"
    require(any_records, "data_dir", str(folder), rule, way_out)


def _users(path: Path, way_out: str) -> dict[str, Any]:
    """Return the content of a file for each of its users."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: content["user_data"][name] for name in content["users"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        refuse(str(path), path.name, f"be one of LEAF's JSON files ({reason})", way_out)


def _texts(path: Path, name: str, own: dict[str, Any], way_out: str) -> Records:
    what = f"{path.name}, user {name}"
    texts, following = own.get("x", ()), own["y"]
    lists, rule = (
        {type(texts), type(following)},
        ("contain lists of texts, x, and of next characters, y"),
    )
    require(lists == {list}, what, sorted(own), rule, way_out)
    counts, rule = (len(texts), len(following)), "contain as many texts as next characters"
    require(counts[0] == counts[1], what, counts, rule, way_out)
    for text, letter in zip(texts, following, strict=True):
        _check_text(what, text, letter, way_out)
    numbers = [[LETTERS.index(letter) for letter in text] for text in texts]
    labels = [LETTERS.index(letter) for letter in following]
    return torch.tensor(numbers, dtype=torch.float32), torch.tensor(labels)


def _check_text(what: str, text: Any, letter: Any, way_out: str) -> None:
    texts = {type(text), type(letter)} == {str}
    fits = texts and (len(text), len(letter)) == (TEXT, 1)
    rule = f"contain texts of {TEXT} characters and one next character each"
    require(fits, what, (text, letter), rule, way_out)
    unknown = sorted(set(text + letter) - set(LETTERS))
    rule = f"contain only the {len(LETTERS)} characters of LEAF"
    require(not unknown, what, "".join(unknown)[:1], rule, way_out)
