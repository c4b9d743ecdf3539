"""Settings that a program printed in a text."""

import time

import pytest

import fedprivacy as fp
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


PRINTED = "{'noise_multiplier': 1.0, 'max_grad_norm': 1.0, 'sample_rate': 0.01, 'steps': 1000}"
FACTS = {"sampling": "poisson", "adjacency": "add_remove", "claim": (1.9, 1e-5)}


def answer(path, text):
    path.write_text(text)
    try:
        return str(fp.audit(path, **FACTS).verdict)
    except (ValueError, fp.errors.ConversionError) as problem:
        return str(problem)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("DP disabled", "dp_enabled"),
        ("DP is disabled (BatchNorm found), training without noise", "dp_enabled"),
        ("WARNING: privacy engine not attached", "dp_enabled"),
        ("overriding noise_multiplier 1.0 -> 0.4", "0.4"),
        ("final noise multiplier 0.2", "0.2"),
        ("using noise multiplier = 0.2", "0.2"),
        ("Training finished after 5000 steps", "5000"),
        ("Done at step 5000", "5000"),
        ("global_step=5000", "5000"),
        ("resumed from step 4000", "resumption"),
        ("UserWarning: Poisson sampling is off", "sampling is off"),
        ("Using shuffled batches", "shuffled batches"),
        ("{'noise_multiplier': 0.2}", "0.2"),
    ],
)
def test_a_log_that_contradicts_its_settings_does_not_hold(line, said, tmp_path):
    found = answer(tmp_path / "run.log", f"args: {PRINTED}\n{line}\n")
    assert found != "HOLDS"
    assert said in found


def test_a_log_that_agrees_with_its_settings_holds(tmp_path):
    for line in (
        "DP is enabled",
        "Using noise multiplier = 1.0",
        "Training finished after 1000 steps",
        "global_step=900, global_step=1000",
        "Poisson sampling is on",
        "loss 2.31 -> 0.42, saved a checkpoint at step 500",
    ):
        found = answer(tmp_path / "run.log", f"args: {PRINTED}\n{line}\n")
        assert found == "HOLDS", line


def test_a_command_inside_a_file_is_a_second_statement(tmp_path):
    settings = "noise_multiplier: 1.0\nmax_grad_norm: 1.0\nsample_rate: 0.01\nsteps: 1000\n"
    path = tmp_path / "config.yaml"
    for name in ("command: python t.py", "cli_args: '"):
        end = "'" if name.endswith("'") else ""
        for noise, holds in (("0.2", False), ("1.0", True)):
            found = answer(path, f"{settings}{name} --noise-multiplier {noise}{end}\n")
            assert (found == "HOLDS") == holds, (name, noise)
    assert answer(path, f"{settings}command: python t.py --config a.yaml --lr 0.2\n") == "HOLDS"
    # A later command does not hide an earlier one.
    commands = "".join(
        f"{k}: python {k}.py --noise-multiplier {z}\n" for k, z in (("a", 0.2), ("b", 1.0))
    )
    assert answer(path, settings + commands) != "HOLDS"


def test_a_rate_that_is_offered_is_rounded_up(tmp_path):
    found = answer(
        tmp_path / "config.yaml",
        "noise_multiplier: 1.0\nmax_grad_norm: 1.0\nbatch_size: 203\ndataset_size: 59956\n"
        "steps: 1000\n",
    )
    assert "--sampling-probability 0.00338582" in found


def test_the_facts_for_a_catalogue_do_not_hide_a_model_card(tmp_path):
    path = tmp_path / "card.md"
    path.write_text(
        "---\nlicense: mit\ntags: [text]\n---\n# A model\n\nTrained with DP-SGD under epsilon = 8, "
        "a noise multiplier of 0.53 and 1,300 steps.\n"
    )
    with pytest.raises(fp.errors.ConversionError, match=r"noise_multiplier = 0\.53"):
        fp.audit(path, **FACTS)
