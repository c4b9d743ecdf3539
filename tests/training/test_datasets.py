"""Readers of the papers' other data, on small files of the real formats, and their networks."""

import gzip
import json
import pickle
import struct

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from scipy.io import savemat

from fedprivacy import FixedSize
from fedprivacy.errors import ParameterError
from fedprivacy.training import FederatedAveraging, colour_cnn, lstm, mlp
from fedprivacy.training.datasets import LETTERS, load_named


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)


def write_idx(path, array, packed):
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    content += array.astype(np.uint8).tobytes()
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


def idx_files(folder, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 30), ("t10k", 10)):
        write_idx(folder / f"{part}-images-idx3-ubyte", pixels(count, 28, 28), packed)
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(count) % 10, packed)


def svhn_file(path, count, seed=0):
    images = pixels(32, 32, 3, count, seed=seed)
    labels = (1 + np.arange(count) % 10).reshape(-1, 1).astype(np.uint8)
    savemat(path, {"X": images, "y": labels})
    return images, labels


def cifar_files(folder, count=6):
    folder.mkdir(parents=True, exist_ok=True)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    rows = {}
    for seed, name in enumerate(names):
        images, labels = pixels(count, 3072, seed=seed), (np.arange(count) % 10).astype(np.uint8)
        rows[name] = np.concatenate([labels[:, None], images], axis=1)
        (folder / name).write_bytes(rows[name].tobytes())
    return rows


def leaf_files(folder, roles):
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        users = {name: {"x": [t for t, _ in own], "y": [n for _, n in own]} for name, own in roles}
        content = {
            "users": list(users),
            "num_samples": [len(own["y"]) for own in users.values()],
            "user_data": users,
        }
        (folder / part / f"all_data_{part}_9.json").write_text(json.dumps(content))


TEXT = "To be, or not to be: that is the question: whether 'tis nobler in the mind to su"
ROLES = [
    ("HAMLET", [(TEXT, "f"), (TEXT[1:] + "f", "f")]),
    ("GHOST", []),
    ("OPHELIA", [("\n" * 80, "}")]),
]


@pytest.mark.parametrize("name", ["mnist", "kmnist"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("below", [True, False])
def test_idx_files(tmp_path, name, packed, below):
    idx_files(tmp_path / name.upper() / "raw" if below else tmp_path, packed)
    data = load_named(name, tmp_path, clients=5, public=5)
    assert data.name == name and data.features.shape == (25, 28, 28) and data.population == 5
    assert torch.equal(data.test_features, torch.from_numpy(pixels(10, 28, 28)) / 255.0)
    assert data.test_labels.tolist() == list(range(10)) and len(data.public_labels) == 5


def test_svhn_has_its_axes_in_order_and_ten_is_zero(tmp_path):
    svhn_file(tmp_path / "train_32x32.mat", 20)
    images, _ = svhn_file(tmp_path / "test_32x32.mat", 12, seed=1)
    data = load_named("svhn", tmp_path, clients=4)
    assert data.features.shape == (20, 3, 32, 32)
    seen = data.test_features[7, 2, 5, 11].item()
    assert seen == pytest.approx(images[5, 11, 2, 7] / 255.0)
    assert data.test_labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    svhn_file(tmp_path / "extra_32x32.mat", 15)
    assert len(load_named("svhn", tmp_path, clients=4).labels) == 35


@pytest.mark.parametrize("below", [".", "cifar-10-batches-bin"])
def test_cifar(tmp_path, below):
    rows = cifar_files(tmp_path / below)
    data = load_named("cifar10", tmp_path, clients=3)
    assert data.features.shape == (30, 3, 32, 32)
    test = rows["test_batch.bin"]
    assert data.test_labels.tolist() == test[:, 0].tolist()
    assert data.test_features[4, 1, 2, 3].item() == pytest.approx(
        test[4, 1 + 1024 + 2 * 32 + 3] / 255.0
    )


def test_shakespeare_is_split_by_role(tmp_path):
    leaf_files(tmp_path, ROLES)
    data = load_named("shakespeare", tmp_path)
    assert [len(rows) for rows in data.clients] == [2, 1]
    features, labels = data.records(0)
    read = ["".join(LETTERS[int(n)] for n in row) for row in features]
    assert read == [TEXT, TEXT[1:] + "f"]
    assert [LETTERS[n] for n in labels.tolist()] == ["f", "f"]
    assert data.num_classes == 80 and data.test_features.shape == (3, 80)


class Trap:
    def __reduce__(self):
        return (print, ("executed",))


def test_pickled_cifar_is_not_read(tmp_path, capsys):
    cifar_files(tmp_path)
    (tmp_path / "data_batch_2.bin").unlink()
    (tmp_path / "data_batch_2").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ParameterError, match="binary version"):
        load_named("cifar10", tmp_path)
    assert capsys.readouterr().out == ""


def strange_label(folder):
    idx_files(folder)
    write_idx(folder / "t10k-labels-idx1-ubyte", np.full(10, 77), packed=False)


def no_test_records(folder):
    idx_files(folder)
    write_idx(folder / "t10k-images-idx3-ubyte", pixels(0, 28, 28), packed=False)
    write_idx(folder / "t10k-labels-idx1-ubyte", np.arange(0), packed=False)


def half_of_svhn(folder):
    svhn_file(folder / "train_32x32.mat", 3)


def damaged_svhn(folder):
    svhn_file(folder / "train_32x32.mat", 3)
    (folder / "test_32x32.mat").write_bytes((folder / "train_32x32.mat").read_bytes()[:700])


def grey_svhn(folder):
    for part in ("train", "test"):
        savemat(folder / f"{part}_32x32.mat", {"X": pixels(32, 32, 4), "y": np.ones((4, 1))})


def zero_svhn(folder):
    for part in ("train", "test"):
        labels = np.zeros((4, 1), np.uint8)
        savemat(folder / f"{part}_32x32.mat", {"X": pixels(32, 32, 3, 4), "y": labels})


def cut_cifar(folder):
    cifar_files(folder)
    path = folder / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])


