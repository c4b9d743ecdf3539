"""Projected averaging: the loop runs as it is priced, recorded and refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedprivacy as fp
from fedprivacy.systems.fed_plt.agents import LinearLoss
from fedprivacy.training import (
    AgentData,
    LeastSquares,
    Logistic,
    ProjectedAveraging,
    load,
    save,
)

pytestmark = pytest.mark.usefixtures("one_thread")
N, D, RECORDS = 40, 3, 6


def data(seed=0, clients=N, long=1.0):
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(clients):
        features = long * generator.normal(size=(generator.integers(1, RECORDS + 1), D))
        found.append((features, np.sign(features @ [1.0, -2.0, 0.5])))
    return AgentData.of(found)


def loop(**options):
    options = {
        "loss": Logistic(feature_bound=1.0),
        "clients": N,
        "records": RECORDS,
        "dimension": D,
        "rounds": 50,
        "local_steps": 4,
        "learning_rate": 2.0,
        "noise_std": 0.3,
        "radius": 4.0,
        "cohorts": fp.FixedSize(10, N),
        "denominator": 10.0,
        "seed": 5,
    } | options
    return ProjectedAveraging(**options)


def test_it_learns_and_stays_in_the_ball():
    run, clients = loop(noise_std=0.02, radius=6.0), data()
    state, info = run.step(run.init(), clients)
    outputs = torch.cat([x[:n] @ state.parameters for x, n in each(clients)])
    targets = torch.cat([y[:n] for y, n in zip(clients.targets, clients.records, strict=True)])
    assert (torch.sign(outputs) == targets).double().mean() > 0.9
    assert torch.linalg.vector_norm(state.parameters) <= 6.0
    assert (state.round, info.arrived, info.refused) == (1, 1, 0)


def each(clients):
    return zip(clients.features, clients.records, strict=True)


COHORTS = {
    "poisson": {"cohorts": fp.Poisson(0.2), "denominator": 40.0},
    "fixed": {"cohorts": fp.FixedSize(10, N), "denominator": 10.0},
    "truncated": {"cohorts": fp.TruncatedPoisson(0.2, N, 16), "denominator": 16.0},
    "in order": {"cohorts": fp.FixedEpochs(4), "denominator": 10.0},
}


@pytest.mark.parametrize("kind", COHORTS)
def test_cohorts_are_priced_as_they_run(kind):
    run = loop(**COHORTS[kind])
    assert run.round_mechanism == fp.HiddenAveraging(
        local_steps=4,
        learning_rate=2.0,
        gradient_norm=1.0,
        smoothness=0.25,
        noise_std=0.3,
        rounds=50,
        radius=4.0,
        population=N if kind == "poisson" else None,
        dimension=D,
        **COHORTS[kind],
    )


@pytest.mark.parametrize("kind", COHORTS)
def test_the_cohorts_of_a_release(kind, monkeypatch):
    """Sizes, members and order of the cohorts that train."""
    clients, seen = data(), []
    own = clients.features[:, 0, 0].tolist()

    def gradient(self, points, batch, clip_norm=None):
        assert clip_norm == pytest.approx(1e3)
        seen.append([own.index(x) for x in batch.features[:, 0, 0].tolist()])
        return torch.zeros_like(points)

    monkeypatch.setattr(Logistic, "gradient", gradient)
    loss = Logistic(feature_bound=1e3)
    run = loop(**COHORTS[kind], loss=loss, local_steps=1, learning_rate=1e-6, rounds=400)
    run.step(run.init(), clients)
    assert all(len(set(rows)) == len(rows) for rows in seen)
    if kind == "in order":
        assert seen[:5] == [list(range(k % 4, N, 4)) for k in range(5)]
        return
    sizes = np.array([len(rows) for rows in seen])
    drawn = np.bincount(np.concatenate([np.array(rows, int) for rows in seen]), minlength=N)
    share = 0.25 if kind == "fixed" else 0.2
    # Six standard deviations of a fixed seed's draws.
    assert np.abs(drawn - 400.0 * share).max() < 6.0 * 8.7
    assert sizes.max() <= {"fixed": 10, "truncated": 16, "poisson": N}[kind]
    assert (sizes.std() == 0.0) == (kind == "fixed")


def test_a_round_is_the_mean_of_the_clients_moves():
    """By hand: full gradients of each client's mean loss, over 10."""
    run, clients = loop(cohorts=fp.FixedEpochs(4)), data()
    ready, point = run.loss.prepared(clients), torch.tensor([0.3, -0.2, 1.0]).double()
    total = torch.zeros(D).double()
    for client in range(0, N, 4):
        count = clients.records[client]
        x, y = ready.features[client, :count], ready.targets[client, :count].double()
        own = point
        for _ in range(4):
            own = own + 2.0 * ((y * torch.sigmoid(-y * (x @ own)))[:, None] * x).mean(dim=0)
        total += own - point
    found = run._moved(point, ready.only(torch.arange(0, N, 4)))
    torch.testing.assert_close(found, point + total / 10.0)


