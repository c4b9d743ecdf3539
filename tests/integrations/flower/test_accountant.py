"""Flower's own private strategy with our accountant: requirements, and the state after a kill."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("flwr", reason="pip install -e '.[flower,train,test]' elsewhere")
pytest.importorskip("torch")

from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.exception import PrivacyBudgetExhausted

import fedprivacy as fp
from fedprivacy.errors import LedgerError, ParameterError
from fedprivacy.integrations.flower import Accountant
from tests.common import ROOT
from tests.integrations.flower import accounted as accounted
from tests.integrations.flower import apps as apps

EVENT = GaussianPrivacyEvent(accounted.NOISE, apps.CLIENTS, apps.CLIENTS)


def started(accountant, rounds=3, cohort=apps.CLIENTS, weight=lambda client: 1, after=None):
    grid = apps.HereGrid(accounted.plain_app(weight), after=after)
    return accounted.strategy_of(accountant, cohort).start(grid, apps.first_arrays(), rounds)


def test_every_release_of_flowers_strategy_is_counted(tmp_path):
    ours = Accountant(accounted.CONFIG, state=tmp_path / "state.json")
    theirs = RdpAccountant(accounted.CONFIG)
    for one in (ours, theirs):
        started(one)
    assert ours.num_releases == theirs.num_releases == 3
    round_of = fp.Gaussian(noise_multiplier=accounted.NOISE, unit="client").sampled(fp.Everyone())
    exact = fp.epsilon(round_of * 3, delta=1e-5, adjacency="add_remove")
    assert ours.get_epsilon(1e-5) == exact.upper < theirs.get_epsilon(1e-5)
    found = fp.audit(tmp_path / "state.json", claim=(exact.upper, 1e-5))
    assert found.verdict == "HOLDS" and found.bound.upper == exact.upper


def test_a_part_of_the_clients_is_priced_without_their_draw():
    accountant = Accountant(accounted.CONFIG)
    started(accountant, rounds=1, cohort=4)
    moved = fp.Gaussian(noise_multiplier=accounted.NOISE / 2, unit="client")
    exact = fp.epsilon(moved, delta=1e-5, adjacency="add_remove")
    assert accountant.get_epsilon(1e-5) == exact.upper


@pytest.mark.parametrize("kind", ["weights", "silent"])
def test_unequal_weights_and_missing_clients_release_nothing(kind):
    accountant = Accountant(accounted.CONFIG)
    if kind == "weights":
        with pytest.raises(ValueError, match="equal client weights"):
            started(accountant, weight=lambda client: 1 + client)
    else:
        found = started(accountant, after=lambda client, reply: [reply] if client else [])
        assert not found.train_metrics_clientapp and not found.arrays
    assert accountant.num_releases == 0


def test_flowers_strategy_stops_at_the_largest_epsilon():
    two = Accountant(accounted.CONFIG)
    two.compose(EVENT, 2)
    accountant = Accountant(replace(accounted.CONFIG, max_epsilon=two.get_epsilon(1e-5)))
    with pytest.raises(PrivacyBudgetExhausted):
        started(accountant, rounds=9)
    assert accountant.num_releases == 2


@pytest.mark.parametrize(("moment", "counted"), [("before", 2), ("after", 3)])
def test_a_killed_server_loses_no_release_that_was_seen(tmp_path, moment, counted):
    command = [sys.executable, "-m", "tests.integrations.flower.accounted", str(tmp_path), moment]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == -9
    seen = int((tmp_path / "seen").read_text())
    found = Accountant(accounted.CONFIG, state=tmp_path / "state.json")
    assert seen == 2 and found.num_releases == counted
    started(found, rounds=1)
    assert json.loads((tmp_path / "state.json").read_text())["compositions"][0]["count"] == (
        counted + 1
    )


def test_one_accountant_for_one_file(tmp_path):
    file = tmp_path / "state.json"
    first = Accountant(accounted.CONFIG, state=file)
    first.compose(EVENT)
    with pytest.raises(LedgerError, match="being written"):
        Accountant(accounted.CONFIG, state=file)
    with pytest.raises(ParameterError, match="loaded before a release"):
        first.load_state_dict(Accountant(accounted.CONFIG).state_dict())
    file.write_text(file.read_text().replace(": 1", ": 2") + " ")
    with pytest.raises(LedgerError, match="was changed or removed"):
        first.compose(EVENT)
    del first
    file.write_text("{")
    with pytest.raises(ParameterError, match="a file of an accountant's state"):
        Accountant(accounted.CONFIG, state=file)


def test_an_accountant_for_flowers_own_strategies(tmp_path):
    config = PrivacyConfig(
        1e-5, 1000, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.POISSON, 3.0
    )
    event = GaussianPrivacyEvent(1.0, 10, 1000)
    ours, theirs = Accountant(config), RdpAccountant(config)
    for one in (ours, theirs):
        one.compose(event, 100)
    assert ours.num_releases == 100
    assert 0 < ours.get_epsilon(1e-5) < theirs.get_epsilon(1e-5)
    assert ours.get_delta(ours.get_epsilon(1e-5)) <= 1.001e-5
    assert not ours.would_exceed(event) and ours.would_exceed(event, count=10**5)
    fresh = Accountant(config)
    fresh.load_state_dict(theirs.state_dict())
    assert fresh.get_privacy_spent() == ours.get_privacy_spent()
    file = tmp_path / "state.json"
    file.write_text(json.dumps(ours.state_dict()))
    assert fp.audit(file).verdict == "HOLDS"
    with pytest.raises(ParameterError, match="population"):
        ours.compose(GaussianPrivacyEvent(1.0, 10, 999))
