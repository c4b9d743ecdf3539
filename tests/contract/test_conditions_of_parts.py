"""Nested mechanisms: the assumptions of each part hold inside the others."""

import math
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.mechanisms import Mechanism, Run, Traits
from fedprivacy.relations import Adjacency, Facts
from fedprivacy.sampling import SeparateProbabilities

ZERO, SWAP = {"adjacency": "zero_out"}, {"adjacency": "replace_one"}
STEP = fp.Gaussian(noise_multiplier=1.0)
RECORD = replace(STEP, unit="record")


def gaussian_delta(mu, epsilon):
    if not mu:
        return 0.0
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


# ---- one draw for two kinds of units

TEN = fp.FixedSize(10, population=1000)
OTHERS = fp.Gaussian(noise_multiplier=50.0, unit="record").in_cohort(TEN)
CORRELATED = fp.CorrelatedNoise(
    factor=fp.factors.Identity(),
    noise_multiplier=1.0,
    rounds=1000,
    participation=fp.FixedEpochs(1),
).sampled(TEN)
SELECTED = fp.PrivateSelection(STEP.sampled(TEN) * 1000, trials=fp.PoissonTrials(1.0))


def seen_delta(epsilon):
    """Delta of 1000 rounds that show whether the unit is among the ten of 1000."""
    return math.fsum(
        math.comb(1000, k) * 0.01**k * 0.99 ** (1000 - k) * gaussian_delta(math.sqrt(k), epsilon)
        for k in range(120)
    )


def test_correlated_noise_beside_a_kind_that_shares_its_draw_hides_nobody():
    """The other kind's uploads may tell how many of the ten are theirs: 23.39, and 10.50 was said.

    Rounds of an identity factor are rounds of ``STEP.sampled(TEN)``, whose price it must be.
    """
    run = fp.Parallel((CORRELATED, OTHERS * 1000))
    bound = fp.epsilon(run, delta=1e-5, **ZERO)
    assert seen_delta(bound.upper) <= 1e-5 < seen_delta(bound.upper - 1e-2)
    rounds = fp.Parallel((STEP.sampled(TEN), OTHERS)) * 1000
    assert bound.upper == pytest.approx(fp.epsilon(rounds, delta=1e-5, **ZERO).upper, abs=1e-6)
    with pytest.raises(fp.UnsupportedCombination, match="an absent unit then goes to another kind"):
        fp.epsilon(run, delta=1e-5, adjacency="add_remove")


@pytest.mark.parametrize("first", [SELECTED, replace(SELECTED, base=STEP, others=(SELECTED.base,))])
def test_trials_beside_a_kind_that_shares_their_draw_are_refused(first):
    with pytest.raises(fp.UnsupportedCombination, match="kinds with the same scheme may share a"):
        fp.epsilon(fp.Parallel((first, OTHERS * 1000)), delta=1e-5, **ZERO)
    # Drawn otherwise, or apart, they stay what they were.
    other = fp.Gaussian(noise_multiplier=50.0, unit="record").in_cohort(fp.Poisson(0.01))
    alone = fp.epsilon(first, delta=1e-5, **ZERO).upper
    assert fp.epsilon(fp.Parallel((first, other)), delta=1e-5, **ZERO).upper == alone


# ---- a run that is only right as a whole


@pytest.mark.parametrize("number", [0, 1])
def test_rows_of_correlated_noise_are_not_drawn_one_by_one(number):
    """A unit drawn for row 1 but not for row 0 cost 0; four rows: delta .068, the truth is .139."""
    row = fp.CorrelatedNoise(
        factor=fp.factors.Identity(),
        noise_multiplier=1.0,
        rounds=4,
        participation=fp.FixedEpochs(1),
        unit="record",
    ).row(number)
    with pytest.raises(
        fp.UnsupportedCombination, match="Account for the whole run: CorrelatedNoise, sampled or"
    ):
        row.in_cohort(fp.Poisson(0.1))
    whole = fp.epsilon(row.run.in_cohort(fp.Poisson(0.1)), delta=1e-2, **ZERO)
    # All four rows with probability .1.
    assert 0.1 * gaussian_delta(2.0, whole.upper) == pytest.approx(1e-2, rel=1e-6)


def test_a_run_of_everybody_is_not_drawn():
    run = fp.SplittingRun(
        step_size=0.1,
        noise_scale=1.0,
        sensitivity=1.0,
        strong_convexity=0.5,
        smoothness=1.0,
        penalty=1.0,
        local_steps=3,
        rounds=20,
    )
    with pytest.raises(fp.UnsupportedCombination, match="with every agent in every round"):
        run.in_cohort(fp.Poisson(0.1))
    drawn = run.round.in_cohort(fp.Poisson(0.1)) * run.rounds
    assert fp.epsilon(drawn, delta=1e-5, **SWAP).upper > 0.0
    everyone = fp.epsilon(run.in_cohort(fp.Everyone()), delta=1e-5, **SWAP)
    assert everyone.upper == fp.epsilon(run, delta=1e-5, **SWAP).upper