def label_of_cifar(folder):
    cifar_files(folder)
    path = folder / "test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])


def short_text(folder):
    leaf_files(folder, [("HAMLET", [(TEXT[:-1], "f")])])


def strange_letter(folder):
    leaf_files(folder, [("HAMLET", [(TEXT[:-1] + "é", "f")])])


def other_json(folder):
    leaf_files(folder, ROLES)
    (folder / "train" / "other.json").write_text('{"users": ["A"]}')


def twice(folder):
    leaf_files(folder, ROLES)
    first = folder / "train" / "all_data_train_9.json"
    (folder / "train" / "b.json").write_text(first.read_text())


@pytest.mark.parametrize(
    ("name", "make", "told"),
    [
        ("mnist", lambda folder: None, "must contain train-images-idx3-ubyte"),
        ("kmnist", strange_label, "t10k-labels-idx1-ubyte must contain labels from 0 to 9, got 77"),
        ("mnist", no_test_records, "t10k-images-idx3-ubyte must contain at least one image, got 0"),
        ("svhn", lambda folder: None, "data_dir must contain train_32x32.mat"),
        ("svhn", half_of_svhn, "data_dir must contain test_32x32.mat"),
        ("svhn", damaged_svhn, "readable MATLAB file"),
        ("svhn", grey_svhn, "bytes of shape"),
        ("svhn", zero_svhn, "labels from 1 to 10"),
        ("cifar10", lambda folder: None, "data_batch_1.bin"),
        ("cifar10", cut_cifar, "multiple of 3073"),
        ("cifar10", label_of_cifar, "labels from 0 to 9"),
        ("shakespeare", lambda folder: None, "JSON files with users"),
        (
            "shakespeare",
            lambda folder: leaf_files(folder, ROLES[1:2]),
            "contain JSON files with users and texts",
        ),
        ("shakespeare", short_text, "80 characters"),
        ("shakespeare", strange_letter, "only the 80 characters"),
        ("shakespeare", other_json, "LEAF's JSON"),
        ("shakespeare", twice, "be in only one file"),
    ],
)
def test_files_that_are_not_there_or_damaged(tmp_path, name, make, told):
    make(tmp_path)
    with pytest.raises(ParameterError, match=f"{told}.*; pass data_dir with"):
        load_named(name, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("imagenet", "."), "dataset must be one of"),
        (("mnist", None), "data_dir must be given"),
    ],
)
def test_what_is_asked_wrongly(arguments, told):
    with pytest.raises(ParameterError, match=told):
        load_named(*arguments)


def test_public_texts_are_taken_from_the_roles(tmp_path):
    leaf_files(tmp_path, ROLES)
    whole = load_named("shakespeare", tmp_path)
    for seed in range(6):
        data = load_named("shakespeare", tmp_path, public=1, seed=seed)
        both = torch.cat([data.features, data.public_features])
        assert sorted(both.tolist()) == sorted(whole.features.tolist())
        for client in range(data.population):
            own = data.records(client)[0].tolist()
            assert any(
                all(text in whole.records(role)[0].tolist() for text in own) for role in range(2)
            )


def test_roles_are_not_split_otherwise(tmp_path):
    leaf_files(tmp_path, ROLES)
    for asked in ({"public": 3}, {"classes_per_client": 2}):
        with pytest.raises(ParameterError, match=next(iter(asked))):
            load_named("shakespeare", tmp_path, **asked)


@pytest.mark.parametrize(
    ("build", "parameters"),
    [
        (colour_cnn(), 3_431_754),
        (lstm(), 822_570),
        (lstm(80), 819_920),
        (mlp(784, 10, hidden=(512, 512)), 669_706),
    ],
)
def test_networks_have_the_papers_sizes(build, parameters):
    assert sum(part.numel() for part in build().parameters()) == parameters


@pytest.mark.parametrize(("parameters", "clients", "printed"), [(3_431_754, 6000, 41.18)])
def test_uploads_of_table_ii(parameters, clients, printed):
    assert 4 * parameters * 180 * 100 / clients / 1e6 == pytest.approx(printed, abs=0.005)


def test_uploads_of_table_iii_are_of_ninety_characters():
    sent = {n: 4 * size * 1000 * 10 / 715 / 1e6 for n, size in ((90, 822_570), (80, 819_920))}
    assert sent[90] == pytest.approx(46.02, abs=0.005) and abs(sent[80] - 46.02) > 0.1


def one_round(model, data, cohort):
    loop = FederatedAveraging(
        model=model,
        scheme=FixedSize(cohort, population=data.population),
        local_epochs=1,
        batch_size=4,
        seed=1,
    )
    before = loop.init()
    after, info = loop.step(before, data)
    assert info.arrived == cohort and not torch.equal(before.parameters, after.parameters)
    return loop.evaluate(after, data)


def test_a_round_on_colour_images(tmp_path):
    for part in ("train", "test"):
        svhn_file(tmp_path / f"{part}_32x32.mat", 8)
    accuracy, loss = one_round(colour_cnn(), load_named("svhn", tmp_path, clients=4), 2)
    assert 0.0 <= accuracy <= 1.0 and 0.0 < loss < 10.0


def test_a_round_on_texts(tmp_path):
    leaf_files(tmp_path, ROLES)
    accuracy, loss = one_round(lstm(80), load_named("shakespeare", tmp_path), 1)
    assert 0.0 <= accuracy <= 1.0 and 0.0 < loss < 10.0
