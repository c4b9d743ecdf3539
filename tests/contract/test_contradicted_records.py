"""One more field that contradicts a file ends no audit in HOLDS."""

import json

import pytest

import fedprivacy as fp

pytestmark = pytest.mark.usefixtures("narrowest")

BASE = """noise_multiplier: 1.1
max_grad_norm: 1.0
batch_size: 250
dataset_size: 60000
steps: 3600
target_delta: 1e-5
"""
FACTS = {"sampling": "poisson", "adjacency": "add_remove", "claim": (3.0, 1e-5)}
STATE = {"history": [[1.1, 0.0042667, 3515]], "mechanism": "rdp"}


def answer(path):
    try:
        return str(fp.audit(path, **FACTS).verdict)
    except (ValueError, fp.errors.ConversionError) as problem:
        return str(problem)


def test_the_file_alone_holds(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(BASE)
    assert answer(path) == "HOLDS"
    for harmless in ("log_steps: 9000", "warmup_steps: 9000", "poisson_sampling: true"):
        path.write_text(f"{BASE}{harmless}\n")
        assert answer(path) == "HOLDS", harmless


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("no_clip: true", "not settled: noise multiplier"),
        ("skip_clip: true", "not settled: noise multiplier"),
        ("clipping_disabled: true", "not settled: noise multiplier"),
        ("clipping: {enabled: false}", "not settled: noise multiplier"),
        ("clipping: {mode: none}", "not settled: noise multiplier"),
        ("clip: {enable: 0}", "not settled: noise multiplier"),
        ("train: {nonprivate_epochs: 5}", "not settled: noise multiplier"),
        ("privacy_engine: null", "not settled: noise multiplier"),
        ("bypass_dp: true", "turns its noise off"),
        ("total_iterations: 9000", "not settled: rounds"),
        ("optimizer_steps: 9000", "not settled: rounds"),
        ("sampling: sequential", "CANNOT BE CERTIFIED"),
        ("sampler: {type: cyclic}", "CANNOT BE CERTIFIED"),
        ("batch_sampling: truncated_poisson", "CANNOT BE CERTIFIED"),
        ("balls_in_bins: true", "CANNOT BE CERTIFIED"),
    ],
)
def test_a_field_that_contradicts_it(tmp_path, line, said):
    path = tmp_path / "config.yaml"
    path.write_text(f"{BASE}{line}\n")
    assert said in answer(path)


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ({"epoch": 14}, "HOLDS"),
        ({"poisson_sampling": False}, "another sampling than poisson"),
        ({"args": {"clipping": False}}, "turns the clip off"),
        ({"dp": {"enabled": False}}, "turns the noise off"),
    ],
)
def test_fields_beside_a_state(tmp_path, beside, said):
    path = tmp_path / "checkpoint.json"
    path.write_text(json.dumps({**beside, "privacy_accountant_state_dict": STATE}))
    assert said in answer(path)


def test_rows_of_epochs_are_no_rounds(tmp_path):
    path = tmp_path / "log.jsonl"
    row = {"noise_multiplier": 1.0, "sample_rate": 0.01}
    path.write_text("".join(json.dumps({"_step": n, "epoch": n, **row}) + "\n" for n in (0, 1)))
    assert "a column epoch" in answer(path)


def test_a_clip_that_is_not_by_layer_is_a_clip(tmp_path):
    path = tmp_path / "checkpoint.json"
    path.write_text(
        json.dumps({"per_layer_clipping": False, "privacy_accountant_state_dict": STATE})
    )
    assert answer(path) == "HOLDS"
