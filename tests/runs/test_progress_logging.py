"""Progress logging after every round, and the reported quality of draws."""

import csv
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.errors import ParameterError, UnsupportedCombination
from fedprivacy.runs import progress_logging

BUDGET = {"delta": 1e-5, "adjacency": "zero_out", "epsilon": 5.0}


def loop():
    return training.FederatedAveraging(
        model=training.logistic(64, 10),
        scheme=fp.FixedSize(20, population=60),
        perturbation=fp.Gaussian(noise_multiplier=4.0, clip_norm=0.3, unit="client"),
        local_steps=1,
        seed=0,
    )


@pytest.fixture(scope="module")
def data():
    return training.digits(clients=60)


def test_a_line_a_round(tmp_path, data):
    averaging, path = loop(), tmp_path / "rounds.csv"
    tell = progress_logging.to_csv(path, averaging, **BUDGET)
    training.train(averaging, data, rounds=3, on_round=tell)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [float(row["round"]) for row in rows] == [1.0, 2.0, 3.0]
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    exact = fp.epsilon(averaging.round_mechanism * 3, **ask)
    told = float(rows[-1]["epsilon_upper"])
    assert exact.lower <= told <= exact.upper + 0.02
    assert float(rows[-1]["budget_left"]) == pytest.approx(5.0 - told)
    assert float(rows[-1]["not_covered_arrived"]) == 20.0
    assert rows[0]["released_change"] == "" and float(rows[1]["released_change"]) > 0.0


def test_what_the_number_depends_on_is_told_beside_it(tmp_path, data):
    """A seeded run's epsilon was in the table without a mention of the seed."""
    secret = "the seed was fixed"
    fresh, seeds = replace(loop(), seed=None), {0: "fixed", None: "operating system"}
    for number, (averaging, book, words) in enumerate(
        [(loop(), False, secret), (loop(), True, secret), (fresh, False, ""), (fresh, True, "")]
    ):
        path, kept = tmp_path / f"{number}.csv", None
        if book:
            facts = {
                "unit": "client",
                "adjacency": "zero_out",
                "seed_policy": seeds[averaging.seed],
            }
            kept = fp.Ledger.create(tmp_path / f"{number}.ledger", **facts)
        tell = progress_logging.to_csv(path, averaging, ledger=kept, **BUDGET)
        training.train(averaging, data, rounds=1, ledger=kept, on_round=tell)
        (row,) = csv.DictReader(path.read_text().splitlines())
        assert row["depends_on"] == words and float(row["epsilon_upper"]) > 0.0


def test_a_table_of_other_columns_is_left_alone(tmp_path, data):
    """Lines of ours were appended to whatever was there."""
    path = tmp_path / "notes.csv"
    path.write_text("round,accuracy\n1,.5\n")
    with pytest.raises(
        ParameterError, match=r"path must be a new name, or a table with the columns"
    ):
        progress_logging.to_csv(path, loop(), **BUDGET)
    assert path.read_text() == "round,accuracy\n1,.5\n"
    for other in ("[" + "1" * 200_000 + "]", "\0" * 200_000, '"', "round,epsilon_upper\n"):
        path.write_text(other)
        with pytest.raises(
            ParameterError, match=r"with the columns round,epsilon.*depends_on, got"
        ):
            progress_logging.to_csv(path, loop(), **BUDGET)
    path.write_text("")
    training.train(loop(), data, rounds=1, on_round=progress_logging.to_csv(path, loop(), **BUDGET))
    # Killed while it wrote a line: the next one begins anew.
    path.write_bytes(path.read_bytes() + b"2.0,1.3")
    tell = progress_logging.to_csv(path, Quiet(), delta=1e-5, adjacency="zero_out")
    tell(SimpleNamespace(round=3), told_of(3))
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["round"] for row in rows] == ["1.0", "2.0", "3.0"]


