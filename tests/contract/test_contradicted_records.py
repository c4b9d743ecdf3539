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
        ("a.yaml", f"{BASE}# the last two epochs ran without noise\n", "understood: 'the last two"),
        ("a.yaml", BASE.replace("1.1", "1.1 # 0.4 in this run"), "0.4 in this run"),
        ("a.yaml", f"{BASE}notes: the final 2 epochs ran without noise\n", "'notes: the final 2"),
        (
            "a.yaml",
            f"{BASE}warnings: [clipping skipped for 3 layers]\n",
            "'warnings: clipping skipped",
        ),
        (
            "a.toml",
            "noise_multiplier = 1.1 # 0 later\nmax_grad_norm = 1\nsteps = 9\n",
            "noise_multiplier: 0 later",
        ),
        ("a.log", f"{LOG}INFO step 4000/4000 done\n", "understood: 'INFO step 4000/4000"),
        ("a.log", f"{LOG}INFO run 5/20\n", "understood: 'INFO run 5/20"),
        (
            "a.md",
            f"{TABLE}\nThe noise was lowered to 0.4 after step 500.\n",
            "'The noise was lowered",
        ),
        ("a.md", TABLE.replace("| 1.1 |", "| 1.1* |"), "noise multiplier"),
        ("a.txt", f"{STATEMENT}Run 5 of 8.\n", "'Run 5 of 8"),
        ("a.txt", f"{STATEMENT}Noise was not applied to one layer.\n", "'Noise was not applied"),
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


Y = "noise_multiplier: 1.1\nmax_grad_norm: 1.0\nsample_rate: 0.01\nsteps: 1000\ndelta: 1e-5\n"
NOISE_ASKED, ROUNDS_ASKED, TRIALS_ASKED, RATE_ASKED, CLAIM_ASKED = (
    f"not settled: {name}"
    for name in ("noise multiplier", "rounds", "trials", "sampling probability", "claim epsilon")
)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("clip_per: batch", NOISE_ASKED),
        ("grad_clip: batch", NOISE_ASKED),
        ("per_sample: false", NOISE_ASKED),
        ("clip_every: 10", NOISE_ASKED),
        ("gradient_scale_after_clip: 10", NOISE_ASKED),
        ("apply_dp_to: [encoder]", NOISE_ASKED),
        ("dp_ratio: 0.5", NOISE_ASKED),
        ("private: partially", NOISE_ASKED),
        ("dp: nein", NOISE_ASKED),
        ("log_raw_gradients: true", NOISE_ASKED),
        ("publish_logits: true", NOISE_ASKED),
        ("loss: info_nce", NOISE_ASKED),
        ("mixup: 0.2", NOISE_ASKED),
        ("model: {gnn: true}", NOISE_ASKED),
        ("distill_from: nonprivate teacher", NOISE_ASKED),
        ("a: {b: {pretrain_steps_without_dp: 500}}", "not settled: "),
        ("actual_steps: 1500", ROUNDS_ASKED),
        ("final_step: 1450", ROUNDS_ASKED),
        ("extra_epochs: 3", ROUNDS_ASKED),
        ("unaccounted_steps: 200", ROUNDS_ASKED),
        ("accountant_reset_every: 100", "not settled: "),
        ("steps_done: 1000/1800", ROUNDS_ASKED),
        ("history: [{step: 1000}, {step: 2200}]", ROUNDS_ASKED),
        ("status: resumed", ROUNDS_ASKED),
        ("aborted_and_restarted: 2", ROUNDS_ASKED),
        ("stop_when_val_acc: 0.9", ROUNDS_ASKED),
        ("sample_rate_unit: percent", RATE_ASKED),
        ("subsample: 0.05", RATE_ASKED),
        ("batch_size_multiplier: 4", RATE_ASKED),
        ("copies_per_example: 5", RATE_ASKED),
        ("class_balanced_sampling: true", RATE_ASKED),
        ("replacement: true", RATE_ASKED),
        ("poisson: approximate (batches are shuffled once)", RATE_ASKED),
        ("seeds: 1-5", TRIALS_ASKED),
        ("cv: 5", TRIALS_ASKED),
        ("num_models: 10", TRIALS_ASKED),
        ("bagging: {n: 4}\nensemble: 4", TRIALS_ASKED),
        ("lr: [0.1, 0.2, 0.4]", TRIALS_ASKED),
        ("runs: [{seed: 1}, {seed: 2}]", TRIALS_ASKED),
        ("population_based_training: true", TRIALS_ASKED),
        ("retrain: weekly", TRIALS_ASKED),
        ("budget_renewal: yearly", TRIALS_ASKED),
        ("kind: CronJob", TRIALS_ASKED),
        ("spec: {schedule: '0 2 * * *'}", TRIALS_ASKED),
        ("spec: {completions: 10}", TRIALS_ASKED),
        ("epsilon: 3.0\nfinal_epsilon: 7.9", CLAIM_ASKED),
        ("epsilon: 3.0\nepsilon_per_user: {a: 1, b: 8}", CLAIM_ASKED),
    ],
)
def test_a_field_with_a_stem_of_privacy_is_a_doubt(tmp_path, line, said):
    path = tmp_path / "config.yaml"
    path.write_text(f"{Y}{line}\n")
    facts = {**FACTS, "claim": None} if "epsilon" in line else FACTS
    with pytest.raises(fp.ParameterError) as asked:
        fp.audit(path, **facts)
    assert said in str(asked.value)


