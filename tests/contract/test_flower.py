"""Flower: the strategy and the mod, in this process; ``test_flower_killed`` has the real engine."""

import pytest

pytest.importorskip("flwr", reason="pip install -e '.[flower,test]' elsewhere")
pytest.importorskip("torch")

import numpy as np
from flwr.serverapp.strategy import FedAvg

import fedprivacy as fp

from . import flower_apps as apps

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
