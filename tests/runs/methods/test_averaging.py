"""Tests of ``fedprivacy.runs.methods.averaging``."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

from fedprivacy.runs.methods.averaging import preset_for
from fedprivacy.runs.sources import load_data


def test_the_usual_settings_are_those_that_are_told():
    digits = load_data("digits")
    model, chosen = preset_for(digits, None, {})
    assert sum(p.numel() for p in model().parameters()) == 650
    told = {name: chosen[name] for name in ("local_epochs", "cohort", "rounds", "clip_norm")}
    assert told == {"local_epochs": 1, "cohort": 100, "rounds": 40, "clip_norm": 3.0}
    fashion = replace(
        digits,
        name="fashion-mnist",
        features=torch.zeros(len(digits.labels), 784),
        test_features=torch.zeros(len(digits.test_labels), 784),
        public_features=None,
        public_labels=None,
    )
    model, chosen = preset_for(fashion, None, {})
    assert sum(p.numel() for p in model().parameters()) == 25_450
    told = {name: chosen[name] for name in ("local_steps", "local_epochs", "cohort", "rounds")}
    assert told == {"local_steps": 4, "local_epochs": None, "cohort": 200, "rounds": 60}
    _, own = preset_for(replace(digits, name="mine"), None, {})
    assert (own["rounds"], own["cohort"], own["local_epochs"], own["clip_norm"]) == (
        50,
        100,
        1,
        1.0,
    )


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        ({"sampling_probability": 0.1}, ["cohort"]),
        ({"strategy": "everyone"}, ["cohort"]),
        ({"local_steps": 2}, []),
        ({"local_epochs": 3}, []),
        ({"rounds": 7, "clip_norm": 9.0}, []),
    ],
)
def test_what_is_given_stands_and_what_says_it_another_way_goes(given, gone):
    _, chosen = preset_for(load_data("digits"), None, given)
    assert chosen | given == chosen and not set(gone) & set(chosen)
    assert "local_steps" not in given or chosen["local_epochs"] is None
    assert "local_epochs" not in given or chosen["local_steps"] is None
