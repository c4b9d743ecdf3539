"""Conditions of theorems: the traits that a mechanism needs for amplification."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.ledger import REGISTRY
from fedprivacy.loss import Sampled
from fedprivacy.mechanisms import Mechanism
from fedprivacy.registry import decode, encode

# ---- a zeroed unit and an absent one


def lost(q, epsilon):
    """Delta of 1000 rounds that are one randomised response with probability q."""
    return math.fsum(
        math.comb(1000, k) * q**k * (1 - q) ** (1000 - k) * _answers(k, epsilon) for k in range(80)
    )


def _answers(k, epsilon):
    """Delta of k randomised responses of epsilon 1 each: j of them true under P."""
    true = 1 / (1 + math.exp(-1.0))
    return sum(
        math.comb(k, j)
        * true**j
        * (1 - true) ** (k - j)
        * max(0.0, -math.expm1(epsilon - 2 * j + k))
        for j in range(k + 1)
    )


ZEROED = {"adjacency": "zero_out", "delta": 1e-5}


def participant(**options):
    return fp.ApproximateDp(guarantees=((1.0, 0.0),), adjacency="zero_out", **options)


SCHEMES = [fp.Poisson(0.01), fp.TruncatedPoisson(0.01, 50, 9), fp.TruncatedPoisson(0.01, 9, 9)]
SCHEMES += [fp.FixedSize(1, population=100)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_who_shows_the_size_of_a_batch_is_not_hidden_by_sampling(scheme):
    """One unit, a mechanism that releases |batch| and, of the unit, a value that is (1, 0)-DP.

    It keeps its statement. The size reveals whether the unit was drawn. So k ~ Bin(1000, q) of the
    rounds are randomised response, and the others have no loss. Delta at epsilon is the mean over
    k of delta of k rounds, by enumeration of the number of true answers.
    """
    run = participant().sampled(scheme) * 1000
    bound = fp.epsilon(run, **ZEROED)
    assert lost(scheme.rate, bound.upper) <= 1e-5 < lost(scheme.rate, bound.upper - 2e-3)
    assert bound.upper > 18.0 and bound.lower == 0.0
    assert fp.audit(run, claim=(2.0, 1e-5), adjacency="zero_out").verdict != "HOLDS"
    assert any("T4" in theorem for theorem in bound.theorems)


def test_a_part_that_may_show_its_batch_shows_it_of_the_whole():
    scheme, step = fp.Poisson(0.01), fp.Gaussian(noise_multiplier=100.0)
    for both in (participant() + step, (participant() * 2 + step) * 3):
        run = both.sampled(scheme)
        alone = participant().sampled(scheme)
        assert fp.epsilon(run * 1000, **ZEROED).upper > fp.epsilon(alone * 1000, **ZEROED).lower
        assert fp.epsilon(run, **ZEROED).upper >= fp.epsilon(both.in_cohort(scheme), **ZEROED).upper


def test_whoever_knows_that_a_zeroed_unit_is_as_an_absent_one_says_so():
    known = participant(zeroed_is_absent=True)
    bound = fp.epsilon(known.sampled(fp.Poisson(0.01)) * 1000, **ZEROED)
    assert bound.upper < 1.3
    assert any("a unit that is zeroed out has the" in a for a in bound.assumptions)
    assert decode(encode(known, REGISTRY), REGISTRY) == known
    with pytest.raises(fp.ParameterError, match="zeroed_is_absent must be False unless adjacency"):
        fp.RenyiDp(divergences=((2.0, 0.1),), adjacency="replace_one", zeroed_is_absent=True)


class Foreign(Mechanism):
    """Supports every adjacency and states no trait."""

    protects = None

    def loss_under(self, facts):
        return replace(fp.Laplace(noise_multiplier=1.0).privacy_loss(*facts[1:]), facts=facts)


@pytest.mark.parametrize("scheme", [*SCHEMES, fp.RandomAllocation(5)], ids=repr)
def test_a_mechanism_that_does_not_say_so_is_not_amplified(scheme):
    run, sums = Foreign().sampled(scheme), fp.Laplace(noise_multiplier=1.0).sampled(scheme)
    seen = Foreign().in_cohort(scheme).privacy_loss("zero_out")
    loss = run.privacy_loss("zero_out")
    assert loss.curve == seen.curve and loss.witness is None
    assert sums.privacy_loss("zero_out").witness is not None
    if isinstance(scheme, fp.Poisson | fp.TruncatedPoisson):
        with pytest.raises(fp.UnsupportedCombination, match="zeroed_is_absent, zeroing_replaces"):
            run.privacy_loss("replace_one")
        assert sums.privacy_loss("replace_one")
    if isinstance(scheme, fp.RandomAllocation):
        assert run.privacy_loss("replace_one").witness is None
    every = Foreign().sampled(fp.Poisson(1.0)).privacy_loss("zero_out")
    assert every.curve == Foreign().privacy_loss("zero_out").curve and every.witness is not None


def test_shares_of_the_noise_are_not_left_out_by_zeroing():
    """At a fixed size a zeroed client still sends its share, and another would send one, too."""
    sizes = {"noise_multiplier": 1.0, "clip_norm": 1.0, "kept": 3, "dimension": 3, "cohort": 4}
    block = fp.SparsifiedPerturbation(**sizes) * 3
    assert block.traits.zeroing_replaces and not block.traits.zeroed_is_absent
    loss = block.sampled(fp.FixedSize(4, population=20)).privacy_loss("zero_out")
    gaussian = (fp.Gaussian(noise_multiplier=1.0) * 3).sampled(fp.FixedSize(4, population=20))
    assert loss.curve == gaussian.privacy_loss("zero_out").curve
    assert loss.witness == gaussian.privacy_loss("zero_out").witness


# ---- kinds that share one draw

COHORT = fp.FixedSize(10, population=1000)
ONE, MANY = fp.Gaussian(noise_multiplier=1.0), fp.Gaussian(noise_multiplier=50.0)


@pytest.mark.parametrize("scheme", [COHORT, fp.WithReplacement(10, population=1000)], ids=repr)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("kinds", [0, 1])
def test_kinds_of_one_draw_show_each_other_s_participants(scheme, adjacency, kinds):
    """One record of the first kind; the uploads of the second say who sent them, so T4 is exact."""
    together = [MANY.in_cohort(scheme), ONE.sampled(scheme)]
    run = fp.Parallel(tuple(together[::-1] if kinds else together)) * 1000
    ask = {"delta": 1e-5, "adjacency": adjacency}
    truth = fp.epsilon(ONE.in_cohort(scheme) * 1000, **ask)
    bound = fp.epsilon(run, **ask)
    assert truth.lower <= bound.upper and truth.lower > fp.epsilon(ONE.sampled(scheme), **ask).upper
    assert any("one draw for several kinds" in theorem for theorem in bound.theorems)
    assert bound.observer is fp.Observer.AGGREGATE
    with pytest.raises(
        fp.UnsupportedCombination, match=r"may share a draw.*draw each kind separately"
    ):
        fp.epsilon(run, delta=1e-5, adjacency="add_remove")


def test_kinds_that_are_drawn_apart_are_amplified_and_say_what_that_assumes():
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    apart = fp.FixedSize(10, population=1001)
    for first, second in (
        (ONE.sampled(fp.Poisson(0.01)), MANY.in_cohort(fp.Poisson(0.01))),
        (ONE.sampled(COHORT), MANY.sampled(apart)),
        (ONE.sampled(COHORT), MANY),
        (ONE.sampled(COHORT).in_cohort(apart), MANY.sampled(COHORT).in_cohort(apart)),
    ):
        both = fp.epsilon(fp.Parallel((first, second)) * 20, **ask)
        assert both.upper == max(fp.epsilon(one * 20, **ask).upper for one in (first, second))
        assert any("made independently of each other" in words for words in both.assumptions)
    nested = fp.Parallel((fp.Parallel((ONE.sampled(COHORT), MANY)), MANY.sampled(COHORT) * 2))
    shared = nested.mechanisms[0].privacy_loss("zero_out", "server").curve
    assert nested.privacy_loss("zero_out").curve.curves[0] == shared


# ---- a shuffled epoch, whose order is secret


def test_the_lower_end_of_a_shuffled_epoch_is_not_that_of_a_known_order():
    shuffled, allocated = (
        ONE.sampled(scheme(rounds_per_epoch=100)) for scheme in (fp.Shuffled, fp.RandomAllocation)
    )
    half = fp.Gaussian(noise_multiplier=ONE.noise_multiplier / 2)
    loud = half.sampled(fp.RandomAllocation(rounds_per_epoch=100))
    for adjacency in ("zero_out", "replace_one"):
        ask = {"delta": 1e-5, "adjacency": adjacency}
        bound, known = fp.epsilon(shuffled, **ask), fp.epsilon(shuffled, observer="server", **ask)
        assert bound.upper == known.upper and known.lower > known.upper - 2e-3
        # Under replace_one opposed data are two clip norms off.
        twin = loud if adjacency == "replace_one" else allocated
        shown = fp.epsilon(twin, delta=1e-5, adjacency="zero_out").lower
        assert 0.0 < shown < known.lower and bound.lower < known.lower
        # A zeroed unit among others that send the opposite shows more than one among silent ones.
        more = adjacency == "zero_out"
        assert bound.lower > 6.0 * shown if more else bound.lower == pytest.approx(shown, rel=1e-3)
        claim = {"claim": (1.05 * bound.lower, 1e-5), "adjacency": adjacency}
        assert fp.audit(shuffled, **claim).verdict == "CANNOT BE CERTIFIED"
        assert fp.audit(shuffled, observer="server", **claim).verdict == "FAILS"
    whole = fp.epsilon(ONE.sampled(fp.Shuffled(1)), delta=1e-5, adjacency="zero_out")
    assert whole.upper - whole.lower < 1e-3
    block = (ONE * 2).sampled(fp.Shuffled(4)).privacy_loss("zero_out")
    assert block.witness.curve == Sampled((ONE * 2).privacy_loss("zero_out").curve, 0.25)


@pytest.mark.parametrize("sizes", [(4, 3, 3), (1, 1, 0), (9, 0, 0), (5, 2, 1)])
def test_rounds_of_unequal_length_lose_no_less(sizes):
    """(sum p_i Z_i - a)+ has its smallest mean at equal p: common draws, 6 standard errors.

    Each comparison fails by accident with probability below 1e-9; there are 4 x 6 of them.
    """
    generator = np.random.default_rng(4)
    ratios = np.exp(generator.normal(-0.5, 1.0, size=(200_000, 3)))
    weights = np.array(sizes) / sum(sizes)
    for a in (0.5, 0.9, 1.0, 1.1, 1.5, 3.0):
        gap = np.maximum(ratios @ weights - a, 0.0) - np.maximum(ratios.mean(axis=1) - a, 0.0)
        assert gap.mean() >= -6 * gap.std() / math.sqrt(len(gap))


# ---- no unit takes the slot


@pytest.mark.parametrize("inner", [ONE, ONE * 2, fp.Laplace(noise_multiplier=1.0)], ids=repr)
def test_a_cohort_of_everybody_cannot_lose_one(inner):
    full, most = fp.FixedSize(10, population=10), fp.FixedSize(10, population=11)
    with pytest.raises(fp.UnsupportedCombination, match=r"cannot be filled.*Everyone\(\)"):
        fp.epsilon(inner.sampled(full) * 3, delta=1e-5, adjacency="add_remove")
    assert fp.epsilon(inner.sampled(most), delta=1e-5, adjacency="add_remove").upper > 0.0
    for adjacency in ("zero_out", "replace_one"):
        plain = inner.privacy_loss(adjacency)
        assert inner.sampled(full).privacy_loss(adjacency).curve == plain.curve
    record = inner.in_cohort(full).privacy_loss("add_remove")
    assert record.curve == inner.privacy_loss("add_remove").curve


@pytest.mark.parametrize("only", [{"population": 1}, {"probability": 1.0}], ids=str)
def test_the_only_unit_cannot_be_missed(only):
    run = ONE.sampled(fp.WithReplacement(3, **only))
    with pytest.raises(
        fp.UnsupportedCombination, match="WithReplacement can draw only this unit, got"
    ):
        fp.epsilon(run, delta=1e-5, adjacency="add_remove")
    assert fp.epsilon(run, delta=1e-5, adjacency="replace_one").lower > 0.0


@pytest.mark.fast_cells("0.5-1.0", "0.7-2.0")
@pytest.mark.parametrize("q, moves", [(0.1, 1.0), (0.5, 1.0), (0.7, 2.0)])
def test_poisson_sampling_halves_mu_under_replace_one(q, moves):
    """Four rounds at multiplier 2: twice the largest distance of coupled components over 2."""
    run = fp.Gaussian(noise_multiplier=2.0).sampled(fp.Poisson(q)) * 4
    mu = fp.attack_risk(run, adjacency="replace_one", fpr=[0.01]).mu
    assert moves <= mu.upper <= moves * (1 + 1e-12)
