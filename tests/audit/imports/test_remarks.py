"""Sentences that put a fact in doubt, and those that every program writes."""

import pytest

from fedprivacy.audit.imports import remarks

KNOWN = remarks.Known(frozenset({1.1, 1.0}), rounds=1000, epsilon=3.0, epochs=10)


@pytest.mark.parametrize(
    ("fact", "sentence"),
    [
        ("noise_multiplier", "the last two epochs ran without noise"),
        ("noise_multiplier", "noise_multiplier: 0.4 in this run"),
        ("noise_multiplier", "this ran with noise 0"),
        ("noise_multiplier", "INFO overriding noise_multiplier with 0.3"),
        ("noise_multiplier", "INFO set noise_multiplier -> 0.3"),
        ("noise_multiplier", "clipping skipped for 3 layers"),
        ("noise_multiplier", "WARNING clipping turned off for layer embed"),
        ("noise_multiplier", "command: python train.py --epochs 5 --no-dp"),
        ("noise_multiplier", "Each user contributed up to 20 examples."),
        ("noise_multiplier", "die letzten Epochen ohne Noise"),
        ("rounds", "Training was then continued for 10 more epochs."),
        ("rounds", "INFO restarting after OOM, accountant starts at 0"),
        ("rounds", "INFO step 4000/4000 done"),
        ("rounds", "trained for 25 epochs"),
        ("trials", "run 5/20"),
        ("trials", "Best of 20 runs"),
        ("trials", "mean over five seeds"),
        ("trials", "cadence: runs every week"),
        ("sampling_probability", "poisson: approximate (batches are shuffled once)"),
        ("claim_epsilon", "INFO epsilon so far: 9.7"),
    ],
)
def test_a_sentence_puts_a_fact_in_doubt(fact, sentence):
    found = remarks.doubt_in(sentence, KNOWN)
    assert found is not None and found.fact == fact and found.text == sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "noise_multiplier: 1.1 over the clip norm",
        "epoch 3, step 999: loss 0.4, epsilon = 2.9",
        "Secure RNG turned off. This is perfectly fine for experimentation.",
        "Optimal order is the largest alpha of the privacy accountant, without a warning",
        "use warm restarts of the learning rate every 10 epochs",
        "log every 50 steps",
        "keep the last 3 checkpoints",
        "without dropout",
        "seed 3",
    ],
)
def test_a_harmless_sentence_is_no_doubt(sentence):
    assert remarks.doubt_in(sentence, KNOWN) is None


def test_comments_keep_the_name_that_they_follow():
    text = (
        "# first\nnoise: 1.1 # 0.4 later\nurl: http://a/b\n// third\n<!-- fourth -->\n/* fifth */\n"
    )
    assert remarks.comments_in(text) == ["first", "noise: 0.4 later", "third", "fourth", "fifth"]


def test_long_lines_and_comments_over_several_lines_are_read_to_their_ends():
    long = "word " * 3000 + "without noise"
    for texts in (remarks.comments_in(f"<!-- {long}\n-->"), remarks.lines_in(long)):
        assert {doubt.fact for doubt in remarks.doubts_in(texts, KNOWN)} == {"noise_multiplier"}
    assert remarks.comments_in(f"a: {long} # last") == ["a: last"]
    assert remarks.comments_in("/* " * 100_000) == []


def test_a_sentence_about_another_run_of_the_file_is_no_doubt():
    runs = [("run 1", {"noise_multiplier": 1.1}), ("run 2", {"noise_multiplier": 0.6})]
    assert remarks.with_remarks(runs, ["noise 0.6 and 1.1", "two runs"]) == runs
    found = dict(remarks.with_remarks(runs, ["noise 0.2 at the end"]))
    assert remarks.apart(found["run 1"]) == ({"noise_multiplier": 1.1}, ["noise 0.2 at the end"])
