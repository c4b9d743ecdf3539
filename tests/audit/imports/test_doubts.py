"""Fields that put a fact of a configuration in doubt: none of them may leave a claim standing."""

import json

import pytest

import fedprivacy as fp
from fedprivacy.errors import ConversionError, FedPrivacyError
from tests.contract.test_corpus import options_in

pytestmark = pytest.mark.usefixtures("narrowest")

RUN = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "sample_rate": 0.01, "steps": 100}
GENERIC = {"noise_multiplier": 1.0, "clip": 1.0, "sample_rate": 0.01, "steps": 100}
BATCH = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "batch_size": 64, "dataset_size": 64000}
BATCH |= {"steps": 100}
STATE = {"history": [[1.0, 0.01, 100]], "mechanism": "rdp"}
FACTS = {"sampling": "poisson", "adjacency": "add_remove", "claim": (5.0, 1e-5)}

ASKED = {
    "noise_multiplier": [
        {**RUN, "noise_type": "none"},
        {**RUN, "dp": {"type": "none"}},
        {**RUN, "dp": {"mode": "disabled"}},
        {**RUN, "privacy_mode": "off"},
        {**RUN, "privacy": "none"},
        {**RUN, "dp_mechanism": "disabled"},
        {**RUN, "algorithm": "non-private"},
        {**RUN, "dp_training": False},
        {**RUN, "dp_start_step": 50},
        {**RUN, "dp_every": 2},
        {**RUN, "attach_privacy_engine": False},
        {**RUN, "clip": "none"},
        {**RUN, "clipping_mode": "none"},
        {**RUN, "adaptive_clipping": True},
        {**RUN, "norm_type": "inf"},
        {**RUN, "per_layer": True},
        {**RUN, "sensitivity": 2.0},
        {**RUN, "privacy_unit": "user"},
        {**RUN, "user_level": True},
        {**GENERIC, "microbatches": 1},
        {**RUN, "dp_unit": "user"},
        {**RUN, "dp": {"level": "patient"}},
        {**GENERIC, "per_layer_clipping": True},
        {**GENERIC, "clip_norm_type": 1},
        {**RUN, "max_grad_norm": None, "clip_value": 1.0, "noise_multiplier": 1.0},
        {**RUN, "other": {"noise_multiplier": 0.1}},
        {**RUN, "noiseMultiplier": 0.1},
        {**RUN, "dp_layers": ["head"]},
        {**RUN, "private_params_only": "head"},
        {**GENERIC, "dp": {"end_multiplier": 0.2}},
        {**RUN, "dp_schedule": "linear"},
        {**{key: value for key, value in GENERIC.items() if key != "clip"}, "grad_clip": 1.0},
        {**RUN, "oversampling": "minority"},
        {**RUN, "max_sequences_per_user": 8},
        {**RUN, "group_by": "patient_id"},
        {**RUN, "norm_layer": "BatchNorm2d"},
        {**RUN, "clip_norm": 8.0},
        {**RUN, "max_grad_norm": 1e6},
        {"embedding": {"noise_multiplier": 1.0}, "clip_norm": 1.0, "sample_rate": 0.01, "steps": 9},
        {**RUN, "training_mode": "vanilla"},
        {**RUN, "actual_max_grad_norm": 1e9},
        {**RUN, "noise_schedule": "linear"},
        {**RUN, "max_contributions": 12},
        {**RUN, "dp_optimizer": None},
        {**RUN, "privacy": None},
        {**RUN, "adaptive": {"clip": True}},
        {**RUN, "target_unclipped_quantile": 0.5},
        {**RUN, "comment": "trained without noise to find a defect"},
    ],
    "rounds": [
        {**GENERIC, "epochs": 50},
        {**RUN, "n_epoch": 50},
        {**RUN, "start_step": 900},
        {**RUN, "resume_from": "checkpoint_900"},
        {**RUN, "epoch": 3},
        {"encoder": RUN, "decoder": RUN, "sample_rate": 0.01, "steps": 100},
        {"optimizers": [RUN, RUN], "sample_rate": 0.01, "steps": 100},
        {**RUN, "fast_dev_run": 5},
        {**RUN, "actual_steps": 250},
        {**RUN, "final_step": 250},
        {**RUN, "epochs_completed": 40},
        {**RUN, "finetune_steps": 50},
        {**RUN, "steps_per_epoch": 50, "epochs": 10},
        {**RUN, "total_batches": 500},
        {**RUN, "updates": 500},
        {**RUN, "steps_per_round": 4},
        {**{key: RUN[key] for key in RUN if key != "steps"}, "max_steps": 900, "epochs": 2},
    ],
    "claim_epsilon": [{**RUN, "epsilon": 9, "delta": 1e-5, "privacy": {"group_size": 3}}],
    "sampling_probability": [
        {**RUN, "batch_size": 512, "dataset_size": 10_000},
        {**RUN, "expected_batch_size": 512, "num_train_examples": 10_000},
        {**BATCH, "logical_batch_size": 512},
        {**BATCH, "lot_size": 640},
        {**BATCH, "n_accum_steps": 8},
        {**BATCH, "virtual_step_every": 8},
        {**BATCH, "iter_size": 8},
        {**BATCH, "nproc_per_node": 8},
        {**BATCH, "devices": 8},
        {**BATCH, "q": "10%"},
        {**BATCH, "effective_batch_size": 640},
        {**BATCH, "batches_per_step": 4},
        {**RUN, "actual_sample_rate": 0.05},
        {**RUN, "subsampling": "10 %"},
        {**RUN, "per_device_train_batch_size": 16},
        {**RUN, "per_device_train_batch_size": 16, "dataset_size": 1600},
    ],
    "trials": [
        {**RUN, "n_folds": 5},
        {**RUN, "num_repeats": 5},
        {**RUN, "num_seeds": 5},
        {**RUN, "seeds": [1, 2, 3]},
        {**RUN, "ensemble_size": 5},
        {**RUN, "seed": [1, 2, 3]},
        {**RUN, "search": {"max_trials": 20}},
        {**RUN, "num_models": 4},
        {**RUN, "cross_validation": 5},
        {**RUN, "model_selection": "best of 5 seeds"},
        {**RUN, "grid": {"lr": [0.1, 0.2]}},
        {"state": STATE, "seeds": [1, 2, 3]},
    ],
}

