"""Averaging that shows its end: bounds against exact laws in one dimension, and refusals."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

import fedprivacy as fp

RUN = {
    "local_steps": 3,
    "learning_rate": 2.0,
    "gradient_norm": 0.05,
    "smoothness": 1.0,
    "noise_std": 0.3,
    "denominator": 2.0,
    "rounds": 30,
}
HALF = 0.5
"""Half the length of the interval of the exact laws."""


def averaging(**options):
    return fp.HiddenAveraging(**RUN | {"cohorts": fp.FixedSize(2, 3)} | options)


def moved(point, target, share=1.0):
    """Return where a client is after its steps on a Huber loss around a target."""
    for _ in range(RUN["local_steps"]):
        slope = np.clip(RUN["smoothness"] * (point - target), *(-share * 0.05, share * 0.05))
        point = point - RUN["learning_rate"] * slope
    return point


def law(clients, count=161):
    """Return the law of the end of a round from every cell of the interval."""
    edges = np.linspace(-HALF, HALF, count + 1)
    middle = 0.5 * (edges[1:] + edges[:-1])
    step = middle + sum((moved(middle, t) - middle for t in clients), np.zeros(count)) / 2.0
    below = ndtr((edges[None] - step[:, None]) / RUN["noise_std"])
    below[:, 0], below[:, -1] = 0.0, 1.0
    return np.diff(below, axis=1)


def end(round_law):
    found = np.zeros(len(round_law))
    found[len(found) // 2] = 1.0
    return found @ np.linalg.matrix_power(round_law, RUN["rounds"])


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("others", [(0.0, 0.0), (-2.0, 2.0), (2.0, 0.1)])
def test_exact_laws_on_an_interval_lose_no_more_than_the_bound(adjacency, others):
    """Clients pull to targets with bounded slopes. Two of three are drawn in a round."""
    run = averaging(radius=HALF)
    cases = {"zero_out": (None,), "replace_one": (-2.0, 0.2)}[adjacency]
    for other in cases:
        laws = []
        for own in (2.0, other):
            everyone = (*others, own)
            drawn = [
                law([t for t in pair if t is not None])
                for pair in itertools.combinations(everyone, 2)
            ]
            laws.append(end(np.mean(drawn, axis=0)))
        for epsilon, (p, q) in itertools.product((0.0, 0.2, 0.8), (laws, laws[::-1])):
            bound = fp.delta(run, epsilon=epsilon, adjacency=adjacency)
            exact = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
            # The cells change a round's mean by a little.
            assert exact <= bound.upper * 1.02 + 1e-9


def test_a_client_costs_as_a_record_that_moves_as_far():
    run, record = averaging(radius=HALF), averaging(radius=HALF).as_descent
    assert run.largest_move == pytest.approx(3 * 2.0 * 0.05, rel=1e-12)
    for adjacency in ("zero_out", "replace_one"):
        facts = {"delta": 1e-5, "adjacency": adjacency}
        assert fp.epsilon(run, **facts).upper == fp.epsilon(record, **facts).upper
        loss = run.privacy_loss(adjacency)
        assert (loss.facts.unit, loss.facts.adjacency) == ("client", adjacency)
        assert not any("record's" in each or "is clipped" in each for each in loss.assumptions)
    assert loss.theorems == record.privacy_loss("replace_one").theorems


def test_linear_losses_show_the_lower_end():
    """All take part in every round: the end is a Gaussian whose mean a client moves each time."""
    run = averaging(cohorts=fp.FixedEpochs(1), denominator=3.0, rounds=4)
    found = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    mu = 2.0 * (3 * 2.0 * 0.05 / 3.0) * math.sqrt(4) / 0.3
    plain = fp.GaussianDp(mu=mu, unit="client", adjacency="replace_one")
    exact = fp.epsilon(plain, delta=1e-5, adjacency="replace_one")
    assert found.lower == pytest.approx(exact.upper, rel=1e-6)
    assert found.upper == pytest.approx(exact.upper, rel=1e-6)
    assert "one client has one gradient" in run.privacy_loss("replace_one").witness.datasets


def test_epsilon_stops_growing_with_the_rounds_on_a_ball():
    far, farther = (
        fp.epsilon(averaging(radius=1.0, rounds=n), delta=1e-5, adjacency="zero_out").upper
        for n in (100_000, 10_000_000)
    )
    assert far == pytest.approx(farther, rel=0.02)
    assert fp.epsilon(averaging(rounds=500), delta=1e-5, adjacency="zero_out").upper > 3.0 * far


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"learning_rate": 2.1}, r"learning_rate must be at most 2 / smoothness = 2\.0"),
        (
            {"server_learning_rate": 1.1},
            "server_learning_rate must be at most 1, denominator over the largest cohort, 2",
        ),
        ({"denominator": 1.9}, "so that no round moves points apart"),
        ({"cohorts": fp.Poisson(0.1)}, "population must be given with Poisson"),
        ({"cohorts": fp.Shuffled(100)}, "cohorts must be FixedSize, Poisson"),
        ({"cohorts": fp.FixedEpochs(3, at_most=2)}, "cohorts must state no at_most"),
        ({"gradient_norm": 0.0}, "gradient_norm"),
        ({"local_steps": 0}, "local_steps"),
        ({"radius": -1.0}, "radius"),
        ({"rounds": 10**16}, "rounds"),
        ({"noise_std": 5e-324}, "noise over sensitivity must be at least"),
        ({"population": 0, "cohorts": fp.Poisson(0.1)}, "population"),
        (
            {"gradient_norm": 1e308, "learning_rate": 2.0, "local_steps": 10},
            "be a double of full precision",
        ),
    ],
)
def test_refusals(options, text):
    with pytest.raises(fp.ParameterError, match=text):
        averaging(**options)


def test_rescaled_and_recorded_noise():
    run = averaging()
    assert run.rescaled(0.5).noise_std == 0.15
    assert run.rescaled(0.0) is None
    assert list(run.noise_ratios(run.largest_move)) == pytest.approx([0.3 * 2.0 / 0.3])
    # A client that moved less needs as much noise.
    assert list(run.noise_ratios(0.1)) == pytest.approx([6.0])
    with pytest.raises(fp.UnsupportedCombination):
        run.sampled(fp.Poisson(0.5))


def test_numbers_near_the_end_of_doubles_cost_as_others_do():
    """Products of these numbers underflow, but the ratio of noise to move is the same."""
    plain = {"local_steps": 1, "learning_rate": 1.0, "cohorts": fp.FixedSize(1, 3), "rounds": 4}
    sizes = {"gradient_norm": 7.3, "server_learning_rate": 1.0, "noise_std": 14.6}
    small = {"gradient_norm": 7.3e-24, "server_learning_rate": 1e-300, "noise_std": 14.6e-24}
    found = [
        fp.epsilon(averaging(**plain, **one, denominator=d), delta=1e-5, adjacency="zero_out").upper
        for one, d in ((sizes, 1.0), (small, 1e-300))
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_the_largest_learning_rate_is_in_the_message():
    with pytest.raises(fp.ParameterError, match=r"smoothness = 6\.666666666666666,"):
        averaging(smoothness=0.3, learning_rate=6.7)
    assert averaging(smoothness=0.3, learning_rate=6.666666666666666)