HARMLESS = {
    "trainer": (
        "eval_batch_size: 64\nper_device_eval_batch_size: 64\nwarmup_steps: 500\nseed: 42\n"
        "log_every_n_steps: 5000\nlogging_steps: 50\neval_steps: 100\nsave_steps: 5000\n"
        "check_val_every_n_epoch: 1\nnum_workers: 8\ndrop_last: true\npin_memory: true\nlr: 0.1\n"
        "lr_scheduler: {name: step, step_size: 3000, gamma: 0.1}\nlr_schedule: [0.1, 0.01]\n"
        "weight_decay: 0.0\nmomentum: 0.9\nmodel: resnet18\nhidden: [64, 64]\ndropout: 0.1\n"
        "early_stopping: {patience: 3}\noptimizer: {name: adam, eps: 1e-8, amsgrad: false}\n"
        "fp16: false\ndevice: cuda\nverbose: true\nsave_total_limit: 3\nmax_length: 128\n"
    ),
    "privacy": (
        "dp: true\nenable_dp: true\nprivate: yes\nmethod: dp-sgd\nprivacy_engine: opacus\n"
        "accountant: rdp\nsecure_mode: false\nclipping: flat\nclip_per_sample: true\n"
        "grad_sample_mode: hooks\nmax_physical_batch_size: 64\npoisson_sampling: true\n"
        "noise_seed: 3\ntarget_delta: 1e-5\ndp_library: opacus 1.4\n"
    ),
    "result": (
        "global_step: 1000\nlast_epoch: 9\nbest_epoch: 7\ncurrent_step: 800\nstatus: finished\n"
        "train_loss: 0.3\naccuracy: 0.91\nepsilon_spent: 2.9\nruntime_seconds: 300\n"
        "git_commit: 1a2b3c\nhostname: node7\ncreated: 2026-01-05\ncheckpoint_path: out/a.pt\n"
        "max_retries: 3\nsampler_seed: 3\nbatch_norm: false\nlayer_norm_eps: 1e-12\n"
    ),
    "data": (
        "dataset: cifar10\nshuffle_buffer: 0\nimage_size: 32\nnum_classes: 10\nval_split: 0.1\n"
        "batch_first: true\nnegative_samples: 5\nprefetch: 2\naugmentation: {repeat: 0}\n"
        "tokenizer: bert\nsample_text: hello world\ntop_k: 5\ntest_batch_size: 1000\n"
    ),
}


