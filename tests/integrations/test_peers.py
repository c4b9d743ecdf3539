"""Another library's privacy-loss distributions: its upper estimates lie above our lower ends."""

import logging

import pytest

import fedprivacy as fp

SETTINGS = [
    (0.5, 0.01, 1),
    (0.5, 0.2, 3),
    (0.6, 0.005, 100),
    (0.7, 0.05, 30),
    (0.8, 0.02, 200),
    (1.0, 0.5, 1),
    (1.0, 0.1, 10),
    (1.0, 0.01, 1000),
    (1.4, 1 / 60, 180),
    (2.0, 0.3, 50),
    (2.0, 0.05, 1000),
    (3.0, 0.1, 512),
    (4.0, 0.01, 10_000),
    (5.0, 0.9, 20),
    (5.0, 0.002, 10_000),
]


@pytest.mark.fast_cells(6)
@pytest.mark.parametrize("sigma, q, rounds", SETTINGS)
def test_poisson_add_remove(sigma, q, rounds, step=2e-3):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    logging.disable(logging.WARNING)
    theirs = [
        pld.from_gaussian_mechanism(
            sigma,
            sampling_prob=q,
            value_discretization_interval=step,
            pessimistic_estimate=above,
            use_connect_dots=above,
        ).self_compose(rounds)
        for above in (True, False)
    ]
    run = fp.Gaussian(noise_multiplier=sigma).sampled(fp.Poisson(q)) * rounds
    for delta in (1e-3, 1e-6):
        above, below = (found.get_epsilon_for_delta(delta) for found in theirs)
        low, high = fp.epsilon(run, delta=delta, adjacency="add_remove").resolution
        assert low <= above + 1e-9
        assert below - 1e-9 <= high
        assert high - low <= 1e-3
    for epsilon in (0.1, 1.0):
        above, below = (found.get_delta_for_epsilon(epsilon) for found in theirs)
        low, high = fp.delta(run, epsilon=epsilon, adjacency="add_remove").resolution
        assert low <= above * (1 + 1e-9) + 1e-12
        assert below * (1 - 1e-9) - 1e-12 <= high
