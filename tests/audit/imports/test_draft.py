"""Questions about missing facts."""

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.audit.imports.draft import MAX_MESSAGE
from fedprivacy.audit.imports.fields import Fields
from tests.contract.test_corpus import options_in


def test_a_long_message_keeps_its_questions_and_shortens_what_it_found():
    place = "configuration_of_a_program_with_long_names"
    facts = {"noise_multiplier": 1.4, "target_delta": 7e-5, "sampling_method": "by date"}
    facts |= {"batch_size": 100, "dataset_size": 5000, "neighboring_relation": "changed record"}
    with pytest.raises(fp.ParameterError) as caught:
        fp.audit({"privacy": {place: {place: facts}}})
    message = str(caught.value)
    assert len(message) <= MAX_MESSAGE and " ...; not found: " in message
    assert options_in(message) >= {"rounds", "sampling", "adjacency", "claim_epsilon"}


def test_a_stated_claim_answers_the_question_about_it():
    run = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "sample_rate": 0.01, "steps": 100}
    facts = {"sampling": "poisson", "adjacency": "add_remove"}
    grouped = {**run, "epsilon": 9.0, "delta": 1e-5, "group_size": 4}
    with pytest.raises(fp.ParameterError, match="an epsilon of a group"):
        fp.audit(grouped, **facts)
    facts["claim"] = (5.0, 1e-5)
    with pytest.raises(fp.ParameterError, match="not understood: group_size = 4") as asked:
        fp.audit(grouped, **facts)
    code = str(asked.value).rpartition("--reviewed ")[2]
    assert fp.audit(grouped, reviewed=code, **facts).verdict == "HOLDS"


def test_an_infinite_epsilon_is_no_evidence_of_noise():
    run = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "sample_rate": 0.01, "steps": 100}
    facts = {"sampling": "poisson", "adjacency": "add_remove", "claim": (5.0, 1e-5)}
    infinite = {**run, "target_epsilon": "inf"}
    with pytest.raises(fp.ParameterError, match="may turn the noise off"):
        fp.audit(infinite, **facts)
    assert fp.audit(infinite, noise_multiplier=1.0, **facts).verdict == "CANNOT BE CERTIFIED"


SETTINGS = {
    "noise_multiplier": "1.1",
    "max_grad_norm": "1.0",
    "sample_rate": "0.01",
    "steps": "1000",
    "delta": "1e-5",
    "epsilon": "3.0",
}


def audited(tmp_path, stated, **fields):
    """Audit settings as YAML with other fields, and the user's statements."""
    path = tmp_path / "run.yaml"
    lines = [f"{name}: {value}" for name, value in (SETTINGS | fields).items()]
    path.write_text("\n".join(lines) + "\n")
    return fp.audit(path, adjacency="add_remove", **({"sampling": "poisson"} | stated))


@pytest.mark.usefixtures("narrowest")
@pytest.mark.parametrize(
    ("fields", "better", "worse", "said"),
    [
        ({"global_step": "1450"}, {"rounds": 1400}, {"rounds": 1450}, "rounds of 1400"),
        ({"epochs": "90"}, {"rounds": 1000}, {"rounds": 9000}, "rounds of 1000"),
        ({"steps": "[300, 900]"}, {"rounds": 500}, {"rounds": 900}, "rounds of 500"),
        (
            {"noise_decay": "0.9"},
            {"noise_multiplier": 5.0},
            {"noise_multiplier": 1.0},
            "noise multiplier of 5",
        ),
        (
            {"noise_multiplier": '"1.1 (0.9 after epoch 3)"'},
            {"noise_multiplier": 1.1},
            {"noise_multiplier": 0.9},
            "noise multiplier of 1.1",
        ),
        (
            {"noise_multiplier": "{start: 1.1, end: 0.9}"},
            {"noise_multiplier": 1.1},
            {"noise_multiplier": 0.9},
            "noise multiplier of 1.1",
        ),
        (
            {"q": "0.012"},
            {"sampling": fp.Poisson(1e-4)},
            {"sampling": fp.Poisson(0.012)},
            "sampling probability of 0.0001",
        ),
        ({"hyperparameter_trials": "4"}, {"trials": 1}, {"trials": 4}, "trials of 1"),
    ],
)
def test_an_answer_better_than_the_numbers_of_the_file_contradicts_it(
    tmp_path, fields, better, worse, said
):
    claim = (6.0, 1e-5)
    found = audited(tmp_path, better | {"claim": claim}, **fields)
    assert found.verdict == "CANNOT BE CERTIFIED" and said in str(found)
    assert audited(tmp_path, worse | {"claim": claim}, **fields).verdict == "HOLDS"


@pytest.mark.usefixtures("narrowest")
@pytest.mark.parametrize("field", ["dry_run: true", "max_steps: 100000\nepochs: 9"])
def test_fewer_steps_than_a_cap_contradict_nothing(tmp_path, field):
    path = tmp_path / "run.yaml"
    without = {k: v for k, v in SETTINGS.items() if k != "steps" or "max" not in field}
    path.write_text("\n".join([*(f"{k}: {v}" for k, v in without.items()), field, ""]))
    found = fp.audit(path, adjacency="add_remove", sampling="poisson", rounds=900)
    assert found.verdict == "HOLDS"


def test_a_count_with_a_point_may_be_thousands(tmp_path):
    for text in ("1.000", '"1.000"', "12.500"):
        with pytest.raises(fp.ParameterError, match=r"rounds \(not settled by steps"):
            audited(tmp_path, {}, steps=text)
    assert audited(tmp_path, {}, noise_multiplier="1.100").verdict == "HOLDS"


def test_a_number_below_zero_is_no_setting():
    fields = Fields({"noise_std": -2.2, "clip": -2, "epochs": 3})
    assert fields.number("noise_std") is None and fields.number("clip") is None
    assert fields.number("epochs") == 3


@pytest.mark.usefixtures("narrowest")
@pytest.mark.parametrize(
    "other",
    [
        {"lr": np.float64(0.5)},
        {"class_weights": np.ones(3)},
        {"steps": np.int64(100)},
        {"seed": 10**5000},
        {"remarks of the file": [3]},
        {"hub_private_repo": False},
        {"label_noise": False},
    ],
)
def test_values_of_a_running_program_are_read(other):
    run = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "sample_rate": 0.01, "steps": 100}
    facts = {"sampling": "poisson", "adjacency": "add_remove", "claim": (5.0, 1e-5)}
    assert fp.audit(run | other, **facts).verdict == "HOLDS"


@pytest.mark.usefixtures("narrowest")
def test_a_reference_in_a_comment_is_no_noise(tmp_path):
    lines = [f"{name}: {value}" for name, value in SETTINGS.items()]
    path = tmp_path / "run.yaml"
    facts = {"sampling": "poisson", "adjacency": "add_remove"}
    for comment in ("see section 4.2", "see https://arxiv.org/abs/1607.00133", "since 2023-05-14"):
        path.write_text("\n".join([f"{lines[0]}  # {comment}", *lines[1:], ""]))
        assert fp.audit(path, **facts).verdict == "HOLDS", comment
    path.write_text("\n".join([f"{lines[0]}  # see table 3, but 0.4 here", *lines[1:], ""]))
    with pytest.raises(fp.ParameterError, match=r"not understood: .*but 0\.4 here"):
        fp.audit(path, **facts)
