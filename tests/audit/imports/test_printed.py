"""Settings that a program printed in a text."""

import time

import pytest

from fedprivacy.audit.imports.printed import settings_in


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "args: Namespace(sigma=1.5, name='a (b, c', device=device(type='cpu'), on=True)",
            {"sigma": 1.5, "name": "a (b, c", "device": {"type": "cpu"}, "on": True},
        ),
        ("make_private(model, noise_multiplier=1.1, betas=[0.9, 1])", {"betas": [0.9, 1]}),
        ("INFO {'noise_multiplier': 1.1, 'seed': None}", {"noise_multiplier": 1.1, "seed": None}),
        ("python a.py --epochs 5 --sigma=0.7 # --sigma 9", {"epochs": "5", "sigma": "0.7"}),
        ('CMD ["a", "--sigma", "1", "--clip", "2"]', {"sigma": "1", "clip": "2"}),
    ],
)
def test_what_a_program_printed_becomes_a_mapping(text, found):
    assert settings_in(text).items() >= found.items()


@pytest.mark.parametrize(
    "text",
    [
        "the noise multiplier is 1.1",
        "Namespace(noise_multiplier=1.1",
        "Namespace(noise_multiplier=1.1]",
        "Namespace(lr=0.1, epochs=5)",
        "f(x) = noise_multiplier(1.1)",
        "python a.py --sigma 1 --sigma 2",
    ],
)
def test_other_text_has_no_settings(text):
    assert settings_in(text) is None


def test_parts_of_one_run_are_put_together_and_runs_are_kept_apart():
    parts = settings_in("Privacy(noise_multiplier=1.1)\nTraining(max_grad_norm=1.0, steps=9)")
    assert parts == {
        "Privacy": {"noise_multiplier": 1.1},
        "Training": {"max_grad_norm": 1.0, "steps": 9},
    }
    twice = "Args(noise_multiplier=1.1)\nArgs(noise_multiplier=0.7)\nArgs(noise_multiplier=1.1)"
    assert settings_in(twice) == [{"noise_multiplier": 1.1}, {"noise_multiplier": 0.7}]


@pytest.mark.parametrize(
    "piece", ["f(a='", "f(a=(", "{a: {", "{'a': \"", "f(a, ", "--a --b \\\n", "\n", "a ="]
)
def test_a_long_text_takes_a_bounded_time(piece):
    start = time.process_time()
    settings_in(piece * (200_000 // len(piece)))
    assert time.process_time() - start < 20.0