class Quiet:
    """A loop without privacy."""

    round_mechanism = None


def test_aborted_rounds_cost_nothing(tmp_path, data):
    averaging = loop()
    meter = progress_logging.Meter(averaging, **BUDGET)
    state = averaging.init()
    state, info = averaging.step(state, data)
    first = (meter.note(info), meter(state, info))[1]["epsilon_upper"]
    aborted = training.RoundInfo(
        round=1, cohort=20, arrived=0, refused=0, aborted=True, upload_bytes=0, noise_std=0.0
    )
    after = training.State(2, state.parameters, state.learning_rate)
    meter.note(aborted)
    assert meter(after, aborted)["epsilon_upper"] == first


def test_what_a_crash_lost_is_told_by_the_ledger_alone(tmp_path, data):
    """By the rounds of the state, eleven spent rounds counted as two: 4.85, the truth is 10.99."""
    averaging = replace(loop(), seed=None)
    path, ask = tmp_path / "run", {"delta": 1e-5, "adjacency": "zero_out"}

    def killed(_):
        raise KeyboardInterrupt

    with fp.Ledger.create(path, unit="client", adjacency="zero_out") as ledger:
        kept = {"ledger": ledger, "checkpoint": tmp_path / "state"}
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                training.train(averaging, data, rounds=1, on_release=killed, **kept)
        tell = progress_logging.to_csv(tmp_path / "told.csv", averaging, ledger=ledger, **BUDGET)
        training.train(averaging, data, rounds=1, on_round=tell, **kept)
        blind = progress_logging.to_csv(tmp_path / "blind.csv", averaging, **BUDGET)
        with pytest.raises(fp.ParameterError, match="ledger must be given for a resumed run"):
            training.train(averaging, data, rounds=2, on_round=blind, **kept)
    (row,) = csv.DictReader((tmp_path / "told.csv").read_text().splitlines())
    four = fp.epsilon(averaging.round_mechanism * 4, **ask)
    assert four.lower <= float(row["epsilon_upper"]) <= four.upper + 0.02


def test_a_sampler_s_round_that_nobody_answers_is_told_as_spent():
    target = training.Posterior(
        model=training.SoftmaxRegression(64, 10), data=training.digits(clients=2), clip_norm=1.0
    )
    sampler = training.LangevinSampling(target=target, step_size=1e-4)
    meter = progress_logging.Meter(sampler, delta=1e-5, adjacency="replace_one")
    state = sampler.init()
    for silent in (None, lambda cohort: cohort):
        state, info = sampler.step(state, dropout=silent)
        meter.note(info)
    two = fp.epsilon(sampler.run(2), delta=1e-5, adjacency="replace_one")
    assert two.lower <= meter(state, info)["epsilon_upper"] <= two.upper + 0.02


def test_rows_of_correlated_noise_are_told_as_one_run():
    noise = fp.CorrelatedNoise(
        factor=fp.factors.BufferedToeplitz(2),
        noise_multiplier=4.0,
        rounds=6,
        participation=fp.MinimumSeparation(2),
        unit="client",
    )
    meter = progress_logging.Meter(
        replace(loop(), perturbation=noise), delta=1e-5, adjacency="zero_out"
    )
    found = [meter(SimpleNamespace(round=n), told_of(n))["epsilon_upper"] for n in (1, 6)]
    assert found[0] == found[1] > 0.0


def told_of(number):
    return training.RoundInfo(
        round=number - 1, cohort=1, arrived=1, refused=0, aborted=False, upload_bytes=0, noise_std=1
    )


def test_every_few_rounds(tmp_path, data):
    averaging, path = loop(), tmp_path / "rounds.csv"
    tell = progress_logging.to_csv(path, averaging, every=2, **BUDGET)
    training.train(averaging, data, rounds=4, on_round=tell)
    assert len(path.read_text().splitlines()) == 3


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ParameterError, match=r"MLflow is not installed.*progress.*to_csv"):
        progress_logging.to_mlflow(loop(), **BUDGET)
    with pytest.raises(ParameterError, match="TensorBoard is not installed"):
        progress_logging.to_tensorboard("folder", loop(), **BUDGET)