def test_a_client_moves_a_round_by_at_most_the_priced_distance():
    """Long features are cut inside the loop."""
    run, one = loop(cohorts=fp.FixedEpochs(4)), data(long=100.0)
    move = run.round_mechanism.largest_move / 10.0
    generator, largest = torch.Generator().manual_seed(1), 0.0
    for seed in range(20):
        point = 4.0 * torch.randn(D, generator=generator).double()
        ready = run.loss.prepared(one)
        with_it = run._moved(point, ready.only(torch.arange(10)))
        without = run._moved(point, ready.only(torch.arange(1, 10)))
        largest = max(largest, float(torch.linalg.vector_norm(with_it - without)))
        one = data(seed, long=100.0)
    assert 0.2 * move < largest <= move


def test_rounds_move_no_two_points_apart():
    """At the largest allowed step sizes; local steps a fifth longer do."""
    generator, longer = torch.Generator().manual_seed(3), 0.0
    # All records are equal, so the loss has the largest curvature.
    clients = AgentData.of([(0.999 * np.eye(D)[:1], np.ones(1))] * N)
    for size in (8.0, 9.6):
        options = {"local_steps": 1, "learning_rate": 8.0, "radius": 40.0}
        run = loop(cohorts=fp.FixedEpochs(1), denominator=N, **options)
        object.__setattr__(run, "learning_rate", size)
        ready = run.loss.prepared(clients)
        for _ in range(300):
            pair = 0.2 * torch.randn(2, D, generator=generator).double()
            ends = [run.projected(run._moved(x, ready)) for x in pair]
            apart = torch.linalg.vector_norm(pair[0] - pair[1])
            ratio = float(torch.linalg.vector_norm(ends[0] - ends[1]) / apart)
            if size == 8.0:
                assert ratio <= 1.0 + 1e-12
            longer = max(longer, ratio)
    assert longer > 1.1


def test_the_noise_of_a_round_is_what_the_account_assumes():
    run = loop(rounds=1, radius=1e3, cohorts=fp.FixedEpochs(4))
    ends = torch.stack(
        [replace(run, seed=k).step(run.init(), data())[0].parameters for k in range(200)]
    )
    assert float(ends.std(dim=0).mean()) == pytest.approx(0.3, rel=0.12)
    assert run.step(run.init(), data())[1].noise_std == pytest.approx(0.3 * 10.0)


@pytest.mark.usefixtures("narrowest")
@pytest.mark.parametrize(
    ("kind", "adjacency"),
    [("poisson", "add_remove"), ("fixed", "zero_out"), ("in order", "replace_one")],
)
def test_its_record_is_audited(kind, adjacency, tmp_path):
    path, run = tmp_path / "run.ledger", loop(**COHORTS[kind], seed=None)
    with fp.Ledger.create(path, unit="client", adjacency=adjacency) as ledger:
        state, _ = run.step(run.init(), data(), ledger=ledger)
        run.step(state, data(), ledger=ledger)
        ledger.close()
    planned = fp.epsilon(run.round_mechanism * 2, delta=1e-5, adjacency=adjacency)
    assert fp.account(path, delta=1e-5).upper == planned.upper
    assert fp.audit(path, claim=(planned.upper, 1e-5)).verdict == "HOLDS"
    assert fp.audit(path, claim=(0.5 * planned.upper, 1e-5)).verdict == "CANNOT BE CERTIFIED"


@pytest.mark.usefixtures("narrowest")
@pytest.mark.parametrize(
    ("clip_norm", "denominator"), [(16.0, 10.0), (8.0, 5.0), (4.0, 10.0), (8.0, 10.0)]
)
def test_a_ledger_of_other_moves_than_priced_does_not_hold(clip_norm, denominator, tmp_path):
    run, path = loop().round_mechanism, tmp_path / "run.ledger"
    on_sum = run.noise_std / run.server_learning_rate * run.denominator
    with fp.Ledger.create(path, unit="client", adjacency="zero_out") as ledger:
        number = ledger.intent(run, clip_norm=clip_norm, noise_std=on_sum)
        ledger.done(
            number, cohort=1, arrived=1, refused=0, noise_std=on_sum, denominator=denominator
        )
        ledger.close()
    planned = fp.epsilon(run, delta=1e-5, adjacency="zero_out").upper
    holds = clip_norm <= 8.0 and denominator == 10.0
    verdict = fp.audit(path, claim=(planned, 1e-5)).verdict
    assert verdict == ("HOLDS" if holds else "CANNOT BE CERTIFIED")


