"""User-defined mechanisms and schemes work wherever built-in ones do."""

import json
import math
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from dp_accounting import dp_event

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant
from fedprivacy.errors import LedgerError
from fedprivacy.integrations.dp_accounting import to_event
from fedprivacy.ledger import REGISTRY
from fedprivacy.loss import Gdp, LaplacePair
from fedprivacy.mechanisms import Mechanism, Perturbation, Traits
from fedprivacy.mechanisms.rounded import noise_like
from fedprivacy.privacy_loss import PrivacyLoss, Witness
from fedprivacy.registry import KINDS, registered
from fedprivacy.systems.averaging.server import Server
from fedprivacy.training import FederatedAveraging, logistic, save_model, train
from fedprivacy.training.rounds import RoundBookkeeping, RoundInfo, run_round
from tests.systems.averaging.test_loop import small

ASK = {"adjacency": "zero_out"}


@registered
@dataclass(frozen=True)
class Coin(Mechanism):
    """Loses what a Gaussian of a given mu does."""

    mu: float

    protects = fp.Unit.CLIENT
    traits = Traits(zeroed_is_absent=True, zeroing_replaces=True)

    def loss_under(self, facts):
        return PrivacyLoss(Gdp(self.mu), facts, None, ("a coin",))

    def as_event(self):
        return dp_event.GaussianDpEvent(1.0 / self.mu)


@registered
@dataclass(frozen=True)
class Bounded(Mechanism):
    """A sum of numbers from [0, high] plus Laplace noise of scale 1."""

    high: float

    protects = fp.Unit.CLIENT
    traits = Traits(zeroed_is_absent=True, zeroing_replaces=True)

    def loss_under(self, facts):
        # A replaced number moves the sum by no more than an absent one.
        pair = LaplacePair(self.high)
        return PrivacyLoss(pair, facts, Witness(pair, "high or 0", free=True), ("Laplace noise",))


@registered
@dataclass(frozen=True)
class HalfThere:
    """Draws every unit with probability 1/2; who takes part is seen."""

    rate = 0.5
    independent_draws = True

    def amplify(self, inner, adjacency, observer):
        return self.group(inner.privacy_loss(adjacency, observer))

    def group(self, inner):
        return fp.Poisson(0.5).group(inner)

    def visible(self, inner, side=None):
        return fp.Poisson(0.5).visible(inner)

    def draw(self, population, generator):
        return np.flatnonzero(generator.random(population) < 0.5)

    def as_event(self, inner):
        return dp_event.PoissonSampledDpEvent(0.5, inner)


@registered
@dataclass(frozen=True)
class Loud(Perturbation):
    """Clips to 1/2 and adds noise of std 3: what a loop runs, written from scratch."""

    std: float = 3.0

    clip_norm = 0.5
    protects = fp.Unit.CLIENT
    traits = Traits(zeroed_is_absent=True, zeroing_replaces=True)

    @property
    def full_noise_std(self):
        return self.std

    def contribution(self, update, mask=None):
        assert mask is None
        return self.gridded(update)

    def noise(self, like, generator=None, *, shares=None):
        return noise_like(like, std=self.std, grid=self.grid, generator=generator), self.std

    def loss_under(self, facts):
        return PrivacyLoss(Gdp(0.5 / self.std), facts, None, ("a loud one",))


RUN = Coin(0.5).sampled(HalfThere()) * 3


