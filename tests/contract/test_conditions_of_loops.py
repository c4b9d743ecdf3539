"""Conditions of an account that only the training loop can check."""

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted, ParameterError, UnsupportedCombination

torch = pytest.importorskip("torch")

from fedprivacy import training as t  # noqa: E402

STEP = fp.Gaussian(noise_multiplier=1.0, clip_norm=1.0, unit="client")


def averaging(**options):
    made = {"model": t.logistic(64, 10), "scheme": fp.Everyone(), "perturbation": STEP}
    return t.FederatedAveraging(**made | {"local_steps": 1, "device": "cpu"} | options)


@pytest.fixture(scope="module")
def digits():
    return t.digits(clients=20)


# ---- curvature


def langevin(target, convexity, smoothness):
    return t.LangevinSampling(
        target=target,
        step_size=2e-3,
        local_steps=30,
        strong_convexity=convexity,
        smoothness=smoothness,
    )


def test_a_softmax_regression_is_as_convex_as_its_prior(digits):
    """A shift of all classes' scores has no effect: without a prior the curvature is 0."""
    model = t.SoftmaxRegression(64, 10)
    for precision, convexity in ((0.0, 20_000.0), (1.0, 1.5)):
        target = t.Posterior(
            model=model, data=digits, prior_precision=precision, own_sensitivity=15.0
        )
        with pytest.raises(
            ParameterError, match=f"be at most {precision:g}, the value of the target"
        ):
            langevin(target, convexity, 60_000.0)
    langevin(target, 1.0, 600.0)


def test_records_of_zeros_show_a_likelihood_s_curvature():
    """The Gaussian target once more, as a function: .258 of 1.304."""

    def target(clients):
        return t.Posterior.of(
            lambda p, x: -(p - x).square().sum(-1) / 2,
            clients=clients,
            dimension=1,
            prior_precision=0.0,
            own_sensitivity=2.0,
        )

    ten = target([np.array([[1.0]] + [[0.0]] * 9)])
    langevin(ten, 10.0, 10.0)
    with pytest.raises(ParameterError, match="strong_convexity must be at most 10"):
        langevin(ten, 400.0, 500.0)
    with pytest.raises(ParameterError, match=r"smoothness must be at least 9\.99"):
        langevin(ten, 5.0, 9.0)
    # Functions of clients represent all records: two of 5 have the curvature of 10.
    assert target([np.zeros((5, 1))] * 2).curvature == pytest.approx((10.0, 10.0), rel=2e-3)


# ---- drawn clients, and spent rounds


def test_clients_that_take_each_other_s_place_are_not_apart():
    """Two of three in every round: HOLDS at 4.377 under add_remove, and 6.22 is attained."""
    noise = fp.CorrelatedNoise(
        factor=fp.factors.Identity(),
        noise_multiplier=10.0,
        rounds=100,
        clip_norm=1.0,
        unit="client",
        participation=fp.MinimumSeparation(1, apart=True),
    )
    with pytest.raises(
        ParameterError, match="draw every client independently for a participation with"
    ):
        averaging(scheme=fp.FixedSize(2, population=2), perturbation=noise)
    for scheme in (fp.Everyone(), fp.Poisson(0.5)):
        averaging(scheme=scheme, perturbation=noise)


def test_a_budget_alone_does_not_go_on_with_a_checkpoint(tmp_path, digits):
    """Started three times, a budget of 8 let 33 rounds out, which cost 15.18."""
    loop, ask = averaging(scheme=fp.Poisson(0.5)), {"delta": 1e-3, "adjacency": "zero_out"}
    for other in (loop, averaging(scheme=fp.Poisson(0.5), perturbation=None)):
        path = tmp_path / f"{other.perturbation is None}.pt"
        t.train(other, digits, rounds=2, checkpoint=path)
        with pytest.raises(ParameterError, match="ledger must be given with a budget"):
            t.train(loop, digits, rounds=4, checkpoint=path, budget=fp.Budget(8.0, **ask))
    # Nor can another budget continue from a state.
    state, budget = loop.init(), fp.Budget(8.0, **ask)
    for _ in range(2):
        state, _ = loop.step(state, digits, budget=budget)
    with pytest.raises(ParameterError, match="ledger must be given with a budget"):
        loop.step(state, digits, budget=fp.Budget(8.0, **ask))
    loop.step(state, digits, budget=budget)
    # Rounds of another model do not replace those before this state: 2.808, the truth is 3.753.
    other, spent = loop.init(), fp.Budget(8.0, **ask)
    for _ in range(2):
        other, _ = loop.step(other, digits, budget=spent)
    with pytest.raises(ParameterError, match="ledger must be given with a budget"):
        loop.step(state, digits, budget=spent)
    # This very budget knows its rounds, from a file too.
    for rounds in (1, 2):
        t.train(loop, digits, rounds=rounds, checkpoint=tmp_path / "own", budget=budget)
    # A new one has no rounds before it.
    t.train(loop, digits, rounds=1, checkpoint=tmp_path / "new", budget=fp.Budget(8.0, **ask))