# ---- a move that is drawn, and seen

MOVES = fp.MixtureOfGaussians(
    standard_deviation=2.0, sensitivities=(0.0, 1.0, 3.0), probabilities=(0.9, 0.07, 0.03)
)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_the_server_sees_which_move_was_drawn(epsilon):
    """Who takes part is what a mixture's moves are of, and the server sees it: labels, exactly."""
    truth = 0.07 * gaussian_delta(0.5, epsilon) + 0.03 * gaussian_delta(1.5, epsilon)
    found = fp.delta(MOVES, epsilon=epsilon, observer="server", **ZERO)
    assert truth <= found.upper * (1 + 1e-9)
    assert found.upper == pytest.approx(truth, rel=1e-6)
    # Whether it really sees it is not stated, so the attained pair is that of the hidden move.
    hidden = fp.delta(MOVES, epsilon=epsilon, **ZERO)
    assert found.lower == hidden.lower <= hidden.upper < truth


def test_a_mixture_is_what_it_describes_for_the_server_too():
    mixed = fp.MixtureOfGaussians(
        standard_deviation=1.0, sensitivities=(0.0, 1.0), probabilities=(0.99, 0.01)
    )
    sampled = STEP.sampled(fp.Poisson(0.01))
    ask = {"delta": 1e-5, **ZERO}
    one, other = (fp.epsilon(run * 100, observer="server", **ask) for run in (mixed, sampled))
    # 8.615, where .718 was said: what those lose to whom the draw is a secret.
    assert one.upper == pytest.approx(other.upper, abs=1e-6)
    assert one.lower == pytest.approx(fp.epsilon(mixed * 100, **ask).lower, abs=1e-6)
    with pytest.raises(fp.UnsupportedCombination, match="sees the drawn move"):
        fp.epsilon(mixed, delta=1e-5, adjacency="add_remove", observer="server")
    sure = replace(mixed, sensitivities=(1.0,), probabilities=(1.0,))
    assert fp.epsilon(sure, delta=1e-5, adjacency="add_remove", observer="server").upper > 4.0


# ---- mechanisms and schemes of a user's own that contradict themselves


@dataclass(frozen=True)
class Forgetful(Mechanism):
    """A wrapper that does not pass its arguments on."""

    inner: Mechanism
    protects = None

    def loss_under(self, facts):
        return self.inner.privacy_loss("add_remove")


FORGOTTEN = [
    lambda one: one,
    lambda one: one * 3,
    lambda one: one.in_cohort(fp.Poisson(0.1)),
    lambda one: fp.Parallel((one, STEP)),
    lambda one: fp.PrivateSelection(one, trials=fp.PoissonTrials(2.0)),
    lambda one: one.sampled(fp.FixedSize(1, population=9)),
]


@pytest.mark.parametrize("made", FORGOTTEN)
def test_an_answer_to_another_question_is_refused(made):
    """A cohort's round was accounted as add_remove, 3.80, for replace_one (it is 8.88)."""
    with pytest.raises(
        ParameterError, match=r"Forgetful\.loss_under must return a loss for replace_one"
    ):
        fp.epsilon(made(Forgetful(STEP)), delta=1e-5, **SWAP)
    with pytest.raises(ParameterError, match="must return a loss for zero_out"):
        fp.epsilon(Forgetful(STEP), delta=1e-5, observer="server", **ZERO)


class OwnScheme:
    rate = 0.1

    def amplify(self, inner, adjacency, observer):
        return inner.privacy_loss("add_remove")

    def group(self, inner):
        return replace(inner, facts=inner.facts._replace(adjacency=Adjacency.ADD_REMOVE))


class Empty(OwnScheme):
    def amplify(self, inner, adjacency, observer):
        return None

    group = None


def test_a_scheme_answers_what_it_was_asked():
    with pytest.raises(
        ParameterError, match=r"OwnScheme\.amplify must return a loss for replace_one"
    ):
        fp.epsilon(STEP.sampled(OwnScheme()), delta=1e-5, **SWAP)
    with pytest.raises(
        ParameterError, match=r"OwnScheme\.group must return a loss for replace_one"
    ):
        fp.epsilon(RECORD.in_cohort(OwnScheme()), delta=1e-5, **SWAP)
    with pytest.raises(ParameterError, match=r"Empty\.amplify must return a PrivacyLoss"):
        fp.epsilon(STEP.sampled(Empty()), delta=1e-5, **SWAP)
    assert fp.epsilon(STEP.sampled(OwnScheme()), delta=1e-5, adjacency="add_remove").upper > 4.0