HARMLESS["hugging_face"] = (
    "output_dir: out\ndo_train: true\neval_strategy: steps\nlearning_rate: 5e-5\n"
    "adam_epsilon: 1e-8\n"
    "lr_scheduler_type: linear\nwarmup_ratio: 0.1\nlogging_strategy: steps\n"
    "logging_first_step: true\n"
    "save_strategy: steps\nsave_on_each_node: false\nno_cuda: false\ndata_seed: null\n"
    "dataloader_drop_last: false\nmetric_for_best_model: loss\nignore_data_skip: false\n"
    "label_smoothing_factor: 0.0\noptim: adamw_torch\ngroup_by_length: false\nreport_to: [wandb]\n"
    "resume_from_checkpoint: null\nfull_determinism: false\nray_scope: last\nddp_timeout: 1800\n"
    "auto_find_batch_size: false\ngradient_checkpointing: false\ngradient_accumulation_steps: 1\n"
)
HARMLESS["lightning"] = (
    "accelerator: gpu\nstrategy: auto\nlimit_train_batches: 1.0\nlimit_val_batches: 1.0\n"
    "fast_dev_run: false\noverfit_batches: 0.0\nval_check_interval: 1.0\nnum_sanity_val_steps: 2\n"
    "accumulate_grad_batches: 1\ngradient_clip_val: null\nreload_dataloaders_every_n_epochs: 0\n"
    "save_top_k: 1\nmonitor: val_loss\nmin_steps: 10\nprint_freq: 10\ntime_per_step: 0.3\n"
    "num_batches: 100\nsteps_per_epoch: 100\nprivacy_notes: see the paper\ntags: [dp, cifar10]\n"
    "sampler: {name: UniformWithReplacementSampler}\ndescription: DP-SGD on CIFAR-10\n"
)


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_fields_leave_it_certified(tmp_path, name):
    path = tmp_path / f"{name}.yaml"
    path.write_text(f"{Y}{HARMLESS[name]}")
    assert answer(path) == "HOLDS"


HISTORY = {"history": [[1.1, 0.01, 1000]], "mechanism": "rdp"}


@pytest.mark.parametrize(
    "beside",
    [
        {"sample_rate": 0.5},
        {"expected_batch_size": 512, "dataset_size": 10000},
        {"total_steps": 5000},
        {"global_step": 2000},
        {"noise_off_after": 800},
        {"dp_disabled_epochs": [9, 10]},
        {"non_private_layers": ["head"]},
        {"optimizer": {"max_grad_norm": None}},
        {"max_grad_norm": 1e9},
        {"sampler": "shuffle"},
        {"microbatches": 4},
        {"accountant_resets": 2},
        {"resumed_from": "run1.pt"},
        {"history_truncated": True},
        {"gradient_accumulation_steps": 4},
        {"notes": "the last layers ran without noise"},
    ],
)
def test_a_field_outside_a_state_is_a_doubt(tmp_path, beside):
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"accountant": HISTORY, **beside}))
    assert "pass only it" in answer(path) or "was stated" in answer(path)


def test_a_field_inside_a_state_is_a_doubt_and_harmless_ones_are_none(tmp_path):
    path = tmp_path / "state.json"
    path.write_text(json.dumps({**HISTORY, "dp": False}))
    assert "turns the noise off" in answer(path)
    harmless = {"global_step": 1000, "epoch": 10, "lr": 0.1, "seed": 3, "eval_batch_size": 64}
    harmless |= {"noise_multiplier": 1.1, "sample_rate": 0.01, "max_grad_norm": 1.0}
    for data in ({"accountant": HISTORY, **harmless}, {"accountant": HISTORY}, HISTORY):
        path.write_text(json.dumps(data))
        assert answer(path) == "HOLDS", data


ROUNDS = "round,noise_multiplier,sampling_probability,sampling"


