"""Mechanisms: the algebra, and that what is released has the law that is accounted."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.evidence.repricing import as_observed, as_released
from fedprivacy.loss import Gdp

SETTING = {
    "noise_multiplier": 2.0,
    "clip_norm": 0.5,
    "kept": 40,
    "dimension": 400,
    "cohort": 25,
}


def sparse(**changed):
    return fp.SparsifiedPerturbation(**{**SETTING, **changed})


def as_array(values):
    return np.asarray(values, dtype=np.float64)


def as_tensor(values):
    return pytest.importorskip("torch").tensor(np.asarray(values), dtype=float_of_torch())


def float_of_torch():
    return pytest.importorskip("torch").float64


BOTH = pytest.mark.parametrize("kind", [as_array, as_tensor])
PUBLIC = np.random.default_rng(5)


@BOTH
@pytest.mark.parametrize("sparsifier", ["rand_k", "top_k"])
def test_nothing_leaves_off_the_mask(kind, sparsifier):
    step = sparse(sparsifier=sparsifier)
    mask = step.draw_mask(np.random.default_rng(1))
    assert len(mask) == len(set(mask.tolist())) == 40
    share = np.asarray(step.release(kind(np.ones(400)), np.random.default_rng(2), mask=mask))
    off = np.setdiff1d(np.arange(400), mask)
    assert (share[off] == 0.0).all()
    assert (share[mask] != 0.0).all()
    assert share.shape == (400,)


@BOTH
def test_the_noise_on_kept_coordinates_has_the_share_of_the_std(kind):
    """20 000 normal draws: a sample std is off by 5 sigma = 2.5 % once in 1.7 million times."""
    step = sparse()
    mask = np.arange(40)
    generator = np.random.default_rng(3)
    draws = [
        np.asarray(step.release(kind(np.zeros(400)), generator, mask=mask)) for _ in range(500)
    ]
    noise = np.concatenate([draw[mask] for draw in draws])
    std = 0.5 * 2.0 / math.sqrt(25)
    assert step.share_std == pytest.approx(std, rel=1e-15)
    assert abs(noise.std() / std - 1.0) < 0.025
    assert abs(noise.mean()) < 5 * std / math.sqrt(len(noise))


@BOTH
def test_a_cohort_of_shares_carries_the_full_noise(kind):
    step = sparse(kept=400)
    generator = np.random.default_rng(4)
    total = sum(np.asarray(step.release(kind(np.zeros(400)), generator)) for _ in range(25))
    assert step.sum_noise_std(25) == pytest.approx(1.0)
    assert abs(total.std() - 1.0) < 5 / math.sqrt(800)


@BOTH
def test_rand_k_is_scaled_by_d_over_k_and_top_k_is_not(kind):
    update = kind(np.full(400, 1e-4))
    mask = np.arange(40)
    scaled = np.asarray(sparse().contribution(update, mask))
    plain = np.asarray(sparse(sparsifier="top_k").contribution(update, mask))
    near = sparse().grid / 2
    assert scaled == pytest.approx(np.full(40, 1e-3), abs=near)
    assert plain == pytest.approx(np.full(40, 1e-4), abs=near)


@BOTH
@pytest.mark.parametrize("sparsifier", ["rand_k", "top_k"])
def test_clipping_comes_after_sparsifying(kind, sparsifier):
    """An update whose whole norm is huge and whose kept part is small is not clipped."""
    values = np.full(400, 50.0)
    mask = np.arange(40)
    values[mask] = 1e-4
    step = sparse(sparsifier=sparsifier)
    scale = 10.0 if sparsifier == "rand_k" else 1.0
    kept = np.asarray(step.contribution(kind(values), mask))
    assert kept == pytest.approx(np.full(40, 1e-4 * scale), abs=step.grid / 2)
    values[mask] = PUBLIC.normal(size=40)
    clipped = np.asarray(step.contribution(kind(values), mask))
    assert np.linalg.norm(clipped) == pytest.approx(0.5, rel=2.0**-19)
    assert clipped / np.linalg.norm(clipped) == pytest.approx(
        values[mask] / np.linalg.norm(values[mask]), abs=2.0**-19
    )


@BOTH
def test_contributions_never_exceed_the_clip_norm(kind):
    generator = np.random.default_rng(6)
    for exponent in np.linspace(-12, 12, 60):
        update = kind(generator.normal(size=400) * 10.0**exponent)
        kept = np.asarray(sparse().contribution(update, sparse().draw_mask(generator)))
        assert np.linalg.norm(kept) <= 0.5 * (1 + 1e-12)


def test_top_k_needs_a_public_mask():
    with pytest.raises(fp.ParameterError, match=r"mask must be given for top_k.*public data"):
        sparse(sparsifier="top_k").release(np.zeros(400))


def test_rand_k_draws_every_coordinate_equally_often():
    """4000 masks, each coordinate 400 +- 19: 6 sigma happens once in 1.2 million batches."""
    step, generator = sparse(), np.random.default_rng(7)
    seen = np.zeros(400)
    for _ in range(4000):
        seen[step.draw_mask(generator)] += 1
    assert np.abs(seen - 400).max() < 6 * math.sqrt(4000 * 0.1 * 0.9)


@BOTH
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_update_is_refused(kind, bad):
    values = np.zeros(400)
    values[7] = bad
    for call in (
        lambda: sparse(kept=400).release(kind(values)),
        lambda: sparse().contribution(kind(values), np.arange(40)),
        lambda: fp.Gaussian(noise_multiplier=1.0).release(kind(values)),
    ):
        with pytest.raises(fp.ParameterError, match=r"finite"):
            call()


@pytest.mark.parametrize("shape", [(399,), (1, 400), ()])
def test_a_wrong_shape_is_refused(shape):
    with pytest.raises(fp.ParameterError, match=r"update must have shape \(400,\)"):
        sparse().contribution(np.zeros(shape), np.arange(40))
    with pytest.raises(fp.ParameterError, match=r"mask must have shape \(40,\)"):
        sparse().contribution(np.zeros(400), np.arange(39))


@BOTH
def test_the_gaussian_adds_its_noise_to_the_sum(kind):
    step = fp.Gaussian(noise_multiplier=3.0, clip_norm=0.2)
    noise = np.asarray(step.release(kind(np.full(20_000, 7.0)), np.random.default_rng(8))) - 7.0
    assert abs(noise.std() / 0.6 - 1.0) < 0.025


@pytest.mark.system_randomness
def test_two_private_releases_differ():
    step = fp.Gaussian(noise_multiplier=1.0)
    # Two numbers are alike with a chance of 3e-7, three of eight pairs with one of 2e-18.
    assert (step.release(np.zeros(8)) != step.release(np.zeros(8))).sum() >= 6


@BOTH
def test_a_release_leaves_its_input_alone(kind):
    value = kind(np.ones(400))
    sparse(kept=400).release(value)
    fp.Gaussian(noise_multiplier=1.0).release(value)
    assert (np.asarray(value) == 1.0).all()


@pytest.mark.parametrize("missing, colluding", [(0, 0), (1, 0), (0, 1), (4, 5), (24, 0)])
def test_missing_and_colluding_shares_lower_the_multiplier(missing, colluding):
    step = sparse(missing=missing, colluding=colluding)
    multiplier = 2.0 * math.sqrt((25 - missing - colluding) / 25)
    assert step.sum_multiplier == pytest.approx(multiplier, rel=1e-15)
    assert step.privacy_loss("zero_out").curve == Gdp(1.0 / step.sum_multiplier)
    assert step.privacy_loss("replace_one").curve == Gdp(2.0 / step.sum_multiplier)


def test_topping_up_makes_good_for_the_missing_only():
    assert sparse(missing=5, topped_up=True).sum_multiplier == 2.0
    with pytest.raises(fp.ParameterError, match=r"colluding must be 0 if the noise is topped"):
        sparse(colluding=9, topped_up=True)
    assert sparse(topped_up=True).sum_noise_std(0) == 1.0
    assert sparse().sum_noise_std(16) == pytest.approx(0.8)


AWAY = {"noise_multiplier": 5.0, "clip_norm": 1.0, "kept": 4, "dimension": 4}


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
@pytest.mark.parametrize("observer", ["aggregate", "server"])
def test_clients_that_are_away_for_good_leave_the_others_to_take_part_more_often(
    adjacency, observer
):
    """8 of 20 never answer and 2 of 10 may be missing: released are 8 or more, of the same 12."""
    facts = {"adjacency": adjacency, "observer": observer, "delta": 1e-5}

    def price(**options):
        step = fp.SparsifiedPerturbation(**AWAY, cohort=10, missing=2, **options)
        return fp.epsilon(step.sampled(fp.FixedSize(10, population=20)) * 60, **facts)

    left = fp.Gaussian(noise_multiplier=5.0 * math.sqrt(0.8))
    really = fp.epsilon(left.sampled(fp.FixedSize(8, population=12)) * 60, **facts)
    stated = price(absent=8)
    assert stated.upper >= really.upper and stated.lower == price().lower
    assert really.lower > price().upper or adjacency == "zero_out"
    alone = fp.SparsifiedPerturbation(**AWAY, cohort=1, absent=1)
    always = fp.epsilon(fp.Gaussian(noise_multiplier=5.0) * 50, **facts).upper
    found = fp.epsilon(alone.sampled(fp.FixedSize(1, population=2)) * 50, **facts).upper
    assert always <= found + 1e-3 <= always + 2e-3
    with pytest.raises(
        fp.UnsupportedCombination, match="no theorem covers add_remove with absent clients, since"
    ):
        fp.epsilon(alone.sampled(fp.FixedSize(1, population=2)), delta=1e-5, adjacency="add_remove")


def test_draws_with_replacement_are_from_those_who_are_there():
    step = fp.SparsifiedPerturbation(**AWAY, cohort=10, missing=1, absent=15)
    facts = {"adjacency": "zero_out", "delta": 1e-5}
    found = fp.epsilon(step.sampled(fp.WithReplacement(10, population=40)), **facts)
    fewer = replace(step, absent=0).sampled(fp.WithReplacement(10, population=25))
    assert found.upper == fp.epsilon(fewer, **facts).upper > found.lower
    assert any("absent = 15" in words for words in found.assumptions)
    with pytest.raises(fp.ParameterError, match=r"absent must be 0 if WithReplacement has no p"):
        step.sampled(fp.WithReplacement(10, probability=0.1))
    with pytest.raises(fp.UnsupportedCombination, match="colluder"):
        replace(step, colluding=1).sampled(fp.WithReplacement(10, population=40))


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


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64])
def test_a_contribution_never_exceeds_its_norm_by_a_rounding(kind):
    step = sparse(kept=400, clip_norm=0.7)
    generator = np.random.default_rng(3)
    for scale in (1.0, 30.0, 1e4):
        update = (scale * generator.normal(size=400)).astype(kind)
        kept = step.contribution(update).astype(np.longdouble)
        assert np.sqrt((kept**2).sum()) <= 0.7
    update = as_tensor(30.0 * generator.normal(size=400)).float()
    kept = step.contribution(update).double().numpy().astype(np.longdouble)
    assert 0.6999 < np.sqrt((kept**2).sum()) <= 0.7


@BOTH
def test_huge_entries_are_clipped_though_their_norm_overflows(kind):
    step = sparse(kept=400)
    kept = np.asarray(step.contribution(kind(np.full(400, 1.5e308))))
    assert np.linalg.norm(kept) == pytest.approx(step.clip_norm, rel=2.0**-19)


MASKS = [
    (np.zeros(4, int), "contain every index at most once"),
    (np.array([0, 1, 2, -1]), "contain indices from 0 to 399"),
    (np.array([0, 1, 2, 400]), "contain indices from 0 to 399"),
    (np.array([0.0, 1.0, 2.0, 3.0]), "contain integers"),
    (np.array([True, False, True, False]), "contain integers"),
    (np.arange(5), "have shape"),
    ([0, 1, 2, 3], "have shape"),
]


@pytest.mark.parametrize(("mask", "words"), MASKS)
def test_a_mask_that_does_not_fit_is_refused(mask, words):
    step = sparse(kept=4)
    with pytest.raises(fp.ParameterError, match=f"mask must {words}"):
        step.contribution(np.ones(400), mask)
    with pytest.raises(fp.ParameterError, match=f"mask must {words}"):
        step.release(np.ones(400), mask=mask)
    unsorted = np.array([7, 3, 9, 1])
    # A number is 0 with a chance of 1e-6, three of four with one of 4e-18.
    assert (step.release(np.ones(400), mask=unsorted)[unsorted] != 0.0).sum() >= 2


def test_a_share_that_would_not_add_up_is_refused():
    with pytest.raises(fp.ParameterError, match="mask must be given, the same for the whole"):
        sparse(kept=10).release(np.zeros(400))
    alone = sparse(kept=10, cohort=1).release(np.zeros(400))
    # A number is 0 with a chance of 1e-6, three of ten with one of 2e-16.
    assert 8 <= np.count_nonzero(alone) <= 10
    topped = sparse(kept=400, topped_up=True)
    with pytest.raises(fp.ParameterError, match="shares must be given where the noise is topped"):
        topped.release(np.zeros(400))
    with pytest.raises(fp.ParameterError, match="shares must be cohort = 25"):
        sparse(kept=400).release(np.zeros(400), shares=24)
    generator = np.random.default_rng(5)
    for shares in (1, 4, 60):
        total = sum(topped.release(np.zeros(400), generator, shares=shares) for _ in range(shares))
        full = topped.clip_norm * topped.noise_multiplier
        assert np.std(total) == pytest.approx(full, rel=0.2)


def test_sparsifying_does_not_change_privacy():
    whole = sparse(kept=400).privacy_loss("replace_one").curve
    for changed in ({"kept": 1}, {"sparsifier": "top_k"}, {"clip_norm": 9.0}):
        assert sparse(**changed).privacy_loss("replace_one").curve == whole
    assert whole == fp.Gaussian(noise_multiplier=2.0).privacy_loss("replace_one").curve


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
    """A million coordinates of N(0, 99/100) and not N(0, 1): the mean square tells, 71 sigma."""
    step = sparse(cohort=100, kept=400)
    run = step if scheme is None else step.sampled(scheme)
    for adjacency in ("zero_out", "replace_one"):
        words = fp.epsilon(run, delta=1e-5, adjacency=adjacency).assumptions
        assert any("fewer than 100" in each and "releases nothing" in each for each in words)
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
        fp.ParameterError, match=r"missing must be at least 1, as some .* 3 clients"
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
    """All four shares were there: nothing certain is known of the rounds that have three."""
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


def test_a_unit_is_sampled_once():
    sampled = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.5))
    for twice in (sampled, sampled * 2, sampled + sampled, sampled.in_cohort(fp.Everyone())):
        with pytest.raises(fp.UnsupportedCombination, match=r"already sampled"):
            twice.sampled(fp.FixedSize(1, population=2))
    assert sampled.in_cohort(fp.Poisson(0.5)).in_cohort(fp.Poisson(0.5))


def test_units_do_not_add():
    client, record = (fp.Gaussian(noise_multiplier=1.0, unit=u) for u in fp.Unit)
    assert client.protects is fp.Unit.CLIENT and record.protects is fp.Unit.RECORD
    for call in (lambda: client + record, lambda: sparse() + record, lambda: record * 2 + client):
        with pytest.raises(fp.ParameterError, match=r"unit must agree"):
            call()
    unsaid = fp.Gaussian(noise_multiplier=1.0)
    assert (unsaid + client).protects is fp.Unit.CLIENT
    assert (unsaid * 2).protects is None


def test_the_unit_reaches_the_bound_and_no_number():
    bounds = [
        fp.epsilon(fp.Gaussian(noise_multiplier=1.0, unit=u), delta=1e-5, adjacency="zero_out")
        for u in ("client", "record", None)
    ]
    assert [bound.unit for bound in bounds] == [fp.Unit.CLIENT, fp.Unit.RECORD, None]
    assert len({bound.upper for bound in bounds}) == 1


def test_the_algebra_of_runs():
    a, b = fp.Gaussian(noise_multiplier=1.0), fp.Gaussian(noise_multiplier=2.0)
    assert (a * 2) * 3 == a * 6 == 6 * a == 2 * (3 * a)
    assert a + a == a * 2
    assert (a + b) * 2 == a * 2 + b * 2
    assert (a + b) + a == a * 2 + b
    assert hash(a * 2) == hash(a + a)
    assert a.sampled(fp.Poisson(0.5)) == a.sampled(fp.Poisson(0.5))


def test_mechanisms_are_values():
    with pytest.raises(AttributeError):
        fp.Gaussian(noise_multiplier=1.0).noise_multiplier = 2.0
    with pytest.raises(TypeError):
        fp.Gaussian(1.0)


@pytest.mark.parametrize(
    "scheme", [fp.Poisson(0.3), fp.FixedSize(6, population=20), fp.Everyone()], ids=repr
)
def test_schemes_draw_what_they_say(scheme):
    """2000 draws of 20 units: every unit takes part ``rate`` of the time, within 6 sigma."""
    generator = np.random.default_rng(9)
    seen = np.zeros(20)
    for _ in range(2000):
        drawn = scheme.draw(20, generator)
        assert len(set(drawn.tolist())) == len(drawn)
        assert isinstance(scheme, fp.Poisson) or len(drawn) == scheme.rate * 20
        seen[drawn] += 1
    spread = math.sqrt(2000 * scheme.rate * (1 - scheme.rate))
    assert np.abs(seen - 2000 * scheme.rate).max() <= 6 * spread


def test_single_precision_is_summed_in_double():
    step = sparse(kept=2000, dimension=2000, clip_norm=1.0)
    update = np.full(2000, 0.0037097, dtype=np.float32)
    update[0] = 1.0
    kept = step.contribution(update).astype(np.longdouble)
    assert 0.999 < np.sqrt((kept**2).sum()) <= 1.0
    half = step.contribution(np.full(2000, 6e4, dtype=np.float16)).astype(np.longdouble)
    assert 0.9 < np.sqrt((half**2).sum()) <= 1.0


CLIENT = fp.Gaussian(noise_multiplier=1.0, unit="client")
RECORD = fp.Gaussian(noise_multiplier=1.0, unit="record")


@pytest.mark.parametrize(
    "inner",
    [
        CLIENT,
        CLIENT * 3,
        CLIENT.sampled(fp.Poisson(0.5)),
        fp.Gaussian(noise_multiplier=1.0) + CLIENT,
        fp.Parallel((CLIENT, CLIENT * 2)),
        fp.Laplace(noise_multiplier=1.0, unit="client"),
        fp.ApproximateDp(guarantees=((1.0, 0.0),), adjacency="zero_out", unit="client"),
        sparse(),
        sparse(topped_up=True),
    ],
    ids=repr,
)
def test_a_client_is_in_no_client_s_cohort(inner):
    """T4 keeps the rest of the cohort; a client's slot is refilled, and the list shows it."""
    for scheme in (fp.FixedSize(99, population=100), fp.Poisson(0.5), fp.Everyone()):
        with pytest.raises(fp.UnsupportedCombination, match=r"unit is a client.*use \.sampled"):
            inner.in_cohort(scheme)


