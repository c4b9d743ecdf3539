"""Fashion-MNIST from IDX files on disk."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ParameterError, integer, refuse, require
from .data import FederatedData, federate

Bytes = NDArray[np.uint8]

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
WAY_OUT = (
    "apt-get install dataset-fashion-mnist, or pass data_dir (--data-dir) with the four IDX files "
    "of https://github.com/zalandoresearch/fashion-mnist, .gz or not"
)
_MOST_BYTES = 1 << 30
"""Limit of an unpacked file: twenty times the size of the largest expected file."""

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
NAMES = (*FILES["train"], *FILES["test"])
CLASSES = 10
"""Number of classes of these images, and of other data in the same format."""


def fashion_mnist(
    data_dir: str | Path | None = None,
    *,
    clients: int = 6000,
    public: int = 1000,
    classes_per_client: int | None = None,
    seed: int = 0,
) -> FederatedData:
    """Return Fashion-MNIST: 60,000 training and 10,000 test images of 28 x 28 in [0, 1].

    The files are read from ``data_dir``, or from a torchvision-style ``FashionMNIST/raw`` under it.
    Without ``data_dir`` they are read from the folder of Debian's package
    ``dataset-fashion-mnist``, or else from ``data``.

    Args:
        data_dir: the folder with the files; None for the usual places.
        clients: number of clients that share the remaining training images.
        public: training images set aside as public; 0 for none.
        classes_per_client: None for an even split, else see ``data.partition_by_label``.
        seed: seed of the split, which is public.

    Raises:
        ParameterError: the files are missing, damaged, or too few for the clients.
    """
    folder = find_folder(data_dir)
    return split_among(
        "fashion-mnist",
        image_tensors(*read_part(folder, "train")),
        image_tensors(*read_part(folder, "test")),
        clients=clients,
        public=public,
        classes_per_client=classes_per_client,
        seed=seed,
    )


def split_among(
    name: str,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    *,
    clients: int,
    public: int,
    classes_per_client: int | None,
    seed: int,
) -> FederatedData:
    """Shuffle training records, set the first aside as public and split the rest among clients.

    Args:
        name: name of the data set.
        train: (inputs, labels); inputs of bytes become shares of 255.
        test: the same.
        clients: number of clients.
        public: number of records set aside.
        classes_per_client: None for an even split, else see ``data.partition_by_label``.
        seed: seed of the split, which is public.

    Raises:
        ParameterError: too few records.
    """
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(train[1])))
    held = integer(0, public=public)
    rule = f"be below the number of records, {len(order)}"
    require(held < len(order), "public", public, rule)
    # Put in order as bytes: another copy as floats would be four times as large.
    inputs, truth = _shares(train[0][order]), train[1][order]
    return federate(
        name,
        (inputs[held:], truth[held:]),
        (_shares(test[0]), test[1]),
        (inputs[:held], truth[:held]),
        clients=clients,
        classes_per_client=classes_per_client,
        seed=seed,
    )


def find_folder(data_dir: str | Path | None) -> Path:
    """Return the first folder with all four files.

    Raises:
        ParameterError: no folder has them; the message says how to get them.
    """
    own = Path("data") if data_dir is None else Path(data_dir)
    nested = own / "FashionMNIST" / "raw"
    places = [DEBIAN, nested] if data_dir is None else [own, nested]
    if (found := next(filter(holds_all, places), None)) is not None:
        return found
    looked = ", ".join(str(place) for place in places)
    raise ParameterError(
        f"data_dir must contain Fashion-MNIST's files, got {data_dir!r}; looked in {looked}; "
        f"{WAY_OUT}"
    )


def holds_all(folder: Path) -> bool:
    """Return whether one folder has all four files: files of two copies may not fit together."""
    return all(find_file(folder, name) is not None for name in NAMES)


def find_file(folder: Path, name: str) -> Path | None:
    """Return a file, or the one with ".gz" added; None if neither exists."""
    candidates = (folder / name, folder / f"{name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def image_tensors(images: Bytes, labels: Bytes) -> tuple[Tensor, Tensor]:
    """Return images as bytes and labels as int64."""
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def _shares(inputs: Tensor) -> Tensor:
    """Return bytes as numbers in [0, 1], and other inputs as they are."""
    return inputs.to(torch.float32).div_(255.0) if inputs.dtype == torch.uint8 else inputs


def read_part(folder: Path, part: str, way_out: str = WAY_OUT) -> tuple[Bytes, Bytes]:
    """Return images of shape (records, 28, 28) and labels of shape (records,) from IDX files.

    Args:
        folder: the folder with the files.
        part: "train" or "test".
        way_out: advice for the error message.

    Raises:
        ParameterError: they are missing, damaged, empty, of another size, do not agree or have
            labels out of range.
    """
    images_path, labels_path = (folder / name for name in FILES[part])
    images = read_idx(images_path, dimensions=3, way_out=way_out)
    labels = read_idx(labels_path, dimensions=1, way_out=way_out)
    fits, rule = images.shape[1:] == (28, 28), "contain images of 28 x 28"
    require(fits, str(images_path), images.shape, rule, way_out)
    require(len(images), str(images_path), len(images), "contain at least one image", way_out)
    fits, rule = len(images) == len(labels), f"contain {len(images)} labels"
    require(fits, str(labels_path), len(labels), rule, way_out)
    most = int(labels.max())
    require(
        most < CLASSES, str(labels_path), most, f"contain labels from 0 to {CLASSES - 1}", way_out
    )
    return images, labels


def read_idx(path: Path, *, dimensions: int, way_out: str = WAY_OUT) -> Bytes:
    """Return the array of unsigned bytes in an IDX file, or in the file with ``.gz`` added.

    Args:
        path: name without ``.gz``.
        dimensions: number of axes that the array must have.
        way_out: advice for the error message.

    Raises:
        ParameterError: no such file, damaged compression, a wrong magic number, or a length that
            does not fit the shape in the header.
    """
    found = find_file(path.parent, path.name)
    if found is None:
        refuse("path", str(path), "be an IDX file (.gz or not)", way_out)
    content = _bytes(found, way_out)
    header = 4 + 4 * dimensions
    magic = bytes((0, 0, 8, dimensions))
    if content[:4] != magic or len(content) < header:
        rule = f"start with the IDX magic number 0x{magic.hex()}"
        refuse(str(found), f"0x{content[:4].hex()}", rule, way_out)
    # Headers of IDX files are big-endian.
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", dimensions, 4))
    if len(content) != header + math.prod(shape):
        rule = f"be {header + math.prod(shape)} bytes long for its shape {shape}"
        refuse(str(found), len(content), rule, f"the file is truncated or damaged; {way_out}")
    # Copied, because the result of `frombuffer` is read-only and torch would warn.
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def _bytes(path: Path, way_out: str) -> bytes:
    """Return a file's bytes, unpacked; refuse more than ``_MOST_BYTES``."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            # One byte above the limit is enough to detect a larger file without unpacking it.
            content: bytes = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        rule = f"be a readable file ({error})"
        refuse(str(path), path.name, rule, f"the file is truncated or damaged; {way_out}")
    if len(content) > _MOST_BYTES:
        refuse(
            str(path), path.name, f"have at most {_MOST_BYTES:,} bytes after decompression", way_out
        )
    return content
