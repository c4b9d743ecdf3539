"""Refusals of the training modules: data, models, losses, posteriors, draws and their files."""

import io
import json
import zipfile

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from scipy.io import savemat
from torch import nn

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.training import posterior
from fedprivacy.training.checkpoint import Checkpoint
from fedprivacy.training.datasets import LETTERS, TEXT, load_named
from fedprivacy.training.private_sidecar import PrivateSidecar
from fedprivacy.training.release_files import checked_path
from tests.contract.test_refused_calls import fits

CPU = torch.device("cpu")
WHOLE = {
    "features": torch.zeros(6, 2),
    "labels": torch.tensor([0, 1, 0, 1, 0, 1]),
    "clients": ([0, 1, 2], [3, 4, 5]),
}
MADE = {
    "client": lambda number: (torch.zeros(2, 3), torch.tensor([0, 1])),
    "population": 4,
    "test_features": torch.zeros(0, 3),
    "test_labels": torch.zeros(0, dtype=torch.int64),
}


def data(**changed):
    return training.FederatedData(**{**WHOLE, **changed})


def lazy(**changed):
    return training.LazyData(**{**MADE, **changed})


def made(*values):
    """What population data says of clients that a function makes so."""
    return lazy(client=lambda number: values).records(2)


def averaging(build=None, **changed):
    given = {
        "model": build or training.logistic(2, 2),
        "scheme": fp.Everyone(),
        "local_steps": 1,
        "batch_size": 2,
        "seed": 0,
    }
    return training.FederatedAveraging(**{**given, **changed})


def first_round(build=None, own=None, **changed):
    loop = averaging(build, **changed)
    return loop.step(loop.init(), own or data())


def gaussian_posterior(function, **changed):
    given = {"clients": [np.zeros((4, 2))], "dimension": 2, "clip_norm": 1.0}
    return training.Posterior.of(function, **{**given, **changed})


def likely(p, x):
    return -0.5 * ((x - p) ** 2).sum(1)


class Uncopied(nn.Linear):
    def __deepcopy__(self, memo):
        raise RuntimeError("one of a kind")


def writes(p, x):
    p += 1.0
    return likely(p, x)


def with_meta():
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))