@pytest.mark.filterwarnings("default")
def test_tensorboard(tmp_path, data):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    averaging = loop()
    tell = progress_logging.to_tensorboard(tmp_path, averaging, **BUDGET)
    training.train(averaging, data, rounds=2, on_round=tell)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [point.step for point in found.Scalars("privacy/epsilon_upper")] == [1, 2]
    assert "the seed was fixed" in str(found.Tensors("privacy/depends_on/text_summary"))


@pytest.mark.filterwarnings("default")
def test_mlflow(tmp_path, data, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("rounds")
    averaging = loop()
    with mlflow.start_run() as run:
        tell = progress_logging.to_mlflow(averaging, **BUDGET)
        training.train(averaging, data, rounds=2, on_round=tell)
    told = mlflow.tracking.MlflowClient().get_metric_history(
        run.info.run_id, "privacy/epsilon_upper"
    )
    assert [point.step for point in told] == [1, 2]
    tags = mlflow.get_run(run.info.run_id).data.tags
    assert "the seed was fixed" in tags["privacy/depends_on"]


def regression(scale):
    """A posterior whose records' gradients are of size ``scale``."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = x @ np.array([1.0, -1.0]) + rng.normal(size=400) / scale
    likelihood = lambda p, inputs, out: -0.5 * (scale * (out - inputs @ p)) ** 2  # noqa: E731
    pairs = [(x[:200], y[:200]), (x[200:], y[200:])]
    return training.Posterior.of(likelihood, clients=pairs, dimension=2, clip_norm=1.0)


@pytest.mark.slow
def test_the_widening_that_is_told_is_the_one_that_comes():
    """Long chains of the clipped gradients, without private noise, so without an account."""
    target = regression(scale=2.0)
    sampler = training.LangevinSampling(
        target=target, step_size=4e-4, local_steps=20, burn_in=20, draws=200, chains=6, seed=0
    )
    draws = training.train(sampler, target, rounds=sampler.rounds).state.draws.reshape(-1, 2)
    x = target.data.features.numpy()
    exact = np.sqrt(np.diag(np.linalg.inv(4.0 * x.T @ x + np.eye(2))))
    with pytest.warns(training.FlattenedPosterior):
        told = training.clipping(target, draws.mean(0)).widening
    assert (draws.std(0).numpy() / exact).mean() == pytest.approx(told, rel=0.15)


def test_a_meter_tells_no_number_of_a_ledger_that_certifies_none(tmp_path, data):
    """Repeated rows of correlated noise were shown as one run: 5.59, the truth is 8.79."""
    noise = fp.CorrelatedNoise(
        factor=fp.factors.Tree(),
        noise_multiplier=4.0,
        rounds=6,
        participation=fp.MinimumSeparation(2),
        unit="client",
    )
    rows = replace(loop(), perturbation=noise, seed=None)
    with fp.Ledger.create(tmp_path / "run", unit="client", adjacency="zero_out") as ledger:
        meter = progress_logging.Meter(rows, ledger=ledger, **BUDGET)
        for _ in range(2):
            for row in range(3):
                number = ledger.intent(noise.row(row), clip_norm=1.0, noise_std=4.0)
                told = {"cohort": 20, "arrived": 20, "refused": 0, "denominator": 20.0}
                ledger.done(number, noise_std=4.0, **told)
        with pytest.raises(UnsupportedCombination, match="may have been released before"):
            meter(SimpleNamespace(round=6), told_of(6))


def test_a_meter_asks_when_it_is_made(tmp_path):
    """A round was spent before the refusal, or a number was reported in spite of it."""
    open_ended = replace(loop(), expected_cohort=None, scheme=fp.Poisson(0.3))
    add_remove = BUDGET | {"adjacency": "add_remove"}
    with pytest.raises(ParameterError, match="expected_cohort must be given for add_remove"):
        progress_logging.Meter(open_ended, **add_remove)
    progress_logging.Meter(replace(open_ended, expected_cohort=18), **add_remove)
    for name, value in {"delta": 2.0, "tolerance": 0.0, "observer": "x", "ledger": "x"}.items():
        with pytest.raises(ParameterError, match=f"{name} must"):
            progress_logging.Meter(loop(), **BUDGET | {name: value})
    one = fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(fp.Shuffled(rounds_per_epoch=3))
    shuffled = SimpleNamespace(round_mechanism=one)
    with pytest.raises(UnsupportedCombination):
        progress_logging.Meter(shuffled, **add_remove)
    facts = {"unit": "client", "adjacency": "zero_out", "schedule": "adaptive"}
    led = fp.Ledger.create(tmp_path / "run", **facts)
    with led, pytest.raises(UnsupportedCombination, match=r"depends on outputs.*spent\(\)"):
        progress_logging.Meter(loop(), ledger=led, **BUDGET)


def test_a_meter_is_of_one_run(data):
    """Of two runs it showed only the second."""
    meter, averaging = progress_logging.Meter(loop(), **BUDGET), loop()
    for _ in range(2):
        _, info = averaging.step(averaging.init(), data)
        if meter._last < 0:
            meter.note(info)
            continue
        with pytest.raises(ParameterError, match=r"round 0 was recorded before.*new Meter"):
            meter.note(info)


def test_a_meter_s_ledger_is_the_one_that_is_written_to(tmp_path, data):
    """Another ledger's 1.35 was shown for three rounds that cost 2.63."""
    averaging = replace(loop(), seed=None)
    facts = {"unit": "client", "adjacency": "zero_out"}
    with (
        fp.Ledger.create(tmp_path / "run", **facts) as ledger,
        fp.Ledger.create(tmp_path / "other", **facts) as other,
    ):
        tell = progress_logging.to_csv(tmp_path / "told.csv", averaging, ledger=other, **BUDGET)
        with pytest.raises(ParameterError, match="contain the rounds of the state, but train"):
            training.train(averaging, data, rounds=2, ledger=ledger, on_round=tell)
    with pytest.raises(ParameterError, match="path must be in an existing folder"):
        progress_logging.to_csv(tmp_path / "no" / "told.csv", averaging, **BUDGET)


def test_scaffold_is_not_told_of_add_remove():
    scaffold = training.Scaffold(
        model=training.logistic(64, 10),
        scheme=fp.Poisson(0.3),
        perturbation=fp.Gaussian(noise_multiplier=4.0, clip_norm=0.3, unit="client"),
        local_steps=1,
        expected_cohort=18,
    )
    with pytest.raises(ParameterError, match="adjacency must not be add_remove"):
        progress_logging.Meter(scaffold, **BUDGET | {"adjacency": "add_remove"})
    progress_logging.Meter(scaffold, **BUDGET)


def test_a_round_that_raised_may_have_been_released(tmp_path, data):
    """Run again by the same call's words it was counted once: 2.63 of 4.04."""
    path, averaging = tmp_path / "told.csv", loop()
    tell = progress_logging.to_csv(path, averaging, **BUDGET)

    def seen(_):
        raise OSError("full")

    kept = {"checkpoint": tmp_path / "state", "on_round": tell}
    training.train(averaging, data, rounds=1, **kept)
    with pytest.raises(OSError, match="full"):
        training.train(averaging, data, rounds=2, on_release=seen, **kept)
    with pytest.raises(ParameterError, match="resumed run, since a crash may have spent"):
        training.train(averaging, data, rounds=2, **kept)
    assert len(path.read_text().splitlines()) == 2
