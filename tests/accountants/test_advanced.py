"""Advanced composition of many different rounds."""

import pytest

import fedprivacy as fp
from fedprivacy.accountants import advanced
from fedprivacy.loss.curves.components import parts_of


@pytest.mark.parametrize("probability", [0.001, 0.2])
def test_representatives_find_the_best_rule_and_share(probability):
    """The choice is valid, and close to the best of all rules and shares."""
    steps = [fp.Gaussian(noise_multiplier=1.0 + k / 70) for k in range(70)]
    run = steps[0].sampled(fp.Poisson(probability))
    for step in steps[1:]:
        run = run + step.sampled(fp.Poisson(probability))
    parts = parts_of(run.privacy_loss("add_remove").curve)
    assert len(parts) == 70
    every = [advanced._basic_alone(parts, 1e-6)[0]]
    every += [advanced._with_share(parts, 1e-6, share)[0] for share in advanced._SHARES]
    found = advanced._guided(parts, 1e-6)[0]
    assert min(every) <= found <= 1.01 * min(every)