def test_what_runs_in_a_cohort_is_about_records():
    unsaid, scheme = fp.Gaussian(noise_multiplier=1.0), fp.FixedSize(9, population=10)
    for inner in (unsaid, RECORD):
        run = inner.in_cohort(scheme)
        assert run.protects is fp.Unit.RECORD
        for adjacency in fp.Adjacency:
            bound = fp.epsilon(run, delta=1e-5, adjacency=adjacency, observer="server")
            assert bound.unit is fp.Unit.RECORD
    with pytest.raises(fp.ParameterError, match="unit must agree"):
        unsaid.in_cohort(scheme) + CLIENT


@pytest.mark.parametrize(
    "run",
    [
        CLIENT,
        CLIENT * 2,
        CLIENT + fp.Gaussian(noise_multiplier=2.0),
        fp.Parallel((CLIENT, CLIENT * 2)),
        fp.Laplace(noise_multiplier=1.0, unit="client"),
        fp.ApproximateDp(guarantees=((1.0, 0.0),), adjacency="add_remove", unit="client"),
        sparse(topped_up=True),
        CLIENT.sampled(fp.Everyone()),
    ],
    ids=repr,
)
def test_the_list_of_participants_shows_which_clients_there_are(run):
    ask = {"delta": 1e-5, "adjacency": "add_remove"}
    with pytest.raises(fp.UnsupportedCombination, match="list of participants shows membership"):
        fp.epsilon(run, observer="server", **ask)
    for observer in ("aggregate", "final"):
        assert fp.epsilon(run, observer=observer, **ask).upper > 0.0
    assert (
        "list of part"
        in fp.audit(run, claim=(1.0, 1e-5), adjacency="add_remove").unsupported["server"]
    )


