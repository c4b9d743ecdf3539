"""Entries of a file that no reader understands, and the code that confirms them."""

import pytest

import fedprivacy as fp
from fedprivacy.audit.imports import assembling, sentences
from fedprivacy.audit.imports.questions import MAX_SHOWN, MissingFacts

RUN = {"noise_multiplier": 1.1, "max_grad_norm": 1.0, "sample_rate": 0.01, "steps": 1000}
FACTS = {"sampling": "poisson", "adjacency": "add_remove", "claim": (3.0, 1e-5)}
LINES = "".join(f"{name}: {value}\n" for name, value in RUN.items())
pytestmark = pytest.mark.usefixtures("narrowest")


@pytest.fixture
def answer(tmp_path):
    """The verdict on a file of a run with one more line, or the message."""

    def answered(line, **facts):
        path = tmp_path / "run.yaml"
        path.write_text(f"{LINES}{line}\n")
        try:
            return str(fp.audit(path, **{**FACTS, **facts}).verdict)
        except MissingFacts as asked:
            return str(asked)

    return answered


@pytest.mark.parametrize(
    "line",
    [
        "real_noise: 0.3",
        "notes: sigma was 0.1 in the end",
        "notes: trained to step 90000",
        "description: best of 50 runs",
        "pretrain_steps: 500",
        "epsilon_spent: 40",
        "notes:\n  - the noise was\n  - switched off",
        "note: non-private",
        "note: dp_off",
        "q_actual: 0.5",
        "true_sample_rate: 0.4",
        "niter: 90000",
        "stages: 3",
        "enabled: false",
        "ablation: no_noise",
        "layers: {embed: {sigma: 0}}",
        "l2_sensitivity: 4",
        "sampler: weighted",
        "draws: with_replacement",
        "reruns: 4",
        "seed: 1,2,3",
        "mode: debug",
        "num_batches: 90000",
        "lot: 5000",
        "q_eff: 0.3",
        "n_releases: 4",
        "copies: 3",
        "ddp: true",
        "# set by the sweep, with the noise of the best run",
        "# 12k steps",
        "# variance of the noise is 0.1",
        "replay: 3",
        "share_logits: true",
        "gaussian: 0",
        "sigma_by_epoch: {1: 1.1, 8: 0.6}",
        "clipping: per_layer",
        "critic_steps_per_update: 5",
        "inner_steps: 4",
        "pretrained_on: mnist-train",
        "early_stopping: {metric: train_loss, patience: 3}",
        "stop_when: {train_acc: 0.95}",
        "final_epsilon: 14.2",
        "normalize_with: training_set_statistics",
        "vocab_from: train",
        "save_train_logits: true",
        "group_size: 4",
        "second_stage: {lr: 0.01, epochs: 5}",
        "sample_rate_after_warmup: 0.02",
        "# seed 4 of 10",
        "# out of memory, starting over",
        "# rank 3 of 8 ready",
    ],
)
def test_an_entry_that_may_change_the_run_does_not_hold(line, answer):
    assert answer(line).startswith("run.yaml: read as")


@pytest.mark.parametrize(
    "line",
    [
        "notes: fixed during training, no decay",
        "seeds: [42]",
        "warm_start: false",
        "init_from: null",
        "subsample: 1.0",
        "epoch_length: 100",
        "num_nodes: 1",
        "round_decimals: 3",
        "sample_every: 100",
        "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}",
        "wandb: {project: dp, entity: lab}",
        "seed: 42",
        "# learning rate for the head",
        "scheduler: {name: cosine, warmup_steps: 100}",
        "data: {root: data, train_split: train, max_length: 128}",
        "# privacy settings",
        "name: mnist_dp",
        "accountant: prv",
        "output_dir: out/run3",
        "clipping: flat",
        "init_std: 0.02",
        "transform: {resize: 28, mean: 0.1307, std: 0.3081}",
        "mixup: 0.0",
        "label_noise: 0.0",
        "no_noise: false",
        "# this is the only run",
        "hidden_units: [128, 64]",
        "rdp_orders: [2, 4, 8]",
        "pretrained: false",
        "final_epsilon: 4.1",
    ],
)
def test_an_entry_about_something_else_asks_nothing(line, answer):
    assert answer(line) == "HOLDS"


def test_a_code_confirms_the_entries_that_it_was_made_from(answer):
    code = answer("reruns: 4").rpartition("--reviewed ")[2]
    assert answer("reruns: 4", reviewed=code) == "HOLDS"
    assert answer("reruns: 4", reviewed=f"00000000, {code}") == "HOLDS"
    assert f"{code} is the code of other entries" in answer("reruns: 5", reviewed=code)


def test_a_code_stays_the_same_whatever_is_stated(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("noise_multiplier: 1.1\nmax_grad_norm: 1.0\nreruns: 4\n# step 5000\n")
    codes = set()
    for facts in ({}, {"rounds": 100}, {"rounds": 9000, **FACTS}):
        with pytest.raises(MissingFacts) as asked:
            fp.audit(path, **facts)
        codes |= {one.code for one in asked.value.questions if one.code}
    assert len(codes) == 1


def test_many_entries_are_counted(answer):
    message = answer("".join(f"unheard_of_{at}x: 5\n" for at in range(MAX_SHOWN + 7)))
    assert "; and 7 more" in message and message.count("unheard") == MAX_SHOWN


@pytest.mark.parametrize("wrong", [3, ["a"], "x" * 10_001])
def test_a_code_must_be_text(wrong, answer):
    with pytest.raises(fp.ParameterError, match="reviewed must be codes"):
        answer("reruns: 4", reviewed=wrong)


def test_a_column_with_an_unknown_name_is_asked_about(tmp_path):
    path = tmp_path / "rounds.csv"
    path.write_text("round,noise_multiplier,sampling_probability,loss,flux\n1,1.1,0.1,0.4,2\n")
    with pytest.raises(MissingFacts, match="not understood: column flux") as asked:
        fp.audit(path, **FACTS)
    (code,) = [one.code for one in asked.value.questions if one.code]
    assert fp.audit(path, reviewed=code, **FACTS).verdict == "HOLDS"


def test_a_stated_scheme_keeps_its_cohort():
    assert assembling._facts_of(fp.FixedSize(10, population=500))["cohort"] == 10
    assert assembling._facts_of(fp.WithReplacement(7, population=500))["cohort"] == 7


def test_values_that_are_nested_too_deeply_are_refused():
    data = {**RUN}
    for _ in range(900):
        data = {"part": data}
    with pytest.raises(fp.errors.ConversionError, match="nested deeper than 64 levels"):
        fp.audit(data, **FACTS)


def test_a_file_with_too_many_sentences_is_not_clear():
    many = ["x. " * (sentences.MAX_SENTENCES + 1)]
    assert sentences.unclear_in(many, sentences.Known()) == [
        f"more than {sentences.MAX_SENTENCES} sentences"
    ]
