"""A user-defined posterior on the command line."""

import json
import re

import pytest
import torch

import fedprivacy as fp
from fedprivacy.cli import main
from fedprivacy.errors import ParameterError
from fedprivacy.runs.jobs import job

pytestmark = pytest.mark.usefixtures("narrowest")

FILE = """
import numpy as np
from fedprivacy.training import Posterior

draw = np.random.default_rng(0)
clients = [(x, 2.0 * x + draw.normal(size=500)) for x in draw.normal(size=(3, 500))]


def log_likelihood(slope, inputs, responses):
    return -0.5 * (responses - slope * inputs) ** 2


target = Posterior.of(log_likelihood, clients=clients, dimension=1, clip_norm=3.0)


def build():
    return target


def open_ended():
    return Posterior.of(log_likelihood, clients=clients, dimension=1)


other = "nothing"
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path


def run(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main(list(words))
    return left.value.code, capsys.readouterr()


@pytest.mark.parametrize("name", ["target", "build"])
def test_it_is_sampled_within_a_budget(name, place, capsys):
    words = ["train", "--method", "fa-ld", "--posterior", f"mine.py:{name}", "--epsilon", "6"]
    words += ["--delta", "1e-4", "--rounds", "40", "--output", "draws.pt", "--json"]
    code, told = run(capsys, *words)
    assert code in (0, None), told.err
    found = json.loads(told.out)
    assert found["audit"]["verdict"] == "HOLDS"
    assert fp.audit("fa-ld.ledger").verdict == "HOLDS"
    assert found["settings"]["sensitivity"] == 6.0 and "clip_norm" not in found["settings"]
    assert set(found["scores"]) == {"r_hat", "effective_draws"} and "classes" not in found["public"]
    draws = torch.load("draws.pt", weights_only=True)["draws"]
    assert draws.shape == (1, 20, 1) and float(draws.mean()) == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--posterior", "mine.py:other"], "be a Posterior, got 'str'; training.Posterior.of"),
        (["--posterior", "mine.py:absent"], "be a Posterior, got 'NoneType'"),
        (["--posterior", "mine.py:open_ended"], "have a sensitivity"),
        (["--posterior", "mine.py:target", "--clip-norm", "1"], "since the posterior has 3.0"),
        (
            ["--posterior", "mine.py:target", "--clients", "5"],
            "a posterior contains the records of its clients",
        ),
        (["--posterior", "nowhere.py:target"], "name an existing file"),
    ],
)
def test_what_is_none_is_refused(words, message, place, capsys):
    code, told = run(capsys, "train", "--method", "fa-ld", *words)
    plain = " ".join(re.sub(r"[^\x20-\x7e]", " ", told.err).split())
    assert code == 2 and message in plain, plain


def test_a_posterior_is_no_module(place):
    with pytest.raises(ParameterError, match=r"must name a function in .* that builds the module"):
        job("fed-plt", model="mine.py:target")
