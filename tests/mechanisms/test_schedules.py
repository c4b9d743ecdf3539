"""Schedules: the loss of many rounds that differ in noise is the composed loss of all of them."""

import copy
import pickle
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

import fedprivacy as fp
from fedprivacy.accountants.base import CURVES
from fedprivacy.loss import orientations
from fedprivacy.mechanisms.base import Run
from fedprivacy.mechanisms.gaussian import gaussian_sum_loss
from fedprivacy.mechanisms.schedules import schedule_of
from fedprivacy.privacy_loss import compose_losses
from fedprivacy.registry import decode, encode

POISSON = fp.Poisson(0.02)


def steps(count=300, scheme=POISSON, **fields):
    noise = [0.8 + 0.7 * (k * 0.618 % 1.0) for k in range(count)]
    unit = fields.pop("unit", "client")
    return [fp.Gaussian(noise_multiplier=z, unit=unit, **fields).sampled(scheme) for z in noise]


def run_of(every):
    return Run(tuple((one, 1 + k % 3) for k, one in enumerate(every)))


def one_by_one(run, adjacency, observer="aggregate"):
    return compose_losses([(one.privacy_loss(adjacency, observer), n) for one, n in run.parts])


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize("observer", ["aggregate", "final"])
def test_the_loss_is_that_of_all_rounds(adjacency, observer):
    every = steps()
    run = run_of([*every, *steps(3, clip_norm=2.0)])
    assert schedule_of(run) is not None
    found, expected = run.privacy_loss(adjacency, observer), one_by_one(run, adjacency, observer)
    if observer == "final":
        expected = one_by_one(run, adjacency).seen_at_the_end()
    assert found.curve == expected.curve
    assert hash(found.curve) == hash(expected.curve)
    assert found.witness == expected.witness
    assert found.facts == expected.facts
    assert found.assumptions == expected.assumptions
    assert found.public == expected.public
    assert set(found.theorems) == set(expected.theorems)


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize("observer", ["aggregate", "server"])
def test_the_loss_of_fixed_cohorts_is_that_of_all_rounds(adjacency, observer):
    if (adjacency, observer) == ("add_remove", "server"):
        pytest.skip("no theorem")
    run = run_of(steps(scheme=fp.FixedSize(20, population=1000)))
    assert schedule_of(run) is not None
    found, expected = run.privacy_loss(adjacency, observer), one_by_one(run, adjacency, observer)
    assert ("parts" in vars(found.curve)) == (observer == "server")
    assert found.curve == expected.curve
    assert hash(found.curve) == hash(expected.curve)
    assert found.witness == expected.witness
    assert found.assumptions == expected.assumptions
    # A run names the number of clients, too.
    assert found.public[: len(expected.public)] == expected.public
    assert set(found.theorems) == set(expected.theorems)
    for one, other in zip(orientations(found.curve), orientations(expected.curve), strict=True):
        assert one.support().largest == other.support().largest
        assert one.support().cover == pytest.approx(other.support().cover, rel=1e-12)
        assert one.support().symmetric == other.support().symmetric
        assert one.support().exact == other.support().exact


def test_no_curve_is_made_for_each_round():
    run = run_of(steps(400))
    loss = run.privacy_loss("add_remove")
    bound = fp.epsilon(run, delta=1e-5, adjacency="add_remove")
    assert "parts" not in vars(loss.curve)
    assert bound.resolution[1] - bound.resolution[0] <= 1e-3


def test_rounds_that_differ_in_more_are_no_schedule():
    @dataclass(frozen=True, kw_only=True)
    class Other(fp.Gaussian):
        pass

    every = steps()
    assert schedule_of(run_of(steps(200))) is None
    assert schedule_of(run_of([*every, *steps(1, fp.Poisson(0.03))])) is None
    assert schedule_of(run_of([*every, fp.Gaussian(noise_multiplier=1.0, unit="client")])) is None
    other = Other(noise_multiplier=1.0, unit="client").sampled(POISSON)
    assert schedule_of(run_of([*every, other])) is None
    assert schedule_of(run_of([other, *every])) is None


def test_everyone_in_every_round_and_other_schemes_are_composed_as_before():
    for scheme, adjacency in ((fp.Poisson(1.0), "add_remove"), (fp.Everyone(), "zero_out")):
        run = run_of(steps(300, scheme))
        found = run.privacy_loss(adjacency)
        assert found.curve == one_by_one(run, adjacency).curve
    run = run_of(steps(300, fp.FixedSize(20, population=1000)))
    assert run.privacy_loss("replace_one").curve == one_by_one(run, "replace_one").curve


def test_two_units_are_refused_in_a_schedule():
    with pytest.raises(fp.ParameterError, match="unit"):
        run_of([*steps(), *steps(1, unit="record")])