CALLS = {
    # data that are at hand
    "classes of which there is one": (
        lambda: data(num_classes=1),
        "num_classes must be an integer of at least 2, got 1",
    ),
    "inputs of numpy": (
        lambda: data(features=np.zeros((6, 2))),
        "features must be a tensor, got 'ndarray'; pass torch.as_tensor(...)",
    ),
    "labels of a list": (
        lambda: data(labels=[0] * 6),
        "labels must be a tensor, got 'list'; pass torch.as_tensor(...)",
    ),
    "a test set of numpy": (
        lambda: data(test_features=np.zeros((1, 2)), test_labels=torch.zeros(1).long()),
        "test_features must be a tensor, got 'ndarray'; pass torch.as_tensor(...)",
    ),
    "inputs of two shapes": (
        lambda: data(test_features=torch.zeros(2, 3), test_labels=torch.zeros(2).long()),
        "features must have one shape per record in all parts of the data, got [(2,), (3,)]",
    ),
    "labels of two shapes": (
        lambda: data(test_features=torch.zeros(2, 2), test_labels=torch.zeros(2, 1).long()),
        "test_labels must have the shape of the other labels per record, (), got (1,)",
    ),
    "public inputs alone": (
        lambda: data(public_features=torch.zeros(2, 2)),
        "public_features, public_labels must be given together, got None",
    ),
    "public records, none of them": (
        lambda: data(public_features=torch.zeros(0, 2), public_labels=torch.zeros(0).long()),
        "public_records must be an integer of at least 1, got 0",
    ),
    "a label too few": (
        lambda: data(labels=torch.zeros(5).long()),
        "features, labels must have one label for every input, got ((6, 2), (5,))",
    ),
    "half precision": (
        lambda: data(features=torch.zeros(6, 2).half()),
        "features must be torch.float32 or torch.float64, got torch.float16; pass "
        "features.to(torch.float32)",
    ),
    "an input that is infinite": (
        lambda: data(features=torch.full((6, 2), torch.inf)),
        "features must be finite, got 'a non-finite entry'",
    ),
    "a response that is none": (
        lambda: data(labels=torch.full((6,), torch.nan)),
        "labels must be finite, got 'a non-finite entry'",
    ),
    "classes with a fraction of 0": (
        lambda: data(labels=torch.ones(6), num_classes=2),
        "labels must be integers (int64) from 0 to 1, one per record, got 'torch.float32 of "
        "shape (6,)'; pass labels.to(torch.int64) if these are classes, else leave out "
        "num_classes",
    ),
    "classes with fractions": (
        lambda: data(labels=torch.full((6,), 0.5), num_classes=2),
        "labels must be integers ... got 'torch.float32 of shape (6,)'; leave out num_classes "
        "for other targets",
    ),
    "a class below 0": (
        lambda: data(labels=torch.tensor([0, 1, 0, 1, 0, -1]), num_classes=2),
        "labels must lie from 0 to 1, got (-1, 1); leave out num_classes for other targets",
    ),
    "classes that are responses": (
        lambda: data(labels=torch.ones(6)).classes,
        "labels must be class numbers for cross-entropy, got 'torch.float32 of shape (6,)'; "
        "number the classes from 0; for other targets pass a loss, such as "
        "nn.MSELoss()",
    ),
    "classes of two columns": (
        lambda: data(labels=torch.zeros(6, 2).long()).classes,
        "labels must be class numbers for cross-entropy, got 'torch.int64 of shape (6, 2)'; ...",
    ),
    "classes from below 0": (
        lambda: data(labels=-torch.ones(6).long()).classes,
        "labels must be class numbers from 0, got 'one below 0'; number the classes ...",
    ),
    "clients of a mapping": (
        lambda: data(clients={"a": [0, 1]}),
        "clients must be a sequence of row numbers, got 'dict'; pass "
        "tuple(clients.values()), for example",
    ),
    "clients of a number": (
        lambda: data(clients=6),
        "clients must be a sequence of row numbers, got 'int'; pass ...",
    ),
    "a client that is a mask": (
        lambda: data(clients=([0], np.array([True] * 6))),
        "clients[1] must contain integer row numbers, got dtype('bool'); pass "
        "np.flatnonzero(mask) for a mask",
    ),
    "a client of fractions": (
        lambda: data(clients=([0.5],)),
        "clients[0] must contain integer row numbers, got ...",
    ),
    "a client of nothing": (
        lambda: data(clients=([0, 1], [])),
        "clients[1] must contain at least one row, got 'no record'; use fewer clients",
    ),
    "a client of a stranger's": (
        lambda: data(clients=([0, 6],)),
        "clients[0] must be row numbers from 0 to 5, got (0, 6)",
    ),
    "a client that counts from the end": (
        lambda: data(clients=([-1, 2],)),
        "clients[0] must be row numbers from 0 to 5, got (-1, 2)",
    ),
    "a record of two": (
        lambda: data(clients=([0, 1, 2], [4, 2, 3])),
        "clients must contain every row at most once, got 'row 2 more than once'",
    ),
    "a mask without public data": (
        lambda: data().public(),
        "public_features must be given for top_k, whose mask is computed from public data, got "
        "None; reserve records with public=..., or use rand_k",
    ),
    "more clients than records": (
        lambda: training.partition_iid(3, 4),
        "clients must be at most 3, for 3 records and 1 part(s) each, got 4; every client "
        "needs data; use fewer clients",
    ),
    "more runs than records": (
        lambda: training.partition_by_label([0, 1, 2, 3, 4], 2, classes_per_client=3),
        "clients must be at most 1, for 5 records and 3 part(s) each, got 2; every client ...",
    ),
    "runs of which there are none": (
        lambda: training.partition_by_label([0, 1], 1, classes_per_client=0),
        "classes_per_client must be an integer of at least 1, got 0",
    ),
    "digits without a test": (
        lambda: training.digits(test=0),
        "test must be an integer of at least 1, got 0",
    ),
    "all digits set aside": (
        lambda: training.digits(test=1797, public=0),
        "test + public must be below the number of records, 1797, got 1797",
    ),
    # data that are made as they are drawn
    "nobody at all": (
        lambda: lazy(population=0),
        "population must be an integer of at least 1, got 0",
    ),
    "clients that are no function": (
        lambda: lazy(client=[1, 2]),
        "client must be a function of the client number, got 'list'",
    ),
    "a test set that is a number": (
        lambda: lazy(test_features=torch.tensor(1.0)),
        "test_features must be a tensor whose first axis is the records, got 'Tensor'",
    ),
    "test labels of a list": (
        lambda: lazy(test_labels=[]),
        "test_labels must be a tensor whose first axis is the records, got 'list'",
    ),
    "how many classes nobody has seen": (
        lambda: lazy().classes,
        "num_classes must be given for cross-entropy, since labels are generated later, got None",
    ),
    "a client that makes its inputs alone": (
        lambda: lazy(client=lambda number: torch.zeros(2, 3)).records(2),
        "client(2) must be (inputs, targets), got 'Tensor'",
    ),
    "a client that makes too much": (
        lambda: made(torch.zeros(2, 3), torch.zeros(2).long(), None),
        "client(2) must be (inputs, targets), got 'tuple'",
    ),
    "a client of another precision": (
        lambda: made(torch.zeros(2, 3).double(), torch.zeros(2).long()),
        "client(2) must be like those of the test set, torch.float32 of shape (records, "
        "*torch.Size([3])), got (torch.float64, torch.Size([2, 3]))",
    ),
    "a client of another width": (
        lambda: made(torch.zeros(2, 4), torch.zeros(2).long()),
        "client(2) must be like those of the test set, ..., got (torch.float32, "
        "torch.Size([2, 4]))",
    ),
    "a client whose targets are a list": (
        lambda: made(torch.zeros(2, 3), [0, 1]),
        "client(2) must be like those of the test set, torch.int64 of shape (records, "
        "*torch.Size([])), got ('list', '')",
    ),
    "a client whose inputs are one number": (
        lambda: lazy(
            test_features=torch.zeros(0),
            client=lambda number: (torch.tensor(1.0), torch.zeros(1).long()),
        ).records(2),
        "client(2) must be like those of the test set, torch.float32 of shape (records, "
        "*torch.Size([])), got (torch.float32, torch.Size([]))",
    ),
    "a client without a record": (
        lambda: made(torch.zeros(0, 3), torch.zeros(0).long()),
        "records must be an integer of at least 1, got 0",
    ),
    "a client with an input that is none": (
        lambda: made(torch.full((1, 3), torch.nan), torch.zeros(1).long()),
        "features must be finite, got 'a non-finite entry'",
    ),
    "a client of a class that there is not": (
        lambda: lazy(
            num_classes=2, client=lambda number: (torch.zeros(1, 3), torch.tensor([2]))
        ).records(0),
        "labels must lie from 0 to 1, got (2, 2); leave out ...",
    ),
    # training
    "a module that is none": (
        lambda: training.FlatModel(3, CPU),
        "model must build an nn.Module, got 'int'",
    ),
    "a module that is one of a kind": (
        lambda: training.FlatModel(Uncopied(2, 2), CPU),
        "model must be copied by copy.deepcopy (one of a kind), got 'Uncopied'",
    ),
    "a layer that waits for its size": (
        lambda: training.FlatModel(nn.Sequential(nn.LazyLinear(2)), CPU),
        "model must have parameters of known shapes (no lazy layer), got '0.weight'; run one "
        "input through it, or state the sizes of the layers",
    ),
    "a layer that holds no numbers": (
        lambda: training.FlatModel(with_meta(), CPU),
        "model must contain numbers (not be on the meta device), got '1.weight'; build it on "
        "the cpu",
    ),
    "a layer that counts": (
        lambda: training.FlatModel(
            nn.Sequential(nn.Linear(2, 2), nn.InstanceNorm1d(2, track_running_stats=True)), CPU
        ),
        "model must keep no running statistics, got 'layer 1 (InstanceNorm1d)'; they learn from "
        "private data outside the clipped update; use GroupNorm, or track_running_stats=False. "
        "Constant ...",
    ),
    "nothing to train": (
        lambda: training.FlatModel(nn.Linear(2, 2).requires_grad_(False), CPU),
        "model must have parameters to train, got 'Linear'",
    ),
    "a number for each record": (
        lambda: first_round(loss=lambda out, labels: (out.sum(1) - labels) ** 2),
        "loss must return one differentiable real number, the mean over a batch, got "
        "'torch.float32 of shape (2,)'; pass nn.MSELoss(), for example",
    ),
    "a loss that torch cannot follow": (
        lambda: first_round(loss=lambda out, labels: out.detach().sum()),
        "loss must return one differentiable real number, ... 'torch.float32 of shape () "
        "without a gradient'...",
    ),
    "a loss that is a number of Python": (
        lambda: first_round(loss=lambda out, labels: float(out.detach().sum())),
        "loss must return one differentiable real number, ..., got 'float'; pass "
        "nn.MSELoss(), for example",
    ),
    "a loss that does not take these targets": (
        lambda: first_round(loss=lambda out, labels: 1 // 0),
        "loss must return one differentiable real number, the mean over a batch, got "
        "'ZeroDivisionError: integer division or modulo by zero'; targets have shape (2,)",
    ),
    "scores that are whole": (
        lambda: first_round(lambda: Rounded(2, 2)),
        "model's output must be real and depend on its parameters, got 'torch.int64 of shape "
        "(2, 2) without a gradient'",
    ),
    "scores of too few classes": (
        lambda: first_round(training.logistic(2, 2), data(labels=torch.arange(6))),
        "model's output must return shape (records, k) with k at least 6, got (2, 2); pass a "
        "loss for other outputs",
    ),
    "steps beyond what anyone takes": (
        lambda: training.LocalSGD(steps=10**6 + 1),
        "local_steps must be at most 1000000, got 1000001",
    ),
    "epochs beyond what anyone takes": (
        lambda: training.LocalSGD(epochs=10**7),
        "local_epochs must be at most 1000000, got 10000000",
    ),
    "a rate beyond single precision": (
        lambda: averaging(learning_rate=1e39),
        "learning_rate must be at most 3.4e+38, the largest value in single precision, got 1e+39",
    ),
    "a server's rate beyond single precision": (
        lambda: averaging(server_learning_rate=1e300),
        "server_learning_rate must be at most 3.4e+38, the largest value in single "
        "precision, got 1e+300",
    ),
    "a rate that grows": (
        lambda: averaging(learning_rate_decay=1.5),
        "learning_rate_decay must be at most 1, got 1.5; 1 keeps the rate",
    ),
    "an average that is what no loop is": (
        lambda: training.released(object(), object()),
        "loop must be a loop of fedprivacy.training with its own state, got 'object'; save only "
        "accounted values, with torch.save",
    ),
    # sampling
    "weights of other clients": (
        lambda: posterior.checked_shares([0.5, 0.5], 3),
        "weights must be 3 numbers above 0, got [0.5, 0.5]",
    ),
    "a weight of 0": (
        lambda: posterior.checked_shares([1.0, 0.0], 2),
        "weights must be 2 numbers above 0, got [1.0, 0.0]",
    ),
    "weights of more than all": (
        lambda: posterior.checked_shares([0.5, 0.75], 2),
        "weights must sum to 1, got 1.25; divide them by their sum",
    ),
    "a clip norm and a sensitivity": (
        lambda: gaussian_posterior(likely, own_sensitivity=2.0),
        "clip_norm, own_sensitivity must be given one without the other, got (1.0, 2.0)",
    ),
    "a prior of less than nothing": (
        lambda: gaussian_posterior(likely, prior_precision=-1.0),
        "prior_precision must be a finite number of at least 0, got -1.0",
    ),
    "a client without a target": (
        lambda: gaussian_posterior(
            lambda p, x, y: likely(p, x), clients=[([[0.0, 0.0]], [0.0]), ([[0.0, 0.0]], [])]
        ),
        "clients[1] must have one target for every input, got [(1, 2), (0,)]",
    ),
    "a client that alone has no targets": (
        lambda: gaussian_posterior(
            lambda p, x, y: likely(p, x), clients=[([[0.0, 0.0]], [0.0]), ([[0.0, 0.0]], None)]
        ),
        "clients[1] must have one target for every input, got [(1, 2)]",
    ),
    "a posterior of nobody": (
        lambda: gaussian_posterior(likely, clients=[]),
        "clients must be an integer of at least 1, got 0",
    ),
    "a likelihood summed over records": (
        lambda: gaussian_posterior(lambda p, x: likely(p, x).sum()),
        "log_likelihood must return shape (2,) for two records, real numbers that torch can "
        "differentiate, got 'torch.float64 of shape ()'; sum over the columns of a record, not "
        "over records",
    ),
    "a likelihood of each column": (
        lambda: gaussian_posterior(lambda p, x: -((x - p) ** 2)),
        "log_likelihood must return shape (2,) for two records, ..., got 'torch.float64 of shape "
        "(2, 2)'; sum...",
    ),
    "a likelihood that knows no parameters": (
        lambda: gaussian_posterior(lambda p, x: x.sum(1)),
        "log_likelihood must return ..., got 'torch.float64 of shape (2,) without a gradient'...",
    ),
    "a likelihood that raises": (
        lambda: gaussian_posterior(lambda p, x: [][0]),
        "log_likelihood must be a differentiable function of tensors, got 'IndexError: list "
        "index out of range'; it runs under torch.vmap; do not write to parameters, branch "
        "on ...",
    ),
    "a likelihood that branches": (
        lambda: gaussian_posterior(lambda p, x: likely(p, x if p.sum() > 0 else 2 * x)),
        'log_likelihood must be a differentiable function of tensors, got "RuntimeError: ...',
    ),
    "a likelihood that writes": (
        lambda: gaussian_posterior(writes),
        "log_likelihood must be a differentiable function of tensors, got 'RuntimeError: a "
        "leaf Variable that requires grad is being ...",
    ),
    # draws
    "draws without chains": (
        lambda: training.inference_data(torch.zeros(4, 2)),
        "draws must have shape (chains, draws, d), got (4, 2)",
    ),
    "names of other coordinates": (
        lambda: training.inference_data(torch.zeros(1, 4, 2), ["a", "b", "c"]),
        "names must be 2 names, one per coordinate, got ['a', 'b', 'c']",
    ),
    "two coordinates of one name": (
        lambda: training.inference_data(torch.zeros(1, 4, 2), ["a", "a"]),
        "names must be different, got ['a', 'a']; a later variable would replace an earlier one",
    ),
    "seven draws of one chain": (
        lambda: training.diagnose(torch.zeros(1, 7, 2)),
        "draws must have shape (chains, draws, d), with at least 4 draws per chain, or 8 for "
        "one chain, got (1, 7, 2)",
    ),
    "draws of no chain": (
        lambda: training.diagnose(torch.zeros(0, 9, 2)),
        "draws must have shape (chains, draws, d), with at least..., got (0, 9, 2)",
    ),
    "draws that are yet to come": (
        lambda: training.diagnose(torch.full((2, 8, 1), torch.nan)),
        "draws must be finite, got 'an entry that is not finite'; run all rounds first",
    ),
    "a point of another space": (
        lambda: training.clipping(gaussian_posterior(likely), [0.0, 0.0, 0.0]),
        "point must have shape (2,), got (3,)",
    ),
    "directions of which there are none": (
        lambda: training.clipping(gaussian_posterior(likely), [0.0, 0.0], probes=0),
        "probes must be an integer of at least 1, got 0",
    ),
    "what nothing clips": (
        lambda: training.clipping(gaussian_posterior(likely, clip_norm=None), [0.0, 0.0]),
        "clip_norm must be given, got None; without clip_norm no gradient is clipped",
    ),
    "predictions of no draw": (
        lambda: training.predictive(
            training.SoftmaxRegression(2, 2).logits,
            torch.full((3, 6), torch.nan),
            torch.zeros(1, 2),
        ),
        "draws must contain a finite draw, got (3, 6); run more rounds",
    ),
    "a fit to one draw": (
        lambda: training.gaussian_fit(torch.zeros(1, 2)),
        "draws must contain at least two finite draws, got (1, 2); run more rounds",
    ),
    "chances that do not sum to 1": (
        lambda: training.score(torch.full((2, 2), 0.4), torch.zeros(2).long()),
        "probabilities must sum to 1 in every row, got 'a row that does not sum to 1'",
    ),
    "chances below 0": (
        lambda: training.score(torch.tensor([[1.5, -0.5]]), torch.zeros(1).long()),
        "probabilities must be at least 0, got 'an entry below 0'",
    ),
    "a class that has no column": (
        lambda: training.score(torch.full((2, 2), 0.5), torch.tensor([0, 2])),
        "labels must be column numbers from 0 to 1, got (0, 2)",
    ),
    "bins of which there are none": (
        lambda: training.score(torch.full((2, 2), 0.5), torch.zeros(2).long(), bins=0),
        "bins must be an integer of at least 1, got 0",
    ),
    "records without a chance": (
        lambda: training.score(torch.zeros(0, 2), torch.zeros(0).long()),
        "probabilities, labels must have one row per label, got ((0, 2), (0,))",
    ),
}


class Rounded(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs).long()


@pytest.mark.parametrize("what", CALLS)
def test_what_training_refuses_says_all_four(what):
    call, wanted = CALLS[what]
    with pytest.raises(fp.ParameterError) as caught:
        call()
    assert fits(str(caught.value), wanted), str(caught.value)


@pytest.mark.parametrize("name", ["Nothing", "fedavg", "_nothing"])
def test_a_name_that_training_has_not_is_an_attribute_error(name):
    with pytest.raises(AttributeError) as caught:
        getattr(training, name)
    assert str(caught.value) == f"module 'fedprivacy.training' has no attribute {name!r}"


def test_every_name_of_training_is_there():
    assert dir(training) == sorted(training.__all__)
    assert all(callable(getattr(training, name)) for name in training.__all__)


# ---- files of records


def leaf(folder, part, users, data):
    (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / part / "roles.json").write_text(json.dumps({"users": users, "user_data": data}))


FINE = {"x": [LETTERS[:1] * TEXT], "y": ["a"]}
ROLES = {
    "a role that is a list": ([], "roles.json, user A must contain x and y, got 'list'"),
    "texts that are one": (
        {"x": "a" * TEXT, "y": ["a"]},
        "roles.json, user A must contain lists of texts, x, and of next characters, y, "
        "got ['x', 'y']",
    ),
    "next ones alone": ({"y": ["a"]}, "... must contain lists of texts, x, ..., got ['y']"),
    "a next one too many": (
        {"x": ["a" * TEXT], "y": ["a", "b"]},
        "roles.json, user A must contain as many texts as next characters, got (1, 2)",
    ),
    "a next one of two": (
        {"x": ["a" * TEXT], "y": ["ab"]},
        "roles.json, user A must contain texts of 80 characters and one next character "
        "each, got ('aaa...', 'ab')",
    ),
    "a next one that is a number": (
        {"x": ["a" * TEXT], "y": [1]},
        "roles.json, user A must contain texts of 80 characters and one next character "
        "each, got (..., 1)",
    ),
    "a next one of another alphabet": (
        {"x": ["a" * TEXT], "y": ["#"]},
        "roles.json, user A must contain only the 80 characters of LEAF, got '#'",
    ),
}


@pytest.mark.parametrize("what", ROLES)
def test_a_role_that_does_not_fit_is_named_with_its_file(tmp_path, what):
    own, wanted = ROLES[what]
    leaf(tmp_path, "test", ["A"], {"A": FINE})
    leaf(tmp_path, "train", ["A"], {"A": own})
    with pytest.raises(fp.ParameterError) as caught:
        load_named("shakespeare", tmp_path)
    way_out = "; pass data_dir with LEAF's Shakespeare, JSON files in its folders train and test"
    parts = wanted.removeprefix("...").split("...")
    told = str(caught.value)
    assert told.endswith(way_out) and all(part in told for part in parts), told


@pytest.mark.parametrize("text", ["[" * 10**5, "{", "[]", '{"users": 3, "user_data": {}}'])
def test_a_file_that_is_no_role_file_is_named(tmp_path, text):
    leaf(tmp_path, "train", [], {})
    (tmp_path / "train" / "roles.json").write_text(text)
    with pytest.raises(fp.ParameterError, match=r"roles\.json must be one of LEAF's JSON files"):
        load_named("shakespeare", tmp_path)


@pytest.mark.parametrize(("public", "told"), [(1, "got 1"), (5, "got 5")])
def test_all_texts_set_aside_leave_nobody(tmp_path, public, told):
    for part in ("train", "test"):
        leaf(tmp_path, part, ["A"], {"A": FINE})
    with pytest.raises(fp.ParameterError, match="public must be below the number of records, 1, "):
        load_named("shakespeare", tmp_path, public=public)
    assert load_named("shakespeare", tmp_path).population == 1


def test_a_matlab_file_without_its_arrays_or_of_fractions(tmp_path):
    path = tmp_path / "train_32x32.mat"
    savemat(path, {"X": np.zeros((32, 32, 3, 2), np.uint8)})
    with pytest.raises(fp.ParameterError, match="must contain arrays X and y, got"):
        load_named("svhn", tmp_path)
    savemat(path, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1.5], [2.0]])})
    with pytest.raises(fp.ParameterError, match="must contain integers, got '2 labels, float64'"):
        load_named("svhn", tmp_path)


