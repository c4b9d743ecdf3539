"""SCAFFOLD: its steps without noise, the cost of a private round, and the server's view."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.errors import ParameterError, UnsupportedCombination  # noqa: E402
from fedprivacy.ledger import Ledger  # noqa: E402
from fedprivacy.training import FederatedAveraging, Scaffold, digits, logistic, train  # noqa: E402

CLIENTS, STEPS, RATE, SERVER = 10, 3, 0.4, 0.7


def bent():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10))


def data():
    return digits(clients=CLIENTS, public=1500, test=200)


def loop(kind=Scaffold, **changed):
    given = {"model": logistic(64, 10), "scheme": fp.Everyone(), "local_steps": STEPS, "seed": 3}
    given |= {"batch_size": 1000, "learning_rate": RATE, "server_learning_rate": SERVER}
    return kind(**{**given, "device": "cpu", **changed})


def gaussian(noise=1.0, clip=0.05):
    return fp.Gaussian(noise_multiplier=noise, clip_norm=clip, unit="client")


def by_hand(model, cohorts, records, start):
    """Return the parameters after rounds of Algorithm 1 of Karimireddy et al. (2020), option II."""
    module = model()
    point, common = start.clone(), torch.zeros_like(start)
    own = torch.zeros(CLIENTS, len(start))
    for cohort in cohorts:
        moved, turned = torch.zeros_like(start), torch.zeros_like(start)
        for client in cohort:
            rows, at = torch.from_numpy(records.clients[client]), point.clone()
            for _ in range(STEPS):
                nn.utils.vector_to_parameters(at.clone(), module.parameters())
                scores = module(records.features[rows])
                loss = functional.cross_entropy(scores, records.labels[rows])
                slopes = torch.autograd.grad(loss, list(module.parameters()))
                slope = torch.cat([part.reshape(-1) for part in slopes])
                at = at - RATE * (slope + common - own[client])
            change = (point - at) / (STEPS * RATE) - common
            moved, turned = moved + point - at, turned + change
            own[client] = own[client] + change
        point = point - SERVER * moved / len(cohort)
        common = common + turned / CLIENTS
    return point, common, own


@pytest.mark.parametrize(
    ("model", "scheme"),
    [(logistic(64, 10), fp.FixedSize(4, population=CLIENTS)), (bent, fp.Everyone())],
    ids=["dense", "any"],
)
def test_without_noise_it_is_scaffold(model, scheme):
    own, records = loop(model=model, scheme=scheme), data()
    state, cohorts = own.init(), []
    start = state.parameters
    for _ in range(4):
        state, _ = own.step(state, records, dropout=lambda cohort: cohorts.append(cohort) or ())
    point, common, controls = by_hand(model, cohorts, records, start)
    torch.testing.assert_close(state.parameters, point, rtol=0, atol=2e-6)
    torch.testing.assert_close(state.control, common, rtol=0, atol=2e-5)
    torch.testing.assert_close(state.controls.view(CLIENTS, -1), controls, rtol=0, atol=2e-5)
    # The variates do something: plain averaging ends elsewhere.
    plain = loop(FederatedAveraging, model=model, scheme=scheme)
    other = train(plain, records, rounds=4).state.parameters
    assert (other - point).abs().max() > 1e-3


def test_a_wide_layer_is_moved_too():
    """Its weight would be kept as factors, which know of no drift."""

    def wide():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 1200), nn.Tanh(), nn.Linear(1200, 10))

    records = digits(clients=CLIENTS, public=1580, test=200)
    own = loop(model=wide)
    state = own.init()
    start = state.parameters
    for _ in range(2):
        state, _ = own.step(state, records)
    point, *_ = by_hand(wide, [range(CLIENTS)] * 2, records, start)
    torch.testing.assert_close(state.parameters, point, rtol=0, atol=1e-5)


def test_a_private_round_is_that_of_dp_fedavg(tmp_path):
    spent = []
    for kind in (Scaffold, FederatedAveraging):
        path = tmp_path / f"{kind.__name__}.jsonl"
        facts = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}
        with Ledger.create(path, **facts) as ledger:
            private = loop(kind, scheme=fp.Poisson(0.5), perturbation=gaussian())
            train(private, data(), rounds=3, ledger=ledger)
            ledger.close()
        spent.append(fp.account(path, delta=1e-3).upper)
    assert spent[0] == spent[1]


def test_the_servers_variate_follows_from_what_was_released():
    """Recomputed only from public numbers, from round to round: no second sum is released."""
    private = loop(scheme=fp.Poisson(0.5), perturbation=gaussian(0.5), learning_rate_decay=0.9)
    state, control = private.init(), torch.zeros(650)
    for _ in range(3):
        following, _ = private.step(state, data())
        average = (state.parameters - following.parameters) / SERVER
        control += 0.5 * (average / (STEPS * state.learning_rate) - control)
        torch.testing.assert_close(following.control, control, rtol=0, atol=1e-6)
        state = following


def test_clients_go_on_from_their_clipped_updates():
    clip = 0.01
    private = loop(perturbation=gaussian(1e-6, clip))
    state, _ = private.step(private.init(), data())
    norms = state.controls.view(CLIENTS, -1).norm(dim=1) * STEPS * RATE
    assert torch.all(norms <= clip * (1 + 1e-6)) and torch.all(norms > 0.99 * clip)
    # All of them clipped: their mean is the server's variate.
    mean = state.controls.view(CLIENTS, -1).mean(dim=0)
    torch.testing.assert_close(state.control, mean, rtol=0, atol=1e-6)


def test_it_goes_on_from_a_checkpoint(tmp_path):
    private = loop(scheme=fp.Poisson(0.5), perturbation=gaussian())
    whole = train(private, data(), rounds=4).state
    at = tmp_path / "state.pt"
    train(private, data(), rounds=2, checkpoint=at)
    resumed = train(private, data(), rounds=4, checkpoint=at).state
    for name in ("parameters", "control", "controls"):
        assert torch.equal(getattr(resumed, name), getattr(whole, name))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"local_steps": None, "local_epochs": 1}, "local_steps must be given"),
        ({"momentum": 0.5}, "momentum must be 0"),
        ({"processes": 2}, "processes must be 1"),
        ({"scheme": fp.WithReplacement(4, population=CLIENTS)}, "draw no client twice in SCAFFOLD"),
        (
            {"perturbation": fp.AdaptiveClipping(noise_multiplier=1.0, unit="client")},
            "be Gaussian or None",
        ),
    ],
)
def test_what_is_refused(changed, told):
    with pytest.raises(ParameterError, match=told):
        loop(**changed)


def test_schemes_that_draw_clients_together_are_refused_with_noise():
    scheme = fp.FixedSize(4, population=CLIENTS)
    with pytest.raises(
        UnsupportedCombination, match="clients store the rounds of their participation, and"
    ):
        loop(scheme=scheme, perturbation=gaussian())


def test_add_remove_is_refused(tmp_path):
    private = loop(scheme=fp.Poisson(0.5), perturbation=gaussian(), expected_cohort=5)
    facts = {"unit": "client", "adjacency": "add_remove", "seed_policy": "fixed"}
    with (
        Ledger.create(tmp_path / "run.jsonl", **facts) as ledger,
        pytest.raises(ParameterError, match="add_remove"),
    ):
        private.step(private.init(), data(), ledger=ledger)
    assert not ledger.rounds


@pytest.mark.parametrize("clients", [5, 12])
def test_memories_are_of_their_own_clients(clients, tmp_path):
    """Others had no c_i in the state, or somebody else's, which a round found out."""
    own = loop(perturbation=gaussian(), seed=None)
    state, _ = own.step(own.init(), data())
    with Ledger.create(tmp_path / "run.ledger", unit="client", adjacency="zero_out") as ledger:
        with pytest.raises(ParameterError, match=r"state\.controls must have shape"):
            own.step(state, digits(clients=clients, public=1500, test=200), ledger=ledger)
        assert ledger.begun_rounds == 0