@pytest.mark.parametrize(
    ("column", "cells", "said"),
    [
        ("remark", ["", "", "noise off"], "CANNOT BE CERTIFIED"),
        ("clipped", ["true", "true", "false"], "CANNOT BE CERTIFIED"),
        ("released", ["noisy", "noisy", "raw"], "CANNOT BE CERTIFIED"),
        ("status", ["ok", "ok", "resumed"], "CANNOT BE CERTIFIED"),
        ("attempts", ["1", "1", "3"], "CANNOT BE CERTIFIED"),
        ("epsilon_spent", ["0.3", "0.3", "0.1"], "CANNOT BE CERTIFIED"),
        ("remark", ["", "warm", "last"], "HOLDS"),
        ("status", ["ok", "ok", "ok"], "HOLDS"),
        ("is_best", ["false", "true", "false"], "HOLDS"),
        ("epsilon_spent", ["0.1", "0.2", "0.2"], "HOLDS"),
        ("loss", ["2.1", "1.9", "2.0"], "HOLDS"),
        ("attempts", ["1", "1", "1"], "HOLDS"),
    ],
)
def test_a_column_that_is_not_read_may_be_a_doubt(tmp_path, column, cells, said):
    rows = [f"{at},1.1,0.01,poisson,{cell}" for at, cell in enumerate(cells, start=1)]
    path = tmp_path / "rounds.csv"
    path.write_text("\n".join([f"{ROUNDS},{column}", *rows]))
    facts = {"adjacency": "add_remove", "claim": (3.0, 1e-5)}
    try:
        found = fp.audit(path, **facts)
    except fp.ParameterError as asked:
        assert column in str(asked) and said != "HOLDS"
        found = fp.audit(path, reviewed=str(asked).rpartition("--reviewed ")[2], **facts)
    assert found.verdict == said
    assert said == "HOLDS" or column in found.reasons[-1]


def test_a_comment_of_a_table_may_be_a_doubt(tmp_path):
    path = tmp_path / "rounds.csv"
    facts = {"adjacency": "add_remove", "claim": (3.0, 1e-5)}
    path.write_text(f"# noise 1.1\n{ROUNDS}\n1,1.1,0.01,poisson\n")
    assert fp.audit(path, **facts).verdict == "HOLDS"
    path.write_text(f"# first 500 rounds truncated\n{ROUNDS}\n1,1.1,0.01,poisson\n")
    with pytest.raises(fp.ParameterError, match="not understood: 'first 500 rounds truncated'"):
        fp.audit(path, **facts)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train_head_privately: false", NOISE_ASKED),
        ("accountant: ignored_for_validation", ROUNDS_ASKED),
        ("warm_start: true", ROUNDS_ASKED),
        ("init_from: run3", ROUNDS_ASKED),
        ("grad_updates: 5000", ROUNDS_ASKED),
        ("parent_run: abc", TRIALS_ASKED),
        ("sweep_id: abc", TRIALS_ASKED),
        ("candidates: 20", TRIALS_ASKED),
        ("save_per_sample_gradients: true", NOISE_ASKED),
    ],
)
def test_a_field_in_other_words_is_a_doubt(tmp_path, line, said):
    path = tmp_path / "config.yaml"
    path.write_text(f"{Y}{line}\n")
    assert said in answer(path)


def test_a_document_in_a_text_is_read_with_its_comments(tmp_path):
    path = tmp_path / "map.json"
    for text, said in (
        (Y, "HOLDS"),
        (f"{Y}# the last steps ran without noise\n", "not understood"),
    ):
        path.write_text(json.dumps({"kind": "ConfigMap", "data": {"train.yaml": text}}))
        assert said in answer(path)


def test_a_curve_is_no_history(tmp_path):
    path = tmp_path / "curve.json"
    path.write_text("[[1762160000.1, 100, 0.61], [1762160100.4, 200, 0.84]]")
    assert "history" not in answer(path)


def test_a_pasted_command_keeps_the_stated_cohort(tmp_path):
    path = tmp_path / "server.log"
    lines = ("[INIT]", "aggregate_fit: central DP noise with 0.0300 stdev added")
    path.write_text("".join(f"INFO :      {line}\n" for line in lines))
    facts = {**FACTS, "sampling": fp.FixedSize(20, population=400)}
    with pytest.raises(fp.errors.ConversionError, match="--population 400 --cohort 20"):
        fp.audit(path, **facts)