def test_every_question_takes_them():
    bound = fp.epsilon(RUN, delta=1e-3, **ASK)
    assert 0.0 < bound.upper < fp.epsilon(Coin(0.5) * 3, delta=1e-3, **ASK).upper
    assert fp.epsilon(RUN, delta=1e-3, **ASK, accountant="rdp").upper >= bound.resolution[0]
    assert fp.delta(RUN, epsilon=bound.upper, **ASK).upper == pytest.approx(1e-3, rel=0.1)
    found = fp.calibrate(
        lambda mu: Coin(mu).sampled(HalfThere()), epsilon=1.0, delta=1e-3, **ASK, domain=(0.1, 4.0)
    )
    assert found.bound.upper <= 1.0
    risk = fp.attack_risk(RUN, **ASK, fpr=[0.01])
    assert 0.0 < risk.mu.upper <= 0.5 * math.sqrt(3.0) * (1.0 + 1e-9)
    budget = fp.Budget(bound.upper, 1e-3, **ASK)
    assert budget.keeps(RUN.sequence()) and not budget.allows(RUN.sequence()[0][0])
    assert fp.audit(RUN, claim=(bound.upper, 1e-3), **ASK).verdict == "HOLDS"
    assert fp.profile(RUN, epsilons=[0.0, 1.0], **ASK).upper[1] <= 1.0
    assert fp.tradeoff_curve(RUN, fpr=[0.01], **ASK) is not None
    assert fp.crosscheck(RUN, delta=1e-3, **ASK) is not None
    selected = fp.PrivateSelection(Coin(0.5), trials=fp.PoissonTrials(2.0))
    assert fp.epsilon(selected, delta=1e-3, **ASK).upper < math.inf


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_numbers_of_one_sign_are_not_taken_for_opposite_ones(q):
    """A Laplace sum has the same pair, and its units can also send -C."""
    found = fp.epsilon(Bounded(0.4).sampled(fp.Poisson(q)), delta=1e-9, adjacency="replace_one")
    # Log of the largest ratio of (1-q) N(0) + q N(high) to its neighbour (all at 0).
    largest = math.log1p(q * math.expm1(0.4))
    # Data sets at high and 0 lose this much, and none loses more than 0.4.
    assert found.lower <= 0.4
    assert largest - 1e-6 <= found.upper
    assert found.lower == pytest.approx(largest, abs=1e-6)
    opposite = fp.Laplace(noise_multiplier=2.5, unit="client").sampled(fp.Poisson(q))
    if q > 0.5:
        assert fp.epsilon(opposite, delta=1e-9, adjacency="replace_one").lower > 0.5


def test_they_are_attacked_and_tried_out():
    guessed = fp.attack(
        lambda included, chance: chance.normal(size=100), 100, runs=1, claim=RUN, **ASK
    )
    assert guessed.upper_certified is not None and guessed.verdict != "BUG ALARM"
    loop = FederatedAveraging(
        model=logistic(3, 2),
        scheme=HalfThere(),
        perturbation=Loud(),
        local_steps=1,
        expected_cohort=3,
    )
    assert fp.attack(loop, data=small(), canaries=3, runs=1).upper_certified is not None
    assert fp.verify(Loud(), pairs=20, draws=50)
    with pytest.raises(fp.ParameterError, match="release must be a mechanism that clips"):
        fp.verify(Coin(0.5))


def test_their_certificate_is_told_to_be_nobody_s_to_prove(tmp_path):
    written = json.dumps(fp.epsilon(RUN, delta=1e-3, **ASK).certificate())
    (tmp_path / "a.json").write_text(written)
    assert "is not covered" in checked(tmp_path / "a.json")


