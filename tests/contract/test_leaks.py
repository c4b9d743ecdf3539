"""The files and the output of a run contain no private value."""

import errno
import json
import os
import re
import warnings
import zipfile
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy import outputs
from fedprivacy.cli import main
from fedprivacy.errors import ParameterError
from fedprivacy.training import FederatedAveraging, FederatedData, load, logistic, save, train
from fedprivacy.training.checkpoint import Checkpoint
from tests.disclosure import TABLE

pytestmark = pytest.mark.usefixtures("narrowest")

CLIENT = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}


def data(first=0.0, clients=6):
    """Return a few clients; the first record is ``first``, all else is the same."""
    inputs = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    inputs[0] = first
    features, labels = torch.from_numpy(inputs), torch.from_numpy((inputs[:, 1] > 0).astype(int))
    return FederatedData(
        name="made up",
        features=features,
        labels=labels,
        clients=tuple(np.split(np.arange(12), 6))[:clients],
        test_features=features[4:],
        test_labels=labels[4:],
        num_classes=2,
    )


def loop(**options):
    settings = {"scheme": fp.Poisson(0.5), "local_steps": 1, "seed": 1, "device": "cpu"}
    noise = fp.Gaussian(noise_multiplier=100.0, clip_norm=1e-6, unit="client")
    return FederatedAveraging(
        **{"model": logistic(3, 2), "perturbation": noise, **settings, **options}
    )


def trained(folder, records, rounds=2, **options):
    folder.mkdir(exist_ok=True)
    with fp.Ledger.create(folder / "run.ledger", **CLIENT) as ledger:
        done = train(
            loop(**options), records, rounds=rounds, ledger=ledger, checkpoint=folder / "run.pt"
        )
    return done


def strings(content):
    """Return every text in a checkpoint."""
    if isinstance(content, str):
        return [content]
    parts = content.values() if isinstance(content, dict) else content
    return [
        text for part in parts if isinstance(part, dict | tuple | str) for text in strings(part)
    ]


def test_what_was_sent_is_in_the_notes_and_not_in_the_checkpoint(tmp_path):
    sums = []
    for seed in range(6):
        folder = tmp_path / str(seed)
        sums.append(trained(folder, data(), rounds=3, seed=seed).upload_bytes)
        content = torch.load(folder / "run.pt", weights_only=True)
        assert set(content) == {
            *("format", "kind", "ledger", "data", "description"),
            *("round", "parameters", "learning_rate"),
        }
        written = (folder / "run.ledger.private").read_text().splitlines()
        kept = [json.loads(line) for line in written if line]
        assert kept[-1] == {"round": 3, "sent": sums[-1]}
    sizes = {(tmp_path / str(seed) / "run.pt").stat().st_size for seed in range(6)}
    assert len(set(sums)) > 1 and len(sizes) == 1


def test_a_run_whose_notes_are_lost_says_so(tmp_path):
    trained(tmp_path, data())
    notes = tmp_path / "run.ledger.private"
    kept = notes.read_bytes()

    def go_on():
        with fp.Ledger.open(tmp_path / "run.ledger", resume=True) as ledger:
            return train(loop(), data(), rounds=3, ledger=ledger, checkpoint=tmp_path / "run.pt")

    notes.unlink()
    with pytest.raises(ParameterError, match=r"private notes must exist, since its key shows"):
        go_on()
    notes.write_bytes(b"{}")
    with pytest.raises(ParameterError, match=r"private notes must have format .*run\.ledger"):
        go_on()
    notes.write_bytes(kept.splitlines()[0] + b'\n{"round": 2, "sent')
    assert go_on().upload_bytes is None
    notes.write_bytes(re.sub(rb"[0-9a-f]{64}", b"0" * 64, kept))
    with pytest.raises(ParameterError, match="be resumed with its own training data"):
        go_on()