CASES = [(asked, settings) for asked, every in ASKED.items() for settings in every]


def named(case):
    return json.dumps(case)[:60]


def test_the_run_without_another_field_holds():
    for settings in (RUN, GENERIC, BATCH, {"state": STATE}):
        assert fp.audit(settings, **FACTS).verdict == "HOLDS"


@pytest.mark.parametrize(("asked", "settings"), CASES, ids=named)
def test_a_field_that_puts_a_fact_in_doubt_is_a_question(asked, settings):
    with pytest.raises(fp.ParameterError) as caught:
        fp.audit(settings, **(FACTS if asked != "claim_epsilon" else FACTS | {"claim": None}))
    assert asked in options_in(str(caught.value))


@pytest.mark.parametrize(
    "drawn",
    [{"weighted_sampler": True}, {"sampler": "class balanced sampler"}, {"replacement": True}],
    ids=named,
)
def test_records_with_more_chances_make_the_sampling_a_question(drawn):
    run = {**RUN, "poisson_sampling": True, **drawn}
    with pytest.raises(fp.ParameterError) as caught:
        fp.audit(run, adjacency="add_remove", claim=(5.0, 1e-5))
    assert "sampling" in options_in(str(caught.value))


SIZES = {"noise_multiplier": 1.0, "clip": 1.0, "batch_size": 64, "dataset_size": 640, "epochs": 20}


@pytest.mark.parametrize(
    ("settings", "given", "why"),
    [
        ({**RUN, "shuffle": True}, {}, "shuffle = True is another sampling than poisson"),
        ({**RUN, "sampler": "SequentialSampler"}, {}, "SequentialSampler is another sampling"),
        (SIZES, {"sampling": fp.Poisson(0.01), "rounds": 300}, "a share of 0.09524 or more"),
        (SIZES, {"sampling": fp.Poisson(0.1), "rounds": 20}, "the epochs in the file make 188"),
    ],
    ids=["shuffle", "in order", "share", "epochs"],
)
def test_a_statement_that_a_field_contradicts_never_holds(settings, given, why):
    found = fp.audit(settings, **(FACTS | given))
    assert found.verdict == "CANNOT BE CERTIFIED" and any(why in one for one in found.reasons)


