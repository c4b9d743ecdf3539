"""Attacks: error rates match the theorems, faults are found, correct mechanisms pass.

Every generator here has a fixed seed, so no test fails by accident. Where a count of null runs is
held against a binomial, the chance with which a sound attack would have failed it is stated.
"""

import math
import re

import numpy as np
import pytest
from scipy.special import bdtrc

import fedprivacy as fp
from fedprivacy.audit.attacks import Estimator, Outcome, plan
from fedprivacy.audit.guessing import _forced
from tests.common import noisy, told

pytestmark = pytest.mark.usefixtures("narrowest")

DELTA = 1e-5


def seeded(seed):
    return np.random.default_rng(seed)


def test_the_plan_is_what_perfect_scores_show():
    for m in (20, 1000):
        found = fp.attack(
            lambda included, generator: included, m, runs=1, delta=0.0, generator=seeded(1)
        )
        assert found.lower <= plan(m, 0.0)
    assert plan(1000, 0.0) - 0.2 <= found.lower
    assert plan(1, DELTA) == 0.0
    assert plan(100, 0.0) < plan(1000, 0.0) < plan(10_000, 0.0)
    assert plan(10_000, 1e-3) < plan(10_000, 1e-9)


# ---- theorem A3


def largest(m, r, v, mu):
    """Return the level at which t_0 is forced to 1: the bound on P[right >= v] under mu-GDP."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        forced = _forced(v, r, m, middle, np.array([mu]))[0]
        low, high = (low, middle) if forced > 1.0 else (middle, high)
    return high


@pytest.mark.parametrize("m, r", [(1, 1), (2, 2), (3, 2), (3, 3)])
def test_curves_bound_what_mechanisms_reach(m, r):
    """mu-GDP at mu = 0 is fair coins; a Gaussian sum and its guesses stay below for every v."""
    for v in range(1, r + 1):
        fair = sum(math.comb(r, k) for k in range(v, r + 1)) / 2.0**r
        assert largest(m, r, v, 0.0) >= fair - 1e-9
    assert largest(1, 1, 1, 1.0) == pytest.approx(0.6914624612740131, rel=1e-6)  # Phi(1/2)
    rng = seeded(0)
    for mu in (0.5, 2.0):
        coins = rng.integers(0, 2, (20_000, m))
        scores = mu * coins + rng.normal(size=coins.shape)
        order = np.argsort(scores, axis=1)
        sorted_coins = np.take_along_axis(coins, order, axis=1)
        out = r // 2
        right = sorted_coins[:, m - (r - out) :].sum(1) + (1 - sorted_coins[:, :out]).sum(1)
        for v in range(1, r + 1):
            seen = (right >= v).mean()
            assert seen <= largest(m, r, v, mu) + 4.0 * 0.5 / math.sqrt(20_000)


def test_the_gaussian_mechanism_in_one_run():
    """The lower end exceeds theorem A1's; the refuted mu is at most the mechanism's own."""
    step = fp.Gaussian(noise_multiplier=1.0815413087653432)
    for seed in (3, 4):
        given = {"runs": 1, "claim": step, "adjacency": "zero_out"}
        found, plain = (
            fp.attack(noisy(1.0815413), 1000, estimator=way, generator=seeded(seed), **given)
            for way in ("gdp", "guesses")
        )
        assert plain.lower < found.lower < 4.0 and found.mu < 1.0 / 1.0815413
        assert found.verdict is Outcome.CONSISTENT and "A3" in found.theorem
        assert len(found.assumptions) == 4 and plain.mu is None
    wrong = fp.attack(
        noisy(0.3),
        1000,
        estimator="gdp",
        generator=seeded(5),
        runs=1,
        claim=step,
        adjacency="zero_out",
    )
    assert wrong.verdict is Outcome.BUG_ALARM and wrong.mu > 1.0 / 1.0815413


def test_an_epsilon_says_nothing_of_a_curve():
    found = fp.attack(noisy(0.1), 500, estimator="gdp", generator=seeded(6), runs=1, claim=0.1)
    assert found.verdict is Outcome.NO_CLAIM and found.lower > 0.1


# ---- null runs and power


@pytest.mark.parametrize("truth, train", [(0.0, told(0.0)), (1.0, told(1.0))])
@pytest.mark.parametrize("estimator, m, runs", [("guesses", 120, 1), ("rates", 1, 100)])
def test_null_runs_are_within_the_binomial(truth, train, estimator, m, runs, tries=60, level=0.2):
    """At the exact level fewer than 1 in 10^4 sound attacks would fail."""
    above = 0
    for seed in range(tries):
        found = fp.attack(
            train, m, level=level, delta=0.0, runs=runs, estimator=estimator, generator=seeded(seed)
        )
        above += found.lower > truth
    assert bdtrc(above - 1, tries, level) > 1e-4 if above else True


def test_a_coin_that_is_thrown_afresh_shows_nothing():
    found = fp.attack(
        lambda included, generator: generator.random(len(included)), generator=seeded(2), claim=0.0
    )
    assert found.verdict is Outcome.CONSISTENT and found.lower == 0.0


def test_power_on_the_gaussian_mechanism():
    step = fp.Gaussian(noise_multiplier=1.0815413087653432)
    claim = fp.epsilon(step, delta=DELTA, adjacency="zero_out")
    assert claim.upper == pytest.approx(4.0, abs=2e-3)
    for seed in (3, 4):
        found = fp.attack(noisy(1.0815413), 1000, claim=claim, generator=seeded(seed))
        assert 2.0 <= found.lower <= 4.0 and found.verdict is Outcome.CONSISTENT
        assert found.upper_certified == claim.upper


def test_many_runs_of_one_canary():
    found = fp.attack(
        noisy(0.05), 1, delta=0.0, runs=400, estimator="rates", generator=seeded(5), claim=1.0
    )
    assert found.verdict is Outcome.BUG_ALARM and 3.0 <= found.lower <= 4.0
    assert "A2" in found.theorem


# ---- faults, each with its right twin

SIZE = 200
AXES = np.eye(SIZE)


def clipped_rows(rows, limit):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1.0, limit / norms)


def sum_of(clip, noise_std, layers=1):
    """Release the sum of the canaries that are in, each clipped layer by layer, plus noise."""
    long = 50.0 * np.hstack([AXES] * layers)

    def train(included, generator):
        parts = [clipped_rows(part, clip) for part in np.split(long, layers, axis=1)]
        total = np.hstack(parts)[included].sum(axis=0)
        return total + generator.normal(0.0, noise_std, total.shape)

    return train, np.hstack([AXES] * layers)


def judged(train, directions, multiplier, rounds=1, **settings):
    run = fp.Gaussian(noise_multiplier=multiplier) * rounds
    settings = {"runs": 100, "generator": seeded(6), **settings}
    m = settings.pop("canaries", SIZE)
    return fp.attack(
        train, m, claim=run, adjacency="add_remove", directions=directions, **settings
    ).verdict


def test_a_doubled_clip_is_found():
    assert judged(*sum_of(2.0, 2.0), 2.0) is Outcome.BUG_ALARM
    assert judged(*sum_of(1.0, 2.0), 2.0) is Outcome.CONSISTENT


def test_clipping_by_layer_accounted_as_global_is_found():
    assert judged(*sum_of(1.0, 2.0, layers=4), 2.0) is Outcome.BUG_ALARM
    assert judged(*sum_of(0.5, 2.0, layers=4), 2.0) is Outcome.CONSISTENT


def two_rounds(reused, std=2.0):
    def train(included, generator):
        first = generator.normal(0.0, std, SIZE)
        second = first if reused else generator.normal(0.0, std, SIZE)
        return (AXES[included].sum(axis=0) + first) - (second - AXES[included].sum(axis=0))

    return train


def test_noise_of_an_earlier_round_is_found():
    assert judged(two_rounds(True), AXES, 2.0, rounds=2) is Outcome.BUG_ALARM
    assert judged(two_rounds(False), AXES, 2.0, rounds=2) is Outcome.CONSISTENT


def average(fixed):
    """Two clients that send zeros, and a canary that does so too: only the divisor can tell."""

    def train(included, generator):
        divisor = 2.0 if fixed else 1.0 + included.sum()
        return [-np.linalg.norm(generator.normal(0.0, 4.0, 200) / divisor)]

    return train


@pytest.mark.parametrize("estimator", Estimator)
def test_a_denominator_that_follows_the_data_is_found(estimator):
    settings = {"canaries": 1, "runs": 400, "estimator": estimator}
    assert judged(average(fixed=False), None, 4.0, **settings) is Outcome.BUG_ALARM
    assert judged(average(fixed=True), None, 4.0, **settings) is Outcome.CONSISTENT


# ---- a loop, and its clients as canaries


@pytest.fixture
def small_loop():
    """Sixteen clients of one record each, whose updates are orthogonal; a model of zeros."""
    torch = pytest.importorskip("torch")
    from fedprivacy.training import FederatedAveraging, FederatedData

    class Zero(torch.nn.Linear):
        def reset_parameters(self):
            torch.nn.init.zeros_(self.weight)

    labels = torch.zeros(16, dtype=torch.int64)
    data = FederatedData(
        name="orthogonal",
        features=torch.eye(16) * 100.0,
        labels=labels,
        test_features=torch.eye(16)[:1],
        test_labels=labels[:1],
        clients=tuple(np.array([row]) for row in range(16)),
        num_classes=2,
    )

    def make(perturbation):
        return FederatedAveraging(
            model=lambda: Zero(16, 2, bias=False),
            scheme=fp.Everyone(),
            perturbation=perturbation,
            local_steps=1,
            learning_rate=1.0,
            device="cpu",
        )

    return make, data


class Unclipped(fp.Gaussian):
    def contribution(self, update, mask=None):
        return super().contribution(update, mask) * 20.0


def test_a_loop_that_clips_too_late_is_found(small_loop):
    make, data = small_loop
    for kind, verdict in ((Unclipped, Outcome.BUG_ALARM), (fp.Gaussian, Outcome.CONSISTENT)):
        loop = make(kind(noise_multiplier=4.0, unit="client"))
        found = fp.attack(loop, 16, data=data, rounds=1, runs=8, generator=seeded(10))
        assert found.verdict is verdict and found.upper_certified < 1.1, found


KINDS = {
    "dp-fedavg": (lambda kind: kind(noise_multiplier=4.0, unit="client"), fp.Gaussian),
    "fed-smp": (
        lambda kind: kind(noise_multiplier=4.0, clip_norm=1.0, kept=32, dimension=32, cohort=16),
        fp.SparsifiedPerturbation,
    ),
}


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("ways", ["random", "axes"])
def test_crafted_clients(small_loop, name, ways):
    """Sixteen directions of 32; the loop's own sum of shares and its whole noise."""
    build, kind = KINDS[name]
    make, data = small_loop
    directions = ways if ways == "random" else np.eye(32)[:16]

    class Loud(kind):
        def contribution(self, update, mask=None):
            return super().contribution(update, mask) * 20.0

    for noise, verdict in ((build(Loud), Outcome.BUG_ALARM), (build(kind), Outcome.CONSISTENT)):
        settings = {"data": data, "directions": directions, "runs": 6, "generator": seeded(11)}
        found = fp.attack(make(noise), 16, rounds=2, **settings)
        assert found.verdict is verdict, found