def checked(path):
    """Return the result of the stand-alone checker."""
    command = [sys.executable, "-m", "fedprivacy.check_certificate", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_less_noise_than_priced_asks_for_their_word(tmp_path):
    """A record with less noise is repriced by ``rescaled``; without it there is no number."""
    with fp.Ledger.create(tmp_path / "a", unit="client", **ASK, plan=RUN) as ledger:
        number = ledger.intent(RUN.parts[0][0], clip_norm=1.0, noise_std=1.0)
        ledger.done(number, cohort=5, arrived=5, refused=0, noise_std=0.5)
    with pytest.raises(
        fp.UnsupportedCombination, match="of its noise; define its method rescaled, or"
    ):
        fp.audit(tmp_path / "a", claim=(9.0, 1e-3))


def test_files_take_them(tmp_path):
    path = tmp_path / "a.ledger"
    claim = (fp.epsilon(RUN, delta=1e-3, **ASK).upper, 1e-3)
    with fp.Ledger.create(path, unit="client", **ASK, claim=claim, plan=RUN) as ledger:
        for _ in range(3):
            number = ledger.intent(RUN.parts[0][0], clip_norm=1.0, noise_std=1.0)
            ledger.done(number, cohort=5, arrived=5, refused=0, noise_std=1.0)
        ledger.close()
    read = fp.Ledger.open(path)
    assert read.plan == RUN and read.rounds[0].mechanism == RUN.parts[0][0]
    found = fp.audit(path)
    assert found.verdict == "HOLDS"
    assert "Coin" in fp.report(found, tmp_path / "a.html").read_text()
    assert fp.pareto([({"a": 1}, (path, {"error": 1.0}))], delta=1e-3, **ASK).settings
    account = PldAccountant().compose(Coin(0.5).privacy_loss("zero_out"), 2)
    saved = json.loads(json.dumps(account.state()))
    again = PldAccountant()
    again.restore(saved)
    assert again.epsilon(1e-3).upper == account.epsilon(1e-3).upper


def test_another_library_is_told_what_they_say():
    event = to_event(RUN, **ASK)
    assert event == dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(2.0)), 3
    )
    with pytest.raises(fp.errors.ConversionError, match="what Loud does"):
        to_event(Loud(), **ASK)


def test_a_loop_trains_with_them(tmp_path):
    """Cohorts that the foreign scheme draws, noise that the foreign mechanism draws and prices."""
    path, scheme = tmp_path / "run.ledger", HalfThere()
    loop = FederatedAveraging(
        model=logistic(3, 2), scheme=scheme, perturbation=Loud(), local_steps=1, expected_cohort=3
    )
    assert loop.round_mechanism == Loud().sampled(scheme)
    plan = loop.round_mechanism * 4
    claim = (fp.epsilon(plan, delta=1e-3, **ASK).upper, 1e-3)
    sizes = []
    with fp.Ledger.create(path, unit="client", **ASK, claim=claim, plan=plan) as ledger:
        budget = fp.Budget(*claim, **ASK)
        result = train(
            loop,
            small(),
            rounds=4,
            ledger=ledger,
            budget=budget,
            checkpoint=tmp_path / "run.pt",
            on_round=lambda _, info: sizes.append(info.cohort),
        )
        assert not budget.allows(loop.round_mechanism)
        ledger.close()
    read = fp.Ledger.open(path)
    assert [one.done.noise_std for one in read.rounds] == [3.0] * 4
    assert [one.done.denominator for one in read.rounds] == [3] * 4
    assert [one.done.cohort for one in read.rounds] == sizes
    assert fp.audit(path).verdict == "HOLDS"
    assert save_model(tmp_path / "model.pt", loop, result.state).exists()
    moved = (result.state.parameters - loop.init().parameters).norm() * 3.0 / math.sqrt(4 * 8)
    assert 0.2 < float(moved) < 10.0  # about the std; beyond with probability below 1e-8


WRONG_DRAWS = {
    "a mask": lambda n: np.arange(n) < 2,
    "one client twice": lambda n: np.array([0, 0, 1]),
    "a client below 0": lambda n: np.array([-1, 0]),
    "a client too many": lambda n: np.array([n]),
    "fractions": lambda n: np.array([0.5, 1.0]),
    "none": lambda n: None,
}


@pytest.mark.parametrize("kind", WRONG_DRAWS)
def test_a_scheme_that_draws_what_is_not_accounted_is_refused_before_any_release(kind, tmp_path):
    """Of a mask True and False would be clients 1 and 0, and count in the sum many times."""

    class Wrong(HalfThere):
        def draw(self, population, generator):
            return WRONG_DRAWS[kind](population)

    released = []
    loop = FederatedAveraging(
        model=logistic(3, 2), scheme=Wrong(), perturbation=Loud(), local_steps=1, expected_cohort=3
    )
    with pytest.raises(fp.ParameterError, match=r"Wrong.draw must return"):
        loop.step(loop.init(), small(), on_release=released.append)
    assert not released
    with pytest.raises(fp.ParameterError, match=r"Wrong.draw must return"):
        Server(scheme=Wrong(), perturbation=Loud(), population=6).cohort(0)


