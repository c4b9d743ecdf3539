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


def test_a_clip_in_words_that_is_off_survives_a_restated_noise(tmp_path):
    path = tmp_path / "config.yaml"
    for line in ("clipping: none", "result: {privacy_engine_attached: false}", "flags: [no_dp]"):
        path.write_text(f"{BASE}{line}\n")
        found = fp.audit(path, noise_multiplier=1.1, **FACTS)
        assert found.verdict == "CANNOT BE CERTIFIED", line
        assert any(line.partition(":")[0] in reason for reason in found.reasons), line
    path.write_text(f"{BASE}local_privacy_mechanism: none\n")
    assert fp.audit(path, noise_multiplier=1.1, **FACTS).verdict == "HOLDS"


SIZES = """noise_multiplier: 1.0
max_grad_norm: 1.0
batch_size: 64
n_train: 6400
steps: 1000
target_delta: 1e-5
"""


@pytest.mark.parametrize(
    ("name", "many"),
    [
        ("accumulate_grad_batches", 8),
        ("grad_accum_steps", 8),
        ("iters_to_accumulate", 8),
        ("devices", 8),
        ("nproc_per_node", 8),
        ("world_size", 8),
        ("gpus", "'0,1'"),
        ("update_freq", [8]),
        ("effective_batch_size", 512),
        ("virtual_batch_size", 512),
    ],
)
def test_no_rate_is_offered_while_a_field_may_enlarge_the_batch(tmp_path, name, many):
    path = tmp_path / "config.yaml"
    facts = {"adjacency": "add_remove", "claim": (1.9, 1e-5)}
    path.write_text(f"{SIZES}{name}: {many}\n")
    with pytest.raises(fp.ParameterError) as asked:
        fp.audit(path, **facts)
    assert name in str(asked.value) and "--sampling-probability 0.01" not in str(asked.value)
    found = fp.audit(path, sampling=fp.Poisson(0.01), **facts)
    assert found.verdict == "CANNOT BE CERTIFIED" and name in found.reasons[-1]
    path.write_text(f"{SIZES}{name}: {64 if many == 512 else 1}\n")
    assert fp.audit(path, sampling=fp.Poisson(0.01), **facts).verdict == "HOLDS"


@pytest.mark.parametrize(
    ("line", "said", "harmless"),
    [
        ("noise_scheduler: {type: step, gamma: 0.9}", "noise", "noise_scheduler: {type: constant}"),
        ("noise: {decay: 0.99}", "noise", "noise: {seed: 3}"),
        ("adaptive_clipping: {target_quantile: 0.5}", "noise", "adaptive_clipping: {enabled: no}"),
        ("clip_scheduler: exponential", "noise", "clip_decay: 1.0"),
        ("clipping: {adaptive: true}", "noise", "clipping: {adaptive: false}"),
        ("hooks: [remove_noise]", "noise", "hooks: [log_noise]"),
        ("dp: {off: true}", "turns its noise off", "dp: {off: false}"),
        ("grad_clip_scheduler: {gamma: 1.1}", "noise", "lr_scheduler: {gamma: 1.1}"),
        ("use_poisson_sampling: false", "CANNOT BE CERTIFIED", "poisson_loss: false"),
        ("data_order: sequential", "CANNOT BE CERTIFIED", "model: {order: sequential}"),
        ("sampling: b-min-sep", "CANNOT BE CERTIFIED", "sampling: poisson"),
        ("exclude_from_clipping: [bias]", "noise", "exclude_from_clipping: []"),
        ("public_layers: [embedding]", "noise", "public_layers: []"),
        ("method: DP-MF", "rounds share", "method: DP-SGD"),
        ("algorithm: DP-FTRLM", "rounds share", "model: MF"),
        ("algorithm: PATE", "not Gaussian", "algorithm: DP-SGD"),
        ("mode: non-private", "noise", "mode: private"),
        ("tags: [non-private]", "noise", "tags: [private]"),
        ("dp: {on: false}", "turns its noise off", "dp: {on: true}"),
        ("callbacks: {DisableNoise: {epochs: 5}}", "noise", "callbacks: {Stop: {patience: 3}}"),
    ],
)
def test_a_switch_in_other_words(tmp_path, line, said, harmless):
    path = tmp_path / "config.yaml"
    path.write_text(f"{BASE}{line}\n")
    assert ("not settled: noise multiplier" if said == "noise" else said) in answer(path)
    path.write_text(f"{BASE}{harmless}\n")
    assert answer(path) == "HOLDS"