def test_crafted_clients_that_do_not_fit(small_loop):
    make, data = small_loop
    loop = make(fp.Gaussian(noise_multiplier=4.0, unit="client"))
    for directions in ("best", np.eye(3), np.ones((16, 5))):
        with pytest.raises(fp.ParameterError, match=r"^directions must"):
            fp.attack(loop, 16, data=data, directions=directions)


def test_loops_that_are_refused(small_loop):
    make, data = small_loop
    whole = fp.Gaussian(noise_multiplier=4.0, unit="client")
    shares = fp.SparsifiedPerturbation(
        noise_multiplier=1.0, clip_norm=1.0, kept=32, dimension=32, cohort=16
    )
    for loop, given in ((make(None), data), (make(shares), data), (make(whole), None)):
        with pytest.raises(fp.ParameterError, match=r"^(train|data) must"):
            fp.attack(loop, 16, data=given)
    with pytest.raises(fp.ParameterError, match=r"^data must"):
        fp.attack(make(whole), 17, data=data)


# ---- observers, and refusals


def test_the_final_observer_sees_the_last_release_only():
    def train(included, generator):
        return np.stack([AXES[included].sum(axis=0), generator.normal(0.0, 1.0, SIZE)])

    seen = {
        observer: fp.attack(
            train, SIZE, observer, directions=AXES, runs=20, generator=seeded(7)
        ).lower
        for observer in fp.Observer
    }
    assert seen["final"] == 0.0 and seen["aggregate"] == seen["server"] > 1.5


