"""Sentences that must be looked at, and those that every program writes."""

import pytest

from fedprivacy.audit.imports.sentences import Known, unclear_in

NUMBERS = frozenset({1.1, 1.0, 0.01, 20.0, 100.0, 256.0, 500.0, 60000.0})
KNOWN = Known(frozenset({1.1, 1.0}), rounds=1000, epochs=10, epsilon=3.0, numbers=NUMBERS)


@pytest.mark.parametrize(
    "sentence",
    [
        "the last two epochs ran without noise",
        "noise_multiplier: 0.4 in this run",
        "this ran with noise 0",
        "INFO overriding noise_multiplier with 0.3",
        "INFO set noise_multiplier -> 0.3",
        "clipping skipped for 3 layers",
        "WARNING clipping turned off for layer embed",
        "command: python train.py --epochs 5 --no-dp",
        "Each user contributed up to 20 examples.",
        "die letzten Epochen ohne Noise",
        "Training was then continued for 10 more epochs.",
        "INFO restarting after OOM, accountant starts at 0",
        "INFO step 4000/4000 done",
        "trained for 25 epochs",
        "run 5/20",
        "Best of 20 runs",
        "mean over five seeds",
        "cadence: runs every week",
        "poisson: approximate (batches are shuffled once)",
        "INFO epsilon so far: 9.7",
        "sigma was 0.1 in the end",
        "trained to step 90000",
        "Step [90000/90000]",
        "Epoch [500/500]",
        "iter 90000: loss 0.3",
        "100%|####| 90000/90000 [01:02<00:00]",
        "world size 8, batch 256 per rank",
        "Trial 17 finished",
        "Run 3 of 5",
        "seed 3: acc 0.90; seed 4: acc 0.91",
        "noise_multiplier: set by the sweep",
        "noise_multiplier: variance of the noise",
        "steps: 12k steps",
        "noise_multiplier: 1.0 until the clip was dropped",
        "2 steps per round, each with noise",
        "4 microbatches",
        "DataLoader(shuffle=True)",
        "poisson_sampling=False",
        "the noise was set to zero",
        "we keep BatchNorm in training mode",
        "weighted by the number of examples",
        "clients may contribute twice in one round",
        "gradients are also released",
    ],
)
def test_a_sentence_that_may_change_a_fact_must_be_looked_at(sentence):
    assert unclear_in([sentence], KNOWN)


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
        "learning rate after warmup",
        "no weight decay on biases and norms",
        "L2 clipping norm per example",
        "std of the noise is noise_multiplier * max_grad_norm",
        "number of federated rounds",
        "total number of clients in the simulation",
        "GroupNorm instead of BatchNorm",
        "2024-03-05 09:12:44,318 INFO starting training on cuda:0",
        "INFO :      configure_fit: strategy sampled 20 clients (out of 500)",
        "Epoch 7 | train loss 0.412 | val acc 0.883 | lr 1.0e-03",
        "{'loss': 1.8214, 'learning_rate': 4.2e-05, 'epoch': 1.37}",
        "Train Epoch: 3 Loss: 0.420117 (epsilon = 1.31, delta = 1e-05)",
        "DP-SGD with Poisson sampling, rate 0.01",
        "single run, seed 42",
        "Using sigma=1.1 and C=1.0",
        "accuracy 96.1 on the held out images",
    ],
)
def test_a_sentence_that_restates_settings_is_clear(sentence):
    assert not unclear_in([sentence], KNOWN)