@dataclass(frozen=True)
class Stating(Forgetful):
    """A wrapper that says whose data is one unit."""

    protects = fp.Unit.CLIENT

    def loss_under(self, facts):
        return self.inner.privacy_loss(facts.adjacency, facts.observer)


def test_whose_data_is_one_unit_is_said_once():
    with pytest.raises(ParameterError, match="unit must agree"):
        fp.epsilon(Stating(RECORD), delta=1e-5, **ZERO)
    assert Stating(STEP).privacy_loss("zero_out").facts.unit is fp.Unit.CLIENT


@dataclass(frozen=True, kw_only=True)
class Entries(fp.Gaussian):
    """A unit has several clipped entries in the sum, and only the loss states this."""

    entries: int = 10

    def loss_under(self, facts):
        sharper = fp.Gaussian(noise_multiplier=self.noise_multiplier / self.entries)
        return sharper.privacy_loss(facts.adjacency, facts.observer)


@dataclass(frozen=True, kw_only=True)
class Mended(Entries):
    """The same, and what the theorems of Gaussian sums read."""

    @property
    def traits(self):
        return Traits.of_sum(self.noise_multiplier / self.entries)


SCHEMES = [fp.Poisson(0.1), fp.FixedSize(1, population=10), fp.RandomAllocation(10)]
SCHEMES += [fp.WithReplacement(1, population=10), fp.TruncatedPoisson(0.1, 10, 3), fp.Everyone()]


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_a_sum_loses_what_its_multiplier_says(scheme, adjacency):
    """Rows of Gaussian sums read the inherited multiplier: .083 of 5.77 under FixedSize."""
    facts = {"delta": 1e-5, "adjacency": adjacency}
    with pytest.raises(
        ParameterError, match=r"Entries\.traits\.sum_multiplier must agree with the loss"
    ):
        fp.epsilon(Entries(noise_multiplier=10.0).sampled(scheme), **facts)
    found = fp.epsilon(Mended(noise_multiplier=10.0).sampled(scheme), **facts)
    assert found.upper == fp.epsilon(STEP.sampled(scheme), **facts).upper


def test_records_of_a_client_in_such_a_sum():
    with pytest.raises(ParameterError, match="sum_multiplier must agree with the loss"):
        run = Entries(noise_multiplier=10.0, unit="record").sampled(fp.Poisson(0.1), held=2)
        fp.epsilon(run, delta=1e-5, **ZERO)


@dataclass(frozen=True)
class Uncompared(Mechanism):
    noise: float = field(compare=False)
    protects = None

    def loss_under(self, facts):
        inner = fp.Gaussian(noise_multiplier=self.noise)
        return inner.privacy_loss(facts.adjacency, facts.observer)


class Undeclared(fp.Gaussian):
    """Not a dataclass: its addition is no field."""

    def __init__(self, noise):
        object.__setattr__(self, "noise", noise)
        super().__init__(noise_multiplier=1.0)

    loss_under = Uncompared.loss_under


@pytest.mark.parametrize("kind", [Uncompared, Undeclared])
def test_what_is_equal_need_not_lose_alike(kind):
    """The second of two that are equal was given the first one's loss: .341 of 4.377."""
    little, much = kind(10.0), kind(1.0)
    assert little == much
    alone = fp.epsilon(STEP, delta=1e-5, **ZERO).upper
    together = fp.Gaussian(noise_multiplier=10.0) + STEP
    more = fp.epsilon(together, delta=1e-5, **ZERO).upper
    assert fp.epsilon(fp.Parallel((little, much)), delta=1e-5, **ZERO).upper == alone
    nested = fp.Parallel((little * 1, much * 1))
    assert fp.epsilon(nested, delta=1e-5, **ZERO).upper == alone
    assert fp.epsilon(little + much, delta=1e-5, **ZERO).upper == more
    # Equal mechanisms are counted, and so are mechanisms that compare equal.
    assert (much + much).parts == ((much, 2),)
    assert (STEP + fp.Gaussian(noise_multiplier=1.0)).parts == ((STEP, 2),)


class Lists(fp.Poisson):
    """The drawn units are published, so no observer allows amplification."""

    rows: ClassVar = {
        (observer, adjacency): fp.Poisson.rows[fp.Observer.SERVER, adjacency]
        for observer, adjacency in fp.Poisson.rows
        if adjacency is not Adjacency.ADD_REMOVE
    }