def test_a_loader_that_shuffles_is_no_contradiction_with_opacus():
    assert fp.audit({**RUN, "shuffle": True, "library": "opacus"}, **FACTS).verdict == "HOLDS"


@pytest.mark.parametrize(
    "settings",
    [
        {**RUN, "mechanism": "laplace"},
        {**RUN, "noise": {"distribution": "Laplacian"}},
        {**RUN, "perturbation": "exponential"},
        {**RUN, "noise_type": "student-t"},
        {**RUN, "dp": {"enabled": False}},
        {"state": STATE, "dp": {"enabled": False}},
        {"state": STATE, "config": {"noise_multiplier": 0.1, "max_grad_norm": 1.0}},
        {**RUN, "padding": {str(at): at for at in range(20_000)}, "dp": {"enabled": False}},
    ],
    ids=named,
)
def test_noise_that_no_multiplier_describes_ends_in_one_sentence(settings):
    with pytest.raises(ConversionError) as caught:
        fp.audit(settings, **FACTS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "harmless",
    [
        {"disable_dp": False},
        {"non_private": "no"},
        {"secure_mode": False},
        {"dp": {"accountant": "none", "secure_mode": "off"}},
        {"noise_scheduler": None},
        {"optimizer": {"epsilon": 1e-8}, "lr_scheduler": "none"},
        {"eval": {"batch_size": 900}},
        {"max_physical_batch_size": 16},
        {"norm_type": "batch"},
        {"seed": 3, "noise_seed": 4},
        {"resume": False, "epochs": 1},
        {"dry_run": False, "fast_dev_run": 0},
        {"max_steps": -1},
        {"local_steps": 1, "num_passes": 1},
        {"quantization": {"group_size": 128}},
        {"noise_schedule": "constant"},
        {"log_mode": "plain", "dataset": {"sampling_rate": 16000}},
        {"per_device_train_batch_size": 64, "num_gpus": 1},
        {"release_checkpoints": [50, 100]},
        {"weighted_sampler": False, "replacement": False},
        {"evaluate_every": 10, "notes": "noise on", "epochs_completed": 0, "num_models": 1},
    ],
    ids=named,
)
def test_a_field_about_something_else_asks_nothing(harmless):
    found = fp.audit({**BATCH, **harmless}, **FACTS)
    assert (found.verdict, found.claim) == ("HOLDS", FACTS["claim"])


@pytest.mark.parametrize(
    "parts",
    [
        {"runs": [RUN, RUN], "dp": {"enabled": False}},
        {"runs": [BATCH, BATCH], "train": {"gradient_accumulation_steps": 8}},
        {"runs": [RUN, RUN], "seeds": [1, 2, 3]},
        {"first": RUN, "second": RUN, "seeds": [1, 2, 3]},
        {"runs": [{**RUN, "epoch": at} for at in (1, 2)]},
    ],
    ids=named,
)
def test_what_the_runs_of_a_file_share_is_in_doubt_for_each(parts, tmp_path):
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(parts))
    found = fp.audit.each(path, **FACTS)
    assert len(found) == 2
    assert all(each.audit is None for each in found)