def test_a_seed_repeats_a_run_and_a_checkpoint_continues_it(tmp_path):
    run = loop()
    first, _ = run.step(run.init(), data())
    assert torch.equal(first.parameters, run.step(run.init(), data())[0].parameters)
    second, _ = run.step(first, data())
    save(tmp_path / "state.pt", first)
    loaded = load(tmp_path / "state.pt", first)
    assert torch.equal(run.step(loaded, data())[0].parameters, second.parameters)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": Logistic()}, "feature_bound"),
        ({"loss": Logistic(feature_bound=1.0, regularisation=0.1)}, "without a regulariser"),
        ({"loss": LeastSquares(feature_bound=1.0)}, "bounded gradients"),
        ({"learning_rate": 8.1}, "learning_rate must be at most 2 / smoothness"),
        (
            {"server_learning_rate": 1.5},
            "server_learning_rate must be at most 1, denominator over the largest cohort",
        ),
        ({"radius": 1e-170}, "radius must be between"),
        ({"rounds": 0}, "rounds"),
        ({"noise_std": 1e-6}, "noise_std must be at least"),
        ({"noise_std": 1e7}, "rounding of a step must be below"),
        ({"cohorts": fp.FixedSize(10, N + 1)}, "have population = clients"),
        ({"cohorts": fp.FixedEpochs(2)}, "denominator must be at least 20"),
        ({"cohorts": fp.FixedEpochs(4, apart=True)}, "cohorts must not state apart"),
    ],
)
def test_settings_without_an_account(options, message):
    with pytest.raises((fp.ParameterError, fp.UnsupportedCombination), match=message):
        loop(**options)


class Weighted(LinearLoss):
    """Logistic, of weighted classes: constants hold for weights up to 1 only."""

    link_smoothness = 0.25

    def slope(self, outputs, targets):
        return -targets * torch.sigmoid(-targets * outputs)

    def bend(self, outputs, targets):
        return targets**2 * torch.sigmoid(outputs) * torch.sigmoid(-outputs)

    def sensitivity(self, records):
        return 2.0 * self.feature_bound / records


class Louder:
    def gradient(self, *arguments):
        return 100.0 * super().gradient(*arguments)


class LouderLogistic(Louder, Logistic):
    """The gradient of a mixin, with the constants of another one."""


class Steep(Weighted):
    """Beyond the outputs at which a link is tested, its slope leaves the stated range."""

    link_smoothness = 0.25

    def slope(self, outputs, targets):
        return torch.where(outputs.abs() > 50.0, outputs, super().slope(outputs, targets))

    def sensitivity(self, records):
        return 2.0 * self.feature_bound / records


def test_targets_without_stated_constants_are_refused():
    clients = data()
    clients.targets[0, 0] = -50.0
    run = loop(loss=Weighted(feature_bound=1.0))
    with pytest.raises(fp.ParameterError, match="targets must be from -1 to 1"):
        run.step(run.init(), clients)


def test_a_mixin_does_not_inherit_the_constants_of_a_loss():
    assert LouderLogistic(feature_bound=1.0).sensitivity(1) is None
    with pytest.raises(fp.UnsupportedCombination, match="bounded gradients"):
        loop(loss=LouderLogistic(feature_bound=1.0))


def test_a_gradient_above_the_stated_norm_is_cut():
    run = loop(loss=Steep(feature_bound=1.0), radius=1e3, cohorts=fp.FixedEpochs(4))
    ready, point = run.loss.prepared(data(long=9.0)), torch.tensor([600.0, -600.0, 0.0]).double()
    moved = run._moved(point, ready.only(torch.arange(1))) - point
    assert 0.0 < torch.linalg.vector_norm(moved) <= run.round_mechanism.largest_move / 10.0


def test_arguments_that_do_not_fit(tmp_path):
    run = loop()
    with pytest.raises(fp.ParameterError, match=r"data\.agents must be the declared number"):
        run.step(run.init(), data(clients=N - 1))
    with pytest.raises(fp.ParameterError, match=r"data\.records must be at most"):
        loop(records=2).step(run.init(), data())
    for unit, adjacency, word in (("record", "zero_out", "unit"), ("client", "add_remove", "n")):
        with (
            fp.Ledger.create(tmp_path / unit, unit=unit, adjacency=adjacency) as ledger,
            pytest.raises(fp.ParameterError, match=word),
        ):
            loop(seed=None).step(run.init(), data(), ledger=ledger)


def test_fewer_clients_than_the_limit_train_under_poisson():
    run = loop(**COHORTS["poisson"])
    assert run.step(run.init(), data(clients=N // 2))[1].arrived == 1
    # A round without clients is noise.
    assert loop(**COHORTS["poisson"] | {"cohorts": fp.Poisson(1e-9)}).step(run.init(), data())