def test_a_checkpoint_of_the_format_that_told_of_the_data_is_refused(tmp_path):
    old = {"format": "fedprivacy checkpoint 4", "round": 1, "upload_bytes": 576, "data": "0" * 32}
    torch.save(old, tmp_path / "run.pt")
    with pytest.raises(ParameterError, match=r"against its hash of the data, so delete"):
        train(loop(), data(), rounds=2, checkpoint=tmp_path / "run.pt")


def test_a_bare_pickle_is_refused_without_torch_s_warnings(tmp_path):
    import pickle

    for name, content in (("one.pt", {"a": 1}), ("two.pt", data())):
        (tmp_path / name).write_bytes(pickle.dumps(content))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with pytest.raises(ParameterError, match=r"readable fedprivacy|have format"):
                Checkpoint.read(tmp_path / name)
        assert not told


def test_a_checkpoint_that_is_packed_is_refused_before_it_is_read(tmp_path):
    """1 MB that unpacks to 1 GB: torch reads packed files, and writes none."""
    state = train(loop(), data(), rounds=1, checkpoint=tmp_path / "whole.pt").state
    with zipfile.ZipFile(tmp_path / "whole.pt") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(tmp_path / "run.pt", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    assert Checkpoint.read(tmp_path / "whole.pt").state(state).round == 1
    with pytest.raises(ParameterError, match="readable fedprivacy checkpoint"):
        Checkpoint.read(tmp_path / "run.pt")


def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch):
    trained(tmp_path, data(), rounds=1)
    before = (tmp_path / "run.pt").read_bytes()

    class Full:
        def __getattr__(self, name):
            return getattr(os, name)

        def fsync(self, handle):
            # The ledger still has room; the checkpoint is the file that does not fit.
            if os.fstat(handle).st_ino == (tmp_path / "run.ledger").stat().st_ino:
                return
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(outputs, "os", Full())
    with (
        fp.Ledger.open(tmp_path / "run.ledger", resume=True) as ledger,
        pytest.raises(OSError, match=r"No space left on device.*run\.pt"),
    ):
        train(loop(), data(), rounds=2, ledger=ledger, checkpoint=tmp_path / "run.pt")
    assert (tmp_path / "run.pt").read_bytes() == before
    assert not (tmp_path / "run.pt.tmp").exists()


def test_a_saved_tensor_brings_no_memory_of_others_along(tmp_path):
    """torch saves the whole storage of a view."""
    secret = torch.full((1000,), 7.25)
    state = replace(loop().init(), parameters=secret[:8])
    save(tmp_path / "run.pt", state)
    assert (tmp_path / "run.pt").read_bytes().count(torch.tensor([7.25]).numpy().tobytes()) == 8
    assert load(tmp_path / "run.pt", loop().init()).parameters.tolist() == [7.25] * 8


# Printed values, and their table


def command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    printed = capsys.readouterr()
    assert stop.value.code == 0, printed.err
    return printed


DECLARED = ["--adjacency", "add_remove", "--delta", "1e-3", "--set", "sampling_probability=0.25"]
DECLARED += ["--set", "expected_cohort=100", "--method", "dp-fedavg", "--rounds", "2"]


def test_add_remove_is_run_with_declared_numbers_and_no_file_names_the_number(
    tmp_path, monkeypatch, capsys
):
    """Run with 397 clients, a number that no text contains; 400 follow from the declaration."""
    monkeypatch.chdir(tmp_path)
    words = ["train", *DECLARED, "--clients", "397", "--checkpoint", "run.pt"]
    printed = command(capsys, *words, "--output", "model.pt", "--json")
    found = json.loads(printed.out)
    assert found["audit"]["verdict"] == "HOLDS"
    assert found["public"]["denominator"] == 100 and "clients" not in found["settings"]
    del found["not_covered"], found["scores"], found["audit"]["bounds"]
    texts = [json.dumps(found), "\n".join(strings(torch.load("run.pt", weights_only=True)))]
    with fp.Ledger.open("dp-fedavg.ledger") as ledger:
        assert {one.done.denominator for one in ledger.rounds} == {100.0}
        texts += [ledger.description, repr(ledger.plan), repr(ledger.rounds[0].mechanism)]
    for text in (*texts, printed.err):
        assert not re.search(r"\b397\b", text), text


