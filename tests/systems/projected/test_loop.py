"""Projected descent: what runs is what is priced, recorded and refused."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

import fedprivacy as fp
from fedprivacy.training import (
    AgentData,
    AgentLoss,
    LeastSquares,
    Logistic,
    ProjectedDescent,
    load,
    save,
)

pytestmark = pytest.mark.usefixtures("one_thread")
N, D = 200, 3


def data(seed=0, long=1.0):
    generator = np.random.default_rng(seed)
    features = long * generator.normal(size=(N, D))
    return AgentData.of([(features, np.sign(features @ [1.0, -2.0, 0.5]))])


def loop(**options):
    options = {
        "loss": Logistic(feature_bound=1.0),
        "records": N,
        "dimension": D,
        "steps": 50,
        "step_size": 4.0,
        "noise_std": 0.3,
        "radius": 4.0,
        "seed": 5,
    } | options
    return ProjectedDescent(**options)


def test_it_learns_and_stays_in_the_ball():
    run, records = loop(noise_std=0.05, radius=6.0), data()
    state, info = run.step(run.init(), records)
    correct = torch.sign(records.features[0] @ state.parameters) == records.targets[0]
    assert correct.double().mean() > 0.9
    assert torch.linalg.vector_norm(state.parameters) <= 6.0
    assert (state.round, info.arrived, info.refused) == (1, 1, 0)
    small = loop(radius=1e-3, noise_std=0.3)
    assert torch.linalg.vector_norm(small.step(small.init(), records)[0].parameters) <= 1e-3


@pytest.mark.parametrize(
    ("options", "sensitivity", "strong"),
    [
        ({}, 2.0 / N, 0.0),
        ({"clip_norm": 0.25}, 0.5 / N, 0.0),
        ({"loss": Logistic(feature_bound=1.0, regularisation=0.1)}, 2.0 / N, 0.1),
        ({"loss": LeastSquares(feature_bound=1.0), "clip_norm": 1.0, "step_size": 2.0}, 2.0 / N, 0),
    ],
)
def test_the_mechanism_states_what_runs(options, sensitivity, strong):
    run = loop(**options)
    assert run.round_mechanism == fp.NoisyGradientDescent(
        step_size=run.step_size,
        noise_std=0.3,
        sensitivity=sensitivity,
        strong_convexity=strong,
        smoothness=run.loss.curvature()[1],
        steps=50,
        radius=4.0,
        dimension=3,
    )


def test_a_record_moves_a_gradient_by_at_most_the_sensitivity():
    """Long features are cut inside the loop, record by record."""
    run, one, other = loop(clip_norm=0.7), data(long=100.0), data(long=100.0)
    other.features[0, 17], other.targets[0, 17] = -other.features[0, 17] * 50.0, 1.0
    for seed in range(5):
        point = 4.0 * torch.randn(1, D, generator=torch.Generator().manual_seed(seed)).double()
        slopes = [
            run.loss.gradient(point, run.loss.prepared(each), run.clip_norm)
            for each in (one, other)
        ]
        moved = torch.linalg.vector_norm(slopes[0] - slopes[1])
        assert moved <= run.round_mechanism.sensitivity * (1.0 + 1e-9)


@pytest.mark.parametrize("clip_norm", [None, 0.3])
def test_steps_move_no_two_points_apart(clip_norm):
    """At the largest allowed step size; a step 5 % longer does, on one direction of records."""
    run, records = loop(step_size=8.0, clip_norm=clip_norm), data()
    ready, source = run.loss.prepared(records), torch.Generator().manual_seed(3)
    for _ in range(300):
        pair = 3.0 * torch.randn(2, D, generator=source).double()
        ends = [
            run.projected(x - 8.0 * run.loss.gradient(x[None], ready, clip_norm)[0]) for x in pair
        ]
        apart = torch.linalg.vector_norm(pair[0] - pair[1])
        assert torch.linalg.vector_norm(ends[0] - ends[1]) <= apart * (1.0 + 1e-12)


def test_its_record_is_audited(tmp_path):
    path, run = tmp_path / "run.ledger", loop(seed=None)
    with fp.Ledger.create(path, unit="record", adjacency="replace_one") as ledger:
        state = run.init()
        for _ in range(2):
            state, info = run.step(state, data(), ledger=ledger)
        ledger.close()
    assert info.noise_std == pytest.approx(0.3 / 4.0 * N)
    planned = fp.epsilon(run.round_mechanism * 2, delta=1e-5, adjacency="replace_one")
    assert fp.account(path, delta=1e-5).upper == planned.upper
    assert fp.audit(path, claim=(planned.upper, 1e-5)).verdict == "HOLDS"
    assert fp.audit(path, claim=(0.5 * planned.upper, 1e-5)).verdict == "CANNOT BE CERTIFIED"


def test_an_interrupted_descent_counts(tmp_path):
    path, run = tmp_path / "run.ledger", loop(seed=None)
    with (
        fp.Ledger.create(path, unit="record", adjacency="replace_one") as ledger,
        pytest.raises(KeyboardInterrupt),
    ):
        run.step(run.init(), data(), ledger=ledger, on_release=interrupt)
    one = fp.epsilon(run.round_mechanism, delta=1e-5, adjacency="replace_one")
    assert fp.account(path, delta=1e-5).upper == one.upper


def interrupt(state):
    del state
    raise KeyboardInterrupt


def test_a_seed_repeats_a_run_and_a_checkpoint_continues_it(tmp_path):
    run = loop()
    first, _ = run.step(run.init(), data())
    again, _ = run.step(run.init(), data())
    assert torch.equal(first.parameters, again.parameters)
    second, _ = run.step(first, data())
    assert not torch.equal(first.parameters, second.parameters)
    save(tmp_path / "state.pt", first)
    loaded = load(tmp_path / "state.pt", first)
    assert torch.equal(run.step(loaded, data())[0].parameters, second.parameters)


class Unknown(AgentLoss):
    def dimension(self, data):
        return D

    def gradient(self, points, data, clip_norm=None):
        return points


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "logistic"}, "loss must be Logistic"),
        ({"loss": Unknown()}, "does not state"),
        ({"loss": Logistic()}, "feature_bound"),
        ({"loss": LeastSquares(feature_bound=1.0), "step_size": 1.0}, "clip_norm must be given"),
        ({"step_size": 8.1}, "step_size must be at most 2 / smoothness"),
        ({"radius": 0.0}, "radius"),
        # The norm of a point would underflow to 0, so nothing would be projected.
        ({"radius": 1e-170, "noise_std": 1e-170}, "radius must be between 1e-140"),
        ({"radius": 1e170}, "radius must be between"),
        ({"noise_std": 1e-170}, "noise_std must be between"),
        ({"steps": 0}, "steps"),
        ({"noise_std": 1e-9}, "noise_std must be at least"),
        # A norm of so many coordinates is rounded too often.
        ({"noise_std": 1e-4, "dimension": 10**6}, "noise_std must be at least"),
        ({"noise_std": 1e5}, "noise over sensitivity"),
    ],
)
def test_settings_without_an_account(options, message):
    with pytest.raises((fp.ParameterError, fp.UnsupportedCombination), match=message):
        loop(**options)


def test_arguments_that_do_not_fit(tmp_path):
    run = loop()
    outside = replace(run.init(), parameters=torch.full((D,), 9.0, dtype=torch.float64))
    with pytest.raises(fp.ParameterError, match="lie in the ball"):
        run.step(outside, data())
    with pytest.raises(fp.ParameterError, match=r"data\.records"):
        loop(records=N + 1).step(run.init(), data())
    with pytest.raises(fp.ParameterError, match="dropout"):
        run.step(run.init(), data(), dropout=lambda cohort: ())
    for unit, adjacency, word in (("client", "replace_one", "unit"), ("record", "add_remove", "n")):
        with (
            fp.Ledger.create(tmp_path / unit, unit=unit, adjacency=adjacency) as ledger,
            pytest.raises(fp.ParameterError, match=word),
        ):
            loop(seed=None).step(run.init(), data(), ledger=ledger)


BATCHES = {
    "poisson": {"batches": fp.Poisson(0.1), "denominator": 20.0},
    "fixed": {"batches": fp.FixedSize(20, N), "denominator": 20.0},
    "truncated": {"batches": fp.TruncatedPoisson(0.1, N, 40), "denominator": 20.0},
    "in order": {"batches": fp.FixedEpochs(10), "denominator": 20.0},
}


def in_batches(kind, **options):
    return loop(**BATCHES[kind] | {"step_size": 2.0, "noise_std": 0.4} | options)


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_are_priced_as_they_run(kind):
    run = in_batches(kind)
    assert run.round_mechanism == fp.NoisySGD(
        step_size=2.0,
        noise_std=0.4,
        clip_norm=1.0,
        steps=50,
        smoothness=0.25,
        radius=4.0,
        population=N if kind == "poisson" else None,
        dimension=D,
        **BATCHES[kind],
    )
    regular = in_batches(kind, loss=Logistic(feature_bound=1.0, regularisation=0.05))
    assert (regular.round_mechanism.regularisation, regular.round_mechanism.gap) == (
        0.05,
        pytest.approx(0.1),
    )
    assert regular.round_mechanism.smoothness == pytest.approx(0.25, rel=1e-9)


@pytest.mark.parametrize("kind", BATCHES)
def test_the_batches_of_a_release(kind, monkeypatch):
    """Sizes, members and weights of the batches whose gradients are summed."""
    records, seen = data(), []
    # Every record is known by its first feature.
    own = records.features[0, :, 0].tolist()

    def gradient(self, points, batch, clip_norm=None):
        rows = [own.index(x) for x in batch.features[0, :, 0].tolist()]
        assert batch.weights.unique().tolist() in ([1 / 20.0], [])
        seen.append(rows)
        return torch.zeros_like(points)

    monkeypatch.setattr(Logistic, "gradient", gradient)
    run = in_batches(kind, loss=Logistic(feature_bound=1e3), step_size=1e-6, noise_std=3.0)
    run = replace(run, steps=400)
    run.step(run.init(), records)
    sizes = np.array([len(rows) for rows in seen])
    assert all(len(set(rows)) == len(rows) for rows in seen)
    drawn = np.bincount(np.concatenate([np.array(rows, int) for rows in seen]), minlength=N)
    if kind == "in order":
        assert seen[:10] == [list(range(k, N, 10)) for k in range(10)]
        assert seen[10] == seen[0]
        return
    # Six standard deviations of a fixed seed's draws.
    assert np.abs(drawn - 40.0).max() < 6.0 * 6.0
    assert sizes.max() <= {"fixed": 20, "truncated": 40, "poisson": N}[kind]
    assert (sizes.std() == 0.0) == (kind == "fixed")


def test_the_noise_of_a_batch_step_is_what_the_account_assumes():
    run = replace(in_batches("fixed", radius=1e3, dimension=D), steps=1)
    ends = torch.stack(
        [replace(run, seed=k).step(run.init(), data())[0].parameters for k in range(400)]
    )
    assert float(ends.std(dim=0).mean()) == pytest.approx(0.4, rel=0.12)
    assert run.step(run.init(), data())[1].noise_std == pytest.approx(0.4 / 2.0 * 20.0)


@pytest.mark.parametrize(
    ("kind", "adjacency"),
    [("poisson", "add_remove"), ("fixed", "zero_out"), ("in order", "replace_one")],
)
def test_a_run_in_batches_is_audited(kind, adjacency, tmp_path):
    path, run = tmp_path / "run.ledger", in_batches(kind, seed=None)
    with fp.Ledger.create(path, unit="record", adjacency=adjacency) as ledger:
        run.step(run.init(), data(), ledger=ledger)
        ledger.close()
    planned = fp.epsilon(run.round_mechanism, delta=1e-5, adjacency=adjacency)
    assert fp.account(path, delta=1e-5).upper == planned.upper
    assert fp.audit(path, claim=(planned.upper, 1e-5)).verdict == "HOLDS"
    assert fp.audit(path, claim=(0.5 * planned.upper, 1e-5)).verdict == "CANNOT BE CERTIFIED"


@pytest.mark.parametrize(
    ("clip_norm", "denominator"), [(2.0, 20.0), (1.0, 10.0), (0.5, 20.0), (1.0, 20.0)]
)
def test_a_ledger_of_other_batches_than_priced_does_not_hold(clip_norm, denominator, tmp_path):
    """Records clipped to a larger norm, or a sum divided by a smaller number, move a step more."""
    run, path = in_batches("fixed").round_mechanism, tmp_path / "run.ledger"
    on_sum = run.noise_std / run.step_size * run.denominator
    with fp.Ledger.create(path, unit="record", adjacency="zero_out") as ledger:
        number = ledger.intent(run, clip_norm=clip_norm, noise_std=on_sum)
        ledger.done(
            number, cohort=1, arrived=1, refused=0, noise_std=on_sum, denominator=denominator
        )
        ledger.close()
    planned = fp.epsilon(run, delta=1e-5, adjacency="zero_out").upper
    holds = clip_norm <= 1.0 and denominator == 20.0
    verdict = fp.audit(path, claim=(planned, 1e-5)).verdict
    assert verdict == ("HOLDS" if holds else "CANNOT BE CERTIFIED")


def test_a_large_regulariser_hides_no_part_of_the_smoothness():
    loss = Logistic(feature_bound=1.35, regularisation=6400.08)
    run = in_batches("fixed", loss=loss, step_size=1e-4).round_mechanism
    assert Fraction(1.35) ** 2 / 4 <= Fraction(run.smoothness) < 0.4557
    loss = Logistic(feature_bound=1.0, regularisation=1e17)
    small = in_batches("fixed", loss=loss, step_size=1e-17, noise_std=1e-18, radius=1e-12)
    assert small.round_mechanism.smoothness >= 0.25


def test_rounding_of_large_sums_over_a_small_denominator_needs_more_noise():
    """10,000 records over 10: the sum is a thousand times a mean."""
    options = {"loss": Logistic(feature_bound=0.01), "records": 10_000, "step_size": 1.0}
    batches = fp.FixedSize(10_000, 10_000)
    loop(**options, noise_std=1e-4, batches=batches, denominator=10_000.0)
    with pytest.raises(fp.ParameterError, match=r"noise_std must be at least 0\.00298"):
        loop(**options, noise_std=1e-4, batches=batches, denominator=10.0)


def test_fewer_records_than_the_limit_are_trained_on_under_poisson(tmp_path):
    run = in_batches("poisson", records=2 * N, seed=None, step_size=1.0)
    with fp.Ledger.create(tmp_path / "a", unit="record", adjacency="add_remove") as ledger:
        run.step(run.init(), data(), ledger=ledger)
    with (
        fp.Ledger.create(tmp_path / "b", unit="record", adjacency="add_remove") as ledger,
        pytest.raises(fp.ParameterError, match="except with Poisson"),
    ):
        in_batches("fixed", seed=None).step(run.init(), data(), ledger=ledger)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": fp.Poisson(0.1)}, "go together"),
        ({"denominator": 20.0}, "go together"),
        ({"batches": fp.FixedSize(20, N + 1), "denominator": 20.0}, "population = records"),
        ({"batches": fp.FixedEpochs(10), "denominator": 19.0}, "be at least 20"),
        ({"batches": fp.FixedSize(40, N), "denominator": 10.0}, "moves points apart"),
        ({"batches": fp.Shuffled(10), "denominator": 20.0}, "batches must"),
        ({"batches": True, "denominator": 20.0}, "batches must be FixedSize"),
        ({"batches": fp.FixedEpochs(10, apart=True), "denominator": 20.0}, "not state apart"),
        ({"batches": fp.FixedEpochs(10), "denominator": 1e9}, "rounding of a step must be below"),
    ],
)
def test_batches_without_an_account(options, message):
    with pytest.raises(fp.ParameterError, match=message):
        loop(**options)


def test_batches_learn():
    run, records = in_batches("poisson", noise_std=0.02, radius=6.0, steps=300), data()
    state, _ = run.step(run.init(), records)
    correct = torch.sign(records.features[0] @ state.parameters) == records.targets[0]
    assert correct.double().mean() > 0.9
