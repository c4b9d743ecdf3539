"""Tests of ``fedprivacy.mechanisms.perturbation``."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.evidence.repricing import as_observed, as_released
from fedprivacy.loss import Gdp
from tests.mechanisms.test_base import BOTH, SETTING, sparse


@BOTH
def test_a_cohort_of_shares_carries_the_full_noise(kind):
    step = sparse(kept=400)
    generator = np.random.default_rng(4)
    total = sum(np.asarray(step.release(kind(np.zeros(400)), generator)) for _ in range(25))
    assert step.sum_noise_std(25) == pytest.approx(1.0)
    assert abs(total.std() - 1.0) < 5 / math.sqrt(800)


@pytest.mark.parametrize("missing, colluding", [(0, 0), (1, 0), (0, 1), (4, 5), (24, 0)])
def test_missing_and_colluding_shares_lower_the_multiplier(missing, colluding):
    step = sparse(missing=missing, colluding=colluding)
    multiplier = 2.0 * math.sqrt((25 - missing - colluding) / 25)
    assert step.traits.sum_multiplier == pytest.approx(multiplier, rel=1e-15)
    assert step.privacy_loss("zero_out").curve == Gdp(1.0 / step.traits.sum_multiplier)
    assert step.privacy_loss("replace_one").curve == Gdp(2.0 / step.traits.sum_multiplier)


def test_topping_up_makes_good_for_the_missing_only():
    assert sparse(missing=5, topped_up=True).traits.sum_multiplier == 2.0
    with pytest.raises(fp.ParameterError, match=r"colluding must be 0 if the noise is topped"):
        sparse(colluding=9, topped_up=True)
    assert sparse(topped_up=True).sum_noise_std(0) == 1.0
    assert sparse().sum_noise_std(16) == pytest.approx(0.8)


AWAY = {"noise_multiplier": 5.0, "clip_norm": 1.0, "kept": 4, "dimension": 4}


@pytest.mark.parametrize("delta", [1e-5, 1e-9, 1e-15])
def test_colluders_know_which_of_them_were_drawn(delta):
    """3 of 4, one of them a colluder: with it or, surely, all three others (Bin mixture, T1)."""
    step = fp.SparsifiedPerturbation(
        **{**AWAY, "noise_multiplier": 100.0}, cohort=3, colluding=1, absent=1
    )
    run = step.sampled(fp.FixedSize(3, population=4))
    found = fp.epsilon(run, delta=delta, adjacency="replace_one", tolerance=1e-6)

    def spent(epsilon):
        with_it = fp.Gaussian(noise_multiplier=100.0 * math.sqrt(2 / 3))
        parts = (
            (0.75, with_it.sampled(fp.FixedSize(2, population=3))),
            (0.25, fp.Gaussian(noise_multiplier=100.0)),
        )
        facts = {"epsilon": epsilon, "adjacency": "replace_one"}
        return sum(w * fp.delta(part, **facts).lower for w, part in parts)

    assert spent(found.upper) <= delta
    lower = step.noise_multiplier * math.sqrt(2 / 3)
    naive = fp.Gaussian(noise_multiplier=lower).sampled(fp.FixedSize(3, population=4))
    as_printed = fp.epsilon(naive, delta=delta, adjacency="replace_one", tolerance=1e-6).upper
    assert (spent(as_printed) > delta) == (delta < 1e-5)


def test_a_share_that_would_not_add_up_is_refused():
    with pytest.raises(fp.ParameterError, match="mask must be given, equal for the whole"):
        sparse(kept=10).release(np.zeros(400))
    alone = sparse(kept=10, cohort=1).release(np.zeros(400))
    # A number is 0 with a chance of 1e-6, three of ten with one of 2e-16.
    assert 8 <= np.count_nonzero(alone) <= 10
    topped = sparse(kept=400, topped_up=True)
    with pytest.raises(fp.ParameterError, match="shares must be given if the noise is topped"):
        topped.release(np.zeros(400))
    with pytest.raises(fp.ParameterError, match="shares must be cohort = 25"):
        sparse(kept=400).release(np.zeros(400), shares=24)
    generator = np.random.default_rng(5)
    for shares in (1, 4, 60):
        total = sum(topped.release(np.zeros(400), generator, shares=shares) for _ in range(shares))
        full = topped.clip_norm * topped.noise_multiplier
        assert np.std(total) == pytest.approx(full, rel=0.2)


def test_poisson_cohorts_need_topping_up():
    with pytest.raises(fp.UnsupportedCombination, match=r"topped_up"):
        sparse().sampled(fp.Poisson(0.1))
    with pytest.raises(fp.UnsupportedCombination, match=r"topped_up"):
        (sparse() * 3 + sparse(kept=3)).sampled(fp.Poisson(0.1))
    for scheme in (fp.TruncatedPoisson(0.1, population=400, largest=60), fp.RandomAllocation(5)):
        with pytest.raises(fp.UnsupportedCombination, match=r"topped_up"):
            sparse().sampled(scheme)
    assert sparse(topped_up=True).sampled(fp.Poisson(0.1)).privacy_loss("add_remove")


ALONE = [None, fp.Everyone()]


@pytest.mark.parametrize("scheme", ALONE, ids=repr)
def test_a_share_of_the_noise_goes_with_its_client(scheme):
    """A million coordinates of N(0, 99/100) instead of N(0, 1): the mean square shows 71 sigma."""
    step = sparse(cohort=100, kept=400)
    run = step if scheme is None else step.sampled(scheme)
    for adjacency in ("zero_out", "replace_one"):
        words = fp.epsilon(run, delta=1e-5, adjacency=adjacency).assumptions
        assert any("fewer than 100" in each and "is aborted" in each for each in words)
    for one in (run, run * 3, run + run, fp.Parallel((run, run))):
        with pytest.raises(fp.UnsupportedCombination, match=r"its share of the noise.*topped_up"):
            fp.epsilon(one, delta=1e-5, adjacency="add_remove")
    full = sparse(cohort=100, kept=400, topped_up=True)
    topped = full if scheme is None else full.sampled(scheme)
    assert fp.epsilon(topped, delta=1e-5, adjacency="add_remove").upper > 0.0
    slot = step.sampled(fp.FixedSize(100, population=101))
    assert fp.epsilon(slot, delta=1e-5, adjacency="add_remove").upper > 0.0


def test_shorter_rounds_of_a_shuffled_epoch_have_less_noise():
    three, ten = {"rounds_per_epoch": 3}, {"rounds_per_epoch": 3, "population": 10}
    with pytest.raises(fp.UnsupportedCombination, match=r"smaller rounds have less noise.*popul"):
        sparse(cohort=4).sampled(fp.Shuffled(**three))
    with pytest.raises(
        fp.ParameterError, match=r"missing must be at least 1, since some .* 3 clients"
    ):
        sparse(cohort=4).sampled(fp.Shuffled(**ten))
    for wrong in (3, 5):
        with pytest.raises(fp.ParameterError, match=r"cohort must equal .* longest round = 4"):
            sparse(cohort=wrong, missing=2).sampled(fp.Shuffled(**ten))
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    run = sparse(cohort=4, missing=1).sampled(fp.Shuffled(**ten))
    least = sparse(cohort=4).sum_noise_std(3) / SETTING["clip_norm"]
    assert (
        fp.epsilon(run, **ask).upper >= fp.epsilon(fp.Gaussian(noise_multiplier=least), **ask).lower
    )
    even = sparse(cohort=5).sampled(fp.Shuffled(rounds_per_epoch=2, population=10))
    for fine in (even, sparse(cohort=4, topped_up=True).sampled(fp.Shuffled(**three))):
        assert fp.epsilon(fine, **ask).upper < fp.epsilon(run, **ask).upper
    lengths = [len(part) for part in fp.Shuffled(**ten).epoch(10, np.random.default_rng(1))]
    assert lengths == [4, 3, 3]
    with pytest.raises(fp.ParameterError, match="population must equal the scheme's population"):
        fp.Shuffled(**ten).epoch(11, np.random.default_rng(1))


def test_more_noise_than_a_shuffled_epoch_asks_for_is_no_error():
    """All four shares arrived; no certain part is known for rounds with three."""
    epoch = sparse(cohort=4, missing=1).sampled(fp.Shuffled(rounds_per_epoch=3, population=10))
    used = {"clip_norm": 0.5, "planned_std": math.sqrt(0.75), "used_std": 1.0}
    assert as_released(epoch, **used) == epoch and as_observed(epoch, **used) is None


def test_shares_of_a_scheme_that_is_not_known_must_be_topped_up():
    class Odd(fp.Poisson):
        pass

    class Unknown:
        rate = 0.5

        def amplify(self, inner, adjacency, observer):
            raise AssertionError

        group = amplify

    for scheme in (Odd(0.5), Unknown()):
        with pytest.raises(fp.UnsupportedCombination, match="topped_up"):
            sparse().sampled(scheme)
