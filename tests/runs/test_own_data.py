"""A user's own data and model on the command line: any torch module, any partition."""

import io
import json
import os
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from sklearn.datasets import load_digits

import fedprivacy as fp
from fedprivacy.cli import main
from fedprivacy.errors import ParameterError
from fedprivacy.runs.jobs import job
from fedprivacy.runs.own_data import check_model, model_at, read_npz
from fedprivacy.training import FederatedData, digits

pytestmark = pytest.mark.usefixtures("narrowest")

NETWORK = '''
from __future__ import annotations

import dataclasses

import torch
from torch import nn

import helper


@dataclasses.dataclass
class Facts:
    """Its annotations are looked up in its module."""

    classes: int = helper.CLASSES


class Residual(nn.Module):
    """Not a sequence of layers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.last = nn.Linear(4 * 8 * 8, 10)

    def forward(self, images):
        inner = self.norm(self.first(images.unsqueeze(1)))
        return self.last((inner + images.unsqueeze(1)).relu().flatten(1))


def wrong():
    return nn.Linear(8, Facts().classes)


def needy(width):
    return nn.Linear(64, width)


def leaving():
    raise SystemExit(0)


def counting():
    return nn.Sequential(nn.Flatten(), nn.LSTM(64, 10))


def words():
    return "a network"


def narrow():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


class Empty(Broken):
    def __init__(self):
        super().__init__()
        nn.init.constant_(self.layer.bias, float("nan"))


class Frozen(Broken):
    def __init__(self):
        super().__init__()
        self.layer.weight.requires_grad_(False)


class Counts(Broken):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, inputs):
        self.seen += inputs.sum()
        return super().forward(inputs)


class Quits(Broken):
    def forward(self, inputs):
        raise SystemExit(0)


built = Residual()
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(NETWORK)
    (tmp_path / "helper.py").write_text("CLASSES = 10\n")
    (tmp_path / "broken.py").write_text("def build(:\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    return tmp_path


def arrays(**changed):
    """Scikit-learn's digits as 8 x 8 images of 40 people, with different numbers of images."""
    inputs, labels = load_digits(return_X_y=True)
    images = (inputs / 16.0).reshape(-1, 8, 8)
    people = np.array([f"person {n % 40 if n < 900 else n % 7}" for n in range(1400)])
    content = {
        "features": images[:1400],
        "labels": labels[:1400],
        "clients": people,
        "test_features": images[1400:1700],
        "test_labels": labels[1400:1700],
        "public_features": images[1700:],
        "public_labels": labels[1700:],
    } | changed
    return {name: value for name, value in content.items() if value is not None}


def saved(path, **changed):
    np.savez(path, **arrays(**changed))
    return path


def command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


@pytest.mark.parametrize(
    "method",
    [
        "dp-fedavg",
        "fedavg-rand-k",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("fedavg", "fed-smp-top-k")),
    ],
)
def test_any_module_and_any_partition_are_trained_and_leave_a_ledger(here, method, capsys):
    saved(here / "mine.npz")
    settings = ["local_steps=3", "momentum=0.5", "strategy=2", "cohort=20", "batch_size=8"]
    # Without noise there is no budget.
    budget = [] if method.startswith("fedavg") else ["--delta", "1e-2"]
    code, out, problem = command(
        capsys,
        *["train", "--method", method, "--data", "mine.npz", "--model", "mine.py:Residual"],
        *["--rounds", "4", *budget, "--seed", "1", "--checkpoint", "state.pt", "--json"],
        *[word for setting in settings for word in ("--set", setting)],
    )
    assert code == 0, problem
    found = json.loads(out)
    assert 0.1 < found["scores"]["accuracy"] <= 1.0
    parameters = torch.load(here / "state.pt", weights_only=True)["parameters"]
    assert len(parameters) == 4 * 9 + 4 + 8 + 4 * 64 * 10 + 10
    assert (found["audit"] is None) == method.startswith("fedavg")
    if found["audit"] is not None:
        ledger = fp.Ledger.open(here / f"{method}.ledger")
        assert ledger.spent_rounds == 4 and "fixed seed" in found["audit"]["reasons"][0]
        assert "epsilon is at most" in found["audit"]["reasons"][1]
        assert ledger.rounds[0].mechanism.scheme == fp.FixedSize(20, population=40)


@pytest.mark.parametrize("method", ["fa-ld", "fed-plt"])
def test_own_records_are_protected_too(here, method, capsys):
    saved(here / "mine.npz")
    words = ["--data", "mine.npz", "--rounds", "2", "--delta", "1e-5", "--json", "--seed", "1"]
    code, out, problem = command(capsys, "train", "--method", method, *words)
    assert code == 0, problem
    assert "fixed seed" in json.loads(out)["audit"]["reasons"][0]
    assert "epsilon is at most" in json.loads(out)["audit"]["reasons"][1]


def test_a_file_keeps_every_record_with_its_owner(tmp_path):
    data = read_npz(saved(tmp_path / "mine.npz"))
    given = arrays()
    names = sorted(set(given["clients"]))
    assert data.population == 40 and data.num_classes == 10 and data.name == "mine.npz"
    for name, rows in zip(names, data.clients, strict=True):
        assert np.array_equal(np.flatnonzero(given["clients"] == name), rows)
    assert torch.equal(data.features, torch.from_numpy(given["features"]).float())
    assert torch.equal(data.test_labels, torch.from_numpy(given["test_labels"]))
    assert len(data.public()[1]) == 97
    numbers = np.arange(1400)[::-1] // 10
    data = read_npz(
        saved(tmp_path / "numbers.npz", clients=numbers, public_features=None, public_labels=None)
    )
    assert data.population == 140 and list(data.clients[0]) == list(range(1390, 1400))
    with pytest.raises(ParameterError, match="public_features must be given for top_k"):
        data.public()


def test_a_file_without_owners_is_split(tmp_path):
    path = saved(tmp_path / "mine.npz", clients=None)
    assert {len(rows) for rows in read_npz(path, clients=30).clients} == {46, 47}
    few = read_npz(path, clients=100, classes_per_client=1)
    kinds = [len(torch.unique(few.labels[rows])) for rows in few.clients]
    assert max(kinds) <= 2 and np.mean(kinds) < 1.2
    task = job("fedavg", str(path), clients=100, classes_per_client=1)
    for ours, again in zip(task.data.clients, few.clients, strict=True):
        assert np.array_equal(ours, again)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"labels": None}, "contain an array 'labels'"),
        ({"weights": np.ones(3)}, "data must contain only the arrays features, labels,"),
        ({"clients": np.zeros(3, int)}, "clients must be one number or name per record, 1400"),
        ({"clients": np.zeros(1400)}, "clients must be one number or name"),
        ({"labels": np.zeros(1400)}, "labels must be integers, one per record"),
        ({"labels": np.full(1400, -1)}, r"labels must lie from 0"),
        ({"labels": np.zeros(5, int), "clients": None}, "have one label for every input"),
        ({"features": np.full((1400, 64), np.nan)}, "features must be finite"),
        (
            {"features": np.array(["a"] * 1400)},
            "features must be numbers with the records on the first axis",
        ),
        (
            {"features": np.zeros(1400)},
            "features must be numbers with the records on the first axis",
        ),
        ({"features": np.array([{}] * 1400)}, "be a readable file of numpy.savez"),
        ({"test_features": np.zeros((300, 5))}, "features must have one shape per record"),
        ({"labels": np.full(1400, 10**9)}, "labels must lie from 0 to 999999"),
        ({"labels": np.full(1400, 2**63, dtype=np.uint64)}, "labels must lie from 0 to 999999"),
        ({"features": np.full((1400, 64), 1e300)}, "a number outside single precision"),
        ({"public_labels": None}, "public_features, public_labels must be given together"),
        ({"test_labels": None}, "contain an array 'test_labels'"),
        ({"test_labels": np.zeros(0, int)}, "test_labels must be integers, one per record"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, changed, told):
    with pytest.raises(ParameterError, match=told):
        read_npz(
            saved(tmp_path / "mine.npz", **changed),
            clients=5 if "clients" in changed and changed["clients"] is None else None,
        )


def test_what_is_no_such_file_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="data must be an existing file"):
        read_npz(tmp_path / "absent.npz")
    for name, content in [("text.npz", b"features"), ("cut.npz", None), ("empty.npz", b"")]:
        whole = saved(tmp_path / "whole.npz").read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
        with pytest.raises(ParameterError, match=r"data must be a readable file of numpy.savez"):
            read_npz(tmp_path / name)
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    (tmp_path / "loop.npz").symlink_to(tmp_path / "loop.npz")
    (tmp_path / "folder.npz").mkdir()
    # Who opens a pipe waits for a writer.
    os.mkfifo(tmp_path / "pipe.npz")
    for name in ("one.npz", "loop.npz", "folder.npz", "pipe.npz"):
        with pytest.raises(
            ParameterError, match=r"must be an existing file|must be a readable file"
        ):
            read_npz(tmp_path / name)
    for name, word in ("empty", ""), ("other", "features"):
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as archive:
            archive.writestr("x.npy", word)
        with pytest.raises(ParameterError, match="contain an array 'features'"):
            read_npz(tmp_path / f"{name}.npz")
    path = saved(tmp_path / "mine.npz")
    with pytest.raises(ParameterError, match="names the clients"):
        read_npz(path, clients=5)
    with pytest.raises(ParameterError, match="clients must be given"):
        read_npz(saved(tmp_path / "nobody.npz", clients=None))


def test_a_damaged_file_is_refused_or_read_whole(tmp_path):
    """Bytes changed, cut and repeated at random: never another error, never other numbers."""
    path = tmp_path / "mine.npz"
    np.savez(path, **{name: part[:20] for name, part in arrays().items()})
    whole, generator, refused = path.read_bytes(), np.random.default_rng(3), 0
    truth = read_npz(path)
    for _ in range(150):
        damaged = bytearray(whole)
        for at in generator.integers(len(whole), size=generator.integers(1, 4)):
            damaged[at] = generator.integers(256)
        if generator.random() < 0.2:
            del damaged[generator.integers(len(whole)) :]
        path.write_bytes(damaged)
        try:
            found = read_npz(path)
        except ParameterError:
            refused += 1
        else:
            assert torch.equal(found.features, truth.features)
            assert torch.equal(found.test_labels, truth.test_labels)
    assert refused > 50


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused_before_it_is_read(tmp_path):
    path, zeros = tmp_path / "mine.npz", bytes(1 << 20)
    few = {name: part[:20] for name, part in arrays().items() if name != "features"}
    np.savez(path, **few)
    head = {"descr": "|u1", "fortran_order": False, "shape": (300, 1 << 20)}
    packed = zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1)
    with packed, packed.open("features.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, head)
        for _ in range(300):
            member.write(zeros)
    assert path.stat().st_size < 2**21
    tracemalloc.start()
    with pytest.raises(ParameterError, match=r"not unpack to 3.* bytes") as told:
        read_npz(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20 and "\n" not in str(told.value)


def test_two_arrays_of_one_name_are_refused(tmp_path):
    path = tmp_path / "mine.npz"
    with warnings.catch_warnings(), zipfile.ZipFile(saved(path), "a") as file:
        warnings.simplefilter("ignore", UserWarning)
        content = io.BytesIO()
        np.save(content, np.zeros(1400, int))
        file.writestr("labels.npy", content.getvalue())
    with pytest.raises(ParameterError, match="contain every array at most once"):
        read_npz(path)


def test_two_classes_may_be_true_and_false(tmp_path):
    kinds = {name: value > 4 for name, value in arrays().items() if name.endswith("labels")}
    data = read_npz(saved(tmp_path / "mine.npz", **kinds))
    assert data.num_classes == 2 and data.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "vgg"], "model must be one of 'logistic', 'mlp' or 'cnn', or FILE.py:NAME"),
        (["--model", "cnn"], "train on inputs of shape (64,) per record"),
        (["--model", "absent.py:build"], "model must name an existing file"),
        (
            ["--model", "absent.module:build"],
            "code that runs (ModuleNotFoundError: No module named 'absent'",
        ),
        (
            ["--model", "mine.py:absent"],
            "builds the module, got 'mine.py:absent'; 'absent' does not exist",
        ),
        (["--model", "mine.py:built"], "'built' is of type "),
        (["--model", "mine.py:words"], "model must build an nn.Module, got 'str'"),
        (
            ["--model", "mine.py:wrong"],
            "train on inputs of shape (64,) per record (RuntimeError: mat1",
        ),
        (["--model", "mine.py:narrow"], "output must have shape (records, 10 classes), got (3, 9)"),
        (["--model", "mine.py:needy"], "be built without arguments (needy() missing 1 required"),
        (["--model", "mine.py:leaving"], "be built without arguments"),
        (["--model", "mine.py:counting"], "output must have shape (records, 10 classes)"),
        (["--model", "mine.py:Empty"], "output must be finite, got 'NaN or infinity'"),
        (["--model", "mine.py:Frozen"], "be equal for every build of the model"),
        (["--model", "mine.py:Counts"], "keep no running statistics, got 'seen'"),
        (["--model", "mine.py:Quits"], "per record (SystemExit"),
        (["--model", "broken.py:build"], "be code that runs (SyntaxError"),
        (["--model", "leaving.py:build"], "be code that runs (SystemExit"),
        (["--model", "mlp", "--method", "fa-ld"], "model must be left out"),
        (["--data", "mine.csv"], "data must be one of 'digits' or 'fashion-mnist', or a file"),
        (["--clients", "0"], "clients must"),
        (["--clients", "2000"], "clients must be at most"),
        (["--classes-per-client", "0"], "classes_per_client must"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line_and_nothing_is_written(here, words, told, capsys):
    before = set(here.iterdir())
    code, _, problem = command(capsys, "train", "--method", "dp-fedavg", *words)
    assert code == 2 and told in problem.splitlines()[-1], problem
    assert {path.name for path in set(here.iterdir()) - before} <= {"__pycache__"}


def test_a_model_may_be_a_module_s_function_too():
    build = model_at("torch.nn:Identity")
    assert isinstance(build(), torch.nn.Identity)
    with pytest.raises(ParameterError, match="have parameters to train"):
        check_model(build, digits(clients=5))


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ({0: [0, 1], 1: [2]}, "clients must be a sequence of row numbers, got 'dict'"),
        ([np.array([True, False, True]), [1]], r"clients\[0\] must contain integer row numbers"),
        ([[0], [1.9]], r"clients\[1\] must contain integer row numbers"),
        ([["0"]], r"clients\[0\] must contain integer row numbers"),
        (
            [[0, 1], [1, 2]],
            "clients must contain every row at most once, got 'row 1 more than once'",
        ),
        ([[2, 2]], "row 2 more than once"),
        (7, "clients must be a sequence of row numbers"),
    ],
)
def test_only_row_numbers_of_one_owner_each_make_clients(clients, words):
    parts = {"features": torch.zeros(3, 2), "labels": torch.zeros(3, dtype=torch.int64)}
    parts |= {f"test_{name}": value for name, value in parts.items()}
    with pytest.raises(ParameterError, match=words):
        FederatedData(name="mine", num_classes=2, clients=clients, **parts)


@pytest.mark.parametrize("method", ["dp-fedavg", "fa-ld", "fed-plt"])
def test_data_without_a_test_set_are_trained_on_and_not_scored(here, capsys, method):
    rows = {name: value[:40] for name, value in arrays().items() if name in ("features", "labels")}
    np.savez("bare.npz", **rows, clients=np.repeat(np.arange(4), 10))
    words = ["--method", method, "--data", "bare.npz", "--rounds", "1", "--delta", "1e-3"]
    words += [] if method == "fa-ld" else ["--model", "mine.py:Residual"]
    with pytest.raises(SystemExit) as left:
        main(["train", *words, "--ledger", "bare.ledger", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert left.value.code == 0 and told["scores"] == {} and "not scored" in told["notes"][0]


def test_the_number_of_clients_is_asked_for(tmp_path):
    with pytest.raises(ParameterError, match="no array 'clients', got None; pass --clients 200"):
        read_npz(saved(tmp_path / "mine.npz", clients=None))


def test_labels_that_start_at_1_are_told_to_start_at_0(here):
    labels = arrays()["labels"] + 1
    saved("ones.npz", labels=labels, test_labels=labels[:300])
    told = r"got \(3, 10\); number the labels from 0"
    with pytest.raises(ParameterError, match=told):
        job("dp-fedavg", "ones.npz", model="mine.py:Residual")
