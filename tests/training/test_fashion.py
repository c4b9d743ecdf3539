"""Tests of ``fedprivacy.training.fashion``."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from fedprivacy.errors import ParameterError
from fedprivacy.training import fashion_mnist
from fedprivacy.training.fashion import read_idx

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.training import fashion

pytestmark = pytest.mark.usefixtures("one_thread")


def write_idx(path, array, packed):
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    content += array.astype(np.uint8).tobytes()
    path = path.with_name(path.name + ".gz") if packed else path
    path.write_bytes(gzip.compress(content) if packed else content)


def made_up_fashion(folder, packed):
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", 30), ("t10k", 10)):
        images = generator.integers(256, size=(count, 28, 28))
        write_idx(folder / f"{part}-images-idx3-ubyte", images, packed)
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(count) % 10, packed)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("below", [".", "FashionMNIST/raw"])
def test_fashion_mnist_reads_idx_files(tmp_path, packed, below, monkeypatch):
    monkeypatch.setattr("fedprivacy.training.fashion.DEBIAN", tmp_path / "nowhere")
    made_up_fashion(tmp_path / below, packed)
    data = fashion_mnist(tmp_path, clients=5, public=5)
    assert data.features.shape == (25, 28, 28) and data.population == 5
    assert 0.9 < float(data.features.max()) <= 1.0
    assert len(data.public_labels) == 5 and len(data.test_labels) == 10


def test_fashion_mnist_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("fedprivacy.training.fashion.DEBIAN", tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=r"apt-get install dataset-fashion-mnist.*--data-dir"):
        fashion_mnist(tmp_path)


def test_real_fashion_mnist_where_debian_puts_it():
    folder = Path("/usr/share/datasets/fashion-mnist")
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        pytest.skip("dataset-fashion-mnist is not installed")
    data = fashion_mnist()
    assert data.features.shape == (59000, 28, 28) and data.population == 6000
    assert np.bincount(data.test_labels.numpy()).tolist() == [1000] * 10


def damage(content, how):
    return {
        "cut": content[:-5],
        "magic": b"\0\0\r\3" + content[4:],
        "empty": b"",
        "header": content[:9],
        "long": content + b"x",
    }[how]


@pytest.mark.parametrize("how", ["cut", "magic", "empty", "header", "long"])
@pytest.mark.parametrize("packed", [True, False])
def test_damaged_idx_files_are_refused(tmp_path, how, packed):
    path = tmp_path / "images"
    write_idx(path, np.zeros((3, 4, 5)), packed)
    real = path.with_name("images.gz") if packed else path
    real.write_bytes(damage(real.read_bytes(), how))
    with pytest.raises(ParameterError, match=r"images.* must .* got .*; "):
        read_idx(path, dimensions=3)


def idx(*shape, dimensions=None, size=None):
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, dimensions or len(shape), *shape)
    return header + bytes(int(np.prod(shape)) if size is None else size)


def fashion_files(folder, **changed):
    parts = {"train": 4, "t10k": 2}
    for part, count in parts.items():
        names = {"images-idx3-ubyte": idx(count, 28, 28), "labels-idx1-ubyte": idx(count)}
        for name, content in names.items():
            whole = changed.get(f"{part}_{name[:6]}", content)
            if whole is not None:
                (folder / f"{part}-{name}").write_bytes(whole)


BROKEN = {
    "a file that is missing": (
        {"t10k_labels": None},
        "data_dir must contain Fashion-MNIST's files, got ...; looked in ..., ...raw; "
        "apt-get install",
    ),
    "images of another size": (
        {"train_images": idx(4, 28, 27)},
        "/train-images-idx3-ubyte must contain images of 28 x 28, got (4, 28, 27); apt-get install",
    ),
    "a label too few": (
        {"train_labels": idx(3)},
        "/train-labels-idx1-ubyte must contain 4 labels, got 3; apt-get install",
    ),
    "a header of another file": (
        {"t10k_images": idx(2)},
        "/t10k-images-idx3-ubyte must start with the IDX magic number 0x00000803, got 0x00000801",
    ),
    "an image that was cut": (
        {"t10k_images": idx(2, 28, 28, size=2 * 784 - 1)},
        "/t10k-images-idx3-ubyte must be 1584 bytes long for its shape (2, 28, 28), got 1583; the "
        "file is truncated or damaged; apt-get install",
    ),
    "a label of no class": (
        {"train_labels": idx(4, size=0) + bytes([0, 1, 2, 10])},
        "/train-labels-idx1-ubyte must contain labels from 0 to 9, got 10; apt-get install",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_image_files_that_do_not_fit_are_named(tmp_path, monkeypatch, what):
    changed, wanted = BROKEN[what]
    monkeypatch.setattr(fashion, "DEBIAN", tmp_path / "nowhere")
    fashion_files(tmp_path, **changed)
    with pytest.raises(fp.ParameterError) as caught:
        training.fashion_mnist(tmp_path, clients=1, public=0)
    told = str(caught.value).replace("'", "")
    assert all(part in told for part in wanted.replace("'", "").split("...")), told


def test_images_in_order_and_scaled(tmp_path, monkeypatch):
    """Every image keeps its label, none is lost: the mean brightness is the label's."""
    count = 40
    labels = np.arange(count) % 10
    whole = np.repeat(25 * labels.astype(np.uint8), 784).tobytes()
    fashion_files(
        tmp_path,
        train_images=idx(count, 28, 28, size=0) + whole,
        train_labels=idx(count, size=0) + labels.astype(np.uint8).tobytes(),
    )
    found = training.fashion_mnist(tmp_path, clients=7, public=5, seed=3)
    assert torch.allclose(found.features.mean((1, 2)), 25 * found.labels / 255.0, atol=1e-6)
    both = torch.cat([found.labels, found.public_labels])
    assert torch.bincount(both).tolist() == [4] * 10
    assert sorted(map(len, found.clients)) == [5] * 7


CUT_SHORT = gzip.compress(idx(3), mtime=0)[:-6]
"""Without a time, which the name of a test must not have in it."""


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", CUT_SHORT, b"plain"])
def test_packed_files_that_are_damaged_are_told_as_such(tmp_path, content):
    path = tmp_path / "labels.gz"
    path.write_bytes(content)
    with pytest.raises(fp.ParameterError) as caught:
        fashion.read_idx(tmp_path / "labels", dimensions=1, way_out="ask again")
    told = str(caught.value)
    assert str(path) in told and told.endswith("ask again") and len(told) < 400


def test_a_packed_file_of_too_much_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion, "_MOST_BYTES", 999)
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(idx(992 - 1 + 1)))
    with pytest.raises(
        fp.ParameterError, match=r"have at most 999 bytes after decompression, got 'labels"
    ):
        fashion.read_idx(tmp_path / "labels", dimensions=1)
    path.write_bytes(gzip.compress(idx(991)))
    assert fashion.read_idx(tmp_path / "labels", dimensions=1).shape == (991,)


def test_a_folder_in_a_file_s_place(tmp_path):
    with pytest.raises(fp.ParameterError, match=r"path must be an IDX file \(.gz or not\), got"):
        fashion.read_idx(tmp_path, dimensions=1)