def test_of_a_record_the_list_shows_nothing():
    ask = {"delta": 1e-5, "adjacency": "add_remove", "observer": "server"}
    unsaid = fp.epsilon(fp.Gaussian(noise_multiplier=1.0), **ask)
    assert any("the unit is a record" in words for words in unsaid.assumptions)
    told = fp.epsilon(RECORD, **ask)
    assert told.upper == unsaid.upper and not any("record (" in w for w in told.assumptions)
    loss = fp.Gaussian(noise_multiplier=1.0).privacy_loss("add_remove", "server")
    with pytest.raises(fp.UnsupportedCombination, match="list of participants"):
        loss.under(CLIENT.privacy_loss("add_remove").facts._replace(observer=fp.Observer.SERVER))
    with pytest.raises(fp.ParameterError, match="unit must agree"):
        RECORD.privacy_loss("zero_out").under(CLIENT.privacy_loss("zero_out").facts)


def test_units_that_are_away_are_sampled_not_in_a_cohort():
    class Away(fp.Gaussian):
        def worst_scheme(self, scheme):
            return fp.Poisson(1.0)

    with pytest.raises(fp.UnsupportedCombination, match="known to be away"):
        Away(noise_multiplier=1.0).in_cohort(fp.Poisson(0.5))


def test_a_population_that_the_law_of_cohorts_needs_is_said_to_be_public():
    run = fp.Gaussian(noise_multiplier=2.0).sampled(
        fp.TruncatedPoisson(0.01, population=900, largest=20)
    )
    bound = fp.epsilon(run, delta=1e-5, adjacency="add_remove", accountant="rdp")
    assert "declared public, which add_remove does not hide) = 900" in bound.assumptions[-1]
    other = fp.epsilon(run, delta=1e-5, adjacency="zero_out", accountant="rdp")
    assert "population = 900" in other.assumptions[-1]
