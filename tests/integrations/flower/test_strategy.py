"""Flower: the strategy and the mod, in this process; ``test_flower_ray`` has the real engine."""

import pytest

pytest.importorskip("flwr", reason="pip install -e '.[flower,train,test]' elsewhere")
pytest.importorskip("torch")

import numpy as np
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg

import fedprivacy as fp
from fedprivacy.ledger import Ledger
from tests.integrations.flower import apps as apps

ROUNDS = 3
SCHEMES = {
    "fixed": apps.SCHEME,
    "poisson": fp.Poisson(0.4),
    "replacement": fp.WithReplacement(4, population=apps.CLIENTS),
    "everyone": fp.Everyone(),
}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_it_equals_our_own_loop(tmp_path, scheme):
    ours = apps.by_our_loop(tmp_path / "own.jsonl", scheme, ROUNDS)
    strategy = apps.private(apps.equal(FedAvg), tmp_path, scheme=scheme, seed=apps.SEED)
    result = strategy.start(apps.HereGrid(apps.client_app()), apps.first_arrays(), ROUNDS)
    np.testing.assert_allclose(
        apps.flat(result.arrays), ours.state.parameters.numpy(), rtol=0, atol=2e-7
    )
    assert [one.cohort for one in strategy.history] == [one.cohort for one in ours.history]
    assert [one.arrived for one in strategy.history] == [one.arrived for one in ours.history]
    there = fp.account(tmp_path / "run.jsonl", delta=1e-3)
    assert there.upper == fp.account(tmp_path / "own.jsonl", delta=1e-3).upper
    metrics = result.train_metrics_clientapp
    assert sorted(metrics) == [1, 2, 3]
    assert metrics[ROUNDS]["epsilon"] == pytest.approx(there.upper, rel=1e-3)
    assert metrics[1]["epsilon"] < metrics[2]["epsilon"]


def test_the_ledger_audits(tmp_path):
    strategy = apps.private(apps.equal(FedAvg), tmp_path)
    strategy.start(apps.HereGrid(apps.client_app()), apps.arrays_of(apps.module()), ROUNDS)
    audit = fp.audit(tmp_path / "run.jsonl", claim=(50.0, 1e-3))
    assert audit.verdict == "HOLDS"
    spent = fp.account(tmp_path / "run.jsonl", delta=1e-3)
    low = fp.audit(tmp_path / "run.jsonl", claim=(0.5 * spent.lower, 1e-3))
    assert low.verdict == "FAILS"


def norms(path):
    """Return the clip norm of every round in a ledger."""
    return [one.clip_norm for one in Ledger.open(path).rounds]


def test_a_learned_norm_equals_that_of_our_own_loop(tmp_path):
    adaptive = fp.AdaptiveClipping(
        noise_multiplier=1.0, clip_norm=0.05, bits_share=0.1, clip_learning_rate=1.0, unit="client"
    )
    ours = apps.by_our_loop(tmp_path / "own.jsonl", apps.SCHEME, ROUNDS + 1, perturbation=adaptive)
    grid = apps.HereGrid(apps.client_app())
    start = apps.first_arrays()
    # Stopped after a round, and resumed with the norm that was learned in it.
    for rounds in (1, ROUNDS + 1):
        strategy = apps.private(
            apps.equal(FedAvg), tmp_path, perturbation=adaptive, seed=apps.SEED,
            checkpoint=tmp_path / "model.npz",
        )  # fmt: skip
        if rounds == 1:
            # As a server that is stopped leaves it: open.
            strategy.ledger.close = strategy.ledger.release
        result = strategy.start(grid, start, rounds)
    found = apps.flat(result.arrays)
    np.testing.assert_allclose(found, ours.state.parameters.numpy(), rtol=0, atol=2e-7)
    here, there = norms(tmp_path / "run.jsonl"), norms(tmp_path / "own.jsonl")
    assert len(here) == ROUNDS + 1 and len(set(here)) == ROUNDS + 1
    assert here == pytest.approx(there, rel=1e-6)
    told = result.train_metrics_clientapp
    # The metrics of a round agree with the ledger about the next round.
    assert [told[n]["next-clip-norm"] for n in (2, 3)] == here[2:]
    plain = fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(apps.SCHEME) * (ROUNDS + 1)
    spent = fp.account(tmp_path / "run.jsonl", delta=1e-3)
    assert spent.upper == fp.epsilon(plain, delta=1e-3, adjacency="zero_out").upper


def test_what_speaks_against_a_run_is_looked_for_as_it_ends(tmp_path):
    """A cohort that its scheme does not draw, written behind the last round's charge."""
    strategy = apps.private(apps.equal(FedAvg), tmp_path)

    def evaluate(number, arrays):
        if number == ROUNDS:
            ledger = strategy.ledger
            of = strategy.server.mechanism
            index = ledger.intent(of, clip_norm=1.0, noise_std=1.0)
            told = {"arrived": 60, "refused": 0, "noise_std": 1.0, "denominator": 4}
            ledger.done(index, cohort=60, **told)

    first = apps.arrays_of(apps.module())
    strategy.start(apps.HereGrid(apps.client_app()), first, ROUNDS, evaluate_fn=evaluate)
    with pytest.raises(
        fp.UnsupportedCombination, match="the recorded run differs from the accounted one"
    ):
        strategy.budget.spent()


class FailingGrid(apps.HereGrid):
    """Loses its connection once the clients of a round are known."""

    def send_and_receive(self, messages, *, timeout=None):
        self.asked += [message.metadata.dst_node_id for message in messages]
        raise ConnectionError("the engine went away")


def test_a_cohort_that_was_dropped_is_a_round_that_counts(tmp_path):
    """It left no line, so a person who started again could choose the cohort."""
    strategy = apps.private(apps.equal(FedAvg), tmp_path, scheme=fp.Poisson(0.4))
    grid = FailingGrid(apps.client_app())
    with pytest.raises(ConnectionError):
        strategy.start(grid, apps.first_arrays(), ROUNDS)
    assert Ledger.open(tmp_path / "run.jsonl").spent_rounds == 1
    again = apps.private(apps.equal(FedAvg), tmp_path, scheme=fp.Poisson(0.4))
    again.start(apps.HereGrid(apps.client_app()), apps.first_arrays(), ROUNDS)
    found = fp.audit(tmp_path / "run.jsonl", claim=(500.0, 1e-3))
    assert found.rounds == ROUNDS + 1 and "never confirmed" in str(found)


def test_a_cohort_is_not_drawn_twice_for_a_round(tmp_path):
    strategy = apps.private(apps.equal(FedAvg), tmp_path, scheme=fp.Poisson(0.4))
    grid, arrays = apps.HereGrid(apps.client_app()), apps.first_arrays()
    asked = strategy.configure_train(1, arrays, ConfigRecord(), grid)
    assert Ledger.open(tmp_path / "run.jsonl").begun_rounds == 1
    with pytest.raises(fp.ParameterError, match="configure_train must follow aggregate_train"):
        strategy.configure_train(1, arrays, ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive(asked))
    strategy.configure_train(2, arrays, ConfigRecord(), grid)
    assert [one.done is None for one in strategy.ledger.rounds] == [False, True]
    strategy.ledger.release()