# ---- what a run keeps on disk


def kept(tmp_path, **changed):
    """A run of one round and where its checkpoint lies."""
    path = tmp_path / "run.pt"
    training.train(averaging(), data(), rounds=1, checkpoint=path, description="a run")
    return path


def go_on(path, own=None, rounds=2, description="a run", **options):
    loop = averaging(**options)
    return training.train(
        loop, own or data(), rounds=rounds, checkpoint=path, description=description
    )


GONE_WRONG = {
    "other data": (
        lambda path: go_on(path, data(features=torch.ones(6, 2))),
        "checkpoint must be resumed with its own training data, got ...; name another "
        "checkpoint and another ledger",
    ),
    "another description": (
        lambda path: go_on(path, description="another"),
        "checkpoint must be resumed with its original settings, but 'a run' and 'another' "
        "differ, got ...; name another checkpoint",
    ),
    "another model": (
        lambda path: go_on(path, build=training.mlp(2, 2, (3,))),
        "checkpoint must contain a valid 'parameters', got ...; pass another path",
    ),
    "another loop": (
        lambda path: training.load(path, fresh_chain()),
        "checkpoint must contain a ChainState, got ...; pass another path",
    ),
    "fewer rounds than were run": (
        lambda path: go_on(go_on(path, rounds=3) and path, rounds=2),
        "rounds must be at least 3, the number of rounds in the checkpoint, got 2",
    ),
    "notes that were lost": (
        lambda path: path.with_name("run.pt.private").unlink() or go_on(path),
        "private notes must exist, since its key shows whether the data are unchanged, got "
        "...; restore it, or name another checkpoint and another ledger",
    ),
    "notes that are a folder": (
        lambda path: PrivateSidecar.beside(folder_at(path.with_name("other.private")), None),
        "private notes must be a file, got ...; name another ledger",
    ),
    "notes whose key was cut": (
        lambda path: PrivateSidecar.beside(cut_notes(path), None),
        "private notes must have format 'fedprivacy private notes 1', got ...; restore the file",
    ),
    "a checkpoint that is not there": (
        lambda path: Checkpoint.read(path.with_name("none.pt")),
        "checkpoint must be a readable fedprivacy checkpoint, got ... (FileNotFoundError)...",
    ),
    "a checkpoint of what is none": (
        lambda path: Checkpoint.read(other_file(path, {"format": "somebody's"})),
        "checkpoint must have format 'fedprivacy checkpoint 5', got ...; pass another path",
    ),
    "a checkpoint of the format before": (
        lambda path: Checkpoint.read(other_file(path, {"format": "fedprivacy checkpoint 4"})),
        "checkpoint must have format 'fedprivacy checkpoint 5', not the previous one, ...",
    ),
    "a round that is true": (
        lambda path: Checkpoint.read(
            other_file(path, {"format": "fedprivacy checkpoint 5", "round": True})
        ),
        "checkpoint must contain a valid 'round', got ...; pass another path",
    ),
    "a round before the first": (
        lambda path: Checkpoint.read(
            other_file(path, {"format": "fedprivacy checkpoint 5", "round": -1})
        ),
        "checkpoint must contain a valid 'round', got ...; pass another path",
    ),
    "a checkpoint that is packed": (
        lambda path: Checkpoint.read(packed(path)),
        "checkpoint must be a readable fedprivacy checkpoint, got ... (ValueError); delete "
        "it and name a new ledger to start again (the rounds of the old ledger stay spent)",
    ),
    "a model where there is no folder": (
        lambda path: checked_path(path.parent / "none" / "model.pt"),
        "output must be in an existing folder, got ...",
    ),
    "a model in a folder's place": (
        lambda path: checked_path(path.parent),
        "output must be a file or a new name, got ...; name another file",
    ),
}