@pytest.mark.parametrize("kind", ["averaging", "langevin", "splitting"])
def test_what_no_theorem_prices_is_refused_before_a_round(tmp_path, digits, kind):
    """Two rounds were released under facts that fp.account then refused."""
    facts = {"unit": "record", "adjacency": "zero_out"}
    if kind == "averaging":
        facts = {"unit": "client", "adjacency": "add_remove", "observer": "server"}
        loop, data = averaging(scheme=fp.Poisson(0.5), expected_cohort=10), digits
    elif kind == "langevin":
        target = t.Posterior(model=t.SoftmaxRegression(64, 10), data=digits, clip_norm=1.0)
        loop, data = t.LangevinSampling(target=target, step_size=1e-5), None
    else:
        data = t.AgentData.of([(np.eye(2), [1.0, -1.0])] * 2)
        solver = t.LocalSolver(
            method="noisy", steps=2, step_size=0.1, noise_scale=1.0, clip_norm=1.0
        )
        loss = t.Logistic(regularisation=0.5)
        loop = t.FederatedSplitting.on(data, loss=loss, solver=solver, penalty=1.0)
    with (
        fp.Ledger.create(tmp_path / "l", **facts) as ledger,
        pytest.raises(UnsupportedCombination),
    ):
        t.train(loop, data, rounds=1, ledger=ledger)
    assert not fp.Ledger.open(tmp_path / "l").rounds


def test_a_round_without_a_server_rate_is_refused_before_it_is_spent(digits):
    """An IndexError came after the budget was charged: 4.845 for one round of 3.139."""
    budget = fp.Budget(100.0, 1e-3, adjacency="zero_out")
    with pytest.raises(ParameterError, match="have one rate per round, not 1"):
        t.train(averaging(server_rates=(1.0,)), digits, rounds=2, budget=budget)
    one = fp.epsilon(averaging().round_mechanism, delta=1e-3, adjacency="zero_out")
    assert budget.spent().upper == pytest.approx(one.upper, rel=1e-3)
    for rates, rule in (
        (0.5, "be a sequence"),
        ((1e300,), "with server_learning_rate \\(single precision\\)"),
    ):
        with pytest.raises(ParameterError, match=rule):
            averaging(server_rates=rates)


# ---- a client's update is its own


@pytest.mark.fast_cells("1-32-35", "16-8-3")
@pytest.mark.parametrize(("inputs", "width", "seed"), [(784, 32, 341), (1, 32, 35), (16, 8, 3)])
def test_one_client_moves_the_sum_by_no_more_than_the_clip_norm(inputs, width, seed):
    """A client in a group of one was rounded differently: by up to 1.71 clip norms with threads."""
    size, norm, rng = 20, 0.1, np.random.default_rng(seed)
    features = torch.tensor(3 * rng.normal(size=(2 * size, inputs)), dtype=torch.float32)
    labels = torch.tensor(rng.integers(0, 10, 2 * size))

    def model():
        torch.manual_seed(0)
        return t.mlp(inputs, 10, hidden=(width,))()

    def total(*clients):
        data = t.FederatedData(features=features, labels=labels, clients=clients, num_classes=10)
        loop = averaging(
            model=model,
            expected_cohort=2,
            local_steps=200,
            learning_rate=0.2,
            momentum=0.9,
            perturbation=fp.Gaussian(noise_multiplier=1.0, clip_norm=norm, unit="client"),
        )
        return loop._collect(loop.init(), data, None).total

    one, two = range(size), range(size, 2 * size)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            both = total(one, two)
            for alone in (one, two):
                assert float((both - total(alone)).norm()) <= norm
    finally:
        torch.set_num_threads(before)


