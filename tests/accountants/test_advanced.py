"""Advanced composition of many different rounds."""

from dataclasses import replace

import pytest

import fedprivacy as fp
from fedprivacy.accountants import advanced
from fedprivacy.accountants.points import RoundKinds
from fedprivacy.loss import Composed
from fedprivacy.mechanisms.base import Run


@pytest.mark.parametrize("probability", [0.001, 0.2])
def test_representatives_find_the_best_rule_and_share(probability):
    """The choice is valid, and close to the best of all rules and shares."""
    steps = [fp.Gaussian(noise_multiplier=1.0 + k / 70) for k in range(70)]
    run = steps[0].sampled(fp.Poisson(probability))
    for step in steps[1:]:
        run = run + step.sampled(fp.Poisson(probability))
    rounds = RoundKinds.of(run.privacy_loss("add_remove").curve)
    assert len(rounds.counts) == 70
    every = [advanced._basic_alone(rounds, 1e-6)[0]]
    every += [advanced._with_share(rounds, 1e-6, share)[0] for share in advanced._SHARES]
    found = advanced._guided(rounds, 1e-6)[0]
    assert min(every) <= found <= 1.01 * min(every)


@pytest.mark.parametrize(
    "scheme, adjacency",
    [
        (fp.Poisson(0.02), "add_remove"),
        (fp.FixedSize(3, population=100), "zero_out"),
        (fp.FixedSize(3, population=100), "replace_one"),
    ],
)
def test_a_schedule_of_noise_has_the_epsilon_of_its_rounds(scheme, adjacency):
    noise = [0.8 + 0.7 * (k * 0.618 % 1.0) for k in range(300)]
    steps = [fp.Gaussian(noise_multiplier=z).sampled(scheme) for z in noise]
    loss = Run(tuple((one, 1 + k % 3) for k, one in enumerate(steps))).privacy_loss(adjacency)
    account = advanced.AdvancedCompositionAccountant()
    found = account._epsilon(loss, 1e-6)
    # No round became a curve.
    assert "parts" not in vars(loss.curve)
    listed = replace(loss, curve=Composed(loss.curve.parts))
    assert found.upper == pytest.approx(account._epsilon(listed, 1e-6).upper, rel=1e-12)