def test_runs_in_parallel_are_the_same_runs():
    joblib = pytest.importorskip("joblib")
    alone = fp.attack(noisy(1.0), 50, runs=4, generator=seeded(8))
    with joblib.parallel_config(backend="threading"):
        beside = fp.attack(noisy(1.0), 50, runs=4, generator=seeded(8), jobs=2)
    assert alone == beside


def test_an_attack_says_what_it_is():
    found = fp.attack(noisy(1.0), 50, runs=2, generator=seeded(9))
    assert found.verdict is Outcome.NO_CLAIM and len(found.assumptions) == 3
    (least,) = re.findall("epsilon >= ([0-9.]+) at", str(found))
    assert float(least) <= found.lower
    assert "wrong with probability at most 0.05" in str(found) and "100 canaries in 2 runs" in str(
        found
    )
    assert found.to_dict()["verdict"] == "NO CLAIM" and found.to_dict()["upper_certified"] is None


STEP = fp.Gaussian(noise_multiplier=2.0)


@pytest.mark.parametrize(
    "change, names",
    [
        ({"train": 3}, "train"),
        ({"canaries": 0}, "canaries"),
        ({"level": 1.0}, "level"),
        ({"observer": "god"}, "observer"),
        ({"estimator": "best"}, "estimator"),
        ({"estimator": "rates"}, "canaries, runs"),
        ({"guesses": 1001}, "guesses"),
        ({"claim": STEP}, "adjacency"),
        ({"claim": -1.0}, "claim"),
        ({"claim": "4"}, "claim"),
        ({"claim": fp.delta(STEP, epsilon=1.0, adjacency="zero_out")}, "claim"),
        ({"claim": fp.epsilon(STEP, delta=0.1, adjacency="zero_out"), "delta": 0.2}, "delta"),
        (
            {"claim": fp.epsilon(STEP, delta=0.1, adjacency="zero_out", observer="final")},
            "observer",
        ),
        ({"train": lambda included, generator: np.zeros(3)}, "train's scores"),
        ({"train": lambda included, generator: np.full(50, np.nan)}, "train's scores"),
        ({"directions": np.eye(3)}, "directions"),
        ({"directions": np.zeros((50, 3))}, "directions"),
        ({"directions": np.ones((50, 3))}, "train's releases"),
        (
            {"directions": np.ones((50, 3)), "train": lambda i, g: np.full(3, np.inf)},
            "train's releases",
        ),
    ],
)
def test_what_is_refused(change, names):
    settings = {"train": noisy(1.0), "canaries": 50, "runs": 20, "generator": seeded(0)}
    with pytest.raises(fp.ParameterError, match=f"^{names} must"):
        fp.attack(**{**settings, **change})


def test_a_refuted_mu_is_not_told_as_an_epsilon():
    found = fp.attack(noisy(0.1), 500, estimator="gdp", generator=seeded(6), runs=1, delta=1e-5)
    (printed,) = re.findall("not ([0-9.]+)-GDP; if the worst-case pair is Gaussian", str(found))
    assert found.mu and 0.99999 * found.mu < float(printed) <= found.mu