@pytest.mark.parametrize(
    "text",
    [
        "noise_multiplier: 1.0\nmax_grad_norm: 1.0\nsample_rate: 0.01\nsteps: 0100\n",
        "noise_multiplier: 1.0\nmax_grad_norm: 1.0\nsample_rate: 0.01\nsteps: 1:40\n",
        "noise_multiplier: 010\nmax_grad_norm: 1.0\nsample_rate: 0.01\nsteps: 100\n",
        "base: &b {noise_multiplier: 5.0, max_grad_norm: 1.0}\n"
        "dp: {<<: *b, noise_multiplier: 0.1}\nsample_rate: 0.01\nsteps: 100\n",
    ],
)
def test_yaml_with_two_readings_is_a_question(text, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(fp.ParameterError, match="not settled by"):
        fp.audit(path, **FACTS)


@pytest.mark.parametrize("column", ["mechanism", "client_id", "local_steps", "dp_enabled"])
def test_a_column_that_may_change_a_round_is_not_skipped(column, tmp_path):
    path = tmp_path / "rounds.csv"
    path.write_text(f"round,noise_multiplier,sampling_probability,{column}\n1,1.0,0.01,x\n")
    with pytest.raises(FedPrivacyError, match=column):
        fp.audit(path, **FACTS)


FLSIM = {"aggregation_type": "AVERAGE"}
PRIVATE = {"noise_multiplier": 1.0, "clipping_value": 1.0, "target_delta": 1e-5}


@pytest.mark.parametrize(
    ("settings", "facts", "end"),
    [
        # The epochs of a client come first in the file, and are not those of the run.
        (
            {
                "trainer": {
                    "client": {"epochs": 1},
                    "epochs": 40,
                    "users_per_round": 10,
                    "server": {**FLSIM, "privacy_setting": PRIVATE},
                },
                "num_users": 1000,
            },
            {"sampling": "fixed", "adjacency": "zero_out", "claim": (12.0, 1e-5)},
            "FAILS",
        ),
        # Clients take the noisy steps, so the rounds of the server do not count them.
        (
            {
                "trainer": {
                    "epochs": 4,
                    "users_per_round": 10,
                    "server": FLSIM,
                    "client": {"epochs": 30, "privacy_setting": PRIVATE},
                },
                "num_users": 1000,
            },
            {"sampling": "fixed", "adjacency": "zero_out", "claim": (12.0, 1e-5)},
            "rounds",
        ),
        (
            {
                "l2_norm_clip": 1.0,
                "noise_multiplier": 1.0,
                "number_of_examples": 60000,
                "batch_size": 256,
                "lr_schedule": {"steps": 10},
            },
            FACTS,
            "rounds",
        ),
        (
            {
                "l2_norm_clip": 1.0,
                "noise_multiplier": 1.0,
                "number_of_examples": 100000,
                "eval": {"batch_size": 10},
                "train": {"batch_size": 1000},
                "num_epochs": 1,
            },
            FACTS,
            "HOLDS",
        ),
        (
            {
                "clipping_norm": 1.0,
                "train_steps": 100,
                "train_size": 10000,
                "batch_size": 1000,
                "other": {"batch_size": 1},
                "noise_multiplier": 1.0,
                "poisson_sampling_in_fit": True,
            },
            FACTS,
            "sampling_probability",
        ),
        (
            {
                "central_privacy_mechanism": "none",
                "central_num_iterations": 100,
                "cohort_size": 10,
                "population": 1000,
                "noise_parameter": 1.0,
                "noise_scale": 1.0,
                "central_privacy_clip_bound": 1.0,
            },
            {"sampling": "fixed", "adjacency": "zero_out", "claim": (12.0, 1e-5)},
            "central_privacy_mechanism is none",
        ),
        (
            {
                "aggregator": {"settings": {"rounds_to_train": 10}},
                "task_runner": {"settings": {"noise_multiplier": 1.1, "max_grad_norm": 1.0}},
            },
            {**FACTS, "sampling": "everyone", "noise_multiplier": 1.1, "claim": (30.0, 1e-5)},
            "rounds",
        ),
    ],
)
def test_a_number_of_another_part_is_not_taken_for_the_run(settings, facts, end):
    try:
        found = str(fp.audit(settings, **facts).verdict)
    except FedPrivacyError as error:
        found = str(error)
        if "State it" in found:
            assert end in options_in(found)
            return
    assert end in found


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("--noise_multiplier=1.1\n--batch_size=256\n", "--noise-multiplier 1.1 "),
        ("--noise_multiplier=1.1\n--microbatches=1\n", "--noise-multiplier Z "),
        ("--dpsgd=False\n--noise_multiplier=1.1\n", "--noise-multiplier Z "),
        ("noise_multiplier = 1.1, sampling rate = 0.427%", "--sampling-probability 0.00427 "),
    ],
)
def test_plain_text_offers_only_numbers_that_mean_what_an_option_says(text, known, tmp_path):
    path = tmp_path / "flags.txt"
    path.write_text(f"The flags of the run follow\n{text}")
    with pytest.raises(ConversionError, match="plain text") as told:
        fp.audit(path, **FACTS)
    assert known in str(told.value)