def test_a_mask_is_no_list_of_clients(digits):
    """True and False were clients 1 and 0: ten silent clients were summed, two were left out."""
    loop = averaging()
    for told in (lambda cohort: cohort >= 10, lambda _: [1.5], lambda _: [20], lambda _: [-1]):
        with pytest.raises(ParameterError, match="dropout must return client numbers"):
            t.train(loop, digits, rounds=1, dropout=told)
    half = t.train(loop, digits, rounds=1, dropout=lambda cohort: cohort[cohort >= 10])
    assert half.history[0].arrived == 10
    for told in (lambda _: None, lambda _: 3):
        with pytest.raises(ParameterError, match="return \\[\\] if all clients answer"):
            t.train(loop, digits, rounds=1, dropout=told)
    mixed = [np.uint64(1), np.int64(2), torch.tensor(3), 4]
    for told in (mixed, {*range(4)}, torch.arange(4), np.arange(4)):
        some = t.train(loop, digits, rounds=1, dropout=lambda _, told=told: told)
        assert some.history[0].arrived == 16
    none = t.train(loop, digits, rounds=1, dropout=lambda _: [])
    assert none.history[0].arrived == 20


def test_agents_that_are_silent_are_those_that_were_named():
    """A mask said that agents 2 to 5 are silent: they took part, and 0 and 1 were left out."""
    data = t.AgentData.of([(np.eye(2), [1.0, -1.0])] * 6)
    solver = t.LocalSolver(method="noisy", steps=2, step_size=0.1, noise_scale=1.0, clip_norm=1.0)
    loss = t.Logistic(regularisation=0.5)
    loop = t.FederatedSplitting.on(data, loss=loss, solver=solver, penalty=1.0)
    for told in (lambda c: c >= 2, lambda _: [-1], lambda _: [1.5], lambda _: [20]):
        with pytest.raises(ParameterError, match="dropout must return client numbers"):
            t.train(loop, data, rounds=1, dropout=told)
    found = t.train(loop, data, rounds=1, dropout=lambda c: c[c >= 2])
    assert found.history[0].arrived == 2 and not found.state.models[2:].any()


# ---- user-defined losses


def test_a_link_of_one_s_own_has_numbers_of_its_own():
    """Positives five times: a record moves the gradient by .5, and .2 was priced."""
    with pytest.raises(ParameterError, match="define its own link_smoothness and sensitivity"):

        class Weighted(t.Logistic):
            def slope(self, outputs, targets):
                return super().slope(outputs, targets) * torch.where(targets > 0, 5.0, 1.0)

    class Heavy(t.Logistic):
        link_smoothness = 1.25

        def slope(self, outputs, targets):
            return super().slope(outputs, targets) * torch.where(targets > 0, 5.0, 1.0)

        def sensitivity(self, records):
            return super().sensitivity(records)

    Heavy(regularisation=0.1)
    with pytest.raises(ParameterError, match="keep the distance of two records' gradients within"):
        Heavy(regularisation=0.1, feature_bound=1.0)


def test_gradients_of_opposed_records_are_apart_by_twice_the_slope():
    """Slopes from 0 to 1 with a sensitivity of R / q: .82 of 1.747."""

    class OneSided(t.Logistic):
        link_smoothness = 0.25

        def slope(self, outputs, targets):
            return torch.sigmoid(outputs + 5)

        def sensitivity(self, records):
            return self.feature_bound / records

    with pytest.raises(ParameterError, match="keep the distance of two records' gradients within"):
        OneSided(feature_bound=1.0)

    class Classes(t.Logistic):
        """Targets 0 and 1."""

        link_smoothness = 0.25
        link_targets = (0.0, 1.0)

        def slope(self, outputs, targets):
            return torch.sigmoid(outputs) - targets

        def sensitivity(self, records):
            return super().sensitivity(records)

    assert Classes(feature_bound=1.0).sensitivity(5) == 0.4


def test_gradients_of_one_s_own_inherit_no_guarantee():
    """Five times the gradient kept the sensitivity of one: 1.76 of 4.983."""

    class Weighted(t.Logistic):
        def gradient(self, points, data, clip_norm=None):
            return 5 * super().gradient(points, data, clip_norm)

    loss = Weighted(regularisation=0.1, feature_bound=1.0)
    assert loss.sensitivity(1) is None and not loss.contracts_clipped
    data = t.AgentData.of([([[1.0, 0.0]], [1.0])])
    solver = t.LocalSolver(method="noisy", steps=1, step_size=0.1, noise_scale=1.0)
    with pytest.raises(ParameterError, match=r"solver\.clip_norm must be given"):
        t.FederatedSplitting.on(data, loss=loss, solver=solver, penalty=1.0)