def test_what_is_no_place_is_refused_before_anything_is_spent(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    np.savez(tmp_path / "mine.npz", features=np.zeros((2, 2)))
    words = ["train", f"--ledger={tmp_path / 'run.ledger'}", f"--data={tmp_path / 'mine.npz'}"]
    for name, place in (("output", "mine.npz"), ("output", "pipe"), ("checkpoint", "pipe")):
        more = ["--data=digits"] if place == "pipe" else []
        with pytest.raises(SystemExit) as stop:
            main([*words, *more, "--rounds=1", "--level=9", f"--{name}={tmp_path / place}"])
        assert stop.value.code == 2 and f"{name} must " in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["mine.npz", "pipe"]


def covered():
    return [name for row in TABLE for name in row.names]


@pytest.mark.parametrize("method", ["dp-fedavg", "dp-ftrl", "fa-ld", "fa-hmc", "fed-plt"])
def test_everything_that_a_run_writes_has_its_row(tmp_path, monkeypatch, capsys, method):
    monkeypatch.chdir(tmp_path)
    words = ["train", "--method", method, "--rounds", "2", "--ledger", "run.ledger"]
    printed = command(capsys, *words, "--checkpoint", "run.pt", "--output", "model.pt", "--json")
    found = json.loads(printed.out)
    there = [f"json.{name}" for name in found]
    there += [f"not_covered.{name}" for name in found["not_covered"]]
    there += [f"audit.{name}" for name in found["audit"]]
    there += [f"checkpoint.{name}" for name in torch.load("run.pt", weights_only=True)]
    model = torch.load("model.pt", weights_only=True)
    averages = method in ("dp-fedavg", "dp-ftrl")
    there += ["output.parameters"] if averages else [f"output.{n}" for n in model]
    for line in (tmp_path / "run.ledger").read_text().splitlines():
        parts = json.loads(line)
        kind = parts.pop("kind")
        there += [f"{kind}.{name}" for name in parts if name != "check"]
        if parts.get("mechanism", {}).get("type") == "CorrelatedRow":
            there += [
                f"row.{name}" for name in parts["mechanism"]["fields"].keys() - {"run", "row"}
            ]
    for line in filter(None, (tmp_path / "run.ledger.private").read_text().splitlines()):
        there += [f"notes.{name}" for name in json.loads(line)]
    assert not set(there) - set(covered())
    made = {"run.ledger", "run.ledger.private", "run.pt", "model.pt"}
    if method == "dp-ftrl":
        held = torch.load("run.ledger.noise", weights_only=True)
        assert not {f"noise.{name}" for name in held} - set(covered())
        made.add("run.ledger.noise")
    assert {path.name for path in tmp_path.iterdir()} == made


def written(path, removed=False, changed=False):
    """Write a small data set: 30 clients of four records, one fewer, or one record of another."""
    from sklearn.datasets import load_digits

    inputs, labels = load_digits(return_X_y=True)
    images, owners = inputs / 16.0, np.arange(120) // 4
    if changed:
        images[119] = 1.0 - images[119]
    kept = slice(0, 116 if removed else 120)
    parts = {"features": images[kept], "labels": labels[kept], "clients": owners[kept]}
    public = {"public_features": images[700:800], "public_labels": labels[700:800]}
    tested = {"test_features": images[900:1200], "test_labels": labels[900:1200]}
    np.savez(path, **parts, **public, **tested)


def leaves(value, place):
    """Return every number and text in a written file, by its place."""
    if isinstance(value, dict):
        return {k: v for n, x in value.items() for k, v in leaves(x, f"{place}.{n}").items()}
    if isinstance(value, list | tuple):
        return {k: v for x in enumerate(value) for k, v in leaves(x[1], f"{place}.{x[0]}").items()}
    if isinstance(value, torch.Tensor):
        return {place: value.numpy().tobytes()}
    return {place: value}


def replayed(folder, capsys, monkeypatch, words, **neighbour):
    """Return all that a seeded run on a data set prints and writes."""
    folder.mkdir()
    written(folder / "mine.npz", **neighbour)
    monkeypatch.chdir(folder)
    places = ["--ledger", "a.ledger", "--checkpoint", "a.pt", "--output", "model.pt", "--json"]
    printed = command(capsys, "train", "--data", "mine.npz", "--seed", "5", *words, *places)
    found = leaves(json.loads(printed.out), "json") | {"stderr": printed.err.splitlines()[0]}
    for number, line in enumerate((folder / "a.ledger").read_text().splitlines()):
        found |= leaves(json.loads(line), f"ledger.{number}")
    lines_of_notes = filter(None, (folder / "a.ledger.private").read_text().splitlines())
    for number, line in enumerate(lines_of_notes):
        found |= leaves(json.loads(line), f"notes.{number}")
    found |= {f"size of {name}": (folder / name).stat().st_size for name in ("a.pt", "model.pt")}
    found |= leaves(torch.load("a.pt", weights_only=True), "checkpoint")
    return found | leaves(torch.load("model.pt", weights_only=True), "model")


def differing(one, other):
    """Return the names of what differs, numbers of rounds and indices left out."""
    apart = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    return {re.sub(r"\.\d+", "", name) for name in apart}


CHANCE = {
    "ledger.nonce",
    "ledger.created",
    "ledger.check",
    "ledger.token",
    "json.audit.recorded.created",
}
CHANCE |= {"checkpoint.ledger", "checkpoint.data", "notes.key"}
CHANCE |= {"json.audit.source.sha256", "json.audit.audited"}
"""Differ between two runs on the same data: clock, nonce, key and what they go into."""
CLOCK = {"ledger.created", "json.audit.recorded.created", "json.audit.audited"}
"""Those that may be alike within a second."""
RELEASED = ("model", "checkpoint.parameters", "checkpoint.positions", "checkpoint.draws")
RELEASED += ("checkpoint.models", "checkpoint.auxiliary", "json.scores")
RELEASED += ("ledger.mask",)  # of top-k, from the second round on
MARKED = {"ledger.cohort", "ledger.arrived", "notes.sent", "json.not_covered.upload_bytes"}


@pytest.mark.parametrize(
    ("words", "neighbour"),
    [
        (["dp-fedavg", "--adjacency", "replace_one"], {"changed": True}),
        (["fed-smp-top-k", "--adjacency", "replace_one"], {"changed": True}),
        (["fed-smp-rand-k", "--set", "strategy=2", "--set", "cohort=20"], {"changed": True}),
        (["dp-fedavg", *DECLARED[:8]], {"removed": True}),
        (["fed-smp-top-k", *DECLARED[:8]], {"removed": True}),
        (["fa-ld"], {"changed": True}),
        (["fa-hmc"], {"changed": True}),
        (["fed-plt"], {"changed": True}),
    ],
    ids=lambda value: "-".join(value[:3]) if isinstance(value, list) else next(iter(value)),
)
def test_neighbours_differ_in_the_release_and_in_what_is_marked_alone(
    tmp_path, capsys, monkeypatch, words, neighbour
):
    level = {"fa-ld": "1e-4", "fa-hmc": "30", "fed-plt": "10"}.get(words[0], "4")
    # No calibration: how far it goes is a matter of time, and none of data.
    asked = ["--method", *words, "--rounds", "3", "--epsilon", "50", "--level", level]
    first, again = (
        replayed(tmp_path / name, capsys, monkeypatch, asked) for name in ("first", "again")
    )
    other = replayed(tmp_path / "other", capsys, monkeypatch, asked, **neighbour)
    assert CHANCE - CLOCK <= differing(first, again) <= CHANCE
    apart = differing(first, other) - CHANCE
    assert first.get("ledger.2.mask") == other.get("ledger.2.mask")
    assert first["ledger.2.round"] == 0 and first["ledger.2.kind"] == "done"
    released = {name for name in apart if name.startswith(RELEASED)}
    assert any(name.startswith("model") for name in released)
    assert apart - released <= (MARKED if "removed" in neighbour else set())