def test_a_curve_that_lists_its_rounds_later_is_the_composition():
    run = run_of(steps())
    later, now = run.privacy_loss("add_remove").curve, one_by_one(run, "add_remove").curve
    assert "parts" not in vars(later)
    for one, other in zip(orientations(later), orientations(now), strict=True):
        assert one.count == other.count
        assert one.support().largest == other.support().largest
        assert one.support().cover == pytest.approx(other.support().cover, rel=1e-15)
        assert one.support().symmetric == other.support().symmetric
        assert one.support().exact == other.support().exact
        assert one.support().amplifiable == other.support().amplifiable
        assert one.support().mesh == other.support().mesh
        assert "parts" not in vars(one)
        assert one.components().different == other.components().different == len(now.parts)
    # These list the rounds.
    assert later.swap() == now.swap()
    assert now == later
    assert later != run_of(steps(301)).privacy_loss("add_remove").curve
    for made in (
        pickle.loads(pickle.dumps(run.privacy_loss("zero_out").curve)),
        copy.deepcopy(later),
        decode(encode(later, CURVES), CURVES),
    ):
        assert made == now
        assert hash(made) == hash(later)
    assert later.components().rounds == now.components().rounds
    assert later.components().inside == now.components().inside


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_answers_are_those_of_the_rounds(accountant):
    run = run_of(steps())
    asked = {"delta": 1e-6, "adjacency": "zero_out", "accountant": accountant}
    bound = fp.epsilon(run, **asked)
    exact = fp.epsilon(run, **asked, tolerance=1e-8)
    low, high = bound.resolution
    if accountant == "rdp":
        assert high == pytest.approx(exact.upper, rel=1e-6)
    else:
        assert low <= exact.resolution[0]
        assert exact.resolution[1] <= high
        assert high - low <= 1e-3
        assert high == pytest.approx(exact.upper, abs=1e-4)


@dataclass(frozen=True)
class ByNoise(fp.Poisson):
    """Its probability depends on the mechanism."""

    def amplify(self, inner, adjacency, observer):
        rate = self.probability if inner.noise_multiplier < 0.81 else 0.2
        return fp.Poisson(rate).amplify(inner, adjacency, observer)


@dataclass(frozen=True)
class Hidden(fp.Poisson):
    """Equal schemes have different probabilities."""

    more: float = field(default=0.0, compare=False)

    def amplify(self, inner, adjacency, observer):
        return fp.Poisson(self.probability + self.more).amplify(inner, adjacency, observer)


@dataclass(frozen=True, kw_only=True)
class PartOfTheNoise(fp.Gaussian):
    """Its noise is a part of the stated one."""

    share: float = 1.0
    scaled_by: ClassVar[str] = "noise_multiplier"

    def loss_under(self, facts):
        return gaussian_sum_loss(self.noise_multiplier * self.share, facts)


def test_mechanisms_of_users_are_no_schedule():
    inner = [
        PartOfTheNoise(noise_multiplier=1.0 + k / 300, share=0.3 if k else 1.0) for k in range(300)
    ]
    assert schedule_of(Run(tuple((one.sampled(fp.Poisson(0.02)), 1) for one in inner))) is None


@pytest.mark.parametrize("count", [2**53, 10**17, 10**19])
def test_counts_that_no_array_holds_are_no_schedule(count):
    parts = [(step, count) for step in steps()]
    assert schedule_of(Run(tuple(parts))) is None


@pytest.mark.parametrize("turn", [1, -1])
def test_a_limit_that_differs_between_rounds_is_not_that_of_the_first(turn):
    rounds = [
        fp.Gaussian(noise_multiplier=0.8 + k / 400).sampled(fp.FixedSize(20, population=1000))
        for k in range(300)
    ][::turn]
    loss = Run(tuple((one, 1) for one in rounds)).privacy_loss("zero_out")
    parts = [(one.privacy_loss("zero_out"), 1) for one in rounds]
    for found, exact in zip(
        orientations(loss.witness.curve),
        orientations(compose_losses(parts).witness.curve),
        strict=True,
    ):
        found, exact = found.support().largest, exact.support().largest
        assert found.low <= exact.low
        assert exact.high <= found.high


def test_the_renyi_order_suits_the_strongest_rounds():
    """Slightly larger orders have a far larger divergence, so the order must be close."""
    steps = [
        fp.Gaussian(noise_multiplier=3.0 + 1.5 * k / 299).sampled(fp.FixedSize(2, population=1000))
        for k in range(300)
    ]
    run = Run(tuple((step, 1) for step in steps))
    found = fp.epsilon(run, delta=1e-5, adjacency="replace_one", accountant="rdp")
    # One by one the rounds give 0.2730629.
    assert found.upper <= 0.27308


@pytest.mark.parametrize(
    "schemes",
    [lambda k: ByNoise(0.01), lambda k: Hidden(0.01, more=0.19 if k else 0.0)],
    ids=["by noise", "hidden"],
)
def test_rounds_of_other_schemes_are_computed_one_by_one(schemes):
    noise = [0.8 + 0.002 * k + (0.01 if k else 0.0) for k in range(300)]
    every = [
        fp.Gaussian(noise_multiplier=z, unit="client").sampled(schemes(k))
        for k, z in enumerate(noise)
    ]
    run = Run(tuple((one, 1) for one in every))
    assert schedule_of(run) is None
    assert run.privacy_loss("add_remove").curve == one_by_one(run, "add_remove").curve
    first, second = Run(((every[0], 1), *run.parts)), run
    assert first.privacy_loss("add_remove").curve != second.privacy_loss("add_remove").curve