def test_a_link_that_is_not_convex_is_seen():
    """1 - exp(-r^2 / 2) was accounted by T6: mu 1.494 of 4.146."""

    class Welsch(t.LeastSquares):
        link_smoothness = 1.0

        def slope(self, outputs, targets):
            apart = outputs - targets
            return apart * torch.exp(-(apart**2) / 2)

        def sensitivity(self, records):
            return None

    with pytest.raises(ParameterError, match="increase with the output, as for a convex loss"):
        Welsch(feature_bound=10.0)

    class Steep(Welsch):
        link_smoothness = 0.5

        def slope(self, outputs, targets):
            return outputs - targets

        def sensitivity(self, records):
            return None

    with pytest.raises(ParameterError, match=r"increase by at most link_smoothness = 0\.5"):
        Steep()


# ---- input that is not what it should be


def softmax(data, classes):
    model = t.SoftmaxRegression(64, classes)
    return t.Posterior(model=model, data=data, clip_norm=1.0)


NUMBERS = np.ones((2, 2))


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda d: softmax(d, 9), "labels must have at most 9 classes"),
        (
            lambda _: softmax(t.FederatedData(features=torch.rand(2, 64), clients=([0, 1],)), 9),
            "labels must be",
        ),
        (
            lambda d: t.Posterior(model=t.SoftmaxRegression(63, 10), data=d),
            "data must have 63 numbers per record",
        ),
        (lambda _: t.Posterior(model=t.SoftmaxRegression(64, 10), data=[]), "be FederatedData"),
        (
            lambda _: t.Posterior.of(lambda p, x: x, clients={"a": NUMBERS}, dimension=1),
            "clients must be a sequence",
        ),
        (
            lambda _: t.AgentData.of([(np.ones((2, 3)), [1, 1]), (NUMBERS, [1, 1])]),
            r"agents\[1\] must contain features of shape \(records, 3\)",
        ),
        (lambda _: t.AgentData.of([([[1.0], [1.0, 2.0]], [1, 1])]), r"agents\[0\] must be a pair"),
        (lambda d: t.FederatedSplitting.on(d, loss=t.Logistic()), "data must be AgentData"),
        (
            lambda _: t.FederatedSplitting(loss=t.Logistic(), records=3, dimension=2),
            "records must be a sequence",
        ),
        (
            lambda _: t.FederatedSplitting(
                loss=t.Logistic(), records=(3,), dimension=2, constants=(1.0,)
            ),
            "constants must be two numbers",
        ),
        (lambda d: t.train(averaging(), d, rounds=1, budget=(8.0, 1e-5)), "budget must be a Bud"),
        (lambda d: t.train(averaging(), d, rounds=1, ledger="run"), "ledger must be a Ledger"),
        (lambda d: t.train(averaging(), d, rounds=1, dropout=0.1), "dropout must be a function"),
        (lambda _: t.train(averaging(), (NUMBERS, [1]), rounds=1), "data must be FederatedData"),
        (lambda _: averaging(device="gpu"), "device must be a device that torch finds"),
        (
            lambda _: averaging(device=torch.device("cpu")),
            "device must be a device that torch finds",
        ),
        (
            lambda d: t.Scaffold(
                model=t.logistic(64, 10), scheme=fp.Everyone(), local_steps=1
            ).step(averaging().init(), d),
            "state must be a ScaffoldState",
        ),
    ],
)
def test_input_of_another_kind_is_named(digits, ask, told):
    with pytest.raises(ParameterError, match=told):
        ask(digits)


def test_draws_that_never_moved_have_not_mixed():
    said = str(t.diagnose(torch.zeros(2, 30, 2)))
    assert said.startswith("do not use these draws: a chain hardly moved in 2 of 2 coordinates")


# ---- rounds that no book has


def books(tmp_path, epsilon=50.0):
    facts = {"unit": "client", "adjacency": "zero_out", "claim": (epsilon, 1e-3)}
    return fp.Ledger.create(tmp_path / "run.ledger", **facts)