def test_what_was_not_declared_is_not_read(tmp_path):
    @dataclass(frozen=True)
    class Undeclared(Mechanism):
        protects = None

        def loss_under(self, facts):
            raise AssertionError

    ledger = fp.Ledger.create(tmp_path / "a", unit="client", **ASK)
    with ledger, pytest.raises(LedgerError, match="unknown type 'Undeclared'"):
        ledger.intent(Undeclared(), clip_norm=1.0, noise_std=1.0)
    with pytest.raises(fp.errors.FedPrivacyError):
        fp.audit({"type": "Undeclared", "version": 1, "fields": {}}, claim=(1.0, 1e-5), **ASK)


def test_names_are_given_once_and_to_frozen_dataclasses():
    with pytest.raises(fp.ParameterError, match="frozen dataclass"):
        registered(type("Loose", (), {}))
    with pytest.raises(fp.ParameterError, match=r"fedprivacy\.mechanisms\.gaussian"):
        registered(dataclass(frozen=True)(type("Gaussian", (), {})))
    assert KINDS["Gaussian"] is fp.Gaussian
    assert registered(Coin) is Coin and REGISTRY["Coin"] is Coin
    assert "Gdp" not in REGISTRY and "Gdp" in KINDS


@dataclass(frozen=True)
class Where:
    """A state of the loop below."""

    round: int
    means: tuple[float, ...]


@dataclass(frozen=True)
class NoisyMeans:
    """A loop of somebody else's: every round the mean of numbers in [0, 1], with noise."""

    noise_multiplier: float
    people: int
    device: str = "cpu"

    @property
    def round_mechanism(self):
        return fp.Gaussian(noise_multiplier=self.noise_multiplier, unit="client")

    def init(self):
        return Where(0, ())

    def step(self, state, data, *, ledger=None, budget=None, dropout=None, on_release=None):
        del dropout
        books = RoundBookkeeping(
            mechanism=self.round_mechanism,
            ledger=ledger,
            budget=budget,
            clip_norm=1.0,
            noise_std=self.noise_multiplier,
        )

        def release(total):
            noise, std = self.round_mechanism.noise(np.zeros(1))
            mean = (total + float(noise[0])) / self.people
            info = RoundInfo(
                round=state.round,
                cohort=self.people,
                arrived=self.people,
                refused=0,
                aborted=False,
                upload_bytes=8 * self.people,
                noise_std=std,
                denominator=self.people,
            )
            return Where(state.round + 1, (*state.means, mean)), info

        collect = lambda: float(np.clip(data, 0.0, 1.0).sum())  # noqa: E731
        return run_round(books, collect=collect, release=release, on_release=on_release)


def test_a_loop_of_somebody_else_s_is_trained_recorded_and_held_to_its_budget(tmp_path):
    data, loop = np.full(1000, 0.25), NoisyMeans(2.0, 1000)
    plan = loop.round_mechanism * 5
    spent = fp.epsilon(plan, delta=1e-3, **ASK).upper
    budget = fp.Budget(spent, 1e-3, **ASK)
    claim = {"unit": "client", **ASK, "claim": (spent, 1e-3), "plan": plan}
    with fp.Ledger.create(tmp_path / "a.ledger", **claim) as ledger:
        done = train(loop, data, rounds=5, ledger=ledger, budget=budget)
        with pytest.raises(fp.errors.BudgetExhausted):
            train(loop, data, rounds=1, ledger=ledger, budget=budget)
        ledger.close()
    assert all(abs(mean - 0.25) < 0.02 for mean in done.state.means)  # 10 stds
    assert fp.audit(tmp_path / "a.ledger").verdict == "HOLDS"