def test_a_list_of_parts_is_one_run(tmp_path):
    path = tmp_path / "config.json"
    row = {"noise_multiplier": 1.1, "sample_rate": 0.004, "steps": 3600}
    for name in ("schedule", "progressive", "training", "epochs_log", "steps_list", "anything"):
        path.write_text(json.dumps({"max_grad_norm": 1.0, name: [row, row]}))
        assert "not settled: rounds" in answer(path), name
    path.write_text(json.dumps({"max_grad_norm": 1.0, "runs": [row, row]}))
    assert {one.audit.verdict for one in fp.audit.each(path, **FACTS)} == {"HOLDS"}


LOG = "INFO Namespace(noise_multiplier=1.1, max_grad_norm=1.0, sample_rate=0.01, steps=1000)\n"
TABLE = "| noise multiplier | sample rate | steps |\n|---|---|---|\n| 1.1 | 0.01 | 1000 |\n"
STATEMENT = (
    "DP-SGD performed over 40000 examples with 200 examples per iteration, noise\n"
    "multiplier 0.9 for 5 epochs without microbatching, and no bound on number of\n"
    "examples per user.\n\n"
    "Example-level DP with add-or-remove-one adjacency at delta = 1e-05 computed with\n"
    "RDP accounting:\n    Epsilon assuming Poisson sampling (*):      1.9\n"
)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", f"{BASE}# the last two epochs ran without noise\n", "noise multiplier"),
        ("a.yaml", BASE.replace("1.1", "1.1 # 0.4 in this run"), "noise multiplier"),
        ("a.yaml", f"{BASE}notes: the final 2 epochs ran without noise\n", "noise multiplier"),
        ("a.yaml", f"{BASE}warnings: [clipping skipped for 3 layers]\n", "noise multiplier"),
        ("a.toml", "noise_multiplier = 1.1 # 0 later\nmax_grad_norm = 1\nsteps = 9\n", "noise m"),
        ("a.log", f"{LOG}INFO step 4000/4000 done\n", "not settled: rounds"),
        ("a.log", f"{LOG}INFO run 5/20\n", "not settled: trials"),
        ("a.md", f"{TABLE}\nThe noise was lowered to 0.4 after step 500.\n", "noise multiplier"),
        ("a.md", TABLE.replace("| 1.1 |", "| 1.1* |"), "noise multiplier"),
        ("a.txt", f"{STATEMENT}Run 5 of 8.\n", "not settled: trials"),
        ("a.txt", f"{STATEMENT}Noise was not applied to one layer.\n", "noise multiplier"),
    ],
)
def test_a_sentence_that_contradicts_it(tmp_path, name, text, said):
    path = tmp_path / name
    path.write_text(text)
    assert said in answer(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", f"# DP-SGD with noise multiplier 1.1\n{BASE}lr: 0.1 # without warmup\n"),
        ("a.yaml", f"{BASE}description: a small private model, clipped to 1.0\n"),
        ("a.log", f"Secure RNG turned off.\n{LOG}epoch 3: loss 0.4, epsilon = 1.2\n"),
        ("a.md", f"# Settings\n\nOur private run:\n\n{TABLE.replace('1.1 |', '**1.1** |')}"),
        ("a.txt", STATEMENT),
    ],
)
def test_a_harmless_sentence_leaves_it_certified(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    assert answer(path) == "HOLDS"