def test_a_state_of_rounds_that_a_ledger_does_not_have_is_refused(tmp_path, digits):
    """An audit said HOLDS at 2.18 of 4.07: six rounds before the ledger's were in no book."""
    loop = averaging()
    state = loop.init()
    for _ in range(3):
        state, _ = loop.step(state, digits)
    rule = r"ledger must contain all 3 rounds of the state.*got 'one of 0 rounds'.*init\(\)"
    with books(tmp_path) as ledger:
        with pytest.raises(ParameterError, match=rule):
            loop.step(state, digits, ledger=ledger)
        assert ledger.begun_rounds == 0
        fresh, _ = loop.step(loop.init(), digits, ledger=ledger)
        loop.step(fresh, digits, ledger=ledger)


def test_a_live_round_with_less_noise_than_planned_is_charged_as_such(tmp_path, digits):
    """What a loop says that it drew decides, in the budget as in the audit."""
    loop = averaging()

    def step(state, left, **given):
        books_of = t.rounds.RoundBookkeeping(
            mechanism=loop.round_mechanism, clip_norm=1.0, noise_std=1.0, **given
        )

        def release(_):
            info = t.RoundInfo(
                round=state.round,
                cohort=20,
                arrived=20,
                refused=0,
                aborted=False,
                upload_bytes=0,
                noise_std=left,
                denominator=20.0,
            )
            return state, info

        return t.rounds.run_round(books_of, collect=lambda: None, release=release)

    with books(tmp_path) as ledger:
        budget = fp.Budget(500.0, 1e-3, adjacency="zero_out")
        step(loop.init(), 0.5, ledger=ledger, budget=budget)
        half = fp.Gaussian(noise_multiplier=0.5, unit="client")
        lost = fp.epsilon(STEP + half, delta=1e-3, adjacency="zero_out")
        assert budget.spent().upper == pytest.approx(lost.upper, rel=2e-3)
        step(loop.init(), 1.0, ledger=ledger, budget=budget)
        lost = fp.epsilon(STEP * 2 + half, delta=1e-3, adjacency="zero_out")
        assert budget.spent().upper == pytest.approx(lost.upper, rel=2e-3)
        assert fp.account(ledger, delta=1e-3).upper <= budget.spent().upper
    alone = fp.Budget(500.0, 1e-3, adjacency="zero_out")
    step(loop.init(), 0.5, ledger=None, budget=alone)
    lost = fp.epsilon(STEP + half, delta=1e-3, adjacency="zero_out")
    assert alone.spent().upper == pytest.approx(lost.upper, rel=2e-3)
    small = fp.Budget(5.0, 1e-3, adjacency="zero_out")
    step(loop.init(), 0.15, ledger=None, budget=small)
    # It was released, so it counts although it does not fit; no further round is allowed.
    assert small.spent().upper > 20.0
    with pytest.raises(BudgetExhausted):
        step(loop.init(), 1.0, ledger=None, budget=small)
    step(loop.init(), 0.0, ledger=None, budget=alone)
    assert not alone.allows(STEP)
    with pytest.raises(UnsupportedCombination, match="too little noise for a finite epsilon"):
        alone.spent()
    with pytest.raises(BudgetExhausted, match="the spent epsilon is unknown"):
        step(loop.init(), 1.0, ledger=None, budget=alone)
    # A filter with room for more lets no step through either.
    wide = fp.Budget(500.0, 1e-3, adjacency="zero_out", adaptive=True)
    step(loop.init(), 0.0, ledger=None, budget=wide)
    assert not wide.keeps([(STEP, 1)])


@pytest.mark.parametrize(
    "given, told",
    [
        ({"on_round": 5}, "on_round must be a function or None, got 5"),
        ({"on_release": 5}, "on_release must be a function or None, got 5"),
        ({"checkpoint": 5}, "checkpoint must be the path of a file, got 5"),
        ({"checkpoint": "no/such/x.pt"}, "checkpoint must be in an existing folder"),
    ],
)
def test_what_train_is_given_is_looked_at_before_a_round_is_spent(digits, given, told):
    budget = fp.Budget(50.0, 1e-3, adjacency="zero_out")
    with pytest.raises(ParameterError, match=told):
        t.train(averaging(), digits, rounds=1, budget=budget, **given)
    assert budget.spent() is None