def fresh_chain():
    target = gaussian_posterior(likely, clip_norm=None)
    return training.LangevinSampling(target=target, step_size=0.1, local_steps=1, seed=0).init()


def folder_at(path):
    path.mkdir()
    return path.with_suffix("")


def cut_notes(path):
    place = path.with_name("run.pt.private")
    head = json.loads(place.read_bytes().splitlines()[0])
    place.write_text(json.dumps(head | {"key": head["key"][:-2]}))
    return path


def other_file(path, content):
    torch.save(content, path)
    return path


def packed(path):
    """The same archive, deflated: a small file may then hold a large one."""
    before = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in before.namelist():
            archive.writestr(name, before.read(name))
    return path


@pytest.mark.parametrize("what", GONE_WRONG)
def test_a_run_is_gone_on_with_as_it_was_or_not_at_all(tmp_path, what):
    call, wanted = GONE_WRONG[what]
    path = kept(tmp_path)
    with pytest.raises(fp.ParameterError) as caught:
        call(path)
    assert fits(str(caught.value), wanted), str(caught.value)


def test_descriptions_that_are_settings_are_told_by_what_differs(tmp_path):
    path = tmp_path / "run.pt"
    told = {"method": "a", "settings": {"rounds": 3, "seed": 1}}
    training.train(averaging(), data(), rounds=1, checkpoint=path, description=json.dumps(told))
    told["settings"]["seed"] = 2
    with pytest.raises(
        fp.ParameterError, match="resumed with its original settings, but seed differ, got"
    ):
        go_on(path, description=json.dumps(told))


def test_a_number_in_a_checkpoint_that_is_not_finite_does_not_fit(tmp_path):
    path = kept(tmp_path)
    content = torch.load(path, weights_only=True)
    other_file(path, content | {"learning_rate": float("nan")})
    with pytest.raises(fp.ParameterError, match="contain a valid 'learning_rate'"):
        training.load(path, averaging().init())
    other_file(path, content | {"round": 1.0})
    with pytest.raises(fp.ParameterError, match="contain a valid 'round'"):
        training.load(path, averaging().init())
    other_file(path, content)
    assert training.load(path, averaging().init()).round == 1


def test_a_count_that_was_cut_is_lost_and_never_made_up(tmp_path):
    path = kept(tmp_path)
    notes = path.with_name("run.pt.private")
    before = go_on(path, rounds=3)
    assert before.upload_bytes > 0
    whole = notes.read_bytes()
    notes.write_bytes(whole[: whole.rindex(b"sent") + 8])
    assert go_on(path, rounds=3).upload_bytes is None
    notes.write_bytes(whole)
    assert go_on(path, rounds=3).upload_bytes == before.upload_bytes
    assert notes.stat().st_mode & 0o777 == 0o600
