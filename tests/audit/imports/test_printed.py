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


CALL = "PrivacyEngine(noise_multiplier=1.1, max_grad_norm=1.0)\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sample_rate=0.01\n", {"said": {"sample_rate": "0.01"}}),
        ("# sample_rate=0.01\n", {}),
        ("def train(sample_rate=0.01):\n", {}),
        ('parser.add_argument("--steps", default=9) # steps = 9\n', {}),
        ("noise_multiplier = 1.1\n", {}),
        ("noise_multiplier = 0.3\n", {"said": {"noise_multiplier": ["1.1", "0.3"]}}),
        ("steps = 10\nsteps = 20\n", {"said": {"steps": ["10", "20"]}}),
        ("eps = 0.1\neps = 0.2\n", {}),
        ("ran 1,500 steps\n", {"counted": {"steps": "1500"}}),
        ("ran 100 steps\nran 200 steps\n", {}),
    ],
)
def test_a_text_says_facts_outside_the_settings(text, found):
    settings = {"noise_multiplier": 1.1, "max_grad_norm": 1.0}
    assert settings_in(CALL + text) == settings | found


def test_a_loop_of_a_script_lists_values_to_try():
    text = "S=(0.5 1.0)\nfor s in ${S[@]}; do\n python a.py --noise-multiplier $s --steps 9\ndone"
    assert settings_in(text) == {"steps": "9", "sweep": {"noise-multiplier": ["0.5", "1.0"]}}
    once = text.replace("(0.5 1.0)", "0.5")
    assert settings_in(once) == {"steps": "9", "noise-multiplier": "$s"}