class Account(fp.RandomAllocation):
    def amplify(self, inner, adjacency, observer=None):
        return replace(self, rounds_per_epoch=1).amplify(inner, adjacency, observer)


def test_theorems_about_a_scheme_are_not_about_its_subclasses():
    """A scheme with its own rows was accounted as its base class: 1.53 of 11.72 for ``held=2``."""
    assert fp.epsilon(STEP.sampled(Lists(0.01)), delta=1e-5, **ZERO).upper > 3.0
    with pytest.raises(fp.UnsupportedCombination, match="no theorem covers a client"):
        RECORD.sampled(Lists(0.01), held=2)
    noise = CORRELATED.noise
    assert noise.sampled(Lists(0.01)).privacy_loss("zero_out").curve is not None
    dense = replace(noise, rounds=4, factor=fp.factors.SquareRootToeplitz())
    with pytest.raises(fp.UnsupportedCombination, match=r"has no (amplification )?theorem"):
        replace(dense, participation=fp.SingleParticipation()).sampled(Account(4))
    # Rounds with a share of the noise are those of the class itself.
    rounds = replace(dense, participation=fp.FixedEpochs(1)).sampled(Lists(0.01))
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    assert (
        fp.epsilon(rounds, **ask).upper
        > 2 * fp.epsilon(replace(rounds, scheme=fp.Poisson(0.01)), **ask).upper
    )

    # One that only draws in its own way is accounted as its base is.
    class Quick(fp.Poisson):
        pass

    two = RECORD.sampled(Quick(0.01), held=2)
    assert two.privacy_loss("zero_out") == RECORD.sampled(fp.Poisson(0.01), held=2).privacy_loss(
        "zero_out"
    )


# ---- odd input


@pytest.mark.parametrize("parts", [(("x", 1),), ((STEP,),), 3, (STEP, STEP), "ab"])
def test_parts_are_pairs(parts):
    with pytest.raises(ParameterError, match="parts must be pairs of a mechanism and a count"):
        Run(parts)


def test_parts_may_be_any_sequence():
    assert Run([[STEP, 2]]) == STEP * 2


@pytest.mark.parametrize("others", [None, STEP])
def test_other_trials_are_several(others):
    with pytest.raises(ParameterError, match="others must be a sequence of mechanisms"):
        fp.PrivateSelection(STEP, trials=fp.PoissonTrials(2.0), others=others)


# ---- the drawn scheme is the accounted scheme


@pytest.mark.parametrize("chance", [1e-17, 2.0**-53, 1e-6, 0.1, 0.3, 0.5, 1 - 2.0**-53, 1.0])
def test_nobody_is_drawn_more_often_than_accounted(chance):
    """Of all 2^53 numbers that may come as many mean *drawn* as fit below the chance."""
    most = math.floor(Fraction(chance) * 2**53)
    numbers = np.array([k * 2.0**-53 for k in (most - 1, most) if 0 <= k < 2**53])
    told = [k < most for k in (most - 1, most) if 0 <= k < 2**53]

    class Told(np.random.Generator):
        def random(self, count):
            return numbers[:count]

    source = Told(np.random.PCG64())
    for scheme in (fp.Poisson(chance), SeparateProbabilities((chance,) * len(numbers))):
        drawn = scheme.draw(len(numbers), source)
        assert [k in drawn for k in range(len(numbers))] == told


def test_a_client_that_runs_several_times_is_off_as_often():
    scheme = fp.WithReplacement(10, population=2)
    inner = replace(RECORD.privacy_loss("zero_out"), tv_error=1e-9)
    # Five runs on average, each within 1e-9 of its law.
    assert scheme.group(inner).tv_error == pytest.approx(5e-9, rel=1e-9)
    assert scheme.group(inner).tv_error >= 5e-9
    assert fp.Poisson(0.1).group(inner).tv_error == 1e-9
    assert scheme.group(inner).facts == Facts(fp.Unit.RECORD, *inner.facts[1:])


@dataclass(frozen=True)
class Louder(fp.CorrelatedNoise):
    """Loses more than its numbers say."""

    def loss_under(self, facts):
        kinds = {field.name: getattr(self, field.name) for field in fields(fp.CorrelatedNoise)}
        quieter = fp.CorrelatedNoise(**kinds | {"noise_multiplier": self.noise_multiplier / 4})
        return quieter.privacy_loss(facts.adjacency, facts.observer)


def test_a_run_with_a_loss_of_its_own_is_not_amplified_by_its_numbers():
    told = r"Louder has its own fields \(loss_under\)"
    with pytest.raises(fp.UnsupportedCombination, match=told):
        Louder(**vars(CORRELATED.noise)).sampled(fp.Poisson(0.1))
